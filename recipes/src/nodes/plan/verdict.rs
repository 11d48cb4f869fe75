//! The pure decision in an attempt to create a node at a path that may be taken.

use std::collections::BTreeSet;

use curator_framework::Stat;

/// A node as a reply has shown it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::nodes) struct Known {
    pub(in crate::nodes) czxid: i64,
    /// The session that owns the node; 0 if it is not ephemeral.
    pub(in crate::nodes) session: i64,
    /// The version of the data.
    pub(in crate::nodes) version: i32,
    /// The transaction that wrote it. After a restore from a backup a version may repeat.
    pub(in crate::nodes) mzxid: i64,
    /// The task has found the node and did not create it.
    pub(in crate::nodes) adopted: bool,
}

impl Known {
    pub(in crate::nodes) const fn of(stat: &Stat) -> Self {
        let Stat { czxid, ephemeral_owner: session, version, mzxid, .. } = *stat;
        Self { czxid, session, version, mzxid, adopted: false }
    }

    /// Returns the same node with newer data.
    pub(in crate::nodes) const fn at(self, newer: &Self) -> Self {
        Self { version: newer.version, mzxid: newer.mzxid, ..self }
    }
}

/// The facts of a task, to judge the node at its path by.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    pub(super) is_ephemeral: bool,
    /// The present session; `None` if it has created no ephemeral node, and so the client does not know its id.
    pub(super) session: Option<i64>,
    pub(super) known: Option<Known>,
    /// The sessions in which the reply to a create was lost.
    pub(super) uncertain: &'a BTreeSet<i64>,
}

/// The judgement on the node at the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The node is the known one.
    Known,
    /// A create of the present session has made the node, and a reply was lost. Another task may have sent that create,
    /// so a claim decides.
    Found,
    /// An earlier session of this client owns the node, which ends with it.
    Dying,
    /// The mode is not ephemeral, so the node serves.
    Adopt,
    /// Another session, or another program, owns the node.
    Taken,
}

impl Facts<'_> {
    pub(super) fn judge(&self, found: &Known) -> Verdict {
        let owner = found.session;
        // The session too: servers that have lost their data give out the same transactions again.
        let is_known = self.known.is_some_and(|known| (known.czxid, known.session) == (found.czxid, owner));
        let is_of_session = self.session == Some(owner);
        match (self.is_ephemeral, owner) {
            (false, 0) if is_known => Verdict::Known,
            (false, 0) => Verdict::Adopt,
            (false, _) | (true, 0) => Verdict::Taken,
            (true, _) if is_known && is_of_session => Verdict::Known,
            (true, _) if is_known => Verdict::Dying,
            (true, _) if !self.uncertain.contains(&owner) => Verdict::Taken,
            (true, _) if is_of_session => Verdict::Found,
            (true, _) => Verdict::Dying,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: i64 = 7;
    const EARLIER: i64 = 6;
    const OTHER: i64 = 5;

    fn stat(czxid: i64, ephemeral_owner: i64) -> Stat {
        Stat { czxid, ephemeral_owner, ..Stat::default() }
    }

    fn judge(is_ephemeral: bool, known: Option<Stat>, uncertain: &[i64], found: Stat) -> Verdict {
        let known = known.map(|stat| Known::of(&stat));
        let uncertain = uncertain.iter().copied().collect();
        Facts { is_ephemeral, session: Some(OURS), known, uncertain: &uncertain }.judge(&Known::of(&found))
    }

    #[test]
    fn an_ephemeral_node_is_ours_only_by_a_create_of_ours() {
        assert_eq!(judge(true, Some(stat(1, OURS)), &[], stat(1, OURS)), Verdict::Known);
        assert_eq!(judge(true, None, &[OURS], stat(1, OURS)), Verdict::Found);
        // Another object of the same client has made it.
        assert_eq!(judge(true, None, &[], stat(1, OURS)), Verdict::Taken);
        assert_eq!(judge(true, Some(stat(1, OURS)), &[], stat(2, OURS)), Verdict::Taken);
        assert_eq!(judge(true, None, &[OURS], stat(1, OTHER)), Verdict::Taken);
    }

    #[test]
    fn a_node_of_an_earlier_session_is_dying() {
        assert_eq!(judge(true, Some(stat(1, EARLIER)), &[], stat(1, EARLIER)), Verdict::Dying);
        assert_eq!(judge(true, None, &[EARLIER], stat(1, EARLIER)), Verdict::Dying);
        assert_eq!(judge(true, Some(stat(1, EARLIER)), &[], stat(2, OTHER)), Verdict::Taken);
        assert_eq!(judge(true, Some(stat(1, EARLIER)), &[], stat(2, EARLIER)), Verdict::Taken);
        // After a loss of all data.
        assert_eq!(judge(true, Some(stat(1, EARLIER)), &[OURS], stat(1, OURS)), Verdict::Found);
    }

    #[test]
    fn modes_never_serve_for_each_other() {
        assert_eq!(judge(true, None, &[], stat(1, 0)), Verdict::Taken);
        assert_eq!(judge(false, None, &[], stat(1, OTHER)), Verdict::Taken);
        assert_eq!(judge(false, None, &[], stat(1, 0)), Verdict::Adopt);
        assert_eq!(judge(false, Some(stat(1, 0)), &[], stat(1, 0)), Verdict::Known);
        assert_eq!(judge(false, Some(stat(1, 0)), &[], stat(2, 0)), Verdict::Adopt);
    }
}

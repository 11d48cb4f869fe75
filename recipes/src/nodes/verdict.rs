//! The pure decision behind an attempt to create a node at a path that may be taken.

use std::collections::BTreeSet;

use curator_framework::Stat;

/// The node that this task has created or adopted, as it knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) czxid: i64,
    /// The session that owns the node; 0 if it is not ephemeral.
    pub(super) session: i64,
    /// The version of the data that the task knows.
    pub(super) version: i32,
    /// The transaction that wrote it. After a restore from a backup a version may repeat.
    pub(super) mzxid: i64,
    pub(super) adopted: bool,
}

impl Known {
    pub(super) const fn of(stat: &Stat, adopted: bool) -> Self {
        Self { czxid: stat.czxid, session: stat.ephemeral_owner, version: stat.version, mzxid: stat.mzxid, adopted }
    }

    /// Returns the same node with newer data.
    pub(super) const fn at(self, stat: &Stat) -> Self {
        Self { version: stat.version, mzxid: stat.mzxid, ..self }
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
    /// The node is that of an earlier session of this client, and goes with it.
    Dying,
    /// The mode is not ephemeral, so the node serves.
    Adopt,
    /// Another session, or another program, owns the node.
    Taken,
}

impl Facts<'_> {
    pub(super) fn judge(&self, found: &Stat) -> Verdict {
        let owner = found.ephemeral_owner;
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
        let known = known.map(|stat| Known::of(&stat, false));
        let uncertain = uncertain.iter().copied().collect();
        Facts { is_ephemeral, session: Some(OURS), known, uncertain: &uncertain }.judge(&found)
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
        // Behind a loss of all data.
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

//! The session's ephemeral nodes: their owner is the session's id.

use std::collections::VecDeque;

use crate::model::path::parent_of;

/// The most paths that are kept. Nodes can be deleted without a reply to this session, so all paths would pile up.
const KEPT: usize = 32;

/// The known ephemeral nodes of the session.
#[derive(Debug, Default)]
pub(crate) struct Ephemerals {
    session_id: Option<i64>,
    /// Nodes that the session may own, the newest last.
    paths: VecDeque<String>,
    /// The session may own nodes that are not in `paths`. Never cleared: their deletes are not recognized.
    others: bool,
}

impl Ephemerals {
    /// Returns the session's id, which the first answered create has shown.
    pub(crate) const fn session_id(&self) -> Option<i64> {
        self.session_id
    }

    /// Records a created node. Returns `false` if its owner is not the owner of the earlier creates.
    #[must_use]
    pub(crate) fn created(&mut self, path: &str, owner: i64) -> bool {
        if *self.session_id.get_or_insert(owner) != owner {
            return false;
        }
        self.may_exist(path);
        true
    }

    /// Records a node that the session owns if it exists.
    pub(crate) fn may_exist(&mut self, path: &str) {
        if self.paths.iter().any(|known| known == path) {
            return;
        }
        if self.paths.len() == KEPT {
            self.paths.pop_front();
            self.others = true;
        }
        self.paths.push_back(path.to_owned());
    }

    /// Records a create without a reply. The name of a sequential node is not known.
    pub(crate) fn outcome_unknown(&mut self, asked: &str) {
        self.others |= !self.paths.iter().any(|known| known == asked);
    }

    /// Records that a node does not exist.
    pub(crate) fn deleted(&mut self, path: &str) {
        self.paths.retain(|known| known != path);
    }

    /// Returns `true` if the session may own a node.
    pub(crate) fn may_own(&self) -> bool {
        self.others || !self.paths.is_empty()
    }

    /// Returns the known paths that end with `suffix`.
    pub(crate) fn ending_with(&self, suffix: &str) -> Vec<String> {
        self.paths.iter().filter(|path| path.ends_with(suffix)).cloned().collect()
    }

    /// Returns the root, then the parents of the other known paths, the newest first.
    pub(crate) fn parents(&self, unless_ending_with: &str, limit: usize) -> Vec<String> {
        let mut parents = vec!["/".to_owned()];
        let own = self.paths.iter().rev().filter(|path| !path.ends_with(unless_ending_with));
        for parent in own.map(|path| parent_of(path)) {
            if parents.len() < limit && !parents.iter().any(|known| known == parent) {
                parents.push(parent.to_owned());
            }
        }
        parents
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_of_each_created_node_is_the_session() {
        let mut ephemerals = Ephemerals::default();
        assert!(ephemerals.created("/a", 7) && ephemerals.created("/b", 7));
        assert!(!ephemerals.created("/c", 8));
        assert_eq!(ephemerals.session_id(), Some(7));
    }

    #[test]
    fn session_owns_nothing_when_each_node_is_deleted() {
        let mut ephemerals = Ephemerals::default();
        assert!(!ephemerals.may_own());
        assert!(ephemerals.created("/a", 7) && ephemerals.created("/a", 7));
        assert!(ephemerals.may_own());
        ephemerals.deleted("/a");
        assert!(!ephemerals.may_own());
    }

    #[test]
    fn paths_are_bounded_and_the_session_still_owns_the_others() {
        let mut ephemerals = Ephemerals::default();
        let path = |number: usize| format!("/locks/{number}/lock-0000000000");
        for number in 0..10_000 {
            assert!(ephemerals.created(&path(number), 7));
        }
        assert_eq!(ephemerals.paths.len(), KEPT);
        assert_eq!(ephemerals.parents("session", 3), ["/", "/locks/9999", "/locks/9998"]);
        for number in 0..10_000 {
            ephemerals.deleted(&path(number));
        }
        assert!(ephemerals.paths.is_empty() && ephemerals.may_own());
    }

    #[test]
    fn node_whose_reply_was_lost_may_exist_for_ever() {
        let mut ephemerals = Ephemerals::default();
        ephemerals.outcome_unknown("/locks/lock-");
        ephemerals.deleted("/locks/lock-0000000000");
        assert!(ephemerals.may_own());
        // If the name is known, its delete is recognized.
        let mut ephemerals = Ephemerals::default();
        ephemerals.may_exist("/session");
        ephemerals.outcome_unknown("/session");
        assert_eq!(ephemerals.ending_with("session"), ["/session"]);
        ephemerals.deleted("/session");
        assert!(!ephemerals.may_own());
    }
}

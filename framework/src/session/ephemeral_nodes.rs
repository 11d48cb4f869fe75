//! The limit on a session's ephemeral nodes.
//!
//! A session ends by one transaction that has the paths of its ephemeral nodes. A server reads transactions of up to
//! `jute.maxbuffer` and `jute.maxbuffer.extrasize` together, by default 2 MiB. A longer one stops the whole ensemble
//! for good: no server can read it from another one, or from its own log.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::model::CreateMode;
use crate::zookeeper::{Done, Operation, Request, Response};

/// Half of what servers read by default.
pub(crate) const DEFAULT_MAX_EPHEMERAL_BYTES: usize = 1 << 20;
/// The bytes of a path in the transaction, besides its characters.
const LENGTH: usize = 4;
/// The digits that a server appends to a sequential node.
const NUMBER: usize = 10;

/// The paths that a request adds to the session's ephemeral nodes, or removes.
#[derive(Debug)]
pub(super) enum NodeChange {
    None,
    /// The request creates a node at its path.
    Create {
        sequential: bool,
    },
    /// The request deletes the node at its path.
    Delete,
    Transaction(Box<[(Arc<str>, NodeChange)]>),
}

impl NodeChange {
    pub(super) fn of(request: &Request) -> Self {
        match request {
            Request::Create { mode, .. } => Self::of_create(*mode),
            Request::Delete { .. } => Self::Delete,
            Request::Transaction { operations } => {
                let changes: Box<[_]> = operations.iter().map(|one| (one.path().into(), Self::of_operation(one))).collect();
                match changes.iter().all(|(_, change)| matches!(change, Self::None)) {
                    true => Self::None,
                    false => Self::Transaction(changes),
                }
            }
            _ => Self::None,
        }
    }

    fn of_operation(operation: &Operation) -> Self {
        match operation {
            Operation::Create { mode, .. } => Self::of_create(*mode),
            Operation::Delete { .. } => Self::Delete,
            Operation::SetData { .. } | Operation::Check { .. } => Self::None,
        }
    }

    fn of_create(mode: CreateMode) -> Self {
        match mode.is_ephemeral() {
            true => Self::Create { sequential: mode.is_sequential() },
            false => Self::None,
        }
    }

    pub(super) const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Returns the changes one by one, with their paths.
    fn each<'a>(&'a self, path: &'a Arc<str>) -> impl Iterator<Item = (&'a Arc<str>, &'a Self)> {
        let (one, many) = match self {
            Self::Transaction(changes) => (None, &changes[..]),
            change => (Some((path, change)), &[][..]),
        };
        one.into_iter().chain(many.iter().map(|(path, change)| (path, change)))
    }
}

/// The creates of one path without a reply so far. A lost reply never comes.
#[derive(Debug, Default)]
struct Unanswered {
    number: usize,
    sequential: bool,
}

/// The ephemeral nodes that a session has or may have.
#[derive(Debug)]
pub(super) struct EphemeralNodes {
    limit: usize,
    /// The length of all paths in the transaction that ends the session.
    bytes: usize,
    existing: HashSet<Arc<str>>,
    /// By the path of the request. Sorted, so that those with a prefix are found.
    unanswered: BTreeMap<Arc<str>, Unanswered>,
}

const fn length(path: &str, sequential: bool) -> usize {
    path.len() + LENGTH + if sequential { NUMBER } else { 0 }
}

impl EphemeralNodes {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, bytes: 0, existing: HashSet::new(), unanswered: BTreeMap::new() }
    }

    /// Counts the nodes of a request that is about to be sent.
    ///
    /// # Errors
    ///
    /// `Error::TooManyEphemeralNodes`. Nothing is counted.
    pub(super) fn ask(&mut self, path: &Arc<str>, change: &NodeChange) -> Result<()> {
        let (mut more, mut less) = (0, 0);
        for (path, change) in change.each(path) {
            match *change {
                NodeChange::Create { sequential } if sequential || !self.is_counted(path) => {
                    more += length(path, sequential);
                }
                NodeChange::Delete if self.existing.contains(path) => less += length(path, false),
                _ => {}
            }
        }
        let bytes = (self.bytes + more).saturating_sub(less);
        if more > 0 && bytes > self.limit {
            return Err(Error::TooManyEphemeralNodes { bytes, limit: self.limit });
        }
        for (path, change) in change.each(path) {
            let &NodeChange::Create { sequential } = change else { continue };
            if sequential || !self.is_counted(path) {
                self.bytes += length(path, sequential);
            }
            let unanswered = self.unanswered.entry(Arc::clone(path)).or_default();
            (unanswered.number, unanswered.sequential) = (unanswered.number + 1, sequential);
        }
        Ok(())
    }

    /// Counts what the reply to a request shows.
    pub(super) fn answered(&mut self, path: &Arc<str>, change: &NodeChange, reply: &Result<Response>) {
        match (change, reply) {
            (NodeChange::Create { .. }, Ok(Response::Created { path: created, .. })) => self.created(path, created),
            (NodeChange::Delete, Ok(Response::Deleted)) => self.is_gone(path),
            (NodeChange::Transaction(changes), Ok(Response::Done(done))) => {
                for ((path, _), done) in changes.iter().zip(done) {
                    match done {
                        // Also of a node that is not ephemeral, which was not asked for here.
                        Done::Created { path: created, .. } if self.unanswered.contains_key(path) => {
                            self.created(path, &created.as_str().into());
                        }
                        Done::Deleted => self.is_gone(path),
                        _ => {}
                    }
                }
            }
            (_, Err(error)) if !error.outcome_unknown() => {
                for (path, _) in change.each(path).filter(|(_, change)| matches!(change, NodeChange::Create { .. })) {
                    self.forget_one(path);
                }
            }
            _ => {}
        }
    }

    fn created(&mut self, asked: &str, created: &Arc<str>) {
        if !self.is_counted(created) {
            self.bytes += length(created, false);
        }
        self.existing.insert(Arc::clone(created));
        self.forget_one(asked);
    }

    /// Records that no node exists at this path.
    pub(super) fn is_gone(&mut self, path: &str) {
        if self.is_counted(path) {
            self.bytes -= length(path, false);
            self.existing.remove(path);
            self.unanswered.remove(path);
            return;
        }
        // The node may be that of a create whose reply was lost. The server writes 10 digits, or 11 with a sign.
        let shorter = [NUMBER, NUMBER + 1].into_iter().filter_map(|digits| path.get(..path.len().checked_sub(digits)?));
        if let Some(asked) = shorter.into_iter().find(|asked| self.is_unanswered(asked, true)) {
            self.forget_one(asked);
        }
    }

    /// Records that the creates without a reply at this path have left no node that is not known.
    pub(super) fn settle(&mut self, asked: &str) {
        while self.unanswered.contains_key(asked) {
            self.forget_one(asked);
        }
    }

    /// Settles the creates at all paths with this prefix. One node may be left.
    pub(super) fn settle_all(&mut self, prefix: &str, left: Option<&Arc<str>>) {
        let behind = (Bound::Included(prefix), Bound::Unbounded);
        let asked = self.unanswered.range::<str, _>(behind).map(|(path, _)| Arc::clone(path));
        let asked: Vec<_> = asked.take_while(|path| path.starts_with(prefix)).collect();
        asked.iter().for_each(|asked| self.settle(asked));
        if let Some(left) = left.filter(|left| !self.is_counted(left)) {
            self.bytes += length(left, false);
            self.existing.insert(Arc::clone(left));
        }
    }

    /// Forgets one create that has its reply, or has made no node.
    fn forget_one(&mut self, asked: &str) {
        let Some(unanswered) = self.unanswered.get_mut(asked) else { return };
        let sequential = unanswered.sequential;
        unanswered.number -= 1;
        let is_last = unanswered.number == 0;
        if is_last {
            self.unanswered.remove(asked);
        }
        if sequential || (is_last && !self.existing.contains(asked)) {
            self.bytes -= length(asked, sequential);
        }
    }

    /// Returns whether the node at exactly this path is counted.
    fn is_counted(&self, path: &str) -> bool {
        self.existing.contains(path) || self.is_unanswered(path, false)
    }

    fn is_unanswered(&self, path: &str, sequential: bool) -> bool {
        self.unanswered.get(path).is_some_and(|unanswered| unanswered.sequential == sequential)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Stat;

    const NODE: NodeChange = NodeChange::Create { sequential: false };
    const NUMBERED: NodeChange = NodeChange::Create { sequential: true };

    fn path(path: &str) -> Arc<str> {
        path.into()
    }

    fn created(at: &str) -> Result<Response> {
        Ok(Response::Created { path: at.into(), stat: Stat::default() })
    }

    fn lost() -> Result<Response> {
        Err(Error::ConnectionLoss { request: "create".into(), sent: true, cause: None })
    }

    fn refused() -> Result<Response> {
        Err(Error::NodeExists { path: "/a".into() })
    }

    /// The session has asked for these nodes.
    fn asked(limit: usize, asked: &[(&str, NodeChange)]) -> EphemeralNodes {
        let mut nodes = EphemeralNodes::new(limit);
        for (at, change) in asked {
            nodes.ask(&path(at), change).unwrap();
        }
        nodes
    }

    #[test]
    fn node_counts_from_before_its_create_until_its_delete_is_answered() {
        let mut nodes = asked(100, &[("/a", NODE)]);
        assert_eq!(nodes.bytes, 6);
        nodes.answered(&path("/a"), &NODE, &created("/a"));
        assert_eq!(nodes.bytes, 6);
        nodes.answered(&path("/a"), &NodeChange::Delete, &lost());
        assert_eq!(nodes.bytes, 6);
        nodes.answered(&path("/a"), &NodeChange::Delete, &Ok(Response::Deleted));
        assert_eq!((nodes.bytes, nodes.existing.len()), (0, 0));
    }

    #[test]
    fn number_of_a_sequential_node_counts_before_it_is_known() {
        let mut nodes = asked(100, &[("/lock-", NUMBERED), ("/lock-", NUMBERED)]);
        assert_eq!(nodes.bytes, 2 * 20);
        nodes.answered(&path("/lock-"), &NUMBERED, &created("/lock-0000000007"));
        assert_eq!(nodes.bytes, 2 * 20);
        // The reply to the other create was lost.
        nodes.is_gone("/lock-0000000008");
        assert_eq!(nodes.bytes, 20);
        nodes.is_gone("/lock-0000000009");
        assert_eq!(nodes.bytes, 20, "a node of another session was never counted");
        nodes.is_gone("/lock-0000000007");
        assert_eq!((nodes.bytes, nodes.unanswered.len()), (0, 0));
    }

    #[test]
    fn create_above_the_limit_is_refused_and_counts_nothing() {
        let mut nodes = asked(13, &[("/a", NODE)]);
        let refusal = nodes.ask(&path("/abcd"), &NODE);
        assert!(matches!(refusal, Err(Error::TooManyEphemeralNodes { bytes: 15, limit: 13 })), "{refusal:?}");
        assert_eq!(nodes.bytes, 6);
        nodes.ask(&path("/b"), &NODE).unwrap();
        nodes.is_gone("/a");
        nodes.ask(&path("/c"), &NODE).unwrap();
    }

    #[test]
    fn node_at_its_own_path_counts_once_however_often_it_is_asked_for() {
        let mut nodes = asked(100, &[("/a", NODE), ("/a", NODE), ("/a", NODE)]);
        assert_eq!(nodes.bytes, 6);
        nodes.answered(&path("/a"), &NODE, &created("/a"));
        nodes.answered(&path("/a"), &NODE, &refused());
        nodes.answered(&path("/a"), &NODE, &lost());
        assert_eq!(nodes.bytes, 6);
        nodes.is_gone("/a");
        assert_eq!((nodes.bytes, nodes.unanswered.len()), (0, 0));
    }

    #[test]
    fn refused_create_does_not_count_any_more() {
        let mut nodes = asked(100, &[("/a", NODE), ("/n-", NUMBERED)]);
        nodes.answered(&path("/a"), &NODE, &refused());
        nodes.answered(&path("/n-"), &NUMBERED, &refused());
        assert_eq!((nodes.bytes, nodes.unanswered.len()), (0, 0));
    }

    #[test]
    fn creates_without_replies_count_until_their_nodes_are_found_and_deleted() {
        let mut nodes = asked(200, &[("/_c_1-lock-", NUMBERED), ("/_c_1-lock-", NUMBERED), ("/_c_2-lock-", NUMBERED)]);
        nodes.settle_all("/_c_1-", Some(&path("/_c_1-lock-0000000003")));
        assert_eq!(nodes.bytes, 25 + 25);
        nodes.settle_all("/_c_2-", None);
        nodes.is_gone("/_c_1-lock-0000000003");
        assert_eq!((nodes.bytes, nodes.unanswered.len(), nodes.existing.len()), (0, 0, 0));
    }

    #[test]
    fn transaction_that_replaces_a_node_fits_where_the_old_one_did() {
        let mut nodes = asked(8, &[("/old", NODE)]);
        nodes.answered(&path("/old"), &NODE, &created("/old"));
        let parts = [(path("/"), NodeChange::None), (path("/new"), NODE), (path("/old"), NodeChange::Delete)];
        let change = NodeChange::Transaction(parts.into());
        nodes.ask(&path("/"), &change).unwrap();
        let stat = Stat::default();
        let done = vec![Done::Checked, Done::Created { path: "/new".into(), stat }, Done::Deleted];
        nodes.answered(&path("/"), &change, &Ok(Response::Done(done)));
        assert_eq!((nodes.bytes, nodes.existing.contains("/new")), (8, true));
    }
}

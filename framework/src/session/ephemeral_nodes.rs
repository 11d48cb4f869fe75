//! The limit on a session's ephemeral nodes.
//!
//! A session ends by one transaction that has the paths of its ephemeral nodes. A server reads transactions of up to
//! `jute.maxbuffer` and `jute.maxbuffer.extrasize` together, by default 2 MiB. A longer one stops the whole ensemble
//! for good: no server can read it from another one, or from its own log.

use std::collections::{BTreeMap, HashMap, HashSet};
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
            Request::Transaction { operations } if operations.iter().any(|one| !Self::of_operation(one).is_none()) => {
                Self::Transaction(operations.iter().map(|one| (one.path().into(), Self::of_operation(one))).collect())
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

/// The ephemeral nodes that a session has or may have.
#[derive(Debug)]
pub(super) struct EphemeralNodes {
    limit: usize,
    /// The length of all paths in the transaction that ends the session.
    bytes: usize,
    /// The nodes that exist, each with the transaction of the reply that has shown it.
    existing: HashMap<Arc<str>, i64>,
    /// The number of creates without a reply so far, by their paths. A lost reply never comes. Sorted, so that those with
    /// a prefix are found.
    unanswered: [BTreeMap<Arc<str>, usize>; 2],
}

const fn length(path: &str, sequential: bool) -> usize {
    path.len() + LENGTH + if sequential { NUMBER } else { 0 }
}

impl EphemeralNodes {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, bytes: 0, existing: HashMap::new(), unanswered: Default::default() }
    }

    /// Counts the nodes of a request that is about to be sent.
    ///
    /// # Errors
    ///
    /// `Error::TooManyEphemeralNodes`. Nothing is counted. A request that deletes as many bytes of nodes as it creates is
    /// never refused.
    pub(super) fn ask(&mut self, path: &Arc<str>, change: &NodeChange) -> Result<()> {
        let (mut more, mut less) = (0, 0);
        let mut created = HashSet::new();
        for (path, change) in change.each(path) {
            match *change {
                NodeChange::Create { sequential } if sequential || !self.is_counted(path) => {
                    more += length(path, sequential);
                    created.insert(path);
                }
                NodeChange::Delete if self.existing.contains_key(path) || created.contains(path) => {
                    less += length(path, false);
                }
                _ => {}
            }
        }
        let bytes = (self.bytes + more).saturating_sub(less);
        if more > less && bytes > self.limit {
            return Err(Error::TooManyEphemeralNodes { bytes, limit: self.limit });
        }
        for (path, change) in change.each(path) {
            let &NodeChange::Create { sequential } = change else { continue };
            if sequential || !self.is_counted(path) {
                self.bytes += length(path, sequential);
            }
            *self.unanswered[usize::from(sequential)].entry(Arc::clone(path)).or_default() += 1;
        }
        Ok(())
    }

    /// Counts what the reply to a request shows, by the newest transaction that the reply reflects.
    pub(super) fn answered(&mut self, path: &Arc<str>, change: &NodeChange, zxid: i64, reply: &Result<Response>) {
        match (change, reply) {
            (&NodeChange::Create { sequential }, Ok(Response::Created { path: created, .. })) => {
                self.created(path, sequential, created, zxid);
            }
            (NodeChange::Delete, Ok(Response::Deleted)) => self.is_gone(path, zxid),
            (NodeChange::Transaction(changes), Ok(Response::Done(done))) => {
                for ((path, change), done) in changes.iter().zip(done) {
                    match (change, done) {
                        (&NodeChange::Create { sequential }, Done::Created { path: created, .. }) => {
                            self.created(path, sequential, &created.as_str().into(), zxid);
                        }
                        (NodeChange::Delete, Done::Deleted) => self.is_gone(path, zxid),
                        _ => {}
                    }
                }
            }
            (_, Err(error)) if !error.outcome_unknown() => {
                for (path, change) in change.each(path) {
                    if let &NodeChange::Create { sequential } = change {
                        self.forget_one(path, sequential);
                    }
                }
                if let (NodeChange::Transaction(changes), Error::Transaction { index, cause, .. }) = (change, error) {
                    match (changes.get(*index), &**cause) {
                        (Some((path, NodeChange::Delete)), Error::NoNode { .. }) => self.is_gone(path, zxid),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }

    fn created(&mut self, asked: &str, sequential: bool, created: &Arc<str>, zxid: i64) {
        if !self.is_counted(created) {
            self.bytes += length(created, false);
        }
        self.existing.insert(Arc::clone(created), zxid);
        self.forget_one(asked, sequential);
    }

    /// Records that no node of the session exists at this path, as of a transaction.
    pub(super) fn is_gone(&mut self, path: &str, zxid: i64) {
        // Replies may be seen in another order than they came.
        if self.existing.get(path).is_some_and(|shown| zxid != 0 && zxid < *shown) {
            return;
        }
        if self.is_counted(path) {
            self.bytes -= length(path, false);
            self.existing.remove(path);
            self.unanswered[0].remove(path);
            return;
        }
        // The node may be that of a create whose reply was lost. The server writes 10 digits, or 11 with a sign.
        let shorter = [NUMBER, NUMBER + 1].into_iter().filter_map(|digits| path.get(..path.len().checked_sub(digits)?));
        if let Some(asked) = shorter.into_iter().find(|asked| self.unanswered[1].contains_key(*asked)) {
            self.forget_one(asked, true);
        }
    }

    /// Records that the creates without a reply at this path have left no node that is not known.
    pub(super) fn settle(&mut self, asked: &str) {
        for sequential in [false, true] {
            while self.unanswered[usize::from(sequential)].contains_key(asked) {
                self.forget_one(asked, sequential);
            }
        }
    }

    /// Settles the creates at all paths with this prefix. One node may be left.
    pub(super) fn settle_all(&mut self, prefix: &str, left: Option<(&Arc<str>, i64)>) {
        let behind = || (Bound::Included(prefix), Bound::Unbounded);
        let asked = self.unanswered.iter().flat_map(|asked| {
            asked.range::<str, _>(behind()).map(|(path, _)| path).take_while(|path| path.starts_with(prefix))
        });
        let asked: Vec<_> = asked.cloned().collect();
        asked.iter().for_each(|asked| self.settle(asked));
        if let Some((left, zxid)) = left.filter(|(left, _)| !self.is_counted(left)) {
            self.bytes += length(left, false);
            self.existing.insert(Arc::clone(left), zxid);
        }
    }

    /// Forgets one create that has its reply, or has made no node.
    fn forget_one(&mut self, asked: &str, sequential: bool) {
        let unanswered = &mut self.unanswered[usize::from(sequential)];
        let Some(number) = unanswered.get_mut(asked) else { return };
        *number -= 1;
        let is_last = *number == 0;
        if is_last {
            unanswered.remove(asked);
        }
        if sequential || (is_last && !self.existing.contains_key(asked)) {
            self.bytes -= length(asked, sequential);
        }
    }

    /// Returns whether the node at exactly this path is counted.
    fn is_counted(&self, path: &str) -> bool {
        self.existing.contains_key(path) || self.unanswered[0].contains_key(path)
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

    /// The number of paths with creates without a reply.
    fn waiting(nodes: &EphemeralNodes) -> usize {
        nodes.unanswered.iter().map(BTreeMap::len).sum()
    }

    #[test]
    fn node_counts_from_before_its_create_until_its_delete_is_answered() {
        let mut nodes = asked(100, &[("/a", NODE)]);
        assert_eq!(nodes.bytes, 6);
        nodes.answered(&path("/a"), &NODE, 5, &created("/a"));
        assert_eq!(nodes.bytes, 6);
        nodes.answered(&path("/a"), &NodeChange::Delete, 5, &lost());
        assert_eq!(nodes.bytes, 6);
        nodes.answered(&path("/a"), &NodeChange::Delete, 5, &Ok(Response::Deleted));
        assert_eq!((nodes.bytes, nodes.existing.len()), (0, 0));
    }

    #[test]
    fn number_of_a_sequential_node_counts_before_it_is_known() {
        let mut nodes = asked(100, &[("/lock-", NUMBERED), ("/lock-", NUMBERED)]);
        assert_eq!(nodes.bytes, 2 * 20);
        nodes.answered(&path("/lock-"), &NUMBERED, 5, &created("/lock-0000000007"));
        assert_eq!(nodes.bytes, 2 * 20);
        // The reply to the other create was lost.
        nodes.is_gone("/lock-0000000008", 5);
        assert_eq!(nodes.bytes, 20);
        nodes.is_gone("/lock-0000000009", 5);
        assert_eq!(nodes.bytes, 20, "a node of another session was never counted");
        nodes.is_gone("/lock-0000000007", 5);
        assert_eq!((nodes.bytes, waiting(&nodes)), (0, 0));
    }

    #[test]
    fn create_above_the_limit_is_refused_and_counts_nothing() {
        let mut nodes = asked(13, &[("/a", NODE)]);
        let refusal = nodes.ask(&path("/abcd"), &NODE);
        assert!(matches!(refusal, Err(Error::TooManyEphemeralNodes { bytes: 15, limit: 13 })), "{refusal:?}");
        assert_eq!(nodes.bytes, 6);
        nodes.ask(&path("/b"), &NODE).unwrap();
        nodes.is_gone("/a", 5);
        nodes.ask(&path("/c"), &NODE).unwrap();
    }

    #[test]
    fn node_at_its_own_path_counts_once_however_often_it_is_asked_for() {
        let mut nodes = asked(100, &[("/a", NODE), ("/a", NODE), ("/a", NODE)]);
        assert_eq!(nodes.bytes, 6);
        nodes.answered(&path("/a"), &NODE, 5, &created("/a"));
        nodes.answered(&path("/a"), &NODE, 5, &refused());
        nodes.answered(&path("/a"), &NODE, 5, &lost());
        assert_eq!(nodes.bytes, 6);
        nodes.is_gone("/a", 5);
        assert_eq!((nodes.bytes, waiting(&nodes)), (0, 0));
    }

    #[test]
    fn refused_create_does_not_count_any_more() {
        let mut nodes = asked(100, &[("/a", NODE), ("/n-", NUMBERED)]);
        nodes.answered(&path("/a"), &NODE, 5, &refused());
        nodes.answered(&path("/n-"), &NUMBERED, 5, &refused());
        assert_eq!((nodes.bytes, waiting(&nodes)), (0, 0));
    }

    #[test]
    fn creates_without_replies_count_until_their_nodes_are_found_and_deleted() {
        let mut nodes = asked(200, &[("/_c_1-lock-", NUMBERED), ("/_c_1-lock-", NUMBERED), ("/_c_2-lock-", NUMBERED)]);
        nodes.settle_all("/_c_1-", Some((&path("/_c_1-lock-0000000003"), 5)));
        assert_eq!(nodes.bytes, 25 + 25);
        nodes.settle_all("/_c_2-", None);
        nodes.is_gone("/_c_1-lock-0000000003", 5);
        assert_eq!((nodes.bytes, waiting(&nodes), nodes.existing.len()), (0, 0, 0));
    }

    #[test]
    fn transaction_that_replaces_a_node_fits_where_the_old_one_did() {
        let mut nodes = asked(8, &[("/old", NODE)]);
        nodes.answered(&path("/old"), &NODE, 5, &created("/old"));
        let parts = [(path("/"), NodeChange::None), (path("/new"), NODE), (path("/old"), NodeChange::Delete)];
        let change = NodeChange::Transaction(parts.into());
        nodes.ask(&path("/"), &change).unwrap();
        let stat = Stat::default();
        let done = vec![Done::Checked, Done::Created { path: "/new".into(), stat }, Done::Deleted];
        nodes.answered(&path("/"), &change, 5, &Ok(Response::Done(done)));
        assert_eq!((nodes.bytes, nodes.existing.contains_key("/new")), (8, true));
    }

    #[test]
    fn transaction_that_deletes_and_creates_at_one_path_counts_the_new_node() {
        for stood in [false, true] {
            let mut nodes = EphemeralNodes::new(8);
            if stood {
                nodes.ask(&path("/a"), &NODE).unwrap();
                nodes.answered(&path("/a"), &NODE, 5, &created("/a"));
            }
            let change = NodeChange::Transaction([(path("/a"), NodeChange::Delete), (path("/a"), NODE)].into());
            nodes.ask(&path("/a"), &change).unwrap();
            let done = vec![Done::Deleted, Done::Created { path: "/a".into(), stat: Stat::default() }];
            nodes.answered(&path("/a"), &change, 6, &Ok(Response::Done(done)));
            assert_eq!((nodes.bytes, nodes.existing.len()), (6, 1), "{stood}");
        }
    }

    #[test]
    fn sequential_creates_at_the_path_of_a_node_are_counted_apart() {
        let mut nodes = asked(100, &[("/a", NODE), ("/a", NUMBERED)]);
        assert_eq!(nodes.bytes, 6 + 16);
        nodes.answered(&path("/a"), &NODE, 5, &created("/a"));
        nodes.is_gone("/a", 6);
        assert_eq!(nodes.bytes, 16);
        nodes.answered(&path("/a"), &NUMBERED, 7, &created("/a0000000000"));
        nodes.is_gone("/a0000000000", 8);
        assert_eq!((nodes.bytes, waiting(&nodes)), (0, 0));
    }

    #[test]
    fn reply_that_is_seen_late_does_not_hide_a_newer_node() {
        let mut nodes = asked(100, &[("/a", NODE)]);
        nodes.answered(&path("/a"), &NODE, 6, &created("/a"));
        nodes.is_gone("/a", 5);
        assert_eq!(nodes.bytes, 6);
        nodes.is_gone("/a", 7);
        assert_eq!(nodes.bytes, 0);
    }
}

//! The limit on a session's ephemeral nodes.
//!
//! A session ends by one transaction that has the paths of its ephemeral nodes. A server reads transactions of up to
//! `jute.maxbuffer` and `jute.maxbuffer.extrasize` together, by default 2 MiB. A longer one stops the whole ensemble
//! for good: no server can read it from another one, or from its own log.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use foldhash::{HashMap, HashSet};
use smallvec::{SmallVec, smallvec};

use crate::error::{Error, Result};
use crate::model::CreateMode;
use crate::zookeeper::{Done, Operation, Request, Response};

/// Half of what servers read by default.
pub(crate) const DEFAULT_MAX_EPHEMERAL_BYTES: usize = 1 << 20;
/// The bytes of a path in the transaction, besides its characters.
const LENGTH: usize = 4;
/// The digits that a server appends to a sequential node.
const NUMBER: usize = 10;

/// A change of the session's ephemeral nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Create { sequential: bool },
    Delete,
}

/// The changes that a request makes to the session's ephemeral nodes.
#[derive(Debug)]
pub(super) struct NodeChanges {
    /// The request's number among the counted ones.
    number: u64,
    /// The changes, each with its index in the transaction.
    changes: SmallVec<[(usize, Arc<str>, Change); 1]>,
}

impl NodeChanges {
    pub(super) fn of(request: &Request) -> Self {
        let created = |mode: CreateMode| Change::Create { sequential: mode.is_sequential() };
        let changes = match request {
            Request::Create { path, mode, .. } if mode.is_ephemeral() => {
                smallvec![(0, Arc::clone(path), created(*mode))]
            }
            Request::Delete { path, .. } => smallvec![(0, Arc::clone(path), Change::Delete)],
            Request::Transaction { operations } => {
                let change = |operation: &Operation| match operation {
                    Operation::Create { mode, .. } if mode.is_ephemeral() => Some(created(*mode)),
                    Operation::Delete { .. } => Some(Change::Delete),
                    _ => None,
                };
                let changes = operations.iter().enumerate();
                changes.filter_map(|(index, one)| Some((index, one.path().into(), change(one)?))).collect()
            }
            _ => SmallVec::new(),
        };
        Self { number: 0, changes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

/// The ephemeral nodes that a session has or may have.
#[derive(Debug)]
pub(super) struct EphemeralNodes {
    limit: usize,
    /// The length of all paths in the transaction that ends the session.
    bytes: usize,
    /// The nodes that replies have shown.
    existing: HashMap<Arc<str>, Shown>,
    /// The creates without a reply, by their paths. A lost reply never comes.
    unanswered: HashMap<Arc<str>, SmallVec<[Unanswered; 1]>>,
    /// The number of the newest request.
    newest: u64,
    /// The number of the newest request that the server's next list reflects.
    reflected: u64,
    /// The transaction that the server's newest list reflects.
    listed: i64,
}

#[derive(Debug, Clone, Copy)]
struct Shown {
    /// The newest transaction that such a reply reflects.
    zxid: i64,
    /// The reply to the create is among them.
    by_create: bool,
}

#[derive(Debug, Clone, Copy)]
struct Unanswered {
    /// The number of the request.
    number: u64,
    sequential: bool,
}

const fn length(path: &str, sequential: bool) -> usize {
    path.len() + LENGTH + if sequential { NUMBER } else { 0 }
}

impl EphemeralNodes {
    pub(super) fn new(limit: usize) -> Self {
        let (existing, unanswered) = Default::default();
        Self { limit, bytes: 0, existing, unanswered, newest: 0, reflected: 0, listed: i64::MIN }
    }

    /// Returns the bytes that the nodes of a request add.
    ///
    /// # Errors
    ///
    /// `Error::TooManyEphemeralNodes`. A request that deletes as many bytes of nodes as it creates is never refused.
    pub(super) fn check(&self, request: &NodeChanges) -> Result<usize> {
        let (mut more, mut less, mut created) = (0, 0, HashSet::default());
        for (_, path, change) in &request.changes {
            match *change {
                Change::Create { sequential } => {
                    more += length(path, sequential);
                    if request.changes.len() > 1 {
                        created.insert(path);
                    }
                }
                Change::Delete if self.existing.contains_key(path) || created.contains(path) => {
                    less += length(path, false);
                }
                Change::Delete => {}
            }
        }
        let bytes = (self.bytes + more).saturating_sub(less);
        if more > less && bytes > self.limit {
            return Err(Error::TooManyEphemeralNodes { bytes, limit: self.limit });
        }
        Ok(more)
    }

    /// Counts the nodes of a request that is about to be sent.
    ///
    /// # Errors
    ///
    /// `Error::TooManyEphemeralNodes`. Nothing is counted.
    pub(super) fn ask(&mut self, request: &mut NodeChanges) -> Result<()> {
        self.bytes += self.check(request)?;
        self.newest += 1;
        request.number = self.newest;
        for (_, path, change) in &request.changes {
            if let Change::Create { sequential } = *change {
                let create = Unanswered { number: self.newest, sequential };
                self.unanswered.entry(Arc::clone(path)).or_default().push(create);
            }
        }
        Ok(())
    }

    /// Counts what the reply to a request shows, which reflects the transaction `zxid`.
    pub(super) fn answered(&mut self, request: &NodeChanges, zxid: i64, reply: &Result<Response>) {
        if reply.as_ref().is_err_and(Error::outcome_unknown) {
            return;
        }
        for (index, path, change) in &request.changes {
            match (change, reply) {
                (Change::Create { .. }, reply) => {
                    self.forget(path, |create| create.number == request.number);
                    match reply {
                        Ok(Response::Created { path, .. }) => self.exists(Arc::clone(path), zxid),
                        Ok(Response::Done(done)) => {
                            if let Some(Done::Created { path, .. }) = done.get(*index) {
                                self.exists(path.as_str().into(), zxid);
                            }
                        }
                        _ => {}
                    }
                }
                (Change::Delete, Ok(_) | Err(Error::NoNode { .. })) => self.is_deleted(path, request.number, zxid),
                (Change::Delete, Err(_)) => {}
            }
        }
    }

    /// Returns `true` if a reply has shown the node as the session's.
    pub(super) fn has(&self, path: &str) -> bool {
        self.existing.contains_key(path)
    }

    /// Returns `true` if the reply to a create has shown the node.
    pub(super) fn has_created(&self, path: &str) -> bool {
        self.existing.get(path).is_some_and(|shown| shown.by_create)
    }

    /// Records that no node of the session exists at this path, as of a transaction. Replies may be seen in another order
    /// than they came.
    pub(super) fn is_gone(&mut self, path: &str, zxid: i64) {
        if self.existing.get(path).is_some_and(|shown| shown.zxid <= zxid) {
            self.existing.remove(path);
            self.bytes -= length(path, false);
        }
    }

    /// Records that the requests from here on may be missing from the server's next list.
    pub(super) const fn recount_begins(&mut self) {
        self.reflected = self.newest;
    }

    /// Counts again, from the server's list of the session's nodes. The list reflects the transaction `zxid`, and all
    /// creates from before [`recount_begins`](Self::recount_begins): they are in the list, or were not applied, or their
    /// nodes are deleted.
    pub(super) fn recount(&mut self, zxid: i64, paths: &[String]) {
        let mut before = std::mem::take(&mut self.existing);
        for path in paths {
            let (path, shown) = before
                .remove_entry(path.as_str())
                .unwrap_or_else(|| (path.as_str().into(), Shown { zxid, by_create: false }));
            self.existing.insert(path, Shown { zxid: shown.zxid.max(zxid), ..shown });
        }
        self.existing.extend(before.into_iter().filter(|(_, shown)| shown.zxid > zxid));
        self.unanswered.retain(|_, creates| {
            creates.retain(|create| create.number > self.reflected);
            !creates.is_empty()
        });
        self.listed = zxid;
        let unanswered = self.unanswered.iter().flat_map(|(path, creates)| creates.iter().map(move |one| (path, one)));
        self.bytes = self.existing.keys().map(|path| length(path, false)).sum::<usize>()
            + unanswered.map(|(path, create)| length(path, create.sequential)).sum::<usize>();
    }

    fn exists(&mut self, path: Arc<str>, zxid: i64) {
        match self.existing.entry(path) {
            Entry::Occupied(mut shown) => {
                let newest = zxid.max(shown.get().zxid);
                shown.insert(Shown { zxid: newest, by_create: true });
            }
            Entry::Vacant(entry) if zxid > self.listed => {
                self.bytes += length(entry.key(), false);
                entry.insert(Shown { zxid, by_create: true });
            }
            // The node was deleted before the server listed the nodes.
            Entry::Vacant(_) => {}
        }
    }

    /// Records the reply to a delete. It may have deleted the node of an earlier create that has no reply.
    fn is_deleted(&mut self, path: &str, number: u64, zxid: i64) {
        if self.has(path) {
            return self.is_gone(path, zxid);
        }
        let earlier = |sequential| move |create: &Unanswered| create.sequential == sequential && create.number < number;
        self.forget(path, earlier(false));
        if let Some(asked) = path.len().checked_sub(NUMBER).and_then(|end| path.get(..end)) {
            self.forget(asked, earlier(true));
        }
    }

    /// Forgets one of the creates without a reply.
    fn forget(&mut self, asked: &str, is_it: impl Fn(&Unanswered) -> bool) {
        let Some(creates) = self.unanswered.get_mut(asked) else { return };
        let Some(at) = creates.iter().position(is_it) else { return };
        self.bytes -= length(asked, creates.remove(at).sequential);
        if creates.is_empty() {
            self.unanswered.remove(asked);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Stat;

    #[test]
    fn list_does_not_tell_which_creates_were_answered() {
        let mut session = Session::new(1000);
        let answered = session.create("/a");
        let reply = Ok(Response::Created { path: "/a".into(), stat: Stat::default() });
        session.0.answered(&answered, 1, &reply);
        let _lost = session.create("/b");
        session.0.recount_begins();
        session.0.recount(2, &["/a".to_owned(), "/b".to_owned()]);
        assert!(session.0.has("/a") && session.0.has("/b"));
        assert!(session.0.has_created("/a") && !session.0.has_created("/b"));
        session.0.is_gone("/a", 3);
        assert!(!session.0.has_created("/a"));
    }

    /// The counter, with the requests of a test.
    struct Session(EphemeralNodes);

    impl Session {
        fn new(limit: usize) -> Self {
            Self(EphemeralNodes::new(limit))
        }

        fn ask(&mut self, changes: &[(&str, Change)]) -> Result<NodeChanges> {
            let changes = changes.iter().enumerate().map(|(index, (path, change))| (index, (*path).into(), *change));
            let mut request = NodeChanges { number: 0, changes: changes.collect() };
            self.0.ask(&mut request).map(|()| request)
        }

        fn create(&mut self, path: &str) -> NodeChanges {
            self.ask(&[(path, NODE)]).unwrap()
        }

        fn delete(&mut self, path: &str) -> NodeChanges {
            self.ask(&[(path, Change::Delete)]).unwrap()
        }

        /// Creates nodes, with the transactions from this one on.
        fn have(&mut self, paths: &[&str], zxid: i64) {
            for (path, zxid) in paths.iter().zip(zxid..) {
                let request = self.create(path);
                self.0.answered(&request, zxid, &created(path));
            }
        }

        fn unanswered(&self) -> usize {
            self.0.unanswered.values().map(|creates| creates.len()).sum()
        }

        /// The bytes, and the numbers of nodes and of creates without a reply.
        fn counts(&self) -> (usize, usize, usize) {
            (self.0.bytes, self.0.existing.len(), self.unanswered())
        }
    }

    const NODE: Change = Change::Create { sequential: false };
    const NUMBERED: Change = Change::Create { sequential: true };

    fn created(at: &str) -> Result<Response> {
        Ok(Response::Created { path: at.into(), stat: Stat::default() })
    }

    fn made(at: &str) -> Done {
        Done::Created { path: at.into(), stat: Stat::default() }
    }

    fn lost() -> Result<Response> {
        Err(Error::ConnectionLoss { request: "create".into(), sent: true, cause: None })
    }

    #[test]
    fn node_counts_from_before_its_create_until_its_delete_is_answered() {
        let mut session = Session::new(100);
        let create = session.create("/a");
        assert_eq!(session.counts(), (6, 0, 1));
        session.0.answered(&create, 5, &created("/a"));
        assert_eq!(session.counts(), (6, 1, 0));
        let delete = session.delete("/a");
        session.0.answered(&delete, 6, &lost());
        assert_eq!(session.counts(), (6, 1, 0));
        session.0.answered(&delete, 6, &Ok(Response::Deleted));
        assert_eq!(session.counts(), (0, 0, 0));
    }

    #[test]
    fn create_above_the_limit_is_refused_and_counts_nothing() {
        let mut session = Session::new(6 + 20);
        session.create("/a");
        session.ask(&[("/lock-", NUMBERED)]).unwrap();
        let refused = session.ask(&[("", NODE)]).unwrap_err();
        assert!(matches!(refused, Error::TooManyEphemeralNodes { bytes: 30, limit: 26 }), "{refused:?}");
        assert_eq!(session.counts(), (26, 0, 2));
    }

    #[test]
    fn create_that_fails_leaves_nothing() {
        let mut session = Session::new(100);
        let create = session.ask(&[("/n-", NUMBERED)]).unwrap();
        session.0.answered(&create, 5, &Err(Error::NoAuth { path: "/n-".into() }));
        let both = session.ask(&[("/a", NODE), ("/b", NODE)]).unwrap();
        session.0.answered(&both, 5, &Err(Error::NodeExists { path: "/a".into() }));
        assert_eq!(session.counts(), (0, 0, 0));
    }

    #[test]
    fn delete_ends_a_create_without_a_reply() {
        let mut session = Session::new(100);
        let asked = [("/lock-", NUMBERED), ("/lock-", NUMBERED), ("/a", NODE)];
        let [.., plain] = asked.map(|one| session.ask(&[one]).unwrap());
        session.0.answered(&plain, 5, &lost());
        for (path, left) in [("/lock-0000000007", 2), ("/a", 1), ("/b", 1), ("/lock-0000000008", 0)] {
            let delete = session.delete(path);
            session.0.answered(&delete, 6, &Err(Error::NoNode { path: path.into() }));
            assert_eq!(session.unanswered(), left, "{path}");
        }
        assert_eq!(session.counts(), (0, 0, 0));
    }

    #[test]
    fn delete_of_a_node_that_exists_ends_no_later_create() {
        let mut session = Session::new(100);
        session.have(&["/a"], 5);
        let delete = session.delete("/a");
        session.create("/a");
        session.0.answered(&delete, 6, &Ok(Response::Deleted));
        session.0.answered(&delete, 6, &Ok(Response::Deleted));
        assert_eq!(session.counts(), (6, 0, 1));
    }

    #[test]
    fn request_that_deletes_what_it_creates_is_not_refused() {
        let mut session = Session::new(8);
        session.have(&["/old"], 5);
        let replace = session.ask(&[("/new", NODE), ("/old", Change::Delete)]).unwrap();
        session.0.answered(&replace, 6, &Ok(Response::Done(vec![made("/new"), Done::Deleted])));
        assert_eq!((session.0.bytes, session.0.has("/new")), (8, true));
        let call = session.ask(&[("/a", NODE), ("/a", Change::Delete)]).unwrap();
        session.0.answered(&call, 7, &Ok(Response::Done(vec![made("/a"), Done::Deleted])));
        let again = session.ask(&[("/new", Change::Delete), ("/new", NODE)]).unwrap();
        session.0.answered(&again, 8, &Ok(Response::Done(vec![Done::Deleted, made("/new")])));
        assert_eq!(session.counts(), (8, 1, 0));
        session.ask(&[("/new2", NODE), ("/new", Change::Delete)]).unwrap_err();
        session.ask(&[("/b", NODE), ("/not-own", Change::Delete)]).unwrap_err();
    }

    #[test]
    fn changes_of_a_transaction_are_its_ephemeral_creates_and_its_deletes() {
        let create = |mode| Operation::Create { path: "/a".into(), data: Vec::new(), acl: Vec::new(), mode };
        let operations = vec![
            Operation::Check { path: "/".into(), version: None },
            create(CreateMode::Persistent),
            create(CreateMode::EphemeralSequential),
            Operation::Delete { path: "/b".into(), version: None },
        ];
        let changes = NodeChanges::of(&Request::Transaction { operations });
        assert_eq!(changes.changes[..], [(2, "/a".into(), NUMBERED), (3, "/b".into(), Change::Delete)]);
        let read = NodeChanges::of(&Request::Exists { path: "/a".into(), watch: false });
        assert!(read.is_empty() && !changes.is_empty());
    }

    #[test]
    fn reply_that_is_seen_late_does_not_hide_a_newer_node() {
        let mut session = Session::new(100);
        session.have(&["/a"], 6);
        session.0.is_gone("/a", 5);
        assert_eq!(session.counts(), (6, 1, 0));
        session.0.is_gone("/a", 7);
        assert_eq!(session.counts(), (0, 0, 0));
    }

    #[test]
    fn recount_takes_the_list_of_the_server() {
        let mut session = Session::new(100);
        session.have(&["/kept", "/deleted"], 5);
        let create = session.ask(&[("/n-", NUMBERED)]).unwrap();
        session.0.answered(&create, 0, &lost());
        session.0.recount_begins();
        session.0.recount(9, &["/kept".into(), "/n-0000000003".into()]);
        assert_eq!(session.counts(), (9 + 17, 2, 0));
        session.0.is_gone("/kept", 8);
        assert!(session.0.has("/kept"), "the list is newer");
    }

    #[test]
    fn recount_keeps_what_came_after_the_list() {
        let mut session = Session::new(100);
        session.0.recount_begins();
        session.create("/asked");
        session.have(&["/later"], 8);
        session.0.recount(7, &[]);
        assert_eq!(session.counts(), (10 + 10, 1, 1));
    }

    #[test]
    fn reply_that_is_seen_after_a_newer_list_adds_nothing() {
        let mut session = Session::new(100);
        let (both, again) = (session.create("/both"), session.create("/deleted"));
        session.0.recount_begins();
        session.0.recount(9, &["/both".into()]);
        session.0.answered(&both, 5, &created("/both"));
        session.0.answered(&again, 6, &created("/deleted"));
        assert_eq!(session.counts(), (9, 1, 0));
        session.0.is_gone("/both", 8);
        assert_eq!(session.counts(), (9, 1, 0), "the list is newer");
    }
}

//! The ownership of a node from before its create is sent, so that no node is left behind.

mod exact;
mod transactions;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::SetOnce;

use crate::error::{Error, PathText, Result};
use crate::model::namespace::Namespace;
use crate::model::new_node::NodeSpec;
use crate::model::path::{make_path, node_from_path, parent_of};
use crate::model::protected::{ProtectedId, normalize};
use crate::model::{Acl, CreateMode, Stat};
use crate::session::Session;
use crate::session::background::{PendingDelete, rearm_watch};
use crate::session::watches::Watch;
use crate::sync::user_code::catch_panic;
use crate::sync::watch_cell::WatchCell;
use crate::zookeeper::{Done, Operation, SessionEnd};

pub use exact::Occupant;

/// The reason why something that was held in ZooKeeper is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// The session is over.
    Session(SessionEnd),
    /// The node was deleted, but not by its owner.
    NodeDeleted,
    /// The connection was in a state that the client's
    /// [`ConnectionStateErrorPolicy`](crate::ConnectionStateErrorPolicy) takes for an error.
    ConnectionError,
}

impl std::error::Error for LossReason {}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(end) => end.fmt(f),
            Self::NodeDeleted => f.write_str("the node was deleted, but not by its owner"),
            Self::ConnectionError => f.write_str("the connection was suspended"),
        }
    }
}

/// A node that was just created.
#[derive(Debug, Clone)]
pub struct Created {
    /// The node's stat in the reply.
    pub stat: Stat,
    /// The epoch that carried the reply: later reads on that connection are not older than the create.
    pub epoch: u64,
}

/// The ownership of one node under one session, from before its create is sent until it is deleted.
///
/// However the owner fails (an error, a time-out, a dropped future), `Drop` hands the node to the session's
/// background task, which finds and deletes it. While an owned node exists, only the leader's replies move the
/// session's deadline.
#[derive(Debug)]
pub struct OwnedNode {
    session: Session,
    /// The path of the create: without the number that the server appends.
    path: String,
    id: ProtectedId,
    /// The id is the node's data, and not in its name.
    is_exact: bool,
    mode: CreateMode,
    /// A create was sent and its reply lost, so none, one or two nodes exist.
    outcome_unknown: bool,
    /// The one node, as soon as it is known.
    node: Option<Arc<KnownNode>>,
    /// A delete was sent, and its outcome is unknown.
    delete_sent: bool,
    /// No node is left to delete.
    cleaned_up: bool,
}

/// The state of a delete by the node's owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DeleteState {
    /// No delete is outstanding, and the newest one did not succeed.
    Idle,
    Outstanding,
    /// The leader has deleted the node for its owner.
    Done,
    /// The owner was dropped, and the background task deletes the node.
    Left,
}

/// Resets the state unless a reply has confirmed the delete.
struct OutstandingDelete<'a>(&'a KnownNode);

impl Drop for OutstandingDelete<'_> {
    fn drop(&mut self) {
        self.0.owner_delete.modify(|state| {
            if *state == DeleteState::Outstanding {
                *state = DeleteState::Idle;
            }
        });
    }
}

/// The delete of a node by its owner in this process. It can outlive the owner.
#[derive(Debug, Clone)]
pub struct OwnerDelete(Arc<KnownNode>);

impl OwnerDelete {
    /// Returns the path of the node as the server knows it.
    #[must_use]
    pub fn full_path(&self) -> &Arc<str> {
        &self.0.path
    }

    /// Resolves with `true` if the leader has deleted the node for its owner. Awaits the reply to an outstanding
    /// delete: a delete without a reply does not count, because the end of the session can overtake it.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn is_done(&self) -> bool {
        self.0.owner_delete.wait_for(|state| *state != DeleteState::Outstanding).await == DeleteState::Done
    }
}

/// The callback for a node's data and stat, called after each read.
type DataObserver = Box<dyn Fn(&[u8], &Stat) + Send + Sync>;

/// A holder that learns of its node's loss even if no task awaits [`lost`](LossSignal::lost).
pub trait LossListener: Send + Sync {
    /// Called when the client learns of a reason for the loss. It must not block. A loss before the listener was set may be
    /// reported or not. An error state of the connection may be reported to a node that was granted after it and is held.
    /// So a listener asks a [signal](LossSignal::loss).
    fn node_lost(&self);
}

/// The state of an owned node that is known to exist.
pub(crate) struct KnownNode {
    /// The path as the server knows it.
    pub(crate) path: Arc<str>,
    /// The transaction that created it.
    pub(crate) czxid: i64,
    /// The node's name has no id, so another node may follow it at its path.
    pub(crate) is_exact: bool,
    /// The owner has begun to delete the node.
    deleting: AtomicBool,
    /// The state of the owner's newest delete.
    owner_delete: WatchCell<DeleteState>,
    /// The node was deleted, but not by its owner.
    deleted: SetOnce<()>,
    observer: OnceLock<DataObserver>,
    /// The callback for a long hold. It is dropped with the node if that is released before.
    when_held_for_long: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    loss_listener: Mutex<Option<Weak<dyn LossListener>>>,
    /// The number of watches set for the owner. Only the newest one is set anew when it fires.
    turns: AtomicU64,
}

impl fmt::Debug for KnownNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KnownNode").field("path", &self.path).field("deleted", &self.deleted).finish_non_exhaustive()
    }
}

impl KnownNode {
    pub(crate) fn new(path: Arc<str>, czxid: i64) -> Self {
        Self {
            path,
            czxid,
            is_exact: false,
            deleting: AtomicBool::new(false),
            owner_delete: WatchCell::new(DeleteState::Idle),
            deleted: SetOnce::new(),
            observer: OnceLock::new(),
            when_held_for_long: Mutex::new(None),
            loss_listener: Mutex::new(None),
            turns: AtomicU64::new(0),
        }
    }

    /// Returns `true` if a read has found another node at the path, so this one was deleted.
    pub(crate) fn is_followed_by(&self, found: &Stat) -> bool {
        self.is_exact && found.czxid != self.czxid
    }

    pub(crate) fn take_call(&self) -> Option<Box<dyn FnOnce() + Send>> {
        self.when_held_for_long.lock().take()
    }

    pub(crate) fn next_turn(&self) -> u64 {
        self.turns.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn is_turn(&self, turn: u64) -> bool {
        self.turns.load(Ordering::SeqCst) == turn
    }

    /// Passes the data and stat of a read to the observer.
    pub(crate) fn was_read(&self, data: &[u8], stat: &Stat) {
        if let Some(observer) = self.observer.get() {
            // The panic is logged.
            let _panicked = catch_panic("observer of a node's data", || observer(data, stat));
        }
    }

    /// Returns `true` if the owner has begun to delete the node.
    pub(crate) fn is_being_deleted(&self) -> bool {
        self.deleting.load(Ordering::SeqCst)
    }

    /// Returns `true` if the owner needs the node no more: it is deleted, or will be in any case.
    pub(crate) fn is_given_up(&self) -> bool {
        matches!(self.owner_delete.get(), DeleteState::Done | DeleteState::Left)
    }

    /// Marks the node as deleted, unless its owner is deleting it, and reports the loss.
    pub(crate) fn set_deleted(&self) {
        if self.mark_deleted() {
            self.report_loss();
        }
    }

    /// Marks the node as deleted, unless its owner is deleting it. Returns `true` for the first deletion, which the
    /// caller reports.
    pub(crate) fn mark_deleted(&self) -> bool {
        !self.deleting.load(Ordering::SeqCst) && self.deleted.set(()).is_ok()
    }

    /// Tells the listener of a loss. The caller has recorded the loss before.
    pub(crate) fn report_loss(&self) {
        let listener = self.loss_listener.lock().as_ref().and_then(Weak::upgrade);
        if let Some(listener) = listener {
            // The panic is logged.
            let _panicked = catch_panic("listener for a loss", || listener.node_lost());
        }
    }

    /// Returns `true` if the node is known to be deleted, but not by its owner.
    pub(crate) fn is_deleted(&self) -> bool {
        self.deleted.initialized()
    }
}

impl OwnedNode {
    pub(crate) fn new(session: Session, parent: &str, id: ProtectedId, name: &str, mode: CreateMode) -> Self {
        session.add_owned_node();
        Self {
            // An owned node outlives the connection.
            session: session.unpinned(),
            path: Session::protected_path(parent, id, name),
            id,
            is_exact: false,
            mode,
            outcome_unknown: false,
            node: None,
            delete_sent: false,
            cleaned_up: false,
        }
    }

    /// Returns the session in which the node lives.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Returns the id in the node's name `_c_<uuid>-<name>`.
    #[must_use]
    pub fn protected_id(&self) -> ProtectedId {
        self.id
    }

    /// Returns `true` if the reply to a create was lost: a node may exist that is not known, or two.
    #[must_use]
    pub fn is_uncertain(&self) -> bool {
        self.outcome_unknown
    }

    /// Records that a create with the same name was sent in an earlier session, with an unknown outcome.
    pub(crate) fn resume_uncertain(&mut self) {
        self.outcome_unknown = true;
    }

    /// Returns the path of the node, once it is known.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        self.node.as_deref().map(|node| self.session.root().to_client_path(&node.path))
    }

    /// Returns the path of the node for errors and logs, once it is known.
    #[must_use]
    pub fn path_text(&self) -> Option<PathText> {
        self.node.as_deref().zip(self.path()).map(|(node, short)| PathText::of_server(&node.path, short))
    }

    /// Returns the path that a create asks for: a server appends a number to it if the mode is sequential.
    #[must_use]
    pub fn planned_path(&self) -> &str {
        &self.path
    }

    /// Adopts the node. The registry marks it when it is deleted, before any waiter wakes.
    fn set_node(&mut self, mut node: KnownNode) {
        self.forget_node();
        node.is_exact = self.is_exact;
        let node = Arc::new(node);
        // A missing node at an exact path may be another one, so the registry cannot decide.
        if !self.is_exact {
            self.session.watches().owns(&node.path, &node);
        }
        self.node = Some(node);
    }

    fn forget_node(&self) {
        if let Some(node) = self.node.as_ref().filter(|_| !self.is_exact) {
            self.session.watches().disowns(&node.path);
        }
    }

    fn parent(&self) -> &str {
        parent_of(&self.path)
    }

    /// Sends one create, and those of missing parents if the new node wants them. No retry: after `ConnectionLoss` it
    /// may be called again, and [`adopt`](Self::adopt) then decides which of the nodes is kept.
    ///
    /// # Errors
    ///
    /// As [`Session::create`]; `Error::SchemaViolation`; `Error::NoNode` if the parents are deleted again and again.
    ///
    /// # Cancel safety
    ///
    /// After the future is dropped the node may exist. Dropping the owned node deletes it.
    pub async fn create(&mut self, node: &NodeSpec<'_>) -> Result<Created> {
        let session = self.session.pinned();
        let acl_of_node = |path: &str| node.acl.map_or_else(|| session.acl_for(path), <[_]>::to_vec);
        let mut acl = acl_of_node(&self.path);
        self.check_schemas(&session, node.data, &acl)?;
        let mut parents_made = 0;
        loop {
            // Until the reply arrives the node may or may not exist, also if this future is dropped.
            let was_uncertain = self.outcome_unknown;
            self.outcome_unknown = true;
            let created = session.create_node(&self.path, node.data.to_vec(), acl, self.mode).await;
            self.outcome_unknown = was_uncertain;
            match created {
                Ok((path, stat)) => {
                    self.set_node(KnownNode::new(path, stat.czxid));
                    return Ok(Created { stat, epoch: session.epoch() });
                }
                Err(error @ Error::NoNode { .. }) if parents_made < node.parents.max_create_attempts() => {
                    // Boxed: a rare branch must not enlarge every waiter's future.
                    if !Box::pin(session.create_parents(&self.path, node)).await? {
                        return Err(error);
                    }
                    parents_made += 1;
                    acl = acl_of_node(&self.path);
                }
                Err(error) => {
                    self.outcome_unknown |= error.outcome_unknown();
                    return Err(error);
                }
            }
        }
    }

    fn check_schemas(&self, session: &Session, data: &[u8], acl: &[Acl]) -> Result<()> {
        let Some(schemas) = session.schemas() else { return Ok(()) };
        let unprotected = make_path(self.parent(), normalize(node_from_path(&self.path)));
        schemas.check_create(&unprotected, self.mode, data, acl)
    }

    /// Returns the children that carry the id of this owned node in their names.
    pub fn own<'a>(&self, children: impl IntoIterator<Item = &'a String>) -> Vec<&'a str> {
        let prefix = self.id.prefix();
        children.into_iter().map(String::as_str).filter(|name| name.starts_with(&prefix)).collect()
    }

    /// Returns `true` if a node with this stat can be the owned node: an ephemeral one must belong to its session. A
    /// create with a lost reply may have run in another session, if the servers confuse sessions.
    #[must_use]
    pub fn is_own(&self, stat: &Stat) -> bool {
        let of_other = || self.session.id().is_some_and(|own| own.get() != stat.ephemeral_owner);
        !(self.mode.is_ephemeral() && of_other())
    }

    /// Adopts the node `keep`, and deletes the `others` that lost replies have left.
    ///
    /// # Errors
    ///
    /// As [`Session::delete`]; `Error::NoNode` if the node is [of another session](Self::is_own).
    ///
    /// # Cancel safety
    ///
    /// After the future is dropped, others may be left. Adopt again, or drop the owned node, which deletes all.
    pub async fn adopt(&mut self, keep: &str, stat: &Stat, others: &[&str]) -> Result<()> {
        let path = make_path(self.parent(), keep);
        if !self.is_own(stat) {
            return Err(Error::NoNode { path: path.into() });
        }
        if self.path() != Some(path.as_str()) {
            let full = Arc::from(&*self.session.root().to_server_path(&path));
            self.set_node(KnownNode::new(full, stat.czxid));
        }
        for other in others {
            match self.session.delete(&make_path(self.parent(), other), None).await {
                Ok(()) | Err(Error::NoNode { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.outcome_unknown = false;
        Ok(())
    }

    /// Deletes the node. Returns `Ok(false)` if it was deleted before, but not by its owner.
    ///
    /// # Errors
    ///
    /// As [`Session::delete`]. The node stays owned: delete it again, or drop the owned node, which deletes it too.
    ///
    /// # Cancel safety
    ///
    /// After the future is dropped the node may be deleted. Dropping the owned node deletes it in any case.
    pub async fn delete(&mut self) -> Result<bool> {
        Ok(self.delete_with(Vec::new()).await?.is_some())
    }

    /// Deletes the node like [`delete`](Self::delete), in one transaction behind other operations if there are any.
    /// Returns the results of the others. They are empty if an earlier call, which failed, has deleted the node.
    /// Returns `Ok(None)` if the node was deleted before, but not by its owner.
    ///
    /// # Errors
    ///
    /// * As [`delete`](Self::delete).
    /// * `Error::Transaction`: another operation failed. `Error::Unsupported`: the client has no transactions. Nothing
    ///   was changed.
    ///
    /// # Cancel safety
    ///
    /// As [`delete`](Self::delete).
    pub async fn delete_with(&mut self, others: Vec<Operation>) -> Result<Option<Vec<Done>>> {
        let Some(node) = self.node.clone() else { return Ok(Some(Vec::new())) };
        // From here on a deletion counts as the owner's, unless the delete turns out not to have been sent.
        let was_ours = !node.is_deleted();
        node.deleting.store(true, Ordering::SeqCst);
        let tried = std::mem::replace(&mut self.delete_sent, true);
        let outstanding = OutstandingDelete(&node);
        node.owner_delete.replace(DeleteState::Outstanding);
        let done = match self.send_delete(&node, others).await {
            Ok(done) => {
                node.owner_delete.replace(DeleteState::Done);
                Some(done)
            }
            // An earlier delete that was sent may have deleted the node.
            Err(Error::NoNode { .. }) => (tried && was_ours).then(Vec::new),
            Err(error) => {
                self.delete_sent = tried || error.outcome_unknown();
                node.deleting.store(self.delete_sent, Ordering::SeqCst);
                if !self.delete_sent {
                    // The node is held on, and events that came meanwhile were taken for those of this delete.
                    self.watch_node(Duration::ZERO);
                }
                return Err(error);
            }
        };
        drop(outstanding);
        self.cleaned_up = !self.outcome_unknown;
        Ok(done)
    }

    /// Sends the delete, alone or behind other operations. Returns `NoNode` if the node itself is missing.
    async fn send_delete(&self, node: &KnownNode, others: Vec<Operation>) -> Result<Vec<Done>> {
        if self.is_exact && others.is_empty() {
            // Boxed: a rare branch must not enlarge every waiter's future.
            return Box::pin(self.delete_exact(node)).await.map(|()| Vec::new());
        }
        if others.is_empty() {
            return self.session.delete_node(Arc::clone(&node.path), None).await.map(|()| Vec::new());
        }
        let (path, own) = (self.session.root().to_client_path(&node.path).to_owned(), others.len());
        let mut operations = others;
        operations.push(Operation::Delete { path, version: None });
        // Boxed: a rare branch must not enlarge every waiter's future.
        match Box::pin(self.session.transaction(operations)).await {
            Ok(mut done) => {
                done.truncate(own);
                Ok(done)
            }
            Err(Error::Transaction { index, cause, .. }) if index == own => Err(*cause),
            Err(error) => Err(error),
        }
    }

    /// Sends the delete of the node at once, and does not wait for the reply. Dropping the owned node instead sends it
    /// soon. Call it within a runtime.
    pub fn delete_in_background(mut self) {
        let session = self.session.clone();
        session.background().spawn_eager(async move {
            // If the delete fails, dropping `self` hands the node to the background task.
            let _deleted = self.delete().await;
        });
    }

    /// Leaves the node to the caller: dropping the owned node no longer deletes it.
    pub(crate) fn into_unmanaged(mut self) {
        self.cleaned_up = true;
    }

    /// Has the background task watch the node from `after` on, to notice a deletion that is not the owner's. The watch
    /// is set anew after each reconnect.
    pub fn watch_node(&self, after: Duration) {
        if let Some(node) = &self.node {
            let now = self.session.clock().now();
            let due = now.saturating_add(after);
            self.session.background().watch_from(&self.session, now, due, Arc::downgrade(node));
        }
    }

    /// Calls `observer` with the node's data and stat, now and after each change. A change that another one follows at
    /// once may be missed; the last one never is. `observer` must not block.
    pub fn observe_data(&self, observer: impl Fn(&[u8], &Stat) + Send + Sync + 'static) {
        if let Some(node) = &self.node {
            // The first observer stays.
            let _set = node.observer.set(Box::new(observer));
            self.watch_node(Duration::ZERO);
        }
    }

    /// Calls `call` after this time if the node is still held. `call` must not block, and a later one replaces it.
    pub fn when_held_for(&self, long: Duration, call: impl FnOnce() + Send + 'static) {
        if let Some(node) = &self.node {
            let now = self.session.clock().now();
            *node.when_held_for_long.lock() = Some(Box::new(call));
            self.session.background().call(now, now.saturating_add(long), Arc::downgrade(node));
        }
    }

    /// Sets the listener for the node's loss. A later one replaces it.
    pub fn set_loss_listener(&self, listener: Weak<dyn LossListener>) {
        if let Some(node) = &self.node {
            *node.loss_listener.lock() = Some(listener);
        }
    }

    /// Writes the node's data in the background, if it was never written since the create, to fire the data watches of
    /// waiters. A deletion of the node makes that superfluous, because it fires them too.
    pub fn signal_successor(&self, data: Vec<u8>) {
        if let Some(node) = &self.node {
            let now = self.session.clock().now();
            self.session.background().touch(&self.session, now, Arc::downgrade(node), data);
        }
    }

    /// Returns the state of the owner's delete, or `None` while the node is not known. A dropped owned node leaves its
    /// delete to the session's background task, and then it is never [done](OwnerDelete::is_done).
    #[must_use]
    pub fn owner_delete(&self) -> Option<OwnerDelete> {
        self.node.clone().map(OwnerDelete)
    }

    /// Watches the node as [`watch_node`](Self::watch_node) does, with a watch that is set already: on the node, or on the
    /// children of its parent by a listing that shows the node. The first event of the children that is not caused by
    /// the owner's delete costs a read, which sets a watch on the node.
    pub fn watch_node_with(&self, watch: Watch) {
        match &self.node {
            // The observer's watch is on the node already, and only the newest one is set anew.
            Some(node) if node.observer.get().is_some() => watch.leave(),
            Some(node) => rearm_watch(self.session.clone(), &Arc::downgrade(node), watch),
            None => {}
        }
    }

    /// Returns the id of the transaction that created the node, once it is known.
    #[must_use]
    pub fn czxid(&self) -> Option<i64> {
        self.node.as_ref().map(|node| node.czxid)
    }

    /// Returns the signal of the node's loss, which can outlive the owned node.
    #[must_use]
    pub fn loss_signal(&self) -> LossSignal {
        LossSignal { session: self.session.clone(), node: self.node.clone(), errors: self.session.errors() }
    }

    /// Returns the node's name, once it is known.
    #[must_use]
    pub fn node_name(&self) -> Option<&str> {
        self.path().map(node_from_path)
    }
}

impl Drop for OwnedNode {
    fn drop(&mut self) {
        self.forget_node();
        let parent = self.session.root().to_server_path(parent_of(&self.path));
        self.session.reaper().touch_parent(&parent, self.session.clock().now());
        let may_exist = self.outcome_unknown || self.node.is_some();
        if may_exist && !self.cleaned_up {
            if let Some(node) = &self.node {
                // A guard that outlives its node must not take this delete for a loss.
                node.deleting.store(true, Ordering::SeqCst);
                node.owner_delete.replace(DeleteState::Left);
            }
            self.session.background().clean(
                &self.session,
                match self.is_exact {
                    true => self.remains_at_path(),
                    false => PendingDelete::Claimed {
                        parent: parent.into_owned(),
                        prefix: self.id.prefix(),
                        path: self.node.as_ref().filter(|_| !self.outcome_unknown).map(|node| node.path.to_string()),
                        ephemeral: self.mode.is_ephemeral(),
                    },
                },
            );
        }
        self.session.remove_owned_node();
    }
}

/// The signal of the loss of an owned node.
#[derive(Debug, Clone)]
pub struct LossSignal {
    session: Session,
    node: Option<Arc<KnownNode>>,
    /// The session's count of error states when this signal was created.
    errors: u64,
}

impl LossSignal {
    /// Returns the reason of the loss, or `None` while the node is held. Local, no request. It is right also at the
    /// first call after the process or the machine slept.
    #[must_use]
    pub fn loss(&self) -> Option<LossReason> {
        if let Some(end) = self.session.end_reason() {
            return Some(LossReason::Session(end));
        }
        if self.node.as_deref().is_some_and(|node| node.is_deleted()) {
            return Some(LossReason::NodeDeleted);
        }
        if self.session.errors() > self.errors {
            return Some(LossReason::ConnectionError);
        }
        (!self.session.is_alive()).then_some(LossReason::Session(SessionEnd::DeadlinePassed))
    }

    /// Asks the leader whether the session and the node exist. Returns `Ok(None)` if so, else the reason of the loss.
    ///
    /// # Errors
    ///
    /// `Error::ConnectionLoss` and other errors of the requests: it is not known whether the node is lost.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn verify(&self) -> Result<Option<LossReason>> {
        let asked = async {
            loop {
                let reconnects = self.session.epoch();
                self.session.write_barrier().await?;
                if let Some(node) = &self.node {
                    let found = self.session.in_namespace(Namespace::default()).exists(&node.path).await?;
                    if found.is_none_or(|found| node.is_followed_by(&found)) {
                        node.set_deleted();
                    }
                }
                // After a reconnect the read may come from a server that lags behind the barrier.
                if self.session.epoch() == reconnects {
                    return Ok(());
                }
            }
        };
        let asked = asked.await;
        match self.loss() {
            Some(loss) => Ok(Some(loss)),
            None => asked.map(|()| None),
        }
    }

    /// Resolves with the reason when the node is lost, at once if it is.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn lost(&self) -> LossReason {
        let deleted = async {
            match &self.node {
                Some(node) => *node.deleted.wait().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            end = self.session.ended() => LossReason::Session(end),
            () = deleted => LossReason::NodeDeleted,
            () = self.session.errors_above(self.errors) => LossReason::ConnectionError,
        }
    }
}

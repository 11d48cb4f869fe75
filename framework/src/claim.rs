//! Who owns a node that is being created, so that none is left behind.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::error::{Error, Result};
use crate::housekeeping::{Remains, attend, contained};
use crate::model::{CreateMode, Stat};
use crate::new_node::NewNode;
use crate::observed::Observed;
use crate::path::{make_path, node_from_path, parent_of};
use crate::protected::{ProtectedId, normalize};
use crate::root::Root;
use crate::session::Session;
use crate::watch::Watch;
use crate::zookeeper::SessionEnd;

/// Why something that was held in ZooKeeper is no longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// The session is over.
    Session(SessionEnd),
    /// The node was deleted by somebody else.
    NodeDeleted,
    /// The connection was in a state that the client's
    /// [`ConnectionStateErrorPolicy`](crate::ConnectionStateErrorPolicy) takes for an error.
    ConnectionError,
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(end) => end.fmt(f),
            Self::NodeDeleted => f.write_str("the node was deleted by somebody else"),
            Self::ConnectionError => f.write_str("the connection was suspended"),
        }
    }
}

/// A node that was just created.
#[derive(Debug, Clone)]
pub struct Created {
    /// What the server says of it.
    pub stat: Stat,
    /// The connection that carried the reply: what is read on it from now on is not older than the create.
    pub epoch: u64,
}

/// The ownership of one node under one session, from before its create is sent until it is deleted.
///
/// However the owner fails (an error, a time-out, a dropped future), the claim's `Drop` hands the node to the
/// session's housekeeping, which finds and deletes it. While a claim exists, the session's deadline counts the
/// leader's answers only.
#[derive(Debug)]
pub struct NodeClaim {
    session: Session,
    /// The path of the create: without the number that the server appends.
    path: String,
    id: ProtectedId,
    mode: CreateMode,
    /// A create was sent, so there may be a node.
    asked: bool,
    /// A create was sent and its reply lost, so there may be more than one node.
    uncertain: bool,
    /// The one node, as soon as it is known.
    node: Option<Arc<ClaimedNode>>,
    /// A delete was sent whose outcome is not known.
    delete_sent: bool,
    /// There is nothing left to clean.
    done: bool,
}

/// A delete by a node's owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DeleteState {
    /// None is outstanding, and none was answered with success.
    Idle,
    Outstanding,
    /// The leader has deleted the node for its owner.
    Done,
}

/// Sets the state back if the owner gives up before the reply.
struct OutstandingDelete<'a>(&'a ClaimedNode);

impl Drop for OutstandingDelete<'_> {
    fn drop(&mut self) {
        self.0.owner_delete.modify(|state| {
            if *state == DeleteState::Outstanding {
                *state = DeleteState::Idle;
            }
        });
    }
}

/// The deletion of a node by its owner in this process. It can outlive the owner.
#[derive(Debug, Clone)]
pub struct OwnerDelete(Arc<ClaimedNode>);

impl OwnerDelete {
    /// The path of the node.
    #[must_use]
    pub fn full_path(&self) -> &Arc<str> {
        &self.0.path
    }

    /// Whether the leader has deleted the node for its owner. Waits for the reply if the owner's delete is outstanding;
    /// that it was begun is not enough, since the end of the session can overtake it.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn is_done(&self) -> bool {
        self.0.owner_delete.wait_for(|state| *state != DeleteState::Outstanding).await == DeleteState::Done
    }
}

/// Is given a node's data and stat each time they are read.
type DataObserver = Box<dyn Fn(&[u8], &Stat) + Send + Sync>;

/// What is known of a claimed node.
pub(crate) struct ClaimedNode {
    /// As the server knows it.
    pub(crate) path: Arc<str>,
    /// The transaction that created it.
    pub(crate) czxid: i64,
    /// Its owner has begun to delete it.
    deleting: AtomicBool,
    /// What became of the owner's newest delete.
    owner_delete: Observed<DeleteState>,
    /// Somebody else deleted it.
    deleted: Raised,
    observer: OnceLock<DataObserver>,
    /// Goes with the node when that is released before.
    when_held_for_long: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// Counts the watches that were set on it for its owner: the newest one is set anew.
    turns: AtomicU64,
}

impl fmt::Debug for ClaimedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimedNode").field("path", &self.path).field("deleted", &self.deleted).finish_non_exhaustive()
    }
}

impl ClaimedNode {
    pub(crate) fn new(path: Arc<str>, czxid: i64) -> Self {
        Self {
            path,
            czxid,
            deleting: AtomicBool::new(false),
            owner_delete: Observed::new(DeleteState::Idle),
            deleted: Raised::default(),
            observer: OnceLock::new(),
            when_held_for_long: Mutex::new(None),
            turns: AtomicU64::new(0),
        }
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

    /// The node was read.
    pub(crate) fn was_read(&self, data: &[u8], stat: &Stat) {
        if let Some(observer) = self.observer.get() {
            contained(|| observer(data, stat));
        }
    }

    /// Whether its owner has begun to delete it.
    pub(crate) fn is_being_deleted(&self) -> bool {
        self.deleting.load(Ordering::SeqCst)
    }

    /// Notes that the node is gone; not news if its owner is deleting it.
    pub(crate) fn set_deleted(&self) {
        if !self.deleting.load(Ordering::SeqCst) {
            self.deleted.raise();
        }
    }

    /// Whether another client has deleted the node, as far as is known.
    pub(crate) fn is_deleted(&self) -> bool {
        self.deleted.is_raised()
    }
}

impl NodeClaim {
    pub(crate) fn new(session: Session, parent: &str, id: ProtectedId, name: &str, mode: CreateMode) -> Self {
        session.claim_begins();
        Self {
            // It outlives the connection.
            session: session.unpinned(),
            path: Session::protected_path(parent, id, name),
            id,
            mode,
            asked: false,
            uncertain: false,
            node: None,
            delete_sent: false,
            done: false,
        }
    }

    /// The session in which the node lives.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The `_c_<uuid>-` of the node's name.
    #[must_use]
    pub fn protected_id(&self) -> ProtectedId {
        self.id
    }

    /// Whether a create was sent whose reply was lost: there may be a node that is not known, or two.
    #[must_use]
    pub fn is_uncertain(&self) -> bool {
        self.uncertain
    }

    /// A create under the same name was sent in an earlier session, and its outcome is not known.
    pub(crate) fn inherit(&mut self) {
        self.asked = true;
        self.uncertain = true;
    }

    /// The path of the node, once it is known.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        self.node.as_deref().map(|node| self.session.root().local(&node.path))
    }

    /// The node is known: what is told of it is told to this claim first.
    fn set_node(&mut self, node: ClaimedNode) {
        self.disown_node();
        let node = Arc::new(node);
        self.session.watches().owns(&node.path, &node);
        self.node = Some(node);
    }

    fn disown_node(&self) {
        if let Some(node) = &self.node {
            self.session.watches().disowns(&node.path);
        }
    }

    fn parent(&self) -> &str {
        parent_of(&self.path)
    }

    /// Sends one create, and those of the parents that are missing, as the new node wants it. No retry: after
    /// `ConnectionLoss` it may be called again, and [`settle`](Self::settle) then says which of the nodes is kept.
    ///
    /// # Errors
    ///
    /// As [`Session::create`]; `NoNode` when the parents go again and again as soon as they are created.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped the node may exist. The claim knows of that, and deletes it when it is dropped.
    pub async fn create(&mut self, node: &NewNode<'_>) -> Result<Created> {
        let session = self.session.pinned();
        let acl_of_node = |path: &str| node.acl.map_or_else(|| session.acl_for(path), <[_]>::to_vec);
        let mut acl = acl_of_node(&self.path);
        if let Some(schemas) = session.schemas() {
            let unprotected = make_path(self.parent(), normalize(node_from_path(&self.path)));
            schemas.check_create(&unprotected, self.mode, node.data, &acl)?;
        }
        let mut parents_made = 0;
        loop {
            // Before the answer comes everything is possible, also if this future is dropped.
            let was_uncertain = self.uncertain;
            self.asked = true;
            self.uncertain = true;
            let created = session.create_node(&self.path, node.data.to_vec(), acl, self.mode).await;
            self.uncertain = was_uncertain;
            match created {
                Ok((path, stat)) => {
                    self.set_node(ClaimedNode::new(path, stat.czxid));
                    return Ok(Created { stat, epoch: session.epoch() });
                }
                Err(error @ Error::NoNode { .. }) if parents_made < node.parents.most_times() => {
                    // On the heap, as this is rare.
                    if !Box::pin(session.create_parents(&self.path, node)).await? {
                        return Err(error);
                    }
                    parents_made += 1;
                    acl = acl_of_node(&self.path);
                }
                Err(error) => {
                    self.uncertain |= error.outcome_unknown();
                    return Err(error);
                }
            }
        }
    }

    /// Those of the parent's children that are this claim's.
    pub fn own<'a>(&self, children: impl IntoIterator<Item = &'a String>) -> Vec<&'a str> {
        let prefix = self.id.prefix();
        children.into_iter().map(String::as_str).filter(|name| name.starts_with(&prefix)).collect()
    }

    /// Whether a node with this stat can be the claim's: an ephemeral node must belong to the claim's own session. A
    /// create whose reply was lost may have been applied in another session, if the servers mix them up.
    #[must_use]
    pub fn is_own(&self, stat: &Stat) -> bool {
        let of_other = || self.session.id().is_some_and(|own| own != stat.ephemeral_owner);
        !(self.mode.is_ephemeral() && of_other())
    }

    /// Says which node is the claim's, and deletes the others that lost replies have left.
    ///
    /// # Errors
    ///
    /// As [`Session::delete`]; `NoNode` if the node is not [the claim's own](Self::is_own).
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, others may be left. Settle again, or drop the claim, which deletes all of its nodes.
    pub async fn settle(&mut self, keep: &str, stat: &Stat, others: &[&str]) -> Result<()> {
        let path = make_path(self.parent(), keep);
        if !self.is_own(stat) {
            return Err(Error::NoNode { path });
        }
        if self.path() != Some(path.as_str()) {
            let full = Arc::from(&*self.session.root().full(&path));
            self.set_node(ClaimedNode::new(full, stat.czxid));
        }
        for other in others {
            match self.session.delete(&make_path(self.parent(), other), None).await {
                Ok(()) | Err(Error::NoNode { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.uncertain = false;
        Ok(())
    }

    /// Deletes the node. `Ok(false)` if somebody else had deleted it before.
    ///
    /// # Errors
    ///
    /// As [`Session::delete`]; the claim stays, so it can be tried again, and dropping it still cleans up.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped the node may be deleted. Dropping the claim deletes it in any case.
    pub async fn delete(&mut self) -> Result<bool> {
        let Some(node) = self.node.clone() else { return Ok(true) };
        // From here on a deletion is our own; it is again somebody else's when nothing was sent.
        let was_ours = !node.is_deleted();
        node.deleting.store(true, Ordering::SeqCst);
        let tried = std::mem::replace(&mut self.delete_sent, true);
        let outstanding = OutstandingDelete(&node);
        node.owner_delete.replace(DeleteState::Outstanding);
        let was_there = match self.session.delete_node(Arc::clone(&node.path), None).await {
            Ok(()) => {
                node.owner_delete.replace(DeleteState::Done);
                true
            }
            // If an earlier try was sent, it may be that one that deleted the node.
            Err(Error::NoNode { .. }) => tried && was_ours,
            Err(error) => {
                self.delete_sent = tried || error.outcome_unknown();
                node.deleting.store(self.delete_sent, Ordering::SeqCst);
                return Err(error);
            }
        };
        drop(outstanding);
        self.done = !self.uncertain;
        Ok(was_there)
    }

    /// Gives up the claim and begins to delete the node at once, where dropping it has that done soon. Nobody waits for
    /// the answer. Within a runtime only.
    pub fn let_go(mut self) {
        let session = self.session.clone();
        session.housekeeping().begin(async move {
            // What could not be deleted is left to the claim's end.
            let _deleted = self.delete().await;
        });
    }

    /// Gives up the claim and leaves the node to the caller, who has it from now on.
    pub(crate) fn disown(mut self) {
        self.done = true;
    }

    /// Has the housekeeping watch the node from `after` on, so that its deletion by somebody else is noticed, also
    /// after each reconnect.
    pub fn watch_node(&self, after: Duration) {
        if let Some(node) = &self.node {
            let now = self.session.clock().now();
            self.session.housekeeping().guard(now, now.saturating_add(after), Arc::downgrade(node));
        }
    }

    /// Has the node's data and stat given to `observer` now and after each change, as far as that is seen: a change that
    /// is followed by another at once may be missed, the last one never is. `observer` must not block.
    pub fn observe_data(&self, observer: impl Fn(&[u8], &Stat) + Send + Sync + 'static) {
        if let Some(node) = &self.node {
            // The first one stays.
            let _set = node.observer.set(Box::new(observer));
            self.watch_node(Duration::ZERO);
        }
    }

    /// Has `call` called when the node is held for this long. It must not block; another one takes its place.
    pub fn when_held_for(&self, long: Duration, call: impl FnOnce() + Send + 'static) {
        if let Some(node) = &self.node {
            let now = self.session.clock().now();
            *node.when_held_for_long.lock() = Some(Box::new(call));
            self.session.housekeeping().call(now, now.saturating_add(long), Arc::downgrade(node));
        }
    }

    /// Has the node's data written once more, some time, if it was never written since it was created: for those who
    /// watch it. A deletion that comes first tells them as well.
    pub fn touch(&self, data: Vec<u8>) {
        if let Some(node) = &self.node {
            let now = self.session.clock().now();
            self.session.housekeeping().touch(now, now, Arc::downgrade(node), data);
        }
    }

    /// What becomes of the node's deletion by this claim. A claim that is dropped leaves it to the session's housekeeping,
    /// and then it is never [done](OwnerDelete::is_done). `None` as long as the node is not known.
    #[must_use]
    pub fn owner_delete(&self) -> Option<OwnerDelete> {
        self.node.clone().map(OwnerDelete)
    }

    /// As [`watch_node`](Self::watch_node) with a watch on the node that is set already.
    pub fn watch_node_with(&self, watch: Watch) {
        if let Some(node) = &self.node {
            attend(self.session.clone(), &Arc::downgrade(node), watch);
        }
    }

    /// The transaction that created the node, once that is known.
    #[must_use]
    pub fn czxid(&self) -> Option<i64> {
        self.node.as_ref().map(|node| node.czxid)
    }

    /// What tells of the node's loss; it can outlive the claim.
    #[must_use]
    pub fn loss_signal(&self) -> LossSignal {
        LossSignal { session: self.session.clone(), node: self.node.clone(), errors: self.session.errors() }
    }

    /// The node's name, once it is known.
    #[must_use]
    pub fn node_name(&self) -> Option<&str> {
        self.path().map(node_from_path)
    }
}

impl Drop for NodeClaim {
    fn drop(&mut self) {
        self.disown_node();
        let parent = self.session.root().full(parent_of(&self.path));
        self.session.reaper().used(&parent, self.session.clock().now());
        if self.asked && !self.done {
            self.session.housekeeping().clean(
                &self.session,
                Remains::Claimed {
                    parent: parent.into_owned(),
                    prefix: self.id.prefix(),
                    path: if self.uncertain { None } else { self.node.take().map(|node| node.path.to_string()) },
                    ephemeral: self.mode.is_ephemeral(),
                },
            );
        }
        self.session.claim_ends();
    }
}

/// A flag that is raised once and can be waited for.
#[derive(Debug, Default)]
struct Raised {
    raised: AtomicBool,
    notify: Notify,
}

impl Raised {
    fn raise(&self) {
        self.raised.store(true, Ordering::SeqCst);
        self.notify.notify_waiters();
    }

    fn is_raised(&self) -> bool {
        self.raised.load(Ordering::SeqCst)
    }

    async fn wait(&self) {
        loop {
            let notified = self.notify.notified();
            if self.is_raised() {
                return;
            }
            notified.await;
        }
    }
}

/// Tells of the loss of a claimed node.
#[derive(Debug, Clone)]
pub struct LossSignal {
    session: Session,
    node: Option<Arc<ClaimedNode>>,
    /// How often the connection had been in an error state when the claim was granted.
    errors: u64,
}

impl LossSignal {
    /// Why the node is lost, if it is. Local, no request; right also at the first look after the process or the
    /// machine slept.
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

    /// Asks the leader whether the session lives and the node is there. `Ok(None)` if so, else why it is lost.
    ///
    /// # Errors
    ///
    /// `ConnectionLoss` and other errors of the requests, when it is not known.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn verify(&self) -> Result<Option<LossReason>> {
        let asked = async {
            loop {
                let reconnects = self.session.epoch();
                self.session.order().await?;
                if let Some(node) = &self.node {
                    if self.session.below(Root::default()).exists(&node.path).await?.is_none() {
                        node.set_deleted();
                    }
                }
                // Another server may be behind the one that was asked first.
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

    /// Resolves when the node is lost, with the reason; at once if it is.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn lost(&self) -> LossReason {
        let deleted = async {
            match &self.node {
                Some(node) => node.deleted.wait().await,
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

//! One session with the ensemble, from its first reply to its end.

pub(crate) mod background;
pub(crate) mod container_reaper;
mod deadlines;
pub(crate) mod delete_tree;
pub(crate) mod liveness;
pub(crate) mod owned_node;
mod requests;
pub(crate) mod subscription;
pub(crate) mod timers;
pub(crate) mod watches;

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::SetOnce;

use crate::environment::clock::Clock;
use crate::environment::randomness::Randomness;
use crate::error::{Error, INTERNAL_WAIT, Result};
use crate::model::acl_provider::AclProvider;
use crate::model::ids::{SessionId, Zxid};
use crate::model::namespace::Namespace;
use crate::model::protected::{ProtectedId, to_protected_path};
use crate::model::schema::SchemaSet;
use crate::model::{CreateMode, Stat};
use crate::session::background::{Background, DeleteBacklog};
use crate::session::container_reaper::ContainerReaper;
use crate::session::deadlines::{Passed, SessionDeadline};
use crate::session::liveness::SessionLiveness;
use crate::session::owned_node::OwnedNode;
use crate::session::timers::SessionTimes;
use crate::session::watches::{Watch, WatchRegistry};
use crate::state::connection_state::{ConnectionState, ConnectionStateErrorPolicy};
use crate::sync::safe_notify::SafeNotifyExecutor;
use crate::sync::user_code::catch_panic;
use crate::sync::watch_cell::WatchCell;
use crate::zookeeper::{Connection, Evidence, Reattached, Reply, SessionEnd, ZooKeeperHandle};

/// The client's options that concern its sessions.
#[derive(Debug)]
pub(crate) struct SessionConfig {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) randomness: Arc<dyn Randomness>,
    pub(crate) acl_provider: Arc<dyn AclProvider>,
    pub(crate) error_policy: Arc<dyn ConnectionStateErrorPolicy>,
    pub(crate) reaper: Arc<ContainerReaper>,
    pub(crate) schemas: Option<Arc<SchemaSet>>,
}

/// One ZooKeeper session. A recipe takes one for each attempt and sends every request of that attempt through it.
///
/// After its end every request fails with [`Error::SessionExpired`], or with `Closed` if the client was closed. No
/// request moves to the next session, so no decision rests on a node of an earlier session (CURATOR-604).
///
/// # Cancel safety
///
/// If the future of a request is dropped, the request may still be applied. An [`OwnedNode`] deletes its node then.
#[derive(Clone)]
pub struct Session {
    inner: Arc<Inner>,
    /// The prefix of all paths that this handle sends.
    root: Namespace,
    /// The epoch to which the requests are bound.
    pinned: Option<u64>,
}

struct Inner {
    number: u64,
    handle: Arc<dyn ZooKeeperHandle>,
    clock: Arc<dyn Clock>,
    randomness: Arc<dyn Randomness>,
    liveness_state: Mutex<LivenessState>,
    /// The deadline that the process' thread watches.
    watched_deadline: SessionDeadline,
    link: WatchCell<ConnectionInfo>,
    /// The newest transaction in a reply.
    zxid: AtomicI64,
    end: SetOnce<SessionEnd>,
    /// The steps after the end have started.
    ending: AtomicBool,
    watches: WatchRegistry,
    background: Background,
    acl_provider: Arc<dyn AclProvider>,
    error_policy: Arc<dyn ConnectionStateErrorPolicy>,
    /// The policy takes silence for an error.
    silence_is_error: bool,
    reaper: Arc<ContainerReaper>,
    schemas: Option<Arc<SchemaSet>>,
    extensions: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
}

/// A node's data and stat, with a watch for its change or deletion.
#[derive(Debug)]
pub struct WatchedData {
    /// The data.
    pub data: Vec<u8>,
    /// The stat.
    pub stat: Stat,
    /// The watch.
    pub watch: Watch,
}

/// The inputs of the deadline.
struct LivenessState {
    liveness: SessionLiveness,
    owned_nodes: usize,
    /// The handle knows that the session owns nodes. `report_owning` takes that back later, because locks come and go.
    reported_owning: bool,
}

impl LivenessState {
    /// Returns the evidence that counts: only the leader's while an owned node exists.
    fn evidence(&self) -> Evidence {
        if self.owned_nodes > 0 { Evidence::Leader } else { Evidence::AnyServer }
    }
}

/// The state of the session's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ConnectionInfo {
    up: bool,
    /// The connection's number within the session.
    epoch: u64,
    /// The number of changes to a state that the client's policy takes for an error.
    errors: u64,
}

impl Session {
    /// Creates the session of a new connection and spawns its background task.
    pub(crate) fn new(
        number: u64,
        connection: &Connection,
        config: &SessionConfig,
        leftovers: Arc<DeleteBacklog>,
    ) -> Self {
        let (background, tasks) = Background::new(leftovers, Arc::clone(&config.reaper));
        let liveness =
            SessionLiveness::new(connection.handle.negotiated_timeout(), connection.established, connection.sent);
        let silence_is_error = config.error_policy.is_error_state(ConnectionState::Suspended);
        let inner = Arc::new_cyclic(|inner: &Weak<Inner>| {
            let (inner, executor) = (Weak::clone(inner), SafeNotifyExecutor::new());
            let passed = move |passed| {
                let session = Weak::clone(&inner);
                let job = move || {
                    if let Some(session) = session.upgrade() {
                        session.on_passed(passed);
                    }
                };
                // Apart from the thread of the deadlines: a waker is code of the user, and so is a client that is dropped.
                if executor.try_submit(job).is_err() {
                    // The system refuses a thread. The session's own task does the rest.
                    inner.upgrade().iter().for_each(|session| session.record_passed(passed));
                }
            };
            Inner {
                number,
                handle: Arc::clone(&connection.handle),
                clock: Arc::clone(&config.clock),
                randomness: Arc::clone(&config.randomness),
                liveness_state: Mutex::new(LivenessState { liveness, owned_nodes: 0, reported_owning: false }),
                watched_deadline: SessionDeadline::watch(&*config.clock, Box::new(passed)),
                link: WatchCell::new(ConnectionInfo { up: true, epoch: connection.epoch, errors: 0 }),
                zxid: AtomicI64::new(0),
                end: SetOnce::new(),
                ending: AtomicBool::new(false),
                watches: watches_of(connection),
                background,
                acl_provider: Arc::clone(&config.acl_provider),
                error_policy: Arc::clone(&config.error_policy),
                silence_is_error,
                reaper: Arc::clone(&config.reaper),
                schemas: config.schemas.clone(),
                extensions: Mutex::default(),
            }
        });
        let session = Self { inner, root: Namespace::default(), pinned: None };
        session.change_liveness(|_| {});
        let inner = Arc::downgrade(&session.inner);
        connection.handle.on_task_dropped(Box::new(move || {
            if let Some(inner) = inner.upgrade() {
                Self { inner, root: Namespace::default(), pinned: None }.finish(SessionEnd::ClientFailed);
            }
        }));
        tokio::spawn(tasks.run(session.clone()));
        session
    }

    /// Returns the same session for paths below this root.
    pub(crate) fn in_namespace(&self, root: Namespace) -> Self {
        Self { inner: Arc::clone(&self.inner), root, pinned: self.pinned }
    }

    pub(crate) fn root(&self) -> &Namespace {
        &self.root
    }

    /// Returns `true` if both are the same session, for paths in the same namespace.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner) && self.root == other.root
    }

    /// Returns the session's number in its client, from 1. It is not ZooKeeper's session id, which is
    /// [`Stat::ephemeral_owner`] of its nodes.
    #[must_use]
    #[doc(alias = "getInstanceIndex")]
    pub fn number(&self) -> u64 {
        self.inner.number
    }

    /// Returns ZooKeeper's id of the session, as soon as the client knows it.
    #[must_use]
    pub fn id(&self) -> Option<SessionId> {
        self.inner.handle.session_id().and_then(SessionId::new)
    }

    /// Returns ZooKeeper's id as the servers log it, for an event.
    pub(crate) fn shown_id(&self) -> Option<tracing::field::DisplayValue<SessionId>> {
        self.id().map(tracing::field::display)
    }

    /// Returns the session timeout in effect: the smallest one that a server has granted to this session.
    #[must_use]
    #[doc(alias = "getLastNegotiatedSessionTimeoutMs")]
    pub fn timeout(&self) -> Duration {
        self.inner.liveness_state.lock().liveness.timeout()
    }

    /// Returns the deadline: until when the session is certainly alive, on the client's clock. While an owned node
    /// exists, only what the leader knows counts.
    pub(crate) fn deadline(&self) -> Duration {
        let liveness_state = self.inner.liveness_state.lock();
        liveness_state.liveness.deadline(liveness_state.evidence())
    }

    /// Returns the times of loss, of silence and of the next heartbeat.
    pub(crate) fn times(&self) -> SessionTimes {
        let is_connected = self.is_connected();
        let liveness_state = self.inner.liveness_state.lock();
        let (liveness, evidence) = (&liveness_state.liveness, liveness_state.evidence());
        SessionTimes {
            timeout: liveness.timeout(),
            deadline: liveness.deadline(evidence),
            suspend_at: liveness.suspend_at(evidence),
            heartbeat: liveness.heartbeat(evidence),
            evidence,
            is_connected,
        }
    }

    /// Returns how long the session is certainly alive if no further reply comes. Local, no request.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        if self.end_reason().is_some() {
            return Duration::ZERO;
        }
        self.deadline().saturating_sub(self.inner.clock.now())
    }

    /// Returns `true` while the session is certainly alive. It compares the clock with the deadline and depends on no
    /// timer, so it is right also at the first call after the process or the machine slept.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Returns the reason of the session's end, or `None` while it lasts.
    #[must_use]
    pub fn end_reason(&self) -> Option<SessionEnd> {
        self.inner.end.get().copied()
    }

    /// Resolves with the reason when the session ends, at once if it has ended.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn ended(&self) -> SessionEnd {
        *self.inner.end.wait().await
    }

    /// Returns `true` while the session has a connection on which a server has accepted it.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.end_reason().is_none() && self.inner.link.get().up
    }

    /// Returns the epoch: the number of the session's connection, which grows with each connection. A request runs on
    /// the connection that is current when it is submitted, or fails. A [pinned](Self::pinned) session keeps its epoch.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.pinned.unwrap_or_else(|| self.inner.link.get().epoch)
    }

    /// Returns the newest transaction that a reply to a request of this session has reflected. `None` if none has, and with
    /// a client that does not report it. After a request it is at least its reply's.
    #[must_use]
    pub fn zxid(&self) -> Option<Zxid> {
        Some(self.inner.zxid.load(Ordering::Acquire)).filter(|&zxid| zxid != 0).map(Zxid::new)
    }

    /// Returns the same session, pinned to its present connection. When that connection is lost, its requests fail with
    /// `ConnectionLoss`. The replies to its reads reflect the server's transactions in order.
    #[must_use]
    pub fn pinned(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), root: self.root.clone(), pinned: Some(self.epoch()) }
    }

    /// Returns whether the client has [transactions](Self::transaction). `zookeeper-async` has none.
    #[must_use]
    pub fn has_transactions(&self) -> bool {
        self.inner.handle.capabilities().transactions
    }

    pub(crate) fn unpinned(&self) -> Self {
        Self { pinned: None, ..self.clone() }
    }

    /// Returns the session's value of this type, for a recipe's state in it. The first call creates it.
    #[must_use]
    pub fn extension<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let mut extensions = self.inner.extensions.lock();
        let kept = extensions.entry(TypeId::of::<T>()).or_insert_with(|| Arc::new(T::default()));
        // The key is the value's type, so the downcast succeeds.
        Arc::clone(kept).downcast().unwrap_or_default()
    }

    /// Resolves when the session has a connection newer than `epoch`.
    pub(crate) async fn epoch_above(&self, epoch: u64) {
        self.inner.link.wait_for(|link| link.up && link.epoch > epoch).await;
    }

    /// Resolves when the session has a connection.
    ///
    /// # Errors
    ///
    /// `Error::SessionExpired`: the session ended first, at its deadline at the latest. `Error::Closed`: the client was
    /// closed.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn connected(&self) -> Result<()> {
        tokio::select! {
            biased;
            _ = self.ended() => Err(self.closed_error(INTERNAL_WAIT)),
            _ = self.inner.link.wait_for(|link| link.up) => Ok(()),
        }
    }

    /// Resolves when the session has lost its connection, or has another one: it was [connected](Self::is_connected) or
    /// not as `was_connected` says, and the newest connection had this [epoch](Self::epoch). Several tasks that wait are
    /// woken in the order of their calls.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn connection_changed(&self, was_connected: bool, epoch: u64) {
        let is_connected = |link: &ConnectionInfo| link.up && self.end_reason().is_none();
        self.inner.link.wait_for(|link| is_connected(link) != was_connected || link.epoch != epoch).await;
    }

    /// Ends the session, once: resolves [`ended`](Self::ended), wakes all watches, ends the handle and reports the
    /// loss of all owned nodes.
    pub(crate) fn finish(&self, end: SessionEnd) {
        self.inner.finish(end);
    }

    /// Records a state of the connection. If the client's policy takes it for an error, all owned nodes count as lost.
    pub(crate) fn on_state_change(&self, state: ConnectionState) {
        if self.inner.error_policy.is_error_state(state) {
            self.inner.count_error();
            self.inner.watches.all_lost();
        }
    }

    /// Returns how often the connection was in an error state. If silence is one, it compares the clock with the time
    /// of silence too, so that the first call after a sleep is right.
    pub(crate) fn errors(&self) -> u64 {
        if self.inner.silence_is_error && self.inner.clock.now() >= self.times().suspend_at {
            return self.inner.count_error();
        }
        self.inner.link.get().errors
    }

    /// Resolves when the connection has been in an error state more often than `errors`.
    pub(crate) async fn errors_above(&self, errors: u64) {
        self.inner.link.wait_for(|link| link.errors > errors).await;
    }

    pub(crate) fn set_disconnected(&self) {
        self.inner.link.modify(|link| link.up = false);
    }

    pub(crate) fn set_shortened(&self, sent: Duration, timeout: Duration) {
        self.change_liveness(|state| state.liveness.shortened(sent, timeout));
    }

    pub(crate) fn set_reconnected(&self, reattached: &Reattached) {
        let now = self.inner.clock.now();
        let Reattached { sent, leader_sent, timeout, epoch } = *reattached;
        self.change_liveness(|state| state.liveness.reattached(sent, now, timeout, epoch));
        if let Some(sent) = leader_sent {
            self.answered_at(now, sent, epoch, Evidence::Leader);
        }
        self.inner.watches.attached(epoch, || {
            self.inner.link.modify(|link| {
                link.up = true;
                link.epoch = epoch;
            });
        });
        if !self.inner.handle.capabilities().restores_watches {
            self.inner.watches.reconnected();
        }
        self.inner.background.reconnected();
    }

    /// Records the reply to a heartbeat, which gives this evidence.
    pub(crate) fn on_heartbeat(&self, reply: &Reply, evidence: Evidence) {
        let alive = matches!(reply.result, Ok(_) | Err(Error::NoNode { .. }));
        if let (true, Some(sent)) = (alive, reply.sent) {
            self.answered_at(self.inner.clock.now(), sent, reply.epoch, evidence);
        }
    }

    /// Records the transaction that a reply reflects.
    fn reflected(&self, zxid: i64) {
        self.inner.zxid.fetch_max(zxid, Ordering::AcqRel);
    }

    fn answered_at(&self, now: Duration, sent: Duration, epoch: u64, evidence: Evidence) {
        self.change_liveness(|state| state.liveness.answered(sent, now, epoch, evidence));
    }

    /// Changes the inputs of the deadline, and has the thread of the deadlines watch the new one.
    fn change_liveness(&self, change: impl FnOnce(&mut LivenessState)) {
        let mut state = self.inner.liveness_state.lock();
        change(&mut state);
        let evidence = state.evidence();
        let deadline = state.liveness.deadline(evidence);
        let warning = match self.inner.silence_is_error {
            true => deadline.saturating_sub(state.liveness.suspend_at(evidence)),
            false => Duration::ZERO,
        };
        self.inner.watched_deadline.set(deadline, warning);
    }

    pub(crate) fn add_owned_node(&self) {
        self.change_liveness(|state| {
            state.owned_nodes += 1;
            if state.owned_nodes == 1 {
                state.liveness.on_first_owned_node();
                if !std::mem::replace(&mut state.reported_owning, true) {
                    self.inner.handle.set_owning(true);
                }
            }
        });
    }

    pub(crate) fn remove_owned_node(&self) {
        self.change_liveness(|state| state.owned_nodes -= 1);
    }

    /// Notifies the handle if the session no longer owns a node.
    pub(crate) fn report_owning(&self) {
        let mut liveness_state = self.inner.liveness_state.lock();
        if liveness_state.owned_nodes == 0 && std::mem::take(&mut liveness_state.reported_owning) {
            self.inner.handle.set_owning(false);
        }
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.inner.clock
    }

    pub(crate) fn handle(&self) -> &Arc<dyn ZooKeeperHandle> {
        &self.inner.handle
    }

    pub(crate) fn watches(&self) -> &WatchRegistry {
        &self.inner.watches
    }

    pub(crate) fn background(&self) -> &Background {
        &self.inner.background
    }

    pub(crate) fn reaper(&self) -> &ContainerReaper {
        &self.inner.reaper
    }

    pub(crate) fn schemas(&self) -> Option<&SchemaSet> {
        self.inner.schemas.as_deref()
    }

    /// Returns an owned node under `parent`, to be named `_c_<uuid>-<name>`. Sends no request.
    #[must_use]
    pub fn owned_node(&self, parent: &str, name: &str, mode: CreateMode) -> OwnedNode {
        self.owned_node_of(parent, name, mode, self.new_id())
    }

    /// Returns an owned node like [`owned_node`](Self::owned_node), with a given id. If the mode is not sequential, a late
    /// create of an earlier session with the same id fails beside the node, or the node's create beside that one.
    #[must_use]
    pub fn owned_node_of(&self, parent: &str, name: &str, mode: CreateMode, id: ProtectedId) -> OwnedNode {
        OwnedNode::new(self.clone(), parent, id, name, mode)
    }

    /// Returns an owned node like [`owned_node`](Self::owned_node). Its name sorts behind the name of the node with the
    /// id `other`, if the rest of both names is the same. `None` if such a name is not left.
    #[must_use]
    pub fn owned_node_behind(
        &self,
        parent: &str,
        name: &str,
        mode: CreateMode,
        other: ProtectedId,
    ) -> Option<OwnedNode> {
        let id = other.behind(&*self.inner.randomness)?;
        Some(self.owned_node_of(parent, name, mode, id))
    }

    /// Returns the path of a node under `parent`, to be named `_c_<uuid>-<name>`, with a new id. Sends no request.
    #[must_use]
    pub fn new_protected_path(&self, parent: &str, name: &str) -> String {
        Self::protected_path(parent, self.new_id(), name)
    }

    /// Returns a new id, from the client's source of randomness.
    #[must_use]
    pub fn new_id(&self) -> ProtectedId {
        ProtectedId::new(&*self.inner.randomness)
    }

    /// Returns the path of an owned node, without its number.
    pub(crate) fn protected_path(parent: &str, id: ProtectedId, name: &str) -> String {
        to_protected_path(parent, name, id)
    }
}

impl Inner {
    /// Records that a time has passed, and does what follows.
    fn on_passed(&self, passed: Passed) {
        // A waker that panics does not keep the watches from waking.
        let _panicked = catch_panic("waker of a task", || self.record_passed(passed));
        match passed {
            Passed::Deadline => self.complete_end(),
            Passed::Silence => self.watches.all_lost(),
        }
    }

    /// Records that a time has passed, and wakes the tasks that await a loss.
    fn record_passed(&self, passed: Passed) {
        match passed {
            Passed::Deadline => {
                // Another end may have come first.
                let _first = self.end.set(SessionEnd::DeadlinePassed);
            }
            Passed::Silence => {
                self.count_error();
            }
        }
    }

    /// Counts an error state of the connection, which ends all holds.
    fn count_error(&self) -> u64 {
        self.link.modify(|link| {
            link.errors += 1;
            link.errors
        })
    }

    fn finish(&self, end: SessionEnd) {
        // Another end may have come first.
        let _first = self.end.set(end);
        self.complete_end();
    }

    /// Does what follows the end, once. A panic in one step, such as in a clock of the user, does not keep the others
    /// from running.
    fn complete_end(&self) {
        let Some(&end) = self.end.get() else { return };
        if self.ending.swap(true, Ordering::SeqCst) {
            return;
        }
        self.watched_deadline.end();
        let steps: [&dyn Fn(); 3] =
            [&|| self.watches.session_ended(end), &|| self.handle.end(), &|| self.watches.all_lost()];
        for step in steps {
            // The panic is logged, and the other steps follow.
            let _panicked = catch_panic("code that a session calls at its end", step);
        }
    }
}

fn watches_of(connection: &Connection) -> WatchRegistry {
    let handle = Arc::clone(&connection.handle);
    let registry = match handle.capabilities().remove_watches {
        true => WatchRegistry::forgetting(move |path, kind| handle.forget_watch(path, kind)),
        false => WatchRegistry::default(),
    };
    registry.attached(connection.epoch, || {});
    connection.handle.on_notification(Box::new(registry.notifier()));
    registry
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("number", &self.inner.number)
            .field("link", &self.inner.link)
            .field("end", &self.inner.end.get())
            .finish_non_exhaustive()
    }
}

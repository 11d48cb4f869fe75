//! The state of a session, and its handles.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::SetOnce;

use crate::environment::clock::Clock;
use crate::environment::randomness::Randomness;
use crate::error::Error;
#[cfg(doc)]
use crate::model::Stat;
use crate::model::acl_provider::AclProvider;
use crate::model::ids::{SessionId, Zxid};
use crate::model::namespace::Namespace;
use crate::model::protected::ProtectedId;
use crate::model::schema::SchemaSet;
use crate::session::background::{Background, DeleteBacklog};
use crate::session::container_reaper::ContainerReaper;
use crate::session::deadlines::SessionDeadline;
use crate::session::ephemeral_nodes::EphemeralNodes;
use crate::session::liveness::SessionLiveness;
#[cfg(doc)]
use crate::session::owned_node::OwnedNode;
use crate::session::watches::WatchRegistry;
use crate::state::connection_state::{ConnectionState, ConnectionStateErrorPolicy};
use crate::sync::extensions::Extensions;
use crate::sync::listeners::Listeners;
use crate::sync::safe_notify::SafeNotifyExecutor;
use crate::sync::watch_cell::WatchCell;
use crate::zookeeper::{Connection, Evidence, SessionEnd, ZooKeeperHandle};

/// The client's options that concern its sessions.
#[derive(Debug)]
pub(crate) struct SessionConfig {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) randomness: Arc<dyn Randomness>,
    pub(crate) acl_provider: Arc<dyn AclProvider>,
    pub(crate) error_policy: Arc<dyn ConnectionStateErrorPolicy>,
    pub(crate) reaper: Arc<ContainerReaper>,
    pub(crate) schemas: Option<Arc<SchemaSet>>,
    /// The most bytes of the paths of a session's ephemeral nodes.
    pub(crate) max_ephemeral_bytes: usize,
    pub(crate) unhandled_errors: Arc<UnhandledErrors>,
}

/// The listeners to errors that no caller gets.
pub(crate) type UnhandledErrors = Listeners<dyn Fn(&str, &Error) + Send + Sync>;

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
    pub(super) inner: Arc<Inner>,
    /// The prefix of all paths that this handle sends.
    pub(super) root: Namespace,
    /// The epoch to which the requests are bound.
    pub(super) pinned: Option<u64>,
}

pub(super) struct Inner {
    pub(super) number: u64,
    pub(super) handle: Arc<dyn ZooKeeperHandle>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) randomness: Arc<dyn Randomness>,
    pub(super) liveness_state: Mutex<LivenessState>,
    /// The deadline that the process' thread watches.
    pub(super) watched_deadline: SessionDeadline,
    pub(super) link: WatchCell<ConnectionInfo>,
    /// The newest transaction in a reply.
    pub(super) zxid: AtomicI64,
    pub(super) end: SetOnce<SessionEnd>,
    /// The steps after the end have started.
    pub(super) ending: AtomicBool,
    pub(super) watches: WatchRegistry,
    pub(super) background: Background,
    pub(super) acl_provider: Arc<dyn AclProvider>,
    pub(super) error_policy: Arc<dyn ConnectionStateErrorPolicy>,
    /// The policy takes silence for an error.
    pub(super) silence_is_error: bool,
    pub(super) reaper: Arc<ContainerReaper>,
    pub(super) schemas: Option<Arc<SchemaSet>>,
    pub(super) unhandled_errors: Arc<UnhandledErrors>,
    pub(super) ephemeral_nodes: Mutex<EphemeralNodes>,
    /// The moment of the server's newest list of them.
    pub(super) recounted: tokio::sync::Mutex<Option<Duration>>,
    /// A server has answered that it does not know a request of ZooKeeper 3.6: persistent watches, or a list of the
    /// session's ephemeral nodes.
    pub(super) is_before_3_6: AtomicBool,
    extensions: Extensions,
}

/// The inputs of the deadline.
pub(super) struct LivenessState {
    pub(super) liveness: SessionLiveness,
    pub(super) owned_nodes: usize,
    /// The handle knows that the session owns nodes. `report_owning` takes that back later, because locks come and go.
    pub(super) reported_owning: bool,
}

impl LivenessState {
    /// Returns the evidence that counts: only the leader's while an owned node exists.
    pub(super) fn evidence(&self) -> Evidence {
        if self.owned_nodes > 0 { Evidence::Leader } else { Evidence::AnyServer }
    }
}

/// The state of the session's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ConnectionInfo {
    pub(super) up: bool,
    /// The connection's number within the session.
    pub(super) epoch: u64,
    /// The number of changes to a state that the client's policy takes for an error.
    pub(super) error_states: u64,
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
                link: WatchCell::new(ConnectionInfo { up: true, epoch: connection.epoch, error_states: 0 }),
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
                unhandled_errors: Arc::clone(&config.unhandled_errors),
                ephemeral_nodes: Mutex::new(EphemeralNodes::new(config.max_ephemeral_bytes)),
                recounted: tokio::sync::Mutex::default(),
                is_before_3_6: AtomicBool::new(false),
                extensions: Extensions::default(),
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
    /// `ConnectionLoss`. The replies to its reads reflect the server's transactions in order. Its requests are sent in
    /// their order: a create that fits among the session's ephemeral nodes only after a new count fails with
    /// `ConnectionLoss` too, and fits the next time.
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

    /// Returns `true` if the reply to a create of this session has shown the ephemeral node at this path: it has a known
    /// owner in this program.
    #[must_use]
    pub fn has_created(&self, path: &str) -> bool {
        self.inner.ephemeral_nodes.lock().has_created(&self.root.to_server_path(path))
    }

    /// Returns the session's value of this type, for a recipe's state in it. The first call creates it.
    #[must_use]
    pub fn extension<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        self.inner.extensions.get()
    }

    /// Records the transaction that a reply reflects.
    pub(super) fn reflected(&self, zxid: i64) {
        self.inner.zxid.fetch_max(zxid, Ordering::AcqRel);
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

    /// Returns a new id, from the client's source of randomness.
    #[must_use]
    pub fn new_id(&self) -> ProtectedId {
        ProtectedId::new(&*self.inner.randomness)
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

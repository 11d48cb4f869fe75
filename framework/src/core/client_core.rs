//! The state that all clones of a client share, and a clone for paths below its root.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::core::config::{Config, DefaultData};
use crate::environment::randomness::Randomness;
use crate::error::{ConnectError, Error, INTERNAL_WAIT, PathText, Result};
use crate::metrics;
use crate::model::AuthInfo;
use crate::model::namespace::Namespace;
use crate::model::new_node::Parents;
use crate::model::schema::SchemaSet;
use crate::retry::RetryPolicy;
use crate::session::Session;
use crate::session::background::{Delete, DeleteBacklog, PendingDelete, PendingGuard};
use crate::state::connection_state::{ConnectionState, StateEvent, next_state};
use crate::sync::extensions::Extensions;
use crate::sync::report::report;
use crate::sync::watch_cell::WatchCell;
use crate::zookeeper::{Closing, Pacer, SessionEnd, ZooKeeperHandle};

/// A client, for paths below its root. The session ends with the last clone that keeps it.
#[derive(Clone)]
pub(crate) struct ClientCore {
    shared: Arc<ClientState>,
    /// `None` for a clone that does not keep the session.
    _keeper: Option<Arc<ClientHandle>>,
    /// The prefix of all paths that this clone takes.
    root: Namespace,
}

/// A client that this does not keep.
#[derive(Clone)]
pub(crate) struct WeakCore {
    owner: Weak<ClientHandle>,
    root: Namespace,
}

impl WeakCore {
    pub(crate) fn upgrade(&self) -> Option<ClientCore> {
        self.owner.upgrade().map(|owner| ClientCore::kept_by(owner, self.root.clone()))
    }
}

/// Notifies the listeners of a change of the connection state.
pub(crate) type OnState = Box<dyn Fn(ClientCore, ConnectionState) + Send + Sync>;

/// The state that all clones share. The session ends with it.
struct ClientHandle {
    shared: Arc<ClientState>,
}

impl Drop for ClientHandle {
    fn drop(&mut self) {
        self.shared.stop(Shutdown::Immediate);
    }
}

/// The mark of a running client task: dropping it marks the task as ended.
pub(crate) struct TaskEnd(pub(crate) Arc<ClientState>);

impl Drop for TaskEnd {
    fn drop(&mut self) {
        // A runtime that ends drops this task and the session's own in any order: both give the same reason.
        let end = match *self.0.stop.borrow() {
            Shutdown::Running => SessionEnd::ClientFailed,
            Shutdown::Graceful | Shutdown::Immediate => SessionEnd::Closed,
        };
        self.0.stop(Shutdown::Immediate);
        if let Some(session) = self.0.session.replace(None) {
            session.finish(end);
        }
        self.0.finished.send_replace(true);
        metrics::state_changed(self.0.state(), None);
    }
}

/// The order to the client's task to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shutdown {
    Running,
    /// After the pending deletes, or when their time has ended.
    Graceful,
    Immediate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LifeCycle {
    Latent,
    Started,
    Stopped,
}

/// The state that the client and its task share.
pub(crate) struct ClientState {
    pub(crate) config: Config,
    retry_policy: Arc<dyn RetryPolicy>,
    pub(crate) leftovers: Arc<DeleteBacklog>,
    /// Spreads the attempts of all sessions over time.
    pub(crate) pacer: Arc<Pacer>,
    /// The closes of sessions that have ended, for `close` to wait for.
    pub(crate) closing: Mutex<Vec<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    on_state: OnState,
    owner: OnceLock<Weak<ClientHandle>>,
    pub(crate) life_cycle: WatchCell<LifeCycle>,
    pub(crate) session: WatchCell<Option<Session>>,
    pub(crate) state: watch::Sender<Option<ConnectionState>>,
    pub(crate) connect_error: Mutex<Option<Arc<ConnectError>>>,
    stop: watch::Sender<Shutdown>,
    pub(crate) finished: watch::Sender<bool>,
    /// The runtime of the client's task.
    pub(crate) runtime: OnceLock<Handle>,
    pub(crate) extensions: Extensions,
}

impl ClientState {
    pub(crate) fn new(config: Config, retry_policy: Arc<dyn RetryPolicy>, on_state: OnState) -> Self {
        Self {
            config,
            retry_policy,
            on_state,
            leftovers: Arc::new(DeleteBacklog::default()),
            pacer: Arc::new(Pacer::default()),
            closing: Mutex::default(),
            owner: OnceLock::new(),
            life_cycle: WatchCell::new(LifeCycle::Latent),
            session: WatchCell::new(None),
            state: watch::Sender::new(None),
            connect_error: Mutex::new(None),
            stop: watch::Sender::new(Shutdown::Running),
            finished: watch::Sender::new(true),
            runtime: OnceLock::new(),
            extensions: Extensions::default(),
        }
    }

    pub(crate) fn publish(&self, session: Option<Session>) {
        self.session.replace(session);
    }

    /// Publishes a new session, which has all credentials by then: the program may have added some since the attempt to
    /// connect started.
    pub(crate) fn publish_new(&self, session: Session) {
        // Locked until the session is there: no credentials are left out, and none come ahead of older ones.
        let all = self.config.auth.lock();
        all.iter().for_each(|auth| session.handle().add_auth(auth));
        self.publish(Some(session));
    }

    /// Adds credentials, also to the present session.
    pub(crate) fn add_auth(&self, auth: AuthInfo) {
        // Locked to the end, so that each session gets them in one order.
        let mut all = self.config.auth.lock();
        if !all.contains(&auth) {
            all.push(auth.clone());
        }
        // Without a session the next one takes all.
        if let Some(session) = self.session.get() {
            session.handle().add_auth(&auth);
        }
    }

    /// Wakes the operations that wait for a connection.
    pub(crate) fn session_changed(&self) {
        self.session.modify(|_| {});
    }

    pub(crate) fn state(&self) -> Option<ConnectionState> {
        *self.state.borrow()
    }

    pub(crate) fn on_event(&self, event: StateEvent) {
        let before = self.state();
        let after = next_state(before, event);
        let (Some(state), true) = (after, before != after) else { return };
        if let Some(session) = self.session.get() {
            // First of all: a guard must be lost before any other code can act on the state.
            session.on_state_change(state);
        }
        self.state.send_replace(after);
        if let Some(owner) = self.owner.get().and_then(Weak::upgrade) {
            let root = Namespace::new(&self.config.chroot, "").unwrap_or_default();
            (self.on_state)(ClientCore::kept_by(owner, root), state);
        }
        metrics::state_changed(before, after);
        report(move || tracing::info!(%state, "connection state"));
    }

    /// Records the close of a session that has ended, for `close` to wait for.
    pub(crate) fn is_closing(&self, handle: &dyn ZooKeeperHandle) {
        let mut closing = self.closing.lock();
        closing.retain_mut(|closed| closed.now_or_never().is_none());
        closing.push(handle.closed());
    }

    pub(crate) fn connect_failed(&self, error: ConnectError) {
        let refused = error.refuses_credentials();
        self.connect_error.lock().replace(Arc::new(error));
        if refused {
            self.session_changed();
        }
    }

    /// Returns the error of credentials that a server refused at the newest attempt to connect.
    fn refusal(&self) -> Option<Error> {
        let cause = self.connect_error().filter(|error| error.refuses_credentials())?;
        Some(Error::AuthFailed { cause })
    }

    /// Resolves when a server refuses the credentials; at once if one did at the newest attempt to connect.
    pub(crate) async fn refused(&self) -> Error {
        loop {
            self.session
                .wait_for(|_| self.connect_error.lock().as_ref().is_some_and(|error| error.refuses_credentials()))
                .await;
            if let Some(refusal) = self.refusal() {
                return refusal;
            }
        }
    }

    /// Returns the newest failure to connect since the last connection.
    pub(crate) fn connect_error(&self) -> Option<Arc<ConnectError>> {
        self.connect_error.lock().clone()
    }

    pub(crate) fn connected(&self) {
        self.connect_error.lock().take();
    }

    pub(crate) fn stop(&self, stop: Shutdown) {
        self.life_cycle.replace(LifeCycle::Stopped);
        self.stop.send_if_modified(|current| {
            let more = stop > *current;
            *current = stop.max(*current);
            more
        });
    }

    /// Returns a signal that ends a connect when the client closes.
    pub(crate) fn closing(&self) -> Closing {
        let stop = self.stop.subscribe();
        Closing::new(move || {
            let mut stop = stop.clone();
            // An error means that the client was dropped, which ends the connect as well.
            async move { drop(stop.wait_for(|&stop| stop != Shutdown::Running).await) }
        })
    }

    /// Resolves when the client's order to stop satisfies `enough`.
    pub(crate) async fn stopped(&self, enough: impl Fn(Shutdown) -> bool) {
        let mut stop = self.stop.subscribe();
        if stop.wait_for(|&stop| enough(stop)).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl ClientCore {
    pub(crate) fn new(shared: ClientState, root: Namespace) -> Self {
        let owner = Arc::new(ClientHandle { shared: Arc::new(shared) });
        // Set once, here.
        let _first = owner.shared.owner.set(Arc::downgrade(&owner));
        Self::kept_by(owner, root)
    }

    fn kept_by(keeper: Arc<ClientHandle>, root: Namespace) -> Self {
        Self { shared: Arc::clone(&keeper.shared), _keeper: Some(keeper), root }
    }

    /// Returns a clone that does not keep the session.
    pub(crate) fn weak_clone(&self) -> Self {
        Self { _keeper: None, ..self.clone() }
    }

    pub(crate) fn shared(&self) -> &Arc<ClientState> {
        &self.shared
    }

    pub(crate) fn root(&self) -> &Namespace {
        &self.root
    }

    pub(crate) fn with_namespace(&self, namespace: &str) -> Result<Self> {
        Ok(Self { root: self.root.with_namespace(namespace)?, ..self.clone() })
    }

    pub(crate) fn downgrade(&self) -> WeakCore {
        let owner = self.shared.owner.get().map(Weak::clone).unwrap_or_default();
        WeakCore { owner, root: self.root.clone() }
    }

    /// Resolves when the client cannot be used: at once if it was not started, else when it is closed.
    pub(crate) async fn not_started(&self) -> Error {
        match self.shared().life_cycle.wait_for(|&life_cycle| life_cycle != LifeCycle::Started).await {
            LifeCycle::Latent => Error::NotStarted,
            _ => Error::Closed,
        }
    }

    pub(crate) async fn session_within(&self, wait: Duration) -> Result<Session> {
        let shared = self.shared();
        let connected = |session: &Option<Session>| session.as_ref().is_some_and(Session::is_connected);
        if shared.life_cycle.get() == LifeCycle::Started {
            if let Some(session) = shared.session.get().filter(Session::is_connected) {
                return Ok(session.in_namespace(self.root.clone()));
            }
        }
        // Boxed: this wait is rare and must not enlarge the future of every operation.
        let connecting = Box::pin(async {
            tokio::select! {
                biased;
                error = self.not_started() => Err(error),
                session = shared.session.wait_for(connected) => {
                    session.map(|session| session.in_namespace(self.root.clone())).ok_or(Error::Closed)
                }
                refusal = shared.refused() => Err(refusal),
                () = tokio::time::sleep(wait) => Err(self.not_connected(INTERNAL_WAIT)),
            }
        });
        connecting.await
    }

    /// Returns the `ConnectionLoss` of a request without a reply in time. Its cause says whether the client is connected.
    pub(crate) fn not_answered(&self, request: &str) -> Error {
        let is_connected = self.shared().session.get().is_some_and(|session| session.is_connected());
        let cause = match is_connected {
            true => Some(Arc::new(ConnectError::time_over())),
            false => self.shared().connect_error(),
        };
        Error::ConnectionLoss { request: request.into(), sent: true, cause }
    }

    /// Returns the `ConnectionLoss` of a request that was not sent.
    pub(crate) fn not_connected(&self, request: &str) -> Error {
        Error::ConnectionLoss { request: request.into(), sent: false, cause: self.shared().connect_error() }
    }

    pub(crate) fn connection_timeout(&self) -> Duration {
        self.shared().config.connection_timeout
    }

    pub(crate) fn default_data(&self) -> &[u8] {
        match &self.shared().config.default_data {
            DefaultData::Given(data) => data,
            DefaultData::HostAddress(address) => address.get().as_bytes(),
        }
    }

    pub(crate) fn path_text(&self, path: &str) -> PathText {
        PathText::new(path, &self.root.to_server_path(path))
    }

    pub(crate) fn to_stored(&self, path: &str, data: Vec<u8>, compress: Option<bool>) -> Result<Vec<u8>> {
        let config = &self.shared().config;
        if !compress.unwrap_or(config.compress) {
            return Ok(data);
        }
        let failed = |error: io::Error| Error::Compression { path: path.into(), reason: error.to_string() };
        config.compression.compress(&self.root.to_server_path(path), &data).map_err(failed)
    }

    pub(crate) fn read_stored(&self, path: &str, stored: Vec<u8>, compressed: Option<bool>) -> Result<Vec<u8>> {
        let config = &self.shared().config;
        // No compression makes data empty: a parent or a container has none.
        if stored.is_empty() || !compressed.unwrap_or(config.compress) {
            return Ok(stored);
        }
        let failed = |error: io::Error| Error::Compression { path: path.into(), reason: error.to_string() };
        config.compression.decompress(&self.root.to_server_path(path), &stored).map_err(failed)
    }

    pub(crate) fn lock_parents(&self) -> Parents {
        if self.shared().config.container_parents { Parents::Containers } else { Parents::Persistent }
    }

    pub(crate) fn retry_policy(&self) -> &dyn RetryPolicy {
        &*self.shared().retry_policy
    }

    pub(crate) fn randomness(&self) -> &dyn Randomness {
        &*self.shared().config.session.randomness
    }

    /// Passes the client's schemas to `check`, if it has any.
    pub(crate) fn check_schemas(&self, check: impl FnOnce(&SchemaSet) -> Result<()>) -> Result<()> {
        self.shared().config.session.schemas.as_deref().map_or(Ok(()), check)
    }

    /// Registers an operation that may leave nodes to delete: `close` waits until the result is dropped. So the
    /// operation must end when [`not_started`](Self::not_started) resolves.
    pub(crate) fn track_pending(&self) -> PendingGuard {
        self.shared().leftovers.track_pending()
    }

    /// Deletes a node in the background, in this session or a later one.
    pub(crate) fn delete_some_time(&self, path: &str, delete: Delete) {
        let remains = PendingDelete::Guaranteed { path: self.root.to_server_path(path).into_owned(), delete };
        match self.shared().session.get() {
            Some(session) => session.background().clean(&session, remains),
            None => self.shared().leftovers.add(remains),
        }
    }
}

impl fmt::Debug for ClientCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = self.shared();
        f.debug_struct("CuratorFramework")
            .field("ensemble", &shared.config.ensemble)
            .field("namespace", &self.root.namespace())
            .field("life_cycle", &shared.life_cycle)
            .field("state", &shared.state())
            .finish_non_exhaustive()
    }
}

//! The client.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::access::{AclProvider, DefaultAclProvider};
use crate::clock::{BootClock, Clock};
use crate::compression::{CompressionProvider, GzipCompressionProvider};
use crate::connection_state::{
    ConnectionState, ConnectionStateErrorPolicy, SessionConnectionStateErrorPolicy, StateEvent, next_state,
};
use crate::ensemble::{EnsembleProvider, FixedEnsembleProvider, parse_connect_string};
#[cfg(doc)]
use crate::ensemble_config::EnsembleConfig;
use crate::error::{ConnectError, Error, Result};
use crate::housekeeping::{Delete, Leftovers, Owing, Remains};
use crate::keeper;
use crate::listeners::ConnectionStateListenable;
use crate::local_address::{LOCAL_ADDRESS, LocalAddress};
use crate::model::AuthInfo;
use crate::new_node::Parents;
use crate::observed::Observed;
use crate::operations::{
    CreateBuilder, CuratorTransaction, DeleteBuilder, ExistsBuilder, GetAclBuilder, GetChildrenBuilder,
    GetConfigBuilder, GetDataBuilder, ReconfigBuilder, SetAclBuilder, SetDataBuilder,
};
use crate::persistent_watcher::{AddWatchMode, PersistentWatcher};
use crate::randomness::{Randomness, ThreadRandomness};
use crate::reaper::Reaper;
use crate::retry::RetryPolicy;
use crate::retry_loop::RetryLoop;
use crate::root::Root;
use crate::schema::SchemaSet;
use crate::secure::{SaslDigest, TlsOptions};
use crate::session::Session;
use crate::zookeeper::{
    Closing, DEFAULT_MAX_FRAME, DefaultZooKeeperFactory, MIN_SESSION_TIMEOUT, Pacer, SessionEnd, ZooKeeperFactory,
    ZooKeeperHandle,
};

/// Curator's default session timeout: 60 s.
pub const DEFAULT_SESSION_TIMEOUT: Duration = Duration::from_secs(60);
/// Curator's default connection timeout: 15 s.
pub const DEFAULT_CONNECTION_TIMEOUT: Duration = Duration::from_secs(15);
/// Curator's default for how long `close` waits: 1 s.
pub const DEFAULT_MAX_CLOSE_WAIT: Duration = Duration::from_secs(1);
/// The smallest frame limit: it has room for any request that names one node.
const MIN_FRAME: usize = 4096;
/// The default of [`CuratorFrameworkBuilder::reap_interval`]: 60 s, as for ZooKeeper's containers.
pub const DEFAULT_REAP_INTERVAL: Duration = Duration::from_secs(60);

/// A client of a ZooKeeper ensemble: Curator's `CuratorFramework`.
///
/// Clones are cheap and share one session at a time. Dropping the last clone ends the session: at once while the
/// runtime lives, else when the session times out on the server. A held lock keeps a clone. [`close`](Self::close)
/// waits for it.
///
/// # Examples
///
/// ```no_run
/// # async fn run() -> Result<(), curator_framework::Error> {
/// use std::time::Duration;
/// use curator_framework::{CuratorFramework, ExponentialBackoffRetry};
///
/// let retry = ExponentialBackoffRetry::new(Duration::from_secs(1), 3)?;
/// let client = CuratorFramework::builder("zk1:2181,zk2:2181,zk3:2181").retry_policy(retry).build()?;
/// client.start()?;
/// let path = client.create().creating_parents_if_needed().with_data("hello").for_path("/examples/greeting").await?;
/// assert_eq!(client.get_data().for_path(&path).await?.0, b"hello");
/// client.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct CuratorFramework {
    owner: Arc<Owner>,
    /// The prefix of the paths that this clone is given.
    root: Root,
}

/// A reference that does not keep the client alive.
#[derive(Clone)]
pub(crate) struct WeakClient {
    owner: Weak<Owner>,
    root: Root,
}

impl WeakClient {
    pub(crate) fn upgrade(&self) -> Option<CuratorFramework> {
        self.owner.upgrade().map(|owner| CuratorFramework { owner, root: self.root.clone() })
    }
}

/// The state that all clones share. The session ends with it.
struct Owner {
    shared: Arc<Shared>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.stop(Stop::AtOnce);
    }
}

/// The mark of a running client task: dropping it books the task as ended.
struct Finished(Arc<Shared>);

impl Drop for Finished {
    fn drop(&mut self) {
        self.0.stop(Stop::AtOnce);
        if let Some(session) = self.0.session.replace(None) {
            session.finish(SessionEnd::Closed);
        }
        self.0.finished.send_replace(true);
    }
}

/// The order to the client's task to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stop {
    Not,
    /// After the pending deletes, or when their time is over.
    WhenClean,
    AtOnce,
}

/// The data of nodes that are created without data of their own.
#[derive(Debug, Clone)]
pub(crate) enum DefaultData {
    Given(Vec<u8>),
    HostAddress(&'static LocalAddress),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LifeCycle {
    Latent,
    Started,
    Stopped,
}

/// The validated options.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) ensemble: Arc<dyn EnsembleProvider>,
    pub(crate) ensemble_tracker: bool,
    /// The chroot in the connect string.
    pub(crate) chroot: String,
    pub(crate) session_timeout: Duration,
    pub(crate) connection_timeout: Duration,
    pub(crate) max_close_wait: Duration,
    pub(crate) max_frame: usize,
    pub(crate) auth: Vec<AuthInfo>,
    pub(crate) read_only: bool,
    pub(crate) tls: Option<TlsOptions>,
    pub(crate) sasl: Option<SaslDigest>,
    pub(crate) retry_policy: Arc<dyn RetryPolicy>,
    pub(crate) default_data: DefaultData,
    pub(crate) factory: Arc<dyn ZooKeeperFactory>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) randomness: Arc<dyn Randomness>,
    pub(crate) acl_provider: Arc<dyn AclProvider>,
    pub(crate) error_policy: Arc<dyn ConnectionStateErrorPolicy>,
    pub(crate) reaper: Arc<Reaper>,
    pub(crate) container_parents: bool,
    pub(crate) compression: Arc<dyn CompressionProvider>,
    pub(crate) compress: bool,
    pub(crate) schemas: Option<Arc<SchemaSet>>,
}

/// The state that the client and its task share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) leftovers: Arc<Leftovers>,
    /// Spreads the attempts of all sessions over time.
    pub(crate) pacer: Arc<Pacer>,
    /// The closes of sessions that have ended, for `close` to wait for.
    closing: Mutex<Vec<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    owner: OnceLock<Weak<Owner>>,
    life_cycle: Observed<LifeCycle>,
    session: Observed<Option<Session>>,
    state: watch::Sender<Option<ConnectionState>>,
    listeners: ConnectionStateListenable,
    connect_error: Mutex<Option<Arc<ConnectError>>>,
    stop: watch::Sender<Stop>,
    finished: watch::Sender<bool>,
}

impl Shared {
    pub(crate) fn publish(&self, session: Option<Session>) {
        self.session.replace(session);
    }

    /// Wakes the operations that wait for a connection.
    pub(crate) fn session_changed(&self) {
        self.session.modify(|_| {});
    }

    pub(crate) fn state(&self) -> Option<ConnectionState> {
        *self.state.borrow()
    }

    pub(crate) fn happened(&self, event: StateEvent) {
        let before = self.state();
        let after = next_state(before, event);
        let (Some(state), true) = (after, before != after) else { return };
        tracing::info!(%state, "connection state");
        if let Some(session) = self.session.get() {
            // First of all: a guard must be lost before any other code can act on the state.
            session.is_in(state);
        }
        self.state.send_replace(after);
        if let Some(owner) = self.owner.get().and_then(Weak::upgrade) {
            let root = Root::new(&self.config.chroot, "").unwrap_or_default();
            self.listeners.notify(&CuratorFramework { owner, root }, state);
        }
    }

    /// Books the close of a session that has ended, for `close` to wait for.
    pub(crate) fn is_closing(&self, handle: &dyn ZooKeeperHandle) {
        let mut closing = self.closing.lock();
        closing.retain_mut(|closed| closed.now_or_never().is_none());
        closing.push(handle.closed());
    }

    pub(crate) fn connect_failed(&self, error: ConnectError) {
        self.connect_error.lock().replace(Arc::new(error));
    }

    pub(crate) fn connected(&self) {
        self.connect_error.lock().take();
    }

    fn stop(&self, stop: Stop) {
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
            async move { drop(stop.wait_for(|&stop| stop != Stop::Not).await) }
        })
    }

    /// Resolves when the client's order to stop satisfies `enough`.
    pub(crate) async fn stopped(&self, enough: impl Fn(Stop) -> bool) {
        let mut stop = self.stop.subscribe();
        if stop.wait_for(|&stop| enough(stop)).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl CuratorFramework {
    /// Returns a builder for the servers of a connect string, `host:port[,host:port …][/chroot]`. The default port is
    /// 2181. All paths of the client are below the chroot, a node that must exist.
    pub fn builder(connect_string: impl Into<String>) -> CuratorFrameworkBuilder {
        CuratorFrameworkBuilder {
            ensemble: Arc::new(FixedEnsembleProvider::new(connect_string)),
            ensemble_tracker: false,
            session_timeout: DEFAULT_SESSION_TIMEOUT,
            connection_timeout: DEFAULT_CONNECTION_TIMEOUT,
            max_close_wait: DEFAULT_MAX_CLOSE_WAIT,
            auth: Vec::new(),
            read_only: false,
            tls: None,
            sasl: None,
            retry_policy: None,
            default_data: DefaultData::HostAddress(&LOCAL_ADDRESS),
            factory: Arc::new(DefaultZooKeeperFactory::new()),
            max_frame: DEFAULT_MAX_FRAME,
            clock: Arc::new(BootClock),
            randomness: Arc::new(ThreadRandomness),
            namespace: String::new(),
            acl_provider: Arc::new(DefaultAclProvider),
            error_policy: Arc::new(SessionConnectionStateErrorPolicy),
            reap_interval: Some(DEFAULT_REAP_INTERVAL),
            container_parents: true,
            compression: Arc::new(GzipCompressionProvider),
            compress: false,
            schemas: None,
            circuit_breaker: None,
        }
    }

    /// Returns the same client for paths below another namespace, or below none if it is empty: Curator's
    /// `usingNamespace`. Both share the session, the state, the listeners and `close`. The first node in the namespace
    /// also creates the namespace's node, with the access control list of the [`AclProvider`].
    ///
    /// # Errors
    ///
    /// `InvalidConfig`: a slash and the namespace do not make a valid path.
    pub fn using_namespace(&self, namespace: &str) -> Result<Self> {
        Ok(Self { owner: Arc::clone(&self.owner), root: self.root.with_namespace(namespace)? })
    }

    /// Returns the namespace; empty without one.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.root.namespace()
    }

    /// Returns a client with the default timeouts, not started yet: Curator's `CuratorFrameworkFactory.newClient`.
    ///
    /// # Errors
    ///
    /// Those of [`CuratorFrameworkBuilder::build`].
    pub fn new_client(connect_string: impl Into<String>, retry_policy: impl RetryPolicy) -> Result<Self> {
        Self::builder(connect_string).retry_policy(retry_policy).build()
    }

    /// Starts to connect, in the background. Must be called once, in a tokio runtime.
    ///
    /// # Errors
    ///
    /// * `AlreadyStarted`, `Closed`: a client starts once; build another one.
    /// * `NoRuntime`, `IncompleteRuntime`: call it in a tokio runtime with timers and I/O.
    ///
    /// An unreachable server is not an error here: operations report it.
    pub fn start(&self) -> Result<()> {
        let runtime = tokio::runtime::Handle::try_current().map_err(|_no_runtime| Error::NoRuntime)?;
        check_drivers(self.owner.shared.config.factory.needs_io())?;
        let shared = &self.owner.shared;
        let before = shared.life_cycle.modify(|life_cycle| {
            let before = *life_cycle;
            if before == LifeCycle::Latent {
                *life_cycle = LifeCycle::Started;
            }
            before
        });
        match before {
            LifeCycle::Latent => {}
            LifeCycle::Started => return Err(Error::AlreadyStarted),
            LifeCycle::Stopped => return Err(Error::Closed),
        }
        shared.finished.send_replace(false);
        if let DefaultData::HostAddress(address) = shared.config.default_data {
            address.begin();
        }
        let shared = Arc::clone(shared);
        // However the task ends, also with its runtime or by a panic in a clock or a factory, `close` must not hang.
        let finished = Finished(Arc::clone(&shared));
        runtime.spawn(async move {
            keeper::keep(shared).await;
            drop(finished);
        });
        Ok(())
    }

    /// Resolves when the client is connected.
    ///
    /// # Errors
    ///
    /// `NotStarted`: call [`start`](Self::start). `Closed`: also if the client is closed meanwhile.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped; combine it with `tokio::time::timeout`.
    pub async fn block_until_connected(&self) -> Result<()> {
        let shared = &self.owner.shared;
        let mut state = shared.state.subscribe();
        tokio::select! {
            biased;
            error = self.not_started() => Err(error),
            _ = state.wait_for(|state| state.is_some_and(ConnectionState::is_connected)) => Ok(()),
        }
    }

    /// Resolves when the client cannot be used: at once if it was not started, else when it is closed.
    pub(crate) async fn not_started(&self) -> Error {
        match self.owner.shared.life_cycle.wait_for(|&life_cycle| life_cycle != LifeCycle::Started).await {
            LifeCycle::Latent => Error::NotStarted,
            _ => Error::Closed,
        }
    }

    /// Returns the connection's state, `None` before the first one.
    #[must_use]
    pub fn connection_state(&self) -> Option<ConnectionState> {
        self.owner.shared.state()
    }

    /// Returns the connection's state as a channel, for async code. It may skip states; a listener gets each one.
    #[must_use]
    pub fn watch_connection_state(&self) -> watch::Receiver<Option<ConnectionState>> {
        self.owner.shared.state.subscribe()
    }

    /// Returns `true` if the client is connected now.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.connection_state().is_some_and(ConnectionState::is_connected)
    }

    /// Returns the listeners to the connection's state.
    #[must_use]
    pub fn connection_state_listenable(&self) -> &ConnectionStateListenable {
        &self.owner.shared.listeners
    }

    /// Closes the client. Closing twice is fine.
    ///
    /// 1. From the first moment, every new operation fails with `Closed`.
    /// 2. Pending deletes (dropped guards, protected creates, guaranteed deletes) get up to `max_close_wait`.
    /// 3. The client closes the session, which loses its guards, and waits up to `max_close_wait` for the reply.
    ///
    /// A client that is just connecting waits up to `max_close_wait` for the attempt, which may still create a session.
    /// If no server can be reached, the session times out on the server. The default client leaves no task then; the
    /// tasks of the crate `zookeeper-async` stay until a server is back or the runtime ends.
    ///
    /// # Cancel safety
    ///
    /// The closing goes on when this future is dropped.
    pub async fn close(&self) {
        let shared = &self.owner.shared;
        shared.stop(Stop::WhenClean);
        let mut finished = shared.finished.subscribe();
        // Never fails: `shared` has the sender.
        drop(finished.wait_for(|&finished| finished).await);
        let closing = futures_util::future::join_all(std::mem::take(&mut *shared.closing.lock()));
        let _in_time = tokio::time::timeout(shared.config.max_close_wait, closing).await;
        shared.listeners.clear();
    }

    /// Returns the connected session, for a recipe's attempt. Waits for it up to the connection timeout.
    ///
    /// # Errors
    ///
    /// `ConnectionLoss` with the failure of each server; `NotStarted`, `Closed`.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn session(&self) -> Result<Session> {
        self.session_within(self.connection_timeout()).await
    }

    pub(crate) async fn session_within(&self, wait: Duration) -> Result<Session> {
        let shared = &self.owner.shared;
        let connected = |session: &Option<Session>| session.as_ref().is_some_and(Session::is_connected);
        if shared.life_cycle.get() == LifeCycle::Started {
            if let Some(session) = shared.session.get().filter(Session::is_connected) {
                return Ok(session.below(self.root.clone()));
            }
        }
        // Boxed: this wait is rare and must not enlarge the future of every operation.
        let connecting = Box::pin(async {
            tokio::select! {
                biased;
                error = self.not_started() => Err(error),
                session = shared.session.wait_for(connected) => {
                    session.map(|session| session.below(self.root.clone())).ok_or(Error::Closed)
                }
                () = tokio::time::sleep(wait) => Err(self.not_connected("waiting for the connection")),
            }
        });
        connecting.await
    }

    /// Returns the `ConnectionLoss` of a request that was sent and not answered in time.
    #[must_use]
    pub fn no_answer(&self, request: &str) -> Error {
        let cause = self.owner.shared.connect_error.lock().clone();
        Error::ConnectionLoss { request: request.to_owned(), sent: true, cause }
    }

    /// Returns the `ConnectionLoss` of a request that was not sent.
    pub(crate) fn not_connected(&self, request: &str) -> Error {
        let cause = self.owner.shared.connect_error.lock().clone();
        Error::ConnectionLoss { request: request.to_owned(), sent: false, cause }
    }

    /// Returns how long an operation waits for a connection.
    #[must_use]
    pub fn connection_timeout(&self) -> Duration {
        self.owner.shared.config.connection_timeout
    }

    /// Returns the session timeout that the client requests.
    #[must_use]
    pub fn session_timeout(&self) -> Duration {
        self.owner.shared.config.session_timeout
    }

    /// Returns the data of nodes created without data. The default, this host's address, is empty until it is known.
    #[must_use]
    pub fn default_data(&self) -> &[u8] {
        match &self.owner.shared.config.default_data {
            DefaultData::Given(data) => data,
            DefaultData::HostAddress(address) => address.get().as_bytes(),
        }
    }

    pub(crate) fn downgrade(&self) -> WeakClient {
        WeakClient { owner: Arc::downgrade(&self.owner), root: self.root.clone() }
    }

    pub(crate) fn retry_policy(&self) -> &dyn RetryPolicy {
        &*self.owner.shared.config.retry_policy
    }

    pub(crate) fn randomness(&self) -> &dyn Randomness {
        &*self.owner.shared.config.randomness
    }

    /// Returns a loop that carries one operation of a recipe through its retries.
    #[must_use]
    pub fn retry_loop(&self) -> RetryLoop {
        RetryLoop::new(self.clone())
    }

    /// Checks new data of a node against the client's [`SchemaSet`], for a recipe that writes it in a [`Session`]. The
    /// client's own operations do that themselves.
    ///
    /// # Errors
    ///
    /// `SchemaViolation`: a schema refuses the data.
    pub fn check_change(&self, path: &str, data: &[u8]) -> Result<()> {
        self.schemas().map_or(Ok(()), |schemas| schemas.check_change(path, data))
    }

    /// Returns data as it is written at this path. `compress` overrides the client's default.
    ///
    /// # Errors
    ///
    /// `Compression`: the [`CompressionProvider`] failed.
    pub fn to_stored(&self, path: &str, data: Vec<u8>, compress: Option<bool>) -> Result<Vec<u8>> {
        let config = &self.owner.shared.config;
        if !compress.unwrap_or(config.compress) {
            return Ok(data);
        }
        let failed = |error: io::Error| Error::Compression { path: path.to_owned(), reason: error.to_string() };
        config.compression.compress(&self.root.full(path), &data).map_err(failed)
    }

    /// Returns data as [`to_stored`](Self::to_stored) writes it by default, without a copy of uncompressed data.
    ///
    /// # Errors
    ///
    /// `Compression`: the [`CompressionProvider`] failed.
    pub fn to_stored_at<'a>(&self, path: &str, data: &'a [u8]) -> Result<Cow<'a, [u8]>> {
        match self.owner.shared.config.compress {
            true => self.to_stored(path, data.to_vec(), None).map(Cow::Owned),
            false => Ok(Cow::Borrowed(data)),
        }
    }

    /// Reverses [`to_stored`](Self::to_stored) for data read at this path. `compressed` overrides the client's default.
    ///
    /// # Errors
    ///
    /// `Compression`: the data is not compressed as it should be.
    pub fn from_stored(&self, path: &str, stored: Vec<u8>, compressed: Option<bool>) -> Result<Vec<u8>> {
        let config = &self.owner.shared.config;
        if !compressed.unwrap_or(config.compress) {
            return Ok(stored);
        }
        let failed = |error: io::Error| Error::Compression { path: path.to_owned(), reason: error.to_string() };
        config.compression.decompress(&self.root.full(path), &stored).map_err(failed)
    }

    pub(crate) fn schemas(&self) -> Option<&SchemaSet> {
        self.owner.shared.config.schemas.as_deref()
    }

    /// Registers an operation that may leave nodes to delete: `close` waits until the result is dropped. So the
    /// operation must end when [`not_started`](Self::not_started) resolves.
    pub(crate) fn owing(&self) -> Owing {
        self.owner.shared.leftovers.owing()
    }

    /// Deletes a node in the background, in this session or a later one.
    pub(crate) fn delete_some_time(&self, path: &str, delete: Delete) {
        self.owner.shared.leftovers.add(Remains::Guaranteed { path: self.root.full(path).into_owned(), delete });
    }

    /// Returns how the parents of a lock's nodes are created.
    #[must_use]
    pub fn lock_parents(&self) -> Parents {
        if self.owner.shared.config.container_parents { Parents::Containers } else { Parents::Persistent }
    }

    /// Returns the number of waiters for watches in the current session, for tests that look for leaks.
    #[must_use]
    pub fn watchers(&self) -> usize {
        self.owner.shared.session.get().map_or(0, |session| session.watches().len())
    }

    /// Returns the paths that are watched in the current session, for tests that look for leaks.
    #[must_use]
    pub fn watched_paths(&self) -> Vec<String> {
        self.owner.shared.session.get().map_or_else(Vec::new, |session| session.watches().paths())
    }

    /// Begins a create: Curator's `create()`.
    pub fn create(&self) -> CreateBuilder<'_> {
        CreateBuilder::new(self)
    }

    /// Begins a delete: Curator's `delete()`.
    pub fn delete(&self) -> DeleteBuilder<'_> {
        DeleteBuilder::new(self)
    }

    /// Begins a check whether a node exists: Curator's `checkExists()`.
    pub fn check_exists(&self) -> ExistsBuilder<'_> {
        ExistsBuilder::new(self)
    }

    /// Begins a read of a node's data: Curator's `getData()`.
    pub fn get_data(&self) -> GetDataBuilder<'_> {
        GetDataBuilder::new(self)
    }

    /// Begins a change of a node's data: Curator's `setData()`.
    pub fn set_data(&self) -> SetDataBuilder<'_> {
        SetDataBuilder::new(self)
    }

    /// Begins a read of a node's access control list: Curator's `getACL()`.
    pub fn get_acl(&self) -> GetAclBuilder<'_> {
        GetAclBuilder::new(self)
    }

    /// Begins a change of a node's access control list: Curator's `setACL()`.
    pub fn set_acl(&self) -> SetAclBuilder<'_> {
        SetAclBuilder::new(self)
    }

    /// Begins a transaction, several changes of which all are made or none: Curator's `transaction()` and
    /// `inTransaction()`.
    pub fn transaction(&self) -> CuratorTransaction<'_> {
        CuratorTransaction::new(self)
    }

    /// Sets a watch that stays when it fires: Curator's `watchers().add()`.
    ///
    /// A server before 3.9 has one watch for each session and path (ZOOKEEPER-4466). There this watch may end without
    /// an event when another watch of the session on the same path (of a read, a lock or another mode) fires or is
    /// removed. With such a server watch a path in one way only, or with a client of its own.
    ///
    /// # Errors
    ///
    /// `InvalidPath`, `SchemaViolation`; `Unsupported` with `zookeeper-async`; `ConnectionLoss` and `SessionExpired` when
    /// the retry policy gives up.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no watch.
    pub async fn add_watch(&self, path: &str, mode: AddWatchMode) -> Result<PersistentWatcher> {
        crate::operations::check_read(self, path, true)?;
        PersistentWatcher::add(self.clone(), path, mode).await
    }

    /// Begins a read of the ensemble's configuration, the list of its servers: Curator's `getConfig()`. Its node is
    /// outside of all namespaces and chroots.
    pub fn get_config(&self) -> GetConfigBuilder<'_> {
        GetConfigBuilder::new(self)
    }

    /// Begins a change of the ensemble's servers: Curator's `reconfig()`.
    pub fn reconfig(&self) -> ReconfigBuilder<'_> {
        ReconfigBuilder::new(self)
    }

    /// Resolves when the server has applied all that the leader had committed, for later reads: Curator's `sync()`.
    ///
    /// # Errors
    ///
    /// `InvalidPath`; `Unsupported` with `zookeeper-async`; `ConnectionLoss` and `SessionExpired` when the retry policy
    /// gives up.
    pub async fn sync(&self, path: &str) -> Result<()> {
        crate::operations::with_retries(self, path, |session| async move { session.sync(path).await }).await
    }

    /// Creates a node and its parents, as far as they are missing: Curator's `createContainers`. They are
    /// [containers](Parents::Containers), or persistent if the client does not use containers.
    ///
    /// # Errors
    ///
    /// `InvalidPath`, `NoAuth`, `InvalidAcl`, `NoChildrenForEphemerals`, `SchemaViolation`; `ConnectionLoss` and
    /// `SessionExpired` when the retry policy gives up.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, some of the nodes may exist.
    pub async fn create_containers(&self, path: &str) -> Result<()> {
        let below = crate::path::make_path(path, "foo");
        self.check_exists().creating_parent_containers_if_needed().for_path(&below).await.map(|_| ())
    }

    /// Begins a listing of a node's children: Curator's `getChildren()`.
    pub fn get_children(&self) -> GetChildrenBuilder<'_> {
        GetChildrenBuilder::new(self)
    }
}

impl fmt::Debug for CuratorFramework {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = &self.owner.shared;
        f.debug_struct("CuratorFramework")
            .field("ensemble", &shared.config.ensemble)
            .field("namespace", &self.namespace())
            .field("life_cycle", &shared.life_cycle)
            .field("state", &shared.state())
            .finish_non_exhaustive()
    }
}

/// The options of a client: Curator's `CuratorFrameworkFactory.Builder`.
#[derive(Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct CuratorFrameworkBuilder {
    ensemble: Arc<dyn EnsembleProvider>,
    ensemble_tracker: bool,
    session_timeout: Duration,
    connection_timeout: Duration,
    max_close_wait: Duration,
    max_frame: usize,
    auth: Vec<AuthInfo>,
    read_only: bool,
    tls: Option<TlsOptions>,
    sasl: Option<SaslDigest>,
    retry_policy: Option<Arc<dyn RetryPolicy>>,
    default_data: DefaultData,
    factory: Arc<dyn ZooKeeperFactory>,
    clock: Arc<dyn Clock>,
    randomness: Arc<dyn Randomness>,
    namespace: String,
    acl_provider: Arc<dyn AclProvider>,
    error_policy: Arc<dyn ConnectionStateErrorPolicy>,
    reap_interval: Option<Duration>,
    container_parents: bool,
    compression: Arc<dyn CompressionProvider>,
    compress: bool,
    schemas: Option<SchemaSet>,
    circuit_breaker: Option<Arc<dyn RetryPolicy>>,
}

impl CuratorFrameworkBuilder {
    /// Sets the retry policy. Required, as in Curator.
    pub fn retry_policy(mut self, policy: impl RetryPolicy) -> Self {
        self.retry_policy = Some(Arc::new(policy));
        self
    }

    /// Sets the session timeout to request. Default 60 s, at least 2 s. A short timeout frees the locks of a dead
    /// process sooner, and costs a slow process its locks.
    ///
    /// It must be at least two ticks of the servers, four behind observer masters: else a loss may be noticed too late.
    /// A server may grant another timeout, also a shorter one at a reconnect (`minSessionTimeout`,
    /// `maxSessionTimeout`). The default client reads it at every reconnect, and the smallest one ever granted holds
    /// for the session. `zookeeper-async` does not report it, so there all servers must grant the same.
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = timeout;
        self
    }

    /// Sets how long an operation waits for a connection, and the limit of one attempt to connect. Default 15 s. If it
    /// is too short, operations fail with `ConnectionLoss` before a reachable server is found.
    pub fn connection_timeout(mut self, timeout: Duration) -> Self {
        self.connection_timeout = timeout;
        self
    }

    /// Sets how long [`CuratorFramework::close`] waits for pending deletes, and again for the end of the session.
    /// Default 1 s. If it is too short, guaranteed deletes may stay undone and locks held until the session times out.
    pub fn max_close_wait(mut self, wait: Duration) -> Self {
        self.max_close_wait = wait;
        self
    }

    /// Sets the longest frame in bytes, in either direction: ZooKeeper's `jute.maxbuffer`. Default 1 MiB less one byte,
    /// the default of servers; at least 4096. A longer request is not sent, and a longer reply closes the connection. A
    /// larger limit must be set on the servers too, or they close the connection.
    pub fn max_frame(mut self, bytes: usize) -> Self {
        self.max_frame = bytes;
        self
    }

    /// Adds credentials. Each connection sends them before its watches and requests. May be called several times.
    /// (Curator's overwrites.)
    pub fn authorization(mut self, scheme: impl Into<String>, auth: impl Into<Vec<u8>>) -> Self {
        self.auth.push(AuthInfo { scheme: scheme.into(), auth: auth.into() });
        self
    }

    /// Allows the client to connect to a read-only server, one that is partitioned from the quorum. Default: `false`.
    /// Curator's `canBeReadOnly`. The state is then [`ConnectionState::ReadOnly`], and writes fail. The client takes
    /// the first server that replies, even if a writable one is reachable, and stays there until the connection ends.
    /// The server ends it when it is back in the quorum.
    pub fn can_be_read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Connects to the servers by TLS. Default: plain text. If the process has no default `CryptoProvider` of rustls
    /// when the client is built, `build` installs `aws_lc_rs`; to use another one, install it before.
    pub fn tls(mut self, options: TlsOptions) -> Self {
        self.tls = Some(options);
        self
    }

    /// Logs in by SASL on every connection. Default: no login.
    pub fn sasl(mut self, digest: SaslDigest) -> Self {
        self.sasl = Some(digest);
        self
    }

    /// Sets the data of nodes that are created without data. Default: this host's address as text, as in Curator; empty
    /// if the host's name cannot be resolved. The first client that needs it looks it up on a separate thread, once in
    /// a process. The first session waits at most 200 ms for it; until then the data is empty. It is for
    /// administrators: the recipes do not read it.
    pub fn default_data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.default_data = DefaultData::Given(data.into());
        self
    }

    /// Sets a provider in place of the connect string, for a list of servers that changes while the client runs.
    /// `build` and each attempt to connect call it, so a live session follows a changed list at its next attempt. With
    /// `zookeeper-async` a changed list counts from the next session on.
    pub fn ensemble_provider(mut self, provider: impl EnsembleProvider) -> Self {
        self.ensemble = Arc::new(provider);
        self
    }

    /// Follows the ensemble. Default: `false`. (Curator: `true`.) The client reads the [configuration](EnsembleConfig)
    /// of the servers on each connection and after each change. It passes the [client
    /// addresses](EnsembleConfig::client_addresses) and the chroot to the [`EnsembleProvider`], for the next attempt to
    /// connect.
    ///
    /// * The client must reach all these addresses, which it does not behind a proxy or a load balancer.
    /// * Servers with `clientPort` on a line of its own in their file do not know each other's addresses for clients.
    /// * The addresses are for plain text, so `build` refuses the tracker with TLS.
    /// * A configuration without usable addresses changes nothing.
    pub fn ensemble_tracker(mut self, follow: bool) -> Self {
        self.ensemble_tracker = follow;
        self
    }

    /// Sets the node below which all paths of the client are, without its leading slash. Default: none.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Sets the source of access control lists for nodes that are created without one. Default: open to all clients. A
    /// `Vec<Acl>` is one list for all nodes.
    pub fn acl_provider(mut self, provider: impl AclProvider) -> Self {
        self.acl_provider = Arc::new(provider);
        self
    }

    /// Sets the connection states in which held locks are lost. Default: [`SessionConnectionStateErrorPolicy`], `Lost`
    /// only. The stricter standard policy, Curator's default, costs the locks at each interruption. (Curator's lock
    /// recipes ignore it.)
    pub fn connection_state_error_policy(mut self, policy: impl ConnectionStateErrorPolicy) -> Self {
        self.error_policy = Arc::new(policy);
        self
    }

    /// Sets how long an empty parent that this client created in place of a container stays after its last use; `None`
    /// keeps it. Default 60 s. Only for `zookeeper-async`, which has no containers. When the client closes, such
    /// parents stay.
    pub fn reap_interval(mut self, interval: impl Into<Option<Duration>>) -> Self {
        self.reap_interval = interval.into();
        self
    }

    /// Compresses all data that is written and decompresses all that is read, unless an operation says otherwise:
    /// Curator's `enableCompression`. All clients of a lock must do the same, or they misread a revocation.
    pub fn enable_compression(mut self) -> Self {
        self.compress = true;
        self
    }

    /// Sets the compression. Default: gzip. It applies only where the client or an operation enables it.
    pub fn compression_provider(mut self, provider: impl CompressionProvider) -> Self {
        self.compression = Arc::new(provider);
        self
    }

    /// Suppresses connection-state events while the connection flaps. Default: listeners get every state. After the
    /// first state without a connection, listeners get at most one more, `Lost`, until the policy's pause is over and
    /// the client is connected, or the policy gives up. All listeners share one breaker. Curator's
    /// `CircuitBreakingConnectionStateListener` and `ConnectionStateListenerManagerFactory.circuitBreaking`.
    pub fn circuit_breaking_listeners(mut self, policy: impl RetryPolicy) -> Self {
        self.circuit_breaker = Some(Arc::new(policy));
        self
    }

    /// Sets the schemas that nodes must satisfy. Default: every node is allowed.
    pub fn schema_set(mut self, schemas: SchemaSet) -> Self {
        self.schemas = Some(schemas);
        self
    }

    /// Creates the parents of locks as persistent nodes, which stay when empty: Curator's `dontUseContainerParents`.
    pub fn dont_use_container_parents(mut self) -> Self {
        self.container_parents = false;
        self
    }

    /// Sets the ZooKeeper client. Default: [`DefaultZooKeeperFactory`], this crate's own
    /// ([`default_client`](crate::default_client)). `ZooKeeperAsyncFactory` is the crate `zookeeper-async`, behind the
    /// cargo feature of that name, which is on by default.
    pub fn zookeeper_factory(mut self, factory: impl ZooKeeperFactory) -> Self {
        self.factory = Arc::new(factory);
        self
    }

    /// Sets the clock that measures deadlines. Default: [`BootClock`]. Tests under paused time use
    /// [`TokioClock`](crate::TokioClock). If the clock stops while the machine sleeps, a loss is noticed too late.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Sets the source of random node names and pauses. Default: the thread's generator. With a seeded one a test can
    /// repeat a run.
    pub fn randomness(mut self, randomness: impl Randomness) -> Self {
        self.randomness = Arc::new(randomness);
        self
    }

    /// Checks the options and returns the client. It does nothing before it is [started](CuratorFramework::start).
    ///
    /// # Errors
    ///
    /// * `InvalidConfig`, naming the option:
    ///   * an empty or unparsable connect string;
    ///   * a session timeout under 2 s or above 2^31 − 1 ms;
    ///   * a connection timeout of zero or above 2^31 − 1 ms;
    ///   * a reap interval of zero;
    ///   * a frame limit under 4096 or above 2^31 − 1 bytes;
    ///   * no retry policy;
    ///   * a namespace that is not a path;
    ///   * an ensemble tracker with TLS, or TLS options that cannot be read.
    /// * `Unsupported`: the ZooKeeper client does not support an option. With `zookeeper-async` these are TLS, SASL and
    ///   read-only servers; with the default client it is TLS without the cargo feature `tls`.
    pub fn build(self) -> Result<CuratorFramework> {
        let can = self.factory.capabilities();
        for (wanted, can, request) in [
            (self.tls.is_some(), can.tls, "connect by TLS"),
            (self.sasl.is_some(), can.sasl, "log in by SASL"),
            (self.read_only, can.read_only, "connect to read-only servers"),
        ] {
            if wanted && !can {
                return Err(Error::Unsupported { request: request.to_owned(), client: self.factory.client() });
            }
        }
        if self.ensemble_tracker && self.tls.is_some() {
            return Err(Error::invalid_config("ensemble tracker", "the servers do not tell their ports for TLS"));
        }
        let ensemble = parse_connect_string(&self.ensemble.connect_string())?;
        let root = Root::new(&ensemble.chroot, &self.namespace)?;
        #[cfg(feature = "tls")]
        if let Some(options) = &self.tls {
            let wrong = |reason| Error::invalid_config("TLS option", reason);
            crate::zookeeper::client::tls::config(options).map_err(wrong)?;
            for server in &ensemble.servers {
                crate::zookeeper::client::tls::name_of(server).map_err(wrong)?;
            }
        }
        if self.session_timeout < MIN_SESSION_TIMEOUT {
            return Err(Error::invalid_config(
                "session timeout",
                format!("{:?} is under {MIN_SESSION_TIMEOUT:?}", self.session_timeout),
            ));
        }
        if self.session_timeout.as_millis() > i32::MAX as u128 {
            return Err(Error::invalid_config(
                "session timeout",
                format!("{:?} is above 2147483647 ms", self.session_timeout),
            ));
        }
        if !(MIN_FRAME..=i32::MAX as usize).contains(&self.max_frame) {
            let reason = format!("{} bytes, not from {MIN_FRAME} to 2147483647", self.max_frame);
            return Err(Error::invalid_config("longest frame", reason));
        }
        if self.connection_timeout.is_zero() {
            return Err(Error::invalid_config("connection timeout", "it is zero"));
        }
        if self.connection_timeout.as_millis() > i32::MAX as u128 {
            return Err(Error::invalid_config(
                "connection timeout",
                format!("{:?} is above 2147483647 ms", self.connection_timeout),
            ));
        }
        let Some(retry_policy) = self.retry_policy else {
            return Err(Error::invalid_config("retry policy", "none was given"));
        };
        if self.session_timeout < self.connection_timeout {
            tracing::warn!(
                session_timeout = ?self.session_timeout,
                connection_timeout = ?self.connection_timeout,
                "the session timeout is shorter than the connection timeout"
            );
        }
        if self.reap_interval.is_some_and(|interval| interval.is_zero()) {
            return Err(Error::invalid_config("reap interval", "it is zero"));
        }
        let listeners = match self.circuit_breaker {
            Some(policy) => ConnectionStateListenable::circuit_breaking(policy, Arc::clone(&self.randomness)),
            None => ConnectionStateListenable::new(),
        };
        let shared = Arc::new(Shared {
            config: Config {
                ensemble: self.ensemble,
                ensemble_tracker: self.ensemble_tracker,
                chroot: ensemble.chroot,
                session_timeout: self.session_timeout,
                connection_timeout: self.connection_timeout,
                max_close_wait: self.max_close_wait,
                max_frame: self.max_frame,
                auth: self.auth,
                read_only: self.read_only,
                tls: self.tls,
                sasl: self.sasl,
                retry_policy,
                default_data: self.default_data,
                factory: self.factory,
                clock: self.clock,
                randomness: self.randomness,
                acl_provider: self.acl_provider,
                error_policy: self.error_policy,
                reaper: Arc::new(Reaper::new(self.reap_interval)),
                container_parents: self.container_parents,
                compression: self.compression,
                compress: self.compress,
                schemas: self.schemas.map(Arc::new),
            },
            leftovers: Arc::new(Leftovers::default()),
            pacer: Arc::new(Pacer::default()),
            closing: Mutex::default(),
            owner: OnceLock::new(),
            life_cycle: Observed::new(LifeCycle::Latent),
            session: Observed::new(None),
            state: watch::Sender::new(None),
            listeners,
            connect_error: Mutex::new(None),
            stop: watch::Sender::new(Stop::Not),
            finished: watch::Sender::new(true),
        });
        let owner = Arc::new(Owner { shared });
        // Never fails: the cell is set only here.
        let _first = owner.shared.owner.set(Arc::downgrade(&owner));
        Ok(CuratorFramework { owner, root })
    }
}

/// Checks that the runtime has timers, and I/O if the client needs it. Without them the client's task would panic.
///
/// tokio has no query for this and panics at the first use. So this uses both and catches the panic. The application's
/// panic hook still prints tokio's message; an application that aborts on panics aborts here.
fn check_drivers(needs_io: bool) -> Result<()> {
    let is_there = |used: fn()| std::panic::catch_unwind(used).is_ok();
    if !is_there(|| drop(tokio::time::sleep(Duration::ZERO))) {
        return Err(Error::IncompleteRuntime { missing: "timers" });
    }
    let registers_a_socket = || {
        let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::LOCALHOST, 0));
        // A failed bind does not count: it says nothing about the runtime.
        if let Ok(socket) = socket.and_then(|socket| socket.set_nonblocking(true).map(|()| socket)) {
            drop(tokio::net::UdpSocket::from_std(socket));
        }
    };
    if needs_io && !is_there(registers_a_socket) {
        return Err(Error::IncompleteRuntime { missing: "I/O" });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::LazyLock;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;
    use crate::retry::RetryNTimes;

    #[test]
    fn start_needs_a_runtime_with_timers_and_io() {
        let start = |enable: fn(&mut tokio::runtime::Builder)| {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            enable(&mut builder);
            let client = CuratorFramework::new_client("127.0.0.1:1", RetryNTimes::new(0, Duration::ZERO)).unwrap();
            builder.build().unwrap().block_on(async move { client.start() })
        };
        let missing = |enable| match start(enable) {
            Err(Error::IncompleteRuntime { missing }) => missing,
            other => panic!("{other:?}"),
        };
        assert_eq!(missing(|_| {}), "timers");
        assert_eq!(missing(|builder| _ = builder.enable_io()), "timers");
        assert_eq!(missing(|builder| _ = builder.enable_time()), "I/O");
        start(|builder| _ = builder.enable_all()).unwrap();
    }

    #[tokio::test]
    async fn build_and_start_do_not_wait_for_the_address_of_the_host() {
        static GATE: LazyLock<(Sender<()>, Mutex<Receiver<()>>)> = LazyLock::new(|| {
            let (open, gate) = channel();
            (open, Mutex::new(gate))
        });
        static ADDRESS: LazyLock<LocalAddress> = LazyLock::new(|| {
            LocalAddress::new(|| {
                GATE.1.lock().recv_timeout(Duration::from_secs(10)).ok()?;
                Some(Ipv4Addr::new(10, 0, 0, 7).into())
            })
        });
        let mut builder = CuratorFramework::builder("127.0.0.1:1").retry_policy(RetryNTimes::new(0, Duration::ZERO));
        builder.default_data = DefaultData::HostAddress(&ADDRESS);
        let client = builder.build().unwrap();
        client.start().unwrap();
        assert!(!ADDRESS.is_known(), "the lookup has not ended");
        assert_eq!(client.default_data(), b"");
        GATE.0.send(()).unwrap();
        ADDRESS.wait().await;
        while !ADDRESS.is_known() {
            ADDRESS.wait().await;
        }
        assert_eq!(client.default_data(), b"10.0.0.7");
        client.close().await;
    }
}

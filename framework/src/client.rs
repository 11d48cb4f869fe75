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
/// The smallest frame limit: room for any request that names one node.
const MIN_FRAME: usize = 4096;
/// How long an empty parent that this client made in place of a container stays after its last use: 60 s, as often as
/// ZooKeeper looks for empty containers.
pub const DEFAULT_REAP_INTERVAL: Duration = Duration::from_secs(60);

/// A client of a ZooKeeper ensemble: Curator's `CuratorFramework`.
///
/// Cheap to clone; all clones are one client with one session at a time. Dropping the last clone ends the session at
/// once while the runtime lives (locks that are held keep a clone), else by the server's timer;
/// [`close`](Self::close) also waits for it.
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
    /// What stands before the paths that this clone is given.
    root: Root,
}

/// A client that is not kept by this.
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

/// What all clones of a client share; the session ends with it.
struct Owner {
    shared: Arc<Shared>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.stop(Stop::AtOnce);
    }
}

/// The client's task has ended when this is dropped.
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

/// Whether the client's task is to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stop {
    Not,
    /// When what is to be deleted is deleted, or the time for that is over.
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
    /// Of the connect string.
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

/// What the client and its task share.
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

    /// Wakes those who wait for a connection.
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
            // Whoever holds something hears of it before anybody else.
            session.is_in(state);
        }
        self.state.send_replace(after);
        if let Some(owner) = self.owner.get().and_then(Weak::upgrade) {
            let root = Root::new(&self.config.chroot, "").unwrap_or_default();
            self.listeners.notify(&CuratorFramework { owner, root }, state);
        }
    }

    /// A session has ended here and is being closed on the server: `close` waits for that.
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

    /// Tells a connect when the client closes.
    pub(crate) fn closing(&self) -> Closing {
        let stop = self.stop.subscribe();
        Closing::new(move || {
            let mut stop = stop.clone();
            // An error means that the client is gone.
            async move { drop(stop.wait_for(|&stop| stop != Stop::Not).await) }
        })
    }

    /// Resolves when the client is told to stop in a way that `enough` accepts.
    pub(crate) async fn stopped(&self, enough: impl Fn(Stop) -> bool) {
        let mut stop = self.stop.subscribe();
        if stop.wait_for(|&stop| enough(stop)).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl CuratorFramework {
    /// Begins to describe a client. The connect string is a list of servers, `host:port[,host:port …][/chroot]`; without
    /// a port it is 2181. All paths of the client are below the chroot, which must be there.
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

    /// The same client for paths below another namespace, or below none if it is empty: Curator's `usingNamespace`.
    /// It shares the session, the state and the listeners, and it is closed with it. The namespace's node is created
    /// with the first node in it, with the access control list that the [`AclProvider`] has for it.
    ///
    /// # Errors
    ///
    /// `InvalidConfig` for a namespace that is no path without its first slash.
    pub fn using_namespace(&self, namespace: &str) -> Result<Self> {
        Ok(Self { owner: Arc::clone(&self.owner), root: self.root.with_namespace(namespace)? })
    }

    /// The namespace, empty if there is none.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.root.namespace()
    }

    /// A client with the default timeouts, not started yet: Curator's `CuratorFrameworkFactory.newClient`.
    ///
    /// # Errors
    ///
    /// As [`CuratorFrameworkBuilder::build`].
    pub fn new_client(connect_string: impl Into<String>, retry_policy: impl RetryPolicy) -> Result<Self> {
        Self::builder(connect_string).retry_policy(retry_policy).build()
    }

    /// Starts to connect, in the background. Must be called in a tokio runtime, once.
    ///
    /// # Errors
    ///
    /// `AlreadyStarted`, `Closed`, `NoRuntime`, `IncompleteRuntime`. That no server can be reached is told by the
    /// operations, not here.
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
        // However the task ends, also with its runtime or by a panic in a clock or a factory, `close` must not wait
        // for it.
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
    /// `NotStarted`, `Closed` (also when the client is closed while this waits).
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when it is dropped; combine it with `tokio::time::timeout`.
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

    /// The connection's state, `None` before the first one.
    #[must_use]
    pub fn connection_state(&self) -> Option<ConnectionState> {
        self.owner.shared.state()
    }

    /// The connection's state as a channel, for async code. It tells the newest state; for every one in between use a
    /// listener.
    #[must_use]
    pub fn watch_connection_state(&self) -> watch::Receiver<Option<ConnectionState>> {
        self.owner.shared.state.subscribe()
    }

    /// Whether the client is connected now.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.connection_state().is_some_and(ConnectionState::is_connected)
    }

    /// The listeners to the connection's state.
    #[must_use]
    pub fn connection_state_listenable(&self) -> &ConnectionStateListenable {
        &self.owner.shared.listeners
    }

    /// Closes the client: deletes what is still to be deleted, also of protected creates and guaranteed deletes that
    /// are under way, for at most `max_close_wait`, then closes the session and waits for that, for at most
    /// `max_close_wait` again. A client that is just connecting waits as long for that, because there may be a session
    /// by then. From its first moment every new operation gets `Closed`; what is held is lost when the session is
    /// closed. Closing twice is fine.
    ///
    /// If no server can be reached, the server's timer ends the session. The default client leaves no task then; the tasks
    /// of the crate `zookeeper-async` stay until a server is back or the runtime ends.
    ///
    /// # Cancel safety
    ///
    /// The closing goes on when this future is dropped.
    pub async fn close(&self) {
        let shared = &self.owner.shared;
        shared.stop(Stop::WhenClean);
        let mut finished = shared.finished.subscribe();
        // The sender is in `shared`, so the only answer is that the task has finished.
        drop(finished.wait_for(|&finished| finished).await);
        let closing = futures_util::future::join_all(std::mem::take(&mut *shared.closing.lock()));
        let _in_time = tokio::time::timeout(shared.config.max_close_wait, closing).await;
        shared.listeners.clear();
    }

    /// The connected session, for a recipe's attempt. Waits for it up to the connection timeout.
    ///
    /// # Errors
    ///
    /// `ConnectionLoss` with what was wrong with each server; `NotStarted`, `Closed`.
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
        // On the heap, as this is rare, and the future of every operation contains this one.
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

    /// `ConnectionLoss` of something that was asked and not answered in its time.
    #[must_use]
    pub fn no_answer(&self, request: &str) -> Error {
        let cause = self.owner.shared.connect_error.lock().clone();
        Error::ConnectionLoss { request: request.to_owned(), sent: true, cause }
    }

    /// `ConnectionLoss` of something that was not sent.
    pub(crate) fn not_connected(&self, request: &str) -> Error {
        let cause = self.owner.shared.connect_error.lock().clone();
        Error::ConnectionLoss { request: request.to_owned(), sent: false, cause }
    }

    /// How long an operation waits for a connection.
    #[must_use]
    pub fn connection_timeout(&self) -> Duration {
        self.owner.shared.config.connection_timeout
    }

    /// The session timeout that is asked for.
    #[must_use]
    pub fn session_timeout(&self) -> Duration {
        self.owner.shared.config.session_timeout
    }

    /// The data of nodes that are created without data of their own. This host's address, the default, is empty until it
    /// is known.
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

    /// A loop that carries one operation of a recipe through its retries.
    #[must_use]
    pub fn retry_loop(&self) -> RetryLoop {
        RetryLoop::new(self.clone())
    }

    /// Checks new data of a node against the client's [`SchemaSet`], for a recipe that changes it in a [`Session`];
    /// the client's own operations do it themselves.
    ///
    /// # Errors
    ///
    /// `SchemaViolation`.
    pub fn check_change(&self, path: &str, data: &[u8]) -> Result<()> {
        self.schemas().map_or(Ok(()), |schemas| schemas.check_change(path, data))
    }

    /// Data as it is to be written at this path; `compress` is what the operation says, if it says something.
    ///
    /// # Errors
    ///
    /// `Compression`.
    pub fn to_stored(&self, path: &str, data: Vec<u8>, compress: Option<bool>) -> Result<Vec<u8>> {
        let config = &self.owner.shared.config;
        if !compress.unwrap_or(config.compress) {
            return Ok(data);
        }
        let failed = |error: io::Error| Error::Compression { path: path.to_owned(), reason: error.to_string() };
        config.compression.compress(&self.root.full(path), &data).map_err(failed)
    }

    /// As [`to_stored`](Self::to_stored) as the client does it by default, without a copy of data that is not compressed.
    ///
    /// # Errors
    ///
    /// `Compression`.
    pub fn to_stored_at<'a>(&self, path: &str, data: &'a [u8]) -> Result<Cow<'a, [u8]>> {
        match self.owner.shared.config.compress {
            true => self.to_stored(path, data.to_vec(), None).map(Cow::Owned),
            false => Ok(Cow::Borrowed(data)),
        }
    }

    /// Data that was read at this path as it was before it was [written](Self::to_stored).
    ///
    /// # Errors
    ///
    /// `Compression`.
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

    /// An operation begins that may leave something to be deleted. `close` waits until it is dropped, so the operation
    /// must end with [`not_started`](Self::not_started).
    pub(crate) fn owing(&self) -> Owing {
        self.owner.shared.leftovers.owing()
    }

    /// Has a node deleted some time, in whichever session.
    pub(crate) fn delete_some_time(&self, path: &str, delete: Delete) {
        self.owner.shared.leftovers.add(Remains::Guaranteed { path: self.root.full(path).into_owned(), delete });
    }

    /// How the parents of a lock's nodes are to be created.
    #[must_use]
    pub fn lock_parents(&self) -> Parents {
        if self.owner.shared.config.container_parents { Parents::Containers } else { Parents::Persistent }
    }

    /// How many wait for a watch in the current session. For tests that look for leaks.
    #[must_use]
    pub fn watchers(&self) -> usize {
        self.owner.shared.session.get().map_or(0, |session| session.watches().len())
    }

    /// What is waited for in the current session. For tests that look for leaks.
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

    /// Begins a look whether a node exists: Curator's `checkExists()`.
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

    /// Begins a transaction: several changes that are made together or not at all. Curator's `transaction()` and
    /// `inTransaction()`.
    pub fn transaction(&self) -> CuratorTransaction<'_> {
        CuratorTransaction::new(self)
    }

    /// Sets a watch that stays when it fires: Curator's `watchers().add()`.
    ///
    /// Servers before 3.9 have one watch for each session and path (ZOOKEEPER-4466): if this session also leaves a watch
    /// of the other kind on the same path, a read's or a lock's, or adds another mode there, this one may end in silence when
    /// that one fires or is given up. With such a server watch a path in one way only, or with a client of its own.
    ///
    /// # Errors
    ///
    /// `InvalidPath`, `SchemaViolation`; `Unsupported` with `zookeeper-async`; `ConnectionLoss` and `SessionExpired` when
    /// the retry policy gives up.
    ///
    /// # Cancel safety
    ///
    /// No watch is left when it is dropped.
    pub async fn add_watch(&self, path: &str, mode: AddWatchMode) -> Result<PersistentWatcher> {
        crate::operations::check_read(self, path, true)?;
        PersistentWatcher::add(self.clone(), path, mode).await
    }

    /// Begins a read of the ensemble's configuration, in which the servers say where they are: Curator's `getConfig()`. Its
    /// node is outside of all namespaces and chroots.
    pub fn get_config(&self) -> GetConfigBuilder<'_> {
        GetConfigBuilder::new(self)
    }

    /// Begins a change of which servers there are: Curator's `reconfig()`.
    pub fn reconfig(&self) -> ReconfigBuilder<'_> {
        ReconfigBuilder::new(self)
    }

    /// Waits until the server has seen what the leader has committed, so that what is read next is not older than that:
    /// Curator's `sync()`.
    ///
    /// # Errors
    ///
    /// `InvalidPath`; `Unsupported` with `zookeeper-async`; `ConnectionLoss` and `SessionExpired` when the retry policy
    /// gives up.
    pub async fn sync(&self, path: &str) -> Result<()> {
        crate::operations::with_retries(self, path, |session| async move { session.sync(path).await }).await
    }

    /// Creates a node and its parents as [containers](Parents::Containers), as far as they are missing: Curator's
    /// `createContainers`.
    ///
    /// # Errors
    ///
    /// `InvalidPath`, `NoAuth`, `InvalidAcl`, `NoChildrenForEphemerals`; `ConnectionLoss` and `SessionExpired` when
    /// the retry policy gives up.
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

/// Describes a client: Curator's `CuratorFrameworkFactory.Builder`.
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
    /// What decides about retries. Required, as in Curator.
    pub fn retry_policy(mut self, policy: impl RetryPolicy) -> Self {
        self.retry_policy = Some(Arc::new(policy));
        self
    }

    /// Sets the session timeout to ask for. Default 60 s, at least 2 s. A short one hands the locks of a dead process on
    /// sooner, and takes those of a slow one.
    ///
    /// A server may grant another timeout, and a server that the session reconnects to may grant less
    /// (`minSessionTimeout`, `maxSessionTimeout`). The default client reads the timeout of every reconnect: the smallest one
    /// ever granted holds for the session, and its locks are lost in time by that. `zookeeper-async` does not tell it, so all
    /// servers must grant the same there. The timeout must be at least two ticks of the servers, four behind observer
    /// masters: the knowledge of a session's end rests on that.
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = timeout;
        self
    }

    /// How long an operation waits for a connection, and how long one attempt to connect may take. Default 15 s.
    pub fn connection_timeout(mut self, timeout: Duration) -> Self {
        self.connection_timeout = timeout;
        self
    }

    /// How long [`CuratorFramework::close`] waits for deletes that are under way, and again for the session's close.
    /// Default 1 s.
    pub fn max_close_wait(mut self, wait: Duration) -> Self {
        self.max_close_wait = wait;
        self
    }

    /// The longest frame in either direction, ZooKeeper's `jute.maxbuffer`: a longer request is refused before it is sent,
    /// and a longer reply closes the connection. Default: 1 MiB, as servers have it. A larger one must be set on the
    /// servers too.
    pub fn max_frame(mut self, bytes: usize) -> Self {
        self.max_frame = bytes;
        self
    }

    /// Adds credentials, which are given to every connection before anything else. May be called several times.
    /// (Curator's overwrites.)
    pub fn authorization(mut self, scheme: impl Into<String>, auth: impl Into<Vec<u8>>) -> Self {
        self.auth.push(AuthInfo { scheme: scheme.into(), auth: auth.into() });
        self
    }

    /// Allows a server that is cut off from the others and serves reads only: Curator's `canBeReadOnly`. The state is
    /// [`ConnectionState::ReadOnly`] then, and writes fail. Default: no. The client takes the first server that answers, so
    /// that may be a read-only one although another could be reached. It does not search for a writable one: it stays
    /// until the connection ends, which a server does when it has found the others again.
    pub fn can_be_read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Reaches the servers by TLS. Default: plain text. If the process has no default `CryptoProvider` of rustls when the
    /// client is built, `aws_lc_rs` is installed as that: a program that wants another one installs it before.
    pub fn tls(mut self, options: TlsOptions) -> Self {
        self.tls = Some(options);
        self
    }

    /// Logs in by SASL on every connection. Default: no login.
    pub fn sasl(mut self, digest: SaslDigest) -> Self {
        self.sasl = Some(digest);
        self
    }

    /// The data of nodes that are created without data of their own. Default: this host's address as text, as in
    /// Curator, or nothing if the host's name cannot be resolved. The name is looked up once in a process, on a thread of
    /// its own that the first such client's start begins. The first session waits at most 200 ms for the address; until it
    /// is known the data is empty. The recipes do not read it: it is for administrators.
    pub fn default_data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.default_data = DefaultData::Given(data.into());
        self
    }

    /// Sets where the ensemble is, in place of the connect string, for a list that changes while the client runs. `build`
    /// asks the provider, and so does each attempt to connect: a session in hand follows a changed list at its next attempt.
    /// With `zookeeper-async` a changed list counts from the next session on.
    pub fn ensemble_provider(mut self, provider: impl EnsembleProvider) -> Self {
        self.ensemble = Arc::new(provider);
        self
    }

    /// Follows the ensemble: the client reads the [configuration](EnsembleConfig) of the servers, again whenever it
    /// changes, and tells the [`EnsembleProvider`] the [addresses for clients](EnsembleConfig::client_addresses) in it,
    /// with the chroot. As any other list it counts from the next attempt to connect on. Default: no. (Curator's default is
    /// yes.)
    ///
    /// The servers must know all these addresses, and they must be good for this client: where the connect string names a
    /// proxy or a load balancer they are not, and servers that have their client's port in a line of its own in their file
    /// (`clientPort`) do not know each other's. They are those of plain text, so it does not go with TLS. It costs one read for
    /// each connection. Where a server says nothing of use, the list stays as it is.
    pub fn ensemble_tracker(mut self, follow: bool) -> Self {
        self.ensemble_tracker = follow;
        self
    }

    /// The node below which all paths of the client are, without its first slash. Default: none.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// What gives nodes their access control lists where the operation does not. Default: open to everybody. A
    /// `Vec<Acl>` is the same list for all.
    pub fn acl_provider(mut self, provider: impl AclProvider) -> Self {
        self.acl_provider = Arc::new(provider);
        self
    }

    /// Which connection states cost the locks that are held. Default:
    /// [`SessionConnectionStateErrorPolicy`]. (Curator's default is the standard one, which its lock recipes do not
    /// look at.)
    pub fn connection_state_error_policy(mut self, policy: impl ConnectionStateErrorPolicy) -> Self {
        self.error_policy = Arc::new(policy);
        self
    }

    /// How long an empty parent that this client made in place of a container stays after this client has used it
    /// last; `None` to leave them. Default: 60 s. It matters only with `zookeeper-async`, which has no containers;
    /// then parents of locks that were made by a client which is closed stay.
    pub fn reap_interval(mut self, interval: impl Into<Option<Duration>>) -> Self {
        self.reap_interval = interval.into();
        self
    }

    /// Compresses the data of all nodes that are written, and decompresses what is read, unless the operation says
    /// otherwise: Curator's `enableCompression`. All clients of a lock must do the same, or a revocation is not
    /// understood.
    pub fn enable_compression(mut self) -> Self {
        self.compress = true;
        self
    }

    /// How data is compressed. Default: gzip. Nothing is compressed by this alone.
    pub fn compression_provider(mut self, provider: impl CompressionProvider) -> Self {
        self.compression = Arc::new(provider);
        self
    }

    /// Spares the listeners a connection that comes and goes: after the first state without a connection they are told
    /// nothing until the policy's pause is over and the connection is there, or the policy gives up; a first `Lost`
    /// passes. One breaker serves all of them. Curator's `CircuitBreakingConnectionStateListener` and
    /// `ConnectionStateListenerManagerFactory.circuitBreaking`.
    pub fn circuit_breaking_listeners(mut self, policy: impl RetryPolicy) -> Self {
        self.circuit_breaker = Some(Arc::new(policy));
        self
    }

    /// What nodes may look like. Default: anything.
    pub fn schema_set(mut self, schemas: SchemaSet) -> Self {
        self.schemas = Some(schemas);
        self
    }

    /// Makes the parents of locks persistent: Curator's `dontUseContainerParents`.
    pub fn dont_use_container_parents(mut self) -> Self {
        self.container_parents = false;
        self
    }

    /// Sets the ZooKeeper client. Default: [`DefaultZooKeeperFactory`], our own ([`default_client`](crate::default_client)).
    /// `ZooKeeperAsyncFactory` is the crate `zookeeper-async`, by the cargo feature of that name, which is on by default.
    pub fn zookeeper_factory(mut self, factory: impl ZooKeeperFactory) -> Self {
        self.factory = Arc::new(factory);
        self
    }

    /// The clock on which deadlines are measured. Default: [`BootClock`]; tests under paused time give
    /// [`TokioClock`](crate::TokioClock).
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Where the names of nodes and the spread of pauses come from. Default: the thread's own generator. For tests
    /// that want the same run again.
    pub fn randomness(mut self, randomness: impl Randomness) -> Self {
        self.randomness = Arc::new(randomness);
        self
    }

    /// Checks the options and makes the client. It does nothing before it is [started](CuratorFramework::start).
    ///
    /// # Errors
    ///
    /// * `InvalidConfig`, naming the option:
    ///   * an empty or unparsable connect string,
    ///   * a session timeout under 2 s or above 2^31 − 1 ms,
    ///   * a connection timeout of zero or above 2^31 − 1 ms,
    ///   * a reap interval of zero,
    ///   * a frame limit under 4096 or above 2^31 − 1 bytes,
    ///   * no retry policy,
    ///   * a namespace that is not a path,
    ///   * an ensemble tracker with TLS, or TLS options that cannot be read.
    /// * `Unsupported`: the ZooKeeper client does not have an option. With `zookeeper-async` these are TLS, SASL and
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
        // Set once, here.
        let _first = owner.shared.owner.set(Arc::downgrade(&owner));
        Ok(CuratorFramework { owner, root })
    }
}

/// Checks that the current runtime has timers, and I/O if the client needs it: without them the client's task would panic later.
///
/// tokio has no method that tells this, and panics where one of them is first used. So both are used here, and the panic
/// is caught; the panic hook, which belongs to the application, prints tokio's message. A runtime that has both does not
/// panic. Where the application aborts on panics, it does so here.
fn check_drivers(needs_io: bool) -> Result<()> {
    let is_there = |used: fn()| std::panic::catch_unwind(used).is_ok();
    if !is_there(|| drop(tokio::time::sleep(Duration::ZERO))) {
        return Err(Error::IncompleteRuntime { missing: "timers" });
    }
    let registers_a_socket = || {
        let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::LOCALHOST, 0));
        // A host without a free socket is not the runtime's fault.
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

//! The client.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::clock::{BootClock, Clock};
use crate::connection_state::{ConnectionState, StateEvent, next_state};
use crate::ensemble::parse_connect_string;
use crate::error::{ConnectError, Error, Result};
use crate::handle::{SessionEnd, ZooKeeperFactory};
use crate::handshake::MIN_SESSION_TIMEOUT;
use crate::housekeeping::Leftovers;
use crate::keeper;
use crate::listeners::ConnectionStateListenable;
use crate::observed::Observed;
use crate::operations::{
    CreateBuilder, DeleteBuilder, ExistsBuilder, GetChildrenBuilder, GetDataBuilder, SetDataBuilder,
};
use crate::randomness::{Randomness, ThreadRandomness};
use crate::retry::RetryPolicy;
use crate::retry_loop::RetryLoop;
use crate::session::Session;
use crate::zookeeper::AuthInfo;
use crate::zookeeper_async::ZookeeperAsyncFactory;

/// Curator's default session timeout: 60 s.
pub const DEFAULT_SESSION_TIMEOUT: Duration = Duration::from_secs(60);
/// Curator's default connection timeout: 15 s.
pub const DEFAULT_CONNECTION_TIMEOUT: Duration = Duration::from_secs(15);
/// Curator's default for how long `close` waits: 1 s.
pub const DEFAULT_MAX_CLOSE_WAIT: Duration = Duration::from_secs(1);

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
}

/// A client that is not kept by this.
#[derive(Clone)]
pub(crate) struct WeakClient(Weak<Owner>);

impl WeakClient {
    pub(crate) fn upgrade(&self) -> Option<CuratorFramework> {
        self.0.upgrade().map(|owner| CuratorFramework { owner })
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LifeCycle {
    Latent,
    Started,
    Stopped,
}

/// The validated options.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) servers: Vec<String>,
    pub(crate) session_timeout: Duration,
    pub(crate) connection_timeout: Duration,
    pub(crate) max_close_wait: Duration,
    pub(crate) auth: Vec<AuthInfo>,
    pub(crate) retry_policy: Arc<dyn RetryPolicy>,
    pub(crate) default_data: Vec<u8>,
    pub(crate) factory: Arc<dyn ZooKeeperFactory>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) randomness: Arc<dyn Randomness>,
}

/// What the client and its task share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) leftovers: Arc<Leftovers>,
    /// The close of the last session, for `close` to wait for.
    pub(crate) closing: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
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
        self.state.send_replace(after);
        if let Some(owner) = self.owner.get().and_then(Weak::upgrade) {
            self.listeners.notify(&CuratorFramework { owner }, state);
        }
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

    /// Resolves when the client is told to stop in a way that `enough` accepts.
    pub(crate) async fn stopped(&self, enough: impl Fn(Stop) -> bool) {
        let mut stop = self.stop.subscribe();
        if stop.wait_for(|&stop| enough(stop)).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl CuratorFramework {
    /// Begins to describe a client. The connect string is a list of servers, `host:port[,host:port …]`; without a
    /// port it is 2181.
    pub fn builder(connect_string: impl Into<String>) -> CuratorFrameworkBuilder {
        CuratorFrameworkBuilder {
            connect_string: connect_string.into(),
            session_timeout: DEFAULT_SESSION_TIMEOUT,
            connection_timeout: DEFAULT_CONNECTION_TIMEOUT,
            max_close_wait: DEFAULT_MAX_CLOSE_WAIT,
            auth: Vec::new(),
            retry_policy: None,
            default_data: Vec::new(),
            factory: Arc::new(ZookeeperAsyncFactory),
            clock: Arc::new(BootClock),
            randomness: Arc::new(ThreadRandomness),
        }
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
    /// `AlreadyStarted`, `Closed`, `NoRuntime`. That no server can be reached is told by the operations, not here.
    pub fn start(&self) -> Result<()> {
        let runtime = tokio::runtime::Handle::try_current().map_err(|_no_runtime| Error::NoRuntime)?;
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
    async fn not_started(&self) -> Error {
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

    /// Closes the client: deletes what is still to be deleted, for at most `max_close_wait`, then closes the session
    /// and waits for that, for at most `max_close_wait` again. From its first moment every new operation gets
    /// `Closed`; what is held is lost when the session is closed. Closing twice is fine.
    ///
    /// If no server can be reached, the session ends by the server's timer; the client crate's tasks then stay until
    /// a server is back or the runtime ends.
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
        let closing = shared.closing.lock().take();
        if let Some(closing) = closing {
            let _in_time = tokio::time::timeout(shared.config.max_close_wait, closing).await;
        }
        shared.listeners.clear();
    }

    /// The connected session, for a recipe's attempt. Waits for it up to the connection timeout.
    ///
    /// # Errors
    ///
    /// `ConnectionLoss` with what was wrong with each server; `NotStarted`, `Closed`.
    pub async fn session(&self) -> Result<Session> {
        self.session_within(self.connection_timeout()).await
    }

    pub(crate) async fn session_within(&self, wait: Duration) -> Result<Session> {
        let shared = &self.owner.shared;
        let connected = |session: &Option<Session>| session.as_ref().is_some_and(Session::is_connected);
        if shared.life_cycle.get() == LifeCycle::Started {
            if let Some(session) = shared.session.get().filter(Session::is_connected) {
                return Ok(session);
            }
        }
        tokio::select! {
            biased;
            error = self.not_started() => Err(error),
            session = shared.session.wait_for(connected) => session.ok_or(Error::Closed),
            () = tokio::time::sleep(wait) => Err(self.not_connected("waiting for the connection")),
        }
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

    /// The data of nodes that are created without data of their own.
    #[must_use]
    pub fn default_data(&self) -> &[u8] {
        &self.owner.shared.config.default_data
    }

    pub(crate) fn downgrade(&self) -> WeakClient {
        WeakClient(Arc::downgrade(&self.owner))
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

    pub(crate) fn leftovers(&self) -> &Leftovers {
        &self.owner.shared.leftovers
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

    /// Begins a listing of a node's children: Curator's `getChildren()`.
    pub fn get_children(&self) -> GetChildrenBuilder<'_> {
        GetChildrenBuilder::new(self)
    }
}

impl fmt::Debug for CuratorFramework {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = &self.owner.shared;
        f.debug_struct("CuratorFramework")
            .field("servers", &shared.config.servers)
            .field("life_cycle", &shared.life_cycle)
            .field("state", &shared.state())
            .finish_non_exhaustive()
    }
}

/// Describes a client: Curator's `CuratorFrameworkFactory.Builder`.
#[derive(Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct CuratorFrameworkBuilder {
    connect_string: String,
    session_timeout: Duration,
    connection_timeout: Duration,
    max_close_wait: Duration,
    auth: Vec<AuthInfo>,
    retry_policy: Option<Arc<dyn RetryPolicy>>,
    default_data: Vec<u8>,
    factory: Arc<dyn ZooKeeperFactory>,
    clock: Arc<dyn Clock>,
    randomness: Arc<dyn Randomness>,
}

impl CuratorFrameworkBuilder {
    /// What decides about retries. Required, as in Curator.
    pub fn retry_policy(mut self, policy: impl RetryPolicy) -> Self {
        self.retry_policy = Some(Arc::new(policy));
        self
    }

    /// The session timeout to ask for; the server may grant another one. Default 60 s, at least 2 s. A short one
    /// hands the locks of a dead process on sooner, and takes those of a slow one. All servers must grant the same
    /// (`minSessionTimeout`, `maxSessionTimeout`), and it must be at least two of their ticks: on that rests what is
    /// known of a session's end.
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

    /// Adds credentials, which are given to every connection before anything else. May be called several times.
    /// (Curator's overwrites.)
    pub fn authorization(mut self, scheme: impl Into<String>, auth: impl Into<Vec<u8>>) -> Self {
        self.auth.push(AuthInfo { scheme: scheme.into(), auth: auth.into() });
        self
    }

    /// The data of nodes that are created without data of their own. Default: none.
    pub fn default_data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.default_data = data.into();
        self
    }

    /// What makes sessions. Default: the crate `zookeeper-async`.
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
    /// `InvalidConfig`, naming the option: an empty or unparsable connect string, a session timeout under 2 s or
    /// above 2^31 − 1 ms, a connection timeout of zero, no retry policy.
    pub fn build(self) -> Result<CuratorFramework> {
        let servers = parse_connect_string(&self.connect_string)?;
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
        if self.connection_timeout.is_zero() {
            return Err(Error::invalid_config("connection timeout", "it is zero"));
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
        let shared = Arc::new(Shared {
            config: Config {
                servers,
                session_timeout: self.session_timeout,
                connection_timeout: self.connection_timeout,
                max_close_wait: self.max_close_wait,
                auth: self.auth,
                retry_policy,
                default_data: self.default_data,
                factory: self.factory,
                clock: self.clock,
                randomness: self.randomness,
            },
            leftovers: Arc::new(Leftovers::default()),
            closing: Mutex::new(None),
            owner: OnceLock::new(),
            life_cycle: Observed::new(LifeCycle::Latent),
            session: Observed::new(None),
            state: watch::Sender::new(None),
            listeners: ConnectionStateListenable::new(),
            connect_error: Mutex::new(None),
            stop: watch::Sender::new(Stop::Not),
            finished: watch::Sender::new(true),
        });
        let owner = Arc::new(Owner { shared });
        // Set once, here.
        let _first = owner.shared.owner.set(Arc::downgrade(&owner));
        Ok(CuratorFramework { owner })
    }
}

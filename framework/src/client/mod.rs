//! The client: its facade, its builder, and the task that keeps it connected.

pub(crate) mod builder;
mod contained;
pub(crate) mod ensure_containers;
pub(crate) mod listeners;
pub(crate) mod recipe;
mod run;
mod supervisor;
pub(crate) mod within_one_session;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::client::builder::CuratorFrameworkBuilder;
use crate::client::listeners::ConnectionStateListenable;
use crate::client::recipe::RecipeClient as _;
use crate::core::config::DefaultData;
use crate::core::retry_loop::RetryLoop;
use crate::core::{ClientCore, LifeCycle, Shutdown, TaskEnd, WeakCore};
use crate::error::{ConnectError, Error, INTERNAL_WAIT, Result};
#[cfg(doc)]
use crate::model::acl_provider::AclProvider;
#[cfg(doc)]
use crate::model::compression::CompressionProvider;
use crate::model::{AddWatchMode, Reading};
use crate::operations::{
    CreateBuilder, CuratorTransaction, DeleteBuilder, ExistsBuilder, GetAclBuilder, GetChildrenBuilder,
    GetConfigBuilder, GetDataBuilder, PersistentWatcher, ReconfigBuilder, SetAclBuilder, SetDataBuilder,
};
use crate::retry::RetryPolicy;
use crate::session::Session;
use crate::state::connection_state::ConnectionState;
use crate::sync::budget::Budget;

/// A client of a ZooKeeper ensemble: Curator's `CuratorFramework`.
///
/// Clones are cheap and share one session at a time. Dropping the last clone ends the session, as does dropping the
/// runtime. A lock keeps a clone until its release. [`close`](Self::close) waits for the end, and [`run`](Self::run)
/// closes the client on every path.
///
/// # The end of a program
///
/// A connected session of the [default client](crate::default_client) ends as follows:
///
/// | the program | the session |
/// | --- | --- |
/// | awaits `close`, or returns from `run` | is closed |
/// | returns from `main`, or panics there: the runtime is dropped | is closed by that drop, which blocks up to 200 ms for each client |
/// | ends by `process::exit`, an abort, a panic with `panic = "abort"`, or a signal without a handler | lives until it times out on the server |
/// | ends a multi-thread runtime by `shutdown_background`, or a `shutdown_timeout` passes | may live until it times out |
/// | is disconnected at its end, or the server does not read | lives until it times out |
/// | is a fork of the process that connected the default client | stays with that process: the fork sends nothing on it |
///
/// In the fork, guards of that session are not held, although `is_held` may return `true` until the runtime of the fork
/// runs or is dropped. Build a new runtime and a new client there.
///
/// With `zookeeper-async` only `close` and `run` close the session at the end of a program. The same holds with a
/// [`Connector`](crate::spi::Connector) if its streams do not implement
/// [`close_blocking`](crate::spi::ByteStream::close_blocking).
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
    core: ClientCore,
    listeners: Arc<ConnectionStateListenable>,
}

/// A client that this does not keep.
pub(crate) struct WeakClient {
    core: WeakCore,
    listeners: Weak<ConnectionStateListenable>,
}

impl WeakClient {
    pub(crate) fn upgrade(&self) -> Option<CuratorFramework> {
        Some(CuratorFramework { core: self.core.upgrade()?, listeners: self.listeners.upgrade()? })
    }
}

impl CuratorFramework {
    /// Returns a builder for the servers of a connect string, `host:port[,host:port …][/chroot]`. The default port is
    /// 2181. All paths of the client are below the chroot, a node that must exist.
    #[doc(alias = "connectString")]
    pub fn builder(connect_string: impl Into<String>) -> CuratorFrameworkBuilder {
        CuratorFrameworkBuilder::new(connect_string)
    }

    /// Returns the same client for paths below another namespace, or below none if it is empty: Curator's
    /// `usingNamespace`. Both share the session, the state, the listeners and `close`. The first node in the namespace
    /// also creates the namespace's node, with the access control list of the [`AclProvider`].
    ///
    /// # Errors
    ///
    /// `Error::InvalidConfig`: a slash and the namespace do not make a valid path.
    #[doc(alias = "nonNamespaceView")]
    pub fn using_namespace(&self, namespace: &str) -> Result<Self> {
        Ok(Self { core: self.core.with_namespace(namespace)?, listeners: Arc::clone(&self.listeners) })
    }

    /// Returns the namespace; empty without one.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.core.root().namespace()
    }

    /// Returns a client with the default timeouts, not started yet: Curator's `CuratorFrameworkFactory.newClient`.
    ///
    /// # Errors
    ///
    /// Those of [`CuratorFrameworkBuilder::build`].
    #[doc(alias = "CuratorFrameworkFactory")]
    pub fn new_client(connect_string: impl Into<String>, retry_policy: impl RetryPolicy) -> Result<Self> {
        Self::builder(connect_string).retry_policy(retry_policy).build()
    }

    /// Starts to connect, in the background. Must be called once, in a tokio runtime.
    ///
    /// # Errors
    ///
    /// * `Error::AlreadyStarted`, `Error::Closed`: a client starts once; build another one.
    /// * `Error::NoRuntime`, `Error::IncompleteRuntime`: call it in a tokio runtime with timers and I/O.
    /// * `Error::PausedClock`: the test pauses the runtime's clock, so timers would end before a server can answer.
    ///
    /// An unreachable server is not an error here: operations report it.
    pub fn start(&self) -> Result<()> {
        let runtime = Handle::try_current().map_err(|_no_runtime| Error::NoRuntime)?;
        let shared = self.core.shared();
        let needs_io = shared.config.factory.needs_io();
        check_drivers(needs_io)?;
        if needs_io && is_clock_paused() {
            return Err(Error::PausedClock);
        }
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
        // Set once: a client starts once.
        let _first = shared.runtime.set(runtime.clone());
        if let DefaultData::HostAddress(address) = shared.config.default_data {
            address.begin();
        }
        let shared = Arc::clone(shared);
        // However the task ends, also with its runtime or by a panic in a clock or a factory, `close` must not hang.
        let finished = TaskEnd(Arc::clone(&shared));
        runtime.spawn(async move {
            supervisor::run(shared).await;
            drop(finished);
        });
        Ok(())
    }

    /// Resolves when the client is connected.
    ///
    /// # Errors
    ///
    /// * `Error::NotStarted`: call [`start`](Self::start). `Error::Closed`: also if the client is closed during the wait.
    /// * `Error::AuthFailed`: a server did not accept the credentials; correct them, or call it again to wait on.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    #[doc(alias = "blockUntilConnected")]
    pub async fn block_until_connected(&self) -> Result<()> {
        let shared = self.core.shared();
        let mut state = shared.state.subscribe();
        tokio::select! {
            biased;
            error = self.core.not_started() => Err(error),
            _ = state.wait_for(|state| state.is_some_and(ConnectionState::is_connected)) => Ok(()),
            refusal = shared.refused() => Err(refusal),
        }
    }

    /// Resolves when the client is connected. Waits for it up to this time.
    ///
    /// # Errors
    ///
    /// * `Error::ConnectionLoss`: the time has ended. The cause has the failure of each server.
    /// * `Error::NotStarted`: call [`start`](Self::start). `Error::Closed`: the client was closed, perhaps during the wait.
    /// * `Error::AuthFailed`: a server did not accept the credentials; correct them, or call it again to wait on.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn block_until_connected_timeout(&self, timeout: Duration) -> Result<()> {
        let connected = Budget::of(timeout).limit(self.block_until_connected()).await;
        connected.unwrap_or_else(|| Err(self.core.not_connected(INTERNAL_WAIT)))
    }

    /// Returns the connection's state, `None` before the first one.
    #[must_use]
    pub fn connection_state(&self) -> Option<ConnectionState> {
        self.core.shared().state()
    }

    /// Returns the connection's state as a channel, for async code. It may skip states; a listener gets each one.
    #[must_use]
    pub fn watch_connection_state(&self) -> watch::Receiver<Option<ConnectionState>> {
        self.core.shared().state.subscribe()
    }

    /// Returns `true` if the client is connected now.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.connection_state().is_some_and(ConnectionState::is_connected)
    }

    /// Returns why the newest attempt to connect failed. `None` while no attempt has failed since the last connection.
    #[must_use]
    pub fn connect_error(&self) -> Option<Arc<ConnectError>> {
        self.core.shared().connect_error()
    }

    /// Returns the listeners to the connection's state.
    #[must_use]
    pub fn connection_state_listenable(&self) -> &ConnectionStateListenable {
        &self.listeners
    }

    /// Closes the client. Resolves within [`max_close_wait`](CuratorFrameworkBuilder::max_close_wait), 5 s by default, even
    /// in a silent network. Closing twice is fine.
    ///
    /// 1. From the first moment, every new operation fails with `Closed`.
    /// 2. Pending deletes (dropped guards, protected creates, guaranteed deletes) get up to half of `max_close_wait`.
    /// 3. The client closes the session, which loses its guards, and waits for the reply.
    ///
    /// A client that is just connecting waits up to half of `max_close_wait` for the attempt, which may still create a
    /// session. If no server can be reached, the session times out on the server. The default client leaves no task then; the
    /// tasks of the crate `zookeeper-async` stay until a server is back or the runtime ends.
    ///
    /// # Cancel safety
    ///
    /// The closing goes on when this future is dropped.
    pub async fn close(&self) {
        let shared = self.core.shared();
        let budget = self.close_budget();
        shared.stop(Shutdown::Graceful);
        let closed = async {
            // Never fails: `shared` has the sender.
            drop(shared.finished.subscribe().wait_for(|&finished| finished).await);
            let closing = std::mem::take(&mut *shared.closing.lock());
            futures_util::future::join_all(closing).await
        };
        let _in_time = budget.limit(closed).await;
        self.listeners.clear();
    }

    /// Runs `work`, and closes the client however that ends, so that no lock stays until its session times out. Starts
    /// the client unless [`start`](Self::start) was called before.
    ///
    /// | `work` | the client is closed | result |
    /// | --- | --- | --- |
    /// | returns, also by `?` | and the close is awaited | the value or error of `work` |
    /// | panics | and the close is awaited | the panic goes on |
    /// | runs when Ctrl-C, `SIGINT` or `SIGTERM` arrives | `work` is dropped first; a second signal ends the wait | `Interrupted` |
    /// | is dropped with this future | in the background | – |
    ///
    /// Tasks that `work` has spawned go on, and their guards are lost. The cargo feature `signal`, on by default,
    /// catches the signals; without it no signal closes the client, and a warning says so. From the first call on,
    /// tokio's handlers replace the system's for the rest of the process.
    /// A signal outside of `run` has no effect then, unless the program catches it too.
    ///
    /// The first signal drops `work` at once. A service that lets its requests end catches the signals itself and
    /// awaits `close`, as the example `axum_service` does.
    ///
    /// # Errors
    ///
    /// * the error of `work`
    /// * `Error::Interrupted`: a signal has ended `work`.
    /// * `Error::Closed`: a client runs once; build another one.
    /// * `Error::NoRuntime`, `Error::IncompleteRuntime`, `Error::PausedClock`: those of [`start`](Self::start). Signals
    ///   need I/O.
    ///
    /// # Cancel safety
    ///
    /// The client is closed when this future is dropped, as by [`close`](Self::close).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use curator_framework::CuratorFramework;
    /// # async fn main_of_a_program(client: CuratorFramework) -> Result<(), Box<dyn std::error::Error>> {
    /// client
    ///     .run(async {
    ///         let (mode, _) = client.get_data().for_path("/settings/mode").await?;
    ///         println!("{}", String::from_utf8(mode)?);
    ///         Ok(())
    ///     })
    ///     .await
    /// # }
    /// ```
    pub async fn run<T, E: From<Error>>(&self, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        run::run(self, work).await
    }

    /// Resolves when the client is closed, by [`close`](Self::close) or with its last clone that keeps it.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn closed(&self) {
        self.core.shared().life_cycle.wait_for(|&life_cycle| life_cycle == LifeCycle::Stopped).await;
    }

    /// Returns the connected session, for a recipe's attempt. Waits for it up to the connection timeout.
    ///
    /// # Errors
    ///
    /// `Error::ConnectionLoss` with the failure of each server; `Error::NotStarted`, `Error::Closed`.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    #[doc(alias = "getZooKeeper")]
    pub async fn session(&self) -> Result<Session> {
        self.core.session_within(self.connection_timeout()).await
    }

    /// Returns how long an operation waits for a connection.
    #[must_use]
    pub fn connection_timeout(&self) -> Duration {
        self.core.connection_timeout()
    }

    /// Returns the session timeout that the client requests.
    #[must_use]
    pub fn session_timeout(&self) -> Duration {
        self.core.shared().config.session_timeout
    }

    /// Returns a loop that carries one operation of a recipe through its retries.
    #[must_use]
    #[doc(alias = "newRetryLoop")]
    pub fn retry_loop(&self) -> RetryLoop {
        self.core.retry_loop()
    }

    /// Begins a create: Curator's `create()`.
    pub fn create(&self) -> CreateBuilder<'_> {
        CreateBuilder::new(&self.core)
    }

    /// Begins a delete: Curator's `delete()`.
    pub fn delete(&self) -> DeleteBuilder<'_> {
        DeleteBuilder::new(&self.core)
    }

    /// Begins a check whether a node exists: Curator's `checkExists()`.
    pub fn check_exists(&self) -> ExistsBuilder<'_> {
        ExistsBuilder::new(&self.core)
    }

    /// Begins a read of a node's data: Curator's `getData()`.
    pub fn get_data(&self) -> GetDataBuilder<'_> {
        GetDataBuilder::new(&self.core)
    }

    /// Begins a change of a node's data: Curator's `setData()`.
    pub fn set_data(&self) -> SetDataBuilder<'_> {
        SetDataBuilder::new(&self.core)
    }

    /// Begins a read of a node's access control list: Curator's `getACL()`.
    pub fn get_acl(&self) -> GetAclBuilder<'_> {
        GetAclBuilder::new(&self.core)
    }

    /// Begins a change of a node's access control list: Curator's `setACL()`.
    pub fn set_acl(&self) -> SetAclBuilder<'_> {
        SetAclBuilder::new(&self.core)
    }

    /// Begins a transaction, several changes of which all are made or none: Curator's `transaction()` and
    /// `inTransaction()`.
    #[doc(alias = "inTransaction")]
    pub fn transaction(&self) -> CuratorTransaction<'_> {
        CuratorTransaction::new(&self.core)
    }

    /// Sets a watch that stays when it fires: Curator's `watchers().add()`.
    ///
    /// Reads, locks and other recipes of the same client may watch the same path once: neither takes an event from the
    /// other. A server before 3.9 has one watch for each session and path (ZOOKEEPER-4466). The client sends no watch
    /// that would replace this one, and fires it from the events of this one. With watches of both modes on one path it
    /// sets the recursive one alone. Then a `Persistent` watch gets `NodeChildrenChanged` for each child that is created
    /// or deleted, except for children that the session must not read.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`, `Error::SchemaViolation`; `Error::Unsupported` with `zookeeper-async`;
    /// `Error::ConnectionLoss` and `Error::SessionExpired` when the retry policy gives up.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no watch.
    #[doc(alias = "AddWatchBuilder")]
    pub async fn add_watch(&self, path: &str, mode: AddWatchMode) -> Result<PersistentWatcher> {
        crate::operations::check_read(&self.core, path, Reading::Watched)?;
        PersistentWatcher::add(self.core.clone(), path, mode).await
    }

    /// Begins a read of the ensemble's configuration, the list of its servers: Curator's `getConfig()`. Its node is
    /// outside of all namespaces and chroots.
    pub fn get_config(&self) -> GetConfigBuilder<'_> {
        GetConfigBuilder::new(&self.core)
    }

    /// Begins a change of the ensemble's servers: Curator's `reconfig()`.
    pub fn reconfig(&self) -> ReconfigBuilder<'_> {
        ReconfigBuilder::new(&self.core)
    }

    /// Resolves when the server has applied all that the leader had committed, for later reads: Curator's `sync()`.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`; `Error::Unsupported` with `zookeeper-async`; `Error::ConnectionLoss` and
    /// `Error::SessionExpired` when the retry policy gives up.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn sync(&self, path: &str) -> Result<()> {
        crate::operations::with_retries(&self.core, path, |session| async move { session.sync(path).await }).await
    }

    /// Creates a node and its parents, as far as they are missing: Curator's `createContainers`. They are
    /// [containers](crate::recipe::Parents::Containers), or persistent if the client does not use containers.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`, `Error::NoAuth`, `Error::InvalidAcl`, `Error::NoChildrenForEphemerals`,
    /// `Error::SchemaViolation`; `Error::ConnectionLoss` and `Error::SessionExpired` when the retry policy gives up.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, some of the nodes may exist.
    #[doc(alias = "mkdirs")]
    pub async fn create_containers(&self, path: &str) -> Result<()> {
        let below = crate::model::path::make_path(path, "foo");
        self.check_exists().creating_parent_containers_if_needed().for_path(&below).await.map(|_| ())
    }

    /// Begins a listing of a node's children: Curator's `getChildren()`.
    pub fn get_children(&self) -> GetChildrenBuilder<'_> {
        GetChildrenBuilder::new(&self.core)
    }

    pub(crate) fn downgrade(&self) -> WeakClient {
        WeakClient { core: self.core.downgrade(), listeners: Arc::downgrade(&self.listeners) }
    }
}

impl fmt::Debug for CuratorFramework {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.fmt(f)
    }
}

/// Returns `true` if tokio's clock does not advance, as in a test with `start_paused`. tokio has no query for this.
fn is_clock_paused() -> bool {
    let paused = tokio::time::Instant::now();
    let running = std::time::Instant::now();
    while running.elapsed() < Duration::from_micros(10) {
        std::hint::spin_loop();
    }
    paused.elapsed().is_zero()
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

    use parking_lot::Mutex;

    use super::*;
    use crate::environment::local_address::LocalAddress;
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

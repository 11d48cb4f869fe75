//! The client and its listeners, which know each other.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::core::retry_loop::RetryLoop;
use crate::core::{ClientCore, WeakCore};
use crate::environment::randomness::Randomness;
use crate::error::{ConnectError, Result};
#[cfg(doc)]
use crate::model::acl_provider::AclProvider;
use crate::session::Session;
use crate::state::circuit_breaker::CircuitBreakingConnectionStateListener;
use crate::state::connection_state::ConnectionState;
use crate::sync::listeners::Listeners;

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
    pub(super) core: ClientCore,
    pub(super) listeners: Arc<ConnectionStateListenable>,
}

/// A client that this does not keep.
pub(crate) struct WeakClient {
    pub(super) core: WeakCore,
    pub(super) listeners: Weak<ConnectionStateListenable>,
}

impl WeakClient {
    pub(crate) fn upgrade(&self) -> Option<CuratorFramework> {
        Some(CuratorFramework { core: self.core.upgrade()?, listeners: self.listeners.upgrade()? })
    }
}

impl CuratorFramework {
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

    pub(crate) fn downgrade(&self) -> WeakClient {
        WeakClient { core: self.core.downgrade(), listeners: Arc::downgrade(&self.listeners) }
    }
}

impl fmt::Debug for CuratorFramework {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.fmt(f)
    }
}

/// A listener to all changes of the connection state: Curator's `ConnectionStateListener`.
///
/// It is a closure, `Fn(&CuratorFramework, ConnectionState)`. The client calls it once for each change, in order, on a
/// thread that is not a runtime's worker. It may block, panic, call the client and add or remove listeners: the session
/// and other listeners continue.
#[doc(alias = "stateChanged")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a closure of a client and a connection state",
    note = "pass a closure: move |client, state| listener.state_changed(client, state)"
)]
pub trait ConnectionStateListener: Fn(&CuratorFramework, ConnectionState) + Send + Sync + 'static {}

impl<F: Fn(&CuratorFramework, ConnectionState) + Send + Sync + 'static> ConnectionStateListener for F {}

/// The listeners of one client: Curator's `getConnectionStateListenable()`.
///
/// Each listener gets the changes in their order, so all changes of one session before the changes of the next.
/// Listeners do not wait for each other.
///
/// # Circuit breaking
///
/// A client can be built with a circuit breaker, which spares its listeners the changes of a flapping connection:
/// Curator's `ConnectionStateListenerManagerFactory.circuitBreaking`. The first state without a connection passes and
/// opens the circuit. An open circuit passes only the first `Lost` after `Suspended`. After each pause of the breaker's
/// retry policy it checks the newest state. If that is connected, or the policy gives up, the circuit closes and
/// passes it, unless it has passed that one last. A policy without retries never opens the circuit.
///
/// The breaker does not filter locks and [`CuratorFramework::watch_connection_state`].
pub struct ConnectionStateListenable {
    pub(super) inner: Arc<ListenersState>,
}

/// The state that the client shares with the circuit's timer, which holds it weakly.
pub(super) struct ListenersState {
    /// The listeners that the circuit breaker filters.
    pub(super) through_breaker: Listeners<dyn ConnectionStateListener>,
    pub(super) direct: Listeners<dyn ConnectionStateListener>,
    pub(super) circuit: Option<Mutex<Circuit>>,
}

pub(super) struct Circuit {
    pub(super) listener: CircuitBreakingConnectionStateListener,
    pub(super) randomness: Arc<dyn Randomness>,
    pub(super) timer: Option<AbortOnDropHandle<()>>,
}

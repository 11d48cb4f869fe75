//! The parameters of a connect.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::client::hosts::Pacer;
use crate::environment::clock::Clock;
use crate::environment::randomness::Randomness;
use crate::error::{ConnectError, Result};
use crate::model::AuthInfo;
use crate::zookeeper::sasl::SaslMechanism;
use crate::zookeeper::security::TlsProvider;

/// The smallest session timeout that a client requests or accepts.
pub(crate) const MIN_SESSION_TIMEOUT: Duration = Duration::from_secs(2);
/// ZooKeeper's default for `jute.maxbuffer`: 1 MiB less one byte.
pub const DEFAULT_MAX_FRAME: usize = 0xf_ffff;
/// The default of the longest reply in bytes: 4 MiB.
pub const DEFAULT_MAX_REPLY: usize = 4 << 20;

/// The current servers, `host:port` each.
#[derive(Clone)]
pub struct ServerList(Arc<dyn Fn() -> Result<Vec<String>, ConnectError> + Send + Sync>);

impl ServerList {
    /// Creates a list that calls `current` each time. The call must not block.
    pub fn new(current: impl Fn() -> Result<Vec<String>, ConnectError> + Send + Sync + 'static) -> Self {
        Self(Arc::new(current))
    }

    /// Creates a list that does not change.
    #[must_use]
    pub fn fixed(servers: Vec<String>) -> Self {
        Self::new(move || Ok(servers.clone()))
    }

    /// Returns the current servers.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] if the list cannot be read.
    pub fn current(&self) -> Result<Vec<String>, ConnectError> {
        (self.0)()
    }
}

impl fmt::Debug for ServerList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServerList").field(&self.current()).finish()
    }
}

/// The moment at which the client closes.
#[derive(Clone)]
pub struct Closing(Arc<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>);

impl Closing {
    /// Wraps a function that returns futures which resolve when the client closes.
    pub fn new<F: Future<Output = ()> + Send + 'static>(begun: impl Fn() -> F + Send + Sync + 'static) -> Self {
        Self(Arc::new(move || Box::pin(begun())))
    }

    /// Resolves when the client closes.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn begun(&self) {
        (self.0)().await;
    }
}

impl fmt::Debug for Closing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closing").finish_non_exhaustive()
    }
}

/// The parameters of a connect.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ConnectConfig {
    /// The servers, read before each attempt.
    pub servers: ServerList,
    /// The session timeout to request.
    pub session_timeout: Duration,
    /// The time limit of one round over all servers.
    pub connection_timeout: Duration,
    /// The time limit of the session's close.
    pub close_timeout: Duration,
    /// The moment at which the client closes. A connect with a session that waits for a login closes it then and fails.
    pub closing: Closing,
    /// The longest request, which ZooKeeper's `jute.maxbuffer` limits.
    pub max_frame: usize,
    /// The longest reply.
    pub max_reply: usize,
    /// Spreads the attempts of one framework client over time.
    pub pacer: Arc<Pacer>,
    /// Credentials to add to every connection.
    pub auth: Vec<AuthInfo>,
    /// Allows a connection to a server that serves reads only.
    pub read_only: bool,
    /// The source of the options of TLS, if the connections use it.
    pub tls: Option<Arc<dyn TlsProvider>>,
    #[cfg(any(feature = "tls", feature = "tls-ring"))]
    pub(crate) provider_turn: crate::zookeeper::security::ProviderTurn,
    /// The mechanism of the login by SASL, if any.
    pub sasl: Option<Arc<dyn SaslMechanism>>,
    /// The clock on which `sent` is measured.
    pub clock: Arc<dyn Clock>,
    /// The source of random names and orders.
    pub randomness: Arc<dyn Randomness>,
}

#[cfg(test)]
impl ConnectConfig {
    /// Returns the parameters of a connect to these servers, without credentials.
    pub(crate) fn for_tests(servers: Vec<String>) -> Self {
        Self {
            servers: ServerList::fixed(servers),
            session_timeout: Duration::from_secs(4),
            connection_timeout: Duration::from_secs(10),
            close_timeout: Duration::from_secs(10),
            closing: Closing::new(std::future::pending),
            max_frame: DEFAULT_MAX_FRAME,
            max_reply: DEFAULT_MAX_REPLY,
            pacer: Arc::new(Pacer::default()),
            auth: Vec::new(),
            read_only: false,
            tls: None,
            #[cfg(any(feature = "tls", feature = "tls-ring"))]
            provider_turn: Arc::default(),
            sasl: None,
            clock: Arc::new(crate::environment::clock::TokioClock::default()),
            randomness: Arc::new(crate::environment::randomness::ThreadRandomness),
        }
    }
}

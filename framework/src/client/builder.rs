//! Describes a client, and checks its options.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::client::contained::{Contained, ContainedClock};
use crate::client::{ConnectionStateListenable, CuratorFramework};
use crate::core::config::{Config, DefaultData};
use crate::core::{ClientCore, ClientState};
#[cfg(doc)]
use crate::ensemble::config::EnsembleConfig;
use crate::ensemble::provider::{EnsembleProvider, FixedEnsembleProvider, parse_connect_string};
use crate::environment::clock::{BootClock, Clock};
use crate::environment::local_address::LOCAL_ADDRESS;
use crate::environment::randomness::{Randomness, ThreadRandomness};
use crate::error::{Error, Result};
use crate::model::AuthInfo;
use crate::model::acl_provider::{AclProvider, DefaultAclProvider};
use crate::model::compression::CompressionProvider;
use crate::model::gzip;
use crate::model::namespace::Namespace;
#[cfg(feature = "schema")]
use crate::model::schema::SchemaSet;
use crate::retry::RetryPolicy;
use crate::session::container_reaper::ContainerReaper;
use crate::session::{DEFAULT_MAX_EPHEMERAL_BYTES, SessionConfig};
#[cfg(doc)]
use crate::state::connection_state::ConnectionState;
use crate::state::connection_state::{ConnectionStateErrorPolicy, SessionConnectionStateErrorPolicy};
use crate::zookeeper::sasl::SaslMechanism;
use crate::zookeeper::security::TlsProvider;
use crate::zookeeper::{
    DEFAULT_CLIENT, DEFAULT_MAX_FRAME, DEFAULT_MAX_REPLY, DefaultZooKeeperFactory, MIN_SESSION_TIMEOUT,
    ZooKeeperFactory,
};

/// Curator's default session timeout: 60 s.
pub const DEFAULT_SESSION_TIMEOUT: Duration = Duration::from_secs(60);

/// Curator's default connection timeout: 15 s.
pub const DEFAULT_CONNECTION_TIMEOUT: Duration = Duration::from_secs(15);

/// The default of [`CuratorFrameworkBuilder::max_close_wait`]: 5 s. Curator's is 1 s.
pub const DEFAULT_MAX_CLOSE_WAIT: Duration = Duration::from_secs(5);

/// The smallest limit of a request or a reply: it has room for any request that names one node.
const MIN_FRAME: usize = 4096;

/// The largest limit of a reply.
const MAX_REPLY: usize = 1 << 30;

const TLS_NEEDS: &str =
    "`DefaultZooKeeperFactory`, the default client, without a connector, and the cargo feature `tls`";

/// The default of [`CuratorFrameworkBuilder::reap_interval`]: 60 s, as for ZooKeeper's containers.
pub const DEFAULT_REAP_INTERVAL: Duration = Duration::from_secs(60);

/// The options of a client: Curator's `CuratorFrameworkFactory.Builder`.
#[derive(Debug)]
#[must_use = "a builder does nothing until it is built"]
#[doc(alias = "CuratorFrameworkFactory")]
pub struct CuratorFrameworkBuilder {
    /// The options that the client takes as they are, once they are checked.
    pub(super) config: Config,
    retry_policy: Option<Arc<dyn RetryPolicy>>,
    namespace: String,
    reap_interval: Option<Duration>,
    circuit_breaker: Option<Arc<dyn RetryPolicy>>,
}

impl CuratorFramework {
    /// Returns a builder for the servers of a connect string, `host:port[,host:port …][/chroot]`. The default port is
    /// 2181. All paths of the client are below the chroot, a node that must exist.
    #[doc(alias = "connectString")]
    pub fn builder(connect_string: impl Into<String>) -> CuratorFrameworkBuilder {
        CuratorFrameworkBuilder::new(connect_string)
    }

    /// Returns a client with the default timeouts, not started yet: Curator's `CuratorFrameworkFactory.newClient`.
    ///
    /// # Errors
    ///
    /// `Error::InvalidConfig`: the connect string is empty or cannot be parsed.
    #[doc(alias = "CuratorFrameworkFactory")]
    pub fn new_client(connect_string: impl Into<String>, retry_policy: impl RetryPolicy) -> Result<Self> {
        Self::builder(connect_string).retry_policy(retry_policy).build()
    }
}

impl CuratorFrameworkBuilder {
    pub(super) fn new(connect_string: impl Into<String>) -> Self {
        let session = SessionConfig {
            clock: Arc::new(BootClock),
            randomness: Arc::new(ThreadRandomness),
            acl_provider: Arc::new(DefaultAclProvider),
            error_policy: Arc::new(SessionConnectionStateErrorPolicy),
            reaper: Arc::new(ContainerReaper::new(None)),
            schemas: None,
            max_ephemeral_bytes: DEFAULT_MAX_EPHEMERAL_BYTES,
            unhandled_errors: Arc::default(),
        };
        let config = Config {
            ensemble: Arc::new(FixedEnsembleProvider::new(connect_string)),
            ensemble_tracker: false,
            chroot: String::new(),
            session_timeout: DEFAULT_SESSION_TIMEOUT,
            connection_timeout: DEFAULT_CONNECTION_TIMEOUT,
            max_close_wait: DEFAULT_MAX_CLOSE_WAIT,
            auth: Mutex::default(),
            read_only: false,
            tls: None,
            #[cfg(any(feature = "tls", feature = "tls-ring"))]
            provider_turn: Arc::default(),
            sasl: None,
            default_data: DefaultData::HostAddress(&LOCAL_ADDRESS),
            factory: Arc::new(DefaultZooKeeperFactory::new()),
            max_frame: DEFAULT_MAX_FRAME,
            max_reply: DEFAULT_MAX_REPLY,
            container_parents: true,
            compression: Arc::new(gzip::DEFAULT),
            compress: false,
            session,
        };
        let reap_interval = Some(DEFAULT_REAP_INTERVAL);
        Self { config, retry_policy: None, namespace: String::new(), reap_interval, circuit_breaker: None }
    }

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
        self.config.session_timeout = timeout;
        self
    }

    /// Sets how long an operation waits for a connection, and the limit of one attempt to connect. Default 15 s. If it
    /// is too short, operations fail with `ConnectionLoss` before a reachable server is found.
    pub fn connection_timeout(mut self, timeout: Duration) -> Self {
        self.config.connection_timeout = timeout;
        self
    }

    /// Sets the longest time that a close takes: [`CuratorFramework::close`], and each `close`, `resign`, `release` and
    /// `leave` of the client's recipes. Default 5 s; [`Duration::MAX`] means without a limit.
    ///
    /// [`CuratorFramework::close`] waits up to half of it for pending deletes, and then for the end of the session. If it
    /// is too short, guaranteed deletes may stay undone and locks held until the session times out.
    pub fn max_close_wait(mut self, wait: Duration) -> Self {
        self.config.max_close_wait = wait;
        self
    }

    /// Sets the longest request in bytes: ZooKeeper's `jute.maxbuffer`. Default 1 MiB less one byte, the default of
    /// servers; at least 4096. A longer request is not sent, and fails with [`Error::RequestTooLarge`]. A larger limit
    /// must be set on the servers too, or they close the connection.
    pub fn max_frame(mut self, bytes: usize) -> Self {
        self.config.max_frame = bytes;
        self
    }

    /// Sets how many bytes the paths of a session's ephemeral nodes may take, with four bytes for each. Default 1 MiB,
    /// some 16,000 contenders of locks. More are not created: [`Error::TooManyEphemeralNodes`].
    ///
    /// The end of the session is one transaction with all these paths. One that is longer than servers read
    /// (`jute.maxbuffer` and `jute.maxbuffer.extrasize` together, 2 MiB by default) stops the whole ensemble for good.
    /// Servers with smaller settings need a smaller limit. A larger limit needs larger settings on all servers.
    ///
    /// A node counts from before its create is sent until the reply to its delete. Other clients may delete nodes, and
    /// replies may be lost or not awaited. So the client counts again from the server's list before it refuses a request,
    /// at most once a second. It cannot do so with `zookeeper-async`, with servers before 3.6, or if the list is longer
    /// than [`max_reply`](Self::max_reply): there such nodes count until the session ends.
    pub fn max_ephemeral_bytes(mut self, bytes: usize) -> Self {
        self.config.session.max_ephemeral_bytes = bytes;
        self
    }

    /// Sets the longest reply in bytes. Default 4 MiB; from 4096 to 1 GiB. A longer reply to a read is skipped without
    /// being stored: the read fails with [`Error::ReplyTooLarge`], and the connection stays open.
    ///
    /// The listing of a node has four bytes and the name for each child. Replies come in order, so those behind a large
    /// one wait until it has arrived. Among them is the answer to the heartbeat: 4 MiB take 3 s at 10 Mbit/s. A client
    /// that hears no answer in two thirds of the session timeout counts its locks as lost.
    pub fn max_reply(mut self, bytes: usize) -> Self {
        self.config.max_reply = bytes;
        self
    }

    /// Adds credentials. Each connection sends them before its watches and requests. May be called several times.
    /// (Curator's overwrites.) [`CuratorFramework::add_authorization`] adds some later.
    pub fn authorization(mut self, scheme: impl Into<String>, auth: impl Into<Vec<u8>>) -> Self {
        self.config.auth.get_mut().push(AuthInfo { scheme: scheme.into(), auth: auth.into() });
        self
    }

    /// Allows the client to connect to a read-only server, one that is partitioned from the quorum. Default: `false`.
    /// Curator's `canBeReadOnly`. The state is then [`ConnectionState::ReadOnly`], and writes fail. The client takes
    /// the first server that replies, even if a writable one is reachable, and stays there until the connection ends.
    /// The server ends it when it is back in the quorum.
    pub fn can_be_read_only(mut self, read_only: bool) -> Self {
        self.config.read_only = read_only;
        self
    }

    /// Connects to the servers by TLS. Default: plain text. If the process has a default `CryptoProvider` of rustls when
    /// the client is built, TLS uses it. Otherwise TLS uses aws-lc-rs with the cargo feature `tls`, and ring with `tls-ring`.
    ///
    /// [`TlsOptions`](crate::TlsOptions) never change. A client with [`TlsFiles`](crate::TlsFiles) outlives its
    /// certificate.
    pub fn tls(mut self, provider: impl TlsProvider) -> Self {
        self.config.tls = Some(Arc::new(provider));
        self
    }

    /// Logs in by SASL on every connection, ahead of all requests. Default: no login.
    ///
    /// The mechanism is the client's choice alone; the servers must be set up for it.
    /// [`SaslDigest`](crate::SaslDigest) has a user and a password.
    pub fn sasl(mut self, mechanism: impl SaslMechanism) -> Self {
        self.config.sasl = Some(Arc::new(mechanism));
        self
    }

    /// Sets the data of nodes that are created without data. Default: this host's address as text, as in Curator; empty
    /// if the host's name cannot be resolved. The first client that needs it looks it up on a separate thread, once in
    /// a process. The first session waits at most 200 ms for it; until then the data is empty. It is for
    /// administrators: the recipes do not read it.
    pub fn default_data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.config.default_data = DefaultData::Given(data.into());
        self
    }

    /// Sets a provider in place of the connect string, for a list of servers that changes while the client runs.
    /// `build` and each attempt to connect call it, so a live session follows a changed list at its next attempt. With
    /// `zookeeper-async` a changed list counts from the next session on.
    pub fn ensemble_provider(mut self, provider: impl EnsembleProvider) -> Self {
        self.config.ensemble = Arc::new(provider);
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
        self.config.ensemble_tracker = follow;
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
        self.config.session.acl_provider = Arc::new(provider);
        self
    }

    /// Sets the connection states in which held locks are lost. Default: [`SessionConnectionStateErrorPolicy`], `Lost`
    /// only. The stricter standard policy, Curator's default, costs the locks at each interruption. (Curator's lock
    /// recipes ignore it.)
    pub fn connection_state_error_policy(mut self, policy: impl ConnectionStateErrorPolicy) -> Self {
        self.config.session.error_policy = Arc::new(policy);
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
    /// Curator's `enableCompression`. All clients of a lock must do the same, or they misread a revocation. It needs
    /// the cargo feature `compression`, or a [`compression_provider`](Self::compression_provider).
    pub fn enable_compression(mut self) -> Self {
        self.config.compress = true;
        self
    }

    /// Sets the compression. Default: gzip, with the cargo feature `compression`. It applies only where the client or
    /// an operation enables it.
    pub fn compression_provider(mut self, provider: impl CompressionProvider) -> Self {
        self.config.compression = Arc::new(provider);
        self
    }

    /// Suppresses connection-state events while the connection flaps. Default: listeners get every state. After the
    /// first state without a connection, listeners get at most one more, `Lost`, until the policy's pause has ended and
    /// the client is connected, or the policy gives up. All listeners share one breaker. Curator's
    /// `CircuitBreakingConnectionStateListener` and `ConnectionStateListenerManagerFactory.circuitBreaking`.
    #[doc(alias = "CircuitBreakingConnectionStateListener")]
    #[doc(alias = "connectionStateListenerManagerFactory")]
    pub fn circuit_breaking_listeners(mut self, policy: impl RetryPolicy) -> Self {
        self.circuit_breaker = Some(Arc::new(policy));
        self
    }

    /// Sets the schemas that nodes must satisfy. Default: every node is allowed.
    #[cfg(feature = "schema")]
    pub fn schema_set(mut self, schemas: SchemaSet) -> Self {
        self.config.session.schemas = Some(Arc::new(schemas));
        self
    }

    /// Creates the parents of locks as persistent nodes, which stay when empty: Curator's `dontUseContainerParents`.
    pub fn dont_use_container_parents(mut self) -> Self {
        self.config.container_parents = false;
        self
    }

    /// Sets the ZooKeeper client. Default: [`DefaultZooKeeperFactory`], this crate's own
    /// ([`default_client`](crate::default_client)). `ZooKeeperAsyncFactory` is the crate `zookeeper-async`, behind the
    /// cargo feature of that name, which is on by default.
    pub fn zookeeper_factory(mut self, factory: impl ZooKeeperFactory) -> Self {
        self.config.factory = Arc::new(factory);
        self
    }

    /// Sets the clock that measures deadlines. Default: [`BootClock`]. Tests under paused time use
    /// [`TokioClock`](crate::TokioClock). If the clock stops while the machine sleeps, a loss is noticed too late.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.config.session.clock = Arc::new(ContainedClock::new(clock));
        self
    }

    /// Sets the source of random node names and pauses. Default: the thread's generator. With a seeded one a test can
    /// repeat a run.
    pub fn randomness(mut self, randomness: impl Randomness) -> Self {
        self.config.session.randomness = Arc::new(randomness);
        self
    }

    /// Checks the options and returns the client. It does nothing before it is [started](CuratorFramework::start).
    ///
    /// # Errors
    ///
    /// * `Error::InvalidConfig`, naming the option:
    ///   * an empty or unparsable connect string;
    ///   * a session timeout under 2 s or above 2^31 − 1 ms;
    ///   * a connection timeout of zero or above 2^31 − 1 ms;
    ///   * a reap interval of zero;
    ///   * a limit of requests or replies under 4096 bytes, above 2^31 − 1 (requests) or above 2^30 (replies);
    ///   * no retry policy;
    ///   * a namespace that is not a path;
    ///   * an ensemble tracker with TLS, or TLS options that cannot be read.
    /// * `Error::Unsupported`: the ZooKeeper client does not support an option. With `zookeeper-async` these are TLS,
    ///   SASL and read-only servers; with the default client it is TLS with a connector, or without the cargo feature
    ///   `tls`.
    pub fn build(mut self) -> Result<CuratorFramework> {
        self.check_features()?;
        let ensemble = parse_connect_string(&self.config.ensemble.connect_string())?;
        let root = Namespace::new(&ensemble.chroot, &self.namespace)?;
        #[cfg(any(feature = "tls", feature = "tls-ring"))]
        self.check_tls(&ensemble.servers)?;
        self.check_limits()?;
        let Some(retry_policy) = self.retry_policy.take() else {
            return Err(Error::invalid_config("retry policy", "none was given"));
        };
        if self.config.session_timeout < self.config.connection_timeout {
            tracing::warn!(
                session_timeout_s = self.config.session_timeout.as_secs_f64(),
                connection_timeout_s = self.config.connection_timeout.as_secs_f64(),
                "the session timeout is shorter than the connection timeout"
            );
        }
        if self.reap_interval.is_some_and(|interval| interval.is_zero()) {
            return Err(Error::invalid_config("reap interval", "it is zero"));
        }
        Ok(self.construct(root, ensemble.chroot, retry_policy))
    }

    /// Checks that the ZooKeeper client has the features that are wanted.
    fn check_features(&self) -> Result<()> {
        let can = self.config.factory.capabilities();
        for (is_missing, request, needed) in [
            (self.config.tls.is_some() && !can.tls, "connect by TLS", TLS_NEEDS),
            (self.config.sasl.is_some() && !can.sasl, "log in by SASL", DEFAULT_CLIENT),
            (self.config.read_only && !can.read_only, "connect to read-only servers", DEFAULT_CLIENT),
        ] {
            if is_missing {
                return Err(Error::Unsupported {
                    request: request.into(),
                    client: self.config.factory.client(),
                    needed,
                });
            }
        }
        if self.config.ensemble_tracker && self.config.tls.is_some() {
            return Err(Error::invalid_config("ensemble tracker", "the servers do not tell their ports for TLS"));
        }
        Ok(())
    }

    #[cfg(any(feature = "tls", feature = "tls-ring"))]
    fn check_tls(&self, servers: &[String]) -> Result<()> {
        let Some(provider) = &self.config.tls else { return Ok(()) };
        let wrong = |reason: String| Error::invalid_config("TLS option", reason);
        let options = provider.options().map_err(|error| wrong(error.to_string()))?;
        crate::zookeeper::client::tls::config(&options).map_err(wrong)?;
        for server in servers {
            crate::zookeeper::client::tls::name_of(server).map_err(wrong)?;
        }
        Ok(())
    }

    fn check_limits(&self) -> Result<()> {
        let (session, connection) = (self.config.session_timeout, self.config.connection_timeout);
        let (frame, reply) = (self.config.max_frame, self.config.max_reply);
        let too_long = |timeout: Duration| timeout.as_millis() > i32::MAX as u128;
        for (option, is_wrong, reason) in [
            ("session timeout", session < MIN_SESSION_TIMEOUT, format!("{session:?} is under {MIN_SESSION_TIMEOUT:?}")),
            ("session timeout", too_long(session), format!("{session:?} is above 2147483647 ms")),
            (
                "longest request",
                !(MIN_FRAME..=i32::MAX as usize).contains(&frame),
                format!("{frame} bytes, not from {MIN_FRAME} to 2147483647"),
            ),
            (
                "longest reply",
                !(MIN_FRAME..=MAX_REPLY).contains(&reply),
                format!("{reply} bytes, not from {MIN_FRAME} to {MAX_REPLY}"),
            ),
            ("connection timeout", connection.is_zero(), "it is zero".to_owned()),
            ("connection timeout", too_long(connection), format!("{connection:?} is above 2147483647 ms")),
        ] {
            if is_wrong {
                return Err(Error::invalid_config(option, reason));
            }
        }
        Ok(())
    }

    fn construct(self, root: Namespace, chroot: String, retry_policy: Arc<dyn RetryPolicy>) -> CuratorFramework {
        let Self { config, reap_interval, circuit_breaker, .. } = self;
        let randomness: Arc<dyn Randomness> = Arc::new(Contained(config.session.randomness));
        let listeners = Arc::new(match circuit_breaker {
            Some(policy) => ConnectionStateListenable::circuit_breaking(Contained(policy), Arc::clone(&randomness)),
            None => ConnectionStateListenable::new(),
        });
        let config = Config {
            ensemble: Arc::new(Contained(config.ensemble)),
            chroot,
            factory: Arc::new(Contained(config.factory)),
            compression: Arc::new(Contained(config.compression)),
            session: SessionConfig {
                randomness,
                acl_provider: Arc::new(Contained(config.session.acl_provider)),
                error_policy: Arc::new(Contained(config.session.error_policy)),
                reaper: Arc::new(ContainerReaper::new(reap_interval)),
                ..config.session
            },
            ..config
        };
        let retry_policy = Arc::new(Contained(retry_policy));
        let on_state = {
            let listeners = Arc::clone(&listeners);
            Box::new(move |core, state| {
                listeners.notify(&CuratorFramework { core, listeners: Arc::clone(&listeners) }, state);
            })
        };
        let core = ClientCore::new(ClientState::new(config, retry_policy, on_state), root);
        CuratorFramework { core, listeners }
    }
}

//! Settings of a server, and its start.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::core::{Core, Settings};
use super::sasl::{Mechanism, SaslAnswer};
use super::{DEFAULT_CONTAINER_CHECK_INTERVAL, TestingServer};

/// Apache's default `tickTime`.
const DEFAULT_TICK: Duration = Duration::from_secs(2);

/// Settings for a [`TestingServer`].
#[derive(Debug, Clone)]
#[must_use = "nothing starts until `start` is called"]
pub struct TestingServerBuilder {
    port: u16,
    tick: Duration,
    session_timeouts: Option<(Duration, Duration)>,
    container_check_interval: Duration,
    extended_types: bool,
    reconfig: bool,
    sasl: Option<Mechanism>,
}

impl TestingServerBuilder {
    pub(super) const fn new() -> Self {
        Self {
            port: 0,
            tick: DEFAULT_TICK,
            session_timeouts: None,
            container_check_interval: DEFAULT_CONTAINER_CHECK_INTERVAL,
            extended_types: false,
            reconfig: false,
            sasl: None,
        }
    }

    /// Sets the port. The default, 0, takes a free one.
    pub const fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Sets Apache's `tickTime`, 2 s by default. A session's timeout is at least two and at most twenty ticks, unless
    /// [`session_timeouts`](Self::session_timeouts) is set.
    pub const fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// Sets the shortest and the longest session timeout that a client gets, regardless of its request. In whole
    /// milliseconds, as on the wire.
    pub const fn session_timeouts(mut self, min: Duration, max: Duration) -> Self {
        self.session_timeouts = Some((min, max));
        self
    }

    /// Sets the interval at which the server searches for childless containers that had children, and for nodes that
    /// have outlived their time: 60 s by default, as with Apache. Such a node may stay this much longer.
    pub const fn container_check_interval(mut self, interval: Duration) -> Self {
        self.container_check_interval = interval;
        self
    }

    /// Sets whether nodes may have a time to live (Apache's `extendedTypesEnabled`). The default is Apache's, false:
    /// the server answers a request for one with `Unimplemented`.
    pub const fn extended_types(mut self, enabled: bool) -> Self {
        self.extended_types = enabled;
        self
    }

    /// Sets whether a client may ask for other servers (Apache's `reconfigEnabled`). The default is Apache's, false: the
    /// server answers `reconfig` with `ReconfigDisabled`. Otherwise it answers `Unimplemented`, as a server alone does.
    pub const fn reconfig(mut self, enabled: bool) -> Self {
        self.reconfig = enabled;
        self
    }

    /// Lets clients log in by SASL. `answer` gets the tokens that the connection has sent so far, the newest one last, and
    /// must not block. By default the server does not know SASL, and closes the connection.
    pub fn sasl(mut self, answer: impl Fn(&[Vec<u8>]) -> SaslAnswer + Send + Sync + 'static) -> Self {
        self.sasl = Some(Mechanism(Arc::new(answer)));
        self
    }

    /// Starts the server.
    ///
    /// # Errors
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for session timeouts below 1 ms, above `i32::MAX` ms, or with the
    /// minimum above the maximum, and for a container check interval below 1 ms. The operating system's error if the
    /// port is taken or no thread can be created.
    pub fn start(self) -> io::Result<TestingServer> {
        let (min, max) =
            self.session_timeouts.unwrap_or_else(|| (self.tick.saturating_mul(2), self.tick.saturating_mul(20)));
        let longest = Duration::from_millis(i32::MAX as u64);
        if min < Duration::from_millis(1) || min > max || max > longest {
            let message = format!("session timeouts from {min:?} to {max:?} are not possible");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        if self.container_check_interval < Duration::from_millis(1) {
            let message = format!("a container check every {:?} is not possible", self.container_check_interval);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let epoch_ms = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
        let core = Core::new(Settings {
            tick: self.tick,
            min_session_timeout: min,
            max_session_timeout: max,
            first_session_id: first_session_id(epoch_ms),
            epoch_ms,
            container_check_interval: self.container_check_interval,
            extended_types: self.extended_types,
            reconfig: self.reconfig,
            sasl: self.sasl,
            requests_touch: true,
        });
        TestingServer::run(core, SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)))
    }
}

/// Returns the first session's id, made as Apache makes it: the number of the server in the top byte, then the time.
/// Servers of one process have different numbers.
fn first_session_id(epoch_ms: i64) -> i64 {
    static SERVERS: AtomicI64 = AtomicI64::new(0);
    let server = SERVERS.fetch_add(1, Ordering::Relaxed) % 127 + 1;
    (server << 56) | ((epoch_ms << 16) & 0x00ff_ffff_ffff_ffff)
}

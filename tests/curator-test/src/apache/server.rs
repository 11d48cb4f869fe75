//! A single server.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::ask;
use super::error::ApacheError;
use super::launcher::Launcher;
use super::node::{Node, new_folder};
use super::options::{ClaimedPorts, Options};
use super::security::{ClientAuth, Security};
use crate::{TestAuthority, TestCertificate};

/// The options of an [`ApacheServer`], from [`ApacheServer::builder`].
#[derive(Debug, Clone)]
#[must_use = "nothing happens before `start`"]
pub struct ApacheServerBuilder {
    options: Options,
    security: Security,
    properties: Vec<String>,
}

impl ApacheServerBuilder {
    /// Sets the server's unit of time (`tickTime`). The default is one second.
    ///
    /// The server checks for expired sessions once a tick: a session ends up to one tick after its timeout. A short
    /// tick makes that more exact.
    pub const fn tick(mut self, tick: Duration) -> Self {
        self.options.tick = tick;
        self
    }

    /// Sets the shortest and the longest session timeout that the server grants.
    ///
    /// A client that requests less or more gets the nearer limit. The default is Apache's: 2 and 20 ticks.
    pub const fn session_timeouts(mut self, min: Duration, max: Duration) -> Self {
        self.options.session_timeouts = Some((min, max));
        self
    }

    /// Lets a client ask for other servers (`reconfigEnabled`). A server alone has no others: it answers `Unimplemented`
    /// in place of `ReconfigDisabled`.
    pub const fn reconfig(mut self) -> Self {
        self.options.reconfig = true;
        self
    }

    /// Lets Java compile the server fully. By default it compiles quickly, so that a short-lived server starts soon; a
    /// server that is measured should run faster.
    pub const fn compiles_fully(mut self) -> Self {
        self.options.compiles_fully = true;
        self
    }

    /// Sets the Java program. The default is `$JAVA_HOME/bin/java` if that variable is set, else the `java` on the
    /// search path.
    pub fn java(mut self, program: impl Into<PathBuf>) -> Self {
        self.options.java = Some(program.into());
        self
    }

    /// Sets the folder of `zookeeper.jar`. The default is the folder in the environment variable `CURATOR_TEST_JARS`;
    /// without it, Debian's `/usr/share/java`.
    ///
    /// The manifest of that jar must name the jars that it needs, as Debian's does. `tests/versions` of the project makes
    /// such a folder.
    pub fn jars(mut self, folder: impl Into<PathBuf>) -> Self {
        self.options.jars = folder.into();
        self
    }

    /// Sets a system property of the server's Java, such as `zookeeper.extendedTypesEnabled`, without which the server
    /// refuses nodes with a time to live.
    pub fn system_property(mut self, name: impl AsRef<str>, value: impl AsRef<str>) -> Self {
        self.properties.push(format!("-D{}={}", name.as_ref(), value.as_ref()));
        self
    }

    /// Opens a second port, for TLS ([`secure_address`](ApacheServer::secure_address)).
    ///
    /// The server shows a certificate that `authority` issues to it for `127.0.0.1`, and trusts the clients'
    /// certificates of the same authority. The plain port stays. Netty then serves all connections.
    pub fn tls(mut self, authority: &TestAuthority) -> Self {
        self.security.authority = Some(authority.clone());
        self
    }

    /// Sets the certificate that the server shows, for instance an expired one. It needs [`tls`](Self::tls).
    pub fn server_certificate(mut self, certificate: &TestCertificate) -> Self {
        self.security.certificate = Some(certificate.clone());
        self
    }

    /// Sets the demand for clients' certificates, [`ClientAuth::Need`] by default. It needs [`tls`](Self::tls).
    pub const fn client_auth(mut self, client_auth: ClientAuth) -> Self {
        self.security.client_auth = Some(client_auth);
        self
    }

    /// Adds a user that may authenticate with SASL's mechanism DIGEST-MD5, known to ZooKeeper as `sasl:<user>`.
    ///
    /// A user is made of ASCII letters, digits, `_`, `-` and `.`; a password of visible ASCII without `"`, `\` and `$`.
    pub fn digest_sasl(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.security.sasl_users.push((user.into(), password.into()));
        self
    }

    /// Refuses the requests of clients that have not authenticated with SASL (`sessionRequireClientSASLAuth`).
    ///
    /// Such a client gets a session, which ends at its first request. It needs [`digest_sasl`](Self::digest_sasl).
    pub const fn require_sasl(mut self) -> Self {
        self.security.requires_sasl = true;
        self
    }

    /// Starts the server and waits until it serves, on both ports if it has two.
    ///
    /// # Errors
    /// - [`ApacheError::InvalidOption`]: a tick under a millisecond, timeouts that no session can have, options of TLS
    ///   or SASL without their condition, or a user or password with other characters than those above.
    /// - [`ApacheError::Certificate`]: no certificate can be made for the server.
    /// - [`ApacheError::NotInstalled`]: Java or Apache ZooKeeper is missing.
    /// - [`ApacheError::Ended`], [`ApacheError::NotServing`]: the server does not serve within a minute.
    /// - [`ApacheError::PortTaken`]: other processes have taken the ports of three starts in a row.
    /// - [`ApacheError::Io`]: a file, a port or the process cannot be created.
    pub fn start(self) -> Result<ApacheServer, ApacheError> {
        self.security.check()?;
        self.options.start(|launcher| self.start_once(launcher))
    }

    fn start_once(&self, mut launcher: Launcher) -> Result<ApacheServer, ApacheError> {
        let folder = new_folder()?;
        let ports = ClaimedPorts::claim(2).map_err(ApacheError::io("find free ports"))?;
        let (address, secure_address) = (ports.addresses[0], ports.addresses[1]);
        let (sasl, argument) = self.security.write_sasl(folder.path())?;
        let tls = self.security.write_tls(folder.path(), secure_address)?;
        let config = format!("{}{sasl}{tls}", self.options.config(folder.path(), address));
        for argument in self.properties.iter().cloned().chain(argument) {
            launcher.add_argument(argument);
        }
        if self.security.authority.is_some() {
            launcher.add_tls_jar(&self.options.jars)?;
        }
        let mut node = Node::new(launcher, address, folder, &config)?;
        if self.security.authority.is_some() {
            node.set_secure_address(secure_address);
        }
        node.start()?;
        let version = ask::version(address).map_err(ApacheError::io("ask for the version"))?;
        Ok(ApacheServer { node, version, _ports: ports })
    }
}

/// A real Apache ZooKeeper server in a process of its own, for tests.
///
/// It is a standalone server on a free port of `127.0.0.1`. Data and log are in a temporary folder. Nothing is forced
/// to the disk, which makes it quick; a [`restart`](Self::restart) still finds all data and sessions. A start takes
/// about half a second.
///
/// It runs the operating system's server: Debian's package `zookeeper`, version 3.8 or later. Without it,
/// [`start`](Self::start) returns [`ApacheError::NotInstalled`].
///
/// It can have a port for TLS, and users that authenticate with SASL: see [`tls`](ApacheServerBuilder::tls) and
/// [`digest_sasl`](ApacheServerBuilder::digest_sasl).
///
/// All calls are synchronous and may be made from any thread. In an asynchronous test [`start`](Self::start) and
/// [`restart`](Self::restart) block its thread in the meantime.
///
/// # The end of the process
/// A drop of the value kills the process, even a frozen one, and removes the folder. If the test process dies without a
/// drop, the operating system kills the server as well. That part needs Linux and `setpriv` (package `util-linux`);
/// elsewhere the server then continues to run.
///
/// # Examples
/// ```no_run
/// use std::time::Duration;
/// use curator_test::ApacheServer;
///
/// let server = ApacheServer::builder()
///     .tick(Duration::from_millis(500))
///     .session_timeouts(Duration::from_secs(2), Duration::from_secs(30))
///     .start()?;
/// println!("{} serves at {}", server.version(), server.connect_string());
/// server.restart()?;
/// # Ok::<(), curator_test::ApacheError>(())
/// ```
#[derive(Debug)]
pub struct ApacheServer {
    node: Node,
    version: String,
    _ports: ClaimedPorts,
}

impl ApacheServer {
    /// Starts a server with the default options and waits until it serves.
    ///
    /// # Errors
    /// The errors of [`ApacheServerBuilder::start`].
    pub fn start() -> Result<Self, ApacheError> {
        Self::builder().start()
    }

    /// Returns the default options for a server.
    pub fn builder() -> ApacheServerBuilder {
        ApacheServerBuilder { options: Options::default(), security: Security::default(), properties: Vec::new() }
    }

    /// Returns the connect string: `127.0.0.1:<port>`.
    #[must_use]
    pub fn connect_string(&self) -> String {
        self.address().to_string()
    }

    /// Returns the server's address. A [`restart`](Self::restart) keeps it.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.node.address()
    }

    /// Returns the server's port on `127.0.0.1`.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.address().port()
    }

    /// Returns the address of the port for TLS; `None` without [`tls`](ApacheServerBuilder::tls). A
    /// [`restart`](Self::restart) keeps it.
    #[must_use]
    pub const fn secure_address(&self) -> Option<SocketAddr> {
        self.node.secure_address()
    }

    /// Returns the connect string for TLS, `127.0.0.1:<port>`; `None` without [`tls`](ApacheServerBuilder::tls).
    #[must_use]
    pub fn secure_connect_string(&self) -> Option<String> {
        self.secure_address().map(|address| address.to_string())
    }

    /// Returns the version of Apache ZooKeeper, such as `3.8.0`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Kills the server as a crash does, and waits until its process has ended.
    ///
    /// Connections break and new ones are refused. Data and sessions are kept for a [`restart`](Self::restart). Has no
    /// effect on a stopped server.
    ///
    /// # Errors
    /// [`ApacheError::Io`] if the process cannot be killed.
    pub fn stop(&self) -> Result<(), ApacheError> {
        self.node.stop()
    }

    /// Stops the server if it runs, starts it again on the same port with the same data, and waits until it serves.
    ///
    /// Sessions survive: their timeouts start again when the server is back.
    ///
    /// # Errors
    /// The errors of [`ApacheServerBuilder::start`].
    pub fn restart(&self) -> Result<(), ApacheError> {
        self.node.start()
    }

    /// Restarts the server with other limits for session timeouts from now on.
    ///
    /// A session that is attached again is granted a timeout within the new limits.
    ///
    /// # Errors
    /// The errors of [`ApacheServerBuilder::start`], and [`ApacheError::Io`] if the configuration cannot be written.
    pub fn restart_with_session_timeouts(&self, min: Duration, max: Duration) -> Result<(), ApacheError> {
        self.node.set_options(&[
            ("minSessionTimeout", min.as_millis().to_string()),
            ("maxSessionTimeout", max.as_millis().to_string()),
        ])?;
        self.restart()
    }

    /// Stops the server, copies its data into an existing folder, and starts it again.
    ///
    /// # Errors
    /// The errors of [`restart`](Self::restart), and [`ApacheError::Io`] if the data cannot be copied.
    pub fn restart_and_save(&self, backup: &Path) -> Result<(), ApacheError> {
        self.node.restart_and_save(backup)
    }

    /// Stops the server, replaces its data by a backup of [`restart_and_save`](Self::restart_and_save), and starts it.
    ///
    /// The server continues with the transaction numbers of the backup, so it refuses clients that have seen later ones.
    ///
    /// # Errors
    /// The errors of [`restart`](Self::restart), and [`ApacheError::Io`] if the data cannot be copied.
    pub fn restart_with_data(&self, backup: &Path) -> Result<(), ApacheError> {
        self.node.restart_with_data(backup)
    }

    /// Restarts the server so that the next sequential child of `parent` gets the number `next`.
    ///
    /// Creating nodes cannot reach numbers near their end, 2147483647. So the server is started and stopped twice, and
    /// its snapshot is changed in between. All that [`restart`](Self::restart) keeps is kept. The counterpart is
    /// [`TestingServer::set_next_sequence`](crate::TestingServer::set_next_sequence).
    ///
    /// # Errors
    /// [`ApacheError::NoNode`] if `parent` does not exist, after a mere restart; [`ApacheError::Io`] for an unknown
    /// form of snapshot; and the errors of [`ApacheServerBuilder::start`].
    pub fn restart_with_next_sequence(&self, parent: &str, next: i32) -> Result<(), ApacheError> {
        self.node.restart_with_next_sequence(parent, next)
    }

    /// Halts the process (`SIGSTOP`), and waits until all its threads have stopped.
    ///
    /// Its connections stay open and the operating system accepts new ones, but requests get no reply. Has no effect on
    /// a frozen server.
    ///
    /// # Errors
    /// [`ApacheError::Stopped`] after a [`stop`](Self::stop), and [`ApacheError::Io`]
    /// if the signal cannot be sent.
    pub fn freeze(&self) -> Result<(), ApacheError> {
        self.node.freeze()
    }

    /// Resumes a frozen process (`SIGCONT`).
    ///
    /// It first answers the requests that have arrived in the meantime. Sessions that ran out of time during the freeze
    /// end soon, unless a request of their client is read first.
    ///
    /// # Errors
    /// [`ApacheError::Stopped`] after a [`stop`](Self::stop), and [`ApacheError::Io`]
    /// if the signal cannot be sent.
    pub fn thaw(&self) -> Result<(), ApacheError> {
        self.node.thaw()
    }
}

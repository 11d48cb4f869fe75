//! A single server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::ask;
use super::error::ApacheError;
use super::launcher::Launcher;
use super::node::{Node, new_folder};
use super::options::{Options, free_addresses};
use super::security::{ClientAuth, Security};
use crate::{TestAuthority, TestCertificate};

/// Options of an [`ApacheServer`]; made by [`ApacheServer::builder`].
#[derive(Debug, Clone)]
#[must_use = "nothing happens before `start`"]
pub struct ApacheServerBuilder {
    options: Options,
    security: Security,
}

impl ApacheServerBuilder {
    /// Sets the server's unit of time (`tickTime`). The default is one second.
    ///
    /// The server looks for expired sessions once in a tick: a session ends up to
    /// one tick after its time-out. A short tick makes that more exact.
    pub const fn tick(mut self, tick: Duration) -> Self {
        self.options.tick = tick;
        self
    }

    /// Sets the shortest and the longest session timeout that the server grants.
    ///
    /// A client that asks for less or more gets the nearest of the two. The default
    /// is Apache's: 2 and 20 ticks.
    pub const fn session_timeouts(mut self, min: Duration, max: Duration) -> Self {
        self.options.session_timeouts = Some((min, max));
        self
    }

    /// Lets Java compile the server as well as it can. By default it compiles quickly, so that a server that lives for
    /// seconds starts soon; one that is measured should be faster.
    pub const fn compiles_fully(mut self) -> Self {
        self.options.compiles_fully = true;
        self
    }

    /// Sets the Java program. The default is `$JAVA_HOME/bin/java` if that variable
    /// is set, else the `java` on the search path.
    pub fn java(mut self, program: impl Into<PathBuf>) -> Self {
        self.options.java = Some(program.into());
        self
    }

    /// Sets the folder of `zookeeper.jar`. The default is Debian's `/usr/share/java`.
    ///
    /// The manifest of that jar must name the jars that it needs, as Debian's does.
    pub fn jars(mut self, folder: impl Into<PathBuf>) -> Self {
        self.options.jars = folder.into();
        self
    }

    /// Opens a second port, for TLS ([`secure_address`](ApacheServer::secure_address)).
    ///
    /// The server shows a certificate that `authority` issues to it for `127.0.0.1`, and it trusts the clients'
    /// certificates of the same authority. The plain port stays. All connections are served by Netty then.
    pub fn tls(mut self, authority: &TestAuthority) -> Self {
        self.security.authority = Some(authority.clone());
        self
    }

    /// Sets the certificate that the server shows, for instance one that expired. It needs [`tls`](Self::tls).
    pub fn server_certificate(mut self, certificate: &TestCertificate) -> Self {
        self.security.certificate = Some(certificate.clone());
        self
    }

    /// Sets whether clients show a certificate. The default is [`ClientAuth::Need`]. It needs [`tls`](Self::tls).
    pub const fn client_auth(mut self, client_auth: ClientAuth) -> Self {
        self.security.client_auth = Some(client_auth);
        self
    }

    /// Adds a user who may authenticate with SASL's mechanism DIGEST-MD5. ZooKeeper knows him as `sasl:<user>`.
    ///
    /// A user is made of ASCII letters, digits, `_`, `-` and `.`; a password of visible ASCII without `"`, `\` and `$`.
    pub fn digest_sasl(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.security.sasl_users.push((user.into(), password.into()));
        self
    }

    /// Refuses the requests of clients that have not authenticated with SASL (`sessionRequireClientSASLAuth`).
    ///
    /// They get a session, which ends at their first request. It needs [`digest_sasl`](Self::digest_sasl).
    pub const fn require_sasl(mut self) -> Self {
        self.security.requires_sasl = true;
        self
    }

    /// Starts the server and waits until it serves, on both ports if there are two.
    ///
    /// # Errors
    /// - [`ApacheError::InvalidOption`] for a tick under a millisecond, timeouts
    ///   that no session can have, options of TLS or SASL that lack what they need, and
    ///   a user or a password with other characters than those above.
    /// - [`ApacheError::Certificate`] if none can be made for the server.
    /// - [`ApacheError::NotInstalled`] without Java or without Apache ZooKeeper.
    /// - [`ApacheError::Ended`] or [`ApacheError::NotServing`] if the server does not
    ///   come up within a minute.
    /// - [`ApacheError::Io`] if a file, a port or the process cannot be had.
    pub fn start(self) -> Result<ApacheServer, ApacheError> {
        self.security.check()?;
        self.options.start(|launcher| self.start_once(launcher))
    }

    fn start_once(&self, mut launcher: Launcher) -> Result<ApacheServer, ApacheError> {
        let folder = new_folder()?;
        let addresses = free_addresses(2).map_err(ApacheError::io("find free ports"))?;
        let (address, secure_address) = (addresses[0], addresses[1]);
        let (sasl, argument) = self.security.write_sasl(folder.path())?;
        let tls = self.security.write_tls(folder.path(), secure_address)?;
        let config = format!("{}{sasl}{tls}", self.options.config(folder.path(), address));
        if let Some(argument) = argument {
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
        Ok(ApacheServer { node, version })
    }
}

/// A real Apache ZooKeeper server in a process of its own, for tests.
///
/// It is a standalone server on a free port of `127.0.0.1`. Data and log are in a
/// temporary folder. Nothing is forced to the disk, which makes it quick; a
/// [`restart`](Self::restart) still finds all data and sessions again. A start takes
/// about half a second.
///
/// The server of the operating system is used: Debian's package `zookeeper`, with
/// version 3.8 or later. Where it is missing, [`start`](Self::start) says so.
///
/// It can have a port for TLS, and users who authenticate with SASL: see
/// [`tls`](ApacheServerBuilder::tls) and [`digest_sasl`](ApacheServerBuilder::digest_sasl).
///
/// All calls are synchronous and may be made from any thread. In an asynchronous test
/// [`start`](Self::start) and [`restart`](Self::restart) block its thread meanwhile.
///
/// # The end of the process
/// Dropping the value kills the process, even a frozen one, and removes the folder. If
/// the test process dies without a drop, the operating system kills the server as well.
/// That part needs Linux and `setpriv` (package `util-linux`); elsewhere the server
/// then goes on.
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
}

impl ApacheServer {
    /// Starts a server with the default options and waits until it serves.
    ///
    /// # Errors
    /// As [`ApacheServerBuilder::start`].
    pub fn start() -> Result<Self, ApacheError> {
        Self::builder().start()
    }

    /// Options for a server, to begin with the defaults.
    pub fn builder() -> ApacheServerBuilder {
        ApacheServerBuilder { options: Options::default(), security: Security::default() }
    }

    /// What to give a client: `127.0.0.1:<port>`.
    #[must_use]
    pub fn connect_string(&self) -> String {
        self.address().to_string()
    }

    /// The server's address. It stays the same over a [`restart`](Self::restart).
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.node.address()
    }

    /// The server's port on `127.0.0.1`.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.address().port()
    }

    /// The address of the port for TLS; `None` without [`tls`](ApacheServerBuilder::tls). It stays the same over a
    /// [`restart`](Self::restart).
    #[must_use]
    pub const fn secure_address(&self) -> Option<SocketAddr> {
        self.node.secure_address()
    }

    /// What to give a client that connects over TLS: `127.0.0.1:<port>`; `None` without
    /// [`tls`](ApacheServerBuilder::tls).
    #[must_use]
    pub fn secure_connect_string(&self) -> Option<String> {
        self.secure_address().map(|address| address.to_string())
    }

    /// The version of Apache ZooKeeper, such as `3.8.0`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Kills the server as a crash does, and waits until it is gone.
    ///
    /// Connections break and new ones are refused. A stopped server stays as it is.
    /// Data and sessions are kept for a [`restart`](Self::restart).
    ///
    /// # Errors
    /// [`ApacheError::Io`] if the process cannot be killed.
    pub fn stop(&self) -> Result<(), ApacheError> {
        self.node.stop()
    }

    /// Stops the server if it runs, starts it again on the same port with the same data,
    /// and waits until it serves.
    ///
    /// Sessions live on: their timeouts begin anew when the server is back.
    ///
    /// # Errors
    /// As [`ApacheServerBuilder::start`].
    pub fn restart(&self) -> Result<(), ApacheError> {
        self.node.start()
    }

    /// As [`restart`](Self::restart), with other limits for session timeouts from now on.
    ///
    /// A session that is attached again is granted a timeout within the new limits.
    ///
    /// # Errors
    /// As [`restart`](Self::restart), and [`ApacheError::Io`] if the configuration cannot be written.
    pub fn restart_with_session_timeouts(&self, min: Duration, max: Duration) -> Result<(), ApacheError> {
        self.node.set_options(&[
            ("minSessionTimeout", min.as_millis().to_string()),
            ("maxSessionTimeout", max.as_millis().to_string()),
        ])?;
        self.restart()
    }

    /// Restarts the server, and then the next sequential child of `parent` gets the number
    /// `next`.
    ///
    /// Numbers near their end, 2147483647, cannot be reached by creating nodes: the server is
    /// started and stopped twice, and its snapshot is changed in between. What
    /// [`restart`](Self::restart) keeps is kept. The counterpart is
    /// [`TestingServer::set_next_sequence`](crate::TestingServer::set_next_sequence).
    ///
    /// # Errors
    /// [`ApacheError::NoNode`] if there is no node `parent`; then it is a mere restart. Else as
    /// [`ApacheServerBuilder::start`], and [`ApacheError::Io`] for a snapshot that is not
    /// understood.
    pub fn restart_with_next_sequence(&self, parent: &str, next: i32) -> Result<(), ApacheError> {
        self.node.restart_with_next_sequence(parent, next)
    }

    /// Halts the process (`SIGSTOP`), and waits until it stands still.
    ///
    /// Its connections stay open and new ones are made by the operating system, but
    /// nothing is answered. A frozen server stays as it is.
    ///
    /// # Errors
    /// [`ApacheError::Stopped`] after a [`stop`](Self::stop), and [`ApacheError::Io`]
    /// if the signal cannot be sent.
    pub fn freeze(&self) -> Result<(), ApacheError> {
        self.node.freeze()
    }

    /// Lets a frozen process go on (`SIGCONT`).
    ///
    /// It first answers what came in meanwhile. Sessions whose time ran out while it
    /// stood still end soon, but those clients that it hears from first keep theirs.
    ///
    /// # Errors
    /// [`ApacheError::Stopped`] after a [`stop`](Self::stop), and [`ApacheError::Io`]
    /// if the signal cannot be sent.
    pub fn thaw(&self) -> Result<(), ApacheError> {
        self.node.thaw()
    }
}

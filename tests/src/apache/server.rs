//! A single server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::ask;
use super::error::ApacheError;
use super::launcher::Launcher;
use super::node::{Node, new_folder};
use super::options::{Options, free_addresses};

/// Options of an [`ApacheServer`]; made by [`ApacheServer::builder`].
#[derive(Debug, Clone)]
#[must_use = "nothing happens before `start`"]
pub struct ApacheServerBuilder {
    options: Options,
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

    /// Starts the server and waits until it serves.
    ///
    /// # Errors
    /// - [`ApacheError::InvalidOption`] for a tick under a millisecond, or timeouts
    ///   that no session can have.
    /// - [`ApacheError::NotInstalled`] without Java or without Apache ZooKeeper.
    /// - [`ApacheError::Ended`] or [`ApacheError::NotServing`] if the server does not
    ///   come up within a minute.
    /// - [`ApacheError::Io`] if a file, a port or the process cannot be had.
    pub fn start(self) -> Result<ApacheServer, ApacheError> {
        self.options.start(|launcher| self.start_once(launcher))
    }

    fn start_once(&self, launcher: Launcher) -> Result<ApacheServer, ApacheError> {
        let folder = new_folder()?;
        let address = free_addresses(1).map_err(ApacheError::io("find a free port"))?[0];
        let config = self.options.config(folder.path(), address);
        let node = Node::new(launcher, address, folder, &config)?;
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
        ApacheServerBuilder { options: Options::default() }
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

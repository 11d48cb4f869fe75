//! A ZooKeeper server inside the test's process.
//!
//! It answers as ZooKeeper 3.8 does. The tests state by version what later servers do differently, and `tests/versions`
//! runs them with 3.9.

mod acl;
mod builder;
mod changes;
mod core;
mod four_letter;
mod front;
mod log;
mod multi;
mod reads;
mod sasl;
mod session;
pub(crate) mod simulated;
mod tree;
mod watch;
mod watching;
mod writes;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc as blocking;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;

pub use self::builder::TestingServerBuilder;
pub use self::core::Backup;
use self::core::Core;
use self::front::{Command, Front, Port, serve};
pub use self::log::{LoggedRequest, Traffic};
pub use self::sasl::SaslAnswer;
use crate::wire::{ErrorCode, OpCode};

/// Apache's default `znode.container.checkIntervalMs`.
const DEFAULT_CONTAINER_CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// The time for which [`TestingServer::restart`] leaves the port closed.
const DOWN: Duration = Duration::from_millis(20);

/// A ZooKeeper server inside the test's process.
///
/// It keeps everything in memory, starts without a JVM, listens on a free port of the loopback interface, and
/// behaves like a single Apache ZooKeeper 3.8 server. It runs on a thread with its own runtime and clock: it works from
/// synchronous code, and runs on in real time when the test's runtime is paused or blocked. Every method may be called
/// from any thread, and takes effect before it returns.
///
/// A `CuratorFramework` with sockets does not start on a paused clock: the [guide](crate::guide#paused-time) has the
/// remedies.
///
/// A drop of the server closes its port and all connections, and leaves nothing behind.
///
/// # Faults
/// [`kill_session`](Self::kill_session), [`stop`](Self::stop),
/// [`restart`](Self::restart), [`restart_empty`](Self::restart_empty), [`backup`](Self::backup), [`restore`](Self::restore),
/// [`freeze`](Self::freeze), [`thaw`](Self::thaw), [`stale_reads`](Self::stale_reads),
/// [`set_next_sequence`](Self::set_next_sequence) and [`set_version`](Self::set_version).
///
/// # Differences from Apache
/// - A session ends when its timeout has passed without a packet. Apache rounds up to its next tick.
/// - Quotas and the super-user do not exist. SASL has no mechanism of its own: see [`TestingServerBuilder::sasl`]. An
///   access list may name its users by the scheme `auth` alone.
/// - The four-letter words `gtmk`, `stmk` and `hash` are unknown. `mntr` and `envi` report less, latencies are 0, `dump`
///   leaves out the connection that asks, and nothing is on a disk.
/// - `checkWatches` checks the watches of its own connection. Apache 3.8 succeeds if any connection watches the path.
/// - The empty path is not another name for the root.
/// - A `check` outside of a `multi` gets a reply. Apache replies only if it fails.
/// - A `multiRead` of anything but reads gets the error alone. Apache appends an empty result.
/// - A request to create a session, other than by connecting, is unknown.
/// - An overloaded server holds back the clients that send to it. It closes a connection with 64 MiB of unsent replies
///   and events.
///
/// # Examples
/// ```
/// use curator_test::TestingServer;
///
/// let server = TestingServer::start()?;
/// assert!(server.connect_string().starts_with("127.0.0.1:"));
/// assert_eq!(server.children("/"), Some(vec!["zookeeper".to_owned()]));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct TestingServer {
    front: Arc<Front>,
    address: SocketAddr,
    /// `None` only while the server is dropped.
    commands: Option<mpsc::UnboundedSender<Command>>,
    thread: Option<JoinHandle<()>>,
    /// Ends the freeze; `None` while the server is not frozen.
    frozen: Mutex<Option<blocking::Sender<blocking::Sender<()>>>>,
}

/// Start and addresses.
impl TestingServer {
    /// Starts a server with the default settings on a free port.
    ///
    /// # Errors
    /// The operating system's error if no port or thread can be created.
    pub fn start() -> io::Result<Self> {
        Self::builder().start()
    }

    /// Returns the default settings.
    pub const fn builder() -> TestingServerBuilder {
        TestingServerBuilder::new()
    }

    fn run(core: Core, address: SocketAddr) -> io::Result<Self> {
        let port = Port::reserve(address)?;
        let address = port.address();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let front = Arc::new(Front::new(core));
        let (commands, receiver) = mpsc::unbounded_channel();
        let serving = serve(Arc::clone(&front), port, receiver);
        let thread =
            std::thread::Builder::new().name("testing-server".to_owned()).spawn(move || runtime.block_on(serving))?;
        let server = Self { front, address, commands: Some(commands), thread: Some(thread), frozen: Mutex::new(None) };
        server.listen()?;
        Ok(server)
    }

    /// Returns the connect string: `127.0.0.1:PORT`.
    #[must_use]
    pub fn connect_string(&self) -> String {
        self.address.to_string()
    }

    /// Returns the server's address. A [`restart`](Self::restart) keeps it.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the port of [`address`](Self::address).
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.address.port()
    }
}

/// Faults.
impl TestingServer {
    /// Ends a session at once, as if its time were over: its ephemeral nodes are deleted, watches fire, and its
    /// connection is closed.
    ///
    /// Returns false if the session does not exist.
    #[doc(alias = "KillSession")]
    #[doc(alias = "injectSessionExpiration")]
    pub fn kill_session(&self, session_id: i64) -> bool {
        self.front.kill_session(session_id)
    }

    /// Stops the server: all connections close and the port refuses new ones.
    ///
    /// Data and sessions are kept for [`restart`](Self::restart); in the meantime no session ends. A frozen server is
    /// thawed first.
    pub fn stop(&self) {
        self.thaw();
        let (done, stopped) = blocking::channel();
        // Without its thread the server is down already.
        if self.command(Command::Stop(done)) {
            stopped.recv().ok();
        }
    }

    /// Stops the server if it runs, waits for 20 ms and starts it again on the same port.
    ///
    /// Data and sessions are kept, and every session has its full time again. Connections and their watches are
    /// dropped. Blocks the calling thread in the meantime.
    ///
    /// # Errors
    /// The operating system's error if it does not return the port.
    pub fn restart(&self) -> io::Result<()> {
        self.stop();
        std::thread::sleep(DOWN);
        self.listen()
    }

    /// Restarts the server without its data and sessions, like one with a new disk.
    ///
    /// Transactions count from 0 again. As with Apache, the server disconnects a client that has seen a newer one,
    /// until it has caught up with that; other clients get the reply that their session has expired.
    ///
    /// # Errors
    /// The errors of [`restart`](Self::restart).
    pub fn restart_empty(&self) -> io::Result<()> {
        self.stop();
        self.front.restart_empty();
        std::thread::sleep(DOWN);
        self.listen()
    }

    /// Copies the nodes, the sessions and the number of the newest transaction.
    #[must_use]
    pub fn backup(&self) -> Backup {
        self.front.with_core(|core| core.backup())
    }

    /// Restarts the server with the nodes and sessions of a backup. Later writes and sessions are lost.
    ///
    /// Transactions count from [`Backup::zxid`] again. As with Apache, the server disconnects a client that has seen a
    /// newer one. Use [`Backup::with_zxid`] for servers that accept all clients. Blocks the calling thread for 20 ms.
    ///
    /// # Errors
    /// The errors of [`restart`](Self::restart).
    ///
    /// # Examples
    /// ```
    /// use curator_test::TestingServer;
    ///
    /// let server = TestingServer::start()?;
    /// let backup = server.backup();
    /// // Change nodes here, then continue in the next epoch, as an ensemble does.
    /// server.restore(&backup.with_zxid(1 << 32))?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn restore(&self, backup: &Backup) -> io::Result<()> {
        self.stop();
        self.front.restore(backup);
        std::thread::sleep(DOWN);
        self.listen()
    }

    /// Makes reads lag, as on a server that follows the leader late, or ends that.
    ///
    /// In the meantime a session sees the tree at the time of this call, or at the reply to its newest write or `sync`,
    /// whichever is newer. The start of a session counts as a write. Writes change the present tree. An event comes
    /// when the session sees its change.
    ///
    /// Has no effect if set already. After a [`restart`](Self::restart) reads lag from the state at that time. The
    /// methods for tests, such as [`children`](Self::children), never lag.
    pub fn stale_reads(&self, stale: bool) {
        self.front.set_stale_reads(stale);
    }

    /// Answers the next requests of this operation with an error, and does not carry them out. An overloaded server
    /// answers so with [`ErrorCode::ThrottledOp`], and one that does not know the operation with
    /// [`ErrorCode::Unimplemented`]: then it closes the connection, as Apache does.
    pub fn refuse(&self, op: OpCode, times: usize, error: ErrorCode) {
        self.front.with_core(|core| core.refusals.extend(std::iter::repeat_n((op, error), times)));
    }

    /// Returns the number of requests that are still to be [refused](Self::refuse).
    #[must_use]
    pub fn refusals_left(&self) -> usize {
        self.front.with_core(|core| core.refusals.len())
    }

    /// Halts the server, as `SIGSTOP` does: the system accepts connections and bytes for it, but the server neither
    /// reads nor writes nor ends sessions. Has no effect on a frozen server.
    pub fn freeze(&self) {
        let mut frozen = self.frozen.lock();
        if frozen.is_some() {
            return;
        }
        let (thaw, thawed) = blocking::channel();
        let (done, stopped) = blocking::channel();
        if self.command(Command::Freeze(done, thawed)) && stopped.recv().is_ok() {
            *frozen = Some(thaw);
        }
    }

    /// Resumes a frozen server.
    ///
    /// Its clock has not stopped: overdue sessions end first, and only then does it read the requests that have arrived
    /// in the meantime. Has no effect on a server that is not frozen.
    pub fn thaw(&self) {
        let thaw = self.frozen.lock().take();
        if let Some(thaw) = thaw {
            let (done, thawed) = blocking::channel();
            if thaw.send(done).is_ok() {
                thawed.recv().ok();
            }
        }
    }

    /// Sets the number of the next sequential child of `parent`. Returns false if the node does not exist.
    ///
    /// As in Apache, a child without a number uses one up as well, and the counter stays at 2147483647 once it is
    /// there, so that number repeats. It runs on, to −2147483648 and upwards, only in a `multi` and in a burst of
    /// requests, sent without waiting for replies. Here a burst is one read of the server, at most 8 KiB; with Apache
    /// it depends on timing. `cversion` in the node's `Stat` follows the counter.
    pub fn set_next_sequence(&self, parent: &str, next: i32) -> bool {
        self.front.with_core(|core| core.tree.set_next_sequence(parent, next))
    }

    /// Sets the version of a node's data, without a notification. Returns false if the node does not exist.
    ///
    /// As in Apache, the version behind 2147483647 is −2147483648. A write that names version −1 has no condition.
    pub fn set_version(&self, path: &str, version: i32) -> bool {
        self.front.with_core(|core| core.tree.set_version(path, version))
    }

    fn listen(&self) -> io::Result<()> {
        let (done, listening) = blocking::channel();
        let gone = || io::Error::other("the server's thread is gone");
        if !self.command(Command::Listen(done)) {
            return Err(gone());
        }
        listening.recv().map_err(|_| gone())?
    }

    /// Sends a command. Returns false if the thread has ended.
    fn command(&self, command: Command) -> bool {
        self.commands.as_ref().is_some_and(|commands| commands.send(command).is_ok())
    }
}

/// Reads for tests.
impl TestingServer {
    /// Returns the ids of the live sessions, whether connected or not.
    #[must_use]
    pub fn sessions(&self) -> Vec<i64> {
        self.front.with_core(|core| core.session_ids())
    }

    /// Returns the names of a node's children, sorted. `None` if the node does not exist.
    #[must_use]
    pub fn children(&self, path: &str) -> Option<Vec<String>> {
        let mut names: Vec<_> = self.front.with_core(|core| {
            let node = core.tree.get(path).ok()?;
            Some(node.children().cloned().collect())
        })?;
        names.sort_unstable();
        Some(names)
    }

    /// Returns whether the node exists.
    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        self.front.with_core(|core| core.tree.contains(path))
    }

    /// Returns a node's data; null data shows as empty. `None` if the node does not exist.
    #[must_use]
    pub fn data(&self, path: &str) -> Option<Vec<u8>> {
        self.front.with_core(|core| {
            let node = core.tree.get(path).ok()?;
            Some(node.data.clone().unwrap_or_default())
        })
    }

    /// Returns the number of watches. A connection has at most one of each kind, data and children, on a path; a
    /// persistent watch is one of both kinds.
    #[must_use]
    pub fn watch_count(&self) -> usize {
        self.front.with_core(|core| core.watches.len())
    }

    /// Returns the requests answered so far, the oldest first; the newest million is kept.
    ///
    /// They include connects (as [`CreateSession`](crate::wire::OpCode::CreateSession)) and pings.
    #[must_use]
    pub fn requests(&self) -> Vec<LoggedRequest> {
        self.front.with_core(|core| core.log().to_vec())
    }

    /// Returns the bytes exchanged since the first start of the server.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.front.traffic()
    }

    /// Forgets the requests so far.
    pub fn clear_requests(&self) {
        self.front.with_core(|core| core.log().clear());
    }
}

impl Drop for TestingServer {
    fn drop(&mut self) {
        self.frozen.get_mut().take();
        self.commands.take();
        if let Some(thread) = self.thread.take() {
            // The thread itself has reported its panic.
            thread.join().ok();
        }
    }
}

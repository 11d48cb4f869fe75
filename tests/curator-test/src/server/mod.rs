//! A ZooKeeper server inside the test's process.

mod acl;
mod builder;
mod changes;
mod core;
mod four_letter;
mod front;
mod log;
mod multi;
mod reads;
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
use self::core::Core;
use self::front::{Command, Front, Port, serve};
pub use self::log::{LoggedRequest, Traffic};

/// Apache's default `znode.container.checkIntervalMs`.
const DEFAULT_CONTAINER_CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// How long [`TestingServer::restart`] leaves the port closed.
const DOWN: Duration = Duration::from_millis(20);

/// A ZooKeeper server inside the test's process.
///
/// It keeps everything in memory, starts in about a millisecond, listens on a free
/// port of the loopback interface, and behaves as Apache ZooKeeper 3.8 does with one
/// server. It runs on a thread with a runtime and a clock of its own: it works from
/// synchronous code, and it goes on in real time when the test's runtime is paused
/// or blocked. Every method may be called from any thread; each takes effect before
/// it returns.
///
/// Dropping the server closes everything. Nothing is left behind.
///
/// # Faults
/// [`kill_session`](Self::kill_session), [`stop`](Self::stop),
/// [`restart`](Self::restart), [`restart_empty`](Self::restart_empty),
/// [`freeze`](Self::freeze), [`thaw`](Self::thaw), [`stale_reads`](Self::stale_reads)
/// and [`set_next_sequence`](Self::set_next_sequence).
///
/// # Differences from Apache
/// - A session ends when its timeout has passed without a packet. Apache rounds up to
///   its next tick.
/// - There are no quotas, no SASL and no super-user. Of the four-letter words there are
///   `ruok`, `srvr`, `stat` and `mntr`; the last two say less.
/// - `checkWatches` looks at the watches of the connection that asks. Apache 3.8 says
///   yes if anyone watches the path.
/// - The empty path is no other name for the root.
/// - A `check` outside of a `multi` is answered. Apache answers only if it fails.
/// - A `multiRead` of anything but reads is answered with the error alone. Apache puts
///   an empty result behind it.
/// - A request to create a session, other than by connecting, is unknown.
/// - A server that does not keep up holds back the clients that send to it, and closes
///   the connection of one that lets 64 MiB of answers and events wait.
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
    /// What ends the freeze, while there is one.
    frozen: Mutex<Option<blocking::Sender<blocking::Sender<()>>>>,
}

/// Starting and finding it.
impl TestingServer {
    /// Starts a server with the default settings on a free port.
    ///
    /// # Errors
    /// What the operating system says if there is no port or no thread to be had.
    pub fn start() -> io::Result<Self> {
        Self::builder().start()
    }

    /// Begins with the default settings.
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

    /// What a client is given to connect: `127.0.0.1:PORT`.
    #[must_use]
    pub fn connect_string(&self) -> String {
        self.address.to_string()
    }

    /// Where the server listens. It stays the same over [`restart`](Self::restart).
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The port of [`address`](Self::address).
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.address.port()
    }
}

/// Faults.
impl TestingServer {
    /// Ends a session at once, as if its time were over: its ephemeral nodes are
    /// deleted, watches fire, and its connection is closed.
    ///
    /// False if there is no such session.
    pub fn kill_session(&self, session_id: i64) -> bool {
        self.front.kill_session(session_id)
    }

    /// Takes the server down: all connections close and the port refuses new ones.
    ///
    /// Data and sessions are kept for [`restart`](Self::restart); meanwhile no session
    /// ends. A frozen server is thawed first.
    pub fn stop(&self) {
        self.thaw();
        let (done, stopped) = blocking::channel();
        // Without a thread the server is as down as can be.
        if self.command(Command::Stop(done)) {
            stopped.recv().ok();
        }
    }

    /// Takes the server down unless it is, waits for 20 ms and brings it back on the
    /// same port.
    ///
    /// Data and sessions are as before, and every session has its full time again.
    /// Connections and their watches are gone. Blocks the calling thread meanwhile.
    ///
    /// # Errors
    /// What the operating system says if it does not give the port back.
    pub fn restart(&self) -> io::Result<()> {
        self.stop();
        std::thread::sleep(DOWN);
        self.listen()
    }

    /// As [`restart`](Self::restart), but all data and sessions are lost, as when the
    /// disk is new.
    ///
    /// Transactions count from 0 again. As with Apache, the server hangs up on a client
    /// that says it has seen a newer one, until it has caught up with that; to others it
    /// says that their session has expired.
    ///
    /// # Errors
    /// As [`restart`](Self::restart).
    pub fn restart_empty(&self) -> io::Result<()> {
        self.stop();
        self.front.restart_empty();
        std::thread::sleep(DOWN);
        self.listen()
    }

    /// Makes reads lag behind, as those of clients whose server follows the leader late,
    /// or lets them see everything again.
    ///
    /// While it is on, a session sees the tree as it was when this was switched on, or
    /// as it was at the answer to the session's newest write or `sync`, whichever is
    /// newer; for a session that began later, its beginning counts as a write. Writes
    /// work on the tree as it is. Events come when the session sees what they tell of.
    ///
    /// Without effect if it is so already. A [`restart`](Self::restart) lets everyone
    /// see how it is then; from there reads lag behind again. What tests look at, such
    /// as [`children`](Self::children), never lags.
    pub fn stale_reads(&self, stale: bool) {
        self.front.set_stale_reads(stale);
    }

    /// Stops the server in its tracks, as `SIGSTOP` does: the system goes on accepting
    /// connections and taking bytes for it, but the server neither reads nor writes
    /// nor ends sessions. Without effect if it is frozen already.
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

    /// Lets a frozen server go on.
    ///
    /// Its clock has not stood still: sessions whose time is over end first, and only
    /// then are the requests read that have come in meanwhile. Without effect if the
    /// server is not frozen.
    pub fn thaw(&self) {
        let thaw = self.frozen.lock().take();
        if let Some(thaw) = thaw {
            let (done, thawed) = blocking::channel();
            if thaw.send(done).is_ok() {
                thawed.recv().ok();
            }
        }
    }

    /// Sets the number that the next sequential child of `parent` gets. False if there
    /// is no such node.
    ///
    /// As in Apache, a child without a number uses one up as well, and the counter
    /// stays at 2147483647 once it is there: the number is given out again and again.
    /// Only in a burst of requests, sent without waiting for answers, and in a `multi`
    /// does it run on, to −2147483648 and upwards. Here a burst is what the server finds
    /// in one read, at most 8 KiB; with Apache it is a matter of luck.
    /// `cversion` in the node's `Stat` follows the counter.
    pub fn set_next_sequence(&self, parent: &str, next: i32) -> bool {
        self.front.with_core(|core| core.tree.set_next_sequence(parent, next))
    }

    fn listen(&self) -> io::Result<()> {
        let (done, listening) = blocking::channel();
        let gone = || io::Error::other("the server's thread is gone");
        if !self.command(Command::Listen(done)) {
            return Err(gone());
        }
        listening.recv().map_err(|_| gone())?
    }

    /// False if the thread is gone.
    fn command(&self, command: Command) -> bool {
        self.commands.as_ref().is_some_and(|commands| commands.send(command).is_ok())
    }
}

/// What tests look at.
impl TestingServer {
    /// The live sessions, by id, whether connected or not.
    #[must_use]
    pub fn sessions(&self) -> Vec<i64> {
        self.front.with_core(|core| core.session_ids())
    }

    /// The names of a node's children, sorted. `None` if there is no such node.
    #[must_use]
    pub fn children(&self, path: &str) -> Option<Vec<String>> {
        let mut names: Vec<_> = self.front.with_core(|core| {
            let node = core.tree.get(path).ok()?;
            Some(node.children().cloned().collect())
        })?;
        names.sort_unstable();
        Some(names)
    }

    /// Whether there is such a node.
    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        self.front.with_core(|core| core.tree.contains(path))
    }

    /// A node's data; null data shows as none. `None` if there is no such node.
    #[must_use]
    pub fn data(&self, path: &str) -> Option<Vec<u8>> {
        self.front.with_core(|core| {
            let node = core.tree.get(path).ok()?;
            Some(node.data.clone().unwrap_or_default())
        })
    }

    /// How many watches are set. A connection has at most one of each kind, data and
    /// children, on a path; a persistent watch is one of both kinds.
    #[must_use]
    pub fn watch_count(&self) -> usize {
        self.front.with_core(|core| core.watches.len())
    }

    /// The requests answered so far, the oldest first; the newest million is kept.
    ///
    /// Connects (as [`CreateSession`](crate::wire::OpCode::CreateSession)) and pings
    /// are among them.
    #[must_use]
    pub fn requests(&self) -> Vec<LoggedRequest> {
        self.front.with_core(|core| core.log().to_vec())
    }

    /// How many bytes were exchanged since the server was started for the first time.
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
            // A panic there has been reported by the thread itself.
            thread.join().ok();
        }
    }
}

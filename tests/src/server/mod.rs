//! A ZooKeeper server inside the test's process.

mod acl;
mod core;
mod front;
mod log;
mod requests;
mod session;
pub(crate) mod simulated;
mod tree;
mod watch;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc as blocking;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tokio::sync::mpsc;

use self::core::{Core, Settings};
use self::front::{Command, Front, Port, serve};
pub use self::log::LoggedRequest;

/// Apache's default `tickTime`.
const DEFAULT_TICK: Duration = Duration::from_secs(2);
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
/// [`restart`](Self::restart), [`freeze`](Self::freeze), [`thaw`](Self::thaw) and
/// [`set_next_sequence`](Self::set_next_sequence).
///
/// # Differences from Apache
/// - A session ends when its timeout has passed without a packet. Apache rounds up to
///   its next tick.
/// - `multi`, persistent watches (`addWatch`), `reconfig`, `getEphemerals`,
///   `getAllChildrenNumber` and `whoAmI` are answered with `Unimplemented`. Nodes with
///   a time to live are as well, as Apache does by default.
/// - There are no quotas, no SASL, no super-user and no four-letter words.
/// - An empty container is never deleted. Apache looks for them once a minute.
/// - `checkWatches` looks at the watches of the connection that asks. Apache 3.8 says
///   yes if anyone watches the path.
/// - A request whose body cannot be read is answered with `MarshallingError`, and the
///   empty path is no other name for the root.
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

/// Settings for a [`TestingServer`].
#[derive(Debug, Clone)]
#[must_use = "nothing starts until `start` is called"]
pub struct TestingServerBuilder {
    port: u16,
    tick: Duration,
    session_timeouts: Option<(Duration, Duration)>,
}

impl TestingServerBuilder {
    /// The port to listen on. The default, 0, takes a free one.
    pub const fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Apache's `tickTime`, 2 s by default. A session's timeout is at least two and at
    /// most twenty ticks, unless [`session_timeouts`](Self::session_timeouts) is set.
    pub const fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// The shortest and the longest session timeout that a client gets, whatever it
    /// asks for. In whole milliseconds: the wire knows nothing finer.
    pub const fn session_timeouts(mut self, min: Duration, max: Duration) -> Self {
        self.session_timeouts = Some((min, max));
        self
    }

    /// Starts the server.
    ///
    /// # Errors
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for session timeouts below 1 ms,
    /// above `i32::MAX` ms, or with the minimum above the maximum; and what the
    /// operating system says if the port is taken or there is no room for a thread.
    pub fn start(self) -> io::Result<TestingServer> {
        let (min, max) =
            self.session_timeouts.unwrap_or_else(|| (self.tick.saturating_mul(2), self.tick.saturating_mul(20)));
        let longest = Duration::from_millis(i32::MAX as u64);
        if min < Duration::from_millis(1) || min > max || max > longest {
            let message = format!("session timeouts from {min:?} to {max:?} are not possible");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let epoch_ms = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
        let core = Core::new(Settings {
            min_session_timeout: min,
            max_session_timeout: max,
            first_session_id: first_session_id(epoch_ms),
            epoch_ms,
        });
        TestingServer::run(core, SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)))
    }
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
        TestingServerBuilder { port: 0, tick: DEFAULT_TICK, session_timeouts: None }
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
    /// children, on a path.
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

/// The first session's id, made as Apache makes it: the number of the server in the
/// top byte, then the time. Servers of one process have numbers of their own.
fn first_session_id(epoch_ms: i64) -> i64 {
    static SERVERS: AtomicI64 = AtomicI64::new(0);
    let server = SERVERS.fetch_add(1, Ordering::Relaxed) % 127 + 1;
    (server << 56) | ((epoch_ms << 16) & 0x00ff_ffff_ffff_ffff)
}

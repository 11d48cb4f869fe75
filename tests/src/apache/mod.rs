//! Real Apache ZooKeeper servers for tests.

mod cluster;
mod link;

pub use cluster::{ApacheCluster, ApacheClusterBuilder};

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{LazyLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rand::Rng as _;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use tempfile::TempDir;

const MAIN_CLASS: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";
const DEBIAN_JARS: &str = "/usr/share/java";
/// How long a server may take until it serves. It takes half a second on an idle machine.
const START_LIMIT: Duration = Duration::from_secs(60);
const POLL_PAUSE: Duration = Duration::from_millis(10);
/// A command sent while the server starts may never be answered; the next one is.
const COMMAND_LIMIT: Duration = Duration::from_millis(250);
/// How many ports are tried before the start fails.
const PORT_TRIES: usize = 100;
/// How often a start is repeated when another process took the port first.
const START_TRIES: usize = 3;

/// Why an [`ApacheServer`] could not be started or steered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApacheError {
    /// Java or Apache ZooKeeper is not installed.
    #[error(
        "{what} not found: install Java and Apache ZooKeeper, \
         on Debian and Ubuntu with `apt-get install zookeeper`"
    )]
    NotInstalled {
        /// What is missing.
        what: String,
    },
    /// An option of the [`ApacheServerBuilder`] makes no sense.
    #[error("{0}")]
    InvalidOption(&'static str),
    /// The operating system refused something.
    #[error("failed to {action}: {source}")]
    Io {
        /// What was being done.
        action: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
    /// The process ended before it served.
    #[error("Apache ZooKeeper ended at its start with {status}; its log ends with:\n{log}")]
    Ended {
        /// How it ended.
        status: ExitStatus,
        /// The last lines of its log.
        log: String,
    },
    /// The process runs, but did not serve in time.
    #[error("Apache ZooKeeper did not serve within {waited:?}; its log ends with:\n{log}")]
    NotServing {
        /// How long it was waited for.
        waited: Duration,
        /// The last lines of its log.
        log: String,
    },
    /// The server was stopped before.
    #[error("Apache ZooKeeper is stopped")]
    Stopped,
}

impl ApacheError {
    fn io(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, source }
    }
}

/// Options of an [`ApacheServer`]; made by [`ApacheServer::builder`].
#[derive(Debug, Clone)]
#[must_use = "nothing happens before `start`"]
pub struct ApacheServerBuilder {
    tick: Duration,
    session_timeouts: Option<(Duration, Duration)>,
    java: Option<PathBuf>,
    jars: PathBuf,
}

impl ApacheServerBuilder {
    /// Sets the server's unit of time (`tickTime`). The default is one second.
    ///
    /// The server looks for expired sessions once in a tick: a session ends up to
    /// one tick after its time-out. A short tick makes that more exact.
    pub const fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// Sets the shortest and the longest session timeout that the server grants.
    ///
    /// A client that asks for less or more gets the nearest of the two. The default
    /// is Apache's: 2 and 20 ticks.
    pub const fn session_timeouts(mut self, min: Duration, max: Duration) -> Self {
        self.session_timeouts = Some((min, max));
        self
    }

    /// Sets the Java program. The default is `$JAVA_HOME/bin/java` if that variable
    /// is set, else the `java` on the search path.
    pub fn java(mut self, program: impl Into<PathBuf>) -> Self {
        self.java = Some(program.into());
        self
    }

    /// Sets the folder of `zookeeper.jar`. The default is Debian's `/usr/share/java`.
    ///
    /// The manifest of that jar must name the jars that it needs, as Debian's does.
    pub fn jars(mut self, folder: impl Into<PathBuf>) -> Self {
        self.jars = folder.into();
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
        self.check()?;
        let launcher = Launcher::find(self.java.as_deref(), &self.jars)?;
        let mut tries = START_TRIES;
        loop {
            tries -= 1;
            match self.start_once(launcher.clone()) {
                // Another process may take the port between our look and the bind.
                Err(ApacheError::Ended { log, .. }) if tries > 0 && log.contains("in use") => {}
                done => return done,
            }
        }
    }

    fn check(&self) -> Result<(), ApacheError> {
        let in_range = |time: Duration| {
            let millis = time.as_millis();
            (1..=i32::MAX as u128).contains(&millis)
        };
        if !in_range(self.tick) {
            return Err(ApacheError::InvalidOption("the tick is not 1 ms to 24 days"));
        }
        if let Some((min, max)) = self.session_timeouts {
            if !in_range(min) || !in_range(max) {
                return Err(ApacheError::InvalidOption("a session timeout is not 1 ms to 24 days"));
            }
            if min > max {
                return Err(ApacheError::InvalidOption("the shortest session timeout is above the longest"));
            }
        }
        Ok(())
    }

    fn start_once(&self, launcher: Launcher) -> Result<ApacheServer, ApacheError> {
        let server = self.prepare(launcher, "")?;
        server.launch(&mut server.child.lock())?;
        let version = server.ask_version()?;
        Ok(ApacheServer { version, ..server })
    }

    /// A server that is not started, with further lines in its configuration.
    fn prepare(&self, launcher: Launcher, lines: &str) -> Result<ApacheServer, ApacheError> {
        let folder = tempfile::Builder::new()
            .prefix("curator-test-apache-")
            .tempdir()
            .map_err(ApacheError::io("make a temporary folder"))?;
        let address = free_address().map_err(ApacheError::io("find a free port"))?;
        fs::write(config_file(folder.path()), self.config(folder.path(), address) + lines)
            .map_err(ApacheError::io("write the configuration"))?;
        Ok(ApacheServer { launcher, address, child: Mutex::new(None), version: String::new(), folder })
    }

    fn config(&self, folder: &Path, address: SocketAddr) -> String {
        let mut config = format!(
            "tickTime={}\n\
             dataDir={}\n\
             clientPortAddress={}\n\
             clientPort={}\n\
             maxClientCnxns=0\n\
             admin.enableServer=false\n\
             4lw.commands.whitelist=*\n\
             autopurge.purgeInterval=0\n",
            self.tick.as_millis(),
            data_folder(folder).display(),
            address.ip(),
            address.port(),
        );
        if let Some((min, max)) = self.session_timeouts {
            // Writing to a string cannot fail.
            let _ = writeln!(config, "minSessionTimeout={}", min.as_millis());
            let _ = writeln!(config, "maxSessionTimeout={}", max.as_millis());
        }
        config
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
    launcher: Launcher,
    address: SocketAddr,
    child: Mutex<Option<Process>>,
    version: String,
    // Last: removed after the process was killed.
    folder: TempDir,
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
        ApacheServerBuilder {
            tick: Duration::from_secs(1),
            session_timeouts: None,
            java: None,
            jars: PathBuf::from(DEBIAN_JARS),
        }
    }

    /// What to give a client: `127.0.0.1:<port>`.
    #[must_use]
    pub fn connect_string(&self) -> String {
        self.address.to_string()
    }

    /// The server's address. It stays the same over a [`restart`](Self::restart).
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The server's port on `127.0.0.1`.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.address.port()
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
        stop_in(&mut self.child.lock())
    }

    /// Stops the server if it runs, starts it again on the same port with the same data,
    /// and waits until it serves.
    ///
    /// Sessions live on: their timeouts begin anew when the server is back.
    ///
    /// # Errors
    /// As [`ApacheServerBuilder::start`].
    pub fn restart(&self) -> Result<(), ApacheError> {
        let mut child = self.child.lock();
        stop_in(&mut child)?;
        self.launch(&mut child)
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
        self.child.lock().as_ref().ok_or(ApacheError::Stopped)?.freeze().map_err(ApacheError::io("freeze the server"))
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
        self.child
            .lock()
            .as_ref()
            .ok_or(ApacheError::Stopped)?
            .signal(Signal::CONT)
            .map_err(ApacheError::io("thaw the server"))
    }

    fn launch(&self, child: &mut Option<Process>) -> Result<(), ApacheError> {
        self.begin(child)?;
        match child {
            Some(process) => self.wait_until_serving(process).inspect_err(|_| drop(child.take())),
            None => Err(ApacheError::Stopped),
        }
    }

    /// Starts the process and waits for nothing.
    fn begin(&self, child: &mut Option<Process>) -> Result<(), ApacheError> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(log_file(self.folder.path()))
            .map_err(ApacheError::io("open the server's log"))?;
        let command = self
            .launcher
            .command(&config_file(self.folder.path()), log)
            .map_err(ApacheError::io("open the server's log"))?;
        *child = Some(Process(spawn(command).map_err(ApacheError::io("start Java"))?));
        Ok(())
    }

    /// Says so if the process has ended by itself.
    fn check_running(&self) -> Result<(), ApacheError> {
        let mut child = self.child.lock();
        let Some(process) = child.as_mut() else { return Ok(()) };
        match process.0.try_wait().map_err(ApacheError::io("look at the server"))? {
            Some(status) => Err(ApacheError::Ended { status, log: self.log_end() }),
            None => Ok(()),
        }
    }

    fn wait_until_serving(&self, process: &mut Process) -> Result<(), ApacheError> {
        let began = Instant::now();
        // Names the data folder, so that no other server on this port is taken for ours.
        let ours = format!("dataDir={}", data_folder(self.folder.path()).display());
        loop {
            if command(self.address, "conf").is_ok_and(|answer| answer.contains(&ours)) {
                return Ok(());
            }
            let ended = process.0.try_wait();
            if let Some(status) = ended.map_err(ApacheError::io("look at the server"))? {
                let log = self.log_end();
                return Err(ApacheError::Ended { status, log });
            }
            let waited = began.elapsed();
            if waited > START_LIMIT {
                let log = self.log_end();
                return Err(ApacheError::NotServing { waited, log });
            }
            thread::sleep(POLL_PAUSE);
        }
    }

    fn ask_version(&self) -> Result<String, ApacheError> {
        let answer = command(self.address, "srvr").map_err(ApacheError::io("ask for the version"))?;
        // "Zookeeper version: 3.8.0-${mvngit.commit.id}, built on …"
        let version = answer.trim_start_matches(|c: char| !c.is_ascii_digit());
        let end = version.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(version.len());
        Ok(version[..end].to_owned())
    }

    /// The last lines of the log, or why there are none.
    fn log_end(&self) -> String {
        let log = match fs::read(log_file(self.folder.path())) {
            Ok(log) => log,
            Err(error) => return format!("(the log cannot be read: {error})"),
        };
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

fn stop_in(child: &mut Option<Process>) -> Result<(), ApacheError> {
    match child.as_mut().map_or(Ok(()), Process::kill) {
        Ok(()) => {
            *child = None;
            Ok(())
        }
        Err(source) => Err(ApacheError::io("stop the server")(source)),
    }
}

fn config_file(folder: &Path) -> PathBuf {
    folder.join("zoo.cfg")
}

fn data_folder(folder: &Path) -> PathBuf {
    folder.join("data")
}

fn log_file(folder: &Path) -> PathBuf {
    folder.join("zookeeper.log")
}

/// Which programs and jars start a server.
#[derive(Debug, Clone)]
struct Launcher {
    java: PathBuf,
    class_path: String,
}

impl Launcher {
    fn find(java: Option<&Path>, jars: &Path) -> Result<Self, ApacheError> {
        let java = match java {
            Some(program) => program.to_owned(),
            None => std::env::var_os("JAVA_HOME")
                .map_or_else(|| PathBuf::from("java"), |home| PathBuf::from(home).join("bin/java")),
        };
        // A program without a folder is looked for on the search path.
        let found = if java.components().count() > 1 {
            java.is_file()
        } else {
            std::env::var_os("PATH")
                .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(&java).is_file()))
        };
        if !found {
            let what = format!("Java ({})", java.display());
            return Err(ApacheError::NotInstalled { what });
        }
        let server = jars.join("zookeeper.jar");
        if !server.is_file() {
            let what = server.display().to_string();
            return Err(ApacheError::NotInstalled { what });
        }
        let mut class_path = server.display().to_string();
        // Writes the log to standard error. Without it there is none.
        let log = jars.join("slf4j-simple.jar");
        if log.is_file() {
            class_path = format!("{class_path}:{}", log.display());
        }
        Ok(Self { java, class_path })
    }

    fn command(&self, config: &Path, log: fs::File) -> io::Result<Command> {
        let mut command = if *DIES_WITH_PARENT {
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "KILL"]).arg(&self.java);
            command
        } else {
            Command::new(&self.java)
        };
        command
            .args(["-Xmx256m", "-XX:+UseSerialGC", "-Xshare:auto"])
            .arg("-XX:TieredStopAtLevel=1")
            .arg("-Dzookeeper.forceSync=no")
            .arg("-Dzookeeper.jmx.log4j.disable=true")
            // One thread for all connections. With several, two that attach to one session at
            // the same moment can leave the server with a connection that it never answers.
            .arg("-Dzookeeper.nio.numSelectorThreads=1")
            .arg("-Dzookeeper.nio.numWorkerThreads=0")
            // Servers that disagree about who leads talk again soon, not after a minute.
            .arg("-Dzookeeper.fastleader.minNotificationInterval=100")
            .arg("-Dzookeeper.fastleader.maxNotificationInterval=1000")
            .arg("-Dorg.slf4j.simpleLogger.showDateTime=true")
            .arg("-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS")
            .args(["-cp", &self.class_path, MAIN_CLASS])
            .arg(config)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        Ok(command)
    }
}

/// Whether `setpriv` is there and can make a process die with the one that started it.
static DIES_WITH_PARENT: LazyLock<bool> = LazyLock::new(|| {
    cfg!(target_os = "linux")
        && Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "true"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
});

type Spawn = (Command, mpsc::SyncSender<io::Result<Child>>);

/// Starts processes from a thread that lives as long as this process.
///
/// Linux takes the end of the *thread* that started a process for the end of its parent,
/// and the thread of one test may end long before a server that the next test shares.
static SPAWNER: LazyLock<Option<mpsc::Sender<Spawn>>> = LazyLock::new(|| {
    let (sender, receiver) = mpsc::channel::<Spawn>();
    thread::Builder::new()
        .name("apache-spawner".to_owned())
        .spawn(move || {
            for (mut command, answer) in receiver {
                // The one who asked waits for it: this cannot fail.
                drop(answer.send(command.spawn()));
            }
        })
        .ok()
        .map(|_| sender)
});

fn spawn(command: Command) -> io::Result<Child> {
    let gone = || io::Error::other("no thread to start a process from");
    let (sender, receiver) = mpsc::sync_channel(1);
    let spawner = SPAWNER.as_ref().ok_or_else(gone)?;
    spawner.send((command, sender)).map_err(|_| gone())?;
    receiver.recv().map_err(|_| gone())?
}

/// A child process that is killed when dropped.
#[derive(Debug)]
struct Process(Child);

impl Process {
    fn pid(&self) -> io::Result<Pid> {
        // Not waited for yet, so that the number is still this child's.
        i32::try_from(self.0.id())
            .ok()
            .and_then(Pid::from_raw)
            .ok_or_else(|| io::Error::other("the process has no number"))
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(rustix::process::kill_process(self.pid()?, signal)?)
    }

    fn freeze(&self) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        // Reported when every thread stands still. `NOWAIT` leaves the end of the
        // process, should it have ended, to be seen by `Child`.
        let what = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        rustix::process::waitid(WaitId::Pid(self.pid()?), what)?;
        Ok(())
    }

    fn kill(&mut self) -> io::Result<()> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // What cannot be killed is gone already.
        drop(self.kill());
    }
}

/// Sends a four-letter command and reads the answer.
fn command(address: SocketAddr, word: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, COMMAND_LIMIT)?;
    stream.set_read_timeout(Some(COMMAND_LIMIT))?;
    stream.write_all(word.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// A free port below those that the system gives to outgoing connections.
///
/// One of theirs could be taken by any client while the server is stopped, and a client
/// that tries it then can even connect to itself.
fn free_address() -> io::Result<SocketAddr> {
    let mut random = rand::rng();
    let mut tries = PORT_TRIES;
    loop {
        tries -= 1;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, random.random_range(15_000..32_000)));
        match TcpListener::bind(address) {
            Ok(_) => return Ok(address),
            Err(error) if tries == 0 => return Err(error),
            Err(_) => {}
        }
    }
}

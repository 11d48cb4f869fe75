//! The start of a server's process.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, mpsc};
use std::thread;

use super::error::ApacheError;

const MAIN_CLASS: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";
const TLS_JAR: &str = "netty-codec.jar";

/// The programs and jars that start a server.
#[derive(Debug, Clone)]
pub(super) struct Launcher {
    java: PathBuf,
    class_path: String,
    compiles_fully: bool,
    arguments: Vec<String>,
}

impl Launcher {
    pub(super) fn find(java: Option<&Path>, jars: &Path, compiles_fully: bool) -> Result<Self, ApacheError> {
        let java = match java {
            Some(program) => program.to_owned(),
            None => std::env::var_os("JAVA_HOME")
                .map_or_else(|| PathBuf::from("java"), |home| PathBuf::from(home).join("bin/java")),
        };
        // A program without a folder is searched for on the search path.
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
        // Writes the log to standard error. Without this jar the server writes no log.
        let log = jars.join("slf4j-simple.jar");
        if log.is_file() {
            class_path = format!("{class_path}:{}", log.display());
        }
        Ok(Self { java, class_path, compiles_fully, arguments: Vec::new() })
    }

    /// Adds the jar that TLS needs and the manifest of Debian's `zookeeper.jar` does not name.
    pub(super) fn add_tls_jar(&mut self, jars: &Path) -> Result<(), ApacheError> {
        let jar = jars.join(TLS_JAR);
        if !jar.is_file() {
            return Err(ApacheError::NotInstalled { what: jar.display().to_string() });
        }
        self.class_path = format!("{}:{}", self.class_path, jar.display());
        Ok(())
    }

    /// Adds an argument of Java.
    pub(super) fn add_argument(&mut self, argument: String) {
        self.arguments.push(argument);
    }

    pub(super) fn command(&self, config: &Path, log: fs::File) -> io::Result<Command> {
        let mut command = if *DIES_WITH_PARENT {
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "KILL"]).arg(&self.java);
            command
        } else {
            Command::new(&self.java)
        };
        if !self.compiles_fully {
            command.arg("-XX:TieredStopAtLevel=1");
        }
        command
            .args(["-Xmx256m", "-XX:+UseSerialGC", "-Xshare:auto"])
            .arg("-Dzookeeper.forceSync=no")
            .arg("-Dzookeeper.jmx.log4j.disable=true")
            // One thread for all connections. With several, two connections that attach to one session at the same
            // moment can leave the server with one that it never answers.
            .arg("-Dzookeeper.nio.numSelectorThreads=1")
            .arg("-Dzookeeper.nio.numWorkerThreads=0")
            // The pause between two tries of an election grows, by default up to a minute.
            .arg("-Dzookeeper.fastleader.maxNotificationInterval=1000")
            .arg("-Dorg.slf4j.simpleLogger.showDateTime=true")
            .arg("-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS")
            .args(&self.arguments)
            .args(["-cp", &self.class_path, MAIN_CLASS])
            .arg(config)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        Ok(command)
    }
}

/// True if `setpriv` exists and can make a process end with its parent.
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
/// Linux takes the end of the *thread* that started a process for the end of its parent. The thread of one test may end
/// long before a server that the next test shares.
static SPAWNER: LazyLock<Option<mpsc::Sender<Spawn>>> = LazyLock::new(|| {
    let (sender, receiver) = mpsc::channel::<Spawn>();
    thread::Builder::new()
        .name("apache-spawner".to_owned())
        .spawn(move || {
            for (mut command, answer) in receiver {
                // The requester waits for the reply, so this cannot fail.
                drop(answer.send(command.spawn()));
            }
        })
        .ok()
        .map(|_| sender)
});

pub(super) fn spawn(command: Command) -> io::Result<Child> {
    let gone = || io::Error::other("no thread to start a process from");
    let (sender, receiver) = mpsc::sync_channel(1);
    let spawner = SPAWNER.as_ref().ok_or_else(gone)?;
    spawner.send((command, sender)).map_err(|_| gone())?;
    receiver.recv().map_err(|_| gone())?
}

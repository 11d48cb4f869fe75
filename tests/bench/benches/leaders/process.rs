//! A process with candidates: Java's Curator, or this program once more.
//!
//! All processes read the clock of the host, which counts nanoseconds from its start.
//!
//! | line to it | its answer |
//! | --- | --- |
//! | `join NAME POLICY SERVERS SESSION_MILLIS PATH` | `joined NAME`: a candidate with a client of its own; the policy is `default` or `session` |
//! | `leave NAME` | `left NAME` |
//! | `queue SIZE SESSIONS SERVERS PATH` | `queued`: so many candidates, one behind the other |
//! | `drain` | `drained NANOS`: each of them has led once and closed its latch |
//!
//! A thread of the process looks at all candidates every 0.2 ms. It says `up NAME NANOS` at the first look that finds a
//! leader, and `down NAME NANOS` with the time of the last look that did.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const JARS: &str = "/usr/share/java/curator-recipes.jar:/usr/share/java/slf4j-nop.jar";
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the time of the clock that all processes read.
pub(crate) fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
}

/// The time for which a candidate's flag said that it leads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Term {
    pub(crate) from: Duration,
    /// The last look that found it; `None` while it leads.
    pub(crate) until: Option<Duration>,
}

/// The terms of each candidate, which all processes fill.
pub(crate) type Terms = Arc<Mutex<BTreeMap<String, Vec<Term>>>>;

/// The compiled program of Java's side.
pub(crate) struct Java(TempDir);

impl Java {
    pub(crate) async fn compile() -> Result<Self> {
        if let Some(missing) = JARS.split(':').find(|jar| !Path::new(jar).exists()) {
            return Err(format!("{missing} not found: apt-get install libcurator-recipes-java").into());
        }
        let classes = tempfile::tempdir()?;
        let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("programs/CuratorLeaders.java");
        let mut compiler = Command::new("javac");
        compiler.args(["-cp", JARS, "-d"]).arg(classes.path()).arg(source);
        let compiled = compiler.output().await.map_err(|error| format!("javac: {error}"))?;
        if !compiled.status.success() {
            return Err(String::from_utf8_lossy(&compiled.stderr).into_owned().into());
        }
        Ok(Self(classes))
    }

    fn command(&self) -> Command {
        let mut java = Command::new("java");
        java.arg("-cp").arg(format!("{}:{JARS}", self.0.path().display())).arg("CuratorLeaders");
        java
    }
}

/// A process with candidates. A drop kills it.
pub(crate) struct Process {
    child: Child,
    input: ChildStdin,
    answers: UnboundedReceiver<String>,
}

impl Process {
    pub(crate) async fn java(java: &Java, terms: &Terms) -> Result<Self> {
        Self::start(java.command(), terms).await
    }

    pub(crate) async fn ours(terms: &Terms) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--candidates");
        Self::start(command, terms).await
    }

    async fn start(mut command: Command, terms: &Terms) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("no pipes".into());
        };
        let (sender, answers) = unbounded_channel();
        tokio::spawn(read(output, sender, Arc::clone(terms)));
        let mut process = Self { child, input, answers };
        process.expect("ready").await?;
        Ok(process)
    }

    /// Sends a line, and returns the answer.
    pub(crate) async fn ask(&mut self, line: &str) -> Result<String> {
        self.input.write_all(format!("{line}\n").as_bytes()).await?;
        let answer = timeout(PATIENCE, self.answers.recv()).await.map_err(|_| format!("no answer to {line:?}"))?;
        Ok(answer.ok_or_else(|| format!("the process has ended before it answered {line:?}"))?)
    }

    pub(crate) async fn tell(&mut self, line: &str, answer: &str) -> Result<()> {
        match self.ask(line).await? {
            given if given == answer => Ok(()),
            given => Err(format!("{line:?}: {given:?}, not {answer:?}").into()),
        }
    }

    async fn expect(&mut self, answer: &str) -> Result<()> {
        match timeout(PATIENCE, self.answers.recv()).await {
            Ok(Some(given)) if given == answer => Ok(()),
            given => Err(format!("{given:?}, not {answer:?}").into()),
        }
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let id = self.child.id().ok_or("the process has ended")?;
        Ok(kill_process(Pid::from_raw(id.try_into()?).ok_or("a process without an id")?, signal)?)
    }

    /// Kills the process as `kill -9` does.
    pub(crate) async fn kill(mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }
}

async fn read(output: ChildStdout, answers: UnboundedSender<String>, terms: Terms) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let words: Vec<_> = line.split(' ').collect();
        let at = |nanos: &str| nanos.parse().map(Duration::from_nanos).unwrap_or_default();
        match words[..] {
            ["up", name, nanos] => {
                let term = Term { from: at(nanos), until: None };
                terms.lock().entry(name.to_owned()).or_default().push(term);
            }
            ["down", name, nanos] => {
                if let Some(term) = terms.lock().get_mut(name).and_then(|terms| terms.last_mut()) {
                    term.until = Some(at(nanos));
                }
            }
            // The receiver is gone only if its process is dropped.
            _ => drop(answers.send(line)),
        }
    }
}

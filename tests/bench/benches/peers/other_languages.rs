//! Peers in other languages: a process of their own that reads what to do.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use async_trait::async_trait;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::peer::{CURATOR, Peer, Result, Run};
use crate::workload::{Outcome, Workload};

const JARS: &str = "/usr/share/java/curator-recipes.jar:/usr/share/java/slf4j-nop.jar";
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Spawned {
    name: &'static str,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    _process: Child,
    _classes: Option<TempDir>,
}

fn source(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(file)
}

impl Spawned {
    /// Java's Curator.
    pub(crate) async fn curator() -> Result<Self> {
        if let Some(missing) = JARS.split(':').find(|jar| !Path::new(jar).exists()) {
            return Err(format!("{missing} not found: apt-get install libcurator-recipes-java").into());
        }
        let classes = tempfile::tempdir()?;
        let mut compiler = Command::new("javac");
        compiler.args(["-cp", JARS, "-d"]).arg(classes.path()).arg(source("CuratorBench.java"));
        let compiled = compiler.output().await.map_err(|error| format!("javac: {error}"))?;
        if !compiled.status.success() {
            return Err(String::from_utf8_lossy(&compiled.stderr).into_owned().into());
        }
        let mut java = Command::new("java");
        java.arg("-cp").arg(format!("{}:{JARS}", classes.path().display())).arg("CuratorBench");
        Self::start(CURATOR, java, Some(classes)).await
    }

    /// Python's kazoo, from Debian.
    pub(crate) async fn kazoo() -> Result<Self> {
        let mut python = Command::new("/usr/bin/python3");
        python.arg(source("kazoo_bench.py"));
        Self::start("kazoo", python, None).await
    }

    async fn start(name: &'static str, mut command: Command, classes: Option<TempDir>) -> Result<Self> {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let (Some(input), Some(output)) = (process.stdin.take(), process.stdout.take()) else {
            return Err("no pipes".into());
        };
        let output = BufReader::new(output).lines();
        let mut peer = Self { name, input, output, _process: process, _classes: classes };
        match peer.line().await? {
            line if line == "ready" => Ok(peer),
            line => Err(format!("it says {line:?}").into()),
        }
    }

    /// Lets as many wait in one session as the run says.
    pub(crate) async fn queue(&mut self, run: &Run) -> Result<()> {
        self.ask(Workload::Drain, run).await?;
        match self.line().await? {
            line if line == "queued" => Ok(()),
            line => Err(format!("it says {line:?}").into()),
        }
    }

    /// Lets those who wait have their turn.
    pub(crate) async fn drain(&mut self) -> Result<Outcome> {
        self.input.write_all(b"go\n").await?;
        self.outcome(Workload::Drain).await
    }

    async fn ask(&mut self, workload: Workload, run: &Run) -> Result<()> {
        let (word, Run { server, path, time, size }) = (workload.word(), run);
        let line = format!("{word} {server} {path} {} {size}\n", time.as_millis());
        Ok(self.input.write_all(line.as_bytes()).await?)
    }

    async fn outcome(&mut self, workload: Workload) -> Result<Outcome> {
        let answer = self.line().await?;
        let numbers = answer.split(' ').map(str::parse).collect::<std::result::Result<Vec<u64>, _>>();
        match (workload, numbers.map_err(|error| format!("{answer:?}: {error}"))?.as_slice()) {
            (Workload::HandOff, times) => {
                Ok(Outcome::Times(times.iter().map(|nanos| Duration::from_nanos(*nanos)).collect()))
            }
            (_, [cycles, nanos]) => Ok(Outcome::Cycles(*cycles, Duration::from_nanos(*nanos))),
            _ => Err(format!("it says {answer:?}").into()),
        }
    }

    async fn line(&mut self) -> Result<String> {
        let line = timeout(PATIENCE, self.output.next_line()).await.map_err(|_| "it says nothing")??;
        Ok(line.ok_or("it has ended")?)
    }
}

#[async_trait]
impl Peer for Spawned {
    fn name(&self) -> &'static str {
        self.name
    }

    fn does(&self, workload: Workload) -> bool {
        // kazoo's readers and writers can wait for each other for ever.
        self.name == CURATOR || !matches!(workload.recipe(), Workload::ReadWrite | Workload::DirectSemaphore)
    }

    async fn run(&mut self, workload: Workload, run: &Run) -> Result<Outcome> {
        // Curator has one protocol, and that is what the other one is measured by.
        let workload = if workload == Workload::DirectSemaphore { Workload::Semaphore } else { workload };
        if workload == Workload::Drain {
            self.queue(run).await?;
            return self.drain().await;
        }
        self.ask(workload, run).await?;
        self.outcome(workload).await
    }
}

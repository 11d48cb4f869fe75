//! Peers in other languages: a process of their own that reads what to do.

use std::time::Duration;

use async_trait::async_trait;
use curator_bench::process::{Java, Process, program};
use tokio::process::Command;

use crate::peer::{CURATOR, Peer, Result, Run};
use crate::workload::{Outcome, Workload};

pub(crate) struct Spawned {
    name: &'static str,
    process: Process,
    /// Its classes, which the process loads when it needs them.
    _java: Option<Java>,
}

impl Spawned {
    /// Java's Curator.
    pub(crate) async fn curator() -> Result<Self> {
        let java = Java::compile("CuratorBench").await?;
        let process = Process::start(java.command(), |_| false).await?;
        Ok(Self { name: CURATOR, process, _java: Some(java) })
    }

    /// Python's kazoo, from Debian.
    pub(crate) async fn kazoo() -> Result<Self> {
        let mut python = Command::new("/usr/bin/python3");
        python.arg(program("kazoo_bench.py"));
        Ok(Self { name: "kazoo", process: Process::start(python, |_| false).await?, _java: None })
    }

    /// Queues as many waiters in one session as the run says.
    pub(crate) async fn queue(&mut self, run: &Run) -> Result<()> {
        self.process.tell(&request(Workload::Drain, run), "queued").await
    }

    /// Gives all waiters their turn.
    pub(crate) async fn drain(&mut self) -> Result<Outcome> {
        outcome(Workload::Drain, &self.process.ask("go").await?)
    }
}

/// Returns the line that asks for a run.
fn request(workload: Workload, run: &Run) -> String {
    let Run { server, path, time, size } = run;
    format!("{} {server} {path} {} {size}", workload.word(), time.as_millis())
}

fn outcome(workload: Workload, answer: &str) -> Result<Outcome> {
    let numbers = answer.split(' ').map(str::parse).collect::<std::result::Result<Vec<u64>, _>>();
    match (workload, numbers.map_err(|error| format!("{answer:?}: {error}"))?.as_slice()) {
        (Workload::HandOff, times) => {
            Ok(Outcome::Times(times.iter().map(|nanos| Duration::from_nanos(*nanos)).collect()))
        }
        (_, [cycles, nanos]) => Ok(Outcome::Cycles(*cycles, Duration::from_nanos(*nanos))),
        _ => Err(format!("it says {answer:?}").into()),
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
        outcome(workload, &self.process.ask(&request(workload, run)).await?)
    }
}

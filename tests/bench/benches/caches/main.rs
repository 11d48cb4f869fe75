//! Caches beside Curator's `CuratorCache` and kazoo's `TreeCache`: `cargo bench -p curator-bench --bench caches`.
//!
//! All stand on one Apache ZooKeeper that does not wait for its disk. Requests and bytes are counted by a proxy before
//! it; the times are measured without the proxy. Each side is a process of its own, with these words:
//!
//! | line to it | its answer |
//! | --- | --- |
//! | `connect COUNT SERVERS` | `connected`: so many clients |
//! | `load PATH NODES` | `NANOS initialized`: each client has a cache of the path, with so many nodes; or `stuck NODES`, if no more come |
//! | `heap` | the bytes in use |
//! | `shows PATH DATA` | `shown`, when each cache has the node with this data |
//! | `record` | `recording`: from now on each change that the cache tells is noted |
//! | `recorded NODES VERSION FILE` | `recorded`, when so many nodes were told with this version; each line of the file is `PATH VERSION NANOS` |
//! | `mutex PATH CYCLES` | the nanoseconds of so many cycles of a mutex (this project alone) |
//! | `mutex-beside PATH CACHED NODES` | the same, of all cycles while a cache is loaded in the same client |
//! | `close` | `closed`: all caches |
//! | `end` | `ended`: all clients |

mod bounces;
mod changes;
mod ground;
mod loads;
mod mutexes;
mod ours;

use std::alloc::System;
use std::process::ExitCode;

use curator_bench::harness::{self, Options, Report};
use curator_bench::process::{Java, Process, Result, program};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio::process::Command;

use crate::ground::Ground;

/// Counts the heap of this project's process.
#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const OURS: &str = "this";
const CURATOR: &str = "Curator";
const KAZOO: &str = "kazoo";

/// The outcome of a load.
enum Load {
    /// The caches have all nodes, and say that they are initialized.
    Complete { seconds: f64 },
    /// A cache has so many nodes, and no more come.
    Stuck { nodes: usize },
}

impl Load {
    /// Fails if the caches have not all nodes.
    fn complete(self) -> Result<()> {
        match self {
            Self::Complete { .. } => Ok(()),
            Self::Stuck { nodes } => Err(format!("no more than {nodes} nodes are loaded").into()),
        }
    }
}

/// An implementation, and its process.
struct Side {
    name: &'static str,
    process: Process,
    /// The classes, which Java loads when it needs them.
    _java: Option<Java>,
}

impl Side {
    /// Begins with so many clients and their caches of a path.
    async fn load(&mut self, clients: usize, servers: &str, path: &str, nodes: usize) -> Result<Load> {
        self.process.tell(&format!("connect {clients} {servers}"), "connected").await?;
        self.load_again(path, nodes).await
    }

    /// Loads caches in the clients that are connected.
    async fn load_again(&mut self, path: &str, nodes: usize) -> Result<Load> {
        let answer = self.process.ask(&format!("load {path} {nodes}")).await?;
        match answer.split_once(' ') {
            Some((nanos, "initialized")) => Ok(Load::Complete { seconds: nanos.parse::<f64>()? / 1e9 }),
            Some(("stuck", at)) => Ok(Load::Stuck { nodes: at.parse()? }),
            _ => Err(format!("{}: {answer}", self.name).into()),
        }
    }

    /// Closes all caches and clients.
    async fn end(&mut self) -> Result<()> {
        self.process.tell("close", "closed").await?;
        self.process.tell("end", "ended").await
    }
}

/// Returns the processes of the sides that are meant, ours first.
async fn sides(options: &Options) -> Result<Vec<Side>> {
    let mut sides = Vec::new();
    for name in [OURS, CURATOR, KAZOO] {
        if !options.has(name) {
            continue;
        }
        let mut java = None;
        let command = match name {
            OURS => {
                let mut command = Command::new(std::env::current_exe()?);
                command.arg("--serve");
                command
            }
            CURATOR => java.insert(Java::compile("CuratorCaches").await?).command(),
            _ => {
                let mut python = Command::new("/usr/bin/python3");
                python.arg(program("kazoo_caches.py"));
                python
            }
        };
        let process = Process::start(command, |_| false).await?;
        sides.push(Side { name, process, _java: java });
    }
    Ok(sides)
}

async fn run(options: Options) -> Result<Report> {
    let (nodes, rounds) = (options.nodes(10_000), options.rounds(5));
    let mut sides = sides(&options).await?;
    let ground = Ground::new().await?;
    println!("Apache ZooKeeper {}, {} rounds", ground.version(), rounds);
    if options.wants("requests") {
        loads::requests(&ground, &mut sides, nodes).await?;
    }
    if options.wants("times") {
        loads::times(&ground, &mut sides, nodes, rounds).await?;
    }
    if options.wants("heap") {
        loads::heap(&ground, &mut sides, nodes).await?;
    }
    if options.wants("bounces") {
        bounces::of_one(&ground, &mut sides, nodes).await?;
    }
    if options.wants("restart") {
        bounces::of_many(&ground, &mut sides, nodes / 10).await?;
    }
    if options.wants("changes") {
        changes::run(&ground, &mut sides, nodes / 10, rounds).await?;
    }
    if options.wants("mutex") {
        mutexes::run(&ground, &mut sides, nodes * 10, rounds).await?;
    }
    Ok(Report::default())
}

#[tokio::main]
async fn main() -> ExitCode {
    harness::main("caches", ours::serve, run).await
}

//! Caches beside Curator's `CuratorCache` and kazoo's `TreeCache`: `cargo bench -p curator-bench --bench caches`.
//!
//! All use one Apache ZooKeeper that does not wait for its disk. Requests and bytes are counted by a proxy before
//! it; the times are measured without the proxy. Each side is a process of its own, with these words:
//!
//! | line to it | its answer |
//! | --- | --- |
//! | `connect COUNT SERVERS` | `connected`: so many clients |
//! | `load PATH NODES` | `NANOS initialized`: each client has a cache of the path, with so many nodes; or `stuck NODES`, if no more come |
//! | `heap` | the bytes in use |
//! | `shows PATH DATA` | `shown`, when each cache has the node with this data |
//! | `record` | `recording`: from now on each change that the cache tells is noted |
//! | `recorded NODES VERSION FILE` | `recorded`, when so many nodes had this version; each line of the file is `PATH VERSION NANOS` |
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

use curator_bench::harness::{self, CURATOR, KAZOO, OURS, Report, Side, Suite};
use curator_bench::process::{Program, Result};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

use crate::ground::Ground;

/// Counts the heap of this project's process.
#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Starts with so many clients and their caches of a path.
async fn load(side: &mut Side, clients: usize, servers: &str, path: &str, nodes: usize) -> Result<f64> {
    side.process.tell(&format!("connect {clients} {servers}"), "connected").await?;
    load_again(side, path, nodes).await
}

/// Loads caches in the clients that are connected. Returns the seconds until they have all nodes.
async fn load_again(side: &mut Side, path: &str, nodes: usize) -> Result<f64> {
    let answer = side.process.ask(&format!("load {path} {nodes}")).await?;
    match answer.split_once(' ') {
        Some((nanos, "initialized")) => Ok(nanos.parse::<f64>()? / 1e9),
        Some(("stuck", nodes)) => Err(format!("{} stops at {nodes} nodes", side.name).into()),
        _ => Err(format!("{}: {answer}", side.name).into()),
    }
}

/// Closes all caches and clients.
async fn end(side: &mut Side) -> Result<()> {
    side.process.tell("close", "closed").await?;
    side.process.tell("end", "ended").await
}

async fn run(suite: Suite) -> Result<Report> {
    let nodes = suite.size.unwrap_or_default();
    let (mut report, mut sides) = (Report::default(), suite.start().await?);
    let ground = Ground::new().await?;
    println!("Apache ZooKeeper {}", ground.version());
    if suite.wants("requests") {
        loads::requests(&ground, &mut sides, nodes, &mut report).await?;
    }
    if suite.wants("times") {
        loads::times(&suite, &ground, &mut sides, &mut report).await?;
    }
    if suite.wants("heap") {
        loads::heap(&ground, &mut sides, nodes, &mut report).await?;
    }
    if suite.wants("bounces") {
        bounces::of_one(&ground, &mut sides, nodes, &mut report).await?;
    }
    if suite.wants("restart") {
        bounces::of_many(&ground, &mut sides, nodes.div_ceil(10), &mut report).await?;
    }
    if suite.wants("changes") {
        changes::run(&suite, &ground, &mut sides, &mut report).await?;
    }
    if suite.wants("mutex") {
        mutexes::run(&suite, &ground, &mut sides, &mut report).await?;
    }
    Ok(report)
}

#[tokio::main]
async fn main() -> ExitCode {
    let suite = Suite {
        name: "caches",
        sides: vec![
            (OURS, Program::Ours),
            (CURATOR, Program::Java("CuratorCaches", "")),
            (KAZOO, Program::Python("kazoo_caches.py")),
        ],
        parts: vec!["requests", "times", "heap", "bounces", "restart", "changes", "mutex"],
        without_rounds: &["requests", "heap", "bounces", "restart"],
        rounds: Some(5),
        warm_up: Some(1),
        size: Some(10_000),
        ..Suite::default()
    };
    harness::main(suite, ours::All::default(), run).await
}

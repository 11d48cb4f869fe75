//! Queues beside Curator's: `cargo bench -p curator-bench --bench queues`.
//!
//! Backlogs of items of 11 bytes on one Apache ZooKeeper that does not wait for its disk. A proxy counts the requests, and
//! the bytes from the server; the times are measured without it. Each side is a process of its own, with these words:
//!
//! | line to it | its answer |
//! | --- | --- |
//! | `connect COUNT SERVERS` | `connected`: so many clients |
//! | `drain MODE PATH ITEMS` | the nanoseconds in which a consumer of each client has taken a part of these items |
//! | `memory PATH ITEMS` | `PEAK END`: the bytes that a drain at most once takes from the heap at most, and after it (this project alone) |
//! | `end` | `ended`: all clients |
//!
//! A mode is `plain` (at most once), `locked`, or `batches` (this project alone): with locks, and several items for each
//! request.
//!
//! `--size` is the largest backlog.

mod drains;
mod ours;

use std::alloc::System;
use std::process::ExitCode;

use curator_bench::harness::{self, CURATOR, OURS, Report, Suite};
use curator_bench::process::{Program, Result};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

/// Counts the heap of this project's process.
#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

async fn run(suite: Suite) -> Result<Report> {
    let (mut report, mut sides) = (Report::default(), suite.start().await?);
    let ground = drains::Ground::new(suite.size.unwrap_or_default()).await?;
    if suite.wants("requests") {
        drains::requests(&ground, &mut sides, &mut report).await?;
    }
    if suite.wants("times") {
        drains::times(&suite, &ground, &mut sides, &mut report).await?;
    }
    if suite.wants("memory") {
        drains::memory(&ground, &mut sides, &mut report).await?;
    }
    Ok(report)
}

#[tokio::main]
async fn main() -> ExitCode {
    let suite = Suite {
        name: "queues",
        sides: vec![(OURS, Program::Ours), (CURATOR, Program::Java("CuratorQueues", ""))],
        parts: vec!["requests", "times", "memory"],
        without_rounds: &["requests", "memory"],
        rounds: Some(5),
        warm_up: Some(1),
        size: Some(100_000),
        ..Suite::default()
    };
    harness::main(suite, ours::All::default(), run).await
}

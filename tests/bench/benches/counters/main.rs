//! Counters beside Curator's `DistributedAtomicLong` and kazoo's `Counter`: `cargo bench -p curator-bench --bench counters`.
//!
//! - Increments per second on one Apache ZooKeeper that does not wait for its disk, with the smallest share of a client.
//!   The sum of all increments is checked. Ids are compared with Curator's increments, its only way to them.
//! - Requests of an increment, by the in-process server's log.
//!
//! Curator counts without pauses between its tries, and with pauses of 10 to 100 ms. Each side is a process of its own,
//! with these words:
//!
//! | line to it | its answer |
//! | --- | --- |
//! | `connect COUNT SERVERS` | `connected`: this number of clients |
//! | `count PATH MILLIS` | `NANOS COUNT COUNT…`: each client has incremented the number at the path for this time; the increments of each |
//! | `share PATH MILLIS TASKS` | the same of tasks that share the object of the first client |
//! | `ids PATH MILLIS` | the same of unique ids (this project alone) |
//! | `end` | `ended`: all clients |

mod ours;
mod rows;

use std::process::ExitCode;

use curator_bench::harness::{self, CURATOR, KAZOO, OURS, Report, Suite};
use curator_bench::process::{Program, Result};

const IDS: &str = "this, unique ids";
const CURATOR_PAUSES: &str = "Curator, with pauses";

async fn run(suite: Suite) -> Result<Report> {
    let mut report = Report::default();
    let mut sides = suite.start().await?;
    if suite.wants("times") {
        rows::times(&suite, &mut sides, &mut report).await?;
    }
    if suite.wants("requests") {
        rows::asked(&mut sides, &mut report).await?;
    }
    Ok(report)
}

#[tokio::main]
async fn main() -> ExitCode {
    let suite = Suite {
        name: "counters",
        sides: vec![
            (OURS, Program::Ours),
            (IDS, Program::Ours),
            (CURATOR, Program::Java("CuratorCounters", "none")),
            (CURATOR_PAUSES, Program::Java("CuratorCounters", "pauses")),
            (KAZOO, Program::Python("kazoo_counters.py")),
        ],
        parts: vec!["times", "requests"],
        without_rounds: &["requests"],
        rounds: Some(7),
        warm_up: Some(2),
        millis: Some(1_000),
        ..Suite::default()
    };
    harness::main(suite, ours::All::default(), run).await
}

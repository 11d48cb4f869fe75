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

use curator_bench::harness::{self, Options, Report};
use curator_bench::process::{Java, Process, Result, program};
use tokio::process::Command;

const OURS: &str = "this";
const IDS: &str = "this, unique ids";
const CURATOR: &str = "Curator";
const CURATOR_PAUSES: &str = "Curator, with pauses";
const KAZOO: &str = "kazoo";

/// An implementation, and its process.
struct Side {
    name: &'static str,
    /// The word for a round of clients.
    verb: &'static str,
    process: Process,
}

async fn start(name: &'static str, java: &Java) -> Result<Side> {
    let verb = if name == IDS { "ids" } else { "count" };
    let command = match name {
        OURS | IDS => return Ok(Side { name, verb, process: harness::ours().await? }),
        KAZOO => {
            let mut python = Command::new("/usr/bin/python3");
            python.arg(program("kazoo_counters.py"));
            python
        }
        _ => {
            let mut command = java.command();
            command.arg(if name == CURATOR { "none" } else { "pauses" });
            command
        }
    };
    Ok(Side { name, verb, process: Process::start(command, |_| false).await? })
}

async fn run(options: Options) -> Result<Report> {
    let mut report = Report::default();
    let java = Java::compile("CuratorCounters").await?;
    let mut sides = Vec::new();
    for name in rows::all() {
        if options.has(name) {
            sides.push(start(name, &java).await?);
        }
    }
    if options.wants("times") {
        rows::times(&mut sides, &options, &mut report).await?;
    }
    if options.wants("requests") {
        rows::asked(&mut sides, options.millis(1_000)).await?;
    }
    Ok(report)
}

#[tokio::main]
async fn main() -> ExitCode {
    harness::main("counters", ours::serve, run).await
}

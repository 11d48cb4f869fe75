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

use clap::Parser;
use curator_bench::process::{Java, Process, Result, exit_code, program};
use tokio::process::Command;

#[derive(Parser)]
#[command(about = "Counters of this project beside Curator's and kazoo's")]
struct Options {
    /// Rounds of each row.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// The time of a round.
    #[arg(long, default_value_t = 1_000)]
    millis: u64,
    /// Only these parts, as often as given: `times`, `requests`.
    #[arg(long)]
    only: Vec<String>,
    /// Only these sides, as often as given.
    #[arg(long)]
    side: Vec<String>,
    /// The program is a process with counters.
    #[arg(long, hide = true)]
    counters: bool,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

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
    let command = match name {
        OURS | IDS => {
            let mut command = Command::new(std::env::current_exe()?);
            command.arg("--counters");
            command
        }
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
    let verb = if name == IDS { "ids" } else { "count" };
    Ok(Side { name, verb, process: Process::start(command, |_| false).await? })
}

async fn run(options: Options) -> Result<()> {
    let is_meant = |part: &str| options.only.is_empty() || options.only.iter().any(|only| only == part);
    let java = Java::compile("CuratorCounters").await?;
    let mut sides = Vec::new();
    for name in rows::all() {
        if options.side.is_empty() || options.side.iter().any(|side| side == name) {
            sides.push(start(name, &java).await?);
        }
    }
    if is_meant("times") {
        rows::times(&mut sides, &rows::Options { rounds: options.rounds, millis: options.millis }).await?;
    }
    if is_meant("requests") {
        rows::asked(&mut sides, options.millis).await?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let work = async move {
        match options.counters {
            true => ours::serve().await,
            false => run(options).await,
        }
        .map(|()| true)
    };
    exit_code(work).await
}

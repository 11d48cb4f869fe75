//! Nodes that stand and groups beside Curator's: `cargo bench -p curator-bench --bench nodes`.
//!
//! - The requests of a registration's life, by the in-process server's log.
//! - The time for which the name is missing, on Apache ZooKeeper: behind the end of a session, and in a partition.
//! - Two processes with one id, and the requests of a group of fifty members.
//!
//! Each side is a process of its own, with these words:
//!
//! | line to it | its answer |
//! | --- | --- |
//! | `connect NAME SERVERS SESSION_MILLIS` | `connected`: a client of this name |
//! | `stand NAME PATH` | `stands`: the client's ephemeral `PersistentNode`, with the name as its data |
//! | `touch NAME` | `touched`: the client has read a node |
//! | `close NAME` | `closed`: that node |
//! | `join NAME PATH ID` | `joined`: the client's `GroupMember`, with the name as its data |
//! | `see COUNT` | `seen`: each member of the process sees so many |
//! | `tell NAME` | all that the member of this client says of its group |
//! | `leave NAME` | `left` |
//! | `end NAME` | `ended`: the client is closed |

mod absences;
mod groups;
mod life;
mod ours;

use std::process::ExitCode;

use curator_bench::harness::{self, Options, Report};
use curator_bench::process::{Java, Process, Result};

/// The name of a side, and its process.
type Side = (&'static str, Process);

/// Both implementations, ours first.
struct Sides {
    java: Java,
    all: [Side; 2],
}

impl Sides {
    async fn start() -> Result<Self> {
        let java = Java::compile("CuratorNodes").await?;
        let all = [("this", harness::ours().await?), ("Curator", javas(&java).await?)];
        Ok(Self { java, all })
    }

    /// Starts one more process of the same side.
    async fn another(&self, side: usize) -> Result<Process> {
        if side == 0 { harness::ours().await } else { javas(&self.java).await }
    }
}

async fn javas(java: &Java) -> Result<Process> {
    Process::start(java.command(), |_| false).await
}

async fn run(options: Options) -> Result<Report> {
    let mut sides = Sides::start().await?;
    if options.wants("life") {
        life::run(&mut sides).await?;
    }
    if options.wants("absences") {
        absences::run(&mut sides, options.rounds(9), options.warm_up(2)).await?;
    }
    if options.wants("groups") {
        groups::run(&mut sides).await?;
    }
    Ok(Report::default())
}

#[tokio::main]
async fn main() -> ExitCode {
    harness::main("nodes", ours::serve, run).await
}

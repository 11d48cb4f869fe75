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

use clap::Parser;
use curator_bench::process::{Java, Process, Result, exit_code};
use tokio::process::Command;

#[derive(Parser)]
#[command(about = "Nodes that stand and groups of this project beside Curator's")]
struct Options {
    /// Rounds of each time.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Only these parts, as often as given: `life`, `absences`, `groups`.
    #[arg(long)]
    only: Vec<String>,
    /// The program is a process with nodes.
    #[arg(long, hide = true)]
    nodes: bool,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

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
        let all = [("this", ours().await?), ("Curator", javas(&java).await?)];
        Ok(Self { java, all })
    }

    /// Starts one more process of the same side.
    async fn another(&self, side: usize) -> Result<Process> {
        if side == 0 { ours().await } else { javas(&self.java).await }
    }
}

async fn ours() -> Result<Process> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--nodes");
    Process::start(command, |_| false).await
}

async fn javas(java: &Java) -> Result<Process> {
    Process::start(java.command(), |_| false).await
}

async fn run(options: Options) -> Result<()> {
    let is_meant = |part: &str| options.only.is_empty() || options.only.iter().any(|only| only == part);
    let mut sides = Sides::start().await?;
    if is_meant("life") {
        life::run(&mut sides).await?;
    }
    if is_meant("absences") {
        absences::run(&mut sides, options.rounds).await?;
    }
    if is_meant("groups") {
        groups::run(&mut sides).await?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let work = async move {
        match options.nodes {
            true => ours::serve().await,
            false => run(options).await,
        }
        .map(|()| true)
    };
    exit_code(work).await
}

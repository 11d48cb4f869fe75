//! Persistent nodes and groups beside Curator's: `cargo bench -p curator-bench --bench nodes`.
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

use curator_bench::harness::{self, CURATOR, OURS, Report, Suite};
use curator_bench::process::{Program, Result};

async fn run(suite: Suite) -> Result<Report> {
    let (mut report, mut sides) = (Report::default(), suite.start().await?);
    if suite.wants("life") {
        life::run(&mut sides, &mut report).await?;
    }
    if suite.wants("absences") {
        absences::run(&suite, &mut sides, &mut report).await?;
    }
    if suite.wants("groups") {
        groups::run(&suite, &mut sides, &mut report).await?;
    }
    Ok(report)
}

#[tokio::main]
async fn main() -> ExitCode {
    let suite = Suite {
        name: "nodes",
        sides: vec![(OURS, Program::Ours), (CURATOR, Program::Java("CuratorNodes", ""))],
        parts: vec!["life", "absences", "groups"],
        without_rounds: &["life", "groups"],
        rounds: Some(9),
        warm_up: Some(2),
        ..Suite::default()
    };
    harness::main(suite, ours::All::default(), run).await
}

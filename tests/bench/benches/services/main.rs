//! Service discovery beside Curator's: `cargo bench -p curator-bench --bench services`.
//!
//! - The requests after a lost connection of a process with fifty instances, and the changes that a consumer sees.
//! - The requests and the time in which a consumer loads `--size` instances, and the requests and bytes of one update.
//!
//! Each side is a process of its own, with these words:
//!
//! | line to it | its answer |
//! | --- | --- |
//! | `connect NAME SERVERS` | `connected`: a client of this name |
//! | `register NAME COUNT` | `registered`: so many instances of the service, by this client |
//! | `watch NAME` | the nanoseconds in which the client's cache of the service has loaded |
//! | `changes` | the number of changes that the cache has reported since the last question |
//! | `update NAME` | `updated`: the first instance has another payload, and the cache shows it |
//! | `end` | `ended`: all clients |

mod costs;
mod ours;

use std::process::ExitCode;

use curator_bench::harness::{self, CURATOR, OURS, Report, Suite};
use curator_bench::process::{Program, Result};

async fn run(suite: Suite) -> Result<Report> {
    let (mut report, mut sides) = (Report::default(), suite.start().await?);
    if suite.wants("reset") {
        costs::reset(&mut sides, &mut report).await?;
    }
    if suite.wants("load") {
        costs::load(suite.size.unwrap_or_default(), &mut sides, &mut report).await?;
    }
    Ok(report)
}

#[tokio::main]
async fn main() -> ExitCode {
    let suite = Suite {
        name: "services",
        sides: vec![(OURS, Program::Ours), (CURATOR, Program::Java("CuratorServices", ""))],
        parts: vec!["reset", "load"],
        without_rounds: &["reset", "load"],
        size: Some(1_000),
        ..Suite::default()
    };
    harness::main(suite, ours::All::default(), run).await
}

//! Leaders of this project beside Curator's `LeaderLatch`: `cargo bench -p curator-bench --bench leaders`.
//!
//! - Faults on a cluster of three Apache servers. All implementations have their candidates on the same servers, so that
//!   one fault hits all of them. A row says when the old leader's flag was last true, counted from the moment at which
//!   the next leader's flag was first true. Below zero, they do not overlap.
//! - The hand-off of twenty candidates, in one session and in twenty.
//!
//! The exit status is 1 if two leaders of ours overlap where the old one can prove its loss.
//!
//! The candidates are in processes of their own. All read the clock of the host, which counts nanoseconds from its start.
//!
//! | line to it | its answer |
//! | --- | --- |
//! | `join NAME POLICY SERVERS SESSION_MILLIS PATH` | `joined NAME`: a candidate with a client of its own; the policy is `default` or `session` |
//! | `leave NAME` | `left NAME` |
//! | `queue SIZE SESSIONS SERVERS PATH` | `queued`: so many candidates, one behind the other |
//! | `drain` | `drained NANOS`: each of them has led once and closed its latch |
//!
//! A thread of the process checks all candidates every 0.2 ms. It says `up NAME NANOS` at the first look that finds a
//! leader, and `down NAME NANOS` with the time of the last look that did.

mod candidates;
mod faults;
mod hand_offs;
mod outcome;

use std::process::ExitCode;

use curator_bench::harness::{self, CURATOR, OURS, Report, Suite};
use curator_bench::process::{Program, Result};

use crate::faults::FAULTS;

/// Curator with the error policy that ends a term with the session. The default one ends it with the connection.
const SESSION_POLICY: &str = "Curator-session";
const HAND_OFFS: &str = "hand-offs";

async fn run(suite: Suite) -> Result<Report> {
    let mut report = Report::default();
    faults::run(&suite, &mut report).await?;
    if suite.wants(HAND_OFFS) {
        hand_offs::run(&suite, &mut report).await?;
    }
    Ok(report)
}

#[tokio::main]
async fn main() -> ExitCode {
    let java = Program::Java("CuratorLeaders", "");
    let suite = Suite {
        name: "leaders",
        sides: vec![(OURS, Program::Ours), (CURATOR, java), (SESSION_POLICY, java)],
        parts: FAULTS.into_iter().map(|(_, title)| title).chain([HAND_OFFS]).collect(),
        rounds: Some(5),
        ..Suite::default()
    };
    harness::main(suite, candidates::All::default(), run).await
}

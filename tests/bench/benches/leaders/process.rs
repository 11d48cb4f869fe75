//! A process with candidates: Java's Curator, or this program once more.
//!
//! All processes read the clock of the host, which counts nanoseconds from its start.
//!
//! | line to it | its answer |
//! | --- | --- |
//! | `join NAME POLICY SERVERS SESSION_MILLIS PATH` | `joined NAME`: a candidate with a client of its own; the policy is `default` or `session` |
//! | `leave NAME` | `left NAME` |
//! | `queue SIZE SESSIONS SERVERS PATH` | `queued`: so many candidates, one behind the other |
//! | `drain` | `drained NANOS`: each of them has led once and closed its latch |
//!
//! A thread of the process looks at all candidates every 0.2 ms. It says `up NAME NANOS` at the first look that finds a
//! leader, and `down NAME NANOS` with the time of the last look that did.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use curator_bench::process::{Java, Process};
use parking_lot::Mutex;
use tokio::process::Command;

pub(crate) use curator_bench::process::{Result, now};

/// The time for which a candidate's flag said that it leads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Term {
    pub(crate) from: Duration,
    /// The last look that found it; `None` while it leads.
    pub(crate) until: Option<Duration>,
}

/// The terms of each candidate, which all processes fill.
pub(crate) type Terms = Arc<Mutex<BTreeMap<String, Vec<Term>>>>;

/// Compiles Java's side.
pub(crate) async fn compile() -> Result<Java> {
    Java::compile("CuratorLeaders").await
}

/// Starts a process of Java's.
pub(crate) async fn java(java: &Java, terms: &Terms) -> Result<Process> {
    start(java.command(), terms).await
}

/// Starts a process of ours.
pub(crate) async fn ours(terms: &Terms) -> Result<Process> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--candidates");
    start(command, terms).await
}

async fn start(command: Command, terms: &Terms) -> Result<Process> {
    let terms = Arc::clone(terms);
    Process::start(command, move |line| record(line, &terms)).await
}

/// Records a term that begins or ends. Returns `false` for other lines.
fn record(line: &str, terms: &Terms) -> bool {
    let words: Vec<_> = line.split(' ').collect();
    let at = |nanos: &str| nanos.parse().map(Duration::from_nanos).unwrap_or_default();
    match words[..] {
        ["up", name, nanos] => {
            let term = Term { from: at(nanos), until: None };
            terms.lock().entry(name.to_owned()).or_default().push(term);
        }
        ["down", name, nanos] => {
            if let Some(term) = terms.lock().get_mut(name).and_then(|terms| terms.last_mut()) {
                term.until = Some(at(nanos));
            }
        }
        _ => return false,
    }
    true
}

//! The hand-off of a queue of candidates: each leads once and closes its latch.

use std::net::SocketAddr;
use std::time::Duration;

use curator_bench::figures::float;
use curator_bench::harness::{CURATOR, Figures, Report, Side, Suite, Target, names, turns};
use curator_bench::process::{Process, Result};
use curator_bench::servers::{Requests, apache, cell, far, requests, server};

use crate::SESSION_POLICY;

const CANDIDATES: usize = 20;
/// The rounds before those that count.
const WARM_UP: usize = 2;

async fn queue(process: &mut Process, sessions: usize, server: SocketAddr, path: &str) -> Result<()> {
    process.tell(&format!("queue {CANDIDATES} {sessions} {server} {path}"), "queued").await?;
    // The last candidate may still arm its watch.
    tokio::time::sleep(Duration::from_millis(300)).await;
    Ok(())
}

/// Returns the milliseconds of each term.
async fn drain(process: &mut Process) -> Result<f64> {
    let answer = process.ask("drain").await?;
    let nanos = answer.strip_prefix("drained ").ok_or_else(|| format!("{answer:?} in place of a time"))?;
    Ok(nanos.parse::<f64>()? / 1e6 / float(CANDIDATES))
}

/// Returns the requests of each kind, apart from session requests, while a queue is drained.
async fn asked(process: &mut Process, sessions: usize) -> Result<Requests> {
    let server = server()?;
    queue(process, sessions, server.address(), "/queue").await?;
    server.clear_requests();
    drain(process).await?;
    let mut counts = requests(&server).await;
    counts.retain(|op, _| *op != "closeSession");
    Ok(counts)
}

/// Prints requests and times of a drained queue.
pub(crate) async fn run(suite: &Suite, report: &mut Report) -> Result<()> {
    // An error policy makes no difference here.
    let mut sides = suite.start().await?;
    sides.retain(|side: &Side| side.name != SESSION_POLICY);
    let names = names(&sides);
    report.table(
        &format!("{CANDIDATES} candidates, each of which leads once and closes its latch"),
        &names,
        &[CURATOR],
    );
    for sessions in [1, CANDIDATES] {
        let (mut figures, mut cells) = (Figures::default(), Vec::new());
        for side in &mut sides {
            let counts = asked(&mut side.process, sessions).await?;
            figures.add(side.name, float(counts.values().sum()));
            cells.push(cell(&counts));
        }
        report.row(&format!("requests of {CANDIDATES} terms, {sessions} sessions"), &figures, Target::None);
        report.text("of which", &cells);
    }
    let server = apache()?;
    let proxy = far(&server)?;
    for (sessions, delay, address) in [
        (1, "", server.address()),
        (CANDIDATES, "", server.address()),
        (1, ", 5 ms each way", proxy.address()),
        (CANDIDATES, ", 5 ms each way", proxy.address()),
    ] {
        let mut figures = Figures::default();
        for turn in turns(suite.rounds.unwrap_or_default(), WARM_UP, sides.len()) {
            let Side { name, process } = &mut sides[turn.side];
            queue(process, sessions, address, &format!("/{name}-{sessions}-{}-{}", address.port(), turn.round)).await?;
            let each = drain(process).await?;
            if turn.counts {
                figures.add(name, each);
            }
        }
        report.row(&format!("a term, {sessions} sessions{delay}, ms"), &figures, Target::None);
    }
    Ok(())
}

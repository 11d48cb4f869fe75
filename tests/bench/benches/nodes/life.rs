//! The requests of a registration's life, by the in-process server's log.

use std::time::Duration;

use curator_bench::figures::float;
use curator_bench::harness::{CURATOR, Figures, Report, Side, Target, names};
use curator_bench::process::{Process, Result};
use curator_bench::servers::{Requests, cell, requests, server};
use curator_test::wire::OpCode;
use curator_test::{FaultProxy, TestingServer};
use tokio::time::sleep;

/// Resets all connections, and waits until so many clients have connected again.
pub(crate) async fn reset(server: &TestingServer, proxy: &FaultProxy, clients: usize) {
    server.clear_requests();
    proxy.reset();
    // Java's client pauses for up to a second.
    while server.requests().iter().filter(|one| one.op == OpCode::CreateSession).count() < clients {
        sleep(Duration::from_millis(10)).await;
    }
}

/// The requests of each step, by its title.
pub(crate) type Steps = Vec<(&'static str, Requests)>;

/// Prints the requests of all steps, of which each side has the same.
pub(crate) fn print(of: &str, sides: &[Side], all: &[Steps], report: &mut Report) {
    report.table(&format!("requests of {of}"), &names(sides), &[CURATOR]);
    for (place, (title, _)) in all.first().into_iter().flatten().enumerate() {
        let mut figures = Figures::default();
        for (side, steps) in sides.iter().zip(all) {
            figures.add(side.name, float(steps[place].1.values().sum()));
        }
        report.row(&format!("requests of {of}: {title}"), &figures, Target::None);
        report.text("of which", &all.iter().map(|steps| cell(&steps[place].1)).collect::<Vec<_>>());
    }
}

/// The requests of a registration's life.
async fn life(process: &mut Process) -> Result<Steps> {
    let server = server()?;
    let proxy = FaultProxy::start(server.address())?;
    process.tell(&format!("connect one {} 60000", proxy.connect_string()), "connected").await?;
    // The parents of the first node are not counted.
    process.tell("stand one /group/warm-up", "stands").await?;
    process.tell("close one", "closed").await?;
    requests(&server).await;
    let mut steps = Vec::new();
    process.tell("stand one /group/one", "stands").await?;
    steps.push(("create", requests(&server).await));
    for title in ["bounce of the connection", "second bounce"] {
        reset(&server, &proxy, 1).await;
        steps.push((title, requests(&server).await));
    }
    let session = server.sessions().first().copied().ok_or("no session")?;
    if !server.kill_session(session) {
        return Err("the session has ended".into());
    }
    while !server.exists("/group/one") {
        sleep(Duration::from_millis(10)).await;
    }
    steps.push(("expiry, and the node again", requests(&server).await));
    process.tell("close one", "closed").await?;
    steps.push(("close", requests(&server).await));
    process.tell("end one", "ended").await?;
    Ok(steps)
}

/// Prints the requests of all sides.
pub(crate) async fn run(sides: &mut [Side], report: &mut Report) -> Result<()> {
    let mut all = Vec::new();
    for side in &mut *sides {
        all.push(life(&mut side.process).await?);
    }
    print("a registration", sides, &all, report);
    Ok(())
}

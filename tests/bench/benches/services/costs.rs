//! The requests of discovery, by the in-process server's log, and the bytes to a consumer.

use std::time::Duration;

use curator_bench::figures::float;
use curator_bench::harness::{CURATOR, Figures, Report, Side, Target, names};
use curator_bench::process::Result;
use curator_bench::servers::{Requests, cell, requests, server};
use curator_test::FaultProxy;
use curator_test::wire::OpCode;
use tokio::time::sleep;

/// The instances of a process.
const INSTANCES: usize = 50;

/// Returns the number of requests of some kinds.
fn of(counts: &Requests, ops: &[OpCode]) -> f64 {
    float(ops.iter().filter_map(|op| counts.get(op.name())).sum())
}

/// Prints the requests after a lost connection, and the changes that a consumer sees.
pub(crate) async fn reset(sides: &mut [Side], report: &mut Report) -> Result<()> {
    let [mut creates, mut deletes, mut changes] = <[Figures; 3]>::default();
    let mut cells = Vec::new();
    for side in &mut *sides {
        let server = server()?;
        let proxy = FaultProxy::start(server.address())?;
        let process = &mut side.process;
        process.tell(&format!("connect server {}", proxy.connect_string()), "connected").await?;
        process.tell(&format!("connect consumer {}", server.connect_string()), "connected").await?;
        process.tell(&format!("register server {INSTANCES}"), "registered").await?;
        process.ask("watch consumer").await?.parse::<u64>()?;
        requests(&server).await;
        process.ask("changes").await?.parse::<usize>()?;
        server.clear_requests();
        proxy.reset();
        // Java's client pauses for up to a second.
        while !server.requests().iter().any(|one| one.op == OpCode::CreateSession) {
            sleep(Duration::from_millis(10)).await;
        }
        let counts = requests(&server).await;
        let seen: usize = process.ask("changes").await?.parse()?;
        process.tell("end", "ended").await?;
        creates.add(side.name, of(&counts, &[OpCode::Create, OpCode::Create2, OpCode::CreateContainer]));
        deletes.add(side.name, of(&counts, &[OpCode::Delete]));
        changes.add(side.name, float(seen));
        cells.push(cell(&counts));
    }
    report.table(&format!("a lost connection with {INSTANCES} instances"), &names(sides), &[CURATOR]);
    report.row("creates", &creates, Target::Figure(0.0));
    report.row("deletes", &deletes, Target::Figure(0.0));
    report.row("changes at a consumer", &changes, Target::Figure(0.0));
    report.text("all requests", &cells);
    Ok(())
}

/// Prints the cost of a load, and of one update.
pub(crate) async fn load(instances: usize, sides: &mut [Side], report: &mut Report) -> Result<()> {
    let [mut loads, mut times, mut updates, mut bytes] = <[Figures; 4]>::default();
    let [mut of_loads, mut of_updates] = <[Vec<String>; 2]>::default();
    for side in &mut *sides {
        let server = server()?;
        let proxy = FaultProxy::start(server.address())?;
        let process = &mut side.process;
        process.tell(&format!("connect server {}", server.connect_string()), "connected").await?;
        process.tell(&format!("register server {instances}"), "registered").await?;
        process.tell(&format!("connect consumer {}", proxy.connect_string()), "connected").await?;
        requests(&server).await;
        let nanos: f64 = process.ask("watch consumer").await?.parse()?;
        let counts = requests(&server).await;
        loads.add(side.name, float(counts.values().sum()));
        times.add(side.name, nanos / 1e6);
        of_loads.push(cell(&counts));
        let before = proxy.traffic().sent;
        process.tell("update server", "updated").await?;
        let counts = requests(&server).await;
        updates.add(side.name, float(counts.values().sum()));
        bytes.add(side.name, float(usize::try_from(proxy.traffic().sent - before)?));
        of_updates.push(cell(&counts));
        process.tell("end", "ended").await?;
    }
    report.table(&format!("a consumer of {instances} instances"), &names(sides), &[CURATOR]);
    report.row("requests of the load", &loads, Target::None);
    report.text("of which", &of_loads);
    report.row("ms of the load", &times, Target::None);
    report.row("requests of one update", &updates, Target::None);
    report.text("of which", &of_updates);
    report.row("bytes to the consumer of one update", &bytes, Target::None);
    Ok(())
}

//! Groups: two processes with one id, and the requests of fifty members.

use curator_bench::harness::{Report, Side, Suite, names};
use curator_bench::process::{Process, Result};
use curator_bench::servers::{requests, server};
use curator_test::{FaultProxy, TestingServer};

use crate::life::{Steps, print, reset};

const MEMBERS: usize = 50;

/// Prints what each of two processes with one id says.
async fn one_id(suite: &Suite, sides: &mut [Side], report: &mut Report) -> Result<()> {
    report.table("two processes with one id", &names(sides), &[]);
    let mut says = [Vec::new(), Vec::new()];
    for (side, (_, program)) in sides.iter_mut().zip(&suite.sides) {
        let mut second = Process::start(*program).await?;
        let server = server()?;
        let first = &mut side.process;
        for (process, client) in [(&mut *first, "first"), (&mut second, "second")] {
            process.tell(&format!("connect {client} {} 60000", server.address()), "connected").await?;
            process.tell(&format!("join {client} /group same"), "joined").await?;
            requests(&server).await;
        }
        says[0].push(first.ask("tell first").await?);
        says[1].push(second.ask("tell second").await?);
        second.kill().await?;
        first.tell("leave first", "left").await?;
        first.tell("end first", "ended").await?;
    }
    report.text("two processes with one id: the first says", &says[0]);
    report.text("the second says", &says[1]);
    Ok(())
}

/// The requests of all members for each step.
async fn steps(process: &mut Process, server: &TestingServer) -> Result<Steps> {
    let proxy = FaultProxy::start(server.address())?;
    for number in 0..MEMBERS {
        process.tell(&format!("connect {number} {} 60000", proxy.connect_string()), "connected").await?;
        process.tell(&format!("join {number} /group member-{number:02}"), "joined").await?;
    }
    process.tell(&format!("see {MEMBERS}"), "seen").await?;
    process.tell(&format!("connect new {} 60000", proxy.connect_string()), "connected").await?;
    requests(server).await;
    let mut steps = Vec::new();
    process.tell("join new /group new", "joined").await?;
    process.tell(&format!("see {}", MEMBERS + 1), "seen").await?;
    steps.push(("one more joins", requests(server).await));
    process.tell("leave new", "left").await?;
    process.tell(&format!("see {MEMBERS}"), "seen").await?;
    steps.push(("one leaves", requests(server).await));
    reset(server, &proxy, MEMBERS + 1).await;
    steps.push(("all connections are reset", requests(server).await));
    process.tell(&format!("see {MEMBERS}"), "seen").await?;
    process.tell("end new", "ended").await?;
    for number in 0..MEMBERS {
        process.tell(&format!("leave {number}"), "left").await?;
        process.tell(&format!("end {number}"), "ended").await?;
    }
    Ok(steps)
}

/// Prints what all sides say and send.
pub(crate) async fn run(suite: &Suite, sides: &mut [Side], report: &mut Report) -> Result<()> {
    one_id(suite, sides, report).await?;
    let mut all = Vec::new();
    for side in &mut *sides {
        all.push(steps(&mut side.process, &server()?).await?);
    }
    print(&format!("{MEMBERS} members in {MEMBERS} sessions"), sides, &all, report);
    Ok(())
}

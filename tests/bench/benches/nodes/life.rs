//! The requests of a registration's life, by the in-process server's log.

use std::time::Duration;

use curator_bench::process::Result;
use curator_bench::requests::{cell, requests, server};
use curator_test::wire::OpCode;
use curator_test::{FaultProxy, TestingServer};
use tokio::time::sleep;

use crate::{Side, Sides};

/// Resets all connections, and waits until so many clients have connected again.
pub(crate) async fn reset(server: &TestingServer, proxy: &FaultProxy, clients: usize) {
    server.clear_requests();
    proxy.reset();
    // Java's client pauses for up to a second.
    while server.requests().iter().filter(|one| one.op == OpCode::CreateSession).count() < clients {
        sleep(Duration::from_millis(10)).await;
    }
}

/// The requests of each step of a life: title and cell.
async fn life((_, process): &mut Side) -> Result<Vec<(&'static str, String)>> {
    let server = server()?;
    let proxy = FaultProxy::start(server.address())?;
    process.tell(&format!("connect one {} 60000", proxy.connect_string()), "connected").await?;
    // The parents of the first node are not counted.
    process.tell("stand one /group/warm-up", "stands").await?;
    process.tell("close one", "closed").await?;
    requests(&server).await;
    let mut steps = Vec::new();
    process.tell("stand one /group/one", "stands").await?;
    steps.push(("create", cell(&requests(&server).await)));
    for title in ["bounce of the connection", "second bounce"] {
        reset(&server, &proxy, 1).await;
        steps.push((title, cell(&requests(&server).await)));
    }
    let session = server.sessions().first().copied().ok_or("no session")?;
    if !server.kill_session(session) {
        return Err("the session has ended".into());
    }
    while !server.exists("/group/one") {
        sleep(Duration::from_millis(10)).await;
    }
    steps.push(("expiry, and the node again", cell(&requests(&server).await)));
    process.tell("close one", "closed").await?;
    steps.push(("close", cell(&requests(&server).await)));
    process.tell("end one", "ended").await?;
    Ok(steps)
}

/// Prints the requests of both sides.
pub(crate) async fn run(sides: &mut Sides) -> Result<()> {
    println!("\n| requests | this | Curator |");
    println!("| --- | --- | --- |");
    let [ours, javas] = &mut sides.all;
    for ((title, ours), (_, javas)) in life(ours).await?.into_iter().zip(life(javas).await?) {
        println!("| {title} | {ours} | {javas} |");
    }
    Ok(())
}

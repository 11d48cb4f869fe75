//! Groups: two processes with one id, and the requests of fifty members.

use std::collections::BTreeMap;

use curator_bench::process::{Process, Result};
use curator_bench::requests::{cell, requests, server};
use curator_test::{FaultProxy, TestingServer};

use crate::Sides;
use crate::life::reset;

const MEMBERS: usize = 50;

/// Prints what each of two processes with one id says.
async fn one_id(sides: &mut Sides) -> Result<()> {
    println!("\n| two processes with one id | the first says | the second says |");
    println!("| --- | --- | --- |");
    for side in 0..sides.all.len() {
        let mut second = sides.another(side).await?;
        let server = server()?;
        let address = server.address();
        let (name, first) = &mut sides.all[side];
        for (process, client) in [(&mut *first, "first"), (&mut second, "second")] {
            process.tell(&format!("connect {client} {address} 60000"), "connected").await?;
            process.tell(&format!("join {client} /group same"), "joined").await?;
            requests(&server).await;
        }
        let says = [first.ask("tell first").await?, second.ask("tell second").await?];
        println!("| {name} | {} | {} |", says[0], says[1]);
        second.kill().await?;
        first.tell("leave first", "left").await?;
        first.tell("end first", "ended").await?;
    }
    Ok(())
}

/// The requests of all members for each step.
async fn steps(
    process: &mut Process,
    server: &TestingServer,
) -> Result<Vec<(&'static str, BTreeMap<&'static str, usize>)>> {
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

/// Prints what both sides say and send.
pub(crate) async fn run(sides: &mut Sides) -> Result<()> {
    one_id(sides).await?;
    println!("\n| {MEMBERS} members in {MEMBERS} sessions, requests of all | this | Curator |");
    println!("| --- | --- | --- |");
    let [(_, ours), (_, javas)] = &mut sides.all;
    let ours = steps(ours, &server()?).await?;
    let javas = steps(javas, &server()?).await?;
    for ((title, ours), (_, javas)) in ours.iter().zip(&javas) {
        println!("| {title} | {} | {} |", cell(ours), cell(javas));
    }
    Ok(())
}

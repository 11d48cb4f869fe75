//! The hand-off of a queue of candidates: each leads once and closes its latch.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use curator_bench::process::{Java, Process};
use curator_test::wire::OpCode;
use curator_test::{ApacheServer, FaultProxy, TestingServer};

use crate::process::{self, Result, Terms};

const CANDIDATES: usize = 20;
const DELAY: Duration = Duration::from_millis(5);

/// Both implementations, ours first.
struct Sides {
    all: [(&'static str, Process); 2],
    /// The classes, which Java loads as it needs them.
    _java: Java,
}

impl Sides {
    async fn start() -> Result<Self> {
        let (java, terms) = (process::compile().await?, Terms::default());
        let all = [("ours", process::ours(&terms).await?), ("Curator", process::java(&java, &terms).await?)];
        Ok(Self { all, _java: java })
    }
}

async fn queue(process: &mut Process, sessions: usize, server: SocketAddr, path: &str) -> Result<()> {
    process.tell(&format!("queue {CANDIDATES} {sessions} {server} {path}"), "queued").await?;
    // The last candidate may still arm its watch.
    tokio::time::sleep(Duration::from_millis(300)).await;
    Ok(())
}

async fn drain(process: &mut Process) -> Result<Duration> {
    let answer = process.ask("drain").await?;
    let nanos = answer.strip_prefix("drained ").ok_or_else(|| format!("{answer:?} in place of a time"))?;
    Ok(Duration::from_nanos(nanos.parse()?))
}

/// Returns the requests of each kind, apart from those of sessions, while a queue is drained.
async fn requests(process: &mut Process, sessions: usize) -> Result<BTreeMap<&'static str, usize>> {
    let server = TestingServer::builder().session_timeouts(Duration::from_secs(2), Duration::from_secs(60)).start()?;
    queue(process, sessions, server.address(), "/queue").await?;
    server.clear_requests();
    drain(process).await?;
    let mut count = BTreeMap::new();
    let counts = |op| !matches!(op, OpCode::Ping | OpCode::CreateSession | OpCode::CloseSession);
    for request in server.requests().iter().filter(|request| counts(request.op)) {
        *count.entry(request.op.name()).or_default() += 1;
    }
    Ok(count)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Prints requests and times of a drained queue.
pub(crate) async fn run(rounds: usize) -> Result<()> {
    let mut sides = Sides::start().await?;
    println!("\n{CANDIDATES} candidates, each of which leads once and closes its latch:\n");
    println!("| sessions | | requests | |");
    println!("| --- | --- | --- | --- |");
    for sessions in [1, CANDIDATES] {
        for (name, process) in &mut sides.all {
            let count = requests(process, sessions).await?;
            let kinds: Vec<_> = count.iter().map(|(op, count)| format!("{count} {op}")).collect();
            println!("| {sessions} | {name} | {} | {} |", count.values().sum::<usize>(), kinds.join(", "));
        }
    }
    let server = ApacheServer::builder().compiles_fully().start()?;
    let proxy = FaultProxy::start(server.address())?;
    proxy.latency(DELAY);
    println!(
        "\n| sessions | each way | ours: ms for each term | Curator: ms for each term | ratio, median of the rounds |"
    );
    println!("| --- | --- | --- | --- | --- |");
    for (sessions, delay, address) in [
        (1, "–", server.address()),
        (CANDIDATES, "–", server.address()),
        (1, "5 ms", proxy.address()),
        (CANDIDATES, "5 ms", proxy.address()),
    ] {
        let (mut times, mut ratios) = ([Vec::new(), Vec::new()], Vec::new());
        // The first two rounds are for all to get warm.
        for round in 0..rounds + 2 {
            let mut each = [0.0; 2];
            for (index, (name, process)) in sides.all.iter_mut().enumerate() {
                queue(process, sessions, address, &format!("/{name}-{sessions}-{}-{round}", address.port())).await?;
                #[allow(clippy::cast_precision_loss, reason = "not that many")]
                let candidates = CANDIDATES as f64;
                each[index] = drain(process).await?.as_secs_f64() * 1e3 / candidates;
            }
            if round >= 2 {
                times.iter_mut().zip(each).for_each(|(times, each)| times.push(each));
                ratios.push(each[0] / each[1]);
            }
        }
        let [ours, curator] = times.each_mut().map(|times| median(times));
        println!("| {sessions} | {delay} | {ours:.2} | {curator:.2} | {:.2} |", median(&mut ratios));
    }
    Ok(())
}

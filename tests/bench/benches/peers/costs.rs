//! What a lock costs: requests and bytes, processor time, and how long the many wait.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use curator_recipes::InterProcessMutex;
use curator_test::wire::OpCode;
use curator_test::{FaultProxy, TestingServer, Traffic};
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;

use crate::other_languages::Spawned;
use crate::ours::{connect, queue, queue_in};
use crate::peer::{BARE_CRATE, CURATOR, OURS, OURS_SECOND, Result, Run, SOCKETS, TOKIO_SOCKETS};
use crate::workload::{median, quantile};
use curator_bench::cycles::{Client, Cycler, Ours, processor_time};

/// The most waiters that Curator is asked to queue: each is a thread.
const MOST_THREADS: usize = 1_000;
/// The processor time that a cycle may take, against the bare crate's same three requests.
const MOST_TIMES: f64 = 0.8;
const POLL: Duration = Duration::from_millis(1);

fn testing_server() -> Result<TestingServer> {
    Ok(TestingServer::builder().session_timeouts(Duration::from_secs(2), Duration::from_secs(60)).start()?)
}

/// What the server saw in the meantime, for each hand-off.
#[allow(clippy::cast_precision_loss, reason = "not that many")]
fn hand_offs(server: &TestingServer, before: Traffic, waiters: usize) -> (f64, f64) {
    let after = server.traffic();
    let bytes = (after.received - before.received) + (after.sent - before.sent);
    // A close and pings are no part of it.
    let own = |op: OpCode| !matches!(op, OpCode::Ping | OpCode::CreateSession | OpCode::CloseSession);
    let requests = server.requests().iter().filter(|request| own(request.op)).count();
    (requests as f64 / waiters as f64, bytes as f64 / waiters as f64)
}

/// Requests and bytes of a hand-off in a queue that is drained, for queues of many lengths.
pub(crate) async fn of_queues(curator: &mut Option<Spawned>) -> Result<Value> {
    let mut rows = Vec::new();
    println!(
        "\n| waiters | requests per hand-off | bytes per hand-off | Curator: requests | bytes |\n| --- | --- | --- | --- | --- |"
    );
    for waiters in [1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000] {
        let server = testing_server()?;
        let path = "/queue".to_owned();
        let queue = queue(&server.connect_string(), &path, waiters).await?;
        server.clear_requests();
        let before = server.traffic();
        queue.drain().await?;
        let (requests, bytes) = hand_offs(&server, before, waiters);
        let mut row = json!({ "waiters": waiters, OURS: { "requests": requests, "bytes": bytes } });
        let mut line = format!("| {waiters} | {requests:.2} | {bytes:.0} |");
        match curator {
            Some(curator) if waiters <= MOST_THREADS => {
                let server = testing_server()?;
                let run = Run { server: server.address(), path, time: Duration::ZERO, size: waiters };
                curator.queue(&run).await?;
                server.clear_requests();
                let before = server.traffic();
                curator.drain().await?;
                let (requests, bytes) = hand_offs(&server, before, waiters);
                row[CURATOR] = json!({ "requests": requests, "bytes": bytes });
                line += &format!(" {requests:.2} | {bytes:.0} |");
            }
            _ => line += " | |",
        }
        println!("{line}");
        rows.push(row);
    }
    Ok(Value::Array(rows))
}

/// How long an acquire takes when many contend, in milliseconds.
pub(crate) async fn of_waiting(server: SocketAddr) -> Result<Value> {
    const SESSIONS: usize = 16;
    let mut rows = Vec::new();
    println!("\n| contenders in 16 sessions | acquires | p50, ms | p99, ms |\n| --- | --- | --- | --- |");
    for (contenders, rounds) in [(10, 200), (100, 30), (1_000, 4)] {
        let path = format!("/waiting-{contenders}");
        let mut clients = Vec::new();
        for _ in 0..SESSIONS {
            clients.push(connect(&server.to_string()).await?);
        }
        let mut tasks = JoinSet::new();
        for contender in 0..contenders {
            let mutex = InterProcessMutex::new(clients[contender % SESSIONS].clone(), &path)?;
            tasks.spawn(async move {
                let mut waits = Vec::new();
                for _ in 0..rounds {
                    let began = Instant::now();
                    let guard = mutex.acquire().await?;
                    waits.push(began.elapsed().as_secs_f64() * 1e3);
                    assert!(guard.release().await?.is_released());
                }
                Result::Ok(waits)
            });
        }
        let mut waits = Vec::new();
        while let Some(done) = tasks.join_next().await {
            waits.extend(done??);
        }
        for client in clients {
            client.close().await;
        }
        let (half, most) = (quantile(&waits, 0.5), quantile(&waits, 0.99));
        println!("| {contenders} | {} | {half:.1} | {most:.1} |", waits.len());
        rows.push(json!({ "contenders": contenders, "acquires": waits.len(), "p50_ms": half, "p99_ms": most }));
    }
    Ok(Value::Array(rows))
}

/// Processor time of a cycle of this process, beside the same requests of the bare crate and over bare sockets.
/// Whether it is within its bound.
pub(crate) async fn of_cycles(server: SocketAddr, rounds: usize) -> Result<(Value, bool)> {
    const CYCLES: u32 = 200;
    let clients = [
        (Client::Ours, OURS),
        (Client::OursAsync, OURS_SECOND),
        (Client::Async, BARE_CRATE),
        (Client::Bare, SOCKETS),
        (Client::BareTokio, TOKIO_SOCKETS),
    ];
    let mut cyclers = Vec::new();
    for (client, name) in clients {
        let path = format!("/cycles-of-{}", name.replace(' ', "-"));
        cyclers.push((name, Cycler::connect(client, server, &path).await?, Vec::new()));
    }
    for round in 0..=rounds {
        for (_, cycler, times) in &mut cyclers {
            let began = processor_time();
            for _ in 0..CYCLES {
                cycler.cycle().await?;
            }
            // The first round is for all to get warm.
            if round > 0 {
                times.push((processor_time() - began).as_secs_f64() * 1e6 / f64::from(CYCLES));
            }
        }
    }
    let mut figures = Vec::new();
    for (name, cycler, times) in cyclers {
        cycler.close().await?;
        figures.push((name, times));
    }
    let of = |client: &str| figures.iter().find(|(name, _)| *name == client).map_or(&[][..], |(_, times)| times);
    let to = |other: &[f64]| median(&of(OURS).iter().zip(other).map(|(own, other)| own / other).collect::<Vec<_>>());
    let is_met = to(of(BARE_CRATE)) <= MOST_TIMES;
    println!("\n| client | processor time of a cycle, µs | ratio of ours to it |\n| --- | --- | --- |");
    let mut rows = Map::new();
    for (name, times) in &figures {
        println!("| {name} | {:.0} | {:.2} |", median(times), to(times));
        rows.insert(
            (*name).to_owned(),
            json!({ "rounds": times, "median": median(times), "ratio_of_ours": to(times) }),
        );
    }
    println!("\nAt most {MOST_TIMES} of the bare crate's: {}", if is_met { "met" } else { "missed" });
    Ok((json!({ "clients": rows, "is_met": is_met }), is_met))
}

/// The requests of a client that connects, and that connects again with a lock and as many waiters.
pub(crate) async fn of_connections(waiters: usize) -> Result<Value> {
    let mut rows = Map::new();
    println!("\n| client | connect | reconnect with a lock and {waiters} waiters |\n| --- | --- | --- |");
    for (ours, name) in [(Ours::Own, OURS), (Ours::ZookeeperAsync, OURS_SECOND)] {
        let server = testing_server()?;
        let proxy = FaultProxy::start(server.address())?;
        let client = ours.connect(&proxy.connect_string()).await?;
        let connect = settled(&server).await;
        let queue = queue_in(client, "/queue", waiters).await?;
        let session = queue.client.session().await?;
        let epoch = session.epoch();
        server.clear_requests();
        proxy.reset();
        while session.epoch() == epoch {
            tokio::time::sleep(POLL).await;
        }
        let reconnect = settled(&server).await;
        println!("| {name} | {connect:?} | {reconnect:?} |");
        rows.insert(name.to_owned(), json!({ "connect": connect, "reconnect": reconnect }));
    }
    Ok(json!({ "waiters": waiters, "clients": rows }))
}

/// How many requests of each kind the server has logged, once it has logged nothing new for three seconds.
async fn settled(server: &TestingServer) -> BTreeMap<&'static str, usize> {
    let mut last = usize::MAX;
    loop {
        let mut count = BTreeMap::new();
        for request in server.requests().iter().filter(|request| request.op != OpCode::Ping) {
            *count.entry(request.op.name()).or_default() += 1;
        }
        let total = count.values().sum();
        if total == last {
            return count;
        }
        last = total;
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
}

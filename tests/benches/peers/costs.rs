//! What a lock costs: requests and bytes, processor time, and how long the many wait.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use curator_recipes::InterProcessMutex;
use curator_test::wire::OpCode;
use curator_test::{TestingServer, Traffic};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use zookeeper_async::{Acl, CreateMode, WatchedEvent, ZooKeeper};

use crate::ours::{Ours, connect, queue};
use crate::peer::{CURATOR, OURS, OURS_SECOND, Result, Run};
use crate::spawned::Spawned;
use crate::workload::{median, quantile};

/// The most waiters that Curator is asked to queue: each is a thread.
const MOST_THREADS: usize = 1_000;
/// What a cycle may cost, against the client crate's same three requests.
const MOST_TIMES: f64 = 1.25;

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
                    guard.release().await?;
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

fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// Processor time of a cycle, against that of the client crate's same three requests, one after the other and with the
/// listing sent behind the create, as the lock does it. Whether it is within its bound.
pub(crate) async fn of_cycles(server: SocketAddr, rounds: usize) -> Result<(Value, bool)> {
    const CYCLES: u32 = 200;
    let bare = ZooKeeper::connect(&server.to_string(), Duration::from_secs(60), |_: WatchedEvent| {}).await?;
    let open = Acl::open_unsafe().clone();
    bare.create("/bare", Vec::new(), open.clone(), CreateMode::Persistent).await?;
    let client = connect(&server.to_string()).await?;
    let mutex = InterProcessMutex::new(client.clone(), "/cycles")?;
    // As the mutex names and fills it.
    let node = "/bare/_c_00000000-0000-0000-0000-000000000000-lock-";
    let create = || bare.create2(node, b"127.0.0.1".to_vec(), open.clone(), CreateMode::EphemeralSequential);
    let second_client = Ours::ZookeeperClient.connect(&server.to_string()).await?;
    let second_mutex = InterProcessMutex::new(second_client.clone(), "/cycles-of-second")?;
    let (mut ours, mut in_turn, mut together, mut second) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..=rounds {
        let mut times = [Duration::ZERO; 4];
        for (way, time) in times.iter_mut().enumerate() {
            let began = processor_time();
            for _ in 0..CYCLES {
                if way == 0 || way == 3 {
                    let mutex = if way == 0 { &mutex } else { &second_mutex };
                    mutex.acquire().await?.release().await?;
                    continue;
                }
                let ((node, _), children) = if way == 1 {
                    (create().await?, bare.get_children("/bare", false).await?)
                } else {
                    futures_util::try_join!(create(), bare.get_children("/bare", false))?
                };
                assert_eq!(children.len(), 1, "there is nobody else");
                bare.delete(&node, None).await?;
            }
            *time = processor_time() - began;
        }
        // The first round is for all to get warm.
        if round > 0 {
            for (all, time) in [&mut ours, &mut in_turn, &mut together, &mut second].into_iter().zip(times) {
                all.push(time.as_secs_f64() * 1e6 / f64::from(CYCLES));
            }
        }
    }
    client.close().await;
    second_client.close().await;
    bare.close().await?;
    let ratio =
        |theirs: &[f64]| median(&ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect::<Vec<_>>());
    let (to_in_turn, to_together) = (ratio(&in_turn), ratio(&together));
    let is_met = to_in_turn <= MOST_TIMES;
    println!(
        "\nProcessor time per cycle: {:.0} µs. The bare client crate's same three requests: {:.0} µs, ratio \
         {to_in_turn:.2} (at most {MOST_TIMES}): {}; with the listing sent behind the create: {:.0} µs, ratio {to_together:.2}. \
         Over zookeeper-client: {:.0} µs",
        median(&ours),
        median(&in_turn),
        if is_met { "met" } else { "missed" },
        median(&together),
        median(&second),
    );
    let crates = json!({ "in_turn": in_turn, "together": together });
    let ratios = json!({ "in_turn": to_in_turn, "together": to_together });
    Ok((
        json!({ OURS: ours, OURS_SECOND: second, "zookeeper-async": crates, "ratios": ratios, "is_met": is_met }),
        is_met,
    ))
}

//! What a lock costs: requests and bytes, processor time, and how long the many wait.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use curator_bench::clients::{Ours, SESSION, connect};
use curator_bench::cycles::{Client, Cycler, processor_time};
use curator_bench::figures::{float, quantile};
use curator_bench::harness::{CURATOR, Figures, OURS, Report, SOCKETS, Suite, Target};
use curator_bench::process::Result;
use curator_bench::servers::{Requests, cell, requests, server};
use curator_recipes::InterProcessMutex;
use curator_test::wire::OpCode;
use curator_test::{FaultProxy, TestingServer, Traffic};
use tokio::task::JoinSet;

use crate::other_languages::Spawned;
use crate::ours::queue_in;
use crate::peer::{BARE_CRATE, OURS_SECOND, Run, TOKIO_SOCKETS};
use crate::report::BYTES;
use crate::workload::Recipe;

/// The most waiters that Curator is asked to queue: each is a thread.
const MOST_THREADS: usize = 1_000;
/// The waiters of a client that connects again.
const WAITERS: usize = 10_000;
const POLL: Duration = Duration::from_millis(1);

/// Returns the requests and bytes that the server saw in the meantime, for each hand-off.
fn hand_offs(server: &TestingServer, before: Traffic, waiters: usize) -> [f64; 2] {
    let after = server.traffic();
    let bytes = (after.received - before.received) + (after.sent - before.sent);
    // Closes and pings do not count.
    let own = |op: OpCode| !matches!(op, OpCode::Ping | OpCode::CreateSession | OpCode::CloseSession);
    let requests = server.requests().iter().filter(|request| own(request.op)).count();
    #[allow(clippy::cast_precision_loss, reason = "not that many")]
    [requests as f64, bytes as f64].map(|figure| figure / float(waiters))
}

/// Requests and bytes of a hand-off in a queue that is drained, for queues of many lengths.
pub(crate) async fn of_queues(suite: &Suite, mut curator: Option<Spawned>, report: &mut Report) -> Result<()> {
    report.table("hand-offs in a queue that is drained", &[OURS, CURATOR], &[CURATOR]);
    for waiters in [1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000] {
        let mut rows = <[Figures; 2]>::default();
        let mut add = |side, figures| rows.iter_mut().zip(figures).for_each(|(row, figure)| row.add(side, figure));
        if suite.has(OURS) {
            let server = server()?;
            let client = connect(&server.connect_string(), SESSION).await?;
            let queue = queue_in(client, "/queue", waiters).await?;
            server.clear_requests();
            let before = server.traffic();
            queue.drain().await?;
            add(OURS, hand_offs(&server, before, waiters));
        }
        if let Some(curator) = curator.as_mut().filter(|_| waiters <= MOST_THREADS) {
            let (server, path) = (server()?, "/queue".to_owned());
            let recipe = Recipe::Drain;
            curator.queue(&Run { recipe, server: server.address(), path, time: Duration::ZERO, size: waiters }).await?;
            server.clear_requests();
            let before = server.traffic();
            curator.drain().await?;
            add(CURATOR, hand_offs(&server, before, waiters));
        }
        report.row(&format!("requests of a hand-off, waiters: {waiters}"), &rows[0], Target::None);
        report.row(&format!("{BYTES}{waiters}"), &rows[1], Target::None);
    }
    Ok(())
}

/// How long an acquire takes when many contend, in milliseconds.
pub(crate) async fn of_waiting(server: SocketAddr, report: &mut Report) -> Result<()> {
    const SESSIONS: usize = 16;
    report.table("an acquire of contenders in 16 sessions, ms", &[OURS], &[]);
    for (contenders, rounds) in [(10, 200), (100, 30), (1_000, 4)] {
        let path = format!("/waiting-{contenders}");
        let mut clients = Vec::new();
        for _ in 0..SESSIONS {
            clients.push(connect(&server.to_string(), SESSION).await?);
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
        for (title, share) in [("p50", 0.5), ("p99", 0.99)] {
            let mut figures = Figures::default();
            quantile(&waits, share).into_iter().for_each(|figure| figures.add(OURS, figure));
            let title = format!("an acquire of {contenders} contenders, {} acquires, {title}, ms", waits.len());
            report.row(&title, &figures, Target::None);
        }
    }
    Ok(())
}

/// Processor time of a cycle of this process, beside the same requests of the bare crate and over bare sockets.
pub(crate) async fn of_cycles(suite: &Suite, server: SocketAddr, report: &mut Report) -> Result<()> {
    let mut clients = vec![
        (Client::Ours, OURS),
        (Client::OursAsync, OURS_SECOND),
        (Client::Async, BARE_CRATE),
        (Client::Bare, SOCKETS),
        (Client::BareTokio, TOKIO_SOCKETS),
    ];
    clients.retain(|(_, name)| suite.has(name));
    let mut cyclers = Vec::new();
    for (client, name) in &clients {
        cyclers.push(Cycler::connect(*client, server, &format!("/cycles-of-{}", name.replace(' ', "-"))).await?);
    }
    let mut figures = Figures::default();
    for turn in suite.turns(clients.len()) {
        let (began, used) = (Instant::now(), processor_time());
        let mut cycles = 0;
        while began.elapsed() < suite.time() {
            cyclers[turn.side].cycle().await?;
            cycles += 1;
        }
        if turn.counts {
            figures.add(clients[turn.side].1, (processor_time() - used).as_secs_f64() * 1e6 / f64::from(cycles));
        }
    }
    for cycler in cyclers {
        cycler.close().await?;
    }
    let to = &[BARE_CRATE, OURS_SECOND, SOCKETS, TOKIO_SOCKETS];
    report.table("processor time, µs", &clients.iter().map(|(_, name)| *name).collect::<Vec<_>>(), to);
    report.row("processor time of a cycle, µs", &figures, Target::AtMost(0.8));
    Ok(())
}

/// The requests of a client that connects, and that connects again with a lock and many waiters.
pub(crate) async fn of_connections(suite: &Suite, report: &mut Report) -> Result<()> {
    let mut clients = vec![(OURS, Ours::Own), (OURS_SECOND, Ours::ZookeeperAsync)];
    clients.retain(|(name, _)| suite.has(name));
    let (mut connects, mut reconnects) = (Vec::new(), Vec::new());
    for (_, ours) in &clients {
        let server = server()?;
        let proxy = FaultProxy::start(server.address())?;
        let client = ours.connect(&proxy.connect_string(), SESSION).await?;
        connects.push(requests(&server).await);
        let queue = queue_in(client, "/queue", WAITERS).await?;
        let session = queue.client.session().await?;
        let epoch = session.epoch();
        server.clear_requests();
        proxy.reset();
        while session.epoch() == epoch {
            tokio::time::sleep(POLL).await;
        }
        reconnects.push(requests(&server).await);
    }
    let names: Vec<_> = clients.iter().map(|(name, _)| *name).collect();
    report.table("requests of a connection", &names, &[]);
    let mut print = |title: &str, all: &[Requests]| report.text(title, &all.iter().map(cell).collect::<Vec<_>>());
    print("requests to connect", &connects);
    print(&format!("requests behind a reconnect with a lock and {WAITERS} waiters"), &reconnects);
    Ok(())
}

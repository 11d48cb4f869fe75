//! The time for which the name of a node is missing, on Apache ZooKeeper.
//!
//! An observer with a connection of its own looks at the names over and over.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use curator_bench::process::{Result, now};
use curator_framework::{CuratorFramework, ExponentialBackoffRetry};
use curator_test::{ApacheServer, FaultProxy, kill_session};
use parking_lot::Mutex;
use tokio::task::{AbortHandle, block_in_place};
use tokio::time::sleep;

use crate::Sides;

const SESSION: Duration = Duration::from_secs(4);
const TICK: Duration = Duration::from_millis(200);
const DELAY: Duration = Duration::from_millis(5);
/// The limit of the wait for a node.
const LIMIT: Duration = Duration::from_secs(30);

/// A change of a name: the `czxid` and the session of its node, or `None` while it is missing.
#[derive(Debug, Clone, Copy)]
struct Sight {
    at: Duration,
    node: Option<(i64, i64)>,
}

/// Looks at one name until it is dropped.
struct Observer {
    sights: Arc<Mutex<Vec<Sight>>>,
    task: AbortHandle,
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Observer {
    fn start(client: CuratorFramework, path: String) -> Self {
        let sights = Arc::<Mutex<Vec<Sight>>>::default();
        let seen = Arc::clone(&sights);
        let task = tokio::spawn(async move {
            loop {
                if let Ok(stat) = client.check_exists().for_path(&path).await {
                    let (at, node) = (now(), stat.map(|stat| (stat.czxid, stat.ephemeral_owner)));
                    let mut seen = seen.lock();
                    if seen.last().is_none_or(|last| last.node != node) {
                        seen.push(Sight { at, node });
                    }
                }
                sleep(Duration::from_micros(200)).await;
            }
        });
        Self { sights, task: task.abort_handle() }
    }

    /// Waits until a node stands with another `czxid` than this.
    async fn another(&self, before: i64) -> Result<Sight> {
        let began = now();
        loop {
            let last = self.sights.lock().last().copied();
            match last {
                Some(sight) if sight.node.is_some_and(|(czxid, _)| czxid != before) => return Ok(sight),
                _ if now() - began > LIMIT => return Err(format!("the node does not stand: {last:?}").into()),
                _ => sleep(Duration::from_millis(1)).await,
            }
        }
    }

    /// Returns the time for which the name was missing.
    fn missing(&self) -> Duration {
        let sights = self.sights.lock();
        sights.windows(2).filter(|pair| pair[0].node.is_none()).map(|pair| pair[1].at - pair[0].at).sum()
    }
}

/// A median, and the range.
fn cell(times: &[Duration]) -> String {
    let mut millis: Vec<_> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
    millis.sort_by(f64::total_cmp);
    match millis[..] {
        [] => "–".to_owned(),
        [first, .., last] => format!("{:.1} [{first:.1} to {last:.1}]", millis[millis.len() / 2]),
        [only] => format!("{only:.1}"),
    }
}

struct Ground {
    server: ApacheServer,
    client: CuratorFramework,
}

/// The times of one row: for which the name was missing, and from the cause to the node that stands again.
#[derive(Default)]
struct Times {
    missing: Vec<Duration>,
    again: Vec<Duration>,
}

impl Ground {
    async fn new() -> Result<Self> {
        let builder = ApacheServer::builder().tick(TICK).session_timeouts(Duration::from_secs(1), SESSION * 15);
        let server = block_in_place(|| builder.compiles_fully().start())?;
        let client = CuratorFramework::builder(server.connect_string())
            .session_timeout(SESSION * 15)
            .retry_policy(ExponentialBackoffRetry::new(Duration::from_millis(100), 10)?)
            .build()?;
        client.start()?;
        client.block_until_connected().await?;
        Ok(Self { server, client })
    }

    /// The server ends the session of a node that stands.
    async fn expire(&self, sides: &mut Sides, round: usize, address: SocketAddr, times: &mut [Times; 2]) -> Result<()> {
        for ((name, process), times) in sides.all.iter_mut().zip(times) {
            let path = format!("/expiry-{}/{name}-{round}", address.port());
            process.tell(&format!("connect one {address} {}", SESSION.as_millis()), "connected").await?;
            process.tell(&format!("stand one {path}"), "stands").await?;
            let observer = Observer::start(self.client.clone(), path);
            let before = observer.another(0).await?.node.unwrap_or_default();
            sleep(Duration::from_millis(300)).await;
            let since = now();
            kill_session(self.server.address(), before.1).await?;
            let again = observer.another(before.0).await?;
            times.again.push(again.at.saturating_sub(since));
            times.missing.push(observer.missing());
            process.tell("close one", "closed").await?;
            process.tell("end one", "ended").await?;
        }
        Ok(())
    }

    /// The network between both nodes and the server is silent for so long.
    async fn partition(&self, sides: &mut Sides, round: usize, silent: Duration, times: &mut [Times; 2]) -> Result<()> {
        let proxy = FaultProxy::start(self.server.address())?;
        let mut observers = Vec::new();
        for (name, process) in &mut sides.all {
            let path = format!("/partition-{}/{name}-{round}", silent.as_millis());
            process.tell(&format!("connect one {} {}", proxy.address(), SESSION.as_millis()), "connected").await?;
            process.tell(&format!("stand one {path}"), "stands").await?;
            let observer = Observer::start(self.client.clone(), path);
            let before = observer.another(0).await?.node.unwrap_or_default();
            observers.push((observer, before));
        }
        // The silence of both begins now, as the server sees it.
        for (_, process) in &mut sides.all {
            process.tell("touch one", "touched").await?;
        }
        proxy.partition();
        sleep(silent).await;
        let repaired = now();
        proxy.repair();
        // Long enough for the old sessions to end.
        sleep(SESSION * 3 / 2).await;
        for ((observer, before), times) in observers.iter().zip(times) {
            let is_another =
                observer.sights.lock().last().is_some_and(|last| last.node.is_none_or(|now| now != *before));
            if is_another {
                let again = observer.another(before.0).await?;
                times.again.push(again.at.saturating_sub(repaired));
            }
            times.missing.push(observer.missing());
        }
        for (_, process) in &mut sides.all {
            process.tell("close one", "closed").await?;
            process.tell("end one", "ended").await?;
        }
        Ok(())
    }
}

fn row(title: &str, times: &[Times; 2]) {
    let [ours, javas] = times;
    let cells = [&ours.missing, &javas.missing, &ours.again, &javas.again].map(|times| cell(times));
    println!("| {title} | {} |", cells.join(" | "));
}

/// Prints the times of both sides.
pub(crate) async fn run(sides: &mut Sides, rounds: usize, warm_up: usize) -> Result<()> {
    let ground = Ground::new().await?;
    println!(
        "\nApache ZooKeeper {}, session {SESSION:?}, tick {TICK:?}, {rounds} rounds, ms\n",
        ground.server.version()
    );
    println!("| | name missing: this | Curator | node stands again after the cause: this | Curator |");
    println!("| --- | --- | --- | --- | --- |");
    let far = FaultProxy::start(ground.server.address())?;
    far.latency(DELAY);
    for (title, address) in
        [("session ended by the server", ground.server.address()), ("the same, 5 ms each way", far.address())]
    {
        let mut times = <[Times; 2]>::default();
        for round in 0..rounds + warm_up {
            if round == warm_up {
                times = Default::default();
            }
            ground.expire(sides, round, address, &mut times).await?;
        }
        row(title, &times);
    }
    for (title, silent) in [("silent network for 3.5 s", SESSION * 7 / 8), ("silent network for 6 s", SESSION * 3 / 2)]
    {
        let mut times = <[Times; 2]>::default();
        for round in 0..rounds {
            ground.partition(sides, round, silent, &mut times).await?;
        }
        row(title, &times);
    }
    Ok(())
}

//! The time for which the name of a node is missing, on Apache ZooKeeper.
//!
//! An observer with a connection of its own checks the names over and over.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use curator_bench::clients::connect;
use curator_bench::harness::{CURATOR, Figures, Report, Side, Suite, Target, Turn, names, tell};
use curator_bench::process::{Result, now};
use curator_bench::servers::far;
use curator_framework::CuratorFramework;
use curator_test::{ApacheServer, FaultProxy, kill_session};
use parking_lot::Mutex;
use tokio::task::{AbortHandle, block_in_place};
use tokio::time::sleep;

const SESSION: Duration = Duration::from_secs(4);
const TICK: Duration = Duration::from_millis(200);
/// The limit of the wait for a node.
const LIMIT: Duration = Duration::from_secs(30);

/// A change of a name: the `czxid` and the session of its node, or `None` while it is missing.
#[derive(Debug, Clone, Copy)]
struct Sight {
    at: Duration,
    node: Option<(i64, i64)>,
}

/// Checks one name until it is dropped.
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

    /// Waits until a node exists with another `czxid` than this.
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

struct Ground {
    server: ApacheServer,
    client: CuratorFramework,
}

/// The milliseconds of one row: for which the name was missing, and from the cause to the next node.
#[derive(Default)]
struct Times {
    missing: Figures,
    again: Figures,
}

impl Times {
    fn add(&mut self, turn: Turn, side: &'static str, missing: Duration, again: Option<Duration>) {
        if turn.counts {
            self.missing.add(side, missing.as_secs_f64() * 1e3);
            again.into_iter().for_each(|again| self.again.add(side, again.as_secs_f64() * 1e3));
        }
    }

    fn print(&self, title: &str, report: &mut Report) {
        report.row(&format!("name missing, {title}, ms"), &self.missing, Target::None);
        report.row(&format!("node stands again behind the cause, {title}, ms"), &self.again, Target::None);
    }
}

impl Ground {
    async fn new() -> Result<Self> {
        let builder = ApacheServer::builder().tick(TICK).session_timeouts(Duration::from_secs(1), SESSION * 15);
        let server = block_in_place(|| builder.compiles_fully().start())?;
        let client = connect(&server.connect_string(), SESSION * 15).await?;
        Ok(Self { server, client })
    }

    /// A side has a node, which an observer has seen: its `czxid` and its session.
    async fn stand(&self, side: &mut Side, address: SocketAddr, path: String) -> Result<(Observer, (i64, i64))> {
        let process = &mut side.process;
        process.tell(&format!("connect one {address} {}", SESSION.as_millis()), "connected").await?;
        process.tell(&format!("stand one {path}"), "stands").await?;
        let observer = Observer::start(self.client.clone(), path);
        let node = observer.another(0).await?.node.unwrap_or_default();
        Ok((observer, node))
    }

    /// The server ends the session of a persistent node.
    async fn expire(&self, side: &mut Side, turn: Turn, address: SocketAddr, times: &mut Times) -> Result<()> {
        let path = format!("/expiry-{}/{}-{}", address.port(), side.name, turn.round);
        let (observer, before) = self.stand(side, address, path).await?;
        sleep(Duration::from_millis(300)).await;
        let since = now();
        kill_session(self.server.address(), before.1).await?;
        let again = observer.another(before.0).await?;
        times.add(turn, side.name, observer.missing(), Some(again.at.saturating_sub(since)));
        end(side).await
    }

    /// The network between all nodes and the server is silent for so long.
    async fn partition(&self, sides: &mut [Side], turn: Turn, silent: Duration, times: &mut Times) -> Result<()> {
        let proxy = FaultProxy::start(self.server.address())?;
        let mut observers = Vec::new();
        for side in &mut *sides {
            let path = format!("/partition-{}/{}-{}", silent.as_millis(), side.name, turn.round);
            observers.push(self.stand(side, proxy.address(), path).await?);
        }
        // The silence of all starts now, as the server sees it.
        tell(sides, "touch one", "touched").await?;
        proxy.partition();
        sleep(silent).await;
        let repaired = now();
        proxy.repair();
        // Long enough for the old sessions to end.
        sleep(SESSION * 3 / 2).await;
        for ((observer, before), side) in observers.iter().zip(&*sides) {
            let last = observer.sights.lock().last().copied();
            let again = if last.is_some_and(|last| last.node.is_none_or(|now| now != *before)) {
                Some(observer.another(before.0).await?.at.saturating_sub(repaired))
            } else {
                None
            };
            times.add(turn, side.name, observer.missing(), again);
        }
        for side in sides {
            end(side).await?;
        }
        Ok(())
    }
}

async fn end(side: &mut Side) -> Result<()> {
    side.process.tell("close one", "closed").await?;
    side.process.tell("end one", "ended").await
}

/// Prints the times of all sides.
pub(crate) async fn run(suite: &Suite, sides: &mut [Side], report: &mut Report) -> Result<()> {
    let ground = Ground::new().await?;
    let title = format!("Apache ZooKeeper {}, session {SESSION:?}, tick {TICK:?}, ms", ground.server.version());
    report.table(&title, &names(sides), &[CURATOR]);
    let far = far(&ground.server)?;
    for (title, address) in [
        ("session ended by the server", ground.server.address()),
        ("session ended by the server, 5 ms each way", far.address()),
    ] {
        let mut times = Times::default();
        for turn in suite.turns(sides.len()) {
            ground.expire(&mut sides[turn.side], turn, address, &mut times).await?;
        }
        times.print(title, report);
    }
    for (title, silent) in [("silent network for 3.5 s", SESSION * 7 / 8), ("silent network for 6 s", SESSION * 3 / 2)]
    {
        let mut times = Times::default();
        for turn in suite.turns(1) {
            ground.partition(sides, turn, silent, &mut times).await?;
        }
        times.print(title, report);
    }
    Ok(())
}

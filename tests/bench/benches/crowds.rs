//! The cost of a crowd of tasks at one lock, on Apache ZooKeeper: `cargo bench -p curator-bench --bench crowds`.
//!
//! A proxy counts the requests and the bytes of the server, so the times include its own.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use curator_bench::clients::{SESSION, connect};
use curator_bench::figures::float;
use curator_bench::harness::{self, CURATOR, Figures, OURS, Report, Suite, Target};
use curator_bench::process::{Process, Program, Result};
use curator_bench::servers::apache;
use curator_framework::CuratorFramework;
use curator_recipes::{InterProcessMutex, InterProcessSemaphoreV2, MutexOptions, SemaphoreOptions};
use curator_test::wire::OpCode;
use curator_test::{ApacheServer, FaultProxy};
use rand::Rng as _;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

/// The tasks that share a node and take turns.
const TASKS: usize = 100_000;
const JOBS: usize = 10_000;
const LEASES: usize = 100;
/// The tasks of the cycles.
const CYCLING: usize = 16;
const CYCLES: usize = 400_000;
/// The threads that Curator is asked to queue.
const THREADS: usize = 1_000;
const CLIENTS: usize = 4;
const TASKS_OF_A_CLIENT: usize = 100;
const POLL: Duration = Duration::from_millis(5);
/// The operations that locks use.
const OPERATIONS: [OpCode; 9] = [
    OpCode::Create2,
    OpCode::CreateContainer,
    OpCode::Delete,
    OpCode::Exists,
    OpCode::GetData,
    OpCode::GetChildren,
    OpCode::GetChildren2,
    OpCode::Multi,
    OpCode::Sync,
];
const PATH: &str = "/crowd";
const JAVA: Program = Program::Java("CuratorBench", "");
const JOINS: &str = "joins";
const PAUSES: &str = "pauses";
const ONE_NODE: &str = "one node";
const LEASING: &str = "leases";
const PARTS: [&str; 4] = [JOINS, PAUSES, ONE_NODE, LEASING];

/// A client behind a proxy that counts.
struct Counted {
    proxy: FaultProxy,
    client: CuratorFramework,
}

impl Counted {
    async fn start(server: &ApacheServer) -> Result<Self> {
        let proxy = FaultProxy::start(server.address())?;
        let client = connect(&proxy.connect_string(), SESSION).await?;
        Ok(Self { proxy, client })
    }

    /// Returns the bytes that the server has sent.
    fn sent(&self) -> u64 {
        self.proxy.traffic().sent
    }

    /// Returns the replies to the operations of locks.
    fn replies(&self) -> usize {
        OPERATIONS.iter().map(|op| self.proxy.replies(*op)).sum()
    }
}

/// Waits until the lock has so many nodes.
async fn nodes(client: &CuratorFramework, is_reached: impl Fn(usize) -> bool) -> Result<()> {
    let count = async || -> Result<usize> {
        let stat = client.check_exists().for_path(PATH).await?;
        Ok(stat.map_or(0, |stat| stat.num_children.unsigned_abs() as usize))
    };
    while !is_reached(count().await?) {
        sleep(POLL).await;
    }
    Ok(())
}

/// Spawns tasks that wait for the lock, each with a node of its own.
fn join(client: &CuratorFramework, waiters: usize) -> Result<Vec<JoinHandle<()>>> {
    let options = MutexOptions::new().max_waiting_nodes(waiters);
    let mutex = InterProcessMutex::with_options(client.clone(), PATH, options)?;
    let wait = |mutex: InterProcessMutex| async move {
        let _granted = mutex.acquire().await;
    };
    Ok((0..waiters).map(|_| tokio::spawn(wait(mutex.clone()))).collect())
}

#[allow(clippy::cast_precision_loss, reason = "not that many")]
fn each(bytes: u64, number: usize) -> f64 {
    bytes as f64 / float(number)
}

fn row(report: &mut Report, title: &str, figure: f64, most: f64) {
    let mut figures = Figures::default();
    figures.add(OURS, figure);
    report.row(title, &figures, Target::Figure(most));
}

/// Waiters join, a third of them gives up, and the others too.
async fn joins(server: &ApacheServer, waiters: usize, seconds: f64, report: &mut Report) -> Result<()> {
    let of = Counted::start(server).await?;
    let held = InterProcessMutex::new(of.client.clone(), PATH)?.acquire().await?;
    let (before, began) = (of.sent(), Instant::now());
    let waiting = join(&of.client, waiters)?;
    nodes(&of.client, |nodes| nodes > waiters).await?;
    row(report, &format!("{waiters} waiters join, s"), began.elapsed().as_secs_f64(), seconds);
    row(report, "from the server, for each, bytes", each(of.sent() - before, waiters), 350.0);

    let leaving = waiters / 3;
    let before = of.sent();
    waiting.iter().step_by(3).take(leaving).for_each(JoinHandle::abort);
    nodes(&of.client, |nodes| nodes <= waiters + 1 - leaving).await?;
    row(report, "a third gives up: from the server, for each, bytes", each(of.sent() - before, leaving), 300.0);
    end(&of, waiting).await?;
    held.release().await?.held()?;
    of.client.close().await;
    Ok(())
}

/// Waiters give up, and leave nothing.
async fn end(of: &Counted, waiting: Vec<JoinHandle<()>>) -> Result<()> {
    waiting.iter().for_each(JoinHandle::abort);
    nodes(&of.client, |nodes| nodes <= 1).await
}

/// The connection is reset while waiters join.
async fn reset(server: &ApacheServer, waiters: usize, report: &mut Report) -> Result<()> {
    let of = Counted::start(server).await?;
    let held = InterProcessMutex::new(of.client.clone(), PATH)?.acquire().await?;
    let before = of.sent();
    let waiting = join(&of.client, waiters)?;
    nodes(&of.client, |nodes| nodes > waiters / 5).await?;
    of.proxy.reset();
    nodes(&of.client, |nodes| nodes > waiters).await?;
    let title = format!("{waiters} waiters join, with a reset: from the server, for each, bytes");
    row(report, &title, each(of.sent() - before, waiters), 1024.0);
    end(&of, waiting).await?;
    held.release().await?.held()?;
    of.client.close().await;
    Ok(())
}

/// A release while waiters join.
async fn release(server: &ApacheServer, waiters: usize, report: &mut Report) -> Result<()> {
    let of = Counted::start(server).await?;
    let mutex = InterProcessMutex::new(of.client.clone(), PATH)?;
    let held = mutex.acquire().await?;
    let next = tokio::spawn(async move { mutex.acquire().await.map(|guard| (guard, Instant::now())) });
    nodes(&of.client, |nodes| nodes == 2).await?;
    let waiting = join(&of.client, waiters)?;
    nodes(&of.client, |nodes| nodes > waiters / 4).await?;
    let began = Instant::now();
    held.release().await?.held()?;
    let (guard, granted) = next.await??;
    let millis = granted.duration_since(began).as_secs_f64() * 1e3;
    row(report, &format!("a release while {waiters} join: to the next grant, ms"), millis, 20.0);
    end(&of, waiting).await?;
    guard.release().await?.held()?;
    of.client.close().await;
    Ok(())
}

/// Clients with many tasks each, which pause between their cycles.
async fn pauses(server: &ApacheServer, time: Duration, report: &mut Report) -> Result<()> {
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(Counted::start(server).await?);
    }
    let sent = |clients: &[Counted]| clients.iter().map(Counted::sent).sum::<u64>();
    let (before, until) = (sent(&clients), Instant::now() + time);
    let mut tasks = JoinSet::new();
    for of in &clients {
        let mutex = InterProcessMutex::new(of.client.clone(), PATH)?;
        for _ in 0..TASKS_OF_A_CLIENT {
            let mutex = mutex.clone();
            tasks.spawn(async move {
                let mut cycles = 0;
                while Instant::now() < until {
                    let Ok(guard) = mutex.acquire().await else { break };
                    let _released = guard.release().await;
                    cycles += 1;
                    let pause = Duration::from_millis(rand::rng().random_range(0..60));
                    sleep(pause).await;
                }
                cycles
            });
        }
    }
    let cycles: usize = tasks.join_all().await.into_iter().sum();
    let title = format!("{CLIENTS} clients with {TASKS_OF_A_CLIENT} tasks: from the server, for each cycle, bytes");
    row(report, &title, each(sent(&clients) - before, cycles), 2048.0);
    for of in clients {
        of.client.close().await;
    }
    Ok(())
}

fn one_node(client: &CuratorFramework) -> Result<InterProcessMutex> {
    Ok(InterProcessMutex::with_options(client.clone(), PATH, MutexOptions::new().one_node_per_client())?)
}

/// Tasks that share a node.
async fn turns(server: &ApacheServer, report: &mut Report) -> Result<()> {
    let of = Counted::start(server).await?;
    let mutex = one_node(&of.client)?;
    let (before, began) = (of.replies(), Instant::now());
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let mutex = mutex.clone();
        tasks.spawn(async move {
            drop(mutex.acquire().await);
        });
    }
    tasks.join_all().await;
    row(report, &format!("{TASKS} tasks come and take turns, s"), began.elapsed().as_secs_f64(), 2.0);
    row(report, "requests", float(of.replies() - before), 10.0);
    of.client.close().await;
    Ok(())
}

/// Returns the cycles in a second of tasks that share a node.
async fn cycles(server: &ApacheServer) -> Result<f64> {
    let client = connect(&server.connect_string(), SESSION).await?;
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..CYCLING {
        let mutex = one_node(&client)?;
        tasks.spawn(async move {
            for _ in 0..CYCLES / CYCLING {
                drop(mutex.acquire().await);
            }
        });
    }
    tasks.join_all().await;
    let rate = float(CYCLES) / began.elapsed().as_secs_f64();
    client.close().await;
    Ok(rate)
}

/// Jobs that take a lease each.
async fn jobs(server: &ApacheServer, report: &mut Report) -> Result<()> {
    let of = Counted::start(server).await?;
    let options = SemaphoreOptions::new().one_node_per_client();
    let semaphore = InterProcessSemaphoreV2::with_options(of.client.clone(), PATH, LEASES, options)?;
    let before = of.replies();
    let mut tasks = JoinSet::new();
    for _ in 0..JOBS {
        let semaphore = semaphore.clone();
        tasks.spawn(async move {
            let Ok(lease) = semaphore.acquire().await else { return 0 };
            sleep(POLL).await;
            usize::from(lease.release().await.is_ok())
        });
    }
    let done: usize = tasks.join_all().await.into_iter().sum();
    row(
        report,
        &format!("{done} jobs with {LEASES} leases: requests for each"),
        float(of.replies() - before) / float(done),
        0.05,
    );
    of.client.close().await;
    Ok(())
}

/// Asks Curator's side for a number, and the seconds that it took.
async fn ask(curator: &mut Option<Process>, line: &str) -> Result<Option<[f64; 2]>> {
    let Some(curator) = curator else { return Ok(None) };
    let answer = curator.ask(line).await?;
    let numbers: Vec<f64> = answer.split(' ').map(str::parse).collect::<std::result::Result<_, _>>()?;
    match numbers[..] {
        [count, nanos] => Ok(Some([count, nanos / 1e9])),
        _ => Err(format!("it says {answer:?}").into()),
    }
}

async fn run(suite: Suite) -> Result<Report> {
    let (server, mut report) = (apache()?, Report::default());
    let mut java = if suite.has(CURATOR) { Some(Process::start(JAVA).await?) } else { None };
    let line = |what: &str, size| format!("{what} {} {PATH} {} {size}", server.address(), suite.time().as_millis());
    if suite.wants(JOINS) {
        report.table("a node for each waiter", &[OURS], &[]);
        joins(&server, 5_000, 2.0, &mut report).await?;
        joins(&server, 20_000, 4.0, &mut report).await?;
        reset(&server, 5_000, &mut report).await?;
        release(&server, 20_000, &mut report).await?;
        if let Some([waiters, seconds]) = ask(&mut java, &line("join", THREADS)).await? {
            report.text(&format!("Curator: {waiters} threads join, s"), &[format!("{seconds:.2}")]);
        }
    }
    if suite.wants(PAUSES) {
        report.table("tasks that pause", &[OURS], &[]);
        pauses(&server, suite.time(), &mut report).await?;
    }
    if suite.wants(ONE_NODE) {
        report.table("one node for the tasks of a client", &[OURS, CURATOR], &[CURATOR]);
        turns(&server, &mut report).await?;
        let mut figures = Figures::default();
        figures.add(OURS, cycles(&server).await?);
        if let Some([cycles, seconds]) = ask(&mut java, &line("threads", CYCLING)).await? {
            figures.add(CURATOR, cycles / seconds);
        }
        report.row(
            &format!("{CYCLING} tasks or threads of one client, cycles a second"),
            &figures,
            Target::AtLeast(50.0),
        );
    }
    if suite.wants(LEASING) {
        report.table("leases that the tasks of a client share", &[OURS], &[]);
        jobs(&server, &mut report).await?;
    }
    Ok(report)
}

#[tokio::main]
async fn main() -> ExitCode {
    let sides = vec![(OURS, Program::Here), (CURATOR, JAVA)];
    let suite = Suite { name: "crowds", sides, parts: PARTS.to_vec(), millis: Some(5_000), ..Suite::default() };
    harness::main(suite, (), run).await
}

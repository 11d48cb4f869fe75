//! The memory that ten thousand waiters of one lock take in one process, at rest: `cargo bench -p curator-bench --bench waiters`.
//! Apache ZooKeeper is a process of its own.
//!
//! What counts is the memory in use, as the allocator knows it. The memory that the process has of the system is
//! printed too: it is more, because each waiter got the names of all others when it joined, and that room is free since
//! then but not given back.
//!
//! Then the same for tasks that share a node, and how fast they take turns.

use std::alloc::System;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use curator_bench::clients::connect;
use curator_bench::figures::float;
use curator_bench::harness::{self, Figures, OURS, Report, Suite, Target};
use curator_bench::process::Result;
use curator_bench::servers::apache;
use curator_framework::CuratorFramework;
use curator_recipes::{InterProcessMutex, MutexOptions};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio::task::JoinSet;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// What a waiter may take, in bytes.
const MOST: f64 = 8192.0;
/// The memory that a waiter in a batch may take beside its task, in bytes.
const MOST_OF_A_TASK: f64 = 1024.0;
/// The tasks that share a node and take turns.
const TASKS: usize = 100_000;
/// The time that they may take together, in seconds.
const LONGEST: f64 = 2.0;
/// The tasks of the cycles.
const CYCLING: usize = 16;
/// The time of one cycle, in microseconds.
const LONGEST_CYCLE: f64 = 10.0;
const CYCLES: usize = 20_000;
/// Longer than a waiter looks away from its own node.
const RESTS: Duration = Duration::from_secs(10);

/// The memory in use and the resident memory, in bytes.
fn memory() -> Result<[usize; 2]> {
    let stats = ALLOCATOR.stats();
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    let resident = line.trim().trim_end_matches(" kB").parse::<usize>()? * 1024;
    Ok([stats.bytes_allocated.saturating_sub(stats.bytes_deallocated), resident])
}

fn one_node(client: &CuratorFramework, path: &str) -> Result<InterProcessMutex> {
    let options = MutexOptions::new().one_node_per_client();
    Ok(InterProcessMutex::with_options(client.clone(), path, options)?)
}

/// Spawns tasks that wait for a lock that the caller holds, and release it at once.
async fn wait(client: &CuratorFramework, path: &str, tasks: usize) -> Result<JoinSet<()>> {
    let (mut waiting, mutex) = (JoinSet::new(), one_node(client, path)?);
    let waits = Arc::new(AtomicUsize::new(0));
    for _ in 0..tasks {
        let (mutex, waits) = (mutex.clone(), Arc::clone(&waits));
        waiting.spawn(async move {
            waits.fetch_add(1, Ordering::Relaxed);
            let _granted = mutex.acquire().await;
        });
    }
    while waits.load(Ordering::Relaxed) < tasks {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(waiting)
}

/// Tasks that share a node.
async fn batches(client: &CuratorFramework, waiters: usize, report: &mut Report) -> Result<()> {
    let mut row = |title: &str, figure: f64, most: f64| {
        let mut figures = Figures::default();
        figures.add(OURS, figure);
        report.row(title, &figures, Target::Figure(most));
    };
    let before = memory()?[0];
    let mut tasks: JoinSet<()> = (0..waiters).map(|_| std::future::pending()).collect();
    let of_a_task = memory()?[0].saturating_sub(before) / waiters;
    tasks.shutdown().await;
    let held = one_node(client, "/batch")?.acquire().await?;
    let before = memory()?[0];
    let mut waiting = wait(client, "/batch", waiters).await?;
    tokio::time::sleep(RESTS).await;
    let of_a_waiter = float((memory()?[0].saturating_sub(before) / waiters).saturating_sub(of_a_task));
    row("memory in use of a waiter beside its task, bytes", of_a_waiter, MOST_OF_A_TASK);
    held.release().await?.held()?;
    while waiting.join_next().await.is_some() {}

    let began = Instant::now();
    let mut waiting = wait(client, "/batch", TASKS).await?;
    while waiting.join_next().await.is_some() {}
    row(&format!("{TASKS} tasks come and take turns, s"), began.elapsed().as_secs_f64(), LONGEST);

    let began = Instant::now();
    let mut cycling = JoinSet::new();
    for _ in 0..CYCLING {
        let mutex = one_node(client, "/batch")?;
        cycling.spawn(async move {
            for _ in 0..CYCLES / CYCLING {
                drop(mutex.acquire().await);
            }
        });
    }
    while cycling.join_next().await.is_some() {}
    let micros = began.elapsed().as_secs_f64() * 1e6 / float(CYCLES);
    row(&format!("a cycle of {CYCLING} tasks, µs"), micros, LONGEST_CYCLE);
    Ok(())
}

/// Queues so many waiters for a lock that is held.
async fn queue(client: &CuratorFramework, path: &str, waiters: usize) -> Result<JoinSet<()>> {
    let held = InterProcessMutex::new(client.clone(), path)?.acquire().await?;
    let mut waiting = JoinSet::new();
    // It is held as long as they wait.
    waiting.spawn(async move {
        held.lost().await;
    });
    for _ in 0..waiters {
        let options = MutexOptions::new().max_waiting_nodes(waiters);
        let mutex = InterProcessMutex::with_options(client.clone(), path, options)?;
        waiting.spawn(async move {
            let _granted = mutex.acquire().await;
        });
    }
    while client.check_exists().for_path(path).await?.is_none_or(|stat| stat.num_children as usize <= waiters) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::time::sleep(RESTS).await;
    Ok(waiting)
}

/// Ends waiters, and waits until nothing of them is left.
async fn end(client: &CuratorFramework, path: &str, mut waiters: JoinSet<()>) -> Result<()> {
    waiters.shutdown().await;
    while client.check_exists().for_path(path).await?.is_some_and(|stat| stat.num_children > 0) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

async fn run(suite: Suite) -> Result<Report> {
    let (server, waiters) = (apache()?, suite.size.unwrap_or_default());
    let client = connect(&server.connect_string(), Duration::from_secs(40)).await?;
    // Everything that is needed once is allocated by then.
    let once = queue(&client, "/once", 1).await?;
    let (before, began) = (memory()?, Instant::now());
    let waiting = queue(&client, "/queue", waiters).await?;
    let joined = began.elapsed().saturating_sub(RESTS);
    let mut report = Report::default();
    report.table(&format!("{waiters} waiters in one process, joined in {:.1} s", joined.as_secs_f64()), &[OURS], &[]);
    let titles = [("memory in use", Target::Figure(MOST)), ("resident memory", Target::None)];
    for ((title, target), (after, before)) in titles.into_iter().zip(memory()?.into_iter().zip(before)) {
        let mut figures = Figures::default();
        figures.add(OURS, float(after.saturating_sub(before) / waiters));
        report.row(&format!("{title} of a waiter, bytes"), &figures, target);
    }
    // Their turns are not measured.
    end(&client, "/once", once).await?;
    end(&client, "/queue", waiting).await?;
    report.table(&format!("{waiters} tasks of one client that share a node"), &[OURS], &[]);
    batches(&client, waiters, &mut report).await?;
    Ok(report)
}

#[tokio::main]
async fn main() -> ExitCode {
    harness::main(Suite { name: "waiters", size: Some(10_000), ..Suite::default() }, (), run).await
}

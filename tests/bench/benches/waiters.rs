//! The memory that ten thousand waiters of one lock take in one process, at rest: `cargo bench -p curator-bench --bench waiters`,
//! with another number behind `--` if wanted. Apache ZooKeeper is a process of its own.
//!
//! What counts is the memory in use, as the allocator knows it. What the process has of the system is told as well: it is
//! more, because each waiter was told the names of all others when it joined, and that room is free since then but not
//! given back. The exit status is 1 if a waiter takes more than its bound.

use std::alloc::System;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use curator_framework::{CuratorFramework, ExponentialBackoffRetry};
use curator_recipes::InterProcessMutex;
use curator_test::ApacheServer;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio::task::JoinSet;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// What a waiter may take, in bytes.
const MOST: usize = 8192;
/// Longer than a waiter looks away from its own node.
const RESTS: Duration = Duration::from_secs(10);

/// The memory in use and the resident memory, in bytes.
fn memory() -> Result<(usize, usize)> {
    let stats = ALLOCATOR.stats();
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    let resident = line.trim().trim_end_matches(" kB").parse::<usize>()? * 1024;
    Ok((stats.bytes_allocated.saturating_sub(stats.bytes_deallocated), resident))
}

/// As many as that who wait for a lock that is held.
async fn queue(client: &CuratorFramework, path: &str, waiters: usize) -> Result<JoinSet<()>> {
    let held = InterProcessMutex::new(client.clone(), path)?.acquire().await?;
    let mut waiting = JoinSet::new();
    // It is held as long as they wait.
    waiting.spawn(async move {
        held.lost().await;
    });
    for _ in 0..waiters {
        let mutex = InterProcessMutex::new(client.clone(), path)?;
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

async fn run(waiters: usize) -> Result<bool> {
    let server = ApacheServer::start()?;
    let client = CuratorFramework::builder(server.connect_string())
        .session_timeout(Duration::from_secs(40))
        .retry_policy(ExponentialBackoffRetry::new(Duration::from_secs(1), 3)?)
        .build()?;
    client.start()?;
    client.block_until_connected().await?;
    // Whatever is needed once is there by then.
    let once = queue(&client, "/once", 1).await?;
    let (used_before, resident_before) = memory()?;
    let began = Instant::now();
    let waiting = queue(&client, "/queue", waiters).await?;
    let joined = began.elapsed().saturating_sub(RESTS);
    let (used, resident) = memory()?;
    let each = |after: usize, before: usize| after.saturating_sub(before) / waiters;
    let (used, resident) = (each(used, used_before), each(resident, resident_before));
    let verdict = if used <= MOST { "met" } else { "missed" };
    println!("{waiters} waiters in one process, joined in {:.1} s", joined.as_secs_f64());
    println!("memory in use: {used} bytes each (at most {MOST}): {verdict}");
    println!("resident memory: {resident} bytes each");
    // Nobody is interested in their turns.
    drop((once, waiting));
    Ok(used <= MOST)
}

#[tokio::main]
async fn main() -> ExitCode {
    // Cargo gives `--bench`.
    let number = std::env::args().skip(1).find(|argument| argument != "--bench");
    let outcome = match number.map_or(Ok(10_000), |number| number.parse()) {
        Ok(0) => Err("one waiter at least".into()),
        Ok(waiters) => run(waiters).await,
        Err(error) => Err(format!("the number of waiters: {error}").into()),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

//! The memory of a waiter and of a held lock, and the allocations of a cycle. The allocator counts them. The server is a
//! process of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

use std::alloc::System;
use std::time::{Duration, Instant};

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{CuratorFramework, Error, RetryNTimes};
use curator_recipes::{InterProcessMutex, InterProcessSemaphoreV2, Release, SemaphoreOptions, SemaphoreProtocol};
use curator_test::ApacheServer;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio::task::JoinSet;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const KIB: usize = 1024;
/// The most that one may take at rest.
const MOST: usize = 8 * KIB;
const WAITERS: usize = 500;
const LOCKS: usize = 1000;
const ROUNDS: usize = 6;
/// Less than this is not a leak: the path of a node alone is longer.
const LEAST_LEAK: usize = 40;
const CYCLES: usize = 1000;
/// The allocations of a cycle without contention.
const OF_A_CYCLE: usize = 33;
/// The allocations of the heartbeats in the time of all cycles, at most.
const OF_HEARTBEATS: usize = 200;
const PATIENCE: Duration = Duration::from_secs(60);

/// How much is allocated now.
fn allocated() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// How much is allocated by so many, each, beyond what there was before; taken when it has stopped to change.
async fn each(count: usize, before: usize, settled: impl AsyncFn() -> bool) -> usize {
    let began = Instant::now();
    let (mut last, mut looks) = (0, 0);
    // What comes and goes in the meantime is less than this.
    while looks < 5 {
        assert!(began.elapsed() < PATIENCE, "it does not come to rest");
        tokio::time::sleep(Duration::from_millis(50)).await;
        let now = allocated();
        let is_same = now.abs_diff(last) < 16 * KIB && settled().await;
        (last, looks) = (now, if is_same { looks + 1 } else { 0 });
    }
    last.saturating_sub(before) / count
}

async fn connected(server: &ApacheServer) -> CuratorFramework {
    let client = CuratorFramework::builder(server.connect_string())
        .session_timeout(Duration::from_secs(20))
        .connection_timeout(Duration::from_secs(10))
        .retry_policy(RetryNTimes::new(10, Duration::from_millis(50)))
        .build()
        .unwrap();
    client.start().unwrap();
    client.block_until_connected().await.unwrap();
    client
}

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it did not come in time")
}

/// One test, since all tests of a process have one allocator.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_and_locks_that_are_held_take_little() {
    let sessions = (Duration::from_secs(2), Duration::from_secs(60));
    let server = ApacheServer::builder().session_timeouts(sessions.0, sessions.1).start();
    let server = server.unwrap_or_else(|error| panic!("{error}"));
    let client = connected(&server).await;
    let children = async |path: &str| match client.get_children().for_path(path).await {
        Err(Error::NoNode { .. }) => 0,
        children => children.unwrap().len(),
    };

    // Waiters of a mutex, with their tasks. The buffers of the connection grow to the size of the longest list, in one round or
    // another. What is left in each round has leaked.
    let mutex = InterProcessMutex::new(client.clone(), "/mutex").unwrap();
    let guard = mutex.acquire().await.unwrap();
    let (mut taken, mut leaked) = (usize::MAX, usize::MAX);
    for round in 1..=ROUNDS {
        let before = allocated();
        let mut waiters = JoinSet::new();
        for _ in 0..WAITERS {
            let mutex = mutex.clone();
            waiters.spawn(async move { mutex.acquire().await.unwrap() });
        }
        let waiting = each(WAITERS, before, async || children("/mutex").await == WAITERS + 1).await;
        waiters.abort_all();
        while in_time(waiters.join_next()).await.is_some() {}
        let left = each(WAITERS, before, async || children("/mutex").await == 1).await;
        println!("a waiter of a mutex, round {round}: {waiting} bytes, {left} of them are kept");
        (taken, leaked) = (taken.min(waiting), leaked.min(left));
        if taken <= MOST && leaked <= LEAST_LEAK {
            break;
        }
    }
    assert!(taken <= MOST && leaked <= LEAST_LEAK, "{taken} bytes, {leaked} are left in each round");
    assert_eq!(guard.release().await.unwrap(), Release::Released);

    // Waiters of a semaphore.
    for protocol in [SemaphoreProtocol::Curator, SemaphoreProtocol::Direct] {
        let path = format!("/{protocol}");
        let options = SemaphoreOptions::new().protocol(protocol);
        let semaphore = InterProcessSemaphoreV2::with_options(client.clone(), &path, 1, options).unwrap();
        let lease = semaphore.acquire().await.unwrap();
        let part = if protocol == SemaphoreProtocol::Direct { "leases" } else { "locks" };
        let mut taken = usize::MAX;
        for round in 1..=ROUNDS {
            let before = allocated();
            let mut waiters = JoinSet::new();
            for _ in 0..WAITERS {
                let semaphore = semaphore.clone();
                waiters.spawn(async move { semaphore.acquire().await.unwrap() });
            }
            let waiting = each(WAITERS, before, async || children(&format!("{path}/{part}")).await >= WAITERS).await;
            println!("a waiter of a semaphore ({protocol}), round {round}: {waiting} bytes");
            waiters.abort_all();
            while in_time(waiters.join_next()).await.is_some() {}
            taken = taken.min(waiting);
            if taken <= MOST {
                break;
            }
        }
        assert!(taken <= MOST, "{taken} bytes");
        assert_eq!(lease.release().await.unwrap(), Release::Released);
    }

    // Locks that are held, each with its own object.
    let before = allocated();
    let mut acquiring = JoinSet::new();
    for number in 0..LOCKS {
        let mutex = InterProcessMutex::new(client.clone(), format!("/many/{number}")).unwrap();
        acquiring.spawn(async move { mutex.acquire().await.unwrap() });
    }
    let mut guards = Vec::new();
    while let Some(guard) = in_time(acquiring.join_next()).await {
        guards.push(guard.unwrap());
    }
    let unwatched = each(LOCKS, before, async || true).await;
    // Each node is watched from a tenth of the session on.
    let watched = each(LOCKS, before, async || client.watchers() == LOCKS).await;
    for guard in guards.drain(..) {
        assert_eq!(in_time(guard.release()).await.unwrap(), Release::Released);
    }
    drop(guards);
    let left = each(LOCKS, before, async || client.watchers() == 0).await;
    println!("a lock that is held: {unwatched} bytes, {watched} when its node is watched; {left} are left behind it");
    assert!(watched <= MOST && left <= MOST / 8, "{watched} bytes, {left} left");

    // Cycles without contention.
    let mutex = InterProcessMutex::new(client.clone(), "/cycle").unwrap();
    assert_eq!(mutex.acquire().await.unwrap().release().await.unwrap(), Release::Released);
    let before = ALLOCATOR.stats().allocations;
    for _ in 0..CYCLES {
        assert_eq!(mutex.acquire().await.unwrap().release().await.unwrap(), Release::Released);
    }
    let of_all = ALLOCATOR.stats().allocations - before;
    println!("{CYCLES} cycles of a mutex: {of_all} allocations");
    assert!(of_all <= CYCLES * OF_A_CYCLE + OF_HEARTBEATS, "{of_all} allocations");
    client.close().await;
}

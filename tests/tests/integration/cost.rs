//! What a lock costs in requests, counted by the server.

use std::time::Duration;

use curator_framework::{CuratorFramework, RetryOneTime};
use curator_recipes::{InterProcessMutex, InterProcessSemaphoreV2, LockOwner};
use curator_test::wire::OpCode;
use curator_test::{ClientId, SimulatedEnsemble, TestingServer};

use tokio::time::Instant;

use crate::env::{builder, connected, eventually};

fn server() -> TestingServer {
    TestingServer::builder().session_timeouts(Duration::from_secs(2), Duration::from_secs(60)).start().unwrap()
}

/// A client with a session of a minute, so that no guard is old enough to have its node watched (a tenth of that).
async fn client(server: &TestingServer) -> CuratorFramework {
    connected(builder(server.address()).session_timeout(Duration::from_secs(60))).await
}

/// The requests below a path, in the server's order.
fn requests(server: &TestingServer, path: &str) -> Vec<OpCode> {
    let below = |logged: &curator_test::LoggedRequest| logged.path.as_deref().is_some_and(|at| at.starts_with(path));
    server.requests().iter().filter(|logged| below(logged)).map(|logged| logged.op).collect()
}

#[tokio::test]
async fn an_uncontended_lock_is_three_requests_and_an_inner_one_none() {
    let server = server();
    let client = client(&server).await;
    let mutex = InterProcessMutex::new(client, "/lock").unwrap();
    mutex.acquire().await.unwrap().release().await.unwrap();
    server.clear_requests();

    mutex.acquire().await.unwrap().release().await.unwrap();
    assert_eq!(requests(&server, "/lock"), [OpCode::Create2, OpCode::GetChildren, OpCode::Delete]);

    server.clear_requests();
    LockOwner::scope(async {
        let outer = mutex.acquire().await.unwrap();
        let before = requests(&server, "/lock");
        let inner = mutex.acquire().await.unwrap();
        let further = inner.reenter().unwrap();
        further.release().await.unwrap();
        inner.release().await.unwrap();
        assert_eq!(requests(&server, "/lock"), before);
        outer.release().await.unwrap();
    })
    .await;
    assert_eq!(requests(&server, "/lock"), [OpCode::Create2, OpCode::GetChildren, OpCode::Delete]);
}

#[tokio::test(start_paused = true)]
async fn an_uncontended_acquire_is_one_round_trip_unless_it_asks_once() {
    const LONGEST: Duration = Duration::from_millis(100);
    let mut longest_try = Duration::ZERO;
    for seed in 0..20 {
        let ensemble = SimulatedEnsemble::new(seed, LONGEST);
        let client = connected(ensemble.client(ClientId(1)).retry_policy(RetryOneTime::new(LONGEST))).await;
        let mutex = InterProcessMutex::new(client, "/lock").unwrap();
        mutex.acquire().await.unwrap().release().await.unwrap();
        let began = Instant::now();
        let guard = mutex.acquire().await.unwrap();
        let elapsed = began.elapsed();
        assert!(elapsed <= LONGEST * 2 + Duration::from_millis(2), "seed {seed}: {elapsed:?}");
        guard.release().await.unwrap();
        let began = Instant::now();
        assert!(mutex.try_acquire().await.unwrap().is_some());
        longest_try = longest_try.max(began.elapsed());
    }
    assert!(longest_try > LONGEST * 2 + Duration::from_millis(2), "{longest_try:?}");
}

#[tokio::test]
async fn a_hand_over_between_two_needs_no_listing() {
    let server = server();
    let client = client(&server).await;
    let mutex = InterProcessMutex::new(client, "/lock").unwrap();
    let guard = mutex.acquire().await.unwrap();
    let waiter = {
        let mutex = mutex.clone();
        tokio::spawn(async move { mutex.acquire().await.unwrap() })
    };
    // Both of its watches are set: on the node ahead and on its own.
    let reads = async || requests(&server, "/lock").iter().filter(|op| **op == OpCode::GetData).count() == 2;
    eventually("the waiter watches", reads).await;
    server.clear_requests();
    guard.release().await.unwrap();
    let next = waiter.await.unwrap();
    assert_eq!(requests(&server, "/lock"), [OpCode::Delete]);
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_departure_wakes_one_waiter_of_many() {
    let server = server();
    let client = client(&server).await;
    let mutex = InterProcessMutex::new(client.clone(), "/lock").unwrap();
    let guard = mutex.acquire().await.unwrap();
    let mut waiters = tokio::task::JoinSet::new();
    for _ in 0..30 {
        let mutex = mutex.clone();
        waiters.spawn(async move { mutex.acquire().await.unwrap() });
    }
    // A watch each, on the node ahead. The first one, whom that tells all, watches its own as well.
    eventually("all wait", async || client.watchers() == 31).await;
    // Answers come in order: with this one all reads that set the watches are answered.
    client.check_exists().for_path("/").await.unwrap();
    server.clear_requests();
    guard.release().await.unwrap();
    let next = waiters.join_next().await.unwrap().unwrap();
    let after = requests(&server, "/lock");
    assert!(after.len() <= 2, "one delete, at most one listing: {after:?}");
    waiters.abort_all();
    next.release().await.unwrap();
}

#[tokio::test]
async fn an_uncontended_lease_is_five_requests() {
    let server = server();
    let client = client(&server).await;
    let semaphore = InterProcessSemaphoreV2::new(client, "/semaphore", 2).unwrap();
    semaphore.acquire().await.unwrap().release().await.unwrap();
    let children = async || server.children("/semaphore/locks").is_some_and(|children| children.is_empty());
    eventually("the mutex is free", children).await;
    server.clear_requests();
    let lease = semaphore.acquire().await.unwrap();
    eventually("the mutex is free", children).await;
    let mut ops = requests(&server, "/semaphore");
    let last = ops.pop();
    assert_eq!(ops, [OpCode::Create2, OpCode::GetChildren, OpCode::Create2, OpCode::GetChildren]);
    assert_eq!(last, Some(OpCode::Delete));
    lease.release().await.unwrap();
}

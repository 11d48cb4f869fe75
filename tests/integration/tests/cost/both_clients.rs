//! What a lock costs in requests, counted by the server.

use std::time::Duration;

use curator_framework::{CuratorFramework, RetryOneTime};
use curator_integration::env::{answered, builder, connected, eventually, watchers};
use curator_recipes::{InterProcessMutex, InterProcessSemaphoreV2, LockOwner, MutexGuard, Release};
use curator_test::wire::OpCode;
use curator_test::{ClientId, SimulatedEnsemble, TestingServer};

use tokio::task::JoinHandle;
use tokio::time::Instant;

fn server() -> TestingServer {
    TestingServer::builder().session_timeouts(Duration::from_secs(2), Duration::from_secs(60)).start().unwrap()
}

/// A client with a session of a minute, so that no guard is old enough to have its node watched (a tenth of that).
async fn client(server: &TestingServer) -> CuratorFramework {
    connected(builder(server.address()).session_timeout(Duration::from_secs(60))).await
}

/// The requests below a path, in the server's order. Not the removal of watches, which only one of the two clients can do:
/// a client that stops waiting requests it there.
fn requests(server: &TestingServer, path: &str) -> Vec<OpCode> {
    let below = |logged: &curator_test::LoggedRequest| logged.path.as_deref().is_some_and(|at| at.starts_with(path));
    let counted = |logged: &&curator_test::LoggedRequest| below(logged) && logged.op != OpCode::RemoveWatches;
    server.requests().iter().filter(counted).map(|logged| logged.op).collect()
}

/// Waits until contenders have so many watches, and know that they are set.
async fn watched(clients: &[CuratorFramework], watches: usize) {
    eventually("all watch", async || watchers(clients) == watches).await;
    answered(clients).await;
}

#[tokio::test]
async fn an_uncontended_lock_is_three_requests_and_an_inner_one_none() {
    let server = server();
    let client = client(&server).await;
    let mutex = InterProcessMutex::new(client, "/lock").unwrap();
    assert!(mutex.acquire().await.unwrap().release().await.unwrap().is_released());
    server.clear_requests();

    assert!(mutex.acquire().await.unwrap().release().await.unwrap().is_released());
    assert_eq!(requests(&server, "/lock"), [OpCode::Create2, OpCode::GetChildren, OpCode::Delete]);

    server.clear_requests();
    LockOwner::scope(async {
        let outer = mutex.acquire().await.unwrap();
        let before = requests(&server, "/lock");
        let inner = mutex.acquire().await.unwrap();
        let further = inner.reenter().unwrap();
        assert!(further.release().await.unwrap().is_released());
        assert!(inner.release().await.unwrap().is_released());
        assert_eq!(requests(&server, "/lock"), before);
        assert!(outer.release().await.unwrap().is_released());
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
        assert!(mutex.acquire().await.unwrap().release().await.unwrap().is_released());
        let began = Instant::now();
        let guard = mutex.acquire().await.unwrap();
        let elapsed = began.elapsed();
        assert!(elapsed <= LONGEST * 2 + Duration::from_millis(2), "seed {seed}: {elapsed:?}");
        assert!(guard.release().await.unwrap().is_released());
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
    let mutex = InterProcessMutex::new(client.clone(), "/lock").unwrap();
    let guard = mutex.acquire().await.unwrap();
    let waiter = {
        let mutex = mutex.clone();
        tokio::spawn(async move { mutex.acquire().await.unwrap() })
    };
    // Both of its watches are set, on the node ahead and on its own, and the holder's on its own node.
    watched(&[client], 3).await;
    server.clear_requests();
    assert!(guard.release().await.unwrap().is_released());
    let next = waiter.await.unwrap();
    assert_eq!(requests(&server, "/lock"), [OpCode::Delete]);
    assert!(next.release().await.unwrap().is_released());
}

/// A holder that did not wait is watched by its listing until another contender joins.
#[tokio::test]
async fn holder_watches_its_node_once_when_others_join() {
    let server = server();
    let holder = client(&server).await;
    let mutex = InterProcessMutex::new(holder.clone(), "/lock").unwrap();
    for _ in 0..2 {
        server.clear_requests();
        let guard = mutex.acquire().await.unwrap();
        let session = holder.session().await.unwrap().id().map(|id| id.get());
        let mut waiters = Vec::new();
        for joined in 1..=3 {
            let other = InterProcessMutex::new(client(&server).await, "/lock").unwrap();
            waiters.push(tokio::spawn(async move { other.acquire().await.unwrap() }));
            let queued = async || server.children("/lock").is_some_and(|nodes| nodes.len() == joined + 1);
            eventually("it waits", queued).await;
            answered(std::slice::from_ref(&holder)).await;
        }
        waiters.iter().for_each(JoinHandle::abort);
        let alone = async || server.children("/lock").is_some_and(|nodes| nodes.len() == 1);
        eventually("they have left", alone).await;
        assert!(guard.release().await.unwrap().is_released());
        let its = |logged: &&curator_test::LoggedRequest| Some(logged.session_id) == session;
        let below =
            |logged: &&curator_test::LoggedRequest| logged.path.as_deref().is_some_and(|at| at.starts_with("/lock"));
        let asked: Vec<OpCode> = server.requests().iter().filter(its).filter(below).map(|logged| logged.op).collect();
        assert_eq!(asked.last(), Some(&OpCode::Delete));
        let known: Vec<OpCode> = asked.into_iter().rev().skip(1).take(3).collect();
        assert_eq!(known, [OpCode::GetData, OpCode::GetChildren, OpCode::Create2]);
    }
}

/// One holds the lock, and the others wait in their order, each of these clients in a session of its own. How many
/// watches they set: the first of them on the holder and on its own node, each other one on the node before the one ahead.
async fn line(
    server: &TestingServer,
    waiters: usize,
) -> (MutexGuard, Vec<JoinHandle<MutexGuard>>, Vec<CuratorFramework>) {
    let mut clients = vec![client(server).await];
    let guard = InterProcessMutex::new(clients[0].clone(), "/lock").unwrap().acquire().await.unwrap();
    let mut line = Vec::new();
    for joined in 1..=waiters {
        let client = client(server).await;
        let mutex = InterProcessMutex::new(client.clone(), "/lock").unwrap();
        clients.push(client);
        line.push(tokio::spawn(async move { mutex.acquire().await.unwrap() }));
        // The first one has made the holder watch its node.
        watched(&clients, joined + 2).await;
    }
    server.clear_requests();
    (guard, line, clients)
}

/// What a waiter of another session asks when the node before the one ahead of it is gone.
const A_LOOK: [OpCode; 3] = [OpCode::GetData, OpCode::GetData, OpCode::GetChildren];

#[tokio::test]
async fn a_hand_over_between_sessions_needs_no_listing_either() {
    let server = server();
    let (mut guard, line, clients) = line(&server, 4).await;
    let last = line.len() - 1;
    for (place, waiter) in line.into_iter().enumerate() {
        assert!(guard.release().await.unwrap().is_released());
        guard = waiter.await.unwrap();
        // The grant itself took no request. In the meantime the next waiter but one lists the queue.
        let expected: &[OpCode] = if place == last { &[] } else { &A_LOOK };
        eventually("it has looked", async || requests(&server, "/lock").len() > expected.len()).await;
        answered(&clients).await;
        let after = requests(&server, "/lock");
        assert_eq!((after[0], &after[1..]), (OpCode::Delete, expected));
        server.clear_requests();
    }
    assert!(guard.release().await.unwrap().is_released());
}

#[tokio::test]
async fn waiter_with_an_early_listing_outlasts_others_that_give_up() {
    let server = server();
    let (guard, mut line, clients) = line(&server, 3).await;
    let last = line.pop().unwrap();
    // The first of them gives up, which the last one hears; then the second, while the holder holds.
    line.remove(0).abort();
    let after = [&[OpCode::Delete][..], &A_LOOK, &[OpCode::GetData]].concat();
    eventually("the last one waits for the holder", async || requests(&server, "/lock").len() >= after.len()).await;
    answered(&clients).await;
    assert_eq!(requests(&server, "/lock"), after);
    line.remove(0).abort();
    let gone = async || server.children("/lock").is_some_and(|children| children.len() == 2);
    eventually("the second one is gone", gone).await;
    server.clear_requests();
    assert!(guard.release().await.unwrap().is_released());
    let next = last.await.unwrap();
    // Only this look said that it is its turn. It watched its own node already.
    assert_eq!(requests(&server, "/lock"), [&[OpCode::Delete][..], &A_LOOK[1..]].concat());
    assert!(next.release().await.unwrap().is_released());
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
    // A watch each, on the node ahead. The first one, which needs no listing then, and the holder watch their own too.
    watched(&[client], 32).await;
    server.clear_requests();
    assert!(guard.release().await.unwrap().is_released());
    let next = waiters.join_next().await.unwrap().unwrap();
    // The process itself notifies the next waiter that it is first, and its own node is watched already.
    assert_eq!(requests(&server, "/lock"), [OpCode::Delete]);
    waiters.abort_all();
    assert!(next.release().await.unwrap().is_released());
}

#[tokio::test]
async fn a_queue_of_one_process_is_drained_without_a_listing() {
    const WAITERS: usize = 20;
    let server = server();
    let client = client(&server).await;
    let mutex = InterProcessMutex::new(client.clone(), "/lock").unwrap();
    let guard = mutex.acquire().await.unwrap();
    let mut waiters = tokio::task::JoinSet::new();
    for _ in 0..WAITERS {
        let mutex = mutex.clone();
        waiters.spawn(async move { mutex.acquire().await.unwrap().release().await.unwrap() });
    }
    watched(&[client], WAITERS + 2).await;
    server.clear_requests();
    assert!(guard.release().await.unwrap().is_released());
    while let Some(released) = waiters.join_next().await {
        assert_eq!(released.unwrap(), Release::Released);
    }
    let after = requests(&server, "/lock");
    let asked = |op| after.iter().filter(|asked| **asked == op).count();
    // Each one's node is watched by the one behind it; only the last one has to ask for that.
    assert_eq!((asked(OpCode::Delete), asked(OpCode::GetData)), (WAITERS + 1, 1), "{after:?}");
    assert_eq!(after.len(), WAITERS + 2, "{after:?}");
}

#[tokio::test]
async fn a_free_lease_is_four_requests_in_two_round_trips_and_no_queue() {
    let server = server();
    let client = client(&server).await;
    let semaphore = InterProcessSemaphoreV2::new(client, "/semaphore", 2).unwrap();
    assert!(semaphore.acquire().await.unwrap().release().await.unwrap().is_released());
    server.clear_requests();
    let lease = semaphore.acquire().await.unwrap();
    assert_eq!(requests(&server, "/semaphore"), [OpCode::Create2, OpCode::GetChildren, OpCode::Exists]);
    assert!(lease.release().await.unwrap().is_released());
    assert_eq!(requests(&server, "/semaphore").last(), Some(&OpCode::Delete));
    assert_eq!(requests(&server, "/semaphore").len(), 4);
}

#[tokio::test]
async fn a_slot_is_two_requests_a_watch_and_two_for_its_end() {
    let server = server();
    let client = client(&server).await;
    let semaphore = InterProcessSemaphoreV2::new(client, "/semaphore", 2).unwrap();
    let lease = semaphore.acquire().await.unwrap();
    lease.slot().await.unwrap();
    assert!(lease.release().await.unwrap().is_released());
    let lease = semaphore.acquire().await.unwrap();
    server.clear_requests();
    assert_eq!(lease.slot().await.unwrap(), 0);
    let asked = || requests(&server, "/semaphore/slots");
    eventually("it is watched", async || asked().len() == 3).await;
    assert_eq!(asked(), [OpCode::GetChildren, OpCode::Create2, OpCode::GetData]);
    assert_eq!(lease.slot().await.unwrap(), 0);
    assert_eq!(asked().len(), 3, "a further call sends nothing");
    server.clear_requests();
    assert!(lease.release().await.unwrap().is_released());
    let all = requests(&server, "/semaphore");
    assert_eq!(all[..3], [OpCode::Exists, OpCode::Delete, OpCode::Delete], "{all:?}");
    assert_eq!(asked(), [OpCode::Exists, OpCode::Delete]);
}

/// A client creates a lease before it queues only where it has seen one free.
#[tokio::test]
async fn a_try_creates_nothing_before_a_lease_is_seen_free() {
    let server = server();
    let semaphores = [
        InterProcessSemaphoreV2::new(client(&server).await, "/semaphore", 1).unwrap(),
        InterProcessSemaphoreV2::new(client(&server).await, "/semaphore", 1).unwrap(),
    ];
    let held = semaphores[0].acquire().await.unwrap();
    let asked = async |semaphore: &InterProcessSemaphoreV2| {
        server.clear_requests();
        let answer = semaphore.try_acquire().await.unwrap();
        (answer.is_some(), requests(&server, "/semaphore"))
    };
    let look = [OpCode::GetChildren, OpCode::Exists];
    let (granted, mut first) = asked(&semaphores[1]).await;
    first.retain(|op| *op != OpCode::GetData);
    assert_eq!((granted, first), (false, [look, look].concat()), "it has not looked before");
    assert_eq!(asked(&semaphores[1]).await, (false, [look, look].concat()), "it looks, and writes nothing");
    assert!(held.release().await.unwrap().is_released());
    let (granted, after) = asked(&semaphores[1]).await;
    assert!(granted && after.starts_with(&[look[0], look[1], OpCode::Create2]), "{after:?}");
}

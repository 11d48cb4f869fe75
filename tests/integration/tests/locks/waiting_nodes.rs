//! The limit of the nodes with which a client waits at one path.

use std::sync::Arc;
use std::time::Duration;

use curator_framework::{CuratorFramework, Error, RetryNTimes};
use curator_integration::env::{answered, connected, eventually, in_time};
use curator_integration::in_process::{client, server};
use curator_recipes::{
    InterProcessLock, InterProcessMultiLock, InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreV2,
    LockError, LockOptions, LockOwner, MutexGuard, MutexOptions, SemaphoreOptions, SemaphoreProtocol,
};
use curator_test::wire::OpCode;
use curator_test::{FaultProxy, TestingServer};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::one_node::{acquiring, waiters};

const LOCK: &str = "/parent/lock";
const SHORT: Duration = Duration::from_millis(200);

fn mutex(client: &CuratorFramework, most: usize) -> InterProcessMutex {
    let options = MutexOptions::new().max_waiting_nodes(most);
    InterProcessMutex::with_options(client.clone(), LOCK, options).unwrap()
}

fn nodes(server: &TestingServer) -> usize {
    server.children(LOCK).map_or(0, |nodes| nodes.len())
}

fn creates(server: &TestingServer) -> usize {
    server.requests().iter().filter(|one| matches!(one.op, OpCode::Create | OpCode::Create2)).count()
}

/// Waits until the lock has this number of nodes, and keeps it.
async fn settled(server: &TestingServer, clients: &[&CuratorFramework], expected: usize) {
    eventually("they join", async || nodes(server) >= expected).await;
    for client in clients.repeat(2) {
        answered(std::slice::from_ref(client)).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(nodes(server), expected);
}

async fn next(grants: &mut mpsc::UnboundedReceiver<(usize, MutexGuard)>) -> (usize, MutexGuard) {
    in_time(grants.recv()).await.unwrap()
}

fn is_lost<T>(outcome: &Result<T, LockError>) -> bool {
    matches!(outcome, Err(LockError::Framework(Error::ConnectionLoss { .. })))
}

#[tokio::test]
async fn waiters_above_the_limit_join_in_their_order_as_others_are_granted_or_leave() {
    let server = server();
    let client = client(&server).await;
    let mutex = mutex(&client, 3);
    let (granted, mut grants) = mpsc::unbounded_channel();
    let first = mutex.acquire().await.unwrap();
    let tasks = waiters(&mutex, 0..10, &granted).await;
    settled(&server, &[&client], 4).await;
    // One with a node, one without, and a clone of the lock.
    tasks[1].abort();
    tasks[7].abort();
    settled(&server, &[&client], 4).await;
    let _last = waiters(&self::mutex(&client, 3), [10], &granted).await;
    settled(&server, &[&client], 4).await;
    assert!(first.release().await.unwrap().is_released());
    let expected = [0, 2, 3, 4, 5, 6, 8, 9, 10];
    for (served, expected) in expected.into_iter().enumerate() {
        let (number, guard) = next(&mut grants).await;
        assert_eq!(number, expected);
        settled(&server, &[&client], (9 - served).min(4)).await;
        assert!(guard.release().await.unwrap().is_released());
    }
    client.close().await;
}

#[tokio::test]
async fn waiters_that_had_nodes_come_first_in_the_next_session() {
    let server = server();
    let (client, other) = (client(&server).await, client(&server).await);
    let theirs = InterProcessMutex::new(other.clone(), LOCK).unwrap().acquire().await.unwrap();
    let mutex = mutex(&client, 3);
    let (granted, mut grants) = mpsc::unbounded_channel();
    let _tasks = waiters(&mutex, 0..10, &granted).await;
    for _ in 0..3 {
        settled(&server, &[&client, &other], 4).await;
        let session = client.session().await.unwrap();
        assert!(server.kill_session(session.id().unwrap().get()));
        in_time(session.ended()).await;
        eventually("the next session", async || client.is_connected()).await;
    }
    settled(&server, &[&client, &other], 4).await;
    assert!(theirs.release().await.unwrap().is_released());
    let mut order = Vec::new();
    for _ in 0..10 {
        let (number, guard) = next(&mut grants).await;
        order.push(number);
        assert!(guard.release().await.unwrap().is_released());
    }
    order[..3].sort_unstable();
    assert_eq!(order, (0..10).collect::<Vec<_>>());
    client.close().await;
}

#[tokio::test]
async fn waiter_without_a_node_knows_of_the_contenders_ahead() {
    let server = server();
    let (client, other) = (client(&server).await, client(&server).await);
    let theirs = InterProcessMutex::new(other.clone(), LOCK).unwrap().acquire().await.unwrap();
    let mutex = mutex(&client, 1);
    let waits = acquiring(&mutex);
    settled(&server, &[&client, &other], 2).await;
    server.clear_requests();
    assert!(mutex.acquire_timeout(SHORT).await.unwrap().is_none());
    assert_eq!(creates(&server), 0, "it had a node");
    // A try needs no place.
    assert!(mutex.try_acquire().await.unwrap().is_none());
    assert_eq!(creates(&server), 1);
    assert!(theirs.release().await.unwrap().is_released());
    let held = in_time(waits).await.unwrap();
    // Nor does the owner of a lock that it holds.
    let owner = LockOwner::new();
    assert!(held.release().await.unwrap().is_released());
    let outer = mutex.acquire_as(&owner).await.unwrap();
    let waits = acquiring(&mutex);
    settled(&server, &[&client], 2).await;
    assert!(in_time(mutex.acquire_as(&owner)).await.unwrap().is_held());
    drop(outer);
    drop(in_time(waits).await.unwrap());
    client.close().await;
}

#[tokio::test]
async fn outage_does_not_look_like_contention_to_a_waiter_without_a_node() {
    let server = server();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let options = CuratorFramework::builder(proxy.connect_string())
        .session_timeout(Duration::from_secs(60))
        .connection_timeout(Duration::from_secs(10))
        .retry_policy(RetryNTimes::new(10, Duration::from_millis(50)));
    let (client, other) = (connected(options).await, client(&server).await);
    let theirs = InterProcessMutex::new(other.clone(), LOCK).unwrap().acquire().await.unwrap();
    let mutex = mutex(&client, 1);
    // The contender ahead has no reply yet.
    proxy.partition();
    let waits = acquiring(&mutex);
    tokio::task::yield_now().await;
    let outcome = mutex.acquire_timeout(SHORT).await;
    assert!(is_lost(&outcome), "{outcome:?}");
    proxy.repair();
    settled(&server, &[&other], 2).await;
    answered(std::slice::from_ref(&client)).await;
    assert!(mutex.acquire_timeout(SHORT).await.unwrap().is_none());
    // The connection is lost.
    proxy.refuse();
    proxy.reset();
    eventually("the client notices it", async || !client.is_connected()).await;
    let outcome = mutex.acquire_timeout(SHORT).await;
    assert!(is_lost(&outcome), "{outcome:?}");
    proxy.accept();
    assert!(theirs.release().await.unwrap().is_released());
    drop(in_time(waits).await.unwrap());
    client.close().await;
}

#[tokio::test]
async fn readers_behind_a_downgrade_are_granted_together() {
    let server = server();
    let client = client(&server).await;
    let options = LockOptions::new().max_waiting_nodes(1);
    let lock = InterProcessReadWriteLock::with_options(client.clone(), LOCK, options).unwrap();
    let writes = lock.write_lock().acquire().await.unwrap();
    let mut readers = JoinSet::new();
    for _ in 0..5 {
        let read = lock.read_lock();
        readers.spawn(async move { read.acquire().await.unwrap() });
    }
    settled(&server, &[&client], 2).await;
    let downgraded = in_time(writes.downgrade()).await.unwrap();
    let all = in_time(readers.join_all()).await;
    assert!(downgraded.is_held() && all.iter().all(|guard| guard.is_held()));
    // Both halves count together.
    let write = lock.write_lock();
    let writer = tokio::spawn(async move { write.acquire().await.unwrap() });
    settled(&server, &[&client], 7).await;
    let read = lock.read_lock();
    let reader = tokio::spawn(async move { read.acquire().await.unwrap() });
    settled(&server, &[&client], 7).await;
    drop((downgraded, all));
    drop(in_time(writer).await.unwrap());
    drop(in_time(reader).await.unwrap());
    client.close().await;
}

#[tokio::test]
async fn multi_locks_and_sets_of_leases_with_one_waiting_node_end() {
    let server = server();
    let client = client(&server).await;
    let mut tasks = JoinSet::new();
    for number in 0..12 {
        let client = client.clone();
        tasks.spawn(async move {
            for round in 0..4 {
                let parts = ["/locks/a", "/locks/b", "/locks/c"].map(|path| {
                    let options = MutexOptions::new().max_waiting_nodes(1);
                    InterProcessMutex::with_options(client.clone(), path, options).unwrap()
                });
                let [a, b, c] = &parts;
                let some = match (number + round) % 3 {
                    0 => vec![a, b],
                    1 => vec![b, c],
                    _ => vec![a, c],
                };
                let some = some.into_iter().map(|part| Arc::new(part.clone()) as Arc<dyn InterProcessLock>);
                let multi = InterProcessMultiLock::from_locks(some).unwrap();
                let guard = multi.acquire().await.unwrap();
                tokio::task::yield_now().await;
                assert!(guard.release().await.unwrap().is_released());
            }
        });
    }
    for protocol in [SemaphoreProtocol::Curator, SemaphoreProtocol::Direct] {
        for number in 0..8 {
            let options = SemaphoreOptions::new().protocol(protocol).max_waiting_nodes(1);
            let path = format!("/{protocol}");
            let semaphore = InterProcessSemaphoreV2::with_options(client.clone(), path, 3, options).unwrap();
            tasks.spawn(async move {
                for round in 0..4 {
                    let leases = semaphore.acquire_many(1 + (number + round) % 3).await.unwrap();
                    tokio::task::yield_now().await;
                    assert!(leases.release().await.unwrap().is_released());
                }
            });
        }
    }
    in_time(tasks.join_all()).await;
    client.close().await;
}

#[tokio::test]
async fn waiters_for_leases_take_one_place_each() {
    let server = server();
    let (client, other) = (client(&server).await, client(&server).await);
    for protocol in [SemaphoreProtocol::Curator, SemaphoreProtocol::Direct] {
        let path = format!("/{protocol}");
        let of = |client: &CuratorFramework| {
            let options = SemaphoreOptions::new().protocol(protocol).max_waiting_nodes(1);
            InterProcessSemaphoreV2::with_options(client.clone(), path.clone(), 1, options).unwrap()
        };
        let theirs = of(&other).acquire().await.unwrap();
        let semaphore = of(&client);
        let first = semaphore.clone();
        let first = tokio::spawn(async move { first.acquire().await.unwrap() });
        let leases = format!("{path}/leases");
        eventually("it waits", async || server.children(&leases).is_some_and(|nodes| nodes.len() == 2)).await;
        answered(std::slice::from_ref(&client)).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        server.clear_requests();
        assert!(semaphore.acquire_timeout(SHORT).await.unwrap().is_none());
        assert_eq!(creates(&server), 0, "it had a node");
        assert!(theirs.release().await.unwrap().is_released());
        assert!(in_time(first).await.unwrap().release().await.unwrap().is_released());
    }
    client.close().await;
}

#[tokio::test]
async fn closed_client_answers_waiters_without_a_node() {
    let server = server();
    let (client, other) = (client(&server).await, client(&server).await);
    let _theirs = InterProcessMutex::new(other.clone(), LOCK).unwrap().acquire().await.unwrap();
    let mutex = mutex(&client, 1);
    let mut tasks = JoinSet::new();
    for _ in 0..5 {
        let mutex = mutex.clone();
        tasks.spawn(async move { mutex.acquire().await.map(drop) });
    }
    settled(&server, &[&client, &other], 2).await;
    in_time(client.close()).await;
    for outcome in in_time(tasks.join_all()).await {
        assert!(matches!(outcome, Err(LockError::Framework(Error::Closed))), "{outcome:?}");
    }
}

#[tokio::test]
async fn limit_of_zero_is_refused() {
    let server = server();
    let client = client(&server).await;
    let options = || MutexOptions::new().max_waiting_nodes(0);
    let refused = InterProcessMutex::with_options(client.clone(), LOCK, options()).unwrap_err();
    assert!(refused.to_string().contains("max_waiting_nodes: must be at least 1"), "{refused}");
}

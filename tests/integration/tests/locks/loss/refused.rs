//! Servers that refuse requests for a while: the owner of a node does not give up.

use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{CuratorFramework, Error, RetryNTimes};
use curator_integration::env::{builder, connected, eventually, in_time};
use curator_recipes::{
    InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreV2, LossReason, SemaphoreOptions,
    SemaphoreProtocol,
};
use curator_test::TestingServer;
use curator_test::wire::{ErrorCode, OpCode};

/// Answers of a server that may pass: of one with too many requests, of a list that changes, of a later server.
const REFUSALS: [ErrorCode; 3] = [ErrorCode::ThrottledOp, ErrorCode::NoAuth, ErrorCode::RuntimeInconsistency];

fn server() -> TestingServer {
    TestingServer::builder().session_timeouts(Duration::from_secs(2), Duration::from_secs(60)).start().unwrap()
}

/// A client with a session so long that nothing is noticed only because of its time.
async fn client(server: &TestingServer) -> CuratorFramework {
    let policy = RetryNTimes::new(20, Duration::from_millis(5));
    connected(builder(server.address()).session_timeout(Duration::from_secs(60)).retry_policy(policy)).await
}

#[tokio::test]
async fn holder_whose_watch_was_refused_notices_the_deletion_of_its_node() {
    let server = server();
    let (first, admin) = (client(&server).await, client(&server).await);
    for error in REFUSALS {
        let guard = InterProcessMutex::new(first.clone(), "/lock").unwrap().acquire().await.unwrap();
        server.refuse(OpCode::GetData, 3, error);
        // The event of another child makes the holder watch its node.
        admin.create().for_path("/lock/child").await.unwrap();
        eventually("the watch was refused", async || server.refusals_left() == 0).await;
        admin.delete().for_path(guard.node_path()).await.unwrap();
        assert_eq!(in_time(guard.lost()).await, LossReason::NodeDeleted, "{error:?}");
        admin.delete().for_path("/lock/child").await.unwrap();
    }
}

#[tokio::test]
async fn waiter_is_signalled_though_the_signal_was_refused() {
    for error in REFUSALS {
        let server = server();
        let clients = [client(&server).await, client(&server).await, client(&server).await, client(&server).await];
        let semaphores = clients.each_ref().map(|client| {
            let direct = SemaphoreProtocol::Direct;
            InterProcessSemaphoreV2::with_options(
                client.clone(),
                "/leases",
                2,
                SemaphoreOptions::new().protocol(direct),
            )
            .unwrap()
        });
        let held = [semaphores[0].acquire().await.unwrap(), semaphores[0].acquire().await.unwrap()];
        let mut waiters = Vec::new();
        for (number, semaphore) in semaphores[1..].iter().cloned().enumerate() {
            waiters.push(tokio::spawn(async move { semaphore.acquire().await.unwrap() }));
            let leases = async || server.children("/leases/leases").is_some_and(|leases| leases.len() == number + 3);
            eventually("it waits", leases).await;
        }
        // The semaphore watches its path too.
        eventually("all wait", async || clients[1..].iter().all(|client| client.watchers() == 2)).await;
        server.refuse(OpCode::SetData, 3, error);
        let [one, other] = held;
        assert!(one.release().await.unwrap().is_released());
        let first = in_time(waiters.remove(0)).await.unwrap();
        eventually("the signal was refused", async || server.refusals_left() == 0).await;
        assert!(other.release().await.unwrap().is_released());
        let second = in_time(waiters.remove(0)).await.unwrap();
        // The third waiter waits for the signal of the first one. Only after it does it notice this release.
        assert!(second.release().await.unwrap().is_released());
        let third = in_time(waiters.remove(0)).await.unwrap();
        assert!(first.is_held() && third.is_held(), "{error:?}");
    }
}

#[tokio::test]
async fn guaranteed_delete_continues_behind_refusals() {
    let server = server();
    let impatient = RetryNTimes::new(0, Duration::ZERO);
    let client = connected(builder(server.address()).retry_policy(impatient)).await;
    client.create().for_path("/node").await.unwrap();
    server.refuse(OpCode::Delete, 1, ErrorCode::ThrottledOp);
    REFUSALS.iter().for_each(|error| server.refuse(OpCode::Delete, 1, *error));
    let deleted = client.delete().guaranteed().for_path("/node").await;
    assert!(matches!(&deleted, Err(Error::ZooKeeper { code: -127, .. })), "{deleted:?}");
    eventually("it is deleted in the background", async || !server.exists("/node")).await;
}

#[tokio::test]
async fn throttled_requests_of_locks_are_repeated() {
    let server = server();
    let client = client(&server).await;
    let mutex = InterProcessMutex::new(client.clone(), "/lock").unwrap();
    let lock = InterProcessReadWriteLock::new(client.clone(), "/rw").unwrap();
    let semaphore = InterProcessSemaphoreV2::new(client.clone(), "/semaphore", 1).unwrap();
    for op in
        [OpCode::Create2, OpCode::CreateContainer, OpCode::GetChildren, OpCode::GetData, OpCode::Exists, OpCode::Delete]
    {
        let throttle = || server.refuse(op, 2, ErrorCode::ThrottledOp);
        throttle();
        let guard = in_time(mutex.acquire()).await.unwrap();
        let other = mutex.clone();
        throttle();
        let waiter = tokio::spawn(async move { other.acquire().await.unwrap() });
        eventually("it waits", async || server.children("/lock").is_some_and(|nodes| nodes.len() == 2)).await;
        assert!(in_time(guard.release()).await.unwrap().is_released());
        assert!(in_time(in_time(waiter).await.unwrap().release()).await.unwrap().is_released());
        throttle();
        assert!(in_time(mutex.try_acquire()).await.unwrap().is_some());
        throttle();
        let reading = in_time(in_time(lock.write_lock().acquire()).await.unwrap().downgrade()).await.unwrap();
        assert!(in_time(reading.release()).await.unwrap().is_released());
        throttle();
        assert!(in_time(in_time(semaphore.acquire()).await.unwrap().release()).await.unwrap().is_released());
    }
}

#[cfg(curator_mutants)]
#[test]
fn holder_that_gives_up_its_refused_watch_is_found() {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let server = server();
            let (first, admin) = (client(&server).await, client(&server).await);
            let guard = InterProcessMutex::new(first.clone(), "/lock").unwrap().acquire().await.unwrap();
            server.refuse(OpCode::GetData, 1, ErrorCode::ThrottledOp);
            admin.create().for_path("/lock/child").await.unwrap();
            eventually("the watch was refused", async || server.refusals_left() == 0).await;
            curator_integration::env::answered(&[first.clone()]).await;
            admin.delete().for_path(guard.node_path()).await.unwrap();
            let next = InterProcessMutex::new(admin.clone(), "/lock").unwrap().acquire().await.unwrap();
            curator_integration::env::answered(&[first.clone()]).await;
            guard.is_held() && next.is_held()
        })
    };
    assert!(curator_framework::mutants::with("give-up-the-refused-watch", run), "both hold the lock");
}

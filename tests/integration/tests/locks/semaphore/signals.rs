//! The signals of the semaphore without a mutex, and nodes that never signal.

use std::time::Duration;

use curator_framework::{CreateMode, CuratorFramework};
use curator_integration::env::{builder, connected, eventually, in_time};
use curator_recipes::{InterProcessSemaphoreV2, Lease, RevokeOutcome, Revoker, SemaphoreOptions, SemaphoreProtocol};
use curator_test::TestingServer;
use tokio::task::JoinHandle;

async fn client_of(server: &TestingServer) -> CuratorFramework {
    connected(builder(server.address()).session_timeout(Duration::from_secs(40))).await
}

fn direct(client: &CuratorFramework, leases: usize) -> InterProcessSemaphoreV2 {
    let options = SemaphoreOptions::new().protocol(SemaphoreProtocol::Direct);
    InterProcessSemaphoreV2::with_options(client.clone(), "/semaphore", leases, options).unwrap()
}

/// Waits until requests from this client end.
async fn is_quiet(server: &TestingServer, client: &CuratorFramework) {
    eventually("no further requests", async || {
        let before = server.requests().len();
        for _ in 0..5 {
            client.check_exists().for_path("/").await.unwrap();
        }
        server.requests().len() == before + 5
    })
    .await;
}

/// Starts a waiter, and returns when its node exists and it waits.
async fn waiter(
    server: &TestingServer,
    client: &CuratorFramework,
    semaphore: &InterProcessSemaphoreV2,
) -> JoinHandle<Lease> {
    let before = server.children("/semaphore/leases").unwrap().len();
    let semaphore = semaphore.clone();
    let waiter = tokio::spawn(async move { semaphore.acquire().await.unwrap() });
    eventually("it joins", async || server.children("/semaphore/leases").unwrap().len() > before).await;
    is_quiet(server, client).await;
    waiter
}

/// A node of another program takes a lease as long as it exists. No node signals without an id in its name, which this
/// crate gives to each of its own, and none without a session that owns it.
#[tokio::test]
async fn waiter_behind_a_node_that_never_signals_is_granted_a_free_lease() {
    const ID: &str = "_c_00000000-0000-4000-8000-000000000000-";
    for (mode, name) in [
        (CreateMode::EphemeralSequential, "lease-".to_owned()),
        (CreateMode::PersistentSequential, format!("{ID}lease-")),
        (CreateMode::PersistentSequentialWithTtl(Duration::from_secs(1000)), format!("{ID}lease-")),
        (CreateMode::Container, format!("{ID}lease-0000000002")),
    ] {
        let server = TestingServer::builder().extended_types(true).start().unwrap();
        let (client, other) = (client_of(&server).await, client_of(&server).await);
        let semaphore = direct(&client, 2);
        let held = [semaphore.acquire().await.unwrap(), semaphore.acquire().await.unwrap()];
        other.create().with_mode(mode).for_path(&format!("/semaphore/leases/{name}")).await.unwrap();
        let first = waiter(&server, &client, &semaphore).await;
        let second = waiter(&server, &client, &semaphore).await;
        for lease in held {
            assert!(lease.release().await.unwrap().is_released());
        }
        assert!(in_time(first).await.unwrap().release().await.unwrap().is_released());
        assert!(in_time(second).await.unwrap().release().await.unwrap().is_released());
    }
}

/// The write of another client comes in place of the signal, so the waiter must not wait for one.
#[tokio::test]
async fn waiter_that_joins_behind_a_written_node_is_granted_a_free_lease() {
    let server = TestingServer::start().unwrap();
    let client = client_of(&server).await;
    let semaphore = direct(&client, 2);
    let held = [semaphore.acquire().await.unwrap(), semaphore.acquire().await.unwrap()];
    let first = waiter(&server, &client, &semaphore).await;
    let second = waiter(&server, &client, &semaphore).await;
    let written = &semaphore.participants().await.unwrap()[2];
    assert_eq!(Revoker::attempt_revoke(&client, &written.path).await.unwrap(), RevokeOutcome::Requested);
    let last = waiter(&server, &client, &semaphore).await;
    for lease in held {
        assert!(lease.release().await.unwrap().is_released());
    }
    let stays = in_time(first).await.unwrap();
    assert!(in_time(second).await.unwrap().release().await.unwrap().is_released());
    assert!(in_time(last).await.unwrap().release().await.unwrap().is_released());
    assert!(stays.release().await.unwrap().is_released());
}

/// The waiters between a granted one and the one that waits for its signal have left.
#[tokio::test]
async fn only_waiter_behind_a_granted_one_hears_its_signal() {
    let server = TestingServer::start().unwrap();
    let client = client_of(&server).await;
    let semaphore = direct(&client, 2);
    let held = [semaphore.acquire().await.unwrap(), semaphore.acquire().await.unwrap()];
    let first = waiter(&server, &client, &semaphore).await;
    let between = waiter(&server, &client, &semaphore).await;
    let last = waiter(&server, &client, &semaphore).await;
    between.abort();
    eventually("it leaves", async || server.children("/semaphore/leases").unwrap().len() == 4).await;
    is_quiet(&server, &client).await;
    for lease in held {
        assert!(lease.release().await.unwrap().is_released());
    }
    let stays = in_time(first).await.unwrap();
    assert!(in_time(last).await.unwrap().release().await.unwrap().is_released());
    assert!(stays.release().await.unwrap().is_released());
}

/// The request has fired the watches of the waiters already, so the grant needs no write, which would end the request.
#[tokio::test]
async fn signal_keeps_a_request_to_revoke() {
    let server = TestingServer::start().unwrap();
    let client = client_of(&server).await;
    let semaphore = direct(&client, 1);
    let held = semaphore.acquire().await.unwrap();
    let next = waiter(&server, &client, &semaphore).await;
    let last = waiter(&server, &client, &semaphore).await;
    let written = &semaphore.participants().await.unwrap()[1];
    assert_eq!(Revoker::attempt_revoke(&client, &written.path).await.unwrap(), RevokeOutcome::Requested);
    let (requested, _) = client.get_data().for_path(&written.path).await.unwrap();
    assert!(held.release().await.unwrap().is_released());
    let next = in_time(next).await.unwrap();
    is_quiet(&server, &client).await;
    assert_eq!(client.get_data().for_path(&written.path).await.unwrap().0, requested);
    assert!(next.release().await.unwrap().is_released());
    assert!(in_time(last).await.unwrap().release().await.unwrap().is_released());
}

//! Parents of locks that the server itself removes.

use std::time::Duration;

use curator_framework::CreateMode;
use curator_integration::env::{connected, eventually};
use curator_recipes::{InterProcessMutex, InterProcessSemaphoreV2};
use curator_test::TestingServer;
use curator_test::wire::OpCode;

use super::second;

fn server() -> TestingServer {
    TestingServer::builder().container_check_interval(Duration::from_millis(50)).extended_types(true).start().unwrap()
}

/// The parents are containers. Those that `zookeeper-async` makes would stay, as its client is closed.
#[tokio::test]
async fn parents_of_a_lock_are_deleted_without_its_clients() {
    let server = server();
    // Nothing of ours deletes them.
    let client = connected(second(server.address()).reap_interval(None)).await;
    assert!(
        InterProcessMutex::new(client.clone(), "/app/locks/one")
            .unwrap()
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap()
            .is_released()
    );
    let lease = InterProcessSemaphoreV2::new(client.clone(), "/app/semaphore", 2).unwrap().acquire().await.unwrap();
    assert!(lease.release().await.unwrap().is_released());
    client.close().await;
    let made = server.requests().iter().filter(|request| request.op == OpCode::CreateContainer).count();
    assert!(made >= 5, "{made} containers");
    eventually("all of it is gone", async || !server.exists("/app")).await;
}

#[tokio::test]
async fn a_lock_that_does_not_want_containers_gets_none() {
    let server = server();
    let client = connected(second(server.address()).dont_use_container_parents()).await;
    assert!(
        InterProcessMutex::new(client, "/locks/one")
            .unwrap()
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap()
            .is_released()
    );
    assert!(!server.requests().iter().any(|request| request.op == OpCode::CreateContainer));
    assert!(server.exists("/locks/one"));
}

/// Curator's `TestTtlNodes.testBasic`.
#[tokio::test]
async fn a_node_with_a_time_to_live_goes_by_itself() {
    let server = server();
    let client = connected(second(server.address())).await;
    let short = client.create().with_ttl(Duration::from_millis(100)).creating_parents_if_needed();
    short.for_path("/below/short").await.unwrap();
    let numbered = client.create().with_mode(CreateMode::PersistentSequential).with_ttl(Duration::from_secs(3600));
    assert_eq!(numbered.for_path("/long-").await.unwrap(), "/long-0000000001");
    eventually("its time is over", async || !server.exists("/below/short")).await;
    assert!(server.exists("/long-0000000001"));
}

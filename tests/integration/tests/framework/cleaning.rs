//! What the framework cleans up: empty parents, the nodes of dropped guards, calls that are no longer due.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use curator_framework::{CompressionProvider, RetryNTimes};
use curator_integration::env::{connected, eventually, in_time};
use curator_integration::in_process::{client, options, server, simulated};
use curator_recipes::{InterProcessMutex, LockOptions, RevokeOutcome, Revoker};
use curator_test::{ClientId, SimulatedEnsemble};

/// This client must not delete a node that another client has created again at the path of its parent.
#[tokio::test(start_paused = true)]
async fn reaper_keeps_the_nodes_of_other_clients() {
    let ensemble = SimulatedEnsemble::new(1, Duration::from_millis(1));
    let (one, other) = (simulated(&ensemble, 1).await, simulated(&ensemble, 2).await);
    let mutex = InterProcessMutex::new(one, "/app/a").unwrap();
    assert!(mutex.acquire().await.unwrap().release().await.unwrap().is_released());
    other.delete().for_path("/app/a").await.unwrap();
    other.create().with_data("settings").for_path("/app/a").await.unwrap();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(ensemble.children("/app"), ["a"], "a node with data of another client was deleted");
}

/// As ZooKeeper's: a container goes when its last child went, not before it had one.
#[tokio::test(start_paused = true)]
async fn a_container_that_was_never_used_stays() {
    let ensemble = SimulatedEnsemble::new(1, Duration::from_millis(1));
    let client = simulated(&ensemble, 1).await;
    client.create_containers("/app/config").await.unwrap();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(ensemble.children("/app"), ["config"]);
}

/// Forever is a time too.
#[tokio::test(start_paused = true)]
async fn a_reap_interval_without_end_does_not_stop_the_cleaning() {
    let ensemble = SimulatedEnsemble::new(1, Duration::from_millis(1));
    let options = ensemble.client(ClientId(1)).session_timeout(Duration::from_secs(60)).reap_interval(Duration::MAX);
    let Ok(client) = options.retry_policy(RetryNTimes::new(3, Duration::from_millis(50))).build() else { return };
    client.start().unwrap();
    client.block_until_connected().await.unwrap();
    let mutex = InterProcessMutex::new(client, "/m").unwrap();
    for _ in 0..3 {
        // A waiter for a node that is never deleted waits forever, since the session lives.
        drop(mutex.acquire_timeout(Duration::from_secs(30)).await.unwrap().expect("nobody cleans up any more"));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(ensemble.children("/m").len(), 0);
}

#[derive(Debug)]
struct Careless;

impl CompressionProvider for Careless {
    fn compress(&self, _path: &str, data: &[u8]) -> io::Result<Vec<u8>> {
        Ok([b"Z", data].concat())
    }

    fn decompress(&self, _path: &str, stored: &[u8]) -> io::Result<Vec<u8>> {
        assert_eq!(stored.first(), Some(&b'Z'), "not mine");
        Ok(stored[1..].to_vec())
    }
}

/// User code that panics must not take the session's housekeeping with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_panics_does_not_stop_the_cleaning() {
    let server = server();
    let other = client(&server).await;
    let one = connected(options(&server).enable_compression().compression_provider(Careless)).await;
    let revocable = LockOptions::new().revocable(|_| {});
    let mutex = InterProcessMutex::with_options(one, "/m", revocable).unwrap();
    let guard = in_time(mutex.acquire()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(Revoker::attempt_revoke(&other, guard.node_path()).await.unwrap(), RevokeOutcome::Requested);
    tokio::time::sleep(Duration::from_millis(500)).await;
    drop(guard);
    eventually("the node is deleted", async || server.children("/m").unwrap_or_default().is_empty()).await;
}

/// What is to be done about a lock that is held for long goes with the lock.
#[tokio::test]
async fn a_released_lock_leaves_no_call_behind() {
    let server = server();
    let client = client(&server).await;
    client.create().for_path("/p").await.unwrap();
    let session = client.session().await.unwrap();
    let token = Arc::new(());
    for _ in 0..100 {
        let mut claim = session.owned_node("/p", "node-", curator_framework::CreateMode::EphemeralSequential);
        claim.create(&curator_framework::recipe::NodeSpec::new(&[])).await.unwrap();
        // A job with a shorter life is before it in the queue, as it does for every lock that was held.
        claim.watch_node(Duration::from_secs(6));
        let kept = Arc::clone(&token);
        claim.when_held_for(Duration::from_secs(24 * 3600), move || drop(kept));
        assert!(claim.delete().await.unwrap());
    }
    let mut held = session.owned_node("/p", "held-", curator_framework::CreateMode::EphemeralSequential);
    held.create(&curator_framework::recipe::NodeSpec::new(&[])).await.unwrap();
    held.when_held_for(Duration::from_secs(3600), || {});
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(Arc::strong_count(&token), 1, "calls that can never be made are kept");
}

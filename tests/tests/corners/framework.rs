//! The framework.

use std::io;
use std::time::Duration;

use curator_framework::{CompressionProvider, RetryNTimes};
use curator_recipes::{InterProcessMutex, LockOptions, Revoker};
use curator_test::{ClientId, SimulatedEnsemble};

use crate::{client, eventually, in_time, options, server, simulated, start};

/// What somebody else has made anew at the path of a parent of ours is not ours to delete.
#[tokio::test(start_paused = true)]
async fn the_reaper_leaves_alone_what_somebody_else_made() {
    let ensemble = SimulatedEnsemble::new(1, Duration::from_millis(1));
    let (one, other) = (simulated(&ensemble, 1).await, simulated(&ensemble, 2).await);
    let mutex = InterProcessMutex::new(one, "/app/a").unwrap();
    mutex.acquire().await.unwrap().release().await.unwrap();
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

/// For ever is a time too.
#[tokio::test(start_paused = true)]
async fn a_reap_interval_without_end_does_not_stop_the_cleaning() {
    let ensemble = SimulatedEnsemble::new(1, Duration::from_millis(1));
    let options = ensemble.client(ClientId(1)).session_timeout(Duration::from_secs(60)).reap_interval(Duration::MAX);
    let Ok(client) = options.retry_policy(RetryNTimes::new(3, Duration::from_millis(50))).build() else { return };
    client.start().unwrap();
    client.block_until_connected().await.unwrap();
    let mutex = InterProcessMutex::new(client, "/m").unwrap();
    for _ in 0..3 {
        // Who waits for a node that nobody deletes waits for ever, since the session lives.
        drop(mutex.acquire_timeout(Duration::from_secs(30)).await.unwrap().expect("nobody cleans up any more"));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(ensemble.children("/m").len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_connection_timeout_without_end_is_refused_or_works() {
    let ensemble = SimulatedEnsemble::new(1, Duration::from_millis(1));
    let options = ensemble.client(ClientId(1)).connection_timeout(Duration::MAX);
    let Ok(client) = options.retry_policy(RetryNTimes::new(3, Duration::from_millis(50))).build() else { return };
    client.start().unwrap();
    tokio::time::timeout(Duration::from_secs(60), client.block_until_connected()).await.expect("connected").unwrap();
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
    let one = start(options(&server).enable_compression().compression_provider(Careless)).await;
    let revocable = LockOptions::new().revocable(|_: &str| {});
    let mutex = InterProcessMutex::with_options(one, "/m", revocable).unwrap();
    let guard = in_time(mutex.acquire()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    Revoker::attempt_revoke(&other, guard.path()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    drop(guard);
    eventually("the node is deleted", async || server.children("/m").unwrap_or_default().is_empty()).await;
}

//! Curator's `TestInterProcessSemaphoreCluster`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use curator_framework::{CuratorFramework, FixedEnsembleProvider, RetryForever};
use curator_recipes::InterProcessSemaphoreV2;
use curator_test::TestingServer;

use crate::env::{builder, eventually, in_time};

/// A client that takes the one lease and keeps it until it is lost, over and over.
async fn hold_over_and_over(client: CuratorFramework, path: &str, holders: Arc<AtomicUsize>, grants: Arc<AtomicUsize>) {
    let semaphore = InterProcessSemaphoreV2::new(client, path, 1).unwrap();
    loop {
        let Ok(lease) = semaphore.acquire().await else { continue };
        assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two holders at once");
        grants.fetch_add(1, Ordering::SeqCst);
        lease.lost().await;
        holders.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Curator's `TestInterProcessSemaphoreCluster.testKilledServerWithEnsembleProvider`: the servers are replaced by others
/// on other ports.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_follow_the_provider_to_other_servers() {
    let server = || TestingServer::builder().session_timeouts(Duration::from_secs(2), Duration::from_secs(60)).start();
    let first = server().unwrap();
    let provider = FixedEnsembleProvider::new(first.connect_string());
    let (holders, grants) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = tokio::task::JoinSet::new();
    let mut clients = Vec::new();
    for _ in 0..10 {
        let options = builder(first.address()).ensemble_provider(provider.clone());
        let options = options.session_timeout(Duration::from_secs(2)).connection_timeout(Duration::from_millis(500));
        let client = options.retry_policy(RetryForever::new(Duration::from_millis(50)).unwrap()).build().unwrap();
        client.start().unwrap();
        in_time(client.block_until_connected()).await.unwrap();
        let (holders, grants) = (Arc::clone(&holders), Arc::clone(&grants));
        clients.push(client.clone());
        tasks.spawn(async move { hold_over_and_over(client, "/semaphore", holders, grants).await });
    }
    let one = async || holders.load(Ordering::SeqCst) == 1;
    eventually("one of them holds", one).await;
    drop(first);
    eventually("nobody holds", async || holders.load(Ordering::SeqCst) == 0).await;
    let before = grants.load(Ordering::SeqCst);
    let second = server().unwrap();
    provider.set_connect_string(second.connect_string());
    eventually("one of them holds again", one).await;
    // All of them are there: one holds the lease, one waits for it, eight for their turn.
    eventually("all are in the queue", async || {
        let count = |path| second.children(path).map_or(0, |children| children.len());
        count("/semaphore/leases") == 2 && count("/semaphore/locks") == 9
    })
    .await;
    assert!(holders.load(Ordering::SeqCst) == 1 && grants.load(Ordering::SeqCst) == before + 1);
    assert!(tasks.try_join_next().is_none(), "one of them has failed");
    tasks.shutdown().await;
    for client in clients {
        client.close().await;
    }
}

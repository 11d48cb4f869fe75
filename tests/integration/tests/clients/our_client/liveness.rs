//! What proves that the session lives.

use std::time::Duration;

use curator_framework::{CuratorFramework, SessionEnd};
use curator_framework::{DefaultZooKeeperFactory, RetryNTimes};
use curator_integration::env::{connected as connect, eventually, in_time};
use curator_recipes::InterProcessMutex;
use curator_test::wire::OpCode;
use curator_test::{ApacheCluster, TestingServer};

use super::second;

/// A leader that the others have left answers a `sync` by itself, until it knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leader_that_is_alone_does_not_keep_a_session() {
    let limit = 60;
    let cluster = tokio::task::block_in_place(|| ApacheCluster::builder().sync_limit(limit).start().unwrap());
    let leader = tokio::task::block_in_place(|| cluster.wait_until_serving().unwrap());
    let client = CuratorFramework::builder(cluster.server(leader).unwrap().to_string())
        .zookeeper_factory(DefaultZooKeeperFactory::new())
        .session_timeout(Duration::from_secs(6))
        .connection_timeout(Duration::from_secs(6))
        .retry_policy(RetryNTimes::new(0, Duration::ZERO))
        .build()
        .unwrap();
    client.start().unwrap();
    let guard = in_time(InterProcessMutex::new(client.clone(), "/lock").unwrap().acquire()).await.unwrap();
    for other in (0..cluster.servers()).filter(|other| *other != leader) {
        tokio::task::block_in_place(|| cluster.freeze(other).unwrap());
    }
    let session = client.session().await.unwrap();
    let mut ended = std::pin::pin!(session.ended());
    // Even when it is asked for one again and again.
    let end = in_time(async {
        loop {
            tokio::select! {
                end = &mut ended => return end,
                _synced = session.sync("/") => tokio::task::yield_now().await,
            }
        }
    })
    .await;
    assert_eq!(end, SessionEnd::DeadlinePassed);
    assert!(!guard.is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeat_of_a_holder_is_a_write() {
    let server = TestingServer::start().unwrap();
    let client = connect(second(server.address()).session_timeout(Duration::from_secs(4))).await;
    let guard = InterProcessMutex::new(client.clone(), "/lock").unwrap().acquire().await.unwrap();
    server.clear_requests();
    let asked = |op| server.requests().iter().any(|one| one.op == op);
    eventually("a write that changes nothing", async || asked(OpCode::Delete)).await;
    assert!(!asked(OpCode::Sync));
    assert!(guard.release().await.unwrap().is_released());
}

//! The corners where several promises meet: owners, halves, parts, ends.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod framework;
mod owners;
mod read_write;
mod semaphore;
mod several;

use std::time::{Duration, Instant};

use curator_framework::{CuratorFramework, CuratorFrameworkBuilder, RetryNTimes};
use curator_test::{ClientId, SimulatedEnsemble, TestingServer};

/// Longer than anything that is waited for can take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

fn server() -> TestingServer {
    TestingServer::builder().session_timeouts(Duration::from_secs(2), Duration::from_secs(60)).start().unwrap()
}

fn options(server: &TestingServer) -> CuratorFrameworkBuilder {
    CuratorFramework::builder(server.connect_string())
        .session_timeout(Duration::from_secs(60))
        .connection_timeout(Duration::from_secs(10))
        .retry_policy(RetryNTimes::new(10, Duration::from_millis(50)))
}

async fn start(options: CuratorFrameworkBuilder) -> CuratorFramework {
    let client = options.build().unwrap();
    client.start().unwrap();
    client.block_until_connected().await.unwrap();
    client
}

async fn client(server: &TestingServer) -> CuratorFramework {
    start(options(server)).await
}

async fn simulated(ensemble: &SimulatedEnsemble, id: u32) -> CuratorFramework {
    let options = ensemble.client(ClientId(id)).session_timeout(Duration::from_secs(60));
    start(options.retry_policy(RetryNTimes::new(10, Duration::from_millis(50)))).await
}

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it did not come in time")
}

async fn eventually(what: &str, mut is_true: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !is_true().await {
        assert!(start.elapsed() < PATIENCE, "{what}: not in time");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

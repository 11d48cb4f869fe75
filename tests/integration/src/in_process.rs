//! Our client on a server of the test's own, in this process or simulated.

use std::time::Duration;

use curator_framework::{CuratorFramework, CuratorFrameworkBuilder, RetryNTimes};
use curator_test::{ClientId, SimulatedEnsemble, TestingServer};

use crate::env::connected;

/// An in-process server of the test's own.
pub fn server() -> TestingServer {
    TestingServer::builder().session_timeouts(Duration::from_secs(2), Duration::from_secs(60)).start().unwrap()
}

/// Options of our client, with a session that outlives the test.
pub fn options(server: &TestingServer) -> CuratorFrameworkBuilder {
    CuratorFramework::builder(server.connect_string())
        .session_timeout(Duration::from_secs(60))
        .connection_timeout(Duration::from_secs(10))
        .retry_policy(RetryNTimes::new(10, Duration::from_millis(50)))
}

/// A connected client of these options.
pub async fn client(server: &TestingServer) -> CuratorFramework {
    connected(options(server)).await
}

/// A connected client of a simulation.
pub async fn simulated(ensemble: &SimulatedEnsemble, id: u32) -> CuratorFramework {
    let options = ensemble.client(ClientId(id)).session_timeout(Duration::from_secs(60));
    connected(options.retry_policy(RetryNTimes::new(10, Duration::from_millis(50)))).await
}

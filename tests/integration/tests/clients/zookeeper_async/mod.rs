//! The adapter to the crate `zookeeper-async`: what it does about the crate's faults.

mod credentials;
mod liveness;
mod logging;
mod session_identity;

use std::net::SocketAddr;

use curator_framework::{CuratorFrameworkBuilder, ZooKeeperAsyncFactory};
use curator_integration::env;

/// The options of the tests, with this client regardless of `CURATOR_TEST_CLIENT`.
fn builder(address: SocketAddr) -> CuratorFrameworkBuilder {
    env::builder(address).zookeeper_factory(ZooKeeperAsyncFactory)
}

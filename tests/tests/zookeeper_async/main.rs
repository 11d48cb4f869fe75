//! The adapter to the crate `zookeeper-async`: what it does about the crate's faults.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

#[allow(dead_code, reason = "other tests use the rest of it")]
#[path = "../integration/clients.rs"]
mod clients;
#[allow(dead_code, reason = "other tests use the rest of it")]
#[allow(unused_macros, reason = "other tests use it")]
#[path = "../integration/env.rs"]
mod env;

mod liveness;
mod logging;
mod session_identity;

use std::net::SocketAddr;

use curator_framework::{CuratorFrameworkBuilder, ZooKeeperAsyncFactory};

/// The options of the tests, with this client whatever `CURATOR_TEST_CLIENT` says.
fn builder(address: SocketAddr) -> CuratorFrameworkBuilder {
    env::builder(address).zookeeper_factory(ZooKeeperAsyncFactory)
}

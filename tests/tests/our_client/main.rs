//! Our client beside the crate `zookeeper-async`: requests, options and servers that only one of them supports.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

#[allow(dead_code, reason = "other tests use the rest of it")]
#[path = "../integration/clients.rs"]
mod clients;
#[allow(dead_code, reason = "other tests use the rest of it")]
#[macro_use]
#[path = "../integration/env.rs"]
mod env;

mod compression;
mod containers;
mod cost;
mod guarded;
mod liveness;
mod read_only;
mod reconfig;
mod secure;
mod sessions;
mod transactions;
mod unsupported;
mod watches;

use std::net::SocketAddr;

use curator_framework::{CuratorFramework, CuratorFrameworkBuilder, DefaultZooKeeperFactory};

/// The options of the tests, for our client.
fn second(address: SocketAddr) -> CuratorFrameworkBuilder {
    env::builder(address).zookeeper_factory(DefaultZooKeeperFactory::new())
}

async fn connected(address: SocketAddr) -> CuratorFramework {
    env::connected(second(address)).await
}

//! Our client beside the crate `zookeeper-async`: requests, options and servers that only one of them supports.

mod compression;
mod containers;
mod guarded;
mod identities;
mod liveness;
mod login;
mod login_faults;
mod new_sessions;
mod paused_clock;
mod program_end;
mod read_only;
mod reconfig;
mod resync;
mod secure;
mod sessions;
mod subscribed_recipes;
mod subscriptions;
mod tls_providers;
mod transactions;
mod unsupported;
mod watches;

use std::net::SocketAddr;

use curator_framework::{CuratorFramework, CuratorFrameworkBuilder, DefaultZooKeeperFactory};
use curator_integration::env;

/// The options of the tests, for our client.
fn second(address: SocketAddr) -> CuratorFrameworkBuilder {
    env::builder(address).zookeeper_factory(DefaultZooKeeperFactory::new())
}

async fn connected(address: SocketAddr) -> CuratorFramework {
    env::connected(second(address)).await
}

//! Barriers on both servers, over either client.

mod barrier;
mod curator;

use curator_framework::CuratorFramework;
use curator_integration::env::{eventually, watchers};

/// Waits until a client has this many watches.
pub(crate) async fn watched(client: &CuratorFramework, count: usize) {
    eventually("the watches are set", async || watchers(std::slice::from_ref(client)) == count).await;
}

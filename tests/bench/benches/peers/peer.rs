//! The requests of the benchmark to each peer. The peers are in `ours.rs`, `other_languages.rs` (Curator, kazoo), `others.rs` (Redis, SQLite) and `bare.rs`.

use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;

use crate::workload::{Outcome, Workload};
pub(crate) use curator_bench::socket::Result;

/// One run: where, on which path, for how long.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) server: SocketAddr,
    pub(crate) path: String,
    pub(crate) time: Duration,
    pub(crate) size: usize,
}

/// A lock that does the workloads.
#[async_trait]
pub(crate) trait Peer: Send {
    fn name(&self) -> &'static str;

    /// Whether its locks are in ZooKeeper.
    fn is_in_zookeeper(&self) -> bool {
        true
    }

    /// Whether it has such a lock.
    fn does(&self, workload: Workload) -> bool;

    async fn run(&mut self, workload: Workload, run: &Run) -> Result<Outcome>;
}

/// The name by which the table and the ratios know it.
pub(crate) const CURATOR: &str = "Curator 5.4";
pub(crate) const OURS: &str = "this";
/// The same over the crate `zookeeper-async`.
pub(crate) const OURS_SECOND: &str = "this over zookeeper-async";
/// The recipe written out over the client crate.
pub(crate) const BARE_CRATE: &str = "bare zookeeper-async";
/// The least that the requests cost, with a thread for each session.
pub(crate) const SOCKETS: &str = "bare sockets";
/// The least that the requests cost on the runtime that this project's client uses.
pub(crate) const TOKIO_SOCKETS: &str = "bare sockets on tokio";

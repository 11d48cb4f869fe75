//! A peer, and the names by which the tables know it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use curator_bench::figures::float;
use curator_bench::plain::{Session, direct_lease, lease, lock};
use curator_bench::process::Result;
use futures_util::future::BoxFuture;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::workload::Recipe;

/// The same over the crate `zookeeper-async`.
pub(crate) const OURS_SECOND: &str = "this over zookeeper-async";
/// The lock of the crate of this name.
pub(crate) const CLIENT: &str = "zookeeper-client";
/// The recipe written out over the client crate.
pub(crate) const BARE_CRATE: &str = "bare zookeeper-async";
/// The least that the requests cost on the runtime that this project's client uses.
pub(crate) const TOKIO_SOCKETS: &str = "bare sockets on tokio";
pub(crate) const REDIS: &str = "Redis";
pub(crate) const SQLITE: &str = "SQLite";

/// One run: what, where, on which path, for how long.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) recipe: Recipe,
    pub(crate) server: SocketAddr,
    pub(crate) path: String,
    pub(crate) time: Duration,
    pub(crate) size: usize,
}

impl Run {
    /// Acquires the lock and releases it.
    pub(crate) async fn cycle(&self, session: &mut impl Session) -> Result<()> {
        let node = match self.recipe {
            Recipe::Semaphore => lease(session, &self.path).await?,
            Recipe::DirectSemaphore => direct_lease(session, &self.path).await?,
            _ => lock(session, &self.path).await?,
        };
        session.delete(&node).await
    }

    /// Returns the nodes that have to be there.
    pub(crate) fn parents(&self) -> Vec<String> {
        let parts: &[_] = match self.recipe {
            Recipe::Semaphore | Recipe::DirectSemaphore => &["", "/locks", "/leases"],
            _ => &[""],
        };
        parts.iter().map(|part| format!("{}{part}", self.path)).collect()
    }
}

/// A lock that does the workloads.
#[async_trait]
pub(crate) trait Peer: Send {
    /// Returns cycles per second, or the median of the hand-offs in milliseconds.
    async fn run(&mut self, run: &Run) -> Result<f64>;
}

pub(crate) fn per_second(cycles: usize, elapsed: Duration) -> f64 {
    float(cycles) / elapsed.as_secs_f64()
}

/// Runs cycles of all contenders until the time has ended. Returns the cycles per second, and the contenders.
pub(crate) async fn compete<C, F>(run: &Run, contenders: Vec<C>, cycle: F) -> Result<(f64, Vec<C>)>
where
    C: Send + 'static,
    F: for<'a> Fn(&'a mut C, &'a Run) -> BoxFuture<'a, Result<()>> + Clone + Send + Sync + 'static,
{
    let begin = std::sync::Arc::new(Barrier::new(run.size + 1));
    let mut tasks = JoinSet::new();
    for mut own in contenders {
        let (begin, run, cycle) = (begin.clone(), run.clone(), cycle.clone());
        tasks.spawn(async move {
            begin.wait().await;
            let began = Instant::now();
            let mut cycles = 0;
            while began.elapsed() < run.time {
                cycle(&mut own, &run).await?;
                cycles += 1;
            }
            Result::Ok((cycles, own))
        });
    }
    // Taken before the barrier: a contender that starts may keep this task from its thread.
    let began = Instant::now();
    begin.wait().await;
    let (mut cycles, mut contenders) = (0, Vec::new());
    while let Some(done) = tasks.join_next().await {
        let (of_this, contender) = done??;
        cycles += of_this;
        contenders.push(contender);
    }
    Ok((per_second(cycles, began.elapsed()), contenders))
}

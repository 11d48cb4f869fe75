//! The plain recipes on the bare client crate `zookeeper-async`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use curator_bench::plain::{CrateSession, watcher};
use curator_bench::process::Result;
use futures_util::future::try_join_all;
use tokio::task::JoinSet;
use zookeeper_async::{Acl, CreateMode, ZooKeeper};

use crate::peer::{Peer, Run, compete, per_second};
use crate::workload::Recipe;

pub(crate) struct BareCrate;

/// A queue of one session, where each watches the node ahead, and its own when it is the next.
async fn drain(zookeeper: &Arc<ZooKeeper>, path: &str, size: usize) -> Result<Duration> {
    let sequential = format!("{path}/_c_{:036}-lock-", 0);
    let create = |_| {
        let acl = Acl::open_unsafe().clone();
        zookeeper.create(&sequential, b"127.0.0.1".to_vec(), acl, CreateMode::EphemeralSequential)
    };
    let mut nodes = try_join_all((0..=size).map(create)).await?;
    nodes.sort();
    let nodes = Arc::new(nodes);
    let mut waiters = JoinSet::new();
    for place in 1..=size {
        let (watcher, mut fired) = watcher();
        zookeeper.get_data_w(&nodes[place - 1], watcher).await?;
        let (zookeeper, nodes) = (Arc::clone(zookeeper), Arc::clone(&nodes));
        waiters.spawn(async move {
            fired.recv().await;
            let_go(&zookeeper, &nodes, place).await
        });
    }
    let began = Instant::now();
    let_go(zookeeper, &nodes, 0).await?;
    while let Some(done) = waiters.join_next().await {
        done??;
    }
    Ok(began.elapsed())
}

/// Deletes a node, and lets the next one watch its own.
async fn let_go(zookeeper: &ZooKeeper, nodes: &[String], place: usize) -> Result<()> {
    let next = async {
        match nodes.get(place + 1) {
            Some(next) => zookeeper.get_data_w(next, watcher().0).await.map(drop),
            None => Ok(()),
        }
    };
    let (watched, deleted) = futures_util::join!(next, zookeeper.delete(&nodes[place], None));
    watched?;
    Ok(deleted?)
}

#[async_trait]
impl Peer for BareCrate {
    async fn run(&mut self, run: &Run) -> Result<f64> {
        let is_queue = run.recipe == Recipe::Drain;
        let mut contenders = Vec::new();
        for _ in 0..if is_queue { 1 } else { run.size } {
            contenders.push(CrateSession::connect(&run.server.to_string()).await?);
        }
        let first = Arc::clone(&contenders[0].zookeeper);
        let (figure, contenders) = if is_queue {
            (per_second(run.size, drain(&first, &run.path, run.size).await?), contenders)
        } else {
            compete(run, contenders, |own, run| Box::pin(run.cycle(own))).await?
        };
        for contender in contenders {
            contender.zookeeper.close().await?;
        }
        Ok(figure)
    }
}

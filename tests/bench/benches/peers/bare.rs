//! The plain recipes on the bare client crate `zookeeper-async`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use curator_bench::process::Result;
use futures_util::future::try_join_all;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use zookeeper_async::{Acl, CreateMode, WatchedEvent, ZkError, ZooKeeper};

use crate::peer::{Peer, Run, compete, per_second};
use crate::plain::{self, Session, cycle};
use crate::workload::Recipe;

pub(crate) struct BareCrate;

struct Contender {
    zookeeper: Arc<ZooKeeper>,
    owner: usize,
    /// The watch of the last listing.
    watch: Option<mpsc::UnboundedReceiver<()>>,
}

impl Session for Contender {
    const LISTS_AGAIN: bool = true;

    async fn join(&mut self, parent: &str, name: &str) -> Result<(String, Vec<String>)> {
        let path = format!("{parent}/_c_{:036}-{name}-", self.owner);
        let acl = Acl::open_unsafe().clone();
        let creating = self.zookeeper.create2(&path, b"127.0.0.1".to_vec(), acl, CreateMode::EphemeralSequential);
        let (created, children) = futures_util::join!(creating, self.zookeeper.get_children(parent, false));
        Ok((created?.0, children?))
    }

    async fn list(&mut self, parent: &str, watch: bool) -> Result<Vec<String>> {
        if !watch {
            return Ok(self.zookeeper.get_children(parent, false).await?);
        }
        let (watcher, fired) = watcher();
        self.watch = Some(fired);
        Ok(self.zookeeper.get_children_w(parent, watcher).await?)
    }

    async fn changed(&mut self, _: &str) -> Result<()> {
        self.watch.take().ok_or("no watch")?.recv().await;
        Ok(())
    }

    async fn gone(&mut self, path: &str) -> Result<()> {
        let (watcher, mut fired) = watcher();
        match self.zookeeper.get_data_w(path, watcher).await {
            Ok(_) => drop(fired.recv().await),
            Err(ZkError::NoNode) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    async fn delete(&mut self, path: &str) -> Result<()> {
        Ok(self.zookeeper.delete(path, None).await?)
    }
}

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

/// What the crate calls, and where that is heard.
fn watcher() -> (impl FnOnce(WatchedEvent) + Send + 'static, mpsc::UnboundedReceiver<()>) {
    let (sender, fired) = mpsc::unbounded_channel();
    let watcher = move |_: WatchedEvent| {
        let _gone = sender.send(());
    };
    (watcher, fired)
}

#[async_trait]
impl Peer for BareCrate {
    async fn run(&mut self, run: &Run) -> Result<f64> {
        let is_queue = run.recipe == Recipe::Drain;
        let mut contenders = Vec::new();
        for owner in 0..if is_queue { 1 } else { run.size } {
            let server = run.server.to_string();
            let connecting = ZooKeeper::connect(&server, Duration::from_secs(60), |_: WatchedEvent| {});
            contenders.push(Contender { zookeeper: Arc::new(connecting.await?), owner, watch: None });
        }
        let first = Arc::clone(&contenders[0].zookeeper);
        for parent in plain::parents(run) {
            first.create(&parent, Vec::new(), Acl::open_unsafe().clone(), CreateMode::Persistent).await?;
        }
        let (figure, contenders) = if is_queue {
            (per_second(run.size, drain(&first, &run.path, run.size).await?), contenders)
        } else {
            compete(run, contenders, |own, run| Box::pin(cycle(own, run))).await?
        };
        for contender in contenders {
            contender.zookeeper.close().await?;
        }
        Ok(figure)
    }
}

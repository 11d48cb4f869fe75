//! The plain recipe on the bare client crate `zookeeper-async`: the same requests, as many at a time, without
//! reconnects, proofs or cleaning up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::future::try_join_all;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use zookeeper_async::{Acl, CreateMode, WatchedEvent, ZkError, ZooKeeper};

use crate::others::compete;
use crate::ours::LEASES;
use crate::peer::{BARE_CRATE, Peer, Result, Run};
use crate::workload::{Outcome, Workload};
use curator_bench::socket::place_of;

pub(crate) struct BareCrate;

struct Session {
    zookeeper: Arc<ZooKeeper>,
    owner: usize,
}

impl Session {
    async fn create(&self, parent: &str, name: &str) -> Result<(String, Vec<String>)> {
        let path = format!("{parent}/_c_{:036}-{name}-", self.owner);
        let acl = Acl::open_unsafe().clone();
        let creating = self.zookeeper.create2(&path, b"127.0.0.1".to_vec(), acl, CreateMode::EphemeralSequential);
        let (created, children) = futures_util::join!(creating, self.zookeeper.get_children(parent, false));
        Ok((created?.0, children?))
    }

    /// A mutex: the node that has it.
    async fn lock(&self, parent: &str) -> Result<String> {
        let (own, mut children) = self.create(parent, "lock").await?;
        loop {
            let place = place_of(&own, &mut children)?;
            if place == 0 {
                return Ok(own);
            }
            self.wait_for(&format!("{parent}/{}", children[place - 1])).await?;
            children = self.zookeeper.get_children(parent, false).await?;
        }
    }

    async fn lease(&self, path: &str) -> Result<String> {
        let turn = self.lock(&format!("{path}/locks")).await?;
        let parent = format!("{path}/leases");
        let (own, mut children) = self.create(&parent, "lease").await?;
        while children.len() > LEASES {
            let (watcher, mut fired) = watcher();
            children = self.zookeeper.get_children_w(&parent, watcher).await?;
            if children.len() > LEASES {
                fired.recv().await;
            }
        }
        self.zookeeper.delete(&turn, None).await?;
        Ok(own)
    }

    /// A lease of the direct protocol, where nobody keeps one: then nobody has to be told that he is the next.
    async fn direct_lease(&self, path: &str) -> Result<String> {
        let parent = format!("{path}/leases");
        let (own, mut children) = self.create(&parent, "lease").await?;
        loop {
            let place = place_of(&own, &mut children)?;
            if place < LEASES {
                return Ok(own);
            }
            if place == LEASES {
                let (watcher, mut fired) = watcher();
                children = self.zookeeper.get_children_w(&parent, watcher).await?;
                if place_of(&own, &mut children)? == LEASES {
                    fired.recv().await;
                } else {
                    continue;
                }
            } else {
                self.wait_for(&format!("{parent}/{}", children[place - 1])).await?;
            }
            children = self.zookeeper.get_children(&parent, false).await?;
        }
    }

    /// Waits until a node is gone.
    async fn wait_for(&self, path: &str) -> Result<()> {
        let (watcher, mut fired) = watcher();
        match self.zookeeper.get_data_w(path, watcher).await {
            Ok(_) => {
                fired.recv().await;
                Ok(())
            }
            Err(ZkError::NoNode) => Ok(()),
            Err(error) => Err(error.into()),
        }
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
    fn name(&self) -> &'static str {
        BARE_CRATE
    }

    fn does(&self, workload: Workload) -> bool {
        matches!(
            workload,
            Workload::Alone
                | Workload::AloneFar
                | Workload::Contended
                | Workload::ContendedFar
                | Workload::Drain
                | Workload::Semaphore
                | Workload::DirectSemaphore
        )
    }

    async fn run(&mut self, workload: Workload, run: &Run) -> Result<Outcome> {
        let server = run.server.to_string();
        let count = if workload == Workload::Drain { 1 } else { run.size };
        let mut connections = Vec::new();
        for _ in 0..count {
            let connecting = ZooKeeper::connect(&server, Duration::from_secs(60), |_: WatchedEvent| {});
            connections.push(Arc::new(connecting.await?));
        }
        let session = |(owner, zookeeper)| Session { zookeeper: Arc::clone(zookeeper), owner };
        let sessions: Vec<_> = connections.iter().enumerate().map(session).collect();
        for part in ["", "/locks", "/leases"] {
            let path = format!("{}{part}", run.path);
            sessions[0].zookeeper.create(&path, Vec::new(), Acl::open_unsafe().clone(), CreateMode::Persistent).await?;
            if !matches!(workload, Workload::Semaphore | Workload::DirectSemaphore) {
                break;
            }
        }
        if workload == Workload::Drain {
            let elapsed = drain(&connections[0], &run.path, run.size).await?;
            connections[0].close().await?;
            return Ok(Outcome::Cycles(run.size as u64, elapsed));
        }
        let (outcome, _) = compete(run, sessions, move |session, path| {
            Box::pin(async move {
                let node = match workload {
                    Workload::Semaphore => session.lease(path).await?,
                    Workload::DirectSemaphore => session.direct_lease(path).await?,
                    _ => session.lock(path).await?,
                };
                Ok(session.zookeeper.delete(&node, None).await?)
            })
        })
        .await?;
        for connection in connections {
            connection.close().await?;
        }
        Ok(outcome)
    }
}

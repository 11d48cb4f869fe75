//! The plain recipes, for a session of the bare client crate or over a bare socket: the requests of this project's locks,
//! as many at a time, without reconnects, proofs or cleaning up.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use zookeeper_async::{Acl, CreateMode, WatchedEvent, ZkError, ZooKeeper};

use crate::process::Result;

pub const LEASES: usize = 4;
/// As the locks name their nodes.
pub(crate) const PREFIX: &str = "_c_00000000-0000-0000-0000-000000000000-";

/// The requests of a session.
pub trait Session: Send {
    /// True if a contender lists again even if only one was ahead of it.
    const LISTS_AGAIN: bool;

    /// Creates an ephemeral sequential node, and lists its parent at the same time.
    fn join(&mut self, parent: &str, prefix: &str) -> impl Future<Output = Result<(String, Vec<String>)>> + Send;

    fn children(&mut self, parent: &str, watch: bool) -> impl Future<Output = Result<Vec<String>>> + Send;

    /// Waits until the watch of the last listing fires.
    fn changed(&mut self, parent: &str) -> impl Future<Output = Result<()>> + Send;

    /// Waits until a node is gone.
    fn gone(&mut self, path: &str) -> impl Future<Output = Result<()>> + Send;

    fn delete(&mut self, path: &str) -> impl Future<Output = Result<()>> + Send;
}

/// A mutex: the node that has it.
pub async fn lock<S: Session>(session: &mut S, parent: &str) -> Result<String> {
    let (own, mut children) = session.join(parent, &format!("{parent}/{PREFIX}lock-")).await?;
    loop {
        let place = place_of(&own, &mut children)?;
        if place == 0 {
            return Ok(own);
        }
        session.gone(&format!("{parent}/{}", children[place - 1])).await?;
        if place == 1 && !S::LISTS_AGAIN {
            return Ok(own);
        }
        children = session.children(parent, false).await?;
    }
}

/// A lease, under the lock that is given back then.
pub async fn lease(session: &mut impl Session, path: &str) -> Result<String> {
    let turn = lock(session, &format!("{path}/locks")).await?;
    let parent = format!("{path}/leases");
    let (own, mut children) = session.join(&parent, &format!("{parent}/{PREFIX}lease-")).await?;
    while children.len() > LEASES {
        children = session.children(&parent, true).await?;
        if children.len() > LEASES {
            session.changed(&parent).await?;
        }
    }
    session.delete(&turn).await?;
    Ok(own)
}

/// A lease of the direct protocol. No holder keeps its lease, so no waiter must be notified that it is next.
pub async fn direct_lease(session: &mut impl Session, path: &str) -> Result<String> {
    let parent = format!("{path}/leases");
    let (own, mut children) = session.join(&parent, &format!("{parent}/{PREFIX}lease-")).await?;
    loop {
        let place = place_of(&own, &mut children)?;
        if place < LEASES {
            return Ok(own);
        }
        if place == LEASES {
            children = session.children(&parent, true).await?;
            if place_of(&own, &mut children)? < LEASES {
                return Ok(own);
            }
            session.changed(&parent).await?;
        } else {
            session.gone(&format!("{parent}/{}", children[place - 1])).await?;
        }
        children = session.children(&parent, false).await?;
    }
}

/// Acquires a mutex and releases it.
pub async fn cycle(session: &mut impl Session, parent: &str) -> Result<()> {
    let node = lock(session, parent).await?;
    session.delete(&node).await
}

/// Sorts the contenders and returns the index of this contender's node.
fn place_of(own: &str, children: &mut [String]) -> Result<usize> {
    children.sort_by(|one, other| number(one).cmp(number(other)));
    Ok(children.iter().position(|child| own.ends_with(child.as_str())).ok_or("the node is gone")?)
}

fn number(name: &str) -> &str {
    &name[name.len().saturating_sub(10)..]
}

/// A session of the bare client crate `zookeeper-async`.
pub struct CrateSession {
    pub zookeeper: Arc<ZooKeeper>,
    /// The watch of the last listing.
    watch: Option<UnboundedReceiver<()>>,
}

impl CrateSession {
    pub async fn connect(server: &str) -> Result<Self> {
        let connecting = ZooKeeper::connect(server, Duration::from_secs(60), |_: WatchedEvent| {});
        Ok(Self { zookeeper: Arc::new(connecting.await?), watch: None })
    }
}

/// Returns what the crate calls, and where that is heard.
pub fn watcher() -> (impl FnOnce(WatchedEvent) + Send + 'static, UnboundedReceiver<()>) {
    let (sender, fired) = unbounded_channel();
    let watcher = move |_: WatchedEvent| {
        let _gone = sender.send(());
    };
    (watcher, fired)
}

impl Session for CrateSession {
    const LISTS_AGAIN: bool = true;

    async fn join(&mut self, parent: &str, prefix: &str) -> Result<(String, Vec<String>)> {
        let acl = Acl::open_unsafe().clone();
        let creating = self.zookeeper.create2(prefix, b"127.0.0.1".to_vec(), acl, CreateMode::EphemeralSequential);
        let ((own, _), children) = futures_util::try_join!(creating, self.zookeeper.get_children(parent, false))?;
        Ok((own, children))
    }

    async fn children(&mut self, parent: &str, watch: bool) -> Result<Vec<String>> {
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

//! Every lock under one face, for what all of them promise.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use curator_framework::{CuratorFramework, Error, make_path};
use curator_recipes::{
    InterProcessLock, InterProcessMultiLock, InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreMutex,
    InterProcessSemaphoreV2, LockError, LockGuard, MutexOptions, SemaphoreOptions, SemaphoreProtocol,
};
use tokio::task::JoinHandle;

use crate::env::{Env, eventually};

/// Which lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    Mutex,
    /// A mutex with batches: the tasks of a client share a node.
    OneNodeMutex,
    SemaphoreMutex,
    Multi,
    Read,
    Write,
    OneLease,
    /// A lease with batches: the tasks of a client share it.
    SharedLease,
    OneDirectLease,
}

/// A semaphore as a lock.
#[derive(Debug)]
pub struct AnyLease(pub InterProcessSemaphoreV2);

#[async_trait]
impl InterProcessLock for AnyLease {
    async fn acquire(&self) -> Result<LockGuard, LockError> {
        self.0.acquire().await.map(Into::into)
    }

    async fn acquire_timeout(&self, budget: Duration) -> Result<Option<LockGuard>, LockError> {
        Ok(self.0.acquire_timeout(budget).await?.map(Into::into))
    }

    async fn try_acquire(&self) -> Result<Option<LockGuard>, LockError> {
        Ok(self.0.try_acquire().await?.map(Into::into))
    }

    fn is_acquired_in_this_process(&self) -> bool {
        self.0.is_acquired_in_this_process()
    }
}

impl Which {
    pub const ALL: [Self; 9] = [
        Self::Mutex,
        Self::OneNodeMutex,
        Self::SemaphoreMutex,
        Self::Multi,
        Self::Read,
        Self::Write,
        Self::OneLease,
        Self::SharedLease,
        Self::OneDirectLease,
    ];

    /// Those that one has at a time.
    pub fn exclusive() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|which| *which != Self::Read)
    }

    /// Those with batches: the waiting tasks of a client share a node.
    pub fn has_batches(self) -> bool {
        matches!(self, Self::OneNodeMutex | Self::SharedLease)
    }

    /// Those that an owner may acquire again.
    pub fn is_reentrant(self) -> bool {
        matches!(self, Self::Mutex | Self::OneNodeMutex | Self::Multi | Self::Read | Self::Write)
    }

    /// A lock of this kind, in a folder of its own below `root`.
    pub fn lock(self, client: &CuratorFramework, root: &str) -> Arc<dyn InterProcessLock> {
        let (client, path) = (client.clone(), self.path(root));
        match self {
            Self::Mutex => Arc::new(InterProcessMutex::new(client, path).unwrap()),
            Self::OneNodeMutex => {
                let options = MutexOptions::new().one_node_per_client();
                Arc::new(InterProcessMutex::with_options(client, path, options).unwrap())
            }
            Self::SemaphoreMutex => Arc::new(InterProcessSemaphoreMutex::new(client, path).unwrap()),
            Self::Multi => {
                let paths = [make_path(&path, "one"), make_path(&path, "two")];
                Arc::new(InterProcessMultiLock::new(client, paths).unwrap())
            }
            Self::Read => Arc::new(InterProcessReadWriteLock::new(client, path).unwrap().read_lock()),
            Self::Write => Arc::new(InterProcessReadWriteLock::new(client, path).unwrap().write_lock()),
            Self::OneLease => Arc::new(AnyLease(InterProcessSemaphoreV2::new(client, path, 1).unwrap())),
            Self::SharedLease => {
                let options = SemaphoreOptions::new().one_node_per_client();
                Arc::new(AnyLease(InterProcessSemaphoreV2::with_options(client, path, 1, options).unwrap()))
            }
            Self::OneDirectLease => Arc::new(AnyLease(
                InterProcessSemaphoreV2::with_options(
                    client,
                    path,
                    1,
                    SemaphoreOptions::new().protocol(SemaphoreProtocol::Direct),
                )
                .unwrap(),
            )),
        }
    }

    pub fn path(self, root: &str) -> String {
        make_path(root, &format!("{self:?}"))
    }

    /// The folders in which the nodes of the lock are.
    pub fn folders(self, root: &str) -> Vec<String> {
        let path = self.path(root);
        let below: &[&str] = match self {
            Self::Mutex | Self::OneNodeMutex | Self::Read | Self::Write => return vec![path],
            Self::Multi => &["one", "two"],
            Self::SemaphoreMutex | Self::OneLease | Self::SharedLease => &["locks", "leases"],
            Self::OneDirectLease => &["leases"],
        };
        below.iter().map(|name| make_path(&path, name)).collect()
    }

    /// The folder in which a waiter for the lock has a node.
    pub fn queue(self, root: &str) -> String {
        match self {
            Self::Multi => make_path(&self.path(root), "one"),
            _ => self.folders(root).pop().unwrap(),
        }
    }

    /// The nodes of holders and waiters of the lock.
    pub async fn nodes(self, client: &CuratorFramework, root: &str) -> Vec<String> {
        let mut nodes = Vec::new();
        for folder in self.folders(root) {
            match client.get_children().for_path(&folder).await {
                Ok(children) => nodes.extend(children.iter().map(|child| make_path(&folder, child))),
                Err(Error::NoNode { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        nodes
    }

    /// Waits until this many contenders hold the lock or wait for it. Several tasks of a client may share a node.
    pub async fn wait_for_contenders(self, env: &Env, client: &CuratorFramework, root: &str, contenders: usize) {
        if self.has_batches() {
            // The tasks are on this thread. Each waits in its batch after its first poll.
            tokio::task::yield_now().await;
        } else {
            env.wait_for_children(client, &self.queue(root), contenders).await;
        }
    }

    /// Waits until the lock has no holders and no waiters.
    pub async fn wait_until_free(self, client: &CuratorFramework, root: &str) {
        eventually(&format!("no node of {self:?} is left"), async || self.nodes(client, root).await.is_empty()).await;
    }
}

/// Waits for a lock in a task of its own.
pub fn acquiring(lock: &Arc<dyn InterProcessLock>) -> JoinHandle<Result<LockGuard, LockError>> {
    let lock = Arc::clone(lock);
    tokio::spawn(async move { lock.acquire().await })
}

/// What became of a future that was dropped after some polls.
#[derive(Debug)]
pub enum Polled<T> {
    Ready(T),
    Dropped,
}

/// Polls a future this often, as it asks for it, and drops it.
pub async fn poll_and_drop<T>(future: impl Future<Output = T>, polls: usize) -> Polled<T> {
    let mut future = Box::pin(future);
    let mut polled = 0;
    std::future::poll_fn(move |cx| {
        if polled == polls {
            return std::task::Poll::Ready(Polled::Dropped);
        }
        polled += 1;
        future.as_mut().poll(cx).map(Polled::Ready)
    })
    .await
}

//! The options that all locks have.

use std::sync::Arc;
use std::time::Duration;

use curator_framework::Acl;

use crate::engine::revocation::{RevocationListener, RevocationSpec};

/// The options of a lock. [`MutexOptions`](crate::MutexOptions) and [`SemaphoreOptions`](crate::SemaphoreOptions) have more.
///
/// # Examples
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = curator_test::TestingServer::start()?;
/// # let retry = curator_framework::RetryOneTime::new(std::time::Duration::from_millis(50));
/// # let client = curator_framework::CuratorFramework::new_client(server.connect_string(), retry)?;
/// # client.start()?;
/// use std::time::Duration;
/// use curator_recipes::{InterProcessMutex, MutexOptions};
///
/// let options = MutexOptions::new().name("printers").data("host-7").warn_after(Duration::from_secs(30));
/// let mutex = InterProcessMutex::with_options(client, "/locks/printer", options)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "options do nothing by themselves"]
pub struct LockOptions<K = ()> {
    pub(crate) data: Option<Vec<u8>>,
    pub(crate) acl: Option<Vec<Acl>>,
    pub(crate) warn_after: Option<Duration>,
    pub(crate) revocation: Option<RevocationSpec>,
    pub(crate) name: Option<Arc<str>>,
    pub(crate) one_node: bool,
    pub(crate) linger: Duration,
    pub(crate) max_waiting_nodes: Option<usize>,
    /// The options that only this kind of lock has.
    pub(crate) own: K,
}

impl<K: Default> LockOptions<K> {
    /// Returns the defaults.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<K> LockOptions<K> {
    /// Returns the options that all locks have, and the options that only this kind has.
    pub(crate) fn split(self) -> (LockOptions, K) {
        let Self { data, acl, warn_after, revocation, name, one_node, linger, max_waiting_nodes, own } = self;
        (LockOptions { data, acl, warn_after, revocation, name, one_node, linger, max_waiting_nodes, own: () }, own)
    }

    /// Sets the data of the lock's nodes, for inspection: Curator's `getLockNodeBytes`, `lockData` and `setNodeData`.
    /// Default: the client's default data. The nodes of a [revocable](Self::revocable) lock are created empty, as in
    /// Curator.
    #[doc(alias = "getLockNodeBytes")]
    #[doc(alias = "setNodeData")]
    pub fn data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.data = Some(data.into());
        self
    }

    /// Sets the access control list of the lock's nodes, the nodes of a semaphore's queue included. All contenders must
    /// be able to read the nodes. Default: the client's [`AclProvider`](curator_framework::AclProvider).
    pub fn acl(mut self, acl: impl Into<Vec<Acl>>) -> Self {
        self.acl = Some(acl.into());
        self
    }

    /// Logs a warning when the lock is held for longer than this, once for each grant. Default: never.
    pub fn warn_after(mut self, held: Duration) -> Self {
        self.warn_after = Some(held);
        self
    }

    /// Sets the name of the lock in metrics and in the span `acquire`. Default: the recipe, such as `mutex`. Metrics
    /// keep each name forever, so take one name for all paths of a kind, such as `tenants`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into().into());
        self
    }

    /// Lets the tasks of this client that wait for the lock share one node: see [batches](crate::batches). Default: each
    /// acquire creates a node of its own, as in Curator.
    ///
    /// All objects of a client with this option, one path, the same data and the same access control list share the node.
    /// An object that is [revocable](Self::revocable) or has a driver of its own shares it only with its clones.
    ///
    /// A semaphore's tasks share as many leases as they can have, and one node in the queue. Its
    /// [direct protocol](crate::SemaphoreProtocol::Direct) refuses the option. The tasks that wait for a read lock at the
    /// same time hold it by one node.
    pub fn one_node_per_client(mut self) -> Self {
        self.one_node = true;
        self
    }

    /// Keeps the node of a client with [`one_node_per_client`](Self::one_node_per_client) for this time after its last
    /// release, so that the next acquire of the client sends no request. Default: zero.
    ///
    /// The first other contender ends it, at the cost of a notification and a delete before that one's grant. Until then
    /// a `try_acquire` of others is refused, of readers of the same client too. If the process is frozen or cut off while
    /// the lock is free, others wait until the session times out. A lock without `one_node_per_client` is refused, and so is
    /// a semaphore: its leases do not stay. The node of a read lock does not stay either.
    pub fn linger(mut self, idle: Duration) -> Self {
        self.linger = idle;
        self
    }

    /// Sets the number of nodes with which this client waits at the path. Further acquires wait in the process, without
    /// a node, and join in their order as others are granted or leave. Default: 1,000. Curator has no limit: each of its
    /// waiters takes a thread.
    ///
    /// Each node takes memory of the servers, and they delete all nodes of a session in one transaction. So a larger
    /// number needs a larger [`max_ephemeral_bytes`](curator_framework::CuratorFrameworkBuilder::max_ephemeral_bytes). A
    /// smaller one lets other clients pass the waiters that have no node yet: only nodes are in ZooKeeper's queue, and
    /// `participants` shows them alone. The metric `curator_lock_waiting` counts the others.
    ///
    /// | case | what the limit does |
    /// | --- | --- |
    /// | holders, a downgrade, `try_acquire` | they need no place |
    /// | both halves of a read-write lock | count together |
    /// | an acquire of several leases | counts as one |
    /// | a new session | waiters that had a node come first |
    /// | an acquire that is not polled | it keeps its place, as it keeps its node |
    /// | objects of one path with different numbers | each number has its own limit |
    /// | a lock with a driver of its own | has no limit |
    ///
    /// Zero is refused.
    pub fn max_waiting_nodes(mut self, most: usize) -> Self {
        self.max_waiting_nodes = Some(most);
        self
    }

    /// Calls `listener` when a client requests the release of the lock with a [`Revoker`](crate::Revoker): Curator's
    /// `makeRevocable`.
    #[doc(alias = "makeRevocable")]
    pub fn revocable(mut self, listener: impl RevocationListener) -> Self {
        self.revocation = Some(RevocationSpec::new(listener));
        self
    }
}

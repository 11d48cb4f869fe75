//! Asking a holder to give the lock back.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use curator_framework::{CuratorFramework, Error, NodeClaim, SafeNotifyExecutor};
use tokio::sync::watch;

use crate::error::Result;

/// What Curator writes into a node that is to be given back.
const REVOKE_MESSAGE: &[u8] = b"__REVOKE__";

/// Asks holders of locks to give them back: Curator's `Revoker`.
#[derive(Debug, Clone, Copy)]
pub struct Revoker;

impl Revoker {
    /// Asks the owner of a node, which holds a lock or waits for it, to give it back. The node's path comes from
    /// [`participant_nodes`](crate::InterProcessMutex::participant_nodes) or
    /// [`participants`](crate::InterProcessMutex::participants). Nothing is forced: the owner is told if it asked to be
    /// ([`LockOptions::revocable`](crate::LockOptions::revocable),
    /// [`LockGuard::revocation_requested`](crate::LockGuard::revocation_requested)). A node that is gone is no error.
    ///
    /// # Errors
    ///
    /// `InvalidPath`, `NoAuth`; `ConnectionLoss` and `SessionExpired` when the retry policy gives up.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped the owner may have been asked.
    pub async fn attempt_revoke(client: &CuratorFramework, node_path: &str) -> Result<()> {
        match client.set_data().with_data(REVOKE_MESSAGE).for_path(node_path).await {
            Ok(_) | Err(Error::NoNode { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Is told when a lock is to be given back: Curator's `RevocationListener`.
///
/// Implemented for closures `Fn(&str)`.
pub trait RevocationListener: Send + Sync + 'static {
    /// Somebody asks for the lock, which this node holds or waits for. Called once for each request, or once for several
    /// that follow each other at once, on a thread that is no runtime's worker; it may block.
    fn revocation_requested(&self, node_path: &str);
}

impl<F: Fn(&str) + Send + Sync + 'static> RevocationListener for F {
    fn revocation_requested(&self, node_path: &str) {
        self(node_path);
    }
}

/// A listener and where it runs.
#[derive(Clone)]
pub(crate) struct RevocationSpec {
    listener: Arc<dyn RevocationListener>,
    executor: SafeNotifyExecutor,
}

impl RevocationSpec {
    pub(crate) fn new(listener: impl RevocationListener) -> Self {
        Self { listener: Arc::new(listener), executor: SafeNotifyExecutor::new() }
    }

    fn run(&self, node_path: &str) {
        let (listener, node_path) = (Arc::clone(&self.listener), node_path.to_owned());
        self.executor.submit(move || listener.revocation_requested(&node_path));
    }
}

impl fmt::Debug for RevocationSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RevocationSpec")
    }
}

/// Whether the owner of a node was asked to give it back.
#[derive(Debug, Clone)]
pub(crate) struct Revocation {
    requested: watch::Receiver<bool>,
}

impl Revocation {
    /// Watches a claimed node for requests, from now on and for those that were made before.
    pub(crate) fn watch(client: &CuratorFramework, claim: &NodeClaim, listener: Option<RevocationSpec>) -> Self {
        let (sender, requested) = watch::channel(false);
        let (client, path) = (client.clone(), claim.path().unwrap_or_default().to_owned());
        // Each request is a change of the data; the same one is read again after a reconnect.
        let newest = AtomicI64::new(0);
        claim.observe_data(move |data, stat| {
            let plain = client.from_stored(&path, data.to_vec(), None);
            if plain.is_ok_and(|plain| plain == REVOKE_MESSAGE)
                && newest.swap(stat.mzxid, Ordering::SeqCst) != stat.mzxid
            {
                sender.send_replace(true);
                if let Some(listener) = &listener {
                    listener.run(&path);
                }
            }
        });
        Self { requested }
    }

    /// Resolves when a request was made.
    pub(crate) async fn requested(&self) {
        let mut requested = self.requested.clone();
        if requested.wait_for(|requested| *requested).await.is_err() {
            // The node is gone, and with it the question.
            std::future::pending().await
        }
    }
}

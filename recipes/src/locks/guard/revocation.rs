//! Requests to release a lock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use curator_framework::{CuratorFramework, Error, OwnedNode, SafeNotifyExecutor};
use tokio::sync::watch;

use crate::locks::error::Result;

/// The data that requests the release of a node, as in Curator.
const REVOKE_MESSAGE: &[u8] = b"__REVOKE__";

/// Requests the release of locks: Curator's `Revoker`.
#[derive(Debug, Clone, Copy)]
pub struct Revoker;

impl Revoker {
    /// Requests that a contender releases its lock, or stops waiting. The path of its node comes from
    /// [`participant_nodes`](crate::InterProcessMutex::participant_nodes) or
    /// [`participants`](crate::InterProcessMutex::participants). A contender is notified by
    /// [`LockOptions::revocable`](crate::LockOptions::revocable) or
    /// [`LockGuard::revocation_requested`](crate::LockGuard::revocation_requested), and may ignore the request. A node
    /// that does not exist is not an error.
    ///
    /// # Errors
    ///
    /// `InvalidPath`, `NoAuth`; `ConnectionLoss` and `SessionExpired` when the retry policy gives up.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the request may have been made.
    pub async fn attempt_revoke(client: &CuratorFramework, node_path: &str) -> Result<()> {
        match client.set_data().with_data(REVOKE_MESSAGE).for_path(node_path).await {
            Ok(_) | Err(Error::NoNode { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// A callback for requests to release a lock: Curator's `RevocationListener`.
///
/// Implemented for closures `Fn(&str)`.
pub trait RevocationListener: Send + Sync + 'static {
    /// Handles a request to release the lock that this node holds or waits for. Several requests in quick succession
    /// may be one call. The calling thread is not a runtime's worker, so this may block.
    fn revocation_requested(&self, node_path: &str);
}

impl<F: Fn(&str) + Send + Sync + 'static> RevocationListener for F {
    fn revocation_requested(&self, node_path: &str) {
        self(node_path);
    }
}

/// A listener and its executor.
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

/// The state of the requests to release one node.
#[derive(Debug, Clone)]
pub(crate) struct Revocation {
    requested: watch::Receiver<bool>,
}

impl Revocation {
    /// Watches an owned node for requests, and reads whether one was made before.
    pub(crate) fn watch(client: &CuratorFramework, owned: &OwnedNode, listener: Option<RevocationSpec>) -> Self {
        let (sender, requested) = watch::channel(false);
        let (client, path) = (client.clone(), owned.path().unwrap_or_default().to_owned());
        // The same request is read again after a reconnect, with the same `mzxid`.
        let newest = AtomicI64::new(0);
        owned.observe_data(move |data, stat| {
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

    /// Resolves when a request was made, also before this call.
    pub(crate) async fn requested(&self) {
        let mut requested = self.requested.clone();
        if requested.wait_for(|requested| *requested).await.is_err() {
            // The node was deleted, so no request can follow.
            std::future::pending().await
        }
    }
}

//! Requests to release a lock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use curator_framework::recipe::{OwnedNode, RecipeClient as _};
use curator_framework::{CuratorFramework, Error, SafeNotifyExecutor, Stat, node_from_path};
use tokio::sync::watch;

use crate::engine::candidacy::LATCH_NAME;
use crate::engine::driver::{LockInternalsDriver as _, StandardLockInternalsDriver, standard_sequence};
use crate::engine::error::LockError;

/// The data that requests the release of a node, as in Curator.
const REVOKE_MESSAGE: &[u8] = b"__REVOKE__";

/// Requests the release of locks: Curator's `Revoker`.
#[derive(Debug, Clone, Copy)]
pub struct Revoker;

/// The outcome of a request to release a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "it says whether the contender was asked for the first time, again, or has left"]
#[non_exhaustive]
pub enum RevokeOutcome {
    /// The request was written. The contender may ignore it.
    Requested,
    /// The request was written, and replaced an earlier one: the contender has not left since.
    RequestedAgain,
    /// The node does not exist: the contender has left.
    NodeGone,
}

impl Revoker {
    /// Requests that a contender releases its lock, or stops waiting. The path of its node comes from
    /// [`participant_nodes`](crate::InterProcessMutex::participant_nodes) or
    /// [`participants`](crate::InterProcessMutex::participants).
    ///
    /// The request replaces the data of a node like a contender's: ephemeral, with a name that ends in a sequence
    /// number. Any other node is refused, even the persistent nodes of a custom
    /// [`LockInternalsDriver`](crate::LockInternalsDriver). A [`LeaderLatch`](crate::LeaderLatch)'s node is refused
    /// because its data is the latch's id. A [`LeaderSelector`](crate::LeaderSelector)'s node has the name of a
    /// mutex's, so the request overwrites its id. The write demands the version that was checked; a node that changes
    /// in between is read again. (Curator's `Revoker` writes to any node.)
    ///
    /// The outcome does not show whether the contender listens, because ZooKeeper does not show it. A contender is
    /// notified by [`LockOptions::revocable`](crate::LockOptions::revocable) or
    /// [`LockGuard::revocation_requested`](crate::LockGuard::revocation_requested), and may ignore the request.
    ///
    /// # Errors
    ///
    /// * `LockError::InvalidArgument`: the node is not a contender's; nothing was written.
    /// * `Error::InvalidPath`, `Error::NoAuth`, `Error::SchemaViolation`: nothing was written.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up; the request may have been made.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the request may have been made.
    pub async fn attempt_revoke(client: &CuratorFramework, node_path: &str) -> Result<RevokeOutcome, LockError> {
        let marker = client.to_stored_at(node_path, REVOKE_MESSAGE)?;
        // The outcome of a write that succeeds; known since the first read.
        let mut outcome = None;
        loop {
            // As it is stored: holder and caller may differ in compression.
            let (data, stat) = match client.get_data().undecompressed().for_path(node_path).await {
                Err(Error::NoNode { .. }) => return Ok(RevokeOutcome::NodeGone),
                read => read?,
            };
            if let Some(reason) = not_a_contender(node_path, &stat) {
                let reason = format!("{node_path} is not the node of a contender: {reason}");
                return Err(LockError::invalid("node to revoke", reason));
            }
            let requested = data == *marker;
            let outcome = match outcome {
                // An earlier try with a lost reply wrote it, or another client did: the contender is notified.
                Some(outcome) if requested => return Ok(outcome),
                Some(outcome) => outcome,
                None if requested => *outcome.insert(RevokeOutcome::RequestedAgain),
                None => *outcome.insert(RevokeOutcome::Requested),
            };
            match client.set_data().with_version(stat.version).for_path(node_path, REVOKE_MESSAGE).await {
                Ok(_) => return Ok(outcome),
                Err(Error::NoNode { .. }) => return Ok(RevokeOutcome::NodeGone),
                Err(Error::BadVersion { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns whether the data of a contender's node, such as [`Participant::data`](crate::Participant::data), is a request
    /// to release the lock.
    #[must_use]
    pub fn is_request(data: &[u8]) -> bool {
        data == REVOKE_MESSAGE
    }
}

/// Returns the reason why a node cannot be a contender's.
fn not_a_contender(path: &str, stat: &Stat) -> Option<&'static str> {
    if !StandardLockInternalsDriver.is_contender(stat.ephemeral_owner) {
        return Some("it is not ephemeral");
    }
    if standard_sequence(node_from_path(path), LATCH_NAME).is_some() {
        return Some("it belongs to a leader latch");
    }
    // Ten digits, or a minus sign and at least nine after the counter's overflow.
    let number = path.len().checked_sub(10).and_then(|begin| path.get(begin..)).unwrap_or_default();
    let digits = number.strip_prefix('-').unwrap_or(number);
    let ends_in_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    (!ends_in_number).then_some("its name does not end in a sequence number")
}

/// A callback for requests to release a lock: Curator's `RevocationListener`.
///
/// It is a closure, `Fn(&str)`, called with the path of the node that holds the lock or waits for it. Several requests
/// in quick succession may be one call. The calling thread is not a runtime's worker, so it may block.
pub trait RevocationListener: Fn(&str) + Send + Sync + 'static {}

impl<F: Fn(&str) + Send + Sync + 'static> RevocationListener for F {}

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
        self.executor.submit(move || listener(&node_path));
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

    /// Returns whether a request was made.
    pub(crate) fn is_requested(&self) -> bool {
        *self.requested.borrow()
    }

    /// Resolves when a request was made, even before this call.
    pub(crate) async fn requested(&self) {
        let mut requested = self.requested.clone();
        if requested.wait_for(|requested| *requested).await.is_err() {
            // The node was deleted, so no request can follow.
            std::future::pending().await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contenders_node_is_ephemeral_and_ends_in_a_sequence_number() {
        let ephemeral = Stat { ephemeral_owner: 7, ..Stat::default() };
        for path in [
            "/l/_c_53345f98-9423-4e0c-a7b5-9f819e3ec2e1-lock-0000000007",
            "/l/_c_53345f98-9423-4e0c-a7b5-9f819e3ec2e1-__READ__0000000007",
            "/l/53345f9894234e0ca7b59f819e3ec2e1__lock__0000000007",
            "/l/lock--2147483648",
            "/l/lock--000000001",
            "/l/0000000007",
        ] {
            assert_eq!(not_a_contender(path, &ephemeral), None, "{path}");
            let container = Stat { ephemeral_owner: i64::MIN, ..Stat::default() };
            for persistent in [Stat::default(), container] {
                assert_eq!(not_a_contender(path, &persistent), Some("it is not ephemeral"));
            }
        }
        for path in ["/", "/l/lock", "/l/lock-7", "/l/000000007", "/l/lock-00000000x7", "/l/üüüüü1", "/l/a----------"]
        {
            assert!(not_a_contender(path, &ephemeral).is_some(), "{path}");
        }
    }
}

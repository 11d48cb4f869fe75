//! Nodes that are to be deleted.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::Error;
use crate::sync::watch_cell::WatchCell;

/// A node that is to be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PendingDelete {
    /// An owned node that was dropped: its path, or, if that is uncertain, all nodes under the parent with the prefix.
    Claimed { parent: String, prefix: String, path: Option<String>, ephemeral: bool },
    /// The node of a guaranteed delete.
    Guaranteed { path: String, delete: Delete },
    /// The node at the path that a create without a reply may have made: an ephemeral node of the session, or a node that
    /// belongs to no session.
    Uncertain { path: String, ephemeral: bool },
    /// The ephemeral node at the path, if it has this data, which no other node has.
    Marked { path: String, data: String, written: Option<String> },
    /// The node at the path, if this transaction has created it.
    Created { path: String, czxid: i64, ephemeral: bool, written: Option<String> },
}

/// The options of a delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Delete {
    /// The version that the node must have.
    pub(crate) version: Option<i32>,
    /// The nodes below it are deleted too.
    pub(crate) children: bool,
}

impl PendingDelete {
    /// Returns `true` if the server deletes the node at the end of its session.
    pub(super) fn goes_with_session(&self) -> bool {
        match self {
            Self::Claimed { ephemeral, .. } | Self::Created { ephemeral, .. } | Self::Uncertain { ephemeral, .. } => {
                *ephemeral
            }
            Self::Marked { .. } => true,
            Self::Guaranteed { .. } => false,
        }
    }

    /// Returns the path of the node that each owner of this one writes with the create.
    pub(super) fn written(&self) -> Option<&str> {
        match self {
            Self::Marked { written, .. } | Self::Created { written, .. } => written.as_deref(),
            _ => None,
        }
    }

    /// Returns `true` if a read has to find the node that is meant.
    pub(super) fn is_looked_for(&self) -> bool {
        !matches!(self, Self::Guaranteed { .. } | Self::Claimed { path: Some(_), .. })
    }

    /// Returns `true` if the error ends the delete after this number of failed attempts. `NotEmpty`: others use the node.
    /// The owner of a child may be about to delete it, so a delete without a caller is tried twice. `BadVersion`: the
    /// caller's condition has failed.
    pub(super) fn is_over(&self, error: &Error, failures: u32) -> bool {
        let has_caller = matches!(self, Self::Guaranteed { .. });
        match error {
            Error::NotEmpty { .. } => has_caller || failures > 0,
            Error::BadVersion { .. } => has_caller,
            _ => false,
        }
    }
}

/// The nodes that have outlived their session, for the next session to delete.
#[derive(Debug, Default)]
pub(crate) struct DeleteBacklog {
    queue: Mutex<Vec<PendingDelete>>,
    /// The number of running operations that may leave a node to delete.
    owing: WatchCell<usize>,
}

/// The mark of a running operation that may leave a node to delete, in any session. Drop it after the operation has
/// handed over that node.
#[derive(Debug)]
pub(crate) struct PendingGuard(Arc<DeleteBacklog>);

impl Drop for PendingGuard {
    fn drop(&mut self) {
        self.0.owing.modify(|owing| *owing -= 1);
    }
}

impl DeleteBacklog {
    pub(crate) fn add(&self, remains: PendingDelete) {
        self.queue.lock().push(remains);
    }

    /// Adds what the end of its session leaves of a node.
    pub(super) fn inherit(&self, remains: PendingDelete) {
        if !remains.goes_with_session() {
            self.add(remains);
        }
    }

    pub(crate) fn take(&self) -> Vec<PendingDelete> {
        std::mem::take(&mut self.queue.lock())
    }

    pub(crate) fn track_pending(self: &Arc<Self>) -> PendingGuard {
        self.owing.modify(|owing| *owing += 1);
        PendingGuard(Arc::clone(self))
    }

    /// Resolves when no running operation may leave a node to delete.
    pub(crate) async fn settled(&self) {
        self.owing.wait_for(|&owing| owing == 0).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delete_without_a_caller_tries_a_node_with_children_twice() {
        let not_empty = Error::NotEmpty { path: "/a".into() };
        let left = PendingDelete::Uncertain { path: "/a".into(), ephemeral: false };
        assert_eq!([0, 1].map(|failures| left.is_over(&not_empty, failures)), [false, true]);
        let guaranteed = PendingDelete::Guaranteed { path: "/a".into(), delete: Delete::default() };
        assert!(guaranteed.is_over(&not_empty, 0));
    }

    #[test]
    fn only_a_caller_gives_up_at_another_version() {
        let changed = Error::BadVersion { path: "/a".into() };
        let left = PendingDelete::Created { path: "/a".into(), czxid: 7, ephemeral: false, written: None };
        assert!(!left.is_over(&changed, 9));
        let guaranteed = PendingDelete::Guaranteed { path: "/a".into(), delete: Delete::default() };
        assert!(guaranteed.is_over(&changed, 0));
    }
}

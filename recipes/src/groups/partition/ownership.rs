//! The state that all views of one owned item share.

use tokio::sync::SetOnce;

use crate::engine::error::LockError;
use crate::engine::hold::HoldShare;
use crate::nodes::error::NodeError;
use crate::standing::runs::Polls;

/// The state that all views of one ownership share.
pub(super) struct Ownership {
    pub(super) name: String,
    pub(super) share: HoldShare,
    /// Set when the member has to give the item up, and at its end.
    pub(super) revoked: SetOnce<()>,
    /// The polls of the work.
    pub(super) polls: Polls,
}

impl Ownership {
    /// Has the session delete the node, unless the work is being polled.
    pub(super) fn give_up(&self) {
        self.polls.unless_running(|| {
            self.revoke();
            self.share.delete_in_background("dropped");
        });
    }

    pub(super) fn revoke(&self) {
        // Fails if it was set before.
        let _first = self.revoked.set(());
    }
}

/// Converts the error of an item's lock.
pub(super) fn node_error(error: LockError) -> NodeError {
    match error {
        LockError::Framework(error) => error.into(),
        LockError::InvalidArgument { argument, reason } => NodeError::InvalidArgument { argument, reason },
        other => NodeError::InvalidArgument { argument: "partition", reason: other.to_string() },
    }
}

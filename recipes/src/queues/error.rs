//! The errors of queues.

use std::error::Error as StdError;
use std::sync::Arc;

use curator_framework::{LossReason, PathText};

/// An error of a queue.
///
/// The text is without the cause: [`Chain`](curator_framework::Chain) adds it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// An error of the framework: no connection, no permission, a closed client …
    #[error(transparent)]
    Framework(#[from] curator_framework::Error),
    /// The serializer has refused an item. Nothing was sent.
    #[error("an item for the queue {path} cannot be serialized")]
    Serialize {
        /// The queue's path.
        path: PathText,
        /// The error of the serializer.
        #[source]
        cause: Arc<dyn StdError + Send + Sync>,
    },
    /// The data of a node cannot be decoded. A consumer reports the node once, then skips it. The node stays: read it,
    /// then delete it by hand.
    #[error("the item {path} cannot be decoded: it stays in the queue until it is deleted")]
    Corrupt {
        /// The node's path.
        path: PathText,
        /// The defect, or the error of the serializer.
        #[source]
        cause: Arc<dyn StdError + Send + Sync>,
    },
    /// The queue's path has a child that is not an item. A consumer reports the node once, then skips it. The node
    /// stays: delete it, or move it to another path.
    #[error("the node {path} is not an item of the queue: it is skipped until it is deleted")]
    Foreign {
        /// The node's path.
        path: PathText,
    },
    /// The item was given back, or another consumer may have it: this delivery has no right to it any more. Nothing was
    /// changed. Stop the work; the item is delivered again.
    #[error("the delivery of {path} is lost: {reason}")]
    Lost {
        /// The path of the item's node.
        path: PathText,
        /// The reason of the loss.
        reason: LossReason,
    },
    /// Another client has deleted the item's node during the delivery. Nothing was changed.
    #[error("the item {path} was deleted by another client")]
    AlreadyGone {
        /// The path of the item's node.
        path: PathText,
    },
    /// The delivery was completed or given back by an earlier call.
    #[error("the delivery of {path} has ended by an earlier call")]
    Ended {
        /// The path of the item's node.
        path: PathText,
    },
    /// The call needs a lock path, and the queue delivers at most once: the item's node was deleted before the delivery.
    /// Set [`QueueOptions::lock_path`](crate::QueueOptions::lock_path).
    #[error("the item {path} was deleted before its delivery, so it cannot {request}: the queue has no lock path")]
    AtMostOnce {
        /// The path of the item's node.
        path: PathText,
        /// The refused call.
        request: &'static str,
    },
    /// An argument that cannot work.
    #[error("invalid {argument}: {reason}")]
    InvalidArgument {
        /// The argument's name.
        argument: &'static str,
        /// The rule that it breaks.
        reason: String,
    },
}

impl QueueError {
    /// Returns `true` if the same call may succeed later: see
    /// [`Error::is_retryable`](curator_framework::Error::is_retryable).
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Framework(error) if error.is_retryable())
    }

    /// Returns `true` if a write may have been applied although it failed with this error.
    #[must_use]
    pub fn outcome_unknown(&self) -> bool {
        matches!(self, Self::Framework(error) if error.outcome_unknown())
    }

    /// Returns `true` if the error is about one node, and a consumer continues with the others.
    #[must_use]
    pub const fn is_of_one_item(&self) -> bool {
        matches!(self, Self::Corrupt { .. } | Self::Foreign { .. })
    }

    pub(super) fn invalid(argument: &'static str, reason: impl Into<String>) -> Self {
        Self::InvalidArgument { argument, reason: reason.into() }
    }
}

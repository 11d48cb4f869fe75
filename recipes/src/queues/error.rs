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
    /// The codec has refused an item. Nothing was sent.
    #[error("an item for the queue {path} cannot be encoded")]
    Encode {
        /// The queue's path.
        path: PathText,
        /// The error of the codec.
        #[source]
        cause: Arc<dyn StdError + Send + Sync>,
    },
    /// The data of a node cannot be decoded. A consumer reports the node once, then skips it. The node stays: read it,
    /// then delete it by hand.
    #[error("the item {path} cannot be decoded and is skipped: delete the node, or fix the codec")]
    Corrupt {
        /// The node's path.
        path: PathText,
        /// The defect, or the error of the codec.
        #[source]
        cause: Arc<dyn StdError + Send + Sync>,
    },
    /// The queue's path has a child that is not an item. A consumer reports the node once, then skips it. The node
    /// stays: delete it, or move it to another path.
    #[error("the node {path} is not an item of the queue and is skipped: delete or move it")]
    Foreign {
        /// The node's path.
        path: PathText,
    },
    /// The server does not let this client read or take one item: no permission, it is too large, or its node has children.
    /// A consumer reports the node once, then skips it.
    #[error("the item {path} cannot be read or taken and is skipped")]
    Refused {
        /// The node's path.
        path: PathText,
        /// The error of the request.
        #[source]
        cause: curator_framework::Error,
    },
    /// The queue delivers at most once, and the item was claimed by a consumer with a lock path, or written by hand. All
    /// consumers of a queue must use the same mode. A consumer reports the node once, then skips it: use a consumer with the
    /// lock path.
    #[error(
        "the item {path} was claimed by a consumer with a lock path, so it is not taken at most once: set QueueOptions::lock_path"
    )]
    MixedModes {
        /// The path of the item's node.
        path: PathText,
    },
    /// The queue's path was deleted and created again while the request that takes an item was on its way. It has taken the
    /// new item of that name, and the data of this one is lost. With a lock path the dead letters have a node for it, with
    /// the data of the earlier item. The consumer continues.
    #[error("the path was created again while the item {path} was taken: the data of the new item is lost")]
    Replaced {
        /// The path of the item's node.
        path: PathText,
    },
    /// A request without a reply has taken or completed the item, or another consumer has taken it: the session has ended
    /// before that was known. This consumer no longer delivers the item. If it is still in the queue, it is delivered
    /// again.
    #[error("the outcome for the item {path} is unknown: the session has ended before the reply to the request")]
    Unknown {
        /// The path of the item's node.
        path: PathText,
    },
    /// The session has ended, or another client has deleted the item's lock. Another consumer may have the item. Nothing
    /// was changed. Stop the work; the item is delivered again.
    #[error("the delivery of {path} is lost: stop the work, the item is delivered again ({reason})")]
    Lost {
        /// The path of the item's node.
        path: PathText,
        /// The reason of the loss.
        reason: LossReason,
    },
    /// Another client has deleted the item's node during the delivery. Nothing was changed.
    #[error("the item {path} was deleted by another client: nothing was changed")]
    AlreadyGone {
        /// The path of the item's node.
        path: PathText,
    },
    /// The delivery was completed or given back by an earlier call.
    #[error("the delivery of {path} was ended by an earlier call: nothing was changed")]
    Ended {
        /// The path of the item's node.
        path: PathText,
    },
    /// The call needs a lock path, and the queue delivers at most once: the item's node was deleted before the delivery.
    /// Set [`QueueOptions::lock_path`](crate::QueueOptions::lock_path).
    #[error("the item {path} was deleted before its delivery, so it cannot {request}: set QueueOptions::lock_path")]
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
        match self {
            Self::Framework(error) => error.outcome_unknown(),
            Self::Unknown { .. } => true,
            _ => false,
        }
    }

    /// Returns `true` if the error is about one node, and a consumer continues with the others.
    #[must_use]
    pub const fn is_of_one_item(&self) -> bool {
        matches!(
            self,
            Self::Corrupt { .. }
                | Self::Foreign { .. }
                | Self::Refused { .. }
                | Self::Replaced { .. }
                | Self::MixedModes { .. }
                | Self::Unknown { .. }
        )
    }

    pub(super) fn invalid(argument: &'static str, reason: impl Into<String>) -> Self {
        Self::InvalidArgument { argument, reason: reason.into() }
    }
}

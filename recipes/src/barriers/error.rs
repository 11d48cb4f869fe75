//! The errors of barriers and latches.

use curator_framework::{LossReason, PathText, SessionId};

/// An error of a barrier or a latch.
///
/// The text is without the cause: [`Chain`](curator_framework::Chain) adds it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum BarrierError {
    /// An error of the framework: no connection, no permission, a closed client …
    #[error(transparent)]
    Framework(#[from] curator_framework::Error),
    /// The barrier is set by another client or guard.
    #[error("the barrier {path} is set already")]
    AlreadySet {
        /// The barrier's path.
        path: PathText,
        /// The session of the owner; `None` if the barrier has no owner.
        session: Option<SessionId>,
    },
    /// The node of an owner or a member is lost.
    #[error("the node of the barrier {path} is lost: {reason}")]
    Lost {
        /// The barrier's path.
        path: PathText,
        /// The reason of the loss.
        reason: LossReason,
    },
    /// No count is set.
    #[error("no count is set for the latch {path}")]
    NotSet {
        /// The latch's path.
        path: PathText,
    },
    /// The path has data that is not a latch's.
    #[error("the data of {path} is not that of a count-down latch")]
    NotALatch {
        /// The path.
        path: PathText,
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

impl BarrierError {
    /// Returns `true` if the same call may succeed later: see
    /// [`Error::is_retryable`](curator_framework::Error::is_retryable). `true` for `AlreadySet` and `NotSet`.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Framework(error) => error.is_retryable(),
            other => matches!(other, Self::AlreadySet { .. } | Self::NotSet { .. }),
        }
    }

    /// Returns `true` if a write may have been applied although it failed with this error.
    #[must_use]
    pub fn outcome_unknown(&self) -> bool {
        matches!(self, Self::Framework(error) if error.outcome_unknown())
    }
}

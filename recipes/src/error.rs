//! What can go wrong with a lock.

use curator_framework::LossReason;

/// The result of a lock's operations.
pub type Result<T, E = LockError> = std::result::Result<T, E>;

/// An error of a lock recipe. That somebody else has the lock is none: timed and try calls answer `Ok(None)` then.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// An error of the framework: no connection, no permission, a client that is closed …
    #[error(transparent)]
    Framework(#[from] curator_framework::Error),
    /// The owner's lock is lost, so it cannot be acquired again inside of itself. Let all its guards go first.
    #[error("the lock {path} is lost: {reason}")]
    LockLost {
        /// The lock's path.
        path: String,
        /// Why.
        reason: LossReason,
    },
    /// An argument that cannot work.
    #[error("invalid {argument}: {reason}")]
    InvalidArgument {
        /// The argument's name.
        argument: &'static str,
        /// What is wrong with it.
        reason: String,
    },
}

impl LockError {
    pub(crate) fn invalid(argument: &'static str, reason: impl Into<String>) -> Self {
        Self::InvalidArgument { argument, reason: reason.into() }
    }
}

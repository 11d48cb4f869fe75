//! What can go wrong with a lock.

use curator_framework::LossReason;

use crate::locks::SemaphoreProtocol;

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
    /// Whoever holds the read lock wants the write lock: both readers that do that would wait for each other. (Curator
    /// waits for ever.) Release the read lock first.
    #[error("the read lock {path} is held by the same owner and cannot be upgraded")]
    Upgrade {
        /// The lock's path.
        path: String,
    },
    /// The semaphore is used with the other protocol. All clients of a path must use the same: a waiting Java client
    /// and a direct one behind it would block each other.
    #[error("the semaphore {path} is used with the {found} protocol")]
    ProtocolMismatch {
        /// The semaphore's path.
        path: String,
        /// The protocol that is in use.
        found: SemaphoreProtocol,
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

//! The errors of locks.

use curator_framework::{LossReason, PathText};

use crate::engine::semaphore_protocol::SemaphoreProtocol;

/// An error of a lock recipe. A lock held by another contender is not one: timed and try calls return `Ok(None)`.
///
/// An outage is an error. These are the results of `acquire_timeout` when its budget ends:
///
/// | state at the end of the budget | result |
/// | --- | --- |
/// | connected, and the newest reply showed another contender ahead | `Ok(None)` |
/// | connected, and another acquire of the same owner is ahead | `Ok(None)` |
/// | connected, the awaited contender is gone, and the next reply is due since less than T/10 | `Ok(None)` |
/// | connected, but without a reply that decides | `Error::ConnectionLoss` |
/// | not connected, even if another contender was ahead before | `Error::ConnectionLoss` |
///
/// After each of them, the contender's node is deleted or is deleted in the background.
///
/// Most callers need only [`is_retryable`](Self::is_retryable) and [`outcome_unknown`](Self::outcome_unknown). Where a
/// method lists `Error::NoAuth`, match `LockError::Framework(Error::NoAuth { .. })`. The text is without the cause:
/// [`Chain`](curator_framework::Chain) adds it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// An error of the framework: no connection, no permission, a closed client …
    #[error(transparent)]
    Framework(#[from] curator_framework::Error),
    /// The lock is lost. A guard's own calls return this, such as `protect`, `verify`, `commit` and `reenter`. So does
    /// a reentrant acquire that meets the lost hold of its owner, and the acquire of several locks that loses one while
    /// it waits for the next. Drop all guards of the owner, then acquire again.
    #[error("the lock {path} is lost: {reason}")]
    LockLost {
        /// The lock's path.
        path: PathText,
        /// The reason of the loss.
        reason: LossReason,
    },
    /// The owner holds the read lock and asked for the write lock. Two readers that upgrade would deadlock, so the
    /// upgrade is refused (Curator deadlocks). Release the read lock first.
    #[error("the read lock {path} is held by the same owner and cannot be upgraded")]
    Upgrade {
        /// The lock's path.
        path: PathText,
    },
    /// The semaphore is used with the other protocol. All clients of a path must use the same one: a waiting Java
    /// client and a direct contender behind it would block each other.
    #[error("the semaphore {path} is used with the {found} protocol")]
    ProtocolMismatch {
        /// The semaphore's path.
        path: PathText,
        /// The protocol that is in use.
        found: SemaphoreProtocol,
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

impl LockError {
    /// Returns `true` if the same call may succeed later: see [`Error::is_retryable`](curator_framework::Error). It is
    /// `false` for [`LockLost`](Self::LockLost): handle that by an arm of its own, as the [tutorial](crate::tutorial)
    /// does.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Framework(error) if error.is_retryable())
    }

    /// Returns `true` if a write may have been applied although it failed with this error. An acquire that fails leaves
    /// no node for longer than its session.
    #[must_use]
    pub fn outcome_unknown(&self) -> bool {
        matches!(self, Self::Framework(error) if error.outcome_unknown())
    }

    /// Names the lock's path in an error of the framework that does not: see [`Error::about`](curator_framework::Error).
    pub(crate) fn about(self, path: &str) -> Self {
        match self {
            Self::Framework(error) => Self::Framework(error.about(path)),
            other => other,
        }
    }

    pub(crate) fn invalid(argument: &'static str, reason: impl Into<String>) -> Self {
        Self::InvalidArgument { argument, reason: reason.into() }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use curator_framework::Error;

    use super::*;

    #[test]
    fn the_frameworks_error_answers_whether_to_try_again() {
        let loss = |sent| LockError::from(Error::ConnectionLoss { request: "create /a".into(), sent, cause: None });
        let lost = LockError::LockLost { path: "/lock".into(), reason: LossReason::NodeDeleted };
        for (error, is_retryable, outcome_unknown) in [
            (loss(true), true, true),
            (loss(false), true, false),
            (Error::NoAuth { path: "/a".into() }.into(), false, false),
            (lost, false, false),
            (LockError::invalid("guard", "it was released"), false, false),
        ] {
            assert_eq!((error.is_retryable(), error.outcome_unknown()), (is_retryable, outcome_unknown), "{error}");
            assert!(error.source().is_none(), "{error}");
        }
    }
}

//! The errors of elections.

use std::fmt;

use curator_framework::{LossReason, PathText};

use crate::engine::error::LockError;
use crate::standing::StartError;

/// The reason why a term has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TermEnd {
    /// The leadership was lost.
    Lost(LossReason),
    /// The leader ended the term itself: by a resignation, an interrupt, an abstention, a close or a drop.
    Resigned,
}

impl fmt::Display for TermEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(reason) => reason.fmt(f),
            Self::Resigned => f.write_str("the leader has resigned"),
        }
    }
}

/// An error of an election. That another candidate leads is not an error:
/// [`leading_timeout`](crate::LeaderLatch::leading_timeout) returns `Ok(None)`.
///
/// The text is without the cause: [`Chain`](curator_framework::Chain) adds it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LeaderError {
    /// An error of the framework: no connection, no permission, a closed client …
    #[error(transparent)]
    Framework(#[from] curator_framework::Error),
    /// The term has ended.
    #[error("the leadership of {path} is over: {reason}")]
    LeadershipLost {
        /// The election's path.
        path: PathText,
        /// The reason of its end.
        reason: TermEnd,
    },
    /// The latch or the observer was not started.
    #[error("the election {path} is not started here")]
    NotStarted {
        /// The election's path.
        path: PathText,
    },
    /// The latch or the observer was started before, or the selector is running.
    #[error("the election {path} is started here already")]
    AlreadyStarted {
        /// The election's path.
        path: PathText,
    },
    /// The latch, the selector, the observer or the client was closed.
    #[error("the election {path} is closed here, or the client")]
    Closed {
        /// The election's path.
        path: PathText,
    },
    /// The path has data that no election has written, and an election does not overwrite it. A create without data
    /// writes the client's default data, the host's address. Set the data to nothing before the first candidate joins.
    #[error(
        "the data of {path} is not an election's, and is not overwritten: a create without data has written the \
         default data, or another program has its own there; set it to nothing before the candidates join"
    )]
    ForeignData {
        /// The election's path.
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

impl LeaderError {
    /// Returns `true` if the same call may succeed later: see
    /// [`Error::is_retryable`](curator_framework::Error::is_retryable). `false` for `LeadershipLost`: wait for the next
    /// term.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Framework(error) if error.is_retryable())
    }

    /// Returns `true` if a write may have been applied although it failed with this error.
    #[must_use]
    pub fn outcome_unknown(&self) -> bool {
        matches!(self, Self::Framework(error) if error.outcome_unknown())
    }

    pub(super) fn of_start(error: StartError, path: PathText) -> Self {
        match error {
            StartError::AlreadyStarted => Self::AlreadyStarted { path },
            StartError::Closed => Self::Closed { path },
            StartError::NoRuntime => curator_framework::Error::NoRuntime.into(),
        }
    }
}

impl LeaderError {
    /// Returns the error of an election's path.
    pub(super) fn of_path(error: LockError) -> Self {
        match error {
            LockError::InvalidArgument { .. } => {
                Self::InvalidArgument { argument: "election path", reason: "the root cannot be an election".to_owned() }
            }
            other => other.into(),
        }
    }
}

impl From<LockError> for LeaderError {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Framework(error) => Self::Framework(error),
            LockError::LockLost { path, reason } => Self::LeadershipLost { path, reason: TermEnd::Lost(reason) },
            LockError::InvalidArgument { argument, reason } => Self::InvalidArgument { argument, reason },
            other => Self::InvalidArgument { argument: "lock", reason: other.to_string() },
        }
    }
}

#[cfg(test)]
mod tests {
    use curator_framework::{CuratorFramework, RetryOneTime};

    use crate::{InterProcessMutex, LeaderError, LeaderLatch, LeaderObserver, LeaderSelector, LockError};

    #[tokio::test]
    async fn errors_name_the_candidate_and_the_election() {
        let retry = RetryOneTime::new(std::time::Duration::ZERO);
        let client = CuratorFramework::new_client("localhost:1", retry).unwrap();
        let root = "invalid election path: the root cannot be an election";
        assert_eq!(LeaderLatch::new(client.clone(), "/").unwrap_err().to_string(), root);
        assert_eq!(LeaderSelector::new(client.clone(), "/").unwrap_err().to_string(), root);
        assert_eq!(LeaderObserver::new(client.clone(), "/").unwrap_err().to_string(), root);

        let latch = LeaderLatch::new(client, "/e").unwrap();
        latch.start().unwrap();
        assert_eq!(latch.start().unwrap_err().to_string(), "the election /e is started here already");
        latch.close().await;
        assert_eq!(latch.leading().await.unwrap_err().to_string(), "the election /e is closed here, or the client");
    }
    /// A leader may take a lock, and pass its errors on.
    #[tokio::test]
    async fn errors_of_a_lock_keep_their_arguments() {
        let retry = RetryOneTime::new(std::time::Duration::ZERO);
        let client = CuratorFramework::new_client("localhost:1", retry).unwrap();
        let root = InterProcessMutex::new(client, "/").unwrap_err();
        for error in [root, LockError::Upgrade { path: "/rw".into() }] {
            let before = error.to_string();
            let after = LeaderError::from(error).to_string();
            assert!(after.ends_with(&before) && !after.contains("election"), "{before} is {after}");
        }
    }
}

//! The errors of shared values.

use curator_framework::PathText;

use crate::content::default_data;

/// An error of a [`SharedValue`](crate::SharedValue) or a [`SharedCount`](crate::SharedCount).
///
/// The text is without the cause: [`Chain`](curator_framework::Chain) adds it. Where a method lists `Error::NoAuth`,
/// match `SharedError::Framework(Error::NoAuth { .. })`.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SharedError {
    /// An error of the framework: no connection, no permission, no node, a closed client …
    #[error(transparent)]
    Framework(#[from] curator_framework::Error),
    /// The value was not started yet.
    #[error("the shared value {path} is not started")]
    NotStarted {
        /// The node.
        path: PathText,
    },
    /// The value was started before.
    #[error("the shared value {path} cannot be started more than once")]
    AlreadyStarted {
        /// The node.
        path: PathText,
    },
    /// The value was closed.
    #[error("the shared value {path} is closed")]
    Closed {
        /// The node.
        path: PathText,
    },
    /// A conditional change with version −1, which ZooKeeper takes for any version: Curator's
    /// `IllegalTrySetVersionException`.
    #[error("the shared value {path} cannot be set conditionally on version -1")]
    IllegalTrySetVersion {
        /// The node.
        path: PathText,
    },
    /// The node's data is not a count, which has four bytes.
    #[error("the data of {path} is not a count: it has {length} bytes, not 4{}", default_data(*length))]
    NotACount {
        /// The node.
        path: PathText,
        /// The number of bytes.
        length: usize,
    },
}

impl SharedError {
    /// Returns `true` if the same call may succeed later: see [`Error::is_retryable`](curator_framework::Error).
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Framework(error) if error.is_retryable())
    }

    /// Returns whether the value may have been set although this error was returned.
    #[must_use]
    pub fn outcome_unknown(&self) -> bool {
        matches!(self, Self::Framework(error) if error.outcome_unknown())
    }
}

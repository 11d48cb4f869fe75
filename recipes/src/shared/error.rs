//! What can go wrong with a shared value.

/// An error of a [`SharedValue`](crate::SharedValue) or a [`SharedCount`](crate::SharedCount).
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SharedError {
    /// An error of the framework: no connection, no permission, no node, a client that is closed …
    #[error(transparent)]
    Framework(#[from] curator_framework::Error),
    /// It was not started yet.
    #[error("the shared value {path} is not started")]
    NotStarted {
        /// The node.
        path: String,
    },
    /// It was started before.
    #[error("the shared value {path} cannot be started more than once")]
    AlreadyStarted {
        /// The node.
        path: String,
    },
    /// It was closed.
    #[error("the shared value {path} is closed")]
    Closed {
        /// The node.
        path: String,
    },
    /// A try with version −1, which ZooKeeper takes for "whatever version": Curator's
    /// `IllegalTrySetVersionException`.
    #[error("the shared value {path} cannot be set conditionally on version -1")]
    IllegalTrySetVersion {
        /// The node.
        path: String,
    },
    /// The node's data is not that of a count, which is four bytes.
    #[error("the data of {path} is no count: it has {length} bytes, not 4")]
    NotACount {
        /// The node.
        path: String,
        /// How many bytes it has.
        length: usize,
    },
}

impl SharedError {
    /// Whether a value may have been set although this error came back.
    #[must_use]
    pub fn outcome_unknown(&self) -> bool {
        matches!(self, Self::Framework(error) if error.outcome_unknown())
    }
}

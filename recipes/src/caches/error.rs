//! The errors of caches.

use curator_framework::PathText;

use crate::standing::StartError;

/// An error of a cache.
///
/// The text is without the cause: [`Chain`](curator_framework::Chain) adds it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// An error of the framework: no connection, no permission, data that cannot be decompressed …
    #[error(transparent)]
    Framework(#[from] curator_framework::Error),
    /// The cache was not started.
    #[error("the cache of {path} is not started")]
    NotStarted {
        /// The path.
        path: PathText,
    },
    /// The cache was started before.
    #[error("the cache of {path} is started already")]
    AlreadyStarted {
        /// The path.
        path: PathText,
    },
    /// The cache or its client was closed.
    #[error("the cache of {path} is closed, or its client")]
    Closed {
        /// The path.
        path: PathText,
    },
    /// The cache sets watches one by one, and has more nodes than
    /// [`max_watched_nodes`](crate::CuratorCacheOptions::max_watched_nodes) allows.
    #[error("the cache of {path} has more than {limit} nodes, and its client sets watches one by one")]
    TooManyNodes {
        /// The path.
        path: PathText,
        /// The limit.
        limit: usize,
    },
    /// A closure of the cache has panicked, so the cache has ended: close it, and create another one.
    #[error("the cache of {path} has ended: {panic}")]
    Panicked {
        /// The path.
        path: PathText,
        /// The closure, and the text of its panic.
        panic: String,
    },
    /// An invalid argument.
    #[error("invalid {argument}: {reason}")]
    InvalidArgument {
        /// The argument's name.
        argument: &'static str,
        /// The rule that it breaks.
        reason: String,
    },
}

impl CacheError {
    /// Returns `true` if the same call may succeed later: see
    /// [`Error::is_retryable`](curator_framework::Error::is_retryable).
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Framework(error) if error.is_retryable())
    }

    pub(super) fn of_start(error: StartError, path: PathText) -> Self {
        match error {
            StartError::AlreadyStarted => Self::AlreadyStarted { path },
            StartError::Closed => Self::Closed { path },
            StartError::NoRuntime => curator_framework::Error::NoRuntime.into(),
        }
    }
}

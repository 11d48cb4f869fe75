//! The errors of migrations.

use crate::engine::error::LockError;

/// An error of a [`MigrationManager`](crate::MigrationManager): Curator's `MigrationException`, and others.
///
/// The text is without the cause: [`Chain`](curator_framework::Chain) adds it. Where a method lists `Error::NoAuth`,
/// match `MigrationError::Framework(Error::NoAuth { .. })`.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum MigrationError {
    /// An error of the framework: no connection, no permission, a closed client …
    #[error(transparent)]
    Framework(#[from] curator_framework::Error),
    /// An error of the set's lock. After `LockError::LockLost` the migrations may have been applied.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A migration differs from the one that was applied in its place. Nothing was changed. Add a new migration at the
    /// end of the set, and leave the applied ones as they were.
    #[error("migration {number} of the set {set:?} differs from the one that was applied")]
    Changed {
        /// The id of the set.
        set: String,
        /// The number of the migration in the set. The first has the number 1.
        number: usize,
    },
    /// More migrations were applied than the set has. Nothing was changed. A newer version of the program has run.
    #[error("{applied} migrations of the set {set:?} were applied, and this program has {known}")]
    Older {
        /// The id of the set.
        set: String,
        /// The number of applied migrations.
        applied: usize,
        /// The number of migrations in the set.
        known: usize,
    },
}

impl MigrationError {
    /// Returns `true` if the same call may succeed later: see
    /// [`Error::is_retryable`](curator_framework::Error::is_retryable).
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Framework(error) => error.is_retryable(),
            Self::Lock(error) => error.is_retryable(),
            _ => false,
        }
    }

    /// Returns `true` if the migrations may have been applied although the call failed with this error. Another call
    /// finds out.
    #[must_use]
    pub fn outcome_unknown(&self) -> bool {
        match self {
            Self::Framework(error) => error.outcome_unknown(),
            Self::Lock(LockError::LockLost { .. }) => true,
            Self::Lock(error) => error.outcome_unknown(),
            _ => false,
        }
    }
}

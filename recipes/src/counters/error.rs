//! The errors of counters.

use curator_framework::{Error, PathText};

use crate::content::default_data;
use crate::engine::error::LockError;

/// An error of a counter or an atomic value.
///
/// The text is without the cause: [`Chain`](curator_framework::Chain) adds it. Where a method lists `Error::NoAuth`,
/// match `CounterError::Framework(Error::NoAuth { .. })`.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CounterError {
    /// An error of the framework: no connection, no permission, a closed client …
    #[error(transparent)]
    Framework(#[from] curator_framework::Error),
    /// The lock to which a counter is promoted cannot be acquired.
    #[error("the lock of the counter cannot be acquired")]
    Lock(#[source] LockError),
    /// The node's data does not have the length of a number.
    #[error("the data of {path} is not a number: it has {length} bytes, not {expected}{}", default_data(*length))]
    NotANumber {
        /// The counter's path.
        path: PathText,
        /// The number of bytes.
        length: usize,
        /// The number of bytes that the number needs.
        expected: usize,
    },
    /// The result does not fit into the number. Nothing was changed.
    #[error("{value} plus {delta} does not fit into the counter {path}")]
    Overflow {
        /// The counter's path.
        path: PathText,
        /// The present value.
        value: i64,
        /// The number to add. The opposite of `i64::MIN`, which was to be subtracted, needs more than 64 bits.
        delta: i128,
    },
    /// Other clients have changed the value at each try, until the retry policy gave up. Nothing was changed.
    #[error("{path} was changed by other clients at each of {tries} tries")]
    Contended {
        /// The counter's path.
        path: PathText,
        /// The number of tries.
        tries: u32,
    },
    /// The node's version is −1, which happens once in 2^32 changes. ZooKeeper takes that for any version, so no change
    /// can be conditional. `force_set` raises the version.
    #[error("{path} cannot be changed conditionally on version -1")]
    VersionsExhausted {
        /// The counter's path.
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

impl CounterError {
    /// Returns `true` if the same call may succeed later: see
    /// [`Error::is_retryable`](curator_framework::Error::is_retryable). `true` for `Contended`. But if the
    /// [outcome is unknown](Self::outcome_unknown), a repeated call may count twice.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Framework(error) => error.is_retryable(),
            Self::Lock(error) => error.is_retryable(),
            other => matches!(other, Self::Contended { .. }),
        }
    }

    /// Returns `true` if the value may have been changed although the call failed with this error.
    #[must_use]
    pub fn outcome_unknown(&self) -> bool {
        matches!(self, Self::Framework(error) if error.outcome_unknown())
    }
}

/// Returns the error of a request that was not the write of the change: the change is certainly not made.
pub(super) fn without_change(error: Error) -> Error {
    match error {
        Error::ConnectionLoss { request, cause, .. } => Error::ConnectionLoss { request, sent: false, cause },
        Error::SessionExpired { request } => Error::ConnectionLoss { request, sent: false, cause: None },
        error if error.outcome_unknown() => {
            Error::ConnectionLoss { request: error.to_string().into(), sent: false, cause: None }
        }
        error => error,
    }
}

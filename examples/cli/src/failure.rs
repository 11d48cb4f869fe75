//! The failures that end the program, with their exit statuses.

use curator_framework::{Chain, ConnectError, Error};
use curator_recipes::{
    BarrierError, CacheError, CounterError, LeaderError, LockError, NodeError, QueueError, SharedError,
};

/// The exit status of a loss.
pub(crate) const LOST: u8 = 74;
/// The exit status if the command was stopped because another client asked for the lock.
pub(crate) const REVOKED: u8 = 73;
/// The exit status of a change that may have been made after a lost connection.
pub(crate) const UNKNOWN: u8 = 76;

/// A failure that ends the program: the exit status and the message.
pub(crate) struct Failure(pub(crate) u8, pub(crate) String);

/// Gives each error of a recipe its exit status.
macro_rules! statuses {
    ($($error:ident { $($code:expr => $($variant:ident)|+),+ })+) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                let code = match error {
                    $error::Framework(error) => return error.into(),
                    $($($error::$variant { .. })|+ => $code,)+
                    _ => 70,
                };
                Self(code, Chain(&error).to_string())
            }
        }
    )+};
}

statuses! {
    LockError { 2 => InvalidArgument | ProtocolMismatch, LOST => LockLost }
    LeaderError { 2 => InvalidArgument | ForeignData, LOST => LeadershipLost }
    NodeError { 2 => InvalidArgument }
    CacheError { 2 => InvalidArgument }
    BarrierError { 2 => InvalidArgument | NotALatch, LOST => Lost, 1 => NotSet }
    SharedError { 2 => NotACount }
    QueueError { 2 => InvalidArgument, LOST => Lost }
}

impl From<CounterError> for Failure {
    fn from(error: CounterError) -> Self {
        let (is_unknown, text) = (error.outcome_unknown(), Chain(&error).to_string());
        match error {
            CounterError::Framework(error) if is_unknown => {
                let Self(_, text) = error.into();
                Self(UNKNOWN, format!("{text}; the value may have been changed: read it before you repeat the command"))
            }
            CounterError::Framework(error) => error.into(),
            CounterError::Lock(error) => error.into(),
            CounterError::NotANumber { length: 4, expected: 8, .. } => Self(2, format!("{text}: use --integer")),
            CounterError::NotANumber { length: 8, expected: 4, .. } => Self(2, format!("{text}: leave --integer out")),
            CounterError::InvalidArgument { .. } | CounterError::NotANumber { .. } => Self(2, text),
            _ => Self(70, text),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::InvalidPath { .. } | Error::InvalidConfig { .. } | Error::InvalidAcl { .. } => 2,
            Error::ConnectionLoss { cause: Some(cause), .. } if refuse_the_login(cause) => 77,
            Error::ConnectionLoss { .. } | Error::SessionExpired { .. } => 69,
            Error::NoAuth { .. } | Error::AuthFailed { .. } => 77,
            Error::NoNode { .. } => 1,
            _ => 70,
        };
        let text = match error {
            // The user needs the cause, not the request that failed.
            Error::ConnectionLoss { cause: Some(cause), .. } if !cause.is_time_over() => cause.to_string(),
            error => Chain(&error).to_string(),
        };
        Self(code, text)
    }
}

/// Returns `true` if each server that was tried has failed the login by SASL. A server without SASL, or without this user,
/// answers a login with nothing, so the client cannot know that it is a refusal, and tries the others.
fn refuse_the_login(cause: &ConnectError) -> bool {
    let failures = cause.failures();
    !failures.is_empty() && failures.iter().all(|(_, reason)| reason.starts_with("SASL "))
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self(70, Chain(&error).to_string())
    }
}

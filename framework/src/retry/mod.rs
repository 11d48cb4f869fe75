//! Curator's retry policies.
//!
//! A policy is a pure function of the number of tries, the time since the first one, and a random number.
//! [`RetryLoop`](crate::RetryLoop) does the sleeping.

mod exponential;
mod fixed;
mod policy;
mod session_failed;

pub use self::exponential::{BoundedExponentialBackoffRetry, ExponentialBackoffRetry};
pub use self::fixed::{RetryForever, RetryNTimes, RetryOneTime, RetryUntilElapsed};
pub use self::policy::{RetryAttempt, RetryPolicy};
pub use self::session_failed::SessionFailedRetryPolicy;

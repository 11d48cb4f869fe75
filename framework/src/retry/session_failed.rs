//! A policy that does not repeat an operation in another session.

use std::time::Duration;

use super::{RetryAttempt, RetryPolicy};
use crate::error::Error;

/// Never retries an operation after the end of its session, and leaves other errors to another policy: Curator's
/// `SessionFailedRetryPolicy` (CURATOR-544).
///
/// Use it for operations that make sense in one session only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionFailedRetryPolicy<P> {
    delegate: P,
}

impl<P: RetryPolicy> SessionFailedRetryPolicy<P> {
    /// Creates a policy that acts like `delegate`, but never retries `SessionExpired`.
    #[must_use]
    pub const fn new(delegate: P) -> Self {
        Self { delegate }
    }
}

impl<P: RetryPolicy> RetryPolicy for SessionFailedRetryPolicy<P> {
    fn next_pause(&self, attempt: RetryAttempt) -> Option<Duration> {
        self.delegate.next_pause(attempt)
    }

    fn allow_retry(&self, error: &Error) -> bool {
        !matches!(error, Error::SessionExpired { .. }) && self.delegate.allow_retry(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retry::{RetryForever, RetryNTimes};

    /// The policy's part of Curator's `TestRetryLoop.testRetryForeverWithSessionFailed`.
    #[test]
    fn session_expired_is_not_retried() {
        let pause = Duration::from_secs(1);
        let policy = SessionFailedRetryPolicy::new(RetryForever::new(pause).unwrap());
        let request = || String::from("get /a");
        assert!(!policy.allow_retry(&Error::SessionExpired { request: request().into() }));
        assert!(policy.allow_retry(&Error::ConnectionLoss { request: request().into(), sent: true, cause: None }));
        assert!(!policy.allow_retry(&Error::NoNode { path: "/a".into() }), "the delegate says no");
        let attempt = RetryAttempt { count: 1, elapsed: pause, random: 0.0 };
        assert_eq!(policy.next_pause(attempt), Some(pause));
        assert_eq!(SessionFailedRetryPolicy::new(RetryNTimes::new(1, pause)).next_pause(attempt), None);
    }
}

//! A policy that leaves the end of a session to its caller.

use std::time::Duration;

use super::{RetryAttempt, RetryPolicy};
use crate::error::Error;

/// Does not retry what failed because its session is over, and asks another policy about everything else: Curator's
/// `SessionFailedRetryPolicy` (CURATOR-544).
///
/// For operations that make sense in one session only, whose caller wants to hear of its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionFailedRetryPolicy<P> {
    delegate: P,
}

impl<P: RetryPolicy> SessionFailedRetryPolicy<P> {
    /// As `delegate`, but `SessionExpired` is never retried.
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
        assert!(!policy.allow_retry(&Error::SessionExpired { request: request() }));
        assert!(policy.allow_retry(&Error::ConnectionLoss { request: request(), sent: true, cause: None }));
        assert!(!policy.allow_retry(&Error::NoNode { path: "/a".into() }), "the delegate says no");
        let attempt = RetryAttempt { count: 1, elapsed: pause, random: 0.0 };
        assert_eq!(policy.next_pause(attempt), Some(pause));
        assert_eq!(SessionFailedRetryPolicy::new(RetryNTimes::new(1, pause)).next_pause(attempt), None);
    }
}

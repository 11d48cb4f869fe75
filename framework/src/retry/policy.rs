//! The decision whether to repeat a failed operation.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;

/// The facts on which a policy decides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryAttempt {
    /// The number of retries so far: 0 after the first failure.
    pub count: u32,
    /// The time since the first try started.
    pub elapsed: Duration,
    /// A random number in `[0, 1)`, for policies that spread their pauses.
    pub random: f64,
}

/// Decides whether to repeat a failed operation, and after which pause: Curator's `RetryPolicy`.
///
/// With `n` retries an operation is tried `n + 1` times. A policy in an `Arc` or a `Box` is a policy too, also as
/// `Arc<dyn RetryPolicy>`.
pub trait RetryPolicy: Send + Sync + fmt::Debug + 'static {
    /// Returns the pause before the next try, or `None` to give up.
    #[doc(alias = "allowRetry")]
    fn next_pause(&self, attempt: RetryAttempt) -> Option<Duration>;

    /// Returns `true` if an operation with this error may be repeated at all. Default: [`Error::is_retryable`].
    fn allow_retry(&self, error: &Error) -> bool {
        error.is_retryable()
    }
}

impl<P: RetryPolicy + ?Sized> RetryPolicy for Arc<P> {
    fn next_pause(&self, attempt: RetryAttempt) -> Option<Duration> {
        (**self).next_pause(attempt)
    }

    fn allow_retry(&self, error: &Error) -> bool {
        (**self).allow_retry(error)
    }
}

impl<P: RetryPolicy + ?Sized> RetryPolicy for Box<P> {
    fn next_pause(&self, attempt: RetryAttempt) -> Option<Duration> {
        (**self).next_pause(attempt)
    }

    fn allow_retry(&self, error: &Error) -> bool {
        (**self).allow_retry(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retry::RetryNTimes;

    #[derive(Debug)]
    struct Everything;

    impl RetryPolicy for Everything {
        fn next_pause(&self, attempt: RetryAttempt) -> Option<Duration> {
            Some(attempt.elapsed)
        }

        fn allow_retry(&self, _error: &Error) -> bool {
            true
        }
    }

    #[test]
    fn a_policy_behind_a_pointer_is_the_same_policy() {
        let attempt = RetryAttempt { count: 0, elapsed: Duration::from_secs(7), random: 0.0 };
        let shared: Arc<dyn RetryPolicy> = Arc::new(Everything);
        let boxed: Box<dyn RetryPolicy> = Box::new(Arc::clone(&shared));
        for policy in [&shared as &dyn RetryPolicy, &boxed] {
            assert_eq!(policy.next_pause(attempt), Some(Duration::from_secs(7)));
            assert!(policy.allow_retry(&Error::Closed), "the default would say no");
        }
    }

    #[test]
    fn what_may_be_retried_by_default() {
        let policy = RetryNTimes::new(1, Duration::ZERO);
        let request = || String::from("get /a");
        assert!(policy.allow_retry(&Error::ConnectionLoss { request: request().into(), sent: true, cause: None }));
        assert!(policy.allow_retry(&Error::SessionExpired { request: request().into() }));
        assert!(!policy.allow_retry(&Error::NoAuth { path: "/a".into() }));
        assert!(!policy.allow_retry(&Error::Closed));
    }
}

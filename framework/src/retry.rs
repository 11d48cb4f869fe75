//! When to try again: Curator's retry policies.
//!
//! A policy is a pure function of the number of tries, the time since the first one, and a random number. The loop that
//! sleeps is in one place, inside the framework.

use std::fmt;
use std::time::Duration;

use crate::error::{Error, Result};

/// The largest number of retries of [`ExponentialBackoffRetry`], as in Curator.
const MAX_RETRIES_LIMIT: u32 = 29;

/// What a policy is asked about.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryAttempt {
    /// How many retries there were: 0 after the first failure.
    pub count: u32,
    /// The time since the first try began.
    pub elapsed: Duration,
    /// A random number in `[0, 1)`, for policies that spread their pauses.
    pub random: f64,
}

/// Decides whether a failed operation is tried again, and after which pause: Curator's `RetryPolicy`.
///
/// With `n` retries an operation is tried `n + 1` times.
pub trait RetryPolicy: Send + Sync + fmt::Debug + 'static {
    /// The pause before the next try, or `None` to give up.
    fn next_pause(&self, attempt: RetryAttempt) -> Option<Duration>;

    /// Whether an operation that failed so may be tried again at all. Default: [`Error::is_retryable`].
    fn allow_retry(&self, error: &Error) -> bool {
        error.is_retryable()
    }
}

/// Retries a set number of times, with a pause that grows: Curator's `ExponentialBackoffRetry`.
///
/// The pause is `base × max(1, r)` where `r` is a random integer in `[0, 2^(count + 1))`, at most `max_pause`. So the
/// first pause is exactly `base`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExponentialBackoffRetry {
    base: Duration,
    max_retries: u32,
    max_pause: Duration,
}

impl ExponentialBackoffRetry {
    /// A policy without a bound on the single pause (Curator's bound of 2^31 − 1 ms stands).
    ///
    /// # Errors
    ///
    /// `InvalidConfig` if `base` is zero or `max_retries` is above 29. (Curator lowers a larger number with a warning.)
    pub fn new(base: Duration, max_retries: u32) -> Result<Self> {
        Self::with_max_pause(base, max_retries, Duration::from_millis(i32::MAX as u64))
    }

    /// A policy whose single pause is at most `max_pause`.
    ///
    /// # Errors
    ///
    /// `InvalidConfig` if `base` is zero, `max_retries` is above 29 or `max_pause` is shorter than `base`.
    pub fn with_max_pause(base: Duration, max_retries: u32, max_pause: Duration) -> Result<Self> {
        if base.is_zero() {
            return Err(Error::invalid_config("base pause", "it is zero"));
        }
        if max_retries > MAX_RETRIES_LIMIT {
            return Err(Error::invalid_config(
                "number of retries",
                format!("{max_retries} is above {MAX_RETRIES_LIMIT}"),
            ));
        }
        if max_pause < base {
            return Err(Error::invalid_config(
                "longest pause",
                format!("{max_pause:?} is shorter than the base pause of {base:?}"),
            ));
        }
        Ok(Self { base, max_retries, max_pause })
    }
}

impl RetryPolicy for ExponentialBackoffRetry {
    fn next_pause(&self, attempt: RetryAttempt) -> Option<Duration> {
        if attempt.count >= self.max_retries {
            return None;
        }
        let range = (1_u64 << (attempt.count + 1)) as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number in [0, 2^30)")]
        let factor = ((attempt.random * range) as u32).max(1);
        Some(self.base.saturating_mul(factor).min(self.max_pause))
    }
}

/// Retries a set number of times with the same pause: Curator's `RetryNTimes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryNTimes {
    retries: u32,
    pause: Duration,
}

impl RetryNTimes {
    /// A policy with `retries` retries; with none, every operation is tried once.
    #[must_use]
    pub const fn new(retries: u32, pause: Duration) -> Self {
        Self { retries, pause }
    }
}

impl RetryPolicy for RetryNTimes {
    fn next_pause(&self, attempt: RetryAttempt) -> Option<Duration> {
        (attempt.count < self.retries).then_some(self.pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(count: u32, random: f64) -> RetryAttempt {
        RetryAttempt { count, elapsed: Duration::ZERO, random }
    }

    /// Curator's `TestRetryLoop.testExponentialBackoffRetryLimit`.
    #[test]
    fn exponential_pause_stays_below_its_bound() {
        let policy =
            ExponentialBackoffRetry::with_max_pause(Duration::from_millis(1), 29, Duration::from_millis(100)).unwrap();
        for count in 0..29 {
            for random in [0.0, 0.3, 0.999_999] {
                let pause = policy.next_pause(attempt(count, random)).unwrap();
                assert!(pause >= Duration::from_millis(1) && pause <= Duration::from_millis(100));
            }
        }
        assert_eq!(policy.next_pause(attempt(29, 0.5)), None);
    }

    #[test]
    fn exponential_pause_follows_curators_formula() {
        let policy = ExponentialBackoffRetry::new(Duration::from_millis(10), 5).unwrap();
        for (count, random, pause) in
            [(0, 0.0, 10), (0, 0.99, 10), (1, 0.0, 10), (1, 0.5, 20), (1, 0.99, 30), (4, 0.99, 310)]
        {
            assert_eq!(
                policy.next_pause(attempt(count, random)),
                Some(Duration::from_millis(pause)),
                "{count} {random}"
            );
        }
    }

    #[test]
    fn n_times_is_n_pauses() {
        let policy = RetryNTimes::new(2, Duration::from_secs(1));
        let pauses = (0..4).map(|count| policy.next_pause(attempt(count, 0.0))).collect::<Vec<_>>();
        assert_eq!(pauses, [Some(Duration::from_secs(1)), Some(Duration::from_secs(1)), None, None]);
    }

    #[test]
    fn bad_parameters_are_named() {
        let error = ExponentialBackoffRetry::new(Duration::ZERO, 3).unwrap_err();
        assert_eq!(error.to_string(), "invalid base pause: it is zero");
        let error = ExponentialBackoffRetry::new(Duration::from_secs(1), 30).unwrap_err();
        assert_eq!(error.to_string(), "invalid number of retries: 30 is above 29");
        let error =
            ExponentialBackoffRetry::with_max_pause(Duration::from_secs(2), 3, Duration::from_secs(1)).unwrap_err();
        assert_eq!(error.to_string(), "invalid longest pause: 1s is shorter than the base pause of 2s");
    }
}

//! Policies with a growing pause.

use std::time::Duration;

use super::{RetryAttempt, RetryPolicy};
use crate::error::{Error, Result};

/// The largest number of retries of [`ExponentialBackoffRetry`], as in Curator.
const MAX_RETRIES_LIMIT: u32 = 29;

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
    /// Creates a policy without a limit on the single pause, except Curator's 2^31 − 1 ms.
    ///
    /// # Errors
    ///
    /// `Error::InvalidConfig` if `base` is zero or `max_retries` is above 29. (Curator lowers a larger number with a
    /// warning.)
    pub fn new(base: Duration, max_retries: u32) -> Result<Self> {
        Self::with_max_pause(base, max_retries, Duration::from_millis(i32::MAX as u64))
    }

    /// Creates a policy that limits the single pause to `max_pause`.
    ///
    /// # Errors
    ///
    /// `Error::InvalidConfig` if `base` is zero, `max_retries` is above 29 or `max_pause` is shorter than `base`.
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

/// Retries like [`ExponentialBackoffRetry`] with a longest pause: Curator's `BoundedExponentialBackoffRetry`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoundedExponentialBackoffRetry(ExponentialBackoffRetry);

impl BoundedExponentialBackoffRetry {
    /// Creates a policy that limits the single pause to `max_pause`. Mind the order: the longest pause is the second
    /// argument here, and the last one of [`ExponentialBackoffRetry::with_max_pause`].
    ///
    /// # Errors
    ///
    /// `Error::InvalidConfig` if `base` is zero, `max_retries` is above 29 or `max_pause` is shorter than `base`.
    pub fn new(base: Duration, max_pause: Duration, max_retries: u32) -> Result<Self> {
        ExponentialBackoffRetry::with_max_pause(base, max_retries, max_pause).map(Self)
    }
}

impl RetryPolicy for BoundedExponentialBackoffRetry {
    fn next_pause(&self, attempt: RetryAttempt) -> Option<Duration> {
        self.0.next_pause(attempt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

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
    fn bounded_is_exponential_with_the_bound_second() {
        let (base, max_pause) = (Duration::from_millis(10), Duration::from_millis(25));
        let policy = BoundedExponentialBackoffRetry::new(base, max_pause, 3).unwrap();
        let pauses = (0..4).map(|count| policy.next_pause(attempt(count, 0.99))).collect::<Vec<_>>();
        assert_eq!(pauses, [Some(base), Some(max_pause), Some(max_pause), None]);
        let error = BoundedExponentialBackoffRetry::new(max_pause, base, 3).unwrap_err();
        assert_eq!(error.to_string(), "invalid longest pause: 10ms is shorter than the base pause of 25ms");
    }

    proptest! {
        #[test]
        fn pauses_stay_in_their_range_and_grow_with_the_random_number(
            base in 1..100_000_u64,
            bound in 0..10_000_000_u64,
            max_retries in 0..=29_u32,
            count in 0..40_u32,
            random in 0.0..1.0_f64,
            less in 0.0..1.0_f64,
        ) {
            let (base, bound) = (Duration::from_millis(base), Duration::from_millis(base + bound));
            let policy = ExponentialBackoffRetry::with_max_pause(base, max_retries, bound).unwrap();
            let pause = policy.next_pause(attempt(count, random));
            prop_assert_eq!(pause.is_some(), count < max_retries);
            if let Some(pause) = pause {
                let widest = base.saturating_mul(2_u32.pow(count + 1) - 1);
                prop_assert!(base <= pause && pause <= bound.min(widest), "{pause:?}");
                prop_assert!(policy.next_pause(attempt(count, random * less)).unwrap() <= pause);
                let bounded = BoundedExponentialBackoffRetry::new(base, bound, max_retries).unwrap();
                prop_assert_eq!(bounded.next_pause(attempt(count, random)), Some(pause));
            }
        }
    }

    /// Products beyond 32 bits (CURATOR-262).
    #[test]
    fn a_long_base_does_not_overflow() {
        let policy = ExponentialBackoffRetry::new(Duration::from_secs(3600), 29).unwrap();
        assert_eq!(policy.next_pause(attempt(28, 0.999)), Some(Duration::from_millis(i32::MAX as u64)));
        let policy = ExponentialBackoffRetry::with_max_pause(Duration::MAX, 29, Duration::MAX).unwrap();
        assert_eq!(policy.next_pause(attempt(28, 0.999)), Some(Duration::MAX));
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

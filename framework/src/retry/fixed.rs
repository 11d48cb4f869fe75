//! Policies with a constant pause.

use std::time::Duration;

use super::{RetryAttempt, RetryPolicy};
use crate::error::{Error, Result};

/// Retries a set number of times with the same pause: Curator's `RetryNTimes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryNTimes {
    retries: u32,
    pause: Duration,
}

impl RetryNTimes {
    /// Creates a policy with `retries` retries; zero tries every operation once.
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

/// Retries once: Curator's `RetryOneTime`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryOneTime(RetryNTimes);

impl RetryOneTime {
    /// Creates a policy that retries once, after `pause`.
    #[must_use]
    pub const fn new(pause: Duration) -> Self {
        Self(RetryNTimes::new(1, pause))
    }
}

impl RetryPolicy for RetryOneTime {
    fn next_pause(&self, attempt: RetryAttempt) -> Option<Duration> {
        self.0.next_pause(attempt)
    }
}

/// Never gives up: Curator's `RetryForever`. An operation ends only with a reply, or with the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryForever {
    pause: Duration,
}

impl RetryForever {
    /// Creates a policy that retries without a limit, each time after `pause`.
    ///
    /// # Errors
    ///
    /// `Error::InvalidConfig` if `pause` is zero.
    pub fn new(pause: Duration) -> Result<Self> {
        Ok(Self { pause: not_zero(pause)? })
    }
}

impl RetryPolicy for RetryForever {
    fn next_pause(&self, _attempt: RetryAttempt) -> Option<Duration> {
        Some(self.pause)
    }
}

/// Retries until a time has passed: Curator's `RetryUntilElapsed`.
///
/// When a try fails, the policy checks the time since the first one started. So the last pause and the last try may
/// end later. When it gives up, it does so at once; Curator's sleeps for one more pause first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryUntilElapsed {
    max_elapsed: Duration,
    pause: Duration,
}

impl RetryUntilElapsed {
    /// Creates a policy that retries after `pause` while less than `max_elapsed` has passed; zero means one try.
    ///
    /// # Errors
    ///
    /// `Error::InvalidConfig` if `pause` is zero.
    pub fn new(max_elapsed: Duration, pause: Duration) -> Result<Self> {
        Ok(Self { max_elapsed, pause: not_zero(pause)? })
    }
}

impl RetryPolicy for RetryUntilElapsed {
    fn next_pause(&self, attempt: RetryAttempt) -> Option<Duration> {
        (attempt.elapsed < self.max_elapsed).then_some(self.pause)
    }
}

/// Refuses a zero pause: retries without a limit and without a pause would keep a processor busy.
fn not_zero(pause: Duration) -> Result<Duration> {
    if pause.is_zero() {
        return Err(Error::invalid_config("pause between retries", "it is zero"));
    }
    Ok(pause)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn attempt(count: u32, elapsed: Duration) -> RetryAttempt {
        RetryAttempt { count, elapsed, random: 0.5 }
    }

    fn pauses(policy: impl RetryPolicy, count: u32) -> Vec<Option<Duration>> {
        (0..count).map(|count| policy.next_pause(attempt(count, Duration::ZERO))).collect()
    }

    #[test]
    fn n_times_is_n_pauses() {
        assert_eq!(pauses(RetryNTimes::new(2, SECOND), 4), [Some(SECOND), Some(SECOND), None, None]);
        assert_eq!(pauses(RetryNTimes::new(0, SECOND), 1), [None]);
    }

    #[test]
    fn one_time_is_one_pause() {
        assert_eq!(pauses(RetryOneTime::new(SECOND), 3), [Some(SECOND), None, None]);
    }

    /// Curator's `TestRetryLoop.testRetryForever`.
    #[test]
    fn retry_forever() {
        let policy = RetryForever::new(SECOND).unwrap();
        assert_eq!(pauses(policy, 10), [Some(SECOND); 10]);
        assert_eq!(policy.next_pause(attempt(u32::MAX, Duration::MAX)), Some(SECOND));
    }

    #[test]
    fn until_elapsed_gives_up_when_the_time_is_over() {
        let policy = RetryUntilElapsed::new(10 * SECOND, SECOND).unwrap();
        for (elapsed, pause) in [
            (Duration::ZERO, Some(SECOND)),
            (10 * SECOND - Duration::from_nanos(1), Some(SECOND)),
            (10 * SECOND, None),
            (Duration::MAX, None),
        ] {
            assert_eq!(policy.next_pause(attempt(u32::MAX, elapsed)), pause, "{elapsed:?}");
        }
        let never = RetryUntilElapsed::new(Duration::ZERO, SECOND).unwrap();
        assert_eq!(never.next_pause(attempt(0, Duration::ZERO)), None);
    }

    #[test]
    fn no_pause_without_a_number_is_refused() {
        for error in [
            RetryForever::new(Duration::ZERO).unwrap_err(),
            RetryUntilElapsed::new(SECOND, Duration::ZERO).unwrap_err(),
        ] {
            assert_eq!(error.to_string(), "invalid pause between retries: it is zero");
        }
    }
}

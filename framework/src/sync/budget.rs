//! The budget of a wait.

use std::future::Future;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::Either;
use tokio::time::{Instant, sleep_until, timeout_at};

/// The end of a wait. It saturates: a budget beyond the range of the clock, such as [`Duration::MAX`], has no end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    end: Option<Instant>,
}

impl Budget {
    /// The budget of a wait without an end.
    pub const ENDLESS: Self = Self { end: None };

    /// Creates a budget that starts now.
    #[must_use]
    pub fn of(length: Duration) -> Self {
        Self { end: Instant::now().checked_add(length) }
    }

    /// Returns the end, if it has one.
    #[must_use]
    pub const fn end(self) -> Option<Instant> {
        self.end
    }

    /// Returns a budget that ends later by this time.
    #[must_use]
    pub fn plus(self, more: Duration) -> Self {
        Self { end: self.end.and_then(|end| end.checked_add(more)) }
    }

    /// Returns `true` once the budget is used up.
    #[must_use]
    pub fn is_over(self) -> bool {
        self.end.is_some_and(|end| end <= Instant::now())
    }

    /// Resolves when the budget is used up.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn over(self) {
        match self.end {
            Some(end) => sleep_until(end).await,
            None => std::future::pending().await,
        }
    }

    /// Resolves with the output of `work`, or with `None` at the end of the budget, which drops `work`. Polls `work` once
    /// even if the budget is used up.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, `work` is dropped.
    pub fn limit<F: Future>(self, work: F) -> impl Future<Output = Option<F::Output>> {
        // Not an `async fn`, which would keep `work` twice.
        match self.end {
            Some(end) => Either::Left(timeout_at(end, work).map(Result::ok)),
            None => Either::Right(work.map(Some)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn budget_beyond_the_clock_has_no_end() {
        let year = Duration::from_secs(365 * 24 * 3600);
        for length in [Duration::ZERO, Duration::from_nanos(1), year, Duration::from_secs(u64::MAX / 2), Duration::MAX]
        {
            let budget = Budget::of(length);
            assert_eq!(budget.is_over(), length.is_zero(), "{length:?}");
            assert_eq!(budget.limit(std::future::ready(7)).await, Some(7), "{length:?}");
        }
        assert_eq!(Budget::of(Duration::MAX), Budget::ENDLESS);
        assert_eq!(Budget::of(year).plus(Duration::MAX), Budget::ENDLESS);
        assert_eq!(Budget::ENDLESS.over().now_or_never(), None);
        assert_eq!(Budget::of(year).limit(std::future::pending::<()>()).await, None);
    }
}

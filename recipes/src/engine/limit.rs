//! The number of leases.

use tokio::sync::watch;

use crate::shared::VersionedValue;

/// The counts that a limit follows.
type Counts = watch::Receiver<VersionedValue<i32>>;

/// A number of leases.
#[derive(Debug)]
pub(crate) enum Limit {
    Fixed(usize),
    /// It may change while contenders wait.
    Changing(Counts),
}

impl Limit {
    pub(crate) fn get(&self) -> usize {
        match self {
            Self::Fixed(leases) => *leases,
            Self::Changing(counts) => leases_of(&counts.borrow()),
        }
    }

    pub(crate) fn is_fixed(&self) -> bool {
        matches!(self, Self::Fixed(_))
    }

    /// Follows the limit from now on.
    pub(crate) fn follow(&self) -> LimitWatch {
        match self {
            Self::Fixed(leases) => LimitWatch::Fixed(*leases),
            Self::Changing(counts) => {
                let mut counts = counts.clone();
                let seen = leases_of(&counts.borrow_and_update());
                LimitWatch::Changing(counts, seen)
            }
        }
    }
}

/// Returns the limit for a count.
fn leases_of(count: &VersionedValue<i32>) -> usize {
    usize::try_from(*count.value()).unwrap_or_default()
}

/// One waiter's view of a limit.
#[derive(Debug)]
pub(crate) enum LimitWatch {
    Fixed(usize),
    /// The counts, and the limit that was seen last.
    Changing(Counts, usize),
}

impl LimitWatch {
    /// Returns the limit. [`changed`](Self::changed) misses no change after this call.
    pub(crate) fn get(&mut self) -> usize {
        match self {
            Self::Fixed(leases) => *leases,
            Self::Changing(counts, seen) => {
                *seen = leases_of(&counts.borrow_and_update());
                *seen
            }
        }
    }

    /// Returns the limit that [`get`](Self::get) has returned last.
    pub(super) fn last(&self) -> usize {
        match self {
            Self::Fixed(seen) | Self::Changing(_, seen) => *seen,
        }
    }

    /// Resolves when the limit differs from the [last](Self::last) one.
    pub(crate) async fn changed(&mut self) {
        if let Self::Changing(counts, seen) = self {
            let differs = |count: &VersionedValue<i32>| leases_of(count) != *seen;
            // Boxed: few limits change, and all waiters wait here.
            if Box::pin(counts.wait_for(differs)).await.is_ok() {
                return;
            }
        }
        std::future::pending().await
    }

    /// Resolves when the limit meets the condition.
    pub(crate) async fn wait_for(&mut self, is_met: impl Fn(usize) -> bool) {
        while !is_met(self.get()) {
            self.changed().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use curator_framework::Zxid;
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn a_waiter_wakes_only_if_the_limit_differs() {
        let count = |zxid, leases| VersionedValue::new(Zxid::new(zxid), 0, leases);
        let counts = watch::Sender::new(count(1, 4));
        let limit = Limit::Changing(counts.subscribe());
        let mut followed = limit.follow();
        counts.send_replace(count(2, 4));
        assert_eq!((followed.changed().now_or_never(), limit.get()), (None, 4));
        // Servers that return to a backup have smaller transactions.
        counts.send_replace(count(1, 2));
        assert_eq!((followed.changed().now_or_never(), limit.get()), (Some(()), 2));
        counts.send_replace(count(3, -1));
        assert_eq!((followed.get(), followed.changed().now_or_never()), (0, None));
        drop(counts);
        assert_eq!((followed.changed().now_or_never(), limit.get()), (None, 0));
    }
}

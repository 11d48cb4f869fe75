//! The number of leases.

use curator_framework::Zxid;
use tokio::sync::watch;

/// A number of leases.
#[derive(Debug)]
pub(crate) enum Limit {
    Fixed(usize),
    /// It may change while contenders wait.
    Changing(watch::Sender<Dated>),
}

/// A limit, and the transaction that set it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dated {
    leases: usize,
    zxid: Zxid,
}

impl Limit {
    /// Creates a limit that may change, with its present number.
    pub(crate) fn changing(leases: usize, zxid: Zxid) -> Self {
        Self::Changing(watch::Sender::new(Dated { leases, zxid }))
    }

    pub(crate) fn get(&self) -> usize {
        match self {
            Self::Fixed(leases) => *leases,
            Self::Changing(now) => now.borrow().leases,
        }
    }

    pub(crate) fn is_fixed(&self) -> bool {
        matches!(self, Self::Fixed(_))
    }

    /// Sets a limit that may change, unless a later transaction has set it. Wakes all waiters if the number differs.
    pub(crate) fn set(&self, leases: usize, zxid: Zxid) {
        if let Self::Changing(now) = self {
            now.send_if_modified(|now| {
                let is_later = zxid > now.zxid;
                is_later && std::mem::replace(now, Dated { leases, zxid }).leases != leases
            });
        }
    }

    /// Follows the limit from now on.
    pub(crate) fn follow(&self) -> LimitWatch {
        match self {
            Self::Fixed(leases) => LimitWatch::Fixed(*leases),
            Self::Changing(now) => LimitWatch::Changing(now.subscribe()),
        }
    }
}

/// One waiter's view of a limit.
#[derive(Debug)]
pub(crate) enum LimitWatch {
    Fixed(usize),
    Changing(watch::Receiver<Dated>),
}

impl LimitWatch {
    /// Returns the limit. [`changed`](Self::changed) misses no change after this call.
    pub(crate) fn get(&mut self) -> usize {
        match self {
            Self::Fixed(leases) => *leases,
            Self::Changing(now) => now.borrow_and_update().leases,
        }
    }

    /// Resolves at the next change.
    pub(crate) async fn changed(&mut self) {
        if let Self::Changing(now) = self {
            // Boxed: few limits change, and all waiters wait here.
            if Box::pin(now.changed()).await.is_ok() {
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
    use super::*;

    /// Two threads may pass on two changes in any order.
    #[test]
    fn an_older_limit_does_not_replace_a_newer_one() {
        let limit = Limit::changing(1, Zxid::new(-1));
        for (leases, zxid, expected) in [(4, 7, 4), (2, 9, 2), (4, 7, 2), (3, 8, 2), (5, 10, 5), (5, 11, 5)] {
            limit.set(leases, Zxid::new(zxid));
            assert_eq!(limit.get(), expected, "after {leases} leases at {zxid}");
        }
    }
}

//! The number of leases.

use tokio::sync::watch;

/// A number of leases.
#[derive(Debug)]
pub(crate) enum Limit {
    Fixed(usize),
    /// It may change while contenders wait.
    Changing(watch::Sender<usize>),
}

impl Limit {
    /// Creates a limit that may change, with its present number.
    pub(crate) fn changing(leases: usize) -> Self {
        Self::Changing(watch::Sender::new(leases))
    }

    pub(crate) fn get(&self) -> usize {
        match self {
            Self::Fixed(leases) => *leases,
            Self::Changing(leases) => *leases.borrow(),
        }
    }

    pub(crate) fn is_fixed(&self) -> bool {
        matches!(self, Self::Fixed(_))
    }

    /// Sets a limit that may change. Wakes all waiters if the number differs.
    pub(crate) fn set(&self, leases: usize) {
        if let Self::Changing(now) = self {
            now.send_if_modified(|now| std::mem::replace(now, leases) != leases);
        }
    }

    /// Follows the limit from now on.
    pub(crate) fn follow(&self) -> LimitWatch {
        match self {
            Self::Fixed(leases) => LimitWatch::Fixed(*leases),
            Self::Changing(leases) => LimitWatch::Changing(leases.subscribe()),
        }
    }
}

/// One waiter's view of a limit.
#[derive(Debug)]
pub(crate) enum LimitWatch {
    Fixed(usize),
    Changing(watch::Receiver<usize>),
}

impl LimitWatch {
    /// Returns the limit. [`changed`](Self::changed) misses no change after this call.
    pub(crate) fn get(&mut self) -> usize {
        match self {
            Self::Fixed(leases) => *leases,
            Self::Changing(leases) => *leases.borrow_and_update(),
        }
    }

    /// Resolves at the next change.
    pub(crate) async fn changed(&mut self) {
        if let Self::Changing(leases) = self {
            // Boxed: few limits change, and all waiters wait here.
            if Box::pin(leases.changed()).await.is_ok() {
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

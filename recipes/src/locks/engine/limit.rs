//! How many leases there are.

use tokio::sync::watch;

/// A number of leases that may change while contenders wait.
#[derive(Debug)]
pub(crate) struct Limit(watch::Sender<usize>);

impl Limit {
    pub(crate) fn new(leases: usize) -> Self {
        Self(watch::Sender::new(leases))
    }

    pub(crate) fn get(&self) -> usize {
        *self.0.borrow()
    }

    /// Wakes all waiters if it is another number.
    pub(crate) fn set(&self, leases: usize) {
        self.0.send_if_modified(|now| std::mem::replace(now, leases) != leases);
    }

    /// Follows the limit from now on.
    pub(crate) fn follow(&self) -> watch::Receiver<usize> {
        self.0.subscribe()
    }
}

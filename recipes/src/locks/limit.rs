//! How many may hold a lock at once.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// A number of leases that may change while somebody waits.
#[derive(Debug)]
pub(crate) struct Limit {
    leases: AtomicUsize,
    changed: Notify,
}

impl Limit {
    pub(crate) fn new(leases: usize) -> Self {
        Self { leases: AtomicUsize::new(leases), changed: Notify::new() }
    }

    pub(crate) fn get(&self) -> usize {
        self.leases.load(Ordering::SeqCst)
    }

    /// Wakes everybody who waits if it is another one.
    pub(crate) fn set(&self, leases: usize) {
        if self.leases.swap(leases, Ordering::SeqCst) != leases {
            self.changed.notify_waiters();
        }
    }

    /// Resolves at the next change after this call.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }
}

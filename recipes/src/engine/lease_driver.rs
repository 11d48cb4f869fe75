//! The order of the contenders for the leases of a semaphore, and the choice among them: pure, without I/O.

use crate::engine::driver::{LockInternalsDriver, Predicate, SortedChildren, StandardLockInternalsDriver};

/// Curator's name for the nodes of leases.
pub(crate) const LEASE_NAME: &str = "lease-";

/// Orders the contenders for leases as the standard driver does. Even with one lease, a waiter behind the first
/// one waits for a signal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeaseDriver {
    /// At most one contender waits at a time, so every waiter is the first one.
    pub(crate) has_one_waiter: bool,
}

impl LockInternalsDriver for LeaseDriver {
    fn gets_the_lock(&self, children: &SortedChildren, ours: &str, max_leases: usize) -> Predicate {
        let decided = StandardLockInternalsDriver.gets_the_lock(children, ours, max_leases);
        match (decided, children.position(ours)) {
            (Predicate::WatchNode { .. } | Predicate::WatchSignal { .. }, _) if self.has_one_waiter => {
                Predicate::WatchChildren
            }
            // The limit may change: even with one lease, only the first waiter watches the children.
            (Predicate::WatchNode { node, .. }, Some(position)) if position > max_leases => {
                Predicate::WatchSignal { node }
            }
            (Predicate::WatchNode { .. }, _) => Predicate::WatchChildren,
            (decided, _) => decided,
        }
    }
}

/// Returns whether all `own` leases are held without the queue, by a listing that was sent after their creates. Children
/// that are not leases count as older leases, because Java's clients count them too.
pub(crate) fn are_held(sorted: &SortedChildren, listed: usize, own: &[&str], max_leases: usize) -> bool {
    let positions: Option<Vec<usize>> = own.iter().map(|name| sorted.position(name)).collect();
    let Some(last) = positions.and_then(|positions| positions.into_iter().max()) else { return false };
    // Near the end, sequence numbers do not order the nodes, so all others count as older.
    let older = if sorted.is_near_the_end() { listed.saturating_sub(1) } else { listed - sorted.len() + last };
    older < max_leases
}

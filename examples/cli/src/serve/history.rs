//! The newest changes of all locks, numbered, so that a page can be resumed.

use std::collections::VecDeque;

use super::lock::Contender;

/// The most changes that are kept.
const KEPT: usize = 4096;

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    /// A contender has joined the queue.
    Waits,
    /// A contender has got the lock.
    Granted,
    /// A holder's node was deleted.
    Released,
    /// A waiter's node was deleted.
    Left,
    /// The nodes of a session, this one among them, were deleted together.
    GoneWithSession(usize),
    /// A client has asked the holder to release.
    Asked,
    /// The lock's own node was deleted.
    LockDeleted,
}

impl ChangeKind {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Waits => "waits",
            Self::Granted => "granted",
            Self::Released => "released",
            Self::Left => "left",
            Self::GoneWithSession(_) => "gone_with_session",
            Self::Asked => "asked",
            Self::LockDeleted => "lock_deleted",
        }
    }
}

/// One change of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    /// Milliseconds since 1970.
    pub(crate) at: i64,
    pub(crate) lock: String,
    pub(crate) kind: ChangeKind,
    /// The contender as it was just before it was deleted, or just after any other change.
    pub(crate) contender: Option<Contender>,
}

/// The newest changes.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// The number of the oldest change that is kept.
    first: u64,
    changes: VecDeque<Change>,
}

impl History {
    pub(crate) fn extend(&mut self, changes: Vec<Change>) {
        self.changes.extend(changes);
        let excess = self.changes.len().saturating_sub(KEPT);
        self.changes.drain(..excess);
        self.first += excess as u64;
    }

    /// Returns the number that the next change will have.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.changes.len() as u64
    }

    /// Returns the changes of a lock from a number on, and whether older ones were dropped.
    pub(crate) fn since(&self, number: u64, lock: &str) -> (Vec<Change>, bool) {
        let skipped = usize::try_from(number.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let changes = self.changes.iter().skip(skipped).filter(|change| change.lock == lock).cloned().collect();
        (changes, number < self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(at: i64) -> Change {
        Change { at, lock: format!("/{}", at % 2), kind: ChangeKind::LockDeleted, contender: None }
    }

    #[test]
    fn changes_are_kept_up_to_a_limit() {
        let mut history = History::default();
        history.extend((0..10).map(change).collect());
        assert_eq!(history.next(), 10);
        let (changes, dropped) = history.since(6, "/1");
        assert_eq!((changes, dropped), (vec![change(7), change(9)], false));
        history.extend((10..5000).map(change).collect());
        assert_eq!((history.next(), history.changes.len()), (5000, KEPT));
        let (changes, dropped) = history.since(6, "/1");
        assert_eq!((changes.len(), dropped), (KEPT / 2, true));
        assert_eq!(history.since(u64::MAX, "/1"), (Vec::new(), false));
    }
}

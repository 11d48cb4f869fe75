//! Events with their times, which the checkers share.

use std::time::Duration;

/// An event with its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry<E> {
    /// The time since the history's beginning.
    pub at: Duration,
    /// The event.
    pub event: E,
}

/// Events in the order of time, the times of faults, and what was left behind at the end. Each checker's module has the
/// rules for its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeline<E> {
    pub(crate) entries: Vec<Entry<E>>,
    pub(crate) faults: Vec<(Duration, Duration)>,
    pub(crate) slow: Vec<(Duration, Duration)>,
    pub(crate) left_behind: Vec<String>,
}

impl<E> Default for Timeline<E> {
    fn default() -> Self {
        Self { entries: Vec::new(), faults: Vec::new(), slow: Vec::new(), left_behind: Vec::new() }
    }
}

impl<E> Timeline<E> {
    /// Creates an empty history.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an event; times must not decrease.
    pub fn record(&mut self, at: Duration, event: E) {
        self.entries.push(Entry { at, event });
    }

    /// Records the time of a fault, and of the recovery from it. Clients may be late meanwhile. All other time is calm.
    pub fn fault(&mut self, from: Duration, until: Duration) {
        self.faults.push((from, until));
    }

    /// Records a node in ZooKeeper or a state in a client that was left at the end.
    pub fn left_behind(&mut self, what: impl Into<String>) {
        self.left_behind.push(what.into());
    }

    /// Returns the events.
    #[must_use]
    pub fn entries(&self) -> &[Entry<E>] {
        &self.entries
    }
}

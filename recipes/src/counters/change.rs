//! The results of changes.

use std::time::Duration;

/// The tries of a change: Curator's `AtomicStats`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct AtomicStats {
    /// The number of writes before the promotion to the lock; 0 if the change needed no write.
    pub optimistic_tries: u32,
    /// The time of these tries, including the wait for changes of other tasks.
    pub optimistic_time: Duration,
    /// The number of writes under the lock.
    #[doc(alias = "getPromotedLockTries")]
    pub promoted_tries: u32,
    /// The time under the lock, including the wait for it.
    pub promoted_time: Duration,
}

/// A change that was applied exactly once: a successful `AtomicValue` of Curator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "AtomicValue")]
pub struct AtomicChange<T> {
    pre: T,
    post: T,
    stats: AtomicStats,
}

impl<T> AtomicChange<T> {
    pub(super) const fn new(pre: T, post: T, stats: AtomicStats) -> Self {
        Self { pre, post, stats }
    }

    /// Returns the value before the change: Curator's `preValue`.
    #[must_use]
    pub const fn pre_value(&self) -> &T {
        &self.pre
    }

    /// Returns the value that the change has set: Curator's `postValue`.
    #[must_use]
    pub const fn post_value(&self) -> &T {
        &self.post
    }

    /// Returns the tries of the change.
    #[must_use]
    pub const fn stats(&self) -> AtomicStats {
        self.stats
    }
}

/// The result of a change that requires an expected value.
///
/// A comparison that fails shows the value that the client's server knows. A server that lags behind may know an earlier
/// one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the value may differ, and is not set then"]
pub enum Compared<T> {
    /// The value was the expected one, and the new one is set.
    Set(AtomicChange<T>),
    /// The value is this one, which differs from the expected one. Nothing was changed.
    Differs(T),
    /// The node does not exist. Nothing was changed; call `initialize` first.
    Missing,
}

impl<T> Compared<T> {
    /// Returns `true` if the new value is set.
    #[must_use]
    #[doc(alias = "succeeded")]
    pub const fn is_set(&self) -> bool {
        matches!(self, Self::Set(_))
    }
}

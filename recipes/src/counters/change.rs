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
#[non_exhaustive]
#[doc(alias = "AtomicValue")]
pub struct AtomicChange<T> {
    /// The value before the change.
    pub pre_value: T,
    /// The value that the change has set.
    pub post_value: T,
    /// The tries of the change.
    pub stats: AtomicStats,
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

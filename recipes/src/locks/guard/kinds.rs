//! The kinds of [`LockGuard`](crate::LockGuard). Use their names in the crate's root, such as
//! [`MutexGuard`](crate::MutexGuard).

use std::fmt;

pub use crate::locks::read_write::Write;

/// A kind of guard that names its lock; [`Any`] does not.
pub trait GuardKind: fmt::Debug + Send + Sync + sealed::Sealed + 'static {}

/// The kind of a lock with one holder: its guards have transactions.
pub trait Exclusive: GuardKind {}

/// The kind of a lock that its owner may acquire again.
pub trait Reentrant: GuardKind + Clone {}

/// The kind of a guard that has several locks or leases.
pub trait Several: GuardKind {}

pub(crate) mod sealed {
    /// Keeps the kinds to this crate.
    pub trait Sealed {}
}

/// A lock of any kind.
#[derive(Debug, Clone, Default)]
pub struct Any(());

/// An [`InterProcessMutex`](crate::InterProcessMutex).
#[derive(Debug, Clone, Default)]
pub struct Mutex(());

/// An [`InterProcessSemaphoreMutex`](crate::InterProcessSemaphoreMutex).
#[derive(Debug, Clone, Default)]
pub struct SemaphoreMutex(());

/// A [`ReadLock`](crate::ReadLock).
#[derive(Debug, Clone, Default)]
pub struct Read(());

/// An [`InterProcessMultiLock`](crate::InterProcessMultiLock).
#[derive(Debug, Clone, Default)]
pub struct Multi(());

/// One lease of an [`InterProcessSemaphoreV2`](crate::InterProcessSemaphoreV2).
#[derive(Debug, Clone, Default)]
pub struct OneLease(());

/// Several leases of an [`InterProcessSemaphoreV2`](crate::InterProcessSemaphoreV2).
#[derive(Debug, Clone, Default)]
pub struct SeveralLeases(());

macro_rules! all {
    ($trait:path: $($kind:ty),*) => { $(impl $trait for $kind {})* };
}

all!(sealed::Sealed: Mutex, SemaphoreMutex, Read, Write, Multi, OneLease, SeveralLeases);
all!(GuardKind: Mutex, SemaphoreMutex, Read, Write, Multi, OneLease, SeveralLeases);
all!(Exclusive: Mutex, SemaphoreMutex, Write, Multi);
all!(Several: Multi, SeveralLeases);
all!(Reentrant: Mutex, Read, Write);

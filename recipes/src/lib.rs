//! Apache Curator's recipes for async Rust: locks between processes through ZooKeeper, on the same paths and with the
//! same nodes as Java's Curator.
//!
//! | recipe | for |
//! | --- | --- |
//! | [`InterProcessMutex`] | one at a time, reentrant for an explicit [`LockOwner`] |
//! | [`InterProcessSemaphoreV2`] | at most N at a time |
//! | [`InterProcessReadWriteLock`] | many readers or one writer |
//! | [`InterProcessMultiLock`] | several locks, all or none |
//! | [`InterProcessSemaphoreMutex`] | one at a time, never reentrant |
//! | [`SharedCount`], [`SharedValue`] | a number, or a few bytes, that all processes see and may change |
//!
//! All locks give a guard that tells of its loss, carries a fencing token, and leaves nothing behind however it goes.
//!
//! # Tracing
//!
//! Names and fields that stay, at the level *debug* but for the last:
//!
//! | event | fields |
//! | --- | --- |
//! | `lock acquire`: an acquire has ended | `path`, `wait`, `outcome` (`granted`, `timeout`, `error`, `cancelled`) |
//! | `lock granted` | `path`, `node`, `queue_position`, `fencing_token` |
//! | `lock released` | `path`, `node`, `hold`, `outcome` (`released`, `lost`, `dropped`) |
//! | *warn* `a lock is held for long` | `path`, `node`, `held_for_more_than` |

mod error;
mod locks;
mod shared;

pub use curator_framework::LossReason;
pub use error::{LockError, Result};
pub use locks::{
    GuardedTransaction, InterProcessLock, InterProcessMultiLock, InterProcessMutex, InterProcessReadWriteLock,
    InterProcessSemaphoreMutex, InterProcessSemaphoreV2, Lease, LockGuard, LockInternalsDriver, LockOptions, LockOwner,
    MutexGuard, Participant, ParticipantKind, Predicate, ReadGuard, ReadLock, Release, RevocationListener, Revoker,
    SemaphoreMutexGuard, SemaphoreProtocol, SortedChildren, StandardLockInternalsDriver, WriteGuard, WriteLock,
    standard_sequence,
};
pub use shared::{
    SharedCount, SharedCountListener, SharedCountReader, SharedError, SharedListenerId, SharedValue,
    SharedValueListener, SharedValueReader, VersionedValue,
};

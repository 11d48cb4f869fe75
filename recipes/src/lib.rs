//! Apache Curator's recipes for async Rust: locks between processes through ZooKeeper, on the same paths and with the
//! same nodes as Java's Curator.
//!
//! | recipe | for |
//! | --- | --- |
//! | [`InterProcessMutex`] | one at a time, reentrant for an explicit [`LockOwner`] |
//! | [`InterProcessSemaphoreV2`] | at most N at a time |
//! | [`SharedCount`], [`SharedValue`] | a number, or a few bytes, that all processes see and may change |
//!
//! All locks give a guard that tells of its loss, carries a fencing token, and leaves nothing behind however it goes.

mod error;
mod locks;
mod shared;

pub use curator_framework::LossReason;
pub use error::{LockError, Result};
pub use locks::{
    InterProcessMutex, InterProcessSemaphoreV2, Lease, LockInternalsDriver, LockOwner, MutexGuard, Predicate, Release,
    SortedChildren, StandardLockInternalsDriver, standard_sequence,
};
pub use shared::{
    SharedCount, SharedCountListener, SharedCountReader, SharedError, SharedListenerId, SharedValue,
    SharedValueListener, SharedValueReader, VersionedValue,
};

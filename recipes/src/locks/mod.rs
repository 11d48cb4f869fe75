//! The locks: thin types over one engine.

mod acquire_methods;
pub(crate) mod engine;
pub(crate) mod error;
pub(crate) mod guard;
mod inter_process_lock;
mod label;
mod metrics;
mod multi;
pub(crate) mod mutex;
mod options;
pub(crate) mod participants;
mod read_write;
pub(crate) mod reentrancy;
mod semaphore;
mod semaphore_mutex;

pub use engine::driver::{
    LockInternalsDriver, Predicate, SortedChildren, StandardLockInternalsDriver, standard_sequence,
};
pub use guard::guarded_transaction::GuardedTransaction;
pub use guard::hold::Release;
pub use guard::kinds as guard_kinds;
pub use guard::lock_guard::LockGuard;
pub use guard::revocation::{RevocationListener, RevokeOutcome, Revoker};
pub use inter_process_lock::InterProcessLock;
pub use multi::{InterProcessMultiLock, MultiLockGuard};
pub use mutex::{InterProcessMutex, MutexGuard};
pub use options::{LockOptions, MutexOptions, MutexQueue, SemaphoreOptions};
pub use participants::{Participant, ParticipantKind};
pub use read_write::{InterProcessReadWriteLock, ReadGuard, ReadLock, WriteGuard, WriteLock};
pub use reentrancy::owner::LockOwner;
pub use semaphore::{InterProcessSemaphoreV2, Lease, LeaseSet, MaxLeases, SemaphoreProtocol};
pub use semaphore_mutex::{InterProcessSemaphoreMutex, SemaphoreMutexGuard};

//! The locks: thin types over one engine.

mod engine;
mod guard;
mod guarded;
mod hold;
mod inter_process_lock;
mod methods;
mod multi;
mod mutex;
mod options;
mod owner;
mod participants;
mod read_write;
mod reentrant;
mod revoker;
mod semaphore;
mod semaphore_mutex;

pub use engine::driver::{
    LockInternalsDriver, Predicate, SortedChildren, StandardLockInternalsDriver, standard_sequence,
};
pub use guard::LockGuard;
pub use guarded::GuardedTransaction;
pub use hold::Release;
pub use inter_process_lock::InterProcessLock;
pub use multi::{InterProcessMultiLock, MultiLockGuard};
pub use mutex::{InterProcessMutex, MutexGuard};
pub use options::LockOptions;
pub use owner::LockOwner;
pub use participants::{Participant, ParticipantKind};
pub use read_write::{InterProcessReadWriteLock, ReadGuard, ReadLock, WriteGuard, WriteLock};
pub use revoker::{RevocationListener, Revoker};
pub use semaphore::{InterProcessSemaphoreV2, Lease, SemaphoreProtocol};
pub use semaphore_mutex::{InterProcessSemaphoreMutex, SemaphoreMutexGuard};

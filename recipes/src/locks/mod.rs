//! The locks: thin types over one engine.

mod acquire_methods;
pub(crate) mod guard;
mod inter_process_lock;
mod multi;
pub(crate) mod mutex;
mod options;
mod read_write;
mod reentrant;
mod semaphore;
mod semaphore_mutex;

pub use guard::kinds as guard_kinds;
pub use guard::lock_guard::LockGuard;
pub use inter_process_lock::InterProcessLock;
pub use multi::{InterProcessMultiLock, MultiLockGuard};
pub use mutex::{InterProcessMutex, MutexGuard};
pub use options::{MutexOptions, MutexQueue, SemaphoreOptions};
pub use read_write::{InterProcessReadWriteLock, ReadGuard, ReadLock, WriteGuard, WriteLock};
pub use semaphore::{InterProcessSemaphoreV2, Lease, LeaseSet, MaxLeases};
pub use semaphore_mutex::{InterProcessSemaphoreMutex, SemaphoreMutexGuard};

//! The locks: thin faces over one engine.

mod driver;
mod hold;
mod lock_internals;
mod mutex;
mod owner;
mod semaphore;

pub use driver::{LockInternalsDriver, Predicate, SortedChildren, StandardLockInternalsDriver, standard_sequence};
pub use hold::Release;
pub use mutex::{InterProcessMutex, MutexGuard};
pub use owner::LockOwner;
pub use semaphore::{InterProcessSemaphoreV2, Lease};

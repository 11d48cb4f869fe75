//! The semaphore.
//!
//! | file | what it does |
//! | --- | --- |
//! | [`semaphore_v2`] | the public semaphore |
//! | [`take`], [`first_try`] | take leases: in the turn of a mutex, or without the queue |
//! | [`mark`] | the mark in the path, by which its clients agree on the protocol |
//! | [`state`] | what the clones of a semaphore share |
//! | [`pool`] | the leases that the tasks of one client share |
//! | [`lease_set`] | the guards |
//!
//! Two places decide that a lease is granted: `engine/lease_driver.rs` in the queue and without it (`are_held`), and
//! [`take`] for several leases at once (`check`).

mod first_try;
mod lease_set;
mod mark;
mod pool;
mod semaphore_v2;
mod state;
mod take;

pub use self::lease_set::{Lease, LeaseSet};
pub use self::semaphore_v2::{InterProcessSemaphoreV2, MaxLeases};

//! The semaphore.
//!
//! | file | what it does |
//! | --- | --- |
//! | [`semaphore_v2`] | the public semaphore |
//! | [`take`], [`first_try`] | take leases: in the turn of a mutex, or without the queue |
//! | [`protocol`] | the mark in the path, by which its clients agree on the protocol |
//! | [`state`] | what the clones of a semaphore share |
//! | [`lease_set`] | the guards |

mod first_try;
mod lease_set;
mod protocol;
mod semaphore_v2;
mod state;
mod take;

pub use self::lease_set::{Lease, LeaseSet};
pub use self::semaphore_v2::{InterProcessSemaphoreV2, MaxLeases};

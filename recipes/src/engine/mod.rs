//! The engine of every lock: Curator's `LockInternals`.
//!
//! | file | what it does |
//! | --- | --- |
//! | [`driver`], [`lease_driver`], [`read_write_driver`] | sort the contenders and choose among them |
//! | [`plan`] | decides what a contender does next; pure |
//! | [`run`], [`waits`] | performs it: requests, watches, waits |
//! | [`acquire`], [`wait_mode`] | one attempt after the other, within a budget |
//! | [`batch`] | lets the tasks of one client share a node |
//! | [`by_key`] | what the objects of a client share at one path |
//! | [`places`] | limits what the contenders of a client send and keep at one path |
//! | [`queue_node`] | creates and finds a contender's node: its data, its access control list, lost replies |
//! | [`requests`] | list the children, check a node |
//! | `run/prefetch.rs`, `plan/two_ahead.rs`, [`same_session`], [`shared_reads`] | optimisations, one a file |
//! | [`candidacy`], `run/calls.rs` | the place in the queue, and a move in it, for leader latches |
//! | [`sequence_wrap`] | the order near the end of ZooKeeper's counter |
//! | [`limit`], [`slot`] | a number of leases that may change, and the numbers of leases |
//! | [`internals`] | the properties of a lock, and what its contenders in this process share |
//! | [`hold`], [`revocation`], [`guarded_transaction`], [`while_held`] | what a grant is for its holder |
//! | [`participants`] | the holders and the waiters, as others see them |
//! | [`error`], [`options`], [`owner`], [`caller`], [`label`], [`metrics`] | what the callers of locks pass and get |
mod acquire;
mod acquired;
pub(crate) mod batch;
mod by_key;
pub(crate) mod caller;
pub(crate) mod candidacy;
pub(crate) mod driver;
pub(crate) mod error;
pub(crate) mod guarded_transaction;
pub(crate) mod hold;
mod internals;
pub(crate) mod label;
pub(crate) mod lease_driver;
mod limit;
pub(crate) mod metrics;
#[cfg(test)]
mod model;
pub(crate) mod options;
pub(crate) mod owner;
pub(crate) mod participants;
mod places;
mod plan;
mod queue_node;
pub(crate) mod read_write_driver;
mod requests;
pub(crate) mod revocation;
mod run;
mod same_session;
pub(crate) mod semaphore_protocol;
mod sequence_wrap;
mod shared_reads;
pub(crate) mod slot;
mod wait_mode;
mod waits;
pub(crate) mod while_held;

pub(crate) use self::acquire::{AcquireOnce, acquire, attempts, no_end};
pub(crate) use self::acquired::Acquired;
pub(crate) use self::internals::{LockInternals, LockSpec, Sharing};
pub(crate) use self::limit::Limit;
pub(crate) use self::places::Places;
pub(crate) use self::queue_node::adopt;
pub(crate) use self::requests::{children_of, verify_in_session};
pub(crate) use self::same_session::Role;
pub(crate) use self::wait_mode::{Contention, WaitMode};

pub use self::driver::{
    LockInternalsDriver, Predicate, SortedChildren, StandardLockInternalsDriver, queue_order, standard_sequence,
};
pub use self::error::LockError;
pub use self::guarded_transaction::GuardedTransaction;
pub use self::hold::Release;
pub use self::options::LockOptions;
pub use self::owner::LockOwner;
pub use self::participants::{Participant, ParticipantKind};
pub use self::revocation::{RevocationListener, RevokeOutcome, Revoker};
pub use self::semaphore_protocol::SemaphoreProtocol;

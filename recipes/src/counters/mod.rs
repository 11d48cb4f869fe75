//! Counters and atomic values: each change counts once, or its error says that the outcome is unknown.
//!
//! | file | contents |
//! | --- | --- |
//! | [`number`], [`value`] | the public counters and atomic values |
//! | [`cached`], [`unique_ids`] | ids: from a counter, and from the versions of a node |
//! | [`counter`] | the shared part of counters and values: the calls, the promotion to a lock |
//! | [`state`] | what the callers of a counter share |
//! | [`engine`] | combines the changes of all tasks into writes; pure |
//! | [`effect`] | the changes of a value, and their effects on the content of the node; pure |
//! | [`queued`] | a change in the engine's queue, and its end; pure |
//! | [`step`] | the actions of the engine |
//! | [`run`] | sends the requests, in the future of one of the callers |
//! | [`attempts`] | the attempts to apply one write, and the meaning of their replies |
//! | [`flight`] | the knowledge whether a write that was started may be applied; pure |
//! | [`marker`](crate::marker) | the node that shows after a lost reply if the write was applied |
//! | [`pacing`], [`contention`] | the pauses for other sessions, and the decisions on them; pure |

mod attempts;
mod cached;
mod change;
mod contention;
mod counter;
mod effect;
mod engine;
pub(crate) mod error;
mod flight;
mod number;
mod options;
mod pacing;
mod queued;
mod run;
mod state;
mod step;
mod unique_ids;
mod value;

pub use crate::content::AtomicNumber;
pub use cached::{CachedAtomicInteger, CachedAtomicLong, CachedAtomicNumber};
pub use change::{AtomicChange, AtomicStats, Compared};
pub use number::{DistributedAtomicInteger, DistributedAtomicLong, DistributedAtomicNumber};
pub use options::{CounterOptions, PromotedToLock};
pub use unique_ids::UniqueIds;
pub use value::DistributedAtomicValue;

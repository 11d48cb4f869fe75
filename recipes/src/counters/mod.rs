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
//!
//! The life of a count, by `counter.increment()`:
//!
//! | file | function | step |
//! | --- | --- | --- |
//! | `counter.rs` | `Counter::run` | queues the change; waits for its outcome, or for the right to send the requests of all callers |
//! | `run.rs` | `Runner::run` | asks the engine for the next step, until the caller's change is decided |
//! | `engine.rs` | `Engine::next`, `combine` | combines the waiting changes into one write, on the remembered value and version |
//! | `run.rs` | `read` | reads the node, if its value is not known |
//! | `run.rs` | `create_marker` | creates the marker if the session has none, then compares the node with the known one |
//! | `marker.rs` | `Marker::record` | returns the operation that writes the number of the try into the marker |
//! | `run.rs` | `attempt`, `send` | sends both in one transaction |
//! | `attempts.rs` | `settle` | after a lost reply: reads the marker after a write barrier |
//! | `marker.rs` | `Marker::proof` | returns whether the try was applied; if not, the same transaction is sent again |
//! | `engine.rs` | `applied`, `refused` | ends the changes with their values, or queues them again |
//! | `contention.rs` | `Contention` | decides on the pause after a write that another session made the server refuse |

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

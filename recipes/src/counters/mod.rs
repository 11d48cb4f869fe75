//! Counters and atomic values, which count once or say that the outcome is unknown.
//!
//! An engine without I/O (`engine.rs`) combines the changes of all tasks into writes; a contention policy
//! (`contention.rs`) decides on pauses. `driver.rs` sends the requests, in the future of one of the callers. The data of
//! a marker (`marker.rs`) shows after a lost reply if the write was applied.

mod cached;
mod change;
mod content;
mod contention;
mod driver;
mod engine;
pub(crate) mod error;
mod marker;
mod number;
mod options;
mod unique_ids;
mod value;

pub use cached::{CachedAtomicInteger, CachedAtomicLong, CachedAtomicNumber};
pub use change::{AtomicChange, AtomicStats, Compared};
pub use content::AtomicNumber;
pub use number::{DistributedAtomicInteger, DistributedAtomicLong, DistributedAtomicNumber};
pub use options::{CounterOptions, PromotedToLock};
pub use unique_ids::UniqueIds;
pub use value::DistributedAtomicValue;

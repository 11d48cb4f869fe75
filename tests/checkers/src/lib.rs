//! Checks histories of the recipes: the events that a test or a simulation has seen, and the rules that they break.
//!
//! Each module has the events and the rules of one kind of history. A history is a [`Timeline`](timeline::Timeline), and
//! its `check` returns each broken rule as a [`Violation`].
//!
//! | | |
//! | --- | --- |
//! | [`locks`] | the steps of a lock |
//! | [`elections`] | the events of a leader election |
//! | [`registrations`] | the nodes that clients keep standing |
//! | [`groups`] | the views of a group's members |
//! | [`services`] | the instances of a service, as observers show them |
//! | [`partitions`] | the owners of a partition's items |
//! | [`caches`] | the contents and events of caches |
//! | [`barriers`] | the members and waiters of barriers |
//! | [`latches`] | the counts and waiters of latches |
//! | [`counters`] | the calls of counters |
//! | [`queues`] | the items of a queue and their deliveries |
//! | [`timeline`] | events with their times, which these share |
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//! use curator_checkers::locks::{Attempt, Locks, Mode, Rules, Step};
//!
//! let (first, second) = (Attempt(1), Attempt(2));
//! let at = Duration::from_secs;
//! let mut locks = Locks::new();
//! for attempt in [first, second] {
//!     locks.record(at(0), (attempt, Step::Asked(Mode::Exclusive)));
//! }
//! locks.record(at(1), (first, Step::Granted(7)));
//! locks.record(at(2), (second, Step::Granted(8)));
//! let found = locks.check(&Rules::mutex(at(5)));
//! assert_eq!(found[0].to_string(), "2s: too many holders: [Attempt(1), Attempt(2)]");
//! ```

pub mod barriers;
pub mod caches;
pub mod counters;
pub mod elections;
pub mod groups;
pub mod latches;
pub mod locks;
mod nodes;
pub mod partitions;
pub mod queues;
pub mod registrations;
pub mod services;
#[cfg(test)]
mod testing;
pub mod timeline;
mod violation;

pub use violation::Violation;

//! Checks histories of the recipes: which events a test or a simulation has seen, and which rules they break.
//!
//! | | |
//! | --- | --- |
//! | [`locks`] | the steps of a lock |
//! | [`elections`] | the events of a leader election |
//! | [`registrations`] | the nodes that clients keep standing |
//! | [`groups`] | the views of a group's members |
//! | [`partitions`] | the owners of a partition's items |
//! | [`caches`] | the contents and events of caches |
//! | [`barriers`] | the members and waiters of barriers |
//! | [`latches`] | the counts and waiters of latches |
//! | [`counters`] | the calls of counters |
//! | [`timeline`] | events with their times, which these share |

pub mod barriers;
pub mod caches;
pub mod counters;
pub mod elections;
pub mod groups;
pub mod latches;
pub mod locks;
mod nodes;
pub mod partitions;
pub mod registrations;
pub mod timeline;

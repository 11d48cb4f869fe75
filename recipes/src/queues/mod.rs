//! Queues: items that clients put and consumers take, with the names and bytes of Java's Curator.
//!
//! | file | contents |
//! | --- | --- |
//! | [`kinds`] | the public queues |
//! | [`simple`] | the queue of ZooKeeper's own recipe |
//! | [`options`], [`error`] | what their callers give and get |
//! | [`shared`] | the part of a queue that its clones share |
//! | [`put`], [`paths`] | puts, and the paths that they create |
//! | [`proving`] | transactions that count once, even if a reply is lost |
//! | [`consumer`] | the stream of deliveries, and the run of a handler |
//! | [`engine`] | the steps of a consumer, one delivery after the other |
//! | [`follower`] | keeps the known names up to date |
//! | [`reads`] | reads some items ahead |
//! | [`taking`] | the delete that takes an item at most once |
//! | [`claim`], [`ending`] | the lock of an item, and the transactions that end a delivery |
//! | [`delivery`], [`queued`] | an item as its consumer has it, and as it waits |
//! | [`backlog`] | the known names in their order; pure |
//! | [`names`], [`items`] | the names and the data of items; pure |

mod backlog;
mod claim;
pub(crate) mod consumer;
pub(crate) mod delivery;
mod ending;
mod engine;
pub(crate) mod error;
mod follower;
mod items;
pub(crate) mod kinds;
mod names;
pub(crate) mod options;
mod paths;
mod proving;
mod put;
pub(crate) mod queued;
mod reads;
mod shared;
pub(crate) mod simple;
mod taking;

//! The items of a queue, and the check for violations.
//!
//! A producer puts items, and consumers get deliveries of them. A [`Queues`] is a list of events with their times: the
//! changes at the server, and the calls of clients. [`Queues::check`] finds violations:
//!
//! - a confirmed put without its item, and an item that is put twice, or in part
//! - an item that is deleted although no delivery has ended it, or that is lost on its way to a consumer
//! - two deliveries of one item at a time, a delivery without a lock, and a loss without notice
//! - a confirmed end of a delivery that has changed nothing, or that has ended the delivery of another consumer
//! - an effect that a completion makes twice, or without the completion
//! - a wrong number of a delivery, one above the limit, and a dead letter without a reason
//! - items out of order at a single consumer
//!
//! The data of each node has the number of its item. A server's record has the deletions of a transaction before its
//! creations. The locks are at `<path>-locks`, the dead letters at `<path>-dead`, the effects at `<path>-effects`.

mod checker;
#[cfg(test)]
mod tests;

use std::time::Duration;

use self::checker::Checker;
use crate::Violation;
use crate::timeline::Timeline;
use curator_test::nodes::Change;

/// The number of one item, which is its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Item(pub u64);

/// The id of one put. Never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Put(pub u64);

/// The id of one delivery. Never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Delivery(pub u64);

/// The end of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// The item is done.
    Complete,
    /// The item is done, and an effect is made.
    CompleteWith,
    /// The item moves to the end.
    Requeue,
    /// The item moves to the dead letters.
    Reject,
    /// The item is delivered again, in its place.
    Retry,
}

/// The outcome of a call that ends a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The delivery has ended like this.
    Done,
    /// The delivery was lost before.
    Lost,
    /// Another client has deleted the item.
    Gone,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// A change at the server.
    Server(Change),
    /// An administrator is about to delete this node, or to end its session.
    Revoked(String),
    /// A put of items starts. Items with a lower rank are delivered first.
    Puts(Put, Vec<Item>, i64),
    /// The put has ended: `true` if the items are in the queue, `false` if they are not.
    HasPut(Put, bool),
    /// A consumer gets an item: the token of the delivery, and its number.
    Delivered(Delivery, Item, i64, u32),
    /// The consumer is notified that the delivery is lost.
    Lost(Delivery),
    /// A call that ends the delivery starts. A repeated call has an event of its own.
    Ends(Delivery, End),
    /// The call has ended.
    Ended(Delivery, Outcome),
    /// The delivery was dropped.
    Dropped(Delivery),
    /// A consumer does not know if it has taken the item of a node with this name, and does not get it.
    Unknown(String),
    /// A consumer was dropped, which may have had this number of items, all of them taken since this time.
    ConsumerDropped(usize, Duration),
    /// From now on there is a single consumer, which gets what is put before it starts.
    Alone,
}

/// The rules that a queue must obey.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// The path of the queue.
    pub path: String,
    /// Items are deleted before they are delivered.
    pub at_most_once: bool,
    /// The limit of the deliveries of an item.
    pub max_attempts: Option<u32>,
    /// The time by which the server of a client may be behind, outside of faults.
    pub behind: Duration,
}

impl Rules {
    /// Returns the rules of the queue at a path, which delivers at least once.
    #[must_use]
    pub fn new(path: impl Into<String>) -> Self {
        Self { path: path.into(), at_most_once: false, max_attempts: None, behind: Duration::ZERO }
    }
}

/// The events of a queue, in the order of time.
pub type Queues = Timeline<Event>;

impl Timeline<Event> {
    /// Returns the number of deliveries.
    #[must_use]
    pub fn delivered(&self) -> usize {
        self.count(|event| matches!(event, Event::Delivered(..)))
    }

    /// Returns all violations, in the order of time.
    #[must_use]
    pub fn check(&self, rules: &Rules) -> Vec<Violation> {
        self.check_by(Checker::new(rules, self))
    }
}

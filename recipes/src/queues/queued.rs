//! An item that waits in its queue.

use std::time::SystemTime;

use curator_framework::Zxid;

use crate::queues::error::QueueError;

/// An item in a queue, from a queue's method `peek`, or a dead letter, from `dead_letters`. It is not taken: another
/// client may take it at any time.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct QueuedItem<T> {
    /// The name of the item's node.
    pub name: String,
    /// The items of the node, or the reason why it cannot be decoded.
    pub items: Result<Vec<T>, QueueError>,
    /// The time of the put, the requeue or the rejection, by the server's clock.
    pub created: SystemTime,
    /// The number of deliveries until now, with one that lasts. Deliveries by Java's consumers do not count.
    pub attempts: u32,
    /// The transaction that put the item, as [`Delivery::key`](crate::Delivery::key). `None` if the node cannot be decoded.
    pub key: Option<Zxid>,
    /// The reason of the rejection, if this is a dead letter.
    pub reason: Option<String>,
}

//! An item as its consumer has it.

use std::fmt;
use std::time::{Duration, SystemTime};

use curator_framework::{CuratorTransaction, LossReason, PathText, Zxid, node_from_path};

use crate::engine::hold::Release;
use crate::held::{FencingToken, impl_held};
use crate::queues::ending::Locked;
use crate::queues::error::QueueError;
use crate::queues::names::{self, Kind};
use crate::queues::shared::time_of;

/// An item that a consumer has got: from [`QueueConsumer::next`](crate::QueueConsumer::next).
///
/// With a [lock path](crate::QueueOptions::lock_path) the item's node exists until the delivery is completed. The
/// consumer holds the item's lock, which can be [lost](Self::lost). Then another consumer gets the item. `complete`,
/// `complete_with`, `requeue` and `reject` fail with `QueueError::Lost` and change nothing. `release` returns
/// `Release::AlreadyLost`, and `retry` returns `Ok`.
///
/// | call | the item |
/// | --- | --- |
/// | [`complete`](Self::complete), [`complete_with`](Self::complete_with) | is deleted |
/// | [`retry`](Self::retry), [`release`](Self::release), drop | is delivered again, in its place |
/// | [`requeue`](Self::requeue) | is delivered again, as the last one of its id, priority or time |
/// | [`reject`](Self::reject) | is moved to the dead letters |
///
/// With [`at_most_once`](crate::QueueOptions::at_most_once) the item's node was deleted before the delivery. So the
/// delivery cannot be lost. `complete` and `release` send nothing and return `Ok`. `complete_with`, `retry`, `requeue`
/// and `reject` fail with `QueueError::AtMostOnce`.
///
/// A call that has failed can be repeated. A repeated call returns the result of the first one.
///
/// # Cost
///
/// Each call that ends a delivery with a lock is one transaction. A delivery of more than 500 ms costs one read, which
/// sets a watch on its lock. One that has outlived a connection costs one round trip more at its end.
#[must_use = "the item is given back when this is dropped"]
pub struct Delivery<T> {
    items: Vec<T>,
    about: About,
    hold: Hold,
}

/// The knowledge of an item.
#[derive(Debug, Clone)]
pub(super) struct About {
    pub(super) kind: Kind,
    /// The path of the node, for errors.
    pub(super) path: PathText,
    pub(super) attempt: u32,
    /// The `czxid` of the node, and of its first one.
    pub(super) czxid: i64,
    pub(super) first_czxid: i64,
    /// The server's time of the create, in milliseconds after 1970.
    pub(super) created: i64,
}

/// The right to an item.
pub(super) enum Hold {
    /// The item's node was deleted.
    AtMostOnce,
    Locked(Box<Locked>),
}

impl<T> Delivery<T> {
    pub(super) const fn new(items: Vec<T>, about: About, hold: Hold) -> Self {
        Self { items, about, hold }
    }

    /// Returns the items of the node. It is one, unless a producer has put several into one node.
    #[must_use]
    pub fn items(&self) -> &[T] {
        &self.items
    }

    /// Moves the items out of the delivery.
    #[must_use]
    pub fn take_items(&mut self) -> Vec<T> {
        std::mem::take(&mut self.items)
    }

    /// Returns the name of the item's node.
    #[must_use]
    pub fn name(&self) -> &str {
        node_from_path(self.about.path.as_str())
    }

    /// Returns the id of an item of a [`DistributedIdQueue`](crate::DistributedIdQueue), as it is in the node's name.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        (self.about.kind == Kind::Id).then(|| names::id(self.name()))
    }

    /// Returns the priority of an item of a [`DistributedPriorityQueue`](crate::DistributedPriorityQueue). `None` too
    /// after a requeue by Java, which drops it.
    #[must_use]
    pub fn priority(&self) -> Option<i32> {
        names::priority(self.name()).filter(|_| self.about.kind == Kind::Priority)
    }

    /// Returns the time from which on an item of a [`DistributedDelayQueue`](crate::DistributedDelayQueue) was due. It
    /// is 1970 after a requeue by Java, which drops it.
    #[must_use]
    pub fn due(&self) -> Option<SystemTime> {
        (self.about.kind == Kind::Delay).then(|| time_of(names::due(self.name())))
    }

    /// Returns the number that the server has appended to the node's name.
    #[must_use]
    pub fn sequence(&self) -> Option<i32> {
        names::sequence(self.about.kind, self.name())
    }

    /// Returns the time of the put, or of the requeue, by the server's clock.
    #[must_use]
    pub fn created(&self) -> SystemTime {
        time_of(self.about.created)
    }

    /// Returns the number of this delivery of the item, from 1. Deliveries by Java's consumers do not count. It is 1
    /// without a lock path.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.about.attempt
    }

    /// Returns the transaction that put the item: the same in all of its deliveries. Only items of one `put_all` share
    /// it. A requeue by this crate keeps it; one by Java does not.
    #[must_use]
    pub const fn key(&self) -> Zxid {
        Zxid::new(self.about.first_czxid)
    }

    /// Returns `true` until the delivery has ended or is known to be lost. Local, no request.
    #[must_use]
    pub fn is_held(&self) -> bool {
        match &self.hold {
            Hold::AtMostOnce => true,
            Hold::Locked(locked) => locked.hold.is_held(),
        }
    }

    /// Returns how long the delivery is certainly held if the server sends nothing more; zero if it is not held.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        match &self.hold {
            Hold::AtMostOnce => Duration::MAX,
            Hold::Locked(locked) => locked.hold.remaining(),
        }
    }

    /// Resolves with the reason when the delivery is lost: its session has ended, or another client has deleted its
    /// lock. Never resolves if the delivery ends first.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn lost(&self) -> LossReason {
        match &self.hold {
            Hold::AtMostOnce => std::future::pending().await,
            Hold::Locked(locked) => locked.hold.lost().await,
        }
    }

    /// Asks the leader of the ensemble whether the delivery is held: one round trip, and a read.
    ///
    /// # Errors
    ///
    /// * `QueueError::Lost`: another consumer may have the item. Stop the work.
    /// * `QueueError::Ended`: an earlier call has ended the delivery.
    /// * `Error::ConnectionLoss`: no server replied until the retry policy gave up.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn verify(&self) -> Result<(), QueueError> {
        let Hold::Locked(locked) = &self.hold else { return Ok(()) };
        if locked.hold.is_given_up() {
            return Err(QueueError::Ended { path: self.about.path.clone() });
        }
        match locked.hold.verify().await? {
            None => Ok(()),
            Some(reason) => Err(QueueError::Lost { path: self.about.path.clone(), reason }),
        }
    }

    /// Returns the fencing token: the `czxid` of the item's lock, or of its node without a lock path.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        match &self.hold {
            Hold::AtMostOnce => FencingToken::of_node(self.about.czxid),
            Hold::Locked(locked) => locked.hold.token(),
        }
    }

    /// Deletes the item: its work is done. Without a lock path nothing is sent.
    ///
    /// # Errors
    ///
    /// * `QueueError::Lost`: the delivery was lost before. The item is delivered again.
    /// * `QueueError::AlreadyGone`: another client has deleted the item, such as a Java consumer with an ended session.
    /// * `QueueError::Ended`: the delivery was given back, requeued or rejected.
    /// * `Error::NoAuth`: the ACL forbids deleting the item or its lock. Nothing was changed.
    /// * `Error::ConnectionLoss`: the retry policy has given up. Call it again.
    /// * `QueueError::Unknown`: the session ended before the reply. The item may be deleted.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the item may be deleted. Call it again, or drop the delivery.
    pub async fn complete(&self) -> Result<(), QueueError> {
        match &self.hold {
            Hold::AtMostOnce => Ok(()),
            Hold::Locked(locked) => locked.complete(None).await,
        }
    }

    /// Deletes the item like [`complete`](Self::complete), in one transaction with other changes. So these are made
    /// exactly once for each item, however often it is delivered.
    ///
    /// If the reply is lost, a read shows whether the item and its lock exist. If another client deletes the lock in that
    /// moment, by hand or as Java's consumer, and the item goes too, the changes look as if they were made. With a create
    /// that [may replace](curator_framework::CuratorOp::or_replace) a node they do not.
    ///
    /// # Errors
    ///
    /// * `QueueError::Lost`: the delivery was lost before. The item is delivered again.
    /// * `QueueError::AlreadyGone`: another client has deleted the item, such as a Java consumer with an ended session.
    /// * `QueueError::Ended`: the delivery was given back, requeued or rejected.
    /// * `QueueError::AtMostOnce`: the queue has no lock path. Nothing was changed.
    /// * `Error::Transaction`: one of the changes was refused, and nothing was changed. Its index counts the delete of
    ///   the item as 0.
    /// * `Error::NoAuth`: the ACL forbids deleting the item or its lock. `Error::InvalidPath`, `Error::Compression`,
    ///   `Error::SchemaViolation`: a change cannot be sent. Nothing was changed.
    /// * `Error::ConnectionLoss`: the retry policy has given up. Call it again.
    /// * `QueueError::Unknown`: the session ended before the reply. The item may be deleted, and the changes made.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the changes may be made. Call it again with the same transaction.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = curator_test::TestingServer::start()?;
    /// # let retry = curator_framework::RetryOneTime::new(std::time::Duration::from_millis(50));
    /// # let client = curator_framework::CuratorFramework::new_client(server.connect_string(), retry)?;
    /// # client.start()?;
    /// use curator_framework::{CreateMode, CuratorOp};
    /// use curator_recipes::{DistributedQueue, QueueOptions, RawCodec};
    ///
    /// let options = QueueOptions::new().lock_path("/orders-locks");
    /// let orders = DistributedQueue::<String>::with_options(client.clone(), "/orders", RawCodec, options)?;
    /// orders.put(&"order 7".to_owned()).await?;
    /// client.create().for_path("/ledger").await?;
    ///
    /// let mut consumer = orders.consumer();
    /// let delivery = consumer.next().await.ok_or("the client is closed")??;
    /// // One entry for each item, even if it is delivered several times.
    /// let entry = CuratorOp::create("/ledger/entry-").with_mode(CreateMode::PersistentSequential);
    /// let entry = entry.with_data(delivery.items()[0].as_str());
    /// delivery.complete_with(&client.transaction().operation(entry)).await?;
    /// assert_eq!(client.get_children().for_path("/ledger").await?, ["entry-0000000000"]);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn complete_with(&self, transaction: &CuratorTransaction<'_>) -> Result<(), QueueError> {
        self.locked("be completed in a transaction")?.complete(Some(transaction)).await
    }

    /// Gives the item back. It is delivered again in its place. After the last of its
    /// [`max_attempts`](crate::QueueOptions::max_attempts) the next consumer moves it to the dead letters.
    ///
    /// # Errors
    ///
    /// * `QueueError::Ended`: the item was completed, requeued or rejected.
    /// * `QueueError::AtMostOnce`: the queue has no lock path.
    /// * `Error::ConnectionLoss`: the retry policy has given up. Call it again, or drop the delivery.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the delivery is no longer held. Call it again, or drop the delivery.
    pub async fn retry(&self) -> Result<(), QueueError> {
        self.locked("be given back")?.retry().await
    }

    /// Deletes the item and creates it again, in one transaction, with the same id, priority or time. So it is the last
    /// one of them. It keeps its [`attempt`](Self::attempt) and its [`key`](Self::key).
    ///
    /// # Errors
    ///
    /// * `QueueError::Lost`: the delivery was lost before. The item is delivered again.
    /// * `QueueError::AlreadyGone`: another client has deleted the item, such as a Java consumer with an ended session.
    /// * `QueueError::Ended`: the delivery was completed, given back or rejected.
    /// * `QueueError::AtMostOnce`: the queue has no lock path.
    /// * `Error::Transaction`: the server refuses the new node. `Error::NoAuth`: the ACL forbids deleting the item or
    ///   its lock. Nothing was changed.
    /// * `Error::Compression`, `Error::SchemaViolation`: the new node cannot be sent. Nothing was changed.
    /// * `Error::ConnectionLoss`: the retry policy has given up. Call it again.
    /// * `QueueError::Unknown`: the session ended before the reply. The item may be moved.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the item may be moved. Call it again, or drop the delivery.
    pub async fn requeue(&self) -> Result<(), QueueError> {
        self.locked("be requeued")?.requeue().await
    }

    /// Moves the item to the [dead letters](crate::QueueOptions::dead_letters), in one transaction. The node there has
    /// the same bytes; after them it has the number of deliveries and the reason.
    ///
    /// # Errors
    ///
    /// * `QueueError::Lost`: the delivery was lost before. The item is delivered again.
    /// * `QueueError::AlreadyGone`: another client has deleted the item, such as a Java consumer with an ended session.
    /// * `QueueError::Ended`: the delivery was completed, given back or requeued.
    /// * `QueueError::AtMostOnce`: the queue has no lock path.
    /// * `Error::Transaction`, `Error::NoAuth`: the server refuses the dead letter, or the creation of the path of the
    ///   dead letters. Nothing was changed.
    /// * `Error::Compression`, `Error::SchemaViolation`: the dead letter cannot be sent. Nothing was changed.
    /// * `Error::ConnectionLoss`: the retry policy has given up. Call it again.
    /// * `QueueError::Unknown`: the session ended before the reply. The item may be moved.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the item may be moved. Call it again, or drop the delivery.
    pub async fn reject(&self, reason: &str) -> Result<(), QueueError> {
        self.locked("be rejected")?.reject(reason).await
    }

    /// Gives the item back like [`retry`](Self::retry), and returns whether the delivery was held until now. Returns
    /// `Release::Released` after the delivery was completed. Without a lock path nothing is sent.
    ///
    /// # Errors
    ///
    /// `Error::ConnectionLoss`: the retry policy has given up. Call it again, or drop the delivery.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the delivery is no longer held. Call it again, or drop the delivery.
    pub async fn release(&self) -> Result<Release, QueueError> {
        match &self.hold {
            Hold::AtMostOnce => Ok(Release::Released),
            Hold::Locked(locked) => locked.give_back().await,
        }
    }

    fn locked(&self, request: &'static str) -> Result<&Locked, QueueError> {
        match &self.hold {
            Hold::AtMostOnce => Err(QueueError::AtMostOnce { path: self.about.path.clone(), request }),
            Hold::Locked(locked) => Ok(locked),
        }
    }
}

impl_held!(Delivery<T>, QueueError, [T: Send + Sync]);

impl<T> fmt::Debug for Delivery<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("path", &self.about.path)
            .field("items", &self.items.len())
            .field("attempt", &self.about.attempt)
            .field("is_held", &self.is_held())
            .finish_non_exhaustive()
    }
}

//! The public queues.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use curator_framework::CuratorFramework;

use crate::codec::Codec;
use crate::queues::consumer::QueueConsumer;
use crate::queues::error::QueueError;
use crate::queues::names::{self, Kind};
use crate::queues::options::QueueOptions;
use crate::queues::put::NewNode;
use crate::queues::queued::QueuedItem;
use crate::queues::shared::{Shared, millis_of};

/// Defines a queue, with what all of them have.
macro_rules! queue {
    ($name:ident, $kind:expr, $(#[$doc:meta])*) => {
        $(#[$doc])*
        pub struct $name<T> {
            shared: Arc<Shared<T>>,
        }

        impl<T> $name<T> {
            /// Creates an object for the queue at a path, without a request.
            ///
            /// # Errors
            ///
            /// * `QueueError::InvalidArgument`: the options have neither a lock path nor `at_most_once`, or both; the
            ///   lock path is inside of the queue's; a limit is 0; the path is the root.
            /// * `Error::Unsupported`: a lock path over `zookeeper-async`, which has no transactions.
            /// * `Error::InvalidPath`: ZooKeeper does not allow a path.
            pub fn with_options(
                client: CuratorFramework,
                path: impl Into<String>,
                codec: impl Codec<T>,
                options: QueueOptions,
            ) -> Result<Self, QueueError> {
                let shared = Shared::new(client, path.into(), $kind, Arc::new(codec), options)?;
                Ok(Self { shared: Arc::new(shared) })
            }

            /// Returns the queue's path.
            #[must_use]
            pub fn path(&self) -> &str {
                &self.shared.path
            }

            /// Returns the number of children of the queue's path: items, those in work included, and foreign nodes. One
            /// request. A path that does not exist has none.
            ///
            /// # Errors
            ///
            /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up.
            /// * `Error::NoAuth`: the ACL of the path forbids reading it.
            /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
            ///
            /// # Cancel safety
            ///
            /// Nothing is lost when the future is dropped.
            pub async fn len(&self) -> Result<u64, QueueError> {
                self.shared.len().await
            }

            /// Returns whether the queue's path has no children. One request.
            ///
            /// # Errors
            ///
            /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up.
            /// * `Error::NoAuth`: the ACL of the path forbids reading it.
            /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
            ///
            /// # Cancel safety
            ///
            /// Nothing is lost when the future is dropped.
            pub async fn is_empty(&self) -> Result<bool, QueueError> {
                Ok(self.len().await? == 0)
            }
        }

        impl<T: 'static> $name<T> {
            /// Returns the first items, at most `count`, in the order of the queue, and takes none. Items in work and items
            /// that are not due yet are among them. It returns fewer if other clients take some in the meantime.
            ///
            /// It costs one listing of the path, and one read for 16 items.
            ///
            /// # Errors
            ///
            /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up.
            /// * `QueueError::Refused`: an item cannot be read. `Error::NoAuth`, `Error::ReplyTooLarge`: the path cannot be
            ///   listed.
            /// * `Error::NotStarted`, `Error::Closed`.
            ///
            /// # Cancel safety
            ///
            /// Nothing is lost when the future is dropped.
            pub async fn peek(&self, count: usize) -> Result<Vec<QueuedItem<T>>, QueueError> {
                self.shared.peek(count).await
            }

            /// Removes all items, and returns their number. An item in the hands of a consumer with a lock path stays, and so
            /// do foreign nodes and the path. Items that are put in the meantime may stay.
            ///
            /// It costs one listing of the path, and one transaction for 64 items. Over `zookeeper-async` it is one request
            /// for each item.
            ///
            /// # Errors
            ///
            /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up. Some items may be removed.
            /// * `Error::NoAuth`, `Error::ReplyTooLarge`: the path cannot be listed, or an item not be deleted.
            /// * `Error::NotStarted`, `Error::Closed`.
            ///
            /// # Cancel safety
            ///
            /// When the future is dropped, some items may be removed.
            pub async fn purge(&self) -> Result<u64, QueueError> {
                self.shared.remove_all(&self.shared.path, |_| true).await
            }

            /// Returns the first [dead letters](QueueOptions::dead_letters), at most `count`, in the order of the queue. Moves
            /// none. Each has the reason of its rejection. Its data may be corrupt, as in [`peek`](Self::peek).
            ///
            /// It costs one listing of the path of the dead letters, and one read for 16 of them.
            ///
            /// # Errors
            ///
            /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up.
            /// * `QueueError::Refused`: a dead letter cannot be read. `Error::NoAuth`, `Error::ReplyTooLarge`: the path
            ///   of the dead letters cannot be listed.
            /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
            ///
            /// # Cancel safety
            ///
            /// Nothing is lost when the future is dropped.
            pub async fn dead_letters(&self, count: usize) -> Result<Vec<QueuedItem<T>>, QueueError> {
                self.shared.dead_letters(count).await
            }

            /// Moves the dead letter of this name back to the queue, in one transaction. Returns `false` if it does not
            /// exist.
            ///
            /// The item keeps its id, priority or time, and comes last among these. It keeps its
            /// [`key`](crate::Delivery::key) too, and has a new count of deliveries. The codec is not asked. The move
            /// does not wait for room below [`max_items`](QueueOptions::max_items).
            ///
            /// A lost reply does not put the item twice. If this client may not create a child of the path's parent, a
            /// letter that no longer exists after a lost reply counts as moved by this call.
            ///
            /// It costs one read and one transaction.
            ///
            /// # Errors
            ///
            /// * `QueueError::Foreign`: the name is not an item's. `QueueError::Corrupt`: the data is not an item's.
            /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up, or the session ended
            ///   before the reply. If [`outcome_unknown`](QueueError::outcome_unknown), the item may be in the queue.
            ///   Call again.
            /// * `Error::NoNode`: the queue's path does not exist.
            /// * `Error::BadVersion`: another client has written the dead letter in that moment.
            /// * `Error::Unsupported`: `zookeeper-async` has no transactions.
            /// * `Error::NoAuth`, `Error::SchemaViolation`, `Error::RequestTooLarge`: the dead letter cannot be read or
            ///   deleted, or the item cannot be created.
            /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
            ///
            /// # Cancel safety
            ///
            /// When the future is dropped, the item may be in the queue. Call it again.
            pub async fn retry_dead(&self, name: &str) -> Result<bool, QueueError> {
                self.shared.retry_dead(name).await
            }

            /// Deletes all dead letters, and returns their number. Nodes with other names stay, and so does the path.
            ///
            /// It costs one listing of the path of the dead letters, and one transaction for 64 of them. Over
            /// `zookeeper-async` it is one request for each.
            ///
            /// # Errors
            ///
            /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up. Some dead letters may be
            ///   deleted.
            /// * `Error::NoAuth`, `Error::ReplyTooLarge`: the path of the dead letters cannot be listed, or one not be
            ///   deleted.
            /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
            ///
            /// # Cancel safety
            ///
            /// When the future is dropped, some dead letters may be deleted.
            pub async fn purge_dead(&self) -> Result<u64, QueueError> {
                self.shared.remove_all(&self.shared.options.dead_letters, |_| true).await
            }
        }

        impl<T: Send + Sync + 'static> $name<T> {
            /// Creates a consumer, without a request. Each call creates another one, a rival of the others.
            pub fn consumer(&self) -> QueueConsumer<T> {
                QueueConsumer::new(Arc::clone(&self.shared))
            }
        }

        impl<T> Clone for $name<T> {
            fn clone(&self) -> Self {
                Self { shared: Arc::clone(&self.shared) }
            }
        }

        impl<T> fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).field("path", &self.path()).finish_non_exhaustive()
            }
        }
    };
}

queue! {
    DistributedQueue, Kind::Plain,
    #[doc(alias = "buildQueue")]
    /// A queue in the order of the puts: Curator's `DistributedQueue`, on the same paths and with the same bytes.
    ///
    /// With a [lock path](QueueOptions::lock_path) each item is delivered at least once, and its effects in ZooKeeper
    /// are made [exactly once](crate::Delivery::complete_with). With [`at_most_once`](QueueOptions::at_most_once),
    /// Curator's default, a crash loses the item that is being worked on. The type has no `new`: each queue needs one
    /// of the two.
    ///
    /// [Clones](crate#handles) are cheap, and all clones are one object. They keep the client open. A queue object sends
    /// nothing by itself.
    ///
    /// # At most once
    ///
    /// A lost reply to the delete of an item does not lose the item: the next read shows whether this consumer has
    /// deleted it. If another consumer deletes the same item within that round trip, both deliver it.
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
    /// use curator_recipes::{DistributedQueue, QueueOptions, RawCodec};
    ///
    /// let options = QueueOptions::new().lock_path("/jobs-locks").max_attempts(5);
    /// let jobs = DistributedQueue::<String>::with_options(client, "/jobs", RawCodec, options)?;
    /// jobs.put(&"first".to_owned()).await?;
    /// // Two items in one transaction: both, or none.
    /// jobs.put_all(&["second".to_owned(), "third".to_owned()]).await?;
    ///
    /// let mut consumer = jobs.consumer();
    /// if let Some(delivery) = consumer.next().await {
    ///     let delivery = delivery?;
    ///     assert_eq!(delivery.items(), ["first"]);
    ///     delivery.complete().await?;
    /// }
    /// assert_eq!(jobs.len().await?, 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Differences from Curator
    ///
    /// * Delivery at most once is not the default: each queue has a lock path or `at_most_once`.
    /// * A queue has no start and no close. A put returns once the server has the item, and fails with an error.
    ///   Curator's puts run in the background, and report no failure.
    /// * A lost reply does not double, lose or block an item.
    /// * A delivery reports its loss, and a lost delivery changes nothing. A Java consumer with an ended session
    ///   deletes the item, and the lock of the next consumer.
    /// * A failed item is delivered again in its place or at the end, or becomes a dead letter. Deliveries are counted.
    ///   Curator moves it to the end again and again, or deletes it.
    /// * A corrupt item is reported, and stays. Curator deletes it.
    /// * A consumer lists the path once a session, and follows the locks of the items that it has skipped. Curator
    ///   lists for each item, and an item of a dead consumer may wait for the next put.
    /// * `len` asks the server. Curator's `getLastMessageCount` is always 0.
    ///
    /// # Permissions
    ///
    /// | call | permissions |
    /// | --- | --- |
    /// | a put | to create children of the queue's path and of its parent, for the marker. Without the second one a lost reply may put an item twice |
    /// | `len`; with `max_items` a put | to read the queue's path |
    /// | a consumer | to read the queue's path and the items, and to delete children of the path. At most once also to create children of its parent, for the marker: without it a lost reply may deliver an item twice |
    /// | with a lock path | also to write the items, and to list, create and delete children of the lock path |
    /// | `retry`, `release`, drop | to create children of the queue's path. Without it the item is given back, and Java's consumers learn of it at the next put |
    /// | `requeue`, `reject` | to create children of the queue's path, of the path of the dead letters |
    /// | `dead_letters`, `retry_dead`, `purge_dead` | to read the path of the dead letters and its children, and to delete these; `retry_dead` also has the permissions of a put |
    ///
    /// The items have the client's default access control list, so it has to let the consumers write them.
    ///
    /// # ZooKeeper layout
    ///
    /// | node | kind | contents |
    /// | --- | --- | --- |
    /// | `<path>/queue-<number>` | persistent | the items: version, for each its length and bytes, end mark; after a requeue also the number of deliveries and the first transaction, which Java ignores |
    /// | `<lock path>/<name of the item>` | ephemeral | the token of the claim |
    /// | `<dead letters>/queue-<number>` | persistent | the item, the number of deliveries, the reason |
    /// | `_c_<uuid>-<name>-marker`, beside the queue's path | ephemeral | proves after a lost reply whether a put, or the delete of an item, was applied |
    ///
    /// The queue's path, the lock path and the dead letters are persistent. Their missing parents are containers.
    ///
    /// # Cost
    ///
    /// | call | requests |
    /// | --- | --- |
    /// | a put | 1 transaction: a create, and a write of the marker; over `zookeeper-async` 1 create |
    /// | with `max_items` | 1 read more; a put that waits lists the path at each change |
    /// | `retry_dead` | 1 read, and 1 transaction |
    /// | [a consumer](QueueConsumer#cost) | 1 for each item, 2 with a lock, and 1 read for 16 items; a fraction in [batches](QueueOptions::batch) |
}

queue! {
    DistributedIdQueue, Kind::Id,
    #[doc(alias = "buildIdQueue")]
    /// A queue in the order of the puts, with an id for each item: Curator's `DistributedIdQueue`. An id need not be
    /// unique. Otherwise it behaves like a [`DistributedQueue`].
    ///
    /// A node is named `queue-|<id>|<number>`. In an id `/` and `|` become `_`. A path with `|` is refused.
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
    /// use curator_recipes::{DistributedIdQueue, QueueOptions, RawCodec};
    ///
    /// let options = QueueOptions::new().lock_path("/orders-locks");
    /// let orders = DistributedIdQueue::<String>::with_options(client, "/orders", RawCodec, options)?;
    /// orders.put(&"paid".to_owned(), "order 7").await?;
    /// orders.put_all([(&"paid".to_owned(), "order 8"), (&"sent".to_owned(), "order 8")]).await?;
    /// assert_eq!(orders.remove("order 8").await?, 2);
    /// let delivery = orders.consumer().next().await.ok_or("the client is closed")??;
    /// assert_eq!(delivery.id(), Some("order 7"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Differences from Curator
    ///
    /// * [`remove`](Self::remove) takes an id as `put` does. Curator's finds no id with `/` or `|`.
    /// * `put_batch` and `put_all` are additions, and so is the id of a delivery.
    /// * The [differences](DistributedQueue#differences-from-curator) of a `DistributedQueue`.
}

queue! {
    DistributedPriorityQueue, Kind::Priority,
    #[doc(alias = "buildPriorityQueue")]
    /// A queue in the order of priorities, a lower number first: Curator's `DistributedPriorityQueue`. Items of one
    /// priority have the order of their puts. Otherwise it behaves like a [`DistributedQueue`].
    ///
    /// A consumer learns of an urgent item at once. It is delivered next. Over `zookeeper-async` up to 16 known
    /// items are delivered before it. A node is named `queue-<sign and 8 hexadecimal digits><number>`.
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
    /// use curator_recipes::{DistributedPriorityQueue, QueueOptions, RawCodec};
    ///
    /// let options = QueueOptions::new().lock_path("/mails-locks");
    /// let mails = DistributedPriorityQueue::<String>::with_options(client, "/mails", RawCodec, options)?;
    /// mails.put(&"newsletter".to_owned(), 10).await?;
    /// mails.put_all([(&"password".to_owned(), -1), (&"receipt".to_owned(), 5)]).await?;
    /// let delivery = mails.consumer().next().await.ok_or("the client is closed")??;
    /// assert_eq!((delivery.items(), delivery.priority()), (&["password".to_owned()][..], Some(-1)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Differences from Curator
    ///
    /// * An urgent item is the next one. Curator's waits until the consumer has worked through its listing, or through
    ///   `minItemsBeforeRefresh` items.
    /// * [`requeue`](crate::Delivery::requeue) keeps the priority. Curator's drops it.
    /// * The [differences](DistributedQueue#differences-from-curator) of a `DistributedQueue`.
}

queue! {
    DistributedDelayQueue, Kind::Delay,
    #[doc(alias = "buildDelayQueue")]
    /// A queue of items that are delivered no earlier than a given time: Curator's `DistributedDelayQueue`. Items of one time
    /// have the order of their puts. Otherwise it behaves like a [`DistributedQueue`].
    ///
    /// A consumer compares the time with its machine's clock, which may be ahead of a producer's. Times are whole
    /// milliseconds. A node is named `queue-|<milliseconds after 1970, hexadecimal>|<number>`.
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
    /// use std::time::{Duration, SystemTime};
    /// use curator_recipes::{DistributedDelayQueue, QueueOptions, RawCodec};
    ///
    /// let options = QueueOptions::new().lock_path("/reminders-locks");
    /// let reminders = DistributedDelayQueue::<String>::with_options(client, "/reminders", RawCodec, options)?;
    /// let now = SystemTime::now();
    /// reminders.put(&"tomorrow".to_owned(), now + Duration::from_secs(86_400)).await?;
    /// reminders.put_all([(&"second".to_owned(), now), (&"third".to_owned(), now)]).await?;
    /// let delivery = reminders.consumer().next().await.ok_or("the client is closed")??;
    /// assert_eq!(delivery.items(), ["second"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Differences from Curator
    ///
    /// * Items of one time have the order of their puts. Curator's have any order.
    /// * [`requeue`](crate::Delivery::requeue) keeps the time. Curator's drops it, so the item is due at once.
    /// * A time is a `SystemTime`, in place of milliseconds after 1970.
    /// * The [differences](DistributedQueue#differences-from-curator) of a `DistributedQueue`.
}

/// Defines the puts of a queue, for items with more arguments.
macro_rules! puts {
    (
        $name:ident, $($argument:ident: $type:ty,)? $what:literal, $prefix:expr,
        all($entry:ty, $pattern:pat, $item:ident)
    ) => {
        impl<T: 'static> $name<T> {
            #[doc = concat!("Puts an item", $what, ". Returns once the server has it.")]
            ///
            /// A lost reply does not put it twice. There are three exceptions. A client over `zookeeper-async` has no
            /// transactions. The ACL may forbid creating nodes beside the queue's path, or the session have reached the
            /// limit of ephemeral nodes. And the marker may be deleted by hand in that moment.
            ///
            /// # Errors
            ///
            /// * `QueueError::Encode`: the codec has refused the item.
            /// * `QueueError::InvalidArgument`: an empty id, or a time before 1970.
            /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up, or the session ended before
            ///   the reply. If [`outcome_unknown`](QueueError::outcome_unknown), the item may be in the queue.
            /// * `Error::NoAuth`, `Error::SchemaViolation`, `Error::RequestTooLarge`: the node cannot be created.
            /// * `Error::NotStarted`, `Error::Closed`.
            ///
            /// # Cancel safety
            ///
            /// When the future is dropped, the item may be in the queue.
            pub async fn put(&self, item: &T $(, $argument: $type)?) -> Result<(), QueueError> {
                let name: String = $prefix?;
                let nodes = vec![NewNode { name, data: self.shared.encode([item])? }];
                self.shared.put(nodes).await
            }

            /// Puts an item like [`put`](Self::put), for at most `budget`: the wait for room below
            /// [`max_items`](QueueOptions::max_items) and the put itself. Returns `Ok(None)` if the budget ends before the
            /// request was sent, while the client is connected: the item was not put.
            ///
            /// # Errors
            ///
            /// * `Error::ConnectionLoss`: the budget has ended without a connection, or without a reply. If
            ///   [`outcome_unknown`](QueueError::outcome_unknown), the item may be in the queue.
            /// * `QueueError::Encode`: the codec has refused the item.
            /// * `QueueError::InvalidArgument`: an empty id, or a time before 1970.
            /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up, or the session ended
            ///   before the reply. If `outcome_unknown`, the item may be in the queue.
            /// * `Error::NoAuth`, `Error::SchemaViolation`, `Error::RequestTooLarge`: the node cannot be created.
            /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
            ///
            /// # Cancel safety
            ///
            /// When the future is dropped, the item may be in the queue.
            pub async fn put_timeout(
                &self,
                item: &T,
                $($argument: $type,)?
                budget: Duration,
            ) -> Result<Option<()>, QueueError> {
                let name: String = $prefix?;
                let nodes = vec![NewNode { name, data: self.shared.encode([item])? }];
                self.shared.put_timeout(nodes, budget).await
            }

            #[doc = concat!("Puts items", $what, " as one node, in one request: Curator's `putMulti`. A consumer gets them as one delivery.")]
            /// Without items nothing is put.
            ///
            /// # Errors
            ///
            /// * `QueueError::Encode`: the codec has refused an item.
            /// * `QueueError::InvalidArgument`: an empty id, or a time before 1970.
            /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up, or the session ended
            ///   before the reply. If [`outcome_unknown`](QueueError::outcome_unknown), the items may be in the queue.
            /// * `Error::NoAuth`, `Error::SchemaViolation`, `Error::RequestTooLarge`: the node cannot be created.
            /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
            ///
            /// # Cancel safety
            ///
            /// When the future is dropped, the items may be in the queue.
            #[doc(alias = "putMulti")]
            pub async fn put_batch<'a>(
                &self,
                items: impl IntoIterator<Item = &'a T>
                $(, $argument: $type)?
            ) -> Result<(), QueueError> {
                let name: String = $prefix?;
                let mut items = items.into_iter().peekable();
                if items.peek().is_none() {
                    return Ok(());
                }
                let nodes = vec![NewNode { name, data: self.shared.encode(items)? }];
                self.shared.put(nodes).await
            }

            #[doc = concat!("Puts items", $what, " as one node each, in one transaction: all of them, or none.")]
            ///
            /// # Errors
            ///
            /// * `QueueError::Encode`: the codec has refused an item.
            /// * `QueueError::InvalidArgument`: an empty id, a time before 1970, or more items than
            ///   [`max_items`](QueueOptions::max_items).
            /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up, or the session ended
            ///   before the reply. If [`outcome_unknown`](QueueError::outcome_unknown), the items may be in the queue:
            ///   all of them, or none.
            /// * `Error::NoAuth`, `Error::SchemaViolation`, `Error::RequestTooLarge`: the nodes cannot be created.
            /// * `Error::Unsupported`: more than one item over `zookeeper-async`.
            /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
            ///
            /// # Cancel safety
            ///
            /// When the future is dropped, the items may be in the queue.
            pub async fn put_all<'a>(&self, items: impl IntoIterator<Item = $entry>) -> Result<(), QueueError> {
                let node = |$pattern: $entry| Ok(NewNode { name: $prefix?, data: self.shared.encode([$item])? });
                let nodes = items.into_iter().map(node).collect::<Result<Vec<_>, QueueError>>()?;
                self.shared.put(nodes).await
            }
        }
    };
}

puts!(DistributedQueue, "", name_of_plain(), all(&'a T, item, item));
puts!(
    DistributedPriorityQueue, priority: i32, " with a priority", name_of_priority(priority),
    all((&'a T, i32), (item, priority), item)
);
puts!(
    DistributedDelayQueue, due: SystemTime, " for delivery from a time on", name_of_due(due),
    all((&'a T, SystemTime), (item, due), item)
);
puts!(DistributedIdQueue, id: &str, " with an id", name_of_id(id), all((&'a T, &'a str), (item, id), item));

impl<T> DistributedIdQueue<T> {
    /// Removes the items with an id, and returns their number. An item in the hands of a consumer with a lock path is not
    /// removed. `/` and `|` in the id count as `_`.
    ///
    /// It costs one listing of the path, and one transaction for 64 items with the id.
    ///
    /// # Errors
    ///
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up. Some items may be removed.
    /// * `Error::NoAuth`, `Error::ReplyTooLarge`: the path cannot be listed, or an item not be deleted.
    /// * `Error::NotStarted`, `Error::Closed`.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, some items may be removed.
    pub async fn remove(&self, id: &str) -> Result<u64, QueueError> {
        self.shared.remove(id).await
    }
}

#[allow(clippy::unnecessary_wraps, reason = "as the names that may be refused")]
fn name_of_plain() -> Result<String, QueueError> {
    Ok(names::PREFIX.to_owned())
}

#[allow(clippy::unnecessary_wraps, reason = "as the names that may be refused")]
fn name_of_priority(priority: i32) -> Result<String, QueueError> {
    Ok(names::of_priority(priority))
}

fn name_of_due(due: SystemTime) -> Result<String, QueueError> {
    // Rounded up: an item is never early.
    let whole = due.checked_add(Duration::from_nanos(999_999)).unwrap_or(due);
    match millis_of(whole) {
        0 => Err(QueueError::invalid("due", "it must be after 1970")),
        millis => Ok(names::of_due(millis)),
    }
}

fn name_of_id(id: &str) -> Result<String, QueueError> {
    match id {
        "" => Err(QueueError::invalid("id", "it is empty")),
        id => Ok(names::of_id(id)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn due_time_is_rounded_up() {
        for (nanos, millis) in [(7_000_000, 7), (7_000_001, 8), (7_999_999, 8), (1, 1)] {
            assert_eq!(name_of_due(UNIX_EPOCH + Duration::from_nanos(nanos)).unwrap(), names::of_due(millis));
        }
        assert!(matches!(name_of_due(UNIX_EPOCH), Err(QueueError::InvalidArgument { .. })));
    }
}

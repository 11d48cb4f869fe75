//! The options of queues.

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{CuratorFramework, validate_path};

use crate::queues::error::QueueError;

/// The limit of items in one batch.
const MOST_IN_BATCH: u32 = 256;

/// The options of a queue: Curator's `QueueBuilder`. Set a [lock path](Self::lock_path) or
/// [`at_most_once`](Self::at_most_once).
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
/// let options = QueueOptions::new().lock_path("/jobs-locks");
/// let jobs = DistributedQueue::<String>::with_options(client, "/jobs", RawCodec, options)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "options do nothing by themselves"]
#[doc(alias = "QueueBuilder")]
pub struct QueueOptions {
    lock_path: Option<String>,
    at_most_once: bool,
    max_items: Option<u32>,
    max_attempts: Option<u32>,
    dead_letters: Option<String>,
    batch: Option<u32>,
}

impl QueueOptions {
    /// Returns options without a lock path and without limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the path of the locks: each item is delivered at least once. A consumer holds the lock of an item while it
    /// works on it, and the item is deleted when the delivery is completed.
    ///
    /// All consumers of a queue, including Java's, must have the same lock path. A consumer without it takes items
    /// that others work on. The path must not be the queue's.
    #[doc(alias = "lockPath")]
    pub fn lock_path(mut self, path: impl Into<String>) -> Self {
        self.lock_path = Some(path.into());
        self
    }

    /// Delivers each item at most once: its node is deleted before the delivery. A crash after that loses the item. A lost
    /// reply does not, unless the session ends before the next reply: then the consumer reports `QueueError::Unknown`. This is
    /// Curator's default. All consumers of the queue must be without a lock path.
    ///
    /// Three cases have no proof of a delete. A client over `zookeeper-async` has no transactions. This client may not be
    /// allowed to create a child of the path's parent. And its session may have reached the limit of ephemeral nodes. There
    /// an item that is gone after a lost reply counts as taken by this consumer. If another one has taken it in the
    /// meantime, both deliver it.
    pub fn at_most_once(mut self) -> Self {
        self.at_most_once = true;
        self
    }

    /// Sets the number of items above which a put waits. Default: no limit.
    ///
    /// The limit is soft. Puts of one queue object count one after the other, so it never exceeds the limit by itself.
    /// Several objects, in any processes, may exceed it by one put each. Children that are not items count.
    #[doc(alias = "maxItems")]
    pub fn max_items(mut self, limit: u32) -> Self {
        self.max_items = Some(limit);
        self
    }

    /// Sets how often an item is delivered. If the last delivery does not complete it, even by a crash, the next consumer
    /// moves it to the [dead letters](Self::dead_letters). Needs a lock path. A consumer that ends between its claim and the
    /// delivery counts too. Deliveries by Java's consumers do not count. Default: no limit.
    pub fn max_attempts(mut self, limit: u32) -> Self {
        self.max_attempts = Some(limit);
        self
    }

    /// Sets the path that gets the items which are [rejected](crate::Delivery::reject). Default: the queue's path with
    /// `-dead` after it.
    ///
    /// [`dead_letters`](crate::DistributedQueue::dead_letters) reads them,
    /// [`retry_dead`](crate::DistributedQueue::retry_dead) moves one back, and
    /// [`purge_dead`](crate::DistributedQueue::purge_dead) deletes them.
    pub fn dead_letters(mut self, path: impl Into<String>) -> Self {
        self.dead_letters = Some(path.into());
        self
    }

    /// Sets how many items a consumer takes at once, in one transaction. Completions of several deliveries that are called at
    /// the same time are one transaction too. Each delivery still has its own outcome. Default: 1, the limit is 256.
    ///
    /// A consumer then has up to this number of items that were not asked for. With a lock path they are given back when it
    /// is dropped, and other consumers skip them until then. With [`at_most_once`](Self::at_most_once) they are lost. Over
    /// `zookeeper-async`, which has no transactions, it is one request for each item.
    ///
    /// A completion waits for the reply to the one before it, and for at most one further round trip. So set it where
    /// requests are scarce and many items are in work at a time, as in [`run`](crate::QueueConsumer::run).
    pub fn batch(mut self, items: u32) -> Self {
        self.batch = Some(items);
        self
    }

    /// Checks the options for the queue at a path.
    pub(super) fn check(self, client: &CuratorFramework, path: &str) -> Result<Checked, QueueError> {
        validate_path(path)?;
        if path == "/" {
            return Err(QueueError::invalid("path", "it cannot be the root"));
        }
        let Self { lock_path, at_most_once, max_items, max_attempts, dead_letters, batch } = self;
        let mode = match (lock_path, at_most_once) {
            (Some(lock_path), false) => Mode::Locked { lock_path },
            (None, true) => Mode::AtMostOnce,
            (None, false) => {
                let reason = "set lock_path(…) for delivery at least once, or at_most_once()";
                return Err(QueueError::invalid("options", reason));
            }
            (Some(_), true) => {
                let reason = "lock_path(…) and at_most_once() exclude each other: all consumers must use the same one";
                return Err(QueueError::invalid("options", reason));
            }
        };
        if max_items == Some(0) {
            return Err(QueueError::invalid("max_items", "it must be at least 1"));
        }
        let batch = batch.unwrap_or(1);
        if !(1..=MOST_IN_BATCH).contains(&batch) {
            let reason = format!("it must be at least 1 and at most {MOST_IN_BATCH}, for the queue {path}");
            return Err(QueueError::invalid("batch", reason));
        }
        if max_attempts == Some(0) {
            return Err(QueueError::invalid("max_attempts", "it must be at least 1"));
        }
        if matches!(mode, Mode::AtMostOnce) && (max_attempts.is_some() || dead_letters.is_some()) {
            let reason = "they need lock_path(…): with at_most_once() no item is given back";
            return Err(QueueError::invalid("max_attempts or dead_letters", reason));
        }
        let dead_letters = dead_letters.unwrap_or_else(|| format!("{path}-dead"));
        if let Mode::Locked { lock_path } = &mode {
            let inside = |other: &str| other == path || other.starts_with(&format!("{path}/"));
            for (argument, other) in [("lock_path", &**lock_path), ("dead_letters", &*dead_letters)] {
                validate_path(other)?;
                if other == "/" || inside(other) {
                    return Err(QueueError::invalid(
                        argument,
                        "it must be outside of the queue's path, and not the root",
                    ));
                }
            }
            if dead_letters == *lock_path {
                return Err(QueueError::invalid("dead_letters", "it must not be the lock path"));
            }
            client.check_transactions(&format!("consume the queue {path} with a lock path"))?;
        }
        Ok(Checked { mode, max_items, max_attempts, dead_letters, batch: batch as usize })
    }
}

/// Options that were checked.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) mode: Mode,
    pub(super) max_items: Option<u32>,
    pub(super) max_attempts: Option<u32>,
    pub(super) dead_letters: String,
    /// The number of items that are taken at once.
    pub(super) batch: usize,
}

/// The number of deliveries of an item.
#[derive(Debug)]
pub(super) enum Mode {
    AtMostOnce,
    /// At least once.
    Locked {
        lock_path: String,
    },
}

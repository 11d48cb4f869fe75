//! Counters: numbers that many processes change.

use std::fmt;
use std::sync::Arc;

use curator_framework::{CuratorFramework, RetryPolicy};

use crate::content::AtomicNumber;
use crate::counters::change::{AtomicChange, Compared};
use crate::counters::effect::Change;
use crate::counters::error::CounterError;
use crate::counters::options::CounterOptions;
use crate::counters::state::Counter;

/// A counter of 64 bits: Curator's `DistributedAtomicLong`.
pub type DistributedAtomicLong = DistributedAtomicNumber<i64>;
/// A counter of 32 bits: Curator's `DistributedAtomicInteger`. A [`SharedCount`](crate::SharedCount) has the same node.
pub type DistributedAtomicInteger = DistributedAtomicNumber<i32>;

/// A number that many processes change, and no change counts twice: Curator's [`DistributedAtomicLong`] and
/// [`DistributedAtomicInteger`].
///
/// Within one process, `std::sync::atomic::AtomicI64` does the same without a server. Clones share one queue: one
/// write carries the changes of all tasks that wait, and each task gets the values before and after its own
/// change. A counter needs no start. Its client needs the permissions to read and write the node, and to create and
/// delete children of it.
///
/// One of the callers that wait sends the requests of all. So poll the future of a change until it ends, or drop it. A
/// future that is kept without being polled holds up the other changes of the object and its clones, and `release_marker`.
///
/// # Lost replies
///
/// | event during a change | default client | `zookeeper-async` |
/// | --- | --- | --- |
/// | the request, or its reply, is lost | applied once, with the right values; `initialize`, `try_set` and `force_set` of a missing node: perhaps `outcome_unknown` | applied once, or [`outcome_unknown`](crate::CounterError::outcome_unknown) |
/// | the session ends, too | applied once, or `outcome_unknown` | the same |
/// | an administrator deletes the marker, too | applied once, or `outcome_unknown` | – |
/// | the node is deleted, and created again with the same version, too | `outcome_unknown` | the new node may get the value |
/// | the caller drops the future | applied once or not at all; other changes continue, but if the node was missing, others in its write may get `outcome_unknown` | the same, but others in its write may get `outcome_unknown` |
///
/// A write that may have been applied is only repeated with the same condition, never computed again. So a change never
/// counts twice. (Curator's may count twice after a lost reply, and report success.)
///
/// # Contention
///
/// The server refuses a write if another session has changed the number since it was read. Under contention sessions
/// take turns: one of them writes at full speed while the others pause for up to 0.3 s. A session that writes now and
/// then does not pause.
///
/// The retry policy of the constructor limits the tries. A refused try uses one of its retries, and starts the policy's
/// pause; tries within that pause use none. When the policy gives up, the call fails with
/// [`CounterError::Contended`](crate::CounterError::Contended), or continues
/// [under a lock](CounterOptions::promoted_to_lock). The client's own policy decides on lost connections.
///
/// For ids that only have to be unique use [`UniqueIds`](crate::UniqueIds), which have no contention.
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
/// use std::time::Duration;
/// use curator_framework::RetryNTimes;
/// use curator_recipes::DistributedAtomicLong;
///
/// // How often to try while other clients change the number.
/// let retry = RetryNTimes::new(100, Duration::from_millis(10));
/// let orders = DistributedAtomicLong::new(client, "/orders/count", retry)?;
/// match orders.increment().await {
///     Ok(change) => println!("order {}", change.post_value),
///     Err(error) if error.outcome_unknown() => println!("counted once, or not at all"),
///     Err(error) => return Err(error.into()), // not counted
/// }
/// println!("{} orders", orders.get().await?);
/// orders.release_marker().await; // see the layout
/// # Ok(())
/// # }
/// ```
///
/// # Differences from Curator
///
/// * A change that was not made is an error. Curator returns a result that did not succeed, with the value 0.
/// * An overflow is an error, and so is data of another length than the number's. Curator's numbers wrap around, and
///   ignore the end of longer data.
/// * `compare_and_set` tries again until the value is set, or differs from the expected one.
/// * A version of −1 is refused, because ZooKeeper takes it for any version.
/// * A change needs the permission to create children of the node, which cannot be ephemeral: see the layout.
///
/// # ZooKeeper layout
///
/// | node | mode | data |
/// | --- | --- | --- |
/// | `<path>` | persistent | the number in 8 or 4 bytes, big-endian, as in Curator; empty data is 0 |
/// | `<path>/_c_<uuid>-count` | ephemeral | the number of the newest write of one object in one session |
///
/// Missing parents are created as containers. A missing node is 0; its first addition creates it as 0. Do not create the
/// node as a container: the server deletes that, and the number with it, some time after its last marker.
///
/// The second node is the marker, which Curator does not have: it proves after a lost reply whether a write was applied.
/// So the node has children while counters are in use. With `zookeeper-async` a counter creates no marker.
///
/// # Cost
///
/// | case | requests |
/// | --- | --- |
/// | change | 1 |
/// | first change of an object | 3 more: a read; the create of the marker together with another read. On a new path also the creates of the node and of missing parents |
/// | first change in a later session, or after `release_marker` | 2 more: the create of the marker together with a read; another read if the newest write of the object has created the node |
/// | changes of several tasks at once | 1 for all that wait |
/// | change after one of another session | 3 more: a refused write, a read, and a read that travels with the next write |
/// | change in a loop: each 256th without other sessions, each 32nd beside up to 7, each 8th beside more | 1 read more: a gap for other sessions |
/// | change with `zookeeper-async` | 1 read more |
/// | lost reply | 2 more in 1 round trip: a write that changes nothing, and a read of the marker |
/// | `get`, comparison that fails | 1 read |
#[derive(Clone)]
pub struct DistributedAtomicNumber<N: AtomicNumber> {
    counter: Arc<Counter<N>>,
}

impl<N: AtomicNumber> DistributedAtomicNumber<N> {
    /// Creates a counter at a path, without a request. `retry_policy` limits the tries of a change that the server
    /// refuses because other sessions have written in between.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`: the path is not valid in ZooKeeper.
    pub fn new(
        client: CuratorFramework,
        path: impl Into<String>,
        retry_policy: impl RetryPolicy,
    ) -> Result<Self, CounterError> {
        Self::with_options(client, path, retry_policy, CounterOptions::new())
    }

    /// Creates a counter with options.
    ///
    /// # Errors
    ///
    /// * `Error::InvalidPath`: the path is not valid in ZooKeeper.
    /// * `CounterError::Lock`: the path of the lock is not valid, or it is the root.
    pub fn with_options(
        client: CuratorFramework,
        path: impl Into<String>,
        retry_policy: impl RetryPolicy,
        options: CounterOptions,
    ) -> Result<Self, CounterError> {
        let counter = Counter::new(client, path.into(), Arc::new(retry_policy), options)?;
        Ok(Self { counter: Arc::new(counter) })
    }

    /// Returns the path of the node.
    #[must_use]
    pub fn path(&self) -> &str {
        self.counter.path()
    }

    /// Reads the number from the server. It is 0 if the node does not exist.
    ///
    /// # Errors
    ///
    /// * `CounterError::NotANumber`: the data does not have the length of the number.
    /// * `Error::NoAuth`, `Error::Compression`, `Error::SchemaViolation`, `Error::NotStarted`, `Error::Closed`;
    ///   `Error::ConnectionLoss` and `Error::SessionExpired` when the client's retry policy gives up.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn get(&self) -> Result<N, CounterError> {
        Ok(self.counter.get().await?.unwrap_or_default())
    }

    /// Adds 1.
    ///
    /// # Errors
    ///
    /// * `CounterError::Contended`: the retry policy gave up. Call again, or promote the counter to a lock.
    /// * `CounterError::Overflow`: the sum does not fit into the number.
    /// * `CounterError::NotANumber`: the data does not have the length of the number; [`force_set`](Self::force_set)
    ///   replaces it.
    /// * `CounterError::VersionsExhausted`: the node has the version −1, as once in 2^32 changes;
    ///   [`force_set`](Self::force_set) raises it.
    /// * `CounterError::Lock`: the lock of a promoted counter cannot be acquired.
    /// * `Error::NoAuth`, `Error::Compression`, `Error::SchemaViolation`, `Error::NoChildrenForEphemerals`,
    ///   `Error::TooManyEphemeralNodes`, `Error::NotStarted`, `Error::Closed`: nothing was changed.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the client's retry policy gave up. The change may be made if
    ///   [`outcome_unknown`](crate::CounterError::outcome_unknown) returns true.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the change is made once or not at all. A missing node may be left as 0. Changes of
    /// other tasks continue.
    pub async fn increment(&self) -> Result<AtomicChange<N>, CounterError> {
        self.add(N::ONE).await
    }

    /// Subtracts 1.
    ///
    /// # Errors
    ///
    /// * `CounterError::Contended`: the retry policy gave up. Call again, or promote the counter to a lock.
    /// * `CounterError::Overflow`: the difference does not fit into the number.
    /// * `CounterError::NotANumber`: the data does not have the length of the number; [`force_set`](Self::force_set)
    ///   replaces it.
    /// * `CounterError::VersionsExhausted`: the node has the version −1, as once in 2^32 changes;
    ///   [`force_set`](Self::force_set) raises it.
    /// * `CounterError::Lock`: the lock of a promoted counter cannot be acquired.
    /// * `Error::NoAuth`, `Error::Compression`, `Error::SchemaViolation`, `Error::NoChildrenForEphemerals`,
    ///   `Error::TooManyEphemeralNodes`, `Error::NotStarted`, `Error::Closed`: nothing was changed.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the client's retry policy gave up. The change may be made if
    ///   [`outcome_unknown`](crate::CounterError::outcome_unknown) returns true.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the change is made once or not at all. A missing node may be left as 0. Changes of
    /// other tasks continue.
    pub async fn decrement(&self) -> Result<AtomicChange<N>, CounterError> {
        self.subtract(N::ONE).await
    }

    /// Adds a number.
    ///
    /// # Errors
    ///
    /// * `CounterError::Contended`: the retry policy gave up. Call again, or promote the counter to a lock.
    /// * `CounterError::Overflow`: the sum does not fit into the number.
    /// * `CounterError::NotANumber`: the data does not have the length of the number; [`force_set`](Self::force_set)
    ///   replaces it.
    /// * `CounterError::VersionsExhausted`: the node has the version −1, as once in 2^32 changes;
    ///   [`force_set`](Self::force_set) raises it.
    /// * `CounterError::Lock`: the lock of a promoted counter cannot be acquired.
    /// * `Error::NoAuth`, `Error::Compression`, `Error::SchemaViolation`, `Error::NoChildrenForEphemerals`,
    ///   `Error::TooManyEphemeralNodes`, `Error::NotStarted`, `Error::Closed`: nothing was changed.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the client's retry policy gave up. The change may be made if
    ///   [`outcome_unknown`](crate::CounterError::outcome_unknown) returns true.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the change is made once or not at all. A missing node may be left as 0. Changes of
    /// other tasks continue.
    pub async fn add(&self, delta: N) -> Result<AtomicChange<N>, CounterError> {
        self.change(Change::Add(delta)).await
    }

    /// Subtracts a number.
    ///
    /// # Errors
    ///
    /// * `CounterError::Contended`: the retry policy gave up. Call again, or promote the counter to a lock.
    /// * `CounterError::Overflow`: the difference does not fit into the number.
    /// * `CounterError::NotANumber`: the data does not have the length of the number; [`force_set`](Self::force_set)
    ///   replaces it.
    /// * `CounterError::VersionsExhausted`: the node has the version −1, as once in 2^32 changes;
    ///   [`force_set`](Self::force_set) raises it.
    /// * `CounterError::Lock`: the lock of a promoted counter cannot be acquired.
    /// * `Error::NoAuth`, `Error::Compression`, `Error::SchemaViolation`, `Error::NoChildrenForEphemerals`,
    ///   `Error::TooManyEphemeralNodes`, `Error::NotStarted`, `Error::Closed`: nothing was changed.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the client's retry policy gave up. The change may be made if
    ///   [`outcome_unknown`](crate::CounterError::outcome_unknown) returns true.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the change is made once or not at all. A missing node may be left as 0. Changes of
    /// other tasks continue.
    pub async fn subtract(&self, delta: N) -> Result<AtomicChange<N>, CounterError> {
        self.change(Change::Subtract(delta)).await
    }

    /// Sets the number. The result has the numbers before and after.
    ///
    /// # Errors
    ///
    /// * `CounterError::Contended`: the retry policy gave up. Call again, or promote the counter to a lock.
    /// * `CounterError::NotANumber`: the data does not have the length of the number; [`force_set`](Self::force_set)
    ///   replaces it.
    /// * `CounterError::VersionsExhausted`: the node has the version −1, as once in 2^32 changes;
    ///   [`force_set`](Self::force_set) raises it.
    /// * `CounterError::Lock`: the lock of a promoted counter cannot be acquired.
    /// * `Error::NoAuth`, `Error::Compression`, `Error::SchemaViolation`, `Error::NoChildrenForEphemerals`,
    ///   `Error::TooManyEphemeralNodes`, `Error::NotStarted`, `Error::Closed`: nothing was changed.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the client's retry policy gave up. The change may be made if
    ///   [`outcome_unknown`](crate::CounterError::outcome_unknown) returns true.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the change is made once or not at all. A missing node may be left as 0. Changes of
    /// other tasks continue.
    pub async fn try_set(&self, new: N) -> Result<AtomicChange<N>, CounterError> {
        self.change(Change::Set(new)).await
    }

    /// Sets the number if it is `expected`.
    ///
    /// # Errors
    ///
    /// * `CounterError::Contended`: the retry policy gave up. Call again, or promote the counter to a lock.
    /// * `CounterError::NotANumber`: the data does not have the length of the number; [`force_set`](Self::force_set)
    ///   replaces it.
    /// * `CounterError::VersionsExhausted`: the node has the version −1, as once in 2^32 changes;
    ///   [`force_set`](Self::force_set) raises it.
    /// * `CounterError::Lock`: the lock of a promoted counter cannot be acquired.
    /// * `Error::NoAuth`, `Error::Compression`, `Error::SchemaViolation`, `Error::NoChildrenForEphemerals`,
    ///   `Error::TooManyEphemeralNodes`, `Error::NotStarted`, `Error::Closed`: nothing was changed.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the client's retry policy gave up. The change may be made if
    ///   [`outcome_unknown`](crate::CounterError::outcome_unknown) returns true.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the change is made once or not at all. A missing node may be left as 0. Changes of
    /// other tasks continue.
    pub async fn compare_and_set(&self, expected: N, new: N) -> Result<Compared<N>, CounterError> {
        self.counter.compare_and_set(expected, new).await
    }

    /// Sets the number without a condition: Curator's `forceSet`. It may replace a number of any length.
    ///
    /// # Errors
    ///
    /// * `Error::NoAuth`, `Error::Compression`, `Error::SchemaViolation`, `Error::NoChildrenForEphemerals`,
    ///   `Error::TooManyEphemeralNodes`, `Error::NotStarted`, `Error::Closed`: nothing was changed.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the client's retry policy gave up. The change may be made if
    ///   [`outcome_unknown`](crate::CounterError::outcome_unknown) returns true.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the change is made once or not at all. A missing node may be left as 0. Changes of
    /// other tasks continue.
    pub async fn force_set(&self, new: N) -> Result<(), CounterError> {
        self.counter.force_set(new).await
    }

    /// Creates the node with this number, unless it exists. Returns `true` if this call has created it.
    ///
    /// Another client's first addition creates the node as 0 before it adds. From then on the node exists.
    ///
    /// # Errors
    ///
    /// * `CounterError::Contended`: the retry policy gave up. Call again, or promote the counter to a lock.
    /// * `CounterError::Lock`: the lock of a promoted counter cannot be acquired.
    /// * `Error::NoAuth`, `Error::Compression`, `Error::SchemaViolation`, `Error::NoChildrenForEphemerals`,
    ///   `Error::TooManyEphemeralNodes`, `Error::NotStarted`, `Error::Closed`: nothing was changed.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the client's retry policy gave up. The change may be made if
    ///   [`outcome_unknown`](crate::CounterError::outcome_unknown) returns true.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the change is made once or not at all. A missing node may be left as 0. Changes of
    /// other tasks continue.
    pub async fn initialize(&self, number: N) -> Result<bool, CounterError> {
        self.counter.initialize(number).await
    }

    /// Deletes the marker of this counter and its clones. A later change creates another one. The drop of the last
    /// clone leaves the delete to the session.
    ///
    /// Resolves within the client's [`max_close_wait`](curator_framework::CuratorFrameworkBuilder::max_close_wait), 5 s by
    /// default. A delete without a reply is left to the session. A change that another caller has started comes first:
    /// if that takes longer, the marker stays until the drop of the object.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the marker may be left until the drop of the object.
    pub async fn release_marker(&self) {
        self.counter.release_marker().await;
    }

    async fn change(&self, change: Change<N>) -> Result<AtomicChange<N>, CounterError> {
        self.counter.set(change).await
    }
}

impl<N: AtomicNumber> fmt::Debug for DistributedAtomicNumber<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistributedAtomicNumber").field("counter", &self.counter).finish()
    }
}

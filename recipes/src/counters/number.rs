//! Counters: numbers that all processes change.

use std::fmt;
use std::sync::Arc;

use curator_framework::{CuratorFramework, RetryPolicy};

use crate::counters::change::{AtomicChange, Compared};
use crate::counters::content::AtomicNumber;
use crate::counters::driver::Counter;
use crate::counters::engine::Change;
use crate::counters::error::CounterResult;
use crate::counters::options::CounterOptions;

/// A counter of 64 bits: Curator's `DistributedAtomicLong`.
pub type DistributedAtomicLong = DistributedAtomicNumber<i64>;
/// A counter of 32 bits: Curator's `DistributedAtomicInteger`. A [`SharedCount`](crate::SharedCount) has the same node.
pub type DistributedAtomicInteger = DistributedAtomicNumber<i32>;

/// A number that all processes change, each change exactly once: Curator's [`DistributedAtomicLong`] and
/// [`DistributedAtomicInteger`].
///
/// Clones are cheap, and share one queue: changes of several tasks travel in one write, each with its own values before
/// and behind it. The object needs no start. It needs the permissions to read, write and create at its node.
///
/// # Once
///
/// | event during a change | default client | `zookeeper-async` |
/// | --- | --- | --- |
/// | the request, or its reply, is lost | applied once, with the right values | applied once, or [`outcome_unknown`](crate::CounterError::outcome_unknown) |
/// | the session ends, too | applied once, or `outcome_unknown` | the same |
/// | an administrator deletes the marker, too | applied once, or `outcome_unknown` | – |
/// | the caller drops the future | applied once or not at all; others go on | the same, but others in its write may get `outcome_unknown` |
///
/// A write that may have been applied is only ever repeated with the same condition, never computed anew. So a change
/// never counts twice. (With Curator's, a lost reply counts twice and reports a success.)
///
/// # Contention
///
/// Sessions take turns, so one of them writes at full speed while the others pause for up to 256 ms. A session that
/// writes now and then does not pause. The retry policy of the constructor limits the tries as in Curator: it decides
/// on the number of retries, and the next one begins when its pause has passed. Tries within such a pause do not count.
/// For numbers that only have to be unique use [`UniqueIds`](crate::UniqueIds), without contention.
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
/// let retry = RetryNTimes::new(100, Duration::from_millis(10));
/// let orders = DistributedAtomicLong::new(client, "/orders/count", retry)?;
/// let change = orders.increment().await?;
/// println!("order {} of {}", change.post_value(), orders.get().await?);
/// orders.close().await;
/// # Ok(())
/// # }
/// ```
///
/// # Differences from Curator
///
/// * A change that was not made is an error. Curator returns a result that did not succeed, with the value 0.
/// * An overflow is an error, and so is data of another length than that of the number. Curator's numbers wrap around,
///   and ignore the end of longer data.
/// * `compare_and_set` tries again until the value is set, or is another one.
/// * A version of −1 is refused, because ZooKeeper takes it for any version.
///
/// # ZooKeeper layout
///
/// `<path>`, persistent, with the number in 8 or 4 bytes, big-endian, as in Curator. Missing parents are containers. An
/// empty or missing node is 0. `<path>/_c_<uuid>-count`, ephemeral and not in Curator, is the marker of one object in
/// one session. So the node has children while counters are in use. `zookeeper-async` creates no markers.
///
/// # Cost
///
/// | case | requests |
/// | --- | --- |
/// | change | 1 |
/// | first change of an object | 1 read more, on a new path also those of missing parents |
/// | changes of several tasks at once | 1 for all that wait |
/// | behind a change of another session | 3 more: a refused write, a read, and a read behind the write that follows |
/// | each 256th of an object in a loop, each 16th beside others | 1 read more: a gap for other sessions |
/// | change with `zookeeper-async`, first change in a session | 1 read more |
/// | lost reply | 2 more in 1 round trip: a write that changes nothing, and a read of the marker; for the first change of a session perhaps 1 read more |
/// | comparison that fails | 1 read |
#[derive(Clone)]
pub struct DistributedAtomicNumber<N: AtomicNumber> {
    counter: Arc<Counter<N>>,
}

impl<N: AtomicNumber> DistributedAtomicNumber<N> {
    /// Creates a counter at a path, without a request. `retry_policy` limits the tries of a change that other sessions
    /// refuse again and again.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`: the path is not valid in ZooKeeper.
    pub fn new(
        client: CuratorFramework,
        path: impl Into<String>,
        retry_policy: impl RetryPolicy,
    ) -> CounterResult<Self> {
        Self::with_options(client, path, retry_policy, CounterOptions::new())
    }

    /// Creates a counter with options.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`, also of the lock's path; `CounterError::Lock` if the lock is at the root.
    pub fn with_options(
        client: CuratorFramework,
        path: impl Into<String>,
        retry_policy: impl RetryPolicy,
        options: CounterOptions,
    ) -> CounterResult<Self> {
        let counter = Counter::new(client, path.into(), Arc::new(retry_policy), options)?;
        Ok(Self { counter: Arc::new(counter) })
    }

    /// Returns the path of the node.
    #[must_use]
    pub fn path(&self) -> &str {
        self.counter.path()
    }

    /// Reads the number. It is 0 if the node does not exist.
    ///
    /// # Errors
    ///
    /// * `CounterError::NotANumber`: the data has another length than that of a number.
    /// * `Error::NoAuth`, `Error::Compression`, `Error::SchemaViolation`, `Error::NotStarted`, `Error::Closed`;
    ///   `Error::ConnectionLoss` and `Error::SessionExpired` when the client's retry policy gives up.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn get(&self) -> CounterResult<N> {
        Ok(self.counter.get().await?.unwrap_or_default())
    }

    /// Adds 1.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    ///
    /// # Cancel safety
    ///
    /// As [`add`](Self::add).
    pub async fn increment(&self) -> CounterResult<AtomicChange<N>> {
        self.add(N::ONE).await
    }

    /// Subtracts 1.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    ///
    /// # Cancel safety
    ///
    /// As [`add`](Self::add).
    pub async fn decrement(&self) -> CounterResult<AtomicChange<N>> {
        self.subtract(N::ONE).await
    }

    /// Adds a number.
    ///
    /// # Errors
    ///
    /// * `CounterError::Contended`: the retry policy gave up. Call again, or promote the counter to a lock.
    /// * `CounterError::Overflow`, `CounterError::NotANumber`: mend the value, by [`force_set`](Self::force_set).
    /// * `CounterError::VersionsExhausted`: call [`force_set`](Self::force_set), once in 2^32 changes.
    /// * `CounterError::Lock`: the lock of a promoted counter cannot be acquired.
    /// * Of the framework `Error::NoAuth`, `Error::Compression`, `Error::SchemaViolation`,
    ///   `Error::NoChildrenForEphemerals`, `Error::NotStarted`, `Error::Closed`: nothing was changed.
    /// * `Error::ConnectionLoss` and `Error::SessionExpired` when the client's retry policy gives up: the change may be
    ///   made if [`outcome_unknown`](crate::CounterError::outcome_unknown) returns true.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the change is made once or not at all. Changes of other tasks go on.
    pub async fn add(&self, delta: N) -> CounterResult<AtomicChange<N>> {
        self.change(Change::Add(delta)).await
    }

    /// Subtracts a number.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    ///
    /// # Cancel safety
    ///
    /// As [`add`](Self::add).
    pub async fn subtract(&self, delta: N) -> CounterResult<AtomicChange<N>> {
        self.change(Change::Subtract(delta)).await
    }

    /// Sets the number, and returns the one before.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    ///
    /// # Cancel safety
    ///
    /// As [`add`](Self::add).
    pub async fn try_set(&self, new: N) -> CounterResult<AtomicChange<N>> {
        self.change(Change::Set(new)).await
    }

    /// Sets the number if it is `expected`.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    ///
    /// # Cancel safety
    ///
    /// As [`add`](Self::add).
    pub async fn compare_and_set(&self, expected: N, new: N) -> CounterResult<Compared<N>> {
        self.counter.compare_and_set(expected, new).await
    }

    /// Sets the number without a condition: Curator's `forceSet`. It may replace a number of any length.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add), without the first three.
    ///
    /// # Cancel safety
    ///
    /// As [`add`](Self::add).
    pub async fn force_set(&self, new: N) -> CounterResult<()> {
        self.counter.change(Change::Force(new)).await.map(|_| ())
    }

    /// Creates the node with this number, unless it exists. Returns `true` if this call has created it.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    ///
    /// # Cancel safety
    ///
    /// As [`add`](Self::add).
    pub async fn initialize(&self, number: N) -> CounterResult<bool> {
        self.counter.initialize(number).await
    }

    /// Deletes the marker of this counter and its clones. A later change creates another one. The drop of the last clone
    /// has the marker deleted in the background.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the marker may be left until the drop of the object.
    pub async fn close(&self) {
        self.counter.close().await;
    }

    async fn change(&self, change: Change<N>) -> CounterResult<AtomicChange<N>> {
        self.counter.set(change).await
    }
}

impl<N: AtomicNumber> fmt::Debug for DistributedAtomicNumber<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistributedAtomicNumber").field("counter", &self.counter).finish()
    }
}

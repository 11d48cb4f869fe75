//! Atomic values: bytes that many processes change.

use std::sync::Arc;

use curator_framework::{CuratorFramework, RetryPolicy};

use crate::counters::change::{AtomicChange, Compared};
use crate::counters::effect::Change;
use crate::counters::error::CounterError;
use crate::counters::options::CounterOptions;
use crate::counters::state::Counter;

/// A few bytes that many processes change, and no change is applied twice: Curator's `DistributedAtomicValue`.
///
/// [`DistributedAtomicLong`](crate::DistributedAtomicLong) describes lost replies, contention, layout and cost, which
/// are the same. Clones share one queue of changes. A [`SharedValue`](crate::SharedValue) also keeps a
/// local copy and reports changes.
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
/// use curator_recipes::{Compared, DistributedAtomicValue};
///
/// let retry = RetryNTimes::new(100, Duration::from_millis(10));
/// let mode = DistributedAtomicValue::new(client, "/office/mode", retry)?;
/// mode.initialize("closed").await?;
/// match mode.compare_and_set("closed", "open").await? {
///     Compared::Set(_) => println!("opened by this process"),
///     Compared::Differs(mode) => println!("it is {}", String::from_utf8_lossy(&mode)),
///     Compared::Missing => println!("an administrator has deleted it"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct DistributedAtomicValue {
    counter: Arc<Counter<Vec<u8>>>,
}

impl DistributedAtomicValue {
    /// Creates a value at a path, without a request. `retry_policy` limits the tries of a change that the server
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

    /// Creates a value with options.
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

    /// Reads the value from the server; `None` if the node does not exist.
    ///
    /// # Errors
    ///
    /// `Error::NoAuth`, `Error::Compression`, `Error::SchemaViolation`, `Error::NotStarted`, `Error::Closed`;
    /// `Error::ConnectionLoss` and `Error::SessionExpired` when the client's retry policy gives up.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn get(&self) -> Result<Option<Vec<u8>>, CounterError> {
        self.counter.get().await
    }

    /// Sets the value. The result has the value before, too: empty if the node did not exist.
    ///
    /// # Errors
    ///
    /// * `CounterError::Contended`: the retry policy gave up. Call again, or promote the value to a lock.
    /// * `CounterError::VersionsExhausted`: call [`force_set`](Self::force_set), once in 2^32 changes.
    /// * `CounterError::Lock`: the lock of a promoted value cannot be acquired.
    /// * `Error::NoAuth`, `Error::Compression`, `Error::SchemaViolation`, `Error::RequestTooLarge`,
    ///   `Error::NoChildrenForEphemerals`, `Error::TooManyEphemeralNodes`, `Error::NotStarted`, `Error::Closed`: nothing
    ///   was changed.
    /// * `Error::ConnectionLoss` and `Error::SessionExpired` when the client's retry policy gives up: the change may be
    ///   made if [`outcome_unknown`](crate::CounterError::outcome_unknown) returns true.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the change is made once or not at all. Changes of other tasks continue.
    pub async fn try_set(&self, new: impl Into<Vec<u8>>) -> Result<AtomicChange<Vec<u8>>, CounterError> {
        self.counter.set(Change::Set(new.into())).await
    }

    /// Sets the value if it is `expected`.
    ///
    /// # Errors
    ///
    /// * `CounterError::Contended`: the retry policy gave up. Call again, or promote the value to a lock.
    /// * `CounterError::VersionsExhausted`: call [`force_set`](Self::force_set), once in 2^32 changes.
    /// * `CounterError::Lock`: the lock of a promoted value cannot be acquired.
    /// * `Error::NoAuth`, `Error::Compression`, `Error::SchemaViolation`, `Error::RequestTooLarge`,
    ///   `Error::NoChildrenForEphemerals`, `Error::TooManyEphemeralNodes`, `Error::NotStarted`, `Error::Closed`:
    ///   nothing was changed.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the client's retry policy gave up. The change may be made if
    ///   [`outcome_unknown`](crate::CounterError::outcome_unknown) returns true.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the change is made once or not at all. Changes of other tasks continue.
    pub async fn compare_and_set(
        &self,
        expected: impl Into<Vec<u8>>,
        new: impl Into<Vec<u8>>,
    ) -> Result<Compared<Vec<u8>>, CounterError> {
        self.counter.compare_and_set(expected.into(), new.into()).await
    }

    /// Sets the value without a condition: Curator's `forceSet`.
    ///
    /// # Errors
    ///
    /// * `Error::NoAuth`, `Error::Compression`, `Error::SchemaViolation`, `Error::RequestTooLarge`,
    ///   `Error::NoChildrenForEphemerals`, `Error::TooManyEphemeralNodes`, `Error::NotStarted`, `Error::Closed`:
    ///   nothing was changed.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the client's retry policy gave up. The change may be made if
    ///   [`outcome_unknown`](crate::CounterError::outcome_unknown) returns true.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the change is made once or not at all. Changes of other tasks continue.
    pub async fn force_set(&self, new: impl Into<Vec<u8>>) -> Result<(), CounterError> {
        self.counter.force_set(new.into()).await
    }

    /// Creates the node with this value, unless it exists. Returns `true` if this call has created it.
    ///
    /// # Errors
    ///
    /// * `CounterError::Contended`: the retry policy gave up. Call again, or promote the value to a lock.
    /// * `CounterError::Lock`: the lock of a promoted value cannot be acquired.
    /// * `Error::NoAuth`, `Error::Compression`, `Error::SchemaViolation`, `Error::RequestTooLarge`,
    ///   `Error::NoChildrenForEphemerals`, `Error::TooManyEphemeralNodes`, `Error::NotStarted`, `Error::Closed`:
    ///   nothing was changed.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the client's retry policy gave up. The node may be created
    ///   if [`outcome_unknown`](crate::CounterError::outcome_unknown) returns true.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the change is made once or not at all. Changes of other tasks continue.
    pub async fn initialize(&self, value: impl Into<Vec<u8>>) -> Result<bool, CounterError> {
        self.counter.initialize(value.into()).await
    }

    /// Deletes the marker of this value and its clones. A later change creates another one. The drop of the last clone
    /// leaves the delete to the session.
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
}

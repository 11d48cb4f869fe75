//! The shared count.

use crate::shared::error::SharedError;
use crate::shared::mechanism::Shared;
#[cfg(doc)]
use crate::shared::value::SharedValue;
use crate::shared::versioned::VersionedValue;

/// A number that all processes share, with a local copy that is kept up to date: Curator's `SharedCount`.
///
/// It is a [`Shared`] value with a signed number of 32 bits as its data.
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
/// use curator_recipes::SharedCount;
///
/// let visitors = SharedCount::new(client, "/office/visitors", 0)?;
/// visitors.start()?;
/// visitors.initialized().await?;
/// loop {
///     let before = visitors.versioned_value()?;
///     if visitors.try_set_count(&before, before.value() + 1).await? {
///         break;
///     }
/// }
/// # Ok(())
/// # }
/// ```
///
/// # ZooKeeper layout
///
/// One persistent node at the path. Its data is the number in four bytes, the highest first, as in Curator.
#[doc(alias = "SharedCountReader")]
#[doc(alias = "SharedCountListener")]
pub type SharedCount = Shared<i32>;

impl Shared<i32> {
    /// Returns the newest count that this process knows. No request.
    ///
    /// # Errors
    ///
    /// `SharedError::NotACount`: the node's data is not four bytes; repair it with [`set_count`](Self::set_count).
    pub fn count(&self) -> Result<i32, SharedError> {
        Ok(self.versioned_value()?.into_value())
    }

    /// Returns the newest count that this process knows, with its version. No request.
    ///
    /// # Errors
    ///
    /// * `SharedError::NotACount`: the node's data is not four bytes; repair it with [`set_count`](Self::set_count).
    pub fn versioned_value(&self) -> Result<VersionedValue<i32>, SharedError> {
        self.newest()
    }

    /// Sets the count, regardless of its present value.
    ///
    /// # Errors
    ///
    /// * `SharedError::NotStarted`, `SharedError::Closed`: the count does not run.
    /// * `Error::NoNode`: the node was deleted. `Error::NoAuth`, `Error::Compression`, `Error::SchemaViolation`: the
    ///   count is not set, or the first read, for which the call waits, has failed.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up. The count may be set if
    ///   [`outcome_unknown`](SharedError::outcome_unknown) returns true.
    /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped the count may be set.
    pub async fn set_count(&self, count: i32) -> Result<(), SharedError> {
        self.set(count).await
    }

    /// Sets the count if it is still the previous one: see [`SharedValue::try_set_value`], also for lost replies. After
    /// a lost reply an increment must not be repeated blindly: equal counts of several processes cannot be
    /// distinguished.
    ///
    /// # Errors
    ///
    /// * `SharedError::IllegalTrySetVersion`: the previous version is −1, as before the first read and once in 2^32
    ///   changes.
    /// * `SharedError::NotStarted`, `SharedError::Closed`: the count does not run.
    /// * `Error::NoNode`: the node was deleted. `Error::NoAuth`, `Error::Compression`, `Error::SchemaViolation`: the
    ///   count is not set, or the first read, for which the call waits, has failed.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up, or another count is there after a
    ///   lost reply. The count may be set if [`outcome_unknown`](SharedError::outcome_unknown) returns true.
    /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped the count may be set.
    pub async fn try_set_count(&self, previous: &VersionedValue<i32>, count: i32) -> Result<bool, SharedError> {
        self.try_set(previous, count).await
    }
}

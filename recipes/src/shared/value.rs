//! The shared value.

use crate::shared::error::SharedError;
use crate::shared::mechanism::Shared;
use crate::shared::versioned::VersionedValue;

/// A few bytes that all processes share, with a local copy that is kept up to date: Curator's `SharedValue`. See
/// [`Shared`].
///
/// Like `tokio::sync::watch`, but between all processes that use the same path on the same ensemble, including Java's
/// Curator.
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
/// use curator_recipes::SharedValue;
///
/// let motto = SharedValue::new(client, "/office/motto", "none yet")?;
/// motto.add_listener(|new| println!("now {}", String::from_utf8_lossy(new.value())));
/// motto.start()?;
/// motto.initialized().await?;
/// let before = motto.versioned_value();
/// if !motto.try_set_value(&before, "one at a time").await? {
///     println!("another client wrote first");
/// }
/// # Ok(())
/// # }
/// ```
#[doc(alias = "SharedValueReader")]
#[doc(alias = "SharedValueListener")]
pub type SharedValue = Shared<Vec<u8>>;

impl Shared<Vec<u8>> {
    /// Returns the newest value that this process knows. No request.
    #[must_use]
    pub fn value(&self) -> Vec<u8> {
        self.versioned_value().into_value()
    }

    /// Returns the newest value that this process knows, with its version. No request.
    #[must_use]
    pub fn versioned_value(&self) -> VersionedValue<Vec<u8>> {
        self.newest_data()
    }

    /// Sets the value, regardless of the present one.
    ///
    /// # Errors
    ///
    /// * `SharedError::NotStarted`, `SharedError::Closed`: the value does not run.
    /// * `Error::NoNode`: the node was deleted. `Error::NoAuth`, `Error::Compression`, `Error::SchemaViolation`,
    ///   `Error::RequestTooLarge`: the value is not set, or the first read, for which the call waits, has failed.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up. The value may be set if
    ///   [`outcome_unknown`](SharedError::outcome_unknown) returns true.
    /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
    ///
    /// After a lost reply the value is set again, even if another client has set another value in the meantime.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped the value may be set.
    pub async fn set_value(&self, value: impl Into<Vec<u8>>) -> Result<(), SharedError> {
        self.set(value.into()).await
    }

    /// Sets the value if it is still `previous`, from [`versioned_value`](Self::versioned_value). Returns `true` if
    /// this call has set it, `false` if another value is there. If `previous` is not the local copy, `false` takes no
    /// request; else the new value is read first.
    ///
    /// # Errors
    ///
    /// * `SharedError::IllegalTrySetVersion`: the previous version is −1, as before the first read and once in 2^32
    ///   changes.
    /// * `SharedError::NotStarted`, `SharedError::Closed`: the value does not run.
    /// * `Error::NoNode`: the node was deleted. `Error::NoAuth`, `Error::Compression`, `Error::SchemaViolation`,
    ///   `Error::RequestTooLarge`: the value is not set, or the first read, for which the call waits, has failed.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up, or another value is there after a
    ///   lost reply.
    /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
    ///
    /// After a lost reply the value may be set without this call knowing it. Then the error has an [unknown
    /// outcome](SharedError::outcome_unknown), even if a retry is refused because of the version. To find out, put a
    /// mark of your own into the value, and check whether the newest value has it.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped the value may be set.
    pub async fn try_set_value(
        &self,
        previous: &VersionedValue<Vec<u8>>,
        value: impl Into<Vec<u8>>,
    ) -> Result<bool, SharedError> {
        self.try_set(previous, value.into()).await
    }
}

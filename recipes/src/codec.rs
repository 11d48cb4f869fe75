//! The bytes of a caller's values.

use std::error::Error;

/// The reason why a [`Codec`] refuses a value or bytes.
pub type CodecError = Box<dyn Error + Send + Sync>;

/// Converts values to bytes and back: Curator's `QueueSerializer` and `ModelSerializer`. A queue adds its own bytes
/// around them.
///
/// # Examples
///
/// ```
/// use curator_recipes::{Codec, CodecError};
///
/// struct Numbers;
///
/// impl Codec<u64> for Numbers {
///     fn encode(&self, value: &u64) -> Result<Vec<u8>, CodecError> {
///         Ok(value.to_be_bytes().to_vec())
///     }
///
///     fn decode(&self, data: &[u8]) -> Result<u64, CodecError> {
///         Ok(u64::from_be_bytes(data.try_into()?))
///     }
/// }
/// ```
#[doc(alias = "QueueSerializer")]
pub trait Codec<T>: Send + Sync + 'static {
    /// Returns the bytes of a value.
    ///
    /// # Errors
    ///
    /// The value has none. A put fails with [`QueueError::Encode`](crate::QueueError::Encode), a write of a typed node
    /// with [`ModelError::Encode`](crate::ModelError::Encode), without a request.
    fn encode(&self, value: &T) -> Result<Vec<u8>, CodecError>;

    /// Returns the value of these bytes.
    ///
    /// # Errors
    ///
    /// They are not a value's. A consumer reports [`QueueError::Corrupt`](crate::QueueError::Corrupt), and the node
    /// stays. A read of a typed node fails with [`ModelError::Decode`](crate::ModelError::Decode).
    fn decode(&self, data: &[u8]) -> Result<T, CodecError>;
}

/// Keeps values as they are: `Vec<u8>`, and `String` in UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RawCodec;

impl Codec<Vec<u8>> for RawCodec {
    fn encode(&self, value: &Vec<u8>) -> Result<Vec<u8>, CodecError> {
        Ok(value.clone())
    }

    fn decode(&self, data: &[u8]) -> Result<Vec<u8>, CodecError> {
        Ok(data.to_vec())
    }
}

impl Codec<String> for RawCodec {
    fn encode(&self, value: &String) -> Result<Vec<u8>, CodecError> {
        Ok(value.clone().into_bytes())
    }

    fn decode(&self, data: &[u8]) -> Result<String, CodecError> {
        Ok(std::str::from_utf8(data)?.to_owned())
    }
}

/// JSON through `serde`, as Java's Jackson reads and writes it: unknown fields are ignored.
///
/// Java's fields have names such as `dataCenter`: put `#[serde(rename_all = "camelCase")]` on the struct.
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
/// use curator_recipes::{DistributedQueue, JsonCodec, QueueOptions};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Debug, PartialEq, Serialize, Deserialize)]
/// struct Job {
///     file: String,
///     pages: u32,
/// }
///
/// let options = QueueOptions::new().lock_path("/jobs-locks");
/// let jobs = DistributedQueue::<Job>::with_options(client, "/jobs", JsonCodec, options)?;
/// jobs.put(&Job { file: "a.pdf".to_owned(), pages: 3 }).await?;
/// let delivery = jobs.consumer().next().await.expect("the client is open")?;
/// assert_eq!(delivery.items(), [Job { file: "a.pdf".to_owned(), pages: 3 }]);
/// delivery.complete().await?;
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "serde")]
#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct JsonCodec;

#[cfg(feature = "serde")]
impl<T: serde::Serialize + serde::de::DeserializeOwned> Codec<T> for JsonCodec {
    fn encode(&self, value: &T) -> Result<Vec<u8>, CodecError> {
        Ok(serde_json::to_vec(value)?)
    }

    fn decode(&self, data: &[u8]) -> Result<T, CodecError> {
        Ok(serde_json::from_slice(data)?)
    }
}

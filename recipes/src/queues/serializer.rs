//! The bytes of an item.

use std::error::Error;

/// The error of a serializer.
pub(super) type SerializerError = Box<dyn Error + Send + Sync>;

/// Converts items to bytes and back: Curator's `QueueSerializer`. The queue adds its own bytes around them.
///
/// # Examples
///
/// ```
/// use std::error::Error;
/// use curator_recipes::QueueSerializer;
///
/// struct Numbers;
///
/// impl QueueSerializer<u64> for Numbers {
///     fn serialize(&self, item: &u64) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
///         Ok(item.to_be_bytes().to_vec())
///     }
///
///     fn deserialize(&self, data: &[u8]) -> Result<u64, Box<dyn Error + Send + Sync>> {
///         Ok(u64::from_be_bytes(data.try_into()?))
///     }
/// }
/// ```
pub trait QueueSerializer<T>: Send + Sync + 'static {
    /// Returns the bytes of an item.
    ///
    /// # Errors
    ///
    /// The item has none. The put fails with [`QueueError::Serialize`](crate::QueueError::Serialize), without a request.
    fn serialize(&self, item: &T) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>>;

    /// Returns the item of these bytes.
    ///
    /// # Errors
    ///
    /// They are not an item's. The consumer reports [`QueueError::Corrupt`](crate::QueueError::Corrupt), and the node
    /// stays.
    fn deserialize(&self, data: &[u8]) -> Result<T, Box<dyn Error + Send + Sync>>;
}

/// Keeps items as they are: for `Vec<u8>`, and for `String` in UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RawSerializer;

impl QueueSerializer<Vec<u8>> for RawSerializer {
    fn serialize(&self, item: &Vec<u8>) -> Result<Vec<u8>, SerializerError> {
        Ok(item.clone())
    }

    fn deserialize(&self, data: &[u8]) -> Result<Vec<u8>, SerializerError> {
        Ok(data.to_vec())
    }
}

impl QueueSerializer<String> for RawSerializer {
    fn serialize(&self, item: &String) -> Result<Vec<u8>, SerializerError> {
        Ok(item.clone().into_bytes())
    }

    fn deserialize(&self, data: &[u8]) -> Result<String, SerializerError> {
        Ok(std::str::from_utf8(data)?.to_owned())
    }
}

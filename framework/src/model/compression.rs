//! Compression of the nodes' data.

use std::fmt;
use std::io;

/// Compresses data before it is written, and decompresses it when it is read: Curator's `CompressionProvider`.
pub trait CompressionProvider: Send + Sync + fmt::Debug + 'static {
    /// Returns the data as it is stored at this path.
    ///
    /// # Errors
    ///
    /// The cause of the failure.
    fn compress(&self, path: &str, data: &[u8]) -> io::Result<Vec<u8>>;

    /// Returns the data as it was before it was compressed.
    ///
    /// # Errors
    ///
    /// The fault in the data. Any client may have written it, so it is untrusted.
    fn decompress(&self, path: &str, compressed: &[u8]) -> io::Result<Vec<u8>>;
}

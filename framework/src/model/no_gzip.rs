//! The place of gzip without the cargo feature `compression`.

use std::io;

use super::compression::CompressionProvider;

/// The provider of a client that sets none.
pub(crate) const DEFAULT: NoGzip = NoGzip;

/// Refuses all data.
#[derive(Debug)]
pub(crate) struct NoGzip;

impl NoGzip {
    fn refuse<T>() -> io::Result<T> {
        Err(io::Error::other("gzip needs the cargo feature `compression`, and no other provider is set"))
    }
}

impl CompressionProvider for NoGzip {
    fn compress(&self, _path: &str, _data: &[u8]) -> io::Result<Vec<u8>> {
        Self::refuse()
    }

    fn decompress(&self, _path: &str, _compressed: &[u8]) -> io::Result<Vec<u8>> {
        Self::refuse()
    }
}

//! Compression with gzip.

use std::io::{self, Read as _, Write as _};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use super::compression::CompressionProvider;

/// The provider of a client that sets none.
pub(crate) const DEFAULT: GzipCompressionProvider = GzipCompressionProvider;

/// The largest size of decompressed data, far above what a server accepts: it bounds the memory for hostile data.
const LARGEST: u64 = 16 << 20;

/// Gzip: Curator's `GzipCompressionProvider`, the default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GzipCompressionProvider;

impl CompressionProvider for GzipCompressionProvider {
    fn compress(&self, _path: &str, data: &[u8]) -> io::Result<Vec<u8>> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(data)?;
        encoder.finish()
    }

    fn decompress(&self, _path: &str, compressed: &[u8]) -> io::Result<Vec<u8>> {
        let mut data = Vec::new();
        let mut limited = GzDecoder::new(compressed).take(LARGEST + 1);
        limited.read_to_end(&mut data)?;
        if data.len() as u64 > LARGEST {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("it is larger than {LARGEST} bytes")));
        }
        Ok(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GZIP: GzipCompressionProvider = GzipCompressionProvider;

    #[test]
    fn what_is_made_smaller_comes_back() {
        for data in [Vec::new(), b"__REVOKE__".to_vec(), vec![7; 100_000]] {
            let stored = GZIP.compress("/a", &data).unwrap();
            assert_eq!(stored[..2], [0x1f, 0x8b], "gzip's own beginning");
            assert_eq!(GZIP.decompress("/a", &stored).unwrap(), data);
        }
        assert!(GZIP.compress("/a", &[7; 100_000]).unwrap().len() < 1_000);
    }

    /// Curator's `TestGzipCompressionProvider.testDecompressCorrupt`.
    #[test]
    fn what_is_corrupt_is_refused_or_read_and_no_panic() {
        assert!(GZIP.decompress("/a", &[0; 100]).is_err());
        let whole = GZIP.compress("/a", b"a few words").unwrap();
        for index in 0..whole.len() {
            assert!(GZIP.decompress("/a", &whole[..index]).is_err(), "the first {index} bytes");
            for change in 1..=u8::MAX {
                let mut corrupt = whole.clone();
                corrupt[index] = corrupt[index].wrapping_add(change);
                if let Ok(data) = GZIP.decompress("/a", &corrupt) {
                    assert_eq!(data, b"a few words", "byte {index}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_gzip_or_grows_without_end_is_refused() {
        assert!(GZIP.decompress("/a", b"plain").is_err());
        assert!(GZIP.decompress("/a", b"").is_err());
        let mut whole = GZIP.compress("/a", &[7; 1000]).unwrap();
        whole.truncate(whole.len() - 4);
        assert!(GZIP.decompress("/a", &whole).is_err());
        let bomb = GZIP.compress("/a", &vec![0; usize::try_from(LARGEST).unwrap() + 1]).unwrap();
        assert_eq!(GZIP.decompress("/a", &bomb).unwrap_err().to_string(), "it is larger than 16777216 bytes");
    }
}

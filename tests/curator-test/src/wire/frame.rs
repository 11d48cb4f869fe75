//! Frames on a connection: a length and as many bytes.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Reads one frame, without its length. Returns `None` if the peer closed between frames.
///
/// # Errors
/// [`InvalidData`](io::ErrorKind::InvalidData) for a length below 0 or above `max_len`,
/// [`UnexpectedEof`](io::ErrorKind::UnexpectedEof) for a peer that closed inside a frame, and any error of `from`.
///
/// # Cancel safety
/// Not cancel safe: the part of a frame read so far is lost.
pub async fn read_frame(from: &mut (impl AsyncRead + Unpin + ?Sized), max_len: usize) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    let mut filled = 0;
    while filled < length.len() {
        match from.read(&mut length[filled..]).await? {
            0 if filled == 0 => return Ok(None),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => filled += count,
        }
    }
    let length = i32::from_be_bytes(length);
    let length = match usize::try_from(length) {
        Ok(length) if length <= max_len => length,
        _ => {
            let message = format!("frame of {length} bytes, at most {max_len} allowed");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
    };
    // The buffer grows with the received bytes: a length alone reserves nothing.
    let mut frame = Vec::new();
    from.take(length as u64).read_to_end(&mut frame).await?;
    if frame.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(frame))
}

/// Writes one frame: the length and `frame`, in one write.
///
/// # Errors
/// [`InvalidInput`](io::ErrorKind::InvalidInput) for a frame above `i32::MAX` bytes,
/// and any error of `to`.
///
/// # Cancel safety
/// Not cancel safe: part of the frame may be written.
pub async fn write_frame(to: &mut (impl AsyncWrite + Unpin + ?Sized), frame: &[u8]) -> io::Result<()> {
    let length =
        i32::try_from(frame.len()).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "frame is too long"))?;
    let mut bytes = Vec::with_capacity(4 + frame.len());
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(frame);
    to.write_all(&bytes).await?;
    to.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_come_back_as_they_went() {
        let mut sent = Vec::new();
        for frame in [&b"one"[..], b"", b"three"] {
            write_frame(&mut sent, frame).await.unwrap();
        }
        let mut from = sent.as_slice();
        assert_eq!(read_frame(&mut from, 5).await.unwrap().unwrap(), b"one");
        assert_eq!(read_frame(&mut from, 5).await.unwrap().unwrap(), b"");
        assert_eq!(read_frame(&mut from, 5).await.unwrap().unwrap(), b"three");
        assert_eq!(read_frame(&mut from, 5).await.unwrap(), None);
    }

    #[tokio::test]
    async fn broken_frames_are_errors() {
        for (input, kind) in [
            (&b"\0\0"[..], io::ErrorKind::UnexpectedEof),
            (b"\0\0\0\x05four", io::ErrorKind::UnexpectedEof),
            (b"\0\0\0\x06sixsix", io::ErrorKind::InvalidData),
            (b"\xff\xff\xff\xff", io::ErrorKind::InvalidData),
            (b"\x7f\xff\xff\xff", io::ErrorKind::InvalidData),
        ] {
            let mut input = input;
            assert_eq!(read_frame(&mut input, 5).await.unwrap_err().kind(), kind);
        }
    }
}

//! Byte streams to servers.

use std::io::{self, Write as _};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::blocking_socket::BlockingSocket;

/// The bytes to and from one server. An implementation needs no method: `impl ByteStream for MyStream {}`.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {
    /// Writes `bytes` and ends the stream, while the runtime cannot be used. Blocks for `limit` at most.
    ///
    /// The client calls it when the runtime ends before the session is closed. `bytes` are the rest of the output, and
    /// the request that closes the session. A stream over a socket of tokio passes the call on to the socket. The
    /// default writes nothing, which leaves the session to the server's timer.
    ///
    /// # Errors
    ///
    /// An [`io::Error`] if the server may not have received the bytes; `Error::Unsupported` by default.
    fn close_blocking(self: Box<Self>, _bytes: &[u8], _limit: Duration) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl ByteStream for TcpStream {
    fn close_blocking(self: Box<Self>, bytes: &[u8], limit: Duration) -> io::Result<()> {
        let mut socket = BlockingSocket::new(self.into_std()?, limit)?;
        socket.write_all(bytes)?;
        socket.end()
    }
}

#[cfg(unix)]
impl ByteStream for tokio::net::UnixStream {
    fn close_blocking(self: Box<Self>, bytes: &[u8], limit: Duration) -> io::Result<()> {
        // The calls of a stream socket are the same for both families.
        let socket = std::net::TcpStream::from(std::os::fd::OwnedFd::from(self.into_std()?));
        let mut socket = BlockingSocket::new(socket, limit)?;
        socket.write_all(bytes)?;
        socket.end()
    }
}

impl ByteStream for tokio::io::DuplexStream {}

/// An open stream to a server.
pub(super) enum Stream {
    /// A TCP stream, to which callers write their own requests.
    Tcp(TcpStream),
    /// Another stream, to which only the socket task writes.
    Other(Box<dyn ByteStream>),
}

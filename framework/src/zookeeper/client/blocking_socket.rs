//! A socket without a runtime, with one time limit for all that it carries.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// A blocking socket that fails with `TimedOut` when its time has ended.
pub(super) struct BlockingSocket {
    socket: TcpStream,
    until: Instant,
}

impl BlockingSocket {
    pub(super) fn new(socket: TcpStream, limit: Duration) -> io::Result<Self> {
        socket.set_nonblocking(false)?;
        Ok(Self { socket, until: Instant::now() + limit })
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        match self.until.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(Some(left)),
        }
    }

    /// Ends the writing, and reads until the peer has ended its writing too. A socket that is closed with unread bytes
    /// resets the connection, and the peer may lose what it has not read.
    pub(super) fn end(mut self) -> io::Result<()> {
        self.socket.shutdown(Shutdown::Write)?;
        io::copy(&mut self, &mut io::sink()).map(drop)
    }
}

impl Read for BlockingSocket {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(self.left()?)?;
        self.socket.read(to)
    }
}

impl Write for BlockingSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(self.left()?)?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

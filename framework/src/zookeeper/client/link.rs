//! The link of a session: its protocol and its connection, which callers and the socket task share.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite as _, ReadBuf, ReadHalf, WriteHalf};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::protocol::{Protocol, Violation};
use super::stream::{ByteStream, Stream};
use crate::environment::clock::Clock;
use crate::environment::randomness::Randomness;
use crate::error::Error;
use crate::zookeeper::{Flush, NotificationCall, Reply, ReplyFuture};

pub(super) type Token = oneshot::Sender<Reply>;

/// The state that the handle and the socket task share.
pub(super) struct SessionIo {
    pub(super) link: Mutex<Link>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) randomness: Arc<dyn Randomness>,
    /// Notifies the socket task that the session's handle has ended: the close timeout starts.
    pub(super) ended: CancellationToken,
    /// The call that makes guards lost when the socket task is dropped.
    pub(super) task_dropped: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// The call that wakes waiters.
    pub(super) notify: OnceLock<NotificationCall>,
}

pub(super) struct Link {
    /// The process that opened the session. A fork copies the session, but shares its socket.
    pub(super) process: u32,
    pub(super) protocol: Protocol<Token>,
    /// The write half of the protocol's connection.
    pub(super) writer: Option<Writer>,
    pub(super) read_only: bool,
    pub(super) task: Option<Waker>,
    /// The stream did not take all output, and wakes the socket task when it can take more.
    pub(super) is_full: bool,
    /// The error of a caller's write, for the socket task.
    pub(super) broken: Option<Violation>,
    /// The number of callers that are submitting several requests: until it is 0, `flush` writes nothing.
    pub(super) gathering: usize,
}

pub(super) enum Reader {
    Tcp(OwnedReadHalf),
    Other(ReadHalf<Box<dyn ByteStream>>),
}

pub(super) enum Writer {
    Tcp(OwnedWriteHalf),
    Other(WriteHalf<Box<dyn ByteStream>>),
}

impl AsyncRead for Reader {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, to),
            Self::Other(stream) => Pin::new(stream).poll_read(cx, to),
        }
    }
}

impl Writer {
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Other(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(_) => Poll::Ready(Ok(())),
            Self::Other(stream) => Pin::new(stream).poll_flush(cx),
        }
    }
}

impl Link {
    fn wake_task(&self) {
        if let Some(task) = &self.task {
            task.wake_by_ref();
        }
    }

    /// Returns `true` in a process that was forked from the one that opened the session.
    pub(super) fn is_copy(&self) -> bool {
        self.process != std::process::id()
    }

    /// Writes the requests that callers have submitted, and leaves the rest to the socket task.
    pub(super) fn flush(&mut self) {
        if !self.flush_now() {
            self.wake_task();
        }
    }

    /// Writes as much as the transport takes now. Returns `false` if the socket task has to write the rest.
    fn flush_now(&mut self) -> bool {
        if self.protocol.output().is_empty() || self.gathering > 0 || self.is_copy() {
            return true;
        }
        match (&mut self.writer, &self.task) {
            (Some(Writer::Tcp(stream)), _) => {
                // The socket task gets the same error when it reads.
                if let Ok(written) = stream.try_write(self.protocol.output()) {
                    self.protocol.written(written);
                }
                self.protocol.output().is_empty()
            }
            _ if self.broken.is_some() => false,
            // A failed write loses the output. When the runtime ends, the socket task still finishes a half-written request.
            _ if self.is_full => true,
            (Some(writer), Some(task)) => {
                self.broken = write(&mut self.protocol, writer, &mut Context::from_waker(task)).err();
                self.is_full = !self.protocol.output().is_empty();
                self.broken.is_none()
            }
            _ => false,
        }
    }

    /// Writes a request that is not urgent. The socket task writes the rest at its next poll, within a second. It is not
    /// woken, because tokio would keep it for the caller's thread, and the caller may compute.
    pub(super) fn flush_some_time(&mut self) {
        let _all_written = self.flush_now();
    }
}

impl Flush for SessionIo {
    fn flush(&self) {
        self.link.lock().flush();
    }
}

impl SessionIo {
    /// Passes a request to the protocol with a channel for its reply.
    pub(super) fn send(
        self: &Arc<Self>,
        submit: impl FnOnce(&mut Protocol<Token>, Token, Duration) -> Result<(), (Token, Error)>,
    ) -> ReplyFuture {
        let (token, reply) = oneshot::channel();
        let now = self.clock.now();
        if let Err((token, error)) = submit(&mut self.link.lock().protocol, token, now) {
            // Never an error: the receiver still exists.
            let _received = token.send(Reply::not_sent(error));
        }
        ReplyFuture::from_channel(reply, Arc::clone(self) as Arc<dyn Flush>)
    }

    pub(super) fn has_session(&self) -> bool {
        self.link.lock().protocol.session_id().is_some()
    }

    pub(super) fn end(&self) {
        let mut link = self.link.lock();
        link.protocol.close(self.clock.now());
        link.wake_task();
        drop(link);
        self.ended.cancel();
    }
}

/// Holds back submitted requests until it is dropped.
pub(super) struct Gathering<'a>(pub(super) &'a SessionIo);

impl<'a> Gathering<'a> {
    pub(super) fn new(shared: &'a SessionIo) -> Self {
        shared.link.lock().gathering += 1;
        Self(shared)
    }
}

impl Drop for Gathering<'_> {
    fn drop(&mut self) {
        let mut link = self.0.link.lock();
        link.gathering -= 1;
        link.flush();
    }
}

pub(super) fn split(stream: Stream) -> (Reader, Writer) {
    match stream {
        Stream::Tcp(stream) => {
            let (reader, writer) = stream.into_split();
            (Reader::Tcp(reader), Writer::Tcp(writer))
        }
        Stream::Other(stream) => {
            let (reader, writer) = tokio::io::split(stream);
            (Reader::Other(reader), Writer::Other(writer))
        }
    }
}

/// Reverses [`split`]. Returns `None` for halves of different streams.
pub(super) fn join(reader: Reader, writer: Writer) -> Option<Box<dyn ByteStream>> {
    match (reader, writer) {
        (Reader::Tcp(reader), Writer::Tcp(writer)) => Some(Box::new(reader.reunite(writer).ok()?)),
        (Reader::Other(reader), Writer::Other(writer)) if reader.is_pair_of(&writer) => Some(reader.unsplit(writer)),
        _ => None,
    }
}

/// Writes the output as far as the transport takes it.
pub(super) fn write(
    protocol: &mut Protocol<Token>,
    writer: &mut Writer,
    cx: &mut Context<'_>,
) -> Result<(), Violation> {
    let failed = |error: io::Error| Violation(reason(&error));
    while !protocol.output().is_empty() {
        match writer.poll_write(cx, protocol.output()) {
            Poll::Ready(Ok(0)) => return Err(Violation("the connection takes no more bytes".to_owned())),
            Poll::Ready(Ok(written)) => protocol.written(written),
            Poll::Ready(Err(error)) => {
                // TLS may have written a part in several records before the one that failed.
                if matches!(writer, Writer::Other(_)) {
                    protocol.written(protocol.output().len());
                }
                return Err(failed(error));
            }
            Poll::Pending => return Ok(()),
        }
    }
    match writer.poll_flush(cx) {
        Poll::Ready(Err(error)) => Err(failed(error)),
        _ => Ok(()),
    }
}

/// Describes a stream's error. TLS reports a certificate that it rejects only when it reads.
pub(super) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::InvalidData => format!("TLS: {error}"),
        _ => error.to_string(),
    }
}

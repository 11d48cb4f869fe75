//! A link of the simulation as a byte stream, for the framework's own client.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use curator_framework::spi::{ByteStream, Connector};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;

use super::ClientId;
use super::world::{FromServer, LinkId, World};

/// Opens links to the client's server.
pub(super) struct SimulatedNetwork {
    world: Arc<World>,
    client: ClientId,
}

impl SimulatedNetwork {
    pub(super) fn new(world: Arc<World>, client: ClientId) -> Self {
        Self { world, client }
    }
}

impl fmt::Debug for SimulatedNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedNetwork").field("client", &self.client).finish_non_exhaustive()
    }
}

#[async_trait]
impl Connector for SimulatedNetwork {
    async fn connect(&self, _server: &str) -> io::Result<Box<dyn ByteStream>> {
        let (link, inbox) = self.world.open(self.client);
        let world = Arc::clone(&self.world);
        Ok(Box::new(LinkStream { world, link, inbox, unread: Vec::new(), unsent: Vec::new() }))
    }
}

/// Frames of a link as bytes: each arrives whole, at its time.
struct LinkStream {
    world: Arc<World>,
    link: LinkId,
    inbox: mpsc::UnboundedReceiver<FromServer>,
    /// Bytes that arrived and were not read yet.
    unread: Vec<u8>,
    /// The start of a frame that is written in parts.
    unsent: Vec<u8>,
}

impl LinkStream {
    fn arrived(&mut self, frame: Vec<u8>) {
        self.unread.extend(u32::try_from(frame.len()).unwrap_or(u32::MAX).to_be_bytes());
        self.unread.extend(frame);
    }
}

impl AsyncRead for LinkStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while self.unread.is_empty() {
            match std::task::ready!(self.inbox.poll_recv(cx)) {
                Some(FromServer::Frame(frame)) => self.arrived(frame),
                Some(FromServer::Closed) | None => return Poll::Ready(Ok(())),
            }
        }
        let count = to.remaining().min(self.unread.len());
        to.put_slice(&self.unread[..count]);
        self.unread.drain(..count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for LinkStream {
    fn poll_write(mut self: Pin<&mut Self>, _cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.unsent.extend_from_slice(bytes);
        while let Some((length, rest)) = self.unsent.split_first_chunk::<4>() {
            let length = u32::from_be_bytes(*length) as usize;
            let Some(frame) = rest.get(..length) else { break };
            self.world.send(self.link, frame.to_vec());
            self.unsent.drain(..4 + length);
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A simulated program ends without a last request.
impl ByteStream for LinkStream {}

impl Drop for LinkStream {
    fn drop(&mut self) {
        self.world.close(self.link);
    }
}

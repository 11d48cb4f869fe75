//! A link of the simulation as a byte stream, for the framework's own client.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use async_trait::async_trait;
use curator_framework::mutants::{Mutant, is_broken};
use curator_framework::{ByteStream, Connector};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;

use super::ClientId;
use super::world::{FromServer, LinkId, World};
use crate::wire::{ErrorCode, OpCode, Reader, RequestHeader};

/// Where the error stands in a reply, behind its number and the server's transaction.
const ERR: usize = 4 + 8;

/// Opens links to the client's server.
pub(super) struct SimulatedNetwork {
    world: Arc<World>,
    client: ClientId,
    /// A link was opened before.
    linked: AtomicBool,
}

impl SimulatedNetwork {
    pub(super) fn new(world: Arc<World>, client: ClientId) -> Self {
        Self { world, client, linked: AtomicBool::new(false) }
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
        let again = self.linked.swap(true, Ordering::SeqCst);
        let shifted = (again && is_broken(Mutant::ShiftTheReplies)).then(Vec::new);
        let world = Arc::clone(&self.world);
        Ok(Box::new(LinkStream { world, link, inbox, unread: Vec::new(), unsent: Vec::new(), shifted }))
    }
}

/// Frames of a link as bytes: each arrives whole, in its time.
struct LinkStream {
    world: Arc<World>,
    link: LinkId,
    inbox: mpsc::UnboundedReceiver<FromServer>,
    /// What arrived and was not read yet.
    unread: Vec<u8>,
    /// The beginning of a frame that is written in parts.
    unsent: Vec<u8>,
    /// What is behind the number of the newest reply, where each request gets its predecessor's answer.
    shifted: Option<Vec<u8>>,
}

impl LinkStream {
    fn arrived(&mut self, mut frame: Vec<u8>) {
        let is_reply = frame.len() >= 4 + ERR && i32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]) > 0;
        if let (true, Some(before)) = (is_reply, &mut self.shifted) {
            let newer = frame.split_off(4);
            let mut older = std::mem::replace(before, newer);
            if older.is_empty() {
                older = [&[0; 8][..], &ErrorCode::NoNode.code().to_be_bytes()].concat();
            }
            frame.extend(older);
        }
        self.unread.extend(u32::try_from(frame.len()).unwrap_or(u32::MAX).to_be_bytes());
        self.unread.extend(frame);
    }
}

/// The frame as it is sent; where reconnects are slept through, a list of watches asks for no replay.
fn without_replay(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let op = RequestHeader::decode(&mut Reader::new(&frame)).map(|header| header.op);
    if is_broken(Mutant::SleepThroughReconnects) && matches!(op, Ok(OpCode::SetWatches | OpCode::SetWatches2)) {
        frame[8..16].copy_from_slice(&i64::MAX.to_be_bytes());
    }
    frame
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
            self.world.send(self.link, without_replay(frame));
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

impl Drop for LinkStream {
    fn drop(&mut self) {
        self.world.close(self.link);
    }
}

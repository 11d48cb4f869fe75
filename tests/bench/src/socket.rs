//! A ZooKeeper session over one socket: the codec and the system calls, with no task, timer or reconnect.
//!
//! The socket is tokio's, or a blocking one with futures that [`now`] runs: both use the same code.

use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use curator_test::wire::{
    Acl, ConnectRequest, OpCode, Reader, ReplyHeader, RequestHeader, WatchEvent, Writer, XID_EVENT,
};
use futures_util::FutureExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, ReadBuf};

use crate::plain::{PREFIX, Session};
use crate::process::Result;

const PERSISTENT: i32 = 0;
const EPHEMERAL_SEQUENTIAL: i32 = 3;

/// A socket that blocks its thread.
pub struct Blocking(std::net::TcpStream);

impl AsyncRead for Blocking {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let length = self.0.read(buffer.initialize_unfilled())?;
        buffer.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Blocking {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(self.0.write(bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Runs a future of a blocking socket, which never waits.
pub fn now<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    future.now_or_never().ok_or("a blocking socket has to wait")?
}

pub struct Socket<S> {
    stream: BufReader<S>,
    /// Frames that the next write sends.
    output: Vec<u8>,
    /// Replies that arrived before a notification that was awaited.
    replies: VecDeque<(i32, Vec<u8>)>,
    /// The paths of the notifications received.
    notified: Vec<String>,
}

impl Socket<Blocking> {
    pub fn connect_blocking(server: SocketAddr) -> Result<Self> {
        let stream = std::net::TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        now(Self::begin(Blocking(stream)))
    }
}

impl Socket<tokio::net::TcpStream> {
    pub async fn connect(server: SocketAddr) -> Result<Self> {
        let stream = tokio::net::TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        Self::begin(stream).await
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<S> {
    async fn begin(stream: S) -> Result<Self> {
        let stream = BufReader::new(stream);
        let mut own = Self { stream, output: Vec::new(), replies: VecDeque::new(), notified: Vec::new() };
        let request = ConnectRequest { timeout_ms: 60_000, password: vec![0; 16], ..ConnectRequest::default() };
        own.frame(|to| request.encode(to));
        own.flush().await?;
        own.read().await?;
        Ok(own)
    }

    /// Appends a request to the output.
    fn request(&mut self, op: OpCode, body: impl FnOnce(&mut Writer)) {
        self.frame(|to| {
            // The server replies in order, so all requests can have the same number.
            RequestHeader { xid: 1, op }.encode(to);
            body(to);
        });
    }

    fn frame(&mut self, body: impl FnOnce(&mut Writer)) {
        let start = self.output.len();
        let mut frame = Writer::append_to(std::mem::take(&mut self.output));
        frame.int(0);
        body(&mut frame);
        self.output = frame.into_bytes();
        let body = start + 4;
        let length = i32::try_from(self.output.len() - body).unwrap_or(i32::MAX);
        self.output[start..body].copy_from_slice(&length.to_be_bytes());
    }

    /// Sends the output in one write.
    async fn flush(&mut self) -> Result<()> {
        self.stream.get_mut().write_all(&self.output).await?;
        self.output.clear();
        Ok(())
    }

    async fn read(&mut self) -> Result<Vec<u8>> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).await?;
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        self.stream.read_exact(&mut frame).await?;
        Ok(frame)
    }

    /// Reads a reply or a notification.
    async fn receive(&mut self) -> Result<()> {
        let mut frame = self.read().await?;
        let mut reader = Reader::new(&frame);
        let header = ReplyHeader::decode(&mut reader)?;
        if header.xid == XID_EVENT {
            self.notified.push(WatchEvent::decode(&mut reader)?.path);
        } else {
            self.replies.push_back((header.err, frame.split_off(16)));
        }
        Ok(())
    }

    /// Reads the next reply: its error and its body.
    async fn reply(&mut self) -> Result<(i32, Vec<u8>)> {
        loop {
            if let Some(reply) = self.replies.pop_front() {
                return Ok(reply);
            }
            self.receive().await?;
        }
    }

    fn request_create(&mut self, path: &str, mode: i32) {
        self.request(OpCode::Create2, |to| {
            to.string(path).buffer(b"127.0.0.1").vector(&[Acl::open()], |to, acl| acl.encode(to)).int(mode);
        });
    }

    fn request_list(&mut self, parent: &str, watch: bool) {
        self.request(OpCode::GetChildren, |to| _ = to.string(parent).bool(watch));
    }

    /// Creates an ephemeral sequential node below each path, and lists each path. Returns the nodes.
    pub async fn join_all(&mut self, paths: &[String]) -> Result<Vec<String>> {
        let request = |own: &mut Self, path: &String| {
            own.request_create(&format!("{path}/{PREFIX}lock-"), EPHEMERAL_SEQUENTIAL);
            own.request_list(path, true);
        };
        let replies = self.exchange(paths, 2, request).await?;
        replies.iter().step_by(2).map(|body| Ok(Reader::new(body).string()?.to_owned())).collect()
    }

    pub async fn delete_all(&mut self, nodes: &[String]) -> Result<()> {
        let request = |own: &mut Self, node: &String| own.request(OpCode::Delete, |to| _ = to.string(node).int(-1));
        self.exchange(nodes, 1, request).await.map(drop)
    }

    /// Sends the requests of 256 items in a write. Before the next write it reads replies, until at most 256 items
    /// have none yet.
    async fn exchange<T>(
        &mut self,
        items: &[T],
        requests_per_item: usize,
        request: impl Fn(&mut Self, &T),
    ) -> Result<Vec<Vec<u8>>> {
        const ITEMS_PER_WRITE: usize = 256;
        let (mut bodies, mut sent) = (Vec::new(), 0);
        for part in items.chunks(ITEMS_PER_WRITE) {
            part.iter().for_each(|item| request(self, item));
            self.flush().await?;
            sent += part.len() * requests_per_item;
            while sent - bodies.len() > ITEMS_PER_WRITE * requests_per_item {
                bodies.push(self.body().await?);
            }
        }
        while bodies.len() < sent {
            bodies.push(self.body().await?);
        }
        self.notified.clear();
        Ok(bodies)
    }

    /// Reads the next reply, and fails if it is an error.
    async fn body(&mut self) -> Result<Vec<u8>> {
        match self.reply().await? {
            (0, body) => Ok(body),
            (error, _) => Err(format!("error {error}").into()),
        }
    }

    /// Returns the number of nodes below a path.
    pub async fn descendants(&mut self, path: &str) -> Result<usize> {
        self.request(OpCode::GetAllChildrenNumber, |to| _ = to.string(path));
        self.flush().await?;
        let body = self.body().await?;
        Ok(Reader::new(&body).int()?.try_into()?)
    }

    /// Creates a node; an error of the server is ignored, since the node may exist.
    pub async fn create_parent(&mut self, path: &str) -> Result<()> {
        self.request_create(path, PERSISTENT);
        self.flush().await?;
        self.reply().await?;
        Ok(())
    }

    pub async fn close(mut self) -> Result<()> {
        self.request(OpCode::CloseSession, |_| {});
        self.flush().await
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Session for Socket<S> {
    const LISTS_AGAIN: bool = false;

    async fn join(&mut self, parent: &str, prefix: &str) -> Result<(String, Vec<String>)> {
        self.request_create(prefix, EPHEMERAL_SEQUENTIAL);
        self.request_list(parent, false);
        self.flush().await?;
        let (error, body) = self.reply().await?;
        if error != 0 {
            return Err(format!("{prefix}: error {error}").into());
        }
        let own = Reader::new(&body).string()?.to_owned();
        Ok((own, names(&self.reply().await?.1)?))
    }

    async fn children(&mut self, parent: &str, watch: bool) -> Result<Vec<String>> {
        self.request_list(parent, watch);
        self.flush().await?;
        let children = names(&self.reply().await?.1);
        // The listing is newer than the notifications before it.
        self.notified.clear();
        children
    }

    async fn changed(&mut self, path: &str) -> Result<()> {
        while !self.notified.iter().any(|of| of == path) {
            self.receive().await?;
        }
        self.notified.clear();
        Ok(())
    }

    async fn gone(&mut self, path: &str) -> Result<()> {
        self.request(OpCode::GetData, |to| _ = to.string(path).bool(true));
        self.flush().await?;
        match self.reply().await?.0 {
            0 => self.changed(path).await,
            _ => Ok(()),
        }
    }

    async fn delete(&mut self, path: &str) -> Result<()> {
        self.request(OpCode::Delete, |to| _ = to.string(path).int(-1));
        self.flush().await?;
        let (error, _) = self.reply().await?;
        if error == 0 { Ok(()) } else { Err(format!("{path}: error {error}").into()) }
    }
}

fn names(body: &[u8]) -> Result<Vec<String>> {
    Ok(Reader::new(body).vector(|from| Ok(from.string()?.to_owned()))?)
}

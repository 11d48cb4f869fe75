//! Opens byte streams to servers.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::stream::{ByteStream, Stream};
use crate::environment::randomness::{Randomness, shuffle};
use crate::sync::user_code::{catch_panic, catch_panic_of};
use crate::zookeeper::ConnectConfig;

/// A custom way to open connections to servers.
#[async_trait]
pub trait Connector: Send + Sync + fmt::Debug + 'static {
    /// Opens a connection to a server, `host:port`. The client limits the time of the call.
    ///
    /// # Errors
    ///
    /// An [`io::Error`] that says what is wrong with the server: the client tries the next one.
    async fn connect(&self, server: &str) -> io::Result<Box<dyn ByteStream>>;
}

const STREAM: &str = "stream of the connector";

/// The stream of a connector. Its panic breaks the connection, not the session's task.
struct ContainedStream(Option<Box<dyn ByteStream>>);

impl ContainedStream {
    fn poll<T>(&mut self, poll: impl FnOnce(Pin<&mut dyn ByteStream>) -> Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        let Some(stream) = &mut self.0 else { return Poll::Ready(Err(io::ErrorKind::NotConnected.into())) };
        let polled = catch_panic(STREAM, || poll(Pin::new(&mut **stream)));
        polled.unwrap_or_else(|panic| Poll::Ready(Err(io::Error::other(panic))))
    }
}

impl Drop for ContainedStream {
    fn drop(&mut self) {
        let stream = self.0.take();
        // The panic is logged.
        let _panicked = catch_panic(STREAM, || drop(stream));
    }
}

impl AsyncRead for ContainedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll(|stream| stream.poll_read(cx, buf))
    }
}

impl AsyncWrite for ContainedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll(|stream| stream.poll_write(cx, bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(|stream| stream.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(|stream| stream.poll_shutdown(cx))
    }
}

impl ByteStream for ContainedStream {
    fn close_blocking(mut self: Box<Self>, bytes: &[u8], limit: Duration) -> io::Result<()> {
        let Some(stream) = self.0.take() else { return Err(io::ErrorKind::NotConnected.into()) };
        catch_panic(STREAM, || stream.close_blocking(bytes, limit)).map_err(io::Error::other)?
    }
}

/// The opener of one session's streams.
pub(super) struct Opener {
    connector: Option<Arc<dyn Connector>>,
    #[cfg(any(feature = "tls", feature = "tls-ring"))]
    tls: Option<super::tls::Tls>,
    randomness: Arc<dyn Randomness>,
}

impl Opener {
    pub(super) fn new(connector: Option<Arc<dyn Connector>>, config: &ConnectConfig) -> Self {
        Self {
            connector,
            #[cfg(any(feature = "tls", feature = "tls-ring"))]
            tls: super::tls::Tls::of(config),
            randomness: Arc::clone(&config.randomness),
        }
    }

    /// Returns the addresses of a server in random order, or one `None` if the connector takes its name.
    ///
    /// # Errors
    ///
    /// An [`io::Error`] if the name cannot be resolved.
    pub(super) async fn resolve(&self, server: &str) -> io::Result<Vec<Option<SocketAddr>>> {
        if self.connector.is_some() {
            return Ok(vec![None]);
        }
        // Resolved again each time, on tokio's threads for blocking work: a name may move to another address.
        let found = tokio::net::lookup_host(server).await;
        let mut addresses: Vec<_> = found
            .map_err(|error| io::Error::new(error.kind(), format!("name not resolved: {error}")))?
            .map(Some)
            .collect();
        shuffle(&mut addresses, &*self.randomness);
        Ok(addresses)
    }

    /// Opens a stream to a server, at `address` unless the connector takes its name.
    ///
    /// # Errors
    ///
    /// An [`io::Error`] that says what is wrong with the server.
    pub(super) async fn open(&self, server: &str, address: Option<SocketAddr>) -> io::Result<Stream> {
        match (&self.connector, address) {
            (Some(connector), _) => {
                let connected = catch_panic_of("connector", || connector.connect(server)).await;
                let stream = connected.map_err(io::Error::other)??;
                Ok(Stream::Other(Box::new(ContainedStream(Some(stream)))))
            }
            (None, Some(address)) => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                self.secure(stream, server).await
            }
            (None, None) => Err(io::Error::other("its name has no address")),
        }
    }

    async fn secure(&self, stream: TcpStream, _server: &str) -> io::Result<Stream> {
        #[cfg(any(feature = "tls", feature = "tls-ring"))]
        if let Some(tls) = &self.tls {
            return tls.connect(stream, _server).await;
        }
        Ok(Stream::Tcp(stream))
    }
}

//! Opens byte streams to servers.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::environment::randomness::{Randomness, shuffle};
use crate::error::ConnectError;
use crate::zookeeper::ConnectConfig;

/// The bytes to and from one server.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

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

/// An open stream to a server.
pub(super) enum Stream {
    /// A TCP stream, to which callers write their own requests.
    Tcp(TcpStream),
    /// Another stream, to which only the driver writes.
    Other(Box<dyn ByteStream>),
}

/// The opener of one session's streams.
pub(super) struct Opener {
    connector: Option<Arc<dyn Connector>>,
    #[cfg(feature = "tls")]
    tls: Option<super::tls::Tls>,
    randomness: Arc<dyn Randomness>,
}

impl Opener {
    /// # Errors
    ///
    /// A [`ConnectError`] that says what is wrong with the options of TLS.
    pub(super) fn new(connector: Option<Arc<dyn Connector>>, config: &ConnectConfig) -> Result<Self, ConnectError> {
        Ok(Self {
            connector,
            #[cfg(feature = "tls")]
            tls: match &config.tls {
                Some(options) => {
                    Some(super::tls::Tls::new(options).map_err(|reason| ConnectError::new("TLS", reason))?)
                }
                None => None,
            },
            randomness: Arc::clone(&config.randomness),
        })
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
        // Resolved anew each time, on tokio's threads for blocking work: a name may move to another address.
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
            (Some(connector), _) => connector.connect(server).await.map(Stream::Other),
            (None, Some(address)) => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                self.secure(stream, server).await
            }
            (None, None) => Err(io::Error::other("its name has no address")),
        }
    }

    async fn secure(&self, stream: TcpStream, _server: &str) -> io::Result<Stream> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return tls.connect(stream, _server).await;
        }
        Ok(Stream::Tcp(stream))
    }
}

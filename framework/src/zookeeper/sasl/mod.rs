//! The login by SASL: what a mechanism does, and the one that the framework has.

mod digest_md5;

use std::fmt;
use std::net::SocketAddr;

use async_trait::async_trait;

#[cfg(test)]
pub(crate) use self::digest_md5::DigestMd5;
pub use self::digest_md5::SaslDigest;

/// A mechanism of SASL, by which a client logs in on each new connection, before its first request.
///
/// The framework has [`SaslDigest`]. A crate of its own, `curator-gssapi`, has Kerberos.
///
/// A mechanism must not own a clone of its client, which it would keep open.
///
/// # Examples
///
/// A mechanism that sends one token, and expects the reply without a token that ends the login:
///
/// ```
/// use async_trait::async_trait;
/// use curator_framework::{SaslConversation, SaslError, SaslMechanism, SaslServer};
///
/// #[derive(Debug)]
/// struct Ticket(Vec<u8>);
///
/// #[async_trait]
/// impl SaslMechanism for Ticket {
///     fn name(&self) -> &str {
///         "TICKET"
///     }
///
///     async fn start(&self, _server: SaslServer) -> Result<(Vec<u8>, Box<dyn SaslConversation>), SaslError> {
///         Ok((self.0.clone(), Box::new(Sent)))
///     }
/// }
///
/// struct Sent;
///
/// #[async_trait]
/// impl SaslConversation for Sent {
///     async fn step(&mut self, token: Option<&[u8]>) -> Result<Option<Vec<u8>>, SaslError> {
///         match token {
///             None => Ok(None),
///             Some(_) => Err(SaslError::Protocol("the server asks for a second token".to_owned())),
///         }
///     }
/// }
/// ```
#[async_trait]
pub trait SaslMechanism: Send + Sync + fmt::Debug + 'static {
    /// Returns the name of the mechanism, for messages: `GSSAPI`.
    fn name(&self) -> &str;

    /// Starts the login on one connection. Returns the first token, which may be empty, and the rest of the conversation.
    ///
    /// The time counts as the connection's. A call that blocks its thread belongs into `tokio::task::spawn_blocking`. A
    /// panic breaks the connection.
    ///
    /// # Errors
    ///
    /// [`SaslError`], which says if the client tries again.
    ///
    /// # Cancel safety
    ///
    /// The client drops the future when the connection breaks or has no time left.
    async fn start(&self, server: SaslServer) -> Result<(Vec<u8>, Box<dyn SaslConversation>), SaslError>;
}

/// The login on one connection, behind its first token.
#[async_trait]
pub trait SaslConversation: Send {
    /// Returns the answer to a token of the server, or `None` if the login is complete.
    ///
    /// A reply without a token is `None`. It follows the last token of some mechanisms. Before that, the server has no
    /// SASL, or accepts clients that have failed to log in.
    ///
    /// # Errors
    ///
    /// [`SaslError`], which says if the client tries again.
    ///
    /// # Cancel safety
    ///
    /// The client drops the future when the connection breaks or has no time left.
    async fn step(&mut self, token: Option<&[u8]>) -> Result<Option<Vec<u8>>, SaslError>;
}

/// The server that a client logs in to.
#[derive(Debug, Clone)]
pub struct SaslServer {
    host: String,
    address: Option<SocketAddr>,
    nonce: u64,
}

impl SaslServer {
    /// Describes a server, `host:port` as in the connect string.
    pub(crate) fn new(server: &str, address: Option<SocketAddr>, nonce: u64) -> Self {
        let host = server.rsplit_once(':').map_or(server, |(host, _port)| host);
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        Self { host: host.to_owned(), address, nonce }
    }

    /// Returns the host as in the connect string, without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the address of the connection; `None` if a connector has opened it.
    #[must_use]
    pub const fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Returns a random number, another one for each login.
    #[must_use]
    pub const fn nonce(&self) -> u64 {
        self.nonce
    }
}

/// The reason why a login has failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SaslError {
    /// The credentials cannot be used: a wrong password, no ticket or an expired one. As with a refusal by the server,
    /// operations fail with [`Error::AuthFailed`](crate::Error::AuthFailed), and an open session ends. The client tries to
    /// make another session, with pauses of up to 30 s, so it recovers once the credentials can be used.
    #[error("{0}")]
    Credentials(String),
    /// A service that the login needs does not answer. The client tries the next server, and again.
    #[error("{0}")]
    Unavailable(String),
    /// A token of the server is wrong or unexpected. The client tries the next server, and again.
    #[error("{0}")]
    Protocol(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_the_one_of_the_connect_string() {
        for (server, host) in [("zk1.example:2181", "zk1.example"), ("[::1]:2181", "::1"), ("10.0.0.1:1", "10.0.0.1")] {
            assert_eq!(SaslServer::new(server, None, 0).host(), host);
        }
    }
}

//! A login by SASL with a mechanism that a test supplies.

use std::fmt;
use std::sync::Arc;

/// The answer of a [`TestingServer`](crate::TestingServer) to a token of a client that logs in by SASL.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SaslAnswer {
    /// This token; the client may send another one.
    Token(Vec<u8>),
    /// No token, and the connection gets the identity `sasl:<user>`.
    Accept(String),
    /// The last token of the server, and the connection gets the identity `sasl:<user>`.
    AcceptWith(String, Vec<u8>),
    /// No token and no identity: the reply of a server without SASL, or with `allowSaslFailedClients`.
    Ignore,
    /// `AuthFailed`, and the end of the connection.
    Refuse,
}

type Answer = dyn Fn(&[Vec<u8>]) -> SaslAnswer + Send + Sync;

/// The server's side of a mechanism: answers the tokens that a connection has sent so far.
#[derive(Clone)]
pub(super) struct Mechanism(pub(super) Arc<Answer>);

impl fmt::Debug for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Mechanism").finish()
    }
}

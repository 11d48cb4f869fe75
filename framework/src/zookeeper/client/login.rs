//! The login of one connection: runs the conversation of a SASL mechanism.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;

use crate::sync::user_code::catch_panic_of;
use crate::zookeeper::sasl::{SaslError, SaslMechanism, SaslServer};

/// A conversation with a server.
pub(super) struct Login {
    conversation: BoxFuture<'static, Result<(), Failed>>,
    /// The tokens of the mechanism, at most one at a time.
    tokens: mpsc::UnboundedReceiver<Vec<u8>>,
    /// The tokens of the server.
    replies: mpsc::UnboundedSender<Option<Vec<u8>>>,
}

/// A login that has failed.
pub(super) struct Failed {
    pub(super) reason: String,
    /// The credentials are of no use on any server.
    pub(super) is_final: bool,
}

impl Login {
    pub(super) fn new(mechanism: Arc<dyn SaslMechanism>, server: SaslServer) -> Self {
        let (to_server, tokens) = mpsc::unbounded_channel();
        let (replies, from_server) = mpsc::unbounded_channel();
        let conversation = async move {
            let call = || converse(mechanism, server, to_server, from_server);
            let panicked = |reason| Err(Failed { reason, is_final: false });
            catch_panic_of("SASL mechanism", call).await.unwrap_or_else(panicked)
        };
        Self { conversation: conversation.boxed(), tokens, replies }
    }

    /// Passes on the server's reply to a token.
    pub(super) fn replied(&self, token: Option<Vec<u8>>) {
        // A conversation that has ended is not polled again.
        let _ended = self.replies.send(token);
    }

    /// Returns the next token to send; `None` if the login is complete.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Vec<u8>>, Failed>> {
        let ended = self.conversation.as_mut().poll(cx);
        match self.tokens.try_recv() {
            // The conversation waits for the reply.
            Ok(token) => Poll::Ready(Ok(Some(token))),
            Err(_) => ended.map_ok(|()| None),
        }
    }
}

async fn converse(
    mechanism: Arc<dyn SaslMechanism>,
    server: SaslServer,
    to_server: mpsc::UnboundedSender<Vec<u8>>,
    mut from_server: mpsc::UnboundedReceiver<Option<Vec<u8>>>,
) -> Result<(), Failed> {
    let failed = |error: SaslError| Failed {
        reason: format!("SASL {}: {error}", mechanism.name()),
        is_final: matches!(error, SaslError::Credentials(_)),
    };
    let (mut token, mut conversation) = mechanism.start(server).await.map_err(failed)?;
    loop {
        // Without a receiver the connection is gone, and this future with it.
        let _gone = to_server.send(token);
        let Some(reply) = from_server.recv().await else { return std::future::pending().await };
        match conversation.step(reply.as_deref()).await.map_err(failed)? {
            Some(answer) => token = answer,
            None => return Ok(()),
        }
    }
}

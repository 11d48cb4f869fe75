//! Replies of a server.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;

#[cfg(doc)]
use super::request::{Operation, Read, Request};
#[cfg(doc)]
use crate::environment::clock::Clock;
use crate::error::{Error, Result};
use crate::model::{Acl, Identity, Stat};

/// The result of an [`Operation`] in a transaction that succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Done {
    /// The node was created.
    Created {
        /// The node's path, with the number that the server appended.
        path: String,
        /// Its stat.
        stat: Stat,
    },
    /// The node was deleted.
    Deleted,
    /// The node's data was changed; its new stat.
    Set(Stat),
    /// The node existed, with the version that was required.
    Checked,
}

/// The result of a [`Read`] among several.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadDone {
    /// The node's data and stat.
    Data(Vec<u8>, Stat),
    /// The names of the node's children.
    Children(Vec<String>),
    /// The read has failed with this error code of the server.
    Failed(i32),
}

/// The content of a successful reply to a [`Request`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Response {
    /// The reply to `Create`.
    Created {
        /// The node's path, with the number that the server appended.
        path: Arc<str>,
        /// Its stat.
        stat: Stat,
    },
    /// The reply to `Delete`.
    Deleted,
    /// The reply to `Exists`.
    Exists(Option<Stat>),
    /// The reply to `GetData` and `Reconfig`.
    Data(Vec<u8>, Stat),
    /// The reply to `SetData` and `SetAcl`.
    Stat(Stat),
    /// The reply to `GetChildren`.
    Children(Vec<String>),
    /// The reply to `GetEphemerals`: the paths, in no particular order.
    Ephemerals(Vec<String>),
    /// The reply to `GetAcl`.
    Acl(Vec<Acl>, Stat),
    /// The reply to `Sync`.
    Synced,
    /// The reply to `Transaction`: the result of each operation.
    Done(Vec<Done>),
    /// The reply to `MultiRead`: the result of each read.
    Reads(Vec<ReadDone>),
    /// The reply to `WhoAmI`.
    Identities(Vec<Identity>),
    /// The reply to a heartbeat, and to a request without another content.
    Acknowledged,
}

impl Response {
    /// Returns the kind of reply for messages, which must not show its content.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Created { .. } => "a created node",
            Self::Deleted => "a deletion",
            Self::Exists(_) => "whether a node exists",
            Self::Data(..) => "data",
            Self::Stat(_) => "a stat",
            Self::Children(_) => "children",
            Self::Ephemerals(_) => "ephemeral nodes",
            Self::Acl(..) => "an access control list",
            Self::Synced => "a sync",
            Self::Done(_) => "a transaction",
            Self::Reads(_) => "several reads",
            Self::Identities(_) => "identities",
            Self::Acknowledged => "an acknowledgement",
        }
    }
}

/// A reply, with the moment at which its request was sent.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The moment at which the request was sent, on the framework's [`Clock`]; `None` if it was not.
    pub sent: Option<Duration>,
    /// The connection that carried the reply, counted within the session from 1; 0 if no connection carried one.
    pub epoch: u64,
    /// The newest transaction that the server had applied when it replied; 0 if the client does not report it.
    pub zxid: i64,
    /// The reply itself.
    pub result: Result<Response>,
}

impl Reply {
    /// Creates a reply that carries an error and no moment of sending.
    #[must_use]
    pub const fn not_sent(error: Error) -> Self {
        Self { sent: None, epoch: 0, zxid: 0, result: Err(error) }
    }
}

/// The future of a reply. Dropping it does not withdraw the request.
#[must_use = "futures do nothing unless polled"]
pub struct ReplyFuture(Source);

enum Source {
    Channel { reply: oneshot::Receiver<Reply>, unsent: Option<Arc<dyn Flush>> },
    Boxed(Pin<Box<dyn Future<Output = Reply> + Send>>),
}

/// Writes the requests that were submitted and not written yet.
pub(crate) trait Flush: Send + Sync {
    fn flush(&self);
}

impl ReplyFuture {
    /// Wraps a future that resolves with the reply.
    pub fn new(reply: impl Future<Output = Reply> + Send + 'static) -> Self {
        Self(Source::Boxed(Box::pin(reply)))
    }

    /// Wraps a channel that delivers the reply. The first poll, or the drop, flushes: one write sends all requests that
    /// one task submits before it waits.
    pub(crate) fn from_channel(reply: oneshot::Receiver<Reply>, unsent: Arc<dyn Flush>) -> Self {
        Self(Source::Channel { reply, unsent: Some(unsent) })
    }
}

impl Future for ReplyFuture {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Reply> {
        match &mut self.0 {
            Source::Boxed(reply) => reply.as_mut().poll(cx),
            Source::Channel { reply, unsent } => {
                if let Some(unsent) = unsent.take() {
                    unsent.flush();
                }
                // The sender is dropped without a reply only if the client's task was dropped with its runtime.
                Pin::new(reply).poll(cx).map(|reply| {
                    reply.unwrap_or_else(|_gone| {
                        let request = "a request of a client whose runtime has ended".into();
                        Reply::not_sent(Error::ConnectionLoss { request, sent: true, cause: None })
                    })
                })
            }
        }
    }
}

impl Drop for ReplyFuture {
    fn drop(&mut self) {
        if let Source::Channel { unsent: Some(unsent), .. } = &self.0 {
            unsent.flush();
        }
    }
}

impl fmt::Debug for ReplyFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplyFuture").finish_non_exhaustive()
    }
}

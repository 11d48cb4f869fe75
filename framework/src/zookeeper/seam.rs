//! The traits of a ZooKeeper client, and the events of its sessions.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;

use super::connect_config::ConnectConfig;
use super::reply::ReplyFuture;
use super::request::{DEFAULT_CLIENT, Evidence, Request};
use super::watch_events::{Resync, WatchEvents};
use crate::error::{ConnectError, Error, Result};
use crate::model::{AddWatchMode, AuthInfo, WatchKind, WatchedEvent};

/// The future of a request for a persistent watch: resolves once the server has set the watch, with the stream of its
/// events.
pub type AddedWatch = Pin<Box<dyn Future<Output = Result<WatchEvents>> + Send>>;

/// The optional features that a client supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Capabilities {
    /// Container nodes, which the server removes when they are empty.
    pub containers: bool,
    /// Nodes with a time to live.
    pub ttl: bool,
    /// Transactions.
    pub transactions: bool,
    /// The `sync` request.
    pub sync: bool,
    /// Listing the session's ephemeral nodes.
    pub ephemerals: bool,
    /// Removing a watch.
    pub remove_watches: bool,
    /// Persistent watches, on one node or on its whole subtree.
    pub persistent_watches: bool,
    /// Connecting to a read-only server.
    pub read_only: bool,
    /// Sequential nodes named by the number alone, from a path that ends with a slash.
    pub bare_numbers: bool,
    /// Changing the ensemble's members.
    pub reconfig: bool,
    /// TLS.
    pub tls: bool,
    /// A login by SASL.
    pub sasl: bool,
    /// Setting watches again after a reconnect, so that no change is missed.
    pub restores_watches: bool,
    /// Several reads in one request.
    pub multi_read: bool,
    /// Asking for the identities of the connection.
    pub who_am_i: bool,
}

/// The reason why a session has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SessionEnd {
    /// The server said that the session is expired.
    Expired,
    /// The local deadline passed: the server may expire the session from now on.
    DeadlinePassed,
    /// The server's replies did not belong to this session or to its requests.
    Inconsistent,
    /// The servers continue from a backup. They may have nodes again that the session has deleted, so it is closed.
    RolledBack,
    /// The server did not accept the credentials.
    AuthFailed,
    /// A task of the client failed, or ended with its runtime.
    ClientFailed,
    /// The client was closed or dropped.
    Closed,
}

impl SessionEnd {
    /// Returns `true` if the server has the session still, so that the client closes it.
    pub(crate) const fn needs_close(self) -> bool {
        matches!(self, Self::RolledBack | Self::Closed)
    }

    /// Returns the text for credentials of this scheme that were refused.
    pub(crate) fn refusing(self, scheme: &str) -> String {
        format!("{self} of the scheme {scheme}")
    }
}

impl fmt::Display for SessionEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "the session expired",
            Self::DeadlinePassed => "the session's deadline passed without an answer",
            Self::Inconsistent => "the server's answers did not belong to the session",
            Self::RolledBack => "the servers continue from a backup",
            Self::AuthFailed => "the server did not accept the credentials",
            Self::ClientFailed => "the client's task failed, or ended with its runtime",
            Self::Closed => "the client was closed",
        })
    }
}

/// A new connection of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reattached {
    /// The moment at which the newest answered request was sent, at least the connect request.
    pub sent: Duration,
    /// The moment at which the newest answered write on this connection was sent, if any.
    pub leader_sent: Option<Duration>,
    /// The session timeout from now on: the smallest one ever granted.
    pub timeout: Duration,
    /// The connection's number within the session.
    pub epoch: u64,
}

/// The events of a handle, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandleEvent {
    /// The connection is lost, for this reason. Its watches are lost too, unless the client can
    /// [restore watches](Capabilities::restores_watches).
    Disconnected(ConnectError),
    /// The same session is connected again and its credentials are added. The events of watches that fired follow.
    Reconnected(Reattached),
    /// A connect response grants a shorter session timeout. Sent even if the connection breaks before
    /// [`Reconnected`](Self::Reconnected), because the server already counts by this timeout.
    Shortened {
        /// The moment at which the connect request was sent.
        sent: Duration,
        /// The timeout granted.
        timeout: Duration,
    },
    /// One round over all servers reached none.
    Unreachable(ConnectError),
    /// The server is partitioned from the quorum and serves reads only.
    ReadOnly,
    /// The session has ended. This is the last event.
    Ended(SessionEnd),
    /// A notification, of a handle that ignores [`ZooKeeperHandle::on_notification`].
    Watched(Notification),
}

/// A notification of a one-shot watch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notification {
    /// The watch has fired.
    Event(WatchedEvent),
    /// The server may have removed the watches of this kind at this path, or has repeated a change that may be older than
    /// their reads. Changes since are not known.
    WatchRemoved(String, WatchKind),
}

/// The call of [`ZooKeeperHandle::on_notification`]. It does not block.
pub type NotificationCall = Box<dyn Fn(Notification, u64) + Send + Sync>;

/// One session with the ensemble.
pub trait ZooKeeperHandle: Send + Sync + fmt::Debug + 'static {
    /// Sends a request on the connection with this number, at the latest when the reply is first polled or dropped, or
    /// when fewer requests are outstanding. If that connection is gone, replies `ConnectionLoss` with `sent: false`.
    fn submit(&self, request: Request, epoch: u64) -> ReplyFuture;

    /// Calls `submit`, and writes the requests that it submits together, where the client can.
    fn write_together(&self, submit: &mut dyn FnMut()) {
        submit();
    }

    /// Sends a request that changes nothing, ahead of submitted requests that wait to be sent. `Ok` or `NoNode` gives
    /// this evidence.
    fn heartbeat(&self, evidence: Evidence) -> ReplyFuture;

    /// Returns the current session timeout: the smallest one that a server has granted.
    fn negotiated_timeout(&self) -> Duration;

    /// Returns the session's id, as soon as the client knows it.
    fn session_id(&self) -> Option<i64>;

    /// Adds credentials, which each later connection sends, unless the session has them. A client that can sends them on
    /// the present connection too, ahead of later requests. By default the call is ignored: they count from the next
    /// session on.
    fn add_auth(&self, _auth: &AuthInfo) {}

    /// Records whether the session owns nodes. If it does, a client may leave a silent server sooner.
    fn set_owning(&self, _owning: bool) {}

    /// Returns the client's features.
    fn capabilities(&self) -> Capabilities;

    /// Sets a persistent watch, which resyncs at each reconnect if it can. Its events end with the session, or with the
    /// connection if the client does not [restore watches](Capabilities::restores_watches). Called only on handles with
    /// [`Capabilities::persistent_watches`].
    fn add_watch(&self, path: &str, _mode: AddWatchMode, _resync: Option<Arc<dyn Resync>>) -> AddedWatch {
        let request = format!("addWatch {path}").into();
        let unsupported = Error::Unsupported { request, client: self.client(), needed: DEFAULT_CLIENT };
        Box::pin(async move { Err(unsupported) })
    }

    /// Allows the client to remove a one-shot watch of this kind, which has no waiter left. Does not block.
    fn forget_watch(&self, _path: &str, _kind: WatchKind) {}

    /// Returns `true` if the server is partitioned from the quorum and serves reads only. A session that such a server
    /// created ends with its connection.
    fn is_read_only(&self) -> bool {
        false
    }

    /// Returns the client's name, for messages.
    fn client(&self) -> &'static str;

    /// Ends the handle: from now on every reply is `SessionExpired`, and the client closes the session on the server as
    /// soon as it can.
    fn end(&self);

    /// Sets a call for the moment at which the runtime drops the handle's task. The task makes the call before it
    /// closes the session by itself, because guards must be lost first. By default the call is ignored: such a task
    /// leaves the session to the server's timer.
    fn on_task_dropped(&self, _call: Box<dyn FnOnce() + Send>) {}

    /// Sets a call for each notification of a one-shot watch, with the number of the connection that carried it. The call
    /// comes before the replies that follow the notification on the wire, so a waiter that registers after a reply
    /// never wakes for an earlier change. By default it is ignored: such a handle sends [`HandleEvent::Watched`].
    fn on_notification(&self, _call: NotificationCall) {}

    /// Resolves when the session is closed, or never if no server can be reached. Call [`end`](Self::end) first.
    fn closed(&self) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// A new session.
#[derive(Debug)]
pub struct Connection {
    /// Its handle.
    pub handle: Arc<dyn ZooKeeperHandle>,
    /// Its events.
    pub events: mpsc::UnboundedReceiver<HandleEvent>,
    /// The moment at which the newest answered request was sent.
    pub sent: Duration,
    /// A moment before which the server cannot have created the session.
    pub established: Duration,
    /// The number of its connection.
    pub epoch: u64,
}

/// A factory of sessions: Curator's `ZookeeperFactory`.
#[async_trait]
pub trait ZooKeeperFactory: Send + Sync + fmt::Debug + 'static {
    /// Connects, and resolves when a reply has proven the session and its credentials are added.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] says what was wrong with each server that was tried.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future abandons the attempt and closes the session that it may have opened.
    #[doc(alias = "newZooKeeper")]
    async fn connect(&self, config: &ConnectConfig) -> Result<Connection, ConnectError>;

    /// Returns the features of its handles. Building a client with an option that needs another feature fails.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// Returns the client's name, for messages.
    fn client(&self) -> &'static str {
        "this client"
    }

    /// Returns `true` if it opens sockets of the runtime. Such a client does not start on a runtime without I/O, or
    /// with a paused clock. A factory that wraps another one passes the call on.
    fn needs_io(&self) -> bool {
        true
    }
}

//! The seam between the framework and a ZooKeeper client: the framework's own, or a crate behind an adapter.
//!
//! A [`ZooKeeperHandle`] lives for exactly one ZooKeeper session, and delivers each reply to its own request. Where a
//! crate does not guarantee that, its adapter adds it.

pub(crate) mod client;
pub(crate) mod security;
mod watch_events;
#[cfg(feature = "zookeeper-async")]
mod zookeeper_async;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot};

#[doc(hidden)]
pub use self::client::decoder;
pub use self::client::hosts::Pacer;
pub use self::client::{ByteStream, Connector, DefaultZooKeeperFactory};
pub use self::watch_events::{KnownNodes, Resync, SubscriptionEvent, WatchEvents, WatchSender};
#[cfg(feature = "zookeeper-async")]
pub use self::zookeeper_async::ZooKeeperAsyncFactory;

use crate::environment::clock::Clock;
use crate::environment::randomness::Randomness;
use crate::error::{ConnectError, Error, Result};
use crate::model::{Acl, AddWatchMode, AuthInfo, CreateMode, Stat, WatchKind, WatchedEvent};
use crate::zookeeper::security::{SaslDigest, TlsOptions};

/// The configuration's node, outside of all namespaces and chroots.
pub(crate) const CONFIG_NODE: &str = "/zookeeper/config";

/// A request to the server.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Request {
    /// Creates a node and returns its stat.
    Create {
        /// The path; the server appends a number if the mode is sequential.
        path: Arc<str>,
        /// The data.
        data: Vec<u8>,
        /// The access control list.
        acl: Vec<Acl>,
        /// The mode.
        mode: CreateMode,
    },
    /// Deletes a node.
    Delete {
        /// The path.
        path: Arc<str>,
        /// The version that the node must have.
        version: Option<i32>,
    },
    /// Reads the stat of a node that may not exist.
    Exists {
        /// The path.
        path: Arc<str>,
        /// `true` leaves a data watch, also on a missing node.
        watch: bool,
    },
    /// Reads a node's data.
    GetData {
        /// The path.
        path: Arc<str>,
        /// `true` leaves a data watch, but not on a missing node.
        watch: bool,
    },
    /// Changes a node's data.
    SetData {
        /// The path.
        path: Arc<str>,
        /// The new data.
        data: Vec<u8>,
        /// The version that the node must have.
        version: Option<i32>,
    },
    /// Lists a node's children.
    GetChildren {
        /// The path.
        path: Arc<str>,
        /// `true` leaves a child watch, but not on a missing node.
        watch: bool,
    },
    /// Reads a node's access control list.
    GetAcl {
        /// The path.
        path: Arc<str>,
    },
    /// Changes a node's access control list.
    SetAcl {
        /// The path.
        path: Arc<str>,
        /// The new list.
        acl: Vec<Acl>,
        /// The version that the list must have.
        version: Option<i32>,
    },
    /// Waits until the server has applied every transaction that the leader has committed. Sent only to handles with
    /// [`Capabilities::sync`].
    Sync {
        /// The path.
        path: Arc<str>,
    },
    /// Applies all operations or none. Sent only to handles with [`Capabilities::transactions`]. If one operation
    /// fails, the reply is [`Error::Transaction`].
    Transaction {
        /// The operations, in order. Each one sees the effects of those before it.
        operations: Vec<Operation>,
    },
    /// Changes the ensemble's members and returns the new configuration. Sent only to handles with
    /// [`Capabilities::reconfig`].
    Reconfig {
        /// The servers to add, in the configuration's syntax: `server.4=host:2888:3888:participant;host:2181`.
        joining: Vec<String>,
        /// The numbers of the servers to remove.
        leaving: Vec<String>,
        /// The complete list of servers, instead of the other two lists; empty if those are used.
        members: Vec<String>,
        /// The version that the configuration must have.
        version: Option<i64>,
    },
}

/// A part of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Creates a node.
    Create {
        /// The path; the server appends a number if the mode is sequential.
        path: String,
        /// The data.
        data: Vec<u8>,
        /// The access control list.
        acl: Vec<Acl>,
        /// The mode.
        mode: CreateMode,
    },
    /// Deletes a node.
    Delete {
        /// The path.
        path: String,
        /// The version that the node must have.
        version: Option<i32>,
    },
    /// Changes a node's data.
    SetData {
        /// The path.
        path: String,
        /// The new data.
        data: Vec<u8>,
        /// The version that the node must have.
        version: Option<i32>,
    },
    /// Changes nothing; fails if the node does not exist or has another version.
    Check {
        /// The path.
        path: String,
        /// The version that the node must have.
        version: Option<i32>,
    },
}

impl Operation {
    /// Returns the operation's path.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Create { path, .. }
            | Self::Delete { path, .. }
            | Self::SetData { path, .. }
            | Self::Check { path, .. } => path,
        }
    }

    /// Returns the operation's name in ZooKeeper's documentation.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Delete { .. } => "delete",
            Self::SetData { .. } => "setData",
            Self::Check { .. } => "check",
        }
    }

    /// Returns the server's version and setting that the operation takes.
    pub(crate) const fn needed(&self) -> &'static str {
        match self {
            Self::Create { mode, .. } => needed_for(*mode),
            _ => OLD_ENOUGH,
        }
    }
}

/// The client to use for a request that another one lacks.
pub(crate) const DEFAULT_CLIENT: &str = "`DefaultZooKeeperFactory`, the default client";
/// The server that a persistent watch takes.
pub(crate) const ADD_WATCH_NEEDS: &str = "ZooKeeper 3.6 or newer";
/// The server that knows every request without a row of its own.
const OLD_ENOUGH: &str = "ZooKeeper 3.5 or newer";

const fn needed_for(mode: CreateMode) -> &'static str {
    match mode {
        CreateMode::PersistentWithTtl(_) | CreateMode::PersistentSequentialWithTtl(_) => {
            "ZooKeeper 3.5.3 or newer, with `zookeeper.extendedTypesEnabled=true`"
        }
        _ => OLD_ENOUGH,
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name(), self.path())
    }
}

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

impl Request {
    /// Returns the request's path: of a transaction, the first operation's.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Create { path, .. }
            | Self::Delete { path, .. }
            | Self::Exists { path, .. }
            | Self::GetData { path, .. }
            | Self::SetData { path, .. }
            | Self::GetChildren { path, .. }
            | Self::GetAcl { path }
            | Self::SetAcl { path, .. }
            | Self::Sync { path } => path,
            Self::Transaction { operations } => operations.first().map_or("/", Operation::path),
            Self::Reconfig { .. } => CONFIG_NODE,
        }
    }

    /// Returns the [`path`](Self::path), without a copy where the request has one path.
    pub(crate) fn shared_path(&self) -> Arc<str> {
        match self {
            Self::Create { path, .. }
            | Self::Delete { path, .. }
            | Self::Exists { path, .. }
            | Self::GetData { path, .. }
            | Self::SetData { path, .. }
            | Self::GetChildren { path, .. }
            | Self::GetAcl { path }
            | Self::SetAcl { path, .. }
            | Self::Sync { path } => Arc::clone(path),
            Self::Transaction { .. } | Self::Reconfig { .. } => self.path().into(),
        }
    }

    /// Returns the request's name in ZooKeeper's documentation.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Delete { .. } => "delete",
            Self::Exists { .. } => "exists",
            Self::GetData { .. } => "getData",
            Self::SetData { .. } => "setData",
            Self::GetChildren { .. } => "getChildren",
            Self::GetAcl { .. } => "getACL",
            Self::SetAcl { .. } => "setACL",
            Self::Sync { .. } => "sync",
            Self::Transaction { .. } => "multi",
            Self::Reconfig { .. } => "reconfig",
        }
    }

    /// Returns the server's version and setting that the request takes.
    pub(crate) const fn needed(&self) -> &'static str {
        match self {
            Self::Create { mode, .. } => needed_for(*mode),
            _ => OLD_ENOUGH,
        }
    }

    /// Returns the evidence that a reply gives. The connected server replies to a read even if it is partitioned from
    /// the quorum, and to a `sync` even if its leader has lost the quorum.
    #[must_use]
    pub const fn evidence(&self) -> Evidence {
        match self {
            Self::Create { .. }
            | Self::Delete { .. }
            | Self::SetData { .. }
            | Self::SetAcl { .. }
            | Self::Transaction { .. }
            | Self::Reconfig { .. } => Evidence::Leader,
            _ => Evidence::AnyServer,
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name(), self.path())
    }
}

/// The evidence of a session's liveness that a reply gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Evidence {
    /// The connected server has the session.
    AnyServer,
    /// The leader has the session.
    Leader,
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
    /// The reply to `GetAcl`.
    Acl(Vec<Acl>, Stat),
    /// The reply to `Sync`.
    Synced,
    /// The reply to `Transaction`: the result of each operation.
    Done(Vec<Done>),
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
            Self::Acl(..) => "an access control list",
            Self::Synced => "a sync",
            Self::Done(_) => "a transaction",
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

/// The future of a persistent watch: resolves with its events when the server has set it.
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
    /// SASL with a user and a password (`DIGEST-MD5`).
    pub sasl: bool,
    /// Setting watches again after a reconnect, so that no change is missed.
    pub restores_watches: bool,
}

/// The reason why a session is over.
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
    /// The session is over. This is the last event.
    Ended(SessionEnd),
    /// An event of a watch, of a handle that ignores [`ZooKeeperHandle::on_notification`].
    Watched(WatchedEvent),
}

/// The call of [`ZooKeeperHandle::on_notification`]. It does not block.
pub type NotificationCall = Box<dyn Fn(WatchedEvent, u64) + Send + Sync>;

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
    /// comes ahead of the replies that follow the notification on the wire, so a waiter that registers behind a reply
    /// never wakes for an earlier change. By default it is ignored: such a handle sends [`HandleEvent::Watched`].
    fn on_notification(&self, _call: NotificationCall) {}

    /// Resolves when the session is closed, or never if no server can be reached. Call [`end`](Self::end) first.
    fn closed(&self) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// The smallest session timeout that a client requests or accepts.
pub(crate) const MIN_SESSION_TIMEOUT: Duration = Duration::from_secs(2);

/// ZooKeeper's default for `jute.maxbuffer`: 1 MiB less one byte.
pub const DEFAULT_MAX_FRAME: usize = 0xf_ffff;
/// The default of the longest reply in bytes: 4 MiB.
pub const DEFAULT_MAX_REPLY: usize = 4 << 20;

/// The current servers, `host:port` each.
#[derive(Clone)]
pub struct ServerList(Arc<dyn Fn() -> Result<Vec<String>, ConnectError> + Send + Sync>);

impl ServerList {
    /// Creates a list that calls `current` each time. The call must not block.
    pub fn new(current: impl Fn() -> Result<Vec<String>, ConnectError> + Send + Sync + 'static) -> Self {
        Self(Arc::new(current))
    }

    /// Creates a list that does not change.
    #[must_use]
    pub fn fixed(servers: Vec<String>) -> Self {
        Self::new(move || Ok(servers.clone()))
    }

    /// Returns the current servers.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] if the list cannot be read.
    pub fn current(&self) -> Result<Vec<String>, ConnectError> {
        (self.0)()
    }
}

impl fmt::Debug for ServerList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServerList").field(&self.current()).finish()
    }
}

/// The moment at which the client closes.
#[derive(Clone)]
pub struct Closing(Arc<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>);

impl Closing {
    /// Wraps a function that returns futures which resolve when the client closes.
    pub fn new<F: Future<Output = ()> + Send + 'static>(begun: impl Fn() -> F + Send + Sync + 'static) -> Self {
        Self(Arc::new(move || Box::pin(begun())))
    }

    /// Resolves when the client closes.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn begun(&self) {
        (self.0)().await;
    }
}

impl fmt::Debug for Closing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closing").finish_non_exhaustive()
    }
}

/// The parameters of a connect.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ConnectConfig {
    /// The servers, read before each attempt.
    pub servers: ServerList,
    /// The session timeout to request.
    pub session_timeout: Duration,
    /// The time limit of one round over all servers.
    pub connection_timeout: Duration,
    /// The time limit of the session's close.
    pub close_timeout: Duration,
    /// The moment at which the client closes. A connect with a session that waits for a login closes it then and fails.
    pub closing: Closing,
    /// The longest request, which ZooKeeper's `jute.maxbuffer` limits.
    pub max_frame: usize,
    /// The longest reply.
    pub max_reply: usize,
    /// Spreads the attempts of one framework client over time.
    pub pacer: Arc<Pacer>,
    /// Credentials to add to every connection.
    pub auth: Vec<AuthInfo>,
    /// Allows a connection to a server that serves reads only.
    pub read_only: bool,
    /// The options of TLS, if the connections use it.
    pub tls: Option<TlsOptions>,
    /// The user and password of a SASL login, if any.
    pub sasl: Option<SaslDigest>,
    /// The clock on which `sent` is measured.
    pub clock: Arc<dyn Clock>,
    /// The source of random names and orders.
    pub randomness: Arc<dyn Randomness>,
}

#[cfg(test)]
impl ConnectConfig {
    /// Returns the parameters of a connect to these servers, without credentials.
    pub(crate) fn for_tests(servers: Vec<String>) -> Self {
        Self {
            servers: ServerList::fixed(servers),
            session_timeout: Duration::from_secs(4),
            connection_timeout: Duration::from_secs(10),
            close_timeout: Duration::from_secs(10),
            closing: Closing::new(std::future::pending),
            max_frame: DEFAULT_MAX_FRAME,
            max_reply: DEFAULT_MAX_REPLY,
            pacer: Arc::new(Pacer::default()),
            auth: Vec::new(),
            read_only: false,
            tls: None,
            sasl: None,
            clock: Arc::new(crate::environment::clock::TokioClock::default()),
            randomness: Arc::new(crate::environment::randomness::ThreadRandomness),
        }
    }
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

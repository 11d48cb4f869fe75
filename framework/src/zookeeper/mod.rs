//! The seam between the framework and a ZooKeeper client: our own, or a crate behind an adapter.
//!
//! A [`ZooKeeperHandle`] lives for exactly one ZooKeeper session, and a reply that it delivers belongs to the request
//! that it answers. Where a crate does not guarantee that, its adapter adds it.

pub(crate) mod client;
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
#[cfg(feature = "zookeeper-async")]
pub use self::zookeeper_async::ZooKeeperAsyncFactory;

use crate::clock::Clock;
use crate::ensemble_config::CONFIG_NODE;
use crate::error::{ConnectError, Error, Result};
use crate::model::{Acl, AuthInfo, CreateMode, PersistentEvent, Stat, WatchedEvent};
use crate::randomness::Randomness;
use crate::secure::{SaslDigest, TlsOptions};
use crate::watch::WatchKind;

/// A request to the server.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Request {
    /// Create a node and return its stat.
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
    /// Delete a node.
    Delete {
        /// The path.
        path: Arc<str>,
        /// The version that the node must have.
        version: Option<i32>,
    },
    /// Ask whether a node exists.
    Exists {
        /// The path.
        path: Arc<str>,
        /// Whether to leave a data watch, also on a missing node.
        watch: bool,
    },
    /// Read a node's data.
    GetData {
        /// The path.
        path: Arc<str>,
        /// Whether to leave a data watch; none is left on a missing node.
        watch: bool,
    },
    /// Change a node's data.
    SetData {
        /// The path.
        path: Arc<str>,
        /// The new data.
        data: Vec<u8>,
        /// The version that the node must have.
        version: Option<i32>,
    },
    /// List a node's children.
    GetChildren {
        /// The path.
        path: Arc<str>,
        /// Whether to leave a child watch; none is left on a missing node.
        watch: bool,
    },
    /// Read a node's access control list.
    GetAcl {
        /// The path.
        path: Arc<str>,
    },
    /// Change a node's access control list.
    SetAcl {
        /// The path.
        path: Arc<str>,
        /// The new list.
        acl: Vec<Acl>,
        /// The version that the list must have.
        version: Option<i32>,
    },
    /// Wait until the server has seen what the leader has committed. Asked only of handles with
    /// [`Capabilities::sync`].
    Sync {
        /// The path.
        path: Arc<str>,
    },
    /// All of the operations or none. Asked only of handles with [`Capabilities::transactions`]. If one cannot be done,
    /// the answer is [`Error::Transaction`].
    Transaction {
        /// In this order, each on what the ones before have left.
        operations: Vec<Operation>,
    },
    /// Change which servers there are, and return the new configuration. Asked only of handles with
    /// [`Capabilities::reconfig`].
    Reconfig {
        /// Servers that come, in the words of the configuration: `server.4=host:2888:3888:participant;host:2181`.
        joining: Vec<String>,
        /// The numbers of servers that go.
        leaving: Vec<String>,
        /// All servers that there are to be, in place of the other two; empty if those say it.
        members: Vec<String>,
        /// The version that the configuration must have.
        version: Option<i64>,
    },
}

/// A part of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Create a node.
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
    /// Delete a node.
    Delete {
        /// The path.
        path: String,
        /// The version that the node must have.
        version: Option<i32>,
    },
    /// Change a node's data.
    SetData {
        /// The path.
        path: String,
        /// The new data.
        data: Vec<u8>,
        /// The version that the node must have.
        version: Option<i32>,
    },
    /// Change nothing; the node must be there.
    Check {
        /// The path.
        path: String,
        /// The version that the node must have.
        version: Option<i32>,
    },
}

impl Operation {
    /// The path that the operation is about.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Create { path, .. }
            | Self::Delete { path, .. }
            | Self::SetData { path, .. }
            | Self::Check { path, .. } => path,
        }
    }

    /// The operation's name, as ZooKeeper's documentation has it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Delete { .. } => "delete",
            Self::SetData { .. } => "setData",
            Self::Check { .. } => "check",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name(), self.path())
    }
}

/// What became of an [`Operation`] of a transaction that was done.
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
    /// The node was there.
    Checked,
}

impl Request {
    /// The path that the request is about.
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

    /// As [`path`](Self::path), without a copy where the request has one path.
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

    /// The request's name, as ZooKeeper's documentation has it.
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

    /// Whether the request goes through the leader, so that its answer proves that the session is alive.
    /// A read is answered by whatever server we are connected to, even one that is cut off from the others; a `sync` also
    /// by a leader that the others have left.
    #[must_use]
    pub const fn goes_through_leader(&self) -> bool {
        matches!(
            self,
            Self::Create { .. }
                | Self::Delete { .. }
                | Self::SetData { .. }
                | Self::SetAcl { .. }
                | Self::Transaction { .. }
                | Self::Reconfig { .. }
        )
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name(), self.path())
    }
}

/// What the server answered to a [`Request`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Response {
    /// To `Create`.
    Created {
        /// The node's path, with the number that the server appended.
        path: Arc<str>,
        /// Its stat.
        stat: Stat,
    },
    /// To `Delete`.
    Deleted,
    /// To `Exists`.
    Exists(Option<Stat>),
    /// To `GetData` and `Reconfig`.
    Data(Vec<u8>, Stat),
    /// To `SetData` and `SetAcl`.
    Stat(Stat),
    /// To `GetChildren`.
    Children(Vec<String>),
    /// To `GetAcl`.
    Acl(Vec<Acl>, Stat),
    /// To `Sync`.
    Synced,
    /// To `Transaction`: what became of each operation.
    Done(Vec<Done>),
    /// To a heartbeat, and to a request that has no other answer.
    Acknowledged,
}

impl Response {
    /// The kind of answer, for messages: what is in it does not belong there.
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
    /// When the request left, on the framework's [`Clock`]; `None` if it did not.
    pub sent: Option<Duration>,
    /// The connection that carried the reply, counted within the session from 1; 0 if no connection carried one.
    pub epoch: u64,
    /// The newest transaction that the server had applied when it replied; 0 where the client does not tell.
    pub zxid: i64,
    /// The reply itself.
    pub result: Result<Response>,
}

impl Reply {
    /// A request that was never written: it is safe to repeat.
    #[must_use]
    pub const fn not_sent(error: Error) -> Self {
        Self { sent: None, epoch: 0, zxid: 0, result: Err(error) }
    }
}

/// The reply that is to come. Dropping it does not take the request back.
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
    /// Resolves with what `reply` resolves with.
    pub fn new(reply: impl Future<Output = Reply> + Send + 'static) -> Self {
        Self(Source::Boxed(Box::pin(reply)))
    }

    /// Resolves with what the channel delivers. The first poll, or the drop, flushes: all requests that one task submits
    /// before it waits leave in one write.
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
                // The sender goes without a reply only when the client's task was dropped with its runtime.
                Pin::new(reply).poll(cx).map(|reply| {
                    reply.unwrap_or_else(|_gone| {
                        let request = "a request of a client whose runtime has ended".to_owned();
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

/// The events of a watch that is to be set.
pub type AddedWatch = Pin<Box<dyn Future<Output = Result<WatchEvents>> + Send>>;

/// The events of a watch that stays. Dropping it removes the watch.
pub struct WatchEvents {
    events: mpsc::UnboundedReceiver<PersistentEvent>,
    remove: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl WatchEvents {
    /// Events that come by a channel, and the call that removes their watch.
    pub fn new(
        events: mpsc::UnboundedReceiver<PersistentEvent>,
        remove: impl FnOnce() + Send + Sync + 'static,
    ) -> Self {
        Self { events, remove: Some(Box::new(remove)) }
    }

    /// The next event; `None` when the watch has ended with its session or its connection.
    ///
    /// # Cancel safety
    ///
    /// No event is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<PersistentEvent> {
        self.events.recv().await
    }
}

impl Drop for WatchEvents {
    fn drop(&mut self) {
        if let Some(remove) = self.remove.take() {
            remove();
        }
    }
}

impl fmt::Debug for WatchEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchEvents").finish_non_exhaustive()
    }
}

/// What a client can do beyond the first requests of [`Request`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Capabilities {
    /// Container nodes, which the server removes when they are empty.
    pub containers: bool,
    /// Nodes with a time to live.
    pub ttl: bool,
    /// Transactions.
    pub transactions: bool,
    /// A `sync` request.
    pub sync: bool,
    /// Removing a watch.
    pub remove_watches: bool,
    /// Watches that stay when they fire, of one node or of all that is below it.
    pub persistent_watches: bool,
    /// Connecting to a read-only server.
    pub read_only: bool,
    /// Sequential nodes whose name is the number alone: a path that ends with a slash.
    pub bare_numbers: bool,
    /// Changing which servers there are.
    pub reconfig: bool,
    /// TLS.
    pub tls: bool,
    /// SASL with a user and a password (`DIGEST-MD5`).
    pub sasl: bool,
    /// Watches that are set again after a reconnect, so that no change is missed.
    pub restores_watches: bool,
}

/// Why a session is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SessionEnd {
    /// The server said that the session is expired.
    Expired,
    /// The local deadline passed: the server may expire the session from now on.
    DeadlinePassed,
    /// The server's answers did not belong to this session or to our requests.
    Inconsistent,
    /// The server did not accept our credentials.
    AuthFailed,
    /// The client behind the seam stopped working.
    ClientFailed,
    /// The client was closed or dropped.
    Closed,
}

impl fmt::Display for SessionEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "the session expired",
            Self::DeadlinePassed => "the session's deadline passed without an answer",
            Self::Inconsistent => "the server's answers did not belong to the session",
            Self::AuthFailed => "the server did not accept the credentials",
            Self::ClientFailed => "the client crate stopped working",
            Self::Closed => "the client was closed",
        })
    }
}

/// A connection that carries the session on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reattached {
    /// When the newest answered request was sent: the connect request, where the client has sent nothing else.
    pub sent: Duration,
    /// When the newest answered write was sent, if there was one on this connection.
    pub leader_sent: Option<Duration>,
    /// The session timeout that holds from now on: the smallest one ever granted.
    pub timeout: Duration,
    /// The connection's number within the session.
    pub epoch: u64,
}

/// What a handle tells of its connection, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandleEvent {
    /// The connection is gone, and why. Unless the client can [restore watches](Capabilities::restores_watches), those that
    /// were set are lost with it.
    Disconnected(ConnectError),
    /// The same session is connected again and its credentials are added. Watches that fired in between follow.
    Reconnected(Reattached),
    /// A server grants a shorter session timeout in the reply to a connect request that was sent then. Sent also if the
    /// connection breaks before [`Reconnected`](Self::Reconnected): the server counts by this timeout all the same.
    Shortened {
        /// When the connect request was sent.
        sent: Duration,
        /// The timeout granted.
        timeout: Duration,
    },
    /// No server could be reached in one round over all of them.
    Unreachable(ConnectError),
    /// The server is cut off from the others and serves reads only.
    ReadOnly,
    /// The session is over. Nothing comes after it.
    Ended(SessionEnd),
    /// An event of a watch.
    Watched(WatchedEvent),
}

/// One session with the ensemble.
pub trait ZooKeeperHandle: Send + Sync + fmt::Debug + 'static {
    /// Sends a request on the connection with this number. If that is gone the reply is `ConnectionLoss` with `sent: false`,
    /// at once: no request runs on a connection that its caller does not know of. The request leaves at the latest when the reply is first polled or dropped.
    fn submit(&self, request: Request, epoch: u64) -> ReplyFuture;

    /// Calls `submit`, and writes all that it submits together, where the client can. Until then nothing is written.
    fn write_together(&self, submit: &mut dyn FnMut()) {
        submit();
    }

    /// Sends a request that changes nothing, beside those of [`submit`](Self::submit). With `through_leader` an `Ok` proves
    /// that the leader still has the session.
    fn heartbeat(&self, through_leader: bool) -> ReplyFuture;

    /// The session timeout that holds: the smallest one that a server has granted.
    fn negotiated_timeout(&self) -> Duration;

    /// The session's id, as soon as the client knows it.
    fn session_id(&self) -> Option<i64>;

    /// Says whether the session owns nodes. A client that can look for another server does so sooner then.
    fn set_owning(&self, _owning: bool) {}

    /// What the client can do.
    fn capabilities(&self) -> Capabilities;

    /// Sets a watch that stays when it fires, on one node or also on all that is below it. Its events end with the session,
    /// or with the connection where the client does not [restore watches](Capabilities::restores_watches). Asked only of handles with
    /// [`Capabilities::persistent_watches`].
    fn add_watch(&self, path: &str, _recursive: bool) -> AddedWatch {
        let unsupported = Error::Unsupported { request: format!("addWatch {path}"), client: self.client() };
        Box::pin(async move { Err(unsupported) })
    }

    /// Nobody waits any more for a watch of this kind that a read has left: it may be removed. Does not wait.
    fn forget_watch(&self, _path: &str, _kind: WatchKind) {}

    /// Whether the server serves reads only, because it is cut off from the others. Such a handle ends when a server is
    /// found that is not.
    fn is_read_only(&self) -> bool {
        false
    }

    /// The client's name, for messages.
    fn client(&self) -> &'static str;

    /// Ends the handle: from now on every answer is `SessionExpired`, and the session is closed on the server as soon
    /// as that can be done.
    fn end(&self);

    /// Resolves when the session is closed, or never if no server can be reached. Call [`end`](Self::end) first.
    fn closed(&self) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// The smallest session timeout of a client, asked for or granted.
pub(crate) const MIN_SESSION_TIMEOUT: Duration = Duration::from_secs(2);

/// ZooKeeper's default for `jute.maxbuffer`: 1 MiB less one byte.
pub const DEFAULT_MAX_FRAME: usize = 0xf_ffff;

/// Says which servers there are now, `host:port` each.
#[derive(Clone)]
pub struct ServerList(Arc<dyn Fn() -> Result<Vec<String>, ConnectError> + Send + Sync>);

impl ServerList {
    /// A list that `current` reads anew each time. It must not block.
    pub fn new(current: impl Fn() -> Result<Vec<String>, ConnectError> + Send + Sync + 'static) -> Self {
        Self(Arc::new(current))
    }

    /// A list that does not change.
    #[must_use]
    pub fn fixed(servers: Vec<String>) -> Self {
        Self::new(move || Ok(servers.clone()))
    }

    /// The servers as they are now.
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

/// Says when the client closes.
#[derive(Clone)]
pub struct Closing(Arc<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>);

impl Closing {
    /// Takes a function whose futures resolve when the client closes.
    pub fn new<F: Future<Output = ()> + Send + 'static>(begun: impl Fn() -> F + Send + Sync + 'static) -> Self {
        Self(Arc::new(move || Box::pin(begun())))
    }

    /// Resolves when the client closes.
    pub async fn begun(&self) {
        (self.0)().await;
    }
}

impl fmt::Debug for Closing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closing").finish_non_exhaustive()
    }
}

/// Where to connect and how.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ConnectConfig {
    /// The servers, asked for before each attempt.
    pub servers: ServerList,
    /// The session timeout to ask for.
    pub session_timeout: Duration,
    /// How long one round over all servers may take.
    pub connection_timeout: Duration,
    /// How long the close of the session may take.
    pub close_timeout: Duration,
    /// Says when the client closes. A connect that waits for a login then closes the session that it has, and fails.
    pub closing: Closing,
    /// The longest frame in either direction: ZooKeeper's `jute.maxbuffer`.
    pub max_frame: usize,
    /// Spreads the attempts of one framework client over time.
    pub pacer: Arc<Pacer>,
    /// Credentials to add to every connection.
    pub auth: Vec<AuthInfo>,
    /// Whether a server will do that serves reads only.
    pub read_only: bool,
    /// TLS, if the servers are to be reached by it.
    pub tls: Option<TlsOptions>,
    /// Who logs in by SASL, if somebody is to.
    pub sasl: Option<SaslDigest>,
    /// The clock on which `sent` is measured.
    pub clock: Arc<dyn Clock>,
    /// Where random names and orders come from.
    pub randomness: Arc<dyn Randomness>,
}

/// A new session.
#[derive(Debug)]
pub struct Connection {
    /// Its handle.
    pub handle: Arc<dyn ZooKeeperHandle>,
    /// Its events.
    pub events: mpsc::UnboundedReceiver<HandleEvent>,
    /// When the newest answered request was sent.
    pub sent: Duration,
    /// A moment before which the server cannot have made the session.
    pub established: Duration,
    /// The number of its connection.
    pub epoch: u64,
}

/// Makes sessions: Curator's `ZookeeperFactory`.
#[async_trait]
pub trait ZooKeeperFactory: Send + Sync + fmt::Debug + 'static {
    /// Connects and returns when the session is proven by an answer and its credentials are added.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] says what was wrong with each server that was tried.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped the attempt is abandoned, and what it may have opened is closed.
    async fn connect(&self, config: &ConnectConfig) -> Result<Connection, ConnectError>;

    /// What its handles can do. An option of the client that needs more is refused when the client is built.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// The client's name, for messages.
    fn client(&self) -> &'static str {
        "this client"
    }

    /// Whether it opens sockets of the runtime: a client is not started on a runtime without I/O then.
    fn needs_io(&self) -> bool {
        true
    }
}

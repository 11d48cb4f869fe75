//! The seam between the framework and a ZooKeeper client crate.
//!
//! A [`ZooKeeperHandle`] lives for exactly one ZooKeeper session, and a reply that it delivers belongs to the request
//! that it answers. What a client crate does not guarantee of that by itself, its implementation of these traits has
//! to add.

pub(crate) mod zookeeper_async;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;

pub use self::zookeeper_async::ZooKeeperAsyncFactory;

use crate::clock::Clock;
use crate::ensemble_config::CONFIG_NODE;
use crate::error::{ConnectError, Error, Result};
use crate::model::{Acl, AuthInfo, CreateMode, Stat, WatchedEvent};
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
    /// Ask whether a node exists.
    Exists {
        /// The path.
        path: String,
        /// Whether to leave a data watch, also on a missing node.
        watch: bool,
    },
    /// Read a node's data.
    GetData {
        /// The path.
        path: String,
        /// Whether to leave a data watch; none is left on a missing node.
        watch: bool,
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
    /// List a node's children.
    GetChildren {
        /// The path.
        path: String,
        /// Whether to leave a child watch; none is left on a missing node.
        watch: bool,
    },
    /// Read a node's access control list.
    GetAcl {
        /// The path.
        path: String,
    },
    /// Change a node's access control list.
    SetAcl {
        /// The path.
        path: String,
        /// The new list.
        acl: Vec<Acl>,
        /// The version that the list must have.
        version: Option<i32>,
    },
    /// Wait until the server has seen what the leader has committed. Asked only of handles with
    /// [`Capabilities::sync`].
    Sync {
        /// The path.
        path: String,
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
        path: String,
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
        }
    }
}

/// An answer, with the moment at which its request was sent.
#[derive(Debug, Clone)]
pub struct Reply {
    /// When the request left, on the framework's [`Clock`]; `None` if it did not.
    pub sent: Option<Duration>,
    /// The answer.
    pub result: Result<Response>,
}

/// The answer that is to come. Dropping it does not take the request back.
pub type ReplyFuture = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// The events of a watch that is to be set.
pub type AddedWatch = Pin<Box<dyn Future<Output = Result<mpsc::UnboundedReceiver<WatchedEvent>>> + Send>>;

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
    /// The client crate stopped working.
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

/// What a handle tells of its connection, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandleEvent {
    /// The transport is gone. Watches that were set are lost with it.
    Disconnected,
    /// The same session is connected again, proven by an answer, and its credentials are added.
    Reconnected {
        /// When the newest answered request was sent.
        sent: Duration,
        /// When the newest answered request that went through the leader was sent, if there was one.
        leader_sent: Option<Duration>,
    },
    /// The server is cut off from the others and serves reads only.
    ReadOnly,
    /// The session is over. Nothing comes after it.
    Ended(SessionEnd),
    /// An event of a watch.
    Watched(WatchedEvent),
}

/// One session with the ensemble.
pub trait ZooKeeperHandle: Send + Sync + fmt::Debug + 'static {
    /// Sends a request. While there is no connection the answer is `ConnectionLoss` with `sent: false`, at once.
    fn submit(&self, request: Request) -> ReplyFuture;

    /// Sends a request that changes nothing, on a place of its own beside those of [`submit`](Self::submit). With
    /// `through_leader` its answer proves that the leader still has the session. Any answer of the server is `Ok`.
    fn heartbeat(&self, through_leader: bool) -> Pin<Box<dyn Future<Output = Result<Duration>> + Send>>;

    /// The session timeout that the server granted.
    fn negotiated_timeout(&self) -> Duration;

    /// What the client can do.
    fn capabilities(&self) -> Capabilities;

    /// Sets a watch that stays when it fires, on one node or also on all that is below it. The receiver ends when the
    /// connection is lost or the session is over; dropping it removes the watch. Asked only of handles with
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

/// Where to connect and how.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ConnectConfig {
    /// The servers, `host:port` each.
    pub servers: Vec<String>,
    /// The session timeout to ask for.
    pub session_timeout: Duration,
    /// How long one attempt to connect may take.
    pub connection_timeout: Duration,
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
}

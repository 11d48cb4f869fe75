//! Requests to a server.

use std::fmt;
use std::sync::Arc;

#[cfg(doc)]
use crate::error::Error;
use crate::model::{Acl, CreateMode};
#[cfg(doc)]
use crate::zookeeper::Capabilities;

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
    /// Lists the session's ephemeral nodes. Sent only to handles with [`Capabilities::ephemerals`].
    GetEphemerals {
        /// The start of the paths to list, or the root for all.
        path: Arc<str>,
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
    /// Reads nodes, each with a result of its own. Leaves no watches. Sent only to handles with
    /// [`Capabilities::multi_read`].
    MultiRead {
        /// The reads, in order.
        reads: Vec<Read>,
    },
    /// Asks for the identities of the connection. Sent only to handles with [`Capabilities::who_am_i`].
    WhoAmI,
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

impl Request {
    /// Returns the request's path: of a transaction or several reads, the first one's.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Transaction { operations } => operations.first().map_or("/", Operation::path),
            Self::MultiRead { reads } => reads.first().map_or("/", Read::path),
            Self::WhoAmI => "/",
            _ => self.one_path().map_or(CONFIG_NODE, |path| path),
        }
    }

    /// Returns the [`path`](Self::path), without a copy where the request has one path.
    pub(crate) fn shared_path(&self) -> Arc<str> {
        self.one_path().map_or_else(|| self.path().into(), Arc::clone)
    }

    /// Returns the path, unless the request has several or none.
    fn one_path(&self) -> Option<&Arc<str>> {
        match self {
            Self::Create { path, .. }
            | Self::Delete { path, .. }
            | Self::Exists { path, .. }
            | Self::GetData { path, .. }
            | Self::SetData { path, .. }
            | Self::GetChildren { path, .. }
            | Self::GetAcl { path }
            | Self::SetAcl { path, .. }
            | Self::GetEphemerals { path }
            | Self::Sync { path } => Some(path),
            Self::Transaction { .. } | Self::MultiRead { .. } | Self::WhoAmI | Self::Reconfig { .. } => None,
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
            Self::GetEphemerals { .. } => "getEphemerals",
            Self::Sync { .. } => "sync",
            Self::Transaction { .. } => "multi",
            Self::MultiRead { .. } => "multiRead",
            Self::WhoAmI => "whoAmI",
            Self::Reconfig { .. } => "reconfig",
        }
    }

    /// Returns the server's version and setting that the request takes.
    pub(crate) const fn needed(&self) -> &'static str {
        match self {
            Self::Create { mode, .. } => needed_for(*mode),
            Self::GetEphemerals { .. } | Self::MultiRead { .. } => SINCE_3_6,
            Self::WhoAmI => SINCE_3_7,
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

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name(), self.path())
    }
}

/// A part of a [`Request::MultiRead`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Read {
    /// Reads a node's data.
    GetData {
        /// The path.
        path: String,
    },
    /// Lists a node's children.
    GetChildren {
        /// The path.
        path: String,
    },
}

impl Read {
    /// Returns the read's path.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::GetData { path } | Self::GetChildren { path } => path,
        }
    }

    /// Returns the read's name in ZooKeeper's documentation.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::GetData { .. } => "getData",
            Self::GetChildren { .. } => "getChildren",
        }
    }
}

impl fmt::Display for Read {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name(), self.path())
    }
}

/// The client to use for a request that another one lacks.
pub(crate) const DEFAULT_CLIENT: &str = "`DefaultZooKeeperFactory`, the default client";
/// The server that persistent watches and lists of ephemeral nodes take.
pub(crate) const SINCE_3_6: &str = "ZooKeeper 3.6 or newer";
const SINCE_3_7: &str = "ZooKeeper 3.7 or newer";
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

/// The evidence of a session's liveness that a reply gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Evidence {
    /// The connected server has the session.
    AnyServer,
    /// The leader has the session.
    Leader,
}

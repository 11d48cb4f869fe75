//! The errors of Apache servers.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use crate::CertificateError;

/// A failure to control an [`ApacheServer`](super::ApacheServer) or an [`ApacheCluster`](super::ApacheCluster).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApacheError {
    /// Java or Apache ZooKeeper is not installed.
    #[error(
        "{what} not found: install Java and Apache ZooKeeper, \
         on Debian and Ubuntu with `apt-get install zookeeper`"
    )]
    NotInstalled {
        /// The missing program or file.
        what: String,
    },
    /// An option of the builder is invalid.
    #[error("{0}")]
    InvalidOption(&'static str),
    /// A call of the operating system failed.
    #[error("failed to {action}: {source}")]
    Io {
        /// The action that failed.
        action: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The process ended before it served.
    #[error("Apache ZooKeeper ended at its start with {status}; its log ends with:\n{log}")]
    Ended {
        /// The exit status.
        status: ExitStatus,
        /// The last lines of its log.
        log: String,
    },
    /// Another process has taken a port of the server.
    #[error("another process has taken a port of Apache ZooKeeper, whose log ends with:\n{log}")]
    PortTaken {
        /// The last lines of its log.
        log: String,
    },
    /// The process runs, but did not serve in time.
    #[error("Apache ZooKeeper did not serve within {waited:?}; its log ends with:\n{log}")]
    NotServing {
        /// The time that the caller waited.
        waited: Duration,
        /// The last lines of its log.
        log: String,
    },
    /// A cluster has no server of this number.
    #[error("there is no server {index}: the cluster has {servers}, counted from 0")]
    NoSuchServer {
        /// The requested index.
        index: usize,
        /// The number of servers.
        servers: usize,
    },
    /// No server leads a majority of the cluster.
    #[error("no server of the cluster leads now")]
    NoLeader,
    /// A node does not exist.
    #[error("there is no node {path}")]
    NoNode {
        /// The node's path.
        path: String,
    },
    /// A certificate for the server could not be made.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The server was stopped before.
    #[error("Apache ZooKeeper is stopped")]
    Stopped,
}

impl ApacheError {
    pub(super) fn io(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, source }
    }
}

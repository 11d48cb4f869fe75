//! What can go wrong.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use crate::CertificateError;

/// Why an [`ApacheServer`](super::ApacheServer) or an [`ApacheCluster`](super::ApacheCluster) could not be started or steered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApacheError {
    /// Java or Apache ZooKeeper is not installed.
    #[error(
        "{what} not found: install Java and Apache ZooKeeper, \
         on Debian and Ubuntu with `apt-get install zookeeper`"
    )]
    NotInstalled {
        /// What is missing.
        what: String,
    },
    /// An option of the builder makes no sense.
    #[error("{0}")]
    InvalidOption(&'static str),
    /// The operating system refused something.
    #[error("failed to {action}: {source}")]
    Io {
        /// What was being done.
        action: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
    /// The process ended before it served.
    #[error("Apache ZooKeeper ended at its start with {status}; its log ends with:\n{log}")]
    Ended {
        /// How it ended.
        status: ExitStatus,
        /// The last lines of its log.
        log: String,
    },
    /// The process runs, but did not serve in time.
    #[error("Apache ZooKeeper did not serve within {waited:?}; its log ends with:\n{log}")]
    NotServing {
        /// How long it was waited for.
        waited: Duration,
        /// The last lines of its log.
        log: String,
    },
    /// A cluster has no server of this number.
    #[error("there is no server {index}: the cluster has {servers}, counted from 0")]
    NoSuchServer {
        /// What was asked for.
        index: usize,
        /// How many there are.
        servers: usize,
    },
    /// No server leads a majority of the cluster.
    #[error("no server of the cluster leads now")]
    NoLeader,
    /// A node does not exist.
    #[error("there is no node {path}")]
    NoNode {
        /// Its path.
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

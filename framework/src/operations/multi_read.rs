//! Reads of several nodes at once.

use crate::core::ClientCore;
use crate::error::Result;
use crate::model::path::validate_path;
use crate::model::{MultiReadResult, Reading};
use crate::operations::{check_read, with_retries};
use crate::session::Session;
use crate::zookeeper::Read;

/// The description of reads of several nodes in one request: ZooKeeper's `multiRead`.
///
/// # Examples
///
/// ```no_run
/// # async fn run(client: curator_framework::CuratorFramework) -> Result<(), curator_framework::Error> {
/// use curator_framework::{Error, MultiReadResult};
///
/// let read = client.multi_read().get_data("/limits/cpu").get_data("/limits/memory").get_children("/hosts").send().await?;
/// for result in read {
///     match result {
///         Ok(MultiReadResult::Data(data, stat)) => println!("{data:?} of version {}", stat.version),
///         Ok(MultiReadResult::Children(names)) => println!("{names:?}"),
///         Err(Error::NoNode { path }) => println!("{path} does not exist"),
///         other => drop(other?),
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is read before send"]
pub struct MultiReadBuilder<'a> {
    client: &'a ClientCore,
    reads: Vec<Read>,
}

impl<'a> MultiReadBuilder<'a> {
    pub(crate) fn new(client: &'a ClientCore) -> Self {
        Self { client, reads: Vec::new() }
    }

    /// Adds a read of a node's data.
    pub fn get_data(mut self, path: impl Into<String>) -> Self {
        self.reads.push(Read::GetData { path: path.into() });
        self
    }

    /// Adds a list of a node's children.
    pub fn get_children(mut self, path: impl Into<String>) -> Self {
        self.reads.push(Read::GetChildren { path: path.into() });
        self
    }

    /// Reads the nodes, and returns a result for each, in order. The reads are not one moment: another client's write may be
    /// applied between two of them. Without reads it sends no request.
    ///
    /// # Errors
    ///
    /// * `Error::Unsupported`: the server is older than ZooKeeper 3.6, or the client is `zookeeper-async`. Read the nodes
    ///   one by one.
    /// * `Error::ReplyTooLarge`: the reply exceeds the client's limit. Read fewer nodes.
    /// * `Error::InvalidPath`, `Error::SchemaViolation`: nothing was sent.
    /// * `Error::ConnectionLoss` and `Error::SessionExpired` when the retry policy gives up.
    /// * For each read, in its result: `Error::NoNode`, `Error::NoAuth`, `Error::Compression`.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn send(self) -> Result<Vec<Result<MultiReadResult>>> {
        for read in &self.reads {
            validate_path(read.path())?;
            check_read(self.client, read.path(), Reading::Plain)?;
        }
        let Some(first) = self.reads.first() else { return Ok(Vec::new()) };
        let request = |session: Session| {
            let reads = self.reads.clone();
            async move { session.multi_read(reads).await }
        };
        let all = with_retries(self.client, "multiRead", first.path(), request).await?;
        Ok(self.reads.iter().zip(all).map(|(read, done)| self.result(read, done?)).collect())
    }

    /// Decompresses data.
    fn result(&self, read: &Read, done: MultiReadResult) -> Result<MultiReadResult> {
        match done {
            MultiReadResult::Data(stored, stat) => {
                Ok(MultiReadResult::Data(self.client.read_stored(read.path(), stored, None)?, stat))
            }
            names => Ok(names),
        }
    }
}

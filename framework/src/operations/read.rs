//! Reading nodes.

use crate::client::CuratorFramework;
use crate::error::Result;
use crate::operations::with_retries;
use crate::zookeeper::Stat;

/// A look whether a node exists, being described: Curator's `ExistsBuilder`.
#[derive(Debug, Clone)]
#[must_use = "nothing is asked before for_path"]
pub struct ExistsBuilder<'a> {
    client: &'a CuratorFramework,
}

impl<'a> ExistsBuilder<'a> {
    pub(crate) fn new(client: &'a CuratorFramework) -> Self {
        Self { client }
    }

    /// The node's stat, or `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// `InvalidPath`; `ConnectionLoss` and `SessionExpired` when the retry policy gives up.
    pub async fn for_path(self, path: &str) -> Result<Option<Stat>> {
        with_retries(self.client, path, |session| async move { session.exists(path).await }).await
    }
}

/// A read of a node's data, being described: Curator's `GetDataBuilder`.
#[derive(Debug, Clone)]
#[must_use = "nothing is read before for_path"]
pub struct GetDataBuilder<'a> {
    client: &'a CuratorFramework,
}

impl<'a> GetDataBuilder<'a> {
    pub(crate) fn new(client: &'a CuratorFramework) -> Self {
        Self { client }
    }

    /// The node's data and stat.
    ///
    /// # Errors
    ///
    /// `InvalidPath`, `NoNode`, `NoAuth`; `ConnectionLoss` and `SessionExpired` when the retry policy gives up.
    pub async fn for_path(self, path: &str) -> Result<(Vec<u8>, Stat)> {
        with_retries(self.client, path, |session| async move { session.get_data(path).await }).await
    }
}

/// A listing of a node's children, being described: Curator's `GetChildrenBuilder`.
#[derive(Debug, Clone)]
#[must_use = "nothing is listed before for_path"]
pub struct GetChildrenBuilder<'a> {
    client: &'a CuratorFramework,
}

impl<'a> GetChildrenBuilder<'a> {
    pub(crate) fn new(client: &'a CuratorFramework) -> Self {
        Self { client }
    }

    /// The names of the node's children, in no order.
    ///
    /// # Errors
    ///
    /// `InvalidPath`, `NoNode`, `NoAuth`; `ConnectionLoss` and `SessionExpired` when the retry policy gives up.
    pub async fn for_path(self, path: &str) -> Result<Vec<String>> {
        with_retries(self.client, path, |session| async move { session.get_children(path).await }).await
    }
}

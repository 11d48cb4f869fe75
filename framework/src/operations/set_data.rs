//! Changing nodes.

use crate::client::CuratorFramework;
use crate::error::Result;
use crate::operations::with_retries;
use crate::zookeeper::Stat;

/// A change of a node's data, being described: Curator's `SetDataBuilder`.
#[derive(Debug, Clone)]
#[must_use = "nothing is changed before for_path"]
pub struct SetDataBuilder<'a> {
    client: &'a CuratorFramework,
    version: Option<i32>,
    data: Option<Vec<u8>>,
}

impl<'a> SetDataBuilder<'a> {
    pub(crate) fn new(client: &'a CuratorFramework) -> Self {
        Self { client, version: None, data: None }
    }

    /// Changes the data only if the node has this version.
    pub fn with_version(mut self, version: i32) -> Self {
        self.version = Some(version);
        self
    }

    /// The new data. Default: the client's default data.
    pub fn with_data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.data = Some(data.into());
        self
    }

    /// Changes the data and returns the node's new stat.
    ///
    /// # Errors
    ///
    /// `InvalidPath`, `NoNode`, `BadVersion`, `NoAuth`; `ConnectionLoss` and `SessionExpired` when the retry policy
    /// gives up. After a lost reply a retry with a version answers `BadVersion` although the data was changed.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped the data may be changed.
    pub async fn for_path(self, path: &str) -> Result<Stat> {
        let data = self.data.unwrap_or_else(|| self.client.default_data().to_vec());
        let version = self.version;
        with_retries(self.client, path, |session| {
            let data = data.clone();
            async move { session.set_data(path, data, version).await }
        })
        .await
    }
}

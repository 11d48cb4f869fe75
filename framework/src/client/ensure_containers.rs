//! A path that is created once.

use tokio::sync::OnceCell;

use crate::client::CuratorFramework;
use crate::error::Result;

/// Creates a path once, as [containers](crate::recipe::Parents::Containers): Curator's `EnsureContainers`.
#[derive(Debug)]
pub struct EnsureContainers {
    client: CuratorFramework,
    path: String,
    made: OnceCell<()>,
}

impl EnsureContainers {
    /// Describes the path. Only [`ensure`](Self::ensure) creates it.
    #[must_use]
    pub fn new(client: CuratorFramework, path: impl Into<String>) -> Self {
        Self { client, path: path.into(), made: OnceCell::new() }
    }

    /// Creates the path; does nothing once it has succeeded. (Curator's does nothing after a failure either.)
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`, `Error::NoAuth`, `Error::InvalidAcl`, `Error::NoChildrenForEphemerals`,
    /// `Error::SchemaViolation`; `Error::ConnectionLoss` and `Error::SessionExpired` when the retry policy gives up.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, some of the nodes may exist.
    pub async fn ensure(&self) -> Result<()> {
        self.made.get_or_try_init(|| self.client.create_containers(&self.path)).await.copied()
    }

    /// Makes the next [`ensure`](Self::ensure) create the path again.
    pub fn reset(&mut self) {
        self.made = OnceCell::new();
    }
}

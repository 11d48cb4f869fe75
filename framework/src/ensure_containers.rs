//! A path that is made once.

use tokio::sync::OnceCell;

use crate::client::CuratorFramework;
use crate::error::Result;

/// Makes a path once, as [containers](crate::Parents::Containers): Curator's `EnsureContainers`.
#[derive(Debug)]
pub struct EnsureContainers {
    client: CuratorFramework,
    path: String,
    made: OnceCell<()>,
}

impl EnsureContainers {
    /// Nothing is made before [`ensure`](Self::ensure).
    #[must_use]
    pub fn new(client: CuratorFramework, path: impl Into<String>) -> Self {
        Self { client, path: path.into(), made: OnceCell::new() }
    }

    /// Makes the path; after it has succeeded once it does nothing. (Curator's does nothing after a failure either.)
    ///
    /// # Errors
    ///
    /// As [`CuratorFramework::create_containers`].
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped a part of the path may have been made.
    pub async fn ensure(&self) -> Result<()> {
        self.made.get_or_try_init(|| self.client.create_containers(&self.path)).await.copied()
    }

    /// Makes it again at the next [`ensure`](Self::ensure).
    pub fn reset(&mut self) {
        self.made = OnceCell::new();
    }
}

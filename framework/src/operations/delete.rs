//! Deleting nodes.

use crate::client::CuratorFramework;
use crate::error::Result;
use crate::housekeeping::Remains;
use crate::operations::with_retries;

/// A delete that is being described: Curator's `DeleteBuilder`.
#[derive(Debug, Clone)]
#[must_use = "nothing is deleted before for_path"]
pub struct DeleteBuilder<'a> {
    client: &'a CuratorFramework,
    version: Option<i32>,
    guaranteed: bool,
}

impl<'a> DeleteBuilder<'a> {
    pub(crate) fn new(client: &'a CuratorFramework) -> Self {
        Self { client, version: None, guaranteed: false }
    }

    /// Deletes the node only if it has this version.
    pub fn with_version(mut self, version: i32) -> Self {
        self.version = Some(version);
        self
    }

    /// If the connection fails, or the future is dropped, the delete goes on in the background until it is done or
    /// the client is closed; the error is still returned. As in Curator, what goes on does not look at the version.
    pub fn guaranteed(mut self) -> Self {
        self.guaranteed = true;
        self
    }

    /// Deletes the node.
    ///
    /// # Errors
    ///
    /// `InvalidPath`, `NoNode`, `NotEmpty`, `BadVersion`, `NoAuth`; `ConnectionLoss` and `SessionExpired` when the
    /// retry policy gives up.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped the node may be deleted; if guaranteed, it will be.
    pub async fn for_path(self, path: &str) -> Result<()> {
        let mut unfinished = Unfinished { client: self.client, path, guaranteed: self.guaranteed };
        let version = self.version;
        let deleted =
            with_retries(self.client, path, |session| async move { session.delete(path, version).await }).await;
        // Only what may still succeed goes on: not a node that is missing, has children, or is not ours to delete
        // (CURATOR-42).
        if deleted.as_ref().err().is_none_or(|error| !error.is_retryable()) {
            unfinished.guaranteed = false;
        }
        deleted
    }
}

/// A guaranteed delete that was not finished goes to the housekeeping when this is dropped.
struct Unfinished<'a> {
    client: &'a CuratorFramework,
    path: &'a str,
    guaranteed: bool,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if self.guaranteed {
            self.client.leftovers().add(Remains::Guaranteed { path: self.path.to_owned() });
        }
    }
}

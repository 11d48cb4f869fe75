//! Deleting nodes.

use crate::core::ClientCore;
use crate::error::{Error, Result};
use crate::operations::with_retries;
use crate::session::background::Delete;
use crate::session::delete_tree::delete_tree;

/// The description of a delete: Curator's `DeleteBuilder`.
#[derive(Debug, Clone)]
#[must_use = "nothing is deleted before for_path"]
pub struct DeleteBuilder<'a> {
    client: &'a ClientCore,
    version: Option<i32>,
    guaranteed: bool,
    children: bool,
    quietly: bool,
}

impl<'a> DeleteBuilder<'a> {
    pub(crate) fn new(client: &'a ClientCore) -> Self {
        Self { client, version: None, guaranteed: false, children: false, quietly: false }
    }

    /// Deletes the node only if it has this version.
    pub fn with_version(mut self, version: i32) -> Self {
        self.version = Some(version);
        self
    }

    /// Continues the delete in the background if the connection fails, the client is closed, or the future is dropped.
    /// It ends when it is done, or with the client's [`close`](crate::CuratorFramework::close); the error is still
    /// returned. It keeps the version and the children, which Curator's forgets.
    pub fn guaranteed(mut self) -> Self {
        self.guaranteed = true;
        self
    }

    /// Deletes all nodes below too, at any version, including children that are created during the delete.
    #[doc(alias = "deleteChildren")]
    pub fn deleting_children_if_needed(mut self) -> Self {
        self.children = true;
        self
    }

    /// Accepts a node that does not exist.
    pub fn quietly(mut self) -> Self {
        self.quietly = true;
        self
    }

    /// Acts like [`quietly`](Self::quietly): an earlier try with a lost reply may have deleted the node.
    pub fn idempotent(self) -> Self {
        self.quietly()
    }

    /// Deletes the node.
    ///
    /// # Errors
    ///
    /// * `Error::NoNode`, unless it is quiet: the node does not exist. If the reply to an earlier try was lost, that
    ///   try may have deleted it.
    /// * `Error::InvalidPath`, `Error::NotEmpty`, `Error::BadVersion`, `Error::NoAuth`, `Error::SchemaViolation`.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the node may be deleted; if guaranteed, it will be.
    pub async fn for_path(self, path: &str) -> Result<()> {
        self.client.check_schemas(|schemas| schemas.check_delete(path))?;
        let _owing = self.guaranteed.then(|| self.client.track_pending());
        let mut unfinished = Unfinished { delete: &self, path, goes_on: self.guaranteed };
        let children = self.children;
        let deleting = with_retries(self.client, "delete", path, |session| {
            let version = self.version;
            async move {
                if children { delete_tree(&session, path, version).await } else { session.delete(path, version).await }
            }
        });
        let deleted = tokio::select! {
            biased;
            closed = self.client.not_started(), if self.guaranteed => Err(closed),
            deleted = deleting => deleted,
        };
        // Continue only a delete that may succeed, not after `NoNode`, `NotEmpty` or `NoAuth` (CURATOR-42).
        let may_succeed = |error: &Error| error.is_retryable() || matches!(error, Error::Closed);
        unfinished.goes_on &= deleted.as_ref().err().is_some_and(may_succeed);
        match deleted {
            Err(Error::NoNode { .. }) if self.quietly => Ok(()),
            deleted => deleted,
        }
    }
}

/// A guaranteed delete. Dropping it unfinished passes the delete to the background task.
struct Unfinished<'a> {
    delete: &'a DeleteBuilder<'a>,
    path: &'a str,
    goes_on: bool,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if self.goes_on {
            let DeleteBuilder { client, version, children, .. } = *self.delete;
            client.delete_some_time(self.path, Delete { version, children });
        }
    }
}

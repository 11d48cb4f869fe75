//! Deleting nodes.

use crate::client::CuratorFramework;
use crate::error::{Error, Result};
use crate::housekeeping::Delete;
use crate::operations::with_retries;
use crate::session::Session;

/// A delete that is being described: Curator's `DeleteBuilder`.
#[derive(Debug, Clone)]
#[must_use = "nothing is deleted before for_path"]
pub struct DeleteBuilder<'a> {
    client: &'a CuratorFramework,
    version: Option<i32>,
    guaranteed: bool,
    children: bool,
    quietly: bool,
}

impl<'a> DeleteBuilder<'a> {
    pub(crate) fn new(client: &'a CuratorFramework) -> Self {
        Self { client, version: None, guaranteed: false, children: false, quietly: false }
    }

    /// Deletes the node only if it has this version.
    pub fn with_version(mut self, version: i32) -> Self {
        self.version = Some(version);
        self
    }

    /// If the connection fails, the client is closed, or the future is dropped, the delete goes on in the background
    /// until it is done or the client's [`close`](CuratorFramework::close) ends; the error is still returned. What goes
    /// on is the same delete. (Curator's forgets the version and the children.)
    pub fn guaranteed(mut self) -> Self {
        self.guaranteed = true;
        self
    }

    /// Deletes what is below the node too, whatever its version; children that come meanwhile as well.
    pub fn deleting_children_if_needed(mut self) -> Self {
        self.children = true;
        self
    }

    /// A node that does not exist is no error.
    pub fn quietly(mut self) -> Self {
        self.quietly = true;
        self
    }

    /// A node that does not exist is no error: it may be this delete, whose reply was lost, that deleted it. The same
    /// as [`quietly`](Self::quietly) under the name that says why.
    pub fn idempotent(self) -> Self {
        self.quietly()
    }

    /// Deletes the node.
    ///
    /// # Errors
    ///
    /// `InvalidPath`, `NoNode`, `NotEmpty`, `BadVersion`, `NoAuth`, `SchemaViolation`; `ConnectionLoss` and `SessionExpired` when the
    /// retry policy gives up. After a lost reply a retry answers `NoNode`, unless it is quiet.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped the node may be deleted; if guaranteed, it will be.
    pub async fn for_path(self, path: &str) -> Result<()> {
        if let Some(schemas) = self.client.schemas() {
            schemas.check_delete(path)?;
        }
        let _owing = self.guaranteed.then(|| self.client.owing());
        let mut unfinished = Unfinished { delete: &self, path, goes_on: self.guaranteed };
        let children = self.children;
        let deleting = with_retries(self.client, path, |session| {
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
        // Only what may still succeed goes on: not a node that is missing, has children, or is not ours to delete
        // (CURATOR-42).
        let may_succeed = |error: &Error| error.is_retryable() || matches!(error, Error::Closed);
        unfinished.goes_on &= deleted.as_ref().err().is_some_and(may_succeed);
        match deleted {
            Err(Error::NoNode { .. }) if self.quietly => Ok(()),
            deleted => deleted,
        }
    }
}

/// A guaranteed delete that was not finished goes to the housekeeping when this is dropped.
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

/// Deletes a node and all that is below it: Curator's `ZKPaths.deleteChildren`.
///
/// # Errors
///
/// As [`Session::delete`], of the node itself; what is missing below it is gone already.
pub(crate) async fn delete_tree(session: &Session, path: &str, version: Option<i32>) -> Result<()> {
    // The nodes to delete, each behind those that are above it.
    let mut open = vec![path.to_owned()];
    while let Some(node) = open.last() {
        let is_top = open.len() == 1;
        match session.delete(node, if is_top { version } else { None }).await {
            Ok(()) => {
                open.pop();
            }
            Err(Error::NoNode { .. }) if !is_top => {
                open.pop();
            }
            Err(Error::NotEmpty { .. }) => match session.get_children(node).await {
                Ok(children) => {
                    let below: Vec<_> = children.iter().map(|child| crate::path::make_path(node, child)).collect();
                    open.extend(below);
                }
                // Gone meanwhile: the next delete says so.
                Err(Error::NoNode { .. }) => {}
                Err(error) => return Err(error),
            },
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

//! Owned nodes at exact paths, which have their id as data.

use std::sync::Arc;

use super::OwnedNode;
use crate::error::{Error, Result};
use crate::model::path::{node_from_path, parent_of};
use crate::model::protected::ProtectedId;
use crate::model::{CreateMode, Stat};
use crate::session::Session;
use crate::session::background::PendingDelete;
use crate::session::known_node::KnownNode;
use crate::zookeeper::Operation;

/// The node at the exact path of an owned node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Occupant {
    /// The owned node.
    Own,
    /// The node with the same id, perhaps of an earlier session of the owner, with this version.
    OfEarlierSession(i32),
    /// The node of another owner, with its session; 0 if it is not ephemeral.
    Other(i64),
    /// The path has no node.
    Missing,
}

/// The facts of an owned node at an exact path.
#[derive(Debug, Default)]
pub(super) struct Exact {
    /// The node that each owner writes in the transaction of the create.
    written: Option<String>,
}

impl Session {
    /// Returns the ownership of an ephemeral node at exactly this path. Sends no request.
    ///
    /// The create has to write the [id](OwnedNode::protected_id) as data, because it is not in the name. An attempt that
    /// continues in the next session passes its `id`.
    #[must_use]
    pub fn owned_node_at(&self, path: &str, id: Option<ProtectedId>) -> OwnedNode {
        let (parent, name) = (parent_of(path), node_from_path(path));
        let id = id.unwrap_or_else(|| self.new_id());
        let mut owned = OwnedNode::new(self.clone(), parent, id, name, CreateMode::Ephemeral);
        (owned.path, owned.exact) = (path.into(), Some(Box::default()));
        owned
    }

    /// Returns the check that the node stays as it is now. `None` without a node, or without the permission to read it.
    pub(crate) async fn unchanged(&self, path: Option<&str>) -> Result<Option<Operation>> {
        let Some(path) = path else { return Ok(None) };
        let found = match self.exists(path).await {
            Err(Error::NoAuth { .. }) => None,
            found => found?,
        };
        Ok(found.map(|stat| Operation::Check { path: path.to_owned(), version: Some(stat.version) }))
    }

    /// Deletes a node if the check succeeds. Returns `BadVersion` if the checked node or the deleted one has another
    /// version, or the checked one is gone. Without the permission to read the checked node it deletes in any case.
    pub(crate) async fn delete_if(&self, check: Option<Operation>, path: &str, version: Option<i32>) -> Result<()> {
        let Some(check) = check else { return self.delete(path, version).await };
        let delete = Operation::Delete { path: path.to_owned(), version };
        match self.transaction(vec![check, delete]).await {
            Err(Error::Transaction { index, cause, .. }) => match (index, *cause) {
                (0, Error::NoNode { path }) => Err(Error::BadVersion { path }),
                (0, Error::NoAuth { .. }) => self.delete(path, version).await,
                (_, cause) => Err(cause),
            },
            done => done.map(drop),
        }
    }
}

impl OwnedNode {
    /// Declares that each owner of a node at this [exact path](Session::owned_node_at) writes the node at `path` in the
    /// transaction of the create. The version of that node then shows to a delete if another owner has followed.
    #[must_use]
    pub fn writing(mut self, path: &str) -> Self {
        self.exact.get_or_insert_default().written = Some(path.to_owned());
        self
    }

    fn written(&self) -> Option<&str> {
        self.exact.as_ref()?.written.as_deref()
    }

    /// Reads the node at an [exact path](Session::owned_node_at), after `NodeExists` or an unknown outcome of the create.
    /// Adopts it if this owner has created it.
    ///
    /// # Errors
    ///
    /// * `Error::NoAuth`: the ACL of the node forbids reading it.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: a reply is missing. Call it again.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn occupant(&mut self) -> Result<Occupant> {
        let session = self.session.pinned();
        // After its reply, the create is applied or never will be.
        session.write_barrier().await?;
        let (data, stat) = match session.get_data(&self.path).await {
            Err(Error::NoNode { .. }) => {
                self.outcome_unknown = false;
                return Ok(Occupant::Missing);
            }
            read => read?,
        };
        self.outcome_unknown = false;
        if data != self.id.to_string().as_bytes() {
            return Ok(Occupant::Other(stat.ephemeral_owner));
        }
        // A client may not know its id before the first reply to the create of an ephemeral node.
        if session.id().is_none_or(|own| own.get() != stat.ephemeral_owner) {
            return Ok(Occupant::OfEarlierSession(stat.version));
        }
        let full = Arc::from(&*self.session.root().to_server_path(&self.path));
        self.set_node(KnownNode::new(full, stat.czxid));
        Ok(Occupant::Own)
    }

    /// Deletes the node at its exact path, and not a later one. Returns `NoNode` if it does not exist.
    pub(super) async fn delete_exact(&self, node: &KnownNode) -> Result<()> {
        let path = self.session.root().to_client_path(&node.path);
        loop {
            let unchanged = self.session.unchanged(self.written()).await?;
            let Some(Stat { version, .. }) = self.session.exists(path).await?.filter(|stat| !node.is_followed_by(stat))
            else {
                return Err(Error::NoNode { path: path.into() });
            };
            match self.session.delete_if(unchanged, path, Some(version)).await {
                Err(Error::BadVersion { .. }) => {}
                deleted => return deleted,
            }
        }
    }

    /// Returns what the drop leaves to delete.
    pub(super) fn remains_at_path(&self) -> PendingDelete {
        let to_server_path = |path: &str| self.session.root().to_server_path(path).into_owned();
        let path = to_server_path(&self.path);
        let written = self.written().map(to_server_path);
        match self.node.as_ref().filter(|_| !self.outcome_unknown) {
            Some(node) => PendingDelete::Created { path, czxid: node.czxid, ephemeral: true, written },
            None => PendingDelete::Marked { path, data: self.id.to_string(), written },
        }
    }
}

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
        (owned.path, owned.is_exact) = (path.to_owned(), true);
        owned
    }
}

impl OwnedNode {
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
            let Some(Stat { version, .. }) = self.session.exists(path).await?.filter(|stat| !node.is_followed_by(stat))
            else {
                return Err(Error::NoNode { path: path.into() });
            };
            match self.session.delete(path, Some(version)).await {
                Err(Error::BadVersion { .. }) => {}
                deleted => return deleted,
            }
        }
    }

    /// Returns what the drop leaves to delete.
    pub(super) fn remains_at_path(&self) -> PendingDelete {
        let path = self.session.root().to_server_path(&self.path).into_owned();
        match self.node.as_ref().filter(|_| !self.outcome_unknown) {
            Some(node) => PendingDelete::Created { path, czxid: node.czxid, ephemeral: true },
            None => PendingDelete::Marked { path, data: self.id.to_string() },
        }
    }
}

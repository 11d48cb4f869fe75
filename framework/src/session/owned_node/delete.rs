//! Deletes of owned nodes by their owner, and by its drop.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::OwnedNode;
use crate::error::{Error, Result};
use crate::model::path::parent_of;
use crate::session::background::PendingDelete;
use crate::session::known_node::{DeleteState, KnownNode};
use crate::zookeeper::{Done, Operation};

#[cfg(doc)]
use crate::session::Session;

/// Resets the state unless a reply has confirmed the delete.
struct OutstandingDelete<'a>(&'a KnownNode);

impl Drop for OutstandingDelete<'_> {
    fn drop(&mut self) {
        self.0.owner_delete.modify(|state| {
            if *state == DeleteState::Outstanding {
                *state = DeleteState::Idle;
            }
        });
    }
}

impl OwnedNode {
    /// Deletes the node. Returns `Ok(false)` if it was deleted before, but not by its owner.
    ///
    /// # Errors
    ///
    /// * `Error::NotEmpty`: the node has children.
    /// * `Error::NoAuth`: the ACL of the parent forbids deleting the node.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the [`Session`] got no reply, so the node may be deleted.
    ///
    /// After an error the node stays owned: delete it again, or drop the owned node, which deletes it too.
    ///
    /// # Cancel safety
    ///
    /// After the future is dropped the node may be deleted. Dropping the owned node deletes it in any case.
    pub async fn delete(&mut self) -> Result<bool> {
        Ok(self.delete_with(Vec::new()).await?.is_some())
    }

    /// Deletes the node like [`delete`](Self::delete), in one transaction behind other operations if there are any.
    /// Returns the results of the others. They are empty if an earlier call, which failed, has deleted the node.
    /// Returns `Ok(None)` if the node was deleted before, but not by its owner.
    ///
    /// # Errors
    ///
    /// * `Error::NotEmpty`: the node has children. Nothing was changed.
    /// * `Error::NoAuth`: the ACL of the parent forbids deleting the node. Nothing was changed.
    /// * `Error::Transaction`: another operation failed. `Error::Unsupported`: the client has no transactions. Nothing
    ///   was changed.
    /// * `Error::TooManyEphemeralNodes`: the session cannot have the nodes of the other operations. Nothing was sent.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the reply is missing, so all may be done, or nothing.
    ///
    /// After an error the node stays owned: delete it again, or drop the owned node, which deletes it too.
    ///
    /// # Cancel safety
    ///
    /// After the future is dropped all may be done, or nothing. Dropping the owned node deletes the node in any case.
    pub async fn delete_with(&mut self, others: Vec<Operation>) -> Result<Option<Vec<Done>>> {
        let Some(node) = self.node.clone() else { return Ok(Some(Vec::new())) };
        // From here on a deletion counts as the owner's, unless the delete turns out not to have been sent.
        let was_ours = !node.is_deleted();
        node.deleting.store(true, Ordering::SeqCst);
        let tried = std::mem::replace(&mut self.delete_sent, true);
        let outstanding = OutstandingDelete(&node);
        node.owner_delete.replace(DeleteState::Outstanding);
        let done = match self.send_delete(&node, others).await {
            Ok(done) => {
                node.owner_delete.replace(DeleteState::Done);
                Some(done)
            }
            // An earlier delete that was sent may have deleted the node.
            Err(Error::NoNode { .. }) => (tried && was_ours).then(Vec::new),
            Err(error) => {
                self.delete_sent = tried || error.outcome_unknown();
                node.deleting.store(self.delete_sent, Ordering::SeqCst);
                if !self.delete_sent {
                    // The node is still held. Deletions reported during the try counted as this delete, so watch again.
                    self.watch_node(Duration::ZERO);
                }
                return Err(error);
            }
        };
        drop(outstanding);
        self.cleaned_up = !self.outcome_unknown;
        Ok(done)
    }

    /// Sends the delete, alone or behind other operations. Returns `NoNode` if the node itself is missing.
    async fn send_delete(&self, node: &KnownNode, others: Vec<Operation>) -> Result<Vec<Done>> {
        if self.exact.is_some() && others.is_empty() {
            // Boxed: a rare branch must not enlarge every waiter's future.
            return Box::pin(self.delete_exact(node)).await.map(|()| Vec::new());
        }
        if others.is_empty() {
            return self.session.delete_node(Arc::clone(&node.path), None).await.map(|()| Vec::new());
        }
        let (path, own) = (self.session.root().to_client_path(&node.path).to_owned(), others.len());
        let mut operations = others;
        operations.push(Operation::Delete { path, version: None });
        // Boxed: a rare branch must not enlarge every waiter's future.
        match Box::pin(self.transaction(&self.session, operations)).await {
            Ok(mut done) => {
                done.truncate(own);
                Ok(done)
            }
            Err(Error::Transaction { index, cause, .. }) if index == own => Err(*cause),
            Err(error) => Err(error),
        }
    }

    /// Sends the delete of the node at once, and does not wait for the reply. Dropping the owned node instead sends it
    /// soon. Call it within a runtime.
    pub fn delete_in_background(mut self) {
        let session = self.session.clone();
        session.background().spawn_eager(async move {
            // If the delete fails, dropping `self` hands the node to the background task.
            let _deleted = self.delete().await;
        });
    }

    /// Leaves the node to the caller: dropping the owned node no longer deletes it.
    pub(crate) fn into_unmanaged(mut self) {
        self.cleaned_up = true;
    }
}

impl Drop for OwnedNode {
    fn drop(&mut self) {
        self.forget_node();
        let parent = self.session.root().to_server_path(parent_of(&self.path));
        self.session.reaper().touch_parent(&parent, self.session.clock().now());
        let may_exist = self.outcome_unknown || self.node.is_some();
        if may_exist && !self.cleaned_up {
            if let Some(node) = &self.node {
                // A guard that outlives its node must not take this delete for a loss.
                node.deleting.store(true, Ordering::SeqCst);
                node.owner_delete.replace(DeleteState::Left);
            }
            self.session.background().clean(
                &self.session,
                match self.exact.is_some() {
                    true => self.remains_at_path(),
                    false => PendingDelete::Claimed {
                        parent: parent.into_owned(),
                        prefix: self.id.prefix(),
                        path: self.node.as_ref().filter(|_| !self.outcome_unknown).map(|node| node.path.to_string()),
                        ephemeral: self.mode.is_ephemeral(),
                    },
                },
            );
        }
        self.session.remove_owned_node();
    }
}

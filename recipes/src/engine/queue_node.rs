//! The creation of the own node in the queue, also when replies are lost.

use curator_framework::recipe::{Created, OwnedNode, Parents, RecipeClient as _};
use curator_framework::{CreateMode, Error, RetryLoop, Session, make_path};

use crate::engine::LockInternals;

impl LockInternals {
    /// Creates an owned node. Repeats a create under the same prefix, so that all its nodes are found. Returns `None` if
    /// a create with a lost reply may have made the node.
    pub(crate) async fn create(
        &self,
        owned: &mut OwnedNode,
        retries: &mut RetryLoop,
    ) -> Result<Option<Created>, Error> {
        let stored = self.stored_data()?;
        let node = self.node_spec(&stored);
        let parents = if self.spec.has_containers { self.client.lock_parents() } else { Parents::Persistent };
        let node = node.with_parents(parents).with_parent_data(self.spec.parent_data);
        let session = owned.session().clone();
        loop {
            match owned.create(&node).await {
                Ok(created) => return Ok(Some(created)),
                // At the end of the counter the server gives the same number again.
                Err(Error::NodeExists { .. }) if owned.is_uncertain() => return Ok(None),
                // Another client, which deletes empty nodes, has deleted the parents that were just created.
                Err(error @ Error::NoNode { .. }) => Box::pin(retries.pause_after(error)).await?,
                Err(error) => retries.failed_in(&session, error).await?,
            }
        }
    }

    /// Creates a node with this name in a session, without a number from the server.
    pub(crate) async fn create_named(
        &self,
        session: &Session,
        name: &str,
        retries: &mut RetryLoop,
    ) -> Result<OwnedNode, Error> {
        let stored = self.stored_data()?;
        let mut owned = session.owned_node(&self.base_path, name, CreateMode::Ephemeral);
        loop {
            match owned.create(&self.node_spec(&stored)).await {
                Ok(_) => return Ok(owned),
                // No other client creates this name, so a create with a lost reply has made the node.
                Err(Error::NodeExists { .. }) if owned.is_uncertain() => {
                    let own = format!("{}{name}", owned.protected_id().prefix());
                    let path = make_path(&self.base_path, &own);
                    let Some(stat) = session.exists(&path).await? else {
                        return Err(Error::NoNode { path: path.into() });
                    };
                    owned.adopt(&own, &stat, &[]).await?;
                    return Ok(owned);
                }
                Err(error) => retries.failed_in(session, error).await?,
            }
        }
    }
}

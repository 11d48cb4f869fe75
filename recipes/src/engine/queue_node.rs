//! A contender's node in the queue: its data, its access control list, its creation, and lost replies.

use std::borrow::Cow;

use curator_framework::recipe::{Created, NodeSpec, OwnedNode, Parents, RecipeClient as _};
use curator_framework::{Acl, CreateMode, Error, RetryLoop, Session, Stat, make_path};

use crate::engine::LockInternals;

impl LockInternals {
    /// Returns the data of a node, as it is written.
    pub(crate) fn stored_data(&self) -> Result<Cow<'_, [u8]>, Error> {
        let data = match (&self.options.revocation, &self.options.data) {
            // Curator creates the node of a revocable lock without data.
            (Some(_), _) => &[],
            (None, Some(data)) => data.as_slice(),
            (None, None) => self.client.default_data(),
        };
        self.client.to_stored_at(&self.base_path, data)
    }

    /// Returns the description of a contender's node with this stored data.
    pub(crate) fn node_spec<'a>(&'a self, stored: &'a [u8]) -> NodeSpec<'a> {
        let node = NodeSpec::new(stored);
        match &self.options.acl {
            Some(acl) => node.with_acl(acl),
            None => node,
        }
    }

    /// Returns the access control list of a contender's node.
    pub(crate) fn acl(&self, session: &Session, name: &str) -> Vec<Acl> {
        self.options.acl.clone().unwrap_or_else(|| session.acl_for(&make_path(&self.base_path, name)))
    }

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

/// Keeps the oldest node of an owner in its own session, and deletes the others, which lost replies have left. The owned
/// node stays uncertain if no node is found.
pub(crate) async fn adopt<'a>(
    owned: &mut OwnedNode,
    base_path: &str,
    children: impl IntoIterator<Item = &'a String>,
) -> Result<(), Error> {
    let mut oldest: Option<(Stat, String)> = None;
    let mut own: Vec<String> = owned.own(children).into_iter().map(ToOwned::to_owned).collect();
    for name in &own {
        let path = make_path(base_path, name);
        let Some(stat) = owned.session().exists(&path).await? else { return Err(Error::NoNode { path: path.into() }) };
        if owned.is_own(&stat) && oldest.as_ref().is_none_or(|(other, _)| stat.czxid < other.czxid) {
            oldest = Some((stat, name.clone()));
        }
    }
    let Some((stat, oldest)) = oldest else { return Ok(()) };
    own.retain(|name| *name != oldest);
    let others: Vec<&str> = own.iter().map(String::as_str).collect();
    owned.adopt(&oldest, &stat, &others).await
}

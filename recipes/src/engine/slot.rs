//! The numbers of leases: an ephemeral node for each number that is in use.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use curator_framework::recipe::{NodeSpec, Occupant, OwnedNode, RecipeClient as _};
use curator_framework::{Acl, CuratorFramework, Error, RetryLoop, Session, Watch, make_path};
use parking_lot::Mutex;
use tokio::sync::SetOnce;

use crate::engine::error::LockError;
use crate::engine::limit::Limit;
use crate::engine::requests::children_of;

/// The numbers of a semaphore.
#[derive(Debug)]
pub(crate) struct Slots {
    /// The parent of their nodes.
    pub(crate) path: String,
    pub(crate) limit: Arc<Limit>,
    pub(crate) acl: Option<Vec<Acl>>,
}

/// The number of one lease.
pub(crate) struct Slot {
    slots: Arc<Slots>,
    /// One call at a time claims the number.
    claiming: tokio::sync::Mutex<()>,
    node: Mutex<Option<(u32, OwnedNode)>>,
    /// Set by the release or the loss of the lease.
    over: SetOnce<()>,
}

impl Slot {
    /// Creates the slot of a lease, without a number.
    pub(crate) fn new(slots: Arc<Slots>) -> Self {
        Self { slots, claiming: tokio::sync::Mutex::default(), node: Mutex::default(), over: SetOnce::new() }
    }

    /// Ends the slot with its lease. Returns the node, which the caller deletes or drops.
    pub(crate) fn end(&self) -> Option<OwnedNode> {
        // Only the first call sets it.
        let _set = self.over.set(());
        self.node.lock().take().map(|(_, node)| node)
    }

    /// Resolves when the slot has ended.
    pub(crate) async fn ended(&self) {
        self.over.wait().await;
    }

    /// Returns the number. The first call claims it.
    pub(crate) async fn number(
        &self,
        session: &Session,
        client: &CuratorFramework,
        lock_path: &str,
    ) -> Result<u32, LockError> {
        let _claiming = self.claiming.lock().await;
        if let Some((number, node)) = &*self.node.lock() {
            let loss = node.loss_signal().loss();
            let path = || node.path_text().unwrap_or_else(|| "".into());
            return loss.map_or(Ok(*number), |reason| Err(LockError::LockLost { path: path(), reason }));
        }
        let claimed = self.slots.claim(session, client).await;
        let (number, node) = claimed.map_err(|error| error.about(lock_path))?;
        node.watch_node(std::time::Duration::ZERO);
        let mut kept = self.node.lock();
        // Otherwise the caller learns of the end, and the node is deleted with its drop.
        if !self.over.initialized() {
            *kept = Some((number, node));
        }
        Ok(number)
    }
}

impl Slots {
    /// Claims the lowest free number. Waits for one while the leases before have not returned theirs yet.
    async fn claim(&self, session: &Session, client: &CuratorFramework) -> Result<(u32, OwnedNode), Error> {
        let (mut limit, mut retries) = (self.limit.follow(), client.retry_loop());
        let mut watches = false;
        loop {
            limit.wait_for(|limit| limit > 0).await;
            let (taken, watch) = match self.taken(session, watches).await {
                Ok(listed) => listed,
                Err(error) => {
                    retries.failed_in(session, error).await?;
                    continue;
                }
            };
            for number in (0..=u32::MAX).take(limit.get()).filter(|number| !taken.contains(number)) {
                if let Some(node) = self.create(number, session, client, &mut retries).await? {
                    return Ok((number, node));
                }
            }
            if let Some(watch) = watch {
                tokio::select! {
                    _ = watch => {}
                    () = limit.changed() => {}
                }
            }
            watches = true;
        }
    }

    /// Lists the numbers in use, if need be with a watch.
    async fn taken(&self, session: &Session, watches: bool) -> Result<(HashSet<u32>, Option<Watch>), Error> {
        let (children, watch) = match watches {
            false => (children_of(session, &self.path).await?, None),
            true => match session.get_children_watched(&self.path).await {
                Ok((children, watch)) => (children, Some(watch)),
                Err(Error::NoNode { .. }) => (Vec::new(), None),
                Err(error) => return Err(error),
            },
        };
        Ok((children.iter().filter_map(|name| name.parse().ok()).collect(), watch))
    }

    /// Creates the node of a number. Returns `None` if another lease has it.
    async fn create(
        &self,
        number: u32,
        session: &Session,
        client: &CuratorFramework,
        retries: &mut RetryLoop,
    ) -> Result<Option<OwnedNode>, Error> {
        let mut node = session.owned_node_at(&make_path(&self.path, &format!("{number:010}")), None);
        let data = node.protected_id().to_string();
        let spec = NodeSpec::new(data.as_bytes()).with_parents(client.lock_parents());
        let spec = match &self.acl {
            Some(acl) => spec.with_acl(acl),
            None => spec,
        };
        loop {
            let error = match node.create(&spec).await {
                Ok(_) => return Ok(Some(node)),
                Err(Error::NodeExists { .. }) if !node.is_uncertain() => return Ok(None),
                // A create with a lost reply may have made it.
                Err(Error::NodeExists { .. }) => match node.occupant().await {
                    Ok(Occupant::Own) => return Ok(Some(node)),
                    Ok(Occupant::Missing) => continue,
                    Ok(_) => return Ok(None),
                    Err(error) => error,
                },
                // Another client, which deletes empty nodes, has deleted the parents that were just created.
                Err(error @ Error::NoNode { .. }) => {
                    retries.pause_after(error).await?;
                    continue;
                }
                Err(error) => error,
            };
            retries.failed_in(session, error).await?;
        }
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.node.lock().as_ref().map(|(number, _)| *number);
        f.debug_struct("Slot").field("number", &number).finish_non_exhaustive()
    }
}

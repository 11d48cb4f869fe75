//! The lock of a batch.

use std::future::{Future, pending};
use std::pin::Pin;

use curator_framework::{Error, Watch};

use crate::engine::acquire::attempts;
use crate::engine::acquired::Acquired;
use crate::engine::batch::lobby::{GrantedNode, Lobby};
use crate::engine::batch::plan::Supply;
use crate::engine::error::LockError;
use crate::engine::internals::LockInternals;
use crate::engine::wait_mode::{Contention, WaitMode};

pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A lock, without its client.
pub(crate) trait Source: Send + Sync {
    /// Returns the lock of the nodes.
    fn nodes(&self) -> &LockInternals;

    /// Returns the path in spans and errors.
    fn path(&self) -> &str;

    fn supply(&self) -> Supply;

    /// Makes attempts, one session after the other, until at least one node is granted, and for a batch at most one for
    /// each entry that is not served.
    fn attempts<'a>(
        &'a self,
        batch: Option<&'a Lobby>,
        mode: WaitMode,
        contention: &'a Contention,
    ) -> Boxed<'a, Result<Option<Vec<Acquired>>, LockError>>;

    /// Checks for other contenders, and reports them to the batch.
    fn watch_others<'a>(&'a self, batch: &'a Lobby, node: Option<GrantedNode>) -> Boxed<'a, ()>;
}

/// A lock that one contender holds at a time.
pub(super) struct OneNode(pub(super) LockInternals);

impl Source for OneNode {
    fn nodes(&self) -> &LockInternals {
        &self.0
    }

    fn path(&self) -> &str {
        self.0.base_path()
    }

    fn supply(&self) -> Supply {
        Supply::ONE
    }

    fn attempts<'a>(
        &'a self,
        _batch: Option<&'a Lobby>,
        mode: WaitMode,
        contention: &'a Contention,
    ) -> Boxed<'a, Result<Option<Vec<Acquired>>, LockError>> {
        Box::pin(async move {
            let granted = attempts(self.0.client(), mode, contention, &self.0).await?;
            Ok(granted.map(|acquired| vec![acquired]))
        })
    }

    /// Reads the lock's queue, and again after each change, until it finds another contender.
    fn watch_others<'a>(&'a self, batch: &'a Lobby, node: Option<GrantedNode>) -> Boxed<'a, ()> {
        Box::pin(async move {
            let Some(node) = node else { return pending().await };
            let turn = Some(node.turn);
            loop {
                let (others, watch) = match self.look(&node).await {
                    Ok((others, watch)) => (others, Some(watch)),
                    // Without a watch another contender may wait unseen.
                    Err(_unseen) => (true, None),
                };
                batch.looked(turn, others, None);
                match watch {
                    Some(watch) if !others => drop(watch.await),
                    watch => {
                        // The node's delete uses it up.
                        watch.into_iter().for_each(Watch::leave);
                        return pending().await;
                    }
                }
                batch.may_have_changed(turn);
            }
        })
    }
}

impl OneNode {
    async fn look(&self, node: &GrantedNode) -> Result<(bool, Watch), Error> {
        let (children, watch) = node.session.pinned().get_children_watched(self.0.base_path()).await?;
        let others = self.0.sort(children).names().any(|name| name != &*node.name);
        Ok((others, watch))
    }
}

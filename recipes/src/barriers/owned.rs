//! A barrier that is set as long as its guard exists.

use std::fmt;
use std::time::Duration;

use curator_framework::{CuratorFramework, LossReason, LossSignal, OwnedNode};

use crate::barriers::error::BarrierResult;
use crate::barriers::exact_node::create_exact_node;

/// A barrier that is set as long as this guard exists and its session lasts:
/// [`DistributedBarrier::set_owned`](crate::DistributedBarrier::set_owned).
///
/// The drop of the guard removes the barrier in the background. Another client may remove it too.
#[must_use = "the barrier is removed when this is dropped"]
pub struct OwnedBarrier {
    client: CuratorFramework,
    node: OwnedNode,
    signal: LossSignal,
}

impl OwnedBarrier {
    pub(super) async fn set(client: &CuratorFramework, path: &str) -> BarrierResult<Self> {
        let node = create_exact_node(client, path, None).await?;
        node.watch_node(Duration::ZERO);
        Ok(Self { client: client.clone(), signal: node.loss_signal(), node })
    }

    /// Returns the barrier's path.
    #[must_use]
    pub fn path(&self) -> &str {
        self.node.planned_path()
    }

    /// Returns `true` until this guard's barrier is known to be lost: its session's deadline has passed, or another
    /// client has removed it. Local, no request.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.signal.loss().is_none()
    }

    /// Resolves with the reason when this guard's barrier is lost: removed by another client, or gone with its session.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn lost(&self) -> LossReason {
        self.signal.lost().await
    }

    /// Removes the barrier. Returns `true` if it was set until now, `false` if it was lost before.
    ///
    /// # Errors
    ///
    /// `Error::ConnectionLoss`: no server has confirmed the deletion within the client's
    /// [`max_close_wait`](curator_framework::CuratorFrameworkBuilder::max_close_wait), 5 s by default, or before the retry
    /// policy gave up. The session removes the barrier in the background.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the barrier is removed in the background.
    pub async fn remove(mut self) -> BarrierResult<bool> {
        let client = self.client.clone();
        let removed = client.within(client.close_budget(), self.try_to_remove()).await;
        removed.unwrap_or_else(|| Err(client.no_answer("delete").into()))
    }

    async fn try_to_remove(&mut self) -> BarrierResult<bool> {
        let mut retries = self.client.retry_loop();
        loop {
            let deleted = match retries.reconnected(self.node.session()).await {
                Ok(()) => self.node.delete().await,
                Err(error) => Err(error),
            };
            let error = match deleted {
                Ok(was_set) => return Ok(was_set),
                Err(error) => error,
            };
            if self.node.session().end_reason().is_some() {
                return Ok(false);
            }
            retries.failed(error).await?;
        }
    }
}

impl fmt::Debug for OwnedBarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedBarrier")
            .field("path", &self.path())
            .field("is_held", &self.is_held())
            .finish_non_exhaustive()
    }
}

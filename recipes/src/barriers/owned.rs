//! A barrier that is set as long as its guard exists.

use std::fmt;
use std::time::Duration;

use curator_framework::recipe::{OwnedNode, RecipeClient as _};
use curator_framework::{CuratorFramework, LossReason};

use crate::barriers::checks::verify;
use crate::barriers::error::BarrierError;
use crate::barriers::exact_node::create_exact_node;
use crate::engine::hold::Release;
use crate::held::{FencingToken, impl_held};
use crate::node_hold::NodeHold;

/// A barrier that is set as long as this guard exists and its session lasts:
/// [`DistributedBarrier::set_owned`](crate::DistributedBarrier::set_owned).
///
/// The drop of the guard removes the barrier in the background. Another client may remove it too.
#[must_use = "the barrier is removed when this is dropped"]
pub struct OwnedBarrier {
    hold: NodeHold,
    barrier: tokio::sync::Mutex<Barrier>,
}

/// The state of the barrier of a guard.
enum Barrier {
    /// The node, and the client, which stays open for it.
    Set(OwnedNode, CuratorFramework),
    Removed(Release),
}

impl OwnedBarrier {
    pub(super) async fn set(client: &CuratorFramework, path: &str) -> Result<Self, BarrierError> {
        let node = create_exact_node(client, path, None).await?;
        node.watch_node(Duration::ZERO);
        let hold = NodeHold::new(client, path, &node);
        Ok(Self { hold, barrier: tokio::sync::Mutex::new(Barrier::Set(node, client.clone())) })
    }

    /// Returns the barrier's path.
    #[must_use]
    pub fn path(&self) -> &str {
        self.hold.path()
    }

    /// Returns `true` until this guard's barrier is released or known to be lost: its session's deadline has passed, or
    /// another client has removed it. Local, no request.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.hold.is_held()
    }

    /// Returns how long the barrier is certainly set if the server sends nothing more; zero if it is not held.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.hold.remaining()
    }

    /// Resolves with the reason when this guard's barrier is lost: removed by another client, or gone with its session.
    /// Never resolves after a release that came first.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn lost(&self) -> LossReason {
        self.hold.lost().await
    }

    /// Asks the leader of the ensemble whether this guard's barrier is set: one round trip, and a read.
    ///
    /// # Errors
    ///
    /// `BarrierError::Lost` after a loss; `BarrierError::InvalidArgument` after a release; `Error::ConnectionLoss` or
    /// another error of the framework if no server replied until the retry policy gave up.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn verify(&self) -> Result<(), BarrierError> {
        verify(&self.hold).await
    }

    /// Returns the fencing token: the `czxid` of the barrier's node.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.hold.token()
    }

    /// Removes the barrier, and returns whether it was set until now. After a success, further calls return the same
    /// outcome.
    ///
    /// # Errors
    ///
    /// `Error::ConnectionLoss`: no server has confirmed the deletion within the client's
    /// [`max_close_wait`](curator_framework::CuratorFrameworkBuilder::max_close_wait), 5 s by default, or before the retry
    /// policy gave up. The guard no longer holds the barrier. Call `release` again, or drop the guard, which removes
    /// the barrier in the background.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the guard no longer holds the barrier. The next call, or the drop of the guard,
    /// removes it.
    pub async fn release(&self) -> Result<Release, BarrierError> {
        let before = self.hold.give_up();
        let mut barrier = self.barrier.lock().await;
        let (node, client) = match &mut *barrier {
            Barrier::Set(node, client) => (node, client),
            Barrier::Removed(outcome) => return Ok(*outcome),
        };
        let removed = client.within(client.close_budget(), Self::remove(node, client)).await;
        let removed = removed.unwrap_or_else(|| Err(client.no_answer("delete").into()))?;
        let outcome = before.map_or(removed, Release::AlreadyLost);
        *barrier = Barrier::Removed(outcome);
        Ok(outcome)
    }

    async fn remove(node: &mut OwnedNode, client: &CuratorFramework) -> Result<Release, BarrierError> {
        let mut retries = client.retry_loop();
        loop {
            let deleted = match retries.reconnected(node.session()).await {
                Ok(()) => node.delete().await,
                Err(error) => Err(error),
            };
            match (deleted, node.session().end_reason()) {
                (Ok(true), _) => return Ok(Release::Released),
                (Ok(false), _) => return Ok(Release::AlreadyLost(LossReason::NodeDeleted)),
                (Err(_), Some(end)) => return Ok(Release::AlreadyLost(LossReason::Session(end))),
                (Err(error), None) => retries.failed(error).await?,
            }
        }
    }
}

impl_held!(OwnedBarrier, BarrierError);

impl fmt::Debug for OwnedBarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedBarrier")
            .field("path", &self.path())
            .field("is_held", &self.is_held())
            .finish_non_exhaustive()
    }
}

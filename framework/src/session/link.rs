//! The connection of a session.

use super::Session;
use super::state::ConnectionInfo;
use crate::error::{INTERNAL_WAIT, Result};
use crate::zookeeper::{Evidence, Reattached};

impl Session {
    /// Returns `true` while the session has a connection on which a server has accepted it.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.end_reason().is_none() && self.inner.link.get().up
    }

    /// Resolves when the session has a connection newer than `epoch`.
    pub(crate) async fn epoch_above(&self, epoch: u64) {
        self.inner.link.wait_for(|link| link.up && link.epoch > epoch).await;
    }

    /// Resolves when the session has a connection.
    ///
    /// # Errors
    ///
    /// `Error::SessionExpired`: the session ended first, at its deadline at the latest. `Error::Closed`: the client was
    /// closed.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn connected(&self) -> Result<()> {
        tokio::select! {
            biased;
            _ = self.ended() => Err(self.closed_error(INTERNAL_WAIT)),
            _ = self.inner.link.wait_for(|link| link.up) => Ok(()),
        }
    }

    /// Resolves when the session has lost its connection, or has another one: it was [connected](Self::is_connected) or
    /// not as `was_connected` says, and the newest connection had this [epoch](Self::epoch). Several tasks that wait are
    /// woken in the order of their calls.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn connection_changed(&self, was_connected: bool, epoch: u64) {
        let is_connected = |link: &ConnectionInfo| link.up && self.end_reason().is_none();
        self.inner.link.wait_for(|link| is_connected(link) != was_connected || link.epoch != epoch).await;
    }

    pub(crate) fn set_disconnected(&self) {
        self.inner.link.modify(|link| link.up = false);
    }

    pub(crate) fn set_reconnected(&self, reattached: &Reattached) {
        let now = self.inner.clock.now();
        let Reattached { sent, leader_sent, timeout, epoch } = *reattached;
        self.change_liveness(|state| state.liveness.reattached(sent, now, timeout, epoch));
        if let Some(sent) = leader_sent {
            self.answered_at(now, sent, epoch, Evidence::Leader);
        }
        self.inner.watches.attached(epoch, || {
            self.inner.link.modify(|link| {
                link.up = true;
                link.epoch = epoch;
            });
        });
        if !self.inner.handle.capabilities().restores_watches {
            self.inner.watches.reconnected();
        }
        self.inner.background.reconnected();
    }
}

//! The connection of a session.

use super::Session;
use super::state::{ConnectionInfo, Inner};
use crate::error::{INTERNAL_WAIT, Result};
use crate::state::connection_state::ConnectionState;
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

    /// Records a state of the connection. If the client's policy takes it for an error, all owned nodes count as lost.
    pub(crate) fn on_state_change(&self, state: ConnectionState) {
        if self.inner.error_policy.is_error_state(state) {
            self.inner.count_error();
            self.inner.watches.all_lost();
        }
    }

    /// Returns how often the connection was in an error state. If silence is one, it compares the clock with the time
    /// of silence too, so that the first call after a sleep is right.
    pub(crate) fn errors(&self) -> u64 {
        if self.inner.silence_is_error && self.inner.clock.now() >= self.times().suspend_at {
            return self.inner.count_error();
        }
        self.inner.link.get().errors
    }

    /// Resolves when the connection has been in an error state more often than `errors`.
    pub(crate) async fn errors_above(&self, errors: u64) {
        self.inner.link.wait_for(|link| link.errors > errors).await;
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

impl Inner {
    /// Counts an error state of the connection, which ends all holds.
    pub(super) fn count_error(&self) -> u64 {
        self.link.modify(|link| {
            link.errors += 1;
            link.errors
        })
    }
}

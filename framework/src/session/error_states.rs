//! The error states of a connection, which end all holds: the client's policy says which states these are.

use super::Session;
use super::state::Inner;
use crate::state::connection_state::ConnectionState;

impl Session {
    /// Records a state of the connection. If the client's policy takes it for an error, all owned nodes count as lost.
    pub(crate) fn on_state_change(&self, state: ConnectionState) {
        if self.inner.error_policy.is_error_state(state) {
            self.inner.count_error_state();
            self.inner.watches.all_lost();
        }
    }

    /// Returns how often the connection was in an error state. If silence is one, it compares the clock with the time
    /// of silence too, so that the first call after a sleep is right.
    pub(crate) fn error_states(&self) -> u64 {
        if self.inner.silence_is_error && self.inner.clock.now() >= self.times().suspend_at {
            return self.inner.count_error_state();
        }
        self.inner.link.get().error_states
    }

    /// Resolves when the connection has been in an error state more often than `count`.
    pub(crate) async fn error_states_above(&self, count: u64) {
        self.inner.link.wait_for(|link| link.error_states > count).await;
    }
}

impl Inner {
    /// Counts an error state of the connection, which ends all holds.
    pub(super) fn count_error_state(&self) -> u64 {
        self.link.modify(|link| {
            link.error_states += 1;
            link.error_states
        })
    }
}

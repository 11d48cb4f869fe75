//! The changes of the connection, for the streams of the older caches.

use std::future::pending;
use std::sync::Arc;

use curator_framework::ConnectionState::{self, Lost, Suspended};
use curator_framework::{CuratorFramework, Session};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::contents::Shared;
use super::events::Notice;

/// The connection of a cache's client.
pub(super) struct Connection {
    shared: Arc<Shared>,
    states: watch::Receiver<Option<ConnectionState>>,
    /// The newest session of the cache.
    session: Mutex<Option<Session>>,
}

impl Connection {
    pub(super) fn new(client: &CuratorFramework, shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::clone(shared), states: client.watch_connection_state(), session: Mutex::new(None) }
    }

    /// Records the session in which the cache is. Returns `false` if that was known.
    pub(super) fn is_in_another(&self, session: &Session) -> bool {
        let before = self.session.lock().replace(session.clone());
        before.is_none_or(|before| !before.is_same(session))
    }

    /// Reports each change of the connection. Never resolves.
    pub(super) async fn tell(&self) {
        let mut states = self.states.clone();
        let mut told = *states.borrow_and_update();
        while states.changed().await.is_ok() {
            let Some(state) = *states.borrow_and_update() else { continue };
            let has_ended = self.session.lock().take_if(|session| session.end_reason().is_some()).is_some();
            for step in steps(told, state, has_ended) {
                self.shared.notice(Notice::Connection(step));
            }
            told = Some(state);
        }
        // The client is closed, and the cache ends.
        pending().await
    }
}

/// Returns the states from the last reported one to the newest one. The channel may have skipped those between.
fn steps(told: Option<ConnectionState>, newest: ConnectionState, has_ended: bool) -> Vec<ConnectionState> {
    let is_connected = |state: ConnectionState| state.is_connected();
    let skips_loss = has_ended && told != Some(Lost) && newest != Lost;
    let skips_pause = !has_ended && told.is_some_and(is_connected) && is_connected(newest);
    let skipped = [(skips_loss, Lost), (skips_pause, Suspended)];
    let newest = (told != Some(newest) || is_connected(newest)).then_some(newest);
    skipped.into_iter().filter_map(|(is_skipped, state)| is_skipped.then_some(state)).chain(newest).collect()
}

#[cfg(test)]
mod tests {
    use curator_framework::ConnectionState::{Connected, Reconnected};

    use super::*;

    #[test]
    fn states_that_the_channel_has_skipped_are_told() {
        for (told, newest, has_ended, expected) in [
            (None, Connected, false, &[Connected][..]),
            (Some(Connected), Suspended, false, &[Suspended]),
            (Some(Suspended), Suspended, false, &[]),
            (Some(Suspended), Reconnected, false, &[Reconnected]),
            (Some(Connected), Reconnected, false, &[Suspended, Reconnected]),
            (Some(Suspended), Lost, true, &[Lost]),
            (Some(Lost), Reconnected, true, &[Reconnected]),
            (Some(Suspended), Reconnected, true, &[Lost, Reconnected]),
            (Some(Reconnected), Reconnected, true, &[Lost, Reconnected]),
        ] {
            assert_eq!(steps(told, newest, has_ended), expected, "{told:?}, {newest:?}, {has_ended}");
        }
    }
}

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
    is_told: watch::Sender<bool>,
    sessions: Mutex<Sessions>,
}

#[derive(Default)]
struct Sessions {
    /// The newest session of the cache, unless its end is known.
    newest: Option<Session>,
    /// A session has ended, and the next report has to tell it.
    has_ended: bool,
}

impl Sessions {
    /// Records a session. Returns `false` if it was known.
    fn enter(&mut self, session: &Session) -> bool {
        let before = self.newest.replace(session.clone());
        let is_replaced = before.as_ref().is_some_and(|before| !before.is_same(session));
        // The report may come only now, when the channel has skipped the state `Lost`.
        self.has_ended |= is_replaced;
        is_replaced || before.is_none()
    }

    /// Returns `true` if a session has ended since the last call.
    fn take_end(&mut self) -> bool {
        let newest_ended = self.newest.take_if(|session| session.end_reason().is_some()).is_some();
        std::mem::take(&mut self.has_ended) || newest_ended
    }
}

impl Connection {
    pub(super) fn new(client: &CuratorFramework, shared: &Arc<Shared>) -> Self {
        let (states, is_told) = (client.watch_connection_state(), watch::Sender::new(false));
        Self { shared: Arc::clone(shared), states, is_told, sessions: Mutex::default() }
    }

    /// Records the session in which the cache is. Returns `false` if that was known.
    pub(super) fn is_in_another(&self, session: &Session) -> bool {
        self.sessions.lock().enter(session)
    }

    /// Resolves when the last reported state is a connected one, or the client is closed. The client's state may come
    /// after the first notifications of a connection.
    pub(super) async fn is_told(&self) {
        // Never fails: `self` has the sender.
        drop(self.is_told.subscribe().wait_for(|is_told| *is_told).await);
    }

    /// Reports each change of the connection. Never resolves.
    pub(super) async fn tell(&self) {
        let mut states = self.states.clone();
        let mut told = *states.borrow_and_update();
        self.is_told.send_replace(told.is_some_and(ConnectionState::is_connected));
        while states.changed().await.is_ok() {
            let Some(state) = *states.borrow_and_update() else { continue };
            let has_ended = self.sessions.lock().take_end();
            for step in steps(told, state, has_ended) {
                self.shared.notice(Notice::Connection(step));
            }
            told = Some(state);
            self.is_told.send_replace(state.is_connected());
        }
        // The client is closed, and the cache ends.
        self.is_told.send_replace(true);
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
    use std::time::Duration;

    use curator_framework::ConnectionState::{Connected, Reconnected};
    use curator_framework::RetryOneTime;
    use curator_test::TestingServer;

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

    #[tokio::test]
    async fn a_session_that_a_newer_one_replaced_has_ended() {
        let server = TestingServer::start().unwrap();
        let retry = RetryOneTime::new(Duration::from_millis(50));
        let (mut sessions, mut entered) = (Sessions::default(), Vec::new());
        for _ in 0..2 {
            let client = CuratorFramework::new_client(server.connect_string(), retry).unwrap();
            client.start().unwrap();
            entered.push((client.session().await.unwrap(), client));
        }
        let [(first, _), (second, client)] = &entered[..] else { unreachable!() };
        assert!(sessions.enter(first) && !sessions.enter(first) && !sessions.take_end());
        // The cache is in its next session before the report of the state starts.
        assert!(sessions.enter(second) && sessions.take_end() && !sessions.take_end());
        client.close().await;
        assert!(sessions.take_end() && !sessions.take_end());
    }
}

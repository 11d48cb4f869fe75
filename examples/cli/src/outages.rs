//! The outages of a program that continues without a connection.

use std::future::pending;

use curator_framework::{ConnectionState, CuratorFramework};
use tokio::sync::watch;

/// Follows the connection of a client.
pub(crate) struct Outages {
    client: CuratorFramework,
    states: watch::Receiver<Option<ConnectionState>>,
    is_connected: bool,
}

impl Outages {
    /// Follows the connection of a client that has a session. Its first state may still be on its way.
    pub(crate) fn of(client: &CuratorFramework) -> Self {
        Self { client: client.clone(), states: client.watch_connection_state(), is_connected: true }
    }

    /// Resolves when the connection is lost (`false`), or is back (`true`).
    pub(crate) async fn change(&mut self) -> bool {
        loop {
            if self.states.changed().await.is_err() {
                pending::<()>().await;
            }
            let now = self.client.is_connected();
            if now != self.is_connected {
                self.is_connected = now;
                return now;
            }
        }
    }
}

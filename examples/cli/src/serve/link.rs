//! Follows the connection to ZooKeeper.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use curator_framework::{ConnectionState, CuratorFramework};
use tokio::sync::watch;
use tokio::time::sleep;

use super::follow::{PAUSE, now};
use crate::output::tell;

/// The state of the connection to ZooKeeper.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    /// The connect string.
    pub(crate) servers: Arc<str>,
    /// The users of the credentials.
    pub(crate) users: Arc<str>,
    pub(crate) state: Option<ConnectionState>,
    /// The time of the newest change between connected and not, in milliseconds since 1970.
    pub(crate) since: i64,
    /// The reason for which no connection exists, if it is known.
    pub(crate) cause: Option<String>,
}

impl Link {
    /// Creates the state before the first connection.
    pub(crate) fn new(servers: &str, users: &str) -> Self {
        Self { servers: servers.into(), users: users.into(), state: None, since: now(), cause: None }
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.state.is_some_and(ConnectionState::is_connected)
    }
}

/// Publishes each state of the connection, until the client is dropped. Prints a line for each loss and each return.
pub(crate) async fn follow_connection(
    client: CuratorFramework,
    links: watch::Sender<Link>,
    reconnects: Arc<AtomicU64>,
) {
    let mut states = client.watch_connection_state();
    // The time of a loss that was printed.
    let mut lost = None;
    loop {
        let state = *states.borrow_and_update();
        links.send_if_modified(|link| {
            let next = Link { state, ..link.clone() };
            let changed = link.is_connected() != next.is_connected();
            if changed && next.is_connected() {
                reconnects.fetch_add(1, Ordering::Relaxed);
            }
            let since = if changed { now() } else { link.since };
            let cause = client.connect_error().filter(|_| !next.is_connected()).map(|cause| cause.to_string());
            let is_new = link.state != state || link.cause != cause;
            *link = Link { since, cause, ..next };
            is_new
        });
        let link = links.borrow().clone();
        match (&link.cause, lost) {
            (Some(cause), None) => {
                tell(&format!("no connection to ZooKeeper at {}: {cause}", link.servers));
                lost = Some(link.since);
            }
            (None, Some(since)) if link.is_connected() => {
                let seconds = link.since.saturating_sub(since) / 1000;
                tell(&format!("the connection to ZooKeeper at {} is back after {seconds} s", link.servers));
                lost = None;
            }
            _ => {}
        }
        tokio::select! {
            changed = states.changed() => if changed.is_err() {
                return;
            },
            // Each attempt may fail for another reason.
            () = sleep(PAUSE), if !link.is_connected() => {}
        }
    }
}

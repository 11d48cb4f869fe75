//! Listeners to the connection state.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::client::CuratorFramework;
use crate::connection_state::ConnectionState;
use crate::safe_notify::SafeNotifyExecutor;

/// Is told of every change of the connection state: Curator's `ConnectionStateListener`.
///
/// Implemented for closures `Fn(&CuratorFramework, ConnectionState)`.
pub trait ConnectionStateListener: Send + Sync + 'static {
    /// Called once for each change, in order, on a thread that is no runtime's worker. It may block, panic, call back
    /// into the client and add or remove listeners, without harm to the session or to another listener.
    fn state_changed(&self, client: &CuratorFramework, state: ConnectionState);
}

impl<F> ConnectionStateListener for F
where
    F: Fn(&CuratorFramework, ConnectionState) + Send + Sync + 'static,
{
    fn state_changed(&self, client: &CuratorFramework, state: ConnectionState) {
        self(client, state);
    }
}

/// Names a listener, to remove it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListenerId(u64);

struct Entry {
    id: ListenerId,
    listener: Arc<dyn ConnectionStateListener>,
    executor: SafeNotifyExecutor,
}

/// The listeners of one client: Curator's `getConnectionStateListenable()`.
pub struct ConnectionStateListenable {
    entries: Mutex<Vec<Entry>>,
    next: AtomicU64,
}

impl ConnectionStateListenable {
    pub(crate) fn new() -> Self {
        Self { entries: Mutex::new(Vec::new()), next: AtomicU64::new(0) }
    }

    /// Adds a listener. It is told of the changes from now on, not of the state there is.
    ///
    /// It is given the client with each call: a listener that keeps a clone of its own keeps the client, whose
    /// session then ends only with [`CuratorFramework::close`].
    pub fn add_listener(&self, listener: impl ConnectionStateListener) -> ListenerId {
        let id = ListenerId(self.next.fetch_add(1, Ordering::Relaxed));
        self.entries.lock().push(Entry { id, listener: Arc::new(listener), executor: SafeNotifyExecutor::new() });
        id
    }

    /// Removes a listener. Changes that it was to be told of already may still reach it.
    pub fn remove_listener(&self, id: ListenerId) {
        // What a listener holds may do anything when it is dropped, so that is done outside of the lock.
        let removed = {
            let mut entries = self.entries.lock();
            let index = entries.iter().position(|entry| entry.id == id);
            index.map(|index| entries.remove(index))
        };
        drop(removed);
    }

    pub(crate) fn clear(&self) {
        let removed = std::mem::take(&mut *self.entries.lock());
        drop(removed);
    }

    pub(crate) fn notify(&self, client: &CuratorFramework, state: ConnectionState) {
        for entry in self.entries.lock().iter() {
            let (listener, client) = (Arc::clone(&entry.listener), client.clone());
            entry.executor.submit(move || listener.state_changed(&client, state));
        }
    }
}

impl fmt::Debug for ConnectionStateListenable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionStateListenable").field("listeners", &self.entries.lock().len()).finish()
    }
}

//! Who is told of a shared value's changes.

use std::fmt;
use std::sync::Arc;

use curator_framework::{ConnectionState, SafeNotifyExecutor};
use parking_lot::Mutex;

use crate::shared::versioned::VersionedValue;

/// What can be asked of a shared value without a request: Curator's `SharedValueReader`.
pub trait SharedValueReader: fmt::Debug {
    /// The node.
    fn path(&self) -> &str;

    /// The newest value that is known here.
    fn value(&self) -> Vec<u8>;

    /// The newest value that is known here, with its version.
    fn versioned_value(&self) -> VersionedValue<Vec<u8>>;

    /// Adds a listener. It is told of the changes from now on, not of the value there is.
    fn add_listener(&self, listener: Arc<dyn SharedValueListener>) -> SharedListenerId;

    /// Removes a listener. What it was to be told already may still reach it.
    fn remove_listener(&self, id: SharedListenerId);
}

/// Is told of every change of a shared value that is seen here: Curator's `SharedValueListener`.
///
/// Implemented for closures `Fn(&dyn SharedValueReader, &[u8])`.
///
/// Both methods are called on a thread of the listener's own, one after the other, in the order of what happened. They
/// may block, panic, and add or remove listeners, without harm to the session, the value or another listener. What a
/// listener is too slow for waits in memory; [`SharedValue::watch`](crate::SharedValue::watch) keeps the newest value
/// only.
pub trait SharedValueListener: Send + Sync + 'static {
    /// The value has changed. Of changes in quick succession only the last is seen, as with every watch of ZooKeeper's;
    /// none is told twice. `shared` may know of a newer value by now.
    fn value_changed(&self, shared: &dyn SharedValueReader, value: &[u8]);

    /// The connection's state has changed. While there is no connection the value may be out of date. It is read again
    /// after `Reconnected`, and told if it has changed. Does nothing by default.
    fn state_changed(&self, state: ConnectionState) {
        // Most listeners do not care.
        let _: ConnectionState = state;
    }
}

impl<F> SharedValueListener for F
where
    F: Fn(&dyn SharedValueReader, &[u8]) + Send + Sync + 'static,
{
    fn value_changed(&self, shared: &dyn SharedValueReader, value: &[u8]) {
        self(shared, value);
    }
}

/// Names a listener of a shared value, to remove it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SharedListenerId(u64);

struct Entry {
    id: SharedListenerId,
    listener: Arc<dyn SharedValueListener>,
    executor: SafeNotifyExecutor,
}

#[derive(Default)]
struct Entries {
    next: u64,
    list: Vec<Entry>,
    closed: bool,
}

/// The listeners of one value.
#[derive(Default)]
pub(super) struct Listeners {
    entries: Mutex<Entries>,
}

impl Listeners {
    pub(super) fn add(&self, listener: Arc<dyn SharedValueListener>) -> SharedListenerId {
        let mut entries = self.entries.lock();
        entries.next += 1;
        let id = SharedListenerId(entries.next);
        if !entries.closed {
            entries.list.push(Entry { id, listener, executor: SafeNotifyExecutor::new() });
        }
        id
    }

    pub(super) fn remove(&self, id: SharedListenerId) {
        // What a listener holds may do anything when it is dropped, so that is done outside of the lock.
        let removed = {
            let list = &mut self.entries.lock().list;
            let index = list.iter().position(|entry| entry.id == id);
            index.map(|index| list.remove(index))
        };
        drop(removed);
    }

    /// From now on nobody is told anything, nor can anybody be added.
    pub(super) fn close(&self) {
        let removed = {
            let mut entries = self.entries.lock();
            entries.closed = true;
            std::mem::take(&mut entries.list)
        };
        drop(removed);
    }

    /// Has each listener told in its own thread.
    pub(super) fn tell(&self, what: impl Fn(&dyn SharedValueListener) + Clone + Send + 'static) {
        for entry in &self.entries.lock().list {
            let (listener, what) = (Arc::clone(&entry.listener), what.clone());
            entry.executor.submit(move || what(&*listener));
        }
    }
}

impl fmt::Debug for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listeners").field("count", &self.entries.lock().list.len()).finish()
    }
}

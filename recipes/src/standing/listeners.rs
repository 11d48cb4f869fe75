//! Listeners, each with an executor of its own.

use std::fmt;
use std::sync::Arc;

use curator_framework::SafeNotifyExecutor;
use parking_lot::Mutex;

struct Entry<L: ?Sized> {
    id: u64,
    listener: Arc<L>,
    executor: SafeNotifyExecutor,
}

struct Entries<L: ?Sized> {
    next: u64,
    list: Vec<Entry<L>>,
    closed: bool,
}

/// The listeners of one object.
pub(crate) struct Listeners<L: ?Sized> {
    entries: Mutex<Entries<L>>,
}

impl<L: ?Sized> Default for Listeners<L> {
    fn default() -> Self {
        Self { entries: Mutex::new(Entries { next: 0, list: Vec::new(), closed: false }) }
    }
}

impl<L: ?Sized + Send + Sync + 'static> Listeners<L> {
    /// Adds a listener, unless the list is closed. Returns its id.
    pub(crate) fn add(&self, listener: Arc<L>) -> u64 {
        let mut entries = self.entries.lock();
        entries.next += 1;
        let id = entries.next;
        if !entries.closed {
            entries.list.push(Entry { id, listener, executor: SafeNotifyExecutor::new() });
        }
        id
    }

    pub(crate) fn remove(&self, id: u64) {
        // Dropped outside of the lock: a listener may own objects that call back when they are dropped.
        let removed = {
            let list = &mut self.entries.lock().list;
            let index = list.iter().position(|entry| entry.id == id);
            index.map(|index| list.remove(index))
        };
        drop(removed);
    }

    /// Removes all listeners, and refuses new ones.
    pub(crate) fn close(&self) {
        let removed = {
            let mut entries = self.entries.lock();
            entries.closed = true;
            std::mem::take(&mut entries.list)
        };
        drop(removed);
    }

    /// Calls each listener on its own thread.
    pub(crate) fn notify(&self, call: impl Fn(&L) + Clone + Send + 'static) {
        for entry in &self.entries.lock().list {
            let (listener, call) = (Arc::clone(&entry.listener), call.clone());
            entry.executor.submit(move || call(&*listener));
        }
    }
}

impl<L: ?Sized> fmt::Debug for Listeners<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listeners").field("count", &self.entries.lock().list.len()).finish()
    }
}

//! Listeners, each with an executor of its own.

use std::fmt;
use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::sync::safe_notify::SafeNotifyExecutor;

/// The id with which a listener is removed. No other listener of the process has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListenerId(u64);

impl ListenerId {
    /// Returns an id that no listener has.
    #[must_use]
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

struct Entry<L: ?Sized> {
    id: ListenerId,
    listener: Arc<L>,
    executor: SafeNotifyExecutor,
}

struct Entries<L: ?Sized> {
    list: Vec<Entry<L>>,
    closed: bool,
}

/// The listeners of one object, for recipes. Each is called on a thread of its own, where it may block or panic.
#[doc(alias = "StandardListenerManager")]
pub struct Listeners<L: ?Sized> {
    entries: Mutex<Entries<L>>,
}

impl<L: ?Sized> Default for Listeners<L> {
    fn default() -> Self {
        Self { entries: Mutex::new(Entries { list: Vec::new(), closed: false }) }
    }
}

impl<L: ?Sized + Send + Sync + 'static> Listeners<L> {
    /// Adds a listener, unless the list is closed. Returns its id.
    pub fn add(&self, listener: Arc<L>) -> ListenerId {
        let id = ListenerId::unique();
        let mut entries = self.entries.lock();
        if !entries.closed {
            entries.list.push(Entry { id, listener, executor: SafeNotifyExecutor::new() });
        }
        id
    }

    /// Removes a listener. Calls that are queued may still reach it.
    pub fn remove(&self, id: ListenerId) {
        // Dropped outside of the lock: a listener may own objects that call back when they are dropped.
        let removed = {
            let list = &mut self.entries.lock().list;
            let index = list.iter().position(|entry| entry.id == id);
            index.map(|index| list.remove(index))
        };
        drop(removed);
    }

    /// Removes all listeners.
    pub fn clear(&self) {
        let removed = take(&mut self.entries.lock().list);
        drop(removed);
    }

    /// Removes all listeners, and refuses new ones.
    pub fn close(&self) {
        self.entries.lock().closed = true;
        self.clear();
    }

    /// Calls each listener on its own thread.
    pub fn notify(&self, call: impl Fn(&L) + Clone + Send + 'static) {
        for entry in &self.entries.lock().list {
            let (listener, call) = (Arc::clone(&entry.listener), call.clone());
            entry.executor.submit(move || call(&*listener));
        }
    }
}

impl<L: ?Sized> Listeners<L> {
    /// Returns the number of listeners.
    pub fn count(&self) -> usize {
        self.entries.lock().list.len()
    }
}

impl<L: ?Sized> fmt::Debug for Listeners<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listeners").field("count", &self.count()).finish()
    }
}

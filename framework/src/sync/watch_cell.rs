//! A value that can be awaited.

use std::fmt;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// A value. Its changes wake the waiting tasks in the order of their calls. (Tokio's `watch` wakes them in a random
/// order, which a simulation cannot repeat.)
#[derive(Default)]
pub(crate) struct WatchCell<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T: Clone> WatchCell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Mutex::new(value), changed: Notify::new() }
    }

    pub(crate) fn get(&self) -> T {
        self.value.lock().clone()
    }

    /// Replaces the value and returns the old one.
    pub(crate) fn replace(&self, value: T) -> T {
        let before = std::mem::replace(&mut *self.value.lock(), value);
        self.changed.notify_waiters();
        before
    }

    pub(crate) fn modify<R>(&self, modify: impl FnOnce(&mut T) -> R) -> R {
        let result = modify(&mut self.value.lock());
        self.changed.notify_waiters();
        result
    }

    /// Resolves with the value when it is as wanted.
    pub(crate) async fn wait_for(&self, wanted: impl Fn(&T) -> bool) -> T {
        loop {
            // Created before the check, so that no later change is missed.
            let changed = self.changed.notified();
            {
                let value = self.value.lock();
                if wanted(&value) {
                    return value.clone();
                }
            }
            changed.await;
        }
    }
}

impl<T: Clone + fmt::Debug> fmt::Debug for WatchCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

//! Values that the objects of one client share by a key, as long as one of the objects lives.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// Shared values by their keys.
pub(super) struct ByKey<K, V>(Mutex<HashMap<K, Weak<V>>>);

impl<K, V> Default for ByKey<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V> ByKey<K, V> {
    /// Returns the value of a key. If the key has none, `new` makes it.
    pub(super) fn get(&self, key: K, new: impl FnOnce() -> Arc<V>) -> Arc<V> {
        let mut values = self.0.lock();
        if let Some(value) = values.get(&key).and_then(Weak::upgrade) {
            return value;
        }
        // Before each growth, so that the map is at most twice as large as needed.
        if values.len() == values.capacity() {
            values.retain(|_, value| value.strong_count() > 0);
        }
        let value = new();
        values.insert(key, Arc::downgrade(&value));
        value
    }
}

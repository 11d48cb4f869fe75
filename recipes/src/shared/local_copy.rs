//! The local copy of a shared value's node.

use std::fmt;

use curator_framework::recipe::{Listeners, report};
use curator_framework::{Chain, Error};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::content::sealed::Content;
use crate::shared::error::SharedError;
use crate::shared::versioned::VersionedValue;

/// A value as the node has it.
pub(super) type Stored = VersionedValue<Vec<u8>>;

/// A closure that gets each later value.
type Listener<V> = dyn Fn(&VersionedValue<V>) + Send + Sync;

/// The first read.
#[derive(Debug, Clone)]
pub(super) enum Load {
    Begun,
    /// The newest attempt has failed. Another one follows.
    Failed(Error),
    Done,
}

/// The newest data, with the number of data before it.
#[derive(Clone)]
pub(super) struct Newest {
    pub(super) number: u64,
    pub(super) stored: Stored,
}

/// The local copy of the node. It holds no client, so an owner of the copy keeps no session alive.
pub(super) struct LocalCopy<V: Content> {
    path: String,
    newest: Mutex<Newest>,
    /// The number of the newest data that the channel has. Locked while it gets a value.
    passed_on: Mutex<u64>,
    /// `None` after the close.
    sender: Mutex<Option<watch::Sender<VersionedValue<V>>>>,
    values: watch::Receiver<VersionedValue<V>>,
    /// `None` after the close.
    pub(super) load: watch::Sender<Option<Load>>,
    pub(super) listeners: Listeners<Listener<V>>,
}

impl<V: Content> LocalCopy<V> {
    pub(super) fn new(path: String, seed: V) -> Self {
        let stored = VersionedValue::seed(seed.to_data());
        let (sender, values) = watch::channel(VersionedValue::seed(seed));
        Self {
            path,
            newest: Mutex::new(Newest { number: 0, stored }),
            passed_on: Mutex::default(),
            sender: Mutex::new(Some(sender)),
            values,
            load: watch::Sender::new(Some(Load::Begun)),
            listeners: Listeners::default(),
        }
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn newest(&self) -> Newest {
        self.newest.lock().clone()
    }

    pub(super) fn stored(&self) -> Stored {
        self.newest.lock().stored.clone()
    }

    /// Returns the newest value, or the length of data that is not a value.
    pub(super) fn value(&self) -> Result<VersionedValue<V>, SharedError> {
        self.decode(&self.newest.lock().stored)
    }

    pub(super) fn decode(&self, stored: &Stored) -> Result<VersionedValue<V>, SharedError> {
        let not_a_value = || SharedError::NotACount { path: (&*self.path).into(), length: stored.value().len() };
        V::from_exact_data(stored.value()).map(|value| stored.with(value)).ok_or_else(not_a_value)
    }

    /// Returns `true` if the copy has this transaction, version and data.
    pub(super) fn is_newest(&self, stored: &Stored) -> bool {
        self.newest.lock().stored == *stored
    }

    /// Replaces the copy if the data is newer. Compares the zxid, since versions overflow and start again with each
    /// node (CURATOR-688).
    pub(super) fn update(&self, stored: Stored) {
        self.update_since(None, stored);
    }

    /// Replaces the copy by data that the servers had after `before` was the newest, even if its zxid is not
    /// larger. The servers then have lost their data or were restored from a backup. A copy that has changed in the
    /// meantime is replaced only by newer data.
    pub(super) fn replace(&self, before: &Stored, stored: Stored) {
        self.update_since(Some(before), stored);
    }

    fn update_since(&self, before: Option<&Stored>, stored: Stored) {
        let mut newest = self.newest.lock();
        let is_replaced = before.is_some_and(|before| newest.stored == *before && stored != *before);
        if stored.zxid() > newest.stored.zxid() || is_replaced {
            *newest = Newest { number: newest.number + 1, stored };
        }
        drop(newest);
        self.pass_on();
    }

    /// Passes on the newest value to the channel.
    fn pass_on(&self) {
        let mut passed_on = self.passed_on.lock();
        let Newest { number, stored } = self.newest();
        if std::mem::replace(&mut *passed_on, number) == number {
            return;
        }
        match self.decode(&stored) {
            Ok(value) => {
                let sender = self.sender.lock().clone();
                sender.inspect(|sender| drop(sender.send_replace(value)));
            }
            // Called without this lock: the subscriber may set the value.
            Err(error) => report(
                move || tracing::warn!(error = %Chain(&error), "a shared value cannot be decoded, the last one stays"),
            ),
        }
    }

    pub(super) fn watch(&self) -> watch::Receiver<VersionedValue<V>> {
        let mut values = self.values.clone();
        values.mark_unchanged();
        values
    }

    /// Waits for the first read, or for a failure of it. `None` after the close.
    pub(super) async fn is_loaded(&self) -> Option<Result<(), SharedError>> {
        let mut load = self.load.subscribe();
        let load = load.wait_for(|load| !matches!(load, Some(Load::Begun))).await.ok()?.clone()?;
        Some(if let Load::Failed(error) = load { Err(error.into()) } else { Ok(()) })
    }

    /// Ends the channel and the listeners.
    pub(super) fn close(&self) {
        let sender = self.sender.lock().take();
        drop(sender);
        self.load.send_replace(None);
        self.listeners.close();
    }
}

impl<V: Content> fmt::Debug for LocalCopy<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let newest = self.stored();
        f.debug_struct("LocalCopy")
            .field("path", &self.path)
            .field("zxid", &newest.zxid())
            .field("version", &newest.version())
            .field("listeners", &self.listeners)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use curator_framework::Zxid;

    use super::*;

    fn stored(zxid: i64, data: &[u8]) -> Stored {
        VersionedValue::new(Zxid::new(zxid), 0, data.to_vec())
    }

    fn value(zxid: i64, version: i32) -> Stored {
        VersionedValue::new(Zxid::new(zxid), version, zxid.to_be_bytes().to_vec())
    }

    /// CURATOR-688, and CURATOR-329: version 0 is newer than a seed.
    #[test]
    fn the_zxid_alone_tells_what_is_newer() {
        let copy = LocalCopy::new("/value".into(), b"seed".to_vec());
        let mut newest = VersionedValue::seed(b"seed".to_vec());
        for (read, is_newer) in [
            (value(7, 0), true),
            (value(8, i32::MAX), true),
            (value(9, i32::MIN), true),
            (value(8, 3), false),
            (value(9, 5), false),
            (value(10, 0), true),
        ] {
            if is_newer {
                newest = read.clone();
            }
            copy.update(read);
            assert!(copy.is_newest(&newest), "{copy:?}");
        }
    }

    #[test]
    fn waits_and_listeners_end_with_the_value() {
        let copy = LocalCopy::new("/value".into(), b"seed".to_vec());
        let early = copy.watch();
        copy.close();
        let late = copy.watch();
        assert!(early.has_changed().is_err() && late.has_changed().is_err());
        assert_eq!(late.borrow().value(), b"seed");
        let listener = Arc::new(|_: &VersionedValue<Vec<u8>>| {});
        let listens = Arc::downgrade(&listener);
        copy.listeners.add(listener);
        assert!(listens.upgrade().is_none());
    }

    /// A backup to which the servers return has older transactions.
    #[test]
    fn the_channel_has_each_count_at_once_in_the_order_of_the_changes() {
        let copy = LocalCopy::new("/count".into(), 5);
        let counts = copy.watch();
        copy.update(stored(5, &[0, 0, 0, 6]));
        assert_eq!(*counts.borrow(), VersionedValue::new(Zxid::new(5), 0, 6));
        copy.update(stored(4, &[0, 0, 0, 8]));
        assert_eq!(*counts.borrow().value(), 6, "an older read");
        copy.update(stored(6, &[1, 2, 3]));
        assert_eq!(*counts.borrow().value(), 6, "not a count");
        copy.replace(&stored(6, &[1, 2, 3]), stored(3, &[0, 0, 0, 7]));
        assert_eq!(*counts.borrow(), VersionedValue::new(Zxid::new(3), 0, 7));
    }

    #[test]
    fn a_count_has_four_bytes() {
        let copy = LocalCopy::new("/count".into(), 5);
        for (zxid, length) in [(1, 0), (2, 3), (3, 5)] {
            copy.update(stored(zxid, &vec![0; length]));
            let error = copy.value().unwrap_err();
            assert_eq!(error.to_string(), format!("the data of /count is not a count: it has {length} bytes, not 4"));
        }
    }
}

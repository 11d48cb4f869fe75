//! Why a watch wakes its waiter, and what its read has found.

use crate::model::{EventType, Stat};
use crate::zookeeper::SessionEnd;

/// The reason why a waiter was woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WakeReason {
    /// The watched node changed.
    Event(EventType),
    /// The session has reconnected, and its client does not
    /// [restore watches](crate::spi::Capabilities::restores_watches). The watch is gone, and changes since the
    /// disconnect are not known.
    Reconnected,
    /// The watch is gone, and changes since are not known: read again. A persistent watch of the same path, of a
    /// [`PersistentWatcher`](crate::PersistentWatcher), a cache or another recipe, was removed, refused or replaced, or a
    /// recursive one was added. Or the server has repeated a change for a new cache: it may be older than the read.
    WatchRemoved,
    /// The session has ended.
    SessionEnded(SessionEnd),
}

/// The state of a node in the read that set a watch on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Found {
    /// The epoch of the reply that showed the node and set the watch.
    pub epoch: u64,
    /// The session that owns the node if it is ephemeral, else 0.
    pub ephemeral_owner: i64,
    /// The version of the node's data, which counts its changes.
    pub version: i32,
}

impl Found {
    pub(crate) const fn new(epoch: u64, stat: &Stat) -> Self {
        Self { epoch, ephemeral_owner: stat.ephemeral_owner, version: stat.version }
    }
}

/// The wake-up of a waiter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Woken {
    pub(super) reason: WakeReason,
    /// The epoch that carried the notification.
    pub(super) epoch: Option<u64>,
}

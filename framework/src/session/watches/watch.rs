//! The future of a watch.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::waiters::{Waiters, Wake};
use super::wake::{Found, WakeReason, Woken};
use crate::model::{Stat, WatchKind};
use crate::zookeeper::SessionEnd;

/// A future that resolves when a watch fires, or when it must be set again.
///
/// # Cancel safety
///
/// Dropping it removes the waiter from the registry. With the last waiter the server's watch is removed, if the client
/// can [remove watches](crate::spi::Capabilities::remove_watches); else it stays until it fires or the connection ends.
#[must_use = "futures do nothing unless polled"]
pub struct Watch {
    registry: Weak<Mutex<Waiters>>,
    path: Arc<str>,
    kind: WatchKind,
    found: Option<Found>,
    id: u64,
    receiver: oneshot::Receiver<Woken>,
    fired_in: Option<u64>,
    /// The reply to the read came before the event. Otherwise the read may have left a new watch behind an event of the
    /// one before.
    is_set: bool,
}

impl Watch {
    /// Creates the future of a waiter that was just added to the registry.
    pub(super) fn new(
        registry: Weak<Mutex<Waiters>>,
        path: &Arc<str>,
        kind: WatchKind,
        found: Option<Found>,
        (id, receiver): (u64, oneshot::Receiver<Woken>),
    ) -> Self {
        let path = Arc::clone(path);
        Self { registry, path, kind, found, id, receiver, fired_in: None, is_set: found.is_some() }
    }

    /// Returns the node's state in the read that set the watch; `None` for a missing node and for a watch on children.
    #[must_use]
    pub const fn found(&self) -> Option<Found> {
        self.found
    }

    /// Returns the epoch that carried the notification, once the watch has resolved with one. Notifications of one
    /// connection come in the order of the server's transactions if the watch was [set](Found::epoch) on it too. A
    /// server replays notifications after a reconnect in any order.
    #[must_use]
    pub const fn fired_in(&self) -> Option<u64> {
        self.fired_in
    }

    /// Returns `true` if the watch has fired, without waiting.
    #[must_use]
    pub fn has_fired(&self) -> bool {
        !self.receiver.is_empty() || self.receiver.is_terminated()
    }

    /// Records that the read has been answered.
    pub(crate) fn answered(&mut self) {
        self.is_set = !self.has_fired();
    }

    /// Records that the read that set the watch has found the node.
    pub(crate) fn confirm(&mut self, found: Found) {
        self.found = Some(found);
        if let Some(registry) = self.registry.upgrade() {
            if let Some(waiter) = registry.lock().find(&self.path, self.id) {
                waiter.found = Some(found);
            }
        }
    }

    /// Returns a further waiter for the same watch, or `None` if it has fired.
    #[must_use]
    pub fn another(&self) -> Option<Self> {
        let registry = self.registry.upgrade()?;
        let mut waiters = registry.lock();
        waiters.find(&self.path, self.id)?;
        let added = waiters.add(&self.path, self.kind, self.found);
        drop(waiters);
        let mut watch = Self::new(Weak::clone(&self.registry), &self.path, self.kind, self.found, added);
        watch.is_set = true;
        Some(watch)
    }

    /// Drops the watch without a request: the server keeps it until it fires, which wakes no task. Use it if the watch
    /// certainly fires, such as one on the parent of a node that the caller deletes.
    pub fn leave(mut self) {
        // Closed first: a dropped sender would wake the task that runs here.
        self.receiver.close();
        let registry = std::mem::take(&mut self.registry);
        if let Some(registry) = registry.upgrade() {
            let waiter = registry.lock().take_out(&self.path, self.id);
            drop(waiter);
        }
    }

    /// Calls `callback` when the watch fires, instead of resolving; at once if it has fired.
    pub(crate) fn on_fire(mut self, callback: impl FnOnce(WakeReason) + Send + 'static) {
        // No waiter has the id 0, so dropping `self` leaves the callback in the registry.
        let id = std::mem::take(&mut self.id);
        let registry = self.registry.upgrade();
        if let Some(registry) = &registry {
            if let Some(waiter) = registry.lock().find(&self.path, id) {
                // Closed first: a dropped sender would wake the task that runs here.
                self.receiver.close();
                self.is_set = true;
                waiter.wake = Wake::Callback(Box::new(callback));
                return;
            }
        }
        if let Ok(woken) = self.receiver.try_recv() {
            callback(woken.reason);
        }
    }
}

impl Future for Watch {
    type Output = WakeReason;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<WakeReason> {
        // A sender that was dropped unused belonged to a session that was dropped as a whole.
        Pin::new(&mut self.receiver).poll(cx).map(|woken| match woken {
            Ok(Woken { reason, epoch }) => {
                self.fired_in = epoch;
                reason
            }
            Err(_) => WakeReason::SessionEnded(SessionEnd::Closed),
        })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Closed first: a dropped sender would wake the task that runs here.
        self.receiver.close();
        if let Some(registry) = self.registry.upgrade() {
            let mut waiters = registry.lock();
            let taken = waiters.remove(&self.path, self.id);
            if taken.is_none() && !self.is_set {
                waiters.left(&self.path, self.kind);
            }
            drop(waiters);
            drop(taken);
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("path", &self.path).field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// A node's data and stat, with a watch for its change or deletion.
#[derive(Debug)]
pub struct WatchedData {
    /// The data.
    pub data: Vec<u8>,
    /// The stat.
    pub stat: Stat,
    /// The watch.
    pub watch: Watch,
}

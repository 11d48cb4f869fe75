//! The waiters of a session, by the path that they watch.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use smallvec::{SmallVec, smallvec};
use tokio::sync::oneshot;

use super::wake::{Found, WakeReason, Woken};
use crate::model::{EventType, WatchKind, WatchedEvent};
use crate::session::known_node::KnownNode;
use crate::zookeeper::{Notification, SessionEnd};

pub(super) type Callback = Box<dyn FnOnce(WakeReason) + Send>;

/// The way in which a waiter is woken.
pub(super) enum Wake {
    /// Resolves the future, under the registry's lock. A waiter that is not in the registry therefore has its wake-up
    /// already.
    Future(oneshot::Sender<Woken>),
    /// Calls the callback, outside of the lock.
    Callback(Callback),
}

pub(super) struct Waiter {
    pub(super) id: u64,
    pub(super) kind: WatchKind,
    pub(super) found: Option<Found>,
    pub(super) wake: Wake,
}

/// The waiters of one path.
pub(super) type AtPath = SmallVec<[Waiter; 1]>;

#[derive(Default)]
pub(super) struct Waiters {
    next: u64,
    pub(super) by_path: BTreeMap<Arc<str>, AtPath>,
    /// The owned nodes of the session.
    pub(super) owned: BTreeMap<Arc<str>, Weak<KnownNode>>,
    /// The number of the session's connection.
    pub(super) epoch: u64,
    /// The events of connections that the session does not have yet, with their numbers.
    pub(super) held_back: Vec<(Notification, u64)>,
    pub(super) ended: Option<SessionEnd>,
    /// The registry calls this when the last waiter of a watch is dropped.
    pub(super) forget: Option<Forget>,
}

type Forget = Box<dyn Fn(&str, WatchKind) + Send>;

/// The calls that events cause, to be made outside of the lock.
#[derive(Default)]
pub(super) struct Calls {
    callbacks: SmallVec<[(Callback, WakeReason); 1]>,
    lost: Vec<Arc<KnownNode>>,
}

impl Calls {
    pub(super) fn make(self) {
        for (callback, reason) in self.callbacks {
            callback(reason);
        }
        for node in self.lost {
            node.report_loss();
        }
    }
}

impl Waiters {
    pub(super) fn add(
        &mut self,
        path: &Arc<str>,
        kind: WatchKind,
        found: Option<Found>,
    ) -> (u64, oneshot::Receiver<Woken>) {
        let (sender, receiver) = oneshot::channel();
        self.next += 1;
        match self.ended {
            Some(end) => told(&sender.send(Woken { reason: WakeReason::SessionEnded(end), epoch: None })),
            None => {
                let waiter = Waiter { id: self.next, kind, found, wake: Wake::Future(sender) };
                match self.by_path.get_mut(path) {
                    Some(list) => {
                        // Exact, because most paths have one waiter or two, and a queue has many paths.
                        list.reserve_exact(usize::from(list.len() == 1));
                        list.push(waiter);
                    }
                    None => drop(self.by_path.insert(Arc::clone(path), smallvec![waiter])),
                }
            }
        }
        (self.next, receiver)
    }

    pub(super) fn find(&mut self, path: &str, id: u64) -> Option<&mut Waiter> {
        self.by_path.get_mut(path)?.iter_mut().find(|waiter| waiter.id == id)
    }

    /// Removes and returns the waiters of these kinds at a path.
    pub(super) fn take(&mut self, path: &str, kinds: &[WatchKind]) -> AtPath {
        let Some(list) = self.by_path.get_mut(path) else { return AtPath::new() };
        let is_meant = |waiter: &Waiter| kinds.contains(&waiter.kind);
        if list.iter().all(is_meant) {
            return self.by_path.remove(path).unwrap_or_default();
        }
        let (woken, others) = std::mem::take(list).into_iter().partition(is_meant);
        *list = others;
        woken
    }

    /// Wakes the waiters for a notification that the connection `epoch` carried.
    pub(super) fn fire(&mut self, notification: &Notification, epoch: u64, calls: &mut Calls) {
        let (path, kinds, reason): (_, &[_], _) = match notification {
            Notification::Event(WatchedEvent { event_type, path }) => {
                let kinds: &[_] = match event_type {
                    EventType::NodeDeleted => &[WatchKind::Data, WatchKind::Children],
                    EventType::NodeCreated | EventType::NodeDataChanged => &[WatchKind::Data],
                    EventType::NodeChildrenChanged => &[WatchKind::Children],
                };
                (path, kinds, WakeReason::Event(*event_type))
            }
            Notification::WatchRemoved(path, kind) => (path, std::slice::from_ref(kind), WakeReason::WatchRemoved),
        };
        if reason == WakeReason::Event(EventType::NodeDeleted) {
            // Before any waiter wakes: an owner must know of its loss before the next waiter can be granted.
            let owned = self.owned.get(&**path).and_then(Weak::upgrade);
            calls.lost.extend(owned.filter(|node| node.mark_deleted()));
        }
        wake(self.take(path, kinds), Woken { reason, epoch: Some(epoch) }, calls);
    }

    /// Removes a waiter, and leaves its watch set.
    pub(super) fn take_out(&mut self, path: &str, id: u64) -> Option<Waiter> {
        let list = self.by_path.get_mut(path)?;
        let index = list.iter().position(|waiter| waiter.id == id)?;
        let waiter = list.swap_remove(index);
        if list.is_empty() {
            self.by_path.remove(path);
        }
        Some(waiter)
    }

    pub(super) fn remove(&mut self, path: &str, id: u64) -> Option<Waiter> {
        let waiter = self.take_out(path, id)?;
        self.left(path, waiter.kind);
        Some(waiter)
    }

    /// Has the watch removed if it has no waiter.
    pub(super) fn left(&self, path: &str, kind: WatchKind) {
        let has_waiter = self.by_path.get(path).is_some_and(|list| list.iter().any(|waiter| waiter.kind == kind));
        // Under the lock: a later waiter for this watch registers, and then reads, only after this call.
        if let (false, Some(forget)) = (has_waiter, &self.forget) {
            forget(path, kind);
        }
    }
}

pub(super) fn wake(waiters: impl IntoIterator<Item = Waiter>, woken: Woken, calls: &mut Calls) {
    let callbacks = waiters.into_iter().filter_map(|waiter| match waiter.wake {
        Wake::Future(sender) => {
            told(&sender.send(woken));
            None
        }
        Wake::Callback(callback) => Some((callback, woken.reason)),
    });
    calls.callbacks.extend(callbacks);
}

/// Ignores the result of a send: the waiter may have been dropped.
fn told(_: &Result<(), Woken>) {}

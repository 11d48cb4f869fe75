//! The framework's own watch registry.
//!
//! The server keeps one watch for each path and kind of a session; this registry keeps its waiters. An event or the end
//! of the session wakes a waiter. A reconnect wakes it only if the client does not restore watches. A wake-up is a
//! hint: the waiter reads again.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::future::Future;
use std::ops::Bound;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::model::path::{node_from_path, parent_of};
use crate::model::{EventType, Stat, WatchKind, WatchedEvent};
use crate::session::owned_node::KnownNode;
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
    /// The session is over.
    SessionEnded(SessionEnd),
}

/// The most owned nodes that are looked up in a listing one by one.
const FEW: usize = 4;

type Callback = Box<dyn FnOnce(WakeReason) + Send>;

/// The way in which a waiter is woken.
enum Wake {
    /// Resolves the future, under the registry's lock. A waiter that is not in the registry therefore has its wake-up
    /// already.
    Future(oneshot::Sender<Woken>),
    /// Calls the callback, outside of the lock.
    Callback(Callback),
}

struct Waiter {
    id: u64,
    kind: WatchKind,
    found: Option<Found>,
    wake: Wake,
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
struct Woken {
    reason: WakeReason,
    /// The epoch that carried the notification.
    epoch: Option<u64>,
}

#[derive(Default)]
struct Waiters {
    next: u64,
    by_path: BTreeMap<Arc<str>, Vec<Waiter>>,
    /// The owned nodes of the session.
    owned: BTreeMap<Arc<str>, Weak<KnownNode>>,
    /// The number of the session's connection.
    epoch: u64,
    /// The events of connections that the session does not have yet, with their numbers.
    held_back: Vec<(WatchedEvent, u64)>,
    ended: Option<SessionEnd>,
    /// The registry calls this when the last waiter of a watch is dropped.
    forget: Option<Forget>,
}

type Forget = Box<dyn Fn(&str, WatchKind) + Send>;

/// The calls that events cause, to be made outside of the lock.
#[derive(Default)]
struct Calls {
    callbacks: Vec<(Callback, WakeReason)>,
    lost: Vec<Arc<KnownNode>>,
}

impl Calls {
    fn make(self) {
        for (callback, reason) in self.callbacks {
            callback(reason);
        }
        for node in self.lost {
            node.report_loss();
        }
    }
}

impl Waiters {
    fn add(&mut self, path: &Arc<str>, kind: WatchKind, found: Option<Found>) -> (u64, oneshot::Receiver<Woken>) {
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
                    None => drop(self.by_path.insert(Arc::clone(path), vec![waiter])),
                }
            }
        }
        (self.next, receiver)
    }

    fn find(&mut self, path: &str, id: u64) -> Option<&mut Waiter> {
        self.by_path.get_mut(path)?.iter_mut().find(|waiter| waiter.id == id)
    }

    /// Removes and returns the waiters of these kinds at a path.
    fn take(&mut self, path: &str, kinds: &[WatchKind]) -> Vec<Waiter> {
        let Some(list) = self.by_path.get_mut(path) else { return Vec::new() };
        let is_meant = |waiter: &Waiter| kinds.contains(&waiter.kind);
        if list.iter().all(is_meant) {
            return self.by_path.remove(path).unwrap_or_default();
        }
        let (woken, others) = std::mem::take(list).into_iter().partition(is_meant);
        *list = others;
        woken
    }

    /// Wakes the waiters for an event that the connection `epoch` carried.
    fn fire(&mut self, event: &WatchedEvent, epoch: u64, calls: &mut Calls) {
        let kinds: &[_] = match event.event_type {
            EventType::NodeDeleted => &[WatchKind::Data, WatchKind::Children],
            EventType::NodeCreated | EventType::NodeDataChanged => &[WatchKind::Data],
            EventType::NodeChildrenChanged => &[WatchKind::Children],
        };
        if event.event_type == EventType::NodeDeleted {
            // Before any waiter wakes: an owner must know of its loss before the next waiter can be granted.
            let owned = self.owned.get(&*event.path).and_then(Weak::upgrade);
            calls.lost.extend(owned.filter(|node| node.mark_deleted()));
        }
        let woken = Woken { reason: WakeReason::Event(event.event_type), epoch: Some(epoch) };
        wake(self.take(&event.path, kinds), woken, calls);
    }

    /// Removes a waiter, and leaves its watch set.
    fn take_out(&mut self, path: &str, id: u64) -> Option<Waiter> {
        let list = self.by_path.get_mut(path)?;
        let index = list.iter().position(|waiter| waiter.id == id)?;
        let waiter = list.swap_remove(index);
        if list.is_empty() {
            self.by_path.remove(path);
        }
        Some(waiter)
    }

    fn remove(&mut self, path: &str, id: u64) -> Option<Waiter> {
        let waiter = self.take_out(path, id)?;
        self.left(path, waiter.kind);
        Some(waiter)
    }

    /// Has the watch removed if it has no waiter.
    fn left(&self, path: &str, kind: WatchKind) {
        let has_waiter = self.by_path.get(path).is_some_and(|list| list.iter().any(|waiter| waiter.kind == kind));
        // Under the lock: a later waiter for this watch registers, and then reads, only after this call.
        if let (false, Some(forget)) = (has_waiter, &self.forget) {
            forget(path, kind);
        }
    }
}

/// The waiters for the watches of one session.
#[derive(Clone, Default)]
pub(crate) struct WatchRegistry {
    waiters: Arc<Mutex<Waiters>>,
}

impl WatchRegistry {
    /// Creates a registry that calls `forget`, which must not use it, when a watch's last waiter is dropped.
    pub(crate) fn forgetting(forget: impl Fn(&str, WatchKind) + Send + 'static) -> Self {
        let registry = Self::default();
        registry.waiters.lock().forget = Some(Box::new(forget));
        registry
    }

    /// Registers a waiter. Call it before the read that sets the watch on the server, or an event could be missed.
    pub(crate) fn register(&self, path: &Arc<str>, kind: WatchKind) -> Watch {
        let mut waiters = self.waiters.lock();
        let (id, receiver) = waiters.add(path, kind, None);
        drop(waiters);
        self.watch(path, kind, None, id, receiver)
    }

    /// Registers a further waiter, if a read has found the node and its watch has not fired.
    pub(crate) fn join(&self, path: &Arc<str>) -> Option<Watch> {
        let kind = WatchKind::Data;
        let mut waiters = self.waiters.lock();
        let found =
            waiters.by_path.get(path)?.iter().filter(|waiter| waiter.kind == kind).filter_map(|waiter| waiter.found);
        let found = Some(found.max_by_key(|found| found.epoch)?);
        let (id, receiver) = waiters.add(path, kind, found);
        drop(waiters);
        Some(self.watch(path, kind, found, id, receiver))
    }

    fn watch(
        &self,
        path: &Arc<str>,
        kind: WatchKind,
        found: Option<Found>,
        id: u64,
        receiver: oneshot::Receiver<Woken>,
    ) -> Watch {
        let (registry, path) = (Arc::downgrade(&self.waiters), Arc::clone(path));
        let is_set = found.is_some();
        Watch { registry, path, kind, found, id, receiver, fired_in: None, is_set }
    }

    /// Wakes the waiters for an event that the connection `epoch` carried. If the session does not have this connection
    /// yet, its requests would fail, so the event waits for [`attached`](Self::attached).
    pub(crate) fn dispatch(&self, event: WatchedEvent, epoch: u64) {
        let mut calls = Calls::default();
        {
            let mut waiters = self.waiters.lock();
            if epoch > waiters.epoch {
                waiters.held_back.push((event, epoch));
            } else {
                waiters.fire(&event, epoch, &mut calls);
            }
        }
        calls.make();
    }

    /// Passes notifications to the registry while it exists.
    pub(crate) fn notifier(&self) -> impl Fn(WatchedEvent, u64) + Send + Sync + use<> {
        let waiters = Arc::downgrade(&self.waiters);
        move |event, epoch| {
            if let Some(waiters) = waiters.upgrade() {
                Self { waiters }.dispatch(event, epoch);
            }
        }
    }

    /// Calls `attach`, which lets requests pass to the connection `epoch`, and wakes the waiters for the events that it
    /// has carried before. One lock for both: a waiter that registers behind a reply gets no earlier event.
    pub(crate) fn attached(&self, epoch: u64, attach: impl FnOnce()) {
        let mut calls = Calls::default();
        {
            let mut waiters = self.waiters.lock();
            attach();
            waiters.epoch = epoch;
            let behind = waiters.held_back.partition_point(|(_, of)| *of <= epoch);
            for (event, of) in waiters.held_back.drain(..behind).collect::<Vec<_>>() {
                waiters.fire(&event, of, &mut calls);
            }
        }
        calls.make();
    }

    /// Records an owned node, to be marked when it is deleted.
    pub(crate) fn owns(&self, path: &Arc<str>, node: &Arc<KnownNode>) {
        self.waiters.lock().owned.insert(Arc::clone(path), Arc::downgrade(node));
    }

    /// Reports the loss of all owned nodes.
    pub(crate) fn all_lost(&self) {
        let owned: Vec<_> = self.waiters.lock().owned.values().filter_map(Weak::upgrade).collect();
        for node in owned {
            node.report_loss();
        }
    }

    /// Removes an owned node.
    pub(crate) fn disowns(&self, path: &str) {
        self.waiters.lock().owned.remove(path);
    }

    /// Marks the owned node at `path` as deleted, unless it is newer than transaction `zxid`, which the reply reflects.
    pub(crate) fn is_missing(&self, path: &str, zxid: i64) {
        let owned = self.waiters.lock().owned.get(path).and_then(Weak::upgrade);
        if let Some(node) = owned.filter(|node| node.czxid <= zxid) {
            node.set_deleted();
        }
    }

    /// Marks the owned nodes below `parent` that a listing lacks as deleted, unless they are newer than transaction
    /// `zxid`, which the listing reflects.
    pub(crate) fn listed(&self, parent: &str, children: &[String], zxid: i64) {
        let missing: Vec<_> = {
            let waiters = self.waiters.lock();
            let behind = waiters.owned.range::<str, _>((Bound::Excluded(parent), Bound::Unbounded));
            let below =
                behind.take_while(|(path, _)| path.starts_with(parent)).filter(|(path, _)| parent_of(path) == parent);
            let set: Option<HashSet<&str>> =
                below.clone().nth(FEW).map(|_| children.iter().map(String::as_str).collect());
            let is_listed = |name| match &set {
                Some(set) => set.contains(name),
                None => children.iter().any(|child| child == name),
            };
            let missing = below.filter(|(path, _)| !is_listed(node_from_path(path)));
            missing.filter_map(|(_, node)| node.upgrade()).filter(|node| node.czxid <= zxid).collect()
        };
        for node in missing {
            node.set_deleted();
        }
    }

    /// Wakes all waiters after a reconnect.
    pub(crate) fn reconnected(&self) {
        self.wake_all(WakeReason::Reconnected, |_| {});
    }

    /// Wakes all waiters at the end of the session, and each later waiter at once.
    pub(crate) fn session_ended(&self, end: SessionEnd) {
        self.wake_all(WakeReason::SessionEnded(end), |waiters| waiters.ended = Some(end));
    }

    fn wake_all(&self, reason: WakeReason, change: impl FnOnce(&mut Waiters)) {
        let mut calls = Calls::default();
        {
            let mut waiters = self.waiters.lock();
            change(&mut waiters);
            let all = std::mem::take(&mut waiters.by_path).into_values().flatten().collect();
            wake(all, Woken { reason, epoch: None }, &mut calls);
        }
        calls.make();
    }

    /// Returns the paths that the waiters watch.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.waiters.lock().by_path.keys().map(|path| path.to_string()).collect()
    }

    /// Returns the number of waiters.
    pub(crate) fn len(&self) -> usize {
        self.waiters.lock().by_path.values().map(Vec::len).sum()
    }
}

fn wake(waiters: Vec<Waiter>, woken: Woken, calls: &mut Calls) {
    let callbacks = waiters.into_iter().filter_map(|waiter| match waiter.wake {
        Wake::Future(sender) => {
            told(&sender.send(woken));
            None
        }
        Wake::Callback(callback) => Some((callback, woken.reason)),
    });
    if calls.callbacks.is_empty() {
        // Most events wake one callback, which this keeps in the list of the waiters.
        calls.callbacks = callbacks.collect();
    } else {
        calls.callbacks.extend(callbacks);
    }
}

/// Ignores the result of a send: the waiter may have been dropped.
fn told(_: &Result<(), Woken>) {}

impl fmt::Debug for WatchRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchRegistry").field("waiters", &self.len()).finish()
    }
}

/// A future that resolves when a watch fires, or when it must be set anew.
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
        let (id, receiver) = waiters.add(&self.path, self.kind, self.found);
        drop(waiters);
        let (registry, path) = (Weak::clone(&self.registry), Arc::clone(&self.path));
        Some(Self { registry, path, kind: self.kind, found: self.found, id, receiver, fired_in: None, is_set: true })
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const FOUND: Found = Found { epoch: 1, ephemeral_owner: 7, version: 0 };

    fn event(event_type: EventType, path: &str) -> WatchedEvent {
        WatchedEvent { event_type, path: path.into() }
    }

    /// Returns the registry of a session on its first connection.
    fn registry() -> WatchRegistry {
        let registry = WatchRegistry::default();
        registry.attached(1, || {});
        registry
    }

    #[tokio::test]
    async fn event_of_a_later_connection_waits_until_the_session_has_it() {
        let registry = registry();
        let watches = ["/a", "/b", "/c"].map(|path| registry.register(&path.into(), WatchKind::Data));
        for (path, epoch) in [("/a", 2), ("/b", 3), ("/c", 1)] {
            registry.dispatch(event(EventType::NodeDeleted, path), epoch);
        }
        assert_eq!(watches.each_ref().map(Watch::has_fired), [false, false, true]);
        let notify = registry.notifier();
        registry.attached(2, || {});
        assert_eq!(watches.each_ref().map(Watch::has_fired), [true, false, true]);
        registry.attached(3, || {});
        for (mut watch, epoch) in watches.into_iter().zip([2, 3, 1]) {
            assert_eq!((&mut watch).await, WakeReason::Event(EventType::NodeDeleted));
            assert_eq!(watch.fired_in(), Some(epoch));
        }
        drop(registry);
        notify(event(EventType::NodeDeleted, "/a"), 3);
    }

    #[tokio::test]
    async fn event_wakes_the_waiters_of_its_watches_only() {
        let registry = registry();
        let data = registry.register(&"/a".into(), WatchKind::Data);
        let children = registry.register(&"/a".into(), WatchKind::Children);
        let other = registry.register(&"/b".into(), WatchKind::Data);
        registry.dispatch(event(EventType::NodeDataChanged, "/a"), 1);
        assert_eq!(data.await, WakeReason::Event(EventType::NodeDataChanged));
        assert!(!children.has_fired() && !other.has_fired());
        registry.dispatch(event(EventType::NodeDeleted, "/a"), 1);
        assert_eq!(children.await, WakeReason::Event(EventType::NodeDeleted));
        assert_eq!(registry.len(), 1);
    }

    #[tokio::test]
    async fn reconnect_wakes_all_waiters() {
        let registry = registry();
        let watches =
            [registry.register(&"/a".into(), WatchKind::Data), registry.register(&"/b".into(), WatchKind::Children)];
        registry.reconnected();
        for watch in watches {
            assert_eq!(watch.await, WakeReason::Reconnected);
        }
        assert_eq!(registry.len(), 0);
    }

    #[tokio::test]
    async fn end_of_the_session_wakes_present_and_later_waiters() {
        let registry = registry();
        let early = registry.register(&"/a".into(), WatchKind::Data);
        registry.session_ended(SessionEnd::Expired);
        let late = registry.register(&"/a".into(), WatchKind::Data);
        assert_eq!(early.await, WakeReason::SessionEnded(SessionEnd::Expired));
        assert_eq!(late.await, WakeReason::SessionEnded(SessionEnd::Expired));
    }

    #[tokio::test]
    async fn a_watch_that_is_set_can_be_joined() {
        let registry = registry();
        let mut first = registry.register(&"/a".into(), WatchKind::Data);
        assert!(registry.join(&"/a".into()).is_none(), "nothing has answered yet");
        first.confirm(FOUND);
        let second = registry.join(&"/a".into()).unwrap();
        assert!(registry.join(&"/b".into()).is_none());
        // The joined watch does not depend on the first one.
        drop(first);
        let third = registry.join(&"/a".into()).unwrap();
        registry.dispatch(event(EventType::NodeDeleted, "/a"), 1);
        assert!(registry.join(&"/a".into()).is_none(), "the watch is spent");
        for watch in [second, third] {
            assert_eq!(watch.await, WakeReason::Event(EventType::NodeDeleted));
        }
        let mut children = registry.register(&"/a".into(), WatchKind::Children);
        children.confirm(FOUND);
        assert!(registry.join(&"/a".into()).is_none(), "this one says nothing of the node");
        let mut before = registry.register(&"/a".into(), WatchKind::Data);
        before.confirm(FOUND);
        registry.reconnected();
        before.confirm(FOUND);
        assert!(registry.join(&"/a".into()).is_none(), "the watch was another connection's");
    }

    #[test]
    fn a_listing_marks_the_owned_nodes_that_it_lacks() {
        // More than `FEW` of them are looked up in a set.
        for others in [0, 2 * FEW] {
            let registry = registry();
            let node = |path: &str, czxid| {
                let node = Arc::new(KnownNode::new(path.into(), czxid));
                registry.owns(&node.path, &node);
                node
            };
            let listed: Vec<_> = (0..others).map(|number| node(&format!("/lock/{number}"), 1)).collect();
            let children: Vec<_> = (0..others).map(|number| number.to_string()).collect();
            let [gone, younger] = [("/lock/gone", 5), ("/lock/younger", 7)].map(|(path, czxid)| node(path, czxid));
            let elsewhere = ["/lock/gone/child", "/lock-2/node", "/node"].map(|path| node(path, 1));
            registry.listed("/lock", &children, 6);
            assert!(gone.is_deleted() && !younger.is_deleted());
            assert!(!listed.iter().chain(&elsewhere).any(|node| node.is_deleted()));
        }
    }

    #[test]
    fn a_dropped_watch_leaves_the_registry() {
        let registry = registry();
        let (first, second) =
            (registry.register(&"/a".into(), WatchKind::Data), registry.register(&"/a".into(), WatchKind::Data));
        drop(first);
        assert_eq!(registry.len(), 1);
        drop(second);
        assert_eq!(registry.len(), 0);
    }

    #[tokio::test]
    async fn a_watch_that_is_left_is_not_forgotten() {
        let (sender, forgotten) = mpsc::channel();
        let registry = WatchRegistry::forgetting(move |path, _| sender.send(path.to_owned()).unwrap());
        registry.attached(1, || {});
        let first = registry.register(&"/a".into(), WatchKind::Children);
        let second = first.another().unwrap();
        first.leave();
        assert!(forgotten.try_recv().is_err());
        registry.dispatch(event(EventType::NodeChildrenChanged, "/a"), 1);
        assert!(second.another().is_none(), "it has fired");
        assert_eq!(second.await, WakeReason::Event(EventType::NodeChildrenChanged));
        let third = registry.register(&"/a".into(), WatchKind::Children);
        let fourth = third.another().unwrap();
        fourth.leave();
        assert!(forgotten.try_recv().is_err());
        drop(third);
        assert_eq!((registry.len(), forgotten.try_recv().as_deref()), (0, Ok("/a")));
    }

    /// Calls a callback once in every interleaving.
    #[test]
    fn a_callback_is_never_lost_between_two_threads() {
        let registry = registry();
        let called = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        const ROUNDS: usize = 20_000;
        std::thread::scope(|scope| {
            let (sender, receiver) = mpsc::sync_channel(0);
            let dispatching = registry.clone();
            scope.spawn(move || {
                for round in receiver {
                    if round % 2 == 0 {
                        dispatching.dispatch(event(EventType::NodeDeleted, "/a"), 1);
                    } else {
                        dispatching.reconnected();
                    }
                }
            });
            for round in 0..ROUNDS {
                let watch = registry.register(&"/a".into(), WatchKind::Data);
                let called = Arc::clone(&called);
                sender.send(round).unwrap();
                watch.on_fire(move |_| {
                    called.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                });
            }
        });
        registry.reconnected();
        assert_eq!(called.load(std::sync::atomic::Ordering::SeqCst), ROUNDS);
    }

    #[test]
    fn a_callback_takes_the_place_of_the_future() {
        let registry = registry();
        let (sender, receiver) = mpsc::channel();
        let later = sender.clone();
        registry.register(&"/a".into(), WatchKind::Data).on_fire(move |reason| later.send(reason).unwrap());
        let fired = registry.register(&"/b".into(), WatchKind::Data);
        registry.dispatch(event(EventType::NodeDeleted, "/b"), 1);
        fired.on_fire(move |reason| sender.send(reason).unwrap());
        assert_eq!(receiver.try_recv(), Ok(WakeReason::Event(EventType::NodeDeleted)));
        registry.dispatch(event(EventType::NodeDataChanged, "/a"), 1);
        assert_eq!(receiver.try_recv(), Ok(WakeReason::Event(EventType::NodeDataChanged)));
    }
}

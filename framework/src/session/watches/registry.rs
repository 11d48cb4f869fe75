//! The registry of a session's watches.

use std::collections::HashSet;
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::waiters::{Calls, Waiters, wake};
use super::wake::{WakeReason, Woken};
use super::watch::Watch;
use crate::model::WatchKind;
use crate::model::path::{node_from_path, parent_of};
use crate::session::known_node::KnownNode;
use crate::zookeeper::{Notification, SessionEnd};

/// The most owned nodes that are searched for in a listing one by one.
const FEW: usize = 4;

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
        let added = self.waiters.lock().add(path, kind, None);
        Watch::new(Arc::downgrade(&self.waiters), path, kind, None, added)
    }

    /// Registers a further waiter, if a read has found the node and its watch has not fired.
    pub(crate) fn join(&self, path: &Arc<str>) -> Option<Watch> {
        let kind = WatchKind::Data;
        let mut waiters = self.waiters.lock();
        let found =
            waiters.by_path.get(path)?.iter().filter(|waiter| waiter.kind == kind).filter_map(|waiter| waiter.found);
        let found = Some(found.max_by_key(|found| found.epoch)?);
        let added = waiters.add(path, kind, found);
        drop(waiters);
        Some(Watch::new(Arc::downgrade(&self.waiters), path, kind, found, added))
    }

    /// Wakes the waiters for a notification that the connection `epoch` carried. If the session does not have this
    /// connection yet, its requests would fail, so the notification waits for [`attached`](Self::attached).
    pub(crate) fn dispatch(&self, notification: Notification, epoch: u64) {
        let mut calls = Calls::default();
        {
            let mut waiters = self.waiters.lock();
            if epoch > waiters.epoch {
                waiters.held_back.push((notification, epoch));
            } else {
                waiters.fire(&notification, epoch, &mut calls);
            }
        }
        calls.make();
    }

    /// Passes notifications to the registry while it exists.
    pub(crate) fn notifier(&self) -> impl Fn(Notification, u64) + Send + Sync + use<> {
        let waiters = Arc::downgrade(&self.waiters);
        move |notification, epoch| {
            if let Some(waiters) = waiters.upgrade() {
                Self { waiters }.dispatch(notification, epoch);
            }
        }
    }

    /// Calls `attach`, which lets requests pass to the connection `epoch`, and wakes the waiters for the events that it
    /// has carried before. One lock for both: a waiter that registers after a reply gets no earlier event.
    pub(crate) fn attached(&self, epoch: u64, attach: impl FnOnce()) {
        let mut calls = Calls::default();
        {
            let mut waiters = self.waiters.lock();
            attach();
            waiters.epoch = epoch;
            let behind = waiters.held_back.partition_point(|(_, of)| *of <= epoch);
            for (notification, of) in waiters.held_back.drain(..behind).collect::<Vec<_>>() {
                waiters.fire(&notification, of, &mut calls);
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
            let all = std::mem::take(&mut waiters.by_path).into_values().flatten();
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
        self.waiters.lock().by_path.values().map(|list| list.len()).sum()
    }
}

impl fmt::Debug for WatchRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchRegistry").field("waiters", &self.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::model::{EventType, WatchedEvent};
    use crate::session::watches::Found;

    const FOUND: Found = Found { epoch: 1, ephemeral_owner: 7, version: 0 };

    fn event(event_type: EventType, path: &str) -> Notification {
        Notification::Event(WatchedEvent { event_type, path: path.into() })
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
    async fn removal_of_a_watch_wakes_its_waiters_only() {
        let registry = registry();
        let data = registry.register(&"/a".into(), WatchKind::Data);
        let children = registry.register(&"/a".into(), WatchKind::Children);
        registry.dispatch(Notification::WatchRemoved("/a".into(), WatchKind::Data), 1);
        assert_eq!(data.await, WakeReason::WatchRemoved);
        assert!(!children.has_fired());
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
        // More than `FEW` of them are searched for in a set.
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

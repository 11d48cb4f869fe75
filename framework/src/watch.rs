//! The framework's own watch registry.
//!
//! The server keeps one watch for each path and kind of a session; here stands who waits for it. A waiter is woken by
//! its event, by any reconnect (watches do not survive one), and by the end of the session. A wake-up is a hint:
//! whoever is woken reads again.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::handle::SessionEnd;
use crate::zookeeper::{EventType, WatchedEvent};

/// What a watch that a read has left watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum WatchKind {
    /// The node itself: created, changed, deleted.
    Data,
    /// Its children.
    Children,
}

/// Why a waiter was woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WakeReason {
    /// The watched node changed.
    Event(EventType),
    /// The node's owner says that it is first in line.
    First,
    /// The connection was lost and is back. The watch is gone; what happened meanwhile is not known.
    Reconnected,
    /// The session is over.
    SessionEnded(SessionEnd),
}

type Callback = Box<dyn FnOnce(WakeReason) + Send>;

/// How a waiter is woken.
enum Wake {
    /// By its future. This is done under the registry's lock, so that a waiter which is not in the registry has its
    /// word already.
    Future(oneshot::Sender<WakeReason>),
    /// By a call, outside of the lock.
    Callback(Callback),
}

struct Waiter {
    id: u64,
    wake: Wake,
}

/// `None` is for the word of a node's owner in this session ([`WatchRegistry::is_first`]), of which the server knows
/// nothing.
type Key = (String, Option<WatchKind>);

#[derive(Default)]
struct Waiters {
    next: u64,
    by_path: BTreeMap<Key, Vec<Waiter>>,
    ended: Option<SessionEnd>,
    /// Is told of watches for which nobody waits any more.
    forget: Option<Forget>,
}

type Forget = Box<dyn Fn(&str, WatchKind) + Send>;

impl Waiters {
    fn find(&mut self, key: &Key, id: u64) -> Option<&mut Waiter> {
        self.by_path.get_mut(key)?.iter_mut().find(|waiter| waiter.id == id)
    }

    fn remove(&mut self, key: &Key, id: u64) -> Option<Waiter> {
        let list = self.by_path.get_mut(key)?;
        let index = list.iter().position(|waiter| waiter.id == id)?;
        let waiter = list.swap_remove(index);
        if list.is_empty() {
            self.by_path.remove(key);
            // Under the lock: whoever comes next for this watch registers, and then reads, behind it.
            if let (Some(forget), Some(kind)) = (&self.forget, key.1) {
                forget(&key.0, kind);
            }
        }
        Some(waiter)
    }
}

/// Who waits for which watch in one session.
#[derive(Clone, Default)]
pub(crate) struct WatchRegistry {
    waiters: Arc<Mutex<Waiters>>,
}

impl WatchRegistry {
    /// A registry that says which watches nobody needs any more. What it calls must not come back to the registry.
    pub(crate) fn forgetting(forget: impl Fn(&str, WatchKind) + Send + 'static) -> Self {
        let registry = Self::default();
        registry.waiters.lock().forget = Some(Box::new(forget));
        registry
    }

    /// Registers a waiter. Do it before the read that sets the watch on the server, or an event could come too early.
    pub(crate) fn register(&self, path: &str, kind: impl Into<Option<WatchKind>>) -> Watch {
        let (sender, receiver) = oneshot::channel();
        let key = (path.to_owned(), kind.into());
        let mut waiters = self.waiters.lock();
        waiters.next += 1;
        let id = waiters.next;
        match waiters.ended {
            Some(end) => told(&sender.send(WakeReason::SessionEnded(end))),
            None => waiters.by_path.entry(key.clone()).or_default().push(Waiter { id, wake: Wake::Future(sender) }),
        }
        drop(waiters);
        Watch { registry: Arc::downgrade(&self.waiters), key, id, receiver }
    }

    /// Wakes everybody whom an event concerns.
    pub(crate) fn dispatch(&self, event: &WatchedEvent) {
        let kinds: &[WatchKind] = match event.event_type {
            EventType::NodeDeleted => &[WatchKind::Data, WatchKind::Children],
            EventType::NodeCreated | EventType::NodeDataChanged => &[WatchKind::Data],
            EventType::NodeChildrenChanged => &[WatchKind::Children],
        };
        self.wake(WakeReason::Event(event.event_type), |waiters| {
            let mut woken = Vec::new();
            for &kind in kinds {
                woken.extend(waiters.by_path.remove(&(event.path.clone(), Some(kind))).unwrap_or_default());
            }
            woken
        });
    }

    /// Wakes those who wait for a node's word that it is first in line.
    pub(crate) fn is_first(&self, path: &str) {
        self.wake(WakeReason::First, |waiters| waiters.by_path.remove(&(path.to_owned(), None)).unwrap_or_default());
    }

    /// Wakes everybody after a reconnect.
    pub(crate) fn reconnected(&self) {
        self.wake(WakeReason::Reconnected, |waiters| {
            std::mem::take(&mut waiters.by_path).into_values().flatten().collect()
        });
    }

    /// Wakes everybody at the end of the session, and whoever comes later.
    pub(crate) fn session_ended(&self, end: SessionEnd) {
        self.wake(WakeReason::SessionEnded(end), |waiters| {
            waiters.ended = Some(end);
            std::mem::take(&mut waiters.by_path).into_values().flatten().collect()
        });
    }

    fn wake(&self, reason: WakeReason, take: impl FnOnce(&mut Waiters) -> Vec<Waiter>) {
        let mut callbacks = Vec::new();
        {
            let mut waiters = self.waiters.lock();
            for waiter in take(&mut waiters) {
                match waiter.wake {
                    Wake::Future(sender) => told(&sender.send(reason)),
                    Wake::Callback(callback) => callbacks.push(callback),
                }
            }
        }
        for callback in callbacks {
            callback(reason);
        }
    }

    /// What is waited for on the server.
    pub(crate) fn paths(&self) -> Vec<String> {
        let waiters = self.waiters.lock();
        waiters.by_path.keys().filter(|(_, kind)| kind.is_some()).map(|(path, _)| path.clone()).collect()
    }

    /// How many wait for the server.
    pub(crate) fn len(&self) -> usize {
        let waiters = self.waiters.lock();
        waiters.by_path.iter().filter(|((_, kind), _)| kind.is_some()).map(|(_, waiters)| waiters.len()).sum()
    }
}

/// Whoever waited may be gone.
fn told(_: &Result<(), WakeReason>) {}

impl fmt::Debug for WatchRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchRegistry").field("waiters", &self.len()).finish()
    }
}

/// A future that resolves when a watch fires, or when it must be set anew.
///
/// # Cancel safety
///
/// Dropping it takes the waiter out of the registry. The server's watch goes with the last waiter where the client can
/// [remove watches](crate::Capabilities::remove_watches), else it stays until it fires or the connection ends.
#[must_use = "futures do nothing unless polled"]
pub struct Watch {
    registry: Weak<Mutex<Waiters>>,
    key: Key,
    id: u64,
    receiver: oneshot::Receiver<WakeReason>,
}

impl Watch {
    /// Whether it has fired: a look that does not wait.
    #[must_use]
    pub fn has_fired(&self) -> bool {
        !self.receiver.is_empty() || self.receiver.is_terminated()
    }

    /// Calls `callback` instead of resolving; at once if it has fired already.
    pub(crate) fn on_fire(mut self, callback: impl FnOnce(WakeReason) + Send + 'static) {
        // Not found below: then there is nothing to take back either.
        let id = std::mem::take(&mut self.id);
        let registry = self.registry.upgrade();
        if let Some(registry) = &registry {
            if let Some(waiter) = registry.lock().find(&self.key, id) {
                // Or the end of its sender would wake the task that runs here.
                self.receiver.close();
                waiter.wake = Wake::Callback(Box::new(callback));
                return;
            }
        }
        if let Ok(reason) = self.receiver.try_recv() {
            callback(reason);
        }
    }
}

impl Future for Watch {
    type Output = WakeReason;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<WakeReason> {
        // A sender that is gone without a word belonged to a session that was dropped whole.
        Pin::new(&mut self.receiver)
            .poll(cx)
            .map(|reason| reason.unwrap_or(WakeReason::SessionEnded(SessionEnd::Closed)))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // As above.
        self.receiver.close();
        if let Some(registry) = self.registry.upgrade() {
            let taken = registry.lock().remove(&self.key, self.id);
            drop(taken);
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("path", &self.key.0).field("kind", &self.key.1).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn event(event_type: EventType, path: &str) -> WatchedEvent {
        WatchedEvent { event_type, path: path.into() }
    }

    #[tokio::test]
    async fn an_event_wakes_whom_it_concerns() {
        let registry = WatchRegistry::default();
        let data = registry.register("/a", WatchKind::Data);
        let children = registry.register("/a", WatchKind::Children);
        let other = registry.register("/b", WatchKind::Data);
        registry.dispatch(&event(EventType::NodeDataChanged, "/a"));
        assert_eq!(data.await, WakeReason::Event(EventType::NodeDataChanged));
        assert!(!children.has_fired() && !other.has_fired());
        registry.dispatch(&event(EventType::NodeDeleted, "/a"));
        assert_eq!(children.await, WakeReason::Event(EventType::NodeDeleted));
        assert_eq!(registry.len(), 1);
    }

    #[tokio::test]
    async fn a_reconnect_wakes_everybody() {
        let registry = WatchRegistry::default();
        let watches = [registry.register("/a", WatchKind::Data), registry.register("/b", WatchKind::Children)];
        registry.reconnected();
        for watch in watches {
            assert_eq!(watch.await, WakeReason::Reconnected);
        }
        assert_eq!(registry.len(), 0);
    }

    #[tokio::test]
    async fn the_end_of_the_session_wakes_those_who_wait_and_those_who_come_later() {
        let registry = WatchRegistry::default();
        let early = registry.register("/a", WatchKind::Data);
        registry.session_ended(SessionEnd::Expired);
        let late = registry.register("/a", WatchKind::Data);
        assert_eq!(early.await, WakeReason::SessionEnded(SessionEnd::Expired));
        assert_eq!(late.await, WakeReason::SessionEnded(SessionEnd::Expired));
    }

    #[tokio::test]
    async fn a_word_is_for_those_who_wait_for_it() {
        let registry = WatchRegistry::default();
        let [data, first, other] = [("/a", Some(WatchKind::Data)), ("/a", None), ("/b", None)]
            .map(|(path, kind)| registry.register(path, kind));
        assert_eq!((registry.len(), registry.paths()), (1, vec!["/a".to_owned()]));
        registry.is_first("/a");
        registry.dispatch(&event(EventType::NodeDeleted, "/b"));
        assert_eq!(first.await, WakeReason::First);
        assert!(!data.has_fired() && !other.has_fired());
        registry.reconnected();
        assert_eq!(other.await, WakeReason::Reconnected);
    }

    #[test]
    fn a_dropped_watch_leaves_the_registry() {
        let registry = WatchRegistry::default();
        let (first, second) = (registry.register("/a", WatchKind::Data), registry.register("/a", WatchKind::Data));
        drop(first);
        assert_eq!(registry.len(), 1);
        drop(second);
        assert_eq!(registry.len(), 0);
    }

    /// Whatever the interleaving, a callback is called once.
    #[test]
    fn a_callback_is_never_lost_between_two_threads() {
        let registry = WatchRegistry::default();
        let called = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        const ROUNDS: usize = 20_000;
        std::thread::scope(|scope| {
            let (sender, receiver) = mpsc::sync_channel(0);
            let dispatching = registry.clone();
            scope.spawn(move || {
                for round in receiver {
                    if round % 2 == 0 {
                        dispatching.dispatch(&event(EventType::NodeDeleted, "/a"));
                    } else {
                        dispatching.reconnected();
                    }
                }
            });
            for round in 0..ROUNDS {
                let watch = registry.register("/a", WatchKind::Data);
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
        let registry = WatchRegistry::default();
        let (sender, receiver) = mpsc::channel();
        let later = sender.clone();
        registry.register("/a", WatchKind::Data).on_fire(move |reason| later.send(reason).unwrap());
        let fired = registry.register("/b", WatchKind::Data);
        registry.dispatch(&event(EventType::NodeDeleted, "/b"));
        fired.on_fire(move |reason| sender.send(reason).unwrap());
        assert_eq!(receiver.try_recv(), Ok(WakeReason::Event(EventType::NodeDeleted)));
        registry.dispatch(&event(EventType::NodeDataChanged, "/a"));
        assert_eq!(receiver.try_recv(), Ok(WakeReason::Event(EventType::NodeDataChanged)));
    }
}

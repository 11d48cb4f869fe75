//! The queue between a ZooKeeper client and the subscriber of a persistent watch.
//!
//! The queue is bounded: at 10,000 events it becomes one `Reset`, and its subscriber reads again. Without the bound, a
//! slow subscriber would fill the memory. If it could hold up the session's task, it would delay the heartbeat of
//! locks.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::mpsc::error::TryRecvError;

use crate::model::WatchedEvent;
use crate::model::ids::Zxid;

/// An event of a [`Subscription`](crate::recipe::Subscription).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SubscriptionEvent {
    /// A node has changed. A hint: a change may arrive more than once.
    Event(WatchedEvent),
    /// Changes are unknown: read again. One of these has happened:
    ///
    /// * The session has reconnected, and the watch is set again.
    /// * 10,000 events waited for their reader, and this replaces them.
    /// * The zxid of a new subscriber's known nodes is newer than the server's. It may be a restored backup or another
    ///   ensemble.
    /// * The server has refused a recursive watch of the same path, or, because it was busy, a request for the known nodes.
    /// * [`Resync::known`] has panicked.
    Reset,
    /// The watch is set, in a new subscription or at a reconnect. The changes of the nodes that [`Resync::known`]
    /// returned have arrived as events ahead of this one.
    Resynced,
}

/// The nodes that a subscriber knows, for [`Resync::known`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownNodes {
    /// The transaction up to which the subscriber knows all changes of these nodes, such as
    /// [`Session::zxid`](crate::Session::zxid) after a read. It has applied each of them, has its event in the queue,
    /// or is about to read again. `None` is before all transactions.
    pub zxid: Option<Zxid>,
    /// The paths of the nodes that it has read. A changed node arrives as `NodeDataChanged`, even if it was deleted and
    /// created again; a deleted one as `NodeDeleted`.
    pub data: Vec<String>,
    /// The paths at which it knows that a node does not exist. A creation arrives as `NodeCreated`.
    pub missing: Vec<String>,
    /// The paths of the parents that it has listed. The creation or deletion of a child arrives as
    /// `NodeChildrenChanged` of its parent.
    pub children: Vec<String>,
}

impl KnownNodes {
    pub(crate) fn is_empty(&self) -> bool {
        self.data.is_empty() && self.missing.is_empty() && self.children.is_empty()
    }

    /// Returns the transaction as the requests of a resync name it.
    pub(crate) fn since(&self) -> i64 {
        self.zxid.map_or(0, Zxid::get)
    }
}

/// The part of a subscriber that names its known nodes, so that it reads only the changed ones again. The session calls
/// it when the subscription is added, and at each reconnect. Closures implement it.
pub trait Resync: Send + Sync + 'static {
    /// Returns the nodes that the subscriber knows now. The resync ignores those that are not at or below the path of
    /// its subscription. A read that started before this call and is applied after it must be repeated.
    ///
    /// The session calls this on its event path, under its lock: it must not block, or call the client. After a panic the
    /// subscription reports [`SubscriptionEvent::Reset`], and the subscriber must read everything again.
    fn known(&self) -> KnownNodes;
}

impl<F: Fn() -> KnownNodes + Send + Sync + 'static> Resync for F {
    fn known(&self) -> KnownNodes {
        self()
    }
}

/// The largest number of events that wait for the subscriber of a persistent watch.
pub(crate) const MOST_EVENTS: usize = 10_000;

#[derive(Default)]
struct EventQueue {
    queue: Mutex<Queue>,
    /// Notifies the subscriber of an event, and of the end.
    added: Notify,
}

#[derive(Default)]
struct Queue {
    /// The events: a reconnect's events with the number of the connection, others with 0.
    events: VecDeque<(SubscriptionEvent, u64)>,
    ended: bool,
}

/// Sends the events of a persistent watch. Dropping it ends them.
pub struct WatchSender(Arc<EventQueue>);

impl WatchSender {
    /// Queues an event, without blocking. If 10,000 events wait already, a [`SubscriptionEvent::Reset`] takes the
    /// place of all of them and of this one. After the drop of the [`WatchEvents`] nothing happens.
    pub fn send(&self, event: SubscriptionEvent) {
        self.push(event, 0);
    }

    /// Queues [`SubscriptionEvent::Reset`] or [`SubscriptionEvent::Resynced`] for a connection, which has this number
    /// within the session.
    pub(crate) fn restored(&self, event: SubscriptionEvent, epoch: u64) {
        self.push(event, epoch);
    }

    fn push(&self, event: SubscriptionEvent, epoch: u64) {
        // The subscriber has the only other reference.
        if Arc::strong_count(&self.0) == 1 {
            return;
        }
        let mut queue = self.0.queue.lock();
        queue.events.push_back((event, epoch));
        if queue.events.len() > MOST_EVENTS {
            let newest = queue.events.iter().map(|(_, epoch)| *epoch).max().unwrap_or_default();
            // A new queue frees the memory. A reader that waits for the newest connection gets a reset of its own.
            let resets = [0, newest].into_iter().take(if newest == 0 { 1 } else { 2 });
            queue.events = resets.map(|epoch| (SubscriptionEvent::Reset, epoch)).collect();
        }
        drop(queue);
        self.0.added.notify_one();
    }
}

impl Drop for WatchSender {
    fn drop(&mut self) {
        self.0.queue.lock().ended = true;
        self.0.added.notify_one();
    }
}

impl fmt::Debug for WatchSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchSender").finish_non_exhaustive()
    }
}

/// The events of a persistent watch. Dropping it removes the watch.
pub struct WatchEvents {
    shared: Arc<EventQueue>,
    remove: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl WatchEvents {
    /// Creates the queue of a persistent watch.
    #[must_use]
    pub fn channel() -> (WatchSender, Self) {
        let shared = Arc::new(EventQueue::default());
        (WatchSender(Arc::clone(&shared)), Self { shared, remove: None })
    }

    /// Sets the call that removes the watch when the events are dropped.
    #[must_use]
    pub fn on_drop(self, remove: impl FnOnce() + Send + Sync + 'static) -> Self {
        let mut events = self;
        events.remove = Some(Box::new(remove));
        events
    }

    /// Resolves with the next event; `None` when the watch has ended with its session or its connection.
    ///
    /// # Cancel safety
    ///
    /// No event is lost when the future is dropped.
    pub async fn recv(&mut self) -> Option<SubscriptionEvent> {
        self.recv_with_epoch().await.map(|(event, _)| event)
    }

    /// Returns the next event, if it has arrived.
    ///
    /// # Errors
    ///
    /// `TryRecvError::Empty`: none has arrived. `TryRecvError::Disconnected`: the watch has ended.
    pub fn try_recv(&mut self) -> Result<SubscriptionEvent, TryRecvError> {
        self.try_recv_within(u64::MAX)
    }

    /// Resolves with the next event, and the number of the connection that it is for; 0 for any.
    pub(crate) async fn recv_with_epoch(&mut self) -> Option<(SubscriptionEvent, u64)> {
        loop {
            {
                let mut queue = self.shared.queue.lock();
                if let Some(event) = queue.events.pop_front() {
                    return Some(event);
                }
                if queue.ended {
                    return None;
                }
            }
            // An event that arrived after the look has left a permit.
            self.shared.added.notified().await;
        }
    }

    /// Returns the next event, if it has arrived and is not for a connection later than `epoch`.
    pub(crate) fn try_recv_within(&mut self, epoch: u64) -> Result<SubscriptionEvent, TryRecvError> {
        let mut queue = self.shared.queue.lock();
        match queue.events.front() {
            Some((_, of)) if *of <= epoch => {
                queue.events.pop_front().map(|(event, _)| event).ok_or(TryRecvError::Empty)
            }
            None if queue.ended => Err(TryRecvError::Disconnected),
            _ => Err(TryRecvError::Empty),
        }
    }
}

impl Drop for WatchEvents {
    fn drop(&mut self) {
        if let Some(remove) = self.remove.take() {
            remove();
        }
    }
}

impl fmt::Debug for WatchEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchEvents").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::model::EventType;

    fn changed(number: usize) -> SubscriptionEvent {
        SubscriptionEvent::Event(WatchedEvent { event_type: EventType::NodeDataChanged, path: format!("/{number}") })
    }

    #[test]
    fn queue_that_is_full_becomes_one_reset_and_takes_later_events() {
        let (to, mut events) = WatchEvents::channel();
        (0..MOST_EVENTS).for_each(|number| to.send(changed(number)));
        assert_eq!(events.recv().now_or_never(), Some(Some(changed(0))));
        (0..3).for_each(|number| to.send(changed(number)));
        let reset = SubscriptionEvent::Reset;
        for expected in [Ok(reset), Ok(changed(2)), Err(TryRecvError::Empty)] {
            assert_eq!(events.try_recv(), expected);
        }
    }

    #[tokio::test]
    async fn subscriber_takes_all_events_before_the_end() {
        let (to, mut events) = WatchEvents::channel();
        let sending = tokio::spawn(async move {
            for number in 0..1000 {
                to.send(changed(number));
                if number % 7 == 0 {
                    tokio::task::yield_now().await;
                }
            }
        });
        for number in 0..1000 {
            // The drop of a future that waits loses no event.
            let event = match events.recv().now_or_never() {
                Some(event) => event,
                None => events.recv().await,
            };
            assert_eq!(event, Some(changed(number)));
        }
        sending.await.unwrap();
        assert_eq!(events.recv().await, None);
    }

    #[test]
    fn full_queue_keeps_a_reset_for_the_newest_connection() {
        let (to, mut events) = WatchEvents::channel();
        (2..4).for_each(|epoch| to.restored(SubscriptionEvent::Resynced, epoch));
        assert_eq!(events.try_recv_within(1), Err(TryRecvError::Empty));
        (0..MOST_EVENTS).for_each(|number| to.send(changed(number)));
        assert_eq!(events.try_recv_within(1), Ok(SubscriptionEvent::Reset));
        assert_eq!(events.try_recv_within(2), Err(TryRecvError::Empty));
        assert_eq!(events.try_recv_within(3), Ok(SubscriptionEvent::Reset));
    }

    #[test]
    fn events_without_a_subscriber_are_not_kept() {
        let (to, events) = WatchEvents::channel();
        drop(events);
        to.send(changed(1));
        assert!(to.0.queue.lock().events.is_empty());
    }
}

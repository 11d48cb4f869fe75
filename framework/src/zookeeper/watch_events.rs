//! The queue between a ZooKeeper client and the subscriber of a persistent watch.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::model::PersistentEvent;

/// The most events of a persistent watch that wait for their subscriber.
pub(crate) const MOST_EVENTS: usize = 10_000;

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Notifies the subscriber of an event, and of the end.
    added: Notify,
}

#[derive(Default)]
struct Queue {
    events: VecDeque<PersistentEvent>,
    ended: bool,
}

/// Sends the events of a persistent watch. Dropping it ends them.
pub struct WatchSender(Arc<Shared>);

impl WatchSender {
    /// Queues an event, without blocking. If 10,000 events wait already, a [`PersistentEvent::Reset`] takes the place
    /// of all of them and of this one. After the drop of the [`WatchEvents`] nothing happens.
    pub fn send(&self, event: PersistentEvent) {
        // The subscriber has the only other reference.
        if Arc::strong_count(&self.0) == 1 {
            return;
        }
        let mut queue = self.0.queue.lock();
        if queue.events.len() >= MOST_EVENTS {
            // Frees the memory too.
            queue.events = VecDeque::from([PersistentEvent::Reset]);
        } else {
            queue.events.push_back(event);
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
    shared: Arc<Shared>,
    remove: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl WatchEvents {
    /// Creates the queue of a persistent watch.
    #[must_use]
    pub fn channel() -> (WatchSender, Self) {
        let shared = Arc::new(Shared::default());
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
    pub async fn next(&mut self) -> Option<PersistentEvent> {
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
            // An event that came since then has left a permit.
            self.shared.added.notified().await;
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
    use crate::model::{EventType, WatchedEvent};

    fn changed(number: usize) -> PersistentEvent {
        PersistentEvent::Changed(WatchedEvent { event_type: EventType::NodeDataChanged, path: format!("/{number}") })
    }

    #[test]
    fn queue_that_is_full_becomes_one_reset_and_takes_later_events() {
        let (to, mut events) = WatchEvents::channel();
        (0..MOST_EVENTS).for_each(|number| to.send(changed(number)));
        assert_eq!(events.next().now_or_never(), Some(Some(changed(0))));
        (0..3).for_each(|number| to.send(changed(number)));
        let reset = PersistentEvent::Reset;
        for expected in [Some(Some(reset)), Some(Some(changed(2))), None] {
            assert_eq!(events.next().now_or_never(), expected);
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
            let event = match events.next().now_or_never() {
                Some(event) => event,
                None => events.next().await,
            };
            assert_eq!(event, Some(changed(number)));
        }
        sending.await.unwrap();
        assert_eq!(events.next().await, None);
    }

    #[test]
    fn events_without_a_subscriber_are_not_kept() {
        let (to, events) = WatchEvents::channel();
        drop(events);
        to.send(changed(1));
        assert!(to.0.queue.lock().events.is_empty());
    }
}

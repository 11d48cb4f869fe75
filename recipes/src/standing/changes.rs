//! The state of a standing task, and the bounded stream of its changes.

use curator_framework::Changes;
use futures_util::stream::unfold;
use parking_lot::Mutex;
use tokio::sync::{broadcast, watch};

/// The number of changes that a stream keeps for a slow reader.
const KEPT: usize = 128;

/// One element of a stream of changes, such as [`LeaderLatch::changes`](crate::LeaderLatch::changes). It starts with
/// the next change, and keeps the newest 128 for a slow reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<T> {
    /// The next state.
    Item(T),
    /// The reader was too slow: this number of states was dropped. The newest states follow.
    Dropped(u64),
}

/// Returns the next change of a channel; `None` after the last one.
async fn next<T: Clone>(mut receiver: broadcast::Receiver<T>) -> Option<(Change<T>, broadcast::Receiver<T>)> {
    let change = match receiver.recv().await {
        Ok(item) => Change::Item(item),
        Err(broadcast::error::RecvError::Lagged(number)) => Change::Dropped(number),
        Err(broadcast::error::RecvError::Closed) => return None,
    };
    Some((change, receiver))
}

/// The newest state, as a value, a channel and a stream.
#[derive(Debug)]
pub(crate) struct Published<T> {
    newest: watch::Sender<T>,
    /// `None` after the last state.
    changes: Mutex<Option<broadcast::Sender<T>>>,
}

impl<T: Clone + Send + Sync + 'static> Published<T> {
    pub(crate) fn new(first: T) -> Self {
        Self { newest: watch::Sender::new(first), changes: Mutex::new(Some(broadcast::Sender::new(KEPT))) }
    }

    /// Publishes a state. After the final state it publishes nothing.
    pub(crate) fn publish(&self, state: T) {
        // Sent without the lock: the drop of an old state may call user code.
        let changes = self.changes.lock().clone();
        if let Some(changes) = changes {
            let mut other = state.clone();
            let is_published = self.newest.send_if_modified(|newest| {
                let goes_on = self.changes.lock().is_some();
                if goes_on {
                    std::mem::swap(newest, &mut other);
                }
                goes_on
            });
            if is_published {
                // An error means that no stream is open.
                let _streams = changes.send(state);
            }
        }
    }

    /// Publishes the last state, and ends the streams. Returns `false` if that was done before.
    pub(crate) fn end(&self, state: T) -> bool {
        let changes = self.changes.lock().take();
        changes.is_some_and(|changes| {
            // First: a reader that opens its stream, then reads the newest state, misses none.
            self.newest.send_replace(state.clone());
            let _streams = changes.send(state);
            true
        })
    }

    pub(crate) fn newest(&self) -> T {
        self.newest.borrow().clone()
    }

    pub(crate) fn watch(&self) -> watch::Receiver<T> {
        self.newest.subscribe()
    }

    /// Returns all changes from now on, in order. The stream keeps 128 of them for a slow reader, then drops the oldest
    /// and marks the gap.
    pub(crate) fn changes(&self) -> Changes<Change<T>> {
        let receiver = match &*self.changes.lock() {
            Some(changes) => changes.subscribe(),
            // The sender is dropped at once, so the stream is empty.
            None => broadcast::channel(1).1,
        };
        Changes::new(unfold(receiver, next))
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::{Context, Wake, Waker};

    use super::*;

    /// Reads the newest state at the moment when a stream wakes its reader.
    struct Look {
        published: Published<u32>,
        seen: AtomicU32,
    }

    impl Wake for Look {
        fn wake(self: Arc<Self>) {
            self.seen.store(self.published.newest(), Ordering::SeqCst);
        }
    }

    #[test]
    fn newest_state_has_each_change_that_a_stream_returns() {
        let look = Arc::new(Look { published: Published::new(0), seen: AtomicU32::new(0) });
        let (mut changes, waker) = (look.published.changes(), Waker::from(Arc::clone(&look)));
        let mut next = pin!(changes.recv());
        assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        look.published.publish(7);
        assert_eq!(look.seen.load(Ordering::SeqCst), 7);
    }

    #[tokio::test]
    async fn a_slow_reader_gets_a_marker_and_the_newest_states() {
        let published = Published::new(0);
        let mut changes = published.changes();
        for number in 1..=200 {
            published.publish(number);
        }
        assert!(published.end(201));
        assert_eq!(changes.recv().await, Some(Change::Dropped(201 - 128)));
        for number in 201 - 127..=201 {
            assert_eq!(changes.recv().await, Some(Change::Item(number)));
        }
        assert_eq!(changes.recv().await, None);
    }

    #[tokio::test]
    async fn nothing_follows_the_last_state() {
        let published = Published::new(0);
        assert!(published.end(1));
        published.publish(2);
        assert!(!published.end(3));
        assert_eq!(published.newest(), 1);
        assert_eq!(published.changes().recv().await, None);
    }
}

//! A bounded number of slots, and a queue for them that advances without a poll of its waiters.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// A bounded number of slots, and the queue for them. Unlike a semaphore, it never gives a slot to a future that is
/// not polled: the queue has the things themselves, and the task that leaves a slot starts the next one.
#[derive(Debug)]
pub(crate) struct SlotQueue<T> {
    state: Mutex<State<T>>,
    all: usize,
    idle: Notify,
}

#[derive(Debug)]
struct State<T> {
    free: usize,
    waiting: VecDeque<T>,
}

impl<T> SlotQueue<T> {
    pub(crate) fn new(all: usize) -> Self {
        Self { state: Mutex::new(State { free: all, waiting: VecDeque::new() }), all, idle: Notify::new() }
    }

    /// Gives a thing a slot and returns it to be started, or puts it into the queue.
    pub(crate) fn enter(&self, thing: T) -> Option<T> {
        let mut state = self.state.lock();
        if state.free == 0 {
            state.waiting.push_back(thing);
            return None;
        }
        state.free -= 1;
        Some(thing)
    }

    /// Leaves a slot. Returns the next thing in the queue, which now has the slot, to be started.
    pub(crate) fn leave(&self) -> Option<T> {
        let mut state = self.state.lock();
        let next = state.waiting.pop_front();
        if next.is_none() {
            state.free += 1;
            if state.free == self.all {
                self.idle.notify_waiters();
            }
        }
        next
    }

    /// Takes out all things in the queue.
    pub(crate) fn take_waiting(&self) -> VecDeque<T> {
        std::mem::take(&mut self.state.lock().waiting)
    }

    /// Resolves when every slot is free.
    pub(crate) async fn all_free(&self) {
        loop {
            let idle = self.idle.notified();
            if self.state.lock().free == self.all {
                return;
            }
            idle.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn freed_slot_starts_the_next_request() {
        let slots = SlotQueue::new(2);
        assert_eq!((slots.enter(1), slots.enter(2), slots.enter(3), slots.enter(4)), (Some(1), Some(2), None, None));
        assert_eq!(slots.leave(), Some(3));
        assert_eq!(slots.take_waiting(), [4]);
        assert_eq!((slots.leave(), slots.leave()), (None, None));
        slots.all_free().await;
        assert_eq!(slots.enter(5), Some(5));
    }
}

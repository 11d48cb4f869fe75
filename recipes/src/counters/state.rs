//! The state that the callers of a counter share, and the place of one caller in its queue.

use std::sync::Arc;

use curator_framework::{CuratorFramework, RetryPolicy};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::content::sealed::Content;
use crate::counters::attempts::Attempts;
use crate::counters::engine::Engine;
use crate::counters::options::PromotedToLock;
use crate::counters::pacing::Pacing;
use crate::counters::queued::Outcome;
use crate::locks::InterProcessMutex;

/// The state that all clones of a counter or an atomic value share.
pub(super) struct Counter<V: Content> {
    pub(super) client: CuratorFramework,
    pub(super) path: String,
    pub(super) policy: Arc<dyn RetryPolicy>,
    pub(super) promoted: Option<Promotion>,
    pub(super) engine: Mutex<Engine<V>>,
    /// Locked by the caller that sends the requests of all. If its future is dropped, the next caller continues.
    pub(super) requests: tokio::sync::Mutex<Requests>,
}

/// The lock to which a change is promoted, and its options.
pub(super) type Promotion = (InterProcessMutex, PromotedToLock);

/// The state of the requests, kept between callers.
#[derive(Debug, Default)]
pub(super) struct Requests {
    pub(super) attempts: Attempts,
    pub(super) pacing: Pacing,
}

/// A caller's change. Its drop takes the change back, unless it was sent.
pub(super) struct Ticket<'a, V: Content> {
    pub(super) engine: &'a Mutex<Engine<V>>,
    pub(super) id: u64,
    pub(super) outcome: oneshot::Receiver<Outcome<V>>,
}

impl<V: Content> Ticket<'_, V> {
    /// Returns `true` once the change has its outcome.
    pub(super) fn is_decided(&self) -> bool {
        !self.outcome.is_empty() || self.outcome.is_terminated()
    }
}

impl<V: Content> Drop for Ticket<'_, V> {
    fn drop(&mut self) {
        self.engine.lock().withdraw(self.id);
    }
}

//! The bounded streams of a cache's changes.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use curator_framework::{Changes, ConnectionState};
use futures_util::stream::unfold;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::error::CacheError;
use super::model::ChildData;

/// An event of a cache.
///
/// The events replay to the contents: a reader that has applied each event up to one has the nodes that the cache had
/// after it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum CacheEvent {
    /// A node was created, or was read for the first time.
    Created(Arc<ChildData>),
    /// The data of a node has changed, or can be read again after [`Failed`](Self::Failed). States between the two may be
    /// skipped.
    Changed {
        /// The last state that was reported.
        old: Arc<ChildData>,
        /// The present state.
        new: Arc<ChildData>,
    },
    /// A node was deleted. This is its last cached state. A node that was deleted and created again causes a `Deleted`,
    /// then a `Created`. With [`merge_replacements`](crate::CuratorCacheOptions::merge_replacements) an ephemeral one may
    /// cause only a [`Changed`](Self::Changed).
    Deleted(Arc<ChildData>),
    /// The first load is complete.
    Initialized,
    /// The reader was too slow, and events were dropped. Forget all nodes: a `Created` for each present node follows,
    /// and [`Initialized`](Self::Initialized) if the first load is complete.
    Reset,
    /// A node exists, and its data or the list of its children cannot be read. The server refuses it, the data cannot be
    /// decompressed, or the reply is above the client's
    /// [`max_reply`](curator_framework::CuratorFrameworkBuilder::max_reply). The cache keeps the nodes below the node, and
    /// follows them.
    ///
    /// If it is the data, the cache does not show the node until it can be read. The state that was reported last, if any,
    /// is not the present one. The `Changed` or `Deleted` that follows has it as the old state.
    Failed {
        /// The full path.
        path: String,
        /// The error.
        error: CacheError,
    },
}

/// A report of a cache that is not a change of its contents. The older caches have it among their events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Notice {
    Connection(ConnectionState),
    /// The contents are from a later session.
    Refreshed,
}

/// An element of a stream.
#[derive(Debug, Clone)]
pub(super) enum Heard {
    Event(CacheEvent),
    Notice(Notice),
}

impl Heard {
    pub(super) fn into_event(self) -> Option<CacheEvent> {
        match self {
            Self::Event(event) => Some(event),
            Self::Notice(_) => None,
        }
    }

    /// Returns the length of the data. A state that two events share counts twice.
    fn bytes(&self) -> usize {
        match self {
            Self::Event(CacheEvent::Created(node) | CacheEvent::Deleted(node)) => node.data.len(),
            Self::Event(CacheEvent::Changed { old, new }) => old.data.len() + new.data.len(),
            Self::Event(CacheEvent::Initialized | CacheEvent::Reset | CacheEvent::Failed { .. }) | Self::Notice(_) => 0,
        }
    }
}

/// The elements that a stream takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    Events,
    EventsAndNotices,
}

/// The limits of the events that wait for one reader.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) events: usize,
    pub(super) bytes: usize,
}

/// The contents of a cache, which fill a queue that has dropped events.
pub(super) trait Refill: Send + Sync {
    /// Puts the contents in the place of dropped events.
    fn refill(&self, queue: &EventQueue);
}

/// The events that wait for one reader.
pub(super) struct EventQueue {
    takes: Takes,
    waiting: Mutex<Waiting>,
    added: Notify,
}

#[derive(Default)]
struct Waiting {
    /// The contents at the start of the stream, or after a reset. They do not count for the limit.
    contents: VecDeque<CacheEvent>,
    events: VecDeque<Heard>,
    /// The length of the data in `events`.
    bytes: usize,
    /// Events were dropped. The reader takes the contents of the cache in their place.
    is_reset: bool,
    ended: bool,
}

impl EventQueue {
    pub(super) fn beginning_with(contents: VecDeque<CacheEvent>, takes: Takes) -> Arc<Self> {
        let waiting = Waiting { contents, ..Waiting::default() };
        Arc::new(Self { takes, waiting: Mutex::new(waiting), added: Notify::new() })
    }

    /// Appends events. The caller has the lock of the contents.
    pub(super) fn extend(&self, events: &[CacheEvent], limits: Limits) {
        self.append(events.iter().cloned().map(Heard::Event), limits);
    }

    /// Appends a notice, if the stream takes them. The caller has the lock of the contents.
    pub(super) fn notice(&self, notice: Notice, limits: Limits) {
        if self.takes == Takes::EventsAndNotices {
            self.append([Heard::Notice(notice)], limits);
        }
    }

    fn append(&self, all: impl IntoIterator<Item = Heard>, limits: Limits) {
        let mut waiting = self.waiting.lock();
        if waiting.is_reset {
            return;
        }
        for heard in all {
            waiting.bytes += heard.bytes();
            waiting.events.push_back(heard);
        }
        // One event fits in any case.
        let is_large = waiting.bytes > limits.bytes && waiting.events.len() > 1;
        if is_large || waiting.events.len() > limits.events {
            *waiting = Waiting { is_reset: true, ..Waiting::default() };
        }
        drop(waiting);
        self.added.notify_one();
    }

    pub(super) fn end(&self) {
        self.waiting.lock().ended = true;
        self.added.notify_one();
    }

    /// Puts the contents in the place of dropped events. The caller has the lock of the contents.
    pub(super) fn refill(&self, contents: impl FnOnce() -> VecDeque<CacheEvent>) {
        let mut waiting = self.waiting.lock();
        if std::mem::take(&mut waiting.is_reset) {
            waiting.contents.push_back(CacheEvent::Reset);
            waiting.contents.extend(contents());
        }
    }

    /// Returns the next event; the error says whether the stream has ended.
    fn take(&self, contents: &Weak<dyn Refill>) -> Result<Heard, bool> {
        loop {
            let is_reset = {
                let mut waiting = self.waiting.lock();
                if let Some(event) = waiting.contents.pop_front() {
                    return Ok(Heard::Event(event));
                }
                if let Some(heard) = waiting.events.pop_front() {
                    waiting.bytes -= heard.bytes();
                    return Ok(heard);
                }
                if !waiting.is_reset {
                    return Err(waiting.ended);
                }
                waiting.is_reset
            };
            match contents.upgrade().filter(|_| is_reset) {
                Some(contents) => contents.refill(self),
                None => return Err(true),
            }
        }
    }
}

impl EventQueue {
    /// Returns the elements as a stream, which ends with the cache.
    pub(super) fn stream(self: Arc<Self>, contents: Weak<dyn Refill>) -> Changes<Heard> {
        Changes::new(unfold((self, contents), async |(queue, contents)| {
            loop {
                match queue.take(&contents) {
                    Ok(heard) => break Some((heard, (queue, contents))),
                    Err(true) => break None,
                    // An event that arrived after `take` has left a permit.
                    Err(false) => queue.added.notified().await,
                }
            }
        }))
    }
}

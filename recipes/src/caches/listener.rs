//! Listeners of a cache: closures for the kinds of events.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::task::AbortHandle;

use super::events::{CacheEvent, CacheEvents};
use super::model::ChildData;
use curator_framework::SafeNotifyExecutor;

type Call = Box<dyn Fn(&CacheEvent) + Send + Sync>;

/// The most calls that wait on the thread of a listener. More events wait in the stream, which is bounded.
const MOST_CALLS: usize = 1_000;

/// A listener of a [`CuratorCache`](crate::CuratorCache): Curator's `CuratorCacheListener`.
///
/// # Examples
///
/// ```
/// use curator_recipes::CuratorCacheListener;
///
/// let listener = CuratorCacheListener::builder()
///     .for_creates(|node| println!("{} was created", node.path))
///     .for_deletes(|node| println!("{} was deleted", node.path))
///     .after_initialized()
///     .build();
/// # drop(listener);
/// ```
pub struct CuratorCacheListener {
    calls: Vec<Call>,
    after_initialized: bool,
}

impl CuratorCacheListener {
    /// Begins a listener.
    pub fn builder() -> CuratorCacheListenerBuilder {
        CuratorCacheListenerBuilder { listener: Self { calls: Vec::new(), after_initialized: false } }
    }
}

impl fmt::Debug for CuratorCacheListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CuratorCacheListener").field("calls", &self.calls.len()).finish_non_exhaustive()
    }
}

/// Builds a [`CuratorCacheListener`]. Each call adds a closure; an event calls those for its kind, in their order.
#[derive(Debug)]
#[must_use]
pub struct CuratorCacheListenerBuilder {
    listener: CuratorCacheListener,
}

impl CuratorCacheListenerBuilder {
    /// Calls the closure for each event.
    pub fn for_all(mut self, call: impl Fn(&CacheEvent) + Send + Sync + 'static) -> Self {
        self.listener.calls.push(Box::new(call));
        self
    }

    /// Calls the closure for each created node.
    pub fn for_creates(self, call: impl Fn(&ChildData) + Send + Sync + 'static) -> Self {
        self.for_all(move |event| {
            if let CacheEvent::Created(node) = event {
                call(node);
            }
        })
    }

    /// Calls the closure with the earlier and the present state of each changed node.
    pub fn for_changes(self, call: impl Fn(&ChildData, &ChildData) + Send + Sync + 'static) -> Self {
        self.for_all(move |event| {
            if let CacheEvent::Changed { old, new } = event {
                call(old, new);
            }
        })
    }

    /// Calls the closure with the earlier state, if there is one, and the present state of each created or changed node.
    pub fn for_creates_and_changes(
        self,
        call: impl Fn(Option<&ChildData>, &ChildData) + Send + Sync + 'static,
    ) -> Self {
        self.for_all(move |event| match event {
            CacheEvent::Created(new) => call(None, new),
            CacheEvent::Changed { old, new } => call(Some(old), new),
            _ => {}
        })
    }

    /// Calls the closure with the last state of each deleted node.
    pub fn for_deletes(self, call: impl Fn(&ChildData) + Send + Sync + 'static) -> Self {
        self.for_all(move |event| {
            if let CacheEvent::Deleted(node) = event {
                call(node);
            }
        })
    }

    /// Calls the closure when the first load is complete.
    pub fn for_initialized(self, call: impl Fn() + Send + Sync + 'static) -> Self {
        self.for_all(move |event| {
            if let CacheEvent::Initialized = event {
                call();
            }
        })
    }

    /// Calls no closure before the first load is complete.
    pub const fn after_initialized(mut self) -> Self {
        self.listener.after_initialized = true;
        self
    }

    /// Returns the listener.
    #[must_use]
    pub fn build(self) -> CuratorCacheListener {
        self.listener
    }
}

/// The id of a listener of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CacheListenerId(u64);

/// The listeners of one cache: a task for each takes its events from a stream, one at a time.
#[derive(Default)]
pub(super) struct Pumps {
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    next: u64,
    /// The listeners that were added outside of a runtime, until the cache is started.
    waiting: Vec<(u64, CacheEvents, CuratorCacheListener)>,
    running: Vec<(u64, AbortHandle)>,
}

impl Pumps {
    pub(super) fn add(&self, events: CacheEvents, listener: CuratorCacheListener) -> CacheListenerId {
        let mut list = self.list.lock();
        list.next += 1;
        let id = list.next;
        list.waiting.push((id, events, listener));
        list.start();
        CacheListenerId(id)
    }

    /// Starts the listeners that wait for a runtime.
    pub(super) fn start(&self) {
        self.list.lock().start();
    }

    pub(super) fn remove(&self, CacheListenerId(id): CacheListenerId) {
        let mut list = self.list.lock();
        let waiting = list.waiting.iter().position(|(other, ..)| *other == id).map(|index| list.waiting.remove(index));
        if let Some(index) = list.running.iter().position(|(other, _)| *other == id) {
            list.running.remove(index).1.abort();
        }
        drop(list);
        // Outside of the lock: a closure may own objects that call back when they are dropped.
        drop(waiting);
    }
}

impl List {
    fn start(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        for (id, events, listener) in self.waiting.drain(..) {
            self.running.push((id, runtime.spawn(pump(events, listener)).abort_handle()));
        }
    }
}

/// Calls a listener for each event, one after the other, on a thread where it may block.
async fn pump(mut events: CacheEvents, listener: CuratorCacheListener) {
    let (listener, executor) = (Arc::new(listener), SafeNotifyExecutor::new());
    let mut is_initialized = false;
    while let Some(first) = events.next().await {
        let (called, are_called) = tokio::sync::oneshot::channel::<()>();
        let called = Arc::new(called);
        // One thread for all that have arrived: a thread for each would be slower than the events.
        for event in std::iter::once(first).chain(std::iter::from_fn(|| events.try_next())).take(MOST_CALLS) {
            is_initialized |= matches!(event, CacheEvent::Initialized);
            if listener.after_initialized && !is_initialized {
                continue;
            }
            // A removal drops this task, which has the listener, so the calls that wait are not made.
            let (listener, called) = (Arc::downgrade(&listener), Arc::clone(&called));
            executor.submit(move || {
                // Dropped at the end of the job, also if a closure panics.
                let _called = called;
                if let Some(listener) = listener.upgrade() {
                    listener.calls.iter().for_each(|call| call(&event));
                }
            });
        }
        drop(called);
        // An error says that the last sender was dropped, which is the end of the jobs.
        let _ended = are_called.await;
    }
}

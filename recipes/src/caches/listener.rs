//! Listeners of a cache: closures for the kinds of events.

use std::fmt;
use std::future::{Future, poll_fn, ready};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use curator_framework::{Changes, ListenerId, SafeNotifyExecutor};
use futures_util::future::BoxFuture;
use futures_util::stream::{Stream, StreamExt as _};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::events::CacheEvent;
use super::model::ChildData;

type Call = Box<dyn Fn(&CacheEvent) + Send + Sync>;

/// The largest number of calls that wait on the thread of a listener. Further events wait in the bounded stream.
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
    /// Returns a builder without closures.
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
#[must_use = "a builder does nothing by itself"]
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

    /// Calls the closure with the earlier state of each changed or created node, `None` for the latter, and the present.
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

impl CuratorCacheListener {
    /// Returns the work of a task that calls the listener for each event.
    pub(super) fn into_work(self, events: Changes<CacheEvent>) -> impl Future<Output = ()> + Send + 'static {
        let Self { calls, after_initialized } = self;
        let is_early = move |event: &CacheEvent| after_initialized && !matches!(event, CacheEvent::Initialized);
        let events = events.skip_while(move |event| ready(is_early(event)));
        call_each(events, move |event| calls.iter().for_each(|call| call(event)))
    }
}

/// The listeners of one cache. A task for each takes its events from a stream.
#[derive(Default)]
pub(super) struct ListenerTasks {
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    /// The runtime of the cache, once it is started.
    runtime: Option<Handle>,
    /// The listeners that were added outside of a runtime, until the cache is started.
    waiting: Vec<(ListenerId, BoxFuture<'static, ()>)>,
    running: Vec<(ListenerId, ListenerWork, AbortHandle)>,
}

/// The work of a listener's task. A removal takes it, and drops the closure with it, so no other call follows.
type ListenerWork = Arc<Mutex<Option<BoxFuture<'static, ()>>>>;

impl ListenerTasks {
    pub(super) fn add(&self, work: impl Future<Output = ()> + Send + 'static) -> ListenerId {
        let (id, mut list) = (ListenerId::unique(), self.list.lock());
        list.waiting.push((id, Box::pin(work)));
        list.start();
        id
    }

    /// Starts the listeners that wait for a runtime.
    pub(super) fn start(&self) {
        let mut list = self.list.lock();
        list.runtime = Handle::try_current().ok();
        list.start();
    }

    pub(super) fn remove(&self, id: ListenerId) {
        let mut list = self.list.lock();
        let waiting = list.waiting.iter().position(|(other, _)| *other == id).map(|index| list.waiting.remove(index));
        let running =
            list.running.iter().position(|(other, ..)| *other == id).map(|index| list.running.swap_remove(index));
        drop(list);
        let taken = running.and_then(|(_, work, task)| {
            task.abort();
            work.lock().take()
        });
        // Outside of the locks: a closure may own objects that call the cache when they are dropped.
        drop((waiting, taken));
    }
}

impl List {
    fn start(&mut self) {
        let Some(runtime) = Handle::try_current().ok().or_else(|| self.runtime.clone()) else { return };
        for (id, work) in self.waiting.drain(..) {
            let work: ListenerWork = Arc::new(Mutex::new(Some(work)));
            let polled = Arc::clone(&work);
            let poll = poll_fn(move |cx| polled.lock().as_mut().map_or(Poll::Ready(()), |work| work.as_mut().poll(cx)));
            self.running.push((id, work, runtime.spawn(poll).abort_handle()));
        }
    }
}

/// Calls a closure for each event, one after the other, on a thread where it may block.
pub(crate) async fn call_each<T: Send + 'static>(
    events: impl Stream<Item = T>,
    call: impl Fn(&T) + Send + Sync + 'static,
) {
    let (call, executor) = (Arc::new(call), SafeNotifyExecutor::new());
    // One thread for all events that have arrived: a thread for each event would be slower than their arrival.
    let mut arrived = pin!(events.ready_chunks(MOST_CALLS));
    while let Some(events) = arrived.next().await {
        let (called, are_called) = tokio::sync::oneshot::channel::<()>();
        let called = Arc::new(called);
        for event in events {
            // A removal drops this task, which has the closure, so the calls that wait are not made.
            let (call, called) = (Arc::downgrade(&call), Arc::clone(&called));
            executor.submit(move || {
                // Dropped at the end of the job, even if a closure panics.
                let _called = called;
                if let Some(call) = call.upgrade() {
                    call(&event);
                }
            });
        }
        drop(called);
        // Always an error: the jobs drop the sender, and none of them sends.
        let _ended = are_called.await;
    }
}

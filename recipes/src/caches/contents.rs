//! The contents of a cache between its task and its readers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use curator_framework::recipe::{KnownNodes, Resync, catch_panic};
use curator_framework::{Chain, Changes, PathText, Session, Stat, Zxid};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, SetOnce, watch};
use tokio::time::Instant;

use super::engine::{Engine, EngineOptions, Known, Scope, Value, full_path};
use super::error::CacheError;
use super::events::{CacheEvent, EventQueue, Heard, Limits, Notice, Refill, Takes};
use super::model::{CacheState, ChildData, Lookup};
use super::options::{CuratorCacheOptions, FullPathFilter};
use super::request::Request;
use super::snapshot::CacheSnapshot;

/// The contents, the streams and the state of a cache.
pub(super) struct Shared {
    pub(super) root: String,
    limits: Limits,
    contents: Mutex<Contents>,
    pub(super) state: watch::Sender<CacheState>,
    /// The load is complete, and the root does not exist.
    root_is_missing: watch::Sender<bool>,
    /// Wakes the task, which then publishes how fresh the contents are.
    pub(super) wake: Notify,
    known_up_to: Mutex<KnownUpTo>,
    /// The number of the session that the cache follows.
    session: AtomicU64,
    /// The notifications come from watches that are set one by one.
    pub(super) is_one_shot: AtomicBool,
    faults: Arc<Faults>,
}

/// The first panic of a closure.
#[derive(Default)]
struct Faults {
    first: SetOnce<CacheError>,
}

impl Faults {
    /// Calls a closure of the options. After a panic the cache ends with an error, so the answer is of no effect.
    fn call(&self, closure: &'static str, path: &PathText, call: impl FnOnce() -> bool) -> bool {
        catch_panic(closure, call).unwrap_or_else(|panic| {
            // Fails for all but the first panic.
            let _first = self.first.set(CacheError::Panicked { path: path.clone(), panic });
            false
        })
    }
}

struct Contents {
    engine: Engine,
    streams: Vec<Weak<EventQueue>>,
    /// The session started after the contents were last fresh.
    is_new_session: bool,
    is_initialized: bool,
    is_closed: bool,
}

/// The transaction up to which the cache knows all changes of its nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum KnownUpTo {
    /// None: the next session starts with a full read, not with a resync.
    Nothing,
    Transaction(Zxid),
    /// The newest one of the client, in a session.
    Newest,
}

impl From<Option<Zxid>> for KnownUpTo {
    fn from(zxid: Option<Zxid>) -> Self {
        zxid.filter(|zxid| zxid.get() > 0).map_or(Self::Nothing, Self::Transaction)
    }
}

impl Shared {
    pub(super) fn new(shown: PathText, root: String, options: &CuratorCacheOptions) -> Arc<Self> {
        let faults = Arc::new(Faults::default());
        let relative = |closure: &'static str, filter: &FullPathFilter| {
            let (filter, root, shown, faults) = (Arc::clone(filter), root.clone(), shown.clone(), Arc::clone(&faults));
            let calls = move |path: &str| faults.call(closure, &shown, || filter(&full_path(&root, path)));
            Arc::new(calls) as Arc<dyn Fn(&str) -> bool + Send + Sync>
        };
        let scope = Scope {
            max_depth: options.max_depth,
            accepts: options.accepts.as_ref().map(|filter| relative("filter closure", filter)),
            descends: options.descends.as_ref().map(|filter| relative("descend closure", filter)),
        };
        let CuratorCacheOptions { drops_data, merges_replacements, .. } = *options;
        let engine_options =
            EngineOptions { root: root.clone(), scope, drops_data, lists_leaves: false, merges_replacements };
        let mut engine = Engine::new(engine_options);
        let mut known_up_to = KnownUpTo::Nothing;
        if let Some(CacheSnapshot { zxid, nodes, refused, old_stats, .. }) = &options.snapshot {
            known_up_to = Some(*zxid).into();
            let nodes = nodes.iter().filter_map(|node| Some((relative_path(&root, &node.path)?, node)));
            engine.resume(nodes, refused, old_stats);
        }
        let contents =
            Contents { engine, streams: Vec::new(), is_new_session: false, is_initialized: false, is_closed: false };
        Arc::new(Self {
            root,
            limits: Limits { events: options.max_events, bytes: options.max_event_bytes },
            contents: Mutex::new(contents),
            state: watch::Sender::new(CacheState::Latent),
            root_is_missing: watch::Sender::new(false),
            wake: Notify::new(),
            known_up_to: Mutex::new(known_up_to),
            session: AtomicU64::new(0),
            is_one_shot: AtomicBool::new(false),
            faults,
        })
    }

    pub(super) fn full_path(&self, path: &str) -> String {
        full_path(&self.root, path)
    }

    pub(super) fn relative<'a>(&self, path: &'a str) -> Option<&'a str> {
        relative_path(&self.root, path)
    }

    /// Returns `true` if the next session can start with a resync instead of a full read.
    pub(super) fn can_resync(&self) -> bool {
        *self.known_up_to.lock() != KnownUpTo::Nothing
    }

    pub(super) fn set_known_up_to(&self, known: KnownUpTo) {
        *self.known_up_to.lock() = known;
    }

    /// Takes the changes for known up to this transaction at most. `None` if the servers have another history.
    pub(super) fn trust_up_to(&self, zxid: Option<Zxid>) {
        let mut known = self.known_up_to.lock();
        *known = (*known).min(zxid.into());
    }

    /// Returns the cached nodes with their stats.
    pub(super) fn stats(&self) -> Vec<(String, Stat)> {
        let mut stats = Vec::new();
        self.contents.lock().engine.tree().for_each(|path, entry| {
            // A node that could not be read has no stat.
            if entry.stat.czxid != 0 {
                stats.push((self.full_path(path), *entry.stat));
            }
        });
        stats
    }

    /// Calls `handle` with the engine, then appends the engine's changes to the streams, under one lock.
    pub(super) fn update<T>(&self, handle: impl FnOnce(&mut Engine) -> T) -> T {
        let mut contents = self.contents.lock();
        let handled = handle(&mut contents.engine);
        self.publish(&mut contents, []);
        self.look_at_root(&contents);
        handled
    }

    fn look_at_root(&self, contents: &Contents) {
        let is_missing = contents.engine.tree().get("").is_none() && contents.is_missing("");
        self.root_is_missing.send_if_modified(|before| std::mem::replace(before, is_missing) != is_missing);
    }

    /// Resolves when the load is complete, and the root does not exist.
    pub(super) async fn root_is_missing(&self) {
        // Never fails: `self` has the sender.
        drop(self.root_is_missing.subscribe().wait_for(|&is_missing| is_missing).await);
    }

    /// Waits until the contents show all that the replies of a session have shown.
    pub(super) async fn shows_all_of(
        &self,
        session: &Session,
        path: impl Fn() -> PathText,
    ) -> Result<Zxid, CacheError> {
        // The session does not report which notifications precede a reply.
        if self.is_one_shot.load(Ordering::Acquire) {
            self.read_all();
            return self.reaches(session.number(), None, path).await;
        }
        self.reaches(session.number(), session.zxid(), path).await
    }

    /// Waits until the contents show each change up to a transaction of a session. In a session on servers that have lost
    /// their data the numbers of transactions start again.
    pub(super) async fn reaches(
        &self,
        session: u64,
        zxid: Option<Zxid>,
        path: impl Fn() -> PathText,
    ) -> Result<Zxid, CacheError> {
        let is_there = |state: &CacheState| {
            let is_in_session = self.session.load(Ordering::Acquire) >= session;
            state.zxid().filter(|fresh| is_in_session && state.is_fresh() && Some(*fresh) >= zxid)
        };
        self.comes_to(is_there, path).await
    }

    /// Waits until the first load is complete, even while the contents are stale.
    pub(super) async fn is_loaded(&self, path: impl Fn() -> PathText) -> Result<(), CacheError> {
        self.comes_to(CacheState::zxid, path).await.map(|_| ())
    }

    /// Waits for a state of which `look` returns a transaction.
    async fn comes_to(
        &self,
        look: impl Fn(&CacheState) -> Option<Zxid>,
        path: impl Fn() -> PathText,
    ) -> Result<Zxid, CacheError> {
        let mut states = self.state.subscribe();
        loop {
            match &*states.borrow_and_update() {
                CacheState::Latent => return Err(CacheError::NotStarted { path: path() }),
                CacheState::Failed(error) => return Err(error.clone()),
                CacheState::Closed => return Err(CacheError::Closed { path: path() }),
                state => {
                    if let Some(zxid) = look(state) {
                        return Ok(zxid);
                    }
                }
            }
            self.wake.notify_one();
            if states.changed().await.is_err() {
                return Err(CacheError::Closed { path: path() });
            }
        }
    }

    /// Appends the changes of the engine to the streams, then these events.
    fn publish(&self, contents: &mut Contents, last: impl IntoIterator<Item = CacheEvent>) {
        if contents.streams.is_empty() {
            return;
        }
        let changes = contents.engine.take_changes();
        let events: Vec<_> = changes.into_iter().chain(last).collect();
        if !events.is_empty() {
            contents.streams.retain(|stream| {
                let stream = stream.upgrade();
                stream.inspect(|stream| stream.extend(&events, self.limits)).is_some()
            });
            let is_read = !contents.streams.is_empty();
            contents.engine.record_changes(is_read);
        }
    }

    /// Gives a notice to the streams that take them.
    pub(super) fn notice(&self, notice: Notice) {
        self.give_notice(&self.contents.lock(), notice);
    }

    fn give_notice(&self, contents: &Contents, notice: Notice) {
        for stream in contents.streams.iter().filter_map(Weak::upgrade) {
            stream.notice(notice, self.limits);
        }
    }

    /// Records that the cache continues in another session. It is fresh again when it has caught up there.
    pub(super) fn begins_session(&self, session: &Session) {
        let mut contents = self.contents.lock();
        contents.is_new_session = true;
        self.becomes_stale();
        self.session.store(session.number(), Ordering::Release);
    }

    /// Replaces the state `Latent` by `Loading`. The task may have been faster.
    pub(super) fn leave_latent(&self) {
        self.set_state(|state| matches!(state, CacheState::Latent).then_some(CacheState::Loading));
    }

    /// Calls `handle` with the engine, appends the engine's changes to the streams, and publishes how fresh the contents
    /// are, under one lock. `handle` returns the transaction up to which all notifications were handed in, `None` if the
    /// contents are not fresh.
    pub(super) fn step(&self, handle: impl FnOnce(&mut Engine) -> Option<i64>) -> bool {
        let mut contents = self.contents.lock();
        let zxid = handle(&mut contents.engine);
        // A closure that has panicked has left nodes out.
        let zxid = zxid.filter(|_| !self.faults.first.initialized());
        let fresh = zxid.and_then(|zxid| contents.engine.mark(zxid)).map(Zxid::new);
        let is_first = fresh.is_some() && !std::mem::replace(&mut contents.is_initialized, true);
        self.publish(&mut contents, is_first.then_some(CacheEvent::Initialized));
        match fresh {
            Some(zxid) => {
                let is_refreshed = std::mem::take(&mut contents.is_new_session) && !is_first;
                if is_refreshed {
                    self.give_notice(&contents, Notice::Refreshed);
                }
                self.set_state(|state| match state {
                    CacheState::Fresh { zxid: known } if *known == zxid => None,
                    _ => Some(CacheState::Fresh { zxid }),
                });
            }
            None => self.becomes_stale(),
        }
        self.look_at_root(&contents);
        fresh.is_some()
    }

    fn becomes_stale(&self) {
        self.set_state(|state| match (state.zxid(), state) {
            (_, CacheState::Stale { .. } | CacheState::Loading | CacheState::Failed(_)) => None,
            (Some(zxid), _) => Some(CacheState::Stale { since: Instant::now(), zxid }),
            (None, _) => Some(CacheState::Loading),
        });
    }

    fn set_state(&self, next: impl FnOnce(&CacheState) -> Option<CacheState>) {
        self.state.send_if_modified(|state| {
            let next = next(state);
            next.map(|next| *state = next).is_some()
        });
    }

    /// Reads all nodes again.
    pub(super) fn read_all(&self) {
        self.read_again(Engine::read_all);
    }

    /// Lets the engine read nodes again. Nothing is fresh before they are read.
    pub(super) fn read_again(&self, read: impl FnOnce(&mut Engine)) {
        let mut contents = self.contents.lock();
        read(&mut contents.engine);
        if self.state.borrow().is_fresh() {
            self.becomes_stale();
        }
        drop(contents);
        self.wake.notify_one();
    }

    /// Opens a stream that starts with the present contents.
    pub(super) fn open_stream(self: &Arc<Self>, takes: Takes) -> Changes<Heard> {
        let mut contents = self.contents.lock();
        self.publish(&mut contents, []);
        let queue = EventQueue::beginning_with(self.contents_as_events(&contents), takes);
        if contents.is_closed {
            queue.end();
        } else {
            contents.engine.record_changes(true);
            if contents.streams.len() == contents.streams.capacity() {
                // Without a change nothing else takes streams away that were dropped.
                contents.streams.retain(|stream| stream.strong_count() > 0);
            }
            contents.streams.push(Arc::downgrade(&queue));
        }
        let this: Arc<dyn Refill> = Arc::clone(self) as _;
        queue.stream(Arc::downgrade(&this))
    }

    /// Returns the events of a reader that knows nothing. A node that cannot be read is reported with its last value, then
    /// as failed.
    fn contents_as_events(&self, contents: &Contents) -> VecDeque<CacheEvent> {
        let mut events = VecDeque::with_capacity(contents.engine.tree().len());
        contents.engine.tree().for_each(|path, entry| {
            if entry.value != Value::Unknown {
                events.push_back(CacheEvent::Created(entry.to_node(|| self.full_path(path))));
            }
        });
        let mut failed = BTreeMap::new();
        for (request, error) in contents.engine.refused() {
            failed.entry(request.path()).or_insert(error);
        }
        let failed = failed
            .into_iter()
            .map(|(path, error)| CacheEvent::Failed { path: self.full_path(path), error: error.clone().into() });
        events.extend(failed.chain(contents.is_initialized.then_some(CacheEvent::Initialized)));
        events
    }

    fn nodes_of(&self, contents: &Contents) -> Vec<ChildData> {
        let mut nodes = Vec::with_capacity(contents.engine.tree().len());
        contents.engine.tree().for_each(|path, entry| {
            if entry.is_present() {
                nodes.push(ChildData { path: self.full_path(path), stat: *entry.stat, data: entry.data.to_vec() });
            }
        });
        nodes
    }

    pub(super) fn nodes(&self) -> Vec<ChildData> {
        self.nodes_of(&self.contents.lock())
    }

    /// Returns the number of nodes that can be shown.
    pub(super) fn len(&self) -> usize {
        self.contents.lock().engine.present()
    }

    pub(super) fn get(&self, path: &str) -> Lookup {
        let contents = self.contents.lock();
        let Some(relative) = self.relative(path) else { return Lookup::NotLoaded };
        match contents.engine.tree().get(relative) {
            Some(entry) if entry.is_present() => Lookup::Present(entry.to_node(|| path.to_owned())),
            None if contents.is_missing(relative) => Lookup::Missing,
            _ => Lookup::NotLoaded,
        }
    }

    /// Returns why a node cannot be read.
    pub(super) fn refusal(&self, path: &str) -> Option<CacheError> {
        let request = Request::Read(self.relative(path)?.into());
        self.contents.lock().engine.refused().get(&request).map(|error| error.clone().into())
    }

    /// Returns the full paths of the nodes that cannot be read, each with the reason.
    pub(super) fn refusals(&self) -> Vec<(String, CacheError)> {
        let contents = self.contents.lock();
        let refused = contents.engine.refused().iter().filter_map(|(request, error)| match request {
            Request::Read(path) => Some((self.full_path(path), error.clone().into())),
            Request::List(_) => None,
        });
        refused.collect()
    }

    pub(super) fn children(&self, path: &str) -> Option<BTreeMap<String, Arc<ChildData>>> {
        let contents = self.contents.lock();
        let relative = self.relative(path)?;
        let tree = contents.engine.tree();
        let child = |name: String| {
            let path = format!("{relative}/{name}");
            let entry = tree.get(&path).filter(|entry| entry.is_present())?;
            Some((name, entry.to_node(|| self.full_path(&path))))
        };
        Some(tree.children(relative)?.into_iter().filter_map(child).collect())
    }

    pub(super) fn snapshot(&self, options: &CuratorCacheOptions, is_compressed: bool) -> Option<CacheSnapshot> {
        let contents = self.contents.lock();
        let zxid = Zxid::new(contents.engine.fresh()?);
        let CuratorCacheOptions { max_depth, drops_data, .. } = *options;
        let (root, has_data, nodes) = (self.root.clone(), !drops_data, self.nodes_of(&contents));
        let (refused, old_stats) = (contents.engine.refused().clone(), contents.engine.tree().old_stats());
        Some(CacheSnapshot { root, max_depth, has_data, is_compressed, zxid, nodes, refused, old_stats })
    }

    /// Resolves when a closure has panicked: the contents may lack nodes.
    pub(super) async fn has_failed(&self) {
        self.faults.first.wait().await;
    }

    /// Publishes the last state, `Failed` after the panic of a closure, and ends the streams.
    pub(super) fn close(&self, keeps_contents: bool) {
        let mut contents = self.contents.lock();
        contents.is_closed = true;
        let failed = self.faults.first.get();
        let last = failed.map(|error| CacheEvent::Failed { path: self.root.clone(), error: error.clone() });
        self.publish(&mut contents, last);
        // The end of a stream shows that the cache has ended.
        self.state.send_replace(failed.cloned().map_or(CacheState::Closed, CacheState::Failed));
        contents.end_streams();
        if !keeps_contents {
            contents.engine.clear();
            contents.is_initialized = false;
        }
        drop::<MutexGuard<'_, _>>(contents);
        if let Some(error) = failed {
            tracing::error!(error = %Chain(&error), path = self.root, "a cache has ended");
        }
    }
}

/// Ends the streams even if the cache was never started.
impl Drop for Contents {
    fn drop(&mut self) {
        self.end_streams();
    }
}

impl Contents {
    fn end_streams(&mut self) {
        for stream in self.streams.drain(..).filter_map(|stream| stream.upgrade()) {
            stream.end();
        }
    }

    /// Returns `true` if a path that is not in the tree does not exist.
    fn is_missing(&self, path: &str) -> bool {
        self.is_initialized && self.engine.scope().has(path) && !self.engine.is_hidden(path)
    }
}

impl Resync for Shared {
    fn known(&self) -> KnownNodes {
        let zxid = match *self.known_up_to.lock() {
            KnownUpTo::Nothing => return KnownNodes::default(),
            KnownUpTo::Transaction(zxid) => zxid,
            // The client puts its own transaction in place of it.
            KnownUpTo::Newest => Zxid::new(i64::MAX),
        };
        let Known { data, missing, children } = self.contents.lock().engine.known();
        let [data, missing, children] =
            [data, missing, children].map(|paths| paths.into_iter().map(|path| self.full_path(&path)).collect());
        KnownNodes { zxid: Some(zxid), data, missing, children }
    }
}

fn relative_path<'a>(root: &str, path: &'a str) -> Option<&'a str> {
    match root {
        "/" if path == "/" => Some(""),
        "/" => path.starts_with('/').then_some(path),
        root => path.strip_prefix(root).filter(|rest| rest.is_empty() || rest.starts_with('/')),
    }
}

impl Refill for Shared {
    fn refill(&self, queue: &EventQueue) {
        let contents = self.contents.lock();
        queue.refill(|| self.contents_as_events(&contents));
    }
}

//! Clients with caches.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use curator_checkers::caches::{Cache, Node, Nodes, Reported, Scope, State, Stream};
use curator_framework::{CuratorFramework, Zxid};
use curator_recipes::{
    CacheError, CacheEvent, CacheSnapshot, CacheState, Changes, ChildData, CuratorCache, CuratorCacheOptions, Lookup,
};
use curator_test::SimulatedEnsemble;
use futures_util::FutureExt as _;
use rand::Rng;
use rand::rngs::StdRng;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::{LEVELS, NAMES, Place, Scribe};
use crate::storm::long_children;

/// The limit of the time that a reader waits for its cache.
const BUDGET: Duration = Duration::from_secs(8);

/// A worker that starts and closes caches, one after the other.
#[derive(Debug)]
pub struct Reader {
    pub scribe: Scribe,
    pub ensemble: SimulatedEnsemble,
    pub client: CuratorFramework,
    pub place: Place,
    pub random: StdRng,
    pub rounds: u32,
    /// `true` once all faults are over.
    pub calm: watch::Receiver<bool>,
    /// The time that the last cache is open after that.
    pub stays: Duration,
    /// The servers refuse to answer reads of some nodes.
    pub hides: bool,
}

/// A cache that a reader watches.
struct Watched {
    id: Cache,
    scope: Scope,
    keeps_data: bool,
    cache: CuratorCache,
    streams: Vec<Followed>,
}

/// A stream of a cache.
struct Followed {
    stream: Stream,
    events: Changes<CacheEvent>,
    /// Its reader is slow.
    is_slow: bool,
}

/// The contents of an earlier cache.
struct Kept {
    scope: Scope,
    keeps_data: bool,
    snapshot: CacheSnapshot,
}

impl Reader {
    /// Runs some caches. The last one is open until all faults are over.
    pub async fn read(mut self) {
        let mut kept = None;
        for round in 1..=self.rounds {
            self.pause(0..3000).await;
            let mut watched = self.start(kept.take());
            for _ in 0..self.random.random_range(3..30) {
                self.step(&mut watched, &mut kept).await;
            }
            if round == self.rounds {
                self.stay(&mut watched).await;
            }
            self.close(watched).await;
        }
    }

    fn one_of(&mut self, cases: u32) -> u32 {
        self.random.random_range(0..cases)
    }

    fn time(&mut self, milliseconds: Range<u64>) -> Duration {
        Duration::from_millis(self.random.random_range(milliseconds))
    }

    async fn pause(&mut self, milliseconds: Range<u64>) {
        sleep(self.time(milliseconds)).await;
    }

    /// Starts a cache with other options.
    fn start(&mut self, kept: Option<Kept>) -> Watched {
        let root = match self.one_of(6) {
            0 => format!("{}/{}", self.place.root, NAMES[0]),
            _ => self.place.root.to_owned(),
        };
        let mut options = CuratorCacheOptions::new();
        let mut scope = Scope::new(&root);
        match self.one_of(8) {
            0 => (options, scope) = (options.single_node(), scope.depth(0)),
            1 | 2 => {
                let depth = self.random.random_range(1..LEVELS);
                (options, scope) = (options.max_depth(depth), scope.depth(depth));
            }
            _ => {}
        }
        if self.one_of(4) == 0 {
            let refused = NAMES[1];
            let root = self.place.at_the_client(&root).to_owned();
            let below = move |path: &str| path.strip_prefix(&*root).unwrap_or_default().to_owned();
            options = options.filter(move |path| below(path).split('/').all(|name| name != refused));
            scope = scope.refuse(refused);
        }
        if self.one_of(6) == 0 {
            let leaf = NAMES[2];
            options = options.descend(move |path| !path.ends_with(leaf));
            scope = scope.stop_at(leaf);
        }
        let keeps_data = self.one_of(5) > 0;
        if !keeps_data {
            (options, scope) = (options.without_data(), scope.without_data());
        }
        if self.one_of(3) == 0 {
            options = options.max_events(self.random.random_range(1..20));
        }
        // The snapshot of a narrower cache lacks nodes.
        let has_all =
            |kept: &Kept| (kept.scope == scope || kept.scope == Scope::new(&root)) && (kept.keeps_data || !keeps_data);
        if let Some(kept) = kept.filter(has_all) {
            self.scribe.note("the next cache resumes");
            options = options.resume(kept.snapshot);
        }
        let path = self.place.at_the_client(&root);
        let cache = CuratorCache::with_options(self.client.clone(), path, options).expect("a valid path");
        let id = self.scribe.starts(scope.clone());
        let mut watched = Watched { id, scope, keeps_data, cache, streams: Vec::new() };
        self.open(&mut watched, false);
        if self.one_of(2) == 0 {
            self.open(&mut watched, true);
        }
        self.may_fail(watched.cache.start());
        watched
    }

    fn open(&self, watched: &mut Watched, is_slow: bool) {
        let stream = self.scribe.opens(watched.id);
        watched.streams.push(Followed { stream, events: watched.cache.changes(), is_slow });
    }

    fn may_fail<T>(&self, outcome: Result<T, CacheError>) -> Option<T> {
        outcome.map_err(|error| self.scribe.error(&error)).ok()
    }

    async fn step(&mut self, watched: &mut Watched, kept: &mut Option<Kept>) {
        match self.one_of(24) {
            0 => {
                let from = self.ensemble.zxid();
                let soon = if self.one_of(2) == 0 { self.time(0..300) } else { BUDGET };
                if let Ok(synced) = timeout(soon, watched.cache.synced()).await {
                    let zxid = self.may_fail(synced);
                    self.caught_up(watched, from, zxid);
                }
            }
            1 | 2 => self.write_and_read(watched).await,
            3 if self.one_of(3) == 0 => {
                self.scribe.note(format_args!("{:?} reads everything again", watched.id));
                // The cache still reads.
                let _begun = watched.cache.rebuild().now_or_never();
            }
            3 | 4 if watched.streams.len() < 4 => {
                let is_slow = self.random.random();
                self.open(watched, is_slow);
            }
            5 if watched.streams.len() > 1 => drop(watched.streams.pop()),
            6 => {
                *kept = watched.cache.snapshot().map(|snapshot| Kept {
                    scope: watched.scope.clone(),
                    keeps_data: watched.keeps_data,
                    snapshot,
                });
            }
            7 => {
                if let Ok(initialized) = timeout(BUDGET, watched.cache.initialized()).await {
                    if self.may_fail(initialized).is_some() {
                        self.look(watched);
                    }
                }
            }
            _ => {
                self.pause(0..1200).await;
                self.look(watched);
            }
        }
        self.read_slowly(watched);
    }

    /// Writes, and waits until the cache shows the write.
    async fn write_and_read(&mut self, watched: &mut Watched) {
        let name = NAMES[self.random.random_range(0..NAMES.len())];
        let path = format!("{}/{name}", self.place.root);
        let path = self.place.at_the_client(&path);
        let data = self.scribe.data();
        let create = self.client.create().or_set_data().with_data(data);
        let Ok(Ok((_, stat))) = timeout(BUDGET, create.for_path_with_stat(path)).await else { return };
        if let Ok(caught_up) = timeout(BUDGET, watched.cache.caught_up()).await {
            let zxid = self.may_fail(caught_up);
            self.caught_up(watched, stat.mzxid, zxid);
        }
    }

    fn caught_up(&mut self, watched: &mut Watched, from: i64, zxid: Option<Zxid>) {
        self.look(watched);
        if let Some(zxid) = zxid {
            self.scribe.caught_up(watched.id, from, zxid.get());
        }
    }

    /// Takes some events from slow streams.
    fn read_slowly(&mut self, watched: &mut Watched) {
        for index in 0..watched.streams.len() {
            if watched.streams[index].is_slow {
                for _ in 0..self.one_of(4) {
                    if let Ok(event) = watched.streams[index].events.try_recv() {
                        self.tell(watched, index, event);
                    }
                }
            }
        }
    }

    fn tell(&self, watched: &Watched, index: usize, event: CacheEvent) {
        let known = |node: &ChildData| (self.place.at_the_server(&node.path), self.node(watched, node));
        let reported = match event {
            CacheEvent::Created(node) => {
                let (path, node) = known(&node);
                Reported::Created(path, node)
            }
            CacheEvent::Changed { old, new } => {
                let ((path, old), (_, new)) = (known(&old), known(&new));
                Reported::Changed { path, old, new }
            }
            CacheEvent::Deleted(node) => {
                let (path, node) = known(&node);
                Reported::Deleted(path, node)
            }
            CacheEvent::Initialized => Reported::Initialized,
            CacheEvent::Reset => Reported::Reset,
            CacheEvent::Failed { path, .. } => Reported::Failed(self.place.at_the_server(&path)),
            other => return self.scribe.wrong(format!("{:?} reports {other:?}", watched.id)),
        };
        self.scribe.reports(watched.streams[index].stream, reported);
    }

    fn node(&self, watched: &Watched, node: &ChildData) -> Node {
        let ChildData { stat, data, .. } = node;
        // The events of a cache without data have the data of the new state.
        let data = (watched.keeps_data || !data.is_empty()).then(|| data.clone());
        Node { czxid: stat.czxid, mzxid: stat.mzxid, version: stat.version, data }
    }

    /// Records the events and the contents of a cache in one moment.
    fn look(&mut self, watched: &mut Watched) {
        for index in 0..watched.streams.len() {
            if !watched.streams[index].is_slow || self.one_of(8) == 0 {
                self.drain(watched, index);
            }
        }
        let state = match watched.cache.state() {
            CacheState::Latent | CacheState::Loading => State::Loading,
            CacheState::Fresh { zxid } => State::Fresh(zxid.get()),
            CacheState::Stale { zxid, .. } => State::Stale(zxid.get()),
            CacheState::Failed(error) => {
                self.scribe.note(format_args!("{:?} has failed: {error}", watched.id));
                State::Failed
            }
            CacheState::Closed => State::Closed,
            other => return self.scribe.wrong(format!("{:?} is {other:?}", watched.id)),
        };
        let shown = watched.cache.nodes();
        let known = |node: &ChildData| (self.place.at_the_server(&node.path), self.node(watched, node));
        let nodes: Nodes = shown.iter().map(known).collect();
        if !shown.is_sorted_by_key(|node| node.path.split('/').collect::<Vec<_>>())
            || shown.len() != watched.cache.len()
        {
            self.scribe.wrong(format!("{:?} shows {shown:?}, {} nodes", watched.id, watched.cache.len()));
        }
        let hidden = if self.hides { self.hidden(watched) } else { BTreeSet::new() };
        self.look_up(watched, state, &nodes, &hidden);
        self.scribe.hides(watched.id, hidden);
        self.scribe.shows(watched.id, state, nodes);
    }

    /// Returns the paths in its scope that a cache can neither show nor call missing.
    fn hidden(&self, watched: &Watched) -> BTreeSet<String> {
        let mut all = vec![self.place.root.to_owned()];
        for level in 0..LEVELS {
            let parents: Vec<_> = all.iter().filter(|path| path.matches('/').count() == level + 2).cloned().collect();
            all.extend(parents.iter().flat_map(|parent| NAMES.map(|name| format!("{parent}/{name}"))));
        }
        let long: Vec<_> = all.iter().flat_map(|path| long_children(path)).collect();
        let is_hidden = |path: &String| {
            watched.scope.contains(path)
                && matches!(watched.cache.get(self.place.at_the_client(path)), Lookup::NotLoaded)
        };
        all.into_iter().chain(long).filter(is_hidden).collect()
    }

    fn drain(&self, watched: &mut Watched, index: usize) {
        while let Ok(event) = watched.streams[index].events.try_recv() {
            self.tell(watched, index, event);
        }
        self.scribe.drained(watched.streams[index].stream);
    }

    /// Compares the look-up of a random path, and of its children, with the contents.
    fn look_up(&mut self, watched: &Watched, state: State, nodes: &Nodes, hidden: &BTreeSet<String>) {
        let mut path = self.place.root.to_owned();
        for _ in 0..self.random.random_range(0..=LEVELS) {
            path = format!("{path}/{}", NAMES[self.random.random_range(0..NAMES.len())]);
        }
        let local = self.place.at_the_client(&path);
        let has_loaded = matches!(state, State::Fresh(_) | State::Stale(_));
        let is_right = match (watched.cache.get(local), nodes.get(&path)) {
            (Lookup::Present(found), Some(node)) => self.node(watched, &found) == *node && found.path == local,
            (Lookup::Missing, None) => watched.scope.contains(&path),
            (Lookup::NotLoaded, None) => !watched.scope.contains(&path) || !has_loaded || hidden.contains(&path),
            _ => false,
        };
        let children = watched.cache.children(local);
        let below = format!("{path}/");
        let is_child = |other: &&String| other.strip_prefix(&below).is_some_and(|name| !name.contains('/'));
        let expected = nodes.contains_key(&path).then(|| nodes.keys().filter(is_child).count());
        let has_expected = hidden.contains(&path) || children.as_ref().map(|children| children.len()) == expected;
        if !is_right || !has_expected {
            let found = watched.cache.get(local);
            self.scribe.wrong(format!("{:?} in {state:?} finds {path} as {found:?} above {children:?}", watched.id));
        }
    }

    /// Records the cache until all faults are over, and for some time after that.
    async fn stay(&mut self, watched: &mut Watched) {
        while !*self.calm.borrow() {
            self.pause(0..1500).await;
            self.look(watched);
            self.read_slowly(watched);
        }
        let end = Instant::now() + self.stays;
        while Instant::now() < end {
            self.pause(500..1500).await;
            self.look(watched);
        }
        watched.streams.iter_mut().for_each(|followed| followed.is_slow = false);
        self.look(watched);
    }

    async fn close(&mut self, mut watched: Watched) {
        match self.one_of(4) {
            0 => {
                let Watched { id, cache, streams, .. } = watched;
                self.scribe.note(format_args!("{id:?} is dropped"));
                drop(cache);
                return self.end(id, streams).await;
            }
            1 => {
                // The close continues when its future is dropped.
                let soon = self.time(0..200);
                let _closed = timeout(soon, watched.cache.close()).await;
                sleep(BUDGET).await;
            }
            _ => watched.cache.close().await,
        }
        self.scribe.note(format_args!("{:?} is closed", watched.id));
        watched.streams.iter_mut().for_each(|followed| followed.is_slow = false);
        self.look(&mut watched);
        if !matches!(watched.cache.state(), CacheState::Closed) {
            self.scribe.wrong(format!("{:?} is {:?} behind its close", watched.id, watched.cache.state()));
        }
        self.pause(0..1000).await;
        self.look(&mut watched);
        self.end(watched.id, watched.streams).await;
    }

    /// Waits for the ends of streams.
    async fn end(&self, id: Cache, streams: Vec<Followed>) {
        for Followed { stream, mut events, .. } in streams {
            let ends = async { while events.recv().await.is_some() {} };
            if timeout(BUDGET, ends).await.is_err() {
                self.scribe.wrong(format!("{stream:?} of {id:?} does not end"));
            }
        }
    }
}

//! The check of caches.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use curator_test::versions;

use super::access::{Read, Refusals};
use super::past::{Known, Past, Position};
use super::{Cache, Caches, Event, Node, Nodes, Reported, Rules, Scope, State, Stream};
use crate::timeline::{self, Spans};
use crate::violation::Found;

const UNKNOWN_NODE: &str = "an unknown node";
const NOT_REFUSED: &str = "a node that is not refused";
const EARLY_END: &str = "an early end of the load";

/// The newest report of a cache.
#[derive(Debug)]
struct Shown<'a> {
    scope: &'a Scope,
    state: State,
    /// The transaction of the newest state.
    named: Option<Position>,
    nodes: Option<&'a Nodes>,
    /// The paths that the cache can neither show nor call missing.
    hidden: BTreeSet<&'a str>,
    started: Duration,
    /// The time of the newest report of a fresh cache, or of the start.
    fresh_at: Duration,
    has_loaded: bool,
    newest: Newest,
    /// The number of losses of all data that the cache has not noticed.
    may_go_back: usize,
}

/// The newest state of each path that was shown or reported.
type Newest = BTreeMap<String, Position>;

/// A stream and the sum of its events.
#[derive(Debug)]
struct Sum {
    cache: Cache,
    nodes: Nodes,
    newest: Newest,
    /// The paths with a failed read, which were not reported otherwise since.
    failed: BTreeSet<String>,
    is_initialized: bool,
    /// The time at which it had no further event.
    drained: Option<Duration>,
    is_over: bool,
}

pub(super) struct Checker<'a> {
    rules: &'a Rules,
    faults: &'a Spans,
    past: Past,
    refusals: Refusals,
    caches: BTreeMap<Cache, Shown<'a>>,
    streams: BTreeMap<Stream, Sum>,
    /// The violations that last, by cache, kind and path: each is reported once.
    lasting: BTreeSet<(Cache, &'static str, String)>,
    found: Found,
}

impl<'a> Checker<'a> {
    pub(super) fn new(rules: &'a Rules, history: &'a Caches) -> Self {
        Self {
            rules,
            faults: &history.faults,
            past: Past::new(),
            refusals: Refusals::default(),
            caches: BTreeMap::new(),
            streams: BTreeMap::new(),
            lasting: BTreeSet::new(),
            found: Found::default(),
        }
    }
}

impl<'a> timeline::Checker<'a, Event> for Checker<'a> {
    fn apply(&mut self, at: Duration, event: &'a Event) -> bool {
        match event {
            Event::Server(versions::Event::Changed(change)) => {
                if !self.refusals.is_denied(&change.path) {
                    self.refusals.notified(at, &change.path);
                }
                self.past.apply(at, change, |path| self.refusals.is_denied(path))
            }
            Event::Server(versions::Event::Access(path, access)) => {
                self.refusals.set(at, path, *access);
                true
            }
            Event::Server(versions::Event::Emptied(zxid)) => {
                self.past.empty(at, *zxid, |path| self.refusals.is_denied(path));
                self.refusals.all_notified(at);
                self.caches.values_mut().for_each(|shown| shown.may_go_back += 1);
                true
            }
            Event::Started(cache, scope) => {
                let shown = Shown {
                    scope,
                    state: State::Loading,
                    named: None,
                    nodes: None,
                    hidden: BTreeSet::new(),
                    started: at,
                    fresh_at: at,
                    has_loaded: false,
                    newest: Newest::new(),
                    may_go_back: 0,
                };
                self.caches.insert(*cache, shown).is_none()
            }
            Event::Opened(stream, cache) => {
                let sum = Sum {
                    cache: *cache,
                    nodes: Nodes::new(),
                    newest: Newest::new(),
                    failed: BTreeSet::new(),
                    is_initialized: false,
                    drained: None,
                    is_over: false,
                };
                self.caches.contains_key(cache) && self.streams.insert(*stream, sum).is_none()
            }
            Event::Reports(stream, reported) => self.reports(at, *stream, reported),
            Event::Drained(stream) => {
                let sum = self.streams.get_mut(stream);
                sum.map(|sum| sum.drained = Some(at)).is_some()
            }
            Event::Hides(cache, paths) => {
                let shown = self.caches.get_mut(cache);
                shown.map(|shown| shown.hidden = paths.iter().map(String::as_str).collect()).is_some()
            }
            Event::Shows(cache, state, nodes) => self.shows(at, *cache, *state, nodes),
            Event::CaughtUp { cache, from, zxid } => {
                // Without a common start the two cannot be compared.
                if zxid < from && self.past.eras() == 1 {
                    let what = format!("{cache:?} has caught up with {zxid}, before {from}");
                    self.found.broken("a wait that ended early", at, what);
                }
                let contents = self.caches.get(cache).map(|shown| (shown.nodes, shown.state));
                if let Some((Some(nodes), _)) = contents.filter(|(_, state)| !state.is_over()) {
                    self.look_for_older_nodes(at, *cache, self.past.position(*zxid), nodes);
                }
                self.caches.contains_key(cache)
            }
        }
    }

    fn found(&mut self) -> &mut Found {
        &mut self.found
    }
}

/// The events of streams.
impl<'a> Checker<'a> {
    fn reports(&mut self, at: Duration, stream: Stream, reported: &Reported) -> bool {
        let Some(mut sum) = self.streams.remove(&stream) else { return false };
        sum.drained = None;
        if sum.is_over {
            self.found.broken("an event after the close", at, format!("{stream:?} reports {reported:?}"));
        }
        match reported {
            Reported::Created(path, node) => {
                self.look_at_node(at, sum.cache, path, node, &mut sum.newest);
                let parent = self.caches.get(&sum.cache).and_then(|shown| shown.scope.parent(path));
                // A parent that cannot be read has children anyway.
                let is_known = |parent| sum.nodes.contains_key(parent) || self.refusals.was_refused(parent, Read::Data);
                let has_parent = parent.is_none_or(is_known);
                let applies = has_parent && !sum.nodes.contains_key(path);
                self.replay(at, stream, reported, path, applies, &sum);
                sum.nodes.insert(path.clone(), self.kept(sum.cache, node));
                sum.failed.remove(path);
            }
            Reported::Changed { path, old, new } => {
                self.look_at_node(at, sum.cache, path, new, &mut sum.newest);
                if old.czxid != new.czxid {
                    self.found.broken("a new node told as changed", at, format!("{stream:?} has {path}"));
                }
                let old = self.kept(sum.cache, old);
                // The state of a node that could not be read may be the earlier one.
                let is_news = old.mzxid != new.mzxid || sum.failed.contains(path);
                let applies = is_news && sum.nodes.get(path) == Some(&old);
                self.replay(at, stream, reported, path, applies, &sum);
                sum.nodes.insert(path.clone(), self.kept(sum.cache, new));
                sum.failed.remove(path);
            }
            Reported::Deleted(path, node) => {
                let below = format!("{}/", path.trim_end_matches('/'));
                // The children of a node that cannot be read are the children of the next node at its path.
                let has_children = !self.refusals.was_refused(path, Read::Data)
                    && sum.nodes.keys().any(|other| other.starts_with(&below) && other != path);
                let applies = sum.nodes.get(path) == Some(&self.kept(sum.cache, node)) && !has_children;
                self.replay(at, stream, reported, path, applies, &sum);
                sum.nodes.remove(path);
                sum.failed.remove(path);
            }
            Reported::Initialized => {
                if std::mem::replace(&mut sum.is_initialized, true) {
                    self.found.broken(EARLY_END, at, format!("{stream:?}"));
                }
            }
            Reported::Failed(path) => {
                if ![Read::Data, Read::Children].iter().any(|read| self.refusals.was_refused(path, *read)) {
                    self.found.broken(NOT_REFUSED, at, format!("{:?} cannot show {path}", sum.cache));
                }
                sum.failed.insert(path.clone());
            }
            Reported::Reset => {
                sum.nodes.clear();
                sum.newest.clear();
                sum.failed.clear();
                sum.is_initialized = false;
            }
        }
        self.streams.insert(stream, sum);
        true
    }

    fn replay(&mut self, at: Duration, stream: Stream, reported: &Reported, path: &str, applies: bool, sum: &Sum) {
        if !applies {
            let what = format!("{stream:?} reports {reported:?} behind {:?}", sum.nodes.get(path));
            self.found.broken("an event that does not apply", at, what);
        }
    }

    fn is_in_scope(&self, cache: Cache, path: &str) -> bool {
        self.caches.get(&cache).is_some_and(|shown| shown.scope.contains(path))
    }

    /// Returns the part of a node that a cache keeps.
    fn kept(&self, cache: Cache, node: &Node) -> Node {
        let keeps_data = self.caches.get(&cache).is_none_or(|shown| shown.scope.keeps_data);
        Node { data: node.data.clone().filter(|_| keeps_data), ..node.clone() }
    }

    /// Finds a node that a cache cannot have.
    fn look_at_node(&mut self, at: Duration, cache: Cache, path: &str, node: &Node, newest: &mut Newest) {
        let Some(scope) = self.caches.get(&cache).map(|shown| shown.scope) else { return };
        if !scope.contains(path) {
            self.found.broken("a node out of scope", at, format!("{cache:?} has {path}"));
        }
        let before = newest.get(path).copied();
        let known = self.past.next_state(path, node, before);
        let known = known.filter(|_| node.data.is_some() || !scope.keeps_data);
        let Some(known) = known else {
            self.found.broken(UNKNOWN_NODE, at, format!("{cache:?} has {path} as {node:?}"));
            return;
        };
        newest.insert(path.to_owned(), known.since);
        if let Some(before) = before.filter(|before| *before > known.since) {
            let (from, to) = (before.zxid(), known.since.zxid());
            self.found.broken("a node that went back", at, format!("{cache:?} has {path} of {to} after {from}"));
        }
    }
}

/// The contents of caches.
impl<'a> Checker<'a> {
    fn shows(&mut self, at: Duration, cache: Cache, state: State, nodes: &'a Nodes) -> bool {
        let Some(shown) = self.caches.get_mut(&cache) else { return false };
        let before = std::mem::replace(&mut shown.state, state);
        let earlier = shown.nodes.replace(nodes);
        let mut newest = std::mem::take(&mut shown.newest);
        for (path, node) in nodes {
            if earlier.and_then(|earlier| earlier.get(path)) != Some(node) {
                self.look_at_node(at, cache, path, node, &mut newest);
                if self.kept(cache, node) != *node {
                    self.found.broken(UNKNOWN_NODE, at, format!("{cache:?} has {path} as {node:?}"));
                }
            }
        }
        if let Some(shown) = self.caches.get_mut(&cache) {
            shown.newest = newest;
        }
        self.compare_with_streams(at, cache, state, nodes);
        if state.is_over() {
            return true;
        }
        self.look_at_hidden(at, cache);
        if let Some(zxid) = state.zxid() {
            let position = self.named(cache, zxid);
            self.look_for_older_nodes(at, cache, position, nodes);
        }
        self.look_at_the_state(at, cache, before, state);
        self.look_at_the_time(at, cache, nodes);
        true
    }

    fn compare_with_streams(&mut self, at: Duration, cache: Cache, state: State, nodes: &Nodes) {
        let Some(has_loaded) = self.caches.get(&cache).map(|shown| shown.has_loaded) else { return };
        let loads = state == State::Loading && !has_loaded;
        for (&stream, sum) in self.streams.iter_mut().filter(|(_, sum)| sum.cache == cache) {
            // Later contents may have further events.
            if sum.drained.take() != Some(at) {
                continue;
            }
            let paths: BTreeSet<_> = nodes.keys().chain(sum.nodes.keys()).collect();
            let hidden = self.caches.get(&cache).map(|shown| &shown.hidden);
            let is_hidden = |path: &str| hidden.is_some_and(|hidden| hidden.contains(path));
            // The events of a node that cannot be read end with the last known state.
            let differs = |path: &&String| {
                let shown = nodes.get(*path);
                shown != sum.nodes.get(*path) && !(shown.is_none() && sum.failed.contains(*path) && is_hidden(path))
            };
            let paths: Vec<_> = paths.into_iter().filter(differs).cloned().collect();
            // A cache that was closed may have dropped its contents.
            if !paths.is_empty() && !state.is_over() {
                self.found.broken("contents that are not the events", at, format!("{stream:?}: {paths:?}"));
            }
            if sum.is_initialized && loads && self.lasting.insert((cache, "early", format!("{stream:?}"))) {
                self.found.broken(EARLY_END, at, format!("{stream:?}"));
            }
            let is_late = !sum.is_initialized && matches!(state, State::Fresh(_));
            if is_late && self.lasting.insert((cache, "never", format!("{stream:?}"))) {
                self.found.broken("no end of the load", at, format!("{stream:?}"));
            }
            sum.is_over |= state.is_over();
        }
    }

    /// Returns the time of the state that a cache shows; `None` if the server never had it.
    fn known(&self, path: &str, nodes: &Nodes) -> Option<Known> {
        match nodes.get(path) {
            Some(node) => self.past.state(path, node),
            None => Some(self.past.absence(path)),
        }
    }

    /// Returns `true` if the servers refuse a read, or have refused it so recently that the cache may not have repeated it.
    fn is_refused(&self, at: Duration, path: &str, read: Read) -> bool {
        let limit = self.rules.patience + self.rules.pause;
        self.refusals.excuse(path, read, |end| self.faults.calm(end, at) <= limit)
    }

    /// Returns `true` if the servers refuse a read without which nothing below the root can be followed.
    fn is_root_refused(&self, at: Duration, root: &str) -> bool {
        self.is_refused(at, root, Read::Data) || self.is_refused(at, root, Read::Children)
    }

    /// Finds hidden paths of a loaded cache, although the servers answer.
    fn look_at_hidden(&mut self, at: Duration, cache: Cache) {
        let Some(shown) = self.caches.get(&cache).filter(|shown| shown.has_loaded) else { return };
        let above = |path: &str| {
            let parents = path.match_indices('/').map(|(end, _)| &path[..end]);
            parents
                .filter(|parent| shown.scope.contains(parent))
                .any(|parent| self.is_refused(at, parent, Read::Children))
        };
        let is_wrong = |path: &&str| !self.is_refused(at, path, Read::Data) && !above(path);
        let wrong: Vec<_> = shown.hidden.iter().copied().filter(is_wrong).map(str::to_owned).collect();
        for path in wrong {
            if self.lasting.insert((cache, "hidden", path.clone())) {
                self.found.broken(NOT_REFUSED, at, format!("{cache:?} cannot show {path}"));
            }
        }
    }

    /// Returns the paths in a cache's scope that ever had a node, each with the time of the state that the cache shows.
    fn all_known(&self, cache: Cache, nodes: &Nodes) -> Vec<(String, Known)> {
        let hidden = self.caches.get(&cache).map(|shown| &shown.hidden);
        let is_told = |path: &String| hidden.is_none_or(|hidden| !hidden.contains(&**path));
        let in_scope = self.past.paths().filter(|path| self.is_in_scope(cache, path) && is_told(path));
        in_scope.filter_map(|path| Some((path.clone(), self.known(path, nodes)?))).collect()
    }

    /// Returns the position of the transaction that a cache names. A cache that names it again means the same one, although
    /// the servers may have lost their data since.
    fn named(&mut self, cache: Cache, zxid: i64) -> Position {
        let position = self.past.position(zxid);
        let Some(shown) = self.caches.get_mut(&cache) else { return position };
        if shown.named.is_none_or(|named| named.zxid() != zxid) {
            shown.named = Some(position);
        }
        shown.named.unwrap_or(position)
    }

    /// Finds the nodes that the cache shows in a state that ended before a transaction.
    fn look_for_older_nodes(&mut self, at: Duration, cache: Cache, position: Position, nodes: &Nodes) {
        for (path, known) in self.all_known(cache, nodes) {
            let lasting = (cache, "old", path.clone());
            if known.lasts_to(position) {
                self.lasting.remove(&lasting);
            } else if self.lasting.insert(lasting) {
                let (zxid, shown) = (position.zxid(), nodes.get(&path));
                let what = format!("{cache:?} names {zxid} and shows {path} as {shown:?}");
                self.found.broken("contents older than their state", at, what);
            }
        }
    }

    fn look_at_the_state(&mut self, at: Duration, cache: Cache, before: State, state: State) {
        let Some(scope) = self.caches.get(&cache).map(|shown| shown.scope) else { return };
        let is_excused = self.is_root_refused(at, &scope.root) || self.faults.has(at);
        let Some(shown) = self.caches.get_mut(&cache) else { return };
        if state == State::Failed {
            if is_excused {
                shown.fresh_at = at;
            } else if self.lasting.insert((cache, "failed", scope.root.clone())) {
                self.found.broken("a failure without a refusal", at, format!("{cache:?}"));
            }
            if !shown.has_loaded {
                shown.started = at;
            }
        }
        if let (Some(from), Some(to)) = (before.zxid(), state.zxid()) {
            match shown.may_go_back.checked_sub(1) {
                _ if to >= from => {}
                Some(left) => shown.may_go_back = left,
                None => {
                    self.found.broken("a state that went back", at, format!("{cache:?} names {to} after {from}"));
                }
            }
        }
        if matches!((before.zxid(), state.zxid()), (Some(from), Some(to)) if to > from) {
            // It was fresh in between.
            shown.fresh_at = at;
        }
        if matches!(state, State::Fresh(_)) {
            (shown.fresh_at, shown.has_loaded) = (at, true);
        } else if self.faults.calm(shown.fresh_at, at) > self.rules.patience {
            let from = std::mem::replace(&mut shown.fresh_at, at);
            self.found.broken_from("not fresh in time", from, at, format!("{cache:?} is {state:?}"));
        }
    }

    /// Finds the nodes that differ from the server for too long.
    fn look_at_the_time(&mut self, at: Duration, cache: Cache, nodes: &Nodes) {
        let Some(started) = self.caches.get(&cache).map(|shown| shown.started) else { return };
        for (path, known) in self.all_known(cache, nodes) {
            let late = |from: &Duration| self.faults.calm(*from, at) > self.rules.patience;
            let lasting = (cache, "late", path.clone());
            match known.until.map(|until| until.at.max(started)).filter(late) {
                None => drop(self.lasting.remove(&lasting)),
                Some(from) if self.lasting.insert(lasting) => {
                    let what = format!("{cache:?} shows {path} as {:?}", nodes.get(&path));
                    self.found.broken_from("a difference from the server", from, at, what);
                }
                Some(_) => {}
            }
        }
    }
}

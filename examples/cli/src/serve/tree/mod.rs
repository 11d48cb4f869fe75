//! The nodes below the served path and the locks among them: pure, without I/O.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use curator_cli::kinds::LockKind;
use curator_framework::make_path;
use curator_recipes::{InterProcessSemaphoreV2, ParticipantKind};

use super::history::{Change, ChangeKind};
use super::lock::{Contender, Detail, Lock, Locks, State, states, waits_for};
use super::names::{contender, split};

const LEASES: &str = InterProcessSemaphoreV2::LEASES;
const LOCKS: &str = InterProcessSemaphoreV2::LOCKS;

/// The creation or deletion of a node, or a change of its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    Created(String),
    Deleted(String),
    Changed(String),
}

/// All nodes that matter: directories, which have children, and contenders.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    directories: BTreeMap<String, BTreeMap<String, Contender>>,
    /// The persistent nodes with contenders' names, in each directory. They are directories too, and block.
    persistent: BTreeMap<String, BTreeMap<String, (ParticipantKind, i64)>>,
    /// The recipes of the locks that had contenders: a free lock has no node that shows it.
    recipes: BTreeMap<String, LockKind>,
    locks: Locks,
    /// The number of contenders.
    count: usize,
}

impl Tree {
    pub(crate) const fn locks(&self) -> &Locks {
        &self.locks
    }

    /// Returns the number of nodes.
    pub(crate) fn len(&self) -> usize {
        self.directories.len() + self.count
    }

    pub(crate) fn is_directory(&self, path: &str) -> bool {
        self.directories.contains_key(path)
    }

    fn contender(&self, path: &str) -> Option<&Contender> {
        let (parent, name) = split(path)?;
        self.directories.get(parent)?.get(name)
    }

    /// Returns the paths below a directory.
    fn below(&self, path: &str) -> impl Iterator<Item = &String> {
        let from = if path == "/" { path.to_owned() } else { format!("{path}/") };
        let range = (Bound::Excluded(from.clone()), Bound::Unbounded);
        self.directories.range(range).map(|(path, _)| path).take_while(move |path| path.starts_with(&from))
    }

    /// Returns the difference between a directory and a new listing of it, deletions first. `None`: it does not exist.
    pub(crate) fn differences(&self, directory: &str, listing: Option<&[String]>) -> Vec<Event> {
        let Some(listing) = listing else {
            return if self.is_directory(directory) { vec![Event::Deleted(directory.to_owned())] } else { Vec::new() };
        };
        let listed: BTreeSet<&str> = listing.iter().map(String::as_str).collect();
        let contenders = self.directories.get(directory).into_iter().flatten().map(|(name, _)| name.as_str());
        let directories =
            self.below(directory).filter_map(|path| split(path).filter(|(parent, _)| *parent == directory));
        let gone = contenders.chain(directories.map(|(_, name)| name)).filter(|name| !listed.contains(name));
        let mut events: Vec<Event> = gone.map(|name| Event::Deleted(make_path(directory, name))).collect();
        let mut new: Vec<&str> = listed.into_iter().filter(|name| !self.has(&make_path(directory, name))).collect();
        new.sort_by_key(|name| contender(name).map(|(_, sequence)| sequence));
        if !self.is_directory(directory) {
            events.push(Event::Created(directory.to_owned()));
        }
        events.extend(new.into_iter().map(|name| Event::Created(make_path(directory, name))));
        events
    }

    fn has(&self, path: &str) -> bool {
        self.is_directory(path) || self.contender(path).is_some()
    }

    /// Applies events in order, and returns the changes of the locks. `details` has the contents of the nodes that
    /// could be read. The `first` read of the nodes is not a change.
    pub(crate) fn apply(
        &mut self,
        events: &[Event],
        details: &HashMap<String, Detail>,
        now: i64,
        first: bool,
    ) -> Vec<Change> {
        let gone = self.gone_sessions(events);
        let (mut changes, mut touched, mut unsettled) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        for (index, event) in events.iter().enumerate() {
            let (Event::Created(path) | Event::Deleted(path) | Event::Changed(path)) = event;
            match event {
                Event::Created(_) => self.create(path, details.get(path).cloned()),
                Event::Deleted(_) => self.delete(path, &gone, now, &mut changes),
                Event::Changed(_) => self.change(path, details.get(path).cloned(), &gone, now, &mut changes),
            }
            let parent = split(path).map_or("/", |(parent, _)| parent);
            let grandparent = split(parent).map_or("/", |(parent, _)| parent);
            touched.extend([path, parent, grandparent].map(ToOwned::to_owned));
            if first || matches!(event, Event::Changed(_)) {
                continue;
            }
            unsettled.insert(self.lock_of(parent));
            // The server deletes the nodes of a session in any order, in one transaction: none of them is granted.
            if !events.get(index + 1).is_some_and(|next| self.goes_with_its_session(next, &gone)) {
                for lock in std::mem::take(&mut unsettled) {
                    self.settle(&lock, now, Some(&mut changes));
                }
            }
        }
        for path in &touched {
            if first {
                self.settle(&self.lock_of(path), now, None);
            }
            self.show(path);
        }
        changes
    }

    fn create(&mut self, path: &str, detail: Option<Detail>) {
        let found = split(path).and_then(|(parent, name)| Some((parent, name, contender(name)?)));
        let is_persistent = detail.as_ref().map_or_else(|| self.is_directory(path), Detail::is_persistent);
        let (parent, name, (kind, sequence)) = match found {
            Some(found) if !is_persistent => found,
            _ => {
                if let Some((parent, name, order)) = found {
                    self.persistent.entry(parent.to_owned()).or_default().insert(name.to_owned(), order);
                }
                self.directories.entry(path.to_owned()).or_default();
                return;
            }
        };
        let nodes = self.directories.entry(parent.to_owned()).or_default();
        match nodes.get_mut(name) {
            Some(node) => node.detail = detail.or_else(|| node.detail.take()),
            None => {
                let path = path.to_owned();
                let node = Contender { path, kind, sequence, state: State::New, granted: None, detail };
                nodes.insert(name.to_owned(), node);
                self.count += 1;
            }
        }
    }

    fn change(
        &mut self,
        path: &str,
        detail: Option<Detail>,
        gone: &HashMap<i64, usize>,
        now: i64,
        changes: &mut Vec<Change>,
    ) {
        let Some((parent, name)) = split(path) else { return };
        let czxid = |detail: &Option<Detail>| detail.as_ref().map(|detail| detail.czxid);
        let known = self.contender(path).and_then(|node| czxid(&node.detail));
        let is_of_another_kind = detail.as_ref().is_some_and(|found| found.is_persistent() != self.is_directory(path));
        if is_of_another_kind || known.zip(czxid(&detail)).is_some_and(|(known, found)| known != found) {
            // Another node with the same name, since nodes were last listed.
            self.delete(path, gone, now, changes);
            self.create(path, detail);
            self.settle(&self.lock_of(parent), now, Some(changes));
            return;
        }
        let lock = self.lock_of(parent);
        let Some(node) = self.directories.get_mut(parent).and_then(|nodes| nodes.get_mut(name)) else { return };
        let asked = |detail: &Option<Detail>| detail.as_ref().is_some_and(Detail::asks_to_release);
        let was_asked = asked(&node.detail);
        node.detail = detail.or_else(|| node.detail.take());
        if asked(&node.detail) && !was_asked {
            changes.push(Change { at: now, lock, kind: ChangeKind::Asked, contender: Some(node.clone()) });
        }
    }

    fn delete(&mut self, path: &str, gone: &HashMap<i64, usize>, now: i64, changes: &mut Vec<Change>) {
        let inner: Vec<String> = self.below(path).cloned().collect();
        for directory in inner.iter().rev().map(String::as_str).chain([path]) {
            let names: Vec<String> =
                self.directories.get(directory).into_iter().flatten().map(|(n, _)| n.clone()).collect();
            for name in names {
                self.delete_contender(directory, &name, gone, now, changes);
            }
            if self.directories.remove(directory).is_some() && self.recipes.remove(directory).is_some() {
                let kind = ChangeKind::LockDeleted;
                changes.push(Change { at: now, lock: directory.to_owned(), kind, contender: None });
            }
            self.locks.remove(directory);
            self.persistent.remove(directory);
        }
        if let Some((parent, name)) = split(path) {
            self.persistent.get_mut(parent).and_then(|nodes| nodes.remove(name));
            self.delete_contender(parent, name, gone, now, changes);
        }
    }

    fn delete_contender(
        &mut self,
        parent: &str,
        name: &str,
        gone: &HashMap<i64, usize>,
        now: i64,
        changes: &mut Vec<Change>,
    ) {
        let lock = self.lock_of(parent);
        let Some(node) = self.directories.get_mut(parent).and_then(|nodes| nodes.remove(name)) else { return };
        self.count -= 1;
        let with = node.session().and_then(|session| gone.get(&session).copied());
        let kind = match (node.state, with) {
            (State::New | State::Pending, _) => return,
            // It has left a semaphore's queue for the lease that it was granted.
            (State::Waits, _) if self.has_lease(&lock, &node) => return,
            (_, Some(count)) => ChangeKind::GoneWithSession(count),
            (State::Waits, None) => ChangeKind::Left,
            (State::Holds, None) => ChangeKind::Released,
        };
        changes.push(Change { at: now, lock, kind, contender: Some(node) });
    }

    fn has_lease(&self, lock: &str, turn: &Contender) -> bool {
        let Some(turn) = &turn.detail else { return false };
        let is_its_lease = |lease: &Detail| lease.session == turn.session && lease.czxid > turn.czxid;
        let leases = self.directories.get(&make_path(lock, LEASES)).into_iter().flatten();
        self.is_semaphore(lock) && leases.filter_map(|(_, lease)| lease.detail.as_ref()).any(is_its_lease)
    }

    /// Returns the sessions of which all nodes are deleted at once, if they had several, with the number of nodes.
    fn gone_sessions(&self, events: &[Event]) -> HashMap<i64, usize> {
        let mut deleted: HashMap<i64, usize> = HashMap::new();
        for event in events {
            let Event::Deleted(path) = event else { continue };
            let Some(node) = self.contender(path).filter(|node| node.state != State::Pending) else { continue };
            if let Some(session) = node.session().filter(|session| *session != 0) {
                *deleted.entry(session).or_default() += 1;
            }
        }
        deleted.retain(|_, count| *count > 1);
        if !deleted.is_empty() {
            let mut all: HashMap<i64, usize> = HashMap::new();
            for node in self.directories.values().flat_map(BTreeMap::values).filter(|node| node.state != State::Pending)
            {
                if let Some(session) = node.session().filter(|session| deleted.contains_key(session)) {
                    *all.entry(session).or_default() += 1;
                }
            }
            deleted.retain(|session, count| all.get(session) == Some(count));
        }
        deleted
    }

    fn goes_with_its_session(&self, event: &Event, gone: &HashMap<i64, usize>) -> bool {
        let Event::Deleted(path) = event else { return false };
        let session = self.contender(path).and_then(Contender::session);
        session.is_some_and(|session| gone.contains_key(&session))
    }

    /// A semaphore's `leases` and `locks` have no directories below them, only nodes with contenders' names. Another path
    /// with such a name may have some.
    fn is_semaphore(&self, path: &str) -> bool {
        let (leases, locks) = (make_path(path, LEASES), make_path(path, LOCKS));
        let is_in_a_contenders_place = |directory: &str, inner: &str| {
            let name = inner.get(directory.len() + 1..).and_then(|rest| rest.split('/').next());
            name.zip(self.persistent.get(directory)).is_some_and(|(name, nodes)| nodes.contains_key(name))
        };
        let is_leaf = |path: &String| {
            self.is_directory(path) && self.below(path).all(|inner| is_in_a_contenders_place(path, inner))
        };
        let has_a_lease = |path: &String| {
            self.directories
                .get(path)
                .is_some_and(|nodes| nodes.values().any(|node| node.kind == ParticipantKind::Lease))
        };
        self.is_directory(path) && is_leaf(&leases) && (has_a_lease(&leases) || is_leaf(&locks))
    }

    /// Returns the path of the lock to which the contenders in a directory belong.
    fn lock_of(&self, directory: &str) -> String {
        let of_a_semaphore = split(directory).filter(|(_, name)| matches!(*name, LEASES | LOCKS));
        match of_a_semaphore {
            Some((path, _)) if self.is_semaphore(path) => path.to_owned(),
            _ => directory.to_owned(),
        }
    }

    fn recipe(&self, path: &str) -> Option<LockKind> {
        if self.is_semaphore(path) {
            return Some(LockKind::Semaphore);
        }
        let kinds = || self.directories.get(path).into_iter().flatten().map(|(_, node)| node.kind);
        let is_half = |kind| LockKind::of(kind) == LockKind::ReadWrite;
        if kinds().any(is_half) { Some(LockKind::ReadWrite) } else { kinds().next().map(LockKind::of) }
    }

    /// Judges the contenders of a lock again.
    fn settle(&mut self, lock: &str, now: i64, mut changes: Option<&mut Vec<Change>>) {
        let Some(recipe) = self.recipe(lock) else { return };
        self.recipes.insert(lock.to_owned(), recipe);
        let verdicts = states(recipe, &self.in_order(lock), |node| self.blocker(recipe, node).is_some());
        for (path, state) in verdicts {
            let Some((parent, name)) = split(&path) else { continue };
            let Some(node) = self.directories.get_mut(parent).and_then(|nodes| nodes.get_mut(name)) else { continue };
            let kind = match state {
                State::Holds => ChangeKind::Granted,
                State::Waits => ChangeKind::Waits,
                State::New | State::Pending => {
                    node.state = state;
                    continue;
                }
            };
            let was = std::mem::replace(&mut node.state, state);
            node.granted = node.granted.filter(|_| state == State::Holds);
            let Some(changes) = &mut changes else { continue };
            if state == State::Holds && node.granted.is_none() {
                // The node's own time is exact where its creation was the grant.
                let created = node.detail.as_ref().map(|detail| detail.created).filter(|_| was == State::New);
                node.granted = Some(created.unwrap_or(now));
            }
            changes.push(Change { at: now, lock: lock.to_owned(), kind, contender: Some(node.clone()) });
        }
    }

    /// Returns the contenders of a lock in order: of a semaphore the leases, then the queue.
    fn in_order(&self, lock: &str) -> Vec<&Contender> {
        let sorted = |directory: &str| {
            let mut nodes: Vec<&Contender> =
                self.directories.get(directory).into_iter().flatten().map(|(_, n)| n).collect();
            nodes.sort_by_key(|node| node.order());
            nodes
        };
        if self.is_semaphore(lock) {
            return [LEASES, LOCKS].map(|queue| sorted(&make_path(lock, queue))).concat();
        }
        sorted(lock)
    }

    /// Returns the path of a persistent node ahead of a contender, if such a node blocks it.
    fn blocker(&self, recipe: LockKind, node: &Contender) -> Option<String> {
        let (directory, _) = split(&node.path)?;
        let mut persistent = self.persistent.get(directory).into_iter().flatten();
        persistent.find_map(|(name, (kind, number))| {
            let path = make_path(directory, name);
            (waits_for(recipe, node.kind, *kind) && (*number, path.as_str()) < node.order()).then_some(path)
        })
    }

    /// Brings the lock at a path up to date, if a lock is there.
    fn show(&mut self, path: &str) {
        let is_lock = self.lock_of(path) == path && self.is_directory(path);
        let known = self.recipes.get(path).copied();
        let Some(recipe) = self.recipe(path).or(known).filter(|_| is_lock) else {
            self.locks.remove(path);
            return;
        };
        let before = self.locks.get(path);
        let before: HashMap<&str, &Arc<Contender>> =
            before.into_iter().flat_map(|lock| &lock.contenders).map(|node| (node.path.as_str(), node)).collect();
        let shared = |node: &Contender| match before.get(node.path.as_str()) {
            Some(same) if ***same == *node => Arc::clone(same),
            _ => Arc::new(node.clone()),
        };
        let contenders: Vec<_> = self.in_order(path).into_iter().map(shared).collect();
        let mut waiters = contenders.iter().filter(|node| !node.holds());
        let blocked_by = waiters.find_map(|waiter| self.blocker(recipe, waiter));
        self.locks.insert(path.to_owned(), Arc::new(Lock { path: path.to_owned(), recipe, contenders, blocked_by }));
    }
}

#[cfg(test)]
mod tests;

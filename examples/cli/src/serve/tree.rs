//! The nodes below the served path and the locks among them: pure, without I/O.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use curator_recipes::{LockInternalsDriver as _, StandardLockInternalsDriver};

use super::history::{Change, ChangeKind};
use super::names::{Role, child, contender, split};

/// From this sequence number on, contenders are ordered by the transaction that created them, as the recipes do.
const NEAR_THE_END: i64 = (1 << 31) - (1 << 20);
/// Curator's request to release, which a client writes into the holder's node.
const REVOKE: &[u8] = b"__REVOKE__";

/// The kind of a lock, as the names of its nodes show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recipe {
    Mutex,
    ReadWrite,
    Semaphore,
    Latch,
}

impl Recipe {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::ReadWrite => "read-write lock",
            Self::Semaphore => "semaphore",
            Self::Latch => "leader latch",
        }
    }
}

/// The state of a contender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Not judged yet.
    New,
    Waits,
    Holds,
    /// A lease that the first of a semaphore's queue has created, and that is not granted yet. Its contender has
    /// another node in the queue, so it is not counted.
    Pending,
}

/// The contents of a contender's node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Detail {
    /// The beginning of the data.
    pub(crate) data: Vec<u8>,
    /// The length of all of the data.
    pub(crate) length: usize,
    pub(crate) session: i64,
    pub(crate) czxid: i64,
    /// The time of its creation on ZooKeeper's clock, in milliseconds since 1970.
    pub(crate) created: i64,
}

impl Detail {
    /// Returns `true` for a node that is not a contender, whatever its name.
    pub(crate) fn is_persistent(&self) -> bool {
        !StandardLockInternalsDriver.is_contender(self.session)
    }

    pub(crate) fn asks_to_release(&self) -> bool {
        self.data == REVOKE
    }
}

/// One contender of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Contender {
    /// The path of its node.
    pub(crate) path: String,
    pub(crate) role: Role,
    pub(crate) sequence: i64,
    pub(crate) state: State,
    /// The time of the grant, in milliseconds since 1970. `None` if it was granted before the first look.
    pub(crate) granted: Option<i64>,
    /// `None` if the node could not be read before it was deleted.
    pub(crate) detail: Option<Detail>,
}

impl Contender {
    pub(crate) fn holds(&self) -> bool {
        self.state == State::Holds
    }

    pub(crate) fn waits(&self) -> bool {
        self.state == State::Waits
    }

    pub(crate) fn session(&self) -> Option<i64> {
        self.detail.as_ref().map(|detail| detail.session)
    }

    /// Returns the time from which on it has the lock, or, if it waits or the grant was not seen, of its creation.
    pub(crate) fn since(&self) -> Option<i64> {
        self.granted.or_else(|| self.detail.as_ref().map(|detail| detail.created))
    }

    /// Returns a text that sorts the contenders of a lock. A candidate of an election may have the leader's number, to
    /// lead after it.
    pub(crate) fn key(&self) -> String {
        let (number, path) = self.order();
        format!("{}{number:020}{path}", u8::from(self.role != Role::Lease))
    }

    fn order(&self) -> (i64, &str) {
        let is_far = (0..NEAR_THE_END).contains(&self.sequence);
        let created = || self.detail.as_ref().map_or(i64::MAX, |detail| detail.czxid.saturating_add(1 << 31));
        (if is_far { self.sequence } else { created() }, &self.path)
    }
}

/// One lock with its contenders in order: of a semaphore the leases, then the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lock {
    pub(crate) path: String,
    pub(crate) recipe: Recipe,
    pub(crate) contenders: Vec<Arc<Contender>>,
    /// The path of a persistent node with a contender's name, if one blocks the waiters.
    pub(crate) blocked_by: Option<String>,
}

impl Lock {
    pub(crate) fn holders(&self) -> impl Iterator<Item = &Arc<Contender>> {
        self.contenders.iter().filter(|contender| contender.holds())
    }

    pub(crate) fn waiters(&self) -> usize {
        self.contenders.iter().filter(|contender| contender.waits()).count()
    }

    /// Returns the time from which on the oldest holder has the lock.
    pub(crate) fn held_since(&self) -> Option<i64> {
        self.holders().filter_map(|holder| holder.since()).min()
    }
}

/// The locks below the served path, by path.
pub(crate) type Locks = BTreeMap<String, Arc<Lock>>;

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
    persistent: BTreeMap<String, BTreeMap<String, (Role, i64)>>,
    /// The recipes of the locks that had contenders: a free lock has no node that shows it.
    recipes: BTreeMap<String, Recipe>,
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
        let mut events: Vec<Event> = gone.map(|name| Event::Deleted(child(directory, name))).collect();
        let mut new: Vec<&str> = listed.into_iter().filter(|name| !self.has(&child(directory, name))).collect();
        new.sort_by_key(|name| contender(name).map(|(_, sequence)| sequence));
        if !self.is_directory(directory) {
            events.push(Event::Created(directory.to_owned()));
        }
        events.extend(new.into_iter().map(|name| Event::Created(child(directory, name))));
        events
    }

    fn has(&self, path: &str) -> bool {
        self.is_directory(path) || self.contender(path).is_some()
    }

    /// Applies events in order, and returns the changes of the locks. `details` has the contents of the nodes that
    /// could be read. A `first` look at the nodes is not a change.
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
        let (parent, name, (role, sequence)) = match found {
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
                let node = Contender { path, role, sequence, state: State::New, granted: None, detail };
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
        let leases = self.directories.get(&child(lock, "leases")).into_iter().flatten();
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
        let (leases, locks) = (child(path, "leases"), child(path, "locks"));
        let is_in_a_contenders_place = |directory: &str, inner: &str| {
            let name = inner.get(directory.len() + 1..).and_then(|rest| rest.split('/').next());
            name.zip(self.persistent.get(directory)).is_some_and(|(name, nodes)| nodes.contains_key(name))
        };
        let is_leaf = |path: &String| {
            self.is_directory(path) && self.below(path).all(|inner| is_in_a_contenders_place(path, inner))
        };
        let has_a_lease = |path: &String| {
            self.directories.get(path).is_some_and(|nodes| nodes.values().any(|node| node.role == Role::Lease))
        };
        self.is_directory(path) && is_leaf(&leases) && (has_a_lease(&leases) || is_leaf(&locks))
    }

    /// Returns the path of the lock to which the contenders in a directory belong.
    fn lock_of(&self, directory: &str) -> String {
        let of_a_semaphore = split(directory).filter(|(_, name)| matches!(*name, "leases" | "locks"));
        match of_a_semaphore {
            Some((path, _)) if self.is_semaphore(path) => path.to_owned(),
            _ => directory.to_owned(),
        }
    }

    fn recipe(&self, path: &str) -> Option<Recipe> {
        if self.is_semaphore(path) {
            return Some(Recipe::Semaphore);
        }
        let roles = || self.directories.get(path).into_iter().flatten().map(|(_, node)| node.role);
        if roles().any(|role| matches!(role, Role::Read | Role::Write)) {
            return Some(Recipe::ReadWrite);
        }
        Some(match roles().next()? {
            Role::Lease => Recipe::Semaphore,
            Role::Latch => Recipe::Latch,
            _ => Recipe::Mutex,
        })
    }

    /// Judges the contenders of a lock anew.
    fn settle(&mut self, lock: &str, now: i64, mut changes: Option<&mut Vec<Change>>) {
        let Some(recipe) = self.recipe(lock) else { return };
        self.recipes.insert(lock.to_owned(), recipe);
        let verdicts = states(recipe, &self.in_order(lock), &|node| self.blocker(lock, recipe, node).is_some());
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
            return [sorted(&child(lock, "leases")), sorted(&child(lock, "locks"))].concat();
        }
        sorted(lock)
    }

    /// Returns the path of a persistent node ahead of a contender, if such a node blocks it.
    fn blocker(&self, lock: &str, recipe: Recipe, node: &Contender) -> Option<String> {
        let (directory, _) = split(&node.path)?;
        let blocks = |role: Role| match recipe {
            Recipe::Semaphore => directory != lock,
            Recipe::Mutex => role == Role::Lock,
            Recipe::Latch => role == Role::Latch,
            Recipe::ReadWrite => role == Role::Write || (role == Role::Read && node.role != Role::Read),
        };
        let persistent = self.persistent.get(directory).into_iter().flatten();
        let mut ahead = persistent.filter(|(_, (role, _))| blocks(*role)).map(|(name, (_, number))| (*number, name));
        ahead.find_map(|(number, name)| {
            let path = child(directory, name);
            ((number, path.as_str()) < node.order()).then_some(path)
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
        let blocked_by = waiters.find_map(|waiter| self.blocker(path, recipe, waiter));
        self.locks.insert(path.to_owned(), Arc::new(Lock { path: path.to_owned(), recipe, contenders, blocked_by }));
    }
}

/// Returns the contenders with a state other than before.
fn states(recipe: Recipe, nodes: &[&Contender], is_blocked: &dyn Fn(&Contender) -> bool) -> Vec<(String, State)> {
    let holds = |holds: bool| if holds { State::Holds } else { State::Waits };
    let leases = nodes.iter().filter(|node| node.role == Role::Lease).count();
    let head = nodes.get(leases).and_then(|node| node.session());
    let first_writer = nodes.iter().position(|node| node.role != Role::Read).unwrap_or(nodes.len());
    let state = |(index, node): (usize, &&Contender)| {
        let state = match recipe {
            Recipe::Mutex | Recipe::Latch => holds(index == 0 && !is_blocked(node)),
            Recipe::ReadWrite => holds((index == 0 || index < first_writer) && !is_blocked(node)),
            Recipe::Semaphore if node.role != Role::Lease => State::Waits,
            // The first of the queue creates its lease, and waits for a free one under its turn.
            Recipe::Semaphore if index + 1 == leases && head.is_some() && node.session() == head && !node.holds() => {
                State::Pending
            }
            // It was gone before it could be read: a try that found no free lease.
            Recipe::Semaphore if node.detail.is_none() && !node.holds() => State::Pending,
            Recipe::Semaphore => State::Holds,
        };
        (node.state != state).then(|| (node.path.clone(), state))
    };
    nodes.iter().enumerate().filter_map(state).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITE: &str = "/w/__WRIT__0000000002";

    /// A tree, and the contents of its nodes: of a session and a transaction.
    #[derive(Default)]
    struct Test {
        tree: Tree,
        details: HashMap<String, Detail>,
    }

    impl Test {
        /// Applies events of the form `+path session` and `-path`, and returns the changes as texts.
        fn apply(&mut self, events: &[&str]) -> Vec<String> {
            self.apply_as(events, false)
        }

        fn apply_as(&mut self, events: &[&str], first: bool) -> Vec<String> {
            let mut parsed = Vec::new();
            for event in events {
                let (sign, rest) = event.split_at(1);
                let (path, session) = rest.split_once(' ').unwrap_or((rest, ""));
                if let Ok(session) = session.parse() {
                    let czxid = i64::try_from(self.details.len()).unwrap();
                    self.details.insert(path.to_owned(), Detail { session, czxid, ..Detail::default() });
                }
                let path = path.to_owned();
                parsed.push(if sign == "+" { Event::Created(path) } else { Event::Deleted(path) });
            }
            let changes = self.tree.apply(&parsed, &self.details, 1000, first);
            let name = |change: &Change| {
                let node = change.contender.as_ref().map_or("", |c| c.path.rsplit('/').next().unwrap());
                format!("{} {node}", change.kind.word())
            };
            changes.iter().map(name).collect()
        }

        fn lock(&self, path: &str) -> (&'static str, usize, usize) {
            let lock = &self.tree.locks()[path];
            (lock.recipe.word(), lock.holders().count(), lock.waiters())
        }
    }

    #[test]
    fn first_of_a_mutex_holds_it() {
        let mut test = Test::default();
        let changes = test.apply(&["+/m 0", "+/m/lock-0000000001 1", "+/m/lock-0000000002 2", "-/m/lock-0000000001"]);
        assert_eq!(
            changes,
            ["granted lock-0000000001", "waits lock-0000000002", "released lock-0000000001", "granted lock-0000000002"]
        );
        assert_eq!(test.lock("/m"), ("mutex", 1, 0));
        assert_eq!(test.apply(&["-/m/lock-0000000002", "-/m"]), ["released lock-0000000002", "lock_deleted "]);
        assert!(test.tree.locks().is_empty());
    }

    #[test]
    fn free_lock_stays_listed_while_its_node_exists() {
        let mut test = Test::default();
        test.apply(&["+/m", "+/m/latch-0000000001 1", "-/m/latch-0000000001", "+/never"]);
        assert_eq!(test.lock("/m"), ("leader latch", 0, 0));
        assert_eq!(test.tree.locks().len(), 1);
    }

    #[test]
    fn candidate_with_the_number_of_the_leader_is_next() {
        let mut test = Test::default();
        let [leader, next] = [1, 2].map(|id| format!("/m/_c_00000000-0000-4000-8000-00000000000{id}-latch-0000000005"));
        test.apply(&["+/m", &format!("+{leader} 1"), "+/m/latch-0000000006 2"]);
        // A hand-over: the candidate moves ahead, then the leader resigns.
        test.apply(&[&format!("+{next} 3")]);
        let keys: Vec<String> = test.tree.locks()["/m"].contenders.iter().map(|node| node.key()).collect();
        assert!(keys.is_sorted_by(|one, other| one < other), "{keys:?}");
        let changes = test.apply(&[&format!("-{leader}")]);
        assert_eq!(changes[1], format!("granted {}", &next["/m/".len()..]));
    }

    #[test]
    fn readers_hold_up_to_the_first_writer() {
        let mut test = Test::default();
        let read = |number| format!("+/w/__READ__000000000{number} 1{number}");
        test.apply(&[&read(0), &read(1), &format!("+{WRITE} 9"), &read(3)]);
        assert_eq!(test.lock("/w"), ("read-write lock", 2, 2));
        let changes = test.apply(&["-/w/__READ__0000000000", "-/w/__READ__0000000001"]);
        assert_eq!(changes.last().unwrap(), "granted __WRIT__0000000002");
        assert_eq!(test.apply(&[&format!("-{WRITE}")])[1], "granted __READ__0000000003");
    }

    #[test]
    fn lease_under_a_turn_is_not_held_yet() {
        let mut test = Test::default();
        // Session 1 has the only lease. Session 2 has the turn, and has created its lease.
        test.apply(&["+/s", "+/s/locks", "+/s/leases", "+/s/leases/lease-0000000000 1"]);
        let changes = test.apply(&["+/s/locks/lock-0000000001 2", "+/s/leases/lease-0000000001 2"]);
        assert_eq!(changes[0], "waits lock-0000000001");
        // Its wait ends with the grant of its lease.
        let changes =
            [test.apply(&["-/s/leases/lease-0000000000"]), test.apply(&["-/s/locks/lock-0000000001"])].concat();
        assert_eq!(changes, ["released lease-0000000000", "granted lease-0000000001"]);
        assert_eq!(test.lock("/s"), ("semaphore", 1, 0));
        assert!(!test.tree.locks().contains_key("/s/leases") && !test.tree.locks().contains_key("/s/locks"));
        // A node that was gone before it could be read was a try without success.
        assert!(test.apply(&["+/s/leases/lease-0000000002", "-/s/leases/lease-0000000002"]).is_empty());
    }

    #[test]
    fn paths_named_like_parts_of_a_semaphore_are_locks() {
        let mut test = Test::default();
        test.apply(&[
            "+/app/locks/a/lock-0000000000 1",
            "+/app/locks/lock-0000000000 1",
            "+/app/leases",
            "+/app/leases/b",
        ]);
        assert_eq!(test.tree.locks().keys().collect::<Vec<_>>(), ["/app/locks", "/app/locks/a"]);
        // The served path is the inner one.
        let mut test = Test::default();
        test.apply(&["+/s/leases", "+/s/leases/lease-0000000000 1"]);
        assert_eq!(test.lock("/s/leases"), ("semaphore", 1, 0));
    }

    #[test]
    fn session_that_ends_grants_nothing_to_its_own_nodes() {
        let mut test = Test::default();
        test.apply(&[
            "+/m/lock-0000000000 1",
            "+/m/lock-0000000001 1",
            "+/m/lock-0000000002 2",
            "+/n/lock-0000000000 1",
        ]);
        let changes = test.apply(&["-/m/lock-0000000000", "-/n/lock-0000000000", "-/m/lock-0000000001"]);
        assert_eq!(
            changes,
            [
                "gone_with_session lock-0000000000",
                "gone_with_session lock-0000000000",
                "gone_with_session lock-0000000001",
                "granted lock-0000000002",
            ]
        );
    }

    #[test]
    fn persistent_node_with_the_name_of_a_contender_is_a_path() {
        let mut test = Test::default();
        test.apply(&["+/m", "+/m/lock-0 0", "+/m/lock-0/lock-0000000000 1"]);
        assert_eq!(test.tree.locks().keys().collect::<Vec<_>>(), ["/m/lock-0"]);
        // It blocks a lock above it.
        let mut changes = test.apply(&["+/m/lock-0000000001 2"]);
        assert_eq!((changes.remove(0).as_str(), test.lock("/m")), ("waits lock-0000000001", ("mutex", 0, 1)));
        assert_eq!(test.tree.locks()["/m"].blocked_by.as_deref(), Some("/m/lock-0"));
        let changes = test.apply(&["-/m/lock-0/lock-0000000000", "-/m/lock-0"]);
        assert_eq!(changes, ["released lock-0000000000", "lock_deleted ", "granted lock-0000000001"]);
        assert_eq!(test.tree.locks()["/m"].blocked_by, None);
        // Readers wait for writers alone.
        test.apply(&["+/w", "+/w/__READ__0000000000 0", "+/w/__READ__0000000001 1", &format!("+{WRITE} 2")]);
        assert_eq!(test.lock("/w"), ("read-write lock", 1, 1));
        assert_eq!(test.tree.locks()["/w"].blocked_by.as_deref(), Some("/w/__READ__0000000000"));
    }

    #[test]
    fn persistent_lease_hides_no_semaphore() {
        let mut test = Test::default();
        test.apply(&["+/s", "+/s/locks", "+/s/leases", "+/s/leases/lease-0 0", "+/s/leases/lease-0000000001 1"]);
        assert_eq!(test.lock("/s"), ("semaphore", 1, 0));
    }

    #[test]
    fn contender_in_place_of_a_persistent_node_is_seen() {
        let mut test = Test::default();
        test.apply(&["+/m", "+/m/lock-0000000000 0"]);
        let path = "/m/lock-0000000000".to_owned();
        test.details.insert(path.clone(), Detail { session: 2, czxid: 99, ..Detail::default() });
        test.tree.apply(&[Event::Changed(path.clone())], &test.details, 1, false);
        assert_eq!(test.lock("/m"), ("mutex", 1, 0));
        test.details.insert(path.clone(), Detail { session: 0, czxid: 100, ..Detail::default() });
        test.tree.apply(&[Event::Changed(path)], &test.details, 1, false);
        assert_eq!(test.lock("/m"), ("mutex", 0, 0));
    }

    #[test]
    fn first_look_is_not_a_change() {
        let mut test = Test::default();
        assert!(test.apply_as(&["+/m/lock-0000000000 1", "+/m/lock-0000000001 2"], true).is_empty());
        assert_eq!(test.lock("/m"), ("mutex", 1, 1));
        assert_eq!(test.tree.locks()["/m"].contenders[0].granted, None);
    }

    #[test]
    fn order_near_the_end_of_the_counter_is_that_of_creation() {
        let mut test = Test::default();
        let names = ["lock-2147483646", "lock-2147483647", "lock--2147483648", "lock-0000000005"];
        test.apply(&names.map(|name| format!("+/m/{name} 1")).each_ref().map(String::as_str));
        let order = test.tree.locks()["/m"].contenders.iter().map(|node| node.path.rsplit('/').next().unwrap());
        assert_eq!(
            order.collect::<Vec<_>>(),
            ["lock-0000000005", "lock-2147483646", "lock-2147483647", "lock--2147483648"]
        );
    }

    #[test]
    fn new_listing_is_a_difference() {
        let mut test = Test::default();
        test.apply(&["+/m", "+/m/lock-0000000000 1", "+/m/sub", "+/m/sub/lock-0000000000 1"]);
        let listing = ["lock-0000000002", "lock-0000000001", "other"].map(ToOwned::to_owned);
        let events = test.tree.differences("/m", Some(&listing));
        let expected = [
            Event::Deleted("/m/lock-0000000000".to_owned()),
            Event::Deleted("/m/sub".to_owned()),
            Event::Created("/m/other".to_owned()),
            Event::Created("/m/lock-0000000001".to_owned()),
            Event::Created("/m/lock-0000000002".to_owned()),
        ];
        assert_eq!(events, expected);
        assert_eq!(test.tree.differences("/m", None), [Event::Deleted("/m".to_owned())]);
        assert_eq!(test.tree.differences("/missing", None), []);
        test.tree.apply(&events, &HashMap::new(), 0, false);
        assert_eq!(test.tree.differences("/m", Some(&listing)), []);
    }

    #[test]
    fn another_node_of_the_same_name_is_a_release_and_a_grant() {
        let mut test = Test::default();
        test.apply(&["+/m/lock-0000000000 1"]);
        let path = "/m/lock-0000000000".to_owned();
        test.details.insert(path.clone(), Detail { session: 2, czxid: 99, ..Detail::default() });
        let changes = test.tree.apply(&[Event::Changed(path)], &test.details, 1, false);
        let kinds: Vec<_> = changes.iter().map(|change| change.kind).collect();
        assert_eq!(kinds, [ChangeKind::Released, ChangeKind::Granted]);
    }
}

//! Watches, and the connections that get an event.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::core::ConnectionId;
use super::tree::split;
use crate::wire::EventKind;

/// The kind of a watch: the requests that set it, and so the writes that fire it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchKind {
    /// Set by `getData`, `exists` and `addWatch`.
    Data,
    /// Set by `getChildren` and `addWatch`.
    Child,
}

/// The lifetime of a watch, and the nodes that it covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchMode {
    /// Fires once.
    Once,
    /// Stays until it is removed.
    Persistent,
    /// Stays, and covers all nodes below as well, but not changes of the children.
    Recursive,
}

/// Watches of one kind.
#[derive(Debug, Default, Clone)]
struct Table {
    by_path: HashMap<String, BTreeMap<ConnectionId, WatchMode>>,
    by_connection: HashMap<ConnectionId, HashSet<String>>,
}

impl Table {
    /// Adds a watch. It replaces an earlier one of the same connection, regardless of its mode.
    fn add(&mut self, path: &str, connection: ConnectionId, mode: WatchMode) {
        self.by_path.entry(path.to_owned()).or_default().insert(connection, mode);
        self.by_connection.entry(connection).or_default().insert(path.to_owned());
    }

    fn contains(&self, path: &str, connection: ConnectionId) -> bool {
        self.by_path.get(path).is_some_and(|watchers| watchers.contains_key(&connection))
    }

    fn remove(&mut self, path: &str, connection: ConnectionId) -> bool {
        let Some(watchers) = self.by_path.get_mut(path) else {
            return false;
        };
        let removed = watchers.remove(&connection).is_some();
        if watchers.is_empty() {
            self.by_path.remove(path);
        }
        self.forget_path(path, connection);
        removed
    }

    fn trigger(&mut self, path: &str, event: EventKind, only: Option<ConnectionId>) -> BTreeSet<ConnectionId> {
        let is_meant = |connection: &ConnectionId| only.is_none_or(|only| only == *connection);
        let mut hear = BTreeSet::new();
        let mut used_up = Vec::new();
        for (connection, mode) in self.by_path.get(path).into_iter().flatten() {
            let is_blind = *mode == WatchMode::Recursive && event == EventKind::NodeChildrenChanged;
            if is_blind || !is_meant(connection) {
                continue;
            }
            hear.insert(*connection);
            if *mode == WatchMode::Once {
                used_up.push(*connection);
            }
        }
        for connection in used_up {
            self.remove(path, connection);
        }
        if event != EventKind::NodeChildrenChanged {
            for above in ancestors(path) {
                let watchers = self.by_path.get(above).into_iter().flatten();
                let recursive = watchers.filter(|(_, mode)| **mode == WatchMode::Recursive);
                hear.extend(recursive.map(|(connection, _)| *connection).filter(is_meant));
            }
        }
        hear
    }

    fn forget_path(&mut self, path: &str, connection: ConnectionId) {
        // As in Apache, a connection that has watched is known until its end.
        if let Some(paths) = self.by_connection.get_mut(&connection) {
            paths.remove(path);
        }
    }

    /// Takes the watches of a connection from another table, in place of those that it has.
    fn take_over(&mut self, connection: ConnectionId, other: &Self) {
        self.remove_connection(connection);
        for path in other.by_connection.get(&connection).into_iter().flatten() {
            if let Some(mode) = other.by_path.get(path).and_then(|watchers| watchers.get(&connection)) {
                self.add(path, connection, *mode);
            }
        }
    }

    fn remove_connection(&mut self, connection: ConnectionId) {
        for path in self.by_connection.remove(&connection).unwrap_or_default() {
            self.remove(&path, connection);
        }
    }

    fn len(&self) -> usize {
        self.by_path.values().map(BTreeMap::len).sum()
    }
}

/// Returns the paths above `path`, the root last.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    fn parent<'a>(path: &&'a str) -> Option<&'a str> {
        match *path {
            "/" => None,
            path => split(path).map(|(parent, _)| parent),
        }
    }
    std::iter::successors(parent(&path), parent)
}

/// All watches. A connection has at most one of a kind on a path.
#[derive(Debug, Default, Clone)]
pub(super) struct Watches {
    data: Table,
    child: Table,
}

impl Watches {
    const fn table(&mut self, kind: WatchKind) -> &mut Table {
        match kind {
            WatchKind::Data => &mut self.data,
            WatchKind::Child => &mut self.child,
        }
    }

    /// Sets a watch that fires once.
    pub(super) fn add(&mut self, kind: WatchKind, path: &str, connection: ConnectionId) {
        self.table(kind).add(path, connection, WatchMode::Once);
    }

    /// Sets a watch of both kinds.
    pub(super) fn add_both(&mut self, path: &str, connection: ConnectionId, mode: WatchMode) {
        self.data.add(path, connection, mode);
        self.child.add(path, connection, mode);
    }

    pub(super) fn contains(&mut self, kind: WatchKind, path: &str, connection: ConnectionId) -> bool {
        self.table(kind).contains(path, connection)
    }

    /// Removes one watch. Returns false if it did not exist.
    pub(super) fn remove(&mut self, kind: WatchKind, path: &str, connection: ConnectionId) -> bool {
        self.table(kind).remove(path, connection)
    }

    /// Returns the connections that get an event at `path`, one connection only or all. Removes watches that fire once.
    pub(super) fn trigger(
        &mut self,
        kind: WatchKind,
        path: &str,
        event: EventKind,
        only: Option<ConnectionId>,
    ) -> BTreeSet<ConnectionId> {
        self.table(kind).trigger(path, event, only)
    }

    /// Takes the watches of a connection from another server, in place of those that it has.
    pub(super) fn take_over(&mut self, connection: ConnectionId, other: &Self) {
        self.data.take_over(connection, &other.data);
        self.child.take_over(connection, &other.child);
    }

    pub(super) fn remove_connection(&mut self, connection: ConnectionId) {
        self.data.remove_connection(connection);
        self.child.remove_connection(connection);
    }

    /// Returns the paths with data watches, and the connections that watch each.
    pub(super) fn data_by_path(&self) -> impl ExactSizeIterator<Item = (&String, impl Iterator<Item = ConnectionId>)> {
        self.data.by_path.iter().map(|(path, watchers)| (path, watchers.keys().copied()))
    }

    /// Returns the connections that have set a data watch, and the paths that each still watches.
    pub(super) fn data_by_connection(&self) -> impl ExactSizeIterator<Item = (ConnectionId, &HashSet<String>)> {
        self.data.by_connection.iter().map(|(connection, paths)| (*connection, paths))
    }

    pub(super) fn len(&self) -> usize {
        self.data.len() + self.child.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ConnectionId = ConnectionId(1);
    const TWO: ConnectionId = ConnectionId(2);

    fn fire(watches: &mut Watches, kind: WatchKind, path: &str, event: EventKind) -> Vec<ConnectionId> {
        watches.trigger(kind, path, event, None).into_iter().collect()
    }

    #[test]
    fn a_watch_fires_once_and_setting_it_twice_makes_one() {
        let mut watches = Watches::default();
        watches.add(WatchKind::Data, "/a", ONE);
        watches.add(WatchKind::Data, "/a", ONE);
        watches.add(WatchKind::Data, "/a", TWO);
        watches.add(WatchKind::Child, "/a", ONE);
        assert_eq!(watches.len(), 3);
        let event = EventKind::NodeDataChanged;
        let only_two = watches.trigger(WatchKind::Data, "/a", event, Some(TWO));
        assert_eq!(only_two, BTreeSet::from([TWO]));
        assert_eq!(fire(&mut watches, WatchKind::Data, "/a", event), [ONE]);
        assert_eq!(fire(&mut watches, WatchKind::Data, "/a", event), []);
        assert_eq!(watches.len(), 1);
    }

    #[test]
    fn watches_go_with_their_connection() {
        let mut watches = Watches::default();
        watches.add(WatchKind::Data, "/a", ONE);
        watches.add(WatchKind::Child, "/b", ONE);
        watches.add(WatchKind::Child, "/b", TWO);
        watches.add_both("/c", ONE, WatchMode::Recursive);
        watches.remove_connection(ONE);
        assert_eq!(watches.len(), 1);
        assert!(watches.contains(WatchKind::Child, "/b", TWO));
        assert!(watches.remove(WatchKind::Child, "/b", TWO));
        assert!(!watches.remove(WatchKind::Child, "/b", TWO));
        assert_eq!(watches.child.by_connection.keys().collect::<Vec<_>>(), [&TWO]);
        watches.remove_connection(TWO);
        assert!(watches.child.by_connection.is_empty() && watches.child.by_path.is_empty());
    }

    #[test]
    fn persistent_watches_stay_and_recursive_ones_see_what_is_below() {
        let mut watches = Watches::default();
        watches.add_both("/a", ONE, WatchMode::Persistent);
        watches.add_both("/", TWO, WatchMode::Recursive);
        for _ in 0..2 {
            for (kind, path, event, hear) in [
                (WatchKind::Data, "/a", EventKind::NodeCreated, &[ONE, TWO][..]),
                (WatchKind::Child, "/a", EventKind::NodeChildrenChanged, &[ONE]),
                (WatchKind::Data, "/a/b/c", EventKind::NodeDeleted, &[TWO]),
                (WatchKind::Child, "/a/b", EventKind::NodeChildrenChanged, &[]),
                (WatchKind::Child, "/", EventKind::NodeChildrenChanged, &[]),
                (WatchKind::Data, "/", EventKind::NodeDataChanged, &[TWO]),
            ] {
                assert_eq!(fire(&mut watches, kind, path, event), hear, "{path} {event:?}");
            }
        }
        assert_eq!(watches.len(), 4);
    }
}

//! One-shot watches.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::core::ConnectionId;

/// Which requests set the watch, and so which writes fire it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchKind {
    /// Set by `getData` and `exists`.
    Data,
    /// Set by `getChildren`.
    Child,
}

/// Watches of one kind.
#[derive(Debug, Default, Clone)]
struct Table {
    by_path: HashMap<String, BTreeSet<ConnectionId>>,
    by_connection: HashMap<ConnectionId, HashSet<String>>,
}

impl Table {
    fn add(&mut self, path: &str, connection: ConnectionId) {
        self.by_path.entry(path.to_owned()).or_default().insert(connection);
        self.by_connection.entry(connection).or_default().insert(path.to_owned());
    }

    fn contains(&self, path: &str, connection: ConnectionId) -> bool {
        self.by_path.get(path).is_some_and(|watchers| watchers.contains(&connection))
    }

    fn remove(&mut self, path: &str, connection: ConnectionId) -> bool {
        let Some(watchers) = self.by_path.get_mut(path) else {
            return false;
        };
        let removed = watchers.remove(&connection);
        if watchers.is_empty() {
            self.by_path.remove(path);
        }
        self.forget_path(path, connection);
        removed
    }

    fn take(&mut self, path: &str) -> BTreeSet<ConnectionId> {
        let watchers = self.by_path.remove(path).unwrap_or_default();
        for connection in &watchers {
            self.forget_path(path, *connection);
        }
        watchers
    }

    fn forget_path(&mut self, path: &str, connection: ConnectionId) {
        if let Some(paths) = self.by_connection.get_mut(&connection) {
            paths.remove(path);
            if paths.is_empty() {
                self.by_connection.remove(&connection);
            }
        }
    }

    fn remove_connection(&mut self, connection: ConnectionId) {
        for path in self.by_connection.remove(&connection).unwrap_or_default() {
            self.remove(&path, connection);
        }
    }

    fn len(&self) -> usize {
        self.by_path.values().map(BTreeSet::len).sum()
    }
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

    pub(super) fn add(&mut self, kind: WatchKind, path: &str, connection: ConnectionId) {
        self.table(kind).add(path, connection);
    }

    pub(super) fn contains(&mut self, kind: WatchKind, path: &str, connection: ConnectionId) -> bool {
        self.table(kind).contains(path, connection)
    }

    /// Removes one watch; false if there was none.
    pub(super) fn remove(&mut self, kind: WatchKind, path: &str, connection: ConnectionId) -> bool {
        self.table(kind).remove(path, connection)
    }

    /// Takes off all watches of `path` and says whose they were.
    pub(super) fn take(&mut self, kind: WatchKind, path: &str) -> BTreeSet<ConnectionId> {
        self.table(kind).take(path)
    }

    /// Whom to tell that `path` is gone: each connection once.
    pub(super) fn take_both(&mut self, path: &str) -> Vec<ConnectionId> {
        let data = self.data.take(path);
        let child = self.child.take(path);
        let only_child: Vec<_> = child.difference(&data).copied().collect();
        data.into_iter().chain(only_child).collect()
    }

    pub(super) fn remove_connection(&mut self, connection: ConnectionId) {
        self.data.remove_connection(connection);
        self.child.remove_connection(connection);
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

    #[test]
    fn a_watch_fires_once_and_setting_it_twice_makes_one() {
        let mut watches = Watches::default();
        watches.add(WatchKind::Data, "/a", ONE);
        watches.add(WatchKind::Data, "/a", ONE);
        watches.add(WatchKind::Data, "/a", TWO);
        watches.add(WatchKind::Child, "/a", ONE);
        assert_eq!(watches.len(), 3);
        assert_eq!(watches.take(WatchKind::Data, "/a"), BTreeSet::from([ONE, TWO]));
        assert_eq!(watches.take(WatchKind::Data, "/a"), BTreeSet::new());
        assert_eq!(watches.len(), 1);
    }

    #[test]
    fn a_deleted_node_tells_each_connection_once() {
        let mut watches = Watches::default();
        watches.add(WatchKind::Data, "/a", TWO);
        watches.add(WatchKind::Child, "/a", ONE);
        watches.add(WatchKind::Child, "/a", TWO);
        assert_eq!(watches.take_both("/a"), [TWO, ONE]);
        assert_eq!(watches.len(), 0);
    }

    #[test]
    fn watches_go_with_their_connection() {
        let mut watches = Watches::default();
        watches.add(WatchKind::Data, "/a", ONE);
        watches.add(WatchKind::Child, "/b", ONE);
        watches.add(WatchKind::Child, "/b", TWO);
        watches.remove_connection(ONE);
        assert_eq!(watches.len(), 1);
        assert!(watches.contains(WatchKind::Child, "/b", TWO));
        assert!(watches.remove(WatchKind::Child, "/b", TWO));
        assert!(!watches.remove(WatchKind::Child, "/b", TWO));
        assert!(watches.child.by_connection.is_empty() && watches.child.by_path.is_empty());
    }
}

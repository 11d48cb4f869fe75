//! The changes of the tree, and the events that watchers get.

use std::collections::HashMap;
use std::sync::Arc;

use super::acl::READ;
use super::core::{ConnectionId, Core, Output};
use super::tree::{Tree, parent_path};
use super::watch::WatchKind;
use crate::wire::{Acl, EventKind};

/// The kind of a node's change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChangeKind {
    Created,
    Deleted,
    Data,
}

/// A change, with the access lists that decide which watchers get its events.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) kind: ChangeKind,
    pub(super) path: String,
    /// The node's list, or the list that it had before.
    pub(super) acl: Vec<Acl>,
    pub(super) parent_acl: Vec<Acl>,
}

/// Sessions with reads of an old state. Each is like a session of a server that follows the leader no further than it
/// must.
#[derive(Debug, Clone)]
pub(super) struct Stale {
    /// The state when this started.
    begin: View,
    /// All changes since.
    changes: Vec<Change>,
    /// The views of sessions that have seen more.
    views: HashMap<i64, View>,
}

/// The state that a session sees.
#[derive(Debug, Clone)]
struct View {
    tree: Arc<Tree>,
    zxid: i64,
    /// The number of changes that it contains.
    changes: usize,
}

impl Stale {
    fn view(&self, session: i64) -> &View {
        self.views.get(&session).unwrap_or(&self.begin)
    }
}

/// Events.
impl Core {
    /// Records a change, for [`publish`](Self::publish).
    pub(super) fn note(&mut self, change: Change) {
        self.changes.push(change);
    }

    /// Drops the recorded changes, which did not happen.
    pub(super) fn forget_changes(&mut self) {
        self.changes.clear();
    }

    /// Sends the events to the watchers. The session `by` must see all changes from now on.
    pub(super) fn publish(&mut self, by: Option<i64>) {
        let changes = std::mem::take(&mut self.changes);
        if let Some(published) = &mut self.published {
            published.extend_from_slice(&changes);
        }
        match &mut self.stale {
            None => {
                for change in &changes {
                    self.fire(change, None);
                }
            }
            Some(stale) => {
                stale.changes.extend(changes);
                if let Some(session) = by {
                    self.catch_up(session);
                }
            }
        }
    }

    pub(super) fn fire(&mut self, change: &Change, only: Option<ConnectionId>) {
        let Change { kind, path, acl, parent_acl } = change;
        let event = match kind {
            ChangeKind::Created => EventKind::NodeCreated,
            ChangeKind::Deleted => EventKind::NodeDeleted,
            ChangeKind::Data => EventKind::NodeDataChanged,
        };
        let mut hear = self.watches.trigger(WatchKind::Data, path, event, only);
        if *kind == ChangeKind::Deleted {
            // One event for a connection with both kinds of watch.
            hear.append(&mut self.watches.trigger(WatchKind::Child, path, event, only));
        }
        for watcher in hear {
            self.send_event_to_reader(watcher, event, path, acl);
        }
        if *kind == ChangeKind::Data {
            return;
        }
        if let Some(parent) = parent_path(path) {
            let event = EventKind::NodeChildrenChanged;
            for watcher in self.watches.trigger(WatchKind::Child, parent, event, only) {
                self.send_event_to_reader(watcher, event, parent, parent_acl);
            }
        }
    }

    /// Removes a watch without an event if its connection may not read the node.
    fn send_event_to_reader(&mut self, to: ConnectionId, kind: EventKind, path: &str, acl: &[Acl]) {
        if self.identities(to).is_some_and(|identities| identities.check(acl, READ).is_ok()) {
            self.send_event(to, kind, path);
        }
    }
}

/// Stale reads.
impl Core {
    /// Hides other sessions' writes from each session from now on, or shows all writes again.
    #[must_use]
    pub(super) fn set_stale_reads(&mut self, stale: bool) -> Vec<Output> {
        if stale && self.stale.is_none() {
            self.stale = Some(self.stale_from_now());
        } else if !stale && self.stale.is_some() {
            for session in self.session_ids() {
                self.catch_up(session);
            }
            self.stale = None;
        }
        self.take_outputs()
    }

    fn stale_from_now(&self) -> Stale {
        let begin = View { tree: Arc::new(self.tree.clone()), zxid: self.zxid(), changes: 0 };
        Stale { begin, changes: Vec::new(), views: HashMap::new() }
    }

    /// Starts stale reads again, from the state at a restart.
    pub(super) fn restart_stale_reads(&mut self) {
        self.changes.clear();
        if self.stale.is_some() {
            self.stale = Some(self.stale_from_now());
        }
    }

    /// Shows a session all changes up to now, after the events that it has missed.
    pub(super) fn catch_up(&mut self, session: i64) {
        let Some(mut stale) = self.stale.take() else {
            return;
        };
        if !self.is_live(session) {
            stale.views.remove(&session);
            self.stale = Some(stale);
            return;
        }
        let seen = stale.view(session).changes;
        if let Some(connection) = self.connection_of(session) {
            for change in &stale.changes[seen..] {
                self.fire(change, Some(connection));
            }
        }
        if seen < stale.changes.len() || stale.view(session).zxid < self.zxid() {
            let tree = Arc::new(self.tree.clone());
            let view = View { tree, zxid: self.zxid(), changes: stale.changes.len() };
            stale.views.insert(session, view);
        }
        self.stale = Some(stale);
    }

    /// Returns the tree that a session sees.
    pub(super) fn view(&self, session: i64) -> &Tree {
        match &self.stale {
            Some(stale) => &stale.view(session).tree,
            None => &self.tree,
        }
    }

    /// Returns the newest transaction that a session sees.
    pub(super) fn zxid_seen(&self, session: i64) -> i64 {
        match &self.stale {
            Some(stale) => stale.view(session).zxid,
            None => self.zxid(),
        }
    }
}

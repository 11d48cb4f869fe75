//! What has changed in the tree, and who is told when.

use std::collections::HashMap;
use std::sync::Arc;

use super::acl::READ;
use super::core::{ConnectionId, Core, Output};
use super::tree::{Tree, parent_path};
use super::watch::WatchKind;
use crate::wire::{Acl, EventKind};

/// What has happened to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChangeKind {
    Created,
    Deleted,
    Data,
}

/// A change, with the access lists that tell who may hear of it.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) kind: ChangeKind,
    pub(super) path: String,
    /// The node's list, or the one it had.
    pub(super) acl: Vec<Acl>,
    pub(super) parent_acl: Vec<Acl>,
}

/// Sessions that read what is no longer true. Each is as one whose server follows the
/// leader no further than it must.
#[derive(Debug, Clone)]
pub(super) struct Stale {
    /// How it was when this began.
    begin: View,
    /// Everything that has changed since.
    changes: Vec<Change>,
    /// What those see who have seen more.
    views: HashMap<i64, View>,
}

/// What a session sees.
#[derive(Debug, Clone)]
struct View {
    tree: Arc<Tree>,
    zxid: i64,
    /// How many of the changes are in it.
    changes: usize,
}

impl Stale {
    fn view(&self, session: i64) -> &View {
        self.views.get(&session).unwrap_or(&self.begin)
    }
}

/// Telling.
impl Core {
    /// Takes note of a change, for [`publish`](Self::publish).
    pub(super) fn note(&mut self, change: Change) {
        self.changes.push(change);
    }

    /// The changes have not been.
    pub(super) fn forget_changes(&mut self) {
        self.changes.clear();
    }

    /// Tells who watches. `by` is the session that must see everything from now on.
    pub(super) fn publish(&mut self, by: Option<i64>) {
        let changes = std::mem::take(&mut self.changes);
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

    fn fire(&mut self, change: &Change, only: Option<ConnectionId>) {
        let Change { kind, path, acl, parent_acl } = change;
        let event = match kind {
            ChangeKind::Created => EventKind::NodeCreated,
            ChangeKind::Deleted => EventKind::NodeDeleted,
            ChangeKind::Data => EventKind::NodeDataChanged,
        };
        let mut hear = self.watches.trigger(WatchKind::Data, path, event, only);
        if *kind == ChangeKind::Deleted {
            // Once for both kinds of watch.
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

    /// The watch of one who may not read the node is used up in silence.
    fn send_event_to_reader(&mut self, to: ConnectionId, kind: EventKind, path: &str, acl: &[Acl]) {
        if self.identities(to).is_some_and(|identities| identities.check(acl, READ).is_ok()) {
            self.send_event(to, kind, path);
        }
    }
}

/// Reads that lag behind.
impl Core {
    /// From now on sessions do not see what others write, or see everything again.
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

    /// After a restart everyone sees how it is then, and may lag from there.
    pub(super) fn restart_stale_reads(&mut self) {
        self.changes.clear();
        if self.stale.is_some() {
            self.stale = Some(self.stale_from_now());
        }
    }

    /// The session sees everything up to now, after the events that it has missed.
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

    /// The tree as a session sees it.
    pub(super) fn view(&self, session: i64) -> &Tree {
        match &self.stale {
            Some(stale) => &stale.view(session).tree,
            None => &self.tree,
        }
    }

    /// The newest transaction that a session sees.
    pub(super) fn zxid_seen(&self, session: i64) -> i64 {
        match &self.stale {
            Some(stale) => stale.view(session).zxid,
            None => self.zxid(),
        }
    }
}

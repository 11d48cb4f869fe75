//! The writes that a client has seen.

use std::collections::VecDeque;
use std::sync::Arc;

use curator_wire::ErrorCode;
use foldhash::HashMap;

use crate::error::Error;
use crate::model::path::parent_of;
use crate::model::{EventType, Stat, WatchedEvent};
use crate::zookeeper::{Done, Operation, Read, ReadDone, Request, Response};

/// The number of writes, and of deletions, that a comparison can use.
pub(super) const COMPARED: usize = 64;
/// The number of writes above which the oldest are forgotten.
pub(super) const KEPT: usize = 2 * COMPARED;

/// The newest write to a node, as a stat shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Write {
    pub(super) czxid: i64,
    pub(super) mzxid: i64,
    pub(super) pzxid: i64,
    pub(super) ctime: i64,
    pub(super) mtime: i64,
}

impl Write {
    pub(super) const fn of(stat: &Stat) -> Self {
        let Stat { czxid, mzxid, pzxid, ctime, mtime, .. } = *stat;
        Self { czxid, mzxid, pzxid, ctime, mtime }
    }

    pub(super) fn newest(&self) -> i64 {
        self.mzxid.max(self.pzxid)
    }
}

/// A node that did not exist when the server had this transaction, or one of those just before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Deletion {
    pub(super) zxid: i64,
    /// The transaction that had created the node.
    pub(super) czxid: i64,
}

/// Returns `true` for the root, which is in all histories, and for nodes such as the configuration, which each server
/// writes for itself.
fn is_of_each_server(path: &str, stat: &Stat) -> bool {
    stat.mzxid == 0 || path.starts_with("/zookeeper/")
}

/// The newest writes that replies have shown.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(super) writes: HashMap<Arc<str>, Write>,
    /// The known node that was deleted last, and its `czxid`. Its event may precede the reply to its delete.
    last_known: Option<(Arc<str>, i64)>,
    /// The newest deletions of known nodes, the newest last. A restored node of this session would exist as long as the
    /// session.
    pub(super) deleted: VecDeque<(Arc<str>, Deletion)>,
    /// The newest change of children of a node without a known write: the node, and a transaction not later than the change.
    pub(super) changed: Option<(Arc<str>, i64)>,
    /// The newest write that was forgotten because newer ones need the room.
    pub(super) forgotten: i64,
}

impl History {
    /// Creates the history of nodes that were read before.
    pub(crate) fn of(nodes: impl IntoIterator<Item = (String, Stat)>) -> Self {
        let mut history = Self::default();
        nodes.into_iter().for_each(|(path, stat)| history.wrote(&path.into(), &stat));
        history
    }

    /// Records what a reply shows.
    pub(crate) fn replied(&mut self, request: &Request, result: &Result<Response, Error>, zxid: i64) {
        match (request, result) {
            (_, Ok(Response::Created { path, stat }))
            | (Request::Exists { path, .. }, Ok(Response::Exists(Some(stat))))
            | (Request::GetData { path, .. }, Ok(Response::Data(_, stat)))
            | (Request::SetData { path, .. } | Request::SetAcl { path, .. }, Ok(Response::Stat(stat)))
            | (Request::GetAcl { path }, Ok(Response::Acl(_, stat))) => self.wrote(path, stat),
            (Request::Exists { path, .. }, Ok(Response::Exists(None)))
            | (Request::GetData { path, .. }, Err(Error::NoNode { .. }))
            // The reply to an earlier delete may be lost.
            | (Request::Delete { path, .. }, Ok(Response::Deleted) | Err(Error::NoNode { .. })) => {
                self.is_missing(path, zxid);
            }
            (Request::Transaction { operations }, Ok(Response::Done(all))) => {
                operations.iter().zip(all).for_each(|(operation, done)| self.done(operation, done, zxid));
            }
            (Request::MultiRead { reads }, Ok(Response::Reads(all))) => {
                reads.iter().zip(all).for_each(|(read, done)| self.read(read, done, zxid));
            }
            _ => {}
        }
    }

    /// Records the result of one of several reads.
    fn read(&mut self, read: &Read, done: &ReadDone, zxid: i64) {
        match (read, done) {
            (Read::GetData { path }, ReadDone::Data(_, stat)) => match self.writes.get_mut(&**path) {
                Some(write) => *write = Write::of(stat),
                None if is_of_each_server(path, stat) => {}
                None => self.insert(path.as_str().into(), stat),
            },
            (Read::GetData { path }, ReadDone::Failed(code)) if *code == ErrorCode::NoNode.code() => {
                self.is_missing(path, zxid);
            }
            _ => {}
        }
    }

    /// Records the result of an operation of a transaction.
    pub(super) fn done(&mut self, operation: &Operation, done: &Done, zxid: i64) {
        match done {
            Done::Created { path, stat } if stat.czxid != 0 => self.wrote_in_transaction(path, stat),
            // The server has sent no stat. The same transaction may have deleted a node of this path.
            Done::Created { path, .. } => self.deleted.retain(|(deleted, _)| **deleted != **path),
            Done::Set(stat) => self.wrote_in_transaction(operation.path(), stat),
            Done::Deleted => self.is_missing(operation.path(), zxid),
            _ => {}
        }
    }

    /// Records the stat of a node.
    pub(super) fn wrote(&mut self, path: &Arc<str>, stat: &Stat) {
        match self.writes.get_mut(path) {
            Some(write) => *write = Write::of(stat),
            None if is_of_each_server(path, stat) => {}
            None => self.insert(Arc::clone(path), stat),
        }
    }

    /// Records the stat of a node of a transaction.
    pub(super) fn wrote_in_transaction(&mut self, path: &str, stat: &Stat) {
        match self.writes.get_mut(path) {
            Some(write) => *write = Write::of(stat),
            None => self.insert(path.into(), stat),
        }
    }

    fn insert(&mut self, path: Arc<str>, stat: &Stat) {
        self.writes.insert(path, Write::of(stat));
        if self.writes.len() > KEPT {
            let mut all: Vec<_> = self.writes.values().map(Write::newest).collect();
            let (_, &mut oldest, _) = all.select_nth_unstable(KEPT - COMPARED);
            // One transaction may have written them all.
            let mut room = COMPARED - self.writes.values().filter(|write| write.newest() > oldest).count();
            self.writes.retain(|_, write| {
                let is_kept = write.newest() == oldest && room > 0;
                room -= usize::from(is_kept);
                is_kept || write.newest() > oldest
            });
            self.forgotten = self.forgotten.max(oldest);
        }
    }

    /// Records that a node does not exist, as of this transaction.
    pub(crate) fn is_missing(&mut self, path: &str, zxid: i64) {
        self.forget(path);
        if let Some((path, czxid)) = self.last_known.take_if(|(known, _)| **known == *path) {
            self.deleted.push_back((path, Deletion { zxid, czxid }));
        }
        if self.deleted.len() > COMPARED {
            self.deleted.pop_front();
        }
    }

    pub(super) fn forget(&mut self, path: &str) {
        if let Some((path, write)) = self.writes.remove_entry(path) {
            self.last_known = Some((path, write.czxid));
        }
    }

    /// Records the event of a transaction behind this one; `None` if it may be any. After a change of its children, a node
    /// has a pzxid of that transaction or a later one, even if the client does not read its stat again.
    pub(crate) fn notified(&mut self, event: &WatchedEvent, zxid: Option<i64>) {
        let path = &*event.path;
        let parent = match event.event_type {
            EventType::NodeDeleted => {
                self.forget(path);
                parent_of(path)
            }
            EventType::NodeCreated => parent_of(path),
            EventType::NodeChildrenChanged => path,
            EventType::NodeDataChanged => return,
        };
        // A wrong server may send any number.
        let Some(newer) = zxid.map(|zxid| zxid.saturating_add(1)) else { return };
        match (self.writes.get_mut(parent), &mut self.changed) {
            (Some(write), _) => write.pzxid = write.pzxid.max(newer),
            (None, Some((known, pzxid))) if **known == *parent => *pzxid = (*pzxid).max(newer),
            (None, changed) if changed.as_ref().is_none_or(|(_, pzxid)| *pzxid <= newer) => {
                *changed = Some((parent.into(), newer));
            }
            _ => {}
        }
    }
}

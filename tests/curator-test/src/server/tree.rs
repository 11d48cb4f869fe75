//! The tree of nodes, and the arithmetic of their `Stat`.

use std::collections::hash_map::{DefaultHasher, Entry};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::BuildHasherDefault;

use crate::wire::{Acl, ErrorCode, Stat};

/// The owner of a container. Its `Stat` does not show it, as in Apache.
pub(super) const CONTAINER_OWNER: i64 = i64::MIN;
/// The owner of a node with a time to live is this plus the milliseconds. No session id is in this range.
const TTL_OWNER: i64 = 0xff << 56;
/// The longest time to live, in milliseconds.
const MAX_TTL: i64 = 0xff_ffff_ffff;

/// Returns the owner of a node with a time to live. `None` if the time is too long.
pub(super) const fn ttl_owner(ttl_ms: i64) -> Option<i64> {
    if ttl_ms > 0 && ttl_ms <= MAX_TTL { Some(TTL_OWNER | ttl_ms) } else { None }
}

/// Nodes that every server has.
const SYSTEM_PATHS: [&str; 4] = ["/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"];

/// Names of children in no useful order, as Apache lists them, yet the same in every run, so that tests find a client
/// that forgets to sort.
type Names = HashSet<String, BuildHasherDefault<DefaultHasher>>;

/// The transaction and the wall clock of a write.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stamp {
    pub(super) zxid: i64,
    pub(super) wall_ms: i64,
}

/// One node.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) data: Option<Vec<u8>>,
    pub(super) acl: Vec<Acl>,
    children: Names,
    /// The number of children ever created. It numbers sequential nodes.
    creates: i32,
    czxid: i64,
    mzxid: i64,
    pzxid: i64,
    ctime: i64,
    mtime: i64,
    version: i32,
    aversion: i32,
    owner: i64,
}

impl Node {
    fn new(data: Option<Vec<u8>>, acl: Vec<Acl>, owner: i64, at: Stamp) -> Self {
        Self {
            data,
            acl,
            children: Names::default(),
            creates: 0,
            czxid: at.zxid,
            mzxid: at.zxid,
            pzxid: at.zxid,
            ctime: at.wall_ms,
            mtime: at.wall_ms,
            version: 0,
            aversion: 0,
            owner,
        }
    }

    pub(super) fn stat(&self) -> Stat {
        let children = self.children.len() as i32;
        Stat {
            czxid: self.czxid,
            mzxid: self.mzxid,
            ctime: self.ctime,
            mtime: self.mtime,
            version: self.version,
            // Creates plus deletes: a created node that is not a child was deleted.
            cversion: self.creates.wrapping_mul(2).wrapping_sub(children),
            aversion: self.aversion,
            ephemeral_owner: if self.is_ephemeral() { self.owner } else { 0 },
            data_length: self.data.as_ref().map_or(0, |data| data.len() as i32),
            num_children: children,
            pzxid: self.pzxid,
        }
    }

    /// Returns the names of the children, in no useful order.
    pub(super) fn children(&self) -> impl ExactSizeIterator<Item = &String> {
        self.children.iter()
    }

    /// Returns whether a session owns it: then it cannot have children.
    const fn is_ephemeral(&self) -> bool {
        self.owner != 0 && !self.is_reapable()
    }

    /// Returns whether the server deletes it one day, childless.
    const fn is_reapable(&self) -> bool {
        self.owner == CONTAINER_OWNER || self.ttl().is_some()
    }

    const fn ttl(&self) -> Option<i64> {
        if self.owner & !MAX_TTL == TTL_OWNER { Some(self.owner & MAX_TTL) } else { None }
    }

    /// Returns whether the server may delete it now: a childless container that had children, or a childless node that
    /// has outlived its time.
    fn is_due(&self, wall_ms: i64) -> bool {
        let is_over = match self.ttl() {
            Some(ttl) => wall_ms.saturating_sub(self.mtime) > ttl,
            None => self.owner == CONTAINER_OWNER && self.creates > 0,
        };
        is_over && self.children.is_empty()
    }
}

/// A node to create.
#[derive(Debug)]
pub(super) struct NodeSpec {
    pub(super) data: Option<Vec<u8>>,
    pub(super) acl: Vec<Acl>,
    /// The session, [`CONTAINER_OWNER`], a [`ttl_owner`], or 0.
    pub(super) owner: i64,
    pub(super) sequential: bool,
}

/// All nodes, by path.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    nodes: HashMap<String, Node>,
    /// The paths that each session owns, in order.
    ephemerals: HashMap<i64, BTreeSet<String>>,
    /// Containers and nodes with a time to live.
    reapable: BTreeSet<String>,
    /// Counters that have run over the end, by the parent's path. Apache has them only while requests wait to be
    /// carried out.
    overrun: HashMap<String, i32>,
    /// The state to restore, while a write can be undone.
    undo: Option<Undo>,
}

/// The nodes before they were changed, the latest change last.
#[derive(Debug, Clone)]
struct Undo {
    nodes: Vec<(String, Option<Node>)>,
    overrun: HashMap<String, i32>,
}

impl Tree {
    pub(super) fn new() -> Self {
        let origin = Stamp { zxid: 0, wall_ms: 0 };
        let mut tree = Self {
            nodes: HashMap::new(),
            ephemerals: HashMap::new(),
            reapable: BTreeSet::new(),
            overrun: HashMap::new(),
            undo: None,
        };
        for path in SYSTEM_PATHS {
            let node = Node::new(Some(Vec::new()), vec![Acl::open()], 0, origin);
            tree.nodes.insert(path.to_owned(), node);
            // Apache makes these nodes without counting them as created.
            if let Some((parent, name)) = split(path).filter(|(_, name)| !name.is_empty()) {
                if let Some(parent) = tree.nodes.get_mut(parent) {
                    parent.children.insert(name.to_owned());
                }
            }
        }
        if let Some(config) = tree.nodes.get_mut("/zookeeper/config") {
            config.acl[0].perms = super::acl::READ;
            config.aversion = -1;
        }
        tree
    }

    pub(super) fn get(&self, path: &str) -> Result<&Node, ErrorCode> {
        self.nodes.get(path).ok_or(ErrorCode::NoNode)
    }

    pub(super) fn contains(&self, path: &str) -> bool {
        self.nodes.contains_key(path)
    }

    /// Returns the parent of `path`, without a check of the rest of the path.
    pub(super) fn parent_of(&self, path: &str) -> Result<&Node, ErrorCode> {
        self.get(parent_path(path).ok_or(ErrorCode::BadArguments)?)
    }

    /// Creates a node and returns its path.
    pub(super) fn create(&mut self, path: &str, new: NodeSpec, at: Stamp) -> Result<String, ErrorCode> {
        let parent_path = parent_path(path).ok_or(ErrorCode::BadArguments)?;
        let parent = self.get(parent_path)?;
        let number = self.overrun.get(parent_path).copied().unwrap_or(parent.creates);
        let path = if new.sequential { format!("{path}{number:010}") } else { path.to_owned() };
        if !is_valid(&path) {
            return Err(ErrorCode::BadArguments);
        }
        let name = split(&path).map(|(_, name)| name.to_owned()).unwrap_or_default();
        if path == "/" || parent.children.contains(&name) {
            return Err(ErrorCode::NodeExists);
        }
        if parent.is_ephemeral() {
            return Err(ErrorCode::NoChildrenForEphemerals);
        }
        self.remember(parent_path);
        self.remember(&path);
        let next = number.wrapping_add(1);
        let parent = self.nodes.get_mut(parent_path).ok_or(ErrorCode::NoNode)?;
        parent.children.insert(name);
        // Apache takes the new count only if it is higher, so at the end of the
        // 32-bit range the count stays where it is, and `pzxid` with it.
        if next > parent.creates {
            parent.creates = next;
            parent.pzxid = at.zxid;
        } else {
            self.overrun.insert(parent_path.to_owned(), next);
        }
        self.insert(path.clone(), Node::new(new.data, new.acl, new.owner, at));
        Ok(path)
    }

    /// Deletes a node without children and returns its access list.
    pub(super) fn delete(&mut self, path: &str, at: Stamp) -> Result<Vec<Acl>, ErrorCode> {
        if is_permanent(path) {
            return Err(ErrorCode::BadArguments);
        }
        if !self.get(path)?.children.is_empty() {
            return Err(ErrorCode::NotEmpty);
        }
        self.remember(path);
        let node = self.remove(path).ok_or(ErrorCode::NoNode)?;
        self.overrun.remove(path);
        if let Some((parent_path, name)) = split(path) {
            self.remember(parent_path);
            if let Some(parent) = self.nodes.get_mut(parent_path) {
                parent.children.remove(name);
                parent.pzxid = at.zxid;
            }
        }
        Ok(node.acl)
    }

    pub(super) fn set_data(&mut self, path: &str, data: Option<Vec<u8>>, at: Stamp) -> Result<Stat, ErrorCode> {
        self.remember(path);
        let node = self.nodes.get_mut(path).ok_or(ErrorCode::NoNode)?;
        node.data = data;
        node.version = node.version.wrapping_add(1);
        node.mzxid = at.zxid;
        node.mtime = at.wall_ms;
        Ok(node.stat())
    }

    pub(super) fn set_acl(&mut self, path: &str, acl: Vec<Acl>) -> Result<Stat, ErrorCode> {
        let node = self.nodes.get_mut(path).ok_or(ErrorCode::NoNode)?;
        node.acl = acl;
        node.aversion = node.aversion.wrapping_add(1);
        Ok(node.stat())
    }

    /// Returns the nodes that `session` owns, in order.
    pub(super) fn ephemerals_of(&self, session: i64) -> Vec<String> {
        self.ephemerals.get(&session).into_iter().flatten().cloned().collect()
    }

    /// Returns the number of nodes below `path`.
    pub(super) fn count_below(&self, path: &str) -> usize {
        match path {
            "/" => self.len() - 1,
            _ => self.nodes.keys().filter(|other| is_below(path, other)).count(),
        }
    }

    /// Returns the number of nodes.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the sum of the lengths of all paths and data.
    pub(super) fn size(&self) -> usize {
        self.nodes.iter().map(|(path, node)| path.len() + node.data.as_ref().map_or(0, Vec::len)).sum()
    }

    /// Returns the nodes that sessions own, by session.
    pub(super) fn ephemerals(&self) -> BTreeMap<i64, &BTreeSet<String>> {
        self.ephemerals.iter().map(|(session, paths)| (*session, paths)).collect()
    }

    /// Returns the number of nodes that sessions own.
    pub(super) fn ephemerals_len(&self) -> usize {
        self.ephemerals.values().map(BTreeSet::len).sum()
    }

    /// Returns whether the server may have to delete a node one day.
    pub(super) fn has_reapable(&self) -> bool {
        !self.reapable.is_empty()
    }

    /// Returns the nodes that the server may delete now, in order.
    pub(super) fn due(&self, wall_ms: i64) -> Vec<String> {
        let is_due = |path: &&String| self.nodes.get(*path).is_some_and(|node| node.is_due(wall_ms));
        self.reapable.iter().filter(is_due).cloned().collect()
    }

    /// Makes all changes from now on undoable.
    pub(super) fn begin(&mut self) {
        self.undo = Some(Undo { nodes: Vec::new(), overrun: self.overrun.clone() });
    }

    /// Keeps all changes since [`begin`](Self::begin).
    pub(super) fn commit(&mut self) {
        self.undo = None;
    }

    /// Undoes everything since [`begin`](Self::begin).
    pub(super) fn roll_back(&mut self) {
        let Some(undo) = self.undo.take() else {
            return;
        };
        for (path, node) in undo.nodes.into_iter().rev() {
            self.remove(&path);
            if let Some(node) = node {
                self.insert(path, node);
            }
        }
        self.overrun = undo.overrun;
    }

    /// Drops the overrun counters: no more requests wait, so the nodes' counters apply.
    pub(super) fn forget_overruns(&mut self) {
        self.overrun.clear();
    }

    fn remember(&mut self, path: &str) {
        if let Some(undo) = &mut self.undo {
            undo.nodes.push((path.to_owned(), self.nodes.get(path).cloned()));
        }
    }

    fn insert(&mut self, path: String, node: Node) {
        if node.is_ephemeral() {
            self.ephemerals.entry(node.owner).or_default().insert(path.clone());
        } else if node.is_reapable() {
            self.reapable.insert(path.clone());
        }
        self.nodes.insert(path, node);
    }

    fn remove(&mut self, path: &str) -> Option<Node> {
        let node = self.nodes.remove(path)?;
        if let Entry::Occupied(mut owned) = self.ephemerals.entry(node.owner) {
            owned.get_mut().remove(path);
            if owned.get().is_empty() {
                owned.remove();
            }
        }
        self.reapable.remove(path);
        Some(node)
    }

    /// Sets the number of the next sequential child. Returns false if the node does not exist.
    pub(super) fn set_next_sequence(&mut self, path: &str, next: i32) -> bool {
        match self.nodes.get_mut(path) {
            Some(node) => {
                node.creates = next;
                self.overrun.remove(path);
                true
            }
            None => false,
        }
    }

    /// Sets the version of a node's data. Returns false if the node does not exist.
    pub(super) fn set_version(&mut self, path: &str, version: i32) -> bool {
        self.nodes.get_mut(path).map(|node| node.version = version).is_some()
    }
}

/// Returns the parent's path and the name; the root is its own parent, with no name.
pub(super) fn split(path: &str) -> Option<(&str, &str)> {
    match path.rsplit_once('/')? {
        ("", name) => Some(("/", name)),
        both => Some(both),
    }
}

/// Returns the path of the parent.
pub(super) fn parent_path(path: &str) -> Option<&str> {
    if path.contains('\0') {
        return None;
    }
    split(path).map(|(parent, _)| parent)
}

fn is_below(path: &str, other: &str) -> bool {
    other.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'))
}

/// Returns whether the node cannot be deleted.
pub(super) fn is_permanent(path: &str) -> bool {
    SYSTEM_PATHS.contains(&path)
}

/// Returns whether Apache lets a node have this path.
pub(super) fn is_valid(path: &str) -> bool {
    // Java checks UTF-16 units: characters beyond them show as surrogates, which are refused.
    let is_refused = |c: char| matches!(u32::from(c), 0..=0x1f | 0x7f..=0x9f | 0xd800..=0xf8ff | 0xfff0..=u32::MAX);
    match path.strip_prefix('/') {
        Some("") => true,
        Some(names) => names.split('/').all(|name| !matches!(name, "" | "." | "..")) && !names.contains(is_refused),
        None => false,
    }
}

#[cfg(test)]
mod tests;

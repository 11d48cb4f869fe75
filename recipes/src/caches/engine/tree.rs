//! The cached nodes: a tree in which each node has the name of one path segment, so that paths share memory.
//!
//! The nodes are in chunks of an arena. A map of full paths needs a third more memory.

use std::sync::Arc;

use curator_framework::Stat;

use crate::caches::model::ChildData;

/// The number of nodes in one allocation. One vector of all nodes would need twice their memory when it grows.
const CHUNK: usize = 1024;

/// The root's index.
const ROOT: u32 = 0;

/// The length from which on data is shared with the events of its node, instead of copied.
pub(super) const SHARED: usize = 4096;

/// A cached node, laid out for little memory: a cache may have a million.
#[derive(Debug)]
struct Node {
    content: Content,
    name_len: u32,
    parent: u32,
    /// The children in the order of their names.
    #[expect(
        clippy::box_collection,
        reason = "most nodes have no children, and a vector would take three words of each"
    )]
    children: Option<Box<Vec<u32>>>,
    /// The round in which the node was read or confirmed.
    round: u32,
    value: Value,
    /// A child was removed since the stat was read, so the stat may be the older one.
    has_old_stat: bool,
    stat: Stat,
}

/// The name and the data of a node. It takes 16 bytes in its node.
#[derive(Debug)]
enum Content {
    /// The name, then the data: one allocation.
    Owned(Box<[u8]>),
    /// The node's path ends with the name.
    Shared(Arc<ChildData>),
}

/// The meaning of a cached node's stat and data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::caches) enum Value {
    /// They are from the newest read.
    Present,
    /// They are from the last read that succeeded. The server refused the newest read.
    Earlier,
    /// Nothing: no read has succeeded.
    Unknown,
}

impl Node {
    fn new(parent: u32, name: &str, round: u32, stat: &Stat, content: Content) -> Self {
        // A name fits into a request, so it is much shorter than 4 GiB.
        let name_len = u32::try_from(name.len()).unwrap_or(u32::MAX);
        let (value, has_old_stat) = (Value::Present, false);
        Self { content, name_len, parent, children: None, round, value, has_old_stat, stat: *stat }
    }

    fn name(&self) -> &[u8] {
        let length = self.name_len as usize;
        match &self.content {
            Content::Owned(name_and_data) => &name_and_data[..length],
            Content::Shared(node) => &node.path.as_bytes()[node.path.len() - length..],
        }
    }

    fn entry(&self) -> Entry<'_> {
        let (data, shared) = match &self.content {
            Content::Owned(name_and_data) => (&name_and_data[self.name_len as usize..], None),
            Content::Shared(node) => (&*node.data, Some(node)),
        };
        let Self { stat, value, round, has_old_stat, .. } = self;
        Entry { stat, data, shared, value: *value, round: *round, has_old_stat: *has_old_stat }
    }

    fn children(&self) -> &[u32] {
        self.children.as_deref().map_or(&[], Vec::as_slice)
    }
}

/// A cached node: its stat and its data, which is empty if the cache does not keep data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::caches) struct Entry<'a> {
    pub(in crate::caches) stat: &'a Stat,
    pub(in crate::caches) data: &'a [u8],
    /// The node with its data, if it is shared.
    shared: Option<&'a Arc<ChildData>>,
    pub(in crate::caches) value: Value,
    pub(super) round: u32,
    /// A child was removed since the stat was read.
    has_old_stat: bool,
}

impl Entry<'_> {
    pub(in crate::caches) fn is_present(&self) -> bool {
        self.value == Value::Present
    }

    /// Returns the node with its full path. Copies data that is not shared.
    pub(in crate::caches) fn to_node(self, path: impl FnOnce() -> String) -> Arc<ChildData> {
        match self.shared.filter(|node| node.stat == *self.stat) {
            Some(node) => Arc::clone(node),
            None => Arc::new(ChildData { path: path(), stat: *self.stat, data: self.data.to_vec() }),
        }
    }
}

/// The cached nodes. Paths are relative to the root: empty for it, otherwise `/a/b`.
#[derive(Debug, Default)]
pub(in crate::caches) struct Tree {
    chunks: Vec<Vec<Option<Node>>>,
    free: Vec<u32>,
    len: usize,
}

impl Tree {
    pub(in crate::caches) fn len(&self) -> usize {
        self.len
    }

    fn node(&self, index: u32) -> Option<&Node> {
        let index = index as usize;
        self.chunks.get(index / CHUNK)?.get(index % CHUNK)?.as_ref()
    }

    fn node_mut(&mut self, index: u32) -> Option<&mut Node> {
        let index = index as usize;
        self.chunks.get_mut(index / CHUNK)?.get_mut(index % CHUNK)?.as_mut()
    }

    fn allocate(&mut self, node: Node) -> u32 {
        self.len += 1;
        if let Some(index) = self.free.pop() {
            let place = index as usize;
            self.chunks[place / CHUNK][place % CHUNK] = Some(node);
            return index;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let full = (self.chunks.len() - 1) * CHUNK;
        let last = self.chunks.last_mut().map_or(0, |chunk| {
            chunk.push(Some(node));
            chunk.len() - 1
        });
        u32::try_from(full + last).unwrap_or(u32::MAX)
    }

    /// Returns the position of a child among its siblings, or the error with the position at which to insert it.
    fn place(&self, parent: &Node, name: &str) -> Result<usize, usize> {
        let name_of = |&index: &u32| self.node(index).map_or(&[][..], Node::name);
        parent.children().binary_search_by(|index| name_of(index).cmp(name.as_bytes()))
    }

    fn find(&self, path: &str) -> Option<u32> {
        self.node(ROOT)?;
        let mut index = ROOT;
        for name in path.split('/').skip(1) {
            let parent = self.node(index)?;
            index = parent.children()[self.place(parent, name).ok()?];
        }
        Some(index)
    }

    fn entry(&self, index: u32) -> Option<Entry<'_>> {
        self.node(index).map(Node::entry)
    }

    pub(in crate::caches) fn get(&self, path: &str) -> Option<Entry<'_>> {
        self.entry(self.find(path)?)
    }

    /// Returns the names of the children in their order; `None` if the node is not cached.
    pub(in crate::caches) fn children(&self, path: &str) -> Option<Vec<String>> {
        let node = self.node(self.find(path)?)?;
        let name = |&index: &u32| Some(String::from_utf8_lossy(self.node(index)?.name()).into_owned());
        Some(node.children().iter().filter_map(name).collect())
    }

    /// Calls `visit` with each cached path: a node before its children, and those in the order of their names.
    pub(in crate::caches) fn for_each(&self, mut visit: impl FnMut(&str, Entry<'_>)) {
        let mut path = String::new();
        // Not a recursion: a path may have more segments than a stack has room for.
        let mut below = vec![(ROOT, 0)];
        while let Some((index, length)) = below.pop() {
            let (Some(node), Some(entry)) = (self.node(index), self.entry(index)) else { continue };
            path.truncate(length);
            self.push_name(&mut path, node);
            visit(&path, entry);
            below.extend(node.children().iter().rev().map(|&child| (child, path.len())));
        }
    }

    /// Appends the name of a node to its parent's path.
    fn push_name(&self, path: &mut String, node: &Node) {
        if !node.name().is_empty() {
            path.push('/');
            path.push_str(&String::from_utf8_lossy(node.name()));
        }
    }

    /// Sets the node at a path. Returns `false` if its parent is not cached.
    pub(super) fn set(&mut self, path: &str, round: u32, stat: &Stat, data: &[u8]) -> bool {
        let content = [name_of(path).as_bytes(), data].concat().into_boxed_slice();
        self.put(path, round, stat, Content::Owned(content))
    }

    /// Sets the node at a path to one that events have too, without a copy of its data.
    pub(super) fn set_shared(&mut self, path: &str, round: u32, node: Arc<ChildData>) -> bool {
        let stat = node.stat;
        self.put(path, round, &stat, Content::Shared(node))
    }

    /// Records that a node exists and cannot be read. It keeps its children, and the last value that could be read. Returns
    /// `false` if its parent is not cached.
    pub(super) fn hide(&mut self, path: &str, round: u32, stat: Option<&Stat>) -> bool {
        let found = self.find(path);
        if found.is_none() && !self.set(path, round, &stat.copied().unwrap_or_default(), &[]) {
            return false;
        }
        if let Some(node) = found.or_else(|| self.find(path)).and_then(|index| self.node_mut(index)) {
            node.round = round;
            let is_known = found.is_some() && node.value != Value::Unknown;
            node.value = if is_known { Value::Earlier } else { Value::Unknown };
            if let Some(stat) = stat.filter(|_| !is_known) {
                node.stat = *stat;
            }
        }
        true
    }

    fn put(&mut self, path: &str, round: u32, stat: &Stat, content: Content) -> bool {
        let name = name_of(path);
        if let Some(node) = self.find(path).and_then(|index| self.node_mut(index)) {
            let (parent, children) = (node.parent, node.children.take());
            *node = Node { children, ..Node::new(parent, name, round, stat, content) };
            return true;
        }
        let Some((parent, _)) = path.rsplit_once('/') else {
            self.allocate(Node::new(ROOT, "", round, stat, content));
            return true;
        };
        let Some(parent) = self.find(parent) else { return false };
        let Some(Err(place)) = self.node(parent).map(|node| self.place(node, name)) else { return false };
        let index = self.allocate(Node::new(parent, name, round, stat, content));
        if let Some(parent) = self.node_mut(parent) {
            parent.children.get_or_insert_default().insert(place, index);
        }
        true
    }

    /// Forgets the last value of a hidden node.
    pub(super) fn forget(&mut self, path: &str) {
        if let Some(node) = self.find(path).and_then(|index| self.node_mut(index)) {
            node.value = Value::Unknown;
        }
    }

    /// Records that a read has shown the cached data of a node, and replaces its stat.
    pub(super) fn confirm(&mut self, path: &str, round: u32, stat: &Stat) {
        if let Some(node) = self.find(path).and_then(|index| self.node_mut(index)) {
            (node.round, node.stat, node.has_old_stat) = (round, *stat, false);
        }
    }

    /// Returns the paths of the nodes that have lost a child since their stat was read.
    pub(in crate::caches) fn old_stats(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.for_each(|path, entry| paths.extend(entry.has_old_stat.then(|| path.to_owned())));
        paths
    }

    /// Records that a child of a node was removed since its stat was read.
    pub(super) fn has_old_stat(&mut self, path: &str) {
        if let Some(node) = self.find(path).and_then(|index| self.node_mut(index)) {
            node.has_old_stat = true;
        }
    }

    /// Removes the node at a path with all nodes below it. Calls `removed` for each, children before their parents.
    pub(super) fn remove(&mut self, path: &str, removed: &mut impl FnMut(&str, Entry<'_>)) {
        let Some(index) = self.find(path) else { return };
        if let Some((parent, name)) = path.rsplit_once('/') {
            let parent = self.find(parent);
            let place = parent.and_then(|parent| self.place(self.node(parent)?, name).ok());
            if let (Some(node), Some(place)) = (parent.and_then(|parent| self.node_mut(parent)), place) {
                if let Some(children) = &mut node.children {
                    children.remove(place);
                }
                node.children.take_if(|children| children.is_empty());
            }
        }
        let above = path.rsplit_once('/').map_or(0, |(parent, _)| parent.len());
        self.take(index, path[..above].to_owned(), removed);
    }

    /// Frees a node and all nodes below it. `path` is the path of its parent.
    fn take(&mut self, index: u32, mut path: String, removed: &mut impl FnMut(&str, Entry<'_>)) {
        // Each node is visited twice: before its children, and after them.
        let mut below = vec![(index, path.len(), false)];
        while let Some((index, length, is_behind)) = below.pop() {
            path.truncate(length);
            if let Some(node) = self.node(index) {
                self.push_name(&mut path, node);
            }
            if !is_behind {
                below.push((index, length, true));
                let children = self.node_mut(index).and_then(|node| node.children.take());
                let children = children.into_iter().flat_map(|children| children.into_iter().rev());
                below.extend(children.map(|child| (child, path.len(), false)));
                continue;
            }
            let place = index as usize;
            if let Some(node) = self.chunks[place / CHUNK][place % CHUNK].take() {
                removed(&path, node.entry());
                self.free.push(index);
                self.len -= 1;
            }
        }
        if self.len == 0 {
            // The next root has the first index again.
            *self = Self::default();
        }
    }
}

/// Returns the last segment of a path.
fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(czxid: i64) -> Stat {
        Stat { czxid, ..Stat::default() }
    }

    fn paths(tree: &Tree) -> Vec<String> {
        let mut paths = Vec::new();
        tree.for_each(|path, _| paths.push(path.to_owned()));
        paths
    }

    #[test]
    fn nodes_are_kept_in_the_order_of_their_paths() {
        let mut tree = Tree::default();
        assert!(!tree.set("/a", 0, &stat(1), b""), "the parent is missing");
        for path in ["", "/b", "/a", "/b/2", "/b/1", "/a-"] {
            assert!(tree.set(path, 0, &stat(1), path.as_bytes()));
        }
        assert_eq!(paths(&tree), ["", "/a", "/a-", "/b", "/b/1", "/b/2"]);
        assert_eq!(tree.children("/b"), Some(vec!["1".to_owned(), "2".to_owned()]));
        assert_eq!(tree.get("/b/2").map(|entry| entry.data), Some(&b"/b/2"[..]));
        assert_eq!(tree.len(), 6);
    }

    #[test]
    fn a_change_keeps_the_children() {
        let mut tree = Tree::default();
        for path in ["", "/b", "/b/1"] {
            tree.set(path, 0, &stat(1), b"old");
        }
        assert!(tree.set("/b", 1, &stat(2), b"new"));
        assert_eq!(tree.get("/b").map(|entry| (entry.stat.czxid, entry.data)), Some((2, &b"new"[..])));
        assert!(tree.get("/b/1").is_some());
    }

    #[test]
    fn a_removed_subtree_leaves_room_for_others() {
        let mut tree = Tree::default();
        for path in ["", "/b", "/b/1", "/b/2", "/c"] {
            tree.set(path, 0, &stat(1), b"");
        }
        let mut removed = Vec::new();
        tree.remove("/b", &mut |path, _| removed.push(path.to_owned()));
        assert_eq!(removed, ["/b/1", "/b/2", "/b"]);
        assert_eq!(paths(&tree), ["", "/c"]);
        assert!(tree.set("/d", 0, &stat(1), b"") && tree.set("/c/1", 0, &stat(1), b""));
        assert_eq!(paths(&tree), ["", "/c", "/c/1", "/d"]);
        tree.remove("", &mut |_, _| {});
        assert_eq!((tree.len(), paths(&tree).len()), (0, 0));
        assert!(tree.set("", 0, &stat(1), b""));
        assert_eq!(paths(&tree), [""]);
    }

    #[test]
    fn a_deep_tree_needs_no_deep_stack() {
        const LEVELS: usize = 3_000;
        let (mut tree, path) = (Tree::default(), "/a".repeat(LEVELS));
        for level in 0..=LEVELS {
            assert!(tree.set(&path[..2 * level], 0, &stat(1), b""));
        }
        // Much less than a recursion over all levels would take.
        let small = std::thread::Builder::new().stack_size(128 * 1024);
        let (visited, removed) = small
            .spawn(move || {
                let (mut visited, mut removed) = (0, 0);
                tree.for_each(|_, _| visited += 1);
                tree.remove("/a", &mut |_, _| removed += 1);
                (visited, removed)
            })
            .unwrap()
            .join()
            .unwrap();
        assert_eq!((visited, removed), (LEVELS + 1, LEVELS));
    }

    #[test]
    fn hidden_node_keeps_its_children_and_its_last_value() {
        let mut tree = Tree::default();
        assert!(!tree.hide("/b", 0, None), "the parent is missing");
        for path in ["", "/b", "/b/1"] {
            tree.set(path, 0, &stat(1), b"old");
        }
        assert!(tree.hide("/b", 1, None) && tree.hide("/b", 1, None) && tree.hide("/c", 1, Some(&stat(2))));
        let of = |tree: &Tree, path| tree.get(path).map(|entry| (entry.value, entry.stat.czxid, entry.data.to_vec()));
        assert_eq!(of(&tree, "/b"), Some((Value::Earlier, 1, b"old".to_vec())));
        assert_eq!(of(&tree, "/c"), Some((Value::Unknown, 2, Vec::new())));
        assert!(tree.get("/b/1").is_some() && tree.set("/c/1", 1, &stat(3), b""));
        tree.set("/b", 1, &stat(3), b"new");
        assert_eq!(of(&tree, "/b"), Some((Value::Present, 3, b"new".to_vec())));
        assert_eq!(paths(&tree), ["", "/b", "/b/1", "/c", "/c/1"]);
    }

    #[test]
    fn shared_data_is_in_one_place() {
        let node = |path: &str, czxid| {
            Arc::new(ChildData { path: path.to_owned(), stat: stat(czxid), data: path.as_bytes().to_vec() })
        };
        let mut tree = Tree::default();
        tree.set_shared("", 0, node("/root", 1));
        let [b, c] = [node("/root/b", 2), node("/root/c", 3)];
        assert!(tree.set_shared("/b", 0, Arc::clone(&b)) && tree.set_shared("/c", 0, c));
        assert_eq!(paths(&tree), ["", "/b", "/c"]);
        let found = tree.get("/b").unwrap().to_node(|| unreachable!());
        assert!(Arc::ptr_eq(&found, &b) && tree.get("").unwrap().data == b"/root");
        tree.confirm("/b", 1, &stat(4));
        assert_eq!(tree.get("/b").unwrap().to_node(|| "/root/b".to_owned()).stat, stat(4));
    }

    #[test]
    fn node_takes_little_memory() {
        assert!(size_of::<Node>() <= 16 + 8 + 3 * 4 + 4 + size_of::<Stat>(), "{}", size_of::<Node>());
    }

    #[test]
    fn many_chunks_are_found_by_index() {
        let mut tree = Tree::default();
        tree.set("", 0, &stat(1), b"");
        for number in 0..3 * CHUNK {
            assert!(tree.set(&format!("/{number}"), 0, &stat(1), number.to_string().as_bytes()));
        }
        for number in 0..3 * CHUNK {
            assert_eq!(tree.get(&format!("/{number}")).unwrap().data, number.to_string().as_bytes());
        }
    }
}

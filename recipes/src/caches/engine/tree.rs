//! The cached nodes: a tree in which each node has the name of one path segment, so that paths share memory.

use curator_framework::Stat;

/// The number of nodes in one allocation. One vector of all nodes would need twice their memory when it grows.
const CHUNK: usize = 1024;

/// The root's index.
const ROOT: u32 = 0;

/// A cached node, laid out for little memory: a cache may have a million.
#[derive(Debug)]
struct Node {
    /// The name, then the data: one allocation.
    name_and_data: Box<[u8]>,
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
    stat: Stat,
}

impl Node {
    fn new(parent: u32, name: &str, round: u32, stat: &Stat, data: &[u8]) -> Self {
        let name_and_data = [name.as_bytes(), data].concat().into_boxed_slice();
        // A name fits into a request, so it is much shorter than 4 GiB.
        let name_len = u32::try_from(name.len()).unwrap_or(u32::MAX);
        Self { name_and_data, name_len, parent, children: None, round, stat: *stat }
    }

    fn split(&self) -> (&[u8], &[u8]) {
        self.name_and_data.split_at(self.name_len as usize)
    }

    fn name(&self) -> &[u8] {
        self.split().0
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
    pub(super) round: u32,
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
        let node = self.node(index)?;
        Some(Entry { stat: &node.stat, data: node.split().1, round: node.round })
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
        if let Some(index) = self.find(path) {
            if let Some(node) = self.node_mut(index) {
                let (parent, children) = (node.parent, node.children.take());
                let name = path.rsplit('/').next().unwrap_or_default();
                *node = Node { children, ..Node::new(parent, name, round, stat, data) };
            }
            return true;
        }
        let Some((parent, name)) = path.rsplit_once('/') else {
            self.allocate(Node::new(ROOT, "", round, stat, data));
            return true;
        };
        let Some(parent) = self.find(parent) else { return false };
        let Some(Err(place)) = self.node(parent).map(|node| self.place(node, name)) else { return false };
        let index = self.allocate(Node::new(parent, name, round, stat, data));
        if let Some(parent) = self.node_mut(parent) {
            parent.children.get_or_insert_default().insert(place, index);
        }
        true
    }

    /// Records that a read has shown the cached data of a node, and replaces its stat.
    pub(super) fn confirm(&mut self, path: &str, round: u32, stat: &Stat) {
        if let Some(node) = self.find(path).and_then(|index| self.node_mut(index)) {
            node.round = round;
            node.stat = *stat;
        }
    }

    /// Removes the node at a path with all nodes below it. Calls `removed` for each, children before their parents.
    pub(super) fn remove(&mut self, path: &str, removed: &mut impl FnMut(&str, &Stat, &[u8])) {
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
    fn take(&mut self, index: u32, mut path: String, removed: &mut impl FnMut(&str, &Stat, &[u8])) {
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
                removed(&path, &node.stat, node.split().1);
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
        tree.remove("/b", &mut |path, _, _| removed.push(path.to_owned()));
        assert_eq!(removed, ["/b/1", "/b/2", "/b"]);
        assert_eq!(paths(&tree), ["", "/c"]);
        assert!(tree.set("/d", 0, &stat(1), b"") && tree.set("/c/1", 0, &stat(1), b""));
        assert_eq!(paths(&tree), ["", "/c", "/c/1", "/d"]);
        tree.remove("", &mut |_, _, _| {});
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
                tree.remove("/a", &mut |_, _, _| removed += 1);
                (visited, removed)
            })
            .unwrap()
            .join()
            .unwrap();
        assert_eq!((visited, removed), (LEVELS + 1, LEVELS));
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

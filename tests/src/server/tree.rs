//! The tree of nodes, and the arithmetic of their `Stat`.

use std::collections::hash_map::{DefaultHasher, Entry};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::BuildHasherDefault;

use crate::wire::{Acl, ErrorCode, Stat};

/// The owner of a container. Its `Stat` does not show it, as in Apache.
pub(super) const CONTAINER_OWNER: i64 = i64::MIN;

/// Nodes that every server has.
const SYSTEM_PATHS: [&str; 4] = ["/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"];

/// Names of children in no useful order, as Apache lists them, yet the same in
/// every run: a client that forgets to sort must not get away with it.
type Names = HashSet<String, BuildHasherDefault<DefaultHasher>>;

/// When a write happens: its transaction and the wall clock.
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
    /// How many children were ever created. It numbers sequential nodes.
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
            // Creates plus deletes: what was created and is no child was deleted.
            cversion: self.creates.wrapping_mul(2).wrapping_sub(children),
            aversion: self.aversion,
            ephemeral_owner: if self.is_ephemeral() { self.owner } else { 0 },
            data_length: self.data.as_ref().map_or(0, |data| data.len() as i32),
            num_children: children,
            pzxid: self.pzxid,
        }
    }

    /// The names of the children, in no useful order.
    pub(super) fn children(&self) -> impl ExactSizeIterator<Item = &String> {
        self.children.iter()
    }

    /// Whether a session owns it: then it cannot have children.
    const fn is_ephemeral(&self) -> bool {
        self.owner != 0 && self.owner != CONTAINER_OWNER
    }
}

/// What to create.
#[derive(Debug)]
pub(super) struct NewNode {
    pub(super) data: Option<Vec<u8>>,
    pub(super) acl: Vec<Acl>,
    /// The session, [`CONTAINER_OWNER`], or 0.
    pub(super) owner: i64,
    pub(super) sequential: bool,
}

/// All nodes, by path.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    nodes: HashMap<String, Node>,
    /// The paths that each session owns, in order.
    ephemerals: HashMap<i64, BTreeSet<String>>,
}

impl Tree {
    pub(super) fn new() -> Self {
        let origin = Stamp { zxid: 0, wall_ms: 0 };
        let mut tree = Self { nodes: HashMap::new(), ephemerals: HashMap::new() };
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

    /// The parent of `path`, without a look at the rest of the path.
    pub(super) fn parent_of(&self, path: &str) -> Result<&Node, ErrorCode> {
        self.get(parent_path(path).ok_or(ErrorCode::BadArguments)?)
    }

    /// Creates a node and says under which path.
    pub(super) fn create(&mut self, path: &str, new: NewNode, at: Stamp) -> Result<String, ErrorCode> {
        let parent_path = parent_path(path).ok_or(ErrorCode::BadArguments)?;
        let parent = self.nodes.get_mut(parent_path).ok_or(ErrorCode::NoNode)?;
        let path = if new.sequential { format!("{path}{:010}", parent.creates) } else { path.to_owned() };
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
        // Apache takes the new count only if it is higher, so at the end of the
        // 32-bit range the count stays where it is, and `pzxid` with it.
        if let Some(creates) = parent.creates.checked_add(1) {
            parent.creates = creates;
            parent.pzxid = at.zxid;
        }
        parent.children.insert(name);
        let node = Node::new(new.data, new.acl, new.owner, at);
        if node.is_ephemeral() {
            self.ephemerals.entry(new.owner).or_default().insert(path.clone());
        }
        self.nodes.insert(path.clone(), node);
        Ok(path)
    }

    /// Deletes a node without children and says which access list it had.
    pub(super) fn delete(&mut self, path: &str, at: Stamp) -> Result<Vec<Acl>, ErrorCode> {
        if is_permanent(path) {
            return Err(ErrorCode::BadArguments);
        }
        if !self.get(path)?.children.is_empty() {
            return Err(ErrorCode::NotEmpty);
        }
        let node = self.nodes.remove(path).ok_or(ErrorCode::NoNode)?;
        if let Entry::Occupied(mut owned) = self.ephemerals.entry(node.owner) {
            owned.get_mut().remove(path);
            if owned.get().is_empty() {
                owned.remove();
            }
        }
        if let Some((parent, name)) = split(path) {
            if let Some(parent) = self.nodes.get_mut(parent) {
                parent.children.remove(name);
                parent.pzxid = at.zxid;
            }
        }
        Ok(node.acl)
    }

    pub(super) fn set_data(&mut self, path: &str, data: Option<Vec<u8>>, at: Stamp) -> Result<Stat, ErrorCode> {
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

    /// The nodes that `session` owns, in order.
    pub(super) fn ephemerals_of(&self, session: i64) -> Vec<String> {
        self.ephemerals.get(&session).into_iter().flatten().cloned().collect()
    }

    /// Sets the number of the next sequential child. False if there is no node.
    pub(super) fn set_next_sequence(&mut self, path: &str, next: i32) -> bool {
        match self.nodes.get_mut(path) {
            Some(node) => {
                node.creates = next;
                true
            }
            None => false,
        }
    }
}

/// The parent's path and the name; the root is its own parent, with no name.
pub(super) fn split(path: &str) -> Option<(&str, &str)> {
    match path.rsplit_once('/')? {
        ("", name) => Some(("/", name)),
        both => Some(both),
    }
}

/// The path of the parent.
pub(super) fn parent_path(path: &str) -> Option<&str> {
    if path.contains('\0') {
        return None;
    }
    split(path).map(|(parent, _)| parent)
}

/// Whether it is a node that cannot be deleted.
pub(super) fn is_permanent(path: &str) -> bool {
    SYSTEM_PATHS.contains(&path)
}

/// Whether Apache lets a node have this path.
pub(super) fn is_valid(path: &str) -> bool {
    // Java looks at UTF-16 units: what lies beyond them shows as surrogates, which are refused.
    let is_refused = |c: char| matches!(u32::from(c), 0..=0x1f | 0x7f..=0x9f | 0xd800..=0xf8ff | 0xfff0..=u32::MAX);
    match path.strip_prefix('/') {
        Some("") => true,
        Some(names) => names.split('/').all(|name| !matches!(name, "" | "." | "..")) && !names.contains(is_refused),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(zxid: i64) -> Stamp {
        Stamp { zxid, wall_ms: zxid * 1000 }
    }

    fn new_node(sequential: bool, owner: i64) -> NewNode {
        NewNode { data: Some(b"abc".to_vec()), acl: vec![Acl::open()], owner, sequential }
    }

    fn create(tree: &mut Tree, path: &str, zxid: i64) -> Result<String, ErrorCode> {
        tree.create(path, new_node(false, 0), at(zxid))
    }

    fn create_sequential(tree: &mut Tree, path: &str, zxid: i64) -> String {
        tree.create(path, new_node(true, 0), at(zxid)).unwrap()
    }

    #[test]
    fn a_new_tree_looks_like_apaches() {
        let tree = Tree::new();
        let root = tree.get("/").unwrap().stat();
        assert_eq!((root.cversion, root.num_children, root.pzxid), (-1, 1, 0));
        assert_eq!(tree.get("/zookeeper").unwrap().stat().cversion, -2);
        assert!(tree.contains("/zookeeper/config") && tree.contains("/zookeeper/quota"));
    }

    #[test]
    fn stat_follows_each_write() {
        let mut tree = Tree::new();
        create(&mut tree, "/a", 1).unwrap();
        let fresh = tree.get("/a").unwrap().stat();
        assert_eq!(
            fresh,
            Stat { czxid: 1, mzxid: 1, pzxid: 1, ctime: 1000, mtime: 1000, data_length: 3, ..Stat::default() }
        );

        let written = tree.set_data("/a", None, at(2)).unwrap();
        assert_eq!(written, Stat { mzxid: 2, mtime: 2000, version: 1, data_length: 0, ..fresh });
        let guarded = tree.set_acl("/a", vec![Acl::open()]).unwrap();
        assert_eq!(guarded, Stat { aversion: 1, ..written });

        create(&mut tree, "/a/x", 4).unwrap();
        create(&mut tree, "/a/y", 5).unwrap();
        tree.delete("/a/x", at(6)).unwrap();
        let parent = tree.get("/a").unwrap().stat();
        assert_eq!(parent, Stat { cversion: 3, num_children: 1, pzxid: 6, ..guarded });
    }

    #[test]
    fn every_create_takes_a_number_and_a_delete_gives_none_back() {
        let mut tree = Tree::new();
        create(&mut tree, "/a", 1).unwrap();
        assert_eq!(create_sequential(&mut tree, "/a/n-", 2), "/a/n-0000000000");
        create(&mut tree, "/a/plain", 3).unwrap();
        assert_eq!(create_sequential(&mut tree, "/a/n-", 4), "/a/n-0000000002");
        tree.delete("/a/n-0000000002", at(5)).unwrap();
        assert_eq!(create_sequential(&mut tree, "/a/n-", 6), "/a/n-0000000003");
        assert_eq!(create_sequential(&mut tree, "/a/", 7), "/a/0000000004");
        assert_eq!(create_sequential(&mut tree, "/", 8), "/0000000001");
    }

    #[test]
    fn the_counter_sticks_at_its_end() {
        let mut tree = Tree::new();
        assert!(tree.set_next_sequence("/", i32::MAX - 1));
        assert!(!tree.set_next_sequence("/none", 1));
        assert_eq!(create_sequential(&mut tree, "/n-", 1), "/n-2147483646");
        assert_eq!(create_sequential(&mut tree, "/n-", 2), "/n-2147483647");
        assert_eq!(create_sequential(&mut tree, "/m-", 3), "/m-2147483647");
        assert_eq!(tree.get("/").unwrap().stat().pzxid, 1);
        let again = tree.create("/n-", new_node(true, 0), at(4));
        assert_eq!(again, Err(ErrorCode::NodeExists));
    }

    #[test]
    fn creates_and_deletes_are_refused_as_apache_refuses_them() {
        let mut tree = Tree::new();
        create(&mut tree, "/a", 1).unwrap();
        create(&mut tree, "/a/b", 2).unwrap();
        tree.create("/e", new_node(false, 7), at(3)).unwrap();
        for (path, error) in [
            ("/", ErrorCode::NodeExists),
            ("/a", ErrorCode::NodeExists),
            ("/none/b", ErrorCode::NoNode),
            ("/e/child", ErrorCode::NoChildrenForEphemerals),
            ("a", ErrorCode::BadArguments),
            ("", ErrorCode::BadArguments),
            ("/a/", ErrorCode::BadArguments),
            ("//", ErrorCode::BadArguments),
            ("//b", ErrorCode::BadArguments),
            ("/a/..", ErrorCode::BadArguments),
            ("/a/\u{1}", ErrorCode::BadArguments),
            ("/a/\0", ErrorCode::BadArguments),
        ] {
            assert_eq!(create(&mut tree, path, 4), Err(error), "{path:?}");
        }
        for (path, error) in [
            ("/", ErrorCode::BadArguments),
            ("/zookeeper", ErrorCode::BadArguments),
            ("/a", ErrorCode::NotEmpty),
            ("/none", ErrorCode::NoNode),
        ] {
            assert_eq!(tree.delete(path, at(5)), Err(error), "{path:?}");
        }
    }

    #[test]
    fn ephemerals_are_known_by_their_session() {
        let mut tree = Tree::new();
        for path in ["/b", "/a", "/c"] {
            tree.create(path, new_node(false, 7), at(1)).unwrap();
        }
        tree.create("/other", new_node(false, 8), at(1)).unwrap();
        tree.create("/container", new_node(false, CONTAINER_OWNER), at(1)).unwrap();
        create(&mut tree, "/container/child", 1).unwrap();
        tree.delete("/b", at(2)).unwrap();
        assert_eq!(tree.ephemerals_of(7), ["/a", "/c"]);
        assert_eq!(tree.ephemerals_of(CONTAINER_OWNER), [""; 0]);
    }

    #[test]
    fn paths_are_valid_where_apache_says_so() {
        for valid in ["/", "/a", "/a/b", "/...", "/a.b/..c", "/ä/ ", "/\u{f900}"] {
            assert!(is_valid(valid), "{valid:?}");
        }
        for invalid in
            ["", "a", "/a/", "//", "/a//b", "/.", "/a/./b", "/..", "/\u{7f}", "/\u{e000}", "/\u{ffff}", "/\u{1f600}"]
        {
            assert!(!is_valid(invalid), "{invalid:?}");
        }
    }

    #[test]
    fn children_come_in_no_useful_order_but_always_the_same() {
        let list = || {
            let mut tree = Tree::new();
            for zxid in 1..=50 {
                create_sequential(&mut tree, "/n-", zxid);
            }
            tree.get("/").unwrap().children().cloned().collect::<Vec<_>>()
        };
        assert_eq!(list(), list());
        assert!(!list().is_sorted());
    }
}

//! The nodes of a tree, as a server, a cache or the events of a cache have them.

use std::collections::BTreeMap;
use std::fmt;

use curator_framework::{CuratorFramework, Stat};
use curator_recipes::ChildData;

/// A node, as caches of both languages tell it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) czxid: i64,
    mzxid: i64,
    pub(super) version: i32,
    data: String,
}

impl Seen {
    fn new(stat: &Stat, data: &[u8]) -> Self {
        let data = String::from_utf8(data.to_vec()).unwrap();
        Self { czxid: stat.czxid, mzxid: stat.mzxid, version: stat.version, data }
    }
}

impl From<&ChildData> for Seen {
    fn from(node: &ChildData) -> Self {
        Self::new(&node.stat, &node.data)
    }
}

/// A path with what each of two trees has there.
pub(super) type Difference<'a> = (&'a str, Option<&'a Seen>, Option<&'a Seen>);

/// Nodes by path. [`caches`](super) describes its text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tree(pub(super) BTreeMap<String, Seen>);

impl Tree {
    /// Reads all nodes from a path down.
    pub(super) async fn read(client: &CuratorFramework, path: &str) -> Self {
        client.sync(path).await.unwrap();
        let (mut tree, mut rest) = (Self::default(), vec![path.to_owned()]);
        while let Some(path) = rest.pop() {
            let (data, stat) = client.get_data().for_path(&path).await.unwrap();
            let children = client.get_children().for_path(&path).await.unwrap();
            rest.extend(children.into_iter().map(|child| format!("{path}/{child}")));
            tree.0.insert(path, Seen::new(&stat, &data));
        }
        tree
    }

    pub(super) fn of(nodes: &[ChildData]) -> Self {
        Self(nodes.iter().map(|node| (node.path.clone(), node.into())).collect())
    }

    /// Returns the nodes of a text.
    pub(super) fn parse(text: &str) -> Self {
        let node = |node: &str| {
            let (path, seen) = node.split_once('=')?;
            let [czxid, mzxid, version, data] = seen.split(',').collect::<Vec<_>>()[..] else { return None };
            let (czxid, mzxid, version) = (czxid.parse().ok()?, mzxid.parse().ok()?, version.parse().ok()?);
            Some((path.to_owned(), Seen { czxid, mzxid, version, data: data.to_owned() }))
        };
        let nodes = text.split(';').filter(|one| !one.is_empty());
        Self(nodes.map(|one| node(one).unwrap_or_else(|| panic!("{one:?} is not a node"))).collect())
    }

    /// Returns the nodes that this tree and another one do not share, with what each of the two has.
    pub(super) fn differences<'a>(&'a self, other: &'a Self) -> Vec<Difference<'a>> {
        let paths = self.0.keys().chain(other.0.keys().filter(|path| !self.0.contains_key(*path)));
        let both = paths.map(|path| (path.as_str(), self.0.get(path), other.0.get(path)));
        both.filter(|(_, one, other)| one != other).collect()
    }

    /// Fails with the differences, if there are any.
    #[track_caller]
    pub(super) fn assert_is(&self, expected: &Self, what: &str) {
        let differences = self.differences(expected);
        assert!(differences.is_empty(), "{what} is not as expected: {differences:#?}");
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (path, Seen { czxid, mzxid, version, data })) in self.0.iter().enumerate() {
            let semicolon = if place == 0 { "" } else { ";" };
            write!(to, "{semicolon}{path}={czxid},{mzxid},{version},{data}")?;
        }
        Ok(())
    }
}

//! The past of the server's nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use curator_test::nodes::{Change, Node};

/// One state of a node, from its start to its end.
#[derive(Debug)]
struct Spell {
    from: Duration,
    /// `None` while it lasts.
    until: Option<Duration>,
    /// The transaction that deleted the node at that time; `None` if the state lasts, or the data has changed.
    deleted: Option<i64>,
    node: Node,
}

impl Spell {
    fn has_been(&self, from: Duration, until: Duration, such: impl Fn(&Node) -> bool) -> bool {
        self.from <= until && self.until.is_none_or(|end| end >= from) && such(&self.node)
    }
}

/// All states of all nodes so far.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    spells: BTreeMap<String, Vec<Spell>>,
}

impl Nodes {
    /// Applies a change. Returns `false` if it cannot follow the ones before it.
    pub(crate) fn apply(&mut self, at: Duration, change: &Change) -> bool {
        match change {
            Change::Created { path, node } => {
                let is_free = self.present(path).is_none();
                self.begin(at, path, node.clone());
                is_free
            }
            Change::DataChanged { path, data } => {
                let Some(before) = self.end(at, path) else { return false };
                self.begin(at, path, Node { data: data.clone(), ..before });
                true
            }
            Change::Deleted { path, zxid } => {
                let ended = self.end(at, path).and_then(|_| self.spells.get_mut(path)?.last_mut());
                ended.map(|spell| spell.deleted = Some(*zxid)).is_some()
            }
        }
    }

    fn begin(&mut self, from: Duration, path: &str, node: Node) {
        self.spells.entry(path.to_owned()).or_default().push(Spell { from, until: None, deleted: None, node });
    }

    /// Ends the present state of a node, and returns it.
    fn end(&mut self, at: Duration, path: &str) -> Option<Node> {
        let spell = self.spells.get_mut(path)?.last_mut().filter(|spell| spell.until.is_none())?;
        spell.until = Some(at);
        Some(spell.node.clone())
    }

    /// Returns the present node of a path.
    pub(crate) fn present(&self, path: &str) -> Option<&Node> {
        let spell = self.spells.get(path)?.last()?;
        spell.until.is_none().then_some(&spell.node)
    }

    /// Returns the present children of a path, each name with its node.
    pub(crate) fn children<'a>(&'a self, parent: &'a str) -> impl Iterator<Item = (&'a str, &'a Node)> {
        let names = self.spells.keys().filter_map(move |path| match path.rsplit_once('/') {
            Some((above, name)) if above == parent => Some((path, name)),
            _ => None,
        });
        names.filter_map(|(path, name)| Some((name, self.present(path)?)))
    }

    /// Returns whether a node had such a state at some moment between two times.
    pub(crate) fn existed(&self, path: &str, from: Duration, until: Duration, such: impl Fn(&Node) -> bool) -> bool {
        self.spells.get(path).into_iter().flatten().any(|spell| spell.has_been(from, until, &such))
    }

    /// Returns the paths of all nodes that were `such` at some moment.
    pub(crate) fn paths_with(&self, such: impl Fn(&Node) -> bool) -> impl Iterator<Item = &str> {
        let has_been = move |spells: &Vec<Spell>| spells.iter().any(|spell| such(&spell.node));
        self.spells.iter().filter(move |(_, spells)| has_been(spells)).map(|(path, _)| path.as_str())
    }

    /// Returns `true` if a node was missing, or not `right`, for some time since it first was `such`. A node that is deleted
    /// and created in one transaction is not missing.
    pub(crate) fn has_gap(
        &self,
        path: &str,
        until: Duration,
        such: impl Fn(&Node) -> bool,
        right: impl Fn(&Node) -> bool,
    ) -> bool {
        let spells = self.spells.get(path).into_iter().flatten();
        let mut before: Option<&Spell> = None;
        for spell in spells.skip_while(|spell| !such(&spell.node)) {
            let deleted = before.and_then(|before| before.deleted);
            if deleted.is_some_and(|deleted| deleted != spell.node.czxid) || !right(&spell.node) {
                return true;
            }
            if spell.until.is_none() {
                return false;
            }
            before = Some(spell);
        }
        before.and_then(|before| before.until).is_none_or(|end| end <= until)
    }

    /// Returns the time of the newest such child of a path: its start, and its end if it has one.
    pub(crate) fn last_span(&self, parent: &str, such: impl Fn(&Node) -> bool) -> Option<(Duration, Option<Duration>)> {
        let is_child = |path: &&String| path.rsplit_once('/').is_some_and(|(above, _)| above == parent);
        let children = self.spells.iter().filter(|(path, _)| is_child(path));
        let spells = children.flat_map(|(_, spells)| spells).filter(|spell| such(&spell.node));
        spells.max_by_key(|spell| spell.node.czxid).map(|spell| (spell.from, spell.until))
    }

    /// Returns `true` if a child of a path with such a name and state existed at some moment between two times.
    pub(crate) fn any_child_existed(
        &self,
        parent: &str,
        from: Duration,
        until: Duration,
        such: impl Fn(&str, &Node) -> bool,
    ) -> bool {
        let children = self.spells.iter().filter_map(|(path, spells)| {
            let (above, name) = path.rsplit_once('/')?;
            (above == parent).then_some((name, spells))
        });
        let mut spells = children.flat_map(|(name, spells)| spells.iter().map(move |spell| (name, spell)));
        spells.any(|(name, spell)| spell.has_been(from, until, |node| such(name, node)))
    }

    /// Returns whether any node had such a state at some moment between two times.
    pub(crate) fn any_existed(&self, from: Duration, until: Duration, such: impl Fn(&Node) -> bool) -> bool {
        self.spells.values().flatten().any(|spell| spell.has_been(from, until, &such))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn node(czxid: i64, data: &str) -> Node {
        Node { czxid, session: 1, data: data.into() }
    }

    #[test]
    fn a_node_has_each_state_for_its_time() {
        let mut nodes = Nodes::default();
        let path = || "/group/a".to_owned();
        assert!(nodes.apply(at(1), &Change::Created { path: path(), node: node(7, "first") }));
        assert!(nodes.apply(at(2), &Change::DataChanged { path: path(), data: "second".into() }));
        assert_eq!(nodes.present("/group/a"), Some(&node(7, "second")));
        assert_eq!(nodes.children("/group").collect::<Vec<_>>(), [("a", &node(7, "second"))]);
        assert!(nodes.apply(at(3), &Change::Deleted { path: path(), zxid: 9 }));
        assert_eq!(nodes.present("/group/a"), None);
        assert_eq!(nodes.children("/group").count(), 0);
        for (from, until, data, existed) in [
            (0, 1, "first", true),
            (0, 0, "first", false),
            (2, 9, "first", true),
            (3, 9, "first", false),
            (3, 9, "second", true),
            (4, 9, "second", false),
        ] {
            let such = |node: &Node| node.data == data.as_bytes();
            assert_eq!(nodes.existed("/group/a", at(from), at(until), such), existed, "{from} to {until}: {data}");
        }
    }

    #[test]
    fn changes_that_cannot_follow_are_found() {
        let mut nodes = Nodes::default();
        let created = Change::Created { path: "/a".to_owned(), node: node(1, "") };
        let deleted = Change::Deleted { path: "/a".to_owned(), zxid: 9 };
        let changed = Change::DataChanged { path: "/a".to_owned(), data: Vec::new() };
        assert!(!nodes.apply(at(0), &deleted));
        assert!(!nodes.apply(at(0), &changed));
        assert!(nodes.apply(at(0), &created));
        assert!(!nodes.apply(at(0), &created));
    }
}

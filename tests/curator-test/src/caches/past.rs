//! The past of the server's nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Change, Node};

/// A transaction among all transactions. Those behind a loss of all data are later than those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    era: usize,
    zxid: i64,
}

impl Position {
    pub(super) const fn zxid(self) -> i64 {
        self.zxid
    }
}

/// A moment at the server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub(super) position: Position,
    pub(super) at: Duration,
}

/// One state of a node.
#[derive(Debug)]
struct Spell {
    from: Moment,
    /// The end; `None` while the state lasts.
    until: Option<Moment>,
    node: Node,
}

/// A state of a node that the server had, or its absence.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    /// The beginning of the newest time in which the node had this state.
    pub(super) since: Position,
    /// The end of that time; `None` if it lasts.
    pub(super) until: Option<Moment>,
}

impl Known {
    /// Returns `true` if it was the state at this transaction or later.
    pub(super) fn lasts_to(&self, position: Position) -> bool {
        self.until.is_none_or(|until| until.position > position)
    }
}

/// All states of all nodes so far.
#[derive(Debug)]
pub(super) struct Past {
    spells: BTreeMap<String, Vec<Spell>>,
    /// The newest known transaction of each era.
    newest: Vec<i64>,
}

impl Past {
    pub(super) fn new() -> Self {
        Self { spells: BTreeMap::new(), newest: vec![0] }
    }

    pub(super) fn eras(&self) -> usize {
        self.newest.len()
    }

    fn now(&self, at: Duration) -> Moment {
        let zxid = self.newest.last().copied().unwrap_or_default();
        Moment { position: Position { era: self.eras(), zxid }, at }
    }

    /// Applies a change. Returns `false` if it cannot follow the ones before it.
    pub(super) fn apply(&mut self, at: Duration, change: &Change) -> bool {
        let Change { zxid, path, node } = change;
        let is_later = self.newest.last().is_some_and(|newest| zxid >= newest);
        if let Some(newest) = self.newest.last_mut() {
            *newest = *zxid;
        }
        let now = self.now(at);
        let spells = self.spells.entry(path.clone()).or_default();
        let before = spells.last_mut().filter(|spell| spell.until.is_none());
        let existed = before.is_some();
        if let Some(before) = before {
            before.until = Some(now);
        }
        if let Some(node) = node {
            spells.push(Spell { from: now, until: None, node: node.clone() });
        }
        is_later && (existed || node.is_some())
    }

    /// Ends all states. Transactions begin again.
    pub(super) fn empty(&mut self, at: Duration) {
        self.newest.push(0);
        let now = self.now(at);
        for spell in self.spells.values_mut().filter_map(|spells| spells.last_mut()) {
            spell.until.get_or_insert(now);
        }
    }

    /// Returns the position in the newest era that has reached a transaction, or in the one that has come furthest.
    pub(super) fn position(&self, zxid: i64) -> Position {
        let furthest = self.newest.iter().max().copied().unwrap_or_default();
        let era = self.newest.iter().rposition(|newest| *newest >= zxid.min(furthest));
        Position { era: era.map_or(self.eras(), |index| index + 1), zxid }
    }

    /// Returns the paths of all nodes that have ever existed.
    pub(super) fn paths(&self) -> impl Iterator<Item = &String> {
        self.spells.keys()
    }

    /// Returns the time of a state of a node; `None` if the node never had this state.
    pub(super) fn state(&self, path: &str, node: &Node) -> Option<Known> {
        let is_same = |spell: &&Spell| {
            let its = &spell.node;
            (its.czxid, its.mzxid, its.version) == (node.czxid, node.mzxid, node.version)
                && (node.data.is_none() || node.data == its.data)
        };
        let spell = self.spells.get(path)?.iter().rev().find(is_same)?;
        Some(Known { since: spell.from.position, until: spell.until })
    }

    /// Returns the newest time without a node.
    pub(super) fn absence(&self, path: &str) -> Known {
        let origin = Position { era: 0, zxid: 0 };
        let lasting = Known { since: origin, until: None };
        let Some(spells) = self.spells.get(path) else { return lasting };
        let Some(last) = spells.last() else { return lasting };
        if last.until.is_some() {
            return lasting;
        }
        let life = |spell: &Spell| (spell.from.position.era, spell.node.czxid);
        let birth = spells.iter().rev().take_while(|spell| life(spell) == life(last)).last();
        Known { since: origin, until: birth.map(|birth| birth.from) }
    }
}

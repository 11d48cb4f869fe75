//! The past of the server's nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use curator_test::versions::{Change, Node};

/// A transaction among all transactions. Those after a loss of all data are later than those before it.
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
    /// The end; `None` while the state lasts, as far as clients are notified.
    until: Option<Moment>,
    /// The first moment at which clients were notified of this state or a later one.
    noticed: Option<Moment>,
    node: Node,
}

impl Spell {
    const fn known(&self) -> Known {
        Known { since: self.from.position, until: self.until }
    }
}

/// The states of one node.
#[derive(Debug, Default)]
struct Spells {
    all: Vec<Spell>,
    /// The newest state lasts.
    exists: bool,
    /// The node was created while clients could not list its parent. A client that was away then does not learn of it
    /// from changes of the node. All clients are excused: the past does not know which were away.
    is_unlisted: bool,
}

impl Spells {
    /// Ends all earlier states for the clients.
    fn notice(&mut self, now: Moment) {
        for spell in &mut self.all {
            spell.until.get_or_insert(now);
            spell.noticed.get_or_insert(now);
        }
    }

    /// Shows to the clients that the node exists, in a list of its parent's children. A client that knows it does not read
    /// it again.
    fn list(&mut self, now: Moment) {
        self.is_unlisted = false;
        for spell in &mut self.all {
            spell.noticed.get_or_insert(now);
        }
    }
}

fn parent_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// The transactions between two losses of all data.
#[derive(Debug, Clone, Copy)]
struct Era {
    from: i64,
    /// The newest known transaction.
    newest: i64,
}

/// A state of a node that the server had, or its absence.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    /// The start of the newest time in which the node had this state.
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
    spells: BTreeMap<String, Spells>,
    eras: Vec<Era>,
}

impl Past {
    pub(super) fn new() -> Self {
        Self { spells: BTreeMap::new(), eras: vec![Era { from: 0, newest: 0 }] }
    }

    pub(super) fn eras(&self) -> usize {
        self.eras.len()
    }

    fn now(&self, at: Duration) -> Moment {
        let zxid = self.eras.last().map(|era| era.newest).unwrap_or_default();
        Moment { position: Position { era: self.eras(), zxid }, at }
    }

    /// Applies a change. Returns `false` if it cannot follow the ones before it. Clients are not notified of a node that
    /// is denied.
    pub(super) fn apply(&mut self, at: Duration, change: &Change, is_denied: impl Fn(&str) -> bool) -> bool {
        let Change { zxid, path, node } = change;
        let parent = parent_of(path);
        let is_parent_hidden = is_denied(parent) || self.is_unlisted(parent);
        let Some(era) = self.eras.last_mut() else { return false };
        let is_later = *zxid >= era.newest;
        era.newest = *zxid;
        let now = self.now(at);
        let spells = self.spells.entry(path.clone()).or_default();
        let existed = std::mem::replace(&mut spells.exists, node.is_some());
        spells.is_unlisted = node.is_some() && if existed { spells.is_unlisted } else { is_parent_hidden };
        let is_notified = !is_denied(path) && !spells.is_unlisted;
        if is_notified {
            spells.notice(now);
        }
        if let Some(node) = node {
            let noticed = is_notified.then_some(now);
            spells.all.push(Spell { from: now, until: None, noticed, node: node.clone() });
        }
        let is_listed = existed == node.is_some();
        self.list(if is_listed { path } else { parent }, now, &is_denied);
        is_later && (existed || node.is_some())
    }

    /// Shows the nodes below a node to the clients that are notified of it.
    fn list(&mut self, parent: &str, now: Moment, is_denied: &impl Fn(&str) -> bool) {
        if is_denied(parent) || self.is_unlisted(parent) {
            return;
        }
        let is_listed =
            |path: &str, spells: &Spells| spells.is_unlisted && parent_of(path) == parent && !is_denied(path);
        let unlisted = self.spells.iter_mut().filter(|(path, spells)| is_listed(path, spells));
        let listed = unlisted.map(|(path, spells)| {
            spells.list(now);
            path.clone()
        });
        for path in listed.collect::<Vec<_>>() {
            self.list(&path, now, is_denied);
        }
    }

    fn is_unlisted(&self, path: &str) -> bool {
        self.spells.get(path).is_some_and(|spells| spells.is_unlisted)
    }

    /// Ends all states. The transactions continue from another one. Clients are not notified of a node that is denied.
    pub(super) fn empty(&mut self, at: Duration, zxid: i64, is_denied: impl Fn(&str) -> bool) {
        self.eras.push(Era { from: zxid, newest: zxid });
        let now = self.now(at);
        for (path, spells) in &mut self.spells {
            if !is_denied(path) {
                spells.notice(now);
            }
            (spells.exists, spells.is_unlisted) = (false, false);
        }
    }

    /// Returns the position in the newest era that has this transaction, or in the furthest one that may have it.
    pub(super) fn position(&self, zxid: i64) -> Position {
        let eras = || self.eras.iter().enumerate().filter(|(_, era)| era.from <= zxid);
        let known = eras().rfind(|(_, era)| zxid <= era.newest);
        let era = known.or_else(|| eras().max_by_key(|(_, era)| era.newest)).map(|(index, _)| index);
        Position { era: era.map_or(self.eras(), |index| index + 1), zxid }
    }

    /// Returns the paths of all nodes that have ever existed.
    pub(super) fn paths(&self) -> impl Iterator<Item = &String> {
        self.spells.keys()
    }

    /// Returns the spells of a node in this state.
    fn spells(&self, path: &str, node: &Node) -> impl DoubleEndedIterator<Item = &Spell> {
        let all = self.spells.get(path).into_iter().flat_map(|spells| &spells.all);
        all.filter(|spell| {
            let its = &spell.node;
            (its.czxid, its.mzxid, its.version) == (node.czxid, node.mzxid, node.version)
                && (node.data.is_none() || node.data == its.data)
        })
    }

    /// Returns the newest time of a state of a node; `None` if the node never had this state.
    pub(super) fn state(&self, path: &str, node: &Node) -> Option<Known> {
        self.spells(path, node).next_back().map(Spell::known)
    }

    /// Returns the first time of a state of a node that is not before a position, or else the newest time.
    pub(super) fn next_state(&self, path: &str, node: &Node, from: Option<Position>) -> Option<Known> {
        let mut later = self.spells(path, node).filter(|spell| Some(spell.from.position) >= from);
        later.next().map(Spell::known).or_else(|| self.state(path, node))
    }

    /// Returns the newest time without a node.
    pub(super) fn absence(&self, path: &str) -> Known {
        let origin = Position { era: 0, zxid: 0 };
        let lasting = Known { since: origin, until: None };
        let Some(spells) = self.spells.get(path).filter(|spells| spells.exists) else { return lasting };
        let Some(last) = spells.all.last() else { return lasting };
        let life = |spell: &Spell| (spell.from.position.era, spell.node.czxid);
        let birth = spells.all.iter().rev().take_while(|spell| life(spell) == life(last)).last();
        Known { since: origin, until: birth.and_then(|birth| birth.noticed) }
    }
}

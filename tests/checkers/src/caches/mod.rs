//! The contents and the events of caches, and the check for violations.
//!
//! A cache keeps a copy of the nodes below a root, and reports each change of the copy in streams of events. A
//! [`Caches`] is a list of events with their times: the changes at the server, the contents and states that caches show,
//! and the events of their streams. [`Caches::check`] finds violations:
//!
//! - a node that never existed with its transactions, version and data
//! - an event that does not apply to the events before it, such as a change of a node that was not created
//! - contents that differ from the sum of the events, at any moment
//! - a node in an earlier state than before, or one that was created again and is reported as changed
//! - a state that names a transaction, with contents from before it
//! - contents that differ from the server's, or a cache that is not fresh, for too long outside of faults
//! - a node that a cache cannot show, a failed read or a failed cache, although the servers answer

mod access;
mod checker;
mod past;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use curator_test::versions;
pub use curator_test::versions::Node;

use self::checker::Checker;
use crate::Violation;
use crate::timeline::Timeline;

/// The id of one cache, from its start to its close. Never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cache(pub u64);

/// The id of one stream of a cache's events. Never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream(pub u64);

/// Nodes by their paths.
pub type Nodes = BTreeMap<String, Node>;

/// The nodes that belong to a cache.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scope {
    root: String,
    depth: usize,
    refused: BTreeSet<String>,
    leaves: BTreeSet<String>,
    keeps_data: bool,
}

impl Scope {
    /// Returns the scope of a node and all nodes below it.
    #[must_use]
    pub fn new(root: impl Into<String>) -> Self {
        let (refused, leaves) = (BTreeSet::new(), BTreeSet::new());
        Self { root: root.into(), depth: usize::MAX, refused, leaves, keeps_data: true }
    }

    /// Limits the number of levels below the root.
    #[must_use]
    pub const fn depth(mut self, depth: usize) -> Self {
        self.depth = depth;
        self
    }

    /// Leaves out the nodes of this name below the root, and all nodes below them.
    #[must_use]
    pub fn refuse(mut self, name: impl Into<String>) -> Self {
        self.refused.insert(name.into());
        self
    }

    /// Leaves out all nodes below the nodes of this name, which themselves belong to the scope.
    #[must_use]
    pub fn stop_at(mut self, name: impl Into<String>) -> Self {
        self.leaves.insert(name.into());
        self
    }

    /// Leaves out the data of the nodes. Events may have the data of the new state.
    #[must_use]
    pub const fn without_data(mut self) -> Self {
        self.keeps_data = false;
        self
    }

    /// Returns `true` if the scope has this path.
    #[must_use]
    pub fn contains(&self, path: &str) -> bool {
        let Some(below) = path.strip_prefix(self.root.trim_end_matches('/')) else { return false };
        let names: Vec<_> = below.split('/').skip(1).filter(|name| !name.is_empty()).collect();
        let above = names.split_last().map(|(_, above)| above).unwrap_or_default();
        (below.is_empty() || below.starts_with('/'))
            && names.len() <= self.depth
            && !names.iter().any(|name| self.refused.contains(*name))
            && !above.iter().any(|name| self.leaves.contains(*name))
    }

    /// Returns the parent of a node, if the scope has it.
    fn parent<'p>(&self, path: &'p str) -> Option<&'p str> {
        let (parent, _) = path.rsplit_once('/').filter(|_| path != self.root)?;
        Some(if parent.is_empty() { "/" } else { parent }).filter(|parent| self.contains(parent))
    }
}

/// The state that a cache shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// The first load is not complete.
    Loading,
    /// The cache shows each node as it was at this transaction or later.
    Fresh(i64),
    /// The cache is not connected. It shows each node as it was at this transaction or later.
    Stale(i64),
    /// The cache cannot be filled for now.
    Failed,
    /// The cache was closed.
    Closed,
}

impl State {
    /// Returns the transaction up to which all changes are shown.
    const fn zxid(self) -> Option<i64> {
        match self {
            Self::Fresh(zxid) | Self::Stale(zxid) => Some(zxid),
            Self::Loading | Self::Failed | Self::Closed => None,
        }
    }

    const fn is_over(self) -> bool {
        matches!(self, Self::Closed)
    }
}

/// One event of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Reported {
    /// The node was added to the cache.
    Created(String, Node),
    /// The node has changed.
    Changed {
        /// Its path.
        path: String,
        /// Its state before.
        old: Node,
        /// Its state from now on.
        new: Node,
    },
    /// The node was removed from the cache. This was its state.
    Deleted(String, Node),
    /// The first load is complete.
    Initialized,
    /// Events were dropped. The stream reports each present node again, then the end of the load.
    Reset,
    /// The node exists, and its data or the list of its children cannot be read.
    Failed(String),
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// An event at the server.
    Server(versions::Event),
    /// The cache was started.
    Started(Cache, Scope),
    /// A stream of the cache was opened.
    Opened(Stream, Cache),
    /// The stream reports an event.
    Reports(Stream, Reported),
    /// The stream has no further event. Contents that the cache [shows](Self::Shows) in the same moment must be the sum of
    /// the stream's events.
    Drained(Stream),
    /// The cache cannot tell the state of these paths in its scope from now on. Counts once the first load is complete.
    Hides(Cache, BTreeSet<String>),
    /// The cache shows this state and these nodes.
    Shows(Cache, State, Nodes),
    /// A wait of the cache for newer contents has ended. The contents are those that the cache has shown last.
    CaughtUp {
        /// The cache.
        cache: Cache,
        /// The newest transaction when the wait started.
        from: i64,
        /// The transaction that the cache names.
        zxid: i64,
    },
}

/// The rules that caches must obey.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// The limit of the time in which a cache differs from the server, or is not fresh, outside of faults.
    pub patience: Duration,
    /// The limit of the time until a cache repeats a refused read.
    pub pause: Duration,
}

impl Rules {
    /// Returns the rules of all caches.
    #[must_use]
    pub const fn new(patience: Duration) -> Self {
        Self { patience, pause: Duration::from_secs(30) }
    }
}

/// The events of caches, in the order of time.
pub type Caches = Timeline<Event>;

impl Timeline<Event> {
    /// Returns the number of times that a fresh cache has shown a node.
    #[must_use]
    pub fn shown(&self) -> usize {
        self.count(|event| matches!(event, Event::Shows(_, State::Fresh(_), nodes) if !nodes.is_empty()))
    }

    /// Returns all violations, in the order of time. One that lasts is reported once.
    #[must_use]
    pub fn check(&self, rules: &Rules) -> Vec<Violation> {
        self.check_by(Checker::new(rules, self))
    }
}

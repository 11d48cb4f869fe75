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
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//! use curator_test::caches::{Cache, Caches, Change, Event, Node, Rules, Scope, State, Violation};
//!
//! let cache = Cache(1);
//! let at = Duration::from_secs;
//! let path = || "/config/port".to_owned();
//! let node = |mzxid, data: &str| Node { czxid: 7, mzxid, version: (mzxid - 7) as i32, data: Some(data.into()) };
//! let mut caches = Caches::new();
//! caches.record(at(1), Event::Server(Change { zxid: 7, path: path(), node: Some(node(7, "80")) }));
//! caches.record(at(2), Event::Server(Change { zxid: 8, path: path(), node: Some(node(8, "81")) }));
//! caches.record(at(2), Event::Started(cache, Scope::new("/config/port")));
//! // The cache shows the earlier state, but its own state names transaction 8.
//! caches.record(at(3), Event::Shows(cache, State::Fresh(8), [(path(), node(7, "80"))].into()));
//! let shown = Some(node(7, "80"));
//! let found = caches.check(&Rules::new(at(5)));
//! assert_eq!(found, [Violation::NotFresh { at: at(3), cache, zxid: 8, path: path(), shown }]);
//! ```

mod access;
mod checker;
mod past;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use curator_test::versions;
pub use curator_test::versions::Node;

use self::checker::Checker;
use crate::timeline::{self, Timeline};

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
        /// The newest transaction when the wait began.
        from: i64,
        /// The transaction that the cache names.
        zxid: i64,
    },
}

/// An event with its time.
pub type Entry = timeline::Entry<Event>;

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

/// A violation of the rules.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// A cache showed or reported a state of a node that never existed.
    UnknownNode {
        /// The time.
        at: Duration,
        /// The cache.
        cache: Cache,
        /// The path.
        path: String,
        /// The state.
        node: Node,
    },
    /// A cache showed or reported a node outside of its scope.
    OutOfScope {
        /// The time.
        at: Duration,
        /// The cache.
        cache: Cache,
        /// The path.
        path: String,
    },
    /// An event does not apply to the events before it. It creates a present node, changes or deletes a missing one, or
    /// names another earlier state. A parent is created before its children, and deleted behind them.
    DoesNotApply {
        /// The time.
        at: Duration,
        /// The stream.
        stream: Stream,
        /// The event.
        reported: Reported,
        /// The state of the node before, according to the events.
        before: Option<Node>,
    },
    /// A node that was deleted and created again is reported as changed.
    CreatedAgain {
        /// The time.
        at: Duration,
        /// The stream.
        stream: Stream,
        /// The path.
        path: String,
    },
    /// A cache showed or reported a node in a state older than before.
    WentBack {
        /// The time.
        at: Duration,
        /// The cache.
        cache: Cache,
        /// The path.
        path: String,
        /// The newest transaction of the node before.
        from: i64,
        /// The transaction of the later report.
        to: i64,
    },
    /// The contents are not the sum of the events of a stream.
    NotTheEvents {
        /// The time.
        at: Duration,
        /// The stream.
        stream: Stream,
        /// The paths that differ.
        paths: Vec<String>,
    },
    /// A state names a transaction, and the cache shows a node as it was before that.
    NotFresh {
        /// The time.
        at: Duration,
        /// The cache.
        cache: Cache,
        /// The transaction.
        zxid: i64,
        /// The path.
        path: String,
        /// The state that the cache shows; `None` if it shows none.
        shown: Option<Node>,
    },
    /// A state names an earlier transaction than the state before.
    StateWentBack {
        /// The time.
        at: Duration,
        /// The cache.
        cache: Cache,
        /// The transaction before.
        from: i64,
        /// The later one.
        to: i64,
    },
    /// A wait ended before the cache had caught up.
    NotCaughtUp {
        /// The time.
        at: Duration,
        /// The cache.
        cache: Cache,
        /// The newest transaction when the wait began.
        from: i64,
        /// The transaction that the cache names.
        zxid: i64,
    },
    /// A node differed from the server for too long.
    Differs {
        /// The time at which the shown state ended at the server.
        from: Duration,
        /// The time at which the cache still showed it.
        until: Duration,
        /// The cache.
        cache: Cache,
        /// The path.
        path: String,
        /// The state that the cache shows; `None` if it shows none.
        shown: Option<Node>,
    },
    /// A cache was not fresh for too long.
    NotFreshInTime {
        /// The time at which the cache was fresh last, or was started.
        from: Duration,
        /// The time of the report that is not fresh.
        until: Duration,
        /// The cache.
        cache: Cache,
        /// The state.
        state: State,
    },
    /// A cache cannot tell the state of a node, or reports a failed read of it, although the servers answer.
    NotRefused {
        /// The time.
        at: Duration,
        /// The cache.
        cache: Cache,
        /// The path.
        path: String,
    },
    /// A cache has failed, although the servers answer reads of its root.
    Failed {
        /// The time.
        at: Duration,
        /// The cache.
        cache: Cache,
    },
    /// A stream reports the end of the first load twice, or before it.
    InitializedEarly {
        /// The time.
        at: Duration,
        /// The stream.
        stream: Stream,
    },
    /// A stream does not report the end of the first load.
    NeverInitialized {
        /// The time.
        at: Duration,
        /// The stream.
        stream: Stream,
    },
    /// A stream reports an event behind the close of its cache.
    AfterClosed {
        /// The time.
        at: Duration,
        /// The stream.
        stream: Stream,
        /// The event.
        reported: Reported,
    },
    /// An event that cannot follow the ones before it.
    OutOfOrder {
        /// The time.
        at: Duration,
        /// The event.
        event: Event,
    },
    /// A node in ZooKeeper or a state in a client was left at the end.
    LeftBehind(String),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownNode { at, cache, path, node } => {
                write!(f, "{at:?}: {cache:?} has {path} as {node:?}, which never existed")
            }
            Self::OutOfScope { at, cache, path } => write!(f, "{at:?}: {cache:?} has {path}, outside of its scope"),
            Self::DoesNotApply { at, stream, reported, before } => {
                write!(f, "{at:?}: {stream:?} reports {reported:?}, which does not apply to {before:?}")
            }
            Self::CreatedAgain { at, stream, path } => {
                write!(f, "{at:?}: {stream:?} reports a change of {path}, which was created again")
            }
            Self::WentBack { at, cache, path, from, to } => {
                write!(f, "{at:?}: {cache:?} has {path} as of transaction {to}, behind {from}")
            }
            Self::NotTheEvents { at, stream, paths } => {
                write!(f, "{at:?}: the contents are not the sum of the events of {stream:?}: {paths:?}")
            }
            Self::NotFresh { at, cache, zxid, path, shown } => {
                write!(f, "{at:?}: {cache:?} names transaction {zxid}, and shows {path} as {shown:?}")
            }
            Self::StateWentBack { at, cache, from, to } => {
                write!(f, "{at:?}: {cache:?} names transaction {to}, behind {from}")
            }
            Self::NotCaughtUp { at, cache, from, zxid } => {
                write!(f, "{at:?}: {cache:?} has caught up with {zxid}, which is before {from}")
            }
            Self::Differs { from, until, cache, path, shown } => {
                write!(f, "{from:?} to {until:?}: {cache:?} shows {path} as {shown:?}")
            }
            Self::NotFreshInTime { from, until, cache, state } => {
                write!(f, "{from:?} to {until:?}: {cache:?} is {state:?}")
            }
            Self::NotRefused { at, cache, path } => {
                write!(f, "{at:?}: {cache:?} cannot show {path}, which the servers answer")
            }
            Self::Failed { at, cache } => write!(f, "{at:?}: {cache:?} has failed, and the servers answer"),
            Self::InitializedEarly { at, stream } => {
                write!(f, "{at:?}: {stream:?} reports the end of a load twice, or before it")
            }
            Self::NeverInitialized { at, stream } => write!(f, "{at:?}: {stream:?} does not tell the end of the load"),
            Self::AfterClosed { at, stream, reported } => {
                write!(f, "{at:?}: {stream:?} reports {reported:?} behind the close")
            }
            Self::OutOfOrder { at, event } => write!(f, "{at:?}: {event:?} is out of order"),
            Self::LeftBehind(what) => write!(f, "left behind: {what}"),
        }
    }
}

/// The events of caches, in the order of time.
pub type Caches = Timeline<Event>;

impl Timeline<Event> {
    /// Returns the number of times that a fresh cache has shown a node.
    #[must_use]
    pub fn shown(&self) -> usize {
        let fresh =
            |entry: &&Entry| matches!(&entry.event, Event::Shows(_, State::Fresh(_), nodes) if !nodes.is_empty());
        self.entries.iter().filter(fresh).count()
    }

    /// Returns all violations, in the order of time. One that lasts is reported once.
    #[must_use]
    pub fn check(&self, rules: &Rules) -> Vec<Violation> {
        let mut checker = Checker::new(rules, &self.faults);
        for entry in &self.entries {
            checker.apply(entry);
        }
        let left = self.left_behind.iter().cloned().map(Violation::LeftBehind);
        checker.found.into_iter().chain(left).collect()
    }
}

//! The counts and waiters of a count-down latch, and the check for violations.
//!
//! A latch opens when a number of operations have counted down. Then the next round may begin. Each count is a child of
//! the round's node. The data of the latch's node has the number of the round, and the mark that it is open. A
//! [`Latches`] is a list of events with their times: the changes at the server, and the calls of clients.
//! [`Latches::check`] finds violations:
//!
//! - a wait that ends before enough operations have counted
//! - a round with more counts than it needs, or that opens or ends with fewer
//! - an operation that counts twice, or that is confirmed and does not count
//! - a reported number of remaining counts that the round did not have
//! - a round that two calls report as begun by them, or that a call does not begin although no round goes on
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//! use curator_test::latches::{Call, Event, Latches, Rules, Violation};
//! use curator_test::nodes::{Change, Node};
//!
//! let at = Duration::from_secs;
//! let created = |path: &str, czxid, data: &str| {
//!     Event::Server(Change::Created { path: path.to_owned(), node: Node { czxid, session: 0, data: data.into() } })
//! };
//! let mut latches = Latches::new();
//! // The round 7 needs two counts.
//! latches.record(at(1), created("/latch", 7, "7 2 token"));
//! latches.record(at(2), Event::Waits(Call(1)));
//! latches.record(at(2), Event::Counts(Call(2), Some("a".to_owned())));
//! latches.record(at(3), created("/latch/7/a", 8, ""));
//! latches.record(at(3), Event::Counted(Call(2), 1));
//! latches.record(at(4), Event::Waited(Call(1), true));
//! let found = latches.check(&Rules::new("/latch"));
//! assert_eq!(found, [Violation::PassedEarly { at: at(4), call: Call(1) }]);
//! ```

mod checker;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use self::checker::Checker;
use crate::timeline::{self, Timeline};
use curator_test::nodes::Change;

/// The id of one call. Never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Call(pub u64);

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// A change at the server.
    Server(Change),
    /// A call that sets the count begins.
    SetsCount(Call, u32),
    /// The call has ended: `true` if it has set the count, `false` if a count stands.
    SetCount(Call, bool),
    /// A call that counts down begins. Without an operation id it has one that no other call has.
    Counts(Call, Option<String>),
    /// The operation has counted, and this number of counts remain.
    Counted(Call, u32),
    /// A call that reads the number of remaining counts begins.
    Reads(Call),
    /// The call shows that this number of counts remain.
    Shows(Call, u32),
    /// A call that waits begins.
    Waits(Call),
    /// The wait has ended: `true` if the latch is open, `false` if its time is over.
    Waited(Call, bool),
    /// The call has failed, or was dropped.
    Gone(Call),
}

/// An event with its time.
pub type Entry = timeline::Entry<Event>;

/// The rules that a latch must obey.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// The path of the latch.
    pub path: String,
    /// The time by which the server of a client may be behind, outside of faults.
    pub behind: Duration,
}

impl Rules {
    /// Returns the rules of the latch at a path.
    #[must_use]
    pub fn new(path: impl Into<String>) -> Self {
        Self { path: path.into(), behind: Duration::ZERO }
    }

    /// Adds the time by which the server of a client may be behind, outside of faults.
    #[must_use]
    pub const fn behind(mut self, behind: Duration) -> Self {
        self.behind = behind;
        self
    }
}

/// A violation of the rules.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// A wait ended before its round was over.
    PassedEarly {
        /// The time.
        at: Duration,
        /// The call.
        call: Call,
    },
    /// A wait ended by its time limit although the latch was open all the time.
    NotPassed {
        /// The time.
        at: Duration,
        /// The call.
        call: Call,
    },
    /// A round opened with another number of counts than it needs, ended before it opened, or has too many counts.
    WrongCounts {
        /// The time.
        at: Duration,
        /// The number of the round.
        round: u64,
        /// The number of its counts.
        counts: usize,
        /// The number that it needs.
        needs: u32,
    },
    /// A count that no call has begun, such as the second one of a call.
    CountedTwice {
        /// The time.
        at: Duration,
        /// The path of the count.
        path: String,
    },
    /// A confirmed operation did not count.
    NotCounted {
        /// The time.
        at: Duration,
        /// The call.
        call: Call,
    },
    /// A call reports a number of remaining counts that no round had while it went on.
    WrongRemaining {
        /// The time.
        at: Duration,
        /// The call.
        call: Call,
        /// The number.
        remaining: u32,
    },
    /// A call says that it has set the count, and no round of its own began while it went on.
    NotSet {
        /// The time.
        at: Duration,
        /// The call.
        call: Call,
    },
    /// A call has not set the count, although no count stood while it went on.
    RefusedWithoutRound {
        /// The time.
        at: Duration,
        /// The call.
        call: Call,
    },
    /// The latch's node has data that cannot be read.
    UnknownData {
        /// The time.
        at: Duration,
        /// The data.
        data: String,
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
            Self::PassedEarly { at, call } => write!(f, "{at:?}: {call:?} has passed before the latch was open"),
            Self::NotPassed { at, call } => write!(f, "{at:?}: {call:?} has not passed although the latch was open"),
            Self::WrongCounts { at, round, counts, needs } => {
                write!(f, "{at:?}: round {round} has {counts} counts of {needs}")
            }
            Self::CountedTwice { at, path } => write!(f, "{at:?}: no call has begun the count {path}"),
            Self::NotCounted { at, call } => write!(f, "{at:?}: {call:?} is confirmed and has not counted"),
            Self::WrongRemaining { at, call, remaining } => {
                write!(f, "{at:?}: {call:?} reports {remaining} remaining counts, which no round had")
            }
            Self::NotSet { at, call } => write!(f, "{at:?}: {call:?} has begun no round"),
            Self::RefusedWithoutRound { at, call } => write!(f, "{at:?}: {call:?} is refused although no count stood"),
            Self::UnknownData { at, data } => write!(f, "{at:?}: the latch has the data {data:?}"),
            Self::OutOfOrder { at, event } => write!(f, "{at:?}: {event:?} is out of order"),
            Self::LeftBehind(what) => write!(f, "left behind: {what}"),
        }
    }
}

/// The events of a latch, in the order of time.
pub type Latches = Timeline<Event>;

impl Timeline<Event> {
    /// Returns the number of counts and waits that have ended well.
    #[must_use]
    pub fn passed(&self) -> usize {
        let has_passed = |entry: &&Entry| matches!(entry.event, Event::Counted(..) | Event::Waited(_, true));
        self.entries.iter().filter(has_passed).count()
    }

    /// Returns all violations, in the order of time.
    #[must_use]
    pub fn check(&self, rules: &Rules) -> Vec<Violation> {
        let mut checker = Checker::new(rules, &self.faults);
        for entry in &self.entries {
            checker.apply(entry);
        }
        checker.look_at_opened();
        checker.found.extend(self.left_behind.iter().cloned().map(Violation::LeftBehind));
        checker.found
    }
}

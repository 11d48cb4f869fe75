//! The calls of counters, and the check for violations.
//!
//! A [`Counters`] is a list of calls with the times of their beginnings and ends. [`Counters::check`] finds violations:
//!
//! - values that no order of the calls explains, such as an addition that counts twice, is lost, or starts from a value
//!   that was never stored
//! - a sum that differs from the additions
//! - a call that changes another value than it says
//! - an unknown outcome outside of faults
//! - an id that is returned twice, or that is not above an earlier one
//!
//! A call that has ended counts before each call that started later. One with an unknown outcome counts once or not at
//! all. A call that only shows a value may show an earlier one, if the server of its client is behind.
//! An addition may create a missing number as 0 before it adds.

mod checker;
mod order;
#[cfg(test)]
mod tests;

use std::time::Duration;

use self::checker::Checker;
use crate::Violation;
use crate::timeline::Timeline;

/// The id of one counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Counter(pub u64);

/// The id of one call. Never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Call(pub u64);

/// The operation of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Reads the value.
    Get,
    /// Adds a number.
    Add(i64),
    /// Sets the value, over any value.
    Set(i64),
    /// Sets the value if it has an expected one.
    CompareAndSet {
        /// The expected value.
        expected: i64,
        /// The new value.
        new: i64,
    },
    /// Sets the value if the node is missing.
    Initialize(i64),
    /// Takes ids.
    Ids {
        /// `true` if each id is above the ids of all calls that ended before.
        rising: bool,
    },
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The call has changed the value.
    Changed {
        /// The value before; 0 of a missing node.
        pre: i64,
        /// The value after it.
        post: i64,
    },
    /// The call has changed the value, and does not tell the one before.
    Done,
    /// The call has changed nothing, and returns the value; 0 of a missing node.
    Shows(i64),
    /// The call has changed nothing, because the value is missing.
    Missing,
    /// The call has changed nothing, because there is a value.
    Exists,
    /// The call has failed, and has certainly changed nothing.
    Refused,
    /// The call has failed, and may have changed the value once.
    Unknown,
    /// The ids that the call has taken.
    Ids(Vec<u64>),
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// A call started.
    Began(Call, Counter, Operation),
    /// A call has ended. A call that was dropped has no end, and an unknown outcome.
    Ended(Call, Outcome),
    /// The server has this value from now on. These events speed the check up, and do not change its result.
    Value(Counter, i64),
}

/// The rules that counters must obey.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rules {
    /// The time by which the server of a client may be behind, outside of faults of the servers.
    pub behind: Duration,
}

impl Rules {
    /// Returns the rules of all counters.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the time by which the server of a client may be behind, outside of faults of the servers.
    #[must_use]
    pub const fn behind(mut self, behind: Duration) -> Self {
        self.behind = behind;
        self
    }
}

/// The calls of counters, in the order of time.
pub type Counters = Timeline<Event>;

impl Timeline<Event> {
    /// Returns the number of calls that have changed a value or taken ids.
    #[must_use]
    pub fn counted(&self) -> usize {
        let has_counted =
            |outcome: &Outcome| matches!(outcome, Outcome::Changed { .. } | Outcome::Done | Outcome::Ids(_));
        self.count(|event| matches!(event, Event::Ended(_, outcome) if has_counted(outcome)))
    }

    /// Returns all violations: of single calls, of ids, and of each counter.
    #[must_use]
    pub fn check(&self, rules: &Rules) -> Vec<Violation> {
        self.check_by(Checker::new(rules, self))
    }
}

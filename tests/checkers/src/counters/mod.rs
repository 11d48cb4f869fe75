//! The calls of counters, and the check for violations.
//!
//! A [`Counters`] is a list of calls with the times of their beginnings and ends. [`Counters::check`] finds violations:
//!
//! - values that no order of the calls explains, such as an addition that counts twice, is lost, or starts from a value
//!   that never stood
//! - a sum that differs from the additions
//! - a call that changes another value than it says
//! - an unknown outcome outside of faults
//! - an id that is returned twice, or that is not above an earlier one
//!
//! A call that has ended counts before each call that began later. One with an unknown outcome counts once or not at
//! all. A call that only shows a value may show an earlier one, if the server of its client is behind.
//! An addition may create a missing number as 0 before it adds.
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//! use curator_test::counters::{Call, Counter, Counters, Event, Operation, Outcome, Rules, Violation};
//!
//! let (counter, at) = (Counter(1), Duration::from_secs);
//! let mut counters = Counters::new();
//! counters.record(at(1), Event::Began(Call(1), counter, Operation::Add(1)));
//! // The reply is lost, and the client adds once more.
//! counters.record(at(2), Event::Ended(Call(1), Outcome::Changed { pre: 1, post: 2 }));
//! counters.record(at(3), Event::Began(Call(2), counter, Operation::Get));
//! counters.record(at(3), Event::Ended(Call(2), Outcome::Shows(2)));
//! let found = counters.check(&Rules::new());
//! assert_eq!(found, [Violation::WrongSum { counter, least: 1, most: 1, value: 2 }]);
//! ```

mod order;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use self::order::{Order, first_order};
use crate::timeline::{self, Timeline};

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
    /// Sets the value, whatever it was.
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
        /// `true` if each id is above those of all calls that ended before.
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
    /// A call began.
    Began(Call, Counter, Operation),
    /// A call has ended. A call that was dropped has no end, and an unknown outcome.
    Ended(Call, Outcome),
    /// The server has this value from now on. These events speed the check up, and do not change its result.
    Value(Counter, i64),
}

/// An event with its time.
pub type Entry = timeline::Entry<Event>;

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

/// A violation of the rules.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// A result that its operation cannot have, such as a sum that differs from its parts.
    WrongResult {
        /// The call.
        call: Call,
        /// The operation.
        operation: Operation,
        /// The result.
        outcome: Outcome,
    },
    /// A counter of additions alone does not have their sum.
    WrongSum {
        /// The counter.
        counter: Counter,
        /// The least sum: unknown outcomes have only reduced it.
        least: i128,
        /// The largest sum: unknown outcomes have only raised it.
        most: i128,
        /// The value at the end.
        value: i64,
    },
    /// No order of the calls explains their results.
    NotInOneOrder {
        /// The counter.
        counter: Counter,
        /// The first call that fits into none of the orders.
        call: Call,
        /// The value that the order which leads farthest has before this call.
        value: Option<i64>,
    },
    /// The calls have too many orders to search all of them. Additions of various numbers have fewer.
    TooManyOrders(Counter),
    /// The outcome of a call outside of faults is unknown.
    UnknownInCalm {
        /// The time of its end.
        at: Duration,
        /// The call.
        call: Call,
    },
    /// An id was returned twice.
    SameId {
        /// The later call.
        call: Call,
        /// The earlier call, or the same one.
        earlier: Call,
        /// The id.
        id: u64,
    },
    /// An id is not above one that was returned before.
    IdFell {
        /// The later call.
        call: Call,
        /// Its id.
        id: u64,
        /// The id that was returned before.
        above: u64,
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
            Self::WrongResult { call, operation, outcome } => {
                write!(f, "{call:?} has the result {outcome:?}, which {operation:?} cannot have")
            }
            Self::WrongSum { counter, least, most, value } => {
                write!(f, "{counter:?} is {value}, but its additions have a sum from {least} to {most}")
            }
            Self::NotInOneOrder { counter, call, value } => {
                write!(f, "no order of the calls of {counter:?} explains {call:?}; the value before it is {value:?}")
            }
            Self::TooManyOrders(counter) => write!(f, "the calls of {counter:?} have too many orders"),
            Self::UnknownInCalm { at, call } => {
                write!(f, "{at:?}: the outcome of {call:?} is unknown although nothing is wrong")
            }
            Self::SameId { call, earlier, id } => write!(f, "{call:?} has the id {id}, as {earlier:?} has"),
            Self::IdFell { call, id, above } => write!(f, "{call:?} has the id {id}, behind {above}"),
            Self::OutOfOrder { at, event } => write!(f, "{at:?}: {event:?} is out of order"),
            Self::LeftBehind(what) => write!(f, "left behind: {what}"),
        }
    }
}

/// The calls of counters, in the order of time.
pub type Counters = Timeline<Event>;

impl Timeline<Event> {
    /// Returns the number of calls that have changed a value or taken ids.
    #[must_use]
    pub fn counted(&self) -> usize {
        let has_counted = |entry: &&Entry| {
            matches!(entry.event, Event::Ended(_, Outcome::Changed { .. } | Outcome::Done | Outcome::Ids(_)))
        };
        self.entries.iter().filter(has_counted).count()
    }

    /// Records a time in which the server of a client may be behind.
    pub fn stale(&mut self, from: Duration, until: Duration) {
        self.slow.push((from, until));
    }

    /// Returns all violations: those of single calls, those of ids, and those of each counter.
    #[must_use]
    pub fn check(&self, rules: &Rules) -> Vec<Violation> {
        let mut found = Vec::new();
        let (mut calls, counters) = self.calls(&mut found);
        for known in calls.values_mut().filter(|known| known.only_shows()) {
            known.begin = self.first_seen(known.begin_time, rules.behind).min(known.begin);
        }
        for (call, known) in &calls {
            let outcome = known.outcome.clone().unwrap_or(Outcome::Unknown);
            if !known.operation.can_have(&outcome) {
                let (call, operation) = (*call, known.operation);
                found.push(Violation::WrongResult { call, operation, outcome });
            } else if let (Some(Outcome::Unknown), Some(at)) = (&known.outcome, known.end_time) {
                if !self.faults.iter().any(|(from, until)| *from <= at && *until >= known.begin_time) {
                    found.push(Violation::UnknownInCalm { at, call: *call });
                }
            }
        }
        for (counter, its) in counters {
            let calls: Vec<_> = its.iter().map(|call| (*call, &calls[call])).collect();
            look_at_ids(&calls, &mut found);
            let wrong_sum = look_at_the_sum(counter, &calls);
            if wrong_sum.is_none() {
                let value_of = |entry: &Entry| match entry.event {
                    Event::Value(its, value) if its == counter => Some(value),
                    _ => None,
                };
                let values: Vec<_> = self.entries.iter().filter_map(value_of).collect();
                match first_order(&calls, &values) {
                    Order::Found => {}
                    Order::Missing { call, value } => {
                        found.push(Violation::NotInOneOrder { counter, call, value });
                    }
                    Order::Unknown => found.push(Violation::TooManyOrders(counter)),
                }
            }
            found.extend(wrong_sum);
        }
        found.extend(self.left_behind.iter().cloned().map(Violation::LeftBehind));
        found
    }

    /// Returns the first entry that a server may show to a call that begins at a time.
    fn first_seen(&self, begin: Duration, behind: Duration) -> usize {
        let stale = self.slow.iter().filter(|(from, until)| (*from..=*until).contains(&begin));
        let from = stale.map(|(from, _)| *from).min().unwrap_or(begin).saturating_sub(behind);
        self.entries.partition_point(|entry| entry.at < from)
    }

    /// Returns all calls, and those of each counter.
    fn calls(&self, found: &mut Vec<Violation>) -> (BTreeMap<Call, Known>, BTreeMap<Counter, Vec<Call>>) {
        let mut calls = BTreeMap::<Call, Known>::new();
        let mut counters = BTreeMap::<Counter, Vec<Call>>::new();
        for (index, Entry { at, event }) in self.entries.iter().enumerate() {
            let in_order = match event {
                Event::Began(call, counter, operation) => {
                    counters.entry(*counter).or_default().push(*call);
                    calls.insert(*call, Known::new(*operation, index, *at)).is_none()
                }
                Event::Ended(call, outcome) => {
                    let known = calls.get_mut(call).filter(|known| known.outcome.is_none());
                    known.map(|known| known.ends(outcome.clone(), index, *at)).is_some()
                }
                Event::Value(..) => true,
            };
            if !in_order {
                found.push(Violation::OutOfOrder { at: *at, event: event.clone() });
            }
        }
        (calls, counters)
    }
}

/// One call. Its beginning and its end are numbers of entries.
#[derive(Debug)]
struct Known {
    operation: Operation,
    outcome: Option<Outcome>,
    begin: usize,
    begin_time: Duration,
    end: Option<usize>,
    end_time: Option<Duration>,
}

impl Known {
    const fn new(operation: Operation, begin: usize, begin_time: Duration) -> Self {
        Self { operation, outcome: None, begin, begin_time, end: None, end_time: None }
    }

    /// Returns `true` if the call has read the value and changed nothing.
    const fn only_shows(&self) -> bool {
        matches!(self.outcome, Some(Outcome::Shows(_) | Outcome::Missing | Outcome::Exists))
    }

    fn ends(&mut self, outcome: Outcome, end: usize, end_time: Duration) {
        (self.outcome, self.end, self.end_time) = (Some(outcome), Some(end), Some(end_time));
    }
}

impl Operation {
    /// Returns `true` if a call with this operation may have this result.
    fn can_have(self, outcome: &Outcome) -> bool {
        match (self, outcome) {
            (Self::Add(delta), Outcome::Changed { pre, post }) => pre.checked_add(delta) == Some(*post),
            (Self::Set(value), Outcome::Changed { post, .. }) => *post == value,
            (Self::CompareAndSet { expected, new }, Outcome::Changed { pre, post }) => (*pre, *post) == (expected, new),
            (Self::Add(delta), Outcome::Shows(value)) => value.checked_add(delta).is_none(),
            (Self::CompareAndSet { expected, .. }, Outcome::Shows(value)) => *value != expected,
            (Self::Get, Outcome::Shows(_))
            | (Self::CompareAndSet { .. }, Outcome::Missing)
            | (Self::Set(_) | Self::Initialize(_), Outcome::Done)
            | (Self::Initialize(_), Outcome::Exists)
            | (Self::Ids { .. }, Outcome::Ids(_))
            | (_, Outcome::Refused | Outcome::Unknown) => true,
            _ => false,
        }
    }
}

fn look_at_ids(calls: &[(Call, &Known)], found: &mut Vec<Violation>) {
    let mut given = BTreeMap::new();
    // The largest id of each call that has ended, with the number of the entry.
    let mut ended: Vec<(usize, u64)> = Vec::new();
    for (call, known) in calls {
        let Some(Outcome::Ids(ids)) = &known.outcome else { continue };
        for id in ids {
            if let Some(earlier) = given.insert(*id, *call) {
                found.push(Violation::SameId { call: *call, earlier, id: *id });
            }
        }
        if !matches!(known.operation, Operation::Ids { rising: true }) {
            continue;
        }
        let before = ended.iter().filter(|(end, _)| *end < known.begin).map(|(_, id)| *id).max();
        let fell =
            before.into_iter().chain(ids.iter().copied()).zip(ids.iter().copied().skip(usize::from(before.is_none())));
        for (above, id) in fell.filter(|(above, id)| id <= above) {
            found.push(Violation::IdFell { call: *call, id, above });
        }
        ended.extend(known.end.zip(ids.iter().max().copied()));
    }
}

/// Compares a counter that has additions alone with their sum, if its last call reads it after all others.
fn look_at_the_sum(counter: Counter, calls: &[(Call, &Known)]) -> Option<Violation> {
    let (_, last) =
        calls.iter().filter(|(_, known)| known.operation == Operation::Get).max_by_key(|(_, known)| known.begin)?;
    let Some(Outcome::Shows(value)) = last.outcome else { return None };
    let (mut least, mut most) = (0, 0);
    for (_, known) in calls {
        let Operation::Add(delta) = known.operation else {
            if known.operation == Operation::Get { continue } else { return None }
        };
        let delta = i128::from(delta);
        match known.outcome {
            Some(Outcome::Changed { .. }) if known.end < Some(last.begin) => {
                (least, most) = (least + delta, most + delta)
            }
            Some(Outcome::Shows(_) | Outcome::Refused) => {}
            // Also a call that may have changed the value after the last read.
            _ => (least, most) = (least + delta.min(0), most + delta.max(0)),
        }
    }
    let is_right = (least..=most).contains(&i128::from(value));
    (!is_right).then_some(Violation::WrongSum { counter, least, most, value })
}

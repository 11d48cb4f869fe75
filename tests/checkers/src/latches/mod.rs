//! The counts and waiters of a count-down latch, and the check for violations.
//!
//! A latch opens when a number of operations have counted down. Then the next round may start. Each count is a child of
//! the round's node. The data of the latch's node has the number of the round, and the mark that it is open. A
//! [`Latches`] is a list of events with their times: the changes at the server, and the calls of clients.
//! [`Latches::check`] finds violations:
//!
//! - a wait that ends before enough operations have counted
//! - a round with more counts than it needs, or that opens or ends with fewer
//! - an operation that counts twice, or that is confirmed and does not count
//! - a reported number of remaining counts that the round did not have
//! - a round that two calls report as started by them, or that a call does not start although no round continues

mod checker;
#[cfg(test)]
mod tests;

use std::time::Duration;

use self::checker::Checker;
use crate::Violation;
use crate::timeline::Timeline;
use curator_test::nodes::Change;

/// The id of one call. Never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Call(pub u64);

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// A change at the server.
    Server(Change),
    /// A call that sets the count starts.
    SetsCount(Call, u32),
    /// The call has ended: `true` if it has set the count, `false` if a count exists.
    SetCount(Call, bool),
    /// A call that counts down starts. Without an operation id it has one that no other call has.
    Counts(Call, Option<String>),
    /// The operation has counted, and this number of counts remain.
    Counted(Call, u32),
    /// A call that reads the number of remaining counts starts.
    Reads(Call),
    /// The call shows that this number of counts remain.
    Shows(Call, u32),
    /// A call that waits starts.
    Waits(Call),
    /// The wait has ended: `true` if the latch is open, `false` if its time has ended.
    Waited(Call, bool),
    /// The call has failed, or was dropped.
    Gone(Call),
}

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

/// The events of a latch, in the order of time.
pub type Latches = Timeline<Event>;

impl Timeline<Event> {
    /// Returns the number of counts and waits that have ended well.
    #[must_use]
    pub fn passed(&self) -> usize {
        self.count(|event| matches!(event, Event::Counted(..) | Event::Waited(_, true)))
    }

    /// Returns all violations, in the order of time.
    #[must_use]
    pub fn check(&self, rules: &Rules) -> Vec<Violation> {
        self.check_by(Checker::new(rules, self))
    }
}

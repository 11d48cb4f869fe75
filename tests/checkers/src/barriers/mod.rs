//! The members and waiters of barriers, and the check for violations.
//!
//! The members of a double barrier enter together and leave together: its node `ready` opens it, and the nodes of its
//! members are beside it. A plain barrier is a node, and its waiters pass when it is deleted. A [`Barriers`] is a
//! list of events with their times: the changes at the server, and the calls of members and waiters.
//! [`Barriers::check`] finds violations:
//!
//! - a double barrier that opens with too few members, or with one that counts twice
//! - a member that enters by the `ready` of an earlier round
//! - a member that leaves before another member of its round
//! - two members that have opened one round
//! - a wrong number of members that died
//! - a call that reports a state which the barrier did not have, such as a waiter that passes while it exists

mod checker;
#[cfg(test)]
mod tests;

use std::time::Duration;

use self::checker::Checker;
use crate::Violation;
use crate::timeline::Timeline;
use curator_test::nodes::Change;

/// The id of one member, from the start of its enter to the end of its leave. Never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member(pub u64);

/// The id of one call at a plain barrier. Never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Call(pub u64);

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// A change at the server.
    Server(Change),
    /// The member starts to enter. Its nodes have this data, which no other member has.
    Enters(Member, String),
    /// The member has entered.
    Entered {
        /// The member.
        member: Member,
        /// The member itself has opened the barrier.
        opened: bool,
    },
    /// The member, which has entered, names the transaction that opened its round.
    Names(Member, i64),
    /// The member starts to leave.
    Leaves(Member),
    /// The member has left.
    Left {
        /// The member.
        member: Member,
        /// The number of members that have died in the meantime, as the member reports it.
        died: u32,
    },
    /// The member has not entered, does not leave properly, or has lost its node. From now on others do not wait for
    /// it.
    Gone(Member),
    /// A call at the plain barrier at a path starts.
    Calls(Call, String),
    /// The call has ended, and reports the barrier as set (`true`) or removed.
    Saw(Call, bool),
}

/// The rules that barriers must obey.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// The path of the double barrier.
    pub path: String,
    /// The least number of members that open it.
    pub least: usize,
    /// The time by which the server of a client may be behind, outside of faults.
    pub behind: Duration,
}

impl Rules {
    /// Returns the rules of a double barrier at a path that opens with at least `least` members, and of all plain
    /// barriers.
    #[must_use]
    pub fn new(path: impl Into<String>, least: usize) -> Self {
        Self { path: path.into(), least, behind: Duration::ZERO }
    }

    /// Adds the time by which the server of a client may be behind, outside of faults.
    #[must_use]
    pub const fn behind(mut self, behind: Duration) -> Self {
        self.behind = behind;
        self
    }
}

/// The events of barriers, in the order of time.
pub type Barriers = Timeline<Event>;

impl Timeline<Event> {
    /// Returns the number of enters and calls that have ended well.
    #[must_use]
    pub fn passed(&self) -> usize {
        self.count(|event| matches!(event, Event::Entered { .. } | Event::Saw(..)))
    }

    /// Returns all violations, in the order of time.
    #[must_use]
    pub fn check(&self, rules: &Rules) -> Vec<Violation> {
        self.check_by(Checker::new(rules, self))
    }
}

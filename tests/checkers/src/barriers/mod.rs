//! The members and waiters of barriers, and the check for violations.
//!
//! The members of a double barrier enter together and leave together: its node `ready` opens it, and the nodes of its
//! members stand beside that. A plain barrier is a node, and its waiters pass when it is deleted. A [`Barriers`] is a
//! list of events with their times: the changes at the server, and the calls of members and waiters.
//! [`Barriers::check`] finds violations:
//!
//! - a double barrier that opens with too few members, or with one that counts twice
//! - a member that enters by the `ready` of an earlier round
//! - a member that leaves before another member of its round
//! - two members that have opened one round
//! - a wrong number of members that died
//! - a call that reports a state which the barrier did not have, such as a waiter that passes while it stands
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//! use curator_test::barriers::{Barriers, Event, Member, Rules, Violation};
//! use curator_test::nodes::{Change, Node};
//!
//! let at = Duration::from_secs;
//! let created = |name: &str, czxid, session, data: &str| {
//!     let node = Node { czxid, session, data: data.into() };
//!     Event::Server(Change::Created { path: format!("/barrier/{name}"), node })
//! };
//! let mut barriers = Barriers::new();
//! barriers.record(at(1), Event::Enters(Member(1), "a".to_owned()));
//! barriers.record(at(1), created("_c_1-member", 7, 4711, "a"));
//! barriers.record(at(2), created("ready", 8, 0, ""));
//! barriers.record(at(3), Event::Entered { member: Member(1), opened: true });
//! let found = barriers.check(&Rules::new("/barrier", 2));
//! assert_eq!(found, [Violation::TooFew { at: at(2), round: 8, members: vec!["a".to_owned()] }]);
//! ```

mod checker;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use self::checker::Checker;
use crate::timeline::{self, Timeline};
use curator_test::nodes::Change;

/// The id of one member, from the beginning of its enter to the end of its leave. Never used twice.
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
    /// The member begins to enter. Its nodes have this data, which no other member has.
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
    /// The member begins to leave.
    Leaves(Member),
    /// The member has left.
    Left {
        /// The member.
        member: Member,
        /// The number of members that have died meanwhile, as the member reports it.
        died: u32,
    },
    /// The member has not entered, does not leave properly, or has lost its node. From now on others do not wait for
    /// it.
    Gone(Member),
    /// A call at the plain barrier at a path begins.
    Calls(Call, String),
    /// The call has ended, and reports the barrier as set (`true`) or removed.
    Saw(Call, bool),
}

/// An event with its time.
pub type Entry = timeline::Entry<Event>;

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

/// A violation of the rules.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// The double barrier opened with too few members.
    TooFew {
        /// The time.
        at: Duration,
        /// The transaction that opened it.
        round: i64,
        /// The members that stood, each once.
        members: Vec<String>,
    },
    /// A member entered while no round was open to it. `ready` was missing, or older than the member's node and without
    /// another member of its round.
    NotOpen {
        /// The time.
        at: Duration,
        /// The member.
        member: Member,
    },
    /// A member names another round than its own.
    OtherRound {
        /// The time.
        at: Duration,
        /// The member.
        member: Member,
        /// The round.
        round: i64,
    },
    /// Two members say that they have opened one round.
    OpenedTwice {
        /// The time.
        at: Duration,
        /// The later member.
        member: Member,
        /// The round.
        round: i64,
    },
    /// A member has left while another member of its round stood that had not begun to leave.
    LeftBefore {
        /// The time.
        at: Duration,
        /// The member.
        member: Member,
        /// The other member.
        other: Member,
    },
    /// A member reports a wrong number of members that died.
    WrongDeaths {
        /// The time.
        at: Duration,
        /// The member.
        member: Member,
        /// The reported number.
        died: u32,
        /// The number of nodes that were deleted although their members had not begun to leave or to give up.
        least: u32,
        /// The number of all nodes that were deleted meanwhile.
        most: u32,
    },
    /// A call reports a state that the barrier did not have while the call went on.
    WrongState {
        /// The time.
        at: Duration,
        /// The call.
        call: Call,
        /// `true` if the call reports a barrier that is set.
        is_set: bool,
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
            Self::TooFew { at, round, members } => {
                write!(f, "{at:?}: round {round} opened with {} members: {members:?}", members.len())
            }
            Self::NotOpen { at, member } => write!(f, "{at:?}: {member:?} has entered, and no round was open to it"),
            Self::OtherRound { at, member, round } => {
                write!(f, "{at:?}: {member:?} names round {round}, which is not its own")
            }
            Self::OpenedTwice { at, member, round } => {
                write!(f, "{at:?}: {member:?} has opened round {round}, as another member has")
            }
            Self::LeftBefore { at, member, other } => {
                write!(f, "{at:?}: {member:?} has left before {other:?}, which had not begun to")
            }
            Self::WrongDeaths { at, member, died, least, most } => {
                write!(f, "{at:?}: {member:?} reports {died} deaths of {least} to {most}")
            }
            Self::WrongState { at, call, is_set } => {
                let state = if *is_set { "set" } else { "removed" };
                write!(f, "{at:?}: {call:?} ends by a barrier that is {state}, which it never was meanwhile")
            }
            Self::OutOfOrder { at, event } => write!(f, "{at:?}: {event:?} is out of order"),
            Self::LeftBehind(what) => write!(f, "left behind: {what}"),
        }
    }
}

/// The events of barriers, in the order of time.
pub type Barriers = Timeline<Event>;

impl Timeline<Event> {
    /// Returns the number of enters and calls that have ended well.
    #[must_use]
    pub fn passed(&self) -> usize {
        let has_passed = |entry: &&Entry| matches!(entry.event, Event::Entered { .. } | Event::Saw(..));
        self.entries.iter().filter(has_passed).count()
    }

    /// Returns all violations, in the order of time.
    #[must_use]
    pub fn check(&self, rules: &Rules) -> Vec<Violation> {
        let mut checker = Checker::new(rules, &self.faults);
        for entry in &self.entries {
            checker.apply(entry);
        }
        checker.found.extend(self.left_behind.iter().cloned().map(Violation::LeftBehind));
        checker.found
    }
}

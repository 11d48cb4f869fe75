//! The events of registrations, and the check for violations.
//!
//! A registration is a node that a client keeps standing over all its sessions. A [`Registrations`] is a list of events
//! with their times: the changes at the server, and the states that the registrations report.
//! [`Registrations::check`] finds violations:
//!
//! - a state that names a node which never existed, or a node of another session
//! - a registration without its node, or with other data than it wants, outside of faults
//! - a node that a registration has left behind
//! - a write that was confirmed and never made
//!
//! Two registrations may want one ephemeral path. Then the node belongs to one of them, and the other one must
//! report the session that has it.

mod checker;
#[cfg(test)]
mod tests;

use std::time::Duration;

use curator_test::ClientId;
use curator_test::nodes::Change;

use self::checker::Checker;
use crate::Violation;
use crate::timeline::Timeline;

/// The id of one registration, from its start to its close. Never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Registration(pub u64);

/// The node that a registration wants.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Plan {
    /// Its client.
    pub client: ClientId,
    /// The path of the node, or that to which a number and a protection are added.
    pub path: String,
    /// True if the node belongs to a session.
    pub ephemeral: bool,
    /// True if the node has this very path.
    pub exact: bool,
    /// True if foreign data is overwritten.
    pub mends: bool,
}

impl Plan {
    /// Returns the plan of an ephemeral node at this very path, in which foreign data is kept.
    pub fn ephemeral(client: ClientId, path: impl Into<String>) -> Self {
        Self { client, path: path.into(), ephemeral: true, exact: true, mends: false }
    }

    /// Returns `true` if a node of this plan may have this path.
    fn allows(&self, path: &str) -> bool {
        match (self.path.rsplit_once('/'), path.rsplit_once('/')) {
            (Some((parent, name)), Some((above, its))) if !self.exact => parent == above && its.contains(name),
            _ => self.path == path,
        }
    }
}

/// The state that a registration reports.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum State {
    /// The node does not exist, or not yet.
    Absent,
    /// The node exists.
    Standing {
        /// The path of the node at the server.
        path: String,
        /// The transaction that created it.
        czxid: i64,
        /// The session that owns it; 0 if it is not ephemeral.
        session: i64,
        /// The data of another client, which is kept.
        foreign: Option<Vec<u8>>,
    },
    /// A node of another session has the path.
    TakenBy {
        /// The session; 0 if that node is not ephemeral.
        session: i64,
        /// The transaction that created that node.
        czxid: i64,
    },
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// A change at the server.
    Server(Change),
    /// The client has this session from now on.
    SessionBegan(ClientId, i64),
    /// A node was created that belongs to no registration, and may stay.
    Outsider {
        /// Its path.
        path: String,
        /// The transaction that created it.
        czxid: i64,
    },
    /// The registration wants its node from now on, with this data.
    Started(Registration, Plan, Vec<u8>),
    /// The registration wants this data from now on. No data is wanted twice.
    Wants(Registration, Vec<u8>),
    /// The registration has confirmed that the server has this data.
    Wrote(Registration, Vec<u8>),
    /// The registration reports this state.
    Tells(Registration, State),
    /// The registration does not want its node any more.
    Closed(Registration),
}

/// The rules that registrations must obey.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// The limit of the time in which a registration differs from the server outside of faults, and of that in which a
    /// node without registration exists.
    pub patience: Duration,
    /// True if no session may lose its node outside of faults.
    pub kept_in_calm: bool,
}

impl Rules {
    /// Returns the rules of all registrations.
    #[must_use]
    pub const fn new(patience: Duration) -> Self {
        Self { patience, kept_in_calm: false }
    }

    /// Adds that no session may lose its node outside of faults. Not for processes that may be slow.
    #[must_use]
    pub const fn no_loss_in_calm(mut self) -> Self {
        self.kept_in_calm = true;
        self
    }
}

/// The events of registrations, in the order of time.
pub type Registrations = Timeline<Event>;

impl Timeline<Event> {
    /// Returns the number of reported states with a node that exists.
    #[must_use]
    pub fn standing(&self) -> usize {
        self.count(|event| matches!(event, Event::Tells(_, State::Standing { .. })))
    }

    /// Returns all violations, in the order of time.
    #[must_use]
    pub fn check(&self, rules: &Rules) -> Vec<Violation> {
        self.check_by(Checker::new(rules, self))
    }
}

//! The events of a leader election, and the check for violations.
//!
//! An [`Elections`] is a list of events with their times, from a simulation or from real processes.
//! [`Elections::check`] finds violations:
//!
//! - two leaders, or terms that do not rise
//! - a term on a node that was gone
//! - candidates without a leader outside of faults
//! - a wrong report of an observer
//!
//! A term lasts from its start to the last [`Event::SeenLeading`]. So the recorder of the events asks every
//! candidate that leads whenever another term starts. If the *server* deletes a node or ends its session, the leader
//! cannot know it at once. Such an end is an event of its own, [`Event::Revoked`]: the term counts until then, and the
//! leader must be notified of the loss within [`Rules::prompt`].

mod checker;
#[cfg(test)]
mod tests;

use std::time::Duration;

use self::checker::Checker;
use crate::Violation;
use crate::timeline::Timeline;

/// The id of one candidate, from its start to its close. Never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Candidate(pub u64);

/// The id of one observer. Never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Observer(pub u64);

/// The latest state that an observer reports.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Report {
    /// It does not know.
    Unknown,
    /// The election has no leader.
    NoLeader,
    /// The leader's term and the name of its node.
    Leader(i64, String),
}

/// One event of an election.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// The candidate wants to lead from now on.
    Joined(Candidate),
    /// The candidate does not want to lead any more: it closed, or abstains. Its term has ended.
    Left(Candidate),
    /// The candidate leads from now on.
    Leads {
        /// The candidate.
        candidate: Candidate,
        /// Its term: the `czxid` of its node, or a later transaction.
        term: i64,
        /// The name of its node, which no other node ever has.
        node: String,
    },
    /// `is_leader()` of this term was true.
    SeenLeading {
        /// The candidate.
        candidate: Candidate,
        /// The term.
        term: i64,
    },
    /// The candidate was notified of the loss of this term.
    Lost {
        /// The candidate.
        candidate: Candidate,
        /// The term.
        term: i64,
    },
    /// The candidate has ended this term itself.
    Resigned {
        /// The candidate.
        candidate: Candidate,
        /// The term.
        term: i64,
    },
    /// The server created a candidate's node. Optional: if any node is recorded, all must be.
    Created {
        /// The name of the node.
        node: String,
        /// Its `czxid`.
        czxid: i64,
    },
    /// The server deleted a node: an administrator deleted it, or its session was ended by the server.
    Revoked {
        /// The name of the node.
        node: String,
    },
    /// An observer reports a state.
    Reports(Observer, Report),
    /// An observer was closed.
    Stopped(Observer),
}

/// The rules that an election must obey.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// True if terms must rise from leader to leader, and in the reports of each observer. A leader may resume its term
    /// if no other has led since.
    pub rising_terms: bool,
    /// The limit of the time from [`Event::Revoked`] to the notification of the loss. `None`: not checked.
    pub prompt: Option<Duration>,
    /// The limit of the time for which the start of a term may be on its way after the server deleted the node. A
    /// listing that was sent just before takes this time. [Slow](Elections::slow) times do not count. `None`: not
    /// checked.
    pub on_its_way: Option<Duration>,
    /// The limit of the time in which candidates are without a leader outside of faults, and of the time in which an
    /// observer reports another state.
    pub patience: Duration,
    /// True if no leader may lose its term outside of faults.
    pub kept_in_calm: bool,
}

impl Rules {
    /// Returns the rules of every election.
    #[must_use]
    pub const fn new(patience: Duration) -> Self {
        Self { rising_terms: true, prompt: None, on_its_way: None, patience, kept_in_calm: false }
    }

    /// Adds that a leader must be notified of a revocation within this time.
    #[must_use]
    pub const fn prompt(mut self, within: Duration) -> Self {
        self.prompt = Some(within);
        self
    }

    /// Adds that no term may start later than this after the end of its node.
    #[must_use]
    pub const fn on_its_way(mut self, within: Duration) -> Self {
        self.on_its_way = Some(within);
        self
    }

    /// Adds that no leader may lose its term outside of faults. Not for processes that may be slow.
    #[must_use]
    pub const fn no_loss_in_calm(mut self) -> Self {
        self.kept_in_calm = true;
        self
    }

    /// Allows terms to fall: the servers may lose their data, and their transactions start again.
    #[must_use]
    pub const fn falling_terms(mut self) -> Self {
        self.rising_terms = false;
        self
    }
}

/// The events of one election, in the order of time.
pub type Elections = Timeline<Event>;

impl Timeline<Event> {
    /// Returns the number of terms.
    #[must_use]
    pub fn terms(&self) -> usize {
        self.count(|event| matches!(event, Event::Leads { .. }))
    }

    /// Returns all violations, in the order of time.
    #[must_use]
    pub fn check(&self, rules: &Rules) -> Vec<Violation> {
        self.check_by(Checker::new(rules, self))
    }
}

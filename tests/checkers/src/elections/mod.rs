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
//! A term lasts from its beginning to the last [`Event::SeenLeading`]. So the recorder of the events asks every
//! candidate that leads whenever another term begins. If the *server* deletes a node or ends its session, the leader
//! cannot know it at once. Such an end is an event of its own, [`Event::Revoked`]: the term counts until then, and the
//! leader must be notified of the loss within [`Rules::prompt`].
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//! use curator_test::elections::{Candidate, Elections, Event, Rules, Violation};
//!
//! let (first, second) = (Candidate(1), Candidate(2));
//! let at = Duration::from_secs;
//! let mut elections = Elections::new();
//! elections.record(at(0), Event::Joined(first));
//! elections.record(at(0), Event::Joined(second));
//! elections.record(at(1), Event::Leads { candidate: first, term: 7, node: "latch-0".to_owned() });
//! elections.record(at(5), Event::Leads { candidate: second, term: 8, node: "latch-1".to_owned() });
//! // The recorder asks the first one, which still believes that it leads.
//! elections.record(at(5), Event::SeenLeading { candidate: first, term: 7 });
//! let found = elections.check(&Rules::new(at(3)));
//! assert_eq!(found, [Violation::TwoLeaders { at: at(5), earlier: (first, 7), later: (second, 8) }]);
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use crate::locks::calm_stretch;
use crate::timeline::{self, Timeline};

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

/// An event with its time.
pub type Entry = timeline::Entry<Event>;

/// The rules that an election must obey.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// True if terms must rise from leader to leader, and in the reports of each observer. A leader may resume its term
    /// if no other has led since.
    pub rising_terms: bool,
    /// The limit of the time from [`Event::Revoked`] to the notification of the loss. `None`: not checked.
    pub prompt: Option<Duration>,
    /// The limit of the time for which the beginning of a term may be on its way after the server deleted the node. A
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

    /// Adds that no term may begin later than this after the end of its node.
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

    /// Allows terms to fall: the servers may lose their data, and their transactions begin anew.
    #[must_use]
    pub const fn falling_terms(mut self) -> Self {
        self.rising_terms = false;
        self
    }
}

/// A violation of the rules.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// A candidate believed that it leads when a later term had begun.
    TwoLeaders {
        /// The time at which `is_leader()` of the earlier term was true.
        at: Duration,
        /// The earlier leader with its term.
        earlier: (Candidate, i64),
        /// The later leader with its term.
        later: (Candidate, i64),
    },
    /// A candidate believed that it leads when its term had ended.
    LeadsAfterItsEnd {
        /// The time.
        at: Duration,
        /// The candidate.
        candidate: Candidate,
        /// The term.
        term: i64,
    },
    /// A term that is not above those before it.
    TermDoesNotRise {
        /// The time.
        at: Duration,
        /// The candidate.
        candidate: Candidate,
        /// Its term.
        term: i64,
        /// The largest term before.
        newest: i64,
    },
    /// A term that cannot be that of its node: it is below the `czxid`, or no such node was created.
    TermOfAnotherNode {
        /// The time.
        at: Duration,
        /// The candidate.
        candidate: Candidate,
        /// Its term.
        term: i64,
        /// Its node.
        node: String,
    },
    /// Candidates were without a leader for too long.
    NoLeader {
        /// The time from which they were.
        from: Duration,
        /// The time until which they were.
        until: Duration,
        /// The candidates.
        candidates: Vec<Candidate>,
    },
    /// A leader lost its term outside of faults.
    LostInCalm {
        /// The time.
        at: Duration,
        /// The candidate.
        candidate: Candidate,
        /// The term.
        term: i64,
    },
    /// A leader was not notified of a revocation in time.
    NotTold {
        /// The time of the revocation.
        at: Duration,
        /// The candidate.
        candidate: Candidate,
        /// The term.
        term: i64,
    },
    /// A term began on a node that the server had deleted before the listing was sent, or began there again.
    BeganOnARevokedNode {
        /// The time.
        at: Duration,
        /// The candidate.
        candidate: Candidate,
        /// The node.
        node: String,
        /// The time of the revocation.
        since: Duration,
    },
    /// An observer reported a term that no candidate had.
    UnknownTermReported {
        /// The time.
        at: Duration,
        /// The observer.
        observer: Observer,
        /// The term.
        term: i64,
        /// The node that was reported with it.
        node: String,
    },
    /// An observer reported a term below one that it had reported.
    ReportedTermFalls {
        /// The time.
        at: Duration,
        /// The observer.
        observer: Observer,
        /// The term.
        term: i64,
        /// The largest term that it had reported.
        newest: i64,
    },
    /// An observer reported another state than the present one for too long.
    ReportIsStale {
        /// The time from which it did.
        from: Duration,
        /// The time until which it did.
        until: Duration,
        /// The observer.
        observer: Observer,
        /// The reported term.
        reported: Option<i64>,
        /// The term of the present leader.
        leader: Option<i64>,
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
            Self::TwoLeaders { at, earlier, later } => {
                write!(
                    f,
                    "{at:?}: {:?} leads with term {} beside {:?} with term {}",
                    earlier.0, earlier.1, later.0, later.1
                )
            }
            Self::LeadsAfterItsEnd { at, candidate, term } => {
                write!(f, "{at:?}: {candidate:?} leads with term {term}, which has ended")
            }
            Self::TermDoesNotRise { at, candidate, term, newest } => {
                write!(f, "{at:?}: {candidate:?} leads with term {term}, not above {newest}")
            }
            Self::TermOfAnotherNode { at, candidate, term, node } => {
                write!(f, "{at:?}: {candidate:?} leads with term {term}, which is not that of {node}")
            }
            Self::NoLeader { from, until, candidates } => {
                write!(f, "{from:?} to {until:?}: {candidates:?} are without a leader")
            }
            Self::LostInCalm { at, candidate, term } => {
                write!(f, "{at:?}: {candidate:?} loses term {term} although nothing is wrong")
            }
            Self::NotTold { at, candidate, term } => {
                write!(f, "{at:?}: {candidate:?} is not notified in time of the loss of term {term}")
            }
            Self::BeganOnARevokedNode { at, candidate, node, since } => {
                write!(f, "{at:?}: {candidate:?} begins to lead on {node}, which is gone since {since:?}")
            }
            Self::UnknownTermReported { at, observer, term, node } => {
                write!(f, "{at:?}: {observer:?} reports term {term} of {node}, which it never had")
            }
            Self::ReportedTermFalls { at, observer, term, newest } => {
                write!(f, "{at:?}: {observer:?} reports term {term} after {newest}")
            }
            Self::ReportIsStale { from, until, observer, reported, leader } => {
                write!(f, "{from:?} to {until:?}: {observer:?} reports {reported:?}, the leader's term is {leader:?}")
            }
            Self::OutOfOrder { at, event } => write!(f, "{at:?}: {event:?} is out of order"),
            Self::LeftBehind(what) => write!(f, "left behind: {what}"),
        }
    }
}

/// The events of one election, in the order of time.
pub type Elections = Timeline<Event>;

impl Timeline<Event> {
    /// Records a time in which messages may be delayed: a fault of the network or a server, not of a session or a node.
    pub fn slow(&mut self, from: Duration, until: Duration) {
        self.slow.push((from, until));
    }

    /// Returns the number of terms.
    #[must_use]
    pub fn terms(&self) -> usize {
        self.entries.iter().filter(|entry| matches!(entry.event, Event::Leads { .. })).count()
    }

    /// Returns all violations, in the order of time.
    #[must_use]
    pub fn check(&self, rules: &Rules) -> Vec<Violation> {
        let mut checker = Checker::new(rules, self);
        for entry in &self.entries {
            checker.look_at_the_time(entry.at);
            checker.apply(entry);
            checker.note_the_time(entry.at);
        }
        if let Some(end) = self.entries.last().map(|entry| entry.at) {
            checker.look_at_the_time(end + Duration::from_nanos(1));
        }
        checker.found.extend(self.left_behind.iter().cloned().map(Violation::LeftBehind));
        checker.found
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Leading,
    /// The server has deleted its node, and it was not yet notified.
    Taken {
        at: Duration,
    },
    Ended,
}

/// One term, from its beginning.
#[derive(Debug)]
struct Term<'a> {
    candidate: Candidate,
    term: i64,
    node: &'a str,
    stage: Stage,
    /// It began before the server deleted its node: it excludes others.
    counts: bool,
}

/// The state of one observer.
#[derive(Debug)]
struct Watching {
    /// The term of its newest report.
    said: Option<i64>,
    newest: i64,
    /// The reported and the leader's term, which differ from this time on.
    differs: Option<(Option<i64>, Option<i64>, Duration)>,
}

struct Checker<'a> {
    rules: &'a Rules,
    history: &'a Elections,
    /// The candidates that want to lead.
    joined: BTreeSet<Candidate>,
    /// All terms, in the order of their beginnings.
    terms: Vec<Term<'a>>,
    newest: i64,
    /// The `czxid`s of the nodes that the server created, by name. A removal of the path ends the order of numbers, so a
    /// candidate may create a node of the same name again.
    created: BTreeMap<&'a str, Vec<i64>>,
    /// All terms of the history, with their nodes.
    led: BTreeSet<(&'a str, i64)>,
    revoked: BTreeMap<&'a str, Duration>,
    observers: BTreeMap<Observer, Watching>,
    /// The time from which candidates are without a leader.
    leaderless_from: Option<Duration>,
    found: Vec<Violation>,
}

impl<'a> Checker<'a> {
    fn new(rules: &'a Rules, history: &'a Elections) -> Self {
        let led = |entry: &'a Entry| match &entry.event {
            Event::Leads { term, node, .. } => Some((node.as_str(), *term)),
            _ => None,
        };
        Self {
            rules,
            history,
            joined: BTreeSet::new(),
            terms: Vec::new(),
            newest: i64::MIN,
            created: BTreeMap::new(),
            // An observer may learn of a term before its leader does.
            led: history.entries.iter().filter_map(led).collect(),
            revoked: BTreeMap::new(),
            observers: BTreeMap::new(),
            leaderless_from: None,
            found: Vec::new(),
        }
    }

    fn apply(&mut self, entry: &'a Entry) {
        let at = entry.at;
        let in_order = match &entry.event {
            Event::Joined(candidate) => self.joined.insert(*candidate),
            Event::Left(candidate) => {
                for term in self.terms.iter_mut().filter(|term| term.candidate == *candidate) {
                    term.stage = Stage::Ended;
                }
                self.joined.remove(candidate)
            }
            Event::Leads { candidate, term, node } => {
                self.begins(at, *candidate, *term, node);
                self.joined.contains(candidate)
            }
            Event::SeenLeading { candidate, term } => self.seen(at, *candidate, *term),
            Event::Lost { candidate, term } => self.ends(at, *candidate, *term, true),
            Event::Resigned { candidate, term } => self.ends(at, *candidate, *term, false),
            Event::Created { node, czxid } => {
                let is_gone = self.revoked.remove(node.as_str()).is_some();
                let created = self.created.entry(node).or_default();
                created.push(*czxid);
                created.len() == 1 || is_gone
            }
            Event::Revoked { node } => {
                self.revoked.entry(node).or_insert(at);
                let leads = |term: &&mut Term<'_>| term.node == *node && term.stage == Stage::Leading;
                for term in self.terms.iter_mut().filter(leads) {
                    term.stage = Stage::Taken { at };
                }
                true
            }
            Event::Reports(observer, report) => {
                self.reports(at, *observer, report);
                true
            }
            Event::Stopped(observer) => self.observers.remove(observer).is_some(),
        };
        if !in_order {
            self.found.push(Violation::OutOfOrder { at, event: entry.event.clone() });
        }
    }

    fn begins(&mut self, at: Duration, candidate: Candidate, term: i64, node: &'a str) {
        let since = self.revoked.get(node).copied();
        if let Some(since) = since {
            let late = |most| calm_stretch(&self.history.slow, since, at) > most;
            let again = self.terms.iter().any(|earlier| earlier.node == node);
            if again || self.rules.on_its_way.is_some_and(late) {
                let node = node.to_owned();
                self.found.push(Violation::BeganOnARevokedNode { at, candidate, node, since });
            }
        }
        let newest = self.created.get(node).and_then(|created| created.last());
        if !self.created.is_empty() && newest.is_none_or(|czxid| term < *czxid) {
            self.found.push(Violation::TermOfAnotherNode { at, candidate, term, node: node.to_owned() });
        }
        // The term of a node that is gone excludes none, so a later one may have begun.
        if since.is_none() && self.rules.rising_terms {
            let resumes = self.terms.last().is_some_and(|last| {
                (last.candidate, last.term, last.node, last.stage) == (candidate, term, node, Stage::Ended)
            });
            if term <= self.newest && !resumes {
                self.found.push(Violation::TermDoesNotRise { at, candidate, term, newest: self.newest });
            }
            self.newest = self.newest.max(term);
        }
        let stage = if since.is_some() { Stage::Taken { at } } else { Stage::Leading };
        self.terms.push(Term { candidate, term, node, stage, counts: since.is_none() });
    }

    /// Returns the position of a term among all.
    fn position(&self, candidate: Candidate, term: i64) -> Option<usize> {
        self.terms.iter().rposition(|known| known.candidate == candidate && known.term == term)
    }

    fn seen(&mut self, at: Duration, candidate: Candidate, term: i64) -> bool {
        let Some(position) = self.position(candidate, term) else { return false };
        match self.terms[position].stage {
            Stage::Leading => {
                if let Some(later) = self.terms[position + 1..].iter().find(|later| later.counts) {
                    let later = (later.candidate, later.term);
                    self.found.push(Violation::TwoLeaders { at, earlier: (candidate, term), later });
                }
            }
            // The rule of the prompt notification limits it.
            Stage::Taken { .. } => {}
            Stage::Ended => self.found.push(Violation::LeadsAfterItsEnd { at, candidate, term }),
        }
        true
    }

    fn ends(&mut self, at: Duration, candidate: Candidate, term: i64, is_loss: bool) -> bool {
        let Some(position) = self.position(candidate, term) else { return false };
        let faulty = |(from, until): &(Duration, Duration)| *from <= at && at <= *until;
        let lost_in_calm = is_loss
            && self.rules.kept_in_calm
            && self.terms[position].stage == Stage::Leading
            && !self.history.faults.iter().any(faulty);
        if lost_in_calm {
            self.found.push(Violation::LostInCalm { at, candidate, term });
        }
        self.terms[position].stage = Stage::Ended;
        true
    }

    /// Returns whether a candidate has this term at some time. One that leaves too early never learns its term.
    fn is_known(&self, term: i64, node: &str) -> bool {
        let led = self.led.contains(&(node, term));
        match self.created.get(node) {
            Some(created) if self.led.range((node, i64::MIN)..=(node, i64::MAX)).next().is_none() => {
                created.iter().any(|czxid| *czxid <= term)
            }
            Some(created) => created.contains(&term) || led,
            None => self.created.is_empty() && led,
        }
    }

    fn reports(&mut self, at: Duration, observer: Observer, report: &Report) {
        let (said, node) = match report {
            Report::Leader(term, node) => (Some(*term), node.as_str()),
            Report::Unknown | Report::NoLeader => (None, ""),
        };
        let known = said.is_none_or(|term| self.is_known(term, node));
        let watching = self.observers.entry(observer).or_insert(Watching { said, newest: i64::MIN, differs: None });
        watching.said = said;
        let Some(term) = said else { return };
        if !known {
            self.found.push(Violation::UnknownTermReported { at, observer, term, node: node.to_owned() });
        }
        if self.rules.rising_terms && term < watching.newest {
            self.found.push(Violation::ReportedTermFalls { at, observer, term, newest: watching.newest });
        }
        watching.newest = watching.newest.max(term);
    }

    /// Returns the term of the leader.
    fn present(&self) -> Option<i64> {
        self.terms.iter().rfind(|term| term.stage == Stage::Leading).map(|term| term.term)
    }

    fn note_the_time(&mut self, at: Duration) {
        let leads = self.terms.iter().any(|term| term.stage != Stage::Ended);
        let leaderless = !leads && !self.joined.is_empty();
        self.leaderless_from = if leaderless { self.leaderless_from.or(Some(at)) } else { None };
        let present = self.present();
        for watching in self.observers.values_mut() {
            let said = watching.said;
            watching.differs = match watching.differs {
                _ if said == present => None,
                Some(differs) if (differs.0, differs.1) == (said, present) => Some(differs),
                _ => Some((said, present, at)),
            };
        }
    }

    /// Finds the rules that a time without an event has broken.
    fn look_at_the_time(&mut self, now: Duration) {
        let calm = |from: Duration| calm_stretch(&self.history.faults, from, now);
        if let Some(from) = self.leaderless_from.filter(|from| calm(*from) > self.rules.patience) {
            let candidates = self.joined.iter().copied().collect();
            self.found.push(Violation::NoLeader { from, until: now, candidates });
            self.leaderless_from = Some(now);
        }
        for (observer, watching) in &mut self.observers {
            let stale = watching.differs.filter(|(.., from)| calm(*from) > self.rules.patience);
            if let Some((reported, leader, from)) = stale {
                let observer = *observer;
                self.found.push(Violation::ReportIsStale { from, until: now, observer, reported, leader });
                watching.differs = Some((reported, leader, now));
            }
        }
        let Some(prompt) = self.rules.prompt else { return };
        for term in &mut self.terms {
            if let Stage::Taken { at } = term.stage {
                if now > at + prompt {
                    self.found.push(Violation::NotTold { at, candidate: term.candidate, term: term.term });
                    term.stage = Stage::Ended;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Candidate = Candidate(1);
    const SECOND: Candidate = Candidate(2);
    const OBSERVER: Observer = Observer(9);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn rules() -> Rules {
        Rules::new(seconds(5))
    }

    /// Two candidates that join at once, and these events.
    fn elections(events: impl IntoIterator<Item = (u64, Event)>) -> Elections {
        let mut elections = Elections::new();
        for candidate in [FIRST, SECOND] {
            elections.record(seconds(0), Event::Joined(candidate));
        }
        for (at, event) in events {
            elections.record(seconds(at), event);
        }
        elections
    }

    fn leads(candidate: Candidate, term: i64) -> Event {
        Event::Leads { candidate, term, node: node(term) }
    }

    fn node(term: i64) -> String {
        format!("latch-{term}")
    }

    fn seen(candidate: Candidate, term: i64) -> Event {
        Event::SeenLeading { candidate, term }
    }

    fn lost(candidate: Candidate, term: i64) -> Event {
        Event::Lost { candidate, term }
    }

    fn resigned(candidate: Candidate, term: i64) -> Event {
        Event::Resigned { candidate, term }
    }

    fn revoked(term: i64) -> Event {
        Event::Revoked { node: node(term) }
    }

    fn created(term: i64) -> Event {
        Event::Created { node: node(term), czxid: term }
    }

    fn reports(term: i64) -> Event {
        Event::Reports(OBSERVER, Report::Leader(term, node(term)))
    }

    #[test]
    fn a_proper_history_is_accepted() {
        let proper = elections([
            (0, Event::Reports(OBSERVER, Report::Unknown)),
            (1, created(10)),
            (1, created(11)),
            (1, reports(10)),
            (1, leads(FIRST, 10)),
            (9, seen(FIRST, 10)),
            (9, resigned(FIRST, 10)),
            (10, leads(SECOND, 11)),
            (10, Event::Reports(OBSERVER, Report::NoLeader)),
            (11, reports(11)),
            (12, created(12)),
            (20, revoked(11)),
            (21, leads(FIRST, 12)),
            (21, seen(SECOND, 11)),
            (22, lost(SECOND, 11)),
            (22, reports(12)),
            (30, Event::Stopped(OBSERVER)),
            (30, Event::Left(FIRST)),
            (30, Event::Left(SECOND)),
            (99, Event::Joined(Candidate(3))),
        ]);
        assert_eq!(proper.check(&rules().prompt(seconds(3)).on_its_way(seconds(0)).no_loss_in_calm()), []);
        assert_eq!(proper.terms(), 3);
        assert_eq!(proper.entries().len(), 22);
    }

    #[test]
    fn node_that_is_created_again_after_its_removal_has_a_term_of_its_own() {
        let created_as = |czxid| Event::Created { node: node(10), czxid };
        let reported = |term| Event::Reports(OBSERVER, Report::Leader(term, node(10)));
        let led = |term| Event::Leads { candidate: FIRST, term, node: node(10) };
        let history = |removal| elections([(1, created_as(10)), (2, removal), (3, created_as(20)), (4, led(20))]);
        assert_eq!(history(revoked(10)).check(&rules()), []);
        let found = [Violation::OutOfOrder { at: seconds(3), event: created_as(20) }];
        assert_eq!(history(revoked(11)).check(&rules()), found);

        let mut late = history(revoked(10));
        for term in [10, 20, 21] {
            late.record(seconds(5), reported(term));
        }
        let found = Violation::UnknownTermReported { at: seconds(5), observer: OBSERVER, term: 21, node: node(10) };
        assert_eq!(late.check(&rules()), [found]);
    }

    #[test]
    fn terms_overlap_if_the_earlier_leader_is_seen_leading_after_the_later_began() {
        let seen_at = |event: Event| {
            elections([
                (1, leads(FIRST, 1)),
                (4, seen(FIRST, 1)),
                (5, leads(SECOND, 2)),
                (5, event),
                (6, lost(FIRST, 1)),
            ])
        };
        let both = Violation::TwoLeaders { at: seconds(5), earlier: (FIRST, 1), later: (SECOND, 2) };
        assert_eq!(seen_at(seen(FIRST, 1)).check(&rules()), [both]);
        assert_eq!(seen_at(seen(SECOND, 2)).check(&rules()), []);
    }

    #[test]
    fn a_candidate_that_leads_after_its_end_is_found() {
        let ended = |end: Event| elections([(1, leads(FIRST, 1)), (2, end), (2, seen(FIRST, 1))]).check(&rules());
        let found = [Violation::LeadsAfterItsEnd { at: seconds(2), candidate: FIRST, term: 1 }];
        for end in [lost(FIRST, 1), resigned(FIRST, 1), Event::Left(FIRST)] {
            assert_eq!(ended(end), found);
        }
        assert_eq!(ended(Event::Left(SECOND)), []);
    }

    #[test]
    fn terms_that_do_not_rise_are_found() {
        let with = |term| elections([(1, leads(FIRST, 5)), (2, resigned(FIRST, 5)), (3, leads(SECOND, term))]);
        for term in [4, 5] {
            let found = Violation::TermDoesNotRise { at: seconds(3), candidate: SECOND, term, newest: 5 };
            assert_eq!(with(term).check(&rules()), [found]);
            assert_eq!(with(term).check(&rules().falling_terms()), []);
        }
        assert_eq!(with(6).check(&rules()), []);
    }

    #[test]
    fn a_candidate_may_resume_the_newest_term() {
        let resumes = |end: Event, candidate| {
            let again = Event::Leads { candidate, term: 5, node: node(5) };
            elections([(1, leads(FIRST, 5)), (2, end), (3, again)]).check(&rules())
        };
        let lost = || lost(FIRST, 5);
        assert_eq!(resumes(lost(), FIRST), []);
        assert!(matches!(resumes(lost(), SECOND)[..], [Violation::TermDoesNotRise { .. }]));
        assert!(matches!(resumes(revoked(5), FIRST)[..], [Violation::BeganOnARevokedNode { .. }]));
        assert!(matches!(resumes(seen(FIRST, 5), FIRST)[..], [Violation::TermDoesNotRise { .. }]));
    }

    #[test]
    fn a_term_of_another_node_is_found() {
        let with = |term, own: i64| {
            let leads = Event::Leads { candidate: FIRST, term, node: node(own) };
            elections([(1, created(4)), (1, created(6)), (1, leads)]).check(&rules())
        };
        assert_eq!(with(4, 4), []);
        // A candidate with an older node follows one that was let ahead of it.
        assert_eq!(with(7, 4), []);
        for (term, own) in [(3, 4), (4, 6), (9, 5)] {
            let found = Violation::TermOfAnotherNode { at: seconds(1), candidate: FIRST, term, node: node(own) };
            assert_eq!(with(term, own), [found]);
        }
    }

    #[test]
    fn candidates_without_a_leader_are_found_but_not_in_a_fault() {
        let mut idle = elections([(1, leads(FIRST, 1)), (2, resigned(FIRST, 1)), (20, leads(SECOND, 2))]);
        let candidates = vec![FIRST, SECOND];
        assert_eq!(idle.check(&rules()), [Violation::NoLeader { from: seconds(2), until: seconds(20), candidates }]);
        idle.fault(seconds(3), seconds(16));
        assert_eq!(idle.check(&rules()), []);
        let never = elections([(9, Event::Left(SECOND))]);
        assert!(matches!(never.check(&rules())[..], [Violation::NoLeader { .. }]));
    }

    #[test]
    fn an_election_without_candidates_needs_no_leader() {
        let closed = elections([(1, Event::Left(FIRST)), (1, Event::Left(SECOND)), (99, Event::Joined(Candidate(3)))]);
        assert_eq!(closed.check(&rules()), []);
        let one_stays = elections([(1, Event::Left(FIRST)), (99, Event::Left(SECOND))]);
        assert!(matches!(one_stays.check(&rules())[..], [Violation::NoLeader { .. }]));
    }

    #[test]
    fn a_loss_without_a_fault_is_found() {
        let ended = |end: Event| elections([(1, leads(FIRST, 1)), (9, end)]);
        let mut loss = ended(lost(FIRST, 1));
        assert_eq!(loss.check(&rules()), []);
        let found = [Violation::LostInCalm { at: seconds(9), candidate: FIRST, term: 1 }];
        assert_eq!(loss.check(&rules().no_loss_in_calm()), found);
        loss.fault(seconds(5), seconds(9));
        assert_eq!(loss.check(&rules().no_loss_in_calm()), []);
        assert_eq!(ended(resigned(FIRST, 1)).check(&rules().no_loss_in_calm()), []);
    }

    #[test]
    fn a_leader_without_its_node_may_overlap_but_must_be_notified() {
        let events = |told| {
            let overlap = [(1, leads(FIRST, 1)), (2, revoked(1)), (3, leads(SECOND, 2)), (3, seen(FIRST, 1))];
            elections([&overlap[..], &[(told, lost(FIRST, 1))]].concat())
        };
        let not_told = [Violation::NotTold { at: seconds(2), candidate: FIRST, term: 1 }];
        assert_eq!(events(4).check(&rules().prompt(seconds(2))), []);
        assert_eq!(events(5).check(&rules().prompt(seconds(2))), not_told);
        let never = elections([(1, leads(FIRST, 1)), (2, revoked(1)), (9, Event::Left(SECOND))]);
        assert_eq!(never.check(&rules().prompt(seconds(2))), not_told);
    }

    #[test]
    fn a_term_that_was_on_its_way_when_its_node_was_deleted_excludes_none() {
        let on_its_way = |told| {
            elections([
                (1, revoked(1)),
                (1, leads(SECOND, 2)),
                (1, leads(FIRST, 1)),
                (1, seen(SECOND, 2)),
                (1, seen(FIRST, 1)),
                (told, lost(FIRST, 1)),
            ])
        };
        assert_eq!(on_its_way(2).check(&rules().prompt(seconds(1)).on_its_way(seconds(0))), []);
        let found = on_its_way(3).check(&rules().prompt(seconds(1)));
        assert_eq!(found, [Violation::NotTold { at: seconds(1), candidate: FIRST, term: 1 }]);
    }

    #[test]
    fn a_term_on_a_node_that_was_gone_is_found() {
        let mut late = elections([(3, revoked(1)), (5, leads(FIRST, 1)), (5, lost(FIRST, 1))]);
        let began = |at, since| {
            let (at, since) = (seconds(at), seconds(since));
            [Violation::BeganOnARevokedNode { at, candidate: FIRST, node: node(1), since }]
        };
        assert_eq!(late.check(&rules()), []);
        assert_eq!(late.check(&rules().on_its_way(seconds(2))), []);
        assert_eq!(late.check(&rules().on_its_way(seconds(1))), began(5, 3));
        late.fault(seconds(3), seconds(5));
        assert_eq!(late.check(&rules().on_its_way(seconds(1))), began(5, 3));
        late.slow(seconds(3), seconds(5));
        assert_eq!(late.check(&rules().on_its_way(seconds(1))), []);
        let again = elections([
            (3, leads(FIRST, 1)),
            (4, revoked(1)),
            (4, lost(FIRST, 1)),
            (4, leads(FIRST, 1)),
            (4, lost(FIRST, 1)),
        ]);
        assert_eq!(again.check(&rules().on_its_way(seconds(1))), began(4, 4));
    }

    #[test]
    fn a_reported_term_that_no_candidate_had_is_found() {
        let unknown =
            |term| [Violation::UnknownTermReported { at: seconds(1), observer: OBSERVER, term, node: node(7) }];
        let reports = |term| (1, Event::Reports(OBSERVER, Report::Leader(term, node(7))));
        let leads = |term| (1, Event::Leads { candidate: FIRST, term, node: node(7) });
        assert_eq!(elections([reports(7), (1, leads(8).1)]).check(&rules()), unknown(7));
        assert_eq!(elections([reports(8), leads(8)]).check(&rules()), []);
        // A candidate's node was the first, and its client never learned of it, or not of the term that it was to have.
        assert_eq!(elections([(1, created(7)), reports(7)]).check(&rules()), []);
        assert_eq!(elections([(1, created(7)), reports(9)]).check(&rules()), []);
        assert_eq!(elections([(1, created(7)), reports(6)]).check(&rules()), unknown(6));
        assert_eq!(elections([(1, created(8)), reports(7), (1, created(7))]).check(&rules()), unknown(7));
        assert_eq!(elections([(1, created(7)), reports(7), reports(9), leads(9)]).check(&rules()), []);
        assert_eq!(elections([(1, created(7)), reports(8), leads(9)]).check(&rules()), unknown(8));
    }

    #[test]
    fn reported_terms_that_fall_are_found() {
        let turns = elections([
            (1, leads(FIRST, 1)),
            (1, reports(1)),
            (1, resigned(FIRST, 1)),
            (2, leads(SECOND, 2)),
            (2, reports(2)),
            (2, Event::Reports(OBSERVER, Report::Unknown)),
            (3, reports(1)),
            (3, reports(2)),
        ]);
        let found = Violation::ReportedTermFalls { at: seconds(3), observer: OBSERVER, term: 1, newest: 2 };
        assert_eq!(turns.check(&rules()), [found]);
        assert_eq!(turns.check(&rules().falling_terms()), []);
    }

    #[test]
    fn a_report_that_stays_behind_is_found_but_not_in_a_fault() {
        for report in [Report::Leader(1, node(1)), Report::NoLeader, Report::Unknown] {
            let reported = if report == Report::Leader(1, node(1)) { Some(1) } else { None };
            let mut behind = elections([
                (1, leads(FIRST, 1)),
                (1, resigned(FIRST, 1)),
                (2, Event::Reports(OBSERVER, report)),
                (2, leads(SECOND, 2)),
                (20, reports(2)),
            ]);
            let (from, until) = (seconds(2), seconds(20));
            let stale = Violation::ReportIsStale { from, until, observer: OBSERVER, reported, leader: Some(2) };
            assert_eq!(behind.check(&rules()), [stale]);
            behind.fault(seconds(3), seconds(16));
            assert_eq!(behind.check(&rules()), []);
        }
        let gone =
            elections([(1, leads(FIRST, 1)), (1, reports(1)), (2, Event::Left(FIRST)), (3, Event::Left(SECOND))]);
        let stays = |last: Event| {
            let mut gone = gone.clone();
            gone.record(seconds(4), last);
            gone.record(seconds(30), Event::Joined(Candidate(3)));
            gone.check(&rules())
        };
        assert!(matches!(stays(reports(1))[..], [Violation::ReportIsStale { leader: None, .. }]));
        assert_eq!(stays(Event::Reports(OBSERVER, Report::NoLeader)), []);
        assert_eq!(stays(Event::Stopped(OBSERVER)), []);
    }

    #[test]
    fn events_out_of_order_are_found() {
        for event in [
            Event::Joined(FIRST),
            Event::Left(Candidate(3)),
            leads(Candidate(3), 1),
            seen(FIRST, 1),
            lost(FIRST, 1),
            resigned(FIRST, 1),
            Event::Stopped(OBSERVER),
        ] {
            let found = elections([(1, event.clone())]).check(&rules());
            assert_eq!(found, [Violation::OutOfOrder { at: seconds(1), event }]);
        }
    }

    #[test]
    fn what_is_left_behind_is_found() {
        let mut elections = Elections::new();
        elections.left_behind("/leader/_c_x-latch-0000000001");
        assert!(matches!(&elections.check(&rules())[..], [Violation::LeftBehind(node)] if node.contains("latch-")));
    }
}

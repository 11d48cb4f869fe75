//! The check of the events of an election.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Candidate, Elections, Event, Observer, Report, Rules};
use crate::timeline;
use crate::violation::Found;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Leading,
    /// The server has deleted its node, and it was not yet notified.
    Taken {
        at: Duration,
    },
    Ended,
}

/// One term, from its start.
#[derive(Debug)]
struct Term<'a> {
    candidate: Candidate,
    term: i64,
    node: &'a str,
    stage: Stage,
    /// It started before the server deleted its node: it excludes others.
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

pub(super) struct Checker<'a> {
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
    found: Found,
}

impl<'a> Checker<'a> {
    pub(super) fn new(rules: &'a Rules, history: &'a Elections) -> Self {
        let led = |(_, event): &'a (Duration, Event)| match event {
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
            led: history.events.iter().filter_map(led).collect(),
            revoked: BTreeMap::new(),
            observers: BTreeMap::new(),
            leaderless_from: None,
            found: Found::default(),
        }
    }
}

impl<'a> timeline::Checker<'a, Event> for Checker<'a> {
    fn apply(&mut self, at: Duration, event: &'a Event) -> bool {
        match event {
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
        }
    }

    fn at_time(&mut self, now: Duration) {
        let calm = |from: Duration| self.history.faults.calm(from, now);
        if let Some(from) = self.leaderless_from.filter(|from| calm(*from) > self.rules.patience) {
            self.found.broken_from("no leader", from, now, format!("of {:?}", self.joined));
            self.leaderless_from = Some(now);
        }
        for (observer, watching) in &mut self.observers {
            let stale = watching.differs.filter(|(.., from)| calm(*from) > self.rules.patience);
            if let Some((reported, leader, from)) = stale {
                let what = format!("{observer:?} reports {reported:?} instead of {leader:?}");
                self.found.broken_from("a stale report", from, now, what);
                watching.differs = Some((reported, leader, now));
            }
        }
        let Some(prompt) = self.rules.prompt else { return };
        for term in &mut self.terms {
            if let Stage::Taken { at } = term.stage {
                if now > at + prompt {
                    let what = format!("{:?} of {}", term.candidate, term.term);
                    self.found.broken_from("a loss without notice", at, now, what);
                    term.stage = Stage::Ended;
                }
            }
        }
    }

    fn note_time(&mut self, at: Duration) {
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

    fn found(&mut self) -> &mut Found {
        &mut self.found
    }
}

impl<'a> Checker<'a> {
    fn begins(&mut self, at: Duration, candidate: Candidate, term: i64, node: &'a str) {
        let since = self.revoked.get(node).copied();
        if let Some(since) = since {
            let late = |most| self.history.slow.calm(since, at) > most;
            let again = self.terms.iter().any(|earlier| earlier.node == node);
            if again || self.rules.on_its_way.is_some_and(late) {
                let what = format!("{candidate:?} on {node}, which is gone since {since:?}");
                self.found.broken("a term on a node that is gone", at, what);
            }
        }
        let newest = self.created.get(node).and_then(|created| created.last());
        if !self.created.is_empty() && newest.is_none_or(|czxid| term < *czxid) {
            let what = format!("{candidate:?} leads with {term} on {node}");
            self.found.broken("a term of another node", at, what);
        }
        // The term of a node that is gone excludes none, so a later one may have started.
        if since.is_none() && self.rules.rising_terms {
            let resumes = self.terms.last().is_some_and(|last| {
                (last.candidate, last.term, last.node, last.stage) == (candidate, term, node, Stage::Ended)
            });
            if term <= self.newest && !resumes {
                let what = format!("{candidate:?} leads with {term}, not above {}", self.newest);
                self.found.broken("a term that does not rise", at, what);
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
                    let (other, later) = (later.candidate, later.term);
                    let what = format!("{candidate:?} with {term} beside {other:?} with {later}");
                    self.found.broken("two leaders", at, what);
                }
            }
            // The rule of the prompt notification limits it.
            Stage::Taken { .. } => {}
            Stage::Ended => {
                self.found.broken("a leader after its end", at, format!("{candidate:?} with {term}"));
            }
        }
        true
    }

    fn ends(&mut self, at: Duration, candidate: Candidate, term: i64, is_loss: bool) -> bool {
        let Some(position) = self.position(candidate, term) else { return false };
        let lost_in_calm = is_loss
            && self.rules.kept_in_calm
            && self.terms[position].stage == Stage::Leading
            && !self.history.faults.has(at);
        if lost_in_calm {
            self.found.broken("a loss in calm", at, format!("{candidate:?} loses {term}"));
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
            self.found.broken("an unknown term", at, format!("{observer:?} reports {term} of {node}"));
        }
        if self.rules.rising_terms && term < watching.newest {
            let what = format!("{observer:?} reports {term} after {}", watching.newest);
            self.found.broken("a reported term that falls", at, what);
        }
        watching.newest = watching.newest.max(term);
    }

    /// Returns the term of the leader.
    fn present(&self) -> Option<i64> {
        self.terms.iter().rfind(|term| term.stage == Stage::Leading).map(|term| term.term)
    }
}

//! The notes on an election.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use curator_checkers::elections::{Candidate, Elections, Event, Observer, Report, Rules};
use curator_recipes::{LeaderError, Leadership, TermEnd};
use curator_test::nodes::Change;
use curator_test::{ClientId, SimulatedEnsemble};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::contenders::Outcome;

/// The state of a candidate that has joined once.
#[derive(Debug, Clone, Copy)]
enum Presence {
    Joined,
    /// It must not lead before this time.
    AbsentUntil(Duration),
    Left,
}

#[derive(Debug, Default)]
struct Book {
    elections: Elections,
    log: Vec<String>,
    next: u64,
    candidates: BTreeMap<Candidate, (ClientId, Presence)>,
    /// All terms so far, each of which may still believe that it leads.
    terms: Vec<(Candidate, Leadership)>,
    /// The number of hand-overs that go on.
    hand_overs: u32,
}

/// Writes down an election.
#[derive(Debug, Clone)]
pub struct Scribe {
    began: Instant,
    recovery: Duration,
    ensemble: SimulatedEnsemble,
    book: Arc<Mutex<Book>>,
}

impl Scribe {
    /// Creates an empty book. `recovery` is how long clients may take to be back after a fault.
    pub fn new(ensemble: SimulatedEnsemble, recovery: Duration) -> Self {
        Self { began: Instant::now(), recovery, ensemble, book: Arc::default() }
    }

    fn write<T>(&self, write: impl FnOnce(&mut Book, Duration) -> T) -> T {
        let mut book = self.book.lock();
        let now = self.began.elapsed();
        for (_, change) in self.ensemble.take_changes() {
            match change {
                // A persistent node is not a candidate's, whatever its name.
                Change::Created { path, node } if node.session != 0 => {
                    book.event(now, Event::Created { node: name(&path).to_owned(), czxid: node.czxid });
                }
                _ => {}
            }
        }
        write(&mut book, now)
    }

    /// Notes something for the reader.
    pub fn note(&self, what: impl fmt::Display) {
        self.write(|book, now| book.note(now, what));
    }

    /// Notes something that must not be.
    pub fn wrong(&self, what: impl Into<String>) {
        self.write(|book, _| book.elections.left_behind(what));
    }

    /// Notes a fault of the network or of a server. Until it is over and the clients have recovered, messages may be held
    /// up, and the election may be without a leader.
    pub fn fault(&self, what: impl fmt::Display, lasting: Duration) {
        self.write(|book, now| {
            book.note(now, what);
            book.elections.fault(now, now + lasting + self.recovery);
            book.elections.slow(now, now + lasting + self.recovery);
        });
    }

    /// Notes the end of a session or a node: the election may be without a leader, and no message is held up.
    pub fn end(&self, what: impl fmt::Display) {
        self.write(|book, now| {
            book.note(now, what);
            book.elections.fault(now, now + self.recovery);
        });
    }

    /// Notes that the servers are about to delete nodes.
    pub fn revoke(&self, paths: Vec<String>) {
        self.write(|book, now| {
            for path in paths {
                book.event(now, Event::Revoked { node: name(&path).to_owned() });
            }
        });
    }

    pub fn joins(&self, client: ClientId) -> Candidate {
        self.write(|book, now| {
            book.next += 1;
            let candidate = Candidate(book.next);
            book.candidates.insert(candidate, (client, Presence::Joined));
            book.note(now, format_args!("{candidate:?} is at {client:?}"));
            book.event(now, Event::Joined(candidate));
            candidate
        })
    }

    /// Notes that a candidate does not want to lead any more. It must not believe that it does.
    pub fn leaves(&self, candidate: Candidate) {
        self.write(|book, now| book.leaves(now, candidate, Presence::Left));
    }

    /// Notes that a candidate does not want to lead for a time.
    pub fn is_absent(&self, candidate: Candidate, until: Instant) {
        self.write(|book, now| book.leaves(now, candidate, Presence::AbsentUntil(until - self.began)));
    }

    /// Notes that a candidate wants to lead again.
    pub fn rejoins(&self, candidate: Candidate) {
        self.write(|book, now| book.rejoins(now, candidate));
    }

    /// Notes that a candidate leads, and its end when it comes.
    pub fn leads(&self, candidate: Candidate, leadership: &Leadership) {
        let leads = self.write(|book, now| book.leads(now, candidate, leadership));
        if leads {
            let (scribe, leadership) = (self.clone(), leadership.clone());
            tokio::spawn(async move {
                let end = leadership.ended().await;
                scribe.write(|book, now| book.ends(now, candidate, &leadership, end));
            });
        }
    }

    pub fn reports(&self, observer: Observer, report: Report) {
        self.write(|book, now| book.event(now, Event::Reports(observer, report)));
    }

    pub fn stops(&self, observer: Observer) {
        self.write(|book, now| book.event(now, Event::Stopped(observer)));
    }

    /// Returns a number that no other observer has.
    pub fn observer(&self) -> Observer {
        self.write(|book, _| {
            book.next += 1;
            Observer(book.next)
        })
    }

    /// Returns the client of the leader, and the name of its node.
    pub fn leader(&self) -> Option<(ClientId, String)> {
        let book = self.book.lock();
        let (candidate, leadership) = book.terms.iter().rfind(|(_, leadership)| leadership.is_held())?;
        Some((book.candidates.get(candidate)?.0, name(leadership.node_path()).to_owned()))
    }

    /// Counts a hand-over while it goes on.
    pub async fn during_hand_over<T>(&self, hand_over: impl Future<Output = T>) -> T {
        self.book.lock().hand_overs += 1;
        let outcome = hand_over.await;
        self.book.lock().hand_overs -= 1;
        outcome
    }

    /// Returns whether a leader hands over.
    pub fn hands_over(&self) -> bool {
        self.book.lock().hand_overs > 0
    }

    /// Notes an error: only connections, sessions and terms may fail.
    pub fn error(&self, error: &LeaderError) {
        self.write(|book, now| {
            book.note(now, format_args!("an error: {error}"));
            let is_fair = error.is_retryable() || matches!(error, LeaderError::LeadershipLost { .. });
            if !is_fair {
                book.elections.left_behind(format!("an error: {error}"));
            }
        });
    }

    pub fn may_fail<T>(&self, outcome: Result<T, LeaderError>) {
        if let Err(error) = outcome {
            self.error(&error);
        }
    }

    /// Ends the notes: no term may be left.
    pub fn close(&self) {
        self.write(|book, now| {
            book.ask(now, |_, _| true);
            book.terms.clear();
        });
    }

    /// Returns the outcome.
    pub fn outcome(&self, rules: &Rules) -> Outcome {
        let mut book = self.book.lock();
        let violations = book.elections.check(rules);
        Outcome { log: std::mem::take(&mut book.log), violations, grants: book.elections.terms() }
    }
}

/// Returns the name of a node.
pub(super) fn name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// Returns the number of a term.
fn number(leadership: &Leadership) -> i64 {
    leadership.token().czxid().get()
}

impl Book {
    fn note(&mut self, now: Duration, what: impl fmt::Display) {
        self.log.push(format!("{now:>12?} {what}"));
    }

    fn event(&mut self, now: Duration, event: Event) {
        self.note(now, format_args!("{event:?}"));
        self.elections.record(now, event);
    }

    /// Notes which of these terms believe that they lead.
    fn ask(&mut self, now: Duration, which: impl Fn(Candidate, &Leadership) -> bool) {
        let leads =
            |(candidate, leadership): &&(Candidate, Leadership)| which(*candidate, leadership) && leadership.is_held();
        let seen = |(candidate, leadership): &(Candidate, Leadership)| (*candidate, number(leadership));
        for (candidate, term) in self.terms.iter().filter(leads).map(seen).collect::<Vec<_>>() {
            self.event(now, Event::SeenLeading { candidate, term });
        }
    }

    fn leads(&mut self, now: Duration, candidate: Candidate, leadership: &Leadership) -> bool {
        let term = number(leadership);
        if !leadership.is_held() {
            self.note(now, format_args!("{candidate:?} led with term {term}, which is over"));
            return false;
        }
        if matches!(self.candidates.get(&candidate), Some((_, Presence::AbsentUntil(until))) if *until <= now) {
            self.rejoins(now, candidate);
        }
        self.event(now, Event::Leads { candidate, term, node: name(leadership.node_path()).to_owned() });
        self.ask(now, |_, _| true);
        self.terms.push((candidate, leadership.clone()));
        true
    }

    fn ends(&mut self, now: Duration, candidate: Candidate, leadership: &Leadership, end: TermEnd) {
        let term = number(leadership);
        let event = match end {
            TermEnd::Resigned => Event::Resigned { candidate, term },
            _ => Event::Lost { candidate, term },
        };
        self.note(now, format_args!("{candidate:?}: {end}"));
        self.event(now, event);
        self.ask(now, |other, its| other == candidate && number(its) == term);
    }

    fn leaves(&mut self, now: Duration, candidate: Candidate, presence: Presence) {
        if let Some((_, known)) = self.candidates.get_mut(&candidate) {
            *known = presence;
        }
        self.event(now, Event::Left(candidate));
        self.ask(now, |other, _| other == candidate);
    }

    fn rejoins(&mut self, now: Duration, candidate: Candidate) {
        let Some((_, presence)) = self.candidates.get_mut(&candidate) else { return };
        if !matches!(presence, Presence::Joined) {
            *presence = Presence::Joined;
            self.event(now, Event::Joined(candidate));
        }
    }
}

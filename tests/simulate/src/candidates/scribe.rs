//! The record of an election.

use std::collections::BTreeMap;
use std::time::Duration;

use curator_checkers::Violation;
use curator_checkers::elections::{Candidate, Elections, Event, Observer, Report, Rules};
use curator_checkers::timeline::Timeline;
use curator_recipes::{LeaderError, Leadership, TermEnd};
use curator_test::nodes::Change;
use curator_test::{ClientId, SimulatedEnsemble};
use tokio::time::Instant;

use crate::scribe::{self, Record};

/// The state of a candidate that has joined once.
#[derive(Debug, Clone, Copy)]
enum Presence {
    Joined,
    /// It must not lead before this time.
    AbsentUntil(Duration),
    Left,
}

/// The candidates and terms of an election.
#[derive(Debug, Default)]
pub struct Book {
    elections: Elections,
    candidates: BTreeMap<Candidate, (ClientId, Presence)>,
    /// All terms so far, each of which may still believe that it leads.
    terms: Vec<(Candidate, Leadership)>,
    /// The number of hand-overs that continue.
    hand_overs: u32,
}

/// The recorder of an election.
pub type Scribe = scribe::Scribe<Book>;

impl Scribe {
    pub fn joins(&self, client: ClientId) -> Candidate {
        self.write(|record, now| {
            let candidate = Candidate(record.number());
            record.book.candidates.insert(candidate, (client, Presence::Joined));
            record.note(now, format_args!("{candidate:?} is at {client:?}"));
            record.event(now, Event::Joined(candidate));
            candidate
        })
    }

    /// Notes that a candidate does not want to lead any more. It must not believe that it does.
    pub fn leaves(&self, candidate: Candidate) {
        self.write(|record, now| record.leaves(now, candidate, Presence::Left));
    }

    /// Notes that a candidate does not want to lead for a time.
    pub fn is_absent(&self, candidate: Candidate, until: Instant) {
        self.write(|record, now| record.leaves(now, candidate, Presence::AbsentUntil(until - self.began)));
    }

    /// Notes that a candidate wants to lead again.
    pub fn rejoins(&self, candidate: Candidate) {
        self.write(|record, now| record.rejoins(now, candidate));
    }

    /// Notes that a candidate leads, and its end when it comes.
    pub fn leads(&self, candidate: Candidate, leadership: &Leadership) {
        let leads = self.write(|record, now| record.leads(now, candidate, leadership));
        if leads {
            let (scribe, leadership) = (self.clone(), leadership.clone());
            tokio::spawn(async move {
                let end = leadership.ended().await;
                scribe.write(|record, now| record.ends(now, candidate, &leadership, end));
            });
        }
    }

    pub fn reports(&self, observer: Observer, report: Report) {
        self.event(Event::Reports(observer, report));
    }

    pub fn stops(&self, observer: Observer) {
        self.event(Event::Stopped(observer));
    }

    /// Returns a number that no other observer has.
    pub fn observer(&self) -> Observer {
        Observer(self.write(|record, _| record.number()))
    }

    /// Returns the client of the leader, and the name of its node.
    pub fn leader(&self) -> Option<(ClientId, String)> {
        self.read(|book| {
            let (candidate, leadership) = book.terms.iter().rfind(|(_, leadership)| leadership.is_held())?;
            Some((book.candidates.get(candidate)?.0, name(leadership.node_path()).to_owned()))
        })
    }

    /// Counts a hand-over while it continues.
    pub async fn during_hand_over<T>(&self, hand_over: impl Future<Output = T>) -> T {
        self.read(|book| book.hand_overs += 1);
        let outcome = hand_over.await;
        self.read(|book| book.hand_overs -= 1);
        outcome
    }

    /// Returns whether a leader hands over.
    pub fn hands_over(&self) -> bool {
        self.read(|book| book.hand_overs > 0)
    }

    /// Records an error: only connections, sessions and terms may fail.
    pub fn error(&self, error: &LeaderError) {
        self.judge(error, error.is_retryable() || matches!(error, LeaderError::LeadershipLost { .. }));
    }

    pub fn may_fail<T>(&self, outcome: Result<T, LeaderError>) {
        if let Err(error) = outcome {
            self.error(&error);
        }
    }

    /// Ends the notes: no term may be left.
    pub fn close(&self) {
        self.write(|record, now| {
            record.ask(now, |_, _| true);
            record.book.terms.clear();
        });
    }
}

impl scribe::Book for Book {
    type Event = Event;
    type Rules = Rules;

    fn timeline(&mut self) -> &mut Timeline<Event> {
        &mut self.elections
    }

    fn check(&mut self, rules: &Rules) -> (Vec<Violation>, usize) {
        (self.elections.check(rules), self.elections.terms())
    }

    fn catch_up(record: &mut Record<Self>, ensemble: &SimulatedEnsemble) {
        for (at, change) in ensemble.take_changes() {
            match change {
                // A persistent node is not a candidate's, regardless of its name.
                Change::Created { path, node } if node.session != 0 => {
                    record.event(at, Event::Created { node: name(&path).to_owned(), czxid: node.czxid });
                }
                _ => {}
            }
        }
    }

    fn revoke(record: &mut Record<Self>, now: Duration, paths: Vec<String>) {
        for path in paths {
            record.event(now, Event::Revoked { node: name(&path).to_owned() });
        }
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

impl Record<Book> {
    /// Notes which of these terms believe that they lead.
    fn ask(&mut self, now: Duration, which: impl Fn(Candidate, &Leadership) -> bool) {
        let leads =
            |(candidate, leadership): &&(Candidate, Leadership)| which(*candidate, leadership) && leadership.is_held();
        let seen = |(candidate, leadership): &(Candidate, Leadership)| (*candidate, number(leadership));
        for (candidate, term) in self.book.terms.iter().filter(leads).map(seen).collect::<Vec<_>>() {
            self.event(now, Event::SeenLeading { candidate, term });
        }
    }

    fn leads(&mut self, now: Duration, candidate: Candidate, leadership: &Leadership) -> bool {
        let term = number(leadership);
        if !leadership.is_held() {
            self.note(now, format_args!("{candidate:?} led with term {term}, which is over"));
            return false;
        }
        if matches!(self.book.candidates.get(&candidate), Some((_, Presence::AbsentUntil(until))) if *until <= now) {
            self.rejoins(now, candidate);
        }
        self.event(now, Event::Leads { candidate, term, node: name(leadership.node_path()).to_owned() });
        self.ask(now, |_, _| true);
        self.book.terms.push((candidate, leadership.clone()));
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
        if let Some((_, known)) = self.book.candidates.get_mut(&candidate) {
            *known = presence;
        }
        self.event(now, Event::Left(candidate));
        self.ask(now, |other, _| other == candidate);
    }

    fn rejoins(&mut self, now: Duration, candidate: Candidate) {
        let Some((_, presence)) = self.book.candidates.get_mut(&candidate) else { return };
        if !matches!(presence, Presence::Joined) {
            *presence = Presence::Joined;
            self.event(now, Event::Joined(candidate));
        }
    }
}

//! The record of the events of one kind.

use std::fmt;
use std::time::Duration;

use curator_checkers::Violation;
use curator_checkers::timeline::Timeline;
use curator_checkers::{barriers, counters, latches};
use curator_test::SimulatedEnsemble;
use curator_test::nodes::Change;

use super::counting;
use crate::contenders::Outcome;
use crate::scribe::{self, Book as _};

/// An event that is recorded.
pub trait Recorded: fmt::Debug + Sized + Send + 'static {
    /// Returns the event of a change at the server, if the checker needs it.
    fn server(change: Change) -> Option<Self>;

    /// Records a time in which servers may be behind.
    fn stale(timeline: &mut Timeline<Self>, from: Duration, until: Duration) {
        timeline.fault(from, until);
    }
}

impl Recorded for counters::Event {
    fn server(change: Change) -> Option<Self> {
        let (path, data) = match change {
            Change::Created { path, node } => (path, node.data),
            Change::DataChanged { path, data } => (path, data),
            Change::Deleted { .. } => return None,
        };
        Some(Self::Value(counting::counter_at(&path)?, i64::from_be_bytes(data.try_into().ok()?)))
    }

    fn stale(timeline: &mut Timeline<Self>, from: Duration, until: Duration) {
        // Their calls have known outcomes unless a session or a node ends.
        timeline.slow(from, until);
    }
}

impl Recorded for barriers::Event {
    fn server(change: Change) -> Option<Self> {
        Some(Self::Server(change))
    }
}

impl Recorded for latches::Event {
    fn server(change: Change) -> Option<Self> {
        Some(Self::Server(change))
    }
}

/// The events of a storm.
#[derive(Debug)]
pub struct Record<E> {
    timeline: Timeline<E>,
    log: Vec<String>,
    next: u64,
}

/// The recorder of the events of a storm.
pub type Scribe<E> = scribe::Scribe<Record<E>>;

impl<E: Recorded> Scribe<E> {
    /// Creates an empty record. Clients may take the time `recovery` to be connected after a fault.
    pub fn new(ensemble: SimulatedEnsemble, recovery: Duration) -> Self {
        let record = Record { timeline: Timeline::new(), log: Vec::new(), next: 0 };
        Self::with_book(ensemble, recovery, record)
    }

    /// Notes a fault. Until it is over and the clients have recovered, they may be late.
    pub fn fault(&self, what: impl fmt::Display, lasting: Duration) {
        self.write(|record, now| {
            record.note(now, what);
            record.timeline.fault(now, now + lasting + self.recovery);
        });
    }

    /// Notes the end of a client's session.
    pub fn session_ended(&self, what: impl fmt::Display) {
        self.write(|record, now| {
            record.note(now, what);
            record.timeline.fault(now, now);
        });
    }

    /// Notes a fault in which all sessions may live, and servers may be behind.
    pub fn stale(&self, what: impl fmt::Display, lasting: Duration) {
        self.write(|record, now| {
            record.note(now, what);
            E::stale(&mut record.timeline, now, now + lasting + self.recovery);
        });
    }

    /// Notes an event.
    pub fn event(&self, event: E) {
        self.write(|record, now| record.event(now, event));
    }

    /// Notes an event with a new number, and returns the number.
    pub fn begins(&self, event: impl FnOnce(u64) -> E) -> u64 {
        self.write(|record, now| {
            record.next += 1;
            let number = record.next;
            record.event(now, event(number));
            number
        })
    }

    /// Notes an error: only connections and sessions may fail.
    pub fn error(&self, error: impl fmt::Display, may_be: bool) {
        self.note(format_args!("an error: {error}"));
        if !may_be {
            self.wrong(format!("an error: {error}"));
        }
    }

    /// Returns the outcome, with the violations and the number of successes that the check returns.
    pub fn outcome(&self, check: impl FnOnce(&Timeline<E>) -> (Vec<Violation>, usize)) -> Outcome {
        self.note("the end");
        let mut record = self.book.lock();
        let (violations, grants) = check(&record.timeline);
        Outcome { log: std::mem::take(&mut record.log), violations, grants }
    }
}

impl<E: Recorded> scribe::Book for Record<E> {
    fn catch_up(&mut self, ensemble: &SimulatedEnsemble) {
        for (at, change) in ensemble.take_changes() {
            self.note(at, Text(&change));
            if let Some(event) = E::server(change) {
                self.timeline.record(at, event);
            }
        }
    }

    fn note(&mut self, now: Duration, what: impl fmt::Display) {
        self.log.push(format!("{now:>12?} {what}"));
    }

    fn left_behind(&mut self, now: Duration, what: String) {
        self.timeline.left_behind(format!("{now:?}: {what}"));
    }
}

impl<E: Recorded> Record<E> {
    fn event(&mut self, now: Duration, event: E) {
        self.note(now, format_args!("{event:?}"));
        self.timeline.record(now, event);
    }
}

/// A short form of a change.
struct Text<'a>(&'a Change);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Change::Created { path, node } => {
                write!(f, "    {path} [{} of {:x}] {:?}", node.czxid, node.session, Data(&node.data))
            }
            Change::DataChanged { path, data } => write!(f, "    {path} {:?}", Data(data)),
            Change::Deleted { path } => write!(f, "    {path} is gone"),
        }
    }
}

/// Data as a number if it may be one, otherwise as text.
struct Data<'a>(&'a [u8]);

impl fmt::Debug for Data<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.try_into() {
            Ok(number) if self.0.iter().any(|byte| *byte < b' ' || *byte > b'~') => {
                write!(f, "{}", i64::from_be_bytes(number))
            }
            _ => write!(f, "{:?}", String::from_utf8_lossy(self.0)),
        }
    }
}

//! The record of the events of one kind.

use std::fmt;
use std::time::Duration;

use curator_checkers::Violation;
use curator_checkers::timeline::Timeline;
use curator_checkers::{barriers, counters, latches, queues};
use curator_test::SimulatedEnsemble;
use curator_test::nodes::Change;

use super::counting;
use crate::scribe::{self, Book, Record};

/// An event that is recorded.
pub trait Recorded: fmt::Debug + Sized + Send + 'static {
    /// The rules of the events.
    type Rules;

    /// Returns the event of a change at the server, if the checker needs it.
    fn server(change: Change) -> Option<Self>;

    /// Returns the event for a node that an administrator is about to delete, perhaps with its session, if the checker
    /// needs it.
    fn revoked(_path: String) -> Option<Self> {
        None
    }

    /// Returns the violations, and the number of successes.
    fn check(timeline: &Timeline<Self>, rules: &Self::Rules) -> (Vec<Violation>, usize);

    /// Records a time in which servers may be behind.
    fn stale(timeline: &mut Timeline<Self>, from: Duration, until: Duration) {
        timeline.fault(from, until);
    }
}

impl Recorded for counters::Event {
    type Rules = counters::Rules;

    fn server(change: Change) -> Option<Self> {
        let (path, data) = match change {
            Change::Created { path, node } => (path, node.data),
            Change::DataChanged { path, data } => (path, data),
            Change::Deleted { .. } => return None,
        };
        Some(Self::Value(counting::counter_at(&path)?, i64::from_be_bytes(data.try_into().ok()?)))
    }

    fn check(timeline: &Timeline<Self>, rules: &Self::Rules) -> (Vec<Violation>, usize) {
        (timeline.check(rules), timeline.counted())
    }

    fn stale(timeline: &mut Timeline<Self>, from: Duration, until: Duration) {
        // Their calls have known outcomes unless a session or a node ends.
        timeline.slow(from, until);
    }
}

impl Recorded for barriers::Event {
    type Rules = barriers::Rules;

    fn server(change: Change) -> Option<Self> {
        Some(Self::Server(change))
    }

    fn check(timeline: &Timeline<Self>, rules: &Self::Rules) -> (Vec<Violation>, usize) {
        (timeline.check(rules), timeline.passed())
    }
}

impl Recorded for latches::Event {
    type Rules = latches::Rules;

    fn server(change: Change) -> Option<Self> {
        Some(Self::Server(change))
    }

    fn check(timeline: &Timeline<Self>, rules: &Self::Rules) -> (Vec<Violation>, usize) {
        (timeline.check(rules), timeline.passed())
    }
}

impl Recorded for queues::Event {
    type Rules = queues::Rules;

    fn server(change: Change) -> Option<Self> {
        Some(Self::Server(change))
    }

    fn revoked(path: String) -> Option<Self> {
        Some(Self::Revoked(path))
    }

    fn check(timeline: &Timeline<Self>, rules: &Self::Rules) -> (Vec<Violation>, usize) {
        (timeline.check(rules), timeline.delivered())
    }

    fn stale(timeline: &mut Timeline<Self>, from: Duration, until: Duration) {
        timeline.fault(from, until);
        timeline.slow(from, until);
    }
}

/// The recorder of the events of a storm.
pub type Scribe<E> = scribe::Scribe<Timeline<E>>;

impl<E: Recorded> Scribe<E> {
    /// Records the end of a client's session.
    pub fn session_ended(&self, what: impl fmt::Display) {
        self.write(|record, now| {
            record.note(now, what);
            record.book.fault(now, now);
        });
    }
}

impl<E: Recorded> Book for Timeline<E> {
    type Event = E;
    type Rules = E::Rules;

    fn timeline(&mut self) -> &mut Self {
        self
    }

    fn check(&mut self, rules: &E::Rules) -> (Vec<Violation>, usize) {
        E::check(self, rules)
    }

    fn catch_up(record: &mut Record<Self>, ensemble: &SimulatedEnsemble) {
        for (at, change) in ensemble.take_changes() {
            record.note(at, Text(&change));
            if let Some(event) = E::server(change) {
                record.book.record(at, event);
            }
        }
    }

    fn revoke(record: &mut Record<Self>, now: Duration, paths: Vec<String>) {
        for event in paths.into_iter().filter_map(E::revoked) {
            record.event(now, event);
        }
    }

    fn disturb(&mut self, from: Duration, until: Duration) {
        E::stale(self, from, until);
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
            Change::Deleted { path, .. } => write!(f, "    {path} is gone"),
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

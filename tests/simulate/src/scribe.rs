//! The record of a storm, which its tasks share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use curator_checkers::Violation;
use curator_checkers::timeline::Timeline;
use curator_framework::{CuratorFramework, Error};
use curator_test::SimulatedEnsemble;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// The result of a storm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The events in order. The same seed has the same log.
    pub log: Vec<String>,
    /// The rules that were broken.
    pub violations: Vec<Violation>,
    /// The number of successes, such as grants or terms.
    pub grants: usize,
}

/// Returns `true` for a permanent error that the servers of hard storms cause: refused reads and credentials, and large
/// replies. No other storm has it.
pub(crate) const fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::AuthFailed { .. } | Error::NoAuth { .. } | Error::ReplyTooLarge { .. })
}

/// The history of one kind of storm, with the state that its recorder needs.
pub trait Book: Default + Send + 'static {
    /// An event of the history.
    type Event: fmt::Debug;
    /// The rules of the history.
    type Rules;

    /// Returns the history.
    fn timeline(&mut self) -> &mut Timeline<Self::Event>;

    /// Returns the violations, and the number of successes.
    fn check(&mut self, rules: &Self::Rules) -> (Vec<Violation>, usize);

    /// Records the changes at the servers since the last call.
    fn catch_up(_record: &mut Record<Self>, _ensemble: &SimulatedEnsemble) {}

    /// Records a time in which clients may be late.
    fn fault(&mut self, from: Duration, until: Duration) {
        self.timeline().fault(from, until);
    }

    /// Records a time in which messages may be held up, and servers be behind.
    fn slow(&mut self, from: Duration, until: Duration) {
        self.timeline().slow(from, until);
    }

    /// Records a fault of the network or of a server.
    fn disturb(&mut self, from: Duration, until: Duration) {
        self.fault(from, until);
        self.slow(from, until);
    }

    /// Records that the servers are about to delete nodes.
    fn revoke(_record: &mut Record<Self>, _now: Duration, _paths: Vec<String>) {}

    /// Records nodes that the servers are about to delete, each behind another contender. No grant on them can be right.
    fn rule_out(&mut self, _paths: Vec<String>) {}

    /// Records nodes that exist with a backup, even if they were deleted before. A grant on them can be right.
    fn exist_again<'a>(&mut self, _paths: impl Iterator<Item = &'a String>) {}
}

/// A history, and its log.
#[derive(Debug, Default)]
pub struct Record<B> {
    pub(crate) book: B,
    log: Vec<String>,
    next: u64,
}

impl<B: Book> Record<B> {
    /// Adds a line to the log.
    pub(crate) fn note(&mut self, now: Duration, what: impl fmt::Display) {
        self.log.push(format!("{now:>12?} {what}"));
    }

    /// Records an event.
    pub(crate) fn event(&mut self, now: Duration, event: B::Event) {
        self.note(now, format_args!("{event:?}"));
        self.book.timeline().record(now, event);
    }

    /// Records a violation.
    pub(crate) fn wrong(&mut self, now: Duration, what: impl fmt::Display) {
        self.note(now, &what);
        self.book.timeline().left_behind(format!("{now:?}: {what}"));
    }

    /// Returns a number that this record has not returned before.
    pub(crate) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

/// The writer of a record. Clones write the same one.
#[derive(Debug)]
pub struct Scribe<B> {
    pub(crate) began: Instant,
    recovery: Duration,
    ensemble: Option<SimulatedEnsemble>,
    record: Arc<Mutex<Record<B>>>,
}

impl<B> Clone for Scribe<B> {
    fn clone(&self) -> Self {
        Self { ensemble: self.ensemble.clone(), record: Arc::clone(&self.record), ..*self }
    }
}

impl<B: Book> Scribe<B> {
    /// Creates an empty record. Clients may take the time `recovery` to be connected after a fault.
    pub fn of(ensemble: Option<SimulatedEnsemble>, recovery: Duration) -> Self {
        Self { began: Instant::now(), recovery, ensemble, record: Arc::default() }
    }

    /// Writes at the present time, behind the changes at the servers.
    pub(crate) fn write<T>(&self, write: impl FnOnce(&mut Record<B>, Duration) -> T) -> T {
        // The time is taken under the lock: it never goes back.
        let mut record = self.record.lock();
        if let Some(ensemble) = &self.ensemble {
            B::catch_up(&mut record, ensemble);
        }
        write(&mut record, self.began.elapsed())
    }

    /// Returns a part of the book, without the changes at the servers since the last event.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&mut B) -> T) -> T {
        read(&mut self.record.lock().book)
    }

    /// Adds a line to the log.
    pub fn note(&self, what: impl fmt::Display) {
        self.write(|record, now| record.note(now, what));
    }

    /// Records a violation.
    pub fn wrong(&self, what: impl fmt::Display) {
        self.write(|record, now| record.wrong(now, what));
    }

    /// Records an event.
    pub fn event(&self, event: B::Event) {
        self.write(|record, now| record.event(now, event));
    }

    /// Records an event with a new number, and returns the number.
    pub fn begins(&self, event: impl FnOnce(u64) -> B::Event) -> u64 {
        self.write(|record, now| {
            let number = record.number();
            record.event(now, event(number));
            number
        })
    }

    /// Returns the time since the start.
    pub fn now(&self) -> Duration {
        self.write(|_, now| now)
    }

    /// Returns data that no other write has.
    pub fn data(&self) -> Vec<u8> {
        format!("data {}", self.write(|record, _| record.number())).into_bytes()
    }

    /// Records a fault of the network or of a server. Until it has ended and the clients have recovered, messages may
    /// be held up, and clients be late.
    pub fn fault(&self, what: impl fmt::Display, lasting: Duration) {
        self.write(|record, now| {
            record.note(now, what);
            record.book.disturb(now, now + lasting + self.recovery);
        });
    }

    /// Records the end of a session or a node: clients may be late, and no message is held up.
    pub fn end(&self, what: impl fmt::Display) {
        self.write(|record, now| {
            record.note(now, what);
            record.book.fault(now, now + self.recovery);
        });
    }

    /// Records that the servers are about to delete nodes.
    pub fn revoke(&self, paths: Vec<String>) {
        self.write(|record, now| B::revoke(record, now, paths));
    }

    /// Records an error. An unfair one is a violation: only faults may cause errors.
    pub fn judge(&self, error: impl fmt::Display, is_fair: bool) {
        self.note(format_args!("an error: {error}"));
        if !is_fair {
            self.wrong(format_args!("an error: {error}"));
        }
    }

    /// Records the beginnings and ends of a client's sessions until the client is closed.
    pub(crate) async fn follow_sessions(
        self,
        client: CuratorFramework,
        begins: impl Fn(&Self, i64),
        ends: impl Fn(&Self),
    ) {
        loop {
            let mut states = client.watch_connection_state();
            match client.session().await {
                Ok(session) => {
                    begins(&self, session.id().map_or(0, |id| id.get()));
                    session.ended().await;
                    ends(&self);
                }
                Err(Error::Closed) => return,
                // A refusal returns immediately, and so does the next one.
                Err(error) if is_refusal(&error) => drop(states.changed().await),
                // It was not connected for the time of an operation.
                Err(_) => {}
            }
        }
    }

    /// Waits for all workers. A panic is a violation.
    pub async fn all_end(&self, workers: &mut JoinSet<()>) {
        while let Some(ended) = workers.join_next().await {
            if let Err(panicked) = ended {
                self.wrong(format_args!("a worker that failed: {panicked}"));
            }
        }
    }

    /// Returns the outcome.
    pub fn outcome(&self, rules: &B::Rules) -> Outcome {
        self.note("the end");
        let mut record = self.record.lock();
        let (violations, grants) = record.book.check(rules);
        Outcome { log: std::mem::take(&mut record.log), violations, grants }
    }
}

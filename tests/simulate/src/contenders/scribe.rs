//! The record of a lock.

use std::sync::Arc;
use std::time::Duration;

use curator_checkers::Violation;
use curator_checkers::locks::{Attempt, Event, Locks, Mode, Rules, Step};
use curator_checkers::timeline::Timeline;
use curator_recipes::LockError;
use tokio::time::timeout;

use super::recipe::Guard;
use crate::scribe::{self, Record, is_refusal};

/// The steps of attempts, and the nodes behind them.
#[derive(Debug, Default)]
pub struct Book {
    history: Locks,
    /// See [`Scribe::new`].
    late: Option<Duration>,
    /// The holders, each with its guard.
    holding: Vec<(Attempt, Arc<Guard>)>,
    /// Nodes that the servers have deleted, each with the time.
    revoked: Vec<(String, Duration)>,
    /// The deleted nodes of contenders that waited.
    ruled_out: Vec<String>,
}

/// The recorder of a lock.
pub type Scribe = scribe::Scribe<Book>;

impl Scribe {
    /// Creates an empty record. Clients may take the time `recovery` to be connected after a fault.
    ///
    /// With `late`, contenders may be late to record an event, but not by as much as this time. Then each grant asks all
    /// that count as holders for their state. A holder whose guard is not held has lost the lock before, and must be
    /// notified. A grant does not count if it has ended when it is recorded, or if its node was deleted a moment ago.
    /// Its holder must be notified as well.
    pub fn new(recovery: Duration, late: Option<Duration>) -> Self {
        let scribe = Self::of(None, recovery);
        scribe.read(|book| book.late = late);
        scribe
    }

    /// Records an error: connections and sessions may fail, and servers may refuse.
    pub fn error(&self, attempt: Attempt, error: &LockError) {
        let is_fair = match error {
            LockError::Framework(error) => error.is_retryable() || is_refusal(error),
            // Of an attempt that acquires again, or downgrades, a lock that it has lost.
            LockError::LockLost { .. } => true,
            _ => false,
        };
        self.judge(format_args!("{attempt:?}: {error}"), is_fair);
    }

    pub fn step(&self, attempt: Attempt, step: Step) {
        self.event((attempt, step));
    }

    pub fn leaves(&self, attempt: Attempt, step: Step) {
        self.write(|record, now| record.leaves(now, attempt, step));
    }

    pub fn ask(&self, mode: Mode) -> Attempt {
        Attempt(self.begins(|number| (Attempt(number), Step::Asked(mode))))
    }

    /// Notes a grant, unless it has ended already.
    pub async fn granted(&self, attempt: Attempt, guard: &Arc<Guard>) -> bool {
        let counts = self.write(|record, now| {
            let (late, revoked) = (record.book.late, record.book.revoked_at(guard));
            if let Some(late) = late {
                record.ask_holders(now);
                if !guard.is_held() || revoked.is_some_and(|at| now < at + late) {
                    record.note(now, format_args!("{attempt:?} was granted {} too late to count", guard.path()));
                    record.event(now, (attempt, Step::GaveUp));
                    return false;
                }
            }
            if record.book.ruled_out.iter().any(|path| guard.has(path)) {
                record.wrong(now, format_args!("{attempt:?} is granted {}, which waited", guard.path()));
            }
            // No time passes between the grant and here.
            if late.is_none() && !guard.is_held() {
                record.wrong(now, format_args!("{attempt:?} is granted {}, which is lost already", guard.path()));
            }
            // The grant may have been on its way when its node was taken away: then it holds nothing.
            if let Some(since) = revoked {
                record.event(now, (attempt, Step::RevokedSince(since)));
            } else {
                record.book.holding.push((attempt, Arc::clone(guard)));
            }
            record.event(now, (attempt, Step::Granted(guard.fencing_token())));
            true
        });
        if !counts {
            self.is_told(attempt, guard).await;
        }
        counts
    }

    /// Notes that a holder holds with this guard now.
    pub fn replaced(&self, attempt: Attempt, guard: &Arc<Guard>) {
        self.read(|book| book.replace(attempt, guard));
    }

    /// Notes that a writer reads from now on with this guard.
    pub fn downgraded(&self, attempt: Attempt, guard: &Arc<Guard>) {
        self.write(|record, now| {
            let holds = record.book.holding.iter().any(|(holder, _)| *holder == attempt);
            if holds && record.book.revoked_at(guard).is_some() {
                record.leaves(now, attempt, Step::Revoked);
            }
            record.book.replace(attempt, guard);
            // Where the writer's node holds for its reader, others see a writer still.
            if guard.is_shared() {
                record.event(now, (attempt, Step::Downgraded(guard.fencing_token())));
            }
        });
    }

    /// Before it releases: whether the holder was notified that its node was taken away, if it was.
    pub async fn was_told(&self, attempt: Attempt, guard: &Guard) -> bool {
        let revoked = self.read(|book| book.revoked_at(guard)).is_some();
        revoked && self.is_told(attempt, guard).await
    }

    async fn is_told(&self, attempt: Attempt, guard: &Guard) -> bool {
        let Some(late) = self.read(|book| book.late) else { return false };
        let told = timeout(late, guard.lost()).await.is_ok();
        if !told {
            self.wrong(format!("{attempt:?} is not told that {} is lost", guard.path()));
        }
        told
    }
}

impl scribe::Book for Book {
    type Event = Event;
    type Rules = Rules;

    fn timeline(&mut self) -> &mut Timeline<Event> {
        &mut self.history
    }

    fn check(&mut self, rules: &Rules) -> (Vec<Violation>, usize) {
        (self.history.check(rules), self.history.grants())
    }

    fn revoke(record: &mut Record<Self>, now: Duration, paths: Vec<String>) {
        for path in paths {
            // Readers may share a node.
            let holders = record.book.holding.iter().filter(|(_, held)| held.has(&path)).map(|(holder, _)| *holder);
            for holder in holders.collect::<Vec<_>>() {
                record.leaves(now, holder, Step::Revoked);
            }
            record.book.revoked.push((path, now));
        }
    }

    fn rule_out(&mut self, paths: Vec<String>) {
        self.ruled_out.extend(paths);
    }

    fn exist_again<'a>(&mut self, paths: impl Iterator<Item = &'a String>) {
        for path in paths {
            self.ruled_out.retain(|gone| gone != path);
            self.revoked.retain(|(gone, _)| gone != path);
        }
    }
}

impl Book {
    fn replace(&mut self, attempt: Attempt, guard: &Arc<Guard>) {
        if let Some((_, held)) = self.holding.iter_mut().find(|(holder, _)| *holder == attempt) {
            *held = Arc::clone(guard);
        }
    }

    /// Returns the time at which one of the nodes of a guard was deleted.
    fn revoked_at(&self, guard: &Guard) -> Option<Duration> {
        self.revoked.iter().find(|(path, _)| guard.has(path)).map(|(_, at)| *at)
    }
}

impl Record<Book> {
    fn leaves(&mut self, now: Duration, attempt: Attempt, step: Step) {
        self.book.holding.retain(|(holder, _)| *holder != attempt);
        self.event(now, (attempt, step));
    }

    /// Records the losses of holders that have not recorded them yet.
    fn ask_holders(&mut self, now: Duration) {
        let lost = self.book.holding.iter().filter(|(_, guard)| !guard.is_held()).map(|(holder, _)| *holder);
        for attempt in lost.collect::<Vec<_>>() {
            self.leaves(now, attempt, Step::Revoked);
        }
    }
}

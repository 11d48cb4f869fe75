//! What is written down about a storm.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use curator_checkers::Violation;
use curator_checkers::locks::{Attempt, Locks, Mode, Rules, Step};
use curator_recipes::LockError;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::recipe::Guard;
use crate::scribe::is_refusal;

/// What came of a storm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// What happened, in order: the same for the same seed.
    pub log: Vec<String>,
    /// What must not have happened.
    pub violations: Vec<Violation>,
    /// The number of grants, or of terms.
    pub grants: usize,
}

/// What all write down.
#[derive(Debug, Default)]
struct Book {
    history: Locks,
    log: Vec<String>,
    next: u64,
    /// Who holds.
    holding: Vec<(Attempt, Arc<Guard>)>,
    /// Nodes that the servers have taken away, and when.
    revoked: Vec<(String, Duration)>,
    /// Those of them that waited.
    ruled_out: Vec<String>,
}

/// Writes down what happens.
#[derive(Debug, Clone)]
pub struct Scribe {
    began: Instant,
    recovery: Duration,
    late: Option<Duration>,
    book: Arc<Mutex<Book>>,
}

impl Scribe {
    /// An empty book. `recovery` is how long clients may take to be back after a fault.
    ///
    /// With `late`, contenders may be late to write down what happened to them, but not by as much as that. Then, at
    /// each grant, all that count as holders are asked whether they are: one whose guard says no has lost the lock
    /// before, and must be told so. And a grant that is over when it is noted, or whose node was taken away a moment
    /// ago, is none; its holder must be told as well.
    pub fn new(recovery: Duration, late: Option<Duration>) -> Self {
        Self { began: Instant::now(), recovery, late, book: Arc::default() }
    }

    fn write(&self, write: impl FnOnce(&mut Book, Duration)) {
        // The time is taken under the lock: it never goes back.
        let mut book = self.book.lock();
        let now = self.began.elapsed();
        write(&mut book, now);
    }

    /// Notes something for the reader.
    pub fn note(&self, what: impl fmt::Display) {
        self.write(|book, now| book.note(now, what));
    }

    /// Notes something that must not be.
    pub fn wrong(&self, what: impl Into<String>) {
        self.write(|book, _| book.history.left_behind(what));
    }

    /// Notes a fault of the network or of a server; messages may be held up, and places stay free, until it is over and the
    /// clients have recovered.
    pub fn fault(&self, what: impl fmt::Display, lasting: Duration) {
        self.write(|book, now| {
            book.note(now, what);
            book.history.fault(now, now + lasting + self.recovery);
            book.history.slow(now, now + lasting + self.recovery);
        });
    }

    /// Notes the end of a session or a node: places may stay free, and no message is held up.
    pub fn end(&self, what: impl fmt::Display) {
        self.write(|book, now| {
            book.note(now, what);
            book.history.fault(now, now + self.recovery);
        });
    }

    /// Notes that the servers are about to take nodes away.
    pub fn revoke(&self, paths: impl IntoIterator<Item = String>) {
        self.write(|book, now| {
            for path in paths {
                let holder = book.holding.iter().find(|(_, held)| held.has(&path)).map(|(holder, _)| *holder);
                if let Some(holder) = holder {
                    book.leaves(now, holder, Step::Revoked);
                }
                book.revoked.push((path, now));
            }
        });
    }

    /// Notes nodes that the servers are about to take away, each behind another contender: no grant on them can be right.
    pub fn rule_out(&self, paths: impl IntoIterator<Item = String>) {
        self.write(|book, _| book.ruled_out.extend(paths));
    }

    /// Notes nodes that exist with a backup, even if they were taken away before: a grant on them can be right.
    pub fn exist_again<'a>(&self, paths: impl IntoIterator<Item = &'a String>) {
        self.write(|book, _| {
            for path in paths {
                book.ruled_out.retain(|gone| gone != path);
                book.revoked.retain(|(gone, _)| gone != path);
            }
        });
    }

    /// What came of it.
    pub fn outcome(&self, rules: &Rules) -> Outcome {
        let mut book = self.book.lock();
        let violations = book.history.check(rules);
        Outcome { log: std::mem::take(&mut book.log), violations, grants: book.history.grants() }
    }

    /// Notes an error: connections and sessions may fail, and servers may refuse.
    pub fn error(&self, attempt: Attempt, error: &LockError) {
        self.write(|book, now| {
            book.note(now, format_args!("{attempt:?}: {error}"));
            let fair = match error {
                LockError::Framework(error) => error.is_retryable() || is_refusal(error),
                // By who acquires again, or downgrades, what it has lost.
                LockError::LockLost { .. } => true,
                _ => false,
            };
            if !fair {
                book.history.left_behind(format!("an error of {attempt:?}: {error}"));
            }
        });
    }

    pub fn step(&self, attempt: Attempt, step: Step) {
        self.write(|book, now| book.step(now, attempt, step));
    }

    pub fn leaves(&self, attempt: Attempt, step: Step) {
        self.write(|book, now| book.leaves(now, attempt, step));
    }

    pub fn ask(&self, mode: Mode) -> Attempt {
        let mut attempt = Attempt(0);
        self.write(|book, now| {
            book.next += 1;
            attempt = Attempt(book.next);
            book.step(now, attempt, Step::Asked(mode));
        });
        attempt
    }

    /// Notes a grant, unless it is over already.
    pub async fn granted(&self, attempt: Attempt, guard: &Arc<Guard>) -> bool {
        let mut counts = true;
        self.write(|book, now| {
            let revoked = book.revoked_at(guard);
            if let Some(late) = self.late {
                book.ask_holders(now);
                if !guard.is_held() || revoked.is_some_and(|at| now < at + late) {
                    book.note(now, format_args!("{attempt:?} was granted {} too late to count", guard.path()));
                    book.step(now, attempt, Step::GaveUp);
                    counts = false;
                    return;
                }
            }
            if book.ruled_out.iter().any(|path| guard.has(path)) {
                book.history.left_behind(format!("{attempt:?} is granted {}, which waited", guard.path()));
            }
            // No time passes between the grant and here.
            if self.late.is_none() && !guard.is_held() {
                book.history.left_behind(format!("{attempt:?} is granted {}, which is lost already", guard.path()));
            }
            // The grant may have been on its way when its node was taken away: then it holds nothing.
            if let Some(since) = revoked {
                book.step(now, attempt, Step::RevokedSince(since));
            } else {
                book.holding.push((attempt, Arc::clone(guard)));
            }
            book.step(now, attempt, Step::Granted(guard.fencing_token()));
        });
        if !counts {
            self.is_told(attempt, guard).await;
        }
        counts
    }

    /// Notes that a holder holds with this guard now.
    pub fn replaced(&self, attempt: Attempt, guard: &Arc<Guard>) {
        self.book.lock().replace(attempt, guard);
    }

    /// Notes that a writer reads from now on with this guard.
    pub fn downgraded(&self, attempt: Attempt, guard: &Arc<Guard>) {
        self.write(|book, now| {
            let holds = book.holding.iter().any(|(holder, _)| *holder == attempt);
            if holds && book.revoked_at(guard).is_some() {
                book.leaves(now, attempt, Step::Revoked);
            }
            book.replace(attempt, guard);
            // Where the writer's node stands for its reader, others see a writer still.
            if guard.is_shared() {
                book.step(now, attempt, Step::Downgraded(guard.fencing_token()));
            }
        });
    }

    /// Before it releases: whether the holder was told that its node was taken away, if it was.
    pub async fn was_told(&self, attempt: Attempt, guard: &Guard) -> bool {
        let revoked = self.book.lock().revoked_at(guard).is_some();
        revoked && self.is_told(attempt, guard).await
    }

    async fn is_told(&self, attempt: Attempt, guard: &Guard) -> bool {
        let Some(late) = self.late else { return false };
        let told = timeout(late, guard.lost()).await.is_ok();
        if !told {
            self.wrong(format!("{attempt:?} is not told that {} is lost", guard.path()));
        }
        told
    }
}

impl Book {
    fn note(&mut self, now: Duration, what: impl fmt::Display) {
        self.log.push(format!("{now:>12?} {what}"));
    }

    fn step(&mut self, now: Duration, attempt: Attempt, step: Step) {
        self.note(now, format_args!("{attempt:?} {step:?}"));
        self.history.record(now, (attempt, step));
    }

    fn replace(&mut self, attempt: Attempt, guard: &Arc<Guard>) {
        if let Some((_, held)) = self.holding.iter_mut().find(|(holder, _)| *holder == attempt) {
            *held = Arc::clone(guard);
        }
    }

    /// When one of the nodes of a guard was taken away, if one was.
    fn revoked_at(&self, guard: &Guard) -> Option<Duration> {
        self.revoked.iter().find(|(path, _)| guard.has(path)).map(|(_, at)| *at)
    }

    fn leaves(&mut self, now: Duration, attempt: Attempt, step: Step) {
        self.holding.retain(|(holder, _)| *holder != attempt);
        self.step(now, attempt, step);
    }

    /// Notes those that have lost the lock and have not said so yet.
    fn ask_holders(&mut self, now: Duration) {
        let lost: Vec<_> = self.holding.iter().filter(|(_, guard)| !guard.is_held()).map(|(who, _)| *who).collect();
        for attempt in lost {
            self.leaves(now, attempt, Step::Revoked);
        }
    }
}

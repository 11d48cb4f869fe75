//! Who contends for a lock, and what is written down about it: the part of a storm that is the same in any world.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use curator_framework::{CuratorFramework, Error, LossReason};
use curator_recipes::{InterProcessMutex, InterProcessSemaphoreV2, Lease, LockError, MutexGuard, Release};
use curator_test::history::{Attempt, History, Mode, Rules, Step, Violation};
use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::StdRng;
use tokio::time::{Instant, sleep, timeout};

/// Which lock is stormed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recipe {
    /// `InterProcessMutex`.
    Mutex,
    /// `InterProcessSemaphoreV2` with this many leases.
    Semaphore(usize),
}

impl Recipe {
    /// All that there are.
    pub(crate) const ALL: [Self; 3] = [Self::Mutex, Self::Semaphore(1), Self::Semaphore(2)];

    /// What its history is held to.
    pub(crate) const fn rules(self, patience: Duration, prompt: Duration) -> Rules {
        match self {
            Self::Mutex => Rules::mutex(patience).prompt(prompt),
            Self::Semaphore(leases) => Rules::semaphore(leases, patience).prompt(prompt),
        }
    }

    /// Where the nodes are that hold the lock, and all parts.
    pub(crate) fn parts(self, path: &str) -> Vec<String> {
        match self {
            Self::Mutex => vec![path.to_owned()],
            Self::Semaphore(_) => vec![format!("{path}/leases"), format!("{path}/locks")],
        }
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mutex => f.write_str("mutex"),
            Self::Semaphore(leases) => write!(f, "semaphore of {leases}"),
        }
    }
}

/// What came of a storm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// What happened, in order: the same for the same seed.
    pub(crate) log: Vec<String>,
    /// What must not have happened.
    pub(crate) violations: Vec<Violation>,
    /// How often the lock was granted.
    pub(crate) grants: usize,
}

/// How a storm's contenders spend their time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// How many times as fast as planned they are.
    pub(crate) speed: u32,
    /// How often each asks for the lock.
    pub(crate) rounds: u32,
    /// One hold of so many is a long one.
    pub(crate) long: u32,
    /// Whether a holder looks at its guard before each piece of work, as one should; else it relies on being told.
    pub(crate) looks: bool,
}

impl Pace {
    fn milliseconds(self, planned: u64) -> Duration {
        Duration::from_millis(planned) / self.speed
    }

    fn random(self, random: &mut StdRng, milliseconds: Range<u64>) -> Duration {
        self.milliseconds(random.random_range(milliseconds))
    }
}

/// What all write down.
#[derive(Debug, Default)]
struct Book {
    history: History,
    log: Vec<String>,
    next: u64,
    /// Who holds.
    holding: Vec<(Attempt, Arc<Guard>)>,
    /// Nodes that the servers have taken away, and when.
    revoked: Vec<(String, Duration)>,
}

/// Writes down what happens.
#[derive(Debug, Clone)]
pub(crate) struct Scribe {
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
    pub(crate) fn new(recovery: Duration, late: Option<Duration>) -> Self {
        Self { began: Instant::now(), recovery, late, book: Arc::default() }
    }

    fn write(&self, write: impl FnOnce(&mut Book, Duration)) {
        // The time is taken under the lock: it never goes back.
        let mut book = self.book.lock();
        let now = self.began.elapsed();
        write(&mut book, now);
    }

    /// Notes something for the reader.
    pub(crate) fn note(&self, what: impl fmt::Display) {
        self.write(|book, now| book.note(now, what));
    }

    /// Notes something that must not be.
    pub(crate) fn wrong(&self, what: impl Into<String>) {
        self.write(|book, _| book.history.left_behind(what));
    }

    /// Notes a fault; places may stay free until it is over and the clients have recovered.
    pub(crate) fn fault(&self, what: impl fmt::Display, lasting: Duration) {
        self.write(|book, now| {
            book.note(now, what);
            book.history.fault(now, now + lasting + self.recovery);
        });
    }

    /// Notes that the servers are about to take nodes away.
    pub(crate) fn revoke(&self, paths: impl IntoIterator<Item = String>) {
        self.write(|book, now| {
            for path in paths {
                let holder = book.holding.iter().find(|(_, held)| held.path() == path).map(|(holder, _)| *holder);
                if let Some(holder) = holder {
                    book.leaves(now, holder, Step::Revoked);
                }
                book.revoked.push((path, now));
            }
        });
    }

    /// What came of it.
    pub(crate) fn outcome(&self, rules: &Rules) -> Outcome {
        let mut book = self.book.lock();
        let violations = book.history.check(rules);
        Outcome { log: std::mem::take(&mut book.log), violations, grants: book.history.grants() }
    }

    /// Notes an error: only connections and sessions may fail, and who does not wait may miss a node that was deleted.
    fn error(&self, attempt: Attempt, error: &LockError) {
        self.write(|book, now| {
            book.note(now, format_args!("{attempt:?}: {error}"));
            let fair = match error {
                LockError::Framework(Error::NoNode { path }) => book.revoked.iter().any(|(revoked, _)| revoked == path),
                LockError::Framework(error) => error.is_retryable(),
                _ => false,
            };
            if !fair {
                book.history.left_behind(format!("an error of {attempt:?}: {error}"));
            }
        });
    }

    pub(crate) fn step(&self, attempt: Attempt, step: Step) {
        self.write(|book, now| book.step(now, attempt, step));
    }

    pub(crate) fn leaves(&self, attempt: Attempt, step: Step) {
        self.write(|book, now| book.leaves(now, attempt, step));
    }

    pub(crate) fn ask(&self) -> Attempt {
        let mut attempt = Attempt(0);
        self.write(|book, now| {
            book.next += 1;
            attempt = Attempt(book.next);
            book.step(now, attempt, Step::Asked(Mode::Exclusive));
        });
        attempt
    }

    /// Notes a grant, unless it is over already.
    pub(crate) async fn granted(&self, attempt: Attempt, guard: &Arc<Guard>) -> bool {
        let mut counts = true;
        self.write(|book, now| {
            let revoked = book.revoked.iter().find(|(path, _)| path == guard.path()).map(|(_, at)| *at);
            if let Some(late) = self.late {
                book.ask_holders(now);
                if !guard.is_held() || revoked.is_some_and(|at| now < at + late) {
                    book.note(now, format_args!("{attempt:?} was granted {} too late to count", guard.path()));
                    book.step(now, attempt, Step::GaveUp);
                    counts = false;
                    return;
                }
            }
            // The grant may have been on its way when its node was taken away: then it holds nothing.
            if revoked.is_some() {
                book.step(now, attempt, Step::Revoked);
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

    /// Before it releases: whether the holder was told that its node was taken away, if it was.
    async fn was_told(&self, attempt: Attempt, guard: &Guard) -> bool {
        let revoked = self.book.lock().revoked.iter().any(|(path, _)| path == guard.path());
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
        self.history.record(now, attempt, step);
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

/// The lock that a client has.
pub(crate) enum Lock {
    Mutex(InterProcessMutex),
    Semaphore(InterProcessSemaphoreV2),
}

/// What a holder has.
pub(crate) enum Guard {
    Mutex(MutexGuard),
    Lease(Lease),
}

impl Lock {
    pub(crate) fn new(client: CuratorFramework, recipe: Recipe, path: &str) -> Result<Self, LockError> {
        Ok(match recipe {
            Recipe::Mutex => Self::Mutex(InterProcessMutex::new(client, path)?),
            Recipe::Semaphore(leases) => Self::Semaphore(InterProcessSemaphoreV2::new(client, path, leases)?),
        })
    }

    pub(crate) async fn acquire(&self) -> Result<Option<Guard>, LockError> {
        Ok(Some(match self {
            Self::Mutex(mutex) => Guard::Mutex(mutex.acquire().await?),
            Self::Semaphore(semaphore) => Guard::Lease(semaphore.acquire().await?),
        }))
    }

    pub(crate) async fn acquire_timeout(&self, budget: Duration) -> Result<Option<Guard>, LockError> {
        Ok(match self {
            Self::Mutex(mutex) => mutex.acquire_timeout(budget).await?.map(Guard::Mutex),
            Self::Semaphore(semaphore) => semaphore.acquire_timeout(budget).await?.map(Guard::Lease),
        })
    }

    pub(crate) async fn try_acquire(&self) -> Result<Option<Guard>, LockError> {
        Ok(match self {
            Self::Mutex(mutex) => mutex.try_acquire().await?.map(Guard::Mutex),
            Self::Semaphore(semaphore) => semaphore.try_acquire().await?.map(Guard::Lease),
        })
    }
}

impl Guard {
    pub(crate) fn path(&self) -> &str {
        match self {
            Self::Mutex(guard) => guard.path(),
            Self::Lease(lease) => lease.path(),
        }
    }

    fn fencing_token(&self) -> i64 {
        match self {
            Self::Mutex(guard) => guard.fencing_token(),
            Self::Lease(lease) => lease.fencing_token(),
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        match self {
            Self::Mutex(guard) => guard.is_held(),
            Self::Lease(lease) => lease.is_held(),
        }
    }

    pub(crate) async fn lost(&self) -> LossReason {
        match self {
            Self::Mutex(guard) => guard.lost().await,
            Self::Lease(lease) => lease.lost().await,
        }
    }

    pub(crate) async fn release(&self) -> Result<Release, LockError> {
        match self {
            Self::Mutex(guard) => guard.release().await,
            Self::Lease(lease) => lease.release().await,
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.path())
    }
}

/// One contender: asks for the lock, holds it, gives it back, a few times.
pub(crate) async fn work(scribe: Scribe, lock: Lock, mut random: StdRng, pace: Pace) {
    for _ in 0..pace.rounds {
        sleep(pace.random(&mut random, 0..3000)).await;
        let attempt = scribe.ask();
        let short = pace.random(&mut random, 0..4000);
        let outcome = match random.random_range(0..10) {
            0..=4 => lock.acquire().await,
            5 | 6 => lock.acquire_timeout(short * 3).await,
            7 => lock.try_acquire().await,
            // The future is dropped.
            _ => timeout(short, lock.acquire()).await.unwrap_or(Ok(None)),
        };
        let guard = match outcome {
            Ok(Some(guard)) => Arc::new(guard),
            Ok(None) => {
                scribe.step(attempt, Step::GaveUp);
                continue;
            }
            Err(error) => {
                scribe.error(attempt, &error);
                scribe.step(attempt, Step::GaveUp);
                continue;
            }
        };
        if !scribe.granted(attempt, &guard).await {
            continue;
        }
        let long = random.random_range(0..pace.long) == 0;
        let until = Instant::now() + pace.random(&mut random, if long { 4000..16000 } else { 0..1500 });
        let mut lost = !guard.is_held();
        while !lost && Instant::now() < until {
            lost = tokio::select! {
                biased;
                _ = guard.lost() => true,
                () = sleep(pace.milliseconds(100)) => pace.looks && !guard.is_held(),
            };
        }
        if lost || scribe.was_told(attempt, &guard).await {
            scribe.leaves(attempt, Step::Lost);
        }
        scribe.leaves(attempt, Step::Releasing);
        match random.random_range(0..6) {
            0 => drop(guard),
            1 => {
                // A release that is dropped half-way.
                let _dropped = timeout(pace.random(&mut random, 0..100), guard.release()).await;
                drop(guard);
            }
            _ => {
                if let Err(error) = guard.release().await {
                    scribe.error(attempt, &error);
                }
            }
        }
        scribe.step(attempt, Step::Released);
    }
}

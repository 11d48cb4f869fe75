//! The contenders for a lock, and their record: the part of a storm that is the same in any world.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use curator_checkers::locks::{Attempt, Mode, Step};
use curator_recipes::{LockError, LockOwner};
use rand::Rng;
use rand::rngs::StdRng;
use tokio::time::{Instant, sleep, timeout};

mod recipe;
mod scribe;

pub use recipe::{Guard, Lock, Recipe, Verb};
pub use scribe::{Book, Scribe};

/// How a storm's contenders spend their time.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// How many times as fast as planned they are.
    pub speed: u32,
    /// How often each asks for the lock.
    pub rounds: u32,
    /// One hold of so many is a long one.
    pub long: u32,
    /// Whether one holds for very long, and the others for a moment.
    pub uneven: bool,
    /// Whether a holder checks its guard before each piece of work, as one should; else it relies on the notification.
    pub looks: bool,
}

impl Pace {
    fn milliseconds(self, planned: u64) -> Duration {
        Duration::from_millis(planned) / self.speed
    }

    /// The time for which a contender holds.
    fn hold(self, random: &mut StdRng, is_first: bool) -> Duration {
        let long = random.random_range(0..self.long) == 0;
        let range = match (self.uneven, is_first, long) {
            (true, true, _) => 8000..40_000,
            (true, false, _) => 0..60,
            (_, _, true) => 4000..16_000,
            _ => 0..1500,
        };
        self.random(random, range)
    }

    fn random(self, random: &mut StdRng, milliseconds: Range<u64>) -> Duration {
        self.milliseconds(random.random_range(milliseconds))
    }
}

/// One contender: asks for the lock, holds it, gives it back, a few times. The first one of a storm may be slow.
pub async fn work(scribe: Scribe, lock: Lock, random: StdRng, pace: Pace, is_first: bool) {
    let mut worker = Worker { scribe, lock, random, pace, is_first };
    for _ in 0..if pace.uneven && is_first { 1 } else { pace.rounds } {
        sleep(pace.random(&mut worker.random, 0..3000)).await;
        if worker.random.random_range(0..3) == 0 {
            LockOwner::scope(worker.one_round()).await;
        } else {
            worker.one_round().await;
        }
    }
}

struct Worker {
    scribe: Scribe,
    lock: Lock,
    random: StdRng,
    pace: Pace,
    is_first: bool,
}

impl Worker {
    async fn one_round(&mut self) {
        let mode = self.lock.mode(&mut self.random);
        let attempt = self.scribe.ask(mode);
        let short = self.pace.random(&mut self.random, 0..4000);
        let verb = match self.random.random_range(0..10) {
            0..=4 => Verb::Acquire,
            5 | 6 => Verb::Within(short * 3),
            7 => Verb::Try,
            _ => Verb::Drop(short),
        };
        let mut guard = match self.lock.acquire(mode, verb, self.random.random_range(0..3)).await {
            Ok(Some(guard)) => Arc::new(guard),
            Ok(None) => return self.scribe.step(attempt, Step::GaveUp),
            Err(error) => {
                self.scribe.error(attempt, &error);
                return self.scribe.step(attempt, Step::GaveUp);
            }
        };
        if !self.scribe.granted(attempt, &guard).await {
            return;
        }
        let time = self.pace.hold(&mut self.random, self.is_first);
        let again = self.random.random_range(0..3);
        let mut lost = self.hold(&guard, time / 2).await;
        if !lost && again > 0 {
            guard = self.once_more(attempt, guard).await;
            lost = self.hold(&guard, time / 2).await;
        }
        if lost || self.scribe.was_told(attempt, &guard).await {
            self.scribe.leaves(attempt, Step::Lost);
        }
        self.scribe.leaves(attempt, Step::Releasing);
        match self.random.random_range(0..6) {
            0 => drop(guard),
            1 => {
                // A release that is dropped half-way.
                let soon = self.pace.random(&mut self.random, 0..100);
                let _dropped = timeout(soon, guard.release()).await;
                drop(guard);
            }
            _ => {
                if let Err(error) = guard.release().await {
                    self.scribe.error(attempt, &error);
                }
            }
        }
        self.scribe.step(attempt, Step::Released);
    }

    /// Holds for a time; whether the lock is lost.
    async fn hold(&self, guard: &Guard, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut lost = !guard.is_held();
        while !lost && Instant::now() < until {
            lost = tokio::select! {
                biased;
                _ = guard.lost() => true,
                () = sleep(self.pace.milliseconds(100)) => self.pace.looks && !guard.is_held(),
            };
        }
        lost
    }

    /// What can be done with some locks while they are held: enters again, reads while it writes, downgrades, tries to
    /// upgrade. Returns the guard that counts from then on.
    async fn once_more(&mut self, attempt: Attempt, guard: Arc<Guard>) -> Arc<Guard> {
        let soon = self.pace.random(&mut self.random, 0..200);
        let drops = self.random.random_range(0..4) == 0;
        let owner = LockOwner::current();
        match (&*guard, &self.lock, owner) {
            (Guard::Write(writing), _, _) if self.random.random() => {
                // It may be lost in the meantime. The loss is reported when this has ended.
                let downgrade = async {
                    tokio::select! {
                        biased;
                        _ = guard.lost() => Ok(None),
                        read = writing.downgrade() => read.map(Some),
                    }
                };
                let read = if drops { timeout(soon, downgrade).await.unwrap_or(Ok(None)) } else { downgrade.await };
                self.counts(attempt, guard.clone(), read.map(|read| read.map(Guard::Read))).await
            }
            (Guard::Write(_), Lock::ReadWrite(lock), Some(_)) => {
                let within = self.pace.random(&mut self.random, 1..4000);
                let readers = lock.read_lock();
                let read = tokio::select! {
                    biased;
                    _ = guard.lost() => Ok(None),
                    read = readers.acquire_timeout(within) => read,
                };
                // Curator's way to downgrade, or a look.
                match read {
                    Ok(Some(read)) if drops => {
                        if let Err(error) = read.release().await {
                            self.scribe.error(attempt, &error);
                        }
                        guard
                    }
                    read => self.counts(attempt, guard.clone(), read.map(|read| read.map(Guard::Read))).await,
                }
            }
            (Guard::Read(_), Lock::ReadWrite(lock), Some(_)) => {
                match lock.write_lock().acquire_timeout(soon).await {
                    Err(LockError::Upgrade { .. }) => {}
                    other => self.scribe.wrong(format!("{attempt:?} reads and asks to write: {other:?}")),
                }
                guard
            }
            (held, lock, Some(_)) if held.lets_its_owner_in() => {
                // The set of locks may be a wider one, of which it has to wait for some.
                if !matches!(lock, Lock::Multi(_)) {
                    match lock.acquire(Mode::Exclusive, Verb::Try, 0).await {
                        Ok(Some(inner)) => drop(inner),
                        Ok(None) => self.scribe.wrong(format!("{attempt:?} is not let in again")),
                        Err(error) => self.scribe.error(attempt, &error),
                    }
                }
                guard
            }
            (held, _, _) => {
                if let Some(inner) = held.reenter() {
                    // The last one that goes counts.
                    if drops {
                        let inner = Arc::new(inner);
                        self.scribe.replaced(attempt, &inner);
                        let _held_on = guard.release().await;
                        return inner;
                    }
                }
                guard
            }
        }
    }

    /// A writer has a reader's guard: that counts from now on, if it is one.
    async fn counts(
        &self,
        attempt: Attempt,
        writing: Arc<Guard>,
        read: Result<Option<Guard>, LockError>,
    ) -> Arc<Guard> {
        match read {
            Ok(Some(read)) => {
                let read = Arc::new(read);
                self.scribe.downgraded(attempt, &read);
                if let Err(error) = writing.release().await {
                    self.scribe.error(attempt, &error);
                }
                read
            }
            Ok(None) => writing,
            Err(error) => {
                self.scribe.error(attempt, &error);
                writing
            }
        }
    }
}

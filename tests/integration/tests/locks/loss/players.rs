//! The holder and the next contender, and what they record.

use std::sync::Arc;
use std::time::Duration;

use curator_checkers::locks::{Attempt, Locks, Rules, Step};
use curator_framework::{CuratorFramework, LossReason, SessionEnd};
use curator_integration::held::{Way, all_lost, not_over};
use curator_recipes::{LockGuard, Release};
use parking_lot::Mutex;
use tokio::sync::watch;

/// The time for which a place stays free is not measured.
const PATIENCE: Duration = Duration::from_secs(3600);

/// What all players of a round know.
pub(super) struct Round {
    way: Way,
    path: String,
    clock: Box<dyn Fn() -> Duration + Send + Sync>,
    written: Mutex<Written>,
    /// The guards of the player that is to lose them.
    held: watch::Sender<Option<Arc<Vec<LockGuard>>>>,
    silence_is_over: watch::Sender<bool>,
    told: watch::Sender<usize>,
}

#[derive(Default)]
struct Written {
    history: Locks,
    attempts: u64,
    wrong: Vec<String>,
}

/// What came of a round.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) history: Locks,
    pub(super) wrong: Vec<String>,
    /// The number of losses that the holder was notified of.
    pub(super) losses: usize,
}

impl Round {
    pub(super) fn new(way: Way, path: &str, clock: impl Fn() -> Duration + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            way,
            path: path.to_owned(),
            clock: Box::new(clock),
            written: Mutex::default(),
            held: watch::Sender::new(None),
            silence_is_over: watch::Sender::new(false),
            told: watch::Sender::new(0),
        })
    }

    fn asks(&self) -> Attempt {
        let attempt = {
            let mut written = self.written.lock();
            written.attempts += 1;
            Attempt(written.attempts)
        };
        self.note(attempt, Step::Asked(curator_checkers::locks::Mode::Exclusive));
        attempt
    }

    fn note(&self, attempt: Attempt, step: Step) {
        let mut written = self.written.lock();
        // Taken under the lock, so that the times do not go back.
        let now = (self.clock)();
        written.history.record(now, (attempt, step));
    }

    pub(super) fn wrong(&self, what: impl ToString) {
        self.written.lock().wrong.push(what.to_string());
    }

    /// Resolves when the player that is to lose the lock holds it.
    pub(super) async fn is_held(&self) {
        let mut held = self.held.subscribe();
        let held = held.wait_for(Option::is_some).await;
        assert!(held.is_ok(), "the round is here");
    }

    /// Resolves when the loss was reported.
    pub(super) async fn is_told(&self) {
        let mut told = self.told.subscribe();
        let told = told.wait_for(|told| *told > 0).await;
        assert!(told.is_ok(), "the round is here");
    }

    pub(super) fn end_of_silence(&self) {
        self.silence_is_over.send_replace(true);
    }

    /// The holder until now must not hold it from now on.
    pub(super) fn look_at_the_old_holder(&self, when: &str) {
        let old = self.held.borrow().clone();
        if let Some(wrong) = old.and_then(|guards| not_over(&guards)) {
            self.wrong(format!("{when}: {wrong}"));
        }
    }

    pub(super) fn outcome(&self) -> Outcome {
        let written = self.written.lock();
        let mut wrong = written.wrong.clone();
        let rules: Rules = self.way.rules(PATIENCE);
        wrong.extend(written.history.check(&rules).iter().map(ToString::to_string));
        Outcome { history: written.history.clone(), wrong, losses: *self.told.borrow() }
    }

    /// Takes the lock and keeps it until it is lost, over and over; when the silence has ended, gives it back.
    pub(super) async fn hold(self: Arc<Self>, client: CuratorFramework) {
        let mut over = self.silence_is_over.subscribe();
        loop {
            let attempt = self.asks();
            let granted = std::sync::atomic::AtomicBool::new(false);
            let note = |step| {
                granted.store(true, std::sync::atomic::Ordering::SeqCst);
                self.note(attempt, step);
            };
            let guards = match self.way.take(&client, &self.path, note).await {
                Ok(guards) => Arc::new(guards),
                // Lost between the grant and the second step of taking it: that is reported as well.
                Err(_) if granted.into_inner() => {
                    self.note(attempt, Step::Lost);
                    self.note(attempt, Step::Released);
                    continue;
                }
                Err(error) => {
                    self.note(attempt, Step::GaveUp);
                    return self.wrong(format!("the holder gave up: {error}"));
                }
            };
            self.held.send_replace(Some(Arc::clone(&guards)));
            let lost = tokio::select! {
                biased;
                reasons = all_lost(&guards) => {
                    self.note(attempt, Step::Lost);
                    self.told.send_modify(|told| *told += 1);
                    let silence = LossReason::Session(SessionEnd::DeadlinePassed);
                    if reasons.iter().any(|reason| *reason != silence) {
                        self.wrong(format!("lost by {reasons:?}"));
                    }
                    if let Some(wrong) = not_over(&guards) {
                        self.wrong(format!("told, but {wrong}"));
                    }
                    true
                }
                _ = over.wait_for(|over| *over) => {
                    // A host that has just been asleep sees it at a look, before any notification.
                    let lost = guards.iter().any(|guard| !guard.is_held());
                    self.note(attempt, if lost { Step::Lost } else { Step::Releasing });
                    lost
                }
            };
            for guard in guards.iter().rev() {
                match (guard.release().await, lost) {
                    (Ok(Release::AlreadyLost(_)), true) | (Ok(Release::Released), false) => {}
                    (released, _) => self.wrong(format!("lost: {lost}, and its release says {released:?}")),
                }
            }
            self.note(attempt, Step::Released);
            if !lost {
                return;
            }
        }
    }

    /// Takes the lock once, checks the holder before it, and gives it back after a while.
    pub(super) async fn follow(self: Arc<Self>, client: CuratorFramework, keeps: Duration) {
        let attempt = self.asks();
        match self.way.plain().take(&client, &self.path, |step| self.note(attempt, step)).await {
            Ok(guards) => {
                self.look_at_the_old_holder("granted to the next");
                tokio::time::sleep(keeps).await;
                self.note(attempt, Step::Releasing);
                for guard in guards {
                    if let Err(error) = guard.release().await {
                        self.wrong(format!("the next one cannot release: {error}"));
                    }
                }
                self.note(attempt, Step::Released);
            }
            Err(error) => {
                self.note(attempt, Step::GaveUp);
                self.wrong(format!("the next one gave up: {error}"));
            }
        }
    }
}

//! The check of the steps of a lock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Attempt, Event, Locks, Mode, Rules, Step};
use crate::timeline;
use crate::violation::Found;

/// The state of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Contender {
    mode: Mode,
    stage: Stage,
    token: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting,
    Holding,
    /// The server took away the node of a grant that may be on its way.
    Void,
    /// The server took its node away, and it was not yet notified.
    Taken {
        at: Duration,
    },
    /// It was notified, or is releasing.
    Leaving,
    Gone,
}

impl Contender {
    /// Returns whether it occupies a lease: a hold that is being released, or was revoked without notice, still does.
    const fn is_busy(&self) -> bool {
        !matches!(self.stage, Stage::Waiting | Stage::Gone)
    }
}

pub(super) struct Checker<'a> {
    rules: &'a Rules,
    history: &'a Locks,
    /// The attempts that wait or hold, and no others: each step visits all of them.
    contenders: BTreeMap<Attempt, Contender>,
    gone: BTreeSet<Attempt>,
    newest: i64,
    /// The newest token of a holder that excludes all others.
    newest_written: i64,
    /// The time from which a lease is free beside a waiter.
    free_from: Option<Duration>,
    found: Found,
}

impl<'a> Checker<'a> {
    pub(super) const fn new(rules: &'a Rules, history: &'a Locks) -> Self {
        Self {
            rules,
            history,
            contenders: BTreeMap::new(),
            gone: BTreeSet::new(),
            newest: i64::MIN,
            newest_written: i64::MIN,
            free_from: None,
            found: Found(Vec::new()),
        }
    }
}

impl<'a> timeline::Checker<'a, Event> for Checker<'a> {
    fn apply(&mut self, at: Duration, (attempt, step): &'a Event) -> bool {
        let (attempt, step) = (*attempt, *step);
        if matches!(step, Step::Granted(_)) {
            self.free_from = None;
        }
        let before = self.contenders.get(&attempt).copied();
        if (step, self.rules.kept_in_calm) == (Step::Lost, true)
            && before.is_some_and(|before| before.stage == Stage::Holding)
            && !self.history.faults.has(at)
        {
            self.found.broken("a loss in calm", at, format!("{attempt:?}"));
        }
        let is_gone = self.gone.contains(&attempt);
        let after = match (step, before) {
            // A revocation may hit a holder that has just released.
            (Step::Revoked, None) if is_gone => return true,
            (Step::Asked(mode), None) if !is_gone => Some(Contender { mode, stage: Stage::Waiting, token: 0 }),
            (_, Some(before)) => self.next(at, attempt, step, before),
            _ => None,
        };
        match after {
            Some(Contender { stage: Stage::Gone, .. }) => {
                self.contenders.remove(&attempt);
                self.gone.insert(attempt);
            }
            Some(after) => {
                self.contenders.insert(attempt, after);
            }
            None => return false,
        }
        true
    }

    fn at_time(&mut self, now: Duration) {
        self.look_at_free_places(now);
        self.look_at_taken_places(now);
    }

    fn note_time(&mut self, at: Duration) {
        self.free_from = if self.is_room() { self.free_from.or(Some(at)) } else { None };
    }

    fn found(&mut self) -> &mut Found {
        &mut self.found
    }
}

impl Checker<'_> {
    /// Returns the state of an attempt after a step, if the step may follow.
    fn next(&mut self, at: Duration, attempt: Attempt, step: Step, before: Contender) -> Option<Contender> {
        let stage = match (step, before.stage) {
            (Step::GaveUp, Stage::Waiting | Stage::Void) => Stage::Gone,
            (Step::Granted(token), Stage::Waiting) => {
                self.granted(at, attempt, before.mode, token);
                return Some(Contender { stage: Stage::Holding, token, ..before });
            }
            (Step::Granted(token), Stage::Void) => {
                return Some(Contender { stage: Stage::Taken { at }, token, ..before });
            }
            (Step::Downgraded(token), Stage::Holding | Stage::Taken { .. }) if before.mode == Mode::Exclusive => {
                if token != before.token {
                    let before = before.token;
                    let what = format!("{attempt:?} reads with {token} and wrote with {before}");
                    self.found.broken("a token that changed", at, what);
                }
                return Some(Contender { mode: Mode::Shared, ..before });
            }
            (Step::Revoked, Stage::Waiting) => Stage::Void,
            (Step::RevokedSince(since), Stage::Waiting) => {
                let late = |most| self.history.slow.calm(since, at) > most;
                if self.rules.on_its_way.is_some_and(late) {
                    let what = format!("{attempt:?}, which is gone since {since:?}");
                    self.found.broken("a grant on a node that is gone", at, what);
                }
                Stage::Void
            }
            (Step::Revoked, Stage::Holding) => Stage::Taken { at },
            // A revocation may hit an attempt that is about to release.
            (Step::Revoked, stage) => stage,
            (Step::Lost | Step::Releasing, Stage::Holding | Stage::Taken { .. } | Stage::Leaving) => Stage::Leaving,
            (Step::Released, Stage::Leaving) => Stage::Gone,
            _ => return None,
        };
        Some(Contender { stage, ..before })
    }

    fn granted(&mut self, at: Duration, attempt: Attempt, mode: Mode, token: i64) {
        let held = |shared: bool| {
            let holds = move |contender: &Contender| {
                contender.stage == Stage::Holding && (contender.mode == Mode::Shared) == shared
            };
            self.contenders.iter().filter(move |(_, contender)| holds(contender))
        };
        let places: usize = held(false).map(|(_, contender)| contender.mode.places()).sum();
        let too_many = match mode {
            Mode::Shared => places > 0,
            _ => places + mode.places() > self.rules.max_leases || held(true).next().is_some(),
        };
        if too_many {
            let beside = held(false).chain(held(true).filter(|_| mode != Mode::Shared));
            let holders: Vec<_> = beside.map(|(holder, _)| *holder).chain([attempt]).collect();
            self.found.broken("too many holders", at, format!("{holders:?}"));
        }
        if self.rules.growing_tokens {
            let newest = if mode == Mode::Shared { self.newest_written } else { self.newest };
            if token <= newest {
                let what = format!("{attempt:?} has {token}, not above {newest}");
                self.found.broken("a token that does not grow", at, what);
            }
            self.newest = self.newest.max(token);
            if mode != Mode::Shared {
                self.newest_written = self.newest_written.max(token);
            }
        }
    }

    fn waiting(&self) -> impl Iterator<Item = (Attempt, Mode)> {
        let waits = |contender: &Contender| contender.stage == Stage::Waiting;
        self.contenders.iter().filter(move |(_, contender)| waits(contender)).map(|(who, c)| (*who, c.mode))
    }

    /// Returns whether enough leases are free for any waiter, even for the largest request.
    fn is_room(&self) -> bool {
        let Some(most) = self.waiting().map(|(_, mode)| mode.places()).max() else { return false };
        let busy = || self.contenders.values().filter(|contender| contender.is_busy());
        let readers = busy().filter(|contender| contender.mode == Mode::Shared).count();
        let places: usize = busy().map(|contender| contender.mode.places()).sum();
        if readers > 0 {
            // Readers may join them, if no writer waits.
            return places == readers && self.waiting().all(|(_, mode)| mode == Mode::Shared);
        }
        places + most <= self.rules.max_leases
    }

    fn look_at_free_places(&mut self, until: Duration) {
        let Some(from) = self.free_from else { return };
        if self.history.faults.calm(from, until) > self.rules.patience {
            let waiting: Vec<_> = self.waiting().map(|(attempt, _)| attempt).collect();
            self.found.broken_from("a free place beside a waiter", from, until, format!("{waiting:?}"));
            self.free_from = Some(until);
        }
    }

    fn look_at_taken_places(&mut self, now: Duration) {
        let Some(prompt) = self.rules.prompt else { return };
        for (attempt, contender) in &mut self.contenders {
            match contender.stage {
                Stage::Taken { at } if now > at + prompt => {
                    self.found.broken_from("a loss without notice", at, now, format!("{attempt:?}"));
                    contender.stage = Stage::Leaving;
                }
                _ => {}
            }
        }
    }
}

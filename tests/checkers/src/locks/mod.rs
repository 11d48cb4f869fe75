//! The steps of a lock, and the check for violations.
//!
//! A [`History`] is a list of steps with their times, from a simulation or from real processes. [`History::check`]
//! finds violations: too many holders, readers beside a writer, tokens that do not grow, a grant out of order, a free
//! lease beside a waiter, a node left at the end.
//!
//! A holder holds from its grant until it begins to release or is notified of its loss. If the *server* ended a session
//! or a node, the holder cannot be notified in time; such an end is a step of its own, [`Step::Revoked`]: exclusion
//! counts the holder until then, and its loss must be notified within [`Rules::prompt`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// The id of one attempt of one contender, from its start to its end. Never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(pub u64);

/// The kind of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// A mutex, a lease, a write lock.
    Exclusive,
    /// A read lock.
    Shared,
    /// This number of leases of a semaphore, taken at once: all or none.
    Leases(usize),
}

impl Mode {
    /// Returns the number of leases that it takes.
    const fn places(self) -> usize {
        match self {
            Self::Leases(leases) => leases,
            Self::Exclusive | Self::Shared => 1,
        }
    }
}

/// One step of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// It began to wait.
    Asked(Mode),
    /// It stopped waiting without a grant: timeout, an error, a dropped future.
    GaveUp,
    /// It has the lock, with this fencing token.
    Granted(i64),
    /// It wrote and from now on reads only, with this fencing token: the same as before.
    Downgraded(i64),
    /// The server took its node away: session killed, node deleted, session swapped. For a waiter, a following grant
    /// was on its way then: it holds nothing, and must be notified of its loss.
    Revoked,
    /// Like [`Revoked`](Self::Revoked), for a waiter whose node the server took away at this earlier time. A grant may
    /// follow only if its listing was sent before: see [`Rules::on_its_way`].
    RevokedSince(Duration),
    /// It was notified of its loss, or saw it when it checked.
    Lost,
    /// It began to release: from now on it does not rely on the lock.
    Releasing,
    /// The release was answered, or handed to the background.
    Released,
}

/// A step with its time and its attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The time since the history's beginning.
    pub at: Duration,
    /// The attempt.
    pub attempt: Attempt,
    /// The step.
    pub step: Step,
}

/// The rules that a history must obey.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// The number of exclusive holders allowed at once: 1 for a mutex, n for a semaphore.
    pub max_leases: usize,
    /// True if tokens must grow from grant to grant, which is also first come, first served: a writer's above all
    /// others, a reader's above all writers'.
    pub growing_tokens: bool,
    /// The limit of the time from [`Step::Revoked`] to the notification of the loss. `None`: not checked.
    pub prompt: Option<Duration>,
    /// The limit of the time for which a grant may be on its way after the server took the node away, outside of
    /// [slow](History::slow) times: the time of a listing that was sent just before. `None`: not checked.
    pub on_its_way: Option<Duration>,
    /// The limit of a wait beside a free lease outside of faults, without any grant.
    pub patience: Duration,
    /// True if no holder may lose its lock outside of faults.
    pub kept_in_calm: bool,
}

impl Rules {
    /// Returns the rules of a mutex.
    #[must_use]
    pub const fn mutex(patience: Duration) -> Self {
        Self { max_leases: 1, growing_tokens: true, prompt: None, on_its_way: None, patience, kept_in_calm: false }
    }

    /// Returns the rules of a read-write lock: shared readers, exclusive writers, no reader past an earlier writer.
    #[must_use]
    pub const fn read_write(patience: Duration) -> Self {
        Self::mutex(patience)
    }

    /// Returns the rules of a semaphore with this many leases. Its tokens only identify the leases; with a single lease
    /// they grow.
    #[must_use]
    pub const fn semaphore(max_leases: usize, patience: Duration) -> Self {
        Self { max_leases, ..Self::mutex(patience) }.with_growing_tokens(max_leases == 1)
    }

    /// Adds that no holder may lose its lock outside of faults. Not for processes that may be slow.
    #[must_use]
    pub const fn no_loss_in_calm(mut self) -> Self {
        self.kept_in_calm = true;
        self
    }

    const fn with_growing_tokens(mut self, growing_tokens: bool) -> Self {
        self.growing_tokens = growing_tokens;
        self
    }

    /// Adds that no grant may come later than this after the end of its node.
    #[must_use]
    pub const fn on_its_way(mut self, within: Duration) -> Self {
        self.on_its_way = Some(within);
        self
    }

    /// Adds that a revoked holder must be notified of its loss within this time.
    #[must_use]
    pub const fn prompt(mut self, within: Duration) -> Self {
        self.prompt = Some(within);
        self
    }
}

/// A violation of the rules.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// More holders at once than allowed, or a reader beside a writer.
    TooManyHolders {
        /// The time of the last grant among them.
        at: Duration,
        /// The holders.
        holders: Vec<Attempt>,
    },
    /// A grant with a token not above those before it.
    TokenDoesNotGrow {
        /// The time.
        at: Duration,
        /// The attempt.
        attempt: Attempt,
        /// Its token.
        token: i64,
        /// The largest token before.
        newest: i64,
    },
    /// A downgrade with another token than the write lock's.
    TokenChanged {
        /// The time.
        at: Duration,
        /// The attempt.
        attempt: Attempt,
        /// Its new token.
        token: i64,
    },
    /// A waiter waited beside a free lease for too long.
    FreePlace {
        /// The time from which a lease was free beside a waiter.
        from: Duration,
        /// The time until which it was.
        until: Duration,
        /// The waiters.
        waiting: Vec<Attempt>,
    },
    /// A holder that lost its lock outside of faults.
    LostInCalm {
        /// The time.
        at: Duration,
        /// The attempt.
        attempt: Attempt,
    },
    /// A revoked holder was not notified in time.
    NotTold {
        /// The time of the revocation.
        at: Duration,
        /// The attempt.
        attempt: Attempt,
    },
    /// A grant on a node that the server had taken away before the listing was sent.
    GrantedOnARevokedNode {
        /// The time.
        at: Duration,
        /// The attempt.
        attempt: Attempt,
        /// The time of the revocation.
        since: Duration,
    },
    /// A step that cannot follow the ones before it.
    OutOfOrder {
        /// The time.
        at: Duration,
        /// The attempt.
        attempt: Attempt,
        /// The step.
        step: Step,
    },
    /// A node in ZooKeeper or a state in a client was left at the end.
    LeftBehind(String),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyHolders { at, holders } => write!(f, "{at:?}: too many holders: {holders:?}"),
            Self::TokenDoesNotGrow { at, attempt, token, newest } => {
                write!(f, "{at:?}: {attempt:?} has token {token}, not above {newest}")
            }
            Self::TokenChanged { at, attempt, token } => {
                write!(f, "{at:?}: {attempt:?} reads with token {token}, which it did not write with")
            }
            Self::FreePlace { from, until, waiting } => {
                write!(f, "{from:?} to {until:?}: a place is free while {waiting:?} wait")
            }
            Self::LostInCalm { at, attempt } => {
                write!(f, "{at:?}: {attempt:?} loses its place although nothing is wrong")
            }
            Self::NotTold { at, attempt } => write!(f, "{at:?}: {attempt:?} is not told of its loss in time"),
            Self::GrantedOnARevokedNode { at, attempt, since } => {
                write!(f, "{at:?}: {attempt:?} is granted the lock on a node that is gone since {since:?}")
            }
            Self::OutOfOrder { at, attempt, step } => write!(f, "{at:?}: {step:?} of {attempt:?} is out of order"),
            Self::LeftBehind(what) => write!(f, "left behind: {what}"),
        }
    }
}

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

/// The steps of all attempts on one lock, in the order of time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    entries: Vec<Entry>,
    faults: Vec<(Duration, Duration)>,
    slow: Vec<(Duration, Duration)>,
    left_behind: Vec<String>,
}

impl History {
    /// Creates an empty history.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a step; times must not decrease.
    pub fn record(&mut self, at: Duration, attempt: Attempt, step: Step) {
        self.entries.push(Entry { at, attempt, step });
    }

    /// Records a time in which leases may stay free: a fault, and the recovery from it.
    pub fn fault(&mut self, from: Duration, until: Duration) {
        self.faults.push((from, until));
    }

    /// Records a time in which messages may be delayed: a fault of the network or a server, not of a session or a node.
    pub fn slow(&mut self, from: Duration, until: Duration) {
        self.slow.push((from, until));
    }

    /// Records something that was left at the end.
    pub fn left_behind(&mut self, what: impl Into<String>) {
        self.left_behind.push(what.into());
    }

    /// Returns the steps.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the number of grants.
    #[must_use]
    pub fn grants(&self) -> usize {
        self.entries.iter().filter(|entry| matches!(entry.step, Step::Granted(_))).count()
    }

    /// Returns all violations, in the order of time.
    #[must_use]
    pub fn check(&self, rules: &Rules) -> Vec<Violation> {
        let mut checker = Checker {
            rules,
            history: self,
            contenders: BTreeMap::new(),
            gone: BTreeSet::new(),
            newest: i64::MIN,
            newest_written: i64::MIN,
            free_from: None,
            found: Vec::new(),
        };
        for entry in &self.entries {
            checker.look_at_free_places(entry.at);
            checker.look_at_taken_places(entry.at);
            checker.step(*entry);
            if matches!(entry.step, Step::Granted(_)) {
                checker.free_from = None;
            }
            checker.note_free_places(entry.at);
        }
        if let Some(end) = self.entries.last().map(|entry| entry.at) {
            checker.look_at_taken_places(end + Duration::from_nanos(1));
        }
        checker.found.extend(self.left_behind.iter().cloned().map(Violation::LeftBehind));
        checker.found
    }
}

/// Returns the longest stretch of a time without these faults.
pub(crate) fn calm_stretch(faults: &[(Duration, Duration)], from: Duration, until: Duration) -> Duration {
    let mut faults: Vec<_> = faults.iter().filter(|(start, end)| *start < until && *end > from).collect();
    faults.sort();
    let mut longest = Duration::ZERO;
    let mut calm_from = from;
    for (start, end) in faults {
        longest = longest.max(start.saturating_sub(calm_from));
        calm_from = calm_from.max(*end);
    }
    longest.max(until.saturating_sub(calm_from))
}

struct Checker<'a> {
    rules: &'a Rules,
    history: &'a History,
    /// The attempts that wait or hold, and no others: each step visits all of them.
    contenders: BTreeMap<Attempt, Contender>,
    gone: BTreeSet<Attempt>,
    newest: i64,
    /// The newest token of a holder that excludes all others.
    newest_written: i64,
    /// The time from which a lease is free beside a waiter.
    free_from: Option<Duration>,
    found: Vec<Violation>,
}

impl Checker<'_> {
    fn step(&mut self, Entry { at, attempt, step }: Entry) {
        let before = self.contenders.get(&attempt).copied();
        let faulty = |(from, until): &(Duration, Duration)| *from <= at && at <= *until;
        if (step, self.rules.kept_in_calm) == (Step::Lost, true)
            && before.is_some_and(|before| before.stage == Stage::Holding)
            && !self.history.faults.iter().any(faulty)
        {
            self.found.push(Violation::LostInCalm { at, attempt });
        }
        let is_gone = self.gone.contains(&attempt);
        let after = match (step, before) {
            // A revocation may hit a holder that has just released.
            (Step::Revoked, None) if is_gone => return,
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
            None => self.found.push(Violation::OutOfOrder { at, attempt, step }),
        }
    }

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
                    self.found.push(Violation::TokenChanged { at, attempt, token });
                }
                return Some(Contender { mode: Mode::Shared, ..before });
            }
            (Step::Revoked, Stage::Waiting) => Stage::Void,
            (Step::RevokedSince(since), Stage::Waiting) => {
                let late = |most| calm_stretch(&self.history.slow, since, at) > most;
                if self.rules.on_its_way.is_some_and(late) {
                    self.found.push(Violation::GrantedOnARevokedNode { at, attempt, since });
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
            let holders = beside.map(|(holder, _)| *holder).chain([attempt]).collect();
            self.found.push(Violation::TooManyHolders { at, holders });
        }
        if self.rules.growing_tokens {
            let newest = if mode == Mode::Shared { self.newest_written } else { self.newest };
            if token <= newest {
                self.found.push(Violation::TokenDoesNotGrow { at, attempt, token, newest });
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

    fn note_free_places(&mut self, at: Duration) {
        self.free_from = if self.is_room() { self.free_from.or(Some(at)) } else { None };
    }

    fn look_at_free_places(&mut self, until: Duration) {
        let Some(from) = self.free_from else { return };
        if calm_stretch(&self.history.faults, from, until) > self.rules.patience {
            let waiting = self.waiting().map(|(attempt, _)| attempt).collect();
            self.found.push(Violation::FreePlace { from, until, waiting });
            self.free_from = Some(until);
        }
    }

    fn look_at_taken_places(&mut self, now: Duration) {
        let Some(prompt) = self.rules.prompt else { return };
        let mut late = Vec::new();
        for (attempt, contender) in &mut self.contenders {
            match contender.stage {
                Stage::Taken { at } if now > at + prompt => {
                    late.push(Violation::NotTold { at, attempt: *attempt });
                    contender.stage = Stage::Leaving;
                }
                _ => {}
            }
        }
        self.found.append(&mut late);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Step::{Asked, GaveUp, Granted, Lost, Released, Releasing, Revoked};

    const ASKED: Step = Asked(Mode::Exclusive);
    const READ: Step = Asked(Mode::Shared);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn history(steps: &[(u64, u64, Step)]) -> History {
        let mut history = History::new();
        for &(at, attempt, step) in steps {
            history.record(seconds(at), Attempt(attempt), step);
        }
        history
    }

    fn mutex() -> Rules {
        Rules::mutex(seconds(5))
    }

    #[test]
    fn a_proper_history_is_accepted() {
        let proper = history(&[
            (0, 1, ASKED),
            (0, 2, ASKED),
            (1, 1, Granted(10)),
            (2, 3, ASKED),
            (3, 1, Releasing),
            (4, 1, Released),
            (5, 2, Granted(11)),
            (6, 3, GaveUp),
            (7, 2, Lost),
            (8, 2, Releasing),
            (8, 2, Released),
        ]);
        assert_eq!(proper.check(&mutex()), []);
        assert_eq!(proper.grants(), 2);
    }

    #[test]
    fn two_holders_are_found() {
        let two = history(&[(0, 1, ASKED), (0, 2, ASKED), (1, 1, Granted(1)), (2, 2, Granted(2))]);
        let holders = vec![Attempt(1), Attempt(2)];
        assert_eq!(two.check(&mutex()), [Violation::TooManyHolders { at: seconds(2), holders }]);
        assert_eq!(two.check(&Rules::semaphore(2, seconds(5))), []);
    }

    #[test]
    fn a_loss_that_is_told_after_the_next_grant_is_found() {
        let late = history(&[(0, 1, ASKED), (0, 2, ASKED), (1, 1, Granted(1)), (5, 2, Granted(2)), (6, 1, Lost)]);
        assert!(matches!(late.check(&mutex())[..], [Violation::TooManyHolders { .. }]));
        let in_time = history(&[(0, 1, ASKED), (0, 2, ASKED), (1, 1, Granted(1)), (5, 1, Lost), (5, 2, Granted(2))]);
        assert_eq!(in_time.check(&mutex()), []);
    }

    #[test]
    fn more_leases_at_once_than_there_are_are_found() {
        let three = |wanted: usize| {
            history(&[
                (0, 1, Asked(Mode::Leases(2))),
                (0, 2, Asked(Mode::Leases(wanted))),
                (1, 1, Granted(2)),
                (2, 2, Granted(3)),
            ])
        };
        let rules = Rules::semaphore(3, seconds(5));
        assert_eq!(three(1).check(&rules), []);
        assert!(matches!(three(2).check(&rules)[..], [Violation::TooManyHolders { .. }]));
        assert!(matches!(three(3).check(&rules)[..], [Violation::TooManyHolders { .. }]));
    }

    #[test]
    fn only_a_request_for_more_than_is_free_waits() {
        let beside = |wanted: Mode| {
            history(&[
                (0, 1, ASKED),
                (0, 2, Asked(Mode::Leases(2))),
                (1, 1, Granted(1)),
                (1, 2, Granted(2)),
                (2, 3, Asked(wanted)),
                (3, 2, Releasing),
                (3, 2, Released),
                (20, 1, Releasing),
            ])
        };
        let rules = Rules::semaphore(3, seconds(5));
        assert_eq!(beside(Mode::Leases(3)).check(&rules), []);
        for wanted in [Mode::Leases(2), Mode::Exclusive] {
            let waiting = vec![Attempt(3)];
            let free = Violation::FreePlace { from: seconds(3), until: seconds(20), waiting };
            assert_eq!(beside(wanted).check(&rules), [free]);
        }
    }

    #[test]
    fn reader_that_waits_beside_readers_only_is_found() {
        let waits = |other: Step| {
            history(&[
                (0, 1, READ),
                (1, 1, Granted(1)),
                (2, 2, other),
                (3, 3, READ),
                (20, 1, Releasing),
                (20, 1, Released),
                (21, 2, GaveUp),
                (22, 3, GaveUp),
            ])
        };
        let rules = Rules::read_write(seconds(5));
        assert_eq!(waits(ASKED).check(&rules), []);
        assert!(matches!(waits(READ).check(&rules)[..], [Violation::FreePlace { .. }, ..]));
    }

    #[test]
    fn a_downgrade_keeps_writers_out_and_its_token() {
        let downgrade = |token: i64, next: Step, its_token: i64| {
            history(&[
                (0, 1, ASKED),
                (0, 2, next),
                (1, 1, Granted(5)),
                (2, 1, Step::Downgraded(token)),
                (3, 2, Granted(its_token)),
            ])
        };
        let rules = Rules::read_write(seconds(5));
        assert_eq!(downgrade(5, READ, 6).check(&rules), []);
        // A writer is granted the lock while a downgraded reader holds it.
        let writer = downgrade(5, ASKED, 6).check(&rules);
        assert_eq!(writer, [Violation::TooManyHolders { at: seconds(3), holders: vec![Attempt(1), Attempt(2)] }]);
        let fresh = downgrade(7, READ, 8).check(&rules);
        assert_eq!(fresh, [Violation::TokenChanged { at: seconds(2), attempt: Attempt(1), token: 7 }]);
        let never_wrote = history(&[(0, 1, READ), (1, 1, Granted(1)), (2, 1, Step::Downgraded(1))]);
        assert!(matches!(never_wrote.check(&rules)[..], [Violation::OutOfOrder { .. }]));
    }

    #[test]
    fn reader_that_passes_a_queued_writer_is_found() {
        // Behind a downgrade: the reader came after the writer.
        let passed = |reader: i64, writer: i64| {
            history(&[
                (0, 1, ASKED),
                (1, 1, Granted(1)),
                (2, 2, ASKED),
                (3, 3, READ),
                (4, 1, Step::Downgraded(1)),
                (5, 3, Granted(reader)),
                (6, 1, Releasing),
                (6, 1, Released),
                (7, 3, Releasing),
                (7, 3, Released),
                (8, 2, Granted(writer)),
            ])
        };
        let rules = Rules::read_write(seconds(50));
        assert_eq!(passed(2, 3).check(&rules), []);
        let found = passed(3, 2).check(&rules);
        assert_eq!(found, [Violation::TokenDoesNotGrow { at: seconds(8), attempt: Attempt(2), token: 2, newest: 3 }]);
        let late_reader = history(&[
            (0, 1, ASKED),
            (0, 2, READ),
            (1, 1, Granted(2)),
            (2, 1, Releasing),
            (2, 1, Released),
            (3, 2, Granted(1)),
        ]);
        assert!(matches!(late_reader.check(&rules)[..], [Violation::TokenDoesNotGrow { .. }]));
    }

    #[test]
    fn a_reader_beside_a_writer_is_found() {
        let readers = history(&[(0, 1, READ), (0, 2, READ), (1, 1, Granted(1)), (1, 2, Granted(2))]);
        assert_eq!(readers.check(&mutex()), []);
        let reader = history(&[(0, 1, ASKED), (0, 2, READ), (1, 1, Granted(1)), (2, 2, Granted(2))]);
        assert!(matches!(reader.check(&mutex())[..], [Violation::TooManyHolders { .. }]));
        let writer = history(&[(0, 1, READ), (0, 2, ASKED), (1, 1, Granted(1)), (2, 2, Granted(2))]);
        assert!(matches!(writer.check(&mutex())[..], [Violation::TooManyHolders { .. }]));
    }

    #[test]
    fn tokens_that_do_not_grow_are_found() {
        let shrinking = history(&[
            (0, 1, ASKED),
            (1, 1, Granted(5)),
            (2, 1, Releasing),
            (2, 1, Released),
            (2, 2, ASKED),
            (3, 2, Granted(5)),
        ]);
        let found = [Violation::TokenDoesNotGrow { at: seconds(3), attempt: Attempt(2), token: 5, newest: 5 }];
        assert_eq!(shrinking.check(&mutex()), found);
    }

    #[test]
    fn a_waiter_beside_a_free_place_is_found_but_not_in_a_fault() {
        let mut idle = history(&[
            (0, 1, ASKED),
            (1, 1, Granted(1)),
            (2, 2, ASKED),
            (3, 1, Releasing),
            (3, 1, Released),
            (20, 2, Granted(2)),
        ]);
        let free = Violation::FreePlace { from: seconds(3), until: seconds(20), waiting: vec![Attempt(2)] };
        assert_eq!(idle.check(&mutex()), [free]);
        idle.fault(seconds(4), seconds(16));
        assert_eq!(idle.check(&mutex()), []);
    }

    #[test]
    fn a_queue_that_moves_on_is_served() {
        let served = history(&[
            (0, 1, ASKED),
            (0, 2, ASKED),
            (0, 3, ASKED),
            (4, 1, Granted(1)),
            (5, 1, Lost),
            (8, 2, Granted(2)),
            (9, 2, Lost),
            (12, 3, Granted(3)),
        ]);
        assert_eq!(served.check(&Rules::semaphore(2, seconds(5))), []);
        assert!(matches!(served.check(&Rules::semaphore(2, seconds(3)))[..], [Violation::FreePlace { .. }, ..]));
    }

    #[test]
    fn a_free_lease_beside_a_waiter_is_found() {
        let idle = history(&[(0, 1, ASKED), (1, 1, Granted(1)), (2, 2, ASKED), (30, 2, GaveUp)]);
        assert_eq!(idle.check(&mutex()), []);
        assert!(matches!(idle.check(&Rules::semaphore(2, seconds(5)))[..], [Violation::FreePlace { .. }]));
    }

    #[test]
    fn a_holder_that_the_server_forgot_may_overlap_but_must_be_told() {
        let told = history(&[
            (0, 1, ASKED),
            (0, 2, ASKED),
            (1, 1, Granted(1)),
            (2, 1, Revoked),
            (3, 2, Granted(2)),
            (4, 1, Lost),
        ]);
        assert_eq!(told.check(&mutex().prompt(seconds(3))), []);
        assert_eq!(
            told.check(&mutex().prompt(seconds(1))),
            [Violation::NotTold { at: seconds(2), attempt: Attempt(1) }]
        );
    }

    #[test]
    fn a_grant_that_was_on_its_way_when_its_node_was_taken_holds_nothing() {
        let steps = [
            (0, 1, ASKED),
            (0, 2, ASKED),
            (2, 2, Granted(9)),
            (3, 1, Revoked),
            (3, 1, Granted(8)),
            (4, 1, Lost),
            (5, 2, Lost),
        ];
        assert_eq!(history(&steps).check(&mutex().prompt(seconds(1))), []);
        let late = [&steps[..5], &[(5, 1, Lost)]].concat();
        let found = [Violation::NotTold { at: seconds(3), attempt: Attempt(1) }];
        assert_eq!(history(&late).check(&mutex().prompt(seconds(1))), found);
    }

    #[test]
    fn a_grant_behind_a_listing_that_was_sent_when_its_node_was_gone_is_found() {
        let steps = |at| {
            let revoked = Step::RevokedSince(seconds(3));
            history(&[(0, 1, ASKED), (at, 1, revoked), (at, 1, Granted(8)), (at, 1, Lost)])
        };
        let rules = mutex().on_its_way(seconds(1));
        assert_eq!(steps(4).check(&rules), []);
        let found = [Violation::GrantedOnARevokedNode { at: seconds(5), attempt: Attempt(1), since: seconds(3) }];
        assert_eq!(steps(5).check(&rules), found);
        assert_eq!(steps(5).check(&mutex()), []);
        let mut held_up = steps(5);
        held_up.fault(seconds(3), seconds(5));
        assert_eq!(held_up.check(&rules), found);
        held_up.slow(seconds(3), seconds(5));
        assert_eq!(held_up.check(&rules), []);
    }

    #[test]
    fn a_loss_without_a_fault_is_found() {
        let mut lost = history(&[(0, 1, ASKED), (1, 1, Granted(1)), (9, 1, Lost)]);
        assert_eq!(lost.check(&mutex()), []);
        let found = [Violation::LostInCalm { at: seconds(9), attempt: Attempt(1) }];
        assert_eq!(lost.check(&mutex().no_loss_in_calm()), found);
        lost.fault(seconds(5), seconds(9));
        assert_eq!(lost.check(&mutex().no_loss_in_calm()), []);
    }

    #[test]
    fn steps_out_of_order_are_found() {
        for steps in [
            vec![(0, 1, Granted(1))],
            vec![(0, 1, ASKED), (1, 1, ASKED)],
            vec![(0, 1, ASKED), (1, 1, Released)],
            vec![(0, 1, ASKED), (1, 1, GaveUp), (2, 1, Granted(1))],
        ] {
            assert!(matches!(history(&steps).check(&mutex())[..], [Violation::OutOfOrder { .. }]), "{steps:?}");
        }
    }

    #[test]
    fn what_is_left_behind_is_found() {
        let mut history = History::new();
        history.left_behind("/lock/_c_x-lock-0000000001");
        assert!(matches!(&history.check(&mutex())[..], [Violation::LeftBehind(node)] if node.contains("lock-")));
    }
}

//! What several processes have reported, in one order.

use std::time::Duration;

use curator_checkers::locks::{Attempt, Locks, Mode, Rules, Step};
use rustix::time::{ClockId, clock_gettime};

use crate::peer::{Language, Thread};

/// How long a place may stay free on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// The clock that Java's `System.nanoTime` and Python's `time.monotonic_ns` read on Linux.
pub(crate) struct Clock;

impl Clock {
    pub(crate) fn now() -> Duration {
        let now = clock_gettime(ClockId::Monotonic);
        Duration::new(now.tv_sec.try_into().unwrap(), now.tv_nsec.try_into().unwrap())
    }
}

/// What one thread has reported.
pub(crate) struct Report {
    pub(crate) language: Language,
    rounds: Vec<Vec<(Duration, Step)>>,
}

impl Report {
    /// A thread of which nothing was heard yet.
    pub(crate) const fn new(language: Language) -> Self {
        Self { language, rounds: Vec::new() }
    }

    /// Hears a thread that competes, until it has done so or its process is killed.
    pub(crate) async fn of(thread: &mut Thread) -> Self {
        let mut report = Self::new(thread.language());
        report.hear(thread, usize::MAX).await;
        report
    }

    /// Hears a thread that competes until it has been granted so much, and holds it.
    pub(crate) async fn until(thread: &mut Thread, grants: usize) -> Self {
        let mut report = Self::new(thread.language());
        report.hear(thread, grants).await;
        report
    }

    pub(crate) async fn hear(&mut self, thread: &mut Thread, grants: usize) {
        while let Some(step) = self.hear_step(thread).await {
            if self.rounds.len() == grants && matches!(step, Step::Granted(_)) {
                break;
            }
        }
    }

    /// Hears the next step of a thread that competes; `None` if it has done so or its process is killed.
    pub(crate) async fn hear_step(&mut self, thread: &mut Thread) -> Option<Step> {
        let rounds = &mut self.rounds;
        let answer = thread.answer().await;
        let words: Vec<_> = answer.iter().flat_map(|answer| answer.split(' ')).collect();
        let step = match words[..] {
            ["asked", _, kind] => {
                rounds.push(Vec::new());
                Step::Asked(mode(kind))
            }
            ["granted", _, token] => Step::Granted(token.parse().unwrap()),
            ["downgraded", _, token] => Step::Downgraded(token.parse().unwrap()),
            ["releasing", _] => Step::Releasing,
            ["released", _] => Step::Released,
            ["refused", _] => Step::GaveUp,
            ["done"] => return None,
            // Killed: what it had it has not any more.
            [] => {
                if let Some(steps) = rounds.last_mut() {
                    match steps.last() {
                        Some((_, Step::Asked(_))) => steps.push((Clock::now(), Step::GaveUp)),
                        Some((_, Step::Granted(_) | Step::Downgraded(_))) => steps.push((Clock::now(), Step::Lost)),
                        _ => {}
                    }
                }
                return None;
            }
            _ => panic!("{words:?}"),
        };
        let at = Duration::from_nanos(words[1].parse().unwrap());
        rounds.last_mut().unwrap().push((at, step));
        Some(step)
    }

    pub(crate) fn rounds(&self) -> &[Vec<(Duration, Step)>] {
        &self.rounds
    }

    /// When it was granted what it asked for first.
    pub(crate) fn first_grant(&self) -> Duration {
        self.grants().next().unwrap()
    }

    pub(crate) fn grants(&self) -> impl Iterator<Item = Duration> {
        self.rounds.iter().flatten().filter(|(_, step)| matches!(step, Step::Granted(_))).map(|(at, _)| *at)
    }
}

/// What was reported, in the order of time.
pub(crate) fn history(reports: &[Report]) -> Locks {
    let rounds = reports.iter().flat_map(|report| &report.rounds).zip(0..);
    let mut steps: Vec<_> = rounds
        .flat_map(|(steps, attempt)| steps.iter().map(move |(at, step)| (*at, Attempt(attempt), *step)))
        .collect();
    steps.sort_by_key(|(at, ..)| *at);
    let mut history = Locks::new();
    for (at, attempt, step) in steps {
        history.record(at, (attempt, step));
    }
    history
}

/// Nothing happened that must not, and every thread had its turns.
pub(crate) fn check(what: &str, reports: &[Report], rules: &Rules) {
    let history = history(reports);
    let found = history.check(rules);
    assert!(found.is_empty(), "{what}: {} violations, the first {:?}", found.len(), &found[..found.len().min(3)]);
    let grants = |language| {
        reports.iter().filter(|report| report.language == language).map(|report| report.grants().count()).sum::<usize>()
    };
    let [java, rust, python] = [Language::Java, Language::Rust, Language::Python].map(grants);
    println!("{what}: {} grants ({rust} Rust, {java} Java, {python} Python)", history.grants());
}

fn mode(kind: &str) -> Mode {
    match (kind, kind.split(':').nth(2)) {
        ("read", _) => Mode::Shared,
        (_, Some(leases)) => Mode::Leases(leases.parse().unwrap()),
        _ => Mode::Exclusive,
    }
}

/// The rules of a kind. Java reports no tokens of some, and the tokens of several leases do not grow.
pub(crate) fn rules(kind: &str) -> Rules {
    match kind.split(':').collect::<Vec<_>>()[..] {
        ["mutex" | "kazoo" | "read" | "write" | "downgrade"] => Rules::mutex(PATIENCE),
        ["semaphore", limit, ..] => Rules::semaphore(limit.parse().unwrap(), PATIENCE),
        _ => Rules { growing_tokens: false, ..Rules::mutex(PATIENCE) },
    }
}

//! Events with their times, and the walk of a checker through them.

use std::fmt;
use std::time::Duration;

use crate::violation::{Found, Violation};

/// Events in the order of time, each with the time since the history's start, the times of faults, and what was left
/// behind at the end. Each checker's module has the rules for its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeline<E> {
    pub(crate) events: Vec<(Duration, E)>,
    pub(crate) faults: Spans,
    pub(crate) slow: Spans,
    left_behind: Vec<String>,
}

impl<E> Default for Timeline<E> {
    fn default() -> Self {
        Self { events: Vec::new(), faults: Spans::default(), slow: Spans::default(), left_behind: Vec::new() }
    }
}

impl<E> Timeline<E> {
    /// Creates an empty history.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an event; times must not decrease.
    pub fn record(&mut self, at: Duration, event: E) {
        self.events.push((at, event));
    }

    /// Records the time of a fault, and of the recovery from it. Clients may be late in the meantime. All other time is
    /// calm.
    pub fn fault(&mut self, from: Duration, until: Duration) {
        self.faults.0.push((from, until));
    }

    /// Records a time in which messages may be delayed, and servers be behind: a fault of the network or a server, not
    /// of a session or a node.
    pub fn slow(&mut self, from: Duration, until: Duration) {
        self.slow.0.push((from, until));
    }

    /// Records a node in ZooKeeper or a state in a client that was left at the end.
    pub fn left_behind(&mut self, what: impl Into<String>) {
        self.left_behind.push(what.into());
    }

    /// Returns the time of the last event.
    pub(crate) fn end(&self) -> Duration {
        self.events.last().map(|(at, _)| *at).unwrap_or_default()
    }

    /// Returns the number of such events.
    pub(crate) fn count(&self, such: impl Fn(&E) -> bool) -> usize {
        self.events.iter().filter(|(_, event)| such(event)).count()
    }
}

/// The rules of one kind of history.
pub(crate) trait Checker<'a, E> {
    /// Applies an event. Returns `false` if it cannot follow the ones before it.
    fn apply(&mut self, at: Duration, event: &'a E) -> bool;

    /// Finds the rules that the time up to now has broken, in which nothing has happened.
    fn at_time(&mut self, _now: Duration) {}

    /// Notes the state behind an event, which lasts until the next one.
    fn note_time(&mut self, _at: Duration) {}

    /// Finds the rules that the history as a whole has broken.
    fn end(&mut self) {}

    fn found(&mut self) -> &mut Found;
}

impl<E: fmt::Debug> Timeline<E> {
    /// Returns all violations that a checker finds, then what was left behind.
    pub(crate) fn check_by<'a>(&'a self, mut checker: impl Checker<'a, E>) -> Vec<Violation> {
        for (at, event) in &self.events {
            checker.at_time(*at);
            if !checker.apply(*at, event) {
                checker.found().broken("an event out of order", *at, format!("{event:?}"));
            }
            checker.note_time(*at);
        }
        checker.at_time(self.end() + Duration::from_nanos(1));
        checker.end();
        for what in &self.left_behind {
            checker.found().broken("left behind", self.end(), what.clone());
        }
        std::mem::take(&mut checker.found().0)
    }
}

/// Times, each from a start to an end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Spans(Vec<(Duration, Duration)>);

impl Spans {
    fn over(&self, at: Duration) -> impl Iterator<Item = Duration> {
        self.0.iter().filter(move |(from, until)| (*from..=*until).contains(&at)).map(|(from, _)| *from)
    }

    /// Returns `true` if one of them has this time.
    pub(crate) fn has(&self, at: Duration) -> bool {
        self.over(at).next().is_some()
    }

    /// Returns `true` if one of them has a time between these two.
    pub(crate) fn touches(&self, from: Duration, until: Duration) -> bool {
        self.0.iter().any(|(start, end)| *start <= until && *end >= from)
    }

    /// Returns the time from which a client may see the server that asks it at this time: `behind` before it, or before
    /// the first of these times that has it.
    pub(crate) fn seen_from(&self, at: Duration, behind: Duration) -> Duration {
        self.over(at).min().unwrap_or(at).saturating_sub(behind)
    }

    /// Returns the longest stretch of a time without these times.
    pub(crate) fn calm(&self, from: Duration, until: Duration) -> Duration {
        let mut spans: Vec<_> = self.0.iter().filter(|(start, end)| *start < until && *end > from).collect();
        spans.sort();
        let mut longest = Duration::ZERO;
        let mut calm_from = from;
        for (start, end) in spans {
            longest = longest.max(start.saturating_sub(calm_from));
            calm_from = calm_from.max(*end);
        }
        longest.max(until.saturating_sub(calm_from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_found, seconds};

    /// Numbers that must rise, and no time of a second or more between them.
    #[derive(Default)]
    struct Rising {
        newest: u64,
        since: Duration,
        found: Found,
    }

    impl<'a> Checker<'a, u64> for Rising {
        fn apply(&mut self, _at: Duration, number: &'a u64) -> bool {
            std::mem::replace(&mut self.newest, *number) < *number
        }

        fn at_time(&mut self, now: Duration) {
            if now - self.since > seconds(1) {
                self.found.broken_from("a pause", self.since, now, format!("behind {}", self.newest));
            }
        }

        fn note_time(&mut self, at: Duration) {
            self.since = at;
        }

        fn end(&mut self) {
            self.found.broken("the end", self.since, self.newest.to_string());
        }

        fn found(&mut self) -> &mut Found {
            &mut self.found
        }
    }

    #[test]
    fn a_checker_is_led_through_all_events_and_what_is_left_behind_is_found() {
        let mut history = Timeline::new();
        for (at, number) in [(1, 5), (2, 4), (4, 6)] {
            history.record(seconds(at), number);
        }
        history.left_behind("a watch");
        let found = history.check_by(Rising::default());
        let left = ["4s: the end: 6", "4s: left behind: a watch"];
        assert_found(&found[..2], ["2s: an event out of order: 4", "2s to 4s: a pause: behind 4"]);
        assert_found(&found[2..], left);
    }

    #[test]
    fn times_without_a_fault_are_calm() {
        let spans = Spans(vec![(seconds(5), seconds(7)), (seconds(2), seconds(6))]);
        assert_eq!([1, 2, 7, 8].map(|at| spans.has(seconds(at))), [false, true, true, false]);
        assert!(spans.touches(seconds(7), seconds(9)) && !spans.touches(seconds(8), seconds(9)));
        assert_eq!([1, 6, 8].map(|at| spans.seen_from(seconds(at), seconds(1))), [0, 1, 7].map(seconds));
        for (from, until, calm) in [(0, 9, 2), (0, 3, 2), (3, 6, 0), (6, 12, 5), (8, 9, 1)] {
            assert_eq!(spans.calm(seconds(from), seconds(until)), seconds(calm), "{from} to {until}");
        }
    }
}

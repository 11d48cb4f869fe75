//! The check of the calls of counters.

use std::collections::BTreeMap;
use std::time::Duration;

use super::order::{Order, first_order};
use super::{Call, Counter, Counters, Event, Operation, Outcome, Rules};
use crate::timeline;
use crate::violation::Found;

pub(super) struct Checker<'a> {
    rules: &'a Rules,
    history: &'a Counters,
    /// The number of events so far.
    events: usize,
    calls: BTreeMap<Call, Known>,
    counters: BTreeMap<Counter, Vec<Call>>,
    /// The values that the server had, one after the other.
    values: BTreeMap<Counter, Vec<i64>>,
    found: Found,
}

impl<'a> Checker<'a> {
    pub(super) fn new(rules: &'a Rules, history: &'a Counters) -> Self {
        Self {
            rules,
            history,
            events: 0,
            calls: BTreeMap::new(),
            counters: BTreeMap::new(),
            values: BTreeMap::new(),
            found: Found::default(),
        }
    }

    /// Returns the first event that a server may show to a call that starts at a time.
    fn first_seen(&self, begin: Duration) -> usize {
        let from = self.history.slow.seen_from(begin, self.rules.behind);
        self.history.events.partition_point(|(at, _)| *at < from)
    }

    fn look_at_the_result(&mut self, call: Call, known: &Known) {
        let operation = known.operation;
        let outcome = known.outcome.clone().unwrap_or(Outcome::Unknown);
        if !operation.can_have(&outcome) {
            self.found.broken("a wrong result", known.time(), format!("{call:?}: {operation:?} with {outcome:?}"));
        } else if let (Some(Outcome::Unknown), Some(at)) = (&known.outcome, known.end_time) {
            if !self.history.faults.touches(known.begin_time, at) {
                self.found.broken("an unknown outcome in calm", at, format!("{call:?}"));
            }
        }
    }

    fn look_at_the_counter(&mut self, counter: Counter, calls: &[(Call, &Known)]) {
        look_at_ids(calls, &mut self.found);
        if has_wrong_sum(counter, calls, &mut self.found) {
            return;
        }
        let values = self.values.get(&counter).map(Vec::as_slice).unwrap_or_default();
        match first_order(calls, values) {
            Order::Found => {}
            Order::Missing { call, value } => {
                let what = format!("{call:?} of {counter:?} at {value:?}");
                let at = calls.iter().find(|(its, _)| *its == call).map(|(_, known)| known.time());
                self.found.broken("no order of the calls", at.unwrap_or_default(), what);
            }
            Order::Unknown => self.found.broken("too many orders", self.history.end(), format!("{counter:?}")),
        }
    }
}

impl<'a> timeline::Checker<'a, Event> for Checker<'a> {
    fn apply(&mut self, at: Duration, event: &'a Event) -> bool {
        let index = self.events;
        self.events += 1;
        match event {
            Event::Began(call, counter, operation) => {
                self.counters.entry(*counter).or_default().push(*call);
                self.calls.insert(*call, Known::new(*operation, index, at)).is_none()
            }
            Event::Ended(call, outcome) => {
                let known = self.calls.get_mut(call).filter(|known| known.outcome.is_none());
                known.map(|known| known.ends(outcome.clone(), index, at)).is_some()
            }
            Event::Value(counter, value) => {
                self.values.entry(*counter).or_default().push(*value);
                true
            }
        }
    }

    fn end(&mut self) {
        let mut calls = std::mem::take(&mut self.calls);
        for known in calls.values_mut().filter(|known| known.only_shows()) {
            known.begin = self.first_seen(known.begin_time).min(known.begin);
        }
        for (call, known) in &calls {
            self.look_at_the_result(*call, known);
        }
        for (counter, its) in std::mem::take(&mut self.counters) {
            let its: Vec<_> = its.iter().map(|call| (*call, &calls[call])).collect();
            self.look_at_the_counter(counter, &its);
        }
    }

    fn found(&mut self) -> &mut Found {
        &mut self.found
    }
}

/// One call. Its start and its end are numbers of entries.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) operation: Operation,
    pub(super) outcome: Option<Outcome>,
    pub(super) begin: usize,
    begin_time: Duration,
    pub(super) end: Option<usize>,
    end_time: Option<Duration>,
}

impl Known {
    const fn new(operation: Operation, begin: usize, begin_time: Duration) -> Self {
        Self { operation, outcome: None, begin, begin_time, end: None, end_time: None }
    }

    /// Returns the time of its end, or of its start if it has none.
    fn time(&self) -> Duration {
        self.end_time.unwrap_or(self.begin_time)
    }

    /// Returns `true` if the call has read the value and changed nothing.
    const fn only_shows(&self) -> bool {
        matches!(self.outcome, Some(Outcome::Shows(_) | Outcome::Missing | Outcome::Exists))
    }

    fn ends(&mut self, outcome: Outcome, end: usize, end_time: Duration) {
        (self.outcome, self.end, self.end_time) = (Some(outcome), Some(end), Some(end_time));
    }
}

impl Operation {
    /// Returns `true` if a call with this operation may have this result.
    fn can_have(self, outcome: &Outcome) -> bool {
        match (self, outcome) {
            (Self::Add(delta), Outcome::Changed { pre, post }) => pre.checked_add(delta) == Some(*post),
            (Self::Set(value), Outcome::Changed { post, .. }) => *post == value,
            (Self::CompareAndSet { expected, new }, Outcome::Changed { pre, post }) => (*pre, *post) == (expected, new),
            (Self::Add(delta), Outcome::Shows(value)) => value.checked_add(delta).is_none(),
            (Self::CompareAndSet { expected, .. }, Outcome::Shows(value)) => *value != expected,
            (Self::Get, Outcome::Shows(_))
            | (Self::CompareAndSet { .. }, Outcome::Missing)
            | (Self::Set(_) | Self::Initialize(_), Outcome::Done)
            | (Self::Initialize(_), Outcome::Exists)
            | (Self::Ids { .. }, Outcome::Ids(_))
            | (_, Outcome::Refused | Outcome::Unknown) => true,
            _ => false,
        }
    }
}

fn look_at_ids(calls: &[(Call, &Known)], found: &mut Found) {
    let mut given = BTreeMap::new();
    // The largest id of each call that has ended, with the number of the entry.
    let mut ended: Vec<(usize, u64)> = Vec::new();
    for (call, known) in calls {
        let Some(Outcome::Ids(ids)) = &known.outcome else { continue };
        for id in ids {
            if let Some(earlier) = given.insert(*id, *call) {
                found.broken("an id given twice", known.time(), format!("{call:?} has {id}, as {earlier:?} has"));
            }
        }
        if !matches!(known.operation, Operation::Ids { rising: true }) {
            continue;
        }
        let before = ended.iter().filter(|(end, _)| *end < known.begin).map(|(_, id)| *id).max();
        let fell =
            before.into_iter().chain(ids.iter().copied()).zip(ids.iter().copied().skip(usize::from(before.is_none())));
        for (above, id) in fell.filter(|(above, id)| id <= above) {
            found.broken("an id that fell", known.time(), format!("{call:?} has {id} after {above}"));
        }
        ended.extend(known.end.zip(ids.iter().max().copied()));
    }
}

/// Compares a counter that has additions alone with their sum, if its last call reads it after all others. Returns
/// `true` if they differ.
fn has_wrong_sum(counter: Counter, calls: &[(Call, &Known)], found: &mut Found) -> bool {
    let gets = calls.iter().filter(|(_, known)| known.operation == Operation::Get);
    let Some((_, last)) = gets.max_by_key(|(_, known)| known.begin) else { return false };
    let Some(Outcome::Shows(value)) = last.outcome else { return false };
    let (mut least, mut most) = (0, 0);
    for (_, known) in calls {
        let Operation::Add(delta) = known.operation else {
            if known.operation == Operation::Get { continue } else { return false }
        };
        let delta = i128::from(delta);
        match known.outcome {
            Some(Outcome::Changed { .. }) if known.end < Some(last.begin) => {
                (least, most) = (least + delta, most + delta)
            }
            Some(Outcome::Shows(_) | Outcome::Refused) => {}
            // Also a call that may have changed the value after the last read.
            _ => (least, most) = (least + delta.min(0), most + delta.max(0)),
        }
    }
    let is_right = (least..=most).contains(&i128::from(value));
    if !is_right {
        let what = format!("{counter:?} is {value}, its additions have {least} to {most}");
        found.broken("a wrong sum", last.time(), what);
    }
    !is_right
}

//! The search for an order of calls in which each has its result.

use std::collections::{BinaryHeap, HashSet};

use super::checker::Known;
use super::{Call, Operation, Outcome};

/// The limit of the states that a search visits.
const MOST_STATES: usize = 50_000;

/// The number of known outcomes that outweigh an unknown one.
const COST_OF_UNKNOWN: i64 = 4;
/// The number of events by which an unknown outcome has to be older to cost 1 more.
const AGE: usize = 4;

/// The number of known outcomes that a value of the server outweighs.
const GAIN_OF_VALUE: i64 = 16;

/// The result of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Order {
    Found,
    /// The first call that no order explains, and the value before it.
    Missing {
        call: Call,
        value: Option<i64>,
    },
    /// There are too many orders.
    Unknown,
}

/// A call that may have an effect on the value, or shows it.
struct Step {
    call: Call,
    operation: Operation,
    /// `None` if it is unknown.
    outcome: Option<Outcome>,
    begin: usize,
    /// The end; the call counts before it.
    end: Option<usize>,
}

/// The calls that an order has so far, and the value after them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct State {
    done: Vec<u64>,
    value: Option<i64>,
    /// The number of the server's values that the order has reached.
    reached: usize,
}

impl State {
    fn has(&self, step: usize) -> bool {
        self.done[step / 64] >> (step % 64) & 1 == 1
    }

    fn with(&self, step: usize, value: Option<i64>) -> Self {
        let mut next = Self { done: self.done.clone(), value, reached: self.reached };
        next.done[step / 64] |= 1 << (step % 64);
        next
    }
}

/// Searches an order in which each call has its result. A call that ended is before each call that started later. The
/// values that the server had, one after the other, lead the search. One write may have several calls.
pub(super) fn first_order(calls: &[(Call, &Known)], values: &[i64]) -> Order {
    let mut steps: Vec<_> = calls.iter().filter_map(|(call, known)| Step::of(*call, known)).collect();
    steps.extend(calls.iter().filter_map(|(call, known)| Step::creating(*call, known)));
    steps.sort_by_key(|step| step.begin);
    // Calls with known outcomes lead an order on. Each unknown one that it needs makes others more likely, an old one
    // most: a call that was dropped ends with the write in flight.
    let mut open = BinaryHeap::new();
    open.push((0, State { done: vec![0; steps.len().div_ceil(64)], value: None, reached: 0 }));
    let mut seen = HashSet::new();
    // The call that has to be next, of the order that leads farthest.
    let mut farthest: Option<(usize, Call, Option<i64>)> = None;
    while let Some((score, state)) = open.pop() {
        let must = |step: &(usize, &Step)| step.1.outcome.is_some() && !state.has(step.0);
        let Some((_, first)) = steps.iter().enumerate().filter(must).min_by_key(|(_, step)| step.end) else {
            return Order::Found;
        };
        if farthest.is_none_or(|(end, ..)| Some(end) < first.end) {
            farthest = first.end.map(|end| (end, first.call, state.value));
        }
        if seen.len() > MOST_STATES {
            return Order::Unknown;
        }
        if !seen.insert(state.clone()) {
            continue;
        }
        let next = (0..steps.len()).filter(|step| !state.has(*step));
        let next: Vec<_> = next.take_while(|step| Some(steps[*step].begin) < first.end).collect();
        let shows = next.iter().find(|step| steps[**step].shows(state.value));
        if let Some(step) = shows {
            // It changes nothing, so an order in which it comes later is not better.
            open.push((score + 1, state.with(*step, state.value)));
            continue;
        }
        let newest = next.last().map_or(0, |step| steps[*step].begin);
        for step in next {
            let Some(value) = steps[step].changes(state.value) else { continue };
            let age = i64::try_from((newest - steps[step].begin) / AGE).unwrap_or(i64::MAX);
            let mut gain = if steps[step].outcome.is_some() { 1 } else { -COST_OF_UNKNOWN.saturating_add(age) };
            let mut next = state.with(step, Some(value));
            if values.get(next.reached) == Some(&value) {
                next.reached += 1;
                gain += GAIN_OF_VALUE;
            }
            open.push((score + gain, next));
        }
    }
    farthest.map_or(Order::Found, |(_, call, value)| Order::Missing { call, value })
}

impl Step {
    fn of(call: Call, known: &Known) -> Option<Self> {
        let operation = known.operation;
        let outcome = match known.outcome.clone().unwrap_or(Outcome::Unknown) {
            Outcome::Refused | Outcome::Ids(_) => return None,
            Outcome::Unknown if matches!(operation, Operation::Get | Operation::Ids { .. }) => return None,
            Outcome::Unknown => None,
            outcome => Some(outcome),
        };
        let end = if outcome.is_some() { known.end } else { None };
        Some(Self { call, operation, outcome, begin: known.begin, end })
    }

    /// Returns the step in which an addition creates a missing number as 0, before it adds. It may end then.
    fn creating(call: Call, known: &Known) -> Option<Self> {
        let adds = matches!(known.operation, Operation::Add(_));
        adds.then_some(Self { call, operation: Operation::Initialize(0), outcome: None, begin: known.begin, end: None })
    }

    /// Returns `true` if the call changes nothing, and has its result at this value.
    fn shows(&self, value: Option<i64>) -> bool {
        match self.outcome {
            Some(Outcome::Shows(shown)) => value.unwrap_or(0) == shown,
            Some(Outcome::Missing) => value.is_none(),
            Some(Outcome::Exists) => value.is_some(),
            _ => false,
        }
    }

    /// Returns the value after the call; `None` if it does not have its result at this value, or changes nothing.
    fn changes(&self, value: Option<i64>) -> Option<i64> {
        let new = match self.operation {
            Operation::Get | Operation::Ids { .. } => None,
            Operation::Add(delta) => value.unwrap_or(0).checked_add(delta),
            Operation::Set(new) => Some(new),
            Operation::CompareAndSet { expected, new } => (value == Some(expected)).then_some(new),
            Operation::Initialize(new) => value.is_none().then_some(new),
        };
        match self.outcome {
            None | Some(Outcome::Done) => new,
            Some(Outcome::Changed { pre, post }) if value.unwrap_or(0) == pre => Some(post),
            _ => None,
        }
    }
}

use super::*;
use crate::testing::{assert_found, seconds};

const COUNTER: Counter = Counter(1);

fn changed(pre: i64, post: i64) -> Outcome {
    Outcome::Changed { pre, post }
}

const fn cas(expected: i64, new: i64) -> Operation {
    Operation::CompareAndSet { expected, new }
}

/// Calls that start and end at these seconds. Those without an outcome have no end.
fn counters(calls: impl IntoIterator<Item = (u64, u64, Operation, Option<Outcome>)>) -> Counters {
    let mut events = Vec::new();
    for (number, (begin, end, operation, outcome)) in (1..).zip(calls) {
        events.push((begin, Event::Began(Call(number), COUNTER, operation)));
        events.extend(outcome.map(|outcome| (end, Event::Ended(Call(number), outcome))));
    }
    events.sort_by_key(|(at, _)| *at);
    let mut counters = Counters::new();
    for (at, event) in events {
        counters.record(seconds(at), event);
    }
    counters
}

fn check(calls: impl IntoIterator<Item = (u64, u64, Operation, Option<Outcome>)>) -> Vec<Violation> {
    let mut counters = counters(calls);
    counters.fault(seconds(0), seconds(100));
    counters.check(&Rules::new())
}

/// The violation of a call that no order explains, with the value before it.
fn no_order(at: u64, call: u64, value: Option<i64>) -> [String; 1] {
    [format!("{at}s: no order of the calls: Call({call}) of Counter(1) at {value:?}")]
}

fn add(begin: u64, end: u64, delta: i64, pre: i64) -> (u64, u64, Operation, Option<Outcome>) {
    (begin, end, Operation::Add(delta), Some(changed(pre, pre + delta)))
}

fn get(begin: u64, end: u64, value: i64) -> (u64, u64, Operation, Option<Outcome>) {
    (begin, end, Operation::Get, Some(Outcome::Shows(value)))
}

#[test]
fn proper_calls_have_no_violation() {
    let calls = [
        (1, 2, cas(0, 5), Some(Outcome::Missing)),
        (3, 4, Operation::Initialize(10), Some(Outcome::Done)),
        (5, 6, Operation::Initialize(11), Some(Outcome::Exists)),
        // These are concurrent, and the later one counts first.
        add(7, 9, 1, 13),
        add(7, 9, 3, 10),
        (10, 11, cas(14, 20), Some(changed(14, 20))),
        (12, 13, cas(14, 21), Some(Outcome::Shows(20))),
        (14, 15, Operation::Set(i64::MAX), Some(changed(20, i64::MAX))),
        (16, 17, Operation::Add(1), Some(Outcome::Shows(i64::MAX))),
        (18, 19, Operation::Set(1), Some(Outcome::Done)),
        // This has counted, behind its end.
        (20, 21, Operation::Add(4), Some(Outcome::Unknown)),
        get(22, 23, 1),
        get(24, 25, 5),
        (26, 26, Operation::Add(70), Some(Outcome::Refused)),
        // This has not counted, and the next one has.
        (27, 28, Operation::Add(80), None),
        (29, 30, Operation::Add(100), None),
        get(31, 32, 105),
    ];
    assert_eq!(check(calls), []);
    assert_eq!(counters(calls_of_ids([(1, 2, &[3, 5]), (1, 3, &[4])])).counted(), 2);
}

#[test]
fn an_addition_that_counts_twice_is_found() {
    let twice = [add(1, 2, 1, 0), add(3, 4, 1, 2), get(5, 6, 3)];
    assert_found(&check(twice), ["6s: a wrong sum: Counter(1) is 3, its additions have 2 to 2"]);
    let unknown = [(1, 2, Operation::Add(1), Some(Outcome::Unknown)), get(5, 6, 2)];
    assert_found(&check(unknown), ["6s: a wrong sum: Counter(1) is 2, its additions have 0 to 1"]);
    // Without a last read the order alone shows it.
    assert_found(&check([add(1, 2, 1, 0), add(3, 4, 1, 2)]), no_order(4, 2, Some(1)));
}

#[test]
fn a_lost_addition_is_found() {
    let lost = [add(1, 2, 5, 0), add(3, 4, 1, 5), get(5, 6, 5)];
    assert_found(&check(lost), ["6s: a wrong sum: Counter(1) is 5, its additions have 6 to 6"]);
    // Both start from the same value; a reset hides the sum.
    let calls = [add(1, 3, 1, 0), add(1, 4, 1, 0), (5, 6, Operation::Set(9), Some(Outcome::Done))];
    assert_found(&check(calls), no_order(4, 2, Some(1)));
}

#[test]
fn a_call_that_counts_before_its_beginning_is_found() {
    let calls = [add(1, 2, 2, 0), get(3, 4, 5), (5, 6, Operation::Add(3), Some(changed(2, 5)))];
    assert_found(&check(calls), no_order(4, 2, Some(2)));
    // A read that shows an earlier value than one before it.
    let calls = [add(1, 2, 2, 0), get(3, 4, 2), get(5, 6, 0)];
    assert_found(&check(calls), ["6s: a wrong sum: Counter(1) is 0, its additions have 2 to 2"]);
}

#[test]
fn an_earlier_value_may_be_shown_by_a_server_that_is_behind_alone() {
    let mut counters =
        counters([add(1, 2, 2, 0), add(3, 4, 3, 2), get(6, 7, 2), (8, 9, Operation::Set(0), Some(Outcome::Done))]);
    assert_found(&counters.check(&Rules::new().behind(seconds(1))), no_order(7, 3, Some(5)));
    assert_eq!(counters.check(&Rules::new().behind(seconds(3))), []);
    counters.slow(seconds(3), seconds(6));
    assert_eq!(counters.check(&Rules::new()), []);
}

#[test]
fn a_refused_call_that_counts_is_found() {
    let calls = [(1, 2, Operation::Set(4), Some(Outcome::Refused)), get(3, 4, 4)];
    assert_found(&check(calls), no_order(4, 2, None));
}

#[test]
fn results_that_an_operation_cannot_have_are_found() {
    for (operation, outcome) in [
        (Operation::Add(1), changed(1, 3)),
        (Operation::Add(1), changed(i64::MAX, i64::MIN)),
        (Operation::Add(1), Outcome::Shows(4)),
        (Operation::Set(4), changed(1, 3)),
        (cas(1, 2), changed(3, 2)),
        (cas(1, 2), changed(1, 3)),
        (cas(1, 2), Outcome::Shows(1)),
        (Operation::Get, changed(0, 1)),
        (Operation::Initialize(1), Outcome::Missing),
    ] {
        let found = check([(1, 2, operation, Some(outcome.clone()))]);
        assert_found(&found[..1], [format!("2s: a wrong result: Call(1): {operation:?} with {outcome:?}")]);
    }
}

#[test]
fn an_unknown_outcome_in_calm_is_found() {
    let mut counters = counters([
        (1, 5, Operation::Add(1), Some(Outcome::Unknown)),
        (6, 8, Operation::Add(1), Some(Outcome::Unknown)),
        (7, 9, Operation::Add(1), Some(Outcome::Refused)),
    ]);
    counters.fault(seconds(3), seconds(4));
    assert_found(&counters.check(&Rules::new()), ["8s: an unknown outcome in calm: Call(2)"]);
}

#[test]
fn calls_with_too_many_orders_are_not_taken_for_right() {
    // Sixty additions with unknown outcomes, and a value that none of the sums is.
    let unknown = (0..60).map(|number| (1, 1, Operation::Add(2 << (number % 40)), None));
    let impossible = [get(2, 3, 1), (4, 5, Operation::Set(1), Some(Outcome::Done))];
    assert_found(&check(unknown.chain(impossible)), ["5s: too many orders: Counter(1)"]);
}

#[test]
fn values_of_the_server_lead_the_search() {
    // Of sixty additions with unknown outcomes each second one counts.
    let deltas: Vec<_> = (1..=60_i64).map(|number| number * number * 7919 % 100_003).collect();
    let mut values = Vec::new();
    for delta in deltas.iter().step_by(2) {
        values.push(values.last().unwrap_or(&0) + delta);
    }
    let sum = *values.last().unwrap();
    let last = [get(2, 3, sum), (4, 5, Operation::Set(1), Some(Outcome::Done))];
    let calls = || deltas.iter().map(|delta| (1, 1, Operation::Add(*delta), None)).chain(last.clone());
    assert_found(&check(calls()), ["5s: too many orders: Counter(1)"]);
    let mut counters = counters(calls());
    for value in values {
        counters.record(seconds(5), Event::Value(COUNTER, value));
    }
    assert_eq!(counters.check(&Rules::new()), []);
}

#[test]
fn an_addition_may_create_the_number_as_0() {
    let initialize = (2, 3, Operation::Initialize(5), Some(Outcome::Exists));
    assert_eq!(check([(1, 1, Operation::Add(2), None), initialize.clone(), get(4, 5, 0)]), []);
    assert_found(&check([initialize, get(4, 5, 0)]), no_order(3, 1, None));
}

fn calls_of_ids<const N: usize>(calls: [(u64, u64, &[u64]); N]) -> Vec<(u64, u64, Operation, Option<Outcome>)> {
    let ids = Operation::Ids { rising: true };
    calls.into_iter().map(|(begin, end, taken)| (begin, end, ids, Some(Outcome::Ids(taken.to_vec())))).collect()
}

#[test]
fn ids_that_are_given_out_twice_or_fall_are_found() {
    assert_eq!(check(calls_of_ids([(1, 2, &[1, 2]), (3, 9, &[8]), (3, 4, &[5, 6]), (5, 6, &[7])])), []);
    let same = ["3s: an id given twice: Call(2) has 4, as Call(1) has"];
    assert_found(&check(calls_of_ids([(1, 3, &[4]), (2, 3, &[4])])), same);
    let fell = ["4s: an id that fell: Call(2) has 3 after 4"];
    assert_found(&check(calls_of_ids([(1, 2, &[4]), (3, 4, &[3, 5])])), fell);
    let fell = ["2s: an id that fell: Call(1) has 3 after 4"];
    assert_found(&check(calls_of_ids([(1, 2, &[4, 3])])), fell);
    // Ids of blocks are unique, and fall.
    let ids = Operation::Ids { rising: false };
    let calls = [[9], [1]].map(|taken| (1, 1, ids, Some(Outcome::Ids(taken.into()))));
    assert_eq!(check(calls), []);
}

#[test]
fn events_out_of_order_are_found() {
    let mut counters = Counters::new();
    let event = Event::Ended(Call(1), Outcome::Refused);
    counters.record(seconds(1), event.clone());
    assert_found(&counters.check(&Rules::new()), [format!("1s: an event out of order: {event:?}")]);
}

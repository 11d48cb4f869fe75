use curator_test::nodes::Node;

use super::*;
use crate::testing::{assert_found, seconds};

const PATH: &str = "/latch";
const FIRST: Call = Call(1);
const SECOND: Call = Call(2);
const THIRD: Call = Call(3);

fn created(path: &str, czxid: i64, data: &str) -> Event {
    Event::Server(Change::Created { path: path.to_owned(), node: Node { czxid, session: 0, data: data.into() } })
}

fn count(round: u64, name: &str, czxid: i64) -> Event {
    created(&format!("{PATH}/{round}/{name}"), czxid, "")
}

fn begins(data: &str) -> Event {
    Event::Server(Change::DataChanged { path: PATH.to_owned(), data: data.into() })
}

fn counts(call: Call, id: &str) -> Event {
    Event::Counts(call, Some(id.to_owned()))
}

fn check(events: impl IntoIterator<Item = (u64, Event)>) -> Vec<Violation> {
    let mut latches = Latches::new();
    // The first round needs two counts.
    latches.record(seconds(1), Event::SetsCount(Call(100), 2));
    latches.record(seconds(1), created(PATH, 1, "1 2 token"));
    latches.record(seconds(1), Event::SetCount(Call(100), true));
    for (at, event) in events {
        latches.record(seconds(at), event);
    }
    latches.fault(seconds(50), seconds(60));
    latches.check(&Rules::new(PATH).behind(seconds(1)))
}

/// A round that two calls open at second 3.
fn opened() -> Vec<(u64, Event)> {
    [
        (2, counts(FIRST, "a")),
        (2, Event::Counts(SECOND, None)),
        (2, count(1, "a", 2)),
        (3, begins("1 2 token open")),
        // A record lists the changes of one transaction by their names.
        (3, count(1, "zufall", 3)),
        (3, Event::Counted(FIRST, 1)),
        (3, Event::Counted(SECOND, 0)),
    ]
    .into()
}

fn after_opened(events: impl IntoIterator<Item = (u64, Event)>) -> Vec<Violation> {
    check(opened().into_iter().chain(events))
}

#[test]
fn proper_rounds_have_no_violation() {
    let events = [
        (4, Event::Waits(Call(4))),
        (4, Event::Waited(Call(4), true)),
        // Repeated, and one too many: neither counts.
        (5, counts(Call(5), "a")),
        (5, Event::Counted(Call(5), 0)),
        (5, counts(Call(6), "b")),
        (5, Event::Counted(Call(6), 0)),
        (6, Event::SetsCount(Call(7), 1)),
        (6, begins("2 1 token")),
        (7, Event::SetCount(Call(7), true)),
        (7, Event::Reads(Call(8))),
        (7, Event::SetsCount(Call(9), 3)),
        (7, Event::SetCount(Call(9), false)),
        (7, Event::Waits(Call(10))),
        (8, Event::Waited(Call(10), false)),
        (8, Event::Waits(Call(11))),
        (8, counts(Call(12), "a")),
        (8, Event::Gone(Call(12))),
        (9, count(2, "a", 9)),
        (9, begins("2 1 token open")),
        (9, Event::Shows(Call(8), 1)),
        (9, Event::Waited(Call(11), true)),
    ];
    assert_eq!(after_opened(events), []);
}

#[test]
fn a_wait_that_ends_early_is_found() {
    let early =
        [(2, counts(FIRST, "a")), (2, count(1, "a", 2)), (2, Event::Waits(THIRD)), (4, Event::Waited(THIRD, true))];
    assert_found(&check(early), ["4s: a wait that passed early: Call(3)"]);
    // The round before has ended.
    let again = [(5, begins("2 1 token")), (7, Event::Waits(THIRD)), (8, Event::Waited(THIRD, true))];
    assert_found(&after_opened(again), ["8s: a wait that passed early: Call(3)"]);
    // Its server may be behind.
    let again = [(5, begins("2 1 token")), (6, Event::Waits(THIRD)), (8, Event::Waited(THIRD, true))];
    assert_eq!(after_opened(again), []);
    let again = [(51, begins("2 1 token")), (59, Event::Waits(THIRD)), (59, Event::Waited(THIRD, true))];
    assert_eq!(after_opened(again), []);
}

#[test]
fn a_wait_that_ends_by_its_time_limit_at_an_open_latch_is_found() {
    let late = [(5, Event::Waits(THIRD)), (9, Event::Waited(THIRD, false))];
    assert_found(&after_opened(late), ["9s: a wait that did not pass: Call(3)"]);
}

#[test]
fn a_round_with_a_wrong_number_of_counts_is_found() {
    let wrong = |at: u64, counts: u32| [format!("{at}s: a wrong number of counts: round 1 has {counts} of 2")];
    let early = [(2, counts(FIRST, "a")), (2, count(1, "a", 2)), (3, begins("1 2 token open"))];
    assert_found(&check(early), wrong(3, 1));
    let counted_later = [(4, counts(SECOND, "b")), (4, count(1, "b", 4))];
    let early = [(2, counts(FIRST, "a")), (2, count(1, "a", 2)), (3, begins("1 2 token open"))];
    assert_found(&check(early.into_iter().chain(counted_later)), wrong(3, 1));
    assert_found(&after_opened([(4, counts(THIRD, "c")), (4, count(1, "c", 4))]), wrong(4, 3));
    let cut_off = [(2, counts(FIRST, "a")), (2, count(1, "a", 2)), (3, begins("2 1 token"))];
    assert_found(&check(cut_off), wrong(3, 1));
}

#[test]
fn an_operation_that_counts_twice_is_found() {
    let twice = |name: &str| format!("3s: a count of no call: {PATH}/1/{name}");
    let unnamed = [(2, Event::Counts(FIRST, None)), (2, count(1, "x", 2)), (3, count(1, "y", 3))];
    assert_found(&check(unnamed), [twice("y")]);
    let named = [(2, counts(FIRST, "a")), (2, count(1, "a", 2)), (3, count(1, "other", 3))];
    assert_found(&check(named), [twice("other")]);
}

#[test]
fn a_confirmed_operation_that_does_not_count_is_found() {
    let lost = [(2, counts(FIRST, "a")), (3, Event::Counted(FIRST, 2))];
    assert_found(&check(lost), ["3s: an operation that did not count: Call(1)"]);
}

#[test]
fn a_wrong_number_of_remaining_counts_is_found() {
    let wrong = |shown: u32| vec![format!("9s: a wrong number of remaining counts: Call(3) reports {shown}")];
    for (from, remaining, found) in
        [(1, 2, vec![]), (1, 3, wrong(3)), (3, 1, vec![]), (4, 0, vec![]), (5, 1, wrong(1)), (9, 2, wrong(2))]
    {
        let mut events = opened();
        events.push((9, Event::Shows(THIRD, remaining)));
        events.insert(events.iter().position(|(at, _)| *at >= from).unwrap_or_default(), (from, Event::Reads(THIRD)));
        assert_found(&check(events), found);
    }
}

#[test]
fn a_count_that_is_set_twice_or_refused_in_vain_is_found() {
    let twice = [
        (5, Event::SetsCount(FIRST, 3)),
        (5, Event::SetsCount(SECOND, 3)),
        (6, begins("2 3 token")),
        (7, Event::SetCount(FIRST, true)),
        (7, Event::SetCount(SECOND, true)),
    ];
    assert_found(&after_opened(twice), ["7s: a count that was not set: Call(2)"]);
    let refused = [(5, Event::SetsCount(FIRST, 3)), (7, Event::SetCount(FIRST, false))];
    assert_found(&after_opened(refused), ["7s: a refusal without a round: Call(1)"]);
}

#[test]
fn unknown_data_and_events_out_of_order_are_found() {
    for data in ["2", "two 3 token", "2 three token", "2 3 token closed"] {
        assert_found(&after_opened([(5, begins(data))]), [format!("5s: unknown data: {data}")]);
    }
    for event in
        [Event::Counted(THIRD, 1), Event::Gone(THIRD), Event::SetCount(THIRD, true), Event::Waited(THIRD, true)]
    {
        let found = format!("9s: an event out of order: {event:?}");
        assert_found(&check([(9, event)]), [found]);
    }
}

use curator_test::nodes::Node;

use super::*;
use crate::testing::{assert_found, seconds};

const PATH: &str = "/barrier";
const PLAIN: &str = "/plain";
const A: Member = Member(1);
const B: Member = Member(2);
const C: Member = Member(3);
const D: Member = Member(4);
const CALL: Call = Call(1);

fn created(path: &str, czxid: i64, session: i64, data: &str) -> Event {
    Event::Server(Change::Created { path: path.to_owned(), node: Node { czxid, session, data: data.into() } })
}

fn deleted(path: &str) -> Event {
    Event::Server(Change::Deleted { path: path.to_owned(), zxid: 9 })
}

/// The id of a member is its number.
fn stands(Member(number): Member, czxid: i64) -> Event {
    created(&format!("{PATH}/{czxid}-member"), czxid, 7, &number.to_string())
}

fn falls(czxid: i64) -> Event {
    deleted(&format!("{PATH}/{czxid}-member"))
}

fn opens(czxid: i64) -> Event {
    created(&format!("{PATH}/ready"), czxid, 0, "")
}

fn ends() -> Event {
    deleted(&format!("{PATH}/ready"))
}

fn enters(member: Member) -> Event {
    Event::Enters(member, member.0.to_string())
}

const fn entered(member: Member) -> Event {
    Event::Entered { member, opened: false }
}

const fn left(member: Member, died: u32) -> Event {
    Event::Left { member, died }
}

fn check(events: impl IntoIterator<Item = (u64, Event)>) -> Vec<Violation> {
    let mut barriers = Barriers::new();
    for (at, event) in events {
        barriers.record(seconds(at), event);
    }
    barriers.fault(seconds(50), seconds(60));
    barriers.check(&Rules::new(PATH, 2).behind(seconds(1)))
}

/// The events of two members that enter round 3 at second 3.
fn opened() -> Vec<(u64, Event)> {
    [
        (1, enters(A)),
        (1, stands(A, 1)),
        (2, enters(B)),
        (2, stands(B, 2)),
        (3, opens(3)),
        (3, Event::Entered { member: B, opened: true }),
        (4, entered(A)),
    ]
    .into()
}

fn after_opened(events: impl IntoIterator<Item = (u64, Event)>) -> Vec<Violation> {
    check(opened().into_iter().chain(events))
}

#[test]
fn proper_rounds_have_no_violation() {
    let events = [
        // A late member.
        (5, enters(C)),
        (5, stands(C, 4)),
        (6, entered(C)),
        (7, Event::Leaves(A)),
        (7, falls(1)),
        // It dies.
        (8, falls(2)),
        (8, Event::Gone(B)),
        (9, Event::Leaves(C)),
        (9, falls(4)),
        (9, ends()),
        (10, left(C, 1)),
        (10, left(A, 0)),
        // A second round, in which a member gives up.
        (11, enters(Member(4))),
        (11, stands(Member(4), 11)),
        (12, enters(Member(5))),
        (12, stands(Member(5), 12)),
        (13, Event::Gone(Member(5))),
        (13, falls(12)),
        (14, enters(Member(6))),
        (14, stands(Member(6), 14)),
        (15, opens(15)),
        // One that dies after the opening has entered anyway.
        (16, falls(14)),
        (17, entered(Member(6))),
        (17, entered(Member(4))),
    ];
    assert_eq!(after_opened(events), []);
}

#[test]
fn a_barrier_that_opens_with_too_few_members_is_found() {
    let alone = [(1, stands(A, 1)), (2, opens(2))];
    assert_found(&check(alone), [r#"2s: too few members: round 2 opened with {"1"}"#]);
    // The node of an earlier session counts with the new one.
    let twice = [(1, stands(A, 1)), (1, stands(A, 2)), (2, opens(3))];
    assert_found(&check(twice), [r#"2s: too few members: round 3 opened with {"1"}"#]);
    let gone = [(1, stands(A, 1)), (1, stands(B, 2)), (2, falls(2)), (2, opens(3))];
    assert_found(&check(gone), [r#"2s: too few members: round 3 opened with {"1"}"#]);
}

#[test]
fn a_member_that_enters_a_round_without_members_is_found() {
    let stale = [(5, falls(1)), (5, falls(2)), (6, enters(C)), (6, stands(C, 6)), (7, entered(C))];
    assert_found(&after_opened(stale), ["7s: no open round: Member(3)"]);
    // A late member, which `ready` names, lets others in as long as it exists.
    let named = Event::Server(Change::DataChanged { path: format!("{PATH}/ready"), data: "a\n4-member".into() });
    let late = [(4, enters(D)), (4, stands(D, 4)), (5, named), (5, entered(D)), (5, falls(1)), (5, falls(2))];
    let last = [(6, enters(C)), (6, stands(C, 6)), (7, entered(C))];
    assert_eq!(after_opened(late.into_iter().chain(last)), []);
    let counted = [(4, enters(C)), (5, stands(C, 4)), (5, falls(1)), (5, falls(2)), (7, entered(C))];
    assert_eq!(after_opened(counted), []);
    let ended = [(5, ends()), (6, enters(C)), (6, stands(C, 6)), (7, entered(C))];
    assert_found(&after_opened(ended), ["7s: no open round: Member(3)"]);
}

#[test]
fn a_member_that_names_another_round_is_found() {
    assert_eq!(after_opened([(5, Event::Names(A, 3))]), []);
    assert_found(&after_opened([(5, Event::Names(A, 4))]), ["5s: another round: Member(1) names 4"]);
}

#[test]
fn two_members_that_have_opened_one_round_are_found() {
    let events = [(5, enters(C)), (5, stands(C, 4)), (6, Event::Entered { member: C, opened: true })];
    assert_found(&after_opened(events), ["6s: a round opened twice: Member(3) has opened 3"]);
}

#[test]
fn a_member_that_leaves_before_another_is_found() {
    let early = ["6s: a leave before another: Member(1) before Member(2)"];
    assert_found(&after_opened([(5, Event::Leaves(A)), (5, falls(1)), (6, left(A, 0))]), early);
    // The other one has lost its node, or leaves too.
    assert_eq!(after_opened([(5, Event::Leaves(A)), (5, falls(1)), (5, falls(2)), (6, left(A, 0))]), []);
    assert_eq!(after_opened([(5, Event::Leaves(A)), (5, falls(1)), (5, Event::Leaves(B)), (6, left(A, 0))]), []);
    // The other one learns later that it has entered.
    let events = [
        (5, enters(C)),
        (5, stands(C, 4)),
        (5, Event::Leaves(A)),
        (5, Event::Leaves(B)),
        (5, falls(1)),
        (5, falls(2)),
        (6, left(A, 0)),
        (7, entered(C)),
    ];
    assert_found(&after_opened(events), ["6s: a leave before another: Member(1) before Member(3)"]);
}

#[test]
fn a_wrong_number_of_deaths_is_found() {
    let wrong = |what: &str| [format!("7s: a wrong number of deaths: Member(1) reports {what}")];
    let dies = [(5, falls(2)), (6, Event::Leaves(A)), (6, falls(1))];
    let reports = |died| after_opened(dies.clone().into_iter().chain([(7, left(A, died))]));
    assert_found(&reports(0), wrong("0 of 1 to 1"));
    assert_eq!(reports(1), []);
    assert_found(&reports(2), wrong("2 of 1 to 1"));
    // Its session may have ended before its leave.
    let leaves = [(5, Event::Leaves(B)), (5, falls(2)), (6, Event::Leaves(A)), (6, falls(1))];
    let reports = |died| after_opened(leaves.clone().into_iter().chain([(7, left(A, died))]));
    assert_eq!((reports(0), reports(1)), (vec![], vec![]));
    assert_found(&reports(2), wrong("2 of 0 to 1"));
}

#[test]
fn a_waiter_that_passes_a_barrier_which_stands_is_found() {
    let plain = |events: &[(u64, Event)]| {
        let set = [(1, created(PLAIN, 1, 0, ""))];
        check(set.into_iter().chain(events.iter().cloned()))
    };
    let waits = |at| (at, Event::Calls(CALL, PLAIN.to_owned()));
    let never = |at: u64, state: &str| [format!("{at}s: a wrong state: Call(1) ends by a barrier that is {state}")];
    assert_found(&plain(&[waits(3), (5, Event::Saw(CALL, false))]), never(5, "removed"));
    assert_eq!(plain(&[waits(3), (4, deleted(PLAIN)), (5, Event::Saw(CALL, false))]), []);
    let again = [waits(3), (4, deleted(PLAIN)), (4, created(PLAIN, 2, 0, "")), (5, Event::Saw(CALL, false))];
    assert_eq!(plain(&again), []);
    assert_found(&plain(&[(3, deleted(PLAIN)), waits(5), (5, Event::Saw(CALL, true))]), never(5, "set"));
    // Its server is a second behind, or long behind while something is wrong.
    assert_eq!(plain(&[(3, deleted(PLAIN)), waits(4), (5, Event::Saw(CALL, true))]), []);
    assert_eq!(plain(&[(51, deleted(PLAIN)), waits(59), (59, Event::Saw(CALL, true))]), []);
    assert_found(&plain(&[(48, deleted(PLAIN)), waits(59), (59, Event::Saw(CALL, true))]), never(59, "set"));
}

#[test]
fn events_out_of_order_are_found() {
    for event in [entered(C), left(C, 0), Event::Leaves(C), enters(A), falls(9), Event::Saw(CALL, true)] {
        let found = format!("9s: an event out of order: {event:?}");
        assert_found(&after_opened([(9, event)]), [found]);
    }
    // A leave that has no start.
    assert_found(&after_opened([(9, left(A, 0))]), ["9s: an event out of order: Left"]);
}

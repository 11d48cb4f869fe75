use super::*;
use crate::testing::{assert_found, seconds};
use curator_test::nodes::Node;

const FIRST: Delivery = Delivery(1);
const SECOND: Delivery = Delivery(2);
const PUT: Put = Put(1);
const ITEM: Item = Item(7);

fn created(place: &str, name: &str, czxid: i64, data: &str) -> Event {
    let data = match place {
        "-effects" | "-locks" => data.into(),
        _ => [&[0, 1, 0, 1, 1, 0, 0, 0, 1], data.as_bytes(), &[2]].concat(),
    };
    Event::Server(Change::Created { path: format!("/q{place}/{name}"), node: Node { czxid, session: 0, data } })
}

fn deleted(place: &str, name: &str) -> Event {
    Event::Server(Change::Deleted { path: format!("/q{place}/{name}"), zxid: 9 })
}

/// An item that is put at second 1.
fn put() -> Vec<(u64, Event)> {
    let name = "queue-0000000000";
    vec![(1, Event::Puts(PUT, vec![ITEM], 0)), (1, created("", name, 10, "7")), (1, Event::HasPut(PUT, true))]
}

fn claims(at: u64, token: i64) -> (u64, Event) {
    (at, created("-locks", "queue-0000000000", token, "token"))
}

fn unlocks(at: u64) -> (u64, Event) {
    (at, deleted("-locks", "queue-0000000000"))
}

fn goes(at: u64) -> (u64, Event) {
    (at, deleted("", "queue-0000000000"))
}

fn gets(at: u64, delivery: Delivery, token: i64, number: u32) -> (u64, Event) {
    (at, Event::Delivered(delivery, ITEM, token, number))
}

/// The calls and the changes of an end.
fn ends(at: u64, delivery: Delivery, end: End) -> [(u64, Event); 4] {
    [(at, Event::Ends(delivery, end)), unlocks(at + 1), goes(at + 1), (at + 1, Event::Ended(delivery, Outcome::Done))]
}

/// A delivery of the item from second 2 on.
fn claimed() -> Vec<(u64, Event)> {
    let mut events = put();
    events.extend([claims(2, 20), gets(2, FIRST, 20, 1)]);
    events
}

fn check_by(rules: &Rules, events: impl IntoIterator<Item = (u64, Event)>) -> Vec<Violation> {
    let mut queues = Queues::new();
    for (at, event) in events {
        queues.record(seconds(at), event);
    }
    queues.fault(seconds(50), seconds(60));
    queues.slow(seconds(50), seconds(60));
    queues.check(rules)
}

fn check(events: impl IntoIterator<Item = (u64, Event)>) -> Vec<Violation> {
    check_by(&Rules::new("/q"), events)
}

/// Checks what follows the first claim.
fn after_claim(events: impl IntoIterator<Item = (u64, Event)>) -> Vec<Violation> {
    check(claimed().into_iter().chain(events))
}

#[test]
fn proper_deliveries_have_no_violation() {
    let effect = (5, created("-effects", "e", 30, "7"));
    let [ends_call, unlocks_it, goes_away, ended] = ends(4, SECOND, End::CompleteWith);
    let events = [
        (3, Event::Ends(FIRST, End::Retry)),
        unlocks(3),
        (3, Event::Ended(FIRST, Outcome::Done)),
        claims(4, 25),
        gets(4, SECOND, 25, 2),
        ends_call,
        unlocks_it,
        goes_away,
        effect,
        ended,
        (6, deleted("-effects", "e")),
    ];
    assert_eq!(after_claim(events), []);
    let moved = [
        (3, Event::Ends(FIRST, End::Requeue)),
        unlocks(4),
        goes(4),
        (4, created("", "queue-0000000001", 30, "7")),
        (4, created("-locks", "queue-0000000001", 31, "")),
        (5, Event::Delivered(SECOND, ITEM, 31, 2)),
        (6, Event::Ended(FIRST, Outcome::Done)),
        (6, Event::Ends(SECOND, End::Reject)),
        (7, deleted("-locks", "queue-0000000001")),
        (7, deleted("", "queue-0000000001")),
        (7, created("-dead", "queue-0000000000", 32, "7")),
        (7, Event::Ended(SECOND, Outcome::Done)),
    ];
    assert_eq!(after_claim(moved), []);
}

#[test]
fn a_lost_put_or_item_is_found() {
    let lost = [(1, Event::Puts(PUT, vec![ITEM], 0)), (2, Event::HasPut(PUT, true))];
    assert_found(&check(lost), ["2s: a put that is lost: Item(7)"]);
    // Nothing is known of its outcome.
    assert_eq!(check([(1, Event::Puts(PUT, vec![ITEM], 0))]), []);
    assert_found(&check(put()), ["1s: a lost item: Item(7)"]);
    let found = ["4s: an item that no delivery has ended: Item(7)", "4s: a lost item: Item(7)"];
    assert_found(&after_claim([unlocks(4), goes(4)]), found);
    let by_hand = [(4, Event::Revoked("/q/queue-0000000000".into())), goes(4)];
    assert_eq!(after_claim(by_hand), []);
    // Its node goes, and no other one comes.
    assert_found(&after_claim(ends(3, FIRST, End::Requeue)), ["4s: a lost item: Item(7)"]);
    let found = ["4s: a rejection without a dead letter: Delivery(1)", "4s: a lost item: Item(7)"];
    assert_found(&after_claim(ends(3, FIRST, End::Reject)), found);
}

#[test]
fn an_item_at_most_once_is_lost_with_a_consumer_alone() {
    let rules = Rules { at_most_once: true, ..Rules::new("/q") };
    let check_of = |events: &[(u64, Event)]| check_by(&rules, put().into_iter().chain(events.iter().cloned()));
    let (taken, dropped) = (goes(3), |since, at| (at, Event::ConsumerDropped(1, seconds(since))));
    assert_eq!(check_of(&[taken.clone(), gets(4, FIRST, 10, 1)]), []);
    assert_eq!(check_of(&[taken.clone(), dropped(2, 4)]), []);
    let lost = ["3s: a lost item: Item(7)"];
    assert_found(&check_of(&[taken.clone(), (4, Event::ConsumerDropped(0, seconds(2)))]), lost);
    assert_found(&check_of(&[taken.clone(), dropped(4, 5)]), lost);
    assert_found(&check_of(&[dropped(1, 2), taken.clone()]), lost);
    let early = ["3s: an item that is delivered before it is deleted: Delivery(1) of Item(7)"];
    assert_found(&check_of(&[gets(3, FIRST, 10, 1), goes(4)]), early);
    let twice = [taken.clone(), gets(55, FIRST, 10, 1), gets(55, SECOND, 10, 1)];
    assert_found(&check_of(&twice), ["55s: an item that is delivered again: Delivery(2) of Item(7)"]);
    let unknown = |name: &str| (4, Event::Unknown(name.to_owned()));
    assert_eq!(check_of(&[taken.clone(), unknown("queue-0000000000")]), []);
    assert_found(&check_of(&[taken, unknown("queue-0000000001")]), lost);
}

#[test]
fn two_deliveries_at_a_time_are_found() {
    let second = |at| [unlocks(3), claims(at, 25), gets(at, SECOND, 25, 2)].into_iter();
    let completed = |at| ends(at, SECOND, End::Complete);
    let found = ["4s: two deliveries at a time: Delivery(2) of Item(7) beside Delivery(1)"];
    assert_found(&after_claim(second(4).chain(completed(5))), found);
    let lost = [(3, Event::Lost(FIRST))];
    assert_eq!(after_claim(lost.into_iter().chain(second(4)).chain(completed(5))), []);
    // Its holder could not know it.
    let revoked = || [(3, Event::Revoked("/q-locks/queue-0000000000".into()))].into_iter();
    assert_eq!(after_claim(revoked().chain(second(4)).chain(completed(5))), []);
    let late = revoked().chain(second(4)).chain([(5, Event::Lost(FIRST))]).chain(completed(5));
    assert_found(&after_claim(late), ["3s to 5s: a loss without notice: Delivery(1)"]);
}

#[test]
fn a_delivery_without_a_lock_is_found() {
    let complete = || ends(8, FIRST, End::Complete).into_iter().filter(|(_, event)| *event != unlocks(9).1);
    let without = put().into_iter().chain([gets(2, FIRST, 20, 1)]).chain(complete());
    let found = [
        "2s: a delivery without a lock: Delivery(1) of Item(7)",
        "9s: an item that no delivery has ended: Item(7)",
        "9s: an end of another delivery: Delivery(1)",
        "9s: a lost item: Item(7)",
    ];
    assert_found(&check(without), found);
    let late = |at| put().into_iter().chain([claims(2, 20), unlocks(3), gets(at, FIRST, 20, 1)]).chain(complete());
    let found =
        ["4s: a delivery that was lost before: Delivery(1) of Item(7)", "4s to 8s: a loss without notice: Delivery(1)"];
    assert_found(&check(late(4)), found);
    assert_found(&check([(1, created("-locks", "x", 20, ""))]), ["1s: a lock of no item: x"]);
}

#[test]
fn a_completed_item_that_comes_again_is_found() {
    let again = [(6, created("", "queue-0000000001", 30, "7")), (7, created("-locks", "queue-0000000001", 31, ""))];
    let found = ["6s: an item that is put twice: Item(7)", "4s: a lost item: Item(7)"];
    assert_found(&after_claim(ends(3, FIRST, End::Complete).into_iter().chain(again)), found);
}

#[test]
fn an_end_that_changes_nothing_or_another_delivery_is_found() {
    let nothing = [(3, Event::Ends(FIRST, End::Complete)), (4, Event::Ended(FIRST, Outcome::Done))];
    let found = ["4s: an end that has changed nothing: Delivery(1)", "2s: a lost item: Item(7)"];
    assert_found(&after_claim(nothing)[..1], &found[..1]);
    // The second one works on it.
    let taken_over = [(3, Event::Lost(FIRST)), unlocks(3), claims(4, 25), gets(4, SECOND, 25, 2)];
    let events = taken_over.clone().into_iter().chain(ends(5, FIRST, End::Complete));
    let found = [
        "6s: an item that no delivery has ended: Item(7)",
        "6s: an end of another delivery: Delivery(1)",
        "6s: a lost item: Item(7)",
    ];
    assert_found(&after_claim(events), found);
    let refused = [(5, Event::Ends(FIRST, End::Complete)), (5, Event::Ended(FIRST, Outcome::Lost))];
    let events = taken_over.into_iter().chain(refused).chain(ends(6, SECOND, End::Complete));
    assert_found(&after_claim(events), ["5s: a loss in calm: Delivery(1)"]);
    // A repeated call cannot tell its own delete from another one.
    let by_hand = [(3, Event::Revoked("/q/queue-0000000000".into())), goes(3)];
    let call = |at| (at, Event::Ends(FIRST, End::Complete));
    let done = (5, Event::Ended(FIRST, Outcome::Done));
    let found = ["5s: an end that has changed nothing: Delivery(1)"];
    assert_found(&after_claim(by_hand.clone().into_iter().chain([call(4), done.clone()])), found);
    assert_eq!(after_claim(by_hand.into_iter().chain([call(4), call(5), done])), []);
    let gone = [(3, Event::Ends(FIRST, End::Complete)), (4, Event::Ended(FIRST, Outcome::Gone))];
    assert_found(&after_claim(gone)[..1], ["4s: an item that is not gone: Delivery(1)"]);
}

#[test]
fn an_effect_that_is_not_made_exactly_once_is_found() {
    let effect = |at, name| (at, created("-effects", name, 30, "7"));
    let missing = ends(3, FIRST, End::CompleteWith);
    assert_found(&after_claim(missing.clone()), ["4s: a completion without its effect: Delivery(1)"]);
    let [call, unlocked, gone, ended] = missing;
    let twice = [call, unlocked, gone, effect(4, "a"), effect(5, "b"), ended];
    assert_found(&after_claim(twice), ["5s: an effect that is made twice: Item(7)"]);
    let alone = [effect(3, "a")].into_iter().chain(ends(4, FIRST, End::Complete));
    assert_found(&after_claim(alone), ["3s: an effect without a completion: Item(7)"]);
}

#[test]
fn a_put_that_is_made_twice_or_in_parts_or_not_at_all_is_found() {
    let twice = put().into_iter().chain([(2, created("", "queue-0000000001", 11, "7"))]);
    assert_found(&check(twice)[..1], ["2s: an item that is put twice: Item(7)"]);
    let parts = [
        (1, Event::Puts(PUT, vec![ITEM, Item(8)], 0)),
        (1, created("", "queue-0000000000", 10, "7")),
        (1, created("", "queue-0000000001", 11, "8")),
    ];
    assert_found(&check(parts)[..1], ["1s: a put in parts: Put(1)"]);
    for at in [1, 3] {
        let refused = [
            (1, Event::Puts(PUT, vec![ITEM], 0)),
            (at, created("", "queue-0000000000", 10, "7")),
            (2, Event::HasPut(PUT, false)),
        ];
        let mut refused = refused;
        refused.sort_by_key(|(at, _)| *at);
        assert_found(&check(refused)[..1], [format!("{}s: an item that was not put: Item(7)", at.max(2))]);
    }
}

#[test]
fn a_wrong_number_of_deliveries_is_found() {
    let again = |number| {
        let events = [(3, Event::Ends(FIRST, End::Retry)), unlocks(3), claims(4, 25), gets(4, SECOND, 25, number)];
        claimed().into_iter().chain(events).chain(ends(5, SECOND, End::Complete))
    };
    let limited = Rules { max_attempts: Some(1), ..Rules::new("/q") };
    assert_found(&check(again(1)), ["4s: a wrong number of a delivery: Delivery(2) of Item(7): 1 of 2"]);
    assert_found(&check_by(&limited, again(2)), ["4s: too many deliveries: Delivery(2) of Item(7): 2"]);
    let dead = |at| [unlocks(at), goes(at), (at, created("-dead", "x", 40, "7"))];
    let retried = [(3, Event::Ends(FIRST, End::Retry)), unlocks(3), claims(4, 25)];
    let moved = claimed().into_iter().chain(retried).chain(dead(5));
    assert_eq!(check_by(&limited, moved), []);
    // It may be delivered once.
    let early = put().into_iter().chain([claims(2, 20)]).chain(dead(5));
    let found = ["5s: an item that no delivery has ended", "5s: a dead letter without a reason: Item(7)", "5s: a lost"];
    assert_found(&check_by(&limited, early), found);
    // A completed item cannot become a dead letter.
    let both = ends(3, FIRST, End::Complete).into_iter().chain([(5, created("-dead", "x", 40, "7"))]);
    assert_found(&after_claim(both), ["5s: a dead letter without a reason: Item(7)"]);
}

#[test]
fn items_out_of_order_are_found() {
    let rules = Rules { at_most_once: true, ..Rules::new("/q") };
    let two = |ranks: [i64; 2], first: [u64; 2]| {
        let puts = |put, item: u64, rank| {
            let name = format!("queue-000000000{item}");
            [
                (1, Event::Puts(Put(put), vec![Item(item)], rank)),
                (1, created("", &name, 10 + item.cast_signed(), &item.to_string())),
            ]
        };
        let taken = [1_u64, 2].map(|item| (2, deleted("", &format!("queue-000000000{item}"))));
        let gets = first.map(|item| (3, Event::Delivered(Delivery(item), Item(item), 0, 1)));
        let put = puts(1, 1, ranks[0]).into_iter().chain(puts(2, 2, ranks[1]));
        check_by(&rules, [(0, Event::Alone)].into_iter().chain(put).chain(taken).chain(gets))
    };
    let found = |first, second| {
        vec![format!("3s: an item out of order: Delivery({first}) of Item({first}) before Item({second})")]
    };
    assert_eq!(two([0, 0], [1, 2]), []);
    assert_eq!(two([5, 0], [2, 1]), []);
    assert_found(&two([0, 0], [2, 1]), found(2, 1));
    assert_found(&two([5, 0], [1, 2]), found(1, 2));
}

#[test]
fn events_out_of_order_are_found() {
    for event in [
        Event::HasPut(PUT, true),
        Event::Lost(FIRST),
        Event::Ends(FIRST, End::Retry),
        Event::Ended(FIRST, Outcome::Done),
        deleted("", "x"),
        deleted("-locks", "x"),
        created("", "x", 1, "7"),
        created("", "x", 1, "z"),
    ] {
        assert_found(&check([(9, event.clone())]), [format!("9s: an event out of order: {event:?}")]);
    }
}

use Step::{Asked, GaveUp, Granted, Lost, Released, Releasing, Revoked};

use super::*;
use crate::testing::{assert_found, rules_of, seconds};

const ASKED: Step = Asked(Mode::Exclusive);
const READ: Step = Asked(Mode::Shared);

fn history(steps: &[(u64, u64, Step)]) -> Locks {
    let mut history = Locks::new();
    for &(at, attempt, step) in steps {
        history.record(seconds(at), (Attempt(attempt), step));
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
    assert_found(&two.check(&mutex()), ["2s: too many holders: [Attempt(1), Attempt(2)]"]);
    assert_eq!(two.check(&Rules::semaphore(2, seconds(5))), []);
}

#[test]
fn a_loss_that_is_told_after_the_next_grant_is_found() {
    let late = history(&[(0, 1, ASKED), (0, 2, ASKED), (1, 1, Granted(1)), (5, 2, Granted(2)), (6, 1, Lost)]);
    assert_eq!(rules_of(&late.check(&mutex())), ["too many holders"]);
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
    assert_eq!(rules_of(&three(2).check(&rules)), ["too many holders"]);
    assert_eq!(rules_of(&three(3).check(&rules)), ["too many holders"]);
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
        let found = beside(wanted).check(&rules);
        assert_found(&found, ["3s to 20s: a free place beside a waiter: [Attempt(3)]"]);
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
    assert_eq!(rules_of(&waits(READ).check(&rules))[0], "a free place beside a waiter");
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
    assert_found(&writer, ["3s: too many holders: [Attempt(1), Attempt(2)]"]);
    let fresh = downgrade(7, READ, 8).check(&rules);
    assert_found(&fresh, ["2s: a token that changed: Attempt(1) reads with 7"]);
    let never_wrote = history(&[(0, 1, READ), (1, 1, Granted(1)), (2, 1, Step::Downgraded(1))]);
    assert_eq!(rules_of(&never_wrote.check(&rules)), ["an event out of order"]);
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
    assert_found(&found, ["8s: a token that does not grow: Attempt(2) has 2, not above 3"]);
    let late_reader = history(&[
        (0, 1, ASKED),
        (0, 2, READ),
        (1, 1, Granted(2)),
        (2, 1, Releasing),
        (2, 1, Released),
        (3, 2, Granted(1)),
    ]);
    assert_eq!(rules_of(&late_reader.check(&rules)), ["a token that does not grow"]);
}

#[test]
fn a_reader_beside_a_writer_is_found() {
    let readers = history(&[(0, 1, READ), (0, 2, READ), (1, 1, Granted(1)), (1, 2, Granted(2))]);
    assert_eq!(readers.check(&mutex()), []);
    let reader = history(&[(0, 1, ASKED), (0, 2, READ), (1, 1, Granted(1)), (2, 2, Granted(2))]);
    assert_eq!(rules_of(&reader.check(&mutex())), ["too many holders"]);
    let writer = history(&[(0, 1, READ), (0, 2, ASKED), (1, 1, Granted(1)), (2, 2, Granted(2))]);
    assert_eq!(rules_of(&writer.check(&mutex())), ["too many holders"]);
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
    let found = ["3s: a token that does not grow: Attempt(2) has 5, not above 5"];
    assert_found(&shrinking.check(&mutex()), found);
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
    assert_found(&idle.check(&mutex()), ["3s to 20s: a free place beside a waiter: [Attempt(2)]"]);
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
    assert_eq!(rules_of(&served.check(&Rules::semaphore(2, seconds(3))))[0], "a free place beside a waiter");
}

#[test]
fn a_free_lease_beside_a_waiter_is_found() {
    let idle = history(&[(0, 1, ASKED), (1, 1, Granted(1)), (2, 2, ASKED), (30, 2, GaveUp)]);
    assert_eq!(idle.check(&mutex()), []);
    assert_eq!(rules_of(&idle.check(&Rules::semaphore(2, seconds(5)))), ["a free place beside a waiter"]);
}

#[test]
fn a_holder_that_the_server_forgot_may_overlap_but_must_be_told() {
    let told =
        history(&[(0, 1, ASKED), (0, 2, ASKED), (1, 1, Granted(1)), (2, 1, Revoked), (3, 2, Granted(2)), (4, 1, Lost)]);
    assert_eq!(told.check(&mutex().prompt(seconds(3))), []);
    assert_found(&told.check(&mutex().prompt(seconds(1))), ["2s to 4s: a loss without notice: Attempt(1)"]);
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
    let found = ["3s to 5s: a loss without notice: Attempt(1)"];
    assert_found(&history(&late).check(&mutex().prompt(seconds(1))), found);
}

#[test]
fn a_grant_behind_a_listing_that_was_sent_when_its_node_was_gone_is_found() {
    let steps = |at| {
        let revoked = Step::RevokedSince(seconds(3));
        history(&[(0, 1, ASKED), (at, 1, revoked), (at, 1, Granted(8)), (at, 1, Lost)])
    };
    let rules = mutex().on_its_way(seconds(1));
    assert_eq!(steps(4).check(&rules), []);
    let found = ["5s: a grant on a node that is gone: Attempt(1), which is gone since 3s"];
    assert_found(&steps(5).check(&rules), found);
    assert_eq!(steps(5).check(&mutex()), []);
    let mut held_up = steps(5);
    held_up.fault(seconds(3), seconds(5));
    assert_found(&held_up.check(&rules), found);
    held_up.slow(seconds(3), seconds(5));
    assert_eq!(held_up.check(&rules), []);
}

#[test]
fn a_loss_without_a_fault_is_found() {
    let mut lost = history(&[(0, 1, ASKED), (1, 1, Granted(1)), (9, 1, Lost)]);
    assert_eq!(lost.check(&mutex()), []);
    assert_found(&lost.check(&mutex().no_loss_in_calm()), ["9s: a loss in calm: Attempt(1)"]);
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
        assert_eq!(rules_of(&history(&steps).check(&mutex())), ["an event out of order"], "{steps:?}");
    }
}

//! The bounds of the search, and the broken planners that it must find.

use crate::engine::model::scenario::Kind::{Read, Write};
use crate::engine::model::scenario::{Fault, Kind, Quirk, Scenario};
use crate::engine::model::state::Locks;
use crate::model::search::{self, is_long};

const ALL: &[Fault] = &[Fault::DeleteOne, Fault::DeleteBoth, Fault::Kill, Fault::Break, Fault::GiveUp];

/// The faults of the widest bounds: the others are like deletions of single nodes, and would triple the time.
const FEW: &[Fault] = &[Fault::DeleteOne, Fault::Kill, Fault::Break];

/// Each way in which two and three contenders, in the order of their nodes, can share sessions.
const TWO: &[&[usize]] = &[&[0, 0], &[0, 1]];
const THREE: &[&[usize]] = &[&[0, 0, 0], &[0, 0, 1], &[0, 1, 0], &[0, 1, 1], &[0, 1, 2]];

fn mutex(sessions: &[usize], faults: usize) -> Scenario {
    Scenario::new(sessions.iter().map(|session| (Kind::Mutex, *session)), faults, ALL)
}

fn nothing_is_found(scenarios: impl IntoIterator<Item = Scenario>) {
    search::nothing_is_found::<Locks>(scenarios);
}

/// Searches with a broken planner, and expects a violation with this text.
fn is_found(scenario: Scenario, quirk: Quirk, why: &str) {
    search::is_found::<Locks>(&scenario.with_quirk(quirk), why);
}

#[test]
fn mutex_of_two_contenders_survives_two_faults() {
    let scenarios = TWO.iter().map(|sessions| mutex(sessions, 2));
    nothing_is_found(
        scenarios.map(
            |scenario| {
                if is_long() { scenario.thorough() } else { Scenario { waits_last: true, ..scenario } }
            },
        ),
    );
}

#[test]
fn mutex_of_three_contenders_survives_faults() {
    nothing_is_found(THREE.iter().map(|sessions| mutex(sessions, 1)));
    if is_long() {
        nothing_is_found(THREE.iter().map(|sessions| mutex(sessions, 1).thorough()));
        nothing_is_found(THREE.iter().map(|sessions| Scenario { fault_kinds: FEW, ..mutex(sessions, 2) }));
    }
}

#[test]
fn broken_planners_of_a_mutex_are_found() {
    let untrue = "proves nothing";
    is_found(mutex(&[0, 0], 1), Quirk::UnknownIsOtherSession, untrue);
    is_found(mutex(&[0, 0], 1), Quirk::BegunDeleteIsDone, untrue);
    is_found(mutex(&[0, 1, 0], 1), Quirk::OwnerOfAnyNode, untrue);
    is_found(mutex(&[0, 1], 2), Quirk::ReplayIsOfTheOldConnection, untrue);
    is_found(mutex(&[0, 1], 1), Quirk::GoneNodeIsArmed, untrue);
    is_found(mutex(&[0, 1], 1), Quirk::ListingHasOwn, untrue);
    is_found(mutex(&[0, 1], 0), Quirk::OneLeaseMore, untrue);
    is_found(mutex(&[0, 0, 0], 0).with_try(1), Quirk::SaysFirstAtOnce, untrue);
    is_found(mutex(&[0, 1, 0], 1), Quirk::AnyNodeAheadIsNext, untrue);
    is_found(mutex(&[0, 0], 1), Quirk::OwnerIsNotMarked, "before a holder");
    is_found(mutex(&[0, 1], 1), Quirk::LostReplyIsCertain, "no contender");
    is_found(mutex(&[0, 1], 1), Quirk::WatchesAreNotRestored, "although it could be granted");
}

/// Leases of the direct protocol: each holder signals to a waiter behind it.
fn leases(limit: u8, sessions: &[usize], faults: usize) -> Scenario {
    let contenders = sessions.iter().map(|session| (Kind::Lease, *session));
    Scenario { limit, signals_grant: true, ..Scenario::new(contenders, faults, ALL) }
}

/// Leases of Curator's protocol: one contender waits at a time, and the limit may change.
fn leases_in_turn(limits: (u8, &'static [Fault]), sessions: &[usize], faults: usize) -> Scenario {
    let (limit, fault_kinds) = limits;
    let scenario = leases(limit, sessions, faults);
    Scenario { has_turns: true, signals_grant: false, fault_kinds, ..scenario }
}

const LOWERED: &[Fault] = &[Fault::Limit(1), Fault::Kill, Fault::Break];
const RAISED: &[Fault] = &[Fault::Limit(2), Fault::Kill, Fault::Break];

#[test]
fn leases_survive_faults() {
    nothing_is_found(TWO.iter().map(|sessions| leases(1, sessions, 1).thorough()));
    nothing_is_found([leases(2, &[0, 0, 1], 1), leases(2, &[0, 1, 2], 1), leases(1, &[0, 1, 2], 1)]);
    // Two waiters watch the children.
    nothing_is_found([leases(2, &[0, 1, 2, 3], 0)]);
    if is_long() {
        // A third waiter waits for a signal.
        nothing_is_found([leases(2, &[0, 1, 2, 3, 4], 0)]);
        nothing_is_found(TWO.iter().map(|sessions| leases(1, sessions, 2).thorough()));
        nothing_is_found(THREE.iter().map(|sessions| leases(2, sessions, 1).thorough()));
        nothing_is_found([Scenario { fault_kinds: FEW, ..leases(2, &[0, 0, 1], 2) }]);
    }
}

#[test]
fn leases_survive_a_limit_that_changes() {
    let faults = if is_long() { 2 } else { 1 };
    nothing_is_found(THREE.iter().map(|sessions| leases_in_turn((2, LOWERED), sessions, faults).thorough()));
    nothing_is_found(TWO.iter().map(|sessions| leases_in_turn((1, RAISED), sessions, 2).thorough()));
}

/// Contenders that take a free lease without the turn, and otherwise wait for it.
fn first_tries(limit: u8, sessions: &[usize], faults: usize) -> Scenario {
    let all: Vec<_> = (0..sessions.len()).collect();
    leases_in_turn((limit, ALL), sessions, faults).with_first_tries(&all)
}

#[test]
fn first_tries_survive_faults() {
    nothing_is_found(TWO.iter().map(|sessions| first_tries(1, sessions, 1).thorough()));
    nothing_is_found([first_tries(2, &[0, 1, 2], 0), first_tries(1, &[0, 1, 2], 0)]);
    // Beside a contender that has the turn.
    nothing_is_found([&[0], &[1]].map(|tries| leases_in_turn((1, ALL), &[0, 1], 1).with_first_tries(tries)));
    if is_long() {
        nothing_is_found(TWO.iter().map(|sessions| first_tries(1, sessions, 2)));
        let few = |sessions: &&[usize]| Scenario { fault_kinds: FEW, ..first_tries(2, sessions, 1) };
        nothing_is_found(THREE[..2].iter().map(few));
    }
}

const TURNS: &[Fault] = &[Fault::DeleteOne, Fault::LoseTurn, Fault::Kill, Fault::Break, Fault::GiveUp];

/// Requests for two leases each, from these sessions.
fn requests(limit: u8, sessions: &[usize], faults: usize) -> Scenario {
    let sessions: Vec<_> = sessions.iter().flat_map(|session| [*session; 2]).collect();
    leases_in_turn((limit, TURNS), &sessions, faults).with_requests(2)
}

#[test]
fn requests_for_several_leases_survive_faults() {
    nothing_is_found([requests(2, &[0], 2).thorough(), requests(3, &[0, 0], 0), requests(3, &[0, 1], 0)]);
    nothing_is_found(TWO.iter().map(|sessions| requests(2, sessions, 1)));
    if is_long() {
        nothing_is_found(TWO.iter().map(|sessions| requests(3, sessions, 1).thorough()));
        nothing_is_found(TWO.iter().map(|sessions| requests(2, sessions, 2)));
    }
}

#[test]
fn broken_requests_for_several_leases_are_found() {
    is_found(requests(2, &[0, 1], 1), Quirk::KeepsLeasesWithoutTurn, "waits for others that wait for it");
    is_found(requests(3, &[0], 1), Quirk::KeepsLeasesOfAFailure, "no contender");
    is_found(requests(2, &[0], 1), Quirk::LeasesAreNotChecked, "do not hold together");
    is_found(requests(3, &[0, 1], 0), Quirk::OneLeaseMore, "proves nothing");
}

#[test]
fn broken_planners_of_leases_are_found() {
    let stuck = "although it could be granted";
    is_found(leases(2, &[0, 1, 2], 0), Quirk::OneLeaseMore, "proves nothing");
    is_found(leases(2, &[0, 1, 2], 0), Quirk::WatchesOneLeaseAhead, stuck);
    // The fifth contender is the first that waits for a signal.
    for quirk in [Quirk::NoSignal, Quirk::EarlierSignalIsMissed] {
        is_found(leases(2, &[0, 1, 2, 3, 4], 0), quirk, stuck);
    }
    is_found(leases(1, &[0, 1], 1), Quirk::ListingHasOwn, "proves nothing");
    is_found(leases(1, &[0, 1], 1), Quirk::LostReplyIsCertain, "no contender");
    is_found(leases(1, &[0, 1], 1), Quirk::WatchesAreNotRestored, stuck);
    is_found(leases_in_turn((1, RAISED), &[0, 1], 1).thorough(), Quirk::AnyReplyTakesTheLimit, stuck);
    is_found(first_tries(1, &[0, 1], 1), Quirk::ListingHasOwn, "proves nothing");
    is_found(first_tries(1, &[0, 1], 1), Quirk::LostReplyIsCertain, "no contender");
    is_found(first_tries(1, &[0, 1], 0), Quirk::OneLeaseMore, "proves nothing");
    // Without turns a lowered limit is exceeded.
    let direct = Scenario { fault_kinds: LOWERED, ..leases(2, &[0, 1, 2], 1) };
    is_found(direct, Quirk::LimitMayChangeWithoutTurns, "beside others");
}

fn read_write(kinds: &[Kind], sessions: &[usize], faults: usize) -> Scenario {
    let contenders = kinds.iter().copied().zip(sessions.iter().copied());
    Scenario::new(contenders, faults, ALL)
}

fn with_downgrades(scenario: Scenario) -> Scenario {
    Scenario { downgrades: true, ..scenario }
}

#[test]
fn read_write_lock_of_two_contenders_survives_faults() {
    for kinds in [[Read, Read], [Read, Write], [Write, Read], [Write, Write]] {
        nothing_is_found(TWO.iter().map(|sessions| read_write(&kinds, sessions, 2)));
        nothing_is_found(TWO.iter().map(|sessions| with_downgrades(read_write(&kinds, sessions, 1)).thorough()));
        if is_long() {
            nothing_is_found(TWO.iter().map(|sessions| with_downgrades(read_write(&kinds, sessions, 2))));
        }
    }
}

#[test]
fn read_write_lock_of_three_contenders_survives_faults() {
    for kinds in [[Read, Write, Read], [Write, Write, Read], [Write, Read, Write]] {
        nothing_is_found([with_downgrades(read_write(&kinds, &[0, 1, 2], 0))]);
        nothing_is_found([read_write(&kinds, &[0, 1, 0], 1)]);
        if is_long() {
            nothing_is_found(THREE.iter().map(|sessions| with_downgrades(read_write(&kinds, sessions, 1))));
        }
    }
}

/// Contenders of one session behind one of another session.
const BEHIND_ANOTHER: [[Kind; 3]; 4] =
    [[Write, Read, Read], [Write, Write, Read], [Write, Read, Write], [Write, Write, Write]];

#[test]
fn read_write_lock_of_contenders_that_share_what_they_know_survives_faults() {
    nothing_is_found(BEHIND_ANOTHER.map(|kinds| Scenario { fault_kinds: FEW, ..read_write(&kinds, &[0, 1, 1], 1) }));
    if is_long() {
        let scenario = |kinds: [Kind; 3]| with_downgrades(read_write(&kinds, &[0, 1, 1], 1));
        nothing_is_found(BEHIND_ANOTHER.map(|kinds| scenario(kinds).thorough()));
    }
}

#[test]
fn read_write_lock_of_contenders_that_share_what_they_know_survives_downgrades() {
    for sessions in [[0, 1, 1], [0, 0, 0]] {
        nothing_is_found(BEHIND_ANOTHER.map(|kinds| with_downgrades(read_write(&kinds, &sessions, 0))));
    }
    // Behind two writers of other sessions.
    nothing_is_found([read_write(&[Write, Write, Read, Read], &[0, 1, 2, 2], 0)]);
}

#[test]
fn broken_planners_of_a_read_write_lock_are_found() {
    let untrue = "proves nothing";
    is_found(read_write(&[Write, Read], &[0, 1], 0), Quirk::ReaderIgnoresTheLastWriter, untrue);
    is_found(read_write(&[Write, Write, Read], &[0, 1, 2], 0), Quirk::ReaderTakesTheFirstWriter, untrue);
    is_found(read_write(&[Write, Write, Write], &[0, 1, 2], 1), Quirk::AnyBlockerIsAlone, untrue);
    is_found(read_write(&[Write, Read], &[0, 0], 1), Quirk::UnknownIsOtherSession, untrue);
    let downgrades = with_downgrades(read_write(&[Write, Write], &[0, 1], 0));
    is_found(downgrades, Quirk::WriterTrustsADeletion, untrue);
    let downgrades = with_downgrades(read_write(&[Write, Write, Write], &[0, 1, 1], 0));
    is_found(downgrades, Quirk::WriterReadsItsNode, untrue);
    is_found(read_write(&[Write, Write, Read], &[0, 1, 1], 1), Quirk::NothingKnownIsNothingAhead, untrue);
    let stuck = "although it could be granted";
    is_found(read_write(&[Write, Read, Read], &[0, 1, 1], 0), Quirk::ReaderWaitsForReaders, stuck);
}

/// Candidates of an election, with a hand-over to any of them.
fn latches(sessions: &[usize], faults: usize) -> Scenario {
    let candidates = sessions.iter().map(|session| (Kind::Latch, *session));
    Scenario { hand_overs: 1, waits_last: true, ..Scenario::new(candidates, faults, FEW) }
}

#[test]
fn hand_over_of_a_leader_survives_faults() {
    nothing_is_found(TWO.iter().map(|sessions| latches(sessions, 1)));
    nothing_is_found([latches(&[0, 1, 2], 0), latches(&[0, 1, 1], 0)]);
    if is_long() {
        nothing_is_found(TWO.iter().map(|sessions| latches(sessions, 2).thorough()));
        nothing_is_found([latches(&[0, 1, 2], 1), Scenario { hand_overs: 2, ..latches(&[0, 1, 2], 0) }]);
    }
}

#[test]
fn broken_hand_overs_of_a_leader_are_found() {
    is_found(latches(&[0, 1, 2], 0), Quirk::LeaderIsNotChecked, "proves nothing");
    is_found(latches(&[0, 1, 2], 0), Quirk::MovesToTheBack, "has followed a wish");
    is_found(latches(&[0, 1, 2, 3], 0), Quirk::MoveIsNotListed, "although it could be granted");
    is_found(latches(&[0, 1], 1), Quirk::LostMoveIsKept, "no contender");
    // A candidate may move ahead of a waiter.
    is_found(latches(&[0, 1, 2], 0), Quirk::RecordIsIgnored, "proves nothing");
    is_found(latches(&[0, 1, 2], 0), Quirk::RecordIsReadLate, "proves nothing");
}

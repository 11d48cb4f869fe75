use super::*;
use crate::testing::{assert_found, rules_of, seconds};

const FIRST: Candidate = Candidate(1);
const SECOND: Candidate = Candidate(2);
const OBSERVER: Observer = Observer(9);

fn rules() -> Rules {
    Rules::new(seconds(5))
}

/// Two candidates that join at once, and these events.
fn elections(events: impl IntoIterator<Item = (u64, Event)>) -> Elections {
    let mut elections = Elections::new();
    for candidate in [FIRST, SECOND] {
        elections.record(seconds(0), Event::Joined(candidate));
    }
    for (at, event) in events {
        elections.record(seconds(at), event);
    }
    elections
}

fn leads(candidate: Candidate, term: i64) -> Event {
    Event::Leads { candidate, term, node: node(term) }
}

fn node(term: i64) -> String {
    format!("latch-{term}")
}

fn seen(candidate: Candidate, term: i64) -> Event {
    Event::SeenLeading { candidate, term }
}

fn lost(candidate: Candidate, term: i64) -> Event {
    Event::Lost { candidate, term }
}

fn resigned(candidate: Candidate, term: i64) -> Event {
    Event::Resigned { candidate, term }
}

fn revoked(term: i64) -> Event {
    Event::Revoked { node: node(term) }
}

fn created(term: i64) -> Event {
    Event::Created { node: node(term), czxid: term }
}

fn reports(term: i64) -> Event {
    Event::Reports(OBSERVER, Report::Leader(term, node(term)))
}

#[test]
fn a_proper_history_is_accepted() {
    let proper = elections([
        (0, Event::Reports(OBSERVER, Report::Unknown)),
        (1, created(10)),
        (1, created(11)),
        (1, reports(10)),
        (1, leads(FIRST, 10)),
        (9, seen(FIRST, 10)),
        (9, resigned(FIRST, 10)),
        (10, leads(SECOND, 11)),
        (10, Event::Reports(OBSERVER, Report::NoLeader)),
        (11, reports(11)),
        (12, created(12)),
        (20, revoked(11)),
        (21, leads(FIRST, 12)),
        (21, seen(SECOND, 11)),
        (22, lost(SECOND, 11)),
        (22, reports(12)),
        (30, Event::Stopped(OBSERVER)),
        (30, Event::Left(FIRST)),
        (30, Event::Left(SECOND)),
        (99, Event::Joined(Candidate(3))),
    ]);
    assert_eq!(proper.check(&rules().prompt(seconds(3)).on_its_way(seconds(0)).no_loss_in_calm()), []);
    assert_eq!(proper.terms(), 3);
}

#[test]
fn node_that_is_created_again_after_its_removal_has_a_term_of_its_own() {
    let created_as = |czxid| Event::Created { node: node(10), czxid };
    let reported = |term| Event::Reports(OBSERVER, Report::Leader(term, node(10)));
    let led = |term| Event::Leads { candidate: FIRST, term, node: node(10) };
    let history = |removal| elections([(1, created_as(10)), (2, removal), (3, created_as(20)), (4, led(20))]);
    assert_eq!(history(revoked(10)).check(&rules()), []);
    let found = ["3s: an event out of order: Created { node: \"latch-10\", czxid: 20 }"];
    assert_found(&history(revoked(11)).check(&rules()), found);

    let mut late = history(revoked(10));
    for term in [10, 20, 21] {
        late.record(seconds(5), reported(term));
    }
    assert_found(&late.check(&rules()), ["5s: an unknown term: Observer(9) reports 21 of latch-10"]);
}

#[test]
fn terms_overlap_if_the_earlier_leader_is_seen_leading_after_the_later_began() {
    let seen_at = |event: Event| {
        elections([(1, leads(FIRST, 1)), (4, seen(FIRST, 1)), (5, leads(SECOND, 2)), (5, event), (6, lost(FIRST, 1))])
    };
    let both = ["5s: two leaders: Candidate(1) with 1 beside Candidate(2) with 2"];
    assert_found(&seen_at(seen(FIRST, 1)).check(&rules()), both);
    assert_eq!(seen_at(seen(SECOND, 2)).check(&rules()), []);
}

#[test]
fn a_candidate_that_leads_after_its_end_is_found() {
    let ended = |end: Event| elections([(1, leads(FIRST, 1)), (2, end), (2, seen(FIRST, 1))]).check(&rules());
    for end in [lost(FIRST, 1), resigned(FIRST, 1), Event::Left(FIRST)] {
        assert_found(&ended(end), ["2s: a leader after its end: Candidate(1) with 1"]);
    }
    assert_eq!(ended(Event::Left(SECOND)), []);
}

#[test]
fn terms_that_do_not_rise_are_found() {
    let with = |term| elections([(1, leads(FIRST, 5)), (2, resigned(FIRST, 5)), (3, leads(SECOND, term))]);
    for term in [4, 5] {
        let found = format!("3s: a term that does not rise: Candidate(2) leads with {term}, not above 5");
        assert_found(&with(term).check(&rules()), [found]);
        assert_eq!(with(term).check(&rules().falling_terms()), []);
    }
    assert_eq!(with(6).check(&rules()), []);
}

#[test]
fn a_candidate_may_resume_the_newest_term() {
    let resumes = |end: Event, candidate| {
        let again = Event::Leads { candidate, term: 5, node: node(5) };
        elections([(1, leads(FIRST, 5)), (2, end), (3, again)]).check(&rules())
    };
    let lost = || lost(FIRST, 5);
    assert_eq!(resumes(lost(), FIRST), []);
    assert_eq!(rules_of(&resumes(lost(), SECOND)), ["a term that does not rise"]);
    assert_eq!(rules_of(&resumes(revoked(5), FIRST)), ["a term on a node that is gone"]);
    assert_eq!(rules_of(&resumes(seen(FIRST, 5), FIRST)), ["a term that does not rise"]);
}

#[test]
fn a_term_of_another_node_is_found() {
    let with = |term, own: i64| {
        let leads = Event::Leads { candidate: FIRST, term, node: node(own) };
        elections([(1, created(4)), (1, created(6)), (1, leads)]).check(&rules())
    };
    assert_eq!(with(4, 4), []);
    // A candidate with an older node follows one that was let ahead of it.
    assert_eq!(with(7, 4), []);
    for (term, own) in [(3, 4), (4, 6), (9, 5)] {
        let found = format!("1s: a term of another node: Candidate(1) leads with {term} on latch-{own}");
        assert_found(&with(term, own), [found]);
    }
}

#[test]
fn candidates_without_a_leader_are_found_but_not_in_a_fault() {
    let mut idle = elections([(1, leads(FIRST, 1)), (2, resigned(FIRST, 1)), (20, leads(SECOND, 2))]);
    assert_found(&idle.check(&rules()), ["2s to 20s: no leader: of {Candidate(1), Candidate(2)}"]);
    idle.fault(seconds(3), seconds(16));
    assert_eq!(idle.check(&rules()), []);
    let never = elections([(9, Event::Left(SECOND))]);
    assert_eq!(rules_of(&never.check(&rules())), ["no leader"]);
}

#[test]
fn an_election_without_candidates_needs_no_leader() {
    let closed = elections([(1, Event::Left(FIRST)), (1, Event::Left(SECOND)), (99, Event::Joined(Candidate(3)))]);
    assert_eq!(closed.check(&rules()), []);
    let one_stays = elections([(1, Event::Left(FIRST)), (99, Event::Left(SECOND))]);
    assert_eq!(rules_of(&one_stays.check(&rules())), ["no leader"]);
}

#[test]
fn a_loss_without_a_fault_is_found() {
    let ended = |end: Event| elections([(1, leads(FIRST, 1)), (9, end)]);
    let mut loss = ended(lost(FIRST, 1));
    assert_eq!(loss.check(&rules()), []);
    assert_found(&loss.check(&rules().no_loss_in_calm()), ["9s: a loss in calm: Candidate(1) loses 1"]);
    loss.fault(seconds(5), seconds(9));
    assert_eq!(loss.check(&rules().no_loss_in_calm()), []);
    assert_eq!(ended(resigned(FIRST, 1)).check(&rules().no_loss_in_calm()), []);
}

#[test]
fn a_leader_without_its_node_may_overlap_but_must_be_notified() {
    let events = |told| {
        let overlap = [(1, leads(FIRST, 1)), (2, revoked(1)), (3, leads(SECOND, 2)), (3, seen(FIRST, 1))];
        elections([&overlap[..], &[(told, lost(FIRST, 1))]].concat())
    };
    assert_eq!(events(4).check(&rules().prompt(seconds(2))), []);
    let not_told = "a loss without notice: Candidate(1) of 1";
    assert_found(&events(5).check(&rules().prompt(seconds(2))), [format!("2s to 5s: {not_told}")]);
    let never = elections([(1, leads(FIRST, 1)), (2, revoked(1)), (9, Event::Left(SECOND))]);
    assert_found(&never.check(&rules().prompt(seconds(2))), [format!("2s to 9s: {not_told}")]);
}

#[test]
fn a_term_that_was_on_its_way_when_its_node_was_deleted_excludes_none() {
    let on_its_way = |told| {
        elections([
            (1, revoked(1)),
            (1, leads(SECOND, 2)),
            (1, leads(FIRST, 1)),
            (1, seen(SECOND, 2)),
            (1, seen(FIRST, 1)),
            (told, lost(FIRST, 1)),
        ])
    };
    assert_eq!(on_its_way(2).check(&rules().prompt(seconds(1)).on_its_way(seconds(0))), []);
    let found = on_its_way(3).check(&rules().prompt(seconds(1)));
    assert_found(&found, ["1s to 3s: a loss without notice: Candidate(1) of 1"]);
}

#[test]
fn a_term_on_a_node_that_was_gone_is_found() {
    let mut late = elections([(3, revoked(1)), (5, leads(FIRST, 1)), (5, lost(FIRST, 1))]);
    let began = |at: u64, since: u64| {
        [format!("{at}s: a term on a node that is gone: Candidate(1) on latch-1, which is gone since {since}s")]
    };
    assert_eq!(late.check(&rules()), []);
    assert_eq!(late.check(&rules().on_its_way(seconds(2))), []);
    assert_found(&late.check(&rules().on_its_way(seconds(1))), began(5, 3));
    late.fault(seconds(3), seconds(5));
    assert_found(&late.check(&rules().on_its_way(seconds(1))), began(5, 3));
    late.slow(seconds(3), seconds(5));
    assert_eq!(late.check(&rules().on_its_way(seconds(1))), []);
    let again = elections([
        (3, leads(FIRST, 1)),
        (4, revoked(1)),
        (4, lost(FIRST, 1)),
        (4, leads(FIRST, 1)),
        (4, lost(FIRST, 1)),
    ]);
    assert_found(&again.check(&rules().on_its_way(seconds(1))), began(4, 4));
}

#[test]
fn a_reported_term_that_no_candidate_had_is_found() {
    let unknown = |term: i64| [format!("1s: an unknown term: Observer(9) reports {term} of latch-7")];
    let reports = |term| (1, Event::Reports(OBSERVER, Report::Leader(term, node(7))));
    let leads = |term| (1, Event::Leads { candidate: FIRST, term, node: node(7) });
    assert_found(&elections([reports(7), (1, leads(8).1)]).check(&rules()), unknown(7));
    assert_eq!(elections([reports(8), leads(8)]).check(&rules()), []);
    // A candidate's node was the first, and its client never learned of it, or not of the term that it was to have.
    assert_eq!(elections([(1, created(7)), reports(7)]).check(&rules()), []);
    assert_eq!(elections([(1, created(7)), reports(9)]).check(&rules()), []);
    assert_found(&elections([(1, created(7)), reports(6)]).check(&rules()), unknown(6));
    assert_found(&elections([(1, created(8)), reports(7), (1, created(7))]).check(&rules()), unknown(7));
    assert_eq!(elections([(1, created(7)), reports(7), reports(9), leads(9)]).check(&rules()), []);
    assert_found(&elections([(1, created(7)), reports(8), leads(9)]).check(&rules()), unknown(8));
}

#[test]
fn reported_terms_that_fall_are_found() {
    let turns = elections([
        (1, leads(FIRST, 1)),
        (1, reports(1)),
        (1, resigned(FIRST, 1)),
        (2, leads(SECOND, 2)),
        (2, reports(2)),
        (2, Event::Reports(OBSERVER, Report::Unknown)),
        (3, reports(1)),
        (3, reports(2)),
    ]);
    assert_found(&turns.check(&rules()), ["3s: a reported term that falls: Observer(9) reports 1 after 2"]);
    assert_eq!(turns.check(&rules().falling_terms()), []);
}

#[test]
fn a_report_that_stays_behind_is_found_but_not_in_a_fault() {
    for report in [Report::Leader(1, node(1)), Report::NoLeader, Report::Unknown] {
        let reported = if report == Report::Leader(1, node(1)) { Some(1) } else { None };
        let mut behind = elections([
            (1, leads(FIRST, 1)),
            (1, resigned(FIRST, 1)),
            (2, Event::Reports(OBSERVER, report)),
            (2, leads(SECOND, 2)),
            (20, reports(2)),
        ]);
        let stale = format!("2s to 20s: a stale report: Observer(9) reports {reported:?} instead of Some(2)");
        assert_found(&behind.check(&rules()), [stale]);
        behind.fault(seconds(3), seconds(16));
        assert_eq!(behind.check(&rules()), []);
    }
    let gone = elections([(1, leads(FIRST, 1)), (1, reports(1)), (2, Event::Left(FIRST)), (3, Event::Left(SECOND))]);
    let stays = |last: Event| {
        let mut gone = gone.clone();
        gone.record(seconds(4), last);
        gone.record(seconds(30), Event::Joined(Candidate(3)));
        gone.check(&rules())
    };
    assert_found(&stays(reports(1)), ["2s to 30s: a stale report: Observer(9) reports Some(1) instead of None"]);
    assert_eq!(stays(Event::Reports(OBSERVER, Report::NoLeader)), []);
    assert_eq!(stays(Event::Stopped(OBSERVER)), []);
}

#[test]
fn events_out_of_order_are_found() {
    for event in [
        Event::Joined(FIRST),
        Event::Left(Candidate(3)),
        leads(Candidate(3), 1),
        seen(FIRST, 1),
        lost(FIRST, 1),
        resigned(FIRST, 1),
        Event::Stopped(OBSERVER),
    ] {
        let found = elections([(1, event.clone())]).check(&rules());
        assert_found(&found, [format!("1s: an event out of order: {event:?}")]);
    }
}

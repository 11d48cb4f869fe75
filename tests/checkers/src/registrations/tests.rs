use curator_test::nodes::Node;

use super::*;
use crate::testing::{assert_found, rules_of, seconds};

const FIRST: Registration = Registration(1);
const SECOND: Registration = Registration(2);
const CLIENT: ClientId = ClientId(1);
const OTHER: ClientId = ClientId(2);
const PATH: &str = "/services/host";

fn rules() -> Rules {
    Rules::new(seconds(5))
}

fn began(client: ClientId, session: i64) -> Event {
    Event::SessionBegan(client, session)
}

/// Two clients with the sessions 1 and 2, the first one with a registration, and these events.
fn registrations(events: impl IntoIterator<Item = (u64, Event)>) -> Registrations {
    planned(Plan::ephemeral(CLIENT, PATH), events)
}

fn planned(plan: Plan, events: impl IntoIterator<Item = (u64, Event)>) -> Registrations {
    let mut registrations = Registrations::new();
    registrations.record(seconds(0), began(CLIENT, 1));
    registrations.record(seconds(0), began(OTHER, 2));
    registrations.record(seconds(0), Event::Started(FIRST, plan, b"up".to_vec()));
    for (at, event) in events {
        registrations.record(seconds(at), event);
    }
    registrations
}

fn created_at(path: &str, czxid: i64, session: i64, data: &str) -> Event {
    let node = Node { czxid, session, data: data.into() };
    Event::Server(Change::Created { path: path.to_owned(), node })
}

fn created(czxid: i64, session: i64) -> Event {
    created_at(PATH, czxid, session, "up")
}

fn deleted() -> Event {
    Event::Server(Change::Deleted { path: PATH.to_owned(), zxid: 9 })
}

fn changed(data: &str) -> Event {
    Event::Server(Change::DataChanged { path: PATH.to_owned(), data: data.into() })
}

fn standing(path: &str, czxid: i64, session: i64) -> State {
    State::Standing { path: path.to_owned(), czxid, session, foreign: None }
}

fn stands(czxid: i64, session: i64) -> Event {
    Event::Tells(FIRST, standing(PATH, czxid, session))
}

fn taken(registration: Registration, session: i64, czxid: i64) -> Event {
    Event::Tells(registration, State::TakenBy { session, czxid })
}

/// Returns `true` if a registration is found to have this difference from the server.
fn is_difference(found: &Violation, registration: Registration, difference: &str) -> bool {
    found.rule == "a difference from the server" && found.what == format!("{registration:?} has {difference}")
}

#[test]
fn a_proper_registration_has_no_violation() {
    let proper = registrations([
        (1, created(10, 1)),
        (1, stands(10, 1)),
        (2, Event::Wants(FIRST, "busy".into())),
        (3, changed("busy")),
        (3, Event::Wrote(FIRST, "busy".into())),
        (4, deleted()),
        (4, Event::Tells(FIRST, State::Absent)),
        (5, began(CLIENT, 3)),
        (6, created_at(PATH, 11, 3, "busy")),
        (6, stands(11, 3)),
        (60, Event::Closed(FIRST)),
        (60, deleted()),
        (60, Event::Tells(FIRST, State::Absent)),
        (99, began(CLIENT, 4)),
    ]);
    assert_eq!(proper.check(&rules()), []);
    assert_eq!(proper.standing(), 2);
}

#[test]
fn a_node_that_did_not_stand_since_the_state_before_is_found() {
    let told = |events: Vec<(u64, Event)>, state: State| {
        let found = registrations([events, vec![(3, Event::Tells(FIRST, state.clone()))]].concat()).check(&rules());
        if !found.is_empty() {
            assert_found(&found, [format!("3s: an unknown node: Registration(1) tells {state:?}")]);
        }
        !found.is_empty()
    };
    let own = || standing(PATH, 10, 1);
    assert!(told(vec![], own()));
    assert!(told(vec![(1, created(11, 1))], own()));
    assert!(told(vec![(1, created(10, 2))], own()));
    let gone = vec![(1, created(10, 1)), (1, deleted()), (2, Event::Tells(FIRST, State::Absent))];
    assert!(told(gone, own()));
    assert!(!told(vec![(1, created(10, 1)), (1, deleted())], own()));
    let taken = || State::TakenBy { session: 2, czxid: 10 };
    assert!(told(vec![(1, created(11, 2))], taken()));
    assert!(!told(vec![(1, created(10, 2))], taken()));
}

#[test]
fn a_node_of_another_session_is_found() {
    let of = |session, events: Vec<(u64, Event)>| {
        let events = [vec![(1, created(10, session))], events, vec![(3, stands(10, session))]].concat();
        registrations(events).check(&rules())
    };
    let found = |session: i64, own: i64| {
        let what = format!("Registration(1) has one of {session}, its client has Some({own})");
        [format!("3s: a node of another session: {what}")]
    };
    assert_eq!(of(1, vec![]), []);
    assert_found(&of(2, vec![]), found(2, 1));
    // The earlier session of the client: its server has not ended it yet.
    assert_found(&of(1, vec![(2, began(CLIENT, 3))]), found(1, 3));
    assert_eq!(of(1, vec![(2, began(OTHER, 3))]), []);
    let persistent = Plan { ephemeral: false, ..Plan::ephemeral(CLIENT, PATH) };
    let told = |session| planned(persistent.clone(), [(1, created(10, session)), (3, stands(10, session))]);
    assert_eq!(told(0).check(&rules()), []);
    assert_found(&told(1).check(&rules()), found(1, 1));
}

#[test]
fn a_registration_that_is_taken_by_itself_is_found() {
    let told = |second: ClientId| {
        let second = Event::Started(SECOND, Plan::ephemeral(second, PATH), Vec::new());
        registrations([(1, second), (1, created(10, 1)), (3, taken(FIRST, 1, 10))]).check(&rules())
    };
    assert_found(&told(OTHER), ["3s: a path taken by itself: Registration(1) names 1"]);
    assert_eq!(told(CLIENT), []);
}

#[test]
fn of_two_registrations_at_one_path_one_stands_and_the_other_tells_its_session() {
    let both = |second: Event| {
        registrations([
            (0, Event::Started(SECOND, Plan::ephemeral(OTHER, PATH), b"two".to_vec())),
            (1, created(10, 1)),
            (1, stands(10, 1)),
            (1, second),
            (30, began(ClientId(3), 4)),
        ])
        .check(&rules())
    };
    assert_eq!(both(taken(SECOND, 1, 10)), []);
    for (second, difference) in [
        (Event::Tells(SECOND, State::Absent), "no node"),
        (Event::Tells(SECOND, standing(PATH, 10, 1)), "a node of an earlier session"),
    ] {
        assert!(both(second).iter().any(|found| is_difference(found, SECOND, difference)));
    }
    let free = registrations([(1, created(10, 2)), (1, taken(FIRST, 2, 10)), (2, deleted()), (9, began(OTHER, 9))]);
    let found = "2s to 9s: a difference from the server: Registration(1) has a path that is not taken so";
    assert_found(&free.check(&rules()), [found]);
}

#[test]
fn a_registration_that_differs_from_the_server_is_found_but_not_in_a_fault() {
    let up = || vec![(1, created(10, 1)), (1, stands(10, 1))];
    let differs = |events: Vec<(u64, Event)>, difference| {
        let mut history = registrations([events, vec![(20, began(OTHER, 9))]].concat());
        let is_found = history.check(&rules()).iter().any(|found| is_difference(found, FIRST, difference));
        history.fault(seconds(0), seconds(16));
        assert!(!rules_of(&history.check(&rules())).contains(&"a difference from the server"));
        is_found
    };
    assert!(differs(vec![], "no node"));
    assert!(differs([up(), vec![(2, deleted())]].concat(), "a node that is gone"));
    assert!(differs([up(), vec![(2, deleted()), (2, created(11, 1))]].concat(), "a node that is gone"));
    assert!(differs([up(), vec![(2, began(CLIENT, 3))]].concat(), "a node of an earlier session"));
    assert!(differs([up(), vec![(2, changed("foreign"))]].concat(), "other data"));
    let wants = Event::Wants(FIRST, "busy".into());
    assert!(differs([up(), vec![(2, wants)]].concat(), "other data"));
    assert!(!differs(up(), "other data"));
}

#[test]
fn foreign_data_is_told_or_mended() {
    let told = |mends| {
        let told = State::Standing { path: PATH.to_owned(), czxid: 10, session: 1, foreign: Some("foreign".into()) };
        let plan = Plan { mends, ..Plan::ephemeral(CLIENT, PATH) };
        let up = [(1, created(10, 1)), (1, stands(10, 1)), (2, changed("foreign")), (2, Event::Tells(FIRST, told))];
        let later = (20, began(OTHER, 9));
        planned(plan, up.into_iter().chain([later])).check(&rules())
    };
    assert_eq!(told(false), []);
    assert_found(&told(true), ["2s to 20s: a difference from the server: Registration(1) has other data"]);
}

#[test]
fn a_node_without_registration_is_found() {
    let second = "/services/host0000000001";
    let left = |events: Vec<(u64, Event)>| {
        let events = [vec![(1, created(10, 1)), (1, stands(10, 1))], events, vec![(20, began(OTHER, 9))]].concat();
        registrations(events).check(&rules())
    };
    let extra = || (2, created_at(second, 11, 1, "up"));
    let found = format!("2s to 20s: a node without registration: {second}");
    assert_found(&left(vec![extra()]), [found]);
    assert_eq!(left(vec![extra(), (2, Event::Outsider { path: second.to_owned(), czxid: 11 })]), []);
    let closed = |then: Vec<(u64, Event)>| left([vec![(3, Event::Closed(FIRST))], then].concat());
    assert_found(&closed(vec![]), [format!("3s to 20s: a node without registration: {PATH}")]);
    assert_eq!(closed(vec![(7, deleted())]), []);
    // The parent of another registration's node.
    let deep = Event::Started(SECOND, Plan::ephemeral(OTHER, "/services/deep/node"), Vec::new());
    let parent = created_at("/services/deep", 12, 0, "");
    assert!(!rules_of(&left(vec![(2, deep), (2, parent)])).contains(&"a node without registration"));
}

#[test]
fn a_path_that_a_registration_cannot_have_is_found() {
    let sequential = || Plan { exact: false, ..Plan::ephemeral(CLIENT, PATH) };
    let at_paths = |plan: Plan, paths: &[&str]| {
        let tells = |(index, path): (usize, &&str)| {
            let czxid = 10 + index as i64;
            [(1, created_at(path, czxid, 1, "up")), (1, Event::Tells(FIRST, standing(path, czxid, 1)))]
        };
        planned(plan, paths.iter().enumerate().flat_map(tells)).check(&rules())
    };
    let found = |path: &str| [format!("1s: another path: Registration(1) has {path}")];
    assert_eq!(at_paths(Plan::ephemeral(CLIENT, PATH), &[PATH]), []);
    assert_eq!(at_paths(sequential(), &["/services/_c_1-host0000000001"]), []);
    assert_found(&at_paths(Plan::ephemeral(CLIENT, PATH), &["/services/host0"]), found("/services/host0"));
    assert_found(&at_paths(sequential(), &["/other/host0000000001"]), found("/other/host0000000001"));
    let renamed = at_paths(sequential(), &["/services/host0000000001", "/services/host0000000002"]);
    assert_found(&renamed, found("/services/host0000000002"));
}

#[test]
fn a_loss_without_a_fault_is_found() {
    let up = || vec![(1, created(10, 1)), (1, stands(10, 1))];
    let lost = |events: Vec<(u64, Event)>| {
        let mut history = registrations([up(), events].concat());
        assert_eq!(history.check(&rules()), []);
        let found = history.check(&rules().no_loss_in_calm());
        history.fault(seconds(3), seconds(9));
        assert_eq!(history.check(&rules().no_loss_in_calm()), []);
        found
    };
    let found = format!("4s: a loss in calm: Registration(1) loses {PATH}");
    assert_found(&lost(vec![(4, deleted())]), [found]);
    assert_eq!(lost(vec![(4, Event::Closed(FIRST)), (4, deleted())]), []);
    let again = Event::Started(SECOND, Plan::ephemeral(CLIENT, PATH), b"up".to_vec());
    let adopts = Event::Tells(SECOND, standing(PATH, 10, 1));
    assert_eq!(lost(vec![(2, Event::Closed(FIRST)), (2, again), (2, adopts), (4, deleted())]), []);
}

#[test]
fn a_confirmed_write_that_was_never_made_is_found() {
    let wrote = |events: Vec<(u64, Event)>| {
        let wants = |data: &str| (2, Event::Wants(FIRST, data.into()));
        let up = vec![(1, created(10, 1)), (1, stands(10, 1)), wants("one"), wants("two")];
        let last = (3, Event::Wrote(FIRST, "one".into()));
        registrations([up, events, vec![last]].concat()).check(&rules())
    };
    let found = ["3s: a write that was not made: Registration(1) has confirmed \"one\""];
    assert_found(&wrote(vec![]), found);
    assert_eq!(wrote(vec![(3, changed("one"))]), []);
    assert_eq!(wrote(vec![(3, changed("two"))]), []);
    assert_found(&wrote(vec![(3, changed("three"))]), found);
}

#[test]
fn events_out_of_order_are_found() {
    for event in [
        stands(1, 1),
        Event::Closed(FIRST),
        Event::Wants(FIRST, Vec::new()),
        Event::Wrote(FIRST, Vec::new()),
        deleted(),
        changed(""),
    ] {
        let mut history = Registrations::new();
        history.record(seconds(1), event.clone());
        assert_found(&history.check(&rules()), [format!("1s: an event out of order: {event:?}")]);
    }
}

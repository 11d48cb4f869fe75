use curator_test::versions::{Access, Change};

use super::*;
use crate::testing::{assert_found, rules_of, seconds};

const CACHE: Cache = Cache(1);
const STREAM: Stream = Stream(1);
const ROOT: &str = "/config";
const PORT: &str = "/config/port";

/// The state of a node that transaction `czxid` created, and `mzxid` changed.
fn node(czxid: i64, mzxid: i64) -> Node {
    Node { czxid, mzxid, version: (mzxid - czxid) as i32, data: Some(format!("data of {mzxid}").into_bytes()) }
}

fn server(zxid: i64, path: &str, node: Option<Node>) -> Event {
    Event::Server(versions::Event::Changed(Change { zxid, path: path.to_owned(), node }))
}

fn emptied_at(zxid: i64) -> Event {
    Event::Server(versions::Event::Emptied(zxid))
}

fn created(path: &str, zxid: i64) -> Event {
    server(zxid, path, Some(node(zxid, zxid)))
}

fn changed(path: &str, czxid: i64, zxid: i64) -> Event {
    server(zxid, path, Some(node(czxid, zxid)))
}

fn deleted(path: &str, zxid: i64) -> Event {
    server(zxid, path, None)
}

fn reports_created(path: &str, node: Node) -> Event {
    Event::Reports(STREAM, Reported::Created(path.to_owned(), node))
}

fn reports_changed(path: &str, old: Node, new: Node) -> Event {
    Event::Reports(STREAM, Reported::Changed { path: path.to_owned(), old, new })
}

fn reports_deleted(path: &str, node: Node) -> Event {
    Event::Reports(STREAM, Reported::Deleted(path.to_owned(), node))
}

fn initialized() -> Event {
    Event::Reports(STREAM, Reported::Initialized)
}

fn nodes<const N: usize>(nodes: [(&str, Node); N]) -> Nodes {
    nodes.into_iter().map(|(path, node)| (path.to_owned(), node)).collect()
}

fn shows<const N: usize>(state: State, present: [(&str, Node); N]) -> Event {
    Event::Shows(CACHE, state, nodes(present))
}

/// A root of transaction 1, a port of transaction 2 that transaction 3 changes, a cache of both, and these events.
fn caches(events: impl IntoIterator<Item = (u64, Event)>) -> Caches {
    scoped(Scope::new(ROOT), events)
}

fn scoped(scope: Scope, events: impl IntoIterator<Item = (u64, Event)>) -> Caches {
    let mut caches = Caches::new();
    caches.record(seconds(0), Event::Started(CACHE, scope));
    caches.record(seconds(0), Event::Opened(STREAM, CACHE));
    for change in [created(ROOT, 1), created(PORT, 2), changed(PORT, 2, 3)] {
        caches.record(seconds(1), change);
    }
    for (at, event) in events {
        caches.record(seconds(at), event);
    }
    caches
}

fn rules() -> Rules {
    Rules::new(seconds(5))
}

fn check(events: impl IntoIterator<Item = (u64, Event)>) -> Vec<Violation> {
    caches(events).check(&rules())
}

/// The events of a cache that has loaded both nodes at second 2.
fn loaded() -> Vec<(u64, Event)> {
    [
        reports_created(ROOT, node(1, 1)),
        reports_created(PORT, node(2, 3)),
        initialized(),
        Event::Drained(STREAM),
        shows(State::Fresh(3), [(ROOT, node(1, 1)), (PORT, node(2, 3))]),
    ]
    .map(|event| (2, event))
    .into()
}

/// The violation of a cache that shows a node, although its state names a later transaction.
fn not_fresh(zxid: i64, path: &str, shown: Option<Node>) -> [String; 1] {
    let what = format!("Cache(1) names {zxid} and shows {path} as {shown:?}");
    [format!("3s: contents older than their state: {what}")]
}

/// Returns the violations in the events that follow a load.
fn after_load(events: impl IntoIterator<Item = (u64, Event)>) -> Vec<Violation> {
    check(loaded().into_iter().chain(events))
}

#[test]
fn a_proper_cache_has_no_violation() {
    let events = [
        (3, changed(PORT, 2, 4)),
        (3, Event::CaughtUp { cache: CACHE, from: 3, zxid: 3 }),
        (3, reports_changed(PORT, node(2, 3), node(2, 4))),
        (4, deleted(PORT, 5)),
        (4, created(PORT, 6)),
        (4, reports_deleted(PORT, node(2, 4))),
        (4, reports_created(PORT, node(6, 6))),
        (4, Event::Drained(STREAM)),
        (4, shows(State::Fresh(6), [(ROOT, node(1, 1)), (PORT, node(6, 6))])),
        (8, shows(State::Stale(6), [(ROOT, node(1, 1)), (PORT, node(6, 6))])),
        (9, Event::Reports(STREAM, Reported::Reset)),
        (9, reports_created(ROOT, node(1, 1))),
        (9, reports_created(PORT, node(6, 6))),
        (9, initialized()),
        (9, deleted(PORT, 7)),
        (9, deleted(ROOT, 8)),
        (9, reports_deleted(PORT, node(6, 6))),
        (9, reports_deleted(ROOT, node(1, 1))),
        (9, Event::Drained(STREAM)),
        (9, shows(State::Fresh(8), [])),
        (9, Event::Drained(STREAM)),
        (9, shows(State::Closed, [])),
    ];
    let proper = caches(loaded().into_iter().chain(events));
    assert_eq!(proper.check(&rules()), []);
    assert_eq!(proper.shown(), 2);
}

#[test]
fn a_node_that_never_existed_is_found() {
    let reported = |node: Node| {
        let reported = [(2, reports_created(ROOT, self::node(1, 1))), (2, reports_created(PORT, node.clone()))];
        let found = check(reported);
        assert_eq!(check([(2, shows(State::Loading, [(PORT, node.clone())]))]), found);
        if !found.is_empty() {
            assert_found(&found, [format!("2s: an unknown node: Cache(1) has {PORT} as {node:?}")]);
        }
        !found.is_empty()
    };
    let proper = node(2, 3);
    assert!(check([(2, shows(State::Loading, [(PORT, proper.clone())]))]).is_empty());
    for wrong in [
        node(1, 3),
        node(2, 4),
        Node { version: 7, ..node(2, 3) },
        Node { data: Some(b"other".to_vec()), ..node(2, 3) },
        // The cache keeps data.
        Node { data: None, ..node(2, 3) },
    ] {
        assert!(reported(wrong.clone()) && !check([(2, shows(State::Loading, [(PORT, wrong)]))]).is_empty());
    }
    let bare = Node { data: None, ..node(2, 3) };
    assert!(
        scoped(Scope::new(ROOT).without_data(), [(2, shows(State::Loading, [(PORT, bare)]))])
            .check(&rules())
            .is_empty()
    );
    assert!(
        !scoped(Scope::new(ROOT).without_data(), [(2, shows(State::Loading, [(PORT, proper)]))])
            .check(&rules())
            .is_empty()
    );
}

#[test]
fn events_of_a_cache_without_data_may_have_the_data_of_the_new_state() {
    let bare = |mzxid| Node { data: None, ..node(2, mzxid) };
    let reported = |old: Node, new: Node, last: Node| {
        let port = Scope::new(PORT).without_data();
        let events = [
            reports_created(PORT, node(2, 3)),
            changed(PORT, 2, 4),
            reports_changed(PORT, old, new),
            initialized(),
            Event::Drained(STREAM),
            shows(State::Fresh(4), [(PORT, last)]),
        ];
        scoped(port, events.map(|event| (2, event))).check(&rules())
    };
    assert_eq!(reported(bare(3), node(2, 4), bare(4)), []);
    assert_eq!(reported(node(2, 3), bare(4), bare(4)), []);
    let wrong = Node { data: Some(b"other".to_vec()), ..bare(4) };
    assert_eq!(rules_of(&reported(bare(3), wrong, bare(4))), ["an unknown node"]);
    let found = reported(bare(3), node(2, 4), node(2, 4));
    assert_eq!(rules_of(&found), ["an unknown node", "contents that are not the events"], "{found:?}");
}

#[test]
fn a_node_outside_of_the_scope_is_found() {
    let deep = "/config/hosts/first";
    let other = "/configuration";
    let shown = |scope: Scope, path: &str| {
        let events = [(2, created(path, 4)), (2, shows(State::Loading, [(path, node(4, 4))]))];
        scoped(scope, events).check(&rules())
    };
    let found = |path: &str| [format!("2s: a node out of scope: Cache(1) has {path}")];
    assert_eq!(shown(Scope::new(ROOT), deep), []);
    assert_eq!(shown(Scope::new("/"), deep), []);
    assert_found(&shown(Scope::new(ROOT), other), found(other));
    assert_eq!(shown(Scope::new(ROOT).depth(2), deep), []);
    assert_found(&shown(Scope::new(ROOT).depth(1), deep), found(deep));
    assert_found(&shown(Scope::new(ROOT).refuse("hosts"), deep), found(deep));
    assert_eq!(shown(Scope::new(ROOT).refuse("config"), deep), []);
    assert_found(&shown(Scope::new(ROOT).stop_at("hosts"), deep), found(deep));
    assert_eq!(shown(Scope::new(ROOT).stop_at("first"), deep), []);
    let reported = scoped(Scope::new(PORT), [(2, reports_created(ROOT, node(1, 1)))]).check(&rules());
    assert_found(&reported, found(ROOT));
}

#[test]
fn an_event_that_does_not_apply_is_found() {
    let found = |reported: Reported, before: Option<Node>| {
        let what = format!("4s: an event that does not apply: Stream(1) reports {reported:?} behind {before:?}");
        let earlier = [(3, changed(PORT, 2, 4)), (3, created("/config/a/b", 5))];
        assert_found(&after_load(earlier.into_iter().chain([(4, Event::Reports(STREAM, reported))])), [what]);
    };
    let port = || PORT.to_owned();
    found(Reported::Created(port(), node(2, 4)), Some(node(2, 3)));
    found(Reported::Changed { path: port(), old: node(2, 2), new: node(2, 4) }, Some(node(2, 3)));
    found(Reported::Changed { path: port(), old: node(2, 3), new: node(2, 3) }, Some(node(2, 3)));
    found(Reported::Deleted(port(), node(2, 2)), Some(node(2, 3)));
    found(Reported::Deleted("/config/none".to_owned(), node(2, 3)), None);
    // Without its parent, and before its child.
    found(Reported::Created("/config/a/b".to_owned(), node(5, 5)), None);
    found(Reported::Deleted(ROOT.to_owned(), node(1, 1)), Some(node(1, 1)));
    let unknown = after_load([(3, deleted(PORT, 4)), (3, reports_deleted(PORT, node(2, 3)))]);
    assert_eq!(unknown, []);
}

#[test]
fn a_node_that_was_created_again_and_is_told_as_changed_is_found() {
    let again = || [(3, deleted(PORT, 4)), (3, created(PORT, 5))];
    let reported = after_load(again().into_iter().chain([(3, reports_changed(PORT, node(2, 3), node(5, 5)))]));
    assert_found(&reported, [format!("3s: a new node told as changed: Stream(1) has {PORT}")]);
}

#[test]
fn a_step_back_is_found_but_not_behind_a_reset() {
    let events = |then: Vec<Event>| {
        let newer = [changed(PORT, 2, 4), reports_changed(PORT, node(2, 3), node(2, 4))];
        after_load(newer.into_iter().chain(then).map(|event| (3, event)))
    };
    let found = || [format!("3s: a node that went back: Cache(1) has {PORT} of 3 after 4")];
    assert_found(&events(vec![reports_changed(PORT, node(2, 4), node(2, 3))]), found());
    assert_found(&events(vec![reports_deleted(PORT, node(2, 4)), reports_created(PORT, node(2, 3))]), found());
    let reset = vec![
        Event::Reports(STREAM, Reported::Reset),
        reports_created(ROOT, node(1, 1)),
        reports_created(PORT, node(2, 3)),
    ];
    assert_eq!(events(reset), []);
    let shown = |mzxid| shows(State::Fresh(3), [(ROOT, node(1, 1)), (PORT, node(2, mzxid))]);
    assert_found(&events(vec![shown(4), shown(3)]), found());
}

#[test]
fn contents_that_are_not_the_sum_of_the_events_are_found() {
    let found = |paths: &[&str]| [format!("3s: contents that are not the events: Stream(1): {paths:?}")];
    let shown = |events: Vec<Event>, mzxid| {
        let shown = shows(State::Fresh(3), [(ROOT, node(1, 1)), (PORT, node(2, mzxid))]);
        after_load([changed(PORT, 2, 4)].into_iter().chain(events).chain([shown]).map(|event| (3, event)))
    };
    assert_found(&shown(vec![Event::Drained(STREAM)], 4), found(&[PORT]));
    assert_found(
        &shown(vec![reports_changed(PORT, node(2, 3), node(2, 4)), Event::Drained(STREAM)], 3),
        found(&[PORT]),
    );
    let reset = vec![Event::Reports(STREAM, Reported::Reset), initialized(), Event::Drained(STREAM)];
    assert_found(&shown(reset, 3), found(&[ROOT, PORT]));
    // The stream may have more events.
    assert_eq!(shown(vec![], 4), []);
}

#[test]
fn a_state_that_names_a_later_transaction_than_the_contents_is_found() {
    let shown = |state: State, change: Event, port: Option<Node>| {
        let contents = [Some((ROOT, node(1, 1))), port.map(|port| (PORT, port))].into_iter().flatten();
        let contents = contents.map(|(path, node)| (path.to_owned(), node)).collect();
        after_load([(3, change), (3, Event::Shows(CACHE, state, contents))])
    };
    let found = |zxid: i64, shown: Option<Node>| not_fresh(zxid, PORT, shown);
    let old = || Some(node(2, 3));
    for state in [State::Fresh, State::Stale] {
        assert_found(&shown(state(4), changed(PORT, 2, 4), old()), found(4, old()));
        assert_eq!(shown(state(3), changed(PORT, 2, 4), old()), []);
        assert_eq!(shown(state(4), changed(PORT, 2, 4), Some(node(2, 4))), []);
        assert_found(&shown(state(4), deleted(PORT, 4), old()), found(4, old()));
        assert_eq!(shown(state(3), deleted(PORT, 4), old()), []);
        assert_eq!(shown(state(3), deleted(PORT, 4), None), []);
        assert_found(&shown(state(3), created("/elsewhere", 4), None), found(3, None));
        assert_eq!(shown(state(3), created("/config/new", 4), old()), []);
    }
    let missing = after_load([
        (3, created("/config/new", 4)),
        (3, shows(State::Fresh(4), [(ROOT, node(1, 1)), (PORT, node(2, 3))])),
    ]);
    assert_found(&missing, not_fresh(4, "/config/new", None));
    // Absent at transaction 4, and again.
    let gone = || [(3, deleted(PORT, 4)), (3, created(PORT, 5))];
    let shown = |zxid| after_load(gone().into_iter().chain([(3, shows(State::Fresh(zxid), [(ROOT, node(1, 1))]))]));
    assert_eq!(shown(4), []);
    assert_found(&shown(5), found(5, None));
}

#[test]
fn a_violation_that_lasts_is_found_once() {
    let old = |at| (at, shows(State::Fresh(4), [(ROOT, node(1, 1)), (PORT, node(2, 3))]));
    let found = after_load([(3, changed(PORT, 2, 4)), old(3), old(4), old(20), old(21)]);
    assert_eq!(rules_of(&found), ["contents older than their state", "a difference from the server"], "{found:?}");
}

#[test]
fn a_state_that_goes_back_is_found() {
    let shown = |zxid| shows(State::Stale(zxid), [(ROOT, node(1, 1)), (PORT, node(2, 3))]);
    assert_eq!(after_load([(3, shown(3))]), []);
    assert_found(&after_load([(3, shown(2))]), ["3s: a state that went back: Cache(1) names 2 after 3"]);
}

#[test]
fn transactions_begin_again_when_the_servers_have_lost_all_data() {
    let emptied = |then: Vec<Event>| after_load([emptied_at(0)].into_iter().chain(then).map(|event| (3, event)));
    let empty = shows(State::Fresh(1), []);
    assert_eq!(emptied(vec![empty.clone()]), []);
    let found = ["3s: a state that went back: Cache(1) names 0 after 1"];
    assert_found(&emptied(vec![empty.clone(), shows(State::Fresh(0), [])]), found);
    // The cache notices the first of two losses behind the second one.
    let late = vec![emptied_at(0), shows(State::Stale(1), []), shows(State::Fresh(0), [])];
    assert_eq!(emptied(late), []);
    let again = [created(ROOT, 1), created(PORT, 2)];
    let shown = |zxid| shows(State::Fresh(zxid), [(ROOT, node(1, 1)), (PORT, node(2, 3))]);
    assert_eq!(emptied([again.to_vec(), vec![shown(3)]].concat()), []);
    assert_found(
        &emptied([again.to_vec(), vec![shown(2)]].concat()),
        ["3s: contents older than their state: Cache(1) names 2 and shows"],
    );
    // Transaction 9 changed neither of these nodes. The cache does not know of the loss yet.
    let unaware = shows(State::Stale(9), [(ROOT, node(1, 1)), (PORT, node(2, 3))]);
    assert_eq!(emptied(vec![unaware]), []);
    let later = changed(PORT, 2, 9);
    let unaware = shows(State::Stale(3), [(ROOT, node(1, 1)), (PORT, node(2, 3))]);
    assert_eq!(emptied([again.to_vec(), vec![later, unaware]].concat()), []);
}

#[test]
fn a_cache_that_has_not_caught_up_is_found() {
    let caught_up =
        |from, zxid| after_load([(3, changed(PORT, 2, 4)), (3, Event::CaughtUp { cache: CACHE, from, zxid })]);
    assert_eq!(caught_up(3, 3), []);
    assert_found(&caught_up(4, 3), ["3s: a wait that ended early: Cache(1) has caught up with 3, before 4"]);
    assert_found(&caught_up(4, 4), not_fresh(4, PORT, Some(node(2, 3))));
}

#[test]
fn a_node_that_differs_from_the_server_is_found_but_not_in_a_fault() {
    let shown = |at, port: Option<i64>| {
        let contents = [Some((ROOT, node(1, 1))), port.map(|port| (PORT, node(2, port)))].into_iter().flatten();
        let contents = contents.map(|(path, node)| (path.to_owned(), node)).collect();
        (at, Event::Shows(CACHE, State::Fresh(3), contents))
    };
    let differs = |change: Event, at, port: Option<i64>| {
        let events = || loaded().into_iter().chain([(3, change.clone()), shown(at, port)]);
        let mut history = caches(events());
        let found = history.check(&rules());
        history.fault(seconds(4), seconds(at));
        assert_eq!(history.check(&rules()), []);
        found
    };
    let found =
        |shown: Option<Node>| [format!("3s to 9s: a difference from the server: Cache(1) shows {PORT} as {shown:?}")];
    assert_found(&differs(changed(PORT, 2, 4), 9, Some(3)), found(Some(node(2, 3))));
    assert_eq!(differs(changed(PORT, 2, 4), 8, Some(3)), []);
    assert_eq!(differs(changed(PORT, 2, 4), 9, Some(4)), []);
    assert_found(&differs(deleted(PORT, 4), 9, Some(3)), found(Some(node(2, 3))));
    assert_eq!(differs(deleted(PORT, 4), 9, None), []);
    let loading = |at| {
        let mut history = Caches::new();
        history.record(seconds(1), created(ROOT, 1));
        history.record(seconds(3), Event::Started(CACHE, Scope::new(ROOT)));
        history.record(seconds(at), shows(State::Loading, []));
        history
            .check(&rules())
            .iter()
            .any(|found| found.rule == "a difference from the server" && found.from == seconds(3))
    };
    assert!(loading(9) && !loading(8));
}

#[test]
fn a_cache_that_is_not_fresh_in_time_is_found_but_not_in_a_fault() {
    let shown = |state| shows(state, [(ROOT, node(1, 1)), (PORT, node(2, 3))]);
    let late = |state| {
        let mut history = caches(loaded().into_iter().chain([(5, shown(State::Fresh(3))), (11, shown(state))]));
        let found = history.check(&rules());
        history.fault(seconds(7), seconds(10));
        assert_eq!(history.check(&rules()), []);
        found
    };
    let found = |state: State| [format!("5s to 11s: not fresh in time: Cache(1) is {state:?}")];
    for state in [State::Loading, State::Stale(3)] {
        assert_found(&late(state), found(state));
    }
    for state in [State::Fresh(3), State::Closed] {
        assert_eq!(late(state), []);
    }
}

const ALL: Access = Access { is_denied: false, has_large_data: false, has_large_list: false };
const DENIED: Access = Access { is_denied: true, ..ALL };
const LARGE: Access = Access { has_large_data: true, ..ALL };
const LARGE_LIST: Access = Access { has_large_list: true, ..ALL };

fn access(path: &str, access: Access) -> Event {
    Event::Server(versions::Event::Access(path.to_owned(), access))
}

fn hides(path: &str) -> Event {
    Event::Hides(CACHE, [path.to_owned()].into())
}

fn fails(path: &str) -> Event {
    Event::Reports(STREAM, Reported::Failed(path.to_owned()))
}

#[test]
fn a_node_that_a_cache_cannot_show_is_found_unless_the_servers_refuse_it() {
    let root_alone = |at| [(at, hides(PORT)), (at, shows(State::Fresh(3), [(ROOT, node(1, 1))]))];
    let not_refused = |at: u64| [format!("{at}s: a node that is not refused: Cache(1) cannot show {PORT}")];
    assert_found(&after_load(root_alone(3)), not_refused(3));
    let refused = |path: &str, kind, end: Event, at| {
        let refusal = [(3, access(path, kind)), (4, access(path, ALL)), (5, end)];
        after_load(refusal.into_iter().chain(root_alone(at)))
    };
    let other = || created("/config/other", 4);
    let changes = || changed(PORT, 2, 4);
    for (path, kind) in [(PORT, LARGE), (ROOT, LARGE_LIST)] {
        let found = |at| refused(path, kind, access(PORT, ALL), at);
        assert_eq!(found(39), [], "{path} {kind:?}");
        assert_found(&found(40), not_refused(40));
    }
    // The data of the parent does not hide its children.
    assert_found(&refused(ROOT, LARGE, access(PORT, ALL), 6), not_refused(6));
    assert_found(&refused(PORT, LARGE_LIST, access(PORT, ALL), 6), not_refused(6));
    // No notification has ended the silence, or one has.
    assert_eq!(refused(PORT, DENIED, access(PORT, ALL), 99), []);
    let found = |at| refused(PORT, DENIED, changes(), at);
    assert_eq!(found(40), []);
    assert_found(&found(41), not_refused(41));
    assert_eq!(refused(ROOT, DENIED, changes(), 99), []);
    let emptied = [emptied_at(3), created(ROOT, 4), created(PORT, 5)].map(|event| (6, event));
    let denied = [(3, access(PORT, DENIED)), (3, access(PORT, ALL))];
    let found = after_load(denied.into_iter().chain(emptied).chain(root_alone(42)));
    assert!(found.iter().any(|found| not_refused(42) == [found.to_string()]), "{found:?}");
    // A failed read is reported only while it is refused.
    assert_found(&after_load([(3, fails(PORT))]), not_refused(3));
    assert_eq!(after_load([(3, other()), (3, access(PORT, LARGE_LIST)), (3, fails(PORT))]), []);
}

#[test]
fn clients_are_not_notified_of_changes_of_a_node_that_they_may_not_read() {
    let shown = |at, zxid, mzxid| (at, shows(State::Fresh(zxid), [(ROOT, node(1, 1)), (PORT, node(2, mzxid))]));
    let denied = |then: Vec<(u64, Event)>| {
        let change = [(3, access(PORT, DENIED)), (3, changed(PORT, 2, 4)), (4, access(PORT, ALL))];
        after_load(change.into_iter().chain(then))
    };
    assert_eq!(denied(vec![shown(20, 4, 3), shown(20, 4, 4)]), []);
    assert_eq!(rules_of(&denied(vec![shown(20, 4, 4), shown(20, 4, 3)])), ["a node that went back"]);
    let changes = vec![(20, changed(PORT, 2, 5))];
    assert_eq!(rules_of(&denied([changes, vec![shown(20, 5, 3)]].concat())), ["contents older than their state"]);
    // The cache cannot know of a new node, nor of the end of one.
    let new = "/config/new";
    let created = vec![(4, access(new, DENIED)), (4, created(new, 5)), (4, access(new, ALL)), shown(20, 5, 3)];
    assert_eq!(denied(created.clone()), []);
    let changes = vec![(20, changed(new, 5, 6)), shown(26, 6, 3)];
    let found = denied([created, changes].concat());
    assert_eq!(rules_of(&found), ["contents older than their state", "a difference from the server"], "{found:?}");
    assert_eq!(
        after_load([(3, access(PORT, DENIED)), (3, deleted(PORT, 4)), (3, access(PORT, ALL)), shown(20, 4, 3)]),
        []
    );
    // Nor of a new node below a denied one, until it is notified of the latter.
    let shown = |at, zxid, root| (at, shows(State::Fresh(zxid), [(ROOT, node(1, root)), (PORT, node(2, 3))]));
    let denied = [(4, access(ROOT, DENIED)), (4, changed(new, 5, 5)), (4, access(ROOT, ALL)), (5, changed(new, 5, 6))];
    let below = [denied.to_vec(), vec![shown(20, 6, 1)]].concat();
    assert_eq!(after_load(below.clone()), []);
    let found = after_load([below, vec![(20, changed(ROOT, 1, 7)), shown(21, 7, 7), shown(27, 7, 7)]].concat());
    assert_eq!(rules_of(&found), ["contents older than their state", "a difference from the server"], "{found:?}");
}

#[test]
fn the_events_of_a_node_end_with_a_failed_read_and_continue_behind_it() {
    let (root_alone, both) = (|| [(ROOT, node(1, 1))], || [(ROOT, node(1, 1)), (PORT, node(2, 3))]);
    let refused = |then: Vec<Event>| {
        let events = [access(PORT, LARGE), fails(PORT)].into_iter().chain(then);
        after_load(events.map(|event| (3, event)))
    };
    let hidden = vec![hides(PORT), Event::Drained(STREAM), shows(State::Fresh(3), root_alone())];
    assert_eq!(refused(hidden.clone()), []);
    let again = |old| vec![reports_changed(PORT, node(2, old), node(2, 3))];
    let shown = vec![Event::Hides(CACHE, BTreeSet::new()), Event::Drained(STREAM), shows(State::Fresh(3), both())];
    assert_eq!(refused([hidden, again(3), shown.clone()].concat()), []);
    assert_eq!(rules_of(&refused([again(3), again(3)].concat())), ["an event that does not apply"]);
    // Without a failed read the contents follow the events.
    let secret = vec![access(PORT, LARGE), hides(PORT), Event::Drained(STREAM), shows(State::Fresh(3), root_alone())];
    let found = after_load(secret.into_iter().map(|event| (3, event)));
    assert_eq!(rules_of(&found), ["contents that are not the events"], "{found:?}");
}

#[test]
fn a_cache_may_fail_only_while_its_root_is_refused() {
    let failed = |at| (at, shows(State::Failed, [(ROOT, node(1, 1)), (PORT, node(2, 3))]));
    let found = ["30s: a failure without a refusal: Cache(1)"];
    for kind in [LARGE_LIST, LARGE, DENIED] {
        assert_eq!(after_load([(3, access(ROOT, kind)), failed(30), failed(31)]), []);
        assert_found(&after_load([(3, access(PORT, kind)), failed(30), failed(31)])[..1], found);
    }
    let mut in_a_fault = caches(loaded().into_iter().chain([failed(30)]));
    in_a_fault.fault(seconds(3), seconds(31));
    assert_eq!(in_a_fault.check(&rules()), []);
}

#[test]
fn an_end_of_the_load_that_is_told_twice_or_early_or_never_is_found() {
    let early = ["2s: an early end of the load: Stream(1)"];
    assert_found(&check(loaded().into_iter().chain([(2, initialized())])), early);
    let empty = |events: Vec<Event>, state| {
        let shown = [Event::Drained(STREAM), Event::Shows(CACHE, state, nodes([]))];
        let mut history = Caches::new();
        history.record(seconds(2), Event::Started(CACHE, Scope::new(ROOT)));
        history.record(seconds(2), Event::Opened(STREAM, CACHE));
        events.into_iter().chain(shown).for_each(|event| history.record(seconds(2), event));
        history.check(&rules())
    };
    assert_found(&empty(vec![initialized()], State::Loading), early);
    assert_eq!(empty(vec![initialized()], State::Fresh(1)), []);
    assert_eq!(empty(vec![], State::Loading), []);
    let never = ["2s: no end of the load: Stream(1)"];
    assert_found(&empty(vec![], State::Fresh(1)), never);
    let reset = || vec![initialized(), Event::Reports(STREAM, Reported::Reset)];
    assert_found(&empty(reset(), State::Fresh(1)), never);
    assert_eq!(empty([reset(), vec![initialized()]].concat(), State::Fresh(1)), []);
}

#[test]
fn an_event_behind_the_close_is_found() {
    let closed = |reported: Event| {
        after_load([(3, deleted(PORT, 4)), (3, Event::Drained(STREAM)), (3, shows(State::Closed, [])), (4, reported)])
    };
    let reported = Reported::Deleted(PORT.to_owned(), node(2, 3));
    let found = format!("4s: an event after the close: Stream(1) reports {reported:?}");
    assert_found(&closed(Event::Reports(STREAM, reported)), [found]);
    assert_eq!(closed(Event::Drained(STREAM)), []);
}

#[test]
fn events_out_of_order_are_found() {
    for event in [
        deleted(PORT, 1),
        Event::Opened(STREAM, CACHE),
        Event::Reports(STREAM, Reported::Reset),
        Event::Drained(STREAM),
        shows(State::Fresh(1), []),
        Event::CaughtUp { cache: CACHE, from: 0, zxid: 0 },
    ] {
        let mut history = Caches::new();
        history.record(seconds(1), event.clone());
        assert_found(&history.check(&rules()), [format!("1s: an event out of order: {event:?}")]);
    }
    let earlier = created("/config/late", 2);
    let found = format!("2s: an event out of order: {earlier:?}");
    assert_found(&check([(2, earlier)]), [found]);
}

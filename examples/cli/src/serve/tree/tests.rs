//! Events, and the locks and changes that follow from them.

use super::*;

const WRITE: &str = "/w/__WRIT__0000000002";

/// A tree, and the contents of its nodes: of a session and a transaction.
#[derive(Default)]
struct Test {
    tree: Tree,
    details: HashMap<String, Detail>,
}

impl Test {
    /// Applies events of the form `+path session` and `-path`, and returns the changes as texts.
    fn apply(&mut self, events: &[&str]) -> Vec<String> {
        self.apply_as(events, false)
    }

    fn apply_as(&mut self, events: &[&str], first: bool) -> Vec<String> {
        let mut parsed = Vec::new();
        for event in events {
            let (sign, rest) = event.split_at(1);
            let (path, session) = rest.split_once(' ').unwrap_or((rest, ""));
            if let Ok(session) = session.parse() {
                let czxid = i64::try_from(self.details.len()).unwrap();
                self.details.insert(path.to_owned(), Detail { session, czxid, ..Detail::default() });
            }
            let path = path.to_owned();
            parsed.push(if sign == "+" { Event::Created(path) } else { Event::Deleted(path) });
        }
        let changes = self.tree.apply(&parsed, &self.details, 1000, first);
        let name = |change: &Change| {
            let node = change.contender.as_ref().map_or("", |c| c.path.rsplit('/').next().unwrap());
            format!("{} {node}", change.kind.word())
        };
        changes.iter().map(name).collect()
    }

    fn lock(&self, path: &str) -> (&'static str, usize, usize) {
        let lock = &self.tree.locks()[path];
        (lock.recipe.words(), lock.holders().count(), lock.waiters())
    }
}

#[test]
fn first_of_a_mutex_holds_it() {
    let mut test = Test::default();
    let changes = test.apply(&["+/m 0", "+/m/lock-0000000001 1", "+/m/lock-0000000002 2", "-/m/lock-0000000001"]);
    assert_eq!(
        changes,
        ["granted lock-0000000001", "waits lock-0000000002", "released lock-0000000001", "granted lock-0000000002"]
    );
    assert_eq!(test.lock("/m"), ("mutex", 1, 0));
    assert_eq!(test.apply(&["-/m/lock-0000000002", "-/m"]), ["released lock-0000000002", "lock_deleted "]);
    assert!(test.tree.locks().is_empty());
}

#[test]
fn free_lock_stays_listed_while_its_node_exists() {
    let mut test = Test::default();
    test.apply(&["+/m", "+/m/latch-0000000001 1", "-/m/latch-0000000001", "+/never"]);
    assert_eq!(test.lock("/m"), ("leader latch", 0, 0));
    assert_eq!(test.tree.locks().len(), 1);
}

#[test]
fn candidate_with_the_number_of_the_leader_is_next() {
    let mut test = Test::default();
    let [leader, next] = [1, 2].map(|id| format!("/m/_c_00000000-0000-4000-8000-00000000000{id}-latch-0000000005"));
    test.apply(&["+/m", &format!("+{leader} 1"), "+/m/latch-0000000006 2"]);
    // A hand-over: the candidate moves ahead, then the leader resigns.
    test.apply(&[&format!("+{next} 3")]);
    let keys: Vec<String> = test.tree.locks()["/m"].contenders.iter().map(|node| node.key()).collect();
    assert!(keys.is_sorted_by(|one, other| one < other), "{keys:?}");
    let changes = test.apply(&[&format!("-{leader}")]);
    assert_eq!(changes[1], format!("granted {}", &next["/m/".len()..]));
}

#[test]
fn readers_hold_up_to_the_first_writer() {
    let mut test = Test::default();
    let read = |number| format!("+/w/__READ__000000000{number} 1{number}");
    test.apply(&[&read(0), &read(1), &format!("+{WRITE} 9"), &read(3)]);
    assert_eq!(test.lock("/w"), ("read-write lock", 2, 2));
    let changes = test.apply(&["-/w/__READ__0000000000", "-/w/__READ__0000000001"]);
    assert_eq!(changes.last().unwrap(), "granted __WRIT__0000000002");
    assert_eq!(test.apply(&[&format!("-{WRITE}")])[1], "granted __READ__0000000003");
}

#[test]
fn lease_under_a_turn_is_not_held_yet() {
    let mut test = Test::default();
    // Session 1 has the only lease. Session 2 has the turn, and has created its lease.
    test.apply(&["+/s", "+/s/locks", "+/s/leases", "+/s/leases/lease-0000000000 1"]);
    let changes = test.apply(&["+/s/locks/lock-0000000001 2", "+/s/leases/lease-0000000001 2"]);
    assert_eq!(changes[0], "waits lock-0000000001");
    // Its wait ends with the grant of its lease.
    let changes = [test.apply(&["-/s/leases/lease-0000000000"]), test.apply(&["-/s/locks/lock-0000000001"])].concat();
    assert_eq!(changes, ["released lease-0000000000", "granted lease-0000000001"]);
    assert_eq!(test.lock("/s"), ("semaphore", 1, 0));
    assert!(!test.tree.locks().contains_key("/s/leases") && !test.tree.locks().contains_key("/s/locks"));
    // A node that was gone before it could be read was a try without success.
    assert!(test.apply(&["+/s/leases/lease-0000000002", "-/s/leases/lease-0000000002"]).is_empty());
}

#[test]
fn paths_named_like_parts_of_a_semaphore_are_locks() {
    let mut test = Test::default();
    test.apply(&["+/app/locks/a/lock-0000000000 1", "+/app/locks/lock-0000000000 1", "+/app/leases", "+/app/leases/b"]);
    assert_eq!(test.tree.locks().keys().collect::<Vec<_>>(), ["/app/locks", "/app/locks/a"]);
    // The served path is the inner one.
    let mut test = Test::default();
    test.apply(&["+/s/leases", "+/s/leases/lease-0000000000 1"]);
    assert_eq!(test.lock("/s/leases"), ("semaphore", 1, 0));
}

#[test]
fn session_that_ends_grants_nothing_to_its_own_nodes() {
    let mut test = Test::default();
    test.apply(&["+/m/lock-0000000000 1", "+/m/lock-0000000001 1", "+/m/lock-0000000002 2", "+/n/lock-0000000000 1"]);
    let changes = test.apply(&["-/m/lock-0000000000", "-/n/lock-0000000000", "-/m/lock-0000000001"]);
    assert_eq!(
        changes,
        [
            "gone_with_session lock-0000000000",
            "gone_with_session lock-0000000000",
            "gone_with_session lock-0000000001",
            "granted lock-0000000002",
        ]
    );
}

#[test]
fn persistent_node_with_the_name_of_a_contender_is_a_path() {
    let mut test = Test::default();
    test.apply(&["+/m", "+/m/lock-0 0", "+/m/lock-0/lock-0000000000 1"]);
    assert_eq!(test.tree.locks().keys().collect::<Vec<_>>(), ["/m/lock-0"]);
    // It blocks a lock above it.
    let mut changes = test.apply(&["+/m/lock-0000000001 2"]);
    assert_eq!((changes.remove(0).as_str(), test.lock("/m")), ("waits lock-0000000001", ("mutex", 0, 1)));
    assert_eq!(test.tree.locks()["/m"].blocked_by.as_deref(), Some("/m/lock-0"));
    let changes = test.apply(&["-/m/lock-0/lock-0000000000", "-/m/lock-0"]);
    assert_eq!(changes, ["released lock-0000000000", "lock_deleted ", "granted lock-0000000001"]);
    assert_eq!(test.tree.locks()["/m"].blocked_by, None);
    // Readers wait for writers alone.
    test.apply(&["+/w", "+/w/__READ__0000000000 0", "+/w/__READ__0000000001 1", &format!("+{WRITE} 2")]);
    assert_eq!(test.lock("/w"), ("read-write lock", 1, 1));
    assert_eq!(test.tree.locks()["/w"].blocked_by.as_deref(), Some("/w/__READ__0000000000"));
}

#[test]
fn persistent_lease_hides_no_semaphore() {
    let mut test = Test::default();
    test.apply(&["+/s", "+/s/locks", "+/s/leases", "+/s/leases/lease-0 0", "+/s/leases/lease-0000000001 1"]);
    assert_eq!(test.lock("/s"), ("semaphore", 1, 0));
}

#[test]
fn contender_in_place_of_a_persistent_node_is_seen() {
    let mut test = Test::default();
    test.apply(&["+/m", "+/m/lock-0000000000 0"]);
    let path = "/m/lock-0000000000".to_owned();
    test.details.insert(path.clone(), Detail { session: 2, czxid: 99, ..Detail::default() });
    test.tree.apply(&[Event::Changed(path.clone())], &test.details, 1, false);
    assert_eq!(test.lock("/m"), ("mutex", 1, 0));
    test.details.insert(path.clone(), Detail { session: 0, czxid: 100, ..Detail::default() });
    test.tree.apply(&[Event::Changed(path)], &test.details, 1, false);
    assert_eq!(test.lock("/m"), ("mutex", 0, 0));
}

#[test]
fn first_look_is_not_a_change() {
    let mut test = Test::default();
    assert!(test.apply_as(&["+/m/lock-0000000000 1", "+/m/lock-0000000001 2"], true).is_empty());
    assert_eq!(test.lock("/m"), ("mutex", 1, 1));
    assert_eq!(test.tree.locks()["/m"].contenders[0].granted, None);
}

#[test]
fn order_near_the_end_of_the_counter_is_that_of_creation() {
    let mut test = Test::default();
    let names = ["lock-2147483646", "lock-2147483647", "lock--2147483648", "lock-0000000005"];
    test.apply(&names.map(|name| format!("+/m/{name} 1")).each_ref().map(String::as_str));
    let order = test.tree.locks()["/m"].contenders.iter().map(|node| node.path.rsplit('/').next().unwrap());
    assert_eq!(
        order.collect::<Vec<_>>(),
        ["lock-0000000005", "lock-2147483646", "lock-2147483647", "lock--2147483648"]
    );
}

#[test]
fn new_listing_is_a_difference() {
    let mut test = Test::default();
    test.apply(&["+/m", "+/m/lock-0000000000 1", "+/m/sub", "+/m/sub/lock-0000000000 1"]);
    let listing = ["lock-0000000002", "lock-0000000001", "other"].map(ToOwned::to_owned);
    let events = test.tree.differences("/m", Some(&listing));
    let expected = [
        Event::Deleted("/m/lock-0000000000".to_owned()),
        Event::Deleted("/m/sub".to_owned()),
        Event::Created("/m/other".to_owned()),
        Event::Created("/m/lock-0000000001".to_owned()),
        Event::Created("/m/lock-0000000002".to_owned()),
    ];
    assert_eq!(events, expected);
    assert_eq!(test.tree.differences("/m", None), [Event::Deleted("/m".to_owned())]);
    assert_eq!(test.tree.differences("/missing", None), []);
    test.tree.apply(&events, &HashMap::new(), 0, false);
    assert_eq!(test.tree.differences("/m", Some(&listing)), []);
}

#[test]
fn another_node_of_the_same_name_is_a_release_and_a_grant() {
    let mut test = Test::default();
    test.apply(&["+/m/lock-0000000000 1"]);
    let path = "/m/lock-0000000000".to_owned();
    test.details.insert(path.clone(), Detail { session: 2, czxid: 99, ..Detail::default() });
    let changes = test.tree.apply(&[Event::Changed(path)], &test.details, 1, false);
    let kinds: Vec<_> = changes.iter().map(|change| change.kind).collect();
    assert_eq!(kinds, [ChangeKind::Released, ChangeKind::Granted]);
}

#[test]
fn writer_of_kazoo_excludes_its_readers() {
    let mut test = Test::default();
    let node = |name: &str, number: u8| format!("+/k/0123456789abcdef0123456789abcdef{name}000000000{number} {number}");
    let changes = test.apply(&[&node("__rlock__", 1), &node("__lock__", 2), &node("__rlock__", 3)]);
    assert_eq!(changes.iter().map(|change| &change[..5]).collect::<Vec<_>>(), ["grant", "waits", "waits"]);
    assert_eq!(test.lock("/k"), ("read-write lock", 1, 2));
}

//! Persistent watches beside the one-shot watches of the same client: neither takes an event from the other. A server
//! before 3.9 has one watch for each path and session (ZOOKEEPER-4466).

use curator_framework::{
    Acl, AddWatchMode, CreateMode, CuratorFramework, Error, EventType, PersistentEvent, PersistentWatcher, Session,
    WakeReason, Watch, WatchedEvent,
};
use curator_integration::env::{self, eventually, in_time};
use curator_integration::on_every_server;
use curator_test::TestingServer;

use super::{connected, second};

const MODES: [AddWatchMode; 2] = [AddWatchMode::Persistent, AddWatchMode::PersistentRecursive];

pub(super) type Heard = (EventType, String);

async fn changed(watcher: &mut PersistentWatcher) -> Heard {
    match in_time(watcher.recv()).await.unwrap().unwrap() {
        PersistentEvent::Changed(WatchedEvent { event_type, path }) => (event_type, path),
        other => panic!("{other:?}"),
    }
}

/// Returns the events that have arrived.
pub(super) async fn heard(watcher: &mut PersistentWatcher) -> Vec<Heard> {
    let mut heard = Vec::new();
    while let Ok(event) = watcher.try_recv() {
        match event.unwrap() {
            PersistentEvent::Changed(WatchedEvent { event_type, path }) => heard.push((event_type, path)),
            other => panic!("{other:?}"),
        }
    }
    heard
}

pub(super) async fn create(client: &CuratorFramework, path: &str) {
    client.create().creating_parents_if_needed().for_path(path).await.unwrap();
}

/// The reads that set a watch on a node that exists.
const READS: [&str; 3] = ["exists", "getData", "getChildren"];

async fn watch(session: &Session, read: &str, path: &str) -> Watch {
    match read {
        "exists" => session.exists_watched(path).await.unwrap().1,
        "getData" => session.get_data_watched(path).await.unwrap().watch,
        _ => session.get_children_watched(path).await.unwrap().1,
    }
}

/// Makes a change that fires the watch of a read.
async fn fire(by: &CuratorFramework, read: &str, path: &str, round: usize) -> EventType {
    if read == "getChildren" {
        create(by, &format!("{path}/{round}")).await;
        return EventType::NodeChildrenChanged;
    }
    by.set_data().for_path(path, "x").await.unwrap();
    EventType::NodeDataChanged
}

/// Returns the event that a persistent watch gets for a change.
fn heard_of(mode: AddWatchMode, event: EventType, path: &str, round: usize) -> Heard {
    match (mode, event) {
        (AddWatchMode::PersistentRecursive, EventType::NodeChildrenChanged) => {
            (EventType::NodeCreated, format!("{path}/{round}"))
        }
        _ => (event, path.to_owned()),
    }
}

/// Returns the event that a persistent watch of the parent gets for the creation or deletion of a child.
fn heard_of_child(mode: AddWatchMode, event: EventType, parent: &str, child: &str) -> Heard {
    match mode {
        AddWatchMode::PersistentRecursive => (event, format!("{parent}/{child}")),
        _ => (EventType::NodeChildrenChanged, parent.to_owned()),
    }
}

on_every_server! {
    async fn persistent_watch_and_one_shot_watches_of_its_path_hear_every_change(env) {
        let (client, other) = (connected(env.address()).await, env.client().await);
        let session = client.session().await.unwrap();
        for (number, mode) in MODES.into_iter().enumerate() {
            let path = env.path(&number.to_string());
            create(&other, &path).await;
            let mut watcher = client.add_watch(&path, mode).await.unwrap();
            for round in 0..6 {
                let read = READS[round % 3];
                let once = watch(&session, read, &path).await;
                let event = fire(&other, read, &path, round).await;
                assert_eq!(in_time(once).await, WakeReason::Event(event), "{mode:?} {read}");
                assert_eq!(changed(&mut watcher).await, heard_of(mode, event, &path, round), "{mode:?} {read}");
                // One that is dropped takes nothing with it.
                drop(watch(&session, read, &path).await);
                client.sync("/").await.unwrap();
                let event = fire(&other, read, &path, round + 10).await;
                assert_eq!(changed(&mut watcher).await, heard_of(mode, event, &path, round + 10), "{mode:?} {read}");
            }
            let gone = watch(&session, "exists", &env.path("missing")).await;
            create(&other, &env.path("missing")).await;
            in_time(gone).await;
            other.delete().for_path(&env.path("missing")).await.unwrap();
        }
    }

    async fn one_shot_watches_below_a_recursive_subscription_take_nothing_from_it(env) {
        let (client, other) = (connected(env.address()).await, env.client().await);
        let session = client.session().await.unwrap();
        let root = env.path("tree");
        create(&other, &root).await;
        let mut recursive = client.add_watch(&root, AddWatchMode::PersistentRecursive).await.unwrap();
        let mut expected = Vec::new();
        for (round, read) in READS.into_iter().chain(READS).enumerate() {
            let path = format!("{root}/{round}");
            create(&other, &path).await;
            expected.push((EventType::NodeCreated, path.clone()));
            // A watch that fires, one that is removed, a deeper subscription that is removed, and a deletion.
            let once = watch(&session, read, &path).await;
            let event = fire(&other, read, &path, round).await;
            expected.push(heard_of(AddWatchMode::PersistentRecursive, event, &path, round));
            assert_eq!(in_time(once).await, WakeReason::Event(event), "{read}");
            drop(watch(&session, read, &path).await);
            drop(client.add_watch(&path, MODES[round % 2]).await.unwrap());
            client.sync("/").await.unwrap();
            let event = fire(&other, read, &path, round + 10).await;
            expected.push(heard_of(AddWatchMode::PersistentRecursive, event, &path, round + 10));
            let gone = watch(&session, read, &path).await;
            for child in other.get_children().for_path(&path).await.unwrap() {
                other.delete().for_path(&format!("{path}/{child}")).await.unwrap();
                expected.push((EventType::NodeDeleted, format!("{path}/{child}")));
            }
            other.delete().for_path(&path).await.unwrap();
            expected.push((EventType::NodeDeleted, path.clone()));
            in_time(gone).await;
        }
        client.sync("/").await.unwrap();
        assert_eq!(heard(&mut recursive).await, expected);
    }

    async fn subscription_keeps_its_events_when_another_one_of_its_path_is_dropped(env) {
        let (client, other) = (connected(env.address()).await, env.client().await);
        let namespaced = client.using_namespace(env.path("")[1..].trim_end_matches('/')).unwrap();
        create(&other, &env.path("parent")).await;
        for (round, [kept, dropped]) in
            MODES.into_iter().flat_map(|kept| MODES.map(|dropped| [kept, dropped])).enumerate()
        {
            for is_older in [true, false] {
                let name = format!("/parent/{round}-{is_older}");
                let path = env.path(&name[1..]);
                create(&other, &path).await;
                let mut first = None;
                if !is_older {
                    first = Some(client.add_watch(&path, dropped).await.unwrap());
                }
                // In a namespace, so that the paths differ for the client.
                let mut watcher = namespaced.add_watch(&name, kept).await.unwrap();
                let dropped_later = match first {
                    Some(first) => first,
                    None => client.add_watch(&path, dropped).await.unwrap(),
                };
                let expected = |event, child: &str| heard_of_child(kept, event, &name, child);
                let told = format!("{kept:?}, {dropped:?}, older: {is_older}");
                create(&other, &format!("{path}/a")).await;
                assert_eq!(changed(&mut watcher).await, expected(EventType::NodeCreated, "a"), "{told}, both");
                other.set_data().for_path(&path, "x").await.unwrap();
                assert_eq!(changed(&mut watcher).await, (EventType::NodeDataChanged, name.clone()), "{told}, both");
                drop(dropped_later);
                client.sync("/").await.unwrap();
                create(&other, &format!("{path}/b")).await;
                assert_eq!(changed(&mut watcher).await, expected(EventType::NodeCreated, "b"), "{told}");
                other.set_data().for_path(&path, "x").await.unwrap();
                assert_eq!(changed(&mut watcher).await, (EventType::NodeDataChanged, name.clone()), "{told}");
                other.delete().for_path(&format!("{path}/b")).await.unwrap();
                assert_eq!(changed(&mut watcher).await, expected(EventType::NodeDeleted, "b"), "{told}");
                client.sync("/").await.unwrap();
                assert_eq!(heard(&mut watcher).await, [], "{told}");
            }
        }
    }

    async fn watch_of_a_missing_node_fires_once_from_a_subscription(env) {
        let (client, other) = (connected(env.address()).await, env.client().await);
        create(&other, &env.path("parent")).await;
        let path = env.path("parent/node");
        for mode in MODES {
            let mut watcher = client.add_watch(&path, mode).await.unwrap();
            let (stat, created) = client.check_exists().watched().for_path(&path).await.unwrap();
            assert!(stat.is_none());
            create(&other, &path).await;
            assert_eq!(in_time(created).await, WakeReason::Event(EventType::NodeCreated));
            other.set_data().for_path(&path, "x").await.unwrap();
            let deleted = client.get_data().watched().for_path(&path).await.unwrap().1;
            let children = client.get_children().watched().for_path(&path).await.unwrap().1;
            other.delete().for_path(&path).await.unwrap();
            for watch in [deleted, children] {
                assert_eq!(in_time(watch).await, WakeReason::Event(EventType::NodeDeleted));
            }
            for event_type in [EventType::NodeCreated, EventType::NodeDataChanged, EventType::NodeDeleted] {
                assert_eq!(changed(&mut watcher).await, (event_type, path.clone()), "{mode:?}");
            }
        }
    }

    async fn one_shot_watches_fire_or_wake_their_waiters_when_a_subscription_of_their_path_comes_and_leaves(env) {
        let (client, other) = (connected(env.address()).await, env.client().await);
        let session = client.session().await.unwrap();
        for (number, mode) in MODES.into_iter().enumerate() {
            for (round, read) in READS.into_iter().chain(READS).chain(READS).enumerate() {
                let path = env.path(&format!("{number}-{round}"));
                create(&other, &path).await;
                // Set before a subscription, within one, or both, and then it is dropped.
                let mut before = if round / 3 == 1 { None } else { Some(watch(&session, read, &path).await) };
                let watcher = client.add_watch(&path, mode).await.unwrap();
                let mut within = if round / 3 == 0 { None } else { Some(watch(&session, read, &path).await) };
                let kept = Some(watcher).filter(|_| round / 3 == 0);
                client.sync("/").await.unwrap();
                if kept.is_none() {
                    for watch in before.take().into_iter().chain(within.take()) {
                        assert_eq!(in_time(watch).await, WakeReason::WatchRemoved, "{mode:?} {read} {round}");
                    }
                    within = Some(watch(&session, read, &path).await);
                } else if (mode, read) == (AddWatchMode::PersistentRecursive, "getChildren") {
                    // A server before 3.9 has one watch for it and the subscription.
                    let replaced = before.replace(watch(&session, read, &path).await).unwrap();
                    assert_eq!(in_time(replaced).await, WakeReason::WatchRemoved);
                }
                let event = fire(&other, read, &path, round).await;
                for watch in before.into_iter().chain(within) {
                    assert_eq!(in_time(watch).await, WakeReason::Event(event), "{mode:?} {read} {round}");
                }
                drop(kept);
            }
        }
    }

    async fn served_watches_hear_of_a_change_while_the_connection_was_lost(env) {
        let proxy = env.proxy();
        let (client, other) = (env::connected(second(proxy.address())).await, env.client().await);
        let session = client.session().await.unwrap();
        for (round, mode) in MODES.into_iter().enumerate() {
            for (changes, read) in READS.into_iter().enumerate().chain(READS.into_iter().enumerate()) {
                let path = env.path(&format!("{round}-{changes}-{read}"));
                let is_first = client.check_exists().for_path(&path).await.unwrap().is_none();
                if is_first {
                    create(&other, &path).await;
                }
                let mut watcher = client.add_watch(&path, mode).await.unwrap();
                let once = watch(&session, read, &path).await;
                let epoch = session.epoch();
                proxy.refuse();
                proxy.reset();
                eventually("disconnected", async || !session.is_connected()).await;
                let mut event = None;
                if is_first {
                    event = Some(fire(&other, read, &path, 20).await);
                }
                proxy.accept();
                eventually("attached again", async || session.epoch() > epoch).await;
                // The other change is one of the next connection.
                let event = match event {
                    Some(event) => event,
                    None => fire(&other, read, &path, 21).await,
                };
                assert_eq!(in_time(once).await, WakeReason::Event(event), "{mode:?} {read}");
                while !matches!(in_time(watcher.recv()).await, Some(Ok(PersistentEvent::Reset))) {}
                let event = fire(&other, read, &path, 30 + usize::from(is_first)).await;
                let expected = heard_of(mode, event, &path, 30 + usize::from(is_first));
                while changed(&mut watcher).await != expected {}
            }
        }
    }

    /// So the change of the children cannot be derived from the events below: a server sends none of a node that the
    /// session must not read.
    async fn children_watch_of_a_subscribed_path_fires_for_a_child_that_the_session_must_not_read(env) {
        let client = connected(env.address()).await;
        let other = env::connected(second(env.address()).authorization("digest", "other:secret")).await;
        let path = env.path("parent");
        create(&other, &path).await;
        let mut watcher = client.add_watch(&path, AddWatchMode::PersistentRecursive).await.unwrap();
        let children = client.get_children().watched().for_path(&path).await.unwrap().1;
        let session = other.session().await.unwrap();
        let hidden = format!("{path}/hidden");
        session.create(&hidden, Vec::new(), Acl::creator_all(), CreateMode::Persistent).await.unwrap();
        assert_eq!(in_time(children).await, WakeReason::Event(EventType::NodeChildrenChanged));
        create(&other, &format!("{path}/shown")).await;
        assert_eq!(changed(&mut watcher).await, (EventType::NodeCreated, format!("{path}/shown")));
    }
}

#[tokio::test]
async fn subscription_leaves_nothing_on_the_server() {
    let server = TestingServer::start().unwrap();
    let client = connected(server.address()).await;
    client.create().for_path("/a").await.unwrap();
    for mode in MODES {
        let watcher = client.add_watch("/a", mode).await.unwrap();
        let data = client.get_data().watched().for_path("/a").await.unwrap().1;
        let children = client.get_children().watched().for_path("/a").await.unwrap().1;
        drop(watcher);
        let woken = [in_time(data).await, in_time(children).await];
        assert_eq!((woken, server.watch_count()), ([WakeReason::WatchRemoved; 2], 0));
    }
    let error = client.get_data().watched().for_path("/none").await.map(drop);
    assert!(matches!(error, Err(Error::NoNode { .. })), "{error:?}");
}

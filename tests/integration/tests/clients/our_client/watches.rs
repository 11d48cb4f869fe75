//! Watches: in order, removed without a waiter, and those that stay.

use curator_framework::{
    AddWatchMode, ConnectionState, Error, EventType, PersistentEvent, PersistentWatcher, WakeReason, WatchedEvent,
};
use curator_integration::env::{connected as connect, eventually, in_time};
use curator_integration::on_every_server;
use curator_test::TestingServer;
use curator_test::wire::OpCode;
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::{connected, second};

async fn changed(watcher: &mut PersistentWatcher) -> (EventType, String) {
    match in_time(watcher.recv()).await.unwrap().unwrap() {
        PersistentEvent::Changed(WatchedEvent { event_type, path }) => (event_type, path),
        other => panic!("{other:?}"),
    }
}

/// Curator's `TestWatchesBuilder.testRemoveWatch`, `testRemoveAllWatches` and their like: a watch is removed with its
/// last waiter.
#[tokio::test]
async fn a_watch_that_is_dropped_is_removed_from_the_server() {
    let server = TestingServer::start().unwrap();
    let client = connected(server.address()).await;
    client.create().for_path("/a").await.unwrap();
    let data = client.check_exists().watched().for_path("/a").await.unwrap().1;
    let same = client.get_data().watched().for_path("/a").await.unwrap().1;
    let children = client.get_children().watched().for_path("/a").await.unwrap().1;
    let missing = client.check_exists().watched().for_path("/missing").await.unwrap().1;
    assert_eq!(server.watch_count(), 3);
    drop(data);
    client.sync("/").await.unwrap();
    assert_eq!(server.watch_count(), 3, "somebody still waits");
    drop(same);
    eventually("the data watch is removed", async || server.watch_count() == 2).await;
    drop(missing);
    eventually("that on a missing node too", async || server.watch_count() == 1).await;
    drop(children);
    eventually("and that on the children", async || server.watch_count() == 0).await;
    // Curator's `testRemoveUnregisteredWatcher`: one that has fired is not removed again.
    server.clear_requests();
    let watch = client.check_exists().watched().for_path("/a").await.unwrap().1;
    client.delete().for_path("/a").await.unwrap();
    in_time(watch).await;
    client.sync("/").await.unwrap();
    assert!(!server.requests().iter().any(|request| request.op == OpCode::RemoveWatches));
    // And one that is dropped while its read is under way leaves nothing.
    for _ in 0..20 {
        let reading = client.check_exists().watched();
        drop(tokio::time::timeout(std::time::Duration::ZERO, reading.for_path("/b")).await);
    }
    client.sync("/").await.unwrap();
    eventually("none is left", async || server.watch_count() == 0).await;
}

/// One worker polls the task that a reply wakes ahead of the session's own task.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn notification_reaches_waiters_before_the_replies_that_follow_it_on_the_wire() {
    let server = TestingServer::start().unwrap();
    let client = connected(server.address()).await;
    let session = client.session().await.unwrap();
    let rounds = tokio::spawn(async move {
        for round in 0..50 {
            client.create().for_path("/a").await.unwrap();
            let first = session.exists_watched("/a").await.unwrap().1;
            session.delete("/a", None).await.unwrap();
            let has_fired = first.has_fired();
            let (stat, next) = session.exists_watched("/a").await.unwrap();
            client.sync("/").await.unwrap();
            assert!(has_fired && stat.is_none() && !next.has_fired(), "{round}: {has_fired}, {}", next.has_fired());
            drop(next);
        }
        client.sync("/").await.unwrap();
    });
    in_time(rounds).await.unwrap();
    assert_eq!(server.watch_count(), 0);
}

/// The event of the watch before wakes the waiter of a read that is on its way, and that sets a new watch behind it.
#[tokio::test]
async fn watch_that_is_set_behind_the_event_that_woke_its_waiter_is_removed() {
    let server = TestingServer::start().unwrap();
    let client = connected(server.address()).await;
    let session = client.session().await.unwrap();
    for is_dropped_early in [false, true] {
        client.create().for_path("/a").await.unwrap();
        let first = session.exists_watched("/a").await.unwrap().1;
        let mut reading = Box::pin(session.exists_watched("/a"));
        let deleting = session.in_one_write(async {
            tokio::join!(session.delete("/a", None), async {
                let polled = futures_util::poll!(&mut reading);
                assert!(polled.is_pending());
            })
        });
        deleting.await.0.unwrap();
        assert!(first.has_fired());
        drop(first);
        if is_dropped_early {
            drop(reading);
        } else {
            let (stat, watch) = reading.await.unwrap();
            assert!(stat.is_none() && watch.has_fired());
            client.sync("/").await.unwrap();
            assert_eq!(server.watch_count(), 1);
        }
        client.sync("/").await.unwrap();
        assert_eq!(server.watch_count(), 0, "dropped early: {is_dropped_early}");
    }
}

/// Curator's `TestWatchesBuilder.testGuaranteedRemoveWatch`: watches are set again after a reconnect, but not this one.
#[tokio::test]
async fn a_watch_that_is_dropped_in_an_outage_is_removed_after_it() {
    let server = TestingServer::start().unwrap();
    let proxy = curator_test::FaultProxy::start(server.address()).unwrap();
    let client = connect(second(proxy.address())).await;
    let session = client.session().await.unwrap();
    let (dropped, kept) =
        (session.exists_watched("/a").await.unwrap().1, session.exists_watched("/b").await.unwrap().1);
    proxy.refuse();
    proxy.reset();
    let mut state = client.watch_connection_state();
    in_time(state.wait_for(|state| *state == Some(ConnectionState::Suspended))).await.unwrap();
    drop(dropped);
    proxy.accept();
    in_time(session.connected()).await.unwrap();
    client.sync("/").await.unwrap();
    eventually("the other one is set again", async || server.watch_count() == 1).await;
    client.create().for_path("/b").await.unwrap();
    in_time(kept).await;
    assert_eq!(server.watch_count(), 0);
}

on_every_server! {
    /// The hand-over of a lock rests on that: a contender does not have the lock if its node was deleted first.
    async fn events_come_in_the_order_in_which_they_happened(env) {
        const NODES: usize = 200;
        let (client, other) = (connected(env.address()).await, connected(env.address()).await);
        let session = client.session().await.unwrap();
        for round in 0..5 {
            let paths: Vec<_> = (0..NODES).map(|number| env.path(&format!("{round}/{number}"))).collect();
            for path in &paths {
                other.create().creating_parents_if_needed().for_path(path).await.unwrap();
            }
            let mut watches = FuturesUnordered::new();
            // In another order than that in which they go.
            for (number, path) in paths.iter().enumerate().rev() {
                let watch = session.exists_watched(path).await.unwrap().1;
                watches.push(async move { watch.await; number });
            }
            // Each is polled once, so that from now on they come in the order in which they are woken.
            for _ in 0..NODES {
                std::future::poll_fn(|cx| {
                    assert!(watches.poll_next_unpin(cx).is_pending());
                    std::task::Poll::Ready(())
                })
                .await;
            }
            // All at once, so that their events come in one burst.
            let deletes = paths.iter().map(curator_framework::CuratorOp::delete);
            // Regardless of tokio's budget, which would put some back.
            let seen = tokio::task::coop::unconstrained(watches.by_ref().collect::<Vec<_>>());
            let (deleted, seen) = tokio::join!(other.transaction().operations(deletes).commit(), in_time(seen));
            assert_eq!(deleted.unwrap().len(), NODES);
            assert!(seen.is_sorted(), "{seen:?}");
        }
    }

    async fn waiter_that_a_reconnect_wakes_sends_requests_on_the_new_connection(env) {
        let proxy = env.proxy();
        let (client, other) = (connect(second(proxy.address())).await, env.client().await);
        let session = client.session().await.unwrap();
        for round in 0..10 {
            let path = env.path(&round.to_string());
            other.create().creating_parents_if_needed().for_path(&path).await.unwrap();
            let watch = session.exists_watched(&path).await.unwrap().1;
            let waiter = tokio::spawn({
                let (session, path) = (session.clone(), path.clone());
                async move {
                    let reason = watch.await;
                    (reason, session.exists(&path).await)
                }
            });
            proxy.refuse();
            proxy.reset();
            eventually("disconnected", async || !session.is_connected()).await;
            other.delete().for_path(&path).await.unwrap();
            proxy.accept();
            let (reason, stat) = in_time(waiter).await.unwrap();
            assert_eq!((reason, stat.unwrap()), (WakeReason::Event(EventType::NodeDeleted), None));
        }
    }

    /// Curator's `TestWatchesBuilder.testPersistentWatch`.
    async fn a_persistent_watch_fires_again_and_again(env) {
        let (client, other) = (connected(env.address()).await, env.client().await);
        let path = env.path("node");
        let mut watcher = client.add_watch(&path, AddWatchMode::Persistent).await.unwrap();
        other.create().creating_parents_if_needed().for_path(&path).await.unwrap();
        other.set_data().for_path(&path, "x").await.unwrap();
        other.set_data().for_path(&path, "x").await.unwrap();
        other.create().for_path(&format!("{path}/child")).await.unwrap();
        use EventType::{NodeChildrenChanged, NodeCreated, NodeDataChanged};
        for event in [NodeCreated, NodeDataChanged, NodeDataChanged, NodeChildrenChanged] {
            assert_eq!(changed(&mut watcher).await, (event, path.clone()));
        }
    }

    /// Curator's `TestWatchesBuilder.testPersistentRecursiveWatch`, in a namespace.
    async fn a_recursive_watch_tells_of_all_that_is_below(env) {
        let client = connected(env.address()).await.using_namespace(&env.path("ns")[1..]).unwrap();
        client.create().creating_parents_if_needed().for_path("/top").await.unwrap();
        let mut watcher = client.add_watch("/top", AddWatchMode::PersistentRecursive).await.unwrap();
        for path in ["/top/a", "/top/a/b", "/top/a/b/c"] {
            client.create().for_path(path).await.unwrap();
        }
        client.delete().for_path("/top/a/b/c").await.unwrap();
        use EventType::{NodeCreated, NodeDeleted};
        for (event, path) in
            [(NodeCreated, "/top/a"), (NodeCreated, "/top/a/b"), (NodeCreated, "/top/a/b/c"), (NodeDeleted, "/top/a/b/c")]
        {
            assert_eq!(changed(&mut watcher).await, (event, path.to_owned()));
        }
        client.close().await;
        let ended = in_time(watcher.recv()).await.unwrap();
        assert!(matches!(ended, Err(Error::Closed)), "{ended:?}");
        assert!(in_time(watcher.recv()).await.is_none() && watcher.try_recv().is_err());
        let late = in_time(client.add_watch("/top", AddWatchMode::Persistent)).await;
        assert!(matches!(late, Err(Error::Closed)), "{late:?}");
    }

    /// The crate itself forgets it at a reconnect.
    async fn a_persistent_watch_is_set_anew_after_a_reconnect_and_in_the_next_session(env) {
        let proxy = env.proxy();
        let client = connect(second(proxy.address())).await;
        let other = env.client().await;
        let path = env.path("node");
        other.create().creating_parents_if_needed().for_path(&path).await.unwrap();
        for mode in [AddWatchMode::Persistent, AddWatchMode::PersistentRecursive] {
            let mut watcher = client.add_watch(&path, mode).await.unwrap();
            proxy.reset();
            assert_eq!(in_time(watcher.recv()).await.unwrap().unwrap(), PersistentEvent::Reset);
            other.set_data().for_path(&path, "x").await.unwrap();
            assert_eq!(changed(&mut watcher).await, (EventType::NodeDataChanged, path.clone()));
            let own = env.path("own");
            let session = client.session().await.unwrap();
            session.create(&own, Vec::new(), curator_framework::Acl::open_unsafe(), curator_framework::CreateMode::Ephemeral).await.unwrap();
            env.kill_owner_of(&other, &own).await;
            in_time(session.ended()).await;
            assert_eq!(in_time(watcher.recv()).await.unwrap().unwrap(), PersistentEvent::Reset);
            other.set_data().for_path(&path, "x").await.unwrap();
            assert_eq!(changed(&mut watcher).await, (EventType::NodeDataChanged, path.clone()));
        }
        let mut state = client.watch_connection_state();
        in_time(state.wait_for(|state| state.is_some_and(ConnectionState::is_connected))).await.unwrap();
    }
}

#[tokio::test]
async fn a_persistent_watch_that_is_dropped_is_removed_from_the_server() {
    let server = TestingServer::start().unwrap();
    let client = connected(server.address()).await;
    let watcher = client.add_watch("/a", AddWatchMode::Persistent).await.unwrap();
    let recursive = client.add_watch("/b", AddWatchMode::PersistentRecursive).await.unwrap();
    let (both, removed) =
        (server.watch_count(), || server.requests().iter().filter(|one| one.op == OpCode::RemoveWatches).count());
    assert!(both >= 2);
    drop(watcher);
    eventually("it is removed", async || removed() == 1 && server.watch_count() < both).await;
    drop(recursive);
    eventually("the other one too", async || server.watch_count() == 0).await;
}

#[tokio::test]
async fn unread_watch_does_not_keep_the_session_open() {
    let server = TestingServer::start().unwrap();
    let client = connected(server.address()).await;
    let mut adding = Box::pin(client.add_watch("/a", AddWatchMode::Persistent));
    assert!(futures_util::poll!(&mut adding).is_pending());
    in_time(client.close()).await;
    eventually("the session is closed", async || server.sessions().is_empty()).await;
    drop(adding);
}

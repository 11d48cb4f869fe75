//! Watches: Curator's `TestWatcherRemovalManager`, `TestWatcherIdentity` and what of `TestWatchesBuilder` a client without
//! a request to remove watches can do. A watcher object does not exist: each watch is a future, and dropping it removes
//! it.

use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{
    ConnectionState, CreateMode, CuratorFramework, Error, EventType, WakeReason, Watch, make_path,
};
use curator_integration::env::{Env, builder, connected, in_time};
use curator_integration::on_every_server;
use curator_test::{TestingServer, kill_session};
use futures_util::FutureExt;

use crate::ground::{GROUNDS, exists, impatient, in_namespace, run, take_down};

async fn node(client: &CuratorFramework, path: &str) -> String {
    client.create().creating_parents_if_needed().or_set_data().for_path(path).await.unwrap()
}

async fn watch_data(client: &CuratorFramework, path: &str) -> Watch {
    client.get_data().watched().for_path(path).await.unwrap().1
}

async fn watch_children(client: &CuratorFramework, path: &str) -> Watch {
    client.get_children().watched().for_path(path).await.unwrap().1
}

fn is_silent(watch: &mut Watch) -> bool {
    watch.now_or_never().is_none()
}

on_every_server! {
    async fn a_watch_on_a_node_that_is_there_can_be_joined(env) {
        let client = env.client().await;
        let session = client.session().await.unwrap();
        let (there, missing) = (node(&client, &env.path("there")).await, env.path("missing"));
        assert!(session.share_watch(&there).is_none(), "nobody watches it");
        let (stat, created) = session.exists_watched(&missing).await.unwrap();
        assert!(stat.is_none() && session.share_watch(&missing).is_none(), "it is watched, but not there");
        for looks in [true, false] {
            let first = if looks {
                session.exists_watched(&there).await.unwrap().1
            } else {
                session.get_data_watched(&there).await.unwrap().watch
            };
            let joined = session.share_watch(&there).unwrap();
            // A waiter that joined stays when the first one goes.
            drop(first);
            client.set_data().for_path(&there, "x").await.unwrap();
            assert_eq!(in_time(joined).await, WakeReason::Event(EventType::NodeDataChanged));
            assert!(session.share_watch(&there).is_none(), "the watch is spent");
        }
        node(&client, &missing).await;
        assert_eq!(in_time(created).await, WakeReason::Event(EventType::NodeCreated));
    }

    /// Curator's `TestWatcherRemovalManager.testSameWatcherDifferentPaths1Triggered` and
    /// `testSameWatcherDifferentPaths`.
    async fn watches_on_different_paths_go_one_by_one(env) {
        let client = env.client().await;
        let (a, b) = (node(&client, &env.path("a")).await, node(&client, &env.path("b")).await);
        let (first, mut second) = (watch_data(&client, &a).await, watch_data(&client, &b).await);
        assert_eq!(client.watched_paths(), [a.clone(), b.clone()]);
        client.set_data().for_path(&a, "x").await.unwrap();
        assert_eq!(in_time(first).await, WakeReason::Event(EventType::NodeDataChanged));
        assert!(is_silent(&mut second));
        assert_eq!(client.watched_paths(), [b]);
        drop(second);
        assert_eq!(client.watchers(), 0);
    }

    /// Curator's `TestWatcherRemovalManager.testSameWatcherDifferentKinds1Triggered` and
    /// `testSameWatcherDifferentKinds`.
    async fn watches_of_different_kinds_go_one_by_one(env) {
        let client = env.client().await;
        let path = node(&client, &env.path("node")).await;
        let (data, mut children) = (watch_data(&client, &path).await, watch_children(&client, &path).await);
        let (_, looked) = client.check_exists().watched().for_path(&path).await.unwrap();
        assert_eq!(client.watchers(), 3);
        client.set_data().for_path(&path, "x").await.unwrap();
        assert_eq!(in_time(data).await, WakeReason::Event(EventType::NodeDataChanged));
        assert_eq!(in_time(looked).await, WakeReason::Event(EventType::NodeDataChanged));
        assert!(is_silent(&mut children));
        assert_eq!(client.watchers(), 1);
        client.create().for_path(&format!("{path}/child")).await.unwrap();
        assert_eq!(in_time(children).await, WakeReason::Event(EventType::NodeChildrenChanged));
        let (data, children) = (watch_data(&client, &path).await, watch_children(&client, &path).await);
        client.delete().deleting_children_if_needed().for_path(&path).await.unwrap();
        assert_eq!(in_time(children).await, WakeReason::Event(EventType::NodeChildrenChanged));
        assert_eq!(in_time(data).await, WakeReason::Event(EventType::NodeDeleted));
        assert_eq!(client.watchers(), 0);
    }

    /// Curator's `TestWatcherRemovalManager.testMissingNode` and `testMissingNodeInBackground`: a read that failed leaves
    /// no watch; a check of a missing node does, for its creation.
    async fn a_read_that_failed_leaves_no_watch(env) {
        let client = env.client().await;
        for background in GROUNDS {
            let path = env.path(&format!("none-{background}/node"));
            let (reader, missing) = (client.clone(), path.clone());
            let read = run(background, async move { reader.get_data().watched().for_path(&missing).await });
            assert!(matches!(read.await, Err(Error::NoNode { .. })));
            let (lister, missing) = (client.clone(), path.clone());
            let listed = run(background, async move { lister.get_children().watched().for_path(&missing).await });
            assert!(matches!(listed.await, Err(Error::NoNode { .. })));
            assert_eq!(client.watched_paths(), [""; 0]);
            let (found, watch) = client.check_exists().watched().for_path(&path).await.unwrap();
            assert_eq!((found, client.watchers()), (None, 1));
            node(&client, &path).await;
            assert_eq!(in_time(watch).await, WakeReason::Event(EventType::NodeCreated));
        }
    }

    /// Curator's `TestWatcherRemovalManager.testWithRetry` and `testWithRetryInBackground`.
    async fn a_read_that_lost_its_connection_leaves_no_watch(env) {
        let proxy = env.proxy();
        let client = connected(impatient(&proxy)).await;
        take_down(&proxy);
        for background in GROUNDS {
            let reader = client.clone();
            let read = run(background, async move { reader.get_data().watched().for_path("/").await }).await;
            assert!(read.is_err_and(|error| error.is_retryable()));
            assert_eq!(client.watchers(), 0);
        }
    }

    /// Curator's `TestWatcherRemovalManager.testBasic`, `testBasicNamespace1`, `testBasicNamespace2` and
    /// `testBasicNamespace3`, and `TestWatchesBuilder.testRemoveLocalWatch` and `testRemoveLocalWatchInBackground`.
    async fn a_watch_that_is_dropped_is_removed_in_every_namespace(env) {
        let (inside, namespace) = in_namespace(&env, "ns").await;
        let outside = inside.using_namespace("").unwrap();
        let other = inside.using_namespace(&env.path("other")[1..]).unwrap();
        for client in [&inside, &other] {
            node(client, "/node").await;
        }
        let watches = [
            watch_data(&inside, "/node").await,
            watch_data(&outside, &format!("{namespace}/node")).await,
            watch_data(&other, "/node").await,
        ];
        assert_eq!(outside.watched_paths(), [format!("{namespace}/node"), env.path("other/node")]);
        assert_eq!(inside.watchers(), 3);
        let [first, second, third] = watches;
        drop(first);
        inside.set_data().for_path("/node", "x").await.unwrap();
        // The same node under its other name.
        assert_eq!(in_time(second).await, WakeReason::Event(EventType::NodeDataChanged));
        tokio::spawn(async move { drop(third) }).await.unwrap();
        assert_eq!(outside.watchers(), 0);
    }

    /// Curator's `TestWatcherRemovalManager.testTriggered` and `testResetFromWatcher`.
    async fn a_watch_that_fired_is_gone_until_it_is_set_again(env) {
        let client = env.client().await;
        let path = node(&client, &env.path("node")).await;
        let mut watch = watch_data(&client, &path).await;
        for version in 1..4 {
            assert_eq!(client.watchers(), 1);
            client.set_data().for_path(&path, "new").await.unwrap();
            assert_eq!(in_time(&mut watch).await, WakeReason::Event(EventType::NodeDataChanged));
            assert_eq!(client.watchers(), 0);
            let ((_, stat), again) = client.get_data().watched().for_path(&path).await.unwrap();
            assert_eq!(stat.version, version);
            watch = again;
        }
    }

    /// Curator's `TestWatcherIdentity.testSameWatcherPerZKDocs` and `testSameCuratorWatcherPerZKDocs`: one change is one
    /// event for each waiter.
    async fn each_waiter_is_woken_once(env) {
        let client = env.client().await;
        let path = node(&client, &env.path("node")).await;
        let mut watches = Vec::new();
        for _ in 0..3 {
            watches.push(watch_data(&client, &path).await);
            watches.push(client.check_exists().watched().for_path(&path).await.unwrap().1);
        }
        client.set_data().for_path(&path, "x").await.unwrap();
        client.delete().for_path(&path).await.unwrap();
        for watch in watches {
            assert_eq!(in_time(watch).await, WakeReason::Event(EventType::NodeDataChanged));
        }
    }

    /// Curator's `TestFramework.testBackgroundGetDataWithWatch` and `testNamespaceWithWatcher`.
    async fn a_watch_in_a_namespace_is_for_its_own_node(env) {
        let (client, namespace) = in_namespace(&env, "ns").await;
        let outside = client.using_namespace(&env.path("")[1..env.path("").len() - 1]).unwrap();
        for (client, path) in [(&client, "/node"), (&outside, "/node")] {
            node(client, path).await;
        }
        let reader = client.clone();
        let read = run(true, async move { reader.get_data().watched().for_path("/node").await });
        let (_, mut watch) = read.await.unwrap();
        assert_eq!(client.watched_paths(), [format!("{namespace}/node")]);
        outside.set_data().for_path("/node", "x").await.unwrap();
        // Events come in order: the first one's would be here.
        let beacon = watch_data(&outside, "/node").await;
        outside.set_data().for_path("/node", "x").await.unwrap();
        in_time(beacon).await;
        assert!(is_silent(&mut watch));
        client.set_data().for_path("/node", "x").await.unwrap();
        assert_eq!(in_time(watch).await, WakeReason::Event(EventType::NodeDataChanged));
    }

    /// A connection that was lost wakes all waiters, because what happened in the meantime is not known.
    async fn watches_survive_a_reconnect(env) {
        let (proxy, direct) = (env.proxy(), env.client().await);
        let client = connected(builder(proxy.address()).session_timeout(Duration::from_secs(60))).await;
        let path = node(&client, &env.path("node")).await;
        let missing = env.path("missing");
        let (_, created) = client.check_exists().watched().for_path(&missing).await.unwrap();
        let mut watches = [watch_data(&client, &path).await, watch_children(&client, &path).await];
        let (mut state, session) = (client.watch_connection_state(), client.session().await.unwrap());
        proxy.refuse();
        proxy.reset();
        in_time(state.wait_for(|state| *state == Some(ConnectionState::Suspended))).await.unwrap();
        // One change while the connection is away, two behind it.
        node(&direct, &missing).await;
        proxy.accept();
        assert_eq!(in_time(created).await, WakeReason::Event(EventType::NodeCreated));
        assert_eq!(session.epoch(), 2);
        assert!(watches.iter_mut().all(is_silent), "a reconnect wakes no waiter");
        node(&direct, &make_path(&path, "child")).await;
        client.set_data().for_path(&path, "x").await.unwrap();
        let [data, children] = watches;
        assert_eq!(in_time(data).await, WakeReason::Event(EventType::NodeDataChanged));
        assert_eq!(in_time(children).await, WakeReason::Event(EventType::NodeChildrenChanged));
        assert_eq!(client.watchers(), 0);
    }

    /// Curator's `TestFrameworkEdges.testSessionKilled` and `testInjectSessionExpiration`.
    async fn a_killed_session_is_told_to_watches_and_costs_no_data(env) {
        let client = env.client().await;
        let node = env.path("node");
        client.create().creating_parents_if_needed().with_data("stays").for_path(&node).await.unwrap();
        let session = client.session().await.unwrap();
        let ephemeral = client.create().with_mode(CreateMode::Ephemeral);
        let (_, stat) = ephemeral.for_path_with_stat(&env.path("ephemeral")).await.unwrap();
        let (_, mut watch) = client.check_exists().watched().for_path(&env.path("never")).await.unwrap();
        kill_session(env.address(), stat.ephemeral_owner).await.unwrap();
        // It may have attached again before the session was closed. A watch that is set then may be the next session's.
        loop {
            let reason = in_time(async {
                tokio::select! {
                    biased;
                    reason = &mut watch => Some(reason),
                    _ = session.ended() => None,
                }
            });
            match reason.await {
                Some(WakeReason::Reconnected) => {}
                Some(reason) => break assert!(matches!(reason, WakeReason::SessionEnded(_)), "{reason:?}"),
                None => break,
            }
            watch = client.check_exists().watched().for_path(&env.path("never")).await.unwrap().1;
        }
        assert_eq!(in_time(client.get_data().for_path(&node)).await.unwrap().0, b"stays");
        let mut state = client.watch_connection_state();
        in_time(state.wait_for(|state| state.is_some_and(ConnectionState::is_connected))).await.unwrap();
        assert!(!exists(&client, &env.path("ephemeral")).await);
    }
}

/// Curator's `TestWatcherRemovalManager.testSameWatcher`: however many wait, the server has one watch.
#[tokio::test]
async fn the_server_keeps_one_watch_for_each_path_and_kind() {
    let server = TestingServer::start().unwrap();
    let client = connected(builder(server.address())).await;
    let path = node(&client, "/node").await;
    let before = server.watch_count();
    let mut watches = Vec::new();
    for _ in 0..10 {
        watches.push(watch_data(&client, &path).await);
        watches.push(watch_children(&client, &path).await);
    }
    assert_eq!((client.watchers(), server.watch_count()), (20, before + 2));
}

/// A client that is closed ends every watch.
#[tokio::test]
async fn a_close_ends_every_watch() {
    let env = Env::new(curator_integration::env::Kind::InProcess);
    let client = env.client().await;
    let watch = watch_data(&client, "/").await;
    in_time(client.close()).await;
    assert!(matches!(in_time(watch).await, WakeReason::SessionEnded(_)));
}

//! Deletes that are guaranteed: Curator's `TestFailedDeleteManager`.

use std::time::Duration;

use curator_framework::{ConnectionState, CreateMode, CuratorFramework, Error};
use curator_integration::env::{Env, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_test::{FaultProxy, kill_session};

use crate::ground::{GROUNDS, cut_off, exists, impatient, run, take_down};

/// A guaranteed delete fails while no client can connect and the session is killed. In the next session it is done.
async fn deleted_after_a_lost_session(
    env: &Env,
    proxy: &FaultProxy,
    client: &CuratorFramework,
    node: &str,
    full: &str,
) {
    let direct = env.client().await;
    let (_, owner) = client
        .create()
        .creating_parents_if_needed()
        .with_mode(CreateMode::Ephemeral)
        .for_path_with_stat(&format!("{node}-of-session"))
        .await
        .unwrap();
    client.create().for_path(node).await.unwrap();
    take_down(proxy);
    let deleted = in_time(client.delete().guaranteed().for_path(node)).await;
    assert!(matches!(deleted, Err(Error::ConnectionLoss { .. } | Error::SessionExpired { .. })), "{deleted:?}");
    assert!(exists(&direct, full).await);
    kill_session(env.address(), owner.ephemeral_owner).await.unwrap();
    assert!(exists(&direct, full).await, "it does not go with the session");
    proxy.accept();
    eventually("it is deleted", async || !exists(&direct, full).await).await;
}

on_every_server! {
    /// Curator's `TestFailedDeleteManager.testLostSession`.
    async fn a_guaranteed_delete_outlives_its_session(env) {
        let proxy = env.proxy();
        let client = connected(impatient(&proxy)).await;
        let node = env.path("node");
        deleted_after_a_lost_session(&env, &proxy, &client, &node, &node).await;
    }

    /// Curator's `TestFailedDeleteManager.testWithNamespaceAndLostSession`.
    async fn a_guaranteed_delete_outlives_its_session_in_the_clients_namespace(env) {
        let proxy = env.proxy();
        let namespace = env.path("ns");
        let client = connected(impatient(&proxy).namespace(&namespace[1..])).await;
        deleted_after_a_lost_session(&env, &proxy, &client, "/node", &format!("{namespace}/node")).await;
    }

    /// Curator's `TestFailedDeleteManager.testWithNamespaceAndLostSessionAlt`.
    async fn a_guaranteed_delete_outlives_its_session_in_another_namespace(env) {
        let proxy = env.proxy();
        let namespace = env.path("ns");
        let client = connected(impatient(&proxy)).await.using_namespace(&namespace[1..]).unwrap();
        deleted_after_a_lost_session(&env, &proxy, &client, "/node", &format!("{namespace}/node")).await;
    }

    /// Curator's `TestFailedDeleteManager.testBasic`.
    async fn a_plain_delete_that_failed_is_not_tried_later(env) {
        let (proxy, direct) = (env.proxy(), env.client().await);
        let client = connected(impatient(&proxy)).await;
        let (plain, guaranteed) = (env.path("plain"), env.path("guaranteed"));
        for node in [&plain, &guaranteed] {
            client.create().creating_parents_if_needed().for_path(node).await.unwrap();
        }
        take_down(&proxy);
        // The plain one first: when the other is done, it would have been.
        assert!(in_time(client.delete().for_path(&plain)).await.unwrap_err().is_retryable());
        assert!(in_time(client.delete().guaranteed().for_path(&guaranteed)).await.unwrap_err().is_retryable());
        proxy.accept();
        eventually("the guaranteed one is done", async || !exists(&direct, &guaranteed).await).await;
        let mut state = client.watch_connection_state();
        in_time(state.wait_for(|state| state.is_some_and(ConnectionState::is_connected))).await.unwrap();
        client.check_exists().for_path(&plain).await.unwrap();
        assert!(exists(&direct, &plain).await);
    }

    /// Curator's `TestFailedDeleteManager.testGuaranteedDeleteOnNonExistentNodeInForeground` and
    /// `testGuaranteedDeleteOnNonExistentNodeInBackground`: what cannot succeed is not kept for later (CURATOR-42).
    async fn a_guaranteed_delete_that_is_refused_is_not_tried_later(env) {
        let client = env.client().await;
        for background in GROUNDS {
            let node = env.path(&format!("node-{background}"));
            let delete = |version: i32| {
                let (client, node) = (client.clone(), node.clone());
                run(background, async move { client.delete().guaranteed().with_version(version).for_path(&node).await })
            };
            assert!(matches!(delete(-1).await, Err(Error::NoNode { .. })));
            client.create().creating_parents_if_needed().for_path(&node).await.unwrap();
            assert!(matches!(delete(3).await, Err(Error::BadVersion { .. })));
            client.create().for_path(&format!("{node}/child")).await.unwrap();
            assert!(matches!(delete(0).await, Err(Error::NotEmpty { .. })));
            client.delete().for_path(&format!("{node}/child")).await.unwrap();
            client.set_data().for_path(&node, "version 1").await.unwrap();
        }
        // What is left to delete is deleted before a client closes; had something been kept, it would be.
        in_time(client.close()).await;
        let other = env.client().await;
        assert!(exists(&other, &env.path("node-false")).await && exists(&other, &env.path("node-true")).await);
    }

    /// What is tried later is the same delete: its version and its children count. (Curator forgets both.)
    async fn what_goes_on_is_the_same_delete(env) {
        let (proxy, direct) = (env.proxy(), env.client().await);
        let client = connected(impatient(&proxy)).await;
        let (tree, changed) = (env.path("tree"), env.path("changed"));
        for node in [&format!("{tree}/a/b"), &changed] {
            client.create().creating_parents_if_needed().for_path(node).await.unwrap();
        }
        take_down(&proxy);
        let delete = client.delete().guaranteed().with_version(0);
        assert!(in_time(delete.for_path(&changed)).await.unwrap_err().is_retryable());
        let delete = client.delete().guaranteed().deleting_children_if_needed();
        assert!(in_time(delete.for_path(&tree)).await.unwrap_err().is_retryable());
        direct.set_data().for_path(&changed, "by somebody else").await.unwrap();
        proxy.accept();
        eventually("the tree is gone", async || !exists(&direct, &tree).await).await;
        in_time(client.close()).await;
        assert!(exists(&direct, &changed).await);
    }

    /// A delete continues when its future is dropped half-way, even after its client's next session started.
    async fn a_guaranteed_delete_that_is_dropped_goes_on(env) {
        let (proxy, direct) = (env.proxy(), env.client().await);
        let client = connected(impatient(&proxy)).await;
        let node = env.path("node");
        client.create().creating_parents_if_needed().for_path(&node).await.unwrap();
        cut_off(&proxy, &client).await;
        let delete = client.delete().guaranteed().for_path(&node);
        tokio::time::timeout(Duration::from_millis(50), delete).await.unwrap_err();
        proxy.accept();
        eventually("it is deleted", async || !exists(&direct, &node).await).await;
    }

    /// The close does not wait for it either.
    async fn background_delete_leaves_a_node_with_children(env) {
        let client = connected(curator_integration::env::builder(env.address()).max_close_wait(Duration::MAX)).await;
        let (node, other) = (env.path("node"), env.client().await);
        let created = client.create().creating_parents_if_needed().for_path_with_stat(&node).await.unwrap().1;
        other.create().for_path(&format!("{node}/child")).await.unwrap();
        let session = client.session().await.unwrap();
        for czxid in [None, Some(created.czxid)] {
            session.delete_in_background(&node, CreateMode::Persistent, czxid);
        }
        in_time(client.close()).await;
        assert!(exists(&other, &node).await);
    }
}

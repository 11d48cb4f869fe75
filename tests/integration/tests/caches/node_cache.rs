//! The older cache of one node.

use std::sync::Arc;
use std::time::Duration;

use curator_framework::CuratorOp;
use curator_integration::env::{self, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{CacheError, CacheState, CuratorCacheOptions, NodeCache, PathChildrenCache};
use parking_lot::Mutex;

use crate::faces::{Brief, arrived, assert_next, create, delete, set};
use crate::stage::commit;

on_every_server! {
    async fn changes_of_the_node_are_reported(env) {
        let (client, path) = (env.client().await, env.path("node"));
        let cache = NodeCache::new(client.clone(), &path).unwrap();
        assert_eq!(cache.path(), path);
        in_time(cache.start_with_initial_build()).await.unwrap();
        let mut events = cache.changes();
        assert_eq!(cache.current_data(), None);
        create(&client, &path, "a").await;
        assert_next(&mut events, &["a"]).await;
        assert_eq!(cache.current_data().unwrap().data, b"a");
        set(&client, &path, "b").await;
        assert_next(&mut events, &["b"]).await;
        assert_eq!(cache.current_data().unwrap().data, b"b");
        delete(&client, &path).await;
        assert_next(&mut events, &["none"]).await;
        assert_eq!(cache.current_data(), None);
        cache.close().await;
        assert!(in_time(events.recv()).await.is_none());
        cache.close().await;
        assert!(matches!(cache.state(), CacheState::Closed));
    }

    async fn a_node_that_is_created_again_is_two_changes(env) {
        let (client, path) = (env.client().await, env.path("node"));
        create(&client, &path, "one").await;
        let cache = NodeCache::new(client.clone(), &path).unwrap();
        let mut events = cache.changes();
        in_time(cache.start_with_initial_build()).await.unwrap();
        assert_eq!(cache.current_data().unwrap().data, b"one");
        delete(&client, &path).await;
        create(&client, &path, "two").await;
        assert_next(&mut events, &["none", "two"]).await;
        commit(&client, [CuratorOp::delete(&path), CuratorOp::create(&path).with_data("three")]).await;
        assert_next(&mut events, &["none", "three"]).await;
        assert_eq!(cache.current_data().unwrap().data, b"three");
    }

    async fn a_start_without_the_build_reports_the_node(env) {
        let (client, path) = (env.client().await, env.path("node"));
        create(&client, &path, "one").await;
        let cache = NodeCache::new(client.clone(), &path).unwrap();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let listener = Arc::clone(&heard);
        let id = cache.add_listener(move |change| listener.lock().push(change.brief()));
        cache.start().unwrap();
        assert!(matches!(cache.start(), Err(CacheError::AlreadyStarted { .. })));
        assert!(matches!(cache.start_with_initial_build().await, Err(CacheError::AlreadyStarted { .. })));
        eventually("the node", async || *heard.lock() == ["one"]).await;
        set(&client, &path, "two").await;
        eventually("the change", async || *heard.lock() == ["one", "two"]).await;
        cache.remove_listener(id);
        set(&client, &path, "three").await;
        in_time(cache.synced()).await.unwrap();
        assert_eq!(cache.current_data().unwrap().data, b"three");
        assert_eq!(heard.lock().len(), 2);
    }

    async fn writes_beside_a_rebuild_are_reported(env) {
        let (client, other, path) = (env.client().await, env.client().await, env.path("node"));
        create(&client, &path, "original").await;
        let cache = NodeCache::new(client, &path).unwrap();
        assert!(matches!(cache.rebuild().await, Err(CacheError::NotStarted { .. })));
        in_time(cache.start_with_initial_build()).await.unwrap();
        let mut events = cache.changes();
        let (rebuilt, ()) = tokio::join!(in_time(cache.rebuild()), set(&other, &path, "other"));
        rebuilt.unwrap();
        in_time(cache.synced()).await.unwrap();
        assert_eq!(cache.current_data().unwrap().data, b"other");
        assert_eq!(arrived(&mut events), ["other"]);
        cache.close().await;
        assert!(matches!(cache.rebuild().await, Err(CacheError::Closed { .. })));
    }

    async fn the_node_survives_a_killed_session(env) {
        let (client, other, path) = (env.client().await, env.client().await, env.path("node"));
        create(&client, &path, "start").await;
        let cache = NodeCache::new(client.clone(), &path).unwrap();
        in_time(cache.start_with_initial_build()).await.unwrap();
        let mut events = cache.changes();
        let session = client.session().await.unwrap();
        env.kill_session(&session).await;
        eventually("a new session", async || client.session().await.is_ok_and(|new| !new.is_same(&session))).await;
        in_time(cache.synced()).await.unwrap();
        assert_eq!(cache.current_data().unwrap().data, b"start");
        assert_eq!(arrived(&mut events), [""; 0], "nothing has changed");
        set(&other, &path, "new data").await;
        assert_next(&mut events, &["new data"]).await;
    }

    async fn another_depth_than_that_of_the_cache_is_refused(env) {
        let (client, path) = (env.client().await, env.path("node"));
        let depth = |levels| CuratorCacheOptions::new().max_depth(levels);
        for (levels, node, children) in [(0, true, false), (1, false, true), (2, false, false)] {
            let refused = [
                NodeCache::with_options(client.clone(), &path, depth(levels)).err(),
                PathChildrenCache::with_options(client.clone(), &path, depth(levels)).err(),
            ];
            assert_eq!(refused.each_ref().map(Option::is_none), [node, children], "{refused:?}");
            let is_named = |error| matches!(error, CacheError::InvalidArgument { argument: "max_depth", .. });
            assert!(refused.into_iter().flatten().all(is_named));
        }
    }

    async fn a_slow_reader_hears_of_the_last_change(env) {
        let (client, path) = (env.client().await, env.path("node"));
        create(&client, &path, "0").await;
        let options = CuratorCacheOptions::new().max_events(2);
        let cache = NodeCache::with_options(client.clone(), &path, options).unwrap();
        in_time(cache.start_with_initial_build()).await.unwrap();
        let mut events = cache.changes();
        for number in 1..=5 {
            set(&client, &path, &number.to_string()).await;
            in_time(cache.synced()).await.unwrap();
        }
        assert_eq!(arrived(&mut events), ["5"]);
        for number in 6..=8 {
            set(&client, &path, &number.to_string()).await;
            in_time(cache.synced()).await.unwrap();
        }
        delete(&client, &path).await;
        in_time(cache.synced()).await.unwrap();
        assert_eq!(arrived(&mut events), ["none"]);
    }
}

#[tokio::test]
async fn a_node_cache_needs_a_path() {
    let client =
        env::builder("127.0.0.1:1".parse().unwrap()).connection_timeout(Duration::from_secs(1)).build().unwrap();
    assert!(NodeCache::new(client, "node").is_err());
}

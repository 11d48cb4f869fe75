//! A cache follows a tree: in one session, over lost connections, in a new session.

use std::collections::BTreeMap;
use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{Acl, CreateMode, CuratorFramework, Error, Permission};
use curator_integration::clients::{is_zookeeper_async, with_client};
use curator_integration::env::{self, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{CacheError, CacheEvent, CacheState, CuratorCache, CuratorCacheOptions, Lookup};

use crate::stage::{Replay, Reported, contents, loaded};

async fn set(client: &CuratorFramework, path: &str, data: &str) {
    client.set_data().for_path(path, data).await.unwrap();
}

async fn create(client: &CuratorFramework, path: &str, data: &str) {
    client.create().creating_parents_if_needed().with_data(data).for_path(path).await.unwrap();
}

async fn delete(client: &CuratorFramework, path: &str) {
    client.delete().deleting_children_if_needed().for_path(path).await.unwrap();
}

fn nodes(nodes: &[(&str, &str)], root: &str) -> BTreeMap<String, Vec<u8>> {
    nodes.iter().map(|(path, data)| (format!("{root}{path}"), data.as_bytes().to_vec())).collect()
}

on_every_server! {
    async fn a_cache_shows_each_change(env) {
        let (client, other, root) = (env.client().await, env.client().await, env.path("tree"));
        let path = |path: &str| format!("{root}{path}");
        let cache = loaded(&client, &root, CuratorCacheOptions::new()).await;
        assert_eq!((cache.get(&root), cache.len()), (Lookup::Missing, 0));
        let (mut events, mut replay) = (cache.changes(), Replay::default());
        assert_eq!(replay.arrived(&mut events), [Reported::Initialized]);

        create(&other, &path("/a/b"), "1").await;
        set(&other, &path("/a"), "0").await;
        other.create().with_mode(CreateMode::Ephemeral).with_data("e").for_path(&path("/e")).await.unwrap();
        set(&other, &root, "root").await;
        in_time(cache.synced()).await.unwrap();
        assert_eq!(contents(&cache), nodes(&[("", "root"), ("/a", "0"), ("/a/b", "1"), ("/e", "e")], &root));
        replay.arrived(&mut events);

        set(&other, &path("/a/b"), "2").await;
        in_time(cache.synced()).await.unwrap();
        assert_eq!(replay.arrived(&mut events), [Reported::Changed(path("/a/b"))]);
        create(&other, &path("/a/c"), "3").await;
        delete(&other, &path("/e")).await;
        in_time(cache.synced()).await.unwrap();
        let mut reported = replay.arrived(&mut events);
        reported.sort();
        assert_eq!(reported, [Reported::Created(path("/a/c")), Reported::Deleted(path("/e"))]);
        delete(&other, &root).await;
        in_time(cache.synced()).await.unwrap();
        assert_eq!(replay.arrived(&mut events).len(), 4);
        assert!(cache.is_empty() && replay.0.is_empty());
        create(&other, &path("/a/b"), "4").await;
        in_time(cache.synced()).await.unwrap();
        assert_eq!(contents(&cache).len(), 3);
        replay.arrived(&mut events);
        assert_eq!(replay.0.len(), 3);
        cache.close().await;
        assert_eq!(client.watchers(), 0);
    }

    async fn a_cache_follows_over_lost_connections_and_sessions(env) {
        let (proxy, other, root) = (env.proxy(), env.client().await, env.path("tree"));
        let builder = env::builder(proxy.address()).session_timeout(Duration::from_secs(60));
        let client = env::connected(with_client(builder)).await;
        for number in 0..20 {
            create(&other, &format!("{root}/{number}/child"), "old").await;
        }
        let cache = loaded(&client, &root, CuratorCacheOptions::new()).await;
        let (mut events, mut replay) = (cache.changes(), Replay::default());
        replay.arrived(&mut events);
        for round in 0..4 {
            let (session, owned) = (client.session().await.unwrap(), env.path("owned"));
            if round == 3 {
                client.create().with_mode(CreateMode::Ephemeral).for_path(&owned).await.unwrap();
            }
            proxy.refuse();
            proxy.reset();
            in_time(cache.watch().wait_for(|state| matches!(state, CacheState::Stale { .. }))).await.unwrap();
            let child = |number: i32| format!("{root}/{number}/child");
            set(&other, &child(round), "new").await;
            delete(&other, &format!("{root}/{}", 10 + round)).await;
            create(&other, &format!("{root}/new-{round}/child"), "new").await;
            delete(&other, &child(4 + round)).await;
            create(&other, &child(4 + round), "again").await;
            if round == 3 {
                env.kill_owner_of(&other, &owned).await;
            }
            proxy.accept();
            eventually("connected again", async || client.is_connected()).await;
            if round == 3 {
                eventually("a new session", async || {
                    client.session().await.is_ok_and(|new| !new.is_same(&session))
                })
                .await;
            }
            in_time(cache.watch().wait_for(CacheState::is_fresh)).await.unwrap();
            in_time(cache.synced()).await.unwrap();
            let mut reported = replay.arrived(&mut events);
            reported.sort();
            let gone = format!("{root}/{}", 10 + round);
            let mut expected = vec![
                Reported::Changed(child(round)),
                Reported::Deleted(format!("{gone}/child")),
                Reported::Deleted(gone),
                Reported::Created(format!("{root}/new-{round}")),
                Reported::Created(format!("{root}/new-{round}/child")),
                Reported::Deleted(child(4 + round)),
                Reported::Created(child(4 + round)),
            ];
            expected.sort();
            assert_eq!(reported, expected, "round {round}");
        }
    }

    async fn nodes_that_may_not_be_read_are_told_before_the_end_of_the_load(env) {
        let (client, root) = (env.client().await, env.path("tree"));
        let unreadable = || vec![Acl::new(Permission::ADMIN | Permission::DELETE, "world", "anyone")];
        let secret = format!("{root}/secret");
        client.create().creating_parents_if_needed().with_acl(unreadable()).for_path(&secret).await.unwrap();
        let reported = async || {
            let cache = CuratorCache::new(client.clone(), &root).unwrap();
            let mut events = cache.changes();
            cache.start().unwrap();
            let initialized = in_time(cache.initialized()).await;
            let reported: Vec<_> = std::iter::from_fn(|| events.try_recv().ok()).collect();
            cache.close().await;
            (initialized, reported)
        };
        let (initialized, events) = reported().await;
        assert!(initialized.is_ok());
        match events.as_slice() {
            [CacheEvent::Created(node), CacheEvent::Failed { path, .. }, CacheEvent::Initialized] => {
                assert_eq!((&node.path, path), (&root, &secret));
            }
            other => panic!("{other:?}"),
        }
        client.set_acl().with_acl(unreadable()).for_path(&root).await.unwrap();
        let (initialized, events) = reported().await;
        assert!(matches!(initialized, Err(CacheError::Framework(Error::NoAuth { .. }))), "{initialized:?}");
        assert!(matches!(events.as_slice(), [CacheEvent::Failed { path, .. }] if *path == root), "{events:?}");
    }

    async fn a_client_without_persistent_watches_refuses_large_trees(env) {
        if !is_zookeeper_async() {
            return;
        }
        let (client, root) = (env.client().await, env.path("tree"));
        for number in 0..20 {
            create(&client, &format!("{root}/{number}"), "").await;
        }
        let options = CuratorCacheOptions::new().max_watched_nodes(20);
        let cache = CuratorCache::with_options(client.clone(), &root, options).unwrap();
        cache.start().unwrap();
        let error = in_time(cache.initialized()).await.unwrap_err();
        assert!(matches!(error, CacheError::TooManyNodes { limit: 20, .. }), "{error}");
        cache.close().await;
        loaded(&client, &root, CuratorCacheOptions::new().max_watched_nodes(21)).await;
    }
}

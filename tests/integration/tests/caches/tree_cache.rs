//! The older cache of a tree.

use std::collections::BTreeMap;
use std::sync::Arc;

use curator_framework::{CreateMode, CuratorFramework};
use curator_integration::env::{self, Env, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{CacheError, Changes, TreeCache, TreeCacheBuilder, TreeCacheEvent};
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use crate::faces::{Brief, arrived, assert_next, create, delete, exists, set, until};

/// Creates a path with nodes below it. Each has its name as data.
async fn tree(env: &Env, client: &CuratorFramework, nodes: &[&str]) -> String {
    let path = env.path("test");
    create(client, &path, "").await;
    for node in nodes {
        create(client, &format!("{path}/{node}"), node.rsplit('/').next().unwrap()).await;
    }
    path
}

fn builder(client: &CuratorFramework, path: &str) -> TreeCacheBuilder {
    TreeCache::builder(client.clone(), path)
}

/// Starts a cache, and returns it with its events.
async fn started(builder: TreeCacheBuilder) -> (TreeCache, Changes<TreeCacheEvent>) {
    let cache = builder.build().unwrap();
    let events = cache.changes();
    cache.start().unwrap();
    (cache, events)
}

/// Asserts the events of the load, which come in the order of the replies.
async fn assert_loads(events: &mut Changes<TreeCacheEvent>, expected: &[&str]) {
    let mut heard = until(events, "initialized").await;
    heard.pop();
    heard.sort();
    assert_eq!(heard, expected);
}

fn children(cache: &TreeCache, path: &str) -> Option<Vec<String>> {
    Some(cache.current_children(path)?.into_keys().collect())
}

fn names(cache: &TreeCache) -> Vec<String> {
    cache.iter().map(|node| node.path.strip_prefix(cache.path()).unwrap().to_owned()).collect()
}

on_every_server! {
    async fn the_selector_chooses_the_nodes(env) {
        let client = env.client().await;
        let path = tree(&env, &client, &["1-a", "1-b", "1-b/2-a", "1-b/2-b", "1-b/2-b/3-a", "1-c", "1-c/2-c", "1-d"]).await;
        let (no_children, refused) = (format!("{path}/1-b/2-b"), format!("{path}/1-c"));
        let selected = builder(&client, &path).selector(move |path| path != no_children, move |path| path != refused);
        let (cache, mut events) = started(selected).await;
        assert_loads(&mut events, &["added 1-a=1-a", "added 1-b=1-b", "added 1-d=1-d", "added 2-a=2-a", "added 2-b=2-b", "added test="]).await;
        set(&client, &format!("{path}/1-c"), "x").await;
        set(&client, &format!("{path}/1-b/2-b/3-a"), "x").await;
        create(&client, &format!("{path}/1-c/new"), "x").await;
        set(&client, &format!("{path}/1-d"), "x").await;
        assert_next(&mut events, &["updated 1-d=x"]).await;
        assert_eq!(names(&cache), ["", "/1-a", "/1-b", "/1-b/2-a", "/1-b/2-b", "/1-d"]);
    }

    async fn a_tree_is_loaded_with_its_children(env) {
        let client = env.client().await;
        let path = tree(&env, &client, &["1", "2", "3", "2/sub"]).await;
        let (cache, mut events) = started(builder(&client, &path)).await;
        assert_loads(&mut events, &["added 1=1", "added 2=2", "added 3=3", "added sub=sub", "added test="]).await;
        assert_eq!(children(&cache, &path).unwrap(), ["1", "2", "3"]);
        assert_eq!(children(&cache, &format!("{path}/1")).unwrap(), [""; 0]);
        assert_eq!(children(&cache, &format!("{path}/2")).unwrap(), ["sub"]);
        for missing in [&format!("{path}/non_exist"), &format!("{path}ing"), "/", "/t"] {
            assert_eq!((children(&cache, missing), cache.current_data(missing)), (None, None), "{missing}");
        }
        assert_eq!((cache.size(), cache.iter().len()), (5, 5));
        assert_eq!(cache.iter().map(|node| node.data).collect::<Vec<_>>(), [&b""[..], b"1", b"2", b"sub", b"3"]);
    }

    async fn missing_parents_are_created_if_the_builder_says_so(env) {
        let (client, path) = (env.client().await, env.path("one/two/three"));
        let (cache, mut events) = started(builder(&client, &path)).await;
        assert_next(&mut events, &["initialized"]).await;
        assert!(!exists(&client, &path).await);
        cache.close().await;
        let (cache, mut events) = started(builder(&client, &path).create_parent_nodes(true)).await;
        let heard = until(&mut events, "initialized").await;
        assert!(heard.len() == 2 && heard[0].starts_with("added three"), "{heard:?}");
        assert!(exists(&client, &path).await);
        assert!(matches!(cache.start(), Err(CacheError::AlreadyStarted { .. })));
        cache.close().await;
        cache.close().await;
        assert!(matches!(cache.start(), Err(CacheError::Closed { .. })));
    }

    async fn a_path_that_is_created_later_is_followed(env) {
        let (client, path) = (env.client().await, env.path("test/foo/bar"));
        let (cache, mut events) = started(builder(&client, &path)).await;
        assert_next(&mut events, &["initialized"]).await;
        assert_eq!((cache.size(), cache.iter().count()), (0, 0));
        create(&client, &env.path("test/foo"), "").await;
        in_time(cache.synced()).await.unwrap();
        assert_eq!(arrived(&mut events), [""; 0]);
        create(&client, &path, "x").await;
        create(&client, &format!("{path}/one"), "hey there").await;
        assert_next(&mut events, &["added bar=x", "added one=hey there"]).await;
    }

    async fn the_depth_is_limited(env) {
        let client = env.client().await;
        let path = tree(&env, &client, &["1", "2", "3", "2/sub", "2/sub/below"]).await;
        for (depth, count) in [(0, 1), (1, 4), (2, 5)] {
            let (cache, mut events) = started(builder(&client, &path).max_depth(depth)).await;
            let expected = ["added 1=1", "added 2=2", "added 3=3", "added sub=sub", "added test="];
            match depth {
                0 => assert_loads(&mut events, &expected[4..]).await,
                1 => assert_loads(&mut events, &[&expected[..3], &expected[4..]].concat()).await,
                _ => assert_loads(&mut events, &expected).await,
            }
            assert_eq!(cache.size(), count);
            let top = if depth == 0 { vec![] } else { vec!["1".to_owned(), "2".into(), "3".into()] };
            assert_eq!(children(&cache, &path).unwrap(), top);
            let sub = format!("{path}/2/sub");
            assert_eq!(cache.current_data(&sub).is_some(), depth == 2);
            assert_eq!(children(&cache, &sub), (depth == 2).then(Vec::new));
            set(&client, &format!("{sub}/below"), "x").await;
            in_time(cache.synced()).await.unwrap();
            assert_eq!(arrived(&mut events), [""; 0]);
        }
    }

    async fn paths_are_those_of_the_namespace(env) {
        let client = env.client().await;
        let outer = env.path("outer");
        create(&client, &format!("{outer}/foo"), "").await;
        create(&client, &format!("{outer}/test/one"), "hey there").await;
        let inner = client.using_namespace(&outer[1..]).unwrap();
        let (cache, mut events) = started(builder(&inner, "/test")).await;
        until(&mut events, "initialized").await;
        assert_eq!(names(&cache), ["", "/one"]);
        assert_eq!(cache.current_data("/test/one").unwrap().data, b"hey there");
        let (cache, mut events) = started(builder(&inner, "/")).await;
        until(&mut events, "initialized").await;
        assert_eq!(cache.iter().map(|node| node.path).collect::<Vec<_>>(), ["/", "/foo", "/test", "/test/one"]);
        assert_eq!(children(&cache, "/").unwrap(), ["foo", "test"]);
        assert_eq!(children(&cache, "/foo").unwrap(), [""; 0]);
        assert_eq!(children(&cache, "/test").unwrap(), ["one"]);
        assert_eq!(cache.current_data("/test/one").unwrap().data, b"hey there");
    }

    async fn the_whole_server_is_a_tree(env) {
        let client = env.client().await;
        let path = tree(&env, &client, &["one"]).await;
        let ours = path.clone();
        // Only the test's own nodes: another test may run on the same server.
        let accept = move |other: &str| ours.starts_with(other) || other.starts_with(&ours);
        for (depth, has_one) in [(3, true), (2, false)] {
            let (cache, mut events) = started(builder(&client, "/").max_depth(depth).selector(|_| true, accept.clone())).await;
            until(&mut events, "initialized").await;
            assert_eq!(children(&cache, "/").unwrap(), [path.split('/').nth(1).unwrap()]);
            assert_eq!(children(&cache, &path).unwrap().len(), usize::from(has_one));
            assert_eq!(cache.current_data(&format!("{path}/one")).is_some(), has_one);
            assert_eq!(cache.current_data("/").unwrap().path, "/");
        }
    }

    async fn two_caches_report_each_change_in_order(env) {
        let client = env.client().await;
        let path = tree(&env, &client, &[]).await;
        let (first, mut of_first) = started(builder(&client, &path)).await;
        let (second, mut of_second) = started(builder(&client, &path)).await;
        let (caches, child) = ([first, second], format!("{path}/one"));
        let mut streams = [&mut of_first, &mut of_second];
        for events in &mut streams {
            assert_next(events, &["added test=", "initialized"]).await;
        }
        create(&client, &child, "hey there").await;
        for (cache, events) in caches.iter().zip(&mut streams) {
            assert_next(events, &["added one=hey there"]).await;
            assert_eq!(children(cache, &path).unwrap(), ["one"]);
            assert_eq!(cache.current_data(&child).unwrap().data, b"hey there");
        }
        set(&client, &child, "sup!").await;
        for (cache, events) in caches.iter().zip(&mut streams) {
            let event = in_time(events.recv()).await.unwrap();
            assert_eq!(event.old_data().unwrap().data, b"hey there");
            assert_eq!(event.data().unwrap().data, b"sup!");
            assert_eq!(cache.current_data(&child).unwrap().data, b"sup!");
        }
        delete(&client, &child).await;
        for (cache, events) in caches.iter().zip(&mut streams) {
            assert_next(events, &["removed one=sup!"]).await;
            assert_eq!((children(cache, &path).unwrap().len(), cache.current_data(&child)), (0, None));
            assert_eq!(arrived(events), [""; 0]);
        }
    }

    async fn changes_are_reported_without_data_in_the_cache(env) {
        let client = env.client().await;
        let path = tree(&env, &client, &[]).await;
        let (cache, mut events) = started(builder(&client, &path).cache_data(false)).await;
        assert_next(&mut events, &["added test=", "initialized"]).await;
        let child = format!("{path}/foo");
        create(&client, &child, "first").await;
        assert_next(&mut events, &["added foo=first"]).await;
        set(&client, &child, "something new").await;
        assert_next(&mut events, &["updated foo=something new"]).await;
        let cached = cache.current_data(&child).unwrap();
        assert_eq!((&*cached.data, cached.stat.data_length), (&b""[..], 13));
    }

    async fn compressed_data_is_decompressed_and_other_data_an_error(env) {
        let client = env.client().await;
        let path = tree(&env, &client, &[]).await;
        client.create().compressed().with_data("small").for_path(&format!("{path}/packed")).await.unwrap();
        client.set_data().compressed().for_path(&path, "root").await.unwrap();
        let cache = builder(&client, &path).data_is_compressed(true).build().unwrap();
        let errors = Arc::new(Mutex::new(Vec::new()));
        let listener = Arc::clone(&errors);
        let id = cache.add_error_listener(move |error| listener.lock().push(error.to_string()));
        let mut events = cache.changes();
        cache.start().unwrap();
        assert_next(&mut events, &["added test=root", "added packed=small", "initialized"]).await;
        create(&client, &format!("{path}/plain"), "plain").await;
        match in_time(events.recv()).await.unwrap() {
            TreeCacheEvent::Failed { path: failed, .. } => assert_eq!(failed, format!("{path}/plain")),
            other => panic!("{other:?}"),
        }
        eventually("the error", async || errors.lock().len() == 1).await;
        assert_eq!(children(&cache, &path).unwrap(), ["packed"]);
        cache.remove_listener(id);
    }

    async fn nodes_that_are_created_again_are_removed_and_added(env) {
        let client = env.client().await;
        let path = tree(&env, &client, &["foo"]).await;
        let child = format!("{path}/foo");
        // As a child, and as the root.
        for (root, load) in [(&path, &["added foo=foo", "added test="][..]), (&child, &["added foo=foo"])] {
            let (_cache, mut events) = started(builder(&client, root)).await;
            assert_loads(&mut events, load).await;
            for (old, new) in [("foo", "two"), ("two", "foo")] {
                delete(&client, &child).await;
                assert_next(&mut events, &[&format!("removed foo={old}")]).await;
                create(&client, &child, new).await;
                assert_next(&mut events, &[&format!("added foo={new}")]).await;
            }
            assert_eq!(arrived(&mut events), [""; 0]);
        }
    }

    async fn a_killed_session_is_followed_by_another_initialized(env) {
        let (client, other) = (env.client().await, env.client().await);
        let path = tree(&env, &client, &["foo"]).await;
        let (cache, mut events) = started(builder(&client, &path)).await;
        assert_loads(&mut events, &["added foo=foo", "added test="]).await;
        client.create().with_mode(CreateMode::Ephemeral).with_data("data").for_path(&format!("{path}/me")).await.unwrap();
        assert_next(&mut events, &["added me=data"]).await;
        env.kill_session(&client.session().await.unwrap()).await;
        let mut heard = until(&mut events, "initialized").await;
        // The server may report the end of its node on the dying connection.
        let removed = heard.iter().position(|event| event == "removed me=data").unwrap();
        heard.remove(removed);
        heard.retain(|event| event != "suspended");
        assert_eq!(heard, ["lost", "reconnected", "initialized"]);
        set(&other, &format!("{path}/foo"), "x").await;
        assert_next(&mut events, &["updated foo=x"]).await;
        assert_eq!(names(&cache), ["", "/foo"]);
    }

    async fn a_lost_connection_is_reported_without_another_initialized(env) {
        let (other, proxy) = (env.client().await, env.proxy());
        let path = tree(&env, &other, &["foo"]).await;
        let client = env::connected(env::builder(proxy.address())).await;
        let (cache, mut events) = started(builder(&client, &path)).await;
        assert_loads(&mut events, &["added foo=foo", "added test="]).await;
        proxy.refuse();
        proxy.reset();
        assert_next(&mut events, &["suspended"]).await;
        set(&other, &format!("{path}/foo"), "x").await;
        proxy.accept();
        assert_next(&mut events, &["reconnected", "updated foo=x"]).await;
        in_time(cache.synced()).await.unwrap();
        assert_eq!(arrived(&mut events), [""; 0]);
    }

    async fn a_client_that_connects_later_fills_the_cache(env) {
        let (other, proxy) = (env.client().await, env.proxy());
        let path = env.path("test");
        proxy.refuse();
        let client = env::builder(proxy.address()).build().unwrap();
        client.start().unwrap();
        let (_cache, mut events) = started(builder(&client, &path)).await;
        proxy.accept();
        let mut heard = until(&mut events, "initialized").await;
        heard.retain(|event| event != "suspended" && event != "reconnected");
        assert_eq!(heard, ["initialized"]);
        create(&other, &path, "x").await;
        assert_next(&mut events, &["added test=x"]).await;
    }

    async fn nothing_follows_the_close(env) {
        let client = env.client().await;
        let path = tree(&env, &client, &[]).await;
        let (cache, mut events) = started(builder(&client, &path)).await;
        assert_next(&mut events, &["added test=", "initialized"]).await;
        let heard = Arc::new(Mutex::new(Vec::new()));
        let listener = Arc::clone(&heard);
        cache.add_listener(move |event| listener.lock().push(event.brief()));
        create(&client, &format!("{path}/one"), "hey there").await;
        assert_next(&mut events, &["added one=hey there"]).await;
        eventually("the call", async || heard.lock().len() == 3).await;
        cache.close().await;
        delete(&client, &format!("{path}/one")).await;
        env::answered(&[client]).await;
        assert!(in_time(events.recv()).await.is_none());
        assert_eq!((heard.lock().len(), cache.size()), (3, 0));
        assert!(matches!(cache.rebuild().await, Err(CacheError::Closed { .. })));
    }

    async fn a_listener_that_panics_does_not_disturb_the_others(env) {
        let client = env.client().await;
        let path = tree(&env, &client, &[]).await;
        let cache = builder(&client, &path).build().unwrap();
        let heard = Arc::new(Mutex::new(Vec::new()));
        for panics in [true, false] {
            let listener = Arc::clone(&heard);
            cache.add_listener(move |event| {
                listener.lock().push(event.brief());
                assert!(!panics || !matches!(event, TreeCacheEvent::NodeUpdated { .. }), "on purpose");
            });
        }
        cache.start().unwrap();
        for data in ["a", "b"] {
            in_time(cache.initialized()).await.unwrap();
            set(&client, &path, data).await;
            let update = format!("updated test={data}");
            eventually("the update", async || heard.lock().iter().filter(|event| **event == update).count() == 2).await;
        }
    }

    async fn deleted_nodes_are_not_iterated(env) {
        let (client, path) = (env.client().await, env.path("foo"));
        let (cache, _events) = started(builder(&client, &path)).await;
        for node in ["", "/a1", "/a2", "/a2/1", "/a2/2", "/a3", "/a3/1", "/a3/2"] {
            create(&client, &format!("{path}{node}"), node).await;
        }
        delete(&client, &format!("{path}/a2/2")).await;
        delete(&client, &format!("{path}/a3/1")).await;
        in_time(cache.synced()).await.unwrap();
        assert_eq!(names(&cache), ["", "/a1", "/a2", "/a2/1", "/a3", "/a3/2"]);
        assert!(cache.iter().all(|node| node.path == format!("{path}{}", String::from_utf8_lossy(&node.data))));
        assert_eq!(cache.size(), 6);
        in_time(cache.rebuild()).await.unwrap();
        assert_eq!(cache.size(), 6);
    }

    async fn each_change_of_a_random_tree_is_one_event(env) {
        follow_a_random_tree(&env, None).await;
    }

    async fn each_change_of_a_random_tree_within_the_depth_is_one_event(env) {
        follow_a_random_tree(&env, Some(4)).await;
    }
}

async fn follow_a_random_tree(env: &Env, max_depth: Option<usize>) {
    let seed = std::env::var("TREE_SEED").map_or_else(|_| rand::random(), |seed| seed.parse().unwrap());
    eprintln!("TREE_SEED={seed}");
    let (mut random, client, path) = (SmallRng::seed_from_u64(seed), env.client().await, env.path("tree"));
    create(&client, &path, "").await;
    let builder = builder(&client, &path);
    let (cache, mut events) = started(match max_depth {
        Some(depth) => builder.max_depth(depth),
        None => builder,
    })
    .await;
    assert_next(&mut events, &["added tree=", "initialized"]).await;
    let mut nodes = BTreeMap::from([(path.clone(), String::new())]);
    for number in 0..300 {
        let at = nodes.keys().nth(random.random_range(0..nodes.len())).unwrap().clone();
        let is_leaf = !nodes.keys().any(|other| other.starts_with(&format!("{at}/")));
        let (changed, kind) = match random.random_range(0..3) {
            0 if is_leaf && at != path => {
                delete(&client, &at).await;
                (at, "removed")
            }
            1 => {
                set(&client, &at, &number.to_string()).await;
                (at, "updated")
            }
            _ => {
                let child = format!("{at}/{number}");
                create(&client, &child, &number.to_string()).await;
                (child, "added")
            }
        };
        let data = match kind {
            "removed" => nodes.remove(&changed).unwrap(),
            _ => number.to_string(),
        };
        if kind != "removed" {
            nodes.insert(changed.clone(), data.clone());
        }
        let depth = |node: &str| node[path.len()..].matches('/').count();
        let is_within = |node: &str| max_depth.is_none_or(|max| depth(node) <= max);
        if is_within(&changed) {
            let name = changed.rsplit('/').next().unwrap();
            assert_next(&mut events, &[&format!("{kind} {name}={data}")]).await;
        }
        let expected: BTreeMap<_, _> = nodes.iter().filter(|(node, _)| is_within(node)).collect();
        let cached: BTreeMap<_, _> =
            cache.iter().map(|node| (node.path, String::from_utf8(node.data).unwrap())).collect();
        assert_eq!(cached.iter().collect::<BTreeMap<_, _>>(), expected);
    }
    in_time(cache.synced()).await.unwrap();
    assert_eq!(arrived(&mut events), [""; 0]);
}

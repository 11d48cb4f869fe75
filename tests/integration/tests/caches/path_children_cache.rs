//! The older cache of a node's children.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use curator_framework::{CreateMode, CuratorFramework};
use curator_integration::env::{self, Env, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{CacheError, CuratorCacheOptions, PathChildrenCache, PathChildrenCacheEvent, StartMode};
use parking_lot::Mutex;

use crate::faces::{Brief, arrived, assert_next, create, delete, exists, set, until};

/// Creates a path with these children. Each has its name as data.
async fn parent(env: &Env, client: &CuratorFramework, children: &[&str]) -> String {
    let path = env.path("parent");
    create(client, &path, "").await;
    for child in children {
        create(client, &format!("{path}/{child}"), child).await;
    }
    path
}

async fn built(client: &CuratorFramework, path: &str) -> PathChildrenCache {
    let cache = PathChildrenCache::new(client.clone(), path).unwrap();
    in_time(cache.start_with(StartMode::BuildInitialCache)).await.unwrap();
    cache
}

fn names(cache: &PathChildrenCache) -> Vec<String> {
    cache.current_data().iter().map(|child| child.path.rsplit('/').next().unwrap().to_owned()).collect()
}

on_every_server! {
    async fn two_caches_report_the_changes_of_children(env) {
        let client = env.client().await;
        let path = parent(&env, &client, &[]).await;
        let caches = [(); 2].map(|()| PathChildrenCache::new(client.clone(), &path).unwrap());
        let mut streams = [0, 1].map(|index: usize| caches[index].changes());
        caches.iter().for_each(|cache| cache.start().unwrap());
        let child = format!("{path}/one");
        create(&client, &child, "hey there").await;
        for events in &mut streams {
            assert_next(events, &["added one=hey there"]).await;
        }
        set(&client, &child, "sup!").await;
        for (cache, events) in caches.iter().zip(&mut streams) {
            assert_next(events, &["updated one=sup!"]).await;
            assert_eq!(cache.current_data_of(&child).unwrap().data, b"sup!");
        }
        delete(&client, &child).await;
        for (cache, events) in caches.iter().zip(&mut streams) {
            assert_next(events, &["removed one=sup!"]).await;
            assert_eq!((cache.current_data_of(&child), cache.current_data_of(&path)), (None, None));
        }
    }

    async fn nodes_below_children_and_the_path_itself_are_not_in_the_cache(env) {
        let client = env.client().await;
        let path = parent(&env, &client, &["b", "a"]).await;
        create(&client, &format!("{path}/a/below"), "").await;
        let cache = built(&client, &path).await;
        let mut events = cache.changes();
        assert_eq!(names(&cache), ["a", "b"]);
        set(&client, &path, "x").await;
        set(&client, &format!("{path}/a/below"), "x").await;
        create(&client, &format!("{path}/b/below"), "x").await;
        set(&client, &format!("{path}/b"), "x").await;
        assert_next(&mut events, &["updated b=x"]).await;
        assert_eq!(names(&cache), ["a", "b"]);
    }

    async fn a_missing_path_is_created_and_created_again(env) {
        let (client, path) = (env.client().await, env.path("a/b/test"));
        let cache = PathChildrenCache::new(client.clone(), &path).unwrap();
        let mut events = cache.changes();
        in_time(cache.start_with(StartMode::PostInitializedEvent)).await.unwrap();
        assert_next(&mut events, &["initialized with 0"]).await;
        eventually("the path", async || exists(&client, &path).await).await;
        for child in ["one", "two"] {
            client.create().for_path(&format!("{path}/{child}")).await.unwrap();
        }
        assert_eq!(in_time(events.recv()).await.unwrap().data().unwrap().path, format!("{path}/one"));
        assert_eq!(in_time(events.recv()).await.unwrap().data().unwrap().path, format!("{path}/two"));
        for child in ["/one", "/two", ""] {
            delete(&client, &format!("{path}{child}")).await;
        }
        for _ in 0..2 {
            assert!(matches!(in_time(events.recv()).await, Some(PathChildrenCacheEvent::ChildRemoved(_))));
        }
        eventually("the path again", async || exists(&client, &path).await).await;
        client.create().with_data("x").for_path(&format!("{path}/new")).await.unwrap();
        assert_next(&mut events, &["added new=x"]).await;
    }

    async fn a_built_cache_has_created_its_path(env) {
        let (client, path) = (env.client().await, env.path("one/two/three"));
        let cache = built(&client, &path).await;
        client.create().with_data("4").for_path(&format!("{path}/four")).await.unwrap();
        in_time(cache.synced()).await.unwrap();
        assert_eq!(names(&cache), ["four"]);
        cache.close().await;
        cache.close().await;
        assert!(exists(&client, &path).await && cache.current_data().is_empty());
    }

    async fn each_mode_begins_with_its_events(env) {
        let client = env.client().await;
        let path = parent(&env, &client, &["3", "1", "2"]).await;
        for (mode, beginning) in [
            (StartMode::Normal, &["added 1=1", "added 2=2", "added 3=3"][..]),
            (StartMode::BuildInitialCache, &[]),
            (StartMode::PostInitializedEvent, &["added 1=1", "added 2=2", "added 3=3", "initialized with 3"]),
        ] {
            let cache = PathChildrenCache::new(client.clone(), &path).unwrap();
            let mut events = cache.changes();
            in_time(cache.start_with(mode)).await.unwrap();
            in_time(cache.initialized()).await.unwrap();
            assert_eq!(names(&cache), ["1", "2", "3"]);
            let mut early = arrived(&mut events);
            early.sort();
            assert_eq!(early, beginning, "{mode:?}");
            assert_eq!(arrived(&mut cache.changes()), beginning, "a stream that is opened later begins in the same way");
            set(&client, &format!("{path}/2"), "two").await;
            assert_next(&mut events, &["updated 2=two"]).await;
            set(&client, &format!("{path}/2"), "2").await;
            assert_next(&mut events, &["updated 2=2"]).await;
            assert!(matches!(cache.start_with(StartMode::Normal).await, Err(CacheError::AlreadyStarted { .. })));
            cache.close().await;
            assert!(in_time(events.recv()).await.is_none());
        }
    }

    async fn the_end_of_the_load_is_reported_once(env) {
        let client = env.client().await;
        let path = parent(&env, &client, &["one"]).await;
        let cache = PathChildrenCache::new(client.clone(), &path).unwrap();
        let mut events = cache.changes();
        in_time(cache.start_with(StartMode::PostInitializedEvent)).await.unwrap();
        assert_next(&mut events, &["added one=one"]).await;
        match in_time(events.recv()).await.unwrap() {
            PathChildrenCacheEvent::Initialized(children) => assert_eq!(children, cache.current_data()),
            other => panic!("{other:?}"),
        }
        in_time(cache.rebuild()).await.unwrap();
        assert_eq!(arrived(&mut events), [""; 0]);
    }

    async fn children_that_go_during_the_load_do_not_hold_it_up(env) {
        let (client, other) = (env.client().await, env.client().await);
        let children: Vec<_> = (0..100).map(|number| number.to_string()).collect();
        let path = parent(&env, &client, &children.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let cache = PathChildrenCache::new(client.clone(), &path).unwrap();
        let mut events = cache.changes();
        let delete_all = async {
            for child in &children {
                delete(&other, &format!("{path}/{child}")).await;
            }
        };
        let (started, ()) = tokio::join!(cache.start_with(StartMode::PostInitializedEvent), delete_all);
        started.unwrap();
        in_time(cache.synced()).await.unwrap();
        assert!(names(&cache).is_empty());
        let heard = arrived(&mut events);
        let count = |kind: &str| heard.iter().filter(|event| event.starts_with(kind)).count();
        assert_eq!((count("added"), count("initialized")), (count("removed"), 1));
    }

    async fn changes_are_reported_without_data_in_the_cache(env) {
        let client = env.client().await;
        let path = parent(&env, &client, &["one", "two"]).await;
        for (options, data) in [(CuratorCacheOptions::new(), "new"), (CuratorCacheOptions::new().without_data(), "")] {
            let cache = PathChildrenCache::with_options(client.clone(), &path, options).unwrap();
            in_time(cache.start_with(StartMode::BuildInitialCache)).await.unwrap();
            let (mut events, child) = (cache.changes(), format!("{path}/one"));
            set(&client, &child, "new").await;
            assert_next(&mut events, &["updated one=new"]).await;
            let cached = cache.current_data_of(&child).unwrap();
            assert_eq!((&*cached.data, cached.stat.data_length), (data.as_bytes(), 3));
            set(&client, &child, "one").await;
        }
    }

    async fn a_child_that_is_created_again_is_removed_and_added(env) {
        let client = env.client().await;
        let path = parent(&env, &client, &["a", "b", "c"]).await;
        let (normal, built) = (PathChildrenCache::new(client.clone(), &path).unwrap(), built(&client, &path).await);
        let (mut of_normal, mut of_built) = (normal.changes(), built.changes());
        normal.start().unwrap();
        assert_next(&mut of_normal, &["added a=a", "added b=b", "added c=c"]).await;
        let child = format!("{path}/a");
        for data in ["2", "3"] {
            delete(&client, &child).await;
            create(&client, &child, data).await;
        }
        for (cache, events) in [(&normal, &mut of_normal), (&built, &mut of_built)] {
            let heard = until(events, "added a=3").await;
            // The states between may be skipped, but a removal may not.
            let removals = heard.iter().filter(|event| event.starts_with("removed")).count();
            assert!(heard[0] == "removed a=a" && removals * 2 == heard.len(), "{heard:?}");
            assert_eq!(cache.current_data_of(&child).unwrap().data, b"3");
        }
    }

    async fn a_listener_that_blocks_misses_nothing(env) {
        let client = env.client().await;
        let path = parent(&env, &client, &["foo"]).await;
        let cache = built(&client, &path).await;
        let (open, gate) = std::sync::mpsc::channel::<()>();
        let (gate, heard) = (Mutex::new(gate), Arc::new(Mutex::new(Vec::new())));
        let listener = Arc::clone(&heard);
        cache.add_listener(move |event| {
            listener.lock().push(event.brief());
            if let PathChildrenCacheEvent::ChildRemoved(_) = event {
                gate.lock().recv().unwrap();
            }
        });
        delete(&client, &format!("{path}/foo")).await;
        eventually("the removal", async || *heard.lock() == ["removed foo=foo"]).await;
        create(&client, &format!("{path}/foo"), "two").await;
        in_time(cache.synced()).await.unwrap();
        assert_eq!(cache.current_data()[0].data, b"two");
        open.send(()).unwrap();
        eventually("the new child", async || *heard.lock() == ["removed foo=foo", "added foo=two"]).await;
    }

    async fn writes_beside_a_rebuild_are_reported(env) {
        let (client, other) = (env.client().await, env.client().await);
        let path = parent(&env, &client, &["bar", "foo", "snafu"]).await;
        let cache = built(&client, &path).await;
        let mut events = cache.changes();
        let write = async {
            create(&other, &format!("{path}/test"), "").await;
            delete(&other, &format!("{path}/bar")).await;
            set(&other, &format!("{path}/snafu"), "grilled").await;
        };
        let (rebuilt, ()) = tokio::join!(in_time(cache.rebuild()), write);
        rebuilt.unwrap();
        in_time(cache.synced()).await.unwrap();
        assert_eq!(names(&cache), ["foo", "snafu", "test"]);
        assert_eq!(cache.current_data_of(&format!("{path}/snafu")).unwrap().data, b"grilled");
        let heard: BTreeSet<_> = arrived(&mut events).into_iter().collect();
        assert_eq!(heard, ["added test=", "removed bar=bar", "updated snafu=grilled"].map(String::from).into());
    }

    async fn one_child_is_read_again(env) {
        let (client, other) = (env.client().await, env.client().await);
        let path = parent(&env, &client, &["one", "two"]).await;
        let (cache, child) = (built(&client, &path).await, format!("{path}/one"));
        set(&other, &child, "alt").await;
        in_time(cache.rebuild_node(&child)).await.unwrap();
        assert_eq!(cache.current_data_of(&child).unwrap().data, b"alt");
        for wrong in [&path, "/elsewhere/one", &format!("{path}/one/below"), &format!("{path}/"), "one"] {
            assert!(matches!(cache.rebuild_node(wrong).await, Err(CacheError::InvalidArgument { .. })), "{wrong}");
        }
    }

    async fn what_is_cleared_comes_back(env) {
        let client = env.client().await;
        let path = parent(&env, &client, &["a", "b"]).await;
        let cache = built(&client, &path).await;
        let mut events = cache.changes();
        cache.clear();
        assert!(names(&cache).is_empty() && arrived(&mut events).is_empty());
        set(&client, &format!("{path}/b"), "new").await;
        assert_next(&mut events, &["added b=new"]).await;
        assert_eq!(names(&cache), ["b"]);
        in_time(cache.rebuild()).await.unwrap();
        assert_eq!(arrived(&mut events), ["added a=a"]);
        cache.clear_and_refresh();
        assert_next(&mut events, &["added a=a", "added b=new"]).await;

        let (a, b) = (format!("{path}/a"), format!("{path}/b"));
        cache.clear_data_bytes(&a);
        cache.clear_data_bytes(&format!("{path}/c"));
        assert!(!cache.clear_data_bytes_if_version(&b, 0) && cache.clear_data_bytes_if_version(&b, 1));
        assert!(!cache.clear_data_bytes_if_version(&format!("{path}/c"), 0));
        for child in cache.current_data() {
            assert!(child.data.is_empty() && child.stat.data_length > 0);
        }
        set(&client, &a, "newer").await;
        assert_next(&mut events, &["updated a=newer"]).await;
        assert_eq!(cache.current_data_of(&a).unwrap().data, b"newer");
    }

    async fn nothing_follows_the_close(env) {
        let client = env.client().await;
        let path = parent(&env, &client, &["one"]).await;
        let cache = built(&client, &path).await;
        let heard = Arc::new(Mutex::new(Vec::new()));
        let listener = Arc::clone(&heard);
        cache.add_listener(move |event| listener.lock().push(event.brief()));
        in_time(cache.rebuild()).await.unwrap();
        cache.close().await;
        delete(&client, &format!("{path}/one")).await;
        env::answered(&[client]).await;
        assert!(heard.lock().is_empty() && cache.current_data().is_empty());
        assert!(matches!(cache.rebuild().await, Err(CacheError::Closed { .. })));
        assert!(matches!(cache.start(), Err(CacheError::Closed { .. })));
        // A close while a request is on its way.
        let cache = built(&env.client().await, &path).await;
        let (rebuilt, ()) = tokio::join!(in_time(cache.rebuild()), in_time(cache.close()));
        assert!(matches!(rebuilt, Ok(()) | Err(CacheError::Closed { .. })), "{rebuilt:?}");
    }

    async fn a_killed_session_is_reported_with_the_changes(env) {
        let client = env.client().await;
        let path = parent(&env, &client, &[]).await;
        let cache = PathChildrenCache::new(client.clone(), &path).unwrap();
        let mut events = cache.changes();
        cache.start().unwrap();
        let me = format!("{path}/me");
        client.create().with_mode(CreateMode::Ephemeral).with_data("data").for_path(&me).await.unwrap();
        assert_next(&mut events, &["added me=data"]).await;
        env.kill_session(&client.session().await.unwrap()).await;
        let mut heard = BTreeSet::new();
        let expected = ["lost", "reconnected", "removed me=data"].map(String::from);
        while !expected.iter().all(|event| heard.contains(event)) {
            heard.insert(in_time(events.recv()).await.unwrap().brief());
        }
        assert!(cache.current_data().is_empty());
    }

    async fn a_client_that_connects_later_fills_the_cache(env) {
        let (other, proxy) = (env.client().await, env.proxy());
        create(&other, &env.path("baz"), "").await;
        proxy.refuse();
        let client = env::builder(proxy.address()).connection_timeout(Duration::from_millis(100)).build().unwrap();
        let ours = env.path("baz").replace("/baz", "");
        let accepted = ours.clone();
        // Only the test's own node: another test may run on the same server.
        let options = CuratorCacheOptions::new().filter(move |path| path == accepted);
        let cache = PathChildrenCache::with_options(client.clone(), "/", options).unwrap();
        let mut events = cache.changes();
        cache.start().unwrap();
        client.start().unwrap();
        assert!(client.session().await.is_err(), "the server cannot be reached");
        proxy.accept();
        assert_next(&mut events, &["suspended", "reconnected"]).await;
        assert_eq!(in_time(events.recv()).await.unwrap().data().unwrap().path, ours);
        assert_eq!(cache.current_data().len(), 1);
        assert!(cache.current_data_of(&ours).is_some() && cache.current_data_of("/").is_none());
    }

    async fn a_lost_connection_is_reported_ahead_of_its_changes(env) {
        let (other, proxy) = (env.client().await, env.proxy());
        let path = parent(&env, &other, &["kept", "node"]).await;
        let client = env::connected(env::builder(proxy.address()).session_timeout(Duration::from_secs(60))).await;
        let cache = built(&client, &path).await;
        let (mut events, node) = (cache.changes(), format!("{path}/node"));
        let (mut before, mut reconnected) = ("node", vec!["reconnected"]);
        for (is_killed, after) in [(false, "second"), (true, "third")] {
            let session = client.session().await.unwrap();
            proxy.refuse();
            proxy.reset();
            assert_next(&mut events, &["suspended"]).await;
            assert_eq!(names(&cache), ["kept", "node"]);
            if is_killed {
                env.kill_session(&session).await;
                reconnected.insert(0, "lost");
            }
            delete(&other, &node).await;
            create(&other, &node, after).await;
            proxy.accept();
            assert_next(&mut events, &reconnected).await;
            assert_next(&mut events, &[&format!("removed node={before}"), &format!("added node={after}")]).await;
            assert_eq!(names(&cache), ["kept", "node"]);
            before = after;
        }
    }

    async fn a_slow_reader_starts_anew(env) {
        let client = env.client().await;
        let path = parent(&env, &client, &["a"]).await;
        let options = CuratorCacheOptions::new().max_events(2);
        let cache = PathChildrenCache::with_options(client.clone(), &path, options).unwrap();
        in_time(cache.start_with(StartMode::BuildInitialCache)).await.unwrap();
        let mut events = cache.changes();
        for child in ["b", "c", "d"] {
            create(&client, &format!("{path}/{child}"), child).await;
            in_time(cache.synced()).await.unwrap();
        }
        assert_eq!(arrived(&mut events), ["reset", "added a=a", "added b=b", "added c=c", "added d=d"]);
    }
}

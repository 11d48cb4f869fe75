//! Streams and listeners, from before the start to behind the end of a cache.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use curator_framework::{CuratorFramework, CuratorOp, Error};
use curator_integration::env::{self, builder, connected, eventually, in_time, tasks};
use curator_integration::on_every_server;
use curator_recipes::{
    CacheError, CacheEvent, CacheState, CuratorCache, CuratorCacheListener, CuratorCacheOptions, InterProcessMutex,
    Lookup,
};
use curator_test::TestingServer;
use futures_util::StreamExt as _;

use crate::stage::{Replay, Reported, calls_of, commit, contents, loaded};

fn server() -> TestingServer {
    curator_integration::in_process::server()
}

async fn client(server: &TestingServer) -> CuratorFramework {
    curator_integration::in_process::client(server).await
}

/// A server with a tree of three nodes, and a client.
async fn stage() -> (TestingServer, CuratorFramework) {
    let server = server();
    let client = client(&server).await;
    commit(&client, ["/tree", "/tree/a", "/tree/b"].map(|path| CuratorOp::create(path).with_data(""))).await;
    (server, client)
}

on_every_server! {
    async fn each_stream_begins_with_the_contents_and_replays_to_them(env) {
        let (client, root) = (env.client().await, env.path("tree"));
        client.create().creating_parents_if_needed().for_path(&root).await.unwrap();
        commit(&client, (0..20).map(|number| CuratorOp::create(format!("{root}/{number}")))).await;
        let cache =
            CuratorCache::with_options(client.clone(), &root, CuratorCacheOptions::new().max_events(10)).unwrap();
        let early = cache.changes();
        cache.start().unwrap();
        in_time(cache.initialized()).await.unwrap();
        let (late, slow, dropped) = (cache.changes(), cache.changes(), cache.changes());
        drop(dropped);
        let mut streams = [early, late, slow].map(|events| (events, Replay::default()));
        for (events, replay) in &mut streams[..2] {
            let reported = replay.arrived(events);
            assert_eq!(reported.len(), 22 + usize::from(reported[0] == Reported::Reset));
        }
        for number in 0..5 {
            let node = format!("{root}/{number}");
            commit(&client, [CuratorOp::delete(&node), CuratorOp::create(&node)]).await;
            in_time(cache.caught_up()).await.unwrap();
            let (events, replay) = &mut streams[1];
            assert_eq!(replay.arrived(events), [Reported::Deleted(node.clone()), Reported::Created(node)]);
        }
        client.set_data().for_path(&root, "eleventh").await.unwrap();
        in_time(cache.caught_up()).await.unwrap();
        for (events, replay) in &mut streams {
            let reported = replay.arrived(events);
            assert!(reported.len() == 1 || reported[0] == Reported::Reset, "{reported:?}");
            let nodes: Vec<_> = replay.0.values().map(|node| (**node).clone()).collect();
            let mut kept = cache.nodes();
            kept.sort_by(|one, other| one.path.cmp(&other.path));
            assert_eq!(nodes, kept);
        }
        // Each continues.
        client.delete().for_path(&format!("{root}/7")).await.unwrap();
        in_time(cache.caught_up()).await.unwrap();
        cache.close().await;
        for (events, mut replay) in streams {
            let reported: Vec<_> = events.map(|event| replay.apply(event)).collect().await;
            assert_eq!(reported, [Reported::Deleted(format!("{root}/7"))]);
        }
        assert!(in_time(cache.changes().next()).await.is_none());
    }

    async fn lookups_know_what_is_loaded_and_what_is_in_the_scope(env) {
        let (client, root) = (env.client().await, env.path("tree"));
        let path = |name: &str| format!("{root}{name}");
        client.create().creating_parents_if_needed().for_path(&root).await.unwrap();
        let names = ["/é.ü", "/é.ü/..a", "/é.ü/..a/deep", "/out", "/out/a", "/leaf", "/leaf/a"];
        commit(&client, names.map(|name| CuratorOp::create(path(name)))).await;
        let (out, leaf) = (path("/out"), path("/leaf"));
        let options = CuratorCacheOptions::new().max_depth(2).filter(move |path| path != out);
        let cache =
            CuratorCache::with_options(client.clone(), &root, options.descend(move |path| path != leaf)).unwrap();
        let refused = in_time(cache.initialized()).await.unwrap_err();
        assert!(matches!(refused, CacheError::NotStarted { .. }), "{refused}");
        assert_eq!((cache.get(&root), cache.children(&root), cache.is_empty()), (Lookup::NotLoaded, None, true));
        cache.start().unwrap();
        in_time(cache.initialized()).await.unwrap();
        let paths: Vec<_> = cache.nodes().into_iter().map(|node| node.path).collect();
        assert_eq!(paths, [root.clone(), path("/leaf"), path("/é.ü"), path("/é.ü/..a")]);
        for name in ["/é.ü/..a/deep", "/out", "/out/a", "/leaf/a", "x"] {
            assert_eq!(cache.get(&path(name)), Lookup::NotLoaded, "{name}");
        }
        assert_eq!(cache.get(&path("/é.ü/missing")), Lookup::Missing);
        commit(&client, ["/out/b", "/leaf/b", "/é.ü/b", "/é.ü/b/deep"].map(|name| CuratorOp::create(path(name)))).await;
        in_time(cache.caught_up()).await.unwrap();
        assert_eq!((cache.len(), cache.children(&path("/é.ü")).unwrap().len()), (5, 2));
        cache.close().await;
        assert_eq!((cache.get(&root), cache.children(&root)), (Lookup::NotLoaded, None));
        let refused = in_time(cache.synced()).await.unwrap_err();
        assert!(matches!(refused, CacheError::Closed { .. }), "{refused}");
        assert!(matches!(cache.start(), Err(CacheError::Closed { .. })));
    }

    async fn caches_of_a_namespace_and_of_the_root_have_the_paths_of_their_clients(env) {
        let (client, root) = (env.client().await, env.path("space"));
        let inside = client.using_namespace(&root[1..]).unwrap();
        inside.create().creating_parents_if_needed().with_data("1").for_path("/a/b").await.unwrap();
        let cache = loaded(&inside, "/", CuratorCacheOptions::new()).await;
        let paths = |cache: &CuratorCache| cache.nodes().into_iter().map(|node| node.path).collect::<Vec<_>>();
        assert_eq!(paths(&cache), ["/", "/a", "/a/b"]);
        assert_eq!(["", "a", "/a/", "/ab"].map(|path| cache.get(path).present()), [const { None }; 4]);
        assert_eq!(
            (cache.children("/").unwrap().len(), cache.get("/a/b").present().unwrap().data.as_slice()),
            (1, &b"1"[..])
        );
        let below = loaded(&inside, "/a", CuratorCacheOptions::new()).await;
        let of_server = loaded(
            &client,
            "/",
            CuratorCacheOptions::new().filter({
                let root = root.clone();
                move |path| root.starts_with(path) || path.starts_with(&root)
            }),
        )
        .await;
        inside.set_data().for_path("/a/b", "2").await.unwrap();
        inside.create().for_path("/a/c").await.unwrap();
        for (cache, path) in
            [(&cache, "/a/b".to_owned()), (&below, "/a/b".to_owned()), (&of_server, format!("{root}/a/b"))]
        {
            in_time(cache.caught_up()).await.unwrap();
            assert_eq!(cache.get(&path).present().unwrap().data, b"2");
            assert_eq!(
                cache.get(&format!("{}c", &path[..path.len() - 1])).present().unwrap().path,
                format!("{}c", &path[..path.len() - 1])
            );
        }
        assert_eq!(paths(&below), ["/a", "/a/b", "/a/c"]);
        inside.delete().for_path("/a/c").await.unwrap();
        below.close().await;
        for cache in [&cache, &of_server] {
            in_time(cache.caught_up()).await.unwrap();
        }
        assert_eq!(
            (paths(&cache), of_server.get(&format!("{root}/a/c"))),
            (vec!["/".into(), "/a".into(), "/a/b".into()], Lookup::Missing)
        );
    }

    /// The caches and the locks of a client watch the same paths (ZOOKEEPER-4466).
    async fn locks_work_below_caches_over_lost_connections(env) {
        let (proxy, other, root) = (env.proxy(), env.client().await, env.path("locks"));
        let client = connected(builder(proxy.address()).session_timeout(Duration::from_secs(60))).await;
        client.create().creating_parents_if_needed().for_path(&root).await.unwrap();
        let lock = format!("{root}/lock");
        let caches = [
            loaded(&client, &root, CuratorCacheOptions::new()).await,
            loaded(&client, &lock, CuratorCacheOptions::new()).await,
            loaded(&client, &lock, CuratorCacheOptions::new().single_node()).await,
        ];
        let (mine, theirs) = (
            InterProcessMutex::new(client.clone(), &lock).unwrap(),
            InterProcessMutex::new(other.clone(), &lock).unwrap(),
        );
        for round in 0..6 {
            let held = in_time(theirs.acquire()).await.unwrap();
            let waiter = tokio::spawn({
                let mine = mine.clone();
                async move { mine.acquire().await }
            });
            env.wait_for_children(&other, &lock, 2).await;
            if round % 2 == 1 {
                proxy.reset();
                eventually("attached again", async || client.check_exists().for_path(&root).await.is_ok()).await;
            }
            assert!(in_time(held.release()).await.unwrap().is_released());
            let held = in_time(waiter).await.unwrap().unwrap();
            eventually("the cache shows the holder", async || {
                caches[0].synced().await.is_ok() && caches[0].children(&lock).is_some_and(|nodes| nodes.len() == 1)
            })
            .await;
            assert!(in_time(held.release()).await.unwrap().is_released());
        }
        for cache in &caches {
            in_time(cache.synced()).await.unwrap();
            assert!(cache.children(&lock).is_none_or(|nodes| nodes.is_empty()));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_of_a_cache_that_never_starts_end_with_it() {
    let (_server, client) = stage().await;
    let before = tasks();
    let cache = CuratorCache::new(client.clone(), "/tree").unwrap();
    let mut events = cache.changes();
    let (listener, mut calls) = calls_of(CuratorCacheListener::builder());
    cache.add_listener(listener.build());
    drop(cache);
    assert!(in_time(events.next()).await.is_none());
    assert_eq!(calls.last().await, None);
    eventually("the listener's task has ended", async || tasks() <= before).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listeners_of_threads_outside_of_a_runtime_get_events() {
    let (_server, client) = stage().await;
    let cache = CuratorCache::new(client.clone(), "/tree").unwrap();
    let add = |cache: &CuratorCache| {
        let (listener, calls) = calls_of(CuratorCacheListener::builder());
        let cache = cache.clone();
        std::thread::spawn(move || cache.add_listener(listener.after_initialized().build())).join().unwrap();
        calls
    };
    let mut before = add(&cache);
    cache.start().unwrap();
    assert_eq!(before.next().await, "initialized");
    let mut behind = add(&cache);
    assert_eq!(behind.next().await, "initialized");
    client.set_data().for_path("/tree/a", "x").await.unwrap();
    for calls in [&mut before, &mut behind] {
        assert_eq!(calls.next().await, "all /tree/a=x");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closure_that_panics_or_blocks_holds_up_its_own_listener_alone() {
    let (_server, client) = stage().await;
    let cache = loaded(&client, "/tree", CuratorCacheOptions::new()).await;
    let (released, block) = mpsc::channel::<()>();
    let (blocks, is_blocked) = tokio::sync::oneshot::channel();
    let gate = parking_lot::Mutex::new(Some((blocks, block)));
    let blocking = CuratorCacheListener::builder().for_creates(move |_| {
        if let Some((blocks, block)) = gate.lock().take() {
            blocks.send(()).unwrap();
            block.recv().unwrap();
        }
    });
    let (blocking, mut blocked) = calls_of(blocking);
    let (panicking, mut panicked) =
        calls_of(CuratorCacheListener::builder().for_creates(|node| assert_ne!(node.path, "/tree/a")));
    let (plain, mut calls) = calls_of(CuratorCacheListener::builder());
    let blocking = cache.add_listener(blocking.build());
    cache.add_listener(panicking.build());
    cache.add_listener(plain.build());
    in_time(is_blocked).await.unwrap();
    assert_eq!(calls.take(10).await[9], "initialized");
    let reported = panicked.take(7).await;
    assert!(reported[6] == "initialized" && !reported.iter().any(|call| call.ends_with("/tree/a=")), "{reported:?}");
    cache.remove_listener(blocking);
    released.send(()).unwrap();
    // The call that runs continues.
    assert_eq!(blocked.take(3).await, ["all /tree=", "create /tree=", "write /tree="]);
    client.delete().for_path("/tree/b").await.unwrap();
    assert_eq!(calls.take(2).await[0], "all /tree/b=");
    assert_eq!(blocked.last().await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_leaves_nothing_when_it_is_closed_or_dropped() {
    let (server, client) = stage().await;
    let before = (server.watch_count(), tasks());
    let is_as_before = async || (server.watch_count(), tasks()) == before;
    let cache = loaded(&client, "/tree", CuratorCacheOptions::new()).await;
    let (clone, mut events) = (cache.clone(), cache.changes());
    drop(cache);
    assert_eq!(clone.len(), 3);
    assert!(server.watch_count() > before.0);
    drop(clone);
    let mut replay = Replay::default();
    while let Some(event) = in_time(events.next()).await {
        replay.apply(event);
    }
    assert_eq!(replay.0.len(), 3);
    eventually("nothing is left", is_as_before).await;
    let caches = futures_util::future::join_all((0..50).map(|number| {
        let options = CuratorCacheOptions::new().max_depth(number % 3);
        loaded(&client, ["/tree", "/tree/a", "/"][number % 3], options)
    }))
    .await;
    commit(&client, [CuratorOp::set_data("/tree/a", "x"), CuratorOp::create("/tree/a/1")]).await;
    for cache in &caches {
        in_time(cache.caught_up()).await.unwrap();
        assert!(cache.get("/tree/a").present().is_none_or(|node| node.data == b"x"));
        if cache.path() == "/tree/a" {
            assert!(cache.get("/tree/a/1").present().is_some());
        }
    }
    for cache in caches {
        in_time(cache.close()).await;
        in_time(cache.close()).await;
    }
    eventually("nothing is left", is_as_before).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_ends_with_its_client_and_begins_with_its_start() {
    let (server, writer) = stage().await;
    let proxy = curator_test::FaultProxy::start(server.address()).unwrap();
    let client = builder(proxy.address()).build().unwrap();
    let cache = CuratorCache::new(client.clone(), "/tree").unwrap();
    cache.start().unwrap();
    assert!(matches!(cache.start(), Err(CacheError::AlreadyStarted { .. })));
    let refused = in_time(cache.synced()).await.unwrap_err();
    assert!(matches!(refused, CacheError::Framework(Error::NotStarted)), "{refused}");
    client.start().unwrap();
    // The cache keeps the client.
    drop(client);
    in_time(cache.initialized()).await.unwrap();
    let mut events = cache.changes();
    // Closed in an outage.
    let other = loaded(&connected(builder(proxy.address())).await, "/tree", CuratorCacheOptions::new()).await;
    proxy.refuse();
    proxy.reset();
    in_time(cache.watch().wait_for(|state| matches!(state, CacheState::Stale { .. }))).await.unwrap();
    assert_eq!((contents(&cache).len(), cache.get("/tree/a").present().is_some()), (3, true));
    in_time(other.close()).await;
    assert!(other.is_empty());
    proxy.accept();
    eventually("fresh", async || cache.synced().await.is_ok()).await;
    drop((cache, other));
    while in_time(events.next()).await.is_some() {}

    let client = env::connected(builder(server.address())).await;
    let cache = loaded(&client, "/tree", CuratorCacheOptions::new().do_not_clear_on_close()).await;
    let (mut events, waiting) = (cache.changes(), cache.clone());
    in_time(client.close()).await;
    in_time(cache.watch().wait_for(|state| matches!(state, CacheState::Closed))).await.unwrap();
    assert!(matches!(in_time(waiting.initialized()).await, Err(CacheError::Closed { .. })));
    assert!(matches!(in_time(waiting.synced()).await, Err(CacheError::Closed { .. })));
    assert_eq!(cache.len(), 3);
    let mut reported = 0;
    while let Some(event) = in_time(events.next()).await {
        reported += usize::from(matches!(event, CacheEvent::Created(_) | CacheEvent::Initialized));
    }
    assert_eq!(reported, 4);
    in_time(cache.close()).await;
    drop(writer);
}

#[tokio::test]
async fn stream_that_is_not_read_is_bounded_by_bytes() {
    const SIZE: usize = 100_000;
    let (_server, client) = stage().await;
    let options = CuratorCacheOptions::new().max_event_bytes(10 * SIZE);
    let cache = loaded(&client, "/tree", options).await;
    let mut events = cache.changes();
    let change = async |number: u8| {
        client.set_data().for_path("/tree/a", vec![number; SIZE]).await.unwrap();
        in_time(cache.caught_up()).await.unwrap();
    };
    change(0).await;
    let mut replay = Replay::default();
    replay.arrived(&mut events);
    // Both states of an event count.
    for number in 1..=5 {
        change(number).await;
    }
    assert_eq!(replay.arrived(&mut events), vec![Reported::Changed("/tree/a".to_owned()); 5]);
    for number in 1..=6 {
        change(number).await;
    }
    let nodes = ["/tree", "/tree/a", "/tree/b"].map(|path| Reported::Created(path.to_owned()));
    let expected: Vec<_> = [Reported::Reset].into_iter().chain(nodes).chain([Reported::Initialized]).collect();
    assert_eq!(replay.arrived(&mut events), expected);
    // What was read does not count any more, and an event that is longer than the limit is delivered.
    client.set_data().for_path("/tree/a", vec![7; 9 * SIZE]).await.unwrap();
    in_time(cache.caught_up()).await.unwrap();
    assert_eq!(replay.arrived(&mut events), [Reported::Changed("/tree/a".to_owned())]);
}

/// The old state of an event is the new one of the event before, not a copy.
#[tokio::test]
async fn events_share_large_states() {
    let (_server, client) = stage().await;
    let cache = loaded(&client, "/tree", CuratorCacheOptions::new()).await;
    let mut events = cache.changes();
    for number in 0..4 {
        client.set_data().for_path("/tree/a", vec![number; 100_000]).await.unwrap();
        in_time(cache.caught_up()).await.unwrap();
    }
    let mut last = None;
    while let Ok(event) = events.try_recv() {
        if let CacheEvent::Changed { old, new } = event {
            assert!(last.is_none_or(|last| Arc::ptr_eq(&last, &old)));
            last = Some(new);
        }
    }
    let node = cache.get("/tree/a").present().unwrap();
    assert!(Arc::ptr_eq(&node, &last.unwrap()), "the cache shares it too");
}

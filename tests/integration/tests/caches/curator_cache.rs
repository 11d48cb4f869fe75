//! Curator's tests of `CuratorCache`: `TestCuratorCache`, `TestCuratorCacheConsistency`, `TestCuratorCacheEdges`,
//! `TestCuratorCacheWrappers` and `TestCuratorCacheEventOrdering`.

use std::collections::BTreeMap;
use std::time::Duration;

use curator_framework::{CuratorFramework, CuratorOp, Error, RetryForever};
use curator_integration::env::{self, Env, builder, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{
    CacheError, CacheEvent, Changes, CuratorCache, CuratorCacheListener, CuratorCacheOptions, Lookup,
};
use curator_test::{ApacheCluster, FaultProxy};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::task::{JoinSet, block_in_place};

use crate::stage::{Calls, Replay, Reported, calls_of, commit, contents, loaded};

/// The names of the nodes at each level of a random tree.
const NAMES: usize = 5;
const LEVELS: usize = 5;

async fn create(client: &CuratorFramework, path: &str, data: &str) {
    client.create().creating_parents_if_needed().with_data(data).for_path(path).await.unwrap();
}

async fn set(client: &CuratorFramework, path: &str, data: &str) {
    client.set_data().for_path(path, data).await.unwrap();
}

async fn delete(client: &CuratorFramework, path: &str) {
    client.delete().for_path(path).await.unwrap();
}

/// Returns a cache that is started with a listener, and the calls of the listener.
fn heard(client: &CuratorFramework, path: &str, options: CuratorCacheOptions) -> (CuratorCache, Calls) {
    let cache = CuratorCache::with_options(client.clone(), path, options).unwrap();
    let (listener, calls) = calls_of(CuratorCacheListener::builder());
    cache.add_listener(listener.build());
    cache.start().unwrap();
    (cache, calls)
}

on_every_server! {
    /// Curator's `testUpdateWhenNotCachingData`.
    async fn a_cache_without_data_reports_each_change_with_its_data(env) {
        let (client, root) = (env.client().await, env.path("test"));
        create(&client, &root, "").await;
        let (cache, mut calls) = heard(&client, &root, CuratorCacheOptions::new().without_data());
        assert_eq!(
            calls.take(4).await,
            [format!("all {root}="), format!("create {root}="), format!("write {root}="), "initialized".into()]
        );
        let child = format!("{root}/child");
        create(&client, &child, "first").await;
        assert_eq!(
            calls.take(3).await,
            [format!("all {child}=first"), format!("create {child}=first"), format!("write {child}=first")]
        );
        set(&client, &child, "second").await;
        assert_eq!(
            calls.take(3).await,
            [format!("all {child}=second"), format!("change {child}=second"), format!("write {child}=second")]
        );
        let node = cache.get(&child).present().unwrap();
        assert_eq!((node.data.len(), node.stat.data_length, node.stat.version), (0, 6, 1));
    }

    /// Curator's `testAfterInitialized`.
    async fn a_listener_after_the_load_gets_that_it_is_complete_and_then_changes(env) {
        let (client, root) = (env.client().await, env.path("test"));
        create(&client, &format!("{root}/one/two/three"), "").await;
        let cache = CuratorCache::new(client.clone(), &root).unwrap();
        let (listener, mut calls) = calls_of(CuratorCacheListener::builder());
        cache.add_listener(listener.after_initialized().build());
        cache.start().unwrap();
        assert_eq!(calls.next().await, "initialized");
        let paths: Vec<_> = cache.nodes().into_iter().map(|node| node.path).collect();
        assert_eq!(
            paths,
            [root.clone(), format!("{root}/one"), format!("{root}/one/two"), format!("{root}/one/two/three")]
        );
        assert_eq!(cache.len(), 4);
        let new = format!("{root}/new");
        create(&client, &new, "").await;
        assert_eq!(calls.next().await, format!("all {new}="));
    }

    /// Curator's `testListenerBuilder`.
    async fn each_closure_gets_the_events_of_its_kind(env) {
        let (client, root) = (env.client().await, env.path("test"));
        let (cache, mut calls) = heard(&client, &root, CuratorCacheOptions::new());
        assert_eq!(calls.next().await, "initialized", "a node that does not exist is an empty cache");
        create(&client, &root, "").await;
        assert_eq!(calls.take(3).await, [format!("all {root}="), format!("create {root}="), format!("write {root}=")]);
        set(&client, &root, "new").await;
        assert_eq!(
            calls.take(3).await,
            [format!("all {root}=new"), format!("change {root}=new"), format!("write {root}=new")]
        );
        delete(&client, &root).await;
        assert_eq!(calls.take(2).await, [format!("all {root}=new"), format!("delete {root}=new")]);
        cache.close().await;
        assert_eq!(calls.last().await, None);
    }

    /// Curator's `testClearOnClose`.
    async fn the_close_clears_the_contents_unless_they_are_to_be_kept(env) {
        let (client, root) = (env.client().await, env.path("test"));
        let cache = loaded(&client, &root, CuratorCacheOptions::new().do_not_clear_on_close()).await;
        let bar = format!("{root}/bar");
        create(&client, &root, "foo").await;
        create(&client, &bar, "bar").await;
        in_time(cache.caught_up()).await.unwrap();
        cache.close().await;
        assert_eq!(cache.len(), 2);
        assert_eq!(cache.get(&bar).present().unwrap().data, b"bar");
        let cache = loaded(&client, &root, CuratorCacheOptions::new()).await;
        assert_eq!(cache.len(), 2);
        cache.close().await;
        assert_eq!((cache.len(), cache.get(&bar)), (0, Lookup::NotLoaded));
    }

    /// Curator's `TestCuratorCacheEdges.testReconnectConsistency`: nodes change in an outage of the cache.
    async fn a_cache_that_resumes_shows_what_has_changed_meanwhile(env) {
        let (client, root) = (env.client().await, env.path("root"));
        let path = |name: &str| format!("{root}{name}");
        let nodes = ["", "/1", "/2", "/1/11", "/1/12", "/1/13", "/2/21", "/2/22"];
        create(&client, &root, "one").await;
        commit(&client, nodes[1..].iter().map(|name| CuratorOp::create(path(name)).with_data("one"))).await;
        let cache = loaded(&client, &root, CuratorCacheOptions::new()).await;
        let snapshot = cache.snapshot().unwrap();
        cache.close().await;

        commit(&client, ["/2/21", "/2/22", "/2"].map(|name| CuratorOp::delete(path(name)))).await;
        set(&client, &root, "two").await;
        let new = ["/1/11/111", "/1/11/111/1111", "/1/11/111/1112", "/1/13/131", "/1/13/132", "/1/13/132/1321"];
        commit(&client, new.map(|name| CuratorOp::create(path(name)).with_data("two"))).await;

        let cache = loaded(&client, &root, CuratorCacheOptions::new().resume(snapshot)).await;
        let one = nodes[1..6].iter().filter(|name| **name != "/2").map(|name| (path(name), "one"));
        let two = new.iter().chain(&[""]).map(|name| (path(name), "two"));
        let expected: BTreeMap<_, _> = one.chain(two).map(|(path, data)| (path, data.as_bytes().to_vec())).collect();
        assert_eq!((expected.len(), contents(&cache)), (11, expected));
    }

    async fn snapshot_of_a_cache_with_another_compression_is_refused(env) {
        let root = env.path("root");
        let (plain, gzip) = (env.client().await, connected(builder(env.address()).enable_compression()).await);
        gzip.create().creating_parents_if_needed().with_data("one").for_path(&root).await.unwrap();
        let settings = || {
            let (options, compressed) = (CuratorCacheOptions::new(), CuratorCacheOptions::new().compressed());
            [(&plain, options.clone(), false), (&plain, compressed, true), (&gzip, options, true)]
        };
        for (earlier, options, was_compressed) in settings() {
            let cache = loaded(earlier, &root, options).await;
            let snapshot = cache.snapshot().unwrap();
            for (client, options, is_compressed) in settings() {
                let resumed = CuratorCache::with_options(client.clone(), &root, options.resume(snapshot.clone()));
                match resumed {
                    Ok(_) => assert_eq!(was_compressed, is_compressed),
                    Err(CacheError::InvalidArgument { argument: "resume", .. }) => {
                        assert_ne!(was_compressed, is_compressed);
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }

    /// Curator's `TestCuratorCacheWrappers.testNodeCache`.
    async fn a_cache_of_one_node_follows_it_alone(env) {
        let (client, root) = (env.client().await, env.path("test"));
        create(&client, &root, "").await;
        let node = format!("{root}/node");
        let (cache, mut calls) = heard(&client, &node, CuratorCacheOptions::new().single_node());
        assert_eq!((calls.next().await.as_str(), cache.get(&node)), ("initialized", Lookup::Missing));
        create(&client, &node, "a").await;
        assert_eq!(calls.take(3).await[0], format!("all {node}=a"));
        assert_eq!(cache.get(&node).present().unwrap().data, b"a");
        create(&client, &format!("{node}/child"), "").await;
        set(&client, &node, "b").await;
        assert_eq!(calls.take(3).await[0], format!("all {node}=b"), "the child is not in the cache");
        assert_eq!(cache.get(&node).present().unwrap().data, b"b");
        assert_eq!(cache.get(&format!("{node}/child")), Lookup::NotLoaded);
        commit(&client, [CuratorOp::delete(format!("{node}/child")), CuratorOp::delete(&node)]).await;
        assert_eq!(calls.take(2).await[0], format!("all {node}=b"));
        assert_eq!(cache.get(&node), Lookup::Missing);
    }

    /// Curator's `TestCuratorCacheWrappers.testTreeCache` and `testPathChildrenCache`.
    async fn the_children_of_a_path_are_those_below_it_by_their_names(env) {
        let (client, root) = (env.client().await, env.path("test"));
        create(&client, &root, "").await;
        create(&client, &format!("{root}ing"), "").await;
        let (cache, mut calls) = heard(&client, &root, CuratorCacheOptions::new());
        assert_eq!(calls.take(4).await.last().unwrap(), "initialized");
        let names = |path: &str| cache.children(path).map(|children| children.into_keys().collect::<Vec<_>>());
        assert_eq!(names(&root), Some(vec![]));
        assert_eq!([names(&root[..root.len() - 1]), names(&format!("{root}ing"))], [None, None]);
        let one = format!("{root}/one");
        create(&client, &one, "hey there").await;
        assert_eq!(calls.take(3).await[0], format!("all {one}=hey there"));
        assert_eq!([names(&root), names(&one)], [Some(vec!["one".to_owned()]), Some(vec![])]);
        assert_eq!(cache.get(&one).present().unwrap().data, b"hey there");
        assert_eq!([names(&format!("{root}/o")), names(&format!("{root}/onely"))], [None, None]);
        set(&client, &one, "sup!").await;
        assert_eq!(calls.take(3).await[0], format!("all {one}=sup!"));
        assert_eq!(cache.children(&root).unwrap()["one"].data, b"sup!");
        delete(&client, &one).await;
        assert_eq!(calls.take(2).await[0], format!("all {one}=sup!"));
        assert_eq!(names(&root), Some(vec![]));
    }

    /// Curator's `TestCuratorCacheEventOrdering.testEventOrdering`, and the same for caches of one level.
    async fn creations_and_deletions_count_the_nodes(env) {
        let (client, root) = (env.client().await, env.path("root"));
        create(&client, &root, "").await;
        let shapes = [
            CuratorCacheOptions::new(),
            CuratorCacheOptions::new().max_depth(1),
            CuratorCacheOptions::new().without_data(),
        ];
        let mut caches = Vec::new();
        for options in shapes {
            let cache = CuratorCache::with_options(client.clone(), &root, options.max_events(100_000)).unwrap();
            let events = cache.changes();
            cache.start().unwrap();
            caches.push((cache, events));
        }
        let mut writers = JoinSet::new();
        for seed in 0..20 {
            let (client, root) = (client.clone(), root.clone());
            writers.spawn(async move {
                let mut random = StdRng::seed_from_u64(seed);
                for _ in 0..100 {
                    let node = format!("{root}/{}", random.random_range(0..10));
                    let written = match random.random_range(0..3) {
                        0 => client.create().for_path(&node).await.map(drop),
                        1 => client.set_data().for_path(&node, "new").await.map(drop),
                        _ => client.delete().for_path(&node).await,
                    };
                    assert!(
                        matches!(written, Ok(()) | Err(Error::NoNode { .. } | Error::NodeExists { .. })),
                        "{written:?}"
                    );
                }
            });
        }
        in_time(async { while writers.join_next().await.transpose().unwrap().is_some() {} }).await;
        for (cache, mut events) in caches {
            in_time(cache.caught_up()).await.unwrap();
            let reported = Replay::default().arrived(&mut events);
            let count = |of: fn(&Reported) -> bool| reported.iter().filter(|reported| of(reported)).count();
            let created = count(|reported| matches!(reported, Reported::Created(_)));
            assert_eq!(created - count(|reported| matches!(reported, Reported::Deleted(_))), cache.len());
            assert!(created > 10, "{reported:?}");
        }
    }

    /// Curator's `TestCuratorCacheConsistency.testConsistencyAfterSimulation`, for a shorter time and with lost
    /// connections and sessions. `interop` has the long one, with servers that are killed.
    async fn caches_agree_with_the_server_after_random_work_and_faults(env) {
        let env = env.alone();
        let seed = rand::random();
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let (root, writer) = (env.path("test"), env.client().await);
        create(&writer, &root, "").await;
        let mut watchers = Vec::new();
        for _ in 0..6 {
            watchers.push(Watcher::new(&env, &root).await);
        }
        for step in 1..=400 {
            let path: String = std::iter::once(root.clone())
                .chain((0..random.random_range(1..LEVELS)).map(|_| format!("/{}", random.random_range(0..NAMES))))
                .collect();
            match random.random() {
                true => {
                    let write = writer.create().or_set_data().creating_parents_if_needed();
                    write.with_data(step.to_string()).for_path(&path).await.unwrap();
                }
                false => writer.delete().quietly().deleting_children_if_needed().for_path(&path).await.unwrap(),
            }
            let watcher = &watchers[random.random_range(0..watchers.len())];
            match random.random_range(0..40) {
                0..3 => watcher.proxy.reset(),
                3 => {
                    let session = watcher.client.session().await.unwrap();
                    watcher.proxy.reset();
                    env.kill_session(&session).await;
                }
                _ => {}
            }
        }
        let mut tree = BTreeMap::new();
        let mut below = vec![root];
        while let Some(path) = below.pop() {
            below.extend(env::children(&writer, &path).await.into_iter().map(|name| format!("{path}/{name}")));
            tree.insert(path.clone(), writer.get_data().for_path(&path).await.unwrap().0);
        }
        for mut watcher in watchers {
            eventually("the contents are those of the server", async || {
                // An error: the connection may be lost now.
                in_time(watcher.cache.synced()).await.is_ok()
            })
            .await;
            assert_eq!(contents(&watcher.cache), tree);
            watcher.replay.arrived(&mut watcher.events);
            let replayed: BTreeMap<_, _> =
                watcher.replay.0.iter().map(|(path, node)| (path.clone(), node.data.clone())).collect();
            assert_eq!(replayed, tree);
        }
    }
}

/// A cache with a connection that can be lost, and a reader of its events.
struct Watcher {
    proxy: FaultProxy,
    client: CuratorFramework,
    cache: CuratorCache,
    events: Changes<CacheEvent>,
    replay: Replay,
}

impl Watcher {
    async fn new(env: &Env, root: &str) -> Self {
        let proxy = env.proxy();
        let client = connected(env::builder(proxy.address())).await;
        let cache = CuratorCache::new(client.clone(), root).unwrap();
        let events = cache.changes();
        cache.start().unwrap();
        Self { proxy, client, cache, events, replay: Replay::default() }
    }
}

/// Curator's `testGreaterThan64kZNodes`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_loads_more_than_64_k_nodes() {
    const PARENTS: usize = 70;
    const NODES: usize = 1 + PARENTS + PARENTS * 1000;
    let server = curator_integration::in_process::server();
    let client = curator_integration::in_process::client(&server).await;
    create(&client, "/test", "").await;
    for parent in 0..PARENTS {
        let parent = format!("/test/{parent}");
        let children = (0..1000).map(|number| CuratorOp::create(format!("{parent}/{number}")));
        commit(&client, [CuratorOp::create(&parent)].into_iter().chain(children)).await;
    }
    let cache = CuratorCache::new(client.clone(), "/test").unwrap();
    let mut events = cache.changes();
    cache.start().unwrap();
    in_time(cache.initialized()).await.unwrap();
    assert_eq!(cache.len(), NODES);
    // The stream was not read in the meantime, and more events than its limit were dropped.
    let mut replay = Replay::default();
    let reported = replay.arrived(&mut events);
    assert_eq!((&reported[0], reported.len(), replay.0.len()), (&Reported::Reset, NODES + 2, NODES));
}

/// Curator's `TestCuratorCacheEdges.testServerLoss`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_whose_server_dies_goes_on_at_another_one() {
    let sessions = (Duration::from_secs(2), Duration::from_secs(60));
    let cluster = ApacheCluster::builder().tick(Duration::from_millis(500)).session_timeouts(sessions.0, sessions.1);
    let cluster = block_in_place(|| cluster.start()).unwrap();
    let options = |servers: String| {
        let options = CuratorFramework::builder(servers).session_timeout(Duration::from_secs(10));
        options.retry_policy(RetryForever::new(Duration::from_millis(100)).unwrap())
    };
    let address = |server| cluster.server(server).unwrap().to_string();
    let (dying, other) = ([0, 2], connected(options(address(1))).await);
    let client = connected(options(dying.map(address).join(","))).await;
    create(&client, "/test", "").await;
    let cache = loaded(&client, "/test", CuratorCacheOptions::new()).await;
    let (mut events, mut replay) = (cache.changes(), Replay::default());
    for name in ["one", "two", "three"] {
        create(&client, &format!("/test/{name}"), "").await;
    }
    in_time(cache.caught_up()).await.unwrap();
    assert_eq!(replay.arrived(&mut events).len(), 5);
    for server in dying {
        block_in_place(|| cluster.kill(server)).unwrap();
        eventually("the others serve", async || other.set_data().for_path("/test/one", "x").await.is_ok()).await;
        eventually("the cache is fresh", async || cache.synced().await.is_ok()).await;
        assert!(cache.state().is_fresh());
        assert_eq!((cache.len(), cache.get("/test/one").present().unwrap().data.as_slice()), (4, &b"x"[..]));
        block_in_place(|| cluster.restart(server)).unwrap();
        block_in_place(|| cluster.wait_for_server(server)).unwrap();
    }
    replay.arrived(&mut events);
    assert_eq!(replay.0.len(), 4);
}

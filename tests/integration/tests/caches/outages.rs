//! Caches over lost connections, and over servers that have lost their data.

use std::time::Duration;

use curator_framework::{CuratorFramework, CuratorOp};
use curator_integration::env::{self, builder, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{CacheError, CacheState, CuratorCache, CuratorCacheOptions, Lookup};

use crate::stage::{Replay, Reported, away, commit, contents, loaded};

on_every_server! {
    async fn the_contents_stay_in_an_outage_and_the_state_says_since_when(env) {
        let (proxy, other, root) = (env.proxy(), env.client().await, env.path("tree"));
        other.create().creating_parents_if_needed().with_data("1").for_path(&root).await.unwrap();
        let cache = loaded(&connected(builder(proxy.address())).await, &root, CuratorCacheOptions::new()).await;
        let before = in_time(cache.synced()).await.unwrap();
        let (requests, lost) = (proxy.reads(), tokio::time::Instant::now());
        let mut written = 0;
        away(&proxy, &cache, async {
            let CacheState::Stale { since, zxid } = cache.state() else { panic!("{:?}", cache.state()) };
            assert!(since >= lost && zxid >= before);
            written = other.set_data().for_path(&root, "2").await.unwrap().mzxid;
            assert_eq!(cache.get(&root).present().unwrap().data, b"1");
            let CacheState::Stale { since: still, .. } = cache.state() else { panic!("{:?}", cache.state()) };
            assert_eq!(since, still);
            in_time(cache.initialized()).await.unwrap();
        })
        .await;
        let CacheState::Fresh { zxid: fresh } = cache.state() else { panic!("{:?}", cache.state()) };
        assert!(fresh.get() >= written);
        assert_eq!((cache.get(&root).present().unwrap().data.as_slice(), proxy.reads() - requests), (&b"2"[..], 1));
    }

    async fn a_root_comes_and_goes_also_in_outages(env) {
        let (proxy, other, root) = (env.proxy(), env.client().await, env.path("parent/tree"));
        let child = format!("{root}/child");
        let cache = loaded(&connected(builder(proxy.address())).await, &root, CuratorCacheOptions::new()).await;
        let (mut events, mut replay) = (cache.changes(), Replay::default());
        assert_eq!((replay.arrived(&mut events), cache.get(&root)), (vec![Reported::Initialized], Lookup::Missing));
        let create = async || drop(other.create().creating_parents_if_needed().for_path(&child).await.unwrap());
        let delete = async || commit(&other, [CuratorOp::delete(&child), CuratorOp::delete(&root)]).await;
        let (created, deleted) = (
            [Reported::Created(root.clone()), Reported::Created(child.clone())],
            [Reported::Deleted(child.clone()), Reported::Deleted(root.clone())],
        );
        for is_away in [false, true, false] {
            for (reported, exists) in [(&created, true), (&deleted, false), (&created, true)] {
                let change = async {
                    match exists {
                        true => create().await,
                        false => delete().await,
                    }
                };
                match is_away {
                    true => away(&proxy, &cache, change).await,
                    false => {
                        change.await;
                        in_time(cache.synced()).await.unwrap();
                    }
                }
                assert_eq!(replay.arrived(&mut events), reported, "{is_away}");
                assert_eq!((cache.len(), cache.get(&root).present().is_some()), (2 * usize::from(exists), exists));
            }
            // Deleted and created again.
            let again = async {
                delete().await;
                create().await;
            };
            match is_away {
                true => away(&proxy, &cache, again).await,
                false => {
                    again.await;
                    in_time(cache.synced()).await.unwrap();
                }
            }
            assert_eq!(replay.arrived(&mut events), [deleted.clone(), created.clone()].concat());
            delete().await;
            in_time(cache.synced()).await.unwrap();
            assert_eq!(replay.arrived(&mut events), deleted);
        }
    }

    async fn a_server_that_restarts_again_and_again_leaves_the_contents_right(env) {
        let env = env.alone();
        let (client, other, root) = (env.client().await, env.client().await, env.path("tree"));
        other.create().creating_parents_if_needed().for_path(&root).await.unwrap();
        commit(&other, (0..50).map(|number| CuratorOp::create(format!("{root}/{number}")))).await;
        let cache = loaded(&client, &root, CuratorCacheOptions::new()).await;
        let (mut events, mut replay) = (cache.changes(), Replay::default());
        for round in 0..3 {
            let mut change = (0..50).map(|number| CuratorOp::set_data(format!("{root}/{number}"), format!("{round}")));
            env.restart().await;
            eventually("written", async || {
                let part = change.by_ref().take(25).collect::<Vec<_>>();
                other.transaction().operations(part).commit().await.is_ok()
            })
            .await;
            eventually("fresh", async || cache.synced().await.is_ok()).await;
            replay.arrived(&mut events);
            let nodes: Vec<_> = replay.0.values().map(|node| (node.path.clone(), node.data.clone())).collect();
            assert_eq!(nodes, contents(&cache).into_iter().collect::<Vec<_>>());
            for (path, data) in nodes {
                assert_eq!(other.get_data().for_path(&path).await.unwrap().0, data);
            }
        }
    }
}

async fn write_often(client: &CuratorFramework, path: &str) {
    for number in 0..50 {
        client.set_data().for_path(path, number.to_string()).await.unwrap();
    }
}

/// A restored backup: the transactions of the server are older than those that the cache has seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_has_lost_its_data_replaces_the_contents() {
    let server = curator_integration::in_process::server();
    // The server refuses it for as long as its session lasts.
    let client = connected(builder(server.address()).session_timeout(Duration::from_secs(2))).await;
    commit(&client, ["/tree", "/tree/a", "/tree/b"].map(CuratorOp::create)).await;
    for path in ["/tree", "/tree/a", "/tree/b"] {
        write_often(&client, path).await;
    }
    let cache = loaded(&client, "/tree", CuratorCacheOptions::new()).await;
    let (mut events, mut replay) = (cache.changes(), Replay::default());
    let (snapshot, before) = (cache.snapshot().unwrap(), in_time(cache.synced()).await.unwrap());
    assert_eq!(replay.arrived(&mut events).len(), 4);
    tokio::task::block_in_place(|| server.restart_empty()).unwrap();
    let other = env::connected(builder(server.address())).await;
    commit(&other, ["/tree", "/tree/a", "/tree/c"].map(|path| CuratorOp::create(path).with_data("new"))).await;
    eventually("the new nodes", async || cache.synced().await.is_ok_and(|zxid| zxid < before)).await;
    let check = |cache: &CuratorCache| {
        let nodes: Vec<_> = contents(cache).into_iter().collect();
        let expected = ["/tree", "/tree/a", "/tree/c"].map(|path| (path.to_owned(), b"new".to_vec()));
        assert_eq!(nodes, expected);
    };
    check(&cache);
    let mut reported = replay.arrived(&mut events);
    assert_eq!((reported.len(), replay.0.len()), (6, 3), "{reported:?}");
    reported.truncate(3);
    assert!(reported.iter().all(|reported| matches!(reported, Reported::Deleted(_))), "{reported:?}");
    // So does a cache that resumes.
    assert!(matches!(
        CuratorCache::with_options(other.clone(), "/other", CuratorCacheOptions::new().resume(snapshot.clone())),
        Err(CacheError::InvalidArgument { argument: "resume", .. })
    ));
    let resumed = loaded(&other, "/tree", CuratorCacheOptions::new().resume(snapshot)).await;
    in_time(resumed.synced()).await.unwrap();
    check(&resumed);
    // Both follow.
    other.set_data().for_path("/tree", "newer").await.unwrap();
    for cache in [&cache, &resumed] {
        eventually("the change", async || cache.synced().await.is_ok()).await;
        assert_eq!(cache.get("/tree").present().unwrap().data, b"newer");
    }
}

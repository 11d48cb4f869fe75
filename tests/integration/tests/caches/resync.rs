//! Caches read only what has changed: at the load, in a session, after a lost connection, in a new session.

use std::collections::BTreeMap;
use std::time::Duration;

use curator_framework::{CuratorFramework, CuratorOp};
use curator_integration::env::{self, Env, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{CacheState, CuratorCache, CuratorCacheOptions, Lookup};
use curator_test::FaultProxy;

use crate::stage::{Replay, Reported, commit, contents, loaded, questions};

/// A tree of 10 × 100 nodes, with a client behind a proxy and another client.
struct Stage {
    proxy: FaultProxy,
    client: CuratorFramework,
    other: CuratorFramework,
    root: String,
}

impl Stage {
    async fn new(env: &Env) -> Self {
        let proxy = env.proxy();
        let builder = env::builder(proxy.address()).session_timeout(Duration::from_secs(60));
        let (client, other) = (env::connected(builder).await, env.client().await);
        let root = env.path("tree");
        other.create().creating_parents_if_needed().with_data("root").for_path(&root).await.unwrap();
        commit(&other, (0..10).map(|parent| CuratorOp::create(format!("{root}/{parent}")))).await;
        let stage = Self { proxy, client, other, root };
        commit(&stage.other, (0..1000).map(|number| CuratorOp::create(stage.node(number)))).await;
        stage
    }

    fn node(&self, number: usize) -> String {
        format!("{}/{}/{number}", self.root, number % 10)
    }

    /// Breaks the connection, awaits `changes`, and waits until the cache is fresh again.
    async fn away(&self, cache: &CuratorCache, changes: impl Future<Output = ()>) {
        self.proxy.refuse();
        self.proxy.reset();
        let stale = |state: &CacheState| matches!(state, CacheState::Stale { .. });
        in_time(cache.watch().wait_for(stale)).await.unwrap();
        in_time(cache.initialized()).await.expect("the first load is complete");
        changes.await;
        self.proxy.accept();
        drop(in_time(cache.synced()).await);
        in_time(cache.watch().wait_for(CacheState::is_fresh)).await.unwrap();
        in_time(cache.synced()).await.unwrap();
    }

    async fn change(&self, changes: usize) -> Vec<Reported> {
        let set = (0..changes).map(|number| CuratorOp::set_data(self.node(number), "x"));
        commit(&self.other, set).await;
        let mut reported: Vec<_> = (0..changes).map(|number| Reported::Changed(self.node(number))).collect();
        reported.sort();
        reported
    }
}

on_every_server! {
    async fn load_reads_each_node_once_and_lists_those_with_children(env) {
        let stage = Stage::new(&env).await;
        let before = stage.proxy.reads();
        let cache = loaded(&stage.client, &stage.root, CuratorCacheOptions::new()).await;
        assert_eq!(stage.proxy.reads() - before, 1011 + 11);
        assert_eq!((cache.len(), cache.state().is_fresh()), (1011, true));
        assert_eq!(cache.get(&stage.root).present().unwrap().data, b"root");
        assert_eq!(cache.get(&format!("{}/0/missing", stage.root)), Lookup::Missing);
        assert_eq!(cache.get("/elsewhere"), Lookup::NotLoaded);
        assert_eq!(cache.children(&stage.root).unwrap().len(), 10);
        cache.close().await;
        assert!(cache.is_empty() && matches!(cache.state(), CacheState::Closed));
    }

    async fn a_change_costs_one_read_and_a_deletion_none(env) {
        let stage = Stage::new(&env).await;
        let cache = loaded(&stage.client, &stage.root, CuratorCacheOptions::new()).await;
        let (mut events, mut replay) = (cache.changes(), Replay::default());
        assert_eq!(replay.arrived(&mut events).len(), 1012, "the contents, and that they are loaded");
        let before = stage.proxy.reads();
        let (node, new) = (stage.node(7), format!("{}/new", stage.root));
        for operation in [CuratorOp::set_data(&node, "y"), CuratorOp::create(&new), CuratorOp::delete(&node)] {
            commit(&stage.other, [operation]).await;
            in_time(cache.synced()).await.unwrap();
        }
        assert_eq!(stage.proxy.reads() - before, 2);
        let reported = [Reported::Changed(node.clone()), Reported::Created(new.clone()), Reported::Deleted(node.clone())];
        assert_eq!(replay.arrived(&mut events), reported);
        assert_eq!(cache.get(&node), Lookup::Missing);
        assert!(cache.get(&new).present().is_some());
        // A node that is created again has two events, also in one transaction.
        commit(&stage.other, [CuratorOp::delete(&new), CuratorOp::create(&new)]).await;
        in_time(cache.synced()).await.unwrap();
        assert_eq!(replay.arrived(&mut events), [Reported::Deleted(new.clone()), Reported::Created(new)]);
    }

    async fn a_lost_connection_costs_a_read_for_each_change(env) {
        let stage = Stage::new(&env).await;
        let cache = loaded(&stage.client, &stage.root, CuratorCacheOptions::new()).await;
        let (mut events, mut replay) = (cache.changes(), Replay::default());
        replay.arrived(&mut events);
        for changes in [0, 1, 100] {
            let (before, mut reported) = (stage.proxy.reads(), Vec::new());
            let asked = questions(&stage.proxy);
            stage.away(&cache, async { reported = stage.change(changes).await }).await;
            let mut heard = replay.arrived(&mut events);
            heard.sort();
            assert_eq!((heard, stage.proxy.reads() - before), (reported, changes));
            let asked = questions(&stage.proxy) - asked;
            assert!((1..=if changes == 0 { 2 } else { 64 }).contains(&asked), "{asked} questions for {changes} changes");
        }
        // A node is created again, with one below it, while the connection is lost.
        let parent = format!("{}/3", stage.root);
        let nodes: Vec<_> = (0..1000).filter(|number| number % 10 == 3).map(|number| stage.node(number)).collect();
        stage.away(&cache, async {
            let gone = nodes.iter().map(CuratorOp::delete).chain([CuratorOp::delete(&parent)]);
            commit(&stage.other, gone).await;
            commit(&stage.other, [CuratorOp::create(&parent), CuratorOp::create(&nodes[0])]).await;
        }).await;
        let heard = replay.arrived(&mut events);
        assert_eq!(heard.len(), 101 + 2);
        assert_eq!(heard[101..], [Reported::Created(parent), Reported::Created(nodes[0].clone())]);
    }

    async fn a_new_session_reads_only_what_has_changed(env) {
        let stage = Stage::new(&env).await;
        let cache = loaded(&stage.client, &stage.root, CuratorCacheOptions::new()).await;
        let (mut events, mut replay) = (cache.changes(), Replay::default());
        replay.arrived(&mut events);
        for changes in [0, 1, 100] {
            let before = stage.proxy.reads();
            let session = stage.client.session().await.unwrap();
            stage.proxy.refuse();
            stage.proxy.reset();
            let reported = stage.change(changes).await;
            env.kill_session(&session).await;
            stage.proxy.accept();
            eventually("a new session", async || {
                stage.client.session().await.is_ok_and(|new| !new.is_same(&session))
            })
            .await;
            in_time(cache.synced()).await.unwrap();
            let mut heard = replay.arrived(&mut events);
            heard.sort();
            assert_eq!((heard, stage.proxy.reads() - before), (reported, changes + 1), "{changes}, and the root");
        }
    }

    async fn a_cache_resumes_from_a_snapshot(env) {
        let stage = Stage::new(&env).await;
        let cache = loaded(&stage.client, &stage.root, CuratorCacheOptions::new()).await;
        let snapshot = cache.snapshot().unwrap();
        cache.close().await;
        let mut reported = stage.change(50).await;
        let (gone, new) = (stage.node(999), format!("{}/new", stage.root));
        commit(&stage.other, [CuratorOp::delete(&gone), CuratorOp::create(&new)]).await;
        reported.extend([Reported::Created(new), Reported::Deleted(gone), Reported::Initialized]);
        reported.sort();
        let before = stage.proxy.reads();
        let cache =
            CuratorCache::with_options(stage.client.clone(), &stage.root, CuratorCacheOptions::new().resume(snapshot))
                .unwrap();
        let (mut events, mut replay) = (cache.changes(), Replay::default());
        assert_eq!(replay.arrived(&mut events).len(), 1011);
        cache.start().unwrap();
        in_time(cache.initialized()).await.unwrap();
        let mut heard = replay.arrived(&mut events);
        heard.sort();
        assert_eq!(heard, reported);
        // The root, its list, the new node, and the changed ones.
        assert!(stage.proxy.reads() - before <= 50 + 5, "{}", stage.proxy.reads() - before);
        let there: BTreeMap<_, _> = replay.0.iter().map(|(path, node)| (path.clone(), node.data.clone())).collect();
        assert_eq!(contents(&cache), there);
    }
}

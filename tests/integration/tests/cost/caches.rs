//! The cost of a cache, on both servers. The table of `CuratorCache` has these numbers.

use std::collections::BTreeMap;

use curator_framework::{CuratorFramework, CuratorFrameworkBuilder, CuratorOp, ZooKeeperAsyncFactory};
use curator_integration::env::{Env, answered, builder, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{CuratorCache, CuratorCacheOptions};
use curator_test::FaultProxy;
use curator_test::wire::OpCode;

/// All that a cache may request.
const OPS: [OpCode; 10] = [
    OpCode::AddWatch,
    OpCode::CreateSession,
    OpCode::Exists,
    OpCode::GetChildren,
    OpCode::GetChildren2,
    OpCode::GetData,
    OpCode::RemoveWatches,
    OpCode::SetWatches,
    OpCode::SetWatches2,
    OpCode::Sync,
];

/// Requests by kind.
type Requests = BTreeMap<&'static str, usize>;

fn requests<const KINDS: usize>(kinds: [(OpCode, usize); KINDS]) -> Requests {
    kinds.into_iter().filter(|(_, count)| *count > 0).map(|(op, count)| (op.name(), count)).collect()
}

/// A tree, a client behind a proxy, and another client.
struct Ground {
    env: Env,
    proxy: FaultProxy,
    client: CuratorFramework,
    observer: CuratorFramework,
    root: String,
    all: usize,
    counted: Requests,
}

impl Ground {
    /// Creates `folders` nodes with `nodes` children each. With 0 folders the root has the `nodes` children.
    async fn new(env: Env, folders: usize, nodes: usize) -> Self {
        Self::with(env, |builder| builder, folders, nodes).await
    }

    /// The same, with another client.
    async fn with(
        env: Env,
        client: impl FnOnce(CuratorFrameworkBuilder) -> CuratorFrameworkBuilder,
        folders: usize,
        nodes: usize,
    ) -> Self {
        let proxy = env.proxy();
        let (client, observer) = (connected(client(builder(proxy.address()))).await, env.client().await);
        let root = env.path("tree");
        observer.create().creating_parents_if_needed().for_path(&root).await.unwrap();
        let parents: Vec<_> = (0..folders).map(|folder| format!("{root}/folder-{folder}")).collect();
        let above = if folders == 0 { vec![root.clone()] } else { parents.clone() };
        let leaves = above.iter().flat_map(|parent| (0..nodes).map(move |leaf| format!("{parent}/leaf-{leaf:04}")));
        let paths: Vec<_> = parents.into_iter().chain(leaves).collect();
        for paths in paths.chunks(500) {
            let creates = paths.iter().map(|path| CuratorOp::create(path).with_data([b'x'; 100]));
            observer.transaction().operations(creates).commit().await.unwrap();
        }
        let mut ground = Self { env, proxy, client, observer, root, all: paths.len() + 1, counted: Requests::new() };
        ground.requests();
        ground
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.root)
    }

    /// Returns the requests that were answered since the last call. Each read of a `multiRead` counts as one.
    fn requests(&mut self) -> Requests {
        let count = |op| match op {
            OpCode::GetData | OpCode::GetChildren | OpCode::GetChildren2 => self.proxy.reads_of(op),
            _ => self.proxy.replies(op),
        };
        let now: Requests = OPS.into_iter().map(|op| (op.name(), count(op))).collect();
        let before = std::mem::replace(&mut self.counted, now.clone());
        let since = |(op, count)| (op, count - before.get(op).copied().unwrap_or_default());
        now.into_iter().map(since).filter(|(_, count)| *count > 0).collect()
    }

    async fn cache(&self, options: CuratorCacheOptions) -> CuratorCache {
        let cache = CuratorCache::with_options(self.client.clone(), &self.root, options).unwrap();
        cache.start().unwrap();
        in_time(cache.initialized()).await.unwrap();
        cache
    }

    /// Returns the requests of a write that the cache shows.
    async fn of(&mut self, cache: &CuratorCache, write: CuratorOp) -> Requests {
        self.observer.transaction().operation(write).commit().await.unwrap();
        self.synced(cache).await
    }

    /// Returns the requests since the last call, without the one that waits for them.
    async fn synced(&mut self, cache: &CuratorCache) -> Requests {
        in_time(cache.synced()).await.unwrap();
        let mut requests = self.requests();
        let syncs = requests.get_mut(OpCode::Sync.name()).expect("a sync waits for the writes of other clients");
        *syncs -= 1;
        requests.retain(|_, count| *count > 0);
        requests
    }

    /// Breaks the client's connection while so many nodes change, and returns when it is back.
    async fn bounce(&self, changes: usize) {
        let session = self.client.session().await.unwrap();
        let epoch = session.epoch();
        self.proxy.refuse();
        self.proxy.reset();
        if changes > 0 {
            let paths = (0..changes).map(|leaf| self.path(&format!("leaf-{leaf:04}")));
            let writes = paths.map(|path| CuratorOp::set_data(path, "changed"));
            self.observer.transaction().operations(writes).commit().await.unwrap();
        }
        self.proxy.accept();
        eventually("the next connection", async || session.epoch() > epoch && session.is_connected()).await;
    }
}

on_every_server! {
    async fn load_is_a_read_of_each_node_and_a_list_of_each_with_children(env) {
        let mut ground = Ground::new(env, 30, 30).await;
        let cache = ground.cache(CuratorCacheOptions::new()).await;
        assert_eq!(cache.len(), ground.all);
        let lists = (OpCode::GetChildren, 31);
        assert_eq!(ground.requests(), requests([(OpCode::AddWatch, 1), (OpCode::GetData, ground.all), lists]));
    }

    async fn create_and_change_are_one_read_and_a_delete_is_none(env) {
        let mut ground = Ground::new(env, 2, 3).await;
        let cache = ground.cache(CuratorCacheOptions::new()).await;
        ground.requests();
        let (leaf, below) = (ground.path("folder-0/leaf-0000"), ground.path("folder-0/leaf-0000/first"));
        let read = requests([(OpCode::GetData, 1)]);
        assert_eq!(ground.of(&cache, CuratorOp::set_data(&leaf, "more")).await, read, "a change");
        assert_eq!(ground.of(&cache, CuratorOp::create(&below)).await, read, "the first child of a node");
        assert_eq!(ground.of(&cache, CuratorOp::delete(&below)).await, requests([]), "a delete");
        assert_eq!(ground.of(&cache, CuratorOp::delete(&leaf)).await, requests([]), "another one");
        assert_eq!(cache.len(), ground.all - 1);
    }

    async fn bounce_reads_what_has_changed(env) {
        let mut ground = Ground::new(env, 0, 1000).await;
        let cache = ground.cache(CuratorCacheOptions::new()).await;
        for changes in [0, 1, 100] {
            ground.requests();
            let before = ground.proxy.traffic();
            ground.bounce(changes).await;
            let after = ground.synced(&cache).await;
            let sent = ground.proxy.traffic().received - before.received;
            let count = |ops: [OpCode; 2]| ops.iter().filter_map(|op| after.get(op.name())).sum::<usize>();
            let watches = count([OpCode::SetWatches, OpCode::SetWatches2]);
            let reads = count([OpCode::GetData, OpCode::GetChildren]);
            let questions = after.get(OpCode::Exists.name()).copied().unwrap_or(0);
            // The third one is the connect.
            assert_eq!((watches, reads, after.values().sum()), (2, changes, 2 + changes + questions + 1), "{after:?}");
            // The newest write, and the newest change of a list. If others have changed these, all newest writes.
            assert!((1..=if changes == 0 { 2 } else { 64 }).contains(&questions), "{after:?}");
            let path = ground.path("leaf-0000");
            assert!(sent <= (ground.all * (60 + path.len())) as u64, "{sent} bytes for paths like {path}");
            let node = |leaf| cache.get(&ground.path(&format!("leaf-{leaf:04}"))).present();
            let changed = (0..1000).filter_map(node).filter(|node| node.data == b"changed").count();
            assert_eq!(changed, changes);
        }
    }

    async fn new_session_reads_what_has_changed_and_the_root(env) {
        let mut ground = Ground::new(env, 0, 1000).await;
        let cache = ground.cache(CuratorCacheOptions::new()).await;
        ground.requests();
        let session = ground.client.session().await.unwrap();
        ground.env.kill_session(&session).await;
        eventually("the next session", async || ground.client.session().await.is_ok_and(|now| !now.is_same(&session)))
            .await;
        let after = ground.synced(&cache).await;
        let count = |op: OpCode| after.get(op.name()).copied().unwrap_or_default();
        assert_eq!([OpCode::GetData, OpCode::GetChildren, OpCode::Sync].map(count), [1, 0, 1], "{after:?}");
        assert_eq!(cache.len(), ground.all);
    }

    async fn cache_of_one_node_is_one_read(env) {
        let mut ground = Ground::new(env, 0, 10).await;
        let cache = ground.cache(CuratorCacheOptions::new().single_node()).await;
        assert_eq!(ground.requests(), requests([(OpCode::AddWatch, 1), (OpCode::GetData, 1)]));
        let change = CuratorOp::set_data(&ground.root, "more");
        assert_eq!(ground.of(&cache, change).await, requests([(OpCode::GetData, 1)]));
    }

    async fn path_beyond_the_depth_or_the_filter_is_not_read(env) {
        let mut ground = Ground::new(env, 5, 10).await;
        let cache = ground.cache(CuratorCacheOptions::new().max_depth(1)).await;
        let expected = |lists| requests([(OpCode::AddWatch, 1), (OpCode::GetData, 6), (OpCode::GetChildren, lists)]);
        assert_eq!(ground.requests(), expected(1));
        let below = ground.path("folder-0/leaf-one");
        assert_eq!(ground.of(&cache, CuratorOp::create(&below)).await, requests([]));
        in_time(cache.close()).await;
        answered(std::slice::from_ref(&ground.client)).await;
        ground.requests();
        let cache = ground.cache(CuratorCacheOptions::new().filter(|path| !path.contains("leaf"))).await;
        assert_eq!(ground.requests(), expected(6));
        let below = ground.path("folder-0/leaf-two");
        assert_eq!(ground.of(&cache, CuratorOp::create(&below)).await, requests([]));
    }

    async fn closed_cache_is_told_nothing(env) {
        let mut ground = Ground::new(env, 0, 10).await;
        let cache = ground.cache(CuratorCacheOptions::new()).await;
        ground.requests();
        in_time(cache.close()).await;
        answered(std::slice::from_ref(&ground.client)).await;
        assert_eq!(ground.requests(), requests([(OpCode::RemoveWatches, 1), (OpCode::Exists, 1)]));
        let before = ground.proxy.traffic().sent;
        answered(std::slice::from_ref(&ground.client)).await;
        let alone = ground.proxy.traffic().sent - before;
        ground.observer.set_data().for_path(&ground.path("leaf-0000"), "more").await.unwrap();
        answered(std::slice::from_ref(&ground.client)).await;
        assert_eq!(ground.proxy.traffic().sent - before, 2 * alone, "a notification has arrived");
    }

    async fn zookeeper_async_reads_and_lists_each_node_again(env) {
        let mut ground = Ground::with(env, |builder| builder.zookeeper_factory(ZooKeeperAsyncFactory), 3, 10).await;
        let cache = ground.cache(CuratorCacheOptions::new()).await;
        let load = requests([(OpCode::GetData, ground.all), (OpCode::GetChildren, ground.all)]);
        assert_eq!(ground.requests(), load);
        let leaf = ground.path("folder-0/leaf-0000");
        ground.observer.set_data().for_path(&leaf, "more").await.unwrap();
        let is_changed = async || cache.get(&leaf).present().is_some_and(|node| node.data == b"more");
        eventually("the change", is_changed).await;
        assert_eq!(ground.requests(), requests([(OpCode::GetData, 1)]));
        ground.bounce(0).await;
        let mut counted = Requests::new();
        eventually("all nodes are read", async || {
            for (op, count) in ground.requests() {
                *counted.entry(op).or_default() += count;
            }
            load.iter().all(|(op, count)| counted.get(op) >= Some(count))
        })
        .await;
        assert_eq!(load.keys().map(|op| counted[op]).collect::<Vec<_>>(), [ground.all; 2], "{counted:?}");
    }
}

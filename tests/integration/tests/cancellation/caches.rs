//! The asynchronous methods of caches, dropped at every poll: the cache continues, and its close leaves nothing.

use curator_integration::lock_stage::QUIET;
use curator_integration::operations::LONG;
use curator_recipes::{
    CacheEvent, CacheState, Changes, CuratorCache, NodeCache, PathChildrenCache, StartMode, TreeCache,
};
use tokio::time::sleep;

use crate::Row;

fn cache(method: &'static str, call: impl AsyncFn(&CuratorCache, &mut Changes<CacheEvent>) + 'static) -> Row {
    Row::new(method, async move |scene| {
        scene.stage.front.create().for_path("/tree").await.unwrap();
        let cache = CuratorCache::new(scene.stage.client.clone(), "/tree").unwrap();
        let (mut events, mut others) = (cache.changes(), cache.changes());
        cache.start().unwrap();
        scene.call(call(&cache, &mut others)).await;
        sleep(QUIET).await;
        if scene.is_called() && method == "CuratorCache::close" {
            assert!(matches!(cache.state(), CacheState::Closed));
        } else {
            scene.stage.front.create().for_path("/tree/new").await.unwrap();
            cache.synced().await.unwrap();
            let mut created = 0;
            while let Ok(event) = events.try_recv() {
                created += usize::from(matches!(event, CacheEvent::Created(_)));
            }
            assert_eq!((cache.len(), created), (2, 2));
        }
        cache.close().await;
    })
}

pub(crate) fn caches() -> Vec<Row> {
    vec![
        cache("Changes<CacheEvent>::recv", async |_, events| {
            assert!(matches!(events.recv().await, Some(CacheEvent::Created(_))));
        }),
        cache("CuratorCache::caught_up", async |cache, _| _ = cache.caught_up().await.unwrap()),
        cache("CuratorCache::close", async |cache, _| cache.close().await),
        cache("CuratorCache::initialized", async |cache, _| cache.initialized().await.unwrap()),
        cache("CuratorCache::initialized_timeout", async |cache, _| {
            cache.initialized_timeout(LONG).await.unwrap().unwrap();
        }),
        cache("CuratorCache::rebuild", async |cache, _| cache.rebuild().await.unwrap()),
        cache("CuratorCache::synced", async |cache, _| _ = cache.synced().await.unwrap()),
    ]
}

/// A cache of each older type, of one path.
struct Older {
    node: NodeCache,
    children: PathChildrenCache,
    tree: TreeCache,
}

fn older(method: &'static str, call: impl AsyncFn(&Older) + 'static) -> Row {
    Row::new(method, async move |scene| {
        let front = scene.stage.front.clone();
        front.create().creating_parents_if_needed().for_path("/tree/old").await.unwrap();
        let client = || scene.stage.client.clone();
        let caches = Older {
            node: NodeCache::new(client(), "/tree").unwrap(),
            children: PathChildrenCache::new(client(), "/tree").unwrap(),
            tree: TreeCache::builder(client(), "/tree").create_parent_nodes(true).build().unwrap(),
        };
        let Older { node, children, tree } = &caches;
        tree.start().unwrap();
        if !method.starts_with("NodeCache::start") {
            node.start().unwrap();
        }
        if !method.starts_with("PathChildrenCache::start") {
            children.start().unwrap();
        }
        scene.call(call(&caches)).await;
        sleep(QUIET).await;
        // Those that were started before refuse.
        node.start().ok();
        children.start().ok();
        front.set_data().for_path("/tree", "new").await.unwrap();
        front.create().for_path("/tree/new").await.unwrap();
        let closed = method.strip_suffix("::close").filter(|_| scene.is_called());
        if closed == Some("NodeCache") {
            assert!(matches!(node.state(), CacheState::Closed));
        } else {
            node.synced().await.unwrap();
            assert_eq!(node.current_data().unwrap().data, b"new");
        }
        if closed == Some("PathChildrenCache") {
            assert!(matches!(children.state(), CacheState::Closed));
        } else {
            children.synced().await.unwrap();
            assert_eq!(children.current_data().len(), 2);
        }
        if closed == Some("TreeCache") {
            assert!(matches!(tree.state(), CacheState::Closed));
        } else {
            tree.synced().await.unwrap();
            assert_eq!(tree.size(), 3);
        }
        tokio::join!(node.close(), children.close(), tree.close());
    })
}

pub(crate) fn older_caches() -> Vec<Row> {
    vec![
        older("Changes::recv", async |of| assert!(of.node.changes().recv().await.is_some())),
        older("NodeCache::close", async |of| of.node.close().await),
        older("NodeCache::initialized", async |of| of.node.initialized().await.unwrap()),
        older("NodeCache::initialized_timeout", async |of| {
            of.node.initialized_timeout(LONG).await.unwrap().unwrap();
        }),
        older("NodeCache::rebuild", async |of| of.node.rebuild().await.unwrap()),
        older("NodeCache::start_with_initial_build", async |of| of.node.start_with_initial_build().await.unwrap()),
        older("NodeCache::synced", async |of| _ = of.node.synced().await.unwrap()),
        older("PathChildrenCache::close", async |of| of.children.close().await),
        older("PathChildrenCache::initialized", async |of| of.children.initialized().await.unwrap()),
        older("PathChildrenCache::initialized_timeout", async |of| {
            of.children.initialized_timeout(LONG).await.unwrap().unwrap();
        }),
        older("PathChildrenCache::rebuild", async |of| of.children.rebuild().await.unwrap()),
        older("PathChildrenCache::rebuild_node", async |of| of.children.rebuild_node("/tree/old").await.unwrap()),
        older("PathChildrenCache::start_with", async |of| {
            of.children.start_with(StartMode::BuildInitialCache).await.unwrap();
        }),
        older("PathChildrenCache::synced", async |of| _ = of.children.synced().await.unwrap()),
        older("TreeCache::close", async |of| of.tree.close().await),
        older("TreeCache::initialized", async |of| of.tree.initialized().await.unwrap()),
        older("TreeCache::initialized_timeout", async |of| {
            of.tree.initialized_timeout(LONG).await.unwrap().unwrap();
        }),
        older("TreeCache::rebuild", async |of| of.tree.rebuild().await.unwrap()),
        older("TreeCache::synced", async |of| _ = of.tree.synced().await.unwrap()),
    ]
}

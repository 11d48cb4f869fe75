//! The asynchronous methods of caches, dropped at every poll: the cache goes on, and its close leaves nothing.

use curator_integration::cuts::{Cut, poll_until};
use curator_integration::lock_stage::{QUIET, Stage, play};
use curator_integration::operations::{LONG, Local};
use curator_recipes::{CacheEvent, CacheState, CuratorCache, NodeCache, PathChildrenCache, StartMode, TreeCache};
use tokio::time::sleep;

use crate::{LATENCY, Row};

const OF_CACHES: [&str; 7] = [
    "Changes<CacheEvent>::recv",
    "CuratorCache::caught_up",
    "CuratorCache::close",
    "CuratorCache::initialized",
    "CuratorCache::initialized_timeout",
    "CuratorCache::rebuild",
    "CuratorCache::synced",
];

const OF_OLDER_CACHES: [&str; 19] = [
    "Changes::recv",
    "NodeCache::close",
    "NodeCache::initialized",
    "NodeCache::initialized_timeout",
    "NodeCache::rebuild",
    "NodeCache::start_with_initial_build",
    "NodeCache::synced",
    "PathChildrenCache::close",
    "PathChildrenCache::initialized",
    "PathChildrenCache::initialized_timeout",
    "PathChildrenCache::rebuild",
    "PathChildrenCache::rebuild_node",
    "PathChildrenCache::start_with",
    "PathChildrenCache::synced",
    "TreeCache::close",
    "TreeCache::initialized",
    "TreeCache::initialized_timeout",
    "TreeCache::rebuild",
    "TreeCache::synced",
];

async fn drop_of_cache(method: &str, cut: Cut, what: &str) -> bool {
    let stage = Stage::new(LATENCY).await;
    stage.front.create().for_path("/tree").await.unwrap();
    let before = stage.footprint();
    let cache = CuratorCache::new(stage.client.clone(), "/tree").unwrap();
    let (mut events, mut others) = (cache.changes(), cache.changes());
    cache.start().unwrap();
    let ours = cache.clone();
    let call: Local<()> = match method {
        "Changes<CacheEvent>::recv" => {
            Box::pin(async move { assert!(matches!(others.recv().await, Some(CacheEvent::Created(_)))) })
        }
        "CuratorCache::caught_up" => Box::pin(async move { _ = ours.caught_up().await.unwrap() }),
        "CuratorCache::close" => Box::pin(async move { ours.close().await }),
        "CuratorCache::initialized" => Box::pin(async move { ours.initialized().await.unwrap() }),
        "CuratorCache::initialized_timeout" => {
            Box::pin(async move { ours.initialized_timeout(LONG).await.unwrap().unwrap() })
        }
        "CuratorCache::rebuild" => Box::pin(async move { ours.rebuild().await.unwrap() }),
        "CuratorCache::synced" => Box::pin(async move { _ = ours.synced().await.unwrap() }),
        other => panic!("{other}"),
    };
    let completes = poll_until(call, cut).await.is_some();
    sleep(QUIET).await;
    if cut != Cut::Before(0) && method == "CuratorCache::close" {
        assert!(matches!(cache.state(), CacheState::Closed), "{what}");
    } else {
        stage.front.create().for_path("/tree/new").await.unwrap();
        cache.synced().await.unwrap();
        let mut created = 0;
        while let Ok(event) = events.try_recv() {
            created += usize::from(matches!(event, CacheEvent::Created(_)));
        }
        assert_eq!((cache.len(), created), (2, 2), "{what}");
    }
    cache.close().await;
    drop((cache, events));
    stage.assert_as_before(Vec::new(), &before, what).await;
    completes
}

/// A cache of each older type, of one path.
struct Older {
    node: NodeCache,
    children: PathChildrenCache,
    tree: TreeCache,
}

impl Older {
    /// Starts the caches that were not started.
    async fn start(&self, but: &str) {
        if matches!(self.tree.state(), CacheState::Latent) {
            self.tree.start().unwrap();
        }
        if !but.starts_with("NodeCache::start") && matches!(self.node.state(), CacheState::Latent) {
            self.node.start().unwrap();
        }
        if !but.starts_with("PathChildrenCache::start") && matches!(self.children.state(), CacheState::Latent) {
            self.children.start().unwrap();
        }
    }

    fn call(&self, method: &str) -> Local<()> {
        let (node, children, tree) = (self.node.clone(), self.children.clone(), self.tree.clone());
        let mut events = node.changes();
        match method {
            "Changes::recv" => Box::pin(async move { assert!(events.recv().await.is_some()) }),
            "NodeCache::close" => Box::pin(async move { node.close().await }),
            "NodeCache::initialized" => Box::pin(async move { node.initialized().await.unwrap() }),
            "NodeCache::initialized_timeout" => {
                Box::pin(async move { node.initialized_timeout(LONG).await.unwrap().unwrap() })
            }
            "NodeCache::rebuild" => Box::pin(async move { node.rebuild().await.unwrap() }),
            "NodeCache::start_with_initial_build" => {
                Box::pin(async move { node.start_with_initial_build().await.unwrap() })
            }
            "NodeCache::synced" => Box::pin(async move { _ = node.synced().await.unwrap() }),
            "PathChildrenCache::close" => Box::pin(async move { children.close().await }),
            "PathChildrenCache::initialized" => Box::pin(async move { children.initialized().await.unwrap() }),
            "PathChildrenCache::initialized_timeout" => {
                Box::pin(async move { children.initialized_timeout(LONG).await.unwrap().unwrap() })
            }
            "PathChildrenCache::rebuild" => Box::pin(async move { children.rebuild().await.unwrap() }),
            "PathChildrenCache::rebuild_node" => {
                Box::pin(async move { children.rebuild_node("/tree/old").await.unwrap() })
            }
            "PathChildrenCache::start_with" => {
                Box::pin(async move { children.start_with(StartMode::BuildInitialCache).await.unwrap() })
            }
            "PathChildrenCache::synced" => Box::pin(async move { _ = children.synced().await.unwrap() }),
            "TreeCache::close" => Box::pin(async move { tree.close().await }),
            "TreeCache::initialized" => Box::pin(async move { tree.initialized().await.unwrap() }),
            "TreeCache::initialized_timeout" => {
                Box::pin(async move { tree.initialized_timeout(LONG).await.unwrap().unwrap() })
            }
            "TreeCache::rebuild" => Box::pin(async move { tree.rebuild().await.unwrap() }),
            "TreeCache::synced" => Box::pin(async move { _ = tree.synced().await.unwrap() }),
            other => panic!("{other}"),
        }
    }
}

async fn drop_of_older_cache(method: &str, cut: Cut, what: &str) -> bool {
    let stage = Stage::new(LATENCY).await;
    stage.front.create().creating_parents_if_needed().for_path("/tree/old").await.unwrap();
    let before = stage.footprint();
    let client = || stage.client.clone();
    let caches = Older {
        node: NodeCache::new(client(), "/tree").unwrap(),
        children: PathChildrenCache::new(client(), "/tree").unwrap(),
        tree: TreeCache::builder(client(), "/tree").create_parent_nodes(true).build().unwrap(),
    };
    caches.start(method).await;
    let completes = poll_until(caches.call(method), cut).await.is_some();
    sleep(QUIET).await;
    caches.start("").await;
    stage.front.set_data().for_path("/tree", "new").await.unwrap();
    stage.front.create().for_path("/tree/new").await.unwrap();
    let is_closed = |of: &str| cut != Cut::Before(0) && method == format!("{of}::close");
    let Older { node, children, tree } = &caches;
    if is_closed("NodeCache") {
        assert!(matches!(node.state(), CacheState::Closed), "{what}");
    } else {
        node.synced().await.unwrap();
        assert_eq!(node.current_data().unwrap().data, b"new", "{what}");
    }
    if is_closed("PathChildrenCache") {
        assert!(matches!(children.state(), CacheState::Closed), "{what}");
    } else {
        children.synced().await.unwrap();
        assert_eq!(children.current_data().len(), 2, "{what}");
    }
    if is_closed("TreeCache") {
        assert!(matches!(tree.state(), CacheState::Closed), "{what}");
    } else {
        tree.synced().await.unwrap();
        assert_eq!(tree.size(), 3, "{what}");
    }
    tokio::join!(node.close(), children.close(), tree.close());
    drop(caches);
    stage.assert_as_before(Vec::new(), &before, what).await;
    completes
}

pub(crate) fn caches() -> Vec<Row> {
    let row = |method| Row::new(method, "", 1, move |cut, what| play(drop_of_cache(method, cut, what)));
    OF_CACHES.map(row).into()
}

pub(crate) fn older_caches() -> Vec<Row> {
    let row = |method| Row::new(method, "", 1, move |cut, what| play(drop_of_older_cache(method, cut, what)));
    OF_OLDER_CACHES.map(row).into()
}

//! A cache in Rust, and two maps that are built from its reports: by its stream, and by its listener.

use std::collections::BTreeMap;
use std::sync::Arc;

use curator_framework::CuratorFramework;
use curator_integration::env::{eventually, in_time};
use curator_recipes::{
    CacheEvent, CacheState, Changes, ChildData, CuratorCache, CuratorCacheListener, CuratorCacheOptions,
};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::tree::Tree;

/// The nodes that result from events.
type Reported = BTreeMap<String, ChildData>;

/// Returns a node without the numbers that its children change. A cache does not follow them, but a later read shows them.
fn told(node: &ChildData) -> ChildData {
    let mut told = node.clone();
    (told.stat.cversion, told.stat.num_children, told.stat.pzxid) = (0, 0, 0);
    told
}

/// Applies an event. Fails if it does not fit to those before it.
fn apply(reported: &mut Reported, event: &CacheEvent) {
    match event {
        CacheEvent::Created(node) => {
            let before = reported.insert(node.path.clone(), told(node));
            assert_eq!(before, None, "{} is created, but there already", node.path);
        }
        CacheEvent::Changed { old, new } => {
            let before = reported.insert(new.path.clone(), told(new));
            assert_eq!(before, Some(told(old)), "{} has not changed from what it was", new.path);
        }
        CacheEvent::Deleted(node) => {
            assert_eq!(reported.remove(&node.path), Some(told(node)), "{} was not so before its deletion", node.path);
        }
        CacheEvent::Reset => reported.clear(),
        CacheEvent::Initialized => {}
        other => panic!("{other:?}"),
    }
}

/// Applies the events of a stream until it must stop.
async fn follow(mut events: Changes<CacheEvent>, mut stop: oneshot::Receiver<()>) -> (Reported, Changes<CacheEvent>) {
    let mut reported = Reported::new();
    loop {
        tokio::select! {
            _ = &mut stop => return (reported, events),
            event = events.recv() => apply(&mut reported, &event.expect("the cache goes on")),
        }
    }
}

pub(super) struct Follower {
    name: &'static str,
    client: CuratorFramework,
    cache: CuratorCache,
    by_listener: Arc<Mutex<Reported>>,
    stop: oneshot::Sender<()>,
    by_stream: JoinHandle<(Reported, Changes<CacheEvent>)>,
}

impl Follower {
    /// Starts a cache, and waits for its first load.
    pub(super) async fn start(
        name: &'static str,
        client: CuratorFramework,
        path: &str,
        options: CuratorCacheOptions,
    ) -> Self {
        let cache = CuratorCache::with_options(client.clone(), path, options).unwrap();
        let by_listener = Arc::<Mutex<Reported>>::default();
        let map = Arc::clone(&by_listener);
        let listener = CuratorCacheListener::builder().for_all(move |event: &CacheEvent| apply(&mut map.lock(), event));
        cache.add_listener(listener.build());
        let (stop, stopped) = oneshot::channel();
        let by_stream = tokio::spawn(follow(cache.changes(), stopped));
        cache.start().unwrap();
        in_time(cache.initialized()).await.unwrap();
        Self { name, client, cache, by_listener, stop, by_stream }
    }

    /// Checks that the cache, its stream and its listener have these nodes.
    pub(super) async fn assert_has(self, expected: &Tree) {
        let Self { name, client, cache, by_listener, stop, by_stream } = self;
        let zxid = in_time(cache.synced()).await.unwrap();
        assert!(
            matches!(cache.state(), CacheState::Fresh { zxid: fresh } if fresh >= zxid),
            "{name}: {:?}",
            cache.state()
        );
        Tree::of(&cache.nodes()).assert_is(expected, name);
        stop.send(()).expect("the stream is followed");
        let (mut reported, mut events) = in_time(by_stream).await.unwrap();
        while let Ok(event) = events.try_recv() {
            apply(&mut reported, &event);
        }
        let tree = |reported: &Reported| Tree::of(&reported.values().cloned().collect::<Vec<_>>());
        tree(&reported).assert_is(expected, &format!("the stream of {name}"));
        // Listeners are called apart from the cache.
        eventually(name, async || tree(&by_listener.lock()) == *expected).await;
        in_time(cache.close()).await;
        in_time(client.close()).await;
    }
}

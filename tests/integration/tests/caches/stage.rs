//! The shared parts of the scenes of caches.

use std::collections::BTreeMap;
use std::sync::Arc;

use curator_framework::{CuratorFramework, CuratorOp};
use curator_integration::env::in_time;
use curator_recipes::{CacheEvent, CacheEvents, ChildData, CuratorCache, CuratorCacheOptions};
use curator_test::FaultProxy;
use curator_test::wire::OpCode;

/// Starts a cache, and waits for its first load.
pub(crate) async fn loaded(client: &CuratorFramework, path: &str, options: CuratorCacheOptions) -> CuratorCache {
    let cache = CuratorCache::with_options(client.clone(), path, options).unwrap();
    cache.start().unwrap();
    in_time(cache.initialized()).await.unwrap();
    cache
}

pub(crate) async fn commit(client: &CuratorFramework, operations: impl IntoIterator<Item = CuratorOp>) {
    client.transaction().operations(operations).commit().await.unwrap();
}

/// Returns the data of all nodes that a cache has, by path.
pub(crate) fn contents(cache: &CuratorCache) -> BTreeMap<String, Vec<u8>> {
    cache.nodes().into_iter().map(|node| (node.path, node.data)).collect()
}

/// A change, as tests compare it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Told {
    Created(String),
    Changed(String),
    Deleted(String),
    Initialized,
    Reset,
}

/// The nodes as a reader of the events knows them.
#[derive(Debug, Default)]
pub(crate) struct Replay(pub(crate) BTreeMap<String, Arc<ChildData>>);

impl Replay {
    /// Applies an event, and asserts that it fits to those before.
    pub(crate) fn apply(&mut self, event: CacheEvent) -> Told {
        match event {
            CacheEvent::Created(node) => {
                assert_eq!(self.0.insert(node.path.clone(), Arc::clone(&node)), None);
                Told::Created(node.path.clone())
            }
            CacheEvent::Changed { old, new } => {
                assert_eq!(old.stat.czxid, new.stat.czxid, "a node that was created again is told as such");
                assert!(old.stat.mzxid < new.stat.mzxid);
                let before = self.0.insert(new.path.clone(), Arc::clone(&new)).unwrap();
                assert_eq!(before.stat.mzxid, old.stat.mzxid);
                Told::Changed(new.path.clone())
            }
            CacheEvent::Deleted(node) => {
                assert_eq!(self.0.remove(&node.path).unwrap().stat.czxid, node.stat.czxid);
                Told::Deleted(node.path.clone())
            }
            CacheEvent::Initialized => Told::Initialized,
            CacheEvent::Reset => {
                self.0.clear();
                Told::Reset
            }
            other => panic!("{other:?}"),
        }
    }

    /// Applies the events that have arrived.
    pub(crate) fn arrived(&mut self, events: &mut CacheEvents) -> Vec<Told> {
        std::iter::from_fn(|| events.try_next()).map(|event| self.apply(event)).collect()
    }
}

/// Returns the replies to all reads that have passed.
pub(crate) fn reads(proxy: &FaultProxy) -> usize {
    let ops = [OpCode::Exists, OpCode::GetData, OpCode::GetChildren, OpCode::GetChildren2];
    ops.iter().map(|op| proxy.replies(*op)).sum()
}

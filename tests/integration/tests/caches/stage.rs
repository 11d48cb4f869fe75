//! The shared parts of the tests of caches.

use std::collections::BTreeMap;
use std::sync::Arc;

use curator_framework::{CuratorFramework, CuratorOp};
use curator_integration::env::{eventually, in_time};
use curator_recipes::{
    CacheEvent, CacheState, Changes, ChildData, CuratorCache, CuratorCacheListenerBuilder, CuratorCacheOptions,
};
use curator_test::FaultProxy;
use curator_test::wire::OpCode;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

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

/// Breaks the connection, lets `changes` happen, and waits until the cache shows them.
pub(crate) async fn away(proxy: &FaultProxy, cache: &CuratorCache, changes: impl Future<Output = ()>) {
    proxy.refuse();
    proxy.reset();
    in_time(cache.watch().wait_for(|state| matches!(state, CacheState::Stale { .. }))).await.unwrap();
    changes.await;
    proxy.accept();
    // The sync may run on the connection that is lost.
    eventually("fresh again", async || cache.synced().await.is_ok()).await;
}

/// A change, as tests compare it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reported {
    Created(String),
    Changed(String),
    Deleted(String),
    Initialized,
    Reset,
    Failed(String),
}

/// The sum of the events of a stream.
#[derive(Debug, Default)]
pub(crate) struct Replay(pub(crate) BTreeMap<String, Arc<ChildData>>);

impl Replay {
    /// Applies an event, and asserts that it applies to those before it.
    pub(crate) fn apply(&mut self, event: CacheEvent) -> Reported {
        match event {
            CacheEvent::Created(node) => {
                assert_eq!(self.0.insert(node.path.clone(), Arc::clone(&node)), None);
                Reported::Created(node.path.clone())
            }
            CacheEvent::Changed { old, new } => {
                assert_eq!(old.stat.czxid, new.stat.czxid, "a node that was created again is told as such");
                assert!(old.stat.mzxid < new.stat.mzxid);
                let before = self.0.insert(new.path.clone(), Arc::clone(&new)).unwrap();
                assert_eq!(before.stat.mzxid, old.stat.mzxid);
                Reported::Changed(new.path.clone())
            }
            CacheEvent::Deleted(node) => {
                assert_eq!(self.0.remove(&node.path).unwrap().stat.czxid, node.stat.czxid);
                Reported::Deleted(node.path.clone())
            }
            CacheEvent::Initialized => Reported::Initialized,
            CacheEvent::Reset => {
                self.0.clear();
                Reported::Reset
            }
            CacheEvent::Failed { path, .. } => Reported::Failed(path),
            other => panic!("{other:?}"),
        }
    }

    /// Applies the events that have arrived.
    pub(crate) fn arrived(&mut self, events: &mut Changes<CacheEvent>) -> Vec<Reported> {
        std::iter::from_fn(|| events.try_recv().ok()).map(|event| self.apply(event)).collect()
    }
}

/// The questions about known writes that were asked.
pub(crate) fn questions(proxy: &FaultProxy) -> usize {
    proxy.replies(OpCode::Exists)
}

/// The calls of a listener, in their order.
pub(crate) struct Calls(UnboundedReceiver<String>);

impl Calls {
    pub(crate) async fn next(&mut self) -> String {
        in_time(self.0.recv()).await.unwrap()
    }

    pub(crate) async fn take(&mut self, count: usize) -> Vec<String> {
        let mut calls = Vec::new();
        for _ in 0..count {
            calls.push(self.next().await);
        }
        calls
    }

    /// Waits for the end of the listener. Returns a call if one arrives instead.
    pub(crate) async fn last(&mut self) -> Option<String> {
        in_time(self.0.recv()).await
    }
}

/// Adds a closure for each kind of event, and returns their calls.
pub(crate) fn calls_of(builder: CuratorCacheListenerBuilder) -> (CuratorCacheListenerBuilder, Calls) {
    let (calls, receiver) = unbounded_channel();
    let call = |name: &'static str| {
        let calls = calls.clone();
        // The test may have ended.
        move |node: &ChildData| {
            drop(calls.send(format!("{name} {}={}", node.path, String::from_utf8_lossy(&node.data))))
        }
    };
    let (all, create, change, write, delete) =
        (call("all"), call("create"), call("change"), call("write"), call("delete"));
    let builder = builder
        .for_all(move |event| match event {
            CacheEvent::Created(node) | CacheEvent::Deleted(node) | CacheEvent::Changed { new: node, .. } => all(node),
            _ => {}
        })
        .for_creates(create)
        .for_changes(move |_, new| change(new))
        .for_creates_and_changes(move |_, new| write(new))
        .for_deletes(delete)
        .for_initialized(move || drop(calls.send("initialized".to_owned())));
    (builder, Calls(receiver))
}

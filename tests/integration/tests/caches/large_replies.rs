//! Replies above the client's limit: the cache keeps what it knows, and asks again with pauses.

use std::time::Duration;

use curator_framework::{CuratorFramework, CuratorOp, Error};
use curator_integration::env::{builder, connected, in_time};
use curator_integration::in_process;
use curator_recipes::{CacheError, CacheState, CuratorCache, CuratorCacheOptions, Lookup};
use curator_test::wire::OpCode;
use curator_test::{FaultProxy, TestingServer};
use futures_util::FutureExt as _;

use crate::stage::{Replay, Reported, commit, loaded};

/// The limit of a client's replies.
const LIMIT: usize = 4096;

/// A server with a tree, a client with a small limit behind a proxy, and another client.
struct Stage {
    proxy: FaultProxy,
    client: CuratorFramework,
    other: CuratorFramework,
    _server: TestingServer,
}

impl Stage {
    async fn new() -> Self {
        let server = in_process::server();
        let proxy = FaultProxy::start(server.address()).unwrap();
        let options = builder(proxy.address()).max_reply(LIMIT);
        let (client, other) = (connected(options).await, in_process::client(&server).await);
        commit(&other, ["/tree", "/tree/dir", "/tree/dir/kid", "/tree/a"].map(CuratorOp::create)).await;
        Self { proxy, client, other, _server: server }
    }

    async fn set(&self, path: &str, bytes: usize) {
        self.other.set_data().for_path(path, vec![b'x'; bytes]).await.unwrap();
    }

    /// Makes the listing of a node larger than the limit.
    async fn crowd(&self, path: &str) {
        commit(&self.other, (0..LIMIT / 100).map(|number| CuratorOp::create(format!("{path}/{number:0>200}")))).await;
    }

    async fn disperse(&self, path: &str) {
        commit(&self.other, (0..LIMIT / 100).map(|number| CuratorOp::delete(format!("{path}/{number:0>200}")))).await;
    }
}

fn is_too_large(error: &CacheError) -> bool {
    matches!(error, CacheError::Framework(Error::ReplyTooLarge { .. }))
}

#[tokio::test]
async fn node_that_is_too_large_is_reported_and_keeps_its_children() {
    let stage = Stage::new().await;
    stage.set("/tree", 2 * LIMIT).await;
    stage.set("/tree/dir", 2 * LIMIT).await;
    let cache = loaded(&stage.client, "/tree", CuratorCacheOptions::new()).await;
    assert_eq!([cache.get("/tree"), cache.get("/tree/dir")], [Lookup::NotLoaded, Lookup::NotLoaded]);
    assert!(cache.get("/tree/dir/kid").present().is_some() && cache.get("/tree/a").present().is_some());
    assert_eq!((cache.get("/tree/dir/other"), cache.len()), (Lookup::Missing, 2));
    let (mut events, mut replay) = (cache.changes(), Replay::default());
    let failed = |path: &str| Reported::Failed(path.to_owned());
    assert_eq!(replay.arrived(&mut events)[2..], [failed("/tree"), failed("/tree/dir"), Reported::Initialized]);
    stage.set("/tree/dir/kid", 1).await;
    commit(&stage.other, [CuratorOp::create("/tree/dir/new")]).await;
    in_time(cache.synced()).await.unwrap();
    let reported = [Reported::Changed("/tree/dir/kid".to_owned()), Reported::Created("/tree/dir/new".to_owned())];
    assert_eq!(replay.arrived(&mut events), reported);
    // The connection has stayed.
    assert_eq!(stage.proxy.total_connections(), 1);
    for path in ["/tree", "/tree/dir"] {
        stage.set(path, 1).await;
        let event = loop {
            let event = in_time(events.recv()).await.unwrap();
            if let event @ (Reported::Created(_) | Reported::Changed(_) | Reported::Deleted(_)) = replay.apply(event) {
                break event;
            }
        };
        assert_eq!(event, Reported::Created(path.to_owned()));
    }
    assert!(cache.get("/tree/dir").present().is_some());
}

#[tokio::test]
async fn listing_that_is_too_large_keeps_the_known_children() {
    let stage = Stage::new().await;
    let cache = loaded(&stage.client, "/tree", CuratorCacheOptions::new()).await;
    stage.crowd("/tree/dir").await;
    in_time(cache.synced()).await.unwrap();
    let count = cache.len();
    assert_eq!(count, 4 + LIMIT / 100, "notifications need no listing");
    let _begun = cache.rebuild().now_or_never();
    in_time(cache.synced()).await.unwrap();
    assert_eq!((cache.len(), cache.get("/tree/dir/other")), (count, Lookup::NotLoaded));
    assert!(cache.get("/tree/dir").present().is_some());
    stage.set("/tree/dir/kid", 1).await;
    in_time(cache.caught_up()).await.unwrap();
    in_time(cache.synced()).await.unwrap();
    assert_eq!(cache.get("/tree/dir/kid").present().unwrap().data, b"x");
    // A cache that starts now does not know them until the listing is smaller.
    let late = loaded(&stage.client, "/tree", CuratorCacheOptions::new()).await;
    assert_eq!((late.len(), late.get("/tree/dir/kid")), (3, Lookup::NotLoaded));
    let mut events = late.changes();
    stage.disperse("/tree/dir").await;
    in_time(async { while !matches!(events.recv().await, Some(curator_recipes::CacheEvent::Created(node)) if node.path == "/tree/dir/kid") {} }).await;
    in_time(late.synced()).await.unwrap();
    assert_eq!((late.len(), late.get("/tree/dir/other")), (4, Lookup::Missing));
}

#[tokio::test]
async fn root_that_cannot_be_listed_makes_a_cache_fail_until_it_can() {
    let stage = Stage::new().await;
    stage.crowd("/tree").await;
    let cache = CuratorCache::new(stage.client.clone(), "/tree").unwrap();
    cache.start().unwrap();
    let error = in_time(cache.initialized()).await.unwrap_err();
    assert!(is_too_large(&error) && !error.is_retryable(), "{error}");
    assert!(cache.get("/tree").present().is_some() && cache.get("/tree/a") == Lookup::NotLoaded);
    stage.disperse("/tree").await;
    in_time(cache.watch().wait_for(CacheState::is_fresh)).await.unwrap();
    assert_eq!(cache.len(), 4);
}

/// Each transfer of such a reply delays all others of the client.
#[tokio::test]
async fn too_large_replies_are_asked_for_again_with_growing_pauses() {
    let stage = Stage::new().await;
    stage.crowd("/tree/dir").await;
    stage.set("/tree/a", 2 * LIMIT).await;
    let cache = loaded(&stage.client, "/tree", CuratorCacheOptions::new()).await;
    let before = stage.proxy.replies(OpCode::GetData) + stage.proxy.replies(OpCode::GetChildren2);
    let end = tokio::time::Instant::now() + Duration::from_millis(900);
    let mut writes = 0;
    while tokio::time::Instant::now() < end {
        stage.set("/tree/a", 2 * LIMIT).await;
        in_time(cache.synced()).await.unwrap();
        writes += 1;
    }
    let asked = stage.proxy.replies(OpCode::GetData) + stage.proxy.replies(OpCode::GetChildren2) - before;
    assert!(writes > 10 && asked <= 2, "{asked} large replies for {writes} writes");
    assert_eq!(stage.proxy.total_connections(), 1);
}

#[tokio::test]
async fn nodes_that_are_too_large_together_are_read_alone() {
    const NODES: usize = 200;
    let stage = Stage::new().await;
    let path = |number| format!("/tree/a/{number}");
    for number in 0..NODES {
        stage.other.create().with_data(vec![b'x'; LIMIT / 4]).for_path(&path(number)).await.unwrap();
    }
    let cache = loaded(&stage.client, "/tree", CuratorCacheOptions::new()).await;
    assert_eq!(cache.len(), 4 + NODES);
    assert!((0..NODES).all(|number| cache.get(&path(number)).present().unwrap().data.len() == LIMIT / 4));
    // A few of them together fail, and each is then read alone.
    let (reads, requests) = (stage.proxy.reads(), stage.proxy.replies(OpCode::MultiRead));
    assert!(reads < 3 * NODES && requests < NODES / 2, "{reads} reads, {requests} requests for several");
    assert_eq!(stage.proxy.total_connections(), 1);
}

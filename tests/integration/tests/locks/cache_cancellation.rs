//! The asynchronous methods of caches, dropped at every poll: the cache goes on, and its close leaves nothing.

use std::time::Duration;

use curator_integration::lock_stage::{QUIET, Stage, play};
use curator_recipes::{CacheEvent, CacheState, CuratorCache};
use tokio::time::sleep;

use crate::cancellation::{Cut, at_every_cut, poll_until};
use crate::operations::Local;

const LATENCY: Duration = Duration::from_millis(3);
const OF_CACHES: [&str; 5] = [
    "CacheEvents::next",
    "CuratorCache::caught_up",
    "CuratorCache::close",
    "CuratorCache::initialized",
    "CuratorCache::synced",
];

pub(crate) fn methods() -> impl Iterator<Item = &'static str> {
    OF_CACHES.into_iter()
}

async fn drop_of_cache(method: &str, cut: Cut, what: &str) -> bool {
    let stage = Stage::new(LATENCY).await;
    stage.front.create().for_path("/tree").await.unwrap();
    let before = stage.footprint();
    let cache = CuratorCache::new(stage.client.clone(), "/tree").unwrap();
    let (mut events, mut others) = (cache.events(), cache.events());
    cache.start().unwrap();
    let ours = cache.clone();
    let call: Local<()> = match method {
        "CacheEvents::next" => {
            Box::pin(async move { assert!(matches!(others.next().await, Some(CacheEvent::Created(_)))) })
        }
        "CuratorCache::caught_up" => Box::pin(async move { _ = ours.caught_up().await.unwrap() }),
        "CuratorCache::close" => Box::pin(async move { ours.close().await }),
        "CuratorCache::initialized" => Box::pin(async move { ours.initialized().await.unwrap() }),
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
        while let Some(event) = events.try_next() {
            created += usize::from(matches!(event, CacheEvent::Created(_)));
        }
        assert_eq!((cache.len(), created), (2, 2), "{what}");
    }
    cache.close().await;
    drop((cache, events));
    stage.assert_as_before(Vec::new(), &before, what).await;
    completes
}

#[test]
fn dropped_call_of_a_cache_leaves_it_running_and_after_the_close_nothing() {
    for method in OF_CACHES {
        at_every_cut(method, 1, |cut, what| play(drop_of_cache(method, cut, what)));
    }
}

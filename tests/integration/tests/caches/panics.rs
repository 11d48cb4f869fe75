//! Panics of a cache's closures and codec: each ends its cache alone, with a state that says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use curator_framework::CuratorFramework;
use curator_recipes::{
    CacheError, CacheEvent, CacheState, CuratorCache, CuratorCacheOptions, InterProcessMutex, MutexGuard, TreeCache,
};
use curator_test::{ClientId, SimulatedEnsemble};
use tokio::time::{sleep, timeout};

const CLIENT: ClientId = ClientId(1);
const PATIENCE: Duration = Duration::from_secs(60);

/// A client with a lock, and a tree.
struct Stage {
    ensemble: SimulatedEnsemble,
    client: CuratorFramework,
    guard: MutexGuard,
    breaks: Arc<AtomicBool>,
}

impl Stage {
    async fn new() -> Self {
        let ensemble = SimulatedEnsemble::new(7, Duration::from_millis(4));
        let client = curator_integration::in_process::simulated(&ensemble, 1).await;
        for path in ["/tree", "/tree/a", "/tree/a/b"] {
            client.create().for_path(path).await.unwrap();
        }
        let guard = InterProcessMutex::new(client.clone(), "/lock").unwrap().acquire().await.unwrap();
        Self { ensemble, client, guard, breaks: Arc::default() }
    }

    fn closure(&self) -> impl Fn(&str) -> bool + Send + Sync + 'static {
        let breaks = Arc::clone(&self.breaks);
        move |path| {
            assert!(!breaks.load(Ordering::SeqCst), "no answer for {path}");
            true
        }
    }

    async fn cache(&self, options: CuratorCacheOptions) -> CuratorCache {
        let cache = CuratorCache::with_options(self.client.clone(), "/tree", options).unwrap();
        cache.start().unwrap();
        timeout(PATIENCE, cache.initialized()).await.unwrap().unwrap();
        cache
    }

    /// Asserts that a cache has failed by the panic of a closure, and that all else continues.
    async fn has_failed(&self, cache: &CuratorCache, closure: &str) {
        let mut states = cache.watch();
        let failed = timeout(PATIENCE, states.wait_for(|state| matches!(state, CacheState::Failed(_)))).await;
        let failed = failed.expect("the cache fails").unwrap().clone();
        let CacheState::Failed(error @ CacheError::Panicked { .. }) = failed else { panic!("{failed:?}") };
        let text = error.to_string();
        let start = format!("the cache of /tree has ended: the {closure} closure has panicked: no answer for ");
        assert!(text.starts_with(&start), "{text}");
        assert!(!error.is_retryable());
        let caught_up = timeout(PATIENCE, cache.caught_up()).await.unwrap();
        assert_eq!(caught_up.unwrap_err().to_string(), text);
        sleep(PATIENCE).await;
        assert!(matches!(cache.state(), CacheState::Failed(CacheError::Panicked { .. })), "{:?}", cache.state());
        assert!(self.guard.is_held() && self.client.is_connected());
        timeout(PATIENCE, cache.close()).await.unwrap();
    }
}

/// Asserts that a stream ends with the failure.
async fn ends(events: &mut curator_recipes::Changes<CacheEvent>) {
    let mut last = None;
    while let Some(event) = timeout(PATIENCE, events.recv()).await.expect("the stream ends") {
        last = Some(event);
    }
    assert!(matches!(last, Some(CacheEvent::Failed { error: CacheError::Panicked { .. }, .. })), "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn panic_of_descend_at_a_reconnect_ends_the_cache_alone() {
    let stage = Stage::new().await;
    let other = stage.cache(CuratorCacheOptions::new()).await;
    let cache = stage.cache(CuratorCacheOptions::new().descend(stage.closure())).await;
    let mut events = cache.changes();
    stage.breaks.store(true, Ordering::SeqCst);
    stage.ensemble.reset(CLIENT);
    stage.has_failed(&cache, "descend").await;
    ends(&mut events).await;
    stage.client.create().for_path("/tree/c").await.unwrap();
    timeout(PATIENCE, other.caught_up()).await.unwrap().unwrap();
    assert!(other.state().is_fresh());
}

#[tokio::test(start_paused = true)]
async fn panic_of_filter_for_a_new_node_ends_the_cache_alone() {
    let stage = Stage::new().await;
    let cache = stage.cache(CuratorCacheOptions::new().filter(stage.closure())).await;
    let mut events = cache.changes();
    stage.breaks.store(true, Ordering::SeqCst);
    stage.client.create().for_path("/tree/c").await.unwrap();
    stage.has_failed(&cache, "filter").await;
    ends(&mut events).await;
}

/// No reader may take a part of the nodes for all.
#[tokio::test(start_paused = true)]
async fn panic_of_filter_in_the_load_publishes_no_load() {
    let stage = Stage::new().await;
    stage.breaks.store(true, Ordering::SeqCst);
    let options = CuratorCacheOptions::new().filter(stage.closure());
    let cache = CuratorCache::with_options(stage.client.clone(), "/tree", options).unwrap();
    let mut events = cache.changes();
    cache.start().unwrap();
    let initialized = timeout(PATIENCE, cache.initialized()).await.unwrap();
    assert!(matches!(initialized, Err(CacheError::Panicked { .. })), "{initialized:?}");
    let mut was_initialized = false;
    while let Some(event) = timeout(PATIENCE, events.recv()).await.expect("the stream ends") {
        was_initialized |= matches!(event, CacheEvent::Initialized);
    }
    assert!(!was_initialized);
    stage.has_failed(&cache, "filter").await;
}

/// The caller does not get the panic: the cache has failed.
#[tokio::test(start_paused = true)]
async fn panic_of_filter_in_a_read_ends_the_cache_alone() {
    let stage = Stage::new().await;
    let cache = stage.cache(CuratorCacheOptions::new().filter(stage.closure())).await;
    stage.breaks.store(true, Ordering::SeqCst);
    assert!(cache.get("/tree/missing").present().is_none());
    stage.has_failed(&cache, "filter").await;
}

#[tokio::test(start_paused = true)]
async fn panic_of_a_selector_at_a_reconnect_ends_the_tree_cache_alone() {
    let stage = Stage::new().await;
    let cache = TreeCache::builder(stage.client.clone(), "/tree").selector(stage.closure(), |_| true).build().unwrap();
    cache.start().unwrap();
    stage.breaks.store(true, Ordering::SeqCst);
    stage.ensemble.reset(CLIENT);
    let failed = async {
        loop {
            match cache.state() {
                CacheState::Failed(error) => return error,
                _ => sleep(Duration::from_millis(10)).await,
            }
        }
    };
    let error = timeout(PATIENCE, failed).await.expect("the cache fails");
    assert!(matches!(error, CacheError::Panicked { .. }), "{error:?}");
    let start = "the cache of /tree has ended: the descend closure has panicked: no answer for ";
    assert!(error.to_string().starts_with(start), "{error}");
    sleep(PATIENCE).await;
    assert!(stage.guard.is_held() && stage.client.is_connected());
}

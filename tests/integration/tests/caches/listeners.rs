//! Listeners of a cache.

use std::collections::HashSet;
use std::sync::{Arc, mpsc};
use std::thread::{ThreadId, current};

use curator_framework::{CuratorFramework, CuratorOp};
use curator_integration::env::{Env, PATIENCE};
use curator_integration::on_every_server;
use curator_recipes::{CacheEvent, CuratorCache, CuratorCacheListener, CuratorCacheOptions};
use parking_lot::Mutex;

use crate::stage::{commit, loaded};

const NODES: usize = 999;

/// Returns a client and a loaded cache of a root with [`NODES`] children.
async fn full(env: &Env) -> (CuratorFramework, CuratorCache) {
    let (client, root) = (env.client().await, env.path("tree"));
    client.create().creating_parents_if_needed().for_path(&root).await.unwrap();
    commit(&client, (0..NODES).map(|number| CuratorOp::create(format!("{root}/{number}")))).await;
    let cache = loaded(&client, &root, CuratorCacheOptions::new()).await;
    (client, cache)
}

on_every_server! {
    /// A thread for each event would make a listener slower than the reads of its cache.
    async fn listener_is_called_on_few_threads(env) {
        let (_client, cache) = full(&env).await;
        let threads = Arc::<Mutex<HashSet<ThreadId>>>::default();
        let (called, calls) = mpsc::channel();
        let seen = Arc::clone(&threads);
        let listener = CuratorCacheListener::builder().for_creates(move |_| {
            seen.lock().insert(current().id());
            called.send(()).unwrap();
        });
        cache.add_listener(listener.build());
        for _ in 0..=NODES {
            calls.recv_timeout(PATIENCE).unwrap();
        }
        let threads = threads.lock().len();
        assert!(threads <= 10, "{threads} threads for {NODES} events");
    }

    async fn listener_that_panics_hears_the_next_event(env) {
        let (_client, cache) = full(&env).await;
        let (called, calls) = mpsc::channel();
        let listener = CuratorCacheListener::builder().for_all(move |event: &CacheEvent| {
            called.send(matches!(event, CacheEvent::Initialized)).unwrap();
            std::panic::resume_unwind(Box::new("a listener that fails"));
        });
        cache.add_listener(listener.build());
        for _ in 0..=NODES {
            assert!(!calls.recv_timeout(PATIENCE).unwrap());
        }
        assert!(calls.recv_timeout(PATIENCE).unwrap());
    }

    async fn removed_listener_hears_no_other_event_than_that_which_it_handles(env) {
        let (_client, cache) = full(&env).await;
        let (called, calls) = mpsc::channel();
        let (go_on, is_removed) = mpsc::channel();
        let is_removed = Mutex::new(is_removed);
        let listener = CuratorCacheListener::builder().for_all(move |_: &CacheEvent| {
            called.send(()).unwrap();
            is_removed.lock().recv_timeout(PATIENCE).unwrap();
        });
        let id = cache.add_listener(listener.build());
        calls.recv_timeout(PATIENCE).unwrap();
        cache.remove_listener(id);
        go_on.send(()).unwrap();
        // The last call drops the closure with its sender.
        assert_eq!(calls.recv_timeout(PATIENCE), Err(mpsc::RecvTimeoutError::Disconnected));
    }
}

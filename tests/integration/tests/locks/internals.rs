//! Curator's `TestLockInternals`: what fails inside of the engine comes out as what it was, and leaves nothing.

use std::sync::Arc;
use std::time::Duration;

use curator_framework::{Error, RetryNTimes};
use curator_integration::env::{builder, children, connected, in_time};
use curator_integration::on_every_server;
use curator_recipes::{
    InterProcessMutex, LockError, LockInternalsDriver, MutexOptions, Predicate, SortedChildren,
    StandardLockInternalsDriver,
};
use curator_test::FaultProxy;
use parking_lot::Mutex;

/// Does not see its own node the first time, and does something then.
struct Blind {
    at_first: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl std::fmt::Debug for Blind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Blind")
    }
}

impl Blind {
    fn new(at_first: impl FnOnce() + Send + 'static) -> Self {
        Self { at_first: Mutex::new(Some(Box::new(at_first))) }
    }
}

impl LockInternalsDriver for Blind {
    fn gets_the_lock(&self, children: &SortedChildren, ours: &str, max_leases: usize) -> Predicate {
        if let Some(at_first) = self.at_first.lock().take() {
            at_first();
            return Predicate::Missing;
        }
        StandardLockInternalsDriver.gets_the_lock(children, ours, max_leases)
    }
}

on_every_server! {
    /// Curator's `TestLockInternals.testNodeDeletedCleanlyWithFaults`.
    async fn a_node_that_seems_missing_is_told_and_deleted(env) {
        let path = env.path("lock");
        let client = connected(builder(env.address()).retry_policy(RetryNTimes::new(0, Duration::ZERO))).await;
        let mutex = InterProcessMutex::with_options(client.clone(), &path, MutexOptions::new().driver(Blind::new(|| {}))).unwrap();
        let failed = in_time(mutex.acquire()).await;
        assert!(matches!(failed, Err(LockError::Framework(Error::NoNode { .. }))), "{failed:?}");
        env.wait_for_children(&client, &path, 0).await;
        assert!(in_time(mutex.acquire()).await.unwrap().release().await.unwrap().is_released());
    }

    /// With retries the acquire starts again.
    async fn a_node_that_seems_missing_is_made_again_as_the_policy_allows(env) {
        let path = env.path("lock");
        let client = connected(builder(env.address()).retry_policy(RetryNTimes::new(1, Duration::ZERO))).await;
        let mutex = InterProcessMutex::with_options(client.clone(), &path, MutexOptions::new().driver(Blind::new(|| {}))).unwrap();
        let guard = in_time(mutex.acquire()).await.unwrap();
        assert!(guard.node_name().ends_with("-0000000001"), "{guard:?}");
        assert!(guard.release().await.unwrap().is_released());
        env.wait_for_children(&client, &path, 0).await;
    }

    /// Curator's `TestLockInternals.testAttemptLockFailedException` (CURATOR-41): the clean-up fails too, and the error
    /// is still the first one.
    async fn a_clean_up_that_fails_does_not_hide_the_error(env) {
        let path = env.path("lock");
        let proxy = Arc::new(env.proxy());
        let direct = env.client().await;
        let client = connected(builder(proxy.address()).retry_policy(RetryNTimes::new(0, Duration::ZERO))).await;
        let cut = {
            let proxy: Arc<FaultProxy> = Arc::clone(&proxy);
            move || {
                proxy.refuse();
                proxy.reset();
            }
        };
        let mutex = InterProcessMutex::with_options(client.clone(), &path, MutexOptions::new().driver(Blind::new(cut))).unwrap();
        let failed = in_time(mutex.acquire()).await;
        assert!(matches!(failed, Err(LockError::Framework(Error::NoNode { .. }))), "{failed:?}");
        let left = children(&direct, &path).await;
        // The session expires on the server in the meantime.
        env.kill_owner_of(&direct, &format!("{path}/{}", left[0])).await;
        assert_eq!(children(&direct, &path).await, [""; 0]);
        proxy.accept();
        in_time(client.block_until_connected()).await.unwrap();
        let again = async || mutex.acquire().await.is_ok_and(|guard| guard.is_held());
        curator_integration::env::eventually("it can be had again", again).await;
    }
}

//! The common parts of the tests of counters.

use std::time::Duration;

use curator_framework::{
    CreateMode, CuratorFramework, CuratorFrameworkBuilder, Error, RetryForever, RetryNTimes, Stat,
};
use curator_integration::env::builder;
use curator_recipes::{AtomicChange, DistributedAtomicLong};
use curator_test::FaultProxy;

/// A session that outlives the test.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A policy that allows tries without end.
pub(crate) fn patient() -> RetryForever {
    RetryForever::new(Duration::from_millis(1)).unwrap()
}

/// A policy that allows this number of retries.
pub(crate) fn retries(count: u32) -> RetryNTimes {
    RetryNTimes::new(count, Duration::ZERO)
}

/// A counter that never gives up.
pub(crate) fn long(client: &CuratorFramework, path: &str) -> DistributedAtomicLong {
    DistributedAtomicLong::new(client.clone(), path, patient()).unwrap()
}

/// The values before and behind a change.
pub(crate) fn values<T: Clone>(change: &AtomicChange<T>) -> (T, T) {
    (change.pre_value.clone(), change.post_value.clone())
}

/// Options of a client through a proxy, which tries forever.
pub(crate) fn through(proxy: &FaultProxy, session: Duration) -> CuratorFrameworkBuilder {
    let retry = RetryForever::new(Duration::from_millis(50)).unwrap();
    builder(proxy.address()).session_timeout(session).retry_policy(retry)
}

/// The id of a client's session, which `zookeeper-async` shows only by a node.
pub(crate) async fn session_of(client: &CuratorFramework, path: &str) -> i64 {
    let create = client.create().creating_parents_if_needed().with_mode(CreateMode::Ephemeral);
    create.for_path_with_stat(path).await.unwrap().1.ephemeral_owner
}

/// The data and stat of a node.
pub(crate) async fn node(client: &CuratorFramework, path: &str) -> Option<(Vec<u8>, Stat)> {
    match client.get_data().for_path(path).await {
        Ok(found) => Some(found),
        Err(Error::NoNode { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

//! The common parts of the tests of queues.

use std::time::Duration;

use curator_framework::{CuratorFramework, CuratorFrameworkBuilder, RetryForever};
use curator_integration::clients::is_zookeeper_async;
use curator_integration::env::{builder, in_time};
use curator_recipes::{Delivery, DistributedQueue, QueueConsumer, QueueError, QueueOptions, RawCodec};
use curator_test::FaultProxy;
use curator_test::wire::OpCode;

/// A session timeout that no test reaches.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// The request that takes an item at most once.
pub(crate) fn take() -> OpCode {
    if is_zookeeper_async() { OpCode::Delete } else { OpCode::Multi }
}

/// A queue of texts that delivers at most once.
pub(crate) fn plain(client: &CuratorFramework, path: &str) -> DistributedQueue<String> {
    with(client, path, QueueOptions::new().at_most_once())
}

/// A queue of texts with locks beside its path.
pub(crate) fn locked(client: &CuratorFramework, path: &str) -> DistributedQueue<String> {
    with(client, path, locks(path))
}

pub(crate) fn locks(path: &str) -> QueueOptions {
    QueueOptions::new().lock_path(format!("{path}-locks"))
}

pub(crate) fn with(client: &CuratorFramework, path: &str, options: QueueOptions) -> DistributedQueue<String> {
    DistributedQueue::with_options(client.clone(), path, RawCodec, options).unwrap()
}

/// The next delivery, which is not an error.
pub(crate) async fn next(consumer: &mut QueueConsumer<String>) -> Delivery<String> {
    in_time(consumer.next()).await.expect("the client is open").unwrap()
}

/// The items of the next delivery, which is completed.
pub(crate) async fn completed(consumer: &mut QueueConsumer<String>) -> Vec<String> {
    let mut delivery = next(consumer).await;
    in_time(delivery.complete()).await.unwrap();
    delivery.take_items()
}

/// The next error of the stream.
pub(crate) async fn error(consumer: &mut QueueConsumer<String>) -> QueueError {
    in_time(consumer.next()).await.expect("the client is open").unwrap_err()
}

/// The items of this many deliveries.
pub(crate) async fn drained(consumer: &mut QueueConsumer<String>, count: usize) -> Vec<String> {
    let mut items = Vec::new();
    while items.len() < count {
        items.extend(completed(consumer).await);
    }
    items
}

/// Asserts that nothing is delivered within 300 ms.
pub(crate) async fn nothing(consumer: &mut QueueConsumer<String>) {
    let early = tokio::time::timeout(Duration::from_millis(300), consumer.next()).await;
    assert!(early.is_err(), "{early:?}");
}

/// The texts of these numbers.
pub(crate) fn texts(numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| format!("{number}")).collect()
}

/// Options of a client through a proxy, which never gives up.
pub(crate) fn through(proxy: &FaultProxy, session: Duration) -> CuratorFrameworkBuilder {
    let retry = RetryForever::new(Duration::from_millis(50)).unwrap();
    builder(proxy.address()).session_timeout(session).retry_policy(retry)
}

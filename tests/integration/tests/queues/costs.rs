//! The requests and bytes of an item, for any backlog.

use curator_framework::CuratorFramework;
use curator_integration::env::{connected, in_time};
use curator_integration::in_process::{client, server};
use curator_recipes::{Delivery, DistributedQueue, QueueOptions};
use curator_test::wire::OpCode;
use curator_test::{FaultProxy, TestingServer, Traffic};
use futures_util::future::join_all;

use crate::stage::{drained, locked, locks, next, nothing, plain, through, with};

const PATH: &str = "/queue";

/// The requests and the bytes from the server of a drain, for each item.
#[derive(Debug, Clone, Copy)]
struct Cost {
    requests: f64,
    bytes: f64,
}

async fn drain(queue: fn(&CuratorFramework, &str) -> DistributedQueue<String>, items: u32) -> Cost {
    let server: TestingServer = server();
    let direct = client(&server).await;
    let producer = plain(&direct, PATH);
    let texts: Vec<_> = (0..items).map(|number| format!("item {number:06}")).collect();
    for part in texts.chunks(500) {
        in_time(producer.put_all(part)).await.unwrap();
    }
    let proxy = FaultProxy::start(server.address()).unwrap();
    let client = connected(through(&proxy, std::time::Duration::from_secs(60))).await;
    server.clear_requests();
    let before = proxy.traffic();
    let mut consumer = queue(&client, PATH).consumer();
    assert_eq!(drained(&mut consumer, texts.len()).await, texts);
    cost(&server, &proxy, before, items)
}

/// The cost of each item since the log of requests was cleared.
fn cost(server: &TestingServer, proxy: &FaultProxy, before: Traffic, items: u32) -> Cost {
    let after = proxy.traffic();
    let requests = server.requests().iter().filter(|request| request.op != OpCode::Ping).count();
    let of_item = |total: usize| f64::from(u32::try_from(total).unwrap()) / f64::from(items);
    Cost { requests: of_item(requests), bytes: of_item(usize::try_from(after.sent - before.sent).unwrap()) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_item_costs_one_request_for_any_backlog() {
    for items in [100, 1_000] {
        let cost = drain(plain, items).await;
        println!("plain, {items}: {cost:?}");
        assert!(cost.requests <= 1.2 && cost.bytes <= 250.0, "{items}: {cost:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locked_item_costs_two_requests_for_any_backlog() {
    for items in [100, 1_000] {
        let cost = drain(locked, items).await;
        println!("locked, {items}: {cost:?}");
        assert!(cost.requests <= 2.2 && cost.bytes <= 400.0, "{items}: {cost:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_consumer_sends_nothing() {
    let server = server();
    let client = client(&server).await;
    let queue = locked(&client, PATH);
    let mut consumer = queue.consumer();
    in_time(queue.put(&"item".to_owned())).await.unwrap();
    assert_eq!(drained(&mut consumer, 1).await, ["item"]);
    server.clear_requests();
    nothing(&mut consumer).await;
    nothing(&mut consumer).await;
    let sent: Vec<_> = server.requests().iter().map(|request| request.op).filter(|op| *op != OpCode::Ping).collect();
    assert!(sent.is_empty(), "{sent:?}");
}

/// Completes all items at once, a batch at a time.
async fn drain_in_batches(options: QueueOptions, items: u32) -> Cost {
    const BATCH: u32 = 25;
    let server: TestingServer = server();
    let direct = client(&server).await;
    let texts: Vec<_> = (0..items).map(|number| format!("item {number:06}")).collect();
    let producer = plain(&direct, PATH);
    for part in texts.chunks(500) {
        in_time(producer.put_all(part)).await.unwrap();
    }
    let proxy = FaultProxy::start(server.address()).unwrap();
    let client = connected(through(&proxy, std::time::Duration::from_secs(60))).await;
    server.clear_requests();
    let before = proxy.traffic();
    let mut consumer = with(&client, PATH, options.batch(BATCH)).consumer();
    let mut taken = Vec::new();
    while taken.len() < texts.len() {
        let mut batch = Vec::new();
        for _ in 0..BATCH {
            batch.push(next(&mut consumer).await);
        }
        in_time(join_all(batch.iter().map(Delivery::complete))).await.into_iter().for_each(Result::unwrap);
        taken.extend(batch.iter_mut().flat_map(Delivery::take_items));
    }
    assert_eq!(taken, texts);
    let cost = cost(&server, &proxy, before, items);
    assert!(in_time(producer.is_empty()).await.unwrap());
    cost
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn item_of_a_batch_costs_a_fraction_of_a_request() {
    let plain = drain_in_batches(QueueOptions::new().at_most_once(), 1_000).await;
    println!("plain: {plain:?}");
    assert!(plain.requests <= 0.1 && plain.bytes <= 200.0, "{plain:?}");
    let locked = drain_in_batches(locks(PATH), 1_000).await;
    println!("locked: {locked:?}");
    assert!(locked.requests <= 0.15 && locked.bytes <= 400.0, "{locked:?}");
}

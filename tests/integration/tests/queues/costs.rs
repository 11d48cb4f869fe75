//! The requests and bytes of an item, for any backlog.

use std::collections::BTreeSet;

use curator_framework::CuratorFramework;
use curator_integration::env::{connected, in_time};
use curator_integration::in_process::{client, server};
use curator_recipes::{Delivery, DistributedQueue, QueueOptions, SimpleDistributedQueue};
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

/// The requests since the log was cleared, which it clears.
fn requests(server: &TestingServer) -> Vec<OpCode> {
    let sent = server.requests().iter().map(|request| request.op).filter(|op| *op != OpCode::Ping).collect();
    server.clear_requests();
    sent
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peek_reads_16_items_at_once_and_purge_removes_64() {
    use OpCode::{Exists, GetChildren, GetData, Multi, MultiRead};
    let server = server();
    let client = client(&server).await;
    let queue = plain(&client, PATH);
    let texts: Vec<_> = (0..130).map(|number| format!("item {number:06}")).collect();
    in_time(queue.put_all(&texts)).await.unwrap();
    server.clear_requests();
    assert_eq!(in_time(queue.len()).await.unwrap(), 130);
    assert_eq!(requests(&server), [Exists]);
    assert_eq!(in_time(queue.peek(33)).await.unwrap().len(), 33);
    let [GetChildren | OpCode::GetChildren2, MultiRead, MultiRead, MultiRead | GetData] = requests(&server)[..] else {
        panic!()
    };
    assert_eq!(in_time(queue.purge()).await.unwrap(), 130);
    let purged = requests(&server);
    assert!(matches!(purged[..], [GetChildren | OpCode::GetChildren2, Multi, Multi, Multi]), "{purged:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letter_is_moved_by_one_read_and_one_transaction() {
    let server = server();
    let client = client(&server).await;
    let queue = locked(&client, PATH);
    in_time(queue.put(&"item".to_owned())).await.unwrap();
    let mut consumer = queue.consumer();
    in_time(next(&mut consumer).await.reject("on purpose")).await.unwrap();
    server.clear_requests();
    assert!(in_time(queue.retry_dead("queue-0000000000")).await.unwrap());
    assert_eq!(requests(&server), [OpCode::GetData, OpCode::Multi]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_and_consumers_send_nothing_by_themselves() {
    let server = server();
    let client = client(&server).await;
    in_time(client.check_exists().for_path(PATH)).await.unwrap();
    server.clear_requests();
    let queue = locked(&client, PATH);
    let consumers = (queue.consumer(), queue.clone().consumer());
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    drop(consumers);
    assert_eq!(requests(&server), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn poll_of_a_known_name_is_a_read_and_a_transaction() {
    let server = server();
    let queue = SimpleDistributedQueue::new(client(&server).await, PATH).unwrap();
    for _ in 0..4 {
        in_time(queue.offer("item")).await.unwrap();
    }
    assert!(in_time(queue.poll()).await.unwrap().is_some());
    server.clear_requests();
    in_time(queue.offer("item")).await.unwrap();
    assert_eq!(requests(&server), [OpCode::Multi]);
    assert!(in_time(queue.peek()).await.unwrap().is_some());
    assert_eq!(requests(&server), [OpCode::GetData]);
    for _ in 0..3 {
        assert!(in_time(queue.poll()).await.unwrap().is_some());
        assert_eq!(requests(&server), [OpCode::GetData, OpCode::Multi]);
    }
    // The name of the last item is not known yet.
    assert!(in_time(queue.poll()).await.unwrap().is_some());
    assert_eq!(requests(&server).len(), 3);
    assert!(in_time(queue.poll()).await.unwrap().is_none());
    assert_eq!(requests(&server).len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paths_are_persistent_below_containers() {
    let server = server();
    let client = client(&server).await;
    let options = QueueOptions::new().lock_path("/folder/locks/queue").dead_letters("/folder/dead/queue");
    let queue = with(&client, "/folder/of/queue", options);
    in_time(queue.put(&"item".to_owned())).await.unwrap();
    in_time(next(&mut queue.consumer()).await.reject("on purpose")).await.unwrap();
    in_time(SimpleDistributedQueue::new(client, "/folder/simple").unwrap().offer("item")).await.unwrap();
    let containers = server.requests().into_iter().filter(|request| request.op == OpCode::CreateContainer);
    let containers: BTreeSet<_> = containers.filter_map(|request| request.path).collect();
    let expected = ["/folder", "/folder/dead", "/folder/locks", "/folder/of", "/folder/simple"];
    assert_eq!(containers, expected.map(str::to_owned).into());
    for path in ["/folder/of/queue", "/folder/locks/queue", "/folder/dead/queue"] {
        assert!(server.exists(path), "{path}");
    }
}

//! The asynchronous methods of queues, dropped at every poll: no item is lost or delivered twice beyond the mode's
//! promise, and no lock, marker or watch is left.

use std::time::{Duration, UNIX_EPOCH};

use curator_framework::CuratorFramework;
use curator_integration::lock_stage::{OURS, QUIET};
use curator_recipes::{
    Delivery, DistributedDelayQueue, DistributedIdQueue, DistributedPriorityQueue, DistributedQueue, QueueOptions,
    RawCodec, SimpleDistributedQueue,
};
use tokio::time::{sleep, timeout};

use crate::Row;

const PATH: &str = "/queue";
const LOCKS: &str = "/queue-locks";
const DEAD: &str = "/queue-dead";
const EFFECT: &str = "/effect";

fn locks() -> QueueOptions {
    QueueOptions::new().lock_path(LOCKS)
}

fn locked(client: &CuratorFramework) -> DistributedQueue<String> {
    DistributedQueue::with_options(client.clone(), PATH, RawCodec, locks()).unwrap()
}

/// The number of items after the call, in the queue and in its dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    /// The two items, or one more.
    OneMore,
    /// The two items.
    Same,
    /// The two items, or one less.
    OneLess,
    /// Any of them.
    Any,
}

/// A call on a queue with two items.
fn row(method: &'static str, after: After, call: impl AsyncFn(&CuratorFramework) + 'static) -> Row {
    Row::new(method, async move |scene| {
        let front = locked(&scene.stage.front);
        for item in ["first", "second"] {
            front.put(&item.to_owned()).await.unwrap();
        }
        sleep(QUIET).await;
        let client = scene.stage.client.clone();
        scene.call(call(&client)).await;
        sleep(QUIET).await;
        scene.stage.ensemble.repair(OURS);
        sleep(QUIET).await;
        let (mut consumer, mut items) = (front.consumer(), 0);
        while let Ok(Some(next)) = timeout(QUIET, consumer.next()).await {
            let delivery = next.unwrap();
            delivery.complete().await.unwrap();
            items += delivery.items().len();
        }
        items += scene.stage.ensemble.children(DEAD).len();
        let allowed = match after {
            After::OneMore => 2..=3,
            After::Same => 2..=2,
            After::OneLess => 1..=2,
            After::Any => 0..=2,
        };
        assert!(allowed.contains(&items), "{}: {items} items are left", scene.what);
        assert!(scene.stage.ensemble.children(LOCKS).is_empty(), "{}: a lock is left", scene.what);
        drop((consumer, front));
        sleep(QUIET).await;
        for dead in scene.stage.ensemble.children(DEAD) {
            scene.stage.ensemble.delete(&format!("{DEAD}/{dead}"));
        }
        for path in [PATH, LOCKS, DEAD, EFFECT] {
            scene.stage.ensemble.delete(path);
        }
    })
}

/// A call on a delivery.
fn delivery(
    method: &'static str,
    after: After,
    call: impl AsyncFn(&CuratorFramework, &Delivery<String>) + 'static,
) -> Row {
    row(method, after, async move |client| {
        let delivery = locked(client).consumer().next().await.unwrap().unwrap();
        call(client, &delivery).await;
    })
}

/// Rejects the first item, and returns the name of its dead letter.
async fn rejected(client: &CuratorFramework) -> String {
    let queue = locked(client);
    let delivery = queue.consumer().next().await.unwrap().unwrap();
    delivery.reject("on purpose").await.unwrap();
    queue.dead_letters(1).await.unwrap().remove(0).name
}

macro_rules! kind {
    ($rows:ident, $queue:ident, [$($name:literal),*], ($($argument:expr)?), $all:expr) => {
        fn $rows() -> Vec<Row> {
            fn queue(client: &CuratorFramework) -> $queue<String> {
                $queue::with_options(client.clone(), PATH, RawCodec, locks()).unwrap()
            }
            let [len, is_empty, put, put_timeout, put_batch, put_all, peek, purge, letters, retry, purge_dead] = [$($name),*];
            let item = || "third".to_owned();
            vec![
                row(len, After::Same, async |client| assert_eq!(queue(client).len().await.unwrap(), 2)),
                row(is_empty, After::Same, async |client| assert!(!queue(client).is_empty().await.unwrap())),
                row(put, After::OneMore, async move |client| queue(client).put(&item() $(, $argument)?).await.unwrap())
                    .also_loses_a_reply(1),
                row(put_timeout, After::OneMore, async move |client| {
                    let put = queue(client).put_timeout(&item() $(, $argument)?, QUIET).await.unwrap();
                    assert_eq!(put, Some(()));
                }),
                row(put_batch, After::OneMore, async move |client| {
                    queue(client).put_batch([&item()] $(, $argument)?).await.unwrap();
                }),
                row(put_all, After::OneMore, async move |client| {
                    let item = item();
                    queue(client).put_all([$all(&item)]).await.unwrap();
                }),
                row(peek, After::Same, async |client| assert!(queue(client).peek(9).await.unwrap().len() <= 2)),
                row(purge, After::Any, async |client| assert!(queue(client).purge().await.unwrap() <= 2)),
                row(letters, After::Same, async |client| assert!(queue(client).dead_letters(9).await.unwrap().is_empty())),
                row(retry, After::Same, async |client| {
                    assert!(queue(client).retry_dead(&rejected(client).await).await.unwrap());
                })
                .also_loses_a_reply(3),
                row(purge_dead, After::OneLess, async |client| {
                    rejected(client).await;
                    assert_eq!(queue(client).purge_dead().await.unwrap(), 1);
                }),
            ]
        }
    };
}

kind!(
    plain,
    DistributedQueue,
    [
        "DistributedQueue::len",
        "DistributedQueue::is_empty",
        "DistributedQueue::put",
        "DistributedQueue::put_timeout",
        "DistributedQueue::put_batch",
        "DistributedQueue::put_all",
        "DistributedQueue::peek",
        "DistributedQueue::purge",
        "DistributedQueue::dead_letters",
        "DistributedQueue::retry_dead",
        "DistributedQueue::purge_dead"
    ],
    (),
    |item| item
);
kind!(
    ids,
    DistributedIdQueue,
    [
        "DistributedIdQueue::len",
        "DistributedIdQueue::is_empty",
        "DistributedIdQueue::put",
        "DistributedIdQueue::put_timeout",
        "DistributedIdQueue::put_batch",
        "DistributedIdQueue::put_all",
        "DistributedIdQueue::peek",
        "DistributedIdQueue::purge",
        "DistributedIdQueue::dead_letters",
        "DistributedIdQueue::retry_dead",
        "DistributedIdQueue::purge_dead"
    ],
    ("id"),
    |item| (item, "id")
);
kind!(
    priorities,
    DistributedPriorityQueue,
    [
        "DistributedPriorityQueue::len",
        "DistributedPriorityQueue::is_empty",
        "DistributedPriorityQueue::put",
        "DistributedPriorityQueue::put_timeout",
        "DistributedPriorityQueue::put_batch",
        "DistributedPriorityQueue::put_all",
        "DistributedPriorityQueue::peek",
        "DistributedPriorityQueue::purge",
        "DistributedPriorityQueue::dead_letters",
        "DistributedPriorityQueue::retry_dead",
        "DistributedPriorityQueue::purge_dead"
    ],
    (7),
    |item| (item, 7)
);
kind!(
    delays,
    DistributedDelayQueue,
    [
        "DistributedDelayQueue::len",
        "DistributedDelayQueue::is_empty",
        "DistributedDelayQueue::put",
        "DistributedDelayQueue::put_timeout",
        "DistributedDelayQueue::put_batch",
        "DistributedDelayQueue::put_all",
        "DistributedDelayQueue::peek",
        "DistributedDelayQueue::purge",
        "DistributedDelayQueue::dead_letters",
        "DistributedDelayQueue::retry_dead",
        "DistributedDelayQueue::purge_dead"
    ],
    (UNIX_EPOCH + Duration::from_secs(1)),
    |item| (item, UNIX_EPOCH + Duration::from_secs(1))
);

pub(crate) fn puts() -> Vec<Row> {
    let mut rows: Vec<_> = [plain(), ids(), priorities(), delays()].into_iter().flatten().collect();
    rows.push(row("DistributedIdQueue::remove", After::OneLess, async |client| {
        let queue = DistributedIdQueue::<String>::with_options(client.clone(), PATH, RawCodec, locks()).unwrap();
        // Without an id an item's name is its id.
        assert_eq!(queue.remove("queue-0000000000").await.unwrap(), 1);
    }));
    rows
}

pub(crate) fn consumers() -> Vec<Row> {
    vec![
        row("QueueConsumer::next", After::Same, async |client| {
            locked(client).consumer().next().await.unwrap().unwrap().release().await.unwrap().held().unwrap();
        })
        .also_loses_a_reply(1),
        row("QueueConsumer::next", After::Any, async |client| {
            let options = QueueOptions::new().at_most_once();
            let queue = DistributedQueue::<String>::with_options(client.clone(), PATH, RawCodec, options).unwrap();
            drop(queue.consumer().next().await.unwrap().unwrap());
        })
        .of(", at most once"),
        row("QueueConsumer::run", After::Any, async |client| {
            let work = |delivery: Delivery<String>| async move { delivery.complete().await.unwrap() };
            let ended = timeout(QUIET, locked(client).consumer().run(2, work)).await;
            assert!(ended.is_err());
        }),
        row("QueueConsumer::run_until", After::Any, async |client| {
            let work = |delivery: Delivery<String>| async move { delivery.complete().await.unwrap() };
            locked(client).consumer().run_until(sleep(QUIET), 2, work).await.unwrap();
        }),
    ]
}

pub(crate) fn deliveries() -> Vec<Row> {
    vec![
        delivery("Delivery::lost", After::Same, async |_, delivery| {
            assert!(timeout(QUIET, delivery.lost()).await.is_err());
        }),
        delivery("Delivery::verify", After::Same, async |_, delivery| delivery.verify().await.unwrap()),
        delivery("Delivery::complete", After::OneLess, async |_, delivery| delivery.complete().await.unwrap())
            .also_loses_a_reply(1),
        delivery("Delivery::complete_with", After::OneLess, async |client, delivery| {
            delivery.complete_with(&client.transaction().create(EFFECT, "")).await.unwrap();
        }),
        delivery("Delivery::retry", After::Same, async |_, delivery| delivery.retry().await.unwrap()),
        delivery("Delivery::requeue", After::Same, async |_, delivery| delivery.requeue().await.unwrap()),
        delivery("Delivery::reject", After::Same, async |_, delivery| delivery.reject("on purpose").await.unwrap()),
        delivery("Delivery::release", After::Same, async |_, delivery| {
            delivery.release().await.unwrap().held().unwrap();
        }),
    ]
}

/// A call on a simple queue with two items.
fn on_simple(method: &'static str, most: usize, call: impl AsyncFn(&SimpleDistributedQueue) + 'static) -> Row {
    Row::new(method, async move |scene| {
        let front = SimpleDistributedQueue::new(scene.stage.front.clone(), PATH).unwrap();
        for item in ["first", "second"] {
            front.offer(item).await.unwrap();
        }
        sleep(QUIET).await;
        let ours = SimpleDistributedQueue::new(scene.stage.client.clone(), PATH).unwrap();
        let taken = scene.call(call(&ours)).await.is_some() && most == 2 && method != "SimpleDistributedQueue::peek";
        sleep(QUIET).await;
        scene.stage.ensemble.repair(OURS);
        sleep(QUIET).await;
        // What a dropped call has taken is returned by the next call.
        let mut items = usize::from(taken);
        for queue in [&ours, &front] {
            while queue.poll().await.unwrap().is_some() {
                items += 1;
            }
        }
        assert!((2..=most).contains(&items), "{}: {items}", scene.what);
        drop((ours, front));
        sleep(QUIET).await;
        scene.stage.ensemble.delete(PATH);
    })
}

pub(crate) fn simple() -> Vec<Row> {
    vec![
        on_simple("SimpleDistributedQueue::offer", 3, async |queue| queue.offer("third").await.unwrap())
            .also_loses_a_reply(1),
        on_simple("SimpleDistributedQueue::peek", 2, async |queue| drop(queue.peek().await.unwrap())),
        on_simple("SimpleDistributedQueue::poll", 2, async |queue| drop(queue.poll().await.unwrap()))
            .also_loses_a_reply(1),
        on_simple("SimpleDistributedQueue::poll_timeout", 2, async |queue| {
            drop(queue.poll_timeout(QUIET).await.unwrap());
        }),
        on_simple("SimpleDistributedQueue::take", 2, async |queue| drop(queue.take().await.unwrap())),
    ]
}

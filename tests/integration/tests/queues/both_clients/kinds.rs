//! Curator's tests of the queues with ids, priorities and delays.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use curator_framework::CuratorFramework;
use curator_integration::env::{children, in_time};
use curator_integration::on_every_server;
use curator_recipes::{
    DistributedDelayQueue, DistributedIdQueue, DistributedPriorityQueue, QueueError, QueueOptions, RawCodec,
};

use crate::stage::{completed, drained, next, nothing, plain, texts};

fn options() -> QueueOptions {
    QueueOptions::new().at_most_once()
}

fn ids(client: &CuratorFramework, path: &str) -> DistributedIdQueue<String> {
    DistributedIdQueue::with_options(client.clone(), path, RawCodec, options()).unwrap()
}

fn priorities(client: &CuratorFramework, path: &str) -> DistributedPriorityQueue<String> {
    DistributedPriorityQueue::with_options(client.clone(), path, RawCodec, options()).unwrap()
}

fn delays(client: &CuratorFramework, path: &str) -> DistributedDelayQueue<String> {
    DistributedDelayQueue::with_options(client.clone(), path, RawCodec, options()).unwrap()
}

on_every_server! {
    // TestDistributedIdQueue.testOrdering.
    async fn items_with_ids_have_the_order_of_their_puts(env) {
        let queue = ids(&env.client().await, &env.path("queue"));
        for (number, text) in texts(0..30).iter().enumerate() {
            in_time(queue.put(text, &format!("id {}", (number * 7) % 30))).await.unwrap();
        }
        let mut consumer = queue.consumer();
        let first = next(&mut consumer).await;
        assert_eq!((first.id(), first.items()), (Some("id 0"), &["0".to_owned()][..]));
        assert_eq!(drained(&mut consumer, 29).await, texts(1..30));
    }

    // Defect 18: Java does not find the id `a/b|c`.
    async fn items_are_removed_by_their_id_as_it_was_given(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = ids(&client, &path);
        for id in ["a/b|c", "other", "a/b|c"] {
            in_time(queue.put(&"item".to_owned(), id)).await.unwrap();
        }
        assert!(children(&client, &path).await.contains(&"queue-|a_b_c|0000000000".to_owned()));
        assert_eq!(in_time(queue.remove("missing")).await.unwrap(), 0);
        assert_eq!(in_time(queue.remove("a/b|c")).await.unwrap(), 2);
        assert_eq!(in_time(queue.len()).await.unwrap(), 1);
        let refused = in_time(queue.put(&String::new(), "")).await;
        assert!(matches!(refused, Err(QueueError::InvalidArgument { argument: "id", .. })), "{refused:?}");
    }

    // TestDistributedPriorityQueue.testSimple.
    async fn lowest_priority_number_comes_first(env) {
        let queue = priorities(&env.client().await, &env.path("queue"));
        let numbers = [5, -1, i32::MAX, 0, i32::MIN, 10, -1];
        for number in numbers {
            in_time(queue.put(&number.to_string(), number)).await.unwrap();
        }
        let mut sorted = numbers;
        sorted.sort_unstable();
        let mut consumer = queue.consumer();
        assert_eq!(next(&mut consumer).await.priority(), Some(i32::MIN));
        assert_eq!(drained(&mut consumer, 6).await, sorted[1..].iter().map(ToString::to_string).collect::<Vec<_>>());
    }

    // testSortingWhileTaking, testMinItemsBeforeRefresh, testAdditions.
    async fn urgent_item_precedes_the_known_ones(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = priorities(&client, &path);
        let items: Vec<_> = texts(0..60);
        for item in &items {
            in_time(queue.put(item, 10)).await.unwrap();
        }
        let mut consumer = queue.consumer();
        assert_eq!(completed(&mut consumer).await, ["0"]);
        in_time(priorities(&env.client().await, &path).put(&"urgent".to_owned(), 1)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        let taken = drained(&mut consumer, 60).await;
        let place = taken.iter().position(|text| text == "urgent").unwrap();
        let most = if curator_integration::clients::is_zookeeper_async() { 16 } else { 0 };
        assert!(place <= most, "{place}");
    }

    // TestDistributedDelayQueue.testBasic, testSimple, testLateAddition.
    async fn items_come_at_their_times(env) {
        let queue = delays(&env.client().await, &env.path("queue"));
        let (now, mut consumer) = (SystemTime::now(), queue.consumer());
        let after = |number: u64| now + Duration::from_millis(number * 200 + 400);
        for number in [3, 1, 2] {
            in_time(queue.put(&number.to_string(), after(number))).await.unwrap();
        }
        nothing(&mut consumer).await;
        // An earlier one, added later.
        in_time(queue.put(&"0".to_owned(), after(0))).await.unwrap();
        for number in 0..4 {
            let delivery = next(&mut consumer).await;
            assert_eq!(delivery.items(), [number.to_string()]);
            let late = delivery.due().unwrap().duration_since(after(number));
            assert!(late.is_ok_and(|by| by < Duration::from_millis(1)), "a time is rounded up to milliseconds");
            assert!(SystemTime::now() >= after(number), "{number}");
        }
        let refused = in_time(queue.put(&String::new(), UNIX_EPOCH)).await;
        assert!(matches!(refused, Err(QueueError::InvalidArgument { argument: "due", .. })), "{refused:?}");
    }

    // TestDistributedDelayQueue.testSorting. Java delivers items of one time in any order.
    async fn items_of_one_time_have_the_order_of_their_puts(env) {
        let queue = delays(&env.client().await, &env.path("queue"));
        let time = |number: usize| UNIX_EPOCH + Duration::from_millis(1000 - u64::try_from(number).unwrap() / 10);
        for (number, text) in texts(0..100).iter().enumerate() {
            in_time(queue.put(text, time(number))).await.unwrap();
        }
        let expected: Vec<_> = (0..10).rev().flat_map(|tens| texts(tens * 10..tens * 10 + 10)).collect();
        assert_eq!(drained(&mut queue.consumer(), 100).await, expected);
    }

    async fn path_with_a_bar_is_refused_for_ids_alone(env) {
        let client = env.client().await;
        let path = env.path("a|b");
        in_time(plain(&client, &path).put(&"item".to_owned())).await.unwrap();
        let refused = DistributedIdQueue::<String>::with_options(client, path, RawCodec, options());
        assert!(matches!(refused, Err(QueueError::InvalidArgument { argument: "path", .. })));
    }
}

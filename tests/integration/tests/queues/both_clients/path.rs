//! A queue's path that is deleted and created again: new items have the names and versions of the earlier ones.

use curator_framework::CuratorFramework;
use curator_integration::clients::is_zookeeper_async;
use curator_integration::env::{children, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{QueueError, QueueOptions, SimpleDistributedQueue};

use crate::stage::{LONG, completed, drained, error, locked, locks, next, nothing, plain, take, texts, through, with};

/// More items than a consumer uses up with a watch on them.
const ITEMS: usize = 40;

/// Deletes the path with its items, and puts others of the same names.
async fn replace(client: &CuratorFramework, path: &str, items: &[String]) {
    for name in children(client, path).await {
        in_time(client.delete().for_path(&format!("{path}/{name}"))).await.unwrap();
    }
    in_time(client.delete().for_path(path)).await.unwrap();
    put(client, path, items).await;
}

async fn put(client: &CuratorFramework, path: &str, items: &[String]) {
    let queue = with(client, path, QueueOptions::new().at_most_once());
    for item in items {
        in_time(queue.put(item)).await.unwrap();
    }
}

/// The options of both modes.
fn modes(path: &str) -> Vec<QueueOptions> {
    let plain = QueueOptions::new().at_most_once();
    if is_zookeeper_async() { vec![plain] } else { vec![plain, locks(path)] }
}

on_every_server! {
    async fn data_that_was_read_ahead_is_not_delivered_for_the_items_of_the_next_path(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        for options in modes(&path) {
            put(&client, &path, &texts(0..ITEMS)).await;
            let mut consumer = with(&client, &path, options).consumer();
            assert_eq!(completed(&mut consumer).await, ["0"]);
            let new = texts(100..100 + ITEMS);
            replace(&env.client().await, &path, &new).await;
            assert_eq!(drained(&mut consumer, ITEMS).await, new);
            nothing(&mut consumer).await;
            in_time(client.delete().for_path(&path)).await.unwrap();
        }
    }

    async fn request_that_meets_the_next_path_delivers_no_earlier_data(env) {
        if is_zookeeper_async() {
            // Its replies overtake notifications.
            return;
        }
        let (direct, path) = (env.client().await, env.path("queue"));
        for (options, is_locked) in modes(&path).into_iter().zip([false, true]) {
            put(&direct, &path, &texts(0..ITEMS)).await;
            let proxy = env.proxy();
            let mut consumer = with(&connected(through(&proxy, LONG)).await, &path, options).consumer();
            let first = next(&mut consumer).await;
            proxy.partition();
            let mut error = Box::pin(error(&mut consumer));
            // The request for the second item is sent, and held.
            assert!(futures_util::poll!(&mut error).is_pending());
            let new = texts(100..103);
            replace(&direct, &path, &new).await;
            proxy.repair();
            let lost = in_time(error).await;
            assert!(matches!(lost, QueueError::Replaced { .. }), "{lost:?}");
            drop(first);
            let mut taken = drained(&mut consumer, 2).await;
            taken.sort_unstable();
            assert_eq!(taken, ["100", "102"]);
            nothing(&mut consumer).await;
            if is_locked {
                assert_eq!(children(&direct, &format!("{path}-dead")).await.len(), 1);
            }
            in_time(direct.delete().for_path(&path)).await.unwrap();
        }
    }

    async fn delete_that_was_lost_does_not_take_the_item_of_the_next_path(env) {
        if is_zookeeper_async() {
            // It has no transactions, and the page says so.
            return;
        }
        let (direct, path, proxy) = (env.client().await, env.path("queue"), env.proxy());
        put(&direct, &path, &texts(0..1)).await;
        let client = connected(through(&proxy, LONG)).await;
        let mut consumer = plain(&client, &path).consumer();
        proxy.refuse();
        proxy.drop_request(take(), 1);
        let other = async {
            proxy.wait_for_faults(1).await;
            assert_eq!(completed(&mut plain(&direct, &path).consumer()).await, ["0"]);
            replace(&direct, &path, &texts(100..101)).await;
            proxy.accept();
        };
        let (ours, ()) = tokio::join!(completed(&mut consumer), other);
        assert_eq!(ours, ["100"]);
        nothing(&mut consumer).await;
    }

    async fn poll_that_was_lost_does_not_take_the_item_of_the_next_path(env) {
        if is_zookeeper_async() {
            return;
        }
        let (direct, path, proxy) = (env.client().await, env.path("queue"), env.proxy());
        let simple = |client: &CuratorFramework| SimpleDistributedQueue::new(client.clone(), &*path).unwrap();
        let (producer, client) = (simple(&direct), connected(through(&proxy, LONG)).await);
        in_time(producer.offer("0")).await.unwrap();
        let queue = simple(&client);
        proxy.refuse();
        proxy.drop_request(take(), 1);
        let other = async {
            proxy.wait_for_faults(1).await;
            assert_eq!(in_time(producer.poll()).await.unwrap().as_deref(), Some(&b"0"[..]));
            // The path is a container, which servers delete.
            in_time(direct.delete().for_path(&path)).await.unwrap();
            in_time(producer.offer("100")).await.unwrap();
            proxy.accept();
        };
        let (ours, ()) = tokio::join!(in_time(queue.take()), other);
        assert_eq!(ours.unwrap(), b"100");
    }

    async fn claim_of_an_item_of_the_earlier_path_is_given_up(env) {
        if is_zookeeper_async() {
            return;
        }
        let (direct, path, proxy) = (env.client().await, env.path("queue"), env.proxy());
        put(&direct, &path, &texts(0..1)).await;
        let client = connected(through(&proxy, LONG)).await;
        let mut consumer = locked(&client, &path).consumer();
        proxy.refuse();
        proxy.drop_reply(take(), 2);
        let other = async {
            proxy.wait_for_faults(1).await;
            replace(&direct, &path, &texts(100..101)).await;
            proxy.accept();
        };
        let (ours, ()) = tokio::join!(completed(&mut consumer), other);
        assert_eq!(ours, ["100"]);
        assert!(children(&direct, &format!("{path}-locks")).await.is_empty());
        assert!(children(&direct, &path).await.is_empty());
    }

    async fn end_of_a_delivery_does_not_hide_the_item_of_the_next_path(env) {
        if is_zookeeper_async() {
            // It does not know its session.
            return;
        }
        let (client, path) = (env.client().await, env.path("queue"));
        for options in modes(&path) {
            put(&client, &path, &texts(0..1)).await;
            let mut consumer = with(&client, &path, options).consumer();
            assert_eq!(completed(&mut consumer).await, ["0"]);
            in_time(env.kill_session(&client.session().await.unwrap())).await;
            replace(&client, &path, &texts(100..101)).await;
            assert_eq!(completed(&mut consumer).await, ["100"]);
            nothing(&mut consumer).await;
            in_time(client.delete().for_path(&path)).await.unwrap();
        }
    }

    async fn lost_reply_to_the_end_of_an_item_does_not_hide_the_item_of_the_next_path(env) {
        if is_zookeeper_async() {
            // Its replies overtake notifications.
            return;
        }
        let (direct, path) = (env.client().await, env.path("queue"));
        for (options, request) in modes(&path).into_iter().zip([1, 2]) {
            let proxy = env.proxy();
            let client = connected(through(&proxy, LONG)).await;
            let queue = with(&client, &path, options);
            // The marker exists, and so does the lock path.
            in_time(queue.put(&"first".to_owned())).await.unwrap();
            let mut consumer = queue.consumer();
            assert_eq!(completed(&mut consumer).await, ["first"]);
            in_time(direct.delete().for_path(&path)).await.unwrap();
            put(&direct, &path, &texts(0..1)).await;
            proxy.refuse();
            proxy.drop_reply(take(), request);
            let other = async {
                proxy.wait_for_faults(1).await;
                assert!(children(&direct, &path).await.is_empty());
                replace(&direct, &path, &texts(100..101)).await;
                proxy.accept();
            };
            let (ours, ()) = tokio::join!(completed(&mut consumer), other);
            assert_eq!(ours, ["0"]);
            assert_eq!(completed(&mut consumer).await, ["100"]);
            nothing(&mut consumer).await;
            in_time(direct.delete().for_path(&path)).await.unwrap();
        }
    }

    async fn end_of_a_delivery_of_the_earlier_path_does_not_end_one_of_the_next_path(env) {
        if is_zookeeper_async() {
            return;
        }
        let (direct, path) = (env.client().await, env.path("queue"));
        for is_complete in [true, false] {
            let (proxy, effect) = (env.proxy(), env.path(&format!("effect-{is_complete}")));
            put(&direct, &path, &texts(0..1)).await;
            let client = connected(through(&proxy, LONG)).await;
            let delivery = next(&mut locked(&client, &path).consumer()).await;
            proxy.refuse();
            proxy.reset();
            eventually("the connection is lost", async || !client.is_connected()).await;
            in_time(direct.delete().for_path(&format!("{path}-locks/{}", delivery.name()))).await.unwrap();
            replace(&direct, &path, &texts(100..101)).await;
            let other = next(&mut locked(&direct, &path).consumer()).await;
            let transaction = client.transaction().create(&*effect, "earlier");
            let ends = async {
                match is_complete {
                    true => delivery.complete_with(&transaction).await,
                    false => delivery.release().await.map(drop),
                }
            };
            let (ended, ()) = in_time(async { tokio::join!(Box::pin(ends), async { proxy.accept() }) }).await;
            if is_complete {
                assert!(matches!(ended, Err(QueueError::AlreadyGone { .. } | QueueError::Lost { .. })), "{ended:?}");
            }
            assert!(in_time(direct.check_exists().for_path(&effect)).await.unwrap().is_none());
            in_time(other.verify()).await.unwrap();
            in_time(other.complete()).await.unwrap();
            in_time(direct.delete().for_path(&path)).await.unwrap();
        }
    }
}

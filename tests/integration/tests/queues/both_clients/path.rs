//! A queue's path that is deleted and created again: new items have the names and versions of the earlier ones.

use curator_framework::CuratorFramework;
use curator_integration::clients::is_zookeeper_async;
use curator_integration::env::{children, connected, in_time};
use curator_integration::on_every_server;
use curator_recipes::{QueueError, QueueOptions};

use crate::stage::{LONG, completed, drained, error, locks, next, nothing, texts, through, with};

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
}

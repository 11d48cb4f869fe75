//! Promises of the pages of queues that deliver at most once, and that no other test shows.

use std::time::Duration;

use curator_integration::env::in_time;
use curator_integration::on_every_server;
use curator_recipes::{QueueError, Release, SimpleDistributedQueue};

use crate::stage::{next, plain};

on_every_server! {
    async fn delivery_without_a_lock_path_has_two_ends(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = plain(&client, &path);
        in_time(queue.put(&"item".to_owned())).await.unwrap();
        let node = format!("{path}/queue-0000000000");
        let stat = in_time(client.check_exists().for_path(&node)).await.unwrap().unwrap();
        let delivery = next(&mut queue.consumer()).await;
        assert_eq!((delivery.token().czxid(), delivery.key().get()), (delivery.key(), stat.czxid));
        for refused in [
            in_time(delivery.complete_with(&client.transaction())).await,
            in_time(delivery.retry()).await,
            in_time(delivery.requeue()).await,
            in_time(delivery.reject("on purpose")).await,
        ] {
            let Err(QueueError::AtMostOnce { path, .. }) = &refused else { panic!("{refused:?}") };
            assert_eq!(**path, *node);
        }
        assert_eq!((delivery.is_held(), delivery.remaining()), (true, Duration::MAX));
        in_time(delivery.complete()).await.unwrap();
        assert_eq!(in_time(delivery.release()).await.unwrap(), Release::Released);
    }

    async fn poll_without_a_budget_does_not_wait(env) {
        let queue = SimpleDistributedQueue::new(env.client().await, env.path("queue")).unwrap();
        assert_eq!(in_time(queue.peek()).await.unwrap(), None);
        assert_eq!(in_time(queue.poll_timeout(Duration::ZERO)).await.unwrap(), None);
        in_time(queue.offer("item")).await.unwrap();
        assert_eq!(in_time(queue.peek()).await.unwrap().unwrap(), b"item");
        assert_eq!(in_time(queue.poll_timeout(Duration::ZERO)).await.unwrap().unwrap(), b"item");
    }
}

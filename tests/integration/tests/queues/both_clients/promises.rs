//! Promises of the pages of queues that deliver at most once, and that no other test shows.

use std::time::Duration;

use curator_integration::env::{connected, in_time};
use curator_integration::on_every_server;
use curator_recipes::{QueueError, Release, SimpleDistributedQueue};

use crate::stage::{LONG, next, plain, take, texts, through};

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

    async fn poll_of_a_session_that_has_ended_before_the_reply_is_an_unknown_outcome(env) {
        let (direct, path) = (env.client().await, env.path("queue"));
        let producer = SimpleDistributedQueue::new(direct, &*path).unwrap();
        for (number, is_applied) in [(0, true), (2, false)] {
            for text in texts(number..number + 2) {
                in_time(producer.offer(text)).await.unwrap();
            }
            let proxy = env.proxy();
            let client = connected(through(&proxy, LONG)).await;
            let session = in_time(client.session()).await.unwrap();
            let queue = SimpleDistributedQueue::new(client, &*path).unwrap();
            proxy.refuse();
            match is_applied {
                true => proxy.drop_reply(take(), 1),
                false => proxy.drop_request(take(), 1),
            }
            let ends = async {
                proxy.wait_for_faults(1).await;
                in_time(env.kill_session(&session)).await;
                proxy.accept();
            };
            let (polled, ()) = in_time(async { tokio::join!(queue.poll(), ends) }).await;
            if is_applied {
                let unknown = polled.unwrap_err();
                assert!(matches!(unknown, QueueError::Unknown { .. }), "{unknown:?}");
            } else {
                assert_eq!(polled.unwrap().unwrap(), number.to_string().as_bytes());
            }
            assert_eq!(in_time(queue.poll()).await.unwrap().unwrap(), (number + 1).to_string().as_bytes());
            assert_eq!(in_time(queue.poll()).await.unwrap(), None);
        }
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

//! Curator's tests of `SimpleDistributedQueue`, and the defects 1, 20 and 21 that they do not show.

use std::time::Duration;

use curator_integration::env::{builder, connected, eventually, in_time, watchers};
use curator_integration::on_every_server;
use curator_recipes::{QueueError, SimpleDistributedQueue};
use futures_util::poll;

use crate::stage::{take, texts, through};

on_every_server! {
    // testOffer1, testOffer2, testRemova1.
    async fn offers_are_polled_in_their_order(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = SimpleDistributedQueue::new(client.clone(), &*path).unwrap();
        assert_eq!(in_time(queue.poll()).await.unwrap(), None, "the path does not exist");
        in_time(queue.offer("first")).await.unwrap();
        in_time(queue.offer("second")).await.unwrap();
        assert_eq!(env.wait_for_children(&client, &path, 2).await.len(), 2);
        assert_eq!(in_time(queue.poll()).await.unwrap().unwrap(), b"first");
        assert_eq!(in_time(queue.poll()).await.unwrap().unwrap(), b"second");
        assert_eq!(in_time(queue.poll()).await.unwrap(), None);
    }

    // testRemove2, testRemove3, testElement1 to testElement4.
    async fn another_client_takes_the_items_in_order_and_sees_the_next_one(env) {
        let path = env.path("queue");
        let queue = SimpleDistributedQueue::new(env.client().await, &*path).unwrap();
        let other = SimpleDistributedQueue::new(env.client().await, &*path).unwrap();
        for text in texts(0..100) {
            in_time(queue.offer(text)).await.unwrap();
        }
        for text in texts(0..60) {
            assert_eq!(in_time(other.peek()).await.unwrap().unwrap(), text.as_bytes());
            assert_eq!(in_time(other.poll()).await.unwrap().unwrap(), text.as_bytes());
        }
        assert_eq!(in_time(queue.peek()).await.unwrap().unwrap(), b"60");
        assert_eq!(in_time(queue.take()).await.unwrap(), b"60");
        assert_eq!(in_time(other.take()).await.unwrap(), b"61", "its known names are used up to here");
    }

    // testTake1, testTakeWait1, testTakeWait2.
    async fn take_waits_for_a_later_offer(env) {
        let path = env.path("queue");
        let queue = SimpleDistributedQueue::new(env.client().await, &*path).unwrap();
        let other = SimpleDistributedQueue::new(env.client().await, &*path).unwrap();
        for round in 0..2 {
            let taking = tokio::spawn({ let other = other.clone(); async move { other.take().await } });
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert!(!taking.is_finished());
            in_time(queue.offer(format!("item {round}"))).await.unwrap();
            assert_eq!(in_time(taking).await.unwrap().unwrap(), format!("item {round}").into_bytes());
        }
    }

    // testPollWithTimeout. Each poll of Java leaves a watch (defect 20).
    async fn poll_with_a_budget_returns_none_and_leaves_no_watch(env) {
        let client = env.client().await;
        let queue = SimpleDistributedQueue::new(client.clone(), env.path("queue")).unwrap();
        for _ in 0..20 {
            assert_eq!(in_time(queue.poll_timeout(Duration::from_millis(10))).await.unwrap(), None);
        }
        assert_eq!(watchers(std::slice::from_ref(&client)), 0);
        in_time(queue.offer("item")).await.unwrap();
        assert_eq!(in_time(queue.poll_timeout(Duration::from_secs(9))).await.unwrap().unwrap(), b"item");
    }

    // testHangFromContainerLoss (CURATOR-308, defect 21).
    async fn take_survives_the_deletion_of_the_path(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = SimpleDistributedQueue::new(client.clone(), &*path).unwrap();
        in_time(queue.offer("first")).await.unwrap();
        assert_eq!(in_time(queue.take()).await.unwrap(), b"first");
        let taking = tokio::spawn({ let queue = queue.clone(); async move { queue.take().await } });
        tokio::time::sleep(Duration::from_millis(100)).await;
        client.delete().for_path(&path).await.unwrap();
        in_time(queue.offer("second")).await.unwrap();
        assert_eq!(in_time(taking).await.unwrap().unwrap(), b"second");
    }

    // Defect 1: Java loses the item.
    async fn lost_reply_to_a_delete_does_not_lose_the_item(env) {
        let (direct, path) = (env.client().await, env.path("queue"));
        let producer = SimpleDistributedQueue::new(direct.clone(), &*path).unwrap();
        let proxy = env.proxy();
        let queue =
            SimpleDistributedQueue::new(connected(through(&proxy, Duration::from_secs(30))).await, &*path).unwrap();
        for text in texts(0..4) {
            in_time(producer.offer(text)).await.unwrap();
        }
        for (text, is_reply) in texts(0..4).into_iter().zip([true, false, true, false]) {
            match is_reply {
                true => proxy.drop_reply(take(), 1),
                false => proxy.drop_request(take(), 1),
            }
            assert_eq!(in_time(queue.take()).await.unwrap(), text.as_bytes());
        }
        assert_eq!(in_time(producer.poll()).await.unwrap(), None);
    }

    async fn dropped_poll_loses_no_item(env) {
        let path = env.path("queue");
        let queue = SimpleDistributedQueue::new(env.client().await, &*path).unwrap();
        for text in texts(0..5) {
            in_time(queue.offer(text)).await.unwrap();
        }
        let mut found = Vec::<Vec<u8>>::new();
        for polls in 1..30 {
            let mut poll = Box::pin(queue.poll());
            for _ in 0..polls {
                match futures_util::poll!(&mut poll) {
                    std::task::Poll::Ready(item) => {
                        found.extend(item.unwrap());
                        break;
                    }
                    std::task::Poll::Pending => tokio::time::sleep(Duration::from_millis(3)).await,
                }
            }
            drop(poll);
        }
        while let Some(item) = in_time(queue.poll()).await.unwrap() {
            found.push(item);
        }
        found.sort_unstable();
        assert_eq!(found.concat(), b"01234");
    }

    async fn tasks_of_a_client_share_the_items(env) {
        let queue = SimpleDistributedQueue::new(env.client().await, env.path("queue")).unwrap();
        let takers: Vec<_> = (0..10).map(|_| { let queue = queue.clone(); tokio::spawn(async move { queue.take().await }) }).collect();
        for text in texts(0..10) {
            in_time(queue.offer(text)).await.unwrap();
        }
        let mut found = Vec::new();
        for taker in takers {
            found.push(String::from_utf8(in_time(taker).await.unwrap().unwrap()).unwrap());
        }
        found.sort_unstable();
        assert_eq!(found, texts(0..10));
    }

    async fn foreign_names_are_skipped(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        client.create().creating_parents_if_needed().for_path(&format!("{path}/queue-0000000000")).await.unwrap();
        let queue = SimpleDistributedQueue::new(client.clone(), &*path).unwrap();
        assert_eq!(in_time(queue.poll()).await.unwrap(), None);
        in_time(queue.offer("")).await.unwrap();
        assert_eq!(in_time(queue.take()).await.unwrap(), b"", "no data is an item");
        eventually("the foreign node stays", async || curator_integration::env::children(&client, &path).await.len() == 1).await;
    }

    async fn without_a_connection_is_an_error(env) {
        let proxy = env.proxy();
        let client = connected(builder(proxy.address()).retry_policy(curator_framework::RetryNTimes::new(0, Duration::ZERO))).await;
        let queue = SimpleDistributedQueue::new(client.clone(), env.path("queue")).unwrap();
        in_time(queue.offer("item")).await.unwrap();
        proxy.partition();
        eventually("the connection is lost", async || !client.is_connected()).await;
        let polled = in_time(queue.poll_timeout(Duration::from_millis(200))).await;
        assert!(matches!(polled, Err(QueueError::Framework(_))), "{polled:?}");
    }

    async fn item_that_cannot_be_decompressed_stays(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        in_time(SimpleDistributedQueue::new(client.clone(), &*path).unwrap().offer("plain")).await.unwrap();
        let queue = SimpleDistributedQueue::new(connected(builder(env.address()).enable_compression()).await, &*path).unwrap();
        assert!(in_time(queue.poll()).await.is_err());
        assert_eq!(curator_integration::env::children(&client, &path).await.len(), 1);
    }

    async fn item_that_is_given_back_wakes_another_call_if_the_first_one_is_dropped(env) {
        let (path, proxy) = (env.path("queue"), env.proxy());
        let client = connected(through(&proxy, Duration::from_secs(30))).await;
        let queue = SimpleDistributedQueue::new(client.clone(), &*path).unwrap();
        in_time(queue.offer("item")).await.unwrap();
        let mut takes: Vec<_> = (0..3).map(|_| Box::pin(queue.take())).collect();
        eventually("the first call has the item", async || {
            assert!(poll!(&mut takes[0]).is_pending());
            in_time(queue.peek()).await.unwrap().is_none()
        })
        .await;
        for take in &mut takes[1..] {
            let before = watchers(std::slice::from_ref(&client));
            eventually("the call waits", async || {
                assert!(poll!(&mut *take).is_pending());
                watchers(std::slice::from_ref(&client)) > before
            })
            .await;
            // The reply to its listing precedes this one.
            assert!(in_time(queue.peek()).await.unwrap().is_none());
            assert!(poll!(&mut *take).is_pending());
        }
        proxy.refuse();
        proxy.reset();
        eventually("the connection is lost", async || !client.is_connected()).await;
        let mut waiting = takes.split_off(1);
        drop(takes);
        assert!(poll!(&mut waiting[0]).is_pending(), "it is woken, and not connected");
        drop(waiting.remove(0));
        proxy.accept();
        assert_eq!(in_time(waiting.remove(0)).await.unwrap(), b"item");
    }
}

//! Lost messages and ended sessions: an item is put once, and delivered once.

use std::time::Duration;

use curator_framework::{Acl, AclProvider, Permission, RetryNTimes};
use curator_integration::clients::is_zookeeper_async;
use curator_integration::env::{builder, children, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{QueueError, SimpleDistributedQueue};
use curator_test::wire::OpCode;
use futures_util::poll;

use crate::stage::{LONG, completed, drained, error, nothing, plain, take, texts, through};

/// Lets no client read the nodes that its client creates.
#[derive(Debug)]
struct Unreadable;

impl AclProvider for Unreadable {
    fn default_acl(&self) -> Vec<Acl> {
        vec![Acl::new(Permission::WRITE, "world", "anyone")]
    }
}

on_every_server! {
    // Defect 1: Java loses the item.
    async fn lost_reply_to_a_delete_does_not_lose_the_item(env) {
        let (direct, path) = (env.client().await, env.path("queue"));
        let producer = plain(&direct, &path);
        for text in texts(0..6) {
            in_time(producer.put(&text)).await.unwrap();
        }
        let proxy = env.proxy();
        let client = connected(through(&proxy, LONG)).await;
        let mut consumer = plain(&client, &path).consumer();
        for (number, text) in texts(0..6).into_iter().enumerate() {
            match number % 3 {
                0 => proxy.drop_reply(take(), 1),
                1 => proxy.drop_request(take(), 1),
                _ if is_zookeeper_async() => proxy.drop_reply(OpCode::GetData, 1),
                _ => proxy.drop_reply(OpCode::MultiRead, 1),
            }
            assert_eq!(completed(&mut consumer).await, [text]);
        }
        assert!(proxy.faults_done() >= 4, "{}", proxy.faults_done());
        assert!(in_time(producer.is_empty()).await.unwrap());
        nothing(&mut consumer).await;
    }

    async fn peek_reads_again_after_a_lost_connection(env) {
        let (direct, path, proxy) = (env.client().await, env.path("queue"), env.proxy());
        let producer = plain(&direct, &path);
        for text in texts(0..3) {
            in_time(producer.put(&text)).await.unwrap();
        }
        let client = connected(through(&proxy, LONG)).await;
        proxy.drop_reply(if is_zookeeper_async() { OpCode::GetData } else { OpCode::MultiRead }, 1);
        let seen = in_time(plain(&client, &path).peek(9)).await.unwrap();
        assert_eq!(seen.into_iter().flat_map(|item| item.items.unwrap()).collect::<Vec<_>>(), texts(0..3));
        assert_eq!(proxy.faults_done(), 1);
    }

    async fn item_that_another_consumer_takes_behind_a_lost_request_is_delivered_once(env) {
        if is_zookeeper_async() {
            // It has no transactions, and the page says so.
            return;
        }
        let (direct, path, proxy) = (env.client().await, env.path("queue"), env.proxy());
        let producer = plain(&direct, &path);
        for text in texts(0..2) {
            in_time(producer.put(&text)).await.unwrap();
        }
        let client = connected(through(&proxy, LONG)).await;
        let mut consumer = plain(&client, &path).consumer();
        proxy.refuse();
        proxy.drop_request(take(), 1);
        let other = async {
            proxy.wait_for_faults(1).await;
            let taken = completed(&mut producer.consumer()).await;
            proxy.accept();
            taken
        };
        let (ours, others) = tokio::join!(completed(&mut consumer), other);
        assert_eq!((ours, others), (vec!["1".to_owned()], vec!["0".to_owned()]));
        nothing(&mut consumer).await;
    }

    // Defect 2: Java puts the item twice.
    async fn lost_reply_to_a_put_does_not_put_twice(env) {
        if is_zookeeper_async() {
            // It has no transactions, and the page says so.
            return;
        }
        let (direct, path) = (env.client().await, env.path("queue"));
        let proxy = env.proxy();
        let queue = plain(&connected(through(&proxy, LONG)).await, &path);
        let texts = texts(0..8);
        for (number, text) in texts.iter().enumerate() {
            match number % 4 {
                0 => proxy.drop_reply(OpCode::Multi, 1),
                1 => proxy.drop_request(OpCode::Multi, 1),
                2 => proxy.cut_frame(OpCode::Multi, 1),
                _ => {
                    proxy.drop_reply(OpCode::Multi, 1);
                    proxy.drop_request(OpCode::Multi, 2);
                }
            }
            in_time(queue.put(text)).await.unwrap();
        }
        let mut consumer = plain(&direct, &path).consumer();
        assert_eq!(drained(&mut consumer, 8).await, texts);
        nothing(&mut consumer).await;
    }

    async fn budget_of_a_put_covers_its_request(env) {
        let (direct, path, proxy) = (env.client().await, env.path("queue"), env.proxy());
        let client = connected(through(&proxy, LONG)).await;
        let (queue, budget) = (plain(&client, &path), Duration::from_millis(300));
        in_time(queue.put(&"first".to_owned())).await.unwrap();
        proxy.partition();
        let sent = in_time(queue.put_timeout(&"sent".to_owned(), budget)).await.unwrap_err();
        assert!(sent.outcome_unknown(), "{sent:?}");
        proxy.repair();
        eventually("the put is made", async || children(&direct, &path).await.len() == 2).await;
        proxy.refuse();
        proxy.reset();
        eventually("the connection is lost", async || !client.is_connected()).await;
        let unsent = in_time(queue.put_timeout(&"unsent".to_owned(), budget)).await.unwrap_err();
        assert!(!unsent.outcome_unknown() && unsent.is_retryable(), "{unsent:?}");
        proxy.accept();
        assert_eq!(in_time(queue.put_timeout(&"last".to_owned(), LONG)).await.unwrap(), Some(()));
        assert_eq!(drained(&mut plain(&direct, &path).consumer(), 3).await, ["first", "sent", "last"]);
    }

    async fn budget_of_a_poll_that_ends_after_its_delete_is_an_unknown_outcome(env) {
        let (direct, path, proxy) = (env.client().await, env.path("queue"), env.proxy());
        in_time(SimpleDistributedQueue::new(direct, &*path).unwrap().offer("item")).await.unwrap();
        let queue = SimpleDistributedQueue::new(connected(through(&proxy, LONG)).await, &*path).unwrap();
        proxy.refuse();
        proxy.drop_reply(take(), 1);
        let unknown = in_time(queue.poll_timeout(Duration::from_millis(500))).await.unwrap_err();
        assert!(unknown.outcome_unknown(), "{unknown:?}");
        proxy.accept();
        assert_eq!(in_time(queue.poll_timeout(LONG)).await.unwrap().unwrap(), b"item");
    }

    async fn put_at_a_marker_that_was_deleted_by_hand_is_made(env) {
        let (direct, path) = (env.client().await, env.path("below/queue"));
        let queue = plain(&env.client().await, &path);
        in_time(queue.put(&"first".to_owned())).await.unwrap();
        let parent = env.path("below");
        for name in children(&direct, &parent).await {
            if name.starts_with("_c_") {
                in_time(direct.delete().for_path(&format!("{parent}/{name}"))).await.unwrap();
            }
        }
        in_time(queue.put(&"second".to_owned())).await.unwrap();
        assert_eq!(drained(&mut queue.consumer(), 2).await, ["first", "second"]);
    }

    // TestLongNetworkPartition (CURATOR-623, defect 7).
    async fn consumer_works_again_after_a_long_partition(env) {
        let (direct, path) = (env.client().await, env.path("queue"));
        let proxy = env.proxy();
        let options = builder(proxy.address()).session_timeout(Duration::from_secs(2));
        let options = options.connection_timeout(Duration::from_millis(500));
        let client = connected(options.retry_policy(RetryNTimes::new(1, Duration::from_millis(50)))).await;
        let mut consumer = plain(&client, &path).consumer();
        nothing(&mut consumer).await;
        proxy.partition();
        let outage = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            proxy.repair();
            in_time(plain(&direct, &path).put(&"item".to_owned())).await.unwrap();
        };
        let taking = async {
            loop {
                match in_time(consumer.next()).await.unwrap() {
                    Ok(mut delivery) => return delivery.take_items(),
                    Err(error) => assert!(error.is_retryable(), "{error}"),
                }
            }
        };
        let ((), items) = tokio::join!(outage, taking);
        assert_eq!(items, ["item"]);
    }

    async fn consumer_continues_after_each_lost_connection_and_session(env) {
        let (direct, path) = (env.client().await, env.path("queue"));
        let producer = plain(&direct, &path);
        let proxy = env.proxy();
        let client = connected(through(&proxy, LONG)).await;
        let mut consumer = plain(&client, &path).consumer();
        nothing(&mut consumer).await;
        for (number, text) in texts(0..4).into_iter().enumerate() {
            let session = in_time(client.session()).await.unwrap();
            let epoch = session.epoch();
            if number % 2 == 0 {
                proxy.reset();
                eventually("the next connection", async || session.epoch() != epoch).await;
            } else if !is_zookeeper_async() {
                in_time(env.kill_session(&session)).await;
                in_time(session.ended()).await;
            }
            in_time(producer.put(&text)).await.unwrap();
            assert_eq!(completed(&mut consumer).await, [text]);
        }
    }

    async fn item_that_another_consumer_takes_after_an_unknown_outcome_is_no_error(env) {
        if is_zookeeper_async() {
            return;
        }
        let (direct, path, proxy) = (env.client().await, env.path("queue"), env.proxy());
        let producer = plain(&direct, &path);
        for text in texts(0..4) {
            in_time(producer.put(&text)).await.unwrap();
        }
        let client = connected(through(&proxy, LONG)).await;
        let session = in_time(client.session()).await.unwrap();
        let mut consumer = plain(&client, &path).consumer();
        proxy.refuse();
        proxy.drop_reply(take(), 1);
        let ends = async {
            proxy.wait_for_faults(1).await;
            in_time(env.kill_session(&session)).await;
            proxy.accept();
        };
        let (unknown, ()) = in_time(async { tokio::join!(error(&mut consumer), ends) }).await;
        assert!(matches!(unknown, QueueError::Unknown { .. }), "{unknown:?}");
        assert_eq!(completed(&mut consumer).await, ["1"]);
        proxy.partition();
        let mut ours = Box::pin(completed(&mut consumer));
        // The next item was read with the one before it. The request to take it is sent, and held.
        assert!(poll!(&mut ours).is_pending());
        assert_eq!(completed(&mut producer.consumer()).await, ["2"]);
        proxy.repair();
        assert_eq!(in_time(ours).await, ["3"]);
    }

    async fn marker_that_cannot_be_read_proves_nothing(env) {
        if is_zookeeper_async() {
            return;
        }
        let (direct, path, proxy) = (env.client().await, env.path("queue"), env.proxy());
        let producer = plain(&direct, &path);
        for text in texts(0..2) {
            in_time(producer.put(&text)).await.unwrap();
        }
        let client = connected(through(&proxy, LONG).acl_provider(Unreadable)).await;
        let mut consumer = plain(&client, &path).consumer();
        proxy.drop_reply(take(), 1);
        let unknown = error(&mut consumer).await;
        assert!(matches!(unknown, QueueError::Unknown { .. }), "{unknown:?}");
        assert_eq!(completed(&mut consumer).await, ["1"]);
    }
}

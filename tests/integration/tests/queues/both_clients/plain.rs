//! Curator's tests of `DistributedQueue` without a lock path, and the defects that they do not show.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use curator_framework::{Acl, CreateMode, Error};
use curator_integration::clients::is_zookeeper_async;
use curator_integration::env::{builder, children, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{CodecError, DistributedQueue, JsonCodec, QueueError, QueueOptions, RawCodec};
use futures_util::future::join_all;
use parking_lot::Mutex;

use crate::stage::{completed, drained, error, next, nothing, plain, texts, with};

on_every_server! {
    // TestDistributedQueue.testSimple; testPutListener and testFlush: a put returns when the server has the item.
    async fn items_arrive_in_the_order_of_their_puts(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = plain(&client, &path);
        let mut consumer = plain(&env.client().await, &path).consumer();
        let taken = tokio::spawn(async move { drained(&mut consumer, 10).await });
        for text in texts(0..10) {
            in_time(queue.put(&text)).await.unwrap();
        }
        assert_eq!(in_time(taken).await.unwrap(), texts(0..10));
        assert!(in_time(queue.is_empty()).await.unwrap());
    }

    // testMultiPutterSingleGetter.
    async fn items_of_two_producers_arrive_once_each(env) {
        let path = env.path("queue");
        let (one, other) = (plain(&env.client().await, &path), plain(&env.client().await, &path));
        let mut consumer = plain(&env.client().await, &path).consumer();
        let (of_one, of_other) = (texts(0..100), texts(100..200));
        let puts = async {
            let put = async |queue: &DistributedQueue<String>, texts: &[String]| {
                for text in texts {
                    in_time(queue.put(text)).await.unwrap();
                }
            };
            tokio::join!(put(&one, &of_one), put(&other, &of_other));
        };
        let ((), mut taken) = tokio::join!(puts, drained(&mut consumer, 200));
        taken.sort_unstable_by_key(|text| text.parse::<usize>().unwrap());
        assert_eq!(taken, texts(0..200));
    }

    // testPutMulti.
    async fn batch_is_one_node_and_one_delivery(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = plain(&client, &path);
        in_time(queue.put_batch(&texts(0..100))).await.unwrap();
        in_time(queue.put_batch(&[])).await.unwrap();
        assert_eq!(in_time(queue.len()).await.unwrap(), 1);
        assert_eq!(completed(&mut queue.consumer()).await, texts(0..100));
    }

    async fn several_items_are_put_all_or_none(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = plain(&client, &path);
        let put = in_time(queue.put_all(&texts(0..20))).await;
        if is_zookeeper_async() {
            assert!(matches!(put, Err(QueueError::Framework(Error::Unsupported { .. }))), "{put:?}");
        } else {
            put.unwrap();
            assert_eq!(drained(&mut queue.consumer(), 20).await, texts(0..20));
        }
    }

    // testNoDuplicateProcessing, testCustomExecutor.
    async fn four_consumers_with_several_tasks_get_each_item_once(env) {
        let path = env.path("queue");
        let queue = plain(&env.client().await, &path);
        in_time(join_all(texts(0..200).iter().map(|text| queue.put(text)))).await.into_iter().for_each(Result::unwrap);
        let (taken, clients) = (Mutex::new(Vec::new()), join_all((0..4).map(|_| env.client())).await);
        let runs = clients.iter().map(|client| {
            let (mut consumer, taken) = (plain(client, &path).consumer(), &taken);
            async move {
                let work = |mut delivery: curator_recipes::Delivery<String>| async move {
                    tokio::task::yield_now().await;
                    taken.lock().extend(delivery.take_items());
                };
                let all = async { eventually("all are taken", async || taken.lock().len() >= 200).await };
                in_time(consumer.run_until(all, 5, work)).await.unwrap();
            }
        });
        join_all(runs).await;
        let mut taken = taken.into_inner();
        taken.sort_unstable_by_key(|text| text.parse::<usize>().unwrap());
        assert_eq!(taken, texts(0..200));
    }

    // Defects 22 and 23: a close finishes the work that was started, and one slow item delays no other.
    async fn run_ends_after_the_work_that_was_started(env) {
        let queue = plain(&env.client().await, &env.path("queue"));
        for text in texts(0..5) {
            in_time(queue.put(&text)).await.unwrap();
        }
        let (started, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let work = |delivery: curator_recipes::Delivery<String>| {
            let (started, ended) = (&started, &ended);
            async move {
                started.fetch_add(1, Ordering::SeqCst);
                let is_slow = delivery.items() == ["0"];
                tokio::time::sleep(Duration::from_millis(if is_slow { 400 } else { 1 })).await;
                ended.fetch_add(1, Ordering::SeqCst);
            }
        };
        let shutdown = eventually("the others are done", async || ended.load(Ordering::SeqCst) == 4);
        in_time(queue.consumer().run_until(shutdown, 2, work)).await.unwrap();
        assert_eq!((started.into_inner(), ended.into_inner()), (5, 5));
    }

    // Defect 6: Java's consumer is dead from here on.
    async fn consumer_continues_after_its_path_was_deleted(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = plain(&client, &path);
        let mut consumer = queue.consumer();
        nothing(&mut consumer).await;
        for text in texts(0..3) {
            in_time(queue.put(&text)).await.unwrap();
            assert_eq!(completed(&mut consumer).await, [text]);
            in_time(client.delete().for_path(&path)).await.unwrap();
            nothing(&mut consumer).await;
        }
    }

    async fn idle_consumer_continues_after_its_path_was_deleted(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = plain(&client, &path);
        let mut consumer = queue.consumer();
        for text in texts(0..3) {
            in_time(queue.put(&text)).await.unwrap();
            assert_eq!(completed(&mut consumer).await, [text]);
            // It lists the empty path, and is idle.
            nothing(&mut consumer).await;
            in_time(client.delete().for_path(&path)).await.unwrap();
            nothing(&mut consumer).await;
        }
    }

    async fn item_that_cannot_be_read_is_skipped(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let owner = connected(builder(env.address()).authorization("digest", "owner:secret")).await;
        let queue = plain(&client, &path);
        in_time(queue.put(&"first".to_owned())).await.unwrap();
        let create = owner.create().with_mode(CreateMode::PersistentSequential).with_acl(Acl::creator_all());
        let hidden = create.for_path(&format!("{path}/queue-")).await.unwrap();
        in_time(queue.put(&"last".to_owned())).await.unwrap();
        let (mut consumer, taken) = (queue.consumer(), AtomicUsize::new(0));
        let refused = error(&mut consumer).await;
        assert!(matches!(&refused, QueueError::Refused { path, .. } if **path == *hidden), "{refused:?}");
        let both = eventually("both are taken", async || taken.load(Ordering::Relaxed) == 2);
        let work = async |_delivery| {
            taken.fetch_add(1, Ordering::Relaxed);
        };
        // Another consumer meets the item during its run.
        in_time(queue.consumer().run_until(both, 1, work)).await.unwrap();
        nothing(&mut consumer).await;
        assert_eq!(children(&client, &path).await.len(), 1);
    }

    async fn client_without_the_right_to_a_marker_puts_and_takes(env) {
        let folder = env.path("folder");
        let owner = connected(builder(env.address()).authorization("digest", "owner:secret")).await;
        let acl = [Acl::creator_all(), Acl::read_unsafe()].concat();
        in_time(owner.create().creating_parents_if_needed().with_acl(acl).for_path(&folder)).await.unwrap();
        let path = format!("{folder}/queue");
        in_time(owner.create().with_acl(Acl::open_unsafe()).for_path(&path)).await.unwrap();
        let client = env.client().await;
        for options in [QueueOptions::new().at_most_once(), QueueOptions::new().at_most_once().batch(3)] {
            let queue = with(&client, &path, options);
            for text in texts(0..4) {
                in_time(queue.put(&text)).await.unwrap();
            }
            assert_eq!(drained(&mut queue.consumer(), 4).await, texts(0..4));
        }
        assert_eq!(children(&client, &folder).await, ["queue"]);
    }

    async fn burst_of_puts_leaves_few_markers(env) {
        let (client, path) = (env.client().await, env.path("folder/queue"));
        let queue = plain(&client, &path);
        let items = texts(0..60);
        for put in in_time(join_all(items.iter().map(|text| queue.put(text)))).await {
            put.unwrap();
        }
        let folder = env.path("folder");
        let markers = async || children(&client, &folder).await.iter().filter(|name| name.starts_with("_c_")).count();
        eventually("few markers are left", async || markers().await <= 16).await;
        assert_eq!(in_time(queue.len()).await.unwrap(), 60);
    }

    // Defect 15: Java deletes such an item. A foreign name is skipped by both.
    async fn corrupt_and_foreign_nodes_are_reported_once_and_stay(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = plain(&client, &path);
        in_time(queue.put(&"first".to_owned())).await.unwrap();
        let create = |name: &str, data: &[u8]| {
            let (node, data) = (format!("{path}/{name}"), data.to_vec());
            let client = client.clone();
            async move {
                client.create().with_mode(CreateMode::PersistentSequential).with_data(data).for_path(&node).await.unwrap()
            }
        };
        let corrupt = create("queue-", b"no item").await;
        // Not UTF-8.
        let refused = create("queue-", &[0, 1, 0, 1, 1, 0, 0, 0, 1, 0xff, 2]).await;
        let foreign = create("qn-", b"").await;
        // An item of nothing, as Java's putMulti leaves it.
        create("queue-", &[0, 1, 0, 1, 2]).await;
        in_time(queue.put(&"last".to_owned())).await.unwrap();
        let (mut consumer, mut items, mut errors) = (queue.consumer(), Vec::new(), Vec::new());
        while items.len() < 2 || errors.len() < 3 {
            match in_time(consumer.next()).await.unwrap() {
                Ok(mut delivery) => items.extend(delivery.take_items()),
                Err(QueueError::Corrupt { path, .. } | QueueError::Foreign { path }) => {
                    errors.push(path.as_str().to_owned());
                }
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!(items, ["first", "last"]);
        errors.sort_unstable();
        let mut bad = [corrupt, refused, foreign];
        bad.sort_unstable();
        assert_eq!(errors, bad);
        nothing(&mut consumer).await;
        assert_eq!(children(&client, &path).await.len(), 3);
        in_time(queue.put(&"later".to_owned())).await.unwrap();
        assert_eq!(completed(&mut consumer).await, ["later"]);
    }

    // TestBoundedDistributedQueue.testSimple; defect 19: one object never exceeds its limit.
    async fn put_waits_for_room(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = with(&client, &path, QueueOptions::new().at_most_once().max_items(2));
        let puts = texts(0..3);
        let puts = join_all(puts.iter().map(|text| queue.put_timeout(text, Duration::from_millis(300))));
        let put = in_time(puts).await;
        assert_eq!(put.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [Some(()), Some(()), None]);
        assert_eq!(in_time(queue.len()).await.unwrap(), 2);
        let waiting = tokio::spawn({ let queue = queue.clone(); async move { queue.put(&"last".to_owned()).await } });
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!waiting.is_finished());
        let mut consumer = queue.consumer();
        assert_eq!(completed(&mut consumer).await, ["0"]);
        in_time(waiting).await.unwrap().unwrap();
        assert_eq!(drained(&mut consumer, 2).await, ["1", "last"]);
        let refused = in_time(queue.put_all(&texts(0..3))).await;
        assert!(matches!(refused, Err(QueueError::InvalidArgument { argument: "items", .. })), "{refused:?}");
    }

    // Defect 25: a put that waits for room ends with its client.
    async fn put_that_waits_for_room_ends_with_the_client(env) {
        let client = env.client().await;
        let queue = with(&client, &env.path("queue"), QueueOptions::new().at_most_once().max_items(1));
        in_time(queue.put(&"first".to_owned())).await.unwrap();
        let waiting = tokio::spawn(async move { queue.put(&"second".to_owned()).await });
        tokio::time::sleep(Duration::from_millis(100)).await;
        in_time(client.close()).await;
        assert!(in_time(waiting).await.unwrap().is_err());
    }

    async fn stream_ends_with_the_client(env) {
        let client = env.client().await;
        let mut consumer = plain(&client, &env.path("queue")).consumer();
        nothing(&mut consumer).await;
        in_time(client.close()).await;
        assert!(in_time(consumer.next()).await.is_none());
        assert!(in_time(consumer.next()).await.is_none());
    }

    async fn items_are_seen_without_a_take_and_purged(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = plain(&client, &path);
        assert!(in_time(queue.peek(5)).await.unwrap().is_empty());
        assert_eq!(in_time(queue.purge()).await.unwrap(), 0);
        for text in texts(0..70) {
            in_time(queue.put(&text)).await.unwrap();
        }
        let create = client.create().with_mode(CreateMode::PersistentSequential).with_data("no item");
        let corrupt = create.for_path(&format!("{path}/queue-")).await.unwrap();
        client.create().for_path(&format!("{path}/foreign")).await.unwrap();
        let seen = in_time(queue.peek(20)).await.unwrap();
        let items: Vec<_> = seen.iter().flat_map(|item| item.items.clone().unwrap()).collect();
        assert_eq!(items, texts(0..20));
        assert_eq!((&*seen[0].name, seen[0].attempts), ("queue-0000000000", 0));
        let all = in_time(queue.peek(usize::MAX)).await.unwrap();
        assert_eq!(all.len(), 71);
        assert!(matches!(&all[70].items, Err(QueueError::Corrupt { path, .. }) if **path == *corrupt), "{:?}", all[70]);
        assert_eq!(in_time(queue.purge()).await.unwrap(), 71);
        assert_eq!(children(&client, &path).await, ["foreign"]);
    }

    // Rule 2 of mixed fleets.
    async fn item_that_was_claimed_with_a_lock_path_is_not_taken_at_most_once(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = plain(&client, &path);
        in_time(queue.put(&"claimed".to_owned())).await.unwrap();
        in_time(queue.put(&"free".to_owned())).await.unwrap();
        // As a claim does.
        let node = format!("{path}/queue-0000000000");
        let (data, _) = client.get_data().for_path(&node).await.unwrap();
        client.set_data().for_path(&node, data).await.unwrap();
        let mut consumer = queue.consumer();
        let refused = error(&mut consumer).await;
        assert!(matches!(&refused, QueueError::MixedModes { path } if **path == *node), "{refused:?}");
        assert_eq!(completed(&mut consumer).await, ["free"]);
        nothing(&mut consumer).await;
        assert_eq!(in_time(queue.len()).await.unwrap(), 1);
    }

    // Defects 10 and 11: the caller learns that an item was not put.
    async fn refused_item_is_an_error_of_its_put(env) {
        struct Refusing;
        impl curator_recipes::Codec<String> for Refusing {
            fn encode(&self, _: &String) -> Result<Vec<u8>, CodecError> {
                Err("on purpose".into())
            }
            fn decode(&self, _: &[u8]) -> Result<String, CodecError> {
                Err("on purpose".into())
            }
        }
        let (client, path) = (env.client().await, env.path("queue"));
        let options = QueueOptions::new().at_most_once();
        let queue = DistributedQueue::with_options(client.clone(), &*path, Refusing, options).unwrap();
        let put = in_time(queue.put(&String::new())).await;
        assert!(matches!(put, Err(QueueError::Encode { .. })), "{put:?}");
        in_time(plain(&client, &path).put(&"item".to_owned())).await.unwrap();
        let refused = error(&mut queue.consumer()).await;
        assert!(matches!(refused, QueueError::Corrupt { .. }), "{refused:?}");
        let large = in_time(plain(&client, &path).put(&"x".repeat(2 << 20))).await;
        assert!(large.is_err());
    }

    // Defect 24: a consumer knows more of an item than its bytes.
    async fn delivery_knows_its_item(env) {
        let queue = plain(&env.client().await, &env.path("queue"));
        in_time(queue.put(&"item".to_owned())).await.unwrap();
        let delivery = next(&mut queue.consumer()).await;
        assert_eq!((delivery.name(), delivery.sequence(), delivery.attempt()), ("queue-0000000000", Some(0), 1));
        assert_eq!((delivery.id(), delivery.priority(), delivery.due()), (None, None, None));
        assert!(delivery.is_held() && delivery.created().elapsed().is_ok_and(|age| age < Duration::from_secs(3600)));
        in_time(delivery.complete()).await.unwrap();
        in_time(delivery.verify()).await.unwrap();
        assert!(matches!(in_time(delivery.retry()).await, Err(QueueError::AtMostOnce { .. })));
    }

    async fn mode_has_to_be_chosen(env) {
        let client = env.client().await;
        let path = env.path("queue");
        let new = |options| DistributedQueue::<String>::with_options(client.clone(), &*path, RawCodec, options);
        let text = new(QueueOptions::new()).unwrap_err().to_string();
        assert!(text.contains("lock_path") && text.contains("at_most_once"), "{text}");
        for options in [
            QueueOptions::new().lock_path("/locks").at_most_once(),
            QueueOptions::new().lock_path(&*path),
            QueueOptions::new().lock_path(format!("{path}/locks")),
            QueueOptions::new().at_most_once().max_items(0),
            QueueOptions::new().at_most_once().max_attempts(3),
        ] {
            assert!(matches!(new(options), Err(QueueError::InvalidArgument { .. })));
        }
        let locked = new(QueueOptions::new().lock_path("/locks"));
        if is_zookeeper_async() {
            assert!(matches!(locked, Err(QueueError::Framework(Error::Unsupported { .. }))), "{locked:?}");
        } else {
            locked.unwrap();
        }
    }

    async fn items_of_json_are_delivered_and_others_reported(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let options = QueueOptions::new().at_most_once();
        let queue = DistributedQueue::<(String, u32)>::with_options(client.clone(), &*path, JsonCodec, options).unwrap();
        let job = ("ü".to_owned(), 3);
        in_time(plain(&client, &path).put(&"no JSON".to_owned())).await.unwrap();
        in_time(queue.put(&job)).await.unwrap();
        in_time(plain(&client, &path).put(&r#"["a", 4]"#.to_owned())).await.unwrap();
        let mut consumer = queue.consumer();
        let corrupt = in_time(consumer.next()).await.unwrap().unwrap_err();
        assert!(matches!(corrupt, QueueError::Corrupt { .. }), "{corrupt:?}");
        for expected in [job, ("a".to_owned(), 4)] {
            assert_eq!(in_time(consumer.next()).await.unwrap().unwrap().items(), [expected]);
        }
    }

    async fn item_with_a_child_does_not_block_the_others(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = plain(&client, &path);
        for text in texts(0..2) {
            in_time(queue.put(&text)).await.unwrap();
        }
        let item = format!("{path}/queue-0000000000");
        in_time(client.create().for_path(&format!("{item}/child"))).await.unwrap();
        let mut consumer = queue.consumer();
        let refused = error(&mut consumer).await;
        assert!(matches!(&refused, QueueError::Refused { path, .. } if **path == item), "{refused:?}");
        assert_eq!(completed(&mut consumer).await, ["1"]);
        nothing(&mut consumer).await;
    }

    async fn client_without_room_for_a_marker_puts_and_takes(env) {
        let path = env.path("queue");
        let client = connected(builder(env.address()).max_ephemeral_bytes(path.len() + 4)).await;
        let create = client.create().creating_parents_if_needed().with_mode(CreateMode::Ephemeral);
        in_time(create.for_path(&path)).await.unwrap();
        let queue = plain(&client, &env.path("items"));
        in_time(queue.put(&"item".to_owned())).await.unwrap();
        assert_eq!(completed(&mut queue.consumer()).await, ["item"]);
    }
}

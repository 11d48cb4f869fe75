//! Curator's tests of `DistributedQueue` with a lock path, and the ends of deliveries.

use std::time::Duration;

use curator_framework::{CreateMode, CuratorOp, LossReason};
use curator_integration::env::{children, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{
    DistributedDelayQueue, DistributedIdQueue, DistributedPriorityQueue, QueueError, RawCodec, Release,
};
use futures_util::future::join_all;
use parking_lot::Mutex;

use crate::stage::{completed, drained, error, locked, locks, next, nothing, texts, with};

on_every_server! {
    // testSafetyBasic.
    async fn items_arrive_in_the_order_of_their_puts(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = locked(&client, &path);
        for text in texts(0..10) {
            in_time(queue.put(&text)).await.unwrap();
        }
        assert_eq!(drained(&mut queue.consumer(), 10).await, texts(0..10));
        assert!(in_time(queue.is_empty()).await.unwrap());
        assert!(children(&client, &format!("{path}-locks")).await.is_empty());
    }

    // testSafetyWithCrash, testNoDuplicateProcessing.
    async fn several_consumers_complete_each_item_once(env) {
        let path = env.path("queue");
        let queue = locked(&env.client().await, &path);
        in_time(join_all(texts(0..100).iter().map(|text| queue.put(text)))).await.into_iter().for_each(Result::unwrap);
        let (taken, clients) = (Mutex::new(Vec::new()), join_all((0..3).map(|_| env.client())).await);
        let runs = clients.iter().enumerate().map(|(index, client)| {
            let (mut consumer, taken) = (locked(client, &path).consumer(), &taken);
            let crashes = std::sync::atomic::AtomicBool::new(index == 0);
            async move {
                let crashes = &crashes;
                let work = |mut delivery: curator_recipes::Delivery<String>| async move {
                    if crashes.swap(false, std::sync::atomic::Ordering::SeqCst) {
                        // The drop gives the item back.
                        return;
                    }
                    let items = delivery.take_items();
                    in_time(delivery.complete()).await.unwrap();
                    taken.lock().extend(items);
                };
                let all = async { eventually("all are taken", async || taken.lock().len() >= 100).await };
                in_time(consumer.run_until(all, 4, work)).await.unwrap();
            }
        });
        join_all(runs).await;
        let mut taken = taken.into_inner();
        taken.sort_unstable_by_key(|text| text.parse::<usize>().unwrap());
        assert_eq!(taken, texts(0..100));
    }

    // testErrorMode: an item that is given back comes again, until it was delivered too often (defect 13).
    async fn poison_item_stops_at_its_last_attempt(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = with(&client, &path, locks(&path).max_attempts(3));
        in_time(queue.put(&"poison".to_owned())).await.unwrap();
        let mut consumer = queue.consumer();
        for attempt in 1..=3 {
            let delivery = next(&mut consumer).await;
            assert_eq!((delivery.attempt(), delivery.items()), (attempt, &["poison".to_owned()][..]));
            in_time(delivery.retry()).await.unwrap();
            in_time(delivery.retry()).await.unwrap();
            assert!(matches!(in_time(delivery.complete()).await, Err(QueueError::Ended { .. })));
        }
        in_time(queue.put(&"next".to_owned())).await.unwrap();
        assert_eq!(completed(&mut consumer).await, ["next"]);
        let dead = children(&client, &format!("{path}-dead")).await;
        assert_eq!(dead, ["queue-0000000000"]);
        let (data, _) = client.get_data().for_path(&format!("{path}-dead/{}", dead[0])).await.unwrap();
        assert!(data.starts_with(&[0, 1, 0, 1, 1, 0, 0, 0, 6]) && data.ends_with(b"not completed in 3 deliveries"));
    }

    // testRetryAfterFailure_Curator56, and requeues with ids, priorities and times (defect 12).
    async fn requeued_item_keeps_its_prefix_and_its_attempts(env) {
        let client = env.client().await;
        let path = env.path("queue");
        let queue = locked(&client, &path);
        for text in texts(0..2) {
            in_time(queue.put(&text)).await.unwrap();
        }
        let mut consumer = queue.consumer();
        let first = next(&mut consumer).await;
        in_time(first.requeue()).await.unwrap();
        assert_eq!(completed(&mut consumer).await, ["1"]);
        let again = next(&mut consumer).await;
        assert_eq!((again.items(), again.attempt(), again.key()), (first.items(), 2, first.key()));
        assert_eq!(again.name().len(), first.name().len());
        assert!(again.sequence() > first.sequence());
        in_time(again.complete()).await.unwrap();

        let (a, b, c) = (env.path("ids"), env.path("priorities"), env.path("delays"));
        let ids = DistributedIdQueue::<String>::with_options(client.clone(), &*a, RawCodec, locks(&a)).unwrap();
        in_time(ids.put(&"item".to_owned(), "job")).await.unwrap();
        let priorities = DistributedPriorityQueue::<String>::with_options(client.clone(), &*b, RawCodec, locks(&b)).unwrap();
        in_time(priorities.put(&"item".to_owned(), -7)).await.unwrap();
        let delays = DistributedDelayQueue::<String>::with_options(client.clone(), &*c, RawCodec, locks(&c)).unwrap();
        let due = std::time::UNIX_EPOCH + Duration::from_millis(5000);
        in_time(delays.put(&"item".to_owned(), due)).await.unwrap();
        for mut consumer in [ids.consumer(), priorities.consumer(), delays.consumer()] {
            let first = next(&mut consumer).await;
            in_time(first.requeue()).await.unwrap();
            let again = next(&mut consumer).await;
            assert_eq!((again.id(), again.priority(), again.due()), (first.id(), first.priority(), first.due()));
            assert_ne!(again.name(), first.name());
        }
    }

    // testDeletingWithLock, testRequeuingWithLock.
    async fn item_in_work_is_not_removed_by_its_id(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = DistributedIdQueue::<String>::with_options(client, &*path, RawCodec, locks(&path)).unwrap();
        in_time(queue.put(&"item".to_owned(), "id")).await.unwrap();
        let mut consumer = queue.consumer();
        let delivery = next(&mut consumer).await;
        assert_eq!(in_time(queue.remove("id")).await.unwrap(), 0);
        in_time(delivery.requeue()).await.unwrap();
        assert_eq!(in_time(queue.remove("id")).await.unwrap(), 1);
        nothing(&mut consumer).await;
    }

    async fn item_in_work_is_seen_and_not_purged(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = locked(&client, &path);
        for text in texts(0..3) {
            in_time(queue.put(&text)).await.unwrap();
        }
        let mut consumer = queue.consumer();
        let delivery = next(&mut consumer).await;
        let attempts: Vec<_> = in_time(queue.peek(9)).await.unwrap().iter().map(|item| item.attempts).collect();
        assert_eq!(attempts, [1, 0, 0]);
        assert_eq!(in_time(queue.purge()).await.unwrap(), 2);
        in_time(delivery.complete()).await.unwrap();
        assert!(in_time(queue.is_empty()).await.unwrap());
        nothing(&mut consumer).await;
    }

    async fn rejected_item_is_a_dead_letter(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = with(&client, &path, locks(&path).dead_letters(format!("{path}-rest/dead")));
        in_time(queue.put(&"item".to_owned())).await.unwrap();
        let mut consumer = queue.consumer();
        let delivery = next(&mut consumer).await;
        in_time(delivery.reject("no such customer")).await.unwrap();
        in_time(delivery.reject("no such customer")).await.unwrap();
        let dead = format!("{path}-rest/dead/queue-0000000000");
        let (data, _) = client.get_data().for_path(&dead).await.unwrap();
        assert!(data.ends_with(b"no such customer"));
        assert!(in_time(queue.is_empty()).await.unwrap());
        nothing(&mut consumer).await;
    }

    // Defect 4, and rule 6 of Java's consumers: they check again when the list of children changes.
    async fn item_that_is_given_back_wakes_the_other_consumers(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = locked(&client, &path);
        in_time(queue.put(&"item".to_owned())).await.unwrap();
        let (mut one, mut other) = (queue.consumer(), locked(&env.client().await, &path).consumer());
        for is_drop in [false, true] {
            let delivery = next(&mut one).await;
            nothing(&mut other).await;
            let session = client.session().await.unwrap();
            let (_, as_java) = session.get_children_watched(&path).await.unwrap();
            match is_drop {
                true => drop(delivery),
                false => assert_eq!(in_time(delivery.release()).await.unwrap(), Release::Released),
            }
            in_time(as_java).await;
            let delivery = next(&mut other).await;
            assert_eq!(delivery.items(), ["item"]);
            in_time(delivery.retry()).await.unwrap();
        }
    }

    async fn effects_are_made_with_the_completion(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let (queue, effect) = (locked(&client, &path), env.path("effect"));
        in_time(queue.put(&"item".to_owned())).await.unwrap();
        let delivery = next(&mut queue.consumer()).await;
        let refused = in_time(delivery.complete_with(&client.transaction().delete(&*effect))).await;
        assert!(matches!(refused, Err(QueueError::Framework(_))), "{refused:?}");
        assert!(delivery.is_held(), "nothing was changed");
        in_time(delivery.verify()).await.unwrap();
        let made = client.transaction().operation(CuratorOp::create(&*effect).with_data("made"));
        in_time(delivery.complete_with(&made)).await.unwrap();
        in_time(delivery.complete_with(&made)).await.unwrap();
        assert!(!delivery.is_held());
        assert_eq!(client.get_data().for_path(&effect).await.unwrap().0, b"made");
        assert!(in_time(queue.is_empty()).await.unwrap());
    }

    // Defect 5a: a Java consumer with an ended session deletes the item and the lock of its successor.
    async fn item_that_was_deleted_by_another_client_is_no_success(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = locked(&client, &path);
        for text in texts(0..3) {
            in_time(queue.put(&text)).await.unwrap();
        }
        let (locks, mut consumer) = (format!("{path}-locks"), queue.consumer());
        let (both, item, lock) = (next(&mut consumer).await, next(&mut consumer).await, next(&mut consumer).await);
        for node in [format!("{path}/{}", both.name()), format!("{path}/{}", item.name())] {
            in_time(client.delete().for_path(&node)).await.unwrap();
        }
        for node in [format!("{locks}/{}", both.name()), format!("{locks}/{}", lock.name())] {
            in_time(client.delete().for_path(&node)).await.unwrap();
        }
        assert_eq!(in_time(lock.lost()).await, LossReason::NodeDeleted);
        assert_eq!(in_time(both.lost()).await, LossReason::NodeDeleted);
        let gone = in_time(item.complete()).await;
        assert!(matches!(gone, Err(QueueError::AlreadyGone { .. })), "{gone:?}");
        for lost in [in_time(both.complete()).await, in_time(lock.complete()).await, in_time(lock.verify()).await] {
            assert!(matches!(lost, Err(QueueError::Lost { reason: LossReason::NodeDeleted, .. })), "{lost:?}");
        }
        drop((both, item, lock));
        // The item that only lost its lock is there.
        assert_eq!(completed(&mut consumer).await, ["2"]);
        nothing(&mut consumer).await;
    }

    async fn lock_that_was_deleted_by_hand_is_no_success_at_once(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = locked(&client, &path);
        in_time(queue.put(&"item".to_owned())).await.unwrap();
        let (mut one, mut other) = (queue.consumer(), locked(&env.client().await, &path).consumer());
        let first = next(&mut one).await;
        in_time(client.delete().for_path(&format!("{path}-locks/{}", first.name()))).await.unwrap();
        let second = next(&mut other).await;
        assert_eq!(second.attempt(), 2);
        // The lock of the second one has the path and the version of the first one's; the item's version differs.
        let lost = in_time(first.complete()).await;
        assert!(matches!(lost, Err(QueueError::Lost { .. })), "{lost:?}");
        drop(first);
        in_time(second.verify()).await.unwrap();
        in_time(second.complete()).await.unwrap();
    }

    async fn delivery_has_one_end(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = locked(&client, &path);
        let mut consumer = queue.consumer();
        for text in texts(0..3) {
            in_time(queue.put(&text)).await.unwrap();
            let delivery = next(&mut consumer).await;
            match &*text {
                "0" => in_time(delivery.complete()).await.unwrap(),
                "1" => in_time(delivery.reject("on purpose")).await.unwrap(),
                _ => in_time(delivery.requeue()).await.unwrap(),
            }
            assert!(matches!(in_time(delivery.retry()).await, Err(QueueError::Ended { .. })), "{text}");
            assert_eq!(in_time(delivery.release()).await.unwrap(), Release::Released);
        }
        assert_eq!(completed(&mut consumer).await, ["2"]);
    }

    async fn end_after_another_one_was_dropped_is_no_success(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let (queue, paths) = (locked(&client, &path), format!("{path}-locks"));
        let mut consumer = queue.consumer();
        for completes in [false, true] {
            in_time(queue.put(&"item".to_owned())).await.unwrap();
            let delivery = next(&mut consumer).await;
            let (mut retry, mut complete) = (Box::pin(delivery.retry()), Box::pin(delivery.complete()));
            let is_pending = match completes {
                true => futures_util::poll!(&mut complete).is_pending(),
                false => futures_util::poll!(&mut retry).is_pending(),
            };
            assert!(is_pending);
            eventually("the lock is deleted", async || children(&client, &paths).await.is_empty()).await;
            drop((retry, complete));
            let ended = match completes {
                true => in_time(delivery.reject("too slow")).await,
                false => in_time(delivery.complete()).await,
            };
            assert!(matches!(ended, Err(QueueError::Lost { .. } | QueueError::Ended { .. })), "{completes}: {ended:?}");
            drop(delivery);
            if !completes {
                assert_eq!(completed(&mut consumer).await, ["item"]);
            }
        }
        assert!(in_time(queue.is_empty()).await.unwrap());
    }

    async fn refused_lock_path_strands_no_item(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let (queue, locks) = (locked(&client, &path), format!("{path}-locks"));
        for text in texts(0..3) {
            in_time(queue.put(&text)).await.unwrap();
        }
        // An ephemeral node can have no locks.
        client.create().with_mode(CreateMode::Ephemeral).for_path(&locks).await.unwrap();
        let mut consumer = queue.consumer();
        for _ in 0..3 {
            let refused = error(&mut consumer).await;
            assert!(matches!(refused, QueueError::Framework(_)), "{refused:?}");
        }
        client.delete().for_path(&locks).await.unwrap();
        assert_eq!(drained(&mut consumer, 3).await, texts(0..3));
    }

    async fn poison_item_that_cannot_be_rejected_does_not_delay_the_others(env) {
        let (client, path, leaf) = (env.client().await, env.path("queue"), env.path("leaf"));
        client.create().creating_parents_if_needed().with_mode(CreateMode::Ephemeral).for_path(&leaf).await.unwrap();
        let queue = with(&client, &path, locks(&path).max_attempts(1).dead_letters(format!("{leaf}/dead")));
        for text in ["poison", "next"] {
            in_time(queue.put(&text.to_owned())).await.unwrap();
        }
        let mut consumer = queue.consumer();
        in_time(next(&mut consumer).await.retry()).await.unwrap();
        let refused = error(&mut consumer).await;
        assert!(matches!(refused, QueueError::Framework(_)), "{refused:?}");
        assert_eq!(completed(&mut consumer).await, ["next"]);
    }
}

//! Promises of the pages of queues with a lock path that no other test shows.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use curator_framework::{Acl, CreateMode, CuratorOp, Error, LossReason, Permission};
use curator_integration::env::{builder, children, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{
    Delivery, DistributedDelayQueue, DistributedIdQueue, DistributedQueue, QueueError, QueueOptions, RawCodec, Release,
};
use futures_util::poll;
use tokio::sync::Semaphore;

use crate::stage::{completed, drained, error, locked, locks, next, nothing, plain, texts, with};

/// An access control list of the client `owner`, with these permissions for all others.
fn limited(others: Permission) -> Vec<Acl> {
    [Acl::creator_all(), vec![Acl::new(others, "world", "anyone")]].concat()
}

on_every_server! {
    async fn ended_sessions_and_dropped_consumers_count_as_deliveries(env) {
        let (direct, path) = (env.client().await, env.path("queue"));
        let options = locks(&path).max_attempts(2);
        in_time(locked(&direct, &path).put(&"poison".to_owned())).await.unwrap();
        let client = env.client().await;
        let killed = next(&mut with(&client, &path, options.clone()).consumer()).await;
        in_time(env.kill_session(&client.session().await.unwrap())).await;
        in_time(killed.lost()).await;
        let second = next(&mut with(&direct, &path, options.clone()).consumer()).await;
        assert_eq!(second.attempt(), 2);
        drop((killed, second));
        let mut consumer = with(&direct, &path, options).consumer();
        nothing(&mut consumer).await;
        assert_eq!(children(&direct, &format!("{path}-dead")).await.len(), 1);
        assert!(children(&direct, &path).await.is_empty());
    }

    async fn lost_delivery_changes_nothing(env) {
        let (direct, path) = (env.client().await, env.path("queue"));
        let (producer, client) = (locked(&direct, &path), env.client().await);
        in_time(producer.put(&"item".to_owned())).await.unwrap();
        let delivery = next(&mut locked(&client, &path).consumer()).await;
        in_time(env.kill_session(&client.session().await.unwrap())).await;
        let LossReason::Session(_) = in_time(delivery.lost()).await else { panic!("{delivery:?}") };
        let (effect, holder) = (env.path("effect"), next(&mut producer.consumer()).await);
        let changes = client.transaction().create(&*effect, "");
        for lost in [
            in_time(delivery.complete()).await,
            in_time(delivery.complete_with(&changes)).await,
            in_time(delivery.requeue()).await,
            in_time(delivery.reject("too late")).await,
            in_time(delivery.verify()).await,
        ] {
            assert!(matches!(lost, Err(QueueError::Lost { .. })), "{lost:?}");
        }
        assert_eq!((delivery.is_held(), delivery.remaining()), (false, Duration::ZERO));
        assert!(matches!(in_time(delivery.release()).await.unwrap(), Release::AlreadyLost(LossReason::Session(_))));
        in_time(delivery.retry()).await.unwrap();
        drop(delivery);
        // The item and the lock of the other holder are as they were.
        in_time(holder.verify()).await.unwrap();
        assert!(in_time(direct.check_exists().for_path(&effect)).await.unwrap().is_none());
        assert!(children(&direct, &format!("{path}-dead")).await.is_empty());
        in_time(holder.complete()).await.unwrap();
        assert!(in_time(producer.is_empty()).await.unwrap());
    }

    async fn ended_delivery_is_neither_held_nor_lost(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = locked(&client, &path);
        in_time(queue.put(&"item".to_owned())).await.unwrap();
        let delivery = next(&mut queue.consumer()).await;
        assert!(!delivery.remaining().is_zero());
        let mut lost = Box::pin(delivery.lost());
        assert!(poll!(&mut lost).is_pending());
        in_time(delivery.complete()).await.unwrap();
        assert!(matches!(in_time(delivery.verify()).await, Err(QueueError::Ended { .. })));
        let session = client.session().await.unwrap();
        in_time(env.kill_session(&session)).await;
        in_time(session.ended()).await;
        in_time(queue.put(&"next".to_owned())).await.unwrap();
        assert_eq!(completed(&mut queue.consumer()).await, ["next"]);
        assert!(poll!(&mut lost).is_pending() && !delivery.is_held());
    }

    async fn refused_change_of_a_completion_has_its_place_behind_the_delete(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = locked(&client, &path);
        in_time(queue.put(&"item".to_owned())).await.unwrap();
        let (delivery, effect) = (next(&mut queue.consumer()).await, env.path("effect"));
        let changes = [CuratorOp::create(&*effect).with_data(""), CuratorOp::delete(env.path("missing"))];
        let refused = in_time(delivery.complete_with(&client.transaction().operations(changes))).await;
        assert!(matches!(refused, Err(QueueError::Framework(Error::Transaction { index: 2, .. }))), "{refused:?}");
        assert!(in_time(client.check_exists().for_path(&effect)).await.unwrap().is_none());
        in_time(delivery.complete()).await.unwrap();
    }

    async fn key_is_of_the_put_and_token_of_the_delivery(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = locked(&client, &path);
        in_time(queue.put_all(&texts(0..2))).await.unwrap();
        in_time(queue.put(&"2".to_owned())).await.unwrap();
        let (mut consumer, mut keys, mut tokens) = (queue.consumer(), HashSet::new(), HashSet::new());
        for _ in 0..2 {
            let taken = [next(&mut consumer).await, next(&mut consumer).await, next(&mut consumer).await];
            assert_eq!(taken[0].key(), taken[1].key(), "they are of one transaction");
            for delivery in taken {
                let lock = format!("{path}-locks/{}", delivery.name());
                let stat = in_time(client.check_exists().for_path(&lock)).await.unwrap().unwrap();
                assert_eq!(delivery.token().czxid().get(), stat.czxid);
                assert!(delivery.token().czxid() > delivery.key());
                tokens.insert(stat.czxid);
                keys.insert(delivery.key());
                in_time(delivery.retry()).await.unwrap();
            }
        }
        assert_eq!((keys.len(), tokens.len()), (2, 6));
    }

    async fn consumer_takes_no_item_that_is_not_asked_for(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = locked(&client, &path);
        in_time(queue.put_all(&texts(0..5))).await.unwrap();
        let mut consumer = queue.consumer();
        let first = next(&mut consumer).await;
        assert_eq!(children(&client, &format!("{path}-locks")).await, [first.name()]);
        let attempts: Vec<_> = in_time(queue.peek(9)).await.unwrap().iter().map(|item| item.attempts).collect();
        assert_eq!(attempts, [1, 0, 0, 0, 0]);
        // The same without locks: the items behind the first one are read, and stay.
        let path = env.path("plain");
        let queue = plain(&client, &path);
        in_time(queue.put_all(&texts(0..5))).await.unwrap();
        let mut consumer = queue.consumer();
        drop(next(&mut consumer).await);
        drop(consumer);
        assert_eq!(drained(&mut queue.consumer(), 4).await, texts(1..5));
    }

    async fn options_that_cannot_work_are_refused(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let new = |path: &str, options| DistributedQueue::<String>::with_options(client.clone(), path, RawCodec, options);
        for (name, options) in [
            ("batch", locks(&path).batch(0)),
            ("batch", locks(&path).batch(257)),
            ("max_items", locks(&path).max_items(0)),
            ("max_attempts", locks(&path).max_attempts(0)),
            ("lock_path", QueueOptions::new().lock_path("/")),
            ("dead_letters", locks(&path).dead_letters("/")),
            ("dead_letters", locks(&path).dead_letters(&*path)),
            ("dead_letters", locks(&path).dead_letters(format!("{path}/dead"))),
            ("dead_letters", locks(&path).dead_letters(format!("{path}-locks"))),
        ] {
            let refused = new(&path, options);
            assert!(matches!(&refused, Err(QueueError::InvalidArgument { argument, .. }) if *argument == name), "{name}: {refused:?}");
        }
        let dead = new(&path, QueueOptions::new().at_most_once().dead_letters("/dead"));
        assert!(matches!(dead, Err(QueueError::InvalidArgument { .. })), "{dead:?}");
        let root = new("/", locks(&path));
        assert!(matches!(root, Err(QueueError::InvalidArgument { argument: "path", .. })), "{root:?}");
        for invalid in [new("queue", locks(&path)), new(&path, locks("a/b")), new(&path, locks(&path).dead_letters("dead"))] {
            assert!(matches!(invalid, Err(QueueError::Framework(Error::InvalidPath { .. }))), "{invalid:?}");
        }
        new(&path, locks(&path).batch(256).max_items(1).max_attempts(1)).unwrap();
    }

    async fn run_has_no_more_work_than_allowed(env) {
        let queue = locked(&env.client().await, &env.path("queue"));
        in_time(queue.put_all(&texts(0..12))).await.unwrap();
        let refused = in_time(queue.consumer().run(0, |_| async {})).await;
        assert!(matches!(refused, Err(QueueError::InvalidArgument { argument: "concurrency", .. })), "{refused:?}");
        let (started, ended, gate) = (AtomicUsize::new(0), AtomicUsize::new(0), Semaphore::new(0));
        let (started, ended, gate) = (&started, &ended, &gate);
        let work = |delivery: Delivery<String>| async move {
            started.fetch_add(1, Ordering::SeqCst);
            drop(gate.acquire().await.unwrap());
            in_time(delivery.complete()).await.unwrap();
            ended.fetch_add(1, Ordering::SeqCst);
        };
        let mut consumer = queue.consumer();
        let mut run = Box::pin(consumer.run(3, work));
        tokio::select! {
            ended = &mut run => panic!("{ended:?}"),
            () = eventually("three are in work", async || started.load(Ordering::SeqCst) >= 3) => {}
        }
        let early = tokio::time::timeout(Duration::from_millis(300), &mut run).await;
        assert!(early.is_err(), "{early:?}");
        assert_eq!(started.load(Ordering::SeqCst), 3);
        gate.add_permits(3);
        tokio::select! {
            ended = run => panic!("{ended:?}"),
            () = eventually("all are done", async || ended.load(Ordering::SeqCst) == 12) => {}
        }
    }

    async fn dropped_run_gives_its_items_back(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = locked(&client, &path);
        in_time(queue.put_all(&texts(0..3))).await.unwrap();
        let (mut consumer, started) = (queue.consumer(), AtomicUsize::new(0));
        let work = |delivery: Delivery<String>| {
            started.fetch_add(1, Ordering::SeqCst);
            async move {
                let _delivery = delivery;
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            ended = consumer.run(3, work) => panic!("{ended:?}"),
            () = eventually("all are in work", async || started.load(Ordering::SeqCst) == 3) => {}
        }
        let mut taken = drained(&mut consumer, 3).await;
        taken.sort_unstable();
        assert_eq!(taken, texts(0..3));
    }

    async fn run_ends_with_an_error_that_waiting_does_not_fix_after_its_work(env) {
        let owner = connected(builder(env.address()).authorization("digest", "owner:secret")).await;
        let (client, path) = (env.client().await, env.path("queue"));
        in_time(locked(&owner, &path).put(&"item".to_owned())).await.unwrap();
        let (started, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let work = |delivery: Delivery<String>| {
            started.fetch_add(1, Ordering::SeqCst);
            let (owner, path, ended) = (&owner, &path, &ended);
            async move {
                // The right to delete items, and to lock them, goes. The next claim is refused.
                in_time(owner.set_acl().with_acl(limited(Permission::READ)).for_path(&format!("{path}-locks"))).await.unwrap();
                in_time(locked(owner, path).put(&"next".to_owned())).await.unwrap();
                // More round trips than the refused claim needs.
                for _ in 0..20 {
                    in_time(owner.check_exists().for_path(path)).await.unwrap();
                }
                ended.fetch_add(1, Ordering::SeqCst);
                drop(delivery);
            }
        };
        let refused = in_time(locked(&client, &path).consumer().run(4, work)).await;
        assert!(matches!(refused, Err(QueueError::Framework(Error::NoAuth { .. }))), "{refused:?}");
        assert_eq!((started.into_inner(), ended.into_inner()), (1, 1));
    }

    async fn refused_item_of_several_puts_none(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let ids = DistributedIdQueue::<String>::with_options(client.clone(), &*path, RawCodec, locks(&path)).unwrap();
        let item = "item".to_owned();
        let refused = in_time(ids.put_all([(&item, "a"), (&item, "")])).await;
        assert!(matches!(refused, Err(QueueError::InvalidArgument { argument: "id", .. })), "{refused:?}");
        assert!(in_time(client.check_exists().for_path(&path)).await.unwrap().is_none(), "nothing was sent");
        let queue = locked(&client, &path);
        let large = in_time(queue.put_all(&[item.clone(), "x".repeat(2 << 20)])).await;
        assert!(large.is_err());
        in_time(queue.put_all(&[])).await.unwrap();
        assert_eq!(in_time(queue.len()).await.unwrap(), 0);
    }

    async fn all_children_count_for_the_limit(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = with(&client, &path, locks(&path).max_items(3));
        in_time(queue.put(&"0".to_owned())).await.unwrap();
        in_time(client.create().for_path(&format!("{path}/foreign"))).await.unwrap();
        let budget = Duration::from_millis(200);
        assert_eq!(in_time(queue.put_timeout(&"1".to_owned(), budget)).await.unwrap(), Some(()));
        assert_eq!(in_time(queue.put_timeout(&"no room".to_owned(), budget)).await.unwrap(), None);
        // Two fit once one more is gone.
        let both = texts(2..4);
        let mut put = Box::pin(queue.put_all(&both));
        let mut consumer = locked(&client, &path).consumer();
        assert!(matches!(error(&mut consumer).await, QueueError::Foreign { .. }));
        tokio::select! {
            put = &mut put => panic!("{put:?}"),
            () = async { assert_eq!(completed(&mut consumer).await, ["0"]) } => {}
        }
        let ((), rest) = tokio::join!(async { in_time(put).await.unwrap() }, drained(&mut consumer, 3));
        assert_eq!(rest, texts(1..4));
    }

    async fn queues_and_consumers_keep_their_client_open(env) {
        let path = env.path("queue");
        let client = env.client().await;
        let queue = locked(&client, &path);
        let session = in_time(client.session()).await.unwrap();
        drop(client);
        let clone = queue.clone();
        drop(queue);
        in_time(clone.put(&"item".to_owned())).await.unwrap();
        let mut consumer = clone.consumer();
        drop(clone);
        let delivery = next(&mut consumer).await;
        drop(consumer);
        assert!(session.is_alive());
        in_time(delivery.complete()).await.unwrap();
    }

    async fn items_that_are_not_due_and_those_in_work_are_seen(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = DistributedDelayQueue::<String>::with_options(client.clone(), &*path, RawCodec, locks(&path)).unwrap();
        let now = SystemTime::now();
        let later = |seconds| now + Duration::from_secs(seconds);
        for (item, due) in [("2", later(7200)), ("1", later(3600)), ("0", now)] {
            in_time(queue.put(&item.to_owned(), due)).await.unwrap();
        }
        let mut consumer = queue.consumer();
        let delivery = next(&mut consumer).await;
        assert!(delivery.due().unwrap() >= now, "a time is rounded up to milliseconds");
        let seen = in_time(queue.peek(9)).await.unwrap();
        assert_eq!(seen.iter().flat_map(|item| item.items.clone().unwrap()).collect::<Vec<_>>(), texts(0..3));
        assert!(seen.iter().all(|item| item.reason.is_none()));
        nothing(&mut consumer).await;
    }

    async fn item_that_cannot_be_read_is_an_error_of_peek(env) {
        let owner = connected(builder(env.address()).authorization("digest", "owner:secret")).await;
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = locked(&client, &path);
        in_time(queue.put(&"item".to_owned())).await.unwrap();
        let create = owner.create().with_mode(CreateMode::PersistentSequential).with_acl(Acl::creator_all());
        let hidden = in_time(create.for_path(&format!("{path}/queue-"))).await.unwrap();
        let refused = in_time(queue.peek(2)).await.unwrap_err();
        let QueueError::Refused { path, cause: Error::NoAuth { .. } } = &refused else { panic!("{refused:?}") };
        assert_eq!(**path, *hidden);
        assert_eq!(in_time(queue.peek(1)).await.unwrap().len(), 1, "the others are read");
    }

    async fn client_that_may_not_create_nodes_gives_items_back(env) {
        let owner = connected(builder(env.address()).authorization("digest", "owner:secret")).await;
        let (client, path) = (env.client().await, env.path("queue"));
        in_time(locked(&owner, &path).put(&"item".to_owned())).await.unwrap();
        let acl = limited(Permission::READ | Permission::DELETE);
        in_time(owner.set_acl().with_acl(acl).for_path(&path)).await.unwrap();
        let (mut one, mut other) = (locked(&client, &path).consumer(), locked(&env.client().await, &path).consumer());
        for attempt in [1, 3] {
            in_time(next(&mut one).await.retry()).await.unwrap();
            let delivery = next(&mut other).await;
            assert_eq!(delivery.attempt(), attempt + 1);
            let refused = in_time(delivery.requeue()).await;
            assert!(matches!(refused, Err(QueueError::Framework(_))), "{refused:?}");
            assert!(delivery.is_held(), "nothing was changed");
            assert_eq!(in_time(delivery.release()).await.unwrap(), Release::Released);
        }
        assert_eq!(completed(&mut one).await, ["item"]);
    }
}

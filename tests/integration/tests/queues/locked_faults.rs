//! Lost messages and ended sessions in the hands of consumers with a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use curator_framework::spi::{Operation, Request};
use curator_framework::{Acl, Error, LossReason};
use curator_integration::env::{Env, Kind, builder, children, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_integration::refusals::RefusingFactory;
use curator_recipes::{QueueError, Release};
use curator_test::wire::OpCode;
use parking_lot::Mutex;

use crate::stage::{LONG, completed, drained, locked, locks, next, nothing, texts, through, with};

on_every_server! {
    // Defect 3: Java's item waits for the end of the session.
    async fn lost_reply_to_a_claim_or_to_a_completion_loses_and_doubles_no_item(env) {
        let (direct, path) = (env.client().await, env.path("queue"));
        let (producer, proxy) = (locked(&direct, &path), env.proxy());
        for text in texts(0..9) {
            in_time(producer.put(&text)).await.unwrap();
        }
        let client = connected(through(&proxy, LONG)).await;
        let mut consumer = locked(&client, &path).consumer();
        for (number, text) in texts(0..9).into_iter().enumerate() {
            let fault = |nth| match number % 3 {
                0 => proxy.drop_reply(OpCode::Multi, nth),
                1 => proxy.drop_request(OpCode::Multi, nth),
                _ => proxy.cut_frame(OpCode::Multi, nth),
            };
            fault(1);
            let delivery = next(&mut consumer).await;
            assert_eq!((delivery.items(), delivery.attempt()), (&[text][..], 1));
            fault(1);
            let effect = env.path(&format!("effect-{number}"));
            in_time(delivery.complete_with(&client.transaction().create(&*effect, "once"))).await.unwrap();
            assert!(direct.check_exists().for_path(&effect).await.unwrap().is_some());
        }
        assert!(in_time(producer.is_empty()).await.unwrap());
        assert!(children(&direct, &format!("{path}-locks")).await.is_empty());
    }

    async fn delivery_of_an_item_that_may_not_be_read_any_more_is_given_back(env) {
        let owner = connected(builder(env.address()).authorization("digest", "owner:secret")).await;
        let (client, path) = (env.client().await, env.path("queue"));
        for is_dropped in [false, true] {
            in_time(locked(&owner, &path).put(&"item".to_owned())).await.unwrap();
            let mut consumer = locked(&client, &path).consumer();
            let delivery = next(&mut consumer).await;
            let item = format!("{path}/{}", delivery.name());
            in_time(owner.set_acl().with_acl(Acl::creator_all()).for_path(&item)).await.unwrap();
            match is_dropped {
                false => assert!(in_time(delivery.release()).await.unwrap().is_released()),
                true => drop(delivery),
            }
            let locks = format!("{path}-locks");
            eventually("the lock is gone", async || children(&owner, &locks).await.is_empty()).await;
            in_time(owner.delete().for_path(&item)).await.unwrap();
        }
    }

    async fn lost_reply_to_a_retry_a_requeue_or_a_rejection_counts_once(env) {
        let (direct, path) = (env.client().await, env.path("queue"));
        let (producer, proxy) = (locked(&direct, &path), env.proxy());
        in_time(producer.put(&"item".to_owned())).await.unwrap();
        let client = connected(through(&proxy, LONG)).await;
        let mut consumer = locked(&client, &path).consumer();
        for number in 0..4 {
            let delivery = next(&mut consumer).await;
            if number % 2 == 0 { proxy.drop_reply(OpCode::Multi, 1) } else { proxy.drop_request(OpCode::Multi, 1) }
            match number {
                0 | 1 => in_time(delivery.retry()).await.unwrap(),
                2 => in_time(delivery.requeue()).await.unwrap(),
                _ => in_time(delivery.reject("on purpose")).await.unwrap(),
            }
        }
        assert!(in_time(producer.is_empty()).await.unwrap());
        assert_eq!(children(&direct, &format!("{path}-dead")).await.len(), 1);
        nothing(&mut consumer).await;
    }

    // Defects 4 and 5: Java strands the last item, and two consumers work on one.
    async fn item_of_a_session_that_has_ended_is_delivered_to_another_consumer(env) {
        let path = env.path("queue");
        let client = env.client().await;
        let queue = locked(&client, &path);
        in_time(queue.put(&"item".to_owned())).await.unwrap();
        let (mut one, mut other) = (queue.consumer(), locked(&env.client().await, &path).consumer());
        let first = next(&mut one).await;
        nothing(&mut other).await;
        in_time(env.kill_session(&client.session().await.unwrap())).await;
        let second = next(&mut other).await;
        assert_eq!((second.items(), second.attempt()), (first.items(), 2));
        assert!(matches!(in_time(first.lost()).await, LossReason::Session(_)));
        let lost = in_time(first.complete()).await;
        assert!(matches!(lost, Err(QueueError::Lost { reason: LossReason::Session(_), .. })), "{lost:?}");
        drop(first);
        in_time(second.complete()).await.unwrap();
        assert!(in_time(queue.is_empty()).await.unwrap());
        in_time(queue.put(&"next".to_owned())).await.unwrap();
        assert_eq!(completed(&mut one).await, ["next"]);
    }

    async fn dropped_completion_is_made_or_not_and_can_be_repeated(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = locked(&client, &path);
        for text in texts(0..4) {
            in_time(queue.put(&text)).await.unwrap();
        }
        let mut consumer = queue.consumer();
        for polls in 0..4 {
            let delivery = next(&mut consumer).await;
            let mut complete = Box::pin(delivery.complete());
            for _ in 0..polls {
                if futures_util::poll!(&mut complete).is_ready() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            drop(complete);
            in_time(delivery.complete()).await.unwrap();
        }
        assert!(in_time(queue.is_empty()).await.unwrap());
    }

    async fn dropped_consumer_gives_its_claims_back(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = locked(&client, &path);
        for text in texts(0..5) {
            in_time(queue.put(&text)).await.unwrap();
        }
        for polls in 0..8 {
            let mut consumer = queue.consumer();
            let mut next = Box::pin(consumer.next());
            for _ in 0..polls {
                if futures_util::poll!(&mut next).is_ready() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        let mut taken = drained(&mut queue.consumer(), 5).await;
        taken.sort_unstable();
        assert_eq!(taken, texts(0..5));
    }

    async fn lock_that_is_deleted_during_a_lost_completion_is_a_loss(env) {
        let (direct, path, proxy) = (env.client().await, env.path("queue"), env.proxy());
        in_time(locked(&direct, &path).put(&"item".to_owned())).await.unwrap();
        let client = connected(through(&proxy, LONG)).await;
        let mut consumer = locked(&client, &path).consumer();
        let (delivery, effect) = (next(&mut consumer).await, env.path("effect"));
        proxy.refuse();
        proxy.drop_request(OpCode::Multi, 1);
        let transaction = client.transaction().create(&*effect, "once");
        let deletes = async {
            proxy.wait_for_faults(1).await;
            direct.delete().for_path(&format!("{path}-locks/{}", delivery.name())).await.unwrap();
            proxy.accept();
        };
        let (done, ()) = in_time(async { tokio::join!(delivery.complete_with(&transaction), deletes) }).await;
        assert!(matches!(done, Err(QueueError::Lost { .. })), "{done:?}");
        assert!(direct.check_exists().for_path(&effect).await.unwrap().is_none());
        drop(delivery);
        assert_eq!(completed(&mut consumer).await, ["item"]);
    }

    async fn poison_item_with_an_unknown_rejection_is_rejected_in_the_next_session(env) {
        let direct = env.client().await;
        for is_applied in [false, true] {
            let (path, proxy) = (env.path(&format!("queue-{is_applied}")), env.proxy());
            let (producer, dead) = (locked(&direct, &path), format!("{path}-dead"));
            in_time(direct.create().creating_parents_if_needed().for_path(&dead)).await.unwrap();
            in_time(producer.put(&"poison".to_owned())).await.unwrap();
            let client = connected(through(&proxy, LONG)).await;
            let session = in_time(client.session()).await.unwrap();
            let mut consumer = with(&client, &path, locks(&path).max_attempts(1)).consumer();
            in_time(next(&mut consumer).await.retry()).await.unwrap();
            proxy.refuse();
            // The claim comes first.
            match is_applied {
                true => proxy.drop_reply(OpCode::Multi, 2),
                false => proxy.drop_request(OpCode::Multi, 2),
            }
            let ends = async {
                proxy.wait_for_faults(1).await;
                in_time(env.kill_session(&session)).await;
                proxy.accept();
                eventually("it is rejected", async || children(&direct, &dead).await.len() == 1).await;
                in_time(producer.put(&"next".to_owned())).await.unwrap();
            };
            let (delivered, ()) = tokio::join!(completed(&mut consumer), ends);
            assert_eq!(delivered, ["next"]);
            nothing(&mut consumer).await;
            assert_eq!(children(&direct, &dead).await.len(), 1, "{is_applied}");
            assert!(in_time(producer.is_empty()).await.unwrap());
        }
    }

    async fn completion_without_a_reply_before_the_session_ends_is_an_unknown_outcome(env) {
        let (direct, path, proxy) = (env.client().await, env.path("queue"), env.proxy());
        let producer = locked(&direct, &path);
        in_time(producer.put(&"item".to_owned())).await.unwrap();
        let client = connected(through(&proxy, LONG)).await;
        let session = in_time(client.session()).await.unwrap();
        let delivery = next(&mut locked(&client, &path).consumer()).await;
        proxy.refuse();
        proxy.drop_reply(OpCode::Multi, 1);
        let ends = async {
            proxy.wait_for_faults(1).await;
            in_time(env.kill_session(&session)).await;
            proxy.accept();
        };
        let (done, ()) = in_time(async { tokio::join!(delivery.complete(), ends) }).await;
        let again = in_time(delivery.complete()).await;
        for unknown in [done.unwrap_err(), again.unwrap_err()] {
            assert!(matches!(unknown, QueueError::Unknown { .. }), "{unknown:?}");
            assert!(unknown.outcome_unknown() && !unknown.is_retryable());
        }
        assert!(in_time(producer.is_empty()).await.unwrap());
    }

    async fn item_that_is_deleted_during_a_lost_completion_is_no_success(env) {
        let (direct, path, proxy) = (env.client().await, env.path("queue"), env.proxy());
        in_time(locked(&direct, &path).put(&"item".to_owned())).await.unwrap();
        let client = connected(through(&proxy, LONG)).await;
        let mut consumer = locked(&client, &path).consumer();
        let (delivery, effect) = (next(&mut consumer).await, env.path("effect"));
        proxy.refuse();
        proxy.drop_request(OpCode::Multi, 1);
        let transaction = client.transaction().create(&*effect, "once");
        let deletes = async {
            proxy.wait_for_faults(1).await;
            direct.delete().for_path(&format!("{path}/{}", delivery.name())).await.unwrap();
            proxy.accept();
        };
        let (done, ()) = in_time(async { tokio::join!(delivery.complete_with(&transaction), deletes) }).await;
        assert!(matches!(done, Err(QueueError::AlreadyGone { .. })), "{done:?}");
        assert!(direct.check_exists().for_path(&effect).await.unwrap().is_none());
        drop(delivery);
        nothing(&mut consumer).await;
        assert!(curator_integration::env::children(&direct, &format!("{path}-locks")).await.is_empty());
    }

    async fn item_with_a_child_does_not_end_a_run(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = with(&client, &path, locks(&path).max_attempts(1));
        in_time(queue.put_all(&texts(0..2))).await.unwrap();
        in_time(client.create().for_path(&format!("{path}/queue-0000000000/child"))).await.unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let mut stop = Some(stop);
        let work = |delivery: curator_recipes::Delivery<String>| {
            let is_second = delivery.items() == ["1"];
            let stop = stop.take_if(|_| is_second);
            async move {
                match stop {
                    Some(stop) => {
                        in_time(delivery.complete()).await.unwrap();
                        stop.send(()).unwrap();
                    }
                    None => drop(in_time(delivery.retry()).await),
                }
            }
        };
        in_time(queue.consumer().run_until(stopped, 1, work)).await.unwrap();
    }
}

/// Gives a delivery back. Another consumer follows between the reads and the delete of the last attempt, which has this
/// number.
async fn given_back_late(attempt: usize) {
    let env = Env::new(Kind::InProcess);
    let (direct, path) = (env.client().await, env.path("queue"));
    in_time(locked(&direct, &path).put(&"item".to_owned())).await.unwrap();
    let (deletes, follower) = (AtomicUsize::new(0), Arc::new(Mutex::new(None)));
    let (other, follows, locks) = (direct.clone(), Arc::clone(&follower), format!("{path}-locks/"));
    let (queue, name) =
        (path.clone(), children(&direct, &path).await.into_iter().find(|name| name.starts_with("queue-")).unwrap());
    let (item, lock) = (format!("{path}/{name}"), format!("{path}-locks/{name}"));
    let deleted = lock.clone();
    let factory = RefusingFactory::new(move |request| {
        let is_delete = match request {
            Request::Delete { path, .. } => path.starts_with(&locks),
            Request::Transaction { operations } => {
                matches!(operations.last(), Some(Operation::Delete { path, .. }) if path.starts_with(&locks))
            }
            _ => false,
        };
        match if is_delete { deletes.fetch_add(1, Ordering::SeqCst) + 1 } else { 0 } {
            number if number == attempt => {
                let follows = async {
                    in_time(other.delete().for_path(&deleted)).await.unwrap();
                    *follows.lock() = Some(next(&mut locked(&other, &queue).consumer()).await);
                };
                tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(follows));
                None
            }
            0 | 1 => None,
            _ => Some(Error::NoAuth { path: queue.as_str().into() }),
        }
    });
    let client = connected(builder(env.address()).zookeeper_factory(factory)).await;
    let delivery = next(&mut locked(&client, &path).consumer()).await;
    // The transaction of the claimed version fails.
    let (data, _) = in_time(direct.get_data().for_path(&item)).await.unwrap();
    in_time(direct.set_data().for_path(&item, data)).await.unwrap();
    if attempt == 2 {
        let release = in_time(delivery.release()).await.unwrap();
        assert!(matches!(release, Release::AlreadyLost(LossReason::NodeDeleted)), "{release:?}");
    } else {
        drop(delivery);
    }
    eventually("another consumer follows", async || follower.lock().is_some()).await;
    client.close().await;
    let follower = follower.lock().take().unwrap();
    assert!(env.client().await.check_exists().for_path(&lock).await.unwrap().is_some());
    in_time(follower.complete()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_delete_of_a_lock_spares_the_lock_of_the_next_consumer() {
    given_back_late(2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_delete_of_a_dropped_lock_spares_the_lock_of_the_next_consumer() {
    given_back_late(3).await;
}

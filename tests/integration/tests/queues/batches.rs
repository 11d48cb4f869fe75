//! Consumers that take several items at once.

use std::time::Duration;

use curator_framework::spi::Operation;
use curator_framework::{Acl, CreateMode};
use curator_integration::env::{builder, children, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{Delivery, DistributedQueue, QueueConsumer, QueueError, QueueOptions};
use curator_test::wire::OpCode;
use futures_util::future::join_all;
use futures_util::poll;
use parking_lot::Mutex;

use crate::stage::{LONG, drained, error, locks, next, nothing, plain, texts, through, with};

async fn put(queue: &DistributedQueue<String>, count: usize) {
    in_time(queue.put_all(&texts(0..count))).await.unwrap();
}

async fn take(consumer: &mut QueueConsumer<String>, count: usize) -> Vec<Delivery<String>> {
    let mut taken = Vec::new();
    while taken.len() < count {
        taken.push(next(consumer).await);
    }
    taken
}

fn sorted(mut items: Vec<String>) -> Vec<String> {
    items.sort_unstable_by_key(|text| text.parse::<usize>().unwrap());
    items
}

on_every_server! {
    async fn refused_completion_does_not_refuse_those_that_are_sent_with_it(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = with(&client, &path, locks(&path).batch(8));
        put(&queue, 8).await;
        let mut consumer = queue.consumer();
        let taken = take(&mut consumer, 8).await;
        in_time(client.delete().for_path(&format!("{path}/{}", taken[2].name()))).await.unwrap();
        in_time(client.delete().for_path(&format!("{path}-locks/{}", taken[5].name()))).await.unwrap();
        let effect = env.path("effect");
        let refused = client.transaction().delete(&*effect);
        let (with_effect, others) = in_time(async {
            tokio::join!(taken[7].complete_with(&refused), join_all(taken[..7].iter().map(Delivery::complete)))
        })
        .await;
        assert!(matches!(with_effect, Err(QueueError::Framework(_))), "{with_effect:?}");
        assert!(taken[7].is_held(), "nothing was changed");
        for (index, done) in others.into_iter().enumerate() {
            match index {
                2 => assert!(matches!(done, Err(QueueError::AlreadyGone { .. })), "{done:?}"),
                5 => assert!(matches!(done, Err(QueueError::Lost { .. })), "{done:?}"),
                _ => done.unwrap(),
            }
        }
        drop(taken);
        assert_eq!(sorted(drained(&mut consumer, 2).await), ["5", "7"]);
        assert!(in_time(queue.is_empty()).await.unwrap());
        assert!(children(&client, &format!("{path}-locks")).await.is_empty());
    }

    async fn refusal_by_a_transaction_that_is_not_applied_is_not_final(env) {
        let (client, path) = (env.client().await, env.path("item"));
        in_time(client.create().creating_parents_if_needed().for_path(&path)).await.unwrap();
        let session = in_time(client.session()).await.unwrap();
        let delete = || session.joined_transaction(vec![Operation::Delete { path: path.clone(), version: None }]);
        let (mut first, mut second) = (Box::pin(delete()), Box::pin(delete()));
        assert!(poll!(&mut first).is_pending() && poll!(&mut second).is_pending());
        assert!(poll!(&mut first).is_pending(), "both are sent");
        drop(first);
        in_time(second).await.unwrap();
        assert!(in_time(client.check_exists().for_path(&path)).await.unwrap().is_none());
    }

    async fn refusal_by_a_child_that_is_not_created_is_not_final(env) {
        let (client, path) = (env.client().await, env.path("item"));
        in_time(client.create().creating_parents_if_needed().for_path(&path)).await.unwrap();
        let session = in_time(client.session()).await.unwrap();
        let child = format!("{path}/child");
        let (acl, mode) = (Acl::open_unsafe(), CreateMode::Persistent);
        let create = vec![Operation::Create { path: child, data: Vec::new(), acl, mode }];
        let mut first = Box::pin(session.joined_transaction(create));
        let mut second = Box::pin(session.joined_transaction(vec![Operation::Delete { path, version: None }]));
        assert!(poll!(&mut first).is_pending() && poll!(&mut second).is_pending());
        assert!(poll!(&mut first).is_pending(), "both are sent");
        drop(first);
        in_time(second).await.unwrap();
    }

    async fn each_refused_item_of_a_batch_is_reported(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let owner = connected(builder(env.address()).authorization("digest", "owner:secret")).await;
        put(&with(&client, &path, locks(&path)), 1).await;
        let acl = [Acl::creator_all(), Acl::read_unsafe()].concat();
        let mut hidden = Vec::new();
        for _ in 0..2 {
            let create = owner.create().with_mode(CreateMode::PersistentSequential).with_acl(acl.clone());
            let create = create.with_data(&b"\0\x01\0\x01\x01\0\0\0\x01a\x02"[..]);
            hidden.push(in_time(create.for_path(&format!("{path}/queue-"))).await.unwrap());
        }
        let (mut consumer, mut refused) = (with(&client, &path, locks(&path).batch(8)).consumer(), Vec::new());
        assert_eq!(drained(&mut consumer, 1).await, ["0"]);
        while refused.len() < 2 {
            let QueueError::Refused { path, .. } = error(&mut consumer).await else { panic!() };
            refused.push(path.to_string());
        }
        refused.sort_unstable();
        assert_eq!(refused, hidden);
        nothing(&mut consumer).await;
    }

    async fn rivals_complete_each_item_once(env) {
        let path = env.path("queue");
        for options in [locks(&path), QueueOptions::new().at_most_once()] {
            put(&plain(&env.client().await, &path), 120).await;
            let (taken, clients) = (Mutex::new(Vec::new()), join_all((0..3).map(|_| env.client())).await);
            let runs = clients.iter().map(|client| {
                let (mut consumer, taken) = (with(client, &path, options.clone().batch(8)).consumer(), &taken);
                async move {
                    let work = |mut delivery: Delivery<String>| async move {
                        let items = delivery.take_items();
                        in_time(delivery.complete()).await.unwrap();
                        taken.lock().extend(items);
                    };
                    let all = async { eventually("all are taken", async || taken.lock().len() >= 120).await };
                    in_time(consumer.run_until(all, 8, work)).await.unwrap();
                }
            });
            join_all(runs).await;
            assert_eq!(sorted(taken.into_inner()), texts(0..120));
        }
    }

    async fn lost_reply_to_a_batch_loses_and_doubles_no_item(env) {
        let (direct, path) = (env.client().await, env.path("queue"));
        for options in [locks(&path), QueueOptions::new().at_most_once()] {
            put(&plain(&direct, &path), 24).await;
            let proxy = env.proxy();
            let client = connected(through(&proxy, LONG)).await;
            let mut consumer = with(&client, &path, options.batch(8)).consumer();
            let mut items = Vec::new();
            for drops_reply in [true, false, true] {
                let fault = || if drops_reply { proxy.drop_reply(OpCode::Multi, 1) } else { proxy.drop_request(OpCode::Multi, 1) };
                fault();
                let mut taken = take(&mut consumer, 8).await;
                fault();
                for done in in_time(join_all(taken.iter().map(Delivery::complete))).await {
                    done.unwrap();
                }
                items.extend(taken.iter_mut().flat_map(Delivery::take_items));
            }
            assert_eq!(sorted(items), texts(0..24));
            assert!(in_time(plain(&direct, &path).is_empty()).await.unwrap());
        }
        assert!(children(&direct, &format!("{path}-locks")).await.is_empty());
    }

    async fn dropped_consumer_gives_its_batch_back(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = with(&client, &path, locks(&path).batch(4));
        put(&queue, 8).await;
        for polls in 0..6 {
            let mut consumer = queue.consumer();
            let mut next = Box::pin(consumer.next());
            for _ in 0..polls {
                if futures_util::poll!(&mut next).is_ready() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        let mut consumer = queue.consumer();
        let first = next(&mut consumer).await;
        drop((first, consumer));
        let mut consumer = queue.consumer();
        assert_eq!(sorted(drained(&mut consumer, 8).await), texts(0..8));
        nothing(&mut consumer).await;
        assert!(children(&client, &format!("{path}-locks")).await.is_empty());
    }

    async fn batch_of_a_session_that_has_ended_is_delivered_to_another_consumer(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = with(&client, &path, locks(&path).batch(4));
        put(&queue, 6).await;
        let mut consumer = queue.consumer();
        let first = next(&mut consumer).await;
        in_time(env.kill_session(&client.session().await.unwrap())).await;
        in_time(first.lost()).await;
        let mut other = with(&env.client().await, &path, locks(&path)).consumer();
        assert_eq!(sorted(drained(&mut other, 6).await), texts(0..6));
        drop(first);
        in_time(queue.put(&"next".to_owned())).await.unwrap();
        assert_eq!(drained(&mut consumer, 1).await, ["next"]);
    }
}

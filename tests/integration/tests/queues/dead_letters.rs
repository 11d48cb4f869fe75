//! Dead letters: what the queue shows of them, and the way back into the queue.

use std::time::{Duration, UNIX_EPOCH};

use curator_framework::{Acl, CreateMode, Error};
use curator_integration::env::{builder, children, connected, in_time};
use curator_integration::on_every_server;
use curator_recipes::{
    Delivery, DistributedDelayQueue, DistributedIdQueue, DistributedPriorityQueue, DistributedQueue, QueueConsumer,
    QueueError, RawCodec,
};
use curator_test::wire::OpCode;

use crate::stage::{LONG, completed, drained, locked, locks, next, nothing, texts, through, with};

/// Puts items, and rejects all of them.
async fn rejected(queue: &DistributedQueue<String>, items: &[String]) {
    in_time(queue.put_all(items)).await.unwrap();
    let mut consumer = queue.consumer();
    for _ in items {
        in_time(next(&mut consumer).await.reject("on purpose")).await.unwrap();
    }
}

/// Rejects the next item, and returns it.
async fn reject_next(consumer: &mut QueueConsumer<String>) -> Delivery<String> {
    let delivery = next(consumer).await;
    in_time(delivery.reject("on purpose")).await.unwrap();
    delivery
}

/// The letter that is moved back keeps what its consumers know of it.
macro_rules! comes_back {
    ($queue:expr, $put:expr) => {
        in_time($put).await.unwrap();
        let mut consumer = $queue.consumer();
        in_time(next(&mut consumer).await.retry()).await.unwrap();
        let rejected = reject_next(&mut consumer).await;
        assert_eq!(rejected.attempt(), 2);
        let letter = in_time($queue.dead_letters(9)).await.unwrap().remove(0);
        assert!(in_time($queue.retry_dead(&letter.name)).await.unwrap());
        assert!(!in_time($queue.retry_dead(&letter.name)).await.unwrap(), "it is moved already");
        let again = next(&mut consumer).await;
        assert_eq!((again.items(), again.key(), again.attempt()), (rejected.items(), rejected.key(), 1));
        assert_eq!((again.id(), again.priority(), again.due()), (rejected.id(), rejected.priority(), rejected.due()));
        in_time(again.reject("again")).await.unwrap();
        let letters = in_time($queue.dead_letters(9)).await.unwrap();
        assert_eq!(letters[0].reason.as_deref(), Some("again"), "the earlier reason is gone");
        assert_eq!((letters.len(), letters[0].attempts), (1, 1));
    };
}

on_every_server! {
    async fn dead_letter_is_seen_with_its_attempts_and_its_reason(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let (queue, dead) = (locked(&client, &path), format!("{path}-dead"));
        assert!(in_time(queue.dead_letters(9)).await.unwrap().is_empty());
        assert_eq!(in_time(queue.purge_dead()).await.unwrap(), 0);
        in_time(queue.put_batch(&texts(0..2))).await.unwrap();
        let mut consumer = queue.consumer();
        in_time(next(&mut consumer).await.retry()).await.unwrap();
        in_time(next(&mut consumer).await.reject("no such customer")).await.unwrap();
        let create = async |name: &str, data: &'static [u8]| {
            let create = client.create().with_mode(CreateMode::PersistentSequential).with_data(data);
            create.for_path(&format!("{dead}/{name}")).await
        };
        let corrupt = in_time(create("queue-", b"no item")).await.unwrap();
        // Java's codec writes what this one refuses.
        in_time(create("queue-", b"\0\x01\0\x01\x01\0\0\0\x01\xff\x02RJ\x01odd")).await.unwrap();
        let foreign = in_time(create("notes-", b"")).await.unwrap();
        let letters = in_time(queue.dead_letters(usize::MAX)).await.unwrap();
        assert_eq!(letters.len(), 3);
        assert_eq!(letters[0].name, "queue-0000000000");
        assert_eq!((letters[0].items.clone().unwrap(), letters[0].attempts), (texts(0..2), 2));
        assert_eq!(letters[0].reason.as_deref(), Some("no such customer"));
        assert!(matches!(&letters[1].items, Err(QueueError::Corrupt { path, .. }) if **path == *corrupt));
        assert!(matches!(&letters[2].items, Err(QueueError::Corrupt { .. })));
        assert_eq!((letters[1].reason.as_deref(), letters[2].reason.as_deref()), (None, Some("odd")));
        assert_eq!(in_time(queue.dead_letters(1)).await.unwrap().len(), 1);
        in_time(queue.put(&"stays".to_owned())).await.unwrap();
        assert_eq!(in_time(queue.purge_dead()).await.unwrap(), 3);
        assert_eq!(format!("{dead}/{}", children(&client, &dead).await.concat()), foreign);
        assert_eq!(completed(&mut consumer).await, ["stays"]);
    }

    async fn dead_letter_comes_back_with_its_prefix_and_a_new_count(env) {
        let (client, path) = (env.client().await, |name| env.path(name));
        let (a, b, c, d) = (path("plain"), path("ids"), path("priorities"), path("delays"));
        let (item, due) = ("item".to_owned(), UNIX_EPOCH + Duration::from_millis(5000));
        let plain = locked(&client, &a);
        comes_back!(plain, plain.put(&item));
        let ids = DistributedIdQueue::<String>::with_options(client.clone(), &*b, RawCodec, locks(&b)).unwrap();
        comes_back!(ids, ids.put(&item, "job"));
        let priorities = DistributedPriorityQueue::<String>::with_options(client.clone(), &*c, RawCodec, locks(&c)).unwrap();
        comes_back!(priorities, priorities.put(&item, -7));
        let delays = DistributedDelayQueue::<String>::with_options(client.clone(), &*d, RawCodec, locks(&d)).unwrap();
        comes_back!(delays, delays.put(&item, due));
    }

    async fn lost_reply_to_a_retry_of_a_dead_letter_does_not_put_twice(env) {
        let (direct, path, proxy) = (env.client().await, env.path("queue"), env.proxy());
        rejected(&locked(&direct, &path), &texts(0..4)).await;
        let queue = locked(&connected(through(&proxy, LONG)).await, &path);
        for (number, letter) in in_time(queue.dead_letters(9)).await.unwrap().iter().enumerate() {
            match number {
                0 => proxy.drop_reply(OpCode::Multi, 1),
                1 => proxy.drop_request(OpCode::Multi, 1),
                2 => proxy.cut_frame(OpCode::Multi, 1),
                _ => proxy.drop_reply(OpCode::GetData, 1),
            }
            assert!(in_time(queue.retry_dead(&letter.name)).await.unwrap(), "{number}");
            assert_eq!(proxy.faults_done(), number + 1);
        }
        assert!(children(&direct, &format!("{path}-dead")).await.is_empty());
        let mut consumer = locked(&direct, &path).consumer();
        assert_eq!(drained(&mut consumer, 4).await, texts(0..4));
        nothing(&mut consumer).await;
    }

    async fn letter_that_another_client_moves_behind_a_lost_request_is_not_moved_by_this_one(env) {
        let (direct, path, proxy) = (env.client().await, env.path("queue"), env.proxy());
        let other = locked(&direct, &path);
        rejected(&other, &texts(0..1)).await;
        let queue = locked(&connected(through(&proxy, LONG)).await, &path);
        proxy.refuse();
        proxy.drop_request(OpCode::Multi, 1);
        let moves = async {
            proxy.wait_for_faults(1).await;
            assert!(in_time(other.retry_dead("queue-0000000000")).await.unwrap());
            proxy.accept();
        };
        let (moved, ()) = tokio::join!(in_time(queue.retry_dead("queue-0000000000")), moves);
        assert!(!moved.unwrap());
        assert_eq!(in_time(other.len()).await.unwrap(), 1);
    }

    async fn retry_of_a_dead_letter_before_the_end_of_the_session_is_an_unknown_outcome(env) {
        let (direct, path, proxy) = (env.client().await, env.path("queue"), env.proxy());
        rejected(&locked(&direct, &path), &texts(0..2)).await;
        let client = connected(through(&proxy, LONG)).await;
        let queue = locked(&client, &path);
        for (is_applied, name) in [(true, "queue-0000000000"), (false, "queue-0000000001")] {
            let session = in_time(client.session()).await.unwrap();
            let before = proxy.faults_done();
            proxy.refuse();
            match is_applied {
                true => proxy.drop_reply(OpCode::Multi, 1),
                false => proxy.drop_request(OpCode::Multi, 1),
            }
            let ends = async {
                proxy.wait_for_faults(before + 1).await;
                in_time(env.kill_session(&session)).await;
                proxy.accept();
            };
            let (unknown, ()) = tokio::join!(in_time(queue.retry_dead(name)), ends);
            let unknown = unknown.unwrap_err();
            assert!(unknown.outcome_unknown(), "{unknown:?}");
            assert_eq!(in_time(queue.retry_dead(name)).await.unwrap(), !is_applied, "the next call knows");
        }
        let mut consumer = locked(&direct, &path).consumer();
        assert_eq!(drained(&mut consumer, 2).await, texts(0..2));
        nothing(&mut consumer).await;
    }

    async fn without_the_right_to_a_marker_a_lost_reply_does_not_put_twice(env) {
        let (folder, beside) = (env.path("folder"), env.path("beside"));
        let owner = connected(builder(env.address()).authorization("digest", "owner:secret")).await;
        let acl = [Acl::creator_all(), Acl::read_unsafe()].concat();
        in_time(owner.create().creating_parents_if_needed().with_acl(acl).for_path(&folder)).await.unwrap();
        let path = format!("{folder}/queue");
        in_time(owner.create().with_acl(Acl::open_unsafe()).for_path(&path)).await.unwrap();
        let options = locks(&beside).dead_letters(format!("{beside}-dead"));
        let (direct, proxy) = (env.client().await, env.proxy());
        rejected(&with(&direct, &path, options.clone()), &texts(0..2)).await;
        let queue = with(&connected(through(&proxy, LONG)).await, &path, options);
        for name in ["queue-0000000000", "queue-0000000001"] {
            // The marker of the first transaction is refused.
            proxy.drop_reply(OpCode::Multi, if name.ends_with('0') { 2 } else { 1 });
            assert!(in_time(queue.retry_dead(name)).await.unwrap(), "{name}");
        }
        assert_eq!(proxy.faults_done(), 2);
        assert_eq!(children(&direct, &folder).await, ["queue"]);
        assert_eq!(in_time(queue.len()).await.unwrap(), 2);
    }

    async fn letter_that_cannot_be_moved_stays(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let (queue, dead) = (locked(&client, &path), format!("{path}-dead"));
        assert!(!in_time(queue.retry_dead("queue-0000000000")).await.unwrap(), "there is none");
        rejected(&queue, &texts(0..1)).await;
        let create = client.create().with_mode(CreateMode::PersistentSequential).with_data("no item");
        in_time(create.for_path(&format!("{dead}/queue-"))).await.unwrap();
        in_time(client.create().for_path(&format!("{dead}/notes-0000000000"))).await.unwrap();
        let corrupt = in_time(queue.retry_dead("queue-0000000001")).await;
        assert!(matches!(corrupt, Err(QueueError::Corrupt { .. })), "{corrupt:?}");
        for name in ["notes-0000000000", "queue-last", ""] {
            let foreign = in_time(queue.retry_dead(name)).await;
            assert!(matches!(foreign, Err(QueueError::Foreign { .. })), "{name}: {foreign:?}");
        }
        in_time(client.delete().for_path(&path)).await.unwrap();
        let missing = in_time(queue.retry_dead("queue-0000000000")).await;
        assert!(matches!(missing, Err(QueueError::Framework(Error::NoNode { .. }))), "{missing:?}");
        assert_eq!(children(&client, &dead).await.len(), 3);
        // Room is not waited for.
        let queue = with(&client, &path, locks(&path).max_items(1));
        in_time(queue.put(&"full".to_owned())).await.unwrap();
        assert!(in_time(queue.retry_dead("queue-0000000000")).await.unwrap());
        assert_eq!(in_time(queue.len()).await.unwrap(), 2);
    }
}

//! Items that a consumer gives back, or loses, while a consumer of the other language waits.

use std::time::UNIX_EPOCH;

use curator_framework::{CreateMode, CuratorOp, LossReason};
use curator_integration::env::{Env, Kind, children, eventually, in_time};
use curator_recipes::QueueError;
use curator_test::kill_session;

use super::{Queue, next};
use crate::peer::Peer;

/// Java checks an item with a lock again when the list of children changes, so a return changes the list.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn item_that_is_given_back_wakes_java() {
    let env = Env::new(Kind::InProcess);
    let (java, client) = (Peer::java(&env).await, env.client().await);
    for end in ["retry", "release", "drop", "requeue", "dropped consumer"] {
        let queue = Queue::locked("plain", &env.path(&end.replace(' ', "-")));
        let (ours, mut javas) = (queue.ours(&client), queue.of(&java, "consumer"));
        let mut consumer = ours.consumer();
        ours.put(&["item"], "", false).await;
        let delivery = next(&mut consumer).await;
        javas.does("consume 0", "consuming").await;
        // Java has skipped the item once it has got a later one.
        ours.put(&["later"], "", false).await;
        javas.gets("later").await;
        assert!(javas.thread.is_silent());
        match end {
            "retry" => in_time(delivery.retry()).await.unwrap(),
            "release" => assert!(in_time(delivery.release()).await.unwrap().is_released()),
            "drop" => drop(delivery),
            "requeue" => in_time(delivery.requeue()).await.unwrap(),
            _ => {
                drop(consumer);
                drop(delivery);
            }
        }
        javas.gets("item").await;
        eventually("nothing is left", async || children(&client, &queue.path).await.is_empty()).await;
        javas.does("close", "closed").await;
    }
    java.end().await;
}

/// Java takes an item that was requeued, with our bytes behind its own ones. We take one that Java has requeued, which
/// costs it its priority or its time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_takes_what_the_other_has_requeued() {
    let env = Env::new(Kind::InProcess);
    let (java, client) = (Peer::java(&env).await, env.client().await);
    for (kind, argument) in [("plain", ""), ("id", "job"), ("priority", "7"), ("delay", "5000")] {
        let queue = Queue::locked(kind, &env.path(kind));
        let (ours, mut javas) = (queue.ours(&client), queue.of(&java, "consumer"));
        ours.put(&["item"], argument, false).await;
        let mut consumer = ours.consumer();
        let first = next(&mut consumer).await;
        in_time(first.requeue()).await.unwrap();
        let requeued = children(&client, &queue.path).await;
        javas.does("consume -1", "consuming").await;
        javas.gets("item").await;
        // The close throws in its work, so it requeues the item.
        javas.does("close", "closed").await;
        eventually("Java has requeued it", async || children(&client, &queue.path).await != requeued).await;
        let last = next(&mut consumer).await;
        assert_eq!((last.items(), last.attempt()), (&["item".to_owned()][..], 2), "{kind}");
        assert_eq!(last.key(), first.key(), "{kind}");
        assert_eq!(last.id(), (kind == "id").then_some("job"));
        assert_eq!(last.priority(), None);
        assert_eq!(last.due(), (kind == "delay").then_some(UNIX_EPOCH));
        in_time(last.complete()).await.unwrap();
        assert_eq!(children(&client, &queue.path).await, [""; 0], "{kind}");
    }
    java.end().await;
}

/// CURATOR-605: a Java consumer that has lost its session deletes the item, and the lock of the next consumer. Ours is
/// notified, and its effects are not made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn java_consumer_without_a_session_ends_our_delivery_and_we_are_told() {
    let env = Env::new(Kind::InProcess);
    let (java, client) = (Peer::java(&env).await, env.client().await);
    let queue = Queue::locked("plain", &env.path("queue"));
    let (ours, mut javas) = (queue.ours(&client), queue.of(&java, "consumer"));
    javas.does("consume -1", "consuming").await;
    ours.put(&["item"], "", false).await;
    javas.gets("item").await;
    kill_session(env.address(), java.session().await).await.unwrap();
    let delivery = next(&mut ours.consumer()).await;
    in_time(delivery.verify()).await.unwrap();
    javas.opens(&java).await;
    assert_eq!(in_time(delivery.lost()).await, LossReason::NodeDeleted);
    let effect = CuratorOp::create(env.path("effect-")).with_mode(CreateMode::PersistentSequential);
    let outcome = in_time(delivery.complete_with(&client.transaction().operations([effect]))).await;
    assert!(matches!(outcome, Err(QueueError::Lost { .. } | QueueError::AlreadyGone { .. })), "{outcome:?}");
    assert!(children(&client, &queue.path).await.is_empty());
    let root = env.path("");
    assert!(!children(&client, root.trim_end_matches('/')).await.iter().any(|name| name.starts_with("effect")));
    java.end().await;
}

//! Defects of Curator's queues, by their numbers in `tests/conformance/conformance.md`, and Curator's test of many
//! producers with a limit.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use curator_framework::{CreateMode, CuratorOp, Error, RetryNTimes};
use curator_integration::env::{children, connected, in_time};
use curator_integration::on_every_server;
use curator_recipes::{Codec, CodecError, Delivery, DistributedQueue, QueueError, QueueOptions, RawCodec};
use curator_test::wire::OpCode;
use futures_util::FutureExt as _;
use futures_util::future::join_all;

use crate::stage::{LONG, completed, drained, locked, locks, next, nothing, plain, texts, through, with};

/// A codec that panics at the items "panic".
struct Panicking;

impl Codec<String> for Panicking {
    fn encode(&self, item: &String) -> Result<Vec<u8>, CodecError> {
        RawCodec.encode(item)
    }

    fn decode(&self, data: &[u8]) -> Result<String, CodecError> {
        assert_ne!(data, b"panic", "on purpose");
        RawCodec.decode(data)
    }
}

on_every_server! {
    // TestBoundedDistributedQueue.testMulti.
    async fn many_producers_exceed_the_limit_by_one_item_each(env) {
        const PRODUCERS: usize = 4;
        let path = env.path("queue");
        let options = QueueOptions::new().at_most_once().max_items(10);
        let clients = join_all((0..PRODUCERS).map(|_| env.client())).await;
        let queues: Vec<_> = clients.iter().map(|client| with(client, &path, options.clone())).collect();
        let puts = queues.iter().enumerate().map(|(number, queue)| async move {
            for text in texts(number * 25..number * 25 + 25) {
                in_time(queue.put(&text)).await.unwrap();
            }
        });
        let mut consumer = plain(&env.client().await, &path).consumer();
        let takes = async {
            let mut taken = Vec::new();
            while taken.len() < PRODUCERS * 25 {
                let len = in_time(queues[0].len()).await.unwrap();
                assert!(len < (10 + PRODUCERS) as u64, "{len}");
                taken.extend(completed(&mut consumer).await);
            }
            taken
        };
        let (_, mut taken) = tokio::join!(join_all(puts), takes);
        taken.sort_unstable_by_key(|text| text.parse::<usize>().unwrap());
        assert_eq!(taken, texts(0..PRODUCERS * 25));
    }

    // Defect 8: Java's consumer never learns of its connection. A consumer that waits has nothing to report: it
    // continues when the connection is back.
    async fn holder_is_told_that_the_connection_is_lost_and_the_consumer_continues(env) {
        let (direct, path, proxy) = (env.client().await, env.path("queue"), env.proxy());
        let retry = RetryNTimes::new(1, Duration::from_millis(50));
        let options = through(&proxy, LONG).connection_timeout(Duration::from_millis(500)).retry_policy(retry);
        let client = connected(options).await;
        let producer = locked(&direct, &path);
        let mut consumer = locked(&client, &path).consumer();
        in_time(producer.put(&"first".to_owned())).await.unwrap();
        let delivery = next(&mut consumer).await;
        // It reads the queue, sets its watch, reads the queue again, and waits.
        while proxy.replies(OpCode::AddWatch) == 0 {
            nothing(&mut consumer).await;
        }
        nothing(&mut consumer).await;
        let waiting = tokio::spawn(async move { (consumer.next().await, consumer) });
        proxy.refuse();
        proxy.reset();
        let told = in_time(delivery.complete()).await.unwrap_err();
        assert!(matches!(&told, QueueError::Framework(Error::ConnectionLoss { .. })) && told.is_retryable(), "{told:?}");
        assert!(delivery.is_held() && !waiting.is_finished());
        in_time(producer.put(&"second".to_owned())).await.unwrap();
        proxy.accept();
        in_time(client.block_until_connected()).await.unwrap();
        in_time(delivery.complete()).await.unwrap();
        let (second, _consumer) = in_time(waiting).await.unwrap();
        assert_eq!(second.unwrap().unwrap().items(), ["second"]);
    }

    // Defect 9: Java's number of messages is always 0.
    async fn length_counts_the_items_in_work(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = locked(&client, &path);
        assert_eq!(in_time(queue.len()).await.unwrap(), 0);
        for text in texts(0..3) {
            in_time(queue.put(&text)).await.unwrap();
        }
        let delivery = next(&mut queue.consumer()).await;
        assert_eq!(in_time(queue.len()).await.unwrap(), 3);
        in_time(delivery.complete()).await.unwrap();
        assert_eq!(in_time(queue.len()).await.unwrap(), 2);
    }

    // Defect 14: Java delivers the items of a node again, those before the failure too. Here a node is one delivery with one
    // end: its effects are made together or not at all.
    async fn effects_of_a_batch_are_made_once_however_often_it_is_delivered(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = locked(&client, &path);
        in_time(queue.put_batch(&texts(0..3))).await.unwrap();
        in_time(queue.put(&"alone".to_owned())).await.unwrap();
        let effect = |item: &String| CuratorOp::create(format!("{path}-effect-{item}-")).with_mode(CreateMode::PersistentSequential);
        let mut consumer = queue.consumer();
        for attempt in 1..=3 {
            let batch = next(&mut consumer).await;
            assert_eq!((batch.items(), batch.attempt()), (&texts(0..3)[..], attempt));
            let mut effects: Vec<_> = batch.items().iter().map(effect).collect();
            if attempt < 3 {
                // The last item fails.
                effects.push(CuratorOp::delete(format!("{path}-missing")));
            }
            let outcome = in_time(batch.complete_with(&client.transaction().operations(effects))).await;
            match attempt {
                3 => outcome.unwrap(),
                _ => {
                    assert!(matches!(outcome, Err(QueueError::Framework(Error::Transaction { .. }))), "{outcome:?}");
                    in_time(batch.retry()).await.unwrap();
                }
            }
        }
        let (parent, _) = path.rsplit_once('/').unwrap();
        let made = children(&client, parent).await.into_iter().filter(|name| name.contains("-effect-")).count();
        assert_eq!(made, 3);
        assert_eq!(completed(&mut consumer).await, ["alone"]);
    }

    // Defect 16: an exception outside of the work ends Java's consumer. A panic of the work ends the run that called it, gives
    // the item back, and leaves the consumer as it was.
    async fn panic_of_the_work_gives_its_item_back_and_the_consumer_continues(env) {
        let queue = locked(&env.client().await, &env.path("queue"));
        for text in texts(0..3) {
            in_time(queue.put(&text)).await.unwrap();
        }
        let (mut consumer, panics) = (queue.consumer(), AtomicBool::new(true));
        let work = |delivery: Delivery<String>| {
            assert!(!panics.swap(false, Ordering::SeqCst), "on purpose");
            async move { in_time(delivery.complete()).await.unwrap() }
        };
        let run = AssertUnwindSafe(in_time(consumer.run(1, work))).catch_unwind().await;
        assert!(run.is_err());
        let mut taken = drained(&mut consumer, 3).await;
        taken.sort_unstable();
        assert_eq!(taken, texts(0..3));
        assert!(in_time(queue.is_empty()).await.unwrap());
    }

    async fn panic_of_the_codec_strands_no_item(env) {
        let (client, path) = (env.client().await, env.path("queue"));
        let queue = DistributedQueue::with_options(client.clone(), &*path, Panicking, locks(&path)).unwrap();
        for text in ["panic", "next"] {
            in_time(queue.put(&text.to_owned())).await.unwrap();
        }
        let mut consumer = queue.consumer();
        let next = AssertUnwindSafe(in_time(consumer.next())).catch_unwind().await;
        assert!(next.is_err());
        drop(consumer);
        assert_eq!(drained(&mut locked(&client, &path).consumer(), 2).await, ["panic", "next"]);
    }

    // Defect 17: behind an error in the middle of an item, Java waits for the next change of the list.
    async fn item_is_delivered_behind_a_lost_connection_without_another_change(env) {
        let (direct, path) = (env.client().await, env.path("queue"));
        for (number, fault) in [OpCode::GetData, OpCode::Multi].into_iter().enumerate() {
            let path = format!("{path}-{number}");
            in_time(locked(&direct, &path).put(&"item".to_owned())).await.unwrap();
            let proxy = env.proxy();
            let client = connected(through(&proxy, Duration::from_secs(30))).await;
            let mut consumer = locked(&client, &path).consumer();
            proxy.drop_request(fault, 1);
            assert_eq!(completed(&mut consumer).await, ["item"]);
            assert_eq!(proxy.faults_done(), 1);
            assert!(children(&direct, &path).await.is_empty());
        }
    }
}

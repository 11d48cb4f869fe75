//! Curator's `TestDistributedAtomicLong` and `TestCachedAtomicCounter`, where `numbers.rs` does not have them.

use curator_framework::CuratorFramework;
use curator_integration::env::in_time;
use curator_integration::on_every_server;
use curator_recipes::{CachedAtomicLong, CounterError, CounterOptions, DistributedAtomicLong, PromotedToLock};
use tokio::task::JoinSet;

use crate::stage::{long, patient, retries, values};

/// A counter with one try, and a lock under which it never gives up.
fn promoted(client: &CuratorFramework, path: &str, lock: &str) -> DistributedAtomicLong {
    let options = CounterOptions::new().promoted_to_lock(PromotedToLock::new(lock).retry_policy(patient()));
    DistributedAtomicLong::with_options(client.clone(), path, retries(0), options).unwrap()
}

on_every_server! {
    /// `TestDistributedAtomicLong.testForceSet`. Its one assertion is made before the tasks have started.
    async fn force_set_is_done_beside_increments(env) {
        let path = env.path("counter");
        let (setting, counting) = (long(&env.client().await, &path), long(&env.client().await, &path));
        let set = async {
            for _ in 0..100 {
                in_time(setting.force_set(0)).await.unwrap();
            }
        };
        let count = async {
            for _ in 0..100 {
                let change = in_time(counting.increment()).await.unwrap();
                assert_eq!(change.post_value, change.pre_value + 1);
                assert!((0..100).contains(&change.pre_value), "{change:?}");
            }
        };
        tokio::join!(set, count);
        assert!((0..=100).contains(&in_time(setting.get()).await.unwrap()));
        in_time(setting.force_set(0)).await.unwrap();
        assert_eq!(in_time(counting.get()).await.unwrap(), 0);
    }

    /// `TestDistributedAtomicLong.testSimulation`, which does not compare the sum.
    async fn changes_of_twenty_clients_count_once_each(env) {
        const CLIENTS: i64 = 20;
        const CHANGES: i64 = 50;
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            let counter = promoted(&env.client().await, &env.path("counter"), &env.path("lock"));
            clients.spawn(async move {
                let (mut numbers, mut tries) = (Vec::new(), (0, 0));
                for _ in 0..CHANGES {
                    let change = in_time(counter.increment()).await.unwrap();
                    assert!(numbers.last().is_none_or(|last| *last < change.post_value), "{numbers:?}, {change:?}");
                    numbers.push(change.post_value);
                    tries.0 += change.stats.optimistic_tries;
                    tries.1 += change.stats.promoted_tries;
                }
                in_time(counter.release_marker()).await;
                (numbers, tries)
            });
        }
        let (mut numbers, mut tries) = (Vec::new(), (0, 0));
        for (ours, (optimistic, promoted)) in clients.join_all().await {
            numbers.extend(ours);
            tries = (tries.0 + optimistic, tries.1 + promoted);
        }
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(1..=CLIENTS * CHANGES));
        assert!(tries.0 > 0 && tries.1 > 0, "{tries:?}");
    }

    /// `TestDistributedAtomicLong.testBasic`.
    async fn each_change_returns_the_number_before_and_after_it(env) {
        let counter = long(&env.client().await, &env.path("foo/bar/counter"));
        for (change, before, after) in [
            (in_time(counter.increment()).await, 0, 1),
            (in_time(counter.decrement()).await, 1, 0),
            (in_time(counter.add(10)).await, 0, 10),
            (in_time(counter.subtract(5)).await, 10, 5),
        ] {
            let change = change.unwrap();
            assert_eq!(values(&change), (before, after));
            assert_eq!((change.stats.optimistic_tries, change.stats.promoted_tries), (1, 0), "{change:?}");
        }
    }

    /// `TestCachedAtomicCounter.testWithError`: the numbers that were reserved are still there.
    async fn reserved_numbers_outlive_an_error_of_their_counter(env) {
        const FACTOR: i64 = 100;
        let (client, path) = (env.client().await, env.path("counter"));
        let cached = CachedAtomicLong::new(long(&client, &path), FACTOR).unwrap();
        for number in 1..=FACTOR {
            assert_eq!(in_time(cached.next()).await.unwrap(), number);
            if number == 1 {
                client.set_data().for_path(&path, "not a number").await.unwrap();
            }
        }
        let refused = in_time(cached.next()).await;
        assert!(matches!(refused, Err(CounterError::NotANumber { length: 12, .. })), "{refused:?}");
    }

    /// `TestCachedAtomicCounter.testBasic`.
    async fn cached_numbers_of_one_client_have_no_gap(env) {
        let counter = long(&env.client().await, &env.path("counter"));
        let cached = CachedAtomicLong::new(counter.clone(), 100).unwrap();
        for number in 1..=200 {
            assert_eq!(in_time(cached.next()).await.unwrap(), number);
        }
        assert_eq!(in_time(counter.get()).await.unwrap(), 200);
    }
}

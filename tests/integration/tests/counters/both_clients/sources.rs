//! Numbers in advance: Curator's `TestCachedAtomicCounter`, and unique ids.

use std::collections::BTreeSet;

use curator_integration::env::{connected, in_time};
use curator_integration::on_every_server;
use curator_recipes::{
    CachedAtomicInteger, CachedAtomicLong, CounterError, DistributedAtomicInteger, DistributedAtomicLong, UniqueIds,
};
use curator_test::wire::OpCode;
use futures_util::future::join_all;

use crate::stage::{LONG, long, patient, through};

on_every_server! {
    async fn cached_numbers_are_taken_several_at_a_time(env) {
        let (client, path) = (env.client().await, env.path("count"));
        let number = long(&client, &path);
        let cached = CachedAtomicLong::new(number.clone(), 100).unwrap();
        for expected in 1..=200 {
            assert_eq!(in_time(cached.next()).await.unwrap(), expected);
            assert_eq!(in_time(number.get()).await.unwrap(), if expected <= 100 { 100 } else { 200 });
        }
        // Another object, or process, has numbers of its own.
        let other = CachedAtomicLong::new(long(&client, &path), 10).unwrap();
        assert_eq!(in_time(other.next()).await.unwrap(), 201);
        assert_eq!(in_time(cached.next()).await.unwrap(), 211);
        assert_eq!(in_time(other.next()).await.unwrap(), 202);
        let tasks = join_all((0..500).map(|_| {
            let cached = cached.clone();
            tokio::spawn(async move { cached.next().await.unwrap() })
        }));
        let numbers: BTreeSet<_> = in_time(tasks).await.into_iter().map(|number| number.unwrap()).collect();
        assert_eq!(numbers.len(), 500);
    }

    /// Curator's accepts such a factor, and its `testWithError` tells a failed change by a flag.
    async fn cached_numbers_need_a_positive_factor_and_report_errors(env) {
        let (client, path) = (env.client().await, env.path("count"));
        let number = DistributedAtomicInteger::new(client.clone(), &path, patient()).unwrap();
        for factor in [0, -1, i32::MIN] {
            let error = CachedAtomicInteger::new(number.clone(), factor).unwrap_err();
            assert!(matches!(error, CounterError::InvalidArgument { argument: "factor", .. }), "{error}");
        }
        in_time(number.force_set(i32::MAX - 3)).await.unwrap();
        let cached = CachedAtomicInteger::new(number.clone(), 2).unwrap();
        assert_eq!(in_time(cached.next()).await.unwrap(), i32::MAX - 2);
        assert_eq!(in_time(cached.next()).await.unwrap(), i32::MAX - 1);
        for _ in 0..2 {
            let error = in_time(cached.next()).await.unwrap_err();
            assert!(matches!(error, CounterError::Overflow { .. }), "{error}");
        }
        in_time(number.force_set(0)).await.unwrap();
        assert_eq!(in_time(cached.next()).await.unwrap(), 1);
    }

    async fn ids_are_unique_over_sessions_and_rise(env) {
        let path = env.path("a/ids");
        let mut tasks = Vec::new();
        for _ in 0..8 {
            let ids = UniqueIds::new(env.client().await, &path).unwrap();
            tasks.push(tokio::spawn(async move {
                let mut all = Vec::new();
                for count in [1, 30, 1, 300, 0, 2] {
                    let taken = if count == 1 { vec![ids.next().await.unwrap()] } else { ids.take(count).await.unwrap() };
                    assert_eq!(taken.len(), count);
                    all.extend(taken);
                }
                assert!(all.is_sorted(), "{all:?}");
                all
            }));
        }
        let mut all = Vec::new();
        for task in tasks {
            all.extend(in_time(task).await.unwrap());
        }
        let distinct: BTreeSet<_> = all.iter().copied().collect();
        // Without a lost reply none is missing.
        assert_eq!(distinct, (1..=8 * 334).collect());
        assert_eq!(all.len(), distinct.len());
        let later = UniqueIds::new(env.client().await, &path).unwrap();
        assert_eq!(in_time(later.next()).await.unwrap(), 8 * 334 + 1);
    }

    async fn lost_replies_lose_ids_and_repeat_none(env) {
        let (proxy, path) = (env.proxy(), env.path("ids"));
        let client = connected(through(&proxy, LONG)).await;
        let ids = UniqueIds::new(client, &path).unwrap();
        let mut newest = 0;
        for (op, count) in [(OpCode::GetChildren, 1), (OpCode::Create2, 1), (OpCode::SetData, 1), (OpCode::Multi, 5)] {
            for is_reply in [true, false] {
                // The first call finds the epoch.
                if is_reply { proxy.drop_reply(op, 1) } else { proxy.drop_request(op, 1) }
                let taken = in_time(ids.take(count)).await.unwrap();
                assert!(taken.len() == count && taken.is_sorted() && taken[0] > newest, "{op:?}: {taken:?}");
                newest = taken[count - 1];
            }
        }
    }

    async fn ids_rise_when_the_node_of_an_epoch_is_deleted(env) {
        let (client, path) = (env.client().await, env.path("ids"));
        let ids = UniqueIds::new(client.clone(), &path).unwrap();
        let mut newest = in_time(ids.next()).await.unwrap();
        for epoch in 0..3 {
            client.delete().for_path(&format!("{path}/{epoch:010}")).await.unwrap();
            let next = in_time(ids.next()).await.unwrap();
            assert!(next > newest, "{next} {newest}");
            assert_eq!(next >> 31, epoch + 1);
            newest = next;
        }
        assert!(in_time(UniqueIds::new(client, &path).unwrap().next()).await.unwrap() > newest);
    }

    async fn a_counter_of_another_length_is_not_a_source(env) {
        let (client, path) = (env.client().await, env.path("count"));
        in_time(long(&client, &path).increment()).await.unwrap();
        let number = DistributedAtomicInteger::new(client.clone(), &path, patient()).unwrap();
        let error = in_time(CachedAtomicInteger::new(number, 3).unwrap().next()).await.unwrap_err();
        assert!(matches!(error, CounterError::NotANumber { length: 8, expected: 4, .. }), "{error}");
        let long = DistributedAtomicLong::new(client, &path, patient()).unwrap();
        assert_eq!(in_time(CachedAtomicLong::new(long, 3).unwrap().next()).await.unwrap(), 2);
    }
}

//! Curator's `TestSharedCount`.

use curator_framework::{ConnectionState, CuratorFramework, RetryNTimes, Zxid};
use curator_integration::env::{Env, builder, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{SharedCount, SharedError, VersionedValue};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

async fn started(client: &CuratorFramework, path: &str, seed: i32) -> SharedCount {
    let count = SharedCount::new(client.clone(), path, seed).unwrap();
    count.start().unwrap();
    in_time(count.initialized()).await.unwrap();
    count
}

fn changes_of(count: &SharedCount) -> UnboundedReceiver<i32> {
    let (told, changes) = unbounded_channel();
    count.add_listener(move |count| told.send(*count.value()).unwrap());
    changes
}

async fn next<T>(told: &mut UnboundedReceiver<T>) -> T {
    in_time(told.recv()).await.unwrap()
}

/// The states after the first connection, which may be reported after the listener was added.
fn states_of(client: &CuratorFramework) -> UnboundedReceiver<ConnectionState> {
    let (told, states) = unbounded_channel();
    client.connection_state_listenable().add_listener(move |_, state| {
        if state != ConnectionState::Connected {
            told.send(state).unwrap();
        }
    });
    states
}

on_every_server! {
    /// `testMultiClients`.
    async fn several_clients_see_the_same_counts_in_the_same_order(env) {
        const CLIENTS: usize = 5;
        let path = env.path("count");
        let mut all = Vec::new();
        for _ in 0..CLIENTS {
            let count = started(&env.client().await, &path, 10).await;
            let changes = changes_of(&count);
            all.push((count, changes));
        }
        let writer = started(&env.client().await, &path, 10).await;
        for number in 0..100 {
            let value = (number * 7919) % 101 - 50;
            writer.set_count(value).await.unwrap();
            for (count, changes) in &mut all {
                assert_eq!(next(changes).await, value);
                assert_eq!(count.count().unwrap(), value);
            }
        }
        for (count, mut changes) in all {
            assert!(changes.try_recv().is_err());
            count.close().await;
        }
    }

    /// `testSimple`.
    async fn a_count_is_set_and_told(env) {
        let count = started(&env.client().await, &env.path("count"), 0).await;
        let mut changes = changes_of(&count);
        for value in [1, 2, 10] {
            assert!(count.try_set_count(&count.versioned_value().unwrap(), value).await.unwrap());
            assert_eq!(next(&mut changes).await, value);
        }
        assert_eq!(count.count().unwrap(), 10);
    }

    /// `testSimpleVersioned`.
    async fn a_count_is_set_only_if_it_is_the_previous_one(env) {
        let (client, path) = (env.client().await, env.path("count"));
        let count = started(&client, &path, 0).await;
        let mut current = count.versioned_value().unwrap();
        assert_eq!(current.version(), 0);
        for (version, value) in [(1, 1), (2, 5), (3, 10)] {
            assert!(count.try_set_count(&current, value).await.unwrap());
            current = count.versioned_value().unwrap();
            assert_eq!((current.version(), *current.value(), count.count().unwrap()), (version, value, value));
        }
        // Wrong value, wrong zxid.
        let wrong = VersionedValue::new(current.zxid(), 3, 5);
        assert!(!count.try_set_count(&wrong, 20).await.unwrap());
        let wrong = VersionedValue::new(Zxid::new(current.zxid().get() + 1), 3, 10);
        assert!(!count.try_set_count(&wrong, 20).await.unwrap());
        // Whether it is known already or not.
        client.set_data().for_path(&path, 2_i32.to_be_bytes()).await.unwrap();
        assert!(!count.try_set_count(&current, 20).await.unwrap());
        eventually("the change is seen", async || count.count().unwrap() == 2).await;
        let unknown = VersionedValue::new(current.zxid(), -1, 10);
        let refused = count.try_set_count(&unknown, 20).await;
        assert!(matches!(refused, Err(SharedError::IllegalTrySetVersion { .. })), "{refused:?}");
        assert_eq!(client.get_data().for_path(&path).await.unwrap().0, [0, 0, 0, 2]);
    }

    /// `testMultiClientVersioned`.
    async fn of_two_clients_the_one_with_the_old_count_tries_again(env) {
        let path = env.path("count");
        let one = started(&env.client().await, &path, 10).await;
        let two = started(&env.client().await, &path, 20).await;
        let first = one.versioned_value().unwrap();
        assert_eq!((*first.value(), two.versioned_value().unwrap()), (10, first));
        assert!(two.try_set_count(&first, 30).await.unwrap());
        // The first one may not know of it yet.
        assert!(!one.try_set_count(&first, 40).await.unwrap());
        let fresh = one.versioned_value().unwrap();
        assert_eq!(*fresh.value(), 30, "who was refused knows why");
        assert!(one.try_set_count(&fresh, 40).await.unwrap());
        eventually("the other sees it", async || two.count().unwrap() == 40).await;
    }

    /// `testMultiClientDifferentSeed`.
    async fn the_second_seed_is_not_used(env) {
        let path = env.path("count");
        let one = started(&env.client().await, &path, 10).await;
        let two = started(&env.client().await, &path, 20).await;
        assert_eq!((one.count().unwrap(), two.count().unwrap()), (10, 10));
    }

    /// `testDisconnectEventOnWatcherDoesNotRetry`.
    async fn a_lost_connection_is_told_without_retries(env) {
        let proxy = env.proxy();
        let patient = RetryNTimes::new(10, Duration::from_secs(10));
        let client = connected(builder(proxy.address()).retry_policy(patient)).await;
        let count = started(&client, &env.path("count"), 10).await;
        let mut states = states_of(&client);
        proxy.refuse();
        proxy.reset();
        assert_eq!(next(&mut states).await, ConnectionState::Suspended);
        count.close().await;
    }

    /// `testDisconnectReconnectEventDoesNotFireValueWatcher` (CURATOR-344, CURATOR-311).
    async fn a_reconnect_is_no_change(env) {
        let (proxy, other) = (env.proxy(), env.client().await);
        let path = env.path("count");
        let client = connected(builder(proxy.address())).await;
        let count = started(&client, &path, 10).await;
        let (mut changes, mut states) = (changes_of(&count), states_of(&client));
        count.set_count(11).await.unwrap();
        assert_eq!(next(&mut changes).await, 11);
        proxy.refuse();
        proxy.reset();
        assert_eq!(next(&mut states).await, ConnectionState::Suspended);
        proxy.accept();
        assert_eq!(next(&mut states).await, ConnectionState::Reconnected);
        // The next report is the next change, once.
        other.set_data().for_path(&path, 12_i32.to_be_bytes()).await.unwrap();
        assert_eq!(next(&mut changes).await, 12);
        assert!(count.try_set_count(&count.versioned_value().unwrap(), 13).await.unwrap());
        assert_eq!(next(&mut changes).await, 13);
        assert!(changes.try_recv().is_err());
    }

    /// `testDisconnectReconnectWithMultipleClients`.
    async fn a_count_is_fresh_after_each_restart_of_the_server(env) {
        let env: Env = env.alone();
        let (proxy, path) = (env.proxy(), env.path("count"));
        let one = started(&connected(builder(proxy.address())).await, &path, 10).await;
        let two = started(&env.client().await, &path, 10).await;
        for value in 0..10 {
            proxy.refuse();
            env.restart().await;
            // It is changed while the other is away, and the other's watch is gone.
            in_time(two.set_count(value)).await.unwrap();
            proxy.accept();
            eventually("it is read again", async || one.count().unwrap() == value).await;
        }
    }
}

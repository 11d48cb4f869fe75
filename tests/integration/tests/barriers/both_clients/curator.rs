//! Curator's `TestDistributedBarrier`, where `barrier.rs` does not have it.

use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{CuratorFramework, Error, RetryOneTime};
use curator_integration::env::{PATIENCE, builder, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{BarrierError, DistributedBarrier};
use tokio::task::JoinSet;

fn barrier(client: &CuratorFramework, path: &str) -> DistributedBarrier {
    DistributedBarrier::new(client.clone(), path).unwrap()
}

/// Waits until the server has the node of a waiter's barrier with its watch: a client counts the watches it waits for.
async fn waits(client: &CuratorFramework) {
    eventually("the waiter watches", async || client.watchers() > 0).await;
}

on_every_server! {
    /// `TestDistributedBarrier.testServerCrash`. Curator's wait fails with the connection. Ours fails when the client's
    /// retry policy gives up on a new session.
    async fn wait_fails_when_no_server_comes_back(env) {
        let proxy = env.proxy();
        let options = builder(proxy.address()).session_timeout(Duration::from_secs(2));
        let options = options.connection_timeout(Duration::from_secs(1));
        let client = connected(options.retry_policy(RetryOneTime::new(Duration::from_millis(1)))).await;
        let barrier = barrier(&client, &env.path("barrier"));
        in_time(barrier.set_barrier()).await.unwrap();
        let crash = async {
            waits(&client).await;
            proxy.refuse();
            proxy.reset();
        };
        let wait = barrier.wait_on_barrier_timeout(Duration::from_secs(2000));
        let (waited, ()) = in_time(async { tokio::join!(wait, crash) }).await;
        assert!(matches!(waited, Err(BarrierError::Framework(Error::ConnectionLoss { .. }))), "{waited:?}");
    }

    /// `TestDistributedBarrier.testMultiClient`. The barrier outlives the client that has set it.
    async fn waiters_of_two_clients_pass_when_a_third_removes_the_barrier(env) {
        let path = env.path("barrier");
        let first = env.client().await;
        in_time(barrier(&first, &path).set_barrier()).await.unwrap();
        in_time(first.close()).await;
        let mut waiters = JoinSet::new();
        for _ in 0..2 {
            let client = env.client().await;
            let barrier = barrier(&client, &path);
            assert!(in_time(barrier.wait_on_barrier_timeout(Duration::ZERO)).await.unwrap().is_none());
            waiters.spawn(async move { barrier.wait_on_barrier_timeout(PATIENCE).await });
            waits(&client).await;
        }
        in_time(barrier(&env.client().await, &path).remove_barrier()).await.unwrap();
        for waited in waiters.join_all().await {
            assert!(waited.unwrap().is_some());
        }
    }
}

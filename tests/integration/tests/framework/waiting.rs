//! Waiting for the connection: Curator's `TestBlockUntilConnected`.

use std::time::Duration;

use curator_framework::{ConnectionState, CuratorFramework, Error, RetryAttempt, RetryNTimes, RetryPolicy};
use curator_integration::connection_stage::{CLIENT, TIMEOUT, comes_to, simulated, simulation};
use curator_integration::env::{PATIENCE, builder, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_test::{ClientId, SimulatedEnsemble};
use futures_util::FutureExt;
use tokio::time::{Instant, timeout};

use crate::ground::{GROUNDS, cut_off, impatient, run};

/// One retry, after a pause longer than any test.
#[derive(Debug)]
struct InfinitePause;

impl RetryPolicy for InfinitePause {
    fn next_pause(&self, _: RetryAttempt) -> Option<Duration> {
        Some(Duration::from_secs(1_000_000))
    }
}

on_every_server! {
    /// Curator's `TestBlockUntilConnected.testBlockUntilConnectedCurrentlyConnected`.
    async fn connected_client_does_not_wait(env) {
        let client = env.client().await;
        assert!(matches!(client.block_until_connected().now_or_never(), Some(Ok(()))));
    }

    /// Curator's `TestBlockUntilConnected.testBlockUntilConnectedCurrentlyNeverConnected`.
    async fn the_first_connection_ends_the_wait(env) {
        let proxy = env.proxy();
        proxy.refuse();
        let client = builder(proxy.address()).build().unwrap();
        client.start().unwrap();
        assert!(client.block_until_connected().now_or_never().is_none());
        proxy.accept();
        in_time(client.block_until_connected()).await.unwrap();
        assert_eq!(client.connection_state(), Some(ConnectionState::Connected));
    }

    /// Curator's `TestBlockUntilConnected.testBlockUntilConnectedCurrentlyAwaitingReconnect`.
    async fn a_reconnect_after_a_loss_ends_the_wait(env) {
        let proxy = env.proxy();
        let client = builder(proxy.address()).session_timeout(Duration::from_secs(2)).build().unwrap();
        client.start().unwrap();
        in_time(client.block_until_connected()).await.unwrap();
        proxy.refuse();
        proxy.reset();
        comes_to(&client, ConnectionState::Lost).await;
        assert!(client.block_until_connected().now_or_never().is_none());
        proxy.accept();
        in_time(client.block_until_connected()).await.unwrap();
        assert!(client.is_connected());
    }

    /// Curator's `TestBlockUntilConnected.testBlockUntilConnectedTightLoop` (CURATOR-218).
    async fn wait_for_the_connection_ends_connected(env) {
        for _ in 0..50 {
            let client = builder(env.address()).build().unwrap();
            client.start().unwrap();
            in_time(client.block_until_connected()).await.unwrap();
            assert!(client.is_connected());
            assert!(client.session().now_or_never().is_some_and(|session| session.is_ok()));
            in_time(client.close()).await;
        }
    }

    /// Curator's `TestFrameworkEdges.testReconnectAfterLoss`, `testFailure` and `connectionLossWithBackgroundTest`.
    async fn requests_fail_without_a_server_and_work_again_later(env) {
        let proxy = env.proxy();
        let client = connected(impatient(&proxy)).await;
        cut_off(&proxy, &client).await;
        for background in GROUNDS {
            let reader = client.clone();
            let read = run(background, async move { reader.get_data().for_path("/").await }).await;
            assert!(matches!(read, Err(Error::ConnectionLoss { .. } | Error::SessionExpired { .. })), "{read:?}");
        }
        proxy.accept();
        in_time(client.block_until_connected()).await.unwrap();
        in_time(client.get_data().for_path("/")).await.unwrap();
    }

    /// Curator's `TestFrameworkEdges.testBackgroundLatencyUnSleep`: the connection wakes a request that waits for it,
    /// regardless of the pauses of the policy.
    async fn what_waits_for_a_connection_runs_as_soon_as_it_is_there(env) {
        let proxy = env.proxy();
        let client = connected(builder(proxy.address()).connection_timeout(PATIENCE).retry_policy(InfinitePause)).await;
        cut_off(&proxy, &client).await;
        let waiting: Vec<_> = (0..10)
            .map(|number| {
                let (client, path) = (client.clone(), env.path(&format!("{number}")));
                tokio::spawn(async move { client.create().creating_parents_if_needed().for_path(&path).await })
            })
            .collect();
        tokio::task::yield_now().await;
        assert!(waiting.iter().all(|waiting| !waiting.is_finished()));
        proxy.accept();
        for created in waiting {
            in_time(created).await.unwrap().unwrap();
        }
    }
}

/// Curator's `TestBlockUntilConnected.testBlockUntilConnectedConnectTimeout`.
#[tokio::test(start_paused = true)]
async fn a_wait_without_a_server_ends_when_its_time_is_over() {
    let ensemble = simulation(21);
    ensemble.partition(CLIENT);
    let client = simulated(&ensemble, CLIENT).build().unwrap();
    client.start().unwrap();
    let (start, five) = (Instant::now(), Duration::from_secs(5));
    assert!(timeout(five, client.block_until_connected()).await.is_err());
    assert_eq!(start.elapsed(), five);
    assert!(!client.is_connected());
}

/// Curator's `TestBlockUntilConnected.testBlockUntilConnectedInterrupt`: what interrupts a wait here is to drop it.
#[tokio::test(start_paused = true)]
async fn a_wait_that_is_dropped_costs_nothing() {
    let ensemble = simulation(22);
    ensemble.partition(CLIENT);
    let client = simulated(&ensemble, CLIENT).build().unwrap();
    client.start().unwrap();
    let wait = |client: CuratorFramework| tokio::spawn(async move { client.block_until_connected().await });
    let (dropped, kept) = (wait(client.clone()), wait(client.clone()));
    tokio::task::yield_now().await;
    dropped.abort();
    assert!(dropped.await.unwrap_err().is_cancelled());
    ensemble.repair(CLIENT);
    timeout(TIMEOUT, kept).await.unwrap().unwrap().unwrap();
    eventually("connected", async || client.is_connected()).await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_timeout_without_end_is_refused_or_works() {
    let ensemble = SimulatedEnsemble::new(1, Duration::from_millis(1));
    let options = ensemble.client(ClientId(1)).connection_timeout(Duration::MAX);
    let Ok(client) = options.retry_policy(RetryNTimes::new(3, Duration::from_millis(50))).build() else { return };
    client.start().unwrap();
    tokio::time::timeout(Duration::from_secs(60), client.block_until_connected()).await.expect("connected").unwrap();
}

//! Waiting for the connection: Curator's `TestBlockUntilConnected`.

use std::time::Duration;

use curator_framework::{ConnectionState, CuratorFramework};
use futures_util::FutureExt;
use tokio::time::{Instant, timeout};

use crate::env::{builder, eventually, in_time};
use crate::stage::{CLIENT, TIMEOUT, comes_to, simulated, simulation};

on_every_server! {
    /// Curator's `TestBlockUntilConnected.testBlockUntilConnectedCurrentlyConnected`.
    async fn who_is_connected_does_not_wait(env) {
        let client = env.client().await;
        assert!(matches!(client.block_until_connected().now_or_never(), Some(Ok(()))));
    }

    /// Curator's `TestBlockUntilConnected.testBlockUntilConnectedCurrentlyNeverConnected`.
    async fn the_first_connection_ends_the_wait(env) {
        let client = builder(env.address()).build().unwrap();
        client.start().unwrap();
        assert!(client.block_until_connected().now_or_never().is_none());
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
    async fn who_has_waited_is_connected(env) {
        for _ in 0..50 {
            let client = builder(env.address()).build().unwrap();
            client.start().unwrap();
            in_time(client.block_until_connected()).await.unwrap();
            assert!(client.is_connected());
            assert!(client.session().now_or_never().is_some_and(|session| session.is_ok()));
            in_time(client.close()).await;
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

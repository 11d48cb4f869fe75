//! The ends of latches: by their runtime, their last clone, their client.

use std::time::Duration;

use curator_framework::{ConnectionState, FixedEnsembleProvider, RetryNTimes};
use curator_integration::env::{connected, eventually, in_time};
use curator_integration::in_process::{client, options, server};
use curator_recipes::{LeaderError, LeaderLatch, LeaderLatchOptions, LeaderState, ObserverState};
use curator_test::FaultProxy;
use tokio::runtime::Builder;
use tokio::sync::watch;

use crate::moves::started;

#[test]
fn a_latch_is_closed_when_its_runtime_ends() {
    let server = server();
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let latch = runtime.block_on(async {
        let latch = started(&client(&server).await);
        in_time(latch.leading()).await.unwrap();
        latch
    });
    drop(runtime);
    let other = Builder::new_current_thread().enable_all().build().unwrap();
    let led = other.block_on(async { in_time(latch.leading()).await });
    assert!(matches!(led, Err(LeaderError::Closed { .. })), "{led:?}");
}

#[tokio::test]
async fn the_drop_of_a_latch_publishes_its_end() {
    let server = server();
    let latch = started(&client(&server).await);
    in_time(latch.leading()).await.unwrap();
    let (mut states, mut changes) = (latch.watch(), latch.changes());
    drop(latch);
    let last = in_time(states.wait_for(|state| matches!(state, LeaderState::Closed))).await;
    assert!(last.is_ok());
    while in_time(changes.recv()).await.is_some() {}
}

#[tokio::test]
async fn a_latch_that_is_not_eligible_ends_with_its_client() {
    let server = server();
    let client = client(&server).await;
    let (_eligible, receiver) = watch::channel(false);
    let latch =
        LeaderLatch::with_options(client.clone(), "/election", LeaderLatchOptions::new().eligible(receiver)).unwrap();
    latch.start().unwrap();
    eventually("it abstains", async || matches!(latch.state(), LeaderState::Abstaining)).await;
    in_time(client.close()).await;
    let led = in_time(latch.leading()).await;
    assert!(matches!(led, Err(LeaderError::Closed { .. })), "{led:?}");
}

/// The client may be started later than the recipes that use it.
#[tokio::test]
async fn a_latch_and_an_observer_wait_for_the_start_of_their_client() {
    let server = server();
    let client = options(&server).build().unwrap();
    let (latch, observer) = (started(&client), curator_integration::following::observer(client.clone(), "/election"));
    let (mut states, mut observed) = (latch.watch(), observer.watch());
    let early = async {
        tokio::select! {
            state = states.wait_for(|state| !matches!(state, LeaderState::Waiting { .. })) => panic!("{state:?}"),
            observed = observed.wait_for(|observed| !matches!(observed, ObserverState::Loading)) => panic!("{observed:?}"),
        }
    };
    // Longer than the first attempt of both.
    assert!(tokio::time::timeout(Duration::from_millis(200), early).await.is_err());
    client.start().unwrap();
    in_time(latch.leading()).await.unwrap();
    in_time(observed.wait_for(|observed| matches!(observed, ObserverState::Leader(_)))).await.unwrap();
}

/// A close without a connection leaves the node to the session, in place of waiting for a server.
#[tokio::test]
async fn a_close_in_an_outage_does_not_wait_for_its_end() {
    let server = server();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let patient = RetryNTimes::new(1000, Duration::from_millis(50));
    let through = options(&server).ensemble_provider(FixedEnsembleProvider::new(proxy.connect_string()));
    let client = connected(through.retry_policy(patient).connection_timeout(Duration::from_secs(600))).await;
    let latch = started(&client);
    in_time(latch.leading()).await.unwrap();
    let mut states = client.watch_connection_state();
    proxy.refuse();
    proxy.reset();
    in_time(states.wait_for(|state| *state == Some(ConnectionState::Suspended))).await.unwrap();
    in_time(latch.close()).await;
    proxy.accept();
    eventually("the session deletes the node", async || server.children("/election").is_none_or(|all| all.is_empty()))
        .await;
}

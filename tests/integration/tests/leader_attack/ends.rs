//! The ends of latches: by their runtime, their last clone, their client.

use curator_integration::env::{eventually, in_time};
use curator_integration::in_process::{client, server};
use curator_recipes::{LeaderError, LeaderLatch, LeaderLatchOptions, LeaderState};
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
    while in_time(changes.next()).await.is_some() {}
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

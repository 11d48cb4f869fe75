//! The delay after an unclean loss.

use std::time::{Duration, Instant};

use curator_framework::{CreateMode, FixedEnsembleProvider, make_path, node_from_path};
use curator_integration::env::{connected, eventually, in_time};
use curator_integration::in_process::{client, options, server};
use curator_recipes::{LeaderLatch, LeaderLatchOptions, LeaderState};
use curator_test::FaultProxy;

use crate::moves::participant;

const PATH: &str = "/election";

fn started(client: &curator_framework::CuratorFramework, delay: Duration) -> LeaderLatch {
    let options = LeaderLatchOptions::new().delay_after_unclean_loss(delay);
    let latch = LeaderLatch::with_options(client.clone(), PATH, options).unwrap();
    latch.start().unwrap();
    latch
}

/// The candidate's listing comes when the leader is gone, so it does not show the leader.
#[tokio::test]
async fn a_clean_hand_over_to_a_slow_candidate_has_no_delay() {
    let server = server();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let options = || options(&server).session_timeout(Duration::from_secs(10));
    let through = options().ensemble_provider(FixedEnsembleProvider::new(proxy.connect_string()));
    let (one, two, three) = (connected(options()).await, connected(options()).await, connected(through).await);
    let delay = Duration::from_secs(60);
    let leader = started(&one, delay);
    in_time(leader.leading()).await.unwrap();
    let middle = started(&two, delay);
    participant(&middle).await;
    let last = started(&three, delay);
    let chosen = participant(&last).await;
    eventually("the candidate watches its own node", async || three.watched_paths().contains(&chosen.path)).await;

    proxy.latency(Duration::from_millis(200));
    assert!(in_time(leader.resign_to(&chosen, Duration::from_secs(20))).await.unwrap());
    in_time(last.leading()).await.unwrap();
}

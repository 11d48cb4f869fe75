//! The delay after an unclean loss.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use curator_framework::recipe::RecipeClient as _;
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
    assert!(in_time(leader.resign_to_timeout(&chosen, Duration::from_secs(20))).await.unwrap().is_some());
    in_time(last.leading()).await.unwrap();
}

async fn is_at(latch: &LeaderLatch, wanted: usize) {
    let is_there = async || matches!(latch.state(), LeaderState::Waiting { position } if position == Some(wanted));
    eventually("the latch is at its place", is_there).await;
}

/// The record that an earlier listing was read with says nothing about the leaders since.
#[tokio::test]
async fn a_new_session_reads_the_record_anew() {
    let server = server();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let through = options(&server).ensemble_provider(FixedEnsembleProvider::new(proxy.connect_string()));
    let (direct, ours) = (client(&server).await, connected(through).await);
    let node = make_path(PATH, "_c_00000000-0000-4000-8000-000000000000-latch-");
    let mut ahead = Vec::new();
    for _ in 0..2 {
        let mode = CreateMode::EphemeralSequential;
        let create = direct.create().creating_parents_if_needed().with_mode(mode);
        ahead.push(create.for_path(&node).await.unwrap());
    }
    let has_resigned = format!("election/1 term=1 leader={} resigned", node_from_path(&ahead[0]));
    direct.set_data().for_path(PATH, has_resigned).await.unwrap();

    let delay = Duration::from_secs(2);
    let latch = started(&ours, delay);
    is_at(&latch, 2).await;
    direct.delete().for_path(&ahead[1]).await.unwrap();
    is_at(&latch, 1).await;

    proxy.refuse();
    let own = direct.check_exists().for_path(&latch.our_path().unwrap()).await.unwrap().unwrap();
    server.kill_session(own.ephemeral_owner);
    // Another leader comes and crashes.
    direct.set_data().for_path(PATH, "election/1 term=2 leader=another").await.unwrap();
    direct.delete().for_path(&ahead[0]).await.unwrap();
    let since = Instant::now();
    proxy.accept();
    in_time(latch.leading()).await.unwrap();
    assert!(since.elapsed() >= delay, "it leads after {:?}", since.elapsed());
}

/// A candidate that leaves the queue between two others has not led, so it has not crashed.
#[tokio::test]
async fn candidate_that_leaves_before_it_leads_costs_no_delay() {
    const DELAY: Duration = Duration::from_secs(60);
    let server = server();
    let mut latches = Vec::new();
    for _ in 0..3 {
        let latch = started(&client(&server).await, DELAY);
        eventually("it is in the queue", async || latch.our_path().is_some()).await;
        latches.push(latch);
    }
    let [first, second, third] = &latches[..] else { unreachable!() };
    in_time(first.leading()).await.unwrap();
    in_time(second.close()).await;
    is_at(third, 1).await;
    in_time(first.close()).await;
    in_time(third.leading()).await.unwrap();
}

/// Polls a future until a condition holds, and drops it.
async fn drop_once(future: impl Future<Output: std::fmt::Debug>, mut holds: impl FnMut() -> bool) {
    let mut future = pin!(future);
    let mut looks = tokio::time::interval(Duration::from_millis(1));
    in_time(poll_fn(|cx| {
        let polled = future.as_mut().poll(cx);
        assert!(polled.is_pending(), "{polled:?}");
        while looks.poll_tick(cx).is_ready() {}
        if holds() { Poll::Ready(()) } else { Poll::Pending }
    }))
    .await;
}

/// The record is newer than the leader knows, but its resignation is recorded anyway.
#[tokio::test]
async fn a_clean_end_behind_a_dropped_proclaim_has_no_delay() {
    let server = server();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let through = options(&server).ensemble_provider(FixedEnsembleProvider::new(proxy.connect_string()));
    let (ours, theirs) = (connected(through).await, client(&server).await);
    let delay = Duration::from_secs(60);
    let leader = started(&ours, delay);
    let leadership = in_time(leader.leading()).await.unwrap();
    let next = started(&theirs, delay);
    participant(&next).await;

    proxy.latency(Duration::from_millis(100));
    drop_once(leadership.proclaim("news"), || server.data(PATH).unwrap().ends_with(b"news")).await;
    proxy.latency(Duration::ZERO);
    in_time(leader.close()).await;
    in_time(next.leading()).await.unwrap();
}

/// The candidate moves when the leader no longer waits for it.
#[tokio::test]
async fn a_clean_end_behind_a_dropped_hand_over_has_no_delay() {
    let server = server();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let through = options(&server).ensemble_provider(FixedEnsembleProvider::new(proxy.connect_string()));
    let through = through.session_timeout(Duration::from_secs(10));
    let (ours, theirs) = (client(&server).await, connected(through).await);
    let delay = Duration::from_secs(60);
    let leader = started(&ours, delay);
    in_time(leader.leading()).await.unwrap();
    let next = started(&theirs, delay);
    let chosen = participant(&next).await;
    // The server has the watch: a call before it wakes no candidate.
    let is_of_call = |path: Option<&str>| path.is_some_and(|path| path.ends_with("-call"));
    let watches = async || server.requests().iter().any(|request| is_of_call(request.path.as_deref()));
    eventually("the candidate watches for calls", watches).await;

    proxy.latency(Duration::from_millis(300));
    let wish = || String::from_utf8(server.data(PATH).unwrap()).unwrap().contains("wish=");
    drop_once(leader.resign_to_timeout(&chosen, Duration::from_secs(60)), wish).await;
    eventually("the candidate moves", async || next.our_path().is_some_and(|path| path != chosen.path)).await;
    in_time(leader.close()).await;
    in_time(next.leading()).await.unwrap();
}

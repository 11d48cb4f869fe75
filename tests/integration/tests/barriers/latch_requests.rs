//! The requests of barriers and latches.

use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{CuratorFramework, FixedEnsembleProvider};
use curator_integration::env::{answered, connected, eventually, in_time};
use curator_integration::in_process::{client, options, server};
use curator_recipes::{BarrierError, CountDownLatch, DistributedBarrier};
use curator_test::wire::OpCode;
use curator_test::{FaultProxy, TestingServer};

const PATH: &str = "/test/path";

async fn latch(client: &CuratorFramework, count: u32) -> CountDownLatch {
    let latch = CountDownLatch::new(client.clone(), PATH).unwrap();
    assert!(in_time(latch.try_set_count(count)).await.unwrap());
    latch
}

/// The requests at paths of the test since the last call, by session. Transactions show no path.
fn requests(server: &TestingServer, session: i64) -> Vec<OpCode> {
    let is_request = |op: OpCode| !matches!(op, OpCode::Ping | OpCode::CreateSession);
    let all = server.requests().into_iter().filter(|request| request.session_id == session && is_request(request.op));
    let found = all.filter(|request| request.path.as_deref().is_none_or(|path| path.starts_with("/test")));
    let found: Vec<_> = found.map(|request| request.op).collect();
    server.clear_requests();
    found
}

/// Redisson's and a list of children would wake a waiter with each count.
#[tokio::test]
async fn waiter_reads_once_however_many_counts_follow() {
    for counts in [1, 40] {
        let server = server();
        let (waiter, counter) = (client(&server).await, client(&server).await);
        let counting = latch(&counter, counts).await;
        let session = waiter.session().await.unwrap().id().unwrap().get();
        server.clear_requests();
        let ours = CountDownLatch::new(waiter.clone(), PATH).unwrap();
        let waiting = tokio::spawn(async move { ours.wait().await });
        eventually("it waits", async || waiter.watchers() == 1).await;
        answered(std::slice::from_ref(&waiter)).await;
        for _ in 0..counts {
            in_time(counting.count_down()).await.unwrap();
        }
        in_time(waiting).await.unwrap().unwrap();
        assert_eq!(requests(&server, session), [OpCode::GetData], "{counts} counts");
        assert_eq!(server.watch_count(), 0, "{counts} counts");
    }
}

#[tokio::test]
async fn count_behind_an_own_one_is_one_request() {
    let server = server();
    let client = client(&server).await;
    let latch = latch(&client, 4).await;
    let session = client.session().await.unwrap().id().unwrap().get();
    server.clear_requests();
    for expected in [vec![OpCode::GetData, OpCode::Exists, OpCode::Multi], vec![OpCode::Multi], vec![OpCode::Multi]] {
        in_time(latch.count_down()).await.unwrap();
        assert_eq!(requests(&server, session), expected);
    }
}

/// A display looks again and again.
#[tokio::test]
async fn glance_reads_alone() {
    let server = server();
    let client = client(&server).await;
    let latch = CountDownLatch::new(client.clone(), PATH).unwrap();
    let session = client.session().await.unwrap().id().unwrap().get();
    let glance = async |expected: &[OpCode]| {
        server.clear_requests();
        let seen = in_time(latch.glance()).await.unwrap();
        assert_eq!(requests(&server, session), expected);
        seen
    };
    let both = [OpCode::GetData, OpCode::Exists];
    assert_eq!(glance(&both[..1]).await, None);
    assert!(in_time(latch.try_set_count(2)).await.unwrap());
    let round = in_time(latch.round()).await.unwrap();
    for left in [2, 1, 0] {
        assert_eq!(glance(&both).await, Some((round, left)));
        in_time(latch.count_down()).await.unwrap();
    }
    client.set_data().for_path(PATH, "other").await.unwrap();
    let error = in_time(latch.glance()).await.unwrap_err();
    assert!(matches!(error, BarrierError::NotALatch { .. }), "{error}");
}

#[tokio::test]
async fn waiter_of_a_barrier_sends_one_request() {
    let server = server();
    let (waiter, other) = (client(&server).await, client(&server).await);
    let (ours, others) =
        (DistributedBarrier::new(waiter.clone(), PATH).unwrap(), DistributedBarrier::new(other, PATH).unwrap());
    in_time(others.set_barrier()).await.unwrap();
    let session = waiter.session().await.unwrap().id().unwrap().get();
    server.clear_requests();
    let waiting = {
        let ours = ours.clone();
        tokio::spawn(async move { ours.wait_on_barrier().await })
    };
    eventually("it waits", async || waiter.watchers() == 1).await;
    in_time(others.remove_barrier()).await.unwrap();
    in_time(waiting).await.unwrap().unwrap();
    assert_eq!(requests(&server, session), [OpCode::Exists]);
    assert_eq!(server.watch_count(), 0);
}

/// CURATOR-654: the watch stays at the server.
#[tokio::test]
async fn waiter_that_gives_up_leaves_no_watch_at_the_server() {
    let server = server();
    let client = client(&server).await;
    let (barrier, latch) = (DistributedBarrier::new(client.clone(), "/test/barrier").unwrap(), latch(&client, 1).await);
    in_time(barrier.set_barrier()).await.unwrap();
    for budget in [Duration::ZERO, Duration::from_millis(20)] {
        assert!(in_time(barrier.wait_on_barrier_timeout(budget)).await.unwrap().is_none());
        assert!(in_time(latch.wait_timeout(budget)).await.unwrap().is_none());
        eventually("the watches are removed", async || server.watch_count() == 0).await;
    }
}

/// The server of the next session may lag behind the barrier that the first one has seen.
#[tokio::test]
async fn wait_that_goes_on_in_the_next_session_looks_behind_a_sync() {
    let server = server();
    let (waiter, other) = (client(&server).await, client(&server).await);
    let (ours, others) =
        (DistributedBarrier::new(waiter.clone(), PATH).unwrap(), DistributedBarrier::new(other, PATH).unwrap());
    in_time(others.set_barrier()).await.unwrap();
    let first = waiter.session().await.unwrap();
    let waiting = tokio::spawn(async move { ours.wait_on_barrier().await });
    let has_looked = |session: i64| {
        let requests = server.requests();
        requests.into_iter().any(|request| request.session_id == session && request.op == OpCode::Exists)
    };
    eventually("it waits", async || has_looked(first.id().unwrap().get())).await;
    assert!(server.kill_session(first.id().unwrap().get()));
    in_time(first.ended()).await;
    let next = in_time(waiter.session()).await.unwrap().id().unwrap().get();
    eventually("it waits again", async || has_looked(next)).await;
    assert_eq!(requests(&server, next), [OpCode::Sync, OpCode::Exists]);
    in_time(others.remove_barrier()).await.unwrap();
    in_time(waiting).await.unwrap().unwrap();
}

/// The round of a participant that has counted ends, and its counts are deleted, between two reads.
#[tokio::test]
async fn participant_that_has_counted_is_not_reported_as_lost_behind_its_round() {
    let server = server();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let provider = FixedEnsembleProvider::new(proxy.connect_string());
    let (watcher, counter) = (connected(options(&server).ensemble_provider(provider)).await, client(&server).await);
    let counting = latch(&counter, 2).await;
    let participant = in_time(counting.participate("first")).await.unwrap();
    let session = watcher.session().await.unwrap().id().unwrap().get();
    let watching = {
        let ours = CountDownLatch::new(watcher.clone(), PATH).unwrap();
        tokio::spawn(async move { ours.participant_lost().await })
    };
    eventually("it watches", async || watcher.watchers() == 1).await;
    in_time(watcher.session().await.unwrap().write_barrier()).await.unwrap();
    requests(&server, session);
    proxy.latency(Duration::from_millis(100));
    assert_eq!(in_time(participant.count_down()).await.unwrap(), 1);
    let has_read = || {
        let reads = |op| matches!(op, OpCode::GetData | OpCode::Exists);
        server.requests().into_iter().any(|request| request.session_id == session && reads(request.op))
    };
    eventually("it reads behind its listing", async || has_read()).await;
    assert_eq!(in_time(counting.count_down()).await.unwrap(), 0);
    assert!(in_time(counting.try_set_count(1)).await.unwrap());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!watching.is_finished(), "{:?}", watching.await);
}

/// The transfer of a listing above the limit would delay the replies behind it, at each later round.
#[tokio::test]
async fn round_above_the_reply_limit_is_listed_once() {
    const COUNTS: u32 = 30;
    let server = server();
    let client = connected(options(&server).max_reply(4096)).await;
    let latch = latch(&client, COUNTS).await;
    let session = client.session().await.unwrap();
    for count in 0..COUNTS {
        in_time(latch.count_down_as(&format!("{count:0>200}"))).await.unwrap();
    }
    let mut listings = Vec::new();
    for _round in 0..3 {
        server.clear_requests();
        assert!(in_time(latch.try_set_count(1)).await.unwrap());
        in_time(latch.count_down()).await.unwrap();
        let sent = requests(&server, session.id().unwrap().get());
        listings.push(sent.into_iter().filter(|&op| op == OpCode::GetChildren).count());
    }
    // The latch with the large round; then the latch with the round before.
    assert_eq!(listings, [2, 2, 2]);
    assert_eq!(session.epoch(), 1);
}

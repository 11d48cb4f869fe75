//! Apache: leaders without followers, limits that change, and watches over reconnects that break.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use curator_framework::{Acl, CreateMode, CuratorFramework, EventType, RetryNTimes, SessionEnd, WakeReason};
use curator_recipes::InterProcessMutex;
use curator_test::wire::{OpCode, XID_SET_WATCHES};
use curator_test::{ApacheCluster, ApacheServer, FaultProxy};
use futures_util::future::join_all;
use tokio::task::block_in_place;

use crate::env::{builder, connected, eventually, in_time};
use crate::relay::{Pass, Way, relay};

const SECOND: Duration = Duration::from_secs(1);

fn server(longest: Duration) -> ApacheServer {
    block_in_place(|| ApacheServer::builder().tick(SECOND).session_timeouts(2 * SECOND, longest).start().unwrap())
}

/// The server counts by its new limit from the reconnect on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guard_is_lost_in_time_when_a_restarted_server_grants_less() {
    let server = server(60 * SECOND);
    let proxy = FaultProxy::start(server.address()).unwrap();
    let holding = connected(builder(proxy.address()).session_timeout(20 * SECOND)).await;
    let waiting = connected(builder(server.address()).session_timeout(20 * SECOND)).await;
    let guard = InterProcessMutex::new(holding.clone(), "/lock").unwrap().acquire().await.unwrap();
    let session = holding.session().await.unwrap();
    block_in_place(|| server.restart_with_session_timeouts(2 * SECOND, 4 * SECOND).unwrap());
    eventually("attached again", async || session.epoch() == 2).await;
    proxy.partition();
    assert_eq!(session.timeout(), 4 * SECOND);
    let next = in_time(InterProcessMutex::new(waiting, "/lock").unwrap().acquire()).await.unwrap();
    assert!(!guard.is_held() && next.is_held());
    assert_eq!(session.end_reason(), Some(SessionEnd::DeadlinePassed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn longer_limit_of_a_restarted_server_does_not_lengthen_a_session() {
    let server = server(4 * SECOND);
    let client = connected(builder(server.address()).session_timeout(20 * SECOND)).await;
    let session = client.session().await.unwrap();
    let guard = InterProcessMutex::new(client.clone(), "/lock").unwrap().acquire().await.unwrap();
    assert_eq!(session.timeout(), 4 * SECOND);
    block_in_place(|| server.restart_with_session_timeouts(2 * SECOND, 20 * SECOND).unwrap());
    eventually("attached again", async || session.epoch() == 2).await;
    session.order().await.unwrap();
    assert_eq!(session.timeout(), 4 * SECOND);
    assert!(session.remaining() <= 3 * SECOND);
    guard.verify().await.unwrap();
}

/// A connection breaks behind the reply to the first part of the watches.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_change_is_lost_when_watches_are_set_again_over_two_connections() {
    const WATCHES: usize = 30;
    let path = |number: usize| format!("/{}-{number}", "a-long-name".repeat(30));
    let server = server(60 * SECOND);
    let (may_attach, broken) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (attaches, breaks) = (Arc::clone(&may_attach), Arc::clone(&broken));
    let mut is_answered = false;
    let relay = relay(server.address(), move |passing| {
        if passing.connection == 1 || breaks.load(Ordering::SeqCst) {
            return Pass::On;
        }
        if !attaches.load(Ordering::SeqCst) {
            return Pass::Close;
        }
        if passing.way == Way::ToClient && is_answered {
            breaks.store(true, Ordering::SeqCst);
            return Pass::Close;
        }
        is_answered |= passing.way == Way::ToClient && passing.index > 0 && passing.int(0) == XID_SET_WATCHES;
        Pass::On
    });
    let client = connected(builder(relay.address).max_frame(4096)).await;
    let direct = connected(builder(server.address())).await;
    let (session, other) = (client.session().await.unwrap(), direct.session().await.unwrap());
    for number in 0..WATCHES {
        other.create(&path(number), Vec::new(), Acl::open_unsafe(), CreateMode::Persistent).await.unwrap();
    }
    session.sync("/").await.unwrap();
    let mut watches = Vec::new();
    for number in 0..WATCHES {
        watches.push(session.exists_watched(&path(number)).await.unwrap().1);
    }
    relay.reset();
    eventually("disconnected", async || !session.is_connected()).await;
    for number in 0..WATCHES {
        other.set_data(&path(number), Vec::new(), None).await.unwrap();
    }
    may_attach.store(true, Ordering::SeqCst);
    for reason in in_time(join_all(watches)).await {
        assert_eq!(reason, WakeReason::Event(EventType::NodeDataChanged));
    }
    assert!(broken.load(Ordering::SeqCst), "the connection broke between two parts");
    assert_eq!(session.end_reason(), None);
}

/// A leader whose followers are gone answers connect requests until it notices, as one does that was frozen and deposed
/// meanwhile. It answers no write, so the deadline of a holder stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attach_at_a_leader_without_followers_does_not_move_the_deadline() {
    let timeout = 16 * SECOND;
    let cluster = block_in_place(|| {
        let sessions = (2 * SECOND, 60 * SECOND);
        ApacheCluster::builder().tick(2 * SECOND).session_timeouts(sessions.0, sessions.1).start().unwrap()
    });
    let leader = block_in_place(|| cluster.wait_until_serving().unwrap());
    let proxy = FaultProxy::start(cluster.server(leader).unwrap()).unwrap();
    let client = CuratorFramework::builder(proxy.connect_string())
        .session_timeout(timeout)
        .connection_timeout(timeout)
        .retry_policy(RetryNTimes::new(0, Duration::ZERO));
    let client = connected(client).await;
    let guard = in_time(InterProcessMutex::new(client.clone(), "/lock").unwrap().acquire()).await.unwrap();
    let session = client.session().await.unwrap();
    block_in_place(|| {
        for other in (0..cluster.servers()).filter(|other| *other != leader) {
            cluster.freeze(other).unwrap();
        }
    });
    // Replies that were on their way have arrived when the connection is gone.
    proxy.refuse();
    proxy.reset();
    eventually("disconnected", async || !session.is_connected()).await;
    let deadline = Instant::now() + guard.remaining();
    let attached = proxy.replies(OpCode::CreateSession);
    // The connect request is sent long after the last write that was answered.
    eventually("time goes by", async || guard.remaining() < timeout / 2).await;
    proxy.accept();
    eventually("the leader answers", async || proxy.replies(OpCode::CreateSession) > attached).await;
    eventually("the session is attached", async || session.is_connected()).await;
    let lost = in_time(guard.lost()).await;
    assert!(Instant::now() < deadline + SECOND, "{lost} {:?} late", deadline.elapsed());
    assert_eq!(session.end_reason(), Some(SessionEnd::DeadlinePassed));
}

//! Apache: leaders without followers, limits that change, and watches over reconnects that break.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use curator_framework::{Acl, CreateMode, CuratorFramework, EventType, RetryNTimes, SessionEnd, WakeReason};
use curator_integration::env::{builder, connected, eventually, in_time};
use curator_recipes::InterProcessMutex;
use curator_test::wire::XID_SET_WATCHES;
use curator_test::{ApacheCluster, ApacheServer, FaultProxy};
use futures_util::future::join_all;
use tokio::task::block_in_place;

use super::relay::{Pass, Way, relay};

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
    let server = server(20 * SECOND);
    let client = connected(builder(server.address()).session_timeout(60 * SECOND)).await;
    let session = client.session().await.unwrap();
    let guard = InterProcessMutex::new(client.clone(), "/lock").unwrap().acquire().await.unwrap();
    assert_eq!(session.timeout(), 20 * SECOND);
    block_in_place(|| server.restart_with_session_timeouts(2 * SECOND, 60 * SECOND).unwrap());
    eventually("attached again", async || session.epoch() == 2).await;
    session.write_barrier().await.unwrap();
    assert_eq!(session.timeout(), 20 * SECOND);
    assert!(session.remaining() <= 15 * SECOND);
    guard.verify().await.unwrap();
}

/// A connection breaks after the reply to the first part of the watches.
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

/// A leader is cut off and frozen, deposed, and thawed: it does not know yet that another one leads, and answers the
/// re-attach of a holder. The new leader has never heard of that, and ends the session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attach_at_a_deposed_leader_does_not_move_the_deadline() {
    // A leader that thaws checks for its followers within a tick, and serves no longer than that.
    let (tick, timeout) = (3 * SECOND, 20 * SECOND);
    let cluster = ApacheCluster::builder().tick(tick).sync_limit(2).session_timeouts(2 * SECOND, 60 * SECOND);
    let cluster = block_in_place(|| cluster.start().unwrap());
    let deposed = block_in_place(|| cluster.wait_until_serving().unwrap());
    let proxy = FaultProxy::start(cluster.server(deposed).unwrap()).unwrap();
    let options = |servers: String| {
        CuratorFramework::builder(servers)
            .session_timeout(timeout)
            .connection_timeout(timeout)
            .retry_policy(RetryNTimes::new(0, Duration::ZERO))
    };
    let holding = connected(options(proxy.connect_string())).await;
    let guard = in_time(InterProcessMutex::new(holding.clone(), "/lock").unwrap().acquire()).await.unwrap();
    let session = holding.session().await.unwrap();

    // Cut off in silence: it does not see later that its followers have left it.
    cluster.isolate(deposed).unwrap();
    cluster.freeze(deposed).unwrap();
    proxy.refuse();
    proxy.reset();
    eventually("disconnected", async || !session.is_connected()).await;
    let deadline = Instant::now() + guard.remaining();
    let leader = block_in_place(|| cluster.wait_until_serving().unwrap());
    assert_ne!(leader, deposed);
    let waiting = connected(options(cluster.server(leader).unwrap().to_string())).await;

    // As late as possible: a deadline counted from this connect request would be late by as much.
    eventually("time goes by", async || guard.remaining() < 3 * SECOND).await;
    proxy.accept();
    eventually("a connect request", async || proxy.connections() > 0).await;
    cluster.thaw(deposed).unwrap();
    eventually("the deposed leader answers", async || session.is_connected()).await;
    assert_eq!((session.epoch(), guard.is_held()), (2, true));

    let lost = async { (guard.lost().await, Instant::now()) };
    let mutex = InterProcessMutex::new(waiting, "/lock").unwrap();
    let granted = async { (mutex.acquire().await.unwrap(), Instant::now()) };
    let ((reason, lost), (_next, granted)) = in_time(async { tokio::join!(lost, granted) }).await;
    assert!(lost < granted, "granted {:?} before the old holder was told", lost - granted);
    assert!(lost < deadline + SECOND, "{reason} {:?} late", deadline.elapsed());
    assert_eq!(session.end_reason(), Some(SessionEnd::DeadlinePassed));
}

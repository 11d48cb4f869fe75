//! Apache: leaders that are deposed, limits that change, and watches over reconnects that break.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
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

/// The second connection breaks behind the first part of the watches.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_change_is_lost_when_watches_are_set_again_over_two_connections() {
    const WATCHES: usize = 30;
    let path = |number: usize| format!("/{}-{number}", "a-long-name".repeat(30));
    let server = server(60 * SECOND);
    let (phase, parts) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (now, answered) = (Arc::clone(&phase), Arc::clone(&parts));
    let relay = relay(server.address(), move |passing| {
        if passing.connection > 1 && now.load(Ordering::SeqCst) == 0 {
            return Pass::Close;
        }
        let is_part = passing.way == Way::ToClient && passing.index > 0 && passing.int(0) == XID_SET_WATCHES;
        if is_part && answered.fetch_add(1, Ordering::SeqCst) == 1 { Pass::Close } else { Pass::On }
    });
    let client = connected(builder(relay.address).max_frame(4096)).await;
    let direct = connected(builder(server.address())).await;
    let (session, other) = (client.session().await.unwrap(), direct.session().await.unwrap());
    let (session_of_watches, path_of) = (&session, &path);
    let watches =
        (0..WATCHES).map(|number| async move { session_of_watches.exists_watched(&path_of(number)).await.unwrap().1 });
    let watches = join_all(watches).await;
    relay.reset();
    eventually("disconnected", async || !session.is_connected()).await;
    for number in 0..WATCHES {
        other.create(&path(number), Vec::new(), Acl::open_unsafe(), CreateMode::Persistent).await.unwrap();
    }
    phase.store(1, Ordering::SeqCst);
    for reason in in_time(join_all(watches)).await {
        assert_eq!(reason, WakeReason::Event(EventType::NodeCreated));
    }
    assert!(parts.load(Ordering::SeqCst) > 2, "the connection broke between two parts");
    assert_eq!(session.end_reason(), None);
}

/// A leader that was frozen while the others elected another one answers connect requests until it notices. Nothing but a
/// write that is answered moves the deadline of a holder, and without followers it answers none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attach_at_a_deposed_leader_does_not_move_the_deadline() {
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
    let others: Vec<_> = (0..cluster.servers()).filter(|other| *other != leader).collect();
    block_in_place(|| {
        cluster.freeze(leader).unwrap();
        others.iter().for_each(|other| cluster.freeze(*other).unwrap());
    });
    // Replies that were on their way have arrived when the connection is gone.
    proxy.reset();
    eventually("disconnected", async || !session.is_connected()).await;
    let deadline = Instant::now() + guard.remaining();
    let attached = proxy.replies(OpCode::CreateSession);
    block_in_place(|| cluster.thaw(leader).unwrap());
    eventually("the leader that is alone answers", async || proxy.replies(OpCode::CreateSession) > attached).await;
    let lost = in_time(guard.lost()).await;
    assert!(Instant::now() < deadline + SECOND, "{lost} {:?} late", deadline.elapsed());
    assert_eq!(session.end_reason(), Some(SessionEnd::DeadlinePassed));
}

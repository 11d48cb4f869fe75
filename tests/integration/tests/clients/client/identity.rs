//! A reply belongs to its request, and a node to its session.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use curator_framework::{Acl, CreateMode, Error, SessionEnd};
use curator_integration::env::{builder, connected, eventually, in_time};
use curator_recipes::InterProcessMutex;
use curator_test::wire::{OpCode, Reader};
use curator_test::{FaultProxy, TestingServer};
use parking_lot::Mutex;

use super::relay::{Pass, Way, relay};
use super::scripted::{Asked, Scripted, Then};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_is_not_granted_on_the_node_of_a_swapped_session() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let client = connected(builder(proxy.address())).await;
    let first = client.session().await.unwrap();
    client.create().for_path("/lock").await.unwrap();
    // The first ephemeral node of the session is created, its reply is lost, and the reconnect gets another session.
    proxy.swap_session();
    proxy.drop_reply(OpCode::Create2, 1);
    let guard = in_time(InterProcessMutex::new(client.clone(), "/lock").unwrap().acquire()).await.unwrap();
    assert_eq!(first.end_reason(), Some(SessionEnd::Inconsistent));
    let session = client.session().await.unwrap();
    let stat = session.exists(guard.node_path()).await.unwrap().unwrap();
    assert_eq!(Some(stat.ephemeral_owner), session.id().map(|id| id.get()));
    assert_ne!(session.id(), first.id());
    assert_eq!(proxy.faults_done(), 2);
}

#[tokio::test]
async fn claim_does_not_settle_on_the_node_of_another_session() {
    let server = TestingServer::start().unwrap();
    let (client, other) = (connected(builder(server.address())).await, connected(builder(server.address())).await);
    let (session, other) = (client.session().await.unwrap(), other.session().await.unwrap());
    for (mode, is_own) in [(CreateMode::EphemeralSequential, false), (CreateMode::PersistentSequential, true)] {
        let mut claim = session.owned_node("/", "node-", mode);
        let prefix = format!("/{}node-", claim.protected_id().prefix());
        let (path, stat) = other.create(&prefix, Vec::new(), Acl::open_unsafe(), mode).await.unwrap();
        assert_eq!(claim.is_own(&stat), is_own, "{mode:?}");
        let settled = claim.adopt(&path[1..], &stat, &[]).await;
        if is_own {
            settled.unwrap();
            assert_eq!(claim.path(), Some(&*path));
        } else {
            assert!(matches!(settled, Err(Error::NoNode { .. })), "{settled:?}");
            assert_eq!(claim.path(), None);
        }
    }
}

/// A node under the contender's own prefix, in another session, is at the head of the queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contender_does_not_adopt_the_node_of_another_session() {
    let server = TestingServer::start().unwrap();
    let sent: Arc<Mutex<Option<String>>> = Arc::default();
    let may_go_on = Arc::new(AtomicBool::new(false));
    let (seen, goes_on) = (Arc::clone(&sent), Arc::clone(&may_go_on));
    let relay = relay(server.address(), move |passing| {
        let is_create = passing.way == Way::ToServer && passing.index > 0 && passing.int(4) == OpCode::Create2.code();
        let path = Reader::new(passing.frame.get(8..).unwrap_or_default()).string().unwrap_or_default().to_owned();
        let mut seen = seen.lock();
        if is_create && path.starts_with("/lock/") && seen.is_none() {
            *seen = Some(path);
            return Pass::Close;
        }
        // The session is attached again when the foreign node is there.
        if seen.is_some() && !goes_on.load(Ordering::SeqCst) { Pass::Close } else { Pass::On }
    });
    let other = connected(builder(server.address())).await;
    other.create().for_path("/lock").await.unwrap();
    let client = connected(builder(relay.address)).await;
    let session = client.session().await.unwrap();
    let mutex = InterProcessMutex::new(client.clone(), "/lock").unwrap();
    let acquiring = tokio::spawn(async move { mutex.acquire().await });
    eventually("the create is sent", async || sent.lock().is_some()).await;
    let prefix = sent.lock().clone().unwrap();
    let foreign = other.session().await.unwrap();
    let mode = CreateMode::EphemeralSequential;
    let (path, _) = foreign.create(&prefix, Vec::new(), Acl::open_unsafe(), mode).await.unwrap();
    may_go_on.store(true, Ordering::SeqCst);
    let guard = in_time(acquiring).await.unwrap();
    if let Ok(guard) = guard {
        assert_ne!(guard.node_path(), path);
        let stat = session.exists(guard.node_path()).await.unwrap().unwrap();
        assert_eq!(Some(stat.ephemeral_owner), session.id().map(|id| id.get()));
    }
}

#[tokio::test]
async fn xids_go_on_over_the_connections_of_a_session() {
    let server = Scripted::start(|_, _| Then::Usual);
    let client = connected(builder(server.address())).await;
    let session = client.session().await.unwrap();
    for _ in 0..3 {
        for _ in 0..3 {
            session.exists("/a").await.unwrap();
        }
        let epoch = session.epoch();
        server.reset();
        eventually("the session is attached again", async || session.epoch() > epoch).await;
    }
    client.close().await;
    let numbered = |asked: &Asked| matches!(asked, Asked::Request { op, .. } if *op != OpCode::Ping);
    let frames = server.frames();
    let xids: Vec<_> = frames.iter().filter(|frame| numbered(&frame.asked)).map(|frame| frame.xid()).collect();
    assert!(xids.iter().copied().eq(1..=10), "{xids:?}");
    assert!(frames.last().unwrap().connection >= 4);
}

//! What one connection leaves to the next.

use std::time::Duration;

use curator_framework::{Error, WakeReason};
use curator_integration::env::{builder, connected, eventually, in_time};
use curator_recipes::InterProcessMutex;
use curator_test::wire::{ConnectResponse, OpCode};
use curator_test::{FaultProxy, TestingServer};

use super::scripted::{SESSION, Scripted, TIMEOUT_MS, Then, framed};

async fn ops_of_a_reconnect(
    server: &TestingServer,
    proxy: &FaultProxy,
    session: &curator_framework::Session,
) -> Vec<OpCode> {
    session.write_barrier().await.unwrap();
    let epoch = session.epoch();
    server.clear_requests();
    proxy.reset();
    eventually("attached again", async || session.epoch() > epoch).await;
    session.sync("/").await.unwrap();
    let ops: Vec<_> = server.requests().into_iter().map(|request| request.op).collect();
    ops.into_iter().filter(|op| ![OpCode::Ping, OpCode::Sync].contains(op)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reconnect_is_one_request_and_one_for_watches() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let client = connected(builder(proxy.address())).await;
    let session = client.session().await.unwrap();
    assert_eq!(ops_of_a_reconnect(&server, &proxy, &session).await, [OpCode::CreateSession]);
    let mut watch = Box::pin(session.exists_watched("/a").await.unwrap().1);
    assert_eq!(
        ops_of_a_reconnect(&server, &proxy, &session).await,
        [OpCode::CreateSession, OpCode::SetWatches],
        "nothing is held"
    );
    // The watch is kept, and its waiter was not woken.
    assert!(futures_util::poll!(watch.as_mut()).is_pending());
    client.create().for_path("/a").await.unwrap();
    assert!(matches!(in_time(watch).await, WakeReason::Event(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_proves_a_new_connection_by_one_write() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let client = connected(builder(proxy.address())).await;
    let session = client.session().await.unwrap();
    let guard = InterProcessMutex::new(client.clone(), "/lock").unwrap().acquire().await.unwrap();
    let epoch = session.epoch();
    server.clear_requests();
    proxy.reset();
    eventually("attached again", async || session.epoch() > epoch).await;
    eventually("a write", async || server.requests().iter().any(|request| request.op == OpCode::Delete)).await;
    guard.verify().await.unwrap();
}

/// A violation in the same segment as the connect response is noticed at once.
#[tokio::test]
async fn violation_right_behind_the_connect_response_ends_the_connection() {
    let server = Scripted::start(|frame, peer| {
        if frame.op().is_some() || frame.connection == 2 {
            return Then::Usual;
        }
        let response = ConnectResponse {
            timeout_ms: TIMEOUT_MS,
            session_id: SESSION,
            password: vec![7; 16],
            ..ConnectResponse::default()
        };
        let both = [framed(|to| response.encode(to)), framed(|to| _ = to.int(77).long(1).int(0))].concat();
        peer.raw(&both);
        Then::Done
    });
    let client = connected(builder(server.address())).await;
    let session = client.session().await.unwrap();
    eventually("attached again", async || session.epoch() == 2).await;
    let on_first = server.frames().iter().filter(|frame| frame.connection == 1).count();
    assert_eq!(on_first, 1, "no ping was sent on that connection");
    assert_eq!(server.connects()[1].session_id, SESSION);
    assert!(session.exists("/a").await.unwrap().is_none());
    client.close().await;
}

/// What was never written is safe to repeat; what was written is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outcome_of_a_lost_request_says_whether_it_was_written() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let client = connected(builder(proxy.address())).await;
    let session = client.session().await.unwrap();
    proxy.refuse();
    proxy.drop_reply(OpCode::Delete, 1);
    let written = in_time(session.delete("/a", None)).await.unwrap_err();
    assert!(matches!(written, Error::ConnectionLoss { sent: true, cause: Some(_), .. }), "{written:?}");
    assert!(written.outcome_unknown());
    eventually("disconnected", async || !session.is_connected()).await;
    let unwritten = in_time(session.delete("/a", None)).await.unwrap_err();
    assert!(matches!(unwritten, Error::ConnectionLoss { sent: false, .. }), "{unwritten:?}");
    assert!(!unwritten.outcome_unknown());
    proxy.accept();
    in_time(session.connected()).await.unwrap();
    assert!(session.remaining() > Duration::ZERO);
}

//! What the client refuses by itself, and what the server does not know.

use std::time::{Duration, Instant};

use curator_framework::{ConnectionState, Error, RetryNTimes, SessionEnd};
use curator_integration::env::{builder, connected, eventually, in_time};
use curator_test::wire::{ErrorCode, OpCode};
use curator_test::{FaultProxy, TestingServer};

use super::scripted::{Scripted, Then};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_are_refused_locally_do_not_keep_a_partitioned_session() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let timeout = Duration::from_secs(4);
    let options = builder(proxy.address()).session_timeout(timeout).max_frame(4096);
    let client = connected(options).await;
    let session = client.session().await.unwrap();
    let mut states = client.watch_connection_state();
    proxy.partition();
    let since = Instant::now();
    let refused = async {
        loop {
            let invalid = client.create().for_path("/a/").await.unwrap_err();
            assert!(matches!(invalid, Error::InvalidPath { .. }), "{invalid}");
            let large = session.set_data("/a", vec![0; 5000], None).await.unwrap_err();
            match large {
                Error::RequestTooLarge { size, limit: 4096, .. } if size > 5000 => {}
                // Refused in the order of the checks: the session, the connection, the size.
                Error::ConnectionLoss { sent: false, .. } | Error::SessionExpired { .. } => {}
                other => panic!("{other}"),
            }
            tokio::task::yield_now().await;
        }
    };
    let suspended_and_ended = async {
        in_time(states.wait_for(|state| *state == Some(ConnectionState::Suspended))).await.unwrap();
        in_time(session.ended()).await
    };
    tokio::select! {
        end = suspended_and_ended => assert_eq!(end, SessionEnd::DeadlinePassed),
        () = refused => {}
    }
    // From then on the server may end the session.
    assert!(since.elapsed() < timeout, "{:?}", since.elapsed());
}

#[tokio::test]
async fn request_above_the_limit_is_refused_and_the_connection_stays() {
    let server = TestingServer::start().unwrap();
    let client = connected(builder(server.address()).max_frame(4096)).await;
    let session = client.session().await.unwrap();
    client.create().for_path("/a").await.unwrap();
    let refused = session.set_data("/a", vec![0; 4096], None).await.unwrap_err();
    assert!(matches!(refused, Error::RequestTooLarge { limit: 4096, .. }), "{refused}");
    assert!(!refused.outcome_unknown());
    let deep = format!("/{}", "a".repeat(5000));
    let refused = client.add_watch(&deep, curator_framework::AddWatchMode::Persistent).await.unwrap_err();
    assert!(matches!(refused, Error::RequestTooLarge { limit: 4096, .. }), "{refused}");
    session.set_data("/a", vec![0; 4000], None).await.unwrap();
    assert_eq!(session.epoch(), 1);
}

/// A node and a listing above the limit fail their own reads alone, each time, while a lock is held.
#[tokio::test]
async fn reply_above_the_limit_is_refused_and_the_connection_stays() {
    let server = TestingServer::start().unwrap();
    let admin = connected(builder(server.address())).await;
    admin.create().with_data(vec![0; 5000]).for_path("/data").await.unwrap();
    for child in 0..30 {
        let path = format!("/list/{child:0>200}");
        admin.create().creating_parents_if_needed().for_path(&path).await.unwrap();
    }
    let client = connected(builder(server.address()).max_reply(4096)).await;
    let session = client.session().await.unwrap();
    for _ in 0..3 {
        let (data, list, small) =
            tokio::join!(session.get_data("/data"), client.get_children().for_path("/list"), session.exists("/data"));
        let data = data.unwrap_err();
        assert!(matches!(data, Error::ReplyTooLarge { size: 5088, limit: 4096, .. }), "{data}");
        assert!(!data.is_retryable() && !data.outcome_unknown());
        let list = list.unwrap_err();
        assert!(matches!(&list, Error::ReplyTooLarge { path, .. } if path.as_str() == "/list"), "{list}");
        assert_eq!(small.unwrap().unwrap().data_length, 5000);
    }
    assert_eq!(session.epoch(), 1);
}

/// The server's limit is smaller than the client's. The retries of one write end with a word on its length.
#[tokio::test]
async fn write_that_ends_three_connections_is_not_repeated() {
    let server = Scripted::start(|frame, _| match frame.op() {
        Some(OpCode::SetData) => Then::Close,
        _ => Then::Usual,
    });
    let retries = RetryNTimes::new(100, Duration::from_millis(1));
    let client = connected(builder(server.address()).retry_policy(retries)).await;
    let refused = in_time(client.set_data().for_path("/a", vec![0; 100_000])).await.unwrap_err();
    assert!(matches!(refused, Error::EndsConnections { size, losses: 3, .. } if size > 100_000), "{refused}");
}

/// Apache answers a request that it does not know at once, ahead of older ones, and closes the connection.
#[tokio::test]
async fn unknown_request_ends_as_unsupported_ahead_of_older_ones() {
    let server = Scripted::start(|frame, peer| match frame.op() {
        Some(OpCode::Exists | OpCode::GetData) if frame.connection == 1 => Then::Done,
        Some(OpCode::GetAcl) => {
            peer.reply(frame.xid(), ErrorCode::Unimplemented.code(), |_| {});
            Then::Close
        }
        _ => Then::Usual,
    });
    let client = connected(builder(server.address())).await;
    let session = client.session().await.unwrap();
    let (older, unknown, newer) =
        in_time(async { tokio::join!(session.exists("/a"), session.get_acl("/a"), session.get_data("/a")) }).await;
    let is_lost = |error: Error| matches!(error, Error::ConnectionLoss { sent: true, .. });
    assert!(matches!(unknown, Err(Error::Unsupported { client: "the server", .. })), "{unknown:?}");
    assert!(is_lost(older.unwrap_err()));
    assert!(is_lost(newer.unwrap_err()));
    eventually("the session goes on", async || session.epoch() == 2).await;
    assert!(session.exists("/a").await.unwrap().is_none());
}

#[cfg(curator_mutants)]
#[test]
fn large_reply_that_ends_its_connection_is_found() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let epoch = curator_framework::mutants::with("end-the-connection-of-a-large-reply", || {
        runtime.block_on(async {
            let server = TestingServer::start().unwrap();
            let admin = connected(builder(server.address())).await;
            admin.create().with_data(vec![0; 5000]).for_path("/data").await.unwrap();
            let client = connected(builder(server.address()).max_reply(4096)).await;
            let session = client.session().await.unwrap();
            session.get_data("/data").await.unwrap_err();
            in_time(client.check_exists().for_path("/data")).await.unwrap();
            session.epoch()
        })
    });
    assert!(epoch > 1, "{epoch}");
}

//! A server that grants a shorter timeout, and what the session's deadline makes of it.

use std::net::SocketAddr;
use std::time::Duration;

use curator_framework::SessionEnd;
use curator_integration::env::{builder, connected, eventually, in_time};
use curator_recipes::InterProcessMutex;
use curator_test::TestingServer;
use curator_test::wire::OpCode;

use super::relay::{ASKED_TIMEOUT, Pass, Passing, Way, relay};
use super::scripted::{Port, SESSION, Scripted, Then};

const LONG: Duration = Duration::from_secs(12);

fn server() -> TestingServer {
    let sessions = (Duration::from_secs(1), Duration::from_secs(60));
    TestingServer::builder().tick(Duration::from_millis(500)).session_timeouts(sessions.0, sessions.1).start().unwrap()
}

/// A relay. Its later connections ask for `granted` and then do as `later` says.
fn shortening(
    server: SocketAddr,
    granted: Duration,
    mut later: impl FnMut(&Passing<'_>) -> Pass + Send + 'static,
) -> Port {
    let granted = i32::try_from(granted.as_millis()).unwrap();
    relay(server, move |mut passing| {
        if passing.connection == 1 {
            return Pass::On;
        }
        if passing.connection == 2 && passing.way == Way::ToServer && passing.index == 0 {
            passing.set_int(ASKED_TIMEOUT, granted);
        }
        later(&passing)
    })
}

/// Breaks the connection of a holder, and expects the loss of the guard before the grant to another client.
async fn assert_lost_before_the_next_grant(server: &TestingServer, relay: &Port) {
    let holding = connected(builder(relay.address).session_timeout(LONG)).await;
    let waiting = connected(builder(server.address())).await;
    let guard = InterProcessMutex::new(holding.clone(), "/lock").unwrap().acquire().await.unwrap();
    let session = holding.session().await.unwrap();
    // A reconnect has something to restore.
    let _watch = session.exists_watched("/watched").await.unwrap().1;
    let next = InterProcessMutex::new(waiting.clone(), "/lock").unwrap();
    let next = tokio::spawn(async move { next.acquire().await });
    eventually("the other client waits", async || server.children("/lock").is_some_and(|nodes| nodes.len() == 2)).await;
    relay.reset();
    let next = in_time(next).await.unwrap().unwrap();
    assert!(!guard.is_held(), "held for {:?} more beside the next holder", guard.remaining());
    assert!(next.is_held());
    assert_eq!(in_time(session.ended()).await, SessionEnd::DeadlinePassed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guard_is_lost_when_a_reconnect_grants_less() {
    let server = server();
    let relay = shortening(server.address(), Duration::from_secs(3), |passing| match passing.connection {
        2 if passing.index == 0 => Pass::On,
        _ => Pass::Swallow,
    });
    assert_lost_before_the_next_grant(&server, &relay).await;
}

/// The response to the connect request arrives, and the connection breaks before the watches are set again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guard_is_lost_when_a_reconnect_that_breaks_early_grants_less() {
    let server = server();
    let relay = shortening(server.address(), Duration::from_secs(3), |passing| match passing.connection {
        2 if passing.index == 0 => Pass::On,
        2 => Pass::Close,
        _ => Pass::Swallow,
    });
    assert_lost_before_the_next_grant(&server, &relay).await;
}

/// The client does not continue with a session of 1 s, but the server counts by it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guard_is_lost_when_a_reconnect_grants_less_than_the_minimum() {
    let server = server();
    let relay = shortening(server.address(), Duration::from_secs(1), |passing| match passing.connection {
        2 => Pass::On,
        _ => Pass::Swallow,
    });
    assert_lost_before_the_next_grant(&server, &relay).await;
}

#[tokio::test]
async fn smallest_timeout_ever_granted_is_kept_and_asked_for() {
    let grants = [10_000, 4_000, 12_000, 12_000];
    let server = Scripted::start(move |frame, peer| {
        if frame.op().is_some() {
            return Then::Usual;
        }
        peer.grant(SESSION, grants[(frame.connection - 1).min(3)]);
        Then::Done
    });
    let client = connected(builder(server.address())).await;
    let session = client.session().await.unwrap();
    assert_eq!(session.timeout(), Duration::from_secs(10));
    for connection in 2..=4 {
        let epoch = session.epoch();
        server.reset();
        eventually("the session is attached again", async || session.epoch() > epoch).await;
        assert_eq!(session.timeout(), Duration::from_secs(4), "connection {connection}");
    }
    let asked: Vec<_> = server.connects().iter().map(|connect| connect.timeout_ms).collect();
    assert_eq!(asked, [10_000, 10_000, 4_000, 4_000]);
    assert!(server.connects()[1..].iter().all(|connect| connect.session_id == SESSION));
    assert!(!server.frames().iter().any(|frame| frame.op() == Some(OpCode::CloseSession)));
    client.close().await;
}

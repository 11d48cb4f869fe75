//! The end of a client, and of its callers.

use std::time::{Duration, Instant};

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{CuratorFramework, CuratorFrameworkBuilder, SaslDigest};
use curator_integration::env::{builder, connected, eventually, in_time, tasks};
use curator_recipes::InterProcessMutex;
use curator_test::wire::OpCode;
use curator_test::{FaultProxy, TestingServer};

use super::scripted::{SESSION, Scripted, TIMEOUT_MS, Then};

const CLOSE_WAIT: Duration = Duration::from_secs(2);

async fn client(address: std::net::SocketAddr) -> CuratorFramework {
    connected(builder(address).max_close_wait(CLOSE_WAIT)).await
}

#[tokio::test]
async fn close_is_answered_and_leaves_no_task() {
    let server = TestingServer::start().unwrap();
    let client = client(server.address()).await;
    let _watch = client.check_exists().watched().for_path("/a").await.unwrap();
    in_time(client.close()).await;
    assert_eq!(server.sessions(), [0; 0]);
    assert!(server.requests().iter().any(|request| request.op == OpCode::CloseSession));
    assert_eq!(tasks(), 0);
}

#[tokio::test]
async fn close_of_a_silent_server_ends_within_its_limit() {
    let server = Scripted::start(|frame, _| if frame.op().is_some() { Then::Done } else { Then::Usual });
    let client = client(server.address()).await;
    let since = Instant::now();
    in_time(client.close()).await;
    assert!(since.elapsed() < 2 * CLOSE_WAIT, "{:?}", since.elapsed());
    assert!(server.frames().iter().any(|frame| frame.op() == Some(OpCode::CloseSession)));
    eventually("no task is left", async || tasks() == 0).await;
    assert_eq!(server.connects().len(), 1);
}

/// The connection breaks before closeSession arrives: the session is closed on the next one.
#[tokio::test]
async fn close_that_is_cut_off_is_sent_again() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let client = client(proxy.address()).await;
    // The node is left to the end of the session.
    let _guard = InterProcessMutex::new(client.clone(), "/lock").unwrap().acquire().await.unwrap();
    proxy.drop_request(OpCode::CloseSession, 1);
    in_time(client.close()).await;
    assert_eq!(server.sessions(), [0; 0]);
    assert_eq!(tasks(), 0);
}

/// The server has closed the session, and says so to the next connect request.
#[tokio::test]
async fn close_whose_reply_is_lost_ends_with_the_next_connect() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let client = client(proxy.address()).await;
    proxy.drop_reply(OpCode::CloseSession, 1);
    let since = Instant::now();
    in_time(client.close()).await;
    assert!(since.elapsed() < CLOSE_WAIT, "{:?}", since.elapsed());
    assert_eq!(server.sessions(), [0; 0]);
    assert_eq!((tasks(), proxy.total_connections()), (0, 2));
}

/// A client that is closed while it has no connection closes its session on the next one.
#[tokio::test]
async fn close_during_an_outage_closes_the_session_behind_it() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let client = client(proxy.address()).await;
    let session = client.session().await.unwrap();
    proxy.refuse();
    proxy.reset();
    eventually("the connection is lost", async || !session.is_connected()).await;
    let closing = async {
        let connections = proxy.total_connections();
        proxy.wait_for_connections(connections + 1).await;
        proxy.accept();
    };
    let since = Instant::now();
    in_time(async { tokio::join!(client.close(), closing) }).await;
    assert_eq!(server.sessions(), [0; 0]);
    assert!(since.elapsed() < CLOSE_WAIT, "{:?}", since.elapsed());
    assert_eq!(tasks(), 0);
}

/// The server grants a session and says nothing to its login. A later connection can still close the session.
#[tokio::test]
async fn close_during_a_first_login_that_hangs_closes_the_session_and_leaves_no_task() {
    let login = |builder: CuratorFrameworkBuilder| builder.sasl(SaslDigest::new("user", "password"));
    let credentials = |builder: CuratorFrameworkBuilder| builder.authorization("digest", "user:password");
    for (hanging, with) in [(OpCode::Sasl, login as fn(_) -> _), (OpCode::Auth, credentials)] {
        let server =
            Scripted::start(move |frame, _| if frame.op() == Some(hanging) { Then::Done } else { Then::Usual });
        let client = with(builder(server.address()).max_close_wait(CLOSE_WAIT).connection_timeout(10 * CLOSE_WAIT));
        let client = client.build().unwrap();
        client.start().unwrap();
        let sent = |op| server.frames().iter().any(|frame| frame.op() == Some(op));
        eventually("the login hangs", async || sent(hanging)).await;
        let since = Instant::now();
        in_time(client.close()).await;
        assert!(since.elapsed() < CLOSE_WAIT, "{hanging}: {:?}", since.elapsed());
        assert_eq!((tasks(), sent(OpCode::CloseSession)), (0, true), "{hanging}");
    }
}

/// The server grants a session on its first connection and says nothing more, on any connection.
#[tokio::test]
async fn close_during_a_first_login_leaves_no_task_when_the_server_falls_silent() {
    let server = Scripted::start(|frame, _| match (frame.connection, frame.op()) {
        (1, None) => Then::Usual,
        _ => Then::Done,
    });
    let options = builder(server.address()).max_close_wait(CLOSE_WAIT).connection_timeout(10 * CLOSE_WAIT);
    let client = options.sasl(SaslDigest::new("user", "password")).build().unwrap();
    client.start().unwrap();
    eventually("the login hangs", async || server.frames().len() == 2).await;
    let since = Instant::now();
    in_time(client.close()).await;
    assert!(since.elapsed() < CLOSE_WAIT, "{:?}", since.elapsed());
    assert_eq!((tasks(), server.connects().len()), (0, 2));
}

/// The session is granted when most of the time for the attempt has ended: half of the time for closing.
#[tokio::test]
async fn close_leaves_no_task_when_the_first_session_is_granted_late() {
    let server = Scripted::start(|frame, peer| match (frame.connection, frame.op()) {
        (1, None) => {
            std::thread::sleep(CLOSE_WAIT * 3 / 8);
            peer.grant(SESSION, TIMEOUT_MS);
            Then::Done
        }
        _ => Then::Done,
    });
    let options = builder(server.address()).max_close_wait(CLOSE_WAIT).connection_timeout(10 * CLOSE_WAIT);
    let client = options.sasl(SaslDigest::new("user", "password")).build().unwrap();
    client.start().unwrap();
    eventually("it connects", async || server.frames().len() == 1).await;
    let since = Instant::now();
    in_time(client.close()).await;
    assert!(since.elapsed() < CLOSE_WAIT, "{:?}", since.elapsed());
    assert_eq!((tasks(), server.connects().len()), (0, 2));
}

#[tokio::test]
async fn dropped_client_closes_its_session_and_leaves_no_task() {
    let server = TestingServer::start().unwrap();
    let client = client(server.address()).await;
    drop(client);
    eventually("the session is closed", async || server.sessions().is_empty()).await;
    eventually("no task is left", async || tasks() == 0).await;
}

/// A caller that is dropped with its request under way leaves an ignored reply, not a task or a watch.
#[tokio::test]
async fn dropped_callers_leave_nothing() {
    let server = TestingServer::start().unwrap();
    let client = client(server.address()).await;
    let session = client.session().await.unwrap();
    session.exists("/").await.unwrap();
    let before = tasks();
    for _ in 0..100 {
        let read = session.exists_watched("/a");
        let mut read = std::pin::pin!(read);
        assert!(futures_util::poll!(read.as_mut()).is_pending());
    }
    assert!(session.exists("/").await.unwrap().is_some());
    session.write_barrier().await.unwrap();
    assert_eq!(tasks(), before);
    eventually("no watch is left", async || server.watch_count() == 0).await;
    assert_eq!(client.watchers(), 0);
    assert_eq!(session.epoch(), 1);
}

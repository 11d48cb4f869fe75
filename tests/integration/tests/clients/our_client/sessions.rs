//! Servers that say nothing, sessions that end, and timeouts that are granted.

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use curator_framework::{CreateMode, CuratorFramework, DefaultZooKeeperFactory, RetryNTimes};
use curator_integration::env::{connected as connect, eventually};
use curator_test::TestingServer;

use super::{connected, second};

/// A server that takes connections and says nothing: what a host behind a black hole looks like.
fn silent() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// The order is random, so several times.
#[tokio::test]
async fn silent_servers_before_the_good_one_cost_no_more_than_their_share_of_the_connection_timeout() {
    let server = TestingServer::start().unwrap();
    let (first, second) = (silent(), silent());
    let servers = format!("{},{},{}", first.1, second.1, server.address());
    let timeout = Duration::from_secs(6);
    let one = || async {
        let client = CuratorFramework::builder(&servers)
            .zookeeper_factory(DefaultZooKeeperFactory::new())
            .connection_timeout(timeout)
            .session_timeout(Duration::from_secs(20))
            .retry_policy(RetryNTimes::new(0, Duration::ZERO))
            .build()
            .unwrap();
        client.start().unwrap();
        let start = Instant::now();
        assert!(client.check_exists().for_path("/").await.unwrap().is_some());
        assert!(start.elapsed() < timeout, "{:?}", start.elapsed());
        client.close().await;
    };
    futures_util::future::join_all((0..6).map(|_| one())).await;
}

#[tokio::test]
async fn an_ended_session_is_closed_on_the_server_and_one_that_was_given_up_too() {
    let server = TestingServer::start().unwrap();
    let client = connected(server.address()).await;
    assert_eq!(server.sessions().len(), 1);
    client.close().await;
    assert_eq!(server.sessions(), [0; 0]);
    let client = connected(server.address()).await;
    drop(client);
    eventually("the session of a dropped client is closed", async || server.sessions().is_empty()).await;
    // A connect without a waiter.
    for _ in 0..10 {
        let client = second(server.address()).build().unwrap();
        client.start().unwrap();
        tokio::task::yield_now().await;
        client.close().await;
    }
    eventually("what was opened for nobody is closed", async || server.sessions().is_empty()).await;
}

#[tokio::test]
async fn the_session_is_known_by_its_number_and_its_granted_timeout() {
    let sessions = (Duration::from_secs(3), Duration::from_secs(9));
    let server = TestingServer::builder().session_timeouts(sessions.0, sessions.1).start().unwrap();
    for (asked, granted) in [(2, 3), (5, 5), (60, 9)] {
        let client = connect(second(server.address()).session_timeout(Duration::from_secs(asked))).await;
        let session = client.session().await.unwrap();
        assert_eq!(session.timeout(), Duration::from_secs(granted));
        let (_, stat) = session
            .create("/own", Vec::new(), curator_framework::Acl::open_unsafe(), CreateMode::Ephemeral)
            .await
            .unwrap();
        assert_eq!(server.sessions(), [stat.ephemeral_owner], "one session, and no handshake before it");
        client.close().await;
    }
    let connects = server.requests().iter().filter(|one| one.op == curator_test::wire::OpCode::CreateSession).count();
    assert_eq!(connects, 3);
}

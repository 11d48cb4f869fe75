//! The crate's own faults, and what the adapter does about them.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use curator_framework::{CreateMode, CuratorFramework, DefaultZooKeeperFactory, Error, RetryNTimes, SessionEnd};
use curator_test::TestingServer;

use crate::env::{connected as connect, eventually, in_time};
use crate::{connected, second};

/// A server that takes connections and says nothing: what a host behind a black hole looks like.
fn silent() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// The crate tries them in its own random order, so several times.
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
    // A connect that nobody waits for any more.
    for _ in 0..10 {
        let client = second(server.address()).build().unwrap();
        client.start().unwrap();
        tokio::task::yield_now().await;
        client.close().await;
    }
    eventually("what was opened for nobody is closed", async || server.sessions().is_empty()).await;
}

/// Copies frames of a connection, and keeps one back when it is told to.
struct Swallowing {
    address: SocketAddr,
    swallow: Arc<AtomicBool>,
}

impl Swallowing {
    fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, swallow) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let swallowing = Arc::clone(&swallow);
        std::thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let Ok(to) = TcpStream::connect(server) else { return };
                let (mut up, mut down) = (client.try_clone().unwrap(), to.try_clone().unwrap());
                std::thread::spawn(move || {
                    let _ended = std::io::copy(&mut up, &mut down);
                    let _closed = down.shutdown(Shutdown::Both);
                });
                let (swallow, mut from, mut client) = (Arc::clone(&swallowing), to, client);
                std::thread::spawn(move || {
                    let _ended = copy_frames(&mut from, &mut client, &swallow);
                    let _closed = client.shutdown(Shutdown::Both);
                });
            }
        });
        Self { address, swallow }
    }
}

fn copy_frames(from: &mut TcpStream, to: &mut TcpStream, swallow: &AtomicBool) -> std::io::Result<()> {
    loop {
        let mut length = [0; 4];
        from.read_exact(&mut length)?;
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        from.read_exact(&mut frame)?;
        // Not an event (-1) and not the answer to a ping (-2).
        if frame[0] == 0 && swallow.swap(false, Ordering::SeqCst) {
            continue;
        }
        to.write_all(&[&length[..], &frame].concat())?;
    }
}

/// The crate matches answers by their number and would wait for this one for ever, while all others come.
#[tokio::test]
async fn an_answer_that_never_comes_although_later_ones_do_ends_the_session() {
    let server = TestingServer::start().unwrap();
    let proxy = Swallowing::start(server.address());
    let client = connect(second(proxy.address)).await;
    let session = client.session().await.unwrap();
    proxy.swallow.store(true, Ordering::SeqCst);
    let answer = tokio::spawn({
        let session = session.clone();
        async move { session.exists("/").await }
    });
    eventually("it is kept back", async || !proxy.swallow.load(Ordering::SeqCst)).await;
    assert!(session.exists("/").await.unwrap().is_some(), "later ones come");
    assert!(matches!(in_time(answer).await.unwrap(), Err(Error::SessionExpired { .. })));
    assert_eq!(in_time(session.ended()).await, SessionEnd::Inconsistent);
    // The next one works.
    assert!(in_time(client.check_exists().for_path("/")).await.unwrap().is_some());
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

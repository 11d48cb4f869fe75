//! Fronts without a server behind them: how often one client connects, and what is left of it.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use curator_framework::spi::{ByteStream, Connector};
use curator_framework::{CuratorFramework, DefaultZooKeeperFactory, RetryNTimes};
use curator_integration::env::{eventually, tasks};
use parking_lot::Mutex;
use tokio::time::timeout;

use super::scripted::{Port, Scripted, Then};

/// Attempts in any second.
const LIMIT: usize = 5;
const SECOND: Duration = Duration::from_secs(1);

/// A port with a full backlog: the system drops each SYN.
pub(crate) struct FullBacklog {
    pub(crate) address: SocketAddr,
    _listener: tokio::net::TcpListener,
    _waiting: Vec<TcpStream>,
}

impl FullBacklog {
    pub(crate) fn open() -> Self {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut waiting = Vec::new();
        while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
            waiting.push(stream);
        }
        Self { address, _listener: listener, _waiting: waiting }
    }
}

/// Opens plain connections and notes when.
#[derive(Debug, Clone, Default)]
struct Counting(Arc<Mutex<Vec<Instant>>>);

#[async_trait]
impl Connector for Counting {
    async fn connect(&self, server: &str) -> io::Result<Box<dyn ByteStream>> {
        self.0.lock().push(Instant::now());
        Ok(Box::new(tokio::net::TcpStream::connect(server).await?))
    }
}

impl Counting {
    fn assert_paced(&self) {
        let starts = self.0.lock();
        assert!(starts.len() > LIMIT, "{} attempts", starts.len());
        for window in starts.windows(LIMIT + 1) {
            // A timer may fire late, but the pacer does not.
            assert!(window[LIMIT] - window[0] >= SECOND - Duration::from_millis(20), "{starts:?}");
        }
    }
}

fn client(servers: &str, counting: &Counting) -> CuratorFramework {
    let client = CuratorFramework::builder(servers)
        .zookeeper_factory(DefaultZooKeeperFactory::with_connector(counting.clone()))
        .session_timeout(Duration::from_secs(6))
        .connection_timeout(Duration::from_millis(600))
        .max_close_wait(Duration::from_millis(500))
        .retry_policy(RetryNTimes::new(0, Duration::ZERO))
        .build()
        .unwrap();
    client.start().unwrap();
    client
}

/// Lets a client try for some seconds, with requests waiting, and expects nothing of it to be left behind its end.
async fn assert_modest(servers: &str, closes: bool) {
    let counting = Counting::default();
    let client = client(servers, &counting);
    let trying = async {
        loop {
            let _failed = client.check_exists().for_path("/").await;
            tokio::task::yield_now().await;
        }
    };
    let enough = eventually("attempts", async || counting.0.lock().len() >= 2 * LIMIT + 2);
    tokio::select! {
        () = trying => {}
        () = enough => {}
    }
    if closes {
        timeout(2 * SECOND, client.close()).await.expect("close has a limit");
        // Without a task no attempt follows.
        assert_eq!(tasks(), 0, "tasks of a closed client");
    }
    drop(client);
    timeout(2 * SECOND, eventually("no task is left", async || tasks() == 0)).await.expect("its end has a limit");
    counting.assert_paced();
}

async fn assert_modest_however_it_ends(servers: &str) {
    assert_modest(servers, true).await;
    assert_modest(servers, false).await;
}

#[tokio::test]
async fn front_that_closes_at_once_is_not_stormed() {
    let front = Port::open(|stream, _| drop(stream.shutdown(std::net::Shutdown::Both)));
    assert_modest_however_it_ends(&front.address.to_string()).await;
}

#[tokio::test]
async fn front_that_resets_at_once_is_not_stormed() {
    // Bytes that were not read turn the close into a reset.
    let front = Port::open(|stream, _| {
        let mut byte = [0];
        let _peeked = stream.peek(&mut byte);
        drop(stream.shutdown(std::net::Shutdown::Both));
    });
    assert_modest_however_it_ends(&front.address.to_string()).await;
}

#[tokio::test]
async fn port_that_refuses_is_not_stormed() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert_modest_however_it_ends(&address.to_string()).await;
}

#[tokio::test]
async fn front_that_says_nothing_is_not_stormed() {
    let front = TcpListener::bind("127.0.0.1:0").unwrap();
    assert_modest_however_it_ends(&front.local_addr().unwrap().to_string()).await;
}

#[tokio::test]
async fn port_with_a_full_backlog_is_not_stormed() {
    let front = FullBacklog::open();
    assert_modest_however_it_ends(&front.address.to_string()).await;
}

/// Each attempt succeeds, and the session is lost again at once.
#[tokio::test]
async fn server_that_closes_behind_each_connect_is_not_stormed() {
    let server = Scripted::start(|frame, peer| {
        if frame.op().is_none() {
            peer.grant(super::scripted::SESSION, super::scripted::TIMEOUT_MS);
        }
        Then::Close
    });
    assert_modest_however_it_ends(&server.address().to_string()).await;
}

/// Several servers that refuse are one client's attempts too.
#[tokio::test]
async fn list_of_servers_that_refuse_is_not_stormed() {
    let refusing = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let servers: Vec<_> = (0..7).map(|_| refusing()).collect();
    assert_modest_however_it_ends(&servers.join(",")).await;
}

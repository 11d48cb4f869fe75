//! The needs of every test: a server, a root of its own, clients.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{CuratorFramework, CuratorFrameworkBuilder, RetryNTimes, Session};
use curator_test::{ApacheServer, FaultProxy, TestingServer, kill_session, server_version, unique_root};

use crate::clients::with_client;

/// Makes two tests of each: one on the in-process server, one on Apache ZooKeeper.
#[macro_export]
macro_rules! on_every_server {
    ($($(#[$meta:meta])* async fn $name:ident($env:ident) $body:block)*) => {
        $($(#[$meta])* async fn $name($env: $crate::env::Env) $body)*

        mod in_process {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name($crate::env::Env::new($crate::env::Kind::InProcess)).await;
            })*
        }

        mod apache {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name($crate::env::Env::new($crate::env::Kind::Apache)).await;
            })*
        }
    };
}

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    InProcess,
    Apache,
}

/// A server, and a root of the test's own on it.
#[derive(Debug)]
pub struct Env {
    kind: Kind,
    server: Server,
    root: String,
    version: OnceLock<[u32; 3]>,
}

#[derive(Debug)]
enum Server {
    InProcess(TestingServer),
    Apache(ApacheServer),
    /// One Apache ZooKeeper for the whole run, started by the test script.
    Shared(SocketAddr),
}

/// Waits for the events and the metrics so far, which are reported in order on threads of their own.
pub fn reports_are_made() {
    let (done, is_done) = std::sync::mpsc::channel();
    let of_metrics = done.clone();
    curator_framework::recipe::report_metric(move || of_metrics.send(()).unwrap());
    // Without a subscriber no event is reported, and this call is dropped.
    curator_framework::recipe::report(move || drop(done));
    is_done.recv_timeout(PATIENCE).unwrap();
    assert_eq!(is_done.recv_timeout(PATIENCE), Err(std::sync::mpsc::RecvTimeoutError::Disconnected));
}

/// Longer than anything that is waited for can take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_secs(1);
const SESSIONS: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));

impl Env {
    /// A server that may be shared with other tests.
    pub fn new(kind: Kind) -> Self {
        let server = match kind {
            Kind::InProcess => in_process(),
            Kind::Apache => match std::env::var("CURATOR_TEST_APACHE") {
                Ok(address) => Server::Shared(address.parse().expect("CURATOR_TEST_APACHE is host:port")),
                Err(_) => apache(),
            },
        };
        Self::with(kind, server)
    }

    /// The same kind of server for this test alone, which may freeze and restart it.
    pub fn alone(self) -> Self {
        match self.server {
            Server::Shared(_) => Self::with(self.kind, apache()),
            _ => self,
        }
    }

    fn with(kind: Kind, server: Server) -> Self {
        Self { kind, server, root: unique_root("test"), version: OnceLock::new() }
    }

    pub fn address(&self) -> SocketAddr {
        match &self.server {
            Server::InProcess(server) => server.address(),
            Server::Apache(server) => server.address(),
            Server::Shared(address) => *address,
        }
    }

    /// The version that the server names, such as `[3, 8, 0]`: the tests state what differs between versions.
    pub fn server_version(&self) -> [u32; 3] {
        *self.version.get_or_init(|| {
            // One reply may be late on a busy machine.
            let asked = std::iter::repeat_with(|| server_version(self.address())).take(100);
            asked.flatten().next().expect("the server names its version")
        })
    }

    /// Returns true if `exists` needs the permission to read an existing node (ZOOKEEPER-2590).
    pub fn exists_needs_read(&self) -> bool {
        let version = self.server_version();
        version >= [3, 9, 2] || version[..2] == [3, 8] && version[2] >= 4
    }

    /// A path under the test's own root.
    pub fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.root)
    }

    pub fn proxy(&self) -> FaultProxy {
        FaultProxy::start(self.address()).unwrap()
    }

    /// A connected client with a session of 10 s.
    pub async fn client(&self) -> CuratorFramework {
        connected(builder(self.address())).await
    }

    pub fn freeze(&self) {
        match &self.server {
            Server::InProcess(server) => server.freeze(),
            Server::Apache(server) => server.freeze().unwrap(),
            Server::Shared(_) => panic!("a shared server cannot be frozen: use alone()"),
        }
    }

    pub fn thaw(&self) {
        match &self.server {
            Server::InProcess(server) => server.thaw(),
            Server::Apache(server) => server.thaw().unwrap(),
            Server::Shared(_) => panic!("a shared server cannot be thawed: use alone()"),
        }
    }

    pub async fn restart(&self) {
        // It blocks until the server serves again, so it must not hold up the test's clients.
        tokio::task::block_in_place(|| match &self.server {
            Server::InProcess(server) => server.restart().unwrap(),
            Server::Apache(server) => server.restart().unwrap(),
            Server::Shared(_) => panic!("a shared server cannot be restarted: use alone()"),
        });
    }

    /// Gives the next sequential child of `parent` the number `next`. Connections may break in the meantime.
    pub async fn set_next_sequence(&self, parent: &str, next: i32) {
        tokio::task::block_in_place(|| match &self.server {
            Server::InProcess(server) => assert!(server.set_next_sequence(parent, next), "{parent} is not there"),
            Server::Apache(server) => server.restart_with_next_sequence(parent, next).unwrap(),
            Server::Shared(_) => panic!("a shared server cannot be changed: use alone()"),
        });
    }

    /// Closes the session that owns an ephemeral node.
    pub async fn kill_owner_of(&self, client: &CuratorFramework, node: &str) {
        let stat = client.check_exists().for_path(node).await.unwrap().expect("the node is there");
        assert_ne!(stat.ephemeral_owner, 0);
        kill_session(self.address(), stat.ephemeral_owner).await.unwrap();
    }

    /// Closes a session, which belongs to a client that has no connection.
    pub async fn kill_session(&self, session: &Session) {
        kill_session(self.address(), session.id().expect("the client knows its session").get()).await.unwrap();
    }

    /// Waits until a node has this many children (none if it does not exist).
    pub async fn wait_for_children(&self, client: &CuratorFramework, path: &str, count: usize) -> Vec<String> {
        let start = Instant::now();
        loop {
            let children = children(client, path).await;
            if children.len() == count {
                return children;
            }
            assert!(start.elapsed() < PATIENCE, "{path} has {children:?}, not {count} children");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

pub async fn children(client: &CuratorFramework, path: &str) -> Vec<String> {
    match client.get_children().for_path(path).await {
        Ok(children) => children,
        Err(curator_framework::Error::NoNode { .. }) => Vec::new(),
        Err(error) => panic!("{error}"),
    }
}

fn in_process() -> Server {
    Server::InProcess(TestingServer::builder().tick(TICK).session_timeouts(SESSIONS.0, SESSIONS.1).start().unwrap())
}

fn apache() -> Server {
    match ApacheServer::builder().tick(TICK).session_timeouts(SESSIONS.0, SESSIONS.1).start() {
        Ok(server) => Server::Apache(server),
        Err(error) => panic!("{error}"),
    }
}

/// A client's options as most tests want them.
pub fn builder(address: SocketAddr) -> CuratorFrameworkBuilder {
    with_client(CuratorFramework::builder(address.to_string()))
        .session_timeout(Duration::from_secs(10))
        .connection_timeout(Duration::from_secs(10))
        .retry_policy(RetryNTimes::new(10, Duration::from_millis(50)))
}

pub async fn connected(builder: CuratorFrameworkBuilder) -> CuratorFramework {
    let client = builder.build().unwrap();
    client.start().unwrap();
    in_time(client.block_until_connected()).await.unwrap();
    client
}

/// Waits until these clients have the answers to all that they asked: a session's answers come in order.
pub async fn answered(clients: &[CuratorFramework]) {
    for client in clients {
        in_time(client.check_exists().for_path("/")).await.unwrap();
    }
}

/// How many watches these clients wait for.
pub fn watchers(clients: &[CuratorFramework]) -> usize {
    clients.iter().map(CuratorFramework::watchers).sum()
}

/// Returns the number of tasks of this runtime that have not ended.
pub fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// Waits for something that must come.
pub async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it did not come in time")
}

/// Polls until something is true that must become true.
pub async fn eventually(what: &str, mut is_true: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !is_true().await {
        assert!(start.elapsed() < PATIENCE, "{what}: not in time");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Closes the connections of a proxy, and waits for the next one of the session. A request in between may still be
/// answered on the old one.
pub async fn reconnected(proxy: &FaultProxy, session: &Session) {
    let epoch = session.epoch();
    proxy.reset();
    eventually("the next connection", async || session.epoch() != epoch && session.is_connected()).await;
}

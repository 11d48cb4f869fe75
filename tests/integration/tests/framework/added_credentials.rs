//! Credentials that a program adds while its client runs.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use curator_framework::recipe::Resync;
use curator_framework::spi::{
    AddedWatch, Capabilities, ConnectConfig, Connection, Evidence, ReplyFuture, Request, ZooKeeperFactory,
    ZooKeeperHandle,
};
use curator_framework::{
    Acl, AddWatchMode, AuthInfo, ConnectError, CuratorFramework, CuratorFrameworkBuilder, DefaultZooKeeperFactory,
    Error, RetryNTimes,
};
use curator_integration::env::{builder, connected, eventually, in_time};
use curator_test::wire::OpCode;
use curator_test::{FaultProxy, TestingServer};
use parking_lot::{Condvar, Mutex};

fn ours(address: std::net::SocketAddr) -> CuratorFrameworkBuilder {
    builder(address).zookeeper_factory(DefaultZooKeeperFactory::new())
}

async fn users(client: &CuratorFramework) -> Vec<String> {
    let all = in_time(client.who_am_i()).await.unwrap();
    all.into_iter().filter(|who| who.scheme == "digest").map(|who| who.user).collect()
}

/// Adds credentials while a session is being made, and records what the session gets.
#[derive(Debug, Clone, Default)]
struct Recording(Arc<Recorded>);

#[derive(Debug, Default)]
struct Recorded {
    /// The client, until it has added them.
    client: Mutex<Option<CuratorFramework>>,
    calls: Mutex<Vec<&'static str>>,
    called: Condvar,
}

#[async_trait]
impl ZooKeeperFactory for Recording {
    async fn connect(&self, config: &ConnectConfig) -> Result<Connection, ConnectError> {
        let connection = DefaultZooKeeperFactory::new().connect(config).await?;
        if let Some(client) = self.0.client.lock().take() {
            client.add_authorization("digest", "ann:one");
        }
        let handle = Arc::new(Handle { inner: connection.handle, recorded: Arc::clone(&self.0) });
        Ok(Connection { handle, ..connection })
    }
}

#[derive(Debug)]
struct Handle {
    inner: Arc<dyn ZooKeeperHandle>,
    recorded: Arc<Recorded>,
}

impl Handle {
    fn calls(&self, name: &'static str) {
        self.recorded.calls.lock().push(name);
        self.recorded.called.notify_all();
    }
}

impl ZooKeeperHandle for Handle {
    fn submit(&self, request: Request, epoch: u64) -> ReplyFuture {
        self.calls("request");
        self.inner.submit(request, epoch)
    }

    fn add_auth(&self, auth: &AuthInfo) {
        // A request that could overtake the credentials does so now.
        let mut calls = self.recorded.calls.lock();
        let overtakes = Duration::from_millis(300);
        self.recorded.called.wait_while_for(&mut calls, |calls| !calls.contains(&"request"), overtakes);
        drop(calls);
        self.calls("credentials");
        self.inner.add_auth(auth);
    }

    fn heartbeat(&self, evidence: Evidence) -> ReplyFuture {
        self.inner.heartbeat(evidence)
    }

    fn session_id(&self) -> Option<i64> {
        self.inner.session_id()
    }

    fn set_owning(&self, owning: bool) {
        self.inner.set_owning(owning);
    }

    fn negotiated_timeout(&self) -> Duration {
        self.inner.negotiated_timeout()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn add_watch(&self, path: &str, mode: AddWatchMode, resync: Option<Arc<dyn Resync>>) -> AddedWatch {
        self.inner.add_watch(path, mode, resync)
    }

    fn client(&self) -> &'static str {
        self.inner.client()
    }

    fn end(&self) {
        self.inner.end();
    }

    fn closed(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.inner.closed()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn no_request_overtakes_credentials_that_are_added_while_a_session_is_made() {
    let server = TestingServer::start().unwrap();
    let recording = Recording::default();
    let client = builder(server.address()).zookeeper_factory(recording.clone()).build().unwrap();
    *recording.0.client.lock() = Some(client.clone());
    client.start().unwrap();
    in_time(client.check_exists().for_path("/").into_future()).await.unwrap();
    assert_eq!(recording.0.calls.lock()[0], "credentials");
}

#[tokio::test]
async fn credentials_count_in_order_from_whatever_moment_they_are_added() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let client = ours(proxy.address()).authorization("digest", "ann:one").build().unwrap();
    client.add_authorization("digest", "bob:two");
    client.add_authorization("digest", "ann:one");
    client.start().unwrap();
    client.add_authorization("digest", "cleo:three");
    in_time(client.block_until_connected()).await.unwrap();
    assert_eq!(users(&client).await, ["ann", "bob", "cleo"]);
    client.add_authorization("digest", "dan:four");
    client.add_authorization("digest", "dan:four");
    assert_eq!(users(&client).await, ["ann", "bob", "cleo", "dan"]);
    let auths = || server.requests().iter().filter(|request| request.op == OpCode::Auth).count();
    assert_eq!(auths(), 4);
    let mut state = client.watch_connection_state();
    state.mark_unchanged();
    proxy.refuse();
    proxy.reset();
    in_time(state.changed()).await.unwrap();
    client.add_authorization("digest", "eve:five");
    client.add_authorization("digest", "bob:two");
    proxy.accept();
    assert_eq!(users(&client).await, ["ann", "bob", "cleo", "dan", "eve"]);
    assert_eq!(auths(), 9);
    client.close().await;
    client.add_authorization("digest", "fay:six");
    assert!(matches!(client.who_am_i().await, Err(Error::Closed)));
}

/// The server closes the connection, and the session's locks must not stay until it expires.
#[tokio::test]
async fn the_session_of_refused_credentials_is_closed() {
    let server =
        TestingServer::builder().session_timeouts(Duration::from_secs(2), Duration::from_secs(60)).start().unwrap();
    let options = ours(server.address()).session_timeout(Duration::from_secs(60));
    let client = connected(options.retry_policy(RetryNTimes::new(0, Duration::ZERO))).await;
    let ephemeral = client.create().with_mode(curator_framework::CreateMode::Ephemeral).with_acl(Acl::open_unsafe());
    ephemeral.for_path("/mine").await.unwrap();
    let session = client.session().await.unwrap();
    client.add_authorization("nothing", "x");
    in_time(session.ended()).await;
    let start = std::time::Instant::now();
    eventually("its node goes", async || !server.children("/").unwrap().contains(&"mine".to_owned())).await;
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    let error = in_time(client.check_exists().for_path("/").into_future()).await.unwrap_err();
    assert!(matches!(error, Error::AuthFailed { .. }), "{error}");
}

//! What proves that the session lives, and that a new connection is the session's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use curator_framework::{Acl, Clock, CreateMode, CuratorFramework, Error, Permission, Session, SessionEnd};
use curator_framework::{DefaultZooKeeperFactory, RetryNTimes};
use curator_recipes::InterProcessMutex;
use curator_test::wire::OpCode;
use curator_test::{ApacheCluster, FaultProxy, TestingServer};

use crate::env::{connected as connect, eventually, in_time};
use crate::{connected, second};

/// A clock that a test sets.
#[derive(Debug, Clone, Default)]
struct Seconds(Arc<AtomicU64>);

impl Clock for Seconds {
    fn now(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::SeqCst))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_refused_here_is_no_answer_of_the_server() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let clock = Seconds::default();
    let client = connect(second(proxy.address()).clock(clock.clone())).await;
    let session = client.session().await.unwrap();
    proxy.partition();
    clock.0.store(3, Ordering::SeqCst);
    let before = session.remaining();
    let created = session.create("/", Vec::new(), Acl::open_unsafe(), CreateMode::Persistent).await;
    assert!(matches!(created, Err(Error::NodeExists { .. })), "{created:?}");
    let changed = session.set_acl("/", Vec::new(), None).await;
    assert!(matches!(changed, Err(Error::InvalidAcl { .. })), "{changed:?}");
    assert_eq!(session.remaining(), before);
}

/// A leader that the others have left answers a `sync` by itself, until it knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_alone_proves_nothing() {
    let limit = 60;
    let cluster = tokio::task::block_in_place(|| ApacheCluster::builder().sync_limit(limit).start().unwrap());
    let leader = tokio::task::block_in_place(|| cluster.wait_until_serving().unwrap());
    let client = CuratorFramework::builder(cluster.server(leader).unwrap().to_string())
        .zookeeper_factory(DefaultZooKeeperFactory::new())
        .session_timeout(Duration::from_secs(6))
        .connection_timeout(Duration::from_secs(6))
        .retry_policy(RetryNTimes::new(0, Duration::ZERO))
        .build()
        .unwrap();
    client.start().unwrap();
    let guard = in_time(InterProcessMutex::new(client.clone(), "/lock").unwrap().acquire()).await.unwrap();
    for other in (0..cluster.servers()).filter(|other| *other != leader) {
        tokio::task::block_in_place(|| cluster.freeze(other).unwrap());
    }
    let session = client.session().await.unwrap();
    let mut ended = std::pin::pin!(session.ended());
    // Also when it is asked for one again and again.
    let end = in_time(async {
        loop {
            tokio::select! {
                end = &mut ended => return end,
                _synced = session.sync("/") => tokio::task::yield_now().await,
            }
        }
    })
    .await;
    assert_eq!(end, SessionEnd::DeadlinePassed);
    assert!(!guard.is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_holds_something_asks_the_leader() {
    let server = TestingServer::start().unwrap();
    let client = connect(second(server.address()).session_timeout(Duration::from_secs(4))).await;
    let guard = InterProcessMutex::new(client.clone(), "/lock").unwrap().acquire().await.unwrap();
    server.clear_requests();
    let asked = |op| server.requests().iter().any(|one| one.op == op);
    eventually("a write that changes nothing", async || asked(OpCode::Delete)).await;
    assert!(!asked(OpCode::Sync));
    guard.release().await.unwrap();
}

fn parent_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| if parent.is_empty() { "/" } else { parent })
}

async fn own(session: &Session, parent: &str) {
    let path = format!("{parent}/own");
    session.create(&path, Vec::new(), Acl::open_unsafe(), CreateMode::Ephemeral).await.unwrap();
}

/// What was asked for on the next connection.
async fn proof(server: &TestingServer, proxy: &FaultProxy, session: &Session) -> Vec<(OpCode, String)> {
    let reconnects = session.epoch();
    server.clear_requests();
    proxy.reset();
    eventually("connected again", async || session.epoch() > reconnects).await;
    let requests = server.requests().into_iter();
    let connecting = [OpCode::Ping, OpCode::CreateSession, OpCode::CloseSession];
    requests.filter(|one| !connecting.contains(&one.op)).map(|one| (one.op, one.path.unwrap_or_default())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_is_proven_below_the_root_or_where_the_sessions_nodes_are() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let direct = connected(server.address()).await;
    direct.create().for_path("/open").await.unwrap();
    let kept = vec![Acl::new(Permission::READ | Permission::CREATE, "world", "anyone")];
    direct.create().with_acl(kept.clone()).for_path("/kept").await.unwrap();
    let [create, delete] = [OpCode::Create2, OpCode::Delete];
    // Where the session has nodes no number of a lock's sequence is used up.
    for parent in ["/open", "/kept"] {
        let client = connect(second(proxy.address())).await;
        let session = client.session().await.unwrap();
        own(&session, parent).await;
        let asked = proof(&server, &proxy, &session).await;
        let below_root = asked.iter().all(|(_, path)| parent_of(path) == "/");
        assert!(asked.iter().map(|(op, _)| *op).eq([create, delete]) && below_root, "{asked:?}");
        client.close().await;
    }
    // Below the root nothing may be made any more, or not taken away.
    for (permissions, tries) in [(Permission::READ, 1), (Permission::READ | Permission::CREATE, 2)] {
        let limited = vec![Acl::new(permissions | Permission::ADMIN, "world", "anyone")];
        direct.set_acl().with_acl(limited).for_path("/").await.unwrap();
        for parent in ["/open", "/kept"] {
            let client = connect(second(proxy.address())).await;
            let session = client.session().await.unwrap();
            own(&session, parent).await;
            if tries == 2 {
                // The first proof leaves a node there that goes with the session.
                assert_eq!(proof(&server, &proxy, &session).await.len(), 2);
            }
            let asked = proof(&server, &proxy, &session).await;
            let at = |parent: &str| asked.iter().filter(|(_, path)| parent_of(path) == parent).count();
            assert_eq!((at("/"), at(parent), asked.len()), (2 * tries, 2, 2 * tries + 2), "{asked:?}");
            client.close().await;
        }
    }
}

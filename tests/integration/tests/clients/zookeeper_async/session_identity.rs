//! A reconnect that carries another session: the crate does not notice it, so the adapter proves each connection.

use std::time::Duration;

use curator_framework::{Acl, CreateMode, CuratorFramework, Permission, SessionEnd};
use curator_integration::env::{connected, in_time};
use curator_recipes::{InterProcessMutex, MutexGuard};
use curator_test::wire::OpCode;
use curator_test::{FaultProxy, TestingServer};

use super::builder;

const LOCK: &str = "/locks/printer";

struct Stage {
    server: TestingServer,
    proxy: FaultProxy,
    direct: CuratorFramework,
    client: CuratorFramework,
}

/// A client behind a proxy; the lock's path exists.
async fn stage() -> Stage {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let direct = connected(builder(server.address())).await;
    direct.create().creating_parents_if_needed().for_path(LOCK).await.unwrap();
    let client = connected(builder(proxy.address()).session_timeout(Duration::from_secs(6))).await;
    Stage { server, proxy, direct, client }
}

impl Stage {
    async fn acquire(&self) -> MutexGuard {
        in_time(InterProcessMutex::new(self.client.clone(), LOCK).unwrap().acquire()).await.unwrap()
    }

    /// The guard's node belongs to the session of the client's connection.
    async fn assert_own(&self, guard: &MutexGuard) {
        let lock = self.direct.check_exists().for_path(guard.node_path()).await.unwrap().unwrap();
        let probe = self.client.create().with_mode(CreateMode::Ephemeral).for_path_with_stat("/probe").await;
        assert_eq!(lock.ephemeral_owner, probe.unwrap().1.ephemeral_owner);
        assert!(guard.is_held());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_is_not_granted_on_another_sessions_node_after_the_first_reply_is_lost() {
    let stage = stage().await;
    let session = stage.client.session().await.unwrap();
    stage.proxy.drop_reply(OpCode::Create2, 1);
    stage.proxy.swap_session();
    let guard = stage.acquire().await;
    assert_eq!(stage.proxy.faults_done(), 2);
    stage.assert_own(&guard).await;
    assert_eq!(session.end_reason(), Some(SessionEnd::Inconsistent));
}

/// The session's id is known from an earlier node, and the session owns nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_is_not_granted_on_another_sessions_node_after_a_later_reply_is_lost() {
    let stage = stage().await;
    let session = stage.client.session().await.unwrap();
    assert!(stage.acquire().await.release().await.unwrap().is_released());
    stage.proxy.drop_reply(OpCode::Create2, 1);
    stage.proxy.swap_session();
    let guard = stage.acquire().await;
    assert_eq!(stage.proxy.faults_done(), 2);
    stage.assert_own(&guard).await;
    assert_eq!(session.end_reason(), Some(SessionEnd::Inconsistent));
    assert_eq!(session.epoch(), 1, "no request of the session runs in the other one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_goes_on_after_a_lost_reply_when_its_id_is_known() {
    let stage = stage().await;
    let session = stage.client.session().await.unwrap();
    assert!(stage.acquire().await.release().await.unwrap().is_released());
    stage.proxy.drop_reply(OpCode::Create2, 1);
    let guard = stage.acquire().await;
    assert_eq!((stage.proxy.faults_done(), session.end_reason()), (1, None));
    stage.assert_own(&guard).await;
    assert_eq!(stage.server.children("/").unwrap(), ["locks", "probe", "zookeeper"], "a proof leaves no node");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_that_cannot_be_proven_ends() {
    let stage = stage().await;
    let session = stage.client.session().await.unwrap();
    let guard = stage.acquire().await;
    let read_only = vec![Acl::new(Permission::READ | Permission::ADMIN, "world", "anyone")];
    for path in [LOCK, "/"] {
        stage.direct.set_acl().with_acl(read_only.clone()).for_path(path).await.unwrap();
    }
    stage.proxy.reset();
    assert_eq!(in_time(session.ended()).await, SessionEnd::Inconsistent);
    assert!(!guard.is_held());
}

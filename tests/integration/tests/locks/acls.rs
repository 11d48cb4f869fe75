//! Curator's `TestLockACLs`.

use curator_framework::{Acl, AclProvider, Error, Permission};
use curator_integration::env::{builder, children, connected, in_time};
use curator_integration::on_every_server;
use curator_recipes::{
    InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreMutex, InterProcessSemaphoreV2, LockError,
    LockOptions, MutexOptions, SemaphoreOptions, SemaphoreProtocol,
};
use curator_test::TestingServer;
use curator_test::wire::OpCode;

/// A list for the parents, with paths that have the namespace before them, and another one for the rest.
#[derive(Debug)]
struct ByPath {
    parent: String,
}

fn local() -> Vec<Acl> {
    vec![Acl::new(Permission::ALL, "ip", "127.0.0.1")]
}

impl AclProvider for ByPath {
    fn default_acl(&self) -> Vec<Acl> {
        Acl::open_unsafe()
    }

    fn acl_for_path(&self, path: &str) -> Option<Vec<Acl>> {
        (path == self.parent).then(local)
    }
}

on_every_server! {
    /// Curator's `TestLockACLs.testLockACLs`.
    async fn a_locks_nodes_and_its_parent_get_the_providers_list(env) {
        let namespace = env.path("ns");
        let client = connected(builder(env.address()).namespace(&namespace[1..]).acl_provider(local())).await;
        let lock = InterProcessReadWriteLock::new(client.clone(), "/foo/lock").unwrap();
        let writing = in_time(lock.write_lock().acquire()).await.unwrap();
        let reading = in_time(writing.downgrade()).await.unwrap();
        let semaphore = InterProcessSemaphoreV2::new(client.clone(), "/foo/semaphore", 1).unwrap();
        let lease = in_time(semaphore.acquire()).await.unwrap();
        client.create().for_path("/foo/node").await.unwrap();
        let paths = ["/foo", "/foo/lock", reading.node_path(), "/foo/semaphore/leases", lease.node_path(), "/foo/node"];
        for path in paths {
            assert_eq!(client.get_acl().for_path(path).await.unwrap().0, local(), "{path}");
        }
        assert!(reading.release().await.unwrap().is_released());
        assert!(lease.release().await.unwrap().is_released());
    }

    /// Curator's `TestLockACLs.testACLsCreatingParents`.
    async fn the_provider_is_asked_for_each_path_with_the_namespace(env) {
        let namespace = env.path("ns");
        let provider = ByPath { parent: format!("{namespace}/parent") };
        let client = connected(builder(env.address()).namespace(&namespace[1..]).acl_provider(provider)).await;
        let lock = InterProcessReadWriteLock::new(client.clone(), "/parent").unwrap();
        let writing = in_time(lock.write_lock().acquire()).await.unwrap();
        assert_eq!(client.get_acl().for_path("/parent").await.unwrap().0, local());
        assert_eq!(client.get_acl().for_path(writing.node_path()).await.unwrap().0, Acl::open_unsafe());
        client.create().creating_parents_if_needed().for_path("/parent/child/node").await.unwrap();
        assert_eq!(client.get_acl().for_path("/parent/child").await.unwrap().0, Acl::open_unsafe());
        assert!(writing.release().await.unwrap().is_released());
    }

    async fn the_nodes_of_a_lock_get_the_list_of_its_options(env) {
        let (stranger, path) = (env.client().await, env.path("lock"));
        let owner = connected(builder(env.address()).authorization("digest", "ann:secret")).await;
        let is_closed = async |node: &str| {
            let (acl, _) = owner.get_acl().for_path(node).await.unwrap();
            assert_eq!((acl.len(), &*acl[0].scheme, acl[0].permissions), (1, "digest", Permission::ALL), "{node}");
            for refused in [stranger.get_data().for_path(node).await.map(drop), stranger.set_data().for_path(node, "").await.map(drop)] {
                assert!(matches!(refused, Err(Error::NoAuth { .. })), "{node}: {refused:?}");
            }
        };
        let mutex = MutexOptions::new().acl(Acl::creator_all());
        let mutex = InterProcessMutex::with_options(owner.clone(), format!("{path}/mutex"), mutex).unwrap();
        let held = in_time(mutex.acquire()).await.unwrap();
        is_closed(held.node_path()).await;
        assert!(held.release().await.unwrap().is_released());
        let options = LockOptions::new().acl(Acl::creator_all());
        let lock = InterProcessReadWriteLock::with_options(owner.clone(), format!("{path}/rw"), options.clone()).unwrap();
        let writing = in_time(lock.write_lock().acquire()).await.unwrap();
        is_closed(writing.node_path()).await;
        let reading = in_time(writing.downgrade()).await.unwrap();
        is_closed(reading.node_path()).await;
        let once = InterProcessSemaphoreMutex::with_options(owner.clone(), format!("{path}/once"), options).unwrap();
        is_closed(in_time(once.acquire()).await.unwrap().node_path()).await;
        for protocol in [SemaphoreProtocol::Curator, SemaphoreProtocol::Direct] {
            let path = format!("{path}/{protocol}");
            let options = SemaphoreOptions::new().protocol(protocol).acl(Acl::creator_all());
            let semaphore = InterProcessSemaphoreV2::with_options(owner.clone(), &path, 1, options).unwrap();
            let lease = in_time(semaphore.acquire()).await.unwrap();
            is_closed(lease.node_path()).await;
            let waiter = tokio::spawn(async move { semaphore.acquire().await.unwrap() });
            if protocol == SemaphoreProtocol::Curator {
                let turns = format!("{path}/locks");
                env.wait_for_children(&owner, &turns, 1).await;
                is_closed(&format!("{turns}/{}", children(&owner, &turns).await[0])).await;
            }
            assert!(lease.release().await.unwrap().is_released());
            is_closed(in_time(waiter).await.unwrap().node_path()).await;
        }
    }
}

/// A waiter of the direct protocol could not signal to another one.
#[tokio::test]
async fn a_list_without_writes_is_refused_for_direct_leases() {
    let server = TestingServer::start().unwrap();
    let options = SemaphoreOptions::new().protocol(SemaphoreProtocol::Direct);
    let options = options.acl([Acl::new(Permission::READ, "world", "anyone")]);
    let client = connected(builder(server.address())).await;
    let semaphore = InterProcessSemaphoreV2::with_options(client, "/s", 1, options).unwrap();
    let refused = in_time(semaphore.acquire()).await;
    assert!(matches!(refused, Err(LockError::InvalidArgument { argument: "access control list", .. })), "{refused:?}");
}

#[tokio::test]
async fn a_refused_contender_has_no_node_to_search_for() {
    let server = TestingServer::start().unwrap();
    let client = connected(builder(server.address())).await;
    let closed = vec![Acl::new(Permission::READ, "world", "anyone")];
    client.create().with_acl(closed).for_path("/lock").await.unwrap();
    server.clear_requests();
    let refused = in_time(InterProcessMutex::new(client.clone(), "/lock").unwrap().acquire()).await;
    assert!(matches!(refused, Err(LockError::Framework(Error::NoAuth { .. }))), "{refused:?}");
    client.close().await;
    let sent: Vec<OpCode> = server.requests().into_iter().map(|one| one.op).filter(|op| *op != OpCode::Ping).collect();
    // The last but one is for the watch of the listing.
    assert_eq!(sent, [OpCode::Create2, OpCode::GetChildren, OpCode::RemoveWatches, OpCode::CloseSession]);
}

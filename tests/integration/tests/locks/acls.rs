//! Curator's `TestLockACLs`.

use curator_framework::{Acl, AclProvider, Error, Permission};
use curator_integration::env::{builder, connected, in_time};
use curator_integration::on_every_server;
use curator_recipes::{InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreV2, LockError};
use curator_test::TestingServer;
use curator_test::wire::OpCode;

/// A list for the parents, whose paths have the namespace before them, and another one for the rest.
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
        let paths = ["/foo", "/foo/lock", reading.path(), "/foo/semaphore/leases", lease.path(), "/foo/node"];
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
        assert_eq!(client.get_acl().for_path(writing.path()).await.unwrap().0, Acl::open_unsafe());
        client.create().creating_parents_if_needed().for_path("/parent/child/node").await.unwrap();
        assert_eq!(client.get_acl().for_path("/parent/child").await.unwrap().0, Acl::open_unsafe());
        assert!(writing.release().await.unwrap().is_released());
    }
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

//! The asynchronous methods of typed nodes, dropped at every poll: a write is made or not, and nothing else is left.

use curator_framework::{CuratorFramework, CuratorOp};
use curator_integration::lock_stage::{OURS, QUIET};
use curator_integration::operations::LONG;
use curator_recipes::{
    CacheState, Migration, MigrationManager, MigrationSet, ModelSpec, ModeledCache, ModeledFramework, ModeledNode,
    RawCodec,
};
use tokio::time::sleep;

use crate::Row;

const PATH: &str = "/typed";

fn directory(client: &CuratorFramework) -> ModeledFramework<String> {
    let spec = ModelSpec::new(format!("{PATH}/{{key}}"), RawCodec).unwrap();
    ModeledFramework::new(client.clone(), spec).unwrap()
}

/// A call, with the value before it and after it. `None`: the node does not exist. All values before it have version 0.
fn row(
    method: &'static str,
    [before, after]: [Option<&'static str>; 2],
    call: impl AsyncFn(&ModeledNode<String>) + 'static,
) -> Row {
    let row = Row::new(method, async move |scene| {
        let front = directory(&scene.stage.front).at("ada").unwrap();
        scene.stage.front.create().for_path(PATH).await.unwrap();
        if let Some(before) = before {
            front.create(&before.to_owned()).await.unwrap();
        }
        sleep(QUIET).await;
        let node = directory(&scene.stage.client).at("ada").unwrap();
        scene.call(call(&node)).await;
        sleep(QUIET).await;
        scene.stage.ensemble.repair(OURS);
        let left = front.read_opt().await.unwrap().map(|read| read.value);
        let left = left.as_deref();
        assert!(left == after || (!scene.completes && left == before), "{}: {left:?}", scene.what);
        for path in [front.path(), PATH] {
            scene.stage.ensemble.delete(path);
        }
    });
    row.also_loses_a_reply(1)
}

pub(crate) fn nodes() -> Vec<Row> {
    let new = || "new".to_owned();
    let (written, read) = ([Some("old"), Some("new")], [Some("old"); 2]);
    vec![
        row("ModeledNode::create", [None, Some("new")], async move |node| _ = node.create(&new()).await.unwrap()),
        row("ModeledNode::set", written, async move |node| _ = node.set(&new()).await.unwrap()),
        row("ModeledNode::update", written, async move |node| {
            assert_eq!(node.update(0, &new()).await.unwrap().version, 1);
        }),
        row("ModeledNode::modify", written, async |node| {
            let changed = node.modify(|value| {
                assert_eq!(value, "old");
                *value = "new".to_owned();
                Ok(())
            });
            assert_eq!(changed.await.unwrap().version, 1);
        }),
        row("ModeledNode::delete", [Some("old"), None], async |node| node.delete().await.unwrap()),
        row("ModeledNode::delete_version", [Some("old"), None], async |node| node.delete_version(0).await.unwrap()),
        row("ModeledNode::read", read, async |node| assert_eq!(node.read().await.unwrap().value, "old")),
        row("ModeledNode::read_opt", read, async |node| assert!(node.read_opt().await.unwrap().is_some())),
        row("ModeledNode::exists", read, async |node| assert!(node.exists().await.unwrap().is_some())),
        of_all("ModeledFramework::keys", async |all| assert_eq!(all.keys().await.unwrap(), ["ada"])),
        of_all("ModeledFramework::read_all", async |all| assert_eq!(all.read_all().await.unwrap().len(), 1)),
    ]
}

/// A call of a started cache: afterwards it follows its nodes, and its close leaves nothing.
fn cache(method: &'static str, call: impl AsyncFn(&ModeledCache<String>) + 'static) -> Row {
    Row::new(method, async move |scene| {
        let front = directory(&scene.stage.front).at("ada").unwrap();
        front.create(&"old".to_owned()).await.unwrap();
        let cache = directory(&scene.stage.client).cached().unwrap();
        cache.start().unwrap();
        scene.call(call(&cache)).await;
        sleep(QUIET).await;
        if scene.is_called() && method == "ModeledCache::close" {
            assert!(matches!(cache.state(), CacheState::Closed));
        } else {
            front.set(&"new".to_owned()).await.unwrap();
            cache.synced().await.unwrap();
            assert_eq!(*cache.get("ada").unwrap().present().unwrap().value, "new");
        }
        cache.close().await;
        for path in [front.path(), PATH] {
            scene.stage.ensemble.delete(path);
        }
    })
}

pub(crate) fn caches() -> Vec<Row> {
    vec![
        cache("ModeledCache::caught_up", async |cache| _ = cache.caught_up().await.unwrap()),
        cache("ModeledCache::close", async |cache| cache.close().await),
        cache("ModeledCache::initialized", async |cache| cache.initialized().await.unwrap()),
        cache("ModeledCache::initialized_timeout", async |cache| {
            cache.initialized_timeout(LONG).await.unwrap().unwrap();
        }),
        cache("ModeledCache::synced", async |cache| _ = cache.synced().await.unwrap()),
    ]
}

/// A set of two migrations: both are applied, or none, and the lock is free.
fn migration(method: &'static str, call: impl AsyncFn(&MigrationManager, &MigrationSet) -> usize + 'static) -> Row {
    let row = Row::new(method, async move |scene| {
        let manager = |client: &CuratorFramework| MigrationManager::new(client.clone(), "/locks", "/applied").unwrap();
        let first = Migration::new([CuratorOp::create("/first").with_data("")]);
        let set = MigrationSet::new("main", [first, Migration::new([CuratorOp::create("/second").with_data("")])]);
        let ours = manager(&scene.stage.client);
        scene.call(async { assert_eq!(call(&ours, &set).await, 2) }).await;
        sleep(QUIET).await;
        scene.stage.ensemble.repair(OURS);
        let is_applied = async |path: &str| scene.stage.front.check_exists().for_path(path).await.unwrap().is_some();
        let applied = [is_applied("/first").await, is_applied("/second").await];
        assert!(applied == [true; 2] || (!scene.completes && applied == [false; 2]), "{}: {applied:?}", scene.what);
        let left = manager(&scene.stage.front).migrate_timeout(&set, LONG).await.unwrap();
        assert_eq!(left, Some(if applied[0] { 0 } else { 2 }), "{}", scene.what);
        sleep(QUIET).await;
        for parent in ["/applied/main", "/locks/main/leases", "/locks/main/locks"] {
            for child in scene.stage.ensemble.children(parent) {
                scene.stage.ensemble.delete(&format!("{parent}/{child}"));
            }
            scene.stage.ensemble.delete(parent);
        }
        for path in ["/first", "/second", "/applied", "/locks/main", "/locks"] {
            scene.stage.ensemble.delete(path);
        }
    });
    row.also_loses_a_reply(1)
}

pub(crate) fn migrations() -> Vec<Row> {
    vec![
        migration("MigrationManager::migrate", async |manager, set| manager.migrate(set).await.unwrap()),
        migration("MigrationManager::migrate_timeout", async |manager, set| {
            manager.migrate_timeout(set, LONG).await.unwrap().unwrap()
        }),
    ]
}

/// A read of a directory with one node.
fn of_all(method: &'static str, call: impl AsyncFn(&ModeledFramework<String>) + 'static) -> Row {
    let row = Row::new(method, async move |scene| {
        let front = directory(&scene.stage.front).at("ada").unwrap();
        front.create(&"old".to_owned()).await.unwrap();
        sleep(QUIET).await;
        let all = directory(&scene.stage.client);
        scene.call(call(&all)).await;
        sleep(QUIET).await;
        scene.stage.ensemble.repair(OURS);
        for path in [front.path(), PATH] {
            scene.stage.ensemble.delete(path);
        }
    });
    row.also_loses_a_reply(1)
}

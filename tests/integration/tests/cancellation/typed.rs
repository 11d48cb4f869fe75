//! The asynchronous methods of typed nodes, dropped at every poll: a write is made or not, and nothing else is left.

use curator_framework::CuratorFramework;
use curator_integration::lock_stage::{OURS, QUIET};
use curator_recipes::{ModelSpec, ModeledFramework, ModeledNode, RawCodec};
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

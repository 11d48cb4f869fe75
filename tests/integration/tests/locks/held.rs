//! All that a node holds for its owner keeps the promises of `Held`.

use std::future::Future;
use std::time::Duration;

use curator_framework::CuratorFramework;
use curator_integration::env::in_time;
use curator_integration::in_process::{client, server};
use curator_recipes::{
    CountDownLatch, DistributedBarrier, DistributedDoubleBarrier, Held, InterProcessMutex, LeaderLatch, LossReason,
    Partition, PartitionOptions, Release,
};
use futures_util::FutureExt as _;

/// Returns the path of the only node of an owner below another one.
async fn node_below(client: &CuratorFramework, parent: &str) -> String {
    let mut children = client.get_children().for_path(parent).await.unwrap();
    children.retain(|name| name != "ready");
    format!("{parent}/{}", children.remove(0))
}

/// Checks a thing that is held by the node at a path, then deletes that node.
async fn is_held_until_its_node_is_deleted(client: &CuratorFramework, held: &(impl Held + Sync), node: &str) {
    assert!(held.is_held() && held.remaining() > Duration::ZERO, "{node}");
    in_time(held.verify()).await.unwrap();
    let stat = client.check_exists().for_path(node).await.unwrap().unwrap();
    assert_eq!((held.token().czxid().get(), held.token().pass()), (stat.czxid, 0), "{node}");
    assert_eq!(held.lost().now_or_never(), None, "{node}");
    client.delete().for_path(node).await.unwrap();
    assert_eq!(in_time(held.lost()).await, LossReason::NodeDeleted, "{node}");
    assert!(!held.is_held() && held.remaining().is_zero(), "{node}");
    assert!(in_time(held.verify()).await.is_err(), "{node}");
}

/// Checks a thing that its owner gives up, even when its session ends later.
async fn is_not_lost_once_it_is_given_up(
    client: CuratorFramework,
    held: &(impl Held + Sync),
    gives_up: impl Future<Output = ()>,
) {
    assert!(held.is_held());
    in_time(gives_up).await;
    assert!(!held.is_held() && held.remaining().is_zero());
    assert!(in_time(held.verify()).await.is_err());
    in_time(client.close()).await;
    assert_eq!(held.lost().now_or_never(), None);
}

async fn partition_item(client: &CuratorFramework) -> (curator_recipes::OwnedItem, Partition) {
    let options = PartitionOptions::new().settle(Duration::ZERO).grace(Duration::ZERO);
    let partition = Partition::with_options(client.clone(), "/work", "ours", ["a"], options).unwrap();
    let (sender, mut items) = tokio::sync::mpsc::unbounded_channel();
    let running = partition.clone();
    tokio::spawn(async move {
        let work = |item| {
            sender.send(item).ok();
            std::future::pending()
        };
        running.run(work).await
    });
    (in_time(items.recv()).await.unwrap(), partition)
}

#[tokio::test]
async fn all_that_is_held_is_lost_with_its_node() {
    let server = server();
    let (client, front) = (client(&server).await, client(&server).await);

    let guard = InterProcessMutex::new(client.clone(), "/lock").unwrap().acquire().await.unwrap();
    is_held_until_its_node_is_deleted(&front, &guard, guard.node_path()).await;

    let latch = LeaderLatch::new(client.clone(), "/election").unwrap();
    latch.start().unwrap();
    let leadership = in_time(latch.leading()).await.unwrap();
    is_held_until_its_node_is_deleted(&front, &leadership, leadership.node_path()).await;

    let (item, _partition) = partition_item(&client).await;
    let node = node_below(&front, "/work/items/a").await;
    is_held_until_its_node_is_deleted(&front, &item, &node).await;

    let barrier = DistributedBarrier::new(client.clone(), "/barrier").unwrap().set_owned().await.unwrap();
    is_held_until_its_node_is_deleted(&front, &barrier, "/barrier").await;

    let member = DistributedDoubleBarrier::new(client.clone(), "/double", 1).unwrap().enter().await.unwrap();
    let node = node_below(&front, "/double").await;
    is_held_until_its_node_is_deleted(&front, &member, &node).await;

    let latch = CountDownLatch::new(client.clone(), "/latch").unwrap();
    assert!(latch.try_set_count(2).await.unwrap());
    let participant = latch.participate("ours").await.unwrap();
    let node = node_below(&front, "/latch/here").await;
    is_held_until_its_node_is_deleted(&front, &participant, &node).await;
}

#[tokio::test]
async fn nothing_is_lost_once_it_is_given_up() {
    let server = server();

    let ours = client(&server).await;
    let guard = InterProcessMutex::new(ours.clone(), "/lock").unwrap().acquire().await.unwrap();
    is_not_lost_once_it_is_given_up(ours, &guard, async { guard.release().await.unwrap().held().unwrap() }).await;

    let ours = client(&server).await;
    let latch = LeaderLatch::new(ours.clone(), "/election").unwrap();
    latch.start().unwrap();
    let leadership = in_time(latch.leading()).await.unwrap();
    is_not_lost_once_it_is_given_up(ours, &leadership, latch.close()).await;

    let ours = client(&server).await;
    let (item, partition) = partition_item(&ours).await;
    is_not_lost_once_it_is_given_up(ours, &item, partition.close()).await;

    let ours = client(&server).await;
    let barrier = DistributedBarrier::new(ours.clone(), "/barrier").unwrap().set_owned().await.unwrap();
    let gives_up = async { barrier.release().await.unwrap().held().unwrap() };
    is_not_lost_once_it_is_given_up(ours, &barrier, gives_up).await;
    assert_eq!(barrier.release().await.unwrap(), Release::Released, "a second release has the same outcome");

    let ours = client(&server).await;
    let member = DistributedDoubleBarrier::new(ours.clone(), "/double", 1).unwrap().enter().await.unwrap();
    let gives_up = async { assert_eq!(member.leave().await.unwrap().died, 0) };
    is_not_lost_once_it_is_given_up(ours, &member, gives_up).await;
    assert_eq!(member.leave().await.unwrap().died, 0, "a second leave has the same outcome");

    let ours = client(&server).await;
    let latch = CountDownLatch::new(ours.clone(), "/latch").unwrap();
    assert!(latch.try_set_count(2).await.unwrap());
    let participant = latch.participate("ours").await.unwrap();
    let gives_up = async { assert_eq!(participant.count_down().await.unwrap(), 1) };
    is_not_lost_once_it_is_given_up(ours, &participant, gives_up).await;
    assert_eq!(participant.count_down().await.unwrap(), 1, "a second count has the same outcome");
    let theirs = client(&server).await;
    assert_eq!(CountDownLatch::new(theirs, "/latch").unwrap().count().await.unwrap(), 1);
}

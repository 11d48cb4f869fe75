//! The cost of a count-down latch. The table of `CountDownLatch` has these numbers.

use curator_framework::CuratorFramework;
use curator_framework::recipe::RecipeClient as _;
use curator_integration::env::{eventually, in_time};
use curator_recipes::CountDownLatch;
use curator_test::wire::OpCode::{
    self, Create2, CreateContainer, Delete, Exists, GetChildren, GetData, Multi, RemoveWatches, SetData,
};

use crate::meter::Stage;

/// A read, and another one after a write that changes nothing.
const CERTAIN: [OpCode; 5] = [GetData, Exists, Delete, GetData, Exists];

fn latch(stage: &Stage) -> CountDownLatch {
    latch_of(&stage.client)
}

fn latch_of(client: &CuratorFramework) -> CountDownLatch {
    CountDownLatch::new(client.clone(), "/app/latch").unwrap()
}

#[tokio::test]
async fn a_round_is_set_by_six_requests_and_a_delete_for_each_count_before() {
    let stage = Stage::new("/app").await;
    let latch = latch(&stage);
    assert!(in_time(latch.try_set_count(2)).await.unwrap());
    assert_eq!(stage.requests().await, [GetData, Create2, GetData, Create2, SetData, GetChildren]);
    assert!(!in_time(latch.try_set_count(2)).await.unwrap());
    assert_eq!(stage.requests().await, [GetData, Delete, GetData]);
    for _ in 0..2 {
        in_time(latch.count_down()).await.unwrap();
    }
    stage.requests().await;
    assert!(in_time(latch.try_set_count(3)).await.unwrap());
    let removal = [GetChildren, GetChildren, Delete, Delete, Delete];
    assert_eq!(stage.requests().await, [&[GetData, Create2, SetData][..], &removal].concat());
}

#[tokio::test]
async fn counts_and_reads_are_repeated_behind_a_write_if_no_count_is_left() {
    let stage = Stage::new("/app").await;
    let latch = latch(&stage);
    assert!(in_time(latch.try_set_count(1)).await.unwrap());
    stage.requests().await;
    assert_eq!(in_time(latch.count()).await.unwrap(), 1);
    assert_eq!(stage.requests().await, [GetData, Exists]);
    assert_eq!(in_time(latch.count_down()).await.unwrap(), 0);
    assert_eq!(stage.requests().await, [GetData, Exists, Multi]);
    assert_eq!(in_time(latch.count()).await.unwrap(), 0);
    assert_eq!(stage.requests().await, CERTAIN);
    assert_eq!(in_time(latch.count_down()).await.unwrap(), 0);
    assert_eq!(stage.requests().await, CERTAIN);
    in_time(latch.wait()).await.unwrap();
    let waited: Vec<_> = stage.requests().await.into_iter().filter(|op| *op != RemoveWatches).collect();
    assert_eq!(waited, [Delete, GetData]);
}

#[tokio::test]
async fn a_wait_is_two_requests() {
    let stage = Stage::new("/app").await;
    let latch = latch(&stage);
    assert!(in_time(latch.try_set_count(1)).await.unwrap());
    stage.requests().await;
    let waiter = latch.clone();
    let waiting = tokio::spawn(async move { waiter.wait().await });
    eventually("it waits", async || stage.client.watchers() == 1).await;
    assert_eq!(stage.requests().await, [Delete, GetData]);
    in_time(latch.count_down()).await.unwrap();
    in_time(waiting).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_participant_is_five_requests_and_its_count_three() {
    let stage = Stage::new("/app").await;
    let latch = latch(&stage);
    assert!(in_time(latch.try_set_count(3)).await.unwrap());
    stage.requests().await;
    let _first = in_time(latch.participate("first")).await.unwrap();
    assert_eq!(stage.requests().await, [GetData, Exists, Create2, CreateContainer, Create2, GetData, GetData]);
    let second = in_time(latch.participate("second")).await.unwrap();
    assert_eq!(stage.requests().await, [GetData, Exists, Create2, GetData, GetData]);
    in_time(second.count_down()).await.unwrap();
    eventually("the watch has fired", async || stage.client.watchers() == 1).await;
    // The notification of the count may make the watch read the node.
    let requests = stage.requests().await;
    assert!(
        [&[GetData, Exists, Multi, GetData][..], &[GetData, Exists, Multi]].contains(&&requests[..]),
        "{requests:?}"
    );
}

#[tokio::test]
async fn participant_lost_lists_again_when_a_participant_joins_or_counts() {
    let stage = Stage::new("/app").await;
    let others = latch_of(&stage.observer);
    assert!(in_time(others.try_set_count(2)).await.unwrap());
    let first = in_time(others.participate("first")).await.unwrap();
    stage.requests().await;
    let session = stage.client.session().await.unwrap().id().map(|id| id.get());
    let sent = || stage.server.requests().into_iter().filter(|one| Some(one.session_id) == session).map(|one| one.op);
    let watching = {
        let ours = latch(&stage);
        tokio::spawn(async move { ours.participant_lost().await })
    };
    eventually("it lists", async || sent().eq([GetChildren])).await;
    let _second = in_time(others.participate("second")).await.unwrap();
    eventually("it lists again", async || sent().eq([GetChildren; 2])).await;
    in_time(first.count_down()).await.unwrap();
    eventually("it reads the count", async || sent().eq([GetChildren, GetChildren, GetChildren, Exists])).await;
    watching.abort();
}

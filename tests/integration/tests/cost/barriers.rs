//! The cost of a barrier. The table of `DistributedBarrier` has these numbers.

use curator_framework::CuratorFramework;
use curator_framework::recipe::RecipeClient as _;
use curator_integration::env::{eventually, in_time};
use curator_recipes::{DistributedBarrier, Release};
use curator_test::wire::OpCode::{Create2, Delete, Exists, GetData, RemoveWatches};
use tokio::time::Instant;

use crate::meter::{Stage, round_trips};

const PATH: &str = "/app/barrier";

fn barrier(client: &CuratorFramework) -> DistributedBarrier {
    DistributedBarrier::new(client.clone(), PATH).unwrap()
}

#[tokio::test]
async fn a_barrier_is_set_looked_at_and_removed_by_one_request_each() {
    let stage = Stage::new("/app").await;
    let barrier = barrier(&stage.client);
    in_time(barrier.set_barrier()).await.unwrap();
    assert_eq!(stage.requests().await, [Create2]);
    assert!(in_time(barrier.is_set()).await.unwrap());
    assert_eq!(stage.requests().await, [Exists]);
    in_time(barrier.remove_barrier()).await.unwrap();
    assert_eq!(stage.requests().await, [Delete]);
}

#[tokio::test]
async fn a_barrier_with_an_owner_is_set_and_removed_by_two_requests_each() {
    let stage = Stage::new("/app").await;
    let owned = in_time(barrier(&stage.client).set_owned()).await.unwrap();
    eventually("it watches", async || stage.client.watchers() == 1).await;
    assert_eq!(stage.requests().await, [Create2, GetData]);
    assert_eq!(in_time(owned.release()).await.unwrap(), Release::Released);
    eventually("the watch is gone", async || stage.client.watchers() == 0).await;
    // The notification of the delete may make the watch read the node at the path.
    let requests = stage.requests().await;
    assert!([&[Exists, Delete, GetData][..], &[Exists, Delete]].contains(&&requests[..]), "{requests:?}");
}

#[tokio::test]
async fn a_wait_is_one_request_however_long() {
    let stage = Stage::new("/app").await;
    let barrier = barrier(&stage.client);
    in_time(barrier.wait_on_barrier()).await.unwrap();
    assert_eq!(stage.requests().await.iter().filter(|op| **op != RemoveWatches).collect::<Vec<_>>(), [&Exists]);
    in_time(barrier.set_barrier()).await.unwrap();
    let waiting = tokio::spawn({
        let barrier = barrier.clone();
        async move { barrier.wait_on_barrier().await.unwrap() }
    });
    eventually("it watches", async || stage.client.watchers() == 1).await;
    in_time(self::barrier(&stage.observer).remove_barrier()).await.unwrap();
    in_time(waiting).await.unwrap();
    assert_eq!(stage.requests().await, [Create2, Exists, Delete]);
}

#[tokio::test(start_paused = true)]
async fn a_set_and_a_wait_at_an_open_barrier_are_one_round_trip_each() {
    let set = round_trips(async |_, client| {
        client.create().for_path("/app").await.unwrap();
        let began = Instant::now();
        barrier(client).set_barrier().await.unwrap();
        began.elapsed()
    });
    assert_eq!(set.await, 1, "set");
    let wait = round_trips(async |_, client| {
        client.create().for_path("/app").await.unwrap();
        let began = Instant::now();
        barrier(client).wait_on_barrier().await.unwrap();
        began.elapsed()
    });
    assert_eq!(wait.await, 1, "an open barrier");
}

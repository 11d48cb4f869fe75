//! The cost of counters and unique ids. The tables of the types have these numbers.

use std::time::Duration;

use curator_framework::{CuratorFramework, RetryNTimes};
use curator_integration::env::in_time;
use curator_recipes::{CachedAtomicLong, Compared, DistributedAtomicLong, DistributedAtomicValue, UniqueIds};
use curator_test::wire::OpCode::{
    Create2, CreateContainer, CreateSession, Delete, Exists, GetChildren, GetData, Multi, SetData,
};
use tokio::time::Instant;

use crate::meter::{Stage, round_trips};

const PATH: &str = "/app/number";

fn tries() -> RetryNTimes {
    RetryNTimes::new(100, Duration::from_millis(1))
}

fn number(client: &CuratorFramework, path: &str) -> DistributedAtomicLong {
    DistributedAtomicLong::new(client.clone(), path, tries()).unwrap()
}

/// A stage with a number that has been incremented once.
async fn known() -> (Stage, DistributedAtomicLong) {
    let stage = Stage::new("/app").await;
    let number = number(&stage.client, PATH);
    in_time(number.increment()).await.unwrap();
    stage.requests().await;
    (stage, number)
}

#[tokio::test]
async fn a_first_change_is_a_read_a_marker_and_a_write() {
    let stage = Stage::new("/app").await;
    let [first, second] = [number(&stage.client, PATH), number(&stage.client, PATH)];
    in_time(first.increment()).await.unwrap();
    assert_eq!(stage.requests().await, [GetData, Create2, Multi, Exists, Multi], "the node is new");
    in_time(second.increment()).await.unwrap();
    assert_eq!(stage.requests().await, [GetData, Multi, Exists, Multi], "the node exists");
    in_time(second.release_marker()).await;
    assert_eq!(stage.requests().await, [Delete]);
    in_time(second.increment()).await.unwrap();
    assert_eq!(stage.requests().await, [Multi, Exists, Multi], "without its marker");
}

#[tokio::test]
async fn missing_parents_are_a_second_create_and_a_request_for_each_parent() {
    let stage = Stage::new("/app").await;
    let number = number(&stage.client, "/app/one/two/number");
    in_time(number.increment()).await.unwrap();
    let (refused, then) = ([GetData, Create2], [Create2, Multi, Exists, Multi]);
    assert_eq!(stage.requests().await, [&refused[..], &[CreateContainer; 3], &then].concat());
}

#[tokio::test]
async fn each_further_change_is_one_write() {
    let (stage, number) = known().await;
    in_time(number.increment()).await.unwrap();
    in_time(number.subtract(3)).await.unwrap();
    in_time(number.try_set(7)).await.unwrap();
    assert!(in_time(number.compare_and_set(7, 8)).await.unwrap().is_set());
    assert_eq!(stage.requests().await, [Multi; 4]);
    in_time(number.force_set(1)).await.unwrap();
    assert_eq!(stage.requests().await.len(), 1, "force_set");
}

#[tokio::test]
async fn a_get_and_a_comparison_that_fails_are_one_read_each() {
    let (stage, number) = known().await;
    assert_eq!(in_time(number.get()).await.unwrap(), 1);
    assert_eq!(stage.requests().await, [GetData]);
    assert_eq!(in_time(number.compare_and_set(7, 8)).await.unwrap(), Compared::Differs(1));
    assert_eq!(stage.requests().await, [GetData]);
}

#[tokio::test]
async fn a_change_after_one_of_another_session_is_sent_twice_with_two_reads() {
    let (stage, number) = known().await;
    stage.observer.set_data().for_path(PATH, 9_i64.to_be_bytes()).await.unwrap();
    stage.requests().await;
    assert_eq!(in_time(number.increment()).await.unwrap().post_value, 10);
    // A read follows the second write, which may be refused too.
    assert_eq!(stage.requests().await, [Multi, GetData, Multi, GetData]);
}

#[tokio::test]
async fn a_lost_reply_is_settled_by_a_write_that_changes_nothing_and_a_read() {
    let (stage, number) = known().await;
    stage.proxy.drop_reply(Multi, 1);
    assert_eq!(in_time(number.increment()).await.unwrap().post_value, 2);
    assert_eq!(stage.requests().await, [Multi, CreateSession, Exists, Exists, Delete, GetData], "behind the reconnect");
}

#[tokio::test]
async fn changes_of_100_tasks_are_two_writes() {
    const TASKS: usize = 100;
    let (stage, number) = known().await;
    let tasks = (0..TASKS).map(|_| {
        let number = number.clone();
        tokio::spawn(async move { number.increment().await.unwrap() })
    });
    for task in tasks.collect::<Vec<_>>() {
        in_time(task).await.unwrap();
    }
    // The first one leaves alone.
    assert_eq!(stage.requests().await, [Multi; 2]);
    assert_eq!(in_time(number.get()).await.unwrap(), 1 + 100);
}

#[tokio::test]
async fn a_close_is_one_delete() {
    let (stage, number) = known().await;
    in_time(number.release_marker()).await;
    assert_eq!(stage.requests().await, [Delete]);
}

#[tokio::test]
async fn cached_numbers_are_one_write_for_each_factor() {
    let (stage, number) = known().await;
    let cached = CachedAtomicLong::new(number, 10).unwrap();
    for expected in 2..=21 {
        assert_eq!(in_time(cached.next()).await.unwrap(), expected);
    }
    assert_eq!(stage.requests().await, [Multi; 2]);
}

#[tokio::test]
async fn a_value_has_the_requests_of_a_number() {
    let stage = Stage::new("/app").await;
    let value = DistributedAtomicValue::new(stage.client.clone(), PATH, tries()).unwrap();
    in_time(value.try_set("first")).await.unwrap();
    assert_eq!(stage.requests().await, [GetData, Multi]);
    in_time(value.try_set("second")).await.unwrap();
    assert!(in_time(value.compare_and_set("second", "third")).await.unwrap().is_set());
    assert_eq!(stage.requests().await, [Multi; 2]);
}

#[tokio::test]
async fn unique_ids_are_one_write() {
    let stage = Stage::new("/app/ids").await;
    let ids = UniqueIds::new(stage.client.clone(), "/app/ids").unwrap();
    in_time(ids.next()).await.unwrap();
    assert_eq!(stage.requests().await, [GetChildren, Create2, GetChildren, SetData], "the first one of a path");
    in_time(ids.next()).await.unwrap();
    assert_eq!(stage.requests().await, [SetData]);
    assert_eq!(in_time(ids.take(200)).await.unwrap().len(), 200);
    assert_eq!(stage.requests().await, [Multi]);
    let others = UniqueIds::new(stage.observer.clone(), "/app/ids").unwrap();
    in_time(others.next()).await.unwrap();
    assert_eq!(stage.requests().await, [GetChildren, SetData], "the first one of another client");
    let elsewhere = UniqueIds::new(stage.client.clone(), "/app/one/ids").unwrap();
    in_time(elsewhere.next()).await.unwrap();
    let (refused, then) = ([GetChildren, Create2], [Create2, GetChildren, SetData]);
    assert_eq!(stage.requests().await, [&refused[..], &[CreateContainer; 3], &then].concat(), "missing parents");
}

#[tokio::test(start_paused = true)]
async fn a_change_is_one_round_trip_and_a_first_or_refused_one_is_three() {
    let known = async |client: &CuratorFramework| {
        client.create().for_path("/app").await.unwrap();
        let number = number(client, PATH);
        number.increment().await.unwrap();
        number
    };
    let increment = round_trips(async |_, client| {
        let number = known(client).await;
        let began = Instant::now();
        number.increment().await.unwrap();
        began.elapsed()
    });
    assert_eq!(increment.await, 1, "increment");
    let first = round_trips(async |_, client| {
        known(client).await.release_marker().await;
        let number = number(client, PATH);
        let began = Instant::now();
        number.increment().await.unwrap();
        began.elapsed()
    });
    assert_eq!(first.await, 3, "first");
    let refused = round_trips(async |_, client| {
        let number = known(client).await;
        client.set_data().for_path(PATH, 9_i64.to_be_bytes()).await.unwrap();
        let began = Instant::now();
        number.increment().await.unwrap();
        began.elapsed()
    });
    assert_eq!(refused.await, 3, "behind a change of another session");
    let id = round_trips(async |_, client| {
        let ids = UniqueIds::new(client.clone(), "/ids").unwrap();
        ids.next().await.unwrap();
        let began = Instant::now();
        ids.next().await.unwrap();
        began.elapsed()
    });
    assert_eq!(id.await, 1, "id");
}

//! The asynchronous methods of counters, dropped at every poll: a change is applied once or not at all, and the close
//! leaves nothing.

use std::time::Duration;

use curator_framework::RetryForever;
use curator_integration::cuts::{Cut, poll_until};
use curator_integration::lock_stage::{OURS, QUIET, Stage, play};
use curator_integration::operations::Local;
use curator_recipes::{
    CachedAtomicLong, CounterOptions, DistributedAtomicLong, DistributedAtomicValue, PromotedToLock, UniqueIds,
};
use tokio::time::sleep;

use crate::{LATENCY, Row};

const PATH: &str = "/count";

/// The methods of counters, with the value behind each one. All begin at 5.
const OF_NUMBERS: [(&str, i64); 11] = [
    ("CachedAtomicNumber::next", 105),
    ("DistributedAtomicNumber::add", 12),
    ("DistributedAtomicNumber::release_marker", 5),
    ("DistributedAtomicNumber::compare_and_set", 71),
    ("DistributedAtomicNumber::decrement", 4),
    ("DistributedAtomicNumber::force_set", 72),
    ("DistributedAtomicNumber::get", 5),
    ("DistributedAtomicNumber::increment", 6),
    ("DistributedAtomicNumber::initialize", 5),
    ("DistributedAtomicNumber::subtract", -2),
    ("DistributedAtomicNumber::try_set", 70),
];

/// The methods of atomic values, with the value behind each one. All begin at `old`.
const OF_VALUES: [(&str, &str); 6] = [
    ("DistributedAtomicValue::release_marker", "old"),
    ("DistributedAtomicValue::compare_and_set", "one"),
    ("DistributedAtomicValue::force_set", "two"),
    ("DistributedAtomicValue::get", "old"),
    ("DistributedAtomicValue::initialize", "old"),
    ("DistributedAtomicValue::try_set", "three"),
];

const OF_IDS: [&str; 2] = ["UniqueIds::next", "UniqueIds::take"];

fn patient() -> RetryForever {
    RetryForever::new(Duration::from_millis(1)).unwrap()
}

fn call_of_number(number: DistributedAtomicLong, method: &str) -> Local<()> {
    let cached = CachedAtomicLong::new(number.clone(), 100).unwrap();
    match method {
        "CachedAtomicNumber::next" => Box::pin(async move { assert_eq!(cached.next().await.unwrap(), 6) }),
        "DistributedAtomicNumber::add" => {
            Box::pin(async move { assert_eq!(number.add(7).await.unwrap().post_value, 12) })
        }
        "DistributedAtomicNumber::release_marker" => Box::pin(async move { number.release_marker().await }),
        "DistributedAtomicNumber::compare_and_set" => {
            Box::pin(async move { assert!(number.compare_and_set(5, 71).await.unwrap().is_set()) })
        }
        "DistributedAtomicNumber::decrement" => {
            Box::pin(async move { assert_eq!(number.decrement().await.unwrap().post_value, 4) })
        }
        "DistributedAtomicNumber::force_set" => Box::pin(async move { number.force_set(72).await.unwrap() }),
        "DistributedAtomicNumber::get" => Box::pin(async move { assert_eq!(number.get().await.unwrap(), 5) }),
        "DistributedAtomicNumber::increment" => {
            Box::pin(async move { assert_eq!(number.increment().await.unwrap().post_value, 6) })
        }
        "DistributedAtomicNumber::initialize" => Box::pin(async move { assert!(!number.initialize(9).await.unwrap()) }),
        "DistributedAtomicNumber::subtract" => {
            Box::pin(async move { assert_eq!(number.subtract(7).await.unwrap().post_value, -2) })
        }
        "DistributedAtomicNumber::try_set" => {
            Box::pin(async move { assert_eq!(number.try_set(70).await.unwrap().post_value, 70) })
        }
        other => panic!("{other}"),
    }
}

async fn drop_of_number(method: &str, post: i64, loses_reply: bool, cut: Cut, what: &str) -> bool {
    let stage = Stage::new(LATENCY).await;
    stage.front.create().with_data(5_i64.to_be_bytes()).for_path(PATH).await.unwrap();
    let before = stage.footprint();
    let number = DistributedAtomicLong::new(stage.client.clone(), PATH, patient()).unwrap();
    // The marker stands, and the value is known.
    number.add(0).await.unwrap();
    let call = call_of_number(number.clone(), method);
    if loses_reply {
        stage.ensemble.drop_reply(OURS);
    }
    let completes = poll_until(call, cut).await.is_some();
    let behind = number.increment().await.unwrap().pre_value;
    assert!(behind == post || (!completes && behind == 5), "{what}: {behind}");
    assert_eq!(number.get().await.unwrap(), behind + 1, "{what}");
    number.release_marker().await;
    drop(number);
    stage.assert_as_before(Vec::new(), &before, what).await;
    completes
}

async fn drop_of_value(method: &str, post: &str, cut: Cut, what: &str) -> bool {
    let stage = Stage::new(LATENCY).await;
    stage.front.create().with_data("old").for_path(PATH).await.unwrap();
    let before = stage.footprint();
    let options = CounterOptions::new().promoted_to_lock(PromotedToLock::new("/lock"));
    let value = DistributedAtomicValue::with_options(stage.client.clone(), PATH, patient(), options).unwrap();
    assert!(value.compare_and_set("old", "old").await.unwrap().is_set());
    let ours = value.clone();
    let call: Local<()> = match method {
        "DistributedAtomicValue::release_marker" => Box::pin(async move { ours.release_marker().await }),
        "DistributedAtomicValue::compare_and_set" => {
            Box::pin(async move { assert!(ours.compare_and_set("old", "one").await.unwrap().is_set()) })
        }
        "DistributedAtomicValue::force_set" => Box::pin(async move { ours.force_set("two").await.unwrap() }),
        "DistributedAtomicValue::get" => {
            Box::pin(async move { assert_eq!(ours.get().await.unwrap(), Some(b"old".to_vec())) })
        }
        "DistributedAtomicValue::initialize" => {
            Box::pin(async move { assert!(!ours.initialize("new").await.unwrap()) })
        }
        "DistributedAtomicValue::try_set" => Box::pin(async move { drop(ours.try_set("three").await.unwrap()) }),
        other => panic!("{other}"),
    };
    let completes = poll_until(call, cut).await.is_some();
    let change = value.try_set("end").await.unwrap();
    let behind = std::str::from_utf8(&change.pre_value).unwrap();
    assert!(behind == post || (!completes && behind == "old"), "{what}: {behind}");
    value.release_marker().await;
    drop(value);
    stage.assert_as_before(Vec::new(), &before, what).await;
    completes
}

async fn drop_of_ids(method: &str, cut: Cut, what: &str) -> bool {
    let stage = Stage::new(LATENCY).await;
    let before = stage.footprint();
    let ids = UniqueIds::new(stage.client.clone(), "/ids").unwrap();
    let ours = ids.clone();
    let call: Local<()> = match method {
        "UniqueIds::next" => Box::pin(async move { assert_eq!(ours.next().await.unwrap(), 1) }),
        "UniqueIds::take" => Box::pin(async move { assert_eq!(ours.take(3).await.unwrap(), [1, 2, 3]) }),
        other => panic!("{other}"),
    };
    let completes = poll_until(call, cut).await.is_some();
    sleep(QUIET).await;
    let taken = if method == "UniqueIds::next" { 1 } else { 3 };
    let next = ids.next().await.unwrap();
    assert!(next == taken + 1 || (!completes && next == 1), "{what}: {next}");
    drop(ids);
    stage.assert_as_before(Vec::new(), &before, what).await;
    completes
}

pub(crate) fn numbers() -> Vec<Row> {
    let rows = OF_NUMBERS.into_iter().flat_map(|(method, post)| {
        Row::with_replies(method, [1, 1], move |lost, cut, what| play(drop_of_number(method, post, lost, cut, what)))
    });
    rows.collect()
}

pub(crate) fn values() -> Vec<Row> {
    let row = |(method, post)| Row::new(method, "", 1, move |cut, what| play(drop_of_value(method, post, cut, what)));
    OF_VALUES.map(row).into()
}

pub(crate) fn ids() -> Vec<Row> {
    let row = |method| Row::new(method, "", 1, move |cut, what| play(drop_of_ids(method, cut, what)));
    OF_IDS.map(row).into()
}

//! The asynchronous methods of counters, dropped at every poll: a change is applied once or not at all, and the close
//! leaves nothing.

use std::time::Duration;

use curator_framework::RetryForever;
use curator_integration::lock_stage::QUIET;
use curator_recipes::{
    CachedAtomicLong, CounterOptions, DistributedAtomicLong, DistributedAtomicValue, PromotedToLock, UniqueIds,
};
use tokio::time::sleep;

use crate::Row;

const PATH: &str = "/count";

fn patient() -> RetryForever {
    RetryForever::new(Duration::from_millis(1)).unwrap()
}

/// A method of counters, with the value behind it. All start at 5.
fn number(method: &'static str, post: i64, call: impl AsyncFn(&DistributedAtomicLong) + 'static) -> Row {
    let row = Row::new(method, async move |scene| {
        scene.stage.front.create().with_data(5_i64.to_be_bytes()).for_path(PATH).await.unwrap();
        let number = DistributedAtomicLong::new(scene.stage.client.clone(), PATH, patient()).unwrap();
        // The marker exists, and the value is known.
        number.add(0).await.unwrap();
        scene.call(call(&number)).await;
        let behind = number.increment().await.unwrap().pre_value;
        assert!(behind == post || (!scene.completes && behind == 5), "{behind}");
        assert_eq!(number.get().await.unwrap(), behind + 1);
        number.release_marker().await;
    });
    row.also_loses_a_reply(1)
}

pub(crate) fn numbers() -> Vec<Row> {
    vec![
        number("CachedAtomicNumber::next", 105, async |number| {
            assert_eq!(CachedAtomicLong::new(number.clone(), 100).unwrap().next().await.unwrap(), 6);
        }),
        number("DistributedAtomicNumber::add", 12, async |number| {
            assert_eq!(number.add(7).await.unwrap().post_value, 12);
        }),
        number("DistributedAtomicNumber::release_marker", 5, async |number| number.release_marker().await),
        number("DistributedAtomicNumber::compare_and_set", 71, async |number| {
            assert!(number.compare_and_set(5, 71).await.unwrap().is_set());
        }),
        number("DistributedAtomicNumber::decrement", 4, async |number| {
            assert_eq!(number.decrement().await.unwrap().post_value, 4);
        }),
        number("DistributedAtomicNumber::force_set", 72, async |number| number.force_set(72).await.unwrap()),
        number("DistributedAtomicNumber::get", 5, async |number| assert_eq!(number.get().await.unwrap(), 5)),
        number("DistributedAtomicNumber::increment", 6, async |number| {
            assert_eq!(number.increment().await.unwrap().post_value, 6);
        }),
        number("DistributedAtomicNumber::initialize", 5, async |number| {
            assert!(!number.initialize(9).await.unwrap());
        }),
        number("DistributedAtomicNumber::subtract", -2, async |number| {
            assert_eq!(number.subtract(7).await.unwrap().post_value, -2);
        }),
        number("DistributedAtomicNumber::try_set", 70, async |number| {
            assert_eq!(number.try_set(70).await.unwrap().post_value, 70);
        }),
    ]
}

/// A method of atomic values, with the value behind it. All start at `old`.
fn value(method: &'static str, post: &'static str, call: impl AsyncFn(&DistributedAtomicValue) + 'static) -> Row {
    Row::new(method, async move |scene| {
        scene.stage.front.create().with_data("old").for_path(PATH).await.unwrap();
        let (client, options) = (scene.stage.client.clone(), CounterOptions::new());
        let options = options.promoted_to_lock(PromotedToLock::new("/lock"));
        let value = DistributedAtomicValue::with_options(client, PATH, patient(), options).unwrap();
        assert!(value.compare_and_set("old", "old").await.unwrap().is_set());
        scene.call(call(&value)).await;
        let change = value.try_set("end").await.unwrap();
        let behind = std::str::from_utf8(&change.pre_value).unwrap();
        assert!(behind == post || (!scene.completes && behind == "old"), "{behind}");
        value.release_marker().await;
    })
}

pub(crate) fn values() -> Vec<Row> {
    vec![
        value("DistributedAtomicValue::release_marker", "old", async |value| value.release_marker().await),
        value("DistributedAtomicValue::compare_and_set", "one", async |value| {
            assert!(value.compare_and_set("old", "one").await.unwrap().is_set());
        }),
        value("DistributedAtomicValue::force_set", "two", async |value| value.force_set("two").await.unwrap()),
        value("DistributedAtomicValue::get", "old", async |value| {
            assert_eq!(value.get().await.unwrap(), Some(b"old".to_vec()));
        }),
        value("DistributedAtomicValue::initialize", "old", async |value| {
            assert!(!value.initialize("new").await.unwrap());
        }),
        value("DistributedAtomicValue::try_set", "three", async |value| drop(value.try_set("three").await.unwrap())),
    ]
}

/// A method that takes this many ids.
fn takes(method: &'static str, count: u64, call: impl AsyncFn(&UniqueIds) + 'static) -> Row {
    Row::new(method, async move |scene| {
        let ids = UniqueIds::new(scene.stage.client.clone(), "/ids").unwrap();
        scene.call(call(&ids)).await;
        sleep(QUIET).await;
        let next = ids.next().await.unwrap();
        assert!(next == count + 1 || (!scene.completes && next == 1), "{next}");
    })
}

pub(crate) fn ids() -> Vec<Row> {
    vec![
        takes("UniqueIds::next", 1, async |ids| assert_eq!(ids.next().await.unwrap(), 1)),
        takes("UniqueIds::take", 3, async |ids| assert_eq!(ids.take(3).await.unwrap(), [1, 2, 3])),
    ]
}

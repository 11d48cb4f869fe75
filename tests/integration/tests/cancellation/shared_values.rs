//! The asynchronous methods of shared values and counts, dropped at every poll.

use curator_integration::lock_stage::{OURS, QUIET};
use curator_integration::operations::LONG;
use curator_recipes::{SharedCount, SharedValue, VersionedValue};
use tokio::time::sleep;

use crate::Row;

const PATH: &str = "/shared";

/// The state of our value before a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Setup {
    /// It was started a moment ago, before any other.
    First,
    /// It is known, to another client too.
    Known,
}

macro_rules! rows {
    ($rows:ident, $type:ident<$value:ty>, $set:ident, $try_set:ident, $of:expr, [$seed:expr, $new:expr, $last:expr]) => {
        /// The call knows whether a reply is lost.
        fn $set(
            method: &'static str,
            setup: Setup,
            call: impl AsyncFn(&$type, VersionedValue<$value>, bool) + 'static,
        ) -> Row {
            Row::new(method, async move |scene| {
                let is_first = setup == Setup::First;
                let other = $type::new(scene.stage.front.clone(), PATH, $seed).unwrap();
                if !is_first {
                    other.start().unwrap();
                    other.initialized().await.unwrap();
                }
                sleep(QUIET).await;
                let beside = scene.stage.footprint().of_clients();
                let shared = $type::new(scene.stage.client.clone(), PATH, $seed).unwrap();
                shared.start().unwrap();
                if !is_first {
                    shared.initialized().await.unwrap();
                }
                let (known, loses_reply) = ($of(shared.versioned_value()), scene.loses_reply);
                scene.call(call(&shared, known, loses_reply)).await;
                sleep(QUIET).await;
                scene.stage.ensemble.repair(OURS);
                if is_first {
                    // The read continues.
                    shared.initialized().await.unwrap();
                    other.start().unwrap();
                    other.initialized().await.unwrap();
                }
                if method != "Shared::close" {
                    // Both know the same, and it continues.
                    let (ours, others) = ($of(shared.versioned_value()), $of(other.versioned_value()));
                    assert_eq!(ours, others);
                    let is_new = *ours.value() == $new;
                    assert!(is_new || (*ours.value() == $seed && (!scene.completes || is_first)), "{ours:?}");
                    assert!(shared.$try_set(&ours, $last).await.unwrap());
                    sleep(QUIET).await;
                    assert_eq!(*$of(other.versioned_value()).value(), $last);
                } else if scene.is_called() {
                    // The closing continues.
                    assert_eq!(scene.stage.footprint().of_clients(), beside);
                    assert!(shared.$set($new).await.unwrap_err().to_string().contains("closed"));
                }
                shared.close().await;
                other.close().await;
                drop((shared, other));
                // What still watches it on the servers goes with it.
                scene.stage.ensemble.delete(PATH);
            })
        }

        pub(crate) fn $rows() -> Vec<Row> {
            use Setup::{First, Known};
            vec![
                $set("Shared::initialized", First, async |shared, _, _| shared.initialized().await.unwrap())
                    .also_loses_a_reply(1),
                $set("Shared::initialized_timeout", First, async |shared, _, _| {
                    shared.initialized_timeout(LONG).await.unwrap().unwrap();
                }),
                $set(concat!("Shared::", stringify!($set)), Known, async |shared, _, _| {
                    shared.$set($new).await.unwrap();
                })
                .also_loses_a_reply(1),
                // After a lost reply it is an error that says so.
                $set(concat!("Shared::", stringify!($try_set)), Known, async |shared, known, loses_reply| match shared
                    .$try_set(&known, $new)
                    .await
                {
                    Ok(is_set) => assert!(is_set),
                    Err(error) => assert!(loses_reply && error.outcome_unknown(), "{error}"),
                })
                .also_loses_a_reply(1),
                $set("Shared::close", Known, async |shared, _, _| shared.close().await),
            ]
        }
    };
}

rows!(values, SharedValue<Vec<u8>>, set_value, try_set_value, |value| value, [b"seed", b"new", b"last"]);
rows!(counts, SharedCount<i32>, set_count, try_set_count, |count: Result<_, _>| count.unwrap(), [1, 2, 3]);

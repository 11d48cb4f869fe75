//! The asynchronous methods of shared values and counts, dropped at every poll.

use std::time::Duration;

use curator_integration::cuts::{Cut, poll_until};
use curator_integration::lock_stage::{OURS, QUIET, Stage, play};
use curator_recipes::{SharedCount, SharedValue};
use tokio::time::sleep;

use crate::{LATENCY, Row};

const LONG: Duration = Duration::from_secs(100);
const PATH: &str = "/shared";

/// What is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    Initialized,
    InitializedTimeout,
    Set,
    TrySet,
    Close,
}

macro_rules! scene {
    ($name:ident, $type:ident, $set:ident, $try_set:ident, $of:expr, [$seed:expr, $new:expr, $last:expr]) => {
        async fn $name(method: Method, loses_reply: bool, cut: Cut, what: &str) -> bool {
            let stage = Stage::new(LATENCY).await;
            let before = stage.footprint();
            let other = $type::new(stage.front.clone(), PATH, $seed).unwrap();
            let is_first = matches!(method, Method::Initialized | Method::InitializedTimeout);
            if !is_first {
                other.start().unwrap();
                other.initialized().await.unwrap();
            }
            sleep(QUIET).await;
            let beside = stage.footprint().of_clients();
            let shared = $type::new(stage.client.clone(), PATH, $seed).unwrap();
            if !is_first {
                shared.start().unwrap();
                shared.initialized().await.unwrap();
            }
            let known = $of(shared.versioned_value());
            if loses_reply {
                stage.ensemble.drop_reply(OURS);
            }
            let completes = match method {
                Method::Initialized => {
                    shared.start().unwrap();
                    poll_until(shared.initialized(), cut).await.map(Result::unwrap)
                }
                Method::InitializedTimeout => {
                    shared.start().unwrap();
                    poll_until(shared.initialized_timeout(LONG), cut).await.map(|read| read.unwrap().unwrap())
                }
                Method::Set => poll_until(shared.$set($new), cut).await.map(Result::unwrap),
                // After a lost reply it is an error that says so.
                Method::TrySet => poll_until(shared.$try_set(&known, $new), cut).await.map(|set| match set {
                    Ok(set) => assert!(set, "{what}"),
                    Err(error) => assert!(loses_reply && error.outcome_unknown(), "{what}: {error}"),
                }),
                Method::Close => poll_until(shared.close(), cut).await,
            }
            .is_some();
            sleep(QUIET).await;
            stage.ensemble.repair(OURS);
            match method {
                Method::Initialized | Method::InitializedTimeout => {
                    // The read continues.
                    shared.initialized().await.unwrap();
                    other.start().unwrap();
                    other.initialized().await.unwrap();
                }
                Method::Close if cut != Cut::Before(0) => {
                    // The closing goes on.
                    assert_eq!(stage.footprint().of_clients(), beside, "{what}");
                    assert!(shared.$set($new).await.unwrap_err().to_string().contains("closed"), "{what}");
                }
                _ => {}
            }
            if method != Method::Close {
                // Both know the same, and it goes on.
                let (ours, others) = ($of(shared.versioned_value()), $of(other.versioned_value()));
                assert_eq!(ours, others, "{what}");
                let is_new = *ours.value() == $new;
                assert!(is_new || (*ours.value() == $seed && (!completes || is_first)), "{what}: {ours:?}");
                assert!(shared.$try_set(&ours, $last).await.unwrap(), "{what}");
                sleep(QUIET).await;
                assert_eq!(*$of(other.versioned_value()).value(), $last, "{what}");
            }
            shared.close().await;
            other.close().await;
            drop((shared, other));
            // What still watches it on the servers goes with it.
            stage.ensemble.delete(PATH);
            stage.assert_as_before(Vec::new(), &before, what).await;
            completes
        }
    };
}

scene!(value, SharedValue, set_value, try_set_value, |value| value, [b"seed", b"new", b"last"]);
scene!(count, SharedCount, set_count, try_set_count, |count: Result<_, _>| count.unwrap(), [1, 2, 3]);

pub(crate) fn rows() -> Vec<Row> {
    let methods = [
        (Method::Initialized, true, ["Shared::initialized"; 2]),
        (Method::InitializedTimeout, false, ["Shared::initialized_timeout"; 2]),
        (Method::Set, true, ["Shared::set_value", "Shared::set_count"]),
        (Method::TrySet, true, ["Shared::try_set_value", "Shared::try_set_count"]),
        (Method::Close, false, ["Shared::close"; 2]),
    ];
    let rows = methods.into_iter().flat_map(|(method, loses_reply, [of_value, of_count])| {
        let of_value = Row::with_replies(of_value, [1, 1], move |lost, cut, what| play(value(method, lost, cut, what)));
        let of_count = Row::with_replies(of_count, [1, 1], move |lost, cut, what| play(count(method, lost, cut, what)));
        let wanted = if loses_reply { 2 } else { 1 };
        of_value.into_iter().take(wanted).chain(of_count.into_iter().take(wanted))
    });
    rows.collect()
}

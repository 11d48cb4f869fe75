//! The changes that a failed request, or a refused value, ends; and those that it does not.

use std::time::Duration;

use curator_framework::{
    Acl, CuratorFramework, Error, FixedEnsembleProvider, OtherPaths, RetryNTimes, Schema, SchemaSet,
};
use curator_integration::env::{connected, in_time};
use curator_integration::in_process::{client, options, server};
use curator_recipes::{CounterError, DistributedAtomicValue};
use curator_test::wire::OpCode;
use curator_test::{FaultProxy, TestingServer};

use crate::stage::{long, patient, values};

const PATH: &str = "/count";

/// A client through a proxy, with a policy that does not retry.
async fn without_retries(server: &TestingServer) -> (FaultProxy, CuratorFramework) {
    let proxy = FaultProxy::start(server.address()).unwrap();
    let provider = FixedEnsembleProvider::new(proxy.connect_string());
    let policy = RetryNTimes::new(0, Duration::ZERO);
    (proxy, connected(options(server).retry_policy(policy).ensemble_provider(provider)).await)
}

/// A client with a schema that accepts these numbers.
async fn with_schema(server: &TestingServer, accepts: fn(i64) -> bool) -> CuratorFramework {
    let validator =
        move |_: &str, data: &[u8], _: &[Acl]| data.try_into().is_ok_and(|data| accepts(i64::from_be_bytes(data)));
    let schema = Schema::for_path(PATH).unwrap().validator(validator);
    connected(options(server).schema_set(SchemaSet::new([schema], OtherPaths::Allowed))).await
}

#[tokio::test]
async fn too_large_value_ends_its_own_change_alone() {
    let server = server();
    let value = DistributedAtomicValue::new(client(&server).await, PATH, patient()).unwrap();
    in_time(value.try_set("a")).await.unwrap();
    // The first write carries the first change alone, the next one both others.
    let (first, small, large) =
        in_time(async { tokio::join!(value.try_set("b"), value.try_set("c"), value.try_set(vec![0; 2 << 20])) }).await;
    first.unwrap();
    assert!(matches!(large, Err(CounterError::Framework(Error::RequestTooLarge { .. }))));
    small.unwrap();
}

#[tokio::test]
async fn schema_refuses_one_change_of_a_write_alone() {
    let server = server();
    let number = long(&with_schema(&server, |number| number <= 10).await, PATH);
    in_time(number.add(9)).await.unwrap();
    let (first, fits, exceeds) =
        in_time(async { tokio::join!(number.add(0), number.increment(), number.increment()) }).await;
    first.unwrap();
    assert!(exceeds.is_err());
    assert_eq!(values(&fits.unwrap()), (9, 10));
}

#[tokio::test]
async fn schema_refuses_a_value_ahead_of_another_change() {
    let server = server();
    let number = long(&with_schema(&server, |number| number <= 10).await, PATH);
    in_time(number.add(9)).await.unwrap();
    let (first, exceeds, fits) =
        in_time(async { tokio::join!(number.add(0), number.try_set(99), number.try_set(5)) }).await;
    first.unwrap();
    fits.unwrap();
    assert!(exceeds.is_err(), "{exceeds:?}");
}

#[tokio::test]
async fn outcome_is_known_if_the_write_was_never_sent() {
    let mut wrong = Vec::new();
    for (op, exists) in [(OpCode::GetData, true), (OpCode::Multi, true), (OpCode::Create2, false)] {
        let server = server();
        let (proxy, client) = without_retries(&server).await;
        if exists {
            client.create().with_data(5_i64.to_be_bytes()).for_path(PATH).await.unwrap();
        }
        // The read, the create of the marker, or the create of the node as 0.
        proxy.drop_reply(op, 1);
        let error = in_time(long(&client, PATH).increment()).await.unwrap_err();
        if error.outcome_unknown() {
            wrong.push(format!("{op:?}: {error}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn outcome_is_known_in_the_queue_behind_a_lost_write() {
    let server = server();
    let (proxy, client) = without_retries(&server).await;
    let number = long(&client, PATH);
    in_time(number.increment()).await.unwrap();
    proxy.drop_reply(OpCode::Multi, 2);
    let (first, sent, forced, last) =
        in_time(async { tokio::join!(number.add(10), number.add(100), number.force_set(1000), number.add(10000)) })
            .await;
    first.unwrap();
    assert!(sent.unwrap_err().outcome_unknown());
    for unsent in [forced.map(drop), last.map(drop)] {
        let error = unsent.unwrap_err();
        assert!(!error.outcome_unknown(), "{error:?}");
    }
}

#[tokio::test]
async fn forced_value_mends_data_that_cannot_be_read_beside_other_changes() {
    let server = server();
    let direct = client(&server).await;
    let client = connected(options(&server).enable_compression()).await;
    direct.create().with_data(100_i64.to_be_bytes()).for_path(PATH).await.unwrap();
    let number = long(&client, PATH);
    let (first, second, forced) =
        in_time(async { tokio::join!(number.increment(), number.increment(), number.force_set(5)) }).await;
    assert!(first.is_err() && second.is_err());
    forced.unwrap();
}

#[tokio::test]
async fn initialize_does_not_fail_with_an_addition() {
    let server = server();
    let number = long(&with_schema(&server, |number| number > 0).await, PATH);
    let (initialized, added) = in_time(async { tokio::join!(number.initialize(7), number.increment()) }).await;
    assert!(initialized.unwrap(), "{added:?}");
}

#[tokio::test]
async fn overflow_creates_no_node() {
    let server = server();
    let client = client(&server).await;
    let error = in_time(long(&client, PATH).subtract(i64::MIN)).await.unwrap_err();
    assert!(matches!(error, CounterError::Overflow { .. }), "{error}");
    assert_eq!(client.check_exists().for_path(PATH).await.unwrap(), None);
}

//! Counters and ids at the end of the versions of a node, on an in-process server.

use curator_integration::env::in_time;
use curator_integration::in_process::{client, server};
use curator_recipes::{Compared, CounterError, DistributedAtomicLong, UniqueIds};

use crate::stage::{long, values};

const PATH: &str = "/count";

/// ZooKeeper would take a write that names version −1 for one without a condition, so it could undo another client's.
#[tokio::test]
async fn version_of_minus_1_is_never_a_condition() {
    let server = server();
    let client = client(&server).await;
    let (number, fresh) = (long(&client, PATH), || long(&client, PATH));
    in_time(number.force_set(4)).await.unwrap();
    assert!(server.set_version(PATH, i32::MAX));
    assert_eq!(values(&in_time(fresh().increment()).await.unwrap()), (4, 5));
    assert_eq!(values(&in_time(fresh().increment()).await.unwrap()), (5, 6), "at a negative version");
    assert!(server.set_version(PATH, -2));
    assert_eq!(values(&in_time(number.increment()).await.unwrap()), (6, 7));
    // One object knows that the version is -1, the other one reads it.
    for number in [number, fresh()] {
        refuses(&number).await;
    }
    let number = fresh();
    in_time(number.force_set(8)).await.unwrap();
    assert_eq!(values(&in_time(number.increment()).await.unwrap()), (8, 9));
}

/// Changes are refused. A comparison with another value, and a read, need no write.
async fn refuses(number: &DistributedAtomicLong) {
    for refused in [
        in_time(number.increment()).await.map(drop),
        in_time(number.try_set(1)).await.map(drop),
        in_time(number.compare_and_set(7, 1)).await.map(drop),
    ] {
        let error = refused.unwrap_err();
        assert!(matches!(error, CounterError::VersionsExhausted { .. }), "{error}");
        assert!(!error.outcome_unknown());
        assert!(error.to_string().contains(PATH), "{error}");
    }
    assert_eq!(in_time(number.compare_and_set(0, 1)).await.unwrap(), Compared::Differs(7));
    assert!(!in_time(number.initialize(1)).await.unwrap());
    assert_eq!(in_time(number.get()).await.unwrap(), 7);
}

/// An epoch ends after 2^31 − 1 ids, also in the middle of a batch and for an object that knows the old epoch alone.
#[tokio::test]
async fn ids_go_on_in_the_next_epoch() {
    let server = server();
    let client = client(&server).await;
    let [one, other] = [(); 2].map(|()| UniqueIds::new(client.clone(), PATH).unwrap());
    assert_eq!(in_time(one.next()).await.unwrap(), 1);
    assert_eq!(in_time(other.next()).await.unwrap(), 2);
    assert!(server.set_version("/count/0000000000", i32::MAX - 2));
    let last = (1 << 31) - 1;
    assert_eq!(in_time(one.take(4)).await.unwrap(), [last - 1, last, last + 2, last + 3]);
    assert_eq!(in_time(other.next()).await.unwrap(), last + 4);
    assert_eq!(in_time(UniqueIds::new(client, PATH).unwrap().next()).await.unwrap(), last + 5);
}

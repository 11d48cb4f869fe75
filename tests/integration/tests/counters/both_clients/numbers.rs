//! Curator's `TestDistributedAtomicLong`, and the rules of each operation.

use curator_framework::Error;
use curator_integration::env::in_time;
use curator_integration::on_every_server;
use curator_recipes::{
    Compared, CounterError, CounterOptions, DistributedAtomicInteger, DistributedAtomicLong, DistributedAtomicValue,
    PromotedToLock,
};

use crate::stage::{long, node, patient, retries, values};

on_every_server! {
    /// Curator's `TestDistributedAtomicLong.testBasic`.
    async fn a_number_is_incremented_and_decremented_from_0(env) {
        let (client, path) = (env.client().await, env.path("a/b/count"));
        let number = long(&client, &path);
        assert_eq!(in_time(number.get()).await.unwrap(), 0);
        assert_eq!(values(&in_time(number.increment()).await.unwrap()), (0, 1));
        assert_eq!(values(&in_time(number.decrement()).await.unwrap()), (1, 0));
        assert_eq!(values(&in_time(number.add(10)).await.unwrap()), (0, 10));
        assert_eq!(values(&in_time(number.subtract(5)).await.unwrap()), (10, 5));
        let change = in_time(number.try_set(-7)).await.unwrap();
        assert_eq!((values(&change), change.stats.optimistic_tries, change.stats.promoted_tries), ((5, -7), 1, 0));
        assert_eq!(in_time(number.get()).await.unwrap(), -7);
        assert_eq!(node(&client, &path).await.unwrap().0, (-7_i64).to_be_bytes());
    }

    async fn an_integer_has_4_bytes(env) {
        let (client, path) = (env.client().await, env.path("count"));
        let number = DistributedAtomicInteger::new(client.clone(), &path, patient()).unwrap();
        assert_eq!(values(&in_time(number.add(258)).await.unwrap()), (0, 258));
        assert_eq!(node(&client, &path).await.unwrap().0, [0, 0, 1, 2]);
    }

    /// Curator's `TestDistributedAtomicLong.testCompareAndSet` and `testCompareAndSetWithFreshInstance`.
    async fn a_comparison_sets_only_the_expected_value_of_a_node_that_exists(env) {
        let (client, path) = (env.client().await, env.path("count"));
        let number = long(&client, &path);
        assert_eq!(in_time(number.compare_and_set(0, 1)).await.unwrap(), Compared::Missing);
        assert!(in_time(number.initialize(0)).await.unwrap());
        assert!(!in_time(number.initialize(5)).await.unwrap());
        match in_time(number.compare_and_set(0, 1)).await.unwrap() {
            Compared::Set(change) => assert_eq!(values(&change), (0, 1)),
            other => panic!("{other:?}"),
        }
        assert_eq!(in_time(number.compare_and_set(0, 2)).await.unwrap(), Compared::Differs(1));
        // Another object has set the value in the meantime, so the known one is too old.
        assert!(in_time(long(&client, &path).compare_and_set(1, 9)).await.unwrap().is_set());
        assert_eq!(in_time(number.compare_and_set(1, 2)).await.unwrap(), Compared::Differs(9));
        assert!(in_time(number.compare_and_set(9, 2)).await.unwrap().is_set());
        assert_eq!(in_time(number.get()).await.unwrap(), 2);
    }

    /// Curator's `TestDistributedAtomicLong.testForceSet`.
    async fn a_forced_value_needs_neither_a_node_nor_a_number(env) {
        let (client, path) = (env.client().await, env.path("a/count"));
        let number = long(&client, &path);
        in_time(number.force_set(5)).await.unwrap();
        assert_eq!(in_time(number.get()).await.unwrap(), 5);
        client.set_data().for_path(&path, "text").await.unwrap();
        in_time(number.force_set(6)).await.unwrap();
        assert_eq!(values(&in_time(number.increment()).await.unwrap()), (6, 7));
    }

    /// Curator's `TestDistributedAtomicLong.testCorruptedValue`. Curator's accepts longer data.
    async fn data_of_a_wrong_length_is_an_error_and_not_0(env) {
        let (client, path) = (env.client().await, env.path("count"));
        let number = long(&client, &path);
        for length in [1, 4, 7, 9, 16] {
            let data = vec![1; length];
            match node(&client, &path).await {
                Some(_) => drop(client.set_data().for_path(&path, data.clone()).await.unwrap()),
                None => drop(client.create().creating_parents_if_needed().with_data(data.clone()).for_path(&path).await),
            }
            let calls = [
                in_time(number.get()).await.map(|_| ()),
                in_time(number.increment()).await.map(|_| ()),
                in_time(number.try_set(1)).await.map(|_| ()),
                in_time(number.compare_and_set(0, 1)).await.map(|_| ()),
            ];
            for call in calls {
                let error = call.unwrap_err();
                let CounterError::NotANumber { length: found, expected: 8, .. } = &error else { panic!("{error}") };
                assert_eq!(*found, length);
                assert!(!error.is_retryable() && !error.outcome_unknown());
            }
            assert!(!in_time(number.initialize(1)).await.unwrap());
            assert_eq!(node(&client, &path).await.unwrap().0, data);
        }
        client.set_data().for_path(&path, "").await.unwrap();
        assert_eq!(in_time(number.get()).await.unwrap(), 0);
        assert_eq!(values(&in_time(number.increment()).await.unwrap()), (0, 1));
    }

    async fn an_overflow_changes_nothing_and_ends_its_own_change_alone(env) {
        let (client, path) = (env.client().await, env.path("count"));
        let number = long(&client, &path);
        in_time(number.force_set(i64::MAX - 1)).await.unwrap();
        in_time(number.increment()).await.unwrap();
        let error = in_time(number.increment()).await.unwrap_err();
        assert!(matches!(error, CounterError::Overflow { value: i64::MAX, delta: 1, .. }), "{error}");
        let (low, high, down) = tokio::join!(number.add(2), number.subtract(7), number.add(3));
        assert!(matches!(low.unwrap_err(), CounterError::Overflow { delta: 2, .. }));
        assert_eq!(values(&high.unwrap()), (i64::MAX, i64::MAX - 7));
        assert_eq!(values(&down.unwrap()), (i64::MAX - 7, i64::MAX - 4));
        in_time(number.force_set(i64::MIN)).await.unwrap();
        assert!(matches!(in_time(number.decrement()).await, Err(CounterError::Overflow { delta: -1, .. })));
        in_time(number.force_set(4)).await.unwrap();
        let error = in_time(number.subtract(i64::MIN)).await.unwrap_err();
        let text = format!("4 plus 9223372036854775808 does not fit into the counter {path}");
        assert_eq!(error.to_string(), text);
        in_time(number.force_set(-1)).await.unwrap();
        assert_eq!(values(&in_time(number.subtract(i64::MIN)).await.unwrap()), (-1, i64::MAX));
    }

    async fn a_value_is_bytes(env) {
        let (client, path) = (env.client().await, env.path("a/value"));
        let value = DistributedAtomicValue::new(client.clone(), &path, retries(3)).unwrap();
        assert_eq!(in_time(value.get()).await.unwrap(), None);
        assert_eq!(in_time(value.compare_and_set("", "one")).await.unwrap(), Compared::Missing);
        assert_eq!(values(&in_time(value.try_set("one")).await.unwrap()), (Vec::new(), b"one".to_vec()));
        assert!(!in_time(value.initialize("two")).await.unwrap());
        assert!(in_time(value.compare_and_set("one", "")).await.unwrap().is_set());
        assert_eq!(in_time(value.get()).await.unwrap(), Some(Vec::new()));
        assert_eq!(in_time(value.compare_and_set("one", "x")).await.unwrap(), Compared::Differs(Vec::new()));
        in_time(value.force_set("end")).await.unwrap();
        assert_eq!(node(&client, &path).await.unwrap().0, b"end");
    }

    async fn a_wrong_path_is_refused_at_once(env) {
        let client = env.client().await;
        let wrong = DistributedAtomicLong::new(client.clone(), "count", patient()).unwrap_err();
        assert!(matches!(wrong, CounterError::Framework(Error::InvalidPath { .. })), "{wrong}");
        let options = CounterOptions::new().promoted_to_lock(PromotedToLock::new("lock"));
        let wrong = DistributedAtomicLong::with_options(client, "/count", patient(), options).unwrap_err();
        assert!(matches!(wrong, CounterError::Lock(_)), "{wrong}");
    }
}

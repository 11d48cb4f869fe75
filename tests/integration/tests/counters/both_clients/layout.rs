//! The nodes of a counter: its data, its marker, its parents.

use std::io;

use curator_framework::{Acl, CompressionProvider, Error, Permission};
use curator_integration::clients::is_zookeeper_async;
use curator_integration::env::{builder, children, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{CounterError, DistributedAtomicInteger, SharedCount};
use curator_test::kill_session;

use crate::stage::{long, node, patient, session_of, values};

/// A compression that shows.
#[derive(Debug)]
struct Marked;

impl CompressionProvider for Marked {
    fn compress(&self, _path: &str, data: &[u8]) -> io::Result<Vec<u8>> {
        Ok([b"z".as_slice(), data].concat())
    }

    fn decompress(&self, _path: &str, data: &[u8]) -> io::Result<Vec<u8>> {
        data.strip_prefix(b"z").map(<[u8]>::to_vec).ok_or_else(|| io::Error::other("not marked"))
    }
}

on_every_server! {
    async fn the_marker_is_an_ephemeral_child_until_the_close_or_the_drop(env) {
        let (client, path) = (env.client().await, env.path("count"));
        let markers = if is_zookeeper_async() { 0 } else { 1 };
        for is_closed in [true, false] {
            let number = long(&client, &path);
            in_time(number.increment()).await.unwrap();
            in_time(number.increment()).await.unwrap();
            let names = env.wait_for_children(&client, &path, markers).await;
            for name in &names {
                assert!(name.starts_with("_c_") && name.ends_with("-count"), "{name}");
                let (_, stat) = node(&client, &format!("{path}/{name}")).await.unwrap();
                assert_eq!(stat.ephemeral_owner, client.session().await.unwrap().id().unwrap().get());
            }
            if is_closed {
                in_time(number.release_marker()).await;
                assert!(children(&client, &path).await.is_empty());
                // A closed counter can be used again.
                in_time(number.increment()).await.unwrap();
                env.wait_for_children(&client, &path, markers).await;
            }
            drop(number);
            env.wait_for_children(&client, &path, 0).await;
        }
        assert_eq!(long(&client, &path).get().await.unwrap(), 5);
    }

    async fn a_counter_begins_anew_when_an_administrator_deletes_its_node(env) {
        let (client, direct, path) = (env.client().await, env.client().await, env.path("a/b/count"));
        let number = long(&client, &path);
        in_time(number.add(7)).await.unwrap();
        for _ in 0..3 {
            direct.delete().deleting_children_if_needed().for_path(&env.path("a")).await.unwrap();
            assert_eq!(in_time(number.get()).await.unwrap(), 0);
            assert_eq!(values(&in_time(number.increment()).await.unwrap()), (0, 1));
            direct.delete().deleting_children_if_needed().for_path(&path).await.unwrap();
            in_time(number.force_set(3)).await.unwrap();
            assert_eq!(values(&in_time(number.increment()).await.unwrap()), (3, 4));
        }
    }

    /// The node is created again, and reaches the version that the counter knows, with another value.
    async fn a_known_value_is_not_written_to_another_node(env) {
        let (direct, path) = (env.client().await, env.path("count"));
        for is_in_next_session in [true, false] {
            let client = env.client().await;
            let number = long(&client, &path);
            for _ in 0..3 {
                in_time(number.increment()).await.unwrap();
            }
            let version = node(&direct, &path).await.unwrap().1.version;
            if is_in_next_session {
                let session = session_of(&client, &env.path("own")).await;
                kill_session(env.address(), session).await.unwrap();
                eventually("the next session begins", async || {
                    client.session().await.is_ok_and(|session| session.number() == 2)
                })
                .await;
                env.wait_for_children(&direct, &path, 0).await;
            }
            direct.delete().deleting_children_if_needed().for_path(&path).await.unwrap();
            direct.create().for_path(&path).await.unwrap();
            for _ in 0..version {
                direct.set_data().for_path(&path, 100_i64.to_be_bytes()).await.unwrap();
            }
            assert_eq!(node(&direct, &path).await.unwrap().1.version, version);
            assert_eq!(values(&in_time(number.increment()).await.unwrap()), (100, 101), "{is_in_next_session}");
            in_time(number.release_marker()).await;
            direct.delete().deleting_children_if_needed().for_path(&path).await.unwrap();
        }
    }

    async fn a_deleted_marker_is_replaced(env) {
        let (client, path) = (env.client().await, env.path("count"));
        let number = long(&client, &path);
        for before in 0..3 {
            assert_eq!(values(&in_time(number.increment()).await.unwrap()), (before, before + 1));
            for name in children(&client, &path).await {
                client.delete().for_path(&format!("{path}/{name}")).await.unwrap();
            }
        }
    }

    async fn a_counter_stands_in_the_namespace_of_its_client(env) {
        let direct = env.client().await;
        let client = direct.using_namespace(&env.path("space")[1..]).unwrap();
        let number = long(&client, "/a/count");
        in_time(number.increment()).await.unwrap();
        assert_eq!(node(&direct, &env.path("space/a/count")).await.unwrap().0, 1_i64.to_be_bytes());
        in_time(number.release_marker()).await;
    }

    /// As with Curator's `setData().forPath`.
    async fn a_client_that_compresses_compresses_numbers_too(env) {
        let (direct, path) = (env.client().await, env.path("count"));
        let client = connected(builder(env.address()).compression_provider(Marked).enable_compression()).await;
        let number = long(&client, &path);
        in_time(number.increment()).await.unwrap();
        in_time(number.increment()).await.unwrap();
        assert_eq!(node(&direct, &path).await.unwrap().0, [b"z".as_slice(), &2_i64.to_be_bytes()].concat());
        assert_eq!(values(&in_time(long(&client, &path).increment()).await.unwrap()), (2, 3));
        direct.set_data().for_path(&path, 7_i64.to_be_bytes()).await.unwrap();
        let error = in_time(number.get()).await.unwrap_err();
        assert!(matches!(error, CounterError::Framework(Error::Compression { .. })), "{error}");
        let error = in_time(number.increment()).await.unwrap_err();
        assert!(matches!(error, CounterError::Framework(Error::Compression { .. })), "{error}");
    }

    async fn a_missing_permission_is_an_error_of_each_call(env) {
        let (client, path) = (env.client().await, env.path("count"));
        let acl = Acl::new(Permission::READ, "world", "anyone");
        client.create().creating_parents_if_needed().with_acl([acl]).with_data(5_i64.to_be_bytes()).for_path(&path)
            .await.unwrap();
        let number = long(&client, &path);
        assert_eq!(in_time(number.get()).await.unwrap(), 5);
        for _ in 0..2 {
            let error = in_time(number.increment()).await.unwrap_err();
            assert!(matches!(error, CounterError::Framework(Error::NoAuth { .. })), "{error}");
            assert!(!error.outcome_unknown() && !error.is_retryable());
            let error = in_time(number.force_set(1)).await.unwrap_err();
            assert!(matches!(error, CounterError::Framework(Error::NoAuth { .. })), "{error}");
        }
        assert_eq!(in_time(number.get()).await.unwrap(), 5);
    }

    async fn an_integer_has_the_node_of_a_shared_count(env) {
        let (client, path) = (env.client().await, env.path("count"));
        let number = DistributedAtomicInteger::new(client.clone(), &path, patient()).unwrap();
        in_time(number.add(41)).await.unwrap();
        let shared = SharedCount::new(client.clone(), &path, 0).unwrap();
        shared.start().unwrap();
        in_time(shared.initialized()).await.unwrap();
        assert_eq!(shared.count().unwrap(), 41);
        in_time(number.increment()).await.unwrap();
        eventually("the shared count follows", async || shared.count().unwrap() == 42).await;
        in_time(shared.close()).await;
    }
}

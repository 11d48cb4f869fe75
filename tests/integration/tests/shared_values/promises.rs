//! What the documentation says beyond Curator's tests.

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{Acl, Error, RetryNTimes};
use curator_integration::env::{builder, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{SharedCount, SharedError, SharedValue};
use curator_test::wire::OpCode;
use std::time::Duration;

on_every_server! {
    /// The change is applied, its reply is lost, and the retry is refused because of the change itself.
    async fn a_lost_reply_of_a_try_is_told_as_unknown(env) {
        let (proxy, path) = (env.proxy(), env.path("value"));
        let client = connected(builder(proxy.address())).await;
        let value = SharedValue::new(client.clone(), &path, "seed").unwrap();
        value.start().unwrap();
        value.initialized().await.unwrap();
        let before = value.versioned_value();
        proxy.drop_reply(OpCode::SetData, 1);
        let error = in_time(value.try_set_value(&before, "mine")).await.unwrap_err();
        assert!(error.outcome_unknown(), "{error}");
        assert_eq!(value.value(), b"mine", "what there is now is known");
        // A request that never arrived is just sent again.
        proxy.drop_request(OpCode::SetData, 1);
        assert!(in_time(value.try_set_value(&value.versioned_value(), "again")).await.unwrap());
        // The same without a condition.
        proxy.drop_reply(OpCode::SetData, 1);
        in_time(value.set_value("at last")).await.unwrap();
        assert_eq!(value.value(), b"at last");
        assert_eq!(value.versioned_value().version(), 4, "one of the changes was made twice");
    }

    /// Even without a retry.
    async fn lost_reply_is_an_unknown_outcome_without_a_retry(env) {
        let (proxy, path) = (env.proxy(), env.path("value"));
        let client = connected(builder(proxy.address()).retry_policy(RetryNTimes::new(0, Duration::ZERO))).await;
        let value = SharedValue::new(client, &path, "seed").unwrap();
        value.start().unwrap();
        value.initialized().await.unwrap();
        proxy.drop_reply(OpCode::SetData, 1);
        let error = in_time(value.try_set_value(&value.versioned_value(), "mine")).await.unwrap_err();
        assert!(error.outcome_unknown(), "{error}");
        eventually("it was applied", async || value.value() == b"mine").await;
    }

    async fn a_node_that_is_deleted_leaves_the_value_and_one_made_again_is_taken_over(env) {
        let (client, other, path) = (env.client().await, env.client().await, env.path("value"));
        let value = SharedValue::new(client.clone(), &path, "seed").unwrap();
        value.start().unwrap();
        value.initialized().await.unwrap();
        for round in 0..3 {
            let text = format!("round {round}");
            value.set_value(text.clone()).await.unwrap();
            other.delete().for_path(&path).await.unwrap();
            let refused = value.set_value("nowhere").await;
            assert!(matches!(&refused, Err(SharedError::Framework(Error::NoNode { path: node })) if *node == path), "{refused:?}");
            assert_eq!(value.value(), text.as_bytes());
            // The version starts again, so it does not tell what is newer.
            other.create().with_data("new").for_path(&path).await.unwrap();
            eventually("it is taken over", async || value.value() == b"new").await;
            assert_eq!(value.versioned_value().version(), 0);
        }
        value.close().await;
        assert_eq!(client.watchers(), 0);
    }

    async fn a_node_that_may_not_be_read_leaves_the_value(env) {
        let (proxy, path) = (env.proxy(), env.path("value"));
        let stranger = connected(builder(proxy.address())).await;
        let owner = connected(builder(env.address()).authorization("digest", "ann:secret")).await;
        let value = SharedValue::new(stranger.clone(), &path, "seed").unwrap();
        value.start().unwrap();
        value.initialized().await.unwrap();
        owner.set_acl().with_acl(Acl::creator_all()).for_path(&path).await.unwrap();
        // The server sends no changes to clients that may not read them.
        owner.set_data().for_path(&path, "secret").await.unwrap();
        proxy.reset();
        eventually("reading it again fails", async || stranger.watchers() == 0).await;
        let refused = in_time(value.set_value("x")).await;
        assert!(matches!(refused, Err(SharedError::Framework(Error::NoAuth { .. }))), "{refused:?}");
        assert_eq!(value.value(), b"seed");
        owner.set_acl().with_acl(Acl::open_unsafe()).for_path(&path).await.unwrap();
        eventually("it is read again", async || value.value() == b"secret").await;
        eventually("it is watched again", async || stranger.watchers() == 1).await;
    }

    async fn namespaces_and_compression_are_the_clients(env) {
        let root = env.path("name");
        let options = builder(env.address()).namespace(&root[1..]).enable_compression();
        let (client, plain) = (connected(options).await, env.client().await);
        let value = SharedValue::new(client, "/deep/value", "seed").unwrap();
        value.start().unwrap();
        value.initialized().await.unwrap();
        let node = format!("{root}/deep/value");
        for text in ["seed", "next"] {
            if text != "seed" {
                value.set_value(text).await.unwrap();
            }
            let (stored, _) = plain.get_data().for_path(&node).await.unwrap();
            assert_eq!(stored[..2], [0x1f, 0x8b], "gzip's own beginning");
            assert_eq!(value.value(), text.as_bytes());
        }
        assert!(value.try_set_value(&value.versioned_value(), "tried").await.unwrap());
        // Data that is not compressed is reported, and what comes after it is read.
        plain.set_data().for_path(&node, "plain").await.unwrap();
        assert!(!value.try_set_value(&value.versioned_value(), "stale").await.unwrap());
        assert_eq!(value.value(), b"tried");
        let other = SharedValue::new(plain, &node, "").unwrap();
        other.start().unwrap();
        other.initialized().await.unwrap();
        assert_eq!(other.value(), b"plain");
        value.set_value("mended").await.unwrap();
        eventually("the other sees it", async || other.value()[..2] == [0x1f, 0x8b]).await;
    }

    async fn data_that_is_no_count_is_told_with_the_path(env) {
        let (client, path) = (env.client().await, env.path("count"));
        client.create().creating_parents_if_needed().with_data("12345").for_path(&path).await.unwrap();
        let count = SharedCount::new(client, &path, 0).unwrap();
        count.start().unwrap();
        count.initialized().await.unwrap();
        let text = format!("the data of {path} is not a count: it has 5 bytes, not 4");
        assert_eq!(count.count().unwrap_err().to_string(), text);
        assert_eq!(count.versioned_value().unwrap_err().to_string(), text);
        let mut watch = count.watch();
        assert_eq!(*watch.borrow_and_update().value(), 0, "the seed");
        count.set_count(i32::MIN).await.unwrap();
        in_time(watch.changed()).await.unwrap();
        assert_eq!((count.count().unwrap(), *watch.borrow().value()), (i32::MIN, i32::MIN));
    }

    /// No server answers the first read.
    async fn wait_for_the_first_read_ends_with_its_task(env) {
        let (proxy, path) = (env.proxy(), env.path("value"));
        let client = connected(builder(proxy.address())).await;
        proxy.partition();
        let value = || SharedValue::new(client.clone(), &path, "seed").unwrap();
        let (of_the_runtime, of_the_client) = (value(), value());
        let runtime = tokio::runtime::Runtime::new().unwrap();
        {
            let _entered = runtime.enter();
            of_the_runtime.start().unwrap();
        }
        of_the_client.start().unwrap();
        let waits = [&of_the_runtime, &of_the_client].map(|value| {
            let value = value.clone();
            tokio::spawn(async move { value.initialized().await })
        });
        runtime.shutdown_background();
        let [of_the_runtime, of_the_client] = waits;
        let ended = in_time(of_the_runtime).await.unwrap();
        assert!(matches!(ended, Err(SharedError::Closed { .. })), "{ended:?}");
        in_time(client.close()).await;
        let ended = in_time(of_the_client).await.unwrap();
        assert!(matches!(ended, Err(SharedError::Framework(Error::Closed))), "{ended:?}");
    }

    async fn it_is_used_between_start_and_close_only(env) {
        let (client, path) = (env.client().await, env.path("value"));
        let value = SharedValue::new(client.clone(), &path, "seed").unwrap();
        let seed = value.versioned_value();
        assert_eq!((seed.zxid().get(), seed.version(), value.value().as_slice()), (-1, -1, &b"seed"[..]));
        assert!(matches!(value.set_value("x").await, Err(SharedError::NotStarted { .. })));
        assert!(matches!(value.try_set_value(&seed, "x").await, Err(SharedError::NotStarted { .. })));
        assert!(client.check_exists().for_path(&path).await.unwrap().is_none());
        let mut watch = value.watch();
        value.start().unwrap();
        value.initialized().await.unwrap();
        assert_eq!(watch.borrow_and_update().version(), 0);
        let again = value.start().unwrap_err();
        assert_eq!(again.to_string(), format!("the shared value {path} cannot be started more than once"));
        value.set_value("last").await.unwrap();
        in_time(watch.wait_for(|value| value.value() == b"last")).await.unwrap();
        value.close().await;
        value.close().await;
        assert!(watch.changed().await.is_err());
        assert_eq!(value.value(), b"last");
        for refused in [value.start(), value.initialized().await, value.set_value("x").await] {
            assert!(matches!(refused, Err(SharedError::Closed { .. })), "{refused:?}");
        }
        assert!(client.check_exists().for_path(&path).await.unwrap().is_some());
        let error = SharedCount::new(client, "count", 0).unwrap_err();
        assert_eq!(error.to_string(), "invalid path \"count\": it does not start with a slash");
    }
}

#[tokio::test]
async fn a_client_that_is_not_started_or_closed_says_so() {
    let server = curator_test::TestingServer::start().unwrap();
    let client = builder(server.address()).build().unwrap();
    let value = SharedValue::new(client.clone(), "/value", "seed").unwrap();
    value.start().unwrap();
    for refused in [in_time(value.initialized()).await, in_time(value.set_value("x")).await] {
        assert!(matches!(refused, Err(SharedError::Framework(Error::NotStarted))), "{refused:?}");
    }
    client.start().unwrap();
    eventually("the first read", async || value.initialized().await.is_ok()).await;
    in_time(client.close()).await;
    assert!(matches!(in_time(value.set_value("x")).await, Err(SharedError::Framework(Error::Closed))));
    in_time(value.close()).await;
}

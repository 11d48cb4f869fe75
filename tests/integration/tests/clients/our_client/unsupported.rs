//! The crate `zookeeper-async` does not have every request and option: it names those that it lacks.

use curator_framework::{
    AddWatchMode, CreateMode, CuratorFramework, DefaultZooKeeperFactory, Error, RetryNTimes, SaslDigest, TlsOptions,
    ZooKeeperAsyncFactory,
};
use curator_integration::env::builder;
use curator_recipes::{InterProcessMutex, LockError};
use curator_test::TestingServer;
use std::time::Duration;

#[track_caller]
fn is_unsupported<T: std::fmt::Debug>(result: Result<T, Error>, words: &str) {
    let error = result.unwrap_err();
    assert!(matches!(&error, Error::Unsupported { client: "zookeeper-async", .. }), "{error}");
    let tls = if words == "connect by TLS" { ", and the cargo feature `tls`" } else { "" };
    let needed = format!("`DefaultZooKeeperFactory`, the default client{tls}");
    assert_eq!(error.to_string(), format!("zookeeper-async cannot {words}; needed: {needed}"));
}

#[tokio::test]
async fn each_request_that_zookeeper_async_lacks_is_named() {
    let server = TestingServer::start().unwrap();
    let client =
        curator_integration::env::connected(builder(server.address()).zookeeper_factory(ZooKeeperAsyncFactory)).await;
    is_unsupported(client.transaction().create("/a", "").commit().await, "send transactions");
    is_unsupported(client.sync("/").await, "sync");
    is_unsupported(client.reconfig().leaving(["1"]).for_ensemble().await, "reconfig");
    is_unsupported(client.add_watch("/", AddWatchMode::Persistent).await, "add persistent watches");
    let session = client.session().await.unwrap();
    is_unsupported(session.subscribe("/", AddWatchMode::Persistent, None).await, "add persistent watches");
    let create = |mode| client.create().with_mode(mode);
    is_unsupported(create(CreateMode::Container).for_path("/a").await, "create containers");
    let ttl = CreateMode::PersistentWithTtl(Duration::from_secs(1));
    is_unsupported(create(ttl).for_path("/a").await, "create nodes with a time to live");
    is_unsupported(create(CreateMode::PersistentSequential).for_path("/a/").await, "create nodes without a name");
    let guard = InterProcessMutex::new(client.clone(), "/lock").unwrap().acquire().await.unwrap();
    let error = guard.transaction().create("/a", "").commit().await.unwrap_err();
    let LockError::Framework(error) = error else { panic!("{error}") };
    is_unsupported::<()>(Err(error), "send transactions");
    assert!(guard.is_held());
    assert!(!server.exists("/a"));
}

#[test]
fn each_option_that_zookeeper_async_lacks_is_refused() {
    let options = || {
        let builder = CuratorFramework::builder("a:1").retry_policy(RetryNTimes::new(0, Duration::ZERO));
        builder.zookeeper_factory(ZooKeeperAsyncFactory)
    };
    is_unsupported(options().tls(TlsOptions::new("")).build(), "connect by TLS");
    is_unsupported(options().sasl(SaslDigest::new("user", "password")).build(), "log in by SASL");
    is_unsupported(options().can_be_read_only(true).build(), "connect to read-only servers");
    options().can_be_read_only(false).build().unwrap();
    // The ensemble can be followed with either client, but not by TLS.
    options().ensemble_tracker(true).build().unwrap();
    let tls =
        options().zookeeper_factory(DefaultZooKeeperFactory::new()).tls(TlsOptions::new("")).ensemble_tracker(true);
    let refused = tls.build().unwrap_err().to_string();
    assert_eq!(refused, "invalid ensemble tracker: the servers do not tell their ports for TLS");
}

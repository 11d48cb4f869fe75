//! The crate `zookeeper-async` does not have every request and option: it names those that it lacks.

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{
    AddWatchMode, CreateMode, CuratorFramework, DefaultZooKeeperFactory, Error, RetryNTimes, SaslDigest, TlsOptions,
    ZooKeeperAsyncFactory,
};
use curator_integration::env::{answered, builder, connected, eventually, in_time};
use curator_recipes::{BarrierError, CountDownLatch, DistributedDoubleBarrier, InterProcessMutex, LockError};
use curator_test::TestingServer;
use curator_test::wire::OpCode;
use std::time::Duration;

#[track_caller]
fn is_unsupported<T: std::fmt::Debug>(result: Result<T, Error>, words: &str) {
    let error = result.unwrap_err();
    assert!(matches!(&error, Error::Unsupported { client: "zookeeper-async", .. }), "{error}");
    let tls = if words == "connect by TLS" { ", without a connector, and the cargo feature `tls`" } else { "" };
    let needed = format!("`DefaultZooKeeperFactory`, the default client{tls}");
    assert_eq!(error.to_string(), format!("zookeeper-async cannot {words}; needed: {needed}"));
}

#[tokio::test]
async fn each_request_that_zookeeper_async_lacks_is_named() {
    let server = TestingServer::start().unwrap();
    let client = connected(builder(server.address()).zookeeper_factory(ZooKeeperAsyncFactory)).await;
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

/// Returns a client of `zookeeper-async`, and the default client.
async fn both(server: &TestingServer) -> (CuratorFramework, CuratorFramework) {
    let options = || builder(server.address());
    let ours = options().zookeeper_factory(DefaultZooKeeperFactory::new());
    (connected(options().zookeeper_factory(ZooKeeperAsyncFactory)).await, connected(ours).await)
}

/// Checks that each call was refused, and returns the errors of the framework.
fn refused<const N: usize>(errors: [Option<BarrierError>; N], recipe: &str) {
    for error in errors {
        let Some(BarrierError::Framework(error)) = error else { panic!("{error:?}") };
        is_unsupported::<()>(Err(error), &format!("send the transactions of the {recipe}"));
    }
}

/// A double barrier and a latch rest on transactions. So the calls that write are refused, whether the path is new or
/// another client uses it.
#[tokio::test]
async fn double_barriers_and_latches_are_refused_before_a_request() {
    let server = TestingServer::start().unwrap();
    let (client, ours) = both(&server).await;
    let barrier = DistributedDoubleBarrier::new(client.clone(), "/double", 1).unwrap();
    let latch = CountDownLatch::new(client.clone(), "/latch").unwrap();
    for is_used in [false, true] {
        if is_used {
            let member = DistributedDoubleBarrier::new(ours.clone(), "/double", 1).unwrap().enter().await;
            assert!(in_time(member.unwrap().leave()).await.is_ok());
            assert!(CountDownLatch::new(ours.clone(), "/latch").unwrap().try_set_count(2).await.unwrap());
        }
        server.clear_requests();
        let entered = [
            in_time(barrier.enter()).await.err(),
            in_time(barrier.enter_timeout(Duration::ZERO)).await.err(),
            in_time(barrier.enter_timeout(Duration::from_secs(5))).await.err(),
        ];
        refused(entered, "double barrier /double");
        let counted = [
            in_time(latch.try_set_count(3)).await.err(),
            in_time(latch.count_down()).await.err(),
            in_time(latch.count_down_as("part")).await.err(),
            in_time(latch.participate("host")).await.err(),
        ];
        refused(counted, "count-down latch /latch");
        let sent: Vec<_> = server.requests().into_iter().filter(|sent| sent.op != OpCode::Ping).collect();
        assert!(sent.is_empty(), "{sent:?}");
    }
}

/// The calls that only read need no transactions.
#[tokio::test]
async fn members_and_counts_of_another_client_are_read() {
    let server = TestingServer::start().unwrap();
    let (client, ours) = both(&server).await;
    let member = DistributedDoubleBarrier::new(ours.clone(), "/double", 1).unwrap().enter().await.unwrap();
    let members = DistributedDoubleBarrier::new(client.clone(), "/double", 1).unwrap().members().await.unwrap();
    assert_eq!(members.len(), 1);
    assert!(in_time(member.leave()).await.is_ok());
    let [counting, latch] = [&ours, &client].map(|client| CountDownLatch::new(client.clone(), "/latch").unwrap());
    assert!(counting.try_set_count(2).await.unwrap());
    assert_eq!(latch.round().await.unwrap(), counting.round().await.unwrap());
    let participant = counting.participate("host").await.unwrap();
    let (waiter, watcher) = (latch.clone(), latch.clone());
    let watched = async || {
        eventually("it watches", async || client.watchers() == 1).await;
        answered(std::slice::from_ref(&client)).await;
    };
    let lost = tokio::spawn(async move { watcher.participant_lost().await });
    watched().await;
    drop(participant);
    assert_eq!(in_time(lost).await.unwrap().unwrap(), "host");
    assert_eq!((counting.count_down().await.unwrap(), latch.count().await.unwrap()), (1, 1));
    assert!(latch.wait_timeout(Duration::ZERO).await.unwrap().is_none());
    let waiting = tokio::spawn(async move { waiter.wait().await });
    watched().await;
    assert_eq!(counting.count_down().await.unwrap(), 0);
    in_time(waiting).await.unwrap().unwrap();
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

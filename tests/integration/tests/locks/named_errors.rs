//! Errors name the recipe's path, and tell the end of a budget from a lost connection.

use std::time::Duration;

use curator_framework::{Chain, CuratorFramework, Error, RetryNTimes, RetryOneTime};
use curator_integration::env::{builder, connected, in_time};
use curator_integration::simulated_stage::{ONE, PATIENCE, client, play, soon};
use curator_recipes::{
    DistributedAtomicLong, DistributedBarrier, DistributedDoubleBarrier, GroupMember, InterProcessMultiLock,
    InterProcessMutex, InterProcessSemaphoreV2, LeaderLatch, LockError, PersistentNode, SharedCount,
};
use curator_test::{SimulatedEnsemble, TestingServer};
use tokio::time::sleep;

const PATH: &str = "/locks/printer";
/// Shorter than a message takes.
const BUDGET: Duration = Duration::from_millis(20);

/// Checks the error of a budget that has ended before the first reply, on a connection that is not lost.
fn assert_time_over(error: &(impl std::error::Error + 'static), path: &str) {
    let text = Chain(error).to_string();
    assert!(text.contains(path), "{text}");
    assert!(text.ends_with("no answer in the time allowed, though the client is connected"), "{text}");
}

#[test]
fn budget_that_ends_before_the_first_reply_is_not_a_lost_connection() {
    play(3, async |_| {
        let ensemble = SimulatedEnsemble::new(3, Duration::from_millis(200));
        let client = client(&ensemble, ONE).await;
        let mutex = InterProcessMutex::new(client.clone(), PATH).unwrap();
        let error = mutex.acquire_timeout(BUDGET).await.unwrap_err();
        assert_time_over(&error, PATH);
        assert!(error.is_retryable() && error.outcome_unknown());
        let multi = InterProcessMultiLock::new(client.clone(), [PATH]).unwrap();
        assert_time_over(&multi.acquire_timeout(BUDGET).await.unwrap_err(), PATH);
        let semaphore = InterProcessSemaphoreV2::new(client.clone(), PATH, 1).unwrap();
        assert_time_over(&semaphore.acquire_timeout(BUDGET).await.unwrap_err(), PATH);
        let latch = LeaderLatch::new(client.clone(), "/election").unwrap();
        latch.start().unwrap();
        assert_time_over(&latch.leading_timeout(BUDGET).await.unwrap_err(), "/election");
        let member = GroupMember::new(client.clone(), "/group", "ann").unwrap();
        member.start().unwrap();
        assert_eq!(member.join_timeout(BUDGET).await.unwrap(), None);
        let node = PersistentNode::new(client.clone(), "/node", "data").unwrap();
        node.start().unwrap();
        assert_eq!(node.created_timeout(BUDGET).await.unwrap(), None);
        let barrier = DistributedBarrier::new(client.clone(), "/barrier").unwrap();
        assert_time_over(&barrier.wait_on_barrier_timeout(BUDGET).await.unwrap_err(), "/barrier");
        drop(client);
        sleep(PATIENCE).await;
    });
}

#[test]
fn verify_outlives_a_lost_connection() {
    play(5, async |ensemble| {
        let client = client(&ensemble, ONE).await;
        let guard = soon(InterProcessMutex::new(client, PATH).unwrap().acquire()).await.unwrap();
        ensemble.reset(ONE);
        soon(guard.verify()).await.unwrap();
        ensemble.reset(ONE);
        sleep(Duration::from_millis(1)).await;
        soon(guard.verify()).await.unwrap();
        assert!(guard.is_held());
        assert!(soon(guard.release()).await.unwrap().is_released());
    });
}

/// A client of a server that is gone.
async fn cut_off() -> CuratorFramework {
    let client = CuratorFramework::builder("127.0.0.1:1")
        .connection_timeout(Duration::from_millis(100))
        .retry_policy(RetryNTimes::new(0, Duration::ZERO))
        .build()
        .unwrap();
    client.start().unwrap();
    client
}

#[tokio::test]
async fn errors_of_an_outage_name_the_path() {
    let client = cut_off().await;
    let policy = RetryNTimes::new(0, Duration::ZERO);
    let mutex = InterProcessMutex::new(client.clone(), PATH).unwrap();
    let semaphore = InterProcessSemaphoreV2::new(client.clone(), PATH, 1).unwrap();
    let counter = DistributedAtomicLong::new(client.clone(), PATH, policy).unwrap();
    let barrier = DistributedBarrier::new(client.clone(), PATH).unwrap();
    let double = DistributedDoubleBarrier::new(client.clone(), PATH, 1).unwrap();
    let (read, created) = (client.get_data(), client.create());
    let (acquired, leased, counted, set, waited, entered, read, created) = Box::pin(in_time(async {
        tokio::join!(
            mutex.acquire(),
            semaphore.acquire(),
            counter.increment(),
            barrier.set_barrier(),
            barrier.wait_on_barrier(),
            double.enter(),
            read.for_path(PATH),
            created.for_path(PATH),
        )
    }))
    .await;
    for text in [
        Chain(&acquired.unwrap_err()).to_string(),
        Chain(&leased.unwrap_err()).to_string(),
        Chain(&counted.unwrap_err()).to_string(),
        Chain(&set.unwrap_err()).to_string(),
        Chain(&waited.unwrap_err()).to_string(),
        Chain(&entered.unwrap_err()).to_string(),
        Chain(&read.unwrap_err()).to_string(),
        Chain(&created.unwrap_err()).to_string(),
    ] {
        assert!(text.contains(PATH) && text.contains("127.0.0.1:1: "), "{text}");
    }
}

#[tokio::test]
async fn lost_connection_of_a_session_is_named_so() {
    let server = TestingServer::start().unwrap();
    let options = builder(server.address()).retry_policy(RetryNTimes::new(0, Duration::ZERO));
    let client = connected(options.connection_timeout(Duration::from_millis(300))).await;
    let guard = in_time(InterProcessMutex::new(client.clone(), PATH).unwrap().acquire()).await.unwrap();
    server.stop();
    let error = loop {
        match in_time(guard.verify()).await {
            Ok(()) => tokio::task::yield_now().await,
            Err(LockError::Framework(error)) => break error,
            Err(error) => panic!("{error}"),
        }
    };
    let text = error.to_string();
    assert!(matches!(error, Error::ConnectionLoss { .. }), "{error:?}");
    assert!(!text.contains("no session could be established") && text.contains(PATH), "{text}");
}

#[tokio::test]
async fn default_data_at_the_path_of_a_recipe_is_named_with_the_cure() {
    let server = TestingServer::start().unwrap();
    let client = connected(builder(server.address()).default_data("127.0.0.1")).await;
    client.create().for_path("/made").await.unwrap();
    let counter = DistributedAtomicLong::new(client.clone(), "/made", RetryOneTime::new(BUDGET)).unwrap();
    let text = counter.get().await.unwrap_err().to_string();
    assert!(text.contains("it has 9 bytes, not 8; a create without data writes the client's default data"), "{text}");
    let count = SharedCount::new(client.clone(), "/made", 0).unwrap();
    count.start().unwrap();
    count.initialized().await.unwrap();
    let text = count.count().unwrap_err().to_string();
    assert!(text.contains("it has 9 bytes, not 4; a create without data writes"), "{text}");
    let latch = LeaderLatch::new(client.clone(), "/made").unwrap();
    latch.start().unwrap();
    let term = in_time(latch.leading()).await.unwrap();
    let text = in_time(term.proclaim("data")).await.unwrap_err().to_string();
    assert!(text.contains("a create without data has written the default data"), "{text}");
    client.set_data().for_path("/made", "").await.unwrap();
    in_time(term.proclaim("data")).await.unwrap();
}

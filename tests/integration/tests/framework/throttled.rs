//! An overloaded server throttles requests: each is repeated after the pause of the retry policy.

use std::sync::Arc;
use std::time::{Duration, Instant};

use curator_framework::{
    AddWatchMode, CuratorFramework, Error, ExponentialBackoffRetry, FixedEnsembleProvider, RetryForever, RetryPolicy,
};
use curator_integration::env::{builder, connected, eventually, in_time};
use curator_recipes::{
    DistributedAtomicLong, DistributedDoubleBarrier, GroupMember, InterProcessMutex, InterProcessSemaphoreV2,
    LeaderLatch, LeaderSelector, Partition, PartitionOptions,
};
use curator_test::wire::{ErrorCode, OpCode};
use curator_test::{FaultProxy, TestingServer};

/// More throttled requests in a row than two pauses pass over.
const THROTTLED: usize = 3;
const PAUSE: Duration = Duration::from_millis(8);

struct Stage {
    server: TestingServer,
    client: CuratorFramework,
    policy: &'static str,
    retries: Arc<dyn RetryPolicy>,
}

impl Stage {
    async fn new(policy: &'static str, retries: Arc<dyn RetryPolicy>) -> Self {
        let server = TestingServer::start().unwrap();
        let client = connected(builder(server.address()).retry_policy(Arc::clone(&retries))).await;
        Self { server, client, policy, retries }
    }

    /// Runs an operation while its next requests of this kind are throttled.
    async fn passes<T>(&self, what: &str, op: OpCode, operation: impl Future<Output = T>) -> T {
        self.server.refuse(op, THROTTLED, ErrorCode::ThrottledOp);
        let begun = Instant::now();
        let outcome = in_time(operation).await;
        let (took, what) = (begun.elapsed(), format!("{what} with {}, {op} throttled", self.policy));
        assert_eq!(self.server.refusals_left(), 0, "{what}: it sent too few requests");
        assert!(took >= PAUSE * 2, "{what}: repeated without a pause, in {took:?}");
        outcome
    }

    async fn operations(&self) {
        let client = &self.client;
        self.passes("create", OpCode::Create2, client.create().for_path("/node")).await.unwrap();
        self.passes("exists", OpCode::Exists, client.check_exists().for_path("/node")).await.unwrap();
        self.passes("set_data", OpCode::SetData, client.set_data().for_path("/node", "data")).await.unwrap();
        self.passes("get_data", OpCode::GetData, client.get_data().for_path("/node")).await.unwrap();
        self.passes("get_children", OpCode::GetChildren, client.get_children().for_path("/")).await.unwrap();
        let delete = client.delete().guaranteed();
        self.passes("guaranteed delete", OpCode::Delete, delete.for_path("/node")).await.unwrap();
    }

    async fn locks(&self) {
        let client = &self.client;
        for op in [OpCode::CreateContainer, OpCode::Create2, OpCode::GetChildren] {
            let mutex = InterProcessMutex::new(client.clone(), format!("/mutex-{op}")).unwrap();
            let guard = self.passes("acquire", op, mutex.acquire()).await.unwrap();
            let release = self.passes("release", OpCode::Delete, guard.release()).await.unwrap();
            assert!(release.is_released());
        }
        let mutex = InterProcessMutex::new(client.clone(), "/watched").unwrap();
        let held = mutex.acquire().await.unwrap();
        let waiter = tokio::spawn({
            self.server.refuse(OpCode::GetData, THROTTLED, ErrorCode::ThrottledOp);
            async move { mutex.acquire().await }
        });
        eventually("the watch is set", async || self.server.refusals_left() == 0).await;
        assert!(held.release().await.unwrap().is_released());
        assert!(in_time(waiter).await.unwrap().unwrap().is_held());
        for op in [OpCode::Create2, OpCode::GetChildren] {
            let semaphore = InterProcessSemaphoreV2::new(client.clone(), format!("/semaphore-{op}"), 1).unwrap();
            let lease = self.passes("acquire a lease", op, semaphore.acquire()).await.unwrap();
            let released = self.passes("release a lease", OpCode::Delete, lease.release()).await.unwrap();
            assert!(released.is_released());
        }
    }

    async fn counters(&self) {
        for op in [OpCode::GetData, OpCode::Create2, OpCode::Multi] {
            let policy = Arc::clone(&self.retries);
            let counter = DistributedAtomicLong::new(self.client.clone(), format!("/count-{op}"), policy).unwrap();
            self.passes("increment", op, counter.increment()).await.unwrap();
            assert_eq!(counter.get().await.unwrap(), 1);
        }
    }

    async fn members(&self) {
        let client = &self.client;
        for op in [OpCode::Create2, OpCode::GetChildren] {
            let member = GroupMember::new(client.clone(), format!("/group-{op}"), "ann").unwrap();
            // It follows the group from the start, and joins when the group shows it.
            let _group = member.watch();
            let join = async {
                member.start().unwrap();
                member.join().await
            };
            let joined = self.passes("join", op, join).await.unwrap();
            assert_eq!(joined.id, "ann");
            // Its last requests must not use up refusals that are meant for another recipe.
            member.close().await;
        }
        let barrier = DistributedDoubleBarrier::new(client.clone(), "/barrier", 1).unwrap();
        let entered = self.passes("enter", OpCode::Multi, barrier.enter()).await.unwrap();
        let _departure = self.passes("leave", OpCode::Multi, entered.leave()).await.unwrap();
        let latch = LeaderLatch::new(client.clone(), "/latch").unwrap();
        let lead = async {
            latch.start().unwrap();
            latch.leading().await
        };
        self.passes("lead", OpCode::Create2, lead).await.unwrap();
        latch.close().await;
    }

    async fn runs(&self) {
        for op in [OpCode::Create2, OpCode::GetChildren] {
            let selector = LeaderSelector::new(self.client.clone(), format!("/selector-{op}")).unwrap();
            let run = selector.run(async |_term| {
                drop(tokio::spawn({
                    let selector = selector.clone();
                    async move { selector.close().await }
                }));
                Ok::<_, Error>(())
            });
            self.passes("selector.run", op, run).await.unwrap();
            selector.close().await;
            let partition = Partition::with_options(
                self.client.clone(),
                format!("/partition-{op}"),
                "ann",
                ["item"],
                PartitionOptions::new().settle(PAUSE),
            );
            let partition = partition.unwrap();
            let run = partition.run(async |_item| {
                drop(tokio::spawn({
                    let partition = partition.clone();
                    async move { partition.close().await }
                }));
            });
            self.passes("partition.run", op, run).await.unwrap();
            partition.close().await;
        }
    }
}

async fn all_pass(policy: &'static str, retries: Arc<dyn RetryPolicy>) {
    let stage = Stage::new(policy, retries).await;
    stage.operations().await;
    stage.locks().await;
    stage.counters().await;
    stage.members().await;
    stage.runs().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn throttled_requests_are_repeated_without_end() {
    all_pass("RetryForever", Arc::new(RetryForever::new(PAUSE).unwrap())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn throttled_requests_are_repeated_with_growing_pauses() {
    all_pass("ExponentialBackoffRetry", Arc::new(ExponentialBackoffRetry::new(PAUSE, 5).unwrap())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn throttled_watches_are_set_again_on_the_same_connection() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let options = builder(server.address()).ensemble_provider(FixedEnsembleProvider::new(proxy.connect_string()));
    let (client, other) = (connected(options).await, connected(builder(server.address())).await);
    let session = client.session().await.unwrap();
    let (_, watch) = session.get_children_watched("/").await.unwrap();
    let epoch = session.epoch();
    server.refuse(OpCode::SetWatches, THROTTLED, ErrorCode::ThrottledOp);
    proxy.reset();
    eventually("a new connection", async || session.is_connected() && session.epoch() > epoch).await;
    assert_eq!((session.epoch(), server.refusals_left()), (epoch + 1, 0));
    other.create().for_path("/node").await.unwrap();
    in_time(watch).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn throttled_removal_of_a_persistent_watch_is_repeated() {
    let server = TestingServer::start().unwrap();
    let client = connected(builder(server.address())).await;
    let watcher = client.add_watch("/", AddWatchMode::Persistent).await.unwrap();
    server.refuse(OpCode::RemoveWatches, THROTTLED, ErrorCode::ThrottledOp);
    server.clear_requests();
    drop(watcher);
    let removals = || server.requests().iter().filter(|request| request.op == OpCode::RemoveWatches).count();
    eventually("the server removes it", async || removals() > THROTTLED).await;
    assert_eq!((removals(), server.refusals_left()), (THROTTLED + 1, 0));
}

#[cfg(curator_mutants)]
#[test]
fn throttled_request_that_is_not_repeated_is_found() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let created = curator_framework::mutants::with("take-throttling-for-final", || {
        runtime.block_on(async {
            let stage = Stage::new("RetryForever", Arc::new(RetryForever::new(PAUSE).unwrap())).await;
            stage.server.refuse(OpCode::Create2, 1, ErrorCode::ThrottledOp);
            stage.client.create().for_path("/node").await
        })
    });
    assert!(created.is_err(), "{created:?}");
}

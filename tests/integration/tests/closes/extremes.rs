//! The extremes of every public argument that is a time or a number: none panics, and the client works after it.

use std::collections::BTreeSet;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use std::{fs, panic};

use curator_framework::recipe::{Budget, owning_session};
use curator_framework::{
    BoundedExponentialBackoffRetry, CreateMode, CuratorFramework, CuratorOp, ExponentialBackoffRetry, Permission,
    Randomness, RetryAttempt, RetryForever, RetryNTimes, RetryOneTime, RetryPolicy, RetryUntilElapsed,
    SeededRandomness, SessionId, Zxid,
};
use curator_integration::simulated_stage::{ONE, client, play, soon};
use curator_recipes::{
    CountDownLatch, CounterOptions, CuratorCache, CuratorCacheOptions, Delivery, DistributedAtomicLong,
    DistributedBarrier, DistributedDoubleBarrier, DistributedQueue, DoubleBarrierOptions, FencingToken, GroupMember,
    InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreV2, LeaderLatch, LeaderLatchOptions,
    LeaderObserver, LeaderSelector, LeaderSelectorOptions, LockOptions, LockOwner, Migration, MigrationManager,
    MigrationSet, ModelSpec, ModeledFramework, ModeledNode, Partition, PartitionOptions, PathChildrenCache,
    PersistentNode, PersistentTtlNode, PersistentTtlNodeOptions, PromotedToLock, QueueOptions, RawCodec,
    SemaphoreOptions, SemaphoreProtocol, SharedCount, SharedValue, SimpleDistributedQueue, TreeCache, UniqueIds,
    VersionedValue, queue_order,
};
use curator_test::{ClientId, SimulatedEnsemble};
use futures_util::future::join;
use tokio::time::{sleep, timeout};

const TIMES: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_nanos(1),
    // Just fits into the clock of some systems.
    Duration::from_secs(9_223_372_036_854_750_000),
    Duration::from_secs(u64::MAX / 2 + 1),
    Duration::MAX,
];
const SIZES: [usize; 3] = [0, 1, usize::MAX];
const COUNTS: [u32; 3] = [0, 1, u32::MAX];
const VERSIONS: [i32; 5] = [i32::MIN, -1, 0, 1, i32::MAX];
/// The limit of each try. Some wait without end, as they should.
const PATIENCE: Duration = Duration::from_secs(100);
/// The limit of a try that would send requests without end.
const ENOUGH: Duration = Duration::from_millis(200);

type Run = Pin<Box<dyn Future<Output = ()>>>;
type Row = (&'static [&'static str], fn(SimulatedEnsemble, CuratorFramework) -> Run);

async fn tried<T>(work: impl Future<Output = T>) -> Option<T> {
    timeout(PATIENCE, work).await.ok()
}

/// Returns a path that no other try has.
fn path() -> String {
    static LAST: AtomicUsize = AtomicUsize::new(0);
    format!("/extremes/{}", LAST.fetch_add(1, Ordering::SeqCst))
}

macro_rules! row {
    ([$($name:literal),* $(,)?], |$ensemble:pat_param, $client:ident| $work:block) => {
        (&[$($name),*], |$ensemble, $client| Box::pin(async move { let $client = &$client; $work }))
    };
}

const ROWS: [Row; 24] = [
    row!(
        [
            "client/life block_until_connected_timeout",
            "client/builder session_timeout",
            "client/builder connection_timeout",
            "client/builder max_close_wait",
            "client/builder max_ephemeral_bytes",
            "client/builder max_frame",
            "client/builder max_reply",
            "client/builder reap_interval",
        ],
        |ensemble, _client| {
            static LAST: AtomicU64 = AtomicU64::new(100);
            let options = || {
                let id = ClientId(LAST.fetch_add(1, Ordering::SeqCst).try_into().unwrap());
                ensemble.client(id).retry_policy(RetryOneTime::new(Duration::ZERO))
            };
            let times = TIMES.into_iter().flat_map(|time| {
                [
                    options().session_timeout(time),
                    options().connection_timeout(time),
                    options().max_close_wait(time),
                    options().reap_interval(time),
                ]
            });
            let sizes = SIZES.into_iter().flat_map(|size| {
                [options().max_frame(size), options().max_reply(size), options().max_ephemeral_bytes(size)]
            });
            for builder in times.chain(sizes) {
                let Ok(client) = builder.build() else { continue };
                client.start().unwrap();
                let _connected = tried(client.block_until_connected()).await;
                for time in TIMES {
                    let _connected = tried(client.block_until_connected_timeout(time)).await;
                }
                let _created = tried(client.create().creating_parents_if_needed().for_path(&path())).await;
                soon(client.close()).await;
            }
        }
    ),
    row!(["retry/exponential new", "retry/exponential with_max_pause", "retry/fixed new"], |_ensemble, _client| {
        let mut policies: Vec<Box<dyn RetryPolicy>> = Vec::new();
        for time in TIMES {
            policies.push(Box::new(RetryOneTime::new(time)));
            policies.extend(RetryForever::new(time).map(|policy| Box::new(policy) as _));
            for count in COUNTS {
                policies.push(Box::new(RetryNTimes::new(count, time)));
                policies.extend(ExponentialBackoffRetry::new(time, count).map(|policy| Box::new(policy) as _));
            }
            for other in TIMES {
                policies.extend(RetryUntilElapsed::new(time, other).map(|policy| Box::new(policy) as _));
                for count in COUNTS {
                    let policy = ExponentialBackoffRetry::with_max_pause(time, count, other);
                    policies.extend(policy.map(|policy| Box::new(policy) as _));
                    let policy = BoundedExponentialBackoffRetry::new(time, other, count);
                    policies.extend(policy.map(|policy| Box::new(policy) as _));
                }
            }
        }
        for policy in policies {
            for count in [0, 1, 31, 32, u32::MAX] {
                for (elapsed, random) in TIMES.into_iter().flat_map(|time| [(time, 0.0), (time, 0.999_999)]) {
                    let _pause = policy.next_pause(RetryAttempt { count, elapsed, random });
                }
            }
        }
    }),
    row!(["operations/create with_ttl"], |_ensemble, client| {
        for time in TIMES {
            let _created = tried(client.create().with_ttl(time).for_path(&path())).await;
            let create = client.create().with_mode(CreateMode::PersistentWithTtl(time));
            let _created = tried(create.for_path(&path())).await;
        }
    }),
    row!(
        [
            "operations/create or_set_data_with_version",
            "operations/delete with_version",
            "operations/set_data with_version",
            "operations/transaction with_version",
            "caches/path_children_cache clear_data_bytes_if_version",
        ],
        |_ensemble, client| {
            let cache = PathChildrenCache::new(client.clone(), "/extremes").unwrap();
            cache.start().unwrap();
            for version in VERSIONS {
                let path = path();
                let create = client.create().creating_parents_if_needed();
                let _created = tried(create.or_set_data_with_version(version).for_path(&path)).await;
                let _set = tried(client.set_data().with_version(version).for_path(&path, "")).await;
                let set = CuratorOp::set_data(path.clone(), "").with_version(version);
                let _set = tried(client.transaction().operation(set).commit()).await;
                let _is_cached = cache.clear_data_bytes_if_version(&path, version);
                let _deleted = tried(client.delete().with_version(version).for_path(&path)).await;
            }
        }
    ),
    row!(
        [
            "environment/randomness new",
            "held new",
            "model/ids new",
            "model/types owning_session",
            "model/types from_bits",
            "shared/versioned new",
            "engine/driver get",
            "engine/driver queue_order",
        ],
        |_ensemble, _client| {
            let _numbers = [0, 1, u64::MAX].map(|seed| SeededRandomness::new(seed).next());
            let _sessions = [i64::MIN, -1, 0, 1, i64::MAX].map(owning_session);
            let _ids = [i64::MIN, -1, 0, 1, i64::MAX].map(|number| (SessionId::new(number), Zxid::new(number)));
            let _tokens = [0, 1, u64::MAX].map(|pass| FencingToken::new(Zxid::new(i64::MIN), pass).to_string());
            let _permissions = COUNTS.map(Permission::from_bits);
            let _values = VERSIONS.map(|version| VersionedValue::new(Zxid::new(i64::from(version)), version, ()));
            let _orders = [i64::MIN, -1, 0, i64::MAX].map(|number| queue_order(number, || Some(number)));
            // Only a driver gets sorted children, and they are read like a slice.
            let _none = SIZES.map(|index| [0_u8; 1].get(index).copied());
        }
    ),
    row!(
        [
            "session/link connection_changed",
            "session/owned_node/hold watch_node",
            "session/owned_node/hold when_held_for",
            "sync/budget of",
            "sync/budget plus",
        ],
        |_ensemble, client| {
            let session = client.session().await.unwrap();
            for epoch in [0, u64::MAX] {
                let _changed = tried(session.connection_changed(true, epoch)).await;
            }
            for time in TIMES {
                let mut owned = session.owned_node("/", "extreme", CreateMode::EphemeralSequential);
                owned.create(&curator_framework::recipe::NodeSpec::new(&[])).await.unwrap();
                owned.watch_node(time);
                owned.when_held_for(time, || ());
                sleep(PATIENCE).await;
                assert!(owned.delete().await.unwrap());
                for more in TIMES {
                    let budget = Budget::of(time).plus(more);
                    assert_eq!(tried(budget.limit(std::future::ready(7))).await, Some(Some(7)));
                    let _over = tried(budget.over()).await;
                }
            }
        }
    ),
    row!(
        [
            "barriers/barrier wait_on_barrier_timeout",
            "barriers/latch/mod try_set_count",
            "barriers/latch/mod wait_timeout",
        ],
        |_ensemble, client| {
            let barrier = DistributedBarrier::new(client.clone(), path()).unwrap();
            barrier.set_barrier().await.unwrap();
            for time in TIMES {
                let _opened = tried(barrier.wait_on_barrier_timeout(time)).await;
                for count in COUNTS {
                    let latch = CountDownLatch::new(client.clone(), path()).unwrap();
                    let _set = tried(latch.try_set_count(count)).await.unwrap();
                    let _opened = tried(latch.wait_timeout(time)).await;
                    let _counted = tried(latch.count_down()).await.unwrap();
                }
            }
        }
    ),
    row!(
        [
            "barriers/double/mod new",
            "barriers/double/mod with_options",
            "barriers/double/mod enter_timeout",
            "barriers/double/member leave_timeout",
            "barriers/double/options quorum",
        ],
        |_ensemble, client| {
            for size in SIZES {
                drop(DistributedDoubleBarrier::new(client.clone(), path(), size));
                for time in TIMES {
                    let options = DoubleBarrierOptions::new().quorum(size, time);
                    let barrier = DistributedDoubleBarrier::with_options(client.clone(), path(), size.max(1), options);
                    let Ok(barrier) = barrier else { continue };
                    if let Some(Ok(Some(member))) = tried(barrier.enter_timeout(time)).await {
                        let _left = tried(member.leave_timeout(time)).await;
                    }
                }
            }
        }
    ),
    row!(
        [
            "caches/options max_depth",
            "caches/options max_watched_nodes",
            "caches/options max_events",
            "caches/options max_event_bytes",
            "caches/tree_cache max_depth",
            "caches/tree_cache max_events",
            "caches/tree_cache max_event_bytes",
        ],
        |_ensemble, client| {
            for size in SIZES {
                for options in [
                    CuratorCacheOptions::new().max_depth(size),
                    CuratorCacheOptions::new().max_watched_nodes(size),
                    CuratorCacheOptions::new().max_events(size),
                    CuratorCacheOptions::new().max_event_bytes(size),
                ] {
                    let Ok(cache) = CuratorCache::with_options(client.clone(), "/extremes", options) else { continue };
                    let _events = cache.changes();
                    cache.start().unwrap();
                    let _loaded = tried(cache.initialized()).await;
                    let _changed = tried(client.create().for_path(&path())).await;
                    soon(cache.close()).await;
                }
                let builder = TreeCache::builder(client.clone(), "/extremes")
                    .max_depth(size)
                    .max_events(size)
                    .max_event_bytes(size);
                let Ok(cache) = builder.build() else { continue };
                cache.start().unwrap();
                let _loaded = tried(cache.initialized()).await;
                soon(cache.close()).await;
            }
        }
    ),
    row!(["counters/options timeout", "counters/unique_ids take"], |_ensemble, client| {
        for time in TIMES {
            let options = CounterOptions::new().promoted_to_lock(PromotedToLock::new(path()).timeout(time));
            let retry = RetryNTimes::new(0, time);
            let counter = DistributedAtomicLong::with_options(client.clone(), path(), retry, options).unwrap();
            let _added = tried(counter.increment()).await;
        }
        for size in SIZES {
            // Ids without end are taken batch by batch.
            let ids = UniqueIds::new(client.clone(), path()).unwrap();
            let _ids = timeout(ENOUGH, ids.take(size)).await;
        }
    }),
    row!(
        [
            "groups/group initialized_timeout",
            "groups/member join_timeout",
            "leader/observer initialized_timeout",
            "groups/partition/options settle",
            "groups/partition/options grace",
        ],
        |_ensemble, client| {
            for time in TIMES {
                let member = GroupMember::new(client.clone(), path(), "one").unwrap();
                member.start().unwrap();
                let _joined = tried(member.join_timeout(time)).await;
                let _known = tried(member.group().initialized_timeout(time)).await;
                let observer = LeaderObserver::new(client.clone(), path()).unwrap();
                observer.start().unwrap();
                let _read = tried(observer.initialized_timeout(time)).await;
                soon(member.close()).await;
                for options in [PartitionOptions::new().settle(time), PartitionOptions::new().grace(time)] {
                    let partition = Partition::with_options(client.clone(), path(), "one", ["a"], options).unwrap();
                    let work = partition.run_until(sleep(PATIENCE / 2), async |item| item.revoked().await);
                    tried(work).await.expect("it ends").unwrap();
                    soon(partition.close()).await;
                }
            }
        }
    ),
    row!(
        [
            "leader/latch leading_timeout",
            "leader/latch abstain",
            "leader/latch resign_to_timeout",
            "leader/options delay_after_unclean_loss",
            "leader/options back_off",
        ],
        |_ensemble, client| {
            for time in TIMES {
                let path = path();
                let options = LeaderLatchOptions::new().delay_after_unclean_loss(time);
                let latch = LeaderLatch::with_options(client.clone(), path.clone(), options).unwrap();
                latch.start().unwrap();
                let other = LeaderLatch::new(client.clone(), path).unwrap();
                other.start().unwrap();
                let _led = tried(other.leading_timeout(time)).await;
                let candidates = tried(latch.participants()).await.unwrap().unwrap();
                for candidate in &candidates {
                    let _resigned = tried(latch.resign_to_timeout(candidate, time)).await;
                }
                latch.abstain(time);
                let _led = tried(other.leading_timeout(time)).await;
                soon(latch.close()).await;
                soon(other.close()).await;
                for longest in TIMES {
                    let options = LeaderSelectorOptions::new().back_off(time, longest);
                    let selector = LeaderSelector::with_options(client.clone(), self::path(), options).unwrap();
                    // A back-off of zero asks for terms without end.
                    let terms = AtomicUsize::new(0);
                    let work = async |_| {
                        sleep(Duration::from_secs(1)).await;
                        Err::<(), _>(terms.fetch_add(1, Ordering::SeqCst))
                    };
                    tried(selector.run_until(sleep(PATIENCE / 2), work)).await.expect("it ends").unwrap();
                    assert!(terms.load(Ordering::SeqCst) > 0);
                }
            }
        }
    ),
    row!(
        [
            "locks/acquire_methods acquire_timeout",
            "locks/acquire_methods acquire_as_timeout",
            "engine/options warn_after",
            "engine/options linger",
        ],
        |_ensemble, client| {
            for time in TIMES {
                let options = LockOptions::new().warn_after(time).one_node_per_client().linger(time);
                let mutex = InterProcessMutex::with_options(client.clone(), path(), options).unwrap();
                let guard = mutex.acquire().await.unwrap();
                let _second = tried(mutex.acquire_timeout(time)).await;
                let _third = tried(mutex.acquire_as_timeout(&LockOwner::new(), time)).await;
                assert!(guard.release().await.unwrap().is_released());
            }
        }
    ),
    row!(["engine/options max_waiting_nodes"], |_ensemble, client| {
        for size in SIZES {
            let options = LockOptions::new().max_waiting_nodes(size);
            let lock = InterProcessReadWriteLock::with_options(client.clone(), path(), options);
            assert_eq!(lock.is_err(), size == 0, "{size}");
            let Ok(lock) = lock else { continue };
            let reads = lock.read_lock().acquire().await.unwrap();
            let (write, read) = (lock.write_lock(), lock.read_lock());
            let second = Duration::from_secs(1);
            let waits = join(tried(write.acquire_timeout(second)), tried(read.acquire_timeout(second)));
            let (writes, reads_too) = waits.await;
            assert!(writes.unwrap().unwrap().is_none() && reads_too.unwrap().unwrap().is_none(), "{size}");
            assert!(reads.release().await.unwrap().is_released());
        }
    }),
    row!(
        [
            "locks/semaphore/semaphore_v2 new",
            "locks/semaphore/semaphore_v2 with_options",
            "locks/semaphore/lease_set split",
            "locks/semaphore/semaphore_v2 acquire_many",
            "locks/semaphore/semaphore_v2 acquire_many_timeout",
            "locks/semaphore/semaphore_v2 try_acquire_many",
        ],
        |_ensemble, client| {
            for size in SIZES {
                let options = SemaphoreOptions::new().protocol(SemaphoreProtocol::Direct);
                let direct = InterProcessSemaphoreV2::with_options(client.clone(), path(), size, options);
                for semaphore in [InterProcessSemaphoreV2::new(client.clone(), path(), size), direct] {
                    let Ok(semaphore) = semaphore else { continue };
                    for leases in SIZES {
                        // Leases without end are taken one by one.
                        let _leases = timeout(ENOUGH, semaphore.acquire_many(leases)).await;
                        let set = timeout(ENOUGH, semaphore.try_acquire_many(leases)).await;
                        if let Ok(Ok(Some(mut set))) = set {
                            let _part = set.split(leases);
                        }
                        for time in TIMES {
                            let _leases = timeout(ENOUGH, semaphore.acquire_many_timeout(leases, time)).await;
                        }
                    }
                }
            }
        }
    ),
    row!(
        [
            "nodes/options touch_factor",
            "nodes/persistent_node created_timeout",
            "nodes/ttl_node new",
            "nodes/ttl_node with_options",
            "nodes/ttl_node created_timeout",
        ],
        |_ensemble, client| {
            for time in TIMES {
                let node = PersistentNode::new(client.clone(), path(), "").unwrap();
                node.start().unwrap();
                let _created = tried(node.created_timeout(time)).await;
                soon(node.close()).await;
                drop(PersistentTtlNode::new(client.clone(), path(), time, ""));
                for count in COUNTS {
                    let options = PersistentTtlNodeOptions::new().touch_factor(count);
                    let node = PersistentTtlNode::with_options(client.clone(), path(), time, "", options);
                    let Ok(node) = node else { continue };
                    node.start().unwrap();
                    let _created = tried(node.created_timeout(time)).await;
                    sleep(PATIENCE).await;
                    soon(node.close()).await;
                }
            }
        }
    ),
    row!(
        [
            "typed/node check_op",
            "typed/node delete_op",
            "typed/node delete_version",
            "typed/node update",
            "typed/node update_op",
        ],
        |_ensemble, client| {
            for version in VERSIONS {
                let spec = ModelSpec::<String>::new(path(), RawCodec).unwrap();
                let (node, value) = (ModeledNode::new(client.clone(), spec).unwrap(), String::new());
                soon(node.create(&value)).await.unwrap();
                let _updated = soon(node.update(version, &value)).await;
                let update = node.update_op(version, &value).unwrap();
                for operation in [update, node.check_op(version), node.delete_op(version)] {
                    let _committed = soon(client.transaction().operation(operation).commit()).await;
                }
                let _deleted = soon(node.delete_version(version)).await;
            }
        }
    ),
    row!(["typed/cache/mod initialized_timeout"], |_ensemble, client| {
        for time in TIMES {
            let spec = ModelSpec::new(format!("{}/{{}}", path()), RawCodec).unwrap();
            let cache = ModeledFramework::<String>::new(client.clone(), spec).unwrap().cached().unwrap();
            cache.start().unwrap();
            let _loaded = tried(cache.initialized_timeout(time)).await;
            soon(cache.close()).await;
        }
    }),
    row!(["migrations/mod migrate_timeout"], |_ensemble, client| {
        let manager = MigrationManager::new(client.clone(), path(), format!("{}-applied", path())).unwrap();
        for time in TIMES {
            let set = MigrationSet::new("main", [Migration::new([])]);
            let _applied = tried(manager.migrate_timeout(&set, time)).await;
        }
        let set = MigrationSet::new("main", [Migration::new([])]);
        assert!(soon(manager.migrate(&set)).await.unwrap() <= 1);
    }),
    row!(["shared/count set_count", "shared/count try_set_count"], |_ensemble, client| {
        for number in VERSIONS {
            let count = SharedCount::new(client.clone(), path(), number).unwrap();
            count.start().unwrap();
            count.initialized().await.unwrap();
            soon(count.set_count(number)).await.unwrap();
            let newest = count.versioned_value().unwrap();
            assert!(soon(count.try_set_count(&newest, number)).await.unwrap());
            let _set = soon(count.try_set_count(&VersionedValue::new(Zxid::new(0), number, number), number)).await;
        }
    }),
    row!(["shared/mechanism initialized_timeout"], |_ensemble, client| {
        for time in TIMES {
            let count = SharedCount::new(client.clone(), path(), 1).unwrap();
            let value = SharedValue::new(client.clone(), path(), "").unwrap();
            count.start().unwrap();
            value.start().unwrap();
            let _read = (tried(count.initialized_timeout(time)).await, tried(value.initialized_timeout(time)).await);
            soon(count.close()).await;
            soon(value.close()).await;
        }
    }),
    row!(["caches/curator_cache initialized_timeout", "caches/legacy initialized_timeout"], |_ensemble, client| {
        for time in TIMES {
            let cache = CuratorCache::new(client.clone(), path()).unwrap();
            let legacy = PathChildrenCache::new(client.clone(), path()).unwrap();
            cache.start().unwrap();
            legacy.start().unwrap();
            let _loaded = (tried(cache.initialized_timeout(time)).await, tried(legacy.initialized_timeout(time)).await);
            soon(cache.close()).await;
            soon(legacy.close()).await;
        }
    }),
    row!(
        [
            "queues/consumer run",
            "queues/consumer run_until",
            "queues/kinds dead_letters",
            "queues/kinds peek",
            "queues/kinds put_timeout",
            "queues/options batch",
            "queues/options max_attempts",
            "queues/options max_items",
            "queues/simple poll_timeout",
        ],
        |_ensemble, client| {
            for time in TIMES {
                let simple = SimpleDistributedQueue::new(client.clone(), path()).unwrap();
                let _polled = tried(simple.poll_timeout(time)).await;
                for limit in COUNTS {
                    let options = QueueOptions::new().at_most_once().batch(limit);
                    drop(DistributedQueue::<String>::with_options(client.clone(), path(), RawCodec, options));
                    let path = path();
                    let options = QueueOptions::new().lock_path(format!("{path}-locks"));
                    let options = options.max_items(limit).max_attempts(limit);
                    let queue = DistributedQueue::<String>::with_options(client.clone(), path, RawCodec, options);
                    let Ok(queue) = queue else { continue };
                    let _put = tried(queue.put_timeout(&String::new(), time)).await;
                    let _full = tried(queue.put_timeout(&String::new(), time)).await;
                    for size in SIZES {
                        let _seen = tried(queue.peek(size)).await;
                        let _letters = tried(queue.dead_letters(size)).await;
                        let work = |delivery: Delivery<String>| async move { drop(delivery.complete().await) };
                        let _ran = timeout(ENOUGH, queue.consumer().run(size, work)).await;
                        let _ran = tried(queue.consumer().run_until(sleep(ENOUGH), size, work)).await;
                    }
                }
            }
        }
    ),
    row!(["operations/ensemble from_config"], |_ensemble, client| {
        for version in [i64::MIN, -1, 0, i64::MAX] {
            let joining = ["server.9=nowhere:1:2;3"];
            let _changed = tried(client.reconfig().joining(joining).from_config(version).for_ensemble()).await;
        }
    }),
];

/// Returns the public functions of a file that take a time or a number.
fn functions_of(name: &str, source: &str) -> Vec<String> {
    const KINDS: [&str; 13] = [
        "Duration",
        "std::time::Duration",
        "Option<Duration>",
        "impl Into<Option<Duration>>",
        "impl Into<Option<i64>>",
        "impl Into<MaxLeases>",
        "usize",
        "u32",
        "u64",
        "i32",
        "i64",
        "u16",
        "f64",
    ];
    let starts = ["pub fn ", "pub async fn ", "pub const fn "];
    let mut functions = Vec::new();
    for (index, _) in source.match_indices("pub ") {
        let Some(rest) = starts.iter().find_map(|start| source[index..].strip_prefix(start)) else { continue };
        let (mut depth, mut end) = (0, 0);
        for (at, letter) in rest.char_indices() {
            match letter {
                '(' | '<' | '[' => depth += 1,
                '>' if rest[..at].ends_with('-') => {}
                ')' | '>' | ']' => depth -= 1,
                _ => {}
            }
            if letter == ')' && depth == 0 {
                end = at;
                break;
            }
        }
        let function: String = rest.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect();
        let arguments = rest[..end].split(['(', ',']).filter_map(|argument| argument.split_once(": "));
        if arguments.map(|(_, kind)| kind.trim()).any(|kind| KINDS.contains(&kind)) {
            functions.push(format!("{name} {function}"));
        }
    }
    functions
}

fn functions_below(root: &Path, directory: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            functions_below(root, &path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.with_extension("");
            let name = name.strip_prefix(root).unwrap().to_str().unwrap();
            found.extend(functions_of(name, &fs::read_to_string(&path).unwrap()));
        }
    }
}

#[test]
fn every_public_argument_of_time_or_number_has_a_row() {
    let mut found = BTreeSet::new();
    for part in ["framework/src", "recipes/src"] {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(part);
        functions_below(&root, &root, &mut found);
    }
    let rows: BTreeSet<_> = ROWS.iter().flat_map(|(names, _)| names.iter().map(ToString::to_string)).collect();
    let missing: Vec<_> = found.difference(&rows).collect();
    let unknown: Vec<_> = rows.difference(&found).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "without a row: {missing:#?}; not in the sources: {unknown:#?}");
}

#[test]
fn no_extreme_time_or_number_panics() {
    let panics: Arc<parking_lot::Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&panics);
    panic::set_hook(Box::new(move |panic| seen.lock().push(panic.to_string())));
    let mut faults = Vec::new();
    for (names, run) in ROWS {
        let played = panic::catch_unwind(|| {
            play(1, async |ensemble| {
                let one = client(&ensemble, ONE).await;
                one.create_containers("/extremes").await.unwrap();
                run(ensemble, one.clone()).await;
                run_on(&one).await;
            });
        });
        let panics = std::mem::take(&mut *panics.lock());
        if played.is_err() || !panics.is_empty() {
            faults.push(format!("{names:?}: {panics:#?}"));
        }
    }
    drop(panic::take_hook());
    assert!(faults.is_empty(), "{faults:#?}");
}

/// The client still works.
async fn run_on(client: &CuratorFramework) {
    soon(client.create().creating_parents_if_needed().for_path(&path())).await.unwrap();
    soon(client.close()).await;
}

//! What the crates tell through `tracing`: the names and fields that their docs promise, and nothing secret.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use curator_framework::{
    Acl, ConnectionState, CuratorFramework, Permission, RetryNTimes, RetryOneTime, StandardConnectionStateErrorPolicy,
};
use curator_integration::env::reports_are_made;
use curator_recipes::{
    CountDownLatch, CuratorCache, CuratorCacheOptions, DistributedDoubleBarrier, DistributedQueue, InterProcessMutex,
    InterProcessSemaphoreV2, LeaderLatch, LeaderLatchOptions, LeaderSelector, LeaderState, Leadership, LockOptions,
    MutexGuard, NodeState, Partition, PartitionOptions, PathChildrenCache, PersistentNode, QueueOptions, RawCodec,
    SemaphoreOptions, SemaphoreProtocol, TermOutcome,
};
use curator_test::wire::{ErrorCode, OpCode};
use curator_test::{ApacheCluster, ClientId, FaultProxy, SimulatedEnsemble, TestingServer};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber, span};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

const PATIENCE: Duration = Duration::from_secs(20);
const SESSION: Duration = Duration::from_secs(3);
/// Texts that must not be in a log.
const PASSWORD: &str = "hunter2";
const DATA: &str = "top-drawer";

/// An event or a span: its level, what it is called, its fields.
#[derive(Debug, Clone)]
struct Told {
    level: String,
    name: String,
    fields: BTreeMap<String, String>,
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Told>>>);

impl Log {
    fn seen(&self, name: &str) -> bool {
        self.0.lock().iter().any(|told| told.name == name)
    }

    async fn comes_to(&self, name: &str) {
        let there = async {
            while !self.seen(name) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, there).await.unwrap_or_else(|_| panic!("{name} was not told"));
    }
}

#[derive(Default)]
struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

fn is_ours(metadata: &tracing::Metadata<'_>) -> bool {
    metadata.target().starts_with("curator_framework") || metadata.target().starts_with("curator_recipes")
}

impl<S: Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if is_ours(event.metadata()) {
            let mut fields = Fields::default();
            event.record(&mut fields);
            let name = fields.0.remove("message").unwrap();
            let level = event.metadata().level().to_string().to_lowercase();
            self.0.lock().push(Told { level, name, fields: fields.0 });
        }
    }

    fn on_new_span(&self, attributes: &span::Attributes<'_>, _: &span::Id, _: Context<'_, S>) {
        if is_ours(attributes.metadata()) {
            let mut fields = Fields::default();
            attributes.record(&mut fields);
            let level = attributes.metadata().level().to_string().to_lowercase();
            self.0.lock().push(Told { level, name: attributes.metadata().name().to_owned(), fields: fields.0 });
        }
    }
}

/// What is between backquotes.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// What the tables in the docs promise: the name, then the level and the fields.
fn promised() -> BTreeMap<String, (String, BTreeSet<String>)> {
    let pages = [include_str!("../../../../framework/src/lib.rs"), include_str!("../../../../recipes/src/lib.rs")];
    let rows = pages.iter().flat_map(|page| page.lines()).filter_map(|line| line.strip_prefix("//! | "));
    let rows = rows.filter_map(|row| {
        let (level, rest) = row.split_once(" | ")?;
        Some((level, rest.split_once(" | ")?))
    });
    let mut promised = BTreeMap::new();
    for (level, (names, fields)) in
        rows.filter(|(level, _)| ["trace", "debug", "info", "warn", "error"].contains(level))
    {
        // The values of a field are in parentheses.
        let fields = fields.split('(').next().unwrap();
        for name in quoted(names) {
            let fields = quoted(fields).into_iter().map(str::to_owned).collect();
            promised.insert(name.to_owned(), (level.to_owned(), fields));
        }
    }
    promised
}

/// A waiter that is granted a lease wakes the next one by a write to its own node, which that node's list forbids here.
async fn signal_without_permission(client: &CuratorFramework, server: &TestingServer, log: &Log) {
    let options = SemaphoreOptions::new().protocol(SemaphoreProtocol::Direct);
    let semaphore = InterProcessSemaphoreV2::with_options(client.clone(), "/direct", 2, options).unwrap();
    let (lease, _other) = (semaphore.acquire().await.unwrap(), semaphore.acquire().await.unwrap());
    let mut waiters = JoinSet::new();
    for queued in 3..=4 {
        let semaphore = semaphore.clone();
        waiters.spawn(async move { semaphore.acquire().await.unwrap() });
        let joined = async {
            while server.children("/direct/leases").unwrap().len() < queued {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, joined).await.unwrap();
    }
    let read_only = || vec![Acl::new(Permission::READ | Permission::ADMIN, "world", "anyone")];
    for node in server.children("/direct/leases").unwrap() {
        client.set_acl().with_acl(read_only()).for_path(&format!("/direct/leases/{node}")).await.unwrap();
    }
    assert!(lease.release().await.unwrap().is_released());
    log.comes_to("a waiter cannot be signalled").await;
}

/// A started latch that waits out a short delay behind a leader that did not resign.
fn cautious(client: &CuratorFramework, path: &str) -> LeaderLatch {
    let options = LeaderLatchOptions::new().delay_after_unclean_loss(Duration::from_millis(1));
    let latch = LeaderLatch::with_options(client.clone(), path, options).unwrap();
    latch.start().unwrap();
    latch
}

async fn leads(latch: &LeaderLatch) -> Leadership {
    timeout(PATIENCE, latch.leading()).await.unwrap().unwrap()
}

/// Terms that end in each way that is logged.
async fn lead_and_fail(client: &CuratorFramework, log: &Log) {
    // The leader's node is deleted, so it has not resigned.
    let (first, second) = (cautious(client, "/queue"), cautious(client, "/queue"));
    let mut states = (first.watch(), second.watch());
    let waits = |state: &LeaderState| matches!(state, LeaderState::Waiting { position: Some(1) });
    let leader = tokio::select! {
        _ = states.0.wait_for(waits) => second,
        _ = states.1.wait_for(waits) => first,
    };
    client.delete().for_path(leads(&leader).await.node_path()).await.unwrap();
    log.comes_to("the earlier leader did not resign").await;

    // Another program overwrites the election's record. From then on no election writes there.
    let latch = cautious(client, "/overwritten");
    leads(&latch).await;
    client.set_data().for_path("/overwritten", "of another program").await.unwrap();
    assert!(latch.resign().await.unwrap().is_some());
    for name in ["a term has begun", "the node is deleted without a mark", "a term has ended", "a latch cannot join"] {
        log.comes_to(name).await;
    }
    let not_started = CuratorFramework::new_client("127.0.0.1:1", RetryOneTime::new(Duration::ZERO)).unwrap();
    let early = cautious(&not_started, "/early");
    log.comes_to("a latch joins later").await;
    drop(early);

    let selector = LeaderSelector::new(client.clone(), "/selector").unwrap();
    tokio::select! {
        ended = selector.run(|_| async { Err::<(), _>("the work failed") }) => panic!("{ended:?}"),
        () = log.comes_to("a term has failed") => {}
    }
    let forbid = async |_| {
        let read_only = vec![Acl::new(Permission::READ | Permission::ADMIN, "world", "anyone")];
        client.set_acl().with_acl(read_only).for_path("/selector").await.unwrap();
    };
    assert!(matches!(timeout(PATIENCE, selector.run_once(forbid)).await.unwrap().unwrap(), TermOutcome::Done(_)));
    log.comes_to("the node of a term is deleted in the background").await;

    let write_only = vec![Acl::new(Permission::WRITE, "world", "anyone")];
    client.create().with_acl(write_only).for_path("/hidden").await.unwrap();
    let _observer = curator_integration::following::observer(client.clone(), "/hidden");
    log.comes_to("an election cannot be observed").await;
}

/// Persistent nodes that exist, and do not, in each way that is logged.
async fn register_and_fail(client: &CuratorFramework, server: &TestingServer, log: &Log) {
    let started = |path: &str| {
        let node = PersistentNode::new(client.clone(), path, "").unwrap();
        node.start().unwrap();
        node
    };
    let read_only = || vec![Acl::new(Permission::READ | Permission::ADMIN, "world", "anyone")];
    let node = started("/standing/node");
    timeout(PATIENCE, node.created()).await.unwrap().unwrap();
    for op in [OpCode::Exists, OpCode::GetData] {
        server.refuse(op, 1, ErrorCode::NoAuth);
    }
    client.set_data().for_path("/standing/node", "of an operator").await.unwrap();
    log.comes_to("a kept node cannot be read").await;
    timeout(PATIENCE, node.watch().wait_for(|state| matches!(state, NodeState::Standing(_)))).await.unwrap().unwrap();
    assert_eq!(server.refusals_left(), 0);
    let _second = started("/standing/node");
    log.comes_to("the path of a node is taken, so it waits").await;
    client.set_acl().with_acl(read_only()).for_path("/standing/node").await.unwrap();
    timeout(PATIENCE, node.set_data("refused")).await.unwrap().unwrap_err();
    client.set_acl().with_acl(read_only()).for_path("/standing").await.unwrap();
    timeout(PATIENCE, node.close()).await.unwrap();
    let _refused = started("/standing/other");
    log.comes_to("a node cannot be created").await;
    log.comes_to("a node exists").await;
    log.comes_to("a node's data cannot be written").await;
    log.comes_to("a node cannot be deleted, the client tries again").await;

    let not_started = CuratorFramework::new_client("127.0.0.1:1", RetryOneTime::new(Duration::ZERO)).unwrap();
    let early = PersistentNode::new(not_started, "/early", "").unwrap();
    early.start().unwrap();
    log.comes_to("a node is created later").await;

    let write_only = vec![Acl::new(Permission::WRITE, "world", "anyone")];
    client.create().with_acl(write_only).for_path("/hidden-group").await.unwrap();
    let _group = curator_integration::following::group(client.clone(), "/hidden-group");
    log.comes_to("a group cannot be read").await;
    let hidden = CuratorCache::new(client.clone(), "/hidden-group").unwrap();
    hidden.start().unwrap();
    log.comes_to("a cache cannot be filled").await;
    log.comes_to("a node cannot be cached").await;
    let read_only = Acl::new(Permission::READ, "world", "anyone");
    client.create().with_acl(vec![read_only]).for_path("/read-only").await.unwrap();
    let children = PathChildrenCache::new(client.clone(), "/read-only/children").unwrap();
    children.start().unwrap();
    log.comes_to("the root of a cache cannot be created").await;
    hidden.close().await;
    children.close().await;

    let filtered = CuratorCacheOptions::new().filter(|path| panic!("no answer for {path}"));
    let filtered = CuratorCache::with_options(client.clone(), "/standing", filtered).unwrap();
    filtered.start().unwrap();
    log.comes_to("a cache has ended").await;
    log.comes_to("code of the program has panicked").await;
}

/// A member of a barrier that dies, and a round of a latch with nodes that cannot be deleted.
async fn gather(client: &CuratorFramework, server: &TestingServer, log: &Log) {
    let other = CuratorFramework::new_client(server.connect_string(), RetryOneTime::new(Duration::ZERO)).unwrap();
    other.start().unwrap();
    let [one, two] =
        [client, &other].map(|client| DistributedDoubleBarrier::new(client.clone(), "/barrier", 2).unwrap());
    let (stays, dies) = futures_util::future::join(one.enter(), two.enter()).await;
    let (stays, dies) = (stays.unwrap(), dies.unwrap());
    let reader = client.session().await.unwrap().id().map(|id| id.get());
    let owner = other.session().await.unwrap().id().map(|id| id.get());
    let dies_when_watched = async {
        let is_read_of_other = async || {
            for request in server.requests().into_iter().filter(|request| Some(request.session_id) == reader) {
                let Some(path) = request.path.filter(|path| path.starts_with("/barrier/_c_")) else { continue };
                let stat = other.check_exists().for_path(&path).await.unwrap();
                if stat.is_some_and(|stat| Some(stat.ephemeral_owner) == owner) {
                    return true;
                }
            }
            false
        };
        while !is_read_of_other().await {
            sleep(Duration::from_millis(5)).await;
        }
        drop(dies);
    };
    let lost = futures_util::future::join(stays.member_lost(), dies_when_watched);
    timeout(PATIENCE, lost).await.unwrap().0.unwrap();
    log.comes_to("a member of a barrier has died").await;
    other.close().await;

    let latch = CountDownLatch::new(client.clone(), "/latch").unwrap();
    assert!(latch.try_set_count(1).await.unwrap());
    latch.count_down().await.unwrap();
    let round = latch.round().await.unwrap();
    let fixed = vec![Acl::new(Permission::READ | Permission::ADMIN, "world", "anyone")];
    client.set_acl().with_acl(fixed).for_path(&format!("/latch/{round}")).await.unwrap();
    assert!(latch.try_set_count(1).await.unwrap());
    log.comes_to("an earlier round of a latch was not deleted").await;
}

/// A queue with a foreign node, and one without a server.
async fn consume(client: &CuratorFramework, log: &Log) {
    client.create().creating_parents_if_needed().for_path("/jobs/foreign").await.unwrap();
    let alone = CuratorFramework::builder("127.0.0.1:1")
        .connection_timeout(Duration::from_millis(50))
        .retry_policy(RetryOneTime::new(Duration::ZERO))
        .build()
        .unwrap();
    alone.start().unwrap();
    for (client, event) in [(client, "an item cannot be delivered"), (&alone, "a queue is read later")] {
        let options = QueueOptions::new().at_most_once();
        let queue = DistributedQueue::<String>::with_options(client.clone(), "/jobs", RawCodec, options).unwrap();
        let work = |delivery| async move { drop(delivery) };
        timeout(PATIENCE, queue.consumer().run_until(log.comes_to(event), 1, work)).await.unwrap().unwrap();
    }
    timeout(PATIENCE, alone.close()).await.unwrap();
    let options = QueueOptions::new().lock_path("/work-locks");
    let queue = DistributedQueue::<String>::with_options(client.clone(), "/work", RawCodec, options).unwrap();
    let mut consumer = queue.consumer();
    for number in 0..2 {
        queue.put(&DATA.to_owned()).await.unwrap();
        let delivery = timeout(PATIENCE, consumer.next()).await.unwrap().unwrap().unwrap();
        if number == 0 {
            delivery.reject(DATA).await.unwrap();
        } else {
            client.delete().for_path(&format!("/work-locks/{}", delivery.name())).await.unwrap();
            delivery.complete().await.unwrap_err();
        }
    }
}

/// Work that does not return in its grace.
async fn divide_items(client: &CuratorFramework, log: &Log) {
    let options = PartitionOptions::new().settle(Duration::ZERO).grace(Duration::ZERO);
    let partition = Partition::with_options(client.clone(), "/partition", "ann", ["a"], options).unwrap();
    let works = tokio::sync::Notify::new();
    let close = async {
        works.notified().await;
        partition.close().await;
    };
    let run = partition.run(|_| {
        works.notify_one();
        std::future::pending()
    });
    let (outcome, ()) = timeout(PATIENCE, futures_util::future::join(run, close)).await.unwrap();
    outcome.unwrap();
    log.comes_to("a partition has settled").await;
    log.comes_to("the work of an item is dropped at the end of its grace").await;
}

async fn live_through_everything(log: &Log) {
    let server = TestingServer::builder().session_timeouts(SESSION, SESSION * 10).start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let client = CuratorFramework::builder(proxy.connect_string())
        .session_timeout(SESSION)
        .connection_timeout(SESSION)
        .authorization("digest", format!("ann:{PASSWORD}"))
        .default_data(DATA)
        .retry_policy(RetryNTimes::new(50, Duration::from_millis(20)))
        .build()
        .unwrap();
    proxy.refuse();
    client.start().unwrap();
    log.comes_to("not connected").await;
    proxy.accept();
    timeout(PATIENCE, client.block_until_connected()).await.unwrap().unwrap();

    client.create().with_acl(Acl::creator_all()).for_path("/node").await.unwrap();
    proxy.drop_reply(OpCode::SetData, 1);
    client.set_data().idempotent().for_path("/node", DATA).await.unwrap();
    log.comes_to("reconnected").await;
    proxy.latency(SESSION / 15);
    client.get_data().for_path("/node").await.unwrap();
    proxy.latency(Duration::ZERO);
    assert!(client.set_data().with_version(77).for_path("/node", DATA).await.is_err());

    signal_without_permission(&client, &server, log).await;

    lead_and_fail(&client, log).await;

    register_and_fail(&client, &server, log).await;

    divide_items(&client, log).await;

    gather(&client, &server, log).await;
    consume(&client, log).await;

    let options = LockOptions::new().data(DATA).warn_after(Duration::from_millis(50));
    let mutex = InterProcessMutex::with_options(client.clone(), "/lock", options).unwrap();
    let guard = timeout(PATIENCE, mutex.acquire()).await.unwrap().unwrap();
    log.comes_to("a lock is held for long").await;
    assert!(timeout(PATIENCE, mutex.acquire_timeout(SESSION / 10)).await.unwrap().unwrap().is_none());
    assert!(guard.release().await.unwrap().is_released());

    client.create().creating_parents_if_needed().for_path("/blocked/lock-0").await.unwrap();
    let blocked = InterProcessMutex::new(client.clone(), "/blocked").unwrap();
    assert!(timeout(PATIENCE, blocked.acquire_timeout(SESSION / 10)).await.unwrap().unwrap().is_none());
    log.comes_to("a persistent node with the name of a contender blocks the lock: delete or rename it").await;

    // The node of the holder cannot be read when another contender joins.
    let hidden = InterProcessMutex::new(client.clone(), "/hidden-lock").unwrap();
    let guard = timeout(PATIENCE, hidden.acquire()).await.unwrap().unwrap();
    let not_readable = vec![Acl::new(Permission::WRITE | Permission::ADMIN, "world", "anyone")];
    client.set_acl().with_acl(not_readable).for_path(guard.node_path()).await.unwrap();
    timeout(PATIENCE, hidden.acquire_timeout(PATIENCE)).await.unwrap().unwrap_err();
    log.comes_to("the node of a guard cannot be watched").await;
    assert!(guard.release().await.unwrap().is_released());

    // No client may delete anything below the path, so the node of the dropped guard stays.
    let guard = timeout(PATIENCE, mutex.acquire()).await.unwrap().unwrap();
    let read_only = vec![Acl::new(Permission::READ | Permission::ADMIN, "world", "anyone")];
    client.set_acl().with_acl(read_only).for_path("/lock").await.unwrap();
    drop(guard);
    log.comes_to("a node cannot be deleted").await;

    let mutex = InterProcessMutex::new(client.clone(), "/lost").unwrap();
    let guard = timeout(PATIENCE, mutex.acquire()).await.unwrap().unwrap();
    server.kill_session(server.sessions()[0]);
    log.comes_to("lock lost").await;
    drop(guard);
    log.comes_to("session ended").await;
    timeout(PATIENCE, client.block_until_connected()).await.unwrap().unwrap();
    timeout(PATIENCE, client.close()).await.unwrap();
}

async fn follow_an_ensemble(log: &Log) {
    let cluster = ApacheCluster::builder().reconfig().start().unwrap();
    // It hears of the others.
    let client = CuratorFramework::builder(cluster.server(0).unwrap().to_string())
        .ensemble_tracker(true)
        .retry_policy(RetryNTimes::new(50, Duration::from_millis(20)))
        .build()
        .unwrap();
    client.start().unwrap();
    log.comes_to("the ensemble").await;
    timeout(PATIENCE, client.close()).await.unwrap();
}

#[tokio::test]
async fn what_is_told_is_what_the_docs_promise_and_nothing_secret() {
    let log = Log::default();
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(log.clone())).unwrap();
    live_through_everything(&log).await;
    follow_an_ensemble(&log).await;

    let told = log.0.lock().clone();
    let promised = promised();
    assert!(promised.len() >= 18, "the tables were not found: {promised:?}");
    for (name, (level, fields)) in &promised {
        let told: Vec<_> = told.iter().filter(|told| told.name == *name).collect();
        assert!(!told.is_empty(), "{name} was not told");
        assert!(told.iter().all(|told| told.level == *level), "{name} is not told at the level {level}");
        let ever: BTreeSet<_> = told.iter().flat_map(|told| told.fields.keys().cloned()).collect();
        assert_eq!(ever, *fields, "{name}");
    }

    let as_numbers = |secret: &str| format!("{:?}", secret.as_bytes()).trim_matches(['[', ']']).to_owned();
    let secrets = [PASSWORD.to_owned(), DATA.to_owned(), as_numbers(PASSWORD), as_numbers(DATA)];
    for told in &told {
        for value in told.fields.values().chain([&told.name]) {
            assert!(!secrets.iter().any(|secret| value.contains(secret.as_str())), "{told:?}");
        }
    }
}

/// Asks at each event of a connection state whether the guard is held.
#[derive(Clone, Default)]
struct Asking {
    guard: Arc<OnceLock<MutexGuard>>,
    answers: Arc<Mutex<Vec<bool>>>,
}

impl<S: Subscriber> Layer<S> for Asking {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let is_state = fields.0.get("message").is_some_and(|message| message == "connection state");
        if let (true, Some(guard)) = (is_state, self.guard.get()) {
            self.answers.lock().push(guard.is_held());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn guard_is_lost_before_the_log_has_the_state_that_costs_it() {
    let asking = Asking::default();
    let _subscriber = tracing::subscriber::set_default(tracing_subscriber::registry().with(asking.clone()));
    let ensemble = SimulatedEnsemble::new(7, Duration::from_millis(4));
    let options = ensemble.client(ClientId(1)).session_timeout(PATIENCE).connection_timeout(PATIENCE);
    let options = options.retry_policy(RetryNTimes::new(10, Duration::from_millis(10)));
    let client = options.connection_state_error_policy(StandardConnectionStateErrorPolicy).build().unwrap();
    client.start().unwrap();
    client.block_until_connected().await.unwrap();
    let mutex = InterProcessMutex::new(client.clone(), "/lock").unwrap();
    let guard = mutex.acquire().await.unwrap();
    // The states before are reported late: the guard is asked about the later ones only.
    reports_are_made();
    asking.guard.set(guard).unwrap();
    let mut state = client.watch_connection_state();
    ensemble.reset(ClientId(1));
    let suspended = state.wait_for(|state| *state == Some(ConnectionState::Suspended));
    timeout(PATIENCE, suspended).await.unwrap().unwrap();
    reports_are_made();
    assert_eq!(asking.answers.lock().first(), Some(&false));
}

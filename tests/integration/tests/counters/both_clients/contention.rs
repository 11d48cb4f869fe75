//! Several tasks and several sessions on one number.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use curator_integration::clients::is_zookeeper_async;
use curator_integration::env::{Env, connected, in_time};
use curator_integration::on_every_server;
use curator_recipes::{CounterError, CounterOptions, DistributedAtomicLong, InterProcessMutex, PromotedToLock};
use curator_test::wire::OpCode;
use futures_util::future::join_all;
use tokio::task::JoinHandle;

use crate::stage::{LONG, long, patient, retries, through, values};

/// Lets sessions of their own increment one number. Each increment has its own step from one value to the next.
async fn count_in_sessions(env: &Env, sessions: usize, changes: usize) {
    let path = env.path("count");
    let mut tasks = Vec::new();
    for _ in 0..sessions {
        let number = long(&env.client().await, &path);
        tasks.push(tokio::spawn(async move {
            let mut steps = Vec::new();
            for _ in 0..changes {
                steps.push(values(&number.increment().await.unwrap()));
            }
            steps
        }));
    }
    let mut steps = Vec::new();
    for task in tasks {
        steps.extend(in_time(task).await.unwrap());
    }
    steps.sort_unstable();
    let expected: Vec<_> = (0..).map(|pre| (pre, pre + 1)).take(sessions * changes).collect();
    assert_eq!(steps, expected);
}

/// A task that changes a node without a pause, until it is stopped.
struct Disturber {
    stop: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Disturber {
    async fn start(env: &Env, path: &str) -> Self {
        let (client, path, stop) = (env.client().await, path.to_owned(), Arc::new(AtomicBool::new(false)));
        let is_stopped = Arc::clone(&stop);
        let task = tokio::spawn(async move {
            while !is_stopped.load(Ordering::Relaxed) {
                client.set_data().for_path(&path, 5_i64.to_be_bytes()).await.unwrap();
            }
        });
        Self { stop, task }
    }

    async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        in_time(self.task).await.unwrap();
    }
}

on_every_server! {
    async fn eight_sessions_count_exactly(env) {
        count_in_sessions(&env, 8, 40).await;
    }

    async fn thirty_two_sessions_count_exactly(env) {
        count_in_sessions(&env, 32, 10).await;
    }

    async fn changes_of_many_tasks_share_a_few_writes(env) {
        let (proxy, path) = (env.proxy(), env.path("count"));
        let client = connected(through(&proxy, LONG)).await;
        let number = long(&client, &path);
        let writes = || proxy.replies(OpCode::Multi) + proxy.replies(OpCode::SetData) + proxy.replies(OpCode::Create2);
        in_time(number.increment()).await.unwrap();
        let before = writes();
        // No reply arrives before the last call.
        proxy.latency(Duration::from_millis(10));
        let changes = in_time(join_all((0..100).map(|_| number.increment()))).await;
        let mut steps: Vec<_> = changes.into_iter().map(|change| values(&change.unwrap())).collect();
        assert!(steps.is_sorted(), "in the order of the calls: {steps:?}");
        steps.dedup();
        // The first call sends its change at once, and the others wait in the meantime.
        // (Without transactions it starts with a read, and they travel with it.)
        assert_eq!((steps.len(), writes() - before), (100, if is_zookeeper_async() { 1 } else { 2 }));
        // In tasks of their own they come while a write is on its way.
        let tasks = (0..100).map(|_| {
            let number = number.clone();
            tokio::spawn(async move { number.increment().await.unwrap() })
        });
        in_time(join_all(tasks)).await;
        assert_eq!(in_time(number.get()).await.unwrap(), 201);
        assert!(writes() - before < 20, "{}", writes() - before);
    }

    async fn a_change_alone_is_one_request(env) {
        let (proxy, path) = (env.proxy(), env.path("count"));
        let client = connected(through(&proxy, LONG)).await;
        let number = long(&client, &path);
        in_time(number.increment()).await.unwrap();
        let kinds = [OpCode::Multi, OpCode::SetData, OpCode::GetData, OpCode::Create2, OpCode::Exists, OpCode::Sync];
        let before = kinds.map(|kind| proxy.replies(kind));
        for _ in 0..10 {
            in_time(number.increment()).await.unwrap();
            assert!(in_time(number.compare_and_set(0, 1)).await.is_ok());
        }
        let after = kinds.map(|kind| proxy.replies(kind));
        let [multi, set, get, rest @ ..] = std::array::from_fn::<_, 6, _>(|index| after[index] - before[index]);
        assert_eq!((multi + set, rest), (10, [0; 3]));
        assert_eq!(multi == 0, is_zookeeper_async());
        // A comparison that fails is decided by a read. Without a marker each change starts with one.
        assert_eq!(get, if is_zookeeper_async() { 20 } else { 10 });
    }

    async fn a_policy_that_gives_up_ends_a_contended_change(env) {
        let path = env.path("count");
        long(&env.client().await, &path).force_set(5).await.unwrap();
        let disturber = Disturber::start(&env, &path).await;
        let proxy = env.proxy();
        let client = connected(through(&proxy, LONG)).await;
        proxy.latency(Duration::from_millis(20));
        for count in [0, 3] {
            let number = DistributedAtomicLong::new(client.clone(), &path, retries(count)).unwrap();
            let error = in_time(number.increment()).await.unwrap_err();
            let CounterError::Contended { tries, .. } = &error else { panic!("{error}") };
            assert_eq!(*tries, count + 1);
            assert!(error.is_retryable() && !error.outcome_unknown());
        }
        disturber.stop().await;
    }

    async fn a_change_is_promoted_to_the_lock(env) {
        let (path, lock) = (env.path("count"), env.path("lock"));
        let direct = env.client().await;
        long(&direct, &path).force_set(5).await.unwrap();
        let proxy = env.proxy();
        let client = connected(through(&proxy, LONG)).await;
        proxy.latency(Duration::from_millis(20));
        let promoted = PromotedToLock::new(&lock).timeout(Duration::from_millis(500)).retry_policy(retries(2));
        let options = CounterOptions::new().promoted_to_lock(promoted);
        let number = DistributedAtomicLong::with_options(client.clone(), &path, retries(1), options).unwrap();

        // The lock is taken: the wait for it ends.
        let disturber = Disturber::start(&env, &path).await;
        let guard = in_time(InterProcessMutex::new(direct.clone(), &lock).unwrap().acquire()).await.unwrap();
        let error = in_time(number.increment()).await.unwrap_err();
        assert!(matches!(error, CounterError::Contended { tries: 2, .. }), "{error}");
        assert!(in_time(guard.release()).await.unwrap().is_released());
        env.wait_for_children(&direct, &lock, 0).await;

        // A client without the lock continues to change the number.
        let error = in_time(number.increment()).await.unwrap_err();
        // Of both phases; the first try of each may rest on an older state, and is not counted by its policy.
        assert!(matches!(error, CounterError::Contended { tries: 5..=7, .. }), "{error}");
        env.wait_for_children(&direct, &lock, 0).await;

        // It stops when the lock is taken.
        let options = PromotedToLock::new(&lock).retry_policy(patient());
        let options = CounterOptions::new().promoted_to_lock(options);
        let number = DistributedAtomicLong::with_options(client.clone(), &path, retries(1), options).unwrap();
        let change = tokio::spawn(async move { number.increment().await });
        env.wait_for_children(&direct, &lock, 1).await;
        disturber.stop().await;
        let change = in_time(change).await.unwrap().unwrap();
        assert_eq!(values(&change), (5, 6));
        assert!(change.stats.optimistic_tries >= 2 && change.stats.promoted_tries >= 1, "{:?}", change.stats);
        env.wait_for_children(&direct, &lock, 0).await;
    }
}

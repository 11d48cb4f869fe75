//! Batches under losses, cancellation, wakers that re-enter the lock, and runtimes that end.

use std::io::Write as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{CuratorFramework, Error};
use curator_integration::env::{PATIENCE, builder, children, connected, eventually, in_time, tasks};
use curator_integration::in_process::{client, options as options_of, server};
use curator_integration::on_every_server;
use curator_recipes::{
    InterProcessLock, InterProcessMultiLock, InterProcessMutex, InterProcessReadWriteLock, LockError, LockOptions,
    LockOwner, MutexGuard, MutexOptions, Release, RevokeOutcome, Revoker,
};
use curator_test::wire::{ErrorCode, OpCode};
use curator_test::{FaultProxy, TestingServer};
use futures_util::poll;
use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

const LOCK: &str = "/parent/lock";

type Wait = Pin<Box<dyn Future<Output = Result<MutexGuard, LockError>> + Send>>;
type Outcome = Result<Option<MutexGuard>, LockError>;

fn options() -> MutexOptions {
    MutexOptions::new().one_node_per_client()
}

fn mutex(client: &CuratorFramework, path: &str) -> InterProcessMutex {
    InterProcessMutex::with_options(client.clone(), path, options()).unwrap()
}

fn lingering(client: &CuratorFramework, path: &str, linger: Duration) -> InterProcessMutex {
    InterProcessMutex::with_options(client.clone(), path, options().linger(linger)).unwrap()
}

fn wait_for(mutex: &InterProcessMutex) -> Wait {
    let mutex = mutex.clone();
    Box::pin(async move { mutex.acquire().await })
}

/// A wait that has come, and is not polled by itself.
async fn has_come(mutex: &InterProcessMutex) -> Wait {
    let mut wait = wait_for(mutex);
    assert!(poll!(wait.as_mut()).is_pending());
    wait
}

/// Spawns a wait that has come. It reports its number and its guard.
async fn comes(mutex: &InterProcessMutex, number: usize, grants: &Grants) -> JoinHandle<()> {
    let (wait, grants) = (has_come(mutex).await, grants.clone());
    tokio::spawn(async move {
        let guard = wait.await.unwrap();
        // The test may have ended.
        let _sent = grants.send((number, guard));
    })
}

type Grants = mpsc::UnboundedSender<(usize, MutexGuard)>;

/// Holds the lock with a node that is known to be alone: it serves all tasks that come.
async fn held_alone(mutex: &InterProcessMutex) -> MutexGuard {
    let first = in_time(mutex.acquire()).await.unwrap();
    let second = tokio::spawn(has_come(mutex).await);
    // The node serves a task that came after the grant once a listing shows no other contender.
    assert!(in_time(first.release()).await.unwrap().is_released());
    let second = in_time(second).await.unwrap().unwrap();
    assert_eq!((second.node_path(), second.token().pass()), (first.node_path(), 1));
    second
}

fn nodes(server: &TestingServer) -> usize {
    server.children(LOCK).map_or(0, |nodes| nodes.len())
}

async fn is_released(guard: MutexGuard) {
    assert!(in_time(guard.release()).await.unwrap().is_released());
}

async fn no_node_is_left(observer: &CuratorFramework, path: &str) {
    eventually("no node is left", async || children(observer, path).await.is_empty()).await;
}

#[track_caller]
fn assert_no_evidence(outcome: Outcome) {
    let error = outcome.map(|guard| guard.is_some()).expect_err("a refusal or a grant without evidence");
    assert!(matches!(error, LockError::Framework(Error::ConnectionLoss { .. })), "{error}");
}

/// A client behind a proxy. Its session outlives the test.
async fn behind(proxy: &FaultProxy) -> CuratorFramework {
    let options = builder(proxy.address()).session_timeout(Duration::from_secs(60));
    connected(options.connection_timeout(Duration::from_millis(200))).await
}

on_every_server! {
    async fn the_idle_time_starts_with_the_last_release(env) {
        const IDLE: Duration = Duration::from_millis(300);
        let path = env.path("lock");
        let (client, observer) = (env.client().await, env.client().await);
        let mutex = lingering(&client, &path, IDLE);
        is_released(mutex.acquire().await.unwrap()).await;
        tokio::time::sleep(IDLE / 3).await;
        let second = in_time(mutex.acquire()).await.unwrap();
        // A slow machine may have used up the first idle time.
        let is_of_first = second.token().pass() == 1;
        let start = Instant::now();
        is_released(second).await;
        no_node_is_left(&observer, &path).await;
        assert!(!is_of_first || start.elapsed() >= IDLE, "{:?}", start.elapsed());
    }

    async fn an_idle_node_ends_with_any_other_contender_and_with_its_client(env) {
        let path = env.path("lock");
        let (client, observer) = (env.client().await, env.client().await);
        let mutex = lingering(&client, &path, Duration::MAX);
        for same_client in [true, false] {
            is_released(mutex.acquire().await.unwrap()).await;
            assert_eq!(children(&observer, &path).await.len(), 1);
            let other = if same_client { &client } else { &observer };
            let plain = InterProcessMutex::new(other.clone(), &path).unwrap();
            is_released(in_time(plain.acquire()).await.unwrap()).await;
            no_node_is_left(&observer, &path).await;
        }
        is_released(mutex.acquire().await.unwrap()).await;
        assert_eq!(children(&observer, &path).await.len(), 1);
        in_time(client.close()).await;
        no_node_is_left(&observer, &path).await;
        let late = in_time(mutex.acquire()).await.unwrap_err();
        assert!(matches!(late, LockError::Framework(Error::Closed)), "{late}");
        eventually("the client waits for nothing", async || client.watchers() == 0).await;
    }

    async fn a_lost_idle_node_serves_no_acquire(env) {
        let path = env.path("lock");
        let (client, observer) = (env.client().await, env.client().await);
        let mutex = lingering(&client, &path, Duration::MAX);
        for kill in [false, true] {
            let guard = mutex.acquire().await.unwrap();
            let (node, token) = (guard.node_path().to_owned(), guard.token());
            is_released(guard).await;
            if kill {
                env.kill_owner_of(&observer, &node).await;
            } else {
                observer.delete().for_path(&node).await.unwrap();
            }
            // The client is notified at some time from now on.
            let next = loop {
                let next = in_time(mutex.acquire()).await.unwrap();
                if next.node_path() != node {
                    break next;
                }
                assert_eq!(next.token().czxid(), token.czxid());
                in_time(next.lost()).await;
            };
            assert!(next.token() > token && next.is_held());
            next.verify().await.unwrap();
            is_released(next).await;
        }
        in_time(client.close()).await;
        no_node_is_left(&observer, &path).await;
    }

    async fn an_offer_that_is_lost_before_it_is_taken_goes_on_in_the_order_of_the_tasks(env) {
        let path = env.path("lock");
        let (busy, observer) = (env.client().await, env.client().await);
        for kill in [false, true] {
            let mutex = mutex(&busy, &path);
            let first = mutex.acquire().await.unwrap();
            let node = first.node_path().to_owned();
            let stuck = has_come(&mutex).await;
            let (granted, mut grants) = mpsc::unbounded_channel();
            let mut waits = Vec::new();
            for number in 0..5 {
                waits.push(comes(&mutex, number, &granted).await);
            }
            let token = first.token();
            // It is offered to a future that is not polled.
            is_released(first).await;
            if kill {
                env.kill_owner_of(&observer, &node).await;
            } else {
                observer.delete().for_path(&node).await.unwrap();
            }
            let mut last = token;
            for expected in 0..5 {
                let (number, guard) = in_time(grants.recv()).await.unwrap();
                assert!(number == expected && guard.token() > last);
                last = guard.token();
                if guard.token().czxid() == token.czxid() {
                    // The offer was passed over before the client was notified.
                    in_time(guard.lost()).await;
                    drop(guard);
                } else {
                    is_released(guard).await;
                }
            }
            let stuck = in_time(stuck).await.unwrap();
            assert!(stuck.token() > last);
            is_released(stuck).await;
            no_node_is_left(&observer, &path).await;
        }
    }

    /// The server stops answering, and the client does not know yet.
    async fn a_timed_acquire_is_refused_only_while_another_holder_is_known(env) {
        const BUDGET: Duration = Duration::from_millis(100);
        let path = env.path("lock");
        let proxy = env.proxy();
        let client = behind(&proxy).await;
        for linger in [Duration::ZERO, Duration::from_millis(50)] {
            let mutex = lingering(&client, &path, linger);
            let guard = in_time(mutex.acquire()).await.unwrap();
            let waits = has_come(&mutex).await;
            proxy.partition();
            assert!(client.is_connected());
            assert!(mutex.acquire_timeout(BUDGET).await.unwrap().is_none(), "a task of the client holds it");
            drop(waits);
            drop(guard);
            let outcome = loop {
                match mutex.acquire_timeout(BUDGET).await {
                    // The node stays for its idle time.
                    Ok(Some(idle)) if !linger.is_zero() => {
                        drop(idle);
                        tokio::time::sleep(linger * 2).await;
                    }
                    outcome => break outcome,
                }
            };
            assert_no_evidence(outcome);
            assert_no_evidence(mutex.try_acquire().await);
            proxy.repair();
            is_released(in_time(mutex.acquire()).await.unwrap()).await;
            let observer = env.client().await;
            no_node_is_left(&observer, &path).await;
        }
    }

    /// The node is free, and the listing that shows whether another contender waits has no reply.
    async fn a_wait_for_the_listing_is_not_refused(env) {
        let path = env.path("lock");
        let proxy = env.proxy();
        let client = behind(&proxy).await;
        let mutex = mutex(&client, &path);
        let guard = in_time(mutex.acquire()).await.unwrap();
        proxy.partition();
        let timed = mutex.acquire_timeout(Duration::from_millis(30));
        let mut timed = std::pin::pin!(timed);
        assert!(poll!(timed.as_mut()).is_pending());
        drop(guard);
        assert!(client.is_connected());
        assert_no_evidence(timed.await);
        proxy.repair();
        is_released(in_time(mutex.acquire()).await.unwrap()).await;
        no_node_is_left(&client, &path).await;
    }

    async fn without_a_connection_a_timed_acquire_fails(env) {
        let path = env.path("lock");
        let proxy = env.proxy();
        let options = builder(proxy.address()).session_timeout(Duration::from_secs(2));
        let client = connected(options.connection_timeout(Duration::from_millis(500))).await;
        let mutex = mutex(&client, &path);
        let guard = in_time(mutex.acquire()).await.unwrap();
        let waits = wait_for(&mutex);
        let waits = tokio::spawn(waits);
        proxy.refuse();
        proxy.reset();
        in_time(guard.lost()).await;
        assert_no_evidence(mutex.acquire_timeout(Duration::from_millis(20)).await);
        drop(guard);
        assert_no_evidence(mutex.acquire_timeout(Duration::from_millis(20)).await);
        assert_no_evidence(mutex.try_acquire().await);
        proxy.accept();
        // The retry policy may have given up.
        if let Ok(granted) = in_time(waits).await.unwrap() {
            is_released(granted).await;
        }
        eventually("it is connected", async || client.is_connected()).await;
        is_released(in_time(mutex.acquire()).await.unwrap()).await;
    }

    async fn waits_that_are_dropped_at_any_moment_leave_no_node(env) {
        let path = env.path("lock");
        let (client, observer) = (env.client().await, env.client().await);
        for round in 0..150 {
            let mutex = mutex(&client, &path);
            let waits = [wait_for(&mutex), wait_for(&mutex), wait_for(&mutex)];
            for mut wait in waits {
                // A node that was created for an earlier wait may serve this one.
                if let Poll::Ready(guard) = poll!(wait.as_mut()) {
                    drop(guard.unwrap());
                }
                // The batch's task is on another thread.
                for _ in 0..round * 50 {
                    std::hint::spin_loop();
                }
            }
        }
        no_node_is_left(&observer, &path).await;
        is_released(in_time(mutex(&client, &path).acquire()).await.unwrap()).await;
        let plain = InterProcessMutex::new(observer.clone(), &path).unwrap();
        is_released(in_time(plain.acquire()).await.unwrap()).await;
    }

    async fn loops_that_create_and_drop_acquires_starve_none(env) {
        let path = env.path("lock");
        let (busy, other) = (env.client().await, env.client().await);
        let mutex = lingering(&busy, &path, Duration::MAX);
        let (inside, drops) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let ends = Arc::new(AtomicBool::new(false));
        let mut loops = JoinSet::new();
        for number in 0..4 {
            let (mutex, inside) = (mutex.clone(), Arc::clone(&inside));
            let (drops, ends) = (Arc::clone(&drops), Arc::clone(&ends));
            loops.spawn(async move {
                while !ends.load(Ordering::SeqCst) {
                    tokio::select! {
                        biased;
                        guard = mutex.acquire() => {
                            let guard = guard.unwrap();
                            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                            tokio::task::yield_now().await;
                            inside.fetch_sub(1, Ordering::SeqCst);
                            if number % 2 == 0 { drop(guard) } else { is_released(guard).await }
                        }
                        () = tokio::task::yield_now() => drop(drops.fetch_add(1, Ordering::SeqCst)),
                    }
                }
            });
        }
        let plain = InterProcessMutex::new(other.clone(), &path).unwrap();
        let mut rounds = 0;
        while rounds < 8 || drops.load(Ordering::SeqCst) < 500 {
            let guard = in_time(plain.acquire()).await.unwrap();
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
            tokio::task::yield_now().await;
            inside.fetch_sub(1, Ordering::SeqCst);
            is_released(guard).await;
            rounds += 1;
        }
        ends.store(true, Ordering::SeqCst);
        in_time(loops.join_all()).await;
        in_time(busy.close()).await;
        no_node_is_left(&other, &path).await;
    }

    async fn a_wait_is_granted_in_the_task_that_polls_it_last(env) {
        let path = env.path("lock");
        let client = env.client().await;
        let mutex = mutex(&client, &path);
        let guard = mutex.acquire().await.unwrap();
        let mut wait = has_come(&mutex).await;
        // Each task polls it, and hands it to the next one.
        for _ in 0..20 {
            let polled = tokio::spawn(async move {
                assert!(poll!(wait.as_mut()).is_pending());
                Some(wait)
            });
            wait = in_time(polled).await.unwrap().unwrap();
        }
        let granted = tokio::spawn(wait);
        tokio::task::yield_now().await;
        is_released(guard).await;
        is_released(in_time(granted).await.unwrap().unwrap()).await;
    }

    async fn a_runtime_that_ends_with_waits_of_a_clients_batch_leaves_the_others(env) {
        let path = env.path("lock");
        let client = env.client().await;
        let mutex = mutex(&client, &path);
        let guard = mutex.acquire().await.unwrap();
        let (ending, (granted, mut grants)) = (runtime(), mpsc::unbounded_channel());
        let mut waits = Vec::new();
        for number in 0..6 {
            let (wait, granted) = (has_come(&mutex).await, granted.clone());
            let task = async move { granted.send((number, wait.await.unwrap())).unwrap() };
            waits.push(if number % 2 == 0 { ending.spawn(task) } else { tokio::spawn(task) });
        }
        let token = guard.token();
        end(ending).await;
        is_released(guard).await;
        for expected in [1, 3, 5] {
            let (number, guard) = in_time(grants.recv()).await.unwrap();
            assert!(number == expected && guard.token().czxid() == token.czxid());
            is_released(guard).await;
        }
        no_node_is_left(&client, &path).await;
    }

    async fn the_end_of_the_clients_runtime_answers_the_waits_in_others(env) {
        let path = env.path("lock");
        let observer = env.client().await;
        let ending = runtime();
        let options = builder(env.address()).session_timeout(Duration::from_secs(2));
        let client = in_time(ending.spawn(connected(options.connection_timeout(Duration::from_secs(1))))).await.unwrap();
        let mutex = mutex(&client, &path);
        let guard = in_time(mutex.acquire()).await.unwrap();
        let waits = [has_come(&mutex).await, has_come(&mutex).await].map(tokio::spawn);
        let timed = {
            let mutex = mutex.clone();
            tokio::spawn(async move { mutex.acquire_timeout(Duration::from_secs(60)).await })
        };
        end(ending).await;
        for wait in waits {
            in_time(wait).await.unwrap().unwrap_err();
        }
        in_time(timed).await.unwrap().unwrap_err();
        in_time(mutex.acquire()).await.unwrap_err();
        in_time(mutex.try_acquire()).await.unwrap_err();
        in_time(guard.lost()).await;
        assert!(!in_time(guard.release()).await.is_ok_and(Release::is_released));
        let plain = InterProcessMutex::new(observer.clone(), &path).unwrap();
        is_released(in_time(plain.acquire()).await.unwrap()).await;
    }

    async fn budgets_beside_waits(env) {
        let path = env.path("lock");
        let client = env.client().await;
        let mutex = mutex(&client, &path);
        let guard = mutex.acquire().await.unwrap();
        let (granted, mut grants) = mpsc::unbounded_channel();
        let _first = comes(&mutex, 0, &granted).await;
        assert!(in_time(mutex.try_acquire()).await.unwrap().is_none());
        assert!(in_time(mutex.acquire_timeout(Duration::ZERO)).await.unwrap().is_none());
        for budget in [Duration::from_nanos(1), Duration::from_millis(5)] {
            assert!(in_time(mutex.acquire_timeout(budget)).await.unwrap().is_none());
        }
        let forever = {
            let mutex = mutex.clone();
            tokio::spawn(async move { mutex.acquire_timeout(Duration::MAX).await.unwrap().unwrap() })
        };
        is_released(guard).await;
        let (_, first) = in_time(grants.recv()).await.unwrap();
        assert!(in_time(mutex.try_acquire()).await.unwrap().is_none());
        is_released(first).await;
        is_released(in_time(forever).await.unwrap()).await;
        let tried = in_time(mutex.acquire_timeout(Duration::ZERO)).await.unwrap().expect("it is free");
        let next = tokio::spawn(has_come(&mutex).await);
        assert!(in_time(mutex.try_acquire()).await.unwrap().is_none());
        is_released(tried).await;
        is_released(in_time(next).await.unwrap().unwrap()).await;
        no_node_is_left(&client, &path).await;
    }

    /// The holders come again at once.
    async fn another_client_waits_for_at_most_65_holders_that_come_again(env) {
        let path = env.path("lock");
        let (busy, other) = (env.client().await, env.client().await);
        let mutex = mutex(&busy, &path);
        let first = held_alone(&mutex).await;
        let (served, ends) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let mut loops = JoinSet::new();
        for _ in 0..20 {
            let (mut wait, mutex) = (has_come(&mutex).await, mutex.clone());
            let (served, ends) = (Arc::clone(&served), Arc::clone(&ends));
            loops.spawn(async move {
                while !ends.load(Ordering::SeqCst) {
                    let guard = wait.await.unwrap();
                    served.fetch_add(1, Ordering::SeqCst);
                    wait = wait_for(&mutex);
                    let come = poll!(wait.as_mut());
                    assert!(come.is_pending(), "two hold it");
                    is_released(guard).await;
                }
            });
        }
        let plain = InterProcessMutex::new(other.clone(), &path).unwrap();
        let served_by_then = Arc::clone(&served);
        let theirs = tokio::spawn(async move {
            let guard = in_time(plain.acquire()).await.unwrap();
            (served_by_then.load(Ordering::SeqCst), guard)
        });
        env.wait_for_children(&other, &path, 2).await;
        // It is seen once a task that comes is not served by the node that is held.
        let mut late = Vec::new();
        eventually("the next batch has a node", async || {
            late.push(has_come(&mutex).await);
            children(&other, &path).await.len() == 3
        })
        .await;
        drop(late);
        is_released(first).await;
        let (served_before, guard) = in_time(theirs).await.unwrap();
        assert_eq!(served_before, 20);
        assert_eq!(served.load(Ordering::SeqCst), served_before, "two hold it");
        is_released(guard).await;
        ends.store(true, Ordering::SeqCst);
        in_time(loops.join_all()).await;
        no_node_is_left(&other, &path).await;
    }

    async fn a_request_for_a_passed_node_reaches_its_present_holder_alone(env) {
        let path = env.path("lock");
        let (busy, other) = (env.client().await, env.client().await);
        let mutex = mutex(&busy, &path);
        let first = mutex.acquire().await.unwrap();
        assert!(poll!(std::pin::pin!(first.revocation_requested())).is_pending());
        let (granted, mut grants) = mpsc::unbounded_channel();
        for number in 0..2 {
            let _waits = comes(&mutex, number, &granted).await;
        }
        let node = first.node_path().to_owned();
        assert!(in_time(first.release()).await.unwrap().is_released());
        let (_, second) = in_time(grants.recv()).await.unwrap();
        assert_eq!(second.node_path(), node);
        let mut earlier = std::pin::pin!(first.revocation_requested());
        assert!(poll!(earlier.as_mut()).is_pending());
        assert_eq!(Revoker::attempt_revoke(&other, &node).await.unwrap(), RevokeOutcome::Requested);
        in_time(second.revocation_requested()).await;
        assert!(poll!(earlier.as_mut()).is_pending(), "a request for the present holder");
        is_released(second).await;
        let (_, third) = in_time(grants.recv()).await.unwrap();
        assert_ne!(third.node_path(), node, "a node that is to be released is passed on");
        assert!(poll!(std::pin::pin!(third.revocation_requested())).is_pending());
        is_released(third).await;
        no_node_is_left(&other, &path).await;
    }

    async fn no_transaction_of_an_earlier_holder_follows_a_pass(env) {
        let (path, value) = (env.path("lock"), env.path("value"));
        let proxy = env.proxy();
        let client = behind(&proxy).await;
        client.create().creating_parents_if_needed().for_path(&value).await.unwrap();
        let mutex = mutex(&client, &path);
        let guard = held_alone(&mutex).await;
        let mut next = has_come(&mutex).await;
        proxy.partition();
        let mut commits = Box::pin(guard.transaction().set_data(&value, "sent").commit());
        let mut releases = Box::pin(guard.release());
        assert!(poll!(commits.as_mut()).is_pending());
        assert!(poll!(releases.as_mut()).is_pending(), "the node is passed on behind a transaction without a reply");
        assert!(poll!(next.as_mut()).is_pending(), "two hold it");
        proxy.repair();
        in_time(commits).await.unwrap();
        assert!(in_time(releases).await.unwrap().is_released());
        let next = in_time(next).await.unwrap();
        assert_ne!(next.node_path(), guard.node_path());
        is_released(next).await;
        let last = held_alone(&mutex).await;
        let next = tokio::spawn(has_come(&mutex).await);
        last.transaction().set_data(&value, "last").commit().await.unwrap();
        assert!(in_time(last.release()).await.unwrap().is_released());
        let next = in_time(next).await.unwrap().unwrap();
        assert_eq!(next.node_path(), last.node_path());
        let refused = last.transaction().set_data(&value, "late").commit().await.unwrap_err();
        assert!(matches!(refused, LockError::InvalidArgument { .. }), "{refused}");
        assert_eq!(client.get_data().for_path(&value).await.unwrap().0, b"last");
        next.transaction().set_data(&value, "next").commit().await.unwrap();
        is_released(next).await;
    }

    async fn an_owner_enters_again_while_others_wait_for_the_node(env) {
        let path = env.path("lock");
        let client = env.client().await;
        let mutex = mutex(&client, &path);
        let inside = AtomicUsize::new(0);
        let work = async |number: usize| {
            let outer = in_time(mutex.acquire()).await.unwrap();
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
            let inner = in_time(mutex.acquire()).await.unwrap();
            let tried = mutex.try_acquire().await.unwrap().expect("its owner holds it");
            let again = tried.reenter().unwrap();
            assert!(inner.token() == outer.token() && again.token() == outer.token());
            is_released(outer).await;
            drop((inner, tried));
            tokio::task::yield_now().await;
            assert!(again.is_held());
            inside.fetch_sub(1, Ordering::SeqCst);
            if number % 2 == 0 { drop(again) } else { is_released(again).await }
        };
        in_time(futures_util::future::join_all((0..20).map(|number| LockOwner::scope(work(number))))).await;
        no_node_is_left(&client, &path).await;
    }

    async fn a_passed_write_lock_is_downgraded_beside_waits(env) {
        let path = env.path("lock");
        let client = env.client().await;
        let options = LockOptions::new().one_node_per_client();
        let lock = InterProcessReadWriteLock::with_options(client.clone(), &path, options).unwrap();
        let (readers, writers) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut tasks = JoinSet::new();
        for number in 0..12 {
            let (lock, readers, writers) = (lock.clone(), Arc::clone(&readers), Arc::clone(&writers));
            tasks.spawn(async move {
                if number % 4 == 3 {
                    let reading = in_time(lock.read_lock().acquire()).await.unwrap();
                    readers.fetch_add(1, Ordering::SeqCst);
                    assert_eq!(writers.load(Ordering::SeqCst), 0, "a reader beside a writer");
                    tokio::task::yield_now().await;
                    readers.fetch_sub(1, Ordering::SeqCst);
                    assert!(in_time(reading.release()).await.unwrap().is_released());
                    return;
                }
                let writing = in_time(lock.write_lock().acquire()).await.unwrap();
                assert_eq!(writers.fetch_add(1, Ordering::SeqCst), 0, "two writers");
                assert_eq!(readers.load(Ordering::SeqCst), 0, "a writer beside a reader");
                tokio::task::yield_now().await;
                if number % 4 == 0 {
                    writers.fetch_sub(1, Ordering::SeqCst);
                    assert!(in_time(writing.release()).await.unwrap().is_released());
                    return;
                }
                // It is a reader before others may be.
                readers.fetch_add(1, Ordering::SeqCst);
                writers.fetch_sub(1, Ordering::SeqCst);
                let reading = in_time(writing.downgrade()).await.unwrap();
                tokio::task::yield_now().await;
                assert!(reading.is_held() && !writing.is_held());
                readers.fetch_sub(1, Ordering::SeqCst);
                assert!(in_time(reading.release()).await.unwrap().is_released());
            });
        }
        in_time(tasks.join_all()).await;
        no_node_is_left(&client, &path).await;
    }

    async fn multi_locks_of_batches_in_opposite_orders_end_by_their_budgets(env) {
        let client = env.client().await;
        let paths = [env.path("one"), env.path("two")];
        let locks = paths.clone().map(|path| Arc::new(mutex(&client, &path)) as Arc<dyn InterProcessLock>);
        let [one, two] = locks;
        let inside = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        for number in 0..4 {
            let mut locks = [Arc::clone(&one), Arc::clone(&two)];
            if number % 2 == 0 {
                locks.reverse();
            }
            let (multi, inside) = (InterProcessMultiLock::from_locks(locks).unwrap(), Arc::clone(&inside));
            tasks.spawn(async move {
                let mut granted = 0;
                for round in 0..20_u64 {
                    let budget = Duration::from_millis(3 + 5 * number + round % 3);
                    // A budget that ends between two locks has no evidence of another contender.
                    let Ok(Some(guard)) = in_time(multi.acquire_timeout(budget)).await else { continue };
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    assert!(guard.release().await.unwrap().is_released());
                    granted += 1;
                }
                granted
            });
        }
        let granted: Vec<i32> = in_time(tasks.join_all()).await;
        assert!(granted.iter().sum::<i32>() > 0, "{granted:?}");
        for path in &paths {
            no_node_is_left(&client, path).await;
        }
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

async fn end(runtime: Runtime) {
    tokio::task::spawn_blocking(move || drop(runtime)).await.unwrap();
}

/// The batch's task runs after the end of the first idle time and after the second release.
#[tokio::test]
async fn an_idle_time_that_has_ended_unseen_does_not_end_the_next_one() {
    const IDLE: Duration = Duration::from_millis(400);
    let server = server();
    let client = client(&server).await;
    let mutex = lingering(&client, LOCK, IDLE);
    let first = mutex.acquire().await.unwrap();
    let node = first.node_path().to_owned();
    is_released(first).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let blocks = tokio::spawn(async { std::thread::sleep(IDLE + IDLE / 8) });
    // Both timers are late by now, and this one comes first.
    tokio::time::sleep(IDLE / 40).await;
    let second = mutex.try_acquire().await.unwrap().expect("the node is idle");
    assert_eq!((second.node_path(), second.token().pass()), (&*node, 1));
    drop(second);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let third = mutex.acquire().await.unwrap();
    assert_eq!((third.node_path(), third.token().pass()), (&*node, 2));
    blocks.await.unwrap();
}

/// Evidence of an earlier wait does not refuse a free lock.
#[tokio::test]
async fn a_wait_that_has_ended_leaves_no_evidence() {
    let server = server();
    let (ours, theirs) = (client(&server).await, client(&server).await);
    let mutex = mutex(&ours, LOCK);
    let plain = InterProcessMutex::new(theirs, LOCK).unwrap();
    let holder = plain.acquire().await.unwrap();
    assert!(mutex.acquire_timeout(Duration::from_millis(200)).await.unwrap().is_none());
    is_released(holder).await;
    eventually("the lock is free", async || nodes(&server) == 0).await;
    // The runtime is busy: the budget ends before the batch's task runs.
    for _ in 0..200 {
        let _busy = tokio::spawn(async { std::thread::sleep(Duration::from_micros(100)) });
    }
    assert_no_evidence(mutex.acquire_timeout(Duration::from_nanos(1)).await);
    is_released(in_time(mutex.acquire()).await.unwrap()).await;
}

/// A listing that fails starts an attempt. It does not show another contender.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_that_fails_is_no_evidence() {
    let server = server();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let client = behind(&proxy).await;
    let mutex = mutex(&client, LOCK);
    let guard = in_time(mutex.acquire()).await.unwrap();
    proxy.latency(Duration::from_millis(100));
    server.refuse(OpCode::GetChildren, 1, ErrorCode::NoAuth);
    let waits = tokio::spawn(wait_for(&mutex));
    eventually("the listing is refused", async || server.refusals_left() == 0).await;
    server.freeze();
    proxy.latency(Duration::ZERO);
    let sent = proxy.traffic().received;
    eventually("the next attempt is sent", async || proxy.traffic().received > sent).await;
    drop(guard);
    assert!(client.is_connected());
    assert_no_evidence(mutex.acquire_timeout(Duration::from_millis(50)).await);
    server.thaw();
    is_released(in_time(waits).await.unwrap().unwrap()).await;
    eventually("no node is left", async || nodes(&server) == 0).await;
}

#[tokio::test]
async fn a_closed_client_leaves_no_task_of_its_batch() {
    let server = server();
    let before = tasks();
    let client = connected(options_of(&server)).await;
    let mutex = lingering(&client, LOCK, Duration::MAX);
    is_released(mutex.acquire().await.unwrap()).await;
    in_time(client.close()).await;
    in_time(mutex.acquire()).await.unwrap_err();
    drop((mutex, client));
    eventually("no task is left", async || tasks() == before).await;
    eventually("no node is left", async || nodes(&server) == 0).await;
}

/// A waker that counts its wakes.
#[derive(Default)]
struct Counts(AtomicUsize);

impl Wake for Counts {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn an_offer_wakes_the_waker_of_the_last_poll() {
    let server = server();
    let client = client(&server).await;
    let mutex = mutex(&client, LOCK);
    let guard = held_alone(&mutex).await;
    let mut wait = wait_for(&mutex);
    let counts = [Arc::new(Counts::default()), Arc::new(Counts::default())];
    for turn in 0..7 {
        let waker = Waker::from(Arc::clone(&counts[turn % 2]));
        assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    assert_eq!(Arc::strong_count(&counts[1]), 1, "a waker is kept");
    is_released(guard).await;
    assert_eq!(counts.each_ref().map(|counts| counts.0.load(Ordering::SeqCst)), [1, 0]);
    let other = Waker::from(Arc::clone(&counts[1]));
    let Poll::Ready(granted) = wait.as_mut().poll(&mut Context::from_waker(&other)) else { panic!("it was offered") };
    is_released(granted.unwrap()).await;
    assert_eq!(Arc::strong_count(&counts[0]), 1, "a waker is kept");
}

/// A waker that records its first wake.
#[derive(Default)]
struct Woken(Mutex<Option<Instant>>);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.lock().get_or_insert_with(Instant::now);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_gets_the_offer_of_a_dropped_one_has_its_time() {
    const TURN: Duration = Duration::from_millis(40);
    let server = server();
    let client = connected(options_of(&server).session_timeout(TURN * 100)).await;
    let mutex = mutex(&client, LOCK);
    for round in 0..8 {
        let guard = held_alone(&mutex).await;
        let mut waits = [wait_for(&mutex), wait_for(&mutex), wait_for(&mutex)];
        let wakers = [(); 3].map(|()| Arc::new(Woken::default()));
        for (wait, waker) in waits.iter_mut().zip(&wakers) {
            let waker = Waker::from(Arc::clone(waker));
            assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        let woken = |number: usize| *wakers[number].0.lock();
        is_released(guard).await;
        // Between the first and the second check whether the offer was taken.
        tokio::time::sleep(TURN * (8 + round) / 8).await;
        let [dropped, second, third] = waits;
        let is_in_time = woken(1).is_none();
        drop(dropped);
        if is_in_time {
            eventually("the third has an offer", async || woken(2).is_some()).await;
            let taken = woken(2).unwrap() - woken(1).unwrap();
            assert!(taken >= TURN, "the second had {taken:?}, not {TURN:?}");
        }
        drop((second, third));
        eventually("no node is left", async || nodes(&server) == 0).await;
    }
}

/// The acts of a waker that enters the lock again.
struct Reenters {
    mutex: InterProcessMutex,
    /// Dropped by the first act.
    drops: Mutex<Vec<Wait>>,
    acts: Arc<AtomicUsize>,
    runtime: tokio::runtime::Handle,
}

impl Reenters {
    fn act(&self) {
        let _entered = self.runtime.enter();
        let mut cx = Context::from_waker(Waker::noop());
        assert!(!matches!(std::pin::pin!(self.mutex.try_acquire()).poll(&mut cx), Poll::Ready(Err(_))));
        let drops = std::mem::take(&mut *self.drops.lock());
        drop(drops);
        let mut new = wait_for(&self.mutex);
        if let Poll::Ready(guard) = new.as_mut().poll(&mut cx) {
            drop(guard.unwrap());
        }
        self.acts.fetch_add(1, Ordering::SeqCst);
    }
}

impl Wake for Reenters {
    fn wake(self: Arc<Self>) {
        self.act();
    }
}

impl Drop for Reenters {
    fn drop(&mut self) {
        self.act();
    }
}

/// Runs on a thread of its own: a deadlock ends the process.
fn without_deadlock(work: impl FnOnce() + Send + 'static) {
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        work();
        done.send(()).unwrap();
    });
    // A timer may not fire: the threads of the runtime may be blocked too.
    match tokio::task::block_in_place(|| is_done.recv_timeout(PATIENCE)) {
        Ok(()) => {}
        Err(RecvTimeoutError::Disconnected) => panic!("the thread has panicked"),
        Err(RecvTimeoutError::Timeout) => {
            // A panic would wait for that lock too.
            // The test harness captures the output of `eprintln!`.
            std::io::stderr().write_all(b"deadlock: a waker has entered the lock again\n").unwrap();
            std::process::abort()
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wakers_that_enter_the_lock_again_do_not_block_it() {
    let server = server();
    let client = client(&server).await;
    for linger in [Duration::ZERO, Duration::MAX] {
        let path = format!("{LOCK}-{}", linger.is_zero());
        let mutex = lingering(&client, &path, linger);
        let acts = Arc::new(AtomicUsize::new(0));
        let guard = held_alone(&mutex).await;
        let reenters = || {
            let (mutex, acts, drops) = (mutex.clone(), Arc::clone(&acts), Mutex::default());
            Arc::new(Reenters { mutex, drops, acts, runtime: tokio::runtime::Handle::current() })
        };
        let mut waits = [wait_for(&mutex), wait_for(&mutex), wait_for(&mutex)];
        let (wakers, replacing) = ([reenters(), reenters(), reenters()], reenters());
        let runtime = tokio::runtime::Handle::current();
        without_deadlock(move || {
            let _entered = runtime.enter();
            let polls = |wait: &mut Wait, waker: &Arc<Reenters>| {
                let waker = Waker::from(Arc::clone(waker));
                assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            };
            waits.iter_mut().zip(&wakers).for_each(|(wait, waker)| polls(wait, waker));
            // These come after the others.
            for waker in wakers.iter().chain([&replacing]) {
                let mut later = [wait_for(&waker.mutex), wait_for(&waker.mutex)];
                for wait in &mut later {
                    assert!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
                }
                waker.drops.lock().extend(later);
            }
            drop(wakers);
            // The first waker is dropped in the poll, the second with its wait.
            let [mut first, second, mut third] = waits;
            polls(&mut first, &replacing);
            drop(replacing);
            drop(second);
            // The first is woken in the release.
            drop(guard);
            let mut cx = Context::from_waker(Waker::noop());
            let Poll::Ready(granted) = first.as_mut().poll(&mut cx) else { panic!("it was offered") };
            drop(granted.unwrap());
            let Poll::Ready(granted) = third.as_mut().poll(&mut cx) else { panic!("it was offered") };
            drop(granted.unwrap());
        });
        assert!(acts.load(Ordering::SeqCst) >= 5, "{acts:?}");
        let guard = in_time(mutex.acquire()).await.unwrap();
        guard.verify().await.unwrap();
        is_released(guard).await;
    }
    in_time(client.close()).await;
    for path in [format!("{LOCK}-true"), format!("{LOCK}-false")] {
        eventually("no node is left", async || server.children(&path).is_none_or(|nodes| nodes.is_empty())).await;
    }
}

/// A wait that its wake polls at once, as an executor without a queue does.
struct Inline {
    wait: Mutex<Option<Wait>>,
    me: Weak<Self>,
    granted: Arc<AtomicUsize>,
}

impl Wake for Inline {
    fn wake(self: Arc<Self>) {
        // Taken out: the poll may wake it again.
        let Some(mut wait) = self.wait.lock().take() else { return };
        let waker = self.me.upgrade().map(Waker::from).unwrap();
        match wait.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(guard) => {
                self.granted.fetch_add(1, Ordering::SeqCst);
                drop(guard.unwrap());
            }
            Poll::Pending => *self.wait.lock() = Some(wait),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_that_are_polled_in_their_wakes_pass_the_node_on() {
    const WAITS: usize = 30;
    let server = server();
    let client = client(&server).await;
    let mutex = mutex(&client, LOCK);
    let guard = held_alone(&mutex).await;
    let granted = Arc::new(AtomicUsize::new(0));
    let waits: Vec<_> = (0..WAITS)
        .map(|_| {
            let (wait, granted) = (Mutex::new(Some(wait_for(&mutex))), Arc::clone(&granted));
            Arc::new_cyclic(|me| Inline { wait, me: Weak::clone(me), granted })
        })
        .collect();
    let (runtime, count) = (tokio::runtime::Handle::current(), Arc::clone(&granted));
    without_deadlock(move || {
        let _entered = runtime.enter();
        waits.iter().for_each(|wait| Arc::clone(wait).wake());
        assert_eq!(count.load(Ordering::SeqCst), 0);
        drop(guard);
        assert_eq!(count.load(Ordering::SeqCst), WAITS, "each is granted in the wake of the one before");
        drop(waits);
    });
    eventually("no node is left", async || nodes(&server) == 0).await;
    is_released(in_time(mutex.acquire()).await.unwrap()).await;
}

/// One task of an owner releases the write lock, and another one acquires the read lock as the same owner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_lock_that_is_passed_on_is_not_downgraded() {
    let server = server();
    let client = client(&server).await;
    let options = LockOptions::new().one_node_per_client();
    let lock = InterProcessReadWriteLock::with_options(client, LOCK, options).unwrap();
    let (reads, writes) = (lock.read_lock(), lock.write_lock());
    for round in 0..20 {
        let owner = LockOwner::new();
        let writing = in_time(writes.acquire_as(&owner)).await.unwrap();
        let mut next = Box::pin(writes.acquire());
        assert!(poll!(next.as_mut()).is_pending());
        let reading = {
            let (reads, owner) = (reads.clone(), owner.clone());
            tokio::spawn(async move { reads.acquire_as_timeout(&owner, Duration::from_millis(20)).await })
        };
        for _ in 0..round * 5000 {
            std::hint::spin_loop();
        }
        drop(writing);
        let reading = in_time(reading).await.unwrap();
        if let Ok(Some(reading)) = &reading {
            // A writer beside a reader would be granted without a request.
            assert!(poll!(next.as_mut()).is_pending(), "{round}: a writer beside a reader");
            assert!(reading.is_held());
        }
        drop(reading);
        assert!(in_time(next).await.unwrap().release().await.unwrap().is_released());
        eventually("no node is left", async || nodes(&server) == 0).await;
    }
}

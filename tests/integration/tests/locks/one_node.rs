//! Tasks of one client that share a node.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use curator_framework::{CuratorFramework, RetryNTimes};
use curator_integration::env::{children, connected, eventually, in_time};
use curator_integration::in_process::{client, options as options_of, server};
use curator_integration::kinds::{Polled, poll_and_drop};
use curator_integration::on_every_server;
use curator_recipes::{
    FencingToken, InterProcessMutex, InterProcessReadWriteLock, LockOptions, LockOwner, LossReason, MutexGuard,
    MutexOptions, Release, RevokeOutcome, Revoker,
};
use curator_test::TestingServer;
use curator_test::wire::OpCode;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

const LOCK: &str = "/parent/lock";

fn options() -> MutexOptions {
    MutexOptions::new().one_node_per_client()
}

fn mutex_at(client: &CuratorFramework, path: &str) -> InterProcessMutex {
    InterProcessMutex::with_options(client.clone(), path, options()).unwrap()
}

fn mutex(client: &CuratorFramework) -> InterProcessMutex {
    mutex_at(client, LOCK)
}

pub(crate) fn acquiring(mutex: &InterProcessMutex) -> JoinHandle<MutexGuard> {
    let mutex = mutex.clone();
    tokio::spawn(async move { in_time(mutex.acquire()).await.unwrap() })
}

fn nodes(server: &TestingServer) -> usize {
    server.children(LOCK).map_or(0, |nodes| nodes.len())
}

/// The requests about the lock, without pings and the like.
fn asked(server: &TestingServer) -> usize {
    let is_about = |path: &str| path.starts_with("/parent");
    server.requests().iter().filter(|request| request.path.as_deref().is_some_and(is_about)).count()
}

/// Sends the number of a waiter and its guard, once it has the lock. Each waiter has come before the next.
pub(crate) async fn waiters(
    mutex: &InterProcessMutex,
    numbers: impl IntoIterator<Item = usize>,
    granted: &mpsc::UnboundedSender<(usize, MutexGuard)>,
) -> Vec<JoinHandle<()>> {
    let mut tasks = Vec::new();
    for number in numbers {
        let (mutex, granted) = (mutex.clone(), granted.clone());
        let (comes, has_come) = tokio::sync::oneshot::channel();
        tasks.push(tokio::spawn(async move {
            let mut acquire = std::pin::pin!(mutex.acquire());
            let first = futures_util::poll!(acquire.as_mut());
            comes.send(()).unwrap();
            let guard = match first {
                std::task::Poll::Ready(guard) => guard,
                std::task::Poll::Pending => acquire.await,
            };
            let _heard = granted.send((number, guard.unwrap()));
        }));
        has_come.await.unwrap();
    }
    tasks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_tasks_take_turns_with_one_node_and_few_requests() {
    const TASKS: usize = 100_000;
    let server = server();
    let client = client(&server).await;
    server.clear_requests();
    let long = client.session().await.unwrap().timeout() / 10;
    let (inside, mut tasks, began) = (Arc::new(AtomicUsize::new(0)), JoinSet::new(), Instant::now());
    for _ in 0..TASKS {
        let (client, inside) = (client.clone(), Arc::clone(&inside));
        tasks.spawn(async move {
            let guard = mutex(&client).acquire().await.unwrap();
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
            tokio::task::yield_now().await;
            assert!(guard.is_held());
            inside.fetch_sub(1, Ordering::SeqCst);
            let token = guard.token();
            assert_eq!(guard.release().await.unwrap(), Release::Released);
            token
        });
    }
    let mut tokens = in_time(tasks.join_all()).await;
    tokens.sort();
    tokens.dedup();
    assert_eq!(tokens.len(), TASKS, "each has a token of its own");
    // A node that is held for long is watched by its parent's listing, which its deletion causes once more.
    let most = if began.elapsed() < long { 10 } else { 12 };
    assert!(asked(&server) <= most, "{:?}", server.requests());
    eventually("no node is left", async || nodes(&server) == 0).await;
}

#[tokio::test]
async fn tasks_of_one_client_are_served_in_their_order_with_growing_tokens() {
    let server = server();
    let client = client(&server).await;
    let mutex = mutex(&client);
    let (granted, mut grants) = mpsc::unbounded_channel();
    let first = mutex.acquire().await.unwrap();
    let _tasks = waiters(&mutex, 0..20, &granted).await;
    assert_eq!(nodes(&server), 1);
    let mut token = first.token();
    assert_eq!(first.release().await.unwrap(), Release::Released);
    for expected in 0..20 {
        let (number, guard) = in_time(grants.recv()).await.unwrap();
        assert_eq!(number, expected);
        assert!(guard.token() > token && guard.token().czxid() == token.czxid());
        token = guard.token();
        // A drop passes it too.
        if number % 2 == 0 { drop(guard) } else { assert!(guard.release().await.unwrap().is_released()) }
    }
    eventually("no node is left", async || nodes(&server) == 0).await;
}

#[tokio::test]
async fn another_client_waits_for_at_most_64_tasks() {
    let server = server();
    let (busy, other) = (client(&server).await, client(&server).await);
    let mutex = mutex(&busy);
    let (granted, mut grants) = mpsc::unbounded_channel();
    let first = mutex.acquire().await.unwrap();
    let _tasks = waiters(&mutex, 0..200, &granted).await;
    let plain = InterProcessMutex::new(other.clone(), LOCK).unwrap();
    let theirs = acquiring(&plain);
    // The batch has seen it when it has a second node, for those that come after it.
    eventually("the others form a batch", async || nodes(&server) == 3).await;
    drop(first);
    let mut served = 0;
    loop {
        tokio::select! {
            Some((number, guard)) = grants.recv() => {
                assert_eq!(number, served);
                served += 1;
                drop(guard);
            }
            () = eventually_finished(&theirs) => break,
        }
    }
    assert_eq!(served, 64);
    let theirs = in_time(theirs).await.unwrap();
    assert!(grants.try_recv().is_err(), "two hold the lock");
    assert!(theirs.release().await.unwrap().is_released());
    for expected in 64..200 {
        assert_eq!(in_time(grants.recv()).await.unwrap().0, expected);
    }
    eventually("no node is left", async || nodes(&server) == 0).await;
}

async fn eventually_finished(task: &JoinHandle<MutexGuard>) {
    while !task.is_finished() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

on_every_server! {
    async fn two_clients_with_many_tasks_exclude_each_other(env) {
        let path = env.path("lock");
        let (inside, mut tasks) = (Arc::new(AtomicUsize::new(0)), JoinSet::new());
        for number in 0..3 {
            let client = env.client().await;
            // Curator's order beside batches.
            let options = if number == 0 { MutexOptions::new() } else { options() };
            for _ in 0..(if number == 0 { 3 } else { 20 }) {
                let mutex = InterProcessMutex::with_options(client.clone(), &path, options.clone()).unwrap();
                let inside = Arc::clone(&inside);
                tasks.spawn(async move {
                    let mut tokens = Vec::new();
                    for _ in 0..5 {
                        let guard = in_time(mutex.acquire()).await.unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                        tokio::task::yield_now().await;
                        inside.fetch_sub(1, Ordering::SeqCst);
                        tokens.push(guard.token());
                        assert!(guard.release().await.unwrap().is_released());
                    }
                    tokens
                });
            }
        }
        let mut tokens: Vec<FencingToken> = tasks.join_all().await.concat();
        tokens.sort();
        tokens.dedup();
        assert_eq!(tokens.len(), 43 * 5, "each grant has a token of its own");
        let client = env.client().await;
        eventually("no node is left", async || children(&client, &path).await.is_empty()).await;
    }

    async fn tasks_behind_a_lost_node_are_served_in_their_order_by_another_one(env) {
        let path = env.path("lock");
        let (busy, observer) = (env.client().await, env.client().await);
        let mutex = mutex_at(&busy, &path);
        let (granted, mut grants) = mpsc::unbounded_channel();
        for kill in [false, true] {
            let first = mutex.acquire().await.unwrap();
            let _tasks = waiters(&mutex, 0..5, &granted).await;
            if kill {
                env.kill_owner_of(&observer, first.node_path()).await;
                assert!(matches!(in_time(first.lost()).await, LossReason::Session(_)));
            } else {
                observer.delete().for_path(first.node_path()).await.unwrap();
                assert_eq!(in_time(first.lost()).await, LossReason::NodeDeleted);
            }
            let mut token = first.token();
            // The guard of the lost node is kept. No task waits for its drop.
            for expected in 0..5 {
                let (number, guard) = in_time(grants.recv()).await.unwrap();
                assert!(number == expected && guard.token() > token);
                token = guard.token();
                assert!(in_time(guard.release()).await.unwrap().is_released());
            }
            assert!(matches!(in_time(first.release()).await.unwrap(), Release::AlreadyLost(_)));
        }
        eventually("no node is left", async || children(&observer, &path).await.is_empty()).await;
    }

    async fn a_request_to_release_the_node_ends_the_batch(env) {
        let path = env.path("lock");
        let (busy, other) = (env.client().await, env.client().await);
        let mutex = InterProcessMutex::with_options(busy.clone(), &path, options().revocable(|_| {})).unwrap();
        let first = mutex.acquire().await.unwrap();
        let (granted, mut grants) = mpsc::unbounded_channel();
        let _tasks = waiters(&mutex, 0..2, &granted).await;
        assert_eq!(Revoker::attempt_revoke(&other, first.node_path()).await.unwrap(), RevokeOutcome::Requested);
        in_time(first.revocation_requested()).await;
        assert!(first.is_held());
        let node = first.node_path().to_owned();
        assert!(first.release().await.unwrap().is_released());
        let (_, second) = in_time(grants.recv()).await.unwrap();
        assert_ne!(second.node_path(), node, "a node that is to be released is passed on");
        let node = second.node_path().to_owned();
        drop(second);
        assert_eq!(in_time(grants.recv()).await.unwrap().1.node_path(), node);
    }

    async fn downgrade_lets_no_other_writer_of_the_client_in(env) {
        let client = env.client().await;
        let options = LockOptions::new().one_node_per_client();
        let lock = InterProcessReadWriteLock::with_options(client, env.path("lock"), options).unwrap();
        let writing = lock.write_lock().acquire().await.unwrap();
        let write = lock.write_lock();
        let mut waits = tokio::spawn(async move { in_time(write.acquire()).await.unwrap() });
        eventually("another writer waits", async || lock.write_lock().try_acquire().await.unwrap().is_none()).await;
        let reading = writing.downgrade().await.unwrap();
        eventually("the writer's node waits", async || {
            let nodes = lock.write_lock().participant_nodes().await.unwrap();
            nodes.len() == 1 && nodes[0] != writing.node_path()
        })
        .await;
        // Another reader is behind the writer that waits.
        assert!(lock.read_lock().acquire_timeout(Duration::from_millis(200)).await.unwrap().is_none());
        assert!(!waits.is_finished(), "a writer has the lock beside a reader");
        assert!(reading.release().await.unwrap().is_released());
        assert!((&mut waits).await.unwrap().release().await.unwrap().is_released());
    }
}

#[tokio::test]
async fn cancelled_waits_leave_no_node_and_stop_nobody() {
    let server = server();
    let client = client(&server).await;
    let mutex = mutex(&client);
    for polls in 0..12 {
        let Polled::Dropped = poll_and_drop(mutex.acquire(), polls).await else { break };
        eventually("no node is left", async || nodes(&server) == 0).await;
    }
    let first = mutex.acquire().await.unwrap();
    let (granted, mut grants) = mpsc::unbounded_channel();
    let tasks = waiters(&mutex, 0..9, &granted).await;
    for task in tasks.iter().step_by(2) {
        task.abort();
    }
    drop(first);
    for expected in [1, 3, 5, 7] {
        assert_eq!(in_time(grants.recv()).await.unwrap().0, expected);
    }
    eventually("no node is left", async || nodes(&server) == 0).await;
}

#[tokio::test]
async fn an_offer_that_is_dropped_or_not_taken_goes_to_the_next() {
    let server = server();
    let client = client(&server).await;
    let mutex = mutex(&client);
    let first = mutex.acquire().await.unwrap();
    // Neither is polled again.
    let (mut dropped, mut stuck) = (Box::pin(mutex.acquire()), Box::pin(mutex.acquire()));
    assert!(futures_util::poll!(dropped.as_mut()).is_pending() && futures_util::poll!(stuck.as_mut()).is_pending());
    let next = acquiring(&mutex);
    tokio::task::yield_now().await;
    assert!(first.release().await.unwrap().is_released());
    drop(dropped);
    let next = in_time(next).await.unwrap();
    assert!(futures_util::poll!(stuck.as_mut()).is_pending(), "two have the lock");
    assert!(next.release().await.unwrap().is_released());
    let stuck = in_time(stuck).await.unwrap();
    assert_eq!(stuck.node_path(), next.node_path());
}

#[tokio::test]
async fn a_try_is_answered_from_what_the_process_knows() {
    let server = server();
    let client = client(&server).await;
    let mutex = mutex(&client);
    let guard = mutex.try_acquire().await.unwrap().expect("it is free");
    server.clear_requests();
    assert!(mutex.try_acquire().await.unwrap().is_none());
    assert!(mutex.acquire_timeout(Duration::from_millis(20)).await.unwrap().is_none());
    // A node of its own would be a create and a delete.
    assert!(asked(&server) <= 2, "{:?}", server.requests());
    let next = acquiring(&mutex);
    tokio::task::yield_now().await;
    assert!(guard.release().await.unwrap().is_released());
    let next = in_time(next).await.unwrap();
    assert_eq!(next.node_path(), guard.node_path(), "the node of a try is passed on");
    assert!(next.release().await.unwrap().is_released());
    assert!(mutex.try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn an_idle_node_serves_the_next_acquire_and_gives_way_to_another_client() {
    let server = server();
    let (idle, other) = (client(&server).await, client(&server).await);
    let lingers = options().linger(Duration::from_secs(3600));
    let mutex = InterProcessMutex::with_options(idle.clone(), LOCK, lingers).unwrap();
    let first = mutex.acquire().await.unwrap();
    assert!(first.release().await.unwrap().is_released());
    let is_listing = |op: OpCode| matches!(op, OpCode::GetChildren | OpCode::GetChildren2);
    let listings = || server.requests().iter().filter(|request| is_listing(request.op)).count();
    eventually("the idle node is watched", async || listings() == 3).await;
    server.clear_requests();
    let next = in_time(mutex.acquire()).await.unwrap();
    assert_eq!((next.node_path(), next.token().pass()), (first.node_path(), 1));
    assert!(next.release().await.unwrap().is_released());
    let tried = in_time(mutex.try_acquire()).await.unwrap().expect("an idle node is free for its client");
    assert_eq!((tried.node_path(), tried.token().pass()), (first.node_path(), 2));
    drop(tried);
    assert_eq!(asked(&server), 0, "{:?}", server.requests());
    let theirs = InterProcessMutex::new(other, LOCK).unwrap();
    assert!(in_time(theirs.acquire()).await.unwrap().release().await.unwrap().is_released());
    eventually("no node is left", async || nodes(&server) == 0).await;
}

#[tokio::test]
async fn a_node_that_has_just_become_idle_serves_a_try() {
    let server = server();
    let client = client(&server).await;
    let mutex = InterProcessMutex::with_options(client, LOCK, options().linger(Duration::from_secs(3600))).unwrap();
    let first = mutex.acquire().await.unwrap();
    assert!(first.release().await.unwrap().is_released());
    for pass in 1..20 {
        let tried = mutex.try_acquire().await.unwrap().expect("only its client has it");
        assert_eq!((tried.node_path(), tried.token().pass()), (first.node_path(), pass));
    }
}

#[tokio::test]
async fn an_idle_node_does_not_keep_its_client() {
    let server = server();
    let client = client(&server).await;
    let mutex = InterProcessMutex::with_options(client.clone(), LOCK, options().linger(Duration::MAX)).unwrap();
    assert!(mutex.acquire().await.unwrap().release().await.unwrap().is_released());
    assert_eq!(nodes(&server), 1);
    drop((mutex, client));
    eventually("the session has ended", async || nodes(&server) == 0).await;
}

#[tokio::test]
async fn an_idle_node_of_a_session_that_is_over_serves_no_try() {
    let server = server();
    let brief = options_of(&server).session_timeout(Duration::from_secs(2));
    let client = connected(brief).await;
    let mutex = InterProcessMutex::with_options(client, LOCK, options().linger(Duration::MAX)).unwrap();
    assert!(mutex.acquire().await.unwrap().release().await.unwrap().is_released());
    // The process is frozen: neither the client's tasks nor the batch's run.
    std::thread::sleep(Duration::from_secs(3));
    let tried = in_time(mutex.try_acquire()).await;
    assert!(!tried.is_ok_and(|guard| guard.is_some_and(|guard| !guard.is_held())), "a grant of a lost node");
}

#[tokio::test]
async fn a_loop_over_an_idle_node_lets_other_tasks_run() {
    let server = server();
    let client = client(&server).await;
    let mutex = InterProcessMutex::with_options(client, LOCK, options().linger(Duration::MAX)).unwrap();
    for tries in [false, true] {
        drop(mutex.acquire().await.unwrap());
        let others = tokio::spawn(async {});
        let mut rounds = 0;
        while !others.is_finished() {
            let guard = if tries { mutex.try_acquire().await.unwrap() } else { Some(mutex.acquire().await.unwrap()) };
            assert!(guard.is_some());
            rounds += 1;
            assert!(rounds < 100_000, "no other task runs");
        }
    }
}

#[tokio::test]
async fn objects_of_two_namespaces_have_a_batch_each() {
    let server = server();
    let root = client(&server).await;
    let app = root.using_namespace("parent").unwrap();
    let ours = mutex(&root);
    let theirs = mutex_at(&app, "/lock");
    assert!(ours.acquire().await.unwrap().release().await.unwrap().is_released());
    let guard = in_time(theirs.acquire()).await.unwrap();
    guard.transaction().create("/made", "").commit().await.unwrap();
    assert!(server.exists("/parent/made") && !server.exists("/made"));
}

#[tokio::test]
async fn a_transaction_without_a_reply_ends_the_batch() {
    let server = server();
    let client = client(&server).await;
    let mutex = mutex(&client);
    for is_dropped in [false, true] {
        let guard = mutex.acquire().await.unwrap();
        let next = acquiring(&mutex);
        tokio::task::yield_now().await;
        let commit = guard.transaction().create(format!("/made-{is_dropped}"), "").commit();
        if is_dropped {
            let Polled::Dropped = poll_and_drop(commit, 1).await else { panic!("it takes a round trip") };
        } else {
            commit.await.unwrap();
        }
        assert!(guard.release().await.unwrap().is_released());
        let next = in_time(next).await.unwrap();
        assert_eq!(next.node_path() != guard.node_path(), is_dropped);
    }
}

#[tokio::test]
async fn linger_needs_one_node() {
    let client = client(&server()).await;
    let options = MutexOptions::new().linger(Duration::from_secs(1));
    let error = InterProcessMutex::with_options(client, LOCK, options).map(drop).unwrap_err().to_string();
    assert!(error.contains("linger") && error.contains("one_node_per_client"), "{error}");
}

#[tokio::test]
async fn an_idle_node_ends_after_its_time() {
    let server = server();
    let client = client(&server).await;
    let lingers = options().linger(Duration::from_millis(50));
    let mutex = InterProcessMutex::with_options(client, LOCK, lingers).unwrap();
    let guard = mutex.acquire().await.unwrap();
    assert!(guard.release().await.unwrap().is_released());
    assert_eq!(nodes(&server), 1);
    eventually("no node is left", async || nodes(&server) == 0).await;
}

#[tokio::test]
async fn owners_share_their_hold_and_others_get_the_node_after_the_last_guard() {
    let server = server();
    let client = client(&server).await;
    let mutex = mutex(&client);
    let owner = LockOwner::new();
    let outer = mutex.acquire_as(&owner).await.unwrap();
    let inner = mutex.acquire_as(&owner).await.unwrap();
    assert_eq!(inner.token(), outer.token());
    let next = acquiring(&mutex);
    tokio::task::yield_now().await;
    assert!(outer.release().await.unwrap().is_released());
    assert!(mutex.try_acquire().await.unwrap().is_none());
    assert!(inner.release().await.unwrap().is_released());
    let next = in_time(next).await.unwrap();
    assert!(next.node_path() == outer.node_path() && next.token() > outer.token());
    assert!(next.is_held() && !outer.is_held());
}

#[tokio::test]
async fn the_end_of_the_client_answers_all_who_wait() {
    let server = server();
    let client = client(&server).await;
    let mutex = mutex(&client);
    let guard = mutex.acquire().await.unwrap();
    let wait = |_| {
        let mutex = mutex.clone();
        tokio::spawn(async move { mutex.acquire().await })
    };
    let waits: Vec<_> = (0..5).map(wait).collect();
    tokio::task::yield_now().await;
    in_time(client.close()).await;
    for wait in waits {
        let error = in_time(wait).await.unwrap().unwrap_err().to_string();
        assert!(error.contains("closed"), "{error}");
    }
    assert!(!guard.is_held());
    let late = in_time(mutex.acquire()).await.unwrap_err().to_string();
    assert!(late.contains("closed"), "{late}");
}

#[tokio::test]
async fn a_wait_without_a_connection_ends_as_the_policy_says() {
    let server = server();
    let brief = options_of(&server).connection_timeout(Duration::from_millis(200));
    let client = connected(brief.retry_policy(RetryNTimes::new(1, Duration::from_millis(10)))).await;
    server.stop();
    eventually("the connection is lost", async || !client.is_connected()).await;
    let mutex = mutex(&client);
    let waits: Vec<_> = (0..3)
        .map(|_| {
            let mutex = mutex.clone();
            tokio::spawn(async move { mutex.acquire().await })
        })
        .collect();
    for wait in waits {
        in_time(wait).await.unwrap().unwrap_err();
    }
    in_time(mutex.try_acquire()).await.unwrap_err();
}

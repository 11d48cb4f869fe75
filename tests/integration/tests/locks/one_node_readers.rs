//! Readers of one client that share a node.

use std::future::Future as _;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use curator_framework::{CuratorFramework, RetryNTimes};
use curator_integration::env::{connected, eventually, in_time};
use curator_integration::in_process::{client, options as options_of, server};
use curator_integration::kinds::{Polled, poll_and_drop};
use curator_recipes::{
    InterProcessReadWriteLock, LockError, LockOptions, LockOwner, LossReason, ReadGuard, Release, RevokeOutcome,
    Revoker, WriteGuard,
};
use curator_test::TestingServer;
use tokio::task::JoinHandle;

const LOCK: &str = "/parent/lock";

fn lock(client: &CuratorFramework) -> InterProcessReadWriteLock {
    let options = LockOptions::new().one_node_per_client();
    InterProcessReadWriteLock::with_options(client.clone(), LOCK, options).unwrap()
}

fn reading(lock: &InterProcessReadWriteLock) -> JoinHandle<Result<ReadGuard, LockError>> {
    let read = lock.read_lock();
    tokio::spawn(async move { in_time(read.acquire()).await })
}

fn nodes(server: &TestingServer) -> usize {
    server.children(LOCK).map_or(0, |nodes| nodes.len())
}

/// The requests about the lock, without pings and the like.
fn asked(server: &TestingServer) -> usize {
    let is_about = |path: &str| path.starts_with("/parent");
    server.requests().iter().filter(|request| request.path.as_deref().is_some_and(is_about)).count()
}

/// Holds the write lock with another client while readers come, which then have a node each or together.
async fn write_ahead_of_readers(
    server: &TestingServer,
    lock: &InterProcessReadWriteLock,
    readers: usize,
) -> (WriteGuard, Vec<JoinHandle<Result<ReadGuard, LockError>>>) {
    let writer = self::lock(&client(server).await);
    let writing = writer.write_lock().acquire().await.unwrap();
    let waits = (0..readers).map(|_| reading(lock)).collect();
    eventually("a reader waits", async || nodes(server) == 2).await;
    (writing, waits)
}

async fn granted(waits: Vec<JoinHandle<Result<ReadGuard, LockError>>>) -> Vec<ReadGuard> {
    let mut guards = Vec::new();
    for wait in waits {
        guards.push(wait.await.unwrap().unwrap());
    }
    guards
}

#[tokio::test]
async fn readers_that_wait_share_a_node_until_the_last_one_is_released() {
    let server = server();
    let client = client(&server).await;
    let lock = lock(&client);
    server.clear_requests();
    let (writing, waits) = write_ahead_of_readers(&server, &lock, 1000).await;
    writing.release().await.unwrap().held().unwrap();
    let guards = granted(waits).await;
    assert_eq!(nodes(&server), 1);
    assert!(guards.iter().all(|guard| guard.is_held() && guard.token() == guards[0].token()));
    assert!(asked(&server) <= 20, "{:?}", server.requests());
    server.clear_requests();
    for guard in &guards[1..] {
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        assert!(!guard.is_held());
    }
    assert_eq!((asked(&server), nodes(&server)), (0, 1));
    assert!(guards[0].is_held() && lock.read_lock().is_acquired_in_this_process());
    assert_eq!(guards[0].release().await.unwrap(), Release::Released);
    assert_eq!((asked(&server), nodes(&server)), (1, 0));
    assert_eq!(guards[1].release().await.unwrap(), Release::Released, "as before");
    assert!(!lock.read_lock().is_acquired_in_this_process());
}

#[tokio::test]
async fn a_reader_that_comes_after_the_grant_waits_behind_a_writer() {
    let server = server();
    let lock = lock(&client(&server).await);
    let (writing, waits) = write_ahead_of_readers(&server, &lock, 3).await;
    drop(writing);
    let guards = granted(waits).await;
    let other = self::lock(&client(&server).await);
    let next = tokio::spawn(async move { in_time(other.write_lock().acquire()).await.unwrap() });
    eventually("a writer waits", async || nodes(&server) == 2).await;
    let late = [reading(&lock), reading(&lock)];
    eventually("the late readers wait", async || nodes(&server) == 3).await;
    drop(guards);
    let next = next.await.unwrap();
    assert!(late.iter().all(|late| !late.is_finished()), "readers beside a writer");
    drop(next);
    let late = granted(late.into()).await;
    assert_eq!(late[0].node_path(), late[1].node_path());
}

#[tokio::test]
async fn readers_that_give_up_leave_the_node_to_the_others() {
    let server = server();
    let lock = lock(&client(&server).await);
    let (writing, mut waits) = write_ahead_of_readers(&server, &lock, 8).await;
    // The first of them has created the node.
    for wait in waits.drain(..7) {
        wait.abort();
    }
    let brief = in_time(lock.read_lock().acquire_timeout(Duration::from_millis(20))).await;
    assert!(brief.unwrap().is_none());
    assert_eq!(nodes(&server), 2);
    drop(writing);
    let guards = granted(waits).await;
    assert_eq!(nodes(&server), 1);
    drop(guards);
    eventually("no node is left", async || nodes(&server) == 0).await;
}

#[tokio::test]
async fn readers_that_all_give_up_leave_no_node() {
    let server = server();
    let lock = lock(&client(&server).await);
    let (writing, waits) = write_ahead_of_readers(&server, &lock, 4).await;
    waits.iter().for_each(JoinHandle::abort);
    eventually("the writer is alone", async || nodes(&server) == 1).await;
    drop(writing);
    for polls in 0..12 {
        if let Polled::Ready(guard) = poll_and_drop(lock.read_lock().acquire(), polls).await {
            drop(guard);
        }
        eventually("no node is left", async || nodes(&server) == 0).await;
    }
}

#[tokio::test]
async fn a_reader_that_is_not_polled_keeps_the_node_until_its_drop_for_nobody_else() {
    let server = server();
    let lock = lock(&client(&server).await);
    let read = lock.read_lock();
    let (writing, waits) = write_ahead_of_readers(&server, &lock, 1).await;
    let mut unpolled = Box::pin(read.acquire());
    assert!(matches!(unpolled.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending));
    drop(writing);
    let guards = granted(waits).await;
    assert_eq!(guards[0].release().await.unwrap(), Release::Released);
    assert_eq!(nodes(&server), 1);
    let other = self::lock(&client(&server).await);
    let next = tokio::spawn(async move { in_time(other.write_lock().acquire()).await.unwrap() });
    eventually("a writer waits", async || nodes(&server) == 2).await;
    let late = reading(&lock);
    eventually("a late reader waits behind it", async || nodes(&server) == 3).await;
    drop(unpolled);
    drop(next.await.unwrap());
    drop(granted(vec![late]).await);
    eventually("no node is left", async || nodes(&server) == 0).await;
}

#[tokio::test]
async fn each_reader_is_told_of_the_loss_of_the_node() {
    let server = server();
    let client = client(&server).await;
    let lock = lock(&client);
    let (writing, waits) = write_ahead_of_readers(&server, &lock, 3).await;
    drop(writing);
    let guards = granted(waits).await;
    client.delete().for_path(guards[0].node_path()).await.unwrap();
    for guard in &guards {
        assert_eq!(in_time(guard.lost()).await, LossReason::NodeDeleted);
        assert!(!guard.is_held());
    }
    for guard in &guards {
        assert_eq!(guard.release().await.unwrap(), Release::AlreadyLost(LossReason::NodeDeleted));
    }
    assert!(lock.read_lock().try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn readers_behind_a_deleted_node_go_on_with_another_one() {
    let server = server();
    let client = client(&server).await;
    let lock = lock(&client);
    let (writing, waits) = write_ahead_of_readers(&server, &lock, 3).await;
    let node = server.children(LOCK).unwrap().into_iter().find(|name| name.contains("__READ__")).unwrap();
    client.delete().for_path(&format!("{LOCK}/{node}")).await.unwrap();
    eventually("they have another node", async || {
        server.children(LOCK).unwrap().iter().any(|name| name.contains("__READ__") && *name != node)
    })
    .await;
    drop(writing);
    let guards = granted(waits).await;
    assert_eq!((guards.len(), nodes(&server)), (3, 1));
}

#[tokio::test]
async fn an_owner_does_not_read_on_by_the_share_of_another_one() {
    let server = server();
    let lock = lock(&client(&server).await);
    let writer = self::lock(&client(&server).await);
    let writing = writer.write_lock().acquire().await.unwrap();
    let read = |owner: &LockOwner| {
        let (read, owner) = (lock.read_lock(), owner.clone());
        tokio::spawn(async move { in_time(read.acquire_as(&owner)).await })
    };
    let (ann, bob) = (LockOwner::new(), LockOwner::new());
    let waits = vec![read(&ann), read(&bob)];
    eventually("they wait", async || nodes(&server) == 2).await;
    let next = tokio::spawn(async move { in_time(writer.write_lock().acquire()).await.unwrap() });
    eventually("the next writer waits", async || nodes(&server) == 3).await;
    drop(writing);
    let guards = granted(waits).await;
    assert_eq!(guards[0].node_path(), guards[1].node_path());
    let again = in_time(read(&bob)).await.unwrap().unwrap();
    assert_eq!(again.node_path(), guards[1].node_path(), "bob reads already");
    drop(again);
    guards[0].release().await.unwrap().held().unwrap();
    let ann_again = read(&ann);
    eventually("ann waits behind the writer", async || nodes(&server) == 3).await;
    drop(guards);
    drop(next.await.unwrap());
    drop(in_time(ann_again).await.unwrap().unwrap());
}

#[tokio::test]
async fn a_request_to_release_the_node_reaches_each_reader() {
    let server = server();
    let client = client(&server).await;
    let lock = lock(&client);
    let (writing, waits) = write_ahead_of_readers(&server, &lock, 2).await;
    drop(writing);
    let guards = granted(waits).await;
    let mut asked: Vec<_> = guards.iter().map(|guard| Box::pin(guard.revocation_requested())).collect();
    for asked in &mut asked {
        assert!(futures_util::poll!(asked.as_mut()).is_pending());
    }
    let outcome = Revoker::attempt_revoke(&client, guards[0].node_path()).await.unwrap();
    assert_eq!(outcome, RevokeOutcome::Requested);
    for asked in asked {
        in_time(asked).await;
    }
}

#[tokio::test]
async fn a_write_lock_that_is_downgraded_is_not_shared() {
    let server = server();
    let lock = lock(&client(&server).await);
    let writing = lock.write_lock().acquire().await.unwrap();
    let waits = vec![reading(&lock), reading(&lock)];
    eventually("readers wait", async || nodes(&server) == 2).await;
    let downgraded = in_time(writing.downgrade()).await.unwrap();
    let guards = granted(waits).await;
    assert_eq!(guards[0].node_path(), guards[1].node_path());
    assert_ne!(guards[0].node_path(), downgraded.node_path());
    drop(downgraded);
    assert!(guards.iter().all(ReadGuard::is_held));
}

#[tokio::test]
async fn an_error_ends_the_readers_that_were_there_when_the_attempt_began() {
    let server = server();
    let brief = options_of(&server).connection_timeout(Duration::from_millis(200));
    let client = connected(brief.retry_policy(RetryNTimes::new(1, Duration::from_millis(10)))).await;
    server.stop();
    eventually("the connection is lost", async || !client.is_connected()).await;
    let lock = lock(&client);
    let read = lock.read_lock();
    let mut first = Box::pin(read.acquire());
    assert!(futures_util::poll!(first.as_mut()).is_pending());
    let mut late = Box::pin(read.acquire());
    assert!(futures_util::poll!(late.as_mut()).is_pending());
    in_time(first).await.unwrap_err();
    // Its own attempt has just started.
    assert!(futures_util::poll!(late.as_mut()).is_pending());
    in_time(late).await.unwrap_err();
}

#[tokio::test]
async fn the_end_of_the_client_answers_all_readers() {
    let server = server();
    let client = client(&server).await;
    let lock = lock(&client);
    let (_writing, waits) = write_ahead_of_readers(&server, &lock, 5).await;
    in_time(client.close()).await;
    for wait in waits {
        let error = wait.await.unwrap().unwrap_err().to_string();
        assert!(error.contains("closed"), "{error}");
    }
}

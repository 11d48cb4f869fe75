//! Multi locks and guards.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use curator_recipes::{InterProcessMultiLock, InterProcessMutex, LockOptions, Release};

use crate::{client, eventually, in_time, server};

/// A session ends between the first lock and the second: the whole is not granted on a part that is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_multi_lock_is_not_granted_when_a_part_of_it_is_lost() {
    let server = server();
    let (one, other) = (client(&server).await, client(&server).await);
    let session = one.session().await.unwrap();
    let blocker = in_time(InterProcessMutex::new(other.clone(), "/b").unwrap().acquire()).await.unwrap();
    let both = InterProcessMultiLock::new(one.clone(), ["/a", "/b"]).unwrap();
    let waiter = tokio::spawn(async move { both.acquire().await });
    eventually("it waits for the second", async || server.children("/b").is_some_and(|nodes| nodes.len() == 2)).await;
    let name = server.children("/a").unwrap().pop().unwrap();
    let owner = one.check_exists().for_path(&format!("/a/{name}")).await.unwrap().unwrap().ephemeral_owner;
    assert!(server.kill_session(owner));
    in_time(session.ended()).await;
    // Somebody else has the first one now: the whole waits for it, although the second one is free.
    let thief = in_time(InterProcessMutex::new(other, "/a").unwrap().acquire()).await.unwrap();
    blocker.release().await.unwrap();
    let mut waiter = waiter;
    let early = tokio::time::timeout(Duration::from_millis(300), &mut waiter).await;
    assert!(early.is_err(), "granted while somebody else has a part of it: {early:?}");
    assert!(thief.is_held());
    thief.release().await.unwrap();
    assert!(in_time(waiter).await.unwrap().unwrap().is_held());
}

/// A lock that was lost and is released afterwards was still lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_is_told_also_after_the_release() {
    let server = server();
    let client = client(&server).await;
    let session = client.session().await.unwrap();
    let guard = in_time(InterProcessMutex::new(client.clone(), "/m").unwrap().acquire()).await.unwrap();
    let owner = client.check_exists().for_path(guard.path()).await.unwrap().unwrap().ephemeral_owner;
    server.kill_session(owner);
    in_time(session.ended()).await;
    assert!(matches!(guard.release().await, Ok(Release::AlreadyLost(_))));
    let told = tokio::time::timeout(Duration::from_secs(2), guard.lost()).await;
    assert!(told.is_ok(), "nobody is told of the loss");
}

#[tokio::test]
async fn a_warning_after_for_ever_is_no_panic() {
    let server = server();
    let client = client(&server).await;
    let options = LockOptions::new().warn_after(Duration::MAX);
    let mutex = InterProcessMutex::with_options(client, "/m", options).unwrap();
    let acquired = tokio::spawn(async move { mutex.acquire().await.map(|guard| guard.is_held()) }).await;
    assert!(acquired.is_ok(), "{acquired:?}");
}

/// What is to be done about a lock that is held for long goes with the lock.
#[tokio::test]
async fn a_released_lock_leaves_no_call_behind() {
    let server = server();
    let client = client(&server).await;
    client.create().for_path("/p").await.unwrap();
    let session = client.session().await.unwrap();
    let token = Arc::new(());
    for _ in 0..100 {
        let mut claim = session.owned_node("/p", "node-", curator_framework::CreateMode::EphemeralSequential);
        claim.create(&curator_framework::NodeSpec::new(&[])).await.unwrap();
        // Something shorter lived stands before it in the queue, as it does for every lock that was held.
        claim.watch_node(Duration::from_secs(6));
        let kept = Arc::clone(&token);
        claim.when_held_for(Duration::from_secs(24 * 3600), move || drop(kept));
        assert!(claim.delete().await.unwrap());
    }
    let mut held = session.owned_node("/p", "held-", curator_framework::CreateMode::EphemeralSequential);
    held.create(&curator_framework::NodeSpec::new(&[])).await.unwrap();
    held.when_held_for(Duration::from_secs(3600), || {});
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(Arc::strong_count(&token), 1, "calls that can never be made are kept");
}

/// A runtime that is dropped beneath a long line of requests ends them all, one after the other.
#[test]
fn a_runtime_may_end_beneath_a_long_line() {
    const WAITERS: usize = 10_000;
    let server = server();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    runtime.block_on(async {
        let client = client(&server).await;
        server.freeze();
        for number in 0..WAITERS {
            let (client, asked) = (client.clone(), Arc::clone(&asked));
            tokio::spawn(async move {
                let mutex = InterProcessMutex::new(client, format!("/locks/{number}")).unwrap();
                let mut acquiring = std::pin::pin!(mutex.acquire());
                // Behind its first poll it stands in line.
                let first = futures_util::poll!(&mut acquiring);
                assert!(first.is_pending());
                asked.fetch_add(1, Ordering::SeqCst);
                drop(acquiring.await);
            });
        }
        eventually("all stand in line", async || asked.load(Ordering::SeqCst) == WAITERS).await;
    });
    drop(runtime);
    assert_eq!(Arc::strong_count(&asked), 1);
    server.thaw();
}

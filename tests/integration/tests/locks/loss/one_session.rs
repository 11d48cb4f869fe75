//! A holder and a waiter of one session, and what happens to both of their nodes.

use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{Acl, CuratorFramework, Permission, RetryNTimes};
use curator_integration::env::{builder, connected, eventually};
use curator_recipes::InterProcessMutex;
use curator_test::wire::OpCode;
use curator_test::{ClientId, SimulatedEnsemble, TestingServer};
use tokio::time::timeout;

const CLIENT: ClientId = ClientId(0);
const SESSION: Duration = Duration::from_secs(10);
const LATENCY: Duration = Duration::from_millis(10);
const SEEDS: u64 = 40;

fn simulated<T>(seed: u64, run: impl AsyncFnOnce(SimulatedEnsemble, CuratorFramework) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let ensemble = SimulatedEnsemble::new(seed, LATENCY);
        let options = ensemble.client(CLIENT).session_timeout(SESSION).default_data("");
        let client = options.retry_policy(RetryNTimes::new(1000, LATENCY)).build().unwrap();
        client.start().unwrap();
        client.block_until_connected().await.unwrap();
        run(ensemble, client).await
    })
}

/// The server deletes the nodes of a session in one transaction, and notifies of them in any order.
#[test]
fn waiter_is_not_granted_on_a_node_that_went_with_its_session() {
    for seed in 0..SEEDS {
        simulated(seed, async |ensemble, client| {
            let mutex = InterProcessMutex::new(client.clone(), "/lock").unwrap();
            let holder = mutex.acquire().await.unwrap();
            let waiting = mutex.clone();
            let waiter = tokio::spawn(async move { waiting.acquire().await.unwrap() });
            while client.watchers() < 2 {
                tokio::time::sleep(LATENCY).await;
            }
            ensemble.kill_session(ensemble.owner(holder.node_path()).unwrap());
            let granted = timeout(SESSION * 3, waiter).await.unwrap().unwrap();
            assert!(!holder.is_held(), "seed {seed}");
            let owner = ensemble.owner(granted.node_path());
            assert!(owner.is_some(), "seed {seed}: {} was granted without its node", granted.node_path());
            assert!(granted.release().await.unwrap().is_released());
        });
    }
}

/// A notification reaches the owner of a node before any waiter.
#[test]
fn owner_knows_that_its_node_was_deleted_before_the_waiter_of_its_client_is_granted() {
    for seed in 0..SEEDS {
        simulated(seed, async |ensemble, client| {
            let mutex = InterProcessMutex::new(client.clone(), "/lock").unwrap();
            let holder = mutex.acquire().await.unwrap();
            let waiting = mutex.clone();
            let waiter = tokio::spawn(async move { waiting.acquire().await.unwrap() });
            while client.watchers() < 2 {
                tokio::time::sleep(LATENCY).await;
            }
            ensemble.delete(holder.node_path());
            let granted = timeout(SESSION, waiter).await.unwrap().unwrap();
            assert!(granted.is_held() && !holder.is_held(), "seed {seed}: two guards hold one mutex");
            assert!(granted.release().await.unwrap().is_released());
        });
    }
}

/// A client that joins behind the deletion is granted by a listing, which its own older guard learns from too.
#[test]
fn owner_knows_that_its_node_was_deleted_when_a_listing_of_its_client_lacks_it() {
    for seed in 0..SEEDS {
        simulated(seed, async |ensemble, client| {
            let holder = InterProcessMutex::new(client.clone(), "/lock").unwrap().acquire().await.unwrap();
            ensemble.delete(holder.node_path());
            let granted = InterProcessMutex::new(client, "/lock").unwrap().acquire().await.unwrap();
            assert!(granted.is_held() && !holder.is_held(), "seed {seed}: two guards hold one mutex");
            assert!(granted.release().await.unwrap().is_released());
        });
    }
}

/// The holder's task has started to release and waits for something else: the server's answer reaches no one.
#[test]
fn waiter_does_not_depend_on_a_release_that_is_not_polled() {
    for seed in 0..SEEDS {
        simulated(seed, async |ensemble, client| {
            let mutex = InterProcessMutex::new(client.clone(), "/lock").unwrap();
            let holder = mutex.acquire().await.unwrap();
            let waiting = mutex.clone();
            let waiter = tokio::spawn(async move { waiting.acquire().await.unwrap() });
            while ensemble.watch_count() < 2 {
                tokio::time::sleep(LATENCY).await;
            }
            let mut releasing = std::pin::pin!(holder.release());
            assert!(timeout(Duration::ZERO, &mut releasing).await.is_err(), "seed {seed}: it was only begun");
            let granted = timeout(SESSION / 2, waiter).await.expect("it is granted").unwrap();
            assert!(granted.is_held() && releasing.await.is_ok(), "seed {seed}");
            assert!(granted.release().await.unwrap().is_released());
        });
    }
}

/// A node that cannot be deleted for a while blocks every contender behind it.
#[tokio::test]
async fn node_of_a_dropped_guard_goes_when_its_deletion_is_allowed_again() {
    let server = TestingServer::start().unwrap();
    let client = connected(builder(server.address()).session_timeout(Duration::from_secs(4))).await;
    let (told, errors) = std::sync::mpsc::channel();
    let listener = client.add_error_listener(move |what, error| told.send(format!("{what}: {error}")).unwrap());
    let guard = InterProcessMutex::new(client.clone(), "/lock").unwrap().acquire().await.unwrap();
    let permissions = async |permissions| {
        let acl = [Acl::new(permissions, "world", "anyone")];
        client.set_acl().with_acl(acl).for_path("/lock").await.unwrap();
    };
    permissions(Permission::READ | Permission::CREATE | Permission::ADMIN).await;
    server.clear_requests();
    drop(guard);
    let tried = || server.requests().iter().any(|request| request.op == OpCode::Delete);
    eventually("its deletion is refused", async || tried()).await;
    let mut heard = None;
    eventually("the program is told", async || {
        heard = heard.take().or_else(|| errors.try_recv().ok());
        heard.is_some()
    })
    .await;
    assert!(heard.unwrap().starts_with("a node cannot be deleted: not authorized"));
    assert_eq!(server.children("/lock").map(|children| children.len()), Some(1));
    permissions(Permission::ALL).await;
    eventually("it is deleted", async || server.children("/lock").is_some_and(|children| children.is_empty())).await;
    assert!(client.is_connected(), "the session has not ended for it");
    client.remove_error_listener(listener);
    eventually("the listener is dropped", async || {
        errors.try_recv() == Err(std::sync::mpsc::TryRecvError::Disconnected)
    })
    .await;
}

/// Refused deletes are tried again beside the others, however many they are.
#[tokio::test]
async fn refused_deletes_do_not_hold_up_the_node_of_another_guard() {
    let server = TestingServer::start().unwrap();
    let client = connected(builder(server.address()).session_timeout(Duration::from_secs(60))).await;
    let acquire = async |path: &str| InterProcessMutex::new(client.clone(), path).unwrap().acquire().await.unwrap();
    let mut refused = Vec::new();
    for number in 0..40 {
        let path = format!("/refused-{number}");
        refused.push(acquire(&path).await);
        let acl = [Acl::new(Permission::READ | Permission::CREATE | Permission::ADMIN, "world", "anyone")];
        client.set_acl().with_acl(acl).for_path(&path).await.unwrap();
    }
    let free = acquire("/free").await;
    server.clear_requests();
    drop(refused);
    let tried = || server.requests().iter().filter(|request| request.op == OpCode::Delete).count();
    eventually("the first ones are refused", async || tried() >= 16).await;
    let dropped = std::time::Instant::now();
    drop(free);
    eventually("its node is deleted", async || server.children("/free").is_some_and(|children| children.is_empty()))
        .await;
    assert!(dropped.elapsed() < Duration::from_secs(5), "{:?}", dropped.elapsed());
}

/// Near the end of the sequence numbers a listing and the reads of its nodes are not one state of the server.
#[test]
fn waiter_is_not_granted_when_its_node_goes_while_it_reads_the_queue() {
    let moments = (0..80).map(Duration::from_millis);
    for (seed, moment) in (0..4).flat_map(|seed| moments.clone().map(move |moment| (seed, moment))) {
        simulated(seed, async |ensemble, client| {
            let mutex = InterProcessMutex::new(client, "/lock").unwrap();
            assert!(mutex.acquire().await.unwrap().release().await.unwrap().is_released());
            assert!(ensemble.set_next_sequence("/lock", i32::MAX));
            let holder = mutex.acquire().await.unwrap();
            let waiting = mutex.clone();
            let waiter = tokio::spawn(async move { waiting.acquire().await.unwrap() });
            while ensemble.children("/lock").len() < 2 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            tokio::time::sleep(moment).await;
            for child in ensemble.children("/lock") {
                ensemble.delete(&format!("/lock/{child}"));
            }
            let deleted_at = ensemble.now();
            let granted = timeout(SESSION, waiter).await.unwrap().unwrap();
            let is_there = ensemble.owner(granted.node_path()).is_some();
            // The reply that proves the grant was on its way at most.
            let took = ensemble.now() - deleted_at;
            assert!(is_there || took <= LATENCY, "seed {seed}, {moment:?}: granted {took:?} behind the deletion");
            drop(holder);
        });
    }
}

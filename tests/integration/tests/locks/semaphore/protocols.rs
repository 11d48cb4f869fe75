//! The two protocols at one path, and what the direct one has to bear.

use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{Acl, Permission};
use curator_integration::env::{connected, eventually, in_time};
use curator_integration::in_process::{client, options, server, simulated};
use curator_recipes::{
    InterProcessMutex, InterProcessSemaphoreV2, LockError, RevokeOutcome, Revoker, SemaphoreOptions, SemaphoreProtocol,
};
use curator_test::TestingServer;
use tokio::task::JoinSet;
use tokio::time::Instant;

use curator_test::SimulatedEnsemble;

fn direct(client: curator_framework::CuratorFramework, limit: usize) -> InterProcessSemaphoreV2 {
    InterProcessSemaphoreV2::with_options(
        client,
        "/s",
        limit,
        SemaphoreOptions::new().protocol(SemaphoreProtocol::Direct),
    )
    .unwrap()
}

async fn queue_of(server: &TestingServer, count: usize) -> Vec<String> {
    let listed = || server.children("/s/leases").unwrap_or_default();
    eventually("so many contenders", async || listed().len() == count).await;
    let mut names = listed();
    names.sort_by_key(|name| name.rsplit('-').next().unwrap().to_owned());
    names
}

/// Another client tries to revoke a waiter: the next waiter must not send requests without end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_behind_one_that_was_written_does_not_spin() {
    let server = server();
    let client = client(&server).await;
    let semaphore = direct(client.clone(), 1);
    let held = in_time(semaphore.acquire()).await.unwrap();
    let mut waiters = Vec::new();
    for count in 2..4 {
        let semaphore = semaphore.clone();
        waiters.push(tokio::spawn(async move { semaphore.acquire().await.unwrap() }));
        queue_of(&server, count).await;
    }
    let queue = queue_of(&server, 3).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(
        Revoker::attempt_revoke(&client, &format!("/s/leases/{}", queue[1])).await.unwrap(),
        RevokeOutcome::Requested
    );
    tokio::time::sleep(Duration::from_millis(300)).await;
    server.clear_requests();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let asked = server.requests().len();
    for waiter in &waiters {
        waiter.abort();
    }
    drop(held);
    assert!(asked < 50, "{asked} requests in a second in which nothing happens");
}

/// An access control list without WRITE: the nodes cannot be touched, so that a place could stay free beside a waiter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_that_cannot_be_written_are_refused() {
    let server = server();
    let permissions = Permission::READ | Permission::CREATE | Permission::DELETE;
    let client = connected(options(&server).acl_provider(vec![Acl::new(permissions, "world", "anyone")])).await;
    let refused = in_time(direct(client.clone(), 2).acquire()).await;
    let Err(LockError::InvalidArgument { argument, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(argument, "access control list");
    drop(in_time(InterProcessSemaphoreV2::new(client, "/s", 2).unwrap().acquire()).await.unwrap());
}

/// The list lets another identity write, which only the server can tell: a waiter would wait beside a free lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_that_another_identity_may_write_are_refused() {
    let server = server();
    let others = Permission::READ | Permission::CREATE | Permission::DELETE;
    let acl = vec![
        Acl::new(others, "world", "anyone"),
        Acl::new(Permission::ALL, "digest", "admin:x1nq8J5GOJVPY6zgzhtTtA9izLc="),
    ];
    let client = connected(options(&server).acl_provider(acl.clone())).await;
    let refused = in_time(direct(client.clone(), 2).acquire()).await;
    let Err(LockError::InvalidArgument { argument, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(argument, "access control list");
    eventually("its node is deleted", async || server.children("/s/leases").is_none_or(|leases| leases.is_empty()))
        .await;
    let admin = connected(options(&server).acl_provider(acl).authorization("digest", "admin:admin")).await;
    assert!(in_time(in_time(direct(admin, 2).acquire()).await.unwrap().release()).await.unwrap().is_released());
}

/// A path that was deleted, and that a direct client has created again, is refused to a client that has used it with Curator's
/// protocol before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_that_changed_hands_is_noticed_in_the_same_session() {
    let server = server();
    let one = connected(options(&server).session_timeout(Duration::from_secs(40))).await;
    let other = client(&server).await;
    let curator = InterProcessSemaphoreV2::new(one.clone(), "/s", 1).unwrap();
    assert!(in_time(curator.acquire()).await.unwrap().release().await.unwrap().is_released());
    other.delete().deleting_children_if_needed().for_path("/s").await.unwrap();
    let direct = direct(other, 1);
    let lease = in_time(direct.acquire()).await.unwrap();
    // The notification of the deletion has come before this reply, long before a tenth of the session timeout.
    one.check_exists().for_path("/").await.unwrap();
    eventually("the watch has fired", async || one.watchers() == 0).await;
    let refused = in_time(curator.acquire_timeout(Duration::from_millis(500))).await;
    drop(lease);
    assert!(matches!(refused, Err(LockError::ProtocolMismatch { .. })), "{refused:?}");
}

/// Clients of the direct protocol that come together to a new path: a client that is a moment later finds nodes of the others,
/// and their mark only if it checks again.
#[tokio::test(start_paused = true)]
async fn clients_that_create_a_path_together_agree() {
    const CLIENTS: u32 = 6;
    const LATENCY: Duration = Duration::from_millis(100);
    for seed in 0..30 {
        let ensemble = SimulatedEnsemble::new(seed, LATENCY);
        let mut clients = Vec::new();
        for id in 1..=CLIENTS {
            clients.push(simulated(&ensemble, id).await);
        }
        let mut taking = JoinSet::new();
        for (place, client) in (0..).zip(clients) {
            let direct = direct(client, 2);
            taking.spawn(async move {
                tokio::time::sleep(LATENCY * place / 2).await;
                // Several leases at once, so that there is a queue for the turn to take them.
                direct.acquire_many(2).await.map(|leases| leases.len())
            });
        }
        while let Some(taken) = taking.join_next().await {
            assert!(matches!(taken.unwrap(), Ok(2)), "seed {seed}");
        }
    }
}

/// The mark of the direct protocol goes with the parent that the reaper deletes; its creator must see that.
#[tokio::test(start_paused = true)]
async fn the_mark_of_the_direct_protocol_survives_the_reaper_or_its_loss_is_noticed() {
    let ensemble = SimulatedEnsemble::new(1, Duration::from_millis(1));
    let (one, other) = (simulated(&ensemble, 1).await, simulated(&ensemble, 2).await);
    let direct = direct(one, 1);
    assert!(direct.acquire().await.unwrap().release().await.unwrap().is_released());
    tokio::time::sleep(Duration::from_secs(300)).await;
    let curator = InterProcessSemaphoreV2::new(other, "/s", 1).unwrap();
    let held = curator.acquire().await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let refused = direct.acquire_timeout(Duration::from_secs(5)).await;
    assert!(held.is_held());
    assert!(matches!(refused, Err(LockError::ProtocolMismatch { .. })), "{refused:?}");
}

/// However many turns are being given back: a guard that is dropped in the meantime is deleted as soon as ever.
#[tokio::test(start_paused = true)]
async fn a_guard_that_is_dropped_beside_many_semaphores_is_deleted_at_once() {
    const LATENCY: Duration = Duration::from_millis(10);
    let ensemble = SimulatedEnsemble::new(1, LATENCY);
    let client = simulated(&ensemble, 1).await;
    let mut others = JoinSet::new();
    for task in 0..200 {
        let semaphore = InterProcessSemaphoreV2::new(client.clone(), format!("/semaphores/{task}"), 1).unwrap();
        others.spawn(async move {
            // Not in step with the others.
            tokio::time::sleep(LATENCY * task / 10).await;
            loop {
                assert!(semaphore.acquire().await.unwrap().release().await.unwrap().is_released());
            }
        });
    }
    let mutex = InterProcessMutex::new(client.clone(), "/mutex").unwrap();
    for _ in 0..5 {
        tokio::time::sleep(LATENCY * 27).await;
        drop(mutex.acquire().await.unwrap());
        let dropped = Instant::now();
        assert!(mutex.acquire().await.unwrap().release().await.unwrap().is_released());
        // Its deletion, the next one's create, a watch and the deletion of that, at two ways each.
        let elapsed = dropped.elapsed();
        assert!(elapsed < LATENCY * 12, "{elapsed:?}");
    }
}

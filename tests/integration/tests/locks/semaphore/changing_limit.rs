//! Semaphores with a number of leases that changes while they run.

use std::time::Duration;

use curator_framework::CuratorFramework;
use curator_integration::env::{Env, in_time};
use curator_integration::in_process::simulated;
use curator_integration::on_every_server;
use curator_recipes::{InterProcessSemaphoreV2, Lease, LockError, SemaphoreOptions, SemaphoreProtocol, SharedCount};
use curator_test::SimulatedEnsemble;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The time for which a contender that must not be granted is watched.
const A_WHILE: Duration = Duration::from_millis(200);

async fn count(env: &Env, client: &CuratorFramework, name: &str, seed: i32) -> SharedCount {
    let count = SharedCount::new(client.clone(), env.path(name), seed).unwrap();
    count.start().unwrap();
    in_time(count.initialized()).await.unwrap();
    count
}

fn semaphore(env: &Env, client: &CuratorFramework, count: &SharedCount) -> InterProcessSemaphoreV2 {
    let path = env.path("semaphore");
    InterProcessSemaphoreV2::new(client.clone(), path, count).unwrap()
}

/// Waits until the semaphore knows of the new limit.
async fn knows(semaphore: &InterProcessSemaphoreV2, limit: usize) {
    in_time(async {
        while semaphore.max_leases() != limit {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

on_every_server! {
    /// Curator's `TestInterProcessSemaphore.testThreadedLeaseIncrease`.
    async fn raised_limit_wakes_waiters(env) {
        let (one, other) = (env.client().await, env.client().await);
        let ours = count(&env, &one, "count", 1).await;
        let theirs = count(&env, &other, "count", 7).await;
        assert_eq!(theirs.count().unwrap(), 1, "the seed of the first counts");
        let (first, second) = (semaphore(&env, &one, &ours), semaphore(&env, &other, &theirs));
        let held = in_time(first.acquire()).await.unwrap();
        let waiting = tokio::spawn(async move { second.acquire().await.unwrap() });
        let mut waiting = waiting;
        assert!(timeout(A_WHILE, &mut waiting).await.is_err(), "the limit is one");
        in_time(ours.set_count(2)).await.unwrap();
        let second = in_time(waiting).await.unwrap();
        assert!(held.is_held() && second.is_held());
    }

    async fn a_semaphore_keeps_the_count_that_its_limit_follows(env) {
        let client = env.client().await;
        let limit = count(&env, &client, "count", 1).await;
        let semaphore = semaphore(&env, &client, &limit);
        drop(limit);
        let other = count(&env, &env.client().await, "count", 1).await;
        in_time(other.set_count(2)).await.unwrap();
        knows(&semaphore, 2).await;
    }

    async fn a_lowered_limit_takes_nothing_away_and_counts_for_the_next(env) {
        let client = env.client().await;
        let limit = count(&env, &client, "count", 4).await;
        let semaphore = semaphore(&env, &client, &limit);
        let mut held: Vec<Lease> = in_time(semaphore.acquire_many(4)).await.unwrap().into_iter().collect();
        in_time(limit.set_count(2)).await.unwrap();
        knows(&semaphore, 2).await;
        assert!(held.iter().all(|lease| lease.is_held()));
        let later = semaphore.clone();
        let mut waiting = tokio::spawn(async move { later.acquire().await.unwrap() });
        // Also those that are not next to the waiter may go first.
        for _ in 0..2 {
            assert!(in_time(held.remove(0).release()).await.unwrap().is_released());
            assert!(timeout(A_WHILE, &mut waiting).await.is_err(), "two are left");
        }
        assert!(in_time(held.remove(0).release()).await.unwrap().is_released());
        let last = in_time(waiting).await.unwrap();
        assert!(last.is_held() && held[0].is_held());
    }

    /// With holders of very different length and a limit that goes up and down no place stays free beside a waiter.
    async fn no_place_stays_free_while_the_limit_changes(env) {
        let client = env.client().await;
        let limit = count(&env, &client, "count", 3).await;
        let semaphore = semaphore(&env, &client, &limit);
        let long = in_time(semaphore.acquire()).await.unwrap();
        let mut jobs = JoinSet::new();
        for job in 0..24_u64 {
            let semaphore = semaphore.clone();
            jobs.spawn(async move {
                let lease = semaphore.acquire().await.unwrap();
                tokio::time::sleep(Duration::from_millis(job % 5)).await;
                assert!(lease.release().await.unwrap().is_released());
            });
        }
        for leases in [2, 4, 2, 3] {
            in_time(limit.set_count(leases)).await.unwrap();
            in_time(jobs.join_next()).await.unwrap().unwrap();
        }
        while let Some(done) = in_time(jobs.join_next()).await {
            done.unwrap();
        }
        assert!(long.is_held());
    }

    async fn more_leases_than_a_lowered_limit_are_refused_while_they_are_waited_for(env) {
        let client = env.client().await;
        let limit = count(&env, &client, "count", 3).await;
        let semaphore = semaphore(&env, &client, &limit);
        let held = in_time(semaphore.acquire()).await.unwrap();
        let later = semaphore.clone();
        let mut waiting = tokio::spawn(async move { later.acquire_many(3).await });
        assert!(timeout(A_WHILE, &mut waiting).await.is_err());
        in_time(limit.set_count(2)).await.unwrap();
        let refused = in_time(waiting).await.unwrap();
        assert!(matches!(refused, Err(LockError::InvalidArgument { .. })), "{refused:?}");
        // What it had taken is given back.
        assert!(in_time(semaphore.acquire()).await.unwrap().release().await.unwrap().is_released());
        in_time(limit.set_count(0)).await.unwrap();
        knows(&semaphore, 0).await;
        assert!(in_time(semaphore.try_acquire()).await.unwrap().is_none());
        assert!(held.is_held());
    }

    /// Two clients learn of a change one after the other, and the direct protocol has nothing between them that orders grants.
    async fn the_direct_protocol_refuses_a_limit_that_changes(env) {
        let client = env.client().await;
        let limit = count(&env, &client, "count", 3).await;
        let (path, protocol) = (env.path("semaphore"), SemaphoreProtocol::Direct);
        let refused = InterProcessSemaphoreV2::with_options(client, path, &limit, SemaphoreOptions::new().protocol(protocol));
        let error = refused.unwrap_err();
        assert!(matches!(error, LockError::InvalidArgument { .. }), "{error:?}");
        assert!(error.to_string().contains("the direct protocol cannot follow a limit that changes"), "{error}");
    }
}

/// The process that sets the limit does not wait for the notification.
#[tokio::test(start_paused = true)]
async fn a_limit_that_this_process_sets_counts_at_once() {
    let ensemble = SimulatedEnsemble::new(1, Duration::from_millis(5));
    let client = simulated(&ensemble, 1).await;
    let limit = SharedCount::new(client.clone(), "/count", 1).unwrap();
    limit.start().unwrap();
    limit.initialized().await.unwrap();
    let semaphore = InterProcessSemaphoreV2::new(client, "/s", &limit).unwrap();
    let mut held = Vec::new();
    for (leases, is_free) in [(2, true), (1, false), (2, true), (2, false), (1, false), (4, true), (4, true)] {
        let before = limit.versioned_value().unwrap();
        assert!(limit.try_set_count(&before, leases).await.unwrap());
        assert_eq!(semaphore.max_leases(), usize::try_from(leases).unwrap());
        let tried = semaphore.try_acquire().await.unwrap();
        assert_eq!(tried.is_some(), is_free, "{} of {leases} leases are held", held.len());
        held.extend(tried);
    }
    limit.set_count(7).await.unwrap();
    assert_eq!(semaphore.max_leases(), 7);
}

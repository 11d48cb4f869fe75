//! The end of the sequence numbers, 2^31 − 1: there the same number is given out again and again, and the order is that
//! of creation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use curator_framework::CuratorFramework;
use curator_integration::env::{Env, builder, children, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{InterProcessMutex, InterProcessSemaphoreV2, Release};
use parking_lot::Mutex;
use tokio::task::JoinSet;

const WAITERS: usize = 8;

/// A client with a session that outlives the restarts that the numbers may take.
async fn patient(env: &Env) -> CuratorFramework {
    connected(builder(env.address()).session_timeout(Duration::from_secs(40))).await
}

/// How many nodes have a number close to the end or at it, and how many the last one of all.
async fn at_the_end(client: &CuratorFramework, parent: &str) -> (usize, usize) {
    let names = children(client, parent).await;
    let ends_with = |end: &str| names.iter().filter(|name| name.contains(end)).count();
    (ends_with("-21474836"), ends_with("-2147483647"))
}

on_every_server! {
    async fn a_mutex_keeps_order_and_exclusion_there(env) {
        let env = env.alone();
        let path = env.path("lock");
        let clients = [patient(&env).await, patient(&env).await];
        let mutexes = clients.each_ref().map(|client| InterProcessMutex::new(client.clone(), &path).unwrap());
        assert!(in_time(mutexes[0].acquire()).await.unwrap().release().await.unwrap().is_released());
        env.set_next_sequence(&path, i32::MAX - 3).await;
        let held = in_time(mutexes[0].acquire()).await.unwrap();
        let inside = Arc::new(AtomicUsize::new(1));
        let served = Arc::new(Mutex::new(vec![(0, held.token())]));
        let mut waiters = JoinSet::new();
        for number in 1..=WAITERS {
            let (mutex, served, inside) = (mutexes[number % 2].clone(), Arc::clone(&served), Arc::clone(&inside));
            waiters.spawn(async move {
                let guard = mutex.acquire().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders at once");
                served.lock().push((number, guard.token()));
                inside.fetch_sub(1, Ordering::SeqCst);
                assert_eq!(guard.release().await.unwrap(), Release::Released);
            });
            // The order in which they came is known.
            env.wait_for_children(&clients[0], &path, number + 1).await;
        }
        assert_eq!(at_the_end(&clients[0], &path).await, (WAITERS + 1, WAITERS - 2));
        assert!(in_time(mutexes[1].try_acquire()).await.unwrap().is_none());
        inside.fetch_sub(1, Ordering::SeqCst);
        assert!(held.release().await.unwrap().is_released());
        while let Some(waiter) = in_time(waiters.join_next()).await {
            waiter.unwrap();
        }
        let served = served.lock().clone();
        assert!(served.iter().map(|(number, _)| *number).eq(0..=WAITERS), "{served:?}");
        assert!(served.is_sorted_by_key(|(_, token)| *token), "{served:?}");
        env.wait_for_children(&clients[0], &path, 0).await;
        let again = in_time(mutexes[1].acquire()).await.unwrap();
        assert!(again.is_held() && again.token() > served[WAITERS].1);
    }

    async fn a_semaphore_keeps_order_and_limit_there(env) {
        const LIMIT: usize = 2;
        let env = env.alone();
        let path = env.path("semaphore");
        let [locks, leases] = ["locks", "leases"].map(|part| format!("{path}/{part}"));
        let clients = [patient(&env).await, patient(&env).await];
        let semaphores =
            clients.each_ref().map(|client| InterProcessSemaphoreV2::new(client.clone(), &path, LIMIT).unwrap());
        assert!(in_time(semaphores[0].acquire()).await.unwrap().release().await.unwrap().is_released());
        // Free leases are taken without it.
        clients[0].create().for_path(&locks).await.unwrap();
        env.set_next_sequence(&locks, i32::MAX - 3).await;
        env.set_next_sequence(&leases, i32::MAX - 3).await;
        let mut held = Vec::new();
        for semaphore in &semaphores {
            held.push(in_time(semaphore.acquire()).await.unwrap());
        }
        // Their turns are given back behind the grants.
        env.wait_for_children(&clients[0], &locks, 0).await;
        let inside = Arc::new(AtomicUsize::new(LIMIT));
        let served = Arc::new(Mutex::new(Vec::new()));
        let mut waiters = JoinSet::new();
        for number in 0..WAITERS {
            let semaphore = semaphores[number % 2].clone();
            let (served, inside) = (Arc::clone(&served), Arc::clone(&inside));
            waiters.spawn(async move {
                let lease = semaphore.acquire().await.unwrap();
                served.lock().push(number);
                assert!(inside.fetch_add(1, Ordering::SeqCst) < LIMIT, "more than the limit");
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                assert_eq!(lease.release().await.unwrap(), Release::Released);
            });
            // The first one waits for a lease, the others behind it in line.
            env.wait_for_children(&clients[0], &locks, number + 1).await;
        }
        eventually("the first one asks for a lease", async || {
            // Its number is behind the numbers of the others' first tries.
            children(&clients[0], &leases).await.len() == LIMIT + 1
        })
        .await;
        assert!(in_time(semaphores[1].try_acquire()).await.unwrap().is_none());
        assert!(served.lock().is_empty());
        // One comes back: from now on they are served one by one.
        inside.fetch_sub(1, Ordering::SeqCst);
        assert!(held.pop().unwrap().release().await.unwrap().is_released());
        while let Some(waiter) = in_time(waiters.join_next()).await {
            waiter.unwrap();
        }
        assert!(served.lock().iter().copied().eq(0..WAITERS), "{:?}", served.lock());
        inside.fetch_sub(1, Ordering::SeqCst);
        assert!(held.pop().unwrap().release().await.unwrap().is_released());
        for part in [&locks, &leases] {
            env.wait_for_children(&clients[0], part, 0).await;
        }
        let again = in_time(semaphores[0].acquire()).await.unwrap();
        assert_eq!(at_the_end(&clients[0], &leases).await, (1, 1));
        drop(again);
    }
}

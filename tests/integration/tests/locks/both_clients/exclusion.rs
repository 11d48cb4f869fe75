//! Exclusion, and the order of grants.

use curator_framework::recipe::RecipeClient as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use curator_integration::env::{eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{InterProcessMutex, LockError, LockOwner, Release};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

on_every_server! {
    /// Curator's `TestInterProcessMutexBase.test2Clients`.
    async fn two_sessions_exclude_each_other(env) {
        let path = env.path("lock");
        let inside = Arc::new(AtomicBool::new(false));
        let mut workers = Vec::new();
        for _ in 0..2 {
            let mutex = InterProcessMutex::new(env.client().await, &path).unwrap();
            let inside = Arc::clone(&inside);
            workers.push(tokio::spawn(async move {
                let mut tokens = Vec::new();
                for _ in 0..25 {
                    let guard = mutex.acquire().await.unwrap();
                    assert!(!inside.swap(true, Ordering::SeqCst), "two holders at once");
                    tokio::task::yield_now().await;
                    assert!(guard.is_held() && guard.remaining() > Duration::ZERO);
                    tokens.push(guard.token());
                    inside.store(false, Ordering::SeqCst);
                    assert_eq!(guard.release().await.unwrap(), Release::Released);
                }
                tokens
            }));
        }
        let mut tokens = Vec::new();
        for worker in workers {
            let own = in_time(worker).await.unwrap();
            assert!(own.is_sorted_by(|a, b| a < b), "tokens grow: {own:?}");
            tokens.extend(own);
        }
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!(tokens.len(), 50, "every grant has a token of its own");
    }

    async fn twenty_waiters_are_served_in_the_order_in_which_they_came(env) {
        let path = env.path("lock");
        let (first, second) = (env.client().await, env.client().await);
        let holder = InterProcessMutex::new(first.clone(), &path).unwrap();
        let guard = holder.acquire().await.unwrap();
        let served = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let mut waiters = Vec::new();
        for number in 0..20 {
            let client = if number % 2 == 0 { first.clone() } else { second.clone() };
            let mutex = InterProcessMutex::new(client, &path).unwrap();
            let served = Arc::clone(&served);
            waiters.push(tokio::spawn(async move {
                let guard = mutex.acquire().await.unwrap();
                served.lock().push(number);
                assert!(guard.release().await.unwrap().is_released());
            }));
            // In the queue before the next one comes.
            env.wait_for_children(&first, &path, number + 2).await;
        }
        assert!(guard.release().await.unwrap().is_released());
        for waiter in waiters {
            in_time(waiter).await.unwrap();
        }
        assert_eq!(*served.lock(), (0..20).collect::<Vec<_>>());
        assert_eq!(curator_integration::env::children(&first, &path).await, Vec::<String>::new());
    }

    /// Curator's `TestInterProcessMutexBase.testReentrant`, with the owner in place of the thread.
    async fn an_owner_enters_again_and_the_last_guard_releases(env) {
        let path = env.path("lock");
        let client = env.client().await;
        let mutex = InterProcessMutex::new(client.clone(), &path).unwrap();
        LockOwner::scope(async {
            let outer = mutex.acquire().await.unwrap();
            let middle = mutex.acquire().await.unwrap();
            let inner = middle.reenter().unwrap();
            assert_eq!((outer.node_path(), outer.token()), (inner.node_path(), inner.token()));
            assert_eq!(curator_integration::env::children(&client, &path).await.len(), 1);
            // The order in which they go does not matter.
            assert_eq!(outer.release().await.unwrap(), Release::Released);
            drop(middle);
            assert!(inner.is_held() && !outer.is_held());
            assert_eq!(mutex.participant_nodes().await.unwrap(), [inner.node_path()]);
            assert!(inner.release().await.unwrap().is_released());
            assert!(!inner.is_held());
        })
        .await;
        assert_eq!(curator_integration::env::children(&client, &path).await, Vec::<String>::new());
    }

    async fn owners_are_distinct(env) {
        let mutex = InterProcessMutex::new(env.client().await, env.path("lock")).unwrap();
        let (ann, bob) = (LockOwner::new(), LockOwner::new());
        let anns = mutex.acquire_as(&ann).await.unwrap();
        let again = mutex.acquire_as_timeout(&ann, Duration::from_secs(5)).await.unwrap().expect("the same owner");
        assert!(LockOwner::scope(mutex.try_acquire()).await.unwrap().is_none());
        assert!(mutex.try_acquire().await.unwrap().is_none());
        assert!(mutex.try_acquire_as(&bob).await.unwrap().is_none());
        let third = mutex.try_acquire_as(&ann).await.unwrap().expect("the same owner");
        assert!(third.release().await.unwrap().is_released());
        assert!(anns.release().await.unwrap().is_released());
        assert!(mutex.acquire_as_timeout(&bob, Duration::from_millis(200)).await.unwrap().is_none());
        assert!(again.release().await.unwrap().is_released());
        drop(in_time(mutex.acquire_as(&bob)).await.unwrap());
    }

    async fn a_guard_works_from_any_task(env) {
        let mutex = InterProcessMutex::new(env.client().await, env.path("lock")).unwrap();
        let guard = Arc::new(mutex.acquire().await.unwrap());
        let elsewhere = Arc::clone(&guard);
        assert_eq!(tokio::spawn(async move { elsewhere.release().await.unwrap() }).await.unwrap(), Release::Released);
        assert!(!guard.is_held());
        // Releasing is repeatable, and says the same.
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        assert!(matches!(guard.reenter(), Err(LockError::InvalidArgument { argument: "guard", .. })));
    }

    async fn a_timed_acquire_that_gives_up_leaves_no_node(env) {
        let path = env.path("lock");
        let client = env.client().await;
        let mutex = InterProcessMutex::new(client.clone(), &path).unwrap();
        let guard = mutex.acquire().await.unwrap();
        let waiting = env.client().await;
        let other = InterProcessMutex::new(waiting.clone(), &path).unwrap();
        assert!(other.acquire_timeout(Duration::from_millis(300)).await.unwrap().is_none());
        assert!(other.try_acquire().await.unwrap().is_none());
        assert!(other.acquire_timeout(Duration::ZERO).await.unwrap().is_none());
        let left = env.wait_for_children(&client, &path, 1).await;
        assert_eq!(guard.node_name(), left[0]);
        assert_eq!(waiting.watchers(), 0);
        assert!(guard.release().await.unwrap().is_released());
        // A budget of zero asks once, and gets a lock that is free.
        assert!(other.acquire_timeout(Duration::ZERO).await.unwrap().is_some());
    }

    /// Curator's lost `testInterruptedDuringAcquire` (CURATOR-79): the future is polled k times and dropped, for
    /// every k until it waits.
    async fn a_dropped_acquire_leaves_no_node(env) {
        let path = env.path("deep/down/lock");
        let client = env.client().await;
        let mutex = InterProcessMutex::new(client.clone(), &path).unwrap();
        for held in [false, true] {
            let guard = if held { Some(mutex.acquire().await.unwrap()) } else { None };
            let kept = usize::from(held);
            for polls in 1.. {
                let polled = Arc::new(AtomicUsize::new(0));
                let mut acquire = Box::pin(mutex.acquire());
                let counted = Arc::clone(&polled);
                let outcome = tokio::time::timeout(Duration::from_millis(500), std::future::poll_fn(move |cx| {
                    if counted.fetch_add(1, Ordering::SeqCst) == polls {
                        return std::task::Poll::Ready(None);
                    }
                    acquire.as_mut().poll(cx).map(Some)
                }))
                .await;
                env.wait_for_children(&client, &path, if matches!(outcome, Ok(Some(_))) { kept + 1 } else { kept }).await;
                // One of each holder.
                let holders = kept + usize::from(matches!(outcome, Ok(Some(_))));
                eventually("no watch is left", async || client.watchers() <= holders).await;
                match outcome {
                    Ok(None) => {}
                    // The first poll sends, and the second one may get all replies.
                    Ok(Some(granted)) => {
                        assert!(!held && polls > 1, "granted after {polls} polls");
                        assert!(granted.unwrap().release().await.unwrap().is_released());
                        break;
                    }
                    Err(_waiting) => {
                        assert!(held && polls > 1, "waiting after {polls} polls");
                        break;
                    }
                }
            }
            if let Some(guard) = guard {
                assert!(guard.is_held());
                assert!(guard.release().await.unwrap().is_released());
            }
        }
        drop(in_time(mutex.acquire()).await.unwrap());
    }

    async fn a_waiter_that_goes_lets_the_next_one_pass(env) {
        let path = env.path("lock");
        let client = env.client().await;
        let mutex = InterProcessMutex::new(client.clone(), &path).unwrap();
        let guard = mutex.acquire().await.unwrap();
        let impatient = { let mutex = mutex.clone(); tokio::spawn(async move { mutex.acquire().await.unwrap() }) };
        env.wait_for_children(&client, &path, 2).await;
        let patient = { let mutex = mutex.clone(); tokio::spawn(async move { mutex.acquire().await.unwrap() }) };
        env.wait_for_children(&client, &path, 3).await;
        impatient.abort();
        env.wait_for_children(&client, &path, 2).await;
        assert!(!patient.is_finished(), "the lock is still held");
        assert!(guard.release().await.unwrap().is_released());
        drop(in_time(patient).await.unwrap());
        env.wait_for_children(&client, &path, 0).await;
    }

    async fn sixteen_futures_buffered_in_one_task_exclude_each_other(env) {
        let mutex = InterProcessMutex::new(env.client().await, env.path("lock")).unwrap();
        let inside = AtomicUsize::new(0);
        let mut all = FuturesUnordered::new();
        for _ in 0..16 {
            all.push(async {
                let guard = mutex.acquire().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders at once");
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                assert!(guard.release().await.unwrap().is_released());
            });
        }
        let mut served = 0;
        while in_time(all.next()).await.is_some() {
            served += 1;
        }
        assert_eq!(served, 16);
    }

    async fn a_task_that_hands_its_guards_to_workers_excludes_them(env) {
        let mutex = InterProcessMutex::new(env.client().await, env.path("lock")).unwrap();
        let inside = Arc::new(AtomicUsize::new(0));
        let mut workers = Vec::new();
        for _ in 0..8 {
            let guard = in_time(mutex.acquire()).await.unwrap();
            let inside = Arc::clone(&inside);
            workers.push(tokio::spawn(async move {
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders at once");
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                assert!(guard.release().await.unwrap().is_released());
            }));
        }
        for worker in workers {
            in_time(worker).await.unwrap();
        }
    }

    async fn foreign_children_do_not_block(env) {
        let path = env.path("lock");
        let client = env.client().await;
        for name in ["0", "_c_readme", "lock-", "lock-seven"] {
            client.create().creating_parents_if_needed().for_path(&format!("{path}/{name}")).await.unwrap();
        }
        let mutex = InterProcessMutex::new(client.clone(), &path).unwrap();
        let guard = in_time(mutex.acquire()).await.unwrap();
        assert_eq!(mutex.participant_nodes().await.unwrap(), [guard.node_path()]);
        assert!(guard.release().await.unwrap().is_released());
        assert_eq!(curator_integration::env::children(&client, &path).await.len(), 4);
    }
}

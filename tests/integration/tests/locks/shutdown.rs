//! Tasks and runtimes that end while a lock is waited for or held: nothing is left, and the next one is granted.

use std::sync::Arc;
use std::time::Duration;

use curator_framework::CuratorFramework;
use curator_framework::recipe::RecipeClient as _;
use curator_integration::env::{Env, builder, connected, eventually, in_time};
use curator_integration::kinds::{Which, acquiring};
use curator_integration::on_every_server;
use curator_recipes::{InterProcessLock, LockGuard, Release};
use tokio::runtime::Runtime;

/// So short that its end is waited for.
const SESSION: Duration = Duration::from_secs(3);

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Runs a future in another runtime.
async fn on<T: Send + 'static>(runtime: &Runtime, future: impl Future<Output = T> + Send + 'static) -> T {
    in_time(runtime.spawn(future)).await.unwrap()
}

/// A client of another runtime.
async fn client_of(runtime: &Runtime, env: &Env) -> CuratorFramework {
    let options = builder(env.address()).session_timeout(SESSION).connection_timeout(Duration::from_secs(2));
    on(runtime, connected(options)).await
}

async fn end(runtime: Runtime) {
    tokio::task::spawn_blocking(move || drop(runtime)).await.unwrap();
}

/// Others get the lock, and when they are done nothing is left.
async fn assert_all_is_well(which: Which, client: &CuratorFramework, root: &str) {
    assert!(in_time(which.lock(client, root).acquire()).await.unwrap().release().await.unwrap().is_released());
    which.wait_until_free(client, root).await;
}

async fn assert_no_waiters(client: &CuratorFramework) {
    eventually("no watch is left", async || client.watchers() == 0).await;
}

async fn all_held(client: &CuratorFramework, root: &str) -> Vec<(Which, Arc<dyn InterProcessLock>, LockGuard)> {
    let mut held = Vec::new();
    for which in Which::ALL {
        let lock = which.lock(client, root);
        let guard = in_time(lock.acquire()).await.unwrap();
        held.push((which, lock, guard));
    }
    held
}

on_every_server! {
    async fn runtime_that_ends_during_a_wait_blocks_no_contender(env) {
        let root = env.path("locks");
        let client = env.client().await;
        let other = runtime();
        let ending = client_of(&other, &env).await;
        let mut waits = Vec::new();
        for which in Which::exclusive() {
            let held = in_time(which.lock(&client, &root).acquire()).await.unwrap();
            let lock = which.lock(&ending, &root);
            let waiting = Arc::clone(&lock);
            let wait = other.spawn(async move { waiting.acquire().await });
            env.wait_for_children(&client, &which.queue(&root), 2).await;
            let next = acquiring(&which.lock(&client, &root));
            waits.push((which, held, lock, wait, next));
        }
        end(other).await;
        for (which, held, lock, wait, next) in waits {
            assert!(in_time(wait).await.unwrap_err().is_cancelled());
            assert!(!next.is_finished(), "{which:?}: two hold it");
            assert_eq!(held.release().await.unwrap(), Release::Released);
            assert!(in_time(next).await.unwrap().unwrap().release().await.unwrap().is_released());
            assert_all_is_well(which, &client, &root).await;
            // No task serves that client any more, which is an error for all later calls.
            for outcome in [
                in_time(lock.acquire()).await.map(Some),
                in_time(lock.try_acquire()).await,
                in_time(lock.acquire_timeout(Duration::from_secs(60))).await,
            ] {
                assert!(outcome.is_err(), "{which:?}: {outcome:?}");
            }
        }
        in_time(ending.close()).await;
        assert_no_waiters(&client).await;
    }

    async fn a_guard_that_outlives_its_runtime_is_lost_in_time(env) {
        let root = env.path("locks");
        let client = env.client().await;
        let other = runtime();
        let ending = client_of(&other, &env).await;
        let held = {
            let root = root.clone();
            on(&other, async move { all_held(&ending, &root).await }).await
        };
        let nexts: Vec<_> = held.iter().map(|(which, ..)| acquiring(&which.lock(&client, &root))).collect();
        end(other).await;
        for ((which, lock, guard), next) in held.into_iter().zip(nexts) {
            in_time(guard.lost()).await;
            assert!(!guard.is_held() && guard.remaining() == Duration::ZERO, "{which:?}");
            assert!(!lock.is_acquired_in_this_process(), "{which:?}");
            assert!(in_time(guard.verify()).await.is_err(), "{which:?}");
            assert!(in_time(guard.protect(std::future::pending::<()>())).await.is_err(), "{which:?}");
            let released = in_time(guard.release()).await;
            assert!(!matches!(released, Ok(Release::Released)), "{which:?}: {released:?}");
            drop(guard);
            assert!(in_time(next).await.unwrap().unwrap().release().await.unwrap().is_released());
            assert_all_is_well(which, &client, &root).await;
        }
        assert_no_waiters(&client).await;
    }

    async fn an_aborted_task_leaves_its_place_in_the_queue(env) {
        let root = env.path("locks");
        let (client, other) = (env.client().await, env.client().await);
        for which in Which::exclusive() {
            let held = in_time(which.lock(&client, &root).acquire()).await.unwrap();
            eventually("it is alone", async || which.nodes(&client, &root).await.len() == held.parts().count()).await;
            let waiting = acquiring(&which.lock(&other, &root));
            env.wait_for_children(&client, &which.queue(&root), 2).await;
            let next = acquiring(&which.lock(&client, &root));
            waiting.abort();
            assert!(in_time(waiting).await.unwrap_err().is_cancelled());
            assert_no_waiters(&other).await;
            assert!(!next.is_finished(), "{which:?}: two hold it");
            assert_eq!(held.release().await.unwrap(), Release::Released);
            assert!(in_time(next).await.unwrap().unwrap().release().await.unwrap().is_released());
            assert_all_is_well(which, &client, &root).await;
        }
    }

    async fn a_panic_while_it_is_held_releases_it(env) {
        let root = env.path("locks");
        let (client, other) = (env.client().await, env.client().await);
        for which in Which::ALL {
            let lock = which.lock(&other, &root);
            let (holds, told) = tokio::sync::oneshot::channel();
            let (go, goes) = tokio::sync::oneshot::channel::<()>();
            let holding = Arc::clone(&lock);
            let holder = tokio::spawn(async move {
                let guard = holding.acquire().await.unwrap();
                holds.send(()).unwrap();
                goes.await.unwrap();
                // Unlike `panic!` it prints nothing.
                std::panic::resume_unwind(Box::new(guard.node_path().to_owned()));
            });
            in_time(told).await.unwrap();
            let next = acquiring(&which.lock(&client, &root));
            go.send(()).unwrap();
            assert!(in_time(holder).await.unwrap_err().is_panic());
            assert!(in_time(next).await.unwrap().unwrap().release().await.unwrap().is_released());
            assert!(!lock.is_acquired_in_this_process(), "{which:?}");
            assert_all_is_well(which, &client, &root).await;
            // A semaphore watches its path as long as it is there.
            drop(lock);
            assert_no_waiters(&other).await;
        }
    }

    /// On a thread that has no runtime, while its client's runtime lives.
    async fn a_guard_dropped_outside_of_any_runtime_is_released(env) {
        let root = env.path("locks");
        let (client, other) = (env.client().await, env.client().await);
        for (which, lock, guard) in all_held(&client, &root).await {
            std::thread::spawn(move || drop(guard)).join().unwrap();
            assert!(!lock.is_acquired_in_this_process(), "{which:?}");
            assert_all_is_well(which, &other, &root).await;
        }
        assert_no_waiters(&client).await;
    }

    /// The runtime stops until it is entered again.
    async fn a_guard_dropped_beside_its_runtime_is_released_when_that_goes_on(env) {
        let root = env.path("locks");
        let other = env.client().await;
        let (address, path) = (env.address(), root.clone());
        let standing = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let (client, held) = runtime.block_on(async {
                let client = connected(builder(address)).await;
                let held = all_held(&client, &path).await;
                (client, held)
            });
            drop(held);
            runtime.block_on(client.close());
        });
        in_time(tokio::task::spawn_blocking(move || standing.join().unwrap())).await.unwrap();
        for which in Which::ALL {
            assert_eq!(which.nodes(&other, &root).await, [""; 0], "{which:?}");
            assert_all_is_well(which, &other, &root).await;
        }
    }

    async fn a_guard_works_in_another_runtime(env) {
        let root = env.path("locks");
        let (client, observer) = (env.client().await, env.client().await);
        let other = runtime();
        for drops in [false, true] {
            for (which, lock, guard) in all_held(&client, &root).await {
                let next = acquiring(&which.lock(&observer, &root));
                on(&other, async move {
                    guard.verify().await.unwrap();
                    guard.protect(guard.verify()).await.unwrap().unwrap();
                    if !drops {
                        assert_eq!(guard.release().await.unwrap(), Release::Released);
                    }
                    drop(guard);
                })
                .await;
                assert!(in_time(next).await.unwrap().unwrap().release().await.unwrap().is_released());
                // It is acquired there too.
                let guard = on(&other, async move { lock.acquire().await.unwrap() }).await;
                assert_eq!(guard.release().await.unwrap(), Release::Released);
                assert_all_is_well(which, &observer, &root).await;
            }
        }
        // The end of a runtime that is not the client's harms no client; its waits end.
        let held = in_time(Which::Mutex.lock(&observer, &root).acquire()).await.unwrap();
        let waiting = Which::Mutex.lock(&client, &root);
        let wait = other.spawn(async move { waiting.acquire().await });
        env.wait_for_children(&observer, &Which::Mutex.queue(&root), 2).await;
        end(other).await;
        assert!(in_time(wait).await.unwrap_err().is_cancelled());
        env.wait_for_children(&observer, &Which::Mutex.queue(&root), 1).await;
        assert!(held.release().await.unwrap().is_released());
        assert_all_is_well(Which::Mutex, &client, &root).await;
    }
}

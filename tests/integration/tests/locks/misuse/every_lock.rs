//! Wrong use gets an error that names what was wrong, or the result that is documented; nothing panics and nothing hangs.

use std::sync::Arc;
use std::time::Duration;

use curator_framework::{Acl, Error, Permission, RetryNTimes, SessionEnd};
use curator_integration::env::{builder, children, connected, in_time};
use curator_integration::in_process::{client, server};
use curator_integration::kinds::{Which, acquiring};
use curator_integration::on_every_server;
use curator_recipes::{
    InterProcessLock, InterProcessMultiLock, InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreMutex,
    InterProcessSemaphoreV2, LockError, LockGuard, LockOptions, LockOwner, LossReason, MutexOptions, Release, Revoker,
    SemaphoreOptions, SemaphoreProtocol, SharedCount, SharedValue,
};
use futures_util::FutureExt;

const BOTH: [SemaphoreProtocol; 2] = [SemaphoreProtocol::Curator, SemaphoreProtocol::Direct];
const RELEASED: &str = "invalid guard: it was released";

fn text<T: std::fmt::Debug, E: std::fmt::Display>(outcome: Result<T, E>) -> String {
    outcome.expect_err("it is an error").to_string()
}

#[tokio::test]
async fn paths_that_cannot_work_are_named_by_every_lock() {
    let client = builder(([127, 0, 0, 1], 1).into()).build().unwrap();
    for (path, reason) in [
        ("", "it is empty"),
        ("lock", "it does not start with a slash"),
        ("/lock/", "it ends with a slash"),
        ("/a//lock", "it has an empty element"),
        ("/a/../lock", "it has a relative element"),
        ("/a/.", "it has a relative element"),
        ("/a\u{0}", "it has a character that ZooKeeper does not allow"),
    ] {
        let wanted = format!("invalid path {path:?}: {reason}");
        assert_eq!(text(InterProcessMutex::with_options(client.clone(), path, MutexOptions::new())), wanted);
        assert_eq!(text(InterProcessSemaphoreMutex::new(client.clone(), path)), wanted);
        assert_eq!(text(InterProcessReadWriteLock::new(client.clone(), path)), wanted);
        assert_eq!(text(InterProcessMultiLock::new(client.clone(), ["/a", path])), wanted);
        for protocol in BOTH {
            let semaphore = InterProcessSemaphoreV2::with_options(
                client.clone(),
                path,
                1,
                SemaphoreOptions::new().protocol(protocol),
            );
            assert_eq!(text(semaphore), wanted);
        }
        assert_eq!(text(SharedCount::new(client.clone(), path, 0)), wanted);
        assert_eq!(text(SharedValue::new(client.clone(), path, "")), wanted);
        assert_eq!(text(in_time(Revoker::attempt_revoke(&client, path)).await), wanted);
    }
    let root = "invalid lock path: the root cannot be a lock";
    assert_eq!(text(InterProcessSemaphoreMutex::new(client.clone(), "/")), root);
    assert_eq!(text(InterProcessReadWriteLock::new(client.clone(), "/")), root);
    assert_eq!(text(InterProcessMultiLock::new(client.clone(), ["/a", "/"])), root);
    for protocol in BOTH {
        let semaphore = |path, limit| {
            InterProcessSemaphoreV2::with_options(
                client.clone(),
                path,
                limit,
                SemaphoreOptions::new().protocol(protocol),
            )
        };
        assert_eq!(text(semaphore("/", 1)), root);
        let none = "invalid number of leases: it is zero, so none could ever be granted";
        assert_eq!(text(semaphore("/semaphore", 0)), none);
    }
}

#[tokio::test]
async fn a_client_that_is_not_started_is_told_by_every_lock() {
    let client = builder(([127, 0, 0, 1], 1).into()).build().unwrap();
    let not_started = Error::NotStarted.to_string();
    for which in Which::ALL {
        let lock = which.lock(&client, "/locks");
        assert_eq!(text(in_time(lock.acquire()).await), not_started);
        assert_eq!(text(in_time(lock.try_acquire()).await), not_started);
        assert_eq!(text(in_time(lock.acquire_timeout(Duration::MAX)).await), not_started);
    }
    let mutex = InterProcessMutex::new(client.clone(), "/lock").unwrap();
    assert_eq!(text(in_time(mutex.participants()).await), not_started);
    assert_eq!(text(in_time(mutex.participant_nodes()).await), not_started);
    assert_eq!(text(in_time(Revoker::attempt_revoke(&client, "/lock/node")).await), not_started);
}

/// What is left of a guard that is held no more.
async fn assert_useless<K>(guard: &LockGuard<K>, error: &str) {
    assert!(!guard.is_held() && guard.remaining() == Duration::ZERO);
    assert_eq!(text(in_time(guard.verify()).await), error);
    assert_eq!(text(in_time(guard.protect(std::future::pending::<()>())).await), error);
    assert!(guard.node_path().starts_with('/') && guard.token().czxid().get() > 0);
}

on_every_server! {
    async fn a_second_release_says_the_same_as_the_first(env) {
        let root = env.path("locks");
        let (client, other) = (env.client().await, env.client().await);
        for which in Which::ALL {
            let guard = in_time(which.lock(&client, &root).acquire()).await.unwrap();
            assert_eq!(guard.release().await.unwrap(), Release::Released);
            // What others do then is nothing to it.
            which.wait_until_free(&client, &root).await;
            let next = in_time(which.lock(&other, &root).acquire()).await.unwrap();
            assert_eq!(guard.release().await.unwrap(), Release::Released, "{which:?}");
            assert!(next.is_held(), "{which:?}");
            next.verify().await.unwrap();
            assert_useless(&guard, RELEASED).await;
            assert!(guard.lost().now_or_never().is_none() && guard.revocation_requested().now_or_never().is_none());
            assert!(next.release().await.unwrap().is_released());
            drop(guard);
            which.wait_until_free(&client, &root).await;
        }
        let lock = InterProcessReadWriteLock::new(client.clone(), env.path("lock")).unwrap();
        let writing = in_time(lock.write_lock().acquire()).await.unwrap();
        assert!(writing.release().await.unwrap().is_released());
        assert_eq!(text(writing.reenter()), RELEASED);
        assert_eq!(text(in_time(writing.downgrade()).await), RELEASED);
        assert_eq!(children(&client, lock.path()).await, [""; 0]);
        // A guard that was downgraded was released in time, even when it is asked later.
        let writing = in_time(lock.write_lock().acquire()).await.unwrap();
        let reading = in_time(writing.downgrade()).await.unwrap();
        env.wait_for_children(&client, lock.path(), 1).await;
        assert_eq!(text(in_time(writing.downgrade()).await), RELEASED);
        assert_eq!(writing.release().await.unwrap(), Release::Released);
        assert!(reading.is_held());
        assert_useless(&writing, RELEASED).await;
    }

    async fn a_guard_kept_beyond_the_close_of_its_client_is_lost(env) {
        let root = env.path("locks");
        let observer = env.client().await;
        for which in Which::ALL {
            let client = env.client().await;
            let lock = which.lock(&client, &root);
            let guard = in_time(lock.acquire()).await.unwrap();
            in_time(client.close()).await;
            let reason = LossReason::Session(SessionEnd::Closed);
            assert_eq!(in_time(guard.lost()).await, reason);
            let lost = guard.parts().next().map(|part| format!("the lock {} is lost: {reason}", folder(part)));
            assert_useless(&guard, &lost.unwrap_or_default().replace("/leases", "")).await;
            assert!(!lock.is_acquired_in_this_process());
            assert_eq!(in_time(guard.release()).await.unwrap(), Release::AlreadyLost(reason), "{which:?}");
            drop(guard);
            which.wait_until_free(&observer, &root).await;
        }
        let client = env.client().await;
        let lock = InterProcessReadWriteLock::new(client.clone(), env.path("lock")).unwrap();
        let lease = InterProcessSemaphoreV2::new(client.clone(), env.path("semaphore"), 1).unwrap();
        let (writing, lease) = (lock.write_lock().acquire().await.unwrap(), lease.acquire().await.unwrap());
        in_time(client.close()).await;
        for error in [text(writing.reenter()), text(in_time(writing.downgrade()).await)] {
            assert_eq!(error, format!("the lock {} is lost: {}", lock.path(), SessionEnd::Closed));
        }
        assert!(matches!(in_time(lease.data()).await, Err(LockError::Framework(_))));
        assert!(matches!(in_time(lock.participants()).await, Err(LockError::Framework(Error::Closed))));
    }

    async fn budgets_of_nothing_and_of_ever(env) {
        let root = env.path("locks");
        let (client, other) = (env.client().await, env.client().await);
        for which in Which::ALL {
            let (lock, second) = (which.lock(&client, &root), which.lock(&other, &root));
            for budget in [Duration::ZERO, Duration::MAX] {
                let guard = in_time(lock.acquire_timeout(budget)).await.unwrap().expect("it is free");
                assert!(guard.release().await.unwrap().is_released());
                which.wait_until_free(&client, &root).await;
            }
            if which == Which::Read {
                continue;
            }
            let held = in_time(lock.acquire()).await.unwrap();
            assert!(in_time(second.acquire_timeout(Duration::ZERO)).await.unwrap().is_none(), "{which:?}");
            let waits = Arc::clone(&second);
            let waiter = tokio::spawn(async move { waits.acquire_timeout(Duration::MAX).await });
            which.wait_for_contenders(&env, &client, &root, 2).await;
            assert!(held.release().await.unwrap().is_released());
            assert!(in_time(waiter).await.unwrap().unwrap().expect("there was time").release().await.unwrap().is_released());
        }
        let options = LockOptions::new().warn_after(Duration::MAX);
        let mutex = InterProcessMutex::with_options(client.clone(), env.path("lock"), options).unwrap();
        let owner = LockOwner::new();
        let outer = in_time(mutex.acquire_as_timeout(&owner, Duration::MAX)).await.unwrap().expect("it is free");
        let inner = in_time(mutex.acquire_as_timeout(&owner, Duration::ZERO)).await.unwrap().expect("it has it");
        assert!(in_time(mutex.acquire_as_timeout(&LockOwner::new(), Duration::ZERO)).await.unwrap().is_none());
        drop(inner);
        assert!(outer.release().await.unwrap().is_released());
        // As long as it may take.
        let options = builder(env.address()).connection_timeout(Duration::from_millis(i32::MAX as u64));
        let patient = InterProcessMutex::new(connected(options).await, env.path("lock")).unwrap();
        assert!(in_time(patient.try_acquire()).await.unwrap().expect("it is free").release().await.unwrap().is_released());
    }

    /// More than any memory or server has: nothing is counted over its end, and the budget holds.
    async fn as_many_leases_as_can_be_counted(env) {
        const SHORT: Duration = Duration::from_millis(300);
        let client = connected(builder(env.address()).connection_timeout(Duration::from_secs(2))).await;
        for protocol in BOTH {
            let path = env.path(&protocol.to_string());
            let semaphore =
                InterProcessSemaphoreV2::with_options(client.clone(), &path, usize::MAX, SemaphoreOptions::new().protocol(protocol))
                    .unwrap();
            let held = in_time(semaphore.acquire()).await.unwrap();
            assert!(in_time(semaphore.try_acquire_many(usize::MAX)).await.unwrap().is_none(), "one is not free");
            // The budget ends while lease after lease is granted.
            let all = in_time(semaphore.acquire_many_timeout(usize::MAX, SHORT)).await;
            assert!(matches!(all, Err(LockError::Framework(Error::ConnectionLoss { .. }))), "{all:?}");
            // Not in time, or not while the turn of the last one is given back.
            let half = in_time(semaphore.acquire_many_timeout(usize::MAX / 2, Duration::ZERO)).await;
            assert!(!matches!(half, Ok(Some(_))), "{half:?}");
            env.wait_for_children(&client, &format!("{path}/leases"), 1).await;
            assert_eq!(held.release().await.unwrap(), Release::Released);
        }
    }

    /// The limit is not stored: each client follows its own, and no clean-up or wake-up depends on it.
    async fn limits_that_differ(env) {
        let (client, other) = (env.client().await, env.client().await);
        for protocol in BOTH {
            let path = env.path(&protocol.to_string());
            let of = |client: &curator_framework::CuratorFramework, limit| {
                InterProcessSemaphoreV2::with_options(client.clone(), &path, limit, SemaphoreOptions::new().protocol(protocol)).unwrap()
            };
            let (one, three) = (of(&client, 1), of(&other, 3));
            let two = in_time(three.acquire_many(2)).await.unwrap();
            assert!(in_time(one.try_acquire()).await.unwrap().is_none(), "it counts two");
            let third = in_time(three.try_acquire()).await.unwrap().expect("the third is free for it");
            assert!(in_time(three.try_acquire()).await.unwrap().is_none());
            let waiter = tokio::spawn(async move { one.acquire().await });
            env.wait_for_children(&client, &format!("{path}/leases"), 4).await;
            for lease in two.into_iter().chain([third]) {
                assert!(!waiter.is_finished());
                assert!(lease.release().await.unwrap().is_released());
            }
            assert!(in_time(waiter).await.unwrap().unwrap().release().await.unwrap().is_released());
            env.wait_for_children(&client, &format!("{path}/leases"), 0).await;
        }
    }

    /// Objects are not compared: a lock that is named twice waits for itself, as long as it may.
    async fn the_same_lock_twice_in_a_multi_lock(env) {
        let client = env.client().await;
        let path = env.path("lock");
        let mutex: Arc<dyn InterProcessLock> = Arc::new(InterProcessMutex::new(client.clone(), &path).unwrap());
        let twice = InterProcessMultiLock::from_locks([Arc::clone(&mutex), mutex]).unwrap();
        assert!(in_time(twice.try_acquire()).await.unwrap().is_none());
        assert_eq!(children(&client, &path).await, [""; 0]);
        assert!(in_time(twice.acquire_timeout(Duration::from_millis(200))).await.unwrap().is_none());
        env.wait_for_children(&client, &path, 0).await;
        // An owner has it a second time.
        let guard = LockOwner::scope(in_time(twice.acquire())).await.unwrap();
        assert_eq!((guard.len(), children(&client, &path).await.len()), (2, 1));
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        assert_eq!(children(&client, &path).await, [""; 0]);
    }

    async fn errors_and_guards_name_the_callers_path_and_debug_the_servers(env) {
        let namespace = env.path("ns");
        let client = connected(builder(env.address()).namespace(&namespace[1..])).await;
        let closed = [Acl::new(Permission::ALL, "ip", "203.0.113.7")];
        client.create().with_acl(closed).for_path("/closed").await.unwrap();
        let check = |shown: String, whole: String, path: &str| {
            assert!(shown.contains(path) && !shown.contains(&namespace), "{shown}");
            assert!(whole.contains(&format!("{namespace}{path}")), "{whole}");
        };
        for which in Which::ALL {
            let refused = in_time(which.lock(&client, "/closed").acquire()).await.unwrap_err();
            check(refused.to_string(), format!("{refused:?}"), "/closed/");
            let guard = in_time(which.lock(&client, "/open").acquire()).await.unwrap();
            check(guard.node_path().to_owned(), format!("{guard:?}"), "/open/");
            client.delete().for_path(guard.node_path()).await.unwrap();
            let lost = in_time(guard.verify()).await.unwrap_err();
            assert!(matches!(lost, LockError::LockLost { .. }), "{lost:?}");
            check(lost.to_string(), format!("{lost:?}"), "/open/");
        }
        let lock = InterProcessReadWriteLock::new(client.clone(), "/rw").unwrap();
        let upgrade = LockOwner::scope(async {
            let _reading = lock.read_lock().acquire().await.unwrap();
            lock.write_lock().acquire().await.map(drop)
        });
        let refused = in_time(upgrade).await.unwrap_err();
        check(refused.to_string(), format!("{refused:?}"), "/rw");
        let [one, two] = BOTH.map(|protocol| {
            InterProcessSemaphoreV2::with_options(client.clone(), "/leases", 1, SemaphoreOptions::new().protocol(protocol)).unwrap()
        });
        let _lease = in_time(one.acquire()).await.unwrap();
        let refused = in_time(two.acquire()).await.unwrap_err();
        check(refused.to_string(), format!("{refused:?}"), "/leases");
        let count = SharedCount::new(client.clone(), "/closed/count", 0).unwrap();
        count.start().unwrap();
        let refused = in_time(count.initialized()).await.unwrap_err();
        check(refused.to_string(), format!("{refused:?}"), "/closed/count");
    }

    async fn data_that_no_server_takes(env) {
        let options = builder(env.address()).retry_policy(RetryNTimes::new(1, Duration::from_millis(50)));
        let client = connected(options.session_timeout(Duration::from_secs(30))).await;
        let path = env.path("lock");
        let options = LockOptions::new().data(vec![7; 2 << 20]);
        let mutex = InterProcessMutex::with_options(client.clone(), &path, options).unwrap();
        for outcome in [in_time(mutex.acquire()).await.map(Some), in_time(mutex.try_acquire()).await] {
            let error = text(outcome);
            assert!(error.contains(&path), "{error}");
        }
        let mutex = InterProcessMutex::new(env.client().await, &path).unwrap();
        assert!(in_time(mutex.acquire()).await.unwrap().release().await.unwrap().is_released());
    }

    async fn a_request_to_a_node_that_is_none(env) {
        let client = env.client().await;
        let gone = Revoker::attempt_revoke(&client, &env.path("nothing")).await.unwrap();
        assert_eq!(gone, curator_recipes::RevokeOutcome::NodeGone);
        let waiter = InterProcessMutex::new(client.clone(), env.path("lock")).unwrap();
        assert_eq!(in_time(waiter.participants()).await.unwrap(), []);
        assert_eq!(in_time(waiter.participant_nodes()).await.unwrap(), [""; 0]);
        let guard = in_time(acquiring(&(Arc::new(waiter) as Arc<dyn InterProcessLock>))).await.unwrap().unwrap();
        assert!(guard.release().await.unwrap().is_released());
    }
}

/// The path of the lock to which a guard's node belongs.
fn folder(guard: &LockGuard) -> &str {
    guard.node_path().rsplit_once('/').map_or("", |(folder, _)| folder)
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

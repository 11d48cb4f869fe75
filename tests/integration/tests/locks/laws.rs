//! Curator's `TestInterProcessMutexBase`, over every lock, and what it leaves out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{Error, make_path};
use curator_integration::env::{builder, children, connected, eventually, in_time};
use curator_integration::kinds::{Polled, Which, acquiring, poll_and_drop};
use curator_integration::on_every_server;
use curator_recipes::{
    InterProcessLock, InterProcessMutex, InterProcessSemaphoreV2, LockError, LockOwner, LossReason, Release,
};
use curator_test::wire::OpCode;

on_every_server! {
    /// Curator's `TestInterProcessMutexBase.testLocker`: the lock as a trait object, in all the ways to ask for it.
    async fn a_lock_is_held_inside_of_the_scope_and_not_after(env) {
        let client = env.client().await;
        let locks: Vec<_> = Which::ALL.map(|which| which.lock(&client, &env.path("locks"))).into();
        for lock in &locks {
            assert!(!lock.is_acquired_in_this_process(), "{lock:?}");
            {
                let guard = in_time(lock.acquire()).await.unwrap();
                assert!(lock.is_acquired_in_this_process() && guard.is_held(), "{lock:?}");
                assert!(guard.token().czxid().get() > 0 && guard.remaining() > Duration::ZERO, "{lock:?}");
                guard.verify().await.unwrap();
            }
            assert!(!lock.is_acquired_in_this_process(), "{lock:?}");
            let timed = in_time(lock.acquire_timeout(Duration::from_secs(20))).await.unwrap().expect("it is free");
            assert!(lock.is_acquired_in_this_process(), "{lock:?}");
            assert_eq!(timed.release().await.unwrap(), Release::Released);
            assert!(!lock.is_acquired_in_this_process() && !timed.is_held(), "{lock:?}");
        }
        for which in Which::ALL {
            which.wait_until_free(&client, &env.path("locks")).await;
        }
        for lock in &locks {
            let tried = in_time(lock.try_acquire()).await.unwrap().expect("it is free");
            assert!(lock.is_acquired_in_this_process(), "{lock:?}");
            assert_eq!(tried.release().await.unwrap(), Release::Released);
        }
    }

    /// Curator's `TestInterProcessMutexBase.testWaitingProcessKilledServer`.
    async fn restarted_server_grants_nothing_twice_and_all_contenders_finish(env) {
        let env = env.alone();
        let root = env.path("locks");
        let (first, second) = (env.client().await, env.client().await);
        let mut pairs = Vec::new();
        for which in Which::exclusive() {
            let held = in_time(which.lock(&first, &root).acquire()).await.unwrap();
            let waiter = acquiring(&which.lock(&second, &root));
            env.wait_for_children(&first, &which.queue(&root), 2).await;
            pairs.push((which, held, waiter));
        }
        env.restart().await;
        for (which, held, waiter) in pairs {
            assert!(!waiter.is_finished() || !held.is_held(), "two hold {which:?}");
            // Or the session did not survive the restart.
            let released = in_time(held.release()).await.unwrap();
            assert!(matches!(released, Release::Released | Release::AlreadyLost(LossReason::Session(_))), "{which:?}");
            assert_eq!(in_time(waiter).await.unwrap().unwrap().release().await.unwrap(), Release::Released, "{which:?}");
        }
    }

    /// Curator's `TestInterProcessMutexBase.testKilledSession`; there the first one keeps believing.
    async fn a_killed_session_hands_the_lock_to_the_other_object_of_the_same_client(env) {
        let root = env.path("locks");
        let observer = env.client().await;
        for which in Which::exclusive() {
            let client = env.client().await;
            let (first, second) = (which.lock(&client, &root), which.lock(&client, &root));
            let held = in_time(first.acquire()).await.unwrap();
            let waiter = acquiring(&second);
            which.wait_for_contenders(&env, &observer, &root, 2).await;
            env.kill_owner_of(&observer, held.node_path()).await;
            let granted = in_time(waiter).await.unwrap().unwrap();
            in_time(held.lost()).await;
            assert!(!held.is_held() && !first.is_acquired_in_this_process(), "{which:?}");
            assert!(granted.is_held() && second.is_acquired_in_this_process(), "{which:?}");
            assert!(matches!(held.release().await.unwrap(), Release::AlreadyLost(_)), "{which:?}");
            assert_eq!(granted.release().await.unwrap(), Release::Released, "{which:?}");
            client.close().await;
        }
    }

    /// Curator's `TestInterProcessMutexBase.testContainerCleanup`.
    async fn parents_of_an_unused_lock_are_deleted(env) {
        let root = env.path("locks");
        // A client without containers: the server deletes the other client's containers.
        let options = builder(env.address()).zookeeper_factory(curator_framework::ZooKeeperAsyncFactory);
        let client = connected(options.reap_interval(Duration::from_millis(10))).await;
        for which in Which::ALL {
            let lock = which.lock(&client, &root);
            for _ in 0..10 {
                assert!(in_time(lock.acquire()).await.unwrap().release().await.unwrap().is_released());
            }
        }
        eventually("the folders are gone", async || client.check_exists().for_path(&root).await.unwrap().is_none()).await;
    }

    /// Curator's `TestInterProcessMutexBase.testWithNamespace`.
    async fn a_lock_in_a_namespace_is_the_lock_below_it(env) {
        let namespace = env.path("ns");
        let plain = env.client().await;
        let client = connected(builder(env.address()).namespace(&namespace[1..])).await;
        for which in Which::ALL {
            let lock = which.lock(&client, "/locks");
            let guard = in_time(lock.acquire_timeout(Duration::from_secs(20))).await.unwrap().expect("it is free");
            assert!(guard.node_path().starts_with(&format!("/locks/{which:?}/")), "{}", guard.node_path());
            let seen = format!("{namespace}{}", guard.node_path());
            assert!(plain.check_exists().for_path(&seen).await.unwrap().is_some(), "{seen}");
            if which != Which::Read {
                let outside = which.lock(&plain, &format!("{namespace}/locks"));
                assert!(outside.try_acquire().await.unwrap().is_none(), "{which:?}");
            }
            assert!(guard.release().await.unwrap().is_released());
            which.wait_until_free(&plain, &format!("{namespace}/locks")).await;
        }
    }

    /// Curator's `TestInterProcessMutexBase.testReentrantSingleLock`, with an owner in place of a thread.
    async fn ten_owners_at_one_object_exclude_each_other(env) {
        let client = env.client().await;
        for which in Which::exclusive().filter(|which| which.is_reentrant()) {
            let lock = which.lock(&client, &env.path("locks"));
            let (inside, entries) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
            let mut owners = tokio::task::JoinSet::new();
            for _ in 0..10 {
                let (lock, inside, entries) = (Arc::clone(&lock), Arc::clone(&inside), Arc::clone(&entries));
                owners.spawn(LockOwner::scope(async move {
                    let outer = lock.acquire().await.unwrap();
                    let inner = lock.acquire().await.unwrap();
                    assert!(!inside.swap(true, Ordering::SeqCst), "two holders at once");
                    tokio::task::yield_now().await;
                    entries.fetch_add(1, Ordering::SeqCst);
                    inside.store(false, Ordering::SeqCst);
                    assert!(inner.release().await.unwrap().is_released());
                    assert_eq!(outer.release().await.unwrap(), Release::Released);
                }));
            }
            while let Some(done) = in_time(owners.join_next()).await {
                done.unwrap();
            }
            assert_eq!(entries.load(Ordering::SeqCst), 10, "{which:?}");
            assert!(!lock.is_acquired_in_this_process(), "{which:?}");
        }
    }

    /// Curator's `TestInterProcessMutexBase.testReentrant` and `testReentrant2Threads`.
    async fn nested_holds_exclude_other_owners_until_the_last_release(env) {
        let root = env.path("locks");
        let client = env.client().await;
        for which in Which::ALL.into_iter().filter(|which| which.is_reentrant()) {
            let lock = which.lock(&client, &root);
            // A reader keeps out a writer.
            let other = if which == Which::Read { None } else { Some(Arc::clone(&lock)) };
            let is_out = async || match &other {
                Some(other) => LockOwner::scope(other.try_acquire()).await.unwrap().is_none(),
                None => true,
            };
            let nodes = which.folders(&root).len();
            LockOwner::scope(async {
                let mut guards = Vec::new();
                for _ in 0..3 {
                    guards.push(in_time(lock.acquire()).await.unwrap());
                    assert!(is_out().await, "{which:?}");
                    assert_eq!(which.nodes(&client, &root).await.len(), nodes, "{which:?}");
                }
                while let Some(guard) = guards.pop() {
                    assert!(is_out().await && lock.is_acquired_in_this_process(), "{which:?}");
                    assert_eq!(guard.release().await.unwrap(), Release::Released);
                }
            })
            .await;
            assert!(!lock.is_acquired_in_this_process(), "{which:?}");
            assert_eq!(which.nodes(&client, &root).await, [""; 0]);
            drop(in_time(lock.try_acquire()).await.unwrap().expect("it is free"));
            which.wait_until_free(&client, &root).await;
        }
    }

    /// The others are not reentrant for any owner: Curator's `TestInterProcessSemaphoreMutex` leaves the tests
    /// of reentrancy out.
    async fn an_owner_does_not_enter_again_where_there_is_no_reentrancy(env) {
        let client = env.client().await;
        for which in Which::ALL.into_iter().filter(|which| !which.is_reentrant()) {
            let lock = which.lock(&client, &env.path("locks"));
            LockOwner::scope(async {
                let guard = in_time(lock.acquire()).await.unwrap();
                assert!(lock.try_acquire().await.unwrap().is_none(), "{which:?}");
                assert!(lock.acquire_timeout(Duration::from_millis(300)).await.unwrap().is_none(), "{which:?}");
                assert!(lock.is_acquired_in_this_process(), "{which:?}");
                assert!(guard.release().await.unwrap().is_released());
                assert!(in_time(lock.acquire()).await.unwrap().release().await.unwrap().is_released());
            })
            .await;
        }
    }

    /// Curator's `TestInterProcessMutexBase.test2Clients`.
    async fn of_two_clients_one_holds_and_hands_over(env) {
        let root = env.path("locks");
        let (first, second) = (env.client().await, env.client().await);
        for which in Which::exclusive() {
            let (ours, theirs) = (which.lock(&first, &root), which.lock(&second, &root));
            let mut held = in_time(ours.acquire()).await.unwrap();
            for round in 0..4 {
                let waits = if round % 2 == 0 { &theirs } else { &ours };
                assert!(waits.try_acquire().await.unwrap().is_none(), "{which:?}");
                let waiter = acquiring(waits);
                env.wait_for_children(&first, &which.queue(&root), 2).await;
                assert!(!waiter.is_finished() && held.is_held(), "{which:?}");
                let token = held.token();
                assert_eq!(held.release().await.unwrap(), Release::Released);
                held = in_time(waiter).await.unwrap().unwrap();
                assert!(held.token() > token, "{which:?}");
            }
            assert!(held.release().await.unwrap().is_released());
            which.wait_until_free(&first, &root).await;
        }
    }

    /// A lock of any kind in any kind of collection, each with its own errors.
    async fn a_closed_client_is_told_by_every_lock(env) {
        let client = env.client().await;
        let locks: Vec<Box<dyn InterProcessLock>> =
            Which::ALL.into_iter().map(|which| Box::new(Boxed(which.lock(&client, &env.path("locks")))) as _).collect();
        client.close().await;
        for lock in &locks {
            for outcome in [
                in_time(lock.acquire()).await.map(Some),
                in_time(lock.try_acquire()).await,
                in_time(lock.acquire_timeout(Duration::from_secs(60))).await,
            ] {
                let closed = matches!(outcome, Err(LockError::Framework(curator_framework::Error::Closed)));
                assert!(closed, "{lock:?}: {outcome:?}");
            }
        }
    }

    /// A time-out leaves no node and no watch, whichever lock.
    async fn a_time_out_leaves_nothing(env) {
        let root = env.path("locks");
        let (holding, waiting) = (env.client().await, env.client().await);
        for which in Which::exclusive() {
            let held = which.lock(&holding, &root).acquire().await.unwrap();
            eventually("only the holder is there", async || {
                which.nodes(&holding, &root).await.len() == held.parts().count()
            })
            .await;
            let lock = which.lock(&waiting, &root);
            assert!(in_time(lock.acquire_timeout(Duration::from_millis(300))).await.unwrap().is_none(), "{which:?}");
            eventually("only the holder is left", async || {
                which.nodes(&holding, &root).await.len() == held.parts().count()
            })
            .await;
            // A semaphore watches its path as long as it is there.
            drop(lock);
            eventually("no watch is left", async || waiting.watchers() == 0).await;
            assert!(held.release().await.unwrap().is_released());
        }
    }

    /// And so does a future that is dropped, wherever it is.
    async fn a_dropped_acquire_leaves_nothing(env) {
        let root = env.path("locks");
        let (holding, waiting) = (env.client().await, env.client().await);
        let mut dropped = 0;
        for which in Which::exclusive() {
            let before = waiting.watchers();
            let lock = which.lock(&waiting, &root);
            assert!(in_time(lock.acquire()).await.unwrap().release().await.unwrap().is_released());
            eventually("nobody is there", async || which.nodes(&holding, &root).await.is_empty()).await;
            // A semaphore watches its path as long as it is there.
            let standing = waiting.watchers();
            for is_held in [false, true] {
                let held = if is_held { Some(which.lock(&holding, &root).acquire().await.unwrap()) } else { None };
                let kept = held.as_ref().map_or(0, |held| held.parts().count());
                let is_clean = async || which.nodes(&holding, &root).await.len() == kept;
                eventually("only the holder is there", is_clean).await;
                for polls in 1.. {
                    let acquire = poll_and_drop(lock.acquire(), polls);
                    let waits = eventually("it waits", async || waiting.watchers() > standing);
                    let outcome = tokio::select! {
                        outcome = acquire => Some(outcome),
                        () = waits => None,
                    };
                    let done = match outcome {
                        Some(Polled::Ready(granted)) => {
                            assert!(!is_held, "{which:?} was granted twice");
                            assert!(granted.unwrap().release().await.unwrap().is_released());
                            true
                        }
                        Some(Polled::Dropped) => false,
                        // The first listing sets a watch too.
                        None => polls > 1,
                    };
                    eventually("only the holder is left", is_clean).await;
                    let none_is_left = format!("{which:?}, {is_held}, {polls}: no watch but the {standing} before is left");
                    eventually(&none_is_left, async || waiting.watchers() == standing).await;
                    assert!(!lock.is_acquired_in_this_process());
                    if done {
                        break;
                    }
                    dropped += usize::from(!is_held);
                }
                if let Some(held) = held {
                    assert!(held.is_held());
                    assert!(held.release().await.unwrap().is_released());
                }
            }
            assert!(in_time(lock.acquire()).await.unwrap().release().await.unwrap().is_released());
            drop(lock);
            eventually("no watch of the lock is left", async || waiting.watchers() == before).await;
        }
        // No holder was in the way of these. On a busy machine one or the other is granted at its first poll.
        assert!(dropped > 5, "{dropped} in all");
    }

    /// A release beside others that wait at the same object wakes them. (Curator's removes all watches of the object.)
    async fn a_release_at_the_object_at_which_others_wait_wakes_them(env) {
        let root = env.path("locks");
        let client = env.client().await;
        for which in Which::exclusive() {
            let lock = which.lock(&client, &root);
            let held = lock.acquire().await.unwrap();
            let mut waiters = tokio::task::JoinSet::new();
            for _ in 0..3 {
                let lock = lock.clone();
                waiters.spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() });
            }
            let nodes = if which.queue(&root).ends_with("leases") && which != Which::OneDirectLease { 2 } else { 4 };
            which.wait_for_contenders(&env, &client, &root, nodes).await;
            assert!(held.release().await.unwrap().is_released());
            while let Some(served) = in_time(waiters.join_next()).await {
                assert_eq!(served.unwrap(), Release::Released, "{which:?}");
            }
        }
    }

    /// Closing the client ends a wait with an error that says so.
    async fn closing_the_client_ends_every_wait(env) {
        let root = env.path("locks");
        let observer = env.client().await;
        let waiting = env.client().await;
        let mut waits = Vec::new();
        for which in Which::exclusive() {
            let held = which.lock(&observer, &root).acquire().await.unwrap();
            let waiter = acquiring(&which.lock(&waiting, &root));
            env.wait_for_children(&observer, &which.queue(&root), 2).await;
            waits.push((which, held, waiter));
        }
        waiting.close().await;
        for (which, held, waiter) in waits {
            let outcome = in_time(waiter).await.unwrap();
            let closed = matches!(outcome, Err(LockError::Framework(Error::Closed)));
            assert!(closed, "{which:?}: {outcome:?}");
            eventually("only the holder is left", async || {
                which.nodes(&observer, &root).await.len() == held.parts().count()
            })
            .await;
            assert_eq!(held.release().await.unwrap(), Release::Released);
        }
    }

    /// The session ends while the lock is held; the release says so, and so does a further acquire of the owner.
    async fn a_release_after_the_session_has_ended_says_so(env) {
        let root = env.path("locks");
        let observer = env.client().await;
        let client = env.client().await;
        let mut held = Vec::new();
        let owner = LockOwner::new();
        let mutex = InterProcessMutex::new(client.clone(), env.path("named")).unwrap();
        let named = mutex.acquire_as(&owner).await.unwrap();
        for which in Which::ALL {
            let lock = which.lock(&client, &root);
            held.push((which, lock.acquire().await.unwrap(), lock));
        }
        env.kill_owner_of(&observer, named.node_path()).await;
        for (which, guard, lock) in &held {
            in_time(guard.lost()).await;
            assert!(!guard.is_held() && guard.remaining() == Duration::ZERO && !lock.is_acquired_in_this_process());
            let verified = in_time(guard.verify()).await;
            assert!(matches!(verified, Err(LockError::LockLost { .. })), "{which:?}: {verified:?}");
            let released = guard.release().await.unwrap();
            let told = matches!(released, Release::AlreadyLost(LossReason::Session(_) | LossReason::NodeDeleted));
            assert!(told, "{which:?}: {released:?}");
            which.wait_until_free(&observer, &root).await;
        }
        assert!(matches!(mutex.acquire_as(&owner).await, Err(LockError::LockLost { .. })));
        assert!(matches!(named.release().await.unwrap(), Release::AlreadyLost(_)));
        assert!(in_time(mutex.acquire_as(&owner)).await.unwrap().release().await.unwrap().is_released());
    }

    /// The delete of the inner mutex fails after the lease was granted: the lease is not lost, and the mutex goes later.
    async fn an_inner_mutex_that_cannot_be_released_costs_no_lease(env) {
        let path = env.path("semaphore");
        let proxy = env.proxy();
        let direct = env.client().await;
        let client = connected(builder(proxy.address()).session_timeout(Duration::from_secs(30))).await;
        let semaphore = InterProcessSemaphoreV2::new(client, &path, 2).unwrap();
        proxy.drop_request(OpCode::Delete, 1);
        let lease = in_time(semaphore.acquire()).await.unwrap();
        in_time(proxy.wait_for_faults(1)).await;
        env.wait_for_children(&direct, &format!("{path}/locks"), 0).await;
        assert!(lease.is_held());
        assert_eq!(children(&direct, &format!("{path}/leases")).await, [lease.node_name()]);
        let other = InterProcessSemaphoreV2::new(direct.clone(), &path, 2).unwrap();
        assert!(in_time(other.acquire()).await.unwrap().release().await.unwrap().is_released());
        assert_eq!(in_time(lease.release()).await.unwrap(), Release::Released);
    }

    /// Two replies in a row are lost.
    async fn two_lost_creates_leave_one_node(env) {
        let root = env.path("locks");
        let direct = env.client().await;
        for which in [Which::Mutex, Which::Write, Which::OneDirectLease] {
            let proxy = env.proxy();
            let client = connected(builder(proxy.address()).session_timeout(Duration::from_secs(30))).await;
            let lock = which.lock(&client, &root);
            // The folders are there.
            assert!(lock.acquire().await.unwrap().release().await.unwrap().is_released());
            proxy.drop_reply(OpCode::Create2, 1);
            proxy.drop_reply(OpCode::Create2, 2);
            let guard = in_time(lock.acquire()).await.unwrap();
            assert_eq!(proxy.faults_done(), 2, "{which:?}");
            assert_eq!(which.nodes(&direct, &root).await, [guard.node_path()]);
            let stat = direct.check_exists().for_path(guard.node_path()).await.unwrap().unwrap();
            assert_eq!(stat.czxid, guard.token().czxid().get());
            assert_eq!(in_time(guard.release()).await.unwrap(), Release::Released);
            assert_eq!(which.nodes(&direct, &root).await, [""; 0]);
            client.close().await;
        }
    }

    /// A create that lost its reply, and then its session, in a namespace: no lock on the node of the old session.
    async fn a_node_of_an_ended_session_is_not_trusted_in_a_namespace(env) {
        let namespace = env.path("ns");
        let proxy = env.proxy();
        let direct = env.client().await;
        let options = builder(proxy.address()).session_timeout(Duration::from_secs(30)).namespace(&namespace[1..]);
        let client = connected(options).await;
        let mutex = InterProcessMutex::new(client.clone(), "/lock").unwrap();
        assert!(mutex.acquire().await.unwrap().release().await.unwrap().is_released());
        proxy.refuse();
        proxy.drop_reply(OpCode::Create2, 1);
        let waiter = { let mutex = mutex.clone(); tokio::spawn(async move { mutex.acquire().await }) };
        in_time(proxy.wait_for_faults(1)).await;
        let folder = format!("{namespace}/lock");
        let old = env.wait_for_children(&direct, &folder, 1).await.remove(0);
        let old_session = direct.check_exists().for_path(&make_path(&folder, &old)).await.unwrap().unwrap().ephemeral_owner;
        env.kill_owner_of(&direct, &make_path(&folder, &old)).await;
        proxy.accept();
        let guard = in_time(waiter).await.unwrap().unwrap();
        assert!(guard.is_held() && guard.node_name() != old);
        let stat = direct.check_exists().for_path(&make_path(&folder, guard.node_name())).await.unwrap().unwrap();
        assert_ne!(stat.ephemeral_owner, old_session);
        assert_eq!(children(&direct, &folder).await, [guard.node_name()]);
        assert!(guard.release().await.unwrap().is_released());
    }

    /// Children that are not contenders do not count, for any lock. (Curator's semaphore counts them all.)
    async fn foreign_children_do_not_count(env) {
        let root = env.path("locks");
        let client = env.client().await;
        for which in Which::ALL {
            let mut foreign = 0;
            for folder in which.folders(&root) {
                for name in ["readme", "_c_no-number-", "lock-seven", "lease-"] {
                    if which == Which::OneDirectLease {
                        // An idle path of the direct protocol has no children.
                        continue;
                    }
                    foreign += 1;
                    let path = make_path(&folder, name);
                    client.create().creating_parents_if_needed().for_path(&path).await.unwrap();
                }
            }
            let lock = which.lock(&client, &root);
            let guard = in_time(lock.acquire()).await.unwrap();
            if which == Which::OneDirectLease {
                foreign += 1;
                client.create().for_path(&make_path(&which.folders(&root)[0], "readme")).await.unwrap();
            }
            if which != Which::Read {
                assert!(in_time(lock.try_acquire()).await.unwrap().is_none(), "{which:?}");
            }
            assert!(guard.release().await.unwrap().is_released());
            assert!(in_time(lock.acquire()).await.unwrap().release().await.unwrap().is_released());
            eventually("only the others' are left", async || which.nodes(&client, &root).await.len() == foreign).await;
        }
    }
}

/// A lock of another implementation.
#[derive(Debug)]
struct Boxed(Arc<dyn InterProcessLock>);

#[async_trait::async_trait]
impl InterProcessLock for Boxed {
    async fn acquire(&self) -> Result<curator_recipes::LockGuard, LockError> {
        self.0.acquire().await
    }

    async fn acquire_timeout(&self, budget: Duration) -> Result<Option<curator_recipes::LockGuard>, LockError> {
        self.0.acquire_timeout(budget).await
    }

    async fn try_acquire(&self) -> Result<Option<curator_recipes::LockGuard>, LockError> {
        self.0.try_acquire().await
    }

    fn is_acquired_in_this_process(&self) -> bool {
        self.0.is_acquired_in_this_process()
    }
}

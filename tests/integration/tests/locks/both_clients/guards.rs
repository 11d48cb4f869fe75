//! What guards, releases and tries promise, in every order in which they can be used.

use std::sync::Arc;
use std::time::Duration;

use curator_framework::CuratorFramework;
use curator_framework::recipe::RecipeClient as _;
use curator_integration::clients::is_zookeeper_async;
use curator_integration::env::{Env, answered, builder, children, connected, eventually, in_time, watchers};
use curator_integration::on_every_server;
use curator_recipes::{
    InterProcessMutex, InterProcessSemaphoreV2, LockError, LockOwner, LossReason, MutexGuard, Release,
};
use curator_test::wire::OpCode;
use curator_test::{FaultProxy, TestingServer};
use futures_util::FutureExt;

/// A way to let a guard go.
#[derive(Debug, Clone, Copy)]
enum Way {
    Release,
    Drop,
    /// A release: its future is dropped after its first poll.
    Cancel,
}

async fn let_go(guard: MutexGuard, way: Way, kept: &mut Vec<MutexGuard>) {
    match way {
        Way::Release => {
            assert_eq!(guard.release().await.unwrap(), Release::Released);
            kept.push(guard);
        }
        Way::Drop => drop(guard),
        Way::Cancel => {
            let polled = guard.release().now_or_never();
            drop(polled);
            drop(guard);
        }
    }
}

on_every_server! {
    async fn the_node_goes_with_the_last_guard_whatever_the_others_did(env) {
        let path = env.path("lock");
        let client = env.client().await;
        let mutex = InterProcessMutex::new(client.clone(), &path).unwrap();
        let ways = [Way::Release, Way::Drop, Way::Cancel];
        for first in ways {
            for second in ways {
                for third in ways {
                    let guard = in_time(mutex.acquire()).await.unwrap();
                    let (inner, innermost) = (guard.reenter().unwrap(), guard.reenter().unwrap());
                    // Released guards stay in scope.
                    let mut kept = Vec::new();
                    let_go(guard, first, &mut kept).await;
                    assert!(inner.is_held() && innermost.is_held());
                    assert_eq!(children(&client, &path).await.len(), 1);
                    let_go(inner, second, &mut kept).await;
                    assert_eq!(children(&client, &path).await.len(), 1);
                    let_go(innermost, third, &mut kept).await;
                    env.wait_for_children(&client, &path, 0).await;
                    assert!(kept.iter().all(|guard| !guard.is_held()), "{first:?} {second:?} {third:?}");
                }
            }
        }
    }

    async fn release_and_reenter_at_once_leave_no_lock(env) {
        let path = env.path("lock");
        let client = env.client().await;
        let mutex = InterProcessMutex::new(client.clone(), &path).unwrap();
        for _ in 0..50 {
            let guard = Arc::new(in_time(mutex.acquire()).await.unwrap());
            let entering = Arc::clone(&guard);
            let entered = tokio::spawn(async move { entering.reenter() });
            assert_eq!(guard.release().await.unwrap(), Release::Released);
            match entered.await.unwrap() {
                Ok(inner) => assert!(inner.is_held()),
                Err(error) => assert!(matches!(error, LockError::InvalidArgument { .. }), "{error}"),
            }
        }
        env.wait_for_children(&client, &path, 0).await;
    }

    async fn a_release_tells_the_truth_about_a_node_that_was_deleted_meanwhile(env) {
        let path = env.path("lock");
        let proxy = env.proxy();
        let direct = env.client().await;
        let client = connected(builder(proxy.address()).session_timeout(Duration::from_secs(30))).await;
        let mutex = InterProcessMutex::new(client.clone(), &path).unwrap();
        let guard = mutex.acquire().await.unwrap();
        let mut state = client.watch_connection_state();
        proxy.refuse();
        proxy.reset();
        in_time(state.wait_for(|state| *state == Some(curator_framework::ConnectionState::Suspended))).await.unwrap();
        // Once cancelled, once under way: nothing of it is sent.
        assert!(guard.release().now_or_never().is_none());
        let guard = Arc::new(guard);
        let releasing = Arc::clone(&guard);
        let released = tokio::spawn(async move { releasing.release().await });
        direct.delete().for_path(guard.node_path()).await.unwrap();
        let other = in_time(InterProcessMutex::new(direct.clone(), &path).unwrap().acquire()).await.unwrap();
        proxy.accept();
        let truth = Release::AlreadyLost(LossReason::NodeDeleted);
        assert_eq!(in_time(released).await.unwrap().unwrap(), truth);
        assert_eq!(guard.release().await.unwrap(), truth);
        assert!(other.is_held());
    }

    async fn a_lock_given_back_in_time_is_never_lost(env) {
        let client = env.client().await;
        let guard = InterProcessMutex::new(client.clone(), env.path("lock")).unwrap().acquire().await.unwrap();
        let lost = guard.lost();
        tokio::pin!(lost);
        assert!(lost.as_mut().now_or_never().is_none());
        assert!(guard.release().await.unwrap().is_released());
        client.close().await;
        assert!(lost.now_or_never().is_none() && guard.lost().now_or_never().is_none());
    }

    async fn a_node_deleted_after_a_reconnect_is_a_loss(env) {
        let path = env.path("lock");
        let proxy = env.proxy();
        let direct = env.client().await;
        // A tenth of the session is half a second: both ways of watching the holder's node come up.
        let client = connected(builder(proxy.address()).session_timeout(Duration::from_secs(5))).await;
        let mutex = InterProcessMutex::new(client.clone(), &path).unwrap();
        for waits in [false, true] {
            let guard = if waits {
                let held = InterProcessMutex::new(direct.clone(), &path).unwrap().acquire().await.unwrap();
                let mutex = mutex.clone();
                let waiter = tokio::spawn(async move { mutex.acquire().await.unwrap() });
                eventually("it waits", async || client.watchers() == 2).await;
                assert!(held.release().await.unwrap().is_released());
                in_time(waiter).await.unwrap()
            } else {
                in_time(mutex.acquire()).await.unwrap()
            };
            eventually("the own node is watched", async || client.watchers() == 1).await;
            let connections = proxy.total_connections();
            proxy.reset();
            in_time(proxy.wait_for_connections(connections + 1)).await;
            eventually("the own node is watched again", async || client.is_connected() && client.watchers() == 1).await;
            direct.delete().for_path(guard.node_path()).await.unwrap();
            assert_eq!(in_time(guard.lost()).await, LossReason::NodeDeleted);
            assert_eq!(guard.release().await.unwrap(), Release::AlreadyLost(LossReason::NodeDeleted));
        }
    }

    async fn a_failed_try_is_out_of_the_way_when_it_answers(env) {
        let path = env.path("lock");
        let proxy = env.proxy();
        let slow = InterProcessMutex::new(connected(builder(proxy.address())).await, &path).unwrap();
        let other = InterProcessMutex::new(env.client().await, &path).unwrap();
        let held = InterProcessMutex::new(env.client().await, &path).unwrap();
        proxy.latency(Duration::from_millis(10));
        for _ in 0..5 {
            let guard = held.acquire().await.unwrap();
            assert!(slow.try_acquire().await.unwrap().is_none());
            assert!(guard.release().await.unwrap().is_released());
            let free = other.try_acquire().await.unwrap().expect("nobody has it, nobody wants it");
            assert!(free.release().await.unwrap().is_released());
        }
    }

    async fn try_gets_a_free_lease_beside_a_client_that_is_taking_one(env) {
        let path = env.path("semaphore");
        let proxy = env.proxy();
        let slow = InterProcessSemaphoreV2::new(connected(builder(proxy.address())).await, &path, 3).unwrap();
        let other = InterProcessSemaphoreV2::new(env.client().await, &path, 3).unwrap();
        proxy.latency(Duration::from_millis(10));
        for _ in 0..5 {
            let lease = slow.acquire().await.unwrap();
            let free = other.try_acquire().await.unwrap().expect("two of three are free");
            assert!(free.release().await.unwrap().is_released());
            assert!(lease.release().await.unwrap().is_released());
        }
        // None is free: it says so at once, although another contender waits.
        let leases = [other.acquire().await.unwrap(), other.acquire().await.unwrap(), other.acquire().await.unwrap()];
        let waiter = tokio::spawn(async move { slow.acquire().await.unwrap() });
        env.wait_for_children(&env.client().await, &format!("{path}/leases"), 4).await;
        assert!(other.try_acquire().await.unwrap().is_none());
        drop(leases);
        assert!(in_time(waiter).await.unwrap().release().await.unwrap().is_released());
    }

    async fn a_try_without_an_answer_is_an_error(env) {
        let proxy = env.proxy();
        let options = builder(proxy.address()).session_timeout(Duration::from_secs(30));
        let client = connected(options.connection_timeout(Duration::from_millis(700))).await;
        let mutex = InterProcessMutex::new(client, env.path("lock")).unwrap();
        proxy.partition();
        let answer = in_time(mutex.try_acquire()).await;
        let Err(LockError::Framework(error)) = answer else { panic!("{answer:?}") };
        assert!(error.is_retryable() && error.outcome_unknown(), "{error}");
        proxy.repair();
    }

    async fn two_acquires_of_one_owner_at_once_both_enter(env) {
        let path = env.path("lock");
        let client = env.client().await;
        let mutex = InterProcessMutex::new(client.clone(), &path).unwrap();
        let (one, other) = in_time(LockOwner::scope(async { tokio::join!(mutex.acquire(), mutex.acquire()) })).await;
        let (one, other) = (one.unwrap(), other.unwrap());
        assert_eq!(one.node_path(), other.node_path());
        assert!(one.release().await.unwrap().is_released());
        assert!(other.is_held());
        assert!(other.release().await.unwrap().is_released());
        assert_eq!(children(&client, &path).await, Vec::<String>::new());
    }

    async fn a_reconnect_makes_no_waiter_list_again(env) {
        waiters_reconnect(&env, 1).await;
    }

    async fn a_reconnect_makes_no_waiter_among_other_sessions_list_again(env) {
        waiters_reconnect(&env, 10).await;
    }
}

/// Ten waiters in so many sessions lose their connections.
async fn waiters_reconnect(env: &Env, sessions: usize) {
    let path = env.path("lock");
    let proxy = env.proxy();
    let mut clients = Vec::new();
    for _ in 0..sessions {
        clients.push(connected(builder(proxy.address()).session_timeout(Duration::from_secs(30))).await);
    }
    let direct = env.client().await;
    let held = InterProcessMutex::new(direct, &path).unwrap().acquire().await.unwrap();
    let mut waiters = tokio::task::JoinSet::new();
    for place in 0..10 {
        let mutex = InterProcessMutex::new(clients[place % sessions].clone(), &path).unwrap();
        waiters.spawn(async move { mutex.acquire().await.unwrap().release().await.unwrap() });
    }
    // Each watches one node ahead and, after a tenth of the session timeout, its own: in one session the one behind does so
    // already.
    let asked = if sessions == 1 { 10 } else { 20 };
    eventually("all wait", async || watchers(&clients) == 20 && proxy.replies(OpCode::GetData) >= asked).await;
    answered(&clients).await;
    // The first listing from now on would be cut off, and counted.
    proxy.drop_reply(OpCode::GetChildren, 1);
    let connections = proxy.total_connections();
    let reads = proxy.replies(OpCode::GetData);
    proxy.reset();
    in_time(proxy.wait_for_connections(connections + sessions)).await;
    // The client sets the watches again, or the waiters do: those ahead at once.
    let again = async || {
        let set = match is_zookeeper_async() {
            true => proxy.replies(OpCode::GetData) >= reads + 10,
            false => proxy.replies(OpCode::SetWatches) >= sessions,
        };
        set && watchers(&clients) == 20
    };
    eventually("all wait again", async || clients.iter().all(CuratorFramework::is_connected) && again().await).await;
    assert_eq!(proxy.faults_done(), 0, "a waiter listed");
    assert!(is_zookeeper_async() || proxy.replies(OpCode::GetData) == reads, "a waiter read");
    assert!(held.release().await.unwrap().is_released());
    while let Some(served) = in_time(waiters.join_next()).await {
        assert_eq!(served.unwrap(), Release::Released);
    }
}

/// At the end of the counter a create with a lost reply has taken the name that its repetition would get.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_the_end_of_the_sequence_numbers_a_create_whose_reply_was_lost_is_found_again() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let client = connected(builder(proxy.address())).await;
    let mutex = InterProcessMutex::new(client.clone(), "/lock").unwrap();
    assert!(mutex.acquire().await.unwrap().release().await.unwrap().is_released());
    assert!(server.set_next_sequence("/lock", i32::MAX));
    proxy.drop_reply(OpCode::Create2, 1);
    let guard = in_time(mutex.acquire()).await.unwrap();
    assert_eq!(proxy.faults_done(), 1);
    assert_eq!(server.children("/lock").unwrap(), [guard.node_name()]);
    let stat = client.check_exists().for_path(guard.node_path()).await.unwrap().unwrap();
    assert_eq!(stat.czxid, guard.token().czxid().get());
    assert_eq!(in_time(guard.release()).await.unwrap(), Release::Released);
    assert!(server.children("/lock").unwrap().is_empty());
}

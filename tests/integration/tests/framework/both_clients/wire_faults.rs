//! A wire that misbehaves: no request gets another one's answer, no lock has two holders, no node is left.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{ConnectionState, CreateMode, CuratorFramework, Error};
use curator_integration::clients::is_zookeeper_async;
use curator_integration::env::{builder, connected, in_time};
use curator_integration::on_every_server;
use curator_recipes::{InterProcessMutex, LossReason, Release};
use curator_test::FaultProxy;
use curator_test::wire::OpCode;

async fn client_through(proxy: &FaultProxy) -> CuratorFramework {
    connected(builder(proxy.address())).await
}

on_every_server! {
    async fn a_create_whose_reply_was_lost_is_found_again(env) {
        for fault in [FaultProxy::drop_reply, FaultProxy::cut_frame, FaultProxy::drop_request] {
            let path = env.path("lock");
            let proxy = env.proxy();
            let direct = env.client().await;
            let mutex = InterProcessMutex::new(client_through(&proxy).await, &path).unwrap();
            assert!(mutex.acquire().await.unwrap().release().await.unwrap().is_released());
            fault(&proxy, OpCode::Create2, 1);
            let guard = in_time(mutex.acquire()).await.unwrap();
            assert_eq!(proxy.faults_done(), 1);
            let left = env.wait_for_children(&direct, &path, 1).await;
            assert_eq!(left, [guard.node_name()]);
            let stat = direct.check_exists().for_path(guard.node_path()).await.unwrap().unwrap();
            assert_eq!(stat.czxid, guard.token().czxid().get());
            assert_eq!(in_time(guard.release()).await.unwrap(), Release::Released);
            env.wait_for_children(&direct, &path, 0).await;
        }
    }

    async fn a_lost_reply_at_any_step_of_a_lock_leaves_one_holder_and_no_node(env) {
        let path = env.path("lock");
        let direct = env.client().await;
        let other = InterProcessMutex::new(direct.clone(), &path).unwrap();
        for fault in [FaultProxy::drop_reply, FaultProxy::cut_frame, FaultProxy::drop_request] {
            for op in [OpCode::Create2, OpCode::GetChildren, OpCode::GetData, OpCode::Delete] {
                let proxy = env.proxy();
                let mutex = InterProcessMutex::new(client_through(&proxy).await, &path).unwrap();
                let held = other.acquire().await.unwrap();
                fault(&proxy, op, 1);
                let inside = Arc::new(AtomicBool::new(true));
                let waiter = {
                    let inside = Arc::clone(&inside);
                    tokio::spawn(async move {
                        let guard = mutex.acquire().await.unwrap();
                        assert!(!inside.swap(true, Ordering::SeqCst), "two holders at once");
                        guard.release().await
                    })
                };
                if op == OpCode::Delete {
                    env.wait_for_children(&direct, &path, 2).await;
                } else {
                    in_time(proxy.wait_for_faults(1)).await;
                }
                inside.store(false, Ordering::SeqCst);
                assert!(held.release().await.unwrap().is_released());
                let released = in_time(waiter).await.unwrap().unwrap();
                assert_eq!(released, Release::Released, "{op:?}");
                assert_eq!(proxy.faults_done(), 1, "{op:?}");
                env.wait_for_children(&direct, &path, 0).await;
            }
        }
    }

    async fn an_acquire_dropped_after_its_reply_was_lost_leaves_no_node(env) {
        let path = env.path("lock");
        let proxy = env.proxy();
        let direct = env.client().await;
        let mutex = InterProcessMutex::new(client_through(&proxy).await, &path).unwrap();
        assert!(mutex.acquire().await.unwrap().release().await.unwrap().is_released());
        proxy.drop_reply(OpCode::Create2, 1);
        let acquire = { let mutex = mutex.clone(); tokio::spawn(async move { mutex.acquire().await }) };
        in_time(proxy.wait_for_faults(1)).await;
        acquire.abort();
        env.wait_for_children(&direct, &path, 0).await;
        assert!(in_time(mutex.acquire()).await.unwrap().release().await.unwrap().is_released());
    }

    /// A watch does not survive the connection, and no event reports what happened in the meantime.
    async fn a_release_during_an_outage_of_the_waiter_is_seen_after_it(env) {
        let path = env.path("lock");
        let proxy = env.proxy();
        let client = connected(builder(proxy.address()).session_timeout(Duration::from_secs(30))).await;
        let direct = env.client().await;
        let held = InterProcessMutex::new(direct.clone(), &path).unwrap().acquire().await.unwrap();
        let mutex = InterProcessMutex::new(client.clone(), &path).unwrap();
        let waiter = tokio::spawn(async move { mutex.acquire().await.unwrap() });
        curator_integration::env::eventually("both watches are set", async || client.watchers() == 2).await;
        proxy.refuse();
        proxy.reset();
        let mut state = client.watch_connection_state();
        in_time(state.wait_for(|state| *state == Some(ConnectionState::Suspended))).await.unwrap();
        assert!(held.release().await.unwrap().is_released());
        proxy.accept();
        assert!(in_time(waiter).await.unwrap().release().await.unwrap().is_released());
    }

    async fn a_session_swapped_in_silence_is_noticed_at_the_reconnect(env) {
        let path = env.path("lock");
        let proxy = env.proxy();
        let client = connected(builder(proxy.address()).session_timeout(Duration::from_secs(5))).await;
        let direct = env.client().await;
        let old = InterProcessMutex::new(client.clone(), &path).unwrap().acquire().await.unwrap();
        let mutex = InterProcessMutex::new(direct.clone(), &path).unwrap();
        let waiter = tokio::spawn(async move { mutex.acquire().await.unwrap() });
        env.wait_for_children(&direct, &path, 2).await;
        proxy.swap_session();
        proxy.reset();
        let reason = in_time(old.lost()).await;
        assert!(matches!(reason, LossReason::Session(_)), "{reason}");
        assert!(!waiter.is_finished(), "granted before the old holder was told");
        let new = in_time(waiter).await.unwrap();
        assert!(new.token() > old.token());
        assert!(new.release().await.unwrap().is_released());
        assert!(in_time(InterProcessMutex::new(client, &path).unwrap().acquire()).await.unwrap().release().await.unwrap().is_released());
        env.wait_for_children(&direct, &path, 0).await;
    }

    async fn a_connect_answer_at_two_seconds_shifts_no_reply(env) {
        // The crate `zookeeper-async` gives up a connect after 2 s and keeps reading the replies to it.
        for late in [1990, 1998, 2000, 2003, 2010] {
            let proxy = env.proxy();
            proxy.late_connect_answer(Duration::from_millis(late));
            let client = builder(proxy.address()).session_timeout(Duration::from_secs(20)).build().unwrap();
            client.start().unwrap();
            let connecting = tokio::spawn({
                let client = client.clone();
                async move { client.block_until_connected().await }
            });
            // With `zookeeper-async` the handshake's connect, then the crate's. The default client needs no handshake.
            let connects = if !is_zookeeper_async() { 1 } else { 2 };
            in_time(proxy.wait_for_connections(connects)).await;
            // One more only if the crate has given that up.
            let given_up = proxy.wait_for_connections(connects + 1);
            let _given_up = tokio::time::timeout(Duration::from_millis(2100), given_up).await;
            proxy.late_connect_answer(Duration::ZERO);
            in_time(connecting).await.unwrap().unwrap();
            // Every answer is its own request's.
            let root = env.path(&format!("late-{late}"));
            let mut all = tokio::task::JoinSet::new();
            for number in 0..40 {
                let (client, path) = (client.clone(), format!("{root}/{number}"));
                all.spawn(async move {
                    let data = format!("data of {number}").into_bytes();
                    let created = client.create().creating_parents_if_needed().with_data(data.clone()).for_path(&path).await;
                    assert_eq!(created.unwrap(), path);
                    assert_eq!(client.get_data().for_path(&path).await.unwrap().0, data);
                    assert!(client.check_exists().for_path(&format!("{path}/none")).await.unwrap().is_none());
                    assert!(matches!(client.get_data().for_path(&format!("{path}/none")).await, Err(Error::NoNode { .. })));
                });
            }
            while let Some(done) = in_time(all.join_next()).await {
                done.unwrap();
            }
            client.close().await;
        }
    }

    async fn a_reset_under_many_requests_gives_each_its_own_answer(env) {
        let proxy = env.proxy();
        let client = client_through(&proxy).await;
        let root = env.path("many");
        client.create().creating_parents_if_needed().for_path(&root).await.unwrap();
        let mut all = tokio::task::JoinSet::new();
        for number in 0..24 {
            let (client, path) = (client.clone(), format!("{root}/{number}"));
            client.create().with_data(path.clone()).for_path(&path).await.unwrap();
            all.spawn(async move {
                for _ in 0..40 {
                    assert_eq!(client.get_data().for_path(&path).await.unwrap().0, path.as_bytes());
                    assert!(client.check_exists().for_path(&format!("{path}/none")).await.unwrap().is_none());
                }
            });
        }
        for _ in 0..5 {
            let connections = proxy.total_connections();
            proxy.cut_frame(OpCode::GetData, 7);
            // Unless all are done before the seventh read.
            tokio::select! {
                () = in_time(proxy.wait_for_connections(connections + 1)) => {}
                Some(done) = all.join_next() => done.unwrap(),
            }
        }
        while let Some(done) = in_time(all.join_next()).await {
            done.unwrap();
        }
    }

    /// Curator's `TestFrameworkEdges.testMissedResponseOnESCreate`, and of the other modes.
    async fn a_protected_create_is_found_again_in_every_mode(env) {
        let proxy = env.proxy();
        let client = client_through(&proxy).await;
        for mode in [
            CreateMode::Persistent,
            CreateMode::PersistentSequential,
            CreateMode::Ephemeral,
            CreateMode::EphemeralSequential,
        ] {
            let parent = env.path(&format!("{mode:?}"));
            client.create().creating_parents_if_needed().for_path(&parent).await.unwrap();
            let faults = proxy.faults_done();
            proxy.drop_reply(OpCode::Create2, 1);
            let (path, stat) = in_time(client.create().with_protection().with_mode(mode).with_data("x").for_path_with_stat(&format!("{parent}/node"))).await.unwrap();
            assert_eq!(proxy.faults_done(), faults + 1);
            assert_eq!(client.check_exists().for_path(&path).await.unwrap(), Some(stat));
            assert_eq!(curator_integration::env::children(&client, &parent).await.len(), 1);
        }
    }
}

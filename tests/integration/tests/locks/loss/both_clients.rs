//! How a lock is lost, and when that is reported.

use std::time::{Duration, Instant};

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{ConnectionState, SessionEnd};
use curator_integration::clients::is_zookeeper_async;
use curator_integration::env::{builder, connected, in_time};
use curator_integration::on_every_server;
use curator_recipes::{InterProcessMutex, LockError, LockOwner, LossReason, Release};

on_every_server! {
    /// Curator's `TestInterProcessMutexBase.testKilledSession`, where the holder keeps believing.
    async fn a_killed_session_hands_the_lock_to_the_next_waiter_and_tells_the_old_holder(env) {
        let path = env.path("lock");
        let (first, second) = (env.client().await, env.client().await);
        let old = InterProcessMutex::new(first.clone(), &path).unwrap().acquire().await.unwrap();
        let mutex = InterProcessMutex::new(second.clone(), &path).unwrap();
        let waiter = tokio::spawn(async move { mutex.acquire().await.unwrap() });
        env.wait_for_children(&second, &path, 2).await;
        env.kill_owner_of(&second, old.node_path()).await;
        let new = in_time(waiter).await.unwrap();
        let reason = in_time(old.lost()).await;
        assert!(matches!(reason, LossReason::Session(_) | LossReason::NodeDeleted), "{reason}");
        assert!(!old.is_held() && old.remaining() == Duration::ZERO);
        assert!(matches!(old.release().await.unwrap(), Release::AlreadyLost(_)));
        assert!(new.is_held() && new.token() > old.token());
        assert!(new.release().await.unwrap().is_released());
        // The client of the killed session is usable again.
        let again = in_time(InterProcessMutex::new(first, &path).unwrap().acquire()).await.unwrap();
        assert!(again.token() > new.token());
    }

    /// Curator's `TestEnabledSessionExpiredState.testKillSession`.
    async fn a_killed_session_is_told_as_lost_also_if_nothing_is_held(env) {
        let client = builder(env.address()).build().unwrap();
        let (told, states) = std::sync::mpsc::channel();
        client.connection_state_listenable().add_listener(move |_, state| {
            told.send(state).unwrap();
        });
        client.start().unwrap();
        let node = env.path("node");
        let ephemeral = curator_framework::CreateMode::Ephemeral;
        let (_, stat) = in_time(
            client.create().creating_parents_if_needed().with_mode(ephemeral).for_path_with_stat(&node),
        )
        .await
        .unwrap();
        client.delete().for_path(&node).await.unwrap();
        curator_test::kill_session(env.address(), stat.ephemeral_owner).await.unwrap();
        let next = || tokio::task::block_in_place(|| states.recv_timeout(curator_integration::env::PATIENCE).unwrap());
        assert_eq!(next(), ConnectionState::Connected);
        assert_eq!(next(), ConnectionState::Suspended);
        // It may have attached again before the session was closed.
        let mut state = next();
        while state == ConnectionState::Reconnected {
            assert_eq!(next(), ConnectionState::Suspended);
            state = next();
        }
        assert_eq!(state, ConnectionState::Lost);
        assert_eq!(next(), ConnectionState::Reconnected);
        let (_, again) = client.create().with_mode(ephemeral).for_path_with_stat(&node).await.unwrap();
        assert_ne!(again.ephemeral_owner, stat.ephemeral_owner);
    }

    async fn a_waiter_whose_session_is_killed_joins_again(env) {
        let path = env.path("lock");
        let (first, second) = (env.client().await, env.client().await);
        let guard = InterProcessMutex::new(first.clone(), &path).unwrap().acquire().await.unwrap();
        let mutex = InterProcessMutex::new(second, &path).unwrap();
        let waiter = tokio::spawn(async move { mutex.acquire().await.unwrap() });
        let nodes = env.wait_for_children(&first, &path, 2).await;
        let waiting = nodes.iter().find(|node| *node != guard.node_name()).unwrap();
        env.kill_owner_of(&first, &format!("{path}/{waiting}")).await;
        curator_integration::env::eventually("the waiter is back", async || {
            let now = curator_integration::env::children(&first, &path).await;
            now.len() == 2 && !now.contains(waiting)
        })
        .await;
        assert!(!waiter.is_finished());
        assert!(guard.release().await.unwrap().is_released());
        assert!(in_time(waiter).await.unwrap().release().await.unwrap().is_released());
    }

    /// However deep in the queue: one without a watch on its node looks after a tenth of the session timeout.
    async fn waiters_whose_nodes_are_deleted_join_again(env) {
        let client = env.client().await;
        let mutex = InterProcessMutex::new(client.clone(), env.path("lock")).unwrap();
        let guard = mutex.acquire().await.unwrap();
        let mut waiters = tokio::task::JoinSet::new();
        for _ in 0..3 {
            let mutex = mutex.clone();
            waiters.spawn(async move { mutex.acquire().await.unwrap().release().await.unwrap() });
        }
        let mut nodes = env.wait_for_children(&client, mutex.path(), 4).await;
        nodes.retain(|node| node != guard.node_name());
        nodes.sort_unstable();
        // From the last one on: no other node is touched, so only its own node can show it.
        for node in nodes.iter().rev() {
            client.delete().for_path(&format!("{}/{node}", mutex.path())).await.unwrap();
            curator_integration::env::eventually("the waiter is back", async || {
                let now = curator_integration::env::children(&client, mutex.path()).await;
                now.len() == 4 && !now.contains(node)
            })
            .await;
        }
        assert!(guard.release().await.unwrap().is_released());
        while let Some(released) = in_time(waiters.join_next()).await {
            assert_eq!(released.unwrap(), Release::Released);
        }
    }

    async fn a_node_that_is_watched_for_its_owner_and_for_the_one_behind_tells_both(env) {
        // A session so long that no client watches its node only because it waits or holds for long.
        let options = builder(env.address()).session_timeout(Duration::from_secs(60));
        let (client, other) = (connected(options).await, env.client().await);
        let mutex = InterProcessMutex::new(client.clone(), env.path("lock")).unwrap();
        let guard = mutex.acquire().await.unwrap();
        let mut line = std::collections::VecDeque::new();
        for place in 1..=3 {
            let joining = mutex.clone();
            line.push_back(tokio::spawn(async move { joining.acquire().await.unwrap() }));
            // A watch each, and the first one and the holder watch their own nodes. One that joins before the last
            // one has its reply would wait for another node.
            curator_integration::env::eventually("it waits", async || client.watchers() == place + 2).await;
        }
        assert!(guard.release().await.unwrap().is_released());
        let first = in_time(line.pop_front().unwrap()).await.unwrap();
        let mut nodes = curator_integration::env::children(&client, mutex.path()).await;
        nodes.sort_unstable_by_key(|node| node[node.len() - 10..].to_owned());
        // The second one, now the next, has joined the third one's watch on its node, and goes to the end of the line.
        curator_integration::env::eventually("the next one watches its node", async || client.watchers() == 4).await;
        other.delete().for_path(&format!("{}/{}", mutex.path(), nodes[1])).await.unwrap();
        curator_integration::env::eventually("it is back", async || {
            let now = curator_integration::env::children(&client, mutex.path()).await;
            now.len() == 3 && !now.contains(&nodes[1])
        })
        .await;
        assert!(first.release().await.unwrap().is_released());
        let second = line.pop_front().unwrap();
        let third = in_time(line.pop_front().unwrap()).await.unwrap();
        assert!(!second.is_finished());
        // A holder keeps the watch that it had as the next.
        other.delete().for_path(third.node_path()).await.unwrap();
        assert_eq!(in_time(third.lost()).await, LossReason::NodeDeleted);
        let second = in_time(second).await.unwrap();
        assert!(second.is_held());
        assert_eq!(second.release().await.unwrap(), Release::Released);
    }

    async fn a_holder_whose_node_is_deleted_learns_of_it(env) {
        let client = env.client().await;
        let mutex = InterProcessMutex::new(client.clone(), env.path("lock")).unwrap();
        // One that waited has a watch on its node already; one that did not gets it after a tenth of the session
        // timeout.
        let guard = mutex.acquire().await.unwrap();
        let waited = { let mutex = mutex.clone(); tokio::spawn(async move { mutex.acquire().await.unwrap() }) };
        env.wait_for_children(&client, mutex.path(), 2).await;
        client.delete().for_path(guard.node_path()).await.unwrap();
        assert_eq!(in_time(guard.lost()).await, LossReason::NodeDeleted);
        assert_eq!(guard.release().await.unwrap(), Release::AlreadyLost(LossReason::NodeDeleted));
        let waited = in_time(waited).await.unwrap();
        client.delete().for_path(waited.node_path()).await.unwrap();
        assert_eq!(in_time(waited.lost()).await, LossReason::NodeDeleted);
        assert!(!waited.is_held());
    }

    async fn an_inner_acquire_over_a_lost_guard_is_an_error(env) {
        let client = env.client().await;
        let mutex = InterProcessMutex::new(client.clone(), env.path("lock")).unwrap();
        let owner = LockOwner::new();
        let outer = mutex.acquire_as(&owner).await.unwrap();
        env.kill_owner_of(&client, outer.node_path()).await;
        in_time(outer.lost()).await;
        assert!(matches!(mutex.acquire_as(&owner).await, Err(LockError::LockLost { .. })));
        assert!(matches!(outer.reenter(), Err(LockError::LockLost { .. })));
        drop(outer);
        assert!(in_time(mutex.acquire_as(&owner)).await.unwrap().release().await.unwrap().is_released());
    }

    /// Reads prove nothing about the session, so they must not take the place of the heartbeat that does.
    async fn a_holder_that_reads_all_the_time_keeps_its_lock(env) {
        let timeout = Duration::from_secs(3);
        let client = connected(builder(env.address()).session_timeout(timeout)).await;
        let guard = InterProcessMutex::new(client.clone(), env.path("lock")).unwrap().acquire().await.unwrap();
        let until = Instant::now() + timeout * 3 / 2;
        while Instant::now() < until {
            client.get_data().for_path(guard.node_path()).await.unwrap();
            assert!(guard.is_held());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }

    async fn a_holder_cut_off_in_silence_is_told_before_the_next_one_is_granted(env) {
        let path = env.path("lock");
        let proxy = env.proxy();
        let timeout = Duration::from_secs(4);
        let cut_off = connected(builder(proxy.address()).session_timeout(timeout)).await;
        let other = env.client().await;
        let old = InterProcessMutex::new(cut_off.clone(), &path).unwrap().acquire().await.unwrap();
        let mutex = InterProcessMutex::new(other.clone(), &path).unwrap();
        let waiter = tokio::spawn(async move {
            let guard = mutex.acquire().await.unwrap();
            (guard, Instant::now())
        });
        env.wait_for_children(&other, &path, 2).await;
        let connections = proxy.connections();
        proxy.partition();
        let lost = async {
            let reason = old.lost().await;
            (reason, Instant::now())
        };
        let (reason, told) = in_time(lost).await;
        assert!(!waiter.is_finished(), "granted before the old holder was told");
        assert!(!old.is_held());
        assert!(proxy.connections() >= connections, "nobody closed a connection");
        let (new, granted) = in_time(waiter).await.unwrap();
        assert_eq!(reason, LossReason::Session(SessionEnd::DeadlinePassed));
        assert!(told < granted, "told {:?} after the grant", told - granted);
        assert!(new.token() > old.token());
        proxy.repair();
        assert!(new.release().await.unwrap().is_released());
        assert!(in_time(InterProcessMutex::new(cut_off, &path).unwrap().acquire()).await.unwrap().release().await.unwrap().is_released());
    }

    async fn a_frozen_server_suspends_at_two_thirds_and_loses_at_three_quarters(env) {
        let env = env.alone();
        let timeout = Duration::from_secs(6);
        let client = connected(builder(env.address()).session_timeout(timeout)).await;
        let mutex = InterProcessMutex::new(client.clone(), env.path("lock")).unwrap();
        let guard = mutex.acquire().await.unwrap();
        let mut state = client.watch_connection_state();
        // The last answer that counts: a write, sent now.
        let before = Instant::now();
        client.set_data().for_path(&env.path("lock"), "x").await.unwrap();
        let after = Instant::now();
        env.freeze();
        in_time(state.wait_for(|state| *state == Some(ConnectionState::Suspended))).await.unwrap();
        let suspended = Instant::now();
        assert!(guard.is_held());
        let reason = in_time(guard.lost()).await;
        let lost = Instant::now();
        assert!(!guard.is_held());
        in_time(state.wait_for(|state| *state == Some(ConnectionState::Lost))).await.unwrap();
        env.thaw();
        assert_eq!(reason, LossReason::Session(SessionEnd::DeadlinePassed));
        // Our client gives a silent connection up itself while something is held.
        let silent = if is_zookeeper_async() { timeout * 2 / 3 } else { timeout / 3 };
        for (name, at, due) in [("suspended", suspended, silent), ("lost", lost, timeout * 3 / 4)] {
            assert!(at >= before + due, "{name} {:?} too early", before + due - at);
            assert!(at < after + due + Duration::from_secs(1), "{name} {:?} too late", at - (after + due));
        }
        assert!(lost < before + timeout, "never after the whole");
        in_time(state.wait_for(|state| *state == Some(ConnectionState::Reconnected))).await.unwrap();
        assert!(in_time(mutex.acquire()).await.unwrap().release().await.unwrap().is_released());
    }

    /// Curator's `TestInterProcessMutexBase.testWaitingProcessKilledServer`.
    async fn a_wait_survives_a_restart_of_the_server(env) {
        let env = env.alone();
        let path = env.path("lock");
        let options = || builder(env.address()).session_timeout(Duration::from_secs(30));
        let (first, second) = (connected(options()).await, connected(options()).await);
        let guard = InterProcessMutex::new(first.clone(), &path).unwrap().acquire().await.unwrap();
        let mutex = InterProcessMutex::new(second.clone(), &path).unwrap();
        let waiter = tokio::spawn(async move { mutex.acquire().await.unwrap() });
        env.wait_for_children(&first, &path, 2).await;
        env.restart().await;
        let mut state = first.watch_connection_state();
        in_time(state.wait_for(|state| *state == Some(ConnectionState::Reconnected))).await.unwrap();
        assert!(guard.is_held(), "the session outlived the restart");
        assert!(!waiter.is_finished());
        assert_eq!(in_time(guard.release()).await.unwrap(), Release::Released);
        let next = in_time(waiter).await.unwrap();
        assert!(next.token() > guard.token());
        assert!(next.release().await.unwrap().is_released());
        env.wait_for_children(&first, &path, 0).await;
    }

    async fn dropping_the_client_without_close_lets_another_one_in_at_once(env) {
        let path = env.path("lock");
        let other = env.client().await;
        // A session of a minute: the test does not wait for its end.
        let client = connected(builder(env.address()).session_timeout(Duration::from_secs(60))).await;
        let guard = InterProcessMutex::new(client, &path).unwrap().acquire().await.unwrap();
        let node = guard.node_path().to_owned();
        let mutex = InterProcessMutex::new(other.clone(), &path).unwrap();
        let waiter = tokio::spawn(async move { mutex.acquire().await.unwrap() });
        env.wait_for_children(&other, &path, 2).await;
        // The guard keeps the client, so it is the last one.
        let start = Instant::now();
        drop(guard);
        drop(in_time(waiter).await.unwrap());
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        assert!(other.check_exists().for_path(&node).await.unwrap().is_none());
    }

    async fn a_client_dropped_while_it_reconnects_ends_its_session(env) {
        let other = env.client().await;
        for number in 0..10 {
            let node = env.path(&format!("node-{number}"));
            let proxy = env.proxy();
            let client = connected(builder(proxy.address()).session_timeout(Duration::from_secs(60))).await;
            let ephemeral = curator_framework::CreateMode::Ephemeral;
            client.create().creating_parents_if_needed().with_mode(ephemeral).for_path(&node).await.unwrap();
            let connections = proxy.total_connections();
            proxy.reset();
            if number % 2 == 0 {
                in_time(proxy.wait_for_connections(connections + 1)).await;
            }
            drop(client);
            curator_integration::env::eventually("the session is closed", async || {
                other.check_exists().for_path(&node).await.unwrap().is_none()
            })
            .await;
        }
    }

    async fn a_client_dropped_with_nothing_held_ends_its_session(env) {
        let path = env.path("lock");
        let other = env.client().await;
        let client = connected(builder(env.address()).session_timeout(Duration::from_secs(60))).await;
        let ephemeral = curator_framework::CreateMode::Ephemeral;
        client.create().creating_parents_if_needed().with_mode(ephemeral).for_path(&format!("{path}/node")).await.unwrap();
        drop(client);
        env.wait_for_children(&other, &path, 0).await;
    }
}

//! Bad days: Curator's `TestFrameworkEdges`.

use std::sync::mpsc;
use std::time::Duration;

use curator_framework::{
    Acl, ConnectionState, CreateMode, CuratorFramework, Error, RetryAttempt, RetryNTimes, RetryPolicy, WakeReason,
};
use curator_test::{ClientId, SimulatedEnsemble, kill_session};

use crate::env::{PATIENCE, builder, connected, in_time};
use crate::ground::{GROUNDS, acl_of, cut_off, exists, impatient, run};

/// One retry, after a pause that nobody can wait for.
#[derive(Debug)]
struct InfinitePause;

impl RetryPolicy for InfinitePause {
    fn next_pause(&self, _: RetryAttempt) -> Option<Duration> {
        Some(Duration::from_secs(1_000_000))
    }
}

on_every_server! {
    /// Curator's `TestFrameworkEdges.testQuickClose`.
    async fn a_client_may_be_closed_as_soon_as_it_is_started(env) {
        for _ in 0..5 {
            let client = builder(env.address()).build().unwrap();
            client.start().unwrap();
            in_time(client.close()).await;
            let client = builder(env.address()).build().unwrap();
            in_time(client.close()).await;
            assert!(matches!(client.start(), Err(Error::Closed)));
        }
    }

    /// Curator's `TestFrameworkEdges.testNotStarted` and `testStopped`.
    async fn a_client_that_does_not_run_says_so(env) {
        let client = builder(env.address()).build().unwrap();
        assert!(matches!(in_time(client.get_data().for_path("/")).await, Err(Error::NotStarted)));
        client.start().unwrap();
        assert!(matches!(client.start(), Err(Error::AlreadyStarted)));
        in_time(client.get_data().for_path("/")).await.unwrap();
        client.close().await;
        assert!(matches!(in_time(client.get_data().for_path("/")).await, Err(Error::Closed)));
        assert!(matches!(in_time(client.using_namespace("ns").unwrap().get_data().for_path("/")).await, Err(Error::Closed)));
    }

    /// Curator's `TestFrameworkEdges.testReconnectAfterLoss`, `testFailure` and `connectionLossWithBackgroundTest`.
    async fn what_is_asked_while_nobody_answers_fails_and_works_again_later(env) {
        let proxy = env.proxy();
        let client = connected(impatient(&proxy)).await;
        cut_off(&proxy, &client).await;
        for background in GROUNDS {
            let reader = client.clone();
            let read = run(background, async move { reader.get_data().for_path("/").await }).await;
            assert!(matches!(read, Err(Error::ConnectionLoss { .. } | Error::SessionExpired { .. })), "{read:?}");
        }
        proxy.accept();
        in_time(client.block_until_connected()).await.unwrap();
        in_time(client.get_data().for_path("/")).await.unwrap();
    }

    /// Curator's `TestFrameworkEdges.testBackgroundLatencyUnSleep`: who waits for a connection is woken by it, whatever the
    /// pauses of the policy.
    async fn what_waits_for_a_connection_runs_as_soon_as_it_is_there(env) {
        let proxy = env.proxy();
        let client = connected(builder(proxy.address()).connection_timeout(PATIENCE).retry_policy(InfinitePause)).await;
        cut_off(&proxy, &client).await;
        let waiting: Vec<_> = (0..10)
            .map(|number| {
                let (client, path) = (client.clone(), env.path(&format!("{number}")));
                tokio::spawn(async move { client.create().creating_parents_if_needed().for_path(&path).await })
            })
            .collect();
        tokio::task::yield_now().await;
        assert!(waiting.iter().all(|waiting| !waiting.is_finished()));
        proxy.accept();
        for created in waiting {
            in_time(created).await.unwrap().unwrap();
        }
    }

    /// Curator's `TestFrameworkEdges.testCreateContainersForBadConnect`.
    async fn containers_are_made_when_the_server_comes_at_last(env) {
        let proxy = env.proxy();
        proxy.refuse();
        let client = builder(proxy.address()).connection_timeout(PATIENCE).build().unwrap();
        client.start().unwrap();
        let path = env.path("this/does/not/exist");
        let (creator, below) = (client.clone(), path.clone());
        let creating = tokio::spawn(async move { creator.create_containers(&below).await });
        in_time(proxy.wait_for_connections(2)).await;
        assert!(!creating.is_finished());
        proxy.accept();
        in_time(creating).await.unwrap().unwrap();
        assert!(exists(&client, &path).await);
    }

    /// Curator's `TestFrameworkEdges.testGetAclNoStat`.
    async fn a_list_can_be_read_without_a_look_at_its_stat(env) {
        let client = env.client().await;
        assert_eq!(acl_of(&client, "/").await, Acl::open_unsafe());
        let missing = client.get_acl().for_path(&env.path("none")).await;
        assert!(matches!(missing, Err(Error::NoNode { .. })), "{missing:?}");
    }

    /// Curator's `TestFrameworkEdges.testSessionKilled` and `testInjectSessionExpiration`.
    async fn a_killed_session_is_told_to_watches_and_costs_no_data(env) {
        let client = env.client().await;
        let node = env.path("node");
        client.create().creating_parents_if_needed().with_data("stays").for_path(&node).await.unwrap();
        let session = client.session().await.unwrap();
        let ephemeral = client.create().with_mode(CreateMode::Ephemeral);
        let (_, stat) = ephemeral.for_path_with_stat(&env.path("ephemeral")).await.unwrap();
        let (_, mut watch) = client.check_exists().watched().for_path(&env.path("never")).await.unwrap();
        kill_session(env.address(), stat.ephemeral_owner).await.unwrap();
        // It may have attached again before the session was closed. A watch that is set then may be the next session's.
        loop {
            let reason = in_time(async {
                tokio::select! {
                    biased;
                    reason = &mut watch => Some(reason),
                    _ = session.ended() => None,
                }
            });
            match reason.await {
                Some(WakeReason::Reconnected) => {}
                Some(reason) => break assert!(matches!(reason, WakeReason::SessionEnded(_)), "{reason:?}"),
                None => break,
            }
            watch = client.check_exists().watched().for_path(&env.path("never")).await.unwrap().1;
        }
        assert_eq!(in_time(client.get_data().for_path(&node)).await.unwrap().0, b"stays");
        let mut state = client.watch_connection_state();
        in_time(state.wait_for(|state| state.is_some_and(ConnectionState::is_connected))).await.unwrap();
        assert!(!exists(&client, &env.path("ephemeral")).await);
    }

    /// Curator's `TestFrameworkEdges.testNestedCalls`: a listener may wait for an operation.
    async fn a_listener_may_ask_for_something_and_wait_for_it(env) {
        let client = builder(env.address()).build().unwrap();
        let (told, answers) = mpsc::channel();
        let runtime = tokio::runtime::Handle::current();
        let node = env.path("node");
        let path = node.clone();
        client.connection_state_listenable().add_listener(move |client: &CuratorFramework, state| {
            if state == ConnectionState::Connected {
                let create = client.create().creating_parents_if_needed().with_data("nested");
                runtime.block_on(create.for_path(&path)).unwrap();
                told.send(runtime.block_on(client.get_data().for_path(&path)).unwrap().0).unwrap();
            }
        });
        client.start().unwrap();
        let answer = tokio::task::block_in_place(|| answers.recv_timeout(PATIENCE)).unwrap();
        assert_eq!(answer, b"nested");
        assert!(exists(&client, &node).await);
    }
}

/// Curator's `TestFrameworkEdges.testBackgroundFailure`, `TestFramework.testConnectionState` and
/// `testSessionLossWithLongTimeout`: the states of a long silence, and what is asked meanwhile.
#[tokio::test(start_paused = true)]
async fn a_long_silence_is_suspended_then_lost_then_reconnected() {
    let ensemble = SimulatedEnsemble::new(1, Duration::from_millis(5));
    for (id, session_timeout) in [(1, Duration::from_secs(4)), (2, Duration::from_secs(3600))] {
        let id = ClientId(id);
        let options = ensemble.client(id).session_timeout(session_timeout).connection_timeout(Duration::from_secs(2));
        let client = options.retry_policy(RetryNTimes::new(1, Duration::from_millis(10))).build().unwrap();
        client.start().unwrap();
        client.block_until_connected().await.unwrap();
        let mut state = client.watch_connection_state();
        assert_eq!(*state.borrow_and_update(), Some(ConnectionState::Connected));
        ensemble.partition(id);
        let asked = tokio::spawn({
            let client = client.clone();
            async move { client.get_data().for_path("/").await }
        });
        let mut states = Vec::new();
        for _ in 0..2 {
            state.changed().await.unwrap();
            states.extend(*state.borrow_and_update());
        }
        assert_eq!(states, [ConnectionState::Suspended, ConnectionState::Lost]);
        let asked = asked.await.unwrap();
        assert!(matches!(asked, Err(Error::ConnectionLoss { .. } | Error::SessionExpired { .. })), "{asked:?}");
        ensemble.repair(id);
        state.changed().await.unwrap();
        assert_eq!(*state.borrow_and_update(), Some(ConnectionState::Reconnected));
        client.get_data().for_path("/").await.unwrap();
        client.close().await;
    }
}

/// Curator's `TestFrameworkEdges.testValidateConnectionEventRaces` (CURATOR-525): however close to the loss the connection
/// comes back, the last word is that it is there, and it is true.
#[tokio::test(start_paused = true)]
async fn whenever_a_silence_ends_the_last_word_is_reconnected() {
    let ensemble = SimulatedEnsemble::new(2, Duration::from_millis(5));
    let timeout = Duration::from_secs(4);
    let mut lost = 0;
    for number in 0..120 {
        let id = ClientId(number);
        let options = ensemble.client(id).session_timeout(timeout).connection_timeout(timeout);
        let client = options.retry_policy(RetryNTimes::new(3, Duration::from_millis(10))).build().unwrap();
        client.start().unwrap();
        client.block_until_connected().await.unwrap();
        let session = client.session().await.unwrap().number();
        ensemble.partition(id);
        // From before it is suspended to after it is lost.
        tokio::time::sleep(timeout / 2 + timeout / 200 * number).await;
        ensemble.repair(id);
        tokio::time::sleep(timeout * 2).await;
        let after = client.session().await.unwrap().number();
        let state = client.connection_state().unwrap();
        assert!(state.is_connected(), "{number}: {state}");
        client.get_data().for_path("/").await.unwrap();
        lost += u32::from(after != session);
        client.close().await;
    }
    assert!((20..100).contains(&lost), "both were to happen: {lost} of 120 were lost");
}

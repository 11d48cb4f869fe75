//! The states that a client goes through, and the ones that its listeners get.

use std::time::Duration;

use curator_framework::spi::HandleEvent;
use curator_framework::{ConnectionState, CreateMode, Error, RetryNTimes, SessionEnd, WakeReason};
use curator_integration::connection_stage::{CLIENT, Puppets, TIMEOUT, Told, comes_to, simulated, simulation};
use curator_integration::env::{builder, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::InterProcessMutex;
use curator_test::{ClientId, FaultProxy, SimulatedEnsemble, TestingServer};
use tokio::time::{Instant, sleep};

use ConnectionState::{Connected, Lost, Reconnected, Suspended};

/// The shortest session there is: it is lost 1.5 s after the newest answer.
const SHORT: Duration = Duration::from_secs(2);

on_every_server! {
    /// Curator's `TestBackgroundStates.testConnectionStateListener`.
    async fn two_outages_are_told_one_after_the_other(env) {
        let proxy = env.proxy();
        let client = builder(proxy.address()).session_timeout(SHORT).build().unwrap();
        let told = Told::by(&client);
        client.start().unwrap();
        in_time(client.block_until_connected()).await.unwrap();
        for _ in 0..2 {
            proxy.refuse();
            proxy.reset();
            comes_to(&client, Lost).await;
            proxy.accept();
            comes_to(&client, Reconnected).await;
        }
        let twice = [Suspended, Lost, Reconnected].repeat(2);
        assert_eq!(told.all(client).await, [&[Connected], &twice[..]].concat());
    }

    /// Curator's `TestResetConnectionWithBackgroundFailure.testConnectionStateListener`: with a recipe at work. It runs a
    /// leader's election there; here it is a holder of a lock and a waiter.
    async fn an_outage_is_told_as_well_while_a_recipe_is_at_work(env) {
        let proxy = env.proxy();
        let client = builder(proxy.address()).session_timeout(SHORT).build().unwrap();
        let told = Told::by(&client);
        client.start().unwrap();
        let path = env.path("lock");
        let guard = in_time(InterProcessMutex::new(client.clone(), &path).unwrap().acquire()).await.unwrap();
        let waiter = InterProcessMutex::new(client.clone(), &path).unwrap();
        let waiter = tokio::spawn(async move { waiter.acquire().await });
        let direct = env.client().await;
        env.wait_for_children(&direct, &path, 2).await;
        proxy.refuse();
        proxy.reset();
        in_time(guard.lost()).await;
        comes_to(&client, Lost).await;
        proxy.accept();
        // The next session has the lock.
        assert!(in_time(waiter).await.unwrap().unwrap().release().await.unwrap().is_released());
        drop(guard);
        assert_eq!(told.all(client).await, [Connected, Suspended, Lost, Reconnected]);
    }

    /// Curator's `TestBackgroundStates.testListenersReconnectedIsOK` and
    /// `TestEnabledSessionExpiredState.testReconnectWithoutExpiration`: a server that starts again costs no session.
    async fn a_restart_is_suspended_then_reconnected(env) {
        let env = env.alone();
        let client = builder(env.address()).session_timeout(Duration::from_secs(60)).build().unwrap();
        let told = Told::by(&client);
        client.start().unwrap();
        let node = env.path("mine");
        let create = client.create().creating_parents_if_needed().with_mode(CreateMode::Ephemeral);
        in_time(create.for_path(&node)).await.unwrap();
        env.restart().await;
        comes_to(&client, Reconnected).await;
        assert!(in_time(client.check_exists().for_path(&node)).await.unwrap().is_some(), "the session lives");
        let all = told.all(client).await;
        // A server on its way up may take a connection and drop it again.
        assert_eq!((&all[..2], all.last()), (&[Connected, Suspended][..], Some(&Reconnected)), "{all:?}");
        assert!(!all.contains(&Lost), "{all:?}");
    }

    /// Curator's `TestEnabledSessionExpiredState.testKillSession`.
    async fn a_killed_session_is_lost_then_reconnected(env) {
        let client = builder(env.address()).session_timeout(Duration::from_secs(60)).build().unwrap();
        let told = Told::by(&client);
        client.start().unwrap();
        let node = env.path("mine");
        let create = client.create().creating_parents_if_needed().with_mode(CreateMode::Ephemeral);
        in_time(create.for_path(&node)).await.unwrap();
        let first = client.session().await.unwrap();
        env.kill_owner_of(&env.client().await, &node).await;
        assert_eq!(in_time(first.ended()).await, SessionEnd::Expired);
        let second = in_time(client.session()).await.unwrap();
        assert_eq!((first.number(), second.number()), (1, 2));
        assert!(in_time(client.check_exists().for_path(&node)).await.unwrap().is_none());
        let mut all = told.all(client).await;
        // The killer takes the connection over, and the client comes back to it, as often as it takes.
        assert_eq!(all.remove(0), Connected);
        assert_eq!(all.split_off(all.len() - 2), [Lost, Reconnected]);
        assert!(all.iter().all(|state| matches!(state, Suspended | Reconnected)), "{all:?}");
    }

    /// Curator's `TestEnabledSessionExpiredState.testInjectedWatchedEvent`.
    async fn a_watch_hears_of_the_end_of_its_session_although_no_server_is_there(env) {
        let proxy = env.proxy();
        let client = connected(builder(proxy.address()).session_timeout(SHORT)).await;
        let (stat, watch) = client.check_exists().watched().for_path(&env.path("node")).await.unwrap();
        assert!(stat.is_none());
        proxy.refuse();
        proxy.reset();
        assert_eq!(in_time(watch).await, WakeReason::SessionEnded(SessionEnd::DeadlinePassed));
    }
}

/// Curator's `TestEnabledSessionExpiredState.testSessionExpirationFromTimeout`, and its
/// `TestConnectionStateManager.testSessionConnectionStateErrorPolicyWithExpirationPercent30`: Curator can be set to
/// give a session up before the server does; here it always does, at three quarters of the timeout.
#[tokio::test(start_paused = true)]
async fn a_silent_session_is_suspended_at_two_thirds_and_lost_at_three_quarters() {
    let ensemble = simulation(11);
    let client = simulated(&ensemble, CLIENT).build().unwrap();
    let told = Told::by(&client);
    client.start().unwrap();
    client.block_until_connected().await.unwrap();
    // Right behind an answer.
    client.check_exists().for_path("/").await.unwrap();
    let start = Instant::now();
    ensemble.partition(CLIENT);
    comes_to(&client, Suspended).await;
    let suspended = start.elapsed();
    comes_to(&client, Lost).await;
    let lost = start.elapsed();
    // What counts is when the request left, and the clock is read in whole milliseconds.
    let slack = Duration::from_millis(5);
    for (seen, expected) in [(suspended, TIMEOUT * 2 / 3), (lost, TIMEOUT * 3 / 4)] {
        assert!(seen <= expected + slack && seen + slack >= expected, "{seen:?}, not {expected:?}");
    }
    ensemble.repair(CLIENT);
    comes_to(&client, Reconnected).await;
    assert_eq!(told.all(client).await, [Connected, Suspended, Lost, Reconnected]);
}

/// Curator's `TestEnabledSessionExpiredState.testSessionExpirationFromTimeoutWithRestart`: and then silence.
#[tokio::test(start_paused = true)]
async fn after_a_reconnect_nothing_more_is_told() {
    let ensemble = simulation(12);
    let client = simulated(&ensemble, CLIENT).build().unwrap();
    let told = Told::by(&client);
    client.start().unwrap();
    client.block_until_connected().await.unwrap();
    ensemble.partition(CLIENT);
    comes_to(&client, Lost).await;
    ensemble.repair(CLIENT);
    comes_to(&client, Reconnected).await;
    let session = client.session().await.unwrap().number();
    sleep(TIMEOUT * 20).await;
    assert_eq!(client.session().await.unwrap().number(), session);
    assert_eq!(told.all(client).await, [Connected, Suspended, Lost, Reconnected]);
}

/// Curator's `TestConnectionStateManager.testConnectionStateRecoversFromUnexpectedExpiredConnection` (CURATOR-561) and
/// `TestEnabledSessionExpiredState.testResetCausesLost`: a handle that falls silent is replaced, as Curator's `reset()`
/// does it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handle_that_falls_silent_for_ever_is_replaced() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let puppets = Puppets::default();
    // A handle that is dropped while its server is away closes its session within this time.
    let options = builder(proxy.address()).max_close_wait(Duration::from_secs(20));
    let options = options.session_timeout(Duration::from_secs(60));
    let client = options.zookeeper_factory(puppets.clone()).build().unwrap();
    let told = Told::by(&client);
    client.start().unwrap();
    in_time(client.block_until_connected()).await.unwrap();
    // While all is well.
    let session = client.session().await.unwrap();
    drop(puppets.take());
    assert_eq!(in_time(session.ended()).await, SessionEnd::ClientFailed);
    assert_eq!(in_time(client.session()).await.unwrap().number(), 2);
    comes_to(&client, Reconnected).await;
    // While it is cut off.
    proxy.refuse();
    proxy.reset();
    comes_to(&client, Suspended).await;
    drop(puppets.take());
    comes_to(&client, Lost).await;
    proxy.accept();
    comes_to(&client, Reconnected).await;
    // The sessions without a client are closed.
    eventually("one session is left", async || server.sessions().len() == 1).await;
    assert_eq!(told.all(client).await, [Connected, Lost, Reconnected, Suspended, Lost, Reconnected]);
    eventually("none is left", async || server.sessions().is_empty()).await;
}

/// Curator's `TestReadOnly.testReadOnly` without such a server: a handle says that its server is read-only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_only_reads_is_told_and_its_end_too() {
    let server = TestingServer::start().unwrap();
    let puppets = Puppets::default();
    let client = builder(server.address()).zookeeper_factory(puppets.clone()).build().unwrap();
    let told = Told::by(&client);
    client.start().unwrap();
    in_time(client.block_until_connected()).await.unwrap();
    let [handle] = &puppets.take()[..] else { panic!("one session") };
    handle.send(HandleEvent::ReadOnly).unwrap();
    comes_to(&client, ConnectionState::ReadOnly).await;
    assert!(client.is_connected());
    assert!(client.check_exists().for_path("/").await.unwrap().is_some());
    handle.send(HandleEvent::Ended(SessionEnd::Expired)).unwrap();
    comes_to(&client, Reconnected).await;
    assert_eq!(told.all(client).await, [Connected, ConnectionState::ReadOnly, Lost, Reconnected]);
}

/// Curator's `TestNeverConnected.testNeverConnected`; and when a server comes at last it is the first connection.
#[tokio::test(start_paused = true)]
async fn a_client_that_never_connected_is_suspended_then_lost() {
    let ensemble = simulation(13);
    ensemble.partition(CLIENT);
    let connection_timeout = TIMEOUT / 3;
    let client = simulated(&ensemble, CLIENT).connection_timeout(connection_timeout).build().unwrap();
    let told = Told::by(&client);
    let start = Instant::now();
    client.start().unwrap();
    comes_to(&client, Suspended).await;
    assert_eq!(start.elapsed().as_secs(), connection_timeout.as_secs());
    comes_to(&client, Lost).await;
    assert_eq!(start.elapsed().as_secs(), TIMEOUT.as_secs());
    sleep(TIMEOUT * 3).await;
    assert_eq!(client.connection_state(), Some(Lost));
    ensemble.repair(CLIENT);
    comes_to(&client, Connected).await;
    assert_eq!(told.all(client).await, [Suspended, Lost, Connected]);
}

/// A start while no server is there, and one that comes in time, is a connection like any other.
#[tokio::test(start_paused = true)]
async fn a_late_first_connection_is_told_as_the_first_one() {
    let ensemble = simulation(14);
    ensemble.partition(CLIENT);
    let options = simulated(&ensemble, CLIENT).connection_timeout(TIMEOUT / 3);
    let client = options.retry_policy(RetryNTimes::new(0, Duration::ZERO)).build().unwrap();
    let told = Told::by(&client);
    client.start().unwrap();
    comes_to(&client, Suspended).await;
    ensemble.repair(CLIENT);
    comes_to(&client, Connected).await;
    assert_eq!(told.all(client).await, [Suspended, Connected]);
}

/// Curator's `TestFrameworkEdges.testBackgroundFailure`, `TestFramework.testConnectionState` and
/// `testSessionLossWithLongTimeout`: the states of a long silence, and what is asked in the meantime.
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

//! The cost of a connection's states for holders: `ConnectionStateErrorPolicy`.

use std::time::Duration;

use curator_framework::{
    ConnectionState, ConnectionStateErrorPolicy, CuratorFramework, LossReason, RetryNTimes,
    SessionConnectionStateErrorPolicy, SessionEnd, StandardConnectionStateErrorPolicy,
};
use curator_recipes::{InterProcessMutex, LockError, LockOwner, Release};
use curator_test::{ClientId, SimulatedEnsemble};
use futures_util::FutureExt;

const TIMEOUT: Duration = Duration::from_secs(60);
const CLIENT: ClientId = ClientId(1);

/// An ensemble and a connected client with this policy.
async fn started(policy: impl ConnectionStateErrorPolicy) -> (SimulatedEnsemble, CuratorFramework) {
    let ensemble = SimulatedEnsemble::new(7, Duration::from_millis(4));
    let options = ensemble.client(CLIENT).session_timeout(TIMEOUT).connection_timeout(TIMEOUT);
    let options = options.retry_policy(RetryNTimes::new(10, Duration::from_millis(10)));
    let client = options.connection_state_error_policy(policy).build().unwrap();
    client.start().unwrap();
    client.block_until_connected().await.unwrap();
    (ensemble, client)
}

fn mutex(client: &CuratorFramework) -> InterProcessMutex {
    InterProcessMutex::new(client.clone(), "/lock").unwrap()
}

async fn comes_to(client: &CuratorFramework, wanted: ConnectionState) {
    let mut state = client.watch_connection_state();
    tokio::time::timeout(TIMEOUT * 2, state.wait_for(|state| *state == Some(wanted))).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn with_the_standard_policy_a_hiccup_costs_the_lock() {
    let (ensemble, client) = started(StandardConnectionStateErrorPolicy).await;
    let old = mutex(&client).acquire().await.unwrap();
    let session = client.session().await.unwrap().number();
    ensemble.reset(CLIENT);
    assert_eq!(tokio::time::timeout(TIMEOUT, old.lost()).await, Ok(LossReason::ConnectionError));
    assert_eq!(client.connection_state(), Some(ConnectionState::Suspended));
    assert!(!old.is_held() && old.remaining().is_zero());
    assert!(matches!(old.reenter(), Err(LockError::LockLost { reason: LossReason::ConnectionError, .. })));
    comes_to(&client, ConnectionState::Reconnected).await;
    assert_eq!(client.session().await.unwrap().number(), session, "the session lives");
    // What was lost stays lost, regardless of the connection.
    assert_eq!(old.lost().now_or_never(), Some(LossReason::ConnectionError));
    assert!(!old.is_held());
    assert_eq!(old.release().await.unwrap(), Release::AlreadyLost(LossReason::ConnectionError));
    assert_eq!(ensemble.children("/lock"), [""; 0]);

    let new = mutex(&client).acquire().await.unwrap();
    assert!(new.is_held() && new.token() > old.token());
    assert_eq!(new.lost().now_or_never(), None);
    assert_eq!(new.release().await.unwrap(), Release::Released);
    client.close().await;
}

#[tokio::test(start_paused = true)]
async fn with_the_session_policy_it_does_not() {
    let (ensemble, client) = started(SessionConnectionStateErrorPolicy).await;
    let guard = mutex(&client).acquire().await.unwrap();
    for _ in 0..3 {
        ensemble.reset(CLIENT);
        comes_to(&client, ConnectionState::Suspended).await;
        assert!(guard.is_held());
        comes_to(&client, ConnectionState::Reconnected).await;
        assert!(guard.is_held());
    }
    assert_eq!(guard.lost().now_or_never(), None);
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    client.close().await;
}

/// While something is held, a connection that is silent for a third of the timeout is given up, which is `Suspended`; the
/// session is `Lost` at three quarters.
#[tokio::test(start_paused = true)]
async fn a_silent_server_costs_the_lock_earlier_with_the_standard_policy() {
    let mut told = Vec::new();
    for standard in [true, false] {
        let (ensemble, client) = match standard {
            true => started(StandardConnectionStateErrorPolicy).await,
            false => started(SessionConnectionStateErrorPolicy).await,
        };
        let guard = mutex(&client).acquire().await.unwrap();
        tokio::time::sleep(TIMEOUT * 3).await;
        assert!(guard.is_held());
        ensemble.partition(CLIENT);
        let cut = ensemble.now();
        let reason = tokio::time::timeout(TIMEOUT, guard.lost()).await.unwrap();
        assert!(!guard.is_held());
        let expected = match standard {
            true => LossReason::ConnectionError,
            false => LossReason::Session(SessionEnd::DeadlinePassed),
        };
        assert_eq!(reason, expected);
        told.push(ensemble.now() - cut);
        // Also the first look after it: a second reason does not replace the first.
        tokio::time::sleep(TIMEOUT).await;
        assert!(!guard.is_held());
        ensemble.repair(CLIENT);
        client.close().await;
    }
    assert!(told[0] > TIMEOUT / 4 && told[0] <= TIMEOUT / 3, "{told:?}");
    assert!(told[1] > TIMEOUT / 2 && told[1] < TIMEOUT * 3 / 4, "{told:?}");
}

/// No timer runs while a machine sleeps: the first look sees the silence.
#[tokio::test(start_paused = true)]
async fn after_a_sleep_the_first_look_is_right_under_either_policy() {
    for (asleep, standard, session) in [
        (TIMEOUT / 2, true, true),
        // Suspended, not lost.
        (TIMEOUT * 17 / 24, false, true),
        (TIMEOUT * 4 / 5, false, false),
    ] {
        let (first, one) = started(StandardConnectionStateErrorPolicy).await;
        let (second, other) = started(SessionConnectionStateErrorPolicy).await;
        let strict = mutex(&one).acquire().await.unwrap();
        let lenient = mutex(&other).acquire().await.unwrap();
        for ensemble in [&first, &second] {
            ensemble.skip_clock(CLIENT, asleep);
        }
        assert_eq!((strict.is_held(), lenient.is_held()), (standard, session), "{asleep:?}");
        if !standard && session {
            assert_eq!(strict.lost().now_or_never(), Some(LossReason::ConnectionError));
            assert_eq!(lenient.lost().now_or_never(), None);
        }
        one.close().await;
        other.close().await;
    }
}

/// Others keep waiting: only what is held is lost.
#[tokio::test(start_paused = true)]
async fn a_waiter_keeps_its_place_under_the_standard_policy() {
    let (ensemble, client) = started(StandardConnectionStateErrorPolicy).await;
    let owner = LockOwner::new();
    let holder = mutex(&client).acquire_as(&owner).await.unwrap();
    let waiter = tokio::spawn({
        let mutex = mutex(&client);
        async move { mutex.acquire().await.unwrap() }
    });
    while ensemble.children("/lock").len() < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut before = ensemble.children("/lock");
    ensemble.reset(CLIENT);
    comes_to(&client, ConnectionState::Suspended).await;
    comes_to(&client, ConnectionState::Reconnected).await;
    let mut after = ensemble.children("/lock");
    before.sort_unstable();
    after.sort_unstable();
    assert_eq!(before, after);
    assert!(!waiter.is_finished());
    // Until the old holder gives it back, no client has it.
    assert!(!holder.is_held());
    drop(holder);
    let guard = tokio::time::timeout(TIMEOUT, waiter).await.unwrap().unwrap();
    assert!(guard.is_held());
    client.close().await;
}

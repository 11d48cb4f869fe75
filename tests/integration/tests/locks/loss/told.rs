//! What the servers tell: a session that was killed, a node that another client deleted, a client that was closed. In
//! the simulation, to the millisecond.

use std::collections::BTreeSet;
use std::time::Duration;

use curator_framework::{ConnectionState, CuratorFramework, LossReason, RetryNTimes, SessionEnd};
use curator_integration::held::{Form, Kind, Way, all_lost, not_over};
use curator_recipes::{InterProcessMutex, InterProcessSemaphoreMutex, LockGuard, Release};
use curator_test::{ClientId, SimulatedEnsemble};
use futures_util::FutureExt as _;
use tokio::time::{sleep, timeout};

const PATH: &str = "/told/lock";
const SESSION: Duration = Duration::from_secs(8);
/// What a message takes at most.
const LATENCY: Duration = Duration::from_millis(10);
/// From then on the node of a holder that did not wait is watched.
const WATCHED: Duration = SESSION.checked_div(10).unwrap();
/// The timers of a runtime count milliseconds.
const ROUNDING: Duration = Duration::from_millis(3);
const HOLDER: ClientId = ClientId(0);

/// Runs something in a simulation of its own.
fn simulated<T>(run: impl AsyncFnOnce(SimulatedEnsemble, CuratorFramework) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let ensemble = SimulatedEnsemble::new(7, LATENCY);
        let client = connected(&ensemble, HOLDER).await;
        run(ensemble, client).await
    })
}

async fn connected(ensemble: &SimulatedEnsemble, id: ClientId) -> CuratorFramework {
    let options = ensemble.client(id).session_timeout(SESSION).connection_timeout(SESSION).default_data("");
    let client = options.retry_policy(RetryNTimes::new(1000, LATENCY)).build().unwrap();
    client.start().unwrap();
    client.block_until_connected().await.unwrap();
    client
}

async fn taken(way: Way, client: &CuratorFramework) -> Vec<LockGuard> {
    way.take(client, PATH, |_| {}).await.unwrap()
}

/// The nodes of guards.
fn nodes(guards: &[LockGuard]) -> BTreeSet<String> {
    guards.iter().flat_map(LockGuard::parts).map(|part| part.node_path().to_owned()).collect()
}

fn stands_on(guard: &LockGuard, node: &str) -> bool {
    guard.parts().any(|part| part.node_path() == node)
}

/// When all of these were notified, and with which reasons; `None` if not within a session.
async fn told(ensemble: &SimulatedEnsemble, guards: &[LockGuard]) -> Option<(Duration, Vec<LossReason>)> {
    let from = ensemble.now();
    let reasons = timeout(SESSION, all_lost(guards)).await.ok()?;
    assert_eq!(not_over(guards), None);
    Some((ensemble.now() - from, reasons))
}

/// A client waits between half of this and all of it before it connects again.
const LONGEST_FIRST_PAUSE: Duration = Duration::from_millis(50);

#[test]
fn a_killed_session_is_told_at_the_next_connect() {
    let mut longest = Duration::ZERO;
    for way in Way::ALL {
        for rest in [Duration::ZERO, WATCHED * 2] {
            simulated(async |ensemble, client| {
                let guards = taken(way, &client).await;
                sleep(rest).await;
                ensemble.kill_session(ensemble.owner(guards[0].node_path()).unwrap());
                let (after, reasons) = told(&ensemble, &guards).await.expect("they are told");
                // The close, the pause before a connect, and the question for the session with its answer.
                assert!(after <= LATENCY * 3 + LONGEST_FIRST_PAUSE + ROUNDING, "{way}: told after {after:?}");
                // A watched holder gets the event of its node first.
                let by_event = |reason: &LossReason| *reason == LossReason::NodeDeleted;
                let expired = LossReason::Session(SessionEnd::Expired);
                assert!(reasons.iter().all(|reason| *reason == expired || by_event(reason)), "{way}: {reasons:?}");
                longest = longest.max(after);
                for guard in &guards {
                    assert!(matches!(guard.release().await, Ok(Release::AlreadyLost(_))), "{way}");
                }
            });
        }
    }
    println!("told {longest:?} after the kill at the latest");
}

/// Deletes each of the nodes in turn; says how long it took at most until its holders were notified, and whether
/// the others were not.
fn longest_to_tell_of_a_deletion(way: Way, delete: impl AsyncFn(&SimulatedEnsemble, &str)) -> Option<Duration> {
    let mut longest = Duration::ZERO;
    let mut number = 0;
    loop {
        let told = simulated(async |ensemble, client| {
            let guards = taken(way, &client).await;
            let Some(node) = nodes(&guards).into_iter().nth(number) else { return Some(None) };
            let from = ensemble.now();
            delete(&ensemble, &node).await;
            let (hit, others): (Vec<_>, Vec<_>) = guards.into_iter().partition(|guard| stands_on(guard, &node));
            for guard in &hit {
                let lost = timeout(SESSION, guard.lost()).await.ok()?;
                assert_eq!(lost, LossReason::NodeDeleted, "{way}");
                for part in guard.parts() {
                    assert_eq!(part.is_held(), part.node_path() != node, "{way}: {part:?}");
                }
            }
            let after = ensemble.now() - from;
            assert!(!hit.is_empty() && hit.iter().all(|guard| !guard.is_held()), "{way}");
            sleep(SESSION).await;
            assert!(others.iter().all(|guard| guard.is_held() && guard.lost().now_or_never().is_none()), "{way}");
            for guard in hit.iter().rev() {
                assert_eq!(guard.release().await.unwrap(), Release::AlreadyLost(LossReason::NodeDeleted), "{way}");
            }
            for guard in others.iter().rev() {
                assert_eq!(guard.release().await.unwrap(), Release::Released, "{way}");
            }
            Some(Some(after))
        });
        match told? {
            Some(after) => longest = longest.max(after),
            None => break,
        }
        number += 1;
    }
    let expected = match way {
        Way { kind: Kind::Multi, .. } => 3,
        Way { form: Form::ReadBeside, .. } => 2,
        _ => 1,
    };
    assert_eq!(number, expected, "{way} stands on so many nodes");
    Some(longest)
}

async fn delete_at_once(ensemble: &SimulatedEnsemble, node: &str) {
    ensemble.delete(node);
}

async fn delete_when_watched(ensemble: &SimulatedEnsemble, node: &str) {
    sleep(WATCHED + LATENCY * 2 + ROUNDING).await;
    ensemble.delete(node);
}

async fn delete_without_a_connection(ensemble: &SimulatedEnsemble, node: &str) {
    sleep(WATCHED * 2).await;
    ensemble.reset(HOLDER);
    ensemble.delete(node);
}

async fn delete_at_once_without_a_connection(ensemble: &SimulatedEnsemble, node: &str) {
    ensemble.reset(HOLDER);
    ensemble.delete(node);
}

#[test]
fn a_deleted_node_is_told_by_its_event_or_when_it_is_looked_at() {
    let mut longest = [Duration::ZERO; 4];
    for way in Way::ALL {
        let watched = longest_to_tell_of_a_deletion(way, delete_when_watched).unwrap();
        let watched = watched - (WATCHED + LATENCY * 2 + ROUNDING);
        // The event of the node itself, or the event of a child of the lock and a read of the node.
        assert!(watched <= LATENCY * 3 + ROUNDING, "{way}: the event and a read, not {watched:?}");
        let at_once = longest_to_tell_of_a_deletion(way, delete_at_once).unwrap();
        // A node may still be about to be watched: a write and another read prove that it is gone.
        assert!(at_once <= LATENCY * 6 + ROUNDING, "{way}: the event and reads, not {at_once:?}");
        let without = longest_to_tell_of_a_deletion(way, delete_without_a_connection).unwrap() - WATCHED * 2;
        // Up to two rounds of questions about known writes.
        assert!(without <= LATENCY * 12 + ROUNDING, "{way}: the next connect, not {without:?}");
        let young = longest_to_tell_of_a_deletion(way, delete_at_once_without_a_connection).unwrap();
        assert!(young <= LATENCY * 14 + LONGEST_FIRST_PAUSE + ROUNDING, "{way}: the next connect, not {young:?}");
        for (longest, this) in longest.iter_mut().zip([watched, at_once, without, young]) {
            *longest = this.max(*longest);
        }
    }
    println!("told at the latest: watched, at once, without a connection, and both: {longest:?}");
}

#[cfg(curator_mutants)]
#[test]
fn a_holder_that_does_not_watch_its_node_is_found() {
    let tell = || longest_to_tell_of_a_deletion(Way::ALL[0], delete_at_once);
    assert_eq!(curator_framework::mutants::with("leave-the-own-node-alone", tell), None);
}

/// Deletes the node of a waiter, then lets the holder release. Returns whether the waiter has a node when it is granted.
fn waiter_has_a_node_when_it_is_granted() -> bool {
    simulated(async |ensemble, client| {
        let next = InterProcessMutex::new(connected(&ensemble, ClientId(1)).await, PATH).unwrap();
        let holder = InterProcessMutex::new(client.clone(), PATH).unwrap().acquire().await.unwrap();
        let waiting = tokio::spawn(async move { next.acquire().await.unwrap() });
        sleep(LATENCY * 10).await;
        for child in ensemble.children(PATH) {
            let path = format!("{PATH}/{child}");
            if path != holder.node_path() {
                ensemble.delete(&path);
            }
        }
        assert_eq!(holder.release().await.unwrap(), Release::Released);
        let guard = timeout(SESSION, waiting).await.expect("it is granted").unwrap();
        ensemble.children(PATH).iter().any(|child| guard.node_path().ends_with(child.as_str()))
    })
}

#[test]
fn waiter_whose_node_is_deleted_is_granted_with_another() {
    assert!(waiter_has_a_node_when_it_is_granted());
}

#[cfg(curator_mutants)]
#[test]
fn hand_off_to_a_waiter_without_a_node_is_found() {
    let has_a_node = waiter_has_a_node_when_it_is_granted;
    assert!(!curator_framework::mutants::with("hand-off-without-the-own-watch", has_a_node));
}

#[test]
fn a_client_that_is_closed_tells_at_once() {
    for way in Way::ALL {
        simulated(async |ensemble, client| {
            let guards = taken(way, &client).await;
            sleep(WATCHED / 2).await;
            let from = ensemble.now();
            let closing = tokio::spawn(async move { client.close().await });
            let (after, reasons) = told(&ensemble, &guards).await.expect("they are told");
            assert_eq!(after, Duration::ZERO, "{way}");
            assert!(reasons.iter().all(|reason| *reason == LossReason::Session(SessionEnd::Closed)), "{way}");
            closing.await.unwrap();
            // The nodes go with the session, and that with the client.
            assert!(ensemble.now() - from <= LATENCY * 2 + ROUNDING, "{way}: closed after {:?}", ensemble.now() - from);
            assert!(ensemble.sessions().is_empty(), "{way}");
            for guard in &guards {
                assert!(matches!(guard.release().await, Ok(Release::AlreadyLost(_))), "{way}");
            }
        });
    }
}

/// A waiting semaphore mutex has two nodes: its turn, and the lease that it waits for.
#[test]
fn waiting_semaphore_mutex_survives_the_deletion_of_either_node() {
    for part in ["locks", "leases"] {
        simulated(async |ensemble, client| {
            let holder = taken(Way::new(Kind::SemaphoreMutex, Form::Plain), &client).await;
            let other = connected(&ensemble, ClientId(1)).await;
            let mutex = InterProcessSemaphoreMutex::new(other, PATH).unwrap();
            let waiter = tokio::spawn(async move { mutex.acquire().await });
            sleep(WATCHED * 2).await;
            let parent = format!("{PATH}/{part}");
            let nodes = ensemble.children(&parent).into_iter().map(|node| format!("{parent}/{node}"));
            let theirs: Vec<_> = nodes.filter(|node| node != holder[0].node_path()).collect();
            let [node] = &theirs[..] else { panic!("the waiter's node alone: {theirs:?}") };
            ensemble.delete(node);
            sleep(SESSION).await;
            assert!(!waiter.is_finished() && holder[0].is_held() && holder[0].lost().now_or_never().is_none());
            assert_eq!(holder[0].release().await.unwrap(), Release::Released);
            let next = timeout(SESSION, waiter).await.unwrap().unwrap().unwrap();
            assert!(next.is_held() && next.token() > holder[0].token());
            assert_eq!(next.release().await.unwrap(), Release::Released);
        });
    }
}

/// The first requests of the next connection delete the nodes.
#[test]
fn guard_dropped_without_a_connection_is_released_by_the_next_one() {
    for pause in [0, 10, 40] {
        simulated(async |ensemble, client| {
            let guard = InterProcessMutex::new(client.clone(), PATH).unwrap().acquire().await.unwrap();
            ensemble.reset(HOLDER);
            sleep(Duration::from_millis(pause)).await;
            drop(guard);
            let mut states = client.watch_connection_state();
            states.wait_for(|state| *state == Some(ConnectionState::Suspended)).await.unwrap();
            states.wait_for(|state| *state == Some(ConnectionState::Reconnected)).await.unwrap();
            let from = ensemble.now();
            while !ensemble.children(PATH).is_empty() {
                sleep(Duration::from_millis(1)).await;
            }
            let after = ensemble.now() - from;
            assert!(after <= LATENCY + ROUNDING, "dropped after {pause} ms: released {after:?} after the connect");
        });
    }
}

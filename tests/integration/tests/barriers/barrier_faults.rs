//! Barriers under faults at exact moments: a simulated network and paused time.

use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{CuratorFramework, Error, SessionId};
use curator_integration::simulated_stage::{LATENCY, ONE, SESSION, TWO, client, play, soon, until};
use curator_recipes::{BarrierError, DistributedBarrier, Release};
use curator_test::SimulatedEnsemble;
use tokio::time::{Instant, sleep, timeout};

use crate::fault::{FAULTS, fault};

const PATH: &str = "/test/barrier";

fn barrier(client: &CuratorFramework) -> DistributedBarrier {
    DistributedBarrier::new(client.clone(), PATH).unwrap()
}

fn stands(ensemble: &SimulatedEnsemble) -> bool {
    ensemble.children("/test") == ["barrier"]
}

/// The reply to each request is lost, in the same session and with it.
#[test]
fn barrier_of_an_owner_is_set_and_removed_whatever_its_connection_does() {
    for seed in 0..80 * FAULTS {
        play(seed, async |ensemble| {
            let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
            let setting = {
                let ours = barrier(&one);
                tokio::spawn(async move { ours.set_owned().await })
            };
            fault(&ensemble, &one, seed).await;
            let owned = soon(setting).await.unwrap().unwrap();
            ensemble.repair(ONE);
            // By then the client knows the end of a killed session.
            sleep(SESSION).await;
            if !owned.is_held() {
                until("the barrier has fallen", || !stands(&ensemble)).await;
                return;
            }
            let session = ensemble.owner(PATH);
            assert!(stands(&ensemble) && session.is_some_and(|session| session != 0), "seed {seed}");
            let refused = soon(barrier(&two).set_owned()).await;
            assert!(matches!(refused, Err(BarrierError::AlreadySet { .. })), "seed {seed}: {refused:?}");
            let removing = tokio::spawn(async move { owned.release().await });
            fault(&ensemble, &one, seed).await;
            let _released: Release = soon(removing).await.unwrap().unwrap();
            ensemble.repair(ONE);
            until("the barrier is removed", || !stands(&ensemble)).await;
            let next = soon(barrier(&two).set_owned()).await.unwrap();
            sleep(SESSION * 2).await;
            assert!(stands(&ensemble) && next.is_held(), "seed {seed}");
        });
    }
}

/// The background task deletes the node of the dropped future, and not the next barrier.
#[test]
fn barrier_of_a_dropped_call_falls_and_the_next_one_stands() {
    for seed in 0..60 * FAULTS {
        play(seed, async |ensemble| {
            let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
            let setting = {
                let ours = barrier(&one);
                tokio::spawn(async move { ours.set_owned().await })
            };
            fault(&ensemble, &one, seed).await;
            setting.abort();
            drop(setting.await);
            let next = loop {
                match soon(barrier(&two).set_owned()).await {
                    Err(BarrierError::AlreadySet { .. }) => sleep(LATENCY).await,
                    next => break next.unwrap(),
                }
            };
            ensemble.repair(ONE);
            sleep(SESSION * 2).await;
            assert!(stands(&ensemble) && next.is_held(), "seed {seed}");
            assert_eq!(one.watched_paths(), [""; 0], "seed {seed}");
        });
    }
}

/// Creates and deletes after lost replies, with Curator's rules.
#[test]
fn barrier_without_an_owner_is_set_and_removed_whatever_its_connection_does() {
    for seed in 0..40 * FAULTS {
        play(seed, async |ensemble| {
            let one = client(&ensemble, ONE).await;
            let ours = barrier(&one);
            for is_set in [true, false] {
                let ours = ours.clone();
                let call = tokio::spawn(async move {
                    match is_set {
                        true => ours.set_barrier().await,
                        false => ours.remove_barrier().await,
                    }
                });
                fault(&ensemble, &one, seed).await;
                soon(call).await.unwrap().unwrap();
                ensemble.repair(ONE);
                assert_eq!(stands(&ensemble), is_set, "seed {seed}");
            }
        });
    }
}

/// Curator's wait fails with `ConnectionLoss`.
#[test]
fn wait_survives_connections_and_sessions() {
    for seed in 0..40 * FAULTS {
        play(seed, async |ensemble| {
            let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
            let others = barrier(&two);
            soon(others.set_barrier()).await.unwrap();
            let waiting = {
                let ours = barrier(&one);
                tokio::spawn(async move { ours.wait_on_barrier().await })
            };
            fault(&ensemble, &one, seed).await;
            sleep(SESSION * 2).await;
            assert!(!waiting.is_finished(), "seed {seed}");
            ensemble.repair(ONE);
            soon(others.remove_barrier()).await.unwrap();
            soon(waiting).await.unwrap().unwrap();
            assert_eq!(one.watched_paths(), [""; 0], "seed {seed}");
        });
    }
}

/// A notification is lost with its connection or its session. Curator's waiter waits for the next removal.
#[test]
fn waiter_that_was_away_passes_although_the_barrier_is_set_again() {
    for (seed, away) in (0..40).flat_map(|seed| [(seed, SESSION / 5), (seed, SESSION * 2)]) {
        play(seed, async |ensemble| {
            let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
            let others = barrier(&two);
            soon(others.set_barrier()).await.unwrap();
            let waiting = {
                let ours = barrier(&one);
                tokio::spawn(async move { ours.wait_on_barrier().await })
            };
            until("it waits", || one.watchers() == 1).await;
            sleep(SESSION).await;
            ensemble.partition(ONE);
            soon(others.remove_barrier()).await.unwrap();
            soon(others.set_barrier()).await.unwrap();
            sleep(away).await;
            ensemble.reset(ONE);
            ensemble.repair(ONE);
            soon(waiting).await.unwrap().unwrap();
        });
    }
}

#[test]
fn wait_keeps_to_its_budget() {
    let budget = Duration::from_secs(1);
    for millis in 0..60 {
        play(millis, async |ensemble| {
            let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
            soon(barrier(&two).set_barrier()).await.unwrap();
            let begun = Instant::now();
            let waiting = {
                let ours = barrier(&one);
                tokio::spawn(async move { (ours.wait_on_barrier_timeout(budget).await, begun.elapsed()) })
            };
            sleep(Duration::from_millis(millis)).await;
            ensemble.partition(ONE);
            let (passed, took) = soon(waiting).await.unwrap();
            assert_eq!(took.as_millis(), budget.as_millis(), "after {millis} ms");
            match passed {
                Ok(passed) => assert!(passed.is_none(), "after {millis} ms"),
                // No reply has shown the barrier.
                Err(error) => assert!(millis <= 2 * LATENCY.as_millis() as u64, "after {millis} ms: {error}"),
            }
            assert_eq!(one.watched_paths(), [""; 0], "after {millis} ms");
            ensemble.repair(ONE);
            assert!(timeout(budget, barrier(&one).wait_on_barrier()).await.is_err());
        });
    }
}

/// The answer is as unknown as with a lock.
#[test]
fn budget_that_ends_without_a_connection_is_an_error() {
    play(1, async |ensemble| {
        let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
        soon(barrier(&two).set_barrier()).await.unwrap();
        let budget = SESSION * 9 / 10;
        let waiting = {
            let ours = barrier(&one);
            tokio::spawn(async move { ours.wait_on_barrier_timeout(budget).await })
        };
        until("it waits", || one.watchers() == 1).await;
        sleep(LATENCY * 4).await;
        ensemble.partition(ONE);
        let ended = soon(waiting).await.unwrap();
        assert!(!one.is_connected());
        let is_loss = |error: &BarrierError| matches!(error, BarrierError::Framework(Error::ConnectionLoss { .. }));
        assert!(ended.as_ref().is_err_and(is_loss), "{ended:?}");
    });
}

/// An owned barrier falls with its owner, so it is not the one that the call sets.
#[test]
fn barrier_is_not_set_over_an_owned_one() {
    play(1, async |ensemble| {
        let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
        let owned = soon(barrier(&one).set_owned()).await.unwrap();
        let refused = soon(barrier(&two).set_barrier()).await.unwrap_err();
        let owner = one.session().await.unwrap().id().unwrap().get();
        assert!(
            matches!(refused, BarrierError::AlreadySet { session, .. } if session == SessionId::new(owner)),
            "{refused}"
        );
        assert_eq!(soon(owned.release()).await.unwrap(), Release::Released);
        for _ in 0..2 {
            soon(barrier(&two).set_barrier()).await.unwrap();
        }
        assert!(stands(&ensemble));
    });
}

//! A server that is silent from any moment on makes no caller wait longer than its limit.

use std::time::{Duration, Instant};

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{CuratorFramework, Error, RetryNTimes};
use curator_integration::cuts::{Cut, poll_until_then};
use curator_integration::env::{builder, connected, eventually};
use curator_integration::kinds::Which;
use curator_integration::lock_stage::{CONNECTION_TIMEOUT, OURS, QUIET, ROOT, Stage, Subject, TURN, play};
use curator_integration::on_every_server;
use curator_integration::operations::{Patience, Taking, taking};
use curator_recipes::{InterProcessSemaphoreV2, LockError, LockGuard, LockOwner, SemaphoreProtocol};
use curator_test::SimulatedEnsemble;
use tokio::time::{sleep, timeout};

const LATENCY: Duration = Duration::from_millis(3);
const BUDGET: Duration = Duration::from_secs(1);
/// The finest that tokio's timers tell.
const TICK: Duration = Duration::from_millis(1);

/// When the servers fall silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Silence {
    /// With something under way to them, or with an answer there that was not seen yet; after so many polls.
    At(Cut),
    /// And the connection is broken too, so that it is known.
    Broken(Cut),
}

/// `true` if the acquire was done before the silence.
async fn acquire_in_silence(taking: &Taking, contended: bool, silence: Silence, what: &str) -> bool {
    let stage = Stage::new(LATENCY).await;
    let before = stage.footprint();
    let mut others = Vec::new();
    if contended {
        others.push(stage.holder_in_front(taking.subject).await);
    }
    let began = tokio::time::Instant::now();
    let (Silence::At(cut) | Silence::Broken(cut)) = silence;
    let mut silent_at = None;
    let fall_silent = || {
        silent_at = Some(began.elapsed());
        stage.ensemble.partition(OURS);
        if matches!(silence, Silence::Broken(_)) {
            stage.ensemble.reset(OURS);
        }
    };
    let acquire = poll_until_then((taking.run)(stage.client.clone()), cut, fall_silent);
    let outcome =
        timeout(Duration::from_secs(60), acquire).await.unwrap_or_else(|_| panic!("{what}: it is not bounded"));
    let took = began.elapsed();
    let is_silent = silent_at.is_some();
    // The client learns of a broken connection a moment later.
    let is_broken = matches!(silence, Silence::Broken(_)) && silent_at.is_some_and(|at| at + LATENCY * 2 < BUDGET);
    match (taking.patience, outcome) {
        (_, Ok(guards)) if !guards.is_empty() => assert!(took <= BUDGET, "{what}: granted after {took:?}"),
        (Patience::Budget, Ok(_)) => {
            assert!((BUDGET..=BUDGET + TICK).contains(&took), "{what}: not granted after {took:?}");
            assert!(contended && !is_broken, "{what}: an outage looks like contention");
            assert!(silent_at.is_none_or(|at| !at.is_zero()), "{what}: no reply has shown a contender ahead");
        }
        (_, Ok(_)) => assert!(contended && took <= CONNECTION_TIMEOUT, "{what}: not granted after {took:?}"),
        (Patience::Budget, Err(LockError::Framework(error @ Error::ConnectionLoss { .. }))) => {
            assert!((BUDGET..=BUDGET + TICK).contains(&took), "{what}: {error} after {took:?}");
            let is_known = silent_at.is_some_and(|at| at > LATENCY * 20);
            assert!(is_silent && (is_broken || !contended || !is_known), "{what}: contention looks like an outage");
        }
        (Patience::Once, Err(LockError::Framework(error @ Error::ConnectionLoss { .. }))) => {
            assert!(is_silent && took <= CONNECTION_TIMEOUT + TICK, "{what}: {error} after {took:?}");
        }
        (_, Err(error)) => panic!("{what}: {error}"),
    }
    stage.ensemble.repair(OURS);
    others.push(stage.contender_behind(taking.subject));
    stage.assert_as_before(others, &before, what).await;
    !is_silent
}

fn every_bounded_acquire(patience: Patience, contended: bool) {
    for taking in taking(BUDGET).iter().filter(|taking| taking.patience == patience) {
        for broken in [false, true] {
            for polls in 0..500 {
                let mut is_done = false;
                for cut in [Cut::Before(polls), Cut::Behind(polls + 1)] {
                    let silence = if broken { Silence::Broken(cut) } else { Silence::At(cut) };
                    let what = format!("{} of {:?}, contended: {contended}, {silence:?}", taking.name, taking.subject);
                    is_done = play(acquire_in_silence(taking, contended, silence, &what));
                }
                if is_done {
                    // The client's task sends the requests of a batch.
                    let polls_alone = matches!(taking.subject, Subject::One(which) if which.has_batches());
                    assert!(polls >= 2 || polls_alone, "{} of {:?} took {polls} polls", taking.name, taking.subject);
                    break;
                }
            }
        }
    }
}

#[test]
fn a_budget_is_kept_to_the_millisecond_at_rest() {
    every_bounded_acquire(Patience::Budget, false);
}

#[test]
fn budget_is_kept_to_the_millisecond_behind_a_holder() {
    every_bounded_acquire(Patience::Budget, true);
}

#[test]
fn a_try_is_bounded_by_the_connection_timeout_at_rest() {
    every_bounded_acquire(Patience::Once, false);
}

#[test]
fn try_is_bounded_by_the_connection_timeout_behind_a_holder() {
    every_bounded_acquire(Patience::Once, true);
}

/// The connection comes back late, and then nothing is answered.
#[test]
fn a_try_that_waits_for_the_connection_waits_no_second_time() {
    for taking in taking(BUDGET).iter().filter(|taking| taking.patience == Patience::Once) {
        play(async {
            let what = format!("{} of {:?}", taking.name, taking.subject);
            let stage = Stage::new(LATENCY).await;
            let before = stage.footprint();
            stage.ensemble.partition(OURS);
            stage.ensemble.reset(OURS);
            let mut state = stage.client.watch_connection_state();
            let suspended = Some(curator_framework::ConnectionState::Suspended);
            state.wait_for(|state| *state == suspended).await.unwrap();
            let began = tokio::time::Instant::now();
            let network = async {
                tokio::time::sleep(CONNECTION_TIMEOUT / 2).await;
                stage.ensemble.repair(OURS);
                state.wait_for(|state| *state != suspended).await.unwrap();
                stage.ensemble.partition(OURS);
                began.elapsed()
            };
            let (tried, silent) = tokio::join!((taking.run)(stage.client.clone()), network);
            assert!(silent < CONNECTION_TIMEOUT, "{what}: connected after {silent:?} only");
            let lost = matches!(tried, Err(LockError::Framework(Error::ConnectionLoss { .. })));
            assert!(
                lost && began.elapsed() <= CONNECTION_TIMEOUT + TICK,
                "{what}: {tried:?} after {:?}",
                began.elapsed()
            );
            stage.ensemble.repair(OURS);
            stage.assert_as_before(vec![stage.contender_behind(taking.subject)], &before, &what).await;
        });
    }
}

/// A client that has never had a connection knows nothing of other contenders, however small the budget is.
#[test]
fn a_budget_without_a_server_ends_with_the_lost_connection() {
    for budget in [TICK, BUDGET, CONNECTION_TIMEOUT - TICK] {
        for taking in taking(budget).iter().filter(|taking| taking.patience == Patience::Budget) {
            play(async {
                let what = format!("{} of {:?} within {budget:?}", taking.name, taking.subject);
                let ensemble = SimulatedEnsemble::new(1, LATENCY);
                ensemble.partition(OURS);
                let options = ensemble.client(OURS).connection_timeout(CONNECTION_TIMEOUT);
                let client = options.retry_policy(RetryNTimes::new(10, TICK)).build().unwrap();
                client.start().unwrap();
                let began = tokio::time::Instant::now();
                let outcome = (taking.run)(client).await;
                let took = began.elapsed();
                let lost = matches!(outcome, Err(LockError::Framework(Error::ConnectionLoss { .. })));
                assert!(lost, "{what}: {outcome:?}");
                assert!((budget..=budget + TICK).contains(&took), "{what}: {took:?}");
            });
        }
    }
}

/// A waiter that has seen the holder, and has a new connection since: the lock is taken, as far as the client knows.
#[test]
fn a_waiter_that_has_its_connection_back_is_told_of_the_holder() {
    for taking in taking(BUDGET).iter().filter(|taking| taking.patience == Patience::Budget) {
        play(async {
            let what = format!("{} of {:?}", taking.name, taking.subject);
            let stage = Stage::new(LATENCY).await;
            let before = stage.footprint();
            let holder = stage.holder_in_front(taking.subject).await;
            let network = async {
                tokio::time::sleep(BUDGET / 4).await;
                stage.ensemble.partition(OURS);
                stage.ensemble.reset(OURS);
                tokio::time::sleep(BUDGET / 4).await;
                stage.ensemble.repair(OURS);
            };
            let (outcome, ()) = tokio::join!((taking.run)(stage.client.clone()), network);
            assert!(outcome.as_ref().is_ok_and(Vec::is_empty), "{what}: {outcome:?}");
            stage.assert_as_before(vec![holder, stage.contender_behind(taking.subject)], &before, &what).await;
        });
    }
}

fn is_connection_loss(outcome: &Result<Vec<LockGuard>, LockError>) -> bool {
    matches!(outcome, Err(LockError::Framework(Error::ConnectionLoss { .. })))
}

/// The server falls silent after the deletion of the holder's node, and before its next reply. The client does not notice
/// the silence within the budget.
#[test]
fn a_waiter_does_not_take_a_deleted_node_for_a_holder() {
    let mut without_answer = 0;
    for taking in taking(BUDGET * 2).iter().filter(|taking| taking.patience == Patience::Budget) {
        play(async {
            let what = format!("{} of {:?}", taking.name, taking.subject);
            let stage = Stage::new(LATENCY).await;
            let before = stage.footprint();
            let held = taking.subject.block(&stage.front).await;
            sleep(QUIET).await;
            let network = async {
                sleep(BUDGET / 4).await;
                let (parent, _) = held.node_path().rsplit_once('/').unwrap();
                let session = stage.client.session().await.unwrap();
                let node = session.get_data_watched(held.node_path()).await.unwrap().watch;
                let (_, children) = session.get_children_watched(parent).await.unwrap();
                assert!(held.release().await.unwrap().is_released());
                // The waiter has its notification at the same moment.
                tokio::join!(node, children);
                stage.ensemble.partition(OURS);
            };
            let (outcome, ()) = tokio::join!((taking.run)(stage.client.clone()), network);
            let is_granted = outcome.as_ref().is_ok_and(|guards| !guards.is_empty());
            assert!(stage.client.is_connected(), "{what}: the client has noticed the silence");
            assert!(is_granted || is_connection_loss(&outcome), "{what}: {outcome:?}");
            without_answer += usize::from(!is_granted);
            drop(outcome);
            stage.ensemble.repair(OURS);
            stage.assert_as_before(vec![stage.contender_behind(taking.subject)], &before, &what).await;
        });
    }
    assert!(without_answer > 0, "a notification was enough for every lock");
}

/// The server falls silent after the deletion of these nodes of the waiter: its next attempt gets no reply.
async fn wait_in_silence_without(taking: &Taking, is_deleted: fn(&str) -> bool) {
    let what = format!("{} of {:?}", taking.name, taking.subject);
    let stage = Stage::new(LATENCY).await;
    let before = stage.footprint();
    let holder = stage.holder_in_front(taking.subject).await;
    let network = async {
        // By then the waiter watches its own nodes.
        sleep(TURN * 3 / 4).await;
        // A contender with its turn watches its node after the first event of another child.
        for node in stage.own_nodes() {
            let sibling = format!("{}/sibling", node.rsplit_once('/').unwrap().0);
            stage.front.create().for_path(&sibling).await.unwrap();
            stage.front.delete().for_path(&sibling).await.unwrap();
        }
        sleep(LATENCY * 4).await;
        let deleted: Vec<_> = stage.own_nodes().into_iter().filter(|node| is_deleted(node)).collect();
        assert!(!deleted.is_empty(), "{what}: {:?}", stage.own_nodes());
        for node in deleted {
            stage.ensemble.delete(&node);
        }
        sleep(LATENCY + TICK).await;
        stage.ensemble.partition(OURS);
    };
    let (outcome, ()) = tokio::join!((taking.run)(stage.client.clone()), network);
    assert!(stage.client.is_connected(), "{what}: the client has noticed the silence");
    assert!(is_connection_loss(&outcome), "{what}: {outcome:?}");
    stage.ensemble.repair(OURS);
    stage.assert_as_before(vec![holder, stage.contender_behind(taking.subject)], &before, &what).await;
}

#[test]
fn a_waiter_without_its_nodes_knows_of_no_holder() {
    for taking in taking(TURN * 2).iter().filter(|taking| taking.patience == Patience::Budget) {
        play(wait_in_silence_without(taking, |_| true));
    }
}

/// The waiter keeps its node in the queue of the leases, but not the attempt to which it belongs.
#[test]
fn a_waiter_without_its_turn_knows_of_no_holder() {
    let subject = Subject::Both(SemaphoreProtocol::Curator);
    let is_meant = |taking: &&Taking| taking.patience == Patience::Budget && taking.subject == subject;
    for taking in taking(TURN * 2).iter().filter(is_meant) {
        play(wait_in_silence_without(taking, |node| node.starts_with("/locks/both/locks/")));
    }
}

/// The server falls silent when the waiter gets its turn, and does not answer the creates of the leases.
#[test]
fn a_turn_at_the_leases_ends_the_evidence_of_contention() {
    let subject = Subject::Both(SemaphoreProtocol::Curator);
    let is_meant = |taking: &&Taking| taking.patience == Patience::Budget && taking.subject == subject;
    for taking in taking(BUDGET * 2).iter().filter(is_meant) {
        play(async {
            let stage = Stage::new(LATENCY).await;
            let held = subject.block(&stage.front).await;
            let semaphore = subject.of_two(&stage.front);
            let ahead = tokio::spawn(async move { semaphore.acquire_many(2).await });
            sleep(QUIET).await;
            let network = async {
                let queue = || stage.ensemble.children("/locks/both/locks").len();
                sleep(BUDGET / 4).await;
                assert_eq!(queue(), 2, "{}: it waits for its turn", taking.name);
                ahead.abort();
                while queue() == 2 {
                    sleep(TICK).await;
                }
                sleep(LATENCY + TICK).await;
                stage.ensemble.partition(OURS);
            };
            let (outcome, ()) = tokio::join!((taking.run)(stage.client.clone()), network);
            assert!(stage.client.is_connected(), "{}: the client has noticed the silence", taking.name);
            assert!(is_connection_loss(&outcome), "{}: {outcome:?}", taking.name);
            drop(held);
        });
    }
}

/// One of two leases ends at the end of the budget, so the reply with the other one comes too late.
#[test]
fn waiter_between_two_listings_knows_of_the_holder() {
    for left in 0..20 {
        play(async {
            let stage = Stage::new(LATENCY).await;
            let of_two = InterProcessSemaphoreV2::new(stage.front.clone(), "/lock", 2).unwrap();
            let (first, _second) = (of_two.acquire().await.unwrap(), of_two.acquire().await.unwrap());
            let of_one = InterProcessSemaphoreV2::new(stage.client.clone(), "/lock", 1).unwrap();
            let ends = async {
                sleep(BUDGET - TICK * left).await;
                drop(first);
            };
            let (outcome, ()) = tokio::join!(of_one.acquire_timeout(BUDGET), ends);
            assert!(matches!(outcome, Ok(None)), "{left}: {outcome:?}");
        });
    }
}

/// The first reply shows the holder, regardless of the waiter's next step.
#[test]
fn from_the_first_reply_on_the_waiter_knows_of_the_holder() {
    for milliseconds in 8..60 {
        for is_first in [true, false] {
            play(async {
                let budget = Duration::from_millis(milliseconds);
                let stage = Stage::new(LATENCY).await;
                let lock =
                    |client: &CuratorFramework| InterProcessSemaphoreV2::new(client.clone(), "/lock", 1).unwrap();
                let (front, waiter) = (lock(&stage.front), lock(&stage.client));
                if !is_first {
                    assert!(waiter.acquire().await.unwrap().release().await.unwrap().is_released());
                }
                let _held = front.acquire().await.unwrap();
                sleep(QUIET).await;
                let outcome = waiter.acquire_timeout(budget).await;
                assert!(matches!(outcome, Ok(None)), "{budget:?}, first {is_first}: {outcome:?}");
            });
        }
    }
}

/// While another acquire of the same owner waits, the time of a further one counts too.
#[test]
fn the_wait_for_ones_own_other_acquire_is_bounded_too() {
    for which in Which::ALL.into_iter().filter(|which| which.is_reentrant()) {
        play(async {
            let stage = Stage::new(LATENCY).await;
            let subject = Subject::One(which);
            let held = subject.block(&stage.front).await;
            let lock = which.lock(&stage.client, ROOT);
            let began = tokio::time::Instant::now();
            let others = async {
                assert!(lock.acquire_timeout(BUDGET).await.unwrap().is_none());
                let took = began.elapsed();
                assert!((BUDGET..=BUDGET + TICK).contains(&took), "{which:?}: {took:?}");
                assert!(lock.try_acquire().await.unwrap().is_none());
                let took = began.elapsed() - took;
                assert!(took <= CONNECTION_TIMEOUT + TICK, "{which:?}: {took:?}");
                assert!(held.release().await.unwrap().is_released());
            };
            let (granted, ()) = LockOwner::scope(async { tokio::join!(lock.acquire(), others) }).await;
            assert!(granted.unwrap().release().await.unwrap().is_released());

            stage.ensemble.partition(OURS);
            stage.ensemble.reset(OURS);
            let second = LockOwner::scope(async {
                tokio::select! {
                    biased;
                    granted = lock.acquire() => panic!("{which:?}: {granted:?}"),
                    second = lock.acquire_timeout(BUDGET) => second,
                }
            });
            let second = second.await;
            let lost = matches!(second, Err(LockError::Framework(Error::ConnectionLoss { .. })));
            assert!(lost, "{which:?}: {second:?}");
        });
    }
}

/// Tries for a free lock. An administrator deletes the nodes of the try at a moment of it.
async fn try_without_its_nodes(which: Which, loses_a_reply: bool, moment: Duration) {
    let stage = Stage::new(LATENCY).await;
    let lock = which.lock(&stage.client, ROOT);
    assert!(lock.acquire().await.unwrap().release().await.unwrap().is_released());
    if loses_a_reply {
        // The second create gets the number of the first one.
        assert!(stage.ensemble.set_next_sequence(&which.path(ROOT), i32::MAX));
        stage.ensemble.drop_reply(OURS);
    }
    let deletes = async {
        sleep(moment).await;
        stage.own_nodes().iter().for_each(|node| stage.ensemble.delete(node));
    };
    let (tried, ()) = tokio::join!(lock.try_acquire(), deletes);
    assert!(matches!(tried, Ok(Some(_))), "{which:?}, {moment:?}, loses a reply: {loses_a_reply}: {tried:?}");
    drop(tried);
    sleep(QUIET).await;
    assert_eq!(stage.own_nodes(), [""; 0], "{which:?}, {moment:?}");
}

#[test]
fn try_whose_node_is_deleted_creates_another_one() {
    for which in [Which::Mutex, Which::Read, Which::Write] {
        for ticks in 0..100 {
            play(try_without_its_nodes(which, false, TICK * ticks));
            play(try_without_its_nodes(which, true, TICK * ticks));
        }
    }
}

on_every_server! {
    /// The same soon after a real server froze, and nothing is left when it continues.
    async fn frozen_server_holds_up_no_client(env) {
        const SLACK: Duration = Duration::from_secs(8);
        let env = env.alone();
        let root = env.path("locks");
        let options = builder(env.address()).session_timeout(Duration::from_secs(60)).retry_policy(RetryNTimes::new(0, TICK));
        let client = connected(options.connection_timeout(Duration::from_secs(2))).await;
        let locks = Which::ALL.map(|which| which.lock(&client, &root));
        for lock in &locks {
            assert!(lock.acquire().await.unwrap().release().await.unwrap().is_released());
        }
        for which in Which::ALL {
            which.wait_until_free(&client, &root).await;
        }
        env.freeze();
        let began = Instant::now();
        let mut waits = tokio::task::JoinSet::new();
        for lock in locks {
            waits.spawn(async move {
                let began = Instant::now();
                let timed = lock.acquire_timeout(BUDGET).await;
                let timed_took = began.elapsed();
                let tried = lock.try_acquire().await;
                (lock, timed, timed_took, tried)
            });
        }
        while let Some(outcome) = waits.join_next().await {
            let (lock, timed, took, tried) = outcome.unwrap();
            let lost = matches!(timed, Err(LockError::Framework(Error::ConnectionLoss { .. })));
            assert!(lost, "{lock:?}: {timed:?}");
            assert!(took >= BUDGET && took < BUDGET + SLACK, "{lock:?}: {took:?}");
            let lost = matches!(tried, Err(LockError::Framework(Error::ConnectionLoss { .. })));
            assert!(lost, "{lock:?}: {tried:?}");
        }
        assert!(began.elapsed() < BUDGET + Duration::from_secs(2) + SLACK, "{:?}", began.elapsed());
        env.thaw();
        for which in Which::ALL {
            let lock = which.lock(&client, &root);
            // The policy allows no second try, and the connection may not be back.
            eventually("it is granted", async || match lock.acquire().await {
                Ok(guard) => guard.release().await.is_ok(),
                Err(error) => {
                    assert!(matches!(error, LockError::Framework(Error::ConnectionLoss { .. })), "{error}");
                    false
                }
            })
            .await;
            which.wait_until_free(&client, &root).await;
        }
        eventually("no watch is left", async || client.watchers() == 0).await;
    }
}

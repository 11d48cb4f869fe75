//! Every asynchronous method of the locks is polled this often and dropped, for every "this": no node is left, no
//! waiter, no task, and the next one is granted.

use std::rc::Rc;
use std::time::Duration;

use curator_framework::Error;
use curator_integration::cuts::{Cut, poll_until};
use curator_integration::kinds::Which;
use curator_integration::lock_stage::{OURS, ROOT, Stage, Subject, TURN, play};
use curator_integration::operations::{Held, Holding, LONG, Patience, Promise, Taking, holding, taking};
use curator_recipes::{LockError, LockOwner, Release};

use crate::{LATENCY, Row};

/// Where an acquire runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Situation {
    AtRest,
    /// Behind somebody and before somebody else.
    Contended,
    /// At rest, and the reply to the first write is lost with the connection.
    LostReply,
}

async fn acquire_and_drop(taking: &Taking, situation: Situation, cut: Cut, what: &str) -> bool {
    let stage = Stage::new(LATENCY).await;
    let before = stage.footprint();
    let contended = situation == Situation::Contended;
    let mut others = Vec::new();
    if contended {
        others.push(stage.holder_in_front(taking.subject).await);
        others.push(stage.contender_behind(taking.subject));
    }
    if situation == Situation::LostReply {
        stage.ensemble.drop_reply(OURS);
    }
    let granted = poll_until((taking.run)(stage.client.clone()), cut).await;
    let completes = granted.is_some();
    let asks_once = taking.patience == Patience::Once;
    let guards = match granted {
        // Who asks once is told of a lost connection.
        Some(Err(LockError::Framework(Error::ConnectionLoss { .. }))) if asks_once && others.is_empty() => None,
        Some(guards) => Some(guards.unwrap()),
        None => None,
    };
    if let Some(guards) = guards {
        assert!(!guards.is_empty() || (contended && asks_once), "{what}: nothing is granted");
        for guard in guards.iter().rev() {
            assert!(guard.is_held(), "{what}");
            assert!(guard.release().await.unwrap().is_released());
        }
    }
    stage.assert_nothing_of_ours(what).await;
    if completes && situation == Situation::LostReply {
        assert_eq!(stage.client.session().await.unwrap().epoch(), 2, "{what}: no reply was lost");
    }
    if !contended {
        others.push(stage.contender_behind(taking.subject));
    }
    stage.assert_as_before(others, &before, what).await;
    completes
}

fn every_acquire(wanted: impl Fn(Subject) -> bool) -> Vec<Row> {
    let takings = taking(LONG).into_iter().filter(|taking| wanted(taking.subject)).map(Rc::new);
    let rows = takings.flat_map(|taking| {
        [Situation::AtRest, Situation::Contended, Situation::LostReply].map(|situation| {
            let what = format!(" of {:?}, {situation:?}", taking.subject);
            let taking = Rc::clone(&taking);
            Row::new(taking.name, &what, 2, move |cut, what| play(acquire_and_drop(&taking, situation, cut, what)))
        })
    });
    rows.collect()
}

pub(crate) fn one_lock() -> Vec<Row> {
    use Which::{Mutex, Read, Write};
    every_acquire(|subject| matches!(subject, Subject::One(Mutex | Read | Write)))
}

pub(crate) fn one_lease() -> Vec<Row> {
    use Which::{OneDirectLease, OneLease, SemaphoreMutex};
    every_acquire(|subject| matches!(subject, Subject::One(SemaphoreMutex | OneLease | OneDirectLease)))
}

pub(crate) fn several() -> Vec<Row> {
    use Which::Multi;
    every_acquire(|subject| matches!(subject, Subject::Both(_) | Subject::One(Multi)))
}

/// How a guard goes when the future was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Release,
    Drop,
}

async fn hold_and_drop(holding: &Holding, loses_reply: bool, end: End, cut: Cut, what: &str) -> bool {
    let stage = Stage::new(LATENCY).await;
    let before = stage.footprint();
    let Held { guard, operation } = (holding.prepare)(stage.client.clone()).await;
    let nodes = stage.own_nodes();
    let began = stage.ensemble.now();
    let mut others = vec![stage.contender_behind(holding.subject)];
    if let Some(disturb) = holding.disturb {
        let (front, ensemble, path) = (stage.front.clone(), stage.ensemble.clone(), guard.node_path().to_owned());
        others.push(tokio::spawn(async move {
            tokio::time::sleep(TURN).await;
            disturb(ensemble, front, path).await;
        }));
    }
    if loses_reply {
        stage.ensemble.drop_reply(OURS);
    }
    let outcome = poll_until(operation, cut).await;
    let completes = outcome.is_some();
    let polled = cut != Cut::Before(0);
    let is_disturbed = holding.disturb.is_some() && stage.ensemble.now() >= began + TURN;
    match holding.promise {
        Promise::Kept if completes || is_disturbed => {}
        Promise::Kept => {
            assert!(guard.is_held(), "{what}: it is held no more");
            tokio::time::sleep(Duration::from_millis(500)).await;
            assert!(guard.is_held(), "{what}: it is held no more");
            assert_eq!(stage.own_nodes(), nodes, "{what}: other nodes than before");
            assert!(!others[0].is_finished(), "{what}: somebody else has it too");
        }
        Promise::Gone => assert_eq!(guard.is_held(), !polled, "{what}"),
    }
    if let Some(also) = &outcome {
        for guard in also {
            assert!(guard.is_held(), "{what}");
            tokio::time::sleep(TURN).await;
            assert!(!others[0].is_finished(), "{what}: somebody else has it too");
        }
    }
    match end {
        End::Release => {
            drop(outcome);
            let released = guard.release().await.unwrap();
            assert!(is_disturbed || released == Release::Released, "{what}: {released:?}");
            stage.assert_nothing_of_ours(what).await;
        }
        End::Drop => drop(outcome),
    }
    assert_eq!(Rc::strong_count(&guard), 1);
    drop(guard);
    stage.assert_nothing_of_ours(what).await;
    stage.assert_as_before(others, &before, what).await;
    completes
}

pub(crate) fn held() -> Vec<Row> {
    let mut rows = Vec::new();
    for holding in holding().into_iter().map(Rc::new) {
        let writes = ["LockGuard::release", "Lease::slot", "WriteGuard::downgrade"].contains(&holding.name);
        for (end, loses_reply) in [(End::Release, false), (End::Drop, false), (End::Release, true), (End::Drop, true)] {
            if loses_reply && !writes {
                continue;
            }
            let what = format!(" of {:?}, a lost reply: {loses_reply}, then {end:?}", holding.subject);
            let holding = Rc::clone(&holding);
            rows.push(Row::new(holding.name, &what, holding.least_polls, move |cut, what| {
                play(hold_and_drop(&holding, loses_reply, end, cut, what))
            }));
        }
    }
    rows
}

/// Of two acquires of one owner at once the second waits for the first. One is dropped, the other one gets the lock.
async fn one_of_two(which: Which, first_is_dropped: bool, contended: bool, cut: Cut, what: &str) -> bool {
    let stage = Stage::new(LATENCY).await;
    let before = stage.footprint();
    let subject = Subject::One(which);
    let mut others = Vec::new();
    if contended {
        others.push(stage.holder_in_front(subject).await);
    }
    others.push(stage.contender_behind(subject));
    let lock = which.lock(&stage.client, ROOT);
    let (dropped, kept) = LockOwner::scope(async {
        let (dropped, kept) = (poll_until(lock.acquire(), cut), lock.acquire());
        match first_is_dropped {
            true => tokio::join!(dropped, kept),
            false => {
                let (kept, dropped) = tokio::join!(kept, dropped);
                (dropped, kept)
            }
        }
    })
    .await;
    let (completes, kept) = (dropped.is_some(), kept.unwrap());
    drop(dropped);
    assert!(kept.is_held(), "{what}");
    assert_eq!(kept.release().await.unwrap(), Release::Released, "{what}");
    stage.assert_nothing_of_ours(what).await;
    stage.assert_as_before(others, &before, what).await;
    completes
}

pub(crate) fn two_of_one_owner() -> Vec<Row> {
    let reentrant = Which::ALL.into_iter().filter(|which| which.is_reentrant());
    let rows = reentrant.flat_map(|which| {
        [(false, false), (false, true), (true, false), (true, true)].map(|(first, contended)| {
            let what = format!(" of {which:?}, one of two, the first: {first}, contended: {contended}");
            Row::new("InterProcessLock::acquire", &what, 1, move |cut, what| {
                play(one_of_two(which, first, contended, cut, what))
            })
        })
    });
    rows.collect()
}

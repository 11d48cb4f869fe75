//! Every asynchronous method of the locks is polled this often and dropped, for every "this": no node is left, no
//! waiter, no task, and the next one is granted.

use std::rc::Rc;
use std::time::Duration;

use curator_framework::Error;
use curator_integration::kinds::Which;
use curator_integration::lock_stage::{ROOT, Subject, TURN};
use curator_integration::operations::{Held, Holding, LONG, Patience, Promise, Taking, holding, taking};
use curator_recipes::{LockError, LockOwner, Release};
use tokio::time::sleep;

use crate::{Row, Scene};

/// An acquire of a free lock, or of one with a holder in front and a contender behind.
async fn acquire_and_drop(taking: &Taking, contended: bool, scene: &mut Scene) {
    if contended {
        scene.others.push(scene.stage.holder_in_front(taking.subject).await);
        scene.others.push(scene.stage.contender_behind(taking.subject));
    }
    let client = scene.stage.client.clone();
    let asks_once = taking.patience == Patience::Once;
    let guards = match scene.call((taking.run)(client)).await {
        // An acquire that asks once fails with the connection.
        Some(Err(LockError::Framework(Error::ConnectionLoss { .. }))) if asks_once && !contended => None,
        guards => guards.map(Result::unwrap),
    };
    if let Some(guards) = guards {
        assert!(!guards.is_empty() || (contended && asks_once), "nothing is granted");
        for guard in guards.iter().rev() {
            assert!(guard.is_held());
            assert!(guard.release().await.unwrap().is_released());
        }
    }
    scene.assert_nothing_of_ours().await;
    if scene.completes && scene.loses_reply {
        assert_eq!(scene.stage.client.session().await.unwrap().epoch(), 2, "no reply was lost");
    }
    if !contended {
        scene.others.push(scene.stage.contender_behind(taking.subject));
    }
}

fn every_acquire(wanted: impl Fn(Subject) -> bool) -> Vec<Row> {
    let takings = taking(LONG).into_iter().filter(|taking| wanted(taking.subject)).map(Rc::new);
    let rows = takings.flat_map(|taking| {
        [false, true].map(|contended| {
            let what = format!(" of {:?}, contended: {contended}", taking.subject);
            let taking = Rc::clone(&taking);
            let row = Row::new(taking.name, async move |scene| acquire_and_drop(&taking, contended, scene).await);
            let row = row.of(&what).least_polls(2);
            if contended { row } else { row.also_loses_a_reply(2) }
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

async fn hold_and_drop(holding: &Holding, end: End, scene: &mut Scene) {
    let Held { guard, operation } = (holding.prepare)(scene.stage.client.clone()).await;
    let nodes = scene.stage.own_nodes();
    let began = scene.stage.ensemble.now();
    scene.others.push(scene.stage.contender_behind(holding.subject));
    if let Some(disturb) = holding.disturb {
        let (front, ensemble) = (scene.stage.front.clone(), scene.stage.ensemble.clone());
        scene.in_turn(disturb(ensemble, front, guard.node_path().to_owned()));
    }
    let outcome = scene.call(operation).await;
    let is_disturbed = holding.disturb.is_some() && scene.stage.ensemble.now() >= began + TURN;
    match holding.promise {
        Promise::Kept if scene.completes || is_disturbed => {}
        Promise::Kept => {
            assert!(guard.is_held(), "it is held no more");
            sleep(Duration::from_millis(500)).await;
            assert!(guard.is_held(), "it is held no more");
            assert_eq!(scene.stage.own_nodes(), nodes, "other nodes than before");
            assert!(!scene.others[0].is_finished(), "somebody else has it too");
        }
        Promise::Gone => assert_eq!(guard.is_held(), !scene.is_called()),
    }
    for also in outcome.iter().flatten() {
        assert!(also.is_held());
        sleep(TURN).await;
        assert!(!scene.others[0].is_finished(), "somebody else has it too");
    }
    drop(outcome);
    if end == End::Release {
        let released = guard.release().await.unwrap();
        assert!(is_disturbed || released == Release::Released, "{released:?}");
        scene.assert_nothing_of_ours().await;
    }
    assert_eq!(Rc::strong_count(&guard), 1);
    drop(guard);
    scene.assert_nothing_of_ours().await;
}

pub(crate) fn held() -> Vec<Row> {
    let mut rows = Vec::new();
    for holding in holding().into_iter().map(Rc::new) {
        let writes = ["LockGuard::release", "Lease::slot", "WriteGuard::downgrade"].contains(&holding.name);
        for end in [End::Release, End::Drop] {
            let (what, least) = (format!(" of {:?}, then {end:?}", holding.subject), holding.least_polls);
            let holding = Rc::clone(&holding);
            let row = Row::new(holding.name, async move |scene| hold_and_drop(&holding, end, scene).await);
            let row = row.of(&what).least_polls(least);
            rows.push(if writes { row.also_loses_a_reply(least) } else { row });
        }
    }
    rows
}

/// Of two acquires of one owner at once the second waits for the first. One is dropped, the other one gets the lock.
async fn one_of_two(which: Which, first_is_dropped: bool, contended: bool, scene: &mut Scene) {
    let subject = Subject::One(which);
    if contended {
        scene.others.push(scene.stage.holder_in_front(subject).await);
    }
    scene.others.push(scene.stage.contender_behind(subject));
    let lock = which.lock(&scene.stage.client, ROOT);
    let (dropped, kept) = LockOwner::scope(async {
        let (dropped, kept) = (scene.call(lock.acquire()), lock.acquire());
        match first_is_dropped {
            true => tokio::join!(dropped, kept),
            false => {
                let (kept, dropped) = tokio::join!(kept, dropped);
                (dropped, kept)
            }
        }
    })
    .await;
    drop(dropped);
    let kept = kept.unwrap();
    assert!(kept.is_held());
    assert_eq!(kept.release().await.unwrap(), Release::Released);
    scene.assert_nothing_of_ours().await;
}

pub(crate) fn two_of_one_owner() -> Vec<Row> {
    let reentrant = Which::ALL.into_iter().filter(|which| which.is_reentrant());
    let rows = reentrant.flat_map(|which| {
        [(false, false), (false, true), (true, false), (true, true)].map(|(first, contended)| {
            let what = format!(" of {which:?}, one of two, the first: {first}, contended: {contended}");
            let one = async move |scene: &mut Scene| one_of_two(which, first, contended, scene).await;
            Row::new("InterProcessLock::acquire", one).of(&what)
        })
    });
    rows.collect()
}

//! Every asynchronous method of the locks is polled this often and dropped, for every "this": no node is left, no
//! waiter, no task, and the next one is granted.

use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use curator_framework::Error;
use curator_integration::kinds::Which;
use curator_integration::lock_stage::{OURS, ROOT, Stage, Subject, TURN, play};
use curator_recipes::{LockError, LockOwner, Release};

use crate::operations::{Held, Holding, LONG, Patience, Promise, Taking, holding, taking};

/// So that answers of several requests do not come at once.
const LATENCY: Duration = Duration::from_millis(3);
/// More polls than any of them takes.
const MOST_POLLS: usize = 500;

/// When a future is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Directly behind a poll: what was sent in it is under way.
    Behind(usize),
    /// When it is to be polled once more: an answer is there that it has not seen.
    Before(usize),
}

/// Polls a future to its end, with a call at the cut if it comes to that.
pub(crate) async fn poll_until_then<T>(future: impl Future<Output = T>, cut: Cut, call: impl FnOnce()) -> T {
    let (mut future, mut call) = (Box::pin(future), Some(call));
    let mut polls = 0;
    std::future::poll_fn(move |cx| {
        if cut == Cut::Before(polls) {
            if let Some(call) = call.take() {
                call();
            }
        }
        polls += 1;
        let polled = future.as_mut().poll(cx);
        if polled.is_pending() && cut == Cut::Behind(polls) {
            if let Some(call) = call.take() {
                call();
            }
        }
        polled
    })
    .await
}

/// Polls a future until then; `None` if it was dropped.
pub(crate) async fn poll_until<T>(future: impl Future<Output = T>, cut: Cut) -> Option<T> {
    let mut future = Box::pin(future);
    let mut polls = 0;
    std::future::poll_fn(move |cx| {
        if cut == Cut::Before(polls) {
            return Poll::Ready(None);
        }
        polls += 1;
        match future.as_mut().poll(cx) {
            Poll::Pending if cut == Cut::Behind(polls) => Poll::Ready(None),
            polled => polled.map(Some),
        }
    })
    .await
}

/// Plays a scene with every cut, until the future completes before it.
pub(crate) fn at_every_cut(what: &str, least: usize, mut scene: impl FnMut(Cut, &str) -> bool) {
    for polls in 0..MOST_POLLS {
        let mut completes = false;
        for cut in [Cut::Before(polls), Cut::Behind(polls + 1)] {
            completes = scene(cut, &format!("{what}, dropped {cut:?}"));
        }
        if completes {
            assert!(polls >= least, "{what} was done after {polls} polls");
            return;
        }
    }
    panic!("{what} is never done");
}

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

fn every_acquire(wanted: impl Fn(Subject) -> bool) {
    let mut scenes = 0;
    for taking in taking(LONG).iter().filter(|taking| wanted(taking.subject)) {
        for situation in [Situation::AtRest, Situation::Contended, Situation::LostReply] {
            let what = format!("{} of {:?}, {situation:?}", taking.name, taking.subject);
            at_every_cut(&what, 2, |cut, what| {
                scenes += 1;
                play(acquire_and_drop(taking, situation, cut, what))
            });
        }
    }
    println!("{scenes} scenes");
}

#[test]
fn an_acquire_of_one_lock_leaves_nothing() {
    use Which::{Mutex, Read, Write};
    every_acquire(|subject| matches!(subject, Subject::One(Mutex | Read | Write)));
}

#[test]
fn an_acquire_of_one_lease_leaves_nothing() {
    use Which::{OneDirectLease, OneLease, SemaphoreMutex};
    every_acquire(|subject| matches!(subject, Subject::One(SemaphoreMutex | OneLease | OneDirectLease)));
}

#[test]
fn an_acquire_of_several_leaves_nothing() {
    use Which::Multi;
    every_acquire(|subject| matches!(subject, Subject::Both(_) | Subject::One(Multi)));
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

#[test]
fn what_is_done_with_a_lock_that_is_held_leaves_it_as_promised() {
    let mut scenes = 0;
    for holding in &holding() {
        let writes = ["LockGuard::release", "Lease::slot", "WriteGuard::downgrade"].contains(&holding.name);
        for (end, loses_reply) in [(End::Release, false), (End::Drop, false), (End::Release, true), (End::Drop, true)] {
            if loses_reply && !writes {
                continue;
            }
            let what = format!("{} of {:?}, a lost reply: {loses_reply}, then {end:?}", holding.name, holding.subject);
            at_every_cut(&what, holding.least_polls, |cut, what| {
                scenes += 1;
                play(hold_and_drop(holding, loses_reply, end, cut, what))
            });
        }
    }
    println!("{scenes} scenes");
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

#[test]
fn an_owner_that_drops_one_of_two_acquires_gets_the_other() {
    let mut scenes = 0;
    for which in Which::ALL.into_iter().filter(|which| which.is_reentrant()) {
        for (first_is_dropped, contended) in [(false, false), (false, true), (true, false), (true, true)] {
            let what = format!("one of two of {which:?}, the first: {first_is_dropped}, contended: {contended}");
            at_every_cut(&what, 1, |cut, what| {
                scenes += 1;
                play(one_of_two(which, first_is_dropped, contended, cut, what))
            });
        }
    }
    println!("{scenes} scenes");
}

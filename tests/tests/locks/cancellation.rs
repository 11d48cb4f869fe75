//! Every asynchronous method of the locks is polled this often and dropped, for every "this": no node is left, no
//! waiter, no task, and the next one is granted.

use std::rc::Rc;
use std::time::Duration;

use crate::operations::{Held, Holding, Promise, Taking, holding, taking};
use crate::stage::{Stage, Subject, TURN, play};

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

/// Polls a future until then; `None` if it was dropped.
pub(crate) async fn poll_until<T>(future: impl Future<Output = T>, cut: Cut) -> Option<T> {
    let mut future = Box::pin(future);
    let mut polls = 0;
    std::future::poll_fn(move |cx| {
        if cut == Cut::Before(polls) {
            return std::task::Poll::Ready(None);
        }
        polls += 1;
        match future.as_mut().poll(cx) {
            std::task::Poll::Pending if cut == Cut::Behind(polls) => std::task::Poll::Ready(None),
            polled => polled.map(Some),
        }
    })
    .await
}

/// Plays a scene with every cut, until the future completes before it.
fn at_every_cut(what: &str, least: usize, mut scene: impl FnMut(Cut, &str) -> bool) {
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

async fn acquire_and_drop(taking: &Taking, contended: bool, cut: Cut, what: &str) -> bool {
    let stage = Stage::new(LATENCY).await;
    let before = stage.footprint();
    let mut others = Vec::new();
    if contended {
        others.push(stage.somebody_in_front(taking.subject).await);
        others.push(stage.somebody_behind(taking.subject));
    }
    let granted = poll_until((taking.run)(stage.client.clone()), cut).await;
    let completes = granted.is_some();
    if let Some(guards) = granted {
        assert!(!guards.is_empty() || (contended && taking.asks_once), "{what}: nothing is granted");
        for guard in guards.iter().rev() {
            assert!(guard.is_held(), "{what}");
            guard.release().await.unwrap();
        }
    }
    stage.assert_nothing_of_ours(what).await;
    if !contended {
        others.push(stage.somebody_behind(taking.subject));
    }
    stage.assert_as_before(others, &before, what).await;
    completes
}

fn every_acquire(wanted: impl Fn(Subject) -> bool) {
    let mut scenes = 0;
    for taking in taking().iter().filter(|taking| wanted(taking.subject)) {
        for contended in [false, true] {
            let what = format!("{} of {:?}, contended: {contended}", taking.name, taking.subject);
            at_every_cut(&what, 2, |cut, what| {
                scenes += 1;
                play(acquire_and_drop(taking, contended, cut, what))
            });
        }
    }
    println!("{scenes} scenes");
}

#[test]
fn an_acquire_of_one_lock_leaves_nothing() {
    use crate::kinds::Which::{Mutex, Read, Write};
    every_acquire(|subject| matches!(subject, Subject::One(Mutex | Read | Write)));
}

#[test]
fn an_acquire_of_one_lease_leaves_nothing() {
    use crate::kinds::Which::{OneDirectLease, OneLease, SemaphoreMutex};
    every_acquire(|subject| matches!(subject, Subject::One(SemaphoreMutex | OneLease | OneDirectLease)));
}

#[test]
fn an_acquire_of_several_leaves_nothing() {
    use crate::kinds::Which::Multi;
    every_acquire(|subject| matches!(subject, Subject::Both(_) | Subject::One(Multi)));
}

/// How a guard goes when the future was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Release,
    Drop,
}

async fn hold_and_drop(holding: &Holding, end: End, cut: Cut, what: &str) -> bool {
    let stage = Stage::new(LATENCY).await;
    let before = stage.footprint();
    let Held { guard, operation } = (holding.prepare)(stage.client.clone()).await;
    let nodes = stage.own_nodes();
    let began = stage.ensemble.now();
    let mut others = vec![stage.somebody_behind(holding.subject)];
    if let Some(disturb) = holding.disturb {
        let (front, ensemble, path) = (stage.front.clone(), stage.ensemble.clone(), guard.path().to_owned());
        others.push(tokio::spawn(async move {
            tokio::time::sleep(TURN).await;
            disturb(ensemble, front, path).await;
        }));
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
            assert!(is_disturbed || released == curator_recipes::Release::Released, "{what}: {released:?}");
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
        for end in [End::Release, End::Drop] {
            let what = format!("{} of {:?}, then {end:?}", holding.name, holding.subject);
            at_every_cut(&what, holding.least_polls, |cut, what| {
                scenes += 1;
                play(hold_and_drop(holding, end, cut, what))
            });
        }
    }
    println!("{scenes} scenes");
}

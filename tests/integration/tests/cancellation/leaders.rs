//! The asynchronous methods of elections, dropped at every poll: one candidate leads afterwards, and the closes of all
//! leave nothing.

use std::convert::Infallible;

use curator_integration::following::observer;
use curator_integration::lock_stage::{QUIET, Stage, TURN};
use curator_integration::operations::LONG;
use curator_recipes::{
    CloseMode, InterProcessMutex, LeaderLatch, LeaderLatchOptions, LeaderObserver, LeaderSelector, LeaderState,
    Leadership, LossReason, ObserverState, TermEnd, TermOutcome,
};
use tokio::time::{sleep, timeout};

use crate::Row;

const PATH: &str = "/election";

async fn started(stage: &Stage, is_ours: bool) -> LeaderLatch {
    let (client, id) = if is_ours { (&stage.client, "ours") } else { (&stage.front, "other") };
    let latch = LeaderLatch::with_options(client.clone(), PATH, LeaderLatchOptions::new().id(id)).unwrap();
    latch.start().unwrap();
    sleep(QUIET).await;
    latch
}

/// The lead when a method of our latch is called, and afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lead {
    /// Our latch leads, and the other one waits.
    Ours,
    /// Our latch leads until the call ends its term.
    Ends,
    /// Our latch leads until its node is deleted in the turn.
    Deleted,
    /// The other latch leads until it resigns in its turn. Then ours leads.
    Comes,
}

fn latch(method: &'static str, lead: Lead, call: impl AsyncFn(&[LeaderLatch; 2]) + 'static) -> Row {
    Row::new(method, async move |scene| {
        let comes = lead == Lead::Comes;
        // The first one that is started leads.
        let first = started(&scene.stage, !comes).await;
        let second = started(&scene.stage, comes).await;
        let both = if comes { [second, first] } else { [first, second] };
        let [ours, other] = &both;
        if comes {
            let leader = other.clone();
            scene.in_turn(async move { assert!(leader.resign().await.unwrap().is_some()) });
        } else if lead == Lead::Deleted {
            let (path, front) = (ours.leadership().unwrap().node_path().to_owned(), scene.stage.front.clone());
            scene.in_turn(async move { front.delete().for_path(&path).await.unwrap() });
        }
        scene.call(call(&both)).await;
        sleep(TURN + QUIET).await;
        if matches!(lead, Lead::Ours | Lead::Comes) {
            assert!(ours.has_leadership(), "{ours:?}");
        }
        assert!(ours.has_leadership() != other.has_leadership(), "{ours:?} {other:?}");
        // A close continues when its future is dropped.
        let is_closed = method.contains("close") && scene.is_called();
        assert_eq!(matches!(ours.state(), LeaderState::Closed), is_closed, "{ours:?}");
        ours.close().await;
        timeout(LONG, other.leading()).await.unwrap().unwrap();
        other.close().await;
        drop(both);
        scene.stage.ensemble.delete(PATH);
    })
}

fn term(latch: &LeaderLatch) -> Leadership {
    latch.leadership().unwrap()
}

pub(crate) fn latches() -> Vec<Row> {
    use Lead::{Comes, Deleted, Ends, Ours};
    vec![
        latch("Changes::recv", Comes, async |[ours, _]| assert!(ours.changes().recv().await.is_some())),
        latch("LeaderLatch::close", Ends, async |[ours, _]| ours.close().await),
        latch("LeaderLatch::close_with", Ends, async |[ours, _]| ours.close_with(CloseMode::NotifyLeader).await),
        latch("LeaderLatch::leader", Ours, async |[ours, _]| {
            assert_eq!(ours.leader().await.unwrap().unwrap().id(), "ours");
        }),
        latch("LeaderLatch::leading", Comes, async |[ours, _]| drop(ours.leading().await.unwrap())),
        latch("LeaderLatch::leading_timeout", Comes, async |[ours, _]| {
            assert!(ours.leading_timeout(LONG).await.unwrap().is_some());
        }),
        latch("LeaderLatch::participants", Ours, async |[ours, _]| {
            assert_eq!(ours.participants().await.unwrap().len(), 2);
        }),
        latch("LeaderLatch::resign", Ends, async |[ours, _]| assert!(ours.resign().await.unwrap().is_some())),
        latch("LeaderLatch::resign_to_timeout", Ends, async |[ours, other]| {
            let candidate = other.participants().await.unwrap().remove(1);
            assert!(ours.resign_to_timeout(&candidate, LONG).await.unwrap().is_some());
        }),
        latch("Leadership::ended", Deleted, async |[ours, _]| {
            assert_eq!(term(ours).ended().await, TermEnd::Lost(LossReason::NodeDeleted));
        }),
        latch("Leadership::hold_node", Ours, async |[ours, _]| {
            term(ours).hold_node("/held", "data").await.unwrap();
        }),
        latch("Leadership::lost", Deleted, async |[ours, _]| {
            assert_eq!(term(ours).lost().await, LossReason::NodeDeleted);
        }),
        latch("Leadership::proclaim", Ours, async |[ours, _]| term(ours).proclaim("data").await.unwrap()),
        latch("Leadership::protect", Ours, async |[ours, _]| term(ours).protect(sleep(TURN)).await.unwrap()),
        latch("Leadership::verify", Ours, async |[ours, _]| term(ours).verify().await.unwrap()),
    ]
}

async fn work(_: Leadership) -> Result<(), Infallible> {
    sleep(TURN).await;
    Ok(())
}

/// A call of a selector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Is {
    /// A run. Another client holds the lead until its turn.
    Run,
    /// Beside a run.
    Beside,
}

fn selector(method: &'static str, is: Is, call: impl AsyncFn(&LeaderSelector) + 'static) -> Row {
    Row::new(method, async move |scene| {
        let selector = LeaderSelector::new(scene.stage.client.clone(), PATH).unwrap();
        let mutex = InterProcessMutex::new(scene.stage.front.clone(), PATH).unwrap();
        let (runs, mut running) = (selector.clone(), None);
        if is == Is::Run {
            let holder = mutex.acquire().await.unwrap();
            scene.in_turn(async move {
                assert!(holder.release().await.unwrap().is_released());
                sleep(TURN * 2).await;
                runs.close().await;
            });
        } else {
            running = Some(tokio::spawn(async move { runs.run(work).await.unwrap() }));
            sleep(QUIET / 2).await;
        }
        scene.call(call(&selector)).await;
        if let Some(running) = running {
            sleep(QUIET).await;
            // A close continues when its future is dropped.
            let is_closed = method == "LeaderSelector::close" && scene.is_called();
            assert_eq!(running.is_finished(), is_closed);
            selector.close().await;
            running.await.unwrap();
        } else {
            // Until the selector is closed.
            sleep(TURN * 4).await;
        }
        scene.assert_nothing_of_ours().await;
        assert!(timeout(LONG, mutex.acquire()).await.unwrap().unwrap().release().await.unwrap().is_released());
        drop((selector, mutex));
        scene.stage.ensemble.delete(PATH);
    })
}

pub(crate) fn selectors() -> Vec<Row> {
    vec![
        selector("LeaderSelector::close", Is::Beside, async |selector| selector.close().await),
        selector("LeaderSelector::leader", Is::Beside, async |selector| {
            assert!(selector.leader().await.unwrap().unwrap().holds);
        }),
        selector("LeaderSelector::participants", Is::Beside, async |selector| {
            assert_eq!(selector.participants().await.unwrap().len(), 1);
        }),
        selector("LeaderSelector::run", Is::Run, async |selector| selector.run(work).await.unwrap()),
        selector("LeaderSelector::run_once", Is::Run, async |selector| {
            assert_eq!(selector.run_once(|_| sleep(QUIET)).await.unwrap(), TermOutcome::Done(()));
        }),
        selector("LeaderSelector::run_until", Is::Run, async |selector| {
            selector.run_until(sleep(TURN * 3), work).await.unwrap();
        }),
    ]
}

/// A call of an observer that knows the leader, or of one that was started a moment ago.
fn observed(method: &'static str, call: impl AsyncFn(&LeaderObserver, &LeaderObserver) + 'static) -> Row {
    Row::new(method, async move |scene| {
        let latch = started(&scene.stage, false).await;
        let knows = observer(scene.stage.client.clone(), PATH);
        let mut observed = knows.watch();
        observed.wait_for(|observed| matches!(observed, ObserverState::Leader(_))).await.unwrap();
        let late = observer(scene.stage.client.clone(), PATH);
        scene.call(call(&knows, &late)).await;
        sleep(QUIET).await;
        // A close continues when its future is dropped.
        let is_closed = method == "LeaderObserver::close" && scene.is_called();
        assert_eq!(matches!(*observed.borrow(), ObserverState::Closed), is_closed);
        knows.close().await;
        late.close().await;
        drop((knows, late));
        latch.close().await;
        drop(latch);
        scene.stage.ensemble.delete(PATH);
    })
}

pub(crate) fn observers() -> Vec<Row> {
    vec![
        observed("LeaderObserver::close", async |knows, _| knows.close().await),
        observed("LeaderObserver::initialized", async |_, late| late.initialized().await.unwrap()),
        observed("LeaderObserver::initialized_timeout", async |_, late| {
            late.initialized_timeout(LONG).await.unwrap().unwrap();
        }),
    ]
}

//! The asynchronous methods of elections, dropped at every poll: one candidate leads afterwards, and the closes of all
//! leave nothing.

use std::convert::Infallible;

use curator_integration::cuts::{Cut, poll_until};
use curator_integration::lock_stage::{QUIET, Stage, TURN, play};
use curator_integration::operations::{LONG, Local};
use curator_recipes::{
    CloseMode, InterProcessMutex, LeaderLatch, LeaderLatchOptions, LeaderObserver, LeaderSelector, LeaderState,
    LossReason, ObserverState, TermEnd, TermOutcome,
};
use tokio::time::{sleep, timeout};

use crate::{LATENCY, Row};

const PATH: &str = "/election";
const OF_LATCHES: [&str; 15] = [
    "Changes::recv",
    "LeaderLatch::leading_timeout",
    "LeaderLatch::close",
    "LeaderLatch::close_with",
    "LeaderLatch::leader",
    "LeaderLatch::leading",
    "LeaderLatch::participants",
    "LeaderLatch::resign",
    "LeaderLatch::resign_to_timeout",
    "Leadership::ended",
    "Leadership::hold_node",
    "Leadership::lost",
    "Leadership::proclaim",
    "Leadership::protect",
    "Leadership::verify",
];
const OF_SELECTORS: [&str; 6] = [
    "LeaderSelector::close",
    "LeaderSelector::leader",
    "LeaderSelector::participants",
    "LeaderSelector::run",
    "LeaderSelector::run_once",
    "LeaderSelector::run_until",
];
const OF_OBSERVERS: [&str; 3] =
    ["LeaderObserver::close", "LeaderObserver::initialized", "LeaderObserver::initialized_timeout"];

async fn started(stage: &Stage, is_ours: bool) -> LeaderLatch {
    let (client, id) = if is_ours { (&stage.client, "ours") } else { (&stage.front, "other") };
    let latch = LeaderLatch::with_options(client.clone(), PATH, LeaderLatchOptions::new().id(id)).unwrap();
    latch.start().unwrap();
    sleep(QUIET).await;
    latch
}

/// Returns the call of a method of a latch. The first latch leads, or waits behind the second one.
async fn call_of_latch(method: &str, ours: &LeaderLatch, other: &LeaderLatch, stage: &Stage) -> Local<()> {
    let (latch, leadership, mut changes) = (ours.clone(), ours.leadership(), ours.changes());
    let term = move || leadership.unwrap();
    match method {
        "Changes::recv" => Box::pin(async move { assert!(changes.recv().await.is_some()) }),
        "LeaderLatch::leading_timeout" => {
            Box::pin(async move { assert!(latch.leading_timeout(LONG).await.unwrap().is_some()) })
        }
        "LeaderLatch::close" => Box::pin(async move { latch.close().await }),
        "LeaderLatch::close_with" => Box::pin(async move { latch.close_with(CloseMode::NotifyLeader).await }),
        "LeaderLatch::leader" => {
            Box::pin(async move { assert_eq!(latch.leader().await.unwrap().unwrap().id(), "ours") })
        }
        "LeaderLatch::leading" => Box::pin(async move { drop(latch.leading().await.unwrap()) }),
        "LeaderLatch::participants" => {
            Box::pin(async move { assert_eq!(latch.participants().await.unwrap().len(), 2) })
        }
        "LeaderLatch::resign" => Box::pin(async move { assert!(latch.resign().await.unwrap().is_some()) }),
        "LeaderLatch::resign_to_timeout" => {
            let candidate = other.participants().await.unwrap().remove(1);
            Box::pin(async move { assert!(latch.resign_to_timeout(&candidate, LONG).await.unwrap().is_some()) })
        }
        "Leadership::ended" | "Leadership::lost" => {
            let (term, front) = (term(), stage.front.clone());
            let path = term.node_path().to_owned();
            tokio::spawn(async move {
                sleep(TURN).await;
                front.delete().for_path(&path).await.unwrap();
            });
            match method {
                "Leadership::lost" => Box::pin(async move { assert_eq!(term.lost().await, LossReason::NodeDeleted) }),
                _ => Box::pin(async move {
                    assert_eq!(term.ended().await, TermEnd::Lost(LossReason::NodeDeleted));
                }),
            }
        }
        "Leadership::hold_node" => Box::pin(async move { _ = term().hold_node("/held", "data").await.unwrap() }),
        "Leadership::proclaim" => Box::pin(async move { term().proclaim("data").await.unwrap() }),
        "Leadership::protect" => Box::pin(async move { term().protect(sleep(TURN)).await.unwrap() }),
        "Leadership::verify" => Box::pin(async move { term().verify().await.unwrap() }),
        other => panic!("{other}"),
    }
}

async fn drop_of_latch(method: &str, cut: Cut, what: &str) -> bool {
    let stage = Stage::new(LATENCY).await;
    let before = stage.footprint();
    let waits = ["Changes::recv", "LeaderLatch::leading_timeout", "LeaderLatch::leading"].contains(&method);
    // The first one that is started leads.
    let first = started(&stage, !waits).await;
    let second = started(&stage, waits).await;
    let (ours, other) = if waits { (second, first) } else { (first, second) };
    if waits {
        let leader = other.clone();
        tokio::spawn(async move {
            sleep(TURN).await;
            assert!(leader.resign().await.unwrap().is_some());
        });
    }
    let call = call_of_latch(method, &ours, &other, &stage).await;
    let completes = poll_until(call, cut).await.is_some();
    sleep(TURN + QUIET).await;
    let ends = method.contains("close")
        || method.contains("resign")
        || ["Leadership::ended", "Leadership::lost"].contains(&method);
    if !ends {
        assert!(ours.has_leadership(), "{what}: {ours:?}");
    }
    assert!(ours.has_leadership() != other.has_leadership(), "{what}: {ours:?} {other:?}");
    // A close goes on when its future is dropped.
    let is_closed = method.contains("close") && cut != Cut::Before(0);
    assert_eq!(matches!(ours.state(), LeaderState::Closed), is_closed, "{what}: {ours:?}");
    ours.close().await;
    timeout(LONG, other.leading()).await.expect(what).unwrap();
    other.close().await;
    drop((ours, other));
    stage.ensemble.delete(PATH);
    stage.assert_as_before(Vec::new(), &before, what).await;
    completes
}

async fn drop_of_selector(method: &str, cut: Cut, what: &str) -> bool {
    let stage = Stage::new(LATENCY).await;
    let before = stage.footprint();
    let selector = LeaderSelector::new(stage.client.clone(), PATH).unwrap();
    let mutex = InterProcessMutex::new(stage.front.clone(), PATH).unwrap();
    let ours = selector.clone();
    let run = async |selector: LeaderSelector| {
        let work = |_| async {
            sleep(TURN).await;
            Ok::<(), Infallible>(())
        };
        selector.run(work).await.unwrap();
    };
    let mut running = None;
    let call: Local<()> = if method.contains("run") {
        let holder = mutex.acquire().await.unwrap();
        let closed = selector.clone();
        tokio::spawn(async move {
            sleep(TURN).await;
            assert!(holder.release().await.unwrap().is_released());
            sleep(TURN * 2).await;
            closed.close().await;
        });
        match method {
            "LeaderSelector::run" => Box::pin(async move { run(ours).await }),
            "LeaderSelector::run_until" => {
                let work = async |_| {
                    sleep(TURN).await;
                    Ok::<(), Infallible>(())
                };
                Box::pin(async move { ours.run_until(sleep(TURN * 3), work).await.unwrap() })
            }
            _ => Box::pin(async move {
                assert_eq!(ours.run_once(|_| sleep(QUIET)).await.unwrap(), TermOutcome::Done(()));
            }),
        }
    } else {
        running = Some(tokio::task::spawn(run(selector.clone())));
        sleep(QUIET / 2).await;
        match method {
            "LeaderSelector::close" => Box::pin(async move { ours.close().await }),
            "LeaderSelector::leader" => Box::pin(async move { assert!(ours.leader().await.unwrap().unwrap().holds) }),
            "LeaderSelector::participants" => {
                Box::pin(async move { assert_eq!(ours.participants().await.unwrap().len(), 1) })
            }
            other => panic!("{other}"),
        }
    };
    let completes = poll_until(call, cut).await.is_some();
    match running {
        Some(running) => {
            sleep(QUIET).await;
            // A close goes on when its future is dropped.
            let is_closed = method == "LeaderSelector::close" && cut != Cut::Before(0);
            assert_eq!(running.is_finished(), is_closed, "{what}");
            selector.close().await;
            running.await.unwrap();
        }
        // Until the spawned task has closed the selector.
        None => sleep(TURN * 4).await,
    }
    stage.assert_nothing_of_ours(what).await;
    assert!(timeout(LONG, mutex.acquire()).await.expect(what).unwrap().release().await.unwrap().is_released());
    drop((selector, mutex));
    stage.ensemble.delete(PATH);
    stage.assert_as_before(Vec::new(), &before, what).await;
    completes
}

async fn drop_of_observer(method: &str, cut: Cut, what: &str) -> bool {
    let stage = Stage::new(LATENCY).await;
    let before = stage.footprint();
    let latch = started(&stage, false).await;
    let observer = curator_integration::following::observer(stage.client.clone(), PATH);
    let mut observed = observer.watch();
    observed.wait_for(|observed| matches!(observed, ObserverState::Leader(_))).await.unwrap();
    let late = LeaderObserver::new(stage.client.clone(), PATH).unwrap();
    late.start().unwrap();
    let ours = late.clone();
    let call: Local<()> = match method {
        "LeaderObserver::close" => {
            let observer = observer.clone();
            Box::pin(async move { observer.close().await })
        }
        "LeaderObserver::initialized" => Box::pin(async move { ours.initialized().await.unwrap() }),
        _ => Box::pin(async move { ours.initialized_timeout(LONG).await.unwrap().unwrap() }),
    };
    let completes = poll_until(call, cut).await.is_some();
    sleep(QUIET).await;
    // A close goes on when its future is dropped.
    let is_closed = method == OF_OBSERVERS[0] && cut != Cut::Before(0);
    assert_eq!(matches!(*observed.borrow(), ObserverState::Closed), is_closed, "{what}");
    observer.close().await;
    late.close().await;
    drop((observer, late));
    latch.close().await;
    drop(latch);
    stage.ensemble.delete(PATH);
    stage.assert_as_before(Vec::new(), &before, what).await;
    completes
}

pub(crate) fn latches() -> Vec<Row> {
    let row = |method| Row::new(method, "", 1, move |cut, what| play(drop_of_latch(method, cut, what)));
    OF_LATCHES.map(row).into()
}

pub(crate) fn selectors() -> Vec<Row> {
    let row = |method| Row::new(method, "", 1, move |cut, what| play(drop_of_selector(method, cut, what)));
    OF_SELECTORS.map(row).into()
}

pub(crate) fn observers() -> Vec<Row> {
    let row = |method| Row::new(method, "", 1, move |cut, what| play(drop_of_observer(method, cut, what)));
    OF_OBSERVERS.map(row).into()
}

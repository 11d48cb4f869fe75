//! The asynchronous methods of barriers and count-down latches, dropped at every poll: no node of an owner is left, no
//! watch, and no count is made twice.

use curator_integration::cuts::{Cut, poll_until};
use curator_integration::lock_stage::{OURS, QUIET, Stage, TURN, play};
use curator_integration::operations::{LONG, Local};
use curator_recipes::{CountDownLatch, DistributedBarrier, OwnedBarrier};
use futures_util::FutureExt as _;
use tokio::time::sleep;

use crate::{LATENCY, Row};

const PATH: &str = "/path";
const OF_BARRIERS: [&str; 9] = [
    "DistributedBarrier::is_set",
    "DistributedBarrier::remove_barrier",
    "DistributedBarrier::set_barrier",
    "DistributedBarrier::set_owned",
    "DistributedBarrier::wait_on_barrier",
    "DistributedBarrier::wait_on_barrier_timeout",
    "OwnedBarrier::lost",
    "OwnedBarrier::release",
    "OwnedBarrier::verify",
];
const OF_LATCHES: [&str; 12] = [
    "CountDownLatch::count",
    "CountDownLatch::count_down",
    "CountDownLatch::count_down_as",
    "CountDownLatch::participant_lost",
    "CountDownLatch::participate",
    "CountDownLatch::round",
    "CountDownLatch::try_set_count",
    "CountDownLatch::wait",
    "CountDownLatch::wait_timeout",
    "LatchParticipant::count_down",
    "LatchParticipant::lost",
    "LatchParticipant::verify",
];

async fn drop_of_barrier(method: &str, loses_reply: bool, cut: Cut, what: &str) -> bool {
    let stage = Stage::new(LATENCY).await;
    let before = stage.footprint();
    let ours = DistributedBarrier::new(stage.client.clone(), PATH).unwrap();
    let others = DistributedBarrier::new(stage.front.clone(), PATH).unwrap();
    let of_owner = method.starts_with("OwnedBarrier");
    let mut owned: Option<OwnedBarrier> = None;
    if of_owner {
        owned = Some(ours.set_owned().await.unwrap());
    } else if !method.ends_with("set_barrier") && !method.ends_with("set_owned") {
        others.set_barrier().await.unwrap();
    }
    sleep(QUIET).await;
    if loses_reply {
        stage.ensemble.drop_reply(OURS);
    }
    let removal = others.clone();
    let removed = method.contains("wait") || method.ends_with("lost");
    let turn = removed.then(|| {
        tokio::spawn(async move {
            sleep(TURN).await;
            removal.remove_barrier().await.unwrap();
        })
    });
    let call: Local<Option<OwnedBarrier>> = match method {
        "DistributedBarrier::is_set" => Box::pin(async move { ours.is_set().await.unwrap() }.map(|_| None)),
        "DistributedBarrier::remove_barrier" => {
            Box::pin(async move { ours.remove_barrier().await.unwrap() }.map(|()| None))
        }
        "DistributedBarrier::set_barrier" => Box::pin(async move { ours.set_barrier().await.unwrap() }.map(|()| None)),
        "DistributedBarrier::set_owned" => Box::pin(async move { Some(ours.set_owned().await.unwrap()) }),
        "DistributedBarrier::wait_on_barrier" => {
            Box::pin(async move { ours.wait_on_barrier().await.unwrap() }.map(|()| None))
        }
        "DistributedBarrier::wait_on_barrier_timeout" => Box::pin(async move {
            assert!(ours.wait_on_barrier_timeout(LONG).await.unwrap().is_some());
            None
        }),
        "OwnedBarrier::lost" => {
            let owned = owned.take().unwrap();
            Box::pin(async move { owned.lost().await }.map(|_| None))
        }
        "OwnedBarrier::verify" => {
            let owned = owned.take().unwrap();
            Box::pin(async move { owned.verify().await.unwrap() }.map(|()| None))
        }
        "OwnedBarrier::release" => {
            let owned = owned.take().unwrap();
            Box::pin(async move { assert!(owned.release().await.unwrap().is_released()) }.map(|()| None))
        }
        other => panic!("{other}"),
    };
    let completed = poll_until(call, cut).await;
    let completes = completed.is_some();
    if let Some(Some(owned)) = completed {
        assert!(owned.is_held() && stage.own_nodes() == [PATH], "{what}");
        assert!(owned.release().await.unwrap().is_released(), "{what}");
    }
    sleep(QUIET).await;
    stage.assert_nothing_of_ours(what).await;
    others.remove_barrier().await.unwrap();
    stage.assert_as_before(turn.into_iter().collect(), &before, what).await;
    completes
}

async fn drop_of_latch(method: &str, loses_reply: bool, cut: Cut, what: &str) -> bool {
    let stage = Stage::new(LATENCY).await;
    let before = stage.footprint();
    let ours = CountDownLatch::new(stage.client.clone(), PATH).unwrap();
    let others = CountDownLatch::new(stage.front.clone(), PATH).unwrap();
    if method != "CountDownLatch::try_set_count" {
        assert!(others.try_set_count(1).await.unwrap());
    }
    let participant = match method.starts_with("LatchParticipant") {
        true => Some(ours.participate("ours").await.unwrap()),
        false => None,
    };
    let other = match method.ends_with("participant_lost") {
        true => Some(others.participate("other").await.unwrap()),
        false => None,
    };
    sleep(QUIET).await;
    if loses_reply {
        stage.ensemble.drop_reply(OURS);
    }
    let (latch, ensemble) = (others.clone(), stage.ensemble.clone());
    let turn = async move {
        sleep(TURN).await;
        drop(other);
        for node in ensemble.children("/path/here") {
            ensemble.delete(&format!("/path/here/{node}"));
        }
        sleep(QUIET).await;
        drop(latch.count_down().await);
    };
    let waits =
        ["wait", "wait_timeout", "lost", "participant_lost"].iter().any(|name| method.ends_with(&format!("::{name}")));
    let turn = waits.then(|| tokio::spawn(turn));
    let called = ours.clone();
    let call: Local<()> = match method {
        "CountDownLatch::count" => Box::pin(async move { assert_eq!(called.count().await.unwrap(), 1) }),
        "CountDownLatch::count_down" => Box::pin(async move { assert_eq!(called.count_down().await.unwrap(), 0) }),
        "CountDownLatch::count_down_as" => {
            Box::pin(async move { assert_eq!(called.count_down_as("one").await.unwrap(), 0) })
        }
        "CountDownLatch::participant_lost" => {
            Box::pin(async move { assert_eq!(called.participant_lost().await.unwrap(), "other") })
        }
        "CountDownLatch::participate" => {
            Box::pin(async move { assert!(called.participate("ours").await.unwrap().is_held()) })
        }
        "CountDownLatch::round" => Box::pin(async move { assert!(called.round().await.unwrap() > 0) }),
        "CountDownLatch::try_set_count" => Box::pin(async move { assert!(called.try_set_count(1).await.unwrap()) }),
        "CountDownLatch::wait" => Box::pin(async move { called.wait().await.unwrap() }),
        "CountDownLatch::wait_timeout" => {
            Box::pin(async move { assert!(called.wait_timeout(LONG).await.unwrap().is_some()) })
        }
        "LatchParticipant::count_down" => {
            let participant = participant.unwrap();
            Box::pin(async move { assert_eq!(participant.count_down().await.unwrap(), 0) })
        }
        "LatchParticipant::verify" => {
            let participant = participant.unwrap();
            Box::pin(async move { participant.verify().await.unwrap() })
        }
        "LatchParticipant::lost" => {
            let participant = participant.unwrap();
            Box::pin(async move {
                let _reason = participant.lost().await;
            })
        }
        other => panic!("{other}"),
    };
    let completes = poll_until(call, cut).await.is_some();
    sleep(QUIET).await;
    stage.assert_nothing_of_ours(what).await;
    // All goes on: the count is made once, and the round ends.
    let begun = others.try_set_count(1).await.unwrap();
    assert!(!(begun && completes && method == "CountDownLatch::try_set_count"), "{what}");
    let round = others.round().await.unwrap();
    assert!(stage.ensemble.children(&format!("/path/{round}")).len() <= 1, "{what}");
    others.count_down().await.unwrap();
    others.wait().await.unwrap();
    stage.assert_as_before(turn.into_iter().collect(), &before, what).await;
    completes
}

/// A lost reply changes what these leave behind.
const LOSE_REPLIES: [&str; 6] = [
    "CountDownLatch::count_down",
    "CountDownLatch::participate",
    "CountDownLatch::try_set_count",
    "DistributedBarrier::set_owned",
    "LatchParticipant::count_down",
    "OwnedBarrier::release",
];

pub(crate) fn barriers() -> Vec<Row> {
    let rows = OF_BARRIERS.into_iter().flat_map(|method| {
        let rows =
            Row::with_replies(method, [1, 2], move |lost, cut, what| play(drop_of_barrier(method, lost, cut, what)));
        rows.into_iter().take(if LOSE_REPLIES.contains(&method) { 2 } else { 1 })
    });
    rows.collect()
}

pub(crate) fn latches() -> Vec<Row> {
    let rows = OF_LATCHES.into_iter().flat_map(|method| {
        let rows =
            Row::with_replies(method, [1, 2], move |lost, cut, what| play(drop_of_latch(method, lost, cut, what)));
        rows.into_iter().take(if LOSE_REPLIES.contains(&method) { 2 } else { 1 })
    });
    rows.collect()
}

//! Latches under faults at exact moments: a simulated network and paused time.

use std::time::Duration;

use curator_framework::CuratorFramework;
use curator_framework::recipe::RecipeClient as _;
use curator_integration::simulated_stage::{ONE, SESSION, TWO, client, play, soon, until};
use curator_recipes::CountDownLatch;
use curator_test::SimulatedEnsemble;
use curator_test::nodes::Change;
use tokio::time::{Instant, sleep};

use crate::fault::{FAULTS, fault};

const PATH: &str = "/test/latch";

fn latch(client: &CuratorFramework) -> CountDownLatch {
    CountDownLatch::new(client.clone(), PATH).unwrap()
}

/// The counts of the present round.
async fn counts(ensemble: &SimulatedEnsemble, latch: &CountDownLatch) -> Vec<String> {
    ensemble.children(&format!("{PATH}/{}", soon(latch.round()).await.unwrap()))
}

/// Redisson's count is made twice if its reply is lost. The reply to each request is lost here, in the same session and
/// with it.
#[test]
fn count_is_made_once_whatever_its_connection_does() {
    for seed in 0..100 * FAULTS {
        play(seed, async |ensemble| {
            let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
            let (ours, others) = (latch(&one), latch(&two));
            assert!(soon(others.try_set_count(3)).await.unwrap());
            let waiting = {
                let others = others.clone();
                tokio::spawn(async move { others.wait().await })
            };
            for left in [2, 1, 0] {
                let ours = ours.clone();
                let counting = tokio::spawn(async move { ours.count_down().await });
                fault(&ensemble, &one, seed).await;
                assert_eq!(soon(counting).await.unwrap().unwrap(), left, "seed {seed}");
                ensemble.repair(ONE);
                assert_eq!(counts(&ensemble, &others).await.len() as u32, 3 - left, "seed {seed}");
            }
            soon(waiting).await.unwrap().unwrap();
        });
    }
}

/// A count is not made in the round behind its own.
#[test]
fn count_with_a_lost_reply_never_reaches_the_next_round() {
    for millis in 0..80 {
        play(millis, async |ensemble| {
            let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
            let (ours, others) = (latch(&one), latch(&two));
            assert!(soon(others.try_set_count(1)).await.unwrap());
            ensemble.drop_reply(ONE);
            let counting = {
                let ours = ours.clone();
                tokio::spawn(async move { ours.count_down_as("ours").await })
            };
            sleep(Duration::from_millis(millis)).await;
            ensemble.partition(ONE);
            sleep(Duration::from_millis(50)).await;
            assert_eq!(soon(others.count_down()).await.unwrap(), 0);
            assert!(soon(others.try_set_count(5)).await.unwrap());
            ensemble.repair(ONE);
            if let Err(error) = soon(counting).await.unwrap() {
                // Its round has ended, and the nodes of that are deleted.
                assert!(error.outcome_unknown(), "after {millis} ms: {error}");
            }
            let counted = counts(&ensemble, &others).await;
            // A call that had not seen the first round counts in the second.
            let had_seen = millis > 40;
            assert!(counted.is_empty() || !had_seen, "after {millis} ms: {counted:?}");
            assert!(soon(ours.count()).await.unwrap() + counted.len() as u32 == 5, "after {millis} ms");
        });
    }
}

#[test]
fn round_begins_once_whatever_its_connection_does() {
    for seed in 0..100 * FAULTS {
        play(seed, async |ensemble| {
            let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
            let (ours, others) = (latch(&one), latch(&two));
            let mut earlier = 0;
            for _ in 0..2 {
                let setting = {
                    let ours = ours.clone();
                    tokio::spawn(async move { ours.try_set_count(2).await })
                };
                fault(&ensemble, &one, seed).await;
                assert!(soon(setting).await.unwrap().unwrap(), "seed {seed}");
                ensemble.repair(ONE);
                let round = soon(others.round()).await.unwrap();
                assert!(round == earlier + 1 || earlier == 0, "seed {seed}: {round} behind {earlier}");
                earlier = round;
                assert_eq!(soon(others.count()).await.unwrap(), 2, "seed {seed}");
                assert!(!soon(others.try_set_count(3)).await.unwrap(), "seed {seed}");
                for left in [1, 0] {
                    assert_eq!(soon(others.count_down()).await.unwrap(), left, "seed {seed}");
                }
            }
        });
    }
}

/// Two calls at once, one of which loses replies: one of them starts the round.
#[test]
fn one_of_two_calls_begins_the_round_whatever_their_connections_do() {
    let mut begun_by_ours = 0;
    for seed in 0..40 * FAULTS {
        begun_by_ours += u32::from(play(seed, async |ensemble| {
            let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
            let (ours, others) = (latch(&one), latch(&two));
            let setting = tokio::spawn(async move { ours.try_set_count(2).await });
            let other = tokio::spawn(async move { others.try_set_count(3).await });
            fault(&ensemble, &one, seed).await;
            let (ours, other) = (soon(setting).await.unwrap().unwrap(), soon(other).await.unwrap().unwrap());
            assert!(ours != other, "seed {seed}: {ours}, {other}");
            assert_eq!(soon(latch(&two).count()).await.unwrap(), if ours { 2 } else { 3 }, "seed {seed}");
            ours
        }));
    }
    assert!(begun_by_ours > 0 && begun_by_ours < 40 * FAULTS as u32, "{begun_by_ours}");
}

/// Redisson's #2304: the wake-up was lost. Here the round ends, and its nodes are deleted, while the waiter is away.
#[test]
fn waiter_that_was_away_passes_although_the_next_round_has_begun() {
    for (seed, away) in (0..40).flat_map(|seed| [(seed, SESSION / 5), (seed, SESSION * 2)]) {
        play(seed, async |ensemble| {
            let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
            let others = latch(&two);
            assert!(soon(others.try_set_count(1)).await.unwrap());
            let waiting = {
                let ours = latch(&one);
                tokio::spawn(async move { ours.wait().await })
            };
            until("it waits", || one.watchers() == 1).await;
            sleep(SESSION).await;
            ensemble.partition(ONE);
            assert_eq!(soon(others.count_down()).await.unwrap(), 0);
            assert!(soon(others.try_set_count(1)).await.unwrap());
            sleep(away).await;
            ensemble.reset(ONE);
            ensemble.repair(ONE);
            soon(waiting).await.unwrap().unwrap();
            assert_eq!(soon(others.count()).await.unwrap(), 1);
            assert_eq!(one.watched_paths(), [""; 0]);
        });
    }
}

#[test]
fn wait_survives_connections_and_sessions() {
    for seed in 0..60 * FAULTS {
        play(seed, async |ensemble| {
            let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
            let others = latch(&two);
            assert!(soon(others.try_set_count(2)).await.unwrap());
            let waiting = {
                let ours = latch(&one);
                tokio::spawn(async move { ours.wait().await })
            };
            fault(&ensemble, &one, seed).await;
            soon(others.count_down()).await.unwrap();
            sleep(SESSION * 2).await;
            assert!(!waiting.is_finished(), "seed {seed}");
            ensemble.repair(ONE);
            assert_eq!(soon(others.count_down()).await.unwrap(), 0);
            soon(waiting).await.unwrap().unwrap();
        });
    }
}

#[test]
fn wait_keeps_to_its_budget() {
    let budget = Duration::from_secs(1);
    for millis in 0..80 {
        play(millis, async |ensemble| {
            let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
            assert!(soon(latch(&two).try_set_count(1)).await.unwrap());
            let begun = Instant::now();
            let waiting = {
                let ours = latch(&one);
                tokio::spawn(async move { (ours.wait_timeout(budget).await, begun.elapsed()) })
            };
            sleep(Duration::from_millis(millis)).await;
            ensemble.partition(ONE);
            let (passed, took) = soon(waiting).await.unwrap();
            assert_eq!(took.as_millis(), budget.as_millis(), "after {millis} ms");
            match passed {
                Ok(passed) => assert!(passed.is_none(), "after {millis} ms"),
                Err(error) => assert!(error.to_string().contains(&format!("the wait for {PATH}")), "{error}"),
            }
            assert_eq!(one.watched_paths(), [""; 0], "after {millis} ms");
        });
    }
}

/// The node of a participant goes with its count, and only with that.
#[test]
fn participant_counts_once_whatever_its_connection_does() {
    for seed in 0..60 * FAULTS {
        play(seed, async |ensemble| {
            let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
            let (ours, others) = (latch(&one), latch(&two));
            assert!(soon(others.try_set_count(2)).await.unwrap());
            let watching = {
                let others = others.clone();
                tokio::spawn(async move { others.participant_lost().await })
            };
            let joining = {
                let ours = ours.clone();
                tokio::spawn(async move { ours.participate("ours").await })
            };
            fault(&ensemble, &one, seed).await;
            let participant = soon(joining).await.unwrap().unwrap();
            ensemble.repair(ONE);
            sleep(SESSION * 2).await;
            let here = ensemble.children("/test/latch/here");
            assert_eq!(here.len(), usize::from(participant.is_held()), "seed {seed}: {here:?}");
            let was_held = participant.is_held();
            let counting = tokio::spawn(async move { participant.count_down().await });
            fault(&ensemble, &one, seed).await;
            assert_eq!(soon(counting).await.unwrap().unwrap(), 1, "seed {seed}");
            ensemble.repair(ONE);
            assert_eq!(counts(&ensemble, &others).await.len(), 1, "seed {seed}");
            sleep(SESSION * 2).await;
            assert_eq!(ensemble.children("/test/latch/here"), [""; 0], "seed {seed}");
            // In the same session, the count and the end of the node are one transaction.
            if was_held && seed % FAULTS < 3 {
                assert!(!watching.is_finished(), "seed {seed}: {:?}", watching.await);
            }
        });
    }
}

/// A notification is lost with its session.
#[test]
fn death_of_a_participant_is_reported_to_a_process_that_was_away() {
    for (seed, away) in (0..40).flat_map(|seed| [(seed, SESSION / 5), (seed, SESSION * 2)]) {
        play(seed, async |ensemble| {
            let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
            let (ours, others) = (latch(&one), latch(&two));
            assert!(soon(others.try_set_count(3)).await.unwrap());
            let participants =
                [soon(others.participate("first")).await.unwrap(), soon(others.participate("second")).await.unwrap()];
            let watching = tokio::spawn(async move { ours.participant_lost().await });
            until("it watches", || one.watchers() == 1).await;
            sleep(SESSION).await;
            ensemble.partition(ONE);
            let [first, second] = participants;
            assert_eq!(soon(first.count_down()).await.unwrap(), 2);
            drop(second);
            sleep(away).await;
            ensemble.reset(ONE);
            ensemble.repair(ONE);
            assert_eq!(soon(watching).await.unwrap().unwrap(), "second", "seed {seed}");
        });
    }
}

/// The server of a client still shows the round before. Without a second read, the client makes its count in no round.
#[test]
fn call_on_a_server_that_lags_behind_finds_the_present_round() {
    for call in 0..5 {
        for is_set in [false, true] {
            play(call, async |ensemble| {
                let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
                let (ours, others) = (latch(&one), latch(&two));
                if is_set {
                    assert!(soon(others.try_set_count(1)).await.unwrap());
                    assert_eq!(soon(others.count_down()).await.unwrap(), 0);
                    soon(ours.wait()).await.unwrap();
                }
                ensemble.stale_reads(ONE);
                assert!(soon(others.try_set_count(4)).await.unwrap());
                match call {
                    0 => assert_eq!(soon(ours.count_down()).await.unwrap(), 3),
                    1 => {
                        let round = soon(others.round()).await.unwrap();
                        assert_eq!(soon(ours.participate("ours")).await.unwrap().round(), round);
                    }
                    2 => assert!(soon(ours.wait_timeout(SESSION)).await.unwrap().is_none()),
                    3 => assert!(soon(ours.wait_timeout(Duration::ZERO)).await.unwrap().is_none()),
                    _ => assert_eq!(soon(ours.count()).await.unwrap(), 4),
                }
            });
        }
    }
}

/// The server of a client still shows the count that is complete.
#[test]
fn round_begins_on_a_server_that_lags_behind_the_last_count() {
    play(1, async |ensemble| {
        let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
        let (ours, others) = (latch(&one), latch(&two));
        assert!(soon(others.try_set_count(1)).await.unwrap());
        assert_eq!(soon(ours.count()).await.unwrap(), 1);
        ensemble.stale_reads(ONE);
        assert_eq!(soon(others.count_down()).await.unwrap(), 0);
        assert!(soon(ours.try_set_count(2)).await.unwrap());
    });
}

/// The versions of the new nodes are those that this client knows of the old ones.
#[test]
fn count_reaches_no_round_of_a_latch_that_was_deleted() {
    for (before, behind, left) in [(2, 3, 1), (5, 2, 0)] {
        play(1, async |ensemble| {
            let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
            let (ours, others) = (latch(&one), latch(&two));
            assert!(soon(others.try_set_count(before)).await.unwrap());
            assert_eq!(soon(ours.count_down()).await.unwrap(), before - 1);
            soon(two.delete().deleting_children_if_needed().for_path(PATH)).await.unwrap();
            assert!(soon(others.try_set_count(behind)).await.unwrap());
            assert_eq!(soon(others.count_down()).await.unwrap(), behind - 1);
            let what = format!("{before} before, {behind} behind");
            assert_eq!(soon(ours.count_down()).await.unwrap(), left, "{what}");
            assert_eq!(soon(others.count()).await.unwrap(), left, "{what}");
            assert_eq!(soon(others.wait_timeout(SESSION)).await.unwrap().is_some(), left == 0, "{what}");
        });
    }
}

/// The notification of a start comes after the call of a wait, to a client that has watched the latch before.
#[test]
fn notification_of_the_begin_of_a_round_ends_no_wait_for_it() {
    let mut behind = 0;
    for seed in 0..100 {
        behind += u32::from(play(seed, async |ensemble| {
            let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
            let (ours, others) = (latch(&one), latch(&two));
            assert!(soon(others.try_set_count(1)).await.unwrap());
            assert_eq!(soon(others.count_down()).await.unwrap(), 0);
            let watched = soon(one.get_data().watched().for_path(PATH)).await.unwrap();
            ensemble.record_changes("/test");
            let setting = tokio::spawn(async move { others.try_set_count(1).await });
            let is_begin = |(_, change): &(Duration, Change)| matches!(change, Change::DataChanged { .. });
            until("the round begins", || ensemble.take_changes().iter().any(is_begin)).await;
            let is_behind = one.watchers() == 1;
            assert!(soon(ours.wait_timeout(SESSION)).await.unwrap().is_none(), "seed {seed}");
            assert!(soon(setting).await.unwrap().unwrap());
            drop(watched);
            is_behind
        }));
    }
    assert!(behind > 50, "{behind}");
}

/// The server of a client still shows a round that has ended. A participant of that one would count in no round.
#[test]
fn participant_on_a_server_that_lags_behind_joins_the_present_round() {
    play(1, async |ensemble| {
        let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
        let (ours, others) = (latch(&one), latch(&two));
        assert!(soon(others.try_set_count(1)).await.unwrap());
        assert_eq!(soon(ours.count()).await.unwrap(), 1);
        ensemble.stale_reads(ONE);
        assert_eq!(soon(others.count_down()).await.unwrap(), 0);
        assert!(soon(others.try_set_count(1)).await.unwrap());
        let participant = soon(ours.participate("ours")).await.unwrap();
        assert_eq!(participant.round(), soon(others.round()).await.unwrap());
        assert_eq!(ensemble.children("/test/latch/here").len(), 1);
        assert_eq!(soon(participant.count_down()).await.unwrap(), 0);
        assert!(soon(others.wait_timeout(SESSION)).await.unwrap().is_some());
    });
}

#[test]
fn waiter_on_a_server_that_lags_behind_waits_for_the_present_round() {
    play(1, async |ensemble| {
        let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
        let (ours, others) = (latch(&one), latch(&two));
        assert!(soon(others.try_set_count(1)).await.unwrap());
        assert_eq!(soon(ours.count()).await.unwrap(), 1);
        ensemble.stale_reads(ONE);
        assert_eq!(soon(others.count_down()).await.unwrap(), 0);
        assert!(soon(others.try_set_count(4)).await.unwrap());
        // The present round has four counts left.
        let waiter = ours.clone();
        let waiting = tokio::spawn(async move { waiter.wait_timeout(SESSION).await });
        sleep(Duration::from_millis(100)).await;
        ensemble.repair(ONE);
        let opened = soon(waiting).await.unwrap().unwrap();
        assert_eq!(soon(others.count()).await.unwrap(), 4);
        assert!(opened.is_none(), "a waiter has passed a round with four counts left");
    });
}

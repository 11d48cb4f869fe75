//! Latches: rounds, counts, waiters and participants.

use std::time::Duration;

use curator_framework::CuratorFramework;
use curator_framework::recipe::RecipeClient as _;
use curator_integration::env::{children, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{BarrierError, CountDownLatch};
use futures_util::future::join_all;
use tokio::task::JoinHandle;

use crate::both_clients::watched;

const MOMENT: Duration = Duration::from_millis(300);

fn latch(client: &CuratorFramework, path: &str) -> CountDownLatch {
    CountDownLatch::new(client.clone(), path).unwrap()
}

fn waiting(latch: &CountDownLatch) -> JoinHandle<Result<(), BarrierError>> {
    let latch = latch.clone();
    tokio::spawn(async move { latch.wait().await })
}

on_every_server! {
    /// Redisson's #2304 and #5349: a waiter missed its wake-up, and only the first listener was notified.
    async fn last_count_lets_all_waiters_pass(env) {
        let (one, two, path) = (env.client().await, env.client().await, env.path("latch"));
        let (ours, others) = (latch(&one, &path), latch(&two, &path));
        assert!(in_time(ours.try_set_count(3)).await.unwrap());
        assert_eq!(in_time(others.count()).await.unwrap(), 3);
        let waiters: Vec<_> = (0..5).flat_map(|_| [waiting(&ours), waiting(&others)]).collect();
        watched(&one, 5).await;
        watched(&two, 5).await;
        assert_eq!(in_time(ours.count_down()).await.unwrap(), 2);
        assert_eq!(in_time(others.count_down()).await.unwrap(), 1);
        assert!(in_time(others.wait_timeout(MOMENT)).await.unwrap().is_none());
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
        assert_eq!(in_time(ours.count_down()).await.unwrap(), 0);
        for waiter in waiters {
            in_time(waiter).await.unwrap().unwrap();
        }
        in_time(ours.wait()).await.unwrap();
        assert!(in_time(others.wait_timeout(Duration::ZERO)).await.unwrap().is_some());
        assert_eq!(in_time(others.count()).await.unwrap(), 0);
        // A count of a round that has ended changes nothing.
        assert_eq!(in_time(ours.count_down()).await.unwrap(), 0);
        let round = in_time(ours.round()).await.unwrap();
        assert_eq!(children(&one, &format!("{path}/{round}")).await.len(), 3);
        assert_eq!((one.watched_paths(), two.watched_paths()), (vec![], vec![]));
    }

    async fn client_that_knows_an_earlier_round_counts_in_the_present_one(env) {
        let (one, two, path) = (env.client().await, env.client().await, env.path("latch"));
        let (ours, others) = (latch(&one, &path), latch(&two, &path));
        assert!(in_time(ours.try_set_count(3)).await.unwrap());
        assert_eq!(in_time(ours.count_down()).await.unwrap(), 2);
        assert_eq!(in_time(others.count_down()).await.unwrap(), 1);
        assert_eq!(in_time(others.count_down()).await.unwrap(), 0);
        assert!(in_time(others.try_set_count(2)).await.unwrap());
        // The end of the round of its earlier count is news to this client.
        assert_eq!(in_time(ours.count_down()).await.unwrap(), 1);
        assert_eq!(in_time(others.count_down()).await.unwrap(), 0);
    }

    async fn operation_of_an_earlier_round_counts_in_the_present_one(env) {
        let (one, two, path) = (env.client().await, env.client().await, env.path("latch"));
        let (ours, others) = (latch(&one, &path), latch(&two, &path));
        assert!(in_time(ours.try_set_count(2)).await.unwrap());
        assert_eq!(in_time(ours.count_down_as("part")).await.unwrap(), 1);
        assert_eq!(in_time(others.count_down()).await.unwrap(), 0);
        assert_eq!(in_time(ours.count_down_as("part")).await.unwrap(), 0);
        assert!(in_time(others.try_set_count(2)).await.unwrap());
        assert_eq!(in_time(ours.count_down_as("part")).await.unwrap(), 1);
        assert_eq!(in_time(others.count_down_as("part")).await.unwrap(), 1);
    }

    async fn wait_for_a_latch_that_is_deleted_with_counts_left_is_an_error(env) {
        let (one, two, path) = (env.client().await, env.client().await, env.path("latch"));
        let (ours, others) = (latch(&one, &path), latch(&two, &path));
        assert!(in_time(ours.try_set_count(2)).await.unwrap());
        assert_eq!(in_time(others.count_down()).await.unwrap(), 1);
        let waiting = tokio::spawn(async move { ours.wait().await });
        eventually("it waits", async || one.watchers() == 1).await;
        two.delete().deleting_children_if_needed().for_path(&path).await.unwrap();
        let ended = in_time(waiting).await.unwrap();
        assert!(matches!(ended, Err(BarrierError::NotSet { .. })), "{ended:?}");
    }

    async fn latch_that_is_not_set_is_an_error(env) {
        let (client, path) = (env.client().await, env.path("latch"));
        let latch = latch(&client, &path);
        for exists in [false, true] {
            if exists {
                client.create().creating_parents_if_needed().with_data("").for_path(&path).await.unwrap();
            }
            let errors = [
                in_time(latch.count()).await.map(drop),
                in_time(latch.round()).await.map(drop),
                in_time(latch.count_down()).await.map(drop),
                in_time(latch.count_down_as("one")).await.map(drop),
                in_time(latch.wait()).await,
                in_time(latch.wait_timeout(MOMENT)).await.map(drop),
                in_time(latch.participate("one")).await.map(drop),
            ];
            for error in errors {
                assert!(matches!(error, Err(BarrierError::NotSet { .. })), "{error:?}");
            }
        }
        let refused = in_time(latch.try_set_count(0)).await;
        assert!(matches!(refused, Err(BarrierError::InvalidArgument { argument: "count", .. })), "{refused:?}");
        client.set_data().for_path(&path, "three").await.unwrap();
        let refused = in_time(latch.try_set_count(1)).await;
        assert!(matches!(refused, Err(BarrierError::NotALatch { .. })), "{refused:?}");
        client.set_data().for_path(&path, "").await.unwrap();
        assert!(in_time(latch.try_set_count(1)).await.unwrap());
        for id in ["", "a/b", "..", "\0"] {
            let refused = in_time(latch.count_down_as(id)).await;
            assert!(matches!(refused, Err(BarrierError::InvalidArgument { .. })), "{id:?}: {refused:?}");
        }
    }

    async fn repeated_operation_counts_once_in_a_round(env) {
        let (one, two, path) = (env.client().await, env.client().await, env.path("latch"));
        for round in 1..=2 {
            assert!(in_time(latch(&one, &path).try_set_count(3)).await.unwrap());
            for client in [&one, &two, &one] {
                assert_eq!(in_time(latch(client, &path).count_down_as("part-1")).await.unwrap(), 2, "round {round}");
            }
            let ours = latch(&one, &path);
            assert_eq!(in_time(ours.count_down_as("part-2")).await.unwrap(), 1);
            assert_eq!(in_time(ours.count_down_as("part-1")).await.unwrap(), 1);
            assert_eq!(in_time(ours.count_down_as("part-3")).await.unwrap(), 0);
            assert_eq!(in_time(ours.count_down_as("part-1")).await.unwrap(), 0);
        }
    }

    async fn next_round_begins_when_the_count_is_complete(env) {
        let (client, path) = (env.client().await, env.path("latch"));
        let latch = latch(&client, &path);
        let mut earlier = 0;
        for _ in 0..3 {
            assert!(in_time(latch.try_set_count(2)).await.unwrap());
            let round = in_time(latch.round()).await.unwrap();
            assert!(round == earlier + 1 || earlier == 0, "{round} behind {earlier}");
            earlier = round;
            for _ in 0..2 {
                assert!(!in_time(latch.try_set_count(5)).await.unwrap());
                assert_eq!(in_time(latch.round()).await.unwrap(), round);
                in_time(latch.count_down()).await.unwrap();
            }
            // Only the nodes of the present round are left.
            assert_eq!(children(&client, &path).await, [round.to_string()]);
        }
    }

    async fn counts_at_the_same_moment_all_count(env) {
        const COUNTS: u32 = 50;
        let (waiter, path) = (env.client().await, env.path("latch"));
        let clients = join_all((0..5).map(|_| env.client())).await;
        assert!(in_time(latch(&waiter, &path).try_set_count(COUNTS)).await.unwrap());
        let waiting = waiting(&latch(&waiter, &path));
        let counts = (0..COUNTS as usize).map(|number| {
            let latch = latch(&clients[number % clients.len()], &path);
            tokio::spawn(async move { latch.count_down().await.unwrap() })
        });
        let mut left: Vec<_> = in_time(join_all(counts)).await.into_iter().map(Result::unwrap).collect();
        in_time(waiting).await.unwrap().unwrap();
        let round = in_time(latch(&waiter, &path).round()).await.unwrap();
        assert_eq!(children(&waiter, &format!("{path}/{round}")).await.len(), COUNTS as usize);
        left.sort_unstable();
        assert_eq!(left, (0..COUNTS).collect::<Vec<_>>());
    }

    async fn one_of_several_calls_begins_the_round(env) {
        let path = env.path("latch");
        let clients = join_all((0..5).map(|_| env.client())).await;
        let mut earlier = 0;
        for _ in 0..3 {
            let calls = (0..20_usize).map(|number| {
                let latch = latch(&clients[number % clients.len()], &path);
                tokio::spawn(async move { latch.try_set_count(1).await.unwrap() })
            });
            let begun = in_time(join_all(calls)).await.into_iter().filter(|begun| *begun.as_ref().unwrap()).count();
            assert_eq!(begun, 1);
            let round = in_time(latch(&clients[0], &path).round()).await.unwrap();
            assert!(round == earlier + 1 || earlier == 0, "{round} behind {earlier}");
            earlier = round;
            assert_eq!(in_time(latch(&clients[1], &path).count_down()).await.unwrap(), 0);
        }
    }

    async fn participant_that_counts_is_not_lost(env) {
        let (one, two, path) = (env.client().await, env.client().await, env.path("latch"));
        let (ours, others) = (latch(&one, &path), latch(&two, &path));
        assert!(in_time(ours.try_set_count(3)).await.unwrap());
        let participants = [
            in_time(ours.participate("host-1")).await.unwrap(),
            in_time(ours.participate("host-2")).await.unwrap(),
        ];
        // It lists both before one of them is gone.
        let lost = { let others = others.clone(); tokio::spawn(async move { others.participant_lost().await }) };
        watched(&two, 1).await;
        let round = in_time(ours.round()).await.unwrap();
        assert!(participants.iter().all(|participant| participant.is_held() && participant.round() == round));
        let [first, second] = participants;
        let operation = first.operation_id().to_owned();
        assert_eq!(first.name(), "host-1");
        assert_eq!(in_time(first.count_down()).await.unwrap(), 2);
        assert_eq!(in_time(others.count_down_as(&operation)).await.unwrap(), 2);
        assert!(!lost.is_finished());
        drop(second);
        assert_eq!(in_time(lost).await.unwrap().unwrap(), "host-2");
    }

    async fn death_of_a_participant_is_reported(env) {
        let (one, two, path) = (env.client().await, env.client().await, env.path("latch"));
        let others = latch(&two, &path);
        assert!(in_time(others.try_set_count(2)).await.unwrap());
        let participant = in_time(latch(&one, &path).participate("host-1")).await.unwrap();
        let lost = { let others = others.clone(); tokio::spawn(async move { others.participant_lost().await }) };
        watched(&two, 1).await;
        let here = format!("{path}/here");
        let node = format!("{here}/{}", children(&two, &here).await[0]);
        env.kill_owner_of(&two, &node).await;
        assert_eq!(in_time(lost).await.unwrap().unwrap(), "host-1");
        in_time(participant.lost()).await;
        // It counts in its next session anyway.
        assert_eq!(in_time(participant.count_down()).await.unwrap(), 1);
        assert_eq!(in_time(others.count()).await.unwrap(), 1);
    }

    async fn wait_survives_a_restart_of_the_server(env) {
        let env = env.alone();
        let (client, path) = (env.client().await, env.path("latch"));
        let latch = latch(&client, &path);
        assert!(in_time(latch.try_set_count(1)).await.unwrap());
        let waiter = waiting(&latch);
        watched(&client, 1).await;
        env.restart().await;
        assert_eq!(in_time(latch.count()).await.unwrap(), 1);
        assert!(!waiter.is_finished());
        assert_eq!(in_time(latch.count_down()).await.unwrap(), 0);
        in_time(waiter).await.unwrap().unwrap();
    }
}

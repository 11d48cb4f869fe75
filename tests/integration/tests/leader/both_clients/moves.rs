//! Moves of a leader or a candidate: to resign, to abstain, to become ineligible.

use std::time::{Duration, Instant};

use curator_integration::env::{children, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{LeaderLatchOptions, LeaderState, TermEnd};
use tokio::sync::watch;

use crate::stage::{end_of, leads, named, started_with, three};

on_every_server! {
    async fn leader_that_resigns_joins_at_the_back(env) {
        let path = env.path("latch");
        let (clients, latches) = three(&env, &path).await;
        let mut term = None;
        for round in 0..7 {
            let leader = &latches[round % 3];
            let leadership = leads(leader).await;
            assert!(Some(leadership.token()) > term);
            term = Some(leadership.token());
            // A candidate that waits does not resign.
            assert!(in_time(latches[(round + 1) % 3].resign()).await.unwrap().is_none());
            assert!(in_time(leader.resign()).await.unwrap().is_some());
            assert!(!leadership.is_held());
            assert_eq!(end_of(&leadership).await, TermEnd::Resigned);
            env.wait_for_children(&clients[0], &path, 3).await;
        }
    }

    async fn leader_that_abstains_is_away_for_the_time(env) {
        let path = env.path("latch");
        let (clients, latches) = three(&env, &path).await;
        let leadership = leads(&latches[0]).await;
        let (away, begun) = (Duration::from_millis(700), Instant::now());
        latches[0].abstain(away);
        assert_eq!(end_of(&leadership).await, TermEnd::Resigned);
        leads(&latches[1]).await;
        let state = latches[0].state();
        assert!(matches!(state, LeaderState::Abstaining) || begun.elapsed() > away, "{state:?}");
        // Its node is back after the time, not earlier.
        eventually("it is back", async || latches[0].our_path().is_some()).await;
        assert!(begun.elapsed() >= away, "back after {:?}", begun.elapsed());
        env.wait_for_children(&clients[0], &path, 3).await;
        // A waiter abstains too, and a close ends the time.
        latches[2].abstain(Duration::from_secs(3600));
        env.wait_for_children(&clients[0], &path, 2).await;
        assert!(matches!(latches[2].state(), LeaderState::Abstaining), "{:?}", latches[2].state());
        in_time(latches[1].close()).await;
        leads(&latches[0]).await;
        in_time(latches[0].close()).await;
        assert_eq!(children(&clients[2], &path).await, [""; 0]);
        in_time(latches[2].close()).await;
    }

    async fn latch_that_is_not_eligible_has_no_node(env) {
        let (client, path) = (env.client().await, env.path("latch"));
        client.create().creating_parents_if_needed().for_path(&path).await.unwrap();
        let (eligible, is_eligible) = watch::channel(false);
        let latch = started_with(&client, &path, LeaderLatchOptions::new().eligible(is_eligible));
        let other = named(&client, &path, "other");
        leads(&other).await;
        assert!(latch.our_path().is_none());
        assert_eq!(children(&client, &path).await.len(), 1);
        for _ in 0..3 {
            eligible.send_replace(true);
            env.wait_for_children(&client, &path, 2).await;
            assert!(in_time(other.resign()).await.unwrap().is_some());
            let leadership = leads(&latch).await;
            env.wait_for_children(&client, &path, 2).await;
            eligible.send_replace(false);
            assert_eq!(end_of(&leadership).await, TermEnd::Resigned);
            leads(&other).await;
            env.wait_for_children(&client, &path, 1).await;
            assert!(!latch.has_leadership());
        }
        // A waiter that is not eligible any more leaves the queue.
        eligible.send_replace(true);
        env.wait_for_children(&client, &path, 2).await;
        eligible.send_replace(false);
        env.wait_for_children(&client, &path, 1).await;
        in_time(latch.close()).await;
    }
}

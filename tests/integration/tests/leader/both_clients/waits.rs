//! Waits for leadership: what they return when they end without it.

use std::time::Duration;

use curator_framework::Error;
use curator_integration::env::{builder, connected, in_time};
use curator_integration::on_every_server;
use curator_recipes::{LeaderError, LeaderLatch, LeaderState};

use crate::stage::{LONG, leads, named, started, take_down};

const MOMENT: Duration = Duration::from_millis(300);

on_every_server! {
    async fn budget_that_ends_behind_a_leader_is_none(env) {
        let (one, two, path) = (env.client().await, env.client().await, env.path("latch"));
        let (first, second) = (named(&one, &path, "1"), LeaderLatch::new(two, &path).unwrap());
        assert!(in_time(first.leading_timeout(Duration::from_secs(20))).await.unwrap().is_some());
        second.start().unwrap();
        env.wait_for_children(&one, &path, 2).await;
        for _ in 0..2 {
            let outcome = in_time(second.leading_timeout(MOMENT)).await;
            assert!(matches!(outcome, Ok(None)), "{outcome:?}");
        }
        // The latch stays in the queue, regardless of its callers.
        env.wait_for_children(&one, &path, 2).await;
        let clone = second.clone();
        let waiting = tokio::spawn(async move { clone.leading_timeout(Duration::from_secs(30)).await });
        in_time(first.close()).await;
        let leadership = in_time(waiting).await.unwrap().unwrap().expect("it leads");
        assert!(leadership.is_held());
        // A leader's budget may be zero.
        let again = in_time(second.leading_timeout(Duration::ZERO)).await.unwrap().expect("it leads");
        assert_eq!(again.token(), leadership.token());
    }

    async fn budget_that_ends_in_an_outage_is_a_lost_connection(env) {
        let (proxy, direct, path) = (env.proxy(), env.client().await, env.path("latch"));
        let is_lost = |outcome: Result<_, LeaderError>| {
            let is_lost = matches!(outcome, Err(LeaderError::Framework(Error::ConnectionLoss { .. })));
            assert!(is_lost, "{outcome:?}");
        };
        proxy.refuse();
        let client = builder(proxy.address()).session_timeout(LONG).build().unwrap();
        client.start().unwrap();
        let latch = started(&client, &path);
        for budget in [Duration::ZERO, MOMENT] {
            is_lost(in_time(latch.leading_timeout(budget)).await);
        }
        let leader = started(&direct, &path);
        leads(&leader).await;
        proxy.accept();
        env.wait_for_children(&direct, &path, 2).await;
        assert!(in_time(latch.leading_timeout(MOMENT)).await.unwrap().is_none());
        // Another candidate led when the connection broke.
        take_down(&proxy);
        crate::stage::becomes(&client, curator_framework::ConnectionState::Suspended).await;
        is_lost(in_time(latch.leading_timeout(MOMENT)).await);
        proxy.accept();
        in_time(leader.close()).await;
        leads(&latch).await;
    }

    async fn wait_ends_with_its_latch(env) {
        let (one, two, path) = (env.client().await, env.client().await, env.path("latch"));
        let first = started(&one, &path);
        leads(&first).await;
        let second = started(&two, &path);
        env.wait_for_children(&one, &path, 2).await;
        let waits = [0, 1].map(|number| {
            let second = second.clone();
            tokio::spawn(async move {
                match number {
                    0 => second.leading().await.map(drop),
                    _ => second.leading_timeout(Duration::from_secs(60)).await.map(drop),
                }
            })
        });
        // A dropped wait changes nothing.
        drop(tokio::time::timeout(Duration::from_millis(50), second.leading()).await);
        in_time(second.close()).await;
        for wait in waits {
            let outcome = in_time(wait).await.unwrap();
            assert!(matches!(outcome, Err(LeaderError::Closed { .. })), "{outcome:?}");
        }
        env.wait_for_children(&one, &path, 1).await;
    }

    async fn states_follow_each_other(env) {
        let (one, two, path) = (env.client().await, connected(builder(env.address())).await, env.path("latch"));
        let first = started(&one, &path);
        leads(&first).await;
        let second = LeaderLatch::new(two, &path).unwrap();
        let mut states = second.watch();
        assert!(matches!(*states.borrow_and_update(), LeaderState::Latent));
        second.start().unwrap();
        in_time(states.wait_for(|state| matches!(state, LeaderState::Waiting { .. }))).await.unwrap();
        in_time(first.close()).await;
        {
            let state = in_time(states.wait_for(|state| matches!(state, LeaderState::Leading(_)))).await.unwrap();
            let LeaderState::Leading(leadership) = &*state else { panic!("{state:?}") };
            assert!(leadership.is_held());
        }
        assert!(matches!(second.state(), LeaderState::Leading(_)));
        in_time(second.close()).await;
        assert!(matches!(second.state(), LeaderState::Closed), "{:?}", second.state());
        in_time(states.wait_for(|state| matches!(state, LeaderState::Closed))).await.unwrap();
    }
}

//! Curator's `TestLeaderSelectorEdges`: the connection breaks directly after the create, and stays away.

use std::time::Duration;

use curator_framework::{ConnectionState, CreateMode, Error, RetryNTimes};
use curator_integration::env::{builder, connected, in_time};
use curator_integration::on_every_server;
use curator_recipes::LeaderSelector;
use curator_test::wire::OpCode;

use crate::stage::{Terms, becomes};

const SESSION: Duration = Duration::from_secs(30);

on_every_server! {
    /// Curator's `TestLeaderSelectorEdges.flappingTest`.
    async fn run_whose_create_loses_its_reply_fails_and_leaves_no_node(env) {
        let (proxy, direct, path) = (env.proxy(), env.client().await, env.path("mylock"));
        direct.create().creating_parents_if_needed().for_path(&path).await.unwrap();
        let options = builder(proxy.address()).session_timeout(SESSION).connection_timeout(Duration::from_secs(1));
        let client = connected(options.retry_policy(RetryNTimes::new(1, Duration::from_millis(100)))).await;
        let selector = LeaderSelector::new(client.clone(), &path).unwrap();
        let mut terms = Terms::new();
        proxy.refuse();
        proxy.drop_reply(OpCode::Create2, 1);
        let begin = terms.of("");
        let outcome = in_time(selector.run_once(|leadership| begin.stay(leadership))).await;
        assert!(outcome.as_ref().is_err_and(|error| error.is_retryable()), "{outcome:?}");
        env.wait_for_children(&direct, &path, 1).await;
        proxy.accept();
        becomes(&client, ConnectionState::Reconnected).await;
        assert!(terms.is_quiet() && !selector.has_leadership());
        env.wait_for_children(&direct, &path, 0).await;
        // A new selector leads.
        let next = LeaderSelector::new(client, &path).unwrap();
        let _run = terms.run(&next, "next");
        assert_eq!(terms.begins().await.0, "next");
    }

    /// Curator's `TestLeaderSelectorEdges.createProtectedNodeInBackgroundTest` and its variant without a retry.
    async fn protected_create_that_gives_up_has_its_node_deleted(env) {
        let (proxy, direct, path) = (env.proxy(), env.client().await, env.path("mylock"));
        direct.create().creating_parents_if_needed().for_path(&path).await.unwrap();
        for retries in [2, 0] {
            let options = builder(proxy.address()).session_timeout(SESSION).connection_timeout(Duration::from_secs(1));
            let client = connected(options.retry_policy(RetryNTimes::new(retries, Duration::from_millis(100)))).await;
            proxy.refuse();
            proxy.drop_reply(OpCode::Create2, 1);
            let (creator, node) = (client.clone(), format!("{path}/foo-"));
            let created = tokio::spawn(async move {
                let create = creator.create().with_protection().with_mode(CreateMode::EphemeralSequential);
                create.for_path(&node).await
            });
            let created = in_time(created).await.unwrap();
            assert!(matches!(created, Err(Error::ConnectionLoss { .. })), "{created:?}");
            env.wait_for_children(&direct, &path, 1).await;
            proxy.accept();
            env.wait_for_children(&direct, &path, 0).await;
            in_time(client.close()).await;
        }
    }
}

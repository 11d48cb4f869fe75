//! States of the connection that cost a term: Curator's tests of its error policies, for latches and for selectors.

use curator_framework::{
    ConnectionState, ConnectionStateErrorPolicy, CuratorFramework, LossReason, SessionConnectionStateErrorPolicy,
    StandardConnectionStateErrorPolicy,
};
use curator_integration::env::{builder, children, in_time};
use curator_integration::on_every_server;
use curator_recipes::{LeaderLatch, LeaderSelector, TermEnd, TermOutcome};
use curator_test::FaultProxy;
use std::time::Duration;

use crate::stage::{Call, Calls, LONG, Report, SHORT, Terms, becomes, end_of, leads, started, take_down};

use ConnectionState::{Connected, Lost, Reconnected, Suspended};

/// A client that is not started.
fn client(proxy: &FaultProxy, session: Duration, policy: impl ConnectionStateErrorPolicy) -> CuratorFramework {
    builder(proxy.address()).session_timeout(session).connection_state_error_policy(policy).build().unwrap()
}

/// A started latch, and its calls together with the client's states.
fn latch(client: &CuratorFramework, path: &str) -> (LeaderLatch, Calls) {
    let latch = LeaderLatch::new(client.clone(), path).unwrap();
    let calls = Calls::of_both(client, &latch);
    client.start().unwrap();
    latch.start().unwrap();
    (latch, calls)
}

on_every_server! {
    /// Curator's `TestLeaderLatch.testErrorPolicies`, first half.
    async fn suspended_connection_ends_a_latchs_term_under_the_standard_policy(env) {
        let proxy = env.proxy();
        let client = client(&proxy, SHORT, StandardConnectionStateErrorPolicy);
        let (latch, mut calls) = latch(&client, &env.path("latch"));
        assert_eq!(calls.next_two().await, [Call::State(Connected), Call::IsLeader]);
        let leadership = leads(&latch).await;
        take_down(&proxy);
        assert_eq!(calls.next_two().await, [Call::State(Suspended), Call::NotLeader]);
        assert_eq!(end_of(&leadership).await, TermEnd::Lost(LossReason::ConnectionError));
        assert_eq!(calls.next().await, Call::State(Lost));
        assert!(!latch.has_leadership());
        proxy.accept();
        assert_eq!(calls.next_two().await, [Call::State(Reconnected), Call::IsLeader]);
        assert!(leads(&latch).await.token() > leadership.token());
    }

    /// Curator's `TestLeaderLatch.testErrorPolicies`, second half.
    async fn lost_session_ends_a_latchs_term_under_the_session_policy(env) {
        let proxy = env.proxy();
        let client = client(&proxy, SHORT, SessionConnectionStateErrorPolicy);
        let (latch, mut calls) = latch(&client, &env.path("latch"));
        assert_eq!(calls.next_two().await, [Call::State(Connected), Call::IsLeader]);
        let leadership = leads(&latch).await;
        take_down(&proxy);
        assert_eq!(calls.next().await, Call::State(Suspended));
        assert_eq!(calls.next_two().await, [Call::State(Lost), Call::NotLeader]);
        assert!(matches!(end_of(&leadership).await, TermEnd::Lost(LossReason::Session(_))));
        proxy.accept();
        assert_eq!(calls.next_two().await, [Call::State(Reconnected), Call::IsLeader]);
        assert!(leads(&latch).await.token() > leadership.token());
    }

    /// Curator's `TestLeaderLatch.testSessionErrorPolicy`, first half: the session policy.
    async fn reconnect_tells_a_latch_nothing_under_the_session_policy(env) {
        let (proxy, direct, path) = (env.proxy(), env.client().await, env.path("latch"));
        let client = client(&proxy, LONG, SessionConnectionStateErrorPolicy);
        let (latch, mut calls) = latch(&client, &path);
        assert_eq!(calls.next_two().await, [Call::State(Connected), Call::IsLeader]);
        let (leadership, nodes) = (leads(&latch).await, env.wait_for_children(&direct, &path, 1).await);
        take_down(&proxy);
        assert_eq!(calls.next().await, Call::State(Suspended));
        proxy.accept();
        assert_eq!(calls.next().await, Call::State(Reconnected));
        in_time(leadership.verify()).await.unwrap();
        assert!(calls.is_quiet() && leadership.is_held());
        assert_eq!(env.wait_for_children(&direct, &path, 1).await, nodes);
    }

    /// Curator's `TestLeaderLatch.testSessionErrorPolicy`, second half: the standard policy. The latch leads again with
    /// the same node, ahead of another candidate.
    async fn reconnect_makes_a_latch_lead_again_under_the_standard_policy(env) {
        let (proxy, direct, path) = (env.proxy(), env.client().await, env.path("latch"));
        let client = client(&proxy, LONG, StandardConnectionStateErrorPolicy);
        let (latch, mut calls) = latch(&client, &path);
        assert_eq!(calls.next_two().await, [Call::State(Connected), Call::IsLeader]);
        let before = leads(&latch).await;
        let other = started(&direct, &path);
        let mut nodes = env.wait_for_children(&direct, &path, 2).await;
        take_down(&proxy);
        assert_eq!(calls.next_two().await, [Call::State(Suspended), Call::NotLeader]);
        assert!(!latch.has_leadership() && !before.is_held());
        proxy.accept();
        assert_eq!(calls.next_two().await, [Call::State(Reconnected), Call::IsLeader]);
        let now = leads(&latch).await;
        assert!(now.is_held() && !before.is_held() && !other.has_leadership());
        assert_eq!((now.node_path(), now.token()), (before.node_path(), before.token()));
        let mut nodes_after = children(&direct, &path).await;
        nodes.sort_unstable();
        nodes_after.sort_unstable();
        assert_eq!(nodes_after, nodes);
        assert!(calls.is_quiet());
        // The other one leads when this one leaves.
        in_time(latch.close()).await;
        assert!(leads(&other).await.token() > now.token());
    }

    /// Curator's `TestLeaderSelector.testErrorPolicies`, first half, and its `testServerDying`.
    async fn suspended_connection_ends_a_selectors_term_under_the_standard_policy(env) {
        let proxy = env.proxy();
        let client = client(&proxy, SHORT, StandardConnectionStateErrorPolicy);
        client.start().unwrap();
        let selector = LeaderSelector::new(client.clone(), env.path("selector")).unwrap();
        let (mut terms, runner) = (Terms::new(), selector.clone());
        let begin = terms.of("");
        let run = tokio::spawn(async move { runner.run_once(|leadership| begin.stay(leadership)).await });
        terms.begins().await;
        take_down(&proxy);
        terms.ends().await;
        becomes(&client, Suspended).await;
        assert!(!selector.has_leadership());
        becomes(&client, Lost).await;
        // It returns without a server.
        let outcome = in_time(run).await.unwrap();
        assert!(matches!(outcome, Ok(TermOutcome::Lost(LossReason::ConnectionError))), "{outcome:?}");
    }

    /// Curator's `TestLeaderSelector.testErrorPolicies`, second half.
    async fn lost_session_ends_a_selectors_term_under_the_session_policy(env) {
        let proxy = env.proxy();
        let client = client(&proxy, SHORT, SessionConnectionStateErrorPolicy);
        client.start().unwrap();
        let selector = LeaderSelector::new(client.clone(), env.path("selector")).unwrap();
        let mut terms = Terms::new();
        let run = terms.run(&selector, "one");
        let (_, old) = terms.begins().await;
        take_down(&proxy);
        becomes(&client, Suspended).await;
        assert!(terms.is_quiet() && selector.has_leadership());
        terms.ends().await;
        becomes(&client, Lost).await;
        assert!(!selector.has_leadership() && terms.inside() == 0);
        proxy.accept();
        let Report::Began { term, .. } = terms.next().await else { panic!("the term did not begin again") };
        assert!(term > old);
        in_time(selector.close()).await;
        in_time(run).await.unwrap().unwrap();
    }
}

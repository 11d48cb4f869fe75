//! Curator's `TestLeaderLatch` where connections break, sessions end, and nodes are deleted by other clients.

use std::time::{Duration, Instant};

use curator_framework::{
    ConnectionState, CuratorFramework, CuratorFrameworkBuilder, DefaultZooKeeperFactory, LossReason, RetryForever,
    RetryNTimes, SessionEnd,
};
use curator_integration::clients::is_zookeeper_async;
use curator_integration::env::{builder, children, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{CloseMode, LeaderError, LeaderLatch, LeaderState, TermEnd};
use curator_test::FaultProxy;
use curator_test::wire::OpCode;

use crate::stage::{Call, Calls, LONG, SHORT, becomes, end_of, leaders, leads, named, one_leads, started, take_down};

use ConnectionState::{Connected, Lost, Reconnected, Suspended};

/// A connected client through the proxy.
async fn through(proxy: &FaultProxy, session: Duration) -> CuratorFramework {
    let options = builder(proxy.address()).session_timeout(session);
    connected(options.retry_policy(RetryForever::new(Duration::from_millis(50)).unwrap())).await
}

/// Options of a client that soon gives up.
fn impatient(proxy: &FaultProxy) -> CuratorFrameworkBuilder {
    let options = builder(proxy.address()).session_timeout(LONG).connection_timeout(Duration::from_millis(300));
    options.retry_policy(RetryNTimes::new(1, Duration::from_millis(50)))
}

/// Deletes all nodes below a path, and the path, in one transaction.
async fn delete_all(client: &CuratorFramework, path: &str) {
    let delete = async || {
        let mut transaction = client.transaction();
        for child in children(client, path).await {
            transaction = transaction.delete(format!("{path}/{child}"));
        }
        transaction.delete(path).commit().await
    };
    // A latch may create its node in the meantime, so that the transaction is refused.
    eventually("the path is deleted", async || delete().await.is_ok()).await;
}

on_every_server! {
    /// Curator's `TestLeaderLatch.testWithCircuitBreaker`.
    async fn latches_behind_a_circuit_breaker_lead_again_after_each_outage(env) {
        let proxy = env.proxy();
        let breaking = RetryForever::new(SHORT * 2).unwrap();
        let options = builder(proxy.address()).session_timeout(SHORT).circuit_breaking_listeners(breaking);
        let client = connected(options).await;
        let (mut latches, mut calls) = (Vec::new(), Vec::new());
        for number in 0..5 {
            let latch = LeaderLatch::new(client.clone(), env.path(&format!("foo/bar/{number}"))).unwrap();
            calls.push(Calls::of(&latch));
            latch.start().unwrap();
            latches.push(latch);
        }
        for _ in 0..3 {
            let mut terms = Vec::new();
            for latch in &latches {
                terms.push(leads(latch).await);
            }
            take_down(&proxy);
            for term in &terms {
                assert!(matches!(end_of(term).await, TermEnd::Lost(LossReason::Session(_))));
            }
            proxy.accept();
            for (latch, old) in latches.iter().zip(terms) {
                assert!(leads(latch).await.token() > old.token());
            }
        }
        for latch in latches {
            in_time(latch.close_with(CloseMode::NotifyLeader)).await;
        }
        for calls in calls {
            assert_eq!(calls.all().await, [Call::IsLeader, Call::NotLeader].repeat(4));
        }
    }

    /// Curator's `TestLeaderLatch.testGetChildrenHitsNoNode` (CURATOR-724): all nodes and the path are deleted.
    async fn latches_join_again_after_their_path_is_deleted(env) {
        let path = env.path("latch");
        let (one, two) = (env.client().await, env.client().await);
        // The client zookeeper-async has no transactions.
        let other = connected(builder(env.address()).zookeeper_factory(DefaultZooKeeperFactory::new())).await;
        let latches = [named(&one, &path, "id0"), named(&two, &path, "id1")];
        for _ in 0..3 {
            env.wait_for_children(&other, &path, 2).await;
            let before = leads(&latches[one_leads(&latches).await]).await;
            delete_all(&other, &path).await;
            assert_eq!(end_of(&before).await, TermEnd::Lost(LossReason::NodeDeleted));
            // The one behind the leader may have led for a moment: one transaction has deleted both nodes.
            env.wait_for_children(&other, &path, 2).await;
            let now = one_leads(&latches).await;
            assert!(leads(&latches[now]).await.token() > before.token());
            assert_eq!(leaders(&latches), [now]);
        }
    }

    /// Curator's `TestLeaderLatch.testWatchedNodeDeletedOnReconnect`: the predecessor leaves while the waiter has no
    /// connection, and the waiter's own node goes too.
    async fn waiter_whose_queue_is_gone_at_its_reconnect_leads_with_one_node(env) {
        let (proxy, direct, path) = (env.proxy(), env.client().await, env.path("latch"));
        let client = through(&proxy, LONG).await;
        for is_own_node_deleted in [false, true] {
            let first = named(&direct, &path, "1");
            leads(&first).await;
            let second = named(&client, &path, "2");
            env.wait_for_children(&direct, &path, 2).await;
            eventually("the waiter knows its node", async || second.our_path().is_some()).await;
            let node = second.our_path().unwrap();
            take_down(&proxy);
            becomes(&client, Suspended).await;
            in_time(first.close()).await;
            if is_own_node_deleted {
                direct.delete().for_path(&node).await.unwrap();
            }
            assert!(!second.has_leadership());
            proxy.accept();
            let leadership = leads(&second).await;
            assert_eq!(leadership.node_path() == node, !is_own_node_deleted);
            env.wait_for_children(&direct, &path, 1).await;
            in_time(second.close()).await;
            env.wait_for_children(&direct, &path, 0).await;
        }
    }

    /// Curator's `TestLeaderLatch.testSessionInterruptionDoNotCauseBrainSplit`.
    async fn leader_whose_session_is_killed_waits_behind_the_next_leader(env) {
        let (one, two, path) = (env.client().await, env.client().await, env.path("latch"));
        let [first, second] = [&one, &two].map(|client| LeaderLatch::new(client.clone(), &path).unwrap());
        let (mut calls, mut next_calls) = (Calls::of(&first), Calls::of(&second));
        first.start().unwrap();
        let old = leads(&first).await;
        assert_eq!(calls.next().await, Call::IsLeader);
        second.start().unwrap();
        env.wait_for_children(&two, &path, 2).await;
        env.kill_owner_of(&two, old.node_path()).await;
        assert_eq!(next_calls.next().await, Call::IsLeader);
        assert_eq!(calls.next().await, Call::NotLeader);
        let is_told = [LossReason::Session(SessionEnd::Expired), LossReason::NodeDeleted].map(TermEnd::Lost);
        assert!(is_told.contains(&end_of(&old).await));
        // It joins again, behind the other.
        env.wait_for_children(&two, &path, 2).await;
        let new = leads(&second).await;
        assert!(new.token() > old.token() && !first.has_leadership());
        assert!(calls.is_quiet() && next_calls.is_quiet());
        in_time(second.close()).await;
        assert!(leads(&first).await.token() > new.token());
    }

    /// Curator's `TestLeaderLatch.testLeadershipElectionWhenNodeDisappearsAfterChildrenAreRetrieved` (CURATOR-645). The
    /// replies of the first candidate are held back, so that the leader leaves between two of its requests.
    async fn leader_that_leaves_between_two_requests_of_a_waiter_has_one_successor(env) {
        let (proxy, direct, path) = (env.proxy(), env.client().await, env.path("latch"));
        let client = through(&proxy, LONG).await;
        for number in 0..8 {
            let leader = named(&direct, &path, "initial leader");
            leads(&leader).await;
            proxy.latency(Duration::from_millis(4 * number));
            let candidates = [named(&client, &path, "candidate 0"), named(&direct, &path, "candidate 1")];
            env.wait_for_children(&direct, &path, 3).await;
            proxy.partition();
            in_time(leader.close()).await;
            env.wait_for_children(&direct, &path, 2).await;
            proxy.repair();
            proxy.latency(Duration::ZERO);
            let one = one_leads(&candidates).await;
            in_time(candidates[one].close()).await;
            leads(&candidates[1 - one]).await;
            in_time(candidates[1 - one].close()).await;
        }
    }

    /// Curator's `TestLeaderLatch.testProperCloseWithoutConnectionEstablished`.
    async fn latch_closed_before_a_connection_creates_nothing(env) {
        let (proxy, direct, path) = (env.proxy(), env.client().await, env.path("latch"));
        proxy.refuse();
        let client = builder(proxy.address()).build().unwrap();
        client.start().unwrap();
        let latch = started(&client, &path);
        in_time(proxy.wait_for_connections(2)).await;
        assert!(matches!(latch.state(), LeaderState::Waiting { position: None }), "{:?}", latch.state());
        in_time(latch.close()).await;
        assert!(matches!(latch.state(), LeaderState::Closed), "{:?}", latch.state());
        proxy.accept();
        in_time(client.block_until_connected()).await.unwrap();
        curator_integration::env::answered(std::slice::from_ref(&client)).await;
        assert!(direct.check_exists().for_path(&path).await.unwrap().is_none());
    }

    /// Curator's `TestLeaderLatch.testNoServerAtStart`.
    async fn latch_started_before_the_server_leads_once(env) {
        let (proxy, path) = (env.proxy(), env.path("latch"));
        proxy.refuse();
        let client = builder(proxy.address()).build().unwrap();
        client.start().unwrap();
        let latch = LeaderLatch::new(client, &path).unwrap();
        let calls = Calls::of(&latch);
        latch.start().unwrap();
        in_time(proxy.wait_for_connections(2)).await;
        proxy.accept();
        leads(&latch).await;
        in_time(latch.close_with(CloseMode::NotifyLeader)).await;
        assert_eq!(calls.all().await, [Call::IsLeader, Call::NotLeader]);
    }

    /// Curator's `TestLeaderLatch.testLostConnection`.
    async fn no_latch_leads_without_a_session_and_one_leads_after_it(env) {
        let (proxy, direct, path) = (env.proxy(), env.client().await, env.path("latch"));
        let client = through(&proxy, SHORT).await;
        let latches: Vec<_> = (0..10).map(|_| started(&client, &path)).collect();
        env.wait_for_children(&direct, &path, 10).await;
        let before = leads(&latches[one_leads(&latches).await]).await;
        take_down(&proxy);
        assert!(matches!(end_of(&before).await, TermEnd::Lost(LossReason::Session(_))));
        becomes(&client, Lost).await;
        assert_eq!(leaders(&latches), [0; 0]);
        env.wait_for_children(&direct, &path, 0).await;
        assert_eq!(leaders(&latches), [0; 0]);
        proxy.accept();
        let now = one_leads(&latches).await;
        env.wait_for_children(&direct, &path, 10).await;
        assert_eq!(leaders(&latches), [now]);
    }

    /// Curator gives the leadership up at each lost connection.
    async fn connection_that_is_reset_costs_no_term(env) {
        let (proxy, direct, path) = (env.proxy(), env.client().await, env.path("latch"));
        let client = builder(proxy.address()).session_timeout(LONG).build().unwrap();
        let latch = LeaderLatch::new(client.clone(), &path).unwrap();
        let mut calls = Calls::of_both(&client, &latch);
        client.start().unwrap();
        latch.start().unwrap();
        let leadership = leads(&latch).await;
        assert_eq!(calls.next_two().await, [Call::State(Connected), Call::IsLeader]);
        let waiter = started(&direct, &path);
        env.wait_for_children(&direct, &path, 2).await;
        for _ in 0..3 {
            take_down(&proxy);
            assert_eq!(calls.next().await, Call::State(Suspended));
            assert!(leadership.is_held() && leadership.remaining() > Duration::ZERO);
            proxy.accept();
            assert_eq!(calls.next().await, Call::State(Reconnected));
            in_time(leadership.verify()).await.unwrap();
        }
        assert_eq!(latch.leadership().unwrap().token(), leadership.token());
        assert!(leadership.is_held() && !waiter.has_leadership() && calls.is_quiet());
    }

    /// Curator's leader does not notice, and a second one leads beside it.
    async fn leader_whose_node_is_deleted_is_told_and_joins_again(env) {
        let (client, other, path) = (env.client().await, env.client().await, env.path("latch"));
        let latch = LeaderLatch::new(client, &path).unwrap();
        let mut calls = Calls::of(&latch);
        latch.start().unwrap();
        let mut term = None;
        for round in 0..2 {
            let leadership = leads(&latch).await;
            assert!(Some(leadership.token()) > term);
            term = Some(leadership.token());
            assert_eq!(calls.next().await, Call::IsLeader);
            other.delete().for_path(leadership.node_path()).await.unwrap();
            assert_eq!(end_of(&leadership).await, TermEnd::Lost(LossReason::NodeDeleted), "{round}");
            let refused = in_time(leadership.verify()).await;
            let reason = TermEnd::Lost(LossReason::NodeDeleted);
            let is_told =
                matches!(&refused, Err(LeaderError::LeadershipLost { reason: told, .. }) if *told == reason);
            assert!(is_told, "{refused:?}");
            assert_eq!(calls.next().await, Call::NotLeader);
        }
        let leadership = leads(&latch).await;
        let waiter = started(&other, &path);
        env.wait_for_children(&other, &path, 2).await;
        other.delete().for_path(leadership.node_path()).await.unwrap();
        let next = leads(&waiter).await;
        assert_eq!(end_of(&leadership).await, TermEnd::Lost(LossReason::NodeDeleted));
        env.wait_for_children(&other, &path, 2).await;
        assert!(next.is_held() && !latch.has_leadership());
        in_time(waiter.close()).await;
        assert!(leads(&latch).await.token() > next.token());
    }

    /// The registry of the session marks the leader's node before the waiter of the same client wakes.
    async fn two_latches_of_one_client_do_not_lead_at_once_behind_a_deletion(env) {
        let (client, other, path) = (env.client().await, env.client().await, env.path("latch"));
        let mut pair = [started(&client, &path), started(&client, &path)];
        for _ in 0..20 {
            env.wait_for_children(&other, &path, 2).await;
            let leadership = leads(&pair[one_leads(&pair).await]).await;
            if pair[1].has_leadership() {
                pair.reverse();
            }
            let waiter = pair[1].clone();
            let next = tokio::spawn(async move { leads(&waiter).await });
            other.delete().for_path(leadership.node_path()).await.unwrap();
            let next = in_time(next).await.unwrap();
            if is_zookeeper_async() {
                // Its replies have no zxid, so a listing marks no owned node: the leader learns by its own watch.
                end_of(&leadership).await;
            }
            assert!(!leadership.is_held() && !pair[0].has_leadership(), "two leaders at once");
            assert!(next.is_held() && next.token() > leadership.token());
        }
    }

    async fn waiter_whose_node_is_deleted_joins_again(env) {
        let (client, other, path) = (env.client().await, env.client().await, env.path("latch"));
        let first = started(&other, &path);
        let leadership = leads(&first).await;
        let waiter = started(&client, &path);
        for _ in 0..2 {
            let nodes = env.wait_for_children(&other, &path, 2).await;
            let waiting = nodes.iter().find(|node| !leadership.node_path().ends_with(node.as_str())).unwrap().clone();
            other.delete().for_path(&format!("{path}/{waiting}")).await.unwrap();
            eventually("the waiter is back", async || {
                let now = children(&other, &path).await;
                now.len() == 2 && !now.contains(&waiting)
            })
            .await;
        }
        assert!(leadership.is_held() && !waiter.has_leadership());
        in_time(first.close()).await;
        leads(&waiter).await;
    }

    /// The node is created, and its creator gets no reply.
    async fn lost_reply_of_a_create_leaves_one_node(env) {
        let (proxy, direct, path) = (env.proxy(), env.client().await, env.path("latch"));
        let client = through(&proxy, LONG).await;
        for fault in 0..3 {
            let done = proxy.faults_done();
            match fault {
                0 => proxy.drop_reply(OpCode::Create2, 1),
                1 => proxy.drop_request(OpCode::Create2, 1),
                _ => proxy.cut_frame(OpCode::GetChildren, 1),
            }
            let latch = started(&client, &path);
            let leadership = leads(&latch).await;
            assert!(fault == 2 || proxy.faults_done() == done + 1);
            let node = leadership.node_path().rsplit_once('/').unwrap().1;
            eventually("one node is left", async || children(&direct, &path).await == [node]).await;
            in_time(latch.close()).await;
            env.wait_for_children(&direct, &path, 0).await;
        }
    }

    async fn waiter_survives_the_end_of_its_session(env) {
        let (client, other, path) = (env.client().await, env.client().await, env.path("latch"));
        let first = started(&other, &path);
        let leadership = leads(&first).await;
        let waiter = started(&client, &path);
        for _ in 0..3 {
            let nodes = env.wait_for_children(&other, &path, 2).await;
            let waiting = nodes.iter().find(|node| !leadership.node_path().ends_with(node.as_str())).unwrap().clone();
            env.kill_owner_of(&other, &format!("{path}/{waiting}")).await;
            eventually("the waiter is back", async || {
                let now = children(&other, &path).await;
                now.len() == 2 && !now.contains(&waiting)
            })
            .await;
        }
        in_time(first.close()).await;
        leads(&waiter).await;
    }

    async fn leader_cut_off_in_silence_is_told_before_the_next_one_leads(env) {
        let session = Duration::from_secs(4);
        let (proxy, direct, path) = (env.proxy(), env.client().await, env.path("latch"));
        let client = through(&proxy, session).await;
        let (first, second) = (started(&client, &path), LeaderLatch::new(direct.clone(), &path).unwrap());
        let old = leads(&first).await;
        second.start().unwrap();
        env.wait_for_children(&direct, &path, 2).await;
        let next = tokio::spawn(async move { (leads(&second).await, Instant::now(), second) });
        proxy.partition();
        let end = end_of(&old).await;
        let told = Instant::now();
        let (new, granted, _second) = in_time(next).await.unwrap();
        assert_eq!(end, TermEnd::Lost(LossReason::Session(SessionEnd::DeadlinePassed)));
        assert!(told < granted, "told {:?} after the next leader", told - granted);
        assert!(new.token() > old.token() && !first.has_leadership());
        proxy.repair();
        env.wait_for_children(&direct, &path, 2).await;
        assert!(new.is_held() && !first.has_leadership());
    }

    async fn latch_is_closed_during_an_outage(env) {
        let (proxy, direct, path) = (env.proxy(), env.client().await, env.path("latch"));
        let client = connected(impatient(&proxy)).await;
        let latch = started(&client, &path);
        let leadership = leads(&latch).await;
        take_down(&proxy);
        becomes(&client, Suspended).await;
        // The view of the term, which the caller keeps, does not keep the node.
        in_time(latch.close()).await;
        assert!(!leadership.is_held());
        assert!(matches!(in_time(latch.leading()).await, Err(LeaderError::Closed { .. })));
        proxy.accept();
        env.wait_for_children(&direct, &path, 0).await;
    }

    async fn latch_that_resigns_during_an_outage_joins_again(env) {
        let (proxy, direct, path) = (env.proxy(), env.client().await, env.path("latch"));
        let client = connected(impatient(&proxy)).await;
        let latch = started(&client, &path);
        for is_dropped in [false, true] {
            let leadership = leads(&latch).await;
            take_down(&proxy);
            becomes(&client, Suspended).await;
            if is_dropped {
                let resigned = tokio::time::timeout(Duration::from_millis(50), latch.resign()).await;
                assert!(resigned.is_err(), "{resigned:?}");
            } else {
                let resigned = in_time(latch.resign()).await;
                assert!(resigned.as_ref().is_err_and(LeaderError::is_retryable), "{resigned:?}");
            }
            assert_eq!(end_of(&leadership).await, TermEnd::Resigned);
            assert!(!latch.has_leadership());
            proxy.accept();
            assert!(leads(&latch).await.token() > leadership.token());
            env.wait_for_children(&direct, &path, 1).await;
        }
    }

    async fn latch_keeps_its_term_over_a_restart_of_the_server(env) {
        let env = env.alone();
        let path = env.path("latch");
        let client = connected(builder(env.address()).session_timeout(LONG)).await;
        let latch = LeaderLatch::new(client.clone(), &path).unwrap();
        let mut calls = Calls::of(&latch);
        latch.start().unwrap();
        let leadership = leads(&latch).await;
        assert_eq!(calls.next().await, Call::IsLeader);
        env.restart().await;
        becomes(&client, Reconnected).await;
        in_time(leadership.verify()).await.unwrap();
        assert!(calls.is_quiet() && leadership.is_held());
    }
}

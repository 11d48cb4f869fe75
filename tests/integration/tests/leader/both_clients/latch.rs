//! Curator's `TestLeaderLatch`, as far as no connection breaks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use curator_integration::env::{builder, children, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{
    LeaderError, LeaderLatch, LeaderLatchOptions, LeaderObserver, LeaderState, ObserverState, TermEnd,
};
use tokio::task::JoinSet;

use crate::stage::{Call, Calls, LONG, end_of, leaders, leads, named, one_leads, started};

const LATCHES: usize = 10;

on_every_server! {
    /// Curator's `TestLeaderLatch.testBasic`.
    async fn latches_lead_one_after_the_other_in_their_order(env) {
        let (client, path) = (env.client().await, env.path("latch"));
        let mut latches = Vec::new();
        for number in 1..=LATCHES {
            latches.push(started(&client, &path));
            env.wait_for_children(&client, &path, number).await;
        }
        let mut terms = Vec::new();
        for (number, latch) in latches.iter().enumerate() {
            let leadership = leads(latch).await;
            assert_eq!(leaders(&latches), [number]);
            assert!(leadership.is_held() && leadership.remaining() > Duration::ZERO);
            leadership.verify().await.unwrap();
            assert_eq!(latch.our_path().as_deref(), Some(leadership.node_path()));
            let stat = client.check_exists().for_path(leadership.node_path()).await.unwrap().unwrap();
            assert_eq!(leadership.token().czxid().get(), stat.czxid);
            assert_eq!(latch.leadership().unwrap().token(), leadership.token());
            terms.push(leadership.token());
            in_time(latch.close()).await;
            assert!(!latch.has_leadership() && latch.leadership().is_none());
            assert_eq!(end_of(&leadership).await, TermEnd::Resigned);
        }
        assert!(terms.is_sorted_by(|one, next| one < next), "{terms:?}");
        assert_eq!(children(&client, &path).await, [""; 0]);
    }

    /// Curator's `TestLeaderLatch.testBasicAlt`.
    async fn latches_started_in_tasks_lead_one_at_a_time(env) {
        let (clients, path) = ([env.client().await, env.client().await], env.path("latch"));
        let latches: Vec<_> =
            (0..LATCHES).map(|number| LeaderLatch::new(clients[number % 2].clone(), &path).unwrap()).collect();
        for latch in latches.clone() {
            tokio::spawn(async move { latch.start().unwrap() });
        }
        let mut left = latches;
        while !left.is_empty() {
            let leader = left.remove(one_leads(&left).await);
            in_time(leader.close()).await;
        }
        assert_eq!(children(&clients[0], &path).await, [""; 0]);
    }

    /// Curator's `TestLeaderLatch.testWaiting`.
    async fn leaders_that_work_and_close_exclude_each_other(env) {
        let (clients, path) = ([env.client().await, env.client().await], env.path("latch"));
        for _ in 0..5 {
            let is_led = Arc::new(AtomicBool::new(false));
            let mut workers = JoinSet::new();
            for number in 0..LATCHES {
                let (latch, is_led) = (started(&clients[number % 2], &path), Arc::clone(&is_led));
                workers.spawn(async move {
                    let leadership = leads(&latch).await;
                    assert!(!is_led.swap(true, Ordering::SeqCst), "two leaders at once");
                    leadership.protect(tokio::time::sleep(Duration::from_millis(3))).await.unwrap();
                    is_led.store(false, Ordering::SeqCst);
                    latch.close().await;
                });
            }
            while let Some(worked) = in_time(workers.join_next()).await {
                worked.unwrap();
            }
        }
        env.wait_for_children(&clients[0], &path, 0).await;
    }

    /// Curator's `TestLeaderLatch.testUncreatedPathGetLeader` (CURATOR-436).
    async fn path_that_does_not_exist_has_no_leader(env) {
        let latch = LeaderLatch::new(env.client().await, env.path("foo/bar")).unwrap();
        assert_eq!(in_time(latch.leader()).await.unwrap(), None);
        assert_eq!(in_time(latch.participants()).await.unwrap(), []);
        assert!(matches!(latch.state(), LeaderState::Latent), "{:?}", latch.state());
        assert!(!latch.has_leadership() && latch.our_path().is_none());
    }

    /// Curator's `TestLeaderLatch.testCorrectWatching`.
    async fn close_of_a_waiter_makes_no_other_waiter_lead(env) {
        let (client, path) = (env.client().await, env.path("latch"));
        let mut latches = Vec::new();
        for number in 1..=LATCHES {
            latches.push(named(&client, &path, &number.to_string()));
            env.wait_for_children(&client, &path, number).await;
        }
        let leadership = leads(&latches[0]).await;
        let calls = Calls::of(&latches[3]);
        in_time(latches.remove(2).close()).await;
        env.wait_for_children(&client, &path, LATCHES - 1).await;
        // The successor has set its new watch when its session has answered another request.
        curator_integration::env::answered(std::slice::from_ref(&client)).await;
        assert_eq!((leaders(&latches), leadership.is_held()), (vec![0], true));
        // The queue behind the closed latch is whole: all of them lead, in order.
        for latch in &latches {
            leads(latch).await;
            in_time(latch.close()).await;
        }
        drop(latches);
        assert_eq!(calls.all().await, [Call::IsLeader]);
    }

    /// Curator's `TestLeaderLatch.testResetRace`: the latch leaves the queue at any moment of its join.
    async fn latch_that_leaves_while_it_joins_has_one_node(env) {
        let (client, path) = (env.client().await, env.path("latch"));
        for micros in (0..6000).step_by(300) {
            let latch = started(&client, &path);
            tokio::time::sleep(Duration::from_micros(micros)).await;
            latch.abstain(Duration::ZERO);
            latch.abstain(Duration::ZERO);
            let leads_alone = async || {
                let nodes = children(&client, &path).await;
                latch.leadership().is_some_and(|term| nodes.len() == 1 && term.node_path().ends_with(&nodes[0]))
            };
            eventually("one node is left, which leads", leads_alone).await;
            in_time(latch.close()).await;
        }
        env.wait_for_children(&client, &path, 0).await;
    }

    /// Curator's `TestLeaderLatch.testCreateDeleteRace`: the latch is closed at any moment of its join.
    async fn latch_closed_while_it_joins_leaves_no_node(env) {
        let (client, path) = (env.client().await, env.path("latch"));
        client.create().creating_parents_if_needed().for_path(&path).await.unwrap();
        for micros in (0..6000).step_by(200) {
            let latch = started(&client, &path);
            tokio::time::sleep(Duration::from_micros(micros)).await;
            in_time(latch.close()).await;
            assert!(matches!(latch.state(), LeaderState::Closed), "{:?}", latch.state());
            env.wait_for_children(&client, &path, 0).await;
        }
        // No create was on its way behind the last close.
        curator_integration::env::answered(std::slice::from_ref(&client)).await;
        assert_eq!(children(&client, &path).await, [""; 0]);
    }

    /// Curator's `TestLeaderLatch.testResettingOfLeadershipAfterConcurrentLeadershipChange` (CURATOR-644): both latches
    /// leave the queue at once.
    async fn two_latches_that_leave_at_once_have_one_leader(env) {
        let path = env.path("latch");
        let (one, two) = (env.client().await, env.client().await);
        let latches = [named(&one, &path, "id0"), named(&two, &path, "id1")];
        for _ in 0..10 {
            let nodes = env.wait_for_children(&one, &path, 2).await;
            let before = one_leads(&latches).await;
            let old = leads(&latches[before]).await;
            for latch in &latches {
                latch.abstain(Duration::ZERO);
            }
            assert_eq!(end_of(&old).await, TermEnd::Resigned);
            // The follower may lead before it hears that it is to leave.
            eventually("both have left", async || {
                let now = children(&one, &path).await;
                now.len() == 2 && !now.iter().any(|node| nodes.contains(node))
            })
            .await;
            let now = one_leads(&latches).await;
            assert!(leads(&latches[now]).await.token() > old.token());
        }
        // A latch that follows stays where it is.
        let leader = one_leads(&latches).await;
        let follower = &latches[1 - leader];
        assert!(in_time(follower.resign()).await.unwrap().is_none());
        assert_eq!(one_leads(&latches).await, leader);
        assert!(in_time(latches[leader].resign()).await.unwrap().is_some());
        leads(follower).await;
        assert!(!latches[leader].has_leadership());
        env.wait_for_children(&one, &path, 2).await;
    }

    async fn latch_is_started_once_and_closed_any_number_of_times(env) {
        let (client, path) = (env.client().await, env.path("latch"));
        let latch = LeaderLatch::new(client.clone(), &path).unwrap();
        let leading = in_time(latch.leading()).await.map(Some);
        for refused in [leading, in_time(latch.leading_timeout(Duration::ZERO)).await] {
            assert!(matches!(refused, Err(LeaderError::NotStarted { .. })), "{refused:?}");
        }
        assert!(client.check_exists().for_path(&path).await.unwrap().is_none());
        latch.start().unwrap();
        assert!(matches!(latch.start(), Err(LeaderError::AlreadyStarted { .. })));
        let leadership = leads(&latch).await;
        let closes = latch.clone();
        tokio::join!(in_time(latch.close()), in_time(closes.close()));
        in_time(latch.close()).await;
        assert_eq!(end_of(&leadership).await, TermEnd::Resigned);
        assert!(matches!(latch.start(), Err(LeaderError::Closed { .. })));
        latch.abstain(Duration::ZERO);
        assert!(in_time(latch.resign()).await.unwrap().is_none());
        for refused in [
            in_time(latch.leading()).await.map(drop),
            in_time(latch.leading_timeout(Duration::ZERO)).await.map(drop),
        ] {
            assert!(matches!(refused, Err(LeaderError::Closed { .. })), "{refused:?}");
        }
        assert_eq!(children(&client, &path).await, [""; 0]);
        // A latch that was never started is closed too.
        let unused = LeaderLatch::new(client, &path).unwrap();
        in_time(unused.close()).await;
        assert!(matches!(unused.start(), Err(LeaderError::Closed { .. })));
    }

    async fn participants_show_ids_and_one_leader(env) {
        let path = env.path("latch");
        let clients = [env.client().await, env.client().await];
        let mut latches = Vec::new();
        for (number, id) in ["ann", "bob", "", "zoë"].into_iter().enumerate() {
            latches.push(named(&clients[number % 2], &path, id));
            env.wait_for_children(&clients[0], &path, number + 1).await;
        }
        let leadership = leads(&latches[0]).await;
        let expected = [("ann", true), ("bob", false), ("", false), ("zoë", false)];
        for (latch, (id, _)) in latches.iter().zip(expected) {
            let participants = in_time(latch.participants()).await.unwrap();
            let seen: Vec<_> = participants.iter().map(|one| (one.id().to_string(), one.holds)).collect();
            assert_eq!(seen, expected.map(|(id, holds)| (id.to_owned(), holds)));
            assert_eq!((latch.path(), latch.id()), (path.as_str(), id));
            let leader = in_time(latch.leader()).await.unwrap().expect("one leads");
            assert_eq!((leader.id().to_string(), leader.czxid), ("ann".to_owned(), leadership.token().czxid()));
            assert_eq!(leader.path, leadership.node_path());
        }
        // Java's names and data.
        let participants = in_time(latches[0].participants()).await.unwrap();
        for (participant, (id, _)) in participants.iter().zip(expected) {
            let name = participant.path.rsplit_once('/').unwrap().1;
            let (protection, number) = name.split_once("-latch-").unwrap();
            assert!(protection.starts_with("_c_") && number.len() == 10, "{name}");
            assert_eq!(participant.data, id.as_bytes());
        }
    }

    async fn dropped_latch_leaves_the_queue(env) {
        let path = env.path("latch");
        let (client, observer) = (env.client().await, env.client().await);
        let first = started(&client, &path);
        let leadership = leads(&first).await;
        let second = started(&client, &path);
        {
            let clone = first.clone();
            env.wait_for_children(&observer, &path, 2).await;
            drop(first);
            assert!(leadership.is_held() && clone.has_leadership(), "a clone keeps the latch");
        }
        // The view of a term does not keep the latch.
        assert_eq!(end_of(&leadership).await, TermEnd::Resigned);
        leads(&second).await;
        env.wait_for_children(&observer, &path, 1).await;
        drop(second);
        env.wait_for_children(&observer, &path, 0).await;
    }

    async fn latch_ends_with_the_runtime_of_its_start(env) {
        let (client, path) = (env.client().await, env.path("latch"));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (latch, observer) = {
            let _inside = runtime.enter();
            (started(&client, &path), curator_integration::following::observer(client.clone(), &path))
        };
        let leadership = leads(&latch).await;
        tokio::task::spawn_blocking(move || drop(runtime)).await.unwrap();
        assert_eq!(end_of(&leadership).await, TermEnd::Resigned);
        let refused = in_time(latch.leading()).await;
        assert!(matches!(refused, Err(LeaderError::Closed { .. })), "{refused:?}");
        in_time(observer.watch().wait_for(|observed| matches!(observed, ObserverState::Closed))).await.unwrap();
        env.wait_for_children(&client, &path, 0).await;
        in_time(latch.close()).await;
        in_time(observer.close()).await;
    }

    async fn latch_started_before_its_client_leads_later(env) {
        let (client, path) = (builder(env.address()).build().unwrap(), env.path("latch"));
        let latch = started(&client, &path);
        tokio::task::yield_now().await;
        client.start().unwrap();
        let leading = |state: &LeaderState| matches!(state, LeaderState::Leading(_));
        in_time(latch.watch().wait_for(leading)).await.unwrap();
        leads(&latch).await;
    }

    async fn latch_ends_with_its_client(env) {
        let path = env.path("latch");
        let observer = env.client().await;
        for is_closed in [true, false] {
            let client = connected(builder(env.address()).session_timeout(LONG)).await;
            let latch = started(&client, &path);
            let leadership = leads(&latch).await;
            let mut states = latch.watch();
            if is_closed {
                in_time(client.close()).await;
                in_time(states.wait_for(|state| matches!(state, LeaderState::Closed))).await.unwrap();
                assert!(matches!(in_time(latch.leading()).await, Err(LeaderError::Closed { .. })));
                in_time(latch.close()).await;
            } else {
                // A latch is a handle of its client, its task is not.
                drop(client);
                in_time(leadership.verify()).await.unwrap();
                drop(latch);
                while in_time(states.changed()).await.is_ok() {}
            }
            end_of(&leadership).await;
            // Long before the session would expire.
            env.wait_for_children(&observer, &path, 0).await;
        }
    }

    /// A hundred terms of four latches in two clients.
    async fn terms_of_resigning_leaders_grow_and_do_not_overlap(env) {
        let (clients, path) = ([env.client().await, env.client().await], env.path("latch"));
        let (inside, newest) = (Arc::new(AtomicUsize::new(0)), Arc::new(std::sync::atomic::AtomicI64::new(0)));
        let mut tasks = JoinSet::new();
        for number in 0..4 {
            let latch = started(&clients[number % 2], &path);
            let (inside, newest) = (Arc::clone(&inside), Arc::clone(&newest));
            tasks.spawn(async move {
                for _ in 0..25 {
                    let leadership = leads(&latch).await;
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two leaders at once");
                    let number = leadership.token().czxid().get();
                    assert!(newest.swap(number, Ordering::SeqCst) < number);
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    assert!(in_time(latch.resign()).await.unwrap().is_some());
                    assert!(!leadership.is_held());
                }
                latch.close().await;
            });
        }
        while let Some(done) = in_time(tasks.join_next()).await {
            done.unwrap();
        }
        env.wait_for_children(&clients[0], &path, 0).await;
    }
}

/// Curator's `TestLeaderLatch.testRelativePath`.
#[tokio::test]
async fn relative_path_is_refused() {
    let client = curator_framework::CuratorFramework::new_client(
        "127.0.0.1:1",
        curator_framework::RetryOneTime::new(Duration::from_millis(1)),
    );
    let client = client.unwrap();
    for path in ["parent", "", "/a//b", "/a/"] {
        let refused = LeaderLatch::new(client.clone(), path);
        assert!(refused.is_err(), "{path:?}: {refused:?}");
        assert!(LeaderLatch::with_options(client.clone(), path, LeaderLatchOptions::new()).is_err());
        assert!(curator_recipes::LeaderSelector::new(client.clone(), path).is_err());
        assert!(LeaderObserver::new(client.clone(), path).is_err());
    }
    let refused = LeaderLatch::new(client, "parent").unwrap_err().to_string();
    assert!(refused.contains("does not start with a slash"), "{refused}");
}

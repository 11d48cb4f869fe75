//! Hand-overs to a chosen candidate, and the delay behind a leader that has not resigned. Both need transactions.

use std::time::{Duration, Instant};

use curator_framework::{ConnectionState, CreateMode, LossReason, StandardConnectionStateErrorPolicy};
use curator_integration::env::{builder, connected, in_time};
use curator_integration::on_every_server;
use curator_recipes::{
    InterProcessMutex, LeaderError, LeaderLatch, LeaderLatchOptions, LeaderState, Participant, TermEnd,
};

use crate::stage::{Call, Calls, LONG, becomes, end_of, leaders, leads, named, one_leads, sees, started_with, three};

const BUDGET: Duration = Duration::from_secs(20);

async fn participant(latch: &LeaderLatch, id: &str) -> Participant {
    let participants = in_time(latch.participants()).await.unwrap();
    participants.into_iter().find(|participant| *participant.id() == *id).expect("it is in the queue")
}

on_every_server! {
    async fn leader_hands_over_to_the_candidate_that_it_names(env) {
        let path = env.path("latch");
        let (clients, latches) = three(&env, &path).await;
        let old = leads(&latches[0]).await;
        let mut bobs_calls = Calls::of(&latches[1]);
        let cat = participant(&latches[0], "cat").await;
        assert!(in_time(latches[0].resign_to_timeout(&cat, BUDGET)).await.unwrap().is_some());
        assert_eq!(end_of(&old).await, TermEnd::Resigned);
        let new = leads(&latches[2]).await;
        assert!(new.token() > old.token());
        assert_eq!(leaders(&latches), [2]);
        assert!(bobs_calls.is_quiet(), "the candidate between them led");
        // The old leader is behind the candidate that was passed over.
        env.wait_for_children(&clients[0], &path, 3).await;
        in_time(latches[2].close()).await;
        let next = leads(&latches[1]).await;
        assert!(next.token() > new.token(), "terms grow also behind a hand-over");
        assert_eq!(bobs_calls.next().await, Call::IsLeader);
        in_time(latches[1].close()).await;
        assert!(leads(&latches[0]).await.token() > next.token());
        env.wait_for_children(&clients[0], &path, 1).await;
    }

    async fn hand_over_round_and_round_leaves_one_node_each(env) {
        let path = env.path("latch");
        let (clients, latches) = three(&env, &path).await;
        let ids = ["ann", "bob", "cat"];
        let (mut leader, mut term) = (0, None);
        for round in 0..6 {
            let leadership = leads(&latches[leader]).await;
            assert!(Some(leadership.token()) > term, "round {round}");
            term = Some(leadership.token());
            let to = (leader + 1 + round % 2) % 3;
            let chosen = participant(&latches[leader], ids[to]).await;
            assert!(in_time(latches[leader].resign_to_timeout(&chosen, BUDGET)).await.unwrap().is_some(), "round {round}");
            assert_eq!(end_of(&leadership).await, TermEnd::Resigned);
            assert_eq!(one_leads(&latches).await, to, "round {round}");
            leader = to;
            env.wait_for_children(&clients[0], &path, 3).await;
        }
    }

    /// The leader keeps leading.
    async fn hand_over_to_a_candidate_that_is_gone_keeps_the_term(env) {
        let path = env.path("latch");
        let (clients, latches) = three(&env, &path).await;
        let leadership = leads(&latches[0]).await;
        let cat = participant(&latches[0], "cat").await;
        in_time(latches[2].close()).await;
        env.wait_for_children(&clients[0], &path, 2).await;
        let outcome = in_time(latches[0].resign_to_timeout(&cat, Duration::from_millis(500))).await;
        assert!(!matches!(outcome, Ok(Some(_))), "{outcome:?}");
        in_time(leadership.verify()).await.unwrap();
        assert_eq!(leaders(&latches[..2]), [0]);
        // A candidate that does not lead hands nothing over.
        let ann = participant(&latches[1], "ann").await;
        let outcome = in_time(latches[1].resign_to_timeout(&ann, Duration::from_millis(500))).await;
        assert!(!matches!(outcome, Ok(Some(_))), "{outcome:?}");
        // The next hand-over is not disturbed by the wish that failed.
        let bob = participant(&latches[0], "bob").await;
        assert!(in_time(latches[0].resign_to_timeout(&bob, BUDGET)).await.unwrap().is_some());
        assert!(leads(&latches[1]).await.token() > leadership.token());
    }

    async fn hand_over_to_a_wrong_candidate_is_refused(env) {
        let path = env.path("latch");
        let (clients, latches) = three(&env, &path).await;
        let leadership = leads(&latches[0]).await;
        let elsewhere = named(&clients[0], &env.path("elsewhere"), "dan");
        leads(&elsewhere).await;
        let mutex = InterProcessMutex::new(clients[1].clone(), &path).unwrap();
        let guard = in_time(mutex.acquire()).await.unwrap();
        let no_latch = in_time(mutex.participants()).await.unwrap().remove(0);
        for wrong in [participant(&latches[0], "ann").await, participant(&elsewhere, "dan").await, no_latch] {
            let refused = in_time(latches[0].resign_to_timeout(&wrong, BUDGET)).await;
            assert!(matches!(refused, Err(LeaderError::InvalidArgument { .. })), "{refused:?}");
        }
        in_time(leadership.verify()).await.unwrap();
        drop(guard);
    }

    /// Java's latches know no wish: the leader keeps leading, and the candidate leads in its turn.
    async fn hand_over_to_a_latch_of_another_implementation_keeps_the_term(env) {
        let path = env.path("latch");
        let (clients, latches) = three(&env, &path).await;
        let leadership = leads(&latches[0]).await;
        in_time(leadership.proclaim("kept")).await.unwrap();
        let java = clients[0].create().with_protection().with_mode(CreateMode::EphemeralSequential).with_data("java");
        let java = in_time(java.for_path(&format!("{path}/latch-"))).await.unwrap();
        let chosen = participant(&latches[0], "java").await;
        assert!(in_time(latches[0].resign_to_timeout(&chosen, Duration::from_millis(300))).await.unwrap().is_none());
        in_time(leadership.verify()).await.unwrap();
        let observer = latches[0].observe().unwrap();
        let seen = sees(&mut observer.watch(), |leader| leader.token == leadership.token()).await;
        assert_eq!(seen.data.as_deref(), Some(&b"kept"[..]));
        for latch in &latches {
            leads(latch).await;
            in_time(latch.close()).await;
        }
        let seen = sees(&mut observer.watch(), |leader| leader.id == "java").await;
        assert_eq!((seen.path, seen.data), (java.clone(), None));
        let last = named(&clients[1], &path, "last");
        env.wait_for_children(&clients[0], &path, 2).await;
        assert!(!last.has_leadership());
        clients[0].delete().for_path(&java).await.unwrap();
        assert!(leads(&last).await.token() > leadership.token());
    }

    /// Behind a hand-over the number belongs to a write, which the path no longer tells.
    async fn suspended_term_keeps_its_number_without_a_record(env) {
        let (proxy, path) = (env.proxy(), env.path("latch"));
        let options = builder(proxy.address()).session_timeout(LONG);
        let client = connected(options.connection_state_error_policy(StandardConnectionStateErrorPolicy)).await;
        let direct = env.client().await;
        let named = |client, id: &str| started_with(client, &path, LeaderLatchOptions::new().id(id));
        let ann = named(&direct, "ann");
        leads(&ann).await;
        let bob = named(&client, "bob");
        env.wait_for_children(&direct, &path, 2).await;
        let cat = named(&direct, "cat");
        env.wait_for_children(&direct, &path, 3).await;
        let chosen = participant(&ann, "cat").await;
        assert!(in_time(ann.resign_to_timeout(&chosen, BUDGET)).await.unwrap().is_some());
        leads(&cat).await;
        in_time(cat.close()).await;
        let before = leads(&bob).await;
        direct.set_data().for_path(&path, Vec::new()).await.unwrap();
        proxy.reset();
        becomes(&client, ConnectionState::Suspended).await;
        let leads_again = |state: &LeaderState| matches!(state, LeaderState::Leading(term) if term.is_held());
        in_time(bob.watch().wait_for(leads_again)).await.unwrap();
        assert_eq!(bob.leadership().unwrap().token(), before.token());
    }

    /// The delay is for the work of another process.
    async fn leader_does_not_wait_for_its_own_suspended_term(env) {
        let (proxy, direct, path) = (env.proxy(), env.client().await, env.path("latch"));
        let options = builder(proxy.address()).session_timeout(LONG);
        let client = connected(options.connection_state_error_policy(StandardConnectionStateErrorPolicy)).await;
        let delay = Duration::from_secs(5);
        let latch = started_with(&client, &path, LeaderLatchOptions::new().delay_after_unclean_loss(delay));
        let before = leads(&latch).await;
        in_time(before.proclaim("kept")).await.unwrap();
        let observer = curator_integration::following::observer(direct.clone(), &path);
        for _ in 0..2 {
            proxy.reset();
            becomes(&client, ConnectionState::Suspended).await;
            let begun = Instant::now();
            let states = |state: &LeaderState| matches!(state, LeaderState::Leading(term) if term.is_held());
            in_time(latch.watch().wait_for(states)).await.unwrap();
            assert!(begun.elapsed() < delay, "led again after {:?}", begun.elapsed());
            assert_eq!(latch.leadership().unwrap().token(), before.token());
            let seen = sees(&mut observer.watch(), |leader| leader.token == before.token()).await;
            assert_eq!(seen.data.as_deref(), Some(&b"kept"[..]));
        }
        env.wait_for_children(&direct, &path, 1).await;
    }

    async fn candidate_waits_after_an_unclean_loss_only(env) {
        let path = env.path("latch");
        let (one, two) = (env.client().await, env.client().await);
        let delay = Duration::from_secs(2);
        let cautious = |client| started_with(client, &path, LeaderLatchOptions::new().delay_after_unclean_loss(delay));
        let first = cautious(&one);
        // A queue without a predecessor has nothing to wait for.
        let begun = Instant::now();
        let leadership = leads(&first).await;
        let second = cautious(&two);
        env.wait_for_children(&two, &path, 2).await;
        let alone = begun.elapsed();
        let begun = Instant::now();
        env.kill_owner_of(&two, leadership.node_path()).await;
        let next = leads(&second).await;
        let unclean = begun.elapsed();
        assert!(unclean >= delay, "led after {unclean:?}");
        assert!(matches!(end_of(&leadership).await, TermEnd::Lost(LossReason::Session(_) | LossReason::NodeDeleted)));
        env.wait_for_children(&two, &path, 2).await;
        let begun = Instant::now();
        assert!(in_time(second.resign()).await.unwrap().is_some());
        leads(&first).await;
        let clean = begun.elapsed();
        assert!(!next.is_held());
        println!("alone {alone:?}, behind an unclean loss {unclean:?}, behind a resignation {clean:?}");
        assert!(clean < delay, "led after {clean:?}");
    }
}

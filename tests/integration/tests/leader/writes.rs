//! Writes of a leader that count only in its term: proclaimed data, guarded transactions.

use std::time::SystemTime;

use curator_integration::env::{builder, connected, in_time};
use curator_integration::on_every_server;
use curator_recipes::{LeaderError, LeaderLatch, ObserverState, TermEnd};

use crate::stage::{LONG, end_of, leads, named, sees, started};

on_every_server! {
    async fn observer_sees_each_leader_and_its_data(env) {
        let path = env.path("latch");
        let (one, two, other) = (env.client().await, env.client().await, env.client().await);
        let observer = curator_integration::following::observer(other.clone(), &path);
        let mut observed = observer.watch();
        in_time(observed.wait_for(|observed| matches!(observed, ObserverState::NoLeader))).await.unwrap();
        assert!(observer.leader().is_none());
        let first = named(&one, &path, "ann");
        let leadership = leads(&first).await;
        let seen = sees(&mut observed, |leader| leader.token == leadership.token()).await;
        assert_eq!((seen.id.as_str(), seen.path.as_str(), &seen.data), ("ann", leadership.node_path(), &None));
        let stat = other.check_exists().for_path(leadership.node_path()).await.unwrap().unwrap();
        assert_eq!(seen.session.get(), stat.ephemeral_owner);
        let age = SystemTime::now().duration_since(seen.created).unwrap_or_default();
        assert!(age < LONG, "{age:?}");
        for data in ["10.0.0.7:80", "", "again"] {
            in_time(leadership.proclaim(data)).await.unwrap();
            sees(&mut observed, |leader| leader.data.as_deref() == Some(data.as_bytes())).await;
            assert_eq!(observer.leader().unwrap().token, leadership.token());
        }
        // The data of a term ends with it.
        let second = named(&two, &path, "bob");
        env.wait_for_children(&other, &path, 2).await;
        assert!(in_time(first.resign()).await.unwrap().is_some());
        let next = leads(&second).await;
        let seen = sees(&mut observed, |leader| leader.token == next.token()).await;
        assert_eq!((seen.id.as_str(), seen.data), ("bob", None));
        let refused = in_time(leadership.proclaim("late")).await;
        assert!(matches!(refused, Err(LeaderError::LeadershipLost { reason: TermEnd::Resigned, .. })), "{refused:?}");
        in_time(next.proclaim("bob's")).await.unwrap();
        let seen = sees(&mut observed, |leader| leader.data.is_some()).await;
        assert_eq!((seen.token, seen.data.as_deref()), (next.token(), Some(&b"bob's"[..])));
        // An observer that comes late sees the same.
        let late = second.observe().unwrap();
        let seen_late = sees(&mut late.watch(), |leader| leader.data.is_some()).await;
        assert_eq!((seen_late.token, seen_late.data), (next.token(), Some(b"bob's".to_vec())));
        in_time(second.close()).await;
        in_time(first.close()).await;
        in_time(observed.wait_for(|observed| matches!(observed, ObserverState::NoLeader))).await.unwrap();
        in_time(late.watch().wait_for(|seen| matches!(seen, ObserverState::NoLeader))).await.unwrap();
        in_time(observer.close()).await;
        in_time(observer.close()).await;
    }

    async fn proclaim_of_a_lost_term_changes_nothing(env) {
        let path = env.path("latch");
        let (proxy, direct) = (env.proxy(), env.client().await);
        let client = connected(builder(proxy.address())).await;
        let latch = named(&client, &path, "old");
        let old = leads(&latch).await;
        in_time(old.proclaim("old")).await.unwrap();
        // The client does not know yet that its node is gone.
        proxy.partition();
        let next = named(&direct, &path, "new");
        direct.delete().for_path(old.node_path()).await.unwrap();
        let new = leads(&next).await;
        in_time(new.proclaim("new")).await.unwrap();
        let late = { let old = old.clone(); tokio::spawn(async move { old.proclaim("late").await }) };
        proxy.repair();
        let late = in_time(late).await.unwrap();
        assert!(late.is_err(), "{late:?}");
        end_of(&old).await;
        let observer = curator_integration::following::observer(direct, &path);
        let seen = sees(&mut observer.watch(), |leader| leader.data.is_some()).await;
        assert_eq!((seen.token, seen.data.as_deref()), (new.token(), Some(&b"new"[..])));
        assert!(new.is_held());
    }

    async fn compression_of_a_client_concerns_its_ids_only(env) {
        let path = env.path("latch");
        let compressing = connected(builder(env.address()).enable_compression()).await;
        let latch = named(&compressing, &path, "ann");
        let leadership = leads(&latch).await;
        in_time(leadership.proclaim("data")).await.unwrap();
        assert_eq!(*in_time(latch.leader()).await.unwrap().unwrap().id(), *"ann");
        let observer = latch.observe().unwrap();
        let seen = sees(&mut observer.watch(), |leader| leader.data.is_some()).await;
        assert_eq!((seen.id.as_str(), seen.data.as_deref()), ("ann", Some(&b"data"[..])));
        // A client without compression elects with it.
        let plain = named(&env.client().await, &path, "bob");
        env.wait_for_children(&compressing, &path, 2).await;
        assert!(in_time(latch.resign_to_timeout(&in_time(plain.participants()).await.unwrap()[1], LONG)).await.unwrap().is_some());
        let next = leads(&plain).await;
        let seen = sees(&mut observer.watch(), |leader| leader.token == next.token()).await;
        assert_eq!(seen.path, next.node_path());
    }

    /// A program's own data at the path are neither overwritten nor taken for a record.
    async fn foreign_data_of_the_path_are_kept(env) {
        let (client, path) = (env.client().await, env.path("latch"));
        client.create().creating_parents_if_needed().with_data("mine").for_path(&path).await.unwrap();
        let latch = LeaderLatch::new(client.clone(), &path).unwrap();
        latch.start().unwrap();
        let leadership = leads(&latch).await;
        let refused = in_time(leadership.proclaim("data")).await;
        assert!(matches!(refused, Err(LeaderError::ForeignData { .. })), "{refused:?}");
        assert_eq!(client.get_data().for_path(&path).await.unwrap().0, b"mine");
        let observer = latch.observe().unwrap();
        let seen = sees(&mut observer.watch(), |leader| leader.token == leadership.token()).await;
        assert_eq!(seen.data, None);
        // The election continues.
        assert!(in_time(latch.resign()).await.unwrap().is_some());
        assert!(leads(&latch).await.token() > leadership.token());
        assert_eq!(client.get_data().for_path(&path).await.unwrap().0, b"mine");
    }

    async fn work_under_protection_ends_with_the_term(env) {
        let (client, observer, path) = (env.client().await, env.client().await, env.path("latch"));
        let latch = started(&client, &path);
        let leadership = leads(&latch).await;
        assert_eq!(leadership.protect(async { 7 }).await.unwrap(), 7);
        let node = leadership.node_path().to_owned();
        let delete = async { observer.delete().for_path(&node).await.unwrap() };
        let (ended, ()) = tokio::join!(in_time(leadership.protect(std::future::pending::<()>())), delete);
        let is_lost = matches!(ended, Err(LeaderError::LeadershipLost { reason: TermEnd::Lost(_), .. }));
        assert!(is_lost, "{ended:?}");
        assert!(matches!(in_time(leadership.verify()).await, Err(LeaderError::LeadershipLost { .. })));
        // A write that demands the old term is refused, one of the present term is applied.
        let guarded = env.path("guarded");
        client.create().for_path(&guarded).await.unwrap();
        assert!(in_time(leadership.transaction().set_data(&guarded, "old").commit()).await.is_err());
        let next = leads(&latch).await;
        assert!(next.token() > leadership.token());
        in_time(next.transaction().set_data(&guarded, "new").commit()).await.unwrap();
        assert_eq!(client.get_data().for_path(&guarded).await.unwrap().0, b"new");
        in_time(latch.resign()).await.unwrap();
        let verified = in_time(next.verify()).await;
        let is_resigned = matches!(verified, Err(LeaderError::LeadershipLost { reason: TermEnd::Resigned, .. }));
        assert!(is_resigned, "{verified:?}");
        let late = in_time(next.transaction().set_data(&guarded, "late").commit()).await;
        let is_resigned = matches!(late, Err(LeaderError::LeadershipLost { reason: TermEnd::Resigned, .. }));
        assert!(is_resigned, "{late:?}");
        assert_eq!(client.get_data().for_path(&guarded).await.unwrap().0, b"new");
    }

    /// A new observer need not wait for a claim: no term has been larger than the leader's.
    async fn observers_agree_on_a_leader_whose_record_was_emptied(env) {
        let (client, proxy, path) = (env.client().await, env.proxy(), env.path("latch"));
        let other = connected(builder(proxy.address()).session_timeout(LONG)).await;
        let latch = named(&client, &path, "ann");
        let leadership = leads(&latch).await;
        in_time(leadership.proclaim("here")).await.unwrap();
        let earlier = curator_integration::following::observer(other.clone(), &path);
        sees(&mut earlier.watch(), |leader| leader.data.is_some()).await;
        client.set_data().for_path(&path, "").await.unwrap();
        let new = curator_integration::following::observer(other, &path);
        for observer in [&new, &earlier] {
            let seen = sees(&mut observer.watch(), |leader| leader.data.is_none()).await;
            assert_eq!((seen.id.as_str(), seen.token), ("ann", leadership.token()));
        }
        in_time(latch.close()).await;
    }
}

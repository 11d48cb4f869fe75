//! Observers of elections.

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{Acl, ConnectionState, CreateMode, Permission};
use curator_integration::env::{PATIENCE, builder, children, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{Change, LeaderSelector, LeaderSelectorOptions, ObserverState};

use crate::stage::{LONG, Terms, becomes, leads, named, sees, take_down};

on_every_server! {

    async fn observer_sees_the_leaders_of_selectors(env) {
        let (client, other, path) = (env.client().await, env.client().await, env.path("selector"));
        let selector = LeaderSelector::with_options(client, &path, LeaderSelectorOptions::new().id("ann")).unwrap();
        let observers = [curator_integration::following::observer(other.clone(), &path), selector.observe().unwrap()];
        let mut terms = Terms::new();
        let run = terms.run(&selector, "ann");
        let (_, term) = terms.begins().await;
        for observer in &observers {
            let seen = sees(&mut observer.watch(), |leader| leader.token == term).await;
            assert_eq!(seen.id, "ann");
        }
        assert!(selector.interrupt_leadership());
        terms.ends().await;
        let (_, term) = terms.begins().await;
        for observer in &observers {
            sees(&mut observer.watch(), |leader| leader.token == term).await;
        }
        in_time(selector.close()).await;
        in_time(run).await.unwrap().unwrap();
        for observer in &observers {
            in_time(observer.watch().wait_for(|seen| matches!(seen, ObserverState::NoLeader))).await.unwrap();
        }
    }

    async fn observer_follows_a_path_that_is_deleted_and_made_again(env) {
        let (client, other, path) = (env.client().await, env.client().await, env.path("latch"));
        let observer = curator_integration::following::observer(other.clone(), &path);
        let mut observed = observer.watch();
        for _ in 0..3 {
            in_time(observed.wait_for(|observed| matches!(observed, ObserverState::NoLeader))).await.unwrap();
            let latch = named(&client, &path, "ann");
            let leadership = leads(&latch).await;
            sees(&mut observed, |leader| leader.token == leadership.token()).await;
            in_time(latch.close()).await;
            // A server may have deleted it already, because it is a container.
            other.delete().for_path(&path).await.ok();
        }
    }

    async fn observer_that_may_not_read_says_so_and_sees_the_leader_later(env) {
        let (admin, other, path) = (env.client().await, env.client().await, env.path("latch"));
        let hidden = vec![Acl::new(Permission::CREATE | Permission::DELETE | Permission::ADMIN, "world", "anyone")];
        admin.create().creating_parents_if_needed().with_acl(hidden).for_path(&path).await.unwrap();
        let observer = curator_integration::following::observer(other, &path);
        let mut observed = observer.watch();
        in_time(observed.wait_for(|observed| matches!(observed, ObserverState::Failed(_)))).await.unwrap();
        admin.set_acl().with_acl(Acl::open_unsafe()).for_path(&path).await.unwrap();
        let latch = named(&admin, &path, "ann");
        let leadership = leads(&latch).await;
        sees(&mut observed, |leader| leader.token == leadership.token()).await;
    }

    /// The last known leader stays, with the error.
    async fn leader_stays_known_while_reads_are_refused(env) {
        let (admin, other, path) = (env.client().await, env.client().await, env.path("latch"));
        let latch = named(&admin, &path, "ann");
        let leadership = leads(&latch).await;
        let observer = curator_integration::following::observer(other, &path);
        let mut observed = observer.watch();
        sees(&mut observed, |leader| leader.token == leadership.token()).await;
        let hidden = vec![Acl::new(Permission::CREATE | Permission::DELETE | Permission::ADMIN, "world", "anyone")];
        admin.set_acl().with_acl(hidden).for_path(&path).await.unwrap();
        let waiting = named(&admin, &path, "bob");
        admin.delete().for_path(&observer.leader().unwrap().path).await.unwrap();
        let stale = |seen: &ObserverState| matches!(seen, ObserverState::Refused { leader: Some(leader), .. } if leader.id == "ann");
        in_time(observed.wait_for(stale)).await.unwrap();
        assert_eq!(observer.leader().map(|leader| leader.id).as_deref(), Some("ann"));
        admin.set_acl().with_acl(Acl::open_unsafe()).for_path(&path).await.unwrap();
        sees(&mut observed, |leader| leader.token != leadership.token()).await;
        in_time(waiting.close()).await;
    }

    /// A listing shows that its node was deleted. The read of the next leader's node is refused.
    async fn stale_observer_forgets_a_leader_that_a_later_listing_lacks(env) {
        let (admin, other, path) = (env.client().await, env.client().await, env.path("latch"));
        let latch = named(&admin, &path, "ann");
        let leadership = leads(&latch).await;
        let observer = curator_integration::following::observer(other, &path);
        let mut observed = observer.watch();
        sees(&mut observed, |leader| leader.token == leadership.token()).await;
        let hidden = vec![Acl::new(Permission::CREATE | Permission::DELETE | Permission::ADMIN, "world", "anyone")];
        let next = admin.create().with_mode(CreateMode::EphemeralSequential).with_acl(hidden);
        next.for_path(&format!("{path}/latch-")).await.unwrap();
        in_time(latch.close()).await;
        in_time(observed.wait_for(|seen| matches!(seen, ObserverState::Refused { .. } | ObserverState::Failed(_)))).await.unwrap();
        let without_ann = |seen: &ObserverState| seen.leader().is_none_or(|leader| leader.id != "ann");
        let forgotten = tokio::time::timeout(PATIENCE / 10, observed.wait_for(without_ann)).await.map(drop);
        assert!(forgotten.is_ok(), "{:?}", observer.watch().borrow());
    }

    async fn persistent_node_with_the_name_of_another_recipe_hides_no_leader(env) {
        let (client, other, path) = (env.client().await, env.client().await, env.path("latch"));
        other.create().creating_parents_if_needed().for_path(&format!("{path}/lock-0")).await.unwrap();
        let latch = named(&client, &path, "ann");
        let leadership = leads(&latch).await;
        let observer = curator_integration::following::observer(other.clone(), &path);
        let mut observed = observer.watch();
        sees(&mut observed, |leader| leader.token == leadership.token()).await;
        in_time(latch.close()).await;
        in_time(observed.wait_for(|observed| matches!(observed, ObserverState::NoLeader))).await.unwrap();
    }

    async fn persistent_node_ahead_of_all_candidates_is_not_a_leader(env) {
        let (client, other, path) = (env.client().await, env.client().await, env.path("latch"));
        let blocker = format!("{path}/latch-0");
        other.create().creating_parents_if_needed().for_path(&blocker).await.unwrap();
        let observer = curator_integration::following::observer(other.clone(), &path);
        let mut observed = observer.watch();
        in_time(observed.wait_for(|observed| !matches!(observed, ObserverState::Loading))).await.unwrap();
        let latch = named(&client, &path, "ann");
        eventually("a candidate", async || latch.participants().await.unwrap().len() == 1).await;
        assert_eq!(in_time(latch.leader()).await.unwrap(), None);
        let candidate = latch.participants().await.unwrap().remove(0);
        assert_eq!((candidate.holds, candidate.blocked_by.as_deref()), (false, Some(blocker.as_str())));
        assert!(matches!(*observed.borrow(), ObserverState::NoLeader), "{:?}", *observed.borrow());
        other.delete().for_path(&blocker).await.unwrap();
        let leader = sees(&mut observed, |leader| leader.id == "ann").await;
        assert_eq!(leader.token, in_time(latch.leading()).await.unwrap().token());
    }

    /// No change is missed over outages, and an observer has no node.
    async fn observer_goes_on_over_outages_and_leaves_nothing(env) {
        let (proxy, direct, path) = (env.proxy(), env.client().await, env.path("latch"));
        let client = connected(builder(proxy.address()).session_timeout(LONG)).await;
        let observer = curator_integration::following::observer(client.clone(), &path);
        let (mut observed, mut changes) = (observer.watch(), observer.changes());
        let latch = named(&direct, &path, "ann");
        for _ in 0..3 {
            let leadership = leads(&latch).await;
            sees(&mut observed, |leader| leader.token == leadership.token()).await;
            take_down(&proxy);
            becomes(&client, ConnectionState::Suspended).await;
            assert!(in_time(latch.resign()).await.unwrap().is_some());
            let next = leads(&latch).await;
            proxy.accept();
            sees(&mut observed, |leader| leader.token == next.token()).await;
        }
        assert_eq!(children(&direct, &path).await.len(), 1);
        let last = leads(&latch).await.token();
        in_time(observer.close()).await;
        let (mut terms, mut dropped) = (Vec::new(), 0);
        while let Some(change) = in_time(changes.recv()).await {
            match change {
                Change::Item(ObserverState::Leader(leader)) => terms.push(leader.token),
                Change::Item(_) => {}
                Change::Dropped(count) => dropped += count,
            }
        }
        assert!(dropped == 0 && terms.is_sorted() && terms.last() == Some(&last), "{terms:?}");
        eventually("no watch is left", async || client.watchers() == 0).await;
        // Drops end it too.
        let dropped = curator_integration::following::observer(client.clone(), &path);
        sees(&mut dropped.watch(), |leader| leader.token == last).await;
        drop(dropped);
        eventually("no watch is left", async || client.watchers() == 0).await;
    }
}

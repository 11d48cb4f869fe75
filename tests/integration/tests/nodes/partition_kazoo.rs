//! The tests of kazoo's `SetPartitioner` (`test_partitioner.py`), as far as they make sense here. Kazoo's members release
//! all items at each change; here only the items that move are released.

use std::time::Duration;

use curator_framework::{CuratorFramework, FixedEnsembleProvider};
use curator_integration::env::{Env, builder, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_test::FaultProxy;

use crate::partition_stage::{Ledger, Member, are_calm};

async fn become_calm(members: &[Member], count: usize, ledger: &Ledger) {
    eventually("all items have their owners", async || are_calm(members, count, ledger)).await;
    ledger.assert_one_owner_each();
}

/// A client through a proxy.
async fn behind_a_proxy(env: &Env) -> (CuratorFramework, FaultProxy) {
    let proxy = env.proxy();
    let options = builder(env.address()).ensemble_provider(FixedEnsembleProvider::new(proxy.connect_string()));
    (connected(options).await, proxy)
}

on_every_server! {
    /// `test_party_of_one`
    async fn one_member_owns_all_items(env) {
        let (path, ledger) = (env.path("work"), Ledger::default());
        let members = [Member::new(&env.client().await, &path, "0", 3, &ledger)];
        become_calm(&members, 3, &ledger).await;
        assert_eq!(members[0].owned(), ["item-000", "item-001", "item-002"]);
    }

    /// `test_party_of_two`, with the rest: the other member owns all in the end.
    async fn two_members_own_an_item_each_and_the_last_one_both(env) {
        let (path, ledger) = (env.path("work"), Ledger::default());
        let mut members = Vec::new();
        for id in ["0", "1"] {
            members.push(Member::new(&env.client().await, &path, id, 2, &ledger));
        }
        become_calm(&members, 2, &ledger).await;
        assert!(members.iter().all(|member| member.owned().len() == 1));
        in_time(members.remove(0).close()).await.unwrap();
        become_calm(&members, 2, &ledger).await;
        assert_eq!(members[0].owned().len(), 2);
    }

    /// `test_party_expansion`
    async fn a_third_member_gets_an_item(env) {
        let (path, ledger) = (env.path("work"), Ledger::default());
        let mut members = Vec::new();
        for id in ["0", "1"] {
            members.push(Member::new(&env.client().await, &path, id, 3, &ledger));
        }
        become_calm(&members, 3, &ledger).await;
        members.push(Member::new(&env.client().await, &path, "2", 3, &ledger));
        become_calm(&members, 3, &ledger).await;
        assert!(members.iter().all(|member| member.owned().len() == 1));
    }

    /// `test_more_members_than_set_items`
    async fn a_member_without_items_is_a_member(env) {
        let (path, ledger) = (env.path("work"), Ledger::default());
        let mut members = Vec::new();
        for id in ["0", "1"] {
            members.push(Member::new(&env.client().await, &path, id, 1, &ledger));
        }
        become_calm(&members, 1, &ledger).await;
        assert_eq!(members.iter().map(|member| member.owned().len()).sum::<usize>(), 1);
    }

    /// `test_party_session_failure`: kazoo's partitioner fails forever. Here the run joins again in the next session.
    async fn a_failed_session_is_not_the_end(env) {
        let (path, ledger, client) = (env.path("work"), Ledger::default(), env.client().await);
        let members = [Member::new(&client, &path, "0", 3, &ledger)];
        become_calm(&members, 3, &ledger).await;
        env.kill_owner_of(&env.client().await, &format!("{path}/members/0")).await;
        eventually("all work has begun again", async || ledger.begun() == 6).await;
        become_calm(&members, 3, &ledger).await;
    }

    /// `test_connection_loss`: kazoo's members release all. Here a lost connection moves nothing.
    async fn members_keep_their_items_over_a_lost_connection(env) {
        let (path, ledger) = (env.path("work"), Ledger::default());
        let (client, proxy) = behind_a_proxy(&env).await;
        let mut members = vec![Member::new(&client, &path, "0", 3, &ledger), Member::new(&client, &path, "1", 3, &ledger)];
        become_calm(&members, 3, &ledger).await;
        let connections = proxy.total_connections();
        proxy.reset();
        in_time(proxy.wait_for_connections(1)).await;
        eventually("the client is connected again", async || {
            proxy.total_connections() > connections && client.is_connected()
        })
        .await;
        assert_eq!(ledger.begun(), 3);
        // Members react to changes after a lost connection.
        let before = ledger.owners();
        members.push(Member::new(&client, &path, "2", 3, &ledger));
        become_calm(&members, 3, &ledger).await;
        let after = ledger.owners();
        let moved = before.iter().filter(|(item, owner)| after[*item] != **owner).count();
        assert_eq!(ledger.begun(), 3 + moved, "work has begun anew although its item has not moved");
    }

    /// `test_race_condition_new_partitioner_during_the_lock`: both clients are slow, and the second member joins while
    /// the first one acquires.
    async fn a_member_that_joins_while_another_acquires_gets_its_items(env) {
        let (path, ledger) = (env.path("work"), Ledger::default());
        let ((one, slow_one), (two, slow_two)) = (behind_a_proxy(&env).await, behind_a_proxy(&env).await);
        slow_one.latency(Duration::from_millis(300));
        slow_two.latency(Duration::from_millis(300));
        let first = Member::new(&one, &path, "0", 2, &ledger);
        in_time(first.partition.watch().wait_for(|share| share.wanted.len() == 2)).await.unwrap();
        let members = [first, Member::new(&two, &path, "1", 2, &ledger)];
        become_calm(&members, 2, &ledger).await;
    }

    /// `test_race_condition_new_partitioner_steals_the_lock`: only the first member is slow.
    async fn a_fast_member_that_joins_while_a_slow_one_acquires_gets_its_items(env) {
        let (path, ledger) = (env.path("work"), Ledger::default());
        let ((one, slow), two) = (behind_a_proxy(&env).await, env.client().await);
        slow.latency(Duration::from_millis(500));
        let first = Member::new(&one, &path, "0", 2, &ledger);
        in_time(first.partition.watch().wait_for(|share| share.wanted.len() == 2)).await.unwrap();
        let members = [first, Member::new(&two, &path, "1", 2, &ledger)];
        become_calm(&members, 2, &ledger).await;
    }
}

//! Partitions on real servers: their members join, leave, crash and lose the network, and each item has one owner at
//! most.

use std::time::Duration;

use curator_framework::{
    Acl, CuratorFramework, Error, FixedEnsembleProvider, Permission, RetryNTimes, RetryOneTime, make_path,
};
use curator_integration::env::{Env, builder, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{NodeError, Partition};
use curator_test::{FaultProxy, kill_session};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::partition_stage::{Ledger, Member, are_calm, items, kill, soon};

/// The shortest session: it is lost 1.5 s after the newest answer.
const SHORT: Duration = Duration::from_secs(2);

/// A client through a proxy, with a short session.
async fn behind_a_proxy(env: &Env) -> (CuratorFramework, FaultProxy) {
    let proxy = env.proxy();
    let options = builder(env.address()).ensemble_provider(FixedEnsembleProvider::new(proxy.connect_string()));
    let retry = RetryNTimes::new(1000, Duration::from_millis(50));
    (connected(options.session_timeout(SHORT).retry_policy(retry)).await, proxy)
}

async fn become_calm(members: &[Member], count: usize, ledger: &Ledger) {
    eventually("all items have their owners", async || are_calm(members, count, ledger)).await;
    ledger.assert_one_owner_each();
}

on_every_server! {
    /// Members join, leave and crash, and lose connections and the network, in an order that a seed decides.
    async fn an_item_has_one_owner_at_most_under_faults(env) {
        let seed: u64 = rand::random();
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let (path, ledger, count) = (env.path("work"), Ledger::default(), 12);
        let watcher = env.client().await;
        let mut places = Vec::new();
        for _ in 0..4 {
            places.push(behind_a_proxy(&env).await);
        }
        let join = |place: usize, name: u32| {
            Member::new(&places[place].0, &path, &format!("member-{place}-{name}"), count, &ledger)
        };
        let mut members: Vec<Option<Member>> = (0..4).map(|place| Some(join(place, 0))).collect();
        for turn in 1..=10 {
            let place = random.random_range(0..places.len());
            match (random.random_range(0..5), members[place].take()) {
                (0, Some(member)) => in_time(member.close()).await.unwrap(),
                (1, Some(member)) => {
                    member.run.abort();
                    assert!(in_time(member.run).await.unwrap_err().is_cancelled());
                }
                (2, Some(member)) => {
                    let (id, node) = (member.id().to_owned(), format!("{path}/members/{}", member.id()));
                    members[place] = Some(member);
                    if let Some(stat) = watcher.check_exists().for_path(&node).await.unwrap() {
                        kill(&watcher, &path, &ledger, &id, async || {
                            kill_session(env.address(), stat.ephemeral_owner).await.unwrap();
                        })
                        .await;
                    }
                }
                (3, Some(member)) => {
                    members[place] = Some(member);
                    places[place].1.partition();
                    tokio::time::sleep(SHORT).await;
                    places[place].1.repair();
                }
                (_, Some(member)) => {
                    members[place] = Some(member);
                    places[place].1.reset();
                }
                (_, None) => members[place] = Some(join(place, turn)),
            }
            tokio::time::sleep(Duration::from_millis(random.random_range(0..500))).await;
        }
        for (place, member) in members.iter_mut().enumerate() {
            member.get_or_insert_with(|| join(place, 100));
        }
        let members: Vec<Member> = members.into_iter().flatten().collect();
        become_calm(&members, count, &ledger).await;
        for member in members {
            in_time(member.close()).await.unwrap();
        }
        assert_eq!(ledger.owners().len(), 0);
        ledger.assert_one_owner_each();
    }

    async fn a_join_moves_only_the_items_of_the_new_allocation(env) {
        let (path, ledger, count) = (env.path("work"), Ledger::default(), 100);
        let mut clients = Vec::new();
        for _ in 0..5 {
            clients.push(env.client().await);
        }
        let member = |number: usize| {
            Member::new(&clients[number % clients.len()], &path, &format!("member-{number}"), count, &ledger)
        };
        let mut members: Vec<Member> = (0..9).map(member).collect();
        become_calm(&members, count, &ledger).await;
        let (before, begun) = (ledger.owners(), ledger.begun());
        members.push(member(9));
        become_calm(&members, count, &ledger).await;
        let after = ledger.owners();
        let moved = before.iter().filter(|(item, owner)| after[*item] != **owner).count();
        assert_eq!(ledger.begun() - begun, moved, "the work of an item that stays has begun anew");
        assert!((10..=30).contains(&moved), "{moved} items have moved");
        assert!(members.iter().all(|member| member.owned().len() == 10));
        // A member that leaves gives its items to the others, and moves few more.
        let begun = ledger.begun();
        in_time(members.remove(3).close()).await.unwrap();
        become_calm(&members, count, &ledger).await;
        let moved = ledger.begun() - begun;
        assert!((10..=30).contains(&moved), "{moved} items have moved");
    }

    /// The work is dropped at the deadline, ahead of the next owner, and the member joins again.
    async fn a_member_without_network_gives_its_items_up(env) {
        let (path, ledger, count) = (env.path("work"), Ledger::default(), 6);
        let (one, proxy) = behind_a_proxy(&env).await;
        let members =
            [Member::new(&one, &path, "ann", count, &ledger), Member::new(&env.client().await, &path, "bob", count, &ledger)];
        become_calm(&members, count, &ledger).await;
        proxy.partition();
        eventually("bob has all items", async || ledger.items_of("bob").len() == count).await;
        ledger.assert_one_owner_each();
        assert_eq!(members[0].owned(), [""; 0]);
        proxy.repair();
        become_calm(&members, count, &ledger).await;
    }

    async fn a_killed_session_ends_the_work_and_the_member_joins_again(env) {
        let (path, ledger, count) = (env.path("work"), Ledger::default(), 6);
        let watcher = env.client().await;
        let members = [
            Member::new(&env.client().await, &path, "ann", count, &ledger),
            Member::new(&env.client().await, &path, "bob", count, &ledger),
        ];
        become_calm(&members, count, &ledger).await;
        let (begun, of_ann) = (ledger.begun(), ledger.items_of("ann").len());
        let node = format!("{path}/members/ann");
        kill(&watcher, &path, &ledger, "ann", async || env.kill_owner_of(&watcher, &node).await).await;
        eventually("the work has begun again", async || ledger.begun() >= begun + of_ann).await;
        become_calm(&members, count, &ledger).await;
    }

    async fn members_with_different_items_share_none(env) {
        let (path, ledger) = (env.path("work"), Ledger::default());
        let mut members = Vec::new();
        for (id, set) in [("ann", &["a", "b", "c"][..]), ("bob", &["b", "c", "d", "e"]), ("cat", &["a", "e"])] {
            let client = env.client().await;
            let partition = Partition::with_options(client, &path, id, set.iter().copied(), soon()).unwrap();
            members.push(Member::run(partition, &ledger));
        }
        let have_settled = || members.iter().all(|member| member.partition.share().members == 3);
        eventually("all members are known", async || have_settled()).await;
        // Two members may want one item: one of them waits.
        eventually("all wanted items have an owner", async || {
            let wanted = members.iter().flat_map(|member| member.partition.share().wanted);
            let owners = ledger.owners();
            wanted.into_iter().all(|item| owners.contains_key(&item))
        })
        .await;
        ledger.assert_one_owner_each();
        for member in members {
            in_time(member.close()).await.unwrap();
        }
    }

    /// The second process may be the restart of the first one, so it waits.
    async fn the_second_process_with_an_id_owns_nothing(env) {
        let (path, ledger, count) = (env.path("work"), Ledger::default(), 4);
        let first = Member::new(&env.client().await, &path, "ann", count, &ledger);
        eventually("the first owns all", async || first.owned().len() == count).await;
        let second = Member::new(&env.client().await, &path, "ann", count, &ledger);
        let mut shares = second.partition.watch();
        in_time(shares.wait_for(|share| share.members == 1)).await.unwrap();
        let share = second.partition.share();
        assert!(!share.is_member && share.wanted.is_empty() && share.owned.is_empty(), "{share:?}");
        let begun = ledger.begun();
        in_time(first.close()).await.unwrap();
        in_time(shares.wait_for(|share| share.is_member && share.owned.len() == count)).await.unwrap();
        eventually("all work has begun again", async || ledger.items_of("ann").len() == count).await;
        assert_eq!(ledger.begun(), begun + count);
        ledger.assert_one_owner_each();
    }

    async fn a_missing_permission_ends_the_run(env) {
        let (path, client) = (env.path("work"), env.client().await);
        for closed in ["members", "items"] {
            let path = format!("{path}-{closed}");
            let acl = vec![Acl::new(Permission::READ, "world", "anyone")];
            let node = format!("{path}/{closed}");
            client.create().creating_parents_if_needed().with_acl(acl).for_path(&node).await.unwrap();
            let partition = Partition::with_options(client.clone(), &path, "ann", items(2), soon()).unwrap();
            let refused = in_time(partition.run(async |_| {})).await;
            assert!(matches!(refused, Err(NodeError::Framework(Error::NoAuth { .. }))), "{closed}: {refused:?}");
            assert!(partition.share().owned.is_empty());
        }
    }

    /// The transaction of an owner changes nothing once another member owns the item.
    async fn members_see_the_data_of_each_other(env) {
        let (path, client, ledger) = (env.path("work"), env.client().await, Ledger::default());
        let of = |id: &str, options| Partition::with_options(client.clone(), &path, id, items(2), options).unwrap();
        let ann = of("ann", soon().data("10.0.0.1:80"));
        assert_eq!(ann.members(), None, "no run has begun");
        let running = [Member::run(ann.clone(), &ledger), Member::run(of("bob", soon().data("10.0.0.2:80")), &ledger)];
        eventually("ann sees both", async || ann.members().is_some_and(|members| members.len() == 2)).await;
        let members = ann.members().unwrap();
        let seen: Vec<_> = members.iter().map(|member| (member.id.as_str(), member.data.as_slice())).collect();
        assert_eq!(seen, [("ann", &b"10.0.0.1:80"[..]), ("bob", b"10.0.0.2:80")]);
        for member in running {
            in_time(member.close()).await.unwrap();
        }
        assert_eq!(ann.members(), None, "the run has ended");
    }

    async fn a_transaction_needs_the_item(env) {
        let (path, client) = (env.path("work"), env.client().await);
        let (sender, mut owned) = tokio::sync::mpsc::unbounded_channel();
        let partition = Partition::with_options(client.clone(), &path, "ann", ["a"], soon()).unwrap();
        let running = partition.clone();
        let run = tokio::spawn(async move {
            let work = running.run(async |item| sender.send(item).unwrap());
            work.await
        });
        let item = in_time(owned.recv()).await.unwrap();
        assert!(item.is_held() && item.remaining() > Duration::ZERO && item.name() == "a", "{item:?}");
        let lock = client.get_children().for_path(&make_path(&path, "items/a")).await.unwrap();
        let node = make_path(&make_path(&path, "items/a"), &lock[0]);
        let stat = client.check_exists().for_path(&node).await.unwrap().unwrap();
        assert_eq!(item.token().czxid().get(), stat.czxid);
        in_time(item.verify()).await.unwrap();
        if !curator_integration::clients::is_zookeeper_async() {
            item.transaction().create(env.path("done"), "by ann").commit().await.unwrap();
        }
        // Work that has returned leaves the item idle.
        assert_eq!(partition.share().owned, ["a"]);
        in_time(partition.close()).await;
        in_time(run).await.unwrap().unwrap();
        assert!(in_time(owned.recv()).await.is_none(), "work that has returned began again");
        in_time(item.revoked()).await;
        assert!(!item.is_held());
        let refused = item.transaction().delete(env.path("done")).commit().await;
        assert!(refused.is_err(), "{refused:?}");
    }
}

#[tokio::test]
async fn arguments_that_cannot_be_nodes_are_refused() {
    let client = CuratorFramework::new_client("nowhere:1", RetryOneTime::new(Duration::ZERO)).unwrap();
    let new = |path: &str, id: &str, items: &[&str]| {
        Partition::new(client.clone(), path, id, items.iter().copied()).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(new("/work", "ann", &["a", "b"]), Ok(()));
    for (id, items, text) in [
        ("ann", &[][..], "invalid items: the set is empty"),
        ("ann", &["a", "b", "a"], "invalid items: \"a\" is repeated"),
        ("ann", &["a", ""], "invalid items: \"\": it is empty"),
        ("ann", &["a/b"], "invalid items: \"a/b\": it has a slash"),
        ("ann", &[".."], "invalid items: \"..\": it has a relative element"),
        ("ann", &["\0"], "invalid items: \"\\0\": it has a character that ZooKeeper does not allow"),
        ("", &["a"], "invalid id: \"\": it is empty"),
        ("a/b", &["a"], "invalid id: \"a/b\": it has a slash"),
    ] {
        assert_eq!(new("/work", id, items), Err(text.to_owned()), "{id:?} {items:?}");
    }
    assert!(new("work", "ann", &["a"]).is_err());
}

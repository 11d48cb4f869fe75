//! Nodes and groups under faults at exact moments: a simulated network and paused time.

use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{Acl, CreateMode, CuratorFramework, Permission};
use curator_integration::simulated_stage::{ONE, SESSION, TWO, client, play, soon, until};
use curator_recipes::{ForeignData, GroupMember, NodeState, PersistentNode, PersistentNodeOptions};
use tokio::time::{Instant, sleep, timeout};

use crate::stage::{is_standing, started_with};

const FOLDER: &str = "/test";
const PATH: &str = "/test/foo";

fn started(client: &CuratorFramework, mode: CreateMode, data: &str, options: PersistentNodeOptions) -> PersistentNode {
    started_with(client, mode, PATH, data, options)
}

fn ephemeral(client: &CuratorFramework, data: &str) -> PersistentNode {
    started(client, CreateMode::Ephemeral, data, PersistentNodeOptions::new())
}

async fn czxid(client: &CuratorFramework) -> Option<i64> {
    client.check_exists().for_path(PATH).await.unwrap().map(|stat| stat.czxid)
}

/// The task waits for a session while the connection is lost, if a change of the data was tried in the meantime.
#[test]
fn node_does_not_stand_behind_the_end_of_its_session() {
    play(1, async |ensemble| {
        let one = client(&ensemble, ONE).await;
        let node = ephemeral(&one, "one");
        soon(node.created()).await.unwrap();
        ensemble.partition(ONE);
        let setting = node.set_data("two");
        drop(timeout(SESSION * 3, setting).await);
        assert!(!is_standing(&node), "{:?}", node.state());
        ensemble.repair(ONE);
        until("it stands again", || is_standing(&node)).await;
        assert_eq!(soon(one.get_data().for_path(PATH)).await.unwrap().0, b"two");
    });
}

/// The create of the second one is answered with `NodeExists`.
#[test]
fn close_of_a_second_node_of_one_client_leaves_the_first() {
    for millis in 0..40 {
        play(millis, async |ensemble| {
            let one = client(&ensemble, ONE).await;
            let node = ephemeral(&one, "one");
            soon(node.created()).await.unwrap();
            let before = czxid(&one).await;
            let second = ephemeral(&one, "two");
            sleep(Duration::from_millis(millis)).await;
            soon(second.close()).await;
            sleep(SESSION).await;
            assert_eq!(czxid(&one).await, before, "after {millis} ms");
            let third = ephemeral(&one, "three");
            sleep(Duration::from_millis(millis)).await;
            drop(third);
            sleep(SESSION).await;
            assert_eq!(czxid(&one).await, before, "after {millis} ms");
        });
    }
}

/// The reply to the create of the second one, `NodeExists`, is lost.
#[test]
fn second_node_of_one_client_leaves_the_first_behind_a_lost_reply() {
    for millis in 0..40 {
        play(millis, async |ensemble| {
            let one = client(&ensemble, ONE).await;
            let node = ephemeral(&one, "one");
            soon(node.created()).await.unwrap();
            let before = czxid(&one).await;
            ensemble.drop_reply(ONE);
            let second = ephemeral(&one, "two");
            sleep(Duration::from_secs(1)).await;
            assert!(matches!(second.state(), NodeState::TakenBy { .. }), "{:?}", second.state());
            soon(second.close()).await;
            sleep(SESSION).await;
            assert_eq!(soon(one.get_data().for_path(PATH)).await.unwrap().0, b"one");
            assert_eq!(czxid(&one).await, before);
        });
    }
}

/// The delete was applied. The node that waits behind it is created before the delete is repeated.
#[test]
fn close_behind_a_lost_reply_leaves_the_next_node() {
    for seed in 0..40 {
        for mode in [CreateMode::Ephemeral, CreateMode::Persistent] {
            play(seed, async |ensemble| {
                let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
                let node = started(&one, mode, "one", PersistentNodeOptions::new());
                soon(node.created()).await.unwrap();
                let next = ephemeral(&one, "next");
                sleep(Duration::from_secs(1)).await;
                ensemble.drop_reply(ONE);
                let closing = node.clone();
                let closing = tokio::spawn(async move { closing.close().await });
                until("it is deleted", || ensemble.owner(PATH).is_none()).await;
                if mode == CreateMode::Persistent {
                    drop(next);
                    two.create().for_path(PATH).await.unwrap();
                } else {
                    soon(next.created()).await.unwrap();
                }
                let before = czxid(&two).await;
                sleep(SESSION * 2).await;
                assert_eq!(czxid(&two).await, before, "seed {seed}, {mode:?}");
                closing.await.unwrap();
            });
        }
    }
}

/// The budget includes the wait for the group.
#[test]
fn join_keeps_to_its_budget() {
    let budget = Duration::from_secs(1);
    for millis in 0..80 {
        play(millis, async |ensemble| {
            let one = client(&ensemble, ONE).await;
            one.create().for_path(FOLDER).await.unwrap();
            let member = GroupMember::new(one, FOLDER, "foo").unwrap();
            member.start().unwrap();
            let begun = Instant::now();
            let joining = member.clone();
            let joining = tokio::spawn(async move { (joining.join_timeout(budget).await, begun.elapsed()) });
            sleep(Duration::from_millis(millis)).await;
            ensemble.partition(ONE);
            let (joined, took) = soon(joining).await.unwrap();
            assert!(took < budget * 2, "after {millis} ms: {joined:?} took {took:?}");
        });
    }
}

/// A member leaves and joins again while the group is read because of another one.
#[test]
fn watches_of_a_group_do_not_grow_with_its_changes() {
    for seed in 0..10 {
        play(seed, async |ensemble| {
            let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
            two.create().creating_parents_if_needed().for_path(PATH).await.unwrap();
            let group = curator_integration::following::group(one.clone(), FOLDER);
            for _ in 0..100 {
                let other = "/test/other";
                let leave = two.transaction().delete(PATH).create(other, "").commit();
                leave.await.unwrap();
                two.create().for_path(PATH).await.unwrap();
                sleep(Duration::from_millis(100)).await;
                two.delete().for_path(other).await.unwrap();
                sleep(Duration::from_millis(100)).await;
            }
            assert_eq!(group.members().unwrap().len(), 1);
            // The listing, and the recursive watch.
            assert_eq!((one.watchers(), ensemble.watch_count()), (1, 2), "seed {seed}");
            soon(group.close()).await;
            assert_eq!(one.watchers(), 0);
            until("the server has no watch", || ensemble.watch_count() == 0).await;
        });
    }
}

/// The list of the parent allows no deletes, so the earlier node cannot be replaced. It goes with its session.
#[test]
fn node_that_may_not_replace_its_earlier_one_waits_for_its_end() {
    for seed in 0..10 {
        play(seed, async |ensemble| {
            let one = client(&ensemble, ONE).await;
            let list = vec![Acl::new(Permission::CREATE | Permission::READ, "world", "anyone")];
            one.create().with_acl(list).for_path(FOLDER).await.unwrap();
            let node = ephemeral(&one, "");
            let before = soon(node.created()).await.unwrap();
            ensemble.partition(ONE);
            until("the session is lost", || !is_standing(&node)).await;
            ensemble.repair(ONE);
            let again = soon(node.created()).await;
            assert!(again.is_ok_and(|again| again.session != before.session));
        });
    }
}

/// All modes, closed or dropped at each moment of the create, with a fault: nothing is left.
#[test]
fn protected_node_that_ends_at_any_moment_leaves_nothing() {
    for millis in 0..80 {
        for mode in [
            CreateMode::Persistent,
            CreateMode::PersistentSequential,
            CreateMode::Ephemeral,
            CreateMode::EphemeralSequential,
        ] {
            for fault in 0..4 {
                play(millis, async |ensemble| {
                    let one = client(&ensemble, ONE).await;
                    match fault {
                        0 => {}
                        1 => ensemble.drop_reply(ONE),
                        2 => ensemble.reset(ONE),
                        _ => ensemble.stale_reads(ONE),
                    }
                    let node = started(&one, mode, "", PersistentNodeOptions::new().protected());
                    sleep(Duration::from_millis(millis)).await;
                    if millis % 2 == 0 {
                        soon(node.close()).await;
                    }
                    drop(node);
                    sleep(SESSION * 2).await;
                    assert_eq!(ensemble.children(FOLDER), [""; 0], "{mode:?}, {fault}, after {millis} ms");
                    assert_eq!(one.watchers(), 0, "{mode:?}, {fault}, after {millis} ms");
                });
            }
        }
    }
}

/// The data of the create does not show which node is the task's any more.
#[test]
fn sequential_node_with_a_lost_reply_is_found_though_another_client_has_written_it() {
    for seed in 0..20 {
        play(seed, async |ensemble| {
            let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
            two.create().creating_parents_if_needed().for_path(&format!("{FOLDER}/other")).await.unwrap();
            ensemble.drop_reply(ONE);
            let options = PersistentNodeOptions::new().foreign_data(ForeignData::Mend);
            let node = started(&one, CreateMode::EphemeralSequential, "one", options);
            until("the create is applied", || ensemble.children(FOLDER).len() == 2).await;
            let name = ensemble.children(FOLDER).into_iter().find(|name| name != "other").unwrap();
            two.set_data().for_path(&format!("{FOLDER}/{name}"), "two").await.unwrap();
            soon(node.created()).await.unwrap();
            assert_eq!(ensemble.children(FOLDER).len(), 2, "{:?}", ensemble.children(FOLDER));
            until("the data is the task's", || is_standing(&node)).await;
            soon(node.close()).await;
            assert_eq!(ensemble.children(FOLDER), ["other"]);
        });
    }
}

/// Tasks of one client with the same name and data lose replies, and take one another's nodes.
#[test]
fn equal_sequential_nodes_behind_lost_replies_leave_no_node() {
    for seed in 0..200 {
        play(seed, async |ensemble| {
            let one = client(&ensemble, ONE).await;
            let mut nodes = Vec::new();
            for number in 0..4 {
                if number % 2 == 0 {
                    ensemble.drop_reply(ONE);
                }
                nodes.push(started(&one, CreateMode::EphemeralSequential, "", PersistentNodeOptions::new()));
                sleep(Duration::from_millis(seed % 7)).await;
            }
            for node in &nodes {
                soon(node.created()).await.unwrap();
            }
            assert_eq!(ensemble.children(FOLDER).len(), 4, "seed {seed}: {:?}", ensemble.children(FOLDER));
            for node in nodes {
                soon(node.close()).await;
            }
            assert_eq!(ensemble.children(FOLDER), [""; 0], "seed {seed}");
        });
    }
}

/// Another client has deleted the task's node. The program has made one with the same name.
#[test]
fn node_of_the_program_itself_is_not_taken_behind_a_lost_reply() {
    for seed in 0..40 {
        for is_written in [false, true] {
            play(seed, async |ensemble| {
                let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
                two.create().creating_parents_if_needed().for_path(&format!("{FOLDER}/other")).await.unwrap();
                ensemble.drop_reply(ONE);
                let node = started(&one, CreateMode::EphemeralSequential, "one", PersistentNodeOptions::new());
                until("the create is applied", || ensemble.children(FOLDER).len() == 2).await;
                let name = ensemble.children(FOLDER).into_iter().find(|name| name != "other").unwrap();
                ensemble.delete(&format!("{FOLDER}/{name}"));
                let create = one.create().with_mode(CreateMode::EphemeralSequential).with_data("one");
                let own = soon(create.for_path(PATH)).await.unwrap();
                if is_written {
                    soon(one.set_data().for_path(&own, "own")).await.unwrap();
                }
                soon(node.created()).await.unwrap();
                soon(node.close()).await;
                let left = ensemble.children(FOLDER);
                assert!(left.len() == 2 && ensemble.owner(&own).is_some(), "seed {seed}, {is_written}: {left:?}");
            });
        }
    }
}

//! The asynchronous methods of nodes, groups and partitions, dropped at every poll: what stands goes on to stand, and
//! the closes of all leave nothing.

use std::time::Duration;

use curator_framework::CreateMode;
use curator_integration::lock_stage::{QUIET, Stage, TURN, play};
use curator_recipes::{
    Group, GroupMember, MemberChange, Partition, PartitionOptions, PersistentNode, PersistentTtlNode,
};
use tokio::time::sleep;

use crate::cancellation::{Cut, at_every_cut, poll_until};
use crate::operations::{LONG, Local};

const LATENCY: Duration = Duration::from_millis(3);
const OF_NODES: [&str; 4] = [
    "PersistentNode::close",
    "PersistentNode::created",
    "PersistentNode::set_data",
    "PersistentNode::wait_for_initial_create",
];
const OF_TTL_NODES: [&str; 4] = [
    "PersistentTtlNode::close",
    "PersistentTtlNode::created",
    "PersistentTtlNode::set_data",
    "PersistentTtlNode::wait_for_initial_create",
];
const OF_GROUPS: [&str; 6] = [
    "Group::close",
    "GroupMember::close",
    "GroupMember::join",
    "GroupMember::join_within",
    "GroupMember::set_data",
    "MemberChanges::next",
];
const OF_PARTITIONS: [&str; 4] = ["OwnedItem::revoked", "Partition::close", "Partition::run", "Partition::run_until"];

pub(crate) fn methods() -> impl Iterator<Item = &'static str> {
    OF_NODES.into_iter().chain(OF_TTL_NODES).chain(OF_GROUPS).chain(OF_PARTITIONS)
}

async fn drop_of_node(method: &str, cut: Cut, what: &str) -> bool {
    let stage = Stage::new(LATENCY).await;
    let before = stage.footprint();
    let node = PersistentNode::new(stage.client.clone(), CreateMode::Ephemeral, "/node", "first").unwrap();
    node.start().unwrap();
    let ours = node.clone();
    let call: Local<()> = match method {
        "PersistentNode::close" => Box::pin(async move { ours.close().await }),
        "PersistentNode::created" => Box::pin(async move { assert_eq!(ours.created().await.unwrap().path, "/node") }),
        "PersistentNode::set_data" => Box::pin(async move { ours.set_data("second").await.unwrap() }),
        "PersistentNode::wait_for_initial_create" => Box::pin(async move {
            assert_eq!(ours.wait_for_initial_create(LONG).await.unwrap().path, "/node");
        }),
        other => panic!("{other}"),
    };
    let completes = poll_until(call, cut).await.is_some();
    sleep(QUIET).await;
    // The closing, and the write of data, go on when their futures are dropped.
    let is_called = cut != Cut::Before(0);
    let is_closed = is_called && method == "PersistentNode::close";
    assert_eq!(stage.own_nodes().len(), usize::from(!is_closed), "{what}");
    if !is_closed {
        let data = if is_called && method == "PersistentNode::set_data" { "second" } else { "first" };
        assert_eq!(stage.front.get_data().for_path("/node").await.unwrap().0, data.as_bytes(), "{what}");
    }
    node.close().await;
    drop(node);
    stage.assert_as_before(Vec::new(), &before, what).await;
    completes
}

/// The simulated server refuses nodes with a time to live, so each call ends with that refusal.
async fn drop_of_ttl_node(method: &str, cut: Cut, what: &str) -> bool {
    let stage = Stage::new(LATENCY).await;
    let before = stage.footprint();
    let node = PersistentTtlNode::new(stage.client.clone(), "/node", LONG, "first").unwrap();
    node.start().unwrap();
    let ours = node.clone();
    let call: Local<()> = match method {
        "PersistentTtlNode::close" => Box::pin(async move { ours.close().await }),
        "PersistentTtlNode::created" => Box::pin(async move { drop(ours.created().await.unwrap_err()) }),
        "PersistentTtlNode::set_data" => Box::pin(async move { drop(ours.set_data("second").await.unwrap_err()) }),
        "PersistentTtlNode::wait_for_initial_create" => {
            Box::pin(async move { drop(ours.wait_for_initial_create(LONG).await.unwrap_err()) })
        }
        other => panic!("{other}"),
    };
    let completes = poll_until(call, cut).await.is_some();
    sleep(QUIET).await;
    let is_set = method == "PersistentTtlNode::set_data" && cut != Cut::Before(0);
    assert_eq!(node.data(), if is_set { b"second".as_slice() } else { b"first" }, "{what}");
    node.close().await;
    drop(node);
    stage.assert_as_before(Vec::new(), &before, what).await;
    completes
}

async fn drop_of_group(method: &str, cut: Cut, what: &str) -> bool {
    let stage = Stage::new(LATENCY).await;
    let before = stage.footprint();
    let group = Group::observe(stage.front.clone(), "/group").unwrap();
    let member = GroupMember::new(stage.client.clone(), "/group", "ours").unwrap();
    member.start().unwrap();
    let (ours, followed, mut changes) = (member.clone(), group.clone(), group.changes());
    let call: Local<()> = match method {
        "Group::close" => Box::pin(async move { followed.close().await }),
        "GroupMember::close" => Box::pin(async move { ours.close().await }),
        "GroupMember::join" => Box::pin(async move { assert_eq!(ours.join().await.unwrap().id, "ours") }),
        "GroupMember::join_within" => {
            Box::pin(async move { assert_eq!(ours.join_within(LONG).await.unwrap().id, "ours") })
        }
        "GroupMember::set_data" => Box::pin(async move { ours.set_data("second").await.unwrap() }),
        "MemberChanges::next" => {
            Box::pin(async move { assert!(matches!(changes.next().await, Some(MemberChange::Joined(_)))) })
        }
        other => panic!("{other}"),
    };
    let completes = poll_until(call, cut).await.is_some();
    sleep(QUIET).await;
    let is_called = cut != Cut::Before(0);
    let has_left = is_called && method == "GroupMember::close";
    assert_eq!(stage.own_nodes().len(), usize::from(!has_left), "{what}");
    let followed = group.members().map(|members| members.contains("ours"));
    let is_followed = (!is_called || method != "Group::close").then_some(!has_left);
    assert_eq!(followed, is_followed, "{what}");
    futures_util::future::join(member.close(), group.close()).await;
    drop((member, group));
    stage.ensemble.delete("/group");
    stage.assert_as_before(Vec::new(), &before, what).await;
    completes
}

async fn drop_of_partition(method: &str, cut: Cut, what: &str) -> bool {
    let stage = Stage::new(LATENCY).await;
    let before = stage.footprint();
    let options = PartitionOptions::new().settle(Duration::ZERO).grace(Duration::ZERO);
    let partition = Partition::with_options(stage.client.clone(), "/work", "ours", ["a"], options).unwrap();
    let (ours, closed) = (partition.clone(), partition.clone());
    let call: Local<()> = if method == "Partition::run" {
        tokio::spawn(async move {
            sleep(TURN).await;
            closed.close().await;
        });
        Box::pin(async move { ours.run(|_| std::future::pending()).await.unwrap() })
    } else if method == "Partition::run_until" {
        Box::pin(async move { ours.run_until(sleep(TURN), |_| std::future::pending()).await.unwrap() })
    } else {
        let (sender, mut items) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            let work = |item| {
                sender.send(item).unwrap();
                std::future::pending()
            };
            ours.run(work).await.unwrap();
        });
        let item = items.recv().await.unwrap();
        match method {
            "OwnedItem::revoked" => {
                tokio::spawn(async move {
                    sleep(TURN).await;
                    closed.close().await;
                });
                Box::pin(async move { item.revoked().await })
            }
            "Partition::close" => Box::pin(async move { closed.close().await }),
            other => panic!("{other}"),
        }
    };
    let completes = poll_until(call, cut).await.is_some();
    // Until the spawned task has closed the partition.
    sleep(TURN * 2).await;
    let is_closed = method != "Partition::close" || cut != Cut::Before(0);
    assert_eq!(stage.own_nodes().len(), if is_closed { 0 } else { 2 }, "{what}");
    partition.close().await;
    sleep(QUIET).await;
    drop(partition);
    stage.ensemble.delete("/work");
    stage.assert_as_before(Vec::new(), &before, what).await;
    completes
}

#[test]
fn dropped_call_of_a_node_leaves_it_standing_and_after_the_close_nothing() {
    for method in OF_NODES {
        at_every_cut(method, 1, |cut, what| play(drop_of_node(method, cut, what)));
    }
}

#[test]
fn dropped_call_of_a_node_with_a_time_to_live_leaves_nothing_after_the_close() {
    for method in OF_TTL_NODES {
        at_every_cut(method, 1, |cut, what| play(drop_of_ttl_node(method, cut, what)));
    }
}

#[test]
fn dropped_call_of_a_member_or_a_group_leaves_both_and_after_the_closes_nothing() {
    for method in OF_GROUPS {
        at_every_cut(method, 1, |cut, what| play(drop_of_group(method, cut, what)));
    }
}

#[test]
fn dropped_call_of_a_partition_leaves_nothing_after_its_close() {
    for method in OF_PARTITIONS {
        at_every_cut(method, 1, |cut, what| play(drop_of_partition(method, cut, what)));
    }
}

//! The asynchronous methods of nodes, groups and partitions, dropped at every poll: what stands goes on to stand, and
//! the closes of all leave nothing.

use std::time::Duration;

use curator_integration::cuts::{Cut, poll_until};
use curator_integration::lock_stage::{QUIET, Stage, TURN, play};
use curator_integration::operations::{LONG, Local};
use curator_recipes::{
    GroupMember, LossReason, MemberChange, Partition, PartitionOptions, PersistentNode, PersistentTtlNode,
};
use tokio::time::sleep;

use crate::{LATENCY, Row};

const OF_NODES: [&str; 5] = [
    "PersistentNode::close",
    "PersistentNode::close_all",
    "PersistentNode::created",
    "PersistentNode::set_data",
    "PersistentNode::created_timeout",
];
const OF_TTL_NODES: [&str; 4] = [
    "PersistentTtlNode::close",
    "PersistentTtlNode::created",
    "PersistentTtlNode::set_data",
    "PersistentTtlNode::created_timeout",
];
const OF_GROUPS: [&str; 8] = [
    "Group::close",
    "Group::initialized",
    "Group::initialized_timeout",
    "GroupMember::close",
    "GroupMember::join",
    "GroupMember::join_timeout",
    "GroupMember::set_data",
    "Changes<MemberChange>::recv",
];
const OF_PARTITIONS: [&str; 6] = [
    "OwnedItem::lost",
    "OwnedItem::revoked",
    "OwnedItem::verify",
    "Partition::close",
    "Partition::run",
    "Partition::run_until",
];

async fn drop_of_node(method: &str, cut: Cut, what: &str) -> bool {
    let stage = Stage::new(LATENCY).await;
    let before = stage.footprint();
    let node = PersistentNode::new(stage.client.clone(), "/node", "first").unwrap();
    node.start().unwrap();
    let ours = node.clone();
    let call: Local<()> = match method {
        "PersistentNode::close" => Box::pin(async move { ours.close().await }),
        "PersistentNode::close_all" => Box::pin(async move { PersistentNode::close_all([&ours]).await }),
        "PersistentNode::created" => Box::pin(async move { assert_eq!(ours.created().await.unwrap().path, "/node") }),
        "PersistentNode::set_data" => Box::pin(async move { ours.set_data("second").await.unwrap() }),
        "PersistentNode::created_timeout" => Box::pin(async move {
            assert_eq!(ours.created_timeout(LONG).await.unwrap().unwrap().path, "/node");
        }),
        other => panic!("{other}"),
    };
    let completes = poll_until(call, cut).await.is_some();
    sleep(QUIET).await;
    // The closing, and the write of data, go on when their futures are dropped.
    let is_called = cut != Cut::Before(0);
    let is_closed = is_called && method.starts_with("PersistentNode::close");
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
        "PersistentTtlNode::created_timeout" => {
            Box::pin(async move { drop(ours.created_timeout(LONG).await.unwrap_err()) })
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
    let group = curator_integration::following::group(stage.front.clone(), "/group");
    let member = GroupMember::new(stage.client.clone(), "/group", "ours").unwrap();
    member.start().unwrap();
    let (ours, followed, mut changes) = (member.clone(), group.clone(), group.changes());
    let call: Local<()> = match method {
        "Group::close" => Box::pin(async move { followed.close().await }),
        "Group::initialized" => Box::pin(async move { drop(followed.initialized().await.unwrap()) }),
        "Group::initialized_timeout" => {
            Box::pin(async move { drop(followed.initialized_timeout(LONG).await.unwrap().unwrap()) })
        }
        "GroupMember::close" => Box::pin(async move { ours.close().await }),
        "GroupMember::join" => Box::pin(async move { assert_eq!(ours.join().await.unwrap().id, "ours") }),
        "GroupMember::join_timeout" => {
            Box::pin(async move { assert_eq!(ours.join_timeout(LONG).await.unwrap().unwrap().id, "ours") })
        }
        "GroupMember::set_data" => Box::pin(async move { ours.set_data("second").await.unwrap() }),
        "Changes<MemberChange>::recv" => {
            Box::pin(async move { assert!(matches!(changes.recv().await, Some(MemberChange::Joined(_)))) })
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
                // The item that follows a lost one has no receiver.
                sender.send(item).ok();
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
            "OwnedItem::lost" => {
                let nodes = stage.own_nodes().into_iter();
                let node = nodes.into_iter().find(|node| node.starts_with("/work/items")).unwrap();
                let ensemble = stage.ensemble.clone();
                tokio::spawn(async move {
                    sleep(TURN).await;
                    ensemble.delete(&node);
                });
                Box::pin(async move { assert_eq!(item.lost().await, LossReason::NodeDeleted) })
            }
            "OwnedItem::verify" => Box::pin(async move { item.verify().await.unwrap() }),
            "Partition::close" => Box::pin(async move { closed.close().await }),
            other => panic!("{other}"),
        }
    };
    let completes = poll_until(call, cut).await.is_some();
    // Until the spawned task has closed the partition.
    sleep(TURN * 2).await;
    let is_closed = match method {
        "Partition::close" => cut != Cut::Before(0),
        // A lost item is acquired again.
        method => !["OwnedItem::lost", "OwnedItem::verify"].contains(&method),
    };
    assert_eq!(stage.own_nodes().len(), if is_closed { 0 } else { 2 }, "{what}");
    partition.close().await;
    sleep(QUIET).await;
    drop(partition);
    stage.ensemble.delete("/work");
    stage.assert_as_before(Vec::new(), &before, what).await;
    completes
}

pub(crate) fn nodes() -> Vec<Row> {
    let row = |method| Row::new(method, "", 1, move |cut, what| play(drop_of_node(method, cut, what)));
    OF_NODES.map(row).into()
}

pub(crate) fn ttl_nodes() -> Vec<Row> {
    let row = |method| Row::new(method, "", 1, move |cut, what| play(drop_of_ttl_node(method, cut, what)));
    OF_TTL_NODES.map(row).into()
}

pub(crate) fn groups() -> Vec<Row> {
    let row = |method| Row::new(method, "", 1, move |cut, what| play(drop_of_group(method, cut, what)));
    OF_GROUPS.map(row).into()
}

pub(crate) fn partitions() -> Vec<Row> {
    let row = |method| Row::new(method, "", 1, move |cut, what| play(drop_of_partition(method, cut, what)));
    OF_PARTITIONS.map(row).into()
}

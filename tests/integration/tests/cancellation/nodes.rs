//! The asynchronous methods of nodes, groups and partitions, dropped at every poll: existing nodes stay, and
//! the closes of all leave nothing.

use std::time::Duration;

use curator_integration::following::group;
use curator_integration::lock_stage::{QUIET, TURN};
use curator_integration::operations::LONG;
use curator_recipes::{
    Changes, Group, GroupMember, LossReason, MemberChange, OwnedItem, Partition, PartitionOptions, PersistentNode,
    PersistentTtlNode,
};
use tokio::time::sleep;

use crate::Row;

/// A method of a node, and the data of the node after the call. `None` if the node is gone.
fn node(method: &'static str, behind: Option<&'static str>, call: impl AsyncFn(&PersistentNode) + 'static) -> Row {
    Row::new(method, async move |scene| {
        let node = PersistentNode::new(scene.stage.client.clone(), "/node", "first").unwrap();
        node.start().unwrap();
        scene.call(call(&node)).await;
        sleep(QUIET).await;
        // The closing, and the write of data, continue when their futures are dropped.
        let data = if scene.is_called() { behind } else { Some("first") };
        assert_eq!(scene.stage.own_nodes().len(), usize::from(data.is_some()));
        if let Some(data) = data {
            assert_eq!(scene.stage.front.get_data().for_path("/node").await.unwrap().0, data.as_bytes());
        }
        node.close().await;
    })
}

pub(crate) fn nodes() -> Vec<Row> {
    vec![
        node("PersistentNode::close", None, async |node| node.close().await),
        node("PersistentNode::close_all", None, async |node| PersistentNode::close_all([node]).await),
        node("PersistentNode::created", Some("first"), async |node| {
            assert_eq!(node.created().await.unwrap().path, "/node");
        }),
        node("PersistentNode::created_timeout", Some("first"), async |node| {
            assert_eq!(node.created_timeout(LONG).await.unwrap().unwrap().path, "/node");
        }),
        node("PersistentNode::delete", None, async |node| node.delete().await.unwrap()),
        node("PersistentNode::set_data", Some("second"), async |node| node.set_data("second").await.unwrap()),
    ]
}

/// A method of a node with a time to live, and the data after the call. The simulated server refuses such nodes, so
/// each call ends with that refusal.
fn ttl_node(method: &'static str, behind: &'static str, call: impl AsyncFn(&PersistentTtlNode) + 'static) -> Row {
    Row::new(method, async move |scene| {
        let node = PersistentTtlNode::new(scene.stage.client.clone(), "/node", LONG, "first").unwrap();
        node.start().unwrap();
        scene.call(call(&node)).await;
        sleep(QUIET).await;
        assert_eq!(node.data(), if scene.is_called() { behind } else { "first" }.as_bytes());
        node.close().await;
    })
}

pub(crate) fn ttl_nodes() -> Vec<Row> {
    vec![
        ttl_node("PersistentTtlNode::close", "first", async |node| node.close().await),
        ttl_node("PersistentTtlNode::created", "first", async |node| drop(node.created().await.unwrap_err())),
        ttl_node("PersistentTtlNode::created_timeout", "first", async |node| {
            drop(node.created_timeout(LONG).await.unwrap_err());
        }),
        ttl_node("PersistentTtlNode::set_data", "second", async |node| {
            drop(node.set_data("second").await.unwrap_err());
        }),
    ]
}

/// A member of a group, and a follower of it.
struct Both {
    member: GroupMember,
    group: Group,
    changes: Changes<MemberChange>,
}

/// A method of a member or a group, and whether the follower knows the member after the call.
fn of_group(method: &'static str, behind: Option<bool>, call: impl AsyncFn(&mut Both) + 'static) -> Row {
    Row::new(method, async move |scene| {
        let group = group(scene.stage.front.clone(), "/group");
        let member = GroupMember::new(scene.stage.client.clone(), "/group", "ours").unwrap();
        member.start().unwrap();
        let mut both = Both { member, changes: group.changes(), group };
        scene.call(call(&mut both)).await;
        sleep(QUIET).await;
        let behind = if scene.is_called() { behind } else { Some(true) };
        assert_eq!(scene.stage.own_nodes().len(), usize::from(behind != Some(false)));
        assert_eq!(both.group.members().map(|members| members.contains("ours")), behind);
        tokio::join!(both.member.close(), both.group.close());
        drop(both);
        scene.stage.ensemble.delete("/group");
    })
}

pub(crate) fn groups() -> Vec<Row> {
    vec![
        of_group("Changes<MemberChange>::recv", Some(true), async |both| {
            assert!(matches!(both.changes.recv().await, Some(MemberChange::Joined(_))));
        }),
        of_group("Group::close", None, async |both| both.group.close().await),
        of_group("Group::initialized", Some(true), async |both| drop(both.group.initialized().await.unwrap())),
        of_group("Group::initialized_timeout", Some(true), async |both| {
            drop(both.group.initialized_timeout(LONG).await.unwrap().unwrap());
        }),
        of_group("GroupMember::close", Some(false), async |both| both.member.close().await),
        of_group("GroupMember::join", Some(true), async |both| {
            assert_eq!(both.member.join().await.unwrap().id, "ours");
        }),
        of_group("GroupMember::join_timeout", Some(true), async |both| {
            assert_eq!(both.member.join_timeout(LONG).await.unwrap().unwrap().id, "ours");
        }),
        of_group("GroupMember::set_data", Some(true), async |both| both.member.set_data("second").await.unwrap()),
    ]
}

/// The state of a partition before a call, and the event in the turn of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Setup {
    /// It does not run.
    Idle,
    /// As `Idle`, and it is closed in the turn.
    IdleForATurn,
    /// It runs, and owns the item.
    Runs,
    /// As `Runs`, and it is closed in the turn.
    RunsForATurn,
    /// As `Runs`, and the item is deleted in the turn. The partition acquires it again.
    LosesTheItem,
}

fn partition(method: &'static str, setup: Setup, call: impl AsyncFn(&Partition, Option<OwnedItem>) + 'static) -> Row {
    Row::new(method, async move |scene| {
        let options = PartitionOptions::new().settle(Duration::ZERO).grace(Duration::ZERO);
        let client = scene.stage.client.clone();
        let partition = Partition::with_options(client, "/work", "ours", ["a"], options).unwrap();
        let mut item = None;
        if !matches!(setup, Setup::Idle | Setup::IdleForATurn) {
            let (sender, mut items) = tokio::sync::mpsc::unbounded_channel();
            let runs = partition.clone();
            tokio::spawn(async move {
                let work = |item| {
                    // The item that follows a lost one has no receiver.
                    sender.send(item).ok();
                    std::future::pending()
                };
                runs.run(work).await.unwrap();
            });
            item = items.recv().await;
        }
        let (closed, ensemble) = (partition.clone(), scene.stage.ensemble.clone());
        let deleted = scene.stage.own_nodes().into_iter().find(|node| node.starts_with("/work/items"));
        match setup {
            Setup::Idle | Setup::Runs => {}
            Setup::IdleForATurn | Setup::RunsForATurn => scene.in_turn(async move { closed.close().await }),
            Setup::LosesTheItem => scene.in_turn(async move { ensemble.delete(&deleted.unwrap()) }),
        }
        scene.call(call(&partition, item)).await;
        // Until it is closed.
        sleep(TURN * 2).await;
        let stands = match setup {
            Setup::Runs => method != "Partition::close" || !scene.is_called(),
            setup => setup == Setup::LosesTheItem,
        };
        assert_eq!(scene.stage.own_nodes().len(), if stands { 2 } else { 0 });
        partition.close().await;
        sleep(QUIET).await;
        drop(partition);
        scene.stage.ensemble.delete("/work");
    })
}

pub(crate) fn partitions() -> Vec<Row> {
    use Setup::{Idle, IdleForATurn, LosesTheItem, Runs, RunsForATurn};
    vec![
        partition("OwnedItem::lost", LosesTheItem, async |_, item| {
            assert_eq!(item.unwrap().lost().await, LossReason::NodeDeleted);
        }),
        partition("OwnedItem::revoked", RunsForATurn, async |_, item| item.unwrap().revoked().await),
        partition("OwnedItem::verify", Runs, async |_, item| item.unwrap().verify().await.unwrap()),
        partition("Partition::close", Runs, async |partition, _| partition.close().await),
        partition("Partition::run", IdleForATurn, async |partition, _| {
            partition.run(|_| std::future::pending()).await.unwrap();
        }),
        partition("Partition::run_until", Idle, async |partition, _| {
            partition.run_until(sleep(TURN), |_| std::future::pending()).await.unwrap();
        }),
    ]
}

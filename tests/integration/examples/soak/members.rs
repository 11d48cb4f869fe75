//! Objects that exist for the whole soak: caches, nodes, members, latches and shared values.

use curator_framework::{CreateMode, CuratorFramework, SessionEnd};
use curator_integration::caches::Caches;
use curator_integration::env::{children, eventually, in_time};
use curator_recipes::{GroupMember, LeaderLatch, PersistentNode, PersistentNodeOptions, SharedValue};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::ground::{CLIENTS, Ground};
use crate::tally::{Slot, Tally};

pub(crate) const TREE: &str = "/soak/tree";
pub(crate) const VALUE: &str = "/soak/value";

struct Member {
    caches: Caches,
    nodes: [PersistentNode; 2],
    member: GroupMember,
    latch: LeaderLatch,
    value: SharedValue,
    tasks: [JoinHandle<()>; 2],
}

pub(crate) struct Members(Vec<Member>);

impl Drop for Member {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Members {
    pub(crate) async fn start(ground: &Ground, tally: &Arc<Tally>) -> Self {
        let (mut all, slot) = (Vec::new(), Arc::new(Slot::default()));
        ground.fresh().create().creating_parents_if_needed().for_path(TREE).await.unwrap();
        for (number, client) in ground.clients().iter().enumerate() {
            let nodes = [CreateMode::Ephemeral, CreateMode::Persistent].map(|mode| {
                let path = format!("/soak/nodes/{mode:?}-{number}");
                let options = PersistentNodeOptions::new().mode(mode);
                PersistentNode::with_options(client.clone(), path, number.to_string(), options).unwrap()
            });
            nodes.iter().for_each(|node| node.start().unwrap());
            let member = GroupMember::new(client.clone(), "/soak/group", number.to_string()).unwrap();
            member.start().unwrap();
            let latch = LeaderLatch::new(client.clone(), "/soak/election").unwrap();
            latch.start().unwrap();
            let value = SharedValue::new(client.clone(), VALUE, "").unwrap();
            value.start().unwrap();
            in_time(value.initialized()).await.unwrap();
            let tasks = [
                tokio::spawn(lead(latch.clone(), Arc::clone(&slot), Arc::clone(tally))),
                tokio::spawn(follow_sessions(client.clone(), Arc::clone(tally))),
            ];
            let caches = Caches::start(client, TREE, &format!("{TREE}/0")).await;
            all.push(Member { caches, nodes, member, latch, value, tasks });
        }
        Self(all)
    }

    /// Checks in the calm that all agree with the server.
    pub(crate) async fn are_well(&self, ground: &Ground) {
        let fresh = ground.fresh();
        for Member { caches, nodes, member, value, .. } in &self.0 {
            caches.agree(fresh).await;
            for node in nodes {
                eventually("a node exists", async || {
                    let data = fresh.get_data().for_path(node.path()).await;
                    data.is_ok_and(|(data, _)| data == node.data())
                })
                .await;
            }
            eventually("all are members", async || member.members().is_some_and(|all| all.len() == CLIENTS)).await;
            eventually("the shared value is the server's", async || {
                value.value() == fresh.get_data().for_path(VALUE).await.unwrap().0
            })
            .await;
        }
        assert_eq!(children(fresh, "/soak/group").await.len(), CLIENTS);
        eventually("one candidate leads", async || {
            let leaders = self.0.iter().filter(|member| member.latch.has_leadership()).count();
            leaders == 1 && children(fresh, "/soak/election").await.len() == CLIENTS
        })
        .await;
    }
}

/// Leads now and then, until the task is aborted.
async fn lead(latch: LeaderLatch, slot: Arc<Slot>, tally: Arc<Tally>) {
    loop {
        let leadership = latch.leading().await.unwrap();
        let term = leadership.clone();
        slot.enter("terms of latches", &tally, move || term.is_held());
        tokio::select! {
            _ = leadership.lost() => {}
            () = sleep(Duration::from_secs(3)) => {
                tally.take("resignations", latch.resign().await, curator_recipes::LeaderError::is_retryable);
            }
        }
    }
}

/// Counts the ends of sessions. The servers never lose a write.
async fn follow_sessions(client: CuratorFramework, tally: Arc<Tally>) {
    loop {
        match client.session().await {
            Ok(session) => {
                if session.ended().await == SessionEnd::RolledBack {
                    tally.wrong("a session has ended as if the servers had been restored");
                }
                tally.add("ends of sessions", 1);
            }
            Err(_not_connected) => sleep(Duration::from_millis(100)).await,
        }
    }
}

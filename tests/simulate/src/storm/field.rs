//! The nodes that a storm hits, with the record of them.

use std::fmt;
use std::time::Duration;

use curator_test::{Backup, SimulatedEnsemble};

use super::weather::LONGEST_PAUSE;
use crate::scribe::{Book, Scribe};

/// The record of nodes that a storm hits.
pub(super) trait Subject: Book {
    /// Returns the nodes, each with its owner.
    fn nodes(field: &Field<Self>) -> Vec<(String, i64)> {
        let below = |part: &String| {
            let children = field.ensemble.children(part);
            children.into_iter().map(|node| format!("{part}/{node}")).collect::<Vec<_>>()
        };
        let nodes = field.parts.iter().flat_map(below).filter(|path| !field.parts.contains(path));
        nodes.filter_map(|path| Some((path.clone(), field.ensemble.owner(&path)?))).collect()
    }

    /// Returns the nodes that clients cannot read now and then.
    fn hard_nodes(field: &Field<Self>) -> Vec<String> {
        field.parts.iter().filter(|part| field.ensemble.owner(part).is_some()).cloned().collect()
    }

    /// Records that a node cannot be read for a time.
    fn hide(field: &Field<Self>, what: impl fmt::Display, lasting: Duration) {
        field.scribe.fault(what, lasting + LONGEST_PAUSE);
    }

    /// Restarts all servers without their data.
    fn lose_data(field: &Field<Self>) {
        field.ensemble.restart_empty();
    }
}

/// The nodes that a storm hits.
#[derive(Debug)]
pub(super) struct Field<B> {
    pub(super) scribe: Scribe<B>,
    pub(super) ensemble: SimulatedEnsemble,
    /// The parents of the nodes.
    pub(super) parts: Vec<String>,
    /// The nodes of a parent are a queue. A contender waits behind the first one.
    pub(super) is_queue: bool,
}

impl<B> Clone for Field<B> {
    fn clone(&self) -> Self {
        let Self { scribe, ensemble, parts, is_queue } = self;
        Self { scribe: scribe.clone(), ensemble: ensemble.clone(), parts: parts.clone(), is_queue: *is_queue }
    }
}

impl<B: Subject> Field<B> {
    /// Returns the nodes, each with its owner.
    pub(super) fn nodes(&self) -> Vec<(String, i64)> {
        B::nodes(self)
    }

    /// Returns the nodes that wait behind another contender now.
    fn waiting(&self, nodes: &[String]) -> Vec<String> {
        // Near the end of the sequence numbers these do not tell the order.
        let waits = |node: &&String| {
            let (parent, _) = node.rsplit_once('/').unwrap_or_default();
            let is_far = number(node).is_some_and(|number| (0..i64::from(i32::MAX / 2)).contains(&number));
            is_far && queue(&self.ensemble, parent).first() != Some(node)
        };
        nodes.iter().filter(|_| self.is_queue).filter(waits).cloned().collect()
    }

    fn rule_out(&self, nodes: Vec<String>) {
        self.scribe.read(|book| book.rule_out(nodes));
    }

    /// Records that the servers are about to take nodes away, with those that wait.
    pub(super) fn take_away(&self, nodes: Vec<String>) {
        self.rule_out(self.waiting(&nodes));
        self.scribe.revoke(nodes);
    }

    /// Restarts all servers with the nodes and sessions of a backup.
    pub(super) fn restore(&self, backup: &Backup) {
        let before = self.nodes();
        // In the queues of the backup others may be ahead.
        let waiting = self.waiting(&before.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>());
        self.ensemble.restore(backup);
        let left = self.nodes();
        self.scribe.read(|book| book.exist_again(left.iter().map(|(path, _)| path)));
        let gone: Vec<_> = before.into_iter().filter(|node| !left.contains(node)).map(|(path, _)| path).collect();
        self.rule_out(waiting.into_iter().filter(|path| gone.contains(path)).collect());
        self.scribe.revoke(gone);
    }

    /// Deletes a node as an administrator would.
    pub(super) fn delete(&self, node: &str) {
        self.take_away(vec![node.to_owned()]);
        self.ensemble.delete(node);
    }

    /// Ends a session on the servers.
    pub(super) fn kill(&self, session: i64) {
        let its = self.nodes().into_iter().filter(|(_, owner)| *owner == session);
        self.take_away(its.map(|(path, _)| path).collect());
        self.ensemble.kill_session(session);
    }
}

/// The nodes below a parent, in the order of their numbers.
pub(super) fn queue(ensemble: &SimulatedEnsemble, parent: &str) -> Vec<String> {
    let mut nodes: Vec<_> = ensemble.children(parent).iter().map(|node| format!("{parent}/{node}")).collect();
    // A long child has no number.
    nodes.retain(|node| number(node).is_some());
    nodes.sort_by_key(|node| number(node));
    nodes
}

fn number(node: &str) -> Option<i64> {
    node.rsplit_once('-')?.1.parse().ok()
}

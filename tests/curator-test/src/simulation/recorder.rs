//! The record of the changes at the leader.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::nodes::{Change, Node};
use crate::server::simulated::SimulatedServer;

/// Compares the nodes below a root behind each transaction.
#[derive(Debug)]
pub(super) struct Recorder {
    root: String,
    /// The newest transaction that is recorded; `None` before the first comparison.
    zxid: Option<i64>,
    known: BTreeMap<String, Node>,
    changes: Vec<(Duration, Change)>,
}

impl Recorder {
    pub(super) fn new(root: &str) -> Self {
        Self { root: root.to_owned(), zxid: None, known: BTreeMap::new(), changes: Vec::new() }
    }

    pub(super) fn take(&mut self) -> Vec<(Duration, Change)> {
        std::mem::take(&mut self.changes)
    }

    pub(super) fn record(&mut self, server: &SimulatedServer, now: Duration) {
        if self.zxid == Some(server.zxid()) {
            return;
        }
        self.zxid = Some(server.zxid());
        let present = server.below(&self.root);
        let is_same = |path: &String, node: &Node| present.get(path).is_some_and(|newer| newer.czxid == node.czxid);
        let gone = self.known.iter().filter(|(path, node)| !is_same(path, node));
        let deleted = gone.map(|(path, _)| Change::Deleted { path: path.clone() });
        let changed = present.iter().filter_map(|(path, node)| match self.known.get(path) {
            Some(before) if before == node => None,
            Some(before) if before.czxid == node.czxid => {
                Some(Change::DataChanged { path: path.clone(), data: node.data.clone() })
            }
            _ => Some(Change::Created { path: path.clone(), node: node.clone() }),
        });
        self.changes.extend(deleted.chain(changed).map(|change| (now, change)));
        self.known = present;
    }
}

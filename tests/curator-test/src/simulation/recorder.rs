//! The record of the changes at the leader.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::server::simulated::{SimulatedNode, SimulatedServer};
use crate::{caches, nodes};

/// Compares the nodes below a root behind each transaction.
#[derive(Debug)]
pub(super) struct Recorder {
    root: String,
    /// The newest transaction that is recorded; `None` before the first comparison.
    zxid: Option<i64>,
    known: BTreeMap<String, SimulatedNode>,
    changes: Vec<(Duration, nodes::Change)>,
    /// The same changes, for the checker of caches.
    events: Vec<(Duration, caches::Event)>,
}

impl Recorder {
    pub(super) fn new(root: &str) -> Self {
        Self { root: root.to_owned(), zxid: None, known: BTreeMap::new(), changes: Vec::new(), events: Vec::new() }
    }

    pub(super) fn take(&mut self) -> Vec<(Duration, nodes::Change)> {
        std::mem::take(&mut self.changes)
    }

    pub(super) fn take_events(&mut self) -> Vec<(Duration, caches::Event)> {
        std::mem::take(&mut self.events)
    }

    pub(super) fn record(&mut self, server: &SimulatedServer, now: Duration) {
        if self.zxid == Some(server.zxid()) {
            return;
        }
        if self.zxid.is_some_and(|before| before > server.zxid()) {
            self.events.push((now, caches::Event::Emptied));
            let gone = std::mem::take(&mut self.known);
            self.changes.extend(gone.into_keys().map(|path| (now, nodes::Change::Deleted { path })));
        }
        self.zxid = Some(server.zxid());
        let present = server.below(&self.root);
        let is_same = |path: &String, node: &SimulatedNode| {
            present.get(path).is_some_and(|newer| newer.stat.czxid == node.stat.czxid)
        };
        let known = std::mem::take(&mut self.known);
        for (path, _) in known.iter().filter(|(path, node)| !is_same(path, node)) {
            self.note(now, nodes::Change::Deleted { path: path.clone() }, path, None);
        }
        for (path, node) in &present {
            let change = match known.get(path) {
                Some(before) if before.stat.mzxid == node.stat.mzxid => continue,
                Some(before) if before.stat.czxid == node.stat.czxid => {
                    nodes::Change::DataChanged { path: path.clone(), data: node.data.clone() }
                }
                _ => {
                    let SimulatedNode { stat, data } = node.clone();
                    let node = nodes::Node { czxid: stat.czxid, session: stat.ephemeral_owner, data };
                    nodes::Change::Created { path: path.clone(), node }
                }
            };
            self.note(now, change, path, Some(node));
        }
        self.known = present;
    }

    fn note(&mut self, now: Duration, change: nodes::Change, path: &str, node: Option<&SimulatedNode>) {
        let node = node.map(|SimulatedNode { stat, data }| caches::Node {
            czxid: stat.czxid,
            mzxid: stat.mzxid,
            version: stat.version,
            data: Some(data.clone()),
        });
        let zxid = self.zxid.unwrap_or_default();
        self.changes.push((now, change));
        self.events.push((now, caches::Event::Server(caches::Change { zxid, path: path.to_owned(), node })));
    }
}

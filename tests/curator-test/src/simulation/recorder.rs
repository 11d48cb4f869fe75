//! The record of the changes at the leader.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::server::simulated::{SimulatedNode, SimulatedServer};
use crate::{nodes, versions};

/// Compares the nodes below a root behind each transaction.
#[derive(Debug)]
pub(super) struct Recorder {
    root: String,
    /// The newest transaction that is recorded; `None` before the first comparison.
    zxid: Option<i64>,
    known: BTreeMap<String, SimulatedNode>,
    /// The nodes of which the servers do not answer all reads of anonymous clients.
    refused: BTreeMap<String, versions::Access>,
    /// The longest reply that these clients accept.
    max_reply: usize,
    changes: Vec<(Duration, nodes::Change)>,
    /// The same changes, with the versions of the nodes.
    versions: Vec<(Duration, versions::Event)>,
}

impl Recorder {
    pub(super) fn new(root: &str, max_reply: usize) -> Self {
        let (known, refused) = (BTreeMap::new(), BTreeMap::new());
        Self { root: root.to_owned(), zxid: None, known, refused, max_reply, changes: Vec::new(), versions: Vec::new() }
    }

    pub(super) fn take(&mut self) -> Vec<(Duration, nodes::Change)> {
        std::mem::take(&mut self.changes)
    }

    pub(super) fn take_versions(&mut self) -> Vec<(Duration, versions::Event)> {
        std::mem::take(&mut self.versions)
    }

    pub(super) fn record(&mut self, server: &SimulatedServer, now: Duration) {
        if self.zxid == Some(server.zxid()) {
            return;
        }
        if self.zxid.is_some_and(|before| before > server.zxid()) {
            self.restarted(server, now);
        }
        self.zxid = Some(server.zxid());
        let present = server.below(&self.root);
        let is_same = |path: &String, node: &SimulatedNode| {
            present.get(path).is_some_and(|newer| newer.stat.czxid == node.stat.czxid)
        };
        let known = std::mem::take(&mut self.known);
        for (path, _) in known.iter().filter(|(path, node)| !is_same(path, node)) {
            self.note(now, nodes::Change::Deleted { path: path.clone(), zxid: server.zxid() }, path, None);
        }
        self.note_access(now, &present);
        for (path, node) in &present {
            let change = match known.get(path) {
                Some(before) if before.stat.mzxid == node.stat.mzxid => continue,
                Some(before) if before.stat.czxid == node.stat.czxid => {
                    nodes::Change::DataChanged { path: path.clone(), data: node.data.clone() }
                }
                _ => {
                    let SimulatedNode { stat, data, .. } = node.clone();
                    let node = nodes::Node { czxid: stat.czxid, session: stat.ephemeral_owner, data };
                    nodes::Change::Created { path: path.clone(), node }
                }
            };
            self.note(now, change, path, Some(node));
        }
        self.known = present;
    }

    /// Records that the servers have lost their data, or continue from a backup.
    pub(super) fn restarted(&mut self, server: &SimulatedServer, now: Duration) {
        self.zxid = None;
        self.versions.push((now, versions::Event::Emptied(server.zxid())));
        let gone = std::mem::take(&mut self.known);
        let zxid = server.zxid();
        self.changes.extend(gone.into_keys().map(|path| (now, nodes::Change::Deleted { path, zxid })));
    }

    /// Records the nodes of which the servers refuse a read from now on, or no longer.
    fn note_access(&mut self, now: Duration, present: &BTreeMap<String, SimulatedNode>) {
        let access = |node: &SimulatedNode| versions::Access {
            is_denied: !node.is_readable,
            has_large_data: node.data_reply > self.max_reply,
            has_large_list: node.list_reply > self.max_reply,
        };
        let refused = present.iter().map(|(path, node)| (path.clone(), access(node)));
        let refused: BTreeMap<_, _> = refused.filter(|(_, access)| *access != versions::Access::default()).collect();
        let before = std::mem::replace(&mut self.refused, refused);
        let ended =
            before.keys().filter(|path| !self.refused.contains_key(*path)).map(|path| (path, Default::default()));
        let newer = self.refused.iter().filter(|(path, access)| before.get(*path) != Some(access));
        let all = ended.chain(newer.map(|(path, access)| (path, *access)));
        self.versions.extend(all.map(|(path, access)| (now, versions::Event::Access(path.clone(), access))));
    }

    fn note(&mut self, now: Duration, change: nodes::Change, path: &str, node: Option<&SimulatedNode>) {
        let node = node.map(|SimulatedNode { stat, data, .. }| versions::Node {
            czxid: stat.czxid,
            mzxid: stat.mzxid,
            version: stat.version,
            data: Some(data.clone()),
        });
        let zxid = self.zxid.unwrap_or_default();
        self.changes.push((now, change));
        self.versions.push((now, versions::Event::Changed(versions::Change { zxid, path: path.to_owned(), node })));
    }
}

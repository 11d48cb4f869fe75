//! The core for the simulation: no sockets, no threads, time as an argument.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use super::DEFAULT_CONTAINER_CHECK_INTERVAL;
use super::core::{ConnectionId, Core, Output, Settings};
use crate::wire::{ConnectRequest, ErrorCode, OpCode, Reader, RequestHeader, Stat, Writer};

/// The name of a simulated connection.
pub(crate) type Connection = ConnectionId;
/// An output that the simulation delivers.
pub(crate) type Delivery = Output;

/// A leader in a simulation, which gets reports of live sessions apart from their requests. A clone of it is a follower
/// that has stopped following.
#[derive(Debug, Clone)]
pub(crate) struct SimulatedServer {
    core: Core,
}

/// A node of a simulated server.
#[derive(Debug, Clone)]
pub(crate) struct SimulatedNode {
    pub(crate) stat: Stat,
    pub(crate) data: Vec<u8>,
}

impl SimulatedServer {
    pub(crate) fn new(min_session_timeout: Duration, max_session_timeout: Duration) -> Self {
        // The wall clock of a simulation begins in 1970.
        let mut core = Core::new(Settings {
            min_session_timeout,
            max_session_timeout,
            first_session_id: 1,
            epoch_ms: 0,
            container_check_interval: DEFAULT_CONTAINER_CHECK_INTERVAL,
            extended_types: false,
            requests_touch: false,
        });
        core.published = Some(Vec::new());
        Self { core }
    }

    /// Returns this server with the nodes of another one.
    pub(crate) fn with_nodes_of(&self, other: &Self) -> Self {
        let mut mixed = self.clone();
        mixed.core.tree = other.core.tree.clone();
        mixed.core.zxid = other.core.zxid;
        mixed.core.published.clone_from(&other.core.published);
        mixed
    }

    /// Lets a connection of a server that was behind follow this one. Returns the events of the changes that it has
    /// missed, each by the watches that it had then.
    pub(crate) fn catch_up(&mut self, mut behind: Self, connection: Connection) -> Vec<Delivery> {
        let seen = behind.core.published.as_ref().map_or(0, Vec::len);
        for change in self.core.published.iter().flatten().skip(seen) {
            behind.core.fire(change, Some(connection));
        }
        self.core.watches.take_over(connection, &behind.core.watches);
        behind.core.take_outputs()
    }

    /// Returns whether it may serve a client that has seen this transaction: a server that is behind refuses.
    pub(crate) fn has_seen(&self, zxid: i64) -> bool {
        zxid <= self.core.zxid
    }

    pub(crate) fn open(&mut self) -> Connection {
        self.core.open(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    pub(crate) fn closed(&mut self, connection: Connection) {
        self.core.closed(connection);
    }

    pub(crate) fn frame(&mut self, connection: Connection, bytes: &[u8], now: Duration) -> Vec<Delivery> {
        let outputs = self.core.frame(connection, bytes, now);
        // The log of a simulation has no reader, and would make clones expensive.
        self.core.log().clear();
        outputs
    }

    /// Answers a request as a server that has too many, if such a server would.
    pub(crate) fn throttle(&mut self, connection: Connection, bytes: &[u8], now: Duration) -> Option<Vec<Delivery>> {
        let op = RequestHeader::decode(&mut Reader::new(bytes)).ok()?.op;
        if matches!(op, OpCode::Ping | OpCode::Auth | OpCode::Sasl | OpCode::CloseSession) {
            return None;
        }
        self.core.refusals.push((op, ErrorCode::ThrottledOp));
        Some(self.frame(connection, bytes, now))
    }

    /// Renews the time of a session that is reported to live.
    pub(crate) fn touch(&mut self, session: i64, now: Duration) {
        self.core.touch(session, now);
    }

    pub(crate) fn session_of(&self, connection: Connection) -> Option<i64> {
        self.core.session_of(connection)
    }

    pub(crate) fn tick(&mut self, now: Duration) -> Vec<Delivery> {
        self.core.tick(now)
    }

    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.core.next_deadline()
    }

    pub(crate) fn kill_session(&mut self, session: i64, now: Duration) -> Vec<Delivery> {
        self.core.kill_session(session, now).unwrap_or_default()
    }

    /// Deletes a node in a session of its own.
    pub(crate) fn delete(&mut self, path: &str, now: Duration) -> Vec<Delivery> {
        let connection = self.open();
        let mut connect = Writer::new();
        ConnectRequest { timeout_ms: 10_000, password: vec![0; 16], ..ConnectRequest::default() }.encode(&mut connect);
        let mut delete = Writer::new();
        RequestHeader { xid: 1, op: OpCode::Delete }.encode(&mut delete);
        delete.string(path).int(-1);
        let mut close = Writer::new();
        RequestHeader { xid: 2, op: OpCode::CloseSession }.encode(&mut close);
        let frames = [connect.into_bytes(), delete.into_bytes(), close.into_bytes()];
        frames.iter().flat_map(|frame| self.frame(connection, frame, now)).collect()
    }

    pub(crate) fn restart(&mut self, now: Duration) {
        self.core.restart(now);
    }

    pub(crate) fn restart_empty(&mut self, zxid: i64, now: Duration) {
        self.core.restart_empty(zxid, now);
    }

    pub(crate) fn sessions(&self) -> Vec<i64> {
        self.core.session_ids()
    }

    pub(crate) fn children(&self, path: &str) -> Vec<String> {
        self.core.tree.get(path).map(|node| node.children().cloned().collect()).unwrap_or_default()
    }

    /// Returns the session that owns a node, 0 if none does; `None` if the node does not exist.
    pub(crate) fn owner(&self, path: &str) -> Option<i64> {
        self.core.tree.get(path).ok().map(|node| node.stat().ephemeral_owner)
    }

    /// Returns all nodes below a path.
    pub(crate) fn below(&self, root: &str) -> BTreeMap<String, SimulatedNode> {
        let mut found = BTreeMap::new();
        let mut parents = vec![root.to_owned()];
        while let Some(parent) = parents.pop() {
            for path in self.children(&parent).into_iter().map(|name| format!("{parent}/{name}")) {
                let Ok(node) = self.core.tree.get(&path) else { continue };
                let stat = node.stat();
                let data = node.data.clone().unwrap_or_default();
                found.insert(path.clone(), SimulatedNode { stat, data });
                parents.push(path);
            }
        }
        found
    }

    /// Returns the newest transaction.
    pub(crate) const fn zxid(&self) -> i64 {
        self.core.zxid
    }

    pub(crate) fn watch_count(&self) -> usize {
        self.core.watches.len()
    }

    pub(crate) fn set_next_sequence(&mut self, parent: &str, next: i32) -> bool {
        self.core.tree.set_next_sequence(parent, next)
    }
}

//! The core for the simulation: no sockets, no threads, time as an argument.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use super::DEFAULT_CONTAINER_CHECK_INTERVAL;
use super::acl::{Identities, READ};
use super::core::{Backup, ConnectionId, Core, Output, Settings};
use crate::wire::{Acl, ConnectRequest, ErrorCode, OpCode, Reader, RequestHeader, Stat, Writer};

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
    /// A client without credentials may read it.
    pub(crate) is_readable: bool,
    /// The lengths of the replies with its data and with its children.
    pub(crate) data_reply: usize,
    pub(crate) list_reply: usize,
}

impl SimulatedServer {
    pub(crate) fn new(min_session_timeout: Duration, max_session_timeout: Duration) -> Self {
        // The wall clock of a simulation starts in 1970.
        let mut core = Core::new(Settings {
            tick: min_session_timeout / 2,
            min_session_timeout,
            max_session_timeout,
            first_session_id: 1,
            epoch_ms: 0,
            container_check_interval: DEFAULT_CONTAINER_CHECK_INTERVAL,
            extended_types: false,
            reconfig: false,
            sasl: None,
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

    /// Refuses the credentials of a connection, as a server does after a change of its users.
    pub(crate) fn refuse_credentials(&mut self, connection: Connection, bytes: &[u8], now: Duration) -> Vec<Delivery> {
        self.core.refusals.push((OpCode::Auth, ErrorCode::AuthFailed));
        let mut outputs = self.frame(connection, bytes, now);
        self.closed(connection);
        outputs.push(Delivery::Close(connection));
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

    /// Carries out a request in a session of its own.
    fn administer(&mut self, op: OpCode, body: impl FnOnce(&mut Writer), now: Duration) -> Vec<Delivery> {
        let connection = self.open();
        let mut connect = Writer::new();
        ConnectRequest { timeout_ms: 10_000, password: vec![0; 16], ..ConnectRequest::default() }.encode(&mut connect);
        let mut request = Writer::new();
        RequestHeader { xid: 1, op }.encode(&mut request);
        body(&mut request);
        let mut close = Writer::new();
        RequestHeader { xid: 2, op: OpCode::CloseSession }.encode(&mut close);
        let frames = [connect.into_bytes(), request.into_bytes(), close.into_bytes()];
        frames.iter().flat_map(|frame| self.frame(connection, frame, now)).collect()
    }

    pub(crate) fn delete(&mut self, path: &str, now: Duration) -> Vec<Delivery> {
        self.administer(OpCode::Delete, |body| _ = body.string(path).int(-1), now)
    }

    pub(crate) fn create(&mut self, path: &str, now: Duration) -> Vec<Delivery> {
        let body = |body: &mut Writer| {
            body.string(path).buffer(&[]);
            body.vector(&[Acl::open()], |to, acl| acl.encode(to)).int(0);
        };
        self.administer(OpCode::Create, body, now)
    }

    pub(crate) fn set_data(&mut self, path: &str, data: &[u8], now: Duration) -> Vec<Delivery> {
        self.administer(OpCode::SetData, |body| _ = body.string(path).buffer(data).int(-1), now)
    }

    /// Lets clients read a node, or not. They may do anything else.
    pub(crate) fn set_readable(&mut self, path: &str, is_readable: bool, now: Duration) -> Vec<Delivery> {
        let open = Acl::open();
        let acl = Acl { perms: if is_readable { open.perms } else { open.perms & !READ }, ..open };
        let body = |body: &mut Writer| _ = body.string(path).vector(&[acl], |to, acl| acl.encode(to)).int(-1);
        self.administer(OpCode::SetAcl, body, now)
    }

    pub(crate) fn restart(&mut self, now: Duration) {
        self.core.restart(now);
    }

    pub(crate) fn restart_empty(&mut self, zxid: i64, now: Duration) {
        self.core.restart_empty(zxid, now);
    }

    pub(crate) fn backup(&self) -> Backup {
        self.core.backup()
    }

    pub(crate) fn restore(&mut self, backup: &Backup, now: Duration) {
        self.core.restore(backup, now);
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
        /// The header of a reply, the length before data, the number of names, the stat.
        const HEADER: usize = 16;
        const LENGTH: usize = 4;
        const STAT: usize = 68;
        let anonymous = Identities::of_peer(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let mut found = BTreeMap::new();
        let mut parents = vec![root.to_owned()];
        while let Some(parent) = parents.pop() {
            for path in self.children(&parent).into_iter().map(|name| format!("{parent}/{name}")) {
                let Ok(node) = self.core.tree.get(&path) else { continue };
                let stat = node.stat();
                let data = node.data.clone().unwrap_or_default();
                let is_readable = anonymous.check(&node.acl, READ).is_ok();
                let data_reply = HEADER + LENGTH + data.len() + STAT;
                let names = node.children().map(|name| LENGTH + name.len()).sum::<usize>();
                let list_reply = HEADER + LENGTH + names;
                found.insert(path.clone(), SimulatedNode { stat, data, is_readable, data_reply, list_reply });
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

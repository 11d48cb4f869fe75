//! The server without sockets, clock or threads.
//!
//! A front opens connections, passes frames and the time to it, and carries out each returned [`Output`]. Time is
//! measured from the core's start.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use super::acl::Identities;
use super::changes::{Change, Stale};
use super::log::{Last, LoggedRequest, Packets, RequestLog, path_of, short_name};
use super::sasl::{Mechanism, SaslAnswer};
use super::session::Sessions;
use super::tree::{Stamp, Tree};
use super::watch::Watches;
use crate::wire::{
    ConnectRequest, ConnectResponse, DecodeError, ErrorCode, EventKind, OpCode, Reader, ReplyHeader, RequestHeader,
    WatchEvent, Writer, XID_EVENT, XID_PING, session_password,
};

/// The state that every event of a node carries: connected.
const STATE_CONNECTED: i32 = 3;

/// The core's name for a connection. Never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ConnectionId(pub(super) u64);

/// An action for the front, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Output {
    /// Send a frame.
    Frame {
        /// The recipient.
        to: ConnectionId,
        /// The content, without its length.
        bytes: Vec<u8>,
    },
    /// Send the queued frames and close. The core has forgotten the connection.
    Close(ConnectionId),
}

/// The settings of a core.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) tick: Duration,
    pub(super) min_session_timeout: Duration,
    pub(super) max_session_timeout: Duration,
    /// The id of the first session; not 0.
    pub(super) first_session_id: i64,
    /// The wall clock when the core starts, in milliseconds since 1970.
    pub(super) epoch_ms: i64,
    /// The interval at which empty containers and outlived nodes are deleted.
    pub(super) container_check_interval: Duration,
    /// True if nodes may have a time to live.
    pub(super) extended_types: bool,
    /// True if a client may ask for other servers.
    pub(super) reconfig: bool,
    /// The mechanism of logins by SASL.
    pub(super) sasl: Option<Mechanism>,
    /// True if a request renews the time of its session. A leader gets that from its followers' reports instead: see
    /// [`Core::touch`].
    pub(super) requests_touch: bool,
}

/// One connection, without a session before its first frame.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    pub(super) session: Option<i64>,
    pub(super) identities: Identities,
    /// The tokens of its login by SASL.
    pub(super) tokens: Vec<Vec<u8>>,
    pub(super) packets: Packets,
    pub(super) last: Last,
    /// The wall clock when the session came, in milliseconds since 1970.
    pub(super) established_ms: i64,
}

/// The error of a request, and its effect on the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// The connection stays open.
    Reply(ErrorCode),
    /// The connection is closed after the reply.
    ReplyAndClose(ErrorCode),
    /// The request cannot be decoded.
    Unreadable,
}

impl From<ErrorCode> for Failure {
    fn from(error: ErrorCode) -> Self {
        Self::Reply(error)
    }
}

impl From<DecodeError> for Failure {
    fn from(_: DecodeError) -> Self {
        Self::Unreadable
    }
}

/// The origin of a request in the core.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caller {
    pub(super) connection: ConnectionId,
    pub(super) session: i64,
}

/// The whole state of a server.
#[derive(Debug, Clone)]
pub(super) struct Core {
    settings: Settings,
    pub(super) tree: Tree,
    pub(super) watches: Watches,
    sessions: Sessions,
    log: RequestLog,
    connections: BTreeMap<ConnectionId, Connection>,
    pub(super) packets: Packets,
    next_connection: u64,
    pub(super) zxid: i64,
    now: Duration,
    next_container_check: Duration,
    /// The changes of the present request.
    pub(super) changes: Vec<Change>,
    /// All changes so far, if a simulation needs them.
    pub(super) published: Option<Vec<Change>>,
    pub(super) stale: Option<Stale>,
    /// The operations of the next requests that are refused, each with its error.
    pub(super) refusals: Vec<(OpCode, ErrorCode)>,
    outputs: Vec<Output>,
}

/// A copy of a [`TestingServer`](crate::TestingServer)'s nodes and sessions at one moment.
#[derive(Debug, Clone)]
pub struct Backup {
    tree: Tree,
    sessions: Sessions,
    zxid: i64,
}

impl Backup {
    /// Returns the newest transaction of the copy.
    #[must_use]
    pub const fn zxid(&self) -> i64 {
        self.zxid
    }

    /// Sets the transaction from which a restored server counts on. An ensemble that elects a leader after a restore
    /// continues with a larger one, because the upper 32 bits are the number of the election.
    #[must_use]
    pub const fn with_zxid(mut self, zxid: i64) -> Self {
        self.zxid = zxid;
        self
    }
}

impl Core {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            tree: Tree::new(),
            watches: Watches::default(),
            sessions: Sessions::new(settings.first_session_id),
            log: RequestLog::default(),
            connections: BTreeMap::new(),
            packets: Packets::default(),
            next_connection: 1,
            zxid: 0,
            now: Duration::ZERO,
            next_container_check: settings.container_check_interval,
            changes: Vec::new(),
            published: None,
            stale: None,
            refusals: Vec::new(),
            outputs: Vec::new(),
            settings,
        }
    }

    /// Opens a client's connection.
    pub(super) fn open(&mut self, peer: IpAddr) -> ConnectionId {
        let id = ConnectionId(self.next_connection);
        self.next_connection += 1;
        let identities = Identities::of_peer(peer);
        let (packets, last, tokens) = (Packets::default(), Last::NONE, Vec::new());
        let connection = Connection { session: None, identities, tokens, packets, last, established_ms: 0 };
        self.connections.insert(id, connection);
        id
    }

    /// Removes a connection that the client has closed. Its session lives until its time has ended.
    pub(super) fn closed(&mut self, connection: ConnectionId) {
        self.watches.remove_connection(connection);
        if let Some(Connection { session: Some(session), .. }) = self.connections.remove(&connection) {
            self.sessions.detach(session);
        }
    }

    /// Handles a frame. Ignores one for a connection that the core has closed.
    #[must_use]
    pub(super) fn frame(&mut self, connection: ConnectionId, bytes: &[u8], now: Duration) -> Vec<Output> {
        let outputs = self.frame_in_burst(connection, bytes, now);
        self.tree.forget_overruns();
        outputs
    }

    /// Handles a frame behind which the next one waits. As in Apache, sequence numbers run over their end within such a
    /// burst.
    #[must_use]
    pub(super) fn frame_in_burst(&mut self, connection: ConnectionId, bytes: &[u8], now: Duration) -> Vec<Output> {
        self.advance(now);
        self.one_frame(connection, bytes);
        self.take_outputs()
    }

    fn one_frame(&mut self, connection: ConnectionId, bytes: &[u8]) {
        if let Some(open) = self.connections.get_mut(&connection) {
            open.packets.received += 1;
            self.packets.received += 1;
        }
        match self.connections.get(&connection) {
            None => {}
            Some(Connection { session: None, .. }) => match ConnectRequest::decode(&mut Reader::new(bytes)) {
                Ok(request) => self.connect(connection, &request),
                Err(_) => self.close(connection),
            },
            Some(&Connection { session: Some(session), .. }) => {
                let mut reader = Reader::new(bytes);
                match RequestHeader::decode(&mut reader) {
                    Ok(header) => self.request(Caller { connection, session }, header, reader),
                    Err(_) => self.close(connection),
                }
            }
        }
    }

    /// Ends overdue sessions, and at intervals deletes empty containers and outlived nodes.
    #[must_use]
    pub(super) fn tick(&mut self, now: Duration) -> Vec<Output> {
        self.advance(now);
        for session in self.sessions.overdue(self.now) {
            self.expire(session);
        }
        if self.next_container_check <= self.now {
            self.delete_due();
            let interval = self.settings.container_check_interval;
            let late = self.now.saturating_sub(self.next_container_check);
            let skipped = u32::try_from(late.as_nanos() / interval.as_nanos().max(1)).unwrap_or(u32::MAX);
            let next = interval.saturating_mul(skipped.saturating_add(1));
            self.next_container_check = self.next_container_check.saturating_add(next).max(self.now);
        }
        self.take_outputs()
    }

    /// Returns the time of the next event without a packet. A request can make it earlier.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        let check = self.tree.has_reapable().then_some(self.next_container_check);
        self.sessions.next_deadline().into_iter().chain(check).min()
    }

    /// Deletes containers without children and nodes that have outlived their time.
    fn delete_due(&mut self) {
        for path in self.tree.due(self.wall_ms()) {
            let at = self.next_stamp();
            // A node that must not be deleted after all stays.
            self.delete_node(&path, at).ok();
        }
        self.publish(None);
    }

    /// Ends a session as if its time were over. Returns `None` if the session does not exist.
    #[must_use]
    pub(super) fn kill_session(&mut self, session: i64, now: Duration) -> Option<Vec<Output>> {
        self.advance(now);
        if !self.sessions.contains(session) {
            return None;
        }
        self.expire(session);
        Some(self.take_outputs())
    }

    /// Restarts the server: all connections and watches are dropped, and every session has its full time.
    pub(super) fn restart(&mut self, now: Duration) {
        self.advance(now);
        self.connections.clear();
        self.watches = Watches::default();
        self.sessions.detach_all(self.now);
        self.next_container_check = self.now.saturating_add(self.settings.container_check_interval);
        self.restart_stale_reads();
    }

    /// Restarts the server without its data: nodes, sessions and transactions start again.
    pub(super) fn restart_empty(&mut self, zxid: i64, now: Duration) {
        self.tree = Tree::new();
        self.sessions.clear();
        self.zxid = zxid;
        self.restart(now);
    }

    /// Returns a copy of the nodes, the sessions and the newest transaction.
    pub(super) fn backup(&self) -> Backup {
        Backup { tree: self.tree.clone(), sessions: self.sessions.clone(), zxid: self.zxid }
    }

    /// Restarts the server with the nodes, sessions and newest transaction of a backup.
    pub(super) fn restore(&mut self, backup: &Backup, now: Duration) {
        let Backup { tree, sessions, zxid } = backup.clone();
        self.tree = tree;
        self.sessions.restore(sessions);
        self.zxid = zxid;
        self.restart(now);
    }

    /// Renews the time of a session that is reported to live.
    pub(super) fn touch(&mut self, session: i64, now: Duration) {
        self.advance(now);
        self.sessions.touch(session, self.now);
    }

    /// Returns the session of a connection, if it has one.
    pub(super) fn session_of(&self, connection: ConnectionId) -> Option<i64> {
        self.connections.get(&connection)?.session
    }

    pub(super) fn session_ids(&self) -> Vec<i64> {
        self.sessions.ids()
    }

    pub(super) const fn log(&mut self) -> &mut RequestLog {
        &mut self.log
    }

    fn advance(&mut self, now: Duration) {
        self.now = self.now.max(now);
    }

    fn connect(&mut self, connection: ConnectionId, request: &ConnectRequest) {
        if request.last_zxid_seen > self.zxid {
            // The client has seen a newer server.
            return self.close(connection);
        }
        let asked = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or_default());
        let timeout = asked.max(self.settings.min_session_timeout).min(self.settings.max_session_timeout);
        let session = if request.session_id == 0 {
            self.zxid += 1;
            let session = self.sessions.create(connection, timeout, self.now);
            self.catch_up(session);
            Some(session)
        } else {
            // As in Apache, the old connection is closed even if the password is wrong.
            if let Some(old) = self.sessions.detach(request.session_id) {
                self.close(old);
            }
            let (id, password) = (request.session_id, &request.password);
            self.sessions.attach(id, password, connection, timeout, self.now).then_some(id)
        };
        let read_only = request.read_only.map(|_| false);
        let response = match session {
            Some(session_id) => ConnectResponse {
                protocol_version: 0,
                timeout_ms: i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX),
                session_id,
                password: session_password(session_id).to_vec(),
                read_only,
            },
            None => ConnectResponse { password: vec![0; 16], read_only, ..Default::default() },
        };
        let mut body = Writer::new();
        response.encode(&mut body);
        self.send(connection, body);
        let error = if session.is_some() { ErrorCode::Ok } else { ErrorCode::SessionExpired };
        self.log.push(LoggedRequest {
            session_id: session.unwrap_or(request.session_id),
            op: OpCode::CreateSession,
            path: None,
            error: error.code(),
        });
        let (established_ms, at, zxid) = (self.wall_ms(), self.now, self.zxid);
        match self.connections.get_mut(&connection) {
            Some(open) if session.is_some() => {
                open.session = session;
                open.established_ms = established_ms;
                // To continue a session is not a request of it.
                if request.session_id == 0 {
                    open.last = Last { op: short_name(OpCode::CreateSession), xid: 0, zxid, at };
                }
            }
            _ => self.close(connection),
        }
    }

    fn request(&mut self, caller: Caller, header: RequestHeader, body: Reader<'_>) {
        if self.settings.requests_touch {
            self.sessions.touch(caller.session, self.now);
        }
        let path = path_of(header.op, body.rest());
        let refusal = self.refusals.iter().position(|(op, _)| *op == header.op);
        let result = match refusal.map(|index| self.refusals.remove(index)) {
            // As to a request that Apache does not know.
            Some((_, ErrorCode::Unimplemented)) => Err(Failure::ReplyAndClose(ErrorCode::Unimplemented)),
            Some((_, error)) => Err(error.into()),
            None => self.perform(caller, header.op, body),
        };
        if is_write(header.op) {
            self.publish(Some(caller.session));
        }
        let (error, closes) = match result {
            Ok(_) => (ErrorCode::Ok, header.op == OpCode::CloseSession),
            Err(Failure::Reply(error)) => (error, false),
            Err(Failure::ReplyAndClose(error)) => (error, true),
            Err(Failure::Unreadable) => (ErrorCode::MarshallingError, false),
        };
        let xid = if header.op == OpCode::Ping { XID_PING } else { header.xid };
        let zxid = match header.op {
            OpCode::Auth | OpCode::Sasl => 0,
            OpCode::Unknown(_) => -1,
            _ => self.zxid_seen(caller.session),
        };
        let mut reply = Writer::new();
        ReplyHeader { xid, zxid, err: error.code() }.encode(&mut reply);
        if let Ok(body) = result {
            reply.raw(&body.into_bytes());
        }
        self.log.push(LoggedRequest { session_id: caller.session, op: header.op, path, error: error.code() });
        if header.op != OpCode::Auth {
            self.note_last(caller.connection, header, error);
        }
        self.send(caller.connection, reply);
        if closes {
            self.close(caller.connection);
        }
    }

    /// Records a request for `cons`. As in Apache, a write that fails has no name there.
    fn note_last(&mut self, connection: ConnectionId, RequestHeader { xid, op }: RequestHeader, error: ErrorCode) {
        let (zxid, at) = (self.zxid, self.now);
        if let Some(open) = self.connections.get_mut(&connection) {
            // The number of a ping says nothing.
            let xid = if xid < 0 { open.last.xid } else { xid };
            let has_name = error == ErrorCode::Ok || !is_write(op);
            open.last = Last { op: if has_name { short_name(op) } else { Last::RESET.op }, xid, zxid, at };
        }
    }

    /// Carries out a request, and returns the part of the reply behind its header.
    fn perform(&mut self, caller: Caller, op: OpCode, mut body: Reader<'_>) -> Result<Writer, Failure> {
        let body = &mut body;
        match op {
            OpCode::Ping => Ok(Writer::new()),
            OpCode::CloseSession => {
                self.end_session(caller.session);
                Ok(Writer::new())
            }
            OpCode::Auth => self.auth(caller, body),
            OpCode::Create
            | OpCode::Create2
            | OpCode::CreateContainer
            | OpCode::CreateTtl
            | OpCode::Delete
            | OpCode::SetData
            | OpCode::SetAcl
            | OpCode::Check => self.write(caller, op, body),
            OpCode::Multi => self.multi(caller, body),
            OpCode::MultiRead => self.multi_read(caller, body),
            OpCode::Exists => self.exists(caller, body),
            OpCode::GetData => self.get_data(caller, body),
            OpCode::GetAcl => self.get_acl(caller, body),
            OpCode::GetChildren | OpCode::GetChildren2 => self.get_children(caller, op, body),
            OpCode::GetAllChildrenNumber => self.get_all_children_number(caller, body),
            OpCode::GetEphemerals => self.get_ephemerals(caller, body),
            OpCode::WhoAmI => self.who_am_i(caller),
            OpCode::Sync => self.sync(caller, body),
            OpCode::SetWatches | OpCode::SetWatches2 => self.set_watches(caller, op, body),
            OpCode::AddWatch => self.add_watch(caller, body),
            OpCode::CheckWatches | OpCode::RemoveWatches => self.find_watches(caller, op, body),
            OpCode::Reconfig => {
                for _joining_leaving_members in 0..3 {
                    body.optional_string()?;
                }
                let _version = body.long()?;
                self.next_stamp();
                // Without an ensemble there is nothing to change.
                let is_allowed = self.settings.reconfig;
                Err(if is_allowed { ErrorCode::Unimplemented } else { ErrorCode::ReconfigDisabled }.into())
            }
            // Only the server itself may request it, and Apache takes the whole frame for the path.
            OpCode::DeleteContainer => {
                self.next_stamp();
                Err(ErrorCode::BadArguments.into())
            }
            // Apache does not support these either, and closes the connection.
            OpCode::Sasl => self.sasl(caller, body),
            OpCode::CreateSession | OpCode::Unknown(_) => Err(Failure::ReplyAndClose(ErrorCode::Unimplemented)),
        }
    }

    fn auth(&mut self, caller: Caller, body: &mut Reader<'_>) -> Result<Writer, Failure> {
        let _kind = body.int()?;
        let (scheme, secret) = (body.optional_string()?, body.optional_buffer()?);
        let connection = self.connection(caller)?;
        connection.identities.authenticate(scheme, secret).map_err(Failure::ReplyAndClose)?;
        Ok(Writer::new())
    }

    fn sasl(&mut self, caller: Caller, body: &mut Reader<'_>) -> Result<Writer, Failure> {
        let Some(Mechanism(answer)) = self.settings.sasl.clone() else {
            return Err(Failure::ReplyAndClose(ErrorCode::Unimplemented));
        };
        let token = body.buffer()?.to_vec();
        let connection = self.connection(caller)?;
        connection.tokens.push(token);
        let (user, token) = match answer(&connection.tokens) {
            SaslAnswer::Token(token) => (None, Some(token)),
            SaslAnswer::Accept(user) => (Some(user), None),
            SaslAnswer::AcceptWith(user, token) => (Some(user), Some(token)),
            SaslAnswer::Ignore => (None, None),
            SaslAnswer::Refuse => return Err(Failure::ReplyAndClose(ErrorCode::AuthFailed)),
        };
        connection.identities.logged_in(user);
        let mut reply = Writer::new();
        reply.optional_buffer(token.as_deref());
        Ok(reply)
    }

    /// Returns the connection of the present request, which exists.
    pub(super) fn connection(&mut self, caller: Caller) -> Result<&mut Connection, Failure> {
        let missing = Failure::ReplyAndClose(ErrorCode::SystemError);
        self.connections.get_mut(&caller.connection).ok_or(missing)
    }

    /// Returns the next transaction's number and time.
    pub(super) fn next_stamp(&mut self) -> Stamp {
        self.zxid += 1;
        Stamp { zxid: self.zxid, wall_ms: self.wall_ms() }
    }

    fn wall_ms(&self) -> i64 {
        self.wall_ms_at(self.now)
    }

    /// Returns the newest transaction.
    pub(super) const fn zxid(&self) -> i64 {
        self.zxid
    }

    pub(super) const fn has_extended_types(&self) -> bool {
        self.settings.extended_types
    }

    pub(super) fn is_live(&self, session: i64) -> bool {
        self.sessions.contains(session)
    }

    pub(super) fn connection_of(&self, session: i64) -> Option<ConnectionId> {
        self.sessions.connection(session)
    }

    /// Returns the identities of a connection; `None` if it is closed.
    pub(super) fn identities(&self, connection: ConnectionId) -> Option<&Identities> {
        self.connections.get(&connection).map(|open| &open.identities)
    }

    /// Returns the open connections.
    pub(super) const fn connections(&self) -> &BTreeMap<ConnectionId, Connection> {
        &self.connections
    }

    /// Forgets the packets and requests of all connections so far.
    pub(super) fn reset_connections(&mut self) {
        for open in self.connections.values_mut() {
            (open.packets, open.last) = (Packets::default(), Last::RESET);
        }
    }

    pub(super) const fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    pub(super) const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the wall clock at a time of the core, in milliseconds since 1970.
    pub(super) fn wall_ms_at(&self, time: Duration) -> i64 {
        self.settings.epoch_ms.saturating_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX))
    }

    /// Ends a session and deletes its nodes. Returns the connection that it had.
    fn end_session(&mut self, session: i64) -> Option<ConnectionId> {
        let at = self.next_stamp();
        for path in self.tree.ephemerals_of(session) {
            // A node without children can always be deleted, and an ephemeral one has no children.
            self.delete_node(&path, at).ok();
        }
        self.sessions.remove(session).flatten()
    }

    fn expire(&mut self, session: i64) {
        let connection = self.end_session(session);
        self.publish(None);
        if let Some(connection) = connection {
            self.close(connection);
        }
    }

    pub(super) fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs)
    }

    fn send(&mut self, to: ConnectionId, frame: Writer) {
        if let Some(open) = self.connections.get_mut(&to) {
            open.packets.sent += 1;
            self.packets.sent += 1;
        }
        self.outputs.push(Output::Frame { to, bytes: frame.into_bytes() });
    }

    fn close(&mut self, connection: ConnectionId) {
        self.closed(connection);
        self.outputs.push(Output::Close(connection));
    }

    pub(super) fn send_event(&mut self, to: ConnectionId, kind: EventKind, path: &str) {
        let mut frame = Writer::new();
        ReplyHeader { xid: XID_EVENT, zxid: -1, err: 0 }.encode(&mut frame);
        WatchEvent { kind: kind as i32, state: STATE_CONNECTED, path: path.to_owned() }.encode(&mut frame);
        self.send(to, frame);
    }
}

/// Returns whether the operation goes through the leader, so that the session sees all changes up to it.
const fn is_write(op: OpCode) -> bool {
    matches!(
        op,
        OpCode::Create
            | OpCode::Create2
            | OpCode::CreateContainer
            | OpCode::CreateTtl
            | OpCode::Delete
            | OpCode::SetData
            | OpCode::SetAcl
            | OpCode::Check
            | OpCode::Multi
            | OpCode::Reconfig
            | OpCode::DeleteContainer
            | OpCode::CloseSession
    )
}

#[cfg(test)]
mod tests;

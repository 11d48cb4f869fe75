//! One ZooKeeper session as a state machine without I/O: bytes in, bytes out, time as an argument, events out.
//!
//! The driver opens connections, carries bytes and calls [`Protocol::lost`]; this module makes all decisions about the
//! session. A reply out of order or a record that does not decode is a [`Violation`]: the driver closes the connection,
//! and every outstanding request ends as `ConnectionLoss`. A reply above the limit ends its request alone, and its bytes
//! are skipped.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use curator_wire::{
    ConnectRequest, ConnectResponse, ErrorCode, OpCode, Reader, ReplyHeader, RequestHeader, Writer, XID_AUTH,
    XID_EVENT, XID_PING, XID_SET_WATCHES,
};

use super::armed_watches::{Armed, BEFORE_ALL, Left, OneShot, known_of, parts_of_known};
use super::history::{Comparison, History, Judgement, Question};
use super::records;
use super::sasl::DigestMd5;
use crate::error::{ConnectError, Error};
use crate::model::{AddWatchMode, AuthInfo, EventType, WatchKind, WatchedEvent};
use crate::sync::report::report;
use crate::zookeeper::security::SaslDigest;
use crate::zookeeper::{
    ADD_WATCH_NEEDS, KnownNodes, MIN_SESSION_TIMEOUT, Reattached, Reply, Request, Response, Resync, SessionEnd,
    WatchSender,
};

/// A connect response has 36 or 37 bytes; a frame that is much longer is not one.
const CONNECT_RESPONSE: std::ops::RangeInclusive<usize> = 36..=1024;
/// The bytes of an addWatch request beside the path: header, length and mode.
const ADD_WATCH_OVERHEAD: usize = 16;
/// The number of outstanding requests of one session above which others wait. The server queues requests and replies:
/// thousands of listings at once would exhaust its memory.
const WINDOW: usize = 512;
/// The bytes of outstanding requests above which others wait. A heartbeat is sent behind no more than these and one
/// request, so a caller's large writes do not end its session.
const WINDOW_BYTES: u64 = 1 << 20;
/// The capacities for events, and for bytes of output, that are kept when these are taken.
const KEPT_EVENTS: usize = 64;
const KEPT_OUTPUT: usize = 16 * 1024;
/// The longest frame that is skipped: a server that announces more is not one.
const LONGEST_SKIP: usize = 1 << 30;
/// The bytes of a [`ReplyHeader`].
const REPLY_HEADER: usize = 16;
/// The losses of a connection in a row during one request after which the request is taken for their cause.
const LOSSES_OF_ONE_REQUEST: u32 = 3;
/// The length of a request that may be above a server's limit. No server has a smaller one.
const SUSPICIOUS: usize = 4096;
const THROTTLED: i32 = ErrorCode::ThrottledOp.code();
/// The pause before watches are set again that a busy server has refused.
const THROTTLED_PAUSE: Duration = Duration::from_millis(50);
/// The lowest bit of a zxid that counts the elections.
const EPOCH: u32 = 32;
/// `ZooDefs.WatcherType`.
const WATCHER_CHILDREN: i32 = 1;
const WATCHER_DATA: i32 = 2;
const WATCHER_ANY: i32 = 3;

/// The parameters of a session.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) session_timeout: Duration,
    pub(super) auth: Vec<AuthInfo>,
    pub(super) sasl: Option<SaslDigest>,
    pub(super) read_only: bool,
    pub(super) max_frame: usize,
    pub(super) max_reply: usize,
}

/// A server's violation of the protocol, or the reason why the server cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Violation(pub(super) String);

impl Violation {
    fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

/// The events of the session, in order.
#[derive(Debug)]
pub(super) enum Event<T> {
    /// The connection can be used: the session is attached, logged in, and its watches are set again.
    Connected { reattached: Reattached, read_only: bool },
    /// A server grants a shorter timeout, counted from the connect request. This holds also if the connection breaks
    /// before it can be used.
    Shortened { sent: Duration, timeout: Duration },
    /// A request has ended.
    Reply(T, Reply),
    /// A watch has fired.
    Notification(WatchedEvent),
    /// The session is over.
    Ended(SessionEnd),
    /// The server has closed the session on request.
    Closed,
}

/// The state of one session over all of its connections.
#[derive(Debug)]
pub(super) struct Protocol<T> {
    settings: Settings,
    session: Option<SessionKey>,
    /// The smallest timeout ever granted; before the first connect, the one to request.
    timeout: Duration,
    epoch: u64,
    /// Continues over all connections, because servers match commits to waiting writes by session and number.
    next_xid: i32,
    /// The newest zxid in a reply.
    last_seen: i64,
    /// The zxid from which the server replays missed events of watches. Frozen from the loss of a connection until all
    /// watches are set again, however many connections that takes.
    watch_base: Option<i64>,
    armed: Armed,
    /// The writes that replies have shown.
    history: History,
    /// The questions that the server of this connection has not answered, and the judgement so far.
    comparison: Option<(Comparison, Judgement)>,
    /// Events that arrived while watches were set again. They follow the next `Connected`, even on a later connection.
    held_back: Vec<WatchedEvent>,
    /// Events that are either those of changes or replays for watches that are set again, which subscribers must not hear
    /// twice. The next frame decides.
    undecided: Vec<WatchedEvent>,
    /// The moment since which the session owns nodes.
    owning_since: Option<Duration>,
    connection: Option<Connection<T>>,
    /// The request that was the oldest without a reply at the last loss of a connection, its length, and the number of
    /// such losses in a row.
    suspect: Option<(String, usize, u32)>,
    over: Option<SessionEnd>,
    /// The scheme of the credentials that the server did not accept.
    refused_scheme: Option<String>,
    events: VecDeque<Event<T>>,
    output: Vec<u8>,
}

/// The identity of the session, which a re-attach sends.
#[derive(Debug)]
struct SessionKey {
    id: i64,
    password: Vec<u8>,
    /// The session was created by a read-only server. The other servers do not know it.
    local: bool,
}

#[derive(Debug)]
struct Connection<T> {
    phase: Phase,
    connect_sent: Duration,
    /// The moment at which the newest byte arrived.
    heard: Duration,
    /// The number of bytes of [`Protocol::output`] that the transport has taken.
    written: u64,
    outstanding: VecDeque<Outstanding<T>>,
    /// The queue of requests that wait until fewer are outstanding.
    waiting: VecDeque<Waiting<T>>,
    pings: VecDeque<(T, Duration)>,
    /// The bytes of a reply above the limit that have not arrived yet.
    skips: usize,
    /// The moment from which the watches are set again, because the server was too busy.
    throttled_until: Option<Duration>,
    /// The server has no majority. It may have writes that the ensemble does not keep, so these are no part of the history.
    read_only: bool,
}

impl<T> Connection<T> {
    /// Returns `true` if the window has room for a request behind `unwritten` bytes of output.
    fn has_room(&self, unwritten: usize) -> bool {
        let Some(oldest) = self.outstanding.front() else { return true };
        let bytes = self.written + unwritten as u64 - oldest.offset;
        self.outstanding.len() < WINDOW && bytes < WINDOW_BYTES
    }

    /// Returns the index of the outstanding request that a reply answers.
    fn answered_by(&self, header: &ReplyHeader) -> Result<usize, Violation> {
        // A server replies to an unknown operation at once, ahead of older replies.
        let index = if header.err == ErrorCode::Unimplemented.code() {
            self.outstanding.iter().position(|outstanding| outstanding.xid == header.xid).unwrap_or(0)
        } else {
            0
        };
        let Some(oldest) = self.outstanding.get(index) else {
            return Err(Violation(format!("a reply to request {}, which was not sent", header.xid)));
        };
        if oldest.xid != header.xid {
            return Err(Violation(format!("a reply to request {} before that to {}", header.xid, oldest.xid)));
        }
        if oldest.offset >= self.written {
            return Err(Violation(format!("a reply to request {}, which is not sent yet", header.xid)));
        }
        Ok(index)
    }
}

#[derive(Debug)]
enum Phase {
    /// The connect request is sent.
    Connecting,
    /// The client logs in by SASL.
    LoggingIn(DigestMd5),
    /// So many replies to credentials, and to questions about known writes, are outstanding. So are the replies to lists of
    /// watches with the events since these zxids.
    Restoring {
        credentials: usize,
        questions: usize,
        parts: VecDeque<i64>,
    },
    Ready,
    Closing,
}

impl Phase {
    /// Returns `true` if the server has answered all questions and lists of watches of a new connection.
    fn has_restored(&self) -> bool {
        matches!(self, Self::Restoring { questions: 0, parts, .. } if parts.is_empty())
    }
}

#[derive(Debug)]
enum Waiting<T> {
    Request(Request, T),
    /// The removal of a watch, never sent ahead of a read that sets it.
    Forget(String, WatchKind),
    /// The removal of a persistent watch, or its change to another mode, never sent ahead of the list that sets it again.
    Unsubscribe(String),
}

/// A request without a reply.
#[derive(Debug)]
struct Outstanding<T> {
    xid: i32,
    /// The request's first byte, counted from the connection's first one.
    offset: u64,
    /// The length of the request in bytes.
    size: usize,
    sent: Duration,
    asked: Asked<T>,
}

#[derive(Debug)]
enum Asked<T> {
    Request(Request, T),
    AddWatch {
        path: String,
        mode: AddWatchMode,
        /// The mode of the watch that the server sets.
        sent: AddWatchMode,
        id: u64,
        token: T,
        /// The newest zxid when it was sent.
        zxid: i64,
    },
    /// Watches on the nodes that a new subscriber knows, up to this zxid.
    Known {
        id: u64,
        zxid: i64,
    },
    /// The persistent watch of a path without a recursive subscriber any more.
    Replace(String),
    RemoveWatch {
        path: String,
        kind: Option<WatchKind>,
        zxid: i64,
    },
    /// One-shot watches set again, with the events since this zxid.
    SetAgain {
        path: String,
        watches: OneShot,
        zxid: i64,
    },
    /// A write that the client has seen.
    Compare(Question),
    Sasl,
    Close,
    /// The caller got its reply when the session ended.
    Abandoned,
}

impl<T> Protocol<T> {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            timeout: settings.session_timeout,
            settings,
            session: None,
            epoch: 0,
            next_xid: 1,
            last_seen: 0,
            watch_base: None,
            armed: Armed::default(),
            history: History::default(),
            comparison: None,
            held_back: Vec::new(),
            undecided: Vec::new(),
            owning_since: None,
            connection: None,
            suspect: None,
            over: None,
            refused_scheme: None,
            events: VecDeque::new(),
            output: Vec::new(),
        }
    }

    pub(super) fn session_id(&self) -> Option<i64> {
        self.session.as_ref().map(|session| session.id)
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(super) fn over(&self) -> Option<SessionEnd> {
        self.over
    }

    /// Returns `true` if requests can be submitted.
    pub(super) fn is_ready(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| matches!(connection.phase, Phase::Ready))
    }

    /// Begins a connection: the connect request is the first output.
    pub(super) fn open(&mut self, now: Duration, nonce: u64) {
        debug_assert!(self.connection.is_none(), "one connection at a time");
        self.output.clear();
        let login = self.settings.sasl.as_ref().map(|digest| DigestMd5::new(digest, nonce));
        self.connection = Some(Connection {
            phase: login.map_or(Phase::Connecting, Phase::LoggingIn),
            connect_sent: now,
            heard: now,
            written: 0,
            outstanding: VecDeque::new(),
            waiting: VecDeque::new(),
            pings: VecDeque::new(),
            skips: 0,
            throttled_until: None,
            read_only: false,
        });
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: self.last_seen,
            timeout_ms: i32::try_from(self.timeout.as_millis()).unwrap_or(i32::MAX),
            session_id: self.session_id().unwrap_or(0),
            password: self.session.as_ref().map_or_else(|| vec![0; 16], |session| session.password.clone()),
            read_only: Some(self.settings.read_only),
        };
        self.frame(|to| request.encode(to));
    }

    /// Appends one frame to the output.
    fn frame(&mut self, body: impl FnOnce(&mut Writer)) {
        let start = self.output.len();
        let mut to = Writer::append_to(std::mem::take(&mut self.output));
        to.int(0);
        body(&mut to);
        self.output = to.into_bytes();
        let length = u32::try_from(self.output.len() - start - 4).unwrap_or(u32::MAX);
        self.output[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }

    fn numbered(&mut self, op: OpCode, now: Duration, asked: Asked<T>, body: impl FnOnce(&mut Writer)) {
        let xid = self.next_xid;
        self.next_xid = if xid == i32::MAX { 1 } else { xid + 1 };
        let begun = self.output.len();
        self.frame(|to| {
            RequestHeader { xid, op }.encode(to);
            body(to);
        });
        let size = self.output.len() - begun - 4;
        if let Some(connection) = &mut self.connection {
            let offset = connection.written + begun as u64;
            connection.outstanding.push_back(Outstanding { xid, offset, size, sent: now, asked });
        }
    }

    /// Sends a request on the connection with this number, or queues it. Otherwise returns the token and the reason.
    pub(super) fn submit(&mut self, request: Request, epoch: u64, token: T, now: Duration) -> Result<(), (T, Error)> {
        if let Err(error) = self.check_ready(epoch, &request) {
            return Err((token, error));
        }
        match &mut self.connection {
            Some(connection) if !connection.has_room(self.output.len()) || !connection.waiting.is_empty() => {
                connection.waiting.push_back(Waiting::Request(request, token));
                Ok(())
            }
            _ => self.send(request, token, now),
        }
    }

    /// Sends a write that changes nothing, ahead of requests that wait for the window.
    pub(super) fn heartbeat(&mut self, path: Arc<str>, token: T, now: Duration) -> Result<(), (T, Error)> {
        let request = Request::Delete { path, version: None };
        match self.check_ready(self.epoch, &request) {
            Ok(()) => self.send(request, token, now),
            Err(error) => Err((token, error)),
        }
    }

    fn send(&mut self, mut request: Request, token: T, now: Duration) -> Result<(), (T, Error)> {
        let (xid, begun) = (self.next_xid, self.output.len());
        let served = watch_of(&mut request).is_some_and(|(path, kind, watch)| *watch && self.armed.serves(path, kind));
        self.frame(|to| {
            RequestHeader { xid, op: records::op_of(&request) }.encode(to);
            records::encode(&request, served, to);
        });
        let size = self.output.len() - begun - 4;
        if size > self.settings.max_frame {
            // The server would close the connection at every retry.
            self.output.truncate(begun);
            let limit = self.settings.max_frame;
            return Err((token, Error::RequestTooLarge { request: request.to_string().into(), size, limit }));
        }
        self.next_xid = if xid == i32::MAX { 1 } else { xid + 1 };
        if let Some(connection) = &mut self.connection {
            let offset = connection.written + begun as u64;
            let asked = Asked::Request(without_data(request), token);
            connection.outstanding.push_back(Outstanding { xid, offset, size, sent: now, asked });
        }
        Ok(())
    }

    /// Sends waiting requests, as far as the window has room.
    fn send_waiting(&mut self, now: Duration) {
        while let Some(connection) = self.connection.as_mut().filter(|one| one.has_room(self.output.len())) {
            match connection.waiting.pop_front() {
                Some(Waiting::Request(request, token)) => {
                    if let Err((token, error)) = self.send(request, token, now) {
                        self.events.push_back(Event::Reply(token, Reply::not_sent(error)));
                    }
                }
                Some(Waiting::Forget(path, kind)) => self.remove_one_shot(&path, kind, now),
                Some(Waiting::Unsubscribe(path)) => self.fit_watch(&path, now),
                None => return,
            }
        }
    }

    fn check_ready(&self, epoch: u64, request: &impl ToString) -> Result<(), Error> {
        if self.over.is_some() {
            return Err(Error::SessionExpired { request: request.to_string().into() });
        }
        if !self.is_ready() || epoch != self.epoch {
            return Err(Error::ConnectionLoss { request: request.to_string().into(), sent: false, cause: None });
        }
        Ok(())
    }

    /// Sends a ping.
    pub(super) fn ping(&mut self, token: T, now: Duration) -> Result<(), (T, Error)> {
        if let Err(error) = self.check_ready(self.epoch, &"ping") {
            return Err((token, error));
        }
        self.frame(|to| RequestHeader { xid: XID_PING, op: OpCode::Ping }.encode(to));
        if let Some(connection) = &mut self.connection {
            connection.pings.push_back((token, now));
        }
        Ok(())
    }

    /// Sets a persistent watch, and returns the number of the subscriber. Watches on the nodes that the subscriber knows
    /// are set ahead of it, because before 3.9 the newest watch of a path counts. They hear every change from the
    /// subscriber's zxid up to the reply to this request.
    pub(super) fn add_watch(
        &mut self,
        path: &str,
        mode: AddWatchMode,
        resync: Option<Arc<dyn Resync>>,
        to: WatchSender,
        token: T,
        now: Duration,
    ) -> Result<u64, (T, Error)> {
        if let Err(error) = self.check_ready(self.epoch, &format!("addWatch {path}")) {
            return Err((token, error));
        }
        let size = path.len() + ADD_WATCH_OVERHEAD;
        if size > self.settings.max_frame {
            let (request, limit) = (format!("addWatch {path}").into(), self.settings.max_frame);
            return Err((token, Error::RequestTooLarge { request, size, limit }));
        }
        // After a panic the subscriber has to read everything.
        let (known, is_lost) = match resync.as_ref().map(|resync| known_of(&**resync)) {
            Some(None) => (None, true),
            known => (known.flatten().filter(|known| !known.is_empty()), false),
        };
        let parts = known.as_ref().map_or_else(Vec::new, |known| {
            parts_of_known(path, mode, known, |path| self.mode_on_server(path), self.settings.max_frame)
        });
        // Subscribed before the reply, because the first event may arrive with it.
        let id = self.armed.subscribe(path, mode, resync, to);
        if let Some(zxid) = known.as_ref().map(KnownNodes::since) {
            self.armed.resyncs(id);
            for (persistent, body) in parts {
                self.numbered(set_watches(persistent), now, Asked::Known { id, zxid }, |to| _ = to.raw(&body));
            }
        }
        if is_lost {
            self.armed.is_ahead(id);
        }
        let sent = self.armed.mode_at(path).unwrap_or(mode);
        let asked = Asked::AddWatch { path: path.to_owned(), mode, sent, id, token, zxid: self.last_seen };
        self.numbered(OpCode::AddWatch, now, asked, |to| records::encode_add_watch(path, sent, to));
        Ok(id)
    }

    /// Returns the mode of the persistent watch of a path that the server has when it gets the next request.
    fn mode_on_server(&self, path: &str) -> Option<AddWatchMode> {
        let needed = self.armed.mode_at(path)?;
        let outstanding = self.connection.iter().flat_map(|connection| connection.outstanding.iter().rev());
        let mut asked = outstanding.filter_map(|outstanding| match &outstanding.asked {
            Asked::AddWatch { path: of, sent, .. } if of == path => Some(*sent),
            Asked::Replace(of) if of == path => Some(AddWatchMode::Persistent),
            _ => None,
        });
        Some(asked.next().unwrap_or(needed))
    }

    /// Removes a subscriber and, with the last one of its path, the watch on the server. With the last recursive one a
    /// persistent watch takes the place of the recursive one.
    pub(super) fn unsubscribe(&mut self, path: &str, mode: AddWatchMode, id: u64, now: Duration) {
        if !self.armed.unsubscribe(path, mode, id) {
            return;
        }
        if self.is_ready() {
            self.fit_watch(path, now);
        } else if let Some(connection) = &mut self.connection {
            connection.waiting.push_back(Waiting::Unsubscribe(path.to_owned()));
        }
    }

    /// Removes or replaces the persistent watch of a path that has lost the last subscriber of one mode.
    fn fit_watch(&mut self, path: &str, now: Duration) {
        if self.armed.mode_at(path).is_none() {
            self.remove_watch(path, None, now);
        } else {
            self.replace_recursive(path, now);
        }
    }

    /// Replaces a recursive watch without a subscriber. A server from 3.9 on keeps it too, and its events are ignored.
    fn replace_recursive(&mut self, path: &str, now: Duration) {
        let mode = AddWatchMode::Persistent;
        if self.armed.is_recursive(path) && self.armed.mode_at(path) == Some(mode) {
            let asked = Asked::Replace(path.to_owned());
            self.numbered(OpCode::AddWatch, now, asked, |to| records::encode_add_watch(path, mode, to));
        }
    }

    /// Removes a one-shot watch without waiters.
    pub(super) fn forget(&mut self, path: &str, kind: WatchKind, now: Duration) {
        let is_ready = self.is_ready();
        match &mut self.connection {
            // The next connection does not set it again.
            None => self.armed.disarm(path, kind),
            Some(connection) if is_ready && connection.waiting.is_empty() => self.remove_one_shot(path, kind, now),
            // Sent behind the requests that wait, or behind the watches that are being set again.
            Some(connection) => connection.waiting.push_back(Waiting::Forget(path.to_owned(), kind)),
        }
    }

    fn remove_one_shot(&mut self, path: &str, kind: WatchKind, now: Duration) {
        if self.armed.can_remove(path, kind) {
            if self.armed.is_armed(path, kind) || self.reads_that_set(path, kind).next().is_some() {
                self.remove_watch(path, Some(kind), now);
            }
            return;
        }
        self.armed.disarm(path, kind);
        // Reads on their way have lost their waiters too: their replies must not arm it.
        self.reads_that_set(path, kind).for_each(|watch| *watch = false);
    }

    /// Returns the flags of the reads on their way that set a one-shot watch of this kind.
    fn reads_that_set(&mut self, path: &str, kind: WatchKind) -> impl Iterator<Item = &mut bool> {
        let outstanding = self.connection.iter_mut().flat_map(|connection| &mut connection.outstanding);
        outstanding.filter_map(move |outstanding| {
            let Asked::Request(request, _) = &mut outstanding.asked else { return None };
            let (read, of, watch) = watch_of(request)?;
            (*watch && (read, of) == (path, kind)).then_some(watch)
        })
    }

    fn remove_watch(&mut self, path: &str, kind: Option<WatchKind>, now: Duration) {
        let watcher = match kind {
            Some(WatchKind::Children) => WATCHER_CHILDREN,
            Some(WatchKind::Data) => WATCHER_DATA,
            None => WATCHER_ANY,
        };
        let asked = Asked::RemoveWatch { path: path.to_owned(), kind, zxid: self.last_seen };
        self.numbered(OpCode::RemoveWatches, now, asked, |to| _ = to.string(path).int(watcher));
    }

    /// Sets the one-shot watches of a path again that the server has lost with the addition or the removal of a
    /// persistent watch. It replays the events since that was sent, with zxid `zxid` as the newest one.
    fn set_again(&mut self, path: &str, zxid: i64, now: Duration) {
        if let Some((watches, body)) = self.armed.part_of(path, zxid) {
            let asked = Asked::SetAgain { path: path.to_owned(), watches, zxid };
            self.numbered(OpCode::SetWatches, now, asked, |to| _ = to.raw(&body));
        }
    }

    /// Records whether the session owns nodes: if so, silence counts as a broken connection sooner.
    pub(super) fn set_owning(&mut self, owning: bool, now: Duration) {
        self.owning_since = owning.then_some(now);
    }

    /// Ends the session: replies to every caller, and sends closeSession behind the requests that count as sent.
    pub(super) fn close(&mut self, now: Duration) {
        self.end(SessionEnd::Closed);
        self.send_close(now);
    }

    /// Ends the session because its task is gone: replies to every caller.
    pub(super) fn fail(&mut self) {
        self.end(SessionEnd::ClientFailed);
    }

    fn send_close(&mut self, now: Duration) {
        if self.is_ready() {
            self.append_close(now);
        }
    }

    fn append_close(&mut self, now: Duration) {
        self.numbered(OpCode::CloseSession, now, Asked::Close, |_| {});
        if let Some(connection) = &mut self.connection {
            connection.phase = Phase::Closing;
        }
    }

    /// Appends closeSession to the output of a session that has ended, unless it is there. It does not wait for the
    /// replies to credentials and lists of watches: a server handles requests in order. Returns `false` if the server
    /// has the session no more, or has not attached it to this connection.
    pub(super) fn close_at_once(&mut self) -> bool {
        let is_attached = self.connection.is_some() && !self.is_connecting();
        if !is_attached || !self.over.is_some_and(|end| end.needs_close() || end == SessionEnd::ClientFailed) {
            return false;
        }
        if !self.connection.as_ref().is_some_and(|connection| matches!(connection.phase, Phase::Closing)) {
            // The reply is not awaited, so its moment is not needed.
            self.append_close(Duration::ZERO);
        }
        true
    }

    /// Leaves only the close of the session to do, without credentials, because the server may have rejected them.
    pub(super) fn abandon(&mut self) {
        self.settings.auth = Vec::new();
        self.settings.sasl = None;
        self.over = Some(SessionEnd::Closed);
    }

    /// Ends the session: replies to every caller.
    fn end(&mut self, end: SessionEnd) {
        if self.over.is_some() {
            if end == SessionEnd::Expired {
                // The server does not have the session any more, so a close is not needed.
                self.events.push_back(Event::Closed);
            }
            return;
        }
        self.over = Some(end);
        let expired = |request: String| Error::SessionExpired { request: request.into() };
        let mut unwritten = self.take_unwritten();
        if let Some(connection) = &mut self.connection {
            for outstanding in connection.outstanding.iter_mut().chain(&mut unwritten) {
                let sent = (outstanding.offset < connection.written).then_some(outstanding.sent);
                let reply = |error| Reply { sent, ..Reply::not_sent(error) };
                if matches!(outstanding.asked, Asked::Sasl | Asked::Compare(_)) {
                    // The close of the session follows the reply.
                    continue;
                }
                match std::mem::replace(&mut outstanding.asked, Asked::Abandoned) {
                    Asked::Request(request, token) => {
                        self.events.push_back(Event::Reply(token, reply(expired(request.to_string()))));
                    }
                    Asked::AddWatch { path, token, .. } => {
                        self.events.push_back(Event::Reply(token, reply(expired(format!("addWatch {path}")))));
                    }
                    _ => {}
                }
            }
            for waiting in connection.waiting.drain(..) {
                let Waiting::Request(request, token) = waiting else { continue };
                let error = expired(request.to_string());
                self.events.push_back(Event::Reply(token, Reply::not_sent(error)));
            }
            for (token, _) in connection.pings.drain(..) {
                self.events.push_back(Event::Reply(token, Reply::not_sent(expired("ping".to_owned()))));
            }
        }
        self.armed = Armed::default();
        self.events.push_back(Event::Ended(end));
    }

    /// Removes the requests of which the transport has taken no byte, with their frames and all frames behind them. Their
    /// replies say that they were not sent, and that stays true.
    fn take_unwritten(&mut self) -> VecDeque<Outstanding<T>> {
        let Some(connection) = &mut self.connection else { return VecDeque::new() };
        if !matches!(connection.phase, Phase::Ready) {
            // Only a login is outstanding, and the close of the session needs it.
            return VecDeque::new();
        }
        let written = connection.written;
        let begun = connection.outstanding.partition_point(|outstanding| outstanding.offset < written);
        if let Some(first) = connection.outstanding.get(begun) {
            self.output.truncate(usize::try_from(first.offset - written).unwrap_or(usize::MAX));
        }
        connection.outstanding.split_off(begun)
    }

    /// Ends the outstanding requests of a lost connection as `ConnectionLoss`, with `sent: false` if never written.
    pub(super) fn lost(&mut self, cause: Option<ConnectError>) {
        self.decide(XID_EVENT);
        let Some(connection) = self.connection.take() else { return };
        let cause = cause.map(Arc::new);
        let was_ready = matches!(connection.phase, Phase::Ready);
        let mut watch_base = self.last_seen;
        let mut blamed = was_ready && self.blames_the_oldest(&connection);
        for Outstanding { offset, size, sent, asked, .. } in connection.outstanding {
            let left = offset < connection.written;
            let losses = std::mem::take(&mut blamed).then_some(LOSSES_OF_ONE_REQUEST);
            let lost = |request: String| {
                let request = request.into();
                let error = match losses {
                    Some(losses) => Error::EndsConnections { request, size, losses },
                    None => Error::ConnectionLoss { request, sent: left, cause: cause.clone() },
                };
                Reply { sent: left.then_some(sent), ..Reply::not_sent(error) }
            };
            match asked {
                Asked::Request(request, token) => {
                    self.events.push_back(Event::Reply(token, lost(request.to_string())));
                }
                Asked::AddWatch { path, mode, id, token, .. } => {
                    self.armed.unsubscribe(&path, mode, id);
                    self.events.push_back(Event::Reply(token, lost(format!("addWatch {path}"))));
                }
                Asked::RemoveWatch { path, kind: Some(kind), .. } => self.armed.disarm(&path, kind),
                Asked::SetAgain { zxid, .. } => watch_base = watch_base.min(zxid),
                Asked::RemoveWatch { kind: None, .. }
                | Asked::Known { .. }
                | Asked::Replace(_)
                | Asked::Compare(_)
                | Asked::Sasl
                | Asked::Close
                | Asked::Abandoned => {}
            }
        }
        for waiting in connection.waiting {
            let (request, token) = match waiting {
                Waiting::Request(request, token) => (request, token),
                Waiting::Forget(path, kind) => {
                    self.armed.disarm(&path, kind);
                    continue;
                }
                Waiting::Unsubscribe(_) => continue,
            };
            let error =
                Error::ConnectionLoss { request: request.to_string().into(), sent: false, cause: cause.clone() };
            self.events.push_back(Event::Reply(token, Reply::not_sent(error)));
        }
        for (token, _) in connection.pings {
            let error = Error::ConnectionLoss { request: "ping".into(), sent: true, cause: cause.clone() };
            self.events.push_back(Event::Reply(token, Reply::not_sent(error)));
        }
        self.output.clear();
        self.watch_base.get_or_insert(watch_base);
        // Only the read-only server knows this session.
        if was_ready && self.session.as_ref().is_some_and(|session| session.local) {
            self.end(SessionEnd::Expired);
        }
    }

    /// Counts a loss of the connection with this oldest request. Returns `true` at the third loss in a row with the same
    /// one: its length is the likely cause. A server closes the connection at a request above its limit.
    fn blames_the_oldest(&mut self, connection: &Connection<T>) -> bool {
        let oldest = match connection.outstanding.front() {
            Some(Outstanding { offset, size, asked: Asked::Request(request, _), .. })
                if *size >= SUSPICIOUS && *offset < connection.written =>
            {
                (request.to_string(), *size)
            }
            _ => {
                self.suspect = None;
                return false;
            }
        };
        let losses = match self.suspect.take() {
            Some((request, size, losses)) if (&request, size) == (&oldest.0, oldest.1) => losses + 1,
            _ => 1,
        };
        if losses == LOSSES_OF_ONE_REQUEST {
            return true;
        }
        self.suspect = Some((oldest.0, oldest.1, losses));
        false
    }

    /// Returns the scheme of the credentials that the server did not accept.
    pub(super) fn refused_scheme(&self) -> Option<&str> {
        self.refused_scheme.as_deref()
    }

    /// Returns the bytes to be written.
    pub(super) fn output(&self) -> &[u8] {
        &self.output
    }

    /// Removes the bytes that the transport has taken from the output.
    pub(super) fn written(&mut self, count: usize) {
        if let Some(connection) = &mut self.connection {
            connection.written += count as u64;
        }
        if count == self.output.len() {
            self.output.clear();
            self.output.shrink_to(KEPT_OUTPUT);
        } else {
            self.output.drain(..count);
        }
    }

    /// Takes the oldest event.
    pub(super) fn next_event(&mut self) -> Option<Event<T>> {
        let event = self.events.pop_front();
        if self.events.is_empty() && self.events.capacity() > KEPT_EVENTS {
            self.events = VecDeque::new();
        }
        event
    }

    /// Returns the moment at which the driver gives the connection up if no byte arrives before.
    pub(super) fn silence_limit(&self) -> Option<Duration> {
        let connection = self.connection.as_ref().filter(|connection| matches!(connection.phase, Phase::Ready))?;
        let idle = connection.heard + self.timeout * 2 / 3;
        // Heartbeats are rarer before the session owns nodes, so the shorter limit counts from that moment.
        Some(self.owning_since.map_or(idle, |since| idle.min(connection.heard.max(since) + self.timeout / 3)))
    }

    /// Returns the time since the newest byte arrived.
    pub(super) fn silence(&self, now: Duration) -> Duration {
        self.connection.as_ref().map_or(Duration::ZERO, |connection| now.saturating_sub(connection.heard))
    }

    /// Returns the moment until which the session should be attached again: a third of the timeout after the loss. A
    /// session that owns nodes gives a silent connection up after another third, so two thirds of the timeout pass.
    pub(super) fn reattach_limit(&self, lost_at: Duration) -> Duration {
        lost_at + self.timeout / 3
    }

    /// Takes all whole frames, and returns the number of their bytes.
    ///
    /// # Errors
    ///
    /// A [`Violation`] by the server: the driver must close the connection.
    pub(super) fn receive(&mut self, bytes: &[u8], now: Duration) -> Result<usize, Violation> {
        let mut consumed = 0;
        if let Some(connection) = &mut self.connection {
            connection.heard = connection.heard.max(now);
        }
        while let Some(connection) = &mut self.connection {
            let skipped = connection.skips.min(bytes.len() - consumed);
            connection.skips -= skipped;
            consumed += skipped;
            let Some((length, rest)) = bytes[consumed..].split_first_chunk::<4>() else { break };
            let length = self.frame_length(i32::from_be_bytes(*length))?;
            if length > self.settings.max_reply {
                let Some(header) = rest.get(..REPLY_HEADER) else { break };
                consumed += 4 + REPLY_HEADER;
                self.skip(header, length, now)?;
                continue;
            }
            let Some(frame) = rest.get(..length) else { break };
            consumed += 4 + length;
            self.take_frame(frame, now)?;
        }
        Ok(consumed)
    }

    /// Ends the oldest request, because its reply is above the limit, and skips the rest of the reply. A read has
    /// changed nothing, so the connection stays open.
    fn skip(&mut self, header: &[u8], length: usize, now: Duration) -> Result<(), Violation> {
        let limit = self.settings.max_reply;
        let bad = |error| Violation(format!("a bad reply header: {error}"));
        let header = ReplyHeader::decode(&mut Reader::new(header)).map_err(bad)?;
        let above = || Violation(format!("a frame of {length} bytes is above the limit of {limit}"));
        let connection = self.connection.as_mut().ok_or_else(above)?;
        let path = match connection.outstanding.front() {
            Some(Outstanding { xid, offset, asked: Asked::Request(request, _), .. })
                if *xid == header.xid && header.err == 0 && *offset < connection.written =>
            {
                path_of_read(request).ok_or_else(above)?
            }
            _ => return Err(above()),
        };
        let error = Error::ReplyTooLarge { path: (&**path).into(), size: length, limit };
        connection.skips = length - REPLY_HEADER;
        self.decide(header.xid);
        self.last_seen = self.last_seen.max(header.zxid);
        let oldest = self.connection.as_mut().and_then(|connection| connection.outstanding.pop_front());
        if let Some(Outstanding { sent, asked: Asked::Request(_, token), .. }) = oldest {
            let reply = Reply { sent: Some(sent), epoch: self.epoch, zxid: header.zxid, result: Err(error) };
            self.events.push_back(Event::Reply(token, reply));
        }
        self.send_waiting(now);
        Ok(())
    }

    fn frame_length(&self, length: i32) -> Result<usize, Violation> {
        let is_first = self.is_connecting();
        if is_first && self.connection.as_ref().is_none_or(|connection| connection.written == 0) {
            // A response is evidence only if its request was sent before.
            return Err(Violation::new("it spoke first"));
        }
        match usize::try_from(length) {
            Ok(length) if is_first && !CONNECT_RESPONSE.contains(&length) => {
                Err(Violation::new("it does not speak ZooKeeper's protocol"))
            }
            Ok(length) if length <= LONGEST_SKIP => Ok(length),
            Ok(length) => Err(Violation(format!("a frame of {length} bytes is above the limit of {LONGEST_SKIP}"))),
            Err(_negative) => Err(Violation(format!("a frame of negative length {length}"))),
        }
    }

    /// Returns `true` if the connect response is outstanding.
    pub(super) fn is_connecting(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| match &connection.phase {
            Phase::Connecting => true,
            Phase::LoggingIn(login) => !login.has_begun(),
            _ => false,
        })
    }

    fn take_frame(&mut self, frame: &[u8], now: Duration) -> Result<(), Violation> {
        let mut from = Reader::new(frame);
        let bad = |what: &str, error: &dyn std::fmt::Display| Violation(format!("a bad {what}: {error}"));
        if self.is_connecting() {
            let response = ConnectResponse::decode(&mut from).map_err(|error| bad("connect response", &error))?;
            return self.connected(response, now);
        }
        let header = ReplyHeader::decode(&mut from).map_err(|error| bad("reply header", &error))?;
        if header.xid != XID_EVENT {
            // Ahead of an error the server replays nothing.
            self.decide(if header.err == 0 { header.xid } else { XID_EVENT });
            self.last_seen = self.last_seen.max(header.zxid);
        }
        match header.xid {
            XID_EVENT => {
                let event = records::decode_event(&mut from).map_err(|error| bad("notification", &error))?;
                event.into_iter().for_each(|event| self.notified(event));
                Ok(())
            }
            XID_PING => {
                let ping = self.connection.as_mut().and_then(|connection| connection.pings.pop_front());
                if let Some((token, sent)) = ping {
                    let reply = Reply {
                        sent: Some(sent),
                        epoch: self.epoch,
                        zxid: header.zxid,
                        result: Ok(Response::Acknowledged),
                    };
                    self.events.push_back(Event::Reply(token, reply));
                } else if self.over.is_none() {
                    return Err(Violation::new("a reply to a ping that was not sent"));
                }
                Ok(())
            }
            XID_AUTH if header.err != 0 => {
                // Replies come in the order of the credentials.
                let left = match self.connection.as_ref().map(|connection| &connection.phase) {
                    Some(Phase::Restoring { credentials, .. }) => *credentials,
                    _ => 0,
                };
                let refused = self.settings.auth.iter().rev().nth(left.saturating_sub(1));
                self.refused_scheme = refused.map(|auth| auth.scheme.clone());
                self.end(SessionEnd::AuthFailed);
                Ok(())
            }
            XID_AUTH => self.restored(now, |credentials, _| credentials.checked_sub(1).map(|left| *credentials = left)),
            XID_SET_WATCHES if ![0, THROTTLED].contains(&header.err) => refused_watches(header.err),
            XID_SET_WATCHES => {
                if let (THROTTLED, Some(connection)) = (header.err, &mut self.connection) {
                    connection.throttled_until = Some(now + THROTTLED_PAUSE);
                }
                self.restored(now, |_, parts| parts.pop_front().map(drop))
            }
            _ => self.replied(header, &mut from, now),
        }
    }

    fn notified(&mut self, event: WatchedEvent) {
        let Some(connection) = &self.connection else { return };
        let [is_ready, is_restoring] = match connection.phase {
            Phase::Ready => [true, false],
            Phase::Restoring { .. } => [false, true],
            _ => [false, false],
        };
        let was_armed = self.armed.fired(&event);
        let oldest = connection.outstanding.front().map(|oldest| &oldest.asked);
        // A server sends an event ahead of every reply that shows a transaction as new as the event's, but repeats the
        // events since the transaction that the client has named.
        let before = match (oldest, &connection.phase) {
            (Some(Asked::SetAgain { zxid, .. } | Asked::Known { zxid, .. }), _) => *zxid,
            (_, Phase::Restoring { parts, .. }) => parts.front().copied().unwrap_or(self.last_seen),
            _ => self.last_seen,
        };
        if !connection.read_only {
            // A subscriber may name a transaction that no server has reached.
            self.history.notified(&event, before.min(self.last_seen));
        }
        match oldest {
            Some(Asked::SetAgain { path, .. }) if *path == event.path => self.undecided.push(event.clone()),
            _ => {
                self.decide(XID_EVENT);
                self.armed.tell(&event, is_restoring);
            }
        }
        // At most one event for each watch, however many the server sends. The others are those of subscribers.
        if was_armed && is_restoring {
            self.held_back.push(event);
        } else if was_armed && is_ready {
            self.events.push_back(Event::Notification(event));
        }
    }

    /// Notifies subscribers of the undecided events, apart from those that the server has replayed ahead of its reply to
    /// this request. The replays stand directly ahead of the reply, and each repeats an event that subscribers got.
    fn decide(&mut self, xid: i32) {
        let undecided = std::mem::take(&mut self.undecided);
        let oldest = self.connection.as_ref().and_then(|connection| connection.outstanding.front());
        let replayed = match oldest {
            Some(Outstanding { xid: of, asked: Asked::SetAgain { watches, .. }, .. }) if *of == xid => {
                watches.replayed(&undecided)
            }
            _ => 0,
        };
        for event in &undecided[..undecided.len() - replayed] {
            self.armed.tell(event, false);
        }
    }

    fn connected(&mut self, response: ConnectResponse, now: Duration) -> Result<(), Violation> {
        if response.timeout_ms <= 0 || response.session_id == 0 {
            if self.session.is_none() {
                return Err(Violation::new("the server refused a new session"));
            }
            self.end(SessionEnd::Expired);
            return Ok(());
        }
        let granted = Duration::from_millis(u64::from(response.timeout_ms.unsigned_abs()));
        if self.session_id() == Some(response.session_id) && granted < self.timeout {
            // Even if this connection fails, the server counts by this timeout from now on.
            self.timeout = granted;
            if let Some(connection) = &self.connection {
                self.events.push_back(Event::Shortened { sent: connection.connect_sent, timeout: granted });
            }
        }
        let read_only = response.read_only == Some(true);
        if read_only && !self.settings.read_only {
            return Err(Violation::new("the server is read-only"));
        }
        if granted < MIN_SESSION_TIMEOUT {
            return Err(Violation(format!(
                "it grants a session timeout of {granted:?}, less than {MIN_SESSION_TIMEOUT:?}"
            )));
        }
        match &mut self.session {
            Some(session) if session.id != response.session_id => {
                self.end(SessionEnd::Inconsistent);
                return Ok(());
            }
            Some(session) => session.password = response.password,
            None => {
                let key = SessionKey { id: response.session_id, password: response.password, local: read_only };
                self.session = Some(key);
                self.timeout = granted;
            }
        }
        self.epoch += 1;
        let Some(connection) = &mut self.connection else { return Ok(()) };
        connection.read_only = read_only;
        match &mut connection.phase {
            Phase::LoggingIn(login) => {
                let first = login.begin();
                self.numbered(OpCode::Sasl, now, Asked::Sasl, |to| _ = to.buffer(&first));
            }
            _ => self.restore(now),
        }
        Ok(())
    }

    /// Sends credentials, then questions about known writes. The watches follow the replies to these.
    fn restore(&mut self, now: Duration) {
        self.armed.restoring();
        let auth = std::mem::take(&mut self.settings.auth);
        for AuthInfo { scheme, auth } in &auth {
            self.frame(|to| {
                RequestHeader { xid: XID_AUTH, op: OpCode::Auth }.encode(to);
                to.int(0).string(scheme).buffer(auth);
            });
        }
        let credentials = auth.len();
        self.settings.auth = auth;
        if let Some(connection) = &mut self.connection {
            connection.phase = Phase::Restoring { credentials, questions: 0, parts: VecDeque::new() };
        }
        let is_compared = self.watch_base != Some(BEFORE_ALL) && self.over.is_none();
        let comparison = if is_compared { self.history.compare() } else { None };
        self.comparison = comparison.map(|comparison| (comparison, Judgement::Unknown));
        self.compare(now);
        self.finish_restoring(now);
    }

    /// Asks for known writes until one of them decides if the server's history contains them, then restores the watches.
    fn compare(&mut self, now: Duration) {
        let comparison = self.comparison.take().filter(|_| self.over.is_none());
        let Some((mut comparison, judgement)) = comparison else { return self.restore_watches() };
        let is_elected = self.watch_base.is_some_and(|base| base >> EPOCH < self.last_seen >> EPOCH);
        let round = comparison.next_round(judgement, is_elected);
        if round.is_empty() {
            match judgement {
                // Newer writes of the session's own history may be missing, so their nodes are read again.
                Judgement::Same { up_to } => {
                    self.watch_base = Some(self.watch_base.unwrap_or(self.last_seen).min(up_to))
                }
                // Nodes that the session has deleted may exist again, and would exist as long as the session.
                Judgement::Other => return self.end(SessionEnd::RolledBack),
                // The client knows deletions alone, and no server can prove these.
                Judgement::Unknown if !comparison.can_prove() => {}
                Judgement::Doubtful | Judgement::Unknown => self.begin_anew(),
            }
            return self.restore_watches();
        }
        self.comparison = Some((comparison, judgement));
        if let Some(Phase::Restoring { questions, .. }) =
            self.connection.as_mut().map(|connection| &mut connection.phase)
        {
            *questions = round.len();
        }
        for question in round {
            self.ask(question, now);
        }
    }

    fn ask(&mut self, question: Question, now: Duration) {
        let path = Arc::clone(&question.path);
        self.numbered(OpCode::Exists, now, Asked::Compare(question), |to| _ = to.string(&path).bool(false));
    }

    /// Handles the reply to a question.
    fn compared(
        &mut self,
        question: Question,
        err: i32,
        from: &mut Reader<'_>,
        now: Duration,
    ) -> Result<(), Violation> {
        if err == THROTTLED {
            // The server was too busy to look, so this says nothing of the node.
            self.ask(question, now);
            return Ok(());
        }
        let bad = |error| Violation(format!("a bad reply to exists {}: {error}", question.path));
        let found = if err == 0 { Some(records::decode_only_stat(from).map_err(bad)?) } else { None };
        if err == ErrorCode::NoNode.code() && question.is_of_write() {
            // A parent from a backup has its old pzxid, so no event of its children tells the owner. The server is not one
            // that lags: it has the newest transaction that the client has seen.
            let path = question.path.to_string();
            self.history.is_missing(&path, self.last_seen);
            self.held_back.push(WatchedEvent { event_type: EventType::NodeDeleted, path });
        }
        if let Some((comparison, judgement)) = &mut self.comparison {
            *judgement = comparison.decide(*judgement, question.judge(found.as_ref()));
        }
        let Some(Phase::Restoring { questions, .. }) = self.connection.as_mut().map(|connection| &mut connection.phase)
        else {
            return Ok(());
        };
        *questions = questions.saturating_sub(1);
        if *questions == 0 {
            self.compare(now);
            self.finish_restoring(now);
        }
        Ok(())
    }

    /// Trusts nothing that the session has read. The server replays the events since its first transaction, so watches
    /// fire but for nodes that are still missing.
    fn begin_anew(&mut self) {
        self.history = History::default();
        self.watch_base = Some(BEFORE_ALL);
        let session = self.session_id().unwrap_or_default();
        report(move || tracing::warn!(session, "the servers may have another history, all nodes are read again"));
    }

    /// Sends the watches of the session.
    fn restore_watches(&mut self) {
        let zxid = self.watch_base.unwrap_or(self.last_seen);
        let lists = self.armed.parts(zxid, self.settings.max_frame);
        for (persistent, body) in &lists {
            self.frame(|to| {
                RequestHeader { xid: XID_SET_WATCHES, op: set_watches(*persistent) }.encode(to);
                to.raw(body);
            });
        }
        if let Some(Phase::Restoring { parts, .. }) = self.connection.as_mut().map(|connection| &mut connection.phase) {
            let zxids = lists.iter().filter_map(|(_, body)| body.first_chunk().copied());
            *parts = zxids.map(i64::from_be_bytes).collect();
        }
    }

    fn restored(
        &mut self,
        now: Duration,
        count: impl FnOnce(&mut usize, &mut VecDeque<i64>) -> Option<()>,
    ) -> Result<(), Violation> {
        let counted = match self.connection.as_mut().map(|connection| &mut connection.phase) {
            Some(Phase::Restoring { credentials, parts, .. }) => count(credentials, parts),
            _ => None,
        };
        if counted.is_none() && self.over.is_none() {
            return Err(Violation::new("a reply to credentials or watches that were not sent"));
        }
        self.finish_restoring(now);
        Ok(())
    }

    /// Returns the moment at which the driver calls [`set_throttled_watches`](Self::set_throttled_watches). The server has
    /// answered all lists by then: another one must not take the place of a persistent watch.
    pub(super) fn watches_again_at(&self) -> Option<Duration> {
        self.connection.as_ref().filter(|connection| connection.phase.has_restored())?.throttled_until
    }

    /// Sets the watches again that a busy server has refused, if the pause has passed.
    pub(super) fn set_throttled_watches(&mut self, now: Duration) {
        let Some(connection) = self.connection.as_mut().filter(|one| one.phase.has_restored()) else { return };
        if connection.throttled_until.take_if(|until| *until <= now).is_some() {
            if self.over.is_none() {
                self.restore_watches();
            }
            self.finish_restoring(now);
        }
    }

    fn finish_restoring(&mut self, now: Duration) {
        let Some(connection) = &mut self.connection else { return };
        let is_logged_in = matches!(connection.phase, Phase::Restoring { credentials: 0, .. });
        if !is_logged_in || !connection.phase.has_restored() || connection.throttled_until.is_some() {
            return;
        }
        connection.phase = Phase::Ready;
        if self.over.is_some() {
            // The session has ended without a connection that could carry its close.
            return self.send_close(now);
        }
        self.watch_base = None;
        let reattached =
            Reattached { sent: connection.connect_sent, leader_sent: None, timeout: self.timeout, epoch: self.epoch };
        self.events.push_back(Event::Connected { reattached, read_only: connection.read_only });
        self.events.extend(self.held_back.drain(..).map(Event::Notification));
        self.armed.restored(self.epoch);
        self.send_waiting(now);
    }

    fn replied(&mut self, header: ReplyHeader, from: &mut Reader<'_>, now: Duration) -> Result<(), Violation> {
        let Some(connection) = &mut self.connection else { return Ok(()) };
        let index = connection.answered_by(&header)?;
        let outstanding = &mut connection.outstanding;
        let bad = |request: &dyn std::fmt::Display, error| Violation(format!("a bad reply to {request}: {error}"));
        let result = match &outstanding[index].asked {
            Asked::Request(request, _) if header.err == 0 => {
                Some(records::decode(request, from).map_err(|error| bad(request, error))?)
            }
            Asked::Request(request, _) => Some(records::decode_error(request, header.err)),
            _ => None,
        };
        let Some(Outstanding { sent, asked, size, .. }) = outstanding.remove(index) else { return Ok(()) };
        if let Asked::Compare(question) = asked {
            return self.compared(question, header.err, from, now);
        }
        self.send_waiting(now);
        let epoch = self.epoch;
        let reply = |result| Reply { sent: Some(sent), epoch, zxid: header.zxid, result };
        match (asked, result) {
            (Asked::Request(request, token), Some(result)) => {
                if let Some((path, left)) = left_by(&request, &result) {
                    self.armed.arm(path, left);
                }
                if self.connection.as_ref().is_some_and(|connection| !connection.read_only) {
                    self.history.replied(&request, &result, header.zxid);
                }
                // A request that was answered since has not ended the connection.
                self.suspect.take_if(|suspect| suspect.1 == size && suspect.0 == request.to_string());
                let expired = matches!(result, Err(Error::SessionExpired { .. }));
                self.events.push_back(Event::Reply(token, reply(result)));
                if expired {
                    self.end(SessionEnd::Expired);
                }
            }
            (Asked::AddWatch { path, mode, sent, id, token, zxid }, _) => {
                let result = match header.err {
                    0 => Ok(self.added(&path, sent, id, zxid, now)),
                    code => {
                        // The reply to the removal sets the watches of reads again that rest on this one.
                        self.unsubscribe(&path, mode, id, now);
                        Err(Error::of_code(&path, code, ADD_WATCH_NEEDS, || format!("addWatch {path}")))
                    }
                };
                self.events.push_back(Event::Reply(token, reply(result)));
            }
            (Asked::RemoveWatch { path, kind: Some(kind), .. }, _) => self.armed.disarm(&path, kind),
            (Asked::RemoveWatch { path, kind: None, zxid }, _) => self.set_again(&path, zxid, now),
            (Asked::Replace(path), _) if header.err == 0 => self.armed.is_set(&path, AddWatchMode::Persistent),
            (Asked::Known { id, zxid }, _) if header.err == 0 && zxid > self.last_seen => self.armed.is_ahead(id),
            (Asked::SetAgain { path, zxid, .. }, _) if header.err == THROTTLED => self.set_again(&path, zxid, now),
            (Asked::Known { id, .. }, _) if header.err == THROTTLED => self.armed.is_ahead(id),
            (Asked::SetAgain { .. } | Asked::Known { .. }, _) if header.err != 0 => return refused_watches(header.err),
            (Asked::Sasl, _) => return self.logged_in(header.err, from, now),
            (Asked::Close, _) => self.events.push_back(Event::Closed),
            _ => {}
        }
        Ok(())
    }

    /// Records that the server has set a persistent watch.
    fn added(&mut self, path: &str, sent: AddWatchMode, id: u64, zxid: i64, now: Duration) -> Response {
        self.armed.is_set(path, sent);
        self.armed.resynced(id, self.epoch);
        self.replace_recursive(path, now);
        self.set_again(path, zxid, now);
        Response::Acknowledged
    }

    /// Continues the login by SASL.
    fn logged_in(&mut self, err: i32, from: &mut Reader<'_>, now: Duration) -> Result<(), Violation> {
        let Some(Phase::LoggingIn(login)) = self.connection.as_mut().map(|connection| &mut connection.phase) else {
            return Err(Violation::new("a reply to a login that was not begun"));
        };
        if err != 0 {
            self.refused_scheme = Some("sasl".to_owned());
            self.end(SessionEnd::AuthFailed);
            return Ok(());
        }
        let token = from.buffer().map_err(|error| Violation(format!("a bad reply to sasl: {error}")))?;
        match login.step(token).map_err(|reason| Violation(format!("SASL: {reason}")))? {
            Some(answer) => self.numbered(OpCode::Sasl, now, Asked::Sasl, |to| _ = to.buffer(&answer)),
            None => self.restore(now),
        }
        Ok(())
    }
}

/// Returns the request without the data that is in the output already.
fn without_data(mut request: Request) -> Request {
    match &mut request {
        Request::Create { data, acl, .. } => {
            *data = Vec::new();
            *acl = Vec::new();
        }
        Request::SetData { data, .. } => *data = Vec::new(),
        Request::SetAcl { acl, .. } => *acl = Vec::new(),
        _ => {}
    }
    request
}

const fn set_watches(persistent: bool) -> OpCode {
    if persistent { OpCode::SetWatches2 } else { OpCode::SetWatches }
}

fn refused_watches(err: i32) -> Result<(), Violation> {
    Err(Violation(format!("the server answered {err} to setWatches")))
}

/// Returns the path of a request that changes nothing and asks for data of any length.
fn path_of_read(request: &Request) -> Option<&Arc<str>> {
    match request {
        Request::Exists { path, .. }
        | Request::GetData { path, .. }
        | Request::GetChildren { path, .. }
        | Request::GetAcl { path } => Some(path),
        _ => None,
    }
}

/// Returns path and kind of the one-shot watch that a read can set, and `true` if it sets it.
fn watch_of(request: &mut Request) -> Option<(&str, WatchKind, &mut bool)> {
    match request {
        Request::Exists { path, watch } | Request::GetData { path, watch } => Some((path, WatchKind::Data, watch)),
        Request::GetChildren { path, watch } => Some((path, WatchKind::Children, watch)),
        _ => None,
    }
}

/// Returns the watch that a read has left.
fn left_by<'a>(request: &'a Request, result: &Result<Response, Error>) -> Option<(&'a Arc<str>, Left)> {
    match (request, result) {
        (Request::Exists { path, watch: true }, Ok(Response::Exists(Some(_)))) => Some((path, Left::Data)),
        (Request::Exists { path, watch: true }, Ok(Response::Exists(None))) => Some((path, Left::Missing)),
        (Request::GetData { path, watch: true }, Ok(_)) => Some((path, Left::Data)),
        (Request::GetChildren { path, watch: true }, Ok(_)) => Some((path, Left::Children)),
        _ => None,
    }
}

#[cfg(test)]
mod golden;
#[cfg(test)]
mod stories;
#[cfg(test)]
mod tests {
    use super::*;

    fn attached() -> Protocol<u32> {
        let mut protocol = Protocol::new(Settings {
            session_timeout: Duration::from_secs(9),
            auth: Vec::new(),
            sasl: None,
            read_only: false,
            max_frame: 4096,
            max_reply: 4096,
        });
        attach(&mut protocol, 9000).unwrap();
        protocol
    }

    fn attach(protocol: &mut Protocol<u32>, timeout_ms: i32) -> Result<usize, Violation> {
        protocol.open(Duration::ZERO, 0);
        let _connect = write(protocol);
        let response =
            ConnectResponse { timeout_ms, session_id: 7, password: vec![1; 16], ..ConnectResponse::default() };
        receive(protocol, |to| response.encode(to))
    }

    /// Takes the output and returns it.
    fn write(protocol: &mut Protocol<u32>) -> Vec<u8> {
        let bytes = protocol.output().to_vec();
        protocol.written(bytes.len());
        bytes
    }

    fn receive(protocol: &mut Protocol<u32>, body: impl FnOnce(&mut Writer)) -> Result<usize, Violation> {
        let mut to = Writer::new();
        to.int(0);
        body(&mut to);
        let mut bytes = to.into_bytes();
        let length = (bytes.len() - 4) as u32;
        bytes[..4].copy_from_slice(&length.to_be_bytes());
        protocol.receive(&bytes, Duration::ZERO)
    }

    fn exists() -> Request {
        Request::Exists { path: "/a".into(), watch: false }
    }

    fn submit(protocol: &mut Protocol<u32>, token: u32) -> i32 {
        let epoch = protocol.epoch;
        protocol.submit(exists(), epoch, token, Duration::ZERO).unwrap();
        let frame = write(protocol);
        RequestHeader::decode(&mut Reader::new(&frame[4..])).unwrap().xid
    }

    #[test]
    fn xids_wrap_from_the_largest_to_one() {
        let mut protocol = attached();
        protocol.next_xid = i32::MAX - 1;
        let first: Vec<_> = (0..2).map(|token| submit(&mut protocol, token)).collect();
        protocol.armed.arm(&"/a".into(), Left::Data);
        protocol.unsubscribe("/a", AddWatchMode::Persistent, 0, Duration::ZERO);
        protocol.forget("/a", WatchKind::Data, Duration::ZERO);
        let removal = write(&mut protocol);
        let removal = RequestHeader::decode(&mut Reader::new(&removal[4..])).unwrap();
        assert_eq!((first, removal.xid, removal.op), (vec![i32::MAX - 1, i32::MAX], 1, OpCode::RemoveWatches));
        protocol.lost(None);
        attach(&mut protocol, 9000).unwrap();
        assert_eq!(submit(&mut protocol, 3), 2, "the next connection goes on");
    }

    #[test]
    fn shorter_timeout_counts_also_on_a_connection_that_is_given_up() {
        for (granted, is_usable) in [(4000, true), (1000, false)] {
            let mut protocol = attached();
            protocol.lost(None);
            while protocol.next_event().is_some() {}
            assert_eq!(attach(&mut protocol, granted).is_ok(), is_usable);
            let granted = Duration::from_millis(granted.unsigned_abs().into());
            assert_eq!(protocol.timeout(), granted);
            let event = protocol.next_event();
            assert!(matches!(event, Some(Event::Shortened { timeout, .. }) if timeout == granted), "{event:?}");
        }
    }

    #[test]
    fn silence_is_limited_by_what_is_owned_and_since_when() {
        let mut protocol = attached();
        let seconds = Duration::from_secs;
        assert_eq!(protocol.silence_limit(), Some(seconds(6)));
        protocol.set_owning(true, seconds(2));
        assert_eq!(protocol.silence_limit(), Some(seconds(2 + 3)));
        protocol.set_owning(false, seconds(4));
        protocol.set_owning(true, seconds(5));
        assert_eq!(protocol.silence_limit(), Some(seconds(6)), "claims that come and go do not move it");
    }

    #[test]
    fn events_without_a_watch_are_not_held_back() {
        let mut protocol = attached();
        submit(&mut protocol, 1);
        protocol.armed.arm(&"/a".into(), Left::Missing);
        protocol.lost(None);
        attach(&mut protocol, 9000).unwrap();
        for path in ["/b", "/a", "/a"] {
            let event = |to: &mut Writer| {
                ReplyHeader { xid: XID_EVENT, zxid: -1, err: 0 }.encode(to);
                to.int(1).int(3).string(path);
            };
            receive(&mut protocol, event).unwrap();
        }
        assert_eq!(protocol.held_back.len(), 1);
    }

    #[test]
    fn close_at_once_needs_an_attached_connection_and_is_sent_once() {
        let mut protocol = attached();
        assert!(!protocol.close_at_once(), "the session goes on");
        protocol.fail();
        assert!(protocol.close_at_once() && protocol.close_at_once());
        let frame = write(&mut protocol);
        assert_eq!(RequestHeader::decode(&mut Reader::new(&frame[4..])).unwrap().op, OpCode::CloseSession);
        assert_eq!(frame.len(), 4 + 8);
        protocol.lost(None);
        protocol.open(Duration::ZERO, 0);
        assert!(!protocol.close_at_once(), "the connection is not attached");
        protocol.lost(None);
        attach(&mut protocol, 0).unwrap();
        assert!(!protocol.close_at_once(), "the server has ended the session");
    }

    fn set_data() -> Request {
        Request::SetData { path: "/a".into(), data: vec![1; 100], version: None }
    }

    fn ops(mut frames: &[u8]) -> Vec<OpCode> {
        let mut ops = Vec::new();
        while let Some((length, rest)) = frames.split_first_chunk::<4>() {
            let (frame, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
            ops.push(RequestHeader::decode(&mut Reader::new(frame)).unwrap().op);
            frames = rest;
        }
        ops
    }

    /// Takes all events. Returns the tokens of the replies, and whether each request counts as sent.
    fn replies(protocol: &mut Protocol<u32>) -> Vec<(u32, bool)> {
        let events = std::iter::from_fn(|| protocol.next_event());
        let replies = events.filter_map(|event| match event {
            Event::Reply(token, reply) => Some((token, reply.sent.is_some())),
            _ => None,
        });
        replies.collect()
    }

    /// The ways in which a session ends while its connection can carry closeSession.
    const ENDS: [fn(&mut Protocol<u32>); 2] = [
        |protocol| protocol.close(Duration::ZERO),
        |protocol| {
            protocol.fail();
            assert!(protocol.close_at_once());
        },
    ];

    #[test]
    fn request_that_counts_as_not_sent_is_not_sent_by_the_close() {
        for end in ENDS {
            let mut protocol = attached();
            let epoch = protocol.epoch;
            submit(&mut protocol, 1);
            protocol.ping(2, Duration::ZERO).unwrap();
            protocol.submit(set_data(), epoch, 3, Duration::ZERO).unwrap();
            protocol.ping(4, Duration::ZERO).unwrap();
            protocol.submit(set_data(), epoch, 5, Duration::ZERO).unwrap();
            end(&mut protocol);
            assert_eq!(replies(&mut protocol), [(1, true), (3, false), (5, false), (2, false), (4, false)]);
            let sent = ops(&write(&mut protocol));
            assert_eq!(sent, [OpCode::Ping, OpCode::CloseSession]);
        }
    }

    #[test]
    fn frame_that_is_written_in_part_stays_whole_and_counts_as_sent() {
        for end in ENDS {
            for part in [1, 60] {
                let mut protocol = attached();
                let (epoch, xid) = (protocol.epoch, protocol.next_xid);
                protocol.submit(set_data(), epoch, 1, Duration::ZERO).unwrap();
                let mut bytes = protocol.output()[..part].to_vec();
                protocol.written(part);
                protocol.submit(set_data(), epoch, 2, Duration::ZERO).unwrap();
                end(&mut protocol);
                assert_eq!(replies(&mut protocol), [(1, true), (2, false)]);
                bytes.extend(write(&mut protocol));
                assert_eq!(ops(&bytes), [OpCode::SetData, OpCode::CloseSession]);
                // The server replies to both. The number of the request that was not sent stays unused.
                for xid in [xid, xid + 2] {
                    receive(&mut protocol, |to| ReplyHeader { xid, zxid: 9, err: 0 }.encode(to)).unwrap();
                }
                assert!(matches!(protocol.next_event(), Some(Event::Closed)));
            }
        }
    }

    #[test]
    fn session_that_the_server_has_closed_already_is_closed() {
        let mut protocol = attached();
        protocol.close(Duration::ZERO);
        protocol.lost(None);
        while protocol.next_event().is_some() {}
        attach(&mut protocol, 0).unwrap();
        assert!(matches!(protocol.next_event(), Some(Event::Closed)));
    }
}

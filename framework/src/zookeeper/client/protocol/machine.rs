//! The state machine: its state, and the requests that it sends.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use curator_wire::{ConnectRequest, OpCode, RequestHeader, Writer, XID_PING};

use super::connection::{Asked, Connection, Outstanding, Phase, SessionKey, Waiting, watch_of, without_data};
use super::watches::Watching;
use crate::error::Error;
use crate::model::AuthInfo;
use crate::zookeeper::client::history::{Comparison, History, Judgement};
use crate::zookeeper::client::records;
use crate::zookeeper::{Notification, Reattached, Reply, Request, SessionEnd};

/// The capacities for events, and for bytes of output, that are kept when these are taken.
const KEPT_EVENTS: usize = 64;
const KEPT_OUTPUT: usize = 16 * 1024;

/// The parameters of a session.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) session_timeout: Duration,
    pub(crate) auth: Vec<AuthInfo>,
    /// The session logs in by SASL.
    pub(crate) sasl: bool,
    pub(crate) read_only: bool,
    pub(crate) max_frame: usize,
    pub(crate) max_reply: usize,
}

/// The events of the session, in order.
#[derive(Debug)]
pub(crate) enum Event<T> {
    /// The connection can be used: the session is attached, logged in, and its watches are set again.
    Connected { reattached: Reattached, read_only: bool },
    /// A server grants a shorter timeout, counted from the connect request. This holds even if the connection breaks
    /// before it can be used.
    Shortened { sent: Duration, timeout: Duration },
    /// The session is attached, and the connection must log in by SASL.
    LogIn,
    /// The token that the server has sent in reply to one of the login.
    Challenge(Option<Vec<u8>>),
    /// A request has ended.
    Reply(T, Reply),
    /// A one-shot watch has fired, or may have been removed.
    Notification(Notification),
    /// The session has ended.
    Ended(SessionEnd),
    /// The server has closed the session on request.
    Closed,
}

/// The state of one session over all of its connections.
#[derive(Debug)]
pub(crate) struct Protocol<T> {
    pub(super) settings: Settings,
    pub(super) session: Option<SessionKey>,
    /// The smallest timeout ever granted; before the first connect, the one to request.
    pub(super) timeout: Duration,
    pub(super) epoch: u64,
    /// Continues over all connections, because servers match commits to waiting writes by session and number.
    pub(super) next_xid: i32,
    /// The newest zxid in a reply.
    pub(super) last_seen: i64,
    pub(super) watching: Watching,
    /// The writes that replies have shown.
    pub(super) history: History,
    /// The questions that the server of this connection has not answered, and the judgement so far.
    pub(super) comparison: Option<(Comparison, Judgement)>,
    /// The moment since which the session owns nodes.
    pub(super) owning_since: Option<Duration>,
    pub(super) connection: Option<Connection<T>>,
    /// The request that was the oldest without a reply at the last loss of a connection, its length, and the number of
    /// such losses in a row.
    pub(super) suspect: Option<(String, usize, u32)>,
    pub(super) over: Option<SessionEnd>,
    /// The owner of the session knows of its end, so the server may delete its nodes.
    pub(super) may_close: bool,
    /// The reason of an end by [`SessionEnd::AuthFailed`].
    pub(super) refusal: Option<String>,
    pub(super) events: VecDeque<Event<T>>,
    pub(super) output: Vec<u8>,
}

impl<T> Protocol<T> {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            timeout: settings.session_timeout,
            settings,
            session: None,
            epoch: 0,
            next_xid: 1,
            last_seen: 0,
            watching: Watching::default(),
            history: History::default(),
            comparison: None,
            owning_since: None,
            connection: None,
            suspect: None,
            over: None,
            may_close: false,
            refusal: None,
            events: VecDeque::new(),
            output: Vec::new(),
        }
    }

    pub(crate) fn session_id(&self) -> Option<i64> {
        self.session.as_ref().map(|session| session.id)
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(crate) fn over(&self) -> Option<SessionEnd> {
        self.over
    }

    /// Returns `true` if requests can be submitted.
    pub(crate) fn is_ready(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| matches!(connection.phase, Phase::Ready))
    }

    /// Starts a connection: the connect request is the first output.
    pub(crate) fn open(&mut self, now: Duration) {
        debug_assert!(self.connection.is_none(), "one connection at a time");
        self.output.clear();
        self.connection = Some(Connection {
            phase: Phase::Connecting,
            connect_sent: now,
            heard: now,
            written: 0,
            outstanding: VecDeque::new(),
            waiting: VecDeque::new(),
            pings: VecDeque::new(),
            credentials: 0,
            skips: 0,
            throttled_until: None,
            throttled_paths: Vec::new(),
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
    pub(super) fn frame(&mut self, body: impl FnOnce(&mut Writer)) {
        let start = self.output.len();
        let mut to = Writer::append_to(std::mem::take(&mut self.output));
        to.int(0);
        body(&mut to);
        self.output = to.into_bytes();
        let length = u32::try_from(self.output.len() - start - 4).unwrap_or(u32::MAX);
        self.output[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }

    pub(super) fn numbered(&mut self, op: OpCode, now: Duration, asked: Asked<T>, body: impl FnOnce(&mut Writer)) {
        let begun = self.append(op, body);
        self.count(begun, now, asked);
    }

    /// Appends a request with the next number to the output, and returns its index there.
    fn append(&mut self, op: OpCode, body: impl FnOnce(&mut Writer)) -> usize {
        let (xid, begun) = (self.next_xid, self.output.len());
        self.frame(|to| {
            RequestHeader { xid, op }.encode(to);
            body(to);
        });
        begun
    }

    /// Counts the request at the end of the output as sent.
    fn count(&mut self, begun: usize, now: Duration, asked: Asked<T>) {
        let (xid, size) = (self.next_xid, self.output.len() - begun - 4);
        self.next_xid = if xid == i32::MAX { 1 } else { xid + 1 };
        if let Some(connection) = &mut self.connection {
            let offset = connection.written + begun as u64;
            connection.outstanding.push_back(Outstanding { xid, offset, size, sent: now, asked });
        }
    }

    /// Sends a request on the connection with this number, or queues it. Otherwise returns the token and the reason.
    pub(crate) fn submit(&mut self, request: Request, epoch: u64, token: T, now: Duration) -> Result<(), (T, Error)> {
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
    pub(crate) fn heartbeat(&mut self, path: Arc<str>, token: T, now: Duration) -> Result<(), (T, Error)> {
        let request = Request::Delete { path, version: None };
        match self.check_ready(self.epoch, &request) {
            Ok(()) => self.send(request, token, now),
            Err(error) => Err((token, error)),
        }
    }

    fn send(&mut self, mut request: Request, token: T, now: Duration) -> Result<(), (T, Error)> {
        let served =
            watch_of(&mut request).is_some_and(|(path, kind, watch)| *watch && self.watching.armed.serves(path, kind));
        let begun = self.append(records::op_of(&request), |to| records::encode(&request, served, to));
        let size = self.output.len() - begun - 4;
        if size > self.settings.max_frame {
            // The server would close the connection at every retry.
            self.output.truncate(begun);
            let limit = self.settings.max_frame;
            return Err((token, Error::RequestTooLarge { request: request.to_string().into(), size, limit }));
        }
        self.count(begun, now, Asked::Request(without_data(request), token));
        Ok(())
    }

    /// Sends waiting requests, as far as the window has room.
    pub(super) fn send_waiting(&mut self, now: Duration) {
        while let Some(connection) = self.connection.as_mut().filter(|one| one.has_room(self.output.len())) {
            match connection.waiting.pop_front() {
                Some(Waiting::Request(request, token)) => {
                    if let Err((token, error)) = self.send(request, token, now) {
                        self.events.push_back(Event::Reply(token, Reply::not_sent(error)));
                    }
                }
                Some(Waiting::Forget(path, kind)) => self.remove_one_shot(&path, kind, now),
                Some(Waiting::FitWatch(path)) => self.fit_watch(&path, now),
                None => return,
            }
        }
    }

    pub(super) fn check_ready(&self, epoch: u64, request: &impl ToString) -> Result<(), Error> {
        if self.over.is_some() {
            return Err(Error::SessionExpired { request: request.to_string().into() });
        }
        if !self.is_ready() || epoch != self.epoch {
            return Err(Error::ConnectionLoss { request: request.to_string().into(), sent: false, cause: None });
        }
        Ok(())
    }

    /// Sends a ping.
    pub(crate) fn ping(&mut self, token: T, now: Duration) -> Result<(), (T, Error)> {
        if let Err(error) = self.check_ready(self.epoch, &"ping") {
            return Err((token, error));
        }
        self.frame(|to| RequestHeader { xid: XID_PING, op: OpCode::Ping }.encode(to));
        if let Some(connection) = &mut self.connection {
            connection.pings.push_back((token, now));
        }
        Ok(())
    }

    /// Records whether the session owns nodes: if so, silence counts as a broken connection sooner.
    pub(crate) fn set_owning(&mut self, owning: bool, now: Duration) {
        self.owning_since = owning.then_some(now);
    }

    /// Returns the reason of an end by [`SessionEnd::AuthFailed`].
    pub(crate) fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// Returns the bytes to be written.
    pub(crate) fn output(&self) -> &[u8] {
        &self.output
    }

    /// Removes the bytes that the transport has taken from the output.
    pub(crate) fn written(&mut self, count: usize) {
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
    pub(crate) fn next_event(&mut self) -> Option<Event<T>> {
        let event = self.events.pop_front();
        if self.events.is_empty() && self.events.capacity() > KEPT_EVENTS {
            self.events = VecDeque::new();
        }
        event
    }

    /// Returns the moment at which the socket task gives the connection up if no byte arrives before.
    pub(crate) fn silence_limit(&self) -> Option<Duration> {
        let connection = self.connection.as_ref().filter(|connection| matches!(connection.phase, Phase::Ready))?;
        let idle = connection.heard + self.timeout * 2 / 3;
        // Heartbeats are rarer before the session owns nodes, so the shorter limit counts from that moment.
        Some(self.owning_since.map_or(idle, |since| idle.min(connection.heard.max(since) + self.timeout / 3)))
    }

    /// Returns the time since the newest byte arrived.
    pub(crate) fn silence(&self, now: Duration) -> Duration {
        self.connection.as_ref().map_or(Duration::ZERO, |connection| now.saturating_sub(connection.heard))
    }

    /// Returns the moment until which the session should be attached again: a third of the timeout after the loss. A
    /// session that owns nodes gives a silent connection up after another third, so two thirds of the timeout pass.
    pub(crate) fn reattach_limit(&self, lost_at: Duration) -> Duration {
        lost_at + self.timeout / 3
    }
}

#[cfg(test)]
mod tests {
    use curator_wire::{ConnectResponse, Reader, ReplyHeader, XID_EVENT};

    use super::*;
    use crate::model::{AddWatchMode, WatchKind};
    use crate::zookeeper::client::armed_watches::Left;
    use crate::zookeeper::client::protocol::Violation;

    fn attached() -> Protocol<u32> {
        let mut protocol = Protocol::new(Settings {
            session_timeout: Duration::from_secs(9),
            auth: Vec::new(),
            sasl: false,
            read_only: false,
            max_frame: 4096,
            max_reply: 4096,
        });
        attach(&mut protocol, 9000).unwrap();
        protocol
    }

    fn attach(protocol: &mut Protocol<u32>, timeout_ms: i32) -> Result<usize, Violation> {
        protocol.open(Duration::ZERO);
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
        protocol.watching.armed.arm(&"/a".into(), Left::Data);
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
        protocol.watching.armed.arm(&"/a".into(), Left::Missing);
        protocol.lost(None);
        attach(&mut protocol, 9000).unwrap();
        for path in ["/b", "/a", "/a"] {
            let event = |to: &mut Writer| {
                ReplyHeader { xid: XID_EVENT, zxid: -1, err: 0 }.encode(to);
                to.int(1).int(3).string(path);
            };
            receive(&mut protocol, event).unwrap();
        }
        assert_eq!(protocol.watching.held_back.len(), 1);
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
        protocol.open(Duration::ZERO);
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

//! Tests of one session on a virtual clock, with a server made of bytes and without sockets.

mod closes;
mod connects;
mod new_subscribers;
mod one_shot;
mod persistent;
mod requests;

use std::sync::Arc;
use std::time::Duration;

use curator_wire::{
    ConnectRequest, ConnectResponse, ErrorCode, OpCode, Reader, ReplyHeader, RequestHeader, Stat as WireStat, Writer,
    XID_AUTH, XID_EVENT, XID_PING, XID_SET_WATCHES,
};
use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::mpsc::error::TryRecvError;

use super::connection::Violation;
use super::machine::{Event, Protocol, Settings};
use crate::error::Error;
use crate::model::AddWatchMode::{self, Persistent, PersistentRecursive};
use crate::model::ids::Zxid;
use crate::model::{AuthInfo, EventType, WatchKind, WatchedEvent};
use crate::zookeeper::client::armed_watches::BEFORE_ALL;
use crate::zookeeper::{
    DEFAULT_MAX_FRAME, DEFAULT_MAX_REPLY, KnownNodes, MIN_SESSION_TIMEOUT, Notification, Reply, Request, Resync,
    SessionEnd, SubscriptionEvent, WatchEvents,
};

const SESSION: i64 = 0x100;

const TIMEOUT: Duration = Duration::from_secs(9);

fn settings() -> Settings {
    Settings {
        session_timeout: TIMEOUT,
        auth: Vec::new(),
        sasl: false,
        read_only: false,
        max_frame: DEFAULT_MAX_FRAME,
        max_reply: DEFAULT_MAX_REPLY,
    }
}

/// A session and its clock.
struct Story {
    protocol: Protocol<&'static str>,
    now: Duration,
}

/// A request as the server reads it.
#[derive(Debug)]
struct Seen {
    xid: i32,
    op: OpCode,
    body: Vec<u8>,
}

impl Story {
    fn new(settings: Settings) -> Self {
        Self { protocol: Protocol::new(settings), now: Duration::from_secs(100) }
    }

    fn connected() -> Self {
        let mut story = Self::new(settings());
        story.open();
        story.accept(TIMEOUT);
        assert!(matches!(story.events()[..], [Event::Connected { .. }]));
        story
    }

    fn open(&mut self) -> ConnectRequest {
        self.protocol.open(self.now);
        let frames = self.written();
        ConnectRequest::decode(&mut Reader::new(&frames[0])).unwrap()
    }

    /// Takes the output as a transport does.
    fn written(&mut self) -> Vec<Vec<u8>> {
        let output = self.protocol.output().to_vec();
        self.protocol.written(output.len());
        let (mut rest, mut frames) = (&output[..], Vec::new());
        while let Some((length, behind)) = rest.split_first_chunk::<4>() {
            let (frame, behind) = behind.split_at(u32::from_be_bytes(*length) as usize);
            frames.push(frame.to_vec());
            rest = behind;
        }
        frames
    }

    fn requests(&mut self) -> Vec<Seen> {
        let seen = |frame: Vec<u8>| {
            let mut from = Reader::new(&frame);
            let RequestHeader { xid, op } = RequestHeader::decode(&mut from).unwrap();
            Seen { xid, op, body: from.rest().to_vec() }
        };
        self.written().into_iter().map(seen).collect()
    }

    fn receive(&mut self, write: impl FnOnce(&mut Writer)) -> Result<usize, Violation> {
        let mut frame = Writer::new();
        write(&mut frame);
        let frame = frame.into_bytes();
        let bytes = [&u32::try_from(frame.len()).unwrap().to_be_bytes(), &frame[..]].concat();
        self.protocol.receive(&bytes, self.now)
    }

    fn respond(&mut self, session_id: i64, timeout: Duration, read_only: bool) -> Result<usize, Violation> {
        let response = ConnectResponse {
            protocol_version: 0,
            timeout_ms: i32::try_from(timeout.as_millis()).unwrap(),
            session_id,
            password: vec![9; 16],
            read_only: Some(read_only),
        };
        self.receive(|to| response.encode(to))
    }

    fn accept(&mut self, timeout: Duration) {
        self.respond(SESSION, timeout, false).unwrap();
    }

    fn try_reply(&mut self, xid: i32, zxid: i64, err: i32, body: &[u8]) -> Result<usize, Violation> {
        self.receive(|to| {
            ReplyHeader { xid, zxid, err }.encode(to);
            to.raw(body);
        })
    }

    fn reply(&mut self, xid: i32, zxid: i64, body: &[u8]) {
        self.try_reply(xid, zxid, 0, body).unwrap();
    }

    fn notify(&mut self, kind: i32, path: &str) {
        let mut body = Writer::new();
        body.int(kind).int(3).string(path);
        self.reply(XID_EVENT, -1, &body.into_bytes());
    }

    fn submit(&mut self, request: Request, token: &'static str) {
        let epoch = self.protocol.epoch;
        self.protocol.submit(request, epoch, token, self.now).map_err(|(_, error)| error).unwrap();
    }

    /// Leaves a watch on the children of a path.
    fn watch_children(&mut self, path: &str, zxid: i64) {
        self.submit(Request::GetChildren { path: path.into(), watch: true }, "watch");
        let xid = self.requests()[0].xid;
        self.reply(xid, zxid, &[0; 4]);
        self.events();
    }

    fn events(&mut self) -> Vec<Event<&'static str>> {
        std::iter::from_fn(|| self.protocol.next_event()).collect()
    }

    /// Returns the newest event, which must be a reply.
    fn ended(&mut self) -> (&'static str, Reply) {
        match self.events().pop() {
            Some(Event::Reply(token, reply)) => (token, reply),
            other => panic!("no reply: {other:?}"),
        }
    }

    fn end(&mut self) -> SessionEnd {
        let events = self.events();
        let end = events.iter().find_map(|event| match event {
            Event::Ended(end) => Some(*end),
            _ => None,
        });
        end.unwrap_or_else(|| panic!("the session goes on: {events:?}"))
    }

    fn lose(&mut self) {
        self.protocol.lost(None);
    }
}

fn delete(path: &str) -> Request {
    Request::Delete { path: path.into(), version: None }
}

/// Returns the zxid of a list of watches, and the number of paths in each of its lists.
fn watches(seen: &Seen) -> (i64, Vec<usize>) {
    let mut from = Reader::new(&seen.body);
    let zxid = from.long().unwrap();
    let mut lists = Vec::new();
    while !from.is_empty() {
        lists.push(from.vector(|from| from.string().map(str::len)).unwrap().len());
    }
    (zxid, lists)
}

/// Returns a stat with this czxid and mzxid, and this pzxid, and zeros.
fn stat(zxid: i64, pzxid: i64) -> Vec<u8> {
    [zxid, zxid].iter().flat_map(|zxid| zxid.to_be_bytes()).chain([0; 44]).chain(pzxid.to_be_bytes()).collect()
}

fn violation(result: Result<usize, Violation>) -> String {
    result.expect_err("the server may not do that").0
}

/// A persistent watch.
struct Subscription {
    path: &'static str,
    mode: AddWatchMode,
    id: u64,
    events: WatchEvents,
    /// The number of the request that adds the watch, or 0 without a request.
    xid: i32,
}

impl Subscription {
    fn heard(&mut self) -> Vec<SubscriptionEvent> {
        std::iter::from_fn(|| self.events.try_recv().ok()).collect()
    }
}

/// The reads that set a watch, and the successful reply to each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watching {
    Exists,
    Data,
    Children,
}

impl Watching {
    fn request(self, path: &str) -> Request {
        let (path, watch) = (path.into(), true);
        match self {
            Self::Exists => Request::Exists { path, watch },
            Self::Data => Request::GetData { path, watch },
            Self::Children => Request::GetChildren { path, watch },
        }
    }

    fn body(self) -> Vec<u8> {
        let mut body = Writer::new();
        match self {
            Self::Exists => WireStat::default().encode(&mut body),
            Self::Data => WireStat::default().encode(body.buffer(b"x")),
            Self::Children => _ = body.int(0),
        }
        body.into_bytes()
    }
}

impl Story {
    /// Sends a request for a persistent watch.
    fn subscribe(&mut self, path: &'static str, mode: AddWatchMode) -> Subscription {
        let (to, events) = WatchEvents::channel();
        let added = self.protocol.add_watch(path, mode, None, to, "add", self.now);
        let (id, unsent) = added.map_err(|(_, error)| error).unwrap();
        let added = self.requests().pop().filter(|request| request.op == OpCode::AddWatch);
        assert_eq!(added.is_none(), unsent.is_some());
        Subscription { path, mode, id, events, xid: added.map_or(0, |request| request.xid) }
    }

    fn subscribed(&mut self, path: &'static str, mode: AddWatchMode) -> Subscription {
        let subscription = self.subscribe(path, mode);
        if subscription.xid != 0 {
            self.reply(subscription.xid, 1, &[0; 4]);
        }
        self.events();
        subscription
    }

    fn drop_subscription(&mut self, subscription: &Subscription) {
        self.protocol.unsubscribe(subscription.path, subscription.mode, subscription.id, self.now);
    }

    /// Sends a read that sets a watch. Returns the number of the request, and `true` if the server sets the watch.
    fn read(&mut self, read: Watching, path: &str) -> (i32, bool) {
        self.submit(read.request(path), "read");
        let seen = self.requests().pop().unwrap();
        (seen.xid, *seen.body.last().unwrap() == 1)
    }

    /// Leaves a watch. Returns `true` if the server has set it.
    fn watch(&mut self, read: Watching, path: &str, zxid: i64) -> bool {
        let (xid, is_sent) = self.read(read, path);
        self.reply(xid, zxid, &read.body());
        self.events();
        is_sent
    }

    /// Returns the events that wake waiters.
    fn notifications(&mut self) -> Vec<(EventType, String)> {
        let notification = |event| match event {
            Event::Notification(Notification::Event(WatchedEvent { event_type, path })) => Some((event_type, path)),
            _ => None,
        };
        self.events().into_iter().filter_map(notification).collect()
    }

    /// Returns the requests that follow the pause for a busy server.
    fn after_the_pause(&mut self) -> Vec<Seen> {
        if let Some(again) = self.protocol.watches_again_at() {
            self.protocol.set_throttled_watches(again - Duration::from_nanos(1));
            assert!(self.requests().is_empty());
            self.protocol.set_throttled_watches(again);
        }
        self.requests()
    }

    /// Returns the watches that the server has removed.
    fn removed(&mut self) -> Vec<(String, WatchKind)> {
        let removed = |event| match event {
            Event::Notification(Notification::WatchRemoved(path, kind)) => Some((path, kind)),
            _ => None,
        };
        self.events().into_iter().filter_map(removed).collect()
    }
}

const CREATED: i32 = 1;

const DELETED: i32 = 2;

const DATA_CHANGED: i32 = 3;

const CHILDREN_CHANGED: i32 = 4;

/// Returns the paths of the five lists of a list of watches.
fn paths(seen: &Seen) -> Vec<Vec<String>> {
    let mut from = Reader::new(&seen.body);
    from.long().unwrap();
    let mut lists = Vec::new();
    while !from.is_empty() {
        lists.push(from.vector(|from| from.string().map(str::to_owned)).unwrap());
    }
    lists.resize(5, Vec::new());
    lists
}

fn strings<const N: usize>(paths: [&str; N]) -> Vec<String> {
    paths.map(str::to_owned).to_vec()
}

fn told(event_type: EventType, path: &str) -> SubscriptionEvent {
    SubscriptionEvent::Event(WatchedEvent { event_type, path: path.to_owned() })
}

impl Story {
    /// Subscribes, and lets the subscriber know these nodes later.
    fn subscribed_knowing(
        &mut self,
        path: &'static str,
        mode: AddWatchMode,
        known: &Arc<Mutex<KnownNodes>>,
    ) -> Subscription {
        let later = std::mem::take(&mut *known.lock());
        let (subscription, parts) = self.subscribe_knowing(path, mode, known);
        assert_eq!(parts.len(), 0, "it knows no node");
        self.reply(subscription.xid, 1, &[0; 4]);
        self.events();
        *known.lock() = later;
        subscription
    }

    /// Sends the requests of a subscription that resyncs. Returns it with those ahead of its addWatch.
    fn subscribe_knowing(
        &mut self,
        path: &'static str,
        mode: AddWatchMode,
        known: &Arc<Mutex<KnownNodes>>,
    ) -> (Subscription, Vec<Seen>) {
        let (to, events) = WatchEvents::channel();
        let known = Arc::clone(known);
        let resync: Arc<dyn Resync> = Arc::new(move || known.lock().clone());
        let added = self.protocol.add_watch(path, mode, Some(resync), to, "add", self.now);
        let (id, _sent) = added.map_err(|(_, error)| error).unwrap();
        let mut requests = self.requests();
        let last = requests.pop().unwrap();
        assert_eq!(last.op, OpCode::AddWatch);
        (Subscription { path, mode, id, events, xid: last.xid }, requests)
    }

    /// Loses the connection and attaches the session again. Returns the lists of watches that are sent.
    fn bounce(&mut self) -> Vec<Seen> {
        self.lose();
        self.open();
        self.accept(TIMEOUT);
        self.requests()
    }
}

/// Returns the mode of a request for a persistent watch.
fn mode_of(seen: &Seen) -> AddWatchMode {
    assert_eq!(seen.op, OpCode::AddWatch);
    if seen.body.ends_with(&[0; 4]) { Persistent } else { PersistentRecursive }
}

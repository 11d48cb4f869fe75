//! Tests of one session on a virtual clock, with a server made of bytes and without sockets.

use curator_wire::Stat as WireStat;
use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::mpsc::error::TryRecvError;

use super::*;
use crate::model::AddWatchMode::{Persistent, PersistentRecursive};
use crate::model::EventType;
use crate::model::ids::Zxid;
use crate::zookeeper::{DEFAULT_MAX_FRAME, DEFAULT_MAX_REPLY, KnownNodes, SubscriptionEvent, WatchEvents};

const SESSION: i64 = 0x100;
const TIMEOUT: Duration = Duration::from_secs(9);

fn settings() -> Settings {
    Settings {
        session_timeout: TIMEOUT,
        auth: Vec::new(),
        sasl: None,
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
        self.protocol.open(self.now, 7);
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

#[test]
fn watch_that_is_forgotten_while_it_is_set_again_is_removed_behind_that() {
    for is_lost in [false, true] {
        let mut story = Story::connected();
        story.watch_children("/a", 2);
        story.watch_children("/b", 2);
        story.lose();
        story.open();
        story.accept(TIMEOUT);
        assert_eq!(watches(&story.requests()[0]).1, [0, 0, 2]);
        story.protocol.forget("/a", WatchKind::Children, story.now);
        assert!(story.requests().is_empty(), "the server does not take requests yet");
        if is_lost {
            story.lose();
            story.open();
            story.accept(TIMEOUT);
            assert_eq!(watches(&story.requests()[0]).1, [0, 0, 1], "the next connection sets the other watch only");
        }
        story.reply(XID_SET_WATCHES, 3, &[]);
        let ops: Vec<_> = story.requests().iter().map(|request| request.op).collect();
        assert_eq!(ops, if is_lost { vec![] } else { vec![OpCode::RemoveWatches] });
    }
}

#[test]
fn new_session_takes_id_password_and_timeout_of_the_server() {
    let mut story = Story::new(settings());
    let request = story.open();
    assert_eq!((request.session_id, request.password, request.last_zxid_seen), (0, vec![0; 16], 0));
    assert_eq!(request.timeout_ms, 9000);
    story.accept(Duration::from_secs(4));
    let events = story.events();
    let [Event::Connected { reattached, read_only: false }] = &events[..] else { panic!("{events:?}") };
    assert_eq!((reattached.sent, reattached.timeout, reattached.epoch), (story.now, Duration::from_secs(4), 1));
    assert_eq!((story.protocol.session_id(), story.protocol.timeout()), (Some(SESSION), Duration::from_secs(4)));
}

#[test]
fn reattach_asks_for_the_smallest_timeout_ever_granted() {
    let mut story = Story::connected();
    for (granted, smallest) in [(4, 4), (20, 4), (6, 4), (3, 3), (20, 3)] {
        story.lose();
        story.open();
        story.accept(Duration::from_secs(granted));
        assert_eq!(story.protocol.timeout(), Duration::from_secs(smallest));
        story.lose();
        let request = story.open();
        assert_eq!((request.timeout_ms, request.session_id), (i32::try_from(smallest * 1000).unwrap(), SESSION));
        assert_eq!(request.password, [9; 16]);
        story.accept(Duration::from_secs(granted));
    }
}

#[test]
fn timeout_below_the_smallest_useful_one_is_a_violation() {
    let mut story = Story::new(settings());
    story.open();
    let refused = violation(story.respond(SESSION, MIN_SESSION_TIMEOUT - Duration::from_millis(1), false));
    assert!(refused.contains("session timeout"), "{refused}");
}

#[test]
fn another_session_id_ends_the_session() {
    let mut story = Story::connected();
    story.lose();
    story.open();
    story.respond(SESSION + 1, TIMEOUT, false).unwrap();
    assert_eq!(story.end(), SessionEnd::Inconsistent);
    let (_, error) = story.protocol.submit(delete("/a"), 2, "late", story.now).unwrap_err();
    assert!(matches!(error, Error::SessionExpired { .. }));
}

#[test]
fn refused_reattach_is_an_expired_session() {
    for (id, timeout) in [(0, TIMEOUT), (SESSION, Duration::ZERO)] {
        let mut story = Story::connected();
        story.lose();
        story.open();
        story.respond(id, timeout, false).unwrap();
        assert_eq!(story.end(), SessionEnd::Expired);
    }
}

#[test]
fn refused_new_session_is_a_violation() {
    let mut story = Story::new(settings());
    story.open();
    assert_eq!(violation(story.respond(0, TIMEOUT, false)), "the server refused a new session");
    assert_eq!(story.protocol.over(), None, "another server may make one");
}

#[test]
fn expired_reply_ends_the_session() {
    let mut story = Story::connected();
    story.submit(delete("/a"), "first");
    story.submit(delete("/b"), "second");
    let xid = story.requests()[0].xid;
    story.try_reply(xid, 5, ErrorCode::SessionExpired.code(), &[]).unwrap();
    let events = story.events();
    let [Event::Reply("first", _), Event::Reply("second", second), Event::Ended(SessionEnd::Expired)] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert!(matches!(second.result, Err(Error::SessionExpired { .. })));
    assert_eq!(second.sent, Some(story.now), "it was written, so it may have been done");
}

#[test]
fn read_only_server_proves_nothing_of_the_history() {
    for read_only in [false, true] {
        let mut story = Story::new(Settings { read_only: true, ..settings() });
        story.open();
        story.accept(TIMEOUT);
        story.lose();
        story.open();
        story.respond(SESSION, TIMEOUT, read_only).unwrap();
        story.submit(Request::Exists { path: "/a".into(), watch: false }, "exists");
        let exists = story.requests()[0].xid;
        story.reply(exists, 20, &stat(20, 20));
        assert_eq!(story.bounce().len(), usize::from(!read_only), "a question about what it has shown");
    }
}

#[test]
fn read_only_server_is_used_only_if_that_is_allowed() {
    let mut story = Story::new(settings());
    assert_eq!(story.open().read_only, Some(false));
    assert_eq!(violation(story.respond(SESSION, TIMEOUT, true)), "the server is read-only");

    let mut story = Story::new(Settings { read_only: true, ..settings() });
    assert_eq!(story.open().read_only, Some(true));
    story.respond(SESSION, TIMEOUT, true).unwrap();
    assert!(matches!(story.events()[..], [Event::Connected { read_only: true, .. }]));
    story.lose();
    assert_eq!(story.end(), SessionEnd::Expired, "the other servers do not know the session");
}

#[test]
fn requests_wait_for_the_replies_to_credentials() {
    let auth = ["one", "two"].map(|auth| AuthInfo { scheme: "digest".into(), auth: auth.into() }).to_vec();
    let mut story = Story::new(Settings { auth, ..settings() });
    story.open();
    story.accept(TIMEOUT);
    let requests = story.requests();
    assert!(requests.iter().all(|seen| (seen.xid, seen.op) == (XID_AUTH, OpCode::Auth)) && requests.len() == 2);
    story.reply(XID_AUTH, 0, &[]);
    assert!(!story.protocol.is_ready());
    story.reply(XID_AUTH, 0, &[]);
    assert!(matches!(story.events()[..], [Event::Connected { .. }]));
    assert!(violation(story.try_reply(XID_AUTH, 0, 0, &[])).contains("not sent"));
}

#[test]
fn refused_credentials_end_the_session() {
    let auth = ["digest", "nothing", "ip"].map(|scheme| AuthInfo { scheme: scheme.into(), auth: Vec::new() }).to_vec();
    let mut story = Story::new(Settings { auth, ..settings() });
    story.open();
    story.accept(TIMEOUT);
    story.reply(XID_AUTH, 0, &[]);
    story.try_reply(XID_AUTH, 0, ErrorCode::AuthFailed.code(), &[]).unwrap();
    assert_eq!(story.end(), SessionEnd::AuthFailed);
    assert_eq!(story.protocol.refused_scheme(), Some("nothing"));
}

#[test]
fn sasl_comes_before_credentials_and_a_bad_proof_is_a_violation() {
    let auth = vec![AuthInfo { scheme: "digest".into(), auth: b"x".to_vec() }];
    let sasl = Some(SaslDigest::new("bob", "secret"));
    let mut story = Story::new(Settings { auth, sasl, ..settings() });
    story.open();
    story.accept(TIMEOUT);
    let first = story.requests();
    assert_eq!((first[0].op, &first[0].body[..], first.len()), (OpCode::Sasl, &[0; 4][..], 1));
    let token = |text: &str| {
        let mut body = Writer::new();
        body.buffer(text.as_bytes());
        body.into_bytes()
    };
    story.reply(first[0].xid, 0, &token("realm=\"r\",nonce=\"n\",qop=\"auth\""));
    let answer = story.requests();
    assert_eq!((answer[0].op, answer[0].xid), (OpCode::Sasl, first[0].xid + 1));
    let refused = violation(story.try_reply(answer[0].xid, 0, 0, &token("rspauth=0")));
    assert!(refused.contains("does not know the password"), "{refused}");
    assert!(!story.protocol.is_ready());
}

#[test]
fn refused_login_ends_the_session() {
    let mut story = Story::new(Settings { sasl: Some(SaslDigest::new("bob", "secret")), ..settings() });
    story.open();
    story.accept(TIMEOUT);
    let xid = story.requests()[0].xid;
    story.try_reply(xid, 0, ErrorCode::AuthFailed.code(), &[]).unwrap();
    assert_eq!(story.end(), SessionEnd::AuthFailed);
    assert_eq!(story.protocol.refused_scheme(), Some("sasl"));
}

#[test]
fn watches_are_set_again_in_parts_from_a_base_that_is_frozen_until_all_are_answered() {
    let mut story = Story::connected();
    let paths: Vec<_> = (0..3).map(|number| format!("/{number}{}", "x".repeat(60_000))).collect();
    for path in &paths {
        story.watch_children(path, 40);
    }
    story.lose();
    assert_eq!(story.open().last_zxid_seen, 40);
    story.accept(TIMEOUT);
    let parts = story.requests();
    assert_eq!(parts.len(), 2, "128 KiB a part");
    assert!(parts.iter().all(|part| part.op == OpCode::SetWatches && watches(part).0 == 40));
    assert_eq!(parts.iter().map(|part| watches(part).1[2]).sum::<usize>(), 3);
    story.reply(XID_SET_WATCHES, 50, &[]);
    assert_eq!(story.events().len(), 0, "one part is not answered");

    story.lose();
    assert_eq!(story.open().last_zxid_seen, 50, "the connect request tells the newest transaction");
    story.accept(TIMEOUT);
    let parts = story.requests();
    assert!(parts.iter().all(|part| watches(part).0 == 40), "changes since 40 may be unknown");
    story.reply(XID_SET_WATCHES, 60, &[]);
    story.reply(XID_SET_WATCHES, 60, &[]);
    assert!(matches!(story.events()[..], [Event::Connected { .. }]));

    story.lose();
    story.open();
    story.accept(TIMEOUT);
    assert!(story.requests().iter().all(|part| watches(part).0 == 60));
}

#[test]
fn refused_watches_are_a_violation() {
    let mut story = Story::connected();
    story.watch_children("/a", 1);
    story.lose();
    story.open();
    story.accept(TIMEOUT);
    story.requests();
    assert!(violation(story.try_reply(XID_SET_WATCHES, 2, -1, &[])).contains("setWatches"));
}

#[test]
fn throttled_watches_are_set_again_after_a_pause_on_the_same_connection() {
    let mut story = Story::connected();
    story.watch_children("/a", 40);
    story.lose();
    story.open();
    story.accept(TIMEOUT);
    for _ in 0..2 {
        assert_eq!(watches(&story.requests()[0]), (40, vec![0, 0, 1]));
        story.try_reply(XID_SET_WATCHES, 50, ErrorCode::ThrottledOp.code(), &[]).unwrap();
        assert_eq!((story.events().len(), story.requests().len()), (0, 0), "the server needs a pause");
        let again = story.protocol.watches_again_at().unwrap();
        story.protocol.set_throttled_watches(again - Duration::from_nanos(1));
        assert_eq!(story.requests().len(), 0);
        story.protocol.set_throttled_watches(again);
    }
    assert_eq!(story.protocol.watches_again_at(), None);
    assert_eq!(watches(&story.requests()[0]), (40, vec![0, 0, 1]));
    story.reply(XID_SET_WATCHES, 60, &[]);
    assert!(matches!(story.events()[..], [Event::Connected { .. }]));
}

#[test]
fn persistent_watches_take_the_second_request_and_are_told_of_the_gap() {
    let mut story = Story::connected();
    let (to, mut events) = WatchEvents::channel();
    story.protocol.add_watch("/a", PersistentRecursive, None, to, "added", story.now).unwrap();
    let xid = story.requests()[0].xid;
    story.reply(xid, 3, &[]);
    assert_eq!(story.ended().0, "added");
    story.lose();
    story.open();
    story.accept(TIMEOUT);
    let parts = story.requests();
    assert_eq!((parts[0].op, watches(&parts[0]).1), (OpCode::SetWatches2, vec![0, 0, 0, 0, 1]));
    assert_eq!(events.try_recv(), Err(TryRecvError::Empty));
    story.reply(XID_SET_WATCHES, 4, &[]);
    assert_eq!(events.try_recv(), Ok(SubscriptionEvent::Reset));
}

#[test]
fn watch_whose_reply_was_lost_is_not_set_again() {
    let mut story = Story::connected();
    let (to, _events) = WatchEvents::channel();
    story.protocol.add_watch("/a", Persistent, None, to, "added", story.now).unwrap();
    story.requests();
    story.lose();
    let (token, reply) = story.ended();
    assert!(token == "added" && reply.result.unwrap_err().outcome_unknown());
    story.open();
    story.accept(TIMEOUT);
    assert_eq!(story.requests().len(), 0);
}

#[test]
fn replayed_notifications_are_held_back_until_connected_also_over_a_second_loss() {
    let mut story = Story::connected();
    story.watch_children("/a", 1);
    story.watch_children("/b", 1);
    story.lose();
    story.open();
    story.accept(TIMEOUT);
    story.requests();
    story.notify(4, "/a");
    assert_eq!(story.events().len(), 0);
    story.lose();
    story.open();
    story.accept(TIMEOUT);
    assert_eq!(watches(&story.requests()[0]).1, [0, 0, 1], "the watch on /a has fired");
    story.reply(XID_SET_WATCHES, 9, &[]);
    let events = story.events();
    let [Event::Connected { .. }, Event::Notification(event)] = &events[..] else { panic!("{events:?}") };
    assert_eq!((event.event_type, &event.path[..]), (EventType::NodeChildrenChanged, "/a"));
}

#[test]
fn watch_is_armed_by_the_reply_and_used_up_by_its_event() {
    let mut story = Story::connected();
    story.submit(Request::Exists { path: "/a".into(), watch: true }, "exists");
    let xid = story.requests()[0].xid;
    let mut stat = Writer::new();
    WireStat::default().encode(&mut stat);
    story.reply(xid, 1, &stat.into_bytes());
    assert!(story.protocol.armed.part_of("/a", 1).is_some());
    story.notify(2, "/a");
    assert!(story.protocol.armed.part_of("/a", 1).is_none());
}

#[test]
fn lost_request_is_not_sent_exactly_if_none_of_its_bytes_was_written() {
    for (written, sent) in [(0, [false, false]), (1, [true, false]), (21, [true, false]), (22, [true, true])] {
        let mut story = Story::connected();
        story.submit(delete("/"), "first");
        assert_eq!(story.protocol.output().len(), 21);
        story.submit(delete("/"), "second");
        story.protocol.written(written);
        story.lose();
        let outcomes: Vec<_> = story
            .events()
            .into_iter()
            .map(|event| match event {
                Event::Reply(_, reply) => (reply.sent.is_some(), reply.result.unwrap_err().outcome_unknown()),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(outcomes, sent.map(|sent| (sent, sent)), "{written} bytes");
    }
}

#[test]
fn request_without_a_connection_of_its_epoch_is_not_sent() {
    let mut story = Story::connected();
    let (_, error) = story.protocol.submit(delete("/a"), 7, "other epoch", story.now).unwrap_err();
    assert!(!error.outcome_unknown());
    story.lose();
    let (_, error) = story.protocol.submit(delete("/a"), 1, "no connection", story.now).unwrap_err();
    assert!(matches!(error, Error::ConnectionLoss { sent: false, .. }));
}

#[test]
fn numbers_go_on_over_connections_and_wrap_to_one() {
    let mut story = Story::connected();
    story.protocol.next_xid = i32::MAX - 1;
    story.submit(delete("/a"), "a");
    story.lose();
    story.open();
    story.accept(TIMEOUT);
    story.events();
    for expected in [i32::MAX, 1, 2] {
        story.submit(delete("/a"), "b");
        let xid = story.requests()[0].xid;
        assert_eq!(xid, expected);
        story.reply(xid, 1, &[]);
        assert!(story.ended().1.result.is_ok());
    }
}

#[test]
fn reply_out_of_order_is_a_violation() {
    let mut story = Story::connected();
    story.submit(delete("/a"), "a");
    story.submit(delete("/b"), "b");
    let second = story.requests()[1].xid;
    assert!(violation(story.try_reply(second, 1, 0, &[])).contains("before that to"));
    story.lose();
    assert_eq!(story.events().len(), 2, "both are lost");
}

#[test]
fn unknown_operation_is_answered_ahead_of_older_requests() {
    let mut story = Story::connected();
    story.submit(delete("/a"), "a");
    story.submit(Request::Sync { path: "/".into() }, "sync");
    let requests = story.requests();
    story.try_reply(requests[1].xid, -1, ErrorCode::Unimplemented.code(), &[]).unwrap();
    let (token, reply) = story.ended();
    assert!(token == "sync" && matches!(reply.result, Err(Error::Unsupported { .. })));
    story.reply(requests[0].xid, 1, &[]);
    assert_eq!(story.ended().0, "a");
}

#[test]
fn unsolicited_replies_are_violations() {
    for xid in [1, 77, 0, -3, i32::MIN, XID_PING, XID_AUTH, XID_SET_WATCHES] {
        let mut story = Story::connected();
        let refused = violation(story.try_reply(xid, 1, 0, &[]));
        assert!(refused.contains("not sent"), "{xid}: {refused}");
    }
    let mut story = Story::connected();
    story.submit(delete("/a"), "unwritten");
    let xid = story.protocol.next_xid - 1;
    assert!(violation(story.try_reply(xid, 1, 0, &[])).contains("not sent yet"));
}

#[test]
fn connect_response_before_the_request_was_written_is_a_violation() {
    let mut story = Story::new(settings());
    story.protocol.open(story.now, 7);
    assert_eq!(violation(story.respond(SESSION, TIMEOUT, false)), "it spoke first");
}

#[test]
fn frames_with_bad_lengths_are_violations() {
    for (length, text) in [
        (-1_i32, "negative length"),
        (i32::MIN, "negative length"),
        (i32::MAX, "above the limit"),
        ((1 << 30) + 1, "above the limit"),
    ] {
        let mut story = Story::connected();
        let refused = violation(story.protocol.receive(&length.to_be_bytes(), story.now));
        assert!(refused.contains(text), "{refused}");
    }
    let mut story = Story::new(settings());
    story.open();
    let refused = violation(story.protocol.receive(b"HTTP/1.1 400 Bad Request\r\n", story.now));
    assert_eq!(refused, "it does not speak ZooKeeper's protocol");
}

/// Returns the head of a reply that announces `length` bytes.
fn head(length: usize, header: ReplyHeader) -> Vec<u8> {
    let mut frame = Writer::new();
    frame.int(i32::try_from(length).unwrap());
    header.encode(&mut frame);
    frame.into_bytes()
}

#[test]
fn reply_above_the_limit_ends_its_read_alone_and_is_skipped_in_any_parts() {
    let length = DEFAULT_MAX_REPLY + 1;
    for part in [1, 7, 1000, length] {
        let mut story = Story::connected();
        story.submit(Request::GetChildren { path: "/big".into(), watch: true }, "list");
        story.submit(Request::Exists { path: "/small".into(), watch: false }, "exists");
        let xids: Vec<i32> = story.requests().iter().map(|request| request.xid).collect();
        let mut bytes = head(length, ReplyHeader { xid: xids[0], zxid: 5, err: 0 });
        for taken in 0..bytes.len() {
            assert_eq!(story.protocol.receive(&bytes[..taken], story.now), Ok(0));
        }
        assert_eq!(story.protocol.receive(&bytes, story.now), Ok(bytes.len()));
        let (token, reply) = story.ended();
        let Err(Error::ReplyTooLarge { path, size, limit }) = reply.result else { panic!("{reply:?}") };
        assert_eq!((token, path.as_str(), size, limit), ("list", "/big", length, DEFAULT_MAX_REPLY));
        bytes = vec![0xff; part.min(length)];
        let mut left = length - 16;
        while left > 0 {
            let more = left.min(bytes.len());
            assert_eq!(story.protocol.receive(&bytes[..more], story.now), Ok(more), "nothing is kept");
            left -= more;
        }
        story.try_reply(xids[1], 6, ErrorCode::NoNode.code(), &[]).unwrap();
        assert_eq!(story.ended().0, "exists");
    }
}

#[test]
fn only_the_reply_to_the_oldest_read_is_skipped() {
    for (xid_behind, err, request) in [
        (1, 0, Request::Exists { path: "/a".into(), watch: false }),
        (0, -101, Request::Exists { path: "/a".into(), watch: false }),
        (0, 0, delete("/a")),
    ] {
        let mut story = Story::connected();
        story.submit(request, "a");
        let xid = story.requests()[0].xid + xid_behind;
        let bytes = head(DEFAULT_MAX_REPLY + 1, ReplyHeader { xid, zxid: 5, err });
        assert!(violation(story.protocol.receive(&bytes, story.now)).contains("above the limit"));
    }
    for xid in [-1, -2, -8] {
        let mut story = Story::connected();
        let bytes = head(DEFAULT_MAX_REPLY + 1, ReplyHeader { xid, zxid: 5, err: 0 });
        assert!(violation(story.protocol.receive(&bytes, story.now)).contains("above the limit"));
    }
}

/// Sends a write of this length on a new connection each, and loses the connection. Returns the errors.
fn losses_during(story: &mut Story, lengths: &[usize]) -> Vec<Error> {
    let lose = |&length: &usize| {
        story.submit(Request::SetData { path: "/a".into(), data: vec![1; length], version: None }, "big");
        story.submit(delete("/behind"), "behind");
        story.requests();
        story.lose();
        let failed = |event| match event {
            Event::Reply(_, reply) => reply.result.err(),
            _ => None,
        };
        let mut errors: Vec<Error> = story.events().into_iter().filter_map(failed).collect();
        story.open();
        story.accept(TIMEOUT);
        story.events();
        assert!(matches!(errors[1], Error::ConnectionLoss { sent: true, .. }), "{errors:?}");
        errors.swap_remove(0)
    };
    lengths.iter().map(lose).collect()
}

#[test]
fn request_that_is_the_oldest_one_at_three_losses_in_a_row_is_blamed() {
    let is_blamed = |lengths: &[usize]| {
        let errors = losses_during(&mut Story::connected(), lengths);
        errors.iter().map(|error| matches!(error, Error::EndsConnections { .. })).collect::<Vec<bool>>()
    };
    assert_eq!(is_blamed(&[5000; 4]), [false, false, true, false]);
    assert_eq!(is_blamed(&[5000, 5000, 5001, 5000]), [false; 4]);
    assert_eq!(is_blamed(&[4000; 4]), [false; 4], "no server has so small a limit");
    let blamed = losses_during(&mut Story::connected(), &[5000; 3]).pop().unwrap();
    assert!(blamed.outcome_unknown() && !blamed.is_retryable());
    let text = blamed.to_string();
    assert!(
        text.contains("3 times in a row during setData /a, of 5022 bytes") && text.contains("jute.maxbuffer"),
        "{text}"
    );
}

#[test]
fn request_that_was_answered_since_is_not_blamed() {
    let mut story = Story::connected();
    for _ in 0..3 {
        let errors = losses_during(&mut story, &[5000]);
        assert!(!matches!(errors[0], Error::EndsConnections { .. }), "{errors:?}");
        story.submit(Request::SetData { path: "/a".into(), data: vec![1; 5000], version: None }, "big");
        let xid = story.requests()[0].xid;
        story.reply(xid, 1, &[0; 68]);
        assert!(matches!(story.events()[..], [Event::Reply(_, Reply { result: Ok(_), .. })]));
    }
}

#[test]
fn frame_is_taken_when_its_last_byte_has_come() {
    let mut story = Story::connected();
    story.submit(delete("/a"), "a");
    let xid = story.requests()[0].xid;
    let mut frame = Writer::new();
    frame.int(16);
    ReplyHeader { xid, zxid: 1, err: 0 }.encode(&mut frame);
    let bytes = frame.into_bytes();
    for length in 0..bytes.len() {
        assert_eq!(story.protocol.receive(&bytes[..length], story.now), Ok(0));
    }
    assert_eq!(story.protocol.receive(&[&bytes[..], &[0, 0]].concat(), story.now), Ok(bytes.len()));
    assert_eq!(story.ended().0, "a");
}

#[test]
fn reply_that_does_not_decode_is_a_violation_and_the_request_is_lost() {
    let mut story = Story::connected();
    story.submit(Request::GetChildren { path: "/a".into(), watch: false }, "list");
    let xid = story.requests()[0].xid;
    assert!(violation(story.try_reply(xid, 1, 0, &i32::MAX.to_be_bytes())).contains("getChildren /a"));
    story.lose();
    assert_eq!(story.ended().0, "list");
}

#[test]
fn connection_may_be_silent_for_two_thirds_of_the_timeout_and_while_owning_for_one() {
    let mut story = Story::connected();
    assert_eq!(story.protocol.silence_limit(), Some(story.now + TIMEOUT * 2 / 3));
    let begun = story.now + Duration::from_secs(2);
    story.protocol.set_owning(true, begun);
    assert_eq!(story.protocol.silence_limit(), Some(begun + TIMEOUT / 3), "counted from the first owned node");
    story.now = begun + Duration::from_secs(1);
    story.protocol.receive(&[0], story.now).unwrap();
    assert_eq!(story.protocol.silence_limit(), Some(story.now + TIMEOUT / 3), "any byte counts");
    story.protocol.set_owning(false, story.now);
    assert_eq!(story.protocol.silence_limit(), Some(story.now + TIMEOUT * 2 / 3));
    assert_eq!(story.protocol.reattach_limit(story.now), story.now + TIMEOUT / 3);
    story.lose();
    assert_eq!(story.protocol.silence_limit(), None);
}

#[test]
fn ping_is_answered_with_the_time_of_its_send() {
    let mut story = Story::connected();
    story.protocol.ping("ping", story.now).unwrap();
    let sent = story.now;
    assert_eq!(story.requests()[0].xid, XID_PING);
    story.now += Duration::from_secs(1);
    story.reply(XID_PING, 12, &[]);
    let (token, reply) = story.ended();
    assert_eq!((token, reply.sent, reply.zxid), ("ping", Some(sent), 12));
}

#[test]
fn close_answers_all_callers_and_waits_for_the_server() {
    let mut story = Story::connected();
    story.submit(delete("/a"), "a");
    let waiting = story.requests()[0].xid;
    story.protocol.close(story.now);
    let events = story.events();
    let [Event::Reply("a", reply), Event::Ended(SessionEnd::Closed)] = &events[..] else { panic!("{events:?}") };
    assert!(matches!(reply.result, Err(Error::SessionExpired { .. })));
    let close = story.requests();
    assert_eq!(close[0].op, OpCode::CloseSession);
    story.reply(waiting, 5, &[]);
    assert_eq!(story.events().len(), 0, "its caller was answered");
    story.reply(close[0].xid, 6, &[]);
    assert!(matches!(story.events()[..], [Event::Closed]));
}

#[test]
fn close_without_a_connection_goes_out_on_the_next_one() {
    let mut story = Story::connected();
    story.watch_children("/a", 1);
    story.lose();
    story.protocol.close(story.now);
    assert_eq!(story.end(), SessionEnd::Closed);
    assert_eq!(story.open().session_id, SESSION);
    story.accept(TIMEOUT);
    let close = story.requests();
    assert_eq!((close[0].op, close.len()), (OpCode::CloseSession, 1), "no watch is set for that");
    story.reply(close[0].xid, 2, &[]);
    assert!(matches!(story.events()[..], [Event::Closed]));
}

#[test]
fn close_before_the_reply_to_a_question_follows_that_reply() {
    let mut story = Story::connected();
    for (path, zxid) in [("/a", 40_i64), ("/b", 41)] {
        story.submit(Request::SetData { path: path.into(), data: Vec::new(), version: None }, "write");
        let write = story.requests()[0].xid;
        story.reply(write, zxid, &stat(zxid, 0));
    }
    story.lose();
    story.open();
    story.accept(TIMEOUT);
    let questions = story.requests();
    assert!(questions.iter().all(|seen| seen.op == OpCode::Exists) && questions.len() == 1, "{questions:?}");
    story.events();
    story.protocol.close(story.now);
    assert_eq!(story.end(), SessionEnd::Closed);
    // A node that does not exist decides nothing, so an open session would ask for the other one.
    story.try_reply(questions[0].xid, 41, ErrorCode::NoNode.code(), &[]).unwrap();
    let close = story.requests();
    assert_eq!((close[0].op, close.len()), (OpCode::CloseSession, 1));
    story.reply(close[0].xid, 42, &[]);
    assert!(matches!(story.events()[..], [Event::Closed]));
}

/// A cache that is notified of a deletion reads nothing after it, so no stat shows the newest change that it knows.
#[test]
fn children_that_have_changed_are_newer_than_the_stat_that_was_read() {
    for (event, path) in [(1, "/a/b"), (2, "/a/b"), (4, "/a")] {
        let mut story = Story::connected();
        story.submit(Request::SetData { path: "/a".into(), data: Vec::new(), version: None }, "write");
        let write = story.requests()[0].xid;
        story.reply(write, 40, &stat(40, 0));
        let _subscription = story.subscribed("/a", AddWatchMode::PersistentRecursive);
        story.notify(event, path);
        story.lose();
        for (pzxid, watched_from) in [(41, 40), (40, BEFORE_ALL)] {
            story.open();
            story.accept(TIMEOUT);
            let question = story.requests()[0].xid;
            story.reply(question, 40, &stat(40, pzxid));
            assert_eq!(watches(&story.requests()[0]).0, watched_from, "pzxid {pzxid}");
            story.lose();
        }
    }
}

/// Servers repeat the events since the transaction that the client has named. Such an event may be older than the replies.
#[test]
fn repeated_event_is_not_taken_for_a_newer_one() {
    let mut story = Story::connected();
    story.submit(Request::SetData { path: "/a".into(), data: Vec::new(), version: None }, "write");
    let write = story.requests()[0].xid;
    story.reply(write, 40, &stat(40, 0));
    story.watch_children("/a", 60);
    for _ in 0..2 {
        story.lose();
        story.open();
        story.accept(TIMEOUT);
        let question = story.requests()[0].xid;
        story.reply(question, 60, &stat(40, 45));
        assert_eq!(watches(&story.requests()[0]).0, 40, "the newest write that is certain");
        story.notify(4, "/a");
        story.reply(XID_SET_WATCHES, 60, &[]);
        story.events();
        story.watch_children("/a", 60);
    }
}

#[test]
fn login_goes_on_after_the_close_of_its_session() {
    let mut story = Story::new(Settings { sasl: Some(SaslDigest::new("bob", "secret")), ..settings() });
    story.open();
    story.accept(TIMEOUT);
    let xid = story.requests()[0].xid;
    story.protocol.close(story.now);
    assert_eq!(story.end(), SessionEnd::Closed);
    let mut challenge = Writer::new();
    challenge.buffer(b"realm=\"r\",nonce=\"n\",qop=\"auth\"");
    story.reply(xid, 0, &challenge.into_bytes());
    assert_eq!(story.requests()[0].op, OpCode::Sasl, "a server may refuse a close without the login");
}

#[test]
fn request_above_the_frame_limit_is_refused_and_leaves_nothing() {
    let mut story = Story::connected();
    // Eight bytes of header, six of path, four of length, four of version.
    let request = |length| Request::SetData { path: "/a".into(), data: vec![7; length], version: None };
    let fits = DEFAULT_MAX_FRAME - 22;
    let (_, error) = story.protocol.submit(request(fits + 1), 1, "large", story.now).unwrap_err();
    let Error::RequestTooLarge { size, limit, .. } = error else { panic!("{error}") };
    assert_eq!((size, limit), (DEFAULT_MAX_FRAME + 1, DEFAULT_MAX_FRAME));
    assert!(story.protocol.output().is_empty());
    story.submit(request(fits), "fits");
    assert_eq!(story.requests()[0].xid, 1, "the refused one has used no number");
}

/// At a session's own large writes. The heartbeat is behind at most two of them.
#[test]
fn heartbeat_is_not_behind_megabytes_of_the_callers_writes() {
    let mut story = Story::connected();
    let large = || Request::SetData { path: "/a".into(), data: vec![1; 900_000], version: None };
    for _ in 0..24 {
        story.submit(large(), "large");
    }
    story.protocol.heartbeat("/".into(), "heartbeat", story.now).map_err(|(_, error)| error).unwrap();
    let sent = story.requests();
    let ops: Vec<OpCode> = sent.iter().map(|request| request.op).collect();
    assert_eq!(ops, [OpCode::SetData, OpCode::SetData, OpCode::Delete]);
    let stat = [0; 68];
    story.reply(sent[0].xid, 1, &stat);
    assert_eq!(story.requests().len(), 1, "each reply makes room");
    assert_eq!(story.ended().0, "large");
}

#[test]
fn requests_beyond_the_window_wait_and_are_known_to_be_unsent() {
    let mut story = Story::connected();
    for _ in 0..WINDOW {
        story.submit(delete("/a"), "inside");
    }
    story.submit(delete("/b"), "waits");
    story.submit(delete("/c"), "waits");
    let sent = story.requests();
    assert_eq!(sent.len(), WINDOW);
    story.protocol.heartbeat("/none".into(), "beat", story.now).unwrap();
    assert_eq!(story.requests().len(), 1, "a heartbeat does not wait");
    for sent in &sent[..2] {
        story.reply(sent.xid, 1, &[]);
    }
    assert_eq!(story.requests().len(), 1, "the heartbeat counts in the window");
    story.events();
    story.lose();
    let unsent = |event: &Event<_>| {
        matches!(event, Event::Reply("waits", Reply { result: Err(Error::ConnectionLoss { sent: false, .. }), .. }))
    };
    assert_eq!(story.events().iter().filter(|event| unsent(event)).count(), 1);
}

/// A persistent watch.
struct Subscription {
    path: &'static str,
    mode: AddWatchMode,
    id: u64,
    events: WatchEvents,
    /// The number of the request that adds the watch.
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
        let id = self.protocol.add_watch(path, mode, None, to, "add", self.now).map_err(|(_, error)| error).unwrap();
        Subscription { path, mode, id, events, xid: self.requests()[0].xid }
    }

    fn subscribed(&mut self, path: &'static str, mode: AddWatchMode) -> Subscription {
        let subscription = self.subscribe(path, mode);
        self.reply(subscription.xid, 1, &[0; 4]);
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
            Event::Notification(WatchedEvent { event_type, path }) => Some((event_type, path)),
            _ => None,
        };
        self.events().into_iter().filter_map(notification).collect()
    }

    /// Returns the zxid and the lists of the only request, which sets watches again.
    fn set_again(&mut self) -> (i64, Vec<usize>) {
        let requests = self.requests();
        let [seen] = &requests[..] else { panic!("{requests:?}") };
        assert_eq!(seen.op, OpCode::SetWatches);
        watches(seen)
    }
}

const CREATED: i32 = 1;
const DELETED: i32 = 2;
const DATA_CHANGED: i32 = 3;
const CHILDREN_CHANGED: i32 = 4;

#[test]
fn watch_that_would_replace_a_persistent_one_is_not_sent() {
    use Watching::{Children, Data, Exists};
    for (mode, read, is_sent) in [
        (Persistent, Exists, false),
        (Persistent, Data, false),
        (Persistent, Children, false),
        (PersistentRecursive, Exists, false),
        (PersistentRecursive, Data, false),
        // The server has no watch of the recursive one for it.
        (PersistentRecursive, Children, true),
    ] {
        let mut story = Story::connected();
        assert!(story.watch(read, "/a", 1), "there is no persistent watch yet");
        let subscription = story.subscribe("/a", mode);
        assert_eq!(story.read(read, "/a").1, is_sent, "{mode:?} {read:?}, ahead of the reply");
        story.reply(subscription.xid, 1, &[0; 4]);
        assert_eq!(story.read(read, "/a").1, is_sent, "{mode:?} {read:?}");
        for other in ["/", "/a/b", "/ab"] {
            assert!(story.read(read, other).1, "{other}");
        }
        story.drop_subscription(&subscription);
        assert!(story.read(read, "/a").1, "{mode:?} {read:?}, without the subscription");
    }
}

#[test]
fn served_watch_fires_once_and_the_subscriber_hears_every_event() {
    use Watching::{Children, Data, Exists};
    for (mode, read, kind) in [
        (Persistent, Exists, CREATED),
        (Persistent, Data, DELETED),
        (Persistent, Children, CHILDREN_CHANGED),
        (Persistent, Children, DELETED),
        (PersistentRecursive, Exists, CREATED),
        (PersistentRecursive, Exists, DATA_CHANGED),
        (PersistentRecursive, Data, DELETED),
    ] {
        let mut story = Story::connected();
        let mut subscription = story.subscribed("/a", mode);
        story.notify(kind, "/a");
        assert_eq!(story.notifications().len(), 0, "no read has set a watch");
        let (xid, is_sent) = story.read(read, "/a");
        assert!(!is_sent);
        story.notify(kind, "/a");
        assert_eq!(story.notifications().len(), 0, "the read reflects it");
        story.reply(xid, 5, &read.body());
        story.events();
        for expected in [1, 0] {
            story.notify(kind, "/a");
            assert_eq!(story.notifications().len(), expected, "{mode:?} {read:?} {kind}");
        }
        assert_eq!(subscription.heard().len(), 4);
    }
}

#[test]
fn slow_subscriber_gets_one_reset_in_place_of_the_events_that_it_did_not_take() {
    let mut story = Story::connected();
    let mut slow = story.subscribed("/a", PersistentRecursive);
    let mut fast = story.subscribed("/a", PersistentRecursive);
    let mut heard = 0;
    for number in 0..25_000 {
        story.notify(DATA_CHANGED, &format!("/a/{number}"));
        heard += fast.heard().len();
    }
    let left = slow.heard();
    assert!(matches!(left[0], SubscriptionEvent::Reset), "{:?}", left[0]);
    assert!(left[1..].iter().all(|event| matches!(event, SubscriptionEvent::Event(_))));
    assert!(left.len() < 10_000, "{}", left.len());
    let SubscriptionEvent::Event(newest) = &left[left.len() - 1] else { panic!("{left:?}") };
    assert_eq!((heard, &newest.path[..]), (25_000, "/a/24999"));
    story.notify(DATA_CHANGED, "/a");
    assert_eq!(slow.heard().len(), 1, "it reads again, and hears of what follows");
}

#[test]
fn children_watch_that_a_recursive_one_removes_is_set_again() {
    for is_lost in [false, true] {
        let mut story = Story::connected();
        story.watch_children("/a", 10);
        story.watch(Watching::Data, "/a", 11);
        let subscription = story.subscribe("/a", PersistentRecursive);
        story.reply(subscription.xid, 15, &[0; 4]);
        assert_eq!(story.set_again(), (11, vec![0, 0, 1]), "from the zxid before the recursive one");
        let again = story.protocol.next_xid - 1;
        story.events();
        story.notify(DATA_CHANGED, "/a");
        assert_eq!(story.notifications(), [(EventType::NodeDataChanged, "/a".to_owned())], "served");
        if is_lost {
            story.submit(delete("/b"), "later");
            story.lose();
            story.open();
            story.accept(TIMEOUT);
            assert_eq!(watches(&story.requests()[0]).0, 11, "the events since 11 may be unknown");
        } else {
            story.reply(again, 16, &[]);
            story.notify(CHILDREN_CHANGED, "/a");
            assert_eq!(story.notifications(), [(EventType::NodeChildrenChanged, "/a".to_owned())]);
        }
    }
}

#[test]
fn watches_that_a_dropped_subscription_served_are_set_again() {
    for mode in [Persistent, PersistentRecursive] {
        let mut story = Story::connected();
        let subscription = story.subscribed("/a", mode);
        story.watch(Watching::Data, "/a", 20);
        story.watch(Watching::Children, "/a", 20);
        let (read, is_sent) = story.read(Watching::Exists, "/a");
        assert!(!is_sent);
        story.drop_subscription(&subscription);
        let removal = story.requests();
        assert_eq!((removal[0].op, removal.len()), (OpCode::RemoveWatches, 1));
        // A missing node.
        story.try_reply(read, 30, ErrorCode::NoNode.code(), &[]).unwrap();
        assert!(story.requests().is_empty());
        story.reply(removal[0].xid, 30, &[]);
        assert_eq!(story.set_again(), (20, vec![1, 1, 1]), "from the zxid before the removal");
        story.events();
        let again = story.protocol.next_xid - 1;
        story.notify(DATA_CHANGED, "/a");
        assert_eq!(story.notifications().len(), 1);
        story.try_reply(again, 31, ErrorCode::ThrottledOp.code(), &[]).unwrap();
        assert_eq!(story.set_again(), (20, vec![0, 0, 1]), "a busy server is asked again");
        assert!(violation(story.try_reply(again + 1, 31, -1, &[])).contains("setWatches"));
    }
}

#[test]
fn replay_for_watches_that_are_set_again_reaches_waiters_and_no_subscriber() {
    use EventType::{NodeCreated, NodeDataChanged, NodeDeleted};
    let cases: [(&[i32], bool, &[EventType]); 7] = [
        (&[], true, &[]),
        // The newest change, and its replay for the watch of the data.
        (&[DATA_CHANGED, DATA_CHANGED], true, &[NodeDataChanged]),
        (&[DATA_CHANGED, DATA_CHANGED, DATA_CHANGED], true, &[NodeDataChanged, NodeDataChanged]),
        // Replays of changes that were reported before.
        (&[DATA_CHANGED, CHILDREN_CHANGED], true, &[]),
        (&[CREATED, DATA_CHANGED, CHILDREN_CHANGED], true, &[NodeCreated]),
        // One for each of two watches.
        (&[DELETED, DELETED, DELETED], true, &[NodeDeleted]),
        // No reply follows, so that the event is not a replay.
        (&[DATA_CHANGED], false, &[NodeDataChanged]),
    ];
    for (events, is_answered, heard) in cases {
        let mut story = Story::connected();
        let mut covering = story.subscribed("/a", PersistentRecursive);
        let subscription = story.subscribed("/a/b", Persistent);
        story.watch(Watching::Data, "/a/b", 20);
        story.watch(Watching::Children, "/a/b", 20);
        story.drop_subscription(&subscription);
        let removal = story.requests()[0].xid;
        story.reply(removal, 30, &[]);
        assert_eq!(story.set_again(), (20, vec![1, 0, 1]));
        let again = story.protocol.next_xid - 1;
        events.iter().for_each(|kind| story.notify(*kind, "/a/b"));
        let expected: Vec<_> = heard.iter().map(|event_type| told(*event_type, "/a/b")).collect();
        if is_answered {
            story.reply(again, 31, &[]);
            assert_eq!(!story.notifications().is_empty(), !events.is_empty());
        } else {
            story.notify(CREATED, "/a/c");
            assert_eq!(covering.heard(), [expected, vec![told(NodeCreated, "/a/c")]].concat());
            story.notify(DATA_CHANGED, "/a/b");
            story.lose();
            assert_eq!(covering.heard(), [told(NodeDataChanged, "/a/b")]);
            continue;
        }
        assert_eq!(covering.heard(), expected, "{events:?}");
        story.notify(DATA_CHANGED, "/a/b");
        assert_eq!(covering.heard().len(), 1);
    }
}

#[test]
fn event_ahead_of_a_throttled_reply_is_not_a_replay() {
    let mut story = Story::connected();
    let mut covering = story.subscribed("/a", PersistentRecursive);
    let subscription = story.subscribed("/a/b", Persistent);
    story.watch(Watching::Data, "/a/b", 20);
    story.drop_subscription(&subscription);
    let removal = story.requests()[0].xid;
    story.reply(removal, 30, &[]);
    assert_eq!(story.set_again(), (20, vec![1, 0, 0]));
    story.notify(DATA_CHANGED, "/a/b");
    story.try_reply(story.protocol.next_xid - 1, 31, ErrorCode::ThrottledOp.code(), &[]).unwrap();
    assert_eq!(covering.heard(), [told(EventType::NodeDataChanged, "/a/b")]);
}

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
        let id = added.map_err(|(_, error)| error).unwrap();
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

#[test]
fn known_nodes_are_sent_with_their_zxid_ahead_of_the_subscription_and_end_in_resynced() {
    for mode in [Persistent, PersistentRecursive] {
        let mut story = Story::connected();
        let known = Arc::new(Mutex::new(KnownNodes {
            zxid: Some(Zxid::new(30)),
            data: strings(["/a", "/a/b", "/elsewhere", "/ab"]),
            missing: strings(["/a/none"]),
            children: strings(["/a"]),
        }));
        let mut knowing = story.subscribed_knowing("/a", mode, &known);
        let mut plain = story.subscribed("/c", Persistent);
        story.watch(Watching::Data, "/a/b", 40);
        let parts = story.bounce();
        let zxids: Vec<_> = parts.iter().map(|part| watches(part).0).collect();
        assert_eq!(zxids, [30, 40], "those of the subscriber, and those of the session");
        let none = Vec::new();
        let [data, missing] = match mode {
            Persistent => [strings(["/a"]), none.clone()],
            PersistentRecursive => [strings(["/a", "/a/b"]), strings(["/a/none"])],
        };
        assert_eq!(paths(&parts[0]), [data, missing, strings(["/a"]), none.clone(), none.clone()]);
        let [persistent, recursive] = match mode {
            Persistent => [strings(["/a", "/c"]), none.clone()],
            PersistentRecursive => [strings(["/c"]), strings(["/a"])],
        };
        assert_eq!(paths(&parts[1]), [strings(["/a/b"]), none.clone(), none, persistent, recursive]);
        story.notify(DATA_CHANGED, "/a");
        story.notify(CHILDREN_CHANGED, "/a");
        story.reply(XID_SET_WATCHES, 50, &[]);
        let changes = [told(EventType::NodeDataChanged, "/a"), told(EventType::NodeChildrenChanged, "/a")];
        assert_eq!(knowing.heard(), changes);
        story.reply(XID_SET_WATCHES, 50, &[]);
        assert_eq!(
            (knowing.heard(), plain.heard()),
            (vec![SubscriptionEvent::Resynced], vec![SubscriptionEvent::Reset])
        );
        story.notify(CHILDREN_CHANGED, "/a");
        // The recursive watch sends the event of the child itself.
        assert_eq!(knowing.heard().len(), usize::from(mode == Persistent));
    }
}

#[test]
fn new_subscriber_hears_the_changes_of_its_known_nodes_up_to_the_reply_and_then_resynced() {
    for mode in [Persistent, PersistentRecursive] {
        let mut story = Story::connected();
        let known = Arc::new(Mutex::new(KnownNodes {
            zxid: Some(Zxid::new(30)),
            data: strings(["/a", "/a/b", "/elsewhere"]),
            missing: strings(["/a/none"]),
            children: strings(["/a", "/a/b"]),
        }));
        let (mut knowing, parts) = story.subscribe_knowing("/a", mode, &known);
        let seen: Vec<_> = parts.iter().map(|part| (part.op, watches(part).0)).collect();
        assert_eq!(seen, [(OpCode::SetWatches, 30)], "the zxid of the subscriber, whose session is new");
        let none = Vec::new();
        let [data, missing, children] = match mode {
            Persistent => [strings(["/a"]), none.clone(), strings(["/a"])],
            PersistentRecursive => [strings(["/a", "/a/b"]), strings(["/a/none"]), strings(["/a", "/a/b"])],
        };
        assert_eq!(paths(&parts[0]), [data, missing, children, none.clone(), none]);
        story.notify(DATA_CHANGED, "/a");
        story.reply(parts[0].xid, 40, &[]);
        // The one-shot watches hear of a change between the two requests.
        story.notify(CHILDREN_CHANGED, "/a");
        assert_eq!(
            knowing.heard(),
            [told(EventType::NodeDataChanged, "/a"), told(EventType::NodeChildrenChanged, "/a")]
        );
        story.reply(knowing.xid, 41, &[0; 4]);
        assert_eq!(story.ended().0, "add");
        assert_eq!(knowing.heard(), [SubscriptionEvent::Resynced]);
        // The watches that are left fire later, and are not those of a waiter.
        story.notify(CHILDREN_CHANGED, "/a/b");
        story.notify(CHILDREN_CHANGED, "/a");
        assert_eq!(story.notifications(), []);
        assert_eq!(knowing.heard().len(), usize::from(mode == Persistent));
    }
}

#[test]
fn new_subscriber_that_knows_more_than_the_server_or_is_throttled_gets_a_reset() {
    let throttled = ErrorCode::ThrottledOp.code();
    for (newest, err, expected) in [
        (29, 0, SubscriptionEvent::Reset),
        (30, 0, SubscriptionEvent::Resynced),
        (30, throttled, SubscriptionEvent::Reset),
    ] {
        let mut story = Story::connected();
        let known = Arc::new(Mutex::new(KnownNodes {
            zxid: Some(Zxid::new(30)),
            data: strings(["/a"]),
            ..KnownNodes::default()
        }));
        let (mut knowing, parts) = story.subscribe_knowing("/a", PersistentRecursive, &known);
        story.try_reply(parts[0].xid, newest, err, &[]).unwrap();
        // The server has compared the nodes with its transactions of then.
        story.reply(knowing.xid, 31, &[0; 4]);
        assert_eq!(knowing.heard(), [expected]);
    }
}

/// A subscriber may know everything up to a transaction that no server reaches.
#[test]
fn event_ahead_of_a_new_subscriber_is_behind_the_newest_reply_at_most() {
    let mut story = Story::connected();
    story.submit(Request::SetData { path: "/a".into(), data: Vec::new(), version: None }, "write");
    let write = story.requests()[0].xid;
    story.reply(write, 20, &stat(20, 0));
    let known = KnownNodes { zxid: Some(Zxid::new(i64::MAX)), children: strings(["/a"]), ..KnownNodes::default() };
    let (knowing, parts) = story.subscribe_knowing("/a", PersistentRecursive, &Arc::new(Mutex::new(known)));
    story.notify(4, "/a");
    story.reply(parts[0].xid, 30, &[]);
    story.reply(knowing.xid, 30, &[0; 4]);
    let questions = story.bounce();
    story.reply(questions[0].xid, 40, &stat(20, 21));
    assert_eq!(watches(&story.requests()[0]).0, 20, "the change is as old as the server says");
}

#[test]
fn new_subscriber_without_known_nodes_gets_no_marker() {
    let mut story = Story::connected();
    let known = Arc::new(Mutex::new(KnownNodes { zxid: Some(Zxid::new(30)), ..KnownNodes::default() }));
    let mut knowing = story.subscribed_knowing("/a", PersistentRecursive, &known);
    assert_eq!(knowing.heard(), []);
}

#[test]
fn connection_that_breaks_between_the_parts_of_a_new_subscriber_leaves_nothing_of_it() {
    let data: Vec<_> = (0..5_000).map(|number| format!("/a/a-node-with-a-long-name-{number:08}")).collect();
    let known = Arc::new(Mutex::new(KnownNodes { zxid: Some(Zxid::new(9)), data, ..KnownNodes::default() }));
    for answered in 0..3 {
        let mut story = Story::connected();
        let (mut knowing, parts) = story.subscribe_knowing("/a", PersistentRecursive, &known);
        assert_eq!(parts.len(), 2);
        for part in &parts[..answered] {
            story.reply(part.xid, 50, &[]);
        }
        story.lose();
        let (token, reply) = story.ended();
        assert!(token == "add" && matches!(reply.result, Err(Error::ConnectionLoss { sent: true, .. })));
        assert_eq!(knowing.heard(), []);
        story.open();
        story.accept(TIMEOUT);
        assert_eq!(story.requests().len(), 0, "no subscriber is left");
        let (mut again, parts) = story.subscribe_knowing("/a", PersistentRecursive, &known);
        for part in &parts {
            assert_eq!(watches(part).0, 9);
            story.reply(part.xid, 60, &[]);
        }
        story.reply(again.xid, 60, &[0; 4]);
        assert_eq!(again.heard(), [SubscriptionEvent::Resynced]);
    }
}

#[test]
fn refused_new_subscriber_with_known_nodes_leaves_nothing() {
    let mut story = Story::connected();
    let known =
        Arc::new(Mutex::new(KnownNodes { zxid: Some(Zxid::new(9)), data: strings(["/a"]), ..KnownNodes::default() }));
    let (mut knowing, parts) = story.subscribe_knowing("/a", Persistent, &known);
    // A server before 3.6 replies at once.
    story.try_reply(knowing.xid, 0, ErrorCode::Unimplemented.code(), &[]).unwrap();
    assert!(matches!(story.ended(), ("add", Reply { result: Err(Error::Unsupported { .. }), .. })));
    story.reply(parts[0].xid, 8, &[]);
    assert_eq!(knowing.heard(), []);
}

#[test]
fn watches_of_known_nodes_take_no_persistent_watch_of_their_paths() {
    let mut story = Story::connected();
    let persistent = story.subscribed("/a/p", Persistent);
    let recursive = story.subscribed("/a/r", PersistentRecursive);
    let _own = story.subscribed("/a", Persistent);
    let known = Arc::new(Mutex::new(KnownNodes {
        zxid: Some(Zxid::new(1)),
        data: strings(["/a", "/a/p", "/a/r", "/a/x"]),
        ..KnownNodes::default()
    }));
    let (_knowing, parts) = story.subscribe_knowing("/a", PersistentRecursive, &known);
    assert_eq!((parts.len(), parts[0].op), (1, OpCode::SetWatches2));
    let lists = paths(&parts[0]);
    assert_eq!(lists[0], ["/a", "/a/p", "/a/r", "/a/x"]);
    assert_eq!(lists[3..], [strings(["/a", "/a/p"]), strings(["/a/r"])]);
    // The recursive watch that the server sets behind it still counts.
    let (_known, parts) = {
        story.drop_subscription(&persistent);
        let _late = story.subscribe("/a/p", Persistent);
        let dropped = story.subscribe("/a/p", PersistentRecursive);
        story.drop_subscription(&dropped);
        story.subscribe_knowing("/a", PersistentRecursive, &known)
    };
    assert_eq!(paths(&parts[0])[3..], [Vec::new(), strings(["/a", "/a/p", "/a/r"])]);
    drop(recursive);
}

#[test]
fn resync_that_breaks_off_begins_anew_from_before_the_first_break() {
    let mut story = Story::connected();
    let known =
        Arc::new(Mutex::new(KnownNodes { zxid: Some(Zxid::new(20)), data: strings(["/a"]), ..KnownNodes::default() }));
    let mut knowing = story.subscribed_knowing("/a", PersistentRecursive, &known);
    story.watch(Watching::Data, "/x", 25);
    assert_eq!(story.bounce().iter().map(|part| watches(part).0).collect::<Vec<_>>(), [20, 25]);
    story.notify(DATA_CHANGED, "/a");
    story.reply(XID_SET_WATCHES, 60, &[]);
    // The subscriber has read the node again.
    *known.lock() = KnownNodes { zxid: Some(Zxid::new(60)), data: strings(["/a", "/a/b"]), ..KnownNodes::default() };
    let parts = story.bounce();
    assert_eq!(
        parts.iter().map(|part| watches(part).0).collect::<Vec<_>>(),
        [25, 25],
        "changes since 25 may be unknown"
    );
    assert_eq!(paths(&parts[0])[0], ["/a", "/a/b"]);
    for _part in parts {
        story.reply(XID_SET_WATCHES, 70, &[]);
    }
    assert_eq!(knowing.heard(), [told(EventType::NodeDataChanged, "/a"), SubscriptionEvent::Resynced]);
}

/// The server repeats a change of children for a subscriber that knows less than the rest of the session.
#[test]
fn change_that_is_repeated_for_a_subscriber_is_not_taken_for_a_newer_one() {
    let mut story = Story::connected();
    for (path, zxid) in [("/a", 20), ("/b", 50)] {
        story.submit(Request::SetData { path: path.into(), data: Vec::new(), version: None }, "write");
        let write = story.requests()[0].xid;
        story.reply(write, zxid, &stat(zxid, 0));
    }
    let known = Arc::new(Mutex::new(KnownNodes {
        zxid: Some(Zxid::new(20)),
        children: strings(["/a"]),
        ..KnownNodes::default()
    }));
    let mut knowing = story.subscribed_knowing("/a", PersistentRecursive, &known);
    for _ in 0..2 {
        let questions = story.bounce();
        assert_eq!(questions.len(), 1, "the newest write is the newest change");
        story.reply(questions[0].xid, 60, &stat(50, 0));
        let parts = story.requests();
        assert_eq!(parts.iter().map(|part| watches(part).0).collect::<Vec<_>>(), [20, 50]);
        // The change of transaction 30.
        story.notify(4, "/a");
        parts.iter().for_each(|_| story.reply(XID_SET_WATCHES, 60, &[]));
        assert_eq!(knowing.heard(), [told(EventType::NodeChildrenChanged, "/a"), SubscriptionEvent::Resynced]);
    }
}

#[test]
fn many_known_nodes_are_sent_in_parts_below_the_limit() {
    let mut story = Story::connected();
    let data: Vec<_> = (0..20_000).map(|number| format!("/a/a-node-with-a-long-name-{number:08}")).collect();
    let known =
        KnownNodes { zxid: Some(Zxid::new(9)), children: data[..5_000].to_vec(), data, ..KnownNodes::default() };
    let known = Arc::new(Mutex::new(known));
    let _knowing = story.subscribed_knowing("/a", PersistentRecursive, &known);
    let parts = story.bounce();
    assert!(parts.len() > 8 && parts.iter().all(|part| part.body.len() < 128 * 1024));
    let (last, others) = parts.split_last().unwrap();
    assert_eq!((last.op, paths(last)[4].clone()), (OpCode::SetWatches2, strings(["/a"])));
    let counts = others.iter().fold([0, 0], |[data, children], part| {
        let lists = watches(part).1;
        [data + lists[0], children + lists[2]]
    });
    assert_eq!(counts, [20_000, 5_000]);
    for _part in others {
        story.reply(XID_SET_WATCHES, 10, &[]);
    }
    assert!(!story.protocol.is_ready(), "no request goes ahead of the subscription");
    story.reply(XID_SET_WATCHES, 10, &[]);
    assert!(story.protocol.is_ready());
}

/// Returns the mode of a request for a persistent watch.
fn mode_of(seen: &Seen) -> AddWatchMode {
    assert_eq!(seen.op, OpCode::AddWatch);
    if seen.body.ends_with(&[0; 4]) { Persistent } else { PersistentRecursive }
}

#[test]
fn subscribers_of_both_modes_at_one_path_share_its_recursive_watch() {
    for modes in [[Persistent, PersistentRecursive], [PersistentRecursive, Persistent]] {
        let mut story = Story::connected();
        let first = story.subscribed("/a", modes[0]);
        let (to, events) = WatchEvents::channel();
        let id =
            story.protocol.add_watch("/a", modes[1], None, to, "add", story.now).map_err(|(_, error)| error).unwrap();
        let request = &story.requests()[0];
        assert_eq!(mode_of(request), PersistentRecursive, "a server before 3.9 has one watch for the path");
        let second = Subscription { path: "/a", mode: modes[1], id, events, xid: request.xid };
        let [mut persistent, mut recursive] = if modes[0] == Persistent { [first, second] } else { [second, first] };
        if modes[0] == Persistent {
            story.notify(CHILDREN_CHANGED, "/a");
            assert_eq!(persistent.heard().len(), 1, "the server has not set the recursive one yet");
        }
        story.reply(request.xid, 1, &[0; 4]);
        for round in 0..2 {
            for (kind, path) in [(CREATED, "/a/b"), (DELETED, "/a/b/c"), (DATA_CHANGED, "/a/b"), (DELETED, "/a/b")] {
                story.notify(kind, path);
            }
            // That of a one-shot watch of the children.
            story.notify(CHILDREN_CHANGED, "/a");
            story.notify(DELETED, "/a");
            assert_eq!(recursive.heard().len(), 5);
            let heard = persistent.heard();
            let changed = |event_type| SubscriptionEvent::Event(WatchedEvent { event_type, path: "/a".to_owned() });
            let children = changed(EventType::NodeChildrenChanged);
            assert_eq!(heard, [children.clone(), children, changed(EventType::NodeDeleted)]);
            if round == 0 {
                story.lose();
                story.open();
                story.accept(TIMEOUT);
                assert_eq!(watches(&story.requests()[0]).1, [0, 0, 0, 0, 1]);
                story.reply(XID_SET_WATCHES, 2, &[]);
                assert_eq!((recursive.heard().len(), persistent.heard().len()), (1, 1), "a reset");
            }
        }
    }
}

#[test]
fn persistent_watch_takes_the_place_of_a_recursive_one_that_is_dropped() {
    for is_early in [false, true] {
        let mut story = Story::connected();
        let mut persistent = story.subscribed("/a", Persistent);
        let recursive = story.subscribe("/a", PersistentRecursive);
        if is_early {
            story.drop_subscription(&recursive);
            assert!(story.requests().is_empty(), "the server has not set the recursive one yet");
        }
        story.reply(recursive.xid, 1, &[0; 4]);
        if !is_early {
            assert!(story.watch(Watching::Children, "/a", 1));
            story.drop_subscription(&recursive);
        }
        let replacing = &story.requests()[0];
        assert_eq!(mode_of(replacing), Persistent);
        story.notify(CREATED, "/a/b");
        story.reply(replacing.xid, 2, &[0; 4]);
        assert_eq!(persistent.heard().len(), 1, "from the recursive one");
        story.notify(CREATED, "/a/c");
        story.notify(CHILDREN_CHANGED, "/a");
        assert_eq!(persistent.heard().len(), 1, "from its own");
        story.drop_subscription(&persistent);
        assert_eq!(story.requests()[0].op, OpCode::RemoveWatches);
    }
}

#[test]
fn dropped_persistent_subscription_leaves_the_recursive_one_of_its_path() {
    let mut story = Story::connected();
    let persistent = story.subscribed("/a", Persistent);
    let mut recursive = story.subscribed("/a", PersistentRecursive);
    story.drop_subscription(&persistent);
    assert!(story.requests().is_empty());
    story.notify(DATA_CHANGED, "/a/b");
    assert_eq!(recursive.heard().len(), 1);
    story.drop_subscription(&recursive);
    assert_eq!(story.requests()[0].op, OpCode::RemoveWatches);
}

#[test]
fn watch_that_a_refused_subscription_should_serve_is_set_by_itself() {
    let mut story = Story::connected();
    let subscription = story.subscribe("/a", PersistentRecursive);
    let (read, is_sent) = story.read(Watching::Data, "/a");
    assert!(!is_sent);
    story.try_reply(subscription.xid, 40, ErrorCode::NoAuth.code(), &[]).unwrap();
    let removal = story.requests()[0].xid;
    story.reply(read, 50, &Watching::Data.body());
    story.try_reply(removal, 60, ErrorCode::NoWatcher.code(), &[]).unwrap();
    assert_eq!(story.set_again(), (40, vec![1, 0, 0]), "no watch has covered the time since 50");
}

#[test]
fn served_watches_are_set_from_the_frozen_base_and_ahead_of_the_subscription() {
    let mut story = Story::connected();
    let mut recursive = story.subscribed("/a", PersistentRecursive);
    let _persistent = story.subscribed("/b", Persistent);
    for path in ["/a", "/b"] {
        story.watch(Watching::Data, path, 70);
        story.watch(Watching::Children, path, 70);
    }
    story.lose();
    story.open();
    story.accept(TIMEOUT);
    let parts: Vec<_> = story.requests().iter().map(|part| (part.op, watches(part))).collect();
    let all = (OpCode::SetWatches2, (70, vec![2, 0, 1, 1, 1]));
    let behind = (OpCode::SetWatches, (70, vec![0, 0, 1]));
    assert_eq!(parts, [all, behind], "the recursive watch would remove the one of the children of its path");
    story.notify(DATA_CHANGED, "/a");
    for _part in &parts {
        story.reply(XID_SET_WATCHES, 80, &[]);
    }
    assert_eq!(story.notifications(), [(EventType::NodeDataChanged, "/a".to_owned())]);
    assert!(matches!(recursive.heard()[..], [SubscriptionEvent::Event(_), SubscriptionEvent::Reset]));
    assert!(!story.read(Watching::Data, "/a").1, "served on this connection too");
}

#[test]
fn served_watch_without_waiters_is_not_set_again() {
    for mode in [Persistent, PersistentRecursive] {
        let mut story = Story::connected();
        let subscription = story.subscribed("/a", mode);
        story.watch(Watching::Data, "/a", 1);
        story.protocol.forget("/a", WatchKind::Data, story.now);
        assert!(story.requests().is_empty(), "the removal would take the persistent watch too");
        story.notify(DATA_CHANGED, "/a");
        assert_eq!(story.notifications().len(), 0);
        story.drop_subscription(&subscription);
        let removal = story.requests()[0].xid;
        story.reply(removal, 2, &[]);
        assert!(story.requests().is_empty());
    }
}

#[test]
fn served_watch_that_is_forgotten_ahead_of_its_reply_is_not_armed() {
    let mut story = Story::connected();
    let _subscription = story.subscribed("/a", Persistent);
    let data = story.read(Watching::Data, "/a").0;
    let children = story.read(Watching::Children, "/a").0;
    story.protocol.forget("/a", WatchKind::Data, story.now);
    story.reply(data, 1, &Watching::Data.body());
    story.reply(children, 1, &Watching::Children.body());
    story.events();
    story.notify(DATA_CHANGED, "/a");
    assert_eq!(story.notifications().len(), 0);
    story.notify(CHILDREN_CHANGED, "/a");
    assert_eq!(story.notifications().len(), 1);
}

#[test]
fn subscription_that_is_dropped_while_it_is_set_again_is_removed_behind_that() {
    for is_back in [false, true] {
        let mut story = Story::connected();
        let subscription = story.subscribed("/a", Persistent);
        story.watch(Watching::Data, "/a", 1);
        story.lose();
        story.open();
        story.accept(TIMEOUT);
        assert_eq!(watches(&story.requests()[0]).1, [1, 0, 0, 1, 0]);
        story.drop_subscription(&subscription);
        let (to, _events) = WatchEvents::channel();
        if is_back {
            story.protocol.armed.subscribe("/a", PersistentRecursive, None, to);
        }
        story.reply(XID_SET_WATCHES, 5, &[]);
        let removal = story.requests();
        assert_eq!(
            removal.iter().map(|seen| seen.op).collect::<Vec<_>>(),
            if is_back { vec![] } else { vec![OpCode::RemoveWatches] }
        );
        if let [removal] = &removal[..] {
            story.reply(removal.xid, 6, &[]);
            assert_eq!(story.set_again(), (5, vec![1, 0, 0]));
        }
    }
}

#[test]
fn children_watch_at_a_recursive_one_is_removed_on_its_own() {
    let mut story = Story::connected();
    let _recursive = story.subscribed("/a", PersistentRecursive);
    story.watch_children("/a", 1);
    story.protocol.forget("/a", WatchKind::Children, story.now);
    let removal = story.requests();
    assert_eq!((removal[0].op, &removal[0].body[6..]), (OpCode::RemoveWatches, &WATCHER_CHILDREN.to_be_bytes()[..]));
}

#[test]
fn end_of_the_session_ends_its_subscriptions_and_what_they_serve() {
    let mut story = Story::connected();
    let mut subscription = story.subscribed("/a", PersistentRecursive);
    story.watch(Watching::Data, "/a", 1);
    story.protocol.close(story.now);
    assert_eq!(story.end(), SessionEnd::Closed);
    assert!(subscription.events.recv().now_or_never() == Some(None));
    assert_eq!(story.requests().len(), 1, "the close alone");
}

//! Compares requests and replies with the bytes of Java's client and Apache's server.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::Duration;

use curator_golden::{ENSEMBLE, Exchange, Frame, STANDALONE};
use curator_wire::{ErrorCode, OpCode, XID_AUTH, XID_PING, XID_SET_WATCHES};

use super::machine::{Event, Protocol, Settings};
use crate::error::Error;
use crate::model::AddWatchMode::{self, PersistentRecursive};
use crate::model::{Acl, AuthInfo, CreateMode, EventType, Permission, Stat, WatchKind, WatchedEvent};
use crate::zookeeper::client::history::History;
use crate::zookeeper::sasl::{DigestMd5, SaslDigest};
use crate::zookeeper::{Done, Notification, Operation, Request, Response, SessionEnd, SubscriptionEvent, WatchEvents};

const NOW: Duration = Duration::from_secs(100);

/// The call of our client that corresponds to an exchange.
enum Ours {
    Connect(Box<Settings>),
    /// Another connection of the session.
    Reattach,
    /// The first connection of a client that has the id and the password of a session.
    AttachForeign,
    Request(Request),
    AddWatch {
        path: &'static str,
        mode: AddWatchMode,
    },
    Unsubscribe {
        path: &'static str,
        mode: AddWatchMode,
    },
    Forget {
        path: &'static str,
        kind: WatchKind,
    },
    Ping,
    Close,
    /// Our client has no such call: each connection sends the credentials, and `create` is `create2`.
    None,
}

fn settings() -> Settings {
    Settings {
        session_timeout: Duration::from_secs(6),
        auth: Vec::new(),
        sasl: false,
        read_only: false,
        max_frame: crate::zookeeper::DEFAULT_MAX_FRAME,
        max_reply: crate::zookeeper::DEFAULT_MAX_REPLY,
    }
}

fn connect(settings: Settings) -> Ours {
    Ours::Connect(Box::new(settings))
}

fn create_with(path: &str, data: &str, mode: CreateMode, acl: Vec<Acl>) -> Ours {
    Ours::Request(Request::Create { path: path.into(), data: data.into(), acl, mode })
}

fn create(path: &str, data: &str, mode: CreateMode) -> Ours {
    create_with(path, data, mode, Acl::open_unsafe())
}

fn delete(path: &str, version: Option<i32>) -> Ours {
    Ours::Request(Request::Delete { path: path.into(), version })
}

fn exists(path: &str, watch: bool) -> Ours {
    Ours::Request(Request::Exists { path: path.into(), watch })
}

fn get_data(path: &str, watch: bool) -> Ours {
    Ours::Request(Request::GetData { path: path.into(), watch })
}

fn set_data(path: &str, data: &str, version: Option<i32>) -> Ours {
    Ours::Request(Request::SetData { path: path.into(), data: data.into(), version })
}

fn get_children(path: &str, watch: bool) -> Ours {
    Ours::Request(Request::GetChildren { path: path.into(), watch })
}

fn get_acl(path: &str) -> Ours {
    Ours::Request(Request::GetAcl { path: path.into() })
}

fn set_acl(path: &str, version: Option<i32>) -> Ours {
    Ours::Request(Request::SetAcl { path: path.into(), acl: Acl::open_unsafe(), version })
}

fn transaction(operations: Vec<Operation>) -> Ours {
    Ours::Request(Request::Transaction { operations })
}

fn creates(path: &str, data: &str, mode: CreateMode) -> Operation {
    Operation::Create { path: path.into(), data: data.into(), acl: Acl::open_unsafe(), mode }
}

fn checks(path: &str, version: i32) -> Operation {
    Operation::Check { path: path.into(), version: Some(version) }
}

fn deletes(path: &str, version: Option<i32>) -> Operation {
    Operation::Delete { path: path.into(), version }
}

fn reconfig(joining: &[&str], leaving: &[&str], members: &[&str], version: Option<i64>) -> Ours {
    let owned = |servers: &[&str]| servers.iter().map(|&server| server.to_owned()).collect();
    Ours::Request(Request::Reconfig {
        joining: owned(joining),
        leaving: owned(leaving),
        members: owned(members),
        version,
    })
}

fn standalone() -> Vec<(&'static str, Ours)> {
    use CreateMode::{
        Container, Ephemeral, EphemeralSequential, Persistent, PersistentSequential, PersistentSequentialWithTtl,
        PersistentWithTtl,
    };
    let hour = Duration::from_secs(3600);
    let longest = Duration::from_millis((1 << 40) - 1);
    let anybody_reads = Acl::new(Permission::READ, "world", "anyone");
    let anybody_creates = Acl::new(Permission::CREATE, "world", "anyone");
    let credentials = AuthInfo { scheme: "nothing".into(), auth: b"x".to_vec() };
    vec![
        ("connect: new", connect(settings())),
        ("create: persistent, the old request", Ours::None),
        ("create2: persistent", create("/golden", "data", Persistent)),
        ("create2: ephemeral", create("/golden/ephemeral", "", Ephemeral)),
        ("getEphemerals", Ours::Request(Request::GetEphemerals { path: "/".into() })),
        ("create2: persistent sequential", create("/golden/ps-", "1", PersistentSequential)),
        ("create2: ephemeral sequential", create("/golden/es-", "ä€", EphemeralSequential)),
        ("createContainer", create("/golden/container", "c", Container)),
        ("createTTL: persistent", create("/golden/ttl", "t", PersistentWithTtl(hour))),
        ("createTTL: persistent sequential", create("/golden/ttls-", "t", PersistentSequentialWithTtl(longest))),
        ("create2: node exists", create("/golden", "data", Persistent)),
        ("create2: no parent", create("/missing/child", "data", Persistent)),
        ("create2: child of an ephemeral node", create("/golden/ephemeral/child", "", Persistent)),
        (
            "create2: two entries of an access list",
            create_with(
                "/golden/acl",
                "a",
                Persistent,
                vec![anybody_reads, Acl::new(Permission::ALL, "ip", "127.0.0.1")],
            ),
        ),
        (
            "create2: bad access list",
            create_with("/golden/bad", "a", Persistent, vec![Acl::new(Permission::ALL, "nothing", "x")]),
        ),
        ("exists: present", exists("/golden", false)),
        ("exists: absent", exists("/absent", false)),
        ("exists: present, watch", exists("/golden/ps-0000000001", true)),
        ("exists: absent, watch", exists("/golden/later", true)),
        ("getData", get_data("/golden/es-0000000002", false)),
        ("getData: watch", get_data("/golden", true)),
        ("getData: absent", get_data("/absent", true)),
        ("setData: any version", set_data("/golden/ps-0000000001", "two", None)),
        ("setData: version", set_data("/golden/ps-0000000001", "three", Some(1))),
        ("setData: bad version", set_data("/golden/ps-0000000001", "four", Some(1))),
        ("getChildren", get_children("/golden", false)),
        ("getChildren: watch", get_children("/golden/acl", true)),
        ("getChildren: none", get_children("/golden/ttl", false)),
        ("getACL", get_acl("/golden/acl")),
        ("setACL: any version", set_acl("/golden/acl", None)),
        ("setACL: bad version", set_acl("/golden/acl", Some(7))),
        ("sync", Ours::Request(Request::Sync { path: "/golden".into() })),
        ("delete: not empty", delete("/golden", None)),
        ("delete: bad version", delete("/golden/acl", Some(9))),
        ("delete: version", delete("/golden/acl", Some(0))),
        ("delete: any version", delete("/golden/ps-0000000001", None)),
        ("delete: absent", delete("/golden/absent", None)),
        (
            "multi: done",
            transaction(vec![
                checks("/golden", 0),
                creates("/golden/m", "m", Persistent),
                creates("/golden/me-", "", EphemeralSequential),
                Operation::SetData { path: "/golden/m".into(), data: b"n".to_vec(), version: Some(0) },
                creates("/golden/mc", "c", Container),
                creates("/golden/mt", "t", PersistentWithTtl(hour)),
                deletes("/golden/m", Some(1)),
            ]),
        ),
        (
            "multi: failed",
            transaction(vec![
                creates("/golden/f", "f", Persistent),
                checks("/golden", 5),
                deletes("/golden/absent", None),
            ]),
        ),
        ("addWatch: persistent", Ours::AddWatch { path: "/golden", mode: AddWatchMode::Persistent }),
        ("addWatch: recursive", Ours::AddWatch { path: "/golden/container", mode: PersistentRecursive }),
        (
            "notification: created, on a missing node and in a list of children",
            create("/golden/later", "l", Persistent),
        ),
        ("notification: data changed, of a persistent watch", set_data("/golden", "again", None)),
        (
            "notification: created, below a recursive watch, and children changed",
            create("/golden/container/x", "l", Persistent),
        ),
        ("exists: watch on a node to be deleted", exists("/golden/later", true)),
        ("notification: deleted", delete("/golden/later", None)),
        ("removeWatches: any", Ours::Unsubscribe { path: "/golden/container", mode: PersistentRecursive }),
        ("exists: watch to be removed", exists("/golden/ttl", true)),
        ("removeWatches: data", Ours::Forget { path: "/golden/ttl", kind: WatchKind::Data }),
        ("getChildren: watch to be removed", get_children("/golden/ttl", true)),
        ("removeWatches: children", Ours::Forget { path: "/golden/ttl", kind: WatchKind::Children }),
        ("auth", Ours::None),
        ("getChildren: after auth", get_children("/golden/ttl", false)),
        ("create2: access list of the creator", create_with("/golden/mine", "a", Persistent, Acl::creator_all())),
        ("exists: watch on data", exists("/old", true)),
        ("exists: watch on a missing node", exists("/absent", true)),
        ("getChildren: watch on children", get_children("/golden/ttl", true)),
        ("connect: re-attach, auth, setWatches2", Ours::Reattach),
        ("removeWatches: persistent", Ours::Unsubscribe { path: "/golden", mode: AddWatchMode::Persistent }),
        ("connect: re-attach, auth, setWatches", Ours::Reattach),
        ("ping", Ours::Ping),
        ("create2: access list without reads", create_with("/secret", "s", Persistent, vec![anybody_creates])),
        ("getData: forbidden", get_data("/secret", false)),
        ("closeSession", Ours::Close),
        ("connect: refused", Ours::AttachForeign),
        ("connect: new, refused credentials", connect(Settings { auth: vec![credentials], ..settings() })),
        ("connect: new, by a client older than read-only servers", connect(settings())),
        (
            "multi: create2",
            transaction(vec![creates("/raw", "r", Persistent), creates("/raw-", "", EphemeralSequential)]),
        ),
        ("connect: new, a read-only server will do", connect(Settings { read_only: true, ..settings() })),
    ]
}

fn ensemble() -> Vec<(&'static str, Ours)> {
    let member = "server.1=127.0.0.1:15191:15192:participant;127.0.0.1:15193";
    let joining = "server.2=127.0.0.1:15194:15195:observer;127.0.0.1:15196";
    vec![
        ("connect: new, SASL without an authorization id", connect(Settings { sasl: true, ..settings() })),
        ("connect: new, SASL", Ours::None),
        ("create2: access list of the user", create_with("/mine", "a", CreateMode::Persistent, Acl::creator_all())),
        ("getACL: sasl", get_acl("/mine")),
        ("reconfig: joining", reconfig(&[joining], &[], &[], None)),
        ("reconfig: leaving", reconfig(&[], &["2"], &[], None)),
        ("reconfig: members", reconfig(&[], &[], &[member], None)),
        ("reconfig: bad version", reconfig(&[], &[], &[member], Some(77))),
        ("getConfig", get_data("/zookeeper/config", false)),
        ("closeSession", Ours::Close),
    ]
}

/// Our client, which replaces Java's.
struct Player {
    protocol: Protocol<u32>,
    /// The frames that our client has sent and the recording has not reached.
    sent: VecDeque<Vec<u8>>,
    /// The subscribers of persistent watches.
    subscribers: Vec<(&'static str, u64, WatchEvents)>,
    login: Option<DigestMd5>,
    /// The client's nonce of the recorded login.
    nonce: Option<String>,
    values: Vec<String>,
}

impl Player {
    fn act(&mut self, ours: Ours) {
        let epoch = self.protocol.epoch;
        match ours {
            Ours::Connect(settings) => {
                self.protocol = Protocol::new(*settings);
                self.open();
            }
            Ours::Reattach => {
                self.protocol.lost(None);
                self.open();
            }
            Ours::AttachForeign => {
                let session = self.protocol.session.take();
                self.protocol = Protocol { session, ..Protocol::new(settings()) };
                self.open();
            }
            Ours::Request(request) => self.protocol.submit(request, epoch, 0, NOW).expect("the connection is ready"),
            Ours::AddWatch { path, mode } => {
                let (to, events) = WatchEvents::channel();
                let (id, _unsent) =
                    self.protocol.add_watch(path, mode, None, to, 0, NOW).expect("the connection is ready");
                self.subscribers.push((path, id, events));
            }
            Ours::Unsubscribe { path, mode } => {
                let at = self.subscribers.iter().position(|subscriber| subscriber.0 == path).expect("it subscribed");
                let (_, id, _) = self.subscribers.remove(at);
                self.protocol.unsubscribe(path, mode, id, NOW);
            }
            Ours::Forget { path, kind } => self.protocol.forget(path, kind, NOW),
            Ours::Ping => self.protocol.ping(0, NOW).expect("the connection is ready"),
            Ours::Close => self.protocol.close(NOW),
            Ours::None => unreachable!("the exchange is skipped"),
        }
        self.take_output();
    }

    fn open(&mut self) {
        self.protocol.open(NOW);
        let nonce = self.nonce.clone();
        self.login = nonce.map(|nonce| SaslDigest::new("super", "secret").log_in(nonce));
    }

    fn take_output(&mut self) {
        let output = self.protocol.output().to_vec();
        self.protocol.written(output.len());
        let mut rest = &output[..];
        while let Some((length, behind)) = rest.split_first_chunk::<4>() {
            let (frame, behind) = behind.split_at(u32::from_be_bytes(*length) as usize);
            self.sent.push_back(frame.to_vec());
            rest = behind;
        }
    }

    fn receive(&mut self, frame: &[u8]) {
        let bytes = [&u32::try_from(frame.len()).unwrap().to_be_bytes(), frame].concat();
        assert_eq!(self.protocol.receive(&bytes, NOW), Ok(bytes.len()));
        let heard = self.subscribers.iter_mut().filter_map(|(.., events)| match events.try_recv().ok() {
            Some(SubscriptionEvent::Event(event)) => Some(event),
            _ => None,
        });
        // A frame has one event at most, for subscribers, waiters or both.
        let mut heard = heard.last();
        while let Some(event) = self.protocol.next_event() {
            if matches!(event, Event::Notification(_)) {
                heard = None;
            }
            let value = match event {
                Event::Connected { reattached, .. } => {
                    let session = self.protocol.session.as_ref().unwrap();
                    let password = hex(&session.password);
                    format!("session {} password {password} timeout {}", session.id, reattached.timeout.as_millis())
                }
                Event::Reply(_, reply) => describe(reply.result),
                Event::Notification(Notification::Event(event)) => event_text(&event),
                Event::Ended(SessionEnd::Expired) => "expired".to_owned(),
                Event::Ended(SessionEnd::AuthFailed) => "auth failed".to_owned(),
                Event::Ended(_)
                | Event::Closed
                | Event::Shortened { .. }
                | Event::Notification(Notification::WatchRemoved(..)) => continue,
                Event::LogIn => {
                    self.protocol.send_token(b"", NOW);
                    continue;
                }
                Event::Challenge(token) => {
                    let login = self.login.as_mut().expect("the recording has a login");
                    match login.answer(&token.expect("a token")).expect("a correct server") {
                        Some(answer) => self.protocol.send_token(&answer, NOW),
                        None => self.protocol.logged_in(NOW),
                    }
                    continue;
                }
            };
            self.values.push(value);
        }
        self.values.extend(heard.as_ref().map(event_text));
        self.take_output();
    }
}

fn event_text(event: &WatchedEvent) -> String {
    let kind = match event.event_type {
        EventType::NodeCreated => 1,
        EventType::NodeDeleted => 2,
        EventType::NodeDataChanged => 3,
        EventType::NodeChildrenChanged => 4,
    };
    format!("event {kind} {}", event.path)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the text that the recorder writes for a value.
fn describe(result: Result<Response, Error>) -> String {
    match result {
        Ok(Response::Created { path, stat }) => format!("{path} {}", stat_text(stat)),
        Ok(Response::Deleted) => "deleted".to_owned(),
        Ok(Response::Exists(found)) => found.map_or_else(|| "none".to_owned(), stat_text),
        Ok(Response::Data(data, stat)) => format!("data {} {}", hex(&data), stat_text(stat)),
        Ok(Response::Stat(stat)) => stat_text(stat),
        Ok(Response::Children(children)) => format!("children {}", children.join(" ")).trim().to_owned(),
        Ok(Response::Ephemerals(paths)) => format!("ephemerals {}", paths.join(" ")),
        Ok(Response::Acl(acl, stat)) => {
            let mut text = "acl".to_owned();
            for entry in acl {
                write!(text, " {}:{}:{}", entry.permissions.bits(), entry.scheme, entry.id).unwrap();
            }
            format!("{text} {}", stat_text(stat))
        }
        Ok(Response::Synced) => "synced".to_owned(),
        Ok(Response::Done(done)) => {
            let done: Vec<_> = done.into_iter().map(done_text).collect();
            format!("results {}", done.join(" | "))
        }
        Ok(Response::Identities(all)) => format!("identities {all:?}"),
        Ok(Response::Reads(read)) => format!("reads {read:?}"),
        Ok(Response::Acknowledged) => "added".to_owned(),
        Err(Error::Transaction { index, cause, .. }) => {
            let code = code_of(&cause);
            format!("error {code}{} {code}", " 0".repeat(index))
        }
        Err(error) => format!("error {}", code_of(&error)),
    }
}

fn done_text(done: Done) -> String {
    match done {
        Done::Created { path, stat } if stat == Stat::default() => format!("created {path} none"),
        Done::Created { path, stat } => format!("created {path} {}", stat_text(stat)),
        Done::Deleted => "deleted".to_owned(),
        Done::Set(stat) => format!("set {}", stat_text(stat)),
        Done::Checked => "checked".to_owned(),
    }
}

fn stat_text(stat: Stat) -> String {
    let Stat { czxid, mzxid, ctime, mtime, version, cversion, aversion, .. } = stat;
    let Stat { ephemeral_owner, data_length, num_children, pzxid, .. } = stat;
    format!(
        "stat {czxid},{mzxid},{ctime},{mtime},{version},{cversion},{aversion},{ephemeral_owner},{data_length},{num_children},{pzxid}"
    )
}

fn code_of(error: &Error) -> i32 {
    let code = match error {
        Error::NoNode { .. } => ErrorCode::NoNode,
        Error::NodeExists { .. } => ErrorCode::NodeExists,
        Error::NotEmpty { .. } => ErrorCode::NotEmpty,
        Error::BadVersion { .. } => ErrorCode::BadVersion,
        Error::NoAuth { .. } => ErrorCode::NoAuth,
        Error::InvalidAcl { .. } => ErrorCode::InvalidAcl,
        Error::NoChildrenForEphemerals { .. } => ErrorCode::NoChildrenForEphemerals,
        other => panic!("unexpected: {other}"),
    };
    code.code()
}

fn xid_of(frame: &[u8]) -> i32 {
    i32::from_be_bytes(*frame.first_chunk().unwrap())
}

fn with_xid(frame: &[u8], xid: i32) -> Vec<u8> {
    [&xid.to_be_bytes(), &frame[4..]].concat()
}

/// Replaces the free choices of a client: the numbers of requests, and the order of SASL's directives.
fn normalised(frame: &[u8]) -> Vec<u8> {
    let frame = match xid_of(frame) {
        XID_PING | XID_AUTH => frame.to_vec(),
        _ => with_xid(frame, 0),
    };
    let (header, body) = frame.split_at(8);
    let op = OpCode::from_code(i32::from_be_bytes(*header.last_chunk().unwrap()));
    match op {
        OpCode::Sasl if body.len() > 4 => {
            let mut directives: Vec<_> = std::str::from_utf8(&body[4..]).unwrap().split(',').collect();
            directives.sort_unstable();
            [header, &body[..4], directives.join(",").as_bytes()].concat()
        }
        // Java's client creates by `create` in a transaction, ours by `create2`.
        OpCode::Multi => {
            let part = |op: OpCode| hex(&[&op.code().to_be_bytes()[..], &[0, 0xff, 0xff, 0xff, 0xff]].concat());
            hex(&frame).replace(&part(OpCode::Create), &part(OpCode::Create2)).into_bytes()
        }
        _ => frame,
    }
}

/// Plays a recording: our client sends the requests, and receives the recorded replies.
fn play(recording: &str, table: Vec<(&'static str, Ours)>) {
    let mut rows = VecDeque::from(table);
    let mut player = Player {
        protocol: Protocol::new(settings()),
        sent: VecDeque::new(),
        subscribers: Vec::new(),
        login: None,
        nonce: nonce_of(recording),
        values: Vec::new(),
    };
    for exchange in Exchange::all(recording) {
        let name = &exchange.name;
        if rows.front().is_some_and(|(row, ours)| row == name && matches!(ours, Ours::None)) {
            rows.pop_front();
            if name == "auth" {
                let credentials = AuthInfo { scheme: "digest".into(), auth: b"user:password".to_vec() };
                player.protocol.settings.auth.push(credentials);
            }
            continue;
        }
        let is_older = name.contains("older") || name.contains("without an authorization id");
        let is_connect = name.starts_with("connect");
        if is_connect {
            // Java's client does not ask for known writes, so the recording has no replies to that.
            player.protocol.history = History::default();
        }
        let (mut is_first, mut xids) = (is_connect, (0, 0));
        for frame in exchange.frames {
            match frame {
                Frame::FromClient(mut recorded) => {
                    if player.sent.is_empty() {
                        let (row, ours) = rows.pop_front().expect("a row for each request");
                        assert_eq!(row, name);
                        player.act(ours);
                    }
                    let sent = player.sent.pop_front().unwrap_or_else(|| panic!("{name}: nothing was sent"));
                    if std::mem::take(&mut is_first) {
                        if is_older {
                            recorded.push(0);
                        }
                        assert_eq!(hex(&sent), hex(&recorded), "{name}");
                        continue;
                    }
                    assert_eq!(hex(&normalised(&sent)), hex(&normalised(&recorded)), "{name}");
                    if !matches!(xid_of(&recorded), XID_PING | XID_AUTH) {
                        xids = (xid_of(&recorded), xid_of(&sent));
                        assert!(xids.1 > 0 || xids.1 == XID_SET_WATCHES, "{name}: {}", xids.1);
                    }
                }
                Frame::FromServer(reply) if is_connect && xid_of(&reply) == 0 => player.receive(&reply),
                Frame::FromServer(reply) if xid_of(&reply) == xids.0 => {
                    player.receive(&with_xid(&reply, xids.1));
                }
                Frame::FromServer(reply) => player.receive(&reply),
            }
        }
        assert_eq!(player.sent.len(), 0, "{name}: too many requests");
        let (mut decoded, mut recorded) = (std::mem::take(&mut player.values), exchange.values);
        // Sorted, because the frames keep the order of a notification and the reply behind it.
        decoded.sort();
        recorded.sort();
        // Java's client does not report the reply to a ping, nor the results behind a failed one.
        recorded.iter_mut().for_each(|value| *value = value.trim_end_matches(" -2").to_owned());
        recorded.retain(|value| value != "removed");
        match name.as_str() {
            "ping" => assert_eq!(decoded, ["added"]),
            _ if is_older => {}
            _ => assert_eq!(decoded, recorded, "{name}"),
        }
    }
    assert_eq!(rows.len(), 0, "a row without a recorded exchange");
}

/// Returns the client's nonce in the recorded login.
fn nonce_of(recording: &str) -> Option<String> {
    let frames = Exchange::all(recording).into_iter().flat_map(|exchange| exchange.frames);
    let texts = frames
        .map(|(Frame::FromClient(bytes) | Frame::FromServer(bytes))| String::from_utf8_lossy(&bytes).into_owned());
    let mut nonces = texts.filter_map(|text| Some(text.split_once("cnonce=\"")?.1.split_once('"')?.0.to_owned()));
    nonces.next()
}

#[test]
fn requests_and_replies_are_those_of_a_standalone_server() {
    play(STANDALONE, standalone());
}

#[test]
fn sasl_and_reconfig_are_those_of_an_ensemble() {
    play(ENSEMBLE, ensemble());
}

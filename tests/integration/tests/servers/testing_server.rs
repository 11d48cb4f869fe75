//! The in-process server over TCP: with raw frames, and with the client that the
//! framework uses.

use std::future::Future;
use std::io;
use std::sync::mpsc as blocking;
use std::time::{Duration, Instant};

use curator_test::TestingServer;
use curator_test::wire::{
    Acl, ConnectRequest, ConnectResponse, ErrorCode, EventKind, MAX_FRAME, OpCode, Reader, ReplyHeader, RequestHeader,
    Stat, WatchEvent, Writer, XID_EVENT, XID_PING, read_frame, session_password, write_frame,
};
use tokio::net::TcpStream;
use zookeeper_async::{CreateMode, WatchedEventType, ZkError, ZooKeeper, ZooKeeperExt};

/// Nothing here takes this long unless it is broken.
const BOUND: Duration = Duration::from_secs(10);

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(BOUND, future).await.expect("takes too long")
}

/// Polls until `condition` holds.
async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < BOUND, "never: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A client that sends and takes single frames.
struct Raw {
    stream: TcpStream,
    session: i64,
    xid: i32,
}

impl Raw {
    async fn connect(server: &TestingServer, timeout_ms: i32) -> Self {
        let request = ConnectRequest { timeout_ms, ..ConnectRequest::default() };
        let (raw, response) = Self::handshake(server, &request).await;
        assert_ne!(response.session_id, 0);
        raw
    }

    async fn attach(server: &TestingServer, session_id: i64) -> (Self, ConnectResponse) {
        let password = session_password(session_id).to_vec();
        let request = ConnectRequest { session_id, password, ..ConnectRequest::default() };
        Self::handshake(server, &request).await
    }

    async fn handshake(server: &TestingServer, request: &ConnectRequest) -> (Self, ConnectResponse) {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let mut frame = Writer::new();
        request.encode(&mut frame);
        write_frame(&mut stream, &frame.into_bytes()).await.unwrap();
        let mut raw = Self { stream, session: 0, xid: 0 };
        let frame = raw.frame().await.expect("an answer");
        let response = ConnectResponse::decode(&mut Reader::new(&frame)).unwrap();
        raw.session = response.session_id;
        (raw, response)
    }

    /// The next frame; `None` if the server has closed the connection.
    async fn frame(&mut self) -> Option<Vec<u8>> {
        within(read_frame(&mut self.stream, MAX_FRAME)).await.unwrap_or_default()
    }

    async fn send(&mut self, op: OpCode, body: &Writer) {
        self.xid = if op == OpCode::Ping { XID_PING } else { self.xid.max(0) + 1 };
        let mut frame = Writer::new();
        RequestHeader { xid: self.xid, op }.encode(&mut frame);
        frame.raw(&body.clone().into_bytes());
        write_frame(&mut self.stream, &frame.into_bytes()).await.unwrap();
    }

    /// The next frame as a reply: its error and its body.
    async fn reply(&mut self) -> (i32, Vec<u8>) {
        let frame = self.frame().await.expect("a reply");
        let mut reader = Reader::new(&frame);
        let header = ReplyHeader::decode(&mut reader).unwrap();
        assert_eq!(header.xid, self.xid);
        (header.err, reader.rest().to_vec())
    }

    async fn call(&mut self, op: OpCode, body: &Writer) -> (i32, Vec<u8>) {
        self.send(op, body).await;
        self.reply().await
    }

    async fn create(&mut self, path: &str, flags: i32) -> String {
        let mut body = Writer::new();
        body.string(path).buffer(b"data");
        body.vector([Acl::open()], |body, acl| acl.encode(body)).int(flags);
        let (err, body) = self.call(OpCode::Create, &body).await;
        assert_eq!(err, 0);
        Reader::new(&body).string().unwrap().to_owned()
    }

    async fn event(&mut self) -> (i32, String) {
        let frame = self.frame().await.expect("an event");
        let mut reader = Reader::new(&frame);
        let header = ReplyHeader::decode(&mut reader).unwrap();
        assert_eq!(header, ReplyHeader { xid: XID_EVENT, zxid: -1, err: 0 });
        let event = WatchEvent::decode(&mut reader).unwrap();
        assert_eq!(event.state, 3);
        (event.kind, event.path)
    }
}

fn path_watch(path: &str, watch: bool) -> Writer {
    let mut body = Writer::new();
    body.string(path).bool(watch);
    body
}

fn quick() -> TestingServer {
    let (min, max) = (Duration::from_millis(50), Duration::from_secs(60));
    TestingServer::builder().session_timeouts(min, max).start().unwrap()
}

async fn zookeeper_async(server: &TestingServer) -> ZooKeeper {
    let address = server.connect_string();
    let client = within(ZooKeeper::connect(&address, Duration::from_secs(10), |_| {})).await.unwrap();
    // The client comes back before its session has started; the answer to a request does not.
    within(client.exists("/", false)).await.unwrap();
    client
}

#[test]
fn it_starts_in_no_time_and_leaves_no_port_behind() {
    let began = Instant::now();
    let addresses: Vec<_> = (0..20)
        .map(|_| {
            let server = TestingServer::start().unwrap();
            std::net::TcpStream::connect(server.address()).unwrap();
            server.address()
        })
        .collect();
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    for address in addresses {
        let refused = std::net::TcpStream::connect(address).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
}

#[test]
fn impossible_settings_are_refused() {
    let second = Duration::from_secs(1);
    for builder in [
        TestingServer::builder().tick(Duration::ZERO),
        TestingServer::builder().session_timeouts(2 * second, second),
        TestingServer::builder().session_timeouts(second, Duration::MAX),
        TestingServer::builder().container_check_interval(Duration::ZERO),
    ] {
        let refused = builder.start().unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }
    let first = TestingServer::start().unwrap();
    let second = TestingServer::builder().port(first.port()).start().unwrap_err();
    assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
}

#[tokio::test]
async fn timeouts_follow_the_tick() {
    let server = TestingServer::builder().tick(Duration::from_millis(100)).start().unwrap();
    for (asked, given) in [(1, 200), (777, 777), (60_000, 2000)] {
        let request = ConnectRequest { timeout_ms: asked, ..ConnectRequest::default() };
        let (_raw, response) = Raw::handshake(&server, &request).await;
        assert_eq!(response.timeout_ms, given);
    }
}

#[tokio::test]
async fn a_silent_session_expires_on_the_servers_clock() {
    let server = quick();
    let mut holder = Raw::connect(&server, 100).await;
    let mut waiter = Raw::connect(&server, 10_000).await;
    let began = Instant::now();
    holder.create("/held", 1).await;
    waiter.call(OpCode::Exists, &path_watch("/held", true)).await;
    assert_eq!(waiter.event().await, (EventKind::NodeDeleted as i32, "/held".to_owned()));
    assert!(began.elapsed() >= Duration::from_millis(100));
    assert_eq!(holder.frame().await, None);
    assert_eq!(server.sessions(), [waiter.session]);
}

#[tokio::test]
async fn pings_keep_a_session() {
    let server = quick();
    let mut client = Raw::connect(&server, 200).await;
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(500) {
        assert_eq!(client.call(OpCode::Ping, &Writer::new()).await, (0, Vec::new()));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(server.sessions(), [client.session]);
}

#[tokio::test]
async fn a_session_can_be_taken_over_by_its_id() {
    let server = TestingServer::start().unwrap();
    let mut victim = Raw::connect(&server, 10_000).await;
    victim.create("/held", 1).await;
    let (err, body) = victim.call(OpCode::Exists, &path_watch("/held", false)).await;
    assert_eq!(err, 0);
    let owner = Stat::decode(&mut Reader::new(&body)).unwrap().ephemeral_owner;
    assert_eq!(owner, victim.session);

    let (mut thief, response) = Raw::attach(&server, owner).await;
    assert_eq!(response.session_id, owner);
    assert_eq!(victim.frame().await, None);
    assert_eq!(thief.call(OpCode::CloseSession, &Writer::new()).await.0, 0);
    assert_eq!(thief.frame().await, None);
    assert!(!server.exists("/held"));

    let (mut late, response) = Raw::attach(&server, owner).await;
    let refused = ConnectResponse { password: vec![0; 16], ..ConnectResponse::default() };
    assert_eq!(response, refused);
    assert_eq!(late.frame().await, None);
}

#[tokio::test]
async fn a_killed_session_is_gone_at_once() {
    let server = TestingServer::start().unwrap();
    let mut holder = Raw::connect(&server, 10_000).await;
    let mut waiter = Raw::connect(&server, 10_000).await;
    holder.create("/held", 1).await;
    waiter.call(OpCode::Exists, &path_watch("/held", true)).await;
    assert_eq!(server.watch_count(), 1);
    assert!(server.kill_session(holder.session));
    assert!(!server.kill_session(holder.session));
    assert!(!server.exists("/held"));
    assert_eq!(server.watch_count(), 0);
    assert_eq!(waiter.event().await, (EventKind::NodeDeleted as i32, "/held".to_owned()));
    assert_eq!(holder.frame().await, None);
}

#[tokio::test]
async fn a_restart_keeps_data_and_sessions() {
    let server = TestingServer::start().unwrap();
    let mut client = Raw::connect(&server, 10_000).await;
    client.create("/kept", 0).await;
    client.create("/held", 1).await;
    client.call(OpCode::Exists, &path_watch("/held", true)).await;

    server.stop();
    assert_eq!(client.frame().await, None);
    let refused = TcpStream::connect(server.address()).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    assert_eq!(server.watch_count(), 0);

    for _ in 0..3 {
        server.restart().unwrap();
        let (mut client, response) = Raw::attach(&server, client.session).await;
        assert_eq!(response.session_id, client.session);
        assert_eq!(client.call(OpCode::Ping, &Writer::new()).await.0, 0);
    }
    assert_eq!(server.data("/kept"), Some(b"data".to_vec()));
    assert!(server.exists("/held"));
}

#[tokio::test]
async fn sessions_have_their_full_time_after_a_restart() {
    let server = quick();
    let mut client = Raw::connect(&server, 100).await;
    client.create("/held", 1).await;
    server.stop();
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert_eq!(server.sessions(), [client.session]);
    server.restart().unwrap();
    let (mut client, _) = Raw::attach(&server, client.session).await;
    assert_eq!(client.call(OpCode::Ping, &Writer::new()).await.0, 0);
    assert!(server.exists("/held"));
}

#[tokio::test]
async fn frozen_server_accepts_connections_and_replies_to_none() {
    let server = TestingServer::start().unwrap();
    let mut client = Raw::connect(&server, 10_000).await;
    server.freeze();
    server.freeze();
    let mut late = TcpStream::connect(server.address()).await.unwrap();
    let mut connect = Writer::new();
    ConnectRequest::default().encode(&mut connect);
    write_frame(&mut late, &connect.into_bytes()).await.unwrap();
    client.send(OpCode::Ping, &Writer::new()).await;
    let silence = Duration::from_millis(100);
    let answer = tokio::time::timeout(silence, read_frame(&mut client.stream, MAX_FRAME)).await;
    assert!(answer.is_err(), "{answer:?}");

    server.thaw();
    server.thaw();
    assert_eq!(client.reply().await.0, 0);
    assert!(within(read_frame(&mut late, MAX_FRAME)).await.unwrap().is_some());
}

#[tokio::test]
async fn a_thawed_server_ends_overdue_sessions_before_it_reads() {
    let server = quick();
    let mut client = Raw::connect(&server, 100).await;
    client.create("/held", 1).await;
    server.freeze();
    client.send(OpCode::Ping, &Writer::new()).await;
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert!(server.exists("/held"));
    server.thaw();
    assert!(!server.exists("/held"));
    assert_eq!(client.frame().await, None);
}

#[test]
fn a_frozen_server_can_be_stopped_restarted_and_dropped() {
    let server = TestingServer::start().unwrap();
    server.freeze();
    server.restart().unwrap();
    server.freeze();
    server.stop();
    server.restart().unwrap();
    server.freeze();
    drop(server);
}

#[tokio::test(start_paused = true)]
async fn it_lives_in_real_time_under_a_paused_clock() {
    let server = quick();
    let address = server.address();
    let (ended, end) = blocking::channel();
    // Paused time jumps ahead whenever the test waits: the sockets must not be its.
    std::thread::spawn(move || {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let mut frame = Writer::new();
        ConnectRequest { timeout_ms: 100, ..ConnectRequest::default() }.encode(&mut frame);
        let mut length = Writer::new();
        length.buffer(&frame.into_bytes());
        stream.write_all(&length.into_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        ended.send(answer.len()).unwrap();
    });
    let began = Instant::now();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(began.elapsed() < BOUND);
    // The answer to the connect, then the end of the session.
    assert_eq!(end.recv_timeout(BOUND), Ok(4 + 36));
    assert_eq!(server.sessions(), [0; 0]);
}

#[tokio::test]
async fn oversized_and_broken_frames_end_the_connection_and_nothing_else() {
    use tokio::io::AsyncWriteExt;

    let server = TestingServer::start().unwrap();
    let mut bystander = Raw::connect(&server, 10_000).await;
    for bytes in [&b"\x7f\xff\xff\xff"[..], b"\xff\xff\xff\xff", b"\0\x10\0\0", b"\0\0\0\x01x"] {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        assert!(matches!(within(read_frame(&mut stream, MAX_FRAME)).await, Ok(None) | Err(_)));

        let mut client = Raw::connect(&server, 10_000).await;
        client.stream.write_all(bytes).await.unwrap();
        assert_eq!(client.frame().await, None);
    }
    assert_eq!(bystander.call(OpCode::Ping, &Writer::new()).await.0, 0);
}

#[tokio::test]
async fn a_client_that_does_not_read_is_held_back() {
    let server = TestingServer::start().unwrap();
    let mut writer = Raw::connect(&server, 30_000).await;
    let mut body = Writer::new();
    body.string("/big").buffer(&vec![7; 900_000]);
    body.vector([Acl::open()], |body, acl| acl.encode(body)).int(0);
    assert_eq!(writer.call(OpCode::Create, &body).await.0, 0);

    let mut client = Raw::connect(&server, 30_000).await;
    let count = 200;
    for _ in 0..count {
        client.send(OpCode::GetData, &path_watch("/big", false)).await;
    }
    server.clear_requests();
    assert_eq!(writer.call(OpCode::Ping, &Writer::new()).await.0, 0);
    for _ in 0..count {
        assert!(client.frame().await.is_some_and(|frame| frame.len() > 900_000));
    }
}

#[tokio::test]
async fn requests_and_the_tree_can_be_looked_at() {
    let server = TestingServer::start().unwrap();
    let mut client = Raw::connect(&server, 10_000).await;
    client.create("/a", 0).await;
    assert!(server.set_next_sequence("/a", i32::MAX));
    server.clear_requests();
    assert_eq!(client.create("/a/n-", 2).await, "/a/n-2147483647");
    client.call(OpCode::Exists, &path_watch("/none", false)).await;
    client.call(OpCode::Ping, &Writer::new()).await;
    let requests: Vec<_> = server
        .requests()
        .into_iter()
        .filter(|request| request.op != OpCode::Ping)
        .map(|request| (request.session_id, request.op.name(), request.path, request.error))
        .collect();
    let (session, no_node) = (client.session, ErrorCode::NoNode.code());
    assert_eq!(
        requests,
        [(session, "create", Some("/a/n-".to_owned()), 0), (session, "exists", Some("/none".to_owned()), no_node),]
    );
    assert_eq!(server.children("/a"), Some(vec!["n-2147483647".to_owned()]));
    assert_eq!(server.children("/none"), None);
    assert_eq!(server.data("/a"), Some(b"data".to_vec()));
    assert_eq!(server.data("/none"), None);

    let before = server.traffic();
    assert_eq!(client.create("/b", 0).await, "/b");
    let after = server.traffic();
    // Length, number, operation, path, data, one list of one entry, mode; length, header, path.
    assert_eq!(after.received - before.received, 4 + 8 + (4 + 2) + (4 + 4) + (4 + 4 + (4 + 5) + (4 + 6)) + 4);
    assert_eq!(after.sent - before.sent, 4 + 16 + (4 + 2));
}

#[tokio::test]
async fn containers_and_nodes_with_a_time_to_live_go_on_the_servers_clock() {
    let interval = Duration::from_millis(20);
    let server = TestingServer::builder().container_check_interval(interval).extended_types(true).start().unwrap();
    let mut client = Raw::connect(&server, 10_000).await;
    let container = |path: &str, flags: i32| {
        let mut body = Writer::new();
        body.string(path).buffer(b"");
        body.vector([Acl::open()], |body, acl| acl.encode(body)).int(flags);
        body
    };
    assert_eq!(client.call(OpCode::CreateContainer, &container("/container", 4)).await.0, 0);
    client.create("/container/child", 0).await;
    let mut body = Writer::new();
    body.string("/container/child").int(-1);
    assert_eq!(client.call(OpCode::Delete, &body).await.0, 0);
    let mut body = container("/brief", 5);
    body.long(1);
    assert_eq!(client.call(OpCode::CreateTtl, &body).await.0, 0);
    until("both are deleted", || !server.exists("/container") && !server.exists("/brief")).await;
}

#[tokio::test]
async fn reads_can_lag_behind() {
    let server = TestingServer::start().unwrap();
    let mut writer = Raw::connect(&server, 10_000).await;
    let mut reader = Raw::connect(&server, 10_000).await;
    let no_node = ErrorCode::NoNode.code();
    server.stale_reads(true);
    writer.create("/new", 0).await;
    assert_eq!(reader.call(OpCode::Exists, &path_watch("/new", true)).await.0, no_node);
    assert!(server.exists("/new"));
    server.stale_reads(false);
    assert_eq!(reader.event().await, (EventKind::NodeCreated as i32, "/new".to_owned()));
    assert_eq!(reader.call(OpCode::Exists, &path_watch("/new", false)).await.0, 0);
}

#[tokio::test]
async fn a_server_can_lose_everything() {
    let server = TestingServer::start().unwrap();
    let mut client = Raw::connect(&server, 10_000).await;
    client.create("/a", 1).await;
    server.restart_empty().unwrap();
    assert_eq!(client.frame().await, None);
    assert_eq!(server.sessions(), [0; 0]);
    assert!(!server.exists("/a"));
    let (mut refused, response) = Raw::attach(&server, client.session).await;
    assert_eq!(response.session_id, 0);
    assert_eq!(refused.frame().await, None);
    Raw::connect(&server, 10_000).await.create("/a", 0).await;
}

#[test]
fn four_letter_words_are_answered_in_any_pieces() {
    use std::io::{Read, Write};

    let server = TestingServer::start().unwrap();
    let mut stream = std::net::TcpStream::connect(server.address()).unwrap();
    stream.write_all(b"ru").unwrap();
    stream.write_all(b"ok").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "imok");
}

#[tokio::test]
async fn zookeeper_async_reads_writes_and_watches() {
    let server = TestingServer::start().unwrap();
    let client = zookeeper_async(&server).await;
    let acl = zookeeper_async::Acl::open_unsafe;
    within(client.ensure_path("/locks/one")).await.unwrap();
    let (path, stat) =
        within(client.create2("/locks/one/lock-", b"me".to_vec(), acl().clone(), CreateMode::EphemeralSequential))
            .await
            .unwrap();
    assert_eq!(path, "/locks/one/lock-0000000000");
    assert_eq!(server.sessions(), [stat.ephemeral_owner]);

    let (sender, events) = blocking::channel();
    let watcher = move |event: zookeeper_async::WatchedEvent| drop(sender.send(event));
    within(client.exists_w(&path, watcher)).await.unwrap().unwrap();
    let (data, stat) = within(client.get_data(&path, false)).await.unwrap();
    assert_eq!((data, stat.version), (b"me".to_vec(), 0));
    let set = within(client.set_data(&path, b"you".to_vec(), Some(0))).await.unwrap();
    assert_eq!(set.version, 1);
    let event = events.recv_timeout(BOUND).unwrap();
    assert_eq!(event.event_type, WatchedEventType::NodeDataChanged);
    assert_eq!(event.path, Some(path.clone()));

    let missing = within(client.get_data("/none", false)).await;
    assert_eq!(missing.unwrap_err(), ZkError::NoNode);
    let (acls, _) = within(client.get_acl(&path)).await.unwrap();
    assert_eq!(acls, *acl());
    within(client.delete(&path, Some(1))).await.unwrap();
    assert_eq!(within(client.get_children("/locks/one", false)).await.unwrap(), [""; 0]);
    within(client.close()).await.unwrap();
    until("the session is closed", || server.sessions().is_empty()).await;
}

#[tokio::test]
async fn zookeeper_async_survives_a_restart_in_the_same_session() {
    let server = TestingServer::start().unwrap();
    let client = zookeeper_async(&server).await;
    let acl = zookeeper_async::Acl::open_unsafe().clone();
    within(client.create("/held", Vec::new(), acl, CreateMode::Ephemeral)).await.unwrap();
    let sessions = server.sessions();
    server.restart().unwrap();
    // The client says `ConnectionLoss` until it is back.
    let began = Instant::now();
    let held = loop {
        match within(client.exists("/held", false)).await {
            Ok(held) => break held,
            Err(error) => assert!(began.elapsed() < BOUND, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    assert_eq!(held.map(|stat| stat.ephemeral_owner), sessions.first().copied());
    assert_eq!(server.sessions(), sessions);
    // It may take a late reply for the one to its close, so its word is not enough.
    within(client.close()).await.unwrap();
    until("the session is closed", || !server.exists("/held")).await;
}

#[tokio::test]
async fn zookeeper_async_gets_a_new_session_after_a_kill() {
    let server = TestingServer::start().unwrap();
    let client = zookeeper_async(&server).await;
    let [session] = server.sessions()[..] else { panic!("one session") };
    assert!(server.kill_session(session));
    until("a new session", || matches!(server.sessions()[..], [new] if new != session)).await;
    within(client.close()).await.unwrap();
}

//! The fault proxy, seen from both of its sides.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use curator_test::wire::{
    Acl, ConnectRequest, ConnectResponse, MAX_FRAME, OpCode, Reader, ReplyHeader, RequestHeader, Writer, read_frame,
    session_password, write_frame,
};
use curator_test::{FaultProxy, TestingServer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

/// How long something may take that must happen.
const SOON: Duration = Duration::from_secs(10);
/// How long it is watched that something does not happen.
const A_WHILE: Duration = Duration::from_millis(60);

/// A client that speaks raw frames.
struct Client {
    stream: TcpStream,
    session: ConnectResponse,
    xid: i32,
}

impl Client {
    async fn new_session(address: SocketAddr) -> io::Result<Self> {
        Self::attach(address, 0).await
    }

    async fn attach(address: SocketAddr, session_id: i64) -> io::Result<Self> {
        let mut stream = ask_for_session(address, session_id).await?;
        let answer = frame(&mut stream).await?;
        let session = ConnectResponse::decode(&mut Reader::new(&answer))?;
        Ok(Self { stream, session, xid: 0 })
    }

    async fn send(&mut self, op: OpCode, body: impl FnOnce(&mut Writer)) -> io::Result<()> {
        self.xid += 1;
        let mut request = Writer::new();
        RequestHeader { xid: self.xid, op }.encode(&mut request);
        body(&mut request);
        write_frame(&mut self.stream, &request.into_bytes()).await
    }

    async fn reply(&mut self) -> io::Result<ReplyHeader> {
        let frame = frame(&mut self.stream).await?;
        Ok(ReplyHeader::decode(&mut Reader::new(&frame))?)
    }

    async fn send_create(&mut self, path: &str) -> io::Result<()> {
        self.send(OpCode::Create, |body| {
            body.string(path).buffer(b"").vector([Acl::open()], |to, acl| acl.encode(to)).int(0);
        })
        .await
    }

    async fn create(&mut self, path: &str) -> io::Result<()> {
        self.send_create(path).await?;
        assert_eq!(self.reply().await?.err, 0);
        Ok(())
    }

    async fn exists(&mut self, path: &str) -> io::Result<bool> {
        self.send(OpCode::Exists, |body| {
            body.string(path).bool(false);
        })
        .await?;
        Ok(self.reply().await?.err == 0)
    }
}

/// Connects and sends the connect request only.
async fn ask_for_session(address: SocketAddr, session_id: i64) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    let password = if session_id == 0 { [0; 16] } else { session_password(session_id) };
    let request = ConnectRequest {
        timeout_ms: 30_000,
        session_id,
        password: password.to_vec(),
        read_only: Some(false),
        ..ConnectRequest::default()
    };
    let mut body = Writer::new();
    request.encode(&mut body);
    write_frame(&mut stream, &body.into_bytes()).await?;
    Ok(stream)
}

/// The next frame; the end of the connection is an error.
async fn frame(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let frame = soon(read_frame(stream, MAX_FRAME)).await?;
    frame.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(SOON, what).await.expect("it happens in time")
}

async fn not_within_a_while<T>(what: impl Future<Output = T>) -> bool {
    timeout(A_WHILE, what).await.is_err()
}

/// Checks again and again, on real time.
async fn until(what: &str, done: impl Fn() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < SOON, "{what} did not happen in time");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A proxy before a scripted server.
async fn scripted() -> (TcpListener, FaultProxy) {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = FaultProxy::start(server.local_addr().unwrap()).unwrap();
    (server, proxy)
}

/// A connection through a proxy, both ends of it.
async fn connected(server: &TcpListener, proxy: &FaultProxy) -> (TcpStream, TcpStream) {
    let client = TcpStream::connect(proxy.address()).await.unwrap();
    let (served, _) = soon(server.accept()).await.unwrap();
    (client, served)
}

async fn read_four(stream: &mut TcpStream) -> [u8; 4] {
    let mut bytes = [0; 4];
    soon(stream.read_exact(&mut bytes)).await.unwrap();
    bytes
}

/// Connects, and looks what comes. The reset may be there before the connect is done.
async fn connect_and_read(proxy: &FaultProxy) -> io::Result<usize> {
    let mut client = TcpStream::connect(proxy.address()).await?;
    client.read(&mut [0]).await
}

fn is_reset(result: &io::Result<usize>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset)
}

#[tokio::test]
async fn lost_reply_leaves_the_node_behind() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let mut client = Client::new_session(proxy.address()).await.unwrap();
    proxy.drop_reply(OpCode::Create, 1);
    assert!(!client.exists("/a").await.unwrap(), "other replies pass");
    client.send_create("/a").await.unwrap();
    assert_eq!(client.reply().await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    soon(proxy.wait_for_faults(1)).await;
    assert!(server.exists("/a"));
    assert_eq!(proxy.connections(), 0);

    // Once only: the same session continues.
    let mut client = Client::attach(proxy.address(), client.session.session_id).await.unwrap();
    client.create("/b").await.unwrap();
    assert_eq!(proxy.faults_done(), 1);
    assert_eq!(proxy.total_connections(), 2);
    // The one that was lost is not counted.
    assert_eq!([OpCode::Create, OpCode::Exists, OpCode::GetData].map(|op| proxy.replies(op)), [1, 1, 0]);
}

#[tokio::test]
async fn bytes_that_pass_are_counted() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let mut client = Client::new_session(proxy.address()).await.unwrap();
    client.create("/a").await.unwrap();
    assert!(proxy.traffic().received > 0);
    assert_eq!(proxy.traffic(), server.traffic());
    proxy.drop_reply(OpCode::Create, 1);
    client.send_create("/b").await.unwrap();
    client.reply().await.unwrap_err();
    soon(proxy.wait_for_faults(1)).await;
    let (passed, served) = (proxy.traffic(), server.traffic());
    assert_eq!(passed.received, served.received);
    assert!(passed.sent < served.sent, "the reply was lost: {passed:?}, {served:?}");
}

#[tokio::test]
async fn lost_request_never_reaches_the_server() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let mut client = Client::new_session(proxy.address()).await.unwrap();
    proxy.drop_request(OpCode::Create, 2);
    // Sent together: the first one is not lost with the second.
    client.send_create("/a").await.unwrap();
    client.send_create("/b").await.unwrap();
    soon(proxy.wait_for_faults(1)).await;
    until("the first create", || server.exists("/a")).await;

    let mut client = Client::attach(proxy.address(), client.session.session_id).await.unwrap();
    assert!(!client.exists("/b").await.unwrap());
    assert!(server.requests().iter().filter(|request| request.op == OpCode::Create).count() == 1);
}

#[tokio::test]
async fn nth_reply_is_counted_from_the_call() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let mut client = Client::new_session(proxy.address()).await.unwrap();
    client.create("/0").await.unwrap();
    proxy.drop_reply(OpCode::Create, 3);
    client.create("/1").await.unwrap();
    client.create("/2").await.unwrap();
    client.send_create("/3").await.unwrap();
    client.reply().await.unwrap_err();
    assert!(server.exists("/3"));
}

#[tokio::test]
async fn reply_to_a_handshake_can_be_lost() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    proxy.drop_reply(OpCode::CreateSession, 1);
    Client::new_session(proxy.address()).await.map(|_| ()).unwrap_err();
    assert_eq!(server.sessions().len(), 1, "a session that nobody knows");
    proxy.drop_request(OpCode::CreateSession, 1);
    Client::new_session(proxy.address()).await.map(|_| ()).unwrap_err();
    assert_eq!(server.sessions().len(), 1);
    soon(proxy.wait_for_faults(2)).await;
}

#[tokio::test]
async fn cut_reply_ends_in_its_middle() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let mut client = Client::new_session(proxy.address()).await.unwrap();
    proxy.cut_frame(OpCode::Create, 1);
    client.send_create("/a").await.unwrap();
    let mut part = Vec::new();
    let error = soon(client.stream.read_to_end(&mut part)).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    // A length, a header of 16 bytes, and the path "/a" with its length: 26 bytes.
    assert_eq!(part.len(), 13);
    assert_eq!(part[..4], [0, 0, 0, 22]);
    assert!(server.exists("/a"));
    soon(proxy.wait_for_faults(1)).await;
}

#[tokio::test]
async fn partition_holds_both_ways_and_repair_delivers_in_order() {
    let (server, proxy) = scripted().await;
    let (mut client, mut served) = connected(&server, &proxy).await;
    proxy.partition();
    for bytes in [b"ping", b"pong"] {
        client.write_all(bytes).await.unwrap();
        served.write_all(bytes).await.unwrap();
    }
    let mut byte = [0];
    assert!(not_within_a_while(served.read(&mut byte)).await);
    assert!(not_within_a_while(client.read(&mut byte)).await);
    proxy.repair();
    for side in [&mut client, &mut served] {
        assert_eq!(read_four(side).await, *b"ping");
        assert_eq!(read_four(side).await, *b"pong");
    }
    assert_eq!(proxy.connections(), 1);
}

#[tokio::test]
async fn partition_hides_that_a_side_has_closed() {
    let (server, proxy) = scripted().await;
    let (mut client, served) = connected(&server, &proxy).await;
    let (other_client, mut other_served) = connected(&server, &proxy).await;
    proxy.partition();
    drop(served);
    drop(other_client);
    let mut byte = [0];
    assert!(not_within_a_while(client.read(&mut byte)).await);
    assert!(not_within_a_while(other_served.read(&mut byte)).await);
    assert_eq!(proxy.connections(), 2);
    proxy.repair();
    assert_eq!(soon(client.read(&mut byte)).await.unwrap(), 0);
    assert_eq!(soon(other_served.read(&mut byte)).await.unwrap(), 0);
    drop((client, other_served));
    until("the end", || proxy.connections() == 0).await;
}

#[tokio::test]
async fn connection_made_in_a_partition_is_served_after_it() {
    let (server, proxy) = scripted().await;
    proxy.partition();
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    client.write_all(b"ruok").await.unwrap();
    assert!(not_within_a_while(server.accept()).await);
    proxy.repair();
    let (mut served, _) = soon(server.accept()).await.unwrap();
    assert_eq!(read_four(&mut served).await, *b"ruok");
}

#[tokio::test]
async fn client_that_gave_up_in_a_partition_never_reaches_the_server() {
    let (server, proxy) = scripted().await;
    proxy.partition();
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    client.write_all(b"gone").await.unwrap();
    drop(client);
    soon(proxy.wait_for_connections(1)).await;
    proxy.repair();
    until("the end", || proxy.connections() == 0).await;
    let (mut client, mut served) = connected(&server, &proxy).await;
    client.write_all(b"ruok").await.unwrap();
    assert_eq!(read_four(&mut served).await, *b"ruok");
}

#[tokio::test]
async fn reset_breaks_both_sides_and_new_connections_work() {
    let (server, proxy) = scripted().await;
    let (mut client, mut served) = connected(&server, &proxy).await;
    proxy.reset();
    assert_eq!(proxy.connections(), 0);
    let mut byte = [0];
    assert!(is_reset(&soon(client.read(&mut byte)).await));
    assert!(is_reset(&soon(served.read(&mut byte)).await));
    let (mut client, mut served) = connected(&server, &proxy).await;
    client.write_all(b"ruok").await.unwrap();
    assert_eq!(read_four(&mut served).await, *b"ruok");
    assert_eq!(proxy.connections(), 1);
    assert_eq!(proxy.total_connections(), 2);
}

#[tokio::test]
async fn reset_reaches_connections_held_by_a_partition() {
    let (server, proxy) = scripted().await;
    let (mut client, _served) = connected(&server, &proxy).await;
    proxy.partition();
    let mut held = TcpStream::connect(proxy.address()).await.unwrap();
    soon(proxy.wait_for_connections(2)).await;
    proxy.reset();
    let mut byte = [0];
    assert!(is_reset(&soon(client.read(&mut byte)).await));
    assert!(is_reset(&soon(held.read(&mut byte)).await));
}

#[tokio::test]
async fn refused_client_is_closed_and_others_stay() {
    let (server, proxy) = scripted().await;
    let (mut client, mut served) = connected(&server, &proxy).await;
    proxy.refuse();
    assert!(is_reset(&soon(connect_and_read(&proxy)).await));
    assert_eq!(proxy.total_connections(), 2);
    client.write_all(b"ruok").await.unwrap();
    assert_eq!(read_four(&mut served).await, *b"ruok");
    proxy.accept();
    connected(&server, &proxy).await;
}

#[tokio::test]
async fn client_is_reset_when_the_server_is_down() {
    // No server listens there, and no other test can.
    let taken = TcpSocket::new_v4().unwrap();
    taken.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let proxy = FaultProxy::start(taken.local_addr().unwrap()).unwrap();
    assert!(is_reset(&soon(connect_and_read(&proxy)).await));
}

#[tokio::test]
async fn end_of_a_side_is_passed_on() {
    let (server, proxy) = scripted().await;
    let (mut client, mut served) = connected(&server, &proxy).await;
    client.write_all(b"srvr").await.unwrap();
    client.shutdown().await.unwrap();
    let mut question = String::new();
    soon(served.read_to_string(&mut question)).await.unwrap();
    assert_eq!(question, "srvr");
    // The other direction is still open.
    served.write_all(b"answer").await.unwrap();
    drop(served);
    let mut answer = String::new();
    soon(client.read_to_string(&mut answer)).await.unwrap();
    assert_eq!(answer, "answer");
    until("the end", || proxy.connections() == 0).await;
}

#[tokio::test]
async fn large_frames_pass_whole() {
    let (server, proxy) = scripted().await;
    let (mut client, mut served) = connected(&server, &proxy).await;
    let sent: Vec<u8> = (0..5_000_000_u32).map(|n| n as u8).collect();
    let (written, read) = tokio::join!(write_frame(&mut client, &sent), soon(read_frame(&mut served, sent.len())));
    written.unwrap();
    assert!(read.unwrap().unwrap() == sent);
}

#[tokio::test]
async fn latency_is_added_each_way_and_keeps_the_order() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let mut client = Client::new_session(proxy.address()).await.unwrap();
    let latency = Duration::from_millis(30);
    proxy.latency(latency);
    let began = Instant::now();
    for n in 0..5 {
        client.send_create(&format!("/{n}")).await.unwrap();
    }
    for xid in 1..=5 {
        assert_eq!(client.reply().await.unwrap().xid, xid);
    }
    assert!(began.elapsed() >= 2 * latency);
    proxy.latency(Duration::ZERO);
    assert!(client.exists("/0").await.unwrap());
}

#[tokio::test]
async fn late_connect_reply_leaves_an_unknown_session() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let delay = Duration::from_millis(100);
    proxy.late_connect_answer(delay);
    let began = Instant::now();
    let client = ask_for_session(proxy.address(), 0).await.unwrap();
    until("the session", || server.sessions().len() == 1).await;
    drop(client);
    until("the end", || proxy.connections() == 0).await;
    assert!(began.elapsed() >= delay, "the server kept the connection");
    assert_eq!(server.sessions().len(), 1);

    let began = Instant::now();
    Client::new_session(proxy.address()).await.unwrap();
    assert!(began.elapsed() >= delay);
    proxy.late_connect_answer(Duration::ZERO);
    let mut client = Client::new_session(proxy.address()).await.unwrap();
    client.create("/a").await.unwrap();
}

#[tokio::test]
async fn swapped_session_is_a_new_one_and_the_old_one_lives() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    proxy.swap_session();
    let first = Client::new_session(proxy.address()).await.unwrap();
    assert_eq!(proxy.faults_done(), 0, "a new session is not swapped");
    let id = first.session.session_id;
    drop(first);

    let second = Client::attach(proxy.address(), id).await.unwrap();
    assert_eq!(proxy.faults_done(), 1);
    assert_ne!(second.session.session_id, id);
    assert_ne!(second.session.session_id, 0);
    assert_eq!(server.sessions().len(), 2);

    // Once only.
    let third = Client::attach(proxy.address(), id).await.unwrap();
    assert_eq!(third.session.session_id, id);
}

#[tokio::test(start_paused = true)]
async fn proxy_has_real_time_in_a_test_with_a_paused_clock() {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = FaultProxy::start(server.local_addr().unwrap()).unwrap();
    let latency = Duration::from_millis(20);
    proxy.latency(latency);
    let began = Instant::now();
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    let (mut served, _) = server.accept().await.unwrap();
    client.write_all(b"ruok").await.unwrap();
    let mut question = [0; 4];
    served.read_exact(&mut question).await.unwrap();
    assert_eq!(question, *b"ruok");
    assert!(began.elapsed() >= latency);
}

#[tokio::test]
async fn dropped_proxy_closes_everything() {
    let (server, proxy) = scripted().await;
    let (mut client, mut served) = connected(&server, &proxy).await;
    let address = proxy.address();
    drop(proxy);
    assert_eq!(soon(client.read(&mut [0])).await.unwrap_or_default(), 0);
    assert_eq!(soon(served.read(&mut [0])).await.unwrap_or_default(), 0);
    TcpStream::connect(address).await.unwrap_err();
}

//! Apache ZooKeeper in a process of its own, and the end of sessions on it.
//!
//! These tests need the Debian package `zookeeper`. Without it they fail and say so.

use std::io::{self, Read as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use curator_integration::env::{builder, connected, eventually};
use curator_test::wire::{
    Acl, ConnectRequest, ConnectResponse, MAX_FRAME, OpCode, Reader, ReplyHeader, RequestHeader, Writer, read_frame,
    write_frame,
};
use curator_test::{ApacheError, ApacheServer, TestingServer, installed_packages, kill_session};
use tokio::time::timeout;

/// How long something may take that must happen.
const SOON: Duration = Duration::from_secs(15);
/// How long it is watched that something does not happen.
const A_WHILE: Duration = Duration::from_millis(100);

fn apache() -> ApacheServer {
    ApacheServer::start().unwrap_or_else(|error| panic!("{error}"))
}

/// Whether a connection can be made.
fn accepts(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, SOON).is_ok()
}

/// Asks for a session and gives the server's answer.
async fn handshake(address: SocketAddr, request: ConnectRequest) -> io::Result<ConnectResponse> {
    shake_hands(&mut tokio::net::TcpStream::connect(address).await?, request).await
}

async fn shake_hands(stream: &mut tokio::net::TcpStream, request: ConnectRequest) -> io::Result<ConnectResponse> {
    let mut body = Writer::new();
    request.encode(&mut body);
    write_frame(stream, &body.into_bytes()).await?;
    let answer = read_frame(stream, MAX_FRAME).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(ConnectResponse::decode(&mut Reader::new(&answer))?)
}

fn new_session(timeout: Duration) -> ConnectRequest {
    let timeout_ms = timeout.as_millis().try_into().unwrap();
    ConnectRequest { timeout_ms, password: vec![0; 16], ..ConnectRequest::default() }
}

fn attach(session: &ConnectResponse) -> ConnectRequest {
    ConnectRequest {
        timeout_ms: session.timeout_ms,
        session_id: session.session_id,
        password: session.password.clone(),
        ..ConnectRequest::default()
    }
}

#[tokio::test]
async fn server_serves_and_names_its_version() {
    let server = apache();
    assert_eq!(server.connect_string(), format!("127.0.0.1:{}", server.port()));
    assert_eq!(server.address().port(), server.port());
    let numbers: Vec<u32> = server.version().split('.').map(|number| number.parse().unwrap()).collect();
    assert!(numbers >= vec![3, 8], "version {}", server.version());
    let session = handshake(server.address(), new_session(Duration::from_secs(5))).await.unwrap();
    assert_eq!(session.timeout_ms, 5000);
}

#[tokio::test]
async fn session_timeouts_are_those_of_the_builder() {
    let server = ApacheServer::builder()
        .tick(Duration::from_millis(200))
        .session_timeouts(Duration::from_millis(1500), Duration::from_secs(45))
        .start()
        .unwrap_or_else(|error| panic!("{error}"));
    for (asked, granted) in [(1, 1500), (30_000, 30_000), (600_000, 45_000)] {
        let session = handshake(server.address(), new_session(Duration::from_millis(asked))).await.unwrap();
        assert_eq!(session.timeout_ms, granted);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn system_properties_let_the_server_delete_a_node_behind_its_time() {
    let properties = [("zookeeper.extendedTypesEnabled", "true"), ("znode.container.checkIntervalMs", "50")];
    let start = |properties: &[(&str, &str)]| {
        let builder = properties
            .iter()
            .fold(ApacheServer::builder(), |builder, (name, value)| builder.system_property(name, value));
        builder.start().unwrap_or_else(|error| panic!("{error}"))
    };
    for is_allowed in [false, true] {
        let server = start(&properties[usize::from(!is_allowed)..]);
        let client = connected(builder(server.address())).await;
        let created = client.create().with_ttl(Duration::from_millis(500)).for_path("/short").await;
        assert_eq!(created.is_ok(), is_allowed, "{created:?}");
        eventually("its time is over", async || client.check_exists().for_path("/short").await.unwrap().is_none())
            .await;
        client.close().await;
    }
}

#[tokio::test]
async fn restart_keeps_port_sessions_and_data() {
    let server = apache();
    let session = handshake(server.address(), new_session(Duration::from_secs(20))).await.unwrap();
    server.restart().unwrap();
    let again = handshake(server.address(), attach(&session)).await.unwrap();
    assert_eq!(again.session_id, session.session_id);

    server.stop().unwrap();
    assert!(!accepts(server.address()));
    server.stop().unwrap();
    assert!(matches!(server.freeze(), Err(ApacheError::Stopped)));
    assert!(matches!(server.thaw(), Err(ApacheError::Stopped)));
    server.restart().unwrap();
    let again = handshake(server.address(), attach(&session)).await.unwrap();
    assert_eq!(again.session_id, session.session_id);
}

#[tokio::test]
async fn next_sequence_number_can_be_any() {
    let server = apache();
    let mut client = Victim::new(server.address()).await.unwrap();
    assert_eq!(client.create("/parent", 0).await.unwrap(), 0);
    assert_eq!(client.create("/parent/n-", 2).await.unwrap(), 0);
    for (parent, next, node) in [
        ("/parent", i32::MAX - 1, "/parent/n-2147483646"),
        ("/parent", 41, "/parent/n-0000000041"),
        ("/", 7_000, "/n-0000007000"),
    ] {
        server.restart_with_next_sequence(parent, next).unwrap();
        client.attach_again(server.address()).await.unwrap();
        assert!(!client.exists(node).await.unwrap());
        assert_eq!(client.create(&format!("{}/n-", parent.trim_end_matches('/')), 2).await.unwrap(), 0);
        assert!(client.exists(node).await.unwrap(), "{node}");
        assert!(client.exists("/parent/n-0000000000").await.unwrap(), "what was there is kept");
    }
    let error = server.restart_with_next_sequence("/none", 1).unwrap_err();
    assert!(matches!(&error, ApacheError::NoNode { path } if path == "/none"), "{error}");
    client.attach_again(server.address()).await.unwrap();
    assert!(client.exists("/parent/n-2147483646").await.unwrap());
}

#[test]
fn packages_have_a_name_and_a_version() {
    for package in installed_packages() {
        assert_eq!(package.split(' ').filter(|word| !word.is_empty()).count(), 2, "{package}");
    }
}

#[tokio::test]
async fn frozen_server_answers_when_thawed() {
    let server = apache();
    for _ in 0..2 {
        server.freeze().unwrap();
        server.freeze().unwrap();
        let mut asked = std::pin::pin!(handshake(server.address(), new_session(Duration::from_secs(20))));
        assert!(timeout(A_WHILE, &mut asked).await.is_err());
        server.thaw().unwrap();
        timeout(SOON, asked).await.unwrap().unwrap();
    }
    server.freeze().unwrap();
    server.restart().unwrap();
    handshake(server.address(), new_session(Duration::from_secs(20))).await.unwrap();

    server.freeze().unwrap();
    let address = server.address();
    assert!(accepts(address));
    drop(server);
    assert!(!accepts(address));
}

#[test]
fn missing_installation_is_named_with_its_package() {
    let nowhere = tempfile::tempdir().unwrap();
    let no_jars = ApacheServer::builder().jars(nowhere.path()).start().unwrap_err();
    let no_java = ApacheServer::builder().java(nowhere.path().join("java")).start().unwrap_err();
    for (error, what) in [(no_jars, "zookeeper.jar not found"), (no_java, "java) not found")] {
        assert!(matches!(error, ApacheError::NotInstalled { .. }));
        let message = error.to_string();
        assert!(message.contains(what), "{message}");
        assert!(message.contains("apt-get install zookeeper"), "{message}");
    }
}

#[test]
fn impossible_options_are_refused() {
    let second = Duration::from_secs(1);
    let month = Duration::from_secs(31 * 24 * 3600);
    for builder in [
        ApacheServer::builder().tick(Duration::from_micros(999)),
        ApacheServer::builder().tick(month),
        ApacheServer::builder().session_timeouts(Duration::ZERO, second),
        ApacheServer::builder().session_timeouts(second, month),
        ApacheServer::builder().session_timeouts(2 * second, second),
    ] {
        assert!(matches!(builder.start(), Err(ApacheError::InvalidOption(_))));
    }
}

#[test]
fn server_outlives_the_thread_that_started_it() {
    let server = thread::spawn(apache).join().unwrap();
    let mut stream = TcpStream::connect(server.address()).unwrap();
    io::Write::write_all(&mut stream, b"ruok").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "imok");
}

/// A client of one session, in raw frames, that never gives up before it is refused.
struct Victim {
    stream: tokio::net::TcpStream,
    session: ConnectResponse,
    xid: i32,
}

impl Victim {
    async fn new(address: SocketAddr) -> io::Result<Self> {
        let mut stream = tokio::net::TcpStream::connect(address).await?;
        let session = shake_hands(&mut stream, new_session(Duration::from_secs(30))).await?;
        Ok(Self { stream, session, xid: 0 })
    }

    async fn request(&mut self, op: OpCode, body: impl FnOnce(&mut Writer)) -> io::Result<i32> {
        self.xid += 1;
        let mut request = Writer::new();
        RequestHeader { xid: self.xid, op }.encode(&mut request);
        body(&mut request);
        write_frame(&mut self.stream, &request.into_bytes()).await?;
        let reply = read_frame(&mut self.stream, MAX_FRAME).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(ReplyHeader::decode(&mut Reader::new(&reply))?.err)
    }

    async fn create_ephemeral(&mut self, path: &str) -> io::Result<i32> {
        self.create(path, 1).await
    }

    async fn create(&mut self, path: &str, flags: i32) -> io::Result<i32> {
        self.request(OpCode::Create, |body| {
            body.string(path).buffer(b"").vector([Acl::open()], |to, acl| acl.encode(to)).int(flags);
        })
        .await
    }

    /// Continues with its session on a new connection.
    async fn attach_again(&mut self, address: SocketAddr) -> io::Result<()> {
        self.stream = tokio::net::TcpStream::connect(address).await?;
        let answer = shake_hands(&mut self.stream, attach(&self.session)).await?;
        assert_eq!(answer.session_id, self.session.session_id);
        Ok(())
    }

    async fn exists(&mut self, path: &str) -> io::Result<bool> {
        let error = self.request(OpCode::Exists, |body| {
            body.string(path).bool(false);
        });
        Ok(error.await? == 0)
    }

    /// Is busy, and comes back at once whenever it is thrown out.
    async fn until_refused(mut self, address: SocketAddr) {
        loop {
            while self.exists("/").await.is_ok() {}
            let again = async {
                self.stream = tokio::net::TcpStream::connect(address).await?;
                shake_hands(&mut self.stream, attach(&self.session)).await
            };
            if again.await.is_ok_and(|answer| answer.session_id == 0 && answer.timeout_ms == 0) {
                return;
            }
        }
    }
}

/// A busy client that does its best to stay loses its session, and no other client does.
async fn stubborn_client_loses_its_session(address: SocketAddr) {
    let mut observer = Victim::new(address).await.unwrap();
    observer.create_ephemeral("/observer").await.unwrap();
    for n in 0..20 {
        let mut victim = Victim::new(address).await.unwrap();
        victim.create_ephemeral("/victim").await.unwrap();
        let id = victim.session.session_id;
        let refused = tokio::spawn(victim.until_refused(address));
        kill_session(address, id).await.unwrap();
        assert!(!observer.exists("/victim").await.unwrap());
        timeout(SOON, refused).await.unwrap_or_else(|_| panic!("client {n} {id:x} waits for ever")).unwrap();
    }
    assert!(observer.exists("/observer").await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_session_is_gone_on_apache() {
    let server = apache();
    stubborn_client_loses_its_session(server.address()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_session_is_gone_on_the_testing_server() {
    let server = TestingServer::start().unwrap();
    stubborn_client_loses_its_session(server.address()).await;
}

#[tokio::test(start_paused = true)]
async fn kill_works_on_real_time_under_a_paused_clock() {
    let server = TestingServer::start().unwrap();
    let session = handshake(server.address(), new_session(Duration::from_secs(20))).await.unwrap();
    assert_eq!(server.sessions(), [session.session_id]);
    kill_session(server.address(), session.session_id).await.unwrap();
    assert!(server.sessions().is_empty());
    // One that is gone, and one that never was.
    kill_session(server.address(), session.session_id).await.unwrap();
    kill_session(server.address(), 42).await.unwrap();
}

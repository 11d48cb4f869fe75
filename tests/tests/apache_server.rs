//! Apache ZooKeeper in a process of its own, and the end of sessions on it.
//!
//! These tests need the Debian package `zookeeper`. Without it they fail and say so.

use std::io::{self, BufRead as _, BufReader, Read as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use curator_test::wire::{ConnectRequest, ConnectResponse, MAX_FRAME, Reader, Writer, read_frame, write_frame};
use curator_test::{ApacheError, ApacheServer, TestingServer, kill_session};
use tokio::time::timeout;
use zookeeper_async::{Acl, CreateMode, WatchedEvent, Watcher, ZkError, ZooKeeper};

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

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < SOON, "{what} did not happen in time");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Asks for a session and gives the server's answer.
async fn handshake(address: SocketAddr, request: ConnectRequest) -> io::Result<ConnectResponse> {
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    let mut body = Writer::new();
    request.encode(&mut body);
    write_frame(&mut stream, &body.into_bytes()).await?;
    let answer = read_frame(&mut stream, MAX_FRAME).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
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

/// The program of this crate that runs a server, and what its first line names.
fn program(folder: &std::path::Path) -> (Child, SocketAddr) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_zookeeper-for-tests"))
        .env("TMPDIR", folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim_end().strip_prefix("CURATOR_TEST_APACHE=").expect("the server started");
    (child, address.parse().unwrap())
}

#[tokio::test]
async fn program_serves_until_its_input_closes() {
    let folder = tempfile::tempdir().unwrap();
    let (mut child, address) = program(folder.path());
    for (asked, granted) in [(1, 2), (3, 3), (3600, 60)] {
        let session = handshake(address, new_session(Duration::from_secs(asked))).await.unwrap();
        assert_eq!(session.timeout_ms, granted * 1000);
    }
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert!(!accepts(address));
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "no folder is left");
}

#[test]
#[cfg(target_os = "linux")]
fn server_does_not_outlive_a_killed_program() {
    let folder = tempfile::tempdir().unwrap();
    let (mut child, address) = program(folder.path());
    child.kill().unwrap();
    child.wait().unwrap();
    until("the end of the server", || !accepts(address));
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

struct Ignore;

impl Watcher for Ignore {
    fn handle(&self, _: WatchedEvent) {}
}

async fn client(connect_string: &str) -> Arc<ZooKeeper> {
    let connecting = ZooKeeper::connect(connect_string, Duration::from_secs(20), Ignore);
    Arc::new(timeout(SOON, connecting).await.unwrap().unwrap())
}

/// Creates an ephemeral node; its owner.
async fn own(client: &ZooKeeper, path: &str) -> i64 {
    client.create(path, Vec::new(), Acl::open_unsafe().clone(), CreateMode::Ephemeral).await.unwrap();
    let stat = client.exists(path, false).await.unwrap().expect("it was just created");
    stat.ephemeral_owner
}

/// A client that does its best to stay loses its session, and no other client does.
async fn victim_loses_its_session(connect_string: &str, address: SocketAddr) {
    let victim = client(connect_string).await;
    let observer = client(connect_string).await;
    // A busy client comes back at once.
    let busy = tokio::spawn({
        let victim = Arc::clone(&victim);
        async move { while !matches!(victim.exists("/", false).await, Err(ZkError::SessionExpired)) {} }
    });
    own(&observer, "/observer").await;
    for n in 0..10 {
        let path = format!("/victim-{n}");
        // The client goes on with a new session, sooner or later.
        let t0 = Instant::now();
        let owner = timeout(SOON, async {
            loop {
                match victim.create(&path, Vec::new(), Acl::open_unsafe().clone(), CreateMode::Ephemeral).await {
                    Ok(_) | Err(ZkError::NodeExists) => {}
                    Err(e) => {
                        if t0.elapsed() > Duration::from_secs(5) {
                            eprintln!("create {path}: {e:?} at {:?}", t0.elapsed());
                            tokio::time::sleep(Duration::from_millis(500)).await;
                        }
                        continue;
                    }
                }
                if let Ok(Some(stat)) = observer.exists(&path, false).await {
                    break stat.ephemeral_owner;
                }
            }
        })
        .await
        .unwrap();
        kill_session(address, owner).await.unwrap();
        let left = observer.exists(&path, false).await.unwrap();
        assert!(left.is_none_or(|stat| stat.ephemeral_owner != owner), "the node of a killed session");
    }
    busy.abort();
    assert!(observer.exists("/observer", false).await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_session_is_gone_on_apache() {
    let server = apache();
    victim_loses_its_session(&server.connect_string(), server.address()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_session_is_gone_on_the_testing_server() {
    let server = TestingServer::start().unwrap();
    victim_loses_its_session(&server.connect_string(), server.address()).await;
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

//! The program `zookeeper-for-tests`, which runs an Apache ZooKeeper until its input closes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use curator_test::wire::{ConnectRequest, ConnectResponse, MAX_FRAME, Reader, Writer, read_frame, write_frame};

/// How long something may take that must happen.
const SOON: Duration = Duration::from_secs(15);

/// Whether a connection can be made.
fn accepts(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, SOON).is_ok()
}

/// Asks for a session and gives the server's answer.
async fn handshake(address: SocketAddr, timeout: Duration) -> io::Result<ConnectResponse> {
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    let timeout_ms = timeout.as_millis().try_into().unwrap();
    let mut body = Writer::new();
    ConnectRequest { timeout_ms, password: vec![0; 16], ..ConnectRequest::default() }.encode(&mut body);
    write_frame(&mut stream, &body.into_bytes()).await?;
    let answer = read_frame(&mut stream, MAX_FRAME).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(ConnectResponse::decode(&mut Reader::new(&answer))?)
}

/// The program of this crate that runs a server, and what its first line names.
fn program(folder: &std::path::Path) -> (Child, SocketAddr) {
    let (child, _, line) = start(folder, &[]);
    let address = line.strip_prefix("CURATOR_TEST_APACHE=").expect("the server started");
    (child, address.parse().unwrap())
}

/// The program with arguments, the rest of its output, and its first line.
fn start(folder: &std::path::Path, arguments: &[&str]) -> (Child, BufReader<ChildStdout>, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_zookeeper-for-tests"))
        .args(arguments)
        .env("TMPDIR", folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    (child, lines, line.trim_end().to_owned())
}

#[tokio::test]
async fn program_serves_in_process_and_keeps_sessions_over_a_stop() {
    let folder = tempfile::tempdir().unwrap();
    let (mut child, mut lines, address) = start(folder.path(), &["--in-process", "0"]);
    let address = address.parse().unwrap();
    let session = handshake(address, Duration::from_secs(10)).await.unwrap();
    let mut commands = child.stdin.take().unwrap();
    let mut tell = |command: &[u8]| {
        commands.write_all(command).unwrap();
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        assert_eq!(line, "done\n");
    };
    tell(b"stop\n");
    assert!(!accepts(address));
    tell(b"start\n");
    let next = handshake(address, Duration::from_secs(10)).await.unwrap();
    assert_eq!(next.session_id, session.session_id + 1);
    drop(commands);
    assert!(child.wait().unwrap().success());
    assert!(!accepts(address));
}

#[tokio::test]
async fn program_serves_until_its_input_closes() {
    let folder = tempfile::tempdir().unwrap();
    let (mut child, address) = program(folder.path());
    for (asked, granted) in [(1, 2), (3, 3), (3600, 60)] {
        let session = handshake(address, Duration::from_secs(asked)).await.unwrap();
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
    let began = Instant::now();
    while accepts(address) {
        assert!(began.elapsed() < SOON, "the server outlives its program");
        thread::sleep(Duration::from_millis(5));
    }
}

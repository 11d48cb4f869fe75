//! Runs the HTTP service as a user does, in one or two processes, on a server that fails.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use curator_test::TestingServer;
use rustix::process::{Pid, Signal, kill_process};

/// Work that outlasts every test.
const ENDLESS: &str = "600000";

/// One process of the service. Dropping it kills the process.
struct Service {
    child: Child,
    address: String,
}

impl Service {
    /// Starts a process. Cargo builds the examples beside the tests.
    fn start(server: &TestingServer, work_ms: &str, grace_ms: &str) -> Self {
        let test = std::env::current_exe().unwrap();
        let program: PathBuf = test.parent().unwrap().parent().unwrap().join("examples/axum_service");
        assert!(program.exists(), "{} is missing: build with --all-targets", program.display());
        let mut child = Command::new(program)
            .args(["--connect", &server.connect_string(), "--work-ms", work_ms, "--grace-ms", grace_ms])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http://").expect(&line).to_owned();
        Self { child, address }
    }

    /// Sends a request, and returns its connection.
    fn send(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        write!(stream, "{request} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.address).unwrap();
        stream
    }

    fn ask(&self, request: &str) -> (u16, String) {
        reply(self.send(request))
    }

    fn report(&self, tenant: &str) -> TcpStream {
        self.send(&format!("POST /tenants/{tenant}/report"))
    }

    fn stop(&mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
    }

    fn ended(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}

/// Reads a reply to its end: the status and the body.
fn reply(mut stream: TcpStream) -> (u16, String) {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").expect(&text);
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn soon(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < Duration::from_secs(30), "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the number of contenders for a tenant's lock.
fn contenders(server: &TestingServer, tenant: &str) -> usize {
    server.children(&format!("/examples/axum_service/{tenant}")).map_or(0, |children| children.len())
}

#[test]
fn one_tenant_is_served_once_at_a_time_and_two_side_by_side() {
    let server = TestingServer::start().unwrap();
    let (one, other) = (Service::start(&server, ENDLESS, "0"), Service::start(&server, ENDLESS, "0"));
    let _ann = one.report("ann");
    soon("ann has her lock", || contenders(&server, "ann") == 1);
    let _ben = one.report("ben");
    soon("ben has his lock, beside ann", || contenders(&server, "ben") == 1);
    let refused = (409, "another report of this tenant is being made\n".to_owned());
    assert_eq!(one.ask("POST /tenants/ann/report"), refused);
    assert_eq!(other.ask("POST /tenants/ann/report"), refused, "in another process too");
    // In the background: the replies do not wait for it.
    soon("the refused requests leave the queue", || contenders(&server, "ann") == 1);
    assert_eq!(contenders(&server, "ben"), 1);
    assert!(include_str!("../README.md").contains(refused.1.trim()));
}

#[test]
fn reports_follow_each_other_with_growing_tokens() {
    let server = TestingServer::start().unwrap();
    let service = Service::start(&server, "1", "0");
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let (status, body) = service.ask("POST /tenants/ann/report");
        let token = body.trim().strip_prefix("the report of ann, made under token ").expect(&body);
        tokens.push((status, token.parse::<curator_recipes::FencingToken>().unwrap()));
    }
    assert!(tokens[0].0 == 200 && tokens[1].0 == 200 && tokens[0].1 < tokens[1].1, "{tokens:?}");
    assert_eq!(service.ask("POST /tenants/ann%2Fben/report").0, 404);
}

#[test]
fn metrics_count_grants_and_timeouts_of_all_tenants_under_one_name() {
    let server = TestingServer::start().unwrap();
    let service = Service::start(&server, "1", "0");
    for tenant in ["ann", "ben"] {
        assert_eq!(service.ask(&format!("POST /tenants/{tenant}/report")).0, 200);
    }
    let other = Service::start(&server, ENDLESS, "0");
    let _ann = other.report("ann");
    soon("ann has her lock", || contenders(&server, "ann") == 1);
    assert_eq!(service.ask("POST /tenants/ann/report").0, 409);
    let (status, page) = service.ask("GET /metrics");
    assert_eq!(status, 200);
    for line in [
        "curator_locks_granted_total{lock=\"report\"} 2",
        "curator_lock_timeouts_total{lock=\"report\"} 1",
        "curator_lock_held{lock=\"report\"} 0",
        "curator_lock_wait_seconds_count{lock=\"report\",outcome=\"granted\"} 2",
        "curator_connection_state{state=\"connected\"} 1",
    ] {
        assert!(page.lines().any(|one| one == line), "{line} is not in {page}");
    }
}

#[test]
fn client_that_disconnects_gives_the_lock_back() {
    let server = TestingServer::start().unwrap();
    let service = Service::start(&server, ENDLESS, "0");
    let ann = service.report("ann");
    soon("ann has her lock", || contenders(&server, "ann") == 1);
    drop(ann);
    soon("the lock is released", || contenders(&server, "ann") == 0);
    assert_eq!(service.ask("GET /ready").0, 200, "its session goes on");
}

#[test]
fn outage_of_the_servers_is_503_and_not_409() {
    let server = TestingServer::start().unwrap();
    let service = Service::start(&server, "1", "0");
    soon("it is ready", || service.ask("GET /ready") == (200, "connected\n".to_owned()));
    server.stop();
    soon("it is not ready", || service.ask("GET /ready").0 == 503);
    let (status, body) = service.ask("POST /tenants/ann/report");
    assert!(status == 503 && body.starts_with("no lock: "), "{status}: {body}");
    server.restart().unwrap();
    soon("it is ready again", || service.ask("GET /ready").0 == 200);
    assert_eq!(service.ask("POST /tenants/ann/report").0, 200);
}

#[test]
fn sigterm_lets_requests_end_and_then_closes_the_session() {
    let server = TestingServer::start().unwrap();
    let mut service = Service::start(&server, "1000", "60000");
    let ann = service.report("ann");
    soon("ann has her lock", || contenders(&server, "ann") == 1);
    service.stop();
    assert_eq!(reply(ann).0, 200);
    assert_eq!(service.ended().code(), Some(0));
    assert_eq!((server.sessions(), contenders(&server, "ann")), (Vec::new(), 0));
}

#[test]
fn sigterm_releases_the_locks_of_requests_that_outlast_the_grace() {
    let server = TestingServer::start().unwrap();
    let mut service = Service::start(&server, ENDLESS, "100");
    let _ann = service.report("ann");
    soon("ann has her lock", || contenders(&server, "ann") == 1);
    service.stop();
    assert_eq!(service.ended().code(), Some(0));
    assert_eq!((server.sessions(), contenders(&server, "ann")), (Vec::new(), 0));
}

#[test]
fn service_starts_without_zookeeper_and_is_not_ready() {
    let server = TestingServer::start().unwrap();
    server.stop();
    let service = Service::start(&server, "1", "0");
    assert_eq!(service.ask("GET /ready").0, 503);
}

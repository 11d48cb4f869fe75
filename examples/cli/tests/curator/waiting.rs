//! The lines about the queue while this program waits.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use curator_test::TestingServer;
use rustix::process::{Signal, kill_process};

use crate::{begin, curator, end, nodes, signal, until};

/// Starts a waiter and returns the lines that it prints on standard error.
fn verbose(servers: &str, arguments: &[&str]) -> (Child, impl Iterator<Item = String> + use<>) {
    let mut child = curator(servers, arguments).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    (child, lines)
}

#[test]
fn verbose_waiter_tells_its_place_the_holder_and_each_change() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (first, _out, node) = begin(&servers, &["--data", "the first"], "echo $CURATOR_NODE; exec sleep 600");
    let session = server.sessions()[0];
    let (second, second_lines) =
        verbose(&servers, &["lock", "-v", "--data", "the second", "/lock", "--", "sleep", "600"]);
    until("a waiter", || nodes(&server) == 2);
    let (third, mut third_lines) = verbose(&servers, &["lock", "--verbose", "/lock", "--", "true"]);
    let line = third_lines.next().unwrap();
    assert!(line.starts_with("curator: waits for /lock: 2 ahead; held by the first (asked "), "{line}");
    assert!(line.ends_with(&format!(" ago, session {session:#x}, node {node})")), "{line}");
    signal(&first, Signal::TERM);
    assert_eq!(end(first).0, Some(143));
    let line = third_lines.next().unwrap();
    assert!(line.starts_with("curator: waits for /lock: 1 ahead; held by the second (asked "), "{line}");
    let mut second_lines = second_lines.filter(|line| !line.contains(": waits for "));
    let line = second_lines.next().unwrap();
    assert!(line.starts_with("curator: has /lock after ") && line.contains(", fencing token "), "{line}");
    signal(&second, Signal::TERM);
    assert_eq!(end(second).0, Some(143));
    assert!(third_lines.next().unwrap().starts_with("curator: has /lock after "));
    assert_eq!(third_lines.next(), None);
    assert_eq!(end(third).0, Some(0));
}

#[test]
fn waiter_for_a_lease_tells_how_many_are_held() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let semaphore = ["semaphore", "-n", "1", "--data", "the holder", "/pool", "--", "sleep", "600"];
    let holder = curator(&servers, &semaphore).spawn().unwrap();
    until("a lease", || server.children("/pool/leases").is_some_and(|leases| leases.len() == 1));
    let waiter = ["semaphore", "-n", "1", "-v", "/pool", "--", "true"];
    let (first, mut first_lines) = verbose(&servers, &waiter);
    let line = first_lines.next().unwrap();
    assert!(line.starts_with("curator: waits for /pool: 1 ahead; held by the holder (asked "), "{line}");
    let (second, mut second_lines) = verbose(&servers, &waiter);
    let line = second_lines.next().unwrap();
    assert!(line.starts_with("curator: waits for /pool: 2 ahead; held by the holder (asked "), "{line}");
    signal(&holder, Signal::TERM);
    assert_eq!(end(holder).0, Some(143));
    assert!(first_lines.any(|line| line.starts_with("curator: has /pool after ")));
    assert!(second_lines.any(|line| line.starts_with("curator: has /pool after ")));
    assert_eq!((end(first).0, end(second).0), (Some(0), Some(0)));
}

#[test]
fn on_a_terminal_the_waiter_speaks_after_two_seconds() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (holder, _out, _) = begin(&servers, &["--data", "the holder"], "echo; exec sleep 600");
    let begun = std::time::Instant::now();
    let mut terminal = Command::new("script")
        .args(["-q", "-e", "-c", "exec \"$CURATOR\" lock /lock -- true", "/dev/null"])
        .env("CURATOR", env!("CARGO_BIN_EXE_curator"))
        .env("CURATOR_CONNECT", &servers)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(terminal.stdout.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.next().unwrap();
    assert!(line.starts_with("curator: waits for /lock: 1 ahead; held by the holder (asked "), "{line}");
    assert!(begun.elapsed() >= std::time::Duration::from_secs(2));
    kill_process(rustix::process::Pid::from_child(&holder), Signal::TERM).unwrap();
    assert_eq!(end(holder).0, Some(143));
    let line = lines.next().unwrap();
    assert!(line.starts_with("curator: has /lock after "), "{line}");
    assert_eq!(end(terminal).0, Some(0));
}

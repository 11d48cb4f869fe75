//! What happens to the command when the lock is lost.

use std::io::Read as _;

use curator_test::{FaultProxy, TestingServer};
use rustix::process::Pid;

use crate::{SHORT, begin, curator, end, is_gone, nodes, stdout, until};

#[test]
fn a_lost_session_stops_the_command() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (child, mut out, _) =
        begin(&servers, SHORT, "trap 'echo stopped; exit 3' TERM; echo; while :; do sleep 0.05; done");
    assert!(server.kill_session(server.sessions()[0]));
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "stopped\n");
    let (code, text) = end(child);
    assert_eq!(code, Some(74));
    assert!(text.starts_with("curator: the lock is lost: the session"), "{text}");
}

#[test]
fn a_command_that_ignores_the_request_to_stop_is_killed_with_all_that_it_started() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let script = "trap '' TERM; sleep 601 & echo $!; while :; do sleep 0.05; done";
    let (child, _out, pid) = begin(&servers, SHORT, script);
    let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
    assert!(server.kill_session(server.sessions()[0]));
    assert_eq!(end(child).0, Some(74));
    until("the grandchild is gone", || is_gone(pid));
}

#[test]
fn silence_stops_the_command_before_anybody_else_has_the_lock() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    // It must be killed, and says until when it was there.
    let script = "trap 'echo asked' TERM; while :; do read t rest </proc/uptime; echo $t; sleep 0.02; done";
    let (child, mut out, _) = begin(&proxy.connect_string(), SHORT, script);
    let other = curator(&server.connect_string(), &["lock", "/lock", "--", "cat", "/proc/uptime"]).spawn().unwrap();
    until("a waiter", || nodes(&server) == 2);
    proxy.partition();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    let (code, text) = end(child);
    assert_eq!(code, Some(74));
    assert!(text.contains("before the lock can be lost"), "{text}");
    assert!(rest.contains("\nasked\n"), "{rest}");
    let last = rest.lines().rfind(|line| *line != "asked").unwrap();
    let output = other.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(uptime(&stdout(&output)) > uptime(last), "{output:?} {last}");
}

fn uptime(text: &str) -> f64 {
    text.split_whitespace().next().unwrap().parse().unwrap()
}

//! What happens to the command when the lock is lost.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::Stdio;
use std::time::{Duration, Instant};

use curator_framework::{CuratorFramework, RetryOneTime};
use curator_test::{FaultProxy, TestingServer};
use rustix::process::{Pid, Signal};

use crate::{SHORT, begin, curator, end, is_gone, nodes, run, signal, stdout, until};

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
    // The shell may report the end of its `sleep` before.
    assert!(text.contains("curator: the lock /lock is lost: the session"), "{text}");
}

#[tokio::test]
async fn a_deleted_node_stops_the_command() {
    let server = TestingServer::start().unwrap();
    let (child, mut out, node) = begin(&server.connect_string(), &[], "echo $CURATOR_NODE; exec sleep 604");
    let client = CuratorFramework::new_client(server.connect_string(), RetryOneTime::new(Duration::ZERO)).unwrap();
    client.start().unwrap();
    // It is watched from then on.
    until("a watch", || server.watch_count() > 0);
    client.delete().for_path(&node).await.unwrap();
    client.close().await;
    assert_eq!(
        end(child),
        (Some(74), "curator: the lock /lock is lost: the node was deleted, but not by its owner\n".to_owned())
    );
    assert_eq!(out.read_to_string(&mut String::new()).unwrap(), 0);
}

/// It takes as long as it needs: until the test says so, and some time for the work itself.
const SAVES_ITS_WORK: &str = "trap 'echo asked; read work; sleep 0.2; echo $work is saved; exit 4' TERM; echo ready; while :; do sleep 0.05; done";

#[test]
fn the_command_has_the_grace_to_save_its_work() {
    for (lost, code) in [(true, 74), (false, 73)] {
        let server = TestingServer::start().unwrap();
        let servers = server.connect_string();
        let options = ["--session-timeout", "40s", "--grace", "10s", "--revocable"];
        let command = [&["lock"], &options[..], &["/lock", "--", "sh", "-c", SAVES_ITS_WORK]].concat();
        let mut child = curator(&servers, &command).stdin(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert_eq!(lines.next().unwrap(), "ready");
        if lost {
            assert!(server.kill_session(server.sessions()[0]));
        } else {
            let node = format!("/lock/{}", server.children("/lock").unwrap()[0]);
            assert_eq!(run(&servers, &["revoke", &node]).status.code(), Some(0));
        }
        assert_eq!(lines.next().unwrap(), "asked");
        child.stdin.as_mut().unwrap().write_all(b"half a report\n").unwrap();
        assert_eq!(lines.next().unwrap(), "half a report is saved");
        assert_eq!(end(child).0, Some(code));
    }
}

#[test]
fn command_that_ignores_a_revocation_is_killed_after_the_grace() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let options = [SHORT, &["--revocable"]].concat();
    let (child, _out, node) =
        begin(&servers, &options, "trap '' TERM; echo $CURATOR_NODE; while :; do sleep 0.05; done");
    let asked = Instant::now();
    assert_eq!(run(&servers, &["revoke", &node]).status.code(), Some(0));
    assert_eq!(end(child).0, Some(73));
    assert!(asked.elapsed() >= Duration::from_millis(300), "{:?}", asked.elapsed());
    assert_eq!(nodes(&server), 0);
}

#[test]
fn a_loss_during_which_the_program_could_not_look_is_told_after_the_command() {
    let server = TestingServer::start().unwrap();
    let command = ["lock", "/lock", "--", "sh", "-c", "echo $$; read line; echo $line"];
    let mut child = curator(&server.connect_string(), &command).stdin(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let pid = Pid::from_raw(lines.next().unwrap().parse().unwrap()).unwrap();
    signal(&child, Signal::STOP);
    assert!(server.kill_session(server.sessions()[0]));
    child.stdin.take().unwrap().write_all(b"done\n").unwrap();
    assert_eq!(lines.next().unwrap(), "done");
    until("the command has ended", || is_gone(pid));
    signal(&child, Signal::CONT);
    let (code, text) = end(child);
    assert_eq!(code, Some(74), "{text}");
    assert!(text.starts_with("curator: the lock "), "{text}");
}

#[test]
fn a_command_that_ignores_the_request_to_stop_is_killed_with_all_that_it_started() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let script = "trap '' TERM; sleep 601 & echo $!; while :; do sleep 0.05; done";
    let (child, _out, pid) = begin(&servers, SHORT, script);
    let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
    let lost = Instant::now();
    assert!(server.kill_session(server.sessions()[0]));
    assert_eq!(end(child).0, Some(74));
    // Not before the grace has ended.
    assert!(lost.elapsed() >= Duration::from_millis(300), "{:?}", lost.elapsed());
    until("the grandchild is gone", || is_gone(pid));
}

#[test]
fn silence_stops_the_command_before_the_next_grant() {
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
    assert!(text.contains("before the lock /lock can be lost"), "{text}");
    assert!(rest.contains("\nasked\n"), "{rest}");
    let last = rest.lines().rfind(|line| *line != "asked").unwrap();
    let output = other.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(uptime(&stdout(&output)) > uptime(last), "{output:?} {last}");
}

/// The node of a command that ends in an outage is deleted when the servers are back, or named.
#[test]
fn grant_that_cannot_be_given_back_is_told_and_given_back_when_the_servers_answer() {
    let cases: [(&[&str], &str); 4] = [
        (&["lock"], "the lock /given"),
        (&["elect"], "leadership of /given"),
        (&["barrier", "hold"], "the barrier /given"),
        (&["join", "--id", "me"], "the member's node"),
    ];
    for (command, what) in cases {
        let server = TestingServer::start().unwrap();
        let proxy = FaultProxy::start(server.address()).unwrap();
        let options = ["--session-timeout", "40s"];
        let command = [&options, command, &["/given", "--", "sh", "-c", "echo; read line"]].concat();
        let mut child = curator(&proxy.connect_string(), &command).stdin(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        proxy.refuse();
        proxy.reset();
        child.stdin.take().unwrap().write_all(b"done\n").unwrap();
        let mut told = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let line = told.find(|line| line.contains("stays until its session ends")).expect(what);
        assert!(line.contains(what) && line.contains("at most 40 s"), "{line}");
        proxy.accept();
        assert_eq!(end_of(child), Some(0), "{what}");
        let node = || server.children("/given").is_some_and(|nodes| !nodes.is_empty());
        let is_left = if command.contains(&"hold") { server.exists("/given") } else { node() };
        assert!(!is_left, "{what} was left");
    }
}

fn end_of(mut child: std::process::Child) -> Option<i32> {
    until("the end of the program", || child.try_wait().unwrap().is_some());
    child.wait().unwrap().code()
}

fn uptime(text: &str) -> f64 {
    text.split_whitespace().next().unwrap().parse().unwrap()
}

//! `barrier`: a barrier that holds processes back.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use curator_test::{FaultProxy, TestingServer, unique_root};
use rustix::process::Signal;
use serde_json::json;

use crate::advice::create;
use crate::showing::parsed;
use crate::{SHORT, apache, begin, curator, end, run, signal, stderr, stdout, until};

/// Runs a command of `curator barrier` for `/barrier`. Returns the status, and the text on standard output and error.
fn barrier(connect: &str, command: &str, options: &[&str]) -> (Option<i32>, String, String) {
    let output = run(connect, &[&["barrier", command], options, &["/barrier"]].concat());
    (output.status.code(), stdout(&output), stderr(&output))
}

fn silent(code: i32) -> (Option<i32>, String, String) {
    (Some(code), String::new(), String::new())
}

/// Starts a waiter and waits until it tells that it waits.
fn waiter(connect: &str) -> (Child, impl Iterator<Item = String> + use<>) {
    let mut child = curator(connect, &["barrier", "wait", "-v", "/barrier"]).spawn().unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(told.next().unwrap(), "curator: waits for the removal of /barrier");
    (child, told)
}

#[test]
fn barrier_is_set_and_removed() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    assert_eq!(barrier(&servers, "status", &[]), (Some(0), "/barrier is not set\n".to_owned(), String::new()));
    assert_eq!(barrier(&servers, "wait", &[]), silent(0));
    for _ in 0..2 {
        assert_eq!(barrier(&servers, "set", &[]), silent(0));
    }
    let (code, text, _) = barrier(&servers, "status", &[]);
    assert!(code == Some(3) && text.starts_with("/barrier is set since 2") && text.ends_with("Z\n"), "{text}");
    let still = "curator: /barrier is still set: curator barrier status /barrier shows it\n".to_owned();
    assert_eq!(barrier(&servers, "wait", &["--timeout", "200ms"]), (Some(75), String::new(), still.clone()));
    assert_eq!(barrier(&servers, "wait", &["-w", "0.3", "-E", "9"]), (Some(9), String::new(), still.clone()));
    // One look, which takes as long as the connection.
    assert_eq!(barrier(&servers, "wait", &["-w", "0"]), (Some(75), String::new(), still));
    for _ in 0..2 {
        assert_eq!(barrier(&servers, "remove", &[]), silent(0));
    }
    assert_eq!(barrier(&servers, "wait", &["--timeout", "1s"]), silent(0));
    assert_eq!(barrier(&servers, "wait", &["--timeout", "0"]), silent(0));
    until("the sessions are closed", || server.sessions().is_empty());
}

#[test]
fn waiters_go_on_when_the_barrier_is_removed() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    assert_eq!(barrier(&servers, "set", &[]), silent(0));
    let waiters = [waiter(&servers), waiter(&servers)];
    assert_eq!(barrier(&servers, "remove", &[]), silent(0));
    for (child, mut told) in waiters {
        assert_eq!((end(child).0, told.next()), (Some(0), None));
    }
}

#[test]
fn waiter_survives_a_lost_connection_and_session() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let proxy = FaultProxy::start(server.address()).unwrap();
    assert_eq!(barrier(&servers, "set", &[]), silent(0));
    let (child, mut told) = waiter(&proxy.connect_string());
    proxy.reset();
    until("a second connection", || proxy.total_connections() > 1 && proxy.connections() == 1);
    let first = server.sessions();
    assert!(server.kill_session(first[0]));
    until("a second session", || server.sessions().len() == 1 && server.sessions() != first);
    proxy.refuse();
    proxy.reset();
    assert_eq!(barrier(&servers, "remove", &[]), silent(0));
    proxy.accept();
    assert_eq!((end(child).0, told.next()), (Some(0), None));
}

#[test]
fn signal_ends_a_waiter_and_leaves_the_barrier() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    assert_eq!(barrier(&servers, "set", &[]), silent(0));
    for (ending, name, code) in [(Signal::INT, "INT", 130), (Signal::TERM, "TERM", 143)] {
        let (child, mut told) = waiter(&servers);
        signal(&child, ending);
        assert_eq!(end(child).0, Some(code));
        assert_eq!(told.next(), Some(format!("curator: ended by {name}")));
        assert_eq!(told.next(), None);
    }
    assert!(server.exists("/barrier"));
    assert_eq!(server.watch_count(), 0);
    until("the sessions are closed", || server.sessions().is_empty());
}

/// Starts a command that sets the barrier, and waits for its first line.
fn hold(connect: &str, options: &[&str], script: &str) -> (Child, impl Iterator<Item = String> + use<>) {
    let arguments = [&["barrier", "hold"], options, &["/barrier", "--", "sh", "-c", script]].concat();
    let mut child = curator(connect, &arguments).stdin(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "/barrier");
    (child, lines)
}

#[test]
fn held_barrier_stands_while_the_command_runs() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (mut holder, _lines) = hold(&servers, &[], "echo $CURATOR_BARRIER_PATH; cat; exit 7");
    let session = format!("{:#x}", server.sessions()[0]);
    let (code, text, _) = barrier(&servers, "status", &[]);
    assert!(code == Some(3) && text.ends_with(&format!(", until session {session} ends\n")), "{text}");
    assert_eq!(parsed(&barrier(&servers, "status", &["--json"]).1)["session"], session);
    let text = "curator: /barrier is set already: curator barrier status /barrier shows it\n";
    for (options, code) in [(&[][..], 75), (&["-E", "9"], 9)] {
        let again = run(&servers, &[&["barrier", "hold"], options, &["/barrier", "--", "echo", "never"]].concat());
        assert_eq!((again.status.code(), stdout(&again), stderr(&again)), (Some(code), String::new(), text.to_owned()));
    }
    let (waiting, mut told) = waiter(&servers);
    let output = run(&servers, &["barrier", "set", "/barrier"]);
    assert_eq!(output.status.code(), Some(75));
    assert_eq!(stderr(&output), "curator: /barrier is set by a process, and is removed when that ends\n");
    drop(holder.stdin.take());
    assert_eq!(end(holder), (Some(7), String::new()));
    assert_eq!((end(waiting).0, told.next()), (Some(0), None));
    assert!(!server.exists("/barrier"));
    let output = run(&servers, &["barrier", "hold", "/barrier", "--", "/no/such/command"]);
    assert_eq!((output.status.code(), server.exists("/barrier")), (Some(127), false), "{output:?}");
    until("the sessions are closed", || server.sessions().is_empty());
}

#[test]
fn removed_barrier_stops_the_command_behind_it() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let script = "trap 'echo asked; exit 0' TERM; echo $CURATOR_BARRIER_PATH; while :; do sleep 0.05; done";
    let (holder, mut lines) = hold(&servers, &[], script);
    assert_eq!(barrier(&servers, "remove", &[]), silent(0));
    assert_eq!(lines.next().unwrap(), "asked");
    let (code, told) = end(holder);
    // The shell may report the end of its `sleep` before.
    assert!(code == Some(74) && told.contains("curator: the barrier /barrier is lost: "), "{told}");
    // A signal reaches the command too.
    let (holder, mut lines) = hold(&servers, &[], script);
    signal(&holder, Signal::TERM);
    assert_eq!(lines.next().unwrap(), "asked");
    // The shell may tell of its `sleep`, which has the signal too.
    assert_eq!((end(holder).0, server.exists("/barrier")), (Some(0), false));
}

#[test]
fn held_barrier_falls_with_its_process() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (mut holder, _lines) = hold(&servers, &SHORT[..2], "echo $CURATOR_BARRIER_PATH; exec sleep 604");
    signal(&holder, Signal::KILL);
    assert_eq!(holder.wait().unwrap().code(), None);
    assert!(server.exists("/barrier"));
    assert_eq!(barrier(&servers, "wait", &["--timeout", "20s"]), silent(0));
}

#[test]
fn status_prints_json() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let status = || {
        let (code, text, _) = barrier(&servers, "status", &["--json"]);
        (code.unwrap(), parsed(&text))
    };
    assert_eq!(status(), (0, json!({"path": "/barrier", "state": "open"})));
    assert_eq!(barrier(&servers, "set", &[]), silent(0));
    let (code, mut seen) = status();
    assert!(seen["since"].take().as_str().unwrap().ends_with('Z'));
    assert_eq!((code, seen), (3, json!({"path": "/barrier", "state": "set", "since": null})));
}

/// A node with children holds the waiters back too, and its children are not members.
#[tokio::test]
async fn node_with_other_children_is_a_set_barrier() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    create(&server, &["/barrier/port"]).await;
    assert_eq!(barrier(&servers, "wait", &["-w", "200ms"]).0, Some(75));
    let (code, text, _) = barrier(&servers, "status", &[]);
    assert!(code == Some(3) && text.starts_with("/barrier is set since 2"), "{text}");
    assert_eq!(parsed(&barrier(&servers, "status", &["--json"]).1)["state"], "set");
}

#[tokio::test]
async fn what_is_not_a_barrier_is_refused() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (holder, _out, _) = begin(&servers, &[], "echo; exec sleep 600");
    create(&server, &["/config/port"]).await;
    for command in [&["set"][..], &["remove"], &["wait"], &["status"], &["hold"], &["enter", "-n", "2"]] {
        let tail: &[&str] = if ["enter", "hold"].contains(&command[0]) { &["--", "true"] } else { &[] };
        let output = |servers: &str, path| run(servers, &[&["barrier"], command, &[path], tail].concat());
        let lock = output(&servers, "/lock");
        let text = "curator: /lock is a mutex with contenders: use curator lock, or another path\n";
        assert_eq!((lock.status.code(), stderr(&lock).as_str()), (Some(2), text), "{command:?}");
        assert_eq!(output(&servers, "relative").status.code(), Some(2), "{command:?}");
        let lost = output(&format!("{servers}/prod"), "/barrier");
        assert_eq!(lost.status.code(), Some(2), "{command:?}");
        assert!(stderr(&lost).starts_with("curator: the chroot /prod does not exist"), "{lost:?}");
        let away = run("127.0.0.1:1", &[&["--connect-timeout", "300ms", "barrier"], command, &["/x"], tail].concat());
        assert_eq!(away.status.code(), Some(69), "{command:?}");
    }
    let (code, _, told) = barrier(&servers, "remove", &[]);
    assert_eq!((code, told.as_str()), (Some(0), ""));
    let output = run(&servers, &["barrier", "remove", "/config"]);
    assert_eq!((output.status.code(), server.exists("/config/port")), (Some(2), true), "{output:?}");
    let text = "curator: /config is not a barrier to remove, because it has children\n";
    assert_eq!(stderr(&output), text);
    assert_eq!(run(&servers, &["barrier"]).status.code(), Some(2));
    assert_eq!(run(&servers, &["barrier", "set", "--acl", "creator", "/barrier"]).status.code(), Some(2));
    signal(&holder, Signal::TERM);
    assert_eq!(end(holder).0, Some(143));
}

#[test]
fn barrier_works_on_apache() {
    let (servers, _server) = apache();
    let path = unique_root("curator-barrier");
    let code = |command: &[&str]| run(&servers, &[&["barrier"], command, &[path.as_str()]].concat()).status.code();
    assert_eq!([code(&["set"]), code(&["status"]), code(&["wait", "-w", "300ms"])], [Some(0), Some(3), Some(75)]);
    assert_eq!([code(&["remove"]), code(&["status"]), code(&["wait"])], [Some(0); 3]);
}

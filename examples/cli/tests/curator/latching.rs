//! `latch`: a count that processes count down.

use std::io::{BufRead as _, BufReader};
use std::process::Child;
use std::time::Duration;

use curator_test::wire::OpCode;
use curator_test::{FaultProxy, TestingServer, unique_root};
use rustix::process::Signal;
use serde_json::json;

use crate::showing::parsed;
use crate::{apache, begin, curator, end, run, signal, stderr, stdout, until};

/// Runs a command of `curator latch`. Returns the status, and the text on standard output and standard error.
fn latch(connect: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = run(connect, &[&["latch"], arguments].concat());
    (output.status.code(), stdout(&output), stderr(&output))
}

fn printed(text: &str) -> (Option<i32>, String, String) {
    (Some(0), text.to_owned(), String::new())
}

fn refused(code: i32, text: &str) -> (Option<i32>, String, String) {
    (Some(code), String::new(), format!("curator: {text}\n"))
}

/// Starts a waiter and waits until it tells that it waits.
fn waiter(connect: &str) -> (Child, impl Iterator<Item = String> + use<>) {
    let mut child = curator(connect, &["latch", "wait", "-v", "/latch"]).spawn().unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(told.next().unwrap(), "curator: waits for the count of /latch");
    (child, told)
}

#[test]
fn latch_opens_when_all_is_counted_down() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    for _ in 0..2 {
        assert_eq!(latch(&servers, &["set", "/latch", "2"]), printed(""));
        let round = server.children("/latch").unwrap().concat();
        let (code, text, _) = latch(&servers, &["status", "/latch"]);
        assert_eq!((code, text), (Some(3), format!("/latch is closed: 2 remain (round {round})\n")));
        let waiters = [waiter(&servers), waiter(&servers)];
        assert_eq!(latch(&servers, &["down", "/latch"]), printed("1\n"));
        let text = "/latch has a count already: curator latch status /latch shows it";
        assert_eq!(latch(&servers, &["set", "/latch", "3"]), refused(75, text));
        assert_eq!(latch(&servers, &["set", "-E", "9", "/latch", "3"]), refused(9, text));
        let text = "/latch is not counted down: curator latch status /latch shows it";
        assert_eq!(latch(&servers, &["wait", "--timeout", "200ms", "/latch"]), refused(75, text));
        assert_eq!(latch(&servers, &["wait", "-w", "0.3", "-E", "9", "/latch"]), refused(9, text));
        // One look, which takes as long as the connection.
        assert_eq!(latch(&servers, &["wait", "-w", "0", "/latch"]), refused(75, text));
        assert_eq!(latch(&servers, &["down", "/latch"]), printed("0\n"));
        for (child, mut told) in waiters {
            assert_eq!((end(child).0, told.next()), (Some(0), None));
        }
        assert_eq!(latch(&servers, &["wait", "/latch"]), printed(""));
        let (code, text, _) = latch(&servers, &["status", "/latch"]);
        assert_eq!((code, text), (Some(0), format!("/latch is open: 0 remain (round {round})\n")));
    }
    until("the sessions are closed", || server.sessions().is_empty());
}

#[test]
fn latch_prints_json() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let status = || {
        let (code, text, _) = latch(&servers, &["status", "--json", "/latch"]);
        (code.unwrap(), parsed(&text))
    };
    assert_eq!(status(), (1, json!({"path": "/latch", "state": "missing", "remaining": null, "round": null})));
    assert_eq!(latch(&servers, &["set", "/latch", "1"]), printed(""));
    let (code, closed) = status();
    let round = closed["round"].as_u64().unwrap();
    assert_eq!((code, closed), (3, json!({"path": "/latch", "state": "closed", "remaining": 1, "round": round})));
    assert_eq!(latch(&servers, &["down", "/latch"]), printed("0\n"));
    assert_eq!(status(), (0, json!({"path": "/latch", "state": "open", "remaining": 0, "round": round})));
}

#[test]
fn count_with_an_id_counts_once() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    assert_eq!(latch(&servers, &["set", "/latch", "3"]), printed(""));
    for _ in 0..2 {
        assert_eq!(latch(&servers, &["down", "--operation", "part 7", "/latch"]), printed("2\n"));
    }
    assert_eq!(latch(&servers, &["down", "--operation", "part 8", "/latch"]), printed("1\n"));
    assert_eq!(latch(&servers, &["down", "/latch"]), printed("0\n"));
}

#[test]
fn count_whose_reply_is_lost_counts_once() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    assert_eq!(latch(&server.connect_string(), &["set", "/latch", "3"]), printed(""));
    proxy.drop_reply(OpCode::Multi, 1);
    assert_eq!(latch(&proxy.connect_string(), &["down", "/latch"]), printed("2\n"));
    assert_eq!(proxy.faults_done(), 1);
}

#[test]
fn signal_ends_a_waiter() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    assert_eq!(latch(&servers, &["set", "/latch", "1"]), printed(""));
    let (child, mut told) = waiter(&servers);
    signal(&child, Signal::INT);
    assert_eq!(end(child).0, Some(130));
    assert_eq!((told.next(), told.next()), (Some("curator: ended by INT".to_owned()), None));
    until("the sessions are closed", || server.sessions().is_empty());
    assert_eq!(server.watch_count(), 0);
}

#[test]
fn latch_without_a_count_is_told() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let text = "no count is set for the latch /latch";
    assert_eq!(latch(&servers, &["down", "/latch"]), refused(1, text));
    assert_eq!(latch(&servers, &["wait", "/latch"]), refused(1, text));
    assert_eq!(latch(&servers, &["status", "/latch"]), (Some(1), "/latch has no count\n".to_owned(), String::new()));
    let (holder, _out, _) = begin(&servers, &[], "echo; exec sleep 600");
    let lock = "/lock is a mutex with contenders: use curator lock, or another path";
    assert_eq!(latch(&servers, &["set", "/lock", "1"]), refused(2, lock));
    for arguments in [&["set", "/latch", "0"][..], &["set", "/latch"], &["set", "relative", "1"], &["down"], &[]] {
        assert_eq!(latch(&servers, arguments).0, Some(2), "{arguments:?}");
    }
    assert_eq!(latch(&format!("{servers}/prod"), &["set", "/latch", "1"]).0, Some(2));
    assert_eq!(latch("127.0.0.1:1", &["--connect-timeout", "300ms", "down", "/latch"]).0, Some(69));
    signal(&holder, Signal::TERM);
    assert_eq!(end(holder).0, Some(143));
}

#[test]
fn node_with_other_data_is_not_a_latch() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    assert_eq!(run(&servers, &["barrier", "set", "/barrier"]).status.code(), Some(0));
    let text = "the data of /barrier is not that of a count-down latch";
    for arguments in
        [&["set", "/barrier", "1"][..], &["down", "/barrier"], &["wait", "/barrier"], &["status", "/barrier"]]
    {
        assert_eq!(latch(&servers, arguments), refused(2, text), "{arguments:?}");
    }
}

#[test]
fn set_of_unknown_outcome_has_a_status_of_its_own() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    // The count is set, and neither the reply nor a later connection comes.
    proxy.drop_reply(OpCode::SetData, 1);
    // Time to refuse the next connection before the reply is lost.
    proxy.latency(Duration::from_millis(100));
    let arguments = ["--connect-timeout", "1s", "latch", "set", "/latch", "2"];
    let child = curator(&proxy.connect_string(), &arguments).spawn().unwrap();
    until("a connection", || proxy.connections() == 1);
    proxy.refuse();
    let (code, told) = end(child);
    let text = "; the count may be set: curator latch status shows it\n";
    assert!(code == Some(76) && told.ends_with(text), "{told}");
    let status = latch(&server.connect_string(), &["status", "/latch"]);
    assert!(status.1.starts_with("/latch is closed: 2 remain (round "), "{}", status.1);
}

#[test]
fn latch_works_on_apache() {
    let (servers, _server) = apache();
    let path = unique_root("curator-latch");
    assert_eq!(latch(&servers, &["set", &path, "2"]), printed(""));
    assert_eq!(latch(&servers, &["down", &path]), printed("1\n"));
    assert_eq!(latch(&servers, &["down", &path]), printed("0\n"));
    assert_eq!(latch(&servers, &["wait", &path]), printed(""));
}

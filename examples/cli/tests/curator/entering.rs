//! `barrier enter`: runs a command that starts and ends together with the commands of other members.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use curator_test::{TestingServer, unique_root};
use rustix::process::Signal;
use serde_json::json;

use crate::showing::parsed;
use crate::{SHORT, apache, curator, end, run, signal, stderr, stdout, until};

/// Starts a member of `/start` that runs a script. Its standard input is open.
fn enter(connect: &str, options: &[&str], script: &str) -> Child {
    let arguments = [&["barrier", "enter"], options, &["/start", "--", "sh", "-c", script]].concat();
    curator(connect, &arguments).stdin(Stdio::piped()).spawn().unwrap()
}

type Lines = Box<dyn Iterator<Item = String>>;

/// Returns the lines that the command prints.
fn lines(child: &mut Child) -> Lines {
    Box::new(BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap))
}

/// Returns the messages of the program.
fn told(child: &mut Child) -> Lines {
    Box::new(BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap))
}

/// Returns the number of members that exist.
fn members(server: &TestingServer) -> usize {
    let children = server.children("/start").unwrap_or_default();
    children.iter().filter(|name| name.contains("-member")).count()
}

/// Prints a line, then waits for the end of its standard input.
const WORK: &str = "echo $CURATOR_MEMBER_ID $CURATOR_BARRIER_PATH; echo $CURATOR_ROUND; cat; exit ";

#[test]
fn members_begin_together_and_end_together() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let start = |id: &str, status: &str| enter(&servers, &["-n", "3", "--id", id], &(WORK.to_owned() + status));
    let mut rounds = Vec::new();
    for _ in 0..2 {
        let mut all = vec![start("one", "0"), start("two", "7")];
        until("two members", || members(&server) == 2);
        assert!(!server.exists("/start/ready"));
        all.push(start("three", "0"));
        for (child, id) in all.iter_mut().zip(["one", "two", "three"]) {
            let mut lines = lines(child);
            assert_eq!(lines.next(), Some(format!("{id} /start")));
            rounds.push(lines.next().unwrap().parse::<i64>().unwrap());
        }
        let mut last = all.pop().unwrap();
        for child in &mut all {
            drop(child.stdin.take());
        }
        until("one member", || members(&server) == 1);
        assert!(all.iter_mut().all(|child| child.try_wait().unwrap().is_none()));
        drop(last.stdin.take());
        all.push(last);
        let ended: Vec<_> = all.into_iter().map(end).collect();
        assert_eq!(ended, [0, 7, 0].map(|code| (Some(code), String::new())));
        assert_eq!(server.children("/start"), Some(Vec::new()));
    }
    // All members have the same round number, and it grows.
    assert!(rounds[..3] == [rounds[0]; 3] && rounds[3..] == [rounds[3]; 3] && rounds[0] < rounds[3], "{rounds:?}");
    until("the sessions are closed", || server.sessions().is_empty());
}

#[test]
fn member_that_gives_up_counts_for_no_other_one() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    for (options, code) in [(&["--timeout", "300ms"][..], 75), (&["--wait", "0.3", "-E", "9"][..], 9)] {
        let output = enter(&servers, &[&["-n", "2"], options].concat(), "echo never").wait_with_output().unwrap();
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(code), ""), "{output:?}");
        assert_eq!(stderr(&output), "curator: /start did not open: fewer than 2 members came\n");
        assert_eq!(members(&server), 0);
    }
}

#[test]
fn quorum_enters_after_its_grace() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let quorum = ["-n", "3", "--quorum", "2", "--quorum-grace", "100ms"];
    let all = [enter(&servers, &quorum, "exit 0"), enter(&servers, &quorum, "exit 7")];
    assert_eq!(all.map(end), [0, 7].map(|code| (Some(code), String::new())));
    let output = enter(&servers, &[&quorum[..], &["-w", "500ms"]].concat(), "echo never").wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(75), "{output:?}");
    let too_large = ["-n", "3", "--quorum", "4", "--quorum-grace", "1s"];
    for wrong in [&quorum[..4], &["-n", "3", "--quorum-grace", "1s"], &too_large] {
        let output = enter(&servers, wrong, "echo never").wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
    assert_eq!(members(&server), 0);
}

#[test]
fn signal_ends_a_waiting_member_and_leaves_no_node() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    for (ending, name) in [(Signal::INT, "INT"), (Signal::TERM, "TERM"), (Signal::HUP, "HUP"), (Signal::QUIT, "QUIT")] {
        let child = enter(&servers, &["-n", "2"], "echo never");
        until("a member", || members(&server) == 1);
        signal(&child, ending);
        assert_eq!(end(child), (Some(128 + ending.as_raw()), format!("curator: ended by {name}\n")));
        assert_eq!(members(&server), 0);
    }
    let mut child = enter(&servers, &["-n", "2"], "echo never");
    let mut lines = told(&mut child);
    until("a member", || members(&server) == 1);
    signal(&child, Signal::TSTP);
    assert_eq!(
        lines.next().unwrap(),
        "curator: Ctrl-Z is not obeyed: a stopped process cannot keep its place at the barrier"
    );
    signal(&child, Signal::INT);
    assert_eq!((end(child).0, members(&server)), (Some(130), 0));
    until("the sessions are closed", || server.sessions().is_empty());
}

#[test]
fn signal_reaches_the_command_and_ends_the_wait_behind_it() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let script = "trap 'echo asked; exit 5' TERM; echo begun; while :; do sleep 0.05; done";
    let mut all = [enter(&servers, &["-n", "2"], script), enter(&servers, &["-n", "2"], script)];
    let mut printed = all.each_mut().map(lines);
    for lines in &mut printed {
        assert_eq!(lines.next().unwrap(), "begun");
    }
    let [first, second] = all;
    signal(&first, Signal::TERM);
    assert_eq!(printed[0].next().unwrap(), "asked");
    until("one member", || members(&server) == 1);
    // Its command has ended: the next signal ends the wait for the other member.
    signal(&first, Signal::INT);
    let (code, told) = end(first);
    // The shell may tell of its `sleep`, which has the first signal too.
    assert!(code == Some(130) && told.ends_with("curator: ended by INT\n"), "{told}");
    signal(&second, Signal::TERM);
    assert_eq!(end(second).0, Some(5));
    assert_eq!(server.children("/start"), Some(Vec::new()));
}

#[test]
fn death_of_a_member_is_told_to_the_others() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let start = |id: &str| enter(&servers, &[&SHORT[..2], &["-n", "3", "--id", id]].concat(), &(WORK.to_owned() + "0"));
    let mut all = ["one", "two", "three"].map(start);
    let mut printed = all.each_mut().map(lines);
    for lines in &mut printed {
        assert!(lines.next().unwrap().ends_with(" /start"));
    }
    let [mut one, two, mut three] = all;
    let (mut ones, mut threes) = (told(&mut one), told(&mut three));
    signal(&two, Signal::KILL);
    assert_eq!(end(two).0, None);
    for lines in [&mut ones, &mut threes] {
        assert_eq!(lines.next().unwrap(), "curator: the member two died");
    }
    drop((one.stdin.take(), three.stdin.take()));
    assert_eq!((end(one).0, end(three).0), (Some(0), Some(0)));
    for mut lines in [ones, threes] {
        assert_eq!(lines.next().unwrap(), "curator: members of this round that died: 1");
        assert_eq!(lines.next(), None);
    }
    assert_eq!(server.children("/start"), Some(Vec::new()));
}

#[test]
fn member_whose_session_ends_has_a_status() {
    let server = TestingServer::start().unwrap();
    let mut child = enter(&server.connect_string(), &["-n", "1"], &(WORK.to_owned() + "0"));
    let (mut lines, mut told) = (lines(&mut child), told(&mut child));
    assert!(lines.next().unwrap().ends_with(" /start"));
    assert!(server.kill_session(server.sessions()[0]));
    let line = told.next().unwrap();
    assert!(line.starts_with("curator: the member's node is lost: "), "{line}");
    drop(child.stdin.take());
    assert_eq!(end(child).0, Some(74));
    let line = told.next().unwrap();
    assert!(line.starts_with("curator: the node of the barrier /start is lost: "), "{line}");
    assert_eq!(told.next(), None);
}

#[test]
fn wait_behind_the_command_has_a_limit() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let start = |options: &[&str], script: &str| enter(&servers, &[&["-n", "4"], options].concat(), script);
    let slow = start(&[], "echo; cat");
    let gone = start(&["--leave-timeout", "0"], "exit 0");
    let late = start(&["--leave-timeout", "200ms", "-E", "9"], "exit 0");
    let failed = start(&["--leave-timeout", "200ms"], "exit 7");
    let text = "curator: other members are still at /start: curator barrier status /start shows them\n";
    assert_eq!(end(gone), (Some(0), String::new()));
    assert_eq!(end(late), (Some(9), text.to_owned()));
    assert_eq!(end(failed), (Some(7), String::new()));
    assert_eq!(end_of_input(slow), (Some(0), String::new()));
    assert_eq!(server.children("/start"), Some(Vec::new()));
}

fn end_of_input(mut child: Child) -> (Option<i32>, String) {
    drop(child.stdin.take());
    end(child)
}

#[test]
fn command_that_cannot_run_does_not_hold_up_the_others() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let other = enter(&servers, &["-n", "2"], "exit 0");
    let output = run(&servers, &["barrier", "enter", "-n", "2", "/start", "--", "/no/such/command"]);
    assert_eq!(output.status.code(), Some(127));
    assert!(stderr(&output).starts_with("curator: cannot run /no/such/command: "), "{output:?}");
    assert_eq!(stderr(&output).lines().count(), 1, "{output:?}");
    assert_eq!(end(other), (Some(0), String::new()));
    let output = run(&servers, &["barrier", "enter", "-n", "2", "/start", "make", "-j"]);
    let text = "curator: the command must stand behind --, as in: curator barrier enter -n 2 /start -- make -j\n";
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(2), text));
    for options in [&["-n", "0"][..], &[]] {
        let output = enter(&servers, options, "true").wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
}

#[test]
fn status_shows_the_members() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let status = |options: &[&str]| {
        let output = run(&servers, &[&["barrier", "status"], options, &["/start"]].concat());
        (output.status.code(), stdout(&output))
    };
    let start = |id: &str| enter(&servers, &["-v", "-n", "2", "--id", id], "echo; cat");
    let mut one = start("worker\u{1b}one");
    let mut ones = told(&mut one);
    assert_eq!(ones.next().unwrap(), "curator: waits for /start: 1 of 2 members");
    let first = format!("{:#x}", server.sessions()[0]);
    let text = format!("/start waits: 1 of 2 members\nworker\\u{{1b}}one (session {first})\n");
    assert_eq!(status(&[]), (Some(3), text));
    let (code, text) = status(&["--json"]);
    let members = json!([{"id": "worker\u{1b}one", "session": first}]);
    let expected = json!({"path": "/start", "state": "gathering", "wanted": 2, "members": members});
    assert_eq!((code, parsed(&text)), (Some(3), expected));
    let mut two = start("two");
    assert_eq!(lines(&mut two).next().unwrap(), "");
    let (code, text) = status(&[]);
    assert!(code == Some(0) && text.starts_with("/start is open: 2 of 2 members\n"), "{text}");
    assert_eq!(parsed(&status(&["--json"]).1)["state"], "entered");
    drop((one.stdin.take(), two.stdin.take()));
    assert_eq!((end(one).0, end(two).0), (Some(0), Some(0)));
    assert_eq!(status(&[]), (Some(0), "/start has no members\n".to_owned()));
    assert_eq!(parsed(&status(&["--json"]).1)["state"], "empty");
}

#[test]
fn barrier_enter_works_on_apache() {
    let (servers, _server) = apache();
    let path = unique_root("curator-enter");
    let start = || {
        let arguments = ["barrier", "enter", "-n", "2", &path, "--", "sh", "-c", "echo $CURATOR_ROUND"];
        curator(&servers, &arguments).spawn().unwrap()
    };
    let rounds = [start(), start()].map(|child| {
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
        stdout(&output).trim().parse::<i64>().unwrap()
    });
    assert_eq!(rounds[0], rounds[1]);
}

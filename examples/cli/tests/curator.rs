//! Runs the program as a user does.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use curator_test::{ApacheServer, FaultProxy, TestingServer};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

const LIMIT: Duration = Duration::from_secs(30);

fn curator(connect: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_curator"));
    command.args(arguments).env("CURATOR_CONNECT", connect).env_remove("CURATOR_AUTH");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(connect: &str, arguments: &[&str]) -> Output {
    curator(connect, arguments).output().unwrap()
}

/// Runs a shell script under `/lock`.
fn lock(connect: &str, options: &[&str], script: &str) -> Output {
    run(connect, &[&["lock"], options, &["/lock", "--", "sh", "-c", script]].concat())
}

/// Starts a script under `/lock` and waits for its first line.
fn begin(connect: &str, options: &[&str], script: &str) -> (Child, BufReader<ChildStdout>, String) {
    let mut child =
        curator(connect, &[&["lock"], options, &["/lock", "--", "sh", "-c", script]].concat()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    (child, out, line.trim().to_owned())
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn end(mut child: Child) -> (Option<i32>, String) {
    until("the end of the program", || child.try_wait().unwrap().is_some());
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < LIMIT, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn nodes(server: &TestingServer) -> usize {
    server.children("/lock").map_or(0, |nodes| nodes.len())
}

const SHORT: &[&str] = &["--session-timeout", "4s", "--grace", "300ms"];

#[test]
fn the_exit_status_is_the_commands() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143), ("kill -KILL $$", 137)] {
        let output = lock(&servers, &[], script);
        assert_eq!((output.status.code(), stderr(&output)), (Some(code), String::new()), "{script}");
    }
    let output = run(&servers, &["lock", "/lock", "--", "/no/such/command"]);
    assert_eq!(output.status.code(), Some(127));
    assert!(stderr(&output).starts_with("curator: cannot run /no/such/command: "), "{output:?}");
    let output = run(&servers, &["lock", "/lock", "--", "/etc/passwd"]);
    assert_eq!(output.status.code(), Some(126));
    assert_eq!((nodes(&server), server.sessions()), (0, vec![]));
}

#[test]
fn the_command_knows_its_lock() {
    let server = TestingServer::start().unwrap();
    let script =
        "echo $CURATOR_LOCK_PATH; echo $CURATOR_NODE; echo $CURATOR_FENCING_TOKEN; echo $CURATOR_DEADLINE; date +%s.%N";
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let output = stdout(&lock(&server.connect_string(), &[], script));
        let lines: Vec<&str> = output.lines().collect();
        assert_eq!(lines[0], "/lock");
        assert!(lines[1].starts_with("/lock/_c_"), "{output}");
        tokens.push(lines[2].parse::<i64>().unwrap());
        let certain = lines[3].parse::<f64>().unwrap() - lines[4].parse::<f64>().unwrap();
        assert!(certain > 0.0 && certain <= 22.5, "{output}");
    }
    assert!(tokens[1] > tokens[0]);
}

#[test]
fn two_processes_exclude_each_other_and_a_reader_does_not_exclude_a_reader() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let folder = std::env::temp_dir().join(format!("curator-cli-{}", std::process::id()));
    // Two at once would find the folder there.
    let script = format!("mkdir {0} && sleep 0.02 && rmdir {0}", folder.display());
    let many: Vec<Child> =
        (0..6).map(|_| curator(&servers, &["lock", "/lock", "--", "sh", "-c", &script]).spawn().unwrap()).collect();
    for child in many {
        assert_eq!(end(child), (Some(0), String::new()));
    }
    let read = ["read", "/config", "--", "sh", "-c", "echo; cat"];
    let mut reader = curator(&servers, &read).stdin(Stdio::piped()).spawn().unwrap();
    let mut line = [0];
    reader.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
    assert_eq!(run(&servers, &["read", "--try", "/config", "--", "true"]).status.code(), Some(0));
    assert_eq!(run(&servers, &["write", "--try", "/config", "--", "true"]).status.code(), Some(75));
    drop(reader.stdin.take());
    assert_eq!(end(reader), (Some(0), String::new()));
    assert_eq!(run(&servers, &["write", "--try", "/config", "--", "true"]).status.code(), Some(0));
}

#[test]
fn who_does_not_get_it_in_time_says_so() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (holder, _out, _) = begin(&servers, &[], "echo; exec sleep 600");
    for (options, code) in [(&["--try"][..], 75), (&["--timeout", "100ms"][..], 75), (&["-w", "0.1", "-E", "9"][..], 9)]
    {
        let output = lock(&servers, options, "echo never");
        assert_eq!(output.status.code(), Some(code), "{options:?}");
        assert_eq!(
            (stdout(&output), stderr(&output)),
            (String::new(), "curator: somebody else has /lock\n".to_owned())
        );
    }
    // One that is asked to end while it waits leaves the queue.
    let waiter = curator(&servers, &["lock", "/lock", "--", "echo", "never"]).spawn().unwrap();
    until("a second node", || nodes(&server) == 2);
    signal(&waiter, Signal::TERM);
    assert_eq!(end(waiter).0, Some(143));
    assert_eq!(nodes(&server), 1);
    signal(&holder, Signal::TERM);
    assert_eq!(end(holder), (Some(143), String::new()));
    assert_eq!(nodes(&server), 0);
}

#[test]
fn a_semaphore_lets_in_as_many_as_it_is_told() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let semaphore = |options: &[&str], command: &[&str]| {
        run(&servers, &[&["semaphore", "-n", "2"], options, &["/pool", "--"], command].concat())
    };
    let start = || {
        let mut child = curator(&servers, &["semaphore", "-n", "2", "/pool", "--", "sh", "-c", "echo; exec sleep 600"])
            .spawn()
            .unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        child
    };
    let (one, two) = (start(), start());
    assert_eq!(semaphore(&["--try"], &["true"]).status.code(), Some(75));
    let table = stdout(&run(&servers, &["ls", "-n", "2", "/pool"]));
    assert_eq!(table.lines().filter(|line| line.starts_with("holds  lease")).count(), 2, "{table}");
    signal(&one, Signal::INT);
    assert_eq!(end(one).0, Some(130));
    assert_eq!(semaphore(&["--try"], &["true"]).status.code(), Some(0));
    signal(&two, Signal::HUP);
    assert_eq!(end(two).0, Some(129));
}

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

/// A process whose parent has gone may stay as a zombie for a while, or for good where nobody waits for it.
fn is_gone(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    test_kill_process(pid).is_err() || stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z')
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

#[test]
fn after_kill_9_the_command_ends_and_the_lock_goes_with_the_session() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (mut child, _out, pid) = begin(&servers, SHORT, "echo $$; exec sleep 602");
    let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
    signal(&child, Signal::KILL);
    assert_eq!(child.wait().unwrap().code(), None);
    until("the command is gone", || is_gone(pid));
    // Nobody has told the server.
    assert_eq!(nodes(&server), 1);
    assert_eq!(lock(&servers, &["--timeout", "20s"], "true").status.code(), Some(0));
}

#[test]
fn signals_reach_the_command_and_the_lock_is_given_back_after_it() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let script = "trap 'echo usr; exit 5' USR1; trap 'echo int' INT; echo; while :; do sleep 0.02; done";
    let (child, mut out, _) = begin(&servers, &[], script);
    signal(&child, Signal::INT);
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!((line.as_str(), nodes(&server)), ("int\n", 1));
    signal(&child, Signal::USR1);
    // The shell may tell of its `sleep`, which has the signal too.
    assert_eq!(end(child).0, Some(5));
    assert_eq!(nodes(&server), 0);
}

#[test]
fn ls_shows_and_revoke_asks() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (holder, _out, _) = begin(&servers, &["--revocable", "--data", "the \u{1b}holder"], "echo; exec sleep 600");
    let waiter = curator(&servers, &["lock", "--data", "the waiter", "/lock", "--", "true"]).spawn().unwrap();
    until("a waiter", || nodes(&server) == 2);
    let table = stdout(&run(&servers, &["ls", "/lock"]));
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("STATE  KIND        AGE  SESSION"), "{table}");
    assert!(lines[1].starts_with("holds  lock ") && lines[1].contains("the \\u{1b}holder"), "{table}");
    assert!(lines[2].starts_with("waits  lock ") && lines[2].contains("the waiter"), "{table}");
    assert!(server.sessions().iter().any(|session| lines[1].contains(&format!("{session:#x}"))), "{table}");
    let node = lines[1].split_whitespace().last().unwrap();
    assert_eq!(run(&servers, &["revoke", node]).status.code(), Some(0));
    let (code, text) = end(holder);
    assert_eq!((code, text.as_str()), (Some(143), "curator: somebody asks for the lock: the command is stopped\n"));
    assert_eq!(end(waiter).0, Some(0));
    let output = run(&servers, &["revoke", node]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(1), format!("curator: no node {node}\n")));
    assert_eq!(run(&servers, &["ls", "/lock"]).status.code(), Some(0));
    assert_eq!(run(&servers, &["ls", "/nowhere"]).status.code(), Some(1));
    // Nobody reads what it prints.
    let mut child = curator(&servers, &["ls", "/lock"]).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(end(child), (Some(0), String::new()));
}

#[test]
fn what_cannot_work_is_said_in_one_line() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let cases: &[(&str, &[&str], i32, &str)] = &[
        (&servers, &["lock", "relative", "--", "true"], 2, "invalid path \"relative\": it does not start with a slash"),
        (&servers, &["lock", "--grace", "10s", "/lock", "--", "true"], 2, "--grace 10s is more than a quarter of"),
        (&servers, &["--auth", "secret", "ls", "/"], 2, "credentials are SCHEME:ID, as digest:user:password"),
        ("two words", &["ls", "/"], 2, "invalid connect string"),
        ("127.0.0.1:1", &["--connect-timeout", "300ms", "ls", "/"], 69, "connection lost during"),
        ("127.0.0.1:1", &["lock", "--timeout", "300ms", "/lock", "--", "true"], 69, "connection lost during"),
    ];
    for (connect, arguments, code, text) in cases {
        let output = run(connect, arguments);
        assert_eq!(output.status.code(), Some(*code), "{arguments:?} {output:?}");
        assert!(stderr(&output).starts_with(&format!("curator: {text}")), "{output:?}");
        assert_eq!(stderr(&output).lines().count(), 1, "{output:?}");
    }
    for arguments in [
        &["semaphore", "-n", "0", "/x", "--", "true"][..],
        &["lock", "/lock"],
        &["lock", "-w", "3 days", "/x", "--", "a"],
    ] {
        assert_eq!(run(&servers, arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn it_works_on_apache() {
    let own;
    let servers = match std::env::var("CURATOR_TEST_APACHE") {
        Ok(servers) => servers,
        Err(_) => {
            own = ApacheServer::start().unwrap();
            own.connect_string()
        }
    };
    let path = format!("/curator-cli-{}", std::process::id());
    let script = "test $CURATOR_FENCING_TOKEN -gt 0 && exec \"$CURATOR\" ls $CURATOR_LOCK_PATH";
    let output = curator(&servers, &["lock", "--auth", "digest:me:secret", &path, "--", "sh", "-c", script])
        .env("CURATOR", env!("CARGO_BIN_EXE_curator"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(stdout(&output).contains("\nholds  lock "), "{output:?}");
}

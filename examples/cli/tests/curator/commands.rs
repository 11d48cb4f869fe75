//! Commands under locks.

use std::io::{BufRead as _, Read as _};
use std::process::{Child, Stdio};

use curator_test::{TestingServer, unique_root};
use rustix::process::{Pid, Signal};

use crate::{SHORT, apache, begin, curator, end, is_gone, lock, nodes, run, signal, stderr, stdout, until};

#[test]
fn the_exit_status_is_the_commands() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    for (script, code) in
        [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143), ("kill -KILL $$", 137), ("kill -SEGV $$", 139)]
    {
        let output = lock(&servers, &[], script);
        assert_eq!((output.status.code(), stderr(&output)), (Some(code), String::new()), "{script}");
    }
    let output = run(&servers, &["lock", "/lock", "--", "/no/such/command"]);
    assert_eq!(output.status.code(), Some(127));
    assert!(stderr(&output).starts_with("curator: cannot run /no/such/command: "), "{output:?}");
    let output = run(&servers, &["lock", "/lock", "--", "/etc/passwd"]);
    assert_eq!(output.status.code(), Some(126));
    assert_eq!(nodes(&server), 0);
    until("the sessions are closed", || server.sessions().is_empty());
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
fn acquire_reports_that_its_budget_is_over() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (holder, _out, _) = begin(&servers, &[], "echo; exec sleep 600");
    for (options, code) in [(&["--try"][..], 75), (&["--timeout", "100ms"][..], 75), (&["-w", "0.1", "-E", "9"][..], 9)]
    {
        let output = lock(&servers, options, "echo never");
        assert_eq!(output.status.code(), Some(code), "{options:?}");
        assert_eq!(
            (stdout(&output), stderr(&output)),
            (String::new(), "curator: another contender has /lock: curator status /lock shows it\n".to_owned())
        );
    }
    // One that is asked to end while it waits leaves the queue.
    for (ending, code) in [(Signal::HUP, 129), (Signal::INT, 130), (Signal::QUIT, 131), (Signal::TERM, 143)] {
        let mut waiter = curator(&servers, &["lock", "/lock", "--", "echo", "never"]).spawn().unwrap();
        until("a second node", || nodes(&server) == 2);
        let mut printed = waiter.stdout.take().unwrap();
        signal(&waiter, ending);
        assert_eq!(end(waiter).0, Some(code));
        let mut out = String::new();
        printed.read_to_string(&mut out).unwrap();
        assert_eq!((out.as_str(), nodes(&server)), ("", 1));
    }
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
fn after_kill_9_the_command_ends_and_the_lock_goes_with_the_session() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (mut child, _out, pid) = begin(&servers, SHORT, "echo $$; exec sleep 602");
    let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
    signal(&child, Signal::KILL);
    assert_eq!(child.wait().unwrap().code(), None);
    until("the command is gone", || is_gone(pid));
    // The server was not notified.
    assert_eq!(nodes(&server), 1);
    assert_eq!(lock(&servers, &["--timeout", "20s"], "true").status.code(), Some(0));
}

#[test]
fn it_works_on_apache() {
    let (servers, _server) = apache();
    let path = unique_root("curator-cli");
    let script = "test $CURATOR_FENCING_TOKEN -gt 0 && exec \"$CURATOR\" ls $CURATOR_LOCK_PATH";
    let output = run(&servers, &["lock", "--auth", "digest:me:secret", &path, "--", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(stdout(&output).contains("\nholds  lock "), "{output:?}");
}

//! Habits of other tools, stuck locks, and limits in a node.

use std::io::Write as _;
use std::process::Stdio;

use curator_framework::{CuratorFramework, RetryOneTime};
use curator_test::TestingServer;
use rustix::process::Signal;

use crate::{begin, curator, end, lock, nodes, run, signal, stderr, stdout, until};

fn holder(server: &TestingServer) -> String {
    format!("/lock/{}", server.children("/lock").unwrap()[0])
}

#[test]
fn letters_of_flock_are_understood() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (child, _out, _) = begin(&servers, &[], "echo; exec sleep 600");
    for letter in ["-n", "--nonblock", "--try"] {
        let output = run(&servers, &["lock", letter, "-E", "9", "/lock", "--", "true"]);
        assert_eq!(output.status.code(), Some(9), "{output:?}");
    }
    signal(&child, Signal::TERM);
    assert_eq!(end(child).0, Some(143));
    for arguments in [["lock", "/lock", "-c", "echo one | tr o 0"], ["elect", "/election", "-c", "echo one | tr o 0"]] {
        let arguments = if arguments[0] == "elect" {
            [&arguments[..1], &["--once"], &arguments[1..]].concat()
        } else {
            arguments.to_vec()
        };
        let output = run(&servers, &arguments);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "0ne\n"), "{output:?}");
    }
    let output = run(&servers, &["lock", "/lock", "-c", "true", "--", "true"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let output = run(&servers, &["lock", "/lock"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let output = run(&servers, &["semaphore", "--each", "/leases", "-c", "echo {}"]);
    assert!(
        output.status.code() == Some(2) && stderr(&output).contains("a shell would run what a line says"),
        "{output:?}"
    );
    let output = run(&servers, &["lock", "/lock", "--", "echo hi | cat"]);
    assert_eq!(output.status.code(), Some(127));
    assert!(stderr(&output).ends_with("; for a line of the shell use -c\n"), "{output:?}");
    let output = run(&servers, &["lock", "/lock", "--", "no-such-program"]);
    assert!(!stderr(&output).contains("use -c"), "{output:?}");
}

#[test]
fn stuck_lock_is_broken_by_force() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (child, _out, _) =
        begin(&servers, &["--data", "the holder"], "trap '' TERM; echo; while :; do sleep 0.05; done");
    let node = holder(&server);
    let waiter = curator(&servers, &["lock", "/lock", "--", "true"]).spawn().unwrap();
    until("a waiter", || nodes(&server) == 2);
    let output = run(&servers, &["revoke", "--force", &node]);
    assert_eq!(output.status.code(), Some(2), "without a terminal: {output:?}");
    let text = stderr(&output);
    assert!(text.contains("data the holder") && text.contains("session 0x") && text.contains("use --yes"), "{text}");
    assert_eq!(nodes(&server), 2);
    let output = run(&servers, &["revoke", "--force", "--yes", &node]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), format!("deleted {node}\n")));
    assert_eq!(end(waiter).0, Some(0));
    let (code, text) = end(child);
    assert!(code == Some(74) && text.contains("lost"), "{code:?} {text}");
    let output = run(&servers, &["revoke", "--force", "--yes", &node]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(1), format!("curator: no node {node}\n")));
    assert_eq!(run(&servers, &["revoke", "--yes", &node]).status.code(), Some(2), "--yes needs --force");
}

#[tokio::test]
async fn force_deletes_no_node_of_other_use() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let retry = RetryOneTime::new(std::time::Duration::from_millis(50));
    let client = CuratorFramework::new_client(&servers, retry).unwrap();
    client.start().unwrap();
    for node in ["/settings", "/jobs", "/jobs/lock-1"] {
        client.create().for_path(node).await.unwrap();
        client.create().for_path(&format!("{node}/child")).await.unwrap();
        let output = run(&servers, &["revoke", "--force", "--yes", node]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(server.exists(node));
    }
}

#[test]
fn revoked_holder_has_a_status_of_its_own() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    for (script, wanted) in [
        ("echo; exec sleep 600", 73),
        ("trap 'exit 4' TERM; echo; while :; do sleep 0.05; done", 73),
        ("trap 'exit 0' TERM; echo; while :; do sleep 0.05; done", 0),
    ] {
        let (child, _out, _) = begin(&servers, &["--revocable"], script);
        assert_eq!(run(&servers, &["revoke", &holder(&server)]).status.code(), Some(0));
        assert_eq!(end(child).0, Some(wanted), "{script}");
    }
}

/// The request overwrites the data, which names the host and the process.
#[test]
fn data_of_a_holder_that_is_asked_to_release_is_told() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (child, _out, node) = begin(&servers, &["--data", "worker-7"], "echo $CURATOR_NODE; exec sleep 600");
    let output = run(&servers, &["revoke", &node]);
    assert!(stdout(&output).contains("\nits data was worker-7\n"), "{output:?}");
    assert!(!stdout(&run(&servers, &["revoke", &node])).contains("its data was"));
    let output = run(&servers, &["status", "/lock"]);
    assert!(stdout(&output).contains("held by a contender that is asked to release (asked "), "{output:?}");
    let lock = crate::showing::parsed(&stdout(&run(&servers, &["status", "--json", "/lock"])));
    assert_eq!(lock["contenders"][0]["asked_to_release"], true, "{lock}");
    let table = stdout(&run(&servers, &["ls", "/lock"]));
    assert!(table.contains(" asked to release ") && !table.contains("__REVOKE__"), "{table}");
    signal(&child, Signal::TERM);
    assert_eq!(end(child).0, Some(143));
}

#[test]
fn lock_inside_itself_is_refused() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    for (inner, wanted) in [
        ("lock /lock -- true", 2),
        ("write /lock -- true", 2),
        ("semaphore /lock -- true", 2),
        ("semaphore --each /lock -- true {} </dev/null", 2),
        ("lock /other -- true", 0),
    ] {
        let output = lock(&servers, &[], &format!("$CURATOR {inner}"));
        assert_eq!(output.status.code(), Some(wanted), "{inner}: {output:?}");
        assert_eq!(stderr(&output).contains("it would wait for itself"), wanted == 2, "{inner}: {output:?}");
    }
    let shared = [
        "read /r -- sh -c '$CURATOR read /r -- true'",
        "semaphore -n 2 /s -- sh -c '$CURATOR semaphore -n 2 /s -- true'",
    ];
    for outer in shared {
        let mut shell = curator(&servers, &[]);
        shell = {
            let mut sh = std::process::Command::new("sh");
            sh.args(["-c", &format!("$CURATOR {outer}")])
                .env("CURATOR_CONNECT", &servers)
                .env("CURATOR", shell.get_program());
            sh
        };
        assert_eq!(shell.output().unwrap().status.code(), Some(0), "{outer}");
    }
}

#[test]
fn command_does_not_get_the_credentials() {
    let server = TestingServer::start().unwrap();
    let command = ["lock", "/lock", "--", "sh", "-c", "echo ${CURATOR_AUTH-none} $CURATOR_AUTH_FILE"];
    let mut program = curator(&server.connect_string(), &command);
    let output = program.env("CURATOR_AUTH", "digest:ann:secret").output().unwrap();
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "none\n"), "{output:?}");
}

#[test]
fn contenders_tell_what_they_run() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (child, _out, _) = begin(&servers, &[], "echo; exec sleep 600");
    let pid = child.id();
    let table = stdout(&run(&servers, &["ls", "/lock"]));
    assert!(table.contains(&format!(" {pid} sh echo;")), "{table}");
    signal(&child, Signal::TERM);
    assert_eq!(end(child).0, Some(143));
}

#[test]
fn limit_in_a_node_counts_for_all() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let leased = |limit: &[&str]| {
        let options =
            [&["semaphore", "--limit-path", "/limit"], limit, &["/leases", "--", "sh", "-c", "echo; read line"]]
                .concat();
        curator(&servers, &options).stdin(Stdio::piped()).spawn().unwrap()
    };
    let leases = || server.children("/leases/leases").map_or(0, |leases| leases.len());
    let mut children = vec![leased(&["-n", "1"]), leased(&[])];
    until("one holds, one waits", || leases() == 2);
    let state = || stdout(&run(&servers, &["count", "--integer", "/limit"]));
    assert_eq!(state(), "1\n");
    assert_eq!(run(&servers, &["count", "--integer", "--set", "2", "/limit"]).status.code(), Some(0));
    for child in &mut children {
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        std::io::BufRead::read_line(&mut out, &mut line).unwrap();
        assert_eq!(line, "\n", "it has a lease");
    }
    for mut child in children {
        child.stdin.take().unwrap().write_all(b"done\n").unwrap();
        assert_eq!(end(child).0, Some(0));
    }
    let output = run(&servers, &["count", "--set", "2", "/long"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let output = run(&servers, &["semaphore", "--limit-path", "/long", "/leases", "--", "true"]);
    assert!(output.status.code() == Some(2) && stderr(&output).contains("not a count"), "{output:?}");
}

/// The nodes of leases and of the queue tell how many hold and wait, and their data.
#[test]
fn waiters_of_a_semaphore_do_not_count_as_holders() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let enter = |options: &[&str], data: &str| {
        let command = [&["semaphore"], options, &["--data", data, "/pool", "--", "sh", "-c", "echo; exec sleep 600"]];
        curator(&servers, &command.concat()).spawn().unwrap()
    };
    let leases = || server.children("/pool/leases").map_or(0, |nodes| nodes.len());
    let waiters = || server.children("/pool/locks").map_or(0, |nodes| nodes.len());
    let mut all = Vec::new();
    for (data, has) in [("one", [1, 0]), ("two", [2, 0]), ("three", [3, 1]), ("four", [3, 2])] {
        all.push(enter(&["-n", "2"], data));
        until("its nodes", || [leases(), waiters()] == has);
    }
    let output = run(&servers, &["status", "/pool"]);
    let text = stdout(&output);
    assert!(output.status.code() == Some(3) && text.starts_with("/pool is held: 2 holds, 2 wait\n"), "{text}");
    assert_eq!(text.matches("\nheld by ").count(), 2, "{text}");
    let lock = crate::showing::parsed(&stdout(&run(&servers, &["status", "--json", "/pool"])));
    assert_eq!((&lock["holding"], &lock["waiting"]), (&2.into(), &2.into()), "{lock}");
    let rows = stdout(&run(&servers, &["ls", "/pool"]));
    for row in ["turn .* three ", "waits .* four ", "lease .* one ", "lease .* two "] {
        let (state, data) = row.split_once(" .* ").unwrap();
        assert!(rows.lines().any(|row| row.starts_with(state) && row.contains(data)), "{row}: {rows}");
    }
    let output = run(&servers, &["semaphore", "-n", "2", "--try", "/pool", "--", "true"]);
    let text = "curator: all 2 leases of /pool are taken: curator status /pool shows the holders\n";
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(75), text));
    for child in all {
        signal(&child, Signal::TERM);
        assert_eq!(end(child).0, Some(143));
    }
}

#[test]
fn limit_that_is_zero_or_not_known_is_told() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let count = |limit: &str| run(&servers, &["count", "--integer", "--set", limit, "/limit"]).status.code();
    assert_eq!(count("1"), Some(0));
    let mut holder =
        curator(&servers, &["semaphore", "--limit-path", "/limit", "/pool", "--", "sh", "-c", "echo; exec sleep 600"]);
    let mut holder = holder.spawn().unwrap();
    std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut [0]).unwrap();
    let text = stdout(&run(&servers, &["status", "/pool"]));
    assert!(text.contains("\nits limit is not known, so each lease counts as a holder: give it with -n\n"), "{text}");
    assert_eq!(count("0"), Some(0));
    for options in [&["--try"][..], &["-w", "300ms"]] {
        let output =
            run(&servers, &[&["semaphore", "--limit-path", "/limit"], options, &["/pool", "--", "true"]].concat());
        let text = "curator: the limit in /limit is 0: curator count --integer --set N /limit changes it\n";
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(75), text), "{options:?}");
    }
    signal(&holder, Signal::TERM);
    assert_eq!(end(holder).0, Some(143));
}

#[test]
fn another_limit_is_told() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let mut first = curator(&servers, &["semaphore", "-n", "2", "/leases", "--", "sh", "-c", "read line"]);
    let mut first = first.stdin(Stdio::piped()).spawn().unwrap();
    until("a lease", || server.children("/leases/leases").is_some_and(|leases| leases.len() == 1));
    for (number, is_told) in [("2", false), ("5", true)] {
        let output = run(&servers, &["semaphore", "-n", number, "/leases", "--", "true"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(
            stderr(&output).contains("has 2 leases as the limit, and this program has 5"),
            is_told,
            "{output:?}"
        );
    }
    first.stdin.take().unwrap().write_all(b"done\n").unwrap();
    assert_eq!(end(first).0, Some(0));
}

#[test]
fn unique_numbers_are_printed_as_they_come() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let output = run(&servers, &["count", "--id=2500", "/ids"]);
    let ids: Vec<u64> = stdout(&output).lines().map(|id| id.parse().unwrap()).collect();
    assert_eq!((output.status.code(), ids.len()), (Some(0), 2500));
    assert!(ids.is_sorted_by(|one, next| one < next));
    let mut endless = curator(&servers, &["count", "--id=18446744073709551615", "/ids"]).spawn().unwrap();
    let mut line = String::new();
    let mut out = std::io::BufReader::new(endless.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    assert!(line.trim().parse::<u64>().unwrap() > ids[2499]);
    drop(out);
    assert_eq!(end(endless).0, Some(0), "its reader has gone");
}

//! `ls` and `status`, for people and for programs.

use std::io::{BufRead as _, BufReader};

use curator_framework::{Acl, CreateMode, CuratorFramework, Permission};
use curator_test::{FaultProxy, TestingServer};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::advice::create;
use crate::watching::writer;
use crate::{begin, curator, end, end_without_reader, nodes, run, signal, stderr, stdout, until};

pub(crate) fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn ls_prints_json_with_all_that_the_table_has() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let data = "the \u{1b}\"holder\" – ü";
    let (holder, _out, node) = begin(&servers, &["--data", data], "echo $CURATOR_NODE; exec sleep 600");
    let waiter = curator(&servers, &["lock", "--data", "next", "/lock", "--", "true"]).spawn().unwrap();
    until("a waiter", || nodes(&server) == 2);
    let seen = parsed(&stdout(&run(&servers, &["ls", "--json", "/lock"])));
    let lock = &seen["locks"][0];
    let facts = |of: &Value| json!([of["path"], of["kind"], of["state"], of["holding"], of["waiting"]]);
    assert_eq!(facts(lock), json!(["/lock", "mutex", "held", 1, 1]), "{seen}");
    let first = &lock["contenders"][0];
    let names: Vec<&String> = first.as_object().unwrap().keys().collect();
    let expected = ["age", "created", "data", "fencing_token", "kind", "node", "sequence", "session", "state"];
    assert_eq!(names, expected);
    assert_eq!(json!([first["state"], first["kind"], first["data"]]), json!(["holds", "lock", data]));
    assert_eq!((first["node"].as_str(), first["sequence"].as_i64()), (Some(node.as_str()), Some(0)));
    assert!(first["created"].as_str().unwrap().ends_with('Z') && first["age"].as_f64().unwrap() < 60.0);
    let sessions: Vec<Value> = server.sessions().iter().map(|id| json!(format!("{id:#x}"))).collect();
    assert!(sessions.contains(&first["session"]), "{seen}");
    assert_eq!(lock["contenders"][1]["state"], "waits");
    // One line, and the one lock of `ls` is what `status` prints.
    let status = run(&servers, &["status", "--json", "/lock"]);
    assert_eq!(stdout(&status).lines().count(), 1);
    assert_eq!(facts(&parsed(&stdout(&status))), facts(lock));
    signal(&holder, Signal::TERM);
    assert_eq!((end(holder).0, end(waiter).0), (Some(143), Some(0)));
}

#[tokio::test]
async fn ls_finds_all_locks_below_a_path() {
    let server = TestingServer::start().unwrap();
    create(&server, &["/jobs/notes/no lock", "/jobs/free"]).await;
    let servers = server.connect_string();
    let start = |arguments: &[&str]| {
        let command = [arguments, &["--", "sh", "-c", "echo; exec sleep 600"]].concat();
        let mut child = curator(&servers, &command).spawn().unwrap();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
        child
    };
    let holders = [
        start(&["lock", "--data", "one", "/jobs/nightly report"]),
        start(&["lock", "--data", "two", "/jobs/nightly report/übung"]),
        start(&["semaphore", "-n", "2", "--data", "three", "/jobs/pool"]),
        start(&["read", "--data", "four", "/jobs/config"]),
    ];
    let seen = parsed(&stdout(&run(&servers, &["ls", "--recursive", "--json", "/jobs"])));
    let locks: Vec<(&str, &str)> = seen["locks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lock| (lock["path"].as_str().unwrap(), lock["kind"].as_str().unwrap()))
        .collect();
    let expected = [
        ("/jobs/config", "read-write"),
        ("/jobs/nightly report", "mutex"),
        ("/jobs/nightly report/übung", "mutex"),
        ("/jobs/pool", "semaphore"),
    ];
    assert_eq!(locks, expected, "{seen}");
    let table = stdout(&run(&servers, &["ls", "-r", "/"]));
    let data: Vec<&str> = table.lines().filter_map(|line| line.split_whitespace().nth(4)).collect();
    assert_eq!(data, ["DATA", "four", "one", "two", "three"], "{table}");
    // The number of leases applies to one semaphore.
    assert_eq!(run(&servers, &["ls", "-r", "-n", "2", "/"]).status.code(), Some(2));
    assert_eq!(run(&servers, &["ls", "-r", "/nowhere"]).status.code(), Some(1));
    let output = run(&servers, &["ls", "-r", "--json", "/jobs/notes"]);
    assert_eq!((output.status.code(), parsed(&stdout(&output))["locks"].clone()), (Some(0), json!([])));
    for child in holders {
        signal(&child, Signal::TERM);
        assert_eq!(end(child).0, Some(143));
    }
}

#[tokio::test]
async fn ls_watches_and_prints_again_on_each_change() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let begin_watch = |arguments: &[&str]| {
        let mut child = curator(&servers, &[&["ls", "--watch"], arguments, &["/lock"]].concat()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        (child, lines)
    };
    // The path does not exist yet.
    let (json_watch, mut lines) = begin_watch(&["--json"]);
    let states = |line: Option<String>| {
        let seen = parsed(&line.unwrap());
        let contenders = seen["locks"][0]["contenders"].as_array().cloned().unwrap_or_default();
        contenders.iter().map(|one| one["state"].as_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(states(lines.next()), "");
    let (text_watch, mut text) = begin_watch(&[]);
    assert!(text.next().unwrap().starts_with("STATE "));
    let (holder, _out, _) = begin(&servers, &[], "echo; exec sleep 600");
    assert_eq!(states(lines.next()), "holds");
    let again: Vec<String> = text.by_ref().take(3).collect();
    assert_eq!(again[0], "");
    assert!(again[1].starts_with("STATE ") && again[2].starts_with("holds "), "{again:?}");
    let waiter = curator(&servers, &["lock", "/lock", "--", "sleep", "600"]).spawn().unwrap();
    assert_eq!(states(lines.next()), "holds waits");
    signal(&holder, Signal::TERM);
    assert_eq!(end(holder).0, Some(143));
    assert_eq!(states(lines.next()), "holds");
    signal(&waiter, Signal::TERM);
    assert_eq!(end(waiter).0, Some(143));
    assert_eq!(states(lines.next()), "");
    signal(&json_watch, Signal::INT);
    assert_eq!(end(json_watch), (Some(130), "curator: ended by INT\n".to_owned()));
    // The reader has gone.
    drop(text);
    let client = writer(&server);
    let change = async || {
        let create = client.create().creating_parents_if_needed().with_mode(CreateMode::EphemeralSequential);
        create.for_path("/lock/_c_0d7a4a45-3b5d-4b5c-a9a0-000000000000-lock-").await.unwrap();
    };
    assert_eq!(end_without_reader(text_watch, change).await, (Some(0), String::new()));
    client.close().await;
}

/// Creates a node that clients without credentials can neither list nor read.
pub(crate) async fn create_unreadable(client: &CuratorFramework, path: &str) {
    let unreadable = vec![Acl::new(Permission::ADMIN, "world", "anyone")];
    client.create().creating_parents_if_needed().with_acl(unreadable).for_path(path).await.unwrap();
}

const LEFT_OUT: &str = "curator: not authorized for /sec: it is left out\n";

#[tokio::test]
async fn ls_does_not_take_an_unreadable_subtree_for_an_empty_one() {
    let server = TestingServer::start().unwrap();
    let (servers, client) = (server.connect_string(), writer(&server));
    let exit_code = ["ls", "-r", "--exit-code", "--json", "/"];
    let facts = |output: &std::process::Output| {
        let seen = parsed(&stdout(output));
        let locks = seen["locks"].as_array().unwrap().len();
        json!([output.status.code(), seen["complete"], seen["left_out"], locks])
    };
    assert_eq!(facts(&run(&servers, &exit_code)), json!([0, true, [], 0]));
    create_unreadable(&client, "/sec").await;
    let output = run(&servers, &["ls", "-r", "--json", "/"]);
    assert_eq!((facts(&output), stderr(&output).as_str()), (json!([0, false, ["/sec"], 0]), LEFT_OUT));
    let output = run(&servers, &exit_code);
    assert_eq!(facts(&output), json!([77, false, ["/sec"], 0]));
    let why = "curator: no listed lock is held, but not all could be read; give credentials with --auth-file or CURATOR_AUTH\n";
    assert_eq!(stderr(&output), LEFT_OUT.to_owned() + why);
    // A held lock answers the question.
    let (holder, _out, _) = begin(&servers, &[], "echo; exec sleep 600");
    let output = run(&servers, &exit_code);
    assert_eq!((facts(&output), stderr(&output).as_str()), (json!([3, false, ["/sec"], 1]), LEFT_OUT));
    signal(&holder, Signal::TERM);
    assert_eq!(end(holder).0, Some(143));
    client.close().await;
}

/// Creates a directory. The list of its children takes more than 4 KiB.
pub(crate) async fn create_large(client: &CuratorFramework, path: &str) {
    for child in 0..30 {
        let path = format!("{path}/{child:0>200}");
        client.create().creating_parents_if_needed().for_path(&path).await.unwrap();
    }
}

#[tokio::test]
async fn ls_leaves_out_a_directory_with_too_long_a_list_of_children() {
    let server = TestingServer::start().unwrap();
    let (servers, client) = (server.connect_string(), writer(&server));
    create_large(&client, "/jobs").await;
    let (holder, _out, _) = begin(&servers, &[], "echo; exec sleep 600");
    let output = run(&servers, &["--max-reply", "4K", "ls", "-r", "--json", "/"]);
    let seen = parsed(&stdout(&output));
    let facts = json!([seen["complete"], seen["left_out"], seen["locks"][0]["path"]]);
    assert_eq!(facts, json!([false, ["/jobs"], "/lock"]), "{output:?}");
    assert_eq!(
        stderr(&output),
        "curator: the reply about /jobs takes 6140 bytes, more than the limit of 4096: it is left out\n"
    );
    let output = run(&servers, &["ls", "-r", "--json", "/"]);
    assert_eq!(parsed(&stdout(&output))["complete"], json!(true), "{output:?}");
    signal(&holder, Signal::TERM);
    assert_eq!(end(holder).0, Some(143));
    client.close().await;
}

#[cfg(curator_mutants)]
#[tokio::test]
async fn subtree_that_is_taken_for_an_empty_one_is_found() {
    let server = TestingServer::start().unwrap();
    let client = writer(&server);
    create_unreadable(&client, "/sec").await;
    let mut ls = curator(&server.connect_string(), &["ls", "-r", "--exit-code", "/"]);
    let output = ls.env("CURATOR_MUTANT", "free-if-not-read").output().unwrap();
    assert_ne!(output.status.code(), Some(77), "{output:?}");
    client.close().await;
}

#[tokio::test]
async fn ls_marks_the_last_known_locks_during_an_outage() {
    let server = TestingServer::start().unwrap();
    let client = writer(&server);
    create_unreadable(&client, "/sec").await;
    let (holder, _out, _) = begin(&server.connect_string(), &[], "echo; exec sleep 600");
    let proxy = FaultProxy::start(server.address()).unwrap();
    let ls = ["--session-timeout", "40s", "--connect-timeout", "1s", "ls", "-r", "--watch", "--json", "/"];
    let mut child = curator(&proxy.connect_string(), &ls).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut facts = lines.map(|line| {
        let seen = parsed(&line.unwrap());
        json!([seen["complete"], seen["left_out"], seen["locks"][0]["path"], seen["reason"].is_string()])
    });
    assert_eq!(facts.next(), Some(json!([false, ["/sec"], "/lock", false])));
    proxy.refuse();
    proxy.reset();
    assert_eq!(facts.next(), Some(json!([false, ["/"], "/lock", true])));
    proxy.accept();
    assert_eq!(facts.next(), Some(json!([false, ["/sec"], "/lock", false])));
    signal(&child, Signal::TERM);
    let (code, told) = end(child);
    assert_eq!((code, told.matches(LEFT_OUT).count()), (Some(143), 1), "{told}");
    signal(&holder, Signal::TERM);
    assert_eq!(end(holder).0, Some(143));
    client.close().await;
}

/// The statuses of the table in `--help`.
#[tokio::test]
async fn each_state_has_its_exit_status() {
    let server = TestingServer::start().unwrap();
    create(&server, &["/free"]).await;
    let servers = server.connect_string();
    let (holder, _out, node) = begin(&servers, &["--data", "me"], "echo $CURATOR_NODE; exec sleep 600");
    for (path, status, ls, text) in [
        ("/free", 0, 0, "/free is free\n".to_owned()),
        ("/nowhere", 1, 1, String::new()),
        (
            "/lock",
            3,
            3,
            format!("/lock is held: 1 holds, 0 wait\nheld by me (asked # ago, at #, session #, node {node})\n"),
        ),
    ] {
        let output = run(&servers, &["status", path]);
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        assert_eq!(without_times(&stdout(&output)), text);
        let output = run(&servers, &["status", "--json", path]);
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        let state = ["free", "missing", "", "held"][usize::try_from(status).unwrap()];
        assert_eq!(parsed(&stdout(&output))["state"], state);
        assert_eq!(run(&servers, &["ls", "--exit-code", path]).status.code(), Some(ls), "{path}");
        assert_eq!(run(&servers, &["ls", path]).status.code(), Some(if ls == 3 { 0 } else { ls }), "{path}");
    }
    assert_eq!(run(&servers, &["status", "relative"]).status.code(), Some(2));
    assert_eq!(run("127.0.0.1:1", &["--connect-timeout", "300ms", "status", "/lock"]).status.code(), Some(69));
    let help = stdout(&run(&servers, &["status", "--help"]));
    for row in ["0  free", "1  no such lock", "3  held"] {
        assert!(help.contains(row), "{help}");
    }
    assert_eq!(stderr(&run(&servers, &["status", "/lock"])), "");
    signal(&holder, Signal::TERM);
    assert_eq!(end(holder).0, Some(143));
}

/// Replaces what differs between runs: the age, the time and the session.
fn without_times(text: &str) -> String {
    let mut result = text.to_owned();
    for (before, behind) in [("(asked ", " ago"), (", at ", ", session"), ("session ", ", node")] {
        if let Some((head, tail)) = result.split_once(before) {
            let (_, tail) = tail.split_once(behind).unwrap();
            result = format!("{head}{before}#{behind}{tail}");
        }
    }
    result
}

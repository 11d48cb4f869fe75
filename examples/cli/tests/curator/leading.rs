//! `leader`, and elections in `ls`, `status` and `revoke`.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Child;

use curator_framework::{Acl, Permission};
use curator_test::TestingServer;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::advice::create;
use crate::showing::parsed;
use crate::watching::writer;
use crate::{begin, curator, end, end_without_reader, run, signal, stderr, stdout, until};

/// Starts a candidate of `/election` and waits until it is number `count` in the queue.
fn join(server: &TestingServer, options: &[&str], count: usize) -> Child {
    let command = [&["elect"], options, &["/election", "--", "sleep", "615"]].concat();
    let child = curator(&server.connect_string(), &command).spawn().unwrap();
    until("a candidate", || server.children("/election").is_some_and(|nodes| nodes.len() == count));
    child
}

/// Waits until the leader has proclaimed some data.
fn until_proclaimed(servers: &str) {
    until("data", || {
        parsed(&stdout(&run(servers, &["leader", "--json", "/election"])))["leader"]["data"] != json!(null)
    });
}

fn stop(child: Child) {
    signal(&child, Signal::TERM);
    assert_eq!(end(child).0, Some(143));
}

#[test]
fn leader_is_printed_with_its_term_and_data() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let first = join(&server, &["--id", "worker \u{1b}one", "--proclaim", "10.0.0.1:80"], 1);
    let second = join(&server, &[], 2);
    until_proclaimed(&servers);
    let output = run(&servers, &["leader", "/election"]);
    let text = stdout(&output);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((output.status.code(), lines.len()), (Some(0), 2), "{output:?}");
    assert!(lines[0].starts_with("/election is led by worker \\u{1b}one (term "), "{text}");
    assert_eq!(lines[1], "it proclaims 10.0.0.1:80");

    let seen = parsed(&stdout(&run(&servers, &["leader", "--json", "--all", "/election"])));
    let (leader, candidates) = (&seen["leader"], &seen["candidates"]);
    assert_eq!(json!([seen["path"], seen["state"]]), json!(["/election", "led"]));
    assert_eq!(json!([leader["id"], leader["data"]]), json!(["worker \u{1b}one", "10.0.0.1:80"]));
    assert!(lines[0].contains(&format!("(term {}, joined ", leader["term"])), "{text} {seen}");
    assert!(lines[0].ends_with(&format!("node {})", leader["node"].as_str().unwrap())), "{text} {seen}");
    let first_row = &candidates[0];
    let same = [("node", "node"), ("session", "session"), ("term", "fencing_token"), ("joined", "created")];
    assert!(same.iter().all(|(one, other)| leader[*one] == first_row[*other]), "{seen}");
    let states: Vec<&Value> = candidates.as_array().unwrap().iter().map(|one| &one["state"]).collect();
    assert_eq!(states, ["leads", "waits"]);
    // Without an id, the host and the process id are the id.
    assert!(candidates[1]["data"].as_str().unwrap().ends_with(&format!("-{}", second.id())), "{seen}");

    let table = stdout(&run(&servers, &["leader", "--all", "/election"]));
    let rows: Vec<&str> = table.lines().skip(2).collect();
    assert!(rows[0].starts_with("STATE ") && rows[1].starts_with("leads  latch "), "{table}");
    assert!(rows[2].starts_with("waits  latch "), "{table}");
    stop(second);
    stop(first);
}

/// The statuses of the table in `--help`.
#[tokio::test]
async fn election_without_a_leader_has_a_status() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    create(&server, &["/vacant", "/other/child"]).await;
    let reader = ["read", "/config", "--", "sh", "-c", "echo; exec sleep 600"];
    let mut reader = curator(&servers, &reader).spawn().unwrap();
    reader.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let missing = "no election /nowhere: no client has used it yet, or the servers have deleted its empty node";
    let below = "list the elections below it with: curator ls --recursive /other";
    for (path, state, text, error) in [
        ("/vacant", "vacant", "/vacant has no leader\n", String::new()),
        ("/nowhere", "missing", "", missing.to_owned()),
        (
            "/other",
            "missing",
            "",
            format!("/other is not an election, because its children are not candidates: {below}"),
        ),
        (
            "/config",
            "missing",
            "",
            "/config is not an election, but a lock: curator status /config shows it".to_owned(),
        ),
    ] {
        let output = run(&servers, &["leader", path]);
        let error = if error.is_empty() { error } else { format!("curator: {error}\n") };
        assert_eq!((output.status.code(), stdout(&output).as_str(), stderr(&output)), (Some(1), text, error));
        let output = run(&servers, &["leader", "--json", path]);
        let seen = parsed(&stdout(&output));
        assert_eq!((output.status.code(), &seen["state"], &seen["leader"]), (Some(1), &json!(state), &json!(null)));
    }
    assert_eq!(run(&servers, &["leader", "relative"]).status.code(), Some(2));
    assert_eq!(run(&servers, &["leader", "--all", "--watch", "/vacant"]).status.code(), Some(2));
    assert_eq!(run("127.0.0.1:1", &["--connect-timeout", "300ms", "leader", "/x"]).status.code(), Some(69));
    stop(reader);
}

/// A selector is a mutex: its holder leads.
#[test]
fn holder_of_a_mutex_is_the_leader_of_a_selector() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (holder, _out, token) = begin(&servers, &["--data", "me"], "echo $CURATOR_FENCING_TOKEN; exec sleep 600");
    let output = run(&servers, &["leader", "/lock"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(stdout(&output).starts_with(&format!("/lock is led by me (term {token}, joined ")), "{output:?}");
    stop(holder);
}

#[tokio::test]
async fn watch_prints_each_leader() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let start = |arguments: &[&str]| {
        let mut child =
            curator(&servers, &[&["leader", "--watch"], arguments, &["/election"]].concat()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        (child, lines)
    };
    // The path does not exist yet.
    let (json_watch, lines) = start(&["--json"]);
    let mut seen = lines.map(|line| {
        let shot = parsed(&line);
        json!([shot["state"], shot["leader"]["id"], shot["leader"]["data"]])
    });
    assert_eq!(seen.next().unwrap(), json!(["vacant", null, null]));
    let (text_watch, mut text) = start(&[]);
    assert!(text.next().unwrap().ends_with("Z /election has no leader"));
    let first = join(&server, &["--id", "one", "--proclaim", "data"], 1);
    // One look may find the leader with its data.
    let led = json!(["led", "one", null]);
    assert_eq!(seen.find(|shot| *shot != led).unwrap(), json!(["led", "one", "data"]));
    let second = join(&server, &["--id", "two"], 2);
    stop(first);
    // A candidate behind the leader is not a change.
    assert_eq!(seen.next().unwrap(), json!(["led", "two", null]));
    stop(second);
    assert_eq!(seen.next().unwrap(), json!(["vacant", null, null]));
    let told: Vec<String> = text.by_ref().skip_while(|line| !line.starts_with("it ")).take(3).collect();
    assert_eq!(told[0], "it proclaims data");
    assert!(told[1].contains("Z /election is led by two (term ") && told[2].ends_with(" has no leader"), "{told:?}");
    signal(&json_watch, Signal::INT);
    assert_eq!(end(json_watch), (Some(130), "curator: ended by INT\n".to_owned()));
    // The reader has gone.
    drop(text);
    let change = async || stop(join(&server, &[], 1));
    assert_eq!(end_without_reader(text_watch, change).await, (Some(0), String::new()));
}

#[tokio::test]
async fn watch_prints_that_the_leader_is_stale() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let client = writer(&server);
    let leader = join(&server, &["--id", "one"], 1);
    client.session().await.unwrap();
    let others = server.sessions();
    let mut watch = curator(&servers, &["leader", "--watch", "--json", "/election"]).spawn().unwrap();
    let lines = BufReader::new(watch.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut told = BufReader::new(watch.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut seen = lines.map(|line| {
        let shot = parsed(&line);
        json!([shot["path"], shot["state"], shot["leader"]["id"], shot["reason"]])
    });
    assert_eq!(seen.next().unwrap(), json!(["/election", "led", "one", null]));
    let unreadable = vec![Acl::new(Permission::ADMIN, "world", "anyone")];
    client.set_acl().with_acl(unreadable).for_path("/election").await.unwrap();
    // The next session reads the election again.
    let own = server.sessions().into_iter().find(|session| !others.contains(session)).unwrap();
    assert!(server.kill_session(own));
    let line = told.find(|line| !line.contains("connection")).unwrap();
    let reason = line.strip_prefix("curator: the leader may have changed, the election cannot be read: ").unwrap();
    assert_eq!(seen.next().unwrap(), json!(["/election", "stale", "one", reason]));
    client.set_acl().with_acl(Acl::open_unsafe()).for_path("/election").await.unwrap();
    assert_eq!(seen.next().unwrap(), json!(["/election", "led", "one", null]));
    stop(watch);
    stop(leader);
    client.close().await;
}

#[test]
fn election_is_a_lock_for_ls_and_status() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let first = join(&server, &["--id", "one"], 1);
    let second = join(&server, &["--id", "two"], 2);
    let table = stdout(&run(&servers, &["ls", "--recursive", "/"]));
    let columns: Vec<Vec<&str>> = table.lines().skip(1).map(|row| row.split_whitespace().collect()).collect();
    assert_eq!((&columns[0][..2], columns[0][4]), (&["leads", "latch"][..], "one"), "{table}");
    assert_eq!((&columns[1][..2], columns[1][4]), (&["waits", "latch"][..], "two"), "{table}");
    let output = run(&servers, &["status", "/election"]);
    assert_eq!(output.status.code(), Some(3));
    let text = stdout(&output);
    assert!(text.starts_with("/election is led: 1 leads, 1 wait\nled by one (asked "), "{text}");
    let status = parsed(&stdout(&run(&servers, &["status", "--json", "/election"])));
    let facts = json!([status["kind"], status["state"], status["holding"], status["waiting"]]);
    assert_eq!(facts, json!(["leader-latch", "held", 1, 1]), "{status}");
    assert_eq!(run(&servers, &["ls", "--exit-code", "/election"]).status.code(), Some(3));
    // A request to release would replace the id.
    let node = columns[0][5];
    let output = run(&servers, &["revoke", node]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(stderr(&output).contains("is a candidate's node"), "{output:?}");
    stop(second);
    stop(first);
    let output = run(&servers, &["status", "/election"]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "/election is free\n"));
}

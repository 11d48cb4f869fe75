//! `members`: the members of a group.

use std::io::{BufRead as _, BufReader};
use std::process::Child;
use std::time::Duration;

use curator_framework::{Acl, CreateMode, CuratorFramework, Permission, RetryOneTime};
use curator_test::{FaultProxy, TestingServer};
use rustix::process::Signal;
use serde_json::json;

use crate::advice::create;
use crate::joining::joined;
use crate::showing::parsed;
use crate::{begin, curator, end, end_without_reader, run, signal, stderr, stdout};

/// Registers members of `/group` as Java's `GroupMember` does, in one session.
async fn register(server: &TestingServer, members: &[(&str, &[u8])]) -> CuratorFramework {
    let client = CuratorFramework::new_client(server.connect_string(), RetryOneTime::new(Duration::ZERO)).unwrap();
    client.start().unwrap();
    for (id, data) in members {
        let create = client.create().creating_parents_if_needed().with_mode(CreateMode::Ephemeral).with_data(*data);
        create.for_path(&format!("/group/{id}")).await.unwrap();
    }
    client
}

#[tokio::test]
async fn members_are_printed_with_their_data_and_sessions() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let binary = [0xff; 20];
    let client = register(&server, &[("worker-2", b"10.0.0.2"), ("worker 1", b"one\x1b"), ("z", &binary)]).await;
    let session = client.session().await.unwrap().id().unwrap().get();

    let output = run(&servers, &["members", "/group"]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
    let text = stdout(&output);
    let cells =
        |line: &str| line.split("  ").map(|cell| cell.trim().to_owned()).filter(|cell| !cell.is_empty()).collect();
    let rows: Vec<Vec<String>> = text.lines().map(cells).collect();
    assert_eq!(rows[0], ["ID", "SINCE", "SESSION", "CZXID", "DATA"], "{text}");

    let seen = parsed(&stdout(&run(&servers, &["members", "--json", "/group"])));
    assert_eq!(json!([seen["path"], seen["state"]]), json!(["/group", "populated"]));
    let members = seen["members"].as_array().unwrap();
    for (index, (id, data)) in
        [("worker 1", "one\\u{1b}"), ("worker-2", "10.0.0.2"), ("z", "20 bytes")].iter().enumerate()
    {
        let member = &members[index];
        assert_eq!(json!([member["id"], member["session"]]), json!([id, format!("{session:#x}")]), "{seen}");
        let czxid = member["czxid"].to_string();
        let since = member["since"].as_str().unwrap();
        assert_eq!(rows[index + 1], [*id, since, &format!("{session:#x}"), &czxid, data], "{text}");
    }
    assert_eq!(json!([members[1]["data"], members[1]["data_hex"]]), json!(["10.0.0.2", null]));
    assert_eq!(json!([members[2]["data"], members[2]["data_hex"]]), json!([null, "ff".repeat(20)]));
    client.close().await;
}

/// The statuses of the table in `--help`.
#[tokio::test]
async fn path_without_a_group_has_a_status() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    create(&server, &["/empty", "/other/child", "/part/items", "/part/members"]).await;
    let (holder, _out, _) = begin(&servers, &[], "echo; exec sleep 600");
    let missing = "no group /nowhere: no client has used it yet, or the servers have deleted its empty node";
    let other = "/other is not a group, because its children are not members: no session owns them";
    let part = "/part is not a group, because its children are not members: no session owns them; \
                try: curator members /part/members";
    let lock = "/lock is not a group, but a lock or an election: curator status /lock shows it";
    for (path, state, text, error) in [
        ("/empty", "empty", "/empty has no members\n", ""),
        ("/nowhere", "missing", "", missing),
        ("/other", "missing", "", other),
        ("/part", "missing", "", part),
        ("/lock", "missing", "", lock),
    ] {
        let output = run(&servers, &["members", path]);
        let error = if error.is_empty() { String::new() } else { format!("curator: {error}\n") };
        assert_eq!((output.status.code(), stdout(&output).as_str(), stderr(&output)), (Some(1), text, error));
        let output = run(&servers, &["members", "--json", path]);
        let seen = parsed(&stdout(&output));
        assert_eq!((output.status.code(), &seen["state"], &seen["members"]), (Some(1), &json!(state), &json!([])));
    }
    assert_eq!(run(&servers, &["members", "relative"]).status.code(), Some(2));
    assert_eq!(run("127.0.0.1:1", &["--connect-timeout", "300ms", "members", "/x"]).status.code(), Some(69));
    signal(&holder, Signal::TERM);
    assert_eq!(end(holder).0, Some(143));
}

/// A running `curator members --watch`, with its lines.
fn watch(servers: &str, options: &[&str]) -> (Child, impl Iterator<Item = String> + use<>) {
    let mut child = curator(servers, &[&["members", "--watch"], options, &["/group"]].concat()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    (child, lines)
}

#[tokio::test]
async fn watch_prints_each_change() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    // The path does not exist yet.
    let (mut json_watch, lines) = watch(&servers, &["--json"]);
    let mut told = BufReader::new(json_watch.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(told.next().unwrap(), "curator: /group has no members");
    let mut seen = lines.map(|line| {
        let shot = parsed(&line);
        assert!(shot["time"].as_str().unwrap().ends_with('Z'), "{line}");
        json!([shot["change"], shot["member"]["id"], shot["member"]["data"]])
    });
    let (one, _told) = joined(&servers, &["--id", "one", "--data", "first"]);
    assert_eq!(seen.next().unwrap(), json!(["joined", "one", "first"]));
    // A watch starts with the members that are there.
    let (text_watch, mut text) = watch(&servers, &[]);
    let line = text.next().unwrap();
    assert!(line.contains("Z one joined (data first, session 0x"), "{line}");
    // Both watches must have seen a state before the next one: they print differences.
    let mut prints = |change: &str, id: &str, data: &str, text_data: &str| {
        assert_eq!(seen.next().unwrap(), json!([change, id, data]));
        let line = text.next().unwrap();
        assert!(line.contains(&format!("Z {id} {change} (data {text_data}, session 0x")), "{line}");
    };
    let client = register(&server, &[("two", b"")]).await;
    prints("joined", "two", "", "-");
    client.set_data().for_path("/group/one", "second").await.unwrap();
    prints("changed", "one", "second", "second");
    signal(&one, Signal::TERM);
    assert_eq!(end(one).0, Some(143));
    prints("left", "one", "second", "second");
    signal(&json_watch, Signal::INT);
    assert_eq!(told.next().unwrap(), "curator: ended by INT");
    assert_eq!(end(json_watch).0, Some(130));
    // The reader has closed the pipe.
    drop(text);
    let change = async || {
        client.set_data().for_path("/group/two", "more").await.unwrap();
    };
    assert_eq!(end_without_reader(text_watch, change).await, (Some(0), String::new()));
    client.close().await;
}

#[test]
fn watch_tells_of_outages() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let (mut child, mut lines) = watch(&proxy.connect_string(), &[]);
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(told.next().unwrap(), "curator: /group has no members");
    proxy.refuse();
    proxy.reset();
    let away = "curator: no connection: changes of the group are printed when it is back";
    assert_eq!(told.next().unwrap(), away);
    let (one, _told) = joined(&server.connect_string(), &["--id", "one"]);
    proxy.accept();
    assert_eq!(told.next().unwrap(), "curator: the connection is back");
    assert!(lines.next().unwrap().contains("Z one joined ("));
    for member in [one, child] {
        signal(&member, Signal::TERM);
        assert_eq!(end(member).0, Some(143));
    }
}

#[tokio::test]
async fn group_that_cannot_be_read_is_told() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let client = register(&server, &[("one", b"")]).await;
    let (mut child, mut lines) = watch(&servers, &[]);
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.next().unwrap().contains("Z one joined ("));
    let (json_watch, json_lines) = watch(&servers, &["--json"]);
    let mut seen = json_lines.map(|line| {
        let shot = parsed(&line);
        assert!(shot["time"].as_str().unwrap().ends_with('Z'), "{line}");
        json!([shot["change"], shot["member"]["id"], shot["state"], shot["reason"]])
    });
    assert_eq!(seen.next().unwrap(), json!(["joined", "one", null, null]));
    let own = client.session().await.unwrap().id().unwrap().get();
    let watchers: Vec<i64> = server.sessions().into_iter().filter(|session| *session != own).collect();
    let unreadable = vec![Acl::new(Permission::ADMIN | Permission::DELETE, "world", "anyone")];
    client.set_acl().with_acl(unreadable).for_path("/group").await.unwrap();
    for options in [&[][..], &["--watch"], &["--json"]] {
        let output = run(&servers, &[&["members"], options, &["/group"]].concat());
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(77), ""), "{output:?}");
    }
    // The servers send no event of a node that may not be read. The next session lists the group again.
    assert!(watchers.into_iter().all(|watcher| server.kill_session(watcher)));
    let line = told.find(|line| !line.contains("connection")).unwrap();
    let reason = line.strip_prefix("curator: the members may have changed, the group cannot be read: ").unwrap();
    assert_eq!(seen.next().unwrap(), json!([null, null, "stale", reason]));
    // The first list that can be read has no member.
    client.delete().for_path("/group/one").await.unwrap();
    client.set_acl().with_acl(Acl::open_unsafe()).for_path("/group").await.unwrap();
    assert!(lines.next().unwrap().contains("Z one left ("));
    assert_eq!(seen.next().unwrap(), json!(["left", "one", null, null]));
    assert_eq!(seen.next().unwrap(), json!([null, null, "fresh", null]));
    for child in [child, json_watch] {
        signal(&child, Signal::TERM);
        assert_eq!(end(child).0, Some(143));
    }
    client.close().await;
}

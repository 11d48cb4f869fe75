//! `members`: the members of a group.

use std::time::Duration;

use curator_framework::{CreateMode, CuratorFramework, RetryOneTime};
use curator_test::TestingServer;
use rustix::process::Signal;
use serde_json::json;

use crate::advice::create;
use crate::showing::parsed;
use crate::{begin, end, run, signal, stderr, stdout};

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
    let session = client.session().await.unwrap().id().unwrap();

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
    create(&server, &["/empty", "/other/child"]).await;
    let (holder, _out, _) = begin(&servers, &[], "echo; exec sleep 600");
    let missing = "no group /nowhere: no client has used it yet, or the servers have deleted its empty node";
    let other = "/other is not a group, because its children are not members: no session owns them";
    let lock = "/lock is not a group, but a lock or an election: curator status /lock shows it";
    for (path, state, text, error) in [
        ("/empty", "empty", "/empty has no members\n", ""),
        ("/nowhere", "missing", "", missing),
        ("/other", "missing", "", other),
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

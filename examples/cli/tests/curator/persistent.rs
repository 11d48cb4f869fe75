//! Persistent nodes with contenders' names.

use std::io::{BufRead as _, BufReader};

use curator_framework::CuratorFramework;
use curator_test::TestingServer;
use rustix::process::Signal;
use serde_json::json;

use crate::advice::create;
use crate::showing::parsed;
use crate::watching::writer;
use crate::{begin, curator, end, nodes, run, signal, stderr, stdout, until};

async fn delete(client: &CuratorFramework, path: &str) {
    client.delete().for_path(path).await.unwrap();
}

#[test]
fn ls_shows_the_locks_below_a_node_with_the_name_of_a_contender() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let listed = |output| {
        let seen = parsed(&stdout(&output));
        let lock = |lock: &serde_json::Value| json!([lock["path"], lock["kind"], lock["holding"], lock["waiting"]]);
        seen["locks"].as_array().unwrap().iter().map(lock).collect::<Vec<_>>()
    };
    let script = "$CURATOR ls -r --json /jobs; $CURATOR status /jobs; echo $?";
    let output = run(&servers, &["lock", "/jobs/lock-1", "--", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    let (json, status) = text.split_once('\n').unwrap();
    assert_eq!(parsed(json)["locks"].as_array().unwrap().len(), 1, "{json}");
    assert_eq!(status, "1\n", "{text}");
    for path in ["/jobs/lock-1", "/lock-1"] {
        let output = run(&servers, &["lock", path, "--", "sh", "-c", "$CURATOR ls -r --json /"]);
        assert_eq!(listed(output), [json!([path, "mutex", 1, 0])]);
    }
    let output = run(&servers, &["ls", "-r", "--exit-code", "/jobs"]);
    assert_eq!((output.status.code(), stdout(&output).lines().count()), (Some(0), 1), "{output:?}");
    // The lock itself is free.
    let output = run(&servers, &["status", "/jobs/lock-1"]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "/jobs/lock-1 is free\n"));
}

#[tokio::test]
async fn names_of_persistent_nodes_do_not_show_the_kind_of_a_lock() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    create(&server, &["/a/latch-3", "/b/a__WRIT__0000000001", "/c/lock-2024", "/d/leases/lease-1", "/e/lock-7"]).await;
    for (path, action) in [("/a", "lock"), ("/b", "elect"), ("/c", "read"), ("/d", "write"), ("/e", "elect")] {
        let output = run(&servers, &[action, path, "--", "true"]);
        assert_eq!(output.status.code(), Some(0), "{path}: {}", stderr(&output));
    }
    assert_eq!(run(&servers, &["count", "--add", "1", "/a"]).status.code(), Some(0));
    // The leader is found beside a node with the name of a writer's.
    let script = "$CURATOR leader /b && $CURATOR leader --all /b";
    let output = run(&servers, &["elect", "--id", "ann", "/b", "--", "sh", "-c", script]);
    let text = stdout(&output);
    assert_eq!((output.status.code(), text.matches("/b is led by ann").count()), (Some(0), 2), "{text}{output:?}");
    // Nodes of another kind that are ephemeral are refused as before.
    let script = "$CURATOR elect /c -- true; $CURATOR read /c -- true; $CURATOR count /c";
    let output = run(&servers, &["lock", "/c", "--", "sh", "-c", script]);
    assert_eq!(stderr(&output).matches("/c is a mutex with contenders: use curator lock").count(), 3, "{output:?}");
}

#[tokio::test]
async fn waiter_names_the_persistent_node_that_blocks_it() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    create(&server, &["/lock/lock-0"]).await;
    let hint = &advice("/lock/lock-0");
    let output = run(&servers, &["lock", "--timeout", "0", "/lock", "--", "true"]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(75), format!("curator: {hint}\n")));
    // The node of another kind of lock does not block an election.
    assert_eq!(run(&servers, &["elect", "/lock", "--", "true"]).status.code(), Some(0));
    create(&server, &["/election/latch-0", "/pool/locks/lock-0", "/pool/leases"]).await;
    for (command, blocker) in [
        (&["elect", "--timeout", "300ms", "/election", "--", "true"][..], "/election/latch-0"),
        (&["semaphore", "-n", "1", "--timeout", "300ms", "/pool", "--", "true"], "/pool/locks/lock-0"),
    ] {
        let output = run(&servers, command);
        let text = format!("curator: {}\n", advice(blocker));
        assert_eq!((output.status.code(), stderr(&output)), (Some(75), text));
    }
    let mut waiter = curator(&servers, &["lock", "-v", "/lock", "--", "true"]).spawn().unwrap();
    let mut lines = BufReader::new(waiter.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next(), Some(format!("curator: waits for /lock: 0 ahead; {hint}")));
    let output = run(&servers, &["status", "/lock"]);
    assert_eq!(stdout(&output), format!("/lock is blocked: 1 wait\n{hint}\n"));
    assert_eq!(output.status.code(), Some(4));
    let output = run(&servers, &["ls", "--json", "/lock"]);
    let lock = &parsed(&stdout(&output))["locks"][0];
    assert_eq!((&lock["state"], &lock["blocked_by"]), (&json!("blocked"), &json!("/lock/lock-0")), "{output:?}");
    let contenders = &lock["contenders"];
    assert_eq!(contenders[0]["blocked_by"], "/lock/lock-0", "{output:?}");
    assert_eq!((contenders.as_array().unwrap().len(), stderr(&output)), (1, format!("curator: {hint}\n")));
    delete(&writer(&server), "/lock/lock-0").await;
    assert!(lines.any(|line| line.starts_with("curator: has /lock after ")));
    assert_eq!(end(waiter).0, Some(0));
}

fn advice(node: &str) -> String {
    format!("{node} is a persistent node, not a contender: delete it with curator revoke --force {node}")
}

/// A node that was created by hand blocks the lock without waiters too, until it is deleted.
#[tokio::test]
async fn lock_with_a_persistent_node_is_blocked() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let node = "/jobs/hand/_c_0f2a0000-0000-0000-0000-000000000000-lock-0000000000";
    create(&server, &[node, "/pool/locks/lock-0000000003", "/pool/leases", "/elected/x-latch-0000000001"]).await;
    let output = run(&servers, &["status", "/jobs/hand"]);
    let text = format!("/jobs/hand is blocked\n{}\n", advice(node));
    assert_eq!((output.status.code(), stdout(&output)), (Some(4), text), "{output:?}");
    for path in ["/jobs/hand", "/pool", "/elected"] {
        let output = run(&servers, &["status", "--json", path]);
        let lock = parsed(&stdout(&output));
        assert_eq!((output.status.code(), &lock["state"]), (Some(4), &json!("blocked")), "{path}: {output:?}");
        assert_eq!(run(&servers, &["ls", "--exit-code", path]).status.code(), Some(4), "{path}");
    }
    let output = run(&servers, &["ls", "-r", "--exit-code", "/"]);
    let rows: Vec<String> = stdout(&output).lines().map(ToOwned::to_owned).collect();
    assert!(output.status.code() == Some(4) && rows.len() == 4, "{output:?}");
    assert!(rows.iter().any(|row| row.starts_with("blocks lock ") && row.ends_with(node)), "{rows:?}");
    assert!(stderr(&output).contains(&advice(node)), "{output:?}");

    let output = run(&servers, &["revoke", "--force", node]);
    assert!(output.status.code() == Some(2) && stderr(&output).contains("use --yes"), "{output:?}");
    assert!(server.exists(node));
    let output = run(&servers, &["revoke", "--force", "--yes", node]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), format!("deleted {node}\n")));
    assert_eq!(run(&servers, &["lock", "--try", "/jobs/hand", "--", "true"]).status.code(), Some(0));
    assert_eq!(run(&servers, &["status", "/jobs/hand"]).status.code(), Some(0));
}

/// Refuses an attempt, and returns the message.
fn refusal(servers: &str, command: &[&str]) -> String {
    let output = run(servers, command);
    assert_eq!(output.status.code(), Some(75), "{output:?}");
    stderr(&output)
}

#[tokio::test]
async fn refused_attempt_names_only_a_node_that_blocks_its_kind() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (reading, writing) = ("/lock/a__READ__0", "/lock/a__WRIT__1");
    create(&server, &[reading]).await;
    let hint = |node: &str| format!("curator: {}\n", advice(node));
    let other = "curator: another contender has /lock: curator status /lock shows it\n";
    let attempt = |action| refusal(&servers, &[action, "--try", "/lock", "--", "true"]);
    assert_eq!(run(&servers, &["read", "--try", "/lock", "--", "true"]).status.code(), Some(0));
    assert_eq!(attempt("write"), hint(reading));
    delete(&writer(&server), reading).await;

    // A writer holds the lock. The node of a reader behind it blocks no reader.
    let mut holder = curator(&servers, &["write", "/lock", "--", "sh", "-c", "echo; exec sleep 600"]).spawn().unwrap();
    assert!(BufReader::new(holder.stdout.take().unwrap()).lines().next().is_some());
    create(&server, &["/lock/a__READ__2000000000"]).await;
    assert_eq!((attempt("read").as_str(), attempt("write").as_str()), (other, other));
    signal(&holder, Signal::TERM);
    assert_eq!(end(holder).0, Some(143));
    create(&server, &[writing]).await;
    assert_eq!((attempt("read"), attempt("write")), (hint(writing), hint(writing)));
}

#[test]
fn node_of_a_contender_is_not_the_path_of_another_lock() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (holder, _out, node) = begin(&servers, &[], "echo $CURATOR_NODE; exec sleep 600");
    let part = format!("{node} is part of a lock: name the lock itself, /lock");
    let named = format!("{node} has the name of a contender's node: name the lock itself, /lock");
    let refuses = |when: &str| {
        let commands: [&[&str]; 9] = [
            &["lock", &node, "--", "true"],
            &["semaphore", "-n", "1", &node, "--", "true"],
            &["read", &node, "--", "true"],
            &["write", &node, "--", "true"],
            &["elect", &node, "--", "true"],
            &["join", &node, "--", "true"],
            &["count", "--add", "1", &node],
            &["barrier", "hold", &node, "--", "true"],
            &["latch", "set", &node, "1"],
        ];
        for command in commands {
            let output = run(&servers, command);
            let expected = (Some(2), format!("curator: {named}\n"));
            assert_eq!((output.status.code(), stderr(&output)), expected, "{when} {command:?}");
        }
    };
    refuses("held");
    assert_eq!(nodes(&server), 1);
    let output = run(&servers, &["status", &node]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(1), format!("curator: {part}\n")));
    signal(&holder, Signal::TERM);
    assert_eq!(end(holder).0, Some(143));
    until("the release", || nodes(&server) == 0);
    refuses("free");
    assert_eq!(nodes(&server), 0);
    // A server has not given this name.
    assert_eq!(run(&servers, &["lock", "/lock/lock-7", "--", "true"]).status.code(), Some(0));
}

//! What is shown, asked for and said.

use curator_framework::{CuratorFramework, RetryOneTime};
use curator_test::TestingServer;
use rustix::process::Signal;

use crate::{begin, curator, end, nodes, run, signal, stderr, stdout, until};

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
    let output = run(&servers, &["revoke", node]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = stdout(&output);
    assert!(text.starts_with(&format!("requested the release of {node}\n")) && text.contains("--revocable"), "{text}");
    let (code, text) = end(holder);
    assert_eq!(
        (code, text.as_str()),
        (Some(73), "curator: another client asks for the lock /lock: the command is stopped\n")
    );
    assert_eq!(end(waiter).0, Some(0));
    let output = run(&servers, &["revoke", node]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(1), format!("curator: no node {node}\n")));
    assert_eq!(run(&servers, &["ls", "/lock"]).status.code(), Some(0));
    assert_eq!(run(&servers, &["ls", "/nowhere"]).status.code(), Some(1));
    // No process reads what it prints.
    let mut child = curator(&servers, &["ls", "/lock"]).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(end(child), (Some(0), String::new()));
}

#[tokio::test]
async fn revoke_refuses_a_node_of_other_use() {
    let server = TestingServer::start().unwrap();
    let retry = RetryOneTime::new(std::time::Duration::from_millis(50));
    let client = CuratorFramework::new_client(server.connect_string(), retry).unwrap();
    client.start().unwrap();
    let node = "/production/database-url";
    client.create().creating_parents_if_needed().with_data("postgres://db").for_path(node).await.unwrap();
    let output = run(&server.connect_string(), &["revoke", node]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""), "{output:?}");
    let wanted = format!("curator: invalid node to revoke: {node} is not the node of a contender: it is not ephemeral");
    assert_eq!(stderr(&output), format!("{wanted}; curator ls {node} lists the nodes of a lock\n"));
    assert_eq!(client.get_data().for_path(node).await.unwrap().0, b"postgres://db");
}

const NO_SERVER: &str = "no session could be established: 127.0.0.1:1: Connection refused";

#[test]
fn what_has_no_status_of_its_own_is_70() {
    let server = TestingServer::start().unwrap();
    // The node of a lock is ephemeral, so there can be no lock below it.
    let (holder, _out, node) = begin(&server.connect_string(), &[], "echo $CURATOR_NODE; exec sleep 600");
    let output = run(&server.connect_string(), &["lock", &format!("{node}/inner"), "--", "echo", "never"]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(70), ""));
    assert_eq!(stderr(&output), format!("curator: the parent of {node}/inner is ephemeral and cannot have children\n"));
    signal(&holder, Signal::TERM);
    assert_eq!(end(holder).0, Some(143));
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
        ("127.0.0.1:1", &["--connect-timeout", "300ms", "ls", "/"], 69, NO_SERVER),
        ("127.0.0.1:1", &["lock", "--timeout", "300ms", "/lock", "--", "true"], 69, NO_SERVER),
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

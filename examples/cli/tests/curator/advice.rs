//! Each mistake of an operator is answered by one line that says what to do.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Command;

use curator_framework::{CuratorFramework, RetryOneTime};
use curator_test::TestingServer;
use rustix::process::Signal;

use crate::foreground::{CTRL_C, on_a_terminal, type_in};
use crate::{begin, curator, end, nodes, run, signal, stderr, stdout, until};

/// Creates persistent nodes, with their parents.
pub(crate) async fn create(server: &TestingServer, paths: &[&str]) {
    let retry = RetryOneTime::new(std::time::Duration::ZERO);
    let client = CuratorFramework::new_client(server.connect_string(), retry).unwrap();
    client.start().unwrap();
    for path in paths {
        client.create().creating_parents_if_needed().for_path(path).await.unwrap();
    }
    client.close().await;
}

#[test]
fn missing_chroot_is_named() {
    let server = TestingServer::start().unwrap();
    let servers = format!("{}/prod", server.connect_string());
    let text = "curator: the chroot /prod does not exist on the servers: create it, or correct the connect string\n";
    for command in [
        &["ls", "/lock"][..],
        &["ls", "--recursive", "/"],
        &["status", "/lock"],
        &["lock", "/lock", "--", "echo", "never"],
        &["lock", "--try", "/lock", "--", "echo", "never"],
        &["semaphore", "-n", "2", "/lock", "--", "echo", "never"],
        &["read", "/lock", "--", "echo", "never"],
    ] {
        let output = run(&servers, command);
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(2), text), "{command:?}");
        assert_eq!(stdout(&output), "", "{command:?}");
    }
}

#[tokio::test]
async fn path_that_is_not_a_lock_is_named() {
    let server = TestingServer::start().unwrap();
    create(&server, &["/production/database-url", "/production/other"]).await;
    let servers = server.connect_string();
    let (holder, _out, node) = begin(&servers, &[], "echo $CURATOR_NODE; exec sleep 600");
    let below = "list the locks below it with: curator ls --recursive /production";
    let cases = [
        ("/production", format!("/production is not a lock, because its children are not contenders: {below}")),
        (node.as_str(), format!("{node} is part of a lock: name the lock itself, /lock")),
        ("/nowhere", "no lock /nowhere: no client has used it yet, or the servers have deleted its empty node".into()),
    ];
    for (path, text) in cases {
        for command in ["ls", "status"] {
            let output = run(&servers, &[command, path]);
            let expected = (Some(1), format!("curator: {text}\n"), String::new());
            assert_eq!((output.status.code(), stderr(&output), stdout(&output)), expected);
        }
    }
    signal(&holder, Signal::TERM);
    assert_eq!(end(holder).0, Some(143));
}

/// Contenders of different kinds on one path would not exclude each other.
#[test]
fn path_with_contenders_of_another_kind_is_refused() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let kinds: [(&[&str], &str, &str); 3] = [
        (&["lock"], "mutex", "curator lock"),
        (&["semaphore", "-n", "2"], "semaphore", "curator semaphore"),
        (&["write"], "read-write lock", "curator read or curator write"),
    ];
    for (index, (holding, name, right)) in kinds.iter().enumerate() {
        let path = format!("/kind-{index}");
        let command = [holding, &[path.as_str(), "--", "sh", "-c", "echo; exec sleep 600"][..]].concat();
        let mut holder = curator(&servers, &command).spawn().unwrap();
        holder.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        for (other, (asking, ..)) in kinds.iter().enumerate() {
            if other != index {
                let output = run(&servers, &[asking, &[path.as_str(), "--", "echo", "never"][..]].concat());
                let text = format!("curator: {path} is a {name} with contenders: use {right}, or another path\n");
                assert_eq!((output.status.code(), stderr(&output)), (Some(2), text), "{asking:?}");
            }
        }
        signal(&holder, Signal::TERM);
        assert_eq!(end(holder).0, Some(143));
        // The kind of an unused path is open.
        let asking = kinds[(index + 1) % kinds.len()].0;
        assert_eq!(run(&servers, &[asking, &[path.as_str(), "--", "true"][..]].concat()).status.code(), Some(0));
    }
}

#[test]
fn missing_dashes_are_shown_in_their_place() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    for (given, right) in [
        (&["lock", "/lock", "make", "-j", "report"][..], "curator lock /lock -- make -j report"),
        (&["lock", "--timeout", "3s", "/lock", "true"], "curator lock --timeout 3s /lock -- true"),
        (&["semaphore", "-n", "2", "/pool", "true"], "curator semaphore -n 2 /pool -- true"),
    ] {
        let output = run(&servers, given);
        let text = format!("curator: the command must stand behind --, as in: {right}\n");
        assert_eq!((output.status.code(), stderr(&output)), (Some(2), text));
    }
    // An unknown option stays one.
    assert!(stderr(&run(&servers, &["lock", "--tyr", "/lock", "--", "true"])).contains("--tyr"));
    assert!(stderr(&run(&servers, &["ls", "/lock", "/other"])).contains("'/other'"));
}

#[test]
fn command_that_is_stopped_because_it_wants_the_terminal_is_explained() {
    let server = TestingServer::start().unwrap();
    let (mut terminal, mut out, _) = on_a_terminal(&server, "", "echo; read line; echo never");
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    let text =
        "curator: the command is stopped because it wants the terminal: Ctrl-C ends it, --foreground lets it have it";
    assert_eq!(line.trim(), text);
    type_in(&mut terminal, CTRL_C);
    assert_eq!(end(terminal).0, Some(130));
    assert_eq!(nodes(&server), 0);
}

#[test]
fn signals_have_their_names() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (holder, _out, _) = begin(&servers, &[], "echo; exec sleep 600");
    for (ending, name) in [(Signal::TERM, "TERM"), (Signal::INT, "INT"), (Signal::HUP, "HUP"), (Signal::QUIT, "QUIT")] {
        let waiter = curator(&servers, &["lock", "/lock", "--", "true"]).spawn().unwrap();
        until("a waiter", || nodes(&server) == 2);
        signal(&waiter, ending);
        assert_eq!(end(waiter), (Some(128 + ending.as_raw()), format!("curator: ended by {name}\n")));
    }
    signal(&holder, Signal::TERM);
    assert_eq!(end(holder).0, Some(143));
}

/// A stopped waiter would hold up the queue until its session ends.
#[test]
fn waiter_does_not_obey_ctrl_z() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (holder, _out, _) = begin(&servers, &[], "echo; exec sleep 600");
    let mut waiter = curator(&servers, &["lock", "/lock", "--", "true"]).spawn().unwrap();
    until("a waiter", || nodes(&server) == 2);
    signal(&waiter, Signal::TSTP);
    let mut line = String::new();
    BufReader::new(waiter.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "curator: Ctrl-Z is not obeyed: a stopped process cannot keep its place in the queue\n");
    signal(&holder, Signal::TERM);
    assert_eq!(end(holder).0, Some(143));
    assert_eq!(end(waiter), (Some(0), String::new()));
}

#[test]
fn without_a_server_the_line_tells_where_it_was_looked_for() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_curator"));
    command.args(["--connect-timeout", "300ms", "ls", "/lock"]);
    command.env_remove("CURATOR_CONNECT").env_remove("ZK_CONNECT");
    // Port 2181 of this machine may have a server.
    let output = command.output().unwrap();
    if output.status.code() == Some(69) {
        assert!(stderr(&output).ends_with("; neither --connect nor CURATOR_CONNECT is set\n"), "{output:?}");
    }
    let output = run("127.0.0.1:1", &["--connect-timeout", "300ms", "ls", "/lock"]);
    assert!(!stderr(&output).contains("CURATOR_CONNECT"), "{output:?}");
}

#[tokio::test]
async fn semaphore_that_cannot_be_read_is_not_taken_for_an_unused_path() {
    let server = TestingServer::start().unwrap();
    let client = crate::watching::writer(&server);
    crate::showing::create_unreadable(&client, "/pool/leases").await;
    let output = run(&server.connect_string(), &["lock", "/pool", "--", "echo", "never"]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(77), ""), "{output:?}");
    assert!(stderr(&output).starts_with("curator: not authorized for /pool/leases"), "{output:?}");
    client.close().await;
}

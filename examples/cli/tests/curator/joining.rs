//! `join`: a member that is registered while a command runs.

use std::io::{BufRead as _, BufReader, Lines, Read as _};
use std::process::{Child, ChildStderr};

use curator_framework::{CuratorFramework, RetryOneTime};
use curator_test::{FaultProxy, TestingServer, unique_root};
use rustix::process::Signal;
use serde_json::json;

use crate::showing::parsed;
use crate::{SHORT, apache, begin, curator, end, run, signal, stderr, stdout, until};

/// Starts a member of `/group`.
pub(crate) fn join(connect: &str, options: &[&str], command: &[&str]) -> Child {
    curator(connect, &[&["join"], options, &["/group"], command].concat()).spawn().unwrap()
}

pub(crate) fn members(server: &TestingServer) -> Vec<String> {
    server.children("/group").unwrap_or_default()
}

/// Starts a member and waits until it is registered.
pub(crate) fn joined(connect: &str, options: &[&str]) -> (Child, Told) {
    let mut child = join(connect, options, &[]);
    let mut told = Told::by(&mut child);
    told.next("joined /group as ");
    (child, told)
}

/// The messages of a member.
pub(crate) struct Told(Lines<BufReader<ChildStderr>>);

impl Told {
    fn by(child: &mut Child) -> Self {
        Self(BufReader::new(child.stderr.take().unwrap()).lines())
    }

    /// Returns the next message, behind the name of the program. It starts with this text.
    fn next(&mut self, text: &str) -> String {
        let line = self.0.next().unwrap().unwrap();
        let message = line.strip_prefix("curator: ").unwrap_or(&line);
        assert!(message.starts_with(text), "{line}");
        message.to_owned()
    }
}

#[test]
fn member_is_registered_while_the_command_runs() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let script = "echo $CURATOR_GROUP_PATH $CURATOR_MEMBER_ID $CURATOR_NODE; \"$CURATOR\" members --json /group";
    for (last, code) in [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143)] {
        let script = format!("{script}; {last}");
        let join = ["join", "--id", "one", "--data", "10.0.0.1", "/group", "--", "sh", "-c", &script];
        let output = run(&servers, &join);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let (text, told) = (stdout(&output), stderr(&output));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "/group one /group/one");
        let member = parsed(lines[1])["members"][0].clone();
        assert_eq!(json!([member["id"], member["data"]]), json!(["one", "10.0.0.1"]), "{text}");
        let session = member["session"].as_str().unwrap();
        assert_eq!(told, format!("curator: joined /group as one (session {session}, czxid {})\n", member["czxid"]));
        assert_eq!(members(&server), [""; 0]);
    }
    let output = run(&servers, &["join", "/group", "--", "/no/such/command"]);
    assert_eq!((output.status.code(), members(&server)), (Some(127), Vec::new()), "{output:?}");
    until("the sessions are closed", || server.sessions().is_empty());
}

#[test]
fn member_without_a_command_leaves_at_a_signal() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    for (ending, name) in [(Signal::TERM, "TERM"), (Signal::INT, "INT"), (Signal::HUP, "HUP"), (Signal::QUIT, "QUIT")] {
        let (member, mut told) = joined(&servers, &[]);
        assert_eq!(members(&server).len(), 1);
        assert!(members(&server)[0].ends_with(&format!("-{}", member.id())), "{:?}", members(&server));
        signal(&member, Signal::TSTP);
        told.next("Ctrl-Z is not obeyed: a stopped process cannot keep its registration");
        signal(&member, ending);
        told.next(&format!("ended by {name}"));
        assert_eq!((end(member).0, members(&server)), (Some(128 + ending.as_raw()), Vec::new()));
    }
    until("the sessions are closed", || server.sessions().is_empty());
}

#[test]
fn signals_reach_the_command_and_the_member_leaves_after_it() {
    let server = TestingServer::start().unwrap();
    let script = "trap 'echo asked; exit 5' TERM; echo; while :; do sleep 0.05; done";
    let mut child = join(&server.connect_string(), &[], &["--", "sh", "-c", script]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "");
    assert_eq!(members(&server).len(), 1);
    signal(&child, Signal::TERM);
    assert_eq!(lines.next().unwrap(), "asked");
    assert_eq!((end(child).0, members(&server)), (Some(5), Vec::new()));
}

#[test]
fn id_of_another_session_is_told_and_waited_for() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (first, _told) = joined(&servers, &["--id", "one"]);
    let session = format!("{:#x}", server.sessions()[0]);
    for (options, code) in [(&["--timeout", "300ms"][..], 75), (&["--wait", "0.3", "-E", "9"][..], 9)] {
        let output = run(&servers, &[&["join", "--id", "one"], options, &["/group", "--", "echo", "never"]].concat());
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(code), ""), "{output:?}");
        let last = format!("curator: /group has a member one of session {session}: curator members /group shows it");
        assert_eq!(stderr(&output).lines().last(), Some(&*last), "{output:?}");
    }
    let mut second = join(&servers, &["--id", "one"], &[]);
    let mut told = Told::by(&mut second);
    told.next(&format!("/group has a member one of session {session}: waits until it leaves"));
    signal(&first, Signal::TERM);
    assert_eq!(end(first).0, Some(143));
    assert!(!told.next("joined /group as one (session ").contains(&session));
    // A waiter that a signal ends leaves the member alone.
    let waiter = join(&servers, &["--id", "one"], &[]);
    until("a waiter", || server.sessions().len() == 2 && server.watch_count() > 1);
    signal(&waiter, Signal::TERM);
    assert_eq!((end(waiter).0, members(&server)), (Some(143), vec!["one".to_owned()]));
    signal(&second, Signal::TERM);
    assert_eq!(end(second).0, Some(143));
}

/// A registration excludes nothing, so its end does not stop the command.
#[tokio::test]
async fn member_is_registered_again_and_the_command_runs_on() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let script = "trap 'echo asked; exit 0' TERM; echo begun; while :; do sleep 0.05; done";
    let mut child = join(&servers, &[SHORT[..2].as_ref(), &["--id", "one"]].concat(), &["--", "sh", "-c", script]);
    let mut told = Told::by(&mut child);
    let first = told.next("joined /group as one (session ");
    assert!(server.kill_session(server.sessions()[0]));
    let joins = |told: &mut Told| loop {
        let line = told.next("");
        if line.starts_with("joined ") {
            return line;
        }
    };
    let second = joins(&mut told);
    assert_ne!(first, second);
    let client = CuratorFramework::new_client(&servers, RetryOneTime::new(std::time::Duration::ZERO)).unwrap();
    client.start().unwrap();
    client.delete().for_path("/group/one").await.unwrap();
    client.close().await;
    let third = joins(&mut told);
    let session = |line: &str| line.split_once(',').unwrap().0.to_owned();
    assert!(session(&second) == session(&third) && second != third, "{second} {third}");
    signal(&child, Signal::TERM);
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert_eq!((end(child).0, out.as_str()), (Some(0), "begun\nasked\n"));
}

#[test]
fn outage_is_told() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let (member, mut told) = joined(&proxy.connect_string(), &["--id", "one"]);
    proxy.refuse();
    proxy.reset();
    told.next("no connection: /group has the member until its session ends");
    proxy.accept();
    told.next("the connection is back");
    assert_eq!(members(&server), ["one"]);
    signal(&member, Signal::TERM);
    told.next("ended by TERM");
    assert_eq!(end(member).0, Some(143));
}

#[tokio::test]
async fn what_cannot_be_joined_is_refused() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (holder, _out, _) = begin(&servers, &[], "echo; exec sleep 600");
    let output = run(&servers, &["join", "/lock", "--", "true"]);
    let text = "curator: /lock is a mutex with contenders: use curator lock, or another path\n";
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(2), text));
    for arguments in [&["--id", "a/b", "/group"][..], &["relative"], &["--timeout", "soon", "/group"]] {
        assert_eq!(run(&servers, &[&["join"], arguments].concat()).status.code(), Some(2), "{arguments:?}");
    }
    let output = run(&servers, &["join", "--acl", "creator", "/group", "--", "true"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let output = run(&servers, &["join", "/group", "echo", "never"]);
    let text = "curator: the command must stand behind --, as in: curator join /group -- echo never\n";
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(2), text));
    assert_eq!(run("127.0.0.1:1", &["join", "-w", "300ms", "/group", "--", "true"]).status.code(), Some(69));
    signal(&holder, Signal::TERM);
    assert_eq!(end(holder).0, Some(143));
}

#[test]
fn join_works_on_apache() {
    let (servers, _server) = apache();
    let path = unique_root("curator-join");
    let script = "exec \"$CURATOR\" members $CURATOR_GROUP_PATH";
    let output = run(&servers, &["join", "--id", "me", "--data", "here", &path, "--", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = stdout(&output);
    let row: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!([row[0], row[4]], ["me", "here"], "{text}");
    assert_eq!(stderr(&output), format!("curator: joined {path} as me (session {}, czxid {})\n", row[2], row[3]));
    assert_eq!(stdout(&run(&servers, &["members", &path])), format!("{path} has no members\n"));
}

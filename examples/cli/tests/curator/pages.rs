//! Completions, the manual, and the README with its output as it really is.

use std::io::Write as _;
use std::process::{Command, Stdio};

use curator_test::TestingServer;
use rustix::process::Signal;

use crate::watching::{create, writer};
use crate::{curator, end, run, signal, stderr, stdout, until};

#[test]
fn completions_need_no_server_and_are_accepted_by_the_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let output = run("127.0.0.1:1", &["completions", shell]);
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
        let script = stdout(&output);
        assert!(script.contains("elect") && script.contains("auth-file"), "{script}");
        // A shell that is not installed is left out.
        let checked = Command::new(shell).arg("-n").stdin(Stdio::piped()).spawn();
        if let Ok(mut child) = checked {
            child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
            assert!(child.wait().unwrap().success(), "{shell}");
        }
    }
    assert_eq!(run("", &["completions", "basic"]).status.code(), Some(2));
    let output = curator("", &["completions", "bash"]).stdout(Stdio::piped()).spawn();
    let mut child = output.unwrap();
    drop(child.stdout.take());
    assert_eq!(end(child), (Some(0), String::new()));
}

#[test]
fn manual_has_a_page_for_each_command() {
    let page = stdout(&run("", &["man"]));
    assert!(page.contains(".TH curator 1") && page.contains("Exit status") && page.contains("held"), "{page}");
    for command in [
        "lock",
        "semaphore",
        "read",
        "write",
        "elect",
        "join",
        "leader",
        "members",
        "watch",
        "count",
        "barrier",
        "barrier enter",
        "latch",
        "latch down",
        "queue",
        "queue work",
        "ls",
        "status",
        "revoke",
    ] {
        let words: Vec<&str> = command.split(' ').collect();
        let page = stdout(&run("", &[&["man"], &words[..]].concat()));
        let name = words.join("\\-");
        assert!(page.contains(&format!("curator\\-{name}")) && !page.contains("EXTRA"), "{page}");
        assert!(page.contains("CURATOR_CONNECT"), "{page}");
    }
    for wrong in [&["man", "nothing"][..], &["man", "barrier", "nothing"], &["man", "lock", "enter"]] {
        assert_eq!(run("", wrong).status.code(), Some(2), "{wrong:?}");
    }
}

/// Replaces numbers, sessions and protected ids, and runs of spaces, because they differ between runs.
fn comparable(text: &str) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let (skipped, stand_in) = if let Some(id) = rest.strip_prefix("_c_") {
            (3 + id.len().min(36), "_c_#")
        } else if let Some(hex) = rest.strip_prefix("0x") {
            (2 + hex.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(hex.len()), "0x#")
        } else if next.is_ascii_digit() {
            (rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()), "#")
        } else if next == ' ' {
            (rest.find(|c: char| c != ' ').unwrap_or(rest.len()), " ")
        } else {
            (next.len_utf8(), &rest[..next.len_utf8()])
        };
        result.push_str(stand_in);
        rest = &rest[skipped..];
    }
    result
}

/// The README tells which contenders there are.
#[tokio::test]
async fn readme_shows_what_is_printed() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let contender = |data: &str| {
        curator(&servers, &["lock", "--data", data, "/jobs/report", "--", "sleep", "600"]).spawn().unwrap()
    };
    let at = |count: usize| server.children("/jobs/report").is_some_and(|nodes| nodes.len() == count);
    let holder = contender("worker-7");
    until("a holder", || at(1));
    let waiter = contender("worker-9");
    until("a waiter", || at(2));
    let candidate = |id: &str, count: usize| {
        let elect = ["elect", "--id", id, "--proclaim", "10.0.0.3:8080", "/elections/scheduler", "--", "sleep", "600"];
        let child = curator(&servers, &elect).spawn().unwrap();
        until("a candidate", || server.children("/elections/scheduler").is_some_and(|nodes| nodes.len() == count));
        child
    };
    let leader = candidate("worker-3", 1);
    let proclaims = || stdout(&run(&servers, &["leader", "/elections/scheduler"])).contains("it proclaims");
    until("a leader", proclaims);
    let follower = candidate("worker-5", 2);
    let member = |id: &str, data: &str, count: usize| {
        let join = ["join", "--id", id, "--data", data, "/groups/workers"];
        let child = curator(&servers, &join).spawn().unwrap();
        until("a member", || server.children("/groups/workers").is_some_and(|nodes| nodes.len() == count));
        child
    };
    let members = [member("worker-3", "10.0.0.3:8080", 1), member("worker-5", "10.0.0.5:8080", 2)];
    let client = writer(&server);
    for (path, data) in [("/settings", ""), ("/settings/colour", "blue"), ("/settings/workers", "8")] {
        create(&client, path, data.as_bytes()).await;
    }
    client.close().await;
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_curator"));
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let mut commands = 0;
    for block in readme.split("```console\n").skip(1) {
        let block = block.split_once("```").unwrap().0;
        for part in block.strip_prefix("$ ").unwrap().split("\n$ ") {
            let (command, printed) = part.split_once('\n').unwrap_or((part, ""));
            let mut shell = Command::new("bash");
            shell.args(["-c", &format!("exec 2>&1; {command}")]).env("PATH", &path);
            let output = shell.env("CURATOR_CONNECT", &servers).stdin(Stdio::null()).output().unwrap();
            assert_eq!(
                comparable(stdout(&output).trim()),
                comparable(printed.trim()),
                "{command}\n{}",
                stdout(&output)
            );
            commands += 1;
        }
    }
    for name in [
        "lock",
        "semaphore",
        "read",
        "write",
        "elect",
        "leader",
        "join",
        "members",
        "watch",
        "count",
        "barrier",
        "latch",
        "queue",
        "ls",
        "status",
        "revoke",
        "completions",
        "man",
    ] {
        assert!(readme.contains(&format!("$ curator {name} ")), "{name}");
    }
    assert!(commands >= 9, "{commands}");
    for child in [holder, waiter, leader, follower].into_iter().chain(members) {
        signal(&child, Signal::TERM);
        assert_eq!(end(child).0, Some(143));
    }
}

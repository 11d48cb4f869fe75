//! Runs the program as a user does.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod advice;
mod barring;
mod blocked;
mod closed;
mod commands;
mod counting;
mod credentials;
mod each;
mod electing;
mod entering;
mod foreground;
mod grouping;
mod habits;
mod joining;
mod latching;
mod leading;
mod losing;
mod nesting;
mod operating;
mod pages;
mod persistent;
mod queueing;
mod servicing;
mod settings;
mod showing;
mod silent;
mod telling;
mod waiting;
mod watching;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use curator_test::{ApacheServer, TestingServer};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// Less than the session timeout: what ends in this time was not left to the server's timer.
const LIMIT: Duration = Duration::from_secs(20);

/// Returns the addresses of Apache ZooKeeper, and the server if the test script has not started one.
fn apache() -> (String, Option<ApacheServer>) {
    match std::env::var("CURATOR_TEST_APACHE") {
        Ok(servers) => (servers, None),
        Err(_) => {
            let server = ApacheServer::start().unwrap();
            (server.connect_string(), Some(server))
        }
    }
}

/// Returns a command that runs the program. A script below it runs the program as `$CURATOR`.
fn curator(connect: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_curator"));
    command.args(arguments).env("CURATOR_CONNECT", connect).env_remove("CURATOR_AUTH");
    command.env("CURATOR", env!("CARGO_BIN_EXE_curator"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(connect: &str, arguments: &[&str]) -> Output {
    curator(connect, arguments).output().unwrap()
}

/// Runs a shell script under `/lock`.
fn lock(connect: &str, options: &[&str], script: &str) -> Output {
    run(connect, &[&["lock"], options, &["/lock", "--", "sh", "-c", script]].concat())
}

/// Starts a script under `/lock` and waits for its first line.
fn begin(connect: &str, options: &[&str], script: &str) -> (Child, BufReader<ChildStdout>, String) {
    let mut child =
        curator(connect, &[&["lock"], options, &["/lock", "--", "sh", "-c", script]].concat()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    (child, out, line.trim().to_owned())
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn end(mut child: Child) -> (Option<i32>, String) {
    until("the end of the program", || child.try_wait().unwrap().is_some());
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// Makes changes until the program has ended, because the reader of its pipe has gone. A process of another test that
/// starts in this moment may keep the pipe open for the first change.
async fn end_without_reader(mut child: Child, mut change: impl AsyncFnMut()) -> (Option<i32>, String) {
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(begin.elapsed() < LIMIT, "never: the end of a program without a reader");
        change().await;
    }
    end(child)
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < LIMIT, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn nodes(server: &TestingServer) -> usize {
    server.children("/lock").map_or(0, |nodes| nodes.len())
}

const SHORT: &[&str] = &["--session-timeout", "4s", "--grace", "300ms"];

/// A process without a parent may stay as a zombie for a while, or forever if no process waits for it.
fn is_gone(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    test_kill_process(pid).is_err() || stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z')
}

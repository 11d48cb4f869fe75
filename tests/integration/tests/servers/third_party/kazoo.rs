//! The Python client kazoo.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use super::{assert_nothing_left, assert_success, peer, run, server};

const PYTHON: &str = "/usr/bin/python3";
const PACKAGE: &str = "python3-kazoo";

/// The script with its arguments, if kazoo is there.
fn script(connect_string: &str, recipe: &str) -> Command {
    let import = run(Command::new(PYTHON).args(["-c", "import kazoo"]), PACKAGE);
    assert!(import.status.success(), "kazoo not found: on Debian and Ubuntu `apt-get install {PACKAGE}`");
    let mut command = Command::new(PYTHON);
    command.arg("-B").arg(peer("kazoo_recipes.py")).args([connect_string, recipe]);
    command
}

fn keeps_its_promise(recipe: &str, folders: &[&str]) {
    let server = server();
    let output = run(&mut script(&server.connect_string(), recipe), PACKAGE);
    assert_success(&output);
    assert_nothing_left(&server, folders);
}

#[test]
fn lock_excludes() {
    keeps_its_promise("lock", &["/kazoo/lock"]);
}

#[test]
fn semaphore_has_its_limit() {
    keeps_its_promise("semaphore", &["/kazoo/semaphore"]);
}

#[test]
fn read_and_write_locks_exclude() {
    keeps_its_promise("read-write", &["/kazoo/rw"]);
}

#[test]
fn lock_goes_to_the_waiter_when_the_holders_session_ends() {
    let server = server();
    let mut child = script(&server.connect_string(), "handover")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("python runs");
    let mut holder = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut holder).unwrap();
    if let Ok(holder) = holder.trim().parse() {
        assert!(server.kill_session(holder));
    }
    let status = child.wait().unwrap();
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert!(status.success(), "{status}\n{errors}");
    assert_nothing_left(&server, &["/kazoo/handover"]);
}

//! `semaphore --each`.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};

use curator_test::TestingServer;
use rustix::process::Signal;

use crate::{curator, end, signal, stderr, stdout, until};

fn each(connect: &str, options: &[&str], script: &str) -> Command {
    let mut command = curator(
        connect,
        &[&["semaphore", "--each"], options, &["/jobs", "--", "sh", "-c", script, "sh", "{}"]].concat(),
    );
    command.stdin(Stdio::piped());
    command
}

fn fed(mut command: Command, lines: &str) -> Child {
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    child
}

#[test]
fn each_line_runs_once_and_at_most_n_at_once_over_all_processes() {
    let server = TestingServer::start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    // Each command notes how many are there.
    let script = format!(
        "cd {}; mkdir \"in-$1\"; set -- \"$1\" in-*; echo $(($# - 1)) >\"done-$1\"; rmdir \"in-$1\"",
        folder.path().display()
    );
    let lines = |process: usize| (0..12).map(|line| format!("{process} {line}\n")).collect::<String>() + "\n";
    let connect = server.connect_string();
    let processes: Vec<_> = (0..3).map(|process| fed(each(&connect, &["-n", "2"], &script), &lines(process))).collect();
    for process in processes {
        assert_eq!(end(process), (Some(0), String::new()));
    }
    let mut most = 0;
    for line in (0..3).flat_map(|process| (0..12).map(move |line| format!("done-{process} {line}"))) {
        let there = std::fs::read_to_string(folder.path().join(&line)).unwrap_or_else(|_| panic!("{line} did not run"));
        most = most.max(there.trim().parse::<usize>().unwrap());
    }
    assert!((1..=2).contains(&most), "{most} at once");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 36);
    for part in ["leases", "locks"] {
        assert!(server.children(&format!("/jobs/{part}")).unwrap_or_default().is_empty());
    }
}

#[test]
fn commands_of_two_leases_run_side_by_side() {
    let server = TestingServer::start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    // Each waits for the other.
    let script =
        format!("cd {}; touch \"$1\"; until [ -e a ] && [ -e b ]; do sleep 0.01; done", folder.path().display());
    let both = fed(each(&server.connect_string(), &["-n", "2"], &script), "a\nb");
    assert_eq!(end(both), (Some(0), String::new()));
}

#[test]
fn a_command_that_fails_stops_no_other_and_shows_in_the_status() {
    let server = TestingServer::start().unwrap();
    let command = each(&server.connect_string(), &[], "cat; echo \"<$1>\"; [ \"$1\" != 'b  c' ]");
    let output = fed(command, "a\nb  c\n\nd\n").wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), stdout(&output), stderr(&output)),
        (Some(123), "<a>\n<b  c>\n<d>\n".to_owned(), String::new())
    );
}

#[test]
fn a_command_that_is_missing_ends_the_program_with_its_status() {
    let server = TestingServer::start().unwrap();
    let mut command =
        curator(&server.connect_string(), &["semaphore", "--each", "/jobs", "--", "no-such-command", "{}"]);
    command.stdin(Stdio::piped());
    let output = fed(command, &"x\n".repeat(1000)).wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(127));
    assert!(stderr(&output).lines().count() < 10, "{}", stderr(&output));
}

#[test]
fn a_signal_ends_the_commands_and_begins_no_further_one() {
    let server = TestingServer::start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "cd {}; exec 2>/dev/null; trap 'touch ended; exit 3' TERM; touch \"$1\"; while :; do sleep 0.01; done",
        folder.path().display()
    );
    let mut command = each(&server.connect_string(), &[], &script);
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    // The input stays open: the program does not wait for its end.
    input.write_all(b"first\nsecond\nthird\n").unwrap();
    until("the first command", || folder.path().join("first").exists());
    signal(&child, Signal::TERM);
    assert_eq!(end(child), (Some(143), "curator: ended by TERM\n".to_owned()));
    assert!(folder.path().join("ended").exists() && !folder.path().join("second").exists());
    drop(input);
}

#[test]
fn each_line_waits_for_as_long_as_it_takes() {
    let output = curator("127.0.0.1:1", &["semaphore", "--each", "--try", "/jobs", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("'--each' cannot be used with '--try' or '--timeout'"), "{}", stderr(&output));
}

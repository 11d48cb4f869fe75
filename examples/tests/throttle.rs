//! Runs the example as a user does, and reads what it prints.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use curator_test::TestingServer;

/// Cargo builds the examples beside the tests.
fn throttle() -> Command {
    let test = std::env::current_exe().unwrap();
    let program: PathBuf = test.parent().unwrap().parent().unwrap().join("examples/throttle");
    assert!(program.exists(), "{} is missing: build with --all-targets", program.display());
    Command::new(program)
}

fn run(options: &[&str]) -> Output {
    throttle().args(options).output().unwrap()
}

fn last_line(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).lines().last().unwrap_or_default().to_owned()
}

#[test]
fn it_brings_its_own_server_and_reaches_the_limit() {
    let output = run(&["--permits", "4", "--jobs", "24", "--work-ms", "30", "--clients", "2"]);
    assert_eq!(last_line(&output), "24 jobs done, at most 4 at once (limit 4)");
    assert_eq!(output.status.code(), Some(0));
}

/// Each line follows from the line before: one job starts or ends.
#[test]
fn counts_of_each_line_add_up() {
    let output = run(&["--permits", "4", "--jobs", "40", "--work-ms", "20", "--clients", "4"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.pop(), Some("40 jobs done, at most 4 at once (limit 4)"));
    let mut before = [0, 40, 0];
    for line in lines {
        let (job, counts) = line.split_once(": ").expect(line);
        let words: Vec<usize> = counts.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [working, waiting, done] = before;
        let expected = match job.split_once(' ').and_then(|(_, job)| job.split_once(' ')) {
            Some((_, "works")) => [working + 1, waiting - 1, done],
            Some((_, "is done")) => [working - 1, waiting, done + 1],
            _ => panic!("{line}"),
        };
        assert_eq!(words, expected, "{line}");
        before = expected;
    }
    assert_eq!(before, [0, 0, 40]);
}

#[test]
fn the_direct_protocol_reaches_the_limit_too() {
    let output = run(&["--permits", "4", "--jobs", "24", "--work-ms", "30", "--clients", "2", "--protocol", "direct"]);
    assert_eq!(last_line(&output), "24 jobs done, at most 4 at once (limit 4)");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn fewer_jobs_than_permits_are_no_failure() {
    let output = run(&["--permits", "5", "--jobs", "2", "--work-ms", "200", "--clients", "1"]);
    assert_eq!(last_line(&output), "2 jobs done, at most 2 at once (limit 5)");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn bad_options_are_named() {
    let output = run(&["--permits", "0"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("--permits <PERMITS>': it must be at least 1"));
    let output = run(&["--connect", "two words"]);
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "error: invalid connect string: \"two words\" is not a host and a port\n"
    );
    let output = run(&["--path", "relative"]);
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "error: invalid path \"relative\": it does not start with a slash\n"
    );
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn two_processes_share_one_limit_and_ctrl_c_gives_all_leases_back() {
    let server = TestingServer::start().unwrap();
    let start = |jobs: &str, work: &str| -> Child {
        let mut command = throttle();
        command.args(["--connect", &server.connect_string(), "--permits", "3", "--jobs", jobs, "--work-ms", work]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    // It works until it is interrupted.
    let mut first = start("20", "600000");
    let lines = BufReader::new(first.stdout.take().unwrap()).lines();
    assert_eq!(lines.map_while(Result::ok).filter(|line| line.contains(" works: ")).take(3).count(), 3);
    assert!(server.children("/examples/throttle/leases").is_some_and(|leases| leases.len() >= 3));
    let second = start("6", "20");
    let pid = rustix::process::Pid::from_child(&first);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let first = first.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&first.stderr), "interrupted, all leases are given back\n");
    assert_eq!(first.status.code(), Some(130));
    let second = second.wait_with_output().unwrap();
    assert!(last_line(&second).starts_with("6 jobs done, at most "), "{second:?}");
    for part in ["locks", "leases"] {
        assert_eq!(server.children(&format!("/examples/throttle/{part}")), Some(Vec::new()));
    }
    assert_eq!(server.sessions(), Vec::<i64>::new());
}

//! `--foreground`, and the terminal without it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};

use curator_test::TestingServer;
use rustix::process::{Pid, Signal, kill_process};

use crate::{SHORT, begin, end, is_gone, lock, nodes, signal, stdout, until};

/// Runs a script under `/lock` on a terminal of its own, on which it prints a line first.
pub(crate) fn on_a_terminal(
    server: &TestingServer,
    options: &str,
    script: &str,
) -> (Child, BufReader<ChildStdout>, String) {
    let mut terminal = terminal(server, options, script);
    let mut out = BufReader::new(terminal.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    (terminal, out, line.trim().to_owned())
}

/// Runs a script under `/lock` on a terminal of its own.
pub(crate) fn terminal(server: &TestingServer, options: &str, script: &str) -> Child {
    on_terminal(server, &format!("lock {options} /lock -- sh -c \"$SCRIPT\""), script)
}

/// Runs the program with these arguments on a terminal of its own.
pub(crate) fn program(server: &TestingServer, arguments: &str) -> Child {
    on_terminal(server, arguments, "")
}

fn on_terminal(server: &TestingServer, arguments: &str, script: &str) -> Child {
    Command::new("script")
        .args(["-q", "-e", "-c", &format!("exec \"$CURATOR\" {arguments}"), "/dev/null"])
        .env("CURATOR", env!("CARGO_BIN_EXE_curator"))
        .env("CURATOR_CONNECT", server.connect_string())
        .env("SCRIPT", script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

pub(crate) fn type_in(terminal: &mut Child, keys: &str) {
    terminal.stdin.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
}

pub(crate) const CTRL_C: &str = "\u{3}";

#[test]
fn only_in_the_foreground_the_command_shares_the_group() {
    let server = TestingServer::start().unwrap();
    let group = "cut -d ' ' -f 5 /proc/$$/stat /proc/$PPID/stat; echo $$";
    for (options, shared) in [(&["--foreground"][..], true), (&[], false)] {
        let output = stdout(&lock(&server.connect_string(), options, group));
        let [its, ours, pid] = output.lines().collect::<Vec<_>>()[..] else { panic!("{output}") };
        assert_eq!((its == ours, its == pid), (shared, !shared), "{options:?} {output}");
    }
}

#[test]
fn in_the_foreground_the_command_reads_from_the_terminal() {
    let server = TestingServer::start().unwrap();
    let script = "echo ready; read line; echo \"it read $line\"";
    let (mut terminal, mut out, line) = on_a_terminal(&server, "--foreground", script);
    assert_eq!(line, "ready");
    type_in(&mut terminal, "a word\n");
    assert_eq!(end(terminal).0, Some(0));
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("it read a word"), "{rest}");
    assert_eq!(nodes(&server), 0);
}

/// The system stops a background process that reads from the terminal; it must still be possible to end it.
#[test]
fn ctrl_c_ends_a_command_that_is_stopped_since_it_may_not_read_from_the_terminal() {
    let server = TestingServer::start().unwrap();
    let (mut terminal, _out, line) = on_a_terminal(&server, "", "echo $$; read line; echo never");
    let stat = format!("/proc/{line}/stat");
    let stopped = || std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") T "));
    until("the command is stopped", stopped);
    type_in(&mut terminal, CTRL_C);
    assert_eq!(end(terminal).0, Some(130));
    assert_eq!(nodes(&server), 0);
}

#[test]
fn in_the_foreground_ctrl_c_reaches_the_command_once() {
    let server = TestingServer::start().unwrap();
    // From the terminal, which gives it to both.
    let script = "trap 'echo one; exit 6' INT; echo ready; while :; do sleep 0.02; done";
    let (mut terminal, mut out, _) = on_a_terminal(&server, "--foreground", script);
    type_in(&mut terminal, CTRL_C);
    assert_eq!(end(terminal).0, Some(6));
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(rest.matches("one").count(), 1, "{rest}");
    // It is not passed on a second time; what does not come from the keyboard is.
    let script = "trap 'echo int' INT; trap 'echo usr; exit 5' USR1; echo; while :; do sleep 0.02; done";
    let (child, mut out, _) = begin(&server.connect_string(), &["--foreground"], script);
    signal(&child, Signal::INT);
    signal(&child, Signal::USR1);
    assert_eq!(end(child).0, Some(5));
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "usr\n");
    assert_eq!(nodes(&server), 0);
}

#[test]
fn in_the_foreground_only_the_command_itself_is_stopped_when_the_lock_is_lost() {
    let server = TestingServer::start().unwrap();
    let script = "trap '' TERM; sleep 603 </dev/null >/dev/null 2>&1 & echo $!; while :; do sleep 0.05; done";
    let options = [SHORT, &["--foreground"]].concat();
    let (child, mut out, pid) = begin(&server.connect_string(), &options, script);
    let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
    assert!(server.kill_session(server.sessions()[0]));
    assert_eq!(end(child).0, Some(74));
    assert_eq!(out.read_to_string(&mut String::new()).unwrap(), 0);
    assert!(!is_gone(pid));
    kill_process(pid, Signal::KILL).unwrap();
}

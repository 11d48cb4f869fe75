//! A stream that is not read delays neither the stop of a command nor the queue.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::fd::OwnedFd;
use std::process::Child;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;

use curator_test::{FaultProxy, TestingServer};
use rustix::process::Signal;

use crate::foreground::{terminal, type_in};
use crate::joining::joined;
use crate::watching::{create, writer};
use crate::{LIMIT, SHORT, begin, curator, end, nodes, run, signal, until};

/// Returns a pipe that is full: the end to read from, and the stream of a program.
fn full_pipe() -> (File, OwnedFd) {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while rustix::io::write(&writer, b".").is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    (File::from(reader), writer)
}

/// A program with a full pipe as its standard error. A failed test ends it, and with it the command.
struct Stuck {
    child: Child,
    told: File,
    /// The lines on standard output.
    lines: Receiver<String>,
}

impl Stuck {
    fn start(connect: &str, arguments: &[&str]) -> Self {
        Self::start_with(connect, arguments, &[])
    }

    fn start_with(connect: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let (told, writer) = full_pipe();
        let mut command = curator(connect, arguments);
        let mut child = command.envs(variables.iter().copied()).stderr(writer).spawn().unwrap();
        // The test keeps no end of the pipe to write to.
        drop(command);
        let out = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || out.lines().map_while(Result::ok).all(|line| sender.send(line).is_ok()));
        Self { child, told, lines }
    }

    /// Returns the next line on standard output; `None` at its end.
    fn next(&self) -> Option<String> {
        match self.lines.recv_timeout(LIMIT) {
            Err(RecvTimeoutError::Timeout) => panic!("never: a line"),
            line => line.ok(),
        }
    }

    fn signal(&self, number: Signal) {
        signal(&self.child, number);
    }

    /// Waits for the end, and returns the exit status.
    fn end(mut self) -> Option<i32> {
        until("the end of the program", || self.child.try_wait().unwrap().is_some());
        self.child.wait().unwrap().code()
    }

    /// Waits for the end, and returns the lines that standard error gets when it is read.
    fn end_and_tell(mut self) -> (Option<i32>, Vec<String>) {
        let mut told = self.told.try_clone().unwrap();
        let telling = thread::spawn(move || {
            let mut text = String::new();
            told.read_to_string(&mut text).unwrap();
            text.trim_start_matches('.').lines().map(ToOwned::to_owned).collect()
        });
        until("the end of the program", || self.child.try_wait().unwrap().is_some());
        (self.child.wait().unwrap().code(), telling.join().unwrap())
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        let _ended = self.child.kill();
    }
}

/// Waits until a thread of a process writes to a stream that is not read.
fn is_blocked(process: u32, stream: u32) {
    let writes = |task: std::io::Result<std::fs::DirEntry>| {
        let call = std::fs::read_to_string(task.unwrap().path().join("syscall")).unwrap_or_default();
        call.split(' ').nth(1) == Some(&format!("{stream:#x}")) && call.starts_with(WRITE)
    };
    let tasks = format!("/proc/{process}/task");
    until("a write that blocks", || std::fs::read_dir(&tasks).is_ok_and(|mut tasks| tasks.any(writes)));
}

/// The start of a write in `/proc/PID/syscall`.
const WRITE: &str = if cfg!(target_arch = "x86_64") { "1 " } else { "64 " };
const STDOUT: u32 = 1;
const STDERR: u32 = 2;

/// Prints a line when it is asked to stop. Its shell reports the end of `sleep` on its own standard error.
const STOPS: &str = "exec 2>/dev/null; trap 'echo stopped; exit 3' TERM; echo started; while :; do sleep 0.05; done";

fn stops(words: &[&'static str]) -> Vec<&'static str> {
    [words, &["--", "sh", "-c", STOPS]].concat()
}

#[test]
fn full_standard_error_does_not_delay_the_stop_of_a_command_that_lost_its_grant() {
    for command in [&["lock", "/lock"][..], &["elect", "--once", "/lock"], &["barrier", "hold", "/lock"]] {
        let server = TestingServer::start().unwrap();
        let stuck = Stuck::start(&server.connect_string(), &stops(command));
        assert_eq!(stuck.next().unwrap(), "started");
        assert!(server.kill_session(server.sessions()[0]));
        assert_eq!(stuck.next().unwrap(), "stopped", "{command:?}");
        assert_eq!(stuck.end(), Some(74), "{command:?}");
    }
}

#[test]
fn full_standard_error_does_not_delay_the_kill_of_a_command_that_ignores_the_loss() {
    let server = TestingServer::start().unwrap();
    let ignores = "trap '' TERM; echo started; while :; do sleep 0.05; done";
    let lock = [&["lock"], SHORT, &["/lock", "--", "sh", "-c", ignores]].concat();
    let stuck = Stuck::start(&server.connect_string(), &lock);
    assert_eq!(stuck.next().unwrap(), "started");
    assert!(server.kill_session(server.sessions()[0]));
    assert_eq!((stuck.next(), stuck.end()), (None, Some(74)));
}

#[test]
fn full_standard_error_does_not_delay_the_stop_of_a_command_in_a_silence() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let stuck = Stuck::start(&proxy.connect_string(), &stops(&[&["lock"], SHORT, &["/lock"]].concat()));
    assert_eq!(stuck.next().unwrap(), "started");
    proxy.partition();
    assert_eq!(stuck.next().unwrap(), "stopped");
    assert_eq!(stuck.end(), Some(74));
}

#[test]
fn full_standard_error_does_not_delay_a_revocation() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let stuck = Stuck::start(&servers, &stops(&["lock", "--revocable", "/lock"]));
    assert_eq!(stuck.next().unwrap(), "started");
    let node = format!("/lock/{}", server.children("/lock").unwrap()[0]);
    assert_eq!(run(&servers, &["revoke", &node]).status.code(), Some(0));
    assert_eq!(stuck.next().unwrap(), "stopped");
    assert_eq!((stuck.end(), nodes(&server)), (Some(73), 0));
}

#[test]
fn full_standard_error_does_not_keep_signals_from_the_command() {
    let server = TestingServer::start().unwrap();
    for command in [
        &["lock", "/lock"][..],
        &["elect", "/election"],
        &["join", "/group"],
        &["barrier", "hold", "/barrier"],
        &["barrier", "enter", "--members", "1", "--leave-timeout", "0", "/start"],
    ] {
        let stuck = Stuck::start(&server.connect_string(), &stops(command));
        assert_eq!(stuck.next().unwrap(), "started", "{command:?}");
        // Its answer is a line on standard error.
        stuck.signal(Signal::TSTP);
        is_blocked(stuck.child.id(), STDERR);
        stuck.signal(Signal::TERM);
        assert_eq!(stuck.next().unwrap(), "stopped", "{command:?}");
        assert_eq!(stuck.end(), Some(3), "{command:?}");
    }
}

#[test]
fn waiter_with_a_full_standard_error_uses_its_turn() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (holder, _out, _) = begin(&servers, &[], "echo; exec sleep 600");
    let stuck = Stuck::start(&servers, &["lock", "-v", "/lock", "--", "echo", "granted"]);
    is_blocked(stuck.child.id(), STDERR);
    let third = curator(&servers, &["lock", "/lock", "--", "true"]).spawn().unwrap();
    until("a third contender", || nodes(&server) == 3);
    signal(&holder, Signal::TERM);
    assert_eq!(stuck.next().unwrap(), "granted");
    assert_eq!((end(third).0, end(holder).0), (Some(0), Some(143)));
    let (code, told) = stuck.end_and_tell();
    assert_eq!((code, told.len()), (Some(0), 2), "{told:?}");
    assert!(told[0].starts_with("curator: waits for /lock: 1 ahead"), "{told:?}");
    assert!(told[1].starts_with("curator: has /lock after "), "{told:?}");
}

#[test]
fn signal_ends_a_waiter_with_a_full_standard_error() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (holder, _out, _) = begin(&servers, &[], "echo; exec sleep 600");
    assert_eq!(run(&servers, &["barrier", "set", "/barrier"]).status.code(), Some(0));
    assert_eq!(run(&servers, &["latch", "set", "/latch", "1"]).status.code(), Some(0));
    for command in [
        &["lock", "-v", "/lock", "--", "true"][..],
        &["barrier", "enter", "-v", "--members", "2", "/start", "--", "true"],
        &["barrier", "wait", "-v", "/barrier"],
        &["latch", "wait", "-v", "/latch"],
        &["join", "/group"],
    ] {
        let stuck = Stuck::start(&servers, command);
        is_blocked(stuck.child.id(), STDERR);
        stuck.signal(Signal::INT);
        assert_eq!(stuck.end(), Some(130), "{command:?}");
    }
    signal(&holder, Signal::TERM);
    assert_eq!(end(holder).0, Some(143));
}

const CTRL_S: &str = "\u{13}";

/// Ctrl-S stops the output of a terminal until Ctrl-Q.
#[test]
fn waiter_on_a_stopped_terminal_uses_its_turn() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (holder, _out, _) = begin(&servers, &[], "echo; exec sleep 600");
    let granted = tempfile::NamedTempFile::new().unwrap();
    let script = format!("echo $PPID > {}", granted.path().display());
    let mut terminal = Terminal(terminal(&server, "", &script));
    until("a waiter", || nodes(&server) == 2);
    type_in(&mut terminal.0, CTRL_S);
    let waiter = child_of(terminal.0.id());
    is_blocked(waiter, STDERR);
    signal(&holder, Signal::TERM);
    assert_eq!(end(holder).0, Some(143));
    let pid = || std::fs::read_to_string(granted.path()).unwrap();
    until("the command of the waiter", || pid().trim() == waiter.to_string());
    assert_eq!(end(curator(&servers, &["lock", "/lock", "--", "true"]).spawn().unwrap()).0, Some(0));
}

/// Returns the process that a process has started.
fn child_of(process: u32) -> u32 {
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap();
    children.trim().parse().unwrap()
}

/// A terminal that ends with its test.
struct Terminal(Child);

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ended = self.0.kill();
    }
}

#[tokio::test]
async fn output_is_complete_for_a_slow_reader() {
    let server = TestingServer::start().unwrap();
    let client = writer(&server);
    create(&client, "/config", "x".repeat(300_000).as_bytes()).await;
    client.close().await;
    let mut child = curator(&server.connect_string(), &["watch", "--once", "/config"]).spawn().unwrap();
    is_blocked(child.id(), STDOUT);
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(
        (text.matches('x').count() - "mzxid".matches('x').count(), end(child)),
        (300_000, (Some(0), String::new()))
    );
}

#[tokio::test]
async fn signal_ends_a_program_whose_output_is_not_read() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (holder, _out, _) = begin(&servers, &[], "echo; exec sleep 600");
    let (member, _told) = joined(&servers, &[]);
    assert_eq!(run(&servers, &["latch", "set", "/latch", "9"]).status.code(), Some(0));
    for command in [
        &["ls", "/lock"][..],
        &["ls", "--watch", "/lock"],
        &["status", "/lock"],
        &["leader", "--watch", "/election"],
        &["members", "/group"],
        &["members", "--watch", "/group"],
        &["watch", "/group"],
        &["watch", "--json", "/nowhere"],
        &["count", "--add", "1", "/count"],
        &["count", "--id", "/ids"],
        &["barrier", "status", "/barrier"],
        &["latch", "status", "/latch"],
        &["latch", "down", "/latch"],
        &["serve", "--listen", "127.0.0.1:0"],
    ] {
        let (_reader, writer) = full_pipe();
        let child = curator(&servers, command).stdout(writer).spawn().unwrap();
        is_blocked(child.id(), STDOUT);
        signal(&child, Signal::TERM);
        let code = if command[0] == "serve" { 0 } else { 143 };
        assert_eq!(end(child).0, Some(code), "{command:?}");
    }
    for child in [holder, member] {
        signal(&child, Signal::TERM);
        assert_eq!(end(child).0, Some(143));
    }
}

#[cfg(curator_mutants)]
#[test]
fn message_that_waits_for_its_reader_is_found() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (holder, _out, _) = begin(&servers, &[], "echo; exec sleep 600");
    let lock = ["lock", "-v", "/lock", "--", "echo", "granted"];
    let stuck = Stuck::start_with(&servers, &lock, &[("CURATOR_MUTANT", "print-in-the-loop")]);
    is_blocked(stuck.child.id(), STDERR);
    signal(&holder, Signal::TERM);
    assert_eq!(end(holder).0, Some(143));
    until("the next holder", || nodes(&server) == 1);
    assert_eq!(run(&servers, &["lock", "--timeout", "1s", "/lock", "--", "true"]).status.code(), Some(75));
    assert!(stuck.lines.try_recv().is_err());
}

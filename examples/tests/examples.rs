//! Runs every example as a user does: as its README says, on a server that is there, interrupted, and without a server.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use curator_framework::{CuratorFramework, RetryOneTime};
use curator_recipes::{InterProcessLock, InterProcessMutex, InterProcessReadWriteLock};
use curator_test::TestingServer;

const ALL: [&str; 18] = [
    "throttle",
    "leasing",
    "flash_sale",
    "read_write",
    "reentrant",
    "multi_lock",
    "revocation",
    "leader",
    "group",
    "config_cache",
    "registry",
    "services",
    "queue",
    "batch_ids",
    "start_together",
    "observe",
    "connection_states",
    "zookeeper_async",
];

/// Cargo builds the examples beside the tests.
fn example(name: &str) -> Command {
    let test = std::env::current_exe().unwrap();
    let program: PathBuf = test.parent().unwrap().parent().unwrap().join("examples").join(name);
    assert!(program.exists(), "{} is missing: build with --all-targets", program.display());
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A command of the README and what it says that is printed.
struct Block {
    command: String,
    numbers_vary: bool,
    printed: String,
}

fn readme() -> Vec<Block> {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let mut blocks = Vec::new();
    for block in text.split("```console").skip(1) {
        let (info, rest) = block.split_once('\n').unwrap();
        let (body, _) = rest.split_once("```").unwrap();
        let (command, printed) = body.split_once('\n').unwrap();
        let command = command.strip_prefix("$ cargo run -q --example ").expect(command).to_owned();
        blocks.push(Block { command, numbers_vary: info.contains("numbers vary"), printed: printed.to_owned() });
    }
    blocks
}

fn without_numbers(text: &str) -> String {
    let parts: Vec<&str> = text.split(|c: char| c.is_ascii_digit()).filter(|part| !part.is_empty()).collect();
    parts.join("#")
}

#[test]
fn the_readme_shows_what_is_printed() {
    let blocks = readme();
    for name in ALL {
        assert!(blocks.iter().any(|block| block.command.starts_with(name)), "{name} is not in the README");
    }
    let check = |block: Block| {
        let (command, tail) = match block.command.strip_suffix(" | tail -n 1") {
            Some(command) => (command, true),
            None => (block.command.as_str(), false),
        };
        let mut words = command.split_whitespace().filter(|word| *word != "--");
        let output = example(words.next().unwrap()).args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let mut printed = stdout(&output);
        if tail {
            printed = format!("{}\n", printed.lines().last().unwrap());
        }
        if block.numbers_vary {
            assert_eq!(without_numbers(&printed), without_numbers(&block.printed), "{}", block.command);
        } else {
            assert_eq!(printed, block.printed, "{}", block.command);
        }
    };
    std::thread::scope(|scope| {
        for block in blocks {
            scope.spawn(|| check(block));
        }
    });
}

#[test]
fn they_are_short() {
    for name in ALL.iter().filter(|name| !["throttle", "observe"].contains(name)) {
        let file = format!("{}/{name}.rs", env!("CARGO_MANIFEST_DIR"));
        let lines = std::fs::read_to_string(&file).unwrap().lines().count();
        assert!(lines < 120, "{file} has {lines} lines");
    }
}

#[test]
fn each_explains_itself_and_says_in_one_line_that_there_is_no_server() {
    std::thread::scope(|scope| {
        for name in ALL {
            scope.spawn(move || {
                let help = example(name).arg("--help").output().unwrap();
                assert_eq!(help.status.code(), Some(0), "{name}");
                assert!(stdout(&help).contains("--connect <CONNECT>"), "{help:?}");
                let output = example(name).args(["--connect", "127.0.0.1:1"]).output().unwrap();
                assert_eq!(output.status.code(), Some(2), "{name}: {output:?}");
                let text = stderr(&output);
                assert!(text.starts_with("error: ") && text.contains("127.0.0.1:1"), "{text}");
                assert_eq!((text.lines().count(), stdout(&output).as_str()), (1, ""), "{name}");
            });
        }
    });
}

/// It may only be slow, so it has some seconds.
#[test]
fn a_server_that_listens_and_says_nothing_is_named() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    std::thread::scope(|scope| {
        for name in ["throttle", "reentrant"] {
            let address = &address;
            scope.spawn(move || {
                let output = example(name).args(["--connect", address]).output().unwrap();
                assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""), "{name}: {output:?}");
                let text = stderr(&output);
                assert!(text.starts_with("error: ") && text.contains(&format!(" {address}: no answer")), "{text}");
                assert_eq!(text.lines().count(), 1, "{text}");
            });
        }
    });
}

#[test]
fn examples_leave_no_node_on_a_given_server() {
    let server = TestingServer::start().unwrap();
    std::thread::scope(|scope| {
        for name in ALL {
            let connect = server.connect_string();
            scope.spawn(move || {
                let mut command = example(name);
                command.args(["--connect", &connect]);
                if name == "observe" {
                    command.args(["--once", "--path", "/examples"]);
                }
                let output = command.output().unwrap();
                assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()), "{name}");
            });
        }
    });
    soon("no session", || server.sessions().is_empty());
    for gone in ["flash_sale/stock", "read_write/config", "leader/log", "config_cache", "batch_ids", "queue"] {
        assert!(!server.exists(&format!("/examples/{gone}")), "{gone}");
    }
}

fn soon(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < Duration::from_secs(30), "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn interrupt(child: std::process::Child) -> Output {
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT).unwrap();
    child.wait_with_output().unwrap()
}

/// Another client has the lock, so that the example waits until it is interrupted.
#[tokio::test]
async fn ctrl_c_leaves_nothing_in_the_queue() {
    let server = TestingServer::start().unwrap();
    let client = CuratorFramework::new_client(server.connect_string(), RetryOneTime::new(Duration::ZERO)).unwrap();
    client.start().unwrap();
    let mutex = |path: &str| InterProcessMutex::new(client.clone(), path).unwrap();
    let write = InterProcessReadWriteLock::new(client.clone(), "/examples/read_write/lock").unwrap().write_lock();
    let locks: [(&str, &str, Box<dyn InterProcessLock>); 8] = [
        ("flash_sale", "/examples/flash_sale/lock", Box::new(mutex("/examples/flash_sale/lock"))),
        ("read_write", "/examples/read_write/lock", Box::new(write)),
        ("reentrant", "/examples/reentrant", Box::new(mutex("/examples/reentrant"))),
        ("multi_lock", "/examples/multi_lock/ann", Box::new(mutex("/examples/multi_lock/ann"))),
        ("revocation", "/examples/revocation", Box::new(mutex("/examples/revocation"))),
        ("leader", "/examples/leader/election", Box::new(mutex("/examples/leader/election"))),
        ("connection_states", "/examples/connection_states", Box::new(mutex("/examples/connection_states"))),
        ("zookeeper_async", "/examples/zookeeper_async", Box::new(mutex("/examples/zookeeper_async"))),
    ];
    for (name, path, lock) in locks {
        let guard = lock.acquire().await.unwrap();
        let child = example(name).args(["--connect", &server.connect_string()]).spawn().unwrap();
        let begin = Instant::now();
        while server.children(path).unwrap().len() < 2 {
            assert!(begin.elapsed() < Duration::from_secs(30), "{name} does not come");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let output = interrupt(child);
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(130), "interrupted\n"), "{name}");
        assert_eq!(server.children(path).unwrap(), [guard.node_name()], "{name}");
        // A client behind a proxy is closed by way of it, which may end first.
        soon(name, || server.sessions().len() == 1);
        assert!(guard.release().await.unwrap().is_released());
    }
    client.close().await;
}

#[test]
fn ctrl_c_ends_those_that_have_something_or_only_look() {
    let server = TestingServer::start().unwrap();
    let lines = [
        ("leasing", "cleo gets one at once"),
        ("group", "three members"),
        ("config_cache", "the service starts"),
        ("queue", "200 jobs are in the queue"),
        ("batch_ids", "ann, ben, cleo take 250 ids"),
        ("start_together", "round 2: all are inside"),
        ("observe", "/examples/observe: 0 at it"),
    ];
    for (name, line) in lines {
        let mut child = example(name).args(["--connect", &server.connect_string()]).spawn().unwrap();
        // What is printed later has a reader until the end.
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.by_ref().map_while(Result::ok).any(|seen| seen.starts_with(line)), "{name}");
        let output = interrupt(child);
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(130), "interrupted\n"), "{name}");
        soon(name, || server.sessions().is_empty());
    }
    assert_eq!(server.children("/examples/leasing/pool/leases"), Some(Vec::new()));
}

#[test]
fn throttle_draws_each_lease_with_its_holders() {
    let file = std::env::temp_dir().join(format!("curator-throttle-{}.svg", std::process::id()));
    let options = ["--permits", "2", "--jobs", "7", "--work-ms", "20", "--svg", file.to_str().unwrap()];
    assert_eq!(example("throttle").args(options).output().unwrap().status.code(), Some(0));
    let svg = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
    assert_eq!(svg.matches("<g class=\"hold\">").count(), 7);
    assert_eq!((svg.matches(">lease 1<").count(), svg.matches(">lease 3<").count()), (1, 0));
    assert_eq!(svg.matches("class=\"queue\"").count(), 1);
    let output = example("throttle").args(["--svg", "/no/such/folder/x.svg"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).starts_with("error: cannot write /no/such/folder/x.svg: "), "{output:?}");
}

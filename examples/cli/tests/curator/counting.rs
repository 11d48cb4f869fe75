//! `count`: a counter that processes share, and unique numbers.

use std::collections::BTreeSet;
use std::process::{Child, Output};
use std::time::Duration;

use curator_test::wire::OpCode;
use curator_test::{FaultProxy, TestingServer, unique_root};
use rustix::process::Signal;
use serde_json::json;

use crate::advice::create;
use crate::showing::parsed;
use crate::{apache, begin, curator, end, run, signal, stderr, stdout, until};

/// Runs `curator count` for `/count`. Returns the status, and the text on standard output and standard error.
fn count(connect: &str, options: &[&str]) -> (Option<i32>, String, String) {
    seen(&run(connect, &[&["count"], options, &["/count"]].concat()))
}

fn seen(output: &Output) -> (Option<i32>, String, String) {
    (output.status.code(), stdout(output), stderr(output))
}

fn printed(text: &str) -> (Option<i32>, String, String) {
    (Some(0), format!("{text}\n"), String::new())
}

fn refused(code: i32, text: &str) -> (Option<i32>, String, String) {
    (Some(code), String::new(), format!("curator: {text}\n"))
}

#[test]
fn counter_is_read_and_changed() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let no_counter = "no counter /count: --add or --set creates it";
    assert_eq!(count(&servers, &[]), refused(1, no_counter));
    assert_eq!(count(&servers, &["--cas", "0", "1"]), refused(1, no_counter));
    assert!(!server.exists("/count"));
    assert_eq!(count(&servers, &["--add", "5"]), printed("5"));
    assert_eq!(count(&servers, &["--add", "-7"]), printed("-2"));
    assert_eq!(count(&servers, &["--set", "40"]), printed("40"));
    assert_eq!(count(&servers, &[]), printed("40"));
    assert_eq!(count(&servers, &["--cas", "40", "-41"]), printed("-41"));
    assert_eq!(count(&servers, &["--cas", "40", "42"]), refused(75, "/count is -41, not 40"));
    assert_eq!(count(&servers, &["--cas", "40", "42", "-E", "9"]), refused(9, "/count is -41, not 40"));
    // Java's bytes.
    assert_eq!(server.data("/count"), Some((-41_i64).to_be_bytes().to_vec()));
    assert_eq!(server.children("/count"), Some(Vec::new()));
    until("the sessions are closed", || server.sessions().is_empty());
}

#[test]
fn counter_prints_json() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let json = |options: &[&str]| {
        let (code, out, told) = count(&servers, &[&["--json"], options].concat());
        assert_eq!((told.as_str(), out.lines().count()), ("", 1), "{out}");
        (code.unwrap(), parsed(&out))
    };
    let missing = json!({"path": "/count", "value": null, "reason": "no counter /count: --add or --set creates it"});
    assert_eq!(json(&[]), (1, missing));
    assert_eq!(json(&["--add", "3"]), (0, json!({"path": "/count", "before": 0, "value": 3})));
    assert_eq!(json(&[]), (0, json!({"path": "/count", "value": 3})));
    assert_eq!(json(&["--set", "4"]), (0, json!({"path": "/count", "value": 4})));
    assert_eq!(json(&["--cas", "4", "5"]), (0, json!({"path": "/count", "before": 4, "value": 5})));
    let differs = json!({"path": "/count", "value": 5, "reason": "/count is 5, not 4"});
    assert_eq!(json(&["--cas", "4", "6"]), (75, differs));
}

#[test]
fn counter_of_four_bytes_is_that_of_integers() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let integer = |options: &[&str]| count(&servers, &[&["--integer"], options].concat());
    assert_eq!(integer(&["--set", "2147483646"]), printed("2147483646"));
    assert_eq!(integer(&["--add", "1"]), printed("2147483647"));
    assert_eq!(server.data("/count"), Some(i32::MAX.to_be_bytes().to_vec()));
    let (code, _, told) = integer(&["--add", "1"]);
    assert_eq!((code, told.as_str()), (Some(70), "curator: 2147483647 plus 1 does not fit into the counter /count\n"));
    let too_large = "2147483648 does not fit into a counter of 4 bytes";
    for change in [&["--set", "2147483648"][..], &["--add", "2147483648"], &["--cas", "2147483648", "1"]] {
        assert_eq!(integer(change), refused(2, too_large), "{change:?}");
    }
    assert_eq!(integer(&[]), printed("2147483647"));
    // The size tells the two kinds apart.
    let other = "the data of /count is not a number: it has 4 bytes, not 8: use --integer";
    for change in [&[][..], &["--add", "1"], &["--cas", "1", "2"]] {
        assert_eq!(count(&servers, change), refused(2, other), "{change:?}");
    }
    assert_eq!(count(&servers, &["--set", "1"]), refused(2, &format!("{other}; --force overwrites it")));
    assert_eq!(server.data("/count"), Some(i32::MAX.to_be_bytes().to_vec()));
    assert_eq!(count(&servers, &["--set", "1", "--force"]), printed("1"));
    let other = "the data of /count is not a number: it has 8 bytes, not 4: leave --integer out";
    assert_eq!(integer(&["--add", "1"]), refused(2, other));
}

#[tokio::test]
async fn set_overwrites_other_data_only_by_force() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    create(&server, &["/count"]).await;
    let client = crate::watching::writer(&server);
    client.set_data().for_path("/count", "important config").await.unwrap();
    client.close().await;
    let (code, out, told) = count(&servers, &["--set", "3"]);
    assert_eq!((code, out.as_str()), (Some(2), ""), "{told}");
    assert!(told.contains("it has 16 bytes, not 8") && told.ends_with("; --force overwrites it\n"), "{told}");
    assert_eq!(server.data("/count"), Some(b"important config".to_vec()));
    assert_eq!(count(&servers, &["--add", "3", "--force"]).0, Some(2), "--force needs --set");
    assert_eq!(count(&servers, &["--set", "3", "--force"]), printed("3"));
    assert_eq!(count(&servers, &[]), printed("3"));
}

#[test]
fn each_of_many_processes_counts_once() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let start = || curator(&servers, &["count", "--add", "1", "/count"]).spawn().unwrap();
    let many: Vec<Child> = (0..8).map(|_| start()).collect();
    let values: BTreeSet<String> = many.into_iter().map(|child| seen(&child.wait_with_output().unwrap()).1).collect();
    assert_eq!(values, (1..=8).map(|value| format!("{value}\n")).collect());
    assert_eq!(count(&servers, &[]), printed("8"));
}

#[test]
fn change_whose_reply_is_lost_counts_once() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    for value in 1..=2 {
        proxy.drop_reply(OpCode::Multi, 1);
        assert_eq!(count(&proxy.connect_string(), &["--add", "1"]), printed(&value.to_string()));
        assert_eq!(proxy.faults_done(), value);
    }
    assert_eq!(count(&server.connect_string(), &[]), printed("2"));
}

#[test]
fn change_of_unknown_outcome_has_a_status_of_its_own() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    assert_eq!(count(&server.connect_string(), &["--set", "1"]), printed("1"));
    // The second transaction is the change. It is applied, its reply lost, its session ended, and the value changed again:
    // nothing shows the change.
    proxy.drop_reply(OpCode::Multi, 2);
    // Time to refuse the next connection before the reply is lost.
    proxy.latency(Duration::from_millis(100));
    let child = curator(&proxy.connect_string(), &["count", "--add", "1", "/count"]).spawn().unwrap();
    until("a connection", || proxy.connections() == 1);
    proxy.refuse();
    until("a lost reply", || proxy.faults_done() == 1);
    assert!(server.kill_session(server.sessions()[0]));
    assert_eq!(count(&server.connect_string(), &["--add", "1"]), printed("3"));
    proxy.accept();
    let (code, told) = end(child);
    let text = "; the value may have been changed: read it before you repeat the command\n";
    assert!(code == Some(76) && told.ends_with(text), "{told}");
    assert_eq!(count(&server.connect_string(), &[]), printed("3"));
}

#[test]
fn unique_numbers_are_unique() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let start = || curator(&servers, &["count", "--id=20", "/ids"]).spawn().unwrap();
    let many: Vec<Child> = (0..4).map(|_| start()).collect();
    let mut ids = BTreeSet::new();
    for child in many {
        let (code, out, told) = seen(&child.wait_with_output().unwrap());
        assert_eq!((code, told.as_str()), (Some(0), ""));
        let own: Vec<u64> = out.lines().map(|line| line.parse().unwrap()).collect();
        assert!(own.len() == 20 && own.is_sorted(), "{own:?}");
        ids.extend(own);
    }
    assert_eq!(ids.len(), 80);
    let next = stdout(&run(&servers, &["count", "--id", "/ids"]));
    assert!(next.trim().parse::<u64>().unwrap() > *ids.last().unwrap(), "{next}");
    let seen = parsed(&stdout(&run(&servers, &["count", "--json", "--id=2", "/ids"])));
    assert_eq!((seen["path"].as_str(), seen["ids"].as_array().unwrap().len()), (Some("/ids"), 2), "{seen}");
}

#[tokio::test]
async fn what_cannot_be_counted_is_refused() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (holder, _out, _) = begin(&servers, &[], "echo; exec sleep 600");
    let text = "/lock is a mutex with contenders: use curator lock, or another path";
    assert_eq!(seen(&run(&servers, &["count", "--add", "1", "/lock"])), refused(2, text));
    create(&server, &["/config/port"]).await;
    for arguments in [
        &["relative"][..],
        &["--add", "many", "/count"],
        &["--add", "9223372036854775808", "/count"],
        &["--add", "1", "--set", "1", "/count"],
        &["--cas", "1", "/count"],
        &["--id", "--add", "1", "/count"],
        &["--id=0", "/count"],
        &["--id", "--integer", "/count"],
        &[],
    ] {
        let output = run(&servers, &[&["count"], arguments].concat());
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""), "{arguments:?}");
    }
    let output = run(&format!("{servers}/prod"), &["count", "--add", "1", "/count"]);
    let text = "the chroot /prod does not exist on the servers: create it, or correct the connect string";
    assert_eq!(seen(&output), refused(2, text));
    let output = run("127.0.0.1:1", &["--connect-timeout", "300ms", "count", "--add", "1", "/count"]);
    assert_eq!(output.status.code(), Some(69), "{output:?}");
    let output = run(&servers, &["count", "--add", "1", "--acl", "creator", "/count"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let auth = ["--auth", "digest:me:secret", "count", "--add", "1", "--acl", "creator", "/count"];
    assert_eq!(seen(&run(&servers, &auth)), printed("1"));
    assert_eq!(count(&servers, &[]).0, Some(77));
    assert_eq!(count(&servers, &["--add", "1"]).0, Some(77));
    signal(&holder, Signal::TERM);
    assert_eq!(end(holder).0, Some(143));
}

#[test]
fn count_works_on_apache() {
    let (servers, _server) = apache();
    let path = unique_root("curator-count");
    for value in 1..=2 {
        assert_eq!(seen(&run(&servers, &["count", "--add", "1", &path])), printed(&value.to_string()));
    }
    assert_eq!(run(&servers, &["count", "--id=3", &format!("{path}-ids")]).status.code(), Some(0));
}

//! Habits of operators, and mistakes that cost time.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::Stdio;

use curator_test::{FaultProxy, TestingServer};
use rustix::process::Signal;

use crate::advice::create;
use crate::closed::shell;
use crate::{begin, curator, end, run, signal, stderr, stdout, until};

#[test]
fn revoke_of_a_path_names_the_way_to_its_nodes() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (holder, _out, _) = begin(&servers, &[], "echo; exec sleep 600");
    let output = run(&servers, &["revoke", "/lock"]);
    let hint = "; curator ls /lock lists the nodes of a lock\n";
    assert!(output.status.code() == Some(2) && stderr(&output).ends_with(hint), "{output:?}");
    let output = run(&servers, &["revoke", "/election/x-latch-0000000000"]);
    assert!(output.status.code() == Some(2) && stderr(&output).contains("--force deletes the node"), "{output:?}");
    let help = stdout(&run(&servers, &["revoke", "--help"]));
    for part in ["--revocable", "overwrites", "Exit status:", "the answer was no"] {
        assert!(help.contains(part), "{part}: {help}");
    }
    signal(&holder, Signal::TERM);
    assert_eq!(end(holder).0, Some(143));
}

#[tokio::test]
async fn digest_that_may_be_wrong_is_named() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let output = run(&servers, &["--auth", "digest:bob", "ls", "/lock"]);
    let text = "curator: credentials for digest are digest:user:password\n";
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(2), text));
    let creator = ["--auth", "digest:bob:right", "count", "--add", "1", "--acl", "creator", "/count"];
    assert_eq!(run(&servers, &creator).status.code(), Some(0));
    let output = run(&servers, &["--auth", "digest:bob:wrong", "count", "/count"]);
    let hint = "; the credentials are digest:bob, and servers do not check the password of a digest\n";
    assert!(output.status.code() == Some(77) && stderr(&output).ends_with(hint), "{output:?}");
}

#[test]
fn command_for_each_line_has_a_place_for_it() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    for arguments in [
        &["semaphore", "--each", "/pool", "--", "echo"][..],
        &["queue", "work", "--input", "argument", "/queue", "--", "echo"],
    ] {
        let output = run(&servers, arguments);
        assert!(output.status.code() == Some(2) && stderr(&output).contains("the command has no {}"), "{output:?}");
    }
}

#[test]
fn command_gets_the_servers_of_the_option() {
    let server = TestingServer::start().unwrap();
    let mut command =
        curator("127.0.0.1:1", &["--connect", &server.connect_string(), "lock", "/lock", "--", "sh", "-c"]);
    let output = command.arg("\"$CURATOR\" status /lock").output().unwrap();
    assert!(output.status.code() == Some(3) && stdout(&output).starts_with("/lock is held"), "{output:?}");
}

#[test]
fn conflict_with_the_status_zero_is_silent() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (holder, _out, _) = begin(&servers, &[], "echo; exec sleep 600");
    let output = run(&servers, &["lock", "-n", "-E", "0", "/lock", "--", "true"]);
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    let output = run(&servers, &["lock", "-n", "-E", "0", "--verbose", "/lock", "--", "true"]);
    assert!(output.status.code() == Some(0) && stderr(&output).contains("another contender has /lock"), "{output:?}");
    assert_eq!(stderr(&run(&servers, &["queue", "take", "-w", "0", "-E", "0", "/queue"])), "");
    signal(&holder, Signal::TERM);
    assert_eq!(end(holder).0, Some(143));
}

#[test]
fn habits_of_flock_are_answered() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    for arguments in [
        &["lock", "--wait", "1", "/lock", "--", "true"][..],
        &["lock", "-x", "/lock", "--", "true"],
        &["elect", "--once", "--wait", "9", "/e", "--", "true"],
    ] {
        let output = run(&servers, arguments);
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{arguments:?}");
    }
    for (arguments, hint) in [
        (&["lock", "-s", "/lock", "--", "true"][..], "curator read"),
        (&["lock", "-u", "/lock"], "curator revoke"),
        (&["unlock", "/lock"], "curator revoke"),
        (&["release", "/lock"], "curator revoke"),
        (&["lock", "-o", "/lock", "--", "true"], "not needed"),
        (&["lock", "/lock", "echo", "two words"], "curator lock /lock -- echo 'two words'"),
    ] {
        let output = run(&servers, arguments);
        assert!(output.status.code() == Some(2) && stderr(&output).contains(hint), "{arguments:?} {output:?}");
        assert_eq!(stderr(&output).lines().count(), 1, "{output:?}");
    }
    let output = run(&servers, &["lock", "/lock", "-c", "echo $0", "a", "b"]);
    assert!(output.status.code() == Some(2) && !stderr(&output).contains("must stand behind"), "{output:?}");
}

#[test]
fn queue_that_does_not_exist_is_not_purged() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    for command in [&["purge", "--yes"][..], &["purge", "--yes", "--dead-letters"], &["retry-dead"]] {
        let output = run(&servers, &[&["queue"], command, &["/unknown"]].concat());
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""), "{command:?}");
        assert_eq!(stderr(&output), "curator: no queue /unknown: put an item first, or correct the path\n");
    }
}

#[test]
fn outage_is_told_while_a_lock_is_watched() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let (holder, _out, _) = begin(&server.connect_string(), &[], "echo; exec sleep 600");
    let mut watcher = curator(&proxy.connect_string(), &["ls", "--watch", "/lock"]).spawn().unwrap();
    let mut told = BufReader::new(watcher.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut out = BufReader::new(watcher.stdout.take().unwrap());
    out.read_line(&mut String::new()).unwrap();
    proxy.refuse();
    proxy.reset();
    let line = told.next().unwrap();
    assert!(line.starts_with("curator: no connection: the locks above may have changed: "), "{line}");
    proxy.accept();
    assert_eq!(told.next().unwrap(), "curator: the connection is back");
    for child in [holder, watcher] {
        signal(&child, Signal::TERM);
        assert_eq!(end(child).0, Some(143));
    }
}

#[test]
fn lines_that_were_put_before_a_signal_are_counted() {
    let server = TestingServer::start().unwrap();
    let mut child = curator(&server.connect_string(), &["queue", "put", "--each", "/queue"]);
    let mut child = child.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(b"one\ntwo\n").unwrap();
    until("two items", || server.children("/queue").is_some_and(|items| items.len() == 2));
    // The reply to the second put may be on its way.
    signal(&child, Signal::TERM);
    let (code, told) = end(child);
    assert_eq!(code, Some(143));
    let counted = |lines| told == format!("curator: ended by TERM; {lines} lines were put before\n");
    assert!(counted(2) || counted(1), "{told}");
}

#[test]
fn change_that_cannot_be_printed_is_told() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    assert_eq!(run(&servers, &["latch", "set", "/latch", "2"]).status.code(), Some(0));
    for command in ["count --add 1 /count", "latch down /latch"] {
        let output = shell(&servers, &format!("\"$CURATOR\" {command} >/dev/full"));
        assert_eq!(output.status.code(), Some(76), "{output:?}");
        assert!(stderr(&output).ends_with("; the change was made, and gave 1\n"), "{output:?}");
    }
}

#[test]
fn long_data_is_cut_in_tables_alone() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let data = "ü".repeat(1000);
    let (holder, _out, _) = begin(&servers, &["--data", &data], "echo; exec sleep 600");
    for command in ["ls", "status"] {
        let text = stdout(&run(&servers, &[command, "/lock"]));
        assert!(text.contains(&format!("{}…", "ü".repeat(120))) && !text.contains(&"ü".repeat(121)), "{text}");
        assert!(stdout(&run(&servers, &[command, "--json", "/lock"])).contains(&data));
    }
    signal(&holder, Signal::TERM);
    assert_eq!(end(holder).0, Some(143));
}

#[tokio::test]
async fn slash_at_the_end_of_a_path_is_left_out() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    create(&server, &["/jobs"]).await;
    for command in [&["ls", "-r", "/jobs/"][..], &["ls", "-r", "/"], &["status", "/jobs/"]] {
        assert_eq!(run(&servers, command).status.code(), Some(0), "{command:?}");
    }
    for command in [&["ls"][..], &["revoke", "--force"]] {
        let output = run(&servers, command);
        assert!(output.status.code() == Some(2) && !stderr(&output).contains("<CONNECT>"), "{output:?}");
    }
}

#[test]
fn times_have_several_units() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    for time in ["1h30m", "1d", "1m0.5s", "2"] {
        assert_eq!(run(&servers, &["lock", "-w", time, "/lock", "--", "true"]).status.code(), Some(0), "{time}");
    }
    for time in ["1x", "h", "", "1h30", "30s1h"] {
        assert_eq!(run(&servers, &["lock", "-w", time, "/lock", "--", "true"]).status.code(), Some(2), "{time}");
    }
}

#[test]
fn item_that_is_too_large_is_called_an_item() {
    let server = TestingServer::start().unwrap();
    let mut child =
        curator(&server.connect_string(), &["queue", "put", "/queue"]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&vec![b'x'; 2_000_000]).unwrap();
    let (code, told) = end(child);
    assert!(code == Some(70) && told.starts_with("curator: the item has 2000000 bytes: "), "{told}");
}

#[test]
fn page_listens_at_a_name() {
    let server = TestingServer::start().unwrap();
    let mut child = curator(&server.connect_string(), &["serve", "--listen", "localhost:0", "/"]).spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    signal(&child, Signal::TERM);
    assert_eq!(end(child).0, Some(0));
    let output = run(&server.connect_string(), &["serve", "--listen", "8080", "/"]);
    assert!(output.status.code() == Some(2) && stderr(&output).contains("as 127.0.0.1:8080"), "{output:?}");
}

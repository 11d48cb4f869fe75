//! `service`: instances that are registered while a command runs, and what is shown of them.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use curator_discovery::{ServiceDiscovery, ServiceInstance};
use curator_framework::{CuratorFramework, RetryOneTime};
use curator_test::TestingServer;
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use crate::showing::parsed;
use crate::{curator, end, is_gone, run, signal, stderr, stdout, until};

fn register(connect: &str, options: &[&str], command: &[&str]) -> Child {
    let start = ["service", "register", "web", "--port", "8080", "--address", "10.0.0.7", "--id", "one"];
    curator(connect, &[&start, options, command].concat()).spawn().unwrap()
}

/// The instances of `web`, as JSON.
fn instances(connect: &str) -> Value {
    parsed(&stdout(&run(connect, &["service", "ls", "--json", "web"])))["instances"].clone()
}

fn is_registered(server: &TestingServer) -> bool {
    server.children("/services/web").is_some_and(|nodes| nodes == ["one"])
}

#[test]
fn an_instance_is_registered_while_the_command_runs() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let folder = tempfile::tempdir().unwrap();
    let stop = folder.path().join("stop");
    let script = format!(
        "echo $CURATOR_SERVICE_NAME $CURATOR_SERVICE_ID $CURATOR_SERVICE_PORT; until test -e {}; do sleep 0.01; done; exit 7",
        stop.display()
    );
    let child = register(&servers, &["--payload", r#"{"zone":"a"}"#], &["--", "sh", "-c", &script]);
    until("it is registered", || is_registered(&server));
    let instance = instances(&servers)[0].clone();
    assert_eq!(
        json!([instance["id"], instance["address"], instance["port"], instance["enabled"], instance["payload"]]),
        json!(["one", "10.0.0.7", 8080, true, { "zone": "a" }])
    );
    let text = stdout(&run(&servers, &["service", "ls", "web"]));
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["ID", "ADDRESS", "STATE", "SINCE", "PAYLOAD"]);
    assert_eq!(rows[1][..3], ["one", "10.0.0.7:8080", "enabled"]);
    assert_eq!(stdout(&run(&servers, &["service", "ls"])), "web\n");
    std::fs::write(stop, "").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stdout(&output)), (Some(7), "web one 8080\n".to_owned()), "{output:?}");
    assert!(stderr(&output).starts_with("curator: registered one at /services/web (session "), "{output:?}");
    assert_eq!(server.children("/services/web"), Some(Vec::new()));
    until("the sessions are closed", || server.sessions().is_empty());
}

#[test]
fn without_a_command_it_is_registered_until_a_signal() {
    let server = TestingServer::start().unwrap();
    let child = register(&server.connect_string(), &[], &[]);
    until("it is registered", || is_registered(&server));
    signal(&child, Signal::TERM);
    let (code, told) = end(child);
    assert_eq!(code, Some(143));
    assert!(told.ends_with("curator: ended by TERM\n"), "{told}");
    assert_eq!(server.children("/services/web"), Some(Vec::new()));
}

#[test]
fn a_command_is_registered_while_its_check_succeeds() {
    let server = TestingServer::start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let healthy = folder.path().join("healthy");
    let check = format!("echo looks >>{}; test -e {}", folder.path().join("looks").display(), healthy.display());
    let options = ["--check", &check, "--interval", "20ms", "--threshold", "2"];
    let mut child = register(&server.connect_string(), &options, &["--", "sleep", "60"]);
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let (mut lines, unregistered) = (Vec::new(), "curator: one is not registered");
    let looks = || std::fs::read_to_string(folder.path().join("looks")).unwrap_or_default().lines().count();
    until("it was checked", || looks() > 2);
    assert_eq!(server.children("/services/web").unwrap_or_default(), [""; 0], "it is not healthy");
    for _ in 0..2 {
        std::fs::write(&healthy, "").unwrap();
        until("it is registered", || is_registered(&server));
        std::fs::remove_file(&healthy).unwrap();
        until("it is unregistered", || server.children("/services/web") == Some(Vec::new()));
        // Its line follows the deletion.
        lines.extend(told.by_ref().take_while(|line| line != unregistered));
        lines.push(unregistered.to_owned());
    }
    signal(&child, Signal::TERM);
    lines.extend(told);
    assert_eq!(end(child).0, Some(143), "{lines:?}");
    lines.retain(|line| !line.contains("registered one at"));
    let failed = "curator: the check has failed 2 times in a row: exit status: 1";
    let once = ["curator: the check succeeds", failed, unregistered];
    assert_eq!(lines, [&[failed][..], &once, &once].concat());
}

#[test]
fn a_command_is_registered_while_it_answers_by_http() {
    let server = TestingServer::start().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/health", listener.local_addr().unwrap());
    let healthy = Arc::new(AtomicBool::new(true));
    let is_healthy = Arc::clone(&healthy);
    // It ends with the test's process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            assert!(line.starts_with("GET /health "), "{line}");
            let status = if is_healthy.load(Ordering::SeqCst) { "200 OK" } else { "503 Service Unavailable" };
            write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
        }
    });
    let options = ["--http", &url, "--interval", "100ms", "--threshold", "1"];
    let child = register(&server.connect_string(), &options, &[]);
    until("it is registered", || is_registered(&server));
    healthy.store(false, Ordering::SeqCst);
    until("it is unregistered", || server.children("/services/web") == Some(Vec::new()));
    signal(&child, Signal::INT);
    let (code, told) = end(child);
    assert_eq!(code, Some(130));
    assert!(told.contains("the check has failed: http status: 503"), "{told}");
}

#[test]
fn an_instance_waits_for_the_end_of_another_one_with_its_id() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let first = register(&servers, &[], &[]);
    until("it is registered", || is_registered(&server));
    let mut second = register(&servers, &[], &[]);
    let mut told = BufReader::new(second.stderr.take().unwrap());
    let mut line = String::new();
    told.read_line(&mut line).unwrap();
    assert!(line.starts_with("curator: /services/web has an instance one of session "), "{line}");
    signal(&first, Signal::TERM);
    end(first);
    line.clear();
    told.read_line(&mut line).unwrap();
    assert!(line.starts_with("curator: registered one at /services/web "), "{line}");
    signal(&second, Signal::TERM);
    told.read_to_string(&mut line).unwrap();
    assert_eq!(second.wait().unwrap().code(), Some(143));
}

#[tokio::test]
async fn instances_are_enabled_disabled_and_watched() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let mut watch = curator(&servers, &["service", "watch", "--json", "web"]).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut next = || parsed(&lines.next().unwrap().unwrap());
    let client = CuratorFramework::new_client(server.connect_string(), RetryOneTime::new(std::time::Duration::ZERO));
    let client = client.unwrap();
    client.start().unwrap();
    let discovery = ServiceDiscovery::new(client.clone(), "/services").unwrap();
    let instance = ServiceInstance::builder("web").id("two").address("10.0.0.8").port(80).build().unwrap();
    let registration = discovery.register(instance).await.unwrap();
    let added = next();
    assert_eq!(json!([added["change"], added["node"], added["instance"]["port"]]), json!(["added", "two", 80]));
    for (command, enabled) in [("disable", false), ("enable", true)] {
        let output = run(&servers, &["service", command, "web", "two"]);
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
        let updated = next();
        assert_eq!(json!([updated["change"], updated["instance"]["enabled"]]), json!(["updated", enabled]));
    }
    let output = run(&servers, &["service", "drain", "--time", "10ms", "web", "two"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(next()["instance"]["enabled"], json!(false));
    registration.unregister().await.unwrap();
    assert_eq!(next()["change"], json!("removed"));
    client.create().with_data("x").for_path("/services/web/three").await.unwrap();
    let broken = next();
    assert_eq!(json!([broken["change"], broken["node"]]), json!(["broken", "three"]));
    assert!(stdout(&run(&servers, &["service", "ls", "web"])).contains("broken"));
    let output = run(&servers, &["service", "disable", "web", "two"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("the service web has no instance two"), "{output:?}");
    let output = run(&servers, &["service", "enable", "web", "three"]);
    assert_eq!(output.status.code(), Some(70), "{output:?}");
    signal(&watch, Signal::TERM);
    watch.wait().unwrap();
    client.close().await;
}

#[test]
fn what_does_not_exist_has_a_status_of_its_own() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    for (arguments, text) in [
        (&["service", "ls"][..], "/services has no services\n"),
        (&["service", "ls", "web"], "web has no instances\n"),
        (&["service", "ls", "--base", "/other"], "/other has no services\n"),
    ] {
        let output = run(&servers, arguments);
        assert_eq!((output.status.code(), stdout(&output)), (Some(1), text.to_owned()), "{output:?}");
    }
    let wrong: [(&[&str], &str); 5] = [
        (&["--http", "https://localhost/"], "only addresses with http:// are checked"),
        (&["--payload", "{"], "--payload is not JSON"),
        (&["--interval", "0s", "--check", "true"], "--interval must be longer than zero"),
        (&["--check", "true", "--http", "http://localhost/"], "cannot be used with"),
        (&["--threshold", "0"], "0 is not in 1.."),
    ];
    for (options, text) in wrong {
        let output = register(&servers, options, &[]).wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(stderr(&output).contains(text), "{output:?}");
    }
    let output = run(&servers, &["service", "register", "--port", "1", "zookeeper"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(server.children("/services"), None);
}

/// Returns the address of a server that never answers. The test keeps the listener.
fn silent() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/health", listener.local_addr().unwrap());
    (listener, url)
}

#[test]
fn a_check_by_http_without_an_answer_does_not_delay_the_end() {
    let server = TestingServer::start().unwrap();
    let (listener, url) = silent();
    let options = ["--http", &url, "--interval", "10m"];
    let child = register(&server.connect_string(), &options, &[]);
    let _in_flight = listener.accept().unwrap();
    signal(&child, Signal::TERM);
    assert_eq!(end(child).0, Some(143));
    let child = register(&server.connect_string(), &options, &["--", "sh", "-c", "read line"]);
    let _in_flight = listener.accept().unwrap();
    assert_eq!(end(child).0, Some(1), "the command finds no input");
    until("the sessions are closed", || server.sessions().is_empty());
}

#[test]
fn a_check_that_hangs_leaves_no_process() {
    let server = TestingServer::start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let pids = folder.path().join("pids");
    // The shell waits for a process of its own.
    let check = format!("sleep 1000 & echo $! >>{}; wait", pids.display());
    let options = ["--check", &check, "--interval", "200ms", "--threshold", "2"];
    let mut child = register(&server.connect_string(), &options, &[]);
    let mut told = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    told.read_line(&mut line).unwrap();
    assert_eq!(line, "curator: the check has failed 2 times in a row: no answer within 200ms\n");
    let checks = || -> Vec<Pid> {
        let text = std::fs::read_to_string(&pids).unwrap_or_default();
        text.lines().map(|pid| Pid::from_raw(pid.parse().unwrap()).unwrap()).collect()
    };
    until("the processes of two checks end", || checks().iter().take(2).all(|pid| is_gone(*pid)));
    until("another check runs", || checks().len() > 2);
    signal(&child, Signal::TERM);
    assert_eq!(end(child).0, Some(143));
    until("the processes of all checks end", || checks().iter().all(|pid| is_gone(*pid)));
}

#[test]
fn a_drain_of_a_missing_instance_does_not_wait() {
    let server = TestingServer::start().unwrap();
    let child = curator(&server.connect_string(), &["service", "drain", "--time", "10m", "web", "none"]);
    let (code, told) = end({ child }.spawn().unwrap());
    assert_eq!(code, Some(1), "{told}");
}

#[test]
fn what_no_consumer_could_use_is_not_registered() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let wrong: [(&[&str], &str); 11] = [
        (&["--port", "0", "web"], "0 is not in 1..=65535"),
        (&["--port", "70000", "web"], "70000 is not in 1..=65535"),
        (&["--port", "80", ""], "name"),
        (&["--port", "80", "/web"], "invalid name"),
        (&["--port", "80", "--id", "", "web"], "the node of an instance needs a name"),
        (&["--port", "80", "--id", "a/b", "web"], "is not the name of one node"),
        (&["--port", "80", "--address", "", "web"], "--address is empty"),
        (&["--port", "80", "--address", "10.0.0.7:80", "web"], "--address 10.0.0.7:80 has a port"),
        (&["--port", "80", "--base", "services", "web"], "services"),
        (&["--port", "80", "--http", "http://", "web"], "--http http://"),
        (&["--port", "80", "--check", "true", "--interval", "10000000000000000000s", "web"], "at most 24h"),
    ];
    for (options, text) in wrong {
        let output = run(&servers, &[&["service", "register"], options].concat());
        assert_eq!(output.status.code(), Some(2), "{options:?}: {output:?}");
        assert!(stderr(&output).contains(text), "{options:?}: {output:?}");
    }
    assert_eq!(server.children("/services"), None);
    let child = curator(&servers, &["service", "register", "--port", "80", "--address", "fd00::7", "web"]);
    let child = { child }.spawn().unwrap();
    until("an instance with an IPv6 address", || instances(&servers)[0]["address"] == "fd00::7");
    signal(&child, Signal::TERM);
    end(child);
}

#[test]
fn the_status_is_that_of_the_command() {
    let server = TestingServer::start().unwrap();
    for (script, status) in [("exit 3", 3), ("kill -TERM $$", 143), ("kill -KILL $$", 137)] {
        let output = register(&server.connect_string(), &[], &["--", "sh", "-c", script]).wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{script}: {output:?}");
    }
    let missing = register(&server.connect_string(), &[], &["--", "/no/such/program"]).wait_with_output().unwrap();
    assert_eq!(missing.status.code(), Some(127), "{missing:?}");
    assert_eq!(server.children("/services/web").unwrap_or_default(), [""; 0]);
}

#[test]
fn commands_without_a_server_end() {
    for arguments in [
        &["service", "register", "--port", "80", "web", "--", "true"][..],
        &["service", "ls"],
        &["service", "ls", "web"],
        &["service", "watch", "web"],
        &["service", "disable", "web", "one"],
        &["service", "drain", "--time", "10m", "web", "one"],
    ] {
        let child = curator("127.0.0.1:1", arguments).args(["--connect-timeout", "300ms"]).spawn().unwrap();
        let (code, told) = end(child);
        assert_eq!(code, Some(69), "{arguments:?}: {told}");
    }
}

#[test]
fn a_signal_ends_a_registration_at_each_moment() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    // Before the first connection.
    let child = register("127.0.0.1:1", &["--connect-timeout", "10m"], &["--", "true"]);
    until("it catches signals", || catches(&child, Signal::TERM));
    signal(&child, Signal::TERM);
    assert_eq!(end(child).0, Some(143));
    // While another session has the id.
    let first = register(&servers, &[], &[]);
    until("it is registered", || is_registered(&server));
    let mut second = register(&servers, &[], &[]);
    let mut line = String::new();
    BufReader::new(second.stderr.take().unwrap()).read_line(&mut line).unwrap();
    signal(&second, Signal::INT);
    assert_eq!(end(second).0, Some(130));
    // Without a server.
    server.stop();
    signal(&first, Signal::TERM);
    assert_eq!(end(first).0, Some(143));
}

/// Returns `true` once a process catches a signal.
fn catches(child: &Child, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    mask >> (signal.as_raw() - 1) & 1 == 1
}

#[tokio::test]
async fn lists_without_a_reader_end() {
    let server = TestingServer::start().unwrap();
    let client = CuratorFramework::new_client(server.connect_string(), RetryOneTime::new(std::time::Duration::ZERO));
    let client = client.unwrap();
    client.start().unwrap();
    // More than a pipe holds.
    let json = format!(r#"{{"payload":"{}"}}"#, "x".repeat(100_000));
    client.create().creating_parents_if_needed().with_data(json).for_path("/services/web/one").await.unwrap();
    for arguments in [&["service", "ls", "--json", "web"][..], &["service", "ls", "web"], &["service", "watch", "web"]]
    {
        let mut child = curator(&server.connect_string(), arguments).spawn().unwrap();
        drop(child.stdout.take());
        let changes = async || {
            client.set_data().for_path("/services/web/one", "{}").await.unwrap();
        };
        let (code, told) = crate::end_without_reader(child, changes).await;
        assert_eq!((code, told.as_str()), (Some(0), ""), "{arguments:?}");
    }
    client.close().await;
}

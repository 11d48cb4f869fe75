//! The page never shows an unknown as empty.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};

use curator_framework::{Acl, Permission};
use serde_json::json;

use crate::{Clients, PATIENCE, Web, in_process, until};

/// The messages of a program.
struct Told(Receiver<String>);

impl Told {
    fn next(&self) -> String {
        self.0.recv_timeout(PATIENCE).expect("a message")
    }
}

fn start(connect: &str, arguments: &[&str]) -> (Web, Told) {
    let mut web = Web::start_with(connect, arguments, Stdio::piped());
    let (sender, told) = channel();
    let lines = BufReader::new(web.child.stderr.take().unwrap()).lines();
    std::thread::spawn(move || lines.map_while(Result::ok).all(|line| sender.send(line).is_ok()));
    (web, Told(told))
}

#[test]
fn page_without_a_server_says_that_nothing_is_known_and_why() {
    let (web, told) = start("127.0.0.1:1", &[]);
    let line = told.next();
    assert!(line.starts_with("curator: no connection to ZooKeeper at 127.0.0.1:1: "), "{line}");
    assert!(line.contains("Connection refused"), "{line}");
    let page = web.get("/").body;
    for part in ["not known yet", "ZooKeeper at 127.0.0.1:1", "Connection refused"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    for part in ["<b>0</b>", "No locks"] {
        assert!(!page.contains(part), "{part}: {page}");
    }
    let health = web.get("/healthz");
    assert_eq!(health.status, 503);
    assert!(health.body.contains("127.0.0.1:1") && health.body.contains("Connection refused"), "{}", health.body);
    let seen = web.get("/api/locks").json();
    assert_eq!(json!([seen["complete"], seen["exists"], seen["servers"]]), json!([false, null, "127.0.0.1:1"]));
    assert!(seen["cause"].as_str().unwrap().contains("Connection refused"), "{seen}");
    let lock = web.get("/api/locks/jobs/a");
    assert_eq!((lock.status, lock.json()["error"].clone()), (503, json!("not known yet")));
    let lock = web.get("/locks/jobs/a");
    assert_eq!(lock.status, 503);
    assert!(lock.body.contains("not known yet"), "{}", lock.body);
    for part in ["no lock here", "No contenders"] {
        assert!(!lock.body.contains(part), "{part}: {}", lock.body);
    }
    for path in ["/events", "/events/jobs/a"] {
        let update = web.stream(path).next().unwrap();
        assert!(update["summary"].as_str().unwrap().contains("not known yet"), "{update}");
        assert!(update["empty"].as_str().unwrap().starts_with("Not known"), "{update}");
    }
    let metrics = web.get("/metrics").body;
    assert!(metrics.contains("\ncurator_complete 0\n") && !metrics.contains("curator_locks "), "{metrics}");
}

#[test]
fn each_loss_and_each_return_of_the_connection_is_one_line() {
    let server = in_process();
    let (web, told) = start(&server.connect_string(), &[]);
    web.wait_for_health(200);
    for _ in 0..2 {
        server.stop();
        let line = told.next();
        let lost = format!("curator: no connection to ZooKeeper at {}: ", server.connect_string());
        assert!(line.starts_with(&lost), "{line}");
        server.restart().unwrap();
        let line = told.next();
        let back = format!("curator: the connection to ZooKeeper at {} is back after ", server.connect_string());
        assert!(line.starts_with(&back), "{line}");
    }
    assert_eq!(web.get("/api/locks").json()["cause"], json!(null));
}

/// A change may be missing.
#[test]
fn answers_are_not_complete_without_a_connection() {
    let server = in_process();
    let clients = Clients::new(&server.connect_string());
    let client = clients.client();
    clients.contend(&client, "/jobs/a", "lock-", "one");
    let (web, told) = start(&server.connect_string(), &[]);
    web.counts("/jobs/a", 1, 0);
    let complete = || {
        let answers = ["/api/locks", "/api/locks/jobs/a"].map(|path| {
            let answer = web.get(path).json();
            assert!(answer["connected"] == true || answer["complete"] == false, "{answer}");
            answer["complete"].clone()
        });
        let metrics = web.get("/metrics").body;
        (json!(answers), u8::from(metrics.contains("\ncurator_complete 1\n")))
    };
    assert_eq!(complete(), (json!([true, true]), 1));
    server.stop();
    assert!(told.next().starts_with("curator: no connection to ZooKeeper at "));
    assert_eq!(complete(), (json!([false, false]), 0));
    server.restart().unwrap();
    until("a complete page", || (complete() == (json!([true, true]), 1)).then_some(()));
}

#[test]
fn page_says_that_the_served_path_does_not_exist() {
    let server = in_process();
    let clients = Clients::new(&server.connect_string());
    let client = clients.client();
    let (web, told) = start(&server.connect_string(), &["/jobs/nope"]);
    let line = told.next();
    assert_eq!(line, "curator: /jobs/nope does not exist: its locks are shown when it is created");
    let says = "/jobs/nope does not exist";
    web.wait_for_health(200);
    assert_eq!(web.get("/healthz").body, format!("ok, but {says}\n"));
    assert_eq!(web.get("/api/locks").json()["exists"], json!(false));
    let page = web.get("/").body;
    assert!(page.contains(says) && !page.contains("No locks."), "{page}");
    let mut stream = web.stream("/events");
    assert!(stream.next().unwrap()["empty"].as_str().unwrap().starts_with(says));
    clients.contend(&client, "/jobs/nope", "lock-", "one");
    web.counts("/jobs/nope", 1, 0);
    assert_eq!(web.get("/api/locks").json()["exists"], json!(true));
    assert!(!web.get("/").body.contains(says));
    assert_eq!(web.get("/healthz").body, "ok\n");
}

#[test]
fn missing_chroot_is_named_with_the_path() {
    let server = in_process();
    let (_web, told) = start(&format!("{}/prod", server.connect_string()), &["/jobs"]);
    let line = told.next();
    assert!(line.starts_with("curator: /prod/jobs does not exist: "), "{line}");
}

#[test]
fn directory_with_too_long_a_list_of_children_is_left_out_and_named() {
    let server = in_process();
    let clients = Clients::new(&server.connect_string());
    let client = clients.client();
    for child in 0..30 {
        let path = format!("/other/jobs/{child:0>200}");
        clients.runtime.block_on(client.create().creating_parents_if_needed().for_path(&path)).unwrap();
    }
    clients.contend(&client, "/app/lock", "lock-", "one");
    let web = Web::start_live(&server.connect_string(), &["--max-reply", "4K"]);
    web.counts("/app/lock", 1, 0);
    let seen = web.get("/api/locks").json();
    assert_eq!(json!([seen["complete"], seen["left_out"]]), json!([false, ["/other/jobs"]]), "{seen}");
    let why = "the reply about /other/jobs takes 6140 bytes, more than the limit of 4096";
    assert_eq!(web.get("/healthz").body, format!("ok, but {why}\n"));
}

#[test]
fn subtree_that_may_not_be_read_is_left_out_and_named() {
    let server = in_process();
    let clients = Clients::new(&server.connect_string());
    let client = clients.client();
    let acl = |permission| vec![Acl::new(permission, "world", "anyone")];
    let create = client.create().with_acl(acl(Permission::ADMIN));
    let create = create.creating_parents_if_needed();
    clients.runtime.block_on(create.for_path("/app/sec")).unwrap();
    let web = Web::start_live(&server.connect_string(), &[]);
    let seen = web.get("/api/locks").json();
    assert_eq!(json!([seen["complete"], seen["left_out"]]), json!([false, ["/app/sec"]]), "{seen}");
    let page = web.get("/").body;
    assert!(page.contains("not authorized for /app/sec") && !page.contains("No locks."), "{page}");
    assert_eq!(web.get("/healthz").body, "ok, but not authorized for /app/sec\n");
    let metrics = web.get("/metrics").body;
    assert!(metrics.contains("\ncurator_complete 0\n") && metrics.contains("\ncurator_left_out 1\n"), "{metrics}");
    for path in ["/app/sec", "/app/sec/a"] {
        let lock = web.get(&format!("/api/locks{path}"));
        assert_eq!((lock.status, lock.json()["error"].clone()), (403, json!("not authorized for /app/sec")));
        let lock = web.get(&format!("/locks{path}"));
        assert!(lock.status == 403 && !lock.body.contains("no lock here"), "{}", lock.body);
    }
    assert_eq!(web.get("/api/locks/app/second").status, 404);
    // A deleted node hides nothing. Its own deletion is not notified, because it may not be read.
    clients.delete(&client, "/app");
    until("a complete page", || (web.get("/api/locks").json()["complete"] == true).then_some(()));
}

#[cfg(curator_mutants)]
#[test]
fn page_that_is_empty_before_the_first_connection_is_found() {
    let web = Web::start_broken("127.0.0.1:1", "nothing-is-empty");
    let page = web.get("/").body;
    assert!(page.contains("No locks.") && !page.contains("not known yet"), "{page}");
}

#[test]
fn path_that_was_never_read_has_no_numbers() {
    for (option, name) in [
        ("group", "groups"),
        ("counter", "counters"),
        ("barrier", "barriers"),
        ("latch", "latches"),
        ("queue", "queues"),
    ] {
        let (web, told) = start("127.0.0.1:1", &[&format!("--{option}"), "/jobs"]);
        told.next();
        let page = web.get("/").body;
        let summary = format!(r#"<p id="{name}-summary" class="summary"><span class="state gone">not known yet"#);
        assert!(page.contains(&summary), "{page}");
        assert!(page.contains("/jobs") && !page.contains("<b>0</b>"), "{page}");
        let seen = web.get(&format!("/api/{name}")).json();
        assert_eq!(json!([seen["complete"], seen[name][0]["exists"]]), json!([false, null]), "{seen}");
    }
}

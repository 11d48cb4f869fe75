//! The follower: it sees every change, at a bounded cost.

use std::time::Duration;

use curator_recipes::{
    InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreV2, LeaderLatch, LeaderLatchOptions,
    LockOptions, MutexOptions, SemaphoreOptions,
};
use curator_test::wire::OpCode;
use serde_json::{Value, json};

use crate::{Apache, Clients, PATIENCE, Web, in_process, until};

fn data_of(lock: &Value, state: &str) -> Vec<String> {
    let contenders = lock["contenders"].as_array().unwrap().iter();
    contenders.filter(|c| c["state"] == state).map(|c| c["data"].as_str().unwrap().to_owned()).collect()
}

fn history(lock: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let changes = lock["history"].as_array().unwrap().iter();
    changes.map(|change| (text(&change["change"]), text(&change["contender"]["data"]))).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(change, data)| ((*change).to_owned(), (*data).to_owned())).collect()
}

#[test]
fn five_hundred_contenders_cost_one_read_for_each_change() {
    let server = in_process();
    let clients = Clients::new(&server.connect_string());
    let (sessions, paths) = clients.crowd("/jobs/report", 500);
    let web = Web::start_live(&server.connect_string(), &[]);
    web.counts("/jobs/report", 1, 499);
    server.clear_requests();
    // The holder and a waiter in the middle leave, and two contenders join.
    clients.delete(&sessions[0], &paths[0]);
    clients.delete(&sessions[10], &paths[250]);
    for data in ["new-1", "new-2"] {
        clients.contend(&sessions[1], "/jobs/report", "lock-", data);
    }
    let lock = web.lock("/jobs/report", |lock| data_of(lock, "waits").last().is_some_and(|data| data == "new-2"));
    assert_eq!(data_of(&lock, "holds"), ["host-0.example:1"]);
    let reads = server.requests().into_iter().filter(|request| {
        matches!(request.op, OpCode::GetData | OpCode::GetChildren | OpCode::GetChildren2 | OpCode::Exists)
    });
    // One for each new contender; `for_path` of the crowd does not read.
    let reads: Vec<_> = reads.collect();
    assert_eq!(reads.len(), 2, "{reads:?}");
}

/// Persistent nodes with the names of contenders are paths: the first listing has some, and others come later.
pub(crate) fn locks_below_persistent_nodes_are_shown(clients: &Clients, start: impl FnOnce() -> Web) {
    let client = clients.client();
    clients.create(&client, "/jobs/lock-0", "");
    let below = clients.contend(&client, "/jobs/lock-0", "lock-", "below");
    let web = start();
    assert_eq!(data_of(&web.counts("/jobs/lock-0", 1, 0), "holds"), ["below"]);
    clients.contend(&client, "/jobs/lock-0/report-lock-2024", "lock-", "later");
    assert_eq!(data_of(&web.counts("/jobs/lock-0/report-lock-2024", 1, 0), "holds"), ["later"]);
    let paths: Vec<Value> = web.locks().as_array().unwrap().iter().map(|lock| lock["path"].clone()).collect();
    assert_eq!(paths, ["/jobs/lock-0", "/jobs/lock-0/report-lock-2024"]);
    // They block a lock above them.
    clients.contend(&client, "/jobs", "lock-", "next");
    clients.contend(&client, "/jobs", "lock-", "blocked");
    let lock = web.counts("/jobs", 0, 2);
    assert_eq!((data_of(&lock, "waits").len(), &lock["blocked_by"]), (2, &json!("/jobs/lock-0")), "{lock}");
    let text = "/jobs/lock-0 is a persistent node, not a contender: delete it with curator revoke --force /jobs/lock-0";
    assert!(web.get("/locks/jobs").body.contains(text));
    clients.delete(&client, &below);
    clients.delete(&client, "/jobs/lock-0");
    let lock = web.counts("/jobs", 1, 1);
    assert_eq!((data_of(&lock, "holds"), &lock["blocked_by"]), (vec!["next".to_owned()], &Value::Null), "{lock}");
}

#[test]
fn locks_below_a_node_with_the_name_of_a_contender_are_shown() {
    let server = in_process();
    let clients = Clients::new(&server.connect_string());
    locks_below_persistent_nodes_are_shown(&clients, || Web::start_live(&server.connect_string(), &["/"]));
}

#[test]
fn election_is_followed_over_a_hand_over() {
    let apache = Apache::start();
    let clients = Clients::new(&apache.connect);
    let web = Web::start_live(&apache.connect, &["/"]);
    let latches: Vec<LeaderLatch> = (1..=3)
        .map(|number| {
            let (client, options) = (clients.client(), LeaderLatchOptions::new().id(format!("worker-{number}")));
            let _in = clients.runtime.enter();
            let latch = LeaderLatch::with_options(client, "/election", options).unwrap();
            latch.start().unwrap();
            web.counts("/election", 1, number - 1);
            latch
        })
        .collect();
    let given = clients.runtime.block_on(async {
        let candidates = latches[0].participants().await.unwrap();
        latches[0].resign_to_timeout(&candidates[2], PATIENCE).await.unwrap()
    });
    assert!(given.is_some());
    // The leader joins again at the back.
    let lock = web.lock("/election", |lock| {
        data_of(lock, "holds") == ["worker-3"] && data_of(lock, "waits") == ["worker-2", "worker-1"]
    });
    assert_eq!((&lock["recipe"], &lock["complete"]), (&json!("leader latch"), &json!(true)), "{lock}");
    let page = web.get("/locks/election").body;
    for part in [">leader</span> leader latch", ">leads</span>", ">waits</span>"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    clients.runtime.block_on(async {
        for latch in latches {
            latch.close().await;
        }
    });
    web.counts("/election", 0, 0);
    assert!(web.get("/locks/election").body.contains(">no leader</span>"));
}

#[test]
fn five_hundred_contenders_on_apache_and_each_recipe() {
    let apache = Apache::start();
    let clients = Clients::new(&apache.connect);
    let web = Web::start_live(&apache.connect, &["/"]);
    let (sessions, paths) = clients.crowd("/jobs/report", 500);
    let lock = web.counts("/jobs/report", 1, 499);
    assert_eq!(lock["recipe"], "mutex");
    assert_eq!(lock["contenders"][0]["node"], json!(paths[0]));
    let session = clients.runtime.block_on(sessions[0].session()).unwrap().id().unwrap().get();
    assert_eq!(lock["contenders"][0]["session"], format!("{session:#x}"));

    let client = clients.client();
    let mutex = InterProcessMutex::with_options(client.clone(), "/app/mutex", MutexOptions::new().data("m")).unwrap();
    let held = clients.runtime.block_on(mutex.acquire()).unwrap();
    let read_write =
        InterProcessReadWriteLock::with_options(client.clone(), "/app/settings", LockOptions::new().data("r")).unwrap();
    let readers: Vec<_> = (0..2).map(|_| clients.runtime.block_on(read_write.read_lock().acquire()).unwrap()).collect();
    let writer = clients.runtime.spawn(async move { read_write.write_lock().acquire().await });
    let semaphore =
        InterProcessSemaphoreV2::with_options(client.clone(), "/app/seats", 2, SemaphoreOptions::new().data("s"))
            .unwrap();
    let leases = clients.runtime.block_on(semaphore.acquire_many(2)).unwrap();
    let next = clients.runtime.spawn(async move { semaphore.acquire().await });
    for (path, recipe, holders, waiters) in
        [("/app/mutex", "mutex", 1, 0), ("/app/settings", "read-write lock", 2, 1), ("/app/seats", "semaphore", 2, 1)]
    {
        let lock = web.counts(path, holders, waiters);
        assert_eq!((&lock["path"], &lock["recipe"]), (&json!(path), &json!(recipe)));
    }
    assert_eq!(web.locks().as_array().unwrap().len(), 4, "{}", web.locks());
    drop((held, readers, leases));
    let writer = clients.runtime.block_on(writer).unwrap().unwrap();
    let next = clients.runtime.block_on(next).unwrap().unwrap();
    web.counts("/app/mutex", 0, 0);
    web.counts("/app/settings", 1, 0);
    web.counts("/app/seats", 1, 0);
    drop((writer, next));
    let seats = web.counts("/app/seats", 0, 0);
    assert_eq!(history(&seats).iter().filter(|(change, _)| change == "granted").count(), 3, "{seats}");
    drop(sessions);
}

#[test]
fn history_tells_grants_waits_releases_and_ends_of_sessions() {
    let server = in_process();
    let clients = Clients::new(&server.connect_string());
    let web = Web::start_live(&server.connect_string(), &["/jobs"]);
    let (first, second) = (clients.client(), clients.client());
    let one = clients.contend(&first, "/jobs/a", "lock-", "one");
    clients.contend(&second, "/jobs/a", "lock-", "two");
    clients.contend(&second, "/jobs/a", "lock-", "three");
    let four = clients.contend(&first, "/jobs/a", "lock-", "four");
    web.counts("/jobs/a", 1, 3);
    clients.delete(&first, &four);
    // The two nodes of the session would count as deleted together.
    web.counts("/jobs/a", 1, 2);
    clients.delete(&first, &one);
    web.counts("/jobs/a", 1, 1);
    let holder = server_path(&server, "/jobs/a", 0);
    clients.runtime.block_on(second.set_data().for_path(&holder, "__REVOKE__")).unwrap();
    web.lock("/jobs/a", |lock| lock["contenders"][0]["asked_to_release"] == true);
    let session = clients.runtime.block_on(second.session()).unwrap().id().unwrap().get();
    assert!(server.kill_session(session));
    let lock = web.counts("/jobs/a", 0, 0);
    let mut seen = history(&lock);
    // The server deletes the nodes of a session in any order.
    seen[8..].sort();
    assert_eq!(
        seen,
        pairs(&[
            ("granted", "one"),
            ("waits", "two"),
            ("waits", "three"),
            ("waits", "four"),
            ("left", "four"),
            ("released", "one"),
            ("granted", "two"),
            ("asked", "__REVOKE__"),
            ("gone_with_session", "__REVOKE__"),
            ("gone_with_session", "three"),
        ])
    );
    clients.delete(&first, "/jobs/a");
    until("the end of the lock", || (web.get("/api/locks/jobs/a").status == 404).then_some(()));
}

/// Returns the path of the contender at a position.
fn server_path(server: &curator_test::TestingServer, lock: &str, position: usize) -> String {
    let mut names = server.children(lock).unwrap();
    names.sort_by_key(|name| name.rsplit('-').next().unwrap().to_owned());
    format!("{lock}/{}", names[position])
}

#[test]
fn page_is_stale_without_a_server_and_recovers() {
    let server = in_process();
    let clients = Clients::new(&server.connect_string());
    let client = clients.client();
    clients.contend(&client, "/jobs/a", "lock-", "one");
    let web = Web::start_live(&server.connect_string(), &[]);
    web.counts("/jobs/a", 1, 0);
    let mut stream = web.stream("/events");
    assert_eq!(stream.next().unwrap()["live"], true);
    server.stop();
    let update = stream.update_with("No connection to ZooKeeper since");
    assert_eq!(update["live"], false);
    let health = web.get("/healthz");
    assert_eq!(health.status, 503);
    assert!(health.body.starts_with("no connection to ZooKeeper for"), "{}", health.body);
    assert!(web.get("/").body.contains("No connection to ZooKeeper since"));
    assert!(web.get("/").body.contains("/jobs/a"), "the last state is still shown");
    let metrics = web.get("/metrics").body;
    assert!(metrics.contains("\ncurator_connected 0\n"), "{metrics}");
    assert!(!metrics.contains("curator_lock_holders{"), "{metrics}");
    server.restart().unwrap();
    web.wait_for_health(200);
    while stream.next().unwrap()["live"] != true {}
    assert!(web.get("/metrics").body.contains("\ncurator_connected 1\n"));
}

#[test]
fn changes_without_a_session_are_found_in_the_next() {
    let server = in_process();
    let proxy = curator_test::FaultProxy::start(server.address()).unwrap();
    let clients = Clients::new(&server.connect_string());
    let client = clients.client();
    let one = clients.contend(&client, "/jobs/a", "lock-", "one");
    let sessions = server.sessions();
    let web = Web::start_live(&proxy.connect_string(), &[]);
    web.counts("/jobs/a", 1, 0);
    let own = server.sessions().into_iter().find(|session| !sessions.contains(session)).unwrap();
    proxy.refuse();
    proxy.reset();
    web.wait_for_health(503);
    assert!(server.kill_session(own));
    clients.delete(&client, &one);
    clients.contend(&client, "/jobs/a", "lock-", "two");
    clients.contend(&client, "/jobs/b", "lock-", "three");
    proxy.accept();
    let lock = web.lock("/jobs/a", |lock| data_of(lock, "holds") == ["two"]);
    assert_eq!(history(&lock), pairs(&[("released", "one"), ("granted", "two")]));
    web.counts("/jobs/b", 1, 0);
    web.wait_for_health(200);
}

#[test]
fn thousand_locks_are_listed() {
    let server = in_process();
    let clients = Clients::new(&server.connect_string());
    let client = clients.client();
    for index in 0..1000 {
        clients.contend(&client, &format!("/tenants/{index:04}"), "lock-", format!("host {index}"));
    }
    let web = Web::start_live(&server.connect_string(), &["/tenants"]);
    assert_eq!(web.locks().as_array().unwrap().len(), 1000);
    let page = web.get("/").body;
    assert_eq!(page.matches("<tr data-id=").count(), 1000);
    let metrics = web.get("/metrics").body;
    assert_eq!(metrics.matches("\ncurator_lock_holders{").count(), 500, "series are bounded");
    assert!(metrics.contains("\ncurator_locks 1000\n"), "{metrics}");
    assert!(metrics.contains("\ncurator_locks_without_series 500\n"), "{metrics}");
    for metric in ["\ncurator_longest_queue 0\n", "\ncurator_oldest_holder_seconds "] {
        assert!(metrics.contains(metric), "{metric}: {metrics}");
    }
    clients.contend(&client, "/tenants/0999", "lock-", "a waiter".to_owned());
    let contended = || web.get("/api/locks?contended=1").json()["locks"].as_array().unwrap().clone();
    until("the waiter", || (contended().len() == 1).then_some(()));
    assert_eq!(contended()[0]["path"], "/tenants/0999");
    assert!(web.get("/metrics").body.contains("\ncurator_longest_queue 1\n"));
}

#[test]
fn bursts_are_few_updates() {
    let server = in_process();
    let clients = Clients::new(&server.connect_string());
    let client = clients.client();
    clients.contend(&client, "/jobs/a", "lock-", "first");
    let web = Web::start_live(&server.connect_string(), &[]);
    let mut stream = web.stream("/events/jobs/a");
    stream.next().unwrap();
    let begin = std::time::Instant::now();
    for index in 0..300 {
        let path = clients.contend(&client, "/jobs/a", "lock-", format!("{index}"));
        clients.delete(&client, &path);
    }
    clients.contend(&client, "/jobs/a", "lock-", "the last one");
    let (mut updates, mut changes) = (0, 0);
    loop {
        let update = stream.next().unwrap();
        updates += 1;
        changes += update["history"].as_array().unwrap().len();
        if update["rows"].to_string().contains("the last one") {
            break;
        }
    }
    // At most one update in 300 ms, but none of the changes is missing.
    let most = begin.elapsed().as_millis() / 300 + 2;
    assert!(updates <= most, "{updates} updates in {:?}", begin.elapsed());
    assert_eq!(changes, 601);
    assert!(begin.elapsed() < Duration::from_secs(25));
}

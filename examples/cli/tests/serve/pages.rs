//! The pages and their streams, over HTTP.

use rustix::process::Signal;

use crate::{Clients, Web, in_process, until};

#[test]
fn list_is_readable_without_a_script() {
    let server = in_process();
    let web = Web::start_live(&server.connect_string(), &[]);
    let empty = web.get("/").body;
    assert!(empty.contains("No locks. A lock appears here"), "{empty}");
    let clients = Clients::new(&server.connect_string());
    let client = clients.client();
    clients.contend(&client, "/jobs/report", "lock-", "10.0.0.7");
    clients.contend(&client, "/jobs/report", "lock-", "10.0.0.8");
    web.counts("/jobs/report", 1, 1);
    let page = web.get("/");
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    for part in [r#"<a href="/locks/jobs/report">/jobs/report</a>"#, "10.0.0.7", ">held<", "<b>1</b> contender waits"] {
        assert!(page.body.contains(part), "{part}: {}", page.body);
    }
    let lock = web.get("/locks/jobs/report");
    assert_eq!(lock.status, 200);
    assert!(lock.body.contains("10.0.0.8"), "{}", lock.body);
    assert_eq!(web.get("/locks/jobs/other").status, 404);
}

#[test]
fn two_pages_get_the_same_changes_and_only_those() {
    let server = in_process();
    let clients = Clients::new(&server.connect_string());
    let client = clients.client();
    clients.contend(&client, "/jobs/a", "lock-", "one");
    clients.contend(&client, "/jobs/b", "lock-", "other");
    let web = Web::start_live(&server.connect_string(), &[]);
    let mut streams = [web.stream("/events"), web.stream("/events")];
    for stream in &mut streams {
        assert_eq!(stream.next().unwrap()["rows"].as_array().unwrap().len(), 2);
    }
    clients.contend(&client, "/jobs/a", "lock-", "two");
    for stream in &mut streams {
        let update = stream.next().unwrap();
        let rows = update["rows"].as_array().unwrap();
        assert_eq!((rows.len(), &rows[0]["id"]), (1, &"/jobs/a".into()), "{update}");
        assert_eq!(update["all"], false);
    }
    let streams: String = web.get("/metrics").body;
    assert!(streams.contains("\ncurator_event_streams 2\n"), "{streams}");
}

#[test]
fn history_goes_on_after_a_stream_was_cut() {
    let server = in_process();
    let clients = Clients::new(&server.connect_string());
    let client = clients.client();
    clients.contend(&client, "/jobs/a", "lock-", "one");
    let web = Web::start_live(&server.connect_string(), &[]);
    let first = web.request("HEAD", "/events/jobs/a", &[]);
    assert_eq!(first.status, 200);
    clients.contend(&client, "/jobs/a", "lock-", "two");
    web.counts("/jobs/a", 1, 1);
    let started = {
        let agent: ureq::Agent = ureq::Agent::config_builder().build().into();
        let response = agent.get(web.url("/events/jobs/a")).call().unwrap();
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(response.into_body().into_reader()));
        lines.find_map(|line| line.unwrap().strip_prefix("id: ").map(ToOwned::to_owned)).unwrap()
    };
    clients.contend(&client, "/jobs/a", "lock-", "three");
    web.counts("/jobs/a", 1, 2);
    for (id, changes) in [(started.as_str(), 1), ("1-0", 0), ("rubbish", 0)] {
        let agent: ureq::Agent = ureq::Agent::config_builder().build().into();
        let response = agent.get(web.url("/events/jobs/a")).header("last-event-id", id).call().unwrap();
        let mut stream = crate::Stream(std::io::BufReader::new(Box::new(response.into_body().into_reader())));
        let update = stream.next().unwrap();
        assert_eq!(update["history"].as_array().unwrap().len(), changes, "{id}: {update}");
    }
    let update = web.stream(&format!("/events/jobs/a?from={started}")).next().unwrap();
    assert_eq!(update["history"].as_array().unwrap().len(), 1, "{update}");
}

#[test]
fn signals_end_the_program_with_its_streams() {
    for signal in [Signal::INT, Signal::TERM] {
        let server = in_process();
        let web = Web::start_live(&server.connect_string(), &[]);
        let mut stream = web.stream("/events");
        stream.next().unwrap();
        assert_eq!(web.end(signal), Some(0));
        assert_eq!(stream.next(), None);
        assert_eq!(server.sessions(), Vec::<i64>::new(), "the session is closed");
    }
}

#[test]
fn page_names_the_ensemble_and_the_credentials() {
    let server = in_process();
    let connect = server.connect_string();
    let web = Web::start_live(&connect, &["--auth", "digest:ann:secret"]);
    let page = web.get("/").body;
    assert!(page.contains(&format!("<title>Locks · {connect} · curator</title>")), "{page}");
    assert!(page.contains(&format!("ZooKeeper at <b>{connect}</b>, read as digest:ann")), "{page}");
    assert!(page.contains("href=\"/api/locks\"") && page.contains("href=\"/metrics\""), "{page}");
    assert!(!page.contains("secret"), "{page}");
    let web = Web::start_live(&connect, &[]);
    assert!(web.get("/locks/x").body.contains("read as anyone"));
}

#[test]
fn lock_at_the_root_has_json_too() {
    let server = in_process();
    let clients = Clients::new(&server.connect_string());
    let client = clients.client();
    clients.contend(&client, "/report", "lock-", "holder");
    // With a chroot the lock is the root.
    let web = Web::start_live(&format!("{}/report", server.connect_string()), &[]);
    until("the lock", || {
        let lock = web.get("/api/locks/").json();
        (lock["path"] == "/" && lock["holders"] == 1).then_some(())
    });
    let web = Web::start_live(&server.connect_string(), &[]);
    assert_eq!(web.get("/api/locks/").json()["error"], "no lock at this path");
}

#[test]
fn large_answers_are_compressed_for_clients_that_ask() {
    let server = in_process();
    let web = Web::start_live(&server.connect_string(), &[]);
    for path in ["/", "/api/locks", "/metrics"] {
        let head = |headers: &[(&str, &str)]| web.request("HEAD", path, headers);
        assert_eq!(head(&[("Accept-Encoding", "gzip")]).header("content-encoding"), Some("gzip"), "{path}");
        assert_eq!(head(&[("Accept-Encoding", "identity")]).header("content-encoding"), None, "{path}");
    }
}

//! `watch`: the nodes at and below a path, and their changes.

use std::io::{BufRead as _, BufReader};
use std::process::Child;
use std::time::Duration;

use curator_framework::{Acl, CreateMode, CuratorFramework, Permission, RetryOneTime};
use curator_test::wire::OpCode;
use curator_test::{FaultProxy, TestingServer};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::showing::parsed;
use crate::{curator, end, end_without_reader, run, signal, stderr, stdout};

pub(crate) fn writer(server: &TestingServer) -> CuratorFramework {
    let client = CuratorFramework::new_client(server.connect_string(), RetryOneTime::new(Duration::ZERO)).unwrap();
    client.start().unwrap();
    client
}

pub(crate) async fn create(client: &CuratorFramework, path: &str, data: &[u8]) {
    client.create().with_data(data).for_path(path).await.unwrap();
}

/// Starts `curator watch /config`. Returns its lines on standard output and standard error.
fn watch(servers: &str, options: &[&str]) -> (Child, impl Iterator<Item = String> + use<>, Told) {
    let mut child = curator(servers, &[&["watch"], options, &["/config"]].concat()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let told = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    (child, lines, Box::new(told))
}

type Told = Box<dyn Iterator<Item = String>>;

/// Returns the facts of a line of JSON: the change, path and data of a node, or the state and the number of nodes.
fn facts(line: &str) -> Value {
    let seen = parsed(line);
    assert!(seen["time"].as_str().unwrap().ends_with('Z'), "{line}");
    match seen["change"].as_str() {
        Some(change) => json!([change, seen["node"]["path"], seen["node"]["data"]]),
        None => json!([seen["state"], seen["nodes"]]),
    }
}

#[tokio::test]
async fn watch_prints_the_nodes_and_each_change() {
    let server = TestingServer::start().unwrap();
    let (servers, client) = (server.connect_string(), writer(&server));
    // The path does not exist yet.
    let (json_watch, mut lines, mut json_told) = watch(&servers, &["--json"]);
    let mut next = || facts(&lines.next().unwrap());
    assert_eq!([next(), next()], [json!(["loading", null]), json!(["fresh", 0])]);
    create(&client, "/config", b"").await;
    create(&client, "/config/port", b"80").await;
    assert_eq!(next(), json!(["created", "/config", ""]));
    assert_eq!(next(), json!(["created", "/config/port", "80"]));

    let (text_watch, mut text, mut told) = watch(&servers, &[]);
    let mut read = |path: &str, change: &str, data: &str, version: u32| {
        let line = text.next().unwrap();
        let facts = format!("Z {path} {change} (data {data}, version {version}, session -, mzxid ");
        assert!(line.contains(&facts), "{line}");
    };
    read("/config", "present", "-", 0);
    read("/config/port", "present", "80", 0);
    assert_eq!(told.next().unwrap(), "curator: loads /config");
    let line = told.next().unwrap();
    assert!(line.starts_with("curator: 2 nodes at zxid ") && line.ends_with(", changes follow"), "{line}");

    client.set_data().for_path("/config/port", "8080").await.unwrap();
    assert_eq!(next(), json!(["changed", "/config/port", "8080"]));
    read("/config/port", "changed", "8080", 1);
    client.delete().for_path("/config/port").await.unwrap();
    assert_eq!(next(), json!(["deleted", "/config/port", "8080"]));
    read("/config/port", "deleted", "8080", 1);
    signal(&json_watch, Signal::INT);
    assert_eq!(json_told.next().unwrap(), "curator: ended by INT");
    assert_eq!(end(json_watch).0, Some(130));
    drop(text);
    let change = async || {
        client.set_data().for_path("/config", "more").await.unwrap();
    };
    assert_eq!(end_without_reader(text_watch, change).await.0, Some(0));
    assert_eq!(told.next(), None);
    client.close().await;
}

#[tokio::test]
async fn watch_tells_of_an_outage_and_of_what_changed_in_it() {
    let server = TestingServer::start().unwrap();
    let client = writer(&server);
    create(&client, "/config", b"").await;
    for name in ["again", "old", "same"] {
        create(&client, &format!("/config/{name}"), b"x").await;
    }
    let proxy = FaultProxy::start(server.address()).unwrap();
    let (text_watch, text, mut told) = watch(&proxy.connect_string(), &[]);
    let (json_watch, mut lines, _json_told) = watch(&proxy.connect_string(), &["--json"]);
    assert_eq!(told.next().unwrap(), "curator: loads /config");
    assert!(told.next().unwrap().starts_with("curator: 4 nodes at zxid "));
    let loaded: Vec<Value> = lines.by_ref().take(6).map(|line| facts(&line)).collect();
    assert_eq!(loaded[5], json!(["fresh", 4]), "{loaded:?}");

    proxy.refuse();
    proxy.reset();
    let line = told.next().unwrap();
    assert!(
        line.starts_with("curator: no connection since ") && line.ends_with(" are printed when it is back"),
        "{line}"
    );
    let stale = parsed(&lines.next().unwrap());
    assert_eq!(stale["state"], "stale");
    assert!(stale["since"].as_str().unwrap().ends_with('Z') && stale["zxid"].is_i64(), "{stale}");
    client.delete().for_path("/config/again").await.unwrap();
    create(&client, "/config/again", b"x").await;
    client.delete().for_path("/config/old").await.unwrap();
    create(&client, "/config/new", b"y").await;
    let newest = client.check_exists().for_path("/config/new").await.unwrap().unwrap().mzxid;
    proxy.accept();

    let line = told.next().unwrap();
    assert!(line.starts_with("curator: the connection is back: all changes up to zxid "), "{line}");
    // The changes precede the line that says so.
    let mut seen: Vec<Value> = lines.by_ref().take(4).map(|line| facts(&line)).collect();
    let again = |seen: &[Value], change| seen.iter().position(|one| *one == json!([change, "/config/again", "x"]));
    assert!(again(&seen, "deleted").unwrap() < again(&seen, "created").unwrap(), "{seen:?}");
    seen.retain(|one| one[1] != "/config/again");
    seen.sort_by_key(ToString::to_string);
    assert_eq!(seen, [json!(["created", "/config/new", "y"]), json!(["deleted", "/config/old", "x"])]);
    let fresh = parsed(&lines.next().unwrap());
    assert_eq!(fresh["state"], "fresh");
    assert!(fresh["zxid"].as_i64().unwrap() >= newest && fresh["zxid"].as_i64() > stale["zxid"].as_i64(), "{fresh}");
    for child in [text_watch, json_watch] {
        signal(&child, Signal::TERM);
        assert_eq!(end(child).0, Some(143));
    }
    assert_eq!(text.filter(|line| line.contains(" /config/same ")).count(), 1);
    client.close().await;
}

#[tokio::test]
async fn watch_tells_of_an_outage_while_it_loads() {
    let server = TestingServer::start().unwrap();
    let client = writer(&server);
    create(&client, "/config", b"").await;
    let proxy = FaultProxy::start(server.address()).unwrap();
    for _ in 0..20 {
        proxy.drop_reply(OpCode::GetData, 1);
    }
    let (child, lines, mut told) = watch(&proxy.connect_string(), &[]);
    assert_eq!(told.next().unwrap(), "curator: loads /config");
    proxy.refuse();
    proxy.reset();
    assert_eq!(told.next().unwrap(), "curator: no connection: the load goes on when it is back");
    signal(&child, Signal::TERM);
    assert_eq!(end(child).0, Some(143));
    assert_eq!(lines.count(), 0);
    client.close().await;
}

#[tokio::test]
async fn watch_goes_on_in_a_new_session() {
    let server = TestingServer::start().unwrap();
    let client = writer(&server);
    create(&client, "/config", b"one").await;
    let (child, mut lines, _told) = watch(&server.connect_string(), &["--json"]);
    let mut next = || facts(&lines.next().unwrap());
    assert_eq!([next(), next()], [json!(["loading", null]), json!(["present", "/config", "one"])]);
    assert_eq!(next(), json!(["fresh", 1]));
    let own = client.session().await.unwrap().id().unwrap().get();
    let watcher = server.sessions().into_iter().find(|session| *session != own).unwrap();
    assert!(server.kill_session(watcher));
    assert_eq!([next(), next()], [json!(["stale", null]), json!(["fresh", null])]);
    client.set_data().for_path("/config", "two").await.unwrap();
    assert_eq!(next(), json!(["changed", "/config", "two"]));
    signal(&child, Signal::TERM);
    assert_eq!(end(child).0, Some(143));
    client.close().await;
}

/// The statuses of the table in the README.
#[tokio::test]
async fn watch_once_ends_behind_the_present_nodes() {
    let server = TestingServer::start().unwrap();
    let (servers, client) = (server.connect_string(), writer(&server));
    let container = client.create().with_mode(CreateMode::Container).with_data([0xff; 20]);
    container.for_path("/config").await.unwrap();
    create(&client, "/config/bad name\u{a0}", b"a\x1b[2J").await;
    create(&client, "/config/bad name\u{a0}/below", b"").await;
    client.create().with_mode(CreateMode::Ephemeral).with_data([0xff]).for_path("/config/eph").await.unwrap();
    let session = format!("{:#x}", client.session().await.unwrap().id().unwrap().get());

    let output = run(&servers, &["watch", "--once", "/config"]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
    let text = stdout(&output);
    let nodes: Vec<&str> =
        text.lines().map(|line| line.split_once("Z ").unwrap().1.split_once(", version").unwrap().0).collect();
    let name = "/config/bad name\\u{a0}";
    let expected = [
        "/config present (data 20 bytes".to_owned(),
        format!("{name} present (data a\\u{{1b}}[2J"),
        "/config/eph present (data 0xff".to_owned(),
        format!("{name}/below present (data -"),
    ];
    assert_eq!(nodes, expected);
    let sessions = text.lines().map(|line| line.split_once("session ").unwrap().1.split_once(',').unwrap().0);
    assert_eq!(sessions.collect::<Vec<_>>(), ["-", "-", &session, "-"]);

    let output = run(&servers, &["watch", "--once", "--json", "--depth", "1", "/config"]);
    let lines: Vec<Value> = stdout(&output).lines().map(parsed).collect();
    let node = &lines[1]["node"];
    assert_eq!(
        json!([node["path"], node["data"], node["data_hex"], node["session"]]),
        json!(["/config", null, "ff".repeat(20), null])
    );
    assert_eq!(node["czxid"], node["mzxid"]);
    assert_eq!(json!([lines[3]["node"]["path"], lines[3]["node"]["session"]]), json!(["/config/eph", session]));
    assert_eq!((lines.len(), json!([lines[4]["state"], lines[4]["nodes"]])), (5, json!(["fresh", 3])));
    assert_eq!(stdout(&run(&servers, &["watch", "--once", "--depth", "0", "/config"])).lines().count(), 1);

    let output = run(&servers, &["watch", "--once", "/nowhere"]);
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(1), "curator: no node /nowhere\n"));
    assert_eq!(run(&servers, &["watch", "relative"]).status.code(), Some(2));
    assert_eq!(run(&format!("{servers}/prod"), &["watch", "/config"]).status.code(), Some(2));
    assert_eq!(run("127.0.0.1:1", &["--connect-timeout", "300ms", "watch", "/x"]).status.code(), Some(69));
    client.close().await;
}

/// The servers do not notify a client of the deletion of a node that it may not read.
#[tokio::test]
async fn deleted_node_is_no_longer_left_out() {
    let server = TestingServer::start().unwrap();
    let client = writer(&server);
    create(&client, "/config", b"").await;
    for path in ["/config/deleted", "/config/stays"] {
        let unreadable = vec![Acl::new(Permission::ADMIN, "world", "anyone")];
        client.create().with_acl(unreadable).for_path(path).await.unwrap();
    }
    let proxy = FaultProxy::start(server.address()).unwrap();
    let (child, lines, mut told) = watch(&proxy.connect_string(), &["--json"]);
    let mut lines = lines.map(|line| parsed(&line));
    let mut next = |state: &str| {
        let line = lines.find(|line| line["state"] == state).unwrap();
        json!([line["complete"], line["left_out"]])
    };
    assert_eq!(next("fresh"), json!([false, ["/config/deleted", "/config/stays"]]));
    for (path, remaining) in [("/config/deleted", &["/config/stays"][..]), ("/config/stays", &[])] {
        client.delete().for_path(path).await.unwrap();
        proxy.refuse();
        proxy.reset();
        next("stale");
        proxy.accept();
        assert_eq!(next("fresh"), json!([remaining.is_empty(), remaining]));
    }
    signal(&child, Signal::TERM);
    assert_eq!(end(child).0, Some(143));
    assert!(told.all(|line| line.contains(" is left out: ") || line == "curator: ended by TERM"));
    client.close().await;
}

#[tokio::test]
async fn watch_tells_of_nodes_that_it_may_not_read() {
    let server = TestingServer::start().unwrap();
    let (servers, client) = (server.connect_string(), writer(&server));
    let unreadable = || vec![Acl::new(Permission::ADMIN, "world", "anyone")];
    create(&client, "/config", b"").await;
    client.create().with_acl(unreadable()).for_path("/config/secret").await.unwrap();
    let output = run(&servers, &["watch", "--once", "/config"]);
    assert_eq!((output.status.code(), stdout(&output).lines().count()), (Some(0), 1), "{output:?}");
    assert!(stderr(&output).starts_with("curator: /config/secret is left out: "), "{output:?}");
    let output = run(&servers, &["watch", "--once", "--json", "/config"]);
    let lines: Vec<Value> = stdout(&output).lines().map(parsed).collect();
    let states: Vec<&Value> = lines.iter().map(|line| &line["state"]).collect();
    assert_eq!(json!(states), json!(["loading", null, "left_out", "fresh"]), "{output:?}");
    assert_eq!(lines[2]["path"], "/config/secret");
    assert!(lines[2]["reason"].as_str().unwrap().contains("not authorized"), "{output:?}");
    assert_eq!(json!([lines[3]["complete"], lines[3]["left_out"]]), json!([false, ["/config/secret"]]));
    // It may be read from now on.
    client
        .set_acl()
        .with_acl(vec![Acl::new(Permission::ALL, "world", "anyone")])
        .for_path("/config/secret")
        .await
        .unwrap();
    let output = run(&servers, &["watch", "--once", "--json", "/config"]);
    let fresh = parsed(stdout(&output).lines().last().unwrap());
    assert_eq!(json!([fresh["complete"], fresh["left_out"]]), json!([true, []]));
    client.set_acl().with_acl(unreadable()).for_path("/config").await.unwrap();
    let output = run(&servers, &["watch", "/config"]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(77), ""), "{output:?}");
    client.close().await;
}

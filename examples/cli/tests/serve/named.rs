//! Groups, counters, barriers and latches, on the page, as JSON and as metrics.

use curator_framework::{Acl, CreateMode, CuratorFramework, Permission, RetryOneTime};
use curator_recipes::{
    CountDownLatch, DistributedAtomicLong, DistributedBarrier, DistributedDoubleBarrier, GroupMember,
    GroupMemberOptions, SharedCount,
};
use curator_test::TestingServer;
use curator_test::wire::OpCode;
use serde_json::{Value, json};

use crate::{Apache, Clients, PATIENCE, Web, in_process, until};

/// The options that name a path of each kind.
pub(crate) const PATHS: [&str; 12] = [
    "--group",
    "/workers",
    "--counter",
    "/builds",
    "--counter",
    "/seats",
    "--barrier",
    "/deploy",
    "--barrier",
    "/benchmark",
    "--latch",
    "/parts",
];

impl Web {
    /// Returns the JSON of a path that an option names.
    fn named(&self, kind: &str, path: &str) -> Value {
        let all = self.get(&format!("/api/{kind}")).json();
        all[kind].as_array().unwrap().iter().find(|one| one["path"] == path).unwrap().clone()
    }

    /// Waits until a field of a path has a value.
    fn until_named(&self, kind: &str, path: &str, field: &str, value: &Value) -> Value {
        until(&format!("{field} of {path}"), || {
            Some(self.named(kind, path)).filter(|one| one[field] == *value && one["problem"].is_null())
        })
    }

    /// Checks that the metrics have lines, and the page has parts.
    fn shows(&self, metrics: &[&str], parts: &[&str]) {
        let (text, page) = (self.get("/metrics").body, self.get("/").body);
        for line in metrics {
            assert!(text.contains(&format!("\n{line}\n")), "{line}: {text}");
        }
        for part in parts {
            assert!(page.contains(part), "{part}: {page}");
        }
    }
}

/// A node of each kind, with the objects that keep it.
pub(crate) struct Things {
    members: [GroupMember; 2],
    builds: DistributedAtomicLong,
    deploy: DistributedBarrier,
    latch: CountDownLatch,
}

impl Things {
    /// Changes the counter and the latch by one.
    pub(crate) async fn count_on(&self) {
        self.builds.increment().await.unwrap();
        self.latch.count_down().await.unwrap();
    }
}

impl Clients {
    /// Creates a node of each kind.
    pub(crate) fn things(&self, client: &CuratorFramework) -> Things {
        let _in = self.runtime.enter();
        let member = |id: &str, data: &str| {
            let options = GroupMemberOptions::new().data(data);
            let member = GroupMember::with_options(client.clone(), "/workers", id, options).unwrap();
            member.start().unwrap();
            self.runtime.block_on(member.join_timeout(PATIENCE)).unwrap().unwrap();
            member
        };
        let retry = RetryOneTime::new(PATIENCE / 100);
        let things = Things {
            members: [member("worker-1", "10.0.0.1:80"), member("worker-2", "10.0.0.2:80")],
            builds: DistributedAtomicLong::new(client.clone(), "/builds", retry).unwrap(),
            deploy: DistributedBarrier::new(client.clone(), "/deploy").unwrap(),
            latch: CountDownLatch::new(client.clone(), "/parts").unwrap(),
        };
        self.runtime.block_on(async {
            things.builds.add(7_000_000_000).await.unwrap();
            let seats = SharedCount::new(client.clone(), "/seats", 5).unwrap();
            seats.start().unwrap();
            seats.initialized_timeout(PATIENCE).await.unwrap();
            seats.close().await;
            things.deploy.set_barrier().await.unwrap();
            things.latch.try_set_count(3).await.unwrap();
            things.latch.count_down().await.unwrap();
        });
        let barrier = DistributedDoubleBarrier::new(client.clone(), "/benchmark", 2).unwrap();
        self.runtime.spawn(async move { barrier.enter().await });
        things
    }
}

fn paths_are_shown_while_they_change(clients: &Clients, web: &Web) {
    let client = clients.client();
    for (kind, path) in [("groups", "/workers"), ("counters", "/builds"), ("latches", "/parts")] {
        web.until_named(kind, path, "exists", &json!(false));
    }
    let none = json!({ "path": "/workers", "exists": false, "members": null, "first_members": null, "problem": null });
    assert_eq!(web.named("groups", "/workers"), none);
    let open = web.until_named("barriers", "/deploy", "state", &json!("open"));
    assert_eq!(json!([open["exists"], open["members"]]), json!([false, null]));
    web.shows(&["curator_barrier_closed{path=\"/deploy\"} 0"], &["no such group", "no such counter", "no such latch"]);
    let metrics = web.get("/metrics").body;
    for name in ["curator_group_", "curator_counter_", "curator_latch_", "curator_barrier_members"] {
        assert!(!metrics.contains(name), "{name}: {metrics}");
    }

    let things = clients.things(&client);
    let group = web.until_named("groups", "/workers", "members", &json!(2));
    let first = &group["first_members"][0];
    assert_eq!(json!([first["id"], first["data"], first["data_bytes"]]), json!(["worker-1", "10.0.0.1:80", 11]));
    assert!(first["session"].as_str().unwrap().starts_with("0x") && first["czxid"].is_number(), "{first}");
    web.until_named("counters", "/builds", "value", &json!(7_000_000_000_i64));
    web.until_named("counters", "/seats", "value", &json!(5));
    let deploy = web.until_named("barriers", "/deploy", "state", &json!("set"));
    assert!(deploy["since_ms"].as_i64().unwrap() > 1_700_000_000_000, "{deploy}");
    let benchmark = web.until_named("barriers", "/benchmark", "state", &json!("gathering"));
    assert_eq!(json!([benchmark["members"], benchmark["wanted"]]), json!([1, 2]));
    web.until_named("latches", "/parts", "remaining", &json!(2));
    web.shows(
        &[
            "curator_group_members{path=\"/workers\"} 2",
            "curator_counter_value{path=\"/builds\"} 7000000000",
            "curator_counter_value{path=\"/seats\"} 5",
            "curator_barrier_closed{path=\"/deploy\"} 1",
            "curator_barrier_closed{path=\"/benchmark\"} 1",
            "curator_barrier_members{path=\"/benchmark\"} 1",
            "curator_barrier_wanted{path=\"/benchmark\"} 2",
            "curator_latch_remaining{path=\"/parts\"} 2",
            "curator_left_out 0",
        ],
        &[
            r##" · <a href="#groups"><b>1</b> group</a> · <a href="#counters"><b>2</b> counters</a> · "##,
            "<b>1</b> group · <b>2</b> members",
            "<div>worker-1 <span class=\"dim\">10.0.0.1:80</span></div>",
            r#"<td data-label="Value" class="number">7000000000</td>"#,
            "<b>2</b> barriers · <b>2</b> closed",
            r#"<span class="state waiting">gathering</span>"#,
            "<b>1</b> latch · <b>2</b> counts remain",
        ],
    );

    clients.runtime.block_on(async {
        things.members[0].close().await;
        things.builds.subtract(7_000_000_001).await.unwrap();
        things.deploy.remove_barrier().await.unwrap();
        things.latch.count_down().await.unwrap();
        things.latch.count_down().await.unwrap();
    });
    let group = web.until_named("groups", "/workers", "members", &json!(1));
    assert_eq!(group["first_members"][0]["id"], "worker-2");
    web.until_named("counters", "/builds", "value", &json!(-1));
    web.until_named("barriers", "/deploy", "state", &json!("open"));
    let latch = web.until_named("latches", "/parts", "remaining", &json!(0));
    assert_eq!(json!([latch["exists"], latch["state"]]), json!([true, "open"]));
    web.shows(&["curator_counter_value{path=\"/builds\"} -1"], &[r#"<span class="state free">open</span>"#]);
}

#[test]
fn paths_that_options_name_are_shown_and_followed() {
    let server = in_process();
    let web = Web::start_live(&server.connect_string(), &PATHS);
    paths_are_shown_while_they_change(&Clients::new(&server.connect_string()), &web);
}

#[test]
fn paths_that_options_name_are_shown_and_followed_on_apache() {
    let apache = Apache::start();
    let web = Web::start_live(&apache.connect, &PATHS);
    paths_are_shown_while_they_change(&Clients::new(&apache.connect), &web);
}

/// Waits until a path has a problem, and returns it.
fn problem(web: &Web, kind: &str, path: &str) -> String {
    until("a problem", || web.named(kind, path)["problem"].as_str().map(ToOwned::to_owned))
}

#[test]
fn path_of_another_kind_or_without_a_permission_is_named_and_counted() {
    let server = in_process();
    let clients = Clients::new(&server.connect_string());
    let client = clients.client();
    clients.contend(&client, "/lock", "lock-", "holder");
    clients.create(&client, "/config/colour", "blue");
    clients.create(&client, "/text", "abc");
    for path in ["/secret-group", "/secret-counter", "/secret-barrier", "/secret-latch"] {
        let acl = vec![Acl::new(Permission::ADMIN, "world", "anyone")];
        clients.create(&client, path, "");
        clients.runtime.block_on(client.set_acl().with_acl(acl).for_path(path)).unwrap();
    }
    let refused: Vec<(&str, &str, &str, String)> = [
        ("group", "groups", "/lock", "/lock is not a group, but a lock or an election: curator status /lock shows it"),
        (
            "group",
            "groups",
            "/config",
            "/config is not a group, because its children are not members: no session owns them",
        ),
        ("group", "groups", "/secret-group", "not authorized for /secret-group"),
        ("counter", "counters", "/text", "the data of /text is not a counter: it has 3 bytes"),
        ("counter", "counters", "/secret-counter", "not authorized for /secret-counter"),
        ("barrier", "barriers", "/secret-barrier", "not authorized for /secret-barrier"),
        ("latch", "latches", "/text", "the data of /text is not that of a count-down latch"),
        ("latch", "latches", "/secret-latch", "not authorized for /secret-latch"),
    ]
    .map(|(option, kind, path, reason)| (option, kind, path, reason.to_owned()))
    .to_vec();
    let options: Vec<String> =
        refused.iter().flat_map(|(option, _, path, _)| [format!("--{option}"), (*path).to_owned()]).collect();
    let mut arguments: Vec<&str> = options.iter().map(String::as_str).collect();
    arguments.extend(["--counter", "/empty"]);
    clients.create(&client, "/empty", "");
    let web = Web::start_live(&server.connect_string(), &arguments);
    for (_, kind, path, reason) in &refused {
        assert_eq!(problem(&web, kind, path), *reason);
        assert_eq!(web.get(&format!("/api/{kind}")).json()["complete"], false);
        assert!(web.get("/").body.contains(&format!(r#"<span class="lost">{reason}</span>"#)), "{reason}");
    }
    web.until_named("counters", "/empty", "value", &json!(0));
    web.shows(
        &["curator_left_out 7", "curator_counter_value{path=\"/empty\"} 0"],
        &["3 cannot be read", "2 cannot be read", "1 cannot be read"],
    );
    let metrics = web.get("/metrics").body;
    let series = metrics.lines().filter(|line| refused.iter().any(|(_, _, path, _)| line.contains(path)));
    assert!(series.clone().all(|line| line.starts_with("curator_lock_")), "{metrics}");
}

/// Returns the kinds of the next requests of the program. The other session is the test's.
fn looks(server: &TestingServer, other: i64) -> Vec<OpCode> {
    server.clear_requests();
    until("two more looks", || {
        let requests = server.requests().into_iter().filter(|request| request.session_id != other);
        let kinds: Vec<OpCode> = requests.map(|request| request.op).filter(|op| *op != OpCode::Ping).collect();
        (kinds.len() >= 16).then_some(kinds)
    })
}

#[test]
fn looks_write_nothing_and_read_the_members_of_a_barrier_once() {
    let server = in_process();
    let clients = Clients::new(&server.connect_string());
    let client = clients.client();
    let other = clients.runtime.block_on(client.session()).unwrap().id().unwrap().get();
    let web = Web::start_live(&server.connect_string(), &PATHS);
    let before = looks(&server, other);
    let things = clients.things(&client);
    web.until_named("barriers", "/benchmark", "state", &json!("gathering"));
    web.until_named("latches", "/parts", "remaining", &json!(2));
    let is_read = |op: &OpCode| matches!(op, OpCode::GetData | OpCode::Exists);
    let after = looks(&server, other);
    assert!(before.iter().chain(&after).all(is_read), "{before:?} {after:?}");
    drop(things);
}

#[test]
fn nothing_is_shown_of_paths_that_no_option_names() {
    let server = in_process();
    let clients = Clients::new(&server.connect_string());
    let client = clients.client();
    let _things = clients.things(&client);
    let web = Web::start_live(&server.connect_string(), &[]);
    let (page, metrics) = (web.get("/").body, web.get("/metrics").body);
    for kind in ["groups", "counters", "barriers", "latches"] {
        assert!(page.contains(&format!(r#"<section id="{kind}" hidden>"#)), "{page}");
        assert!(!page.contains(&format!("href=\"#{kind}\"")), "{page}");
        assert_eq!(web.get(&format!("/api/{kind}")).json()[kind], json!([]));
    }
    for name in ["curator_group_", "curator_counter_", "curator_barrier_", "curator_latch_"] {
        assert!(!metrics.contains(name), "{name}: {metrics}");
    }
}

#[test]
fn elections_of_latches_and_selectors_are_among_the_locks() {
    let server = in_process();
    let clients = Clients::new(&server.connect_string());
    let client = clients.client();
    clients.contend(&client, "/elections/latch", "latch-", "worker-1");
    clients.contend(&client, "/elections/selector", "lock-", "worker-2");
    let web = Web::start_live(&server.connect_string(), &[]);
    assert_eq!(web.counts("/elections/latch", 1, 0)["recipe"], "leader latch");
    assert_eq!(web.counts("/elections/selector", 1, 0)["recipe"], "mutex");
}

#[test]
fn members_are_kept_without_a_server() {
    let server = in_process();
    let clients = Clients::new(&server.connect_string());
    let client = clients.client();
    let create = client.create().creating_parents_if_needed().with_mode(CreateMode::Ephemeral);
    clients.runtime.block_on(create.for_path("/workers/one")).unwrap();
    let web = Web::start_live(&server.connect_string(), &PATHS);
    web.until_named("groups", "/workers", "members", &json!(1));
    server.stop();
    let groups = until("the loss", || Some(web.get("/api/groups").json()).filter(|all| all["connected"] == false));
    assert_eq!(json!([groups["complete"], groups["groups"][0]["members"]]), json!([false, 1]));
    assert!(!web.get("/metrics").body.contains("curator_group_"));
    server.restart().unwrap();
    until("the next look", || (web.get("/api/groups").json()["complete"] == true).then_some(()));
}

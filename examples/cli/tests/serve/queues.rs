//! Queues, on the page, as JSON and as metrics.

use curator_framework::{Acl, CreateMode, CuratorFramework, Permission};
use curator_recipes::{Delivery, DistributedQueue, QueueOptions, RawCodec};
use curator_test::wire::OpCode;
use serde_json::{Value, json};

use crate::{Apache, Clients, Web, in_process, until};

impl Clients {
    /// Puts a node with the name of an item, and returns its path.
    pub(crate) fn put(&self, client: &CuratorFramework, queue: &str, data: &str) -> String {
        let create = client.create().creating_parents_if_needed().with_mode(CreateMode::PersistentSequential);
        self.runtime.block_on(create.with_data(data).for_path(&format!("{queue}/queue-"))).unwrap()
    }

    fn queue(&self, client: &CuratorFramework, path: &str) -> DistributedQueue<String> {
        let _in = self.runtime.enter();
        let options = QueueOptions::new().lock_path(format!("{path}-locks"));
        DistributedQueue::with_options(client.clone(), path, RawCodec, options).unwrap()
    }

    fn take(&self, queue: &DistributedQueue<String>) -> Delivery<String> {
        let mut consumer = queue.consumer();
        self.runtime.block_on(consumer.next()).unwrap().unwrap()
    }
}

impl Web {
    fn queues(&self) -> Value {
        self.get("/api/queues").json()
    }

    /// Waits until a queue has so many items, items in work, and dead letters.
    fn queue(&self, path: &str, items: usize, in_work: usize, dead: usize) -> Value {
        until("a state of the queue", || {
            let queues = self.queues()["queues"].clone();
            let queue = queues.as_array().unwrap().iter().find(|queue| queue["path"] == path)?.clone();
            let numbers = json!([queue["items"], queue["in_work"], queue["dead"]]);
            (numbers == json!([items, in_work, dead])).then_some(queue)
        })
    }
}

fn queue_is_shown_while_it_changes(clients: &Clients, web: &Web) {
    let client = clients.client();
    let missing =
        until("the first look", || Some(web.queues()["queues"][0].clone()).filter(|queue| queue["exists"] == false));
    let none = json!({ "path": "/jobs", "exists": false, "items": null, "in_work": null, "dead": null, "oldest": null,
        "oldest_created_ms": null, "problem": null });
    assert_eq!(missing, none);
    assert!(web.get("/").body.contains("no such queue"));
    let jobs = clients.queue(&client, "/jobs");
    let items: Vec<String> = ["one", "two", "three", "four"].map(ToOwned::to_owned).to_vec();
    clients.runtime.block_on(jobs.put_all(&items)).unwrap();
    let queue = web.queue("/jobs", 4, 0, 0);
    assert_eq!(queue["oldest"], "queue-0000000000");
    assert!(queue["oldest_created_ms"].as_i64().unwrap() > 1_700_000_000_000, "{queue}");
    let rejected = clients.take(&jobs);
    let kept = clients.take(&jobs);
    clients.runtime.block_on(rejected.reject("bad")).unwrap();
    let queue = web.queue("/jobs", 3, 1, 1);
    assert_eq!(queue["oldest"], "queue-0000000001", "the one before has left the queue");
    let page = web.get("/").body;
    for part in [
        r##" · <a href="#queues"><b>1</b> queue</a>"##,
        r#"<th scope="row">/jobs</th>"#,
        r#"<td data-label="Items" class="number">3</td>"#,
        r#"<td data-label="In work" class="number">1</td>"#,
        r#"<span class="state lost">1</span>"#,
        "<b>1</b> queue · <b>3</b> items · <b>1</b> dead letter",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let metrics = web.get("/metrics").body;
    for line in ["items{path=\"/jobs\"} 3", "in_work{path=\"/jobs\"} 1", "dead_letters{path=\"/jobs\"} 1"] {
        assert!(metrics.contains(&format!("\ncurator_queue_{line}\n")), "{line}: {metrics}");
    }
    let oldest = metrics.split("\ncurator_queue_oldest_item_seconds{path=\"/jobs\"} ").nth(1).unwrap();
    let oldest: f64 = oldest.lines().next().unwrap().parse().unwrap();
    assert!((0.0..60.0).contains(&oldest), "{oldest}");
    clients.runtime.block_on(kept.complete()).unwrap();
    for _ in 0..2 {
        clients.runtime.block_on(clients.take(&jobs).complete()).unwrap();
    }
    let queue = web.queue("/jobs", 0, 0, 1);
    assert_eq!(json!([queue["exists"], queue["oldest"]]), json!([true, null]));
}

#[test]
fn queues_are_shown_and_followed() {
    let server = in_process();
    let web = Web::start_live(&server.connect_string(), &["--queue", "/jobs"]);
    queue_is_shown_while_it_changes(&Clients::new(&server.connect_string()), &web);
}

#[test]
fn queues_are_shown_and_followed_on_apache() {
    let apache = Apache::start();
    let web = Web::start_live(&apache.connect, &["--queue", "/jobs"]);
    queue_is_shown_while_it_changes(&Clients::new(&apache.connect), &web);
}

#[test]
fn nothing_is_shown_of_queues_that_no_option_names() {
    let server = in_process();
    let clients = Clients::new(&server.connect_string());
    clients.put(&clients.client(), "/jobs", "one");
    let web = Web::start_live(&server.connect_string(), &[]);
    let page = web.get("/").body;
    assert!(page.contains(r#"<section id="queues" hidden>"#) && !page.contains(r##"href="#queues""##), "{page}");
    assert_eq!(web.queues()["queues"], json!([]));
    assert!(!web.get("/metrics").body.contains("curator_queue"));
    assert_eq!(web.stream("/events").next().unwrap()["queues"]["hidden"], true);
}

#[test]
fn stream_of_the_list_has_the_changed_queues_alone() {
    let server = in_process();
    let clients = Clients::new(&server.connect_string());
    let client = clients.client();
    for path in ["/jobs", "/mails"] {
        clients.put(&client, path, "one");
    }
    let web = Web::start_live(&server.connect_string(), &["--queue", "/jobs", "--queue", "/mails"]);
    web.queue("/jobs", 1, 0, 0);
    web.queue("/mails", 1, 0, 0);
    let mut list = web.stream("/events");
    assert_eq!(list.next().unwrap()["queues"]["rows"].as_array().unwrap().len(), 2);
    clients.put(&client, "/mails", "two");
    let update = list.update_with("<b>3</b> items");
    let rows = update["queues"]["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[0]["id"], &update["all"]), (1, &json!("/mails"), &json!(false)), "{update}");
}

#[test]
fn known_names_are_used_up_without_a_listing() {
    let server = in_process();
    let clients = Clients::new(&server.connect_string());
    let client = clients.client();
    let paths: Vec<String> = (0..100).map(|_| clients.put(&client, "/jobs", "one")).collect();
    let web = Web::start_live(&server.connect_string(), &["--queue", "/jobs", "/locks"]);
    web.queue("/jobs", 100, 0, 0);
    server.clear_requests();
    for path in &paths[..90] {
        clients.delete(&client, path);
    }
    let queue = web.queue("/jobs", 10, 0, 0);
    assert_eq!(queue["oldest"], "queue-0000000090");
    let is_listing = |op: OpCode| matches!(op, OpCode::GetChildren | OpCode::GetChildren2);
    let requests = server.requests();
    assert!(requests.iter().all(|request| !is_listing(request.op)), "{requests:?}");
}

#[test]
fn numbers_begin_again_in_a_queue_that_is_created_again() {
    let server = in_process();
    let clients = Clients::new(&server.connect_string());
    let client = clients.client();
    let paths: Vec<String> = (0..3).map(|_| clients.put(&client, "/jobs", "one")).collect();
    clients.delete(&client, &paths[0]);
    let web = Web::start_live(&server.connect_string(), &["--queue", "/jobs"]);
    assert_eq!(web.queue("/jobs", 2, 0, 0)["oldest"], "queue-0000000001");
    clients.delete(&client, "/jobs");
    for _ in 0..3 {
        clients.put(&client, "/jobs", "new");
    }
    assert_eq!(web.queue("/jobs", 3, 0, 0)["oldest"], "queue-0000000000", "the known name exists in the new one too");
}

#[test]
fn queue_that_may_not_be_listed_is_named() {
    let server = in_process();
    let clients = Clients::new(&server.connect_string());
    let client = clients.client();
    let item = clients.put(&client, "/jobs", "one");
    assert_eq!(item, "/jobs/queue-0000000000");
    let acl = vec![Acl::new(Permission::ADMIN | Permission::CREATE, "world", "anyone")];
    clients.runtime.block_on(client.set_acl().with_acl(acl).for_path("/jobs")).unwrap();
    let web = Web::start_live(&server.connect_string(), &["--queue", "/jobs"]);
    let queues = until("the refusal", || Some(web.queues()).filter(|all| all["queues"][0]["problem"].is_string()));
    assert_eq!(queues["queues"][0]["problem"], "not authorized for /jobs");
    assert_eq!(queues["complete"], false);
    assert!(web.get("/").body.contains(r#"<span class="lost">not authorized for /jobs</span>"#));
    assert!(!web.get("/metrics").body.contains("curator_queue"));
}

#[test]
fn queues_are_kept_without_a_server() {
    let server = in_process();
    let clients = Clients::new(&server.connect_string());
    clients.put(&clients.client(), "/jobs", "one");
    let web = Web::start_live(&server.connect_string(), &["--queue", "/jobs"]);
    web.queue("/jobs", 1, 0, 0);
    server.stop();
    let queues = until("the loss", || Some(web.queues()).filter(|queues| queues["connected"] == false));
    assert_eq!(json!([queues["complete"], queues["queues"][0]["items"]]), json!([false, 1]));
    assert!(!web.get("/metrics").body.contains("curator_queue"));
    server.restart().unwrap();
    until("the next look", || (web.queues()["complete"] == true).then_some(()));
}

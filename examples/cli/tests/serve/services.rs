//! The services of Curator's service discovery, on the page, as JSON and as metrics.

use curator_discovery::{RawPayload, Registration, ServiceDiscovery, ServiceInstance};
use curator_framework::{Acl, CuratorFramework, Permission};
use serde_json::{Value, json};

use crate::{Apache, Clients, Web, in_process, until};

type Discovery = ServiceDiscovery<RawPayload>;

impl Clients {
    fn discovery(&self, client: &CuratorFramework) -> Discovery {
        ServiceDiscovery::new(client.clone(), "/services").unwrap()
    }

    fn register(&self, discovery: &Discovery, name: &str, id: &str, payload: &str) -> Registration<RawPayload> {
        let payload = RawPayload::from_json(payload).unwrap();
        let instance = ServiceInstance::builder(name).id(id).address("10.0.0.7").port(8080).payload(payload);
        self.runtime.block_on(discovery.register(instance.build().unwrap())).unwrap()
    }
}

impl Web {
    fn services(&self) -> Value {
        self.get("/api/services").json()
    }

    /// Waits until the list of services satisfies a condition.
    fn services_with(&self, condition: impl Fn(&Value) -> bool) -> Value {
        until("a state of the services", || Some(self.services()).filter(&condition))
    }

    /// Waits until a service has so many instances that are enabled, disabled and broken.
    fn service(&self, name: &str, enabled: usize, disabled: usize, broken: usize) -> Value {
        let found = || {
            let answer = self.get(&format!("/api/services/{name}"));
            (answer.status == 200).then(|| answer.json()).filter(|service| {
                json!([service["enabled"], service["disabled"], service["broken"]])
                    == json!([enabled, disabled, broken])
            })
        };
        until("a state of the service", found)
    }
}

fn services_are_shown_while_they_change(clients: &Clients, web: &Web) {
    let client = clients.client();
    let discovery = clients.discovery(&client);
    let one = clients.register(&discovery, "web", "one", r#"{"zone":"a"}"#);
    let two = clients.register(&discovery, "web", "two", "null");
    let three = clients.register(&discovery, "shop/cart", "three", "null");
    clients.create(&client, "/services/web/broken", "{<b>");
    let service = web.service("web", 2, 0, 1);
    assert_eq!(
        json!([service["name"], service["addresses"], service["complete"], service["base"]]),
        json!(["web", ["10.0.0.7:8080", "10.0.0.7:8080"], true, "/services"])
    );
    let instance = &service["instances"][0];
    assert_eq!(
        json!([instance["node"], instance["id"], instance["port"], instance["type"], instance["payload"]]),
        json!(["one", "one", 8080, "DYNAMIC", { "zone": "a" }])
    );
    let reason = service["broken_nodes"][0]["reason"].as_str().unwrap().to_owned();
    assert!(reason.starts_with("the data is not the JSON of an instance: "), "{reason}");
    web.service("shop/cart", 1, 0, 0);
    let page = web.get("/").body;
    for part in [
        r#"<a href="/services/web">web</a>"#,
        r#"<a href="/services/shop/cart">shop/cart</a>"#,
        ">2 enabled<",
        ">1 cannot be read<",
        "<code>broken</code> the data is not the JSON",
        "<b>2</b> services",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    clients.runtime.block_on(two.set_enabled(false)).unwrap();
    web.service("web", 1, 1, 1);
    let page = web.get("/services/web");
    assert_eq!(page.status, 200);
    for part in [">enabled<", ">disabled<", ">cannot be read<", "10.0.0.7:8080", "{&quot;zone&quot;:&quot;a&quot;}"] {
        assert!(page.body.contains(part), "{part}: {}", page.body);
    }
    let metrics = until("the metrics", || {
        let metrics = web.get("/metrics").body;
        metrics.contains("\ncurator_services 2\n").then_some(metrics)
    });
    for (state, count) in [("enabled", 1), ("disabled", 1), ("broken", 1)] {
        let line = format!("\ncurator_service_instances{{service=\"web\",state=\"{state}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
    clients.delete(&client, "/services/web/broken");
    clients.runtime.block_on(async {
        one.unregister().await.unwrap();
        two.unregister().await.unwrap();
        three.unregister().await.unwrap();
    });
    web.service("web", 0, 0, 0);
    assert!(web.get("/").body.contains(">no instances<"));
    clients.delete(&client, "/services");
    web.services_with(|services| services["exists"] == false);
}

#[test]
fn services_are_shown_and_followed() {
    let server = in_process();
    let web = Web::start_live(&server.connect_string(), &[]);
    services_are_shown_while_they_change(&Clients::new(&server.connect_string()), &web);
}

#[test]
fn services_are_shown_and_followed_on_apache() {
    let apache = Apache::start();
    let web = Web::start_live(&apache.connect, &[]);
    services_are_shown_while_they_change(&Clients::new(&apache.connect), &web);
}

#[test]
fn nothing_is_shown_without_the_base_path() {
    let server = in_process();
    let web = Web::start_live(&server.connect_string(), &["--base", "/registry"]);
    let services = web.services_with(|services| services["complete"] == true);
    assert_eq!(json!([services["exists"], services["base"], services["services"]]), json!([false, "/registry", []]));
    let page = web.get("/").body;
    assert!(page.contains(r#"<section id="services" hidden>"#) && !page.contains(r##"href="#services""##), "{page}");
    assert!(!web.get("/metrics").body.contains("curator_service"));
    assert_eq!(web.get("/services/web").status, 404);
    assert_eq!(server.children("/registry"), None, "the page writes nothing");
    // The services of another base path are not shown.
    let clients = Clients::new(&server.connect_string());
    let client = clients.client();
    clients.create(&client, "/services/web/one", "{}");
    clients.create(&client, "/registry/api/one", r#"{"address":"::1","port":80}"#);
    web.service("api", 1, 0, 0);
    assert_eq!(web.services()["services"][0]["addresses"], json!(["[::1]:80"]));
    assert_eq!(web.services()["services"].as_array().unwrap().len(), 1);
}

#[test]
fn stream_of_the_list_has_the_changed_services_alone() {
    let server = in_process();
    let clients = Clients::new(&server.connect_string());
    let client = clients.client();
    for name in ["api", "web"] {
        clients.create(&client, &format!("/services/{name}/one"), "{}");
    }
    let web = Web::start_live(&server.connect_string(), &["/jobs"]);
    web.service("web", 1, 0, 0);
    let mut list = web.stream("/events");
    let first = list.next().unwrap()["services"].clone();
    assert_eq!(json!([first["hidden"], first["rows"].as_array().unwrap().len()]), json!([false, 2]));
    let mut service = web.stream("/service-events/web");
    assert_eq!(service.next().unwrap()["rows"].as_array().unwrap().len(), 1);
    clients.create(&client, "/services/web/two", "{}");
    let update = list.update_with("2 enabled");
    let rows = update["services"]["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[0]["id"], &update["all"]), (1, &json!("web"), &json!(false)), "{update}");
    let update = service.update_with("two");
    assert_eq!(update["rows"].as_array().unwrap().len(), 1, "{update}");
    clients.delete(&client, "/services/api");
    assert_eq!(list.update_with("api")["services"]["gone"], json!(["api"]));
    clients.delete(&client, "/services/web");
    // The deletions may come in several updates.
    let mut gone = Vec::new();
    loop {
        let update = service.next().unwrap();
        gone.extend(update["gone"].as_array().unwrap().iter().cloned());
        if update["summary"].to_string().contains("no such service") {
            break;
        }
    }
    gone.sort_by_key(Value::to_string);
    assert_eq!(json!(gone), json!(["one", "two"]));
}

#[test]
fn services_that_may_not_be_read_are_named() {
    let server = in_process();
    let clients = Clients::new(&server.connect_string());
    let client = clients.client();
    clients.create(&client, "/services/web/one", "{}");
    let acl = vec![Acl::new(Permission::ADMIN | Permission::DELETE, "world", "anyone")];
    let secret = |path: &str| {
        clients.runtime.block_on(client.create().with_acl(acl.clone()).with_data("{}").for_path(path)).unwrap();
    };
    secret("/services/web/two");
    secret("/services/secret");
    let web = Web::start_live(&server.connect_string(), &[]);
    let service = web.service("web", 1, 0, 1);
    assert_eq!(service["broken_nodes"][0], json!({ "node": "two", "reason": "not authorized for /services/web/two" }));
    let problems = json!(["not authorized for /services/secret"]);
    assert_eq!(json!([service["complete"], service["problems"]]), json!([false, problems]));
    assert!(web.get("/").body.contains(r#"<span class="lost">not authorized for /services/secret</span>"#));
    // Later instances of other services are shown.
    clients.create(&client, "/services/web/three", "{}");
    web.service("web", 2, 0, 1);
}

#[test]
fn services_are_kept_without_a_server() {
    let server = in_process();
    let clients = Clients::new(&server.connect_string());
    clients.create(&clients.client(), "/services/web/one", "{}");
    let web = Web::start_live(&server.connect_string(), &[]);
    web.service("web", 1, 0, 0);
    server.stop();
    let services = web.services_with(|services| services["connected"] == false);
    assert_eq!(json!([services["complete"], services["services"][0]["enabled"]]), json!([false, 1]));
    assert!(!web.get("/metrics").body.contains("curator_service_instances"));
    server.restart().unwrap();
    web.services_with(|services| services["complete"] == true);
}

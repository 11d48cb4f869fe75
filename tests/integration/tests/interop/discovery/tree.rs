//! Registrations and queries of both languages below one base path.

use curator_discovery::{ServiceDiscovery, ServiceInstance, ServiceType};
use curator_framework::{CuratorFramework, SessionId, Stat};
use curator_integration::env::{Env, Kind, children, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::NodeState;

use super::{Javas, builder, registered, shown, shown_of, text_of, with_enabled};
use crate::peer::Peer;

const KINDS: [ServiceType; 4] =
    [ServiceType::Dynamic, ServiceType::Static, ServiceType::Permanent, ServiceType::DynamicSequential];

async fn sorted_children(client: &CuratorFramework, path: &str) -> Vec<String> {
    let mut names = children(client, path).await;
    names.sort_unstable();
    names
}

async fn stat(client: &CuratorFramework, path: &str) -> Stat {
    in_time(client.check_exists().for_path(path)).await.unwrap().expect("the node exists")
}

/// Returns the instance of Java's program with these fields.
fn javas_instance(kind: ServiceType, payload: &str) -> ServiceInstance<String> {
    builder(kind.as_str(), "j").service_type(kind).payload(payload.to_owned()).build().unwrap()
}

/// One service of one type with an instance of each language.
struct Pair<'a> {
    kind: ServiceType,
    client: &'a CuratorFramework,
    discovery: &'a ServiceDiscovery<String>,
    /// The sessions of Java's program and of our client.
    sessions: [i64; 2],
}

impl Pair<'_> {
    fn is_sequential(&self) -> bool {
        self.kind == ServiceType::DynamicSequential
    }

    fn fields(&self, payload: &str) -> String {
        format!("name={0} id=j type={0} payload=text:{payload}", self.kind)
    }

    async fn nodes_are_alike(&self, service: &str) {
        let (name, names) = (self.kind.as_str(), sorted_children(self.client, service).await);
        let expected = if self.is_sequential() { ["j0000000000", "r0000000001"] } else { ["j", "r"] };
        assert_eq!(names, expected, "{name}");
        let [javas, ours] = expected.map(|node| format!("{service}/{node}"));
        let data = text_of(self.client, &javas).await;
        assert_eq!(data.replace("\"id\":\"j\"", "\"id\":\"r\""), text_of(self.client, &ours).await);
        let is_ephemeral = matches!(self.kind, ServiceType::Dynamic | ServiceType::DynamicSequential);
        for (node, session) in [javas, ours].iter().zip(self.sessions) {
            let owner = if is_ephemeral { session } else { 0 };
            assert_eq!(stat(self.client, node).await.ephemeral_owner, owner, "{node}");
        }
    }

    /// Registers, changes and unregisters an instance of each language.
    async fn lives(&self, javas: &mut Javas) {
        let (kind, name) = (self.kind, self.kind.as_str());
        javas.does(&format!("register {}", self.fields("p")), "registered").await;
        let instance = builder(name, "r").service_type(kind).payload("p".to_owned());
        let ours = registered(self.discovery, instance).await;
        self.nodes_are_alike(ours.path()).await;

        // Both queries of both languages.
        let found = in_time(self.discovery.instances(name)).await.unwrap();
        assert!(found.broken.is_empty(), "{:?}", found.broken);
        let expected = [javas_instance(kind, "p"), ours.instance().unwrap()];
        assert_eq!(found.found, expected);
        let texts = expected.each_ref().map(shown);
        javas.does(&format!("instances {name}"), &texts.join(" ")).await;
        let [javas_node, our_node] = if self.is_sequential() { ["j0000000000", "r0000000001"] } else { ["j", "r"] };
        let found = in_time(self.discovery.instance(name, javas_node)).await.unwrap();
        assert_eq!(found.as_ref(), Some(&expected[0]));
        javas.does(&format!("instance {name} {our_node}"), &texts[1]).await;

        in_time(ours.update(|instance| "q".clone_into(&mut instance.payload))).await.unwrap();
        javas.does(&format!("instance {name} {our_node}"), &shown_of(&ours)).await;
        if !self.is_sequential() {
            javas.does(&format!("update {}", self.fields("q")), "updated").await;
            let found = in_time(self.discovery.instance(name, javas_node)).await.unwrap();
            assert_eq!(found, Some(javas_instance(kind, "q")));
        }

        in_time(ours.unregister()).await.unwrap();
        javas.does(&format!("unregister {}", self.fields("p")), "unregistered").await;
        // Java cannot unregister a sequential instance: it deletes the path without the number.
        let left: &[&str] = if self.is_sequential() { &["j0000000000"] } else { &[] };
        assert_eq!(sorted_children(self.client, ours.path()).await, left, "{name}");
        javas.does(&format!("instance {name} {our_node}"), "none").await;
    }
}

on_every_server! {
    async fn each_finds_what_the_other_registers(env) {
        let java = Peer::java(&env).await;
        let client = env.client().await;
        let sessions = [java.session().await, in_time(client.session()).await.unwrap().id().unwrap().get()];
        for form in ["default", "enabled"] {
            let base = env.path(form);
            let mut javas = Javas::new(&java, &base, form);
            let discovery: ServiceDiscovery<String> = match form {
                "default" => ServiceDiscovery::new(client.clone(), &base).unwrap(),
                _ => with_enabled(&client, &base),
            };
            for kind in KINDS {
                Pair { kind, client: &client, discovery: &discovery, sessions }.lives(&mut javas).await;
            }
            let names = ["DYNAMIC", "DYNAMIC_SEQUENTIAL", "PERMANENT", "STATIC"];
            assert_eq!(in_time(discovery.names()).await.unwrap(), names);
            javas.does("names", &names.join(",")).await;
        }
        java.end().await;
    }
}

/// CURATOR-94: Java deletes permanent instances at its close. The close of one language leaves the instances of the
/// other one alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_ends_the_instances_of_its_own_discovery() {
    let env = Env::new(Kind::InProcess);
    let java = Peer::java(&env).await;
    let (client, base) = (env.client().await, env.path("base"));
    let discovery: ServiceDiscovery<String> = ServiceDiscovery::new(client.clone(), &base).unwrap();
    let mut ours = Vec::new();
    // Java keeps its instances by their ids alone: one id for two services ends in the deletion of the wrong node.
    for form in ["default", "enabled"] {
        let mut javas = Javas::new(&java, &base, form);
        for kind in KINDS {
            javas
                .does(&format!("register name={kind} id={form}-{kind} type={kind} payload=text:p"), "registered")
                .await;
        }
    }
    for kind in KINDS {
        let instance = builder(kind.as_str(), "ours").service_type(kind).payload("p".to_owned());
        ours.push(registered(&discovery, instance).await);
    }
    Javas::new(&java, &base, "enabled").does("close", "closed").await;
    for (kind, left) in KINDS.iter().zip([2, 2, 2, 3]) {
        // Java's sequential instances stay.
        let names = sorted_children(&client, &format!("{base}/{kind}")).await;
        assert_eq!(names.len(), left, "{names:?}");
        assert!(names[0].starts_with("default") && names[left - 1].starts_with("ours"), "{names:?}");
    }
    in_time(discovery.close()).await;
    for kind in KINDS {
        let names = sorted_children(&client, &format!("{base}/{kind}")).await;
        let ours = names.iter().filter(|name| name.starts_with("ours")).count();
        assert_eq!(ours, usize::from(kind == ServiceType::Permanent), "{names:?}");
        assert!(names[0].starts_with("default"), "{names:?}");
    }
    java.end().await;
}

/// Java deletes the node of another process with the same id, and creates its own one. Our registration reports that,
/// and leaves Java's node alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_instance_waits_for_the_end_of_javas_with_the_same_id() {
    let env = Env::new(Kind::InProcess);
    let java = Peer::java(&env).await;
    let (client, base, session) = (env.client().await, env.path("base"), java.session().await);
    let mut javas = Javas::new(&java, &base, "default");
    let discovery: ServiceDiscovery<String> = ServiceDiscovery::new(client.clone(), &base).unwrap();
    let ours = registered(&discovery, builder("web", "i1").payload("ours".to_owned())).await;
    let before = in_time(ours.registered()).await.unwrap();
    // Our task may create the node between Java's delete and create. Then Java ends without a node.
    let register = async || {
        javas.does("register name=web id=i1 payload=text:javas", "registered").await;
        let data = in_time(client.get_data().for_path(&before.path)).await;
        data.is_ok_and(|(data, _)| String::from_utf8(data).unwrap().contains("javas"))
    };
    eventually("Java has the node", register).await;
    let is_javas =
        |state: &NodeState| matches!(state, NodeState::TakenBy { session: of, .. } if *of == SessionId::new(session));
    in_time(ours.watch().wait_for(is_javas)).await.unwrap();
    assert!(text_of(&client, &before.path).await.contains("javas"));
    javas.does("unregister name=web id=i1", "unregistered").await;
    let after = in_time(ours.registered()).await.unwrap();
    assert!(after.czxid > before.czxid);
    assert!(text_of(&client, &before.path).await.contains("ours"));
    java.end().await;
}

//! The instances of spring-cloud-zookeeper and of Dubbo: read, written again, and read by Java.

use curator_discovery::{
    DubboPayload, InstanceSerializer as _, JsonInstanceSerializer, Payload, RawPayload, ServiceDiscovery,
    ServiceInstance, SpringPayload,
};
use curator_framework::CuratorFramework;
use curator_integration::env::{Env, Kind, in_time};

use super::{Javas, builder, registered, shown_of, text_of};
use crate::peer::Peer;

const SPRING: &str = concat!(
    r#"{"name":"application","id":"6b3a2c56-7d1e-4a34-9f7d-0b0d2d6a9c11","address":"10.0.0.7","port":8080,"#,
    r#""sslPort":null,"payload":{"@class":"org.springframework.cloud.zookeeper.discovery.ZookeeperInstance","#,
    r#""id":"application-1","name":"application","metadata":{"instance_status":"UP"}},"#,
    r#""registrationTimeUTC":1753142400000,"serviceType":"DYNAMIC","uriSpec":{"parts":["#,
    r#"{"value":"scheme","variable":true},{"value":"://","variable":false},{"value":"address","variable":true},"#,
    r#"{"value":":","variable":false},{"value":"port","variable":true}]}}"#,
);
const DUBBO: &str = concat!(
    r#"{"name":"demo-provider","id":"10.0.0.7:20880","address":"10.0.0.7","port":20880,"sslPort":null,"#,
    r#""payload":{"@class":"org.apache.dubbo.registry.zookeeper.ZookeeperInstance","id":"10.0.0.7:20880","#,
    r#""name":"demo-provider","metadata":{"dubbo.endpoints":"[{\"port\":20880,\"protocol\":\"dubbo\"}]","#,
    r#""dubbo.metadata-service.url-params":"{\"connections\":\"1\",\"version\":\"1.0.0\",\"dubbo\":\"2.0.2\","#,
    r#"\"side\":\"provider\",\"port\":\"20880\",\"protocol\":\"dubbo\"}","#,
    r#""dubbo.metadata.revision":"4e3c2a1b0f9d8e7c6b5a493827161504","dubbo.metadata.storage-type":"local","#,
    r#""timestamp":"1753142400000"}},"registrationTimeUTC":1753142400000,"serviceType":"DYNAMIC","uriSpec":null}"#,
);

const UNKNOWN: &str = r#""weight":{"cpu":[1,2]}"#;

/// Returns the JSON with a field of a later version in front.
fn later(json: &str) -> String {
    json.replacen('{', &format!("{{{UNKNOWN},"), 1)
}

/// Returns the JSON with the field of a later version at the end, where this crate writes it.
fn written_later(json: &str) -> String {
    format!("{},{UNKNOWN}}}", json.strip_suffix('}').unwrap())
}

/// Registers the instance of a JSON text below another base path, and compares the bytes.
async fn is_written_again<P: Payload>(client: &CuratorFramework, root: &str, json: &str, expected: &str) {
    let foreign: ServiceInstance<RawPayload> = decoded(json);
    let path = format!("{root}/theirs/{}/{}", foreign.name, foreign.id);
    let create = client.create().creating_parents_if_needed().with_data(json);
    create.for_path(&path).await.unwrap();
    let theirs: ServiceDiscovery<P> = ServiceDiscovery::new(client.clone(), format!("{root}/theirs")).unwrap();
    let read = in_time(theirs.instances(&foreign.name)).await.unwrap();
    assert!(read.broken.is_empty(), "{:?}", read.broken);
    let ours: ServiceDiscovery<P> = ServiceDiscovery::new(client.clone(), format!("{root}/ours")).unwrap();
    let again = in_time(ours.register(read.found.into_iter().next().unwrap())).await.unwrap();
    assert_eq!(text_of(client, &again.node_path().unwrap()).await, expected);
    // An update keeps all other fields.
    in_time(again.update(|instance| instance.port = Some(1))).await.unwrap();
    let port = format!("\"port\":{}", foreign.port.unwrap());
    let updated = expected.replacen(&port, "\"port\":1", 1);
    assert_eq!(text_of(client, &again.node_path().unwrap()).await, updated);
    client.delete().for_path(&path).await.unwrap();
    in_time(again.unregister()).await.unwrap();
}

fn decoded(json: &str) -> ServiceInstance<RawPayload> {
    JsonInstanceSerializer::new().deserialize(json.as_bytes()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_of_spring_and_dubbo_are_written_again_without_loss() {
    let env = Env::new(Kind::InProcess);
    let java = Peer::java(&env).await;
    let client = env.client().await;
    let mut json = java.thread("json");
    for dump in [SPRING, DUBBO] {
        let [newer, written] = [later(dump), written_later(dump)];
        for (number, (json, expected)) in [(dump, dump), (&newer, &written)].into_iter().enumerate() {
            let root = env.path(&number.to_string());
            is_written_again::<RawPayload>(&client, &root, json, expected).await;
            if dump == SPRING {
                is_written_again::<SpringPayload>(&client, &root, json, expected).await;
            } else {
                is_written_again::<DubboPayload>(&client, &root, json, expected).await;
            }
        }
        for text in [dump, &written] {
            assert_eq!(json.ask(&format!("json default read {text}")).await, dump);
        }
    }
    java_finds_our_payloads(&env, &java).await;
    java.end().await;
}

/// Java's reader loads the class that the payload names.
async fn java_finds_our_payloads(env: &Env, java: &Peer) {
    let (client, base) = (env.client().await, env.path("services"));
    let mut javas = Javas::new(java, &base, "default");
    javas.does("follow web", "following").await;
    let spring: ServiceDiscovery<SpringPayload> = ServiceDiscovery::new(client.clone(), &base).unwrap();
    let payload = SpringPayload::new("web-1", "web");
    let ours = registered(&spring, builder("web", "s").port(80).payload(payload)).await;
    javas.sees("web", &[shown_of(&ours)]).await;
    // Spring's status, and Curator's field.
    in_time(ours.set_enabled(false)).await.unwrap();
    let disabled = shown_of(&ours);
    assert!(disabled.contains("\"instance_status\":\"OUT_OF_SERVICE\"") && disabled.contains("\"enabled\":false"));
    javas.sees("web", &[disabled]).await;
    in_time(ours.unregister()).await.unwrap();
    let dubbo: ServiceDiscovery<DubboPayload> = ServiceDiscovery::new(client.clone(), &base).unwrap();
    let payload = DubboPayload::new("10.0.0.7:20880", "web").with_metadata("timestamp", "1753142400000");
    let ours = registered(&dubbo, builder("web", "10.0.0.7:20880").port(20880).payload(payload)).await;
    javas.sees("web", &[shown_of(&ours)]).await;
    // The payload of a Spring program in Java.
    javas.does("register name=spring id=j port=80 payload=spring:web-1,web,UP", "registered").await;
    let found = in_time(spring.instance("spring", "j")).await.unwrap().unwrap();
    assert_eq!(found.payload, SpringPayload::new("web-1", "web"));
}

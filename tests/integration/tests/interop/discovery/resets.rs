//! A reset of the connection under the instances of each language, counted by the server.

use std::time::Duration;

use curator_discovery::ServiceDiscovery;
use curator_integration::env::{builder as client_builder, connected, eventually, in_time};
use curator_integration::in_process::{client, server};
use curator_test::wire::OpCode;
use curator_test::{FaultProxy, TestingServer};

use super::{Javas, builder, loaded, registered};
use crate::peer::{Language, Peer};

const INSTANCES: usize = 10;
const SESSION: Duration = Duration::from_secs(30);

/// Returns the number of successful creates and deletes in a session.
fn writes(server: &TestingServer, session: i64) -> [usize; 2] {
    let is_of = |ops: &[OpCode]| {
        let all = server.requests().into_iter();
        all.filter(|one| one.session_id == session && ops.contains(&one.op) && one.error == 0).count()
    };
    [is_of(&[OpCode::Create, OpCode::Create2, OpCode::Multi, OpCode::SetData]), is_of(&[OpCode::Delete])]
}

/// CURATOR-320: Java deletes and creates each instance after each reset of its connection. Our instances stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reset_costs_java_each_instance_and_us_none() {
    let server = server();
    let [javas_proxy, our_proxy] = [(); 2].map(|()| FaultProxy::start(server.address()).unwrap());
    let java = Peer::start(Language::Java, javas_proxy.connect_string(), SESSION).await;
    let (of_java, mut javas) = (java.session().await, Javas::new(&java, "/base", "default"));
    for id in 0..INSTANCES {
        javas.does(&format!("register name=javas id=i{id} payload=text:p"), "registered").await;
    }
    let ours = connected(client_builder(our_proxy.address()).session_timeout(SESSION)).await;
    let discovery: ServiceDiscovery<String> = ServiceDiscovery::new(ours.clone(), "/base").unwrap();
    let mut registrations = Vec::new();
    for id in 0..INSTANCES {
        let instance = builder("ours", &format!("i{id}")).payload("p".to_owned());
        registrations.push(registered(&discovery, instance).await);
    }
    let of_ours = in_time(ours.session()).await.unwrap().id().unwrap().get();
    let consumer: ServiceDiscovery<String> = ServiceDiscovery::new(client(&server).await, "/base").unwrap();
    let cache = loaded(&consumer, "ours").await;
    let mut changes = cache.changes();
    for _ in 0..INSTANCES {
        in_time(changes.recv()).await.unwrap();
    }

    server.clear_requests();
    our_proxy.reset();
    javas_proxy.reset();
    eventually("Java has registered each instance again", async || writes(&server, of_java)[0] == INSTANCES).await;
    in_time(ours.check_exists().for_path("/")).await.unwrap();
    assert_eq!(writes(&server, of_java), [INSTANCES, INSTANCES]);
    assert_eq!(writes(&server, of_ours), [0, 0]);
    in_time(cache.synced()).await.unwrap();
    assert!(changes.try_recv().is_err());
    assert_eq!(cache.instances().len(), INSTANCES);
    java.end().await;
}

//! The cost of service discovery. The page of `ServiceDiscovery` has these numbers.

use curator_discovery::{
    InstanceSerializer as _, JsonInstanceSerializer, Registration, ServiceCache, ServiceDiscovery, ServiceInstance,
};
use curator_framework::CuratorOp;
use curator_integration::env::{eventually, in_time};
use curator_recipes::NodeState;
use curator_test::wire::OpCode::{
    self, AddWatch, Create2, CreateContainer, Exists, GetChildren, GetData, MultiRead, SetData,
};

use crate::meter::Stage;

const BASE: &str = "/services";

fn discovery(stage: &Stage) -> ServiceDiscovery<()> {
    ServiceDiscovery::new(stage.client.clone(), BASE).unwrap()
}

async fn registered(discovery: &ServiceDiscovery<()>, id: &str) -> Registration<()> {
    let instance = ServiceInstance::builder("web").id(id).address("10.0.0.7").port(8080).build().unwrap();
    in_time(discovery.register(instance)).await.unwrap()
}

/// The bytes to the server and from it since the last call.
struct Bytes(u64, u64);

impl Bytes {
    fn of(stage: &Stage) -> Self {
        let traffic = stage.proxy.traffic();
        Self(traffic.received, traffic.sent)
    }

    /// Checks that at most so many bytes were sent in each direction since this moment.
    fn at_most(&self, stage: &Stage, to: u64, from: u64) {
        let now = Self::of(stage);
        let (sent, received) = (now.0 - self.0, now.1 - self.1);
        println!("{sent} bytes to the server, {received} from it");
        assert!(sent <= to && received <= from, "{sent} bytes to the server, {received} from it");
    }
}

#[tokio::test]
async fn registration_is_a_create_and_a_watch() {
    let stage = Stage::new(BASE).await;
    let discovery = discovery(&stage);
    let _first = registered(&discovery, "first").await;
    // The first instance of a service creates the service.
    assert_eq!(stage.requests().await, [Create2, Exists, CreateContainer, Create2, Exists]);
    let bytes = Bytes::of(&stage);
    let _second = registered(&discovery, "second").await;
    bytes.at_most(&stage, 400, 250);
    assert_eq!(stage.requests().await, [Create2, Exists]);
}

#[tokio::test]
async fn update_is_a_write_and_a_read_of_each_consumer() {
    let stage = Stage::new(BASE).await;
    let discovery = discovery(&stage);
    let first = registered(&discovery, "first").await;
    let consumer = ServiceDiscovery::<()>::new(stage.observer.clone(), BASE).unwrap();
    let cache = ServiceCache::new(&consumer, "web").unwrap();
    cache.start().unwrap();
    in_time(cache.initialized()).await.unwrap();
    stage.requests().await;
    in_time(first.set_enabled(false)).await.unwrap();
    eventually("the update", async || cache.instances().iter().all(|instance| !instance.enabled)).await;
    let mut requests = stage.requests().await;
    requests.sort_by_key(|op| op.name());
    let mut expected = vec![SetData, Exists, GetData];
    expected.sort_by_key(|op| op.name());
    assert_eq!(requests, expected);
}

#[tokio::test]
async fn reset_of_the_connection_writes_nothing() {
    let stage = Stage::new(BASE).await;
    let discovery = discovery(&stage);
    let mut registrations = Vec::new();
    for id in 0..50 {
        registrations.push(registered(&discovery, &format!("instance-{id}")).await);
    }
    stage.requests().await;
    let bytes = Bytes::of(&stage);
    stage.reconnect().await;
    let requests = stage.requests().await;
    println!("reset: {requests:?}");
    bytes.at_most(&stage, 10_000, 10_000);
    assert!(!requests.iter().any(|op| matches!(op, Create2 | CreateContainer | OpCode::Delete | OpCode::Multi)));
}

#[tokio::test]
async fn new_session_replaces_each_instance() {
    let stage = Stage::new(BASE).await;
    let discovery = discovery(&stage);
    let mut registrations = Vec::new();
    for id in 0..50 {
        registrations.push(registered(&discovery, &format!("instance-{id}")).await);
    }
    stage.requests().await;
    let bytes = Bytes::of(&stage);
    let session = stage.client.session().await.unwrap();
    assert!(stage.server.kill_session(session.id().unwrap().get()));
    for registration in &registrations {
        let id = session.id();
        let is_new = |state: &NodeState| state.standing().is_some_and(|node| node.session != id);
        in_time(registration.watch().wait_for(is_new)).await.unwrap();
    }
    let requests = stage.requests().await;
    println!("new session: {requests:?}");
    let count = |op: OpCode| requests.iter().filter(|one| **one == op).count();
    // The server has deleted the earlier nodes with their session. The read of each node sets its watch.
    assert_eq!((count(Create2), count(Exists), count(OpCode::Delete), count(OpCode::Multi)), (50, 50, 0, 0));
    bytes.at_most(&stage, 50_000, 50_000);
}

#[tokio::test]
async fn load_is_a_read_of_each_instance() {
    let stage = Stage::new("/services/web").await;
    let json = |id: usize| {
        let instance = ServiceInstance::builder("web").id(format!("instance-{id:04}")).address("10.0.0.7");
        let instance = instance.port(8080).registration_time_utc(1_753_142_400_000).build().unwrap();
        JsonInstanceSerializer::new().serialize(&instance).unwrap()
    };
    for chunk in (0..1000).collect::<Vec<_>>().chunks(500) {
        let create = |id: &usize| CuratorOp::create(format!("/services/web/instance-{id:04}")).with_data(json(*id));
        stage.observer.transaction().operations(chunk.iter().map(create)).commit().await.unwrap();
    }
    stage.requests().await;
    let (bytes, read) = (Bytes::of(&stage), stage.proxy.reads_of(GetData));
    let cache = ServiceCache::new(&discovery(&stage), "web").unwrap();
    cache.start().unwrap();
    in_time(cache.initialized()).await.unwrap();
    assert_eq!(cache.instances().len(), 1000);
    bytes.at_most(&stage, 100_000, 400_000);
    let requests = stage.requests().await;
    let count = |op: OpCode| requests.iter().filter(|one| **one == op).count();
    // One request has 16 reads.
    assert_eq!([AddWatch, GetData, GetChildren, MultiRead].map(count), [1, 1, 1, 63]);
    assert_eq!(stage.proxy.reads_of(GetData) - read, 1001);
}

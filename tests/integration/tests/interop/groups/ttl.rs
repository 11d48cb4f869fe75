//! Java's `PersistentTtlNode` beside ours: both exist as long as one of them touches them, and go with their time.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use curator_framework::CuratorFramework;
use curator_integration::env::{builder, connected, eventually, in_time};
use curator_recipes::PersistentTtlNode;
use curator_test::{ApacheServer, TestingServer};

use crate::peer::{Language, Peer};

const TTL: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(60);
/// The pause between two looks of the server for nodes that it has to delete.
const CHECK: Duration = Duration::from_millis(200);

async fn exists(client: &CuratorFramework, path: &str) -> bool {
    client.check_exists().for_path(path).await.unwrap().is_some()
}

async fn nodes_of_both_stand_and_go(address: SocketAddr) {
    let java = Peer::start(Language::Java, address, LONG).await;
    let client = connected(builder(address)).await;
    let (mut thread, shared, javas, ours) = (java.thread("node"), "/ttl/both", "/ttl/java", "/ttl/rust");
    let mut nodes = Vec::new();
    for path in [ours, shared] {
        let node = PersistentTtlNode::new(client.clone(), path, TTL, "rust").unwrap();
        node.start().unwrap();
        in_time(node.created()).await.unwrap();
        nodes.push(node);
    }
    for path in [javas, shared] {
        let kind = format!("ttl:{}", TTL.as_millis());
        assert_eq!(thread.ask(&format!("node {path} start {kind} java")).await, "started");
        assert_eq!(thread.ask(&format!("node {path} stands 30000")).await, "true");
        eventually("Java touches its node", async || exists(&client, &format!("{path}/touch")).await).await;
    }
    let began = Instant::now();
    while began.elapsed() < TTL * 3 {
        for path in [ours, javas, shared] {
            assert!(exists(&client, path).await, "{path} after {:?}", began.elapsed());
        }
        tokio::time::sleep(CHECK).await;
    }
    // Ours leaves the shared one, and Java's touches continue.
    in_time(nodes[1].close()).await;
    let began = Instant::now();
    while began.elapsed() < TTL * 3 {
        assert!(exists(&client, shared).await, "{:?}", began.elapsed());
        tokio::time::sleep(CHECK).await;
    }
    in_time(nodes[0].close()).await;
    assert!(exists(&client, ours).await, "the server deletes it, not the close");
    for path in [javas, shared] {
        assert_eq!(thread.ask(&format!("node {path} close")).await, "closed");
    }
    for path in [ours, javas, shared] {
        eventually(path, async || !exists(&client, path).await).await;
    }
    java.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_with_a_time_to_live_stand_and_go_in_process() {
    let server = TestingServer::builder().session_timeouts(Duration::from_secs(2), LONG).extended_types(true);
    let server = server.container_check_interval(CHECK).start().unwrap();
    nodes_of_both_stand_and_go(server.address()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_with_a_time_to_live_stand_and_go_on_apache() {
    let server = ApacheServer::builder().session_timeouts(Duration::from_secs(2), LONG);
    let server = server
        .system_property("zookeeper.extendedTypesEnabled", "true")
        .system_property("znode.container.checkIntervalMs", CHECK.as_millis().to_string());
    let server = tokio::task::block_in_place(|| server.start()).unwrap();
    nodes_of_both_stand_and_go(server.address()).await;
}

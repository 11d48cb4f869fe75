//! The cost of a persistent node. The table of `PersistentNode` has these numbers.

use std::time::Duration;

use curator_framework::{ConnectionState, CuratorFramework, DEFAULT_MAX_CLOSE_WAIT};
use curator_integration::env::in_time;
use curator_recipes::{NodeError, NodeState, PersistentNode, StandingNode};
use curator_test::ClientId;
use curator_test::wire::OpCode::{
    self, Create2, CreateContainer, CreateSession, Delete, Exists, Multi, SetData, SetWatches,
};
use tokio::time::{Instant, sleep};

use crate::meter::{Stage, round_trips};

const PATH: &str = "/app/node";

fn started(client: &CuratorFramework, path: &str) -> PersistentNode {
    let node = PersistentNode::new(client.clone(), path, "data").unwrap();
    node.start().unwrap();
    node
}

async fn standing(client: &CuratorFramework, path: &str) -> (PersistentNode, StandingNode) {
    let node = started(client, path);
    let stands = in_time(node.created()).await.unwrap();
    (node, stands)
}

/// Waits until another node exists than this one.
async fn stands_again(node: &PersistentNode, before: &StandingNode) {
    let is_another = |state: &NodeState| matches!(state, NodeState::Standing(now) if now.czxid != before.czxid);
    node.watch().wait_for(is_another).await.unwrap();
}

async fn becomes(client: &CuratorFramework, wanted: ConnectionState) {
    client.watch_connection_state().wait_for(|state| *state == Some(wanted)).await.unwrap();
}

#[tokio::test]
async fn a_first_create_is_two_requests() {
    let stage = Stage::new("/app").await;
    let _node = standing(&stage.client, PATH).await;
    assert_eq!(stage.requests().await, [Create2, Exists]);
}

#[tokio::test]
async fn missing_parents_are_a_second_attempt_and_a_request_for_each_parent() {
    let stage = Stage::new("/app").await;
    let _node = standing(&stage.client, "/app/one/two/node").await;
    let parents = [CreateContainer; 3];
    assert_eq!(stage.requests().await, [&[Create2, Exists][..], &parents, &[Create2, Exists]].concat());
}

/// One of the nodes creates the parents, the others wait for it.
#[tokio::test]
async fn parents_that_many_nodes_miss_at_once_are_created_once() {
    let stage = Stage::new("/app").await;
    let nodes: Vec<_> = (0..300).map(|node| started(&stage.client, &format!("/app/one/two/{node}"))).collect();
    for node in &nodes {
        in_time(node.created()).await.unwrap();
    }
    let requests = stage.requests().await;
    let count = |op: OpCode| requests.iter().filter(|one| **one == op).count();
    assert_eq!([count(CreateContainer), count(Create2)], [3, 2 * nodes.len()]);
}

#[tokio::test]
async fn new_data_are_a_write_and_the_watch() {
    let stage = Stage::new("/app").await;
    let (node, _) = standing(&stage.client, PATH).await;
    stage.requests().await;
    in_time(node.set_data("more")).await.unwrap();
    assert_eq!(stage.requests().await, [SetData, Exists]);
}

#[tokio::test]
async fn a_deleted_node_is_two_requests() {
    let stage = Stage::new("/app").await;
    let (node, before) = standing(&stage.client, PATH).await;
    stage.requests().await;
    stage.observer.delete().for_path(PATH).await.unwrap();
    stands_again(&node, &before).await;
    assert_eq!(stage.requests().await, [Delete, Create2, Exists]);
}

#[tokio::test]
async fn a_reconnect_is_the_connect_and_the_watches() {
    let stage = Stage::new("/app").await;
    let (node, before) = standing(&stage.client, PATH).await;
    stage.requests().await;
    stage.reconnect().await;
    assert_eq!(stage.requests().await, [CreateSession, Exists, SetWatches]);
    assert!(matches!(node.state(), NodeState::Standing(now) if now == before));
}

#[tokio::test]
async fn a_new_session_behind_an_expiry_is_two_requests() {
    let stage = Stage::new("/app").await;
    let (node, before) = standing(&stage.client, PATH).await;
    stage.requests().await;
    assert!(stage.server.kill_session(before.session.unwrap().get()));
    stands_again(&node, &before).await;
    // The server refuses the old session, and grants a new one.
    assert_eq!(stage.requests().await, [CreateSession, CreateSession, Create2, Exists]);
}

#[tokio::test]
async fn a_node_of_a_dying_session_is_replaced_in_one_transaction() {
    let stage = Stage::new("/app").await;
    let (node, before) = standing(&stage.client, PATH).await;
    stage.requests().await;
    stage.proxy.swap_session();
    stage.proxy.reset();
    stands_again(&node, &before).await;
    assert!(stage.server.sessions().contains(&before.session.unwrap().get()), "the old session lives");
    // The first connect is the one that the proxy has changed.
    assert_eq!(stage.requests().await, [CreateSession, CreateSession, Create2, Exists, Multi, Exists]);
}

#[tokio::test]
async fn a_close_is_one_request() {
    let stage = Stage::new("/app").await;
    let (node, _) = standing(&stage.client, PATH).await;
    stage.requests().await;
    in_time(node.close()).await;
    assert_eq!(stage.requests().await, [Delete]);
}

#[tokio::test]
async fn a_node_behind_that_of_another_session_waits_without_requests() {
    let stage = Stage::new("/app").await;
    let (other, _) = standing(&stage.observer, PATH).await;
    stage.requests().await;
    let node = started(&stage.client, PATH);
    in_time(node.watch().wait_for(|state| matches!(state, NodeState::TakenBy { .. }))).await.unwrap();
    let first = node.created_timeout(Stage::QUIET).await;
    assert!(matches!(first, Err(NodeError::TakenBy { .. })), "{first:?}");
    assert_eq!(stage.requests().await, [Create2, Exists]);
    in_time(other.close()).await;
    in_time(node.created()).await.unwrap();
    assert_eq!(stage.requests().await, [Delete, Create2, Exists]);
}

#[tokio::test(start_paused = true)]
async fn round_trips_of_a_node() {
    let create = round_trips(async |_, client| {
        client.create().for_path("/app").await.unwrap();
        let began = Instant::now();
        standing(client, PATH).await;
        began.elapsed()
    });
    assert_eq!(create.await, 1, "create");
    let write = round_trips(async |_, client| {
        let (node, _) = standing(client, PATH).await;
        let began = Instant::now();
        node.set_data("more").await.unwrap();
        began.elapsed()
    });
    assert_eq!(write.await, 1, "data");
    let deletion = round_trips(async |ensemble, client| {
        let (node, before) = standing(client, PATH).await;
        let began = Instant::now();
        ensemble.delete(PATH);
        stands_again(&node, &before).await;
        began.elapsed()
    });
    // Half of it is the event.
    assert_eq!(deletion.await, 2, "deletion");
    let expiry = round_trips(async |ensemble, client| {
        let (node, before) = standing(client, PATH).await;
        let again = stands_again(&node, &before);
        ensemble.kill_session(before.session.unwrap().get());
        becomes(client, ConnectionState::Lost).await;
        becomes(client, ConnectionState::Reconnected).await;
        let began = Instant::now();
        again.await;
        began.elapsed()
    });
    assert_eq!(expiry.await, 1, "the next session");
    let dying = round_trips(async |ensemble, client| {
        let (node, before) = standing(client, PATH).await;
        ensemble.partition(ClientId(1));
        becomes(client, ConnectionState::Lost).await;
        // The close of the earlier session has not arrived.
        sleep(DEFAULT_MAX_CLOSE_WAIT / 2).await;
        ensemble.repair(ClientId(1));
        becomes(client, ConnectionState::Reconnected).await;
        let began = Instant::now();
        while !matches!(node.state(), NodeState::Standing(now) if now.czxid != before.czxid) {
            if ensemble.owner(PATH).is_none() {
                // The close of the earlier session was faster.
                return Duration::ZERO;
            }
            sleep(Duration::from_millis(1)).await;
        }
        began.elapsed()
    });
    assert_eq!(dying.await, 3, "the next session, while the earlier one lives");
    let close = round_trips(async |_, client| {
        let (node, _) = standing(client, PATH).await;
        let began = Instant::now();
        node.close().await;
        began.elapsed()
    });
    assert_eq!(close.await, 1, "close");
}

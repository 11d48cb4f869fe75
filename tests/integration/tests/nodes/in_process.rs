//! Requests of nodes counted by the in-process server.

use std::time::{Duration, Instant};

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{Acl, ConnectionState, CreateMode, Permission};
use curator_integration::connection_stage::comes_to;
use curator_integration::env::{connected, eventually, in_time};
use curator_integration::in_process::{client, options, server};
use curator_recipes::{ForeignData, NodeState, PersistentNode, PersistentNodeOptions};
use curator_test::wire::OpCode;
use curator_test::{FaultProxy, LoggedRequest, TestingServer};

use crate::stage::{
    LONG, MODES, SHORT, ephemeral, fails, stands, stands_again, started, started_with, take_down, through,
};

/// The requests so far, without pings and the removal of watches of earlier nodes.
fn requests(server: &TestingServer) -> Vec<LoggedRequest> {
    let others = [OpCode::Ping, OpCode::RemoveWatches];
    server.requests().into_iter().filter(|request| !others.contains(&request.op)).collect()
}

/// The kinds of these requests.
fn kinds(server: &TestingServer) -> Vec<OpCode> {
    requests(server).iter().map(|request| request.op).collect()
}

fn writes_to(server: &TestingServer, path: &str) -> usize {
    let writes = [OpCode::Create, OpCode::Create2, OpCode::CreateTtl, OpCode::Delete, OpCode::SetData, OpCode::Multi];
    let of_path = |request: &&LoggedRequest| request.path.as_deref().is_none_or(|at| at.starts_with(path));
    requests(server).iter().filter(|request| writes.contains(&request.op)).filter(of_path).count()
}

/// A create and its watch are two requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_costs_two_requests() {
    let server = server();
    let client = client(&server).await;
    client.create().for_path("/test").await.unwrap();
    for mode in MODES {
        server.clear_requests();
        let node = started(&client, mode, "/test/foo", "");
        stands(&node).await;
        client.check_exists().for_path("/").await.unwrap();
        let mut sent = requests(&server);
        assert_eq!(sent.pop().unwrap().path.as_deref(), Some("/"));
        assert_eq!(sent.len(), 2, "{mode:?}: {sent:?}");
        in_time(node.close()).await;
        eventually("no watch is left", async || client.watchers() == 0).await;
    }
}

/// A standing node sends nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standing_nodes_are_silent() {
    let server = server();
    let client = connected(options(&server).session_timeout(SHORT).reap_interval(None)).await;
    // Parents that a node creates itself cost it another read.
    client.create().for_path("/test").await.unwrap();
    let nodes = MODES.map(|mode| started(&client, mode, &format!("/test/{mode:?}"), ""));
    for node in &nodes {
        stands(node).await;
    }
    server.clear_requests();
    tokio::time::sleep(SHORT * 2).await;
    assert_eq!(kinds(&server), [], "{:?}", requests(&server));
}

/// A reconnect costs a node a line of SetWatches.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reconnect_costs_standing_nodes_no_request_of_their_own() {
    let server = server();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let client = connected(through(&proxy, LONG).reap_interval(None)).await;
    // Parents that a node creates itself cost it another read.
    client.create().for_path("/test").await.unwrap();
    let nodes = MODES.map(|mode| started(&client, mode, &format!("/test/{mode:?}"), ""));
    for node in &nodes {
        stands(node).await;
    }
    client.check_exists().for_path("/").await.unwrap();
    for _ in 0..3 {
        server.clear_requests();
        take_down(&proxy);
        comes_to(&client, ConnectionState::Suspended).await;
        proxy.accept();
        comes_to(&client, ConnectionState::Reconnected).await;
        client.check_exists().for_path("/").await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        let allowed =
            [OpCode::CreateSession, OpCode::SetWatches, OpCode::SetWatches2, OpCode::Exists, OpCode::CloseSession];
        let sent = requests(&server);
        assert!(sent.iter().all(|request| allowed.contains(&request.op)), "{sent:?}");
        let reads = sent.iter().filter(|request| request.op == OpCode::Exists);
        let (own, questions): (Vec<_>, Vec<_>) = reads.partition(|read| read.path.as_deref() == Some("/"));
        // The newest known write, and the newest known change.
        assert!(own.len() == 1 && questions.len() <= 2, "{sent:?}");
    }
}

/// In a new session a node exists again after one round trip, with two requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_session_has_its_nodes_after_one_round_trip() {
    const DELAY: Duration = Duration::from_millis(150);
    let server = server();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let client = connected(through(&proxy, LONG).reap_interval(None)).await;
    let nodes: Vec<_> = (0..20).map(|number| ephemeral(&client, &format!("/test/{number}"), "")).collect();
    let mut before = Vec::new();
    for node in &nodes {
        before.push(stands(node).await);
    }
    proxy.latency(DELAY);
    for _ in 0..3 {
        server.clear_requests();
        let (told, telling) = tokio::sync::oneshot::channel();
        let told = parking_lot::Mutex::new(Some(told));
        let listener = client.connection_state_listenable().add_listener(move |_, state| {
            if state == ConnectionState::Reconnected {
                told.lock().take().map(|told| told.send(Instant::now()));
            }
        });
        assert!(server.kill_session(before[0].session.unwrap().get()));
        let connected = in_time(telling).await.unwrap();
        for (node, before) in nodes.iter().zip(&mut before) {
            *before = stands_again(node, before).await;
        }
        let took = connected.elapsed();
        assert!(took < DELAY * 3, "{took:?}, with a round trip of {:?}", DELAY * 2);
        let sent = requests(&server);
        let of_nodes = sent.iter().filter(|one| one.path.as_deref().is_some_and(|path| path.starts_with("/test/")));
        assert_eq!(of_nodes.count(), 2 * nodes.len(), "{sent:?}");
        client.connection_state_listenable().remove_listener(listener);
    }
}

/// A node of the client's last session, which the server still has, is deleted and created in one transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn name_of_a_replaced_node_is_never_missing() {
    let server = server();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let client = connected(through(&proxy, LONG)).await;
    for mode in [CreateMode::Ephemeral, CreateMode::EphemeralSequential] {
        for is_protected in [false, true] {
            let options = PersistentNodeOptions::new();
            let options = if is_protected { options.protected() } else { options };
            let node = started_with(&client, mode, "/test/foo", "mine", options);
            let mut before = stands(&node).await;
            for _ in 0..5 {
                server.clear_requests();
                proxy.swap_session();
                proxy.reset();
                let now = stands_again(&node, &before).await;
                assert_eq!(now.path, before.path);
                let multis = requests(&server).into_iter().filter(|one| one.op == OpCode::Multi && one.error == 0);
                assert_eq!(multis.count(), 1, "{:?}", requests(&server));
                let alone = [OpCode::Delete, OpCode::Create2];
                let others: Vec<_> =
                    requests(&server).into_iter().filter(|one| alone.contains(&one.op) && one.error == 0).collect();
                assert_eq!(others, [], "{mode:?}");
                assert_eq!(server.children("/test").unwrap().len(), 1);
                before = now;
            }
            in_time(node.close()).await;
            assert_eq!(server.children("/test").unwrap(), [""; 0]);
        }
    }
}

/// Refused creates are tried again with pauses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_nodes_do_not_ask_in_a_loop() {
    let server = server();
    let client = connected(options(&server).reap_interval(None)).await;
    let closed = vec![Acl::new(Permission::READ, "world", "anyone")];
    client.create().with_acl(closed).for_path("/closed").await.unwrap();
    let unknown = vec![Acl::new(Permission::ALL, "no-such-scheme", "me")];
    let nodes = [
        ephemeral(&client, "/closed/foo", ""),
        started_with(&client, CreateMode::Ephemeral, "/acl/foo", "", PersistentNodeOptions::new().acl(unknown)),
        started_with(&client, CreateMode::Persistent, "/no/foo", "", PersistentNodeOptions::new().without_parents()),
    ];
    for node in &nodes {
        fails(node).await;
    }
    server.clear_requests();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let sent = requests(&server);
    // Three nodes; pauses that grow.
    assert!(sent.len() <= 60, "{} requests: {:?}", sent.len(), &sent[..60]);
    for node in nodes {
        let closing = Instant::now();
        in_time(node.close()).await;
        assert!(closing.elapsed() < Duration::from_secs(2), "a close waits for the end of a pause");
    }
}

/// Another client deletes the node whenever it is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_that_is_deleted_each_time_does_not_spin() {
    let server = server();
    let (client, other) = (client(&server).await, client(&server).await);
    let node = ephemeral(&client, "/test/foo", "");
    stands(&node).await;
    let deleter = tokio::spawn(async move {
        let mut deleted = 0;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(4) {
            if other.delete().for_path("/test/foo").await.is_ok() {
                deleted += 1;
            }
        }
        deleted
    });
    server.clear_requests();
    let deleted = in_time(deleter).await.unwrap();
    let creates = requests(&server).iter().filter(|one| one.op == OpCode::Create2 && one.error == 0).count();
    assert!(creates <= 200, "{creates} creates in 4 s, {deleted} deletes");
    in_time(node.watch().wait_for(|state| matches!(state, NodeState::Standing(_)))).await.unwrap();
    eventually("it stands", async || server.exists("/test/foo")).await;
}

/// Two clients repair each other's data.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_that_mend_each_other_do_not_spin() {
    let server = server();
    let clients = [client(&server).await, client(&server).await];
    let options = PersistentNodeOptions::new().foreign_data(ForeignData::Mend);
    let nodes = [("one", 0), ("two", 1)]
        .map(|(data, of)| started_with(&clients[of], CreateMode::Persistent, "/test/foo", data, options.clone()));
    for node in &nodes {
        stands(node).await;
    }
    server.clear_requests();
    tokio::time::sleep(Duration::from_secs(4)).await;
    let writes = writes_to(&server, "/test/foo");
    assert!(writes <= 100, "{writes} writes in 4 s");
    // The fight ends with one of them.
    let [one, two] = nodes;
    in_time(one.close()).await;
    eventually("the other one stands", async || server.data("/test/foo").is_some_and(|data| data == b"two")).await;
    in_time(two.close()).await;
    assert!(!server.exists("/test/foo"));
}

/// The parents are containers, as Curator's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parents_of_closed_nodes_are_deleted_by_the_server() {
    let server = TestingServer::builder().container_check_interval(Duration::from_millis(20)).start().unwrap();
    let client = connected(options(&server).reap_interval(None)).await;
    for mode in MODES {
        let node: PersistentNode = started(&client, mode, "/one/two/three", "");
        let standing = stands(&node).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(server.exists(&standing.path));
        in_time(node.close()).await;
        eventually("the containers are gone", async || !server.exists("/one")).await;
    }
}

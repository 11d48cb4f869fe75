//! Curator's `TestLeaderLatchCluster` and `TestLeaderSelectorCluster`: servers of an ensemble that die.

use std::time::Duration;

use curator_framework::{ConnectionState, CuratorFramework, LossReason, RetryForever};
use curator_integration::env::{children, connected, eventually, in_time};
use curator_recipes::{LeaderError, LeaderSelector, TermEnd};
use curator_test::ApacheCluster;
use tokio::task::block_in_place;

use crate::stage::{Report, Terms, becomes, end_of, leaders, leads, one_leads, started};

const SESSION: Duration = Duration::from_secs(4);

fn cluster() -> ApacheCluster {
    let sessions = (Duration::from_secs(2), Duration::from_secs(60));
    let cluster = ApacheCluster::builder().tick(Duration::from_millis(500)).session_timeouts(sessions.0, sessions.1);
    block_in_place(|| cluster.start()).unwrap_or_else(|error| panic!("{error}"))
}

async fn client(servers: String) -> CuratorFramework {
    let options = CuratorFramework::builder(servers).session_timeout(SESSION).connection_timeout(SESSION);
    connected(options.retry_policy(RetryForever::new(Duration::from_millis(100)).unwrap())).await
}

/// Curator's `TestLeaderLatchCluster.testInCluster`: each latch has a server of its own, and the leader's dies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn latch_whose_server_dies_is_followed_by_one_other() {
    let cluster = cluster();
    let (mut clients, mut latches) = (Vec::new(), Vec::new());
    for server in 0..3 {
        let client = client(cluster.server(server).unwrap().to_string()).await;
        latches.push(started(&client, "/latch"));
        clients.push(client);
    }
    eventually("all are in the queue", async || children(&clients[0], "/latch").await.len() == 3).await;
    let dead = one_leads(&latches).await;
    let old = leads(&latches[dead]).await;
    block_in_place(|| cluster.kill(dead)).unwrap();
    assert!(matches!(end_of(&old).await, TermEnd::Lost(LossReason::Session(_))));
    becomes(&clients[dead], ConnectionState::Lost).await;
    let now = one_leads(&latches).await;
    assert_ne!(now, dead);
    let new = leads(&latches[now]).await;
    assert!(new.token() > old.token());
    let other = 3 - dead - now;
    eventually("the old node is gone", async || children(&clients[now], "/latch").await.len() == 2).await;
    assert_eq!(leaders(&latches), [now]);
    assert!(new.is_held() && !latches[other].has_leadership());
    // The dead server comes back, and its latch joins again.
    block_in_place(|| cluster.restart(dead)).unwrap();
    eventually("all are in the queue", async || children(&clients[now], "/latch").await.len() == 3).await;
    assert_eq!(leaders(&latches), [now]);
    for client in clients {
        in_time(client.close()).await;
    }
}

/// Curator's `TestLeaderSelectorCluster.testRestart`: each server dies in turn, so the client's too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn selector_goes_on_while_each_server_dies_in_turn() {
    let cluster = cluster();
    let client = client(cluster.connect_string()).await;
    let selector = LeaderSelector::new(client.clone(), "/leader").unwrap();
    let (sender, mut terms) = tokio::sync::mpsc::unbounded_channel();
    let (runner, reader) = (selector.clone(), client.clone());
    let run = tokio::spawn(async move {
        runner
            .run(|leadership| {
                let (sender, reader) = (sender.clone(), reader.clone());
                async move {
                    let names = reader.get_children().for_path("/leader").await?;
                    leadership.verify().await?;
                    assert!(!names.is_empty(), "the leader has no node");
                    sender.send(leadership.token()).unwrap();
                    // One term is followed by the next, but not in a loop without a pause.
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    Ok::<(), LeaderError>(())
                }
            })
            .await
    });
    let mut newest = in_time(terms.recv()).await.unwrap();
    for server in 0..3 {
        block_in_place(|| cluster.kill(server)).unwrap();
        while terms.try_recv().is_ok() {}
        for _ in 0..3 {
            let term = in_time(terms.recv()).await.unwrap();
            assert!(term > newest, "{term} behind {newest}");
            newest = term;
        }
        block_in_place(|| cluster.restart(server)).unwrap();
        block_in_place(|| cluster.wait_until_serving()).unwrap();
        block_in_place(|| cluster.wait_for_server(server)).unwrap();
    }
    in_time(selector.close()).await;
    in_time(run).await.unwrap().unwrap();
    in_time(client.close()).await;
}

/// Curator's `TestLeaderSelectorCluster.testLostRestart`: all servers stop for longer than the session, and come back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn selector_leads_again_after_all_servers_were_away() {
    let cluster = cluster();
    let client = client(cluster.connect_string()).await;
    let selector = LeaderSelector::new(client.clone(), "/leader").unwrap();
    let mut terms = Terms::new();
    let run = terms.run(&selector, "");
    let Report::Began { term: old, path: node, .. } = terms.next().await else { panic!("a term ended") };
    assert_eq!(children(&client, "/leader").await, [node.rsplit_once('/').unwrap().1]);
    block_in_place(|| cluster.stop()).unwrap();
    terms.ends().await;
    becomes(&client, ConnectionState::Lost).await;
    assert!(!selector.has_leadership() && terms.is_quiet());
    for server in 0..3 {
        block_in_place(|| cluster.restart(server)).unwrap();
    }
    block_in_place(|| cluster.wait_until_serving()).unwrap();
    let (_, new) = terms.begins().await;
    assert!(new > old && selector.has_leadership());
    eventually("the old node is gone", async || children(&client, "/leader").await.len() == 1).await;
    in_time(selector.close()).await;
    in_time(run).await.unwrap().unwrap();
    in_time(client.close()).await;
}

//! Defects of Java's candidates beside ours: two leaders, by Java's doing alone.

use std::time::Duration;

use curator_framework::CuratorFramework;
use curator_integration::env::{Env, Kind, children, eventually};
use curator_integration::in_process::{client, server};

use crate::peer::{Language, Peer, Thread};

const SESSION: Duration = Duration::from_secs(4);
const KINDS: [&str; 2] = ["latch", "selector"];

struct Pair<'a> {
    path: &'a str,
    first: Thread,
    second: Thread,
}

impl<'a> Pair<'a> {
    /// The first process leads, the second one waits.
    async fn new(env: &Env, client: &CuratorFramework, kind: &str, path: &'a str, peers: [&Peer; 2]) -> Self {
        let [mut first, mut second] = peers.map(|peer| peer.thread(path));
        assert_eq!(first.ask(&format!("join {kind} {path} first")).await, "joined");
        assert_eq!(first.ask(&format!("await {path} first")).await, "leads");
        assert_eq!(second.ask(&format!("join {kind} {path} second")).await, "joined");
        env.wait_for_children(client, path, 2).await;
        Self { path, first, second }
    }

    async fn delete_the_first_node(&mut self, client: &CuratorFramework) {
        let path = self.path;
        client.delete().for_path(&format!("{path}/{}", nodes(client, path).await[0])).await.unwrap();
        assert_eq!(self.second.ask(&format!("await {path} second")).await, "leads");
    }

    async fn first_leads(&mut self) -> bool {
        self.first.ask(&format!("leads {} first", self.path)).await == "true"
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn java_leads_on_without_its_node_beside_ours() {
    let env = Env::new(Kind::InProcess);
    let (java, rust) = tokio::join!(Peer::java(&env), Peer::rust(&env));
    let client = env.client().await;
    for kind in KINDS {
        let path = env.path(kind);
        let mut pair = Pair::new(&env, &client, kind, &path, [&java, &rust]).await;
        pair.delete_the_first_node(&client).await;
        assert!(pair.first_leads().await, "Java's {kind} watches its node now: change the documents");
    }
    java.end().await;
    rust.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_leader_ends_its_term_with_its_node() {
    let env = Env::new(Kind::InProcess);
    let (java, rust) = tokio::join!(Peer::java(&env), Peer::rust(&env));
    let client = env.client().await;
    for kind in KINDS {
        let path = env.path(kind);
        let mut pair = Pair::new(&env, &client, kind, &path, [&rust, &java]).await;
        pair.delete_the_first_node(&client).await;
        eventually("our leader is told", async || !pair.first_leads().await).await;
        assert_eq!(pair.second.ask(&format!("leads {path} second")).await, "true");
    }
    java.end().await;
    rust.end().await;
}

/// Behind the outage Java leads on the node of its old session, which the server keeps for one more timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_leader_has_the_oldest_node_after_an_outage_longer_than_a_session() {
    let server = server();
    let start = |language| Peer::start(language, server.address(), SESSION);
    let (java, rust) = tokio::join!(start(Language::Java), start(Language::Rust));
    let (client, path) = (client(&server).await, "/latch");
    let [mut javas, mut ours] = [&java, &rust].map(|peer| peer.thread(path));
    assert_eq!(javas.ask(&format!("join latch {path} java")).await, "joined");
    assert_eq!(javas.ask(&format!("await {path} java")).await, "leads");
    assert_eq!(ours.ask(&format!("join latch {path} rust")).await, "joined");
    eventually("two candidates", async || nodes(&client, path).await.len() == 2).await;
    let sessions = [java.session().await, rust.session().await];
    let before = nodes(&client, path).await;
    server.stop();
    tokio::time::sleep(SESSION + SESSION / 4).await;
    server.restart().unwrap();
    eventually("the old nodes are gone", async || {
        let now = nodes(&client, path).await;
        !now.is_empty() && !now.iter().any(|node| before.contains(node))
    })
    .await;
    // From here on only a latch with the oldest node has a right to lead.
    eventually("a leader", async || {
        let [ours, javas] = [(&mut ours, "rust"), (&mut javas, "java")]
            .map(|(thread, id)| async move { thread.ask(&format!("leads {path} {id}")).await == "true" });
        ours.await || javas.await && owner(&client, path).await == Some(java.session().await)
    })
    .await;
    let leads = ours.ask(&format!("leads {path} rust")).await;
    let javas = javas.ask(&format!("leads {path} java")).await;
    let owner = owner(&client, path).await.unwrap();
    println!("behind the outage ours leads: {leads}, Java's says that it leads: {javas}");
    let [java_now, rust_now] = [java.session().await, rust.session().await];
    assert!(!sessions.contains(&owner), "the server has kept the sessions");
    assert_eq!(owner == rust_now, leads == "true", "ours {rust_now}, Java's {java_now}, the owner {owner}");
    java.end().await;
    rust.end().await;
}

async fn nodes(client: &CuratorFramework, path: &str) -> Vec<String> {
    let mut nodes = children(client, path).await;
    nodes.sort_by_key(|node| node.rsplit('-').next().map(ToOwned::to_owned));
    nodes
}

/// The session of the oldest node.
async fn owner(client: &CuratorFramework, path: &str) -> Option<i64> {
    let oldest = nodes(client, path).await.into_iter().next()?;
    Some(client.check_exists().for_path(&format!("{path}/{oldest}")).await.unwrap()?.ephemeral_owner)
}

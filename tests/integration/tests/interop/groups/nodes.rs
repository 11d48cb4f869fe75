//! Java's `PersistentNode` beside ours at one path.

use std::time::Duration;

use curator_framework::{CuratorFramework, SessionId, Stat, Zxid};
use curator_integration::env::{eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{ForeignData, NodeError, NodeState, PersistentNode, PersistentNodeOptions, StandingNode};

use crate::peer::{Peer, Thread};

/// Java's node at the path.
struct Javas<'a> {
    path: &'a str,
    thread: Thread,
}

impl<'a> Javas<'a> {
    /// Java's node, which Java takes for its own.
    async fn stands(java: &Peer, path: &'a str) -> Self {
        let mut node = Self { path, thread: java.thread("node") };
        node.does("start ephemeral java", "started").await;
        node.does("stands 30000", "true").await;
        node
    }

    async fn does(&mut self, what: &str, answer: &str) {
        assert_eq!(self.thread.ask(&format!("node {} {what}", self.path)).await, answer, "{what}");
    }
}

fn ours(client: &CuratorFramework, path: &str, options: PersistentNodeOptions) -> PersistentNode {
    let node = PersistentNode::with_options(client.clone(), path, "rust", options).unwrap();
    node.start().unwrap();
    node
}

/// Waits until our node is created.
async fn created(node: &PersistentNode) -> StandingNode {
    let created = tokio::time::timeout(Duration::from_secs(30), node.created()).await;
    created.unwrap_or_else(|_| panic!("not in time: {:?}", node.state())).unwrap()
}

/// Waits until our node is as the test wants it.
async fn stands(node: &PersistentNode, is_meant: impl Fn(&StandingNode) -> bool) -> StandingNode {
    let is_meant = |state: &NodeState| matches!(state, NodeState::Standing(stands) if is_meant(stands));
    match in_time(node.watch().wait_for(is_meant)).await.unwrap().clone() {
        NodeState::Standing(stands) => stands,
        other => panic!("{other:?}"),
    }
}

async fn stat(client: &CuratorFramework, path: &str) -> Stat {
    client.check_exists().for_path(path).await.unwrap().expect("the node is there")
}

async fn data_becomes(client: &CuratorFramework, path: &str, data: &str) {
    eventually(data, async || client.get_data().for_path(path).await.is_ok_and(|(is, _)| is == data.as_bytes())).await;
}

on_every_server! {
    async fn our_node_waits_for_javas_and_leaves_it_as_it_is(env) {
        let java = Peer::java(&env).await;
        let (client, path) = (env.client().await, env.path("node"));
        let mut javas = Javas::stands(&java, &path).await;
        let before = stat(&client, &path).await;
        assert_eq!(before.ephemeral_owner, java.session().await);
        let node = ours(&client, &path, PersistentNodeOptions::new());
        match node.created_timeout(Duration::from_millis(500)).await {
            Err(NodeError::TakenBy { path: of, session }) => {
                assert_eq!((of.to_string(), session), (path.clone(), SessionId::new(before.ephemeral_owner)));
            }
            other => panic!("{other:?}"),
        }
        match node.state() {
            NodeState::TakenBy { session, czxid } => {
                assert_eq!((session, czxid), (SessionId::new(before.ephemeral_owner), Zxid::new(before.czxid)));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(stat(&client, &path).await, before);
        javas.does("close", "closed").await;
        let stands = created(&node).await;
        let after = stat(&client, &path).await;
        assert!(after.czxid > before.czxid, "{after:?}");
        assert_eq!((stands.czxid, stands.session), (Zxid::new(after.czxid), SessionId::new(after.ephemeral_owner)));
        data_becomes(&client, &path, "rust").await;
        in_time(node.close()).await;
        assert!(client.check_exists().for_path(&path).await.unwrap().is_none());
        java.end().await;
    }

    async fn our_node_in_the_queue_of_javas_leaves_javas_behind(env) {
        let java = Peer::java(&env).await;
        let (client, path) = (env.client().await, env.path("node"));
        let _javas = Javas::stands(&java, &path).await;
        let before = stat(&client, &path).await;
        let node = ours(&client, &path, PersistentNodeOptions::new());
        in_time(node.watch().wait_for(|state| matches!(state, NodeState::TakenBy { .. }))).await.unwrap();
        in_time(node.close()).await;
        assert_eq!(stat(&client, &path).await, before);
        java.end().await;
    }

    /// Java takes a node of another session for its own: it writes its data, and deletes the node at its end.
    async fn our_node_tells_what_javas_does_to_it_and_stands_again(env) {
        let java = Peer::java(&env).await;
        let (client, path) = (env.client().await, env.path("node"));
        let node = ours(&client, &path, PersistentNodeOptions::new());
        let first = created(&node).await;
        let mut javas = Javas::stands(&java, &path).await;
        let told = stands(&node, |stands| stands.foreign_data.is_some()).await;
        assert_eq!((told.foreign_data.as_deref(), told.czxid), (Some(&b"java"[..]), first.czxid));
        assert_eq!(stat(&client, &path).await.ephemeral_owner, first.session.unwrap().get(), "Java has a node of its own now");
        javas.does("close", "closed").await;
        let again = stands(&node, |stands| stands.czxid > first.czxid).await;
        assert_eq!((again.session, again.foreign_data), (first.session, None));
        data_becomes(&client, &path, "rust").await;
        in_time(node.close()).await;
        assert!(client.check_exists().for_path(&path).await.unwrap().is_none());
        java.end().await;
    }

    async fn our_node_mends_the_data_that_javas_has_written(env) {
        let java = Peer::java(&env).await;
        let (client, path) = (env.client().await, env.path("node"));
        let node = ours(&client, &path, PersistentNodeOptions::new().foreign_data(ForeignData::Mend));
        let first = created(&node).await;
        let mut javas = Javas::stands(&java, &path).await;
        data_becomes(&client, &path, "rust").await;
        let seen = stat(&client, &path).await;
        assert_eq!((seen.czxid, seen.version), (first.czxid.get(), 2), "Java's write, and ours");
        javas.does("write more", "written").await;
        eventually("two writes more", async || stat(&client, &path).await.version == 4).await;
        data_becomes(&client, &path, "rust").await;
        in_time(node.close()).await;
        java.end().await;
    }

    async fn path_is_javas_when_our_node_that_java_took_is_closed(env) {
        let java = Peer::java(&env).await;
        let (client, path) = (env.client().await, env.path("node"));
        let node = ours(&client, &path, PersistentNodeOptions::new());
        created(&node).await;
        let mut javas = Javas::stands(&java, &path).await;
        in_time(node.close()).await;
        assert!(matches!(node.state(), NodeState::Closed));
        let of_java = java.session().await;
        let is_javas = async || {
            let stat = client.check_exists().for_path(&path).await.unwrap();
            stat.is_some_and(|stat| stat.ephemeral_owner == of_java)
        };
        eventually("Java has a node of its own", is_javas).await;
        javas.does("close", "closed").await;
        assert!(client.check_exists().for_path(&path).await.unwrap().is_none());
        java.end().await;
    }

    /// The session that both live on ends, and Java may be the first to create the node again.
    async fn our_state_names_the_owner_of_the_node_behind_the_end_of_our_session(env) {
        let java = Peer::java(&env).await;
        let (client, path, observer) = (env.client().await, env.path("node"), env.client().await);
        let node = ours(&client, &path, PersistentNodeOptions::new());
        let first = created(&node).await;
        let mut javas = Javas::stands(&java, &path).await;
        env.kill_owner_of(&observer, &path).await;
        let settled = |state: &NodeState| match state {
            NodeState::Standing(stands) => stands.session != first.session,
            NodeState::TakenBy { session, .. } => *session != first.session,
            _ => false,
        };
        let state = in_time(node.watch().wait_for(settled)).await.unwrap().clone();
        let now = stat(&observer, &path).await;
        match state {
            NodeState::Standing(stands) => {
                assert_eq!((stands.czxid, stands.session), (Zxid::new(now.czxid), SessionId::new(now.ephemeral_owner)));
            }
            NodeState::TakenBy { session, czxid } => {
                assert_eq!((czxid, session), (Zxid::new(now.czxid), SessionId::new(now.ephemeral_owner)));
                assert_eq!(session, SessionId::new(java.session().await));
            }
            other => panic!("{other:?}"),
        }
        javas.does("close", "closed").await;
        let last = stands(&node, |stands| stands.session != first.session).await;
        eventually("our node stands", async || {
            client.check_exists().for_path(&path).await.unwrap().is_some_and(|now| now.ephemeral_owner == last.session.unwrap().get())
        })
        .await;
        in_time(node.close()).await;
        assert!(observer.check_exists().for_path(&path).await.unwrap().is_none());
        java.end().await;
    }
}

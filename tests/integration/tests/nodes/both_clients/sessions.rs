//! Nodes of other sessions: nodes of other clients are never adopted, nodes of earlier sessions of the client are
//! replaced.

use std::time::Duration;

use curator_framework::{ConnectionState, CreateMode, SessionId, Zxid};
use curator_integration::clients::is_zookeeper_async;
use curator_integration::connection_stage::comes_to;
use curator_integration::env::{answered, builder, children, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{NodeError, NodeState, Owner};
use curator_test::kill_session;

use crate::stage::{
    Created, LONG, SHORT, ephemeral, is_taken, reaches, stands, stands_again, started, stat_of, take_down, text_of,
    through,
};

on_every_server! {
    /// Curator's `TestPersistentEphemeralNode.testRecreatesNodeWhenEphemeralOwnerSessionExpires`. Curator writes its data
    /// to the other session's node, and takes it for its own.
    async fn node_of_a_live_session_is_left_alone_until_that_session_ends(env) {
        let (client, creator, path) = (env.client().await, env.client().await, env.path("test/foo"));
        let observer = env.client().await;
        let create = creator.create().creating_parents_if_needed().with_mode(CreateMode::Ephemeral);
        create.with_data("theirs").for_path(&path).await.unwrap();
        let theirs = stat_of(&observer, &path).await.unwrap();
        let node = ephemeral(&client, &path, "mine");
        let mut calls = Created::of(&node);
        assert_eq!(is_taken(&node).await, SessionId::new(theirs.ephemeral_owner));
        assert_eq!(node.owner(), Some(Owner::Other(SessionId::new(theirs.ephemeral_owner))));
        let taken = in_time(node.created_timeout(Duration::from_millis(200))).await;
        let session = theirs.ephemeral_owner;
        assert!(matches!(&taken, Err(NodeError::TakenBy { session: by, .. }) if *by == SessionId::new(session)), "{taken:?}");
        // Neither a change of the data nor a change of the other node makes it ours.
        let refused = in_time(node.set_data("newer")).await;
        assert!(matches!(&refused, Err(NodeError::TakenBy { session: by, .. }) if *by == SessionId::new(session)), "{refused:?}");
        creator.set_data().for_path(&path, "still theirs").await.unwrap();
        answered(std::slice::from_ref(&client)).await;
        assert!(matches!(node.state(), NodeState::TakenBy { .. }), "{:?}", node.state());
        let stat = stat_of(&observer, &path).await.unwrap();
        assert_eq!((stat.czxid, stat.version, stat.ephemeral_owner), (theirs.czxid, 1, theirs.ephemeral_owner));
        assert_eq!(text_of(&observer, &path).await.unwrap(), "still theirs");
        kill_session(env.address(), theirs.ephemeral_owner).await.unwrap();
        let standing = stands(&node).await;
        assert!(standing.czxid > Zxid::new(theirs.czxid) && !standing.adopted);
        assert_eq!(node.owner(), Some(Owner::Us));
        assert_eq!(text_of(&observer, &path).await.unwrap(), "newer");
        assert_eq!(calls.next().await, path);
    }

    async fn node_of_a_live_session_outlives_the_close_of_the_one_behind_it(env) {
        let (client, other, path) = (env.client().await, env.client().await, env.path("test/foo"));
        let first = ephemeral(&other, &path, "first");
        let standing = stands(&first).await;
        for is_dropped in [false, true] {
            let second = ephemeral(&client, &path, "second");
            assert_eq!(is_taken(&second).await, standing.session);
            if is_dropped {
                drop(second);
                answered(std::slice::from_ref(&client)).await;
            } else {
                in_time(second.close()).await;
            }
            let stat = stat_of(&client, &path).await.unwrap();
            assert_eq!((stat.czxid, stat.version), (standing.czxid.get(), 0));
        }
    }

    /// Five nodes at one path exist one after the other, each in its turn.
    async fn path_passes_from_one_node_to_the_next(env) {
        let path = env.path("test/foo");
        let (mut clients, mut nodes) = (Vec::new(), Vec::new());
        for number in 0..5 {
            let client = env.client().await;
            nodes.push(ephemeral(&client, &path, &number.to_string()));
            clients.push(client);
        }
        while !nodes.is_empty() {
            eventually("one stands", async || {
                nodes.iter().any(|node| matches!(node.state(), NodeState::Standing(_)))
            })
            .await;
            let standing: Vec<_> =
                (0..nodes.len()).filter(|one| matches!(nodes[*one].state(), NodeState::Standing(_))).collect();
            assert_eq!(standing.len(), 1, "two nodes at one path");
            let node = nodes.swap_remove(standing[0]);
            let session = stands(&node).await.session;
            for waiting in &nodes {
                reaches(waiting, |state| {
                    matches!(state, NodeState::TakenBy { session: by, .. } if *by == session)
                })
                .await;
            }
            in_time(node.close()).await;
        }
        assert!(stat_of(&clients[0], &path).await.is_none());
    }

    /// A node that is not ephemeral has the path of an ephemeral one.
    async fn persistent_node_at_the_path_of_an_ephemeral_one_is_not_adopted(env) {
        let (client, other, path) = (env.client().await, env.client().await, env.path("test/foo"));
        other.create().creating_parents_if_needed().with_data("theirs").for_path(&path).await.unwrap();
        let node = ephemeral(&client, &path, "mine");
        assert_eq!(is_taken(&node).await, None);
        let taken = in_time(node.created_timeout(Duration::from_millis(50))).await;
        assert!(matches!(taken, Err(NodeError::TakenBy { session: None, .. })), "{taken:?}");
        assert_eq!(text_of(&other, &path).await.unwrap(), "theirs");
        other.delete().for_path(&path).await.unwrap();
        assert_eq!(stands(&node).await.session, SessionId::new(stat_of(&other, &path).await.unwrap().ephemeral_owner));
    }

    /// An ephemeral node has the path of a persistent one.
    async fn ephemeral_node_at_the_path_of_a_persistent_one_is_not_adopted(env) {
        let (client, other, path) = (env.client().await, env.client().await, env.path("test/foo"));
        let create = other.create().creating_parents_if_needed().with_mode(CreateMode::Ephemeral);
        create.with_data("theirs").for_path(&path).await.unwrap();
        let owner = stat_of(&other, &path).await.unwrap().ephemeral_owner;
        let node = started(&client, CreateMode::Persistent, &path, "mine");
        assert_eq!(is_taken(&node).await, SessionId::new(owner));
        assert_eq!(text_of(&other, &path).await.unwrap(), "theirs");
        kill_session(env.address(), owner).await.unwrap();
        assert_eq!((stands(&node).await.session, text_of(&other, &path).await.unwrap().as_str()), (None, "mine"));
    }

    /// Curator's `TestPersistentEphemeralNode.testSetDataWhenNodeExists`. The node's own session has created the other one,
    /// but another part of the program may need it. Curator writes its data there.
    async fn node_that_the_program_has_created_itself_is_left_alone(env) {
        let (client, path) = (env.client().await, env.path("test/foo"));
        let create = client.create().creating_parents_if_needed().with_mode(CreateMode::Ephemeral);
        create.with_data("InitialData").for_path(&path).await.unwrap();
        let before = stat_of(&client, &path).await.unwrap();
        let node = ephemeral(&client, &path, "Hello World");
        assert_eq!(is_taken(&node).await, SessionId::new(before.ephemeral_owner));
        for is_closed in [false, true] {
            if is_closed {
                in_time(node.close()).await;
            }
            answered(std::slice::from_ref(&client)).await;
            let now = stat_of(&client, &path).await.unwrap();
            assert_eq!((now.czxid, now.version), (before.czxid, 0));
        }
        let node = ephemeral(&client, &path, "Hello World");
        is_taken(&node).await;
        client.delete().for_path(&path).await.unwrap();
        assert_eq!(stands(&node).await.session, SessionId::new(before.ephemeral_owner));
        assert_eq!(text_of(&client, &path).await.unwrap(), "Hello World");
    }

    /// The server still has the client's old session. Curator adopts that session's node, and gets an event of a node
    /// that is about to vanish.
    async fn node_of_a_session_that_still_expires_is_replaced(env) {
        let session = if is_zookeeper_async() { SHORT } else { LONG };
        let (proxy, direct, folder) = (env.proxy(), env.client().await, env.path("test"));
        let path = format!("{folder}/foo");
        let client = connected(through(&proxy, session)).await;
        let node = ephemeral(&client, &path, "mine");
        let mut before = stands(&node).await;
        for _ in 0..3 {
            // The server grants another session, and keeps the old one to its timeout.
            proxy.swap_session();
            proxy.reset();
            let now = stands_again(&node, &before).await;
            assert_ne!(now.session, before.session);
            let stat = stat_of(&direct, &path).await.unwrap();
            assert_eq!((stat.czxid, stat.ephemeral_owner), (now.czxid.get(), now.session.unwrap().get()));
            before = now;
        }
        assert_eq!(text_of(&direct, &path).await.unwrap(), "mine");
        if is_zookeeper_async() {
            return;
        }
        // The ends of the old sessions do not touch the new node.
        let known = stat_of(&direct, &path).await.unwrap();
        in_time(node.close()).await;
        assert_eq!((known.ephemeral_owner, children(&direct, &folder).await), (before.session.unwrap().get(), vec![]));
    }

    /// The client is lost at three quarters of its timeout, and comes back before the server ends its session.
    async fn node_is_replaced_behind_an_outage_up_to_the_deadline(env) {
        let session = Duration::from_secs(6);
        let (proxy, direct, path) = (env.proxy(), env.client().await, env.path("test/foo"));
        let client = connected(through(&proxy, session)).await;
        let node = ephemeral(&client, &path, "mine");
        let before = stands(&node).await;
        take_down(&proxy);
        comes_to(&client, ConnectionState::Lost).await;
        // The state does not claim a node of a session that has ended.
        reaches(&node, |state| matches!(state, NodeState::Creating)).await;
        proxy.accept();
        let now = stands_again(&node, &before).await;
        assert_eq!(now.session, SessionId::new(stat_of(&direct, &path).await.unwrap().ephemeral_owner));
        assert_ne!(now.session, before.session);
        // The end of the old session does not touch the new node.
        kill_session(env.address(), before.session.unwrap().get()).await.unwrap();
        assert_eq!(stat_of(&direct, &path).await.unwrap().czxid, now.czxid.get());
    }

    /// Two clients with one path: the session change of one does not take the other's node.
    async fn new_session_does_not_take_the_node_of_a_client_that_was_faster(env) {
        let (proxy, other, path) = (env.proxy(), env.client().await, env.path("test/foo"));
        let client = connected(through(&proxy, SHORT)).await;
        let first = ephemeral(&client, &path, "first");
        let before = stands(&first).await;
        let second = ephemeral(&other, &path, "second");
        assert_eq!(is_taken(&second).await, before.session);
        take_down(&proxy);
        let taken = stands(&second).await;
        proxy.accept();
        assert_eq!(is_taken(&first).await, taken.session);
        assert_eq!(text_of(&other, &path).await.unwrap(), "second");
        in_time(second.close()).await;
        assert!(stands_again(&first, &before).await.czxid > taken.czxid);
        assert_eq!(text_of(&other, &path).await.unwrap(), "first");
    }

    async fn second_node_of_one_client_at_a_path_waits_for_the_first(env) {
        let (client, path) = (connected(builder(env.address()).session_timeout(LONG)).await, env.path("test/foo"));
        let one = ephemeral(&client, &path, "one");
        let standing = stands(&one).await;
        for _ in 0..5 {
            let two = ephemeral(&client, &path, "two");
            is_taken(&two).await;
            in_time(two.close()).await;
        }
        let two = ephemeral(&client, &path, "two");
        assert_eq!(is_taken(&two).await, standing.session);
        answered(std::slice::from_ref(&client)).await;
        assert_eq!(stat_of(&client, &path).await.unwrap().czxid, standing.czxid.get());
        in_time(one.close()).await;
        stands(&two).await;
        assert_eq!(text_of(&client, &path).await.unwrap(), "two");
    }
}

//! Curator's `TestPersistentEphemeralNode` where servers are away, and `TestPersistentEphemeralNodeListener`.

use std::task::Poll;
use std::time::Duration;

use curator_framework::{ConnectionState, CreateMode, EventType, WakeReason};
use curator_integration::connection_stage::comes_to;
use curator_integration::env::{builder, children, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{Change, NodeError, NodeState, PersistentNode, PersistentNodeOptions};
use curator_test::kill_session;
use curator_test::wire::OpCode;

use crate::stage::{
    Created, LONG, MODES, SHORT, ephemeral, stands, stands_again, started, started_with, stat_of, take_down, text_of,
    through,
};

use ConnectionState::{Connected, Lost, Reconnected, Suspended};

on_every_server! {
    /// Curator's `TestPersistentEphemeralNode.testNoServerAtStart`.
    async fn node_started_before_the_server_stands_once_it_serves(env) {
        let (proxy, direct, path) = (env.proxy(), env.client().await, env.path("abc/node"));
        proxy.refuse();
        let client = through(&proxy, LONG).build().unwrap();
        client.start().unwrap();
        let node = ephemeral(&client, &path, "hello");
        in_time(proxy.wait_for_connections(2)).await;
        let early = in_time(node.created_timeout(Duration::from_millis(50))).await;
        assert!(early.as_ref().is_err_and(NodeError::is_retryable), "{early:?}");
        assert!(matches!(node.state(), NodeState::Creating), "{:?}", node.state());
        proxy.accept();
        comes_to(&client, Connected).await;
        stands(&node).await;
        assert_eq!(text_of(&direct, &path).await.unwrap(), "hello");
    }

    /// Curator's `TestPersistentEphemeralNode.testListenersReconnectedIsFast` and
    /// `TestPersistentEphemeralNodeListener.testListenersReconnectedIsOK`.
    async fn reconnect_behind_a_late_start_calls_no_listener_twice(env) {
        let (proxy, direct, path) = (env.proxy(), env.client().await, env.path("abc/node"));
        proxy.refuse();
        let client = through(&proxy, LONG).build().unwrap();
        client.start().unwrap();
        let node = PersistentNode::new(client.clone(), &path, "hello").unwrap();
        let calls = Created::of(&node);
        node.start().unwrap();
        proxy.accept();
        comes_to(&client, Connected).await;
        let standing = stands(&node).await;
        for _ in 0..3 {
            take_down(&proxy);
            comes_to(&client, Suspended).await;
            proxy.accept();
            comes_to(&client, Reconnected).await;
        }
        in_time(node.set_data("again")).await.unwrap();
        assert_eq!(stat_of(&direct, &path).await.unwrap().czxid, standing.czxid.get());
        in_time(node.close()).await;
        drop(node);
        assert_eq!(calls.rest().await, [path]);
    }

    /// Curator's `TestPersistentNode.testEphemeralSequentialWithProtectionReconnection`, and
    /// `TestPersistentEphemeralNode.testProtected` (CURATOR-190).
    async fn protected_nodes_stay_themselves_over_restarts_of_the_server(env) {
        let env = env.alone();
        let folder = env.path("test");
        let client = connected(builder(env.address()).session_timeout(LONG)).await;
        client.create().creating_parents_if_needed().for_path(&folder).await.unwrap();
        for mode in MODES {
            let options = PersistentNodeOptions::new().protected();
            let node = started_with(&client, mode, &format!("{folder}/foo"), "", options);
            let standing = stands(&node).await;
            let name = standing.path.rsplit_once('/').unwrap().1.to_owned();
            assert!(name.starts_with("_c_"), "{name}");
            assert_eq!(children(&client, &folder).await, [name.as_str()]);
            env.restart().await;
            comes_to(&client, Reconnected).await;
            in_time(node.set_data("again")).await.unwrap();
            assert_eq!(stat_of(&client, &standing.path).await.unwrap().czxid, standing.czxid.get());
            // A protected node keeps its whole name when it is created again.
            client.delete().for_path(&standing.path).await.unwrap();
            assert_eq!(stands_again(&node, &standing).await.path, standing.path);
            assert_eq!(children(&client, &folder).await, [name.as_str()], "{mode:?}");
            in_time(node.close()).await;
        }
        env.wait_for_children(&client, &folder, 0).await;
    }

    /// Curator's `TestPersistentEphemeralNode.testDeletesNodeWhenSessionDisconnects`,
    /// `testRecreatesNodeWhenSessionReconnects` and `testRecreatesNodeWhenSessionReconnectsMultipleTimes`.
    async fn node_goes_with_its_session_and_stands_in_the_next_one(env) {
        let (client, observer) = (env.client().await, env.client().await);
        for options in [PersistentNodeOptions::new(), PersistentNodeOptions::new().protected()] {
            for mode in [CreateMode::Ephemeral, CreateMode::EphemeralSequential] {
                let node = started_with(&client, mode, &env.path("test/foo"), "mine", options.clone());
                let mut before = stands(&node).await;
                for _ in 0..3 {
                    let (_, deleted) = observer.check_exists().watched().for_path(&before.path).await.unwrap();
                    kill_session(env.address(), before.session.unwrap().get()).await.unwrap();
                    assert_eq!(in_time(deleted).await, WakeReason::Event(EventType::NodeDeleted));
                    let now = stands_again(&node, &before).await;
                    assert_eq!(now.path, before.path, "{mode:?}");
                    assert!(now.session != before.session && now.czxid > before.czxid && !now.adopted);
                    let stat = stat_of(&observer, &now.path).await.unwrap();
                    assert_eq!((stat.czxid, stat.ephemeral_owner), (now.czxid.get(), now.session.unwrap().get()));
                    before = now;
                }
                assert_eq!(children(&observer, &env.path("test")).await.len(), 1);
                in_time(node.close()).await;
                env.wait_for_children(&observer, &env.path("test"), 0).await;
            }
        }
    }

    async fn persistent_node_is_kept_through_sessions(env) {
        let (proxy, direct) = (env.proxy(), env.client().await);
        let client = connected(through(&proxy, SHORT)).await;
        for mode in [CreateMode::Persistent, CreateMode::PersistentSequential] {
            let node = started(&client, mode, &env.path("test/foo"), "mine");
            let standing = stands(&node).await;
            take_down(&proxy);
            comes_to(&client, Lost).await;
            // A deletion without a session is repaired in the next one.
            direct.delete().for_path(&standing.path).await.unwrap();
            proxy.accept();
            let again = stands_again(&node, &standing).await;
            assert_eq!((again.path.as_str(), again.session), (standing.path.as_str(), None));
            take_down(&proxy);
            comes_to(&client, Lost).await;
            proxy.accept();
            comes_to(&client, Reconnected).await;
            in_time(node.set_data("again")).await.unwrap();
            let stat = stat_of(&direct, &again.path).await.unwrap();
            assert_eq!(stat.czxid, again.czxid.get(), "{mode:?}");
            assert_eq!(children(&direct, &env.path("test")).await.len(), 1);
            in_time(node.close()).await;
            env.wait_for_children(&direct, &env.path("test"), 0).await;
        }
    }

    /// Curator's `TestPersistentEphemeralNode.testSetDataWhenDisconnected`.
    async fn data_set_in_an_outage_arrives_after_it(env) {
        let (proxy, direct) = (env.proxy(), env.client().await);
        let client = connected(through(&proxy, LONG)).await;
        for mode in MODES {
            let node = started(&client, mode, &env.path("test/foo"), "Hello World");
            let standing = stands(&node).await;
            take_down(&proxy);
            comes_to(&client, Suspended).await;
            let (_, changed) = direct.get_data().watched().for_path(&standing.path).await.unwrap();
            let setter = node.clone();
            let set = tokio::spawn(async move { setter.set_data("Updated").await });
            eventually("it is recorded", async || node.data() == b"Updated").await;
            proxy.accept();
            assert_eq!(in_time(changed).await, WakeReason::Event(EventType::NodeDataChanged), "{mode:?}");
            in_time(set).await.unwrap().unwrap();
            assert_eq!(text_of(&direct, &standing.path).await.unwrap(), "Updated");
            assert_eq!(stat_of(&direct, &standing.path).await.unwrap().czxid, standing.czxid.get());
            in_time(node.close()).await;
        }
    }

    /// Curator's `TestPersistentEphemeralNode.testSetUpdatedDataWhenReconnected`.
    async fn node_has_its_newest_data_after_a_restart_and_in_a_new_session(env) {
        let env = env.alone();
        let path = env.path("test/foo");
        let client = connected(builder(env.address()).session_timeout(LONG)).await;
        let node = ephemeral(&client, &path, "Hello World");
        let standing = stands(&node).await;
        in_time(node.set_data("Updated")).await.unwrap();
        env.restart().await;
        comes_to(&client, Reconnected).await;
        assert_eq!(text_of(&client, &path).await.unwrap(), "Updated");
        kill_session(env.address(), standing.session.unwrap().get()).await.unwrap();
        stands_again(&node, &standing).await;
        assert_eq!(text_of(&client, &path).await.unwrap(), "Updated");
    }

    async fn node_closed_in_an_outage_is_deleted_after_it(env) {
        let (proxy, direct) = (env.proxy(), env.client().await);
        let options = builder(proxy.address()).session_timeout(LONG).connection_timeout(Duration::from_millis(300));
        let client = connected(options.retry_policy(curator_framework::RetryOneTime::new(SHORT / 100))).await;
        for mode in MODES {
            for is_dropped in [false, true] {
                let node = started(&client, mode, &env.path("test/foo"), "");
                stands(&node).await;
                take_down(&proxy);
                comes_to(&client, Suspended).await;
                if is_dropped {
                    drop(node);
                } else {
                    in_time(node.close()).await;
                    assert!(matches!(node.state(), NodeState::Closed), "{:?}", node.state());
                }
                proxy.accept();
                env.wait_for_children(&direct, &env.path("test"), 0).await;
                comes_to(&client, Reconnected).await;
            }
        }
    }

    /// A create with an unknown outcome leaves one node, in each mode, and none behind a close.
    async fn lost_replies_of_a_create_leave_one_node(env) {
        let (proxy, direct) = (env.proxy(), env.client().await);
        let client = connected(through(&proxy, LONG)).await;
        direct.create().creating_parents_if_needed().for_path(&env.path("test")).await.unwrap();
        for mode in MODES {
            for fault in 0..6 {
                let (done, is_protected) = (proxy.faults_done(), fault >= 3);
                // A sequential node is found after a lost reply by its id alone.
                let is_lost_for_ever = mode.is_sequential() && !is_protected;
                match fault % 3 {
                    1 => proxy.drop_request(OpCode::Create2, 1),
                    _ if is_lost_for_ever => continue,
                    0 => proxy.drop_reply(OpCode::Create2, 1),
                    _ => proxy.cut_frame(OpCode::Create2, 1),
                }
                let options = PersistentNodeOptions::new();
                let options = if is_protected { options.protected() } else { options };
                let node = started_with(&client, mode, &env.path("test/foo"), "mine", options);
                let standing = stands(&node).await;
                assert_eq!(proxy.faults_done(), done + 1);
                let name = standing.path.rsplit_once('/').unwrap().1;
                eventually("one node is left", async || children(&direct, &env.path("test")).await == [name]).await;
                assert_eq!(text_of(&direct, &standing.path).await.unwrap(), "mine");
                in_time(node.close()).await;
                env.wait_for_children(&direct, &env.path("test"), 0).await;
            }
        }
    }

    async fn lost_replies_of_a_change_and_of_a_close_are_repeated(env) {
        let (proxy, direct) = (env.proxy(), env.client().await);
        let client = connected(through(&proxy, LONG)).await;
        for mode in MODES {
            for is_reply in [true, false] {
                let lose = |op| if is_reply { proxy.drop_reply(op, 1) } else { proxy.drop_request(op, 1) };
                let done = proxy.faults_done();
                let node = started(&client, mode, &env.path("test/foo"), "one");
                let standing = stands(&node).await;
                lose(OpCode::SetData);
                in_time(node.set_data("two")).await.unwrap();
                assert_eq!(text_of(&direct, &standing.path).await.unwrap(), "two");
                lose(OpCode::Delete);
                in_time(node.close()).await;
                env.wait_for_children(&direct, &env.path("test"), 0).await;
                // The proxy counts a fault behind the close of its connection: the client and the server may be faster.
                in_time(proxy.wait_for_faults(done + 2)).await;
                assert_eq!(proxy.faults_done(), done + 2, "{mode:?}");
            }
        }
    }

    /// A connection that breaks costs a standing node nothing.
    async fn reconnect_changes_nothing(env) {
        let (proxy, direct) = (env.proxy(), env.client().await);
        let client = connected(through(&proxy, LONG)).await;
        for mode in MODES {
            let node = started(&client, mode, &env.path("test/foo"), "mine");
            let standing = stands(&node).await;
            let mut changes = node.changes();
            for _ in 0..3 {
                take_down(&proxy);
                comes_to(&client, Suspended).await;
                proxy.accept();
                comes_to(&client, Reconnected).await;
                client.check_exists().for_path("/").await.unwrap();
            }
            let stat = stat_of(&direct, &standing.path).await.unwrap();
            assert_eq!((stat.czxid, stat.version), (standing.czxid.get(), 0), "{mode:?}");
            while let Poll::Ready(change) = futures_util::poll!(std::pin::pin!(changes.recv())) {
                // The stream is written behind the state, so the first one may come now.
                let is_first = matches!(&change, Some(Change::Item(NodeState::Standing(now))) if *now == standing);
                assert!(is_first, "{mode:?}: {change:?}");
            }
            // The watch of its node survives too.
            direct.delete().for_path(&standing.path).await.unwrap();
            stands_again(&node, &standing).await;
            in_time(node.close()).await;
        }
    }

    /// A deletion during an outage is repaired at its end.
    async fn node_deleted_in_an_outage_stands_again_after_it(env) {
        let (proxy, direct) = (env.proxy(), env.client().await);
        let client = connected(through(&proxy, LONG)).await;
        for mode in MODES {
            let node = started(&client, mode, &env.path("test/foo"), "mine");
            let standing = stands(&node).await;
            take_down(&proxy);
            comes_to(&client, Suspended).await;
            direct.delete().for_path(&standing.path).await.unwrap();
            proxy.accept();
            let again = stands_again(&node, &standing).await;
            assert_eq!(again.path, standing.path, "{mode:?}");
            assert_eq!(children(&direct, &env.path("test")).await.len(), 1);
            in_time(node.close()).await;
        }
    }

    async fn nodes_of_one_client_all_stand_in_its_next_session(env) {
        const NODES: usize = 500;
        let (client, observer) = (env.client().await, env.client().await);
        let nodes: Vec<_> =
            (0..NODES).map(|number| ephemeral(&client, &env.path(&format!("test/{number}")), "mine")).collect();
        let mut before = Vec::new();
        for node in &nodes {
            before.push(stands(node).await);
        }
        kill_session(env.address(), before[0].session.unwrap().get()).await.unwrap();
        for (node, before) in nodes.iter().zip(&before) {
            stands_again(node, before).await;
        }
        assert_eq!(children(&observer, &env.path("test")).await.len(), NODES);
        for node in nodes {
            in_time(node.close()).await;
        }
        env.wait_for_children(&observer, &env.path("test"), 0).await;
    }
}

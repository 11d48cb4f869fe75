//! Curator's `TestPersistentNode`, and the part of `TestPersistentEphemeralNode` where no connection breaks.

use std::time::Duration;

use curator_framework::{CreateMode, Error, SessionId, WakeReason};
use curator_integration::env::{builder, children, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{NodeError, NodeState, PersistentNode, PersistentNodeOptions};

use crate::stage::{LONG, MODES, ephemeral, fails, stands, stands_again, started, started_with, stat_of, text_of};

on_every_server! {
    async fn node_that_stays_is_deleted_by_delete_alone(env) {
        let (client, path) = (env.client().await, env.path("test/foo"));
        let start = || {
            let options = PersistentNodeOptions::new().stays_when_closed();
            started_with(&client, CreateMode::Persistent, &path, "data", options)
        };
        let node = start();
        let first = stands(&node).await;
        in_time(node.close()).await;
        in_time(node.delete()).await.unwrap();
        assert_eq!(stat_of(&client, &path).await.unwrap().czxid, first.czxid.get());
        let node = start();
        stands(&node).await;
        let mut states = node.watch();
        drop(node);
        in_time(states.wait_for(|state| matches!(state, NodeState::Closed))).await.unwrap();
        assert_eq!(stat_of(&client, &path).await.unwrap().czxid, first.czxid.get());
        let node = start();
        assert!(stands(&node).await.adopted);
        in_time(node.delete()).await.unwrap();
        assert!(stat_of(&client, &path).await.is_none());
    }

    /// Curator's `TestPersistentNode.testQuickSetData`. Its `setData` throws before the first create.
    async fn data_set_right_behind_the_start_arrives(env) {
        let (client, path) = (env.client().await, env.path("test"));
        for mode in MODES {
            let node = started(&client, mode, &path, "hey");
            in_time(node.set_data("there")).await.unwrap();
            assert_eq!(node.data(), b"there");
            assert_eq!(text_of(&client, &stands(&node).await.path).await.unwrap(), "there", "{mode:?}");
            in_time(node.close()).await;
        }
    }

    /// Curator's `TestPersistentNode.testBasic`.
    async fn persistent_node_outlives_its_client(env) {
        let (client, path) = (connected(builder(env.address()).session_timeout(LONG)).await, env.path("test"));
        let node = started(&client, CreateMode::Persistent, &path, "hey");
        let standing = in_time(node.created_timeout(Duration::from_secs(20))).await.unwrap().expect("it stands");
        assert_eq!((standing.path.as_str(), standing.session, standing.adopted), (path.as_str(), None, false));
        in_time(client.close()).await;
        assert_eq!(text_of(&env.client().await, &path).await.unwrap(), "hey");
    }

    /// Curator's `TestPersistentNode.testCreationWithParentCreationOff`.
    async fn node_whose_parents_are_missing_fails_until_they_are_created(env) {
        let (client, path) = (env.client().await, env.path("one/two"));
        let options = PersistentNodeOptions::new().without_parents();
        let node = started_with(&client, CreateMode::Persistent, &path, "", options);
        let failed = fails(&node).await;
        assert!(matches!(failed, NodeError::Framework(Error::NoNode { .. })), "{failed:?}");
        for refused in [
            in_time(node.created()).await,
            in_time(node.created_timeout(Duration::from_secs(20))).await.map(|node| node.expect("it stands")),
        ] {
            assert!(matches!(refused, Err(NodeError::Framework(Error::NoNode { .. }))), "{refused:?}");
        }
        assert!(stat_of(&client, &env.path("one")).await.is_none());
        client.create().creating_parents_if_needed().for_path(&env.path("one")).await.unwrap();
        crate::stage::reaches(&node, |state| matches!(state, NodeState::Standing(_))).await;
        assert!(stat_of(&client, &path).await.is_some());
    }

    /// Curator's `TestPersistentNode.testRecreationWithParentCreationOff`.
    async fn node_whose_parents_are_deleted_fails_until_they_are_back(env) {
        let (client, parent) = (env.client().await, env.path("one"));
        client.create().creating_parents_if_needed().for_path(&parent).await.unwrap();
        let path = format!("{parent}/two");
        let options = PersistentNodeOptions::new().without_parents();
        let node = started_with(&client, CreateMode::Ephemeral, &path, "hey", options);
        let standing = stands(&node).await;
        env.client().await.delete().deleting_children_if_needed().for_path(&parent).await.unwrap_or_else(|error| {
            // The node may be created again before its parent is deleted.
            assert!(matches!(error, Error::NotEmpty { .. }), "{error}");
        });
        eventually("the parent is deleted", async || {
            let deleted = client.delete().deleting_children_if_needed().quietly().for_path(&parent).await;
            deleted.is_ok() && stat_of(&client, &parent).await.is_none()
        })
        .await;
        let failed = fails(&node).await;
        assert!(matches!(failed, NodeError::Framework(Error::NoNode { .. })), "{failed:?}");
        assert!(stat_of(&client, &parent).await.is_none());
        assert_eq!(node.data(), b"hey");
        client.create().for_path(&parent).await.unwrap();
        stands_again(&node, &standing).await;
        assert_eq!(text_of(&client, &path).await.unwrap(), "hey");
    }

    /// Curator's `TestPersistentNode.testQuickClose`, for each mode and a few moments of the create.
    async fn node_closed_right_behind_its_start_leaves_nothing(env) {
        let (client, folder) = (env.client().await, env.path("one"));
        for micros in (0..4000).step_by(250) {
            for mode in MODES {
                let node = started(&client, mode, &format!("{folder}/two"), "");
                tokio::time::sleep(Duration::from_micros(micros)).await;
                in_time(node.close()).await;
                assert!(matches!(node.state(), NodeState::Closed), "{:?}", node.state());
                env.wait_for_children(&client, &folder, 0).await;
            }
        }
        // No create was on its way behind the last close.
        curator_integration::env::answered(std::slice::from_ref(&client)).await;
        assert_eq!(children(&client, &folder).await, [""; 0]);
    }

    /// Curator's `TestPersistentNode.testQuickCloseNodeExists`.
    async fn node_that_stood_before_is_deleted_by_a_close(env) {
        let (client, path) = (env.client().await, env.path("one/two"));
        client.create().creating_parents_if_needed().with_data("old").for_path(&path).await.unwrap();
        let node = started(&client, CreateMode::Persistent, &path, "new");
        let standing = stands(&node).await;
        assert!(standing.adopted && standing.session.is_none(), "{standing:?}");
        assert_eq!(text_of(&client, &path).await.unwrap(), "new");
        in_time(node.close()).await;
        eventually("the node is deleted", async || stat_of(&client, &path).await.is_none()).await;
    }

    /// Curator's `TestPersistentEphemeralNode.testNullPath`.
    async fn invalid_paths_are_refused(env) {
        let client = env.client().await;
        for path in ["", "relative", "/a//b", "/a/", "/", "/a/../b", "/a\0b"] {
            for mode in MODES {
                let refused = PersistentNode::with_options(client.clone(), path, "", PersistentNodeOptions::new().mode(mode));
                assert!(refused.is_err(), "{path:?}: {refused:?}");
                let options = PersistentNodeOptions::new().protected();
                assert!(PersistentNode::with_options(client.clone(), path, "", options.mode(mode)).is_err(), "{path:?}");
            }
        }
    }

    /// Curator's `TestPersistentEphemeralNode.testSettingData` and `testSettingDataSequential`.
    async fn each_change_of_the_data_is_seen_in_every_mode(env) {
        let (client, observer) = (env.client().await, env.client().await);
        for mode in MODES {
            let node = started(&client, mode, &env.path("test/foo"), "a");
            let path = stands(&node).await.path;
            assert_eq!(path, node.actual_path().unwrap());
            assert_eq!(text_of(&observer, &path).await.unwrap(), "a");
            for data in ["b", "c"] {
                let (_, changed) = observer.check_exists().watched().for_path(&path).await.unwrap();
                in_time(node.set_data(data)).await.unwrap();
                in_time(changed).await;
                assert_eq!(path, node.actual_path().unwrap());
                assert_eq!(text_of(&observer, &path).await.unwrap(), data);
            }
            let (_, deleted) = observer.check_exists().watched().for_path(&path).await.unwrap();
            in_time(node.close()).await;
            let woken = in_time(deleted).await;
            assert_eq!(woken, WakeReason::Event(curator_framework::EventType::NodeDeleted), "{mode:?}");
        }
    }

    /// Curator's `TestPersistentEphemeralNode.testData` and `testDeletesNodeWhenClosed`.
    async fn node_has_its_data_and_is_deleted_by_a_close(env) {
        let (client, observer) = (env.client().await, env.client().await);
        for mode in MODES {
            let node = started(&client, mode, &env.path("test/foo"), "Hello World");
            let standing = stands(&node).await;
            let stat = stat_of(&observer, &standing.path).await.unwrap();
            assert_eq!((stat.czxid, stat.ephemeral_owner), (standing.czxid.get(), standing.session.map_or(0, SessionId::get)), "{mode:?}");
            assert_eq!(standing.session.is_some(), mode.is_ephemeral());
            assert_eq!(text_of(&observer, &standing.path).await.unwrap(), "Hello World");
            in_time(node.close()).await;
            assert!(stat_of(&client, &standing.path).await.is_none(), "{mode:?}");
        }
    }

    /// Curator's `TestPersistentEphemeralNode.testClosingMultipleTimes`.
    async fn many_nodes_are_closed_at_once(env) {
        let (client, path) = (env.client().await, env.path("nodes"));
        let nodes: Vec<_> = (0..100).map(|number| {
            let node = PersistentNode::new(client.clone(), format!("{path}/{number}"), "").unwrap();
            node.start().unwrap();
            node
        }).collect();
        env.wait_for_children(&client, &path, nodes.len()).await;
        in_time(PersistentNode::close_all(&nodes)).await;
        assert_eq!(children(&client, &path).await, [""; 0]);
        assert!(nodes.iter().all(|node| matches!(node.state(), NodeState::Closed)));
    }

    async fn node_is_started_once_and_closed_any_number_of_times(env) {
        let (client, path) = (env.client().await, env.path("test/foo"));
        let node = PersistentNode::new(client.clone(), &path, "").unwrap();
        assert!(matches!(node.state(), NodeState::Latent), "{:?}", node.state());
        let timed = in_time(node.created_timeout(Duration::ZERO)).await.map(|node| node.expect("it stands"));
        for refused in [in_time(node.created()).await, timed] {
            assert!(matches!(refused, Err(NodeError::NotStarted { .. })), "{refused:?}");
        }
        assert!(stat_of(&client, &path).await.is_none());
        node.start().unwrap();
        assert!(matches!(node.start(), Err(NodeError::AlreadyStarted { .. })));
        stands(&node).await;
        let clone = node.clone();
        tokio::join!(in_time(node.close()), in_time(clone.close()));
        assert!(stat_of(&client, &path).await.is_none());
        in_time(node.close()).await;
        assert!(matches!(node.start(), Err(NodeError::Closed { .. })));
        assert!(matches!(in_time(node.created()).await, Err(NodeError::Closed { .. })));
        assert!(matches!(in_time(node.set_data("late")).await, Err(NodeError::Closed { .. })));
        assert!(stat_of(&client, &path).await.is_none());
        // A node that was never started is closed too, and deletes nothing.
        client.create().for_path(&path).await.unwrap();
        let unused = PersistentNode::with_options(client.clone(), &path, "", PersistentNodeOptions::new().mode(CreateMode::Persistent)).unwrap();
        in_time(unused.close()).await;
        assert!(matches!(unused.start(), Err(NodeError::Closed { .. })));
        assert!(stat_of(&client, &path).await.is_some());
    }

    /// Curator's `TestPersistentEphemeralNode.testRecreatesNodeWhenItGetsDeleted`, for each mode.
    async fn node_deleted_by_another_client_is_created_again(env) {
        let (client, other) = (env.client().await, env.client().await);
        for mode in MODES {
            let node = started(&client, mode, &env.path("test/foo"), "mine");
            let mut before = stands(&node).await;
            for _ in 0..3 {
                other.delete().for_path(&before.path).await.unwrap();
                let now = stands_again(&node, &before).await;
                // A sequential node keeps its number.
                assert_eq!((now.path.as_str(), now.session), (before.path.as_str(), before.session), "{mode:?}");
                assert!(now.czxid > before.czxid && !now.adopted);
                assert_eq!(text_of(&other, &now.path).await.unwrap(), "mine");
                before = now;
            }
            assert_eq!(children(&other, &env.path("test")).await.len(), 1);
            in_time(node.close()).await;
        }
    }

    /// Curator's `TestPersistentEphemeralNode.testNodesCreateUniquePaths`.
    async fn sequential_nodes_have_paths_of_their_own(env) {
        let (client, path) = (env.client().await, env.path("test/foo"));
        for mode in [CreateMode::EphemeralSequential, CreateMode::PersistentSequential] {
            let nodes = [started(&client, mode, &path, ""), started(&client, mode, &path, "")];
            let paths = [stands(&nodes[0]).await.path, stands(&nodes[1]).await.path];
            assert_ne!(paths[0], paths[1]);
            assert!(paths.iter().all(|one| one.len() == path.len() + 10 && one.starts_with(&path)), "{paths:?}");
            for node in nodes {
                in_time(node.close()).await;
            }
            env.wait_for_children(&client, &env.path("test"), 0).await;
        }
    }

    async fn dropped_node_is_deleted(env) {
        let (client, observer) = (env.client().await, env.client().await);
        for mode in MODES {
            let node = started(&client, mode, &env.path("test/foo"), "");
            let clone = node.clone();
            let path = stands(&node).await.path;
            drop(node);
            in_time(clone.set_data("still there")).await.unwrap();
            assert_eq!(text_of(&observer, &path).await.unwrap(), "still there");
            drop(clone);
            env.wait_for_children(&observer, &env.path("test"), 0).await;
        }
    }

    async fn listeners_are_called_at_each_create(env) {
        let (client, other, path) = (env.client().await, env.client().await, env.path("test/foo"));
        let node = PersistentNode::new(client, &path, "").unwrap();
        let mut calls = crate::stage::Created::of(&node);
        let (removed, mut silent) = crate::stage::Created::removable(&node);
        node.remove_listener(removed);
        node.start().unwrap();
        for _ in 0..3 {
            assert_eq!(calls.next().await, path);
            other.delete().for_path(&path).await.unwrap();
        }
        assert_eq!(calls.next().await, path);
        stands(&node).await;
        in_time(node.close()).await;
        drop(node);
        assert_eq!(calls.rest().await, [""; 0]);
        assert_eq!(silent.try_next(), None);
    }

    async fn node_ends_with_its_client(env) {
        let (observer, path) = (env.client().await, env.path("test/foo"));
        for is_closed in [true, false] {
            let client = connected(builder(env.address()).session_timeout(LONG)).await;
            let node = ephemeral(&client, &path, "");
            stands(&node).await;
            let mut states = node.watch();
            if is_closed {
                in_time(client.close()).await;
                in_time(states.wait_for(|state| matches!(state, NodeState::Closed))).await.unwrap();
                assert!(matches!(in_time(node.created()).await, Err(NodeError::Closed { .. })));
                in_time(node.close()).await;
            } else {
                // A node is a handle of its client, its task is not.
                drop(client);
                in_time(node.set_data("x")).await.unwrap();
                drop(node);
                while in_time(states.changed()).await.is_ok() {}
            }
            // Long before the session would expire.
            eventually("the node is deleted", async || stat_of(&observer, &path).await.is_none()).await;
        }
    }

    async fn node_started_before_its_client_stands_later(env) {
        let (client, path) = (builder(env.address()).build().unwrap(), env.path("test/foo"));
        let node = ephemeral(&client, &path, "");
        tokio::task::yield_now().await;
        client.start().unwrap();
        crate::stage::reaches(&node, |state| matches!(state, NodeState::Standing(_))).await;
        assert!(stat_of(&client, &path).await.is_some());
    }

    async fn paths_of_a_namespace_and_a_chroot_are_the_callers(env) {
        let (observer, root) = (env.client().await, env.path("root"));
        observer.create().creating_parents_if_needed().for_path(&root).await.unwrap();
        let chroot = with_chroot(&env, &root).namespace("space");
        let client = connected(chroot).await;
        for mode in MODES {
            let node = started(&client, mode, "/test/foo", "below");
            let standing = stands(&node).await;
            assert!(standing.path.starts_with("/test/foo"), "{standing:?}");
            let full = format!("{root}/space{}", standing.path);
            assert_eq!(text_of(&observer, &full).await.unwrap(), "below");
            observer.delete().for_path(&full).await.unwrap();
            let again = stands_again(&node, &standing).await;
            assert_eq!(again.path, standing.path);
            in_time(node.set_data("again")).await.unwrap();
            assert_eq!(text_of(&observer, &full).await.unwrap(), "again");
            in_time(node.close()).await;
            assert!(stat_of(&observer, &full).await.is_none());
        }
    }
}

/// Options of a client below a chroot.
fn with_chroot(env: &curator_integration::env::Env, root: &str) -> curator_framework::CuratorFrameworkBuilder {
    let servers = format!("{}{root}", env.address());
    curator_integration::clients::with_client(curator_framework::CuratorFramework::builder(servers))
        .retry_policy(curator_framework::RetryNTimes::new(10, Duration::from_millis(50)))
}

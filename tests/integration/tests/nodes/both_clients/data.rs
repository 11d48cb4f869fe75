//! The data of nodes: the newest wins, at any moment, and foreign changes are reported or repaired.

use curator_framework::{CreateMode, EventType, WakeReason, Zxid};
use curator_integration::env::{answered, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{ForeignData, NodeState, PersistentNode, PersistentNodeOptions};
use tokio::task::JoinSet;

use crate::stage::{MODES, ephemeral, reaches, stands, stands_again, started, started_with, stat_of, text_of};

on_every_server! {
    async fn data_set_before_the_start_is_the_first(env) {
        let client = env.client().await;
        for mode in MODES {
            let node = PersistentNode::with_options(client.clone(), env.path("test/foo"), "first", PersistentNodeOptions::new().mode(mode)).unwrap();
            in_time(node.set_data("second")).await.unwrap();
            node.start().unwrap();
            let standing = stands(&node).await;
            assert_eq!(text_of(&client, &standing.path).await.unwrap(), "second", "{mode:?}");
            in_time(node.close()).await;
        }
    }

    async fn last_of_many_changes_is_the_one_that_stays(env) {
        let (client, path) = (env.client().await, env.path("test/foo"));
        for mode in MODES {
            let node = started(&client, mode, &path, "first");
            let first = node.clone();
            let overtaken = tokio::spawn(async move { first.set_data("0").await });
            for number in 1..50 {
                let set = node.set_data(number.to_string());
                // Some are dropped at once, and are recorded anyway or not at all.
                if number % 3 == 0 {
                    in_time(set).await.unwrap();
                } else {
                    drop(futures_util::poll!(std::pin::pin!(set)));
                }
            }
            in_time(node.set_data("last")).await.unwrap();
            in_time(overtaken).await.unwrap().unwrap();
            let standing = stands(&node).await;
            assert_eq!(text_of(&client, &standing.path).await.unwrap(), "last", "{mode:?}");
            answered(std::slice::from_ref(&client)).await;
            assert_eq!(text_of(&client, &standing.path).await.unwrap(), "last", "{mode:?}");
            in_time(node.close()).await;
        }
    }

    async fn concurrent_changes_end_with_the_data_that_the_node_has(env) {
        let (client, path) = (env.client().await, env.path("test/foo"));
        let node = ephemeral(&client, &path, "first");
        let before = stands(&node).await;
        let mut setters = JoinSet::new();
        for setter in 0..8 {
            let node = node.clone();
            setters.spawn(async move {
                for number in 0..20 {
                    in_time(node.set_data(format!("{setter}-{number}"))).await.unwrap();
                }
            });
        }
        // A deletion in between loses none.
        let other = env.client().await;
        other.delete().for_path(&path).await.unwrap();
        while let Some(done) = in_time(setters.join_next()).await {
            done.unwrap();
        }
        stands_again(&node, &before).await;
        let wanted = String::from_utf8(node.data()).unwrap();
        eventually("the server has it", async || text_of(&client, &path).await.as_ref() == Some(&wanted)).await;
    }

    /// The data that a change has confirmed is in the node that is created again.
    async fn change_between_a_deletion_and_the_next_create_is_kept(env) {
        let (client, other, path) = (env.client().await, env.client().await, env.path("test/foo"));
        let node = ephemeral(&client, &path, "0");
        for number in 1..8 {
            let before = stands(&node).await;
            let data = number.to_string();
            let (deleted, set) = tokio::join!(other.delete().quietly().for_path(&path), node.set_data(data.clone()));
            deleted.unwrap();
            set.unwrap();
            stands_again(&node, &before).await;
            eventually("the server has it", async || text_of(&other, &path).await.as_ref() == Some(&data)).await;
        }
    }

    async fn foreign_data_is_told_and_kept(env) {
        let (client, other) = (env.client().await, env.client().await);
        for mode in MODES {
            let node = started(&client, mode, &env.path("test/foo"), "mine");
            let standing = stands(&node).await;
            assert!(standing.foreign_data.is_none());
            other.set_data().for_path(&standing.path, "theirs").await.unwrap();
            reaches(&node, |state| {
                matches!(state, NodeState::Standing(now) if now.foreign_data.as_deref() == Some(b"theirs"))
            })
            .await;
            assert_eq!(node.data(), b"mine");
            let stat = stat_of(&other, &standing.path).await.unwrap();
            assert_eq!((stat.version, stat.czxid), (1, standing.czxid.get()), "{mode:?}");
            // The next change is written over it.
            in_time(node.set_data("mine again")).await.unwrap();
            assert_eq!(text_of(&other, &standing.path).await.unwrap(), "mine again");
            reaches(&node, |state| matches!(state, NodeState::Standing(now) if now.foreign_data.is_none())).await;
            in_time(node.close()).await;
        }
    }

    async fn foreign_data_is_mended_if_that_is_wanted(env) {
        let (client, other) = (env.client().await, env.client().await);
        for mode in MODES {
            let options = PersistentNodeOptions::new().foreign_data(ForeignData::Mend);
            let node = started_with(&client, mode, &env.path("test/foo"), "mine", options);
            let standing = stands(&node).await;
            for round in 0..3 {
                other.set_data().for_path(&standing.path, "theirs").await.unwrap();
                eventually("it is mended", async || text_of(&other, &standing.path).await.unwrap() == "mine").await;
                let stat = stat_of(&other, &standing.path).await.unwrap();
                assert_eq!((stat.version, stat.czxid), (2 * round + 2, standing.czxid.get()), "{mode:?}");
            }
            // Its own changes are not foreign.
            in_time(node.set_data("newer")).await.unwrap();
            let version = stat_of(&other, &standing.path).await.unwrap().version;
            answered(std::slice::from_ref(&client)).await;
            assert_eq!(stat_of(&other, &standing.path).await.unwrap().version, version);
            in_time(node.close()).await;
        }
    }

    /// The node's own change, seen by its watch, is not reported as foreign data.
    async fn own_changes_are_not_foreign(env) {
        let (client, other, path) = (env.client().await, env.client().await, env.path("test/foo"));
        let node = ephemeral(&client, &path, "0");
        stands(&node).await;
        let mut states = node.watch();
        for number in 1..30 {
            let (_, changed) = other.get_data().watched().for_path(&path).await.unwrap();
            in_time(node.set_data(number.to_string())).await.unwrap();
            assert_eq!(in_time(changed).await, WakeReason::Event(EventType::NodeDataChanged));
            let state = states.borrow_and_update().clone();
            assert!(matches!(&state, NodeState::Standing(now) if now.foreign_data.is_none()), "{state:?}");
        }
        assert_eq!(stat_of(&other, &path).await.unwrap().version, 29);
    }

    /// A persistent node that existed before, with other data: the node's own data is written.
    async fn persistent_node_that_stood_before_gets_the_nodes_data(env) {
        let (client, other, path) = (env.client().await, env.client().await, env.path("test/foo"));
        other.create().creating_parents_if_needed().with_data("theirs").for_path(&path).await.unwrap();
        let before = stat_of(&other, &path).await.unwrap();
        let node = started(&client, CreateMode::Persistent, &path, "mine");
        let standing = stands(&node).await;
        assert!(standing.adopted && standing.czxid == Zxid::new(before.czxid), "{standing:?}");
        assert_eq!(text_of(&other, &path).await.unwrap(), "mine");
    }
}

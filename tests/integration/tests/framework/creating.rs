//! Creating nodes: Curator's `TestCreate` and `TestCreateReturningStat`, and what of `TestFramework` is about creating.

use std::time::Duration;

use curator_framework::{CreateMode, CuratorFramework, Error, Stat, parent_of};
use curator_integration::env::{children, in_time};
use curator_integration::on_every_server;

use crate::ground::{GROUNDS, exists, in_namespace, run};

async fn stat_of(client: &CuratorFramework, path: &str) -> Stat {
    client.check_exists().for_path(path).await.unwrap().expect("it is there")
}

on_every_server! {
    async fn a_time_to_live_is_refused_for_a_node_that_is_not_persistent(env) {
        let (client, node) = (env.client().await, env.path("node"));
        let ttl = Duration::from_secs(60);
        for mode in [CreateMode::Ephemeral, CreateMode::EphemeralSequential, CreateMode::Container] {
            for create in [client.create().with_mode(mode).with_ttl(ttl), client.create().with_ttl(ttl).with_mode(mode)] {
                let refused = create.creating_parents_if_needed().for_path(&node).await.unwrap_err();
                let text = format!("invalid time to live: a node of mode {mode:?} does not have one, only a persistent node");
                assert_eq!(refused.to_string(), text);
            }
        }
        assert!(!exists(&client, &node).await);
    }

    /// Curator's `TestCreateReturningStat.testCreateReturningStat`, `testCreateReturningStatIncludingParents`,
    /// `testCreateReturningStatIncludingParentsReverse` and `testCreateReturningStatInBackground`.
    async fn the_stat_returned_is_the_nodes(env) {
        let client = env.client().await;
        for background in GROUNDS {
            let node = env.path(&format!("stat-{background}/node"));
            let (creator, path) = (client.clone(), node.clone());
            let (path, stat) = run(background, async move {
                creator.create().creating_parents_if_needed().with_data("four").for_path_with_stat(&path).await
            })
            .await
            .unwrap();
            assert_eq!((path, stat), (node.clone(), stat_of(&client, &node).await));
            assert_eq!((stat.version, stat.data_length, stat.ephemeral_owner), (0, 4, 0));
            let beside = format!("{node}-beside");
            let (_, stat) = client.create().for_path_with_stat(&beside).await.unwrap();
            assert_eq!(stat, stat_of(&client, &beside).await);
        }
    }

    /// Curator's `TestCreateReturningStat.testCreateReturningStatWithProtected`.
    async fn the_stat_of_a_protected_node_is_its_own(env) {
        let client = env.client().await;
        let create = client.create().creating_parents_if_needed().with_protection().with_mode(CreateMode::EphemeralSequential);
        let (path, stat) = create.for_path_with_stat(&env.path("protected/node-")).await.unwrap();
        assert_eq!(stat, stat_of(&client, &path).await);
        assert_ne!(stat.ephemeral_owner, 0);
    }

    /// Curator's `TestCreateReturningStat.testCreateReturningStatCompressed`.
    async fn the_stat_of_compressed_data_is_that_of_what_is_stored(env) {
        let client = env.client().await;
        let (node, data) = (env.path("node"), vec![7; 10_000]);
        let create = client.create().creating_parents_if_needed().compressed().with_data(data.clone());
        let (_, stat) = create.for_path_with_stat(&node).await.unwrap();
        assert_eq!(stat, stat_of(&client, &node).await);
        assert!(stat.data_length < 1000, "{stat:?}");
        assert_eq!(client.get_data().decompressed().for_path(&node).await.unwrap(), (data, stat));
    }

    /// Curator's `TestCreateReturningStat.testOrSetDataStoringStatIn`.
    async fn the_stat_of_a_node_that_is_changed_instead_is_the_new_one(env) {
        let client = env.client().await;
        let node = env.path("node");
        let create = || client.create().creating_parents_if_needed().or_set_data();
        for version in 0..3 {
            let (path, stat) = create().with_data("data").for_path_with_stat(&node).await.unwrap();
            assert_eq!((path, stat.version), (node.clone(), version));
            assert_eq!(stat, stat_of(&client, &node).await);
        }
    }

    /// Curator's `TestCreate.testOrSetData` and `TestFramework.testCreateOrSetData`.
    async fn a_node_is_created_or_changed(env) {
        let client = env.client().await;
        for background in GROUNDS {
            let node = env.path(&format!("node-{background}"));
            for data in ["one", "two"] {
                let (creator, path) = (client.clone(), node.clone());
                let created = run(background, async move {
                    creator.create().creating_parents_if_needed().or_set_data().with_data(data).for_path(&path).await
                });
                assert_eq!(created.await.unwrap(), node);
                assert_eq!(client.get_data().for_path(&node).await.unwrap().0, data.as_bytes());
            }
        }
        let node = env.path("node-true");
        let stale = client.create().or_set_data_with_version(0).with_data("three").for_path(&node).await;
        assert!(matches!(stale, Err(Error::BadVersion { .. })), "{stale:?}");
        client.create().or_set_data_with_version(1).with_data("three").for_path(&node).await.unwrap();
        assert_eq!(client.get_data().for_path(&node).await.unwrap().0, b"three");
    }

    /// CURATOR-719 of `TestCreate.testOrSetData`: another client creates and deletes at the same time.
    async fn creating_or_changing_at_once_is_safe(env) {
        let client = env.client().await;
        client.create().creating_parents_if_needed().for_path(&env.path("there")).await.unwrap();
        for round in 0..20 {
            let node = env.path(&format!("there/{round}"));
            let all = (0..8).map(|number| {
                let (client, node) = (client.clone(), node.clone());
                tokio::spawn(async move {
                    if number == 7 {
                        return client.delete().quietly().for_path(&node).await;
                    }
                    client.create().or_set_data().with_data(format!("{number}")).for_path(&node).await.map(drop)
                })
            });
            for done in futures_util::future::join_all(all).await {
                done.unwrap().unwrap();
            }
        }
    }

    /// Curator's `TestCreate.testIdempotentCreate` and `TestCreateReturningStat.testIdempotentCreateReturningStat`.
    async fn an_idempotent_create_accepts_its_own_node_only(env) {
        let client = env.client().await;
        let node = env.path("node");
        let create = |data: &'static str| client.create().creating_parents_if_needed().idempotent().with_data(data);
        let (_, stat) = create("same").for_path_with_stat(&node).await.unwrap();
        assert_eq!(create("same").for_path_with_stat(&node).await.unwrap(), (node.clone(), stat));
        let other = create("other").for_path(&node).await;
        assert!(matches!(&other, Err(Error::NodeExists { path }) if *path == node), "{other:?}");
        let plain = client.create().with_data("same").for_path(&node).await;
        assert!(matches!(plain, Err(Error::NodeExists { .. })), "{plain:?}");
        // Another client has changed it, if only to the same data.
        client.set_data().for_path(&node, "same").await.unwrap();
        let changed = create("same").for_path(&node).await;
        assert!(matches!(changed, Err(Error::NodeExists { .. })), "{changed:?}");
    }

    /// Curator's `TestCreate.testBackgroundFaultInjectionHang`: the node, or its parents, are made by another client
    /// between our looks.
    async fn parents_that_appear_meanwhile_hang_no_create(env) {
        let (one, other) = (env.client().await, env.client().await);
        for round in 0..20 {
            let node = env.path(&format!("round-{round}/a/b/c"));
            let all = (0..6).map(|number| {
                let client = if number % 2 == 0 { one.clone() } else { other.clone() };
                let node = node.clone();
                tokio::spawn(async move { client.create().creating_parents_if_needed().for_path(&node).await })
            });
            let outcomes = in_time(futures_util::future::join_all(all)).await;
            let outcomes: Vec<_> = outcomes.into_iter().map(Result::unwrap).collect();
            assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{outcomes:?}");
            let refused = outcomes.iter().filter(|outcome| matches!(outcome, Err(Error::NodeExists { .. }))).count();
            assert_eq!(refused, 5, "{outcomes:?}");
        }
    }

    /// Curator's `TestFramework.testCreateParents` and `testCreatingParentsTheSame`.
    async fn missing_parents_are_made_however_they_are_asked_for(env) {
        let client = env.client().await;
        for (number, containers) in [false, true].into_iter().enumerate() {
            let above = env.path(&format!("{number}"));
            let node = format!("{above}/one/two/three");
            let create = client.create();
            let create = match containers {
                true => create.creating_parent_containers_if_needed(),
                false => create.creating_parents_if_needed(),
            };
            assert_eq!(create.with_data("foo").for_path(&node).await.unwrap(), node);
            assert_eq!(client.get_data().for_path(&node).await.unwrap().0, b"foo");
            assert_eq!(client.get_data().for_path(&format!("{above}/one/two")).await.unwrap().0, b"", "a parent is empty");
            let again = client.create().creating_parents_if_needed().for_path(&format!("{above}/one/two/another")).await;
            assert_eq!(again.unwrap(), format!("{above}/one/two/another"));
            let missing = client.create().for_path(&format!("{above}/none/node")).await;
            assert!(matches!(missing, Err(Error::NoNode { .. })), "{missing:?}");
            assert_eq!(children(&client, &format!("{above}/none")).await, [""; 0]);
        }
    }

    /// Curator's `TestFramework.testExistsCreatingParents` and `testExistsCreatingParentsInBackground`.
    async fn a_look_makes_the_parents_but_not_the_node(env) {
        let client = env.client().await;
        for background in GROUNDS {
            let parent = env.path(&format!("exists-{background}/one/two"));
            let node = format!("{parent}/three");
            assert!(!exists(&client, &node).await);
            assert!(!exists(&client, &parent).await, "a plain look makes nothing");
            let (looker, path) = (client.clone(), node.clone());
            let found = run(background, async move {
                looker.check_exists().creating_parents_if_needed().for_path(&path).await
            });
            assert_eq!(found.await.unwrap(), None);
            assert!(exists(&client, &parent).await && !exists(&client, &node).await);
        }
    }

    /// Curator's `TestFramework.testCreateModes`, and `testSimple`.
    async fn each_mode_lives_as_long_as_it_says(env) {
        let (client, other) = (env.client().await, env.client().await);
        let parent = env.path("modes");
        client.create().creating_parents_if_needed().for_path(&parent).await.unwrap();
        let modes = [
            (CreateMode::Persistent, true),
            (CreateMode::PersistentSequential, true),
            (CreateMode::Ephemeral, false),
            (CreateMode::EphemeralSequential, false),
        ];
        let mut nodes = Vec::new();
        for (mode, stays) in modes {
            let asked = format!("{parent}/{mode:?}-");
            let path = client.create().with_mode(mode).for_path(&asked).await.unwrap();
            assert_eq!(path != asked, mode.is_sequential(), "{path}");
            assert_eq!(stat_of(&client, &path).await.ephemeral_owner == 0, stays, "{path}");
            nodes.push((path, stays));
        }
        let container = client.create().with_mode(CreateMode::Container).for_path(&format!("{parent}/container")).await;
        nodes.push((container.unwrap(), true));
        client.close().await;
        let kept = nodes.iter().filter(|(_, stays)| *stays).count();
        env.wait_for_children(&other, &parent, kept).await;
        for (path, stays) in nodes {
            assert_eq!(exists(&other, &path).await, stays, "{path}");
        }
    }

    /// Curator's `TestFramework.testGetSequentialChildren`.
    async fn sequential_children_are_all_listed(env) {
        let (client, namespace) = in_namespace(&env, "ns").await;
        client.create().for_path("/test").await.unwrap();
        for number in 0..10 {
            let create = client.create().with_mode(CreateMode::PersistentSequential);
            assert_eq!(create.for_path("/test/child-").await.unwrap(), format!("/test/child-{number:010}"));
        }
        assert_eq!(children(&client, "/test").await.len(), 10);
        assert_eq!(children(&env.client().await, &format!("{namespace}/test")).await.len(), 10);
    }

    /// Curator's `TestFramework.testSequentialWithTrailingSeparator`.
    async fn a_sequential_name_can_be_the_number_alone(env) {
        let (client, namespace) = in_namespace(&env, "ns/inner").await;
        let outside = client.using_namespace("").unwrap();
        client.create().creating_parents_if_needed().for_path("/test/child").await.unwrap();
        for (path, created) in [("/test/", "/test/0000000001"), ("/", "/0000000001")] {
            let create = client.create().with_mode(CreateMode::PersistentSequential);
            assert_eq!(create.for_path(path).await.unwrap(), created);
            let plain = client.create().for_path(path).await;
            assert!(matches!(plain, Err(Error::InvalidPath { .. } | Error::NodeExists { .. })), "{plain:?}");
        }
        assert_eq!(children(&outside, parent_of(&namespace)).await, ["inner"]);
        for (parent, name) in [("/", "test"), ("/test", "child")] {
            let mut names = children(&client, parent).await;
            names.sort_unstable();
            assert_eq!(names, ["0000000001", name]);
        }
        // The root itself has no name to add to.
        let create = outside.create().with_mode(CreateMode::EphemeralSequential);
        let path = create.for_path("/").await.unwrap();
        assert!(path.len() == 11 && exists(&outside, &path).await, "{path}");
    }
}

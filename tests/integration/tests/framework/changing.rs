//! Deleting nodes and changing their data: Curator's `TestDelete` and `TestSetData`.

use curator_framework::{CuratorFramework, Error};
use curator_integration::env::{children, in_time};
use curator_integration::on_every_server;

use crate::ground::{GROUNDS, exists, run};

/// A node with children and grandchildren.
async fn tree(client: &CuratorFramework, top: &str) {
    for below in ["one/a", "one/b", "two", "three/c/d"] {
        client.create().creating_parents_if_needed().for_path(&format!("{top}/{below}")).await.unwrap();
    }
}

on_every_server! {
    /// Curator's `TestDelete.testNormal`, `testBackground`, `testDelete` and `testBackgroundDelete`.
    async fn a_delete_says_what_came_of_it(env) {
        let client = env.client().await;
        for background in GROUNDS {
            let node = env.path(&format!("node-{background}"));
            let delete = |version: Option<i32>| {
                let (client, node) = (client.clone(), node.clone());
                run(background, async move {
                    match version {
                        Some(version) => client.delete().with_version(version).for_path(&node).await,
                        None => client.delete().for_path(&node).await,
                    }
                })
            };
            assert!(matches!(delete(None).await, Err(Error::NoNode { path }) if path == node));
            client.create().creating_parents_if_needed().for_path(&node).await.unwrap();
            client.set_data().for_path(&node, "new").await.unwrap();
            assert!(matches!(delete(Some(0)).await, Err(Error::BadVersion { path }) if path == node));
            delete(Some(1)).await.unwrap();
            assert!(!exists(&client, &node).await);
            client.create().for_path(&node).await.unwrap();
            delete(None).await.unwrap();
            assert!(!exists(&client, &node).await);
        }
    }

    /// Curator's `TestDelete.testQuietDelete` and `testIdempotentDelete`.
    async fn a_missing_node_may_be_no_error(env) {
        let client = env.client().await;
        let node = env.path("node");
        client.create().creating_parents_if_needed().for_path(&node).await.unwrap();
        for delete in [client.delete().quietly(), client.delete().idempotent()] {
            delete.clone().for_path(&env.path("none")).await.unwrap();
            // Only that is hidden.
            let refused = delete.clone().with_version(7).for_path(&node).await;
            assert!(matches!(refused, Err(Error::BadVersion { .. })), "{refused:?}");
            client.create().for_path(&format!("{node}/child")).await.unwrap();
            let refused = delete.clone().for_path(&node).await;
            assert!(matches!(refused, Err(Error::NotEmpty { .. })), "{refused:?}");
            delete.clone().for_path(&format!("{node}/child")).await.unwrap();
        }
        client.delete().idempotent().with_version(0).for_path(&node).await.unwrap();
        client.delete().idempotent().with_version(0).for_path(&node).await.unwrap();
    }

    /// Curator's `TestDelete.testDeleteWithChildren`, `testBackgroundDeleteWithChildren` and
    /// `testDeleteGuaranteedWithChildren`.
    async fn a_node_goes_with_all_that_is_below_it(env) {
        let client = env.client().await;
        for background in GROUNDS {
            for guaranteed in [false, true] {
                let top = env.path(&format!("top-{background}-{guaranteed}"));
                tree(&client, &top).await;
                let plain = client.delete().for_path(&top).await;
                assert!(matches!(plain, Err(Error::NotEmpty { .. })), "{plain:?}");
                let (deleter, path) = (client.clone(), top.clone());
                run(background, async move {
                    let delete = deleter.delete().deleting_children_if_needed();
                    if guaranteed { delete.guaranteed().for_path(&path).await } else { delete.for_path(&path).await }
                })
                .await
                .unwrap();
                assert!(!exists(&client, &top).await);
            }
        }
        let missing = client.delete().deleting_children_if_needed().for_path(&env.path("none")).await;
        assert!(matches!(missing, Err(Error::NoNode { .. })), "{missing:?}");
        tree(&client, &env.path("versioned")).await;
        let stale = client.delete().deleting_children_if_needed().with_version(3).for_path(&env.path("versioned")).await;
        assert!(matches!(stale, Err(Error::BadVersion { .. })), "{stale:?}");
        assert_eq!(children(&client, &env.path("versioned/one")).await.len(), 2, "nothing below it is gone");
    }

    /// Curator's `TestFrameworkEdges.testDeleteChildrenConcurrently`.
    async fn several_may_delete_one_tree_at_once(env) {
        let (one, other) = (env.client().await, env.client().await);
        let top = env.path("top");
        for _ in 0..10 {
            for number in 0..20 {
                one.create().creating_parents_if_needed().for_path(&format!("{top}/{number}/child")).await.unwrap();
            }
            let all = [&one, &other].map(|client| {
                let (client, top) = (client.clone(), top.clone());
                tokio::spawn(async move { client.delete().deleting_children_if_needed().for_path(&top).await })
            });
            let growing = tokio::spawn({
                let (client, top) = (one.clone(), top.clone());
                async move {
                    // Until there is nothing to add to.
                    let mut number = 0;
                    while client.create().for_path(&format!("{top}/late-{number}")).await.is_ok() && number < 10 {
                        number += 1;
                    }
                }
            });
            let outcomes = in_time(futures_util::future::join_all(all)).await;
            let outcomes: Vec<_> = outcomes.into_iter().map(Result::unwrap).collect();
            // The caller does not learn of a node that is missing below it.
            let fine = |outcome: &Result<(), Error>| match outcome {
                Ok(()) => true,
                Err(error) => matches!(error, Error::NoNode { path } if *path == top),
            };
            assert!(outcomes.iter().all(fine) && outcomes.iter().any(Result::is_ok), "{outcomes:?}");
            in_time(growing).await.unwrap();
            assert!(!exists(&one, &top).await, "{:?}", children(&one, &top).await);
        }
    }

    /// Curator's `TestSetData.testNormal` and `testBackground`.
    async fn a_change_says_what_came_of_it(env) {
        let client = env.client().await;
        for background in GROUNDS {
            let node = env.path(&format!("node-{background}"));
            let set = |version: Option<i32>, data: &'static str| {
                let (client, node) = (client.clone(), node.clone());
                run(background, async move {
                    let set = client.set_data();
                    match version {
                        Some(version) => set.with_version(version).for_path(&node, data).await,
                        None => set.for_path(&node, data).await,
                    }
                })
            };
            assert!(matches!(set(None, "x").await, Err(Error::NoNode { path }) if path == node));
            client.create().creating_parents_if_needed().with_data("start").for_path(&node).await.unwrap();
            assert_eq!(set(Some(0), "one").await.unwrap().version, 1);
            assert!(matches!(set(Some(0), "two").await, Err(Error::BadVersion { .. })));
            let stat = set(None, "three").await.unwrap();
            assert_eq!(client.get_data().for_path(&node).await.unwrap(), (b"three".to_vec(), stat));
            assert_eq!(stat.version, 2);
        }
    }

    /// Curator's `TestSetData.testIdempotentSet`.
    async fn an_idempotent_change_accepts_its_own_outcome_only(env) {
        let client = env.client().await;
        let node = env.path("node");
        client.create().creating_parents_if_needed().with_data("start").for_path(&node).await.unwrap();
        let set = |version| client.set_data().idempotent().with_version(version);
        let stat = set(0).for_path(&node, "one").await.unwrap();
        assert_eq!(set(0).for_path(&node, "one").await.unwrap(), stat, "the same again");
        for (version, data) in [(0, "other"), (1, "two")] {
            let outcome = set(version).for_path(&node, data).await;
            assert_eq!(outcome.is_ok(), version == 1, "{outcome:?}");
        }
        for (version, data) in [(0, "two"), (2 + 1, "two"), (7, "two")] {
            let outcome = set(version).for_path(&node, data).await;
            assert!(matches!(outcome, Err(Error::BadVersion { .. })), "{version}: {outcome:?}");
        }
        assert_eq!(set(1).for_path(&node, "two").await.unwrap().version, 2);
        let missing = set(0).for_path(&env.path("none"), "one").await;
        assert!(matches!(missing, Err(Error::NoNode { .. })), "{missing:?}");
    }
}

//! The access to nodes that are created: the part of Curator's `TestCreate` that is about access control.

use std::net::SocketAddr;

use curator_framework::{Acl, AclProvider, CuratorFramework, Error, OtherPaths, Permission, Schema, SchemaSet};
use curator_integration::env::{builder, connected};
use curator_integration::on_every_server;

use crate::ground::{GROUNDS, acl_of, exists, run, world};

/// Lists for some paths; others are open.
#[derive(Debug, Clone)]
struct ByPath(Vec<(String, Permission)>);

impl AclProvider for ByPath {
    fn default_acl(&self) -> Vec<Acl> {
        Acl::open_unsafe()
    }

    fn acl_for_path(&self, path: &str) -> Option<Vec<Acl>> {
        self.0.iter().find(|(of, _)| of == path).map(|(_, permissions)| world(*permissions))
    }
}

async fn client_with(address: SocketAddr, lists: &[(&str, Permission)]) -> CuratorFramework {
    let lists = lists.iter().map(|(path, permissions)| ((*path).to_owned(), *permissions)).collect();
    connected(builder(address).acl_provider(ByPath(lists))).await
}

/// What the provider says about parents.
fn parental() -> Permission {
    Permission::READ | Permission::CREATE | Permission::DELETE
}

/// What the creator says about the node.
fn given() -> Permission {
    Permission::READ | Permission::CREATE
}

on_every_server! {
    /// Curator's `TestCreate.testCreateWithParentsWithAcl` and `testCreateWithParentsWithAclInBackground`.
    async fn a_list_is_for_the_node_and_parents_get_the_providers(env) {
        for background in GROUNDS {
            let above = env.path(&format!("parent-{background}"));
            let (parent, node) = (format!("{above}/parent"), format!("{above}/parent/node"));
            let client = client_with(env.address(), &[(&above, parental())]).await;
            let (creator, path) = (client.clone(), node.clone());
            run(background, async move {
                creator.create().creating_parents_if_needed().with_acl(world(given())).for_path(&path).await
            })
            .await
            .unwrap();
            assert_eq!(acl_of(&client, &node).await, world(given()));
            assert_eq!(acl_of(&client, &parent).await, Acl::open_unsafe());
            assert_eq!(acl_of(&client, &above).await, world(parental()));
        }
    }

    /// Curator's `TestCreate.testCreateWithParentsWithAclApplyToParents` and
    /// `testCreateWithParentsWithAclApplyToParentsInBackground`.
    async fn a_list_may_be_for_the_parents_as_well(env) {
        let client = env.client().await;
        client.create().creating_parents_if_needed().for_path(&env.path("there")).await.unwrap();
        for background in GROUNDS {
            let above = env.path(&format!("there/parent-{background}"));
            let node = format!("{above}/parent/node");
            let (creator, path) = (client.clone(), node.clone());
            run(background, async move {
                let create = creator.create().creating_parents_if_needed();
                create.with_acl_also_on_parents(world(given())).for_path(&path).await
            })
            .await
            .unwrap();
            for created in [node.as_str(), &format!("{above}/parent"), &above] {
                assert_eq!(acl_of(&client, created).await, world(given()), "{created}");
            }
        }
        assert_eq!(acl_of(&client, &env.path("there")).await, Acl::open_unsafe(), "it was there");
    }

    /// Curator's `TestCreate.testCreateWithParentsWithAclApplyToParentsInNamespace` and
    /// `testCreateWithParentsWithAclApplyToParentsInNamespaceBackground`.
    async fn the_node_of_the_namespace_keeps_the_providers_list(env) {
        for background in GROUNDS {
            let namespace = env.path(&format!("ns-{background}"));
            let root = client_with(env.address(), &[(&namespace, parental())]).await;
            let client = root.using_namespace(&namespace[1..]).unwrap();
            let creator = client.clone();
            run(background, async move {
                let create = creator.create().creating_parents_if_needed();
                create.with_acl_also_on_parents(world(given())).for_path("/parent/node").await
            })
            .await
            .unwrap();
            assert_eq!(acl_of(&client, "/parent/node").await, world(given()));
            assert_eq!(acl_of(&client, "/parent").await, world(given()));
            assert_eq!(acl_of(&root, &namespace).await, world(parental()));
        }
    }

    /// Curator's `TestCreate.testCreateWithParentsWithoutAcl` and `testCreateWithParentsWithoutAclInBackground`.
    async fn without_a_list_the_provider_is_asked_for_each_path(env) {
        for background in GROUNDS {
            let parent = env.path(&format!("parent-{background}"));
            let node = format!("{parent}/node");
            let client = client_with(env.address(), &[(&parent, parental()), (&node, given())]).await;
            let (creator, path) = (client.clone(), node.clone());
            run(background, async move { creator.create().creating_parents_if_needed().for_path(&path).await })
                .await
                .unwrap();
            assert_eq!(acl_of(&client, &parent).await, world(parental()));
            assert_eq!(acl_of(&client, &node).await, world(given()));
        }
    }

    /// Curator's `TestCreate.testCreateWithParentsWithoutAclInNamespace` and
    /// `testCreateWithParentsWithoutAclInNamespaceBackground`, and `TestNamespaceFacade.testACL`: the provider is given
    /// the path with the namespace.
    async fn in_a_namespace_the_provider_is_asked_for_the_whole_path(env) {
        for background in GROUNDS {
            let namespace = env.path(&format!("ns-{background}"));
            let (parent, node) = (format!("{namespace}/parent"), format!("{namespace}/parent/node"));
            let lists = [(parent.as_str(), parental()), (&node, given()), ("/parent/node", Permission::READ)];
            let root = client_with(env.address(), &lists).await;
            let client = root.using_namespace(&namespace[1..]).unwrap();
            let creator = client.clone();
            run(background, async move { creator.create().creating_parents_if_needed().for_path("/parent/node").await })
                .await
                .unwrap();
            assert_eq!(acl_of(&client, "/parent/node").await, world(given()));
            assert_eq!(acl_of(&client, "/parent").await, world(parental()));
            assert_eq!(acl_of(&root, &namespace).await, Acl::open_unsafe());
        }
    }

    /// `setACL` without a list gives what the provider says.
    async fn a_list_can_be_set_back_to_the_providers(env) {
        let (namespace, everything) = (env.path("ns"), Permission::ALL);
        let node = format!("{namespace}/node");
        let root = client_with(env.address(), &[(&node, parental() | Permission::ADMIN)]).await;
        let client = root.using_namespace(&namespace[1..]).unwrap();
        client.create().with_acl(world(everything)).for_path("/node").await.unwrap();
        assert_eq!(acl_of(&client, "/node").await, world(everything));
        let stat = client.set_acl().with_version(0).for_path("/node").await.unwrap();
        assert_eq!(stat.aversion, 1);
        assert_eq!(acl_of(&client, "/node").await, world(parental() | Permission::ADMIN));
        let stale = client.set_acl().with_version(0).for_path("/node").await;
        assert!(matches!(stale, Err(Error::BadVersion { .. })), "{stale:?}");
    }

    /// Curator's `TestExistsBuilder.testExistsWithParentsWithAclApplyToParents` and
    /// `testExistsWithParentsWithAclApplyToParentsInBackground`.
    async fn a_look_that_creates_parents_gives_them_the_list(env) {
        let client = env.client().await;
        client.create().creating_parents_if_needed().for_path(&env.path("there")).await.unwrap();
        for background in GROUNDS {
            let parent = env.path(&format!("there/parent-{background}"));
            let node = format!("{parent}/parent/node");
            let (looker, path) = (client.clone(), node.clone());
            let found = run(background, async move {
                looker.check_exists().creating_parents_if_needed().with_acl(world(given())).for_path(&path).await
            });
            assert_eq!(found.await.unwrap(), None);
            assert!(!exists(&client, &node).await);
            for created in [parent.as_str(), &format!("{parent}/parent")] {
                assert_eq!(acl_of(&client, created).await, world(given()), "{created}");
            }
        }
    }

    /// Curator's `TestCreate.testForbiddenAncestors` (CURATOR-715, CURATOR-728): what is above the nearest parent that is
    /// there is not checked, and a parent that is there is not made again.
    async fn nothing_above_the_nearest_parent_has_to_be_readable(env) {
        let client = env.client().await;
        let forbidden = env.path("forbidden");
        client.create().creating_parents_if_needed().for_path(&format!("{forbidden}/mine")).await.unwrap();
        client.set_acl().with_acl(world(Permission::ADMIN)).for_path(&forbidden).await.unwrap();
        let read = client.get_children().for_path(&forbidden).await;
        assert!(matches!(read, Err(Error::NoAuth { .. })), "{read:?}");
        let node = format!("{forbidden}/mine/a/b");
        assert_eq!(client.create().creating_parents_if_needed().for_path(&node).await.unwrap(), node);
        let looked = client.check_exists().creating_parents_if_needed().for_path(&format!("{forbidden}/mine/c/d")).await;
        assert_eq!(looked.unwrap(), None);
        client.create_containers(&format!("{forbidden}/mine")).await.unwrap();
        let refused = client.create().creating_parents_if_needed().for_path(&format!("{forbidden}/other/a")).await;
        assert!(matches!(refused, Err(Error::NoAuth { .. })), "{refused:?}");
    }

    async fn a_schema_guards_the_list_too(env) {
        let open = |_: &str, _: &[u8], acl: &[Acl]| !acl.iter().any(|entry| entry.scheme == "world");
        let folder = env.path("guarded");
        let schema = Schema::for_path(&folder).unwrap().validator(open);
        let options = builder(env.address()).schema_set(SchemaSet::new([schema], OtherPaths::Refused));
        let client = connected(options).await;
        for refused in [
            client.get_acl().for_path("/other").await.map(drop),
            client.set_acl().for_path("/other").await.map(drop),
            client.set_acl().with_acl(Acl::open_unsafe()).for_path(&folder).await.map(drop),
        ] {
            assert!(matches!(refused, Err(Error::SchemaViolation { .. })), "{refused:?}");
        }
        let missing = client.get_acl().for_path(&folder).await;
        assert!(matches!(missing, Err(Error::NoNode { .. })), "{missing:?}");
    }

    /// Curator's `TestFrameworkEdges.testGetAclNoStat`.
    async fn a_list_can_be_read_without_a_look_at_its_stat(env) {
        let client = env.client().await;
        assert_eq!(acl_of(&client, "/").await, Acl::open_unsafe());
        let missing = client.get_acl().for_path(&env.path("none")).await;
        assert!(matches!(missing, Err(Error::NoNode { .. })), "{missing:?}");
    }
}

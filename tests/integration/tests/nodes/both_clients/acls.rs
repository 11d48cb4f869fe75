//! Nodes that the server refuses: Curator's `testNoCreatePermission` and `testNoWritePermission`, and other refusals.

use curator_framework::{Acl, CreateMode, Error, Permission};
use curator_integration::env::{builder, connected, in_time};
use curator_integration::on_every_server;
use curator_recipes::{GroupMember, GroupMemberOptions, NodeError, NodeState, Partition, PersistentNodeOptions};

use crate::partition_stage::soon;
use crate::stage::{MODES, ephemeral, fails, reaches, stands, stands_again, started, started_with, stat_of, text_of};

fn is_refused<T: std::fmt::Debug>(outcome: Result<T, NodeError>) {
    assert!(matches!(outcome, Err(NodeError::Framework(Error::NoAuth { .. }))), "{outcome:?}");
}

/// Returns a list that differs from the default, and permits everything to the tests.
fn local() -> Vec<Acl> {
    vec![Acl::new(Permission::ALL, "ip", "127.0.0.1")]
}

on_every_server! {
    /// Curator's `TestPersistentEphemeralNode.testNoCreatePermission`.
    async fn refused_create_is_told_and_mended_with_the_list(env) {
        let (client, folder) = (env.client().await, env.path("test"));
        let admin = connected(builder(env.address()).authorization("digest", "me1:pass1")).await;
        let closed = Acl::creator_all();
        admin.create().creating_parents_if_needed().with_acl(closed).for_path(&folder).await.unwrap();
        for mode in MODES {
            let node = started(&client, mode, &format!("{folder}/foo"), "mine");
            is_refused(in_time(node.created()).await);
            is_refused(in_time(node.created_timeout(std::time::Duration::from_secs(20))).await);
            is_refused::<()>(Err(fails(&node).await));
            assert_eq!(node.owner(), None);
            assert!(admin.get_children().for_path(&folder).await.unwrap().is_empty());
            admin.set_acl().with_acl(Acl::open_unsafe()).for_path(&folder).await.unwrap();
            reaches(&node, |state| matches!(state, NodeState::Standing(_))).await;
            stands(&node).await;
            in_time(node.close()).await;
            admin.set_acl().with_acl(Acl::creator_all()).for_path(&folder).await.unwrap();
        }
    }

    /// Curator's `TestPersistentEphemeralNode.testNoWritePermission`.
    async fn refused_change_is_told_to_its_caller(env) {
        let path = env.path("test/foo");
        let read_only = vec![Acl::new(Permission::READ | Permission::CREATE | Permission::DELETE, "world", "anyone")];
        let client = connected(builder(env.address()).acl_provider(read_only)).await;
        let node = ephemeral(&client, &path, "old");
        stands(&node).await;
        is_refused(in_time(node.set_data("NEW_DATA")).await);
        assert_eq!(text_of(&client, &path).await.unwrap(), "old");
        in_time(node.close()).await;
        assert!(stat_of(&client, &path).await.is_none());
    }

    async fn node_that_its_client_may_not_read_is_failed_where_exists_needs_read(env) {
        let (client, path) = (env.client().await, env.path("test/foo"));
        let options = PersistentNodeOptions::new().acl([Acl::new(Permission::WRITE, "world", "anyone")]);
        let node = started_with(&client, CreateMode::Ephemeral, &path, "", options);
        match env.exists_needs_read() {
            true => is_refused::<()>(Err(fails(&node).await)),
            false => drop(stands(&node).await),
        }
        in_time(node.close()).await;
        assert!(stat_of(&client, &path).await.is_none());
    }

    async fn node_gets_the_list_of_its_options(env) {
        let (client, other) = (env.client().await, env.client().await);
        for mode in MODES {
            let options = PersistentNodeOptions::new().acl(local());
            let node = started_with(&client, mode, &env.path("test/foo"), "", options);
            let standing = stands(&node).await;
            assert_eq!(client.get_acl().for_path(&standing.path).await.unwrap().0, local(), "{mode:?}");
            // Each node that is created again has it too.
            other.delete().for_path(&standing.path).await.unwrap();
            let again = stands_again(&node, &standing).await;
            assert_eq!(client.get_acl().for_path(&again.path).await.unwrap().0, local(), "{mode:?}");
            in_time(node.close()).await;
        }
    }

    async fn member_gets_the_list_of_its_options(env) {
        let (client, path) = (env.client().await, env.path("group"));
        let list = local();
        let options = GroupMemberOptions::new().acl(list.clone());
        for (id, options) in [("ann", options.clone()), ("bob", options.data("of bob"))] {
            let member = GroupMember::with_options(client.clone(), &path, id, options).unwrap();
            member.start().unwrap();
            let data = in_time(member.join()).await.unwrap().data;
            assert_eq!(data == b"of bob", id == "bob", "{data:?}");
            assert_eq!(client.get_acl().for_path(member.node().path()).await.unwrap().0, list, "{id}");
            in_time(member.close()).await;
        }
    }

    async fn nodes_of_a_partition_get_the_list_of_its_options(env) {
        let (client, path) = (env.client().await, env.path("work"));
        let partition = Partition::with_options(client.clone(), &path, "ann", ["a"], soon().acl(local())).unwrap();
        let check = async {
            in_time(partition.watch().wait_for(|share| share.owned == ["a"])).await.unwrap();
            let item = format!("{path}/items/a");
            let lock = client.get_children().for_path(&item).await.unwrap().pop().unwrap();
            for node in [format!("{path}/members/ann"), format!("{item}/{lock}")] {
                assert_eq!(client.get_acl().for_path(&node).await.unwrap().0, local(), "{node}");
            }
            // The parents have the list of the client.
            assert_eq!(client.get_acl().for_path(&item).await.unwrap().0, Acl::open_unsafe());
            in_time(partition.close()).await;
        };
        let run = partition.run(async |item| item.revoked().await);
        futures_util::future::join(run, check).await.0.unwrap();
    }

    async fn list_that_the_server_does_not_know_is_told(env) {
        let (client, path) = (env.client().await, env.path("test/foo"));
        let unknown = vec![Acl::new(Permission::ALL, "no-such-scheme", "me")];
        let options = PersistentNodeOptions::new().acl(unknown);
        let node = started_with(&client, CreateMode::Ephemeral, &path, "", options);
        let failed = in_time(node.created()).await;
        assert!(matches!(failed, Err(NodeError::Framework(Error::InvalidAcl { .. }))), "{failed:?}");
        assert!(matches!(node.state(), NodeState::Failed(_)), "{:?}", node.state());
        in_time(node.close()).await;
        assert!(matches!(node.state(), NodeState::Closed), "{:?}", node.state());
    }

    /// The parent is an ephemeral node, which has no children.
    async fn ephemeral_parent_is_told(env) {
        let (client, parent) = (env.client().await, env.path("parent"));
        let create = client.create().creating_parents_if_needed().with_mode(CreateMode::Ephemeral);
        create.for_path(&parent).await.unwrap();
        let node = ephemeral(&client, &format!("{parent}/node"), "");
        let failed = in_time(node.created()).await;
        assert!(matches!(failed, Err(NodeError::Framework(Error::NoChildrenForEphemerals { .. }))), "{failed:?}");
        client.delete().for_path(&parent).await.unwrap();
        reaches(&node, |state| matches!(state, NodeState::Standing(_))).await;
    }
}

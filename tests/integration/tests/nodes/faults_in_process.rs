//! Attacks on nodes and groups on an in-process server.

use std::task::Poll;
use std::time::Duration;

use curator_framework::{Acl, CreateMode, Error, FixedEnsembleProvider, Permission, SessionId, ZooKeeperAsyncFactory};
use curator_integration::env::{connected, eventually, in_time};
use curator_integration::in_process::{client, options, server};
use curator_recipes::{
    ForeignData, GroupState, NodeError, NodeState, PersistentNode, PersistentNodeOptions, PersistentTtlNode,
    PersistentTtlNodeOptions,
};
use curator_test::wire::OpCode;
use curator_test::{FaultProxy, TestingServer};

use crate::stage::{LONG, ephemeral, fails, is_taken, reaches, stands, started, stat_of, text_of, through};

/// The runtime ends before it has polled the task.
#[test]
fn node_and_group_end_with_a_runtime_that_never_ran_their_tasks() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (of_client, of_node) = (runtime(), runtime());
    let server = server();
    let one = of_client.block_on(client(&server));
    let node = PersistentNode::new(one.clone(), "/test/foo", "").unwrap();
    let group = {
        let _entered = of_node.enter();
        node.start().unwrap();
        curator_integration::following::group(one, "/test")
    };
    drop(of_node);
    assert!(matches!(node.state(), NodeState::Closed), "{:?}", node.state());
    assert!(matches!(&*group.watch().borrow(), GroupState::Closed), "{group:?}");
}

/// A client learns its session's id with its first ephemeral node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_of_an_earlier_session_does_not_stand_over_zookeeper_async() {
    let server = server();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let options = options(&server).session_timeout(Duration::from_secs(12)).zookeeper_factory(ZooKeeperAsyncFactory);
    let options = options.ensemble_provider(FixedEnsembleProvider::new(proxy.connect_string()));
    let one = connected(options).await;
    let node = PersistentNode::new(one, "/test/foo", "").unwrap();
    node.start().unwrap();
    let before = in_time(node.created()).await.unwrap();
    proxy.partition();
    in_time(node.watch().wait_for(|state| !matches!(state, NodeState::Standing(_)))).await.unwrap();
    proxy.reset();
    proxy.repair();
    let again = in_time(node.created()).await.unwrap();
    assert_ne!(again, before);
}

/// The parent was created again: its child must be, too.
#[tokio::test]
async fn child_is_written_before_a_node_stands_again() {
    let server = TestingServer::builder().extended_types(true).start().unwrap();
    let (one, two) = (client(&server).await, client(&server).await);
    let node = PersistentTtlNode::new(one, "/test/foo", Duration::from_secs(600), "").unwrap();
    node.start().unwrap();
    let before = in_time(node.created()).await.unwrap();
    let mut states = node.watch();
    two.delete().deleting_children_if_needed().for_path("/test/foo").await.unwrap();
    let again = |state: &NodeState| matches!(state, NodeState::Standing(now) if now.czxid != before.czxid);
    in_time(states.wait_for(again)).await.unwrap();
    assert!(server.exists("/test/foo/touch"));
}

#[tokio::test]
async fn factor_that_leaves_no_time_between_writes_is_refused() {
    let server = TestingServer::builder().extended_types(true).start().unwrap();
    let one = client(&server).await;
    let options = PersistentTtlNodeOptions::new().touch_factor(u32::MAX);
    let node = PersistentTtlNode::with_options(one, "/test/foo", Duration::from_secs(1), "", options);
    assert!(matches!(node, Err(NodeError::InvalidArgument { .. })), "{node:?}");
}

#[tokio::test]
async fn times_to_live_end_at_the_longest_one() {
    let server = TestingServer::builder().extended_types(true).start().unwrap();
    let one = client(&server).await;
    one.create().creating_parents_if_needed().for_path("/test/foo/touch").await.unwrap();
    let node = |ttl| {
        let options = PersistentTtlNodeOptions::new().touch_factor(1);
        PersistentTtlNode::with_options(one.clone(), "/test/foo", ttl, "", options)
    };
    for ttl in [Duration::MAX, Duration::from_millis(u64::MAX), Duration::from_millis(1 << 40)] {
        let refused = node(ttl).unwrap_err().to_string();
        assert!(refused.contains("time to live"), "{refused}");
    }
    let longest = node(CreateMode::LONGEST_TTL).unwrap();
    longest.start().unwrap();
    in_time(longest.created()).await.unwrap();
}

/// A persistent node outlives the session.
#[tokio::test]
async fn listener_is_not_called_for_a_node_that_stood_on() {
    let server = server();
    let one = client(&server).await;
    let node = PersistentNode::with_options(
        one.clone(),
        "/test/foo",
        "",
        PersistentNodeOptions::new().mode(CreateMode::Persistent),
    )
    .unwrap();
    let calls = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&calls);
    node.add_listener(move |_| _ = counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst));
    node.start().unwrap();
    let before = in_time(node.created()).await.unwrap();
    let session = one.session().await.unwrap();
    assert!(server.kill_session(session.id().unwrap().get()));
    in_time(session.ended()).await;
    in_time(node.set_data("new")).await.unwrap();
    assert_eq!(in_time(node.created()).await.unwrap().czxid, before.czxid);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(calls.load(std::sync::atomic::Ordering::SeqCst), 1);
}

/// One member lets other clients not read its node.
#[tokio::test]
async fn member_that_cannot_be_read_does_not_hide_the_others() {
    let server = server();
    let (one, two) = (client(&server).await, client(&server).await);
    two.create().creating_parents_if_needed().for_path("/test/readable").await.unwrap();
    let list = vec![Acl::new(Permission::WRITE, "world", "anyone")];
    two.create().with_acl(list).for_path("/test/secret").await.unwrap();
    let group = curator_integration::following::group(one, "/test");
    eventually("the group is known", async || group.members().is_some_and(|members| members.len() == 2)).await;
}

/// Another client may write what this one may not.
#[tokio::test]
async fn refusal_reaches_a_caller_that_looks_late() {
    let server = server();
    let one = client(&server).await;
    let two = connected(options(&server).authorization("digest", "admin:secret")).await;
    let list = vec![Acl::new(Permission::READ, "world", "anyone"), Acl::digest("admin", "secret")];
    let options = PersistentNodeOptions::new().acl(list);
    let node = PersistentNode::with_options(one, "/test/foo", "old", options).unwrap();
    node.start().unwrap();
    in_time(node.created()).await.unwrap();
    let mut setting = Box::pin(node.set_data("new"));
    assert!(std::future::poll_fn(|cx| Poll::Ready(setting.as_mut().poll(cx).is_pending())).await);
    eventually("the write is refused", async || server.requests().iter().any(|one| one.op == OpCode::SetData)).await;
    two.set_data().for_path("/test/foo", "foreign").await.unwrap();
    let is_foreign = |state: &NodeState| matches!(state, NodeState::Standing(node) if node.foreign_data.is_some());
    in_time(node.watch().wait_for(is_foreign)).await.unwrap();
    let set = in_time(setting).await;
    assert!(matches!(set, Err(NodeError::Framework(Error::NoAuth { .. }))), "{set:?}");
}

/// The node existed before, so the server had older data of this object.
#[tokio::test]
async fn refusal_of_a_node_that_stood_reaches_its_caller() {
    let server = server();
    let one = client(&server).await;
    let two = connected(options(&server).authorization("digest", "admin:secret")).await;
    two.create().for_path("/test").await.unwrap();
    let node = ephemeral(&one, "/test/foo", "old");
    stands(&node).await;
    let list = vec![Acl::new(Permission::READ, "world", "anyone"), Acl::digest("admin", "secret")];
    two.set_acl().with_acl(list).for_path("/test").await.unwrap();
    two.delete().for_path("/test/foo").await.unwrap();
    fails(&node).await;
    let set = in_time(node.set_data("new")).await;
    assert!(matches!(set, Err(NodeError::Framework(Error::NoAuth { .. }))), "{set:?}");
    two.set_acl().with_acl(Acl::open_unsafe()).for_path("/test").await.unwrap();
    reaches(&node, |state| matches!(state, NodeState::Standing(_))).await;
    assert_eq!(text_of(&two, "/test/foo").await.as_deref(), Some("new"));
}

/// The list allows the create and no change.
#[tokio::test]
async fn node_that_may_not_be_changed_stands_behind_a_lost_reply() {
    let server = server();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let options = options(&server).ensemble_provider(FixedEnsembleProvider::new(proxy.connect_string()));
    let one = connected(options).await;
    one.create().for_path("/test").await.unwrap();
    for mode in [CreateMode::Ephemeral, CreateMode::Persistent] {
        proxy.drop_reply(OpCode::Create2, 1);
        let list = vec![Acl::new(Permission::READ, "world", "anyone")];
        let options = PersistentNodeOptions::new().acl(list);
        let node = PersistentNode::with_options(one.clone(), "/test/foo", "mine", options.mode(mode)).unwrap();
        node.start().unwrap();
        in_time(node.created()).await.unwrap();
        in_time(node.close()).await;
        assert!(!server.exists("/test/foo"));
    }
    assert_eq!(proxy.faults_done(), 2);
}

/// The reply to the create was lost with its session. Then the node was deleted, and another client has made its own.
#[tokio::test]
async fn close_behind_a_lost_session_leaves_the_node_of_another_client() {
    let server = server();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let one = connected(through(&proxy, LONG)).await;
    let two = client(&server).await;
    two.create().for_path("/test").await.unwrap();
    let session = one.session().await.unwrap().id().unwrap();
    proxy.refuse();
    proxy.drop_reply(OpCode::Create2, 1);
    let node = started(&one, CreateMode::Persistent, "/test/foo", "");
    eventually("the node is made", async || server.exists("/test/foo")).await;
    assert!(server.kill_session(session.get()));
    two.delete().for_path("/test/foo").await.unwrap();
    let other = two.create().with_mode(CreateMode::Ephemeral).for_path_with_stat("/test/foo").await.unwrap().1;
    proxy.accept();
    assert_eq!(is_taken(&node).await.map(SessionId::get), Some(other.ephemeral_owner));
    in_time(node.close()).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(stat_of(&two, "/test/foo").await.map(|stat| stat.czxid), Some(other.czxid));
}

/// The reply to the create was lost. Then the node was deleted, and another client has made its own.
#[tokio::test]
async fn close_behind_a_lost_reply_leaves_the_ephemeral_node_of_another_client() {
    let server = server();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let one = connected(through(&proxy, LONG)).await;
    let two = client(&server).await;
    two.create().for_path("/test").await.unwrap();
    proxy.refuse();
    proxy.drop_reply(OpCode::Create2, 1);
    let node = started(&one, CreateMode::Persistent, "/test/foo", "");
    eventually("the node is made", async || server.exists("/test/foo")).await;
    two.delete().for_path("/test/foo").await.unwrap();
    let other = two.create().with_mode(CreateMode::Ephemeral).for_path_with_stat("/test/foo").await.unwrap().1;
    let reconnect = async {
        eventually("its task has ended", async || matches!(node.state(), NodeState::Closed)).await;
        proxy.accept();
    };
    in_time(futures_util::future::join(node.close(), reconnect)).await;
    // It waits for the deletes in the background.
    in_time(one.close()).await;
    assert_eq!(stat_of(&two, "/test/foo").await.map(|stat| stat.czxid), Some(other.czxid));
}

/// The client has a runtime of its own.
#[test]
fn node_of_a_runtime_that_has_ended_is_deleted() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let of_client = runtime();
    let server = server();
    let one = of_client.block_on(client(&server));
    for mode in [CreateMode::Ephemeral, CreateMode::Persistent] {
        let node = PersistentNode::with_options(one.clone(), "/test/foo", "", PersistentNodeOptions::new().mode(mode))
            .unwrap();
        let of_node = runtime();
        of_node.block_on(async {
            node.start().unwrap();
            in_time(node.created()).await.unwrap();
        });
        drop(of_node);
        assert!(matches!(node.state(), NodeState::Closed));
        of_client.block_on(eventually("it is deleted", async || !server.exists("/test/foo")));
    }
}

/// The write that is to repair it is refused.
#[tokio::test]
async fn foreign_data_that_cannot_be_mended_is_reported() {
    let server = server();
    let one = client(&server).await;
    let two = connected(options(&server).authorization("digest", "admin:secret")).await;
    let list = vec![Acl::new(Permission::READ, "world", "anyone"), Acl::digest("admin", "secret")];
    let options = PersistentNodeOptions::new().acl(list).foreign_data(ForeignData::Mend);
    let node = PersistentNode::with_options(one, "/test/foo", "mine", options).unwrap();
    node.start().unwrap();
    in_time(node.created()).await.unwrap();
    two.set_data().for_path("/test/foo", "foreign").await.unwrap();
    let is_foreign = |state: &NodeState| matches!(state, NodeState::Standing(node) if node.foreign_data.is_some());
    in_time(node.watch().wait_for(is_foreign)).await.unwrap();
}

//! Attacks on nodes and groups on an in-process server.

use std::task::Poll;
use std::time::Duration;

use curator_framework::{Acl, CreateMode, Error, Permission, ZooKeeperAsyncFactory};
use curator_integration::env::{connected, eventually, in_time};
use curator_integration::in_process::{client, options, server};
use curator_recipes::{
    Group, GroupState, NodeError, NodeState, PersistentNode, PersistentNodeListener, PersistentNodeOptions,
    PersistentTtlNode, PersistentTtlNodeOptions,
};
use curator_test::wire::OpCode;
use curator_test::{FaultProxy, TestingServer};

/// The runtime ends before it has polled the task.
#[test]
fn node_and_group_end_with_a_runtime_that_never_ran_their_tasks() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (of_client, of_node) = (runtime(), runtime());
    let server = server();
    let one = of_client.block_on(client(&server));
    let node = PersistentNode::new(one.clone(), CreateMode::Ephemeral, "/test/foo", "").unwrap();
    let group = {
        let _entered = of_node.enter();
        node.start().unwrap();
        Group::observe(one, "/test").unwrap()
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
    let options = options.ensemble_provider(curator_framework::FixedEnsembleProvider::new(proxy.connect_string()));
    let one = connected(options).await;
    let node = PersistentNode::new(one, CreateMode::Ephemeral, "/test/foo", "").unwrap();
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
    let options = || PersistentTtlNodeOptions::new().touch_factor(u32::MAX);
    let node = PersistentTtlNode::with_options(one.clone(), "/test/foo", Duration::from_secs(1), "", options());
    let Ok(node) = node else { return };
    node.start().unwrap();
    in_time(node.created()).await.unwrap();
    server.clear_requests();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(server.requests().len() < 1100, "{} requests in 1 s", server.requests().len());
}

#[tokio::test]
async fn time_to_live_without_an_end_does_not_panic() {
    let server = TestingServer::builder().extended_types(true).start().unwrap();
    let one = client(&server).await;
    one.create().creating_parents_if_needed().for_path("/test/foo/touch").await.unwrap();
    for ttl in [Duration::MAX, Duration::from_millis(u64::MAX), Duration::from_millis(1 << 40)] {
        let options = PersistentTtlNodeOptions::new().touch_factor(1);
        let node = PersistentTtlNode::with_options(one.clone(), "/test/foo", ttl, "", options).unwrap();
        node.start().unwrap();
        let created = in_time(node.created()).await;
        println!("{created:?}");
        assert!(!matches!(node.state(), NodeState::Closed), "{:?}", node.state());
    }
}

struct Counter(std::sync::Arc<std::sync::atomic::AtomicUsize>);

impl PersistentNodeListener for Counter {
    fn node_created(&self, _: &str) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }
}

/// A persistent node outlives the session.
#[tokio::test]
async fn listener_is_not_called_for_a_node_that_stood_on() {
    let server = server();
    let one = client(&server).await;
    let node = PersistentNode::new(one.clone(), CreateMode::Persistent, "/test/foo", "").unwrap();
    let calls = std::sync::Arc::default();
    node.add_listener(Counter(std::sync::Arc::clone(&calls)));
    node.start().unwrap();
    let before = in_time(node.created()).await.unwrap();
    let session = one.session().await.unwrap();
    assert!(server.kill_session(session.id().unwrap()));
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
    let group = Group::observe(one, "/test").unwrap();
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
    let node = PersistentNode::with_options(one, CreateMode::Ephemeral, "/test/foo", "old", options).unwrap();
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

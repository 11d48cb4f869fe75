//! Nodes with a time to live: Curator's `TestPersistentTtlNode`. Only the default client creates them.

use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{
    Acl, AclProvider, AddWatchMode, CreateMode, CuratorFramework, CuratorOp, Error, EventType, Permission,
    PersistentEvent,
};
use curator_integration::env::{connected, eventually, in_time};
use curator_integration::in_process::{client, options};
use curator_recipes::{NodeError, NodeState, PersistentTtlNode, PersistentTtlNodeOptions};
use curator_test::TestingServer;
use curator_test::wire::OpCode;

const TTL: Duration = Duration::from_millis(600);

fn server() -> TestingServer {
    let sessions = (Duration::from_secs(2), Duration::from_secs(60));
    let server = TestingServer::builder().container_check_interval(Duration::from_millis(10)).extended_types(true);
    server.session_timeouts(sessions.0, sessions.1).start().unwrap()
}

fn started(client: &CuratorFramework, path: &str) -> PersistentTtlNode {
    started_with(client, path, PersistentTtlNodeOptions::new())
}

fn started_with(client: &CuratorFramework, path: &str, options: PersistentTtlNodeOptions) -> PersistentTtlNode {
    let node = PersistentTtlNode::with_options(client.clone(), path, TTL, "hey", options).unwrap();
    node.start().unwrap();
    node
}

/// The number of writes of the touch node.
fn touches(server: &TestingServer, path: &str) -> usize {
    server.requests().iter().filter(|request| request.path.as_deref() == Some(path) && request.error == 0).count()
}

/// No server accepts them.
#[tokio::test]
async fn impossible_times_to_live_are_refused_before_the_first_request() {
    let server = server();
    let client = client(&server).await;
    let above = CreateMode::LONGEST_TTL + Duration::from_millis(1);
    for ttl in [Duration::ZERO, Duration::from_micros(999), above, Duration::MAX] {
        let node = PersistentTtlNode::new(client.clone(), "/node", ttl, "hey");
        assert!(matches!(&node, Err(NodeError::InvalidArgument { argument: "time to live", .. })), "{node:?}");
        let created = client.create().with_ttl(ttl).for_path("/node").await;
        assert!(matches!(&created, Err(Error::InvalidConfig { option: "time to live", .. })), "{created:?}");
        let create = CuratorOp::create("/node").with_mode(CreateMode::PersistentWithTtl(ttl));
        let committed = client.transaction().operation(create).commit().await;
        assert!(matches!(&committed, Err(Error::InvalidConfig { option: "time to live", .. })), "{committed:?}");
    }
    client.create().with_ttl(CreateMode::LONGEST_TTL).for_path("/node").await.unwrap();
}

/// Curator's `TestPersistentTtlNode.testBasic`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_outlives_its_time_until_it_is_closed() {
    let server = server();
    let client = client(&server).await;
    let node = started(&client, "/test");
    let standing = in_time(node.created()).await.unwrap();
    assert_eq!((standing.path.as_str(), standing.session), ("/test", None));
    for _ in 0..5 {
        tokio::time::sleep(TTL * 3 / 2).await;
        assert!(server.exists("/test"));
    }
    in_time(node.close()).await;
    // The server deletes both nodes, when their time has ended.
    assert!(server.exists("/test") && server.exists("/test/touch"));
    eventually("their time is over", async || !server.exists("/test")).await;
}

/// Curator's `TestPersistentTtlNode.testForcedDeleteOfTouchNode`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn touch_node_that_is_deleted_is_created_again() {
    let server = server();
    let (client, other) = (client(&server).await, client(&server).await);
    let node = started(&client, "/test");
    in_time(node.created()).await.unwrap();
    for _ in 0..5 {
        eventually("it is touched", async || server.exists("/test/touch")).await;
        other.delete().for_path("/test/touch").await.unwrap();
    }
    // Without the child the server may have deleted the node in the meantime, which is repaired too.
    eventually("both stand", async || server.exists("/test/touch")).await;
    let standing = in_time(node.created()).await.unwrap();
    tokio::time::sleep(TTL * 3).await;
    let stat = other.check_exists().for_path("/test").await.unwrap().unwrap();
    assert_eq!(stat.czxid, standing.czxid.get());
    in_time(node.close()).await;
}

/// Curator's `TestPersistentTtlNode.testRecreationOfParentNodeWithParentCreationOff`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_whose_parents_are_deleted_fails_until_they_are_back() {
    let server = server();
    let (client, other) = (client(&server).await, client(&server).await);
    other.create().creating_parents_if_needed().for_path("/test/one").await.unwrap();
    let node = started_with(&client, "/test/one/two", PersistentTtlNodeOptions::new().without_parents());
    in_time(node.created()).await.unwrap();
    tokio::time::sleep(TTL * 3 / 2).await;
    assert!(server.exists("/test/one/two/touch"));
    eventually("the parent is deleted", async || {
        let deleted = other.delete().deleting_children_if_needed().quietly().for_path("/test/one").await;
        deleted.is_ok() && !server.exists("/test/one")
    })
    .await;
    let missing = |state: &NodeState| matches!(state, NodeState::Failed(NodeError::Framework(Error::NoNode { .. })));
    in_time(node.watch().wait_for(missing)).await.unwrap();
    tokio::time::sleep(TTL).await;
    assert!(!server.exists("/test/one"));
    assert_eq!(node.data(), b"hey");
    other.create().for_path("/test/one").await.unwrap();
    in_time(node.watch().wait_for(|state| matches!(state, NodeState::Standing(_)))).await.unwrap();
    eventually("it is touched", async || server.exists("/test/one/two/touch")).await;
    assert_eq!(server.data("/test/one/two").unwrap(), b"hey");
}

/// Curator's `TestPersistentTtlNode.testEventsOnParent`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn touches_are_not_changes_of_the_node() {
    let server = server();
    let (client, other) = (client(&server).await, client(&server).await);
    let node = started(&client, "/test");
    in_time(node.created()).await.unwrap();
    eventually("it is touched", async || server.exists("/test/touch")).await;
    let mut watcher = other.add_watch("/test", AddWatchMode::Persistent).await.unwrap();
    let before = touches(&server, "/test/touch");
    eventually("it is touched again and again", async || touches(&server, "/test/touch") > before + 3).await;
    assert_eq!(server.data("/test").unwrap(), b"hey");
    other.set_data().for_path("/test", "changed").await.unwrap();
    // Nothing else came before.
    let event = in_time(watcher.recv()).await.unwrap().unwrap();
    let changed = |event: &PersistentEvent| matches!(event, PersistentEvent::Changed(event) if event.event_type == EventType::NodeDataChanged);
    assert!(changed(&event), "{event:?}");
    in_time(node.close()).await;
    eventually("their time is over", async || !server.exists("/test")).await;
}

/// Refuses children to one path.
#[derive(Debug)]
struct NoChildren(&'static str);

impl AclProvider for NoChildren {
    fn default_acl(&self) -> Vec<Acl> {
        Acl::open_unsafe()
    }

    fn acl_for_path(&self, path: &str) -> Option<Vec<Acl>> {
        (path == self.0).then(|| vec![Acl::new(Permission::READ | Permission::WRITE, "world", "anyone")])
    }
}

/// Curator's `TestPersistentTtlNode.testTouchNodeNotCreated` (CURATOR-730). Curator's node swallows the error of a touch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_that_cannot_be_touched_fails_and_is_deleted_by_the_server() {
    let server = server();
    let refusing = connected(options(&server).acl_provider(NoChildren("/parent/main"))).await;
    let node = started(&refusing, "/parent/main");
    let refused = |state: &NodeState| matches!(state, NodeState::Failed(NodeError::Framework(Error::NoAuth { .. })));
    in_time(node.watch().wait_for(refused)).await.unwrap();
    in_time(node.close()).await;
    assert!(!server.exists("/parent/main/touch"));
    eventually("its time is over", async || !server.exists("/parent/main")).await;
}

/// Curator's `TestPersistentTtlNode.testInternalExecutorClose`.
#[tokio::test]
async fn closed_node_leaves_no_task_and_no_watch() {
    let server = server();
    let client = client(&server).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    for is_dropped in [false, true] {
        let node = started(&client, "/parent/main");
        eventually("it is touched", async || server.exists("/parent/main/touch")).await;
        assert!(tasks() > before);
        if is_dropped {
            drop(node);
        } else {
            in_time(node.close()).await;
            assert!(matches!(node.state(), NodeState::Closed), "{:?}", node.state());
        }
        eventually("no task is left", async || tasks() <= before).await;
        eventually("no watch is left", async || client.watchers() == 0).await;
        let count = touches(&server, "/parent/main/touch");
        tokio::time::sleep(TTL).await;
        assert_eq!(touches(&server, "/parent/main/touch"), count, "it is touched behind its end");
    }
}

/// The server deletes the node in an outage that is longer than its time, and the client creates it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_that_was_not_touched_in_an_outage_stands_again() {
    let server = server();
    let proxy = curator_test::FaultProxy::start(server.address()).unwrap();
    let client = connected(crate::stage::through(&proxy, Duration::from_secs(60))).await;
    let node = started(&client, "/test");
    let before = in_time(node.created()).await.unwrap();
    crate::stage::take_down(&proxy);
    eventually("its time is over", async || !server.exists("/test")).await;
    proxy.accept();
    let again = |state: &NodeState| matches!(state, NodeState::Standing(now) if now.czxid != before.czxid);
    in_time(node.watch().wait_for(again)).await.unwrap();
    eventually("it is touched", async || server.exists("/test/touch")).await;
    let stands = touches(&server, "/test/touch");
    eventually("it is touched again", async || touches(&server, "/test/touch") > stands + 1).await;
}

/// The names and the pace of the touches are options.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn touches_have_the_name_and_the_pace_of_the_options() {
    let server = server();
    let client = client(&server).await;
    let options = PersistentTtlNodeOptions::new().child("alive").touch_factor(6);
    let node = started_with(&client, "/test", options);
    in_time(node.created()).await.unwrap();
    eventually("it is touched", async || server.exists("/test/alive")).await;
    server.clear_requests();
    tokio::time::sleep(TTL * 2).await;
    let writes = touches(&server, "/test/alive");
    assert!((6..=14).contains(&writes), "{writes} touches in twice the time to live");
    let creates = server.requests().iter().filter(|request| request.op == OpCode::CreateTtl).count();
    assert_eq!(creates, 0);
    in_time(node.set_data("newer")).await.unwrap();
    assert_eq!(server.data("/test").unwrap(), b"newer");
}

#[tokio::test]
async fn arguments_that_cannot_work_are_refused() {
    let server = server();
    let client = client(&server).await;
    for (path, ttl) in [("relative", TTL), ("/a/", TTL), ("/", TTL), ("/a", Duration::ZERO)] {
        let refused = PersistentTtlNode::new(client.clone(), path, ttl, "");
        assert!(refused.is_err(), "{path} {ttl:?}: {refused:?}");
    }
    for options in [
        PersistentTtlNodeOptions::new().child(""),
        PersistentTtlNodeOptions::new().child("a/b"),
        PersistentTtlNodeOptions::new().touch_factor(0),
    ] {
        let refused = PersistentTtlNode::with_options(client.clone(), "/a", TTL, "", options);
        assert!(refused.is_err(), "{refused:?}");
    }
}

/// Apache's default: it knows no time to live.
#[tokio::test]
async fn server_without_times_to_live_is_told() {
    let server = curator_integration::in_process::server();
    let client = client(&server).await;
    let node = started(&client, "/test");
    let refused = in_time(node.created()).await;
    assert!(refused.is_err(), "{refused:?}");
    in_time(node.close()).await;
    assert!(!server.exists("/test"));
}

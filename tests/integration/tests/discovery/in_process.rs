//! Registrations and caches on the in-process server, which counts the requests.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use curator_discovery::{DiscoveryError, InstanceChange, ServiceDiscovery, ServiceProvider, ServiceType};
use curator_framework::{CuratorFramework, Error};
use curator_integration::env::{builder as client_builder, connected, eventually, in_time};
use curator_integration::in_process::{client, options, server};
use curator_recipes::NodeError;
use curator_test::wire::OpCode;
use curator_test::{FaultProxy, LoggedRequest, TestingServer};
use futures_util::future::join_all;
use futures_util::{FutureExt as _, StreamExt as _, poll};
use tower::discover::Change;

use crate::stage::{builder, discovery, followed, ids, instance, registered, registered_again};

const LONG: Duration = Duration::from_secs(60);
const KINDS: [ServiceType; 4] =
    [ServiceType::Dynamic, ServiceType::Static, ServiceType::Permanent, ServiceType::DynamicSequential];

fn requests(server: &TestingServer, ops: &[OpCode]) -> Vec<LoggedRequest> {
    server.requests().into_iter().filter(|request| ops.contains(&request.op)).collect()
}

/// A client through a proxy, with a session that outlives the test.
async fn through(proxy: &FaultProxy) -> CuratorFramework {
    connected(client_builder(proxy.address()).session_timeout(LONG)).await
}

/// CURATOR-320: each reset costs Curator two creates and a delete for each of 50 instances, and consumers lose them for
/// a moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resets_cost_fifty_instances_no_write_and_consumers_no_event() {
    const INSTANCES: usize = 50;
    let server = server();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let (announcer, consumer) = (through(&proxy).await, client(&server).await);
    let (mine, theirs) = (discovery(&announcer, "/base"), discovery(&consumer, "/base"));
    let mut registrations = Vec::new();
    for number in 0..INSTANCES {
        let instance = builder("web", &format!("i{number}")).service_type(KINDS[number % KINDS.len()]);
        registrations.push(registered(&mine, instance.build().unwrap()).await);
    }
    let (cache, mut changes) = followed(&theirs, INSTANCES).await;
    server.clear_requests();
    for _ in 0..3 {
        let connections = proxy.total_connections();
        proxy.reset();
        eventually("the client is back", async || proxy.total_connections() > connections).await;
        in_time(announcer.check_exists().for_path("/")).await.unwrap();
    }
    in_time(cache.synced()).await.unwrap();
    assert!(changes.try_recv().is_err());
    // A registration writes these updates after all that the resets have caused.
    let update = |registration| async move {
        let registration: &curator_discovery::Registration<String> = registration;
        registration.update(|instance| "q".clone_into(&mut instance.payload)).await.unwrap();
    };
    in_time(join_all(registrations.iter().map(update))).await;
    let others =
        [OpCode::Create, OpCode::Create2, OpCode::CreateContainer, OpCode::CreateTtl, OpCode::Delete, OpCode::Multi];
    assert_eq!(requests(&server, &others), []);
    assert_eq!(requests(&server, &[OpCode::SetData]).len(), INSTANCES);
    in_time(cache.synced()).await.unwrap();
    for _ in 0..INSTANCES {
        assert!(matches!(in_time(changes.recv()).await, Some(InstanceChange::Updated { .. })));
    }
    assert!(changes.try_recv().is_err());
}

/// The client gets a new session while its earlier one is alive on the server. One transaction replaces the node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_query_between_two_sessions_finds_the_instance() {
    let server = server();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let (announcer, consumer) = (through(&proxy).await, client(&server).await);
    let (mine, theirs) = (discovery(&announcer, "/base"), discovery(&consumer, "/base"));
    for kind in [ServiceType::Dynamic, ServiceType::DynamicSequential] {
        let registration = registered(&mine, builder("web", "i1").service_type(kind).build().unwrap()).await;
        for _ in 0..3 {
            let before = in_time(registration.registered()).await.unwrap();
            proxy.swap_session();
            proxy.reset();
            let mut again = pin!(registered_again(&registration, &before));
            let now = loop {
                match poll!(&mut again) {
                    Poll::Ready(now) => break now,
                    Poll::Pending => assert_eq!(ids(&theirs, "web").await, ["i1"]),
                }
            };
            assert_eq!((now.path == before.path, now.session != before.session), (true, true));
        }
        in_time(registration.unregister()).await.unwrap();
        assert!(ids(&theirs, "web").await.is_empty());
    }
}

/// Curator's `TestServiceCacheRace.testRaceOnInitialLoad`, for each moment of the load.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cache_that_is_loaded_during_updates_shows_the_newest() {
    let server = server();
    let (announcer, consumer) = (client(&server).await, client(&server).await);
    let registration = registered(&discovery(&announcer, "/base"), instance("web", "i1")).await;
    let theirs = discovery(&consumer, "/base");
    let updates = async {
        for number in 0..200 {
            registration.update(|instance| instance.payload = number.to_string()).await.unwrap();
        }
    };
    let loads = async {
        let mut all = Vec::new();
        for _ in 0..20 {
            all.push(followed(&theirs, 1).await);
        }
        all
    };
    let (all, ()) = in_time(async { tokio::join!(loads, updates) }).await;
    for (cache, mut changes) in all {
        in_time(cache.synced()).await.unwrap();
        assert_eq!(cache.instances()[0].payload, "199");
        let mut last = None;
        while let Ok(change) = changes.try_recv() {
            let InstanceChange::Updated { old, new, .. } = change else { panic!("{change:?}") };
            assert!(last.is_none_or(|last| last == old), "a change starts at the end of the one before it");
            last = Some(new);
        }
        assert!(last.is_none_or(|last| last.payload == "199"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn register_that_is_dropped_at_any_await_leaves_no_node() {
    let server = server();
    let client = client(&server).await;
    let mine = discovery(&client, "/base");
    for kind in [ServiceType::Dynamic, ServiceType::DynamicSequential] {
        let instance = || builder("web", "i1").service_type(kind).build().unwrap();
        for polls in 0..10 {
            {
                let mut registering = pin!(mine.register(instance()));
                for _ in 0..polls {
                    if poll!(&mut registering).is_ready() {
                        break;
                    }
                    tokio::task::yield_now().await;
                }
            }
            // The id is free at once.
            let again = registered(&mine, instance()).await;
            eventually("one node is left", async || ids(&mine, "web").await == ["i1"]).await;
            assert!(again.node_path().is_some_and(|path| path.starts_with("/base/web/i1")));
            in_time(again.unregister()).await.unwrap();
            assert!(ids(&mine, "web").await.is_empty(), "{kind:?}, {polls} polls");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instance_above_the_limit_of_the_server_is_refused_and_changes_nothing() {
    const TOO_LONG: usize = 2 << 20;
    let server = server();
    let client = client(&server).await;
    let mine = discovery(&client, "/base");
    let registration = registered(&mine, instance("web", "i1")).await;
    let (cache, mut changes) = followed(&mine, 1).await;
    let refused = in_time(registration.update(|instance| instance.payload = "x".repeat(TOO_LONG))).await;
    assert!(matches!(refused, Err(DiscoveryError::Node(NodeError::Framework(Error::RequestTooLarge { .. })))));
    assert_eq!(registration.instance().unwrap().payload, "p");
    let long = builder("web", "i2").payload("x".repeat(TOO_LONG)).build().unwrap();
    assert!(matches!(
        in_time(mine.register(long)).await,
        Err(DiscoveryError::Node(NodeError::Framework(Error::RequestTooLarge { .. })))
    ));
    in_time(cache.synced()).await.unwrap();
    assert!(changes.try_recv().is_err());
    // An empty payload, and one just below the limit.
    let second = registered(&mine, builder("web", "i2").payload(String::new()).build().unwrap()).await;
    in_time(second.update(|instance| instance.payload = "x".repeat(1_000_000))).await.unwrap();
    in_time(cache.synced()).await.unwrap();
    assert_eq!(cache.instance("i2").unwrap().unwrap().payload.len(), 1_000_000);
}

/// It ends its stream, and so does the drop of the cache. The drop of the stream changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_for_balancers_ends_with_its_cache() {
    let server = server();
    let client = client(&server).await;
    let mine = discovery(&client, "/base");
    let _one = registered(&mine, instance("web", "i1")).await;
    for closes in [true, false] {
        let (cache, _changes) = followed(&mine, 1).await;
        let discover = || cache.discover(|instance| instance.host_and_port(), |address| address);
        let mut first = discover();
        assert!(matches!(in_time(first.next()).await, Some(Ok(Change::Insert(node, _))) if *node == *"i1"));
        drop(first);
        let mut second = discover();
        let provider = ServiceProvider::new(cache.clone());
        let pick = provider.get().expect("an instance");
        match closes {
            true => in_time(cache.close()).await,
            // The pick keeps the cache.
            false => drop((cache, provider)),
        }
        assert!(matches!(in_time(second.next()).await, Some(Ok(Change::Insert(..)))));
        assert!(closes || second.next().now_or_never().is_none());
        pick.failed();
        assert_eq!(pick.node(), "i1");
        drop(pick);
        assert!(in_time(second.next()).await.is_none());
    }
}

/// Curator's `DiscoveryPathConstructorImplTest.testCanonicalDiscoveryPathConstructor`, without null.
#[tokio::test]
async fn base_path_is_checked() {
    let server = server();
    let client = options(&server).build().unwrap();
    for base in ["", "foo", "foo/bar", "/foo/", "/foo//bar", "/foo/../bar"] {
        let refused = ServiceDiscovery::<()>::new(client.clone(), base);
        assert!(matches!(refused, Err(DiscoveryError::Framework(Error::InvalidPath { .. }))), "{base:?}");
    }
    for base in ["/", "/foo", "/foo/bar"] {
        assert_eq!(ServiceDiscovery::<()>::new(client.clone(), base).unwrap().path(), base);
    }
}

//! Registrations and caches on the in-process server, which counts the requests.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use curator_discovery::{DiscoveryError, InstanceChange, ServiceDiscovery, ServiceType};
use curator_framework::{CuratorFramework, Error};
use curator_integration::env::{builder as client_builder, connected, eventually, in_time};
use curator_integration::in_process::{client, options, server};
use curator_test::wire::OpCode;
use curator_test::{FaultProxy, LoggedRequest, TestingServer};
use futures_util::future::join_all;
use futures_util::poll;

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

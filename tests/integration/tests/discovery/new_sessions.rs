//! Announcers with new sessions, and what their consumers see.

use std::collections::BTreeMap;
use std::time::Duration;

use curator_discovery::{InstanceChange, Registration, ServiceCache, ServiceType};
use curator_framework::{Changes, CuratorFramework};
use curator_integration::env::{builder as client_builder, connected, eventually, in_time};
use curator_integration::in_process::{client, server};
use curator_recipes::StandingNode;
use curator_test::wire::OpCode;
use curator_test::{FaultProxy, TestingServer};
use futures_util::future::join_all;

use crate::stage::{builder, discovery, followed, ids, instance, registered, registered_again};

const LONG: Duration = Duration::from_secs(60);

/// A process with some instances.
struct Announcer {
    proxy: FaultProxy,
    _client: CuratorFramework,
    registrations: Vec<(Registration<String>, StandingNode)>,
}

impl Announcer {
    async fn start(server: &TestingServer, number: usize, instances: usize) -> Self {
        let proxy = FaultProxy::start(server.address()).unwrap();
        let client = connected(client_builder(proxy.address()).session_timeout(LONG)).await;
        let mine = discovery(&client, "/base");
        let register = async |id: usize| {
            let kind = [ServiceType::Dynamic, ServiceType::DynamicSequential][id % 2];
            let instance = builder("web", &format!("{number}-{id}")).service_type(kind).build().unwrap();
            let registration = registered(&mine, instance).await;
            let standing = in_time(registration.registered()).await.unwrap();
            (registration, standing)
        };
        let registrations = join_all((0..instances).map(register)).await;
        Self { proxy, _client: client, registrations }
    }

    /// Waits until each instance has a node of another session.
    async fn is_registered_again(&mut self) {
        for (registration, before) in &mut self.registrations {
            let now = registered_again(registration, before).await;
            assert_eq!(now.path, before.path);
            *before = now;
        }
    }

    /// Gives the client another session while the servers have the earlier one.
    async fn gets_another_session(&mut self) {
        self.proxy.swap_session();
        self.proxy.reset();
        self.is_registered_again().await;
    }
}

fn none_left(changes: &mut Changes<InstanceChange<String>>) {
    let next = changes.try_recv();
    assert!(next.is_err(), "{next:?}");
}

/// One transaction replaces each node. The servers report a deletion and a creation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_session_of_an_announcer_is_not_a_change() {
    let server = server();
    let mut announcer = Announcer::start(&server, 1, 2).await;
    let consumer = client(&server).await;
    let (cache, mut changes) = followed(&discovery(&consumer, "/base"), 2).await;
    for _ in 0..3 {
        announcer.gets_another_session().await;
        in_time(cache.synced()).await.unwrap();
        none_left(&mut changes);
        assert_eq!(cache.instances().len(), 2);
    }
    // An update in an outage, which the next session writes.
    announcer.proxy.refuse();
    announcer.proxy.reset();
    {
        let registration = &announcer.registrations[0].0;
        let update = registration.update(|instance| "q".clone_into(&mut instance.payload));
        let mut update = std::pin::pin!(update);
        assert!(futures_util::poll!(&mut update).is_pending());
        announcer.proxy.swap_session();
        announcer.proxy.accept();
        in_time(update).await.unwrap();
    }
    announcer.is_registered_again().await;
    in_time(cache.synced()).await.unwrap();
    match in_time(changes.recv()).await {
        Some(InstanceChange::Updated { old, new, .. }) => assert_eq!([&*old.payload, &new.payload], ["p", "q"]),
        other => panic!("{other:?}"),
    }
    none_left(&mut changes);
}

/// Counts the changes of each node, and the instances that the changes replay to.
#[derive(Default)]
struct Replayed {
    changes: BTreeMap<String, Vec<char>>,
    present: usize,
    fewest: usize,
}

impl Replayed {
    fn take(&mut self, changes: &mut Changes<InstanceChange<String>>) {
        while let Ok(change) = changes.try_recv() {
            let (sign, node) = match change {
                InstanceChange::Added { node, .. } => ('+', node),
                InstanceChange::Removed { node, .. } => ('-', node),
                InstanceChange::Updated { node, .. } => ('~', node),
                other => panic!("{other:?}"),
            };
            self.present = if sign == '+' { self.present + 1 } else { self.present - usize::from(sign == '-') };
            self.fewest = self.fewest.min(self.present);
            self.changes.entry(node.to_string()).or_default().push(sign);
        }
    }
}

/// Each process loses its session in turn: first while the servers have the session, then by its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumer_of_a_fleet_never_shows_fewer_instances_than_exist() {
    let is_long = std::env::var("CURATOR_MODEL").is_ok_and(|bounds| bounds == "long");
    let (processes, instances) = if is_long { (20, 100) } else { (10, 20) };
    let (server, all) = (server(), processes * instances);
    let mut fleet = join_all((0..processes).map(|number| Announcer::start(&server, number, instances))).await;
    let consumer = client(&server).await;
    let (cache, mut changes) = followed(&discovery(&consumer, "/base"), all).await;
    for announcer in &mut fleet {
        announcer.gets_another_session().await;
        assert_eq!(cache.instances().len(), all);
    }
    in_time(cache.synced()).await.unwrap();
    none_left(&mut changes);
    let mut replayed = Replayed { present: all, fewest: all, ..Replayed::default() };
    for announcer in &mut fleet {
        let session = announcer.registrations[0].1.session.unwrap();
        assert!(server.kill_session(session.get()));
        announcer.is_registered_again().await;
        in_time(cache.synced()).await.unwrap();
        replayed.take(&mut changes);
        assert_eq!((cache.instances().len(), replayed.present), (all, all));
        assert!(replayed.fewest >= all - instances, "the other processes have lost nothing: {}", replayed.fewest);
        for (node, signs) in std::mem::take(&mut replayed.changes) {
            assert_eq!(signs, ['-', '+'], "{node}");
        }
        replayed.fewest = all;
    }
}

/// Waits until the client has lost a connection.
async fn is_cut(proxy: &FaultProxy, connections: usize) {
    eventually("the connection is lost", async || proxy.total_connections() > connections).await;
}

/// The number of the node is in the reply alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_reply_to_the_first_create_of_a_sequential_instance_leaves_one_node() {
    let server = server();
    let (announcer, consumer) = (Announcer::start(&server, 1, 0).await, client(&server).await);
    let (mine, theirs) = (discovery(&announcer._client, "/base"), discovery(&consumer, "/base"));
    // The service exists, so the next create has no parents to create.
    let _other = registered(&theirs, instance("web", "other")).await;
    let proxy = &announcer.proxy;
    let sequential = |id: &str| builder("web", id).service_type(ServiceType::DynamicSequential).build().unwrap();
    for (id, is_applied, has_new_session) in
        [("a", true, false), ("b", false, false), ("c", true, true), ("d", false, true)]
    {
        let connections = proxy.total_connections();
        if has_new_session {
            proxy.swap_session();
        }
        match is_applied {
            true => proxy.drop_reply(OpCode::Create2, 1),
            false => proxy.drop_request(OpCode::Create2, 1),
        }
        let registration = registered(&mine, sequential(id)).await;
        assert!(proxy.total_connections() > connections);
        let node = in_time(registration.registered()).await.unwrap();
        assert_eq!(ids(&theirs, "web").await, [id, "other"], "applied: {is_applied}, new session: {has_new_session}");
        assert_eq!(registration.node_path().as_ref(), Some(&node.path));
        in_time(registration.update(|instance| "q".clone_into(&mut instance.payload))).await.unwrap();
        in_time(registration.unregister()).await.unwrap();
        assert_eq!(ids(&theirs, "web").await, ["other"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sequential_instance_with_a_lost_reply_is_unregistered() {
    let server = server();
    let (announcer, consumer) = (Announcer::start(&server, 1, 0).await, client(&server).await);
    let (mine, theirs) = (discovery(&announcer._client, "/base"), discovery(&consumer, "/base"));
    let _other = registered(&theirs, instance("web", "other")).await;
    let proxy = &announcer.proxy;
    for ends in ["unregister", "drop"] {
        proxy.drop_reply(OpCode::Create2, 1);
        let connections = proxy.total_connections();
        let sequential = builder("web", ends).service_type(ServiceType::DynamicSequential).build().unwrap();
        let registration = in_time(mine.announce(sequential)).await.unwrap();
        eventually("the node exists", async || ids(&theirs, "web").await.len() == 2).await;
        proxy.refuse();
        proxy.reset();
        let unregister = async {
            match ends {
                "unregister" => registration.unregister().await.unwrap(),
                _ => drop(registration),
            }
        };
        let returns = async {
            is_cut(proxy, connections).await;
            proxy.accept();
        };
        in_time(async { tokio::join!(unregister, returns) }).await;
        eventually("the node is deleted", async || ids(&theirs, "web").await == ["other"]).await;
    }
}

/// A cache that is closed, dropped or slow in the middle of a replacement.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_reader_of_a_replaced_fleet_gets_no_removal() {
    let server = server();
    let mut announcer = Announcer::start(&server, 1, 50).await;
    let consumer = client(&server).await;
    let cache = ServiceCache::new(&discovery(&consumer, "/base"), "web").unwrap();
    cache.start().unwrap();
    in_time(cache.initialized()).await.unwrap();
    // It reads nothing before the third session.
    let mut slow = cache.changes();
    announcer.gets_another_session().await;
    announcer.gets_another_session().await;
    in_time(cache.synced()).await.unwrap();
    let mut replayed = Replayed::default();
    replayed.take(&mut slow);
    assert_eq!((replayed.present, replayed.changes.values().filter(|signs| **signs == ['+']).count()), (50, 50));
}

//! Registrations during outages, and what other clients do to their nodes.

use std::time::{Duration, Instant};

use curator_discovery::{Registration, ServiceDiscovery, ServiceType};
use curator_framework::CuratorFramework;
use curator_integration::env::{builder as client_builder, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::NodeState;
use futures_util::future::join_all;

use crate::stage::{builder, discovery, ids, instance, reaches, registered, registered_again, stat_of, text_of};

const LONG: Duration = Duration::from_secs(60);
const KINDS: [ServiceType; 4] =
    [ServiceType::Dynamic, ServiceType::Static, ServiceType::Permanent, ServiceType::DynamicSequential];

async fn count(discovery: &ServiceDiscovery<String>, name: &str) -> usize {
    ids(discovery, name).await.len()
}

/// Waits until the client has no connection.
async fn disconnected(client: &CuratorFramework) {
    let mut states = client.watch_connection_state();
    let is_down = states.wait_for(|state| state.is_some_and(|state| !state.is_connected()));
    in_time(is_down).await.unwrap();
}

on_every_server! {
    /// Curator's `TestServiceDiscovery.testCrashedServer` and `testCrashedServerMultiInstances`.
    async fn instances_are_registered_again_after_the_loss_of_the_session_and_the_server(env) {
        let env = env.alone();
        let (client, observer, base) = (env.client().await, env.client().await, env.path("base"));
        let discovery = discovery(&client, &base);
        let mut registrations = Vec::new();
        for id in ["a", "b"] {
            let registration = registered(&discovery, instance("web", id)).await;
            let before = in_time(registration.registered()).await.unwrap();
            registrations.push((registration, before));
        }
        env.kill_owner_of(&observer, &registrations[0].1.path).await;
        env.restart().await;
        for (registration, before) in &registrations {
            registered_again(registration, before).await;
        }
        assert_eq!(ids(&discovery, "web").await, ["a", "b"]);
    }

    /// Curator's `TestServiceDiscovery.testUnregisterService`, at several moments between two sessions (CURATOR-164).
    async fn unregistered_instance_is_not_registered_again(env) {
        let (client, observer, base) = (env.client().await, env.client().await, env.path("base"));
        let discovery = discovery(&client, &base);
        let (last, mut all) = (registered(&discovery, instance("last", "i1")).await, Vec::new());
        for number in 0..40 {
            let kind = [ServiceType::Dynamic, ServiceType::DynamicSequential][number % 2];
            let instance = builder("web", &format!("i{number}")).service_type(kind).build().unwrap();
            all.push(registered(&discovery, instance).await);
        }
        let before = in_time(last.registered()).await.unwrap();
        env.kill_owner_of(&observer, &before.path).await;
        let unregister = async |(number, registration): (usize, Registration<String>)| {
            match number % 4 {
                0 => {}
                // It may exist in the next session already.
                1 => {
                    let stood = |state: &NodeState| state.standing().is_some_and(|node| node.session == before.session);
                    drop(reaches(&registration, |state| !stood(state)).await);
                }
                _ => drop(registered_again(&last, &before).await),
            }
            for _ in 0..number {
                tokio::task::yield_now().await;
            }
            in_time(registration.unregister()).await.unwrap();
            assert!(matches!(registration.state(), NodeState::Closed));
        };
        join_all(all.into_iter().enumerate().map(unregister)).await;
        eventually("each node is deleted", async || count(&discovery, "web").await == 0).await;
        in_time(last.unregister()).await.unwrap();
        assert_eq!(count(&discovery, "web").await, 0);
    }

    /// CURATOR-617: in Curator an unregistration that fails has no effect, and neither has the second one.
    async fn instance_that_is_unregistered_in_an_outage_is_deleted_later(env) {
        let (observer, base, proxy) = (env.client().await, env.path("base"), env.proxy());
        let builder_of_client = client_builder(proxy.address()).session_timeout(LONG);
        let client = connected(builder_of_client.max_close_wait(Duration::from_millis(200))).await;
        let (through_proxy, theirs) = (discovery(&client, &base), discovery(&observer, &base));
        let mut all = Vec::new();
        for kind in KINDS {
            let instance = builder("web", kind.as_str()).service_type(kind).build().unwrap();
            all.push(registered(&through_proxy, instance).await);
        }
        proxy.refuse();
        proxy.reset();
        disconnected(&client).await;
        for registration in &all {
            in_time(registration.unregister()).await.unwrap();
            in_time(registration.unregister()).await.unwrap();
            assert!(matches!(registration.state(), NodeState::Closed));
        }
        assert_eq!(count(&theirs, "web").await, KINDS.len());
        proxy.accept();
        eventually("each node is deleted", async || count(&theirs, "web").await == 0).await;
    }

    /// Curator restores the first data of an id that was registered twice.
    async fn each_session_has_the_newest_data(env) {
        let (client, observer, base) = (env.client().await, env.client().await, env.path("base"));
        let discovery = discovery(&client, &base);
        let first = registered(&discovery, instance("web", "i1")).await;
        in_time(first.unregister()).await.unwrap();
        let second = registered(&discovery, builder("web", "i1").payload("second".to_owned()).build().unwrap()).await;
        for payload in ["second", "third"] {
            in_time(second.update(|instance| payload.clone_into(&mut instance.payload))).await.unwrap();
            let before = in_time(second.registered()).await.unwrap();
            env.kill_owner_of(&observer, &before.path).await;
            registered_again(&second, &before).await;
            let found = in_time(discovery.instances("web")).await.unwrap().found;
            assert_eq!(found.iter().map(|instance| instance.payload.as_str()).collect::<Vec<_>>(), [payload]);
        }
    }

    /// The id of a process that has died: Curator deletes the node, whichever process it belongs to.
    async fn instance_follows_the_node_of_a_dead_process(env) {
        let (client, observer, base, proxy) = (env.client().await, env.client().await, env.path("base"), env.proxy());
        let dying = connected(client_builder(proxy.address()).session_timeout(LONG)).await;
        let theirs = registered(&discovery(&dying, &base), instance("web", "i1")).await;
        let before = in_time(theirs.registered()).await.unwrap();
        proxy.refuse();
        proxy.reset();
        let next = builder("web", "i1").payload("next".to_owned()).build().unwrap();
        let next = in_time(discovery(&client, &base).announce(next)).await.unwrap();
        reaches(&next, |state| matches!(state, NodeState::TakenBy { .. })).await;
        assert_eq!(stat_of(&observer, &before.path).await.unwrap().czxid, before.czxid.get());
        env.kill_owner_of(&observer, &before.path).await;
        let standing = in_time(next.registered()).await.unwrap();
        assert!(text_of(&observer, &standing.path).await.contains("next"));
        // The process was not dead. Its node is lost, and it leaves the new one alone.
        proxy.accept();
        reaches(&theirs, |state| matches!(state, NodeState::TakenBy { .. })).await;
        in_time(theirs.unregister()).await.unwrap();
        assert_eq!(stat_of(&observer, &standing.path).await.unwrap().czxid, standing.czxid.get());
    }

    /// Curator's `TestWatchedInstances.testWatchedInstances`. There the data is the instance from then on. Here it
    /// stays up to the next update or session.
    async fn data_of_another_client_is_reported_and_kept(env) {
        let (observer, base, proxy) = (env.client().await, env.path("base"), env.proxy());
        let client = connected(client_builder(proxy.address()).session_timeout(LONG)).await;
        let (mine, theirs) = (discovery(&client, &base), discovery(&observer, &base));
        let registration = registered(&mine, instance("web", "i1")).await;
        let node = registration.node_path().unwrap();
        let different = text_of(&observer, &node).await.replace("\"p\"", "\"different\"");
        observer.set_data().for_path(&node, different.clone()).await.unwrap();
        let is_reported = |state: &NodeState| {
            let standing = state.standing();
            standing.and_then(|node| node.foreign_data.as_deref()) == Some(different.as_bytes())
        };
        reaches(&registration, is_reported).await;
        let connections = proxy.total_connections();
        proxy.reset();
        eventually("the client is back", async || proxy.total_connections() > connections).await;
        in_time(client.check_exists().for_path("/")).await.unwrap();
        assert_eq!(in_time(theirs.instance("web", "i1")).await.unwrap().unwrap().payload, "different");
        assert_eq!(registration.instance().unwrap().payload, "p");
        in_time(registration.update(|instance| instance.port = Some(81))).await.unwrap();
        let updated = in_time(theirs.instance("web", "i1")).await.unwrap().unwrap();
        assert_eq!((updated.payload.as_str(), updated.port), ("p", Some(81)));
    }

    /// Curator reads the instances one after the other.
    async fn instances_are_read_together(env) {
        let (client, base, proxy) = (env.client().await, env.path("base"), env.proxy());
        let discovery = discovery(&client, &base);
        let mut all = Vec::new();
        for number in 0..50 {
            all.push(registered(&discovery, instance("web", &format!("{number:02}"))).await);
        }
        let far = connected(client_builder(proxy.address()).session_timeout(LONG)).await;
        let latency = Duration::from_millis(100);
        proxy.latency(latency);
        let start = Instant::now();
        assert_eq!(count(&self::discovery(&far, &base), "web").await, all.len());
        let elapsed = start.elapsed();
        assert!(elapsed >= 2 * latency && elapsed < 20 * latency, "{elapsed:?}");
    }
}

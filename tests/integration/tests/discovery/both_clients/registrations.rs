//! Registrations: what keeps their nodes, and what ends them.

use std::sync::Arc;
use std::time::Duration;

use curator_discovery::{DiscoveryError, ServiceDiscovery, ServiceInstance, ServiceType, SpringPayload};
use curator_framework::{Acl, CreateMode, Error, Permission, SessionId};
use curator_integration::env::{builder as client_builder, children, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{NodeError, NodeState};
use tokio::task::JoinSet;

use crate::stage::{
    builder, discovery, ids, instance, is_invalid, reaches, registered, registered_again, stat_of, text_of,
};

const LONG: Duration = Duration::from_secs(60);

on_every_server! {
    /// In Curator a mere reset deletes and creates each instance (CURATOR-320).
    async fn reset_of_the_connection_leaves_each_node_alone(env) {
        let (observer, base, proxy) = (env.client().await, env.path("base"), env.proxy());
        let client = client_builder(proxy.address());
        let client = connected(client.session_timeout(LONG)).await;
        let discovery = discovery(&client, &base);
        let (mut registrations, mut before) = (Vec::new(), Vec::new());
        for kind in [ServiceType::Dynamic, ServiceType::Static, ServiceType::Permanent, ServiceType::DynamicSequential] {
            let instance = builder(kind.as_str(), "i1").service_type(kind).build().unwrap();
            let registration = registered(&discovery, instance).await;
            before.push(stat_of(&observer, &registration.node_path().unwrap()).await.unwrap());
            registrations.push(registration);
        }
        for _ in 0..3 {
            let connections = proxy.total_connections();
            proxy.reset();
            eventually("the client is back", async || proxy.total_connections() > connections).await;
            in_time(client.check_exists().for_path("/")).await.unwrap();
        }
        for (registration, before) in registrations.iter().zip(before) {
            let node = registration.node_path().unwrap();
            assert_eq!(stat_of(&observer, &node).await.unwrap(), before, "{node}");
            assert_eq!(children(&observer, registration.path()).await.len(), 1, "{node}");
        }
    }

    /// Curator's `TestServiceDiscovery.testCrashedInstance`. A sequential instance keeps its name, and there is one node.
    async fn instance_is_registered_again_in_the_next_session(env) {
        let (client, observer, base) = (env.client().await, env.client().await, env.path("base"));
        let discovery = discovery(&client, &base);
        for kind in [ServiceType::Dynamic, ServiceType::DynamicSequential] {
            let instance = builder(kind.as_str(), "i1").service_type(kind).build().unwrap();
            let registration = registered(&discovery, instance).await;
            let (before, node) = (in_time(registration.registered()).await.unwrap(), registration.node_path().unwrap());
            in_time(registration.update(|instance| "newest".clone_into(&mut instance.payload))).await.unwrap();
            env.kill_owner_of(&observer, &node).await;
            let again = registered_again(&registration, &before).await;
            assert_eq!((again.path.as_str(), again.session != before.session), (node.as_str(), true));
            let found = in_time(discovery.instances(kind.as_str())).await.unwrap().found;
            assert_eq!(found.iter().map(|instance| instance.payload.as_str()).collect::<Vec<_>>(), ["newest"]);
            in_time(registration.unregister()).await.unwrap();
            assert!(stat_of(&observer, &node).await.is_none());
        }
    }

    /// Curator's `TestServiceDiscovery.testUnregisterService` and `testCleaning`: in Curator one id for two services ends
    /// in the deletion of the other node.
    async fn unregister_deletes_its_own_node_alone(env) {
        let (client, base) = (env.client().await, env.path("base"));
        let discovery = discovery(&client, &base);
        let (a, b) = (registered(&discovery, instance("a", "i1")).await, registered(&discovery, instance("b", "i1")).await);
        in_time(a.unregister()).await.unwrap();
        in_time(a.unregister()).await.unwrap();
        assert!(matches!(a.state(), NodeState::Closed), "{:?}", a.state());
        assert!(ids(&discovery, "a").await.is_empty());
        assert_eq!(ids(&discovery, "b").await, ["i1"]);
        // The id is free again, even before the drop.
        let again = registered(&discovery, instance("a", "i1")).await;
        in_time(a.unregister()).await.unwrap();
        drop(a);
        assert_eq!(ids(&discovery, "a").await, ["i1"]);
        let node = b.node_path().unwrap();
        drop(b);
        eventually("the dropped registration's node is deleted", async || stat_of(&client, &node).await.is_none()).await;
        in_time(again.unregister()).await.unwrap();
    }

    async fn second_registration_of_an_id_is_an_error(env) {
        let (client, base) = (env.client().await, env.path("base"));
        let (one, two) = (discovery(&client, &base), discovery(&client, &base));
        let first = registered(&one, instance("web", "i1")).await;
        for discovery in [&one, &two] {
            let second = in_time(discovery.register(instance("web", "i1"))).await;
            let path = format!("{base}/web/i1");
            let text = format!("{path} is registered already by this client");
            assert!(matches!(&second, Err(error @ DiscoveryError::AlreadyRegistered { .. }) if error.to_string() == text), "{second:?}");
        }
        assert_eq!(text_of(&client, first.node_path().as_deref().unwrap()).await.matches("\"p\"").count(), 1);
    }

    /// Curator deletes the node of the other process.
    async fn node_of_another_process_is_left_alone(env) {
        let (client, other, base) = (env.client().await, env.client().await, env.path("base"));
        let first = registered(&discovery(&other, &base), instance("web", "i1")).await;
        let theirs = in_time(first.registered()).await.unwrap();
        let discovery = discovery(&client, &base);
        let budget = Duration::from_millis(200);
        let refused = in_time(discovery.register_timeout(instance("web", "i1"), budget)).await;
        let owner = theirs.session;
        assert!(matches!(&refused, Err(DiscoveryError::Node(NodeError::TakenBy { session, .. })) if *session == owner), "{refused:?}");
        assert!(refused.unwrap_err().is_retryable());
        let second = in_time(discovery.announce(builder("web", "i1").payload("second".to_owned()).build().unwrap())).await.unwrap();
        reaches(&second, |state| matches!(state, NodeState::TakenBy { .. })).await;
        let third = in_time(env.client()).await;
        let unregistered = in_time(self::discovery(&third, &base).announce(instance("web", "i1"))).await.unwrap();
        reaches(&unregistered, |state| matches!(state, NodeState::TakenBy { .. })).await;
        in_time(unregistered.unregister()).await.unwrap();
        assert_eq!(stat_of(&client, &theirs.path).await.unwrap().czxid, theirs.czxid.get());
        in_time(first.unregister()).await.unwrap();
        in_time(second.registered()).await.unwrap();
        assert!(text_of(&client, &theirs.path).await.contains("second"));
    }

    async fn close_leaves_permanent_instances_alone(env) {
        let (client, base) = (env.client().await, env.path("base"));
        let discovery = discovery(&client, &base);
        let kinds = [ServiceType::Dynamic, ServiceType::Static, ServiceType::Permanent, ServiceType::DynamicSequential];
        let mut all = Vec::new();
        for kind in kinds {
            all.push(registered(&discovery, builder("web", kind.as_str()).service_type(kind).build().unwrap()).await);
        }
        in_time(discovery.close()).await;
        in_time(discovery.close()).await;
        assert_eq!(children(&client, &format!("{base}/web")).await, ["PERMANENT"]);
        let closed = in_time(discovery.register(instance("web", "late"))).await;
        assert!(matches!(closed, Err(DiscoveryError::Closed { .. })), "{closed:?}");
        drop(all);
        // The next process takes the node over. The drop leaves it too, and `unregister` deletes it.
        let next = self::discovery(&client, &base);
        let permanent = || builder("web", "PERMANENT").service_type(ServiceType::Permanent);
        let changed = permanent().payload("next".to_owned()).build().unwrap();
        let adopted = registered(&next, changed).await;
        let node = adopted.node_path().unwrap();
        eventually("the data is replaced", async || text_of(&client, &node).await.contains("next")).await;
        drop(adopted);
        let again = registered(&next, permanent().build().unwrap()).await;
        assert!(in_time(again.registered()).await.unwrap().adopted);
        in_time(again.unregister()).await.unwrap();
        assert!(children(&client, &format!("{base}/web")).await.is_empty());
    }

    /// Curator's `TestServiceDiscovery.testNoServerOnStart`.
    async fn instance_is_registered_when_a_server_answers(env) {
        let (observer, base, proxy) = (env.client().await, env.path("base"), env.proxy());
        proxy.refuse();
        let client = client_builder(proxy.address());
        let client = client.build().unwrap();
        client.start().unwrap();
        let discovery = discovery(&client, &base);
        let registration = in_time(discovery.announce(instance("web", "i1"))).await.unwrap();
        let late = in_time(registration.registered_timeout(Duration::from_millis(100))).await;
        assert!(matches!(late, Err(DiscoveryError::Node(NodeError::Framework(curator_framework::Error::ConnectionLoss { .. })))), "{late:?}");
        proxy.accept();
        in_time(registration.registered()).await.unwrap();
        assert_eq!(ids(&self::discovery(&observer, &base), "web").await, ["i1"]);
    }

    async fn updates_of_several_tasks_are_all_applied(env) {
        let (client, base) = (env.client().await, env.path("base"));
        let discovery: ServiceDiscovery<u32> = ServiceDiscovery::new(client.clone(), &base).unwrap();
        let counted = ServiceInstance::builder("web").id("i1").address("h").payload(0).build().unwrap();
        let registration = registered(&discovery, counted).await;
        let registration = Arc::new(registration);
        let mut tasks = JoinSet::new();
        for _ in 0..8 {
            let registration = Arc::clone(&registration);
            tasks.spawn(async move {
                for _ in 0..10 {
                    let add = |instance: &mut ServiceInstance<u32>| {
                        // Another update at the same time would add to the same number.
                        std::thread::sleep(Duration::from_millis(1));
                        instance.payload += 1;
                    };
                    registration.update(add).await.unwrap();
                }
            });
        }
        in_time(tasks.join_all()).await;
        assert_eq!(registration.instance().unwrap().payload, 80);
        let node = registration.node_path().unwrap();
        assert!(text_of(&client, &node).await.contains("\"payload\":80,"));
        // An update that is dropped after its first poll is written too.
        drop(futures_util::poll!(std::pin::pin!(registration.update(|instance| instance.payload = 99))));
        eventually("the data is written", async || text_of(&client, &node).await.contains("\"payload\":99,")).await;
        is_invalid(registration.update(|instance| "j2".clone_into(&mut instance.id)).await, "id");
        is_invalid(registration.update(|instance| "other".clone_into(&mut instance.name)).await, "name");
        is_invalid(registration.update(|instance| instance.service_type = Some(ServiceType::Static)).await, "service_type");
        assert_eq!(registration.instance().unwrap().payload, 99);
    }

    async fn instance_is_taken_out_of_service(env) {
        let (client, base) = (env.client().await, env.path("base"));
        let discovery: ServiceDiscovery<SpringPayload> = ServiceDiscovery::new(client.clone(), &base).unwrap();
        let payload = SpringPayload::new("web-1", "web");
        let instance = ServiceInstance::builder("web").id("i1").address("h").port(1).payload(payload).build().unwrap();
        let registration = registered(&discovery, instance).await;
        in_time(registration.set_enabled(false)).await.unwrap();
        let found = in_time(discovery.instance("web", "i1")).await.unwrap().unwrap();
        assert_eq!((found.enabled, found.payload.status()), (false, Some("OUT_OF_SERVICE")));
        in_time(registration.set_enabled(true)).await.unwrap();
        let found = in_time(discovery.instance("web", "i1")).await.unwrap().unwrap();
        assert_eq!((found.enabled, found.payload.status()), (true, Some("UP")));
        let (time, began) = (Duration::from_millis(300), std::time::Instant::now());
        let draining = async {
            in_time(registration.drain(time)).await.unwrap();
            began.elapsed()
        };
        let is_disabled = async || {
            in_time(discovery.instance("web", "i1")).await.unwrap().is_some_and(|instance| !instance.enabled)
        };
        let (elapsed, ()) = tokio::join!(draining, eventually("the instance is out of service", is_disabled));
        assert!(elapsed >= time);
        assert_eq!(in_time(discovery.instance("web", "i1")).await.unwrap(), None);
    }

    /// In Curator the second call has no effect (CURATOR-617).
    async fn unregister_that_the_server_refuses_is_an_error(env) {
        let (client, base) = (env.client().await, env.path("base"));
        let service = format!("{base}/web");
        let without = Permission::READ | Permission::CREATE | Permission::ADMIN;
        let create = client.create().creating_parents_if_needed();
        create.with_acl(vec![Acl::new(without, "world", "anyone")]).for_path(&service).await.unwrap();
        let registration = registered(&discovery(&client, &base), instance("web", "i1")).await;
        let node = registration.node_path().unwrap();
        for _ in 0..2 {
            let refused = in_time(registration.unregister()).await;
            match refused {
                Err(error @ DiscoveryError::Node(NodeError::Framework(Error::NoAuth { .. }))) => {
                    assert!(error.to_string().contains(&node), "{error}");
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(stat_of(&client, &node).await.is_some());
        client.set_acl().with_acl(vec![Acl::new(Permission::ALL, "world", "anyone")]).for_path(&service).await.unwrap();
        eventually("the client deletes it in the background", async || stat_of(&client, &node).await.is_none()).await;
    }

    async fn node_that_an_administrator_deletes_is_created_again(env) {
        let (client, base) = (env.client().await, env.path("base"));
        let registration = registered(&discovery(&client, &base), instance("web", "i1")).await;
        let before = in_time(registration.registered()).await.unwrap();
        client.delete().for_path(&before.path).await.unwrap();
        assert_eq!(registered_again(&registration, &before).await.path, before.path);
    }

    /// A persistent node without a session has the path of an ephemeral instance.
    async fn state_names_the_owner_of_the_path(env) {
        let (client, base) = (env.client().await, env.path("base"));
        let create = client.create().creating_parents_if_needed().with_mode(CreateMode::Persistent);
        create.with_data("theirs").for_path(&format!("{base}/web/i1")).await.unwrap();
        let registration = in_time(discovery(&client, &base).announce(instance("web", "i1"))).await.unwrap();
        let state = reaches(&registration, |state| matches!(state, NodeState::TakenBy { .. })).await;
        assert!(matches!(state, NodeState::TakenBy { session, .. } if session == SessionId::new(0)), "{state:?}");
        drop(registration);
        assert_eq!(text_of(&client, &format!("{base}/web/i1")).await, "theirs");
    }
}

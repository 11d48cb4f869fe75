//! Caches of services: Curator's `TestServiceCache`, and what its listener does not say.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use curator_discovery::{
    DecodeError, InstanceChange, InstanceSerializer, JsonInstanceSerializer, NameChange, PayloadError, ServiceCache,
    ServiceDiscovery, ServiceDiscoveryOptions, ServiceInstance, ServiceNames, ServiceType,
};
use curator_framework::{Changes, CuratorFramework};
use curator_integration::clients::is_zookeeper_async;
use curator_integration::env::{builder as client_builder, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::CacheState;
use tokio::sync::mpsc::unbounded_channel;

use crate::stage::{builder, discovery, instance, registered, registered_again};

/// A loaded cache of a service.
async fn loaded(discovery: &ServiceDiscovery<String>, name: &str) -> ServiceCache<String> {
    let cache = ServiceCache::new(discovery, name).unwrap();
    cache.start().unwrap();
    in_time(cache.initialized()).await.unwrap();
    cache
}

fn payloads(cache: &ServiceCache<String>) -> Vec<String> {
    cache.instances().iter().map(|instance| format!("{}={}", instance.id, instance.payload)).collect()
}

/// Returns the next change as `+node=payload`, `~node=old>new`, `-node=payload` or `!node`.
async fn next(changes: &mut Changes<InstanceChange<String>>) -> String {
    match in_time(changes.recv()).await {
        Some(InstanceChange::Added { node, instance }) => format!("+{node}={}", instance.payload),
        Some(InstanceChange::Updated { node, old, new }) => format!("~{node}={}>{}", old.payload, new.payload),
        Some(InstanceChange::Removed { node, instance }) => format!("-{node}={}", instance.payload),
        Some(InstanceChange::Broken { node, .. }) => format!("!{node}"),
        other => panic!("{other:?}"),
    }
}

/// Counts the decodes of each instance.
#[derive(Clone, Default)]
struct Counting(Arc<AtomicUsize>);

impl InstanceSerializer<String> for Counting {
    fn serialize(&self, instance: &ServiceInstance<String>) -> Result<Vec<u8>, PayloadError> {
        JsonInstanceSerializer::new().serialize(instance)
    }

    fn deserialize(&self, data: &[u8]) -> Result<ServiceInstance<String>, DecodeError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        let instance: ServiceInstance<String> = JsonInstanceSerializer::new().deserialize(data)?;
        assert_ne!(instance.payload, "panic", "on purpose");
        Ok(instance)
    }
}

fn counted(client: &CuratorFramework, base: &str) -> (ServiceDiscovery<String>, Arc<AtomicUsize>) {
    let codec = Counting::default();
    let options = ServiceDiscoveryOptions::new().serializer(codec.clone());
    (ServiceDiscovery::with_options(client.clone(), base, options).unwrap(), codec.0)
}

on_every_server! {
    /// Curator's `TestServiceCache.testInitialLoad`, `testCache` and `testUpdate`.
    async fn changes_name_the_instance(env) {
        let (client, other, base) = (env.client().await, env.client().await, env.path("base"));
        let (mine, theirs) = (discovery(&client, &base), discovery(&other, &base));
        let first = registered(&theirs, instance("web", "a")).await;
        let cache = loaded(&mine, "web").await;
        assert_eq!((cache.name(), cache.path()), ("web", format!("{base}/web").as_str()));
        assert_eq!(payloads(&cache), ["a=p"]);
        let mut changes = cache.changes();
        assert_eq!(next(&mut changes).await, "+a=p");
        let _other_service = registered(&theirs, instance("other", "x")).await;
        let second = registered(&theirs, instance("web", "b")).await;
        assert_eq!(next(&mut changes).await, "+b=p");
        in_time(second.update(|instance| "q".clone_into(&mut instance.payload))).await.unwrap();
        assert_eq!(next(&mut changes).await, "~b=p>q");
        assert_eq!(payloads(&cache), ["a=p", "b=q"]);
        assert_eq!(cache.instance("b").unwrap().unwrap().payload, "q");
        in_time(first.unregister()).await.unwrap();
        assert_eq!(next(&mut changes).await, "-a=p");
        in_time(cache.synced()).await.unwrap();
        assert_eq!((payloads(&cache), cache.instance("a").unwrap()), (vec!["b=q".to_owned()], None));
        // A later stream starts with the present instances.
        assert_eq!(next(&mut cache.changes()).await, "+b=q");
        in_time(cache.close()).await;
        in_time(cache.close()).await;
        assert!(in_time(changes.recv()).await.is_none() && matches!(cache.state(), CacheState::Closed));
    }

    /// CURATOR-574: Curator only logs it.
    async fn broken_instance_is_reported(env) {
        let (client, base) = (env.client().await, env.path("base"));
        let discovery = discovery(&client, &base);
        let good = registered(&discovery, instance("web", "good")).await;
        let cache = loaded(&discovery, "web").await;
        let mut changes = cache.changes();
        assert_eq!(next(&mut changes).await, "+good=p");
        let path = format!("{base}/web/bad");
        client.create().with_data("no").for_path(&path).await.unwrap();
        assert_eq!(next(&mut changes).await, "!bad");
        assert!(matches!(&cache.broken()[..], [(node, DecodeError::Json(_))] if node == "bad"));
        assert!(cache.instance("bad").is_err());
        client.set_data().for_path(&path, r#"{"id":"bad","payload":"p"}"#).await.unwrap();
        assert_eq!(next(&mut changes).await, "+bad=p");
        client.set_data().for_path(&good.node_path().unwrap(), "[]").await.unwrap();
        assert_eq!([next(&mut changes).await, next(&mut changes).await], ["-good=p", "!good"]);
        assert_eq!(payloads(&cache), ["bad=p"]);
    }

    /// Another client has registered it. The node of ZooKeeper itself is at the root.
    async fn instance_named_zookeeper_is_found_and_followed(env) {
        let (client, base) = (env.client().await, env.path("services"));
        let discovery = discovery(&client, &base);
        let data = JsonInstanceSerializer::new().serialize(&instance("web", "one")).unwrap();
        let create = client.create().creating_parents_if_needed().with_data(data);
        create.for_path(&format!("{base}/web/zookeeper")).await.unwrap();
        let cache = loaded(&discovery, "web").await;
        assert_eq!(payloads(&cache), ["one=p"]);
        assert!(cache.instance("zookeeper").unwrap().is_some());
        assert_eq!(in_time(discovery.instances("web")).await.unwrap().found.len(), 1);
    }

    /// A node below an instance is an instance in Curator's cache.
    async fn node_below_an_instance_is_not_an_instance(env) {
        let (client, base) = (env.client().await, env.path("base"));
        let discovery = discovery(&client, &base);
        let kind = builder("web", "i1").service_type(ServiceType::Static);
        let registration = registered(&discovery, kind.build().unwrap()).await;
        let child = format!("{}/child", registration.node_path().unwrap());
        client.create().with_data("{}").for_path(&child).await.unwrap();
        let cache = loaded(&discovery, "web").await;
        assert_eq!((payloads(&cache), cache.broken().len()), (vec!["i1=p".to_owned()], 0));
        client.delete().for_path(&child).await.unwrap();
    }

    async fn each_change_is_decoded_once_for_all_readers(env) {
        let (client, base) = (env.client().await, env.path("base"));
        let registration = registered(&discovery(&client, &base), instance("web", "i1")).await;
        let (discovery, decodes) = counted(&client, &base);
        let cache = loaded(&discovery, "web").await;
        let mut streams: Vec<_> = (0..3).map(|_| cache.changes()).collect();
        for number in 1..=5 {
            for stream in &mut streams {
                next(stream).await;
            }
            assert_eq!(cache.instances().len(), 1);
            assert_eq!(decodes.load(Ordering::SeqCst), number);
            in_time(registration.update(|instance| instance.payload.push('x'))).await.unwrap();
        }
    }

    async fn panic_of_a_payload_breaks_its_instance_alone(env) {
        let (client, base) = (env.client().await, env.path("base"));
        let plain = discovery(&client, &base);
        let _panics = registered(&plain, builder("web", "bad").payload("panic".to_owned()).build().unwrap()).await;
        let _works = registered(&plain, instance("web", "good")).await;
        let (discovery, _) = counted(&client, &base);
        let cache = loaded(&discovery, "web").await;
        assert_eq!(payloads(&cache), ["good=p"]);
        assert!(matches!(&cache.broken()[..], [(node, DecodeError::Panicked(_))] if node == "bad"));
    }

    /// In Curator a reset of the announcer's connection makes its instances vanish for a moment.
    async fn resets_are_no_changes_and_an_outage_is_visible(env) {
        let (other, base, proxy) = (env.client().await, env.path("base"), env.proxy());
        let client = connected(client_builder(proxy.address())).await;
        let (through_proxy, theirs) = (discovery(&client, &base), discovery(&other, &base));
        let _mine = registered(&through_proxy, instance("web", "a")).await;
        let second = registered(&theirs, instance("web", "b")).await;
        let cache = loaded(&through_proxy, "web").await;
        let mut changes = cache.changes();
        assert_eq!([next(&mut changes).await, next(&mut changes).await], ["+a=p", "+b=p"]);
        proxy.refuse();
        proxy.reset();
        in_time(cache.watch().wait_for(|state| !state.is_fresh())).await.unwrap();
        assert_eq!(payloads(&cache), ["a=p", "b=p"]);
        in_time(second.update(|instance| "q".clone_into(&mut instance.payload))).await.unwrap();
        proxy.accept();
        in_time(cache.watch().wait_for(CacheState::is_fresh)).await.unwrap();
        in_time(cache.synced()).await.unwrap();
        assert_eq!(payloads(&cache), ["a=p", "b=q"]);
        assert_eq!(next(&mut changes).await, "~b=p>q");
        assert!(changes.try_recv().is_err());
    }

    async fn next_session_of_an_instance_is_followed(env) {
        let (client, observer, base) = (env.client().await, env.client().await, env.path("base"));
        let registration = registered(&discovery(&client, &base), instance("web", "i1")).await;
        let before = in_time(registration.registered()).await.unwrap();
        let cache = loaded(&discovery(&observer, &base), "web").await;
        env.kill_owner_of(&observer, &before.path).await;
        registered_again(&registration, &before).await;
        in_time(cache.synced()).await.unwrap();
        assert_eq!(payloads(&cache), ["i1=p"]);
    }

    /// The servers still have the session before. `zookeeper-async` has no transactions: there the node of the earlier
    /// session goes first.
    async fn replaced_node_of_an_instance_is_not_a_change(env) {
        let (observer, base, proxy) = (env.client().await, env.path("base"), env.proxy());
        let session = Duration::from_secs(if is_zookeeper_async() { 4 } else { 60 });
        let client = connected(client_builder(proxy.address()).session_timeout(session)).await;
        let registration = registered(&discovery(&client, &base), instance("web", "i1")).await;
        let cache = loaded(&discovery(&observer, &base), "web").await;
        let mut changes = cache.changes();
        assert_eq!(next(&mut changes).await, "+i1=p");
        let mut before = in_time(registration.registered()).await.unwrap();
        for _ in 0..2 {
            proxy.swap_session();
            proxy.reset();
            before = registered_again(&registration, &before).await;
            in_time(cache.synced()).await.unwrap();
            assert_eq!(payloads(&cache), ["i1=p"]);
        }
        if !is_zookeeper_async() {
            let next = changes.try_recv();
            assert!(next.is_err(), "{next:?}");
        }
        in_time(registration.unregister()).await.unwrap();
        in_time(cache.synced()).await.unwrap();
        assert!(payloads(&cache).is_empty());
    }

    async fn listeners_are_called_for_each_change(env) {
        let (client, base) = (env.client().await, env.path("base"));
        let discovery = discovery(&client, &base);
        let first = registered(&discovery, instance("web", "a")).await;
        let (cache, names) = (loaded(&discovery, "web").await, ServiceNames::new(&discovery).unwrap());
        names.start().unwrap();
        let (called, mut calls) = unbounded_channel();
        let of_names = called.clone();
        let id = cache.add_listener(move |change| {
            let (sign, node) = match change {
                InstanceChange::Added { node, .. } => ('+', node),
                InstanceChange::Removed { node, .. } => ('-', node),
                other => panic!("{other:?}"),
            };
            called.send(format!("{sign}{node}")).unwrap();
        });
        assert_eq!(in_time(calls.recv()).await.unwrap(), "+a");
        in_time(first.unregister()).await.unwrap();
        assert_eq!(in_time(calls.recv()).await.unwrap(), "-a");
        cache.remove_listener(id);
        let _second = registered(&discovery, instance("web", "b")).await;
        let id = names.add_listener(move |change| of_names.send(format!("{change:?}")).unwrap());
        // The removed listener is not called for the second instance.
        assert_eq!(in_time(calls.recv()).await.unwrap(), "Added(\"web\")");
        names.remove_listener(id);
        assert!(in_time(calls.recv()).await.is_none());
    }

    /// The service, and the base node, come later.
    async fn names_of_services_are_followed(env) {
        let (client, base) = (env.client().await, env.path("base"));
        let discovery = discovery(&client, &base);
        let names = ServiceNames::new(&discovery).unwrap();
        names.start().unwrap();
        in_time(names.initialized()).await.unwrap();
        let mut changes = names.changes();
        assert!(names.names().is_empty());
        let _a = registered(&discovery, instance("a", "1")).await;
        assert_eq!(in_time(changes.recv()).await, Some(NameChange::Added("a".to_owned())));
        let b = registered(&discovery, instance("b", "1")).await;
        assert_eq!(in_time(changes.recv()).await, Some(NameChange::Added("b".to_owned())));
        assert_eq!(names.names(), ["a", "b"]);
        in_time(b.unregister()).await.unwrap();
        let delete = async || client.delete().for_path(&format!("{base}/b")).await.is_ok();
        eventually("the service's node is deleted", delete).await;
        assert_eq!(in_time(changes.recv()).await, Some(NameChange::Removed("b".to_owned())));
        in_time(names.close()).await;
        assert!(in_time(changes.recv()).await.is_none());
    }
}

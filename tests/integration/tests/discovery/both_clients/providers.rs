//! Providers: Curator's `TestServiceProvider` and `TestDownInstanceManager` over a cache.

use std::collections::BTreeMap;
use std::time::Duration;

use curator_discovery::{
    DiscoveryError, DownInstancePolicy, LeastLoaded, ServiceCache, ServiceDiscovery, ServiceInstance, ServiceProvider,
    ServiceProviderOptions, SpringPayload, WhenAllDown,
};
use curator_framework::Error;
use curator_integration::env::{builder as client_builder, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::CacheError;

use crate::stage::{builder, discovery, instance, registered};

/// A loaded provider of the service `web`.
async fn provider<P: curator_discovery::Payload>(
    discovery: &ServiceDiscovery<P>,
    options: ServiceProviderOptions<P>,
) -> ServiceProvider<P> {
    let cache = ServiceCache::new(discovery, "web").unwrap();
    cache.start().unwrap();
    in_time(cache.initialized()).await.unwrap();
    ServiceProvider::with_options(cache, options)
}

fn picked(provider: &ServiceProvider<String>, times: usize) -> Vec<String> {
    (0..times).map(|_| provider.get().unwrap().id.clone()).collect()
}

fn offered(provider: &ServiceProvider<String>) -> Vec<String> {
    provider.all().iter().map(|instance| instance.id.clone()).collect()
}

on_every_server! {
    /// Curator's `TestServiceProvider.testBasic` and `testDisabledInstance`, and `TestServiceCache.testViaProvider`.
    async fn enabled_instances_take_turns(env) {
        let (client, base) = (env.client().await, env.path("base"));
        let discovery = discovery(&client, &base);
        let provider = provider(&discovery, ServiceProviderOptions::new()).await;
        assert!(provider.get().is_none() && provider.all().is_empty());
        let a = registered(&discovery, instance("web", "a")).await;
        let _b = registered(&discovery, instance("web", "b")).await;
        let _c = registered(&discovery, builder("web", "c").enabled(false).build().unwrap()).await;
        in_time(provider.cache().synced()).await.unwrap();
        assert_eq!(picked(&provider, 4), ["a", "b", "a", "b"]);
        assert_eq!((offered(&provider), provider.cache().instances().len()), (vec!["a".to_owned(), "b".to_owned()], 3));
        in_time(a.set_enabled(false)).await.unwrap();
        in_time(provider.cache().synced()).await.unwrap();
        assert_eq!(offered(&provider), ["b"]);
    }

    async fn filters_and_the_status_of_the_payload_count(env) {
        let (client, base) = (env.client().await, env.path("base"));
        let discovery: ServiceDiscovery<SpringPayload> = ServiceDiscovery::new(client.clone(), &base).unwrap();
        let mut all = Vec::new();
        for (id, zone, is_up) in [("a", "eu", true), ("b", "eu", false), ("c", "us", true)] {
            let mut payload = SpringPayload::new(id, "web").with_metadata("zone", zone);
            payload.set_up(is_up);
            let instance = ServiceInstance::builder("web").id(id).address("h").port(1).payload(payload).build().unwrap();
            all.push(registered(&discovery, instance).await);
        }
        let in_eu = |instance: &ServiceInstance<SpringPayload>| instance.payload.metadata.get("zone").is_some_and(|zone| zone == "eu");
        let provider = provider(&discovery, ServiceProviderOptions::new().filter(in_eu)).await;
        let ids: Vec<_> = provider.all().iter().map(|instance| instance.id.clone()).collect();
        assert_eq!(ids, ["a"]);
    }

    /// Curator's `TestDownInstanceManager`.
    async fn failed_instance_is_down_until_it_is_registered_again(env) {
        let (client, base) = (env.client().await, env.path("base"));
        let discovery = discovery(&client, &base);
        let a = registered(&discovery, instance("web", "a")).await;
        let _b = registered(&discovery, instance("web", "b")).await;
        let policy = DownInstancePolicy::new().timeout(Duration::MAX);
        let provider = provider(&discovery, ServiceProviderOptions::new().down_policy(policy)).await;
        let pick = provider.get().unwrap();
        assert_eq!(pick.id, "a");
        pick.failed();
        assert_eq!(offered(&provider), ["a", "b"]);
        pick.failed();
        assert_eq!(offered(&provider), ["b"]);
        // In Curator a change of the data forgets the failures.
        in_time(a.update(|instance| "q".clone_into(&mut instance.payload))).await.unwrap();
        in_time(provider.cache().synced()).await.unwrap();
        assert_eq!(offered(&provider), ["b"]);
        in_time(a.unregister()).await.unwrap();
        let _again = registered(&discovery, instance("web", "a")).await;
        in_time(provider.cache().synced()).await.unwrap();
        assert_eq!(offered(&provider), ["a", "b"]);
    }

    async fn all_down_is_a_choice(env) {
        let (client, base) = (env.client().await, env.path("base"));
        let discovery = discovery(&client, &base);
        let _a = registered(&discovery, instance("web", "a")).await;
        for (choice, left) in [(WhenAllDown::UseNone, 0), (WhenAllDown::UseAll, 1)] {
            let policy = DownInstancePolicy::new().threshold(1).when_all_down(choice);
            let provider = provider(&discovery, ServiceProviderOptions::new().down_policy(policy)).await;
            provider.get().unwrap().failed();
            assert_eq!((provider.all().len(), provider.get().is_some()), (left, left == 1), "{choice:?}");
        }
    }

    async fn least_loaded_counts_the_picks_until_their_drop(env) {
        let (client, base) = (env.client().await, env.path("base"));
        let discovery = discovery(&client, &base);
        let mut all = Vec::new();
        for id in ["a", "b", "c"] {
            all.push(registered(&discovery, instance("web", id)).await);
        }
        let provider = provider(&discovery, ServiceProviderOptions::new().strategy(LeastLoaded::new())).await;
        let mut picks: BTreeMap<String, _> = BTreeMap::new();
        for _ in 0..3 {
            let pick = provider.get().unwrap();
            picks.insert(pick.id.clone(), pick);
        }
        assert_eq!(picks.len(), 3, "each instance has one pick");
        picks.remove("b");
        let again = provider.get().unwrap();
        assert_eq!((again.id.as_str(), again.node()), ("b", "b"));
    }

    async fn wait_resolves_with_the_first_instance(env) {
        let (client, base) = (env.client().await, env.path("base"));
        let discovery = discovery(&client, &base);
        let latent = ServiceProvider::new(ServiceCache::new(&discovery, "web").unwrap());
        let refused = in_time(latent.wait()).await;
        assert!(matches!(refused, Err(DiscoveryError::Cache(CacheError::NotStarted { .. }))), "{refused:?}");
        let policy = DownInstancePolicy::new().threshold(1).timeout(Duration::from_millis(300));
        let provider = provider(&discovery, ServiceProviderOptions::new().down_policy(policy)).await;
        assert!(in_time(provider.wait_timeout(Duration::from_millis(50))).await.unwrap().is_none());
        let waiting = tokio::spawn({
            let provider = provider.clone();
            async move { provider.wait().await }
        });
        let _a = registered(&discovery, instance("web", "a")).await;
        let pick = in_time(waiting).await.unwrap().unwrap();
        assert_eq!(pick.id, "a");
        // The wait ends too when a failure is forgotten.
        pick.failed();
        assert!(provider.get().is_none());
        assert_eq!(in_time(provider.wait()).await.unwrap().id, "a");
        pick.failed();
        let closing = async {
            eventually("the instance is down", async || provider.get().is_none()).await;
            provider.cache().close().await;
        };
        let endless = ServiceProviderOptions::new().filter(|_| false);
        let hopeless = ServiceProvider::with_options(provider.cache().clone(), endless);
        let (ended, ()) = tokio::join!(in_time(hopeless.wait()), closing);
        assert!(matches!(ended, Err(DiscoveryError::Cache(CacheError::Closed { .. }))), "{ended:?}");
    }

    async fn wait_without_a_connection_is_an_error(env) {
        let (base, proxy) = (env.path("base"), env.proxy());
        let client = connected(client_builder(proxy.address())).await;
        let provider = provider(&discovery(&client, &base), ServiceProviderOptions::new()).await;
        proxy.refuse();
        proxy.reset();
        in_time(client.watch_connection_state().wait_for(|state| state.is_some_and(|state| !state.is_connected()))).await.unwrap();
        let waited = in_time(provider.wait_timeout(Duration::from_millis(100))).await;
        assert!(matches!(waited, Err(DiscoveryError::Framework(Error::ConnectionLoss { .. }))), "{waited:?}");
    }
}

//! Java's service discovery beside ours on one tree.
//!
//! A [`Peer`](crate::peer::Peer) in Java registers and finds instances, with these verbs:
//!
//! | verb | answer |
//! | --- | --- |
//! | `json FORM write FIELDS` | the instance's JSON in this form |
//! | `json FORM read JSON` | the JSON of the instance that Java has read, in this form |
//! | `discovery BASE FORM register FIELDS` | `registered` |
//! | `discovery BASE FORM update FIELDS` | `updated` |
//! | `discovery BASE FORM unregister FIELDS` | `unregistered` |
//! | `discovery BASE FORM names` | `NAME,NAME` in order |
//! | `discovery BASE FORM instances NAME` | `JSON JSON` in order |
//! | `discovery BASE FORM instance NAME NODE` | `JSON` or `none` |
//! | `discovery BASE FORM follow NAME` | `following`, when a cache and a provider of the service are loaded |
//! | `discovery BASE FORM sees NAME JSON JSON` | the instances in the cache, once they are these or 30 s have passed |
//! | `discovery BASE FORM offers NAME ID ID` | the ids in the provider, once they are these or 30 s have passed |
//! | `discovery BASE FORM close` | `closed` |
//!
//! A form is `default` (nine fields) or `enabled` (ten fields). An answer about instances is in the form `enabled`. A
//! field is `FIELD=VALUE`, and a payload `KIND:VALUE`. The address and the registration time are the same
//! in each instance.

mod following;
mod frameworks;
mod json;
mod resets;
mod tree;

use curator_discovery::{
    InstanceSerializer as _, JsonInstanceSerializer, Payload, Registration, ServiceCache, ServiceDiscovery,
    ServiceDiscoveryOptions, ServiceInstance, ServiceInstanceBuilder,
};
use curator_framework::CuratorFramework;
use curator_integration::env::in_time;

use crate::peer::{Peer, Thread};

/// Java's discovery of the services below a base path.
struct Javas {
    base: String,
    form: &'static str,
    thread: Thread,
}

impl Javas {
    fn new(java: &Peer, base: &str, form: &'static str) -> Self {
        Self { base: base.to_owned(), form, thread: java.thread(&format!("discovery-{form}-{base}")) }
    }

    async fn asks(&mut self, what: &str) -> String {
        self.thread.ask(&format!("discovery {} {} {what}", self.base, self.form)).await
    }

    async fn does(&mut self, what: &str, answer: &str) {
        assert_eq!(self.asks(what).await, answer, "{what}");
    }

    /// Waits until Java's cache has exactly these instances.
    async fn sees(&mut self, name: &str, instances: &[String]) {
        let all = instances.join(" ");
        self.does(format!("sees {name} {all}").trim_end(), &all).await;
    }

    /// Waits until Java's provider offers exactly these instances.
    async fn offers(&mut self, name: &str, ids: &str) {
        self.does(format!("offers {name} {ids}").trim_end(), ids).await;
    }
}

/// Returns an instance with the address and the time that Java's program uses.
fn builder(name: &str, id: &str) -> ServiceInstanceBuilder {
    ServiceInstance::builder(name).id(id).address("10.0.0.7").registration_time_utc(1_753_142_400_000)
}

/// Returns the JSON of an instance with the field `enabled`, as Java's answers show it.
fn shown<P: Payload>(instance: &ServiceInstance<P>) -> String {
    String::from_utf8(JsonInstanceSerializer::new().with_enabled().serialize(instance).unwrap()).unwrap()
}

/// Returns the JSON of the instance that this process has registered.
fn shown_of<P: Payload>(registration: &Registration<P>) -> String {
    shown(&registration.instance().unwrap())
}

async fn registered<P: Payload>(
    discovery: &ServiceDiscovery<P>,
    instance: ServiceInstanceBuilder<P>,
) -> Registration<P> {
    in_time(discovery.register(instance.build().unwrap())).await.unwrap()
}

async fn loaded<P: Payload>(discovery: &ServiceDiscovery<P>, name: &str) -> ServiceCache<P> {
    let cache = ServiceCache::new(discovery, name).unwrap();
    cache.start().unwrap();
    in_time(cache.initialized()).await.unwrap();
    cache
}

async fn text_of(client: &CuratorFramework, path: &str) -> String {
    String::from_utf8(in_time(client.get_data().for_path(path)).await.unwrap().0).unwrap()
}

/// A discovery that writes the field `enabled` always, as Java's form `enabled` does.
fn with_enabled<P: Payload>(client: &CuratorFramework, base: &str) -> ServiceDiscovery<P> {
    let options = ServiceDiscoveryOptions::new().serializer(JsonInstanceSerializer::new().with_enabled());
    ServiceDiscovery::with_options(client.clone(), base, options).unwrap()
}

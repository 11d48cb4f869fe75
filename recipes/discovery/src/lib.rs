//! Apache Curator's service discovery for async Rust: processes register instances of services in ZooKeeper, and find
//! the instances of all other processes, Java's included.
//!
//! ```toml
//! [dependencies]
//! curator-framework = { path = "../curator/framework" }
//! curator-discovery = { path = "../curator/recipes/discovery" }
//! ```
//!
//! | | |
//! | --- | --- |
//! | [`ServiceDiscovery`] | registers instances, and reads the instances of all processes |
//! | [`Registration`] | an announced instance, as its announcer sees it |
//! | [`ServiceInstance`], [`ServiceType`], [`UriSpec`] | an instance, as consumers see it |
//! | [`ServiceCache`], [`ServiceNames`] | the instances of one service, and the names of all, followed |
//! | `ServiceCache::discover`, with the feature `tower` | the instances of a service, for tower's balancers |
//! | [`ServiceProvider`], [`ProviderStrategy`] | chooses an instance for each request |
//! | [`Payload`], [`RawPayload`] | the program's own data in an instance |
//! | [`SpringPayload`], [`DubboPayload`] | the payloads of spring-cloud-zookeeper and of Dubbo |
//! | [`JsonInstanceSerializer`], [`InstanceSerializer`] | the bytes in a node: Java's JSON, or the program's own codec |
//!
//! A server registers, and a client chooses:
//!
//! ```
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = curator_test::TestingServer::start()?;
//! # let retry = curator_framework::RetryOneTime::new(std::time::Duration::from_millis(50));
//! # let client = curator_framework::CuratorFramework::new_client(server.connect_string(), retry)?;
//! # client.start()?;
//! use curator_discovery::{ServiceCache, ServiceDiscovery, ServiceInstance, ServiceProvider};
//!
//! let discovery = ServiceDiscovery::<()>::new(client, "/services")?;
//! let registration = discovery.register(ServiceInstance::builder("web").port(8080).build()?).await?;
//!
//! let cache = ServiceCache::new(&discovery, "web")?;
//! cache.start()?;
//! let provider = ServiceProvider::new(cache);
//! let pick = provider.wait().await?;
//! println!("send the request to {:?}", pick.host_and_port());
//! registration.unregister().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Words
//!
//! An *instance* is one process, or one port, that serves a *service*. A *registration* is the instance in the process
//! that has announced it. Consumers read instances; only its announcer has the registration.
//!
//! # From Java
//!
//! Processes in Java and in Rust may serve and use the same services, on the same nodes. A class of Curator with
//! one counterpart has its name:
//!
//! | Java's Curator | here |
//! | --- | --- |
//! | `ServiceDiscoveryBuilder`, `ServiceDiscovery.start` | [`ServiceDiscovery::new`], [`ServiceDiscoveryOptions`]; it needs no start |
//! | `registerService`; `thisInstance` | [`ServiceDiscovery::register`], which returns a [`Registration`] |
//! | `updateService`, `unregisterService` | [`Registration::update`], [`Registration::unregister`] |
//! | `queryForNames`, `queryForInstances`, `queryForInstance` | [`names`](ServiceDiscovery::names), [`instances`](ServiceDiscovery::instances), [`instance`](ServiceDiscovery::instance) |
//! | `ServiceInstance`, `ServiceInstanceBuilder`, `ServiceType`, `UriSpec` | the same names |
//! | `new JsonInstanceSerializer<>(Meta.class)` | [`JsonInstanceSerializer`] with [`java_class("com.acme.Meta")`](JsonInstanceSerializer::java_class), without which Java reads an object as a map; `#[serde(rename_all = "camelCase")]` on the struct |
//! | `InstanceSerializer` | the same name; the payload is any type with serde's traits |
//! | `DiscoveryPathConstructor` | [`ServiceDiscoveryOptions::path`] |
//! | `ServiceCache`, `ServiceCacheListener` | [`ServiceCache`], [`ServiceCache::changes`] or [`ServiceCache::add_listener`] |
//! | `ServiceProvider`, `getInstance`, `getAllInstances` | [`ServiceProvider`], [`get`](ServiceProvider::get) or [`wait`](ServiceProvider::wait), [`all`](ServiceProvider::all) |
//! | `noteError` | [`Pick::failed`] |
//! | `RoundRobinStrategy`, `RandomStrategy`, `StickyStrategy` | [`RoundRobin`], [`Random`], [`Sticky`]; also [`Weighted`], [`LeastLoaded`] |
//! | `InstanceFilter`, `DownInstancePolicy` | [`ServiceProviderOptions::filter`], [`DownInstancePolicy`] |
//! | `ServiceDiscovery.close` | [`ServiceDiscovery::close`] |
//! | `curator-x-discovery-server` | not here: the program `curator service` has the commands for other languages |
//!
//! [`curator_methods`] names each method of Java. Each type lists its differences, [`ServiceDiscovery`](ServiceDiscovery#differences-from-curator) most of them.
//!
//! # From the request to the instance
//!
//! [`choosing`] says when discovery fits, and what it costs. [`clients`] shows tonic and reqwest.
//!
//! | the program | takes |
//! | --- | --- |
//! | sends requests by a client of its own | a [`ServiceProvider`]: one [`Pick`] a request, [`failed`](Pick::failed) after an error |
//! | has a stack of tower services, tonic's among them | `ServiceCache::discover`, with the feature `tower` |
//! | keeps a pool of connections | the [changes](ServiceCache::changes) of a [`ServiceCache`] |
//! | asks once, as a command does | [`ServiceDiscovery::instances`] |
//! | is not written in Rust | `curator service register` and `curator service watch --json`, of the program in `examples/cli` |
//!
//! # Tracing
//!
//! | level | event | fields |
//! | --- | --- | --- |
//! | warn | `an instance is registered with a loopback address` … | `service`, `address` |
//!
//! The node of a registration is a [`PersistentNode`](curator_recipes::PersistentNode), with the
//! [events](curator_recipes#tracing) of one.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

/// The program of the package's page.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

mod address;
mod cache;
pub mod choosing {
    #![doc = include_str!("../docs/choosing.md")]
    #[allow(unused_imports, reason = "the links of the page")]
    use crate::*;
}
mod claims;
pub mod clients {
    #![doc = include_str!("../docs/clients.md")]
    #[allow(unused_imports, reason = "the links of the page")]
    use crate::*;
}
pub mod curator_methods {
    #![doc = include_str!("../docs/curator_methods.md")]
    #[allow(unused_imports, reason = "the links of the page")]
    use crate::*;
}
#[cfg(feature = "tower")]
mod discover;
mod discovery;
mod error;
mod instance;
mod json;
mod layout;
mod provider;
mod registration;

pub use cache::InstanceChange;
pub use cache::service_cache::ServiceCache;
pub use cache::service_names::{NameChange, ServiceNames};
pub use discovery::{Instances, ServiceDiscovery, ServiceDiscoveryOptions};
pub use error::{DecodeError, DiscoveryError, PayloadError};
pub use instance::dubbo::DubboPayload;
pub use instance::payload::{Payload, RawPayload};
pub use instance::service_instance::{ServiceInstance, ServiceInstanceBuilder, ServiceType};
pub use instance::spring::SpringPayload;
pub use instance::uri_spec::{ParseUriSpecError, UriPart, UriSpec};
pub use json::serializer::{InstanceSerializer, JsonInstanceSerializer};
pub use provider::down::{DownInstancePolicy, WhenAllDown};
pub use provider::service_provider::{Pick, ServiceProvider, ServiceProviderOptions};
pub use provider::strategy::{Candidate, LeastLoaded, ProviderStrategy, Random, RoundRobin, Sticky, Weighted};
pub use registration::Registration;

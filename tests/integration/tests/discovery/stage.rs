//! The common parts of the tests of service discovery.

use std::fmt::Debug;

use curator_discovery::{
    DiscoveryError, InstanceChange, Payload, Registration, ServiceCache, ServiceDiscovery, ServiceInstance,
    ServiceInstanceBuilder,
};
use curator_framework::{Changes, CuratorFramework, Stat};
use curator_integration::env::in_time;
use curator_recipes::{NodeState, StandingNode};

/// A discovery of instances with a text as their payload.
pub(crate) fn discovery(client: &CuratorFramework, base: &str) -> ServiceDiscovery<String> {
    ServiceDiscovery::new(client.clone(), base).unwrap()
}

pub(crate) fn builder(name: &str, id: &str) -> ServiceInstanceBuilder<String> {
    let builder = ServiceInstance::builder(name).id(id).address("10.0.0.7").port(80).registration_time_utc(1);
    builder.payload("p".to_owned())
}

pub(crate) fn instance(name: &str, id: &str) -> ServiceInstance<String> {
    builder(name, id).build().unwrap()
}

pub(crate) async fn registered<P: Payload>(
    discovery: &ServiceDiscovery<P>,
    instance: ServiceInstance<P>,
) -> Registration<P> {
    in_time(discovery.register(instance)).await.unwrap()
}

/// A loaded cache of the service `web`, and its changes behind the present instances.
pub(crate) async fn followed(
    discovery: &ServiceDiscovery<String>,
    present: usize,
) -> (ServiceCache<String>, Changes<InstanceChange<String>>) {
    let cache = ServiceCache::new(discovery, "web").unwrap();
    cache.start().unwrap();
    in_time(cache.initialized()).await.unwrap();
    let mut changes = cache.changes();
    for _ in 0..present {
        assert!(matches!(in_time(changes.recv()).await, Some(InstanceChange::Added { .. })));
    }
    (cache, changes)
}

/// Waits until the registration's state is as wanted.
pub(crate) async fn reaches<P: Payload>(
    registration: &Registration<P>,
    wanted: impl FnMut(&NodeState) -> bool,
) -> NodeState {
    in_time(registration.watch().wait_for(wanted)).await.unwrap().clone()
}

/// Waits until the node exists with another `czxid`.
pub(crate) async fn registered_again<P: Payload>(
    registration: &Registration<P>,
    before: &StandingNode,
) -> StandingNode {
    let again = |state: &NodeState| state.standing().is_some_and(|now| now.czxid != before.czxid);
    reaches(registration, again).await.standing().unwrap().clone()
}

pub(crate) async fn ids(discovery: &ServiceDiscovery<String>, name: &str) -> Vec<String> {
    let instances = in_time(discovery.instances(name)).await.unwrap();
    assert!(instances.broken.is_empty(), "{:?}", instances.broken);
    instances.found.into_iter().map(|instance| instance.id).collect()
}

pub(crate) async fn stat_of(client: &CuratorFramework, path: &str) -> Option<Stat> {
    in_time(client.check_exists().for_path(path)).await.unwrap()
}

pub(crate) async fn text_of(client: &CuratorFramework, path: &str) -> String {
    String::from_utf8(in_time(client.get_data().for_path(path)).await.unwrap().0).unwrap()
}

pub(crate) fn is_invalid<T: Debug>(outcome: Result<T, DiscoveryError>, expected: &str) {
    assert!(
        matches!(&outcome, Err(DiscoveryError::InvalidArgument { argument, .. }) if *argument == expected),
        "{outcome:?}"
    );
}

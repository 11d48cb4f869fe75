//! The instances of a service for tower's balancers.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use curator_framework::Changes;
use futures_util::StreamExt as _;
use futures_util::future::ready;
use tower::discover::Change;

use crate::cache::InstanceChange;
use crate::cache::service_cache::ServiceCache;
use crate::instance::payload::Payload;
use crate::instance::service_instance::ServiceInstance;

impl<P: Payload> ServiceCache<P> {
    /// Returns the instances as a stream of changes for tower's balancers, which is a `tower::discover::Discover`. The key
    /// is the name of the instance's node.
    ///
    /// `endpoint` says where an instance is reached, or `None` to leave it out. `connect` makes the service of an endpoint.
    /// An instance that is disabled, or has a payload that is not [available](Payload::is_available), is left out. An update
    /// that leaves the endpoint as it was sends nothing, so connections stay. Without a connection to ZooKeeper the
    /// stream sends nothing, and the balancer keeps the last instances.
    ///
    /// The stream has no errors. It starts with the present instances, and ends with the cache.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = curator_test::TestingServer::start()?;
    /// # let retry = curator_framework::RetryOneTime::new(std::time::Duration::from_millis(50));
    /// # let client = curator_framework::CuratorFramework::new_client(server.connect_string(), retry)?;
    /// # client.start()?;
    /// use std::convert::Infallible;
    /// use curator_discovery::{ServiceCache, ServiceDiscovery, ServiceInstance};
    /// use futures_util::StreamExt as _;
    /// use tower::discover::Change;
    ///
    /// let discovery = ServiceDiscovery::<()>::new(client.clone(), "/services")?;
    /// let cache = ServiceCache::new(&discovery, "web")?;
    /// cache.start()?;
    /// let mut discover = cache.discover(
    ///     |instance| instance.host_and_port(),
    ///     |address| tower::service_fn(move |request: String| {
    ///         let answer = format!("{request} to {address}");
    ///         async move { Ok::<_, Infallible>(answer) }
    ///     }),
    /// );
    /// let instance = ServiceInstance::builder("web").address("10.0.0.7").port(8080).build()?;
    /// let registration = discovery.register(instance).await?;
    /// // A program gives the stream to a balancer, such as tower's `p2c::Balance`.
    /// let Some(Ok(Change::Insert(node, _service))) = discover.next().await else { panic!() };
    /// assert_eq!(*node, *registration.id());
    /// # cache.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn discover<E, S>(
        &self,
        endpoint: impl Fn(&ServiceInstance<P>) -> Option<E> + Send + 'static,
        connect: impl Fn(E) -> S + Send + 'static,
    ) -> Changes<Result<Change<Arc<str>, S>, Infallible>>
    where
        E: Clone + PartialEq + Send + 'static,
        S: Send + 'static,
    {
        let mut known = HashMap::new();
        let changes = self.changes().filter_map(move |change| {
            let change = next(&mut known, &change, &endpoint);
            ready(change.map(|change| {
                Ok(match change {
                    Change::Insert(node, endpoint) => Change::Insert(node, connect(endpoint)),
                    Change::Remove(node) => Change::Remove(node),
                })
            }))
        });
        Changes::new(changes)
    }
}

/// Returns the change of the endpoints that follows from a change of the instances, if there is one.
fn next<P: Payload, E: Clone + PartialEq>(
    known: &mut HashMap<Arc<str>, E>,
    change: &InstanceChange<P>,
    endpoint: impl Fn(&ServiceInstance<P>) -> Option<E>,
) -> Option<Change<Arc<str>, E>> {
    let (node, instance) = match change {
        InstanceChange::Added { node, instance } | InstanceChange::Updated { node, new: instance, .. } => {
            (node, Some(instance))
        }
        InstanceChange::Removed { node, .. } | InstanceChange::Broken { node, .. } => (node, None),
    };
    let is_offered = |instance: &&Arc<ServiceInstance<P>>| instance.enabled && instance.payload.is_available();
    let Some(present) = instance.filter(is_offered).and_then(|instance| endpoint(instance)) else {
        return known.remove(node).map(|_| Change::Remove(Arc::clone(node)));
    };
    if known.get(node) == Some(&present) {
        return None;
    }
    known.insert(Arc::clone(node), present.clone());
    Some(Change::Insert(Arc::clone(node), present))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(port: u16, enabled: bool) -> Arc<ServiceInstance<u32>> {
        let builder = ServiceInstance::builder("web").id("one").address("10.0.0.7").port(port).enabled(enabled);
        Arc::new(builder.payload(0).build().unwrap())
    }

    /// The changes of the endpoints: the port, or `None` for the end.
    fn sent(changes: &[InstanceChange<u32>]) -> Vec<Option<i32>> {
        let mut known = HashMap::new();
        let sent = changes.iter().filter_map(|change| next(&mut known, change, |instance| instance.port));
        sent.map(|change| match change {
            Change::Insert(node, port) => {
                assert_eq!(*node, *"one");
                Some(port)
            }
            Change::Remove(node) => {
                assert_eq!(*node, *"one");
                None
            }
        })
        .collect()
    }

    #[test]
    fn a_balancer_hears_of_changed_endpoints_alone() {
        let node: Arc<str> = "one".into();
        let added = |instance| InstanceChange::Added { node: Arc::clone(&node), instance };
        let updated = |new| InstanceChange::Updated { node: Arc::clone(&node), old: instance(1, true), new };
        let removed = || InstanceChange::Removed { node: Arc::clone(&node), instance: instance(1, true) };
        let other_payload = Arc::new(ServiceInstance { payload: 7, ..(*instance(1, true)).clone() });
        assert_eq!(sent(&[added(instance(1, true)), updated(other_payload)]), [Some(1)]);
        assert_eq!(sent(&[added(instance(1, true)), updated(instance(2, true)), removed()]), [Some(1), Some(2), None]);
        let disabled = [added(instance(1, true)), updated(instance(1, false)), updated(instance(1, false)), removed()];
        assert_eq!(sent(&disabled), [Some(1), None]);
        assert_eq!(sent(&[added(instance(1, false)), updated(instance(1, true))]), [Some(1)]);
        assert_eq!(sent(&[added(instance(1, false)), removed()]), []);
        let broken = InstanceChange::Broken { node: Arc::clone(&node), error: crate::DecodeError::other("bad") };
        assert_eq!(sent(&[added(instance(1, true)), removed(), broken]), [Some(1), None]);
    }
}

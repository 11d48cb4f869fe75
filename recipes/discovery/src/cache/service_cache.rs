//! The instances of one service, followed.
//!
//! A service cache reads an ephemeral node before it reports its deletion. One transaction replaces the nodes of a
//! client with a new session, and servers notify of a deletion and a creation. The second notification may arrive
//! later, and nothing in the first one announces it. So only a read shows whether the node is missing. General caches
//! report both, as in Curator: the owner of the node has changed.

use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use curator_framework::recipe::catch_panic;
use curator_framework::{Changes, CuratorFramework, Zxid};
use curator_recipes::{CacheState, CodecError, ListenerId, ModelError, ModelSpec, ModeledCache, ModeledFramework};
use futures_util::stream::StreamExt as _;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::change::{InstanceChange, Known, of_node};
use crate::discovery::ServiceDiscovery;
use crate::error::{DecodeError, DiscoveryError};
use crate::instance::payload::Payload;
use crate::instance::service_instance::ServiceInstance;
use crate::registration::Codec;

/// A local copy of a service's instances, which follows the servers and reports how fresh it is: Curator's `ServiceCache`.
///
/// It is a [`ModeledCache`] of the service's path. The newest state of a node is decoded once, at the first call that needs
/// it, for any number of readers and [streams](Self::changes). A stream that lags decodes the earlier states again. The
/// payload's code runs in the call or the stream that needs the instance, and must not call the cache.
///
/// While the connection is lost the instances stay, and the state is [`Stale`](CacheState::Stale).
///
/// An announcer that gets a new session replaces its nodes in one transaction. The cache keeps the instances, and reports
/// nothing if their data is the same. Some instances are missing for a moment, because their nodes are:
///
/// * The servers have ended the old session before the announcer connects again.
/// * The announcer has no transactions: it uses `zookeeper-async`, or is Curator, which deletes and creates. The cache
///   reads a node after its deletion, and often finds the next one.
///
/// [Clones](curator_recipes#handles) are cheap, and all clones are one cache. They keep the client open.
/// [`close`](Self::close), or the drop of the last clone, ends the cache.
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
/// use curator_discovery::{InstanceChange, ServiceCache, ServiceDiscovery, ServiceInstance};
///
/// let discovery = ServiceDiscovery::<()>::new(client.clone(), "/services")?;
/// let cache = ServiceCache::new(&discovery, "web")?;
/// cache.start()?;
/// cache.initialized().await?;
/// assert!(cache.instances().is_empty());
///
/// let mut changes = cache.changes();
/// let instance = ServiceInstance::builder("web").address("10.0.0.7").port(8080).build()?;
/// let registration = discovery.register(instance).await?;
/// match changes.recv().await {
///     Some(InstanceChange::Added { instance, .. }) => assert_eq!(instance.port, Some(8080)),
///     other => panic!("{other:?}"),
/// }
/// assert_eq!(cache.instances().len(), 1);
/// # drop(registration);
/// # cache.close().await;
/// # Ok(())
/// # }
/// ```
///
/// # Differences from Curator
///
/// * The [changes](Self::changes) name the instance (CURATOR-470). Curator's listener has no argument.
/// * [`state`](Self::state) tells whether the instances are fresh. In Curator an outage is not visible.
/// * A node that is not an instance is [reported](Self::broken). Curator logs it.
/// * A node below an instance is not an instance.
/// * The cache creates no node. Curator creates the service's node.
///
/// # Cost
///
/// | case | requests |
/// | --- | --- |
/// | load | 1 recursive watch, 1 listing, 1 read for each instance |
/// | an instance is registered or changes | 1 read |
/// | an instance ends | 1 read, or none if it is [`Static`](crate::ServiceType::Static) or [`Permanent`](crate::ServiceType::Permanent) |
/// | an announcer gets a new session | 1 or 2 reads for each of its instances |
/// | lost connection | 1 read for each changed instance: see [`CuratorCache`](curator_recipes::CuratorCache) |
/// | [`instances`](Self::instances) and other reads of the cache | none |
///
/// Events of up to 10,000 changes or 64 MiB wait for the next call. After more, the next call compares all instances.
pub struct ServiceCache<P: Payload> {
    owner: Arc<Owner<P>>,
}

struct Owner<P> {
    /// Keeps the client open.
    client: CuratorFramework,
    name: String,
    cache: ModeledCache<ServiceInstance<P>>,
    /// The newest list for the callers.
    lists: Mutex<Lists<P>>,
}

/// The nodes of the cache, and their instances.
type Lists<P> = (Arc<[Known<P>]>, Arc<[Arc<ServiceInstance<P>>]>);

/// The codec of a discovery, as a typed node has it.
struct NodeCodec<P>(Codec<P>);

impl<P: Payload> curator_recipes::Codec<ServiceInstance<P>> for NodeCodec<P> {
    fn encode(&self, instance: &ServiceInstance<P>) -> Result<Vec<u8>, CodecError> {
        self.0.serialize(instance)
    }

    fn decode(&self, data: &[u8]) -> Result<ServiceInstance<P>, CodecError> {
        let decoded = catch_panic("the payload of an instance", || self.0.deserialize(data));
        Ok(decoded.map_err(DecodeError::Panicked)??)
    }
}

/// Describes the nodes below a service's path. Braces in its names are not parameters.
fn nodes_of<P: Payload>(path: &str, codec: &Codec<P>) -> Result<ModelSpec<ServiceInstance<P>>, ModelError> {
    let names = || path.split('/').filter(|name| !name.is_empty());
    let spec = ModelSpec::new("/{}".repeat(names().count() + 1), NodeCodec(Arc::clone(codec)))?;
    names().try_fold(spec, |spec, name| spec.resolved(name))
}

/// Returns an error of the cache as an error of the discovery.
fn of_cache(error: ModelError) -> DiscoveryError {
    match error {
        ModelError::Framework(error) => error.into(),
        ModelError::Cache(error) => error.into(),
        other => DiscoveryError::InvalidArgument { argument: "name", reason: other.to_string() },
    }
}

impl<P: Payload> Clone for ServiceCache<P> {
    fn clone(&self) -> Self {
        Self { owner: Arc::clone(&self.owner) }
    }
}

impl<P: Payload> ServiceCache<P> {
    /// Returns a cache of a service, which is to be started. No request.
    ///
    /// # Errors
    ///
    /// `DiscoveryError::InvalidArgument`, `Error::InvalidPath`: a service cannot have this name.
    #[doc(alias = "ServiceCacheBuilder")]
    pub fn new(discovery: &ServiceDiscovery<P>, name: impl Into<String>) -> Result<Self, DiscoveryError> {
        let name = name.into();
        let (client, path) = (discovery.client().clone(), discovery.service_path(&name)?);
        let spec = nodes_of(&path, discovery.codec()).map_err(of_cache)?;
        let cache = ModeledFramework::new(client.clone(), spec).and_then(|nodes| nodes.cached()).map_err(of_cache)?;
        let lists = Mutex::new((Arc::default(), Arc::default()));
        Ok(Self { owner: Arc::new(Owner { client, name, cache, lists }) })
    }

    /// Starts to fill the cache, in the background, now or when the client is connected.
    ///
    /// # Errors
    ///
    /// * `CacheError::AlreadyStarted`, `CacheError::Closed`: a cache starts once.
    /// * `Error::NoRuntime`: call it in a tokio runtime.
    pub fn start(&self) -> Result<(), DiscoveryError> {
        self.owner.cache.start().map_err(of_cache)
    }

    /// Waits until the first load is complete. Resolves at once later, even in an outage.
    ///
    /// # Errors
    ///
    /// * `CacheError::NotStarted`, `CacheError::Closed`.
    /// * `CacheError::Framework`: the service's node cannot be listed. The cache tries again with pauses.
    /// * `CacheError::TooManyNodes`: more than 10,000 instances over a client without recursive watches.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn initialized(&self) -> Result<(), DiscoveryError> {
        self.owner.cache.initialized().await.map_err(of_cache)
    }

    /// Waits like [`initialized`](Self::initialized) for at most `budget`. Returns `Ok(None)` if the budget ends while the
    /// client is connected.
    ///
    /// # Errors
    ///
    /// * `CacheError::NotStarted`, `CacheError::Closed`: the cache does not run.
    /// * `Error::ConnectionLoss`: the budget ended without a connection.
    /// * `CacheError::Framework`: the service's node cannot be listed. The cache tries again with pauses.
    /// * `CacheError::TooManyNodes`: more than 10,000 instances over a client without recursive watches.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn initialized_timeout(&self, budget: Duration) -> Result<Option<()>, DiscoveryError> {
        self.owner.cache.initialized_timeout(budget).await.map_err(of_cache)
    }

    /// Waits until the instances show each write that any client completed before the call. Sends one `sync`. Returns the
    /// transaction up to which the instances show each change.
    ///
    /// # Errors
    ///
    /// * `CacheError::NotStarted`, `CacheError::Closed`: the cache does not run.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: no connection, or no reply to the `sync`. Call it again.
    /// * `CacheError::Framework`: the service's node cannot be listed. The cache tries again with pauses.
    /// * `CacheError::TooManyNodes`: more than 10,000 instances over a client without recursive watches.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn synced(&self) -> Result<Zxid, DiscoveryError> {
        self.owner.cache.synced().await.map_err(of_cache)
    }

    /// Returns the name of the service.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.owner.name
    }

    /// Returns the path of the service.
    #[must_use]
    pub fn path(&self) -> &str {
        self.owner.cache.path()
    }

    /// Returns the age of the instances.
    #[must_use]
    pub fn state(&self) -> CacheState {
        self.owner.cache.state()
    }

    /// Returns the age of the instances as a channel. A receiver may skip states.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<CacheState> {
        self.owner.cache.watch()
    }

    /// Returns all instances, disabled ones too, in the order of their nodes' names. After [`close`](Self::close) these are
    /// the last known ones.
    #[must_use]
    pub fn instances(&self) -> Arc<[Arc<ServiceInstance<P>>]> {
        let known = self.known();
        let mut lists = self.owner.lists.lock();
        if !Arc::ptr_eq(&lists.0, &known) {
            let instances = known.iter().map(|known| Arc::clone(&known.value)).collect();
            *lists = (known, instances);
        }
        Arc::clone(&lists.1)
    }

    pub(crate) fn known(&self) -> Arc<[Known<P>]> {
        self.owner.cache.models()
    }

    /// Returns an instance by its node's name, the id for most types; `None` if the cache does not have it.
    ///
    /// # Errors
    ///
    /// `DiscoveryError::Decode`: the node exists, and is not an instance or cannot be read.
    pub fn instance(&self, node: &str) -> Result<Option<Arc<ServiceInstance<P>>>, DiscoveryError> {
        match self.owner.cache.get(node) {
            Ok(found) => Ok(found.present().map(|known| known.value)),
            // No node can have this name.
            Err(ModelError::InvalidKey { .. }) => Ok(None),
            Err(error) => Err(DiscoveryError::Decode { node: node.to_owned(), source: of_node(error) }),
        }
    }

    /// Returns the names of the nodes that are not instances, each with the reason.
    #[must_use]
    pub fn broken(&self) -> Vec<(String, DecodeError)> {
        self.owner.cache.broken().into_iter().map(|(node, error)| (node, of_node(error))).collect()
    }

    /// Returns the changes of the instances as a stream. It starts with [`Added`](InstanceChange::Added) for each present
    /// instance, and ends with the cache. A reader that is slow by more than 10,000 events or 64 MiB gets the differences
    /// alone.
    pub fn changes(&self) -> Changes<InstanceChange<P>> {
        Changes::new(self.owner.cache.changes().filter_map(|change| ready(InstanceChange::of(change))))
    }

    /// Calls a listener for each change, on a thread where it may block: Curator's `ServiceCacheListener`. Like a
    /// [stream](Self::changes), the calls start with the present instances.
    ///
    /// A listener must not own a clone of its cache: it would keep the cache until [`close`](Self::close).
    #[doc(alias = "ServiceCacheListener")]
    #[doc(alias = "cacheChanged")]
    pub fn add_listener(&self, listener: impl Fn(&InstanceChange<P>) + Send + Sync + 'static) -> ListenerId {
        self.owner.cache.add_listener(move |change| {
            if let Some(change) = InstanceChange::of(change.clone()) {
                listener(&change);
            }
        })
    }

    /// Removes a listener. A call that runs continues to its end.
    pub fn remove_listener(&self, id: ListenerId) {
        self.owner.cache.remove_listener(id);
    }

    pub(crate) fn client(&self) -> &CuratorFramework {
        &self.owner.client
    }

    /// Ends the cache and its streams, and removes its watch. The instances stay as they are. Resolves within the client's
    /// [`max_close_wait`](curator_framework::CuratorFrameworkBuilder::max_close_wait). Closing twice is fine.
    ///
    /// # Cancel safety
    ///
    /// The closing continues when the future is dropped after its first poll.
    pub async fn close(&self) {
        self.owner.cache.close().await;
    }
}

impl<P: Payload> fmt::Debug for ServiceCache<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceCache").field("path", &self.path()).field("state", &self.state()).finish_non_exhaustive()
    }
}

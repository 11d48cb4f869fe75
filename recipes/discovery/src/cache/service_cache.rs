//! The instances of one service, followed.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use curator_framework::recipe::catch_panic;
use curator_framework::{Changes, CuratorFramework, Zxid};
use curator_recipes::{CacheEvent, CacheState, CuratorCache, CuratorCacheListener, CuratorCacheOptions, ListenerId};
use futures_util::stream::unfold;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::contents::{Contents, Decoded, InstanceChange, Known, NodeEvent, Undecoded};
use crate::discovery::ServiceDiscovery;
use crate::error::{DecodeError, DiscoveryError};
use crate::instance::payload::Payload;
use crate::instance::service_instance::ServiceInstance;
use crate::registration::Codec;

/// A local copy of a service's instances, which follows the servers and reports how fresh it is: Curator's `ServiceCache`.
///
/// It is a [`CuratorCache`] of the nodes directly below the service's path. Each state of a node is decoded once, at the
/// first call that needs it, whatever the number of readers and [streams](Self::changes). The payload's code runs in that
/// call, and must not call the cache.
///
/// While the connection is lost the instances stay, and the state is [`Stale`](CacheState::Stale).
///
/// An announcer that gets a new session replaces its nodes in one transaction. The cache keeps the instances, and reports
/// nothing if their data is the same. Some instances are missing for a moment, because their nodes are:
///
/// * The servers have ended the old session before the announcer connects again.
/// * The announcer has no transactions: it is over `zookeeper-async`, or is Curator, which deletes and creates. The cache
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
/// | lost connection | 1 read for each changed instance: see [`CuratorCache`] |
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
    cache: CuratorCache,
    codec: Codec<P>,
    view: Mutex<View<P>>,
}

/// The instances up to the last call.
struct View<P> {
    events: Changes<CacheEvent>,
    contents: Contents<P>,
    /// The instances as the callers get them; `None` after a change.
    lists: Option<Lists<P>>,
}

type Lists<P> = (Arc<[Known<P>]>, Arc<[Arc<ServiceInstance<P>>]>);

impl<P: Payload> View<P> {
    /// Applies all events that have arrived.
    fn catch_up(&mut self, codec: &Codec<P>) {
        let mut changes = VecDeque::new();
        while let Ok(event) = self.events.try_recv() {
            let Some(event) = NodeEvent::of(&event) else { continue };
            if self.contents.apply(event, |state| decode(codec, state), &mut changes) {
                self.lists = None;
                changes.clear();
            }
        }
    }

    fn lists(&mut self) -> &Lists<P> {
        let contents = &self.contents;
        self.lists.get_or_insert_with(|| {
            let known: Arc<[Known<P>]> = contents.known().into();
            let instances = known.iter().map(|known| Arc::clone(&known.instance)).collect();
            (known, instances)
        })
    }
}

fn decode<P: Payload>(codec: &Codec<P>, state: Undecoded<'_>) -> Decoded<P> {
    let decoded = catch_panic("the payload of an instance", || codec.deserialize(state.data));
    decoded.map_err(DecodeError::Panicked)?.map(Arc::new)
}

impl<P: Payload> Owner<P> {
    /// Returns the view with all events that have arrived.
    fn view<T>(&self, read: impl FnOnce(&mut View<P>) -> T) -> T {
        let mut view = self.view.lock();
        view.catch_up(&self.codec);
        read(&mut view)
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
        let options = CuratorCacheOptions::new().max_depth(1).merge_replacements();
        let cache = CuratorCache::with_options(client.clone(), &path, options)?;
        let view = View { events: cache.changes(), contents: Contents::new(&path), lists: None };
        let (codec, view) = (Arc::clone(discovery.codec()), Mutex::new(view));
        Ok(Self { owner: Arc::new(Owner { client, name, cache, codec, view }) })
    }

    /// Starts to fill the cache, in the background, now or when the client is connected.
    ///
    /// # Errors
    ///
    /// * `CacheError::AlreadyStarted`, `CacheError::Closed`: a cache starts once.
    /// * `Error::NoRuntime`: call it in a tokio runtime.
    pub fn start(&self) -> Result<(), DiscoveryError> {
        Ok(self.owner.cache.start()?)
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
        Ok(self.owner.cache.initialized().await?)
    }

    /// Waits like [`initialized`](Self::initialized) for at most `budget`. Returns `Ok(None)` if the budget ends while the
    /// client is connected.
    ///
    /// # Errors
    ///
    /// Each error of [`initialized`](Self::initialized), and `Error::ConnectionLoss` if the budget ended without a
    /// connection.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn initialized_timeout(&self, budget: Duration) -> Result<Option<()>, DiscoveryError> {
        Ok(self.owner.cache.initialized_timeout(budget).await?)
    }

    /// Waits until the instances show each write that any client completed before the call. Sends one `sync`. Returns the
    /// transaction up to which the instances show each change.
    ///
    /// # Errors
    ///
    /// Each error of [`initialized`](Self::initialized), and `Error::ConnectionLoss`, `Error::SessionExpired`: call it
    /// again.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn synced(&self) -> Result<Zxid, DiscoveryError> {
        Ok(self.owner.cache.synced().await?)
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
        self.owner.view(|view| Arc::clone(&view.lists().1))
    }

    pub(crate) fn known(&self) -> Arc<[Known<P>]> {
        self.owner.view(|view| Arc::clone(&view.lists().0))
    }

    /// Returns an instance by its node's name, the id for most types; `None` if the cache does not have it.
    ///
    /// # Errors
    ///
    /// `DiscoveryError::Decode`: the node exists, and is not an instance or cannot be read.
    pub fn instance(&self, node: &str) -> Result<Option<Arc<ServiceInstance<P>>>, DiscoveryError> {
        let broken = |source| DiscoveryError::Decode { node: node.to_owned(), source };
        self.owner.view(|view| view.contents.get(node)).transpose().map_err(broken)
    }

    /// Returns the names of the nodes that are not instances, each with the reason.
    #[must_use]
    pub fn broken(&self) -> Vec<(String, DecodeError)> {
        self.owner.view(|view| view.contents.broken())
    }

    /// Returns the changes of the instances as a stream. It starts with [`Added`](InstanceChange::Added) for each present
    /// instance, and ends with the cache. A reader that is slow by more than 10,000 events or 64 MiB gets the differences
    /// alone.
    pub fn changes(&self) -> Changes<InstanceChange<P>> {
        let following = Following {
            events: self.owner.cache.changes(),
            contents: Contents::new(self.path()),
            pending: VecDeque::new(),
            owner: Arc::downgrade(&self.owner),
            codec: Arc::clone(&self.owner.codec),
        };
        Changes::new(unfold(following, async |mut following| following.next().await.map(|change| (change, following))))
    }

    /// Calls a listener for each change, on a thread where it may block: Curator's `ServiceCacheListener`. Like a
    /// [stream](Self::changes), the calls start with the present instances.
    ///
    /// A listener must not own a clone of its cache: it would keep the cache until [`close`](Self::close).
    #[doc(alias = "ServiceCacheListener")]
    #[doc(alias = "cacheChanged")]
    pub fn add_listener(&self, listener: impl Fn(&InstanceChange<P>) + Send + Sync + 'static) -> ListenerId {
        let (owner, codec) = (Arc::downgrade(&self.owner), Arc::clone(&self.owner.codec));
        let contents = Mutex::new(Contents::new(self.path()));
        let call = move |event: &CacheEvent| {
            let (mut contents, mut changes) = (contents.lock(), VecDeque::new());
            if let Some(event) = NodeEvent::of(event) {
                contents.apply(event, |state| shared(&owner, &codec, state), &mut changes);
            }
            changes.iter().for_each(&listener);
        };
        self.owner.cache.add_listener(CuratorCacheListener::builder().for_all(call).build())
    }

    /// Removes a listener. A call that runs continues to its end.
    pub fn remove_listener(&self, id: ListenerId) {
        self.owner.cache.remove_listener(id);
    }

    /// Returns the events of the nodes, which need no decoding.
    pub(crate) fn events(&self) -> Changes<CacheEvent> {
        self.owner.cache.changes()
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

/// The state of a stream of changes. It does not keep the cache.
struct Following<P> {
    events: Changes<CacheEvent>,
    contents: Contents<P>,
    pending: VecDeque<InstanceChange<P>>,
    owner: Weak<Owner<P>>,
    codec: Codec<P>,
}

impl<P: Payload> Following<P> {
    async fn next(&mut self) -> Option<InstanceChange<P>> {
        loop {
            if let Some(change) = self.pending.pop_front() {
                return Some(change);
            }
            let event = self.events.recv().await?;
            let Self { contents, pending, owner, codec, .. } = self;
            if let Some(event) = NodeEvent::of(&event) {
                contents.apply(event, |state| shared(owner, codec, state), pending);
            }
        }
    }
}

/// Returns the instance that the cache has decoded from this state of a node. A stream that lags behind the cache decodes
/// the earlier state itself.
fn shared<P: Payload>(owner: &Weak<Owner<P>>, codec: &Codec<P>, state: Undecoded<'_>) -> Decoded<P> {
    let known = owner.upgrade().and_then(|owner| owner.view(|view| view.contents.decoded(state)));
    known.unwrap_or_else(|| decode(codec, state))
}

impl<P: Payload> fmt::Debug for ServiceCache<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceCache").field("path", &self.path()).field("state", &self.state()).finish_non_exhaustive()
    }
}

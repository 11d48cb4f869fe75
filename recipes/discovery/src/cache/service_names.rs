//! The names of the services, followed.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

use curator_framework::recipe::catch_panic;
use curator_framework::{Changes, Zxid};
use curator_recipes::{CacheEvent, CacheState, CuratorCache, CuratorCacheListener, CuratorCacheOptions, ListenerId};
use futures_util::stream::unfold;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::discovery::ServiceDiscovery;
use crate::error::DiscoveryError;
use crate::instance::payload::Payload;
use crate::layout::RESERVED;

/// A change of the names of services.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NameChange {
    /// A service with this name has come.
    Added(String),
    /// The node of the service was deleted: the server does so some time after the end of the last instance.
    Removed(String),
}

/// A local copy of the names of the services, which follows the servers. A name with a slash shows its first part alone.
///
/// Clones are cheap, and all clones are one cache. They keep the client open. [`close`](Self::close), or the drop of the last
/// clone, ends the cache.
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
/// use curator_discovery::{NameChange, ServiceDiscovery, ServiceInstance, ServiceNames};
///
/// let discovery = ServiceDiscovery::<()>::new(client, "/services")?;
/// let names = ServiceNames::new(&discovery)?;
/// let mut changes = names.changes();
/// names.start()?;
/// names.initialized().await?;
/// let web = ServiceInstance::builder("web").address("10.0.0.7").port(8080).build()?;
/// let _registration = discovery.register(web).await?;
/// assert_eq!(changes.recv().await, Some(NameChange::Added("web".to_owned())));
/// assert_eq!(names.names(), ["web"]);
/// # Ok(())
/// # }
/// ```
///
/// # Cost
///
/// | case | requests |
/// | --- | --- |
/// | load | 1 recursive watch, 1 listing, 1 read for each service |
/// | a service comes | 1 read |
/// | [`names`](Self::names) | none |
///
/// The recursive watch reports the changes of instances too, which cause no request.
#[derive(Clone)]
pub struct ServiceNames {
    cache: CuratorCache,
}

impl ServiceNames {
    /// Returns a cache of the names, which is to be started. No request.
    ///
    /// # Errors
    ///
    /// None today: the base path was checked before.
    pub fn new<P: Payload>(discovery: &ServiceDiscovery<P>) -> Result<Self, DiscoveryError> {
        let reserved = format!("/{RESERVED}");
        let options = CuratorCacheOptions::new().max_depth(1).without_data().filter(move |path| path != reserved);
        Ok(Self { cache: CuratorCache::with_options(discovery.client().clone(), discovery.path(), options)? })
    }

    /// Starts to fill the cache, in the background, now or when the client is connected.
    ///
    /// # Errors
    ///
    /// * `CacheError::AlreadyStarted`, `CacheError::Closed`: a cache starts once.
    /// * `Error::NoRuntime`: call it in a tokio runtime.
    pub fn start(&self) -> Result<(), DiscoveryError> {
        Ok(self.cache.start()?)
    }

    /// Waits until the first load is complete. Resolves at once later, even in an outage.
    ///
    /// # Errors
    ///
    /// * `CacheError::NotStarted`, `CacheError::Closed`.
    /// * `CacheError::Framework`: the base node cannot be listed. The cache tries again with pauses.
    /// * `CacheError::TooManyNodes`: more than 10,000 services over a client without recursive watches.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn initialized(&self) -> Result<(), DiscoveryError> {
        Ok(self.cache.initialized().await?)
    }

    /// Waits like [`initialized`](Self::initialized) for at most `budget`. Returns `Ok(None)` if the budget ends while the
    /// client is connected.
    ///
    /// # Errors
    ///
    /// * `CacheError::NotStarted`, `CacheError::Closed`: the cache does not run.
    /// * `Error::ConnectionLoss`: the budget ended without a connection.
    /// * `CacheError::Framework`: the base node cannot be listed. The cache tries again with pauses.
    /// * `CacheError::TooManyNodes`: more than 10,000 services over a client without recursive watches.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn initialized_timeout(&self, budget: Duration) -> Result<Option<()>, DiscoveryError> {
        Ok(self.cache.initialized_timeout(budget).await?)
    }

    /// Waits until the names show each write that any client completed before the call. Sends one `sync`.
    ///
    /// # Errors
    ///
    /// * `CacheError::NotStarted`, `CacheError::Closed`: the cache does not run.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: no connection, or no reply to the `sync`. Call it again.
    /// * `CacheError::Framework`: the base node cannot be listed. The cache tries again with pauses.
    /// * `CacheError::TooManyNodes`: more than 10,000 services over a client without recursive watches.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn synced(&self) -> Result<Zxid, DiscoveryError> {
        Ok(self.cache.synced().await?)
    }

    /// Returns the base path.
    #[must_use]
    pub fn path(&self) -> &str {
        self.cache.path()
    }

    /// Returns the age of the names.
    #[must_use]
    pub fn state(&self) -> CacheState {
        self.cache.state()
    }

    /// Returns the age of the names as a channel. A receiver may skip states.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<CacheState> {
        self.cache.watch()
    }

    /// Returns the names in order.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.cache.children(self.path()).map(|children| children.into_keys().collect()).unwrap_or_default()
    }

    /// Returns the changes of the names as a stream. It starts with [`Added`](NameChange::Added) for each present name, and
    /// ends with the cache. A reader that is slow by more than 10,000 events gets the differences alone.
    pub fn changes(&self) -> Changes<NameChange> {
        let state = (self.cache.changes(), Known::new(self.path()), VecDeque::new());
        Changes::new(unfold(state, async |(mut events, mut known, mut pending)| {
            loop {
                if let Some(change) = pending.pop_front() {
                    return Some((change, (events, known, pending)));
                }
                known.apply(&events.recv().await?, &mut pending);
            }
        }))
    }

    /// Calls a listener for each change, on a thread where it may block. Like a [stream](Self::changes), the calls start with
    /// the present names. A listener must not own a clone of its cache.
    pub fn add_listener(&self, listener: impl Fn(&NameChange) + Send + Sync + 'static) -> ListenerId {
        let known = Mutex::new(Known::new(self.path()));
        let call = move |event: &CacheEvent| {
            let mut changes = VecDeque::new();
            known.lock().apply(event, &mut changes);
            // An event may have several changes. The panic of one call leaves out no other one.
            for change in &changes {
                let _panicked = catch_panic("listener", || listener(change));
            }
        };
        self.cache.add_listener(CuratorCacheListener::builder().for_all(call).build())
    }

    /// Removes a listener. A call that runs continues to its end.
    pub fn remove_listener(&self, id: ListenerId) {
        self.cache.remove_listener(id);
    }

    /// Ends the cache and its streams, and removes its watch. Resolves within the client's
    /// [`max_close_wait`](curator_framework::CuratorFrameworkBuilder::max_close_wait). Closing twice is fine.
    ///
    /// # Cancel safety
    ///
    /// The closing continues when the future is dropped after its first poll.
    pub async fn close(&self) {
        self.cache.close().await;
    }
}

impl fmt::Debug for ServiceNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceNames").field("cache", &self.cache).finish()
    }
}

/// The names that a stream has reported, each with the number of resets before its newest event.
struct Known {
    /// The start of each node's path.
    parent: String,
    names: BTreeMap<String, u64>,
    round: u64,
}

impl Known {
    fn new(base: &str) -> Self {
        let parent = if base == "/" { base.to_owned() } else { format!("{base}/") };
        Self { parent, names: BTreeMap::new(), round: 0 }
    }

    fn apply(&mut self, event: &CacheEvent, changes: &mut VecDeque<NameChange>) {
        let name_of = |path: &str| path.strip_prefix(&self.parent).filter(|name| !name.is_empty()).map(str::to_owned);
        match event {
            CacheEvent::Created(node) => {
                if let Some(name) = name_of(&node.path) {
                    if self.names.insert(name.clone(), self.round).is_none() {
                        changes.push_back(NameChange::Added(name));
                    }
                }
            }
            CacheEvent::Deleted(node) => {
                if let Some((name, _)) = name_of(&node.path).and_then(|name| self.names.remove_entry(&name)) {
                    changes.push_back(NameChange::Removed(name));
                }
            }
            CacheEvent::Reset => self.round += 1,
            CacheEvent::Initialized => {
                let round = self.round;
                let ended: Vec<_> =
                    self.names.iter().filter(|(_, seen)| **seen != round).map(|(name, _)| name.clone()).collect();
                for name in ended {
                    self.names.remove(&name);
                    changes.push_back(NameChange::Removed(name));
                }
            }
            _ => {}
        }
    }
}

//! Chooses instances of a service.

use std::collections::HashMap;
use std::fmt;
use std::future::pending;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use curator_framework::recipe::{Budget, RecipeClient as _};
use curator_recipes::{CacheError, CacheState};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use super::down::{DownInstancePolicy, DownInstances, Key};
use super::strategy::{Candidate, ProviderStrategy, RoundRobin};
use crate::cache::Known;
use crate::cache::service_cache::ServiceCache;
use crate::error::DiscoveryError;
use crate::instance::payload::Payload;
use crate::instance::service_instance::ServiceInstance;

/// A predicate of instances.
type Filter<P> = Box<dyn Fn(&ServiceInstance<P>) -> bool + Send + Sync>;

/// The options of a [`ServiceProvider`].
#[must_use = "options do nothing by themselves"]
pub struct ServiceProviderOptions<P> {
    strategy: Box<dyn ProviderStrategy<P>>,
    filters: Vec<Filter<P>>,
    down_policy: DownInstancePolicy,
}

impl<P> Default for ServiceProviderOptions<P> {
    fn default() -> Self {
        Self { strategy: Box::new(RoundRobin::new()), filters: Vec::new(), down_policy: DownInstancePolicy::default() }
    }
}

impl<P> ServiceProviderOptions<P> {
    /// Returns the defaults, Curator's: round robin, two failures.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the strategy. Default: [`RoundRobin`].
    #[doc(alias = "providerStrategy")]
    pub fn strategy(mut self, strategy: impl ProviderStrategy<P>) -> Self {
        self.strategy = Box::new(strategy);
        self
    }

    /// Adds a filter. An instance is offered if all filters return `true`.
    #[doc(alias = "additionalFilter")]
    #[doc(alias = "InstanceFilter")]
    pub fn filter(mut self, filter: impl Fn(&ServiceInstance<P>) -> bool + Send + Sync + 'static) -> Self {
        self.filters.push(Box::new(filter));
        self
    }

    /// Sets when an instance that has [failed](Pick::failed) is down. Default: [`DownInstancePolicy::new`].
    #[doc(alias = "downInstancePolicy")]
    pub fn down_policy(mut self, policy: DownInstancePolicy) -> Self {
        self.down_policy = policy;
        self
    }
}

impl<P> fmt::Debug for ServiceProviderOptions<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceProviderOptions")
            .field("filters", &self.filters.len())
            .field("down_policy", &self.down_policy)
            .finish_non_exhaustive()
    }
}

/// Chooses an instance for each request from a [`ServiceCache`]: Curator's `ServiceProvider`.
///
/// It offers an instance if all of these are true; the [strategy](ProviderStrategy) chooses among them:
///
/// * the instance is enabled, and its payload is [available](Payload::is_available);
/// * each [filter](ServiceProviderOptions::filter) accepts it;
/// * it is not [down](DownInstancePolicy).
///
/// [Clones](curator_recipes#handles) are cheap, and all clones are one provider, which keeps the cache. Keep one provider for
/// each service: the strategy and the failures are in it. It has no task and sends no request.
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
/// # async fn request(_address: Option<String>) -> std::io::Result<()> { Ok(()) }
/// use std::time::Duration;
/// use curator_discovery::{
///     LeastLoaded, ServiceCache, ServiceDiscovery, ServiceInstance, ServiceProvider, ServiceProviderOptions,
/// };
///
/// let discovery = ServiceDiscovery::<()>::new(client.clone(), "/services")?;
/// # let instance = ServiceInstance::builder("web").address("10.0.0.7").port(8080).build()?;
/// # let registration = discovery.register(instance).await?;
/// let cache = ServiceCache::new(&discovery, "web")?;
/// cache.start()?;
/// let provider = ServiceProvider::with_options(cache, ServiceProviderOptions::new().strategy(LeastLoaded::new()));
///
/// let pick = provider.wait_timeout(Duration::from_secs(10)).await?.ok_or("no instance")?;
/// if request(pick.host_and_port()).await.is_err() {
///     pick.failed();
/// }
/// drop(pick); // no longer in use
/// # Ok(())
/// # }
/// ```
///
/// # Differences from Curator
///
/// * Failures are counted for each node, so a change of the instance's data does not forget them.
/// * An instance is up again at the time-out, not up to half of it later.
/// * [`WhenAllDown`](crate::WhenAllDown) offers all instances if all are down, on request.
/// * It has no start and no close: the cache has them.
pub struct ServiceProvider<P: Payload> {
    shared: Arc<Shared<P>>,
}

struct Shared<P: Payload> {
    cache: ServiceCache<P>,
    strategy: Box<dyn ProviderStrategy<P>>,
    filters: Vec<Filter<P>>,
    down: Mutex<DownInstances>,
    /// The number of picks of each node that has any.
    in_use: Mutex<HashMap<Key, usize>>,
}

impl<P: Payload> Clone for ServiceProvider<P> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

fn key<P>(known: &Known<P>) -> Key {
    (Arc::clone(&known.key), known.since)
}

fn candidate<P>(known: &Known<P>, in_use: usize) -> Candidate<'_, P> {
    Candidate { node: &known.key, instance: &known.value, in_use }
}

impl<P: Payload> ServiceProvider<P> {
    /// Returns a provider of the instances in a cache, which may be started later.
    #[must_use]
    pub fn new(cache: ServiceCache<P>) -> Self {
        Self::with_options(cache, ServiceProviderOptions::new())
    }

    /// Returns a provider with options.
    #[must_use]
    #[doc(alias = "ServiceProviderBuilder")]
    pub fn with_options(cache: ServiceCache<P>, options: ServiceProviderOptions<P>) -> Self {
        let ServiceProviderOptions { strategy, filters, down_policy } = options;
        let (down, in_use) = (Mutex::new(DownInstances::new(down_policy)), Mutex::default());
        Self { shared: Arc::new(Shared { cache, strategy, filters, down, in_use }) }
    }

    /// Returns the cache.
    #[must_use]
    pub fn cache(&self) -> &ServiceCache<P> {
        &self.shared.cache
    }

    /// Returns the instances that are offered now.
    fn offered(&self) -> Vec<Known<P>> {
        let Shared { cache, filters, down, .. } = &*self.shared;
        let is_usable = |instance: &ServiceInstance<P>| {
            filters.iter().all(|filter| filter(instance)) && instance.enabled && instance.payload.is_available()
        };
        let usable: Vec<_> = cache.known().iter().filter(|known| is_usable(&known.value)).cloned().collect();
        let (down, now) = (down.lock(), Instant::now());
        let up: Vec<_> = usable.iter().filter(|known| !down.is_down(&key(known), now)).cloned().collect();
        if up.is_empty() && down.policy().uses_all() { usable } else { up }
    }

    /// Chooses an instance; `None` if none is offered, or the strategy chooses none. No request.
    #[must_use]
    #[doc(alias = "getInstance")]
    pub fn get(&self) -> Option<Pick<P>> {
        let offered = self.offered();
        if offered.is_empty() {
            return None;
        }
        let counts: Vec<usize> = {
            let in_use = self.shared.in_use.lock();
            offered.iter().map(|known| in_use.get(&key(known)).copied().unwrap_or_default()).collect()
        };
        let with_count = offered.iter().zip(counts);
        let candidates: Vec<_> = with_count.map(|(known, in_use)| candidate(known, in_use)).collect();
        let chosen = self.shared.strategy.choose(&candidates)?;
        let known = offered.get(chosen)?.clone();
        *self.shared.in_use.lock().entry(key(&known)).or_default() += 1;
        Some(Pick { shared: Arc::clone(&self.shared), known })
    }

    /// Returns all instances that are offered. No request.
    #[must_use]
    #[doc(alias = "getAllInstances")]
    pub fn all(&self) -> Vec<Arc<ServiceInstance<P>>> {
        self.offered().into_iter().map(|known| known.value).collect()
    }

    /// Waits until an instance is offered, and chooses one. A change of what a filter or a strategy reads, apart from the
    /// instances, is noticed at the next change of an instance.
    ///
    /// # Errors
    ///
    /// * `CacheError::NotStarted`: start the cache first.
    /// * `CacheError::Closed`: the cache or the client was closed.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn wait(&self) -> Result<Pick<P>, DiscoveryError> {
        let cache = &self.shared.cache;
        let path = || cache.client().path_text(cache.path());
        if matches!(cache.state(), CacheState::Latent) {
            return Err(CacheError::NotStarted { path: path() }.into());
        }
        let mut changes = cache.changes();
        loop {
            // The changes after these wake the task.
            while changes.try_recv().is_ok() {}
            if let Some(pick) = self.get() {
                return Ok(pick);
            }
            let next_up = self.shared.down.lock().next_up(Instant::now());
            tokio::select! {
                change = changes.recv() => if change.is_none() {
                    return Err(CacheError::Closed { path: path() }.into());
                },
                () = async { match next_up {
                    Some(time) => sleep_until(time).await,
                    None => pending().await,
                } } => {}
            }
        }
    }

    /// Waits like [`wait`](Self::wait) for at most `budget`. Returns `Ok(None)` if the budget ends while the client is
    /// connected.
    ///
    /// # Errors
    ///
    /// * `CacheError::NotStarted`: start the cache first.
    /// * `CacheError::Closed`: the cache or the client was closed.
    /// * `Error::ConnectionLoss`: the budget ended without a connection.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn wait_timeout(&self, budget: Duration) -> Result<Option<Pick<P>>, DiscoveryError> {
        let cache = &self.shared.cache;
        match Budget::of(budget).limit(self.wait()).await {
            Some(picked) => picked.map(Some),
            None if cache.client().is_connected() => Ok(None),
            None => Err(cache.client().no_answer(&format!("waiting for an instance at {}", cache.path())).into()),
        }
    }
}

impl<P: Payload> fmt::Debug for ServiceProvider<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceProvider").field("cache", &self.shared.cache).finish_non_exhaustive()
    }
}

/// An instance that a [`ServiceProvider`] has chosen. It dereferences to the [`ServiceInstance`], as it was at the choice.
///
/// Until its drop it counts as in use, for [`LeastLoaded`](crate::LeastLoaded). Drop it at the end of the request.
#[must_use = "if unused the instance is not in use"]
pub struct Pick<P: Payload> {
    shared: Arc<Shared<P>>,
    known: Known<P>,
}

impl<P: Payload> Pick<P> {
    /// Returns the instance.
    #[must_use]
    pub fn instance(&self) -> &Arc<ServiceInstance<P>> {
        &self.known.value
    }

    /// Returns the name of the instance's node, unique in the service.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.known.key
    }

    /// Records that a request to the instance has failed: Curator's `noteError`. After the
    /// [threshold](DownInstancePolicy::threshold) the instance is down for some time.
    #[doc(alias = "noteError")]
    pub fn failed(&self) {
        self.shared.down.lock().failed(key(&self.known), Instant::now());
    }
}

impl<P: Payload> Deref for Pick<P> {
    type Target = ServiceInstance<P>;

    fn deref(&self) -> &ServiceInstance<P> {
        &self.known.value
    }
}

impl<P: Payload> Drop for Pick<P> {
    fn drop(&mut self) {
        let mut in_use = self.shared.in_use.lock();
        let key = key(&self.known);
        if let Some(count) = in_use.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                in_use.remove(&key);
            }
        }
    }
}

impl<P: Payload + fmt::Debug> fmt::Debug for Pick<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pick").field("node", &self.known.key).field("instance", &self.known.value).finish()
    }
}

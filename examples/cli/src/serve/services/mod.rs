//! Follows the services of Curator's service discovery, with one watch for all browsers, and publishes them.

pub(crate) mod api;
mod model;
pub(crate) mod page;

use std::sync::Arc;

use curator_framework::Chain;
use curator_recipes::{CacheError, CacheState, CuratorCache, CuratorCacheOptions, Lookup};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use self::model::Model;
pub(crate) use self::model::{Entry, Instance, Service, Services, State};
use super::follow::{BATCH, BURST, now};
use crate::site::Site;

/// The levels below the base path that are followed. A name may have two slashes, as Spring's may, and its instances are
/// one level below.
const LEVELS: usize = 4;

/// Returns a cache of the services below a base path.
pub(crate) fn cache(site: &Site, base: &str) -> Result<CuratorCache, CacheError> {
    // ZooKeeper's own nodes are below the root.
    let options = CuratorCacheOptions::new().max_depth(LEVELS).without_data().filter(|path| path != "/zookeeper");
    CuratorCache::with_options(site.client.clone(), base, options)
}

/// Publishes the services at each change, until the cache is closed.
pub(crate) async fn follow(cache: CuratorCache, services: watch::Sender<Arc<Services>>) {
    let (mut events, mut states) = (cache.changes(), cache.watch());
    let mut model = Model::new(cache.path());
    loop {
        tokio::select! {
            event = events.recv() => match event {
                Some(event) => model.apply(&event),
                None => return,
            },
            changed = states.changed() => if changed.is_err() {
                return;
            },
        }
        let end = Instant::now() + BURST;
        for _ in 0..BATCH {
            let Ok(Some(event)) = timeout_at(end, events.recv()).await else { break };
            model.apply(&event);
        }
        // The events up to a state are sent before the state.
        let state = states.borrow_and_update().clone();
        while let Ok(event) = events.try_recv() {
            model.apply(&event);
        }
        if model.is_loaded() {
            let before = services.borrow().at;
            services.send_replace(Arc::new(publish(&cache, &mut model, &state, before)));
        }
    }
}

fn publish(cache: &CuratorCache, model: &mut Model, state: &CacheState, before: i64) -> Services {
    // A path below a node that cannot be listed is not known. No event says that the list can be read again.
    model.settle(|path| cache.get(path) != Lookup::NotLoaded);
    let mut services = model.services();
    services.exists = match cache.get(cache.path()) {
        Lookup::Present(_) => Some(true),
        Lookup::Missing => Some(false),
        Lookup::NotLoaded => None,
    };
    services.is_fresh = state.is_fresh();
    services.at = if services.is_fresh { now() } else { before };
    if let CacheState::Failed(error) = state {
        services.problems.push(format!("the services cannot be read: {}", Chain(error)));
    }
    services
}

//! The streams of the older caches, and the start modes.

use std::future::ready;
use std::sync::Arc;

use curator_framework::{Changes, ListenerId};
use futures_util::stream::StreamExt as _;
use parking_lot::Mutex;

use super::curator_cache::CuratorCache;
use super::events::{CacheEvent, Heard};
use super::listener::call_each;
use super::model::CacheState;

/// The events with which an older cache starts: Curator's `StartMode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum StartMode {
    /// The events start with the nodes of the load.
    #[default]
    Normal,
    /// The call waits for the load, and the events leave its nodes out.
    BuildInitialCache,
    /// As `Normal`. An event with all children reports the end of the load.
    PostInitializedEvent,
}

/// Returns the events of an older cache. The stream starts with the nodes that the cache had when it was opened, and
/// ends with the cache.
pub(super) fn events_of<T>(
    cache: &CuratorCache,
    mut translate: impl FnMut(Heard) -> Option<T> + Send + Sync + 'static,
) -> Changes<T>
where
    T: Send + Sync + 'static,
{
    Changes::new(cache.events_and_notices().filter_map(move |heard| ready(translate(heard))))
}

/// Calls a closure for each event, on a thread of its own.
pub(super) fn call<T: Send + 'static>(
    cache: &CuratorCache,
    events: Changes<T>,
    call: impl Fn(&T) + Send + Sync + 'static,
) -> ListenerId {
    cache.add_listener_task(call_each(events, call))
}

/// The start mode of a cache, which its streams share.
#[derive(Debug, Clone, Default)]
pub(super) struct Mode(Arc<Mutex<StartMode>>);

impl Mode {
    pub(super) fn get(&self) -> StartMode {
        *self.0.lock()
    }

    /// Sets the mode of a cache that was not started.
    pub(super) fn set(&self, cache: &CuratorCache, mode: StartMode) {
        if let CacheState::Latent = cache.state() {
            *self.0.lock() = mode;
        }
    }

    /// Returns the filter that leaves out the nodes with which a stream starts, if the mode says so.
    pub(super) fn beginning(&self) -> impl FnMut(&Heard) -> bool + Send + Sync + use<> {
        let (mode, mut is_over) = (self.clone(), false);
        move |heard| {
            is_over |= matches!(heard, Heard::Event(CacheEvent::Initialized | CacheEvent::Reset));
            is_over || matches!(heard, Heard::Notice(_)) || mode.get() != StartMode::BuildInitialCache
        }
    }
}

/// Defines the methods that the older caches share, for a cache with the fields `cache` and `mode`. The texts say what
/// `initialized` waits for and what `rebuild` reads.
macro_rules! legacy_methods {
    ($cache:ident, $initialized:literal, $rebuild:literal, $refused:literal) => {
        impl $cache {
            #[doc = $initialized]
            ///
            /// # Errors
            ///
            /// * `CacheError::NotStarted`, `CacheError::Closed`: the cache does not run.
            /// * `CacheError::Framework`: the path cannot be read. The cache tries again in the background, with pauses
            ///   of up to 30 s.
            /// * `CacheError::TooManyNodes`: more than 10,000 nodes, or the limit of the options, over a client without
            ///   recursive watches.
            /// * `CacheError::Panicked`: a closure of the options has panicked, and the cache has ended. Create another
            ///   one.
            ///
            /// # Cancel safety
            ///
            /// Nothing is lost when the future is dropped.
            pub async fn initialized(&self) -> Result<(), $crate::caches::error::CacheError> {
                self.cache.initialized().await
            }

            /// Waits like [`initialized`](Self::initialized) for at most `budget`:
            /// [`CuratorCache::initialized_timeout`](crate::CuratorCache::initialized_timeout).
            ///
            /// # Errors
            ///
            /// * `CacheError::NotStarted`, `CacheError::Closed`: the cache does not run.
            /// * `Error::ConnectionLoss`: the budget ended without a connection.
            /// * `CacheError::Framework`: the path cannot be read. The cache tries again in the background, with pauses
            ///   of up to 30 s.
            /// * `CacheError::TooManyNodes`: more than 10,000 nodes, or the limit of the options, over a client without
            ///   recursive watches.
            /// * `CacheError::Panicked`: a closure of the options has panicked, and the cache has ended. Create another
            ///   one.
            ///
            /// # Cancel safety
            ///
            /// Nothing is lost when the future is dropped.
            pub async fn initialized_timeout(
                &self,
                budget: std::time::Duration,
            ) -> Result<Option<()>, $crate::caches::error::CacheError> {
                self.cache.initialized_timeout(budget).await
            }

            /// Waits until the cache shows all that other clients wrote before the call:
            /// [`CuratorCache::synced`](crate::CuratorCache::synced).
            ///
            /// # Errors
            ///
            /// * `CacheError::NotStarted`, `CacheError::Closed`: the cache does not run.
            /// * `Error::ConnectionLoss`, `Error::SessionExpired`: no connection, or no reply to the `sync`. Call it
            ///   again.
            /// * `CacheError::Framework`: the path cannot be read. The cache tries again in the background, with pauses
            ///   of up to 30 s.
            /// * `CacheError::TooManyNodes`: more than 10,000 nodes, or the limit of the options, over a client without
            ///   recursive watches.
            /// * `CacheError::Panicked`: a closure of the options has panicked, and the cache has ended. Create another
            ///   one.
            ///
            /// # Cancel safety
            ///
            /// Nothing is lost when the future is dropped.
            pub async fn synced(&self) -> Result<curator_framework::Zxid, $crate::caches::error::CacheError> {
                self.cache.synced().await
            }

            /// Returns the path.
            #[must_use]
            pub fn path(&self) -> &str {
                self.cache.path()
            }

            /// Returns the age of the contents.
            #[must_use]
            pub fn state(&self) -> $crate::caches::model::CacheState {
                self.cache.state()
            }

            /// Returns the age of the contents as a channel. It may skip states.
            #[must_use]
            pub fn watch(&self) -> tokio::sync::watch::Receiver<$crate::caches::model::CacheState> {
                self.cache.watch()
            }

            /// Removes a listener. A call that runs continues.
            pub fn remove_listener(&self, id: curator_framework::ListenerId) {
                self.cache.remove_listener(id);
            }

            #[doc = $rebuild]
            ///
            /// # Errors
            ///
            /// * `CacheError::NotStarted`, `CacheError::Closed`: the cache does not run.
            #[doc = concat!("* `CacheError::Framework`: ", $refused)]
            /// * `CacheError::TooManyNodes`: more nodes than the cache watches one by one.
            /// * `CacheError::Panicked`: a closure of the options has panicked, and the cache has ended.
            ///
            /// # Cancel safety
            ///
            /// The reading continues when the future is dropped.
            pub async fn rebuild(&self) -> Result<(), $crate::caches::error::CacheError> {
                self.cache.rebuild().await
            }

            /// Ends the cache and its streams, and removes its watch. The nodes stay. Resolves within the client's
            /// [`max_close_wait`](curator_framework::CuratorFrameworkBuilder::max_close_wait). Closing twice is fine.
            ///
            /// # Cancel safety
            ///
            /// The closing continues when the future is dropped.
            pub async fn close(&self) {
                self.cache.close().await;
            }
        }

        impl std::fmt::Debug for $cache {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut debug = f.debug_struct(stringify!($cache));
                debug.field("path", &self.path()).field("state", &self.state()).finish_non_exhaustive()
            }
        }
    };
}
pub(super) use legacy_methods;

//! The older cache of one node.

use std::sync::Arc;

use curator_framework::{Changes, CuratorFramework, ListenerId};

use super::curator_cache::CuratorCache;
use super::error::CacheError;
use super::events::{CacheEvent, Heard};
use super::legacy::{Mode, StartMode, call, events_of, legacy_methods};
use super::model::ChildData;
use super::options::CuratorCacheOptions;

/// A change of the node of a [`NodeCache`]: a call of Curator's `nodeChanged`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeChanged {
    /// The node; `None` if it does not exist or cannot be read.
    pub node: Option<Arc<ChildData>>,
}

/// A local copy of one node: Curator's `NodeCache`, for programs that migrate. New ones use a [`CuratorCache`].
///
/// [Clones](crate#handles) are cheap, and all clones are one cache. They keep the client open. [`close`](Self::close),
/// or the drop of the last clone, ends the cache. [`CuratorCache`] says what the contents promise.
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
/// use curator_recipes::NodeCache;
///
/// let cache = NodeCache::new(client.clone(), "/motto")?;
/// cache.start_with_initial_build().await?;
/// assert!(cache.current_data().is_none());
///
/// let mut events = cache.changes();
/// client.create().with_data("carpe diem").for_path("/motto").await?;
/// let node = events.recv().await.and_then(|change| change.node).expect("the node exists");
/// assert_eq!(node.data, b"carpe diem");
/// # cache.close().await;
/// # Ok(())
/// # }
/// ```
///
/// # Differences from Curator
///
/// | Curator | here |
/// | --- | --- |
/// | `nodeChanged()` says that something has changed | [`NodeChanged`] has the node |
/// | a node that is deleted and created again at once may be one call | two changes: `None`, then the new node |
/// | creates the missing parents of the path as containers | creates nothing: the watch needs no parents |
/// | reads the node again after each lost connection | reads it only if it has changed |
/// | `rebuild` drops changes without an event | [`rebuild`](Self::rebuild) reports each change that it finds |
///
/// # Cost
///
/// | case | requests |
/// | --- | --- |
/// | load | 1 persistent watch, 1 read |
/// | the node is created or changes | 1 read |
/// | the node is deleted | none |
/// | lost connection, new session | as of a [`CuratorCache`] with one node |
#[derive(Clone)]
pub struct NodeCache {
    cache: CuratorCache,
    mode: Mode,
}

impl NodeCache {
    /// Returns a cache of a node, not yet started. No request.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`: ZooKeeper does not allow this path.
    pub fn new(client: CuratorFramework, path: impl Into<String>) -> Result<Self, CacheError> {
        Self::with_options(client, path, CuratorCacheOptions::new())
    }

    /// Returns a cache with these options, not yet started: [`compressed`](CuratorCacheOptions::compressed) is
    /// Curator's `dataIsCompressed`. The depth is always 0. No request.
    ///
    /// # Errors
    ///
    /// * `Error::InvalidPath`: ZooKeeper does not allow this path.
    /// * `CacheError::InvalidArgument`: the options have another [`max_depth`](CuratorCacheOptions::max_depth), or
    ///   [`max_events`](CuratorCacheOptions::max_events) is 0.
    /// * `CacheError::InvalidArgument`: the snapshot to resume from has another path, no data or another setting of
    ///   [`compressed`](CuratorCacheOptions::compressed).
    pub fn with_options(
        client: CuratorFramework,
        path: impl Into<String>,
        options: CuratorCacheOptions,
    ) -> Result<Self, CacheError> {
        let cache = CuratorCache::with_options(client, path, options.of_depth(0)?)?;
        Ok(Self { cache, mode: Mode::default() })
    }

    /// Starts to read the node, in the background, now or when the client is connected: Curator's `start(false)`. The
    /// events start with the node, if it exists.
    ///
    /// # Errors
    ///
    /// * `CacheError::AlreadyStarted`, `CacheError::Closed`: a cache starts once.
    /// * `Error::NoRuntime`: call it in a tokio runtime.
    pub fn start(&self) -> Result<(), CacheError> {
        self.mode.set(&self.cache, StartMode::Normal);
        self.cache.start()
    }

    /// Starts the cache, and waits until it has read the node: Curator's `start(true)`. The events start with the first
    /// change after that.
    ///
    /// # Errors
    ///
    /// * `CacheError::AlreadyStarted`, `CacheError::Closed`: a cache starts once, or it was closed during the call.
    /// * `Error::NoRuntime`: call it in a tokio runtime.
    /// * `CacheError::Framework`: the node cannot be read: the server refuses it, or the reply is above the client's
    ///   limit. The cache tries again in the background, with pauses of up to 30 s.
    /// * `CacheError::Panicked`: a closure of the options has panicked, and the cache has ended. Create another one.
    ///
    /// # Cancel safety
    ///
    /// The cache is started when the future is dropped after its first poll.
    pub async fn start_with_initial_build(&self) -> Result<(), CacheError> {
        self.mode.set(&self.cache, StartMode::BuildInitialCache);
        self.cache.start()?;
        self.cache.initialized().await
    }

    /// Returns the node as the cache knows it; `None` if it does not exist or was not read.
    #[must_use]
    pub fn current_data(&self) -> Option<Arc<ChildData>> {
        self.cache.get(self.path()).present()
    }

    /// Returns the changes as a stream. It starts with the node, if it exists, unless the cache was started by
    /// [`start_with_initial_build`](Self::start_with_initial_build). A slow reader may miss changes, not the last one.
    #[doc(alias = "NodeCacheListener")]
    pub fn changes(&self) -> Changes<NodeChanged> {
        let (mut passes, mut was_reset, mut is_shown) = (self.mode.beginning(), false, false);
        let translate = move |heard: Heard| {
            let passes = passes(&heard);
            let Heard::Event(event) = heard else { return None };
            let node = match event {
                CacheEvent::Created(node) | CacheEvent::Changed { new: node, .. } => Some(node),
                CacheEvent::Deleted(_) => None,
                CacheEvent::Reset => {
                    was_reset = true;
                    return None;
                }
                // The node was deleted among the changes that were dropped.
                CacheEvent::Initialized if was_reset => None,
                CacheEvent::Failed { .. } if is_shown => None,
                CacheEvent::Initialized | CacheEvent::Failed { .. } => return None,
            };
            (was_reset, is_shown) = (false, node.is_some());
            passes.then_some(NodeChanged { node })
        };
        events_of(&self.cache, translate)
    }

    /// Calls a closure for each change, on a thread of its own. The calls start as a [stream](Self::changes).
    ///
    /// A listener must not own a clone of its cache: it would keep the cache, and so the client, until
    /// [`close`](Self::close). Its events have the nodes.
    pub fn add_listener(&self, listener: impl Fn(&NodeChanged) + Send + Sync + 'static) -> ListenerId {
        call(&self.cache, self.changes(), listener)
    }
}

legacy_methods! {
    NodeCache,
    " Waits until the cache has read the node, or knows that it does not exist.",
    " Reads the node again, and waits for the reply.",
    "the server refuses to show the node."
}

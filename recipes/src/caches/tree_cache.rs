//! The older cache of a tree.

use std::collections::BTreeMap;
use std::sync::Arc;

use curator_framework::{Changes, ConnectionState, CuratorFramework, ListenerId};

use super::curator_cache::CuratorCache;
use super::error::CacheError;
use super::events::{CacheEvent, Heard, Notice};
use super::legacy::{call, events_of, legacy_methods};
use super::model::ChildData;
use super::options::CuratorCacheOptions;

/// An event of a [`TreeCache`]: Curator's `TreeCacheEvent`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum TreeCacheEvent {
    /// A node was created, or was read for the first time.
    NodeAdded(Arc<ChildData>),
    /// The data of a node has changed. States between the two may be skipped.
    NodeUpdated {
        /// The earlier state.
        old: Arc<ChildData>,
        /// The present state.
        new: Arc<ChildData>,
    },
    /// A node was deleted. This is its last state.
    NodeRemoved(Arc<ChildData>),
    /// The connection is lost, and the session may be alive.
    ConnectionSuspended,
    /// The client is connected again.
    ConnectionReconnected,
    /// The session has ended.
    ConnectionLost,
    /// The load is complete. After `ConnectionLost` it follows again, after the changes between the sessions.
    Initialized,
    /// The reader was too slow, and events were dropped. Forget all nodes: a `NodeAdded` for each present node follows.
    Reset,
    /// A node cannot be read: see [`CacheEvent::Failed`](crate::CacheEvent::Failed).
    Failed {
        /// The full path.
        path: String,
        /// The error.
        error: CacheError,
    },
}

impl TreeCacheEvent {
    /// Returns the node of the event, if it is about one: Curator's `getData`.
    #[must_use]
    pub fn data(&self) -> Option<&ChildData> {
        match self {
            Self::NodeAdded(node) | Self::NodeUpdated { new: node, .. } | Self::NodeRemoved(node) => Some(node),
            _ => None,
        }
    }

    /// Returns the earlier state of a node that has changed: Curator's `getOldData`.
    #[must_use]
    pub fn old_data(&self) -> Option<&ChildData> {
        match self {
            Self::NodeUpdated { old, .. } => Some(old),
            _ => None,
        }
    }
}

/// Builds a [`TreeCache`]: Curator's `TreeCache.Builder`.
#[derive(Debug)]
#[must_use = "a builder does nothing by itself"]
pub struct TreeCacheBuilder {
    client: CuratorFramework,
    path: String,
    options: CuratorCacheOptions,
}

impl TreeCacheBuilder {
    /// Sets whether the cache keeps the data of the nodes, beside their stats. It does unless set.
    pub fn cache_data(mut self, cache_data: bool) -> Self {
        self.options.drops_data = !cache_data;
        self
    }

    /// Sets whether the data is decompressed: see [`CuratorCacheOptions::compressed`].
    pub fn data_is_compressed(mut self, is_compressed: bool) -> Self {
        self.options.compressed = is_compressed.then_some(true);
        self
    }

    /// Caches at most this many levels below the path; 0 is only the node.
    pub fn max_depth(mut self, levels: usize) -> Self {
        self.options.max_depth = Some(levels);
        self
    }

    /// Sets whether the cache creates the path and its parents, as far as they are missing, when it starts. They
    /// are containers. It does not unless set.
    pub fn create_parent_nodes(mut self, create: bool) -> Self {
        self.options.creates_root = create;
        self
    }

    /// Chooses the nodes: Curator's `TreeCacheSelector`. Both closures get full paths, and must not block: the cache calls
    /// them under its lock. A panic ends the cache as [`CacheError::Panicked`].
    ///
    /// | closure | returns `false` |
    /// | --- | --- |
    /// | `traverse_children` | nothing below the path is read |
    /// | `accept_child` | the path is not read, nor anything below it; the path of the cache itself is always read |
    #[doc(alias = "TreeCacheSelector")]
    #[doc(alias = "traverseChildren")]
    #[doc(alias = "acceptChild")]
    pub fn selector(
        mut self,
        traverse_children: impl Fn(&str) -> bool + Send + Sync + 'static,
        accept_child: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.options = self.options.descend(traverse_children).filter(accept_child);
        self
    }

    /// Sets how many events wait for a slow reader: see [`CuratorCacheOptions::max_events`].
    pub fn max_events(mut self, events: usize) -> Self {
        self.options = self.options.max_events(events);
        self
    }

    /// Sets how much data waits for a slow reader: see [`CuratorCacheOptions::max_event_bytes`].
    pub fn max_event_bytes(mut self, bytes: usize) -> Self {
        self.options = self.options.max_event_bytes(bytes);
        self
    }

    /// Returns the cache, not yet started. No request.
    ///
    /// # Errors
    ///
    /// * `Error::InvalidPath`: ZooKeeper does not allow this path.
    /// * `CacheError::InvalidArgument`: [`max_events`](CuratorCacheOptions::max_events) is 0.
    pub fn build(self) -> Result<TreeCache, CacheError> {
        Ok(TreeCache {
            cache: CuratorCache::with_options(self.client, self.path, self.options.reporting_connection())?,
        })
    }
}

/// A local copy of a node and all below it: Curator's `TreeCache`, for programs that migrate. New ones use a
/// [`CuratorCache`].
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
/// use curator_recipes::{TreeCache, TreeCacheEvent};
///
/// # client.create().creating_parents_if_needed().with_data("8080").for_path("/config/port").await?;
/// # client.create().creating_parents_if_needed().for_path("/config/private/key").await?;
/// let cache = TreeCache::builder(client.clone(), "/config")
///     .selector(|_| true, |path| path != "/config/private")
///     .build()?;
/// cache.start()?;
/// cache.initialized().await?;
/// let paths: Vec<_> = cache.iter().map(|node| node.path).collect();
/// assert_eq!(paths, ["/config", "/config/port"]);
///
/// let mut events = cache.changes();
/// client.set_data().for_path("/config/port", "9090").await?;
/// while let Some(event) = events.recv().await {
///     if let TreeCacheEvent::NodeUpdated { old, new } = event {
///         assert_eq!((&*old.data, &*new.data), (&b"8080"[..], &b"9090"[..]));
///         break;
///     }
/// }
/// # cache.close().await;
/// # Ok(())
/// # }
/// ```
///
/// # Differences from Curator
///
/// | Curator | here |
/// | --- | --- |
/// | a node that is deleted and created again may be one `NODE_UPDATED` | `NodeRemoved`, then `NodeAdded` |
/// | of a deleted subtree, a parent may be reported before its children | children first |
/// | reads all nodes again after each lost connection | reads those that have changed |
/// | `disableZkWatches` | the cache always follows its nodes; a listing reads them once |
/// | the error listener gets the exceptions of listeners | [`add_error_listener`](Self::add_error_listener) gets the errors of nodes; a panic of a listener is caught and logged |
/// | an unbounded queue of events | [`max_events`](TreeCacheBuilder::max_events), then `Reset` |
///
/// # Cost
///
/// The cost of a [`CuratorCache`], and with [`create_parent_nodes`](TreeCacheBuilder::create_parent_nodes) 1 request at
/// the start, more if nodes are missing.
#[derive(Clone)]
pub struct TreeCache {
    cache: CuratorCache,
}

impl TreeCache {
    /// Returns a cache of a node and all below it, not yet started. No request.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`: ZooKeeper does not allow this path.
    pub fn new(client: CuratorFramework, path: impl Into<String>) -> Result<Self, CacheError> {
        Self::builder(client, path).build()
    }

    /// Returns a builder for a cache: Curator's `newBuilder`.
    #[doc(alias = "newBuilder")]
    pub fn builder(client: CuratorFramework, path: impl Into<String>) -> TreeCacheBuilder {
        TreeCacheBuilder { client, path: path.into(), options: CuratorCacheOptions::new() }
    }

    /// Starts to fill the cache, in the background, now or when the client is connected. With
    /// [`create_parent_nodes`](TreeCacheBuilder::create_parent_nodes) it creates the path first. If that fails, the cache
    /// tries again, with pauses of up to 30 s, and [`initialized`](Self::initialized) returns the error if it lasts.
    ///
    /// # Errors
    ///
    /// * `CacheError::AlreadyStarted`, `CacheError::Closed`: a cache starts once.
    /// * `Error::NoRuntime`: call it in a tokio runtime.
    pub fn start(&self) -> Result<(), CacheError> {
        self.cache.start()
    }

    /// Returns the node at a full path; `None` if it does not exist or was not read.
    #[must_use]
    pub fn current_data(&self, path: &str) -> Option<Arc<ChildData>> {
        self.cache.get(path).present()
    }

    /// Returns the children of a node by their names; `None` if the node is not in the cache.
    #[must_use]
    pub fn current_children(&self, path: &str) -> Option<BTreeMap<String, Arc<ChildData>>> {
        self.cache.children(path)
    }

    /// Returns all nodes at one moment, parents before their children, children in the order of their names. It copies
    /// the data.
    #[must_use]
    #[doc(alias = "iterator")]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = ChildData> + use<> {
        self.cache.nodes().into_iter()
    }

    /// Returns the number of nodes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.cache.len()
    }

    /// Returns the events as a stream. It starts with a `NodeAdded` for each node that is in the cache now.
    #[doc(alias = "TreeCacheListener")]
    pub fn changes(&self) -> Changes<TreeCacheEvent> {
        events_of(&self.cache, translate)
    }

    /// Calls a closure for each event, on a thread of its own. The calls start as a [stream](Self::changes).
    ///
    /// A listener must not own a clone of its cache: it would keep the cache, and so the client, until
    /// [`close`](Self::close). Its events have the nodes.
    pub fn add_listener(&self, listener: impl Fn(&TreeCacheEvent) + Send + Sync + 'static) -> ListenerId {
        call(&self.cache, self.changes(), listener)
    }

    /// Calls a closure with each error of a node, on a thread of its own: Curator's unhandled errors.
    #[doc(alias = "getUnhandledErrorListenable")]
    pub fn add_error_listener(&self, listener: impl Fn(&CacheError) + Send + Sync + 'static) -> ListenerId {
        let errors = events_of(&self.cache, |heard| match heard {
            Heard::Event(CacheEvent::Failed { error, .. }) => Some(error),
            _ => None,
        });
        call(&self.cache, errors, listener)
    }
}

legacy_methods! {
    TreeCache,
    " Waits until the first load is complete. A path that does not exist is an empty cache.",
    " Reads all nodes again, and waits for the replies.",
    "the server refuses to show the path."
}

/// Turns an event of a [`CuratorCache`] into an event of a [`TreeCache`].
fn translate(heard: Heard) -> Option<TreeCacheEvent> {
    use TreeCacheEvent as Event;
    Some(match heard {
        Heard::Event(CacheEvent::Created(node)) => Event::NodeAdded(node),
        Heard::Event(CacheEvent::Changed { old, new }) => Event::NodeUpdated { old, new },
        Heard::Event(CacheEvent::Deleted(node)) => Event::NodeRemoved(node),
        Heard::Event(CacheEvent::Reset) => Event::Reset,
        Heard::Event(CacheEvent::Failed { path, error }) => Event::Failed { path, error },
        Heard::Event(CacheEvent::Initialized) | Heard::Notice(Notice::Refreshed) => Event::Initialized,
        Heard::Notice(Notice::Connection(ConnectionState::Suspended)) => Event::ConnectionSuspended,
        Heard::Notice(Notice::Connection(ConnectionState::Reconnected)) => Event::ConnectionReconnected,
        Heard::Notice(Notice::Connection(ConnectionState::Lost)) => Event::ConnectionLost,
        Heard::Notice(Notice::Connection(_)) => return None,
    })
}

//! The older cache of a node's children.

use std::collections::BTreeMap;
use std::sync::Arc;

use curator_framework::{Changes, ConnectionState, CuratorFramework, ListenerId};

use super::curator_cache::CuratorCache;
use super::error::CacheError;
use super::events::{CacheEvent, Heard, Notice};
use super::legacy::{Mode, StartMode, call, events_of, legacy_methods};
use super::model::{ChildData, Lookup};
use super::options::CuratorCacheOptions;

/// An event of a [`PathChildrenCache`]: Curator's `PathChildrenCacheEvent`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum PathChildrenCacheEvent {
    /// A child was created, or was read for the first time.
    ChildAdded(Arc<ChildData>),
    /// The data of a child has changed. This is the present state; states before it may be skipped.
    ChildUpdated(Arc<ChildData>),
    /// A child was deleted. This is its last state.
    ChildRemoved(Arc<ChildData>),
    /// The connection is lost, and the session may be alive.
    ConnectionSuspended,
    /// The client is connected, for the first time or again.
    ConnectionReconnected,
    /// The session has ended.
    ConnectionLost,
    /// The load is complete. These are its children, in the order of their paths. Only
    /// [`StartMode::PostInitializedEvent`] asks for it.
    #[doc(alias = "getInitialData")]
    Initialized(Vec<Arc<ChildData>>),
    /// The reader was too slow, and events were dropped. Forget all children: a `ChildAdded` for each present child
    /// follows.
    Reset,
    /// A node cannot be read: see [`CacheEvent::Failed`](crate::CacheEvent::Failed).
    Failed {
        /// The full path.
        path: String,
        /// The error.
        error: CacheError,
    },
}

impl PathChildrenCacheEvent {
    /// Returns the child of the event, if it is about one: Curator's `getData`.
    #[must_use]
    pub fn data(&self) -> Option<&ChildData> {
        match self {
            Self::ChildAdded(child) | Self::ChildUpdated(child) | Self::ChildRemoved(child) => Some(child),
            _ => None,
        }
    }
}

/// A local copy of a node's children: Curator's `PathChildrenCache`, for programs that migrate. New ones use a
/// [`CuratorCache`].
///
/// The cache creates a path that does not exist as a container, and again after a deletion.
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
/// use curator_recipes::{PathChildrenCache, PathChildrenCacheEvent, StartMode};
///
/// let cache = PathChildrenCache::new(client.clone(), "/workers")?;
/// cache.start_with(StartMode::BuildInitialCache).await?;
/// assert!(cache.current_data().is_empty());
///
/// let mut events = cache.changes();
/// client.create().with_data("idle").for_path("/workers/host-7").await?;
/// while let Some(event) = events.recv().await {
///     if let PathChildrenCacheEvent::ChildAdded(child) = event {
///         assert_eq!((&*child.path, &*child.data), ("/workers/host-7", &b"idle"[..]));
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
/// | a child that is deleted and created again may be one `CHILD_UPDATED` | `ChildRemoved`, then `ChildAdded` |
/// | reads all children again after each lost connection | reads those that have changed |
/// | `rebuild` drops changes without an event | [`rebuild`](Self::rebuild) reports each change that it finds |
/// | a child after [`clear`](Self::clear) comes back when any child is created or deleted | it comes back when it changes, at a rebuild, or after a lost connection with other changes of the children |
/// | without `cacheData` events do not have the data | they have it; the cache does not keep it |
/// | an unbounded queue of events | [`max_events`](CuratorCacheOptions::max_events), then `Reset` |
///
/// # Cost
///
/// | case | requests |
/// | --- | --- |
/// | load | 1 recursive watch, 1 read for the path and for each child, 1 listing if there are children |
/// | the path does not exist | the creation of the missing nodes |
/// | a child is created or changes, or the path's data changes | 1 read |
/// | a child is deleted, or a node below a child changes | none; the server notifies of both |
/// | lost connection, new session | as of a [`CuratorCache`] |
#[derive(Clone)]
pub struct PathChildrenCache {
    cache: CuratorCache,
    mode: Mode,
}

impl PathChildrenCache {
    /// Returns a cache of a node's children, not yet started. No request.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`: ZooKeeper does not allow this path.
    pub fn new(client: CuratorFramework, path: impl Into<String>) -> Result<Self, CacheError> {
        Self::with_options(client, path, CuratorCacheOptions::new())
    }

    /// Returns a cache with these options, not yet started. [`without_data`](CuratorCacheOptions::without_data) is
    /// Curator's `cacheData = false`, [`compressed`](CuratorCacheOptions::compressed) its `dataIsCompressed`. The depth
    /// is always 1. No request.
    ///
    /// # Errors
    ///
    /// * `Error::InvalidPath`: ZooKeeper does not allow this path.
    /// * `CacheError::InvalidArgument`: the options have another [`max_depth`](CuratorCacheOptions::max_depth), or
    ///   [`max_events`](CuratorCacheOptions::max_events) is 0.
    /// * `CacheError::InvalidArgument`: the snapshot to resume from has another path, fewer levels, no data or another
    ///   setting of `compressed`.
    pub fn with_options(
        client: CuratorFramework,
        path: impl Into<String>,
        options: CuratorCacheOptions,
    ) -> Result<Self, CacheError> {
        let options = options.of_depth(1)?.keeping_root().reporting_connection();
        let cache = CuratorCache::with_options(client, path, options)?;
        Ok(Self { cache, mode: Mode::default() })
    }

    /// Starts to fill the cache, in the background, now or when the client is connected: [`StartMode::Normal`].
    ///
    /// # Errors
    ///
    /// * `CacheError::AlreadyStarted`, `CacheError::Closed`: a cache starts once.
    /// * `Error::NoRuntime`: call it in a tokio runtime.
    pub fn start(&self) -> Result<(), CacheError> {
        self.mode.set(&self.cache, StartMode::Normal);
        self.cache.start()
    }

    /// Starts the cache in a mode. [`StartMode::BuildInitialCache`] waits until the path exists and its children are
    /// loaded. The other modes wait for nothing.
    ///
    /// # Errors
    ///
    /// * `CacheError::AlreadyStarted`, `CacheError::Closed`: a cache starts once, or it was closed during the call.
    /// * `Error::NoRuntime`: call it in a tokio runtime.
    ///
    /// With `BuildInitialCache` also:
    /// * `CacheError::Framework`: the children cannot be listed, or a path that does not exist cannot be created, for
    ///   example for `Error::NoAuth` or `Error::NoChildrenForEphemerals`. The cache continues to try.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up on creating the path.
    /// * `CacheError::TooManyNodes`: more than 10,000 children, or the limit of the options, over a client without
    ///   recursive watches.
    /// * `CacheError::Panicked`: a closure of the options has panicked, and the cache has ended. Create another one.
    ///
    /// # Cancel safety
    ///
    /// The cache is started when the future is dropped after its first poll.
    pub async fn start_with(&self, mode: StartMode) -> Result<(), CacheError> {
        self.mode.set(&self.cache, mode);
        self.cache.start()?;
        if mode == StartMode::BuildInitialCache {
            self.cache.initialized().await?;
            self.ensure_path().await?;
        }
        Ok(())
    }

    async fn ensure_path(&self) -> Result<(), CacheError> {
        if let Lookup::Missing = self.cache.get(self.path()) {
            self.cache.client().create_containers(self.path()).await?;
            self.cache.caught_up().await?;
        }
        Ok(())
    }

    /// Returns the children at one moment, in the order of their paths. It copies the data.
    #[must_use]
    pub fn current_data(&self) -> Vec<Arc<ChildData>> {
        self.cache.children(self.path()).unwrap_or_default().into_values().collect()
    }

    /// Returns the child at a full path; `None` if it does not exist or was not read: Curator's `getCurrentData(path)`.
    #[must_use]
    pub fn current_data_of(&self, path: &str) -> Option<Arc<ChildData>> {
        self.cache.get(path).present().filter(|node| node.path != self.path())
    }

    /// Returns the events as a stream. It starts with a `ChildAdded` for each child that is in the cache now, unless
    /// the mode is [`StartMode::BuildInitialCache`].
    #[doc(alias = "PathChildrenCacheListener")]
    pub fn changes(&self) -> Changes<PathChildrenCacheEvent> {
        let mut passes = self.mode.beginning();
        let mut translator =
            Translator { root: self.path().to_owned(), mode: self.mode.clone(), initial: Some(BTreeMap::new()) };
        events_of(&self.cache, move |heard| {
            let passes = passes(&heard);
            translator.translate(heard).filter(|_| passes)
        })
    }

    /// Calls a closure for each event, on a thread of its own. The calls start as a [stream](Self::changes).
    ///
    /// A listener must not own a clone of its cache: it would keep the cache, and so the client, until
    /// [`close`](Self::close). Its events have the nodes.
    pub fn add_listener(&self, listener: impl Fn(&PathChildrenCacheEvent) + Send + Sync + 'static) -> ListenerId {
        call(&self.cache, self.changes(), listener)
    }

    /// Reads one child again, and waits for the reply.
    ///
    /// # Errors
    ///
    /// * `CacheError::InvalidArgument`: the full path is not the path of a child.
    /// * `CacheError::NotStarted`, `CacheError::Closed`.
    ///
    /// # Cancel safety
    ///
    /// The reading continues when the future is dropped.
    pub async fn rebuild_node(&self, path: &str) -> Result<(), CacheError> {
        let name = path.strip_prefix(self.path().trim_end_matches('/')).and_then(|rest| rest.strip_prefix('/'));
        if name.is_none_or(|name| name.is_empty() || name.contains('/')) {
            let reason = format!("{path} is not a child of {}", self.path());
            return Err(CacheError::InvalidArgument { argument: "path", reason });
        }
        self.cache.read_again(path).await
    }

    /// Forgets all children, without events and without a request.
    pub fn clear(&self) {
        self.cache.forget_below_root();
    }

    /// Forgets all children, and reads them again in the background. The events report each as added.
    pub fn clear_and_refresh(&self) {
        self.cache.forget_below_root();
        self.cache.reads_all();
    }

    /// Forgets the data of a child, to save memory, until the child changes.
    pub fn clear_data_bytes(&self, path: &str) {
        self.cache.forget_data(path, None);
    }

    /// Forgets the data of a child in this version: Curator's `clearDataBytes(path, ifVersion)`. Returns `false` if the
    /// child is in another version, or not in the cache.
    #[must_use]
    pub fn clear_data_bytes_if_version(&self, path: &str, version: i32) -> bool {
        self.cache.forget_data(path, Some(version))
    }
}

legacy_methods! {
    PathChildrenCache,
    " Waits until the children are loaded. A path that does not exist has none.",
    " Reads all children again, and waits for the replies.",
    "the server refuses to show the path."
}

/// Turns the events of a [`CuratorCache`] into the events of a [`PathChildrenCache`].
struct Translator {
    root: String,
    mode: Mode,
    /// The children so far; `None` after the load.
    initial: Option<BTreeMap<String, Arc<ChildData>>>,
}

impl Translator {
    fn translate(&mut self, heard: Heard) -> Option<PathChildrenCacheEvent> {
        use PathChildrenCacheEvent as Event;
        let event = match heard {
            Heard::Event(event) => event,
            Heard::Notice(Notice::Refreshed | Notice::Connection(ConnectionState::ReadOnly)) => return None,
            Heard::Notice(Notice::Connection(ConnectionState::Suspended)) => return Some(Event::ConnectionSuspended),
            Heard::Notice(Notice::Connection(ConnectionState::Lost)) => return Some(Event::ConnectionLost),
            Heard::Notice(Notice::Connection(_)) => return Some(Event::ConnectionReconnected),
        };
        match event {
            CacheEvent::Created(node) => self.has(node).map(Event::ChildAdded),
            CacheEvent::Changed { new, .. } => self.has(new).map(Event::ChildUpdated),
            CacheEvent::Deleted(node) => {
                self.initial.as_mut().and_then(|initial| initial.remove(&node.path));
                (node.path != self.root).then_some(Event::ChildRemoved(node))
            }
            CacheEvent::Initialized => {
                let initial = self.initial.take().unwrap_or_default().into_values().collect();
                (self.mode.get() == StartMode::PostInitializedEvent).then_some(Event::Initialized(initial))
            }
            CacheEvent::Reset => {
                self.initial = Some(BTreeMap::new());
                Some(Event::Reset)
            }
            CacheEvent::Failed { path, error } => Some(Event::Failed { path, error }),
        }
    }

    /// Returns a node that is a child, and records it as loaded, until the load is complete.
    fn has(&mut self, node: Arc<ChildData>) -> Option<Arc<ChildData>> {
        if node.path == self.root {
            return None;
        }
        if let Some(initial) = &mut self.initial {
            initial.insert(node.path.clone(), Arc::clone(&node));
        }
        Some(node)
    }
}

//! Typed nodes that are followed: a local copy over [`CuratorCache`].

pub(crate) mod contents;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use curator_framework::recipe::{RecipeClient as _, catch_panic};
use curator_framework::{Changes, ListenerId, Zxid, make_path};
use futures_util::stream::unfold;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::caches::curator_cache::CuratorCache;
use crate::caches::events::CacheEvent;
use crate::caches::listener::call_each;
use crate::caches::model::{CacheState, Lookup};
use crate::caches::options::CuratorCacheOptions;
use crate::typed::directory::ModeledFramework;
use crate::typed::error::ModelError;
use contents::{CachedModel, Contents, ModelChange, State, Undecoded};

/// The node that each server has at its root.
const RESERVED: &str = "/zookeeper";

/// A local copy of typed nodes, which follows the servers and reports how fresh it is: Curator's
/// `CachedModeledFramework`. [`ModeledFramework::cached`] returns one.
///
/// It is a [`CuratorCache`] of the nodes directly below the path. The newest state of a node is decoded once, at the first
/// call that needs it, for any number of readers and [streams](Self::changes). A stream that lags decodes the earlier
/// states again. The codec runs in the call or the stream that needs the value, and must not call the cache: it would wait
/// for itself. A codec that blocks delays all readers. A node that cannot be read or decoded is [apart](Self::broken), and
/// disturbs no other one.
///
/// The contents may be older than the server's, and than the caller's own last write: await
/// [`caught_up`](Self::caught_up) after the write. While the connection is lost the contents stay, and the state is
/// [`Stale`](CacheState::Stale).
///
/// A process that gets a new session replaces its ephemeral nodes, such as a [`PersistentNode`](crate::PersistentNode),
/// in one transaction. The cache keeps them, and reports nothing if their data is the same.
///
/// [Clones](crate#handles) are cheap, and all clones are one cache. They keep the client open. [`close`](Self::close),
/// or the drop of the last clone, ends the cache.
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
/// use curator_recipes::{Lookup, ModelChange, ModelSpec, ModeledFramework, RawCodec};
///
/// let users = ModeledFramework::<String>::new(client, ModelSpec::new("/users/{id}", RawCodec)?)?;
/// let cache = users.cached()?;
/// cache.start()?;
/// cache.initialized().await?;
/// let mut changes = cache.changes();
///
/// users.at("ada")?.set(&"Ada Lovelace".to_owned()).await?;
/// cache.caught_up().await?;
/// match cache.get("ada")? {
///     Lookup::Present(user) => assert_eq!(*user.value, "Ada Lovelace"),
///     other => panic!("{other:?}"),
/// }
/// match changes.recv().await {
///     Some(ModelChange::Added(user)) => assert_eq!(&*user.key, "ada"),
///     other => panic!("{other:?}"),
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
/// | one node that cannot be decoded while the cache loads fails all reads for good | it is [apart](Self::broken) |
/// | a node without data keeps its last value | the codec decides |
/// | nodes at all depths | the children of the path |
/// | `read` and `readThrough` of the cache | [`get`](Self::get); if it is [`NotLoaded`](Lookup::NotLoaded), a [read](crate::ModeledNode::read_opt) of the node |
/// | writes through the cache | writes of a [node](ModeledFramework::at), then [`caught_up`](Self::caught_up) |
/// | `initialized`, `postInitializedOnly` of listeners | await [`initialized`](Self::initialized), then open a [stream](Self::changes): it starts with the present nodes |
///
/// # Cost
///
/// | case | requests |
/// | --- | --- |
/// | load | 1 recursive watch, 1 listing, 1 read for each node |
/// | a node is created or changes | 1 read |
/// | a node is deleted | none, or 1 read if it is ephemeral |
/// | lost connection | 1 read for each changed node: see [`CuratorCache`] |
/// | [`get`](Self::get), [`models`](Self::models) and other reads of the cache | none |
///
/// Events of up to 10,000 changes or 64 MiB wait for the next call. After more, the next call compares all nodes.
#[doc(alias = "CachedModeledFramework")]
#[doc(alias = "ModeledCacheListener")]
pub struct ModeledCache<T> {
    owner: Arc<Owner<T>>,
}

struct Owner<T> {
    /// Keeps the client open.
    nodes: ModeledFramework<T>,
    cache: CuratorCache,
    view: Mutex<View<T>>,
}

/// The nodes up to the last call.
struct View<T> {
    events: Changes<CacheEvent>,
    contents: Contents<T>,
    /// The nodes as the callers get them; `None` after a change.
    models: Option<Arc<[CachedModel<T>]>>,
}

impl<T: Send + Sync + 'static> Owner<T> {
    /// Returns the view with all events that have arrived.
    fn view<R>(&self, read: impl FnOnce(&mut View<T>) -> R) -> R {
        let mut view = self.view.lock();
        view.catch_up(&self.nodes);
        read(&mut view)
    }
}

impl<T: Send + Sync + 'static> View<T> {
    /// Applies all events that have arrived.
    fn catch_up(&mut self, nodes: &ModeledFramework<T>) {
        let mut changes = VecDeque::new();
        while let Ok(event) = self.events.try_recv() {
            if self.contents.apply(&event, |state| decode(nodes, state), &mut changes) {
                self.models = None;
                changes.clear();
            }
        }
    }
}

fn decode<T: 'static>(nodes: &ModeledFramework<T>, state: Undecoded<'_>) -> State<T> {
    let decoded = catch_panic("the codec of a typed node", || nodes.spec().codec.decode(state.data));
    let path = || nodes.client().path_text(&make_path(nodes.path(), state.key));
    let decoded = decoded.unwrap_or_else(|panic| Err(panic.into())).map(Arc::new);
    (decoded.map_err(|cause| ModelError::decode(path(), cause)), state.stat.czxid)
}

impl<T: Send + Sync + 'static> ModeledCache<T> {
    pub(super) fn new(nodes: &ModeledFramework<T>) -> Result<Self, ModelError> {
        let (nodes, compress) = (nodes.clone(), nodes.spec().options.compress);
        // After the close the contents are the last known ones, even if the reader lags.
        let options = CuratorCacheOptions::new().max_depth(1).merge_replacements().do_not_clear_on_close();
        let options = options.decompress(compress);
        let is_root = nodes.client().path_text(nodes.path()).full() == "/";
        let options = if is_root { options.filter(|path| path != RESERVED) } else { options };
        let cache = CuratorCache::with_options(nodes.client().clone(), nodes.path(), options)?;
        let view = View { events: cache.changes(), contents: Contents::new(nodes.path()), models: None };
        Ok(Self { owner: Arc::new(Owner { nodes, cache, view: Mutex::new(view) }) })
    }

    /// Starts to fill the cache, in the background, now or when the client is connected.
    ///
    /// # Errors
    ///
    /// * `CacheError::AlreadyStarted`, `CacheError::Closed`: a cache starts once.
    /// * `Error::NoRuntime`: call it in a tokio runtime.
    pub fn start(&self) -> Result<(), ModelError> {
        Ok(self.owner.cache.start()?)
    }

    /// Waits until the first load is complete. Resolves at once later, even in an outage. A path that does not exist is
    /// an empty cache, and nodes that cannot be decoded do not fail it.
    ///
    /// # Errors
    ///
    /// * `CacheError::NotStarted`, `CacheError::Closed`.
    /// * `CacheError::Framework`: the path cannot be listed. The cache tries again with pauses.
    /// * `CacheError::TooManyNodes`: more than 10,000 nodes over a client without recursive watches.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn initialized(&self) -> Result<(), ModelError> {
        Ok(self.owner.cache.initialized().await?)
    }

    /// Waits like [`initialized`](Self::initialized) for at most `budget`. Returns `Ok(None)` if the budget ends while
    /// the client is connected.
    ///
    /// # Errors
    ///
    /// * `CacheError::NotStarted`, `CacheError::Closed`: the cache does not run.
    /// * `CacheError::Framework`: the path cannot be listed. The cache tries again with pauses.
    /// * `CacheError::TooManyNodes`: more than 10,000 nodes over a client without recursive watches.
    /// * `Error::ConnectionLoss`: the budget ended without a connection.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn initialized_timeout(&self, budget: Duration) -> Result<Option<()>, ModelError> {
        Ok(self.owner.cache.initialized_timeout(budget).await?)
    }

    /// Waits until the contents show each change that a reply to this client has reflected, with the caller's own writes
    /// among them. No request. Returns the transaction up to which the contents show each change.
    ///
    /// # Errors
    ///
    /// * `CacheError::NotStarted`, `CacheError::Closed`: the cache does not run.
    /// * `Error::ConnectionLoss`: the client has no connection within the connection timeout. Call it again.
    /// * `CacheError::Framework`: the path cannot be listed. The cache tries again with pauses.
    /// * `CacheError::TooManyNodes`: more than 10,000 nodes over a client without recursive watches.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn caught_up(&self) -> Result<Zxid, ModelError> {
        Ok(self.owner.cache.caught_up().await?)
    }

    /// Waits until the contents show each write that any client completed before the call. Sends one `sync`. Returns the
    /// transaction up to which the contents show each change.
    ///
    /// # Errors
    ///
    /// * `CacheError::NotStarted`, `CacheError::Closed`: the cache does not run.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: no connection, or no reply to the `sync`. Call it again.
    /// * `CacheError::Framework`: the path cannot be listed. The cache tries again with pauses.
    /// * `CacheError::TooManyNodes`: more than 10,000 nodes over a client without recursive watches.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn synced(&self) -> Result<Zxid, ModelError> {
        Ok(self.owner.cache.synced().await?)
    }

    /// Returns the path: the nodes are its children.
    #[must_use]
    pub fn path(&self) -> &str {
        self.owner.cache.path()
    }

    /// Returns the age of the contents.
    #[must_use]
    pub fn state(&self) -> CacheState {
        self.owner.cache.state()
    }

    /// Returns the age of the contents as a channel. A receiver may skip states.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<CacheState> {
        self.owner.cache.watch()
    }

    /// Returns the node of a key, as the cache knows it; after [`close`](Self::close), as it was known last. No request.
    ///
    /// # Errors
    ///
    /// * `ModelError::Decode`, `ModelError::Cache`: the node exists, and cannot be decoded or read.
    /// * `ModelError::InvalidKey`: the key is not one name of a node.
    #[doc(alias = "currentData")]
    #[doc(alias = "readThrough")]
    pub fn get(&self, key: impl fmt::Display) -> Result<Lookup<CachedModel<T>>, ModelError> {
        let (key, Owner { nodes, cache, .. }) = (key.to_string(), &*self.owner);
        let node = nodes.at(&key)?;
        self.owner.view(|view| {
            loop {
                if let Some(found) = view.contents.get(&key) {
                    return found.map(Lookup::Present);
                }
                match cache.get(node.path()) {
                    // It was created after the first look.
                    Lookup::Present(_) => view.catch_up(nodes),
                    Lookup::Missing => return Ok(Lookup::Missing),
                    Lookup::NotLoaded => {
                        return cache.refusal(node.path()).map_or(Ok(Lookup::NotLoaded), |error| Err(error.into()));
                    }
                }
            }
        })
    }

    /// Returns all nodes with values, in the order of their keys. After [`close`](Self::close) these are the last known
    /// ones.
    #[must_use]
    #[doc(alias = "list")]
    #[doc(alias = "currentChildren")]
    pub fn models(&self) -> Arc<[CachedModel<T>]> {
        self.owner.view(|view| {
            let models = view.models.get_or_insert_with(|| view.contents.models().collect());
            Arc::clone(models)
        })
    }

    /// Returns the keys of the nodes that cannot be read or decoded, each with the reason.
    #[must_use]
    pub fn broken(&self) -> Vec<(String, ModelError)> {
        self.owner.view(|view| {
            let key = |path: &str| view.contents.key_of(path).map(|key| key.to_string());
            let unreadable = self.owner.cache.refusals().into_iter();
            let unreadable = unreadable.filter_map(|(path, error)| Some((key(&path)?, error.into())));
            let all: BTreeMap<_, _> = view.contents.broken().chain(unreadable).collect();
            all.into_iter().collect()
        })
    }

    /// Returns the changes as a stream. It starts with [`Added`](ModelChange::Added) for each present node, and ends with
    /// the cache. A node that had a value and cannot be read now is added with that value, then removed and broken.
    ///
    /// A reader that is slow by more than 10,000 events or 64 MiB gets the differences alone. If a process has replaced its
    /// node since, this is then an update, even with the same data.
    pub fn changes(&self) -> Changes<ModelChange<T>> {
        let following = (self.owner.cache.changes(), self.follower(), VecDeque::new());
        Changes::new(unfold(following, async |(mut events, mut follower, mut pending)| {
            loop {
                if let Some(change) = pending.pop_front() {
                    return Some((change, (events, follower, pending)));
                }
                follower.apply(&events.recv().await?, &mut pending);
            }
        }))
    }

    /// Calls a listener for each change, on a thread where it may block. Like a [stream](Self::changes), the calls start
    /// with the present nodes.
    ///
    /// A listener must not own a clone of its cache: it would keep the cache until [`close`](Self::close).
    pub fn add_listener(&self, listener: impl Fn(&ModelChange<T>) + Send + Sync + 'static) -> ListenerId {
        self.owner.cache.add_listener_task(call_each(self.changes(), listener))
    }

    fn follower(&self) -> Follower<T> {
        let contents = Contents::new(self.path());
        Follower { contents, owner: Arc::downgrade(&self.owner), nodes: self.owner.nodes.weak_clone() }
    }

    /// Removes a listener. A call that runs continues to its end.
    pub fn remove_listener(&self, id: ListenerId) {
        self.owner.cache.remove_listener(id);
    }

    /// Ends the cache and its streams, and removes its watch. The contents stay as they are. Resolves within the client's
    /// [`max_close_wait`](curator_framework::CuratorFrameworkBuilder::max_close_wait). Closing twice is fine.
    ///
    /// # Cancel safety
    ///
    /// The closing continues when the future is dropped after its first poll.
    pub async fn close(&self) {
        self.owner.cache.close().await;
    }
}

/// A reader of all changes. It keeps neither the cache nor the client.
struct Follower<T> {
    contents: Contents<T>,
    owner: Weak<Owner<T>>,
    nodes: ModeledFramework<T>,
}

impl<T: Send + Sync + 'static> Follower<T> {
    fn apply(&mut self, event: &CacheEvent, changes: &mut VecDeque<ModelChange<T>>) {
        let Self { contents, owner, nodes } = self;
        // The value that the cache has decoded from this state. A reader that lags behind the cache decodes an earlier
        // state itself.
        let decoded = |state: Undecoded<'_>| {
            let known = owner.upgrade().and_then(|owner| owner.view(|view| view.contents.decoded(state)));
            known.unwrap_or_else(|| decode(nodes, state))
        };
        contents.apply(event, decoded, changes);
    }
}

impl<T> Clone for ModeledCache<T> {
    fn clone(&self) -> Self {
        Self { owner: Arc::clone(&self.owner) }
    }
}

impl<T> fmt::Debug for ModeledCache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModeledCache").field("cache", &self.owner.cache).finish_non_exhaustive()
    }
}

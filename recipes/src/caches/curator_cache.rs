//! The public cache.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, ready};
use std::sync::Arc;
use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{Changes, CuratorFramework, ListenerId, PathText, Session, Zxid, validate_path};
use futures_util::stream::StreamExt as _;
use tokio::sync::watch;

use super::contents::Shared;
use super::error::CacheError;
use super::events::{CacheEvent, Heard, Takes};
use super::listener::{CuratorCacheListener, ListenerTasks};
use super::model::{CacheState, ChildData, Lookup};
use super::options::CuratorCacheOptions;
use super::snapshot::CacheSnapshot;
use super::task::CacheTask;
use crate::standing::{StandingTask, catch_up, within};

/// A local copy of a node and of all nodes below it, which follows the server and reports how fresh it is: Curator's
/// `CuratorCache`, and its `CuratorCacheBridge`. [`how_it_works`](crate::how_it_works#caches) explains it.
///
/// [Clones](crate#handles) are cheap, and all clones are one cache. They keep the client open. [`close`](Self::close),
/// or the drop of the last clone, ends the cache.
///
/// The contents may be older than the server's: [`state`](Self::state) names the transaction up to which they show each
/// change. While the connection is lost the contents stay, and the state is [`Stale`](CacheState::Stale). An exclusive
/// right to act on a node needs a lock, or a write with the node's version.
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
/// use curator_recipes::{CacheEvent, CuratorCache, Lookup};
///
/// # client.create().creating_parents_if_needed().with_data("8080").for_path("/config/port").await?;
/// let cache = CuratorCache::new(client.clone(), "/config")?;
/// cache.start()?;
/// cache.initialized().await?;
/// match cache.get("/config/port") {
///     Lookup::Present(node) => assert_eq!(node.data, b"8080"),
///     other => panic!("{other:?}"),
/// }
///
/// let mut events = cache.changes();
/// client.set_data().for_path("/config/port", "9090").await?;
/// while let Some(event) = events.recv().await {
///     if let CacheEvent::Changed { old, new } = event {
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
/// | reads each node again after each lost connection | reads the nodes that have changed |
/// | a node that was deleted and created again in an outage may have no event: the cache compares versions (CURATOR-391, in the new cache again) | [`Deleted`](crate::CacheEvent::Deleted), then [`Created`](crate::CacheEvent::Created) |
/// | reads and lists each node in a load, without a limit of the requests in flight | lists only nodes with children, and reads up to 16 nodes in a request; 32 reads in flight |
/// | 5.2.1 to 5.5 cannot load more than 64 k nodes (CURATOR-690) | the [largest number](CuratorCacheOptions::max_watched_nodes) is set, and only where a cache sets watches one by one |
/// | `initialized` is called although the root could not be read, or never if a request throws | [`initialized`](Self::initialized) returns the error |
/// | `get` is empty for a missing node and for one that is not loaded | [`Lookup`] distinguishes these |
/// | the age of the contents is unknown | [`state`](Self::state), [`synced`](Self::synced), [`caught_up`](Self::caught_up) |
/// | the whole subtree or one node | [`max_depth`](CuratorCacheOptions::max_depth), [`filter`](CuratorCacheOptions::filter), [`descend`](CuratorCacheOptions::descend) too |
/// | one thread calls the listeners of all caches of a client | a listener cannot delay another one |
/// | the bridge uses a `TreeCache` with servers before 3.6 | one type; there it sets watches one by one |
/// | storage of the caller's own: `withStorage` | not supported; [`without_data`](CuratorCacheOptions::without_data) keeps only the stats |
///
/// # ZooKeeper layout
///
/// None: a cache creates and changes no node. The path need not exist.
///
/// # Cost
///
/// | case | requests |
/// | --- | --- |
/// | load | 1 recursive watch, 1 read for each node, 1 listing for each node with children |
/// | a node is created or changes | 1 read |
/// | a node is deleted | none |
/// | lost connection | `setWatches` with the cached paths, in parts of 128 KB; 1 read for each changed or created node; 1 listing for each node with created or deleted children |
/// | new session | as after a lost connection, 1 `sync`, and 1 read of the root |
/// | close | the removal of the watch |
///
/// One request has up to 16 of these reads and listings, and fewer if its reply is above 64 KiB.
///
/// With `zookeeper-async`, and with servers before 3.6, the cache sets watches one by one:
///
/// | case | requests |
/// | --- | --- |
/// | load, new session, lost connection (with `zookeeper-async`) | 1 read for each node, 1 listing for each node that is not ephemeral |
/// | a node changes | 1 read |
/// | a node is created | 1 read of it, 1 listing of it and of its parent |
/// | a node is deleted | 1 read of it, 1 listing of its parent |
/// | [`synced`](Self::synced), [`caught_up`](Self::caught_up) | the same as for a load |
///
/// There the server keeps up to two watches for each node, and the cache fails with more nodes than
/// [`max_watched_nodes`](CuratorCacheOptions::max_watched_nodes).
///
/// A parent with very many children needs a larger
/// [`max_reply`](curator_framework::CuratorFrameworkBuilder::max_reply): its listing is one reply. If a listing or a node is
/// above the limit, the cache keeps what it knows, and reports [`Failed`](crate::CacheEvent::Failed). It asks again with
/// pauses that grow from 1 s to 30 s: for a listing until it succeeds, for a node once it has changed.
///
/// Servers from 3.8.4 and
/// 3.9.2 on send no event of a node that the session may not read. So a cached node that becomes unreadable and is
/// deleted stays in the cache until the next lost connection.
#[derive(Clone)]
#[doc(alias = "CuratorCacheAccessor")]
#[doc(alias = "CuratorCacheBridge")]
pub struct CuratorCache {
    owner: Arc<Owner>,
}

struct Owner {
    /// Keeps the client open.
    client: CuratorFramework,
    options: CuratorCacheOptions,
    shared: Arc<Shared>,
    listeners: ListenerTasks,
    task: StandingTask,
}

impl CuratorCache {
    /// Returns a cache of a node and of all nodes below it, not yet started. No request.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`: ZooKeeper does not allow this path.
    pub fn new(client: CuratorFramework, path: impl Into<String>) -> Result<Self, CacheError> {
        Self::with_options(client, path, CuratorCacheOptions::new())
    }

    /// Returns a cache with these options, not yet started. No request.
    ///
    /// # Errors
    ///
    /// * `Error::InvalidPath`: ZooKeeper does not allow this path.
    /// * `CacheError::InvalidArgument`: the snapshot to resume from has another path, fewer levels, no data or another
    ///   setting of [`compressed`](CuratorCacheOptions::compressed); or [`max_events`](CuratorCacheOptions::max_events) is 0.
    #[doc(alias = "CuratorCacheBuilder")]
    pub fn with_options(
        client: CuratorFramework,
        path: impl Into<String>,
        options: CuratorCacheOptions,
    ) -> Result<Self, CacheError> {
        let path = path.into();
        validate_path(&path)?;
        if let Some(reason) = options
            .snapshot
            .as_ref()
            .and_then(|snapshot| options.refusal(snapshot, &path, options.decompresses(&client)))
        {
            return Err(CacheError::InvalidArgument { argument: "resume", reason });
        }
        if options.max_events == 0 {
            let reason = "a stream needs room for an event".to_owned();
            return Err(CacheError::InvalidArgument { argument: "max_events", reason });
        }
        let shared = Shared::new(client.path_text(&path), path, &options);
        let owner = Owner { client, options, shared, listeners: ListenerTasks::default(), task: StandingTask::new() };
        Ok(Self { owner: Arc::new(owner) })
    }

    /// Starts to fill the cache, in the background, now or when the client is connected.
    ///
    /// # Errors
    ///
    /// * `CacheError::AlreadyStarted`, `CacheError::Closed`: a cache starts once.
    /// * `Error::NoRuntime`: call it in a tokio runtime.
    pub fn start(&self) -> Result<(), CacheError> {
        let Owner { client, options, shared, listeners, task } = &*self.owner;
        // Made only for a start that counts: its drop closes the cache. Does not keep the client: the last clone of the
        // cache ends the task.
        let begin = |stop| CacheTask::new(client.weak_clone(), Arc::clone(shared), options).run(stop);
        task.start(begin).map_err(|error| CacheError::of_start(error, self.path_text()))?;
        shared.leave_latent();
        listeners.start();
        Ok(())
    }

    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.owner.shared.root
    }

    pub(super) fn path_text(&self) -> PathText {
        self.owner.client.path_text(self.path())
    }

    /// Returns the node at a full path, as the cache knows it. It may be older than the caller's own last write: await
    /// [`caught_up`](Self::caught_up) after the write, and before a decision that depends on it.
    #[must_use]
    pub fn get(&self, path: &str) -> Lookup {
        self.owner.shared.get(path)
    }

    /// Returns why a node cannot be read.
    pub(crate) fn refusal(&self, path: &str) -> Option<CacheError> {
        self.owner.shared.refusal(path)
    }

    /// Returns the full paths of the nodes that cannot be read, each with the reason.
    pub(crate) fn refusals(&self) -> Vec<(String, CacheError)> {
        self.owner.shared.refusals()
    }

    /// Returns the children of a node by their names; `None` if the node is not in the cache. Children that cannot be read
    /// are left out. The children of a node that itself cannot be read are included.
    #[must_use]
    #[doc(alias = "parentPathFilter")]
    pub fn children(&self, path: &str) -> Option<BTreeMap<String, Arc<ChildData>>> {
        self.owner.shared.children(path)
    }

    /// Returns all nodes at one moment, parents before their children. It copies the data. Nodes that cannot be read are left
    /// out.
    #[must_use]
    #[doc(alias = "stream")]
    pub fn nodes(&self) -> Vec<ChildData> {
        self.owner.shared.nodes()
    }

    /// Returns the number of nodes.
    #[must_use]
    #[doc(alias = "size")]
    pub fn len(&self) -> usize {
        self.owner.shared.len()
    }

    /// Returns `true` if the cache has no nodes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the age of the contents.
    #[must_use]
    pub fn state(&self) -> CacheState {
        self.owner.shared.state.borrow().clone()
    }

    /// Returns the age of the contents as a channel. A receiver may skip states.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<CacheState> {
        self.owner.shared.state.subscribe()
    }

    /// Waits until the first load is complete. Resolves at once after that, even in an outage. A path that does not
    /// exist is an empty cache.
    ///
    /// # Errors
    ///
    /// * `CacheError::NotStarted`, `CacheError::Closed`.
    /// * `CacheError::Framework`: the root cannot be listed or, in a cache of one node, not be read: the server refuses it,
    ///   or the reply is above the client's limit. The cache tries again in the background, with pauses of up to 30 s.
    /// * `CacheError::TooManyNodes`: see [`CuratorCacheOptions::max_watched_nodes`].
    /// * `CacheError::Panicked`: a closure of the options has panicked, and the cache has ended. Create another one.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn initialized(&self) -> Result<(), CacheError> {
        self.owner.shared.is_loaded(|| self.path_text()).await
    }

    /// Waits like [`initialized`](Self::initialized) for at most `budget`. Returns `Ok(None)` if the budget ends while
    /// the client is connected.
    ///
    /// # Errors
    ///
    /// * `CacheError::NotStarted`, `CacheError::Closed`: the cache does not run.
    /// * `Error::ConnectionLoss`: the budget ended without a connection.
    /// * `CacheError::Framework`: the root cannot be listed or, in a cache of one node, not be read. The cache tries
    ///   again in the background, with pauses of up to 30 s.
    /// * `CacheError::TooManyNodes`: see [`CuratorCacheOptions::max_watched_nodes`].
    /// * `CacheError::Panicked`: a closure of the options has panicked, and the cache has ended. Create another one.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn initialized_timeout(&self, budget: Duration) -> Result<Option<()>, CacheError> {
        let request = || format!("loading the cache of {}", self.path());
        within(&self.owner.client, budget, request, self.initialized()).await
    }

    async fn is_fresh(&self) -> Result<(), CacheError> {
        self.owner.shared.reaches(0, None, || self.path_text()).await.map(|_| ())
    }

    /// Waits until the contents show each change that a reply to this client has reflected, its own writes included. No
    /// request. Returns the transaction up to which the contents show each change.
    ///
    /// # Errors
    ///
    /// * `CacheError::NotStarted`, `CacheError::Closed`: the cache does not run.
    /// * `Error::ConnectionLoss`: the client has no connection within the connection timeout. Call it again.
    /// * `CacheError::Framework`: the root cannot be listed or, in a cache of one node, not be read. The cache tries
    ///   again in the background, with pauses of up to 30 s.
    /// * `CacheError::TooManyNodes`: see [`CuratorCacheOptions::max_watched_nodes`].
    /// * `CacheError::Panicked`: a closure of the options has panicked, and the cache has ended. Create another one.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn caught_up(&self) -> Result<Zxid, CacheError> {
        let session = self.started_session().await?;
        self.owner.shared.shows_all_of(&session, || self.path_text()).await
    }

    /// Waits until the contents show each write that any client completed before the call. Sends one `sync`. Returns the
    /// transaction up to which the contents show each change.
    ///
    /// # Errors
    ///
    /// * `CacheError::NotStarted`, `CacheError::Closed`: the cache does not run.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: no connection, or no reply to the `sync`. Call it again.
    /// * `CacheError::Framework`: the root cannot be listed or, in a cache of one node, not be read. The cache tries
    ///   again in the background, with pauses of up to 30 s.
    /// * `CacheError::TooManyNodes`: see [`CuratorCacheOptions::max_watched_nodes`].
    /// * `CacheError::Panicked`: a closure of the options has panicked, and the cache has ended. Create another one.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn synced(&self) -> Result<Zxid, CacheError> {
        let session = self.started_session().await?;
        catch_up(&session, self.path()).await?;
        self.owner.shared.shows_all_of(&session, || self.path_text()).await
    }

    async fn started_session(&self) -> Result<Session, CacheError> {
        match self.state() {
            CacheState::Latent => Err(CacheError::NotStarted { path: self.path_text() }),
            CacheState::Closed => Err(CacheError::Closed { path: self.path_text() }),
            _ => Ok(self.owner.client.session().await?),
        }
    }

    /// Returns the events as a stream. It starts with a [`Created`](crate::CacheEvent::Created) for each node that is
    /// in the cache now. A stream that is not read keeps at most
    /// [`max_event_bytes`](CuratorCacheOptions::max_event_bytes) of data.
    ///
    /// At an event the contents may lack a write of the caller that was completed before. A task that answers events by
    /// writes awaits [`caught_up`](Self::caught_up) after a write, before it reads the contents again.
    pub fn changes(&self) -> Changes<CacheEvent> {
        let heard = self.owner.shared.open_stream(Takes::Events);
        Changes::new(heard.filter_map(|heard| ready(heard.into_event())))
    }

    /// Calls a listener for each event, on a thread where it may block. Like a [stream](Self::changes), the calls start
    /// with the nodes that are in the cache now.
    ///
    /// A listener must not own a clone of its cache: it would keep the cache, and so the client, until
    /// [`close`](Self::close). Its events have the nodes.
    #[expect(clippy::must_use_candidate, reason = "most listeners stay as long as their cache")]
    #[doc(alias = "listenable")]
    pub fn add_listener(&self, listener: CuratorCacheListener) -> ListenerId {
        self.owner.listeners.add(listener.into_work(self.changes()))
    }

    /// Removes a listener. A call that runs continues to its end.
    pub fn remove_listener(&self, id: ListenerId) {
        self.owner.listeners.remove(id);
    }

    /// Returns the contents for a later cache to [resume](CuratorCacheOptions::resume) from; `None` before the first
    /// load is complete. It copies the data.
    #[must_use]
    pub fn snapshot(&self) -> Option<CacheSnapshot> {
        self.owner.shared.snapshot(&self.owner.options, self.owner.options.decompresses(&self.owner.client))
    }

    /// Reads all nodes again, and waits for the replies. Not needed to follow changes.
    ///
    /// # Errors
    ///
    /// * `CacheError::NotStarted`, `CacheError::Closed`: the cache does not run.
    /// * `CacheError::Framework`: the root cannot be listed or, in a cache of one node, not be read. The cache tries
    ///   again in the background, with pauses of up to 30 s.
    /// * `CacheError::TooManyNodes`: see [`CuratorCacheOptions::max_watched_nodes`].
    /// * `CacheError::Panicked`: a closure of the options has panicked, and the cache has ended. Create another one.
    ///
    /// # Cancel safety
    ///
    /// The cache still reads when the future is dropped.
    pub async fn rebuild(&self) -> Result<(), CacheError> {
        self.reads_all();
        self.is_fresh().await
    }

    /// Starts to read all nodes again.
    pub(super) fn reads_all(&self) {
        self.owner.shared.read_all();
    }

    /// Reads a node again, and waits for the reply.
    pub(super) async fn read_again(&self, path: &str) -> Result<(), CacheError> {
        let relative = self.owner.shared.relative(path).unwrap_or_default();
        self.owner.shared.read_again(|engine| engine.read_one(relative));
        self.is_fresh().await
    }

    /// Forgets all nodes but the root, without an event.
    pub(super) fn forget_below_root(&self) {
        self.owner.shared.update(|engine| engine.forget_below_root());
    }

    /// Forgets the data of a node, without an event. Returns `false` if its version is another one, or the node is not
    /// in the cache.
    pub(super) fn forget_data(&self, path: &str, version: Option<i32>) -> bool {
        let Some(relative) = self.owner.shared.relative(path) else { return false };
        self.owner.shared.update(|engine| engine.forget_data(relative, version))
    }

    /// Returns the events, and the changes of the connection among them.
    pub(super) fn events_and_notices(&self) -> Changes<Heard> {
        self.owner.shared.open_stream(Takes::EventsAndNotices)
    }

    /// Adds the work of a listener's task.
    pub(crate) fn add_listener_task(&self, work: impl Future<Output = ()> + Send + 'static) -> ListenerId {
        self.owner.listeners.add(work)
    }

    pub(super) fn client(&self) -> &CuratorFramework {
        &self.owner.client
    }

    /// Ends the cache and its streams, and removes its watch. Clears the contents, unless
    /// [`do_not_clear_on_close`](CuratorCacheOptions::do_not_clear_on_close) is set. Resolves within the client's
    /// [`max_close_wait`](curator_framework::CuratorFrameworkBuilder::max_close_wait). Closing twice is fine.
    ///
    /// # Cancel safety
    ///
    /// The closing continues when the future is dropped.
    pub async fn close(&self) {
        self.owner.task.close(&self.owner.client).await;
        self.owner.shared.close(self.owner.options.keeps_contents);
    }
}

impl fmt::Debug for CuratorCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CuratorCache").field("path", &self.path()).field("state", &self.state()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_cache_loads_from_the_moment_of_its_start() {
        let retry = curator_framework::RetryNTimes::new(0, std::time::Duration::ZERO);
        let client = CuratorFramework::new_client("127.0.0.1:1", retry).unwrap();
        let cache = CuratorCache::new(client, "/config").unwrap();
        assert!(matches!(cache.state(), CacheState::Latent));
        cache.start().unwrap();
        assert!(matches!(cache.state(), CacheState::Loading));
    }
}

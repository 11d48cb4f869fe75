//! The options of a cache.

use std::fmt;
use std::sync::Arc;

use curator_framework::CuratorFramework;
use curator_framework::recipe::RecipeClient as _;

use super::error::CacheError;
use super::snapshot::CacheSnapshot;

/// A predicate of full paths.
pub(super) type FullPathFilter = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Options of a [`CuratorCache`](crate::CuratorCache).
#[derive(Clone)]
#[must_use = "options do nothing by themselves"]
pub struct CuratorCacheOptions {
    pub(super) max_depth: Option<usize>,
    pub(super) accepts: Option<FullPathFilter>,
    pub(super) descends: Option<FullPathFilter>,
    /// `None`: the client's own setting.
    pub(super) compressed: Option<bool>,
    pub(super) drops_data: bool,
    pub(super) keeps_contents: bool,
    /// The root is created, as a container, before the first read.
    pub(super) creates_root: bool,
    /// A root that does not exist is created, as a container.
    pub(super) keeps_root: bool,
    /// The streams report changes of the connection.
    pub(super) reports_connection: bool,
    /// An ephemeral node in the place of an earlier one is a change of it.
    pub(super) merges_replacements: bool,
    pub(super) max_watched_nodes: usize,
    pub(super) max_events: usize,
    pub(super) max_event_bytes: usize,
    pub(super) snapshot: Option<CacheSnapshot>,
}

impl Default for CuratorCacheOptions {
    fn default() -> Self {
        Self {
            max_depth: None,
            accepts: None,
            descends: None,
            compressed: None,
            drops_data: false,
            keeps_contents: false,
            creates_root: false,
            keeps_root: false,
            reports_connection: false,
            merges_replacements: false,
            max_watched_nodes: 10_000,
            max_events: 10_000,
            max_event_bytes: 64 << 20,
            snapshot: None,
        }
    }
}

impl CuratorCacheOptions {
    /// Returns the defaults: the whole subtree with its data.
    pub fn new() -> Self {
        Self::default()
    }

    /// Caches only the node at the path: Curator's `SINGLE_NODE_CACHE`.
    #[doc(alias = "SINGLE_NODE_CACHE")]
    pub fn single_node(self) -> Self {
        self.max_depth(0)
    }

    /// Caches at most this many levels below the path; 0 is only the node.
    pub fn max_depth(mut self, levels: usize) -> Self {
        self.max_depth = Some(levels);
        self
    }

    /// Reads only the paths for which the filter returns `true`, and nothing below the others. The filter gets full
    /// paths. The cache's own path always belongs to the cache. It must not block: the cache calls it under its lock. A
    /// panic ends the cache as [`CacheError::Panicked`](crate::CacheError::Panicked).
    #[doc(alias = "acceptChild")]
    pub fn filter(mut self, accepts: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.accepts = Some(Arc::new(accepts));
        self
    }

    /// Reads nothing below the paths for which the filter returns `false`. These paths belong to the cache. The filter
    /// gets full paths, the cache's own included. It must not block: the cache calls it under its lock. A panic ends the
    /// cache as [`CacheError::Panicked`](crate::CacheError::Panicked).
    #[doc(alias = "traverseChildren")]
    pub fn descend(mut self, descends: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.descends = Some(Arc::new(descends));
        self
    }

    /// Decompresses the data: Curator's `COMPRESSED_DATA`. Empty data stays empty. A node with other data is not shown, and
    /// reported by [`CacheEvent::Failed`](crate::CacheEvent::Failed); the nodes below it are cached. Without this option the
    /// client's own setting decides.
    #[doc(alias = "COMPRESSED_DATA")]
    pub fn compressed(self) -> Self {
        self.decompress(Some(true))
    }

    /// Sets whether the data is decompressed. `None`: the client's own setting decides.
    pub(crate) fn decompress(mut self, decompress: Option<bool>) -> Self {
        self.compressed = decompress;
        self
    }

    /// Keeps only the stats: Curator's `dataNotCached` storage. An event has the data of the new state, not of the old.
    #[doc(alias = "dataNotCached")]
    #[doc(alias = "CuratorCacheStorage")]
    pub fn without_data(mut self) -> Self {
        self.drops_data = true;
        self
    }

    /// Keeps the contents when the cache is closed: Curator's `DO_NOT_CLEAR_ON_CLOSE`.
    #[doc(alias = "DO_NOT_CLEAR_ON_CLOSE")]
    pub fn do_not_clear_on_close(mut self) -> Self {
        self.keeps_contents = true;
        self
    }

    /// Takes an ephemeral node in the place of an earlier one for a change of it. A client that gets a new session replaces
    /// its nodes, such as a [`PersistentNode`](crate::PersistentNode), in one transaction. Its readers get
    /// [`CacheEvent::Changed`](crate::CacheEvent::Changed), with two stats that differ in `czxid`, and never see the cache
    /// without the node.
    ///
    /// Without this option, as in Curator, they get a `Deleted` and a `Created`. A program that follows the owners of nodes,
    /// such as the contenders of a lock, needs both.
    ///
    /// Servers report the transaction as a deletion and a creation. So each deletion of an ephemeral node costs one read,
    /// and the cache keeps the node until the reply. A client that deletes and creates in two transactions, such as one over
    /// `zookeeper-async`, leaves a gap. The cache shows it if the reply does.
    pub fn merge_replacements(mut self) -> Self {
        self.merges_replacements = true;
        self
    }

    /// Sets the depth of a cache that has a fixed one.
    ///
    /// # Errors
    ///
    /// `CacheError::InvalidArgument`: the caller has set another depth.
    pub(super) fn of_depth(self, levels: usize) -> Result<Self, CacheError> {
        match self.max_depth {
            Some(given) if given != levels => Err(CacheError::InvalidArgument {
                argument: "max_depth",
                reason: format!("it is {given}, and this cache always has the depth {levels}"),
            }),
            _ => Ok(self.max_depth(levels)),
        }
    }

    /// Returns `true` if a cache of this client decompresses the data.
    pub(super) fn decompresses(&self, client: &CuratorFramework) -> bool {
        self.compressed.unwrap_or_else(|| client.compresses())
    }

    pub(super) fn keeping_root(mut self) -> Self {
        self.keeps_root = true;
        self
    }

    pub(super) fn reporting_connection(mut self) -> Self {
        self.reports_connection = true;
        self
    }

    /// Sets the largest number of nodes of a cache that sets watches one by one: with `zookeeper-async`, and with servers
    /// before 3.6. 10,000 unless set. The server keeps up to two watches for each node.
    pub fn max_watched_nodes(mut self, nodes: usize) -> Self {
        self.max_watched_nodes = nodes;
        self
    }

    /// Sets the number of events that may wait for the reader of a stream: 10,000 unless set. One more drops all of them,
    /// and [`CacheEvent::Reset`](crate::CacheEvent::Reset) takes their place. The nodes with which a stream starts do
    /// not count.
    pub fn max_events(mut self, events: usize) -> Self {
        self.max_events = events;
        self
    }

    /// Sets the length in bytes of the data of the events that may wait for the reader of a stream: 64 MiB unless set. More
    /// drops all of them, as with [`max_events`](Self::max_events). A [`CacheEvent::Changed`](crate::CacheEvent::Changed)
    /// counts for both of its states. One event may be longer.
    pub fn max_event_bytes(mut self, bytes: usize) -> Self {
        self.max_event_bytes = bytes;
        self
    }

    /// Starts with the contents of an earlier cache of the same path, for example one before a restart of the program.
    /// The cache reads only the nodes that have changed since, and reports each difference. A filter must not accept
    /// paths that the earlier cache left out: the resync does not report them. A snapshot of another path, of fewer
    /// levels, without data, or with the other setting of [`compressed`](Self::compressed) is refused. The two clients
    /// must have the same compression provider.
    pub fn resume(mut self, snapshot: CacheSnapshot) -> Self {
        self.snapshot = Some(snapshot);
        self
    }
}

impl CuratorCacheOptions {
    /// Returns the reason why a cache with these options cannot resume from a snapshot. A resync does not report the nodes that the earlier
    /// cache has left out, nor those that it has decoded in another way.
    pub(super) fn refusal(&self, snapshot: &CacheSnapshot, path: &str, is_compressed: bool) -> Option<String> {
        let depth = |levels: Option<usize>| levels.unwrap_or(usize::MAX);
        if snapshot.root != path {
            Some(format!("it is a snapshot of {}, not of {path}", snapshot.root))
        } else if depth(self.max_depth) > depth(snapshot.max_depth) {
            Some(format!("the cache of the snapshot was limited to {} levels", depth(snapshot.max_depth)))
        } else if !snapshot.has_data && !self.drops_data {
            Some("the cache of the snapshot was without data".to_owned())
        } else if snapshot.has_data && snapshot.is_compressed != is_compressed {
            let (earlier, now) =
                if snapshot.is_compressed { ("decompressed", "does not") } else { ("did not decompress", "does") };
            Some(format!("the cache of the snapshot {earlier} its data, and this one {now}"))
        } else {
            None
        }
    }
}

impl fmt::Debug for CuratorCacheOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CuratorCacheOptions")
            .field("max_depth", &self.max_depth)
            .field("has_filter", &self.accepts.is_some())
            .field("compressed", &self.compressed)
            .field("drops_data", &self.drops_data)
            .finish_non_exhaustive()
    }
}

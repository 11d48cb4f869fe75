//! The nodes of a cache, as its readers see them, and its state.

use std::collections::BTreeMap;
use std::sync::Arc;

use curator_framework::{Error, Stat, Zxid};
use tokio::time::Instant;

use super::engine::Request;
use super::error::CacheError;
use super::options::CuratorCacheOptions;

/// A node of a cache: Curator's `ChildData`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChildData {
    /// The full path.
    pub path: String,
    /// The stat in the reply that showed the node. The cache does not follow its counts of children.
    pub stat: Stat,
    /// The data; empty if the cache keeps none.
    pub data: Vec<u8>,
}

/// The result of a look-up in a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// The node.
    Present(Arc<ChildData>),
    /// The node does not exist at the transaction that [`CacheState`] names.
    Missing,
    /// The cache cannot tell: it is loading, the path is not in its scope, or the node cannot be read. A node that could be
    /// read before is not shown as it was. The state is also that of all unknown paths below a node that cannot be listed.
    NotLoaded,
}

impl Lookup {
    /// Returns the node, if it is present.
    #[must_use]
    pub fn present(self) -> Option<Arc<ChildData>> {
        match self {
            Self::Present(node) => Some(node),
            Self::Missing | Self::NotLoaded => None,
        }
    }
}

/// The age of a cache's contents.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum CacheState {
    /// The cache was not started.
    Latent,
    /// The first load is not complete, or the task tries again after `Failed`.
    Loading,
    /// The connection stands, and all notified changes up to a transaction have been read.
    Fresh {
        /// The contents show each change up to this transaction, and perhaps later ones.
        zxid: Zxid,
    },
    /// The connection is lost, its changes have not all been read, or all nodes are read again. The contents are kept.
    Stale {
        /// The moment at which the contents ceased to be fresh, as the cache noticed it.
        since: Instant,
        /// The contents show each change up to this transaction.
        zxid: Zxid,
    },
    /// The root cannot be listed or, in a cache of one node, not be read; or the cache has more nodes than
    /// [`max_watched_nodes`](crate::CuratorCacheOptions::max_watched_nodes). The task tries again, with growing pauses of
    /// up to 30 s. The state stays until the nodes are read. The known nodes are kept.
    ///
    /// With [`CacheError::Panicked`] the cache has ended for good: a closure of its options has panicked.
    Failed(CacheError),
    /// The cache or its client was closed, or its runtime has ended.
    Closed,
}

impl CacheState {
    /// Returns the transaction up to which the contents show each change, also while they are stale.
    #[must_use]
    pub const fn zxid(&self) -> Option<Zxid> {
        match self {
            Self::Fresh { zxid } | Self::Stale { zxid, .. } => Some(*zxid),
            _ => None,
        }
    }

    /// Returns `true` if the state is `Fresh`.
    #[must_use]
    pub const fn is_fresh(&self) -> bool {
        matches!(self, Self::Fresh { .. })
    }
}

/// The contents of a cache at one moment, from which a later cache can [resume](crate::CuratorCacheOptions::resume).
#[derive(Debug, Clone)]
pub struct CacheSnapshot {
    pub(super) root: String,
    pub(super) max_depth: Option<usize>,
    pub(super) has_data: bool,
    /// The data was decompressed.
    pub(super) is_compressed: bool,
    pub(super) zxid: Zxid,
    pub(super) nodes: Vec<ChildData>,
    /// The requests that were refused.
    pub(super) refused: BTreeMap<Request, Error>,
    /// The parents that have lost a child since their stat was read, by their paths below the root.
    pub(super) old_stats: Vec<String>,
}

impl CacheSnapshot {
    /// Returns the reason why a cache with these options cannot resume. A resync does not report the nodes that the earlier
    /// cache has left out, nor those that it has decoded in another way.
    pub(super) fn refusal(&self, path: &str, options: &CuratorCacheOptions, is_compressed: bool) -> Option<String> {
        let depth = |levels: Option<usize>| levels.unwrap_or(usize::MAX);
        if self.root != path {
            Some(format!("it is a snapshot of {}, not of {path}", self.root))
        } else if depth(options.max_depth) > depth(self.max_depth) {
            Some(format!("the cache of the snapshot was limited to {} levels", depth(self.max_depth)))
        } else if !self.has_data && !options.drops_data {
            Some("the cache of the snapshot was without data".to_owned())
        } else if self.has_data && self.is_compressed != is_compressed {
            let (earlier, now) =
                if self.is_compressed { ("decompressed", "does not") } else { ("did not decompress", "does") };
            Some(format!("the cache of the snapshot {earlier} its data, and this one {now}"))
        } else {
            None
        }
    }

    /// Returns the path of the cache.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.root
    }

    /// Returns the transaction up to which the nodes show each change.
    #[must_use]
    pub const fn zxid(&self) -> Zxid {
        self.zxid
    }

    /// Returns the nodes, parents before their children.
    #[must_use]
    pub fn nodes(&self) -> &[ChildData] {
        &self.nodes
    }
}

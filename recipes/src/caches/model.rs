//! The nodes of a cache, as its readers see them, and its state.

use std::sync::Arc;

use curator_framework::{Stat, Zxid};
use tokio::time::Instant;

use super::error::CacheError;

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
pub enum Lookup<T = Arc<ChildData>> {
    /// The node.
    Present(T),
    /// The node does not exist at the transaction that [`CacheState`] names.
    Missing,
    /// The cache cannot tell: it is loading, the path is not in its scope, or the node cannot be read. A node that could be
    /// read before is not shown as it was. All unknown paths below a node that cannot be listed have this state too.
    NotLoaded,
}

impl<T> Lookup<T> {
    /// Returns the node, if it is present.
    #[must_use]
    pub fn present(self) -> Option<T> {
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
    /// The client is connected, and all notified changes up to a transaction have been read.
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
    /// With [`CacheError::Panicked`] the cache has ended: a closure of its options has panicked.
    Failed(CacheError),
    /// The cache or its client was closed, or its runtime has ended.
    Closed,
}

impl CacheState {
    /// Returns the transaction up to which the contents show each change, even while they are stale.
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

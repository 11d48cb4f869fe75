//! The contents of a cache at one moment.

use std::collections::BTreeMap;

use curator_framework::{Error, Zxid};

use crate::caches::model::ChildData;
use crate::caches::request::Request;

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

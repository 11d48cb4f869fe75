//! The reads that a cache asks for.

use std::sync::Arc;

/// A request of a cache.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Request {
    /// Reads the data and the stat of a node.
    Read(Arc<str>),
    /// Lists the children of a node.
    List(Arc<str>),
}

impl Request {
    pub(super) const fn path(&self) -> &Arc<str> {
        match self {
            Self::Read(path) | Self::List(path) => path,
        }
    }
}

//! A value as its node has it.

use curator_framework::Stat;

/// A value as its node has it: Curator's `Versioned` and `ZNode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias = "ZNode")]
pub struct Versioned<T> {
    /// The value.
    pub value: T,
    /// The version in `stat`, for [`ModeledNode::update`](crate::ModeledNode::update).
    pub version: i32,
    /// The stat of the node.
    pub stat: Stat,
}

impl<T> Versioned<T> {
    pub(super) const fn new(value: T, stat: Stat) -> Self {
        Self { value, version: stat.version, stat }
    }
}
